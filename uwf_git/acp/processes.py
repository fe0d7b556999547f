"""An agent's process and whatever it starts, ended as a whole.

The process leads a session and a group of its own; see `descendants` for what belongs to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from uwf_git.descendants import Descendants
from uwf_git.errors import AgentFailed


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
        self._descendants = Descendants(env)
        try:
            self.process = subprocess.Popen(
                [os.path.abspath(program), *argv[1:]],  # noqa: PTH100
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=self._descendants.env,
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
        if self._descendants.signal(self.process.pid, signal.SIGTERM):
            self._wait(grace, all_of_them=True)
        self._descendants.kill(self.process.pid)
        self.process.wait()

    def _wait(self, seconds: float, all_of_them: bool = False) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            if ended and not (all_of_them and self._descendants.alive(self.process.pid)):
                return
            time.sleep(0.01)
