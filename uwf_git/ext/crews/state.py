"""The state of a crew's run: computed from its history, written as `@state/workflow.md`, and an agent's
changes read back. The history is authoritative; changes count as part of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.crews import forms
from uwf_git.plugin import (
    END,
    ENDS,
    USER,
    Findings,
    Invalid,
    StepContext,
    ValuePath,
    Workflow,
    asks_human,
    iso,
    one_line,
    status_of,
)

if TYPE_CHECKING:
    from uwf_git.plugin import History

STATE = "@state/workflow.md"
"""What agents call the document."""
VERSION = "1.1"
"""Of the form of its fields."""
STEP = "step"
"""The type of a node that nothing says otherwise of."""

FIELDS: Mapping[str, forms.Kind] = {
    **dict.fromkeys(("runId", "project_name", "user_name", "date", "updatedAt", "currentNodeId"), forms.text),
    "stepsCompleted": forms.texts,
    "variables": forms.mapping,
    "decisionLog": forms.list_of(
        forms.object_of(
            {"from": forms.text, "to": forms.text, "label": forms.text},
            {"reason": forms.text, "decidedAt": forms.text},
        )
    ),
    "artifacts": forms.texts,
}
"""The document's fields besides schemaVersion and workflowType."""
_DOCUMENT = forms.object_of({}, {**dict.fromkeys(("schemaVersion", "workflowType"), forms.text), **FIELDS})
_CHOOSES = "steps[-1].output.next = "  # how the condition begins of an edge that an answer chooses


class MatchedEdge(NamedTuple):
    """An edge, in order. `asked`: chosen by an answer's `next`; `tested`: by an expression; otherwise by
    status or as fallback. `when` describes it."""

    label: str
    target: str
    asked: bool = False
    when: str = ""
    tested: bool = False


class LoggedDecision(NamedTuple):
    """A decision between several edges. `to` is $END at the end; `decided_at` is in Unix milliseconds, 0 if
    unknown."""

    source: str
    to: str
    label: str
    reason: str = ""
    decided_at: int = 0

    def as_json(self) -> dict[str, Any]:
        value = {"from": self.source, "to": self.to, "label": self.label}
        if self.reason:
            value["reason"] = self.reason
        if self.decided_at:
            value["decidedAt"] = iso(self.decided_at / 1000)
        return value


class RunState(NamedTuple):
    """A run's state. `current_node` is next or asks; at the end or when stuck, the last one done.
    `steps_completed` has each node once, by first completion. `artifacts` are paths."""

    current_node: str
    steps_completed: tuple[str, ...] = ()
    variables: Mapping[str, Any] = {}
    decision_log: tuple[LoggedDecision, ...] = ()
    artifacts: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "currentNodeId": self.current_node,
            "stepsCompleted": list(self.steps_completed),
            "variables": dict(self.variables),
            "decisionLog": [decision.as_json() for decision in self.decision_log],
            "artifacts": list(self.artifacts),
        }


