"""The moderator: a pure function from a workflow and a history to the next role. No git, no network, no clock
except for its time limit.

The last step decides. An answer returns to the role that asked; a text in a finished thread goes to the role
that `$START` names; a question waits; any other output takes its role's first matching edge, by status or by
a condition over the history. Remarks are invisible to edges and conditions.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from uwf_git.base import log
from uwf_git.base.errors import Invalid, LimitExceeded, NoTransition
from uwf_git.base.text import nearest, shortened
from uwf_git.format.edges import Transition
from uwf_git.format.kinds import (
    BODY,
    CONTENT,
    TIMESTAMP,
    Code,
    Start,
    StepContext,
    Workflow,
    asks_human,
    split_remarks,
    status_of,
)
from uwf_git.format.types import BUNDLE, END, ENDS, FAIL, FORK, JOIN, RESUME, START, USER
from uwf_git.workflow.turn import TARGETS

if TYPE_CHECKING:
    from uwf_git.format.fan_out import Fork
    from uwf_git.workflow.expression import Frozen

SECONDS = 5.0  # of computing for the conditions of one decision, each of which has a limit of its own


class Next(NamedTuple):
    """The next role, with the edge's rendered `instruction` and `location`, None if absent."""

    role: str
    instruction: str | None = None
    location: str | None = None


class WorkflowEnded(NamedTuple):
    """The workflow has ended, at `$END` or `$FAIL`. `reason` is the rendered prompt of an edge to `$FAIL`."""

    failed: bool = False
    reason: str = ""


class AwaitingAnswer(NamedTuple):
    """`role` waits for a person's answer."""

    role: str
    question: str
    options: tuple[str, ...]
    reason: str


class DecidedByCode(NamedTuple):
    """A code workflow decides when it runs. `rounds` is the number of steps left, None for no limit; at 0 it
    can only end."""

    rounds: int | None = None


class FansOut(NamedTuple):
    """The next step forks, with these items. `chosen` is its edge."""

    chosen: "ChosenEdge"
    items: tuple[Any, ...]


class AwaitingBranches(NamedTuple):
    """The thread waits for the branches of its fork."""

    fork: "Fork"


Decision = Next | WorkflowEnded | AwaitingAnswer | DecidedByCode | FansOut | AwaitingBranches
"""What a thread's steps lead to."""


def next_role(decision: Decision) -> str:
    """Return the role that a decision leads to."""
    match decision:
        case Next():
            return decision.role
        case WorkflowEnded():
            return END
        case AwaitingAnswer():
            return USER
        case DecidedByCode():
            return BUNDLE
        case FansOut():
            return FORK
        case AwaitingBranches():
            return JOIN
        case _:
            assert_never(decision)


Graph = Mapping[str, Iterable[str]]


class ChosenEdge(NamedTuple):
    """The edge of `source` at index `position`."""

    source: str
    position: int
    edge: Transition


def decide(
    workflow: Workflow, start: Start, steps: Sequence[StepContext], replay: "Replay | None" = None
) -> Decision:
    """Return the decision after these steps, oldest first. A `replay` speeds up repeated decisions on a
    growing history. Raises NoTransition if no edge matches, Invalid for a failing condition or template or an
    unknown role."""
    steps, _ = split_remarks(steps)
    if workflow.code is not None:
        return _of_bundle(workflow.code, start, steps)
    if steps:
        last = steps[-1]
        if (resolved := _after_conflicts(workflow, start, steps)) is not None:
            return resolved
        if last.role == USER:
            return _describe(workflow, start, steps)
        if last.role == FORK:
            from uwf_git.format.fan_out import parse_fork

            return AwaitingBranches(parse_fork(last.output, last.hash))
        if last.role == JOIN and (decision := _at_join(workflow, steps)) is not None:
            return decision
        if asks_human(last.output):
            return _question(last.role, last.output) if last.role != JOIN else _of_join(last.output)
    branch = start.branch
    if branch is not None and branch.role:
        if not steps:
            return _first_of_branch(workflow, branch.role)
        if steps[-1].role != JOIN and not workflow.graph.get(steps[-1].role):
            return WorkflowEnded()
    return follow(workflow, choose(workflow, start, steps, replay=replay), start, steps, replay)


def _after_conflicts(
    workflow: Workflow, start: Start, steps: Sequence[StepContext]
) -> Next | WorkflowEnded | FansOut | None:
    """Return where a join leads once its conflicts are resolved: as if there had been none. None unless the last step
    has resolved them."""
    joined = _resolved(workflow, steps)
    return None if joined is None else follow(workflow, choose(workflow, start, joined), start, joined)


