"""Trees whose commits are not here, or never were: a squash, the merge of a forge, the newest commit of a shallow
clone.

A thread's tree is cumulative, so all of its steps are in it. Each is put back into a commit of its own, with the tree
that it must have had, and checked as any record. These commits are never written. They have neither messages nor
authors to be checked, and the thread's page after each step but the last is not known.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.format.builtin import META
from uwf_git.format.credit import Credit
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Step, parse_start, parse_step
from uwf_git.format.node import Node
from uwf_git.format.types import DEFINITIONS, is_kind, versions
from uwf_git.git.config import MAX_BLOB
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, pages, ref_kinds
from uwf_git.store.indexing import Store
from uwf_git.verify.findings import Bad, Finding, Report
from uwf_git.verify.nodes import check_order, node_files, row_of
from uwf_git.verify.objects import (
    FILE,
    FOLDER,
    CommitObject,
    Objects,
    Row,
    mode_problem,
    order_key,
    shown_name,
)
from uwf_git.verify.refs import UNFORESEEN, Verifier
from uwf_git.verify.thread_pages import files_of
from uwf_git.verify.verified import Known, Record
from uwf_git.workflow.turn import gathers_threads

PAGE, STEPS, START, WORKFLOW, ATTRIBUTES = "README.md", "steps", "start", "workflow", ".gitattributes"
THREAD = "thread"
DEFINITION_FILES = frozenset(DEFINITIONS.values())

_STEP = re.compile(rb"([0-9]{4,9})-.+", re.DOTALL)
_HUNDRED = re.compile(rb"([0-9]{2,7})xx")
_LIST = re.compile(rb"([0-9]{2,7})xx\.md")
_KEPT, _SMALL = 64, 1 << 16  # blobs that are kept while a folder is checked, and the bytes of each
_TYPES = {WORKFLOW: versions("workflow"), "crew": versions("crew")}
# Exceptions of parsers on nodes of an allowed type.
_STUMBLES = (UwfError, ValueError, LookupError, TypeError, AttributeError)


class MadeObjects(Objects):
    """Objects, with trees and pages that are in no repository. Ids are what git would give them."""

    def __init__(self, repository: Repository, blob_limit: int = MAX_BLOB) -> None:
        super().__init__(repository, blob_limit)
        self._made_trees: dict[bytes, list[Row]] = {}
        self._recent: dict[bytes, bytes] = {}
        self._attributes = hashlib.sha1(
            b"blob %d\0%s" % (len(layout.GITATTRIBUTES), layout.GITATTRIBUTES)
        ).digest()
        self.commits: set[bytes] = set()
        self.unseen: set[bytes] = set()

    @property
    def attributes(self) -> Row:
        """The row of the .gitattributes that uwf writes."""
        return FILE, ATTRIBUTES.encode(), self._attributes

    def tree(self, raw: bytes) -> list[Row]:
        tree = self._made_trees.get(raw)
        return super().tree(raw) if tree is None else tree

    def blob(self, raw: bytes) -> bytes:
        if raw == self._attributes:
            return layout.GITATTRIBUTES
        known = self._recent.get(raw)
        if known is None:
            known = super().blob(raw)
            if len(self._recent) >= _KEPT:
                self._recent.clear()
            if len(known) < _SMALL:
                self._recent[raw] = known
        return known

    def made_tree(self, rows: Iterable[Row]) -> bytes:
        """Return the id of a tree."""
        ordered = sorted(rows, key=order_key)
        data = b"".join(b"%s %s\0%s" % row for row in ordered)
        raw = hashlib.sha1(b"tree %d\0%s" % (len(data), data)).digest()
        self._made_trees.setdefault(raw, ordered)
        return raw

    def unseen_page(self, number: int, whole: bytes) -> Row:
        """Return the row of the page that the thread of the tree `whole` must have had after a step."""
        raw = hashlib.sha1(b"page %d %s" % (number, whole)).digest()
        self.unseen.add(raw)
        return FILE, PAGE.encode(), raw

    def made_commit(
        self, tree: bytes, parents: Iterable[Oid], kind: str, node: Hash, whole: bytes
    ) -> CommitObject:
        """Return the commit of a record; `whole` is the tree that it was found in."""
        oid = Oid(raw=hashlib.sha1(b"record %s %s %s" % (kind.encode(), tree, whole)).digest())
        self.commits.add(oid.raw)
        return CommitObject(oid, tree, tuple(parents), "", "", 0, layout.Trailers(kind, node), "")

    def is_made(self, oid: str) -> bool:
        """Return whether an id is of something that was made here."""
        raw = bytes.fromhex(oid)
        return raw in self.commits or raw in self._made_trees or raw in self.unseen


class MadeKnown(Known):
    """The records read so far, some of commits that were made."""

    objects: MadeObjects

    def __init__(self, objects: MadeObjects, store: Store) -> None:
        super().__init__(objects, store, fresh=True)
        self.making = False

    def page(
        self,
        files: Mapping[str, bytes],
        path: str,
        report: Report,
        *expected: Callable[[], bytes],
        name: str = PAGE,
    ) -> None:
        if files.get(name) in self.objects.unseen:
            return
        if self.making and name != PAGE and name not in files:
            return  # the whole tree is searched for it at last
        super().page(files, path, report, *expected, name=name)

    def has_parents(self, commit: CommitObject) -> bool:
        return not self.making

    def message(self, commit: CommitObject, report: Report, expected: str) -> None:
        if commit.oid.raw not in self.objects.commits:
            super().message(commit, report, expected)

    def author(self, commit: CommitObject, credit: Credit, report: Report) -> None:
        if commit.oid.raw not in self.objects.commits:
            super().author(commit, credit, report)


class TreeCheck(NamedTuple):
    """What a tree holds: its `kind` ("thread", "workflow", "crew", …), "" for nothing of uwf's; its last record, None
    if it cannot be read; the findings. `children` counts the steps of sub-workflows: whether these had ended, only
    their commits can tell. `own_page` is False if README.md is not the thread's and need not be."""

    kind: str
    record: Record | None = None
    findings: tuple[Finding, ...] = ()
    children: int = 0
    own_page: bool = True


