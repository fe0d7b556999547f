"""Mentions of a decision outside an answer: `approved: false`, in whatever notation.

A field that decides (a truth value, a listed value that is required, a status) may be printed in a way that no reader
can take as an answer: as a table, in markup, in a sentence. The value is not taken from there, but it is a sign that
the exit status must not decide, or that an answer is contradicted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from uwf_git.base.text import without_control
from uwf_git.format.shape import choices, named, types, variants
from uwf_git.format.statuses import STATUS

_FALSE = (
    *("false", "no", "not", "nope", "never", "off", "rejected", "denied", "declined", "refused"),
    *("#f", "b:0"),
)
_TRUTH: Mapping[str, bool | None] = {
    **dict.fromkeys(_FALSE, False),
    **dict.fromkeys(("true", "yes", "yep", "#t", "b:1"), True),
    **dict.fromkeys("❌✗✘✖", False),
    **dict.fromkeys("✅✔✓☑", True),
    **dict.fromkeys(("null", "none", "nil"), None),
}
_CERTAIN = ("true", "false", "#f", "#t", "b:0", "b:1")  # other words may begin a sentence: "no issues found"
_DENIALS = (
    *("false", "no", "nope", "never", "rejected", "refused", "denied", "declined", "disapproved", "reject"),
    *("failed", "fail", "failure", "error", "broken", "blocked", "nok", "unsuccessful", "changes_requested"),
)
_STATUSES = dict.fromkeys((*_DENIALS, "passed", "pass", "ok", "success", "done", "completed", "approved"), "")
_DECIDES = (
    r"(?:is_?)?(?:ok|success|succeeded|successful|pass|passed|approve|approved|accept|accepted|valid|verdict|decision"
    r"|result|status|outcome|conclusion)"
)
_COMPLAINS = r"(?:is_?)?(?:errors?|errored|failed|failure|rejected|denied|refused)"

_ESCAPED = (
    r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z]{2,8});|%[\da-fA-F]{2}"
    r"|\\{1,8}(?:u[\da-fA-F]{4}|x[\da-fA-F]{2}|[nrt\"'`/])"
)
_INVISIBLE = "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
_BEFORE = r"(?<!\w)(?:(?:is|has|was)[ _-]?)?\Z"
_ALONE = r"(?:\A|\n)[^\w\n]*\Z"
_GAP = (
    r"(?:</?(?!(?:true|false|yes|no)\b)[a-z][\w:.-]{0,40}[ ]?/?>|(?:value|val|type|boolean|bool|is)\b|[^\w❌✗✘✖✅✔✓☑])"
    r"{1,80}"
)
_SEPARATES = r"[:=>|\"'`(\[{«»“”→*]"
_VALUE = r"(?P<first>b:[01]\b|[❌✗✘✖✅✔✓☑]|\w{1,60})(?:[ -]\w{1,60}){0,3}"
_BEGINS_SENTENCE = (
    r"[ \t]+(?!(?:because|since|as|it|the|there|this|that|i|we|not|yet|way|but|due|until)\b)\w|-\w"
)
_COLUMN = r"[,;|\t]|[ ]{2,}"


_REFUSALS = (  # in a text without control characters: by a person, by TAP, by JUnit
    r"(?m)\A\W{0,9}(?:rejected|denied|declined|disapproved|not approved|changes requested)[*_]{0,2}"
    r"[ ]?(?:[:.!;,\n\u2013\u2014]|-[ ])"
    r"|\bi (?:do not|don['’]t|cannot|can['’]t|can not|will not|won['’]t) (?:approve|accept|endorse)\b"
    r"|^[ \t]{0,16}not ok\b(?!.{0,400}#[ ]?(?:todo|skip))"
    r"|<testsuites?\b[^<>]{0,800}?[ \n](?:failures|errors)=[\"'][ ]?0{0,9}[1-9]"
)
_LONGEST_ROW = 2000  # characters of a table's row


_DENYING_KEY = (
    r"(?i)[\"'](?P<key>[\w .-]{1,80})[\"']\s{0,8}:\s{0,8}(?:false\b|[\"'](?P<word>\w[\w -]{0,40})[\"'])"
)
_WORDS = r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])"
_DECIDED = (  # a key of several words, of which one is a verdict: `tests_passed`
    r"\A(?:passed|approved|accepted|succeeded) "
    r"| (?:ok|success|succeeded|successful|pass|passed|approved?|accepted|valid)\Z"
)


class Mention(NamedTuple):
    """A value of a field, in line `line`. Statuses are in lower case, with _ between their words."""

    line: int
    field: str
    value: Any


class Decisive:
    """The fields of a schema that decide, and the words for their values."""

    def __init__(self, payload: Any) -> None:
        self._values: dict[str, dict[str, Any]] = {}
        self._free: set[str] = set()  # statuses without a list of values
        for field in (field for variant in variants(payload) for field in variant.fields):
            listed = choices(payload, field.schema)
            values = self._values.setdefault(field.name, {})
            if "boolean" in types(field.schema) or any(isinstance(choice, bool) for choice in listed or ()):
                values.update(_TRUTH)
            elif listed and (field.required or field.name in STATUS):
                values.update({_key(choice): _key(choice) for choice in listed if isinstance(choice, str)})
            elif field.name in STATUS:
                self._free.add(field.name)
        if not any(self._values.values()) and (not self._values or named(payload).others):
            self._free.add("status")
        self._values.update((name, {word: word for word in _STATUSES}) for name in self._free)
        self._names = {name: _name(name) for name, values in self._values.items() if values}

    def mentions(self, text: str) -> Iterator[Mention]:
        """Yield the mentions in a text."""
        shown = _shown(text).rstrip()
        for name, pattern in self._names.items():
            values, line, counted = self._values[name], 1, 0
            for match in pattern.finditer(shown):
                start, end = match.span()
                if not re.search(_BEFORE, shown[max(0, start - 9) : start]):
                    continue
                value = _value_after(shown, start, end, values)
                value = _value_below(shown, start, end, values) if value is _NOTHING else value
                if value is not _NOTHING:
                    line, counted = line + shown.count("\n", counted, start), start
                    yield Mention(line, name, value)

    def contradicted(self, output: Any, text: str) -> Mention | None:
        """Return the first mention in a text that disagrees with an output."""
        if not isinstance(output, dict):
            return None
        for mention in self.mentions(text):
            if mention.field in output and mention.field not in self._free:
                value = output[mention.field]
                if mention.value != (_key(value) if isinstance(value, str) else value):
                    return mention
        return None

    def denied(self, text: str) -> bool:
        """Return whether a whole output says no without a field of the schema.

        It may do so as one or two words or as JSON and, if a truth value decides, as a sentence, TAP or JUnit.
        """
        judges = any(False in values.values() for values in self._values.values())
        if judges and re.search(_REFUSALS, _shown(text)):
            return True
        whole = re.sub(r"\A\s*(?:```|~~~)(?:json)?[ ]*\n|\n(?:```|~~~)\s*\Z", "", text).strip()
        is_json = whole.startswith(("{", "["))
        if any(self._denies_by_key(match, is_json) for match in re.finditer(_DENYING_KEY, text)):
            return True
        if is_json:
            try:
                value = json.loads(whole)
            except (ValueError, RecursionError):
                return False
            return any(map(_denies, value[:1000] if isinstance(value, list) else [value]))
        words = re.findall(r"\w+", _shown(whole)) if len(whole) < 100 else []
        if len(words) > 1 and re.fullmatch(_DECIDES, words[0]):
            words = words[1:]
        return "_".join(words) in _DENIALS or (len(words) in (2, 3) and words[0] == "not")

    def _denies_by_key(self, match: re.Match[str], in_any_words: bool) -> bool:
        """Return whether the key of a JSON value that says no begins or ends with a truth value's name, or verdict."""
        if match["word"] is not None and _key(match["word"]) not in _DENIALS:
            return False
        words = _folded(re.sub(_WORDS, " ", match["key"])).strip()
        names = (self._names[name].pattern for name in self._names if False in self._values[name].values())
        own = any(re.search(rf"\A(?:{name})|(?<!\w)(?:{name})\Z", words) for name in names)
        return own or (in_any_words and re.search(_DECIDED, words) is not None)


