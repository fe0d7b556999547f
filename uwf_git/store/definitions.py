"""Kinds of definition in a store, from the classes named in `ref_kinds`: workflows, and those of extensions,
such as crews and baselines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from uwf_git.base import extensions
from uwf_git.format.casting import Cast
from uwf_git.format.ids import name_problem
from uwf_git.format.kinds import parse_workflow
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import ref_kinds
from uwf_git.store.version_files import VersionFiles
from uwf_git.store.versions import Packages, Registry, Versions

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash
    from uwf_git.store.indexing import Store


def class_of(kind: str) -> type[Versions[Any]]:
    """Return the class of a kind of definition: "workflow", "crew", "baseline"."""
    kind_of_versions: type[Versions[Any]] = extensions.load(ref_kinds.registering(kind).versions)
    return kind_of_versions


def versions_of(store: Store, kind: str) -> Versions[Any]:
    """Return a store's definitions of a kind."""
    return class_of(kind)(store)


def kind_in(repository: Repository, commit: Oid, what: str = "the branch") -> str:
    """Return the kind of definition in a commit's tree, "workflow" by default. Raises Invalid for an
    oversized tree."""
    files = VersionFiles(repository, repository.commit(commit).tree, what)
    workflow = ref_kinds.WORKFLOWS.records[0]
    others = (kind for kind in ref_kinds.versioned() if kind != workflow)
    return next((kind for kind in others if class_of(kind).is_in(files)), workflow)


def packages(store: Store) -> Iterator[Packages[Any]]:
    """Yield the registered kinds of definition that hold several workflows each."""
    for kind, row in ref_kinds.versioned().items():
        if row is not ref_kinds.WORKFLOWS and store.repository.ref_names(row.prefix):
            kind_versions = versions_of(store, kind)
            if isinstance(kind_versions, Packages):
                yield kind_versions


def package_at(store: Store, address: str) -> Packages[Any] | None:
    """Return the packages that an address `<package>/<id>` belongs to, None if none is registered."""
    name = address.partition("/")[0]
    if name_problem(name):
        return None
    for kind, row in ref_kinds.versioned().items():
        if store.repository.ref(row.prefix + name) is not None and issubclass(class_of(kind), Packages):
            return versions_of(store, kind)  # type: ignore[return-value]
    return None


def packages_with(store: Store, address: str) -> Packages[Any]:
    """Return the packages that resolve an address, or report that there is no such package."""
    package = package_at(store, address)
    if package is None:
        classes = map(class_of, ref_kinds.versioned())
        package = next(item for item in classes if issubclass(item, Packages))(store)
    return package


def current_cast(store: Store, name: str) -> tuple[Hash, Cast]:
    """Return the version of a workflow that has a name or an address, and its cast. Raises NotFound."""
    speaker = ""
    if "/" in name:
        offer = packages_with(store, name).offer(name)
        version, speaker = offer.workflow, offer.speakers[0]
    else:
        version = Registry(store).current(name).hash
    return version, Cast(parse_workflow(store.get(version).payload), speaker)


def addresses(store: Store) -> list[str]:
    """Return the addresses of all workflows in packages."""
    return [offer.address for package in packages(store) for offer in package.offers()]
