"""From session updates to turns.

Updates are read as JSON, since the SDK's models would drop updates with unknown fields. Fields of the wrong
type are ignored.

Message pieces are joined. A turn is recorded once complete: a message when something else follows, a tool
call when it has ended. Only the beginning of thoughts and the last plan are kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from uwf_git.ext.agents.acp.frames import TooMuch
from uwf_git.ext.agents.permissions import kind_of
from uwf_git.plugin import TokenUsage, TurnRecord, cut_text

MOST = 8 * 1024 * 1024  # characters of all messages of one prompt
CALLS = 10_000  # turns of one prompt
OPEN = 256  # tool calls at once that haven't ended
_MESSAGE, _THOUGHT = "message", "thought"
_KEPT_TEXT = 20_000  # characters of a tool's text, input, or one side of a diff
_KEPT_THOUGHT = 2_000
_KEPT_ENTRIES = 50
_DEEPEST = 40
_ENDED = ("completed", "failed")
_PRINTED, _LEFT_OUT, _EXIT = "printed", "leftOut", "exitCode"  # of a command in a terminal of the agent's own
_PIECES = {"agent_message_chunk": _MESSAGE, "agent_thought_chunk": _THOUGHT}


class Cost(NamedTuple):
    """The session's cost so far, as reported."""

    amount: float
    currency: str


class _Call(NamedTuple):
    began: float
    known: dict[str, Any]


