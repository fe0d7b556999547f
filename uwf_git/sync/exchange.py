"""An exchange: a store, one of its remotes, and git for both."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uwf_git.git.program import Git
    from uwf_git.git.repository import Repository
    from uwf_git.store.instance import Instance
    from uwf_git.store.remotes import Remote


class Exchange(NamedTuple):
    """What to exchange threads and definitions with a remote takes. `git` may show its progress."""

    instance: Instance
    remote: Remote
    git: Git

    @property
    def repository(self) -> Repository:
        return self.instance.store.repository

    def lock(self) -> AbstractContextManager[None]:
        """Hold the only exchange with this remote. Raises Busy."""
        return self.instance.locks.exchange(self.remote.name)
