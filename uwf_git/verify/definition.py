"""Checking a workflow version: the source compiles to its node, and the page matches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import NotFound, UwfError
from uwf_git.base.text import harmless, one_line
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.ids import Hash, name_problem
from uwf_git.format.kinds import Code, Workflow, parse_workflow
from uwf_git.format.node import Node, file_id
from uwf_git.format.types import versions
from uwf_git.git.repository import Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.node_rows import NodeRow
from uwf_git.verify.findings import Bad, Located, Report
from uwf_git.verify.nodes import Nodes, check_page, files_below, first_difference, node_files, rows_of
from uwf_git.verify.objects import Objects

if TYPE_CHECKING:
    from uwf_git.workflow.compile import Compiled

SECONDS = 30.0
"""The time limit for compiling a definition."""


class Definition(NamedTuple):
    """A version's workflow. `nodes` are those of its folder, which steps need not repeat; `rows` are for the
    index."""

    hash: Hash
    workflow: Workflow
    nodes: frozenset[Hash]
    rows: tuple[NodeRow, ...] = ()


def check_definition(objects: Objects, nodes: Nodes, tree: bytes, name: Hash, report: Report) -> Definition:
    """Check the definition in a version's tree for the Workflow node `name`. Reports problems; raises Bad if
    there is no workflow."""
    files = files_below(objects, tree, "", report)
    types = versions("workflow")
    blobs, here = read_version(nodes, files, "workflow/", name, "workflow", types, report)
    root = here[name]
    reached = nodes.closure(name, here, lambda _: False, report)
    for extra in here.keys() - reached - BUILTIN.keys():
        path = f"workflow/{layout.node_file(extra)}"
        report("extra-file", f"{path} is not reached by the workflow", Oid(raw=blobs[extra]), path)
    try:
        workflow = parse_workflow(root.payload)
    except UwfError as error:
        raise Bad("breaks-schema", error.message) from None
    definition = workflow.file
    _check_files(objects, files, workflow, blobs, report)
    if workflow.code is None:
        _check_source(objects, files, definition, workflow.kind, name, report)
    else:
        for role in workflow.roles:
            if role.startswith("$") or name_problem(role):
                report(
                    "bad-source", f"the code has a role {one_line(role, 40)!r}, which is not a name of one"
                )
        if definition in files:
            _check_code(objects, files[definition], definition, workflow.code, report)
    _check_page(objects, files, workflow, here, report)
    return Definition(name, workflow, frozenset(here), rows_of(here, blobs))


def read_all(nodes: Nodes, blobs: Mapping[Hash, bytes], report: Report, folder: str = "") -> dict[Hash, Node]:
    """Return the readable nodes of a folder, checked against their types. `folder` is its path, with a slash. Raises
    Bad as `Nodes.check` does."""
    here: dict[Hash, Node] = {}
    for name, blob in blobs.items():
        try:
            here[name] = nodes.read(name, blob)
        except Bad as bad:
            report(bad.code, bad.message, bad.at, f"{folder}{layout.node_file(name)}")

    def is_broken(name: Hash, node: Node) -> bool:
        path = f"{folder}{layout.node_file(name)}"
        try:
            return not nodes.check(name, node, blobs[name], here, Located(report, path))
        except Bad as bad:
            raise Bad(bad.code, bad.message, bad.at, path) from None

    broken = [name for name, node in here.items() if is_broken(name, node)]
    for name in broken:
        del here[name]
    return here


def read_version(
    nodes: Nodes,
    files: Mapping[str, bytes],
    folder: str,
    name: Hash,
    kind: str,
    types: Collection[Hash],
    report: Report,
) -> tuple[Mapping[Hash, bytes], dict[Hash, Node]]:
    """Return the blobs of a version's folder and its readable nodes. Raises Bad if the node `name`, of one of
    the `types`, is missing."""
    blobs = node_files(files, folder)
    path = f"{folder}{layout.node_file(name)}"
    if name not in blobs:
        raise Bad("missing-file", f"there is no {path}", path=path)
    here = read_all(nodes, blobs, report, folder)
    if name not in here:
        raise Bad("missing-node", f"{kind.capitalize()} {name} cannot be read", path=path)
    if here[name].type not in types:
        raise Bad("wrong-kind", f"node {name} is not a {kind.capitalize()}", path=path)
    return blobs, here


def _check_files(
    objects: Objects, files: Mapping[str, bytes], workflow: Workflow, nodes: Iterable[Hash], report: Report
) -> None:
    definition = workflow.file
    node_paths = (f"workflow/{layout.node_file(node)}" for node in nodes)
    plain = {".gitattributes", definition, "workflow/README.md", *node_paths}
    for path in files:
        if path not in plain and (workflow.code is not None or not path.startswith(layout.INCLUDED)):
            report("extra-file", f"{path} does not belong to a workflow version", path=path)
    for path in (definition, "workflow/README.md"):
        if path not in files:
            report("missing-file", f"there is no {path}", path=path)
    check_attributes(objects, files, report)


def check_attributes(objects: Objects, files: Mapping[str, bytes], report: Report) -> None:
    """Report a missing or wrong .gitattributes."""
    blob = files.get(".gitattributes")
    if blob is None:
        report("missing-file", "there is no .gitattributes", path=".gitattributes")
    elif (content := objects.blob(blob)) != layout.GITATTRIBUTES:
        line = first_difference(content, layout.GITATTRIBUTES)
        message = ".gitattributes is not the one of the format"
        report("wrong-page", message, Oid(raw=blob), ".gitattributes", line)


def _check_code(objects: Objects, blob: bytes, path: str, code: Code, report: Report) -> None:
    """Check a code workflow's file against its node. No code is run, so its descriptor isn't checked."""
    content = objects.blob(blob)
    if len(content) != code.size or sha256(content).hexdigest() != code.sha256:
        report("other-source", f"{path} is not the file that the Bundle node names", Oid(raw=blob), path)
    elif file_id(content) != code.id:
        report("other-source", f"{path} has the id {file_id(content)}, not {code.id}", Oid(raw=blob), path)


def _check_source(
    objects: Objects, files: Mapping[str, bytes], definition: str, kind: str, name: Hash, report: Report
) -> None:
    if definition not in files:
        return
    source = Oid(raw=files[definition])
    included = {
        path.removeprefix(layout.INCLUDED): blob
        for path, blob in files.items()
        if path.startswith(layout.INCLUDED)
    }
    try:
        with time_limit(SECONDS):
            compiled = _compiled(objects, definition, kind, files[definition], included)
    except TimeExceeded:
        report("bad-source", f"{definition} takes over {SECONDS:g} s to compile", source, definition)
    except UwfError as error:
        message = f"{definition} does not compile: {error.message}"
        report("bad-source", message, source, definition, line_in(error.message, definition))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        report("bad-source", f"{definition} does not compile: {type(error).__name__}", source, definition)
    else:
        if compiled.hash != name:
            message = f"{definition} compiles to {compiled.hash}, not to {name}"
            report("other-source", message, source, definition)
        for include in included.keys() - compiled.source.includes.keys():
            path = f"{layout.INCLUDED}{include}"
            report("extra-file", f"{path} is not included by {definition}", path=path)


def line_in(message: str, path: str) -> int:
    """Return the line that an error names of a file, 0 for none."""
    match = re.search(rf"{re.escape(path)}:([0-9]{{1,9}}):", message)
    return int(match[1]) if match else 0


def _compiled(
    objects: Objects, definition: str, kind: str, text: bytes, included: Mapping[str, bytes]
) -> Compiled:
    packages = ref_kinds.class_of_packages(kind)
    if packages is not None:
        files = {path: objects.blob(blob) for path, blob in included.items()}
        compiled: Compiled = packages.compile(objects.blob(text), files)
        return compiled
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import parse_source

    def include(path: str) -> bytes:
        if path not in included:
            raise NotFound(f"{layout.INCLUDED}{path} does not exist")
        return objects.blob(included[path])

    return compile_source(parse_source(objects.blob(text), definition, include), recorded=True)


def _check_page(
    objects: Objects,
    files: Mapping[str, bytes],
    workflow: Workflow,
    here: Mapping[Hash, Node],
    report: Report,
) -> None:
    from uwf_git.workflow.diagram import readme

    if "workflow/README.md" not in files:
        return

    def page() -> bytes:
        try:
            return harmless(readme(workflow, schemas)).encode("utf-8")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise Bad("wrong-page", f"its page cannot be made: {type(error).__name__}") from None

    schemas = {node: content.payload for node, content in here.items()}
    check_page(objects, files, "", report, page, name="workflow/README.md", source="the workflow says")
