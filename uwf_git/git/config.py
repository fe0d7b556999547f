"""Git's configuration for one repository: the user, signing, and limits on received data.

Read through libgit2, plus GIT_CONFIG_GLOBAL, which it ignores. Our limits, with git's suffixes k, m and g:

    uwf.maxRefs    refs that a remote may list
    uwf.maxFetch   bytes of one fetch
    uwf.maxMemory  bytes of memory that git may use for a remote's data
    uwf.maxBlob    bytes of one file
    uwf.maxVerify  seconds for slow checks in one exchange
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import system
from uwf_git.base.errors import Invalid, SigningFailed
from uwf_git.base.text import one_line
from uwf_git.git.libgit2 import Config, GitError, Repository
from uwf_git.git.objects import Person, clean

MAX_REFS = 200_000
MAX_VERIFY = 60
MAX_BLOB = 95_000_000  # forges refuse 100 MB
ADVISED_BLOB = 1_000_000  # and advise against more than this

_DIGITS = 18  # of a limit
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

SET_IDENTITY = "git config --global user.name NAME; git config --global user.email ADDRESS"


class Bounds(NamedTuple):
    """Limits on git and its children for received data: bytes per file, bytes of writable memory, CPU
    seconds, as far as the system supports them; macOS has none for memory."""

    file: int
    memory: int

    @property
    def seconds(self) -> int:
        """The time a slow machine needs to unpack a file of that size."""
        return 20 + self.file // (6 << 20)

    def limits(self) -> dict[str, int]:
        """The form for `child.spawn`."""
        # -d and not -v, which also counts mapped packs and reserved memory.
        return {"f": -(-self.file // 512), "d": -(-self.memory // 1024), "t": self.seconds}


BOUNDS = Bounds(2 << 30, 1 << 30)


_LOGINS = "LOGNAME", "USER", "USERNAME"  # the last is that of Windows


class GitConfig:
    """The configuration of an open repository. `shared` is its worktrees' common folder."""

    def __init__(self, git: Repository, shared: Path) -> None:
        self._git = git
        self._shared = shared
        self._instead: Person | None = None

    def value(self, key: str) -> str:
        return next((value for config in self._files() if (value := config.value(key)) is not None), "")

    def flag(self, key: str) -> bool | None:
        """Return a git boolean, or None. Raises Invalid."""
        try:
            return next((flag for config in self._files() if (flag := config.flag(key)) is not None), None)
        except GitError:
            raise Invalid(f"{key} is neither true nor false", f"see: git config --get-all {key}") from None

    def entries(self, beginning: str) -> list[tuple[str, str]]:
        """Return all values of keys with a prefix in git's order, "" for none. Raises Invalid for unreadable
        files."""
        try:
            pairs = [entry for config in reversed(self._files()) for entry in config.entries()]
        except GitError as error:
            raise Invalid(f"git's configuration cannot be read: {error}", "see: git config --list") from None
        return [(key, value) for key, value in pairs if key.startswith(beginning)]

    def act_for(self, person: Person) -> None:
        """Make another person's records from now on: in their name, and unsigned, as the keys here are the user's."""
        self._instead = person

    @property
    def is_for_another(self) -> bool:
        """Whether records are those of another person, who has no key here."""
        return self._instead is not None

    @property
    def signing(self) -> Callable[[str], str]:
        """`value`, for all that signs or looks for the key that does. Raises SigningFailed if that would be the user's
        in the name of another person."""
        if self.is_for_another:
            raise SigningFailed(f"nothing is signed here in the name of {self.user.ident}", self.how_to_sign)
        return self.value

    @property
    def user(self) -> Person:
        """Whose records are made: the person that somebody else acts for, or the owner."""
        return self._instead or self.owner

    @cached_property
    def owner(self) -> Person:
        """The user's identity: environment, then configuration, then login name."""
        name = os.environ.get("GIT_COMMITTER_NAME") or self.value("user.name")
        email = os.environ.get("GIT_COMMITTER_EMAIL") or self.value("user.email")
        login = next(filter(None, map(os.environ.get, _LOGINS)), f"uid{system.user()}")
        return Person(clean(name) or clean(login), clean(email) or f"{clean(login)}@localhost")

    @property
    def missing_identity(self) -> str:
        """Why commits have the login name or no real address; "" if configured."""
        named = [
            os.environ.get(f"GIT_COMMITTER_{what.upper()}") or self.value(f"user.{what}")
            for what in ("name", "email")
        ]
        by = f"{self.user.name} <{self.user.email}>"
        return "" if all(named) else f"git has no name and address for you, so commits are by {by}"

    @property
    def signs_commits(self) -> bool:
        """Whether commits are signed. Raises Invalid."""
        return not self.is_for_another and bool(self.flag("commit.gpgSign"))

    @property
    def signs_tags(self) -> bool:
        """Whether tags are signed, by default as commits. Raises Invalid."""
        if self.is_for_another:
            return False
        chosen = self.flag("tag.gpgSign")
        return self.signs_commits if chosen is None else chosen

    @property
    def how_to_sign(self) -> str:
        """The way to signed records, for a hint."""
        if self.is_for_another:
            return "there is no key of yours here: use uwf where yours is"
        return "git config --global commit.gpgSign true"

    @property
    def sharing(self) -> int:
        """`core.sharedRepository` as mode bits added to the umask's; negative for an exact mode; 0 if unset
        or unknown."""
        setting = self.value("core.sharedRepository").lower()
        if setting in ("", "umask"):
            return 0
        if setting in ("group", "true", "yes", "on", "1"):
            return 0o660
        if setting in ("all", "world", "everybody", "2"):
            return 0o664
        bits = int(setting, 8) if re.fullmatch("[0-7]+", setting) else 0
        return -(bits & 0o666) if bits & 0o600 == 0o600 else 0

    @property
    def max_refs(self) -> int:
        return self._limit("uwf.maxRefs", MAX_REFS)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self._limit("uwf.maxFetch", BOUNDS.file), self._limit("uwf.maxMemory", BOUNDS.memory))

    @property
    def max_verify(self) -> int:
        return self._limit("uwf.maxVerify", MAX_VERIFY)

    @property
    def max_blob(self) -> int:
        return self._limit("uwf.maxBlob", MAX_BLOB)

    def to_raise(self, key: str, value: str) -> str:
        """Return the command that sets a limit."""
        import shlex

        return f"git --git-dir {shlex.quote(str(self._shared))} config {key} {value}"

    def _limit(self, key: str, default: int) -> int:
        text = self.value(key).strip().lower()
        if not text:
            return default
        number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1] in _UNITS else (text, 1)
        if not number.isdecimal() or len(number) > _DIGITS:
            raise Invalid(
                f"{key} is not a number: {one_line(text, 40)!r}",
                f"set it: {self.to_raise(key, str(default))}",
            )
        return int(number) * unit

    def _files(self) -> list[Config]:
        if instead := os.environ.get("GIT_CONFIG_GLOBAL"):
            paths = [Path(str(self._git.path)) / "config.worktree", self._shared / "config", Path(instead)]
            return [Config(str(path)) for path in paths if path.is_file()]
        return [self._own]

    @cached_property
    def _own(self) -> Config:
        return Config(self._git)