def kind_of_tree(objects: Objects, tree: bytes) -> str:
    """Return what a tree holds: "thread", the record of a definition, or "" for nothing of uwf's."""

    def has_nodes(folder: str) -> bool:
        row = row_of(objects, tree, folder)
        if row is None or row[0] != FOLDER:
            return False
        return any(item[:2] == (FOLDER, b"nodes") for item in objects.tree(row[2]))

    if has_nodes(START):
        return THREAD
    kinds = (kind for kind in ref_kinds.every() if kind.versions or kind.check)
    return next((kind.records[0] for kind in kinds if has_nodes(kind.records[0])), "")


def last_step(objects: Objects, tree: bytes) -> int:
    """Return the greatest number of a step's folder in a tree, 0 for none. Raises Bad."""
    row = row_of(objects, tree, STEPS)
    if row is None or row[0] != FOLDER:
        return 0
    rows = objects.tree(row[2])
    hundreds = [(int(match[1]), item[2]) for item in rows if (match := _HUNDRED.fullmatch(item[1]))]
    if hundreds:
        rows = [*rows, *objects.tree(max(hundreds)[1])]
    return max((int(match[1]) for item in rows if (match := _STEP.fullmatch(item[1]))), default=0)


class TreeHistory:
    """Puts the records of trees back into commits, which the verifier checks."""

    def __init__(self, verifier: Verifier, known: MadeKnown) -> None:
        self._verifier = verifier
        self._known = known

    def check(
        self, tree: bytes, at: CommitObject | Oid, is_record: bool = False, apart: bool = False
    ) -> TreeCheck:
        """Check the tree of the commit `at`. With `is_record` it is its last record's own: its message and author are
        checked too, and from then on it is known to the verifier. With `apart`, other files beside those of uwf are
        not looked at."""
        oid = at if isinstance(at, Oid) else at.oid
        own = at if is_record and isinstance(at, CommitObject) else None
        findings: list[Finding] = []

        def report(code: str, message: str, at: object = None, path: str = "", line: int = 0) -> None:
            where = at if isinstance(at, Oid) else oid
            findings.append(Finding(code, None, None, str(where), message, "", path, line))

        kind, record, children, own_page = "", None, 0, True
        self._known.making = True
        try:
            kind = kind_of_tree(self._known.objects, tree)
            if kind == THREAD:
                thread = _ThreadTree(self._verifier, self._known, tree, own, apart, report)
                record = thread.check()
                children, own_page = thread.children, thread.own_page
                findings = [*thread.findings, *findings]
            elif kind:
                commit = self._version(tree, kind, own, apart)
                record = self._verifier.check_made(commit)
                findings += self._verifier.found(commit.oid)
        except Bad as bad:
            report(bad.code, bad.message, bad.at, bad.path)
        except UNFORESEEN as error:
            report("malformed", f"tree {Oid(raw=tree)}: {type(error).__name__}: {error}")
        finally:
            self._known.making = False
        if record is not None and own is not None:
            record = self._known.records[own.oid.raw] = record._replace(tree=tree)
        is_made = self._known.objects.is_made
        placed = (
            finding._replace(object=str(oid)) if is_made(finding.object) else finding for finding in findings
        )
        return TreeCheck(kind, record, tuple(dict.fromkeys(placed)), children, own_page)

    def _version(self, tree: bytes, kind: str, own: CommitObject | None, apart: bool) -> CommitObject:
        objects = self._known.objects
        if own is not None:
            return own._replace(parents=())
        node = _root_node(self._known, tree, kind)
        if apart and kind == WORKFLOW:
            names = {WORKFLOW, *DEFINITION_FILES}
            rows = [row for row in objects.tree(tree) if row[1].decode("utf-8", "replace") in names]
            tree = objects.made_tree([objects.attributes, *rows])
        return objects.made_commit(tree, (), kind, node, tree)


