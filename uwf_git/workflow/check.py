"""Checking a workflow: errors, and warnings for what cannot work.

An error prevents registration, since a thread would get stuck. A warning is probably a mistake, but a run may
succeed. Rehearsal reports the same about the graph: reachable roles and dead ends.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from uwf_git.base.text import one_line
from uwf_git.format.document import InvalidYaml
from uwf_git.format.edges import ASK, ON_CONFLICT
from uwf_git.format.fan_out import DEEPEST
from uwf_git.format.findings import Finding, Findings
from uwf_git.format.kinds import BODY, ISSUE_FIELDS
from uwf_git.format.schema import ValuePath
from uwf_git.format.shape import named
from uwf_git.format.statuses import DEFAULT_STATUS, SUSPEND
from uwf_git.format.types import END, ENDS, FAIL, FORK, JOIN, NEW, RESUME, START, USER
from uwf_git.workflow.branch_bodies import Body, bodies_of, innermost, nesting
from uwf_git.workflow.common_mistakes import expression_hint, is_expression, means_end, means_start
from uwf_git.workflow.draft import Draft, DraftEdges, read_draft
from uwf_git.workflow.expression import check_expression, check_items
from uwf_git.workflow.fan_out import join_name
from uwf_git.workflow.fan_out_source import DraftEdge, DraftFanOut
from uwf_git.workflow.moderator import can_end, reachable
from uwf_git.workflow.role_schemas import HUMAN, Answers, answers_of, schema_problems
from uwf_git.workflow.source import Source, read_source
from uwf_git.workflow.turn import TARGETS

__all__ = ["EFFECTS", "Finding", "check", "check_path", "check_role_schema", "examine"]

EFFECTS = frozenset(("no-way-to-end", "stuck-role", "unreachable-role"))
"""Codes of what is often only the effect of another mistake."""

_PYTHONS = "python-pattern"

_START_VARIABLES = ("prompt", "workflow")
_START_OF_BRANCH = ("index", "item")
_JOIN_VARIABLES = ("branches", "summary", BODY)
_ROLE_LITERAL = re.compile(r"""\brole\s*=\s*(?:"([^"\\]*)"|'([^'\\]*)')""")


def check(source: Source) -> list[Finding]:
    """Return a workflow's findings in line order."""
    return examine(source)[1]


def check_path(path: Path) -> list[Finding]:
    """As `check`, for a file; invalid YAML is a finding. Raises NotFound, Invalid for an unreadable file."""
    try:
        source = read_source(path)
    except InvalidYaml as error:
        return [Finding(error.mark.line, error.mark.column, "error", "not-yaml", error.problem, error.hint)]
    return check(source)


def examine(source: Source, recorded: bool = False) -> tuple[Draft, list[Finding]]:
    """Return a source's draft and findings. A `recorded` one may have patterns of Python's `re`."""
    findings = Findings(source.marks)
    draft = read_draft(source.data, findings)
    _Checker(draft, findings).run()
    return draft, [finding for finding in findings.sorted() if not (recorded and finding.code == _PYTHONS)]


def check_role_schema(role: str, schema: Any, path: ValuePath, findings: Findings) -> bool:
    """Report problems of a role's output schema. Return whether it is a schema."""
    problems = schema_problems(schema)
    for problem in problems:
        message = f'role "{role}": {problem.message}'
        if problem.is_error:
            code = _PYTHONS if problem.is_pythons else "bad-schema"
            findings.error((*path, *problem.path), code, message, problem.hint)
        else:
            findings.warning((*path, *problem.path), "odd-schema", message, problem.hint)
    if any(problem.is_error for problem in problems):
        return False
    kind = schema.get("type", "object")
    if kind != "object" and "object" not in kind:
        findings.error(
            (*path, "type"),
            "bad-schema",
            f'role "{role}": its answer must be an object, as fields are what an agent fills in',
            "wrap it: {type: object, properties: {result: …}}",
        )
    if BODY in named(schema).names:
        own = (*path, "properties", BODY)
        findings.key_error(
            own if BODY in schema.get("properties", {}) else path,
            "reserved-name",
            f'role "{role}": a field cannot be called {BODY}, which is the text of the answer in templates',
            "give it another name, such as body",
        )
    return True


