"""Registered workflows: `refs/uwf/workflows/<name>` points at the newest version's commit.

A version's commit holds the definition as written, its nodes and a page to read; its parent is the
version before, so the ref's history is the version history and a rollback is a new commit. A second parent
is what the version was taken from: a merge on a forge, an accepted proposal, or, where it is an older version of
the same history, the one that was gone back to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.errors import HeadMoved, Invalid, NotFound
from uwf_git.git.objects import Stamp
from uwf_git.git.repository import Entry, Oid, Repository
from uwf_git.store import layout
from uwf_git.store.taking_in import Store
from uwf_git.text import nearest
from uwf_git.values.ids import Hash, name_problem
from uwf_git.values.kinds import Code, Workflow, parse_workflow
from uwf_git.values.types import BUILTIN, META, is_kind, workflow_type

if TYPE_CHECKING:
    from uwf_git.git.objects import Commit
    from uwf_git.workflow.compile import Compiled


INCLUDED = "workflow/include/"


class Version(NamedTuple):
    """One version of a workflow. `time` is Unix seconds; `current` tells the newest."""

    name: str
    hash: Hash
    commit: str
    time: int
    current: bool = True


class PastVersion(NamedTuple):
    """A version in its workflow's history. `author` is a name; `back_to` the commit that a rollback went back
    to, `taken_from` the commit of a proposal or of a forge that the version was made of, where there is one."""

    version: Version
    author: str
    back_to: str | None = None
    taken_from: str | None = None


class Change(NamedTuple):
    """A difference between two definitions: a `role`, `condition`, `edge` or `setting` of that name was `added`,
    `removed` or `changed`, and then in which of its `fields`."""

    what: str
    name: str
    change: str
    fields: tuple[str, ...] = ()


def compare(old: Workflow, new: Workflow) -> list[Change]:
    """What is different in what two definitions mean: settings first, then roles, conditions and edges."""
    settings = ("name", "description", "budget")
    changes = [
        Change("setting", each, "changed") for each in settings if getattr(old, each) != getattr(new, each)
    ]
    if old.code != new.code:
        code = [(workflow.code or Code("", "", "", 0))._asdict() for workflow in (old, new)]
        fields = [_CODE_FIELDS.get(key, key) for key in code[0] if code[0][key] != code[1][key]]
        changes.append(Change("setting", "code", "changed", tuple(dict.fromkeys(fields))))
    changes += _compared("role", old.roles, new.roles, _ROLE_FIELDS)
    changes += _compared("condition", old.conditions, new.conditions, {})
    before, after = _edges(old), _edges(new)
    changes += _compared("edge", before, after, {})
    for source in old.graph:
        kept = [[name for name in edges if edges[name][0] == source and name in other]
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
            one, other = old[name], new[name]
            fields = [words.get(key, key) for key in one._fields if getattr(one, key) != getattr(other, key)]
            yield Change(what, name, "changed", tuple(fields))


class _Edge(NamedTuple):
    """What may change of an edge that goes the same way on the same ground."""

    source: str
    prompt: str | None
    location: str | None
    label: str
    text: str


def _edges(workflow: Workflow) -> dict[str, _Edge]:
    """The edges of a workflow by what people call them, in their order."""
    found: dict[str, _Edge] = {}
    for source, edges in workflow.graph.items():
        for edge in edges:
            ground = edge.status or edge.condition
            name = f"{source} → {edge.role}" + (f" on {ground}" if ground else "")
            found.setdefault(name, _Edge(source, edge.prompt, edge.location, edge.label, edge.text))
    return found


class Registry:
    """The workflows of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._repository = store.repository

    def put(self, compiled: Compiled) -> Version:
        """Registers a definition under its name; unchanged content makes no new version. Moves
        `refs/uwf/workflows/<name>`. Raises HeadMoved when others keep registering meanwhile."""
        name = compiled.workflow.name
        for last_try in (False, False, True):
            old = self._repository.ref(layout.WORKFLOWS + name)
            if old is not None and self.holds(old, compiled):
                return self._version(old)
            new = self._commit(name, compiled.hash, self.tree(compiled), [old] if old else [])
            try:
                return self.move(name, old, new)
            except HeadMoved:  # the other version stays in the history, this one comes after it
                if last_try:
                    raise
        raise AssertionError("the last try returns or raises")

    def commit_unregistered(self, compiled: Compiled) -> Oid:
        """A version commit without a ref, for a thread started straight from a file. The newest
        registered version is used where it is the same."""
        for row in self._store.index.commits_of(compiled.hash):
            oid = Oid(raw=row.oid)
            if row.kind == "workflow" and self._repository.has(oid) and self.holds(oid, compiled):
                return oid
        return self._commit(compiled.workflow.name, compiled.hash, self.tree(compiled), [])

    def holds(self, commit: Oid, compiled: Compiled) -> bool:
        """Whether a version is of that definition, word for word. Its tree may be another: it has the built-in types
        and the page of the `uwf` that registered it."""
        files = {
            compiled.workflow.file: compiled.source.text,
            **compiled.source.includes,
        }
        return self._version(commit).hash == compiled.hash and self.files(commit) == files

    def names(self) -> list[str]:
        """Registered names, sorted."""
        prefix = layout.WORKFLOWS
        return sorted(name.removeprefix(prefix) for name in self._repository.ref_names(prefix))

    def current(self, name: str) -> Version:
        """The newest version of a workflow. Raises NotFound with the nearest name."""
        oid = None if name_problem(name) else self._repository.ref(layout.WORKFLOWS + name)
        if oid is None:
            raise NotFound(f"no workflow {name!r}", nearest(name, self.names()) or "see: uwf workflow list")
        return self._version(oid)

    def history(self, name: str) -> list[PastVersion]:
        """Every version of a workflow, newest first."""
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
        """Makes an older version the newest by a new commit: the newest with that hash, or the one that was
        registered before. After a rollback that is the one before the version it went back to, so each goes further
        back. Moves `refs/uwf/workflows/<name>`. Raises NotFound where there is none."""
        entries = self.history(name)
        by_commit = {entry.version.commit: entry for entry in entries}
        now = entries[0].version

        def origin(entry: PastVersion) -> PastVersion:
            while entry.back_to is not None:
                entry = by_commit[entry.back_to]
            return entry

        older = entries if to else entries[entries.index(origin(entries[0])) + 1 :]
        target = next(
            (each for each in older if (each.version.hash == to if to else each.version.hash != now.hash)),
            None,
        )
        if target is None:
            raise NotFound(
                f"workflow {name!r} has no version {to}" if to else f"workflow {name!r} has no older version",
                f"see: uwf workflow history {name}",
            )
        if target.version.hash == now.hash:
            return now
        old, source = Oid(hex=now.commit), Oid(hex=origin(target).version.commit)
        tree = self._repository.commit(source).tree
        return self.move(name, old, self._commit(name, target.version.hash, tree, [old, source]))

    def remove(self, name: str) -> Version:
        """Deletes `refs/uwf/workflows/<name>`; threads that use it keep it."""
        version = self.current(name)
        self._repository.delete_ref(layout.WORKFLOWS + name, Oid(hex=version.commit))
        return version

    def workflow(self, node: Hash) -> Workflow:
        """The value of a Workflow node. Raises NotFound, Invalid."""
        content = self._store.get(node)
        if not is_kind(content.type, "workflow"):
            raise Invalid(f"node {node} is no workflow", "see: uwf workflow list")
        return parse_workflow(content.payload)

    def source(self, commit: Oid) -> bytes:
        """The definition as its author wrote it."""
        name = self._definition_file(commit)
        blob = self._repository.file(self._repository.commit(commit).tree, name)
        if blob is None:
            raise NotFound(f"commit {commit} holds no {name}")
        return self._repository.blob(blob)

    def files(self, commit: Oid) -> dict[str, bytes]:
        """The definition as its author wrote it and the files that it includes, by path from its folder. Raises
        NotFound."""
        files = {self._definition_file(commit): self.source(commit)}
        for path, entry in walk_tree(self._repository, self._repository.commit(commit).tree):
            if path.startswith(INCLUDED):
                files[path.removeprefix(INCLUDED)] = self._repository.blob(entry.oid)
        return files

    def _definition_file(self, commit: Oid) -> str:
        return self.workflow(self._version(commit).hash).file

    def before(self, commit: Oid) -> Version | None:
        """The version before another; None before the first."""
        parents = self._repository.commit(commit).parents
        return self._version(parents[0]) if parents else None

    def commit_for(self, node: Hash) -> Oid:
        """A version commit of a workflow node. Raises NotFound."""
        self._store.sync()
        for row in self._store.index.commits_of(node):
            if row.kind == "workflow":
                return Oid(raw=row.oid)
        raise NotFound(f"no workflow {node}", "see: uwf workflow list")

    def write(self, compiled: Compiled, parents: Sequence[Oid], stamp: Stamp | None = None) -> Oid:
        """A version commit without a ref. The first of `parents` is the version before, a second one what
        it was taken from, such as a merge on a forge."""
        return self._commit(compiled.workflow.name, compiled.hash, self.tree(compiled), list(parents), stamp)

    def move(self, name: str, old: Oid | None, new: Oid) -> Version:
        """Moves `refs/uwf/workflows/<name>` from `old`, None where there is none, to a version commit.
        Raises HeadMoved where it isn't there."""
        try:
            self._repository.put_ref(layout.WORKFLOWS + name, old, new)
        except HeadMoved:
            raise HeadMoved(
                f"workflow {name!r} was registered by somebody else meanwhile", "repeat"
            ) from None
        version = self._version(new)
        self._store.moved(layout.WORKFLOWS + name, new, new)
        return version

    def tree(self, compiled: Compiled) -> Oid:
        """The tree of a version, with its nodes put. It follows from the definition alone."""
        from uwf_git.workflow.diagram import readme

        nodes = {**BUILTIN, **compiled.schemas}
        with self._store.index.transaction():
            for schema in compiled.schemas.values():
                self._store.put(META, schema, timestamp=0)
            # A definition is what it says, whenever it was registered: timestamps would make every
            # registration of the same file another tree.
            self._store.put(workflow_type(compiled.payload), compiled.payload, timestamp=0)
        files: dict[str, bytes | Oid] = {
            ".gitattributes": layout.GITATTRIBUTES,
            compiled.workflow.file: compiled.source.text,
            "workflow/README.md": readme(compiled.workflow, compiled.schemas).encode("utf-8"),
        }
        for path, data in compiled.source.includes.items():
            files[INCLUDED + path] = data
        for node in (*nodes, compiled.hash):
            files[f"workflow/{layout.node_file(node)}"] = self._store.blob_of(node)
        return self._repository.write_folder(files)

    def _commit(
        self, name: str, node: Hash, tree: Oid, parents: list[Oid], stamp: Stamp | None = None
    ) -> Oid:
        text = layout.workflow_message(name, node)
        by, when = stamp or (self._repository.user, None)
        oid = self._repository.write_commit(tree, parents, by, text, when, committer=stamp and by)
        self._store.take_in(oid)
        return oid

    def _version(self, oid: Oid) -> Version:
        row = self._store.take_in(oid)
        if row.kind != "workflow" or row.name is None:
            raise Invalid(f"commit {oid} is no workflow version", "delete or restore its ref with git")
        return Version(row.name, row.node, str(oid), row.time)


def walk_tree(repository: Repository, oid: Oid, prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Every file below a tree with its path, folders themselves left out."""
    for entry in repository.tree(oid):
        path = prefix + entry.name
        if entry.is_tree:
            yield from walk_tree(repository, entry.oid, path + "/")
        else:
            yield path, entry
