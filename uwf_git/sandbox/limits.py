"""Limits on a command with its descendants: memory, processes, CPU time, disk.

If this process may create control groups (version 2 delegated, or version 1 as root), the kernel enforces
memory and processes. Otherwise they are polled several times a second, and the kernel limits each single
process to twice the memory. CPU time and disk are always polled. Without /proc, as on macOS, only one
process's time and file size are limited.

Exceeding a limit ends the command with all descendants. This process is never limited.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from uwf_git.base import log, system
from uwf_git.base.system import Process
from uwf_git.sandbox.quota import Exceeded, Quota

TWO, ONE = "version 2", "version 1"
GROUPS: tuple[str, ...] = (TWO, ONE)
"""The kinds of control groups that are tried."""
_NAME = "uwf-"
_GB = 10**9
_SHARE = 20  # looking takes at most this part of the time
_SOONEST, _LATEST = 0.02, 0.25  # seconds between two looks
_REMOVED = 1.0  # seconds for the kernel to let go of a group whose processes are gone
_TEXT = 1 << 16
_OVER = 1 << 20  # bytes


def of_commands() -> Quota:
    """Return the default limits for models' commands: half of the memory, at most 4 GiB."""
    memory = min(4 * 2**30, *(size / 2 for size in _memory()))
    return Quota(memory, 1024, 4 * 3600, 10 * _GB)


def enforcement() -> str:
    """Describe how limits are enforced here."""
    group = _group(Quota(2.0**40, 1024))
    if group is None:
        if system.has_processes():
            return "watched: there is no control group that can be divided"
        return "not bounded but for the time of a process and the size of a file: there is no /proc"
    group.remove()
    return f"bounded by the kernel, in control groups of {group.kind}"


class Bounds:
    """The limits of one command. `before` is its launcher."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self._group = _group(quota)
        self._next = 0.0
        self._most = Quota(0, 0, 0, 0)
        log.debug(
            "8E4RWJ0T",
            "what a command may use is limited",
            quota=quota._asdict(),
            group=self._group and self._group.kind,
        )

    @property
    def before(self) -> list[str]:
        """The launcher that enters the group and execs the command."""
        if sys.platform == "win32":
            return []
        quota = self.quota
        script = [f"echo 0 > {shlex.quote(path)}" for path in self.groups]
        if quota.disk is not None:
            # A file that reaches it is seen to be more than all of them may hold.
            script.append(f"ulimit -f {(int(quota.disk) + _OVER) // 512 + 1}")
        if quota.cpu is not None:
            # At the hard limit the kernel kills without saying why.
            script.append(f"ulimit -S -t {int(quota.cpu) + 1}; ulimit -H -t {int(quota.cpu) + 2}")
        if quota.memory is not None and self._group is None:
            script.append(f"ulimit -d {2 * int(quota.memory) // 1024}")
        prologue = "".join(f"{{ {line}; }} 2>/dev/null; " for line in script)
        return ["/bin/sh", "-c", f'{prologue}exec "$@"', "uwf-limits"]

    @property
    def groups(self) -> tuple[str, ...]:
        """Files that list the groups' processes."""
        return tuple(str(folder / "cgroup.procs") for folder in self._group.folders) if self._group else ()

    def inside(self) -> list[int]:
        return self._group.processes() if self._group else []

    def wait(self) -> float:
        """The seconds until the next check."""
        return max(0.0, self._next - time.monotonic())

    def look(self, process: int, members: Callable[[], list[Process]]) -> Exceeded | None:
        """Return the exceeded limit, if any. `members` returns all processes."""
        began = time.monotonic()
        try:
            return self.refused() or self._watched(process, members)
        finally:
            now = time.monotonic()
            self._next = now + min(max(_SHARE * (now - began), _SOONEST), _LATEST)

    def refused(self) -> Exceeded | None:
        """Return the limit at which the kernel refused something, if any."""
        group = self._group
        if group is not None and self.quota.memory is not None and group.killed():
            return Exceeded("memory", self.quota.memory)
        if group is not None and self.quota.processes is not None and group.stopped():
            return Exceeded("processes", self.quota.processes)
        return None

    def ended(self, status: int) -> Exceeded | None:
        """Return the limit that an exited command reached between two checks, if any."""
        number = -status if status < 0 else status - 128
        if number == signal.SIGXFSZ and self.quota.disk is not None:
            return Exceeded("disk", self.quota.disk)
        if number == signal.SIGXCPU and self.quota.cpu is not None:
            return Exceeded("cpu", self.quota.cpu)
        return self.refused()

    def left(self, process: int) -> Exceeded | None:
        """Return the disk limit if the exited, unreaped command exceeded it."""
        limit = self.quota.disk
        if limit is None:
            return None
        written = max(self._most.disk or 0, _written(process))
        return Exceeded("disk", limit, written) if written > limit else None

    def _watched(self, process: int, members: Callable[[], list[Process]]) -> Exceeded | None:
        inside = self.inside()
        held = process in inside
        if held and self.quota.cpu is None and self.quota.disk is None:
            return None
        watched = list(system.processes(inside)) if held else members()
        quota, most = self.quota, self._most
        # A finished process's usage is added to its parent or lost: the largest sum is right.
        self._most = most = most._replace(
            cpu=max(most.cpu or 0, sum(item.processor for item in watched)),
            disk=max(
                most.disk or 0, sum(_written(item.pid) for item in watched) if quota.disk is not None else 0
            ),
        )
        used = most
        if not held:
            used = most._replace(
                processes=sum(item.threads for item in watched), memory=sum(item.resident for item in watched)
            )
            if quota.memory is not None and (used.memory or 0) > quota.memory:
                # They share most of it; counting proportional shares is slower.
                used = used._replace(memory=sum(map(_proportional, watched)))
        for name, limit, now in zip(Quota._fields, quota, used, strict=True):
            if limit is not None and now is not None and now > limit:
                return Exceeded(name, limit, now)
        return None

    def close(self) -> None:
        if self._group is not None:
            self._group.remove()