def _first_of_branch(workflow: Workflow, role: str) -> Next:
    if role not in workflow.roles:
        raise Invalid(f"workflow {workflow.name}: the branch begins at {role}, which is not a role")
    return Next(role)


def _at_join(workflow: Workflow, steps: Sequence[StepContext]) -> Next | WorkflowEnded | None:
    """Return what comes after a join if its edges don't decide: its failure, or the role that resolves conflicts."""
    from uwf_git.format.fan_out import parse_fork, parse_join
    from uwf_git.workflow.fan_out import Joinable, conflict_task, fork_before, judge_join, resolver

    step = fork_before(steps)
    if step is None:
        raise Invalid("its last step joins branches, and the one before is not a fork")
    fork, branches = parse_fork(step.output, step.hash), parse_join(steps[-1].output, steps[-1].hash)
    joining = judge_join(fork, branches)
    if isinstance(joining, Joinable) and joining.failure:
        return WorkflowEnded(True, joining.failure)
    if not (role := resolver(fork, branches)):
        return None
    if role not in workflow.roles:
        raise Invalid(
            f"workflow {workflow.name}: onConflict of {fork.source} names {role}, which is not a role",
            nearest(role, workflow.roles),
        )
    return Next(role, conflict_task(branches))


def _resolved(workflow: Workflow, steps: Sequence[StepContext]) -> Sequence[StepContext] | None:
    """Return the steps up to the join whose conflicts the last step, by a person or a role, has resolved; None if it
    has not."""
    role = steps[-1].role
    resolvers = {edge.fan_out.on_conflict for edge in workflow.edges if edge.fan_out is not None}
    if not resolvers or (role != USER and (role not in resolvers or asks_human(steps[-1].output))):
        return None
    from uwf_git.workflow.fan_out import join_resolved

    return join_resolved(steps[:-1], role) or None


def _of_bundle(code: Code, start: Start, steps: Sequence[StepContext]) -> Decision:
    if steps and steps[-1].role == END:
        return _ended_by_code(steps[-1].output)
    if steps and steps[-1].role != USER and asks_human(steps[-1].output):
        return _question(steps[-1].role, steps[-1].output)
    most = start.max_rounds or code.max_rounds
    return DecidedByCode(None if most is None else max(0, most - sum(step.role != USER for step in steps)))


def _ended_by_code(result: Any) -> WorkflowEnded:
    if not isinstance(result, dict) or result.get("$status") != FAIL:
        return WorkflowEnded()
    reason = result.get("reason")
    return WorkflowEnded(True, reason.strip() if isinstance(reason, str) else "")


def follow(
    workflow: Workflow,
    chosen: ChosenEdge,
    start: Start,
    steps: Sequence[StepContext],
    replay: "Replay | None" = None,
) -> Next | WorkflowEnded | FansOut:
    """Return where a chosen edge leads. An empty prompt or location counts as absent. A branch ends at an edge to a
    role of its join. Raises Invalid for an unknown role, or a failing template or `each`."""
    role = chosen.edge.role
    if chosen.edge.fan_out is not None:
        return _fanning_out(workflow, chosen, start, steps, replay)
    if role == FAIL:  # before the join's roles, which may have it too: such a branch has failed
        return WorkflowEnded(
            True, _rendered(workflow, chosen, "prompt", chosen.edge.prompt, start, steps) or ""
        )
    if role == END or (start.branch is not None and role in start.branch.until):
        return WorkflowEnded()
    if role not in workflow.roles and role not in TARGETS:
        raise Invalid(
            f"workflow {workflow.name}: an edge of {chosen.source} leads to {role}, which is not a role",
            nearest(role, workflow.roles),
        )
    return Next(
        role,
        _rendered(workflow, chosen, "prompt", chosen.edge.prompt, start, steps),
        _rendered(workflow, chosen, "location", chosen.edge.location, start, steps),
    )


def _fanning_out(
    workflow: Workflow,
    chosen: ChosenEdge,
    start: Start,
    steps: Sequence[StepContext],
    replay: "Replay | None",
) -> FansOut:
    from uwf_git.workflow.fan_out import items_of

    assert chosen.edge.fan_out is not None
    where = f"workflow {workflow.name}: the edge {describe(chosen)}"
    value = replay.value() if replay else history_value(start, steps, workflow.step_fields)
    try:
        return FansOut(chosen, items_of(chosen.edge.fan_out, value, where))
    except Invalid as error:
        if error.message.startswith(where):
            raise
        raise type(error)(f"{where}: {error.message}", error.hint) from None


