"""What is computed anew for each store though it comes out the same: the files of the schemas that come with uwf, how
they are packed, and the hashes by which they are verified. That is half of the first call of most tests, and of each
verification, so a process of tests computes it once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.node import Node
from uwf_git.git import bulk, packing, packs
from uwf_git.store import nodes


def remember() -> None:
    """Keep the results of these functions, which depend on nothing but their arguments."""
    delta_of, to_blob = lru_cache(1000)(packs.delta_of), nodes.to_blob
    schemas = {id(schema): schema for schema in BUILTIN.values()}  # kept, so that no other gets such an id
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

    encode = cbor.encode
    encoded: dict[int, bytes] = {}

    def remembered_encoding(value: Any) -> bytes:
        key = id(value)
        if key not in schemas:
            return encode(value)
        if key not in encoded:
            encoded[key] = encode(value)
        return encoded[key]

    cbor.encode = remembered_encoding
    bulk.delta_of = packing.delta_of = remembered_delta
    nodes.to_blob = remembered_file
