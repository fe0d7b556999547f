"""Files of the private folder `<git dir>/uwf/`, which are never shared.

    runs/<ULID>.json      the engine's order: head, role, agent, instruction, time limit
    runs/<ULID>.result    the report: the StepNode or the failure, with its nodes; what follows a NUL isn't its
    runs/<ULID>.answer    the agent's answers, one per line, before they are judged
    runs/<ULID>.room      disk space reserved for the report before the agent runs
    runs/<ULID>.turns     a line for each turn, and for the agent's session
    runs/<ULID>.contents  the nodes of these turns, until a step or an attempt has them
    runs/<ULID>.said      the model's current stream; see `LiveStream`
    runs/<ULID>.printed   lines printed by the agent's command, without secrets; see `LiveStream`
    runs/<ULID>.now       the model, and the latest line of output
    runs/<ULID>.log       the agent's standard error
    runs/<ULID>.stop      why the last try at a step made neither a step nor an attempt
    runs/<ULID>.off       why a step is being interrupted, for its engine
    runs/<ULID>.takes     the agent that takes remarks while it works
    runs/<ULID>.detached  the output of the thread's last detached run
    remarks/<ULID>/       remarks that wait for a running agent; see `mailbox`
    permissions/<ULID>/   requests of agents that wait for a person; see `permission_files`
    sessions/<hash>       the thread that an agent's session belongs to, and how the session was left here
    folders/<ULID>        the working folder of a thread's agents
    trusted/<SHA-256>     trusted code; see `Trusted`
    witness/<hash>        announcements of one user's moves of refs; see `witness_log`
    chat.history          input of `uwf chat`, one JSON text per line, without secrets
    logs/<day>.jsonl      the log, if enabled; see `log_files`
    packages/, states/    a crew's package and a run's state, for agents; see `crews.mounts`

A report counts only with the nonce of its order. The engine passes it to the agent's command in UWF_NONCE,
and the order has only its SHA-256, so knowing thread and role is not enough to answer for the agent.

The printed hash is the protocol; the report says more and survives kills and disk errors while the answer is
stored: the next step takes over the finished work.
"""

import codecs
import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from uwf_git.base import system
from uwf_git.base.errors import StoreUnwritable, Usage
from uwf_git.format.credit import Credit
from uwf_git.format.ids import Hash, ThreadId, is_hash, is_thread_id
from uwf_git.format.kinds import Usage as TokenUsage
from uwf_git.git.fsync import make_folders, reserve, share, sync, write_all
from uwf_git.git.objects import BLOB, id_of
from uwf_git.git.refs import read_file
from uwf_git.sandbox.step_variables import NONCE_VARIABLE as NONCE_VARIABLE
from uwf_git.store.private_files import MOST, content_of, opener, read_private, write_private

QUESTION_VARIABLE = "UWF_QUESTION"
"""Names the file with a code workflow's question to an agent that runs as a command: `answer.json` beside it is for the
answer, and no step is made."""
_MINE = 0o600  # streams are readable by their user alone, or by those who share the repository
_NONCE_MARK = "uwfnonce-"  # by which nonces are removed from stored data; see config.tokens
ROOM = 256 * 1024  # bytes that are kept free for a report
_END = b"\0"  # of a report, in the space that was kept for it
_OF_A_RUN = (
    "json",
    "result",
    "room",
    "turns",
    "contents",
    "log",
    "said",
    "printed",
    "now",
    "off",
    "takes",
    "answer",
)
_SHOWN = 240  # characters of a line that is being said
PAUSE, KILL = "pause", "kill"  # reason of an interruption
_TO_WRITE = os.O_WRONLY | os.O_CREAT | system.O_NONBLOCK  # a pipe would be waited for
_MOST_SAID = 256 << 10  # bytes of a live stream kept for watchers
_BEGUN = 21  # bytes before the words: the start time, which identifies the stream
_MOST_PRINTED = 8 << 20  # bytes of a command's lines that are kept for those who watch
OUTPUT_END = 64 << 10  # bytes of them that are read at once
LOG_END = 4096  # bytes of a log in which its last line is looked for
_SEEN = {
    "role": str,
    "model": str,
    "tokens": int,
    "said": str,
    "remark": str,
}  # of a note, for those who watch
REMARKS = "remarks"  # the folder of mailboxes
PERMISSIONS = "permissions"
"""The folder of requests of running agents: a folder a thread, in it a file a request."""


