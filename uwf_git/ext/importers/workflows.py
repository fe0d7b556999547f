"""Importing workflows: registered ones with versions, and those used by threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.importers.intake import GROWN, HERE, NEW, ImportedWorkflow, Intake, stamp
from uwf_git.plugin import (
    Compiled,
    Hash,
    Invalid,
    Oid,
    UwfError,
    compile_source,
    is_hash,
    layout,
    name_problem,
    parse_source,
    yaml12,
)

_SCHEMAS = ("outputSchema", "frontmatter", "meta")
_GOAL_FORM = ("goal", "capabilities", "procedure", "output")
_KNOWN = {
    "Workflow": {"name", "description", "roles", "conditions", "graph", "version"},
    "role": {"description", "systemPrompt", *_SCHEMAS, *_GOAL_FORM},
    "edge": {"role", "condition", "prompt", "location"},
}


def is_workflow(payload: Any) -> bool:
    """Return whether a payload looks like a Workflow node."""
    return (
        isinstance(payload, dict)
        and isinstance(payload.get("name"), str)
        and isinstance(payload.get("roles"), dict)
        and isinstance(payload.get("graph"), dict)
    )


def compiled_definition(
    payload: Any, schema_of: Callable[[Hash], Any], extras: Callable[[str], None]
) -> Compiled:
    """Return a definition's nodes. `schema_of` reads schemas and may raise any UwfError; `extras` gets fields
    without a place, such as `role.color`. Raises Invalid."""
    data = _definition(payload, schema_of, extras)
    return compile_source(parse_source(yaml12.dump(data).encode("utf-8"), "workflow.yaml"))


def _definition(
    payload: Any, schema_of: Callable[[Hash], Any], extras: Callable[[str], None]
) -> dict[str, Any]:
    if not is_workflow(payload):
        raise Invalid("its node is not a Workflow")
    if problem := name_problem(payload["name"]):
        raise Invalid(f"its name {problem}")

    def note_extras(kind: str, value: Mapping[str, Any]) -> None:
        for key in sorted(value.keys() - _KNOWN[kind]):
            extras(f"{kind}.{key}")

    note_extras("Workflow", payload)
    data: dict[str, Any] = {
        "version": 1,
        "name": payload["name"],
        "description": payload.get("description", ""),
    }
    data["roles"] = {}
    for name, role in payload["roles"].items():
        if not isinstance(role, dict):
            raise Invalid(f"its role {name} is not an object")
        note_extras("role", role)
        data["roles"][name] = _role(name, role, schema_of)
    if payload.get("conditions"):
        data["conditions"] = payload["conditions"]
    data["graph"] = {}
    for source, edges in payload["graph"].items():
        values = edges.values() if isinstance(edges, dict) else edges
        if not isinstance(edges, dict | list) or not all(isinstance(edge, dict) for edge in values):
            raise Invalid(f"its edges from {source} are none")
        for edge in values:
            note_extras("edge", edge)
        if isinstance(edges, dict):
            data["graph"][source] = {status: _edge(edge) for status, edge in edges.items()}
        else:
            data["graph"][source] = [{**_edge(edge), "condition": edge.get("condition")} for edge in edges]
    return data


def _role(name: str, role: Mapping[str, Any], schema_of: Callable[[Hash], Any]) -> dict[str, Any]:
    key = next((key for key in _SCHEMAS if role.get(key) is not None), None)
    if key is None:
        raise Invalid(f"its role {name} has no schema")
    schema = role[key]
    if isinstance(schema, str) and is_hash(schema):
        schema = schema_of(Hash(schema))
    description = role.get("description", "")
    if "goal" in role:
        fields = {key: role[key] for key in _GOAL_FORM if role.get(key)}
        return {"description": description, **fields, "frontmatter": schema}
    prompt = str(role.get("systemPrompt") or "")
    return {"description": description, "systemPrompt": prompt, "outputSchema": schema}


def _edge(edge: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: edge.get(key) for key in ("role", "prompt", "location")}
    return {key: text for key, text in texts.items() if text not in (None, "")}


class Version(NamedTuple):
    """A source's Workflow node as a version here."""

    commit: Oid
    compiled: Compiled


class _Link(NamedTuple):
    """A version in a chain. `origin` is a rollback's target."""

    commit: Oid
    compiled: Compiled
    when: int
    origin: Oid | None = None


