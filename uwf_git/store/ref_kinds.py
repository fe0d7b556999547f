"""The table of ref kinds below `refs/uwf/`. The index, verification, transfer, settling, `doctor` and
messages derive from it.

The core's rows are here, extensions' rows in their manifests. Extensions of other packages are loaded only
for unknown names, or if all kinds are needed. An unknown kind was made by a newer version and is not damage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from uwf_git.base import extensions
from uwf_git.base.extensions import RefKind

TRUST = RefKind(
    "refs/uwf/trust/",
    "policy",
    order=5,
    target="policy",
    settle="policy",
    word="trust",
)
WORKFLOWS = RefKind(
    "refs/uwf/workflows/",
    "name",
    order=10,
    records=("workflow",),
    trailer="Uwf-Workflow",
    name_field="name",
    word="workflow",
    owner="the workflow is called",
    record_parents=1,
    settle="version",
    rule="workflows",
    branches="refs/heads/uwf/workflows/",
    commands="uwf workflow",
    versions="uwf_git.store.versions:Registry",
    made_of="file",
    put="uwf workflow put FILE",
    propose="uwf workflow propose FILE",
    foreign=("workflow/include/",),
)
FORKS = RefKind(
    "refs/uwf/forks/",
    "thread",
    order=30,
    of_thread=True,
    target="fork",
    records=("start", "step"),
    word="fork",
    told="where {} parted from another",
    settle="fork",
    rule="forks",
)
FOLDED = RefKind(
    "refs/uwf/folded/",
    "month",
    order=40,
    target="fold",
    told="the threads that ended in {}",
    settle="fold",
    rule="ends",
)
ARCHIVE = RefKind(
    "refs/uwf/archive/",
    "thread",
    order=50,
    of_thread=True,
    target="end",
    records=("start", "step"),
    settle="thread",
    rule="ends",
    word="head",
)
PAUSED = RefKind(
    "refs/uwf/paused/",
    "thread",
    order=60,
    of_thread=True,
    target="pause",
    records=("start", "step"),
    word="pause",
    told="the pause of {}",
    settle="pause",
    rule="pauses",
)
THREADS = RefKind(
    "refs/uwf/threads/",
    "thread",
    order=70,
    of_thread=True,
    records=("start", "step"),
    settle="thread",
    rule="steps",
    word="head",
)
ATTEMPTS = RefKind(
    "refs/uwf/attempts/",
    "thread",
    order=80,
    of_thread=True,
    records=("attempt",),
    trailer="Uwf-Attempt",
    word="attempts",
    told="the failed attempts of {}",
    settle="attempts",
    rule="attempts",
)
APPROVALS = RefKind(
    "refs/uwf/approvals/",
    "thread",
    order=85,
    of_thread=True,
    records=("approval",),
    trailer="Uwf-Approval",
    word="approvals",
    told="the approvals of {}",
    settle="grow",
    of_people=True,
    rule="answers",
)
PINS = RefKind(
    "refs/uwf/nodes/",
    "node",
    order=90,
    records=("pin",),
    trailer="Uwf-Node",
    word="node",
    record_parents=0,
)
PROPOSALS = RefKind("refs/uwf/proposals/", told="the proposal {}")
RESUMED = RefKind("refs/uwf/resumed/", target="")
REMOVED = RefKind("refs/uwf/removed/", target="")
MERGED = RefKind("refs/uwf/merged/", target="")
REMOTES = RefKind("refs/uwf/remotes/", target="")
REWRITTEN = RefKind("refs/uwf/rewritten/", target="")
WORK = RefKind("refs/uwf/work/", target="")
"""The code of threads, which a project's own remote gets, not one of threads."""

RESERVED = "refs/uwf/local/"
"""Below it each room has a folder of refs that no version of uwf shares, follows or checks unless it knows the room."""

