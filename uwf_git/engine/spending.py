"""Tokens, cost and time of agents, summed over the details of steps and failed attempts.

A detail has the tokens of the whole run; its turns have them by model, if the agent knew. The detail's number
counts: if the turns come to more, each gives the sum so far. An unknown number is None, never 0.

Cost is the agent's own figure, else tokens times prices. A reported cost of 0 with tokens means unknown:
programs print it for models without a known price. Sums are kept without prices, so they stay right when
prices change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.format.kinds import EXTRACT

if TYPE_CHECKING:
    from uwf_git.config.settings import Price
    from uwf_git.format.kinds import Detail, TurnRecord, Usage

UNKNOWN = ""
"""Stands for the model of tokens whose model nobody named."""

DEEPEST = 32
"""How many sub-workflows within each other are looked into."""

_DATED = r"[-@:]([0-9]{4}-?[0-9]{2}-?[0-9]{2}|[0-9]{3,6}|latest|preview)$"


class Tokens(NamedTuple):
    """`cached` is the part of `input` read from a cache, `written` the part written into it."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(*map(sum, zip(self, other, strict=True)))


class ModelUsage(NamedTuple):
    """`reported` is the agent's own cost in US dollars, never 0, None if unknown; it overrides prices."""

    model: str
    tokens: Tokens
    reported: float | None = None


class Money(NamedTuple):
    """US dollars, None if unknown; `unpriced` is the number of tokens not covered."""

    cost: float | None
    unpriced: int


class Totals(NamedTuple):
    """A sum. `seconds` is agents' time; `unmetered` counts runs that reported neither tokens nor cost."""

    steps: int = 0
    attempts: int = 0
    seconds: float = 0.0
    unmetered: int = 0
    lines: tuple[ModelUsage, ...] = ()

    @property
    def tokens(self) -> Tokens | None:
        """The tokens of all models, None if unknown."""
        total = _sum(line.tokens for line in self.lines)
        return total if total.total else None

    def money(self, prices: Mapping[str, Price]) -> Money:
        """Return the cost. `prices` are by model name or alias."""
        costs: list[float] = []
        unpriced = 0
        for line in self.lines:
            price = price_of(line.model, prices) if line.tokens.total else None
            if line.reported:
                costs.append(line.reported)
            elif price is not None:
                costs.append(_cost(line.tokens, price))
            else:
                unpriced += line.tokens.total
        return Money(sum(costs) if costs else None, unpriced)

    def amounts(self, prices: Mapping[str, Price]) -> dict[str, float]:
        """Return the amount used of each of `amounts.LIMITS`. Unreported usage counts as 0."""
        tokens = self.tokens
        return {
            "maxSteps": self.steps,
            "maxTokens": tokens.total if tokens else 0,
            "maxCost": self.money(prices).cost or 0,
            "maxWallTime": self.seconds,
        }

    def minus(self, part: Totals) -> Totals:
        less = {(line.model, line.reported is None): line for line in part.lines}
        lines = []
        for line in self.lines:
            known = less.get((line.model, line.reported is None), ModelUsage(line.model, Tokens()))
            reported = None if line.reported is None else max(0.0, line.reported - (known.reported or 0.0))
            tokens = _minus(line.tokens, known.tokens)
            if tokens.total or reported:
                lines.append(ModelUsage(line.model, tokens, reported or None))
        return Totals(
            self.steps - part.steps,
            self.attempts - part.attempts,
            max(0.0, self.seconds - part.seconds),
            self.unmetered - part.unmetered,
            tuple(lines),
        )


class Run(NamedTuple):
    """A step or failed attempt and its spending. `number` is the step's, from 1; `time` in Unix seconds; `id`
    the hash of the StepNode (which threads may share) or the attempt."""

    id: str
    thread: str
    workflow: str
    number: int
    role: str
    agent: str
    time: int
    spent: Totals


def spent(detail: Detail | None, turns: Iterable[TurnRecord], attempt: bool) -> Totals:
    """Return the spending of a step or failed attempt."""
    once = Totals(steps=int(not attempt), attempts=int(attempt))
    if detail is None:
        return once._replace(unmetered=1)
    lines = _lines(detail, turns)
    return once._replace(seconds=detail.duration_ms / 1000, unmetered=int(not lines), lines=lines)


def _lines(detail: Detail, turns: Iterable[TurnRecord]) -> tuple[ModelUsage, ...]:
    extracted: dict[str, Tokens] = {}
    tokenses: dict[str, Tokens] = {}
    model = detail.model or UNKNOWN
    for turn in turns:
        if (tokens := tokens_in(turn.usage)) is None:
            continue
        if turn.tool == EXTRACT:
            _add(extracted, extracting_model(turn) or UNKNOWN, tokens)
        else:
            _add(tokenses, turn.model or model, tokens)
    own = _reconciled(tokenses, extracted, tokens_in(detail.usage), model)
    reported = detail.cost or None
    whole = _sum(own.values()).total
    lines = [
        ModelUsage(model, tokens, None if reported is None else reported * tokens.total / whole)
        for model, tokens in own.items()
    ]
    if reported is not None and not own:
        lines.append(ModelUsage(model, Tokens(), reported))
    return (*lines, *(ModelUsage(model, tokens) for model, tokens in extracted.items()))


