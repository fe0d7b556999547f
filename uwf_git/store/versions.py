"""Definitions, registered under a name in versions: workflows here, other kinds in extensions. A ref such as
`refs/uwf/workflows/<name>` points at the newest version.

A version's commit has the definition as written, its nodes and a page; its parent is the version before, so a
rollback is a new commit. A second parent is the version's source: a merge on a forge, an accepted proposal,
or the older version of a rollback.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from uwf_git.base.errors import HeadMoved, Invalid, NotFound, StoreDamaged
from uwf_git.base.extensions import RefKind
from uwf_git.base.names import same_file
from uwf_git.base.text import counted, harmless, nearest
from uwf_git.format import cbor
from uwf_git.format.builtin import META
from uwf_git.format.ids import Hash, name_problem
from uwf_git.format.kinds import Code, Workflow, parse_workflow
from uwf_git.format.types import CODE, DEFINITIONS, JAVASCRIPT, OF_THREADS, PYTHON, is_kind, workflow_type
from uwf_git.git.objects import Stamp
from uwf_git.git.repository import Entry, Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.new_record import NewRecord
from uwf_git.store.version_files import VersionFiles

if TYPE_CHECKING:
    from uwf_git.format.node import Node
    from uwf_git.git.objects import Commit
    from uwf_git.store.indexing import Store
    from uwf_git.workflow.compile import Compiled

_PARSED = 64  # workflows that are kept parsed


class Version(NamedTuple):
    """A version. `time` is in Unix seconds; `current` marks the newest."""

    name: str
    hash: Hash
    commit: str
    time: int
    current: bool = True


class PastVersion(NamedTuple):
    """A version in its history. `author` is a name; `back_to` the commit of a rollback's target, `taken_from`
    that of a proposal or forge."""

    version: Version
    author: str
    back_to: str | None = None
    taken_from: str | None = None


class Change(NamedTuple):
    """A difference: a `persona`, `role`, `condition`, `edge` or `setting` was `added`, `removed` or `changed`
    in its `fields`."""

    what: str
    name: str
    change: str
    fields: tuple[str, ...] = ()


def compare(old: Workflow, new: Workflow) -> list[Change]:
    """Return the differences in meaning: settings, then personas, roles, conditions and edges."""
    settings = ("name", "description", "budget")
    changes = [
        Change("setting", setting, "changed")
        for setting in settings
        if getattr(old, setting) != getattr(new, setting)
    ]
    if old.code != new.code:
        code = [(workflow.code or Code("", "", "", 0))._asdict() for workflow in (old, new)]
        fields = [_CODE_FIELDS.get(key, key) for key in code[0] if code[0][key] != code[1][key]]
        changes.append(Change("setting", "code", "changed", tuple(dict.fromkeys(fields))))
    changes += _compared("persona", old.personas, new.personas, _ROLE_FIELDS)
    changes += _compared("role", old.roles, new.roles, _ROLE_FIELDS)
    changes += _compared("condition", old.conditions, new.conditions, {})
    before, after = _edges(old), _edges(new)
    changes += _compared("edge", before, after, _EDGE_FIELDS)
    for source in old.graph:
        kept = [[name for name in edges if edges[name]["source"] == source and name in other]
                for edges, other in ((before, after), (after, before))]  # fmt: skip
        if kept[0] != kept[1]:
            changes.append(Change("edge", f"{source} → …", "changed", ("order",)))
    return changes


_CODE_FIELDS = {"id": "file", "sha256": "file", "size": "file", "max_rounds": "maxRounds"}
_ROLE_FIELDS = {"system_prompt": "systemPrompt", "schema": "schema of its answer"}


def _compared(
    what: str, old: Mapping[str, Any], new: Mapping[str, Any], words: Mapping[str, str]
) -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if name not in old or name not in new:
            yield Change(what, name, "added" if name in new else "removed")
        elif old[name] != new[name]:
            one, other = (it if isinstance(it, dict) else it._asdict() for it in (old[name], new[name]))
            fields = [words.get(key, key) for key in one if one[key] != other[key]]
            yield Change(what, name, "changed", tuple(fields))


_EDGE_FIELDS = {
    "items": "each", "name": "as", "at_once": "atOnce", "most": "max", "on_failure": "onFailure",
    "on_conflict": "onConflict",
}  # fmt: skip


def _edges(workflow: Workflow) -> dict[str, dict[str, Any]]:
    by_source: dict[str, dict[str, Any]] = {}
    for source, edges in workflow.graph.items():
        for edge in edges:
            ground = edge.status or edge.condition
            name = f"{source} → {', '.join(edge.entries)}" + (f" on {ground}" if ground else "")
            by_source.setdefault(name, {"source": source, **edge.fields})
    return by_source


Defined = TypeVar("Defined")
CODE_FILES = (DEFINITIONS[JAVASCRIPT], DEFINITIONS[PYTHON])


class Versions(ABC, Generic[Defined]):
    """The definitions of one kind. `refs` is their ref kind, `kept` the word for their files in messages."""

    refs: ClassVar[RefKind]
    kept: ClassVar[str]

    def __init__(self, store: Store) -> None:
        self._store = store
        self._repository = store.repository
        self.kind = self.refs.records[0]
        self.prefix = self.refs.prefix

    @abstractmethod
    def name_of(self, definition: Defined) -> str: ...

    @abstractmethod
    def node_of(self, definition: Defined) -> Hash: ...

    @abstractmethod
    def holds(self, commit: Oid, definition: Defined) -> bool:
        """Return whether a version has this definition, verbatim. Its tree may differ in built-in types and
        page, which depend on the uwf version."""

    @abstractmethod
    def sources(self, definition: Defined) -> Iterator[tuple[str, str, bytes]]:
        """Yield the files kept as written: the author's path, the kept path, the content."""

    @classmethod
    @abstractmethod
    def is_in(cls, files: VersionFiles) -> bool:
        """Return whether a tree has a version of this kind."""

    @classmethod
    @abstractmethod
    def read(cls, files: VersionFiles) -> Defined:
        """Read a definition from an untrusted tree. Code isn't evaluated: its descriptor must be present.
        Raises Invalid, NotFound, TooLarge, StoreDamaged."""

    @abstractmethod
    def _tree(self, definition: Defined) -> Oid: ...

    def tree(self, definition: Defined) -> Oid:
        """Return a version's tree, with its nodes put. Depends on the definition alone. Raises Invalid if the
        store's gate refuses a file."""
        self.let_in(definition)
        return self._tree(definition)

    def let_in(self, definition: Defined) -> None:
        """Raise Invalid if the store's gate refuses a file."""
        for path, name, data in self.sources(definition):
            self._store.gate(name, "the name of a file", self.kept)
            self._store.gate(data, path, self.kept)

    @abstractmethod
    def message(self, name: str, node: Hash) -> str: ...

    def are_same(self, one: Version, other: Version) -> bool:
        return one.hash == other.hash

    def put(self, definition: Defined) -> Version:
        """Register a definition under its name; unchanged content creates no version. Moves its ref. Raises
        HeadMoved if it keeps moving."""
        name = self.name_of(definition)
        self._store.registers(self.prefix + name)
        for last_try in (False, False, True):
            old = self._repository.ref(self.prefix + name)
            if old is not None and self.holds(old, definition):
                return self._version(old)
            self._store.before_record(NewRecord(self.kind, name))
            if old is None and (other := same_file(name, self.names())):
                raise Invalid(
                    f"{name} and {other}, which is there, are one file on macOS and Windows",
                    f"choose another name, or put it as {other}",
                )
            try:
                with self._store.together():
                    return self.move(name, old, self.write(definition, [old] if old else []))
            except HeadMoved:  # the other version stays in the history, this one comes after it
                if last_try:
                    raise
        raise AssertionError("the last try returns or raises")

    def names(self) -> list[str]:
        names = self._repository.ref_names(self.prefix)
        return sorted(name.removeprefix(self.prefix) for name in names)

    def current(self, name: str) -> Version:
        """Return the newest version of a name. Raises NotFound with the nearest name."""
        oid = None if name_problem(name) else self._repository.ref(self.prefix + name)
        if oid is None:
            hint = nearest(name, self.names()) or f"see: {self.refs.commands} list"
            raise NotFound(f"no {self.kind} {name!r}", hint)
        return self._version(oid)

    def named(self, text: str) -> Version:
        """Return the newest version of a name, or with ~2 the second before it. Raises NotFound."""
        name, tilde, back = text.rpartition("~")
        if not (tilde and back.isdecimal()):
            return self.current(text)
        past = self.history(name)
        if len(back) > 9 or int(back) >= len(past):
            many = counted(len(past), "version")
            hint = f"see: {self.refs.commands} history {name}"
            raise NotFound(f"{self.kind} {name!r} has {many}, so none is {text}", hint)
        return past[int(back)].version

    def history(self, name: str) -> list[PastVersion]:
        """Return a name's versions, newest first."""
        oid: Oid | None = Oid(hex=self.current(name).commit)
        chain: list[tuple[Version, Commit]] = []
        while oid is not None:
            commit = self._repository.commit(oid)
            chain.append((self._version(oid)._replace(current=not chain), commit))
            oid = commit.parents[0] if commit.parents else None
        places = {version.commit: place for place, (version, _) in enumerate(chain)}
        entries = []
        for place, (version, commit) in enumerate(chain):
            source = str(commit.parents[1]) if len(commit.parents) > 1 else None
            is_rollback = source is not None and places.get(source, 0) > place
            author = commit.author.rsplit(" <", 1)[0]
            entries.append(
                PastVersion(version, author, source if is_rollback else None, None if is_rollback else source)
            )
        return entries

    def rollback(self, name: str, to: Hash | None = None) -> Version:
        """Make an older version the newest with a new commit: the newest one of that hash, or the one before
        the last rollback's target. Moves the name's ref. Raises NotFound."""
        entries = self.history(name)
        by_commit = {entry.version.commit: entry for entry in entries}
        now = entries[0].version

        def origin(entry: PastVersion) -> PastVersion:
            while entry.back_to is not None:
                entry = by_commit[entry.back_to]
            return entry

        older = entries if to else entries[entries.index(origin(entries[0])) + 1 :]
        target = next(
            (
                version
                for version in older
                if (version.version.hash == to if to else not self.are_same(version.version, now))
            ),
            None,
        )
        if target is None:
            missing = f"no version {to}" if to else "no older version"
            if older and not to:
                missing += " that differs: those before it are the same as it is now"
            raise NotFound(f"{self.kind} {name!r} has {missing}", f"see: {self.refs.commands} history {name}")
        if self.are_same(target.version, now):
            return now
        self._store.before_record(NewRecord(self.kind, name))
        old, source = Oid(hex=now.commit), Oid(hex=origin(target).version.commit)
        tree = self._repository.commit(source).tree
        return self.move(name, old, self._commit(name, target.version.hash, tree, [old, source]))

    def remove(self, name: str) -> Version:
        """Delete a name's ref; threads keep their version."""
        version = self.current(name)
        self._repository.delete_ref(self.prefix + name, Oid(hex=version.commit))
        return version

    def before(self, commit: Oid) -> Version | None:
        parents = self._repository.commit(commit).parents
        return self._version(parents[0]) if parents else None

    def commit_for(self, node: Hash) -> Oid:
        """Return a version commit of a node. Raises NotFound."""
        return self.commits_for(node)[0]

    def commits_for(self, node: Hash) -> list[Oid]:
        """Return the version commits of a node, oldest first. Raises NotFound."""
        self._store.sync()
        oids = [Oid(raw=row.oid) for row in self._store.index.commits_of(node) if row.kind == self.kind]
        if not oids:
            raise NotFound(f"no {self.kind} {node}", f"see: {self.refs.commands} list")
        return oids

    def write(
        self, definition: Defined, parents: Sequence[Oid], stamp: Stamp | None = None, words: str = ""
    ) -> Oid:
        """Return a version commit without a ref. `parents` are the version before and optionally the source.
        `words` replace the subject."""
        tree = self.tree(definition)
        return self._commit(self.name_of(definition), self.node_of(definition), tree, parents, stamp, words)

    def remake(self, commit: Oid, node: Hash, parents: Sequence[Oid]) -> None:
        """Write a version's nodes again from the files of its tree, to repair it."""
        tree = self._repository.commit(commit).tree
        self.write(self.read(VersionFiles(self._repository, tree, str(commit))), parents)

    def move(self, name: str, old: Oid | None, new: Oid) -> Version:
        """Move a name's ref from `old` to a version commit. Raises HeadMoved."""
        try:
            self._repository.put_ref(self.prefix + name, old, new)
        except HeadMoved:
            raise HeadMoved(
                f"{self.kind} {name!r} was registered by another process meanwhile", "repeat"
            ) from None
        version = self._version(new)
        self._store.moved(self.prefix + name, new, new)
        return version

    def _commit(
        self,
        name: str,
        node: Hash,
        tree: Oid,
        parents: Sequence[Oid],
        stamp: Stamp | None = None,
        words: str = "",
    ) -> Oid:
        by, when = stamp or (self._repository.user, None)
        text = self.message(name, node)
        if words:
            text = layout.in_words(words, text)
        oid = self._repository.write_commit(tree, parents, by, text, when, committer=stamp and by)
        self._store.index_commit(oid)
        return oid

    def _version(self, oid: Oid) -> Version:
        row = self._store.index_commit(oid)
        if row.kind != self.kind or row.name is None:
            raise Invalid(f"commit {oid} is not a {self.kind} version", "delete or restore its ref with git")
        return Version(row.name, row.node, str(oid), row.time)


