"""Threads as one file, by `git bundle`: for mail, and for machines that no network connects.

A bundle has no side that everybody pulls from. So in a divergence the threads that are here keep their
ids, and what the bundle brings besides becomes a thread of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from uwf_git import layout
from uwf_git.adopt import Adopted, Adoption, Refused
from uwf_git.errors import Invalid, NotFound, RemoteFailed
from uwf_git.gitcommand import Git
from uwf_git.ids import ThreadId
from uwf_git.instance import Instance
from uwf_git.listing import MAX_FETCH, MAX_REFS, limit
from uwf_git.pull import Pulled
from uwf_git.push import refs_of
from uwf_git.repository import Oid


def bundle(instance: Instance, git: Git, threads: Iterable[ThreadId], path: Path) -> list[str]:
    """Writes threads, whole and with the other sides of their divergences, to a file. Returns the refs in
    it. Moves no ref. Raises NotFound for a thread that has none, RemoteFailed where git can't."""
    repository = instance.store.repository
    wanted = list(threads)
    refs = sorted(refs_of(instance, wanted) & repository.refs(without=layout.REMOTES).keys())
    for thread in wanted:
        if not any(name.endswith(thread) for name in refs):
            raise NotFound(f"thread {thread} is folded, so it has no ref of its own", "bundle a fork of it")
    target = path.expanduser().absolute()
    if target.is_dir():
        raise Invalid(f"{path} is a folder", "name a file")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        git.run(
            "bundle", "create", "--quiet", str(temporary), "--stdin", stdin="\n".join(refs).encode() + b"\n"
        )
        temporary.replace(target)
    except OSError as error:
        raise Invalid(f"can't write {path}: {error.strerror}", "name another file") from None
    finally:
        temporary.unlink(missing_ok=True)
    return refs


def unbundle(instance: Instance, git: Git, path: Path) -> Pulled:
    """Takes over the threads in a file, verified as those of a remote are. Moves refs as `cases` says, and
    `refs/uwf/remotes/<a name for the while>/…`. Raises NotFound, Invalid for what is no bundle."""
    source = path.expanduser().absolute()
    if not source.is_file():
        raise NotFound(f"no file {path}", "see: uwf bundle --help")
    name = f"bundle-{secrets.token_hex(6)}"
    refs, strange = _listed(instance, git, source)
    try:
        _fetch(instance, git, source, name, refs)
        found = list(Adoption(instance, refs, yields=False).run())
    finally:
        for ref, oid in instance.store.repository.refs(f"{layout.REMOTES}{name}/").items():
            instance.store.repository.delete_ref(ref, oid)
    return Pulled(
        path.name,
        tuple(each for each in found if isinstance(each, Adopted)),
        tuple(each for each in found if isinstance(each, Refused)),
        tuple(strange),
    )


def _listed(instance: Instance, git: Git, source: Path) -> tuple[dict[str, Oid], list[str]]:
    refs: dict[str, Oid] = {}
    strange: list[str] = []
    at_most = limit(instance.store.repository, "uwf.maxRefs", MAX_REFS)
    try:
        for line in git.lines("bundle", "list-heads", str(source)):
            oid, _, name = line.decode("utf-8", "backslashreplace").partition(" ")
            if layout.is_shared_ref(name):
                refs[name] = Oid(hex=oid)
            else:
                strange.append(name)
            if len(refs) + len(strange) > at_most:
                raise Invalid(f"{source.name} holds more than {at_most:,} refs", "git config uwf.maxRefs N")
    except RemoteFailed as error:
        raise Invalid(
            f"{source.name} is no bundle of git: {error.message}", "make one: uwf bundle ID -o FILE"
        ) from None
    if not refs:
        raise Invalid(f"{source.name} holds no threads", "make one that does: uwf bundle ID -o FILE")
    return refs, strange


def _fetch(instance: Instance, git: Git, source: Path, name: str, refs: Iterable[str]) -> None:
    specs = "".join(f"{ref}:{layout.tracking(name, ref)}\n" for ref in refs)
    try:
        git.run(
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--stdin",
            "--",
            str(source),
            stdin=specs.encode(),
            file_limit=limit(instance.store.repository, "uwf.maxFetch", MAX_FETCH),
        )
    except RemoteFailed as error:
        raise Invalid(f"{source.name} can't be read: {error.message}", "copy it once more") from None
