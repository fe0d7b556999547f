"""The process that forks for warm.py, as a program with the path of a socket, and that of a program which connects to
it: it loads what the command needs, runs some commands for practice, and forks for whoever connects, until its standard
input ends. By that program, the modules of uwf that commands start as processes of their own run in forks too.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import itertools
import json
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

MESSAGE = 16  # bytes of each number that goes over a connection
READ_ONCE = ("PYTHON", "LC_", "LANG")  # an interpreter looks at these when it starts
_AGAIN, _PROCESS = b"+", b"p"
_MOST_STREAMS = 64
_ABOVE = 256  # numbers that no process of a test uses for its descriptors
_MOST_IDLE = 2
_MOST_CALLS = 100  # of a fork, whose memory grows
_ENDING = 0.05  # seconds that a thread may take to end after the command that started it
# What few commands load, and every fork would copy the memory of, or none does.
_SELDOM = ("harbor", "langchain_core", "langgraph", "mcp", "ormsgpack", "temporalio")
# What is remembered of these rooms depends on nothing but their arguments.
_PURE = ("uwf_git.format.", "uwf_git.workflow.", "uwf_cli.page.")


class _Call(NamedTuple):
    """What a fork is to do: run a module, or the program at a path, with arguments; as a command that further calls may
    follow, which come by `again`, if that is given."""

    module: str
    args: list[str]
    again: socket.socket | None


class _Fork(NamedTuple):
    """A process that was forked: the connection of its call, and the one that hands it further calls and tells of those
    that have ended, if it may take any."""

    call: socket.socket
    again: socket.socket | None
    is_process: bool  # it ends with the program that called


def _serve(path: str) -> _Call:
    """Forks for whoever calls, or hands the call to a fork that is idle, and tells the id of that process, then how the
    call ended. Returns in what was forked."""
    busy: dict[int, _Fork] = {}
    idle: dict[int, socket.socket] = {}
    ended, wake = os.pipe()
    for descriptor in (ended, wake):
        os.set_blocking(descriptor, False)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        os.write(1, b".")
        while True:
            ready = _wait_for([listener.fileno(), ended, 0], busy)
            if ended in ready:
                os.read(ended, 4096)
            _take_back(busy, idle)
            _end_abandoned(busy, ready)
            if ended in ready:
                _reap(busy, idle, os.WNOHANG)
            if 0 in ready:
                for again in idle.values():
                    again.close()
                for pid, fork in busy.items():
                    if fork.is_process:
                        _kill(pid)
                _reap(busy, idle, 0)
                os._exit(0)
            if listener.fileno() not in ready:
                continue
            call, _ = listener.accept()
            kind = call.recv(1)
            may_follow = kind == _AGAIN
            if may_follow and (taken := _hand_over(call, idle)) is not None:
                pid, again = taken
                busy[pid] = _Fork(call, again, False)
                _send(call, pid)
                continue
            ours, theirs = socket.socketpair() if may_follow else (None, None)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                others = [
                    *idle.values(),
                    *(connection for fork in busy.values() for connection in fork[:2]),
                    ours,
                ]
                for other in (*filter(None, others), listener):
                    other.close()
                for descriptor in (ended, wake):
                    os.close(descriptor)
                if kind == _PROCESS:
                    os.setsid()
                return _order(call, theirs)
            if theirs is not None:
                theirs.close()
            busy[child] = _Fork(call, ours, kind == _PROCESS)
            _send(call, child)


def _wait_for(numbers: list[int], busy: dict[int, _Fork]) -> set[int]:
    """Waits for one of these descriptors, or for a fork or its caller, and returns those descriptors that are ready."""
    waiting = select.poll()
    for number in (*numbers, *(fork.again.fileno() for fork in busy.values() if fork.again is not None)):
        waiting.register(number, select.POLLIN)
    for fork in busy.values():
        if fork.is_process:
            waiting.register(fork.call, 0)  # until the caller is gone: the fork itself reads what that sends
    return {number for number, _ in waiting.poll()}


def _end_abandoned(busy: dict[int, _Fork], ready: set[int]) -> None:
    """Kills the processes whose callers were killed in their place."""
    for pid, fork in list(busy.items()):
        if fork.is_process and fork.call.fileno() in ready:
            _kill(pid)
            busy[pid] = fork._replace(is_process=False)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _take_back(busy: dict[int, _Fork], idle: dict[int, socket.socket]) -> None:
    """Tells who called of calls that have ended while their processes go on, and keeps some of these."""
    for pid, fork in list(busy.items()):
        if fork.again is None or not select.select([fork.again], [], [], 0)[0]:
            continue
        status = fork.again.recv(MESSAGE)
        if not status:  # the process has ended, which is told by its status
            busy[pid] = fork._replace(again=None)
            fork.again.close()
            continue
        _send(fork.call, int(status))
        fork.call.close()
        del busy[pid]
        if len(idle) < _MOST_IDLE:
            idle[pid] = fork.again
        else:
            fork.again.close()


def _hand_over(call: socket.socket, idle: dict[int, socket.socket]) -> tuple[int, socket.socket] | None:
    """Hands a call to a fork that is idle. Returns None if there is none."""
    while idle:
        pid, again = idle.popitem()
        try:
            socket.send_fds(again, [_AGAIN], [call.fileno()])
        except OSError:  # a test has killed it
            again.close()
            continue
        return pid, again
    return None


def _reap(busy: dict[int, _Fork], idle: dict[int, socket.socket], options: int) -> None:
    """Tells who called of processes that have ended; of all of them unless the options say not to wait."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, options)
            if pid == 0:
                return
            if (again := idle.pop(pid, None)) is not None:
                again.close()
            if (fork := busy.pop(pid, None)) is not None:
                with fork.call:
                    _send(fork.call, os.waitstatus_to_exitcode(status))
                if fork.again is not None:
                    fork.again.close()