class _Checker:
    """One check of a draft."""

    def __init__(self, draft: Draft, findings: Findings) -> None:
        self._draft = draft
        self._findings = findings
        self._answers: dict[str, Answers] = {}
        self._used: dict[str, list[str]] = {}
        # The probable meaning of an undefined name: one mistake is one finding, not also a role that is never
        # reached.
        self._suggest: dict[str, str] = {}
        # Names that could mean anything: skip findings about roles that they may reach.
        self._unclear = False
        self._unclear_condition = False
        self._bodies: list[Body] = bodies_of({source: edges.edges for source, edges in draft.graph.items()})
        self._within = innermost(self._bodies)
        self._joins = {join_name(body.source, body.position): body for body in self._bodies}
        self._endings = {name: self._ending_in(body) for name, body in self._joins.items()}

    def run(self) -> None:
        self._schemas()
        live: dict[str, set[str]] = {}
        for source, edges in self._draft.graph.items():
            if not self._source(source, edges) and source not in self._suggest:
                continue
            for number, edge in enumerate(edges.edges):
                self._target(edge)
                self._templates(source, edge, edges)
                if edge.fan_out is not None:
                    self._fan_out(source, join_name(source, number), edge, edge.fan_out)
            taken = self._by_status(source, edges) if edges.by_status else self._by_condition(source, edges)
            targets = {self._suggest.get(role, role) for edge in taken for role in edge.targets}
            if not all(map(self._is_target, targets)):
                targets.add(END)  # an edge that leads nowhere known could be the way out
            for fan_out in (edge.fan_out for edge in taken if edge.fan_out is not None):
                if fan_out.resolver in self._draft.declared:
                    targets.add(fan_out.resolver)
                    live.setdefault(fan_out.resolver, set()).update(fan_out.ends)
            live.setdefault(self._suggest.get(source, source), set()).update(targets)
        for body in self._bodies:
            self._body(body, live)
        self._conditions()
        self._graph(live)

    def _fan_out(self, source: str, name: str, edge: DraftEdge, fan_out: DraftFanOut) -> None:
        """Check the expression, the branches and the join of a fan-out. `name` is that of its join."""
        path = (*fan_out.path, "each")
        if edge.status == RESUME and source == START:
            message = f"{START} on {RESUME} cannot fan out"
            self._findings.key_error(path, "bad-fan-out", message, "lead to a role, whose edge fans out")
        if (expression := fan_out.expression) is not None:
            if (reason := check_items(expression)) is not None:
                hint = expression_hint(expression)
                self._findings.error(path, "bad-expression", f'each of "{source}": {reason}', hint)
            elif source == START and "$last" in expression:
                message = f"$last() is the output of the last step, and at {START} there is none"
                self._findings.error(path, "bad-expression", message, "start.prompt is the task")
            else:
                self._doubts_in_items(expression, path, source)
        conflict = fan_out.payload.get("onConflict", ASK)
        if conflict not in ON_CONFLICT and conflict not in self._draft.declared:
            hint = self._findings.nearest(conflict, [*self._draft.declared, *ON_CONFLICT])
            message = f'onConflict "{conflict}" is not {", ".join(ON_CONFLICT)} or a role'
            self._findings.error((*fan_out.path, "onConflict"), "unknown-role", message, hint)
        joined = DraftEdges((*fan_out.path, "join"), False, [*fan_out.join], True)
        for item in joined.edges:
            self._target(item)
            self._templates(name, item, joined)
        self._by_condition(name, joined)

    def _doubts_in_items(self, expression: str, path: ValuePath, source: str) -> None:
        from uwf_git.workflow.type_check import doubts_of_items

        schemas = {role: answers.schema for role, answers in self._answers.items()}
        last = self._suggest.get(source, source)
        for code, message, hint in doubts_of_items(
            expression, schemas, self._draft.declared, last, self._endings
        ):
            self._findings.warning(path, code, f"each: {message}", hint)

    def _ending_in(self, body: Body) -> frozenset[str]:
        """Return the roles that branches may end with, "" if it may be a step of something else."""
        graph = self._draft.graph
        edge = graph[body.source].edges[body.position]
        ending = (
            {""}
            if edge.fan_out is not None and any(branch.workflow for branch in edge.fan_out.branches)
            else set()
        )
        for role in body.roles:
            leaving = graph[role].edges if role in graph else ()
            out = [edge for edge in leaving if any(target not in body.roles for target in edge.targets)]
            ending |= {"" if edge.fan_out is not None else role for edge in out} if leaving else {role}
        return frozenset(ending)

    def _body(self, body: Body, live: dict[str, set[str]]) -> None:
        """Check that branches begin at their fork alone and cannot come to the role that forks. Roles without edges end
        them."""
        graph = self._draft.graph
        fan_out = graph[body.source].edges[body.position].fan_out
        assert fan_out is not None
        for role in body.roles:
            if (role not in graph or not graph[role].edges) and role in self._draft.declared:
                live.setdefault(role, set()).add(END)
        for branch in fan_out.branches:
            if branch.role in body.ends and branch.role not in ENDS:
                self._unclear = True
                live.setdefault(body.source, set()).add(END)
                self._findings.error(
                    branch.path,
                    "branch-without-exit",
                    f'a branch begins at "{branch.role}", which is a role of its join, so it would end at once',
                    "give the join or the branches a role of their own",
                )
        if body.source in body.roles:
            self._findings.error(
                (*fan_out.path, "join"),
                "branch-without-exit",
                f'a branch of "{body.source}" can come to "{body.source}" itself, which would fork again',
                "let its last role lead to a role of join, or leave out its edges",
            )
            return
        if (depth := nesting(body, self._bodies)) > DEEPEST:
            message = f"fan-outs are within each other {depth} levels deep, more than {DEEPEST}"
            hint = "let a role do the work of its branches itself, or name a workflow that does"
            self._findings.key_error(fan_out.path, "deep-fan-out", message, hint)
        for source, edges in graph.items():
            if source in body.roles:
                continue
            for edge in edges.edges:
                leading = [(edge.role, edge.role_path)]
                if edge.fan_out is not None:
                    leading = [(draft_edge.role, draft_edge.role_path) for draft_edge in edge.fan_out.join]
                for role, path in leading:
                    if role in body.roles:
                        self._entered(body, source, role, path)

    def _entered(self, body: Body, source: str, role: str, path: ValuePath) -> None:
        inside = next((item for item in body.roles if role in self._draft.targets(item)), None)
        way = "" if inside is None else f', as "{inside}" leads there'
        own = "a branch begins at its fork alone: give one of them a role of its own"
        hint = own if inside is None else f'let "{inside}" lead to a role of join, or {own.split(": ")[1]}'
        self._findings.error(
            path,
            "entered-branch",
            f'"{source}" leads to "{role}", which is part of the branches of "{body.source}"{way}',
            hint,
        )

    def _schemas(self) -> None:
        for role in self._draft.roles.values():
            if check_role_schema(role.name, role.schema, role.schema_path, self._findings):
                self._answers[role.name] = answers_of(role.schema)

    def _source(self, source: str, edges: DraftEdges) -> bool:
        if source in TARGETS and source not in ENDS:
            return True
        if source.startswith("$") and source != START and not means_start(source):
            known = source in (END, FAIL, USER, SUSPEND)
            hint = "remove it" if known else self._findings.nearest(source, [START])
            self._findings.key_error(edges.path, "reserved-name", f'graph: nothing leaves "{source}"', hint)
            return False
        if source != START and source not in self._draft.declared:
            if "roles" in self._draft.missing:
                return True
            if means_start(source) and START not in self._draft.graph:
                self._suggest[source] = START
                hint = f"it is called {START}"
            else:
                self._means(source, [role for role in self._draft.declared if role not in self._draft.graph])
                hint = self._findings.nearest(source, self._draft.declared)
            self._findings.key_error(
                edges.path, "unknown-role", f'graph: role "{source}" is not defined', hint
            )
            return False
        if not edges.edges and edges.whole and source not in self._within:
            self._findings.key_error(
                edges.path,
                "stuck-role",
                f'"{source}" has no edge, so a thread would be stuck after it',
                f"write {source}: [{{role: {END}}}]",
            )
        return True

    def _target(self, edge: DraftEdge) -> None:
        if edge.fan_out is None:
            self._named(edge.role, edge.role_path)
            return
        for branch in edge.fan_out.branches:
            if branch.role in ENDS:
                message = f"a branch cannot begin at {branch.role}"
                self._findings.error(branch.path, "unknown-role", message, "name the role that it begins at")
            elif branch.role:
                self._named(branch.role, branch.path)

    def _named(self, role: str, path: ValuePath) -> None:
        """Check that an edge leads to a role, or to an end."""
        if self._is_target(role) or "roles" in self._draft.missing:
            return
        if means_end(role):
            self._suggest[role] = END
        else:
            self._means(role, [*self._draft.declared, END, FAIL])
        message = (
            f'an edge cannot lead to "{role}"' if role.startswith("$") else f'role "{role}" is not defined'
        )
        if means_end(role):
            hint = f"the end is called {END}"
        elif role in (USER, SUSPEND):
            hint = "to ask a human, a role answers status: needs_input"
        else:
            known = [] if role.startswith("$") else self._draft.declared
            hint = self._findings.nearest(role, [*known, END, FAIL])
        self._findings.error(path, "unknown-role", message, hint)

    def _is_target(self, role: str) -> bool:
        return role in TARGETS or role in self._draft.declared

    def _means(self, name: str, known: list[str]) -> None:
        if (meant := self._findings.closest(name, known)) is not None:
            self._suggest[name] = meant
        else:
            self._unclear = True

    def _templates(self, source: str, edge: DraftEdge, edges: DraftEdges) -> None:
        prompt = "reason" if edge.role_path[-1] == "end" else "prompt"
        templates = [((*edge.path, prompt), edge.prompt), ((*edge.path, "location"), edge.location)]
        if edge.fan_out is not None:
            own = {branch.prompt_path: branch.prompt for branch in edge.fan_out.branches}
            templates += [(path, text) for path, text in own.items() if path != (*edge.path, prompt)]
        for path, template in templates:
            if template is None:
                continue
            from uwf_git.workflow.template import check_template, needs, variables_of

            key = path[-1]
            if (reason := check_template(template)) is not None:
                self._findings.error(path, "bad-template", f"{key} is not a template: {reason}")
                continue
            for variable in sorted(variables_of(template)):
                used = f"{key} uses {{{{ {'.'.join(variable)} }}}}, which"
                if not self._has_variable(source, edge, variable):
                    self._unknown_variable(source, path, used, variable, edge)
                elif (absent := self._may_lack(source, edge, edges, variable)) and needs(template, absent):
                    self._findings.warning(
                        path,
                        "optional-variable",
                        f'{used} "{source}" may leave out: it prints nothing then',
                        f"make it required, or write {{% if {'.'.join(absent)} %}}…{{% endif %}} around it",
                    )

    def _unknown_variable(
        self, source: str, path: ValuePath, used: str, variable: tuple[str, ...], edge: DraftEdge
    ) -> None:
        status, items = edge.status, sorted(self._item_names(source, edge))
        known = [f"start.{item}" for item in _START_VARIABLES]
        if source == START:
            hint = self._findings.nearest(".".join(variable), [*known, "prompt"])
            message = f"{used} the start doesn't have: it prints nothing"
            self._findings.warning(path, "unknown-variable", message, hint)
            return
        if source in self._joins:
            message, hint = (
                f"{used} a join doesn't have",
                self._findings.nearest(variable[0], _JOIN_VARIABLES),
            )
            if variable[0] == "branches":
                message = f"{used} is nothing, as branches is a list"
                hint = "{% for branch in branches %}{{ branch.status }} {{ branch.output }}{% endfor %}"
            self._findings.error(path, "unknown-variable", message, hint)
            return
        answers = self._answers[source]
        fields = answers.fields(status)
        name, known = ".".join(variable), [*fields, BODY, *items, *known]
        listed = known if self._findings.closest(name, known) else [*fields, BODY, *items]
        hint = self._findings.nearest(name, listed)
        message = f'{used} the schema of "{source}" doesn\'t have'
        if status is not None and variable[0] not in fields and answers.has(variable, None):
            message = f'{used} "{source}" doesn\'t answer with status "{status}"'
        self._findings.error(path, "unknown-variable", message, hint)

    def _has_variable(self, source: str, edge: DraftEdge, variable: tuple[str, ...]) -> bool:
        known = (*_START_VARIABLES, *_START_OF_BRANCH)
        if not variable or (variable[0] == "start" and (len(variable) == 1 or variable[1] in known)):
            return True
        if self._is_of_issue(source, edge, variable):
            return True
        if variable[0] in self._item_names(source, edge):
            return True
        if source in self._joins:
            return variable[0] in _JOIN_VARIABLES and len(variable) == 1
        if source == START:
            return variable[0] == "prompt"
        answers = self._answers.get(source)
        # Without a schema that could be read, its own finding says enough.
        return variable == (BODY,) or answers is None or answers.has(variable, edge.status)

    def _is_of_issue(self, source: str, edge: DraftEdge, variable: tuple[str, ...]) -> bool:
        """Return whether a variable is of the issue that a thread may start with: a field of its name hides it."""
        if variable[0] != "issue" or (len(variable) > 1 and variable[1] not in ISSUE_FIELDS):
            return False
        answers = self._answers.get(source)
        return answers is None or not answers.has(variable[:1], edge.status)

    def _item_names(self, source: str, edge: DraftEdge) -> set[str]:
        """Return what an edge's templates have of an item: in a fan-out, and in its branches."""
        leaving = self._joins[source].source if source in self._joins else source
        forks = [
            self._draft.graph[body.source].edges[body.position] for body in self._within.get(leaving, ())
        ]
        fan_outs = [fork.fan_out for fork in (edge, *forks) if fork.fan_out is not None]
        return {name for out in fan_outs for name in (out.payload.get("name", "item"), "index")}

    def _may_lack(
        self, source: str, edge: DraftEdge, edges: DraftEdges, variable: tuple[str, ...]
    ) -> tuple[str, ...]:
        answers = self._answers.get(source)
        if answers is None or variable[:1] in ((), ("start",), (BODY,)):
            return ()
        if self._is_of_issue(source, edge, variable):
            return ()
        if variable[0] in self._item_names(source, edge):
            return ()
        named = [item.status for item in edges.edges if item.status is not None]
        return answers.may_lack(variable, edge.status, named if edges.by_status else None)

    def _by_condition(self, source: str, edges: DraftEdges) -> list[DraftEdge]:
        seen: set[str] = set()
        live: list[DraftEdge] = []
        fallback: DraftEdge | None = None
        for edge in edges.edges:
            if edge.condition is not None:
                self._condition(edge, edge.condition, source)
            if fallback is not None:
                self._findings.warning(
                    edge.path,
                    "never-taken",
                    f'"{source}": this edge comes after the fallback and is never taken',
                    "put the edge without a condition last",
                )
            elif edge.condition in seen:
                self._findings.warning(
                    edge.path,
                    "never-taken",
                    f'"{source}": condition "{edge.condition}" already has an edge above, so this is never taken',
                )
            else:
                live.append(edge)
            if edge.condition is None:
                fallback = fallback or edge
            else:
                seen.add(edge.condition)
        if fallback is None and edges.edges and edges.whole:
            self._findings.warning(
                edges.path,
                "no-fallback",
                f'"{source}": where no condition holds, a thread is stuck',
                "end the list with an edge without a condition",
            )
        return live

    def _condition(self, edge: DraftEdge, name: str, source: str) -> None:
        known = self._draft.conditions
        if name in known or "conditions" in self._draft.missing:
            self._used.setdefault(name, []).append(source)
            return
        path = (*edge.path, "condition")
        if is_expression(name):
            same = next(
                (condition for condition in known.values() if condition.expression.split() == name.split()),
                None,
            )
            meant = same.name if same is not None else None
            wrong = expression_hint(name) if check_expression(name) is not None else ""
            hint = (
                f'name it: condition: "{meant}"'
                if meant is not None
                else "put it under conditions:, as NAME: {expression: …}, and write condition: NAME"
            )
            message = f"condition is an expression ({one_line(name, 60)}), not the name of one"
            self._findings.error(
                path, "unknown-condition", message, "; ".join(item for item in (hint, wrong) if item)
            )
        else:
            meant = self._findings.closest(name, known)
            hint = self._findings.nearest(name, known) or "define it under conditions:"
            self._findings.error(path, "unknown-condition", f'condition "{name}" is not defined', hint)
        if meant is not None:
            self._used.setdefault(meant, []).append(source)
        else:
            self._unclear_condition = True

    def _by_status(self, source: str, edges: DraftEdges) -> list[DraftEdge]:
        if source == START:
            return self._start_by_status(edges)
        answers = self._answers.get(source)
        if answers is None or not answers.known:
            return edges.edges
        if not answers.statuses and not answers.free:
            self._without_status(source, edges)
            return edges.edges
        named = {edge.status for edge in edges.edges}
        live = [
            edge
            for edge in edges.edges
            if edge.status is None or self._can_come(source, edge, answers, named)
        ]
        if edges.whole and None not in named:
            for status in answers.statuses:
                if status not in named and status not in HUMAN:
                    self._findings.key_error(
                        edges.path,
                        "status-without-edge",
                        f'"{source}" can answer "{status}", which has no edge',
                        f"add {one_line(status, 40)}: …, or {DEFAULT_STATUS}: … for all others",
                    )
            if edges.edges and (answers.free or (answers.silent and answers.statuses)):
                what = "any text as its status" if answers.free else "without its status"
                self._findings.warning(
                    edges.path,
                    "no-fallback",
                    f'"{source}" can answer {what}, and there is no "{DEFAULT_STATUS}" edge',
                    f"add {DEFAULT_STATUS}: …"
                    if answers.free
                    else f"make the status required, or add {DEFAULT_STATUS}: …",
                )
        return live

    def _start_by_status(self, edges: DraftEdges) -> list[DraftEdge]:
        unknown = [edge for edge in edges.edges if edge.status not in (None, RESUME)]
        for edge in unknown:
            self._findings.key_error(
                edge.path,
                "edge-without-status",
                f'{START} leads on by {NEW} and {RESUME}, and "{edge.status}" never comes',
                self._findings.nearest(str(edge.status), (NEW, RESUME)) or f"write {NEW}: …",
            )
        if edges.edges and edges.whole and not unknown and all(edge.status for edge in edges.edges):
            self._findings.key_error(
                edges.path, "no-start", f"{START} has no {NEW}, so no thread can begin", f"add {NEW}: …"
            )
        return edges.edges

    def _without_status(self, source: str, edges: DraftEdges) -> None:
        edge = next(
            (edge for edge in edges.edges if edge.status is not None and edge.status not in HUMAN), None
        )
        if edge is not None:
            self._findings.key_error(
                edge.path,
                "edge-without-status",
                f'"{source}" is routed by status, but its schema has none',
                "add $status: {enum: […]} to its properties, and to required",
            )

    def _can_come(self, source: str, edge: DraftEdge, answers: Answers, named: set[str | None]) -> bool:
        """Return whether an output may have an edge's status. A misspelt one is reported, and stands for it."""
        status = edge.status
        if status in HUMAN:
            self._findings.warning(
                edge.path,
                "never-taken",
                f'"{source}": "{status}" asks a human, so this edge is never taken',
                "after the answer the same role goes again",
            )
            return False
        if status in answers.statuses or answers.free:
            return True
        meant = self._findings.closest(str(status), [item for item in answers.statuses if item not in named])
        hint = self._findings.nearest(str(status), answers.statuses)
        message = f'"{source}" never answers "{status}"'
        self._findings.key_error(edge.path, "edge-without-status", message, hint)
        if meant is None:
            return False
        named.add(meant)
        return True

    def _conditions(self) -> None:
        for name, condition in self._draft.conditions.items():
            path = (*condition.path, "expression")
            if condition.expression:
                if (reason := check_expression(condition.expression)) is not None:
                    hint = expression_hint(condition.expression)
                    self._findings.error(path, "bad-condition", f'condition "{name}": {reason}', hint)
                else:
                    self._roles_in(name, condition.expression, path)
                    self._doubts_of(name, condition.expression, path)
            if name not in self._used and not self._unclear_condition:
                self._findings.warning(
                    condition.path, "unused-condition", f'condition "{name}" is used by no edge', "remove it"
                )

    def _roles_in(self, name: str, expression: str, path: tuple[str | int, ...]) -> None:
        for match in _ROLE_LITERAL.finditer(expression):
            role = match.group(1) if match.group(1) is not None else match.group(2)
            if role in (FORK, JOIN) and self._joins:
                continue
            if role != USER and role not in self._draft.declared:
                self._findings.warning(
                    path,
                    "unknown-role",
                    f'condition "{name}" looks for role "{role}", which is not defined',
                    self._findings.nearest(role, self._draft.declared),
                )

    def _doubts_of(self, name: str, expression: str, path: tuple[str | int, ...]) -> None:
        from uwf_git.workflow.type_check import doubts

        schemas = {role: answers.schema for role, answers in self._answers.items()}
        sources = [self._suggest.get(source, source) for source in self._used.get(name, ())]
        for code, message, hint in doubts(expression, schemas, self._draft.declared, sources, self._endings):
            self._findings.warning(path, code, f'condition "{name}": {message}', hint)

    def _graph(self, live: dict[str, set[str]]) -> None:
        graph = self._draft.graph
        if not graph:
            return
        if START not in graph and START not in self._suggest.values():
            self._findings.key_error(
                ("graph",), "no-start", f"graph has no {START}", f"add {START}: [{{role: <the first role>}}]"
            )
        for role in self._draft.roles.values():
            meant = any(
                role.name == self._suggest.get(entry) for body in self._bodies for entry in body.entries
            )
            if role.name in live or role.name in graph:
                continue
            if not (self._unclear or meant or self._draft.unread_fan_out):
                self._findings.key_error(
                    role.path,
                    "stuck-role",
                    f'role "{role.name}" has no edges in graph, so a thread would be stuck',
                    f"add to graph: {role.name}: [{{role: {END}}}]",
                )
        if START not in live or not all(edges.whole for edges in graph.values()):
            return  # an unreadable edge could be the missing one
        reached = reachable(live)
        ending = can_end(live)
        for role in self._draft.roles.values():
            if role.name not in reached:
                if self._unclear:
                    continue
                self._findings.key_error(
                    role.path,
                    "unreachable-role",
                    f'role "{role.name}" is never reached from {START}',
                    "add an edge to it, or remove it",
                )
            elif role.name in graph and graph[role.name].edges and role.name not in ending:
                self._findings.key_error(
                    graph[role.name].path,
                    "no-way-to-end",
                    f'from "{role.name}" there is no way to {END}',
                    f"give one of its edges role: {END}",
                )
