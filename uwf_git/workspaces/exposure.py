"""Secrets in code that is about to leave: in what commits add, their files' names and messages. What they take away or
leave as it was is no exposure by them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.text import one_line

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.project import Project

_SEARCHED = 64 << 20  # bytes of changes
_LOG = ("log", "-p", "-m", "-U0", "--text", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


class Exposure(NamedTuple):
    """A secret, by its variable or kind, in a `file`, or in a commit's message if that is ""."""

    name: str
    file: str

    def __str__(self) -> str:
        place = one_line(self.file, 100) if self.file else "a commit's message"
        return f"a secret ({self.name}) in {place}"


def secrets_in(instance: Instance, project: Project, span: str) -> list[Exposure]:
    """Return the secrets that the commits of a range such as `main..topic` add, also those that the settings files of
    the project's checkout have; of each file and message the first."""
    instance.know_secrets_of(project.common.parent)
    mark = secrets.token_hex(8)
    out = project.git().run(*_LOG, f"--format={mark}%n%B%n{mark}", span, at_most=_SEARCHED).out
    exposures: dict[Exposure, None] = {}
    _, *parts = out.decode("utf-8", "replace").split(f"{mark}\n")
    for message, patch in zip(parts[::2], parts[1::2], strict=False):
        for file, text in (("", message), *_added(patch)):
            if spot := instance.redactor.first(text):
                exposures[Exposure(spot.name, file)] = None
    return list(exposures)


def _added(patch: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of a patch without context, and its added lines below that."""
    for change in patch.split("\ndiff --git ")[1:]:
        header, _, hunks = change.partition("\n@@ ")
        lines = [line[1:] for line in hunks.split("\n") if line.startswith("+")]
        name = next((line[4:] for line in header.split("\n") if line.startswith("+++ ")), "")
        name = name.strip('"\t').removeprefix("b/")
        yield name or header.partition("\n")[0], "\n".join([header.partition("\n")[0], *lines])
