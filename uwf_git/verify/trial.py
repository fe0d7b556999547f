"""What comes from elsewhere, verified before anything here knows of it. It is taken into an index of its
own, and handed to the real one where nothing is wrong."""

from __future__ import annotations

from uwf_git.git.limits import max_blob
from uwf_git.git.repository import Oid
from uwf_git.store.nodes import Store
from uwf_git.store.overlay import Overlay
from uwf_git.verify.findings import Finding
from uwf_git.verify.refs import Verifier


class Trial:
    """Refs that are tried one after the other; commits that `store` knows are not entered again."""

    def __init__(self, store: Store) -> None:
        index = store.index
        self._overlay = Overlay(index)
        self._verifier = Verifier(
            Store(store.repository, self._overlay),
            lambda commit: index.commit(commit.raw) is not None,
            max_blob(store.repository),
        )

    def findings(self, name: str, oid: Oid) -> tuple[Finding, ...]:
        """What is wrong with what a ref of that name points at. Where that is nothing, what it leads to is
        known from now on."""
        found = self._verifier.ref(name, oid)
        if not found:
            self._overlay.settle()
        return tuple(found)

    def close(self) -> None:
        """Forgets what was taken in and not handed over."""
        self._overlay.close()
