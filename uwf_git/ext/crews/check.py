"""Verifying a crew's version: the package compiles to its nodes, its ZIP has the same files, and the page
matches."""

from __future__ import annotations

from collections.abc import Mapping

from uwf_git.ext.crews import REFS
from uwf_git.ext.crews.compile import compile_crew
from uwf_git.ext.crews.crew_node import Crew, parse_crew
from uwf_git.ext.crews.package import from_files, read_archive
from uwf_git.ext.crews.page import readme
from uwf_git.ext.crews.registry import ARCHIVED_PACKAGE, NODES, PACKAGE, crew_message
from uwf_git.plugin import (
    CHECK_SECONDS,
    BadObject,
    CheckedNodes,
    CheckedVersion,
    CheckReport,
    Hash,
    KnownRecords,
    Node,
    Oid,
    TimeExceeded,
    UwfError,
    VerifiedRecord,
    Workflow,
    check_attributes,
    check_page,
    check_version,
    files_below,
    harmless,
    is_kind,
    layout,
    node_rows_of,
    parse_workflow,
    read_version,
    schemas,
    time_limit,
    type_versions,
    verified_objects,
)

_STUMBLES = (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError)


def check(
    known: KnownRecords, commit: verified_objects.CommitObject, node: Hash, report: CheckReport
) -> VerifiedRecord | None:
    """Check a commit of the Crew node `node`. Raises Bad."""

    def read(note: CheckReport) -> CheckedVersion:
        return _read(known.objects, known.nodes, commit.tree, node, note)

    return check_version(REFS, known, commit, node, report, read)


def _read(
    objects: verified_objects.Objects, nodes: CheckedNodes, tree: bytes, name: Hash, report: CheckReport
) -> CheckedVersion:
    files = files_below(objects, tree, "", report)
    blobs, here = read_version(nodes, files, NODES, name, "crew", type_versions("crew"), report)
    reached = nodes.closure(name, here, lambda _: False, report)
    for extra in here.keys() - reached - schemas.BUILTIN.keys():
        path = f"{NODES}{layout.node_file(extra)}"
        report("extra-file", f"{path} is not reached by the crew", Oid(raw=blobs[extra]), path)
    try:
        crew = parse_crew(here[name].payload)
        workflows = {
            node: parse_workflow(workflow.payload) for node, workflow in _workflows(crew, here).items()
        }
    except UwfError as error:
        raise BadObject("breaks-schema", error.message) from None
    plain = {".gitattributes", "README.md", ARCHIVED_PACKAGE}
    plain |= {NODES + layout.node_file(node) for node in blobs}
    for path in files:
        if path not in plain and not path.startswith(PACKAGE):
            report("extra-file", f"{path} does not belong to a version of a crew", path=path)
    check_attributes(objects, files, report)
    _check_package(objects, files, name, crew.name, report)
    check_page(objects, files, "", report, lambda: _page(crew, workflows), source="the crew says")
    return CheckedVersion(crew.name, crew_message(crew.name, crew.version, name), node_rows_of(here, blobs))


def _workflows(crew: Crew, here: Mapping[Hash, Node]) -> dict[Hash, Node]:
    nodes = {
        offered.workflow: here[offered.workflow] for offered in crew.workflows if offered.workflow in here
    }
    for node, content in nodes.items():
        if not is_kind(content.type, "workflow"):
            raise BadObject("wrong-kind", f"node {node}, a workflow of the crew, is none")
    return nodes


def _check_package(
    objects: verified_objects.Objects, files: Mapping[str, bytes], name: Hash, crew: str, report: CheckReport
) -> None:
    content = {
        path.removeprefix(PACKAGE): objects.blob(blob)
        for path, blob in files.items()
        if path.startswith(PACKAGE)
    }
    archive = objects.blob(files[ARCHIVED_PACKAGE]) if ARCHIVED_PACKAGE in files else None
    try:
        with time_limit(CHECK_SECONDS):
            package = from_files(crew, content, archive)
            for path in content.keys() - package.files.keys():
                hidden = f"{PACKAGE}{path}"
                report("extra-file", f"{hidden} is hidden, so it belongs to no package", path=hidden)
            compiled = compile_crew(package)
            if compiled.hash != name:
                report("other-source", f"the package compiles to {compiled.hash}, not to {name}")
            if archive is not None and read_archive(archive, crew).files != package.files:
                blob = Oid(raw=files[ARCHIVED_PACKAGE])
                message = f"{ARCHIVED_PACKAGE} holds other files than {PACKAGE}"
                report("other-source", message, blob, ARCHIVED_PACKAGE)
    except TimeExceeded:
        report("bad-source", f"the package takes over {CHECK_SECONDS:g} s to compile")
    except UwfError as error:
        report("bad-source", f"the package does not compile: {error.message}")
    except _STUMBLES as error:
        report("bad-source", f"the package does not compile: {type(error).__name__}")


def _page(crew: Crew, workflows: Mapping[Hash, Workflow]) -> bytes:
    try:
        return harmless(readme(crew, workflows)).encode("utf-8")
    except _STUMBLES as error:
        raise BadObject("wrong-page", f"its page cannot be made: {type(error).__name__}") from None
