"""The edges of a workflow's graph, and their fan-outs."""

from typing import Any, NamedTuple

from uwf_git.format.failure_policy import WAIT
from uwf_git.format.payloads import from_payload
from uwf_git.format.statuses import DEFAULT_STATUS

DEFAULT_MOST = 200
ALL, FIRST = "all", "first"
ASK, REFUSE = "ask", "fail"
ON_CONFLICT = ASK, REFUSE
"""The policies for code of branches that conflicts, besides the name of a role that merges it."""


class FixedBranch(NamedTuple):
    """A branch that the workflow names: a `role` of its own or another `workflow`, and its `prompt` (a template), None
    for that of the edge."""

    role: str = ""
    workflow: str = ""
    prompt: str | None = None

    @property
    def name(self) -> str:
        return self.role or self.workflow

    def payload(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if value}


class FanOut(NamedTuple):
    """The fan-out of an edge. `items` is an expression to an array, or a tuple of values or of FixedBranches. Each
    item is called `name` in the prompts of its branch, which begins at `role` or is a thread of `workflow`. At most
    `at_once` branches run at the same time, None for no limit, and `most` may there be. `need` is "all", "first", a
    number or a percentage such as "80%"; `on_failure` the word of a FailurePolicy; `on_conflict` one of ON_CONFLICT
    or a role. `join` are the edges of the step that joins them."""

    items: str | tuple[Any, ...]
    join: tuple["Transition", ...]
    name: str = "item"
    role: str = ""
    workflow: str = ""
    at_once: int | None = None
    most: int = DEFAULT_MOST
    need: int | str = ALL
    on_failure: str = WAIT.word
    on_conflict: str = ASK

    @property
    def fixed(self) -> tuple[FixedBranch, ...]:
        """The branches that the workflow names, empty if an item decides."""
        return (
            ()
            if isinstance(self.items, str)
            else tuple(item for item in self.items if isinstance(item, FixedBranch))
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that branches begin at."""
        names = (self.role, *(branch.role for branch in self.fixed))
        return tuple(dict.fromkeys(filter(None, names)))

    @property
    def workflows(self) -> tuple[str, ...]:
        """The names of the workflows that branches are of."""
        names = (self.workflow, *(branch.workflow for branch in self.fixed))
        return tuple(dict.fromkeys(filter(None, names)))

    @property
    def label(self) -> str:
        """The name of its items in words: `each file`."""
        return f"each {self.name}"

    @property
    def ends(self) -> tuple[str, ...]:
        """The roles of the join: an edge to one of them ends a branch."""
        return tuple(dict.fromkeys(edge.role for edge in self.join))


class Transition(NamedTuple):
    """An edge, taken if the last output has its `status`, or if its `condition` holds; with neither it is the
    fallback. `prompt` and `location` are Liquid templates. In a package it has a `label`, and maybe a `text`
    on when to take it. With a `fan_out` it leads to `$FORK`, and `prompt` is its branches'."""

    role: str
    condition: str | None = None
    status: str | None = None
    prompt: str | None = None
    location: str | None = None
    label: str = ""
    text: str = ""
    fan_out: FanOut | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The roles that it leads to: its own; of a fan-out those of its branches, then those of its join."""
        return (self.role,) if self.fan_out is None else (*self.fan_out.roles, *self.fan_out.ends)

    @property
    def join(self) -> tuple["Transition", ...]:
        """The edges of its join, none if it leads to a role."""
        return () if self.fan_out is None else self.fan_out.join

    @property
    def items(self) -> str:
        """The expression of its items, "" without one."""
        items = self.fan_out.items if self.fan_out is not None else None
        return items if isinstance(items, str) else ""

    @property
    def templates(self) -> tuple[str, ...]:
        """Its prompt and location, and the prompts of its branches."""
        fixed = () if self.fan_out is None else self.fan_out.fixed
        return tuple(filter(None, (self.prompt, self.location, *(branch.prompt for branch in fixed))))

    @property
    def entries(self) -> tuple[str, ...]:
        """What it leads to at once: its role; of a fan-out the roles and workflows of its branches."""
        return (self.role,) if self.fan_out is None else (*self.fan_out.roles, *self.fan_out.workflows)

    @property
    def fields(self) -> dict[str, Any]:
        """All fields besides those that say what it leads to and when, with those of its fan-out or their defaults."""
        fields = {**self._asdict(), **(self.fan_out or FanOut((), ()))._asdict()}
        place = ("role", "workflow", "condition", "status", "fan_out")
        return {key: value for key, value in fields.items() if key not in place}

    @property
    def leads_to(self) -> str:
        """Its entries in words: `each file: fixer`."""
        label = "" if self.fan_out is None else f"{self.fan_out.label}: "
        return label + ", ".join(self.entries)


def parse_edges(edges: Any) -> tuple[Transition, ...]:
    """Parse the edges of a role or $START in a valid Workflow payload."""
    if isinstance(edges, list):
        return tuple(_parse_edge(edge, edge["condition"], None) for edge in edges)
    # The default comes last whatever its place: a status that is named always wins.
    named = [_parse_edge(edge, None, status) for status, edge in edges.items() if status != DEFAULT_STATUS]
    if DEFAULT_STATUS in edges:
        named.append(_parse_edge(edges[DEFAULT_STATUS], None, None))
    return tuple(named)


def _parse_edge(edge: Any, condition: str | None, status: str | None) -> Transition:
    fan_out = _parse_fan_out(edge["fanOut"]) if "fanOut" in edge else None
    return from_payload(Transition, edge, condition=condition, status=status, fan_out=fan_out)


def _parse_fan_out(payload: Any) -> FanOut:
    join = tuple(from_payload(Transition, edge) for edge in payload["join"])
    items = payload.get("items", ())
    if "branches" in payload:
        items = tuple(from_payload(FixedBranch, branch) for branch in payload["branches"])
    elif isinstance(items, list):
        items = tuple(items)
    return from_payload(FanOut, payload, items=items, join=join, most=payload.get("max", DEFAULT_MOST))
