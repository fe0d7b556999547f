"""`uwf watch`: one line per event, never redrawn, for screen readers, files and slow lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation, adopt_news, find_thread
from uwf_cli.output import dollars, who_waits, whose
from uwf_cli.watching.lines import lasted
from uwf_git.base.errors import (
    AgentFailed,
    NotFound,
    NoTransition,
    Paused,
    StoreDamaged,
    Waiting,
)
from uwf_git.base.lifetime import deferred
from uwf_git.base.text import counted, numbered, one_line
from uwf_git.base.thread_states import Request, ThreadState
from uwf_git.format.types import END, USER, next_name, role_name

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

_TICK = 0.3  # seconds between two looks
_LABEL = 6  # characters of an id, which is as many as `thread run` of several shows
_SAID = 300  # characters of a text
_CALLED = 120  # and of a call and its result
_INDENT = 10  # columns of the time, under which a question's further lines begin


@command(
    "uwf watch                     all threads, until Ctrl-C",
    "uwf watch 01JK7M              one of them, until it rests",
    "uwf watch --format json | jq -r 'select(.event == \"waiting\") | .question'",
)
@click.argument("thread", metavar="[ID]", required=False, shell_complete=complete_thread)
def watch(invocation: Invocation, thread: str | None) -> None:
    """Print events of threads, one per line: steps, turns, tool calls, questions, ends.

    Works with screen readers, ssh and pipes: no line is redrawn. With an ID, watch the thread and its branches until
    no process works on it; the exit status is that of thread run.
    """
    from uwf_git.api.events import Events

    thread_id = find_thread(invocation, thread) if thread else None
    if thread_id is not None:
        _one(invocation, thread_id)
        return
    adopt_news(invocation)
    happening = Events(invocation.instance)
    with suppress(KeyboardInterrupt):
        while True:
            for value in happening.news():
                _notify(invocation, value, _labelled)
            time.sleep(_TICK)


def _notify(invocation: Invocation, value: Mapping[str, Any], text: Callable[[Any], str]) -> None:
    if invocation.format == "text" and value["event"] == "started" and "branch" in value:
        return  # the fork says how many they are
    # A Ctrl-C right after the line was written would have it written once more at the end.
    with deferred():
        invocation.emit(value, text, compact=True)


def _one(invocation: Invocation, thread: ThreadId) -> None:
    from uwf_git.api.events import Events

    invocation.going_on = f"uwf watch {thread} goes on watching"
    happening = Events(invocation.instance, thread)
    values: Iterable[Mapping[str, Any]] = ()
    if not invocation.instance.locks.is_at_work(thread):
        values = happening.standing(thread)
    error, begun = "", False
    while True:
        for value in values:
            if value["thread"] != thread:
                _notify(invocation, value, _labelled)
                continue
            _notify(invocation, value, _line)
            error = value.get("error", error)
            is_over = _is_over(invocation.instance, thread, value, error)
            begun = begun or value["event"] != "rests"
            if is_over and begun:
                return
        time.sleep(_TICK)
        values = happening.news()


def _is_over(instance: Instance, thread: ThreadId, value: Mapping[str, Any], error: str) -> bool:
    """Return whether a thread is finished or idle after an event. `error` is the last attempt's. Raises what
    `thread run` raises for a thread that waits, failed, was killed or is stuck."""
    again = f"uwf thread run {thread}"
    match value["event"], value.get("status"):
        case "ended", _:
            from uwf_git.api.outcome import raise_as_ended

            raise_as_ended(instance, instance.threads.head(thread))
            return True
        case "waiting", _:
            raise Waiting(f"thread {thread} waits for a person", value["command"])
        case "rests", ThreadState.PAUSED.word:
            raise Paused(f"thread {thread} is paused", f"uwf thread resume {thread}")
        case "rests", ThreadState.FAILING.word if error:
            raise AgentFailed(error, f"{again} goes on")
        case "rests", _ if value["problem"]:
            raise NoTransition(
                f"thread {thread} cannot continue: {value['problem']}", f"uwf thread show {thread}"
            )
        case "removed", _:
            raise NotFound(f"thread {thread} was removed", f"uwf thread restore {thread}")
        case "damaged", _:
            raise StoreDamaged(value["problem"], "uwf doctor")
    return bool(value["event"] == "rests")


def _labelled(value: Mapping[str, Any]) -> str:
    return _line(value, f"  {value['thread'][-_LABEL:]}")


def _line(value: Mapping[str, Any], label: str = "") -> str:
    """Return an event's line, on a terminal cut at its edge. A question is wrapped between words there, and the
    command below it is left whole."""
    when = datetime.fromisoformat(value["at"]).astimezone().strftime("%H:%M:%S")
    begin = f"{when}{label}  "
    first, *rest = _WORDS[value["event"]](value).split("\n")
    if (room := terminal.width()) is None:
        return "\n".join([begin + first, *rest])
    if value["event"] != "waiting":
        return "\n".join(terminal.cut(line, room) for line in (begin + first, *rest))
    lines = [
        begin + terminal.wrapped(first, len(begin))[0].lstrip(),
        *terminal.wrapped(first, len(begin))[1:],
    ]
    for line in rest[:-1]:
        lines += [line] if terminal.columns(line) <= room else terminal.wrapped(line.strip(), _INDENT)
    return "\n".join([*lines, *rest[-1:]])


def _started(value: Mapping[str, Any]) -> str:
    steps = f", with {counted(value['steps'], 'step')}" if value["steps"] else ""
    parent = f", for {value['parent'][-_LABEL:]}" if value["parent"] else ""
    return f"started: {value['name']}, {one_line(value['title'] or '', _CALLED)}{steps}{parent}"


def _step(value: Mapping[str, Any]) -> str:
    return f"step {value['step']} begins: {_who(value)}"


def _turn(value: Mapping[str, Any]) -> str:
    who = _by(value) if value["role"] == "assistant" else f"{_by(value)} is told"
    return f"{who}: {one_line(value['text'], _SAID) or 'nothing'}"


def _tool(value: Mapping[str, Any]) -> str:
    called = f"{_by(value)} calls {value['tool']} {_short(value['arguments'])}"
    came = _short(value["result"] if value["result"] not in (None, "") else value["text"])
    return f"{called}: {'it failed, ' if value['failed'] else ''}{came or 'done'}"


def _finished(value: Mapping[str, Any]) -> str:
    following = "the end" if value["next"] == END else value["next"] and next_name(value["next"])
    person = "a person remarked" if "remark" in value else "a person answered"
    parts = [
        f"step {value['step']} finished: {person if value['role'] == USER else _who(value)}",
        value["verdict"],
        f"next {following}" if following else "",
        lasted(value["seconds"]) if (value["seconds"] or 0) >= 1 else "",
        dollars(value["cost"]) if value["cost"] else "",
    ]
    return "; ".join(filter(None, parts))


def _failed(value: Mapping[str, Any]) -> str:
    return f"step {value['step']} failed: {_who(value)}; {one_line(value['error'], _SAID)}"


def _waiting(value: Mapping[str, Any]) -> str:
    who = f"{who_waits(value)}: " if value["kind"] != Request.BUDGET.value else ""
    why = f" ({value['reason']})" if value["reason"] else ""
    lines = [f"waiting: {who}{value['question'].strip()}{why}", *numbered(value["options"]), value["command"]]
    return "\n".join(lines).replace("\n", "\n" + " " * _INDENT)


def _rests(value: Mapping[str, Any]) -> str:
    if value["problem"]:
        return f"stuck: {value['problem']}"
    following = f", next {next_name(value['next'])}" if value["next"] else ""
    return f"nobody is at work: {value['status']}{following}"


def _paused(value: Mapping[str, Any]) -> str:
    who = value["by"].partition("<")[0].strip() or "somebody"
    return f"paused by {who}" + (f": {value['reason']}" if value["reason"] else "")


def _ended(value: Mapping[str, Any]) -> str:
    return f"ended: {value['status']}" + (f", {value['reason']}" if value["reason"] else "")


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "started": _started,
    "step": _step,
    "turn": _turn,
    "tool": _tool,
    "finished": _finished,
    "failed": _failed,
    "waiting": _waiting,
    "rests": _rests,
    "paused": _paused,
    "resumed": lambda value: "resumed: it may go on",
    "ended": _ended,
    "removed": lambda value: "removed",
    "damaged": lambda value: f"cannot be read: {value['problem']}",
}


def _who(value: Mapping[str, Any]) -> str:
    return f"{role_name(value['role'])} {whose(value)}"


def _by(value: Mapping[str, Any]) -> str:
    return role_name(value["by"]) if value["by"] else "somebody"


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _CALLED)
