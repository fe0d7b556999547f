"""What is computed anew for each store though it comes out the same: the files of the schemas that come with uwf, how
they are packed, what they say, and the hashes by which they are verified. That is half of the first call of most tests,
and of each verification, so a process of tests computes it once. Likewise the templates of pages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any, TypeVar

from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.node import Node
from uwf_git.git import bulk, packing, packs
from uwf_git.store import nodes
from uwf_git.verify import nodes as verify_nodes

_Result = TypeVar("_Result")


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

    def by_schema(function: Callable[[Any], _Result]) -> Callable[[Any], _Result]:
        results: dict[int, _Result] = {}

        def remembered(value: Any) -> _Result:
            key = id(value)
            if key not in schemas:
                return function(value)
            if key not in results:
                results[key] = function(value)
            return results[key]

        return remembered

    def remembering(from_blob: Callable[[bytes, str], Node]) -> Callable[[bytes, str], Node]:
        def remembered_node(content: bytes, where: str) -> Node:
            if content in read:
                return read[content]
            node = from_blob(content, where)
            if node.type == META and (schema := own.get(encode(node.payload))) is not None:
                node = read[content] = node._replace(payload=schema)  # its encoding is remembered
            return node

        return remembered_node

    own = {encode(schema): schema for schema in BUILTIN.values()}
    read: dict[bytes, Node] = {}
    for module in (nodes, verify_nodes):
        module.from_blob = remembering(module.from_blob)
    verify_nodes.plain_check = by_schema(verify_nodes.plain_check)
    cbor.encode = by_schema(encode)
    bulk.delta_of = packing.delta_of = remembered_delta
    nodes.to_blob = remembered_file


def remember_templates() -> None:
    """Keep what the templates of pages are compiled to, and compile those of a server."""
    from jinja2 import Environment

    from uwf_git.ext.web import render

    compile_template = Environment.compile
    compiled: dict[tuple[object, ...], CodeType] = {}

    def remembered(self: Environment, source: str, name: str | None = None, filename: Any = None) -> CodeType:
        key = source, name, filename, self.filters.get("when")  # the one in which environments differ
        if key not in compiled:
            compiled[key] = compile_template(self, source, name, filename)
        return compiled[key]

    Environment.compile = remembered  # type: ignore[method-assign, assignment]
    pages = render._environment(live=True)
    for template in pages.list_templates():
        pages.get_template(template)