def _send(call: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # whoever killed it doesn't wait
        call.sendall(b"%15d " % number)


def _order(connection: socket.socket, again: socket.socket | None) -> _Call:
    """Takes over the descriptors, the folder and the environment of a call. Ends this process if there is none."""
    with connection:
        head, descriptors, _, _ = socket.recv_fds(connection, MESSAGE, _MOST_STREAMS)
        if not head:
            os._exit(0)
        order = b""
        while len(order) < int(head):
            order += connection.recv(int(head) - len(order))
    module, args, environment, cwd, numbers = marshal.loads(order)
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for number, descriptor in zip(numbers, moved, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    return _Call(module, args, again)


def _start_modules_by(program: str) -> None:
    """Has modules of uwf that are started as processes of their own, as by `python -P -m`, run by that program, if they
    get the environment that an interpreter looks at when it starts."""
    own = read_once(os.environ)

    class Process(subprocess.Popen[bytes]):
        def __init__(self, args: Sequence[str], *more: Any, **options: Any) -> None:
            words = list(args) if isinstance(args, list | tuple) else []
            if (
                words[:3] == [sys.executable, "-P", "-m"]
                and str(words[3]).startswith(("uwf_git.", "uwf_cli."))
                and options.get("start_new_session")
                and read_once(options.get("env") or os.environ) == own
            ):
                args = [program, str((0, 1, 2, *options.get("pass_fds", ()))), *words[3:]]
            super().__init__(args, *more, **options)

    subprocess.Popen = Process  # type: ignore[misc]


def read_once(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_ONCE)}


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


class _Memory:
    """What the modules of uwf have in mind: nothing of a call, if created before the first."""

    def __init__(self) -> None:
        from uwf_git.base import extensions

        extensions.others()  # of packages on a path that no call changes
        modules = {
            name: module for name, module in sys.modules.items() if name.startswith(("uwf_git", "uwf_cli"))
        }
        self._caches = [
            value
            for name, module in modules.items()
            if not name.startswith(_PURE)
            for value in vars(module).values()
            if callable(getattr(value, "cache_clear", None)) and value is not extensions.others
        ]
        named = {
            id(value): value
            for module in modules.values()
            for name, value in vars(module).items()
            if name.islower() and not name.startswith("__") and type(value) in (dict, list, set)
        }
        self._before = [(value, value.copy()) for value in named.values()]

    def forget(self) -> None:
        """Forget what was found out since."""
        from uwf_git.git import refs

        for cached in self._caches:
            cached.cache_clear()
        for value, before in self._before:
            if value != before:
                value.clear()
                (value.extend if isinstance(value, list) else value.update)(before)
        if refs._whole_file >= 0:
            os.close(refs._whole_file)
            refs._whole, refs._parsed, refs._whole_file = (None, b""), (None, refs._Packed()), -1


def _practise(memory: _Memory, workflow: str, script: str) -> None:
    """Runs the commands that tests use most, so that no fork has to compile patterns, grammars and the like, or has its
    memory copied where the interpreter notes how code is used. Nothing else of it remains: commands forget what
    they found out about folders, configuration and programs."""
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
    memory.forget()
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


class _Ended(BaseException):
    """The command has ended, but its process may go on."""


def _work(memory: _Memory, call: _Call, again: socket.socket) -> NoReturn:
    """Runs the command for call after call, until one leaves anything behind in this process or there were many. Raises
    what the last one ended with."""
    import contextvars

    from uwf_cli import main

    from uwf_git.base import lifetime

    def ended(status: int) -> NoReturn:
        raise _Ended(status)

    _as_new()
    main._heed_signals()
    lifetime.heed_signals = lambda: None
    lifetime.end = ended
    ours, before = os.getpid(), _state()
    for count in itertools.count(1):
        sys.argv = [call.module, *call.args]
        try:
            contextvars.copy_context().run(main.main)
        except _Ended as end:
            status = end.args[0]
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(_ENDING if thread.daemon else None)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            raise SystemExit(status) from None
        memory.forget()
        if (
            count == _MOST_CALLS
            or os.getpid() != ours
            or (_state() != before and gc.collect() >= 0 and _state() != before)
        ):
            raise SystemExit(status)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        os.close(nowhere)
        _send(again, status)
        handed, connections, _, _ = socket.recv_fds(again, 1, 1)
        if not handed:
            os._exit(0)
        call = _order(socket.socket(fileno=connections[0]), again)
        _as_new()


def _state() -> object:
    """What a call may leave behind besides what modules have in mind."""
    import atexit
    import resource

    from uwf_git.base import lifetime, log

    return (
        _descriptors(),
        threading.active_count(),
        atexit._ncallbacks(),
        [signal.getsignal(number) for number in signal.valid_signals()],
        signal.getitimer(signal.ITIMER_REAL),
        [resource.getrlimit(limit) for limit in _LIMITS],
        (sys.getrecursionlimit(), sys.path.copy(), sys.gettrace(), sys.getprofile()),
        (lifetime._is_ours, log.is_on(), _has_children()),
    )


_LIMITS = range(16)  # all that Linux has


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


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
    from cli_samples import PAIR, REJECTS_ONCE
    from repeated_work import remember, remember_templates

    del sys.path[0]  # the tests' folder
    limit = sys.getrecursionlimit()
    _load()
    remember()
    remember_templates()
    memory = _Memory()
    _practise(memory, PAIR, REJECTS_ONCE)
    _start_modules_by(sys.argv[2])
    assert sys.getrecursionlimit() == limit, "the calls would differ from those of a new interpreter"
    gc.freeze()
    call = _serve(sys.argv[1])
    problem: BaseException | None = None
    try:
        if call.again is not None:
            _work(memory, call, call.again)
        _as_new()
        sys.argv = [call.module, *call.args]
        if "/" in call.module:
            sys.path.insert(0, str(Path(call.module).parent))
            runpy.run_path(call.module, run_name="__main__")
        else:
            sys.modules.pop(call.module, None)  # it is run again, as a program
            runpy.run_module(call.module, run_name="__main__", alter_sys=True)
    except BaseException as error:
        problem = error
    _end(problem)
