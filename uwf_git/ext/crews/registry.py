"""Registered crews: `refs/uwf/crews/<name>` points at the newest version, with the package byte for byte, its nodes and
a page, in the tree that docs/reference/format.md shows.

A thread begins on a version of a workflow: a commit without a ref, whose `workflow/include/` is the crew's
`package/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.crews import REFS
from uwf_git.ext.crews.crew_node import Crew, CrewWorkflow, parse_crew
from uwf_git.ext.crews.menu import document_of
from uwf_git.ext.crews.package import CLASSIC, definition_of
from uwf_git.plugin import (
    BLOB,
    CREW,
    CREW_DEFINITION,
    OF_THREADS,
    DefinitionOffer,
    Hash,
    Invalid,
    NotFound,
    NotSupportedClassicWorkflow,
    Oid,
    PackageSource,
    RegisteredVersion,
    Stamp,
    StoreDamaged,
    UnknownWorkflow,
    VersionFiles,
    Workflow,
    harmless,
    id_of,
    is_kind,
    layout,
    nearest,
    one_line,
    parse_workflow,
    put_definition,
    version_files,
    walk_tree,
)

if TYPE_CHECKING:
    from uwf_git.ext.crews.compile import CompiledCrew
    from uwf_git.ext.crews.package import Package
    from uwf_git.plugin import Compiled

NODES = "crew/"
PACKAGE = "package/"
ARCHIVED_PACKAGE = "package.bmad"


class Definition(NamedTuple):
    """A crew's package and its compilation."""

    package: Package
    compiled: CompiledCrew


class ResolvedWorkflow(NamedTuple):
    """A workflow at an address `<crew>/<id>`, and its crew's version."""

    version: RegisteredVersion
    crew: Crew
    offered: CrewWorkflow


