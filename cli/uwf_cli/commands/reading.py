"""`uwf thread` show, steps, read, step-details, attempts, diff, log."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import changed_files, terminal
from uwf_cli.command import command
from uwf_cli.commands.permitting import request_part
from uwf_cli.completers import complete_step, complete_thread
from uwf_cli.invocation import Invocation, find_head, find_thread
from uwf_cli.options import THREAD
from uwf_cli.output import (
    approval_lines,
    as_json,
    as_yaml,
    branches_text,
    credited,
    dollars,
    iso,
    seconds_of,
    whose,
)
from uwf_cli.views import Column, Record, Table
from uwf_git.base.text import counted, duration, one_line
from uwf_git.base.thread_states import ABSENT, ThreadState, asking_text, words
from uwf_git.format.types import next_name, role_name

if TYPE_CHECKING:
    from uwf_git.api.workspaces import Changes
    from uwf_git.format.ids import Hash
    from uwf_git.format.kinds import Attempt
    from uwf_git.store.attempts import FailedAttempt
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance


_LISTED = 10  # branches that a thread's state lists
_URGENCY = {
    word: place
    for place, word in enumerate(
        (
            *words((ThreadState.FAILING, ThreadState.ASKING, ThreadState.KILLED)),
            ABSENT,
            ThreadState.RUNNING.word,
        )
    )
}


@command("uwf thread show 01JK7M")
@THREAD
def show(invocation: Invocation, thread: str) -> None:
    """Show a thread's status and its next role."""
    from uwf_git.api.states import standing

    instance = invocation.instance
    head = find_head(invocation, thread)
    value = {**standing(instance, head), **_code_of_thread(invocation, head)}
    shown = {**value, "name": head.row.name, "number": head.row.number, "updated": iso(head.updated)}
    invocation.emit(value, _STATE, shown)


def _code_of_thread(invocation: Invocation, head: Head) -> dict[str, Any]:
    """Return `workspace` and `code` of a thread that has them; for people, also the number of changed files."""
    from uwf_git.api import workspaces

    value: dict[str, Any] = {}
    if (place := workspaces.workspace_of(invocation.instance, head.thread)) is not None:
        value["workspace"] = place
    if (code := workspaces.recorded(invocation.instance, head)) is not None:
        value["code"] = {"commit": code.commit, "base": code.base}
        if invocation.format == "text":
            changed = workspaces.changes(invocation.instance, head.thread, code)
            files = [file.as_json() for file in changed.files]
            value["code"]["changed"] = changed.absence or changed_files.summary(files)
        if head.archive is not None:
            from uwf_git.api.outcome import code_left, code_next

            instance = invocation.instance
            if (left := code_left(instance, instance.threads.position(head))) is not None:
                value["code"] |= left.as_json()
                if invocation.format == "text":
                    value["code"]["next"] = code_next(instance, head, left).command
    return value


def _step(state: Any) -> str:
    if not state["number"]:
        return f"{state['head']}  not stepped yet"
    return f"{state['head']}  step {state['number']}, {role_name(state['role'])} {whose(state)}"


def _run(state: Any) -> str:
    return f"by a process here; uwf thread stop {state['thread']}" if state.get("run") else ""


def _warnings(state: Any) -> list[tuple[str, str]]:
    """Return the code's warnings, whether and how it is merged, and what a person is not shown of it."""
    code, shown = state.get("code", {}), state.get("shown", {})
    return [
        *(("beware", warning) for warning in code.get("warnings", ())),
        ("merge", _merge(code)),
        *(("beware", warning) for warning in shown.get("code", {}).get("warnings", ())),
        ("changes", shown.get("unshown", "")),
    ]


def _merge(code: Any) -> str:
    command, merge = code.get("next"), code.get("merge")
    return command if not command or command == merge else f"{command}, or by hand: {merge}"


