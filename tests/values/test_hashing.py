"""Hashes agree with the reference implementation, and depend on content alone."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from uwf_git.base.errors import Invalid, NotFound, StoreDamaged, Usage
from uwf_git.engine.conversation import REPLY, REPLY_SCHEMA
from uwf_git.ext.importers.cbor_decoding import decode
from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN, META, META_SCHEMA
from uwf_git.format.ids import (
    Hash,
    complete,
    crockford13,
    is_hash,
    new_thread_id,
    parse_hash,
    parse_thread_id,
)
from uwf_git.format.node import Node, from_blob, hash_of, node_hash, parse_json, self_hash, to_blob

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-cbor.MAX_INTEGER, cbor.MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda v: v["name"])
def test_a_golden_vector_is_met(vector: dict[str, Any]) -> None:
    payload = parse_json(vector["payload_json"])
    assert cbor.encode(payload).hex() == vector["cbor_hex"]
    assert hash_of(vector["type"], payload) == vector["hash"]


@pytest.mark.parametrize("refused", VECTORS["refused"], ids=lambda v: v["payload_json"])
def test_what_has_no_hash_is_refused(refused: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        parse_json(refused["payload_json"])


def test_duplicate_keys_are_refused_as_two_readers_could_differ() -> None:
    with pytest.raises(Invalid, match="same key twice"):
        parse_json('{"a": 1, "a": 2}')


@pytest.mark.parametrize("depth", [300, 5_000, 200_000])
def test_deep_nesting_is_refused_without_a_crash(depth: int) -> None:
    with pytest.raises(Invalid, match="nested deeper"):
        parse_json("[" * depth + "]" * depth)


def test_nesting_at_the_limit_is_accepted() -> None:
    value = parse_json("[" * cbor.MAX_DEPTH + "]" * cbor.MAX_DEPTH)
    assert cbor.encode(value).startswith(b"\x81" * (cbor.MAX_DEPTH - 1))


def test_an_integer_of_ten_thousand_digits_is_refused() -> None:
    with pytest.raises(Invalid, match=r"^an integer of thousands of digits is outside ±\(2\^53-1\)$"):
        parse_json("9" * 10_000)


@given(json_values)
def test_the_bytes_of_a_value_give_it_back_and_no_others_do(value: Any) -> None:
    normal = cbor.normalise(value)
    data = cbor.encode(normal)
    assert decode(data) == normal
    for other in (data + b"\0", data[:-1], b"\x81" + data[:-1]):
        try:
            assert cbor.encode(decode(other)) == other
        except Invalid:
            continue


@given(st.binary(max_size=40))
def test_bytes_that_decode_are_those_of_their_value(data: bytes) -> None:
    try:
        value = decode(data)
    except Invalid:
        return
    assert cbor.encode(value) == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("1801", "longer than it must be"),
        ("fb3ff0000000000000", "a whole number is written as a float"),
        ("f93c00", "a short float"),
        ("a2616201616102", "keys are not in order"),
        ("a2616101616102", "keys are not in order"),
        ("9fff", "indefinite length"),
        ("f7", "undefined"),
        ("4161", "bytes or tags"),
        ("1b0020000000000000", "outside"),
        ("9bffffffffffffffff", "cut off"),
        ("81" * 300 + "01", "nested deeper"),
    ],
)
def test_cbor_that_json_cas_never_writes_is_refused(data: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        decode(bytes.fromhex(data))


@given(json_values)
def test_decoding_what_was_encoded_gives_the_value_back(value: Any) -> None:
    normal = cbor.normalise(value)
    decoded, rest = _decode(cbor.encode(normal))
    assert rest == b""
    assert decoded == normal
    assert type(decoded) is type(normal)


@given(st.dictionaries(st.text(), st.integers(0, 5), min_size=2))
def test_key_order_does_not_matter(value: dict[str, int]) -> None:
    backwards = dict(reversed(value.items()))
    assert cbor.encode(value) == cbor.encode(backwards)


@given(json_values, st.integers(0, 2**45))
def test_a_blob_reads_back_as_its_node_and_its_layout_is_no_identity(value: Any, when: int) -> None:
    node = Node(META, cbor.normalise(value), when)
    data = to_blob(node)
    assert data.endswith(b"\n") and not data.endswith(b"\n\n")
    assert from_blob(data, "x") == node
    squeezed = json.dumps(json.loads(data), separators=(",", ":")).encode()
    assert node_hash(from_blob(squeezed, "x")) == node_hash(node)


def test_the_timestamp_is_not_hashed() -> None:
    assert node_hash(Node(META, {}, 1)) == node_hash(Node(META, {}, 2))


def test_the_bootstrap_node_is_its_own_type() -> None:
    assert node_hash(Node(META, META_SCHEMA, 0)) == META == self_hash(META_SCHEMA)


def test_the_hashes_that_are_written_down_are_those_of_their_schemas() -> None:
    schemas = {node: schema for node, schema in BUILTIN.items() if node != META}
    schemas[REPLY] = REPLY_SCHEMA
    assert {node: hash_of(META, schema) for node, schema in schemas.items()} == {
        node: node for node in schemas
    }


def test_builtin_types_keep_their_hashes_as_stores_hold_nodes_of_them() -> None:
    assert {schema["title"]: node for node, schema in BUILTIN.items()} == {
        "JSON Schema": "1ETEAXPCRHVYW",
        "Text": "8451C8DVPAGHX",
        "Workflow": "BF5BSJ3MPG87J",
        "Crew": "8N69ZJ647PTVR",
        "Bundle": "72JDKH3Z3AHDA",
        "Result": "D4N65S95CBY8P",
        "StartNode": "8R6Z0B1ZGMPY5",
        "IssueStart": "EK6YB0EA49XFV",
        "Fork": "46HNQXN2BXGD8",
        "Join": "29KRD48F4QD6G",
        "StepNode": "2VPBA58TEM5G7",
        "Turn": "8PA8H3KE56GQR",
        "CachingTurn": "EWCVVGWB2T2J0",
        "Detail": "DQG9SW25TK4D0",
        "CachingDetail": "54TM0CQRMKBY1",
        "Approval": "BM5VV1V69H1YY",
        "Revocation": "3SC9BHGNZEK8B",
        "Effect": "9ZX7TD69ANCDQ",
        "Settlement": "BXMK3YSCEJ641",
        "Check": "80GWRGV0RW5XG",
        "Session": "512R62TP7YZ4F",
        "Attempt": "93K366M2KRD2W",
        "Answer": "37JFM247WQ9DK",
        "Remark": "598QZEAVDK23W",
        "Question": "6BKEEWRFC00TX",
        "Suite": "6VTWWHRPQQYDV",
        "Case": "5BD7YF89X13DB",
        "CaseRemoval": "F27S8NB1B30BY",
        "Trial": "DY0VM7BMRT4E5",
        "Score": "3Y1P8V59PQ6XF",
        "SuiteRun": "9D4ST712WQ95H",
        "Baseline": "9ENYQ67A48NW3",
    }


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"type":"x","payload":1,"timestamp":1}',
        b'{"type":"1ETEAXPCRHVYW","payload":1}',
        b'{"type":"1ETEAXPCRHVYW","payload":1,"timestamp":"1"}',
        b'{"type":"1ETEAXPCRHVYW","payload":1,"timestamp":true}',
        b'{"type":"1ETEAXPCRHVYW","payload":1,"timestamp":1,"more":1}',
    ],
)
def test_a_blob_that_is_no_node_is_named_as_damage(blob: bytes) -> None:
    with pytest.raises(StoreDamaged, match="node THIS"):
        from_blob(blob, "THIS")


@given(st.integers(0, 2**64 - 1))
def test_every_digest_is_a_hash_of_13_characters_that_reads_back(digest: int) -> None:
    text = crockford13(digest)
    assert is_hash(text)
    value = 0
    for character in text:
        value = value * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character)
    assert value == digest
    assert parse_hash(text.lower()) == text


@pytest.mark.parametrize(
    "text", ["", "GVX1G9KC5RGSA", "FVX1G9KC5RGS", "FVX1G9KC5RGSAA", "FVX1G9KC5RGSU", "../../x"]
)
def test_text_that_is_no_hash_is_refused(text: str) -> None:
    assert not is_hash(text)
    with pytest.raises(Invalid):
        parse_hash(text)


def test_a_thread_id_is_a_standard_ulid_whose_time_is_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    thread = new_thread_id()
    assert thread.startswith("01")
    assert parse_thread_id(thread.lower()) == thread
    assert before <= ULID.from_str(thread).milliseconds <= time.time_ns() // 1_000_000
    assert str(ULID.from_str(thread)) == thread
    assert len({new_thread_id()[10:] for _ in range(100)}) == 100


def test_a_unique_prefix_is_completed_and_an_ambiguous_one_refused() -> None:
    known = [Hash("AB12"), Hash("AB34"), Hash("CD56")]
    assert complete("c", known, "node") == "CD56"
    with pytest.raises(Usage, match="ambiguous: AB12, AB34"):
        complete("ab", known, "node")
    for nothing in ("X", "", "ÄÖ", "A B"):
        with pytest.raises(NotFound):
            complete(nothing, known, "node")


def _decode(data: bytes) -> tuple[Any, bytes]:
    """A CBOR decoder for what the encoder may write, as strict about heads as RFC 8949, 4.2.1."""
    major, info, rest = data[0] >> 5, data[0] & 31, data[1:]
    if major == 7:
        if info == 27:
            return struct.unpack(">d", rest[:8])[0], rest[8:]
        return {20: False, 21: True, 22: None}[info], rest
    number = info
    if info >= 24:
        size = 1 << (info - 24)
        number, rest = int.from_bytes(rest[:size], "big"), rest[size:]
        assert number >= {1: 24, 2: 0x100, 4: 0x10000, 8: 0x100000000}[size], "head is not the shortest"
    if major == 0:
        return number, rest
    if major == 1:
        return -1 - number, rest
    if major == 3:
        return rest[:number].decode(), rest[number:]
    if major == 4:
        items = []
        for _ in range(number):
            item, rest = _decode(rest)
            items.append(item)
        return items, rest
    assert major == 5
    pairs: list[tuple[Any, Any]] = []
    keys: list[bytes] = []
    for _ in range(number):
        before = rest
        key, rest = _decode(rest)
        keys.append(before[: len(before) - len(rest)])
        item, rest = _decode(rest)
        pairs.append((key, item))
    assert keys == sorted(keys)
    return dict(pairs), rest
