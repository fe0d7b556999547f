"""A package in the .bmad format, v1.1, read into a draft: every file checked, every slip told with its place.

A package comes in several files that speak of each other. The graph alone says which node follows which; a step's own
frontmatter may repeat it for its reader, and gives what the graph leaves out of a node. The menus are made plain here:
whatever names a workflow becomes its id, whatever names a file gets its mount.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from uwf_git.crews import fields, jsonlogic
from uwf_git.crews.draft import CrewDraft, EdgeDraft, GraphDraft, InvalidPackage, NodeDraft, PackageFinding
from uwf_git.crews.fields import Part
from uwf_git.crews.fields import fields as object_of
from uwf_git.crews.package import MANIFESTS, PACKAGE, PROJECT, Package, mounted
from uwf_git.errors import Invalid
from uwf_git.text import nearest, one_line
from uwf_git.values.documents import ValuePath
from uwf_git.values.ids import name_problem
from uwf_git.values.personas import Does, Handler, Member, MenuItem, Persona
from uwf_git.values.types import BMAD

VERSIONS = r"1\.1(\.\d+)?"
NODE_TYPES = ("step", "decision", "merge", "end")
CLASSIC = (".yaml", ".yml", ".xml")
"""How files of the classic form of workflows end, which nothing here carries out."""
BUILTIN_ACTIONS = ("menu.show", "agent.dismiss", "run.resume")
MOST_FINDINGS = 500
_GRAPH = "workflow.graph.json"

_ID = fields.matching(
    r"[A-Za-z0-9][A-Za-z0-9._:-]*", "an id", "letters, digits and . _ : -, beginning with a letter or digit"
)
_VERSION = fields.matching(VERSIONS, "a version that is read here", "1.1 is", "unsupported-version")
_MANIFEST = object_of(
    {
        "schemaVersion": _VERSION,
        "name": fields.text,
        "version": fields.matching(
            r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", "a SemVer version", "such as 1.0.0"
        ),
        "entry": object_of(
            {"workflow": fields.text, "graph": fields.text, "agents": fields.text}, {"assetsDir": fields.text}
        ),
    },
    {
        "description": fields.text,
        "author": fields.text,
        "createdAt": fields.text,
        "workflows": fields.list_of(
            object_of(
                {"id": _ID, "workflow": fields.text, "graph": fields.text},
                {"displayName": fields.text, "description": fields.text, "tags": fields.texts},
            )
        ),
        "runtime": object_of({}, {"minRuntimeVersion": fields.text, "requiresNetwork": fields.flag}),
        "integrity": object_of({}, {"sha256": fields.matching(r"[0-9a-fA-F]{64}", "a SHA-256 in hex")}),
    },
)
_NODE = object_of(
    {"id": _ID, "type": fields.one_of(*NODE_TYPES, "subworkflow"), "file": fields.text},
    {
        "title": fields.text,
        "description": fields.text,
        "agentId": fields.text,
        "inputs": fields.texts,
        "outputs": fields.texts,
    },
)
_EDGE = object_of(
    {"from": _ID, "to": _ID, "label": fields.text},
    {
        "id": fields.text,
        "isDefault": fields.flag,
        "conditionText": fields.text,
        "conditionExpr": fields.anything,
    },
)
_WHOLE_GRAPH = object_of(
    {
        "schemaVersion": _VERSION,
        "entryNodeId": _ID,
        "nodes": fields.list_of(_NODE, at_least=1),
        "edges": fields.list_of(_EDGE),
    },
    {"metadata": fields.mapping},
)
_TRANSITION = object_of(
    {"to": fields.text, "label": fields.text}, {"isDefault": fields.flag, "conditionText": fields.text}
)
_STEP = object_of(
    {"schemaVersion": _VERSION, "nodeId": _ID, "type": fields.one_of(*NODE_TYPES, "subworkflow")},
    {
        "title": fields.text,
        "agentId": fields.text,
        "inputs": fields.texts,
        "outputs": fields.texts,
        "setsVariables": fields.texts,
        "transitions": fields.list_of(_TRANSITION),
    },
    is_open=True,
)
STATE = object_of(
    {"schemaVersion": _VERSION, "workflowType": fields.text},
    {
        **dict.fromkeys(
            ("runId", "project_name", "user_name", "date", "updatedAt", "currentNodeId"), fields.text
        ),
        "stepsCompleted": fields.texts,
        "variables": fields.mapping,
        "decisionLog": fields.list_of(
            object_of(
                {"from": fields.text, "to": fields.text, "label": fields.text},
                {"reason": fields.text, "decidedAt": fields.text},
            )
        ),
        "artifacts": fields.texts,
    },
    is_open=True,
)
"""The frontmatter of a workflow's document, which is also how a run's state is written."""
_AGENT = object_of(
    {
        "id": _ID,
        "metadata": object_of(
            {"name": fields.text, "title": fields.text, "icon": fields.text},
            {"module": fields.text, "description": fields.text, "sourceId": fields.text},
        ),
        "persona": object_of(
            {
                "role": fields.text,
                "identity": fields.text,
                "communication_style": fields.text,
                "principles": lambda part, path, value: (
                    fields.texts(part, path, value)
                    if isinstance(value, list)
                    else _lines(fields.text(part, path, value))
                ),
            },
            {},
        ),
    },
    {
        "critical_actions": fields.texts,
        "prompts": fields.list_of(
            object_of({"id": fields.text, "content": fields.text}, {"description": fields.text})
        ),
        "menu": fields.list_of(
            object_of(
                {"description": fields.text},
                {
                    **dict.fromkeys(("trigger", "cmd", "workflow", "exec", "action", "data"), fields.text),
                    "validate-workflow": fields.text,
                    "ide-only": fields.flag,
                    "web-only": fields.flag,
                    "triggers": fields.list_of(
                        object_of(
                            {"type": fields.text, "match": fields.text},
                            dict.fromkeys(("workflow", "exec", "action", "data"), fields.text),
                            is_open=True,
                        )
                    ),
                },
                is_open=True,
            )
        ),
        "systemPrompt": fields.text,
        "userPromptTemplate": fields.text,
        "discussion": fields.flag,
        "webskip": fields.flag,
        "conversational_knowledge": fields.list_of(fields.mapping),
        "tools": object_of(
            {},
            {
                "fs": object_of(
                    {}, {"enabled": fields.flag, "maxReadBytes": fields.count, "maxWriteBytes": fields.count}
                ),
                "mcp": object_of({}, {"enabled": fields.flag, "allowedServers": fields.texts}),
            },
        ),
    },
)
_AGENTS = object_of({"schemaVersion": _VERSION, "agents": fields.list_of(_AGENT, at_least=1)}, {})


def read_bmad(package: Package) -> CrewDraft:
    """The crew of a package that has a bmad.json. Raises InvalidPackage with all that is wrong with it; `warnings` of
    the draft is what may be a slip."""
    return _Reader(package).crew()


class _Reader:
    """Reads one package."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._parts: dict[str, Part | None] = {}
        self._lost: list[PackageFinding] = []
        self._workflows: dict[str, GraphDraft | None] = {}
        self._ids: dict[str, str] = {}

    def crew(self) -> CrewDraft:
        part = self._part(MANIFESTS[BMAD])
        data = _MANIFEST(part, (), part.document.data) if part else None
        if part is None or data is None or "schemaVersion" not in data:
            # Of another version every other field would be wrong too.
            raise InvalidPackage(self._package.name, self._unsupported(part))
        entry = data.get("entry", {})
        agents, agents_part = self._agents(part, entry)
        ids = {agent["id"] for _, agent in agents if "id" in agent}
        self._declared(part, data, ids)
        members = tuple(self._member(agents_part, path, agent, ids) for path, agent in agents if agents_part)
        findings = self._findings()
        if any(each.severity == "error" for each in findings):
            raise InvalidPackage(self._package.name, findings)
        name = self._name(data["name"])
        workflows = tuple(graph for graph in self._workflows.values() if graph)
        return CrewDraft(
            name, data["version"], data.get("description", ""), BMAD, members, workflows, tuple(findings)
        )

    def _unsupported(self, part: Part | None) -> list[PackageFinding]:
        """Why nothing more of it is read: the manifest's own findings, those about its version alone where it has
        another one."""
        found = [*self._lost, *(part.found() if part else ())]
        return [each for each in found if each.code == "unsupported-version"] or found

    def _findings(self) -> list[PackageFinding]:
        """All of them, file by file in the order of reading, the errors kept where there are too many."""
        found = [*self._lost, *(each for part in self._parts.values() if part for each in part.found())]
        found.sort(key=lambda each: each.severity != "error")
        kept = set(found[:MOST_FINDINGS])
        order = {path: place for place, path in enumerate(self._parts)}
        return sorted(kept, key=lambda each: (order.get(each.path, -1), each.path, each.line, each.column))

    def _name(self, said: str) -> str:
        """What the crew is called here: as its package calls it, with a dash for what no name may hold."""
        if not name_problem(said):
            return said
        made = (
            re.sub(r"[-.]{2,}", "-", re.sub(r"[^\w.-]+", "-", said)).strip("-.")[:80].casefold().strip("-.")
        )
        return made.removesuffix(".lock") if not name_problem(made.removesuffix(".lock")) else "crew"

    def _part(self, path: str) -> Part | None:
        """A file of the package, read once. What can't be read is noted."""
        if path not in self._parts:
            data = self._package.files.get(path)
            if data is None:
                read: Part | PackageFinding = PackageFinding(
                    path, 0, 0, "missing-file", "the package has no such file"
                )
            else:
                read = (fields.json_part if path.endswith(".json") else fields.markdown_part)(path, data)
            if isinstance(read, PackageFinding):
                self._lost.append(read)
            self._parts[path] = read if isinstance(read, Part) else None
        return self._parts[path]

    def _path(self, part: Part, path: ValuePath, said: str, folder: str = "") -> str | None:
        """The file of the package that is named at a place, which may also count from `folder`; None, with a finding,
        where there is none."""
        try:
            named = mounted(said)
            beside = mounted(posixpath.join(folder, said)) if folder else named
        except Invalid as error:
            part.findings.error(path, "bad-path", f"{fields.where(path)}: {error.message}", error.hint)
            return None
        for each in (named, beside):
            if (inside := each.removeprefix(f"{PACKAGE}/")) in self._package.files:
                return inside
        shown = one_line(said, 80)
        hint = part.findings.nearest(named.removeprefix(f"{PACKAGE}/"), self._package.files)
        part.findings.error(
            path, "missing-file", f"{fields.where(path)}: the package has no file {shown}", hint
        )
        return None

    def _agents(
        self, manifest: Part, entry: Mapping[str, Any]
    ) -> tuple[list[tuple[ValuePath, dict[str, Any]]], Part | None]:
        """The agents with their places, and the file they are in."""
        if "agents" not in entry:
            return [], None
        path = self._path(manifest, ("entry", "agents"), entry["agents"])
        part = self._part(path) if path else None
        data = _AGENTS(part, (), part.document.data) if part else None
        if part is None or not data:
            return [], None
        agents: list[tuple[ValuePath, dict[str, Any]]] = data.get("agents", [])
        _report_twins(part, [((*path, "id"), agent.get("id", "")) for path, agent in agents], "agent")
        return agents, part

    def _declared(self, manifest: Part, data: Mapping[str, Any], agents: set[str]) -> None:
        """Reads the workflows that the manifest names, the main one first."""
        listed: list[tuple[ValuePath, dict[str, Any]]] = data.get("workflows", [])
        _report_twins(manifest, [((*path, "id"), each.get("id", "")) for path, each in listed], "workflow")
        entry = data.get("entry", {})
        main = self._path(manifest, ("entry", "workflow"), entry["workflow"]) if "workflow" in entry else None
        graph = self._path(manifest, ("entry", "graph"), entry["graph"]) if "graph" in entry else None
        found: list[tuple[str, str, str, dict[str, Any]]] = []
        for path, each in listed:
            document = (
                self._path(manifest, (*path, "workflow"), each["workflow"]) if "workflow" in each else None
            )
            its_graph = self._path(manifest, (*path, "graph"), each["graph"]) if "graph" in each else None
            if document and its_graph and "id" in each:
                found.append((each["id"], document, its_graph, each))
        taken = {name for name, *_ in found}
        if main and graph and main not in (document for _, document, *_ in found):
            said = {"displayName": data.get("name", ""), "description": data.get("description", "")}
            found.insert(0, (_id_of(main, "main", taken), main, graph, said))
        for name, document, its_graph, said in sorted(found, key=lambda each: each[1] != main):
            self._ids.setdefault(document, name)
            self._workflows[name] = self._graph(name, document, its_graph, said, agents)

    def _workflow_of(self, document: str, agents: set[str]) -> str | None:
        """The id of the workflow that begins with that document. One that the manifest doesn't name has its graph
        beside it; without a graph it is none."""
        if document not in self._ids:
            graph = posixpath.join(posixpath.dirname(document), _GRAPH)
            if graph not in self._package.files:
                return None
            name = self._ids[document] = _id_of(
                document, posixpath.splitext(document)[0], set(self._workflows)
            )
            self._workflows[name] = self._graph(name, document, graph, {}, agents)
        return self._ids[document]

    def _graph(
        self, name: str, document: str, path: str, said: Mapping[str, Any], agents: set[str]
    ) -> GraphDraft | None:
        start = self._part(document)
        state = STATE(start, (), start.document.data) if start else None
        if start and state is not None:
            for key in ("stepsCompleted", "currentNodeId"):
                if key not in start.document.data:
                    start.findings.error((), "missing-key", f"it has no {key}", f'add "{key}"')
            if state.get("stepsCompleted") or state.get("decisionLog"):
                start.findings.warning(
                    ("stepsCompleted",), "state-ignored", "a run begins anew, with no steps done"
                )
        part = self._part(path)
        data = _WHOLE_GRAPH(part, (), part.document.data) if part else None
        if part is None or data is None:
            return None
        listed = data.get("nodes", [])
        _report_twins(part, [((*place, "id"), node.get("id", "")) for place, node in listed], "node")
        nodes: dict[str, NodeDraft] = {}
        for place, node in listed:
            if "id" in node and node["id"] not in nodes:
                nodes[node["id"]] = self._node(part, place, node, agents)
        edges = tuple(self._edges(part, data.get("edges", []), nodes))
        first = data.get("entryNodeId", "")
        if first and first not in nodes:
            part.findings.error(
                ("entryNodeId",),
                "unknown-node",
                f'there is no node "{first}"',
                part.findings.nearest(first, nodes),
            )
        if not any(each.severity == "error" for each in part.findings.sorted()):
            # Where a node or an edge is wrong, what follows from it only distracts.
            _check_ways(part, listed, first, nodes, edges)
        self._compare(nodes, edges)
        variables = (state or {}).get("variables", {})
        title = said.get("displayName") or posixpath.basename(posixpath.dirname(document)) or name
        return GraphDraft(
            name,
            title,
            said.get("description", ""),
            tuple(said.get("tags", ())),
            document,
            path,
            first,
            nodes,
            edges,
            variables,
        )

    def _node(self, part: Part, place: ValuePath, node: Mapping[str, Any], agents: set[str]) -> NodeDraft:
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
            file = self._path(part, (*place, "file"), node["file"], posixpath.dirname(part.path))
        step = self._part(file) if file else None
        said = (_STEP(step, (), step.document.data) or {}) if step else {}
        if step and said.get("nodeId", name) != name:
            step.findings.error(
                ("nodeId",),
                "other-node",
                f'it is of node "{one_line(said["nodeId"], 60)}", but node "{name}" names it as its file',
                f"see {one_line(part.path, 80)}:{part.document.mark(place).line}",
            )
        for key in ("type", "agentId"):
            if step and said.get(key) and node.get(key) and said[key] != node[key]:
                step.findings.warning((key,), "differs", f"{key} differs from the graph, which counts")
        agent = node.get("agentId") or said.get("agentId", "")
        if agent and agents and agent not in agents:
            where, at = (part, (*place, "agentId")) if node.get("agentId") else (step or part, ("agentId",))
            message = f'node "{name}": there is no agent "{one_line(agent, 60)}"'
            where.findings.error(at, "unknown-agent", message, where.findings.nearest(agent, agents))
        if step and not step.body.strip() and kind != "end":
            step.findings.warning((), "empty-step", "it has no text below its frontmatter")
        return NodeDraft(
            name,
            kind,
            file or node.get("file", ""),
            step.body if step else "",
            node.get("title") or said.get("title", ""),
            node.get("description", ""),
            agent,
            node.get("inputs") or said.get("inputs", ()),
            node.get("outputs") or said.get("outputs", ()),
        )

    def _edges(
        self, part: Part, listed: list[tuple[ValuePath, dict[str, Any]]], nodes: Mapping[str, NodeDraft]
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
                    place, "edge-from-end", message, "take the edge away, or make the node a step"
                )
            expression = edge.get("conditionExpr")
            if expression in ({}, []):
                expression = None
            if expression is not None:
                self._check_expression(part, place, edge, expression)
            yield EdgeDraft(
                source,
                target,
                label,
                edge.get("isDefault", False),
                edge.get("conditionText", ""),
                expression,
                part.document.mark(place).line,
            )

    def _check_expression(
        self, part: Part, place: ValuePath, edge: Mapping[str, Any], expression: Any
    ) -> None:
        try:
            jsonlogic.translated(expression)
        except jsonlogic.Untranslatable as error:
            what = f'edge {edge.get("from")} → {edge.get("to")} ("{one_line(edge.get("label", ""), 40)}")'
            below = (*place, "conditionExpr", *error.path)
            part.findings.error(below, "untranslatable", f"{what}: {error.message}", error.hint)

    def _compare(self, nodes: Mapping[str, NodeDraft], edges: tuple[EdgeDraft, ...]) -> None:
        """Warns where a step's own frontmatter tells other ways on than the graph, whose ways are taken."""
        ways: dict[str, set[tuple[str, str]]] = {}
        for edge in edges:
            ways.setdefault(edge.source, set()).add((edge.target, edge.label))
        for name, node in nodes.items():
            step = self._parts.get(node.file)
            told = step.document.data.get("transitions") if step else None
            if step is None or not isinstance(told, list) or not told:
                continue
            pairs = {(each.get("to"), each.get("label")) for each in told if isinstance(each, dict)}
            if pairs != ways.get(name, set()):
                step.findings.warning(
                    ("transitions",), "differs", "transitions differ from the graph, which counts"
                )

    def _member(self, part: Part, path: ValuePath, agent: Mapping[str, Any], agents: set[str]) -> Member:
        told, character = agent.get("metadata", {}), agent.get("persona", {})
        listed = agent.get("prompts", [])
        _report_twins(part, [((*place, "id"), each.get("id", "")) for place, each in listed], "prompt")
        prompts = {each["id"]: each["content"] for _, each in listed if "id" in each and "content" in each}
        persona = Persona(
            agent.get("id", ""),
            told.get("name", ""),
            told.get("title", ""),
            told.get("icon", ""),
            told.get("description", ""),
            character.get("role", ""),
            character.get("identity", ""),
            character.get("communication_style", ""),
            tuple(character.get("principles", ())),
            agent.get("critical_actions", ()),
            agent.get("systemPrompt", ""),
            _tools(agent["tools"]) if "tools" in agent else None,
        )
        menu = tuple(self._item(part, place, item, prompts, agents) for place, item in agent.get("menu", []))
        return Member(persona, menu, prompts)

    def _item(
        self,
        part: Part,
        path: ValuePath,
        item: Mapping[str, Any],
        prompts: Mapping[str, str],
        agents: set[str],
    ) -> MenuItem:
        aliases: list[str] = []
        handlers: list[Handler] = []
        for place, trigger in item.get("triggers", []):
            kind, match = trigger.get("type", ""), trigger.get("match", "")
            if kind == "alias":
                aliases.append(match)
            elif kind == "handler":
                handlers.append(Handler(match, self._does(part, place, trigger, prompts, agents)))
            elif kind:
                message = f'{fields.where(place)}: a trigger is "alias" or "handler", so this one counts for nothing'
                part.findings.warning((*place, "type"), "unknown-trigger", message)
        does = self._does(part, path, item, prompts, agents)
        validate = ""
        if said := item.get("validate-workflow", ""):
            validate = (
                self._workflow(part, (*path, "validate-workflow"), said, agents, "ValidationFailed") or ""
            )
        names_something = [
            key for key in ("workflow", "exec", "action", "validate-workflow") if item.get(key)
        ]
        if not names_something and not handlers:
            part.findings.warning(
                path, "does-nothing", f"{fields.where(path)} has no workflow, exec or action"
            )
        only = [key for key in ("ide-only", "web-only") if item.get(key)]
        if len(only) == 2:
            message = f"{fields.where(path)} is both ide-only and web-only, so it is shown nowhere"
            part.findings.warning(path, "shown-nowhere", message, "keep one of them")
        surface = "none" if len(only) == 2 else only[0].removesuffix("-only") if only else ""
        return MenuItem(
            item.get("description", ""),
            item.get("trigger", ""),
            item.get("cmd", ""),
            tuple(aliases),
            tuple(handlers),
            does,
            validate,
            surface,
        )

    def _does(
        self,
        part: Part,
        path: ValuePath,
        item: Mapping[str, Any],
        prompts: Mapping[str, str],
        agents: set[str],
    ) -> Does:
        """What an item or a handler does. Where it names several things, a workflow comes before exec, and that before
        an action."""
        several = [key for key in ("workflow", "exec", "action") if item.get(key)]
        if len(several) > 1:
            message = f"{fields.where(path)} has {' and '.join(several)}: {several[0]} counts"
            part.findings.warning((*path, several[1]), "several", message)
        data = self._data(part, (*path, "data"), item["data"]) if item.get("data") else ""
        if "workflow" in several:
            name = self._workflow(part, (*path, "workflow"), item["workflow"], agents, "UnknownWorkflow")
            return Does(workflow=name or "", data=data)
        if "exec" in several:
            return self._exec(part, (*path, "exec"), item["exec"], agents)._replace(data=data)
        action = item.get("action", "")
        if action.startswith("#") and action[1:] not in prompts:
            part.findings.error(
                (*path, "action"),
                "UnknownPromptId",
                f'{fields.where(path)}: there is no prompt "{one_line(action[1:], 60)}"',
                part.findings.nearest(action[1:], prompts),
            )
        return Does(action=action, data=data)

    def _workflow(self, part: Part, path: ValuePath, said: str, agents: set[str], code: str) -> str | None:
        """The id of a workflow that a menu names by its id or the path of its document."""
        said = said.strip()
        if said in self._workflows:
            return said
        if self._is_classic(part, path, said):
            return None
        name = None
        if said.endswith(".md"):
            document = self._mounted(part, path, said, PACKAGE, code)
            if document is None:
                return None
            if (inside := document.removeprefix(f"{PACKAGE}/")) in self._package.files:
                name = self._workflow_of(inside, agents)
        if name is None:
            message = f'{fields.where(path)}: the package has no workflow "{one_line(said, 80)}"'
            part.findings.error(path, code, message, nearest(said, self._workflows))
        return name

    def _exec(self, part: Part, path: ValuePath, said: str, agents: set[str]) -> Does:
        if self._is_classic(part, path, said):
            return Does()
        named = self._mounted(part, path, said, PACKAGE, "bad-path")
        if named is None:
            return Does()
        inside = named.removeprefix(f"{PACKAGE}/")
        if inside == named:
            return Does(exec=named)
        if inside not in self._package.files:
            message = f"{fields.where(path)}: the package has no file {one_line(said, 80)}"
            part.findings.error(
                path, "missing-file", message, part.findings.nearest(inside, self._package.files)
            )
            return Does()
        if posixpath.basename(inside) == "workflow.md" or self._is_workflow(inside):
            name = self._workflow_of(inside, agents)
            if name is None:
                message = (
                    f"{fields.where(path)}: {one_line(said, 80)} is a workflow, but has no {_GRAPH} beside it"
                )
                part.findings.error(
                    path, "UnknownWorkflow", message, "a workflow is its document and its graph"
                )
            return Does(workflow=name or "")
        return Does(exec=named)

    def _is_workflow(self, path: str) -> bool:
        """Whether a document is a workflow's by its frontmatter."""
        if path in self._ids:
            return True
        try:
            document, _ = fields.read_frontmatter(self._package.files[path], path)
        except Invalid:
            return False
        return all(key in document.data for key in ("schemaVersion", "workflowType", "currentNodeId"))

    def _is_classic(self, part: Part, path: ValuePath, said: str) -> bool:
        if not said.strip().casefold().endswith(CLASSIC):
            return False
        message = (
            f"{fields.where(path)}: {one_line(said, 80)} is of the classic form, which is not carried out"
        )
        hint = "convert it to workflow.md with a graph and steps"
        part.findings.error(path, "NotSupportedClassicWorkflow", message, hint)
        return True

    def _data(self, part: Part, path: ValuePath, said: str) -> str:
        """The file that is read before: one of the package where it has it, else the project's."""
        named = self._mounted(part, path, said, PACKAGE, "bad-path")
        if named is None or named.removeprefix(f"{PACKAGE}/") in self._package.files:
            return named or ""
        if said.strip().startswith((PACKAGE, "{package-root}")):
            message = f"{fields.where(path)}: the package has no file {one_line(said, 80)}"
            hint = part.findings.nearest(named.removeprefix(f"{PACKAGE}/"), self._package.files)
            part.findings.error(path, "DataLoadFailed", message, hint)
            return ""
        return mounted(said, PROJECT)

    def _mounted(self, part: Part, path: ValuePath, said: str, where: str, code: str) -> str | None:
        try:
            return mounted(said, where)
        except Invalid as error:
            part.findings.error(path, code, f"{fields.where(path)}: {error.message}", error.hint)
            return None