def _origins(state: Any) -> list[tuple[str, str]]:
    pairs = []
    if origin := state.get("branchOf"):
        parent = f"thread {origin['thread']}" if origin["thread"] else "a thread that is not here"
        pairs.append(("branch", f"{origin['index']} of {parent}, from {origin['step']} on"))
    if origin := state.get("resumedFrom"):
        ended = f"thread {origin['thread']}, " if origin["thread"] else ""
        pairs.append(("goes on", f"from the end of {ended}{origin['step']}"))
    if origin := state.get("divergedFrom"):
        pairs.append(("diverged", f"from thread {origin['thread']} after {origin['at']}"))
    if origin := state.get("forkedFrom"):
        by = origin["by"].partition(" <")[0] or "somebody"
        after = f"from thread {origin['thread']} after {origin['step']}"
        pairs.append(("forked", f"{after} by {by}, {origin['at']}"))
    return pairs + [("other side", f"thread {side}") for side in state.get("otherSides", ())]


def _questions(value: Any) -> list[tuple[str, str]]:
    """Return the question with its options; of several calls each question, with the command that answers it."""
    if len(questions := value.get("questions", ())) < 2:
        options = value.get("options", ())
        return [("question", value.get("question") or ""), ("options", _options(options))]
    shown = questions[:_LISTED]
    pairs = []
    for item in shown:
        pairs.append(("question", f"call {item['thread']}: {item['question']}"))
        pairs.append(("options", _options(item["options"])))
        pairs.append(("answer", item["command"]))
    if more := len(questions) - len(shown):
        pairs.append(("question", f"and {more} more: uwf inbox"))
    return pairs


def _options(options: Sequence[str]) -> str:
    return "\n".join(f"- {one_line(option, 100)}" for option in options)


def _census(state: Any) -> str:
    from uwf_git.engine.census import census_text

    return census_text(state["census"]) if state.get("census") is not None else ""


def _branches(state: Any) -> list[tuple[str, str]]:
    """Return how many branches stand how, and those that have not ended, failed first; once joined, all of them."""
    if (branches := state.get("branches")) is None:
        return []
    open_branches = [
        item
        for item in branches["each"]
        if item["status"] != ThreadState.COMPLETED.word or "fork" in branches
    ]
    open_branches.sort(key=lambda entry: _URGENCY.get(entry["status"], len(_URGENCY)))
    lines = [
        f"- {branch['thread']}  {terminal.status(branch['status'])}  branch {branch['index']}: {branch['item']}"
        for branch in open_branches[:_LISTED]
    ]
    if len(open_branches) > _LISTED:
        lines.append(f"- and {len(open_branches) - _LISTED} more")
    counted_by_status = branches_text(branches["counts"], branches["ended"])
    if "fork" in branches:
        return [
            ("branches", f"{counted_by_status}, joined after step {branches['fork']}"),
            ("", "\n".join(lines)),
        ]
    return [("branches", counted_by_status), ("left", "\n".join(lines))]


def _is_closed(state: Any) -> bool:
    """Return whether it waits at a gate that nobody can pass."""
    return "approvals" in state and not state["approvals"]["reachable"]


def _approvals(state: Any) -> list[tuple[str, str]]:
    if (approvals := state.get("approvals")) is None:
        return []
    rules = [f"{approvals['quorum']} of {', '.join(approvals['approvers'])}"]
    rules += ["none who made it"] if approvals["notAuthor"] else []
    rules += ["signed"] if approvals["signed"] else []
    return [
        ("approvers", ", ".join(rules)),
        ("approved", "\n".join(f"- {line}" for line in approval_lines(approvals))),
        ("missing", "\n".join(filter(None, (approvals["needs"], approvals["way"])))),
        ("shown", approvals["shown"]["digest"]),
    ]


def _fields(state: Any) -> str:
    return "\n".join(
        f"- {field['name']}: {' or '.join(field.get('choices', ())) or field['kind']}"
        + ("" if field["required"] else ", optional")
        for field in state.get("fields", ())
    )


def _reached(thread: Any) -> list[tuple[str, str]]:
    if (state := thread.get("state")) is None:
        return []
    variables = (
        f"{name}: {one_line(as_json(variable, compact=True))}"
        for name, variable in state["variables"].items()
    )
    decided = (
        f"{item['from']} → {item['to']}" + (f" ({item['label']})" if item["label"] else "")
        for item in state["decisionLog"]
    )
    return [
        ("at node", state["currentNodeId"]),
        ("completed", ", ".join(state["stepsCompleted"])),
        ("decided", "\n".join(decided)),
        ("variables", "\n".join(variables)),
        ("artifacts", "\n".join(state["artifacts"])),
    ]


