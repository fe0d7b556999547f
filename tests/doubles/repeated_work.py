"""What each new store computes anew though it comes out the same: the files of the schemas that come with uwf, and how
they are packed. That is half of the first call of most tests, so a process of tests computes it once.
"""

from __future__ import annotations

from functools import lru_cache

from uwf_git.format.builtin import BUILTIN
from uwf_git.format.node import Node
from uwf_git.git import bulk, packing, packs
from uwf_git.store import nodes


def remember() -> None:
    """Keep the results of these functions, which depend on nothing but their arguments."""
    delta_of, to_blob = lru_cache(1000)(packs.delta_of), nodes.to_blob
    schemas = {id(schema) for schema in BUILTIN.values()}
    files: dict[tuple[int, str, int], bytes] = {}

    def remembered_delta(kind: int, base: bytes, content: bytes) -> bytes:
        return delta_of(kind, base, content)

    def remembered_file(node: Node) -> bytes:
        key = id(node.payload), node.type, node.timestamp
        if key[0] not in schemas:
            return to_blob(node)
        if key not in files:
            files[key] = to_blob(node)
        return files[key]

    bulk.delta_of = packing.delta_of = remembered_delta
    nodes.to_blob = remembered_file
