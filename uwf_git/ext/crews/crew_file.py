"""Your own crew: `crew.yaml` with personas, menus and workflows in YAML files beside it. All problems are
reported at once with lines, the workflows' too. `!include PATH` works as in workflows."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from uwf_git.ext.crews.crew_node import Effect, Handler, Member, MenuItem
from uwf_git.ext.crews.draft import CrewDraft, InvalidPackage, PackageFinding, YamlDraft
from uwf_git.ext.crews.package import CLASSIC, MANIFESTS, Package, mounted
from uwf_git.plugin import (
    OWN_FORM,
    PACKAGE_MOUNT,
    Compiled,
    FieldReader,
    Finding,
    Findings,
    Invalid,
    InvalidWorkflow,
    InvalidYaml,
    NotFound,
    Persona,
    Source,
    ValuePath,
    Workflow,
    compile_source,
    name_problem,
    nearest,
    one_line,
    own_items,
    parse_source,
)

FILE = MANIFESTS[OWN_FORM]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_VERSION = "1.0.0"
_TOP = ("crew", "version", "description", "personas", "workflows")
_TEXTS = ("title", "icon", "description", "role", "identity", "style", "systemPrompt")
_PERSONA = ("name", *_TEXTS, "principles", "actions", "tools", "prompts", "menu")
_DOES = ("workflow", "exec", "action", "data")
_HANDLER = ("match", *_DOES)
_ITEM = ("description", "trigger", "cmd", "aliases", "handlers", *_DOES, "validate", "surface")
_SURFACES = ("ide", "web", "none")
_WORKFLOW = ("file", "title", "description", "tags", "personas")
_FLAGS, _COUNTS, _NAMES = ("files", "mcp"), ("maxReadBytes", "maxWriteBytes"), ("allow", "deny", "servers")
_HABITS: Mapping[str, Mapping[str, Collection[str]]] = {
    "crew": {
        "crew": ("name", "id"),
        "personas": ("agents", "members", "people", "roles"),
        "workflows": ("flows", "runs"),
        "description": ("desc", "about"),
    },
    "persona": {
        "style": ("communication_style", "communicationStyle", "tone", "voice"),
        "actions": ("critical_actions", "criticalActions"),
        "systemPrompt": ("prompt", "system", "system_prompt", "instructions"),
        "menu": ("items", "commands"),
        "description": ("desc", "about"),
    },
    "item": {
        "workflow": ("run", "start", "flow"),
        "action": ("do", "prompt", "say"),
        "validate": ("validate-workflow", "validateWorkflow"),
        "handlers": ("triggers",),
        "aliases": ("alias", "names"),
        "description": ("desc", "title", "label", "text"),
        "surface": ("ide-only", "web-only"),
    },
    "workflow": {
        "file": ("path", "yaml", "workflow", "source"),
        "personas": ("agents", "roles", "cast"),
        "description": ("desc", "about"),
    },
}


class _Flow(NamedTuple):
    """A workflow of crew.yaml; `compiled` is None with errors."""

    draft: YamlDraft
    compiled: Compiled | None


def read_own(package: Package) -> tuple[CrewDraft, dict[str, Compiled]]:
    """Return a package's draft, and its compiled workflows by id. Raises InvalidPackage."""
    source = _parse(package.files, FILE)
    if isinstance(source, PackageFinding):
        raise InvalidPackage(package.name, [source])
    reader = _Reader(package, source)
    draft, flows = reader.crew()
    findings = reader.findings()
    if any(problem.severity == "error" for problem in findings):
        raise InvalidPackage(package.name, findings)
    return draft._replace(warnings=tuple(findings)), flows


def _parse(files: Mapping[str, bytes], file: str) -> Source | PackageFinding:
    folder = posixpath.dirname(file)

    def include(path: str) -> bytes:
        whole = posixpath.join(folder, path)
        if whole not in files:
            raise NotFound(f"no file {one_line(whole)} in the package", nearest(whole, files))
        return files[whole]

    try:
        return parse_source(files[file], file, include)
    except InvalidYaml as error:
        return PackageFinding(file, *error.mark[:2], "not-yaml", error.problem, error.hint)
    except Invalid as error:
        return PackageFinding(file, 0, 0, "unreadable", error.message, error.hint)