def _paused(state: Any) -> str:
    if not (pause := state.get("paused")):
        return ""
    by = pause["by"].partition("<")[0].strip() or "somebody"
    return f"{pause['at']} by {by}" + (f": {pause['reason']}" if pause["reason"] else "")


def _running(state: Any) -> list[tuple[str, str]]:
    if (running := state.get("running")) is None:
        return []
    from uwf_cli.watching.lines import lasted, spent

    who = f"{role_name(running['role'])} {whose(running)}, since {lasted(running['seconds'])}"
    known = spent({**running, "last": ""})
    child = f"thread {running['child']['thread']}" if "child" in running else ""
    return [("at work", " · ".join([who, *known])), ("last", running["last"]), ("child", child)]


def _remarks(state: Any) -> list[tuple[str, str]]:
    if not state.get("remarks"):
        return []
    from uwf_git.engine.steering import fate

    return [("remark", f"{one_line(remark['text'], 200)} · {fate(remark)}") for remark in state["remarks"]]


def _permissions(state: Any) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for request in state.get("permissions", ()):
        lines, command = request_part(request)
        is_whole = command == request["commands"]["allow"]
        rows += [("asks leave", "\n".join(lines)), ("allow" if is_whole else "decide", command)]
    return rows


def _workspace(state: Any) -> str:
    if not (place := state.get("workspace")):
        return ""
    where = f"{place['path']}{'' if place['exists'] else ', which does not exist now'}"
    return f"{where}\nbranch {place['branch']}" if place["branch"] else where


def _code(state: Any) -> str:
    if not (code := state.get("code")):
        return ""
    merged = ", merged" if code.get("merged") else ""
    return f"{code['changed']}, {code['base'][:7]}..{code['commit'][:7]}{merged}"


def _work(state: Any) -> str:
    work = state.get("work")
    if not work:
        return ""
    problem = f": {work['problem']}" if "problem" in work else ""
    return " ".join(filter(None, (work["text"] + problem, work["url"])))


def _rehearsed(state: Any) -> str:
    made_up = state["rehearsed"]
    return f"{made_up} of {counted(state['number'], 'step')}, by uwf-rehearse" if made_up else ""


def _extraction(step: Any) -> str:
    how = step.get("extraction") or ""
    if model := how.removeprefix("model:") if how.startswith("model:") else "":
        return f"read out of the answer by the model {model}, not written by the agent"
    return "written when the agent was asked to correct itself" if how == "correction" else ""


_STATE = Record(
    *(("thread", "{thread:bold}"), ("workflow", "{name}  {workflow}"), ("status", "{status:status}")),
    *(
        ("below it", asking_text),
        ("paused", _paused),
        ("run", _run),
        ("head", _step),
        ("output", _extraction),
    ),
    *(("done by", "thread {child}"), ("made up", _rehearsed), ("workspace", _workspace), ("code", _code)),
    ("work", _work),
    _warnings,
    "updated",
    *(_running, _permissions, _remarks, ("asked", _census), _branches),
    *("error", "problem", "asks"),
    _questions,
    *(("fields", _fields), ("for", "assignee")),
    _approvals,
    (
        "answer",
        lambda state: (
            "" if len(state.get("questions", ())) > 1 or _is_closed(state) else state.get("command")
        ),
    ),
    "reason",
    *(_reached, _origins),
    ("next", lambda state: "" if state["done"] else next_name(state["next"] or "")),
)


@command("uwf thread steps 01JK7M")
@THREAD
def steps(invocation: Invocation, thread: str) -> None:
    """List a thread's steps with their outputs, oldest first."""
    from uwf_git.api.transcript import steps_of

    instance = invocation.instance
    invocation.emit(steps_of(instance, find_head(invocation, thread)), _steps_text)


