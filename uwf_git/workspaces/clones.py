"""The repositories on this machine that may have the code of threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import UwfError
from uwf_git.workspaces.notes import Notes

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

MOST = 20  # repositories in which a remote is looked for


def clones(instance: Instance, threads: Iterable[ThreadId] = ()) -> Iterator[Path]:
    """Yield git directories, those most likely to have the code of `threads` first: their projects, the folders that
    they were stepped in, the current folder, what other threads of the store work in, the store itself."""
    seen: set[Path] = set()
    for place in _places(instance, list(dict.fromkeys(threads))):
        if (resolved := place.resolve()) not in seen and place.is_dir():
            seen.add(resolved)
            yield place


def remote_named(url: str, places: Iterable[Path]) -> str:
    """Return the name of the remote with a URL in the first of some git directories that has one, "" if none."""
    from uwf_git.workspaces.project import Project

    for place in islice(places, MOST) if url else ():
        with suppress(UwfError, OSError):  # a repository that is gone, or that git does not read
            if name := Project(place).remote_at(url):
                return name
    return ""


def _places(instance: Instance, threads: list[ThreadId]) -> Iterator[Path]:
    from uwf_git.store.location import checkout_around

    notes = Notes(instance.store.repository.private)
    yield from (Path(note.project) for note in map(notes.read, threads) if note is not None and note.project)
    stepped_in = filter(None, map(instance.folders.recall, threads))
    for folder in chain(stepped_in, _here(), _others(instance)):
        if folder.is_dir() and (checkout := checkout_around(folder)) is not None:
            yield checkout.common
    yield from (Path(note.project) for _, note in notes.all() if note.project)
    yield instance.location.git_dir


def _here() -> Iterator[Path]:
    try:
        yield Path.cwd()
    except OSError:  # it was removed
        return


def _others(instance: Instance) -> Iterator[Path]:
    yield from sorted(instance.folders.all())
