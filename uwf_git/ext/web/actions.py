"""Actions of pages. They call the API in a thread of the server; steps and runs are `uwf` processes.

A form names no agent, and no file except listed workflow files: only the configuration decides which commands
run. Form values become option values, never options.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

from uwf_git.ext.web import people
from uwf_git.plugin import (
    BUDGET_OPTIONS,
    Budgets,
    Busy,
    Call,
    CommandFailed,
    CompletedWithFailures,
    FormField,
    Head,
    HeadMoved,
    HumanTurn,
    Instance,
    Location,
    NotFound,
    NotRunning,
    Page,
    PageRequest,
    ThreadAction,
    ThreadId,
    ThreadState,
    Usage,
    UwfError,
    Waiting,
    WarmProcess,
    calling,
    control,
    extensions,
    failures_reported,
    file_names,
    human_turn_of,
    name_problem,
    parse_budget_option,
    plan_retry,
    spawn_command,
    thread_outlook,
    thread_state,
    thread_states,
)
from uwf_git.plugin import page_addresses as addresses

_Note = TypeVar("_Note")

LONGEST = 1000  # characters of an argument
PATIENCE = 60.0  # seconds that a page waits for an action
_BEGIN = 10.0  # and for a step to begin
_AT_ONCE = 8
_FIELDS = 2000
_LOOK = 0.02
_REAP = 1.0
_PRINTED = 4 << 20  # bytes that are read of a command's output or error
_KEPT = 200  # threads whose last note is known
_GOES_ON = (thread_states.Actor.AGENT, thread_states.Actor.BRANCHES)
PERMITS = ("allow", "deny", "always")
"""What a person may say to a running agent that asks leave for something."""

NOTHING = "-"
"""What a form of the inbox says is next if nothing is."""


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


class Form(NamedTuple):
    """A form's non-empty fields; the last of duplicates. `pairs` are all."""

    fields: Mapping[str, str]
    pairs: Sequence[tuple[str, str]] = ()

    def text(self, name: str, default: str = "") -> str:
        """Return a multi-line text without CR."""
        return self.fields.get(name, default).replace("\r\n", "\n")

    def words(self) -> str:
        """Return what is said with an answer, with the comments on lines below."""
        return "\n\n".join(filter(None, (self.text("answer"), self.text("comments"))))

    def option(self, name: str) -> str:
        """Return an option's value. Raises Usage."""
        value = self.fields.get(name, "").strip()
        if len(value) > LONGEST or "\0" in value:
            raise Usage(
                f"{name} is longer than {LONGEST} characters, or holds a NUL", "say it in fewer words"
            )
        return value

    def number(self, name: str) -> int | None:
        """Return an integer or None. Raises Usage."""
        value = self.option(name)
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            raise Usage(f"{name}: {value!r} is not a number", "give a whole number, such as 3")
        return int(value)


class ActionTarget(NamedTuple):
    """An action's thread and its head."""

    instance: Instance
    head: Head

    @property
    def thread(self) -> ThreadId:
        return self.head.thread


class Action(NamedTuple):
    """An action at `/thread/ID/<name>`. `moves`: it applies to the head that the page showed; `runs`: agents
    work, without waiting; `summary`: the function of an extension that words the result of its command."""

    name: str
    order: Callable[[ActionTarget, Form], ActionRequest]
    moves: bool = False
    runs: bool = False
    summary: str = ""

    @property
    def path(self) -> str:
        return f"/thread/{{thread}}/{self.name}"


def parse_form(body: bytes) -> Form:
    """Parse a form. Raises Usage for too many fields."""
    try:
        pairs = parse_qsl(body.decode("ascii", "replace"), errors="replace", max_num_fields=_FIELDS)
    except ValueError:
        raise Usage(f"the form has more than {_FIELDS} fields", "send it from the page") from None
    return Form({name: value for name, value in pairs if value.strip()}, pairs)


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
    said = [*([options[number - 1]] if number else []), *filter(None, [words])]
    text = "\n\n".join(said)  # an option, a text, or an option with a comment
    # A text that is one option's may be the number of another.
    other = bool(options) and (bool(words) or text.strip().isdigit())
    as_it_is = ["--other"] if other else []
    argv = ("thread", "answer", f"--for={step}", *as_it_is, "--message=-", "--", thread)
    return ActionRequest(
        argv, text, lambda call: control.answer(call.instance, thread, text, step, other).thread
    )


