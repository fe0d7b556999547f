"""The tabs of a thread: its question or result, its steps, its changes, its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from uwf_git.ext.top.lines import Line, asking, code_line, fit, flat, line, lines, patch
from uwf_git.ext.top.question import Question, question_at
from uwf_git.plugin import (
    Head,
    Instance,
    JudgedCode,
    ListedThread,
    ThreadId,
    ThreadState,
    UwfError,
    WantedParts,
    as_yaml,
    attempt_view,
    changed_files,
    cut_text,
    duration_text,
    in_dollars,
    next_prompt,
    numbered_lines,
    patch_files,
    presented_at,
    presented_code,
    role_name,
    run_view,
    step_view,
    thread_items,
    thread_state,
    thread_states,
)

LIVE, STEPS, DIFF, PROMPT = TABS = ("live", "steps", "diff", "prompt")


class Content(NamedTuple):
    """The lines of a tab; with the `question` that they ask, if any."""

    lines: tuple[Line, ...]
    question: Question | None = None


def content(instance: Instance, thread: ThreadId, tab: str, number: int | None) -> Content:
    """Return a tab of a thread; `number` is that of the chosen step, or of a failed attempt: -1 is the first. None is
    for the whole thread. An error of reading is a line."""
    try:
        head = instance.threads.head(thread)
        match tab:
            case "live":
                return _now(instance, head)
            case "steps":
                return Content(tuple(_steps(instance, head)))
            case "diff":
                return Content(tuple(_changes(instance, head, number)))
            case _:
                return Content(tuple(_prompt(instance, head, number)))
    except UwfError as error:
        return Content((line(error.message, "bad"), line(error.hint, "dim")))
    except (OSError, ValueError, RecursionError) as error:
        return Content((line(f"this cannot be shown: {error}", "bad"),))


# The thread now


def _now(instance: Instance, head: Head) -> Content:
    state = thread_state(instance, head)
    question = question_at(instance, head, state)
    if question is None:
        shown = _shown if state is ThreadState.CALL_ASKS else partial(_rest, state=state)
        return Content(tuple(shown(instance, head)))
    if question.permission:
        return Content(tuple(_question(question)), question)
    shown = _last if question.is_budget else _shown
    return Content((*_question(question), *shown(instance, head)), question)


def _question(question: Question) -> Iterator[Line]:
    who = role_name(question.role) if question.role else "the thread"
    if question.is_budget:
        yield line(f"over budget: {question.reason}", "bold")
        yield line(question.command, "calm")
        yield Line("")
        return
    yield line(f"{who} asks you", "bold")
    text = question.text if question.permission else cut_text(question.text, _QUESTION)
    yield from asking(text, "bold")
    for number, option in enumerate(numbered_lines(question.options), 1):
        yield from asking(f"  {option}", "warn", number)
    if question.reason:
        yield line(f"({question.reason})", "dim")
    if len(question.fields) > 1 or (question.fields and not question.options):
        for field in question.fields:
            choices = " | ".join(field.choices) or field.kind
            must = "" if field.required else ", optional"
            yield line(f"  {field.name}: {choices}{must}  {field.description}", "dim")
    yield Line("")


def _shown(instance: Instance, head: Head) -> Iterator[Line]:
    """Yield what a person looks at before they answer: the changes first, since they are what is judged."""
    shown = presented_at(instance, head)
    if shown is None:
        return
    if (code := shown.code) is not None:
        for warning in code.warnings:
            yield line(f"beware: {warning}", "warn")
        yield from _code(code)
        if code.since is not None:
            yield line("changes by hand since then", "bold")
            yield from patch(code.since.patch)
        yield Line("")
    if shown.unshown:
        yield line(shown.unshown, "warn")
    if (last := shown.last) is not None:
        yield line(f"{role_name(last.role)}, step {last.number}", "bold")
        yield from lines(last.problem or last.answer.strip() or as_yaml(last.output), indent="  ")
    yield line("the task", "bold")
    yield from lines(shown.task, indent="  ")


def _rest(instance: Instance, head: Head, state: ThreadState) -> Iterator[Line]:
    """Yield the state of a thread that asks nothing, and why it is in it."""
    is_bad = state.group is thread_states.Group.FAILED
    yield line(f"{state.label}: {state.value.meaning}", "bad" if is_bad else "bold")
    (item,) = thread_items(instance, [ListedThread(head, state)])
    tried = instance.attempts.all(head.thread) if state is ThreadState.FAILING else ()
    if item["line"] and item["lineKind"] == "reason" and not tried:
        yield from lines(item["line"], "bad" if is_bad else "")
    if tried:
        yield from _attempt(instance, head, tried[-1].hash)
    yield Line("")
    yield from _last(instance, head)


def _attempt(instance: Instance, head: Head, node: str) -> Iterator[Line]:
    """Yield a failed attempt: its error, the answer that it had, and the end of what it had printed."""
    result = attempt_view(instance, head, node, WantedParts(("result",)))["result"]
    yield from lines(result["error"]["text"] or result["error"]["left"], "bad")
    answer = [] if result["answer"] is None else [("answer", result["answer"])]
    for name, part in (*answer, *reversed(result["printed"])):
        yield line(name, "dim")
        yield from lines(part["text"][-_TAIL:], indent="  ")


def _last(instance: Instance, head: Head) -> Iterator[Line]:
    shown = presented_code(instance, head)
    if (last := shown.last) is not None:
        yield line(f"{role_name(last.role)}, step {last.number}", "bold")
        yield from lines(last.problem or last.answer.strip() or as_yaml(last.output), indent="  ")
    else:
        yield line("the task", "bold")
        yield from lines(shown.task, indent="  ")


# Steps


def _steps(instance: Instance, head: Head) -> Iterator[Line]:
    value = run_view(instance, head)
    if value["first"] > 1:
        yield line(f"{value['first'] - 1} steps before these: uwf thread steps {head.thread}", "dim")
    tip = instance.attempts.tip(head.thread)
    tried = [row.node for row in instance.attempts.rows(tip)] if tip else []
    for bar in value["bars"]:
        is_attempt = bar["kind"] == "attempt"
        yield _bar(bar)._replace(choice=-1 - tried.index(bar["node"])) if is_attempt else _bar(bar)
        for branch in bar["below"]:
            yield _bar(branch, "  ")
        if bar["more"]:
            yield line(f"  and {bar['more']} more", "dim")
    for problem in value["problems"]:
        yield line(problem, "bad")
    if not value["bars"]:
        yield line("no step yet", "dim")


def _bar(bar: dict[str, Any], indent: str = "") -> Line:
    kind, number = bar["kind"], bar["number"]
    is_step = number is not None and kind not in ("running", "branch")
    name = fit(flat(f"{indent}{role_name(bar['role'])}", 40), 14)
    took = duration_text(bar["seconds"]) if bar["seconds"] else ""
    cost = in_dollars(bar["cost"]) if bar["cost"] else ""
    verdict = bar["verdict"] if kind in ("step", "attempt", "branch") else f"{kind}: {bar['verdict']}"
    text = f"{number if is_step else '':>4} {name} {_drawn(*bar['drawn'])} {took:>7} {cost:>8}  "
    style = "bad" if bar["failed"] else "busy" if kind == "running" else "warn" if kind == "waiting" else ""
    return Line(text + flat(verdict, _VERDICT), style, number if is_step else 0)


def _drawn(wait: float, begin: float, end: float) -> str:
    """Return a bar on the clock of all: a wait in dots, work in a line of a column at least."""
    first, last = int(begin * (_CLOCK - 1)), int(end * (_CLOCK - 1))
    waited = int(wait * (_CLOCK - 1))
    return f"{' ' * waited}{'·' * (first - waited)}{'━' * (last - first + 1)}".ljust(_CLOCK)


_CLOCK = 20  # columns
_QUESTION = 20_000  # characters
_VERDICT = 300  # characters
_TAIL = 4_000  # characters of what an attempt printed


# Changes


def _changes(instance: Instance, head: Head, number: int | None) -> Iterator[Line]:
    if number is None:
        code = presented_code(instance, head).code
        if code is None:
            yield line("its steps have changed no code", "dim")
        else:
            yield from _code(code)
        return
    if number < 0:
        tried = instance.attempts.all(head.thread)[-1 - number]
        yield line(f"failed attempt {-number}, {role_name(tried.role)} by {tried.agent}", "bold")
        yield from _attempt(instance, head, tried.hash)
        return
    view = step_view(instance, head, number, WantedParts(("result", "changes")))
    took = view["took"]
    amounts = [
        duration_text(took["seconds"]) if took["seconds"] else "",
        f"{took['tokens']:,} tokens" if took["tokens"] else "",
        in_dollars(took["cost"], took["unpriced"]) if took["cost"] is not None else "",
    ]
    who = f"{role_name(view['role'])} by {view['by']}"
    yield line(" · ".join(filter(None, [f"step {number}", who, *amounts, view["verdict"]])), "bold")
    if (changes := view.get("changes")) is None:
        yield line(view["unshown"] or "no files changed", "dim")
    elif changes["absence"]:
        yield line(changes["absence"], "warn")
    else:
        yield from _files(changes["files"])
    yield Line("")
    yield line("output", "bold")
    yield from _part(view["result"]["output"])
    if (answer := view["result"]["answer"]) is not None:
        yield line("beside it", "bold")
        yield from _part(answer)


def _part(part: dict[str, Any]) -> Iterator[Line]:
    """Yield the lines of a part of a step's view."""
    value = part.get("text", part.get("value"))
    yield from lines(value if isinstance(value, str) else as_yaml(value), indent="  ")
    if part["left"]:
        yield line(f"  [{part['left']}]", "dim")