def _check_ways(
    part: Part,
    listed: list[tuple[ValuePath, dict[str, Any]]],
    first: str,
    nodes: Mapping[str, NodeDraft],
    edges: tuple[EdgeDraft, ...],
) -> None:
    """What is wrong with the ways through a graph as a whole."""
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
            part.findings.error(places[name], "duplicate-label", message, "who decides names one of them")
        if not ways and nodes[name].type != "end":
            message = f'no edge leaves node "{name}", which is no end'
            part.findings.warning(places[name], "dead-end", message, "give it an edge, or the type end")
        if ways and all(edge.expression is not None and not edge.is_default for edge in ways):
            message = f'node "{name}" has conditions alone: where none holds, the run can\'t go on'
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


def _report_twins(part: Part, named: list[tuple[ValuePath, str]], what: str) -> None:
    """Reports an id that several things of a kind have."""
    seen: dict[str, int] = {}
    for path, name in named:
        line = part.document.mark(path).line
        if name and seen.setdefault(name, line) != line:
            message = f'there is a {what} "{one_line(name, 60)}" in line {seen[name]} already'
            part.findings.error(path, "duplicate-id", message, "rename one of them")


def _tools(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a persona may use. In this format the files are there unless switched off, and MCP servers unless not
    switched on."""
    files, mcp = said.get("fs", {}), said.get("mcp", {})
    made: dict[str, Any] = {} if files.get("enabled", True) else {"files": False}
    made |= {key: files[key] for key in ("maxReadBytes", "maxWriteBytes") if key in files}
    if not mcp.get("enabled", False):
        return {**made, "mcp": False}
    return {**made, "servers": list(mcp["allowedServers"])} if "allowedServers" in mcp else made


def _lines(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(line.strip() for line in text.splitlines() if line.strip())


def _id_of(document: str, otherwise: str, taken: set[str]) -> str:
    """An id for a workflow that has none: the name of its folder."""
    folder = posixpath.basename(posixpath.dirname(document))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder or otherwise).strip("-.") or "main"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbered if each not in taken)
