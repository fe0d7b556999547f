"""The git directory of a thread's worktree: a repository of its own, which reads the project's objects as alternates.

Worktrees of git share branches, stash, configuration, hooks and more. An agent has its own of all that, so it reaches
nothing of the user's or of another thread; and what it keeps there stays with the thread.

    <project's git directory>/uwf-worktrees/<ULID>/
        HEAD, refs, index, logs, objects, modules, hooks, config, info    the agent's
        packed-refs     the project's refs as they were when the last step began, and the agent's own
        uwf-config      the project's configuration, on which `config` stands
        uwf-files       the project's hooks, excludes, attributes and shallow commits, likewise
        uwf-refs        a digest of the project's state, and its refs as they are in packed-refs
        gitdir          the worktree's `.git`, as in git's worktrees

Nothing of it leads git when uwf runs it: that is started on the project's own git directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.git.worktree import of_threads
from uwf_git.workspaces.project import Project, Setting

_SNAPSHOT, _CONFIG, _FILES = "uwf-refs", "uwf-config", "uwf-files"
_PACKED, _STASHED = "packed-refs", "logs/refs/stash"
_NOT_SHARED = (
    "refs/uwf/",
    "refs/heads/uwf/",
    "refs/stash",
    "refs/bisect/",
    "refs/worktree/",
    "refs/rewritten/",
)
_OWN_KEYS = ("core.worktree", "core.bare", "core.repositoryformatversion", "core.fsmonitor")
_OWN_SECTIONS = ("extensions.", "include.", "includeif.")
_EXTENSIONS = {"extensions.objectformat": "objectFormat", "extensions.partialclone": "partialClone"}
_FOLLOWED = "info/exclude", "info/attributes", "shallow"
_OF_WORKTREE = "info/sparse-checkout"


class _Snapshot(NamedTuple):
    """`digest` is of the project's state when `refs` were read."""

    digest: str
    refs: dict[str, str]


