"""Committing steps again, after another commit of the step before."""

from __future__ import annotations

from collections.abc import Iterable

from uwf_git.base.errors import StoreDamaged
from uwf_git.git.repository import BLOB_MODE, TREE_MODE, Commit, Entry, Oid, Repository
from uwf_git.store import layout
from uwf_git.store.index import CommitRow
from uwf_git.store.indexing import Store


def put_on(store: Store, base: Oid, rows: Iterable[CommitRow]) -> Oid:
    """Return the last of these steps, committed again after `base`. Moves no ref."""
    repository, onto = store.repository, base
    for row in rows:
        old = repository.commit(Oid(raw=row.oid))
        folder = layout.step_folder(row.number, row.role or "")
        added = repository.file(old.tree, "/".join(folder))
        if added is None:
            raise StoreDamaged(f"commit {Oid(raw=row.oid)} has no folder for its step", "see: uwf verify")
        tree = repository.graft(repository.root(onto), folder, added)
        tree = _with_pages(repository, tree, old)
        onto = repository.rewrite_commit(Oid(raw=row.oid), tree, (onto, *old.parents[1:]), resigns=True)
        store.index_commit(onto)
    return onto


def _with_pages(repository: Repository, tree: Oid, step: Commit) -> Oid:
    before = repository.root(step.parents[0])
    page = repository.file(step.tree, "README.md")
    if page is None or page == repository.file(before, "README.md"):
        return tree
    steps, ours = repository.file(tree, "steps"), repository.file(step.tree, "steps")
    assert steps is not None and ours is not None
    lists = [entry for entry in repository.tree(ours) if not entry.is_tree]
    entries = [Entry(TREE_MODE, "steps", repository.with_entries(steps, *lists))] if lists else []
    return repository.with_entries(tree, Entry(BLOB_MODE, "README.md", page), *entries)
