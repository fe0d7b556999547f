"""Reading the fan-out of an edge: `each:` with its branches, their policy, and the edges after their join."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from uwf_git.base.text import counted, one_line
from uwf_git.format.edges import ALL, ASK, DEFAULT_MOST, FIRST, ON_CONFLICT
from uwf_git.format.failure_policy import FAILURE_POLICIES, WAIT
from uwf_git.format.fields import Fields
from uwf_git.format.findings import Findings
from uwf_git.format.ids import MOST_BRANCHES, name_problem
from uwf_git.format.schema import ValuePath
from uwf_git.format.types import FAIL
from uwf_git.workflow.common_mistakes import suggest_key

KEYS = (
    "each", "as", "role", "workflow", "prompt", "condition", "atOnce", "max", "need", "onFailure",
    "onConflict", "join",
)  # fmt: skip
_OWN = frozenset(("each", "atOnce", "onFailure", "onConflict", "join"))
_FIXED = ("role", "workflow", "prompt")
_JOIN = ("role", "condition", "prompt")
_RESERVED = (
    "start", "prompt", "index", "branches", "_body", "true", "false", "nil", "null", "empty", "blank", "and", "or",
    "not", "in", "contains", "if", "else", "with", "for", "as", "forloop", "size", "first", "last",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PERCENT = re.compile(r"(?:100|[1-9][0-9]?)%")


class DraftEdge(NamedTuple):
    """An edge in either form. Without condition and status it is the fallback. With a `fan_out` its role is `$FORK`."""

    path: ValuePath
    role: str
    role_path: ValuePath
    condition: str | None = None
    status: str | None = None
    prompt: str | None = None
    location: str | None = None
    fan_out: DraftFanOut | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The roles that it leads to; of a fan-out those of its branches, then those of its join."""
        return (self.role,) if self.fan_out is None else (*self.fan_out.roles, *self.fan_out.ends)

    @property
    def join(self) -> tuple[DraftEdge, ...]:
        """The edges of its join, none if it leads to a role."""
        return () if self.fan_out is None else self.fan_out.join

    @property
    def target(self) -> dict[str, Any]:
        """Its part of the node, without its condition or status."""
        texts = {"role": self.role, "prompt": self.prompt, "location": self.location}
        target: dict[str, Any] = {key: text for key, text in texts.items() if text is not None}
        if self.fan_out is not None:
            join = [{**edge.target, "condition": edge.condition} for edge in self.fan_out.join]
            target["fanOut"] = {**self.fan_out.payload, "join": join}
        return target


class DraftBranch(NamedTuple):
    """What branches are: of a `role` or a `workflow`, the other being "". `path` is that of the name."""

    path: ValuePath
    role: str
    workflow: str
    prompt: str | None = None
    prompt_path: ValuePath = ()


class DraftFanOut(NamedTuple):
    """A fan-out. `payload` is its part of the node, without the edges after the join; `expression` that of `each`, None
    if its items are written down; `branches` are one for all items, or one each."""

    path: ValuePath
    payload: dict[str, Any]
    expression: str | None
    branches: tuple[DraftBranch, ...]
    join: tuple[DraftEdge, ...]

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(branch.role for branch in self.branches if branch.role))

    @property
    def ends(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(edge.role for edge in self.join))

    @property
    def resolver(self) -> str:
        """The role that resolves conflicts of code, "" without one."""
        role: str = self.payload.get("onConflict", ASK)
        return role if role not in ON_CONFLICT else ""


def fans_out(edge: Any) -> bool:
    """Return whether an edge as written means to fan out, also if it misspells `each`."""
    return isinstance(edge, dict) and any(
        key in _OWN or suggest_key("fan-out", key) in _OWN - {"join"} for key in edge
    )


def read_fan_out(
    fields: Fields, findings: Findings, edge: dict[str, Any], path: ValuePath, what: str
) -> DraftFanOut | None:
    """Read an edge that fans out; None with a finding if it cannot be read."""
    return _Reader(fields, findings, edge, path, what).read()


