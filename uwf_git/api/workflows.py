"""Finding a workflow by a text; the first match counts:

1  a registered name, or CREW/ID for a workflow of a registered crew; ~2 is the second version before the newest
2  the hash of a Workflow node, the id of a code workflow's file, or a unique prefix (four characters and more)
3  a file
4  `.uwf/workflows/NAME.yaml` (or .yml, or a code workflow NAME.esm.js) in the current folder and those above it in the
   same repository; outside a repository only in the current folder
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import (
    NotFound,
    NotSupportedClassicWorkflow,
    UnknownWorkflow,
    Untrusted,
    Usage,
    UwfError,
)
from uwf_git.base.text import counted, nearest
from uwf_git.format.casting import Cast
from uwf_git.format.ids import Hash, complete
from uwf_git.format.kinds import Workflow
from uwf_git.format.types import CODE, versions
from uwf_git.sandbox.step_variables import acts_for_agent

if TYPE_CHECKING:
    from uwf_git.format.findings import Finding as Finding
    from uwf_git.git.repository import Oid
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import Location
    from uwf_git.workflow.compile import Compiled as Compiled
    from uwf_git.workflow.rehearsal import Report


class Sources(NamedTuple):
    """Where workflows are found besides the current folder: the storage root and its config.yaml, and the
    store, None if there is none."""

    root: Path
    opened: Callable[[], Instance] | None

    def instance(self) -> Instance:
        assert self.opened is not None, "what was found is in a store"
        return self.opened()


FOLDER = ".uwf/workflows"
"""The folder of workflows in a project."""
SCRIPTS = Path(".claude", "workflows")
"""Where other programs keep workflow scripts, in files NAME.js."""


SUFFIXES = (".yaml", ".yml", ".esm.js", ".mjs")
"""The endings of workflow files that are looked for by name."""


class ResolvedWorkflow(NamedTuple):
    """A workflow that was found. `schemas` are its roles' by hash; `commit` is its version, None for a file.
    Of a crew's workflow, `speaker` is the default persona's id. `unallowed` says why one of a project's set-up may be
    read and not started, else ""."""

    hash: Hash
    workflow: Workflow
    payload: Mapping[str, Any]
    schemas: Mapping[Hash, Any]
    commit: str | None
    compiled: Compiled | None
    speaker: str = ""
    unallowed: str = ""

    def require_allowed(self) -> None:
        """Raise Untrusted for a workflow of a set-up that the user hasn't allowed."""
        if self.unallowed:
            raise Untrusted(self.unallowed, "uwf allow")


def find_workflow(sources: Sources, text: str) -> ResolvedWorkflow:
    """Return the workflow of a text. A name of a project's set-up is that file's, whatever a pull has registered under
    it. Raises NotFound with the nearest name, Usage for an ambiguous hash, InvalidWorkflow, Untrusted."""
    path = workflow_file(sources.root, text)
    if sources.opened is not None:
        workflow = stored_workflow(sources.opened(), text)
        if workflow is not None:
            return (path is not None and _in_setup(sources, path)) or workflow
    if path is not None:
        return _in_setup(sources, path) or _in_file(sources.root, path)
    registered = sources.opened().registry.names() if sources.opened is not None else []
    known = [*registered, *file_names(sources.root)]
    listed = "uwf crew list" if "/" in text else "uwf workflow list"
    hint = nearest(text, known) or f"see: {listed}, or give a file"
    raise NotFound(f"no workflow {text!r}", hint)


def find_version(instance: Instance, sources: Sources, text: str) -> ResolvedWorkflow:
    """Return NAME@VERSION (a prefix of a hash or commit in its history), else as `find_workflow`. Raises
    NotFound, Usage."""
    name, at, version = text.rpartition("@")
    registry = instance.registry
    if not at or name not in registry.names() or len(version) < 4:
        return find_workflow(sources, text)
    versions = {
        past.version.hash: past.version
        for past in registry.history(name)
        if past.version.hash.startswith(version.upper()) or past.version.commit.startswith(version.lower())
    }
    if not versions:
        raise NotFound(f"workflow {name!r} has no version {version}", f"see: uwf workflow history {name}")
    if len(versions) > 1:
        raise Usage(f"{text} is {counted(len(versions), 'version')}", "give more characters")
    stored = stored_workflow(instance, next(iter(versions)))
    assert stored is not None
    return stored