_CORE = (
    TRUST,
    WORKFLOWS,
    FORKS,
    FOLDED,
    ARCHIVE,
    PAUSED,
    THREADS,
    ATTEMPTS,
    APPROVALS,
    PINS,
    PROPOSALS,
    RESUMED,
    REMOVED,
    MERGED,
    REMOTES,
    REWRITTEN,
    WORK,
)
_TRAILERS = {"Uwf-Start": "start", "Uwf-Step": "step", "Uwf-Part": "part"}
"""The trailers of records that several kinds of refs lead to."""
_OF_HEADS = frozenset({*_TRAILERS.values(), "other"})
_SAID = frozenset({"Uwf-Role", "Uwf-Agent", "Uwf-Extraction", "Uwf-Fold", "Uwf-Thread", "Uwf-Project"})
"""The trailers that name no record."""


def kind_of(name: str) -> RefKind | None:
    """Return the kind of a ref, None if unknown."""
    kind = _ours().get(_prefix(name))
    if kind is None and name.startswith("refs/uwf/"):
        kind = _all().get(_prefix(name))
    return kind


def every() -> tuple[RefKind, ...]:
    """Return all kinds, shared ones first in transfer order."""
    return tuple(sorted(_all().values(), key=lambda kind: (not kind.is_shared, kind.order)))


def versioned() -> dict[str, RefKind]:
    """Return the kinds of definitions by record: "workflow", "crew", …"""
    return {kind.records[0]: kind for kind in every() if kind.branches}


def kind_of_record(record: str) -> RefKind | None:
    """Return the kind of refs for a record ("crew", "pin", …), None for records of threads."""
    return _by_record(_ours).get(record) or (None if record in _OF_HEADS else _by_record(_all).get(record))


def rule_for(record: str) -> str:
    """Return what rules of the trust policy call a kind of record besides starts and steps, "" if none is about it."""
    kind = kind_of_record(record)
    return kind.rule if kind is not None else ""


def registering(record: str) -> RefKind:
    """Return the kind of refs that registers versions of a record."""
    kind = kind_of_record(record)
    assert kind is not None and kind.branches, record
    return kind


def class_of_packages(kind: str) -> Any:
    """Return the `store.versions.Packages` class for a kind of workflow, else None."""
    row = _by_record(_ours).get(kind)
    return None if row is None or row is WORKFLOWS else extensions.load(row.versions)


def foreign_folders(record: str) -> tuple[str, ...]:
    """Return the folders of a record's tree whose files are not uwf's."""
    kind = kind_of_record(record)
    return WORKFLOWS.foreign if kind is None else WORKFLOWS.foreign + kind.foreign


def record_of(trailer: str) -> str | None:
    """Return the kind of record of a trailer, else None."""
    kind = _by_trailer(_ours).get(trailer)
    return _by_trailer(_all).get(trailer) if kind is None and may_record(trailer) else kind


def may_record(trailer: str) -> bool:
    """Return whether a trailer may be that of a record, of this version or a newer one."""
    return trailer.startswith("Uwf-") and trailer not in _SAID


def _prefix(name: str) -> str:
    end = name.find("/", len(RESERVED) if name.startswith(RESERVED) else len("refs/uwf/"))
    return name[: end + 1]


@cache
def _ours() -> Mapping[str, RefKind]:
    return {
        kind.prefix: kind
        for kind in (*_CORE, *(kind for extension in extensions.ours() for kind in extension.refs))
    }


@cache
def _all() -> Mapping[str, RefKind]:
    return {**{kind.prefix: kind for extension in extensions.others() for kind in extension.refs}, **_ours()}


@cache
def _by_record(kinds: Callable[[], Mapping[str, RefKind]]) -> Mapping[str, RefKind]:
    return {kind.records[0]: kind for kind in kinds().values() if kind.trailer}


@cache
def _by_trailer(kinds: Callable[[], Mapping[str, RefKind]]) -> Mapping[str, str]:
    return _TRAILERS | {kind.trailer: kind.records[0] for kind in kinds().values() if kind.trailer}
