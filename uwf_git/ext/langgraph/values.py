"""Values as LangGraph's serializer has them, as JSON that people can read.

The serializer makes msgpack of a value. That becomes JSON, in which an object with one of these keys stands for what
JSON lacks. Bytes that aren't msgpack, such as encrypted ones, are stored as they are.

    {"$bytes": BASE64}           bytes
    {"$int": "9007199254740993"} an integer that JavaScript can't represent
    {"$float": "1.0"}            a float that is integral, infinite or no number
    {"$map": [[KEY, VALUE], …]}  a map with other keys than texts, or with keys that begin with $
    {"$order": [KEY, …], …}      the order of an object's keys, unless it is alphabetical
    {"$ext": [CODE, VALUE]}      an extension of msgpack that holds msgpack, such as an object's class and fields
    {"$raw": [CODE, BASE64]}     another extension
    {"$typed": [KIND, BASE64]}   a whole value of another kind
    {"$at": "NODE/writes/0"}     the value at this place of an earlier node, by a JSON pointer (RFC 6901)
    {"$items": NODE}             in a list: the items of the list that is the `value` of a node
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import ormsgpack

from uwf_git.plugin import Hash, Invalid, StoreDamaged

Path = tuple[str | int, ...]

_LARGE = 256
"""Bytes from which a value is stored once and referred to."""
_COMPARED = 1 << 16
"""Bytes up to which lists and maps are looked up as a whole; of larger ones their items are."""
GROUP = 8
"""Items of a long list that become a node of their own."""
_DEEPEST = 150
_EXACT = 2**53 - 1
_KEYS = {str, int, float, bool, bytes, type(None)}
_OPTIONS = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_PASSTHROUGH_DATACLASS


@dataclass(frozen=True, slots=True)
class Packed:
    """An extension of msgpack."""

    code: int
    data: bytes


class Place(NamedTuple):
    """A place in the payload of a node."""

    node: Hash
    path: Path

    def __str__(self) -> str:
        return "/".join((self.node, *(str(key).replace("~", "~0").replace("/", "~1") for key in self.path)))

    @classmethod
    def parse(cls, text: str) -> Place:
        node, *path = text.split("/")
        return cls(Hash(node), tuple(key.replace("~1", "/").replace("~0", "~") for key in path))


class Groups:
    """The groups of a long list's first items, each with the node that has it; `joined` are the nodes of groups of
    groups, by what they have."""

    def __init__(self) -> None:
        self.items: list[tuple[list[Any], Hash]] = []
        self.joined: dict[tuple[Hash, ...], Hash] = {}


class NotJson(Exception):
    """A value is nested deeper than a node may be, or has a map with keys that JSON can't have."""


def pack(value: Any) -> bytes:
    """Return a value as msgpack, extensions as they were."""
    data: bytes = ormsgpack.packb(value, default=_extension, option=_OPTIONS)
    return data


def _extension(value: Packed) -> ormsgpack.Ext:
    return ormsgpack.Ext(value.code, value.data)


def unpack(data: bytes) -> Any:
    """Return the value of msgpack. Raises ValueError."""
    return ormsgpack.unpackb(data, ext_hook=Packed, option=ormsgpack.OPT_NON_STR_KEYS)


def key_of(value: Any) -> bytes | None:
    """Return a digest of a value that is worth a reference, else None."""
    kind = type(value)
    if kind is str:
        return sha256(value.encode()).digest() if len(value) >= _LARGE else None
    if kind is Packed:
        return sha256(b"%d " % value.code + value.data).digest() if len(value.data) >= _LARGE else None
    if kind is bytes or kind is list or kind is dict:
        data = pack(value)
        return sha256(data).digest() if _LARGE <= len(data) <= _COMPARED else None
    return None


