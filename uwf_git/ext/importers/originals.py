"""Storing a source's original nodes with everything they reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uwf_git.ext.importers.storage import OldNodes
from uwf_git.plugin import Hash, Node, NodeStore, UwfError, schemas

_BEGUN = "it refers to itself"
_TYPES_OF_TYPES = 3  # the type of a node, of a schema, and of the meta-schema


class Originals:
    """Stores original nodes. `refuse` returns why a valid one is not allowed."""

    def __init__(self, store: NodeStore, nodes: OldNodes, refuse: Callable[[Node], str | None]) -> None:
        self._store = store
        self._nodes = nodes
        self._refuse = refuse
        self._done: dict[Hash, str | None] = {}
        self._reached: dict[Hash, tuple[Hash, ...]] = {}
        self._taken: set[Hash] = set()
        self._held: set[Hash] = set()
        self.referred: set[Hash] = set()
        self._depth = 0

    @property
    def problems(self) -> dict[Hash, str]:
        """Valid nodes that cannot be stored, and why."""
        return {node: why for node, why in self._done.items() if why is not None and node in self._nodes}

    @property
    def taken(self) -> int:
        return len(self._taken)

    def hold(self, nodes: Iterable[Hash]) -> None:
        """Mark nodes as reachable from a future ref."""
        self._held |= self._taken.intersection(nodes)

    def is_loose(self, node: Hash) -> bool:
        """Whether a stored node needs a pin."""
        if node in self._taken:
            return node not in self._held
        return not self._is_here(node)

    def reached(self, node: Hash) -> tuple[Hash, ...] | None:
        """Return an imported node's type and references, None for others."""
        return self._reached.pop(node, None)

    def take(self, root: Hash) -> str | None:
        """Store a node with everything reachable; return why not, or None."""
        pending: list[tuple[Hash, tuple[Hash, ...] | None]] = [(root, None)]
        while pending:
            node, reached = pending.pop()
            if reached is None:
                if not self._is_known(node):
                    self._done[node] = _BEGUN
                    self._done[node] = self._look_at(node, pending)
            else:
                self._done[node] = self._keep(node, reached)
        return self._done.get(root)

    def _is_here(self, node: Hash) -> bool:
        return node in self._done or node in schemas.BUILTIN or self._store.index.node(node) is not None

    def _is_known(self, node: Hash) -> bool:
        if not self._is_here(node):
            return False
        if node not in self._done:
            self._done[node] = self._difference(node)
        return True

    def _difference(self, node: Hash) -> str | None:
        if node not in self._nodes:
            return None
        try:
            content = self._nodes.get(node)
            if node in schemas.BUILTIN:
                same = (content.type, content.payload) == (schemas.META, schemas.BUILTIN[node])
                return None if same else "another content has that hash here"
            self._store.keep(node, content)
        except UwfError as error:
            return error.message
        return None

    def _look_at(self, node: Hash, pending: list[tuple[Hash, tuple[Hash, ...] | None]]) -> str | None:
        try:
            content = self._nodes.get(node)
            if problem := self._refuse(content):
                return problem
            reached: tuple[Hash, ...] = ()
            if content.type != node:
                if problem := self._take_type(content.type):
                    return f"its type {content.type}: {problem}"
                reached = (content.type, *self._store.references(content))
        except UwfError as error:
            return error.message
        pending.append((node, reached))
        pending += [(reference, None) for reference in reached[1:] if not self._is_known(reference)]
        return _BEGUN

    def _take_type(self, node: Hash) -> str | None:
        if self._depth > _TYPES_OF_TYPES:
            return "it has a type of a type of a type"
        self._depth += 1
        try:
            return self.take(node)
        finally:
            self._depth -= 1

    def _keep(self, node: Hash, reached: tuple[Hash, ...]) -> str | None:
        for reference in reached:
            if (problem := self._done.get(reference)) is not None:
                return f"it refers to {reference}: {problem}"
        try:
            self._store.keep(node, self._nodes.get(node), reached[1:])
        except UwfError as error:
            return error.message
        self.referred.update(reached)
        self._reached[node] = reached
        self._taken.add(node)
        return None
