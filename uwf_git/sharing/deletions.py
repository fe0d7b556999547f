"""What was deleted on a remote: marked here, so that no push brings it back by itself.

refs/uwf/remotes/<remote>/deleted/threads/<ULID>   where the ref was last seen there
"""

from __future__ import annotations

from collections.abc import Mapping

from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.opened import Instance
from uwf_git.store.remotes import Remote


def note(instance: Instance, remote: Remote, listed: Mapping[str, Oid], gone: Mapping[str, Oid]) -> list[str]:
    """Forgets the tracking refs of what a remote no longer lists. Returns the refs that were deleted there
    and are here, which it marks; what merely ended or was folded is none of them."""
    repository = instance.store.repository
    found = []
    for name, oid in gone.items():
        deleted = name.startswith(layout.NAMESPACE) and _was_deleted(instance, name, listed)
        if deleted and repository.ref(name) is not None and repository.ref(_marker(remote, name)) is None:
            repository.create_ref(_marker(remote, name), oid)
            found.append(name)
        tracking = layout.tracking(remote.name, name)
        if (known := repository.ref(tracking)) is not None:  # a push that deletes has dropped it already
            repository.delete_ref(tracking, known)
    return found


def marked(instance: Instance, remote: Remote) -> set[str]:
    """The refs that were deleted on a remote and are still here."""
    prefix = f"{layout.REMOTES}{remote.name}/deleted/"
    repository = instance.store.repository
    names = {layout.NAMESPACE + name.removeprefix(prefix) for name in repository.ref_names(prefix)}
    return {name for name in names if repository.ref(name) is not None}


def unmark(instance: Instance, remote: Remote, name: str) -> None:
    """Forgets that a ref was deleted: it is there again."""
    repository = instance.store.repository
    if (marker := repository.ref(_marker(remote, name))) is not None:
        repository.delete_ref(_marker(remote, name), marker)


def _marker(remote: Remote, name: str) -> str:
    return f"{layout.REMOTES}{remote.name}/deleted/{name.removeprefix(layout.NAMESPACE)}"


def _was_deleted(instance: Instance, name: str, listed: Mapping[str, Oid]) -> bool:
    """Whether a ref that is gone was not merely put elsewhere: an active one among the archives, an
    archive into a fold."""
    if not name.startswith(layout.OF_THREADS):
        return True
    thread = layout.thread_of(name)
    if name.startswith(layout.THREADS) and layout.ARCHIVE + thread in listed:
        return False
    folded = instance.store.folded(thread)
    return folded is None or folded.ref not in listed