class EngineOrder(NamedTuple):
    """The engine's order for the next step on `head`.

    `agent` is an alias or command, `command` what it resolved to, `name` the agent's own name if known;
    `timeout` is in seconds; `budget` are raised limits that the step records; `number` is the step's, from 1;
    `persona` the speaker's id and name; `folder` the working folder. `nonce_sha256` is in hexadecimal.
    `base` is the commit that the step's worktree begins at, "" without one.
    """

    head: Hash
    role: str
    agent: str
    instruction: str | None
    timeout: float | None
    budget: Mapping[str, float] | None = None
    name: str = ""
    number: int = 0
    persona: Mapping[str, str] | None = None
    command: tuple[str, ...] = ()
    folder: str = ""
    nonce_sha256: str = ""
    base: str = ""

    @property
    def credit(self) -> Credit:
        """Who makes the step, as far as that is known before it."""
        from uwf_git.format.personas import Persona

        return Credit(
            self.name or self.agent,
            Persona(self.persona["id"], self.persona["name"]) if self.persona else None,
        )

    def asks(self) -> list[Any]:
        """The question as JSON: an answer is valid only for the same."""
        return [self.head, self.role, self.agent, self.instruction, [*self.command], self.folder]


class Activity(NamedTuple):
    """The current activity: model ("" if unknown), latest line of output, its Unix time, tokens so far in
    both directions, agent's name ("" if unknown)."""

    model: str
    line: str
    time: float
    tokens: int = 0
    agent: str = ""


class StreamPosition(NamedTuple):
    """How far a stream was read: its identity `begun`, and the bytes."""

    begun: bytes = b""
    size: int = 0


UNREAD = StreamPosition()


class Place(NamedTuple):
    """The bytes of a file that something has."""

    at: int
    size: int


