"""Versions of workflows, crews and baselines as somebody pushed them, who may be anybody: what a commit defines,
without running any of it, and whether it is exactly what registering its definition would have made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Invalid, NotFound, UwfError
from uwf_git.base.text import one_line
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.document import MAX_BYTES
from uwf_git.format.ids import Hash, name_problem
from uwf_git.format.kinds import parse_workflow
from uwf_git.format.node import Node, from_blob
from uwf_git.format.schema import Schema
from uwf_git.format.suites import BASELINE
from uwf_git.format.types import CODE, DEFINITIONS, JAVASCRIPT, PYTHON
from uwf_git.git.repository import BLOB_MODE, Entry, Oid, Repository, TooLarge
from uwf_git.store import layout
from uwf_git.store.taking_in import Store
from uwf_git.store.versions import Baseline, Baselines, Registry, Versions
from uwf_git.verify.objects import COUNT_LIMIT

if TYPE_CHECKING:
    from uwf_git.ext.crews.registry import Definition
    from uwf_git.store.opened import Instance
    from uwf_git.verify.findings import Finding
    from uwf_git.workflow.compile import Compiled

MOST_VERSIONS = 1000
LARGEST_FOLDER = 1 << 20
SECONDS = 30.0  # for what somebody else wrote to compile
CODE_FILES = (DEFINITIONS[JAVASCRIPT], DEFINITIONS[PYTHON])
_FILE_MODES = (BLOB_MODE, "100755")
_OF_NODES = ("workflow", "workflow/nodes", "crew", "crew/nodes", "baseline", "baseline/nodes")


def versions_of(store: Store, kind: str) -> Versions[Any]:
    """What a store has of a kind, `workflow`, `crew` or `baseline`, in versions."""
    if kind in ("workflow", "baseline"):
        return Registry(store) if kind == "workflow" else Baselines(store)
    from uwf_git.ext.crews.registry import Crews

    return Crews(store)


def kind_in(repository: Repository, commit: Oid, what: str = "the branch") -> str:
    """What a commit's tree holds a version of. Raises Invalid for a tree that is too large."""
    files = _Files(repository, repository.commit(commit).tree, what)
    if files.has("baseline"):
        return "baseline"
    return "crew" if files.has(layout.PACKAGE.rstrip("/")) else "workflow"


def defined_in(
    repository: Repository, commit: Oid, what: str, correct: str = ""
) -> Compiled | Definition | Baseline:
    """The definition in a commit's tree, compiled. Whoever pushed the branch wrote it, so code isn't evaluated: what it
    says of itself has to be there as it was registered. Messages name it `what`, and say how to `correct` it. Raises
    Invalid, and StoreDamaged where objects are bad."""
    from uwf_git.workflow.compile import InvalidWorkflow, compile_source
    from uwf_git.workflow.source import parse_source

    files = _Files(repository, repository.commit(commit).tree, what)
    try:
        with time_limit(SECONDS):
            kind = kind_in(repository, commit, what)
            if kind == "crew":
                return _crew(files, what)
            if kind == "baseline":
                return _baseline(files)
            if code := next((name for name in CODE_FILES if files.has(name)), None):
                return _bundle(files, code)
            source = parse_source(
                files.read("workflow.yaml"),
                "workflow.yaml",
                lambda path: files.read(f"workflow/include/{path}"),
            )
            return compile_source(source)
    except (InvalidWorkflow, Invalid, NotFound, TooLarge) as error:
        raise Invalid(f"{what}: {error.message}", correct) from None
    except TimeExceeded:
        raise Invalid(f"{what} takes over {SECONDS:g} s to compile", correct) from None


def holds_code(repository: Repository, commit: Oid) -> bool:
    """Whether a commit's tree has the file of a bundle. Raises Invalid for a tree that is too large."""
    files = _Files(repository, repository.commit(commit).tree, "the branch")
    return any(files.has(name) for name in CODE_FILES)


