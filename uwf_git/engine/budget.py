"""Budgets: how much of steps, tokens, money and agents' time a thread may use before it waits for a human.

A thread may have limits of its own, its workflow others, the user's configuration more: the tightest counts.
What a human raised stands in the detail of the step that was made next, and goes before what the thread and its
workflow say wherever the thread goes. It goes before the configuration of the machine where it was raised, and of no
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.engine.spending import Spent, money, tokens_of
from uwf_git.errors import Usage
from uwf_git.values.amounts import LIMITS, parse_limit

if TYPE_CHECKING:
    from uwf_git.config.settings import Price

OPTIONS = {
    "maxSteps": "--max-steps",
    "maxTokens": "--max-tokens",
    "maxCost": "--max-cost",
    "maxWallTime": "--max-time",
}
"""How the command names each limit."""

CONFIG = "config.yaml"
"""How the names of those sources of limits begin that are the user's own."""

_WANTED = {
    "maxSteps": "a number of steps, such as 50",
    "maxTokens": "a number of tokens, such as 2000000",
    "maxCost": "an amount of US dollars, such as 2.50",
    "maxWallTime": "seconds or a duration, such as 90s or 2h",
}


class Limit(NamedTuple):
    """One limit that holds, and who set it. Tokens and steps are counts, money is in US dollars, time in
    seconds."""

    key: str
    value: float
    source: str


def limits(
    sources: Iterable[tuple[str, Mapping[str, float]]],
    raised: Mapping[str, float],
    here: Mapping[str, float] | None = None,
) -> dict[str, Limit]:
    """The limits that hold, in the order of LIMITS. What was raised counts only where there is a limit, and
    against those of the user's configuration only what was raised `here`, on this machine."""
    found: dict[str, Limit] = {}
    for source, given in sources:
        over = (here or {}) if source.startswith(CONFIG) else raised
        for key, value in given.items():
            limit = Limit(key, over[key], "raised") if key in over else Limit(key, value, source)
            if key in LIMITS and (key not in found or limit.value < found[key].value):
                found[key] = limit
    return {key: found[key] for key in LIMITS if key in found}


def use(spent: Spent, prices: Mapping[str, Price]) -> dict[str, float]:
    """How much was used of each limit. What nobody counted is 0 here: a budget can only see what is told."""
    tokens = tokens_of(spent)
    return {
        "maxSteps": spent.steps,
        "maxTokens": tokens.total if tokens else 0,
        "maxCost": money(spent, prices).cost or 0,
        "maxWallTime": spent.seconds,
    }


def used_up(held: Mapping[str, Limit], used: Mapping[str, float]) -> Limit | None:
    """The first limit that was reached, if one was."""
    return next((limit for limit in held.values() if used[limit.key] >= limit.value), None)


def amount(key: str, value: float) -> str:
    """An amount as people read it: "12 steps", "2,000,000 tokens", "$1.50", "1h 30m"."""
    if key == "maxCost":
        return f"${value:,.2f}" if value >= 1 or not value else f"${value:.4f}"
    if key == "maxWallTime":
        return duration(value)
    unit = "step" if key == "maxSteps" else "token"
    return f"{int(value):,} {unit}{'s' * (value != 1)}"


def share(key: str, used: float, most: float) -> str:
    """How much of a limit is used: "3 of 12 steps", "$0.40 of $1.50"."""
    before = f"{int(used):,}" if key in ("maxSteps", "maxTokens") else amount(key, used)
    return f"{before} of {amount(key, most)}"


def duration(seconds: float) -> str:
    """Seconds as people read them: "0.4s", "12s", "3m 20s", "1h 30m"."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds % 1 and seconds < 10 else f"{round(seconds)}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s" if whole % 60 else f"{whole // 60}m"
    return f"{whole // 3600}h {whole % 3600 // 60}m" if whole % 3600 >= 60 else f"{whole // 3600}h"


def more(limit: Limit, used: float) -> str:
    """The option that gives as much again, or as much as is used where that is more."""
    wanted = max(limit.value, used)
    value = f"{wanted:.6g}" if wanted < 1e6 else str(math.ceil(wanted))
    return f"{OPTIONS[limit.key]} +{value}{'s' if limit.key == 'maxWallTime' else ''}"


def parse_option(key: str, text: str, held: Mapping[str, Limit] | None = None) -> float:
    """The limit that an option gives. With `held`, `+N` adds to the one that holds. Raises Usage."""
    plus = text.startswith("+") and held is not None
    value = parse_limit(key, _number(key, text[1:] if plus else text))
    if value is None:
        raise Usage(f"{OPTIONS[key]} {text!r} is no limit", f"give {_WANTED[key]}")
    if not plus:
        return value
    assert held is not None
    if key not in held:
        raise Usage(f"there is no {key} to add to", f"give the whole limit: {OPTIONS[key]} {text[1:]}")
    return held[key].value + value


def _number(key: str, text: str) -> float | str:
    if key == "maxWallTime" and not text.replace(".", "", 1).isdigit():
        return text
    try:
        return float(text)
    except ValueError:
        return text
