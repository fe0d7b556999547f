"""Trees that grow entry by entry."""

from __future__ import annotations

import random

from uwf_git.git.repository import BLOB_MODE, TREE_MODE, Entry, Oid
from uwf_git.store.instance import Instance

NAMES = ["a", "a.md", "a-b", "ab", "a0", "20xx", "200xx", "20xx.md", "21xx", "é", "a b"]
TREES = 60


def test_a_tree_is_the_same_whether_its_entries_come_at_once_or_one_by_one(instance: Instance) -> None:
    repository, chosen = instance.store.repository, random.Random(1)
    with repository.in_bulk(keep=False):
        for _ in range(TREES):
            tree, known = None, dict[str, Entry]()
            for name in chosen.choices(
                NAMES, k=30
            ):  # in the place of one of its name, of another kind at times
                new = Entry(chosen.choice([BLOB_MODE, TREE_MODE]), name, Oid(raw=chosen.randbytes(20)))
                known[name] = new
                tree = repository.with_entries(tree, new)
                assert tree == repository.write_tree(known.values())
