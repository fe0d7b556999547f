"""The git program, for everything that talks to a remote, so that the user's credential helpers, ssh
settings, proxies and hooks work.

Each call names the git directory, and ignores a surrounding hook's variables, replace refs and grafts, which
would show another history.

Only pushes run hooks, as the user's `git push` would. Others don't: core.hooksPath may be in the working
tree, where agents write.

Unlike an agent, git stays in the terminal's session, to ask for passwords, and its background processes
(credential cache, ssh connection, gc) are left alone. If it is interrupted, the processes it waits for, such
as ssh, are ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import RemoteFailed
from uwf_git.base.lifetime import deferred
from uwf_git.base.text import one_line
from uwf_git.git.config import BOUNDS, Bounds
from uwf_git.git.lockfiles import lockfiles_of
from uwf_git.sandbox.child import spawn, stop
from uwf_git.sandbox.programs import elsewhere, find_program, find_with_path, trusted_path

PATIENCE = 180.0
"""Seconds for a remote to do one thing, where nobody is there to end it."""

CHECK_ADDRESS = "check the address with: uwf remote list"

_GRACE = 5.0
_BLOCK = 1 << 16  # size of a pipe's buffer
_PIPE = 1 << 12  # minimum size of a pipe's buffer
_LONGEST = 1 << 20  # bytes of a line

SETTINGS = tuple(
    word
    for setting in (
        # Fetched and packed data must survive a power cut: git doesn't sync unpacked loose objects and packed-refs by
        # default (git-config(1), since 2.36).
        "core.fsync=all",
        "core.fsmonitor=false",
        *("core.quotePath=true", "color.ui=false"),
        *("advice.pushUpdateRejected=false", "advice.graftFileDeprecated=false"),
    )
    for word in ("-c", setting)
)
_FIXED = {"LC_ALL": "C.UTF-8", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull}
# glibc gives memory back to the system after each object that git compresses, which takes as long as compressing it.
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(128 << 20), "MALLOC_TOP_PAD_": str(1 << 20)}
NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")
# Commands that lock files of the repository; the others only read.
_LOCKING = frozenset(("config", "fetch", "gc", "pack-refs", "push", "repack", "update-ref"))
_REMOTE = frozenset(("fetch", "ls-remote", "push"))
# git's lines without information: the lines around them have the reason.
_EMPTY_TALK = (
    r"^(?:fatal: (?:Could not read from remote repository\.|the remote end hung up unexpectedly|expected flush"
    r"|early EOF|index-pack failed|fetch-pack: invalid index-pack output)"
    r"|error: (?:failed to push some refs to .*|index-pack died of signal \d+)"
    r"|Please make sure you have the correct access rights|and the repository exists\.|To .*|Everything up-to-date"
    r"|hint: .*|From .*)$"
)
# How git says that it met a limit. The signals are those of RLIMIT_FSIZE and RLIMIT_CPU.
_OVER = (
    (r"File too large|died of signal 25\b", "what came is too large", "uwf.maxFetch 4g"),
    (r"died of signal 24\b", "what came takes too long to unpack", "uwf.maxFetch 8g"),
    (
        r"[Oo]ut of memory|[Cc]annot allocate memory|unable to create thread",
        "what came takes too much memory to unpack",
        "uwf.maxMemory 4g",
    ),
)
# A call of the system that failed, as the C library words it.
_SYSTEM_FAULT = (
    r"No space left on device|Disk quota exceeded|Read-only file system|Input/output error|Too many open files"
    r"|File name too long|Permission denied|Operation not permitted|Cannot allocate memory|Text file busy"
)
_HOOK_HINT = "do as it says, and repeat; git config core.hooksPath and hooks/pre-push name the hook"
# The causes of failures and their ways out; the first that matches counts.
_HINTS = (
    (
        r"File exists[^\n]*lock|lock[^\n]*File exists",
        "another git is at work there, or was killed: uwf doctor says which",
    ),
    (
        r"could not read (?:Username|Password)|Authentication failed",
        "log in with git first: a credential helper, or a token in it",
    ),
    (r"Permission denied \(publickey|Host key verification failed", "try it with: ssh -T HOST"),
    (r"No space left|Disk quota exceeded", "make room, then repeat: what is here is kept"),
    (
        r"Read-only file system|Permission denied|Operation not permitted",
        "let this user write there, then repeat",
    ),
    (
        r"'refs/heads/uwf(?:/work)?' exists; cannot create",
        "rename the branch that is in the way, such as: git branch -m uwf OTHER",
    ),
    (
        r"hash algorithm|object[- ]format",
        "use a remote that was made with: git init --bare --object-format=sha1",
    ),
    (
        r"filter[- ][^\n]*(?:failed|not found)",
        "install the filter's program: git config --get-regexp ^filter names it",
    ),
    (
        r"does not appear to be a git repository|[Rr]epository .*(?:not found|does not exist)",
        CHECK_ADDRESS,
    ),
)


class CallResult(NamedTuple):
    """The end of a call."""

    code: int
    out: bytes
    err: str

    @property
    def reason(self) -> str:
        """A line on the failure of a call, also of one that printed nothing."""
        if self.code < 0:
            return f"it was ended by {signal.Signals(-self.code).name}"
        return _telling_line(self.err) or f"it exited with {self.code}"


class ReceiveLimitExceeded(RemoteFailed):
    """Received data exceeds the limits."""


class Git:
    """git on one repository. `progress` gets its standard error, and "" after each call. `bounds` apply to
    calls with remote data. `patience` limits calls to a remote, in seconds, and `seconds` every call; None for no
    limit. `variables` are added to its environment."""

    def __init__(
        self,
        git_dir: Path,
        progress: Callable[[str], None] | None = None,
        cwd: Path | None = None,
        bounds: Bounds = BOUNDS,
        patience: float | None = None,
        variables: Mapping[str, str] = {},
        seconds: float | None = None,
    ) -> None:
        self.git_dir = git_dir
        self._variables = variables
        self._seconds = seconds
        self.bounds = bounds
        self._patience = patience
        self._progress = progress
        # The folder for relative paths of a project's remotes.
        self._cwd = cwd or (git_dir.parent if git_dir.name == ".git" else None)

    def on(self, git_dir: Path) -> Git:
        """Return git on another repository, with relative remotes resolved as here."""
        return Git(git_dir, self._progress, self._cwd, self.bounds, self._patience)

    @property
    def shows_progress(self) -> bool:
        return self._progress is not None

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        check: bool = True,
        bounded: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
        at_most: int = -1,
    ) -> CallResult:
        """Run git. `meanwhile` is called while it runs. With `at_most`, git is ended, as a success, once it has
        printed so many bytes. With `check`, raises RemoteFailed for a non-zero exit."""
        with self._started(args, bounded) as child:
            assert child.stdin and child.stdout and child.stderr
            err = _Listener(child.stderr, self._progress)
            feeder = threading.Thread(target=_feed, args=(child.stdin, stdin), daemon=True)
            if len(stdin) > _PIPE:
                feeder.start()
            else:
                _feed(child.stdin, stdin)
            meanwhile()
            out = child.stdout.read(at_most)
            if len(out) == at_most:
                return CallResult(0, out, "")
            code = child.wait()
            if len(stdin) > _PIPE:
                feeder.join()
            done = CallResult(code, out, err.text())
        if check and code != 0:
            raise failure(args, done)
        return done

    def lines(self, *args: str, bounded: bool = False) -> Iterator[bytes]:
        """Yield git's output lines; it is ended if the caller stops. Raises RemoteFailed at the end."""
        with self.printing(*args, bounded=bounded) as blocks:
            for block in blocks:
                yield from block.removesuffix(b"\n").split(b"\n")

    @contextlib.contextmanager
    def printing(self, *args: str, bounded: bool = False) -> Iterator[Iterator[bytes]]:
        """As blocks of whole lines; git starts at once, and is ended with the block. Raises RemoteFailed
        after the last."""
        with self._started(args, bounded) as child:
            assert child.stdin and child.stdout and child.stderr
            child.stdin.close()
            err = _Listener(child.stderr, self._progress)

            def blocks(out: IO[bytes]) -> Iterator[bytes]:
                rest = b""
                while piece := out.read1(_BLOCK):  # type: ignore[attr-defined]
                    whole, end, begun = piece.rpartition(b"\n")
                    if end:
                        yield rest + whole + end
                        rest = begun
                    else:
                        rest += piece
                    if len(rest) > _LONGEST:
                        raise RemoteFailed(f"{args[0]} of git lists a name of over {_LONGEST:,} bytes")
                if rest:
                    yield rest
                code = child.wait()
                if code != 0:
                    raise failure(args, CallResult(code, b"", err.text()))

            yield blocks(child.stdout)

    @contextlib.contextmanager
    def _started(self, args: Sequence[str], bounded: bool) -> Iterator[subprocess.Popen[bytes]]:
        program, path = find_with_path("git", self._cwd)
        child: subprocess.Popen[bytes] | None = None
        began = time.monotonic()
        stack = contextlib.ExitStack()
        try:
            held = stack.enter_context(lockfiles_of(self.git_dir).git()) if _locks(args) else ()
            with deferred():
                child = spawn(
                    [_required(program), f"--git-dir={self.git_dir}", *settings_of(args), *args],
                    cwd=self._cwd,
                    env={**_environment(path), **self._variables},
                    own_session=False,
                    limits=self.bounds.limits() if bounded else {},
                    pass_fds=held,
                )
            with self._in_time(child, args):
                yield child
        finally:
            if child is not None:
                for pipe in (child.stdin, child.stdout):
                    with contextlib.suppress(OSError):
                        if pipe:
                            pipe.close()
                stop(child, _GRACE, attached=True)
                log.debug(
                    "33A585NA",
                    "git {arguments} ended with {status}",
                    arguments=args,
                    status=child.returncode,
                    seconds=round(time.monotonic() - began, 3),
                )
            stack.close()

    @contextlib.contextmanager
    def _in_time(self, child: subprocess.Popen[bytes], args: Sequence[str]) -> Iterator[None]:
        limit = self._patience if command_of(args) in _REMOTE else self._seconds
        if limit is None:
            yield
            return
        late = False

        def end() -> None:
            nonlocal late
            if child.poll() is None:
                late = True
                stop(child, _GRACE, attached=True)

        timer = threading.Timer(limit, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except RemoteFailed:
            if not late:
                raise
        finally:
            timer.cancel()
        if late:
            raise RemoteFailed(
                f"git {command_of(args)} failed: it took more than {limit:.0f} s and was ended",
                "see whether the remote answers" if self._seconds is None else "look for what it waits for",
            )


def git_program(folder: Path | None = None) -> str:
    """Return the path of a trusted git for a folder. Raises RemoteFailed."""
    return _required(find_program("git", folder))


def _required(program: str | None) -> str:
    if program is None:
        raise RemoteFailed("no git program outside of the project is on PATH", "install git")
    return program


def command_of(args: Sequence[str]) -> str:
    return next((arg for arg in args if not arg.startswith("-") and "=" not in arg), "git")


def _locks(args: Sequence[str]) -> bool:
    return command_of(args) in _LOCKING and not any(arg.startswith("--get") for arg in args)


def settings_of(args: Sequence[str]) -> tuple[str, ...]:
    return SETTINGS if "push" in args[:1] else (*SETTINGS, *NO_HOOKS)


def environment(folder: Path | None = None) -> dict[str, str]:
    """Return git's environment: English messages, which are parsed, and a trusted PATH."""
    return _environment(trusted_path(folder))


def _environment(path: str) -> dict[str, str]:
    kept = {name: value for name, value in elsewhere(os.environ).items() if name != "LANGUAGE"}
    return {**_MALLOC, **kept, **_FIXED, "PATH": path}


def failure(args: Sequence[str], done: CallResult) -> RemoteFailed:
    """Return the error for a call of git that failed, with a hint by its message."""
    command = command_of(args)
    for sign, reason, setting in _OVER:
        if re.search(sign, done.err):
            return ReceiveLimitExceeded(
                f"git {command} failed: {reason}",
                f"it is more than {setting.split()[0]} allows; raise it with: git config --global {setting}",
            )
    if command == "push" and done.code >= 0 and _is_refused_by_hook(done):
        return RemoteFailed(f"git push failed: its pre-push hook refused: {done.reason}", _HOOK_HINT)
    return RemoteFailed(f"git {command} failed: {done.reason}", hint_for(done.err, command))


def _is_refused_by_hook(done: CallResult) -> bool:
    """Return whether a push ended before it had reached a remote: no other program speaks then than the hook."""
    has_rows = re.search(rb"^[!*=+-]\t", done.out, re.MULTILINE)
    is_gits = re.search(
        r"^(?:fatal|ssh|remote): |Permission denied|^error: (?!failed to push)", done.err, re.MULTILINE
    )
    return "error: failed to push some refs" in done.err and not has_rows and not is_gits


def _telling_line(err: str) -> str:
    """Return the line of git's output that has the cause: one that names a fault of the system, else its first error;
    the rest are consequences."""
    lines = [one_line(line, 300) for line in err.splitlines() if line.strip()]
    telling = [line for line in lines if not re.match(_EMPTY_TALK, line)]
    causes = [line for line in telling if re.search(_SYSTEM_FAULT, line)]
    for begin in ("fatal: ", "error: ", "ssh: ", "remote: "):
        causes += [line for line in telling if line.startswith(begin)]
    cause = (causes or [(telling or lines or [""])[-1]])[0].removeprefix("fatal: ").removeprefix("error: ")
    return re.sub(r"(https?://[^\s'\"?]*)\?[^\s'\"]*", r"\1", cause)  # what follows a `?` may be a token


def hint_for(err: str, command: str = "") -> str:
    """Return a way out for git's output, that of its cause. `command` is git's, "" for one that meets no remote."""
    for sign, hint in _HINTS:
        if re.search(sign, err):
            return hint
    if command in _REMOTE and re.search(r"not found|does not exist", err):
        return CHECK_ADDRESS
    if command in _REMOTE:
        return "repeat when the remote can be reached; nothing was lost"
    return "see whether git works there, then repeat; nothing was lost"


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.write(data)
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


class _Listener:
    """Reads a stream in a thread, forwarding it and keeping its end."""

    KEEP = 64 * 1024

    def __init__(self, stream: IO[bytes], watch: Callable[[str], None] | None) -> None:
        self._data = bytearray()
        self._thread = threading.Thread(target=self._listen, args=(stream, watch), daemon=True)
        self._thread.start()

    def _listen(self, stream: IO[bytes], watch: Callable[[str], None] | None) -> None:
        with stream:
            while chunk := stream.read1(4096):  # type: ignore[attr-defined]
                self._data += chunk
                del self._data[: -self.KEEP]
                if watch is not None:
                    watch(chunk.decode("utf-8", "replace"))
        if watch is not None:
            watch("")

    def text(self) -> str:
        # A background child of git may hold the pipe open; don't wait for its output.
        self._thread.join(5)
        return self._data.decode("utf-8", "replace").replace("\r", "\n")
