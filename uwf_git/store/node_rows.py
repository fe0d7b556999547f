"""The row of a node in the index."""

from __future__ import annotations

from typing import NamedTuple

from uwf_git.format.ids import Hash
from uwf_git.format.node import Node
from uwf_git.format.types import traits_of


class NodeRow(NamedTuple):
    """`traits` are those of the node's type, separated by blanks; `blob` is a raw id."""

    hash: Hash
    type: Hash
    blob: bytes
    traits: str


def node_row(name: Hash, node: Node, blob: bytes) -> NodeRow:
    return NodeRow(name, node.type, blob, " ".join(traits_of(node.type, node.payload)))