class Crews(PackageSource[Definition]):
    """The crews of one store."""

    refs = REFS
    kept = "a package"

    def name_of(self, definition: Definition) -> str:
        return definition.compiled.crew.name

    def node_of(self, definition: Definition) -> Hash:
        return definition.compiled.hash

    def message(self, name: str, node: Hash) -> str:
        return crew_message(name, self.crew(node).version, node)

    def write(
        self, definition: Definition, parents: Sequence[Oid], stamp: Stamp | None = None, words: str = ""
    ) -> Oid:
        # A package has hundreds of files: one pack is synced in the time that a few of these would take.
        with self._store.registering(), self._repository.in_bulk():
            return super().write(definition, parents, stamp, words)

    def holds(self, commit: Oid, definition: Definition) -> bool:
        if self._version(commit).hash != definition.compiled.hash:
            return False
        known = self.package(commit)
        return (known.files, known.archive) == (dict(definition.package.files), definition.package.archive)

    def are_same(self, one: RegisteredVersion, other: RegisteredVersion) -> bool:
        # A node says nothing of the documents and the data that a menu only names.
        return one.hash == other.hash and self._folder(one) == self._folder(other)

    def _folder(self, version: RegisteredVersion) -> Oid | None:
        root = self._repository.root(Oid(hex=version.commit))
        return self._repository.file(root, PACKAGE.rstrip("/"))

    def sources(self, definition: Definition) -> Iterator[tuple[str, str, bytes]]:
        from uwf_git.ext.crews.package import hidden_files

        package = definition.package
        for path, data in package.files.items():
            yield path, path, data
        if package.archive is not None:
            for path, data in hidden_files(package.archive):
                yield path, path, data

    def _tree(self, definition: Definition) -> Oid:
        from uwf_git.ext.crews.page import readme

        package, compiled = definition
        nodes: dict[Hash, None] = dict.fromkeys(OF_THREADS)
        with self._store.registering():
            for flow in compiled.workflows.values():
                put_definition(self._store, flow.payload, flow.schemas)
                nodes |= dict.fromkeys((*flow.schemas, flow.hash))
            self._store.put(CREW, compiled.payload, timestamp=0)
        workflows = {flow.hash: flow.workflow for flow in compiled.workflows.values()}
        files: dict[str, bytes | Oid] = {
            ".gitattributes": layout.GITATTRIBUTES,
            "README.md": harmless(readme(compiled.crew, workflows)).encode("utf-8"),
        }
        for path, data in package.files.items():
            files[PACKAGE + path] = self._known(data)
        if package.archive is not None:
            files[ARCHIVED_PACKAGE] = self._known(package.archive)
        for node in (*nodes, compiled.hash):
            files[NODES + layout.node_file(node)] = self._store.blob_of(node)
        return self._repository.write_folder(files)

    @classmethod
    def is_in(cls, files: VersionFiles) -> bool:
        return files.has(PACKAGE.rstrip("/"))

    @classmethod
    def read(cls, files: VersionFiles) -> Definition:
        """The ZIP is dropped if the package's files were changed."""
        from uwf_git.ext.crews.compile import compile_crew
        from uwf_git.ext.crews.package import MAX_ARCHIVE, MAX_FILES, MAX_TOTAL, from_files, read_archive

        package = from_files(files.what, dict(files.below(PACKAGE.rstrip("/"), MAX_FILES, MAX_TOTAL)))
        if files.has(ARCHIVED_PACKAGE):
            with suppress(Invalid):
                archived = read_archive(files.read(ARCHIVED_PACKAGE, MAX_ARCHIVE), files.what)
                if archived.files == package.files:
                    package = package._replace(archive=archived.archive)
        return Definition(package, compile_crew(package))

    @staticmethod
    def compile(definition: bytes, files: Mapping[str, bytes]) -> Compiled:
        from uwf_git.ext.crews.compile import compile_version

        return compile_version(definition, files)

    def _known(self, data: bytes) -> bytes | Oid:
        oid = id_of(BLOB, data)
        return oid if self._repository.has(oid) else data

    # Reading

    def crew(self, node: Hash) -> Crew:
        """Return a Crew node's value. Raises NotFound, Invalid."""
        content = self._store.get(node)
        if not is_kind(content.type, "crew"):
            raise Invalid(f"node {node} is not a crew", "see: uwf crew list")
        return parse_crew(content.payload)

    def workflows(self, crew: Crew) -> dict[Hash, Workflow]:
        """Return a crew's workflows by hash. Raises NotFound, Invalid."""
        nodes = dict.fromkeys(offered.workflow for offered in crew.workflows)
        return {node: parse_workflow(self._store.get(node).payload) for node in nodes}

    def package(self, commit: Oid) -> Package:
        """Return a version's package. Raises StoreDamaged."""
        from uwf_git.ext.crews.package import Package

        top = {entry.name: entry for entry in self._repository.tree(self._repository.root(commit))}
        archive = top.get(ARCHIVED_PACKAGE)
        files = {
            path: self._repository.blob(entry.oid)
            for path, entry in walk_tree(self._repository, top[PACKAGE.rstrip("/")].oid)
        }
        data = self._repository.blob(archive.oid) if archive is not None else None
        return Package(self._version(commit).name, files, data)

    def find(self, address: str) -> ResolvedWorkflow:
        """Return the workflow `<crew>/<id>`, with ~2 in the second version before the newest. Raises NotFound
        and UnknownWorkflow with the nearest name, NotSupportedClassicWorkflow."""
        name, _, rest = address.partition("/")
        id_, tilde, back = rest.rpartition("~")
        is_past = bool(tilde) and back.isdecimal()
        version = self.named(f"{name}~{back}" if is_past else name)
        crew = self.crew(version.hash)
        return ResolvedWorkflow(version, crew, offered_by(crew, id_ if is_past else rest))

    def offers(self, beginning: str = "") -> Iterator[DefinitionOffer]:
        for name in self.names():
            if f"{name}/".startswith(beginning) or beginning.startswith(f"{name}/"):
                version = self.current(name)
                crew = self.crew(version.hash)
                offers = (_offer(version, crew, offered) for offered in crew.workflows)
                yield from (offer for offer in offers if offer.address.startswith(beginning))

    def offer(self, address: str) -> DefinitionOffer:
        return _offer(*self.find(address))

    def begin(self, offer: DefinitionOffer) -> Oid:
        return self.workflow_version(Oid(hex=offer.version.commit), offer.workflow)

    def speakers(self, name: str) -> Iterator[tuple[str, str]]:
        for member in self.crew(self.current(name).hash).members:
            yield member.persona.id, member.persona.name

    # Versions of threads

    def behind(self, name: str, thread: Oid) -> RegisteredVersion:
        """Return the crew's version with a thread's package: the newest, another, or one made from the
        package without a ref. Raises InvalidPackage, StoreDamaged without a package."""
        from uwf_git.ext.crews.compile import compile_crew
        from uwf_git.ext.crews.package import from_files

        package = self._repository.file(self._repository.root(thread), layout.INCLUDED.rstrip("/"))
        if package is None:
            raise StoreDamaged(f"commit {thread} has lost the package of its crew", "see: uwf doctor")
        newest = self._repository.ref(self.prefix + name)
        if newest is not None and self._folder(version := self._version(newest)) == package:
            return version
        files = walk_tree(self._repository, package)
        read = from_files(name, {path: self._repository.blob(entry.oid) for path, entry in files})
        definition = Definition(read, compile_crew(read))
        for row in self._store.index.commits_of(definition.compiled.hash):
            commit = Oid(raw=row.oid)
            if row.kind == self.kind and self._repository.has(commit):
                version = self._version(commit)
                if self._folder(version) == package:
                    return version
        return self._version(self.write(definition, []))

    def workflow_version(self, commit: Oid, workflow: Hash) -> Oid:
        """Return a workflow's version commit for threads, existing or new, without a ref."""
        package = self._repository.file(self._repository.root(commit), PACKAGE.rstrip("/"))
        if package is None:
            raise NotFound(f"commit {commit} holds no {PACKAGE}", "it is not a version of a crew")
        include = layout.INCLUDED.rstrip("/")
        for row in self._store.index.commits_of(workflow):
            version = Oid(raw=row.oid)
            if (
                row.kind == "workflow"
                and self._repository.has(version)
                and self._repository.file(self._repository.root(version), include) == package
            ):
                return version
        content = self._store.get(workflow)
        value = parse_workflow(content.payload)
        assert value.crew is not None
        names = dict.fromkeys(role.schema for role in value.roles.values())
        schemas = {name: self._store.get(name).payload for name in names}
        files = version_files(self._store, value, workflow, schemas)
        files[CREW_DEFINITION] = definition_of(value.crew.name, value.crew.workflow)
        tree = self._repository.graft(self._repository.write_folder(files), include.split("/"), package)
        message = layout.workflow_message(value.name, workflow)
        version = self._repository.write_commit(tree, [], self._repository.user, message)
        self._store.index_commit(version)
        return version


def _offer(version: RegisteredVersion, crew: Crew, offered: CrewWorkflow) -> DefinitionOffer:
    speakers = tuple(member.persona.id for member in crew.members)
    return DefinitionOffer(f"{version.name}/{offered.id}", offered.title, version, offered.workflow, speakers)


def crew_message(name: str, version: str, node: Hash) -> str:
    return layout.message(f"crew {name} {version}", {REFS.trailer: node})


def offered_by(crew: Crew, name: str) -> CrewWorkflow:
    """Return a crew's workflow by id or document path. Raises UnknownWorkflow with the nearest id,
    NotSupportedClassicWorkflow."""
    match = next((offered for offered in crew.workflows if offered.id == name), None)
    match = match or document_of(crew.workflows, name)
    if match is not None:
        return match
    shown = one_line(name, 80)
    if name.casefold().endswith(CLASSIC):
        raise NotSupportedClassicWorkflow(
            f"{shown} is of the classic form, which is not carried out",
            "convert it to workflow.md with a graph and steps",
        )
    hint = nearest(name, [offered.id for offered in crew.workflows]) or f"see: uwf crew show {crew.name}"
    raise UnknownWorkflow(f"crew {crew.name!r} has no workflow {shown!r}", hint)