def compile_file(root: Path, file: Path, name: str | None = None) -> Compiled:
    """Compile a workflow's file, and rehearse it unless it is code. `name` is for a code workflow without
    one. Raises NotFound, Usage, InvalidWorkflow."""
    from uwf_git.workflow.code_workflow import language_of
    from uwf_git.workflow.compile import compile_source, foresee
    from uwf_git.workflow.source import read_source

    if language_of(file) is not None:
        compiled = _compile_code(root, file, name)
    elif name is not None:
        raise Usage(f"{file} holds the name of its workflow", "leave out --name")
    else:
        compiled = compile_source(read_source(file))
        compiled = compiled._replace(warnings=foresee(compiled))
    return compiled


def check_file(location: Location, file: Path) -> Sequence[Finding]:
    """Return the findings of a workflow's file in line order, with those that the store gives rise to. Raises NotFound,
    Invalid."""
    from uwf_git.workflow.code_workflow import language_of
    from uwf_git.workflow.compile import InvalidWorkflow, compile_source, validate
    from uwf_git.workflow.source import read_source

    if language_of(file) is None:
        findings = validate(file)
        if any(finding.severity == "error" for finding in findings):
            return findings
        return sorted((*findings, *warnings_here(location, compile_source(read_source(file)))))
    try:
        return _compile_code(location.root, file).warnings
    except InvalidWorkflow as error:
        return error.findings


def warnings_here(location: Location, compiled: Compiled) -> tuple[Finding, ...]:
    """Return the warnings of a compiled workflow that a store gives rise to."""
    if compiled.workflow.code is not None:
        return ()
    from uwf_git.approvals.gate import approver_warnings

    return (
        *approver_warnings(compiled, location.git_dir),
        *_unused_fallbacks(location, compiled),
        *_unregistered(location, compiled),
    )


def _unused_fallbacks(location: Location, compiled: Compiled) -> Sequence[Finding]:
    """Return warnings of roles whose fallback never plays them, with the agents of config.yaml if that is readable."""
    roles = [role for role in compiled.workflow.roles.values() if role.fallback]
    if not roles:
        return ()
    from uwf_git.config.read import load_config
    from uwf_git.config.resolve import known_agent, may_stand_in
    from uwf_git.format.findings import Findings

    findings = Findings(compiled.source.marks)
    with suppress(UwfError):
        config = load_config(location.root)
        for role in roles:
            agent = known_agent(config, role.fallback)
            if agent is not None and not may_stand_in(agent):
                findings.warning(
                    ("roles", role.name, "fallback"),
                    "unused-fallback",
                    f'role "{role.name}": its fallback "{role.fallback}" never plays it, as it is no agent of a model',
                    "name an agent that does; in config.yaml, agentOverrides gives roles to others",
                )
    return findings.sorted()


def _unregistered(location: Location, compiled: Compiled) -> Sequence[Finding]:
    """Return warnings of branches whose workflow the store doesn't have."""
    if not location.git_dir.exists():
        return ()
    from uwf_git.format.findings import Findings
    from uwf_git.git.repository import Repository
    from uwf_git.store import layout
    from uwf_git.workflow.draft import read_draft

    findings = Findings(compiled.source.marks)
    draft = read_draft(compiled.source.data, Findings(compiled.source.marks))
    branches = [branch for branch in draft.branches if branch.workflow not in ("", compiled.workflow.name)]
    refs = Repository(location.git_dir).ref_names(layout.WORKFLOWS) if branches else ()
    known = {name.removeprefix(layout.WORKFLOWS) for name in refs}
    for branch in branches:
        if branch.workflow not in known:
            findings.warning(
                branch.path,
                "unregistered-workflow",
                f'the branches are of workflow "{branch.workflow}", which is not registered here',
                findings.nearest(branch.workflow, known) or "uwf workflow put FILE",
            )
    return findings.sorted()


def _compile_code(root: Path, file: Path, name: str | None = None) -> Compiled:
    from uwf_git.api.compilers import compiler
    from uwf_git.config.read import load_config
    from uwf_git.workflow.code_workflow import language_of

    language = language_of(file)
    assert language is not None
    return compiler(language).compile_file(file, load_config(root), name)


def warnings_of(compiled: Compiled) -> dict[str, Any]:
    """Return a workflow's warnings for a result, {} if none."""
    return {"warnings": [warning._asdict() for warning in compiled.warnings]} if compiled.warnings else {}


def workflow_file(root: Path, text: str) -> Path | None:
    """Return the file of a text: a path, or a name in `.uwf/workflows` or the configured `workflowPaths`."""
    from uwf_git.workflow.code_workflow import language_of

    path = Path(text)
    is_named = path.suffix.lower() in SUFFIXES or language_of(path) is not None
    if is_named or path.is_file():
        return path
    for folder in _folders(root):
        for suffix in _suffixes(folder):
            candidate = folder / (text + suffix)
            if candidate.is_file():
                return candidate
    return None


