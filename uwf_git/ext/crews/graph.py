"""Graphs of a .bmad package, with their nodes' documents. The graph alone defines edges; a node's document
may repeat them for its reader, and adds other fields."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from uwf_git.ext.crews import forms, jsonlogic
from uwf_git.ext.crews.draft import EdgeDraft, GraphDraft, NodeDraft, PackageFinding, named_edge
from uwf_git.ext.crews.package import Package, mounted
from uwf_git.ext.crews.state import FIELDS
from uwf_git.plugin import (
    PACKAGE_MOUNT,
    Invalid,
    InvalidYaml,
    ValuePath,
    name_problem,
    one_line,
)

NODE_TYPES = ("step", "decision", "merge", "end")
MOST_FINDINGS = 500

ID = forms.matching(
    r"[A-Za-z0-9][A-Za-z0-9._:-]*", "an id", "letters, digits and . _ : -, beginning with a letter or digit"
)
VERSION = forms.matching(r"1\.1(\.\d+)?", "a version that is read here", "1.1 is", "unsupported-version")
_NODE = forms.object_of(
    {"id": ID, "type": forms.one_of(*NODE_TYPES, "subworkflow"), "file": forms.text},
    {
        "title": forms.text,
        "description": forms.text,
        "agentId": forms.text,
        "inputs": forms.texts,
        "outputs": forms.texts,
    },
)
_EDGE = forms.object_of(
    {"from": ID, "to": ID, "label": forms.text},
    {
        "id": forms.text,
        "isDefault": forms.flag,
        "conditionText": forms.text,
        "conditionExpr": forms.anything,
    },
)
_WHOLE_GRAPH = forms.object_of(
    {
        "schemaVersion": VERSION,
        "entryNodeId": ID,
        "nodes": forms.list_of(_NODE, at_least=1),
        "edges": forms.list_of(_EDGE),
    },
    {"metadata": forms.mapping},
)
_TRANSITION = forms.object_of(
    {"to": forms.text, "label": forms.text}, {"isDefault": forms.flag, "conditionText": forms.text}
)
_STEP = forms.object_of(
    {"schemaVersion": VERSION, "nodeId": ID, "type": forms.one_of(*NODE_TYPES, "subworkflow")},
    {
        "title": forms.text,
        "agentId": forms.text,
        "inputs": forms.texts,
        "outputs": forms.texts,
        "setsVariables": forms.texts,
        "transitions": forms.list_of(_TRANSITION),
    },
    is_open=True,
)
_STATE = forms.object_of({"schemaVersion": VERSION, "workflowType": forms.text}, FIELDS, is_open=True)


class Files:
    """A package's files, each read once."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._parts: dict[str, forms.Part | None] = {}
        self._lost: list[PackageFinding] = []

    def __contains__(self, path: str) -> bool:
        return path in self._package.files

    def part(self, path: str) -> forms.Part | None:
        """Return a file. Unreadable ones are reported."""
        if path not in self._parts:
            data = self._package.files.get(path)
            self._parts[path] = None if data is None else self._read(path, data)
            if data is None:
                self._lost.append(PackageFinding(path, 0, 0, "missing-file", "the package has no such file"))
        return self._parts[path]

    def named(self, part: forms.Part, path: ValuePath, written: str, folder: str = "") -> str | None:
        """Return the file named at a place, possibly relative to `folder`; None with a finding if missing."""
        try:
            named = mounted(written)
            beside = mounted(posixpath.join(folder, written)) if folder else named
        except Invalid as error:
            part.findings.error(path, "bad-path", f"{forms.where(path)}: {error.message}", error.hint)
            return None
        for candidate in (named, beside):
            if (inside := candidate.removeprefix(f"{PACKAGE_MOUNT}/")) in self._package.files:
                return inside
        shown = one_line(written, 80)
        hint = part.findings.nearest(named.removeprefix(f"{PACKAGE_MOUNT}/"), self._package.files)
        part.findings.error(
            path, "missing-file", f"{forms.where(path)}: the package has no file {shown}", hint
        )
        return None

    def _read(self, path: str, data: bytes) -> forms.Part | None:
        is_json = path.endswith(".json")
        try:
            return forms.json_part(path, data) if is_json else forms.markdown_part(path, data)
        except InvalidYaml as error:
            code = "bad-json" if is_json else "bad-frontmatter"
            self._lost.append(PackageFinding(path, *error.mark[:2], code, error.problem, error.hint))
        except Invalid as error:
            self._lost.append(PackageFinding(path, 0, 0, "too-large", error.message, error.hint))
        return None

    def findings(self) -> list[PackageFinding]:
        """Return all findings in reading order, preferring errors if there are too many."""
        findings = [*self._lost, *self._found()]
        findings.sort(key=lambda finding: finding.severity != "error")
        kept = set(findings[:MOST_FINDINGS])
        order = {path: place for place, path in enumerate(self._parts)}
        return sorted(kept, key=lambda finding: (order.get(finding.path, -1), *finding[:3]))

    def _found(self) -> Iterator[PackageFinding]:
        for part in filter(None, self._parts.values()):
            for finding in part.findings.sorted():
                place = (part.path, finding.line, finding.column)
                yield PackageFinding(*place, finding.code, finding.message, finding.hint, finding.severity)


