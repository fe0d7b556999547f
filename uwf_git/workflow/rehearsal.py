"""Rehearsing a workflow in memory with sample outputs.

Every role answers in all relevant ways that its schema allows. Runs go from `$START` to `$END`, preferring
what is new, until every edge was taken and every condition was both true and false, or nothing new appears.
At a fan-out a few branches run, each a thread of its own, and then all kinds of joins of their outputs are tried.
Deterministic.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, NoTransition
from uwf_git.format.edges import FanOut, Transition
from uwf_git.format.fan_out import join_payload
from uwf_git.format.ids import MOST_BRANCHES, Hash
from uwf_git.format.kinds import (
    CONTENT,
    TIMESTAMP,
    Start,
    StartIssue,
    StepContext,
    Workflow,
    asks_human,
    status_of,
)
from uwf_git.format.origins import ThreadOrigin
from uwf_git.format.schema import Schema
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.types import END, ENDS, FAIL, FORK, JOIN, START, USER, UWF
from uwf_git.workflow.fan_out import join_name, joins_of, with_joins
from uwf_git.workflow.moderator import (
    ChosenEdge,
    FansOut,
    branch_prompt,
    brief,
    can_end,
    choose,
    describe,
    follow,
    reachable,
)
from uwf_git.workflow.sample_joins import Endings, fork_of, joins, sizes
from uwf_git.workflow.sample_outputs import Hints, hints_of, variants

MAX_STEPS = 2_000
SECONDS = 30.0
_RUN = 60
_NODE = Hash("0000000000000")
_FAR = 1_000_000
_BRANCHES = 3  # of a fork that are rehearsed
_PROBED = 12  # outputs before a fork whose items are looked at
_LATER = 6  # joins that are tried once a fan-out was rehearsed a few times
_LATE = 4_000_000_000_000
_OF_KEY = re.compile(r"([A-Z][A-Z0-9_]{0,99})(?:-([1-9][0-9]{0,17})?)?")
_OF_ISSUE = r"(?<![\w.$`\"'])issue\b"


class Problem(NamedTuple):
    """A problem. `code`: dead-end, unreachable-role, no-way-out, edge-never-taken, no-items, condition-never-true,
    condition-never-false, no-output, fails, gave-up; `where`: a role, edge or condition. `source` is the role,
    join or $START, `position` an edge's index. `follows`: a consequence of another problem."""

    code: str
    where: str
    message: str
    source: str | None = None
    position: int | None = None
    condition: str | None = None
    follows: bool = False


class EdgeUse(NamedTuple):
    """How often an edge was taken. `source` may be the name of a join; `target` is in words, as `leads_to`."""

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
    """A possible edge now, with the steps that take it; for $START the starts, after a join whole histories."""

    chosen: ChosenEdge
    outputs: list[Any]


def _sample_issues(hints: Hints) -> list[StartIssue]:
    """Return issues with what conditions search, on a tracker for what may be a key or the beginning of one."""
    texts = hints.texts or ("It fails",)
    numbers = [number for number in hints.numbers if isinstance(number, int) and number > 0]
    page = "https://forge.invalid/issues/1"
    rows = [*((page, text, 1) for text in texts), *((page, texts[0], number) for number in (*numbers, _FAR))]
    for project, number in (key.groups() for text in texts if (key := _OF_KEY.fullmatch(text))):
        number = int(number or 1)
        rows.append((f"https://tracker.invalid/browse/{project}-{number}", texts[0], number))
    return [StartIssue(url, number, text, text, texts, 1, len(text), "") for url, text, number in rows]


