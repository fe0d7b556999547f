"""An outside to which effects are sent: a file that has a line with the key for each arrival."""

from __future__ import annotations

from pathlib import Path

from uwf_git.base.errors import Declined, UwfError
from uwf_git.ext.landing.effects import Sending
from uwf_git.format.words import COMMENT

REPOSITORY = "https://forge.invalid/acme/shop"


def sending(name: str = "summary", content: str = "All tests pass.", kind: str = COMMENT) -> Sending:
    return Sending(kind, REPOSITORY, name, content.encode(), content)


class Crash(BaseException):
    """The end of a process, where no code of it can do anything more."""


class Outside:
    """What arrived. It crashes the sender `before` or `after` it takes something, or is `refusing`, or `unreachable`
    for look-ups."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "arrived"
        self.crashes = ""
        self.is_refusing = False
        self.is_unreachable = False

    @property
    def arrived(self) -> list[str]:
        return self.file.read_text().split() if self.file.exists() else []

    def send(self, key: str) -> str:
        if self.is_refusing:
            raise Declined("the forge says 422: no", "correct it")
        if self.crashes == "before":
            raise Crash
        with self.file.open("a") as file:
            file.write(f"{key}\n")
        if self.crashes == "after":
            raise Crash
        return f"{REPOSITORY}/comments/{len(self.arrived)}"

    def look_up(self, key: str) -> str | None:
        if self.is_unreachable:
            raise UwfError("the forge does not answer")
        return f"{REPOSITORY}/comments/{self.arrived.index(key) + 1}" if key in self.arrived else None