class ThreadRepository:
    """The git directory of a thread's worktree in `folder`."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder
        self.git_dir = of_threads(project.common) / folder.name

    @property
    def objects(self) -> Path:
        return self.git_dir / "objects"

    def make(self, settings: Sequence[Setting] | None = None) -> None:
        """Make it unless it is there. `settings` are the project's, if they have just been read."""
        new = self.git_dir
        for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks"):
            (new / name).mkdir(parents=True, exist_ok=True)
        common = self._project.common
        (new / "objects/info/alternates").write_text("../../../objects\n", encoding="ascii")
        if (common / _OF_WORKTREE).is_file() and not (new / _OF_WORKTREE).exists():
            shutil.copy2(common / _OF_WORKTREE, new / _OF_WORKTREE)
        self.refresh(settings)
        self.point()

    def point(self) -> None:
        """Let the worktree's `.git` lead here, and back."""
        _write(self.git_dir / "gitdir", f"{self._folder / '.git'}\n")
        if self._folder.is_dir():
            _write(self._folder / ".git", f"gitdir: {self.git_dir}\n")

    def refresh(self, settings: Sequence[Setting] | None = None) -> None:
        """Bring the project's refs, configuration, hooks and more along, if they have changed. What the agent has of
        its own stays."""
        before, digest = self._snapshot(), self._digest()
        if before.digest == digest:
            return
        settings = self._project.settings() if settings is None else settings
        self._refresh_configuration([setting for setting in settings if setting.is_own])
        self._refresh_files()
        refs = dict(self._projects_refs())
        own = {name: oid for name, oid in self._packed().items() if before.refs.get(name) != oid}
        rows = sorted({**refs, **own}.items())
        head = "# pack-refs with: sorted \n"
        _write(self.git_dir / _PACKED, head + "".join(f"{oid} {name}\n" for name, oid in rows))
        _write(self.git_dir / _SNAPSHOT, json.dumps([digest, refs]))

    def commit(self, ref: str) -> str:
        """Return the object of a ref, "" if there is none."""
        text = _line(self.git_dir / ref)
        for _ in range(5):
            if not text.startswith("ref: "):
                break
            ref = text.removeprefix("ref: ").strip()
            if not ref.startswith("refs/") or ".." in ref:
                return ""
            text = _line(self.git_dir / ref)
        return text if is_object_id(text) else self._packed().get(ref, "")

    def set_head(self, branch: str, commit: str) -> None:
        """Let HEAD be a branch at a commit, wherever the agent's is."""
        if self.commit(branch) != commit:
            _write(self.git_dir / branch, f"{commit}\n")
        if _line(self.git_dir / "HEAD") != f"ref: {branch}":
            _write(self.git_dir / "HEAD", f"ref: {branch}\n")

    def own(self, branch: str) -> dict[str, str]:
        """Return what the agent keeps besides its branch: refs of its own and stashed changes, by name."""
        known = self._snapshot().refs
        refs = {name: self.commit(name) for name in self._loose()} | self._packed()
        own_refs = {
            name: oid for name, oid in refs.items() if oid and known.get(name) != oid and name != branch
        }
        return {
            name: oid
            for name, oid in own_refs.items()
            if not name.startswith(("refs/remotes/", "refs/tags/"))
        }

    def own_objects(self, branch: str) -> set[str]:
        """Return the objects of `own`, and all stashed changes."""
        rows = _text(self.git_dir / _STASHED).splitlines()
        stashed = (row.split(" ")[1] for row in rows if row.count(" ") > 1)
        return {oid for oid in (*self.own(branch).values(), *stashed) if is_object_id(oid)}

    def signature(self, branch: str) -> str:
        """Return a line that changes with `own_objects`."""
        loose = {name: _line(self.git_dir / name) for name in self._loose() if name != branch}
        parts = [json.dumps(loose, sort_keys=True)]
        for name in (_PACKED, _STASHED):
            with contextlib.suppress(OSError):
                status = (self.git_dir / name).stat()
                parts.append(f"{status.st_mtime_ns}.{status.st_size}")
        return " ".join(parts)

    def worktrees(self) -> list[Path]:
        """Return the folders of worktrees that the agent has added, and of the project's that are in this one."""
        own = {Path(_line(path)).parent for path in self.git_dir.glob("worktrees/*/gitdir")}
        users = {Path(_line(path)).parent for path in self._project.common.glob("worktrees/*/gitdir")}
        within = {user for user in users if user.is_relative_to(self._folder) and user != self._folder}
        return sorted(path for path in own | within if path.is_dir())

    # The project's

    def _refresh_files(self) -> None:
        """Bring files along that the agent has left as they were before."""
        common, before = self._project.common, self.git_dir / _FILES
        now = {*_FOLLOWED, *(f"hooks/{hook.name}" for hook in _hooks(common))}
        for name in now | {f"hooks/{hook.name}" for hook in _hooks(before)}:
            source, old, own = common / name, before / name, self.git_dir / name
            if _bytes(own) != _bytes(old) or _bytes(source) == _bytes(old):
                continue
            if own.is_dir() or own.parent.is_symlink():  # an agent's
                continue
            for target in (own, old):
                target.unlink(missing_ok=True)
                if source.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, target)

    def _digest(self) -> str:
        """Return a text that changes with the project's refs and configuration."""
        common, parts = self._project.common, []
        files = (common / name for name in ("config", "config.worktree", _PACKED, *_FOLLOWED))
        for path in (*files, *_hooks(common), *_folders(common)):
            with contextlib.suppress(OSError):
                status = path.stat()
                size = "" if stat.S_ISDIR(status.st_mode) else status.st_size
                parts.append(f"{path.name} {status.st_mtime_ns}.{size}")
        return " ".join(parts)

    def _projects_refs(self) -> Iterator[tuple[str, str]]:
        listed = self._project.line("for-each-ref", "--format=%(objectname) %(refname) %(symref)")
        for row in listed.splitlines():
            oid, name, symbolic = (*row.split(" "), "")[:3]
            if f"{name}/".startswith(_NOT_SHARED):
                continue
            if symbolic and not (self.git_dir / name).exists():
                _write(self.git_dir / name, f"ref: {symbolic}\n")
            elif not symbolic:
                yield name, oid

    def _configuration(self, settings: Sequence[Setting]) -> Iterator[str]:
        common = self._project.common
        base = common.parent if common.name == ".git" else common
        for key, value, _ in settings:
            if key in _OWN_KEYS or key.startswith(_OWN_SECTIONS):
                continue
            if value is not None and key.startswith("remote.") and value.startswith(("./", "../")):
                value = os.path.normpath(base / value)  # git would read it from the worktree
            section, _, name = key.rpartition(".")
            section, _, sub = section.partition(".")
            head = f'[{section} "{_escaped(sub)}"]' if sub else f"[{section}]"
            yield f"{head}\n\t{name}" + ("\n" if value is None else f' = "{_escaped(value)}"\n')

    def _refresh_configuration(self, settings: Sequence[Setting]) -> None:
        """Bring the project's configuration along; what the agent has changed of it stays."""
        base, current = self.git_dir / _CONFIG, self.git_dir / "config"
        extensions = {_EXTENSIONS[key]: value for key, value, _ in settings if key in _EXTENSIONS}
        text = f"[core]\n\trepositoryformatversion = {int(bool(extensions))}\n\tbare = false\n"
        text += "".join(
            f'[extensions]\n\t{name} = "{_escaped(value or "")}"\n' for name, value in extensions.items()
        )
        text += f'[lfs]\n\tstorage = "{_escaped(str(self._project.common / "lfs"))}"\n'
        text += "".join(self._configuration(settings))
        merged = text
        if current.exists() and current.read_bytes() != base.read_bytes():
            new = self.git_dir / f"{_CONFIG}.theirs"
            _write(new, text)
            words = ("merge-file", "-p", "--ours", str(current), str(base), str(new))
            merged = self._project.run(*words, check=False).out.decode("utf-8", "surrogateescape") or text
        _write(current, merged)
        _write(base, text)

    # Its own

    def _snapshot(self) -> _Snapshot:
        with contextlib.suppress(OSError, ValueError, TypeError):
            digest, refs = json.loads((self.git_dir / _SNAPSHOT).read_bytes())
            return _Snapshot(str(digest), dict(refs))
        return _Snapshot("", {})

    def _packed(self) -> dict[str, str]:
        rows = {}
        with contextlib.suppress(OSError), (self.git_dir / _PACKED).open(errors="surrogateescape") as file:
            for row in file:
                oid, _, name = row.strip().partition(" ")
                if is_object_id(oid):
                    rows[name] = oid
        return rows

    def _loose(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.git_dir / "refs"):
            for name in names:
                yield str(Path(folder, name).relative_to(self.git_dir))


def is_object_id(text: str) -> bool:
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")


def _hooks(common: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(
            hook for hook in (common / "hooks").iterdir() if hook.suffix != ".sample" and hook.is_file()
        )
    return []


def _folders(common: Path) -> Iterator[Path]:
    """Yield the folders whose times change with the refs."""
    yield common / "reftable"
    for kind in ("heads", "tags", "remotes", "notes"):
        for folder, inner, _ in os.walk(common / "refs" / kind):
            if "uwf" in inner:
                inner.remove("uwf")
            yield Path(folder)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def _line(path: Path) -> str:
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="surrogateescape") as file:
        return file.read(8192).strip()
    return ""


def _text(path: Path) -> str:
    return _bytes(path).decode("utf-8", "surrogateescape")


def _bytes(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.uwf-new")
    new.write_text(text, encoding="utf-8", errors="surrogateescape")
    new.replace(path)
