"""Parsing the workflow language into a draft with positions.

Parsing continues after mistakes: each is reported and skipped. A draft without errors has everything for a
Workflow node; `check` decides whether it makes sense. Keys beginning with `x-` are ignored everywhere.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from uwf_git.base.names import windows_problem
from uwf_git.base.text import one_line
from uwf_git.format.amounts import parse_budget, parse_duration
from uwf_git.format.fields import Fields, kind_of, own_items
from uwf_git.format.findings import Findings
from uwf_git.format.ids import name_problem
from uwf_git.format.schema import ValuePath
from uwf_git.format.statuses import DEFAULT_STATUS
from uwf_git.format.types import END, FAIL, FORK, NEW, START
from uwf_git.format.words import CAUSES, WORKSPACES
from uwf_git.workflow import fan_out_source
from uwf_git.workflow.common_mistakes import key_hint, means_start, suggest_key
from uwf_git.workflow.fan_out import join_name
from uwf_git.workflow.fan_out_source import DraftBranch, DraftEdge, DraftFanOut, fans_out, read_fan_out

VERSION = 1

_TOP = ("version", "name", "description", "budget", "workspace", "roles", "conditions", "graph")
_FOR_AGENTS = ("tools", "extractPrompt", "timeout", "retry", "fallback")
_FOR_PEOPLE = ("assignee", "approvers", "quorum", "notAuthor", "signed")
_GATES = ("quorum", "notAuthor", "signed")
_IN_BOTH_FORMS = (*_FOR_AGENTS, "human", *_FOR_PEOPLE)
_MOST_APPROVERS = 100
_RETRY = ("times", "backoff", "on")
_MOST_TRIES = 100
_PROMPT_FORM = ("description", "systemPrompt", "outputSchema", *_IN_BOTH_FORMS)
_GOAL_FORM = ("description", "goal", "capabilities", "procedure", "output", "frontmatter", *_IN_BOTH_FORMS)
_ROLE = tuple(dict.fromkeys((*_PROMPT_FORM, *_GOAL_FORM)))
_GOAL_ONLY = ("capabilities", "procedure", "output")
_SCHEMAS = ("outputSchema", "frontmatter")
_TOOLS = ("allow", "deny", "runCommand", "network")
_CONDITION = ("description", "expression")
_TRANSITION = ("role", "condition", "prompt", "location", "end", "reason")
_TARGET = ("role", "prompt", "location", "end", "reason")
_OUTCOMES = {"completed": END, "failed": FAIL}
_SENTINELS = {"__start__": START, "__end__": END}
"""What the first engine calls them; a role may have such a name all the same."""
_UNDER_ITS_NAME = {
    "roles": "the name of a role is its key: roles: {writer: {description: …}}",
    "conditions": "the name of a condition is its key: conditions: {rejected: {expression: …}}",
    "graph": f"where an edge begins is a key: graph: {{{START}: [{{role: writer}}]}}",
}


_ARTICLES = {
    "assignee": "an assignee",
    "approvers": "approvers",
    "quorum": "a quorum",
    "notAuthor": "notAuthor",
    "signed": "signed",
}


def _are(number: int) -> str:
    return "is 1 approver" if number == 1 else f"are {number} approvers"


class DraftRole(NamedTuple):
    """`fields` is the role's payload without its schema, whose hash goes under `schema_key`."""

    name: str
    path: ValuePath
    fields: dict[str, Any]
    schema: Any
    schema_key: str
    schema_path: ValuePath


class DraftCondition(NamedTuple):
    """`expression` is "" if unreadable."""

    name: str
    path: ValuePath
    description: str
    expression: str


class DraftEdges(NamedTuple):
    """The edges of a role or $START in order. `whole` is False if some were unreadable, so that they are not
    reported as missing."""

    path: ValuePath
    by_status: bool
    edges: list[DraftEdge]
    whole: bool

    @property
    def tried(self) -> list[DraftEdge]:
        """The edges in the order in which they are tried: by status, the default comes last."""
        return sorted(self.edges, key=lambda edge: edge.status is None) if self.by_status else self.edges