class Workflows:
    """Imports workflows of one kind. `compile_version` returns a source version's nodes and its Unix
    milliseconds; it may raise any UwfError."""

    def __init__(self, intake: Intake, compile_version: Callable[[str], tuple[Compiled, int]]) -> None:
        self._intake = intake
        self._compile = compile_version
        self._versions: dict[str, Version | str] = {}
        self.taken: list[ImportedWorkflow] = []

    def take(self, name: str, current: str, past: Sequence[str]) -> None:
        """Import a registered workflow with its versions, oldest first, ending with a rollback if an older
        one is current. Raises as `compile_version` for the current one."""
        chain: list[_Link] = []
        for source in past:
            try:
                compiled, when = self._compile(source)
            except UwfError as error:
                if source == current:
                    raise
                self._versions[source] = error.message
                self._intake.refuse("workflow", f"{name} {source}", error.message)
                continue
            commit = next((link.commit for link in chain if link.compiled.hash == compiled.hash), None)
            if commit is None:
                commit = self._write(chain, compiled, when)
            self._versions[source] = Version(commit, compiled)
        version = self._versions[current]
        assert isinstance(version, Version)
        if chain[-1].compiled.hash != version.compiled.hash:
            self._write(chain, version.compiled, chain[-1].when, version.commit)
        state = self._register(name, chain)
        self.taken.append(ImportedWorkflow(name, version.compiled.hash, current, len(chain), state))

    def _write(self, chain: list[_Link], compiled: Compiled, when: int, origin: Oid | None = None) -> Oid:
        parents = [*(link.commit for link in chain[-1:]), *([origin] if origin else [])]
        commit = self._intake.registry.write(compiled, parents, stamp(when))
        chain.append(_Link(commit, compiled, when, origin))
        return commit

    def _register(self, name: str, chain: list[_Link]) -> str:
        ref, tip = layout.WORKFLOWS + name, chain[-1].commit
        here = self._intake.repository.ref(ref)
        if here is None:
            self._intake.refs[ref] = tip
            return NEW
        if here == tip:
            return HERE
        if here in (link.commit for link in chain):
            self._intake.moves.append((ref, here, tip))
            return GROWN
        past = [item.version.hash for item in reversed(self._intake.instance.registry.history(name))]
        hashes = [link.compiled.hash for link in chain]
        if hashes[: len(past)] == past and len(hashes) > len(past):
            # The same versions in other commits, as `workflow put` makes them.
            tip = here
            for link in chain[len(past) :]:
                tip = self._intake.registry.write(link.compiled, [tip], stamp(link.when))
            self._intake.moves.append((ref, here, tip))
            return GROWN
        if not set(hashes) <= set(past):
            reason = "another workflow is registered here by that name; threads keep theirs"
            self._intake.refuse("workflow", name, reason)
        return HERE

    def version(self, source: str) -> Version:
        """Return a thread's version; unregistered ones get their own commit. Raises Invalid."""
        version = self._versions.get(source)
        if version is None:
            try:
                compiled, when = self._compile(source)
                version = Version(self._intake.registry.write(compiled, [], stamp(when)), compiled)
            except UwfError as error:
                version = error.message
            self._versions[source] = version
        if isinstance(version, str):
            raise Invalid(f"its workflow {source}: {version}")
        return version


def of_nodes(intake: Intake) -> Workflows:
    """Import workflows that are nodes."""

    def compile_node(node: str) -> tuple[Compiled, int]:
        content = intake.old(Hash(node), "its workflow is")
        return compiled_definition(content.payload, schema, intake.extras.add), content.timestamp

    def schema(node: Hash) -> Any:
        return intake.old(node, "its schema is").payload

    return Workflows(intake, compile_node)


def take_registered(
    intake: Intake, workflows: Workflows, registered: Mapping[str, Hash], nodes: Mapping[str, Sequence[Hash]]
) -> None:
    """Import registered workflows. `nodes` are the Workflow nodes by name, oldest first."""
    for name, current in sorted(registered.items()):
        try:
            payload = intake.old(current, "what is registered is").payload
            if not is_workflow(payload):
                raise Invalid(f"node {current}, which is registered, is not a Workflow")
            if payload["name"] != name:
                raise Invalid(f"node {current}, which is registered, is called {payload['name']!r}")
            workflows.take(name, current, nodes[name])
        except UwfError as error:
            intake.refuse("workflow", name, error.message)
