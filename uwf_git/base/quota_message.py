"""What programs and providers say of a rate limit or a used-up quota, and of when it ends."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo

LONGEST = 31 * 24 * 3600.0
"""Seconds until a reset that is believed at most."""
_LONGEST_MESSAGE = 8000  # characters that are searched

_THROTTLED = re.compile(
    r"\b(?:HTTP|status|error|code)\b[^0-9\n]{0,20}(?:429|529)\b|\b(?:429|529) (?:too many|slow)"
    r"|rate[ _-]?limit|too many requests|(?:is|currently) overloaded|overloaded_error"
    r"|overloaded\W{1,4}529\b|\b529\W{1,4}overloaded|(?:^|error\W{1,4})overloaded\b"
    r"|retry[ _-]after(?:[ _-]ms)?\W{1,4}\d"
    r"|(?:usage|session|weekly|5-hour|opus|request|message) limit (?:reached|exceeded)"
    r"|(?:hit|reached) your [\w -]{0,20}limit"
    r"|quota (?:exceeded|exhausted)|exceeded your (?:current )?quota|RESOURCE_EXHAUSTED|insufficient_quota"
    r"|out of (?:credits|quota)|capacity (?:on this model|exhausted)",
    re.IGNORECASE | re.MULTILINE,
)
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_UNIT = r"(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)"
_SPAN = rf"(?:\d+(?:\.\d+)?\s?{_UNIT}(?![a-z]),?\s?(?:and\s)?)+"
_IN = re.compile(
    rf"\b(?:again|retry|resets?|available|wait|delay|back)\b[^0-9\n]{{0,30}}?(?<![\d.:])({_SPAN})", re.I
)
_MILLISECONDS = re.compile(
    r"(?:again|retry)\W{0,3}(?:in|after)?\W{0,3}(\d{1,7})\s*ms\b|retry[ _-]after[ _-]ms\W{1,4}(\d{1,9})\b",
    re.I,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms])", re.I)
_DATE = re.compile(r"retry[ _-]?after\W{1,4}(\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)", re.I)
_HEADER = re.compile(r"retry[ _-]?after\W{0,4}(\d{1,7}(?:\.\d+)?)\b(?!\s*(?:ms|[dhm]))", re.I)
_DELAY = re.compile(r"retryDelay\W{1,4}(\d{1,7}(?:\.\d+)?)s", re.I)
_EPOCH = re.compile(
    r"(?:limit reached\W|resets?_?at\W{1,4}|resets?\W{1,4})(1[5-9]\d{8}|2\d{9})(?:\d{3})?\b", re.I
)
_CLOCK = re.compile(
    r"\b(?:resets?|again|available|until|at)(?: at| on)?\W{0,2}(?:([A-Z][a-z]{2})[a-z]*\.? (\d{1,2})(?:st|nd|rd|th)?,?"
    r"(?: (20\d\d))?,?(?: at)? )?(\d{1,2})(?::(\d{2}))?"
    r"(?: ?([ap])\.?m?\.?\b(?: ?\(?(UTC|GMT|[A-Z]\w+/[\w/+-]+)\)?)?|(?::\d\d)? ?\(?(UTC|GMT|[A-Z]\w+/[\w/+-]+)\)?)",
    re.I,
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_ISO = re.compile(
    r"(?:resets?|again|available|until|after)[^0-9\n]{0,12}"
    r"(20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)",
    re.I,
)
_SHORT = 5.0  # seconds after a time of day until the provider is asked again
_PAST = 60.0  # seconds by which a time of day may be over and still be today's


def is_throttled(words: str) -> bool:
    """Return whether a message tells of a rate limit or a used-up quota."""
    return _THROTTLED.search(words[-_LONGEST_MESSAGE:]) is not None


def seconds_until_reset(words: str, now: float | None = None) -> float | None:
    """Return the seconds from `now` (Unix time) after which a message says that the provider answers again,
    None if it doesn't say. A time of day is the next one, in its time zone, by default this machine's."""
    now, words = time.time() if now is None else now, words[-_LONGEST_MESSAGE:]
    for seconds in (
        _header(words, now),
        _in(words),
        _epoch(words, now),
        _iso(words, now),
        _clock(words, now),
    ):
        if seconds is not None and seconds <= LONGEST:
            return max(seconds, 0.0)
    return None


def _header(words: str, now: float) -> float | None:
    if at := _DATE.search(words):
        from email.utils import parsedate_to_datetime

        try:
            return parsedate_to_datetime(at[1]).timestamp() - now
        except ValueError:
            return None
    match = _HEADER.search(words) or _DELAY.search(words)
    return float(match[1]) if match else None


def _in(words: str) -> float | None:
    if match := _MILLISECONDS.search(words):
        return float(match[1] or match[2]) / 1000
    match = _IN.search(words)
    if match is None:
        return None
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(match[1]))


def _epoch(words: str, now: float) -> float | None:
    match = _EPOCH.search(words)
    return float(match[1]) - now if match else None


def _iso(words: str, now: float) -> float | None:
    match = _ISO.search(words)
    if match is None:
        return None
    at = datetime.fromisoformat(match[1].replace("Z", "+00:00"))
    return at.timestamp() - now if at.tzinfo else at.replace(tzinfo=UTC).timestamp() - now


def _clock(words: str, now: float) -> float | None:
    match = _CLOCK.search(words)
    if match is None:
        return None
    month, day, year, hour, minute, half, zone, other = match.groups()
    if not (1 <= int(hour) <= 12 if half else minute and int(hour) < 24) or int(minute or 0) > 59:
        return None
    here = datetime.fromtimestamp(now, UTC).astimezone(_zone(zone or other))
    at = here.replace(
        hour=int(hour) % 12 + (12 if half.lower() == "p" else 0) if half else int(hour),
        minute=int(minute or 0),
        second=0,
        microsecond=0,
    )
    if month and month.lower() in _MONTHS:
        try:
            at = at.replace(year=int(year or here.year), month=_MONTHS.index(month.lower()) + 1, day=int(day))
        except ValueError:
            return None
    elif (at - here).total_seconds() < -_PAST:
        at += timedelta(days=1)
    return at.timestamp() - now + _SHORT


def _zone(name: str | None) -> tzinfo | None:
    if not name:
        return None
    if name.upper() in ("UTC", "GMT"):
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None