_NUMBER = ("", "{number:4d}")


def _steps_text(value: Any) -> str:
    return Table(
        *(_NUMBER, "step", _time()),
        *(("role", lambda step: terminal.style(role_name(step["role"]), "bold")), ("agent", credited)),
        ("took", lambda step: duration(step["seconds"]) if step["seconds"] >= _SHORTEST else ""),
        *(("cost", _cost_of), ("output", "summary")),
        empty="no steps yet",
        free=-1,
        names=(3, 4),
        optional=("took", "cost"),
    )(value)


_SHORTEST = 0.1  # seconds that are shown


def _time() -> Column:
    return "time", "time" if terminal.width() is None else _short_time


def _short_time(step: Any) -> str:
    """Return the time of day of a step made today, else its day."""
    made = time.localtime(seconds_of(step["time"]))
    return time.strftime("%H:%M" if made[:3] == time.localtime()[:3] else "%Y-%m-%d", made)


def _cost_of(step: Any) -> str:
    return dollars(step["cost"], step["unpriced"]) if step["cost"] is not None or step["unpriced"] else ""


@command(
    "uwf thread read 01JK7M",
    "uwf thread read 01JK7M > thread.md",
    "uwf thread read 01JK7M --quota 20000    the newest steps, so many characters",
    "uwf thread read 01JK7M --before 8FWKR3TN5V1QA      what came before that step",
)
@THREAD
@click.option(
    "--quota", type=click.IntRange(min=1), metavar="N", help="Omit the oldest steps beyond N characters."
)
@click.option(
    "--before", metavar="HASH", help="Show only what precedes this step.", shell_complete=complete_step
)
def read(invocation: Invocation, thread: str, quota: int | None, before: str | None) -> None:
    """Print a thread as Markdown.

    The prompt comes first, then each step with its verdict, its output and the agent's other text. --format
    json has the full answers. --quota omits whole steps, oldest first; the newest is always printed.
    """
    from uwf_git.api.transcript import Transcript

    instance = invocation.instance
    head = find_head(invocation, thread)
    transcript = Transcript(instance, head, quota, instance.store.complete(before) if before else None)
    invocation.emit_document(transcript.parts(), transcript.value, rich=True)


@command(
    "uwf thread step-details 8FWKR3TN5V1QA",
    "uwf thread step-details 01JK7M@3             step 3 of a thread",
    "uwf thread step-details 8FWKR3 --format json | jq .detail.usage",
    "uwf thread step-details 01JK7M@3 --patch     and what it changed in the project",
)
@click.argument("step", metavar="HASH|ID@STEP", shell_complete=complete_step)
@click.option("--patch", "with_patch", is_flag=True, help="Include the patch, at most 1 MiB.")
def step_details(invocation: Invocation, step: str, with_patch: bool) -> None:
    """Show a step or a failed attempt with its output, all turns, and the files that it changed in the
    project. The default off a terminal is YAML."""
    from uwf_git.api import workspaces
    from uwf_git.api.cockpit.step import spent_by_node
    from uwf_git.api.find import find_step, with_step
    from uwf_git.api.transcript import details

    instance = invocation.instance
    node = find_step(instance, step, attempts=True)
    value = details(instance, node)
    name, number = with_step(step)
    thread = instance.threads.find(name) if number is not None else None
    first: dict[str, Any] = {key: value.pop(key) for key in ("step", "attempt") if key in value}
    took = spent_by_node(instance, node)
    if (code := workspaces.code_of_node(instance, thread, node, with_patch)) is not None:
        took["code"] = workspaces.changes_value(code, with_patch)
    value = {**first, **took, **value, **took}  # of an attempt's value, the code has no files
    if terminal.is_terminal(sys.stdout) and invocation.chosen_format not in ("json", "yaml"):
        shown = terminal.escape_value(value)
        if code is not None:
            files = [file.as_json() for file in code.files]
            shown["changed"] = terminal.escape(code.absence) or changed_files.summary(files)
            shown["code"] = _changes_text(code)
        invocation.write(_details_text(instance, node, shown))
    else:
        invocation.emit_document(as_yaml(value), value)


