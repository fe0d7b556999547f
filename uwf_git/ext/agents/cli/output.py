"""Reading an agent program's output by its row, while it runs.

    output = Output(row, on_turn=ctx.record, on_session=ctx.in_session)
    run_command(…, on_stdout=output.feed)
    said = output.end(stderr)

Values are processed one by one, so output may be of any size; of a text at most `_MAX_OUTPUT` bytes are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from uwf_git.ext.agents.cli.lenient_json import parse, sentence, whole
from uwf_git.ext.agents.cli.row import EVERY as EVERY_SELECTOR
from uwf_git.ext.agents.cli.row import KEYS as AGENT_CLI_KEYS
from uwf_git.ext.agents.cli.row import AgentRow, SecondCall, TurnAt, UsageAt
from uwf_git.ext.agents.cli.row import Find as FindField
from uwf_git.ext.agents.cli.row import Path as FieldPath
from uwf_git.ext.agents.cli.row import Select as SelectRule
from uwf_git.ext.agents.cli.row import Tests as SelectTests
from uwf_git.plugin import TokenUsage, TurnRecord, cut_text, one_line, printable, shortened

_MAX_OUTPUT = 32 * 1024 * 1024  # bytes of a line, or of the whole output if it is one value
_SHOWN = 400  # characters of the output in an error
_LONGEST = 200_000  # characters of a text in a turn
_NAMED = 100  # characters of a value in an error
_LINES = 3
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([kKmM]?)")
_TIMES = {"": 1, "k": 1000, "m": 1_000_000}
_TROUBLES = 20  # the last problems on the way


class SessionUsage(NamedTuple):
    """Tokens and US dollars, None if unknown, possibly of the whole session."""

    usage: TokenUsage | None
    cost: float | None
    usage_of_session: bool = False
    cost_of_session: bool = False


class Trouble(NamedTuple):
    """A problem that occurred `times` in a row."""

    text: str
    times: int = 1

    def __str__(self) -> str:
        return self.text if self.times == 1 else f"{self.text} ({self.times} times)"


class RunOutput(NamedTuple):
    """A run's result. `text` is None without an answer. `known` counts recognised values, `came` are the
    first lines. `complaints` mean a failure only with a failing exit status, `trouble` only without an
    answer. `unfinished` says why the output is not that of a finished run, "" if it is."""

    text: str | None
    session: str | None
    model: str | None
    spent: SessionUsage | None
    turns: tuple[TurnRecord, ...]
    errors: tuple[str, ...]
    complaints: tuple[str, ...]
    trouble: tuple[Trouble, ...]
    denied: tuple[str, ...]
    known: int
    came: str
    unfinished: str = ""


def values(value: Any, path: FieldPath) -> Iterator[Any]:
    """Yield the values at a path."""
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if step in (EVERY_SELECTOR, AGENT_CLI_KEYS):
        listed = value.values() if isinstance(value, dict) and step == EVERY_SELECTOR else value
        for item in listed if isinstance(value, dict | list) else ():
            yield from values(item, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            yield from values(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from values(value[step], rest)


def holds(value: Any, tests: SelectTests) -> bool:
    return all(_wanted(list(values(value, path)), wanted) for path, wanted in tests)


def _wanted(results: list[Any], wanted: tuple[Any, ...]) -> bool:
    if "*" in wanted and any(item not in (None, False, "", [], {}) for item in results):
        return True
    return (None in wanted and not results) or any(item in wanted for item in results)


def selected(value: Any, select: SelectRule) -> Iterator[Any]:
    """Yield the selected parts of a printed value."""
    if not holds(value, select.when):
        return
    for part in [value] if select.each is None else values(value, select.each):
        if holds(part, select.where):
            yield part


class Output:
    """Parses a run's output. `on_turn` gets complete turns, `on_session` the session's id, `on_trouble`
    problems line by line, `on_spent` the model ("" if unknown) and tokens so far (None if unknown)."""

    def __init__(
        self,
        row: AgentRow,
        on_turn: Callable[[TurnRecord], None] | None = None,
        on_session: Callable[[str], None] | None = None,
        on_trouble: Callable[[str], None] | None = None,
        on_spent: Callable[[str, TokenUsage | None], None] | None = None,
    ) -> None:
        self._row = row
        self._on_session = on_session
        self._on_trouble = on_trouble
        self._on_spent = on_spent
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self._complaint = b""  # the line of standard error that has no end yet
        self._came = bytearray()
        names = ("session", "text", "errors", "complaints", "denied")
        self._found: dict[str, list[str]] = {name: [] for name in names}
        self._models: list[str] = [""] * len(row.model)
        self._trouble: list[Trouble] = []
        self._spent = [_Spending(place) for place in row.usage]
        self._turns = _Turns(on_turn)
        self._known = 0
        self._ending = _Ending(row)
        self.needs_no_input = False
        """Whether it printed what its row's `inputEnd` describes."""
        self.listener: Callable[[Any, bytes], bool] | None = None
        """Gets each value with its line first, and returns whether it took it."""

    @property
    def session(self) -> str | None:
        return next(iter(self._found["session"]), None)

    def feed(self, data: bytes) -> None:
        if len(self._came) < 4 * _SHOWN:
            self._came += data[: 4 * _SHOWN]
        self._buffer += data
        if self._row.output != "lines":
            del self._buffer[_MAX_OUTPUT:]
            return
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line, skipped = bytes(self._buffer[:end]), self._skipping
            del self._buffer[: end + 1]
            self._searched, self._skipping = 0, False
            if not skipped:
                self._line(line)
        self._searched = len(self._buffer)
        if self._searched > _MAX_OUTPUT:
            self._skipping, self._searched = True, 0
            self._buffer.clear()

    def add(self, turn: TurnRecord) -> None:
        """Add a turn that the program doesn't print."""
        self._turns.add(turn)

    def feed_stderr(self, data: bytes) -> None:
        """Parse standard error, for trouble only."""
        *lines, rest = (self._complaint + data).split(b"\n")
        self._complaint = rest[-_LONGEST:]
        for line in lines:
            self._in_trouble(line.decode("utf-8", "replace"), "stderr")

    def read_log(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if (value := parse(line)) is not None:
                self._counted(value, "log")

    def drop(self) -> None:
        """Discard output after the line at which the program was ended."""
        self._buffer.clear()

    def end(self, stderr: bytes = b"") -> RunOutput:
        """Return the result, given the end of standard error."""
        text = self._buffer.decode("utf-8", "replace")
        if self._row.output == "lines":
            if not self._skipping:
                self._line(bytes(self._buffer))
        elif self._row.output == "json":
            for value in whole(text):
                for part in _parts(value, self._row.after):
                    self._value(part)
        else:
            self._value(text.replace("\r\n", "\n"))
        self._buffer.clear()
        self.feed_stderr(b"\n")
        self._value(stderr.decode("utf-8", "replace"), "stderr")
        turns = self._turns.end()
        values = self._found
        messages = [turn.text for turn in turns if turn.role == "assistant" and turn.text]
        answer, unfinished = self._ending.answer(values["text"], messages)
        return RunOutput(
            answer,
            self.session,
            next(filter(None, self._models), None),
            self._total(),
            turns,
            tuple(dict.fromkeys(values["errors"])),
            tuple(dict.fromkeys(values["complaints"])),
            tuple(self._trouble),
            tuple(dict.fromkeys(values["denied"])),
            self._known,
            _shown(bytes(self._came)),
            unfinished,
        )

    def _total(self) -> SessionUsage | None:
        totals = [spending.total() for spending in self._spent]
        tokens = next((spent for spent in totals if spent.usage is not None), None)
        paid = next((spent for spent in totals if spent.cost), None)  # 0 is said of a model without a price
        if tokens is None and paid is None:
            return None
        return SessionUsage(
            tokens.usage if tokens else None,
            paid.cost if paid else None,
            tokens is not None and tokens.usage_of_session,
            paid is not None and paid.cost_of_session,
        )

    def _line(self, line: bytes) -> None:
        line = line.strip()
        if line[:1] in (b"{", b"["):
            value = parse(line)
            if value is not None and not (self.listener and self.listener(value, line)):
                self._value(value)

    def _value(self, value: Any, stream: str = "stdout") -> None:
        row, known = self._row, False
        if row.input_end and stream == "stdout" and holds(value, row.input_end):
            self.needs_no_input = True
        name_of_errors = "complaints" if stream == "stderr" or row.output == "text" else "errors"
        texts = [text for find in row.text if find.stream == stream for text in found_texts(value, find)]
        if texts:
            self._found["text"], known = texts, True
        for name, finds in (("session", row.session), (name_of_errors, row.errors), ("denied", row.denied)):
            for find in finds:
                for text in found_texts(value, find) if find.stream == stream else ():
                    self._take(name, text)
                    known = True
        known |= self._counted(value, stream)
        if stream == "stdout":
            if row.output == "text" and not row.text and value.strip():
                self._found["text"].append(value)
            effects = [effect for turn in row.turns if (effect := self._turns.take(turn, value)) is not None]
            trouble = self._in_trouble(value)
            described = known or trouble
            known |= trouble | bool(effects) | self._ending.take(value, effects, described)
        self._known += known

    def _counted(self, value: Any, stream: str) -> bool:
        known = False
        for place, find in enumerate(self._row.model):
            for text in found_texts(value, find) if find.stream == stream else ():
                self._models[place] = text.strip()[:_LONGEST] or self._models[place]
                known = True
        known |= bool([spent for spent in self._spent if spent.take(value, stream)])
        if known and self._on_spent and stream == "stdout":
            spent = self._total()
            usage = spent.usage if spent and not spent.usage_of_session else None
            self._on_spent(next(filter(None, self._models), ""), usage)
        return known

    def _in_trouble(self, value: Any, stream: str = "stdout") -> bool:
        signs = [
            sentence(text)
            for find in self._row.trouble
            if find.stream == stream
            for text in found_texts(value, find)
        ]
        for sign in signs:
            text = one_line(sign, _SHOWN)
            last = self._trouble[-1] if self._trouble else Trouble("")
            if last.text == text:
                self._trouble[-1] = Trouble(text, last.times + 1)
            else:
                self._trouble = [*self._trouble[1 - _TROUBLES :], Trouble(text)]
            if self._on_trouble:
                self._on_trouble(text)
        return bool(signs)

    def _take(self, name: str, text: str) -> None:
        kept = self._found[name]
        if not text.strip() or len(kept) >= 100:
            return
        kept.append(text.strip()[:_LONGEST])
        if name == "session" and len(kept) == 1 and self._on_session:
            self._on_session(kept[0])


class _Spending:
    """Tokens and cost, as one place in the output gives them."""

    def __init__(self, place: UsageAt) -> None:
        self._place = place
        self._parts: dict[str, tuple[list[float], float | None]] = {}
        self._counts = self._guessed = False

    def take(self, value: Any, stream: str) -> bool:
        place = self._place
        if place.stream != stream:
            return False
        parts = list(selected(value, place.select))
        numbers = [
            [number for part in parts for path in paths for number in _numbers(part, path)]
            for paths in (place.input, place.output, place.cached, place.written)
        ]
        costs = [number for part in parts for path in place.cost for number in _numbers(part, path)]
        if not any(numbers) and not costs:
            return False
        self._counts |= any(numbers)
        self._guessed |= bool(place.guess) and any(holds(part, place.guess) for part in parts)
        sums, cost = [sum(number) for number in numbers], sum(costs) if costs else None
        key = "" if place.by is None else _text(_first(value, place.by))
        if place.total == "sum" and place.by is None and "" in self._parts:
            before, paid = self._parts[""]
            sums = [past + now for past, now in zip(before, sums, strict=True)]
            cost = paid if cost is None else (paid or 0.0) + cost
        self._parts[key] = sums, cost
        return True

    def total(self) -> SessionUsage:
        of_session = self._place.total == "session"
        sums = map(sum, zip(*(sums for sums, _ in self._parts.values()), strict=True))
        costs = [cost for _, cost in self._parts.values() if cost is not None]
        usage = TokenUsage(*map(int, sums)) if self._counts else None
        return SessionUsage(
            usage, sum(costs) if costs and not self._guessed else None, of_session, of_session
        )


class _Effect(Enum):
    """What a turn means for the answer. The value names one at which no finished run ends."""

    MESSAGE = ""
    CALL = "a call of a tool"
    EMPTY = "an empty message"
    PART = "a message that was not finished"
    NONE = "nothing"  # a late result, an empty piece


class _Ending:
    """Whether a run is finished: its last message, then a complete end, and nothing of significance between or
    after."""

    def __init__(self, row: AgentRow) -> None:
        self._row = row
        self._spoke = self._complete = False
        self._after = ""  # the last thing of significance after the last message

    def take(self, value: Any, effects: Sequence[_Effect], described: bool) -> bool:
        """Count a printed value with the effects of its turns. `described`: the row finds something else in it.
        Return whether it is a complete end or without significance."""
        row = self._row
        if any(True for select in row.aside or () for _ in selected(value, select)):
            return True
        ends = any(True for find in row.complete for _ in found_texts(value, find))
        if effects:
            effect = next((item for item in reversed(effects) if item is not _Effect.EMPTY), _Effect.EMPTY)
            self._complete = False
            if effect in (_Effect.MESSAGE, _Effect.PART):
                self._spoke, self._after = True, effect.value
            elif effect is _Effect.CALL or (effect is _Effect.EMPTY and self._spoke):
                self._after = effect.value
        elif not ends and (described or row.aside is not None):
            self._complete = False
            if self._spoke and row.aside is not None and not self._after:
                self._after = shortened(one_line(_text(value), _SHOWN), _NAMED)
        self._complete |= ends
        return ends

    def answer(self, texts: Sequence[str], messages: Sequence[str]) -> tuple[str | None, str]:
        """Return the answer, of the texts that the row finds and the messages, and why the run is not finished, "" if
        it is. Texts that are none of the messages before a last call are what was said after it."""
        closed, message = self._row.aside is not None, messages[-1] if messages else None
        text = texts[-1] if texts else None
        answer = text or message if message is not None else text  # "" is an answer in which nothing was said
        if answer is None and self._complete and not self._row.text:
            answer = ""
        if self._row.complete and not self._complete:
            return answer, "its output has no complete end"
        before = ("", *messages, "".join(messages))
        if texts and self._after == _Effect.CALL.value and not _repeat_any(texts, before):
            return answer, ""
        if self._after and (closed or text in (message, "", None)):
            return answer, f"it ended at {self._after}"
        if closed and text is not None and message is not None and not _repeats(text, message):
            return answer, "its result is not its last message"
        return answer, ""


def _repeat_any(texts: Sequence[str], messages: Sequence[str]) -> bool:
    return any(_repeats(text, message) for text in texts for message in messages)


def _repeats(text: str, message: str) -> bool:
    """Whether a result is the last message, or the last part of it."""
    whole, end = "".join(message.split()), "".join(text.split())
    return whole.endswith(end) if end else not whole


class _Turns:
    """Joins turns: the assistant's words, then its calls in order, in whatever order results arrive."""

    def __init__(self, on_turn: Callable[[TurnRecord], None] | None) -> None:
        self._on_turn = on_turn
        self._done: list[TurnRecord] = []
        self._saying: list[str] | None = None
        self._group: Any = None
        self._calls: list[TurnRecord] = []  # open, or closed after an open one
        self._open: set[int] = set()

    def take(self, place: TurnAt, value: Any) -> _Effect | None:
        """Record a printed value's turns and return their effect, None if it has none."""
        group = _first(value, place.group)
        effect = None
        for part in selected(value, place.select):
            if place.text is not None:
                effect = self._say(place, part, group)
            elif (at := self._find(_first(part, place.call))) is not None:
                self._close(at, place, part)
                effect = _Effect.NONE
            elif place.tool is not None:
                self._call(place, part, group)
                effect = _Effect.CALL
            else:
                effect = _Effect.NONE
        if effect is _Effect.MESSAGE and not holds(value, place.whole):
            return _Effect.PART
        if effect is _Effect.MESSAGE and place.select.each is not None:
            *_, last = values(value, place.select.each)
            return effect if holds(last, place.select.where) else _Effect.PART
        return effect

    def end(self) -> tuple[TurnRecord, ...]:
        self._close_speech()
        for turn in self._calls:  # calls without a result
            self._add(turn)
        self._calls, self._open = [], set()
        return tuple(self._done)

    def add(self, turn: TurnRecord) -> None:
        self._close_speech()
        self._add(turn)

    def _say(self, place: TurnAt, part: Any, group: Any) -> _Effect:
        text = _text(_first(part, place.text))
        if not text:
            return _Effect.NONE if place.delta else _Effect.EMPTY
        same = self._saying is not None and (place.delta or (group is not None and group == self._group))
        if not same:
            self._close_speech()
            self._saying = []
        assert self._saying is not None
        self._saying.append(text if place.delta or not self._saying else f"\n\n{text}")
        self._group = group
        return _Effect.MESSAGE if text.strip() or place.delta else _Effect.EMPTY

    def _close_speech(self) -> None:
        if self._saying is not None:
            self._add(TurnRecord("assistant", cut_text("".join(self._saying), _LONGEST)))
            self._saying = None

    def _call(self, place: TurnAt, part: Any, group: Any) -> None:
        call = _first(part, place.call)
        self._close_speech()
        if (group is not None and group != self._group) or not self._done:
            self._add(TurnRecord("assistant", ""))  # it called without a word
        self._group = group
        self._calls.append(
            TurnRecord(
                "tool",
                "",
                tool=_text(_first(part, place.tool)) or "tool",
                arguments=_small(_arguments(_first(part, place.arguments))),
                call=None if call is None else _text(call),
                failed=True,
            )
        )
        self._open.add(len(self._calls) - 1)
        if place.result is not None:
            self._close(len(self._calls) - 1, place, part)

    def _find(self, call: Any) -> int | None:
        if call is None:
            return None
        return next((at for at in sorted(self._open) if self._calls[at].call == _text(call)), None)

    def _close(self, at: int, place: TurnAt, part: Any) -> None:
        result = _small(_first(part, place.result))
        failed = bool(place.failed) and holds(part, place.failed)
        text = cut_text(result if isinstance(result, str) else _joined(result), _LONGEST)
        self._calls[at] = self._calls[at]._replace(text=text, result=result, failed=failed)
        self._open.discard(at)
        while self._calls and 0 not in self._open:
            self._add(self._calls.pop(0))
            self._open = {at - 1 for at in self._open}

    def _add(self, turn: TurnRecord) -> None:
        self._done.append(turn)
        if self._on_turn:
            self._on_turn(turn)


def _parts(value: Any, after: SecondCall | None) -> Iterator[Any]:
    if after is None or after.each is None:
        yield from value if isinstance(value, list) else [value]
        return
    yield value
    items = list(values(value, after.each))
    begin = 0
    if after.since:
        begin = max((at + 1 for at, item in enumerate(items) if holds(item, after.since)), default=0)
    yield from items[begin:]


def _shown(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()][:_LINES]
    return shortened(printable(" ⏎ ".join(lines)), _SHOWN + 1)


def found_texts(value: Any, find: FindField) -> Iterator[str]:
    """Yield what a row finds in a printed value, as texts."""
    for part in selected(value, find.select):
        if find.say:
            yield "".join(
                entry if isinstance(entry, str) else _text(_first(part, entry)) for entry in find.say
            )
            continue
        for item in values(part, find.path):
            if item is None:
                continue
            text = _text(item)
            if find.pattern is None:
                yield text
                continue
            for match in re.finditer(find.pattern, text):
                yield match[1] if match.re.groups and match[1] is not None else match[0]


def _numbers(value: Any, find: FindField) -> Iterator[float]:
    for item in values(value, find.path):
        if find.pattern is not None:
            written = re.finditer(find.pattern, item) if isinstance(item, str) else ()
            yield from (
                n for match in written if (n := _amount(match[1] if match.re.groups else match[0])) < 1e15
            )
        elif isinstance(item, int | float) and not isinstance(item, bool) and 0 <= item < 1e15:
            yield item


def _amount(text: str | None) -> float:
    number = _AMOUNT.fullmatch((text or "").replace(",", ""))
    return float(number[1]) * _TIMES[number[2].lower()] if number else float("inf")


def _first(value: Any, path: FieldPath | None) -> Any:
    return None if path is None else next(values(value, path), None)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _arguments(value: Any) -> Any:
    parsed = parse(value) if isinstance(value, str) and value.startswith("{") else None
    return value if parsed is None else parsed


def _joined(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(e, dict) and "text" in e for e in value):
        return "\n".join(_text(item["text"]) for item in value)
    return _text(value)


def _small(value: Any) -> Any:
    if isinstance(value, str):
        return cut_text(value, _LONGEST)
    if isinstance(value, list):
        return [_small(item) for item in value]
    if isinstance(value, dict):
        return {key: _small(item) for key, item in value.items()}
    return value
