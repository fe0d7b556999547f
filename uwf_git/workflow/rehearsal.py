"""Rehearsing a workflow in memory with sample outputs.

Every role answers in all relevant ways that its schema allows. Runs go from `$START` to `$END`, preferring
what is new, until every edge was taken and every condition was both true and false, or nothing new appears.
Deterministic.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, NoTransition
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import CONTENT, TIMESTAMP, Start, StepContext, Workflow, asks_human, status_of
from uwf_git.format.schema import Schema
from uwf_git.format.types import END, ENDS, START, SUSPEND, USER
from uwf_git.workflow.moderator import ChosenEdge, brief, can_end, choose, describe, follow, reachable
from uwf_git.workflow.sample_outputs import Hints, hints_of, variants

MAX_STEPS = 2_000
SECONDS = 30.0
_RUN = 60
_NODE = Hash("0000000000000")
_FAR = 1_000_000
_LATE = 4_000_000_000_000


class Problem(NamedTuple):
    """A problem. `code`: dead-end, unreachable-role, no-way-out, edge-never-taken, condition-never-true,
    condition-never-false, no-output, fails, gave-up; `where`: a role, edge or condition. `source` is the role
    or $START, `position` an edge's index. `follows`: a consequence of another problem."""

    code: str
    where: str
    message: str
    source: str | None = None
    position: int | None = None
    condition: str | None = None
    follows: bool = False


class EdgeUse(NamedTuple):
    """How often an edge was taken."""

    source: str
    target: str
    status: str | None
    condition: str | None
    taken: int


class ConditionUse(NamedTuple):
    """How often a condition was true and false."""

    condition: str
    true: int
    false: int