def _bundle(files: _Files, code: str) -> Compiled:
    """The bundle in a tree, by its nodes there. Raises Invalid where the file is another one than they are about."""
    from uwf_git.workflow.code_file import MAX_BYTES, kept_bundle

    for other in DEFINITIONS.values():
        if other != code and files.has(other):
            raise Invalid(f"{other} stands beside {code}: a version has one definition")
    text = files.read(code, MAX_BYTES)
    digest = sha256(text).hexdigest()
    nodes = _nodes(files, "workflow")
    for node in nodes.values():
        if node.type == CODE:
            workflow = parse_workflow(cbor.normalise(node.payload))
            if workflow.code is not None and workflow.code.sha256 == digest:
                if (named := DEFINITIONS[workflow.code.language]) != code:
                    raise Invalid(f"{code} was {named}, and is the same still: a bundle keeps its language")
                schemas = {role.schema: nodes[role.schema].payload for role in workflow.roles.values()}
                return kept_bundle(cbor.normalise(node.payload), schemas, text)
    raise Invalid(f"{code} was changed there, and what code says of itself is only known by running it")


def _nodes(files: _Files, folder: str) -> dict[Hash, Node]:
    """The nodes of a folder that are no built-in types."""
    names = (layout.node_in_path(f"nodes/{path}") for path in files.names(f"{folder}/nodes"))
    return {
        name: from_blob(files.read(f"{folder}/{layout.node_file(name)}"), name)
        for name in names
        if name is not None and name not in BUILTIN
    }


def _baseline(files: _Files) -> Baseline:
    """The baseline in a tree, whose node is all of it."""
    found = [node for node in _nodes(files, "baseline").values() if node.type == BASELINE]
    if len(found) != 1:
        raise Invalid(f"there are {len(found)} nodes of a baseline in baseline/nodes, where there is one")
    payload = cbor.normalise(found[0].payload)
    if problems := Schema(BUILTIN[BASELINE]).problems(payload):
        raise Invalid(f"its baseline breaks the schema: {problems[0]}")
    if problem := name_problem(payload["suite"]):
        raise Invalid(f"the name {one_line(payload['suite'], 40)!r} of its suite {problem}")
    return Baseline(payload)


def _crew(files: _Files, what: str) -> Definition:
    """The crew in a tree. The ZIP that a package came in is left out where somebody has changed its files."""
    from uwf_git.ext.crews.compile import compile_crew
    from uwf_git.ext.crews.package import MAX_ARCHIVE, MAX_FILES, MAX_TOTAL, from_files, read_archive
    from uwf_git.ext.crews.registry import Definition

    package = from_files(what, dict(files.below(layout.PACKAGE.rstrip("/"), MAX_FILES, MAX_TOTAL)))
    if files.has(layout.ARCHIVED_PACKAGE):
        with contextlib.suppress(Invalid):
            archived = read_archive(files.read(layout.ARCHIVED_PACKAGE, MAX_ARCHIVE), what)
            if archived.files == package.files:
                package = package._replace(archive=archived.archive)
    return Definition(package, compile_crew(package))


class _Files:
    """The files of a tree that may be anybody's making: what is no plain file, or too large, is refused
    before it is read."""

    def __init__(self, repository: Repository, root: Oid, what: str) -> None:
        self._repository = repository
        self._root = root
        self._what = what

    def has(self, name: str) -> bool:
        """Whether there is something of that name at the top."""
        return any(entry.name == name for entry in _entries(self._repository, self._root, self._what))

    def names(self, path: str) -> list[str]:
        """What is in a folder. Raises NotFound, Invalid."""
        folder = self._root
        for part in path.split("/"):
            folder = self._folder(folder, part)
        return [entry.name for entry in _entries(self._repository, folder, self._what)]

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes:
        """A file's content. Raises NotFound, Invalid, and TooLarge beyond the limit in bytes."""
        folder = self._root
        *folders, name = path.split("/")
        for part in folders:
            folder = self._folder(folder, part)
        return self._content(path, self._entry(folder, name), limit)

    def below(self, path: str, most: int, limit: int) -> Iterator[tuple[str, bytes]]:
        """Every file below a folder, by its path from there. Raises NotFound, Invalid for more files than `most`, and
        TooLarge beyond the limit in bytes for all together."""
        folders = [("", self._folder(self._root, path))]
        for prefix, folder in folders:  # grows while it is walked
            for entry in _entries(self._repository, folder, self._what):
                if entry.is_tree:
                    folders.append((f"{prefix}{entry.name}/", entry.oid))
                else:
                    data = self._content(f"{path}/{prefix}{entry.name}", entry, limit)
                    limit, most = limit - len(data), most - 1
                    yield prefix + entry.name, data
                if most < 0 or len(folders) > COUNT_LIMIT:
                    raise Invalid(f"{self._what} has too many files in {path}")

    def _content(self, path: str, entry: Entry, limit: int) -> bytes:
        if entry.mode not in _FILE_MODES:
            raise Invalid(f"{one_line(path, 80)} is not a file", "links and submodules are not followed")
        return self._repository.read_within(entry.oid, limit)[1]

    def _folder(self, folder: Oid, name: str) -> Oid:
        entry = self._entry(folder, name)
        if not entry.is_tree:
            raise Invalid(f"{one_line(name, 80)} is no folder")
        return entry.oid

    def _entry(self, folder: Oid, name: str) -> Entry:
        entries = _entries(self._repository, folder, self._what)
        entry = next((entry for entry in entries if entry.name == name), None)
        if entry is None:
            raise NotFound(
                f"{self._what} has no {one_line(name, 80)}",
                "a workflow's branch has a workflow.yaml, and a crew's the files of its package in package/",
            )
        return entry