class Conversation:
    """The turns of one prompt. `record` gets each once complete; tool calls of `forbidden` kinds must not
    succeed."""

    def __init__(self, record: Callable[[TurnRecord], None], forbidden: frozenset[str] = frozenset()) -> None:
        self._record = record
        self._forbidden = forbidden
        self._refused: set[str] = set()
        self._open = ""  # the kind of the current chunks: message or thought
        self._message_id: Any = None
        self._pieces: list[str] = []
        self._began = time.monotonic()
        self._size = 0
        self._calls: dict[str, _Call] = {}
        self._ended: str | None = None
        self._plan: list[dict[str, Any]] = []
        self.turns: list[TurnRecord] = []
        self.replayed = 0  # messages that a loaded session began with
        self.cost: Cost | None = None
        self.aside = ""  # the agent's last own message: the chunk without an id
        self.answered = False  # whether a message has an id
        self._after_call = False  # whether the last update was about a tool call

    def update(self, update: Mapping[str, Any]) -> None:
        """Process a session update. Raises TooMuch if the agent says too much or does something forbidden."""
        kind = update.get("sessionUpdate")
        if kind in _PIECES or kind in ("tool_call", "tool_call_update"):
            self._after_call = kind not in _PIECES
        if kind in _PIECES:
            self._piece(_PIECES[kind], update)
        elif kind in ("tool_call", "tool_call_update"):
            self._call(update)
        elif kind == "plan":
            self._plan = _entries(update.get("entries"))
        elif kind == "usage_update":
            self.cost = _cost(update.get("cost")) or self.cost
        elif kind == "user_message_chunk":
            self.replayed += 1

    @property
    def is_between(self) -> bool:
        """Whether the agent's last calls have ended, and it has said nothing since: it asks its model what to do."""
        ended = all(call.known.get("status") in _ENDED for call in self._calls.values())
        return self._after_call and ended

    def called(self, call: str) -> dict[str, Any]:
        """Return a tool call's known fields, {} if unknown."""
        return dict(self._calls[call].known) if call in self._calls else {}

    def refuse(self, call: str) -> None:
        """Record a denied tool call, so that it cannot count as done."""
        self._refused.add(call)

    def add(self, turn: TurnRecord) -> None:
        """Add a turn without an update, such as a permission decision."""
        self._settle()
        self._add(turn)

    def finish(self, usage: TokenUsage | None = None, model: str | None = None) -> None:
        """Record open turns. `usage`, of the whole prompt, goes to its last message."""
        self._settle(usage, model)
        for call in list(self._calls):
            self._end_call(call)
        if self._plan:
            done = sum(entry["status"] == "completed" for entry in self._plan)
            text = f"{done} of {len(self._plan)} done"
            self._add(TurnRecord("tool", text, tool="plan", result=self._plan))
            self._plan = []

    def _add(self, turn: TurnRecord) -> None:
        self.turns.append(turn)
        self._record(turn)

    def _piece(self, what: str, update: Mapping[str, Any]) -> None:
        text = _text(update.get("content"))
        message_id = update.get("messageId")
        # An agent's own messages, such as warnings, have no id although others have.
        if what != self._open or message_id != self._message_id:
            self._bound()
            self._settle()
            self._open, self._began = what, time.monotonic()
        self._message_id = message_id
        if what == _MESSAGE and message_id is None:
            self.aside = text.strip() or self.aside
        self.answered = self.answered or (what == _MESSAGE and message_id is not None)
        self._size += len(text)
        if self._size > MOST:
            raise TooMuch(f"said more than {MOST // 1024 // 1024} million characters in one turn")
        self._pieces.append(text)

    def _settle(self, usage: TokenUsage | None = None, model: str | None = None) -> None:
        if self._ended is not None:
            self._end_call(self._ended)
        text, what = "".join(self._pieces), self._open
        took = round((time.monotonic() - self._began) * 1000)
        self._pieces, self._open = [], ""
        if what == _MESSAGE and text.strip():
            self._add(TurnRecord("assistant", text, usage=usage, duration_ms=took, model=model))
        elif what == _THOUGHT and text.strip():
            self._add(TurnRecord("tool", cut_text(text, _KEPT_THOUGHT), tool="thought", duration_ms=took))

    def _call(self, update: Mapping[str, Any]) -> None:
        call = update.get("toolCallId")
        if not isinstance(call, str):
            return
        if call != self._ended:
            self._settle()
        if call not in self._calls:
            self._bound()
            if len(self._calls) >= OPEN:
                raise TooMuch(f"has more than {OPEN} tool calls under way at once")
            self._calls[call] = _Call(time.monotonic(), {})
        known = self._calls[call].known
        for key in ("title", "kind", "status", "rawInput", "rawOutput", "content", "locations"):
            if update.get(key) not in (None, [], {}):
                known[key] = update[key]
        _take_terminal(update.get("_meta"), known)
        self._ended = call if known.get("status") in _ENDED else None
        if known.get("status") == "completed" and call not in self._refused and self._is_forbidden(known):
            what = cut_text(_line(known.get("title")), 200)
            raise TooMuch(f"did what the tool policy forbids: {kind_of(known)}: {what}")

    def _is_forbidden(self, known: Mapping[str, Any]) -> bool:
        if kind_of(known) not in self._forbidden:
            return False
        # Some call a tool of an MCP server an execution; policies have another name for that.
        raw_input = known.get("rawInput")
        return not (isinstance(raw_input, Mapping) and "server" in raw_input and "command" not in raw_input)

    def _bound(self) -> None:
        if len(self._calls) + len(self.turns) >= CALLS:
            raise TooMuch(f"made more than {CALLS} turns of one")

    def _end_call(self, call: str) -> None:
        self._ended = None
        began, known = self._calls.pop(call)
        status = known.get("status")
        result: dict[str, Any] = {"status": status if isinstance(status, str) else "pending"}
        text, diffs = _contents(known.get("content"))
        text = text or known.get(_PRINTED, "")
        if known.get(_LEFT_OUT):
            text += f"\n[… {known[_LEFT_OUT]} more characters are left out …]"
        if _EXIT in known:
            result["exitCode"] = known[_EXIT]
        if text:
            result["text"] = text
        if diffs:
            result["diffs"] = diffs
        if "rawOutput" in known and not text:
            result["output"] = bounded(known["rawOutput"])
        paths = _paths(known.get("locations"))
        if paths:
            result["paths"] = paths
        self._add(
            TurnRecord(
                "tool",
                cut_text(_line(known.get("title")), 500),
                tool=_line(known.get("kind")) or "other",
                arguments=bounded(known.get("rawInput")),
                result=result,
                duration_ms=round((time.monotonic() - began) * 1000),
                call=call[:200],
                failed=status == "failed",
            )
        )


