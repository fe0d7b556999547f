"""JSON with positions: the same values as the library reads, and every mistake at its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.format.document import InvalidYaml, Mark
from uwf_git.format.json_text import MAX_DEPTH, Repeated, read_json

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53) + 1, 2**53 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_the_library_writes_is_read_with_the_place_of_every_value(
    value: Any, indent: Any, ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    try:
        document, repeated = read_json(text, "x")
    except InvalidYaml as error:
        assert "control character" in error.problem  # such as U+007F, which the library leaves as it is
        return
    assert (document.data, repeated) == (value, ())
    lines = text.split("\n")
    for path, mark in document.marks.items():
        inner = value
        for key in path:
            inner = inner[key]
        begin = lines[mark.line - 1][mark.column - 1 :]
        assert begin.startswith(json.dumps(inner, ensure_ascii=ascii)[:1])


def test_a_key_that_stands_twice_is_told_and_the_first_counts() -> None:
    document, repeated = read_json('{"a": 1,\n "b": {"c": 2, "c": {"d": [3]}},\n "a": [4]}', "x")
    assert document.data == {"a": 1, "b": {"c": 2}}
    assert repeated == (Repeated("c", Mark(2, 16), 2), Repeated("a", Mark(3, 2), 1))
    assert document.mark(("a",)) == (1, 7, "")


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", 1, 1, "ends too early"),
        ('{"a": 1,\n}', 2, 1, "a key"),
        ("[1,]", 1, 4, "a value"),
        ("[1 2]", 1, 4, "a comma or ]"),
        ('{"a" 1}', 1, 6, "a colon"),
        ("{'a': 1}", 1, 2, "a key in double quotes"),
        ('{"a": yes}', 1, 7, "a value"),
        ("[NaN]", 1, 2, "a value"),
        ("[01]", 1, 3, "a comma or ]"),
        ("[1] [2]", 1, 5, "after the end"),
        ('["a\nb"]', 1, 2, "no closing quote"),
        ('["a\\x"]', 1, 4, "escape"),
        ('["\\ud800"]', 1, 2, "surrogate"),
        ("[1e999]", 1, 2, "cannot hold"),
        ("[9007199254740993]", 1, 2, "cannot hold"),
        ("[" * (MAX_DEPTH + 2), 1, MAX_DEPTH + 2, "deeper"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(text: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(InvalidYaml, match=problem) as caught:
        read_json(text, "x")
    assert caught.value.mark[:2] == (line, column)