class _Group:
    """A command's control groups: one folder, or for version 1 one per controller."""

    def __init__(self, kind: str, memory: Path | None, pids: Path | None) -> None:
        self.kind = kind
        self._memory = memory
        self._pids = pids
        self.folders = tuple(dict.fromkeys(path for path in (memory, pids) if path is not None))

    def processes(self) -> list[int]:
        pids: set[int] = set()
        for folder in self.folders:
            pids.update(map(int, _text(folder / "cgroup.procs").split()))
        return list(pids)

    def killed(self) -> bool:
        if self._memory is None:
            return False
        name = "memory.events" if self.kind == TWO else "memory.oom_control"
        return _counted(self._memory / name, "oom_kill") > 0

    def stopped(self) -> bool:
        return self._pids is not None and _counted(self._pids / "pids.events", "max") > 0

    def remove(self) -> None:
        deadline = time.monotonic() + _REMOVED
        for folder in self.folders:
            while not _removed(folder) and time.monotonic() < deadline:
                time.sleep(_SOONEST)


def _group(quota: Quota) -> _Group | None:
    if quota.memory is None and quota.processes is None:
        return None
    name = f"{_NAME}{os.getpid()}-{secrets.token_hex(4)}"
    for kind in GROUPS:
        paths: list[Path] = []
        try:
            return _v2(quota, name, paths) if kind == TWO else _v1(quota, name, paths)
        except (OSError, LookupError):
            for folder in paths:
                _removed(folder)
    return None


def _v2(quota: Quota, name: str, paths: list[Path]) -> _Group:
    own = _own()[""]
    # Processes live only in leaves, so the group is usually a sibling of this process's own.
    for base in (own, own.parent):
        if not {"memory", "pids"} <= set(_text(base / "cgroup.subtree_control").split()):
            continue
        if not os.access(base / "cgroup.procs", os.W_OK):
            continue
        folder = _made(base, name, paths)
        if quota.memory is not None:
            _write(folder / "memory.max", quota.memory)
            with contextlib.suppress(OSError):  # missing without swap
                _write(folder / "memory.swap.max", 0)
            with contextlib.suppress(OSError):
                _write(folder / "memory.oom.group", 1)
        if quota.processes is not None:
            _write(folder / "pids.max", quota.processes)
        return _Group(TWO, folder, folder)
    raise LookupError


def _v1(quota: Quota, name: str, paths: list[Path]) -> _Group:
    own = _own()
    memory = pids = None
    if quota.memory is not None:
        memory = _made(own["memory"], name, paths)
        _write(memory / "memory.limit_in_bytes", quota.memory)
        with contextlib.suppress(OSError):  # exists if the kernel counts swap
            _write(memory / "memory.memsw.limit_in_bytes", quota.memory)
    if quota.processes is not None:
        pids = _made(own["pids"], name, paths)
        _write(pids / "pids.max", quota.processes)
    return _Group(ONE, memory, pids)


def _made(base: Path, name: str, paths: list[Path]) -> Path:
    for path in base.glob(f"{_NAME}*"):
        maker = path.name.removeprefix(_NAME).partition("-")[0]
        if not Path("/proc", maker).exists():
            _removed(path)
    folder = base / name
    folder.mkdir()
    paths.append(folder)
    return folder


def _own() -> Mapping[str, Path]:
    paths: dict[str, str] = {}
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    folders: dict[str, Path] = {}
    for line in _text(Path("/proc/self/mountinfo")).splitlines():
        fields, _, of_system = line.partition(" - ")
        kind, _, options = of_system.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, point = fields.split()[3:5]
        for name in [""] if kind == "cgroup2" else options.rpartition(" ")[2].split(","):
            at = paths.get(name)
            if at is not None and (root == "/" or f"{at}/".startswith(f"{root}/")):
                below = at if root == "/" else at.removeprefix(root)
                folders[name] = Path(point, below.lstrip("/"))
    return folders


def _memory() -> Iterator[float]:
    with contextlib.suppress(ValueError, OSError):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    own = _own()
    for name, file in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        with contextlib.suppress(ValueError, KeyError):
            yield float(_text(own[name] / file))


def _written(process: int) -> int:
    counters = dict(line.split(": ", 1) for line in _text(Path(f"/proc/{process}/io")).splitlines())
    return int(counters.get("write_bytes", 0)) - int(counters.get("cancelled_write_bytes", 0))


def _proportional(process: Process) -> int:
    for line in _text(Path(f"/proc/{process.pid}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return process.resident


def _counted(path: Path, what: str) -> int:
    for line in _text(path).splitlines():
        name, _, number = line.partition(" ")
        if name == what:
            return int(number)
    return 0


def _text(path: Path) -> str:
    try:
        descriptor = system.open_file(path, os.O_RDONLY | system.O_CLOEXEC)
    except OSError:
        return ""
    try:
        content = b""
        while data := os.read(descriptor, _TEXT):
            content += data
        return content.decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _write(path: Path, value: float) -> None:
    path.write_text(f"{int(value)}\n")


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
