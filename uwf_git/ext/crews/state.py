"""The state of a crew's run: computed from its history, written as `@state/workflow.md`, and an agent's
changes read back. The history is authoritative; changes count as part of the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import closest, iso, one_line
from uwf_git.format.document import Document
from uwf_git.format.kinds import StepContext, Workflow, asks_human, status_of
from uwf_git.format.schema import ValuePath
from uwf_git.format.types import END, ENDS, USER

if TYPE_CHECKING:
    from uwf_git.store.history import History

STATE = "@state/workflow.md"
"""What agents call the document."""
VERSION = "1.1"
"""Of the form of its fields."""
STEP = "step"
"""The type of a node that nothing says otherwise of."""

_LEFT_ALONE = ("schemaVersion", "workflowType", "runId", "project_name", "user_name", "date", "updatedAt")
_FOLDED = ("currentNodeId", "stepsCompleted", "variables", "decisionLog", "artifacts")
_LOGGED = ("from", "to", "label", "reason", "decidedAt")
_BLOCK = re.compile(r"\A\ufeff?\s*---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
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
            "decisionLog": [each.as_json() for each in self.decision_log],
            "artifacts": list(self.artifacts),
        }


class Changes(NamedTuple):
    """An agent's changes. `next` is the label of a chosen edge or ""; `target` the new current node or ""."""

    variables: Mapping[str, Any] = {}
    artifacts: tuple[str, ...] = ()
    next: str = ""
    target: str = ""

    def added_to(self, output: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer's fields with these changes; the answer's own win."""
        value = dict(output)
        said, listed = value.get("variables", {}), value.get("artifacts", [])
        if self.variables and isinstance(said, Mapping):
            value["variables"] = {**self.variables, **said}
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
        if isinstance(set_now := output.get("variables"), Mapping):
            variables |= set_now
        if isinstance(written := output.get("artifacts"), list | tuple):
            artifacts |= dict.fromkeys(each for each in written if isinstance(each, str))
    goes_on = _next(history) if current is None else current
    if fresh and goes_on:
        log += _decision(workflow, done[-1], goes_on)
    here = goes_on if goes_on in workflow.roles else at
    return RunState(here, tuple(completed), variables, tuple(log), tuple(artifacts))


def _next(history: History) -> str:
    from uwf_git.base.errors import NoTransition
    from uwf_git.workflow.moderator import AwaitingAnswer, Next, decide

    try:
        decision = decide(history.workflow, history.start, history.steps)
    except NoTransition:
        return ""
    if isinstance(decision, AwaitingAnswer):
        return USER
    return decision.role if isinstance(decision, Next) else END


def ways(workflow: Workflow, node: str) -> tuple[MatchedEdge, ...]:
    """Return a node's edges, without a package's generated ones to $END."""
    role = workflow.roles.get(node)
    of_package = role is not None and role.node is not None
    found: list[MatchedEdge] = []
    for edge in workflow.graph.get(node, ()):
        if of_package and edge.role == END:
            continue
        condition = workflow.conditions.get(edge.condition or "")
        chosen = condition is None or condition.expression.startswith(_CHOOSES)
        when = edge.text or (condition.description if condition is not None else "")
        label = edge.label or edge.status or edge.condition or ""
        found.append(MatchedEdge(label, edge.role, of_package and chosen, when.strip(), not chosen))
    asked = sum(way.asked for way in found)
    return tuple(way._replace(asked=way.asked and asked > 1) for way in found)


def successors(workflow: Workflow, node: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(way.target for way in ways(workflow, node) if way.target not in ENDS))


def _decision(workflow: Workflow, step: StepContext, to: str) -> list[LoggedDecision]:
    known = ways(workflow, step.role)
    leading = [way for way in known if way.target == to]
    if len(known) < 2 or not leading:
        return []
    output = step.output if isinstance(step.output, Mapping) else {}
    said = (output.get("next"), status_of(output))
    chosen = next((way for way in leading if way.label and way.label in said), leading[0])
    reason = next((text for key in ("reason", "summary") if isinstance(text := output.get(key), str)), "")
    return [LoggedDecision(step.role, to, chosen.label, reason.strip(), step.time)]


def render(history: History, now: RunState, body: str = "") -> str:
    """Return `@state/workflow.md`: the state as frontmatter, and a text."""
    workflow = history.workflow
    kind = workflow.crew.workflow if workflow.crew is not None else workflow.name
    fields: dict[str, Any] = {"schemaVersion": VERSION, "workflowType": kind, "runId": str(history.thread)}
    if history.steps and history.steps[-1].time:
        fields["updatedAt"] = iso(history.steps[-1].time / 1000)
    from uwf_git.format.yaml12 import dump

    below = f"\n{body.strip()}\n" if body.strip() else ""
    return f"---\n{dump(fields | now.as_json())}---\n{below}"


def read_back(text: str, before: RunState, workflow: Workflow) -> Changes:
    """Return an agent's changes relative to `before`. The body and unrelated fields are ignored; omitted
    variables stay. Raises Invalid with all problems: invalid YAML, unknown fields, transitions outside the
    graph, undone progress."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    block = _BLOCK.match(text)
    if block is None:
        raise Invalid(
            f"{STATE} doesn't begin with a block of fields between two lines of ---", "keep its frontmatter"
        )
    from uwf_git.format.yaml12 import load

    above = text.count("\n", 0, block.start(1))
    document = load("\n" * above + block[1], STATE, tolerant=True)
    return _Reader(document, before, workflow).changes()


class _Reader:
    """Reads a changed document."""

    def __init__(self, document: Document, before: RunState, workflow: Workflow) -> None:
        self._document = document
        self._before = before
        self._here = before.current_node
        self._ways = ways(workflow, self._here)
        self._wrong: list[str] = []
        self._hint = ""

    def changes(self) -> Changes:
        data = self._document.data
        if not isinstance(data, dict):
            raise Invalid(
                f"{STATE}: its frontmatter is not a mapping", f"its fields are {', '.join(_FOLDED)}"
            )
        for key in data:
            if key not in _FOLDED + _LEFT_ALONE:
                hint = _suggest(str(key), _FOLDED) or "values of your own belong below variables"
                self._refuse((key,), f"unknown field {_shown(key)}", hint)
        self._completed(data.get("stepsCompleted"))
        target = self._target(data.get("currentNodeId"))
        logged, label = self._decided(data.get("decisionLog"))
        if target and logged and target != logged:
            self._refuse(("currentNodeId",), f"it is {target!r}, and decisionLog goes to {logged!r}")
        variables = self._variables(data.get("variables"))
        artifacts = self._artifacts(data.get("artifacts"))
        if self._wrong:
            raise Invalid(f"{STATE}: {'; '.join(self._wrong)}", self._hint)
        target = target or logged
        return Changes(variables, artifacts, self._next(target, label), target)

    def _completed(self, value: Any) -> None:
        if value is None:
            return
        path: ValuePath = ("stepsCompleted",)
        ids = self._texts(path, value, "stepsCompleted is a list of ids of nodes")
        if ids is None:
            return
        for gone in (each for each in self._before.steps_completed if each not in ids):
            self._refuse(path, f"stepsCompleted lacks {gone!r}, which was done")
        for position, each in enumerate(ids):
            if each not in (*self._before.steps_completed, self._here):
                what = (
                    f"stepsCompleted has {_shown(each)}, which was not done: it is {self._here!r} that goes"
                )
                self._refuse((*path, position), what)

    def _target(self, value: Any) -> str:
        path: ValuePath = ("currentNodeId",)
        node = "" if value is None else self._text(path, value)
        if node is None:
            self._refuse(path, "currentNodeId is the id of a node")
        return node if node and node != self._here and self._leads_to(path, node) else ""

    def _leads_to(self, path: ValuePath, target: str) -> bool:
        known = dict.fromkeys(way.target for way in self._ways)
        if target in known:
            return True
        has = ", ".join(map(repr, known))
        those = f"those that there are lead to {has}" if has else "none does: the run ends there"
        what = f"no transition leads from {self._here!r} to {_shown(target)}; {those}"
        self._refuse(path, what, _suggest(target, known))
        return False

    def _decided(self, value: Any) -> tuple[str, str]:
        path: ValuePath = ("decisionLog",)
        if value is None:
            return "", ""
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self._refuse(path, "decisionLog is a list of {from, to, label}")
            return "", ""
        known = len(self._before.decision_log)
        if len(value) < known:
            self._refuse(path, f"decisionLog has lost {known - len(value)} of its {known} entries")
        if len(value) > known + 1:
            self._refuse((*path, known + 1), "decisionLog gains one decision a step at most")
        target = label = ""
        for position, entry in enumerate(value[known : known + 1], known):
            at: ValuePath = (*path, position)
            for key in (each for each in entry if each not in _LOGGED):
                self._refuse((*at, key), f"unknown field {_shown(key)} in decisionLog")
            source, target, label = (self._text((*at, key), entry.get(key)) or "" for key in _LOGGED[:3])
            if source != self._here:
                what = f"decisionLog decides for {_shown(source)}: it is {self._here!r} that goes"
                self._refuse(at, what)
            elif self._leads_to(at, target):
                self._check_label(at, target, label)
        return target, label

    def _check_label(self, path: ValuePath, target: str, label: str) -> None:
        labels = [way.label for way in self._ways if way.asked and way.target == target]
        if labels and label not in labels:
            what = f"no transition from {self._here!r} to {target!r} has the label {_shown(label)}; there is "
            self._refuse(path, what + ", ".join(map(repr, labels)))

    def _variables(self, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._refuse(("variables",), "variables is a mapping")
            return {}
        was = self._before.variables
        return {key: each for key, each in value.items() if key not in was or not _same(was[key], each)}

    def _artifacts(self, value: Any) -> tuple[str, ...]:
        paths = () if value is None else self._texts(("artifacts",), value, "artifacts is a list of paths")
        return tuple(dict.fromkeys(each for each in paths or () if each not in self._before.artifacts))

    def _next(self, target: str, label: str) -> str:
        labels = [way.label for way in self._ways if way.asked and way.target == target]
        return label if label in labels else labels[0] if len(labels) == 1 else ""

    def _texts(self, path: ValuePath, value: Any, otherwise: str) -> list[str] | None:
        given = value if isinstance(value, list) else [None]
        texts = [self._text((*path, position), each) for position, each in enumerate(given)]
        if None in texts:
            self._refuse(path, otherwise)
            return None
        return [each for each in texts if each]

    def _text(self, path: ValuePath, value: Any) -> str | None:
        return value.strip() if isinstance(value, str) else self._document.raw(path)

    def _refuse(self, path: ValuePath, what: str, hint: str = "") -> None:
        mark = self._document.key_mark(path) if len(path) == 1 else self._document.mark(path)
        self._wrong.append(f"line {mark.line}: {what}")
        self._hint = self._hint or hint


def _suggest(name: str, known: Iterable[str]) -> str:
    match = closest(name, known)
    return f'did you mean "{match}"?' if match else ""


def _shown(value: Any) -> str:
    return repr(one_line(str(value), 60))


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
