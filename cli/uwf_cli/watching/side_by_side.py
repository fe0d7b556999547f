"""Running threads in parallel, each in a process of its own while it runs, since a step needs the main thread and the
current folder. Output is labelled with the end of the thread's id, and each has a live line."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from uwf_cli import terminal
from uwf_cli.invocation import PROGRAM, going_on_by, words_of
from uwf_git.base.errors import Failure, UwfError
from uwf_git.base.lifetime import deferred
from uwf_git.base.line_buffer import LineBuffer
from uwf_git.base.text import counted
from uwf_git.base.thread_states import ThreadState, worst
from uwf_git.format.endings import JOINED_WITHOUT
from uwf_git.sandbox.warm import WarmPool

if TYPE_CHECKING:
    from uwf_cli.invocation import Invocation
    from uwf_cli.watching.lines import Lines
    from uwf_git.format.ids import ThreadId
    from uwf_git.sandbox.warm import WarmProcess

_LABEL = 6  # characters of an id, if that many distinguish the threads
_OWN = "uwf: "  # how messages of uwf begin, other than an agent's
_PIECE = 1 << 16
_LONGEST = 16 << 20  # bytes of a line after which it is passed on as two; documents are shorter
_POLL = 0.1
_PATIENCE = 20.0  # seconds that a process has to end its agent and to keep what that said


class _Output:
    """The lines of a run's stream."""

    def __init__(self) -> None:
        self._lines = LineBuffer()
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> list[str]:
        """Return the lines that end with data, of which the stream's end has none; what is too long, in parts."""
        lines = [self._decoder.decode(line, final=True) for line in self._lines.add(data)]
        if self._lines.size > (_LONGEST if data else 0):
            lines.append(self._decoder.decode(self._lines.take(), final=not data))
        return lines


class _Run:
    """A run of a thread, and its output."""

    def __init__(self, thread: ThreadId, process: WarmProcess) -> None:
        self.thread = thread
        self.process = process
        self.streams: dict[IO[bytes], _Output] = {}
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self.streams[stream] = _Output()

    def sources(self) -> list[IO[bytes] | WarmProcess]:
        """Return what tells of it: its end, and its output."""
        return [self.process, *self.streams]


