r"""Regular expressions of ECMA 262 with its `u` flag, which JSON Schema asks for, as patterns of Python's `re`.

Python's engine runs them, since a time limit can interrupt it and sample outputs are made from its syntax tree.
Three forms have no counterpart there and are refused: a look-behind of varying length, scripts and rarer properties
of characters (`\p{Script=Greek}`), and a group name used twice. A group that is set in an earlier round of a
repetition keeps its text, where ECMA 262 forgets it. Escaped punctuation (`\@`) and single brackets are accepted as
without the flag, since all dialects read them alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple, NoReturn

Ranges = tuple[tuple[int, int], ...]

_LAST = 0x10FFFF
_LINE_ENDS = r"\n\r\u2028\u2029"
_DIGITS: Ranges = ((0x30, 0x39),)
_WORDS: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_WHITE: Ranges = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
_SETS = {"d": _DIGITS, "w": _WORDS, "s": (*_WHITE, (0xFEFF, 0xFEFF))}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_CATEGORIES = {
    **{"LC": "Cased_Letter", "Cc": "Control", "Cf": "Format", "Cn": "Unassigned", "Co": "Private_Use"},
    **{"Cs": "Surrogate", "C": "Other", "L": "Letter", "Ll": "Lowercase_Letter", "Lm": "Modifier_Letter"},
    **{"Lo": "Other_Letter", "Lt": "Titlecase_Letter", "Lu": "Uppercase_Letter", "M": "Mark"},
    **{"Mc": "Spacing_Mark", "Me": "Enclosing_Mark", "Mn": "Nonspacing_Mark", "N": "Number"},
    **{"Nd": "Decimal_Number", "Nl": "Letter_Number", "No": "Other_Number", "P": "Punctuation"},
    **{"Pc": "Connector_Punctuation", "Pd": "Dash_Punctuation", "Pe": "Close_Punctuation"},
    **{"Pf": "Final_Punctuation", "Pi": "Initial_Punctuation", "Po": "Other_Punctuation"},
    **{"Ps": "Open_Punctuation", "S": "Symbol", "Sc": "Currency_Symbol", "Sk": "Modifier_Symbol"},
    **{"Sm": "Math_Symbol", "So": "Other_Symbol", "Z": "Separator", "Zl": "Line_Separator"},
    **{"Zp": "Paragraph_Separator", "Zs": "Space_Separator"},
}
_ALIASES = {"Combining_Mark": "M", "digit": "Nd", "punct": "P", "cntrl": "Cc"}
_BY_NAME = {**{name: short for short, name in _CATEGORIES.items()}, **_ALIASES}
_MEANT = {"A": "^", "Z": "$", "z": "$", "(?P<": "(?<name>", "(?P=": "\\k<name>"}

_QUANTIFIER = re.compile(r"(?:[*+?]|\{([0-9]+)(,)?([0-9]*)\})\??", re.ASCII)
_COUNT = re.compile(r"\{(?:[0-9]+,?|,)[0-9]*\}", re.ASCII)  # also those of Python alone
_SKIPPED = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?<(?![=!])([^>]*)>", re.DOTALL)
_MODIFIERS = re.compile(r"\?([ims]*)(?:-([ims]*))?:")
_ASSERTION = re.compile(r"\?(<?)([=!])")


class PatternRefused(ValueError):
    """A pattern that isn't ECMA 262's, or that uwf cannot apply. The text has the place in it."""


class Pattern(str):
    """A pattern for Python's `re`. Its `repr` is the pattern as it was `written`, for messages."""

    written: str

    def __new__(cls, text: str, written: str) -> Pattern:
        pattern = super().__new__(cls, text)
        pattern.written = written
        return pattern

    def __repr__(self) -> str:
        return repr(self.written)


@lru_cache(maxsize=512)
def translate(pattern: str) -> Pattern:
    """Return the pattern for `re`. Raises PatternRefused."""
    try:
        text = _Translation(pattern).all()
        re.compile(text)
    except RecursionError:
        raise PatternRefused("is nested too deeply") from None
    except (re.error, OverflowError) as error:
        if "look-behind" in str(error):
            raise PatternRefused("has a look-behind of varying length, which uwf does not support") from None
        raise PatternRefused(f"cannot be applied: {error}") from None
    return Pattern(text, pattern)


