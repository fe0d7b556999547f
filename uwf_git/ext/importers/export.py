"""Writing nodes in older programs' form: a storage root with nodes of today's types, registered workflows,
threads, and code workflows' files. `uwf import` reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import one_line
from uwf_git.ext.importers.json_cas import NodeWriter
from uwf_git.format import yaml12
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.node import Node
from uwf_git.format.types import CODE
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


class ExportCounts(NamedTuple):
    """Numbers of workflows and threads, and of nodes `written` and already there."""

    workflows: int
    threads: int
    written: int
    there: int


def export(
    instance: Instance, folder: Path, threads: Iterable[ThreadId] | None, tell: Callable[[int], None]
) -> ExportCounts:
    """Write threads into a storage root; for None those of the project, or outside of one all, with every workflow and
    other node. Files with other content are not touched. `tell` gets the number of nodes. Raises Invalid."""
    if threads is None and instance.threads.projects.here is not None:
        threads = [head.thread for head in instance.threads.meant(archived=True) if isinstance(head, Head)]
    every = instance.threads.all(archived=True) if threads is None else map(instance.threads.head, threads)
    heads = [head for head in every if isinstance(head, Head)]
    names = instance.registry.names() if threads is None else []
    versions = {name: instance.registry.current(name) for name in names}
    past = [each.version.hash for name in names for each in instance.registry.history(name)]
    try:
        writer = NodeWriter(folder / "cas")
        if threads is None:
            instance.store.sync()
            nodes: Iterable[Hash] = [*BUILTIN, *(node for node, _ in instance.store.index.blobs())]
            roots: list[Hash] = []
        else:
            nodes, roots = (), [head.node for head in heads]
        done = 0
        seen: set[Hash] = set()

        def put(node: Hash, content: Node) -> None:
            writer.put(node, content)
            if content.type == CODE:
                _write_bundle(instance, folder, node)

        for node in nodes:
            if node not in seen:
                seen.add(node)
                put(node, instance.store.get(node))
                tell(done := done + 1)
        for root in [*roots, *past]:
            for node, content in instance.store.walk(root, frozenset(seen)):
                if node in seen:  # the walk begins with its root in any case
                    continue
                seen.add(node)
                put(node, content)
                tell(done := done + 1)
        writer.close()
        active = {head.thread: head.node for head in heads if head.archive is None}
        registered = yaml12.dump({name: each.hash for name, each in versions.items()})
        ended = "".join(sorted(_line(head) for head in heads if head.archive))
        for name, text in (
            ("registry.yaml", registered),
            ("threads.yaml", yaml12.dump(dict(sorted(active.items())))),
            ("history.jsonl", ended),
        ):
            _write(folder / name, text.encode("utf-8"))
    except OSError as error:
        raise Invalid(
            f"cannot write to {one_line(str(folder))}: {error.strerror}", "name another folder"
        ) from None
    return ExportCounts(len(versions), len(heads), writer.written, writer.kept)


def _write_bundle(instance: Instance, folder: Path, node: Hash) -> None:
    from uwf_git.workflow.code_workflow import name_in_root

    workflow = instance.registry.workflow(node)
    try:
        instance.registry.commit_for(node)
    except NotFound:  # a node that was put by hand, without a file
        return
    path = folder / "bundles" / name_in_root(workflow)
    path.parent.mkdir(exist_ok=True)
    _write(path, instance.registry.code_of(node))


def _line(head: Head) -> str:
    assert head.archive is not None
    value = {
        "thread": head.thread,
        "workflow": head.row.workflow,
        "head": head.node,
        "completedAt": head.archive.time * 1000,
        "reason": "cancelled" if head.archive.status == "killed" else head.archive.status,
    }
    return json.dumps(value) + "\n"


def _write(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        if path.is_symlink() or path.read_bytes() != data:
            raise Invalid(
                f"{one_line(str(path))} already exists", "name a folder that is new or empty"
            ) from None
