"""The descendants of a process: found, counted, and ended with it, even if this process is killed.

A command leads a session and a group. Processes outside them (daemons, wrapped programs) are recognised by a
mark in the inherited environment, as children of known ones, or by the control group of a limit. Others are
not found; without /proc only the group is.

A guard, a shell waiting on a pipe that only this process holds, ends them if this process is killed: the group, what is
marked or in the control group, and what has come from these.

Orphans left the session and their parents, and may have cleared their environment. While a command runs, this
process adopts them instead of init (Linux only): as long as they live, their ancestry leads here, and they end
with the command. Only in a process of our own, since a library doesn't know the children of others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from uwf_git.base import lifetime, log, system
from uwf_git.base.system import Process
from uwf_git.sandbox.process_table import end_each, started_by

if TYPE_CHECKING:
    from uwf_git.sandbox.limits import Bounds
    from uwf_git.sandbox.quota import Exceeded, Quota

MARK = "UWF_AGENT_MARK"
_POLL = 0.01
_KILLING = 5.0  # seconds of searching for processes started during the kill
_PAUSE = 0.005
_AGAIN = 5  # looks at a machine on which processes come and go
_KERNEL = 2  # the parent of the kernel's threads
_GUARDED = 5.0  # seconds for a guard that isn't needed any more to leave

_ENDINGS = 5  # what is being ended may start another

leaders: set[int] = set()
"""The processes that this one started as leaders of a session of their own."""
_depth = 0

# Reads the group's number, then waits. A line means success; the end of the pipe means that no result comes.
_GUARD = """
read group
read over && exit
tree() {
    echo "$1"
    for each in $(cat /proc/"$1"/task/*/children); do tree "$each"; done
}
end() {
    every=$(for each in $(grep -lsF "$1" /proc/[0-9]*/environ) $(cat $2); do
        each=${each#/proc/}
        tree "${each%/environ}"
    done)
    [ -n "$group" ] && kill -9 "-$group"
    for each in $every; do
        kill -9 "$each" && found=1
    done
}
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    found=
    end "$1" "$2"
    [ -n "$found" ] || break
