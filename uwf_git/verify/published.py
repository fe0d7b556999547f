"""A branch that uwf published, or that holds what it published: verified by the nodes in it, without a store."""

from __future__ import annotations

from collections.abc import Callable

from uwf_git.base.errors import NothingToVerify
from uwf_git.git.repository import Oid, Repository
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.verify.refs import Verifier
from uwf_git.verify.whole import VerifyResult


def verify_commit(
    repository: Repository, commit: Oid, name: str, on_commit: Callable[[], None] = lambda: None
) -> VerifyResult:
    """Verify a commit with its past. `name` is that of its branch. Raises NothingToVerify."""
    store = Store(repository, Overlay())
    config = repository.config
    verifier = Verifier(store, lambda _: False, config.max_blob, on_commit, True, config.max_verify)
    findings = verifier.commit(commit, name)
    if not verifier.nodes:
        raise NothingToVerify(f"there is nothing of uwf's at {name}", "give a branch that uwf published")
    return VerifyResult(len(verifier.threads), verifier.steps, verifier.nodes, tuple(findings), (), (), ())