def branch_prompt(
    workflow: Workflow, chosen: ChosenEdge, start: Start, steps: Sequence[StepContext], index: int, item: Any
) -> str:
    """Return the prompt of a fan-out's branch. Raises Invalid."""
    from uwf_git.workflow.fan_out import default_prompt

    fan_out = chosen.edge.fan_out
    assert fan_out is not None
    fixed = fan_out.fixed
    template = (fixed[index].prompt if fixed else None) or chosen.edge.prompt
    if template is None:
        return default_prompt(start.prompt, fan_out.name, item)
    variables = {**template_variables(start, steps), **_of_item(fan_out.name, index, item)}
    return _rendered_with(workflow, chosen, "prompt", template, variables) or default_prompt(
        start.prompt, fan_out.name, item
    )


def _leaving(workflow: Workflow, steps: Sequence[StepContext]) -> tuple[str, Sequence[Transition]]:
    """Return the name and the edges of what the last step leaves."""
    if not steps:
        return START, workflow.graph.get(START, ())
    role = steps[-1].role
    if role != JOIN:
        return role, workflow.graph.get(role, ())
    from uwf_git.format.fan_out import parse_fork
    from uwf_git.workflow.fan_out import fork_before, join_name

    step = fork_before(steps)
    fork = parse_fork(step.output, step.hash) if step is not None else None
    edges = workflow.graph.get(fork.source, ()) if fork is not None else ()
    if fork is None or fork.edge >= len(edges) or (fan_out := edges[fork.edge].fan_out) is None:
        raise Invalid(f"workflow {workflow.name}: a join of no fan-out of the workflow")
    return join_name(fork.source, fork.edge), fan_out.join


def choose(
    workflow: Workflow,
    start: Start,
    steps: Sequence[StepContext],
    on_condition: Callable[[str, bool], None] | None = None,
    replay: "Replay | None" = None,
) -> ChosenEdge:
    """Return the edge for the last output, or from $START. The last step must be a role's and not a question.
    `on_condition` gets each evaluated condition's name and result. Raises NoTransition, Invalid."""
    source, edges = _leaving(workflow, steps)
    output = steps[-1].output if steps else None
    status = status_of(output)
    value = replay.value if replay else cache(lambda: history_value(start, steps, workflow.step_fields))
    deadline = time.thread_time() + SECONDS
    for position, edge in enumerate(edges):
        if edge.status is not None:
            matches = edge.status == status
        elif edge.condition is not None:
            if time.thread_time() > deadline:
                raise LimitExceeded(
                    f"workflow {workflow.name}: the conditions after {source} take longer than {SECONDS:g} s together; "
                    f"{edge.condition} was not asked",
                    "make them simpler, or ask first what is quickly told",
                )
            matches = _holds(workflow, source, edge.condition, value)
            log.debug(
                "8H2CQSFM",
                "the condition {condition} of {source} is {holds}",
                condition=edge.condition,
                source=source,
                holds=matches,
            )
            if on_condition is not None:
                on_condition(edge.condition, matches)
        else:
            matches = True
        if matches:
            return ChosenEdge(source, position, edge)
    raise _no_transition(workflow, source, output, edges)


def template_variables(start: Start, steps: Sequence[StepContext]) -> dict[str, Any]:
    """Return the variables of an edge's templates: the last output's fields, `_body` with its answer's text,
    and `start` with the workflow's hash and prompt; before the first step also `prompt`. In a branch also its
    `index`, and its item by the name that its fork gives it. These and `start` override a field, and a field
    overrides `_body` and, in a thread that was started with one, `issue`."""
    branch = start.branch
    own = _of_item(branch.name, branch.position, branch.item) if branch is not None else {}
    if not steps:
        return {**_issue_of(start), "prompt": start.prompt, **own, "start": _start_value(start)}
    from uwf_git.workflow.template import body_of

    output = steps[-1].output if isinstance(steps[-1].output, dict) else {}
    before = {BODY: body_of(steps[-1].answer), **_issue_of(start)}
    return {**before, **output, **own, "start": _start_value(start)}


def _of_item(name: str, index: int, item: Any) -> dict[str, Any]:
    return {"index": index, name: item}


def history_value(start: Start, steps: Sequence[StepContext], fields: Sequence[str] = ()) -> dict[str, Any]:
    """Return the input of expressions, `{start, steps}`, with outputs expanded and without remarks; after a join also
    its `branches`, in a thread that was started with an issue also `issue`. `fields` are optional ones: `content` (the
    answer) and `timestamp`. The start of a branch has its `index` and `item`."""
    past = [_step_value(step, fields) for step in steps if step.remark is None]
    return {"start": _start_value(start), **_issue_of(start), "steps": past, **_joined_last(past)}


