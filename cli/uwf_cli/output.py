"""The three forms of what a command prints: JSON for programs, YAML, and text for people."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from uwf_git.base.text import iso as iso
from uwf_git.base.text import one_line

FORMATS = ("text", "json", "yaml")

# JSON may hold these as they are, but not every reader of bytes or terminals survives them. Escaped
# they are the same JSON.
_ODD = "[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def as_json(value: Any, *, compact: bool = False) -> str:
    """A JSON document without its line end: indented by two, or on one line."""
    return "".join(json_parts(value, compact=compact))


def json_parts(value: Any, *, compact: bool = False) -> Iterator[str]:
    """The parts of what `as_json` gives, a large one not as a whole."""
    if compact:
        yield _escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    elif isinstance(value, list) and value and all(map(_is_record, value)):
        yield _escaped(_records(value))
    else:
        pieces = json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value)
        while some := "".join(islice(pieces, _PIECES)):
            yield _escaped(some)


_PIECES = 2000  # of which each is a name, a value, or what stands between


def _escaped(text: str) -> str:
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(_ODD, lambda found: f"\\u{ord(found.group()):04x}", text)


def _is_record(value: Any) -> bool:
    return (
        type(value) is dict
        and bool(value)
        and not any(type(v) in (dict, list, tuple) for v in value.values())
    )


def _records(values: list[dict[str, Any]]) -> str:
    """What json makes of a list of flat objects, by its C part: that can't indent, and thousands of
    threads are listed in a third of the time."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",\n    ", ": ")).encode
    return "[\n" + ",\n".join(f"  {{\n    {encode(value)[1:-1]}\n  }}" for value in values) + "\n]"


def as_yaml(value: Any) -> str:
    """A YAML document, its last line end included."""
    from uwf_git.format.yaml12 import dump

    return dump(value)


def as_line(record: Mapping[str, Any]) -> str:
    """A record of the log for people, on a line: when it was, its level and tag, where, what, and those of its other
    fields that the content doesn't show."""
    seconds, milliseconds = divmod(record["timestamp"], 1000)
    when = f"{iso(seconds)[:-1]}.{milliseconds:03d}Z"
    where = " ".join(filter(None, (record["thread"], record["role"])))
    what = record["content"]
    fields = {name: _field(value) for name, value in record.items() if name not in _OF_ALL_RECORDS}
    more = " ".join(f"{name}={text}" for name, text in fields.items() if text and text not in what)
    return "  ".join(filter(None, (when, f"{record['level']:<7}", record["tag"], where, what, more)))


_OF_ALL_RECORDS = ("tag", "level", "content", "timestamp", "thread", "role", "pid")


def _field(value: Any) -> str:
    if value is None or value is False or value in ("", [], {}):
        return ""
    if isinstance(value, list):
        value = " ".join(map(_field, value))
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def credited(value: Mapping[str, Any]) -> str:
    """Who did a step, by its JSON: the agent, or `Ada (uwf-exec)` where a persona spoke."""
    persona = value.get("persona")
    return f"{persona['name']} ({value['agent']})" if persona else str(value["agent"])


def whose(value: Mapping[str, Any]) -> str:
    """The same to stand behind a role: `(uwf-exec)`, or `by Ada (uwf-exec)`."""
    return f"by {credited(value)}" if value.get("persona") else f"({value['agent']})"


def dollars(cost: float | None, unpriced: int = 0) -> str:
    """US dollars, ≥ where there are tokens that they don't cover; "unknown" where they cover none, – where there are
    none."""
    if cost is None:
        return "unknown" if unpriced else "–"
    digits = 2 if cost >= 1 or not cost else 4
    return f"{'≥ ' if unpriced else ''}${cost:,.{digits}f}"


def ago(then: float, now: float | None = None) -> str:
    """How long ago a moment was, in its largest unit: `3m ago`; its day where that is over a month ago. Both are
    Unix seconds; what lies ahead, by another machine's clock, is `now`."""
    seconds = int((time.time() if now is None else now) - then)
    if seconds < 1:
        return "now"
    for size, unit in ((60, "s"), (60, "m"), (24, "h"), (31, "d")):
        if seconds < size:
            return f"{seconds}{unit} ago"
        seconds //= size
    return iso(then)[:10]


def exact(seconds: float) -> str:
    """A moment, of Unix seconds, as it is written out."""
    return iso(seconds).replace("T", " ").replace("Z", " UTC")
