"""Reading a program's own session by its row: exchanges of a person and the agent, as a thread stores them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.ext.agents.cli.lenient_json import parse
from uwf_git.ext.agents.cli.output import Output, SessionUsage, found_texts, holds, selected, values
from uwf_git.ext.agents.cli.row import AgentRow, Find, LinesAt
from uwf_git.plugin import LoggedExchange, LoggedSession, TokenUsage

_INTERRUPTED = ("the agent was interrupted before the end of its answer",)


class ReadSession(NamedTuple):
    """A session as its program has logged it. `logged` has the exchanges that are over; `pending`: the last message
    has no complete answer yet."""

    logged: LoggedSession
    pending: bool


class SessionHead(NamedTuple):
    """The beginning of a session: its first message, at a time in Unix milliseconds. `folder` is "" if unknown."""

    session: str
    prompt: str
    began: int
    folder: str


class _Line(NamedTuple):
    raw: bytes
    value: Any
    time: int
    prompt: str


def head_of(row: AgentRow, lines: Iterable[bytes]) -> SessionHead | None:
    """Return the beginning of a session, up to its first message; None if these are no lines of it."""
    at = _lines_at(row)
    if at is None:
        return None
    session = folder = ""
    for line in _parsed(at, lines):
        session = session or _first(line.value, at.reads.session)
        folder = folder or _first(line.value, at.folder)
        if line.prompt and session:
            return SessionHead(session, line.prompt, line.time, folder)
    return None


def read_session(row: AgentRow, agent: str, lines: Iterable[bytes]) -> ReadSession | None:
    """Return a session of `agent`, None if these are no lines of its program."""
    at = _lines_at(row)
    if at is None:
        return None
    every = _last_of_each(at, _parsed(at, lines))
    head = head_of(row, [line.raw for line in every])
    if head is None:
        return None
    exchanges: list[LoggedExchange] = []
    before = _Before()
    pending = False
    for prompt, model, group in _exchanges(at, every):
        output = Output(at.reads)
        for line in group:
            output.feed(line.raw + b"\n")
        run = output.end()
        pending = not _is_over(at, group)
        usage, cost = before.spent_since(run.spent)
        exchanges.append(
            LoggedExchange(
                prompt,
                group[0].time,
                max(line.time for line in group),
                next(
                    (turn.text for turn in reversed(run.turns) if turn.role == "assistant" and turn.text), ""
                ),
                run.turns,
                model or run.model,
                usage,
                cost,
                _INTERRUPTED if pending else (),
                f"message {len(exchanges) + 1} of session {head.session}",
            )
        )
    if pending:
        exchanges.pop()
    folder = next((text for line in every if (text := _first(line.value, at.folder))), "")
    work = Path(folder) if folder.startswith("/") else None
    return ReadSession(LoggedSession(agent, head.session, head.began, tuple(exchanges), work), pending)


def _lines_at(row: AgentRow) -> LinesAt | None:
    return row.sessions.lines if row.sessions is not None else None


def _parsed(at: LinesAt, lines: Iterable[bytes]) -> Iterator[_Line]:
    when = 0
    for raw in lines:
        value = parse(raw.strip()) if raw.lstrip()[:1] == b"{" else None
        if value is None or not holds(value, at.when):
            continue
        times = [time for find in at.time for text in found_texts(value, find) if (time := _time(text))]
        when = max(times, default=when)
        prompt = "\n\n".join(text for find in at.prompt for text in found_texts(value, find) if text.strip())
        yield _Line(raw.strip(), value, times[0] if prompt and times else when, prompt)


def _last_of_each(at: LinesAt, lines: Iterable[_Line]) -> list[_Line]:
    """Return the lines, with the last of those that have the same id in the place of the first."""
    if at.by is None:
        return list(lines)
    known: dict[Any, _Line] = {}
    for number, line in enumerate(lines):
        known[next((str(key) for key in values(line.value, at.by)), number)] = line
    return list(known.values())


def _exchanges(at: LinesAt, lines: Sequence[_Line]) -> Iterator[tuple[str, str, list[_Line]]]:
    """Yield each message with the model that was announced before it, "" if none was, and its lines."""
    group: list[_Line] = []
    prompt = model = announced = ""
    over = True
    for line in lines:
        if line.prompt:
            if group:
                yield prompt, model, group
            group, prompt, model, announced, over = [], line.prompt, announced, "", False
        over = over or _is_end(at, line.value)
        announced = (over and _first(line.value, at.reads.model)) or announced
        if prompt:
            group.append(line)
    if group:
        yield prompt, model, group


def _is_over(at: LinesAt, group: Sequence[_Line]) -> bool:
    """Return whether the last message among the lines is one that ends the agent's answer."""
    for line in reversed(group):
        if _is_end(at, line.value):
            return True
        if any(True for turn in at.reads.turns for _ in selected(line.value, turn.select)):
            return False
    return False


def _is_end(at: LinesAt, value: Any) -> bool:
    return any(True for find in at.reads.complete for _ in found_texts(value, find))


class _Before:
    """What a session had used before an exchange, where its program logs sums of the whole session."""

    def __init__(self) -> None:
        self._usage = TokenUsage(0, 0)
        self._cost = 0.0

    def spent_since(self, spent: SessionUsage | None) -> tuple[TokenUsage | None, float | None]:
        if spent is None:
            return None, None
        usage, cost = spent.usage, spent.cost
        if usage is not None and spent.usage_of_session:
            past, self._usage = self._usage, usage
            usage = TokenUsage(*(max(0, now - then) for now, then in zip(usage, past, strict=True)))
        if cost is not None and spent.cost_of_session:
            cost, self._cost = max(0.0, cost - self._cost), cost
        return usage, cost


def _first(value: Any, finds: Sequence[Find]) -> str:
    return next((text for find in finds for text in found_texts(value, find) if text), "")


def _time(text: str) -> int:
    """Return a time in Unix milliseconds, 0 if it is none."""
    if text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