def _joined_last(past: Sequence[Any]) -> dict[str, Any]:
    """Return the `branches` of the last of some step values, {} if it is not a join."""
    output = past[-1]["output"] if past and past[-1]["role"] == JOIN else None
    return {"branches": output["branches"]} if isinstance(output, dict) and "branches" in output else {}


class Replay:
    """The conditions' input, kept between decisions so that only new steps are converted."""

    def __init__(self, workflow: Workflow, start: Start, steps: list[StepContext]) -> None:
        self._fields = workflow.step_fields
        self._start = start
        self._steps = steps
        self._frozen: Frozen | None = None
        self._past: list[Any] = []
        self._seen = 0

    def value(self) -> Any:
        if self._frozen is None:
            from uwf_git.workflow.expression import Frozen

            self._frozen = Frozen()
            self._frozen.value = self._frozen.freeze(
                {"start": _start_value(self._start), **_issue_of(self._start), "steps": []}
            )
            self._past = self._frozen.value["steps"]
        added = [step for step in self._steps[self._seen :] if step.remark is None]
        self._seen = len(self._steps)
        # As a list, for the frozen one refuses to grow.
        list.extend(self._past, (self._frozen.freeze(_step_value(step, self._fields)) for step in added))
        dict.pop(self._frozen.value, "branches", None)
        dict.update(self._frozen.value, _joined_last(self._past))
        return self._frozen


def _start_value(start: Start) -> dict[str, Any]:
    value: dict[str, Any] = {"workflow": start.workflow, "prompt": start.prompt}
    return (
        value
        if start.branch is None
        else {**value, "index": start.branch.position, "item": start.branch.item}
    )


def _issue_of(start: Start) -> dict[str, Any]:
    return {"issue": start.issue.value()} if start.issue is not None else {}


def _step_value(step: StepContext, fields: Sequence[str]) -> dict[str, Any]:
    value = {"role": step.role, "output": step.output, "detail": step.detail, "agent": step.agent}
    if CONTENT in fields:
        value[CONTENT] = step.answer
    if TIMESTAMP in fields:
        value[TIMESTAMP] = step.time
    return value


def _holds(workflow: Workflow, source: str, name: str, value: Callable[[], Any]) -> bool:
    condition = workflow.conditions.get(name)
    if condition is None:
        raise Invalid(
            f"workflow {workflow.name}: an edge of {source} has the condition {name}, which is not defined",
            nearest(name, workflow.conditions),
        )
    from uwf_git.workflow.expression import holds

    try:
        return holds(condition.expression, value())
    except Invalid as error:
        raise type(error)(
            f"workflow {workflow.name}: condition {name}: {error.message}", error.hint
        ) from None


def _describe(
    workflow: Workflow, start: Start, steps: Sequence[StepContext]
) -> Next | WorkflowEnded | FansOut:
    output = steps[-1].output
    text = output.get("answer") if isinstance(output, dict) else None
    if not isinstance(text, str):
        raise Invalid(f"what the user said is not {{answer: text}}: {brief(output)}")
    before = next((step for step in reversed(steps) if step.role != USER), None)
    if before is None or not asks_human(before.output):
        return _resumed(workflow, start, text)
    role = before.role
    if role not in workflow.roles:
        raise Invalid(
            f"workflow {workflow.name}: {role} asked the user and is not a role",
            nearest(role, workflow.roles),
        )
    return Next(role, text)


def _resumed(workflow: Workflow, start: Start, text: str) -> Next | WorkflowEnded | FansOut:
    place = workflow.resume
    if place is None:
        raise Invalid(
            f"a message without a question, and workflow {workflow.name} names no role for that",
            f"{START} of its graph names that role under {RESUME}",
        )
    if start.branch is not None and start.branch.role:  # $START is outside of the branch
        return Next(start.branch.role, text)
    decision = follow(workflow, ChosenEdge(START, place, workflow.graph[START][place]), start, ())
    if isinstance(decision, WorkflowEnded | FansOut):
        return decision
    return decision._replace(
        instruction=f"{decision.instruction}\n\n{text}" if decision.instruction else text
    )


def _question(role: str, output: Mapping[str, Any]) -> AwaitingAnswer:
    question, options, reason = output.get("question"), output.get("options"), output.get("reason")
    texts = [text for text in (question, reason) if isinstance(text, str) and text.strip()]
    return AwaitingAnswer(
        role,
        texts[0] if texts else "",
        tuple(str(option) for option in options) if isinstance(options, list) else (),
        texts[1] if len(texts) > 1 else "",
    )


