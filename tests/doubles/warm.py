"""The real `uwf` without the start of an interpreter: one process a test worker has imported what the command
needs, and forks for every call. What it forks runs `uwf_cli.main` as `python -m` does, on its own descriptors,
in the environment and the folder of the call, to the end of a process.

Run as a program with the path of a socket, it is that process, until its standard input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

# What few commands load, and every fork would copy the memory of.
_SELDOM = ("mcp", "starlette", "temporalio", "uvicorn")
_READ_ONCE = ("PYTHON", "LC_", "LANG")  # an interpreter looks at these when it starts


class WarmUwf:
    """The process that forks. `environment` is the one it starts in."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._path = folder / "warm"
        self._environment = _read_once(environment)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
        )
        assert self._process.stdout
        assert self._process.stdout.read(1) == b"."

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()

    def can(self, environment: Mapping[str, str]) -> bool:
        """Whether a call in that environment would find the interpreter that it asks for."""
        return _read_once(environment) == self._environment

    def run(
        self,
        args: Sequence[str],
        data: bytes | None,
        environment: Mapping[str, str],
        cwd: Path,
        timeout: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """As `subprocess.run` with `capture_output`."""
        found = {1: b"", 2: b""}
        order = json.dumps([args, dict(environment), str(cwd)]).encode()
        with contextlib.ExitStack() as stack:
            call = stack.enter_context(socket.socket(socket.AF_UNIX))
            call.connect(str(self._path))
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
            pid = int(_received(call, 16))
            call.settimeout(timeout)
            try:
                code = int(_received(call, 16))
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):  # it has ended at this moment
                    os.kill(pid, 9)
                raise subprocess.TimeoutExpired(list(args), timeout) from None
            for thread in threads:
                thread.join(timeout)
        return subprocess.CompletedProcess(list(args), code, found[1], found[2])

    def program(self, folder: Path) -> Path:
        """A program `uwf` in a folder, for shells: a small interpreter that has the fork run on its own descriptors,
        hands signals on, and ends as the fork does."""
        path = folder / "uwf"
        path.write_text(f"#!{sys.executable} -IS\nPATH = {str(self._path)!r}\n{_CLIENT}")
        path.chmod(0o755)
        return path


_CLIENT = """\
import json, os, signal, socket, sys

order = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
call = socket.socket(socket.AF_UNIX)
call.connect(PATH)
socket.send_fds(call, [b"%16d" % len(order)], [0, 1, 2])
call.sendall(order)
pid = int(call.recv(16, socket.MSG_WAITALL))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(call.recv(16, socket.MSG_WAITALL))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def _read_once(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_ONCE)}


def _received(call: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = call.recv(size - len(data))
        if not part:
            raise EOFError("the process that forks has gone")
        data += part
    return data


# The process that forks


def _serve(path: str) -> list[str]:
    """Forks for whoever calls, and tells the id of what it forked, then how that ended. Returns in what was forked,
    with the arguments of the call."""
    calls: dict[int, socket.socket] = {}
    ended, wake = os.pipe()
    for each in (ended, wake):
        os.set_blocking(each, False)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        os.write(1, b".")
        while True:
            ready, _, _ = select.select([listener, ended, 0], [], [])
            if ended in ready:
                os.read(ended, 4096)
                _notify(calls, os.WNOHANG)
            if 0 in ready:
                _notify(calls, 0)
                os._exit(0)
            if listener not in ready:
                continue
            call, _ = listener.accept()
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (*calls.values(), listener):
                    other.close()
                for each in (ended, wake):
                    os.close(each)
                return _begin(call)
            calls[child] = call
            _send(call, child)


def _notify(calls: dict[int, socket.socket], options: int) -> None:
    """Tells who called of processes that have ended; of all of them unless the options say not to wait."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, options)
            if pid == 0:
                return
            with calls.pop(pid) as call:
                _send(call, os.waitstatus_to_exitcode(status))


def _send(call: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # whoever killed it doesn't wait
        call.sendall(b"%16d" % number)


def _begin(call: socket.socket) -> list[str]:
    """Becomes the process of a call, whose arguments it returns."""
    head, descriptors, _, _ = socket.recv_fds(call, 16, 3)
    args, environment, cwd = json.loads(_received(call, int(head)))
    call.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    return list(args)


def _as_new() -> None:
    """Puts right what was found out when the process that forks was started."""
    import random
    import time

    from uwf_git.git.libgit2 import C, check_error, ffi

    # Whether a stream is a file or a pipe is asked when it is opened.
    coding = sys.stdin.encoding
    sys.stdin = open(0, encoding=coding, errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=coding, errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=coding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    random.seed()
    time.tzset()
    home = os.environ.get("HOME", "")
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    # Not by pygit2, all of which a command loads only where it needs that: it takes as long as most commands do.
    for level, folder in ((C.GIT_CONFIG_LEVEL_GLOBAL, home), (C.GIT_CONFIG_LEVEL_XDG, f"{xdg}/git")):
        path = ffi.new("char[]", os.fsencode(folder))
        check_error(C.git_libgit2_opts(C.GIT_OPT_SET_SEARCH_PATH, ffi.cast("int", level), path))


def _load() -> None:
    import importlib
    import pkgutil

    import uwf_cli

    import uwf_git

    sys.modules.update(dict.fromkeys(_SELDOM))
    for package in (uwf_git, uwf_cli):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != "uwf_cli.main":  # that is what is run
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    if str(error.name).partition(".")[0] not in _SELDOM:
                        raise
    for name in _SELDOM:
        del sys.modules[name]
    # Not jsonata: it raises the limit of recursion for whoever imports it.
    for name in ("httpx", "jsonschema", "liquid", "rich.console", "sqlite3", "ulid", "yaml"):
        importlib.import_module(name)


def _end(ended: BaseException | None) -> NoReturn:
    """As an interpreter does it, but for taking down what was loaded."""
    import atexit
    import traceback

    code = 0
    if isinstance(ended, SystemExit) and (ended.code is None or isinstance(ended.code, int)):
        code = (ended.code or 0) & 0xFF
    elif ended is not None:
        traceback.print_exception(ended)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    import gc
    import runpy

    del sys.path[0]  # the tests' folder
    limit = sys.getrecursionlimit()
    _load()
    assert sys.getrecursionlimit() == limit, "the calls would differ from those of a new interpreter"
    gc.freeze()
    arguments = _serve(sys.argv[1])
    problem: BaseException | None = None
    try:
        _as_new()
        sys.argv = ["uwf", *arguments]
        runpy.run_module("uwf_cli.main", run_name="__main__", alter_sys=True)
    except BaseException as error:
        problem = error
    _end(problem)