def _reconciled(
    tokenses: dict[str, Tokens], extracted: Mapping[str, Tokens], total: Tokens | None, model: str
) -> dict[str, Tokens]:
    """Return the agent's tokens by model: its turns' plus the remainder of the total, or all of the total if
    the turns come to more."""
    if total is None:
        return tokenses
    rest = _minus(total, _sum(extracted.values()))
    missing = _minus(rest, _sum(tokenses.values()))
    if min(missing) < 0:  # turns that count up to here, or count something else
        return {model: Tokens(*(max(0, number) for number in rest))} if max(rest) > 0 else {}
    if max(missing) > 0:
        _add(tokenses, model, missing)
    return tokenses


def tokens_in(usage: Usage | None) -> Tokens | None:
    """Return a usage's tokens, None if unknown or all zero: no model answers for nothing."""
    if usage is None:
        return None
    cached = min(usage.cached, usage.input)
    tokens = Tokens(usage.input, usage.output, cached, min(usage.written, usage.input - cached))
    return tokens if tokens.total else None


def extracting_model(turn: TurnRecord) -> str | None:
    """Return the model that an `extract` turn was answered by."""
    return turn.arguments.get("model") if isinstance(turn.arguments, dict) else None


def _add(to: dict[str, Tokens], model: str, tokens: Tokens) -> None:
    to[model] = to.get(model, Tokens()).plus(tokens)


def _sum(tokenses: Iterable[Tokens]) -> Tokens:
    total = Tokens()
    for tokens in tokenses:
        total = total.plus(tokens)
    return total


def _minus(a: Tokens, b: Tokens) -> Tokens:
    return Tokens(*(one - other for one, other in zip(a, b, strict=True)))


# Sums


def together(totals: Iterable[Totals]) -> Totals:
    """Return the sum, with up to two lines a model: with and without a reported cost."""
    steps = attempts = unmetered = 0
    seconds = 0.0
    lines: dict[tuple[str, bool], ModelUsage] = {}
    for one in totals:
        steps, attempts = steps + one.steps, attempts + one.attempts
        seconds, unmetered = seconds + one.seconds, unmetered + one.unmetered
        for line in one.lines:
            key = line.model, line.reported is None
            known = lines.get(key, ModelUsage(line.model, Tokens(), None if line.reported is None else 0.0))
            reported = None if line.reported is None else (known.reported or 0.0) + line.reported
            lines[key] = ModelUsage(line.model, known.tokens.plus(line.tokens), reported)
    return Totals(steps, attempts, seconds, unmetered, tuple(lines[key] for key in sorted(lines)))


def tokens_of_step(detail: Detail, turns: Iterable[TurnRecord]) -> Tokens | None:
    """Return the tokens of a step, None if unknown."""
    return spent(detail, turns, attempt=False).tokens


def _cost(tokens: Tokens, price: Price) -> float:
    read = price.input if price.cached is None else price.cached
    write = price.input if price.written is None else price.written
    fresh = tokens.input - tokens.cached - tokens.written
    of_input = fresh * price.input + tokens.cached * read + tokens.written * write
    return (of_input + tokens.output * price.output) / 1_000_000


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Return a model's price, matching its name with or without provider prefix and date suffix."""
    names = [model, model.rpartition("/")[2]]
    names += [re.sub(_DATED, "", name) for name in names]
    return next((prices[name] for name in names if name in prices), None)


# Groups

BY = ("role", "agent", "model", "workflow", "day", "step", "thread")


class Group(NamedTuple):
    """The sum of the runs that share a `key`; for a step that is (thread, number, role)."""

    key: tuple[str | int, ...]
    spent: Totals


def grouped(runs: Iterable[Run], by: str) -> list[Group]:
    """Return the sums of runs by one of BY. Days are in UTC."""
    parts: dict[tuple[str | int, ...], list[Totals]] = {}
    for run in runs:
        if by == "model":
            for model, share in _split(run.spent).items():
                parts.setdefault((model,), []).append(share)
        else:
            parts.setdefault(_key(run, by), []).append(run.spent)
    return [Group(key, together(totals)) for key, totals in sorted(parts.items())]


def merged(groups: Iterable[Iterable[Group]]) -> list[Group]:
    """Return the sums of groups that share a key."""
    parts: dict[tuple[str | int, ...], list[Totals]] = {}
    for some in groups:
        for group in some:
            parts.setdefault(group.key, []).append(group.spent)
    return [Group(key, together(totals)) for key, totals in sorted(parts.items())]


def day_of(run: Run) -> str:
    """Return the day of a run in UTC: 2026-01-31."""
    import time

    return time.strftime("%Y-%m-%d", time.gmtime(run.time))


def _key(run: Run, by: str) -> tuple[str | int, ...]:
    if by == "day":
        return (day_of(run),)
    if by == "step":
        return (run.thread, run.number, run.role)
    return (getattr(run, by),)


def _split(whole: Totals) -> dict[str, Totals]:
    shares: dict[str, list[ModelUsage]] = {}
    for line in whole.lines:
        shares.setdefault(line.model, []).append(line)
    weight = {model: sum(line.tokens.total for line in lines) for model, lines in shares.items()}
    main = max(weight, key=lambda model: (weight[model], model), default=UNKNOWN)
    shares.setdefault(main, [])
    return {
        model: (whole if model == main else Totals())._replace(lines=tuple(lines))
        for model, lines in shares.items()
    }