_NOTHING = object()


def _value_after(text: str, start: int, end: int, values: Mapping[str, Any]) -> Any:
    gap = re.compile(_GAP).match(text, end)
    value = re.compile(_VALUE).match(text, gap.end()) if gap is not None else None
    if gap is None or value is None or gap[0].count("\n") > 3:
        return _NOTHING
    separated = re.search(_SEPARATES, gap[0]) or (
        "\n" in gap[0] and re.search(_ALONE, text[max(0, start - 80) : start])
    )
    word, stop = _word(value, values) if separated else (value["first"], value.end("first"))
    if text[value.start() - 1] == "#" and word in ("f", "t"):
        word = "#" + word
    if word not in values and (stop == len(text) or (len(word) > 2 and text[stop] == "\n")):  # cut off
        word = next((known for known in values if known.startswith(word)), word)
    if word not in values or not (separated or word in _CERTAIN):
        return _NOTHING
    sentence = values.get("no") is False and re.compile(_BEGINS_SENTENCE).match(text, stop) is not None
    return _NOTHING if sentence and not (separated and word in _CERTAIN) else values[word]


def _value_below(text: str, start: int, end: int, values: Mapping[str, Any]) -> Any:
    """Return the value in a table's next row, below a name in its head."""
    head = text[text.rfind("\n", max(0, start - _LONGEST_ROW), start) + 1 : _line_end(text, end)]
    if len(head) > _LONGEST_ROW:
        return _NOTHING
    cells = [cell.strip(" \t\r\"'`*_") for cell in re.split(_COLUMN, head.strip())]
    name = text[start:end]
    if len(cells) < 2 or name not in cells:
        return _NOTHING
    at = _line_end(text, end)
    for _ in range(2):
        row = text[at + 1 : (at := _line_end(text, at + 1))]
        if re.search(r"\w", row):
            below = [cell.strip(" \t\r\"'`*_") for cell in re.split(_COLUMN, row.strip())]
            return (
                values.get(_key(below[cells.index(name)]), _NOTHING) if len(below) >= len(cells) else _NOTHING
            )
    return _NOTHING


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at, at + _LONGEST_ROW)
    return end if end >= 0 else min(len(text), at + _LONGEST_ROW)