def _changes_text(changes: Changes) -> str:
    files = [file.as_json() for file in changes.files]
    summary = terminal.escape(changes.absence) or changed_files.summary(files)
    title = (
        f"{terminal.style('code', 'bold')}  {summary}, {changes.code.base[:7]}..{changes.code.commit[:7]}\n"
    )
    patch = f"\n{changed_files.patch(changes.patch)}" if changes.patch else ""
    return title + changed_files.listed(files) + patch


def _details_text(instance: Instance, node: Hash, value: Any) -> str:
    from uwf_cli.commands.conversation import turn_lines
    from uwf_git.api.conversation import turn_value, turns_of
    from uwf_git.api.transcript import step_page

    detail = (value["detail"] or {}).get("value")
    how = detail if isinstance(detail, dict) and "answer" in detail else {}
    fields = _DETAILS({**{name: how.get(name) for name in _OF_DETAIL}, **value})
    parts = [fields, terminal.markdown(step_page(instance, node))]
    if "code" in value:
        parts.append(value["code"])
    if how.get("turns"):
        # The last text is the answer above.
        shown = [terminal.escape_value(turn_value(turn)) for turn in turns_of(instance, node)]
        for item in shown:
            if item["role"] == "assistant" and item["text"].strip() == how["answer"].strip():
                item["text"] = "(the answer above)"
        parts.append(f"{terminal.style('turns', 'bold')}\n{turn_lines(shown)}\n")
    return "\n".join(parts)


def _took(details: Any) -> str:
    took = details.get("durationMs")
    return f"{took / 1000:.1f} s" if took and took >= 50 else ""


def _cost(spent: Any) -> str:
    return dollars(spent["cost"], spent["unpriced"]) if spent["cost"] is not None or spent["unpriced"] else ""


_OF_DETAIL = ("model", "durationMs", "usage", "cost", "session", "extraction", "notes", "instruction")
_DETAILS = Record(
    *("step", "attempt", "time", ("role", "{role:role}"), ("persona", "{persona[name]}"), "agent", "model"),
    ("took", _took),
    ("tokens", "{usage[input]:,} in, {usage[output]:,} out"),
    ("cost", lambda details: _cost(details["spent"])),
    "changed",
    *("session", ("output", _extraction), ("done by", "thread {child}")),
    ("notes", lambda details: "\n".join(details.get("notes") or ())),
    ("told", "instruction"),
)


@command("uwf thread attempts 01JK7M")
@THREAD
def attempts(invocation: Invocation, thread: str) -> None:
    """List a thread's failed attempts, oldest first. Everything the agents wrote is kept.

    JSON has the end of the answer and of the output beside it. What a killed step left is last, without an id: the next
    step records it.
    """
    from uwf_git.api.cockpit.step import answer_of_attempt
    from uwf_git.engine.unfinished import interrupted_attempt

    instance, wanted = invocation.instance, find_thread(invocation, thread)
    rows = [
        _attempt_value(
            attempt, attempt.hash, attempt.number, attempt.time, answer_of_attempt(instance, attempt)
        )
        for attempt in instance.attempts.all(wanted)
    ]
    if (left := interrupted_attempt(instance, instance.threads.head(wanted))) is not None:
        rows.append(_attempt_value(left, None, len(rows) + 1, instance.runs.began(wanted) or 0, ""))
    role = ("role", "{role:role}")
    columns = (_NUMBER, "attempt", _time(), role, "agent", "error")
    invocation.emit(rows, Table(*columns, empty="no failed attempts", names=(3, 4)))


def _attempt_value(
    attempt: Attempt | FailedAttempt, node: Hash | None, number: int, at: float, answer: str
) -> dict[str, Any]:
    value = {
        "attempt": node,
        "number": number,
        "prev": attempt.prev,
        "role": attempt.role,
        "agent": attempt.agent,
        "error": attempt.error,
        "detail": attempt.detail,
        "stdout": attempt.stdout,
        "stderr": attempt.stderr,
        "time": iso(at),
        "cause": attempt.cause,
        "answer": answer,
    }
    resets = {} if attempt.resets_at is None else {"resetsAt": iso(attempt.resets_at)}
    code = {} if attempt.code is None else {"code": attempt.code.payload()}
    return {**value, **resets, **code}


