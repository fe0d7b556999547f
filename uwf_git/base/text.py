"""Text that people read: did-you-mean, one line of it, a number of things, a moment, a fence around it, Unicode that
can be encoded or put into XML."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

_CONSIDERED = 2000
# C0 but tab and line end, DEL, C1; and the marks that reorder what stands between them.
_ACTED_ON = r"(?!\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_NOT_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"
_STEERING = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
_UNSEEN = rf"{_STEERING}|[\x00-\x08\x0b-\x1f\x7f]"


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


def nearest_file(name: str, known: Iterable[str]) -> str:
    """A hint such as `did you mean "solve-issue.yaml"?`, by names without their suffix, which many files share; "" if
    none is close."""
    by_stem: dict[str, str] = {}
    for candidate in known:
        by_stem.setdefault(candidate.partition(".")[0], candidate)
    match = closest(name.partition(".")[0], by_stem)
    return f'did you mean "{by_stem[match]}"?' if match else ""


def printable(text: str, instead: str = "�", keep: str = "") -> str:
    """The text with `instead` for every character that steers a terminal or can't be seen, but those in `keep`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else instead for each in text)


def harmless(text: str) -> str:
    """The text with what a terminal would act on, or a reader would be misled by, written out, as in `\\x1b`. For what
    people read with programs that know nothing of that, such as git."""
    if text.isascii() and not text.encode("ascii").translate(None, _PLAIN):
        return text
    return re.sub(_ACTED_ON, lambda found: escaped(found[0]), text)


def escaped(character: str) -> str:
    """A character as Python writes it out: `\\x1b`, `\\u202e`."""
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shortened(text: str, at_most: int) -> str:
    """The text, or its beginning and an ellipsis, together no longer than `at_most` characters."""
    return text if len(text) <= at_most else text[: at_most - 1] + "…"


def cut(text: str, at_most: int) -> str:
    """The text, or its first `at_most` characters and a line that says how many are left out."""
    left = len(text) - at_most
    return text if left <= 0 else f"{text[:at_most]}\n[… {left} more characters are left out …]"


def one_line(text: str, at_most: int = 200, instead: str = " ") -> str:
    """The text on one line, shortened: `instead` for every character that isn't printable, then one space for any
    run of white space."""
    if text.isalnum() and len(text) <= at_most:  # as most are that commits and pages name
        return text
    return shortened(" ".join(printable(text, instead).split()), at_most)


def numbered(options: Iterable[str], at_most: int = 100) -> list[str]:
    """Options as a menu, each on one line behind its number, so that none can look like several."""
    return [f"{number}  {one_line(option, at_most)}" for number, option in enumerate(options, 1)]


def settled(text: str) -> str:
    """The text of a program as a terminal would show it in the end, without what steers a terminal: of a line that was
    written over the last version."""
    lines = text.replace("\r\n", "\n").split("\n")
    return re.sub(_UNSEEN, "", "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def whole_lines(text: str) -> str:
    """The lines that have come to their end, without the one that may still grow."""
    return text[: max(text.rfind("\n"), text.rfind("\r")) + 1]


def last_line(text: str) -> str:
    """The last line with something to read in what a program printed, without what steers a terminal; "" where there
    is none. A line that a program writes over, as it does to show progress, counts as it stands."""
    lines = re.split(r"[\r\n]", re.sub(_STEERING, "", text))
    return next((line for each in reversed(lines) if (line := one_line(each, 240))), "")


def duration(seconds: float) -> str:
    """Seconds as people read them: "0.4s", "12s", "3m 20s", "1h 30m"."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds % 1 and seconds < 10 else f"{round(seconds)}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s" if whole % 60 else f"{whole // 60}m"
    return f"{whole // 3600}h {whole % 3600 // 60}m" if whole % 3600 >= 60 else f"{whole // 3600}h"


def iso(seconds: float) -> str:
    """Unix seconds as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def counted(number: int, what: str) -> str:
    """A number of things: `1 step`, `2 steps`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def fenced(text: str, language: str = "") -> str:
    """The text as a Markdown code block, in a fence that nothing inside it can close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def encodable(text: str) -> str:
    """The text with `?` for every lone surrogate, which no encoding of Unicode has."""
    return text.encode("utf-8", "replace").decode("utf-8")


def for_xml(text: str) -> str:
    """The text with � for every character that no XML document may hold, not even escaped."""
    return text if text.isprintable() else re.sub(_NOT_XML, "�", text)
