"""An agent's process and whatever it starts, ended as a whole.

The process leads a session and a group of its own. What leaves the group, as wrappers do with the program
they wrap, is still told by a mark that it inherits in its environment; where the system has no /proc, the
group alone is known.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from uwf_git.errors import AgentFailed

MARK = "UWF_AGENT_MARK"
_PROC = Path("/proc")


class Family:
    """A started process with pipes for all three streams, and its descendants."""

    def __init__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], pass_fds: Sequence[int] = ()
    ) -> None:
        """Raises AgentFailed where the command can't be started."""
        program = shutil.which(argv[0], path=env.get("PATH"))
        if program is None:
            raise AgentFailed(
                f"command {argv[0]!r} is not on PATH", "install it, or name it with its whole path"
            )
        token = secrets.token_hex(8)
        self._token = token.encode()
        # An agent may run this program again: the inner one's processes belong to the outer one's too.
        mark = ":".join(filter(None, (env.get(MARK), token)))
        try:
            self.process = subprocess.Popen(
                [os.path.abspath(program), *argv[1:]],  # noqa: PTH100
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env={**env, MARK: mark},
                pass_fds=pass_fds,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            raise AgentFailed(
                f"command {argv[0]!r} does not start: {error}", "check its file and arguments"
            ) from None

    def end(self, wait: float, grace: float) -> None:
        """Waits `wait` seconds for all to exit by themselves, then sends SIGTERM, and SIGKILL `grace`
        seconds later, until nothing is left."""
        self._wait(wait)
        if self._signal(signal.SIGTERM):
            self._wait(grace, all_of_them=True)
        # What is started while the others are being killed is found the next time.
        for _ in range(20):
            if not self._signal(signal.SIGKILL):
                break
            time.sleep(0.005)
        self.process.wait()

    def _wait(self, seconds: float, all_of_them: bool = False) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None and not (all_of_them and self._members()):
                return
            time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> bool:
        """Signals whoever is left; returns whether there was anybody."""
        if not (_PROC / "self" / "stat").exists():
            return self._signal_group(number)
        members = self._members()
        for pid in members:
            # By a descriptor of the process: its number may be another one's by now.
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                try:
                    if self._belongs(pid):
                        signal.pidfd_send_signal(descriptor, number)
                finally:
                    os.close(descriptor)
        return bool(members)

    def _signal_group(self, number: signal.Signals) -> bool:
        self.process.poll()
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _members(self) -> list[int]:
        self.process.poll()
        if not (_PROC / "self" / "stat").exists():
            return []
        return [
            int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and self._belongs(entry.name)
        ]

    def _belongs(self, pid: int | str) -> bool:
        """Whether a process is of this family, and no zombie."""
        if int(pid) == os.getpid():
            return False
        try:
            # The name, in parentheses, may itself hold spaces: what counts comes after the last one.
            state, _parent, group = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:3]
            if state in "ZX":
                return False
            return (
                int(group) == self.process.pid or self._token in (_PROC / str(pid) / "environ").read_bytes()
            )
        except (OSError, ValueError):
            return False
