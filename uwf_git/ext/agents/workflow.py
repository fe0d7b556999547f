"""`uwf-workflow`: another workflow as an agent, in a thread of its own.

The edge's instruction is the child thread's prompt. Its last output becomes the step's output, without fields
unknown to the role's schema; `--output`, a JSONata expression over the child's `{start, steps}`, overrides
it. The child's questions are asked in this thread, and answers passed on; after a failure the next step
continues the same child.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.kit import Context, Reply, create_agent
from uwf_git.plugin import (
    CONTENT_FIELD,
    SUBWORKFLOW,
    SUSPEND_STATUS,
    USER,
    Absent,
    AgentFailed,
    ExpectedOutput,
    Hash,
    Invalid,
    Killed,
    NotFound,
    Oid,
    Paused,
    StartNode,
    StepContext,
    ThreadId,
    Usage,
    UwfError,
    Waiting,
    WorkspaceFailed,
    asks_human,
    endings,
    failed_with,
    human_turn_of,
    is_thread_id,
    judge_answer,
    lifetime,
    log,
    read_options,
    share_worktree,
    split_remarks,
    status_of,
    step_fields,
    with_all_fields,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Head, History, Instance

NAME = SUBWORKFLOW
USAGE = "uwf-workflow [--output EXPRESSION] NAME"
DEEPEST = 8
_KILLED = "was killed", "step again for a new one"
_WITHIN = "UWF_WITHIN"
"""The workflows that are being stepped around this process, outermost first; names hold no comma."""
_AROUND: ContextVar[tuple[str, ...]] = ContextVar("workflows around", default=())
"""The same, with those around the step that this thread of the program makes."""


class Options(NamedTuple):
    """The workflow's name or CREW/ID, and an expression for its output."""

    name: str
    output: str | None = None


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    options, names = read_options(NAME, USAGE, args, ("--output",))
    if len(names) != 1:
        raise Usage("uwf-workflow needs the name of one workflow", USAGE)
    return Options(names[0], dict(options).get("--output"))


def run(ctx: Context) -> Reply:
    """Run a child thread to its end or question: a new one, or the one whose question was answered. Raises
    AgentFailed with its id."""
    answered = _answered(ctx)
    child = answered or _start(ctx)
    log.info("YW9T0WJP", "the role is played by thread {child}", child=child, goes_on=answered is not None)
    return _to_the_end(ctx, child)


def continue_(ctx: Context, session: str, message: str) -> Reply:
    """Continue a failed attempt's child, or start anew if it was killed or is gone."""
    head = _own(ctx, session)
    if head is None:
        return run(ctx)
    _pass_remarks_on(ctx, head.thread)
    return _to_the_end(ctx, head.thread)


def _pass_remarks_on(ctx: Context, child: ThreadId) -> None:
    from uwf_git.plugin import remark_on

    head = ctx.instance.threads.head(child)
    if not ctx.remarks or head.archive is not None:
        return
    history = ctx.instance.threads.history(head)
    known = [history.start.prompt, *(step.remark or "" for step in history.steps)]
    for text in ctx.remarks:
        if not any(text.strip() in item for item in known):
            with suppress(Waiting):
                remark_on(ctx.instance, child, text)


def _own(ctx: Context, session: str) -> Head | None:
    """Return the child thread of a session, None if killed, failed or gone. A session may come from elsewhere: only a
    thread started here, for this one, of the role's workflow, is accepted."""
    if not is_thread_id(session) or not ctx.instance.sessions.is_own(NAME, session, ctx.thread):
        return None
    try:
        head = ctx.instance.threads.head(ThreadId(session))
    except NotFound:
        return None
    lost = head.archive is not None and head.archive.status in (endings.KILLED, endings.FAILED)
    return None if lost or head.row.name != ctx.options.name else head


def _start(ctx: Context) -> ThreadId:
    options: Options = ctx.options
    _within(ctx, options.name)
    instance = ctx.instance
    try:
        version, workflow, persona = _version(ctx)
    except (NotFound, Invalid) as error:
        raise AgentFailed(f"uwf-workflow: {error.message}", error.hint) from None
    task = instance.redactor.text(_task(ctx))[0]
    project = instance.threads.projects.label_of(instance.threads.head(ctx.thread))
    child = instance.threads.start(version, StartNode(workflow, task, persona=persona), project=project)
    instance.folders.remember(child, ctx.cwd)
    share_worktree(instance, ctx.thread, child)
    ctx.in_session(child)
    return child


def _version(ctx: Context) -> tuple[Oid, Hash, str]:
    instance, name = ctx.instance, ctx.options.name
    if "/" not in name:
        version = instance.registry.current(name)
        return Oid(hex=version.commit), version.hash, ""
    from uwf_git.plugin import packages_with

    packages = packages_with(instance.store, name)
    offer = packages.offer(name)
    here, speaker = ctx.history.workflow.crew, ctx.history.start.persona
    is_same = here is not None and here.name == offer.version.name and speaker in offer.speakers
    return packages.begin(offer), offer.workflow, speaker if is_same else offer.speakers[0]


