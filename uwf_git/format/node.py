"""Nodes `{type, payload, timestamp}`, their hashes, and their JSON files.

hash = Crockford32(XXH64(seed 0; ascii(type) ‖ CBOR(payload))). Neither the timestamp nor the JSON's layout is
hashed.
"""

from __future__ import annotations

import json
import re
import time
from json.encoder import encode_basestring as _quoted
from typing import Any, NamedTuple

import xxhash

from uwf_git.base.errors import Invalid, StoreDamaged
from uwf_git.format import cbor
from uwf_git.format.ids import Hash, crockford13, digest_of, is_hash

# Characters that JSON leaves unescaped: DEL, C1, and bidirectional control characters.
_ACTED_ON = r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069]"


class Node(NamedTuple):
    """An immutable node. `payload` is normalised JSON; `timestamp` is in Unix milliseconds."""

    type: Hash
    payload: Any
    timestamp: int


def hash_of(type_hash: Hash, payload: Any) -> Hash:
    """Return the hash of a normalised payload of a type."""
    return crockford13(xxhash.xxh64_intdigest(type_hash.encode("ascii") + cbor.encode(payload)))


def file_id(content: bytes) -> str:
    """Return the XXH64 of a file, written as a hash."""
    return crockford13(xxhash.xxh64_intdigest(content))


def self_hash(payload: Any) -> Hash:
    """Return the hash of a self-describing node, whose type is its own hash."""
    return crockford13(xxhash.xxh64_intdigest(cbor.encode(payload)))


def node_hash(node: Node) -> Hash:
    """Return a node's hash, also of the self-describing bootstrap node."""
    data = cbor.encode(node.payload)
    plain = crockford13(xxhash.xxh64_intdigest(node.type.encode("ascii") + data))
    if plain != node.type and xxhash.xxh64_intdigest(data) == digest_of(node.type):
        return node.type
    return plain


def now() -> int:
    """Return the Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def to_blob(node: Node) -> bytes:
    """Return a node's file: sorted keys, two-space indent, UTF-8 with misleading and control characters
    escaped, one final newline."""
    payload = _readable(node.payload, "\n  ")
    text = (
        f'{{\n  "payload": {payload},\n  "timestamp": {node.timestamp},\n  "type": {_quoted(node.type)}\n}}\n'
    )
    if not text.isascii() or "\x7f" in text:
        text = re.sub(_ACTED_ON, lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.encode("utf-8")


def _readable(value: Any, line: str) -> str:
    """As `json.dumps(indent=2)`, twice as fast. `line` is a line end and the value's indent."""
    if isinstance(value, str):
        return _quoted(value)
    if value is None or type(value) is int:
        return "null" if value is None else str(value)
    if value and isinstance(value, dict | list):
        inner = line + "  "
        if isinstance(value, dict):
            items = [f"{_quoted(key)}: {_readable(value[key], inner)}" for key in sorted(value)]
            return f"{{{inner}{f',{inner}'.join(items)}{line}}}"
        return f"[{inner}{f',{inner}'.join([_readable(item, inner) for item in value])}{line}]"
    return json.dumps(value)


def from_blob(data: bytes, name: str) -> Node:
    """Parse a node's file. `name` (hash or path) is for the error. Raises StoreDamaged."""
    try:
        value = parse_json(data.decode("utf-8"))
    except (Invalid, UnicodeDecodeError) as error:
        raise StoreDamaged(f"node {name} is not readable JSON: {error}", "check with: uwf doctor") from None
    if (
        not isinstance(value, dict)
        or value.keys() != {"type", "payload", "timestamp"}
        or not is_hash(value["type"])
        or type(value["timestamp"]) is not int
    ):
        raise StoreDamaged(f"node {name} is not {{type, payload, timestamp}}", "check with: uwf doctor")
    return Node(Hash(value["type"]), value["payload"], value["timestamp"])


class NotJson(Invalid):
    pass


def parse_json(text: str) -> Any:
    """Parse and normalise JSON. Raises NotJson, and Invalid for values that no node can hold and for
    duplicate keys, which readers would resolve differently under one hash."""
    try:
        value = _DECODER.decode(text)
        # A text without more brackets cannot nest deeper, and unescaped text is valid Unicode: only numbers remain to
        # be normalised.
        if "\\u" not in text and text.count("[") + text.count("{") < cbor.MAX_DEPTH:
            return value
        return cbor.normalise(value)
    except json.JSONDecodeError as error:
        raise NotJson(f"not JSON: {error}", "text goes in double quotes, as in '\"hello\"'") from None
    except RecursionError:
        raise Invalid(f"value is nested deeper than {cbor.MAX_DEPTH} levels") from None
    except ValueError:
        raise Invalid(cbor.TOO_LONG, cbor.LARGE_INTEGER_HINT) from None


def _not_json(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` that raises Invalid for duplicate keys."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Invalid("an object has the same key twice")
    return value


def _float(digits: str) -> Any:
    return cbor.normalise(float(digits))


def _integer(digits: str) -> Any:
    return cbor.normalise(int(digits))


_DECODER = json.JSONDecoder(
    parse_constant=_not_json, parse_float=_float, parse_int=_integer, object_pairs_hook=unique_keys
)
