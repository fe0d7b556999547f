"""Importing an older storage root: workflows with versions, threads with times, all nodes.

Original nodes are unchanged. Nodes of our types are made from them: a Workflow as by `workflow put`, a
StartNode, and per step an output of the role's schema, a detail and a StepNode. The detail names and
references the original step, so its nodes travel with the thread.

Everything, including commits, follows from the source alone, so every import gives the same ids. Refs move
once their objects are stored, so an interrupted import has whole threads and can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from uwf_git.ext.importers.bundles import OldBundles, take_bundles
from uwf_git.ext.importers.folder import Folder, SkippedItem
from uwf_git.ext.importers.intake import Imported, Intake, stamp
from uwf_git.ext.importers.storage import OldNodes, OldStorage
from uwf_git.ext.importers.threads import Threads
from uwf_git.ext.importers.workflows import is_workflow, of_nodes, take_registered
from uwf_git.plugin import Hash, Instance, Invalid, kept_indexed, layout, schemas

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
    bundles: OldBundles


@contextmanager
def opened(root: Path) -> Iterator[OldRoot]:
    """Open a storage root. Raises NotFound, Invalid."""
    with closing(Folder.open(root)) as folder:
        storage, bundles = OldStorage(folder), OldBundles(folder)
        if storage.is_empty and bundles.is_empty:
            raise Invalid(
                f"{folder.name} is not a storage root of an earlier program",
                "it has cas/, registry.yaml, threads.yaml, history.jsonl, or workflow.yaml and bundles/",
            )
        yield OldRoot(storage, bundles)


def take(
    instance: Instance,
    old: OldRoot,
    dry: bool = False,
    tell: Tell = lambda what, done, of: None,
) -> Imported:
    """Import a storage root. Makes and moves `refs/uwf/workflows/*`, `threads/*`, `archive/*` and `nodes/*`;
    with `dry` nothing. `tell` gets progress."""
    storage, bundles = old
    nodes = OldNodes(storage.nodes)
    versions = _read_all(nodes, tell)
    intake = Intake(instance, nodes, dry)
    workflows = of_nodes(intake)
    threads = Threads(intake, workflows)
    with intake:
        take_registered(intake, workflows, storage.workflows, versions)
        for done, thread in enumerate(sorted(storage.threads.values())):
            tell("Taking threads", done, len(storage.threads))
            threads.take(thread)
        code = take_bundles(intake, bundles)
        _take_the_rest(intake, tell)
    broken = (SkippedItem("node", name, why) for name, why in nodes.problems.items())
    refused = (SkippedItem("node", node, why) for node, why in intake.originals.problems.items())
    untaken = (*storage.problems, *bundles.problems, *intake.untaken, *sorted(broken), *sorted(refused))
    return Imported(
        (*workflows.taken, *code),
        tuple(threads.taken),
        len(nodes),
        intake.originals.taken,
        tuple(sorted(intake.extras)),
        tuple(intake.warnings),
        tuple(dict.fromkeys(untaken)),
    )


def _read_all(nodes: OldNodes, tell: Tell) -> dict[str, list[Hash]]:
    """Verify all nodes; return the Workflow nodes by name, oldest first."""
    workflows: dict[str, list[tuple[int, Hash]]] = {}
    total, done = len(nodes), 0

    def count() -> None:
        nonlocal done
        done += 1
        tell("Reading nodes", done, total)

    for node, content in nodes.verify(count):
        if is_workflow(content.payload):
            workflows.setdefault(content.payload["name"], []).append((content.timestamp, node))
    return {name: [node for _, node in sorted(versions)] for name, versions in workflows.items()}


def _take_the_rest(intake: Intake, tell: Tell) -> None:
    originals = intake.originals
    waiting = [node for node in intake.nodes if originals.is_loose(node)]
    roots: list[tuple[Hash, int]] = []
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
        if group and size + count > _LISTED:
            _list(intake, group)
            group, size = [], 0
        group.append(node)
        size += count
    if group:
        _list(intake, group)


def _list(intake: Intake, nodes: list[Hash]) -> None:
    type_ = intake.store.put(schemas.META, LIST_SCHEMA, 0)
    when = max(intake.nodes.get(node).timestamp for node in nodes)
    _pin(intake, intake.store.put(type_, nodes, when), when)


def _pin(intake: Intake, node: Hash, when: int) -> None:
    ref = layout.PINS + node
    if intake.repository.ref(ref) is None:
        intake.refs[ref] = kept_indexed(intake.store, node, stamp(when))
    intake.rest()
