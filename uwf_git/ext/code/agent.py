"""`uwf-bundle`: the agent that performs the steps of a code workflow.

The code's process gets the history as `input.steps` and yields what comes next, which becomes a step after
checks: `meta` is the output of the named role, `content` the answer. Its return value becomes the last step,
of role `$END`. One command keeps the process between steps as long as the thread ends with its last yield;
otherwise a new process gets the history.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from uwf_git.ext.code import RUNNER
from uwf_git.ext.code.asking import asking
from uwf_git.ext.code.calls import Calls, ConversationResult, tokens_of
from uwf_git.ext.code.grants import grants_of
from uwf_git.ext.code.live import Live
from uwf_git.ext.code.script import is_script, tolerance_of
from uwf_git.plugin import (
    END,
    MAX_ROUNDS,
    REHEARSE,
    RESULT,
    STEPNODE,
    SUSPEND_STATUS,
    USER,
    Agent,
    AgentFailed,
    AttemptFailed,
    CallCounts,
    DecidedByCode,
    Detail,
    ExpectedOutput,
    Hash,
    Invalid,
    OutOfRounds,
    Recorder,
    Reply,
    Step,
    StoreUnwritable,
    TurnRecord,
    UwfError,
    Waiting,
    brief_decision,
    counted,
    decide_turn,
    encodable,
    is_call,
    judge_answer,
    log,
    means_end,
    nearest,
    normalise_payload,
    one_line,
    require_trusted,
    sum_tokens,
    sum_usage,
)

if TYPE_CHECKING:
    from uwf_git.plugin import EngineOrder, History, Instance, ThreadPosition

_LOGGED = 20  # of a script's lines, how many its step keeps
_NAMED = 20  # of those whom the code asked, how many a note names
MOST_CONTENT = 4 << 20  # characters of a step's content
_HINT = "a bundle yields {role, content, meta}, as its descriptor says"
MOST_META = 1 << 20  # characters of a step's meta or a result, as JSON


class Running(NamedTuple):
    """A kept process at step `at`. After generated answers everything it says `is_generated`, since it may have
    stored them."""

    live: Live
    at: Hash
    is_generated: bool

    def close(self) -> None:
        self.live.close()


class CodeResult(NamedTuple):
    """A yield or result: role, type and value of the output, and the answer."""

    role: str
    type: Hash
    output: Any
    answer: str


class CodeAgent(Agent):
    """Performs steps by running a workflow's code."""

    def __init__(self) -> None:
        super().__init__(RUNNER.name, _converses_not)

    def admit(self, instance: Instance, at: ThreadPosition) -> None:
        require_trusted(instance, at.history.workflow)
        if is_call(instance.store, at.head.row.start):
            asking(instance, at.head)

    def perform(
        self,
        instance: Instance,
        at: ThreadPosition,
        order: EngineOrder,
        args: Sequence[str],
        recorder: Recorder | None = None,
        cwd: Path | None = None,
    ) -> Hash:
        """Run the code until it yields or returns, and store the nodes. Return the StepNode's hash. Raises
        AttemptFailed otherwise, OutOfRounds beyond its last round."""
        head, history = at
        if is_call(instance.store, head.row.start):
            return asking(instance, head).perform(instance, at, order, cwd or Path.cwd())
        recorder = recorder or Recorder(instance, head.thread, self.name)
        rounds = _rounds(at)
        with ExitStack() as kept, ExitStack() as stack:
            running = _kept(instance, at)
            live = kept.enter_context(closing(running.live if running else begin(instance, at)))
            log.debug(
                "4KPED1YT",
                "the code {does} after {steps} steps",
                does="goes on" if running else "begins",
                steps=len(history.steps),
                rounds_left=rounds,
            )
            calls = stack.enter_context(
                closing(Calls(instance, at, order, recorder, cwd or Path.cwd(), args, live.is_script))
            )
            tolerates = _tolerance(instance, history) if live.is_script else lambda asked: asked
            try:
                yielded = live.hear(calls if rounds != 0 else None, recorder.show)
                if rounds == 0 and not yielded.ended:
                    raise OutOfRounds("")
                is_kept = instance.kept is not None and not yielded.ended and live.is_kept
                if not is_kept:
                    live.close()
                result = (
                    result_of(yielded.value) if yielded.ended else step_of(instance, history, yielded.value)
                )
                calls.settle()
                is_generated = bool(running and running.is_generated) or any(
                    item.agent == REHEARSE and (item.texts or item.data) for item in calls.heard
                )
                agent = _author(result, calls.heard, is_generated)
                notes = (*live.notes, *(_log(live) if live.is_script else ()))
                counts = calls.counts(tolerates)
                node = _stored(instance, at, order, result, agent, calls, counts, recorder, notes)
            except OutOfRounds:
                raise _over(at) from None
            except StoreUnwritable:
                calls.drain()
                raise  # the result is in the report, or its turns are recorded
            except UwfError as error:
                calls.drain()
                calls.settle()
                if isinstance(error, Waiting) and not recorder.turns:
                    raise  # nothing was done; else what was spent has to be kept
                raise _failed(error, live, head.node, order, calls, recorder) from None
            if is_kept and instance.kept is not None:
                kept.pop_all()
                instance.kept[head.thread] = Running(live, node, is_generated)
            return node