def _entries(repository: Repository, folder: Oid, what: str) -> Sequence[Entry]:
    """What is in a folder that may be anybody's making. Raises Invalid for one that is too large."""
    if repository.header(folder)[1] > LARGEST_FOLDER:
        raise Invalid(f"a folder of {what} has too many entries")
    return repository.tree(folder)


def is_version(
    trial: Versions[Any], instance: Instance, commit: Oid, name: str, after: Oid | None = None
) -> bool:
    """Whether a commit and its forebears are exactly what registering their definitions would have made,
    down to the version `after`, else to one that is known or to the first of all."""
    sound = _comes_after(trial, instance, commit, name, after)
    return sound and not findings_in(instance, trial.prefix + name, commit)


def _comes_after(trial: Versions[Any], instance: Instance, commit: Oid, name: str, after: Oid | None) -> bool:
    repository = instance.store.repository
    for oid in _first_parents(repository, commit):
        if oid == after:
            return True
        row = instance.store.index.commit(oid.raw)
        if row is not None and (row.kind, row.name) != (trial.kind, name):
            return False
        if row is not None and after is None:
            return True
        if row is None and not _is_as_registered(trial, repository, oid, name):
            return False
    return after is None and not repository.commit(oid).parents


def _is_as_registered(trial: Versions[Any], repository: Repository, oid: Oid, name: str) -> bool:
    """Whether a commit has the message and the tree that registering its definition would have made."""
    found = repository.commit(oid)
    try:
        if kind_in(repository, oid) != trial.kind:
            return False
        definition = defined_in(repository, oid, "it")
    except UwfError:
        return False
    return (
        trial.name_of(definition) == name
        and same_version(repository, found.tree, trial.tree(definition))
        and found.message == trial.message(name, trial.node_of(definition))
    )


def _first_parents(repository: Repository, commit: Oid) -> Iterator[Oid]:
    for _ in range(MOST_VERSIONS):
        yield commit
        parents = repository.commit(commit).parents
        if not parents:
            return
        commit = parents[0]


def version_below(trial: Versions[Any], instance: Instance, commit: Oid, name: str) -> Oid | None:
    """The nearest version of a workflow or crew that a commit stands on, where none is registered here."""
    repository = instance.store.repository
    queue, seen = [commit], {commit}
    for oid in queue:  # grows while it is walked
        if oid != commit and is_version(trial, instance, oid, name):
            return oid
        new = [parent for parent in repository.commit(oid).parents if parent not in seen]
        seen.update(new)
        queue += new[: MOST_VERSIONS - len(queue)]
    return None


def same_version(repository: Repository, one: Oid, other: Oid) -> bool:
    """Whether two trees hold the same version. Each has the built-in types of the `uwf` that wrote it."""
    return one == other or _own_content(repository, one) == _own_content(repository, other)


def _own_content(repository: Repository, tree: Oid) -> dict[str, Oid]:
    """What a version's tree has besides built-in types, by path."""
    found: dict[str, Oid] = {}
    folders = [("", tree)]
    for prefix, folder in folders:  # grows while it is walked
        for entry in _entries(repository, folder, "a version"):
            path = prefix + entry.name
            if path in _OF_NODES and entry.is_tree:
                folders.append((f"{path}/", entry.oid))
            elif layout.node_in_path(path) not in BUILTIN:
                found[path] = entry.oid
    return found


def findings_in(instance: Instance, ref: str, commit: Oid) -> tuple[Finding, ...]:
    """What a pull would find wrong with a commit that the ref of a workflow or crew leads to. Where that is nothing,
    what it leads to is known from now on."""
    from uwf_git.verify.whole import Trial

    with contextlib.closing(Trial(instance.store)) as trial:
        return trial.findings(ref, commit)
