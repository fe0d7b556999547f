"""The real `uwf` without the start of an interpreter: one process a test worker has imported what the command
needs, has run some commands for practice, and forks for every call. What it forks runs `uwf_cli.main` as `python -m`
does, on its own descriptors, in the environment and the folder of the call, to the end of a process; or another module
that is a program, such as an agent's.

Run as a program with the path of a socket, it is that process, until its standard input ends.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

# What few commands load, and every fork would copy the memory of.
_SELDOM = ("mcp", "starlette", "temporalio", "uvicorn")
_READ_ONCE = ("PYTHON", "LC_", "LANG")  # an interpreter looks at these when it starts

COMMAND = "uwf_cli.main"

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
        self._folder.cleanup()

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
        module: str = COMMAND,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a module with arguments, as `subprocess.run` with `capture_output`."""
        found = {1: b"", 2: b""}
        order = marshal.dumps((module, list(args), dict(environment), str(cwd)))
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
        path.write_text(f"#!{sys.executable} -IS\nMODULE, PATH = {COMMAND!r}, {str(self._path)!r}\n{_CLIENT}")
        path.chmod(0o755)
        return path


# No `os`, `json` or `socket`: loading them would take longer than all the rest.
_CLIENT = """\
import _signal, _socket, marshal, posix, sys

def text(name):
    return name.decode("utf-8", "surrogateescape")

environment = {text(name): text(value) for name, value in posix.environ.items()}
order = marshal.dumps((MODULE, sys.argv[1:], environment, posix.getcwd()))
call = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
call.connect(PATH)
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
call.sendmsg([b"%16d" % len(order)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
call.sendall(order)
pid = int(call.recv(16, _socket.MSG_WAITALL))
for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    if _signal.getsignal(number) != _signal.SIG_IGN:
        _signal.signal(number, lambda number, _: posix.kill(pid, number))
status = int(call.recv(16, _socket.MSG_WAITALL))
if status < 0:
    _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)
posix._exit(status)
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


def _serve(path: str) -> tuple[str, list[str]]:
    """Forks for whoever calls, and tells the id of what it forked, then how that ended. Returns in what was forked,
    with the module and the arguments of the call."""
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


def _begin(call: socket.socket) -> tuple[str, list[str]]:
    """Becomes the process of a call, whose module and arguments it returns."""
    head, descriptors, _, _ = socket.recv_fds(call, 16, 3)
    module, args, environment, cwd = marshal.loads(_received(call, int(head)))
    call.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    return module, args


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
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] not in _SELDOM:
                    raise
    for name in _SELDOM:
        del sys.modules[name]
    for name in ("httpx", "jsonschema", "liquid", "rich.console", "sqlite3", "ulid", "yaml"):
        importlib.import_module(name)


# What is remembered of these rooms depends on nothing but their arguments.
_PURE = ("uwf_git.format.", "uwf_git.workflow.", "uwf_cli.page.")


def _practise(workflow: str, script: str) -> None:
    """Runs the commands that tests use most, so that no fork has to compile patterns, grammars and the like, or has its
    memory copied where the interpreter notes how code is used. Nothing else of it remains: commands forget what
    they found out about folders, configuration and programs."""
    import gc
    import tempfile

    from uwf_git.base import lifetime

    lifetime.own()
    before, folder, opened = dict(os.environ), Path.cwd(), _descriptors()
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        os.environ.update(HOME=home, UWF_STORAGE_ROOT=f"{home}/root", GIT_CONFIG_NOSYSTEM="1")
        Path(".gitconfig").write_text("[user]\n\tname = Practice\n\temail = practice@example.invalid\n")
        Path("pair.yaml").write_text(workflow)
        Path("script.yaml").write_text(script)
        for _ in range(3):  # the interpreter specialises what is called several times
            _run("init")
            _run("workflow", "put", "pair.yaml")
            thread = json.loads(_run("thread", "start", "pair", "-p", "Do it", "--format", "json"))["thread"]
            for command in ("step", "run"):
                _run("thread", command, thread, "--agent", f"uwf-rehearse --script {home}/script.yaml")
            for command in ("show", "steps", "read", "attempts"):
                _run("thread", command, thread)
                _run("thread", command, thread, "--format", "json")
            _run("thread", "list")
            _run("workflow", "show", "pair")
            _run("thread", "fork", thread, "--at", "1")
            _run("verify")
        os.chdir(folder)
    os.environ.clear()
    os.environ.update(before)
    for name, module in list(sys.modules.items()):
        if name.startswith(("uwf_git.", "uwf_cli.")) and not name.startswith(_PURE):
            for value in list(vars(module).values()):
                if callable(forget := getattr(value, "cache_clear", None)):
                    forget()
    gc.collect()
    assert threading.active_count() == 1, "a thread would be missing in each fork"
    assert _descriptors() == opened, "each fork would have what the practice left open"


def _run(*args: str) -> str:
    """Runs a command in this process, and returns what it prints."""
    import io

    from uwf_cli import main
    from uwf_cli.invocation import Invocation

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        assert main._invoke(Invocation(), list(args)) == 0, printed.getvalue()
    return printed.getvalue()


def _descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


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

    from cli_samples import PAIR, REJECTS_ONCE

    del sys.path[0]  # the tests' folder
    limit = sys.getrecursionlimit()
    _load()
    _practise(PAIR, REJECTS_ONCE)
    assert sys.getrecursionlimit() == limit, "the calls would differ from those of a new interpreter"
    gc.freeze()
    module, arguments = _serve(sys.argv[1])
    problem: BaseException | None = None
    try:
        _as_new()
        sys.argv = [module, *arguments]
        sys.modules.pop(module, None)  # it is run again, as a program
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except BaseException as error:
        problem = error
    _end(problem)