class Changes(NamedTuple):
    """An agent's changes. `next` is the label of a chosen edge or ""."""

    variables: Mapping[str, Any] = {}
    artifacts: tuple[str, ...] = ()
    next: str = ""

    def added_to(self, output: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer's fields with these changes; the answer's own win."""
        value = dict(output)
        variables, listed = value.get("variables", {}), value.get("artifacts", [])
        if self.variables and isinstance(variables, Mapping):
            value["variables"] = {**self.variables, **variables}
        if self.artifacts and isinstance(listed, list | tuple):
            value["artifacts"] = list(dict.fromkeys((*self.artifacts, *listed)))
        if self.next:
            value.setdefault("next", self.next)
        return value


def reached(history: History, current: str | None = None) -> RunState:
    """Compute a history's state. `current` is the next node ($END, $USER) if known, else decided. Raises what
    a condition raises."""
    workflow = history.workflow
    completed: dict[str, None] = {}
    variables = dict(workflow.crew.variables) if workflow.crew is not None else {}
    artifacts: dict[str, None] = {}
    done: list[StepContext] = []
    log: list[LoggedDecision] = []
    at, fresh = "", False  # the last node, and whether its next one is still unknown
    for step in history.steps:
        if step.remark is not None:
            continue
        if step.role == USER:  # a message without a question: the ended run continues
            log += _decision(workflow, done[-1], END) if fresh else []
            fresh = False
            continue
        if fresh:
            log += _decision(workflow, done[-1], step.role)
        at, fresh = step.role, not asks_human(step.output)
        if not fresh:
            continue
        completed.setdefault(step.role)
        done.append(step)
        output = step.output if isinstance(step.output, Mapping) else {}
        if isinstance(changes := output.get("variables"), Mapping):
            variables |= changes
        if isinstance(paths := output.get("artifacts"), list | tuple):
            artifacts |= dict.fromkeys(path for path in paths if isinstance(path, str))
    goes_on = _next(history) if current is None else current
    if fresh and goes_on:
        log += _decision(workflow, done[-1], goes_on)
    here = goes_on if goes_on in workflow.roles else at
    return RunState(here, tuple(completed), variables, tuple(log), tuple(artifacts))


def _next(history: History) -> str:
    from uwf_git.plugin import AwaitingAnswer, Next, NoTransition, decide_turn

    try:
        decision = decide_turn(history.workflow, history.start, history.steps)
    except NoTransition:
        return ""
    if isinstance(decision, AwaitingAnswer):
        return USER
    return decision.role if isinstance(decision, Next) else END


def ways(workflow: Workflow, node: str) -> tuple[MatchedEdge, ...]:
    """Return a node's edges, without a package's generated ones to $END."""
    role = workflow.roles.get(node)
    of_package = role is not None and role.node is not None
    edges: list[MatchedEdge] = []
    for edge in workflow.graph.get(node, ()):
        if of_package and edge.role == END:
            continue
        condition = workflow.conditions.get(edge.condition or "")
        chosen = condition is None or condition.expression.startswith(_CHOOSES)
        when = edge.text or (condition.description if condition is not None else "")
        label = edge.label or edge.status or edge.condition or ""
        edges.append(MatchedEdge(label, edge.role, of_package and chosen, when.strip(), not chosen))
    choices = sum(edge.asked for edge in edges)
    return tuple(edge._replace(asked=edge.asked and choices > 1) for edge in edges)


def successors(workflow: Workflow, node: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(way.target for way in ways(workflow, node) if way.target not in ENDS))


def _decision(workflow: Workflow, step: StepContext, to: str) -> list[LoggedDecision]:
    leaving = ways(workflow, step.role)
    leading = [edge for edge in leaving if edge.target == to]
    if len(leaving) < 2 or not leading:
        return []
    output = step.output if isinstance(step.output, Mapping) else {}
    answer = (output.get("next"), status_of(output))
    chosen = next((edge for edge in leading if edge.label and edge.label in answer), leading[0])
    reason = next((text for key in ("reason", "summary") if isinstance(text := output.get(key), str)), "")
    return [LoggedDecision(step.role, to, chosen.label, reason.strip(), step.time)]


def render(history: History, now: RunState, body: str = "") -> str:
    """Return `@state/workflow.md`: the state as frontmatter, and a text."""
    workflow = history.workflow
    kind = workflow.crew.workflow if workflow.crew is not None else workflow.name
    fields: dict[str, Any] = {"schemaVersion": VERSION, "workflowType": kind, "runId": str(history.thread)}
    if history.steps and history.steps[-1].time:
        fields["updatedAt"] = iso(history.steps[-1].time / 1000)
    from uwf_git.plugin import dump_yaml

    below = f"\n{body.strip()}\n" if body.strip() else ""
    return f"---\n{dump_yaml(fields | now.as_json())}---\n{below}"


def read_back(text: str, before: RunState, workflow: Workflow) -> Changes:
    """Return an agent's changes relative to `before`. The body, completed steps and omitted variables count for
    nothing. Raises Invalid with all problems: invalid YAML, unknown fields, transitions outside the graph."""
    document, _ = forms.read_frontmatter(text, STATE)
    part = forms.Part(STATE, document, Findings(document))
    fields = _DOCUMENT(part, (), document.data) or {}
    label = _chosen(part, fields, before, ways(workflow, before.current_node))
    if problems := part.findings.sorted():
        message = "; ".join(f"line {problem.line}: {problem.message}" for problem in problems)
        raise Invalid(f"{STATE}: {message}", next(filter(None, (problem.hint for problem in problems)), ""))
    variables = {
        name: value
        for name, value in fields.get("variables", {}).items()
        if name not in before.variables or not _same(before.variables[name], value)
    }
    artifacts = (path for path in dict.fromkeys(fields.get("artifacts", ())) if path not in before.artifacts)
    return Changes(variables, tuple(artifacts), label)


def _chosen(
    part: forms.Part, fields: Mapping[str, Any], before: RunState, leaving: Sequence[MatchedEdge]
) -> str:
    """Return the label of the edge that a document follows, by its current node or a new decision, or ""."""
    here = before.current_node
    decisions = fields.get("decisionLog", [])[len(before.decision_log) :]
    moves: list[tuple[ValuePath, str, str]] = [
        ((*path, "to"), entry.get("to", ""), entry.get("label", "")) for path, entry in decisions
    ]
    if (current := fields.get("currentNodeId", here)) != here:
        moves.insert(0, (("currentNodeId",), current, ""))
    labels: set[str] = set()
    for path, target, label in moves:
        edges = [edge for edge in leaving if edge.target == target and label in ("", edge.label)]
        labels.update(edge.label for edge in edges if edge.asked and (label or len(edges) == 1))
        if not edges:
            with_label = f" with the label {_shown(label)}" if label else ""
            targets = ", ".join(dict.fromkeys(repr(edge.target) for edge in leaving))
            others = f"those that there are lead to {targets}" if targets else "none does: the run ends there"
            message = f"no transition leads from {here!r} to {_shown(target)}{with_label}; {others}"
            hint = part.findings.nearest(target, [edge.target for edge in leaving])
            part.findings.error(path, "no-transition", message, hint)
    if len(labels) > 1:
        message = f"it follows {', '.join(map(repr, sorted(labels)))}, of which only one can be"
        part.findings.error(moves[-1][0], "two-transitions", message)
    return labels.pop() if labels else ""


def _shown(value: str) -> str:
    return repr(one_line(value, 60))


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