def _root_node(known: Known, tree: bytes, kind: str) -> Hash:
    """Return a version's node: the one in its folder that no other refers to and that is not a schema. Raises
    Bad."""
    here = _nodes_below(known, tree, kind)
    types = _TYPES.get(kind)
    candidates = [name for name, node in here.items() if (node.type in types if types else node.type != META)]
    if len(candidates) > 1:
        referred = {target for name in candidates for target in known.nodes.references(here[name], here)}
        candidates = [name for name in candidates if name not in referred]
    if len(candidates) != 1:
        message = f"{kind}/nodes holds {len(candidates)} nodes of a {kind}, not one"
        raise Bad("missing-node", message, path=f"{kind}/nodes")
    return candidates[0]


def _nodes_below(known: Known, tree: bytes, folder: str) -> dict[Hash, Node]:
    """Return the readable nodes of a folder of a tree; its check reports the others. Raises Bad."""
    for name in filter(None, (folder, "nodes")):
        row = row_of(known.objects, tree, name)
        if row is None or row[0] != FOLDER:
            path = f"{folder}/nodes" if folder else "nodes"
            raise Bad("missing-file", f"there is no {path}", path=path)
        tree = row[2]
    files = {f"nodes/{name}": oid for name, oid in files_of(known.objects, tree).items()}
    nodes: dict[Hash, Node] = {}
    for name, blob in node_files(files, "").items():
        try:
            nodes[name] = known.nodes.read(name, blob)
        except Bad:
            continue
    return nodes


class _Place(NamedTuple):
    """An entry of a folder of steps, which is there from step `first` on."""

    first: int
    row: Row
    inside: tuple[_Place, ...] = ()