def placed(path: str, finding: Finding) -> PackageFinding:
    return PackageFinding(
        path, finding.line, finding.column, finding.code, finding.message, finding.hint, finding.severity
    )


class _Reader(FieldReader):
    """Reads one crew.yaml."""

    def __init__(self, package: Package, source: Source) -> None:
        super().__init__(Findings(source.marks))
        self._package = package
        self._data = source.data
        self._of_files: list[PackageFinding] = []
        self._broken: set[str] = set()
        # The files of workflows by their ids, also of those that can't be read.
        self._known: dict[str, str] = {}
        self._members: tuple[str, ...] = ()

    def findings(self) -> list[PackageFinding]:
        return [*(placed(FILE, finding) for finding in self._findings.sorted()), *self._of_files]

    def meant(self, kind: str, key: str, keys: Collection[str]) -> str | None:
        for meant, others in _HABITS.get(kind, {}).items():
            if meant not in keys and key.casefold() in (other.casefold() for other in others):
                return meant
        return None

    def hint(self, kind: str, key: str, meant: str | None, known: Collection[str]) -> str:
        if kind == "persona" and key in ("metadata", "persona"):
            return "its fields stand beside the name here"
        if kind == "persona" and key in ("model", "agent"):
            return "which agent and model does it is in config.yaml: uwf config set agentOverrides.…"
        return ""

    def crew(self) -> tuple[CrewDraft, dict[str, Compiled]]:
        top = self.mapping(self._data, (), "a crew", _TOP, "crew")
        if top is None:
            return CrewDraft("", "", "", OWN_FORM, (), ()), {}
        name = self.text(top, (), "crew", "the crew") or ""
        if name and (problem := name_problem(name)):
            self._findings.error(("crew",), "bad-name", f'crew name "{one_line(name, 60)}" {problem}')
        flows = self._section(top, "workflows", "the workflows")
        people = self._section(top, "personas", "the personas")
        if not people and "personas" not in self._broken:
            self._findings.key_error(
                ("personas",), "missing-key", "the crew has no personas", "add personas:"
            )
        self._members = tuple(people)
        for id_, value in flows.items():
            file = value.get("file") if isinstance(value, dict) else None
            self._known[id_] = file if isinstance(file, str) else ""
        read = ((id_, self._workflow(id_, value, ("workflows", id_))) for id_, value in flows.items())
        by_id = {id_: flow for id_, flow in read if flow is not None}
        members = (self._member(id_, value, ("personas", id_)) for id_, value in people.items())
        draft = CrewDraft(
            name,
            self._version(top),
            self._maybe(top, (), "description", "the crew"),
            OWN_FORM,
            tuple(member for member in members if member is not None),
            tuple(flow.draft for flow in by_id.values()),
        )
        return draft, {id_: flow.compiled for id_, flow in by_id.items() if flow.compiled is not None}

    def _version(self, top: Mapping[str, Any]) -> str:
        # YAML reads 1.0 as a number, but it is a name.
        value = top.get("version")
        if value is None:
            return _VERSION
        if isinstance(value, dict | list | bool):
            self.wrong_type(("version",), "the crew: version", "text", value)
            return _VERSION
        return one_line(self._findings.raw(("version",)) or str(value), 60)

    def _section(self, top: Mapping[str, Any], key: str, what: str) -> dict[str, Any]:
        value = top.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._broken.add(key)
            hint = f"the id is the key: {key}: {{ID: {{…}}}}"
            self.wrong_type((key,), what, "a mapping", value, hint if isinstance(value, list) else "")
            return {}
        for id_, _ in own_items(value):
            if not _ID.fullmatch(id_):
                self._findings.key_error(
                    (key, id_),
                    "bad-name",
                    f'{key}: "{one_line(id_, 60)}" is not an id',
                    "an id has letters, digits, . _ : - and begins with a letter or digit",
                )
        return dict(own_items(value))

    def _maybe(self, data: dict[str, Any], path: ValuePath, key: str, what: str) -> str:
        return self.text(data, path, key, what, may_be_empty=True) or "" if data.get(key) is not None else ""

    def _list(self, data: dict[str, Any], path: ValuePath, key: str, what: str) -> tuple[str, ...]:
        value = data.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,) if value.strip() else ()
        return tuple(text for text in self.texts(data, path, key, what) if isinstance(text, str))

    # Workflows

    def _workflow(self, id_: str, value: Any, path: ValuePath) -> _Flow | None:
        what = f'workflow "{one_line(id_, 60)}"'
        hint = f"write {one_line(id_, 40)}: {{file: {one_line(value, 40)}}}" if isinstance(value, str) else ""
        data = self.mapping(value, path, what, _WORKFLOW, "workflow", hint=hint)
        if data is None:
            return None
        file = self.text(data, path, "file", what, "name its YAML, which is beside crew.yaml")
        inside = None if file is None else self._path(file, (*path, "file"), what)
        compiled, roles = self._read(inside) if inside is not None else (None, None)
        cast = self._cast(data, path, what, roles)
        description = "" if compiled is None else compiled.workflow.description
        draft = YamlDraft(
            id_,
            self._maybe(data, path, "title", what),
            self._maybe(data, path, "description", what) or description,
            self._list(data, path, "tags", what),
            inside or "",
            cast,
        )
        return _Flow(draft, compiled)

    def _mounted(self, written: str, path: ValuePath, what: str) -> str:
        try:
            return mounted(written)
        except Invalid as error:
            self._findings.error(path, "bad-path", f"{what}: {error.message}", error.hint)
            return ""

    def _path(self, written: str, path: ValuePath, what: str) -> str | None:
        whole = self._mounted(written, path, what)
        inside = whole.removeprefix(f"{PACKAGE_MOUNT}/")
        if inside in self._package.files and inside != whole:
            return inside
        if whole and inside == whole:
            self._findings.error(path, "bad-path", f"{what}: {one_line(whole, 80)} is not in the package")
        elif whole:
            hint = self._findings.nearest(inside, self._package.files)
            message = f"{what}: there is no file {one_line(inside, 80)}"
            self._findings.error(path, "missing-file", message, hint)
        return None

    def _read(self, file: str) -> tuple[Compiled | None, Collection[str] | None]:
        """Return a workflow, and its roles also if it has mistakes."""
        source = _parse(self._package.files, file)
        if isinstance(source, PackageFinding):
            self._of_files.append(source)
            return None, None
        try:
            compiled = compile_source(source, recorded=True)  # read again by verify, as it stands
        except InvalidWorkflow as error:
            self._of_files += [placed(file, finding) for finding in error.findings]
            roles = source.data.get("roles") if isinstance(source.data, dict) else None
            return None, roles if isinstance(roles, dict) else None
        if _asks_more_than_a_crew(compiled.workflow):
            message = "a crew's workflow has no workspace, timeout, retry, fallback or human"
            self._of_files.append(PackageFinding(file, 1, 1, "not-in-a-crew", message, "leave them out"))
            return None, compiled.workflow.roles
        self._of_files += [placed(file, finding) for finding in compiled.warnings]
        return compiled, compiled.workflow.roles

    def _cast(
        self, data: dict[str, Any], path: ValuePath, what: str, roles: Collection[str] | None
    ) -> dict[str, str]:
        value = data.get("personas")
        if value is None:
            return {}
        path = (*path, "personas")
        if not isinstance(value, dict):
            self.wrong_type(path, f"{what}: personas", "a mapping from roles to personas", value)
            return {}
        cast = {}
        for role, who in own_items(value):
            if roles is not None and role not in roles:
                self._findings.key_error(
                    (*path, role),
                    "unknown-role",
                    f'{what} has no role "{one_line(role, 60)}"',
                    self._findings.nearest(role, roles),
                )
            if not isinstance(who, str):
                self.wrong_type((*path, role), f"{what}: personas: {role}", "the id of a persona", who)
            elif self._is_member(who, (*path, role), f"{what}: {role}"):
                cast[role] = who
        return cast

    def _is_member(self, id_: str, path: ValuePath, what: str) -> bool:
        if id_ in self._members or "personas" in self._broken:
            return True
        message = f'{what}: there is no persona "{one_line(id_, 60)}"'
        self._findings.error(path, "UnknownPersona", message, self._findings.nearest(id_, self._members))
        return False

    # Personas

    def _member(self, id_: str, value: Any, path: ValuePath) -> Member | None:
        what = f'persona "{one_line(id_, 60)}"'
        data = self.mapping(value, path, what, _PERSONA, "persona")
        if data is None:
            return None
        name = self.text(data, path, "name", what, "say what people call it") or id_
        texts = {key: self._maybe(data, path, key, what) for key in _TEXTS}
        system_prompt = texts.pop("systemPrompt")
        persona = Persona(
            id_,
            name,
            **texts,
            principles=self._list(data, path, "principles", what),
            actions=self._list(data, path, "actions", what),
            system_prompt=system_prompt,
            tools=self._tools(data.get("tools"), (*path, "tools"), f"{what}: tools"),
        )
        if not system_prompt and not any((persona.role, persona.identity, persona.style, persona.principles)):
            hint = "give it a role, an identity, a style or principles; or a systemPrompt"
            self._findings.warning(path, "empty-persona", f"{what} doesn't say who speaks", hint)
        prompts = self._prompts(data.get("prompts"), (*path, "prompts"), f"{what}: prompts")
        return Member(persona, prompts, self._menu(data.get("menu"), (*path, "menu"), what, prompts))

    def _prompts(self, value: Any, path: ValuePath, what: str) -> dict[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.wrong_type(path, what, "a mapping from ids to texts", value)
            return {}
        return {id_: self.text(value, path, id_, what) or "" for id_, _ in own_items(value)}

    def _tools(self, value: Any, path: ValuePath, what: str) -> dict[str, Any] | None:
        if value is None:
            return None
        data = self.mapping(value, path, what, (*_NAMES, *_FLAGS, *_COUNTS), "tools")
        tools: dict[str, Any] = {}
        for key, item in own_items(data or {}):
            if key in _NAMES:
                tools[key] = list(self._list(data or {}, path, key, what))
            elif key in _FLAGS and not isinstance(item, bool):
                self.wrong_type((*path, key), f"{what}: {key}", "true or false", item)
            elif key in _COUNTS and (type(item) is not int or item < 0):
                self._findings.error((*path, key), "wrong-type", f"{what}: {key} must be a number of bytes")
            elif key in _FLAGS or key in _COUNTS:
                tools[key] = item
        return tools or None

    def _menu(self, value: Any, path: ValuePath, what: str, prompts: Collection[str]) -> tuple[MenuItem, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            hint = "write - {trigger: …, description: …, workflow: …}"
            self.wrong_type(path, f"{what}: menu", "a list of items", value, hint)
            return ()
        items = [
            self._item(entry, (*path, n), f"{what}: item {n + 1}", prompts) for n, entry in enumerate(value)
        ]
        seen: dict[str, int] = {}
        for number, item in enumerate(items):
            for word in () if item is None else dict.fromkeys((item.trigger, item.cmd, *item.aliases)):
                first = seen.setdefault(word.casefold(), number) if word else number
                if first != number:
                    message = (
                        f'{what}: items {first + 1} and {number + 1} are both called "{one_line(word, 60)}"'
                    )
                    hint = "whoever types it is asked which of them is meant"
                    self._findings.warning((*path, number), "same-trigger", message, hint)
        return tuple(item for item in items if item is not None)

    def _item(self, value: Any, path: ValuePath, what: str, prompts: Collection[str]) -> MenuItem | None:
        data = self.mapping(value, path, what, _ITEM, "item")
        if data is None:
            return None
        does = self._does(data, path, what, prompts)
        handlers = self._handlers(data, path, what, prompts)
        if not any((does.workflow, does.exec, does.action, handlers)) and not any(
            key in data for key in _DOES[:3]
        ):
            hint = "give it workflow:, exec: or action:"
            self._findings.error(path, "does-nothing", f"{what} does nothing", hint)
        validate = self._maybe(data, path, "validate", what)
        if validate:
            self._workflow_id(validate, (*path, "validate"), what)
        surface = self._maybe(data, path, "surface", what)
        if surface and surface not in _SURFACES:
            message = f'{what}: surface "{one_line(surface, 40)}" is none of {", ".join(_SURFACES)}'
            self._findings.error(
                (*path, "surface"), "bad-surface", message, "leave it out to show it everywhere"
            )
            surface = ""
        return MenuItem(
            self.text(data, path, "description", what, "say in a few words what it does") or "",
            self._maybe(data, path, "trigger", what),
            self._maybe(data, path, "cmd", what),
            validate,
            surface,
            self._list(data, path, "aliases", what),
            handlers,
            does,
        )

    def _handlers(
        self, data: dict[str, Any], path: ValuePath, what: str, prompts: Collection[str]
    ) -> tuple[Handler, ...]:
        value = data.get("handlers")
        if value is None:
            return ()
        path = (*path, "handlers")
        if not isinstance(value, list):
            self.wrong_type(path, f"{what}: handlers", "a list of {match, workflow, exec or action}", value)
            return ()
        handlers = []
        for number, entry in enumerate(value):
            place, name = (*path, number), f"{what}: handler {number + 1}"
            handler = self.mapping(entry, place, name, _HANDLER, "item")
            if handler is not None:
                match = self.text(handler, place, "match", name) or ""
                handlers.append(Handler(match, self._does(handler, place, name, prompts)))
        return tuple(handlers)

    def _does(self, data: dict[str, Any], path: ValuePath, what: str, prompts: Collection[str]) -> Effect:
        texts = {key: self._maybe(data, path, key, what) for key in _DOES}
        does = Effect(**texts)
        several = [key for key in _DOES[:3] if texts[key]]
        if len(several) > 1:
            message = f"{what} has {' and '.join(several)}"
            self._findings.error((*path, several[1]), "two-actions", message, "an item does one thing")
        if does.workflow:
            self._workflow_id(does.workflow, (*path, "workflow"), what)
        if does.action.startswith("#") and does.action[1:] not in prompts:
            message = f'{what}: the persona has no prompt "{one_line(does.action[1:], 60)}"'
            hint = self._findings.nearest(does.action[1:], prompts) or "add it below its prompts:"
            self._findings.error((*path, "action"), "UnknownPromptId", message, hint)
        script = self._script(does.exec, (*path, "exec"), what) if does.exec else ""
        data_file = self._data_file(does.data, (*path, "data"), what) if does.data else ""
        return does._replace(exec=script, data=data_file)

    def _workflow_id(self, id_: str, path: ValuePath, what: str) -> None:
        if id_ in self._known or "workflows" in self._broken:
            return
        named = next((known for known, file in self._known.items() if file == id_), None)
        hint = f"write its id, {named}" if named else self._findings.nearest(id_, self._known)
        message = f'{what}: there is no workflow "{one_line(id_, 60)}"'
        self._findings.error(path, "UnknownWorkflow", message, hint or "add it below workflows:")

    def _script(self, written: str, path: ValuePath, what: str) -> str:
        if not written.lower().endswith(CLASSIC):
            inside = self._path(written, path, what)
            return f"{PACKAGE_MOUNT}/{inside}" if inside else ""
        message = f"{what}: {one_line(written, 80)} is not Markdown, and no other script can be carried out"
        hint = "a workflow is named by workflow:, with its id"
        self._findings.error(path, "NotSupportedClassicWorkflow", message, hint)
        return ""

    def _data_file(self, written: str, path: ValuePath, what: str) -> str:
        whole = self._mounted(written, path, what)
        if whole.startswith(f"{PACKAGE_MOUNT}/"):
            self._path(written, path, what)
        return whole


def _asks_more_than_a_crew(workflow: Workflow) -> bool:
    """Return whether a workflow has what no crew's may have."""
    edges = (edge for edges in workflow.graph.values() for edge in edges)
    return (
        bool(workflow.workspace)
        or any(edge.fan_out is not None for edge in edges)
        or any(role.timeout or role.retry or role.fallback or role.human for role in workflow.roles.values())
    )