class _Walk:
    """All runs of one rehearsal."""

    def __init__(
        self, workflow: Workflow, schemas: Mapping[Hash, Any], max_steps: int, deadline: float
    ) -> None:
        self._workflow = _without_max(workflow)
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
        self._edges = with_joins(workflow)
        self._joins = joins_of(workflow)
        self._endings = {name: Endings() for name in self._joins}
        self._had_items: set[str] = set()
        self._at_end: set[str] = set()  # roles that ended a branch
        # Joins whose conditions read outputs of other workflows, which are not known here: any edge may be taken.
        self._unknown = {name for name, fan_out in self._joins.items() if _reads_others(workflow, fan_out)}
        ways = {
            source: [target for place, edge in enumerate(edges) for target in _targets(source, place, edge)]
            for source, edges in self._edges.items()
        }
        self._linked = reachable(ways)
        self._sources: dict[str, dict[str, None]] = {}
        for source, targets in ways.items():
            for target in targets:
                self._sources.setdefault(target, {})[source] = None
        self._problems: dict[tuple[str, str], Problem] = {}
        self._caught: list[str] = []
        self._runs = 0
        self._steps = 0
        hints = hints_of(workflow, START)
        self._texts = hints.texts
        self._run_limit = max(_RUN, 2 * len(workflow.roles)) + min(440, 4 * int(max((0, *hints.numbers))))
        self._numbers = hints.numbers
        text = " ".join(condition.expression for condition in workflow.conditions.values())
        self._humans_matter = USER in text
        self._issues = _sample_issues(hints) if re.search(_OF_ISSUE, text) else []
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
            for source, edges in self._edges.items()
            for position, edge in enumerate(edges)
            if source in self._linked
            and source not in self._broken
            and (
                not self._taken[source, position]
                or (source not in self._unknown and self._is_open(edge.condition))
            )
        }

    def _is_open(self, condition: str | None) -> bool:
        return condition is not None and not (self._true[condition] and self._false[condition])

    def _run(self) -> None:
        asking = self._humans_matter and self._runs % 2 == 1
        self._runs += 1
        way = self._best(self._opening())
        if way is None:
            return
        # One with an issue and one without may take the same edge, and differ in later conditions.
        start = way.outputs[self._runs // 2 % len(way.outputs) if self._issues else 0]
        steps = list[StepContext]()
        self._thread(start, steps, self._after(start, steps, way, asking), asking)

    def _thread(self, start: Start, steps: list[StepContext], role: str | None, asking: bool) -> None:
        """Play roles from `role` on until the thread ends."""
        asking_roles: set[str] = set()
        while role is not None:
            if role not in self._workflow.roles or len(steps) >= self._run_limit:
                return
            self._steps += 1
            if self._spent():
                return
            if asking and role not in asking_roles:
                asking_roles.add(role)
                steps += self._asked(role)
            if start.branch is not None and not self._workflow.graph.get(role):
                self._visits[role] += 1
                self._ended(start, role, [_step(role, output) for output in self._all_outputs(role)])
                return
            ways = self._ways(start, steps, role)
            self._visits[role] += 1
            way = self._best(ways)
            if way is None:
                return
            steps.append(way.outputs[self._visits[role] % len(way.outputs)])
            role = self._after(start, steps, way, asking)

    def _after(self, start: Start, steps: list[StepContext], way: _Way | None, asking: bool) -> str | None:
        """Take a way. Return the role that it leads to, None at the end of the thread."""
        while way is not None:
            source, position, edge = way.chosen
            self._taken[source, position] += 1
            if edge.fan_out is not None:
                way = self._forked(start, steps, way, asking)
                continue
            if start.branch is not None and edge.role in (*ENDS, *start.branch.until):
                last = [output[-1] if isinstance(output, list) else output for output in way.outputs]
                self._ended(start, source, last, edge.role == FAIL)
                return None
            return self._resumed(start, steps) if edge.role in ENDS else edge.role
        return None

    def _ended(self, start: Start, source: str, last: Iterable[StepContext], failed: bool = False) -> None:
        """Note that a branch may have ended after `source` with one of the steps `last`."""
        assert start.branch is not None
        self._at_end.add(source)
        for step in last:
            if not asks_human(step.output):
                self._endings[start.branch.fork].add(step.output, failed)

    def _forked(self, start: Start, steps: list[StepContext], way: _Way, asking: bool) -> _Way | None:
        """Fork, rehearse a few branches, and join them. Return the way on, None if there is none. Adds to `steps`."""
        chosen = way.chosen
        name = join_name(chosen.source, chosen.position)
        fan_out = self._joins[name]
        pasts = [
            steps,
            *([*steps[:-1], output] for output in way.outputs[:_PROBED] if steps and output is not steps[-1]),
        ]
        by_size: dict[int, tuple[list[StepContext], tuple[Any, ...]]] = {}
        for past in pasts if self._visits[name] < _BRANCHES else pasts[:1]:
            items = self._items(chosen, start, past)
            if items is not None:
                by_size.setdefault(len(items), (past, items))
        if not by_size:
            self._stuck.add(chosen.source)
        for past, items in by_size.values():
            self._branches(name, chosen, fan_out, start, past, items, asking)
            if self._spent():
                return None
        ways: dict[int, _Way] = {}
        joined = False
        for past, items in by_size.values():
            for size in sizes(fan_out, len(items), self._numbers):
                fork = fork_of(chosen, fan_out, [items[index % len(items)] for index in range(size)])
                forked = [*past, _step(FORK, fork.payload())]
                joinings = joins(fork, self._endings[name], bool(fan_out.workflows))
                if self._visits[name] >= _BRANCHES or self._is_settled(name):
                    begin = self._visits[name] * _LATER % max(1, len(joinings))
                    joinings = (joinings + joinings)[begin : begin + _LATER]
                for branches in joinings:
                    joined = True
                    step = StepContext(_NODE, JOIN, join_payload(branches), _NODE, UWF)
                    self._joined(ways, name, start, [*forked, step])
        self._visits[name] += joined
        best = self._best(ways)
        if best is not None:
            steps[:] = best.outputs[self._visits[name] % len(best.outputs)]
        return best

    def _is_settled(self, name: str) -> bool:
        edges = enumerate(self._joins[name].join)
        return all(self._taken[name, place] and not self._is_open(edge.condition) for place, edge in edges)

    def _joined(self, ways: dict[int, _Way], name: str, start: Start, steps: list[StepContext]) -> None:
        if name not in self._unknown:
            self._try(ways, start, steps, steps, name)
            return
        for position, edge in enumerate(self._joins[name].join):
            chosen = ChosenEdge(name, position, edge)
            self._lead(chosen, start, steps, name)
            ways.setdefault(position, _Way(chosen, [])).outputs.append(steps)

    def _items(self, chosen: ChosenEdge, start: Start, past: list[StepContext]) -> tuple[Any, ...] | None:
        try:
            decision = follow(self._workflow, chosen, start, past)
        except Invalid:  # reported where the edge was chosen
            return None
        most = self._joins[join_name(chosen.source, chosen.position)].most
        return decision.items[:most] if isinstance(decision, FansOut) else None

    def _branches(
        self,
        name: str,
        chosen: ChosenEdge,
        fan_out: FanOut,
        start: Start,
        past: list[StepContext],
        items: tuple[Any, ...],
        asking: bool,
    ) -> None:
        """Rehearse the first branches of a fork, or those that the workflow names."""
        if items:
            self._had_items.add(name)
        for index, item in enumerate(items if fan_out.fixed else items[:_BRANCHES]):
            try:
                prompt = branch_prompt(self._workflow, chosen, start, past, index, item)
            except Invalid as error:
                self._add("fails", describe(chosen), error.message, chosen.source, chosen.position)
                continue
            role = fan_out.fixed[index].role if fan_out.fixed else fan_out.role
            if not role:
                self._endings[name].add({})
                continue
            # The join's name stands for the fork.
            branch = ThreadOrigin(Hash(name), index, fan_out.name, item, role, fan_out.ends)
            self._thread(Start(_NODE, prompt, branch=branch), [], role, asking)

    def _opening(self) -> dict[int, _Way]:
        ways: dict[int, _Way] = {}
        prompts = f"Rehearse {self._workflow.name}", *self._texts
        starts = [Start(_NODE, prompt) for prompt in prompts]
        starts += [Start(_NODE, issue.title, issue=issue) for issue in self._issues]
        for start in starts:
            self._try(ways, start, [], start, START)
        return ways

    def _resumed(self, start: Start, steps: list[StepContext]) -> str | None:
        place = self._workflow.resume
        if place is None or self._taken[START, place]:
            return None
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
        kept = steps[-1] if steps and source not in self._joins else output
        ways.setdefault(chosen.position, _Way(chosen, [])).outputs.append(kept)

    def _lead(self, chosen: ChosenEdge, start: Start, steps: list[StepContext], source: str) -> None:
        try:
            follow(self._workflow, chosen, start, steps)
        except Invalid as error:
            self._add("fails", describe(chosen), error.message, source, chosen.position)

    def _named_in(self, source: str, message: str) -> str | None:
        names = (edge.condition for edge in self._edges.get(source, ()))
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
        if role not in self._workflow.roles:  # the engine makes the step
            return [{}]
        name = self._workflow.roles[role].schema
        if name not in self._schemas:
            self._add("no-output", role, f"role {role}: its schema {name} is missing", role)
            return []
        hints = hints_of(self._workflow, role)
        outputs = self._made_before.get((name, hints))
        if outputs is None:
            try:
                schema = Schema(self._schemas[name])
                outputs = list(variants(schema, hints=hints, reference=_NODE, thorough=True))
            except Invalid as error:
                self._add("no-output", role, f"role {role}: {error.message}", role)
                return []
            self._made_before[name, hints] = outputs
        if all(asks_human(output) for output in outputs):
            self._add("dead-end", role, f"role {role} can do nothing but ask a human", role)
        return outputs

    def _best(self, ways: Mapping[int, _Way]) -> _Way | None:
        """Return the edge to take: untaken ones first, those to an end last; else the nearest to a goal, else
        to an end; among equals the least taken."""
        distances = self._distances(self._goals())
        ends = self._distances(ENDS)

        def rank(way: _Way) -> tuple[bool, int, int, int, int]:
            source, position, edge = way.chosen
            taken = self._taken[source, position]
            targets = _targets(source, position, edge)
            to_goal = min(distances.get(target, _FAR) for target in targets)
            to_end = min(ends.get(target, _FAR) for target in targets)
            return (
                taken > 0,
                to_goal if taken else int(edge.role in ENDS),
                taken if to_goal < _FAR else to_end,
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
            EdgeUse(source, edge.leads_to, edge.status, edge.condition, self._taken[source, position])
            for source, list_of_edges in self._edges.items()
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
            tuple(problem._replace(follows=self._follows(problem)) for problem in self._problems.values()),
        )

    def _follows(self, problem: Problem) -> bool:
        source, position = problem.source, problem.position
        if problem.code == "unreachable-role":
            return problem.where in self._linked  # an edge on the way there was never taken
        without = [transition.condition for name in self._empty for transition in self._joins[name].join]
        if source in self._empty or (problem.condition is not None and problem.condition in without):
            return True
        if problem.code == "no-items":
            return ("fails", problem.where) in self._problems
        if source is None or problem.code not in ("edge-never-taken", "dead-end", "no-way-out"):
            return False
        edges = range(len(self._edges.get(source, ())))
        if problem.code == "edge-never-taken" and position is not None:
            others = {item.code for item in self._problems.values() if item.source == source}
            is_mute = not any(self._taken[source, edge] for edge in edges)
            return self._is_closed(source, position) or (
                is_mute and bool(others & {"dead-end", "no-output", "fails"})
            )
        if problem.code == "dead-end":
            return any(self._is_closed(source, edge) for edge in edges)
        return any(
            not self._taken[role, place]
            for role in self._caught
            for place in range(len(self._edges.get(role, ())))
        )

    def _is_closed(self, source: str, position: int) -> bool:
        edges = self._edges[source]

        def has(code: str, condition: str | None) -> bool:
            return any(
                problem.code == code and problem.condition == condition for problem in self._problems.values()
            )

        own = edges[position].condition
        if own is not None and (has("condition-never-true", own) or has("fails", own)):
            return True
        before = [edge.condition for edge in edges[:position] if edge.condition is not None]
        return any(has("condition-never-false", item) or has("fails", item) for item in before)

    def _check_roles(self) -> None:
        resolvers = {edge.fan_out.on_conflict for edge in self._workflow.edges if edge.fan_out is not None}
        for role in self._workflow.roles:
            if not self._visits[role] and role not in resolvers:  # no code conflicts in a rehearsal
                why = "no run came there" if role in self._linked else "no edges lead there from $START"
                self._add("unreachable-role", role, f"role {role} never speaks: {why}")

    def _check_ways_out(self) -> None:
        graph: dict[str, list[str]] = {}
        for source, position in self._taken:
            for target in _targets(source, position, self._edges[source][position]):
                known = target in self._workflow.roles or target in ENDS or target in self._joins
                # Of an unknown role there is a problem already.
                graph.setdefault(source, []).append(target if known else END)
        for source in self._stuck | self._at_end:
            graph.setdefault(source, []).append(END)  # a dead end is reported already
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
        for source, edges in self._edges.items():
            if source != START and not self._visits[source]:
                continue
            for position, edge in enumerate(edges):
                name = join_name(source, position)
                if name in self._empty:
                    where = describe(ChosenEdge(source, position, edge))
                    self._add("no-items", where, f"{where} never had an item", source, position)
                if edge.condition in self._workflow.conditions and edge.condition is not None:
                    self._check_condition(edge.condition)
                # Without an end there is nothing to go on with, and of that there is a problem already.
                if not self._taken[source, position] and (source, position) != (START, self._workflow.resume):
                    name = describe(ChosenEdge(source, position, edge))
                    message = f"{name} was never taken: {self._why(source, position)}"
                    self._add("edge-never-taken", name, message, source, position)

    @property
    def _empty(self) -> set[str]:
        """The joins that were reached, and never with an item."""
        return {name for name in self._joins if self._visits[name] and name not in self._had_items}

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
        edge = self._edges[source][position]
        if not any(self._taken[source, other] for other in range(len(self._edges[source]))):
            return f"nothing led on from {source}"
        if edge.status is not None:
            return f"no output of {source} with the status {edge.status} came up"
        if edge.condition is not None and not self._true[edge.condition]:
            return f"condition {edge.condition} was never true"
        return "edges before it always matched"


def _targets(source: str, position: int, edge: Transition) -> tuple[str, ...]:
    """Return the roles that an edge leads to, and of a fan-out its join."""
    fan_out = edge.fan_out
    return (edge.role,) if fan_out is None else (*fan_out.roles, join_name(source, position))


def _without_max(workflow: Workflow) -> Workflow:
    """Let fan-outs have any number of items: that an output may have too many is nothing to report."""

    def widened(edge: Transition) -> Transition:
        if edge.fan_out is None:
            return edge
        return edge._replace(fan_out=edge.fan_out._replace(most=MOST_BRANCHES))

    graph = {source: tuple(map(widened, edges)) for source, edges in workflow.graph.items()}
    return workflow._replace(graph=graph)


def _reads_others(workflow: Workflow, fan_out: FanOut) -> bool:
    """Return whether the edges of a join read outputs of other workflows."""
    named = [workflow.conditions.get(edge.condition or "") for edge in fan_out.join]
    return bool(fan_out.workflows) and any(
        "output" in condition.expression for condition in named if condition is not None
    )


def _step(role: str, output: Any) -> StepContext:
    return StepContext(_NODE, role, output, _NODE, "uwf-rehearse")