def _word(match: re.Match[str], values: Mapping[str, Any]) -> tuple[str, int]:
    """Return the longest beginning of a match that is a value, otherwise its first word, and where it ends."""
    words = match[0]
    while (word := words.replace(" ", "_").replace("-", "_")) not in values and words != match["first"]:
        words = words[: max(words.rfind(" "), words.rfind("-"))]
    return word, match.start() + len(words)


def _denies(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for key, item in value.items():
        name = _key(key)
        if re.fullmatch(_COMPLAINS, name) and item not in (None, False, 0, "", [], {}):
            return True
        if re.fullmatch(_DECIDES, name) and (
            item in (None, False) or (isinstance(item, str) and _key(item) in _DENIALS)
        ):
            return True
    return False


def _name(name: str) -> re.Pattern[str]:
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)) or [name]
    words = words[1:] if words[0].lower() in ("is", "has", "was") and len(words) > 1 else words
    return re.compile(r"[ _-]?".join(re.escape(_folded(word)) for word in words) + r"(?!\w)")


def _key(text: Any) -> str:
    return re.sub(r"[\s-]+", "_", _folded(str(text)).strip())


def _folded(text: str) -> str:
    if not text.isascii():
        from unicodedata import normalize

        text = re.sub(_INVISIBLE, "", normalize("NFKC", text))
    return text.casefold()


def _shown(text: str) -> str:
    """Return a text as a reader would see it, in lower case: without what is invisible, escapes undone."""
    return _folded(re.sub(_ESCAPED, _unescaped, without_control(text)))


def _unescaped(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[0] == "&":
        from html import unescape

        sign = unescape(escape)
    elif escape[0] == "%":
        sign = chr(int(escape[1:], 16))
    else:
        code = escape.lstrip("\\")
        sign = chr(int(code[1:], 16)) if len(code) > 1 else code if code not in "nrt" else "\v"
    return "\v" if sign in "\r\n" else sign


def extra_fields(fields: Any, has: Callable[[str], bool]) -> str:
    """Return the fields of an answer that its schema doesn't name, as text."""
    if not isinstance(fields, dict):
        return ""
    return "\n".join(
        json.dumps({key: item}, default=str) for key, item in fields.items() if not has(str(key))
    )
