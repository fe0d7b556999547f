"""A repository that is no store of ours, such as the checkout of a CI or somebody's clone: its objects are read
without its configuration, by no program, and nothing is written into it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

from uwf_git.base.errors import Invalid, NotFound, StoreDamaged, StoreUnwritable
from uwf_git.git.config import GitConfig
from uwf_git.git.database import ObjectDatabase
from uwf_git.git.libgit2 import Config, Odb
from uwf_git.git.libgit2 import Repository as Libgit2Repository
from uwf_git.git.objects import Oid
from uwf_git.git.refs import is_waited_for, read_file
from uwf_git.git.repository import Repository

_MOST_ALTERNATES = 16
_LONGEST = 1 << 20  # bytes of a small file


class _Objects(NamedTuple):
    """The part of libgit2's repository that reading objects needs."""

    path: str
    odb: Odb


class ForeignRepository(Repository):
    """The objects of a repository, given by the folder that has them. Limits come from the user's
    configuration. `is_partial` says whether objects may have been left out."""

    def __init__(self, common: Path) -> None:
        """Raises NotFound, Invalid for a format that isn't supported, StoreDamaged for files to wait for."""
        objects = common / "objects"
        if not objects.is_dir():
            raise NotFound(f"no git repository at {common}", "give the folder of a checkout")
        if waited := is_waited_for(common) or _waited_pack(objects):
            raise StoreDamaged(f"{waited} is not a regular file", "move it away")
        opened = _Objects(str(common), Odb(str(objects)))
        ObjectDatabase.__init__(self, cast("Libgit2Repository", opened))
        self.config = UserConfig()
        self._trees = {}
        self._roots = {}
        self.is_partial = any(objects.glob("pack/*.promisor"))

    def _write(self, kind: int, data: bytes) -> NoReturn:
        raise StoreUnwritable(f"{self.path} is only read", "write to a store of your own")


class UserConfig(GitConfig):
    """Git's configuration of the user and the machine, without that of any repository."""

    def __init__(self) -> None:
        pass

    def to_raise(self, key: str, value: str) -> str:
        return f"git config --global {key} {value}"

    def _files(self) -> list[Config]:
        home = Path(os.environ.get("HOME") or Path("~").expanduser())
        xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        instead = os.environ.get("GIT_CONFIG_GLOBAL")
        users = [Path(instead)] if instead else [home / ".gitconfig", xdg / "git" / "config"]
        return [Config(str(path)) for path in (*users, Path("/etc/gitconfig")) if path.is_file()]


def shallow_commits(common: Path) -> frozenset[Oid]:
    """Return the commits of a repository whose parents were not fetched. Raises StoreDamaged, Invalid."""
    try:
        data = read_file(common / "shallow", _LONGEST) or b""
    except OSError as error:
        raise StoreDamaged(f"{common / 'shallow'} cannot be read: {error}", "move it away") from None
    lines = data.decode("ascii", "replace").split()
    try:
        return frozenset(Oid(hex=line) for line in lines)
    except ValueError:
        raise Invalid(f"{common / 'shallow'} is not a list of commits", "fetch it again") from None


def _waited_pack(objects: Path) -> Path | None:
    for folder in _object_folders(objects):
        try:
            entries = list(os.scandir(folder / "pack"))
        except OSError:
            continue
        for entry in entries:
            if not stat.S_ISREG(entry.stat().st_mode) and entry.name.startswith("pack-"):
                return Path(entry.path)
    return None


def _object_folders(objects: Path) -> Iterator[Path]:
    folders = [objects]
    for folder in folders:  # grows while it is walked
        yield folder
        try:
            text = (read_file(folder / "info" / "alternates", _LONGEST) or b"").decode("utf-8", "replace")
        except OSError:
            continue
        more = [folder / line for line in text.splitlines() if line and not line.startswith("#")]
        folders += more[: _MOST_ALTERNATES - len(folders)]
