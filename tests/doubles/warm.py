"""The real `uwf` without the start of an interpreter: a process for each test worker, of warm_process.py, has loaded
what the command needs and forks. What it forks runs `uwf_cli.main` as `python -m` does, on its own descriptors, in the
environment and the folder of the call, or another module that is a program, such as an agent's.

A fork that a call left as it had found it takes a further one: most of what a fork costs is the copying of what each
call touches.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import programs
from warm_process import MESSAGE, READ_ONCE, read_once

_PROGRAM = Path(__file__).with_name("warm_process.py")

COMMAND = "uwf_cli.main"
AGAIN, ONCE, PROCESS = b"+", b"1", b"p"
"""Begins a connection: the process may have run the command before, is a new one, or also ends with who called."""

KEPT = ("PATH", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
"""What tests keep of the environment that they are started in."""
LOCALE = {"LC_ALL": "C.UTF-8"}
_IS_COLD = bool(os.environ.get("UWF_TEST_COLD"))
_ENVIRONMENT = {name: os.environ[name] for name in KEPT if name in os.environ} | LOCALE


@cache
def shared() -> WarmUwf | None:
    """The process that forks for this worker, started when a test first needs it; None where UWF_TEST_COLD asks for an
    interpreter for each call."""
    return None if _IS_COLD else WarmUwf(_ENVIRONMENT)


def interpreter_for(program: str) -> list[str]:
    """Return the command that runs a program's text: a fork, if it imports uwf. See `programs.interpreter_for`."""
    words = programs.interpreter_for(program)
    warm = shared()
    is_plain = len(words) > 1 or "uwf_git" not in program
    return words if is_plain or warm is None else [str(warm.interpreter)]


def command() -> list[str]:
    """Return the command `uwf` for programs of tests to call: a fork that ends with it."""
    warm = shared()
    return [sys.executable, "-m", COMMAND] if warm is None else [str(warm.uwf)]


