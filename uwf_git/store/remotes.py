"""Remotes, in the store's git configuration: a URL, and refspecs that make plain `git fetch` and `git push`
move the same refs.

    remote.<name>.uwf    true: threads are shared with it
    remote.<name>.fetch  +refs/uwf/threads/*:refs/uwf/remotes/<name>/threads/*, and so on
    remote.<name>.push   refs/uwf/threads/*, and so on; not for the remote of a project's code, whose plain
                         `git push` must not change
    remote.<name>.uwfProject  the mark of a project that was pushed to it from here; one for each

The `+` is for tracking refs only. No ref of the user's is ever forced.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Busy, Invalid, NotFound, StoreUnwritable, Usage, UwfError
from uwf_git.base.text import nearest
from uwf_git.git.fsync import sync
from uwf_git.git.lockfiles import LOCK
from uwf_git.git.program import Git
from uwf_git.git.repository import Repository
from uwf_git.store import layout

DEFAULT = "origin"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_LOGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/\s]*)@", re.IGNORECASE)
_SSH = ("ssh", "git+ssh", "ssh+git")


class Remote(NamedTuple):
    """A remote. `push_url` is usually the same; `code` marks a project's own remote, which has branches too."""

    name: str
    url: str
    push_url: str
    code: bool = False


class Remotes:
    """The remotes of one repository. `here`: it is shared with code."""

    def __init__(self, repository: Repository, here: bool) -> None:
        self._repository = repository
        self._git = Git(repository.path)
        self._here = here

    def all(self) -> list[Remote]:
        """Return the remotes that threads are shared with, by name."""
        settings = self._settings()
        return [
            self._remote(name, settings)
            for name in sorted(settings)
            if settings[name].get("uwf") == ["true"] and settings[name].get("url")
        ]

    def get(self, name: str | None) -> Remote:
        """Return a remote, by default `origin` or the only one. Raises NotFound, Usage."""
        return named(name, self.all())

    def of_project(self, name: str) -> Remote | None:
        """Return a remote of the project whose repository the store is, if threads aren't shared with it yet."""
        settings = self._settings()
        is_new = self._here and settings.get(name, {}).get("url") and settings[name].get("uwf") != ["true"]
        return self._remote(name, settings) if is_new else None

    def add(self, name: str, url: str | None) -> Remote:
        """Add a remote, or share threads with the project's remote of that name. Repeating it adds missing
        refspecs. Raises Usage for another URL under an existing name, Invalid for an invalid name or URL."""
        if not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
            raise Invalid(f"{name!r} cannot be a remote's name", "use letters, digits, dots and dashes")
        there = self._settings().get(name, {})
        known = (there.get("url") or [""])[0]
        if not url and not known:
            raise Usage(f"remote {name} has no address", f"uwf remote add {name} URL")
        if url and known and known not in (url, _absolute(url)):
            raise Usage(f"remote {name} is already {without_password(known)}", f"uwf remote rm {name}")
        address = known or _absolute(check_url(url or ""))
        pushed = there.get("push", ())
        own = not known or any(spec.startswith(layout.NAMESPACE) for spec in pushed)
        self._configure(name, address, own)
        return self.get(name)

    def projects_of(self, name: str) -> list[str]:
        """Return the marks of the projects that were pushed to a remote from here."""
        return self._settings().get(name, {}).get("uwfproject", [])

    def note_project(self, name: str, mark: str) -> None:
        """Note that a project was pushed to a remote."""
        if mark not in self.projects_of(name):
            self._change("--add", f"remote.{name}.uwfProject", mark)

    def remove(self, name: str) -> Remote:
        """Remove a remote with its tracking refs; of a project's remote only uwf's settings."""
        remote = self.get(name)
        if self._settings()[name].get("tagopt") != ["--no-tags"]:  # it was there before uwf
            for key in ("fetch", "push"):
                self._git.run("config", "--unset-all", f"remote.{name}.{key}", r"refs/uwf/", check=False)
            self._git.run("config", "--unset-all", f"remote.{name}.uwfProject", check=False)
            self._change("--unset-all", f"remote.{name}.uwf")
        else:
            self._change("--remove-section", f"remote.{name}")
        self._sync()
        for prefix in (layout.REMOTES, layout.MERGED, layout.REWRITTEN):
            self._repository.delete_refs(self._repository.refs(f"{prefix}{name}/"))
        with contextlib.suppress(OSError):
            (self._repository.private / "seen" / name).unlink()
        return remote

    def _configure(self, name: str, url: str, own: bool) -> None:
        values = [("url", url)] if own else []
        values += [("fetch", f"+{ref}*:{layout.tracking(name, ref)}*") for ref in layout.shared()]
        if own:
            values.append(("tagOpt", "--no-tags"))
            branches = () if self._here else layout.version_branches()
            values += [("fetch", f"+{ref}*:{layout.tracking(name, ref)}*") for ref in branches]
            values += [("push", f"{ref}*:{ref}*") for ref in layout.shared()]
        values.append(("uwf", "true"))
        there = self._settings().get(name, {})
        missing = [(key, value) for key, value in values if value not in there.get(key.lower(), ())]
        if missing:
            lines = (f"\t{key} = {_quoted(value)}\n" for key, value in missing)
            self._append(f'[remote "{name}"]\n{"".join(lines)}')

    def _append(self, text: str) -> None:
        """Append text to the configuration by its lock file, as git does: a process of git for each value would take
        a quarter of a second."""
        path = Path(os.path.realpath(self._repository.path / "config"))
        lock = path.with_name(f"{path.name}{LOCK}")
        try:
            with self._repository.lockfiles.locking("config"):
                lock.touch(exist_ok=False)
                try:
                    lock.write_bytes(
                        path.read_bytes().rstrip(b"\n") + b"\n" + text.encode("utf-8", "surrogateescape")
                    )
                    lock.chmod(stat.S_IMODE(path.stat().st_mode))
                    sync(lock)
                    lock.replace(path)
                except BaseException:
                    lock.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise self._unchanged(error.strerror or str(error)) from None
        self._sync()

    def _change(self, *args: str) -> None:
        done = self._git.run("config", *args, check=False)
        if done.code:
            raise self._unchanged(done.reason)

    def _unchanged(self, reason: str) -> UwfError:
        if (lock := self._repository.lockfiles.lock_on("config")) is not None:
            return Busy(f"the store's configuration is locked by {lock.told}", lock.hint)
        where = self._repository.path / "config"
        return StoreUnwritable(f"cannot change {where}: {reason}", "check permissions and free space")

    def _sync(self) -> None:
        with contextlib.suppress(OSError):
            sync(self._repository.path / "config")
            sync(self._repository.path)

    def _remote(self, name: str, settings: dict[str, dict[str, list[str]]]) -> Remote:
        setting = settings[name]
        url = setting["url"][0]
        code = self._here or any("refs/uwf/" not in spec for spec in setting.get("fetch", ()))
        return Remote(name, url, setting.get("pushurl", [url])[0], code)

    def _settings(self) -> dict[str, dict[str, list[str]]]:
        settings: dict[str, dict[str, list[str]]] = {}
        for key, value in self._repository.config.entries("remote."):
            if key.count(".") >= 2:
                name, _, last = key.removeprefix("remote.").rpartition(".")
                settings.setdefault(name, {}).setdefault(last, []).append(value)
        return settings


