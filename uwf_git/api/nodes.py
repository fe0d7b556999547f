"""Working with nodes: types, putting, hashing. `opened` opens the store for types that are not built in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uwf_git.format.types  # noqa: F401 - which puts the types of the format into BUILTIN
from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import nearest
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.ids import Hash, is_hash, parse_hash
from uwf_git.format.node import hash_of, parse_json

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store
    from uwf_git.store.instance import Instance


class Schema(NamedTuple):
    """A JSON Schema, and its node's hash if it is a type."""

    payload: Any
    type: Hash | None


def put(instance: Instance, type_: str, payload: Any) -> Hash:
    """Store and pin a node. Makes `refs/uwf/nodes/<HASH>`. Raises NotFound, Invalid for an invalid payload or
    a secret."""
    from uwf_git.store.indexing import pin

    node = put_as_is(instance, type_of(instance.store, type_), payload, "the payload")
    pin(instance.store, node)
    return node


def hash_as(type_: str, payload: Any, opened: Callable[[], Store]) -> Hash:
    """Return a node's hash without storing it. Raises NotFound, Invalid."""
    kind = _builtin(type_)
    if kind is None and is_hash(type_.strip().upper()):
        kind = parse_hash(type_)
    elif kind is None:
        kind = type_of(opened(), type_)
    return hash_of(kind, payload)


def types(store: Store | None) -> list[dict[str, Any]]:
    """Return built-in types and those of a store, as JSON."""
    types_here: dict[Hash, Any] = dict(BUILTIN)
    if store is not None:
        store.sync()
        for node in store.index.hashes_of_type(META):
            types_here[node] = store.get(node).payload
    return [
        {"hash": item, "title": _title(payload), "builtin": item in BUILTIN}
        for item, payload in types_here.items()
    ]


def schema_of_type(text: str, opened: Callable[[], Store]) -> Schema:
    """Return a type's schema. Raises NotFound, Usage."""
    builtin = _builtin(text)
    if builtin is not None:
        return Schema(BUILTIN[builtin], builtin)
    store = opened()
    node = type_of(store, text)
    return Schema(store.schema(node).payload, node)


def read_schema(text: str, opened: Callable[[], Store]) -> Schema:
    """Return the schema that a text is, or in the file or type that it names. Raises NotFound, Invalid."""
    if text.lstrip().startswith("{") or text.strip() in ("true", "false"):
        return Schema(parse_json(text), None)
    path = Path(text)
    if path.is_file() or "/" in text or path.suffix in (".json", ".yaml", ".yml"):
        from uwf_git.format.cbor import normalise
        from uwf_git.format.yaml12 import read

        return Schema(normalise(read(path).data), None)
    return schema_of_type(text, opened)


def put_as_is(instance: Instance, kind: Hash, payload: Any, what: str) -> Hash:
    """Store a node unchanged, since its hash may be known. Raises Invalid for a secret, and as the store
    does."""
    instance.store.gate(payload, what, "a node")
    return instance.store.put(kind, payload)


def type_of(store: Store, text: str) -> Hash:
    """Return a type by title, hash or unique prefix. Raises NotFound, Usage."""
    builtin = _builtin(text)
    if builtin is not None:
        return builtin
    try:
        return store.complete(text)
    except (NotFound, Invalid) as error:  # too short for a hash, or unknown
        titles = [_title(payload) or "" for payload in BUILTIN.values()]
        raise NotFound(f"no type {text!r}", nearest(text, titles) or error.hint) from None


def _builtin(text: str) -> Hash | None:
    wanted = text.strip().casefold()
    titles = ((node, _title(payload)) for node, payload in BUILTIN.items())
    return next((node for node, title in titles if title and title.casefold() == wanted), None)


def _title(payload: Any) -> str | None:
    title = payload.get("title") if isinstance(payload, dict) else None
    return title if isinstance(title, str) else None