class Graphs:
    """Reads a package's graphs."""

    def __init__(self, files: Files, agents: Collection[str]) -> None:
        self._files = files
        self._agents = agents

    def read(self, name: str, document: str, path: str, entry: Mapping[str, Any]) -> GraphDraft | None:
        """Return a workflow, None if unreadable. `said` is the manifest's entry."""
        start = self._files.part(document)
        state = _STATE(start, (), start.document.data) if start else None
        if start and state is not None:
            for key in ("stepsCompleted", "currentNodeId"):
                if key not in start.document.data:
                    start.findings.error((), "missing-key", f"it has no {key}", f'add "{key}"')
            if state.get("stepsCompleted") or state.get("decisionLog"):
                start.findings.warning(
                    ("stepsCompleted",), "state-ignored", "a run begins anew, with no steps done"
                )
        part = self._files.part(path)
        data = _WHOLE_GRAPH(part, (), part.document.data) if part else None
        if part is None or data is None:
            return None
        listed = data.get("nodes", [])
        report_twins(part, [((*place, "id"), node.get("id", "")) for place, node in listed], "node")
        nodes: dict[str, NodeDraft] = {}
        for place, node in listed:
            if "id" in node and node["id"] not in nodes:
                nodes[node["id"]] = self._node(part, place, node)
        edges = tuple(self._edges(part, data.get("edges", []), nodes))
        first = data.get("entryNodeId", "")
        preset = (state or {}).get("currentNodeId", first)
        if start and preset != first:
            message = f'a run begins at entryNodeId, not at "{one_line(preset, 60)}"'
            start.findings.warning(("currentNodeId",), "state-ignored", message)
        if first and first not in nodes:
            part.findings.error(
                ("entryNodeId",),
                "unknown-node",
                f'there is no node "{first}"',
                part.findings.nearest(first, nodes),
            )
        if not any(finding.severity == "error" for finding in part.findings.sorted()):
            # If a node or edge is wrong, consequent problems only distract.
            _check_ways(part, listed, first, nodes, edges)
        variables = (state or {}).get("variables", {})
        title = entry.get("displayName") or posixpath.basename(posixpath.dirname(document)) or name
        return GraphDraft(
            name,
            title,
            entry.get("description", ""),
            tuple(entry.get("tags", ())),
            document,
            path,
            first,
            nodes,
            edges,
            variables,
        )

    def _node(self, part: forms.Part, place: ValuePath, node: Mapping[str, Any]) -> NodeDraft:
        name, kind = node["id"], node.get("type", "step")
        if problem := name_problem(name.replace(":", ".")):
            part.findings.error((*place, "id"), "bad-name", f'node id "{one_line(name)}" {problem}')
        if kind == "subworkflow":
            part.findings.error(
                (*place, "type"),
                "unsupported-node",
                f'node "{name}": subworkflow is not part of v1.1',
                "take its nodes into this graph",
            )
        file = None
        if "file" in node:
            file = self._files.named(part, (*place, "file"), node["file"], posixpath.dirname(part.path))
        step = self._files.part(file) if file else None
        frontmatter = (_STEP(step, (), step.document.data) or {}) if step else {}
        if step and frontmatter.get("nodeId", name) != name:
            step.findings.error(
                ("nodeId",),
                "other-node",
                f'it is of node "{one_line(frontmatter["nodeId"], 60)}", but node "{name}" names it as its file',
                f"see {one_line(part.path, 80)}:{part.document.mark(place).line}",
            )
        for key in ("type", "agentId"):
            if step and frontmatter.get(key) and node.get(key) and frontmatter[key] != node[key]:
                step.findings.warning((key,), "differs", f"{key} differs from the graph, which counts")
        agent = node.get("agentId") or frontmatter.get("agentId", "")
        if agent and self._agents and agent not in self._agents:
            where, at = (part, (*place, "agentId")) if node.get("agentId") else (step or part, ("agentId",))
            message = f'node "{name}": there is no agent "{one_line(agent, 60)}"'
            where.findings.error(at, "UnknownPersona", message, where.findings.nearest(agent, self._agents))
        return NodeDraft(
            name,
            kind,
            file or node.get("file", ""),
            step.body if step else "",
            node.get("title") or frontmatter.get("title", ""),
            node.get("description", ""),
            agent,
            node.get("inputs") or frontmatter.get("inputs", ()),
            node.get("outputs") or frontmatter.get("outputs", ()),
            frontmatter.get("setsVariables", ()),
        )

    def _edges(
        self, part: forms.Part, listed: list[tuple[ValuePath, dict[str, Any]]], nodes: Mapping[str, NodeDraft]
    ) -> Iterator[EdgeDraft]:
        for place, edge in listed:
            for key in ("from", "to"):
                if key in edge and edge[key] not in nodes:
                    message = f'there is no node "{one_line(edge[key], 60)}"'
                    hint = part.findings.nearest(edge[key], nodes)
                    part.findings.error((*place, key), "unknown-node", message, hint)
            source, target, label = (edge.get(key, "") for key in ("from", "to", "label"))
            if source not in nodes or target not in nodes or not label:
                continue
            if nodes[source].type == "end":
                message = f'node "{source}" is an end, so nothing follows it'
                part.findings.error(
                    place, "edge-from-end", message, "remove the edge, or make the node a step"
                )
            expression = edge.get("conditionExpr")
            if expression in ({}, []):
                expression = None
            is_default = edge.get("isDefault", False)
            named = named_edge(source, target, label)
            if expression is not None and is_default:
                message = f"{named} is the default, so its conditionExpr decides nothing"
                hint = "take the conditionExpr or the isDefault away"
                part.findings.warning((*place, "conditionExpr"), "default-condition", message, hint)
                expression = None
            elif expression is not None:
                self._check_expression(part, (*place, "conditionExpr"), named, expression)
            yield EdgeDraft(
                source,
                target,
                label,
                is_default,
                edge.get("conditionText", ""),
                expression,
            )

    def _check_expression(self, part: forms.Part, place: ValuePath, named: str, expression: Any) -> None:
        try:
            jsonlogic.translated(expression)
        except jsonlogic.Untranslatable as error:
            message = f"{named}: {error.message}"
            part.findings.error((*place, *error.path), "untranslatable", message, error.hint)