class Offer(NamedTuple):
    """A workflow in a package's version. `speakers` are the ids of possible personas, the default first."""

    address: str
    title: str
    version: Version
    workflow: Hash
    speakers: tuple[str, ...] = ()


class Packages(Versions[Defined]):
    """Definitions with several workflows, each with an address `<name>/<id>`."""

    @abstractmethod
    def offers(self, beginning: str = "") -> Iterator[Offer]:
        """Yield the workflows of the newest versions whose address has a prefix."""

    @abstractmethod
    def offer(self, address: str) -> Offer:
        """Return the workflow at an address, with ~2 in the second version before the newest. Raises
        NotFound."""

    @abstractmethod
    def begin(self, offer: Offer) -> Oid:
        """Return the version commit for threads of an offered workflow; it has no ref."""

    @abstractmethod
    def speakers(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield ids and names of the newest version's personas, the default first."""

    @staticmethod
    @abstractmethod
    def compile(definition: bytes, files: Mapping[str, bytes]) -> Compiled:
        """Compile a workflow from its file and the package's files. Raises Invalid, NotFound."""


class Registry(Versions["Compiled"]):
    """The workflows of one store, at `refs/uwf/workflows/<name>`."""

    refs = ref_kinds.WORKFLOWS
    kept = "a workflow"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._parsed: dict[Hash, tuple[Node, Workflow]] = {}

    def name_of(self, definition: Compiled) -> str:
        return definition.workflow.name

    def node_of(self, definition: Compiled) -> Hash:
        return definition.hash

    def message(self, name: str, node: Hash) -> str:
        return layout.workflow_message(name, node)

    @classmethod
    def is_in(cls, files: VersionFiles) -> bool:
        return any(files.has(name) for name in DEFINITIONS.values())

    @classmethod
    def read(cls, files: VersionFiles) -> Compiled:
        from uwf_git.workflow.compile import compile_source
        from uwf_git.workflow.source import parse_source

        if code := next((name for name in CODE_FILES if files.has(name)), None):
            return _read_code(files, code)
        name = DEFINITIONS[None]
        included = parse_source(files.read(name), name, lambda path: files.read(layout.INCLUDED + path))
        return compile_source(included, recorded=True)

    def remake(self, commit: Oid, node: Hash, parents: Sequence[Oid]) -> None:
        from uwf_git.workflow.code_workflow import stored_code

        workflow = self.workflow(node)
        packages = ref_kinds.class_of_packages(workflow.kind)
        if packages is not None:
            files = self.files(commit)
            self.write(packages.compile(files.pop(workflow.file), files), parents)
        elif workflow.code is not None:  # the code's description is not evaluated again
            schemas = {role.schema: self._store.get(role.schema).payload for role in workflow.roles.values()}
            payload = self._store.get(node).payload
            self.write(stored_code(payload, schemas, self.source(commit)), parents)
        else:
            super().remake(commit, node, parents)

    def commit_unregistered(self, compiled: Compiled) -> Oid:
        """Return a version commit for a thread started from a file: the newest registered version if equal,
        else one without a ref."""
        for row in self._store.index.commits_of(compiled.hash):
            oid = Oid(raw=row.oid)
            if row.kind == "workflow" and self._repository.has(oid) and self.holds(oid, compiled):
                return oid
        return self.write(compiled, [])

    def holds(self, commit: Oid, definition: Compiled) -> bool:
        source = definition.source
        files = {definition.workflow.file: source.text, **source.includes}
        return self._version(commit).hash == definition.hash and self.files(commit) == files

    def workflow(self, node: Hash) -> Workflow:
        """Return a Workflow node's value. Raises NotFound, Invalid."""
        content = self._store.get(node)
        if not is_kind(content.type, "workflow"):
            raise Invalid(f"node {node} is not a workflow", "see: uwf workflow list")
        known = self._parsed.get(node)
        if known is None or known[0] is not content:  # the store keeps what is read often
            if len(self._parsed) >= _PARSED:
                self._parsed.clear()
            known = self._parsed[node] = content, parse_workflow(content.payload)
        return known[1]

    def source(self, commit: Oid) -> bytes:
        name = self._definition_file(commit)
        blob = self._repository.file(self._repository.commit(commit).tree, name)
        if blob is None:
            raise NotFound(f"commit {commit} holds no {name}")
        return self._repository.blob(blob)

    def code(self, workflow: Workflow, commit: Oid) -> bytes:
        """Return a code workflow's file in a version. Raises StoreDamaged if it doesn't match its Workflow
        node, NotFound if there is none."""
        code = workflow.code
        assert code is not None
        data = self.source(commit)
        if sha256(data).hexdigest() != code.sha256:
            raise StoreDamaged(
                f"{workflow.file} of {commit} is not the file of code {code.id}",
                "see: uwf verify; who has that file can register it again: uwf workflow put FILE",
            )
        return data

    def code_of(self, node: Hash) -> bytes:
        """Return a code workflow's file from any version that has it. Raises StoreDamaged if all differ,
        NotFound without a version."""
        workflow = self.workflow(node)
        first, *others = self.commits_for(node)
        try:
            return self.code(workflow, first)
        except (StoreDamaged, NotFound):
            for commit in others:
                with suppress(StoreDamaged, NotFound):
                    return self.code(workflow, commit)
            raise

    def files(self, commit: Oid) -> dict[str, bytes]:
        """Return the definition as written and its included files, by path. Raises NotFound."""
        files = {self._definition_file(commit): self.source(commit)}
        for path, entry in walk_tree(self._repository, self._repository.commit(commit).tree):
            if path.startswith(layout.INCLUDED):
                files[path.removeprefix(layout.INCLUDED)] = self._repository.blob(entry.oid)
        return files

    def _definition_file(self, commit: Oid) -> str:
        return self.workflow(self._version(commit).hash).file

    def sources(self, definition: Compiled) -> Iterator[tuple[str, str, bytes]]:
        source = definition.source
        yield source.path, definition.workflow.file, source.text
        for path, data in source.includes.items():
            yield path, path, data

    def _tree(self, definition: Compiled) -> Oid:
        with self._store.registering():
            put_definition(self._store, definition.payload, definition.schemas)
        files = version_files(self._store, definition.workflow, definition.hash, definition.schemas)
        files[definition.workflow.file] = definition.source.text
        for path, data in definition.source.includes.items():
            files[layout.INCLUDED + path] = data
        return self._repository.write_folder(files)


def put_definition(store: Store, payload: Any, schemas: Mapping[Hash, Any]) -> Hash:
    """Store a workflow's nodes and return the Workflow node's hash. Without timestamps, so that equal
    definitions have equal trees."""
    for schema in schemas.values():
        store.put(META, schema, timestamp=0)
    return store.put(workflow_type(payload), payload, timestamp=0)


def version_files(
    store: Store, workflow: Workflow, node: Hash, schemas: Mapping[Hash, Any]
) -> dict[str, bytes | Oid]:
    """Return the page and the node files of a workflow's version."""
    from uwf_git.workflow.diagram import readme

    files: dict[str, bytes | Oid] = {
        ".gitattributes": layout.GITATTRIBUTES,
        "workflow/README.md": harmless(readme(workflow, schemas)).encode("utf-8"),
    }
    for schema in (*OF_THREADS, *schemas, node):
        files[f"workflow/{layout.node_file(schema)}"] = store.blob_of(schema)
    return files


def walk_tree(repository: Repository, oid: Oid, prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Yield every file below a tree with its path."""
    for entry in repository.tree(oid):
        path = prefix + entry.name
        if entry.is_tree:
            yield from walk_tree(repository, entry.oid, path + "/")
        else:
            yield path, entry


def _read_code(files: VersionFiles, file: str) -> Compiled:
    from uwf_git.workflow.code_workflow import MAX_BYTES, stored_code

    for other in DEFINITIONS.values():
        if other != file and files.has(other):
            raise Invalid(f"{other} stands beside {file}: a version has one definition")
    text = files.read(file, MAX_BYTES)
    digest = sha256(text).hexdigest()
    nodes = files.nodes("workflow")
    for node in nodes.values():
        if node.type == CODE:
            payload = cbor.normalise(node.payload)
            workflow = parse_workflow(payload)
            if workflow.code is not None and workflow.code.sha256 == digest:
                if (named := workflow.file) != file:
                    raise Invalid(f"{file} was {named}, and is the same still: a bundle keeps its language")
                schemas = {role.schema: nodes[role.schema].payload for role in workflow.roles.values()}
                return stored_code(payload, schemas, text)
    raise Invalid(f"{file} was changed there, and what code says of itself is only known by running it")
