"""How heavy nodes are, before they are read: a view reads no more than it can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from uwf_git.engine.spending import Totals
    from uwf_git.format.ids import Hash
    from uwf_git.format.kinds import Detail, TurnRecord
    from uwf_git.store.instance import Instance

LARGEST_IN_A_LINE = 1 << 20
"""Bytes of a node that is read for a line about it."""
LARGEST = 8 << 20
"""Bytes of a node that is read at all."""
TURNS = 200
"""How many turns of a step are read at once."""

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


def verdict_of(instance: Instance, output: Hash) -> str:
    """Return what an output comes to in a few words, or the size of one that is too heavy. Raises NotFound,
    StoreDamaged."""
    from uwf_git.engine.outcome import summary

    if not is_light(instance, output):
        return in_words(weight(instance, output))
    node = instance.store.get(output)
    return summary(instance, node.type, node.payload).text


def weight_of_run(instance: Instance, detail: Hash) -> int:
    """Return the bytes to read for a run's spending. Raises NotFound."""
    own = weight(instance, detail)
    if own > 8 * LARGEST_IN_A_LINE:
        return own
    record = instance.store.detail(detail)
    return own + sum(weight(instance, turn) for turn in set(record.turns)) if record else own


def spent_by(instance: Instance, detail: Detail, failed: bool = False) -> Totals:
    """Return a run's spending by its detail; turns are read only if needed, at most TURNS."""
    from uwf_git.engine.spending import spent

    by_model = detail.extraction.startswith("model:") or not (detail.model or detail.cost)
    turns = detail.turns[:TURNS] if detail.usage is None or by_model else ()
    return spent(detail, filter(None, read_turns(instance, turns)), failed)


def read_turns(instance: Instance, turns: Sequence[Hash]) -> Iterator[TurnRecord | None]:
    """Yield turns, None for one that is too heavy to be shown."""
    from uwf_git.format.kinds import Detail

    for node in turns:
        if not is_light(instance, node):
            yield None
        else:
            yield from instance.store.turns(Detail("", (node,)))


def in_words(size: int) -> str:
    """Format bytes: "12 kB", "3.4 MB"."""
    return f"{max(1, round(size / 1000))} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
