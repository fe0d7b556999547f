"""Parsing durations, sizes and limits."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import Usage
from uwf_git.base.text import nearest
from uwf_git.sandbox.quota import Quota

LIMITS = ("maxSteps", "maxTokens", "maxCost", "maxWallTime")
"""maxSteps and maxTokens are whole numbers, maxCost US dollars, maxWallTime seconds of its agents' work."""

# Compiled when first used, which most calls never get to.
_DURATION = r"(?:([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d))+"
_DURATION_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
_SIZE = r"([0-9]+(?:\.[0-9]+)?)(B|[kKMGT]B?|[KMGT]iB)?"
_BYTES = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Problem = tuple[str | None, str, str]
"""The key at fault (None: all of it), a message, a hint."""


def parse_duration(value: Any) -> float | None:
    """Return seconds from a number or text such as "90s", "10m" or "1h30m"; None for anything else or not
    above zero."""
    if isinstance(value, str):
        if not re.fullmatch(_DURATION, value.replace(" ", "")):
            return None
        parts = re.findall(_DURATION_PART, value.replace(" ", ""))
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        return None
    return seconds if 0 < seconds < 1e9 else None


def moment(text: str | None, option: str, add: int = 0) -> float | None:
    """Return Unix seconds of a UTC day's start plus `add` seconds, or of a time ago. Raises Usage."""
    if text is None:
        return None
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        import calendar

        try:
            return calendar.timegm(time.strptime(text, "%Y-%m-%d")) + add
        except ValueError:
            pass
    elif (seconds := parse_duration(text)) is not None:
        return time.time() - seconds
    raise Usage(f"{option} {text!r} is neither a day nor a duration", "as in 2026-01-31, or 30d")


def parse_size(value: Any) -> int | None:
    """Return bytes from a number or text such as "500MB", "2GB" or "1.5GiB"; None for anything else or not
    above zero."""
    if isinstance(value, str) and (match := re.fullmatch(_SIZE, value.replace(" ", ""))):
        number, unit = float(match[1]), match[2] or "B"
        size = number * (1024 if "i" in unit else 1000) ** _BYTES.get(unit[0], 0)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        size = float(value)
    else:
        return None
    return int(size) if 1 <= size < 2**62 else None


class _Amount(NamedTuple):
    """A kind of limit: how it is read, what it is in messages, and an example."""

    parse: Callable[[Any], float | None]
    what: str
    example: str


def _whole_number(value: Any) -> float | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 < value < 2**53 else None


_BUDGET = {
    "maxSteps": _Amount(_whole_number, "whole number of steps", "50"),
    "maxTokens": _Amount(_whole_number, "whole number of tokens", "2000000"),
    "maxCost": _Amount(_number, "number of US dollars", "5.0"),
    "maxWallTime": _Amount(parse_duration, "duration", "2h"),
}
# Of a provider: steps that a fleet begins in a second, those that it makes at a time on a machine, and for how many
# seconds an agent obeys a provider that wants to be asked later.
_RATES = {
    "stepsPerSecond": _Amount(_number, "number", "0.5"),
    "concurrentSteps": _Amount(_whole_number, "whole number", "4"),
    "wait": _Amount(parse_duration, "duration", "30s"),
}
_QUOTA = {
    "memory": _Amount(parse_size, "size", "2GB"),
    "processes": _Amount(_whole_number, "whole number", "200"),
    "cpu": _Amount(parse_duration, "duration", "10m"),
    "disk": _Amount(parse_size, "size", "5GB"),
}


def parse_quota(value: Any) -> tuple[Quota, list[Problem]]:
    """Return a command's limits from a mapping such as {memory: 2GB, processes: 200, cpu: 10m, disk: none},
    and its problems."""
    amounts, problems = _limits(value, _QUOTA, unlimited="none")
    return Quota(**amounts), problems


def parse_rates(value: Any) -> tuple[dict[str, float], list[Problem]]:
    """Return a provider's limits from a mapping such as {stepsPerSecond: 2, concurrentSteps: 4, wait: 30s},
    and its problems."""
    return _limits(value, _RATES)


def _limits(
    value: Any, known: Mapping[str, _Amount], unlimited: str = ""
) -> tuple[dict[str, float], list[Problem]]:
    if value is None:
        return {}, []
    if not isinstance(value, dict):
        return {}, [(None, "limits must be a mapping", f"of {', '.join(known)}")]
    amounts: dict[str, float] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        if key not in known:
            problems.append((None, f'limits has no "{key}"', nearest(str(key), known) or ", ".join(known)))
        elif unlimited and item == unlimited:
            amounts[key] = float("inf")
        elif (amount := known[key].parse(item)) is None:
            hint = f"as in {key}: {known[key].example}" + (f", or {unlimited}" if unlimited else "")
            problems.append((key, f"limits: {key} is not a {known[key].what}", hint))
        else:
            amounts[key] = amount
    return amounts, problems


def parse_budget(value: Any) -> tuple[dict[str, float], list[Problem]]:
    """Return the limits of a mapping such as {maxSteps: 50, maxWallTime: 2h}, and its problems."""
    if value is None:
        return {}, []
    if not isinstance(value, dict):
        return {}, [(None, "budget must be a mapping", f"of {', '.join(LIMITS)}")]
    limits: dict[str, float] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        if key.startswith("x-"):
            continue
        if key not in LIMITS:
            problems.append((key, f'budget has no limit "{key}"', nearest(key, LIMITS) or ", ".join(LIMITS)))
        elif (limit := parse_limit(key, item)) is None:
            example = f"as in {key}: {_BUDGET[key].example}"
            problems.append((key, f"{key} is not a {_BUDGET[key].what}", example))
        else:
            limits[key] = limit
    return limits, problems


def parse_limit(key: str, value: Any) -> float | None:
    """Return a value for a key of LIMITS, None if invalid."""
    return _BUDGET[key].parse(value)