def named(name: str | None, remotes: Iterable[Remote]) -> Remote:
    """Return a remote among these, by default `origin` or the only one. Raises NotFound, Usage."""
    known = {remote.name: remote for remote in remotes}
    if name is None:
        if DEFAULT in known or len(known) == 1:
            return known.get(DEFAULT) or next(iter(known.values()))
        if not known:
            raise NotFound("no remote is configured", "add one: uwf remote add origin URL")
        raise Usage(f"there are several remotes: {', '.join(known)}", "name one")
    if name not in known:
        raise NotFound(f"no remote {name!r}", nearest(name, known) or "add it: uwf remote add NAME URL")
    return known[name]


def check_url(url: str) -> str:
    """Return a URL safe to pass to git. Raises Invalid for options and commands."""
    if (
        not url.strip()
        or url.startswith("-")
        or not url.isprintable()
        or re.match(r"[A-Za-z0-9][A-Za-z0-9+.-]*::", url)
    ):
        raise Invalid(f"{without_password(url)!r} is not an address of a repository", "a path, or an URL")
    return url


def _quoted(value: str) -> str:
    """Return a value as git's configuration has it. No control character is in an address."""
    if re.fullmatch(r"[^\s;#\\\"]+", value):
        return value
    return '"{}"'.format(value.replace("\\", "\\\\").replace('"', '\\"'))


def _absolute(url: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]*://|[^/]*:", url, re.IGNORECASE):
        return url
    return str(Path(url).expanduser().absolute())


def without_password(url: str) -> str:
    """Return a URL without password, and without user unless ssh needs it; on the web, without what follows a `?`."""
    if url.lower().startswith(("https://", "http://")):
        url = url.partition("?")[0]
    login = _LOGIN.match(url)
    if login is None:
        return url
    scheme, user = login[1], login[2].partition(":")[0]
    kept = f"{user}@" if scheme.lower() in _SSH and user else ""
    return f"{scheme}://{kept}{url[login.end() :]}"