def _of_join(output: Mapping[str, Any]) -> AwaitingAnswer:
    from uwf_git.workflow.fan_out import LEAVE_OUT, MERGED

    return _question(JOIN, output)._replace(options=(MERGED, LEAVE_OUT))


def _rendered(
    workflow: Workflow,
    chosen: ChosenEdge,
    what: str,
    template: str | None,
    start: Start,
    steps: Sequence[StepContext],
) -> str | None:
    return (
        None
        if template is None
        else _rendered_with(workflow, chosen, what, template, template_variables(start, steps))
    )


def _rendered_with(
    workflow: Workflow, chosen: ChosenEdge, what: str, template: str, variables: Mapping[str, Any]
) -> str | None:
    from uwf_git.workflow.template import render

    edge = f"workflow {workflow.name}: the {what} of the edge {describe(chosen)}"
    try:
        text = render(template, variables)
    except Invalid as error:
        raise type(error)(f"{edge}: {error.message}", error.hint) from None
    return text if text.strip() else None


def describe(chosen: ChosenEdge) -> str:
    """Return an edge as text: `reviewer -> developer (status rejected)`."""
    edge = chosen.edge
    if edge.status is not None:
        why = f" (status {edge.status})"
    elif edge.condition is not None:
        why = f" (condition {edge.condition})"
    else:
        why = ""
    return f"{chosen.source} -> {edge.leads_to}{why}"


def _no_transition(workflow: Workflow, source: str, output: Any, edges: Sequence[Transition]) -> NoTransition:
    where = f"workflow {workflow.name}: no edge leads on from {source}"
    if not edges:
        return NoTransition(f"{where}: the graph has none for it", f"add {source} to the graph")
    tried = [f"condition {edge.condition}" for edge in edges if edge.condition is not None]
    statuses = [edge.status for edge in edges if edge.status is not None]
    if statuses:
        tried.append("status " + ", ".join(statuses))
    if source != START:
        where += f" with the output {brief(output)}"
    return NoTransition(
        f"{where}; tried: {'; '.join(tried)}", f"give {source} an edge without a condition, or a `_` status"
    )


def brief(value: Any) -> str:
    """Return the beginning of a JSON value."""
    return shortened(json.dumps(value, ensure_ascii=False), 200)


def reachable(graph: Graph, start: str = START) -> set[str]:
    """Return the nodes reachable from start, inclusive."""
    seen = {start}
    waiting = [start]
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def leading_to(graph: Graph, end: str) -> set[str]:
    """Return the nodes that lead to a node, inclusive."""
    backwards: dict[str, set[str]] = {}
    for source, targets in graph.items():
        for target in targets:
            backwards.setdefault(target, set()).add(source)
    return reachable(backwards, end)


def can_end(graph: Graph) -> set[str]:
    """Return the sources that lead to `$END` or `$FAIL`."""
    return (leading_to(graph, END) | leading_to(graph, FAIL)) - set(ENDS)


# Parts of an output that are read as a whole: `output` without a field, and iterations over all fields.
_WHOLE = (
    r"\boutput\b(?!\s*\.\s*[\w$`\"'])|\.\s*\*|\*\*|\$(?:string|keys|lookup|each|spread|merge|sift|eval)\b"
)

_TAG = r"(?s)\{\{.*?\}\}|\{%.*?%\}"
_WORD = r"[\w$]+"


def may_read(workflow: Workflow) -> Callable[[str], bool]:
    """Return a predicate: may a condition, prompt or location read this output field?

    Judged by their texts, erring towards yes; always yes for code. A lookup for names of word characters, a
    text search for others.
    """
    expressions = [condition.expression for condition in workflow.conditions.values()]
    expressions += [expression.replace("$last()", "output") for expression in workflow.item_expressions]
    templates = [tag for text in workflow.templates for tag in re.findall(_TAG, text)]
    # After a join, templates print outputs of branches as a whole.
    joined = any("branches" in re.findall(_WORD, tag) for tag in templates)
    if (
        workflow.code is not None
        or joined
        or any(re.search(_WHOLE, expression) for expression in expressions)
    ):
        return lambda _name: True
    text = "\n".join((*templates, *expressions))
    words = frozenset(re.findall(_WORD, text))

    def reads(name: str) -> bool:
        if re.fullmatch(_WORD, name):
            return name in words
        return name in text and bool(re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text))

    return reads