def begin(instance: Instance, at: ThreadPosition) -> Live:
    """Start a process with the thread's history. Raises AgentFailed."""
    from uwf_git.ext.code.confinement import confine
    from uwf_git.ext.code.describe import program_of
    from uwf_git.ext.code.javascript import modules

    history = at.history
    code = history.workflow.code
    assert code is not None
    source = instance.registry.code_of(history.workflow_hash)
    suffix = history.workflow.file.partition(".")[2]
    grants = grants_of(instance.config, history.workflow.name)
    own = (instance.location.root, instance.location.git_dir)
    program = program_of(code.language, instance.config)
    confined = confine(instance.config, instance.environ, program, grants, own)
    options: dict[str, Any] = {
        "threadId": at.head.thread,
        "maxRounds": history.start.max_rounds or code.max_rounds,
    }
    by_script = is_script(source, code.language)
    if by_script:
        options = {"args": arguments(history.start.prompt), **_budget(instance, at)}
    order = {
        "script": by_script,
        "type": "start",
        "name": f"{history.workflow.name}.{suffix}",
        "source": source.decode("utf-8-sig", "replace"),
        "modules": list(modules()),
        "input": {"prompt": history.start.prompt, "steps": _past(instance, at)},
        "options": options,
    }
    return Live(confined, order, grants.timeout)


def _tolerance(instance: Instance, history: History) -> Callable[[int], int]:
    code = history.workflow.code
    assert code is not None
    return tolerance_of(instance.registry.code_of(history.workflow_hash), code.language)


