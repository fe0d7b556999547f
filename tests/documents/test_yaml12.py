"""YAML by the 1.2 core schema, with positions and limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.format.document import MAX_BYTES, InvalidYaml, Mark, read_bytes
from uwf_git.format.yaml12 import core, dump, load

texts = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\n -:#'\"|>[]{}ab01\t~")),
    max_size=40,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def data(text: str | bytes, **options: Any) -> Any:
    return load(text, "f.yaml", **options).data


def refused(text: str | bytes, **options: Any) -> InvalidYaml:
    with pytest.raises(InvalidYaml) as caught:
        load(text, "f.yaml", **options)
    assert "\n" not in caught.value.message
    return caught.value


OLD_YAML = """no yes on off y n No YES 2024-01-01 2024-01-01T10:00:00Z 1:30 190:20:30 1_000 0b101 0o8 0x .e1 + . 1e
nULL tRUE ٣ ¹ 1,000 0o"""


@pytest.mark.parametrize("text", OLD_YAML.split())
def test_what_only_old_yaml_reads_as_something_else_is_text(text: str) -> None:
    assert data(f"a: {text}") == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0o17", 15), ("0x1F", 31), ("007", 7), ("+1", 1), ("-0", 0), ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0),
        ("-1.5E-2", -0.015), ("true", True), ("FALSE", False), ("~", None), ("null", None), ("", None),
        ("'1'", "1"), ('"no"', "no"), ("!!str 1", "1"), ("! 1", "1"), ("!!int 3", 3), ("!!float 3", 3),
    ],
)  # fmt: skip
def test_core_scalars(text: str, value: Any) -> None:
    read = data(f"a: {text}")["a"]
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    "text", [".inf", "-.INF", ".nan", "1e999", "9007199254740992", "1" * 5000, "0x" + "f" * 30]
)
def test_a_number_json_cant_hold_is_refused_or_stays_text_for_an_agent(text: str) -> None:
    assert refused(f"a: {text}").mark == Mark(1, 4)
    assert data(f"a: {text}", tolerant=True) == {"a": text}


def test_positions_and_raw_text_of_every_value() -> None:
    document = load("a:\n  - b: 1:30\n    'c': yes\n", "f.yaml")
    assert document.mark(("a", 0, "b")) == Mark(2, 8)
    assert document.key_mark(("a", 0, "c")) == Mark(3, 5)
    assert document.key_mark(("a", 0)) == document.mark(("a", 0)) == Mark(2, 5)
    assert document.mark(("a", 0, "missing", 3)) == Mark(2, 5), "of what is missing, where its parent is"
    assert document.raw(("a", 0, "b")) == "1:30"
    assert document.raw(("a",)) is None


def test_anchors_and_merges_give_the_same_as_writing_it_out() -> None:
    text = """