def _check_ways(
    part: forms.Part,
    listed: list[tuple[ValuePath, dict[str, Any]]],
    first: str,
    nodes: Mapping[str, NodeDraft],
    edges: tuple[EdgeDraft, ...],
) -> None:
    places = {node.get("id", ""): place for place, node in reversed(listed)}
    leaving: dict[str, list[EdgeDraft]] = {name: [] for name in nodes}
    for edge in edges:
        leaving[edge.source].append(edge)
    for name, ways in leaving.items():
        if sum(edge.is_default for edge in ways) > 1:
            message = f'node "{name}" has several default edges'
            part.findings.error(places[name], "several-defaults", message, "keep isDefault at one of them")
        labels = Counter(edge.label for edge in ways if edge.expression is None)
        for label in (label for label, number in labels.items() if number > 1):
            message = f'node "{name}" has several edges labelled "{one_line(label, 60)}"'
            part.findings.error(places[name], "duplicate-label", message, "the decision names one of them")
        if not ways and nodes[name].type != "end":
            message = f'no edge leaves node "{name}", which is not an end'
            part.findings.warning(places[name], "dead-end", message, "give it an edge, or the type end")
        if ways and all(edge.expression is not None for edge in ways):
            message = f'node "{name}" has conditions alone: where none holds, the run cannot continue'
            part.findings.warning(places[name], "no-default", message, "mark one edge isDefault")
    reached = {first}
    waiting = [first] if first in leaving else []
    while waiting:
        for edge in leaving[waiting.pop()]:
            if edge.target not in reached:
                reached.add(edge.target)
                waiting.append(edge.target)
    for name in nodes:
        if name not in reached and first in nodes:
            part.findings.warning(places[name], "unreachable", f'no way leads to node "{name}"')


def report_twins(part: forms.Part, named: list[tuple[ValuePath, str]], what: str) -> None:
    seen: dict[str, int] = {}
    for path, name in named:
        line = part.document.mark(path).line
        if name in seen:
            message = f'there is a {what} "{one_line(name, 60)}" in line {seen[name]} already'
            part.findings.error(path, "duplicate-id", message, "rename one of them")
        elif name:
            seen[name] = line
