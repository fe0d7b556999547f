"""How heavy nodes are, before they are read: a view reads no more than it can show."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash
    from uwf_git.store.instance import Instance

LARGEST_IN_A_LINE = 1 << 20
"""Bytes of a node that is read for a line about it."""
LARGEST = 8 << 20
"""Bytes of a node that is read at all."""

_WEIGHTS: WeakKeyDictionary[Instance, dict[Hash, int]] = WeakKeyDictionary()


def weight(instance: Instance, node: Hash) -> int:
    """Return a node's size in bytes without reading it. Raises NotFound."""
    known = _WEIGHTS.setdefault(instance, {})
    if node not in known:
        known[node] = instance.store.repository.size(instance.store.blob_of(node))
    return known[node]


def is_light(instance: Instance, node: Hash) -> bool:
    """Return whether a node is read for a line about it. Raises NotFound."""
    return weight(instance, node) <= LARGEST_IN_A_LINE


def in_words(size: int) -> str:
    """Format bytes: "12 kB", "3.4 MB"."""
    return f"{max(1, round(size / 1000))} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
