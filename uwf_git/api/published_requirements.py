"""The requirements of a repository's trust policy for a published branch of it.

It is judged in a temporary store that borrows the repository's objects. A reader that has seen no policy before follows
the one that the repository has now, if that is signed as policies must be.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.api.check import Report, with_requirements
from uwf_git.format.ids import is_thread_id
from uwf_git.git.repository import Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.instance import Instance
from uwf_git.store.location import init, locate
from uwf_git.sync.admission import has_rule_about_threads, policy_findings, unmet_finding
from uwf_git.verify.findings import Finding
from uwf_git.verify.whole import VerifyResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from uwf_git.verify.published import Subject

THREAD, COMMITS = "thread", "commits"
_NOTHING = VerifyResult(0, 0, 0, (), (), (), ())


def unmet_requirements(
    objects: Path, object_of: Callable[[str], str], branch: str, subjects: Sequence[Subject]
) -> list[Finding]:
    """Return the findings for what a branch holds under the policy's rules, and for the policy itself; none without a
    policy. Proposals are held to it when they are accepted. `objects` is the folder of the repository's objects, and
    `object_of` returns the object's id for a revision of it, "" for none."""
    policy = object_of(f"{layout.POLICY}^{{commit}}")
    if not policy:
        return []
    with tempfile.TemporaryDirectory(prefix="uwf-ci-") as folder:
        location = locate(folder, {}, Path(folder))
        init(location)
        borrowed = location.git_dir / "objects" / "info" / "alternates"
        borrowed.write_text(f"{objects}\n", encoding="utf-8")
        instance = Instance(location)
        repository = instance.store.repository
        commit = Oid(hex=policy)
        if findings := policy_findings(repository, commit):
            return findings
        repository.create_ref(layout.POLICY, commit)
        findings = [
            _without_commits(subject)
            for subject in subjects
            if subject.kind == THREAD
            and subject.by != COMMITS
            and has_rule_about_threads(repository, subject.name)
        ]
        refs = {name: Oid(hex=oid) for name, oid in _refs(object_of, f"refs/heads/{branch}", subjects)}
        if refs:
            findings += with_requirements(instance, Report(refs, _NOTHING, [])).findings
        return findings


def _without_commits(thread: Subject) -> Finding:
    message = f"a thread of {thread.name} has no commits of its own here, so that nobody signed its steps"
    return unmet_finding("", thread.commit, message)


def _refs(
    object_of: Callable[[str], str], branch: str, subjects: Sequence[Subject]
) -> Iterator[tuple[str, str]]:
    """Yield the refs that a store has for a branch's records: heads and ends of threads, definitions."""
    for number, subject in enumerate(subjects):
        if subject.kind == THREAD and subject.by == COMMITS:
            name = branch.removeprefix(f"{layout.BRANCHES}threads/")
            thread = name if is_thread_id(name) else f"{number:026d}"
            yield layout.THREADS + thread, subject.commit
            if end := object_of(layout.ARCHIVE + thread):
                yield layout.ARCHIVE + thread, end
        for kind in ref_kinds.versioned().values():
            if subject.kind in kind.records and branch.startswith(kind.branches):
                yield kind.prefix + branch.removeprefix(kind.branches), subject.commit