class Draft(NamedTuple):
    """A partially parsed workflow. `declared` has all roles, also unreadable ones. `missing` are sections
    that are not mappings, so that their contents are not reported as undefined. `unread_fan_out`: an edge fans out in
    a way that could not be read."""

    name: str
    description: str
    roles: dict[str, DraftRole]
    conditions: dict[str, DraftCondition]
    graph: dict[str, DraftEdges]
    declared: frozenset[str]
    budget: dict[str, float] | None = None
    missing: frozenset[str] = frozenset()
    workspace: str = ""
    unread_fan_out: bool = False

    @property
    def branches(self) -> list[DraftBranch]:
        """The branches of all edges that fan out."""
        edges = (edge for edges in self.graph.values() for edge in edges.edges)
        return [branch for edge in edges if edge.fan_out is not None for branch in edge.fan_out.branches]

    @property
    def joins(self) -> dict[str, DraftEdge]:
        """The edges that fan out, by the names of their joins."""
        return {
            join_name(source, position): edge
            for source, edges in self.graph.items()
            for position, edge in enumerate(edges.tried)
            if edge.fan_out is not None
        }

    def targets(self, source: str) -> tuple[str, ...]:
        """Return the roles that the edges of a role lead to."""
        return (
            tuple(role for edge in self.graph[source].edges for role in edge.targets)
            if source in self.graph
            else ()
        )


def read_draft(data: Any, findings: Findings) -> Draft:
    return _Reader(findings).draft(data)