def _task(ctx: Context) -> str:
    steps = split_remarks(ctx.history.steps)[0]
    at = len(steps)
    questions: list[str] = []
    instruction = ctx.instruction
    while at > 1 and _is_answer(steps[:at], ctx.role.name):
        question, answer = steps[at - 2].output.get("question", ""), steps[at - 1].output.get("answer", "")
        questions.insert(0, f"It was asked: {question}\n\nThe answer: {answer}")
        detail = ctx.store.detail(steps[at - 2].detail)
        instruction = detail.instruction if detail else None
        at -= 2
    task = instruction if instruction and instruction.strip() else ctx.history.start.prompt
    return "\n\n".join([task, *questions, *ctx.remarks])


def _is_answer(steps: Sequence[StepContext], role: str) -> bool:
    context, step_context = steps[-2:]
    return step_context.role == USER and context.role == role and asks_human(context.output)


def _within(ctx: Context, name: str) -> tuple[str, ...]:
    around = _AROUND.get() or tuple(part for part in os.environ.get(_WITHIN, "").split(",") if part)
    around = (*around, ctx.history.workflow.name)
    if name in around:
        raise AgentFailed(
            f"workflow {name} would run within itself: {' → '.join([*around, name])}",
            "bind the role to another agent in agentOverrides",
        )
    if len(around) >= DEEPEST:
        raise AgentFailed(
            f"workflow {name} would be the {len(around) + 1}th within another: {' → '.join(around)}",
            f"at most {DEEPEST} may run within each other",
        )
    return around


@contextmanager
def _stepping(around: tuple[str, ...]) -> Iterator[None]:
    token = _AROUND.set(around)
    try:
        with _in_environment(around) if lifetime.is_own() else nullcontext():
            yield
    finally:
        _AROUND.reset(token)


@contextmanager
def _in_environment(around: Sequence[str]) -> Iterator[None]:
    before = os.environ.get(_WITHIN)
    os.environ[_WITHIN] = ",".join(around)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_WITHIN]
        else:
            os.environ[_WITHIN] = before


def _answered(ctx: Context) -> ThreadId | None:
    steps = split_remarks(ctx.history.steps)[0]
    if len(steps) < 2 or ctx.previous is None or not _is_answer(steps, ctx.role.name):
        return None
    session = ctx.previous.session
    if session is None:
        return None
    from uwf_git.plugin import answer_turn as answer

    head = _own(ctx, session)
    if head is None:
        return None
    # What a child asks that went on since was not seen; it is asked again.
    is_seen = ctx.store.get(head.node).timestamp <= ctx.store.get(steps[-2].hash).timestamp
    if head.archive is None and is_seen and head.row.asks:
        text = ctx.instruction or ""
        try:  # whether it is an option was seen to here
            answer(ctx.instance, head.thread, text, other=True, passed_on=True)
        except (Invalid, NotFound, WorkspaceFailed) as error:  # code of its branches is not merged
            raise _broken(ctx, head.thread, error.message, error.hint) from None
    elif (
        head.archive is None
        and is_seen
        and (turn := human_turn_of(ctx.instance, head)) is not None
        and turn.standing is None  # what anybody answered here is nobody's approval
    ):
        with suppress(Usage):  # it is asked again
            answer(ctx.instance, head.thread, ctx.instruction or "", passed_on=True)
    _pass_remarks_on(ctx, head.thread)
    ctx.in_session(head.thread)
    return head.thread


def _to_the_end(ctx: Context, child: ThreadId) -> Reply:
    from uwf_git.plugin import RunOptions as Options
    from uwf_git.plugin import raise_if_used_up, spending_account
    from uwf_git.plugin import run_thread as run

    instance = ctx.instance

    def following() -> Options | None:
        head = instance.threads.head(child)
        if head.archive is not None:
            return None
        if ctx.deadline is not None and time.monotonic() > ctx.deadline:
            raise AgentFailed("ran out of time", "raise agents.<name>.timeout")
        spent = spending_account(instance, head).spent._replace(steps=0)
        raise_if_used_up(instance, instance.threads.head(ctx.thread), spent)
        return Options(hooks=False)

    with _stepping(_within(ctx, ctx.options.name)):
        try:
            for _ in run(instance, child, following):
                pass
        except Paused as paused:
            raise _broken(ctx, child, paused.message, paused.hint) from None
        except Killed:
            raise _broken(ctx, child, *_KILLED) from None
        except Waiting as waiting:
            return _asks(ctx, instance, child, waiting)
        except UwfError as error:
            raise _broken(ctx, child, error.message, error.hint).since(error) from None
        return _ended(ctx, instance.threads.head(child))


