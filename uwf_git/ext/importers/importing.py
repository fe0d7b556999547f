"""Importing an older storage root: workflows with versions, threads with times, all nodes.

Original nodes are unchanged. Nodes of our types are made from them: a Workflow as by `workflow put`, a
StartNode, and per step an output of the role's schema, a detail and a StepNode. The detail names and
references the original step, so its nodes travel with the thread.

Everything, including commits, follows from the source alone, so every import gives the same ids. Refs move
once their objects are stored, so an interrupted import has whole threads and can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.ext.importers import definitions
from uwf_git.ext.importers.code import OldCode, take_code
from uwf_git.ext.importers.folder import Folder, SkippedItem
from uwf_git.ext.importers.intake import Imported, Intake, stamp
from uwf_git.ext.importers.json_cas import OldNodes
from uwf_git.ext.importers.storage import OldStorage
from uwf_git.ext.importers.threads import Threads
from uwf_git.ext.importers.workflows import of_nodes, take_registered
from uwf_git.format.builtin import META
from uwf_git.format.ids import Hash
from uwf_git.format.node import hash_of
from uwf_git.store import layout
from uwf_git.store.indexing import keeping
from uwf_git.store.instance import Instance

LIST_SCHEMA = {
    "title": "Imported nodes",
    "description": "Nodes that came along with an import, and that no thread holds.",
    "type": "array",
    "items": {"type": "string", "format": "cas_ref"},
}
_LISTED = 5_000  # nodes that one commit is made for

Tell = Callable[[str, int, int], None]


class OldRoot(NamedTuple):
    """An older storage root: its nodes' part and the first engine's."""

    storage: OldStorage
    code: OldCode


@contextmanager
def opened(root: Path, more: Iterable[Path] = ()) -> Iterator[OldRoot]:
    """Open a storage root; `more` are further folders of nodes. Raises NotFound, Invalid."""
    with ExitStack() as closed:
        folders = []
        for path in (root, *more):
            folders.append(Folder.open(path))
            closed.callback(folders[-1].close)
        storage, code = OldStorage(folders[0], folders[1:]), OldCode(folders[0])
        if storage.is_empty and code.is_empty:
            raise Invalid(
                f"{folders[0].name} is not a storage root of an earlier program",
                "it has cas/, registry.yaml, threads.yaml, history.jsonl, or bundles/ and logs/",
            )
        yield OldRoot(storage, code)


def take(
    instance: Instance,
    old: OldRoot,
    dry: bool = False,
    tell: Tell = lambda what, done, of: None,
) -> Imported:
    """Import a storage root. Makes and moves `refs/uwf/workflows/*`, `threads/*`, `archive/*` and `nodes/*`;
    with `dry` nothing. `tell` gets progress."""
    source, code = old
    nodes = OldNodes(source.folders)
    found = _read_all(nodes, tell)
    intake = Intake(instance, nodes, dry)
    workflows = of_nodes(intake, code.bundles)
    threads = Threads(intake, workflows, source.threads)
    with intake:
        take_registered(intake, workflows, source.workflows, found)
        for done, each in enumerate(sorted(source.threads.values())):
            tell("Taking threads", done, len(source.threads))
            threads.take(each)
        written = take_code(intake, threads, code)
        _take_the_rest(intake, tell)
    broken = (SkippedItem("node", name, why) for name, why in nodes.problems.items())
    refused = (SkippedItem("node", node, why) for node, why in intake.originals.problems.items())
    return Imported(
        (*workflows.taken, *written),
        threads.taken,
        len(nodes),
        intake.originals.taken,
        tuple(sorted(intake.extras)),
        tuple(intake.warnings),
        tuple(
            dict.fromkeys(
                (*source.problems, *code.problems, *intake.untaken, *sorted(broken), *sorted(refused))
            )
        ),
    )


def _read_all(nodes: OldNodes, tell: Tell) -> dict[str, list[Hash]]:
    found: dict[str, list[tuple[int, Hash]]] = {}
    total, done = len(nodes), 0

    def count() -> None:
        nonlocal done
        done += 1
        tell("Reading nodes", done, total)

    for node, content in nodes.verify(("name", "roles", "graph"), count):
        if definitions.is_workflow(content.payload):
            found.setdefault(content.payload["name"], []).append((content.timestamp, node))
    return {name: [node for _, node in sorted(versions)] for name, versions in found.items()}


def _take_the_rest(intake: Intake, tell: Tell) -> None:
    originals = intake.originals
    waiting = [node for node in intake.nodes if originals.is_loose(node)]
    roots: list[tuple[Hash, int]] = []
    lists = hash_of(META, LIST_SCHEMA)
    for done, node in enumerate(waiting):
        tell("Taking nodes", done, len(waiting))
        before = originals.taken
        if originals.take(node) is None:
            roots.append((node, originals.taken - before + 1))
    group: list[Hash] = []
    size = 0
    for node, count in roots:
        if node in originals.referred:
            continue
        if intake.nodes.get(node).type == lists:  # of an import before
            _pin(intake, node, intake.nodes.get(node).timestamp)
            continue
        if group and size + count > _LISTED:
            _list(intake, group)
            group, size = [], 0
        group.append(node)
        size += count
    if group:
        _list(intake, group)


def _list(intake: Intake, nodes: list[Hash]) -> None:
    type_ = intake.store.put(META, LIST_SCHEMA, 0)
    when = max(intake.nodes.get(node).timestamp for node in nodes)
    _pin(intake, intake.store.put(type_, nodes, when), when)


def _pin(intake: Intake, node: Hash, when: int) -> None:
    ref = layout.PINS + node
    if intake.repository.ref(ref) is None:
        intake.refs[ref] = keeping(intake.store, node, stamp(when))
    intake.rest()
