"""Checking versions of extensions' definitions.

The `check` of a ref kind is a function of the known records, the commit, its node's hash and the report. It
returns the record, None if a parent was unreadable, and raises Bad if the commit is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from uwf_git.base import extensions
from uwf_git.base.errors import Invalid
from uwf_git.base.extensions import RefKind
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.ids import Hash
from uwf_git.git.repository import Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.index import commit_row
from uwf_git.store.node_rows import NodeRow
from uwf_git.store.node_versions import NodeVersions, checked, message
from uwf_git.verify.definition import check_attributes, read_version
from uwf_git.verify.findings import Bad, Listener, Report
from uwf_git.verify.nodes import check_page, files_below, rows_of
from uwf_git.verify.objects import CommitObject
from uwf_git.verify.verified import Known, Record


class Version(NamedTuple):
    """A version's name, commit message and index rows."""

    name: str
    message: str
    rows: tuple[NodeRow, ...] = ()


Check = Callable[[Known, CommitObject, Hash, Report], "Record | None"]


def check_record(
    known: Known, commit: CommitObject, record: str, node: Hash, report: Report
) -> Record | None:
    """Check a commit of an extension's record by its kind's check. Raises Bad."""
    kind = ref_kinds.kind_of_record(record)
    if kind is None or not (kind.check or kind.versions):
        raise Bad("no-record", f"commit {commit.oid} records a {record}, which this uwf cannot check")
    check: Check = extensions.load(kind.check) if kind.check else check_node_version
    return check(known, commit, node, report)


def check_version(
    kind: RefKind,
    known: Known,
    commit: CommitObject,
    node: Hash,
    report: Report,
    read: Callable[[Report], Version],
) -> Record | None:
    """Check a version's tree with `read`, its message, and the version before. Raises Bad."""
    record = kind.records[0]
    if len(commit.parents) > 2:
        report("wrong-parent", f"a version of a {record} has at most two parents")
    version = known.versions.get((record, commit.tree, node))
    if version is not None:
        known.nodes.rows.extend(version.rows)
    else:
        listener = Listener(report)
        version = read(listener)
        if listener.is_silent:
            known.versions[record, commit.tree, node] = version
    known.message(commit, report, version.message)
    if commit.parents:
        before = known.parent(commit, 0, (record,))
        if before is None:
            return None
        if before.row.name != version.name:
            of = record if kind.name_field == "name" else kind.name_field
            report("wrong-parent", f"the version before is another {of}'s")
    row = commit_row(commit.oid, record, node, commit.parents, commit.time)
    return Record(row._replace(name=version.name), commit.tree)


def check_node_version(known: Known, commit: CommitObject, node: Hash, report: Report) -> Record | None:
    """Check a version of one node: the node and its page. Raises Bad."""
    assert commit.trailers is not None
    kind = ref_kinds.registering(commit.trailers.kind)
    versions: type[NodeVersions] = extensions.load(kind.versions)

    def read(note: Report) -> Version:
        return _read(versions, known, commit, node, note)

    return check_version(kind, known, commit, node, report, read)


def _read(
    versions: type[NodeVersions], known: Known, commit: CommitObject, node: Hash, report: Report
) -> Version:
    record = versions.refs.records[0]
    files = files_below(known.objects, commit.tree, "", report)
    types = (versions.type(),)
    blobs, here = read_version(known.nodes, files, f"{record}/", node, record, types, report)
    for extra in here.keys() - {node, *types} - BUILTIN.keys():
        path = f"{record}/{layout.node_file(extra)}"
        report("extra-file", f"{path} is not of the {record}", Oid(raw=blobs[extra]), path)
    plain = {".gitattributes", "README.md", *(f"{record}/{layout.node_file(blob)}" for blob in blobs)}
    for path in files.keys() - plain:
        report("extra-file", f"{path} does not belong to a version of a {record}", path=path)
    check_attributes(known.objects, files, report)
    try:
        payload = checked(versions, here[node].payload)
    except Invalid as error:
        raise Bad("wrong-name", error.message) from None
    name = str(payload[versions.refs.name_field])
    check_page(
        known.objects, files, "", report, lambda: _page(versions, payload), source=f"the {record} says"
    )
    return Version(name, message(record, versions.refs.trailer, name, node), rows_of(here, blobs))


def _page(versions: type[NodeVersions], payload: Mapping[str, Any]) -> bytes:
    try:
        return versions.page(payload)
    except (Exception, SystemExit) as error:  # an extension's code, and a payload that anybody may have made
        raise Bad("wrong-page", f"its page cannot be made: {type(error).__name__}") from None