def _broken(ctx: Context, child: ThreadId, message: str, hint: str) -> AgentFailed:
    problem = f"thread {child} of workflow {ctx.options.name}: {message}"
    return failed_with(_charged(ctx, Reply(f"{problem}\n", session=child)), problem, hint)


def _charged(ctx: Context, reply: Reply) -> Reply:
    child = ThreadId(reply.session or "")
    threads = ctx.instance.threads
    attempts = ctx.instance.attempts.all(child)
    head = threads.head(child)
    prev = head.node if head.row.kind == "step" else None
    if not attempts or attempts[-1].prev != prev or attempts[-1].detail is None:
        return reply
    detail = ctx.store.detail(attempts[-1].detail)
    if detail is None:
        return reply
    return reply._replace(model=detail.model, usage=detail.usage, cost=detail.cost)


def _asks(ctx: Context, instance: Instance, child: ThreadId, waiting: Waiting) -> Reply:
    """Return a question on the child's behalf: its own, a budget's raise, or a human's role."""
    from uwf_git.plugin import thread_outlook

    where = f"in thread {child} of workflow {ctx.options.name}"
    head = instance.threads.head(child)
    outlook, turn = thread_outlook(instance, head), human_turn_of(instance, head)
    options = outlook.options
    if turn is not None and turn.standing is None and sum(field.required for field in turn.fields) == 1:
        question, options = turn.instruction, options or turn.options
        reason = f"a person plays {turn.role} {where}"
    elif isinstance(waiting, Absent):
        question = f"{waiting.message}. Play it, then answer: {waiting.hint}"
        reason = f"a person plays a role {where}"
    elif head.waits_for_join:
        question = f"{waiting.message}. See to it, then answer: {waiting.hint}"
        reason = f"a branch waits {where}"
    elif outlook.question is None:
        question = f"{waiting.message}. Raise it, then answer: {waiting.hint}"
        reason = f"a budget is used up {where}"
    else:
        question, reason = outlook.question, f"{outlook.asks} asks {where}"
    output: dict[str, Any] = {"$status": SUSPEND_STATUS, "question": question}
    if options:
        output["options"] = list(options)
    output["reason"] = f"{outlook.reason} ({reason})" if outlook.reason else reason
    return Reply(f"{output['question']}\n\n{reason}\n", session=child, output=output)


def _ended(ctx: Context, head: Head) -> Reply:
    child = head.thread
    assert head.archive is not None
    if head.archive.status == endings.KILLED:
        raise _broken(ctx, child, *_KILLED)
    history = ctx.instance.threads.history(head)
    if not history.steps:
        raise _broken(ctx, child, "ended without a step", f"see: uwf thread show {child}")
    problems: tuple[str, ...] = ()
    try:
        outputs = _outputs(ctx, history)
    except Invalid as error:
        raise _broken(ctx, child, f"--output: {error.message}", error.hint) from None
    for output in outputs:
        reply = Reply(f"Done by thread {child}.\n", session=child, output=output, detail=history.head)
        verdict = judge_answer(reply, ExpectedOutput(ctx.role, ctx.schema))
        if (
            not verdict.problems
            and head.archive.status == endings.FAILED
            and status_of(output) != endings.FAILED
        ):
            why = f": {head.archive.reason}" if head.archive.reason else ""
            raise _broken(ctx, child, f"has failed{why}", "step again for a new one")
        if not verdict.problems:
            return reply
        problems = problems or verdict.problems
    raise _broken(
        ctx,
        child,
        f"its output is none of role {ctx.role.name}: {problems[0]}",
        "say with --output what to make of it, as in --output '{\"summary\": steps[-1].output.text}'",
    )


def _outputs(ctx: Context, history: History) -> list[Any]:
    options: Options = ctx.options
    if options.output is not None:
        from uwf_git.plugin import evaluate_expression, history_value

        fields = step_fields(options.output)
        steps = [step._replace(output=_whole(ctx, step)) for step in history.steps]
        if CONTENT_FIELD in fields:
            steps = [step._replace(answer=ctx.instance.threads.answer(step)) for step in steps]
        return [evaluate_expression(options.output, history_value(history.start, steps, fields))]
    last = _whole(ctx, next(step for step in reversed(history.steps) if step.role != USER))
    properties = ctx.schema.payload.get("properties") if isinstance(ctx.schema.payload, dict) else None
    if not isinstance(last, dict) or not isinstance(properties, dict):
        return [last]
    return [last, {key: value for key, value in last.items() if key in properties}]


def _whole(ctx: Context, step: StepContext) -> Any:
    detail = ctx.store.detail(step.detail)
    return step.output if detail is None else with_all_fields(step.output, detail.answer)


agent = create_agent(NAME, run, continue_, parse_args, USAGE)
main = agent.main

if __name__ == "__main__":
    main()