class SideBySide:
    """Runs up to N threads by `uwf thread run ID` with `arguments`. `again` are the options to repeat after
    Ctrl-C, quoted. If the threads are branches, `again` is the whole command that runs their parent, and `siblings` are
    all branches of their fork: those that other processes run count among the N. One that `is_taken` by another machine
    when it is its turn goes last."""

    def __init__(
        self,
        invocation: Invocation,
        threads: Sequence[ThreadId],
        arguments: Sequence[str],
        at_once: int,
        again: str = "",
        siblings: Collection[ThreadId] = (),
        is_taken: Callable[[ThreadId], bool] = lambda _thread: False,
    ) -> None:
        self._invocation = invocation
        self._waiting = list(threads)
        self._arguments = arguments
        self._at_once = at_once
        self._again = again
        self._siblings = frozenset(siblings)
        self._is_taken = is_taken
        self._running: dict[ThreadId, _Run] = {}
        self._pool = WarmPool(PROGRAM, os.environ)
        self._selector = selectors.DefaultSelector()
        self._lines: Lines | None = None
        self._ended: dict[ThreadId, int] = {}
        self._killed: list[tuple[ThreadId, str]] = []
        # The threads whose runs had a message, which is not about one of them if several had it.
        self._messages: dict[str, list[ThreadId]] = {}
        self._stopping = False
        self._text = invocation.format == "text"
        size = _LABEL
        while len({thread[-size:] for thread in threads}) < len(threads):
            size += 1
        self._size = size

    def run(self, quiet: bool) -> int:
        """Run all; return the worst exit status. After Ctrl-C each process
        keeps its agent's work."""
        self._lines = None if quiet else self._drawn()
        with self._lines or nullcontext(), self._selector:
            try:
                while self._waiting or self._running:
                    self._tell_going_on()
                    while self._waiting and len(self._running) + self._elsewhere() < self._at_once:
                        thread = self._waiting.pop(0)
                        if self._is_taken(thread):
                            self._waiting.append(thread)
                        elif self._may_start(thread):
                            self._start(thread)
                    self._turn()
            finally:
                self._stop()
                self._pool.close()
        for thread, line in self._killed:
            if not self._is_left(thread):
                self._write(thread, line, True)
        for line, threads in self._messages.items():
            if more := len(threads) - 1:
                message = line.removeprefix(_OWN)
                sys.stderr.write(f"{_OWN}{counted(more, 'more thread')} had the same message: {message}\n")
        statuses = list(self._ended.values())
        if self._text and not self._siblings:
            self._invocation.note(_summary(statuses))
        return worst(statuses)

    def _elsewhere(self) -> int:
        """Return how many siblings other processes run."""
        if not self._siblings:
            return 0
        locks = self._invocation.instance.locks
        return len((locks.held() | locks.runs()) & self._siblings - self._running.keys())

    def _may_start(self, thread: ThreadId) -> bool:
        """Return whether to start a thread: a branch may have ended or been paused since it was its turn, by the join
        or with its parent."""
        instance = self._invocation.instance
        return not self._siblings or not (
            instance.threads.has_ended(thread) or instance.threads.is_paused(thread)
        )

    def _tell_going_on(self) -> None:
        if self._siblings:
            self._invocation.going_on = going_on_by(self._again)
            return
        threads = " ".join([*self._running, *self._waiting])
        options = f" -j {self._at_once}" if self._at_once > 1 else ""
        options += self._again
        self._invocation.going_on = going_on_by(f"uwf thread run {threads}{options}")

    def _start(self, thread: ThreadId) -> None:
        invocation = self._invocation
        root = ["--root", str(Path(invocation.root_option).absolute())] if invocation.root_option else []
        words = words_of("text" if self._text else "json", *root, "thread", "run", thread, *self._arguments)
        with deferred():
            process = self._pool.spawn(words)
            run = self._running[thread] = _Run(thread, process)
            for source in run.sources():
                self._selector.register(source, selectors.EVENT_READ, run)

    def _turn(self) -> None:
        for key, _events in self._selector.select(_POLL):
            if key.fileobj is not key.data.process:
                self._read(key.data, key.fileobj)  # type: ignore[arg-type]
        for thread, run in list(self._running.items()):
            status = run.process.poll()
            if status is None:
                continue
            for stream in run.streams:
                while self._read(run, stream):
                    pass
            with deferred():
                for source in run.sources():
                    with contextlib.suppress(KeyError):
                        self._selector.unregister(source)
                for stream in run.streams:
                    stream.close()
                del self._running[thread]
                self._ended[thread] = status if status >= 0 else UwfError.exit_status
            if run.process.is_lost and not self._stopping and not self._is_left(thread):
                self._tell_of_lost(thread, status)

    def _tell_of_lost(self, thread: ThreadId, status: int) -> None:
        """Say that the process that ran a thread has ended, which could not say so itself."""
        from uwf_cli.failures import print_error

        how = f"was ended by signal {-status}" if status < 0 else "ended before the thread's run did"
        message = f"the process that ran thread {thread} {how}"
        command = self._again if self._siblings else f"uwf thread run {thread}{self._again}"
        failure = Failure(UwfError.code, UwfError.exit_status, message, going_on_by(command))
        with self._lines.hidden() if self._lines else nullcontext():
            print_error(
                self._invocation, failure, thread=thread, label=self._label(thread) if self._text else ""
            )

    def _read(self, run: _Run, stream: IO[bytes]) -> bool:
        try:
            data = os.read(stream.fileno(), _PIECE)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(stream)
        for line in run.streams[stream].add(data):
            self._pass_on(run.thread, line, stream is run.process.stderr)
        return bool(data)

    def _pass_on(self, thread: ThreadId, line: str, is_error: bool) -> None:
        if is_error and self._stopping:
            return  # each says that it was interrupted, which we say once
        if is_error and self._siblings and f"thread {thread} was killed" in line:
            self._killed.append((thread, line))  # by the join, or by a user: known once all have ended
            return
        if is_error and self._siblings and self._is_left(thread):
            return  # it was not needed any more, as the join says
        if is_error and line.startswith(_OWN):
            threads = self._messages.setdefault(line, [])
            if thread not in threads:
                threads.append(thread)
            if thread != threads[0]:
                return  # counted at the end
        self._write(thread, line, is_error)

    def _write(self, thread: ThreadId, line: str, is_error: bool) -> None:
        with self._lines.hidden() if self._lines else nullcontext():
            if is_error:
                sys.stderr.write(f"{self._label(thread)}{line}\n" if self._text else f"{_of(thread, line)}\n")
                sys.stderr.flush()
            elif self._invocation.format == "yaml" and (document := _document(line)) is not None:
                self._invocation.emit(document, compact=True)
            else:
                self._invocation.write(f"{self._label(thread)}{line}" if self._text else line)

    def _is_left(self, thread: ThreadId) -> bool:
        with contextlib.suppress(UwfError):
            archive = self._invocation.instance.threads.head(thread).archive
            return archive is not None and archive.reason == JOINED_WITHOUT
        return False

    def _label(self, thread: ThreadId) -> str:
        return f"{terminal.style(thread[-self._size :], 'cyan')}  "

    def _drawn(self) -> Lines | None:
        if not self._text or not terminal.colours():
            return None
        from uwf_cli.watching.lines import Lines, step_line
        from uwf_git.api.progress import Watch

        watch, locks = Watch(self._invocation.instance), self._invocation.instance.locks
        began = time.time()

        def compose() -> list[str]:
            steps = [(thread, watch.step(thread)) for thread in list(self._running)]
            lines = [
                f"{thread[-self._size :]}  {step_line(step)}"
                for thread, step in steps
                # Leftovers of a killed engine are not running.
                if step and (step.since >= began or locks.is_held(thread))
            ]
            waiting_note = f"{len(self._waiting)} more to come" if self._waiting else ""
            if self._siblings:
                at_work = f"{len(self._running)} of {len(self._siblings)} branches at work"
                return [*lines, ", ".join(filter(None, [at_work, waiting_note]))]
            return [*lines, waiting_note] if waiting_note else lines

        return Lines(compose)

    def _stop(self) -> None:
        if not self._running:
            return
        self._tell_going_on()
        self._stopping = True
        try:
            for run in self._running.values():
                run.process.send_signal(signal.SIGINT)
            deadline = time.monotonic() + _PATIENCE
            while self._running and time.monotonic() < deadline:
                self._turn()
        finally:
            for run in self._running.values():
                run.process.kill()


def _document(line: str) -> Any:
    """Return the document that a line is, None for what an agent's code printed."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


def _of(thread: ThreadId, line: str) -> str:
    try:
        value: Any = json.loads(line)
        value["error"] = {**value["error"], "thread": thread}
    except (ValueError, TypeError, KeyError):
        return line
    from uwf_cli.output import as_json

    return as_json(value, compact=True)


def _summary(statuses: Sequence[int]) -> str:
    kinds = {
        "done": ThreadState.COMPLETED,
        ThreadState.WITH_FAILURES.label: ThreadState.WITH_FAILURES,
        ThreadState.ASKING.word: ThreadState.ASKING,
        "stopped before the end": ThreadState.IDLE,
    }
    counts = {name: statuses.count(kind.exit_status) for name, kind in kinds.items()}
    counts[ThreadState.FAILED.word] = len(statuses) - sum(counts.values())
    parts = [f"{number} {name}" for name, number in counts.items()]
    parts_shown = ", ".join(part for part in parts if not part.startswith("0 "))
    return f"{counted(len(statuses), 'thread')}: {parts_shown}"
