"""Versions of definitions as JSON, and the users of a workflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import NotFound, RequirementUnmet, StoreDamaged, UwfError
from uwf_git.base.text import counted, iso

if TYPE_CHECKING:
    from uwf_git.api.workflows import ResolvedWorkflow, Sources
    from uwf_git.format.ids import Hash
    from uwf_git.format.kinds import Workflow
    from uwf_git.store.instance import Instance
    from uwf_git.store.versions import PastVersion, Version
    from uwf_git.store.versions import Versions as Versions
    from uwf_git.workflow.compile import Compiled


def put(instance: Instance, compiled: Compiled) -> dict[str, Any]:
    """Register a compiled workflow, trust its code unless a step registers it, and return the version as JSON. Moves
    `refs/uwf/workflows/<name>`."""
    from uwf_git.engine.trusted_code import trust_code

    version = instance.registry.put(compiled)
    try:
        trust_code(instance, compiled.workflow)
    except RequirementUnmet as error:
        instance.warn(f"{error.message}: uwf workflow trust {compiled.workflow.name}")
    return {**version_value(version), **bundle_of(compiled.workflow, instance, version.commit)}


def registered(instance: Instance) -> list[dict[str, Any]]:
    """Return the registered workflows by name: the JSON of `uwf workflow list`."""
    registry = instance.registry
    workflows: list[dict[str, Any]] = []
    for name in registry.names():
        try:
            version = registry.current(name)
            workflow = registry.workflow(version.hash)
            workflows.append(
                {
                    **version_value(version),
                    **bundle_of(workflow, instance, version.commit),
                    "description": workflow.description,
                    "updated": iso(version.time),
                }
            )
        except UwfError as error:  # one damaged version must not hide the others
            workflows.append({"name": name, "hash": None, "commit": None, "problem": error.message})
    return workflows


def past(instance: Instance, name: str) -> list[dict[str, Any]]:
    """Return a workflow's versions, newest first: the JSON of `uwf workflow history`. Raises NotFound."""
    registry = instance.registry
    entries = registry.history(name)
    return [
        {
            **version_value(entry.version),
            **bundle_of(registry.workflow(entry.version.hash), instance, entry.version.commit),
            **entry_value,
        }
        for entry, entry_value in zip(entries, history_values(entries), strict=True)
    ]


def history_values(entries: Sequence[PastVersion]) -> list[dict[str, Any]]:
    """Return the dates and authors of versions."""
    hashes = {entry.version.commit: entry.version.hash for entry in entries}
    return [
        {
            "time": iso(entry.version.time),
            "author": entry.author,
            "current": entry.version.current,
            "backTo": hashes[entry.back_to] if entry.back_to else None,
            "takenFrom": entry.taken_from,
        }
        for entry in entries
    ]


def past_hash(versions: Versions[Any], name: str, text: str) -> Hash:
    """Return a version's hash from its prefix. Raises NotFound, Usage."""
    from uwf_git.format.ids import Hash, complete

    hashes = {entry.version.hash for entry in versions.history(name)}
    try:
        return Hash(complete(text, hashes, "version"))
    except NotFound:
        kind = versions.kind
        raise NotFound(
            f"{kind} {name!r} has no version {text!r}", f"see: uwf {kind} history {name}"
        ) from None


def version_value(version: Version) -> dict[str, Any]:
    return {"name": version.name, "hash": version.hash, "commit": version.commit}


def bundle_of(workflow: Workflow, instance: Instance | None, commit: str | None = None) -> dict[str, Any]:
    """Return a code workflow's part of a result, {} for others. Trust is reported for stored ones; if the
    version's `commit` has another file, it is untrusted, with a `problem`."""
    if workflow.code is None:
        return {}
    value: dict[str, Any] = {"bundle": workflow.code.id, "language": workflow.code.language}
    if instance is None:
        return value
    from uwf_git.engine.trusted_code import is_trusted
    from uwf_git.git.repository import Oid

    problem = ""
    if commit is not None:
        try:
            instance.registry.code(workflow, Oid(hex=commit))
        except (StoreDamaged, NotFound) as error:
            problem = error.message
    value["trusted"] = not problem and is_trusted(instance, workflow)
    return {**value, "problem": problem} if problem else value


def definition(workflow: ResolvedWorkflow, instance: Instance | None) -> dict[str, Any]:
    """Return a workflow as written, with schemas inline."""
    payload = dict(workflow.payload)
    roles = {}
    for name, role in payload.pop("roles").items():
        key = "outputSchema" if "outputSchema" in role else "frontmatter"
        roles[name] = {**role, key: workflow.schemas[role[key]]}
    return {
        "name": payload.pop("name"),
        **bundle_of(workflow.workflow, instance, workflow.commit),
        "hash": workflow.hash,
        "commit": workflow.commit,
        "description": payload.pop("description"),
        "roles": roles,
        **payload,
    }