def usage_of(answer: Mapping[str, Any]) -> TokenUsage | None:
    """Return the tokens in a prompt's answer, or None."""
    usage = answer.get("usage")
    if not isinstance(usage, Mapping):
        return _quota(answer.get("_meta"))
    plain, out = _count(usage.get("inputTokens")), _count(usage.get("outputTokens"))
    read, written = _count(usage.get("cachedReadTokens")), _count(usage.get("cachedWriteTokens"))
    thought, total = _count(usage.get("thoughtTokens")), _count(usage.get("totalTokens"))
    # Agents count cached tokens inside or outside the input; the total tells which.
    included = total in (plain + out, plain + out + thought)
    beside = 0 if included else read + written
    if total == plain + beside + out + thought:
        out += thought
    return TokenUsage(plain + beside, out, read, written)


def _quota(meta: Any) -> TokenUsage | None:
    quota = meta.get("quota") if isinstance(meta, Mapping) else None
    tokens = quota.get("token_count") if isinstance(quota, Mapping) else None
    if not isinstance(tokens, Mapping):
        return None
    return TokenUsage(_count(tokens.get("input_tokens")), _count(tokens.get("output_tokens")))


def bounded(value: Any) -> Any:
    """Return a JSON value, or its text if too large, too deep or not storable."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return cut_text(repr(value)[: 2 * _KEPT_TEXT], _KEPT_TEXT)
    if len(text) > _KEPT_TEXT or not _sound(value, _DEEPEST):
        return cut_text(text, _KEPT_TEXT)
    return value


def _sound(value: Any, depth: int) -> bool:
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_sound(item, depth - 1) for item in items)
    return not isinstance(value, int) or abs(value) < 1 << 53


def _text(content: Any) -> str:
    if not isinstance(content, Mapping):
        return ""
    kind = content.get("type")
    if kind == "text":
        return content["text"] if isinstance(content.get("text"), str) else ""
    resource = content.get("resource")
    if isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    return f"[{_line(kind)} {_line(content.get('uri') or content.get('name') or '')}]".replace(" ]", "]")


def _contents(content: Any) -> tuple[str, list[dict[str, Any]]]:
    texts: list[str] = []
    diffs: list[dict[str, Any]] = []
    for item in content if isinstance(content, list) else ():
        if not isinstance(item, Mapping):
            continue
        if item.get("type") == "diff":
            sides = {"old": item.get("oldText"), "new": item.get("newText")}
            kept = {side: cut_text(text, _KEPT_TEXT) for side, text in sides.items() if isinstance(text, str)}
            diffs.append({"path": _line(item.get("path")), **kept})
        else:
            texts.append(_text(item.get("content")))
    return cut_text("\n".join(filter(None, texts)), _KEPT_TEXT), diffs[:_KEPT_ENTRIES]


def _take_terminal(meta: Any, known: dict[str, Any]) -> None:
    if not isinstance(meta, Mapping):
        return
    for key in ("terminal_output", "terminal_output_delta"):
        data = meta[key].get("data") if isinstance(meta.get(key), Mapping) else None
        if isinstance(data, str):
            before = known.get(_PRINTED, "")
            known[_PRINTED] = before + data[: _KEPT_TEXT - len(before)]
            known[_LEFT_OUT] = known.get(_LEFT_OUT, 0) + len(before) + len(data) - len(known[_PRINTED])
    end = meta.get("terminal_exit")
    if isinstance(end, Mapping) and isinstance(end.get("exit_code"), int):
        known[_EXIT] = end["exit_code"]


def _paths(locations: Any) -> list[str]:
    paths = [item.get("path") for item in locations or () if isinstance(item, Mapping)]
    return [path[:4096] for path in paths if isinstance(path, str)][:_KEPT_ENTRIES]


def _entries(entries: Any) -> list[dict[str, Any]]:
    return [
        {"content": cut_text(_line(entry.get("content")), 500), "status": _line(entry.get("status"))}
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, Mapping)
    ][:_KEPT_ENTRIES]


def _cost(cost: Any) -> Cost | None:
    if not isinstance(cost, Mapping):
        return None
    amount, currency = cost.get("amount"), cost.get("currency")
    if not isinstance(amount, int | float) or isinstance(amount, bool) or not 0 <= amount < 1e9:
        return None
    return Cost(float(amount), currency if isinstance(currency, str) else "USD")


def _line(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0