@command("uwf thread diff 01JK7M 01JK9Q", "uwf thread diff 01JK7M 01JK9Q --patch")
@click.argument("a", shell_complete=complete_thread)
@click.argument("b", shell_complete=complete_thread)
@click.option(
    "--patch",
    "with_patch",
    is_flag=True,
    help="Include the patch from A's code to B's, at most 1 MiB, and in JSON the lines that each changed.",
)
def diff(invocation: Invocation, a: str, b: str, with_patch: bool) -> None:
    """Show the steps that two threads share, where they diverge, and the files in which their code differs."""
    from uwf_git.api.cockpit.compare import changes_since, sides
    from uwf_git.api.transcript import compare
    from uwf_git.api.workspaces import code_between

    instance = invocation.instance
    heads = [find_head(invocation, name) for name in (a, b)]
    value = compare(instance, heads[0], heads[1])
    changes = changes_since(instance, heads, with_patch)
    for side, whole, changed in zip("ab", sides(instance, heads), changes, strict=True):
        value[side] |= {key: whole[key] for key in _OF_SIDE}
        value[side] |= {"code": changed} if changed is not None else {}
    if (code := code_between(instance, heads[0], heads[1], with_patch)) is not None:
        value["code"] = code
    invocation.emit(value, _diff_text)


_OF_SIDE = ("status", "seconds", "cost", "unpriced", "attempts", "origin", "verdicts")


def _diff_text(value: Any) -> str:
    same = value["workflow"]["same"]
    shared = value["shared"]
    if not same:
        lines = ["they run different workflows: " + " and ".join(value["workflow"]["hashes"])]
    elif not value["start"]["same"]:
        lines = ["one workflow, different prompts"]
    elif not shared:
        lines = ["the same start, no step in common"]
    else:
        lines = [f"{counted(len(shared), 'step')} in common, the last {shared[-1]['step']}"]
    for side in ("a", "b"):
        only = value[side]["steps"]
        lines.append("")
        what = [terminal.status(value[side]["status"])]
        what += [duration(value[side]["seconds"])] if value[side]["seconds"] >= 0.05 else []
        changed = value[side].get("code", {}).get("files")
        what += filter(None, [_cost(value[side]), changed and changed_files.summary(changed)])
        what += [] if only else ["nothing more"]
        lines.append(f"{terminal.style(value[side]['thread'], 'bold')}  {' · '.join(what)}")
        if only:
            rows = Table(_NUMBER, ("", "step"), ("", "{role:role}"), ("", "summary"), free=-1, names=(2,))
            lines.append(rows(only).rstrip("\n"))
    if "code" in value:
        lines += ["", _code_difference(value["code"])]
    return "\n".join(lines)


def _code_difference(code: Any) -> str:
    sides = " and ".join(code[side][:7] if code[side] else "none" for side in ("a", "b"))
    title = f"{terminal.style('code', 'bold')}  {sides}: "
    if code["a"] is None or code["b"] is None:
        return f"{title}one of them has no code"
    if code["files"] is None:
        return f"{title}these commits are not in one repository of this machine"
    if not code["files"]:
        return f"{title}the same files"
    parts = [
        f"{title}{changed_files.summary(code['files'])}",
        changed_files.listed(code["files"]).rstrip("\n"),
    ]
    if "patch" in code:
        parts += ["", changed_files.patch(code["patch"])]
    return "\n".join(parts)


@command("uwf thread log 01JK7M")
@THREAD
def log(invocation: Invocation, thread: str) -> None:
    """List a thread's commits, newest first. The last one is the workflow version it started with."""
    from uwf_git.api.transcript import commits

    instance = invocation.instance
    rows = commits(instance, find_head(invocation, thread))
    commit = ("", lambda entry: terminal.style(entry["commit"][:10], "yellow"))
    invocation.emit(rows, Table(commit, ("", "time"), ("", "author"), ("", "subject")))