class Encoder:
    """Makes JSON of values for one node. `parts` are the nodes it refers to; `places` those of the values that earlier
    nodes of the thread have, `put` stores a part of a list."""

    def __init__(self, places: dict[bytes, Place], put: Callable[[Any, Sequence[Hash]], Hash]) -> None:
        self.parts: set[Hash] = set()
        self._places = places
        self._put = put
        self._new: dict[bytes, Path] = {}

    def typed(self, typed: tuple[str, bytes], path: Path, groups: Groups | None = None) -> Any:
        """Return what a serializer made of a value as JSON. `groups` are the known parts of the list at a path."""
        kind, data = typed
        if kind == "null":
            return None
        if kind == "msgpack":
            value = unpack(data)
            if pack(value) == data:
                try:
                    if groups is not None and type(value) is list:
                        return self._items(value, path, groups)
                    return self.value(value, path)
                except NotJson:
                    pass
        return {"$typed": [kind, _text(data)]}

    def refer(self, place: Place) -> Any:
        self.parts.add(place.node)
        return {"$at": str(place)}

    def value(self, value: Any, path: Path) -> Any:
        """Return a value as JSON. It will be at `path` of the node."""
        if len(path) > _DEEPEST:
            raise NotJson
        if (key := key_of(value)) is not None:
            if (place := self._places.get(key)) is not None:
                return self.refer(place)
            self._new[key] = path
        kind = type(value)
        if kind is list:
            return self._items(value, path, Groups())
        if kind is dict:
            return self._map(value, path)
        if kind is Packed:
            return self._extension(value, path)
        return _scalar(value)

    def settle(self, node: Hash) -> None:
        """Remember where the new values are, now that their node is stored."""
        self._places.update((key, Place(node, path)) for key, path in self._new.items())

    def _items(self, items: list[Any], path: Path, groups: Groups) -> list[Any]:
        """Return a list as JSON. Of a long one, all items but the last ones are in groups, and groups in groups again,
        so that a list that grows shares them with what it was."""
        count = max(0, len(items) // GROUP - 1)
        known, nodes = groups.items, []
        for number in range(count):
            group = items[number * GROUP : (number + 1) * GROUP]
            if number >= len(known) or known[number][0] != group:
                del known[number:]
                encoder = Encoder(self._places, self._put)
                values = [encoder.value(item, ("value", at)) for at, item in enumerate(group)]
                node = self._put(values, [*encoder.parts])
                encoder.settle(node)
                known.append((group, node))
            nodes.append(known[number][1])
        del known[count:]
        marks = self._joined(nodes, groups.joined)
        rest = items[count * GROUP :]
        return [*marks, *(self.value(item, (*path, len(marks) + at)) for at, item in enumerate(rest))]

    def _joined(self, nodes: list[Hash], joined: dict[tuple[Hash, ...], Hash]) -> list[Any]:
        while len(nodes) > 2 * GROUP:
            whole = len(nodes) // GROUP * GROUP
            parents = []
            for at in range(0, whole, GROUP):
                part = tuple(nodes[at : at + GROUP])
                if part not in joined:
                    joined[part] = self._put([{"$items": node} for node in part], part)
                parents.append(joined[part])
            nodes = [*parents, *nodes[whole:]]
        self.parts.update(nodes)
        return [{"$items": node} for node in nodes]

    def _map(self, value: dict[Any, Any], path: Path) -> dict[str, Any]:
        keys = list(value)
        if all(type(key) is str and not key.startswith("$") for key in keys):
            result: dict[str, Any] = {key: self.value(item, (*path, key)) for key, item in value.items()}
            if keys != sorted(keys):
                result["$order"] = keys
            return result
        if not {*map(type, keys)} <= _KEYS:
            raise NotJson
        pairs = enumerate(value.items())
        return {
            "$map": [[_scalar(key), self.value(item, (*path, "$map", at, 1))] for at, (key, item) in pairs]
        }

    def _extension(self, value: Packed, path: Path) -> dict[str, Any]:
        try:
            inner = unpack(value.data)
            if pack(inner) == value.data:
                return {"$ext": [value.code, self.value(inner, (*path, "$ext", 1))]}
        except ValueError:  # other bytes than msgpack
            pass
        return {"$raw": [value.code, _text(value.data)]}


class Decoder:
    """Makes values of JSON. `get` reads the payload of a node, `places` is given where each large value is."""

    def __init__(self, get: Callable[[Hash], Any], places: dict[bytes, Place]) -> None:
        self.nodes: set[Hash] = set()
        self._get = cache(get)
        self._groups: dict[Hash, list[Any]] = {}
        self._places = places

    def payload(self, node: Hash) -> Any:
        return self._get(node)

    def at(self, place: Place) -> tuple[str, bytes]:
        """Return what the serializer made of the value at a place. Raises StoreDamaged."""
        place, value = self._resolved(place)
        if value is None:
            return "null", b""
        if isinstance(value, dict) and "$typed" in value:
            kind, data = value["$typed"]
            return kind, base64.b64decode(data)
        return "msgpack", pack(self._value(value, place))

    def groups(self, place: Place) -> Groups | None:
        """Return the groups of a list at a place, as an Encoder takes them; None for another value."""
        _, value = self._resolved(place)
        if not isinstance(value, list):
            return None
        groups = Groups()
        self._add_groups(value, groups)
        return groups

    def _add_groups(self, marks: list[Any], groups: Groups) -> None:
        for mark in marks:
            if not (isinstance(mark, dict) and "$items" in mark):
                return
            node = mark["$items"]
            inner = self._get(node)["value"]
            if isinstance(inner[0], dict) and "$items" in inner[0]:
                groups.joined[tuple(item["$items"] for item in inner)] = node
                self._add_groups(inner, groups)
            else:
                groups.items.append((self._group(node), node))

    def _resolved(self, place: Place) -> tuple[Place, Any]:
        """Return a value as JSON and where it is, if it is a reference that to which it leads."""
        while True:
            self.nodes.add(place.node)
            value = self._get(place.node)
            try:
                for key in place.path:
                    value = value[int(key) if isinstance(value, list) else key]
            except (LookupError, TypeError, ValueError):
                raise StoreDamaged(
                    f"a checkpoint refers to {place}, where there is nothing", "see: uwf verify"
                ) from None
            if not (isinstance(value, dict) and "$at" in value):
                return place, value
            place = Place.parse(value["$at"])

    def _value(self, value: Any, place: Place) -> Any:
        """Return the value that is JSON at a place."""
        if isinstance(value, dict) and "$at" in value:
            place, value = self._resolved(Place.parse(value["$at"]))
        plain = self._plain(value, *place)
        if (key := key_of(plain)) is not None:
            self._places.setdefault(key, place)
        return plain

    def _group(self, node: Hash) -> list[Any]:
        """Return the items of a group, or of a group of groups."""
        if node not in self._groups:
            place, value = self._resolved(Place(node, ("value",)))
            self._groups[node] = self._plain(value, *place)
        return self._groups[node]

    def _plain(self, value: Any, node: Hash, path: Path) -> Any:
        if isinstance(value, list):
            items: list[Any] = []
            for at, item in enumerate(value):
                if isinstance(item, dict) and "$items" in item:
                    items += self._group(item["$items"])
                else:
                    items.append(self._value(item, Place(node, (*path, at))))
            return items
        if not isinstance(value, dict):
            return value
        match next((key for key in value if key.startswith("$")), None):
            case None:
                return {key: self._value(value[key], Place(node, (*path, key))) for key in sorted(value)}
            case "$order":
                return {key: self._value(value[key], Place(node, (*path, key))) for key in value["$order"]}
            case "$map":
                pairs = enumerate(value["$map"])
                return {
                    self._plain(key, node, path): self._value(item, Place(node, (*path, "$map", at, 1)))
                    for at, (key, item) in pairs
                }
            case "$ext":
                code, inner = value["$ext"]
                return Packed(code, pack(self._value(inner, Place(node, (*path, "$ext", 1)))))
            case "$raw":
                return Packed(value["$raw"][0], base64.b64decode(value["$raw"][1]))
            case "$bytes":
                return base64.b64decode(value["$bytes"])
            case "$int":
                return int(value["$int"])
            case "$float":
                return float(value["$float"])
            case mark:
                raise Invalid(
                    f"node {node} has a value with {mark}, which this version doesn't know", "update uwf-git"
                )


def _scalar(value: Any) -> Any:
    kind = type(value)
    if kind is bytes:
        return {"$bytes": _text(value)}
    if kind is int and not -_EXACT <= value <= _EXACT:
        return {"$int": str(value)}
    if kind is float and (not math.isfinite(value) or value.is_integer()):
        return {"$float": repr(value)}
    return value


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