def _code(code: JudgedCode) -> Iterator[Line]:
    changes = code.changes
    if changes.absence:
        yield line(changes.absence, "warn")
    else:
        yield from _files(patch_files(changes.patch, changes.files))


def _files(files: Sequence[dict[str, Any]]) -> Iterator[Line]:
    yield line(changed_files.summary(files), "bold")
    for file in files[:_FILES]:
        many = "binary" if file["binary"] else f"+{file['added']} -{file['deleted']}"
        yield line(f"  {file['status']} {many:<12} {file['path']}")
    for file in files[:_FILES]:
        if file["lines"]:
            yield line(file["path"], "bold")
        for item in file["lines"]:
            number = item["new"] or item["old"] or ""
            kind = "" if item["kind"] == "@" else item["kind"]
            yield code_line(f"{number:>6} {kind}", item["text"], item["kind"])
        if file["left"]:
            yield line(f"       [… {file['left']:,} more lines of {file['path']}]", "dim")


_FILES = 200


# Prompt


def _prompt(instance: Instance, head: Head, number: int | None) -> Iterator[Line]:
    if number is not None and number > 0:
        view = step_view(instance, head, number, WantedParts(("prompt",)))
        if "prompt" not in view:
            yield line(f"step {number}, {role_name(view['role'])}, had no prompt", "dim")
            return
        yield line(f"the prompt of step {number}, {role_name(view['role'])}", "bold")
        yield from _part(view["prompt"]["text"])
    elif head.archive is None:
        value = next_prompt(instance, head.thread, None, False)
        yield line(f"the prompt of the next step, {role_name(value['role'])}", "bold")
        yield from lines(value["prompt"])
    else:
        yield line("the task", "bold")
        yield from lines(instance.threads.history(head).start.prompt)