class _Reader(Fields):
    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self._sentinels: dict[str, str] = {}
        self._unread_fan_out = False

    def meant(self, kind: str, key: str, given: Collection[str]) -> str | None:
        return suggest_key(kind, key, given)

    def hint(self, kind: str, key: str, meant: str | None, known: Collection[str]) -> str:
        if kind in ("edge", "fan-out") and "condition" in (key, meant) and "condition" not in known:
            return "an edge by status has no condition: write the edges of its role as a list"
        return key_hint(key)

    def draft(self, data: Any) -> Draft:
        top = self.mapping(data, (), "a workflow", _TOP, "workflow")
        if top is None:
            return Draft("", "", {}, {}, {}, frozenset())
        self._version(top)
        name = self.text(top, (), "name", "the workflow") or ""
        if name and (problem := name_problem(name)):
            self._findings.error(("name",), "bad-name", f'workflow name "{name}" {problem}')
        elif name and (problem := windows_problem(name)):
            hint = "choose another, so that the workflow can be pulled there"
            self._findings.warning(("name",), "device-name", f'workflow name "{name}" {problem}', hint)
        roles_data = self._section(top, "roles")
        roles = self._roles(roles_data)
        declared = frozenset(role for role in roles_data if not role.startswith("x-"))
        conditions = self._conditions(self._section(top, "conditions", required=False))
        graph = self._graph(self._section(top, "graph"), declared)
        description = self._description(top, (), "the workflow")
        budget = self._budget(top.get("budget"))
        missing = {"roles"} if not roles_data else set()
        if not isinstance(top.get("conditions", {}), dict | None):
            missing.add("conditions")
        workspace = self._workspace(top)
        return Draft(
            name,
            description,
            roles,
            conditions,
            graph,
            declared,
            budget,
            frozenset(missing),
            workspace,
            self._unread_fan_out,
        )

    def _workspace(self, top: dict[str, Any]) -> str:
        kind = self.text(top, (), "workspace", "the workflow") if "workspace" in top else ""
        if kind and kind not in WORKSPACES:
            message = f'workspace "{one_line(kind, 40)}" is unknown'
            self._findings.error(("workspace",), "bad-workspace", message, f"known: {', '.join(WORKSPACES)}")
            return ""
        return kind or ""

    def _budget(self, value: Any) -> dict[str, float] | None:
        limits, problems = parse_budget(value)
        for key, message, hint in problems:
            report = self._findings.error if key is None else self._findings.key_error
            report(("budget",) if key is None else ("budget", key), "bad-budget", message, hint)
        return limits or None

    def _version(self, top: dict[str, Any]) -> None:
        version = top.get("version", VERSION)
        if type(version) is not int or version != VERSION:
            shown = one_line(self._findings.raw(("version",)) or kind_of(version), 40)
            known = isinstance(version, str) and version == str(VERSION)
            self._findings.error(
                ("version",),
                "bad-version",
                f"version must be the number {VERSION}" if known else f"version {shown} is not supported",
                f"write version: {VERSION}",
            )

    def _section(self, top: dict[str, Any], key: str, required: bool = True) -> dict[str, Any]:
        if key not in top or (top[key] is None and not required):
            if required:
                self._findings.error((), "missing-key", f"the workflow has no {key}", f"add {key}:")
            return {}
        section = top[key]
        if not isinstance(section, dict):
            hint = _UNDER_ITS_NAME[key] if isinstance(section, list) else ""
            self.wrong_type((key,), key, "a mapping", section, hint)
            return {}
        if not section and required:
            self._findings.key_error((key,), "missing-key", f"{key} is empty", _UNDER_ITS_NAME[key])
        return section

    def _roles(self, section: dict[str, Any]) -> dict[str, DraftRole]:
        roles: dict[str, DraftRole] = {}
        for name, value in own_items(section):
            path: ValuePath = ("roles", name)
            if name.startswith("$"):
                self._findings.key_error(
                    path, "reserved-name", f'role "{name}": names with $ are reserved', "rename the role"
                )
                continue
            if problem := name_problem(name):
                self._findings.key_error(path, "bad-name", f'role name "{name}" {problem}')
            role = self._role(name, value, path)
            if role is not None:
                roles[name] = role
        return roles

    def _role(self, name: str, value: Any, path: ValuePath) -> DraftRole | None:
        what = f'role "{name}"'
        role = self.mapping(value, path, what, _ROLE, "role")
        if role is None:
            return None
        by_goal = "goal" in role or (
            "systemPrompt" not in role and any(key in role for key in ("procedure", "capabilities"))
        )
        fields: dict[str, Any] = {"description": self._description(role, path, what)}
        if by_goal and "systemPrompt" in role:
            self._findings.key_error(
                (*path, "systemPrompt"),
                "two-forms",
                f"{what} has both goal and systemPrompt",
                "keep one of them",
            )
        if by_goal:
            fields["goal"] = self.text(role, path, "goal", what) or ""
            for key in ("procedure", "output"):
                if key in role:
                    fields[key] = self.text(role, path, key, what) or ""
            if "capabilities" in role:
                fields["capabilities"] = self.texts(role, path, "capabilities", what)
        else:
            hint = "a role has systemPrompt, or goal with procedure and output"
            is_needed = "systemPrompt" in role or role.get("human") is not True  # a person needs none
            fields["systemPrompt"] = (is_needed and self.text(role, path, "systemPrompt", what, hint)) or ""
            for key in _GOAL_ONLY:
                if key in role:
                    self._findings.key_error(
                        (*path, key),
                        "two-forms",
                        f"{what}: {key} goes with goal, not with systemPrompt",
                        "say it in systemPrompt, or write goal instead of it",
                    )
        if role.get("tools") is not None:
            fields["tools"] = self._tools(role["tools"], (*path, "tools"), f"{what}: tools")
        if role.get("extractPrompt") is not None:
            prompt = self.text(role, path, "extractPrompt", what, may_be_empty=True) or ""
            fields |= {"extractPrompt": prompt} if prompt.strip() else {}
        fields |= self._trying(role, path, what)
        fields |= self._human(role, path, what)
        return self._with_schema(name, role, path, fields, "frontmatter" if by_goal else "outputSchema")

    def _human(self, role: dict[str, Any], path: ValuePath, what: str) -> dict[str, Any]:
        """Return what a role says of the person who plays it."""
        human = role.get("human")
        if human is not None and not isinstance(human, bool):
            self.wrong_type((*path, "human"), f"{what}: human", "true or false", human)
        if human is not True:
            for key in _FOR_PEOPLE:
                if key in role:
                    message = f"{what} has {_ARTICLES[key]}, but isn't a human's"
                    self._findings.key_error((*path, key), "human-role", message, "add human: true")
            return {}
        for key in _FOR_AGENTS:
            if key in role:
                message = f"{what} is a human's, and {key} is for agents"
                self._findings.key_error((*path, key), "human-role", message, f"remove {key}, or human")
        fields: dict[str, Any] = {"human": True}
        if role.get("assignee") is not None:
            fields["assignee"] = self.text(role, path, "assignee", what) or ""
        return fields | self._gate(role, path, what)

    def _gate(self, role: dict[str, Any], path: ValuePath, what: str) -> dict[str, Any]:
        """Return a role's approvers, and what is asked of them."""
        if role.get("approvers") is None:
            for key in _GATES:
                if key in role:
                    message = f"{what} has {_ARTICLES[key]}, and no approvers"
                    self._findings.key_error((*path, key), "approvers", message, "approvers: [NAME, …]")
            return {}
        names = self.texts(role, path, "approvers", what)
        if isinstance(role["approvers"], list) and not role["approvers"]:
            message = f"{what} has no approvers, so nobody may answer"
            self._findings.error(
                (*path, "approvers"), "approvers", message, "name people, groups or addresses"
            )
        if len(names) > _MOST_APPROVERS:
            message = f"{what} has {len(names)} approvers, more than {_MOST_APPROVERS}"
            self._findings.error(
                (*path, "approvers"), "approvers", message, "name a group of the trust policy"
            )
            names = names[:_MOST_APPROVERS]
        for number, name in enumerate(names):
            place = (*path, "approvers", number)
            if not name.strip() or not name.isprintable():
                self._findings.error(place, "approvers", f"{what}: {name!r} is nobody's name")
            elif name.casefold() in map(str.casefold, names[:number]):
                self._findings.error(place, "approvers", f"{what}: {name} is named twice", "leave one out")
        fields: dict[str, Any] = {"approvers": list(dict.fromkeys(names))}
        quorum = role.get("quorum")
        if quorum is not None and (type(quorum) is not int or not 0 < quorum <= _MOST_APPROVERS):
            message = f"{what}: quorum is not a whole number from 1 to {_MOST_APPROVERS}"
            self._findings.error((*path, "quorum"), "approvers", message, "quorum: 2")
            quorum = None
        if quorum is not None and quorum > 1:
            fields["quorum"] = quorum
        for key in ("notAuthor", "signed"):
            value = role.get(key)
            if value is not None and not isinstance(value, bool):
                self.wrong_type((*path, key), f"{what}: {key}", "true or false", value)
            if value is True:
                fields[key] = True
        self._check_quorum(role, path, what, fields)
        return fields

    def _check_quorum(self, role: dict[str, Any], path: ValuePath, what: str, found: dict[str, Any]) -> None:
        people, quorum = found["approvers"], found.get("quorum", 1)
        if any("@" not in name for name in people):
            return  # a name may be that of a group
        if quorum > len(people):
            message = f"{what}: quorum is {quorum}, and there {_are(len(people))}"
            self._findings.error((*path, "quorum"), "approvers", message, "name more, or ask for fewer")
        elif found.get("notAuthor") and quorum == len(people):
            message = f"{what}: all of its approvers are needed, and none may be the author"
            hint = "a thread of one of them could never go on: name more"
            self._findings.warning((*path, "notAuthor"), "approvers", message, hint)

    def _trying(self, role: dict[str, Any], path: ValuePath, what: str) -> dict[str, Any]:
        """Return a role's timeout, retry and fallback."""
        fields: dict[str, Any] = {}
        if role.get("timeout") is not None and (seconds := self._duration(role, path, "timeout", what)):
            fields["timeout"] = seconds
        if role.get("retry") is not None:
            fields["retry"] = self._retry(role["retry"], (*path, "retry"), f"{what}: retry")
        if role.get("fallback") is not None:
            name = self.text(role, path, "fallback", what) or ""
            if name.split() != [name]:
                self._findings.error(
                    (*path, "fallback"),
                    "bad-fallback",
                    f"{what}: fallback is not the name of an agent",
                    "a workflow names an agent; its command is in config.yaml",
                )
            fields["fallback"] = name
        return fields

    def _retry(self, value: Any, path: ValuePath, what: str) -> dict[str, Any]:
        retry = self.mapping(value, path, what, _RETRY)
        if retry is None:
            return {"times": 1}
        times = retry.get("times")
        if type(times) is not int or not 0 < times <= _MOST_TRIES:
            place = (*path, "times") if "times" in retry else path
            message = f"{what} needs times, a whole number from 1 to {_MOST_TRIES}"
            self._findings.error(place, "bad-retry", message, "retry: {times: 3}")
            times = 1
        fields: dict[str, Any] = {"times": times}
        if retry.get("backoff") is not None and (seconds := self._duration(retry, path, "backoff", what)):
            fields["backoff"] = seconds
        if retry.get("on") is not None:
            causes = self.texts(retry, path, "on", what)
            for number, cause in enumerate(causes):
                if cause not in CAUSES:
                    message = f"{what}: {cause!r} is not a cause"
                    self._findings.error(
                        (*path, "on", number), "bad-retry", message, f"known: {', '.join(CAUSES)}"
                    )
            fields["on"] = [cause for cause in dict.fromkeys(causes) if cause in CAUSES]
        return fields

    def _duration(self, data: dict[str, Any], path: ValuePath, key: str, what: str) -> float | None:
        seconds = parse_duration(data[key])
        if seconds is None:
            shown = one_line(self._findings.raw((*path, key)) or kind_of(data[key]), 40)
            message = f"{what}: {key} {shown} is not a duration"
            self._findings.error((*path, key), "bad-duration", message, 'seconds, or "10m", "1h30m"')
        return seconds

    def _tools(self, value: Any, path: ValuePath, what: str) -> dict[str, Any]:
        tools = self.mapping(value, path, what, _TOOLS)
        fields: dict[str, Any] = {}
        for key, item in own_items(tools or {}):
            if key in ("allow", "deny"):
                fields[key] = self.texts(tools or {}, path, key, what)
            elif key in _TOOLS and item is not False:
                self._findings.error(
                    (*path, key),
                    "widened-tools",
                    f"{what}: {key} can only be false: a workflow takes away, it doesn't grant",
                    "whoever runs it switches that on in config.yaml",
                )
            elif key in _TOOLS:
                fields[key] = False
        return fields

    def _with_schema(
        self, name: str, role: dict[str, Any], path: ValuePath, fields: dict[str, Any], schema_key: str
    ) -> DraftRole | None:
        what = f'role "{name}"'
        schemas = [key for key in _SCHEMAS if key in role]
        if not schemas:
            self._findings.key_error(
                path, "missing-key", f"{what} has no {schema_key}", "give the JSON Schema of what it answers"
            )
            return None
        if len(schemas) == 2:
            self._findings.key_error(
                (*path, schemas[1]),
                "two-forms",
                f"{what} has both outputSchema and frontmatter",
                "keep one of them",
            )
        schema_path = (*path, schemas[0])
        if not isinstance(role[schemas[0]], dict):
            self.wrong_type(schema_path, f"{what}: {schemas[0]}", "an inline JSON Schema", role[schemas[0]])
            return None
        return DraftRole(name, path, fields, role[schemas[0]], schema_key, schema_path)

    def _conditions(self, section: dict[str, Any]) -> dict[str, DraftCondition]:
        conditions: dict[str, DraftCondition] = {}
        for name, value in own_items(section):
            path: ValuePath = ("conditions", name)
            what = f'condition "{name}"'
            if not name.strip() or not name.isprintable():
                self._findings.key_error(path, "bad-name", f"{what} has no readable name")
            hint = f"write {name}: {{expression: …}}" if isinstance(value, str) else ""
            condition = self.mapping(value, path, what, _CONDITION, "condition", hint=hint)
            expression = self.text(condition, path, "expression", what) if condition is not None else None
            description = ""
            if condition is not None and "description" in condition:
                description = self.text(condition, path, "description", what, may_be_empty=True) or ""
            # Kept without an expression: an edge that names it is not the mistake.
            conditions[name] = DraftCondition(name, path, description, expression or "")
        return conditions

    def _graph(self, section: dict[str, Any], declared: frozenset[str]) -> dict[str, DraftEdges]:
        graph: dict[str, DraftEdges] = {}
        self._sentinels = {name: meant for name, meant in _SENTINELS.items() if name not in declared}
        for written, value in own_items(section):
            path: ValuePath = ("graph", written)
            meant = self._sentinels.get(written, written)
            source = written if meant in section else meant
            if isinstance(value, list):
                draft_edges = [
                    self._transition(item, (*path, number), source) for number, item in enumerate(value)
                ]
            elif isinstance(value, dict):
                if source == START and {NEW, DEFAULT_STATUS} <= value.keys():
                    message = f"graph: {NEW} and {DEFAULT_STATUS} of {START} mean the same"
                    self._findings.key_error(
                        (*path, DEFAULT_STATUS), "two-forms", message, "keep one of them"
                    )
                draft_edges = [
                    self._target(item, (*path, status), source, status) for status, item in own_items(value)
                ]
            else:
                named = START if means_start(source) else source
                self.wrong_type(
                    path,
                    f'graph: "{source}"',
                    "a list of transitions or a mapping of statuses",
                    value,
                    f"write {named}: [{{role: {one_line(value, 40) if isinstance(value, str) else END}}}]",
                )
                graph[source] = DraftEdges(path, False, [], False)
                continue
            edges = [edge for edge in draft_edges if edge is not None]
            graph[source] = DraftEdges(path, isinstance(value, dict), edges, len(edges) == len(draft_edges))
        return graph

    def _transition(self, value: Any, path: ValuePath, source: str) -> DraftEdge | None:
        what = (
            f'graph: transition {path[-1]} of "{source}"'
            if source != START
            else f"graph: a transition of {START}"
        )
        hint = f"write {{role: {one_line(value, 40)}}}" if isinstance(value, str) else ""
        forks = fans_out(value)
        known, kind = (fan_out_source.KEYS, "fan-out") if forks else (_TRANSITION, "edge")
        edge = self.mapping(value, path, what, known, kind, hint=hint)
        if edge is None:
            return None
        condition = edge.get("condition")
        if condition is not None and not isinstance(condition, str):
            self.wrong_type(
                (*path, "condition"), f"{what}: condition", "the name of a condition, or null", condition
            )
            return None
        return self._edge(edge, path, what, forks, condition=condition)

    def _target(self, value: Any, path: ValuePath, source: str, status: str) -> DraftEdge | None:
        what = f'graph: "{source}" on "{status}"'
        named = None if status == DEFAULT_STATUS or (source == START and status == NEW) else status
        if isinstance(value, str):
            return DraftEdge(path, self._sentinels.get(value, value), path, status=named)
        hint = f"write {one_line(status, 40)}: {END}" if value is None else ""
        forks = fans_out(value)
        known = tuple(key for key in fan_out_source.KEYS if key != "condition") if forks else _TARGET
        kind = "fan-out" if forks else "edge"
        edge = self.mapping(value, path, what, known, kind, "a role's name or a mapping", hint)
        return None if edge is None else self._edge(edge, path, what, forks, status=named)

    def _edge(
        self,
        edge: dict[str, Any],
        path: ValuePath,
        what: str,
        forks: bool,
        condition: str | None = None,
        status: str | None = None,
    ) -> DraftEdge | None:
        if not forks and ("end" in edge or "reason" in edge):
            return self._ending(edge, path, what, condition, status)
        fan_out, role = None, None
        if forks:
            fan_out = self._fan_out(edge, path, what)
            role = FORK if fan_out is not None else None
        else:
            role = self.text(edge, path, "role", what)
        texts = {
            key: self.text(edge, path, key, what)
            for key in ("prompt", "location")
            if edge.get(key) is not None
        }
        if role is None:
            return None
        if fan_out is not None:
            return DraftEdge(
                path, role, (*path, "each"), condition, status, texts.get("prompt"), fan_out=fan_out
            )
        role = self._sentinels.get(role, role)
        return DraftEdge(
            path, role, (*path, "role"), condition, status, texts.get("prompt"), texts.get("location")
        )

    def _fan_out(self, edge: dict[str, Any], path: ValuePath, what: str) -> DraftFanOut | None:
        out = read_fan_out(self, self._findings, edge, path, what)
        if out is None:
            self._unread_fan_out = True
            return None
        join = tuple(
            draft_edge._replace(role=self._sentinels.get(draft_edge.role, draft_edge.role))
            for draft_edge in out.join
        )
        return out._replace(join=join)

    def _ending(
        self, edge: dict[str, Any], path: ValuePath, what: str, condition: str | None, status: str | None
    ) -> DraftEdge | None:
        """Read `{end: failed, reason: …}`, which is an edge to `$FAIL` with the reason as its prompt."""
        end, reason = edge.get("end"), None
        role = _OUTCOMES.get(end) if isinstance(end, str) else None
        for key in ("role", "prompt", "location"):
            if key in edge:
                self._findings.key_error((*path, key), "two-forms", f"{what}: {key} does not go with end")
                return None
        if role is None:
            place = (*path, "end") if "end" in edge else path
            message = f"{what}: end is one of {', '.join(_OUTCOMES)}"
            self._findings.error(place, "bad-value", message, self._findings.nearest(str(end), _OUTCOMES))
            return None
        if edge.get("reason") is not None:
            reason = self.text(edge, path, "reason", what)
            if role == END:
                message = f"{what}: only a failed end has a reason"
                self._findings.key_error((*path, "reason"), "bad-value", message, "remove it")
                return None
        return DraftEdge(path, role, (*path, "end"), condition, status, reason)

    def _description(self, data: dict[str, Any], path: ValuePath, what: str) -> str:
        if "description" not in data:
            self._findings.warning(
                path, "missing-description", f"{what} has no description", "say in a line what it is for"
            )
            return ""
        return self.text(data, path, "description", what, may_be_empty=True) or ""