def version_of(instance: Instance, workflow: ResolvedWorkflow) -> Oid:
    """Return the commit for a workflow's threads; for a file, one without a ref. Raises Untrusted."""
    workflow.require_allowed()
    if workflow.compiled is not None:
        return instance.registry.commit_unregistered(workflow.compiled)
    from uwf_git.git.repository import Oid

    assert workflow.commit is not None
    return Oid(hex=workflow.commit)


def stored_workflow(instance: Instance, text: str) -> ResolvedWorkflow | None:
    """Return a registered or stored workflow, else None. Raises Usage for an ambiguous hash, NotFound for a
    missing version."""
    registry = instance.registry
    name, tilde, back = text.rpartition("~")
    names = registry.names()
    if text in names or (tilde and back.isdecimal() and name in names):
        version = registry.named(text)
        return at_version(instance, version.hash, version.commit)
    if "/" in text:
        return _of_package(instance, text)
    prefix = text.strip().upper()
    if not 4 <= len(prefix) <= 13 or not prefix.isalnum():
        return None
    instance.store.sync()
    try:
        index = instance.store.index
        known = [item for type_hash in versions("workflow") for item in index.hashes_of_type(type_hash)]
        bundles = _bundles(instance)
        complete_name = complete(prefix, [*known, *bundles], "workflow")
        node, *others = bundles.get(complete_name, [Hash(complete_name)])
        if others:
            raise Usage(
                f"{complete_name} is the bundle of {counted(len(others) + 1, 'workflow')}",
                "name one, or give a hash",
            )
    except NotFound:
        return None
    found_there = at_version(instance, node, str(registry.commit_for(node)))
    return found_there._replace(speaker=_first_speaker(instance, found_there.workflow))


def _of_package(instance: Instance, text: str) -> ResolvedWorkflow | None:
    from uwf_git.store.definitions import package_at

    packages = package_at(instance.store, text)
    if packages is None:
        return None
    try:
        offer = packages.offer(text)
    except (UnknownWorkflow, NotSupportedClassicWorkflow):
        if Path(text).is_file():
            return None
        raise
    workflow = at_version(instance, offer.workflow, str(packages.begin(offer)))
    return workflow._replace(speaker=offer.speakers[0])


def _first_speaker(instance: Instance, workflow: Workflow) -> str:
    if not workflow.package:
        return ""
    from uwf_git.store.definitions import package_at

    packages = package_at(instance.store, workflow.package)
    speakers = packages.speakers(workflow.package) if packages is not None else ()
    return Cast.led_by(workflow, (speaker for speaker, _ in speakers)).speaker


def _bundles(instance: Instance) -> dict[str, list[Hash]]:
    nodes: dict[str, list[Hash]] = {}
    for node in instance.store.index.hashes_of_type(CODE):
        nodes.setdefault(instance.store.get(node).payload["file"]["id"], []).append(node)
    return nodes


def at_version(instance: Instance, node: Hash, commit: str) -> ResolvedWorkflow:
    """Return the workflow of a node in a version commit."""
    workflow = instance.registry.workflow(node)
    payload = instance.store.get(node).payload
    names = dict.fromkeys(role.schema for role in workflow.roles.values())
    schemas = {name: instance.store.get(name).payload for name in names}
    return ResolvedWorkflow(node, workflow, payload, schemas, commit, None)


def _in_setup(sources: Sources, path: Path) -> ResolvedWorkflow | None:
    """Return the workflow of a file in a project's set-up, by the text that was compared with what the user has
    allowed; None for another file, for code, which is trusted by itself, and in a set-up of workflows alone. Raises
    Untrusted for code in a set-up that isn't allowed, as finding it runs it."""
    from uwf_git.git.refs import PRIVATE
    from uwf_git.store.location import checkout_around
    from uwf_git.store.setups import HINT, Setups
    from uwf_git.workflow.code_workflow import language_of
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import parse_source

    try:
        folder = path.absolute().parent
    except FileNotFoundError:  # the working folder is gone, so there is no project
        return None
    if folder.parts[-2:] != Path(FOLDER).parts:
        return None
    top = folder.parents[1]  # of the project, also if `.uwf` is a submodule, which is refused
    checkout = checkout_around(top)
    if checkout is None or checkout.top != top:
        return None
    if sources.opened is not None:
        setups = sources.instance().setups
    else:
        setups = Setups(sources.root, sources.root / "store.git" / PRIVATE)
    state = setups.state_at(top)
    if state.here is None or not (state.here.has_settings or state.allowed):
        return None
    files = state.here.files
    if language_of(path) is not None:
        if state.refusal:
            raise Untrusted(state.refusal, HINT)
        return None

    def text_of(name: str) -> bytes:
        if (text := files.get(f"{folder.name}/{name}")) is None:
            raise NotFound(f"no file {name!r} in {folder}", "add it, and allow it: uwf allow")
        return text.encode()

    compiled = compile_source(parse_source(text_of(path.name), str(path), text_of))
    node, workflow, payload, schemas = compiled.hash, compiled.workflow, compiled.payload, compiled.schemas
    return ResolvedWorkflow(node, workflow, payload, schemas, None, compiled, unallowed=state.refusal)


