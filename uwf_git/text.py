"""Did-you-mean: the known name closest to one that isn't known, as a fragment for a hint."""

from __future__ import annotations

from collections.abc import Iterable

_CONSIDERED = 2000


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is probably a slip of, or None where nothing is close."""
    from difflib import get_close_matches
    from itertools import islice

    names = list(islice(known, _CONSIDERED))
    folded = {candidate.casefold(): candidate for candidate in reversed(names)}
    # Names of thousands of characters would cost seconds, and no typing slip is that long.
    match = get_close_matches(name.casefold()[:200], [key[:200] for key in folded], n=1, cutoff=0.6)
    return folded.get(match[0]) if match else None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as `did you mean "reviewer"?`; where nothing is close, the known names if they are
    few; else ""."""
    names = list(known)
    match = closest(name, names)
    if match is not None:
        return f'did you mean "{match}"?'
    if 0 < len(names) <= 8:
        return "known: " + ", ".join(sorted(names))
    return ""


def one_line(text: str, at_most: int) -> str:
    """Text on one line without control characters, shortened."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= at_most else flat[: at_most - 1] + "…"
