"""Untrusted versions of definitions: reading a commit's definition without running code, and comparing it
with what registering that definition would make."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import Invalid, NotFound, UwfError
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.format.builtin import BUILTIN
from uwf_git.git.repository import Oid, Repository, TooLarge
from uwf_git.store import layout, ref_kinds
from uwf_git.store.definitions import class_of, kind_in
from uwf_git.store.version_files import VersionFiles, entries
from uwf_git.store.versions import CODE_FILES, Versions

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.verify.findings import Finding

MOST_VERSIONS = 1000
SECONDS = 30.0  # for compiling untrusted content


def defined_in(repository: Repository, commit: Oid, what: str, correct: str = "") -> Any:
    """Return the compiled definition in a commit's tree. Code isn't evaluated. Messages name it `what`, and
    tell how to `correct` it. Raises Invalid, and StoreDamaged for bad objects."""
    files = VersionFiles(repository, repository.commit(commit).tree, what)
    try:
        with time_limit(SECONDS):
            return class_of(kind_in(repository, commit, what)).read(files)
    except (Invalid, NotFound, TooLarge) as error:
        raise Invalid(f"{what}: {error.message}", correct) from None
    except TimeExceeded:
        raise Invalid(f"{what} takes over {SECONDS:g} s to compile", correct) from None


def holds_code(repository: Repository, commit: Oid) -> bool:
    """Return whether a commit's tree has a file of code. Raises Invalid for an oversized tree."""
    files = VersionFiles(repository, repository.commit(commit).tree, "the branch")
    return any(files.has(name) for name in CODE_FILES)


def is_version(
    trial: Versions[Any], instance: Instance, commit: Oid, name: str, after: Oid | None = None
) -> bool:
    """Return whether a commit and its ancestors are exactly what registering their definitions would make,
    back to the version `after`, a known one, or the first."""
    sound = _comes_after(trial, instance, commit, name, after)
    return sound and not findings_in(instance, trial.prefix + name, commit)


def _comes_after(trial: Versions[Any], instance: Instance, commit: Oid, name: str, after: Oid | None) -> bool:
    repository = instance.store.repository
    for oid in _first_parents(repository, commit):
        if oid == after:
            return True
        row = instance.store.index.commit(oid.raw)
        if row is not None and (row.kind, row.name) != (trial.kind, name):
            return False
        if row is not None and after is None:
            return True
        if row is None and not _is_as_registered(trial, repository, oid, name):
            return False
    return after is None and not repository.commit(oid).parents


def _is_as_registered(trial: Versions[Any], repository: Repository, oid: Oid, name: str) -> bool:
    commit = repository.commit(oid)
    try:
        if kind_in(repository, oid) != trial.kind:
            return False
        definition = defined_in(repository, oid, "it")
    except UwfError:
        return False
    return (
        trial.name_of(definition) == name
        and same_version(repository, commit.tree, trial.tree(definition))
        and commit.message == trial.message(name, trial.node_of(definition))
    )


def _first_parents(repository: Repository, commit: Oid) -> Iterator[Oid]:
    for _ in range(MOST_VERSIONS):
        yield commit
        parents = repository.commit(commit).parents
        if not parents:
            return
        commit = parents[0]


def version_below(trial: Versions[Any], instance: Instance, commit: Oid, name: str) -> Oid | None:
    """Return the nearest ancestor that is a version, if none is registered here."""
    repository = instance.store.repository
    queue, seen = [commit], {commit}
    for oid in queue:  # grows while it is walked
        if oid != commit and is_version(trial, instance, oid, name):
            return oid
        new = [parent for parent in repository.commit(oid).parents if parent not in seen]
        seen.update(new)
        queue += new[: MOST_VERSIONS - len(queue)]
    return None


def same_version(repository: Repository, one: Oid, other: Oid) -> bool:
    """Return whether two trees have the same version, ignoring built-in types, which depend on the uwf
    version."""
    return one == other or _own_content(repository, one) == _own_content(repository, other)


def _own_content(repository: Repository, tree: Oid) -> dict[str, Oid]:
    oids: dict[str, Oid] = {}
    of_nodes = {path for kind in ref_kinds.versioned() for path in (kind, f"{kind}/nodes")}
    folders = [("", tree)]
    for prefix, folder in folders:  # grows while it is walked
        for entry in entries(repository, folder, "a version"):
            path = prefix + entry.name
            if path in of_nodes and entry.is_tree:
                folders.append((f"{path}/", entry.oid))
            elif layout.node_in_path(path) not in BUILTIN:
                oids[path] = entry.oid
    return oids


def findings_in(instance: Instance, ref: str, commit: Oid) -> tuple[Finding, ...]:
    """Return what a pull would find wrong with a definition's commit. Without findings it is indexed."""
    from uwf_git.verify.whole import ReceivedRefsVerifier

    with contextlib.closing(ReceivedRefsVerifier(instance.store)) as trial:
        return trial.findings(ref, commit)