def arguments(prompt: str) -> Any:
    """Return a script's `args`: the prompt's value if it is JSON, else the prompt. `null` is none."""
    try:
        return json.loads(prompt, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return prompt


def _number(text: str) -> float:
    """Raises ValueError for a number that JSON does not have."""
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _budget(instance: Instance, at: ThreadPosition) -> dict[str, Any]:
    """Return the tokens that a thread has spent, and may spend."""
    from uwf_git.plugin import standing_of

    standing = standing_of(instance, at.head)
    limit = standing.limits.get("maxTokens") if standing is not None else None
    return {"spent": tokens_of(instance, at.head), "total": limit.value if limit is not None else None}


def _past(instance: Instance, at: ThreadPosition) -> list[dict[str, Any]]:
    answer = instance.threads.answer
    return [
        {"role": step.role, "content": answer(step), "meta": step.output, "timestamp": step.time}
        for step in at.history.steps
        if step.remark is None
    ]


def _log(live: Live) -> list[str]:
    """Return the last lines that a script logged."""
    lines = live.printed[0].splitlines()
    return [one_line(line, 200) for line in lines[-_LOGGED:] if line.strip()]


def _kept(instance: Instance, at: ThreadPosition) -> Running | None:
    running = instance.kept.pop(at.head.thread, None) if instance.kept is not None else None
    if not isinstance(running, Running):
        return None
    if running.at != at.history.prev:
        running.close()
        return None
    running.live.go_on()
    return running


def _rounds(at: ThreadPosition) -> int | None:
    decision = decide_turn(at.history.workflow, at.history.start, at.history.steps)
    return decision.rounds if isinstance(decision, DecidedByCode) else None


def _over(at: ThreadPosition) -> OutOfRounds:
    start, code = at.history.start, at.history.workflow.code
    rounds = start.max_rounds or (code.max_rounds if code else None)
    return OutOfRounds(f"{MAX_ROUNDS}: {counted(rounds or 0, 'round')} {'is' if rounds == 1 else 'are'} done")


# Its output


def result_of(value: Any) -> CodeResult:
    """Return a return value as the thread's result. Raises AgentFailed."""
    output = _bounded(value, "the result")
    summary = output.get("summary") if isinstance(output, dict) else output
    return CodeResult(END, RESULT, output, summary if isinstance(summary, str) else "")


def step_of(instance: Instance, history: History, value: Any) -> CodeResult:
    """Return a yield as a role's step. Raises AgentFailed."""
    if not isinstance(value, dict):
        raise AgentFailed(
            f"the code yielded {brief_decision(value)}, which is not a {{role, content, meta}}", _HINT
        )
    name, content = value.get("role"), value.get("content", "")
    if not isinstance(name, str):
        raise AgentFailed(f"the code yielded a role that is not text: {brief_decision(name)}", _HINT)
    if encodable(name) != name:
        raise AgentFailed(
            f"the code yielded a role whose name holds an incomplete character: {one_line(name, 40)}",
            _HINT,
        )
    role = history.workflow.roles.get(name)
    if role is None:
        shown = one_line(name, 40)
        if name == END or means_end(name):
            hint = "a bundle ends by returning its result"
        elif name == USER:
            meta = f"{{$status: {SUSPEND_STATUS}, question}}"
            hint = f"a role asks with meta: {meta}; the answer is a step of {USER} then"
        else:
            hint = nearest(name, history.workflow.roles) or _HINT
        raise AgentFailed(
            f"the code yielded a step of {shown!r}, which is not a role of its descriptor", hint
        )
    if not isinstance(content, str):
        raise AgentFailed(
            f"role {name}: the content of the yield is not text: {brief_decision(content)}", _HINT
        )
    if encodable(content) != content:
        raise AgentFailed(
            f"role {name}: the content of the yield holds an incomplete character (a lone surrogate)",
            "was a text cut within a character?",
        )
    if len(content) > MOST_CONTENT:
        raise AgentFailed(
            f"role {name}: the content of the yield has {len(content)} characters, the limit is {MOST_CONTENT}",
            "put large texts into files",
        )
    if "meta" not in value:
        raise AgentFailed(f"role {name}: the yield has no meta", _HINT)
    meta = _bounded(value["meta"], f"role {name}: the meta of the yield")
    verdict = judge_answer(
        Reply(content, output=meta), ExpectedOutput(role, instance.store.schema(role.schema))
    )
    if verdict.problems:
        more = f" (and {len(verdict.problems) - 1} more)" if len(verdict.problems) > 1 else ""
        raise AgentFailed(
            f"role {name}: the meta of the yield breaks its schema: {verdict.problems[0]}{more}"
        )
    return CodeResult(name, verdict.type, verdict.output, content)


def _bounded(value: Any, what: str) -> Any:
    size = len(json.dumps(value, ensure_ascii=False))
    if size > MOST_META:
        raise AgentFailed(
            f"{what} has {size} characters, the limit is {MOST_META}", "put large values into files"
        )
    try:
        return normalise_payload(value)
    except Invalid as error:
        raise AgentFailed(f"{what} cannot be stored: {error.message}", error.hint) from None


def _stored(
    instance: Instance,
    at: ThreadPosition,
    order: EngineOrder,
    result: CodeResult,
    agent: str,
    calls: Calls,
    counts: CallCounts | None,
    recorder: Recorder,
    notes: Sequence[str],
) -> Hash:
    history = at.history
    draft, turns = _said(result.answer, calls, order, recorder)
    agents = calls.asked if calls.asked != [agent] else []
    others = f", and {len(agents) - _NAMED} more" if len(agents) > _NAMED else ""
    who = f"the code asked {', '.join(agents[:_NAMED])}{others}" if agents else ""
    draft = draft._replace(notes=(*draft.notes, *notes, *filter(None, (who, calls.foreign))), calls=counts)
    output = recorder.put(result.type, recorder.redact(result.output, "output"))
    detail = recorder.detail(draft, turns, order, at.head.node)
    step = Step(history.start_hash, history.prev, result.role, output, detail, agent)
    node = recorder.put(STEPNODE, step.payload())
    recorder.settle(order, node, detail, calls=calls.commits)
    return node


def _author(result: CodeResult, heard: Sequence[ConversationResult], is_generated: bool) -> str:
    """Return a step's author: the agent whose answer is its content (or without content its data), else the
    code. Partly generated steps must be exactly an agent's words."""
    text = result.answer.strip()
    # The last one first.
    answered: list[ConversationResult] = [
        entry for entry in reversed(heard) if entry.agent and (entry.texts or entry.data)
    ]
    if any(entry.agent == REHEARSE for entry in answered):
        return REHEARSE
    for item in answered:
        is_data = result.output in item.data
        is_text = any(text == text_of_agent.strip() for text_of_agent in item.texts) if text else is_data
        if is_text and (is_data or not is_generated):
            return item.agent
    return REHEARSE if is_generated else RUNNER.name


def _failed(
    error: UwfError, live: Live, head: Hash, order: EngineOrder, calls: Calls, recorder: Recorder
) -> AttemptFailed:
    draft, turns = _said("", calls, order, recorder)
    detail = recorder.detail(draft._replace(extraction="failed"), turns, order, head) if turns else None
    if detail is not None:
        recorder.settle(order, None, detail, error)
    failed = AttemptFailed(error, detail)
    failed.absence = error if isinstance(error, Waiting) else failed.absence
    with suppress(AgentFailed):
        live.close()
    printed, errors = live.printed
    failed.printed = printed, "\n".join(note for note in (errors.rstrip("\n"), *live.notes) if note)
    return failed


def _said(
    answer: str, calls: Calls, order: EngineOrder, recorder: Recorder
) -> tuple[Detail, Sequence[TurnRecord]]:
    heard, read = calls.heard, recorder.read_beside(recorder.turns)
    replies = [result.reply for result in heard]
    asked = [result.reply for result in heard if not result.is_known]
    costs = [reply.cost for reply in asked if reply.cost is not None]
    models = {reply.model for reply in replies if reply.model}
    models |= {turn.model for turn in calls.unheard if turn.model}
    sessions = {reply.session for reply in replies if reply.session}
    hows = [result.how for result in heard if result.how not in ("native", "failed")]
    detail = Detail(
        answer,
        session=sessions.pop() if len(sessions) == 1 else None,
        model=models.pop() if len(models) == 1 else None,
        usage=sum_tokens((sum_usage(asked), *(turn.usage for turn in (*calls.unheard, *read)))),
        extraction=hows[-1] if hows else "native",
        cost=sum(costs) if costs else None,
        notes=tuple(note for reply in asked for note in reply.notes),
        budget=order.budget,
    )
    return detail, (*recorder.turns, *read)


def _converses_not(_: object) -> NoReturn:
    raise AssertionError("a bundle's step is not a conversation")


agent = CodeAgent()
