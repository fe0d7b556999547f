"""Reading a .bmad package, v1.1, into a draft, with all findings. In menus, names of workflows become ids,
and names of files get their mount."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from uwf_git.ext.crews import forms
from uwf_git.ext.crews.crew_node import Effect, Handler, Member, MenuItem
from uwf_git.ext.crews.draft import CrewDraft, GraphDraft, InvalidPackage, PackageFinding
from uwf_git.ext.crews.graph import ID, VERSION, Files, Graphs, report_twins
from uwf_git.ext.crews.package import CLASSIC, MANIFESTS, Package, mounted
from uwf_git.plugin import (
    BMAD,
    PACKAGE_MOUNT,
    PROJECT_MOUNT,
    Invalid,
    Persona,
    ValuePath,
    name_problem,
    nearest,
    one_line,
)

_GRAPH = "workflow.graph.json"

_MANIFEST = forms.object_of(
    {
        "schemaVersion": VERSION,
        "name": forms.text,
        "version": forms.matching(
            r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", "a SemVer version", "such as 1.0.0"
        ),
        "entry": forms.object_of(
            {"workflow": forms.text, "graph": forms.text, "agents": forms.text}, {"assetsDir": forms.text}
        ),
    },
    {
        "description": forms.text,
        "author": forms.text,
        "createdAt": forms.text,
        "workflows": forms.list_of(
            forms.object_of(
                {"id": ID, "workflow": forms.text, "graph": forms.text},
                {"displayName": forms.text, "description": forms.text, "tags": forms.texts},
            )
        ),
        "runtime": forms.object_of({}, {"minRuntimeVersion": forms.text, "requiresNetwork": forms.flag}),
        "integrity": forms.object_of({}, {"sha256": forms.matching(r"[0-9a-fA-F]{64}", "a SHA-256 in hex")}),
    },
)
_AGENT = forms.object_of(
    {
        "id": ID,
        "metadata": forms.object_of(
            {"name": forms.text, "title": forms.text, "icon": forms.text},
            {"module": forms.text, "description": forms.text, "sourceId": forms.text},
            may_be_blank=("title", "icon"),
        ),
        "persona": forms.object_of(
            {
                "role": forms.text,
                "identity": forms.text,
                "communication_style": forms.text,
                "principles": lambda part, path, value: (
                    forms.texts(part, path, value)
                    if isinstance(value, list)
                    else _lines(forms.text(part, path, value))
                ),
            },
            {},
        ),
    },
    {
        "critical_actions": forms.texts,
        "prompts": forms.list_of(
            forms.object_of({"id": forms.text, "content": forms.text}, {"description": forms.text})
        ),
        "menu": forms.list_of(
            forms.object_of(
                {"description": forms.text},
                {
                    **dict.fromkeys(("trigger", "cmd", "workflow", "exec", "action", "data"), forms.text),
                    "validate-workflow": forms.text,
                    "ide-only": forms.flag,
                    "web-only": forms.flag,
                    "triggers": forms.list_of(
                        forms.object_of(
                            {"type": forms.text, "match": forms.text},
                            dict.fromkeys(("workflow", "exec", "action", "data"), forms.text),
                            is_open=True,
                        )
                    ),
                },
                is_open=True,
            )
        ),
        "systemPrompt": forms.text,
        "userPromptTemplate": forms.text,
        "discussion": forms.flag,
        "webskip": forms.flag,
        "conversational_knowledge": forms.list_of(forms.mapping),
        "tools": forms.object_of(
            {},
            {
                "fs": forms.object_of(
                    {}, {"enabled": forms.flag, "maxReadBytes": forms.count, "maxWriteBytes": forms.count}
                ),
                "mcp": forms.object_of({}, {"enabled": forms.flag, "allowedServers": forms.texts}),
            },
        ),
    },
)
_NOT_USED = ("userPromptTemplate", "discussion", "webskip", "conversational_knowledge")
"""What an agent may say that nothing here goes by."""
_AGENTS = forms.object_of({"schemaVersion": VERSION, "agents": forms.list_of(_AGENT, at_least=1)}, {})


def read_bmad(package: Package) -> CrewDraft:
    """Read the crew of a package with a bmad.json. Raises InvalidPackage."""
    return _Reader(package).crew()


class _Reader:
    """Reads one package."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._files = Files(package)
        self._graphs = Graphs(self._files, ())
        self._workflows: dict[str, GraphDraft | None] = {}
        self._ids: dict[str, str] = {}

    def crew(self) -> CrewDraft:
        part = self._files.part(MANIFESTS[BMAD])
        data = _MANIFEST(part, (), part.document.data) if part else None
        if part is None or data is None or "schemaVersion" not in data:
            # Of another version every other field would be wrong too.
            raise InvalidPackage(self._package.name, self._unsupported())
        entry = data.get("entry", {})
        agents, agents_part = self._agents(part, entry)
        self._graphs = Graphs(self._files, {agent["id"] for _, agent in agents if "id" in agent})
        self._declared(part, data)
        self._tell_unused(part, data, agents_part, agents)
        members = tuple(self._member(agents_part, path, agent) for path, agent in agents if agents_part)
        findings = self._files.findings()
        if any(finding.severity == "error" for finding in findings):
            raise InvalidPackage(self._package.name, findings)
        name = self._name(data["name"])
        workflows = tuple(graph for graph in self._workflows.values() if graph)
        return CrewDraft(
            name, data["version"], data.get("description", ""), BMAD, members, workflows, tuple(findings)
        )

    def _unsupported(self) -> list[PackageFinding]:
        findings = self._files.findings()
        return [finding for finding in findings if finding.code == "unsupported-version"] or findings

    def _name(self, written: str) -> str:
        if not name_problem(written):
            return written
        cleaned = (
            re.sub(r"[-.]{2,}", "-", re.sub(r"[^\w.-]+", "-", written))
            .strip("-.")[:80]
            .casefold()
            .strip("-.")
        )
        return cleaned.removesuffix(".lock") if not name_problem(cleaned.removesuffix(".lock")) else "crew"

    def _agents(
        self, manifest: forms.Part, entry: Mapping[str, Any]
    ) -> tuple[list[tuple[ValuePath, dict[str, Any]]], forms.Part | None]:
        path = self._named(manifest, ("entry",), entry, "agents")
        part = self._files.part(path) if path else None
        data = _AGENTS(part, (), part.document.data) if part else None
        if part is None or not data:
            return [], None
        agents: list[tuple[ValuePath, dict[str, Any]]] = data.get("agents", [])
        report_twins(part, [((*path, "id"), agent.get("id", "")) for path, agent in agents], "agent")
        return agents, part

    def _named(self, part: forms.Part, path: ValuePath, data: Mapping[str, Any], key: str) -> str | None:
        return self._files.named(part, (*path, key), data[key]) if key in data else None

    def _tell_unused(
        self,
        manifest: forms.Part,
        data: Mapping[str, Any],
        agents_part: forms.Part | None,
        agents: list[tuple[ValuePath, dict[str, Any]]],
    ) -> None:
        if data.get("integrity", {}).get("sha256"):
            message = "integrity.sha256 is not checked: what is taken in has a hash of its own"
            manifest.findings.warning(("integrity", "sha256"), "not-used", message)
        for key in _NOT_USED:
            place = next((path for path, agent in agents if agent.get(key)), None)
            if agents_part and place is not None:
                message = f"{forms.where((*place, key))} does nothing here"
                agents_part.findings.warning((*place, key), "not-used", message)

    def _declared(self, manifest: forms.Part, data: Mapping[str, Any]) -> None:
        listed: list[tuple[ValuePath, dict[str, Any]]] = data.get("workflows", [])
        report_twins(manifest, [((*path, "id"), flow.get("id", "")) for path, flow in listed], "workflow")
        entry = data.get("entry", {})
        main = self._named(manifest, ("entry",), entry, "workflow")
        graph = self._named(manifest, ("entry",), entry, "graph")
        flows: list[tuple[str, str, str, dict[str, Any]]] = []
        for path, flow in listed:
            document = self._named(manifest, path, flow, "workflow")
            its_graph = self._named(manifest, path, flow, "graph")
            if document and its_graph and "id" in flow:
                flows.append((flow["id"], document, its_graph, flow))
        for _, document, its_graph, _ in flows:
            if document == main and graph and its_graph != graph:
                message = f"entry.graph is not the graph of that workflow, {one_line(its_graph, 80)}"
                manifest.findings.error(
                    ("entry", "graph"), "differs", message, "name one graph in both places"
                )
        taken = {name for name, *_ in flows}
        if main and graph and main not in (document for _, document, *_ in flows):
            whole = {"displayName": data.get("name", ""), "description": data.get("description", "")}
            flows.insert(0, (_id_of(main, "main", taken), main, graph, whole))
        for name, document, its_graph, listing in sorted(flows, key=lambda flow: flow[1] != main):
            self._ids.setdefault(document, name)
            self._workflows[name] = self._graphs.read(name, document, its_graph, listing)

    def _workflow_of(self, document: str) -> str | None:
        if document not in self._ids:
            graph = posixpath.join(posixpath.dirname(document), _GRAPH)
            if graph not in self._package.files:
                return None
            name = self._ids[document] = _id_of(
                document, posixpath.splitext(document)[0], set(self._workflows)
            )
            self._workflows[name] = self._graphs.read(name, document, graph, {})
        return self._ids[document]

    def _member(self, part: forms.Part, path: ValuePath, agent: Mapping[str, Any]) -> Member:
        metadata, character = agent.get("metadata", {}), agent.get("persona", {})
        listed = agent.get("prompts", [])
        report_twins(part, [((*place, "id"), prompt.get("id", "")) for place, prompt in listed], "prompt")
        prompts = {
            prompt["id"]: prompt["content"] for _, prompt in listed if "id" in prompt and "content" in prompt
        }
        persona = Persona(
            agent.get("id", ""),
            metadata.get("name", ""),
            metadata.get("title", ""),
            metadata.get("icon", ""),
            metadata.get("description", ""),
            character.get("role", ""),
            character.get("identity", ""),
            character.get("communication_style", ""),
            tuple(character.get("principles", ())),
            agent.get("critical_actions", ()),
            agent.get("systemPrompt", ""),
            _tools(agent["tools"]) if "tools" in agent else None,
        )
        menu = tuple(self._item(part, place, item, prompts) for place, item in agent.get("menu", []))
        return Member(persona, prompts, menu)

    def _item(
        self,
        part: forms.Part,
        path: ValuePath,
        item: Mapping[str, Any],
        prompts: Mapping[str, str],
    ) -> MenuItem:
        aliases: list[str] = []
        handlers: list[Handler] = []
        for place, trigger in item.get("triggers", []):
            kind, match = trigger.get("type", ""), trigger.get("match", "")
            if kind == "alias":
                aliases.append(match)
            elif kind == "handler":
                handlers.append(Handler(match, self._does(part, place, trigger, prompts)))
            elif kind:
                message = (
                    f'{forms.where(place)}: a trigger is "alias" or "handler", so this one counts for nothing'
                )
                part.findings.warning((*place, "type"), "unknown-trigger", message)
        does = self._does(part, path, item, prompts)
        validate = ""
        if required := item.get("validate-workflow", ""):
            validate = self._workflow(part, (*path, "validate-workflow"), required, "ValidationFailed") or ""
        names_something = [
            key for key in ("workflow", "exec", "action", "validate-workflow") if item.get(key)
        ]
        if not names_something and not handlers:
            part.findings.warning(
                path, "does-nothing", f"{forms.where(path)} has no workflow, exec or action"
            )
        only = [key for key in ("ide-only", "web-only") if item.get(key)]
        if len(only) == 2:
            message = f"{forms.where(path)} is both ide-only and web-only, so it is shown nowhere"
            part.findings.warning(path, "bad-surface", message, "keep one of them")
        surface = "none" if len(only) == 2 else only[0].removesuffix("-only") if only else ""
        return MenuItem(
            item.get("description", ""),
            item.get("trigger", ""),
            item.get("cmd", ""),
            validate,
            surface,
            tuple(aliases),
            tuple(handlers),
            does,
        )

    def _does(
        self,
        part: forms.Part,
        path: ValuePath,
        item: Mapping[str, Any],
        prompts: Mapping[str, str],
    ) -> Effect:
        several = [key for key in ("workflow", "exec", "action") if item.get(key)]
        if len(several) > 1:
            message = f"{forms.where(path)} has {' and '.join(several)}: {several[0]} counts"
            part.findings.warning((*path, several[1]), "two-actions", message)
        data = self._data(part, (*path, "data"), item["data"]) if item.get("data") else ""
        if "workflow" in several:
            name = self._workflow(part, (*path, "workflow"), item["workflow"], "UnknownWorkflow")
            return Effect(workflow=name or "", data=data)
        if "exec" in several:
            return self._exec(part, (*path, "exec"), item["exec"])._replace(data=data)
        action = item.get("action", "")
        if action.startswith("#") and action[1:] not in prompts:
            part.findings.error(
                (*path, "action"),
                "UnknownPromptId",
                f'{forms.where(path)}: there is no prompt "{one_line(action[1:], 60)}"',
                part.findings.nearest(action[1:], prompts),
            )
        return Effect(action=action, data=data)

    def _workflow(self, part: forms.Part, path: ValuePath, written: str, code: str) -> str | None:
        written = written.strip()
        if written in self._workflows:
            return written
        if self._is_classic(part, path, written):
            return None
        name = None
        if written.endswith(".md"):
            document = self._mounted(part, path, written, code)
            if document is None:
                return None
            if (inside := document.removeprefix(f"{PACKAGE_MOUNT}/")) in self._package.files:
                name = self._workflow_of(inside)
        if name is None:
            message = f'{forms.where(path)}: the package has no workflow "{one_line(written, 80)}"'
            part.findings.error(path, code, message, nearest(written, self._workflows))
        return name

    def _exec(self, part: forms.Part, path: ValuePath, written: str) -> Effect:
        if self._is_classic(part, path, written):
            return Effect()
        named = self._mounted(part, path, written)
        if named is None:
            return Effect()
        inside = named.removeprefix(f"{PACKAGE_MOUNT}/")
        if inside == named:
            return Effect(exec=named)
        if inside not in self._package.files:
            message = f"{forms.where(path)}: the package has no file {one_line(written, 80)}"
            part.findings.error(
                path, "missing-file", message, part.findings.nearest(inside, self._package.files)
            )
            return Effect()
        if posixpath.basename(inside) == "workflow.md" or self._is_workflow(inside):
            name = self._workflow_of(inside)
            if name is None:
                message = f"{forms.where(path)}: {one_line(written, 80)} is a workflow, but has no {_GRAPH} beside it"
                part.findings.error(
                    path, "UnknownWorkflow", message, "a workflow is its document and its graph"
                )
            return Effect(workflow=name or "")
        return Effect(exec=named)

    def _is_workflow(self, path: str) -> bool:
        if path in self._ids:
            return True
        try:
            document, _ = forms.read_frontmatter(self._package.files[path], path)
        except Invalid:
            return False
        return all(key in document.data for key in ("schemaVersion", "workflowType", "currentNodeId"))

    def _is_classic(self, part: forms.Part, path: ValuePath, written: str) -> bool:
        if not written.strip().casefold().endswith(CLASSIC):
            return False
        message = (
            f"{forms.where(path)}: {one_line(written, 80)} is of the classic form, which is not carried out"
        )
        hint = "convert it to workflow.md with a graph and steps"
        part.findings.error(path, "NotSupportedClassicWorkflow", message, hint)
        return True

    def _data(self, part: forms.Part, path: ValuePath, written: str) -> str:
        named = self._mounted(part, path, written)
        if named is None or named.removeprefix(f"{PACKAGE_MOUNT}/") in self._package.files:
            return named or ""
        if written.strip().startswith((PACKAGE_MOUNT, "{package-root}")):
            message = f"{forms.where(path)}: the package has no file {one_line(written, 80)}"
            hint = part.findings.nearest(named.removeprefix(f"{PACKAGE_MOUNT}/"), self._package.files)
            part.findings.error(path, "DataLoadFailed", message, hint)
            return ""
        return mounted(written, PROJECT_MOUNT)

    def _mounted(self, part: forms.Part, path: ValuePath, written: str, code: str = "bad-path") -> str | None:
        try:
            return mounted(written)
        except Invalid as error:
            part.findings.error(path, code, f"{forms.where(path)}: {error.message}", error.hint)
            return None


def _tools(tools: Mapping[str, Any]) -> dict[str, Any]:
    files, mcp = tools.get("fs", {}), tools.get("mcp", {})
    limits: dict[str, Any] = {} if files.get("enabled", True) else {"files": False}
    limits |= {key: files[key] for key in ("maxReadBytes", "maxWriteBytes") if key in files}
    if not mcp.get("enabled", False):
        return {**limits, "mcp": False}
    return {**limits, "servers": list(mcp["allowedServers"])} if "allowedServers" in mcp else limits


def _lines(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(line.strip() for line in text.splitlines() if line.strip())


def _id_of(document: str, otherwise: str, taken: set[str]) -> str:
    folder = posixpath.basename(posixpath.dirname(document))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder or otherwise).strip("-.") or "main"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(other for other in numbered if other not in taken)