class LiveStream:
    """A model's current stream, or a command's output, for watchers. Best effort: anything beyond `most`
    bytes or unwritable is dropped."""

    def __init__(self, path: Path, most: int = _MOST_SAID) -> None:
        self._path = path
        self._most = most
        self._file = -1
        self._size = 0

    def add(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self._size += len(data)
        if self._size > self._most:
            return
        with contextlib.suppress(OSError):
            if self._file < 0:
                self._file = system.open_file(self._path, _TO_WRITE | os.O_TRUNC | os.O_APPEND, _MINE)
                data = b"%020d\n" % time.time_ns() + data
            os.write(self._file, data)

    def renew(self) -> None:
        """Begin a new stream: the words so far became a turn or were discarded."""
        file, self._file, self._size = self._file, -1, 0
        if file >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(file, 0)
            os.close(file)


class AgentReport(NamedTuple):
    """An agent's result. `nodes` maps written hashes to blob ids in hex, in case the index is lost;
    `contents` maps hashes that may be unwritten to blob contents, references first. `throttled` has the
    error's rate limit fields. `timed_out`: a time limit was the cause. `nonce` is the order's. With `is_put`,
    the report comes from a command that is still running, and the step fails if it does. `calls` are the last
    commits of the calls whose answers a code workflow was given, in hexadecimal."""

    head: Hash
    role: str
    agent: str
    step: Hash | None
    detail: Hash | None
    error: str
    hint: str
    nodes: Mapping[Hash, str]
    contents: Mapping[Hash, str] = {}
    throttled: Sequence[Any] | None = None
    nonce: str = ""
    is_put: bool = False
    timed_out: bool = False
    calls: Sequence[str] = ()


class Runs:
    """The orders and reports of one store. `nonce` is that of the step for which this process was started."""

    def __init__(self, private: Path, nonce: str = "") -> None:
        self._folder = private / "runs"
        self._below = f"{self._folder}/"
        self._remarks = f"{private}/{REMARKS}/"
        self._requests = f"{private}/{PERMISSIONS}/"
        self._given = nonce
        self._nonces: dict[ThreadId, str] = {}  # of the orders of this process

    def order(self, thread: ThreadId, order: EngineOrder) -> None:
        """Write an order with a new nonce, clear the last report and log, and reserve space for the report,
        so that no agent runs whose answer could not be kept. Unjudged answers to the same order stay for its
        agent. Raises StoreUnwritable."""
        kept = ("answer", "contents") if self.answers(thread, order) else ()
        self._forget(thread, *(suffix for suffix in _OF_A_RUN if suffix not in kept))
        nonce = self._nonces[thread] = _NONCE_MARK + os.urandom(16).hex()
        value = order._replace(nonce_sha256=_sha256(nonce))._asdict()
        write_private(Path(self._path(thread, "json")), _json(value), mode=_MINE)
        try:
            reserve(self._path(thread, "room"), ROOM, _MINE)
        except OSError as error:
            self._forget(thread, *(suffix for suffix in _OF_A_RUN if suffix not in ("answer", "contents")))
            raise StoreUnwritable(
                f"no agent was started: its answer could not be saved to {self._folder}: {error}",
                "check permissions and free space",
            ) from None

    def read_order(self, thread: ThreadId) -> EngineOrder | None:
        value = self._read(self._path(thread, "json"), EngineOrder)
        return None if value is None else EngineOrder(**value | {"command": tuple(value.get("command", ()))})

    def ordered(self) -> frozenset[str]:
        """Return the threads that have an order."""
        return self._with(".json")

    def stopped(self) -> frozenset[str]:
        """Return the threads for which something is noted by `stop`."""
        return self._with(".stop")

    def _with(self, suffix: str) -> frozenset[str]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208
        except OSError:
            return frozenset()
        return frozenset(name.removesuffix(suffix) for name in names if name.endswith(suffix))

    def stop(self, thread: ThreadId, head: Hash, why: str) -> bool:
        """Note why the try at the step on a head came to nothing, which no attempt says; return whether that is new.
        Raises StoreUnwritable."""
        is_new = self.why_stopped(thread, head) != why
        write_private(Path(self._path(thread, "stop")), _json([head, why]), mode=_MINE)
        return is_new

    def forget_stop(self, thread: ThreadId) -> None:
        if os.path.lexists(self._path(thread, "stop")):  # asked after each step
            self._forget(thread, "stop")

    def why_stopped(self, thread: ThreadId, head: Hash) -> str:
        """Return why the last try at the step on a head came to nothing, "" if nothing is noted."""
        path = self._path(thread, "stop")
        if not os.path.lexists(path):  # asked after each step
            return ""
        with contextlib.suppress(ValueError, RecursionError, TypeError):
            at, why = json.loads(content_of(path))
            return str(why) if at == head else ""
        return ""

    def nonce(self, thread: ThreadId) -> str:
        """Return this process's nonce for a thread's order, "" if none."""
        return self._nonces.get(thread, self._given)

    def is_asked(self, thread: ThreadId) -> bool:
        """Return whether this process has the nonce of the step in progress."""
        order = self.read_order(thread)
        return order is not None and order.nonce_sha256 == _sha256(self.nonce(thread))

    def is_anothers(self, thread: ThreadId) -> bool:
        """Return whether the order belongs to another process."""
        return self.read_order(thread) is not None and not self.is_asked(thread)

    def is_engine(self, thread: ThreadId) -> bool:
        """Return whether this process ordered the step in progress."""
        return thread in self._nonces

    def report(self, thread: ThreadId, report: AgentReport, synced: bool = True) -> None:
        """Write the report with the order's nonce, into the reserved space. `synced` waits for the disk. Raises
        StoreUnwritable, and Usage without the nonce."""
        order = self.read_order(thread)
        if order is not None and order.nonce_sha256 != _sha256(self.nonce(thread)):
            raise Usage(
                f"another process was asked for the step of thread {thread}", f"uwf thread show {thread}"
            )
        data = _json(report._replace(nonce=self.nonce(thread))._asdict())
        room = self._path(thread, "room")
        with self._saving():
            descriptor = self._opened(room, _TO_WRITE)
            try:
                share(room)
                write_all(descriptor, data + _END)  # the space isn't given back, which takes longer
            finally:
                os.close(descriptor)
            system.replace(room, self._path(thread, "result"))
        if synced:
            self.sync_report(thread)
        self._forget(thread, "answer")

    def sync_report(self, thread: ThreadId) -> None:
        """Wait until the report is on the disk. Raises StoreUnwritable."""
        with self._saving():
            sync(self._path(thread, "result"))
            with contextlib.suppress(FileNotFoundError):  # of an agent that is called by hand
                sync(self._path(thread, "json"))
            sync(self._folder)

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnwritable(
                f"cannot save the agent's answer to {self._folder}: {error}",
                "check permissions and free space",
            ) from None

    def _opened(self, path: str, flags: int) -> int:
        """Open a file of ours to write it, in a folder that may not be there yet. Raises OSError."""
        try:
            return system.open_file(path, flags | system.O_CLOEXEC, _MINE)
        except FileNotFoundError:
            make_folders(self._folder)
            return system.open_file(path, flags | system.O_CLOEXEC, _MINE)

    def detached_output(self, thread: ThreadId) -> Path:
        """Return the path of the output of a thread's last detached run."""
        return self._folder / f"{thread}.detached"

    def begin_detached_output(self, thread: ThreadId) -> BinaryIO:
        """Open an empty file for the output of a detached run. Raises StoreUnwritable."""
        path = self.detached_output(thread)
        try:
            make_folders(self._folder)
            return open(path, "wb", opener=opener(_MINE))
        except OSError as error:
            raise StoreUnwritable(
                f"cannot write {path}, the output of the run: {error}",
                f"check permissions and free space, then: uwf thread run {thread} --detach",
            ) from None

    def _path(self, thread: ThreadId, suffix: str) -> str:
        return f"{self._below}{thread}.{suffix}"

    def read_report(self, thread: ThreadId) -> AgentReport | None:
        value = self._read(self._path(thread, "result"), AgentReport)
        if value is None or not isinstance(value["nodes"], dict):
            return None
        contents = value.get("contents", {})
        if not isinstance(contents, dict) or not all(
            isinstance(content, str) for content in contents.values()
        ):
            return None
        if not all(is_hash(node) and _is_oid(blob) for node, blob in value["nodes"].items()):
            return None
        if not all(value[name] is None or is_hash(value[name]) for name in ("step", "detail")):
            return None
        calls = value.get("calls", [])
        if not isinstance(calls, list) or not all(map(_is_oid, calls)):
            return None
        match value.get("throttled"):
            case None | [str(), None | int() | float()]:
                return AgentReport(**value)
        return None

    def answer_to(self, thread: ThreadId, head: Hash, role: str) -> AgentReport | None:
        """Return the report of a role's step on a head, if it has the order's nonce."""
        report, order = self.read_report(thread), self.read_order(thread)
        if report is None or order is None or not (report[:2] == order[:2] == (head, role)):
            return None
        return report if order.nonce_sha256 == _sha256(report.nonce) else None

    def keep_answer(
        self, thread: ThreadId, order: EngineOrder, number: int, answer: Mapping[str, Any], synced: bool
    ) -> None:
        """Save an agent's answer until a report replaces it; `number` counts from 0, and the last of one
        number counts. `synced` waits for the disk, for its turns too. Raises StoreUnwritable."""
        line = _json({"asked": order.asks(), "number": number, "answer": answer}) + b"\n"
        with self._saving():
            if synced:
                with contextlib.suppress(FileNotFoundError):  # of an agent that noted no turns
                    sync(self._path(thread, "contents"))
            self._append(self._path(thread, "answer"), line, synced)

    def answers(self, thread: ThreadId, order: EngineOrder) -> list[dict[str, Any]]:
        """Return the saved answers to this order; torn lines are skipped."""
        answers: dict[Any, dict[str, Any]] = {}
        for line in content_of(self._path(thread, "answer")).split(b"\n"):
            with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError):
                value = json.loads(line)
                if value["asked"] == order.asks() and isinstance(value["answer"], dict):
                    answers[value["number"]] = value["answer"]
        count = next(number for number in range(len(answers) + 1) if number not in answers)
        return [answers[number] for number in range(count)]

    def take_answers(self, thread: ThreadId, order: EngineOrder) -> list[dict[str, Any]]:
        """Return and delete the saved answers, so that an answer that crashes its judge is tried once."""
        answers = self.answers(thread, order)
        self._forget(thread, "answer")
        return answers

    def clear(self, thread: ThreadId) -> None:
        """Delete all files of a step, and the note that a person was called."""
        self.withdraw(thread)
        with contextlib.suppress(OSError):
            system.remove(self._path(thread, "called"))

    def withdraw(self, thread: ThreadId) -> None:
        """Delete the files of a step."""
        self._nonces.pop(thread, None)
        self._forget(thread, *_OF_A_RUN)

    def forget(self, wanted: Callable[[ThreadId], bool]) -> None:
        """Delete all files of threads for which `wanted` is False, temporary ones too."""
        try:
            names = [path.name.partition(".") for path in self._folder.iterdir()]
        except OSError:
            return
        for name in {name for name, _, _ in names if is_thread_id(name)}:
            if not wanted(ThreadId(name)):
                self.clear(ThreadId(name))
                self._forget(ThreadId(name), *(suffix for thread, _, suffix in names if thread == name))

    def _forget(self, thread: ThreadId, *suffixes: str) -> None:
        for suffix in suffixes:
            path = self._path(thread, suffix)
            try:
                system.remove(path)
            except FileNotFoundError:
                pass
            except OSError:  # a folder, which is not ours, goes out of the way
                with contextlib.suppress(OSError):
                    if os.path.isdir(path):  # noqa: PTH112
                        system.replace(path, f"{path}.{os.urandom(4).hex()}")

    def call(self, thread: ThreadId, head: Hash) -> bool:
        """Note that a person is called to a head; return whether that is new."""
        path = self._folder / f"{thread}.called"
        if content_of(path) == head.encode():
            return False
        with contextlib.suppress(OSError):
            write_private(path, head.encode())
        return True

    def break_off(self, thread: ThreadId, why: str) -> None:
        """Announce the end of the step in progress, for a PAUSE or a KILL."""
        write_private(self._folder / f"{thread}.off", why.encode())

    def broken_off(self, thread: ThreadId) -> str | None:
        """Return why the step in progress is being ended, else None."""
        try:
            why = read_file(self._path(thread, "off"))
        except OSError:
            return None
        return None if why is None else KILL if why == KILL.encode() else PAUSE

    def clear_interrupt(self, thread: ThreadId) -> None:
        with contextlib.suppress(OSError):
            (self._folder / f"{thread}.off").unlink(missing_ok=True)

    def has_remarks(self, thread: ThreadId) -> bool:
        """Return whether remarks to a thread may wait in its mailbox."""
        return os.path.isdir(self._remarks + thread)  # noqa: PTH112

    def has_requests(self, thread: ThreadId) -> bool:
        """Return whether a thread's agent may wait for leave; see `permission_files`."""
        return os.path.isdir(self._requests + thread)  # noqa: PTH112

    def take_remarks(self, thread: ThreadId, agent: str) -> None:
        """Announce that the agent of the step in progress takes remarks while it works. Best effort."""
        with contextlib.suppress(StoreUnwritable):
            write_private(Path(self._path(thread, "takes")), agent.encode("utf-8", "replace"), mode=_MINE)

    def remark_taker(self, thread: ThreadId) -> str:
        """Return the agent that takes remarks while it works, "" if none."""
        return content_of(self._path(thread, "takes")).decode("utf-8", "replace")

    def began(self, thread: ThreadId) -> float | None:
        """Return the Unix time of the order, else None."""
        try:
            return (self._folder / f"{thread}.json").stat().st_mtime
        except OSError:
            return None

    def show(self, thread: ThreadId, now: Activity) -> None:
        """Update the current activity. Best effort."""
        value = [now.model[:_SHOWN], now.line[:_SHOWN], now.time, now.tokens, now.agent]
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            descriptor = system.open_file(self._folder / f"{thread}.now", _TO_WRITE, _MINE)
            try:
                share(self._folder / f"{thread}.now")
                system.write_at(descriptor, data.ljust(8 * _SHOWN), 0)
            finally:
                os.close(descriptor)

    def now(self, thread: ThreadId) -> Activity | None:
        path = self._folder / f"{thread}.now"
        try:
            model, line, time, tokens, agent = json.loads(read_private(path).decode("utf-8", "replace"))
            return Activity(str(model), str(line), float(time), int(tokens), str(agent))
        except (OSError, ValueError, TypeError, RecursionError):  # half of it is written at this moment
            return None

    def spoken(self, thread: ThreadId) -> LiveStream:
        return LiveStream(self._folder / f"{thread}.said")

    def said(self, thread: ThreadId, since: StreamPosition = UNREAD) -> tuple[StreamPosition, str]:
        """Return the stream's new part, from its beginning if it was replaced; "" and an empty `begun` if
        there is none."""
        try:
            with open(self._folder / f"{thread}.said", "rb", opener=opener(_MINE)) as file:
                begun = file.read(_BEGUN)
                if len(begun) < _BEGUN:
                    return UNREAD, ""
                at = since.size if begun == since.begun else _BEGUN
                file.seek(at)
                text, read = codecs.utf_8_decode(file.read(_MOST_SAID), "replace", False)
        except OSError:
            return UNREAD, ""
        return StreamPosition(begun, at + read), text

    def printing(self, thread: ThreadId) -> LiveStream:
        return LiveStream(self._folder / f"{thread}.printed", _MOST_PRINTED)

    def printed(self, thread: ThreadId, since: StreamPosition = UNREAD) -> tuple[StreamPosition, bytes, bool]:
        """Return new lines of the agent's command; True if lines before the last OUTPUT_END bytes were
        omitted."""
        try:
            with open(self._folder / f"{thread}.printed", "rb", opener=opener(_MINE)) as file:
                begun = file.read(_BEGUN)
                end = file.seek(0, os.SEEK_END)
                at = since.size if begun == since.begun else _BEGUN
                is_cut = end - at > OUTPUT_END
                file.seek(max(at, end - OUTPUT_END))
                data = file.read(OUTPUT_END)
        except OSError:
            return UNREAD, b"", False
        return (StreamPosition(begun, end), data, is_cut) if len(begun) == _BEGUN else (UNREAD, b"", False)

    def noted(self, thread: ThreadId) -> tuple[int, float]:
        """Return the size and time of the notes, zeros if none."""
        try:
            status = (self._folder / f"{thread}.turns").stat()
        except OSError:
            return 0, 0.0
        return status.st_size, status.st_mtime

    def streamed(self, thread: ThreadId) -> tuple[float, int]:
        """Return when the model's stream or the command's output last grew, and the bytes of both, zeros if there is
        neither."""
        times, size = [0.0], 0
        for suffix in ("said", "printed"):
            with contextlib.suppress(OSError):
                status = (self._folder / f"{thread}.{suffix}").stat()
                times.append(status.st_mtime)
                size += status.st_size
        return max(times), size

    def logged(self, thread: ThreadId) -> tuple[bytes, float]:
        """Return the end of the agent's standard error, and its last time."""
        try:
            with open(self.log(thread), "rb", opener=opener(_MINE)) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LOG_END))
                return file.read(LOG_END), os.fstat(file.fileno()).st_mtime
        except OSError:
            return b"", 0.0

    def note(self, thread: ThreadId, note: Mapping[str, Any]) -> None:
        """Add a note: {agent, turn, blob}, {agent, session}, or {usage, cost} for `spending`. A turn's note also has
        `role`, `model`, `tokens`, its last line `said`, the id of the `remark` that it is, and the `place` that
        `keep_turn` gave its node, if any."""
        with self._noting(thread):
            self._append(self._path(thread, "turns"), _json(note) + b"\n")

    def keep_turn(self, thread: ThreadId, content: bytes) -> Place:
        """Save the file of a turn's node, and return its place. Raises StoreUnwritable."""
        with self._noting(thread):
            return Place(self._append(self._path(thread, "contents"), content), len(content))

    def kept_turn(self, thread: ThreadId, blob: str, place: Place) -> bytes | None:
        """Return the file of a turn's node with this blob id, None if it is gone or only a part of it is there."""
        try:
            descriptor = system.open_file(
                self._path(thread, "contents"), os.O_RDONLY | system.O_NONBLOCK | system.O_CLOEXEC
            )
            try:
                content = system.read_at(descriptor, place.size, place.at)
            finally:
                os.close(descriptor)
        except (OSError, OverflowError):
            return None
        return content if str(id_of(BLOB, content)) == blob else None

    @contextlib.contextmanager
    def _noting(self, thread: ThreadId) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnwritable(
                f"cannot note a turn of {thread}: {error}", "check permissions and free space"
            ) from None

    def _append(self, path: str, content: bytes, synced: bool = False) -> int:
        """Add to a file, and return where that begins; other processes may add to it too. Raises OSError."""
        descriptor = self._opened(path, _TO_WRITE | os.O_APPEND)
        try:
            share(path)
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            if synced:
                system.sync(descriptor)
            return os.lseek(descriptor, 0, os.SEEK_CUR) - len(content)
        finally:
            os.close(descriptor)

    def notes(self, thread: ThreadId) -> list[dict[str, Any]]:
        """Return the notes of turns and sessions, oldest first; torn lines are skipped."""
        return [note for line in self._lines(thread) if (note := _note(line)) is not None]

    def spending(self, thread: ThreadId) -> list[tuple[TokenUsage | None, float | None]]:
        """Return the tokens and cost that are noted apart from turns."""
        return [spent for line in self._lines(thread) if (spent := _spending(line)) is not None]

    def _lines(self, thread: ThreadId) -> list[str]:
        return content_of(self._path(thread, "turns")).decode("utf-8", "replace").splitlines()

    def log(self, thread: ThreadId) -> Path:
        return self._folder / f"{thread}.log"

    def _read(self, path: str, kind: type[EngineOrder] | type[AgentReport]) -> dict[str, Any] | None:
        try:
            if (data := read_file(path, at_most=MOST)) is None:
                return None
            value = json.loads(data.partition(_END)[0].decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or not value.keys() <= set(kind._fields):
            return None
        return value if value.keys() >= set(kind._fields) - kind._field_defaults.keys() else None


class Sessions:
    """Which thread an agent's session belongs to. A fork shares the past but not the sessions, since each
    side must not hear the other."""

    def __init__(self, private: Path) -> None:
        self._folder = private / "sessions"

    def claim(self, agent: str, session: str, thread: ThreadId) -> None:
        """Record the owner of a session, unless it has one."""
        path = self._path(agent, session)
        if path.exists():
            return
        try:
            make_folders(self._folder)
            with contextlib.suppress(FileExistsError), path.open("x", encoding="ascii") as file:
                share(path)
                file.write(thread)
        except OSError as error:
            raise StoreUnwritable(
                f"cannot remember a session of {thread}: {error}", "check free space"
            ) from None

    def is_anothers(self, agent: str, session: str, thread: ThreadId) -> bool:
        """Return whether a session belongs to another thread; False if unknown."""
        return self.owner(agent, session) not in ("", thread)

    def is_own(self, agent: str, session: str, thread: ThreadId) -> bool:
        return self.owner(agent, session) == thread

    def owner(self, agent: str, session: str) -> str:
        """Return the thread of a session, "" if unknown."""
        return _owner(content_of(self._path(agent, session)))

    def note(self, agent: str, session: str, context: str, kept: str | None = None) -> None:
        """Record that a session is on this machine as a run on the head `context` left it, and its Session
        node. The session has an owner. Best effort."""
        if kept is None and self.left_here(agent, session, context):
            return
        with contextlib.suppress(OSError), self._path(agent, session).open("a", encoding="ascii") as file:
            file.write(f"\n{context} {kept or ''}".rstrip())

    def left_here(self, agent: str, session: str, context: str | None, kept: str | None = None) -> bool:
        """Return whether a session was left on this machine by a run on `context`, with that Session node if
        one is given."""
        return any(item == context and kept in (None, node) for item, node in self._states(agent, session))

    def was_kept(self, agent: str, session: str) -> bool:
        """Return whether a session of this machine was ever kept or restored."""
        return any(node for _, node in self._states(agent, session))

    def _states(self, agent: str, session: str) -> list[tuple[str, str]]:
        lines = content_of(self._path(agent, session)).decode("ascii", "replace").split("\n")[1:]
        return [(context, node) for context, _, node in (line.partition(" ") for line in lines)]

    def owners(self, agent: str, sessions: Iterable[str]) -> dict[str, str]:
        try:
            known = {path.name for path in self._folder.iterdir()}
        except OSError:
            return {}
        mine = [session for session in sessions if self._path(agent, session).name in known] if known else []
        return {item: self.owner(agent, item) for item in mine}

    def forget(self, wanted: Callable[[str], bool]) -> None:
        """Delete the sessions of threads for which `wanted` is False."""
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if not wanted(_owner(read_private(path))):
                    path.unlink()

    def _path(self, agent: str, session: str) -> Path:
        from hashlib import sha256

        name = sha256(f"{agent}\0{session}".encode("utf-8", "replace")).hexdigest()
        return self._folder / name[:40]


def _owner(data: bytes) -> str:
    return data.decode("ascii", "replace").partition("\n")[0]


class Folders:
    """Working folders of threads' agents."""

    def __init__(self, private: Path) -> None:
        self._folder = private / "folders"
        self._read: tuple[int, frozenset[Path]] = (-1, frozenset())

    def all(self) -> frozenset[Path]:
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed != self._read[0]:
                threads = [entry.name for entry in os.scandir(self._folder)]
                self._read = changed, frozenset(filter(None, map(self.recall, threads)))
        except FileNotFoundError:
            return frozenset()
        return self._read[1]

    def remember(self, thread: ThreadId, cwd: Path) -> None:
        content = os.fsencode(cwd)
        if content_of(f"{self._folder}/{thread}") != content:
            failure = f"cannot remember the folder of {thread}"
            write_private(self._folder / thread, content, failure, "check free space")

    def recall(self, thread: str) -> Path | None:
        folder = content_of(self._folder / thread)
        # A power cut may leave NULs.
        return Path(os.fsdecode(folder)) if folder and b"\0" not in folder else None


class Trusted:
    """Code that may run on this machine, by SHA-256 (hexadecimal), language and workflow name, since a name
    carries permissions and bytes may mean different things in two languages. Nothing fetched writes here.
    Each is a file named by the SHA-256 of all three, one per line."""

    def __init__(self, private: Path) -> None:
        self._folder = private / "trusted"

    def has(self, sha256: str, language: str, name: str) -> bool:
        return self._file(sha256, language, name).is_file()

    def add(self, sha256: str, language: str, name: str) -> None:
        note = {"sha256": sha256, "language": language, "name": name, "at": int(time.time())}
        path = self._file(sha256, language, name)
        # Write access here allows running code as this user.
        failure = "cannot remember what is trusted"
        write_private(path, _json(note), failure, synced=True, mode=_MINE, shared=False)

    def remove(self, sha256: str, language: str, name: str) -> bool:
        """Revoke trust; return whether it was trusted."""
        try:
            self._file(sha256, language, name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreUnwritable(f"cannot forget what is trusted: {error}", "check permissions") from None
        return True

    def _file(self, *parts: str) -> Path:
        return self._folder / hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value).encode("ascii")


def _note(line: str) -> dict[str, Any] | None:
    try:
        note = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(note, dict):
        return None
    shown = {name: note.pop(name, kind()) for name, kind in _SEEN.items()}
    match note.pop("place", None):
        case [int(at), int(size)] if at >= 0 <= size:
            shown["place"] = Place(at, size)
        case None:
            shown["place"] = None
        case _:
            return None
    if not all(isinstance(text, str) for text in note.values()):
        return None
    if note.keys() == {"agent", "session"}:
        return note
    sound = note.keys() == {"agent", "turn", "blob"} and is_hash(note["turn"]) and _is_oid(note["blob"])
    if not sound or not all(isinstance(shown[name], kind) for name, kind in _SEEN.items()):
        return None
    return note | shown


def _spending(line: str) -> tuple[TokenUsage | None, float | None] | None:
    try:
        match json.loads(line):
            case {
                "usage": [int(), int(), int()] | [int(), int(), int(), int()] | None as usage,
                "cost": int() | float() | None as cost,
            }:
                return TokenUsage(*usage) if usage is not None else None, cost
    except (ValueError, RecursionError):
        pass
    return None


def _is_oid(text: object) -> bool:
    return isinstance(text, str) and len(text) == 40 and all(c in "0123456789abcdef" for c in text)