base: &base {x: 1, y: 2}
own: {<<: *base, y: 3}
many: {<<: [*base, {x: 9, z: 4}]}
quoted: {"<<": 1}
twice: [*base, *base]
"""
    assert data(text) == {
        "base": {"x": 1, "y": 2},
        "own": {"x": 1, "y": 3},
        "many": {"x": 1, "y": 2, "z": 4},
        "quoted": {"<<": 1},
        "twice": [{"x": 1, "y": 2}, {"x": 1, "y": 2}],
    }


def test_a_value_behind_an_alias_stands_where_it_was_written() -> None:
    document = load("a: &a\n  x: 1\nb: *a\n", "f.yaml")
    assert document.mark(("b",)) == Mark(3, 4)
    assert document.mark(("b", "x")) == Mark(2, 6)


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("a: 1\nb: 2\na: 3", (3, 1), "already in line 1"),
        ("a: {b: 1, b: 2}", (1, 11), "already in line 1"),
        ("1: x", (1, 1), "key 1 is not text"),
        ("true: x", (1, 1), "not text"),
        ("~: x", (1, 1), "not text"),
        ("? [a]\n: b", (1, 3), "a key is text"),
        ("a: &x [*x]", (1, 8), "holds itself"),
        ("a: *x", (1, 4), "no anchor &x"),
        ("a: {<<: 1}", (1, 9), "<< takes a mapping"),
        ("a: {<<: []}", (1, 9), "<< takes a mapping"),
        ("a: !foo 1", (1, 4), "tag !foo"),
        ("a: !!set {x}", (1, 4), "tag !!set"),
        ("a: !!python/object/apply:os.system [x]", (1, 4), "not known"),
        ("a: !include x", (1, 4), "not possible here"),
        ("a: !!int x", (1, 4), "no !!int"),
        ("a: !!bool 1", (1, 4), "no !!bool"),
        ("a: !!int true", (1, 4), "no !!int"),
        ("a: 1\n--- \nb: 2", (2, 1), "second document"),
        ("a: [1, 2", (2, 1), "expected"),
        ("a: b: c", (1, 5), "mapping values"),
        ("a: b\n\tc: d", (2, 1), "tab"),
        ("a: @x", (1, 4), "cannot start any token"),
        ("%YAML 2.0\n---\na: 1", (1, 1), "incompatible"),
        ('a: "\\ud800"', (1, 7), "Unicode"),
        ('a: "\\U7fffffff"', (1, 7), "Unicode"),
        ("ok: 1\na: \x00", (2, 4), "U+0000"),
        ("a: \x1b[31m", (1, 4), "U+001B"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, where: tuple[int, int], says: str) -> None:
    error = refused(text)
    assert error.message.startswith(f"f.yaml:{where[0]}:{where[1]}: ")
    assert says in error.message


def test_bytes_that_arent_utf8_are_refused_with_their_place() -> None:
    assert refused(b"a: 1\nb: \xff").message == "f.yaml:2:4: not UTF-8"
    assert "not UTF-8" in refused("a: 1".encode("utf-16")).message
    assert data(b"\xef\xbb\xbfa: 1") == {"a": 1}


def test_escaped_control_characters_are_text() -> None:
    assert data('a: "\\0\\x1b"') == {"a": "\0\x1b"}


def test_nothing_is_none() -> None:
    assert data("") is None and data("# only a comment\n") is None


def billion(levels: int, merge: bool) -> str:
    lines = ["a0: &a0 {k: v}"]
    for level in range(1, levels):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{aliases}]}}" if merge else f"[{aliases}]"))
    return "\n".join(lines)


@pytest.mark.parametrize("merge", [False, True])
def test_an_alias_bomb_is_refused_and_not_expanded(merge: bool) -> None:
    assert "over 20000 values" in refused(billion(40, merge)).message
    assert "over 20000 values" in refused(billion(40, merge), tolerant=True).message


def test_a_long_text_repeated_by_aliases_is_refused() -> None:
    assert "over 4 MiB" in refused("a: &a " + "x" * 500_000 + "\nb: [" + "*a, " * 1000 + "]").message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_at_a_hundred_levels(opening: str) -> None:
    assert "nested deeper than 100" in refused("a:\n " + opening * 200_000).message
    assert data("[" * 100 + "]" * 100) is not None


def test_too_long_a_text_is_refused_before_it_is_read() -> None:
    with pytest.raises(Invalid, match="larger than 1 MiB"):
        load("a" * MAX_BYTES + "a", "f.yaml")


def test_a_file_that_is_none_gets_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no file .*gone\.yaml"):
        read_bytes(tmp_path / "gone.yaml")
    with pytest.raises(Invalid, match="is a folder"):
        read_bytes(tmp_path)
    with pytest.raises(Invalid, match="cannot be read"):
        read_bytes(tmp_path / "a\0b")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFound):
        read_bytes(tmp_path / "file" / "below")


def test_a_file_of_50_megabytes_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 50 << 20)
    with pytest.raises(Invalid, match="larger than 1 MiB"):
        read_bytes(path)
    with pytest.raises(Invalid, match="not a regular file"):
        read_bytes(Path("/dev/zero"))


def test_a_key_that_isnt_text_is_taken_as_written_from_an_agent() -> None:
    assert data("1: x\ntrue: y\n", tolerant=True) == {"1": "x", "true": "y"}


@settings(max_examples=300)
@given(values)
def test_what_is_written_reads_back_the_same(value: Any) -> None:
    assert data(dump(value)) == value


@settings(max_examples=150)
@given(
    st.dictionaries(
        st.text("abnoy", min_size=1, max_size=3), st.text("abnoyes01:.-+e_ \n", max_size=12), max_size=4
    )
)
def test_what_is_written_means_the_same_to_an_old_reader(value: dict[str, str]) -> None:
    assert yaml.safe_load(dump(value)) == value


@settings(max_examples=300)
@given(st.text(st.sampled_from("ab: -\n[]{}&*!|>'\"#%@`,?<0.~\t\\x"), max_size=40), st.booleans())
def test_any_text_gives_a_value_or_one_clear_error(text: str, tolerant: bool) -> None:
    try:
        document = load(text, "f.yaml", tolerant=tolerant)
    except Invalid as error:
        assert error.message.startswith("f.yaml:") and "\n" not in error.message
    else:
        assert () in document.marks or document.data is None


@given(st.text(st.sampled_from("0123456789+-.eExXoabfINn~tru"), max_size=8))
def test_a_scalar_is_never_read_as_what_it_doesnt_look_like(text: str) -> None:
    value = core(text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        assert any(character.isdigit() for character in text) or text.lstrip("+-").casefold() in (
            ".inf",
            ".nan",
        )
    else:
        assert value is None or isinstance(value, bool) or value == text