def _compared_with(sources: Sources, workflow: ResolvedWorkflow, text: str) -> ResolvedWorkflow:
    from uwf_git.api.workflows import find_workflow
    from uwf_git.git.repository import Oid

    name = workflow.workflow.name
    if workflow.workflow.package:
        older, _, back = text.partition("~")
        if "/" not in older:
            raise NotFound(
                f"{text} is a version of {name}, and there may be several before it", "name both sides"
            )
        return find_workflow(sources, f"{older}~{int(back or 0) + 1}")
    if workflow.commit is None:
        if sources.opened is None or name not in sources.opened().registry.names():
            raise NotFound(f"no workflow {name!r} is registered to compare {text} with", "name both sides")
        return find_workflow(sources, name)
    before = sources.instance().registry.before(Oid(hex=workflow.commit))
    if before is None:
        raise NotFound(f"{text} is the first version of workflow {name!r}", "name both sides")
    return find_workflow(sources, before.hash)._replace(commit=before.commit)


def files_of(workflow: ResolvedWorkflow, opened: Callable[[], Instance]) -> dict[str, bytes]:
    """Return a definition's files as written."""
    if workflow.compiled is not None:
        source = workflow.compiled.source
        return {workflow.workflow.file: source.text, **source.includes}
    from uwf_git.git.repository import Oid

    assert workflow.commit is not None
    return opened().registry.files(Oid(hex=workflow.commit))


def _side(workflow: ResolvedWorkflow) -> dict[str, Any]:
    path = workflow.compiled.source.path if workflow.compiled is not None else None
    return {"name": workflow.workflow.name, "hash": workflow.hash, "commit": workflow.commit, "file": path}


def unified(old: dict[str, bytes], new: dict[str, bytes], labels: Sequence[str]) -> Iterator[str]:
    """Return a unified diff of two definitions' files."""
    from difflib import unified_diff

    def lines_of(files: dict[str, bytes], path: str) -> list[str]:
        return [f"{line}\n" for line in files.get(path, b"").decode("utf-8", "replace").splitlines()]

    for path in dict.fromkeys((*old, *new)):
        names = [f"{path} ({label})" for label in labels]
        yield from unified_diff(lines_of(old, path), lines_of(new, path), names[0], names[1])


class WorkflowUse(NamedTuple):
    """The users of workflows: `agents` of config.yaml, other `settings` (as dotted keys), and active threads."""

    agents: list[str]
    settings: list[str]
    threads: list[str]

    @property
    def users(self) -> list[str]:
        users = [f"{key} in config.yaml starts it" for key in self.agents]
        if self.threads:
            shown = ", ".join([*self.threads[:3], *(["…"] if len(self.threads) > 3 else [])])
            users.append(f"{counted(len(self.threads), 'active thread')} of it: {shown}")
        return users

    def to_json(self) -> dict[str, Any]:
        return {"settings": [*self.agents, *self.settings], "threads": self.threads}


def use_of(instance: Instance, fits: Callable[[str], bool]) -> WorkflowUse:
    """Return the users of workflows with such a name."""
    from uwf_git.config.edit import dotted
    from uwf_git.config.workflows import references
    from uwf_git.store.history import Head

    paths = [reference.path for reference in references(instance.config) if fits(reference.workflow)]
    agents = [dotted(path) for path in paths if path[0] == "agents"]
    others = [dotted(path) for path in paths if path[0] != "agents"]
    heads = (head for head in instance.threads.all() if isinstance(head, Head))
    return WorkflowUse(agents, others, [head.thread for head in heads if fits(head.row.name or "")])


def compare(sources: Sources, one: str, other: str | None = None) -> dict[str, Any]:
    """Return the differences of two workflows as JSON; by default of a file and its registered version, or of
    a version and the one before. Raises NotFound, InvalidWorkflow."""
    from uwf_git.api.workflows import find_workflow
    from uwf_git.store.versions import compare

    new = find_workflow(sources, other or one)
    old = find_workflow(sources, one) if other else _compared_with(sources, new, one)
    before, after = (files_of(workflow, sources.instance) for workflow in (old, new))
    labels = [f"{workflow.workflow.name} {workflow.hash}" for workflow in (old, new)]
    return {
        "from": _side(old),
        "to": _side(new),
        "same": old.hash == new.hash,
        "changes": [change._asdict() for change in compare(old.workflow, new.workflow)],
        "diff": "".join(unified(before, after, labels)),
    }
