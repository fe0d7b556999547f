"""The actions of pages, and the request that each makes of its form: a call of the API, or a `uwf` command.

A form names no agent, and no file except listed workflow files: only the configuration decides which commands
run. Form values become option values, never options.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

from uwf_git.ext.web.forms import Form
from uwf_git.plugin import (
    BUDGET_OPTIONS,
    Call,
    Head,
    HumanTurn,
    Instance,
    ThreadAction,
    ThreadId,
    Usage,
    UwfError,
    control,
    extensions,
    fork_to_retry,
    human_turn_of,
    plan_retry,
    thread_outlook,
)

DECISIONS = ("allow", "deny", "always")
"""The decisions on a running agent's request for leave."""


class ActionFailed(UwfError):
    """An action failed or is in progress. `status` is HTTP's."""

    def __init__(self, message: str, hint: str, status: int) -> None:
        super().__init__(message, hint)
        self.status = status


class PlanRefused(ActionFailed):
    """An extension's action has nothing to do, or would do something else than the page showed."""


class ActionRequest(NamedTuple):
    """A requested action. `do` performs it and returns the thread to show; None for agents' work. `argv` is
    the equivalent command; `text` the value read by `-`."""

    argv: tuple[str, ...]
    text: str | None = None
    do: Callable[[Call], ThreadId] | None = None

    @property
    def shown(self) -> str:
        words = ["uwf"]
        for word in self.argv:
            if self.text is not None and word.startswith("--") and word.endswith("=-"):
                word = word[:-1] + self.text
            if word != "--" or self.argv[-1].startswith("-"):
                words.append(word)
        return shlex.join(words)


class ActionTarget(NamedTuple):
    """An action's thread and its head."""

    instance: Instance
    head: Head

    @property
    def thread(self) -> ThreadId:
        return self.head.thread


class Action(NamedTuple):
    """An action at `/thread/ID/<name>`. `moves`: it applies to the head that the page showed; `runs`: agents
    work, without waiting; `summary`: the function of an extension that words the result of its command; `own_label`:
    what its button says, "" for its name."""

    name: str
    request: Callable[[ActionTarget, Form], ActionRequest]
    moves: bool = False
    runs: bool = False
    summary: str = ""
    own_label: str = ""

    @property
    def label(self) -> str:
        return self.own_label or self.name.capitalize()

    @property
    def path(self) -> str:
        return f"/thread/{{thread}}/{self.name}"


def _answer(at: ActionTarget, form: Form) -> ActionRequest:
    thread, step = at.thread, at.head.node
    if (turn := human_turn_of(at.instance, at.head)) is not None:
        return _play(at, turn, form)
    if not at.head.row.asks:
        raise ActionFailed(
            f"thread {thread} is not waiting for an answer", f"see: uwf thread show {thread}", 409
        )
    options = thread_outlook(at.instance, at.head).options
    number = form.number("option")
    if number is not None and not 0 < number <= len(options):
        raise Usage(f"thread {thread} has no option {number}", "read the question again")
    words = form.words()
    parts = [options[number - 1] if number else "", words]
    text = "\n\n".join(filter(None, parts))  # an option, a text, or an option with a comment
    # A text that is one option's may be the number of another.
    other = bool(options) and (bool(words) or text.strip().isdigit())
    as_it_is = ["--other"] if other else []
    argv = ("thread", "answer", f"--for={step}", *as_it_is, "--message=-", "--", thread)
    return ActionRequest(
        argv, text, lambda call: control.answer(call.instance, thread, text, step, other).thread
    )


def _play(at: ActionTarget, turn: HumanTurn, form: Form) -> ActionRequest:
    thread, step, words = at.thread, at.head.node, form.words()
    values: dict[str, list[str]] = {}
    for number, field in enumerate(turn.fields, 1):
        text, picked = form.text(f"field{number}"), form.number(f"pick{number}")
        if picked is not None and 0 < picked <= len(field.choices):
            values[field.name] = [field.choices[picked - 1]]
        elif text:
            lines = [line for line in text.split("\n") if line.strip()]
            values[field.name] = lines if field.is_list else [text]
    fields = [f"--field={name}={text}" for name, texts in values.items() for text in texts]
    message_option, unseen = ["--message=-"] if words else [], "unseen" in form.fields
    code = form.option("code")
    bound = [*([f"--code={code}"] if code else []), *["--unseen"] * unseen]
    argv = ("thread", "answer", f"--for={step}", *bound, *fields, *message_option, "--", thread)
    return ActionRequest(
        argv,
        words or None,
        lambda call: (
            control.answer(call.instance, thread, words, step, fields=values, unseen=unseen, code=code).thread
        ),
    )


def _fork(at: ActionTarget, form: Form) -> ActionRequest:
    from uwf_git.plugin import fork_thread

    number = form.number("at")
    after = [] if number is None else [f"--at={number}"]
    argv = ("thread", "fork", *after, "--", at.thread)
    return ActionRequest(argv, do=lambda call: fork_thread(call.instance, at.thread, number))


