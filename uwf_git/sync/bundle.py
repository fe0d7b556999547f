"""Bundles: threads in one file, by `git bundle`.

A bundle isn't shared by everyone, so in a divergence local threads keep their ids, and the bundle's side
becomes a fork.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from uwf_git.base.errors import Invalid, NotFound, RemoteFailed
from uwf_git.format.ids import ThreadId
from uwf_git.git.fsync import sync
from uwf_git.git.program import Git, ReceiveLimitExceeded
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import archives, layout
from uwf_git.store.instance import Instance
from uwf_git.sync.adopt import Adoption
from uwf_git.sync.branches import with_branches
from uwf_git.sync.exposed import objects_of, refuse_secrets
from uwf_git.sync.pull import Pulled
from uwf_git.sync.push import refs_of
from uwf_git.sync.tracking import STREAMED, RemoteListing, listed_lines, receiving, sort_out

_NAME = "=bundle"  # no remote can be called so


def bundle(instance: Instance, git: Git, threads: Iterable[ThreadId], path: Path) -> list[str]:
    """Write threads and their divergences to a file. Return its refs. Moves no ref, except temporary refs of
    folded threads. Raises Invalid for an unusable file or a known secret, RemoteFailed if git fails."""
    repository = instance.store.repository
    wanted = list(threads)
    target = path.expanduser().absolute()
    if target.is_dir() or not target.parent.is_dir():
        raise Invalid(f"cannot write {path}", "name a file in a folder that exists")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    unfolded = _unfold(instance, with_branches(instance, wanted))
    try:
        tips = repository.refs(without=layout.REMOTES)
        refs = sorted(refs_of(instance, wanted) & tips.keys())
        objects = objects_of(git, (tips[ref] for ref in refs)) if instance.redactor else ()
        refuse_secrets(instance, git, {ref: tips[ref] for ref in refs}, objects, "bundle others")
        git.run(
            "bundle", "create", "--quiet", str(temporary), "--stdin", stdin="\n".join(refs).encode() + b"\n"
        )
        sync(temporary)
        temporary.replace(target)
        sync(target.parent)
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}", "name another file") from None
    finally:
        temporary.unlink(missing_ok=True)
        for name, oid in unfolded.items():
            repository.delete_ref(name, oid)
    return refs


def _unfold(instance: Instance, threads: Iterable[ThreadId]) -> dict[str, Oid]:
    """Make refs for folded threads, since a bundle consists of refs. Leftovers are harmless."""
    repository, oids = instance.store.repository, {}
    for thread in threads:
        name = layout.ARCHIVE + thread
        row = instance.store.folded(thread) if repository.ref(name) is None else None
        if row is not None and (tag := archives.tag_again(repository, row.ref, thread)):
            oids[name] = tag
            repository.create_ref(name, tag)
    return oids


def unbundle(instance: Instance, git: Git, path: Path) -> Pulled:
    """Adopt the threads of a bundle after verification. Moves refs as `reconcile` says. Raises NotFound,
    Invalid if it is not a bundle."""
    source = path.expanduser().absolute()
    if not source.is_file():
        raise NotFound(f"no file {path}", "see: uwf bundle --help")
    listed = _listed(instance, git, source)
    with instance.locks.exchange(_NAME):  # which keeps a gc from deleting what no ref leads to yet
        try:
            _unpack(git, instance.store.repository, source, listed.refs.values())
            adoption = Adoption(instance, listed.refs, yields=False)
            adopted, refused = adoption.run()
        except ReceiveLimitExceeded as error:
            raise Invalid(f"{source.name} cannot be read: {error.message}", error.hint) from None
        except RemoteFailed as error:
            raise Invalid(f"{source.name} cannot be read: {error.message}", "copy it once more") from None
    return Pulled(path.name, adopted, refused, listed.strange, steps=adoption.steps)


def _unpack(git: Git, repository: Repository, source: Path, tips: Iterable[Oid]) -> None:
    """Fetch a bundle's objects without its refs. Raises RemoteFailed, also if anything reachable from `tips`
    is missing."""
    with receiving(git, repository):
        progress = ["--progress"] if git.shows_progress else []
        git.run(*STREAMED, "bundle", "unbundle", *progress, str(source), bounded=True)
    wanted = "".join(f"{tip}\n" for tip in tips)
    git.run(
        *("rev-list", "--objects", "--quiet", "--stdin", "--not", "--all"),
        stdin=wanted.encode(),
        bounded=True,
    )


def _listed(instance: Instance, git: Git, source: Path) -> RemoteListing:
    repository = instance.store.repository
    at_most = repository.config.max_refs
    lines = listed_lines(git, "bundle", "list-heads", str(source), between=" ")
    too_many = Invalid(
        f"{source.name} holds more than {at_most:,} refs",
        f"allow more: {repository.config.to_raise('uwf.maxRefs', '1000000')}",
    )
    try:
        listed = sort_out(lines, layout.is_shared_ref, at_most, too_many)
    except RemoteFailed as error:
        raise Invalid(
            f"{source.name} is not a bundle of git: {error.message}", "make one: uwf bundle ID -o FILE"
        ) from None
    if not listed.refs:
        raise Invalid(f"{source.name} holds no threads", "make one that does: uwf bundle ID -o FILE")
    return listed