def _play(at: ActionTarget, turn: HumanTurn, form: Form) -> ActionRequest:
    thread, step, words = at.thread, at.head.node, form.words()
    given: dict[str, list[str]] = {}
    for number, field in enumerate(turn.fields, 1):
        text, picked = form.text(f"field{number}"), form.number(f"pick{number}")
        if picked is not None and 0 < picked <= len(field.choices):
            given[field.name] = [field.choices[picked - 1]]
        elif text:
            lines = [line for line in text.split("\n") if line.strip()]
            given[field.name] = lines if field.is_list else [text]
    fields = [f"--field={name}={text}" for name, texts in given.items() for text in texts]
    message_option, unseen = ["--message=-"] if words else [], "unseen" in form.fields
    code = form.option("code")
    bound = [*([f"--code={code}"] if code else []), *["--unseen"] * unseen]
    argv = ("thread", "answer", f"--for={step}", *bound, *fields, *message_option, "--", thread)
    return ActionRequest(
        argv,
        words or None,
        lambda call: (
            control.answer(call.instance, thread, words, step, fields=given, unseen=unseen, code=code).thread
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
    options = [*["--now"] * now, *_said("--message", reason)]

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
    argv = ("thread", "kill", *_said("--reason", reason), "--", at.thread)
    return ActionRequest(argv, do=lambda call: control.kill(call.instance, at.thread, reason).thread)


def _said(option: str, reason: str) -> list[str]:
    return [f"{option}={reason}"] if reason else []


def _limits(form: Form, sign: str = "") -> dict[str, str]:
    amounts = [(key, form.option(key)) for key in BUDGET_OPTIONS]
    return {key: f"{sign if text[0].isdigit() else ''}{text}" for key, text in amounts if text}


def _as_options(limits: Mapping[str, str]) -> list[str]:
    return [f"{BUDGET_OPTIONS[key]}={text}" for key, text in limits.items()]


def _budget(at: ActionTarget, form: Form) -> ActionRequest:
    limits = _limits(form, "+")  # in a "Raise" field a number is an increment
    if not limits:
        raise Usage(f"no limit of thread {at.thread} would be raised", "give at least one, such as +10")

    def do(call: Call) -> ThreadId:
        control.raise_budget(call.instance, at.thread, limits)
        return at.thread

    return ActionRequest(("thread", "budget", *_as_options(limits), "--", at.thread), do=do)


def _permit(at: ActionTarget, form: Form) -> ActionRequest:
    request, decision = form.option("request"), form.option("decision")
    if decision not in PERMITS:
        raise Usage(f"no decision {decision!r}", "it is one of " + ", ".join(PERMITS))
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


def _run(at: ActionTarget, form: Form) -> ActionRequest:
    most = form.number("most")
    options = [] if most is None else [f"--max-steps={most}"]
    return ActionRequest(("thread", "run", *options, "--", at.thread))


def _retry(at: ActionTarget, _form: Form) -> ActionRequest:
    from uwf_git.plugin import fork_thread

    plan = plan_retry(at.instance, at.head)

    def do(call: Call) -> ThreadId:
        return at.thread if plan.at is None else fork_thread(call.instance, at.thread, plan.at)

    return ActionRequest(("thread", "retry", "--", at.thread), do=do)


def _of_extension(row: ThreadAction) -> Action:
    def order(at: ActionTarget, _form: Form) -> ActionRequest:
        return ActionRequest((*row.argv, "--", at.thread))

    return Action(row.name, order, moves=True, runs=True, summary=row.summary)


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
    Action("run", _run, moves=True, runs=True),
    Action("retry", _retry, moves=True, runs=True),
    *map(_of_extension, extensions.thread_actions()),
)


def offered(write: bool, run: bool) -> tuple[Action, ...]:
    return tuple(action for action in ACTIONS if write and (run or not action.runs))


class BulkAction(NamedTuple):
    """An action on the threads that are checked in a list, at `/threads/<name>`. `runs`: agents work; `is_danger`: it
    is confirmed."""

    name: str
    label: str
    key: str = ""
    runs: bool = False
    is_danger: bool = False


def bulk_actions() -> tuple[BulkAction, ...]:
    queued = (row for row in extensions.thread_actions() if row.queue)
    return (
        BulkAction("retry", "Retry", "r", runs=True),
        BulkAction("pause", "Pause", "p"),
        BulkAction("resume", "Resume"),
        *(BulkAction(row.name, row.label, row.label[:1].lower(), runs=True) for row in queued),
        BulkAction("kill", "Kill", is_danger=True),
    )


class BulkResult(NamedTuple):
    """What became of an action on several threads: of each `thread`, with its `title`, why it wasn't done, or None."""

    action: BulkAction
    threads: tuple[tuple[str, str, UwfError | None], ...]

    @property
    def done(self) -> int:
        return sum(why is None for _, _, why in self.threads)


class PossibleActions(NamedTuple):
    """A thread's possible actions, with the data of their forms. `others` are those of extensions, with the labels of
    their buttons; `commands` are equivalent shell commands."""

    thread: ThreadId
    head: str
    number: int
    names: frozenset[str]
    others: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    fields: tuple[FormField, ...]
    fork_at: int
    goes_on: bool
    limits: Mapping[str, str]
    commands: Mapping[str, str]


def possible(instance: Instance, head: Head, state: ThreadState) -> PossibleActions:
    """Return the actions for a thread in this state. Raises what reading it raises."""
    following = thread_outlook(instance, head)
    ended = head.archive is not None
    names = {"fork"}
    goes_on = ended and (head.row.asks or _resumable(instance, head))
    if not ended:
        names |= {"kill", "pause" if state is not ThreadState.PAUSED else "resume"}
    elif goes_on:
        names.add("resume")
    turn = human_turn_of(instance, head, found=following)
    if (head.row.asks or turn is not None) and not ended:
        names.add("answer")
    if state.actor is thread_states.Actor.AGENT and not head.row.asks and turn is None:
        names |= {"step", "run"}
        names.add("say")
    elif state is ThreadState.RUNNING:
        names.add("say")
    elif state.actor is thread_states.Actor.BRANCHES:
        names.add("run")
    if state.group is thread_states.Group.FAILED and _may_retry(instance, head):
        names.add("retry")
    standing = None if ended else Budgets(instance).standing(head)
    limits = {key: _words(key) for key in BUDGET_OPTIONS if standing is not None and key in standing.limits}
    if limits:
        names.add("budget")
    others = tuple(
        (row.name, row.label) for row in extensions.thread_actions() if _offers(row, instance, head)
    )
    names |= {name for name, _ in others}
    fields = {"answer": "TEXT", "remark": "TEXT", "sure": "yes", **({"message": "TEXT"} if goes_on else {})}
    form = Form(fields | dict.fromkeys(limits, "+N"))
    at = ActionTarget(instance, head)
    commands = {action.name: action.order(at, form).shown for action in ACTIONS if action.name in names}
    if turn is not None:
        from uwf_git.plugin import command_at

        commands["answer"] = command_at(instance, head, turn)
    return PossibleActions(
        head.thread,
        head.node,
        head.row.number,
        frozenset(names),
        others,
        following.options,
        turn.fields if turn is not None else (),
        max(0, head.row.number - ended),  # after its end nothing would be left to do
        goes_on,
        limits,
        commands,
    )


def _offers(row: ThreadAction, instance: Instance, head: Head) -> bool:
    try:
        return bool(extensions.load(row.offered)(instance, head))
    except UwfError:  # what can't be read is told by the page's other parts
        return False


def _may_retry(instance: Instance, head: Head) -> bool:
    try:
        plan_retry(instance, head)
    except UwfError:
        return False
    return True


def _resumable(instance: Instance, head: Head) -> bool:
    if head.row.workflow is None:
        return False
    return instance.registry.workflow(head.row.workflow).resume is not None


def _words(key: str) -> str:
    return BUDGET_OPTIONS[key].removeprefix("--max-")


# Starting


def start_page(instance: Instance, request: PageRequest) -> Page:
    """`/start`: a form with all workflows; `workflow` in the query is preselected."""
    chosen = request.one("workflow")
    known = registered(instance)
    workflow = shlex.quote(chosen) if chosen else "WORKFLOW"
    return Page(
        "start.html",
        "Start a thread",
        {
            "workflows": known,
            "files": [name for name in workflows(instance) if name not in known],
            "chosen": chosen,
            "limits": {key: _words(key) for key in BUDGET_OPTIONS},
            "command_line": f"uwf thread start {workflow} -p TEXT",
        },
    )


def start(instance: Instance, form: Form) -> ActionRequest:
    """Return the order to start a thread. Raises Usage, NotFound for unlisted workflows, since other names
    could be any file."""
    workflow = form.fields.get("workflow", "")
    if workflow not in workflows(instance):
        raise NotFound(f"no workflow {workflow!r} here", "choose one of the list")
    prompt = form.text("prompt")
    if not prompt:
        raise Usage("there is no task", "describe the task")
    persona, limits = form.option("persona"), _limits(form)

    def do(call: Call) -> ThreadId:
        from uwf_git.plugin import ThreadStart, begin_thread

        budget = {key: parse_budget_option(key, text) for key, text in limits.items()}
        return begin_thread(call, workflow, ThreadStart(prompt, budget), persona=persona or None).thread

    speaker = [f"--as={persona}"] if persona else []
    return ActionRequest(
        ("thread", "start", "--prompt=-", *speaker, *_as_options(limits), "--", workflow), prompt, do
    )


def registered(instance: Instance) -> list[str]:
    from uwf_git.plugin import definition_addresses as addresses

    return [*instance.registry.names(), *addresses(instance.store)]


def workflows(instance: Instance) -> list[str]:
    """Return registered workflows, then those in `.workflows` and configured folders."""
    files = sorted(name for name in file_names(instance.location.root) if not name_problem(name))
    return list(dict.fromkeys([*registered(instance), *files]))


# Carrying out


class ActionFailed(UwfError):
    """An action failed or is in progress. `status` is HTTP's."""

    def __init__(self, message: str, hint: str, status: int) -> None:
        super().__init__(message, hint)
        self.status = status


_STATUS = {1: 422, 2: 400, 3: 404, 4: 409}  # of HTTP, by exit status


class StartRefused(NamedTuple):
    """Why agents didn't start, at `head`."""

    head: str
    why: ActionFailed


class CommandNote(NamedTuple):
    """What became of a command of an extension that was begun at `head`: its `text`, or `why` it failed; neither while
    it is at work."""

    head: str
    command: str
    text: str = ""
    why: ActionFailed | None = None

    @property
    def is_at_work(self) -> bool:
        return not self.text and self.why is None


class _Work(NamedTuple):
    """A command's work: whether it began, and what to call with its failure, or with what it printed."""

    is_begun: Callable[[], bool]
    refused: Callable[[ActionFailed], None]
    done: Callable[[bytes], None] | None = None


class Actions:
    """Performs actions on a store. A repeated request in progress is performed once."""

    def __init__(
        self, location: Location, opened: Callable[[], AbstractContextManager[Instance]], runs: bool = False
    ) -> None:
        self._location = location
        self._opened = opened
        self._runs = runs
        self._under_way: dict[tuple[object, ...], asyncio.Task[str]] = {}
        self._beginning: set[ThreadId] = set()
        self._threads = ThreadPoolExecutor(_AT_ONCE)
        self._processes = asyncio.Semaphore(_AT_ONCE)
        self._left: set[asyncio.Task[None]] = set()
        self._refused: dict[ThreadId, StartRefused] = {}
        self._notes: dict[ThreadId, CommandNote] = {}
        self._results: dict[str, BulkResult] = {}
        self.told = 0
        """How often what `refused` and `note` say has become another."""

    def refused(self, head: Head) -> ActionFailed | None:
        """Return why agents didn't start last, None once the thread moved."""
        start_refused = self._refused.get(head.thread)
        return start_refused.why if start_refused is not None and start_refused.head == head.node else None

    def refusals(self) -> list[tuple[ThreadId, ActionFailed]]:
        """Return the threads whose agents didn't start, and that haven't moved since, with why."""
        if not self._refused:
            return []
        refusals = []
        with self._opened() as instance:
            for thread, item in list(self._refused.items()):
                with suppress(UwfError):
                    if instance.threads.head(thread).node == item.head:
                        refusals.append((thread, item.why))
        return refusals

    def note(self, head: Head) -> CommandNote | None:
        """Return what became of the last command of an extension, None once the thread moved."""
        note = self._notes.get(head.thread)
        return note if note is not None and (note.is_at_work or note.head == head.node) else None

    async def do(self, action: Action, thread: str, form: Form) -> str:
        """Perform an action; return the next page's address. Raises HeadMoved if the thread moved since the
        page, Busy if an agent is working, ActionFailed, and what parsing raises."""

        async def carried_out() -> str:
            with self._opened() as instance:
                at = ActionTarget(instance, instance.threads.head(instance.threads.find(thread)))
                if action.moves or "unmoved" in form.fields:
                    _require_unmoved(at.head, form)
                order = action.order(at, form)
                if order.do is None:
                    self._require_no_command(at.thread)
                    if at.thread in self._beginning or instance.locks.is_held(at.thread):
                        raise Busy(
                            f"an agent is working on thread {at.thread}", "wait for the end of its step"
                        )
                    work = self._command(at, action, order) if action.summary else self._work(at)
            if order.do is not None:
                done = await self._call(order, order.do)
                if self._runs and (action.name == "retry" or "go" in form.fields):
                    await self._go_on(done)
                return next_address(done, form)
            # Of two that begin at once, the lock would tell of both that they have begun.
            with nullcontext() if action.summary else self._begins(at.thread):
                await self._run(order, work)
            return next_address(at.thread, form)

        return await self._once((action.name, thread, *sorted(form.fields.items())), carried_out)

    async def _go_on(self, thread: ThreadId) -> None:
        """Run a thread that may go on, unless a process does so already."""
        with self._opened() as instance:
            at = ActionTarget(instance, instance.threads.head(thread))
            busy = instance.locks.held() | instance.locks.runs() | self._beginning
            if thread in busy or thread_state(instance, at.head).actor not in _GOES_ON:
                return
            order, work = _run(at, Form({})), self._work(at)
        with self._begins(thread):
            await self._run(order, work)

    def _work(self, at: ActionTarget) -> _Work:
        thread, locks, runs = at.thread, at.instance.locks, at.instance.runs
        before, tried = runs.began(thread), at.instance.attempts.tip(thread)
        self._notify(thread, None)

        def is_begun() -> bool:
            # The lock's holder may still find that no agent can run.
            return locks.is_held(thread) and runs.began(thread) not in (None, before)

        def refused(why: ActionFailed) -> None:
            with suppress(UwfError), self._opened() as instance:
                if instance.attempts.tip(thread) == tried:  # else the attempt says how it failed
                    self._notify(thread, StartRefused(instance.threads.head(thread).node, why))

        return _Work(is_begun, refused)

    def _command(self, at: ActionTarget, action: Action, order: ActionRequest) -> _Work:
        """Return the work of an extension's command."""
        thread, note = at.thread, CommandNote(at.head.node, order.shown)
        self._put(thread, note)

        def done(output: bytes) -> None:
            try:
                text = str(extensions.load(action.summary)(json.loads(output)))
            except (ValueError, LookupError, TypeError):
                text = "done"
            self._put(thread, note._replace(text=text))

        return _Work(lambda: False, lambda why: self._put(thread, note._replace(why=why)), done)

    def _require_no_command(self, thread: ThreadId) -> None:
        note = self._notes.get(thread)
        if note is not None and note.is_at_work:
            raise Busy(f"{note.command} is at work", "wait for its end")

    def _put(self, thread: ThreadId, note: CommandNote) -> None:
        _keep(self._notes, thread, note)
        self.told += 1

    def _notify(self, thread: ThreadId, refused: StartRefused | None) -> None:
        before = self._refused.pop(thread, None)
        if refused is not None:
            _keep(self._refused, thread, refused)
        self.told += (before, refused) != (None, None)

    @contextmanager
    def _begins(self, thread: ThreadId) -> Iterator[None]:
        self._beginning.add(thread)
        try:
            yield
        finally:
            self._beginning.discard(thread)

    async def do_all(self, name: str, form: Form) -> str:
        """Perform an action on each thread of a form, at the head that the page showed; return the address of the list,
        which tells what became of each. With `unmoved` in the form, none is killed that has moved on. Raises Usage
        without a thread."""
        bulk = next(item for item in bulk_actions() if item.name == name)
        action = next(item for item in ACTIONS if item.name == name)
        chosen = dict(value.split(" ", 1) for key, value in form.pairs if key == "thread" and " " in value)
        if not chosen:
            raise Usage("no thread is checked", "check some in the list")
        if len(chosen) > _AT_ONCE * 32:
            raise Usage(f"{len(chosen)} threads are too many at once", f"at most {_AT_ONCE * 32}")
        given = {key: value for key, value in form.fields.items() if key in ("reason", "sure", "unmoved")}

        async def one(thread: str, head: str) -> UwfError | None:
            try:
                await self.do(action, thread, Form({**given, "head": head}))
            except UwfError as error:
                return error
            return None

        why = await asyncio.gather(*(one(thread, head) for thread, head in chosen.items()))
        titles = self._titles(chosen)
        result = BulkResult(bulk, tuple(zip(chosen, titles, why, strict=True)))
        number = str(len(self._results) + 1)
        self._results[number] = result
        query = [(key, value) for key, value in parse_qsl(form.fields.get("list", "")) if key != "done"]
        return f"/threads?{urlencode([*query, ('done', number)])}"

    def result(self, number: str) -> BulkResult | None:
        """Return what became of an action on several threads, while it is known."""
        return self._results.get(number)

    def _titles(self, threads: Iterable[str]) -> Iterator[str]:
        with self._opened() as instance:
            for thread in threads:
                title = thread
                with suppress(UwfError):
                    title = instance.threads.head(instance.threads.find(thread)).row.title or thread
                yield title

    async def start(self, form: Form) -> str:
        """Start a thread; return its page's address. Raises ActionFailed, and what parsing raises."""

        async def carried_out() -> str:
            with self._opened() as instance:
                order = start(instance, form)
            assert order.do is not None
            return addresses.thread(await self._call(order, order.do))

        return await self._once(("start", *sorted(form.fields.items())), carried_out)

    async def _once(self, key: tuple[object, ...], make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        own = people.person(), *key
        task = self._under_way.get(own)
        if task is None:
            task = self._under_way[own] = asyncio.create_task(make())
            task.add_done_callback(lambda _done: self._under_way.pop(own))
        return await asyncio.shield(task)

    async def _call(self, order: ActionRequest, do: Callable[[Call], ThreadId]) -> ThreadId:
        by = people.person()  # another thread is in nobody's name

        def called() -> ThreadId:
            with calling(self._location, by) as call:
                return do(call)

        doing = asyncio.get_running_loop().run_in_executor(self._threads, called)
        try:
            done, _ = await asyncio.wait([doing], timeout=PATIENCE)
        except asyncio.CancelledError:  # the server stops; the thread's work finishes
            doing.cancel()
            raise
        if not done:
            doing.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise ActionFailed(
                f"this is still being done after {PATIENCE:.0f} seconds: {order.shown}",
                "look at the thread: it continues",
                504,
            )
        try:
            return doing.result()
        except CommandFailed as error:
            raise _not_done(error.message, error.hint, error.status, order) from None

    async def _run(self, order: ActionRequest, work: _Work) -> None:
        """Start agents' work in its own session, with its output in unnamed files, so that a step
        outlives the server and a kill ends it. Raises ActionFailed if it doesn't start."""
        async with self._processes:
            # They are closed when the process has ended.
            out = TemporaryFile() if work.done is not None else None  # noqa: SIM115
            err = TemporaryFile()  # noqa: SIM115
            try:
                start = partial(
                    spawn_command, self._location, order.argv, stdout=out or subprocess.DEVNULL, stderr=err
                )
                child = await asyncio.get_running_loop().run_in_executor(self._threads, start)
            except (OSError, ValueError) as error:
                for file in filter(None, (out, err)):
                    file.close()
                failure = ActionFailed(f"uwf does not start: {error}", order.shown, 500)
                if work.done is not None:
                    work.refused(failure)
                raise failure from None
            ended = asyncio.create_task(self._ended(child, order, out, err, work))
            self._left.add(ended)
            ended.add_done_callback(self._left.discard)
            deadline = time.monotonic() + _BEGIN
            while not ended.done() and not work.is_begun() and time.monotonic() < deadline:
                await asyncio.sleep(_LOOK)

    async def _ended(
        self, child: WarmProcess, order: ActionRequest, out: IO[bytes] | None, err: IO[bytes], work: _Work
    ) -> None:
        with err, out or nullcontext():
            pause = _LOOK
            while (code := child.poll()) is None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.1, _REAP)
            if (failure := _failure(code, err, order)) is not None:
                work.refused(failure)
            elif out is not None and work.done is not None:
                out.seek(0)
                work.done(out.read(_PRINTED))


def next_address(thread: ThreadId, form: Form) -> str:
    """Return the page to show after an action: the thread's, or the inbox at the item that the form says is next."""
    following = form.option("then")
    if not following:
        return addresses.thread(thread)
    if following == NOTHING:
        return "/"
    at, _, request = following.partition("~")
    return f"/?{urlencode({'at': at, **({'request': request} if request else {})})}"


def _keep(notes: dict[ThreadId, _Note], thread: ThreadId, note: _Note) -> None:
    """Note something of a thread, and forget the oldest notes."""
    notes.pop(thread, None)
    notes[thread] = note
    for oldest in list(notes)[:-_KEPT]:
        del notes[oldest]


def _require_unmoved(head: Head, form: Form) -> None:
    shown = form.fields.get("head", "")
    if shown != head.node:
        raise HeadMoved(
            f"thread {head.thread} has moved on since the page showed it, and is at {head.node} now",
            "look at it again before you say it again",
        )


def _failure(code: int, err: IO[bytes], order: ActionRequest) -> ActionFailed | None:
    if code in (0, Waiting.exit_status, NotRunning.exit_status, CompletedWithFailures.exit_status):
        return None
    err.seek(0, os.SEEK_END)
    err.seek(max(0, err.tell() - _PRINTED))
    error = failures_reported(err.read().decode("utf-8", "replace"))
    if error is None:
        return ActionFailed(
            f"the command ended with status {code}: {order.shown}", "run it in a terminal", 500
        )
    return _not_done(error["message"], error["hint"], code, order)


def _not_done(message: str, hint: str, status: int, order: ActionRequest) -> ActionFailed:
    before = f"{hint} — " if hint else ""
    return ActionFailed(message, f"{before}the same in a terminal: {order.shown}", _STATUS.get(status, 422))
