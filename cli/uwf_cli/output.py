"""Output formats: JSON, YAML, text."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from uwf_git.base.text import iso as iso
from uwf_git.base.text import one_line
from uwf_git.base.thread_states import ThreadState
from uwf_git.format.types import role_name

FORMATS = ("text", "json", "yaml")

# JSON may hold these as they are, but not every reader of bytes or terminals survives them. Escaped
# they are the same JSON.
_ODD = "[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def as_json(value: Any, *, compact: bool = False) -> str:
    """Return JSON without line end: indented, or on one line."""
    return "".join(json_parts(value, compact=compact))


def json_parts(value: Any, *, compact: bool = False) -> Iterator[str]:
    """Yield the parts of `as_json`, to avoid building large texts."""
    if compact:
        yield _escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    elif isinstance(value, list) and value and all(map(_is_record, value)):
        yield _escaped(_records(value))
    else:
        pieces = json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value)
        while some := "".join(islice(pieces, _PIECES)):
            yield _escaped(some)


_PIECES = 2000  # each is a name, a value, or a separator


def _escaped(text: str) -> str:
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(_ODD, lambda match: f"\\u{ord(match.group()):04x}", text)


def _is_record(value: Any) -> bool:
    return (
        type(value) is dict
        and bool(value)
        and not any(type(v) in (dict, list, tuple) for v in value.values())
    )


def _records(values: list[dict[str, Any]]) -> str:
    """Format flat objects with json's C encoder, which cannot indent: three times as fast for thousands of
    threads."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",\n    ", ": ")).encode
    return "[\n" + ",\n".join(f"  {{\n    {encode(value)[1:-1]}\n  }}" for value in values) + "\n]"


def as_yaml(value: Any) -> str:
    """Return YAML."""
    from uwf_git.format.yaml12 import dump

    return dump(value)


def as_line(record: Mapping[str, Any]) -> str:
    """Format a log record on one line: time, level, tag, place, content, other fields."""
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
    """Return a step's agent, with its persona: `Ada (uwf-exec)`."""
    persona = value.get("persona")
    return f"{persona['name']} ({value['agent']})" if persona else str(value["agent"])


def who_waits(value: Mapping[str, Any]) -> str:
    """Return who wants what of whom in a waiting thread: `gate asks`, `ada is gate`, `you are gate`."""
    role = role_name(value["role"])
    if value["kind"] == "question":
        return f"{role} asks"
    if value["kind"] == "budget":
        return f"{role} has to wait"
    if approvals := value.get("approvals"):
        return f"{role} needs {approvals['needs']}"
    return f"{value['assignee']} is {role}" if value.get("assignee") else f"you are {role}"


def branches_text(counts: Mapping[str, int], ended: int) -> str:
    """Return how the branches of a thread stand: `4 of 8 have ended, 1 failed, 1 killed; 1 failed, 3 idle`. One that
    failed and has not ended may be tried again."""
    failed = ThreadState.FAILED.word
    ends = {state.word: counts.get(state.word, 0) for state in ThreadState if state.is_ended}
    ends[failed] = ended - sum(number for word, number in ends.items() if word != failed)
    rest = {word: number - ends.get(word, 0) for word, number in counts.items()}
    begin = f"{ended} of {sum(counts.values())} have ended"
    bad = (ThreadState.WITH_FAILURES.word, failed, ThreadState.KILLED.word)
    begin = ", ".join([begin, *(f"{ends[word]} {word}" for word in bad if ends[word])])
    return "; ".join(
        filter(None, [begin, ", ".join(f"{number} {word}" for word, number in rest.items() if number)])
    )


def approvals_line(approvals: Mapping[str, Any]) -> str:
    """Return how a gate stands: `1 of 2 approvals; 1 more of bob, carol`."""
    counting = [item for item in approvals["given"] if item["counts"]]
    sentence = f"{len(counting)} of {approvals['quorum']} approvals"
    if len({item["decision"] for item in counting}) > 1:
        sentence += ", which differ"
    return "; ".join(filter(None, (sentence, approvals["needs"], approvals["way"])))


def approval_lines(approvals: Mapping[str, Any]) -> list[str]:
    """Return a line for each approval at a gate."""
    from uwf_git.format.approvals import UNSEEN

    lines = []
    for item in approvals["given"]:
        by, signature = item["by"], item["signature"]
        signed = "unsigned" if signature["state"] == "none" else f"signed, {signature['state']}"
        line = f"{by['name']} <{by['email']}> ({signed}): {item['decision']}"
        line += f", {UNSEEN}" if item.get("unseen") else ""
        line += f" – {one_line(item['reason'], 100)}" if item["reason"] else ""
        lines.append(line if item["counts"] else f"{line}; doesn't count: {item['why']}")
    return lines


def whose(value: Mapping[str, Any]) -> str:
    """The same after a role: `(uwf-exec)`, `by Ada (uwf-exec)`."""
    return f"by {credited(value)}" if value.get("persona") else f"({value['agent']})"


def dollars(cost: float | None, unpriced: int = 0) -> str:
    """Format US dollars: ≥ if some tokens have no price, "unknown" if none has, – without tokens."""
    if cost is None:
        return "unknown" if unpriced else "–"
    digits = 2 if cost >= 1 or not cost else 4
    return f"{'≥ ' if unpriced else ''}${cost:,.{digits}f}"


def ago(then: float, now: float | None = None) -> str:
    """Format the time since a moment in its largest unit, `3m ago`; the day after a month. Unix seconds; the
    future counts as `now`."""
    seconds = int((time.time() if now is None else now) - then)
    if seconds < 1:
        return "now"
    for size, unit in ((60, "s"), (60, "m"), (24, "h"), (31, "d")):
        if seconds < size:
            return f"{seconds}{unit} ago"
        seconds //= size
    return iso(then)[:10]


def seconds_of(text: str) -> int:
    """Return the Unix seconds of a time as `iso` writes it."""
    import calendar

    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def exact(seconds: float) -> str:
    """Format a time, in Unix seconds: `2026-01-31 09:30:00 UTC`."""
    return iso(seconds).replace("T", " ").replace("Z", " UTC")