def translate_recorded(pattern: str) -> str:
    """As `translate`; a pattern that is refused is read as Python's, as earlier versions did."""
    try:
        return translate(pattern)
    except PatternRefused:
        return pattern


class _Modifiers(NamedTuple):
    all_lines: bool = False
    any_character: bool = False


class _Translation:
    """A recursive descent through one pattern, by the grammar of ECMA 262, section 22.2.1."""

    def __init__(self, source: str) -> None:
        self._source, self._at = source, 0
        self._modifiers = _Modifiers()
        groups = [match for match in _SKIPPED.finditer(source) if match[0].startswith("(")]
        self._groups = len(groups)
        self._names: dict[str, int] = {}
        for number, match in enumerate(groups, 1):
            if match[1] is None:
                continue
            if not (name := _unescaped(match[1])).replace("$", "_").isidentifier():
                self._refuse(f"{match[0]} has no valid name", match.start())
            if self._names.setdefault(name, number) != number:
                self._refuse(f"names two groups {name}", match.start())
        self._opened = 0
        self._closed: set[int] = set()

    def all(self) -> str:
        text = "|".join(self._alternatives())
        if self._at < len(self._source):
            self._refuse("has a ) without its (")
        return text

    def _refuse(self, reason: str, at: int | None = None) -> NoReturn:
        raise PatternRefused(f"{reason}, at character {(self._at if at is None else at) + 1}")

    def _take(self, text: str) -> bool:
        taken = self._source.startswith(text, self._at)
        self._at += len(text) if taken else 0
        return taken

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._source, self._at)
        self._at = match.end() if match else self._at
        return match

    def _next(self) -> str:
        character = self._source[self._at : self._at + 1]
        self._at += 1
        return character

    def _alternatives(self) -> list[str]:
        alternatives = [self._terms()]
        while self._take("|"):
            alternatives.append(self._terms())
        return alternatives

    def _terms(self) -> str:
        terms: list[str] = []
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            start = self._at
            text, repeatable = self._term()
            quantifier = self._source[self._at : self._at + 1]
            if (quantifier and quantifier in "*+?") or _COUNT.match(self._source, self._at):
                if not repeatable:
                    self._refuse(f"{self._source[start : self._at]} cannot be repeated")
                text += self._quantifier()
            terms.append(text)
        return "".join(terms)

    def _quantifier(self) -> str:
        start = self._at
        if (match := self._match(_QUANTIFIER)) is None:
            self._refuse("has a count without its least number: write {0,…}")
        if match[3] and int(match[3]) < int(match[1]):
            self._refuse("has a count out of order", start)
        if match[1] and not match[2] and match[3]:
            self._refuse("has a count that is none", start)
        return match[0]

    def _term(self) -> tuple[str, bool]:
        start, character = self._at, self._next()
        if character == "^":
            return (rf"(?:\A|(?<=[{_LINE_ENDS}]))" if self._modifiers.all_lines else r"\A"), False
        if character == "$":
            return (rf"(?=[{_LINE_ENDS}]|\Z)" if self._modifiers.all_lines else r"\Z"), False
        if character == ".":
            return ("(?s:.)" if self._modifiers.any_character else f"[^{_LINE_ENDS}]"), True
        if character == "(":
            return self._group(start)
        if character == "[":
            return self._class(start), True
        if character == "\\":
            return self._escape(start)
        if character in "*+?" or (character == "{" and _COUNT.match(self._source, start)):
            self._refuse(f"has nothing that {character} can repeat", start)
        return _literal(ord(character)), True

    def _group(self, start: int) -> tuple[str, bool]:
        if match := self._match(_ASSERTION):
            inner = self._closing(start)
            opening = f"(?{match[1]}{match[2]}"
            if not match[1]:
                return f"{opening}{'|'.join(inner)})", False
            # Python wants one length, which each alternative may have of its own.
            alternatives = [f"{opening}{alternative})" for alternative in inner]
            return ("".join(alternatives) if match[2] == "!" else f"(?:{'|'.join(alternatives)})"), False
        if match := self._match(_MODIFIERS):
            return self._modified(match, start), True
        if self._take("?<"):
            self._at = self._source.find(">", self._at) + 1
            if not self._at:
                self._at = start
                self._refuse("has a group whose name has no end")
        elif self._source.startswith("?", self._at):
            shown = self._source[start : start + 4]
            hint = f": ECMA 262 writes {_MEANT[shown]}" if shown in _MEANT else ""
            self._refuse(f"{shown[:3]} begins no group{hint}", start)
        self._opened += 1
        number = self._opened
        inner = self._closing(start)
        self._closed.add(number)
        return f"({'|'.join(inner)})", True

    def _modified(self, match: re.Match[str], start: int) -> str:
        on, off = match[1], match[2]
        flags = on + (off or "")
        if len(set(flags)) < len(flags) or off == on == "":
            self._refuse(f"({match[0]} has no valid modifiers", start)
        before, off = self._modifiers, off or ""
        self._modifiers = _Modifiers(
            "m" in on or (before.all_lines and "m" not in off),
            "s" in on or (before.any_character and "s" not in off),
        )
        inner = "|".join(self._closing(start))
        self._modifiers = before
        case = "i" if "i" in on else "-i" if "i" in off else ""
        return f"(?{case}:{inner})"

    def _closing(self, start: int) -> list[str]:
        inner = self._alternatives()
        if not self._take(")"):
            self._refuse("has a ( without its )", start)
        return inner

    def _escape(self, start: int) -> tuple[str, bool]:
        if self._take("b"):
            return r"(?a:\b)", False
        if self._take("B"):
            return r"(?!(?a:\b))", False  # Python's \B does not match an empty text
        if match := self._match(re.compile(r"[1-9][0-9]*", re.ASCII)):
            return self._reference(int(match[0]), start), True
        if self._take("k"):
            name = self._match(re.compile(r"<([^>]*)>"))
            number = self._names.get(_unescaped(name[1])) if name else None
            if number is None:
                self._refuse("\\k names no group", start)
            return self._reference(number, start), True
        if (ranges := self._set(start)) is not None:
            return _class(ranges), True
        return _literal(self._character(start)), True

    def _reference(self, number: int, start: int) -> str:
        if number > self._groups:
            self._refuse(f"\\{number} refers to no group", start)
        # A group that has not matched, or not yet, counts as empty.
        return rf"(?({number})\{number}|)" if number in self._closed else "(?:)"

    def _class(self, start: int) -> str:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            if self._at >= len(self._source):
                self._refuse("has a [ without its ]", start)
            at = self._at
            low = self._member()
            if self._source.startswith("-", self._at) and not self._source.startswith("-]", self._at):
                self._at += 1
                if self._at >= len(self._source):
                    self._refuse("has a [ without its ]", start)
                high = self._member()
                if not isinstance(low, int) or not isinstance(high, int):
                    self._refuse("has a range that begins or ends with a set", at)
                if high < low:
                    self._refuse("has a range out of order", at)
                ranges.append((low, high))
            else:
                ranges += ((low, low),) if isinstance(low, int) else low
        if not ranges:
            return "(?s:.)" if negated else "(?!)"
        return _class(tuple(ranges), negated)

    def _member(self) -> int | Ranges:
        start, character = self._at, self._next()
        if character == "[" and re.compile(r":[a-z]+:\]").match(self._source, self._at):
            self._refuse("has a class of POSIX, which ECMA 262 does not know", start)
        if character != "\\":
            return ord(character)
        if self._take("b"):
            return 8
        ranges = self._set(start)
        return self._character(start) if ranges is None else ranges

    def _set(self, start: int) -> Ranges | None:
        character = self._source[self._at : self._at + 1]
        if character and character in "dDsSwW":
            self._at += 1
            ranges = _SETS[character.lower()]
            return _others(ranges) if character.isupper() else ranges
        if not character or character not in "pP":
            return None
        self._at += 1
        if (match := self._match(re.compile(r"\{([A-Za-z0-9_]+)(?:=([A-Za-z0-9_]+))?\}"))) is None:
            self._refuse(f"\\{character} names no property", start)
        name, value = match[1], match[2]
        if value is not None and name not in ("gc", "General_Category"):
            self._refuse(f"uwf does not support \\{character}{match[0]}: list the characters", start)
        ranges = _property(name if value is None else value, value is None)
        if not ranges:
            self._refuse(f"uwf does not know the property \\{character}{match[0]}", start)
        return _others(ranges) if character == "P" else ranges

    def _character(self, start: int) -> int:
        character = self._next()
        if not character:
            self._refuse("ends with a single \\", start)
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "c" and (match := self._match(re.compile(r"[A-Za-z]"))):
            return ord(match[0]) % 32
        if character == "0" and not self._source[self._at : self._at + 1].isdigit():
            return 0
        if character == "x" and (match := self._match(re.compile(r"[0-9A-Fa-f]{2}"))):
            return int(match[0], 16)
        if character == "u" and (match := self._match(_UNICODE)):
            return _code(match)
        if character.isalnum():
            hint = f": ECMA 262 writes {_MEANT[character]}" if character in _MEANT else ""
            self._refuse(f"\\{character} is no escape{hint}", start)
        return ord(character)