def _pause(at: ActionTarget, form: Form) -> ActionRequest:
    now, reason = "now" in form.fields, form.option("reason")
    options = [*["--now"] * now, *_option("--message", reason)]

    def do(call: Call) -> ThreadId:
        control.pause(call.instance, at.thread, reason, now)
        return at.thread

    return ActionRequest(("thread", "pause", *options, "--", at.thread), do=do)


def _resume(at: ActionTarget, form: Form) -> ActionRequest:
    text = form.text("message") or None
    message_option = [] if text is None else ["--message=-"]
    argv = ("thread", "resume", *message_option, "--", at.thread)
    return ActionRequest(argv, text, lambda call: control.resume(call.instance, at.thread, text).thread)


def _kill(at: ActionTarget, form: Form) -> ActionRequest:
    if "sure" not in form.fields:
        raise Usage(f"thread {at.thread} would end for good", "check the box that says so")
    reason = form.option("reason")
    argv = ("thread", "kill", *_option("--reason", reason), "--", at.thread)
    return ActionRequest(argv, do=lambda call: control.kill(call.instance, at.thread, reason).thread)


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value else []


def budget_options(limits: Mapping[str, str]) -> list[str]:
    """Return the limits of a form as options of a command."""
    return [f"{BUDGET_OPTIONS[key]}={text}" for key, text in limits.items()]


def _budget(at: ActionTarget, form: Form) -> ActionRequest:
    limits = form.limits("+")  # in a "Raise" field a number is an increment
    if not limits:
        raise Usage(f"no limit of thread {at.thread} would be raised", "give at least one, such as +10")

    def do(call: Call) -> ThreadId:
        control.raise_budget(call.instance, at.thread, limits)
        return at.thread

    return ActionRequest(("thread", "budget", *budget_options(limits), "--", at.thread), do=do)


def _permit(at: ActionTarget, form: Form) -> ActionRequest:
    request, decision = form.option("request"), form.option("decision")
    if decision not in DECISIONS:
        raise Usage(f"no decision {decision!r}", "it is one of " + ", ".join(DECISIONS))
    granted, always = decision != "deny", decision == "always"

    def do(call: Call) -> ThreadId:
        control.permit(call.instance, at.thread, request, granted, always)
        return at.thread

    options = [*["--deny"] * (not granted), *["--always"] * always]
    return ActionRequest(("thread", "permit", *options, "--", at.thread, request), do=do)


def _say(at: ActionTarget, form: Form) -> ActionRequest:
    text = form.text("remark")
    if not text.strip():
        raise Usage(f"the remark to thread {at.thread} is empty", "say something")

    def do(call: Call) -> ThreadId:
        control.steer(call.instance, at.thread, text)
        return at.thread

    return ActionRequest(("thread", "say", "--message=-", "--", at.thread), text, do)


def _step(at: ActionTarget, _form: Form) -> ActionRequest:
    return ActionRequest(("thread", "step", "--", at.thread))


def run_request(at: ActionTarget, form: Form) -> ActionRequest:
    """Return the request to run a thread, by `most` steps."""
    most = form.number("most")
    options = [] if most is None else [f"--max-steps={most}"]
    return ActionRequest(("thread", "run", *options, "--", at.thread))


def _retry(at: ActionTarget, _form: Form) -> ActionRequest:
    plan = plan_retry(at.instance, at.head)

    def do(call: Call) -> ThreadId:
        return at.thread if plan.at is None else fork_to_retry(call.instance, at.thread).thread

    return ActionRequest(("thread", "retry", "--", at.thread), do=do)


def command_of(row: ThreadAction, thread: ThreadId) -> ActionRequest:
    return ActionRequest((*row.argv, "--", thread))


def _of_extension(row: ThreadAction) -> Action:
    def request(at: ActionTarget, form: Form) -> ActionRequest:
        try:
            plan = row.planned(at.instance, at.head)
        except UwfError as error:
            raise PlanRefused(error.message, error.hint, 409) from None
        if (code := form.option("code")) and code != plan.state:
            raise PlanRefused(
                f"it is about {plan.state} now, and was about {code}",
                "look at it before you say it again",
                409,
            )
        return command_of(row, at.thread)

    return Action(row.name, request, moves=True, runs=True, summary=row.summary, own_label=row.label)


ACTIONS = (
    Action("answer", _answer, moves=True),
    Action("fork", _fork),
    Action("pause", _pause),
    Action("resume", _resume, moves=True),
    Action("kill", _kill),
    Action("budget", _budget),
    Action("permit", _permit),
    Action("say", _say),
    Action("step", _step, moves=True, runs=True),
    Action("run", run_request, moves=True, runs=True),
    Action("retry", _retry, moves=True, runs=True),
    *map(_of_extension, extensions.thread_actions()),
)


def offered(write: bool, run: bool) -> tuple[Action, ...]:
    return tuple(action for action in ACTIONS if write and (run or not action.runs))
