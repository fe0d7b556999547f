"""Text for people: did-you-mean, single lines, counts, times, fences, safe Unicode."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence

_CONSIDERED = 2000
# C0 except tab and newline, DEL, C1, and bidirectional control characters.
_ACTED_ON = r"(?!\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
# Printable by their category: letters, marks and symbols without a shape, and selectors of another's shape. With those
# that are not printable they are all that Unicode calls ignorable by default.
_SHAPELESS = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_NOT_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"
_STEERING = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
_FENCE = r" {0,3}(`{3,}|~{3,})(.*)"
COLOURS = r"\x1b\[[0-9;:]*m"
"""A sequence that colours a program's output."""
_UNSEEN = rf"{_STEERING}|[\x00-\x08\x0b-\x1f\x7f]"


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is probably a typo of, or None."""
    from difflib import get_close_matches
    from itertools import islice

    names = list(islice(known, _CONSIDERED))
    folded = {candidate.casefold(): candidate for candidate in reversed(names)}
    # Names of thousands of characters would cost seconds, and no typing slip is that long.
    match = get_close_matches(name.casefold()[:200], [key[:200] for key in folded], n=1, cutoff=0.6)
    return folded.get(match[0]) if match else None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `did you mean "reviewer"?`; else the known names if few; else ""."""
    names = list(known)
    match = closest(name, names)
    if match is not None:
        return f'did you mean "{match}"?'
    if 0 < len(names) <= 8:
        return "known: " + ", ".join(sorted(names))
    return ""


def nearest_file(name: str, known: Iterable[str]) -> str:
    """As `nearest`, comparing names without their suffix; "" if none is close."""
    by_stem: dict[str, str] = {}
    for candidate in known:
        by_stem.setdefault(candidate.partition(".")[0], candidate)
    match = closest(name.partition(".")[0], by_stem)
    return f'did you mean "{by_stem[match]}"?' if match else ""


def printable(text: str, instead: str = "�", keep: str = "") -> str:
    """Replace control and invisible characters except `keep`."""
    if text.isprintable():
        return text
    return "".join(item if item.isprintable() or item in keep else instead for item in text)


def harmless(text: str) -> str:
    r"""Write out control and misleading characters, as in `\x1b`, for programs such as git that print them
    raw."""
    if text.isascii() and not text.encode("ascii").translate(None, _PLAIN):
        return text
    return re.sub(_ACTED_ON, lambda match: escaped(match[0]), text)


def written_out(text: str, keep: str = "\n") -> str:
    r"""Write out each character but `keep` that nobody sees, or takes for a space, as in `\u3164`: for what a person
    allows by what is shown."""
    if text.isprintable() and (text.isascii() or not re.search(_SHAPELESS, text)):
        return text
    return "".join(item if item in keep or is_seen(item) else escaped(item) for item in text)


def is_seen(character: str) -> bool:
    """Return whether a character is a space or has a shape of its own. What only shapes the one before it has none."""
    return character.isprintable() and not re.match(_SHAPELESS, character)


def escaped(character: str) -> str:
    r"""Return a character as an escape: `\x1b`, `\u202e`."""
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shortened(text: str, at_most: int) -> str:
    """Shorten a text to `at_most` characters including the ellipsis."""
    return text if len(text) <= at_most else text[: at_most - 1] + "…"


def cut(text: str, at_most: int) -> str:
    """Cut a text to `at_most` characters, with a line on the rest."""
    rest = len(text) - at_most
    return text if rest <= 0 else f"{text[:at_most]}\n[… {rest} more characters are left out …]"


def cut_middle(text: str, at_most: int) -> str:
    """Return the beginning and the end of a text of more characters, with a note of how many are left out."""
    if len(text) <= at_most:
        return text
    head, tail = at_most * 2 // 3, at_most // 3
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def one_line(text: str, at_most: int = 200, instead: str = " ") -> str:
    """Return a text on one line, shortened: `instead` for unprintable characters, one space for white space."""
    if text.isalnum() and len(text) <= at_most:  # as most are that commits and pages name
        return text
    return shortened(" ".join(printable(text, instead).split()), at_most)


def numbered(options: Iterable[str], at_most: int = 100) -> list[str]:
    """Return options as numbered single lines."""
    return [f"{number}  {one_line(option, at_most)}" for number, option in enumerate(options, 1)]


def settled(text: str, colours: bool = False) -> str:
    """Return a program's output as a terminal would finally show it, without control characters, or with those that
    colour it."""
    lines = text.replace("\r\n", "\n").split("\n")
    unseen = rf"(?!{COLOURS})(?:{_UNSEEN})" if colours else _UNSEEN
    return re.sub(unseen, "", "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def without_control(text: str) -> str:
    """Return a text without control characters but line ends, and without what steers a terminal."""
    if "\b" in text:
        text = re.sub(r"[^\n\x08]\x08", "", text)
    return re.sub(_UNSEEN, "", text.replace("\r\n", "\n").replace("\r", "\n"))


def without_colours(text: str) -> str:
    """Return a program's output without the sequences that colour it."""
    return re.sub(COLOURS, "", text) if "\x1b" in text else text


def whole_lines(text: str) -> str:
    return text[: max(text.rfind("\n"), text.rfind("\r")) + 1]


def last_line(text: str) -> str:
    """Return the last non-empty line of a program's output, as a terminal would show it; "" if none."""
    lines = re.split(r"[\r\n]", re.sub(_STEERING, "", text))
    return next((line for item in reversed(lines) if (line := one_line(item, 240))), "")


def duration(seconds: float) -> str:
    """Format seconds: "0.4s", "12s", "3m 20s", "1h 30m"."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds % 1 and seconds < 10 else f"{round(seconds)}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s" if whole % 60 else f"{whole // 60}m"
    return f"{whole // 3600}h {whole % 3600 // 60}m" if whole % 3600 >= 60 else f"{whole // 3600}h"


def iso(seconds: float) -> str:
    """Format Unix seconds as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def counted(number: int, what: str) -> str:
    """Format a count: `1 step`, `2 steps`, `2 branches`."""
    if number == 1:
        return f"{number} {what}"
    return f"{number} {what}{'es' if what.endswith(('ch', 'sh', 'x')) else 's'}"


def listed(names: Sequence[str], at_most: int) -> str:
    """Join the first names: `a, b and 3 more`."""
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return f"{', '.join(names[:at_most])}{more}"


def fenced(text: str, language: str = "") -> str:
    """Return a code block with a fence that the text cannot close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def with_closed_fence(text: str) -> str:
    """Return a text with an end for a code block of it that has none."""
    fence = ""
    for line in text.split("\n"):
        if mark := re.fullmatch(_FENCE, line.rstrip()):
            if not fence:
                fence = mark[1] if mark[1][0] == "~" or "`" not in mark[2] else ""
            elif mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
    return f"{text}\n{fence}" if fence else text


def encodable(text: str) -> str:
    """Replace lone surrogates with `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def for_xml(text: str) -> str:
    """Replace characters that XML forbids with �."""
    return text if text.isprintable() else re.sub(_NOT_XML, "�", text)