class _Reader:
    def __init__(
        self, fields: Fields, findings: Findings, edge: dict[str, Any], path: ValuePath, what: str
    ) -> None:
        self._fields = fields
        self._findings = findings
        self._edge = edge
        self._path = path
        self._what = what

    def read(self) -> DraftFanOut | None:
        payload: dict[str, Any] = {}
        if self._edge.get("each") is None:
            message = f"{self._what} fans out and has no each, the items of its branches"
            self._findings.key_error(
                self._path,
                "missing-key",
                message,
                'each: "$last().FIELD", or a list; or remove the other keys',
            )
            return None
        source, fixed = self._edge["each"], self._fixed()
        expression = None
        if fixed is not None:
            payload["branches"] = [
                {
                    key: text
                    for key, text in (("role", it.role), ("workflow", it.workflow), ("prompt", it.prompt))
                    if text
                }
                for it in fixed
            ]
        elif isinstance(source, list):
            payload["items"] = source
            if not source:
                self._bad("each", f"{self._what}: each is an empty list, so there would be no branch")
        elif not isinstance(source, str):
            self._fields.wrong_type(
                (*self._path, "each"), f"{self._what}: each", "an expression or a list", source
            )
            return None
        elif (expression := self._fields.text(self._edge, self._path, "each", self._what)) is not None:
            payload["items"] = expression
        else:
            return None
        branches: tuple[DraftBranch, ...] | None = fixed
        if fixed is None:
            one = self._branch(self._edge, self._path, self._what)
            branches = (one,) if one is not None else None
            if one is not None:
                payload["role" if one.role else "workflow"] = one.role or one.workflow
        else:
            for key in ("role", "workflow"):
                if key in self._edge:
                    message = f"{self._what}: each branch of the list has its own {key}"
                    self._findings.key_error((*self._path, key), "two-forms", message, f"remove {key}")
        payload |= self._limits()
        join = self._join()
        if branches is None or join is None:
            return None
        return DraftFanOut(self._path, payload, expression, branches, join)

    def _fixed(self) -> tuple[DraftBranch, ...] | None:
        """Return the branches of a list of them; None if `each` is something else."""
        items = self._edge["each"]
        if not isinstance(items, list) or not items:
            return None
        branches = [isinstance(it, dict) and bool(it.keys() & {"role", "workflow"}) for it in items]
        # With a role of its own, its edge has items, whose fields may have any name.
        if not (all(branches) or (any(branches) and not self._edge.keys() & {"role", "workflow"})):
            return None
        draft_branches = []
        for number, item in enumerate(items):
            place: ValuePath = (*self._path, "each", number)
            what = f"{self._what}: branch {number}"
            hint = f"write {{role: {one_line(item, 40)}}}" if isinstance(item, str) else ""
            branch = self._fields.mapping(item, place, what, _FIXED, "branch", hint=hint)
            draft_branch = self._branch(branch, place, what) if branch is not None else None
            if draft_branch is not None:
                draft_branches.append(draft_branch)
        return tuple(draft_branches)

    def _branch(self, data: dict[str, Any], path: ValuePath, what: str) -> DraftBranch | None:
        role, workflow = data.get("role"), data.get("workflow")
        if role is not None and workflow is not None:
            message = f"{what} has both role and workflow"
            self._findings.key_error((*path, "workflow"), "two-forms", message, "keep one of them")
            return None
        if role is None and workflow is None:
            message = f"{what} has neither role nor workflow, of which its branches are"
            self._findings.key_error(
                path, "missing-key", message, "role: NAME of one here, or workflow: NAME of a registered one"
            )
            return None
        key = "role" if role is not None else "workflow"
        name = self._fields.text(data, path, key, what)
        if name is None:
            return None
        if key == "workflow" and (problem := name_problem(name)):
            self._findings.error((*path, key), "bad-name", f'{what}: workflow name "{name}" {problem}')
        prompt = self._fields.text(data, path, "prompt", what) if data.get("prompt") is not None else None
        place = (*path, key)
        return DraftBranch(
            place, name if key == "role" else "", name if key == "workflow" else "", prompt, (*path, "prompt")
        )

    def _limits(self) -> dict[str, Any]:
        edge, fields = self._edge, dict[str, Any]()
        if edge.get("as") is not None and (name := self._fields.text(edge, self._path, "as", self._what)):
            if _NAME.fullmatch(name) is None or name in _RESERVED:
                message = f"{self._what}: as {one_line(name, 40)!r} is not a name for an item"
                taken = name in _RESERVED
                self._bad("as", message, "templates use that word" if taken else "letters, digits and _")
            fields["name"] = name
        for key, most in (("atOnce", 1000), ("max", MOST_BRANCHES)):
            if edge.get(key) is None:
                continue
            if type(edge[key]) is not int or not 0 < edge[key] <= most:
                self._bad(key, f"{self._what}: {key} is not a whole number from 1 to {most:,}")
            else:
                fields[key] = edge[key]
        need = edge.get("need")
        if need is not None and not _is_need(need):
            self._bad(
                "need",
                f"{self._what}: need is not {ALL}, {FIRST}, a number or a percentage",
                _need_hint(need),
            )
        elif need is not None and need != ALL:
            fields["need"] = need
        failure = edge.get("onFailure")
        if failure is not None and failure not in [*FAILURE_POLICIES]:
            hint = self._findings.nearest(str(failure), FAILURE_POLICIES)
            self._bad("onFailure", f"{self._what}: no policy of onFailure is called {failure!r}", hint)
        elif failure is not None and failure != WAIT.word:
            fields["onFailure"] = failure
        if edge.get("onConflict") is not None:
            conflict = self._fields.text(edge, self._path, "onConflict", self._what)
            fields |= {"onConflict": conflict} if conflict not in (None, ASK) else {}
        items = edge["each"]
        if isinstance(items, list) and len(items) > fields.get("max", DEFAULT_MOST):
            self._bad("each", f"{self._what}: each has {len(items)} items, more than max", "raise max")
        elif isinstance(items, list) and type(need) is int and need > len(items) > 0:
            message = f"{self._what}: need is {need}, and each has {counted(len(items), 'item')}"
            self._bad("need", message, f"need: {ALL}")
        return {key: value for key, value in fields.items() if not (key == "max" and value == DEFAULT_MOST)}

    def _bad(self, key: str, message: str, hint: str = "") -> None:
        self._findings.error((*self._path, key), "bad-fan-out", message, hint)

    def _join(self) -> tuple[DraftEdge, ...] | None:
        path: ValuePath = (*self._path, "join")
        if "join" not in self._edge:
            message = f"{self._what} has no join, the role that comes after its branches"
            self._findings.key_error(self._path, "missing-key", message, "join: ROLE")
            return None
        value = self._edge["join"]
        if isinstance(value, str):
            return (DraftEdge(path, value, path),)
        entries = [value] if isinstance(value, dict) else value
        if not isinstance(entries, list) or not entries:
            wanted = "a role's name, an edge, or a list of edges"
            self._fields.wrong_type(path, f"{self._what}: join", wanted, value)
            return None
        edges = []
        for number, item in enumerate(entries):
            place: ValuePath = path if isinstance(value, dict) else (*path, number)
            what = f"{self._what}: join"
            hint = f"write {{role: {one_line(item, 40)}}}" if isinstance(item, str) else ""
            if isinstance(item, dict) and "end" in item:
                hint = f"write role: {FAIL}, and the reason as its prompt"
                self._findings.key_error((*place, "end"), "unknown-key", f'{what} has no key "end"', hint)
                return None
            edge = self._fields.mapping(item, place, what, _JOIN, "edge", hint=hint)
            role = self._fields.text(edge, place, "role", what) if edge is not None else None
            if edge is None or role is None:
                return None
            condition = edge.get("condition")
            if condition is not None and not isinstance(condition, str):
                wanted = "the name of a condition, or null"
                self._fields.wrong_type((*place, "condition"), f"{what}: condition", wanted, condition)
                return None
            prompt = (
                self._fields.text(edge, place, "prompt", what) if edge.get("prompt") is not None else None
            )
            edges.append(DraftEdge(place, role, (*place, "role"), condition, prompt=prompt))
        return tuple(edges)


def _need_hint(need: Any) -> str:
    if isinstance(need, str) and need.isascii() and need.isdigit():
        return f"need: {need}"
    return 'need: "80%"'


def _is_need(need: Any) -> bool:
    if type(need) is int:
        return 0 < need <= MOST_BRANCHES
    return isinstance(need, str) and (need in (ALL, FIRST) or _PERCENT.fullmatch(need) is not None)