class _ThreadTree:
    """The tree of one thread, put back into its records. `findings` are those of the commits made; others are
    reported."""

    def __init__(
        self,
        verifier: Verifier,
        known: MadeKnown,
        tree: bytes,
        own: CommitObject | None,
        apart: bool,
        report: Report,
    ) -> None:
        self._verifier = verifier
        self._known = known
        self._objects = known.objects
        self._tree = tree
        self._own = own
        self._apart = apart
        self._report = report
        self._hundreds: dict[int, Row] = {}  # whole ones, by their first step
        self.findings: tuple[Finding, ...] = ()
        self.children = 0
        self.own_page = True

    def check(self) -> Record | None:
        """Return the record of the last step, or of the start. Raises Bad."""
        base = self._root()
        start_node, workflow = self._start()
        places = self._places(base)
        last = _last(places)
        version = self._objects.made_commit(self._objects.made_tree(base), (), WORKFLOW, workflow, self._tree)
        record = self._checked(version)
        number, prev, commit = 0, None, version
        while record is not None:
            tree = self._objects.made_tree(self._rows(base, places, number))
            if number == 0:
                commit = self._commit(tree, [commit.oid], "start", start_node, number == last)
            else:
                node, parents = self._step(tree, number, start_node, prev, commit.oid)
                commit = self._commit(tree, parents, "step", node, number == last)
                prev = node
            record = self._checked(commit)
            if number == last:
                break
            number += 1
        if record is not None:
            self._check_front(record, places)
        return record

    def _checked(self, commit: CommitObject) -> Record | None:
        record = self._verifier.check_made(commit)
        self.findings = self._verifier.found(commit.oid)
        return record

    def _commit(
        self, tree: bytes, parents: Sequence[Oid], kind: str, node: Hash, is_last: bool
    ) -> CommitObject:
        if is_last and self._own is not None:
            return self._own._replace(tree=tree, parents=(parents[0], *self._own.parents[1:]))
        return self._objects.made_commit(tree, parents, kind, node, self._tree)

    # The root

    def _root(self) -> list[Row]:
        """Return the rows of the version's tree, reporting entries of a wrong mode."""
        rows = self._objects.tree(self._tree)
        if not self._apart:
            check_order(rows, self._tree, "", self._report)
        kept: list[Row] = []
        for row in rows:
            mode, name, _ = row
            text = name.decode("utf-8", "replace")
            wanted = FOLDER if text in (START, STEPS) else FILE if text == PAGE else None
            if wanted is not None:
                if mode != wanted and not (self._apart and text == PAGE):
                    problem = mode_problem(mode) or ("a folder" if mode == FOLDER else "not a folder")
                    self._report("unsafe-mode", f"{text} is {problem}", Oid(raw=self._tree), text)
            elif not self._apart or text == WORKFLOW or text in DEFINITION_FILES:
                kept.append(row)
        if self._apart:
            kept.append(self._objects.attributes)
        return kept

    def _start(self) -> tuple[Hash, Hash]:
        here = _nodes_below(self._known, self._tree, START)
        starts = [name for name, node in here.items() if is_kind(node.type, "start")]
        if len(starts) != 1:
            message = f"start/nodes holds {len(starts)} StartNodes, not one"
            raise Bad("missing-node", message, path="start/nodes")
        try:
            return starts[0], parse_start(here[starts[0]].payload).workflow
        except _STUMBLES as error:
            message = f"StartNode {starts[0]} cannot be read: {error}"
            raise Bad("breaks-schema", message, path=f"start/{layout.node_file(starts[0])}") from None

    def _rows(self, base: Sequence[Row], places: Sequence[_Place], number: int) -> list[Row]:
        """Return the rows of the tree after a step, 0 for the start."""
        start = row_of(self._objects, self._tree, START)
        assert start is not None
        rows = [*base, start, self._objects.unseen_page(number, self._tree)]
        if number:
            rows.append((FOLDER, STEPS.encode(), self._folder(places, number)))
        return rows

    # Steps

    def _places(self, base: Sequence[Row]) -> list[_Place]:
        """Return the entries of the folder of steps, by the step that added them. Reports others."""
        row = row_of(self._objects, self._tree, STEPS)
        if row is None or row[0] != FOLDER:
            return []
        rows = self._objects.tree(row[2])
        if not rows:
            self._report("extra-file", "steps is an empty folder", Oid(raw=row[2]), STEPS)
        check_order(rows, row[2], "steps/", self._report)
        places: list[_Place] = []
        for item in rows:
            mode, name, _ = item
            path = f"steps/{shown_name(name)}"
            if (match := _STEP.fullmatch(name)) and 0 < int(match[1]) < pages.HUNDRED:
                place: _Place | None = _Place(int(match[1]), item)
            elif match := _HUNDRED.fullmatch(name):
                inside = self._hundred(int(match[1]), item, path) if mode == FOLDER else ()
                place = _Place(inside[0].first, item, inside) if inside else None
            elif (match := _LIST.fullmatch(name)) and mode == FILE:
                place = _Place((int(match[1]) + 1) * pages.HUNDRED, item)
            else:
                place = None
            if place is None:
                self._report("extra-file", f"{path} belongs to no step", Oid(raw=row[2]), path)
            else:
                places.append(place)
        places.sort(key=lambda place: place.first)
        last = _last(places)
        for place in places:
            path = f"steps/{shown_name(place.row[1])}"
            paths = {
                path: place.first,
                **{f"{path}/{shown_name(in_it.row[1])}": in_it.first for in_it in place.inside},
            }
            for extra in (entry for entry, first in paths.items() if first > last):
                message = f"{extra} follows no step {last + 1:04d}: the thread in this tree has {last}"
                self._report("extra-file", message, Oid(raw=row[2]), extra)
        return places

    def _hundred(self, hundred: int, row: Row, path: str) -> tuple[_Place, ...]:
        rows = self._objects.tree(row[2])
        check_order(rows, row[2], f"{path}/", self._report)
        places = []
        for item in rows:
            match = _STEP.fullmatch(item[1])
            if match and hundred > 0 and int(match[1]) in pages.numbers_in(hundred):
                places.append(_Place(int(match[1]), item))
            else:
                inner = f"{path}/{shown_name(item[1])}"
                self._report("extra-file", f"{inner} belongs to no step", Oid(raw=row[2]), inner)
        return tuple(sorted(places, key=lambda place: place.first))

    def _folder(self, places: Sequence[_Place], number: int) -> bytes:
        """Return the id of the folder of steps after a step."""
        rows: list[Row] = []
        for place in places[: bisect_right(places, number, key=lambda place: place.first)]:
            if not place.inside:
                rows.append(place.row)
            elif (whole := self._hundreds.get(place.first)) is not None:
                rows.append(whole)
            else:
                inside = [item.row for item in place.inside if item.first <= number]
                row = FOLDER, place.row[1], self._objects.made_tree(inside)
                if len(inside) == len(place.inside):
                    self._hundreds[place.first] = row
                rows.append(row)
        return self._objects.made_tree(rows)

    def _step(
        self, tree: bytes, number: int, start: Hash, prev: Hash | None, before: Oid
    ) -> tuple[Hash, list[Oid]]:
        """Return the StepNode of a step and the parents of its commit. Raises Bad."""
        folder = self._known.new_folder(tree, (STEPS,), number)
        here = _nodes_below(self._known, folder.tree, "")
        steps: dict[Hash, Step] = {}
        for name, content in here.items():
            if is_kind(content.type, "step"):
                try:
                    steps[name] = parse_step(content.payload)
                except _STUMBLES:
                    continue
        for wanted in ((start, prev), (start,)):
            fitting = [
                name for name, step in steps.items() if (step.start, step.prev)[: len(wanted)] == wanted
            ]
            if fitting:
                break
        else:
            fitting = list(steps)
        if not fitting:
            message = f"{folder.path}nodes has no StepNode"
            raise Bad("missing-node", message, path=f"{folder.path}nodes")
        details = {step.detail for step in steps.values()}
        node = next((name for name in fitting if name not in details), fitting[0])
        parents = [before]
        if gathers_threads(steps[node].role):
            self.children += 1
        elif steps[node].detail in steps:
            self.children += 1
            parents.append(Oid(raw=hashlib.sha1(b"child %s" % tree).digest()))
        return node, parents

    # Pages

    def _check_front(self, last: Record, places: Sequence[_Place]) -> None:
        """Check the thread's page, and that there is a list of each full hundred."""
        top = files_of(self._objects, self._tree)
        if last.step is None:
            title, name = last.row.title or "", self._known.name_of(last)
            expected: list[Callable[[], bytes]] = [lambda: pages.first_thread_page(title, name)]
        else:
            expected = list(self._verifier.thread_pages(last))
        if self._apart:
            page = top.get(PAGE)
            self.own_page = page is not None and self._objects.blob(page) in [make() for make in expected]
        else:
            self._known.page(top, "", self._report, *expected)
        there = {place.row[1].decode("utf-8", "replace") for place in places}
        for hundred in pages.missing_hundreds(last.row.number, there):
            path = pages.past_page_path(hundred)
            self._report("missing-file", f"there is no {path}", path=path)


def _last(places: Iterable[_Place]) -> int:
    """Return the number of the last step that all before it are there for."""
    numbers = {place.first for place in _steps_in(places)}
    last = 0
    while last + 1 in numbers:
        last += 1
    return last


def _steps_in(places: Iterable[_Place]) -> Iterable[_Place]:
    for place in places:
        if place.inside:
            yield from place.inside
        elif _STEP.fullmatch(place.row[1]):
            yield place