class Report(NamedTuple):
    """A rehearsal's result. `roles` maps roles to their numbers of steps."""

    workflow: str
    runs: int
    steps: int
    roles: Mapping[str, int]
    edges: tuple[EdgeUse, ...]
    conditions: tuple[ConditionUse, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def taken(self) -> int:
        return sum(edge.taken > 0 for edge in self.edges)

    @property
    def percent(self) -> int:
        """Edges taken in per cent, rounded down; 100 without edges."""
        return 100 * self.taken // len(self.edges) if self.edges else 100

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON, deterministic."""
        return {
            "workflow": self.workflow,
            "ok": self.ok,
            "coverage": {"taken": self.taken, "edges": len(self.edges), "percent": self.percent},
            "runs": self.runs,
            "steps": self.steps,
            "roles": [{"role": name, "visits": count} for name, count in self.roles.items()],
            "edges": [
                {
                    "from": edge.source,
                    "to": edge.target,
                    "status": edge.status,
                    "condition": edge.condition,
                    "taken": edge.taken,
                }
                for edge in self.edges
            ],
            "conditions": [use._asdict() for use in self.conditions],
            "problems": [problem._asdict() for problem in self.problems],
        }


def rehearse(
    workflow: Workflow,
    schemas: Mapping[Hash, Any],
    max_steps: int = MAX_STEPS,
    seconds: float = SECONDS,
) -> Report:
    """Rehearse a workflow. `schemas` are its roles' schema payloads. Problems are reported, not raised."""
    walk = _Walk(workflow, schemas, max_steps, time.monotonic() + seconds)
    walk.explore()
    return walk.report()


class _Way(NamedTuple):
    """A possible edge now, with the steps (for $START the prompts) that take it."""

    chosen: ChosenEdge
    outputs: list[Any]


class _Walk:
    """All runs of one rehearsal."""

    def __init__(
        self, workflow: Workflow, schemas: Mapping[Hash, Any], max_steps: int, deadline: float
    ) -> None:
        self._workflow = workflow
        self._schemas = schemas
        self._max_steps = max_steps
        self._deadline = deadline
        self._outputs: dict[str, list[Any]] = {}
        self._made_before: dict[tuple[Hash, Hints], list[Any]] = {}
        self._taken: Counter[tuple[str, int]] = Counter()
        self._true: Counter[str] = Counter()
        self._false: Counter[str] = Counter()
        self._visits: Counter[str] = Counter()
        self._known: dict[tuple[str, int], Any] = {}
        self._stuck: set[str] = set()
        self._broken: set[str] = set()
        self._linked = reachable(
            {source: [edge.role for edge in edges] for source, edges in workflow.graph.items()}
        )
        self._sources: dict[str, dict[str, None]] = {}
        for source, edges in workflow.graph.items():
            for edge in edges:
                self._sources.setdefault(edge.role, {})[source] = None
        self._problems: dict[tuple[str, str], Problem] = {}
        self._caught: list[str] = []
        self._runs = 0
        self._steps = 0
        hints = hints_of(workflow, START)
        self._texts = hints.texts
        self._run_limit = max(_RUN, 2 * len(workflow.roles)) + min(440, 4 * int(max((0, *hints.numbers))))
        text = " ".join(condition.expression for condition in workflow.conditions.values())
        self._humans_matter = USER in text
        # Other values that conditions may read of a step: an answer with all searched texts, a time far ahead.
        answers = ("", " ".join(self._texts)) if CONTENT in workflow.step_fields else ("",)
        times = (0, _LATE) if TIMESTAMP in workflow.step_fields else (0,)
        self._said = list(product(answers, times))

    def explore(self) -> None:
        idle = 0
        while self._goals() and idle <= self._patience():
            before = self._found()
            self._run()
            idle = 0 if self._found() > before else idle + 1
            if self._spent() and self._goals():
                why = f"not all was tried in {self._steps} steps"
                self._add("gave-up", self._workflow.name, f"workflow {self._workflow.name}: {why}")
                break

    def _spent(self) -> bool:
        return self._steps >= self._max_steps or time.monotonic() > self._deadline

    def _patience(self) -> int:
        return 3 + max((len(outputs) for outputs in self._outputs.values()), default=0)

    def _found(self) -> int:
        return len(self._taken) + len(self._true) + len(self._false) + len(self._problems)

    def _goals(self) -> set[str]:
        if not self._runs:
            return {START}
        return {
            source
            for source, edges in self._workflow.graph.items()
            for position, edge in enumerate(edges)
            if source in self._linked
            and source not in self._broken
            and (not self._taken[source, position] or self._is_open(edge.condition))
        }

    def _is_open(self, condition: str | None) -> bool:
        return condition is not None and not (self._true[condition] and self._false[condition])

    def _run(self) -> None:
        asking = self._humans_matter and self._runs % 2 == 1
        self._runs += 1
        steps: list[StepContext] = []
        way = self._best(self._opening())
        if way is None:
            return
        start = Start(_NODE, way.outputs[0])
        asked: set[str] = set()
        while way is not None:
            self._taken[way.chosen.source, way.chosen.position] += 1
            role = way.chosen.edge.role
            if role in ENDS:
                role = self._resumed(start, steps)
            if role not in self._workflow.roles or len(steps) >= self._run_limit:
                return
            self._steps += 1
            if self._spent():
                return
            if asking and role not in asked:
                asked.add(role)
                steps += self._asked(role)
            ways = self._ways(start, steps, role)
            self._visits[role] += 1
            way = self._best(ways)
            if way is not None:
                steps.append(way.outputs[self._visits[role] % len(way.outputs)])

    def _opening(self) -> dict[int, _Way]:
        ways: dict[int, _Way] = {}
        for prompt in (f"Rehearse {self._workflow.name}", *self._texts):
            self._try(ways, Start(_NODE, prompt), [], prompt, START)
        return ways

    def _resumed(self, start: Start, steps: list[StepContext]) -> str:
        place = self._workflow.resume
        if place is None or self._taken[START, place]:
            return END
        chosen = ChosenEdge(START, place, self._workflow.graph[START][place])
        self._taken[START, place] += 1
        steps.append(_step(USER, {"answer": "Go on."}))
        self._lead(chosen, start, [], START)
        return chosen.edge.role

    def _asked(self, role: str) -> list[StepContext]:
        answers = (*self._texts, "Go on.")
        answer = answers[self._runs // 2 % len(answers)]
        question = {"$status": SUSPEND, "question": f"Rehearsed question of {role}"}
        return [_step(role, question), _step(USER, {"answer": answer})]

    def _ways(self, start: Start, steps: list[StepContext], role: str) -> dict[int, _Way]:
        ways: dict[int, _Way] = {}
        for output in self._candidates(role) if role not in self._broken else ():
            for answer, when in self._said if not asks_human(output) else ():
                step = _step(role, output)._replace(answer=answer, time=when)
                self._try(ways, start, [*steps, step], output, role)
            if role in self._broken:
                break
        if not ways:
            self._stuck.add(role)
        return ways

    def _try(
        self, ways: dict[int, _Way], start: Start, steps: list[StepContext], output: Any, source: str
    ) -> None:
        try:
            chosen = choose(self._workflow, start, steps, self._observe)
        except NoTransition as error:
            status = status_of(output)
            where = f"{source} (status {status})" if status else source
            self._add("dead-end", where, error.message, source)
            self._stuck.add(source)
            return
        except Invalid as error:
            # A condition that failed twice and never led anywhere would cost its whole time limit again.
            failed = ("fails", source) in self._problems
            condition = self._named_in(source, error.message)
            self._add("fails", source, error.message, source, condition=condition)
            self._stuck.add(source)
            if failed and not any(self._taken[key] for key in self._taken if key[0] == source):
                self._broken.add(source)
            return
        self._lead(chosen, start, steps, source)
        self._known.setdefault((source, chosen.position), output)
        ways.setdefault(chosen.position, _Way(chosen, [])).outputs.append(steps[-1] if steps else output)

    def _lead(self, chosen: ChosenEdge, start: Start, steps: list[StepContext], source: str) -> None:
        try:
            follow(self._workflow, chosen, start, steps)
        except Invalid as error:
            self._add("fails", describe(chosen), error.message, source, chosen.position)

    def _named_in(self, source: str, message: str) -> str | None:
        names = (edge.condition for edge in self._workflow.graph.get(source, ()))
        return next((name for name in names if name is not None and f": condition {name}: " in message), None)

    def _observe(self, condition: str, outcome: bool) -> None:
        (self._true if outcome else self._false)[condition] += 1

    def _candidates(self, role: str) -> list[Any]:
        """Return the outputs to try: all on first visits; later those that took each edge and a few others,
        since conditions over long histories are slow."""
        outputs = self._all_outputs(role)
        visits = self._visits[role]
        edges = self._workflow.graph.get(role, ())
        if visits < 3 or len(outputs) <= 8 or all(edge.condition is None for edge in edges):
            return outputs
        known = [self._known[role, number] for number in range(len(edges)) if (role, number) in self._known]
        begin = visits * 4 % len(outputs)
        return [*known, *(outputs + outputs)[begin : begin + 4]]

    def _all_outputs(self, role: str) -> list[Any]:
        if role not in self._outputs:
            self._outputs[role] = self._made(role)
        return self._outputs[role]

    def _made(self, role: str) -> list[Any]:
        name = self._workflow.roles[role].schema
        if name not in self._schemas:
            self._add("no-output", role, f"role {role}: its schema {name} is missing", role)
            return []
        hints = hints_of(self._workflow, role)
        made = self._made_before.get((name, hints))
        if made is None:
            try:
                schema = Schema(self._schemas[name])
                made = list(variants(schema, hints=hints, reference=_NODE, thorough=True))
            except Invalid as error:
                self._add("no-output", role, f"role {role}: {error.message}", role)
                return []
            self._made_before[name, hints] = made
        if all(asks_human(output) for output in made):
            self._add("dead-end", role, f"role {role} can do nothing but ask a human", role)
        return made

    def _best(self, ways: Mapping[int, _Way]) -> _Way | None:
        """Return the edge to take: untaken ones first, those to an end last; else the nearest to a goal, else
        to an end; among equals the least taken."""
        distances = self._distances(self._goals())
        ends = self._distances(ENDS)

        def rank(way: _Way) -> tuple[bool, int, int, int, int]:
            source, position, edge = way.chosen
            taken = self._taken[source, position]
            return (
                taken > 0,
                distances.get(edge.role, _FAR) if taken else int(edge.role in ENDS),
                taken if distances.get(edge.role) is not None else ends.get(edge.role, _FAR),
                taken,
                position,
            )

        return min(ways.values(), key=rank, default=None)

    def _distances(self, goals: Iterable[str]) -> dict[str, int]:
        distances = dict.fromkeys(goals, 0)
        waiting = list(distances)
        for target in waiting:  # grows while it is walked
            for source in self._sources.get(target, ()):
                if source not in distances:
                    distances[source] = distances[target] + 1
                    waiting.append(source)
        return distances

    def _add(
        self,
        code: str,
        where: str,
        message: str,
        source: str | None = None,
        position: int | None = None,
        condition: str | None = None,
    ) -> None:
        self._problems.setdefault((code, where), Problem(code, where, message, source, position, condition))

    def report(self) -> Report:
        self._check_roles()
        self._check_ways_out()
        self._check_edges()
        edges = tuple(
            EdgeUse(source, edge.role, edge.status, edge.condition, self._taken[source, position])
            for source, list_of_edges in self._workflow.graph.items()
            for position, edge in enumerate(list_of_edges)
        )
        names = dict.fromkeys(edge.condition for edge in edges if edge.condition in self._workflow.conditions)
        return Report(
            self._workflow.name,
            self._runs,
            self._steps,
            {role: self._visits[role] for role in self._workflow.roles},
            edges,
            tuple(ConditionUse(name, self._true[name], self._false[name]) for name in names if name),
            tuple(each._replace(follows=self._follows(each)) for each in self._problems.values()),
        )

    def _follows(self, problem: Problem) -> bool:
        source, position = problem.source, problem.position
        if problem.code == "unreachable-role":
            return problem.where in self._linked  # an edge on the way there was never taken
        if source is None or problem.code not in ("edge-never-taken", "dead-end", "no-way-out"):
            return False
        edges = range(len(self._workflow.graph.get(source, ())))
        if problem.code == "edge-never-taken" and position is not None:
            others = {each.code for each in self._problems.values() if each.source == source}
            is_mute = not any(self._taken[source, each] for each in edges)
            return self._is_closed(source, position) or (
                is_mute and bool(others & {"dead-end", "no-output", "fails"})
            )
        if problem.code == "dead-end":
            return any(self._is_closed(source, each) for each in edges)
        return any(
            not self._taken[role, place]
            for role in self._caught
            for place in range(len(self._workflow.graph.get(role, ())))
        )

    def _is_closed(self, source: str, position: int) -> bool:
        edges = self._workflow.graph[source]

        def has(code: str, condition: str | None) -> bool:
            return any(each.code == code and each.condition == condition for each in self._problems.values())

        own = edges[position].condition
        if own is not None and (has("condition-never-true", own) or has("fails", own)):
            return True
        before = [edge.condition for edge in edges[:position] if edge.condition is not None]
        return any(has("condition-never-false", each) or has("fails", each) for each in before)

    def _check_roles(self) -> None:
        for role in self._workflow.roles:
            if not self._visits[role]:
                why = "no run came there" if role in self._linked else "no edges lead there from $START"
                self._add("unreachable-role", role, f"role {role} never speaks: {why}")

    def _check_ways_out(self) -> None:
        graph: dict[str, list[str]] = {}
        for source, position in self._taken:
            target = self._workflow.graph[source][position].role
            known = target in self._workflow.roles or target in ENDS
            # Of an unknown role there is a problem already.
            graph.setdefault(source, []).append(target if known else END)
        for source in self._stuck:
            graph.setdefault(source, []).append(END)  # reported as a dead end already
        ended = can_end(graph)
        self._caught = caught = [
            role for role in self._workflow.roles if self._visits[role] and role not in ended
        ]
        if caught:
            self._add(
                "no-way-out",
                caught[0],
                f"no run came from {', '.join(caught)} to {END}: a loop that nothing ends",
                caught[0],
            )

    def _check_edges(self) -> None:
        for source, edges in self._workflow.graph.items():
            if source != START and not self._visits[source]:
                continue
            for position, edge in enumerate(edges):
                if edge.condition in self._workflow.conditions and edge.condition is not None:
                    self._check_condition(edge.condition)
                # Without an end there is nothing to go on with, and of that there is a problem already.
                if not self._taken[source, position] and (source, position) != (START, self._workflow.resume):
                    name = describe(ChosenEdge(source, position, edge))
                    message = f"{name} was never taken: {self._why(source, position)}"
                    self._add("edge-never-taken", name, message, source, position)

    def _check_condition(self, name: str) -> None:
        expression = self._workflow.conditions[name].expression
        shown = " ".join(expression.split())
        if not self._true[name] and self._false[name]:
            message = f"condition {name} was never true: {brief(shown)}"
            self._add("condition-never-true", name, message, condition=name)
        if self._true[name] and not self._false[name]:
            message = f"condition {name} was never false: {brief(shown)}"
            self._add("condition-never-false", name, message, condition=name)

    def _why(self, source: str, position: int) -> str:
        edge = self._workflow.graph[source][position]
        if not any(self._taken[source, other] for other in range(len(self._workflow.graph[source]))):
            return f"nothing led on from {source}"
        if edge.status is not None:
            return f"no output of {source} with the status {edge.status} came up"
        if edge.condition is not None and not self._true[edge.condition]:
            return f"condition {edge.condition} was never true"
        return "edges before it always matched"


def _step(role: str, output: Any) -> StepContext:
    return StepContext(_NODE, role, output, _NODE, "uwf-rehearse")
