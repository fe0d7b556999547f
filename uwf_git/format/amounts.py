"""Parsing durations, sizes and limits."""

from __future__ import annotations

import re
from typing import Any

from uwf_git.base.text import nearest
from uwf_git.sandbox.quota import Quota

RATES = ("stepsPerSecond", "concurrentSteps", "wait")
"""Limits of a provider: steps that a fleet begins in a second, those that it makes at a time on a machine, and for how
many seconds an agent obeys a provider that wants to be asked later."""

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


def parse_size(value: Any) -> int | None:
    """Return bytes from a number or text such as "500MB", "2GB" or "1.5GiB"; None for anything else or not
    above zero."""
    if isinstance(value, str) and (found := re.fullmatch(_SIZE, value.replace(" ", ""))):
        number, unit = float(found[1]), found[2] or "B"
        size = number * (1024 if "i" in unit else 1000) ** _BYTES.get(unit[0], 0)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        size = float(value)
    else:
        return None
    return int(size) if 1 <= size < 2**62 else None


def parse_quota(value: Any) -> tuple[Quota, list[Problem]]:
    """Return a command's limits from a mapping such as {memory: 2GB, processes: 200, cpu: 10m, disk: none},
    and its problems."""
    if value is None:
        return Quota(), []
    if not isinstance(value, dict):
        return Quota(), [(None, "limits must be a mapping", f"of {', '.join(Quota._fields)}")]
    given: dict[str, float] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        if key not in Quota._fields:
            hint = nearest(str(key), Quota._fields) or ", ".join(Quota._fields)
            problems.append((None, f'limits has no "{key}"', hint))
        elif item == "none":
            given[key] = float("inf")
        elif (limit := _quota_of(key, item)) is None:
            problems.append(
                (key, f"limits: {key} is not a {_QUOTAS[key][0]}", f"as in {key}: {_QUOTAS[key][1]}, or none")
            )
        else:
            given[key] = limit
    return Quota(**given), problems


def parse_rates(value: Any) -> tuple[dict[str, float], list[Problem]]:
    """Return a provider's limits from a mapping such as {stepsPerSecond: 2, concurrentSteps: 4, wait: 30s},
    and its problems."""
    if value is None:
        return {}, []
    if not isinstance(value, dict):
        return {}, [(None, "limits must be a mapping", f"of {', '.join(RATES)}")]
    rates: dict[str, float] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        if key not in RATES:
            problems.append((None, f'limits has no "{key}"', nearest(str(key), RATES) or ", ".join(RATES)))
        elif (rate := _rate_of(key, item)) is None:
            problems.append(
                (key, f"limits: {key} is not a {_RATES[key][0]}", f"as in {key}: {_RATES[key][1]}")
            )
        else:
            rates[key] = rate
    return rates, problems


def _rate_of(key: str, value: Any) -> float | None:
    if key == "wait":
        return parse_duration(value)
    return parse_limit("maxSteps" if key == "concurrentSteps" else "maxCost", value)


_RATES = {
    "stepsPerSecond": ("number", "0.5"),
    "concurrentSteps": ("whole number", "4"),
    "wait": ("duration", "30s"),
}


def _quota_of(key: str, value: Any) -> float | None:
    if key == "cpu":
        return parse_duration(value)
    return parse_limit("maxSteps", value) if key == "processes" else parse_size(value)


_QUOTAS = {
    "memory": ("size", "2GB"),
    "processes": ("whole number", "200"),
    "cpu": ("duration", "10m"),
    "disk": ("size", "5GB"),
}


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
            problems.append((key, f"{key} is not a {_WANTED[key]}", f"as in {key}: {_EXAMPLES[key]}"))
        else:
            limits[key] = limit
    return limits, problems


def parse_limit(key: str, value: Any) -> float | None:
    """Return a value for a key of LIMITS, None if invalid."""
    if key == "maxWallTime":
        return parse_duration(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 2**53:
        return None
    if key == "maxCost":
        return value
    return int(value) if value == int(value) else None


_WANTED = {
    "maxSteps": "whole number of steps",
    "maxTokens": "whole number of tokens",
    "maxCost": "number of US dollars",
    "maxWallTime": "duration",
}
_EXAMPLES = {"maxSteps": "50", "maxTokens": "2000000", "maxCost": "5.0", "maxWallTime": "2h"}