_UNICODE = re.compile(
    r"\{0*([0-9A-Fa-f]{1,5}|10[0-9A-Fa-f]{4})\}|([Dd][89ABab][0-9A-Fa-f]{2})\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})"
    r"|([0-9A-Fa-f]{4})"
)


def _code(match: re.Match[str]) -> int:
    if match[2]:
        return 0x10000 + ((int(match[2], 16) - 0xD800) << 10) + int(match[3], 16) - 0xDC00
    return int(match[1] or match[4], 16)


def _unescaped(name: str) -> str:
    return re.sub(rf"\\u(?:{_UNICODE.pattern})", lambda match: chr(_code(match)), name)


def _literal(code: int) -> str:
    return re.escape(chr(code))


def _class(ranges: Ranges, negated: bool = False) -> str:
    parts = (_bound(low) if low == high else f"{_bound(low)}-{_bound(high)}" for low, high in ranges)
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _bound(code: int) -> str:
    if 0x30 <= code <= 0x7A and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _others(ranges: Ranges) -> Ranges:
    others, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            others.append((start, low - 1))
        start = max(start, high + 1)
    return (*others, (start, _LAST)) if start <= _LAST else tuple(others)


@cache
def _property(name: str, alone: bool) -> Ranges:
    """Return the characters of a general category, or `alone` of a property; () if it is unknown."""
    import unicodedata

    short = name if name in _CATEGORIES else _BY_NAME.get(name)
    if short is not None:
        kinds = (
            {"Lu", "Ll", "Lt"}
            if short == "LC"
            else {category for category in _CATEGORIES if category.startswith(short)}
        )
        return _where(lambda code: unicodedata.category(chr(code)) in kinds)
    fixed: dict[str, Ranges] = {
        **dict.fromkeys(("Any",), ((0, _LAST),)),
        **dict.fromkeys(("ASCII",), ((0, 127),)),
        **dict.fromkeys(("ASCII_Hex_Digit", "AHex"), ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))),
        **dict.fromkeys(("White_Space", "space"), (*_WHITE, (0x85, 0x85))),
    }
    if not alone or name in fixed:
        return fixed.get(name, ()) if alone else ()
    if name == "Assigned":
        return _others(_property("Cn", True))
    tests: dict[str, Callable[[str], bool]] = {
        **dict.fromkeys(("Uppercase", "Upper"), str.isupper),
        **dict.fromkeys(("Lowercase", "Lower"), str.islower),
    }
    return _where(lambda code: tests[name](chr(code))) if name in tests else ()


def _where(holds: Callable[[int], Any]) -> Ranges:
    ranges, start = [], None
    for code in range(_LAST + 2):
        inside = code <= _LAST and holds(code)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append((start, code - 1))
            start = None
    return tuple(ranges)