done 2>/dev/null
"""


class Descendants:
    """A process to be started with this object's `env` after the launcher `before`, and its descendants.
    `quota` limits them together. The owner must `end` it, or `close` it if nothing was started."""

    def __init__(self, env: Mapping[str, str], quota: Quota | None = None) -> None:
        token = os.urandom(8).hex()
        self._token = token.encode()
        self._bounds: Bounds | None = None
        self._left: Exceeded | None = None
        if quota is not None and any(item is not None for item in quota):
            from uwf_git.sandbox.limits import Bounds

            self._bounds = Bounds(quota)
        self.before: Sequence[str] = self._bounds.before if self._bounds else ()
        self._known: dict[
            int, tuple[int, bool]
        ] = {}  # by number: when it was started, and whether it belongs
        self._guard: subprocess.Popen[bytes] | None = None
        self.tree = system.Tree()
        # A step may run this program again: processes of the inner one belong to the outer one too, even if the
        # environment was replaced in between.
        outer = env.get(MARK) or os.environ.get(MARK)
        self.env = {**env, MARK: ":".join(filter(None, (outer, token)))}

    def guard(self) -> None:
        """Kill them if this process dies, until `end`."""
        if self.tree.is_known:
            return  # the kernel does that
        path = f"{os.defpath}:{os.environ.get('PATH', '')}"
        env = {"PATH": path, **({MARK: outer} if (outer := os.environ.get(MARK)) else {})}
        groups = " ".join(self._bounds.groups) if self._bounds else ""
        argv = ["/bin/sh", "-c", _GUARD, "uwf-guard", self._token.decode(), groups]
        try:
            self._guard = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=env,
                start_new_session=True,
            )
            leaders.add(self._guard.pid)
        except OSError as error:
            log.warning("Z6J0V8QM", "no guard could be started: {reason}", reason=str(error))

    def started(self, process: subprocess.Popen[bytes]) -> None:
        """Tell the guard the process group."""
        self.tree.add(process)
        self._say(f"{process.pid}\n")

    @property
    def pause(self) -> float | None:
        """Return the seconds until `exceeded` should be checked, None without limits."""
        return self._bounds.wait() if self._bounds else None

    def exceeded(self, process: subprocess.Popen[bytes]) -> Exceeded | None:
        """Return the exceeded limit, if any; the caller should then kill them."""
        bounds, status = self._bounds, process.returncode
        if bounds is None:
            return None
        if status is not None:
            return self._left or bounds.ended(status)
        if bounds.wait():
            return None
        limit = bounds.look(process.pid, lambda: self.members(process.pid))
        if limit is not None:
            log.warning(
                "W2C9M5HK",
                "process {process} has exceeded its limit of {limit}",
                process=process.pid,
                limit=limit.limit,
                allowed=limit.allowed,
                used=limit.used,
            )
        return limit

    def has_exited(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the process has exited; looks at its descendants before reaping it."""
        if process.returncode is None and self._bounds is not None and hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    self._left = self._bounds.left(process.pid)
        return process.poll() is not None

    def members(self, group: int) -> list[Process]:
        """Return the living members without zombies. Processes examined earlier are not examined again."""
        if self.tree.is_known:
            return list(system.processes(self.tree.members()))
        return self._divided(group)[0]

    def _divided(self, group: int) -> tuple[list[Process], list[Process]]:
        gone: set[int] = set()
        for _ in range(_AGAIN):
            listed = set(system.numbers()) - {os.getpid()}
            every = list(system.processes(listed))
            belong = self._belonging(group, every)
            members = [process for process in every if process.pid in belong]
            # One that was listed and is gone may have started another after the list was made.
            ended = listed - {process.pid for process in every}
            if members or ended <= gone:
                break
            gone |= ended
        return members, [process for process in every if process.pid not in belong]

    def _belonging(self, group: int, every: Sequence[Process]) -> set[int]:
        belong = set(self._bounds.inside() if self._bounds else ())
        for process in every:
            start, belongs = self._known.get(process.pid, (-1, False))
            if start != process.start:
                belongs = process.group == group or self._is_marked(process)
            if belongs:
                belong.add(process.pid)
        grown = True
        while grown:  # children are usually found after their parents, but process numbers wrap around
            children = {item.pid for item in every if item.parent in belong} - belong
            grown = bool(children)
            belong |= children
        self._known.update((item.pid, (item.start, True)) for item in every if item.pid in belong)
        return belong

    def end(self, process: subprocess.Popen[bytes], grace: float) -> None:
        """End all: SIGTERM, after `grace` seconds SIGKILL. If none is left, /proc is scanned once."""
        try:
            process.poll()
            # A stopped process wouldn't receive the first signal.
            if self._signal(process.pid, signal.SIGTERM, *system.WAKING):
                log.debug(
                    "A52FH7WV",
                    "ends process {process} and what it has started",
                    process=process.pid,
                    status=process.returncode,
                )
                deadline = time.monotonic() + grace
                while time.monotonic() < deadline:
                    time.sleep(_POLL)
                    process.poll()
                    if not self._signal(process.pid):
                        break
                else:
                    log.warning(
                        "4R24BCC8",
                        "process {process} or what it started outlived {grace} s of grace",
                        process=process.pid,
                        grace=grace,
                    )
                self.kill(process)
            process.wait()
        finally:
            self.close()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill all at once, including new children."""
        deadline = time.monotonic() + _KILLING
        while self._signal(process.pid, system.KILL) and time.monotonic() < deadline:
            time.sleep(_PAUSE)

    def close(self) -> None:
        """Release the guard and the limits."""
        self.tree.close()
        guard, bounds = self._guard, self._bounds
        self._guard = self._bounds = None
        if bounds is not None:
            bounds.close()
        if guard is None:
            return
        self._say("\n\n", guard)
        if guard.stdin is not None:
            with contextlib.suppress(OSError):
                guard.stdin.close()
        try:
            guard.wait(_GUARDED)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()

    def _say(self, text: str, guard: subprocess.Popen[bytes] | None = None) -> None:
        guard = guard or self._guard
        if guard is not None and guard.stdin is not None:
            with contextlib.suppress(OSError):
                guard.stdin.write(text.encode())
                guard.stdin.flush()

    def _signal(self, group: int, *numbers: int) -> bool:
        if self.tree.is_known:
            return self.tree.signal(group, *numbers)
        if not system.has_processes():
            try:
                for number in numbers or (0,):
                    os.killpg(group, number)
            except (ProcessLookupError, PermissionError):
                return False
            return True
        processes, others = self._divided(group)
        if system.KILL in numbers:
            # The kernel kills the whole group at once, so no process in it can start another.
            for whole in (
                {process.group for process in processes}
                - {other.group for other in others}
                - {os.getpgrp(), 0}
            ):
                with contextlib.suppress(OSError):
                    os.killpg(whole, system.KILL)
        for member in processes:
            system.notify(member, *numbers)
        return bool(processes)

    def _is_marked(self, process: Process) -> bool:
        try:
            environment = system.environment_of(process.pid)
        except OSError:
            environment = b""
        if environment or process.parent in (0, _KERNEL):  # it is empty while a program is being loaded, too
            self._known[process.pid] = (process.start, False)
        return self._token in environment


@contextlib.contextmanager
def adopted(grace: float) -> Iterator[None]:
    """Adopt the orphans of commands that are run within, and end them: SIGTERM, after `grace` seconds SIGKILL."""
    global _depth
    if not lifetime.is_own() or not system.adopt_orphans(True):
        yield
        return
    before = set(system.children())
    if not _depth:
        leaders.intersection_update(before)  # numbers are used again
    _depth += 1
    try:
        yield
    finally:
        for _ in range(_ENDINGS):
            if not _end_orphans([pid for pid in system.children() if pid not in before | leaders], grace):
                break
        _depth -= 1
        if not _depth:
            system.adopt_orphans(False)


def _end_orphans(children: list[int], grace: float) -> bool:
    """End those that are of another session, so none that this process started, and reap them; return whether any was
    alive."""
    orphans = [pid for pid in children if _session(pid) != os.getsid(0)]
    left: list[Process] = []
    for process in system.processes(orphans):
        left += (process, *started_by(process.pid))
    if left:
        log.debug("5QK2ZC7M", "ends {count} orphans of a command", count=len(left))
        end_each(left, grace)
    for pid in orphans:
        with contextlib.suppress(OSError):
            os.waitpid(pid, os.WNOHANG)
    return bool(left)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