def run_module(
    module: str, args: Sequence[str], env: Mapping[str, str], cwd: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Runs a module as `python -m` does, without input, by a fork if it asks for the same interpreter."""
    warm = shared()
    if warm is not None and warm.can(env):
        done = warm.run(args, None, env, Path.cwd() / (cwd or ""), timeout, module)
    else:
        command = [sys.executable, "-m", module, *args]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    printed = [text.decode("utf-8", "replace") for text in (done.stdout, done.stderr)]
    return subprocess.CompletedProcess(list(args), done.returncode, *printed)


class WarmUwf:
    """The process that forks. `environment` is the one it starts in."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="uwf-warm-")
        self._path = Path(self._folder.name) / "warm"
        folder = Path(self._folder.name)
        as_process = "numbers, MODULE, *args = eval(sys.argv[1]), *sys.argv[2:]"
        process = self._write_client(folder / "process", as_process, PROCESS)
        self.uwf = self._write_client(folder / "uwf", _AS_MODULE % COMMAND, PROCESS)
        as_interpreter = _AS_INTERPRETER % read_once(environment)
        self.interpreter = self._write_client(folder / "interpreter", as_interpreter, PROCESS)
        self._environment = read_once(environment)
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(self._path), str(process)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
        )
        assert self._process.stdout
        assert self._process.stdout.read(1) == b"."

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()
        self._folder.cleanup()

    def can(self, environment: Mapping[str, str]) -> bool:
        """Whether a call in that environment would find the interpreter that it asks for."""
        return read_once(environment) == self._environment

    def run(
        self,
        args: Sequence[str],
        data: bytes | None,
        environment: Mapping[str, str],
        cwd: Path,
        timeout: float,
        module: str = COMMAND,
        again: bool = False,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a module with arguments, as `subprocess.run` with `capture_output`; with `again` in a process that may
        have run the command before."""
        found = {1: b"", 2: b""}
        order = marshal.dumps((module, list(args), dict(environment), str(cwd), (0, 1, 2)))
        call, pid = self._begin(AGAIN if again else ONCE)
        with call:
            stdin, feed = (os.open(os.devnull, os.O_RDONLY), None) if data is None else os.pipe()
            pipes = {1: os.pipe(), 2: os.pipe()}
            theirs = [stdin, pipes[1][1], pipes[2][1]]
            socket.send_fds(call, [b"%16d" % len(order)], theirs)
            call.sendall(order)
            for descriptor in theirs:
                os.close(descriptor)

            def read(number: int) -> None:
                with open(pipes[number][0], "rb") as file:
                    found[number] = file.read()

            def write() -> None:
                with contextlib.suppress(BrokenPipeError):
                    if data is not None and feed is not None:
                        with open(feed, "wb") as file:
                            file.write(data)

            threads = [
                threading.Thread(target=read, args=(1,), daemon=True),
                threading.Thread(target=read, args=(2,), daemon=True),
                threading.Thread(target=write, daemon=True),
            ]
            for thread in threads:
                thread.start()
            call.settimeout(timeout)
            try:
                code = int(_received(call, MESSAGE))
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):  # it has ended at this moment
                    os.kill(pid, 9)
                raise subprocess.TimeoutExpired(list(args), timeout) from None
            for thread in threads:
                thread.join(timeout)
        return subprocess.CompletedProcess(list(args), code, found[1], found[2])

    def _begin(self, kind: bytes) -> tuple[socket.socket, int]:
        """Returns a connection to a fork, and its id."""
        call = socket.socket(socket.AF_UNIX)
        call.connect(str(self._path))
        call.sendall(kind)
        return call, int(_received(call, MESSAGE))

    def program(self, path: Path, module: str = COMMAND, again: bool = True) -> Path:
        """Writes a program for shells, which runs a module: a small interpreter that has the fork run on its own
        descriptors, hands signals on, and ends as the fork does. Without `again` that is a new process, as for a
        server, which signals end."""
        kind = AGAIN if again and module == COMMAND else ONCE
        return self._write_client(path, _AS_MODULE % module, kind)

    def _write_client(self, path: Path, arguments: str, kind: bytes) -> Path:
        path.write_text(
            f"#!{sys.executable} -IS\nPATH, KIND = {(str(self._path), kind)!r}\n{_CLIENT}" % arguments
        )
        path.chmod(0o755)
        return path


# No `os`, `json` or `socket`: loading them would take longer than all the rest.
_CLIENT = """\
import _signal, _socket, marshal, posix, sys

%s

def text(name):
    return name.decode("utf-8", "surrogateescape")

environment = {text(name): text(value) for name, value in posix.environ.items()}
order = marshal.dumps((MODULE, args, environment, posix.getcwd(), numbers))
call = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
call.connect(PATH)
call.sendall(KIND)
pid = int(call.recv(16, _socket.MSG_WAITALL))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
call.sendmsg([b"%%16d" %% len(order)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
call.sendall(order)
for number in numbers:
    posix.close(number)  # who reads or writes at the other end sees the fork alone
for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    if _signal.getsignal(number) != _signal.SIG_IGN:
        _signal.signal(number, lambda number, _: posix.kill(pid, number))
status = int(call.recv(16, _socket.MSG_WAITALL))
if status < 0:
    if -status != _signal.SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)
posix._exit(status)
"""

_AS_MODULE = "numbers, MODULE, args = (0, 1, 2), %r, sys.argv[1:]"
# Runs a file, by an interpreter of its own if that would look at other variables than the fork has.
_AS_INTERPRETER = f"""\
numbers, MODULE, args = (0, 1, 2), sys.argv[1], sys.argv[2:]
names = {tuple(name.encode() for name in READ_ONCE)}
seen = {{name.decode(): value.decode() for name, value in posix.environ.items() if name.startswith(names)}}
if seen != %s:
    posix.execv(sys.executable, [sys.executable, MODULE, *args])
"""


def _received(call: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = call.recv(size - len(data))
        if not part:
            raise EOFError("the process that forks has gone")
        data += part
    return data
