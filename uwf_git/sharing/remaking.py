"""Objects that follow from others, made again: pages, trees, the nodes of a workflow from its definition, and where the
user who made them and the time zone are still the same, commits and archive tags.

What wrote them once is run once more, over a repository that keeps what is written in memory and moves no ref. An
object made so counts only where it comes out as exactly the one that is missed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from uwf_git.engine.status import decide_at
from uwf_git.errors import UwfError
from uwf_git.git.objects import Person, id_of, tag_text
from uwf_git.git.repository import TAG, Oid, Repository
from uwf_git.sharing.places import Found, Place
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.index import CommitRow, Overlay
from uwf_git.store.taking_in import Store
from uwf_git.store.threads import Threads
from uwf_git.store.versions import Registry
from uwf_git.values.ids import Hash, ThreadId
from uwf_git.values.kinds import parse_detail, parse_start, parse_step
from uwf_git.values.types import CODE, is_kind
from uwf_git.verify.damage import problem_with

_STUMBLES = (ValueError, LookupError, TypeError, OverflowError, RecursionError)
_NOBODY = ThreadId("0" * 26)


class Remade(Place):
    """What can be made again of the past of some commits, as the index knows it."""

    def __init__(self, store: Store, tips: Collection[bytes]) -> None:
        super().__init__("the rest of the store", store.repository.config.max_blob)
        self._store = store
        self._tips = tips
        self._made: Mapping[Oid, Found] | None = None

    def prepare(self, wanted: Collection[Oid]) -> None:
        if self._made is None:
            repository = _Imagined(self._store.repository.path)
            index = Overlay(self._store.index)
            store = Store(repository, index)
            for row in self._rows():
                try:
                    self._make(repository, store, row)
                except (UwfError, *_STUMBLES):
                    continue  # it needs something that is lost as well
            self._tags(repository)
            index.close()
            self._made = repository.made

    def read(self, oid: Oid) -> Found | None:
        return self._made.get(oid) if self._made else None

    def _rows(self) -> Iterator[CommitRow]:
        """The past of the tips, each commit after those before it."""
        seen: dict[bytes, CommitRow] = {}
        for tip in self._tips:
            chain: list[CommitRow] = []
            at: bytes | None = tip
            while at is not None and at not in seen and (row := self._store.index.commit(at)) is not None:
                chain.append(row)
                at = row.parent
            seen.update((row.oid, row) for row in reversed(chain))
        yield from seen.values()

    def _make(self, repository: _Imagined, store: Store, row: CommitRow) -> None:
        repository.now = row.time
        parent = Oid(raw=row.parent) if row.parent else None
        if row.kind == "workflow":
            _version(store, row.node, Oid(raw=row.oid), [parent] if parent else [])
        elif row.kind == "start" and parent:
            start = parse_start(store.get(row.node).payload)
            Threads(store).start(parent, start.workflow, start.prompt, start.budget or None, start.max_rounds)
        elif row.kind == "step" and row.parent and (before := store.index.commit(row.parent)):
            _step(store, Head(_NOBODY, Oid(raw=row.parent), before, None), row.node)

    def _tags(self, repository: _Imagined) -> None:
        names = {
            ref.oid: name.removeprefix(layout.ARCHIVE)
            for name, ref in self._store.index.tips(layout.ARCHIVE).items()
        }
        for tag in self._store.index.archives().values():
            if thread := names.get(tag.oid):
                said = f"{tag.status}: {tag.reason}" if tag.reason else tag.status
                target = Oid(raw=tag.target)
                repository.keep(
                    TAG, tag_text(layout.tag_name(thread), target, repository.user, tag.time, said + "\n")
                )


def _version(store: Store, node: Hash, commit: Oid, parents: Sequence[Oid]) -> None:
    """A workflow version from its definition, whose tree it is in; its nodes and pages follow from that. The nodes of a
    bundle follow from its code alone, which isn't run for that: they have to be there."""
    from uwf_git.bundles.contract import kept_bundle
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import parse_source

    repository = store.repository
    tree = repository.commit(commit).tree

    def file(path: str) -> bytes:
        oid = repository.file(tree, path)
        if oid is None:
            raise LookupError(path)
        return repository.blob(oid)

    registry = Registry(store)
    if (content := store.get(node)).type == CODE:
        workflow = registry.workflow(node)
        schemas = {role.schema: store.get(role.schema).payload for role in workflow.roles.values()}
        registry.write(kept_bundle(content.payload, schemas, file(workflow.file)), parents)
        return
    source = parse_source(
        file("workflow.yaml"), "workflow.yaml", lambda path: file(f"workflow/include/{path}")
    )
    registry.write(compile_source(source), parents)


def _step(store: Store, head: Head, node: Hash) -> None:
    threads = Threads(store)
    made = parse_step(store.get(node).payload)
    detail = store.get(made.detail)
    history = threads.history(head)
    known = [step.hash for step in history.steps]
    merge = threads.commit_of(made.detail) if is_kind(detail.type, "step") else None
    extraction = parse_detail(detail.payload).extraction if is_kind(detail.type, "detail") else ""
    then = decide_at(history.after(threads.context(node, history.workflow))).next
    threads.append(head, node, known, merge, extraction, then)


class _Imagined(Repository):
    """The repository, but for what is written: that is kept in memory, and no ref is moved. `now` is the time that
    commits are made at, in Unix seconds."""

    def __init__(self, git_dir: Path) -> None:
        super().__init__(git_dir)
        self.made: dict[Oid, Found] = {}
        self.now = 0

    def keep(self, kind: int, data: bytes) -> Oid:
        """Keeps an object by its id."""
        oid = id_of(kind, data)
        self.made[oid] = Found(kind, data)
        return oid

    def _write(self, kind: int, data: bytes) -> Oid:
        return self.keep(kind, data)

    def read(self, oid: Oid) -> tuple[int, bytes]:
        return self.made.get(oid) or super().read(oid)

    def has(self, oid: Oid) -> bool:
        """Whether an object can be read: one that is damaged is made again."""
        return oid in self.made or problem_with(self, oid) is None

    def write_commit(
        self,
        tree: Oid,
        parents: Sequence[Oid],
        author: Person,
        message: str,
        when: int | None = None,
        sign: bool = True,
        committer: Person | None = None,
    ) -> Oid:
        return super().write_commit(tree, parents, author, message, self.now, False, committer)

    def _move(self, name: str, change: object) -> None:
        return None