def _in_file(root: Path, path: Path) -> ResolvedWorkflow:
    from uwf_git.workflow.code_workflow import language_of
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import read_source

    is_code = language_of(path) is not None
    compiled = _compile_code(root, path) if is_code else compile_source(read_source(path))
    return ResolvedWorkflow(
        compiled.hash, compiled.workflow, compiled.payload, compiled.schemas, None, compiled
    )


def _project_folders() -> Iterator[Path]:
    from uwf_git.store.location import searched_folders

    try:
        folders = list(searched_folders(Path.cwd()))
    except FileNotFoundError:  # the working folder is gone, so there is no project
        return
    edge = next((number for number, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    for folder in folders[: edge + 1]:
        yield from (folder / item for item in (FOLDER, SCRIPTS) if (folder / item).is_dir())


def _folders(root: Path) -> Iterator[Path]:
    from uwf_git.config.read import load_config

    yield from _project_folders()
    for folder in load_config(root).workflow_paths:
        if folder.is_dir():
            yield folder


def file_names(root: Path) -> list[str]:
    """Return the names of workflow files in `.uwf/workflows` and the configured folders."""
    from uwf_git.workflow.code_workflow import name_of

    return [name_of(path) for path in _files_in(_folders(root))]


def project_roles() -> dict[str, set[str]]:
    """Return the roles of readable workflows in `.uwf/workflows`, by name."""
    from uwf_git.workflow.check import examine
    from uwf_git.workflow.code_workflow import language_of
    from uwf_git.workflow.source import read_source

    known: dict[str, set[str]] = {}
    for path in _files_in(_project_folders()):
        if language_of(path) is not None:  # only its code knows, and nothing is run for that
            continue
        with suppress(UwfError):
            draft, _ = examine(read_source(path))
            known.setdefault(draft.name, set()).update(draft.declared)
    return known


def _files_in(folders: Iterable[Path]) -> list[Path]:
    return [path for folder in folders for path in folder.iterdir() if path.name.endswith(_suffixes(folder))]


def _suffixes(folder: Path) -> tuple[str, ...]:
    return (".js",) if folder.parts[-2:] == SCRIPTS.parts else SUFFIXES


def diagram(workflow: ResolvedWorkflow, language: str) -> str:
    """Return a workflow's graph for "mermaid" or "dot"."""
    from uwf_git.workflow import diagram

    return diagram.dot(workflow.workflow) if language == "dot" else diagram.mermaid(workflow.workflow)


def rehearse(workflow: ResolvedWorkflow) -> Report:
    from uwf_git.workflow.rehearsal import rehearse

    return rehearse(workflow.workflow, workflow.schemas)


def speaker_of(workflow: ResolvedWorkflow, name: str | None) -> str:
    """Return the default speaker's id, "" outside a crew. Raises NotFound, Usage."""
    if name is None:
        return workflow.speaker
    if not workflow.workflow.package:
        raise Usage(
            f"--as is for workflows of crews, and {workflow.workflow.name} is of none", "leave it out"
        )
    return Cast(workflow.workflow).find(name).speaker


def may_start(instance: Instance, workflow: ResolvedWorkflow, is_named: bool, to_run: bool) -> bool:
    """Return whether a workflow may run here. Code in a file that `is_named` by its path is trusted, unless an agent
    names it, or a program that acts for one. Raises Untrusted for other code that is `to_run` at once."""
    from uwf_git.engine.trusted_code import is_trusted, require_trusted, trust_code

    if workflow.compiled is not None and is_named and not acts_for_agent(instance.environ):
        trust_code(instance, workflow.workflow)
    elif to_run:
        require_trusted(instance, workflow.workflow)
    return is_trusted(instance, workflow.workflow)
