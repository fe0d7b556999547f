"""Permission requests of a program that asks on its output and reads answers on its input, as claude does with
`--input-format stream-json --permission-prompt-tool stdio`. Lines of JSON:

    {type: control_request, request_id, request: {subtype: can_use_tool, tool_name, input, tool_use_id}}
    {type: control_cancel_request, request_id}
    {type: control_response, response: {subtype: success, request_id, response}}

The response is {behavior: allow, updatedInput} or {behavior: deny, message}. What the policy leaves open waits in the
inbox; if nobody decides in time, it is denied.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.agents import permissions
from uwf_git.plugin import TurnRecord

if TYPE_CHECKING:
    from uwf_git.kit import Context
    from uwf_git.plugin import PermissionDecision, PermissionDesk

_MOST_UNREAD = 64 << 20  # bytes of answers to a program that doesn't read them
_KINDS = {
    **dict.fromkeys(("Bash", "Monitor"), "execute"),
    **dict.fromkeys(("Edit", "MultiEdit", "Write", "NotebookEdit"), "edit"),
    **dict.fromkeys(("WebFetch", "WebSearch"), "fetch"),
    "Read": "read",
}
# Input of tools whose command or path is certain. A person sees what is written there too.
_PLAIN = {
    "Bash": {"command", "description", "timeout"},
    "Edit": {"file_path", "old_string", "new_string", "replace_all"},
    "Write": {"file_path", "content"},
    "Read": {"file_path", "offset", "limit"},
}
_OPTIONS = [{"optionId": "allow", "kind": "allow_once"}, {"optionId": "deny", "kind": "reject_once"}]
_REFUSALS = {
    "policy": "The configuration of this run forbids it.",
    "person": "The user denied it.",
    "nobody": "Nobody is there to allow it.",
}


class _Pending(NamedTuple):
    """A request for a call. In the inbox it has the id `at_desk`, until `deadline` on time.monotonic()."""

    request: permissions.Request
    content: dict[str, Any]
    call: str
    at_desk: str = ""
    deadline: float = 0.0


class PermissionChannel:
    """Answers the requests of a run. `record` takes the turns that say how they were decided."""

    def __init__(self, ctx: Context, desk: PermissionDesk, record: Callable[[TurnRecord], None]) -> None:
        self._ctx = ctx
        self._desk = desk
        self._record = record
        self._waiting: dict[str, _Pending] = {}
        self._answers = bytearray()
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether a person may still decide something. A program that doesn't read its input gets no answer."""
        now = time.monotonic()
        return any(now < pending.deadline for pending in self._waiting.values())

    def take(self, value: Any, line: bytes) -> bool:
        """Return whether a printed value belongs to the protocol; a request is decided, or has to wait. `line` is the
        value as printed: what is allowed goes back as it came."""
        if not isinstance(value, Mapping) or not isinstance(name := value.get("request_id"), str):
            return False
        if value.get("type") == "control_cancel_request":
            self._withdraw(name)
            return True
        if value.get("type") != "control_request":
            return False
        match value.get("request"):
            case {"subtype": "can_use_tool", "tool_name": str(tool), "input": content, **more}:
                if name not in self._waiting:
                    self._decide(name, tool, _exact(content, line), str(more.get("tool_use_id")))
            case _:
                error = "only can_use_tool is answered here"
                self._send({"subtype": "error", "request_id": name, "error": error})
        return True

    def answers(self) -> bytes:
        """Return the lines that answer what is decided by now, each once."""
        for name, pending in [*self._waiting.items()]:
            if time.monotonic() < pending.deadline and self._desk.decision(pending.at_desk) is None:
                continue
            decision = self._withdraw(name)
            self._answer(
                name,
                pending,
                permissions.answer(pending.request, False, "nobody")
                if decision is None
                else permissions.by_person(pending.request, decision),
            )
        answers = bytes(self._answers)
        self._answers.clear()
        return answers

    def close(self) -> None:
        """Withdraw all that waits, and let nothing wait from now on: the program gets no more input."""
        self._is_closed = True
        for name in [*self._waiting]:
            self._withdraw(name)

    def _decide(self, name: str, tool: str, content: dict[str, Any] | None, call: str) -> None:
        if content is None:
            self._respond(name, {"behavior": "deny", "message": "The input cannot be read."})
            return
        ctx, desk = self._ctx, self._desk
        request = _request(tool, content, ctx.cwd)
        pending = _Pending(request, content, call)
        places = None if ctx.mounts is None else ctx.mounts.places
        decision = permissions.decide(request, ctx.policy, ctx.cwd, places)
        if decision is None and (standing := desk.standing(request.wish)) is not None:
            decision = permissions.by_person(request, standing)
        if decision is None and not self._is_closed and (patience := desk.patience) is not None:
            at_desk = desk.put(request.wish, time.time() + patience)
            if at_desk is not None:
                ctx.show(f"asks for leave to {request.shown}\n".encode("utf-8", "replace"))
                self._waiting[name] = pending._replace(at_desk=at_desk, deadline=time.monotonic() + patience)
                return
        self._answer(name, pending, decision or permissions.answer(request, False, "nobody"))

    def _answer(self, name: str, pending: _Pending, decision: permissions.Decision) -> None:
        self._record(permissions.turn_of(pending.request, decision, pending.call))
        if decision.granted:
            self._respond(name, {"behavior": "allow", "updatedInput": pending.content})
        else:
            self._respond(name, {"behavior": "deny", "message": _REFUSALS[decision.by]})

    def _respond(self, name: str, response: dict[str, Any]) -> None:
        self._send({"subtype": "success", "request_id": name, "response": response})

    def _send(self, response: dict[str, Any]) -> None:
        if len(self._answers) < _MOST_UNREAD:
            self._answers += json.dumps({"type": "control_response", "response": response}).encode() + b"\n"

    def _withdraw(self, name: str) -> PermissionDecision | None:
        pending = self._waiting.pop(name, None)
        return None if pending is None else self._desk.withdraw(pending.at_desk)


def _exact(content: Any, line: bytes) -> dict[str, Any] | None:
    """Return the input of a request as it was printed, None unless that is what was read of it."""
    try:
        exact = json.loads(line)["request"]["input"]
        return exact if isinstance(exact, dict) and exact == content else None
    except (ValueError, RecursionError):
        return None


def _request(tool: str, content: dict[str, Any], folder: Path) -> permissions.Request:
    path = content.get("file_path")
    title = f"{tool} {path}" if isinstance(path, str) else tool
    call = {"kind": _KINDS.get(tool, "other"), "title": title, "rawInput": content}
    request = permissions.parse_request(call, _OPTIONS, folder)
    if content.keys() <= _PLAIN.get(tool, set()):
        return request
    return request._replace(unread=json.dumps(content, ensure_ascii=False))
