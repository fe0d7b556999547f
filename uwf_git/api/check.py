"""Verifying a store, or some of its threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.opened import Instance

if TYPE_CHECKING:
    from uwf_git.verify.findings import Finding
    from uwf_git.verify.whole import Verified


def refs_to_verify(instance: Instance, threads: Collection[ThreadId]) -> dict[str, Oid | None]:
    """Return the refs of some threads, with the folds that hold them, or of the whole store for none."""
    from uwf_git.verify.whole import local_refs, thread_refs

    repository = instance.store.repository
    if not threads:
        return local_refs(repository)
    refs = thread_refs(repository, threads)
    for thread in threads:
        folded = instance.store.folded(thread)
        if folded is not None and layout.ARCHIVE + thread not in refs:
            refs[folded.ref] = repository.ref(folded.ref)
    return refs


def verify_refs(
    instance: Instance, refs: Mapping[str, Oid | None], on_commit: Callable[[], None] = lambda: None
) -> Verified:
    """Verify refs; nothing that was found out before is believed."""
    from uwf_git.verify import whole

    repository = instance.store.repository
    return whole.verify_refs(repository, refs, repository.config.max_blob, on_commit)


def verify(instance: Instance, threads: Collection[ThreadId] = ()) -> list[Finding]:
    """Verify some threads, or the whole store, and return what is wrong."""
    from uwf_git.verify.whole import missing_refs

    report = verify_refs(instance, refs_to_verify(instance, threads))
    return [*missing_refs(instance.store, threads), *report.findings]
