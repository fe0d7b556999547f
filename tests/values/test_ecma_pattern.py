"""Patterns of schemas are those of ECMA 262: compared with those of a JavaScript engine."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from uwf_git.format.ecma_pattern import PatternRefused, translate
from uwf_git.format.schema import Schema, check_schema

_ACCEPTED = r"""
^a$ ^\d+$ ^\w+$ ^\s$ ^.$ ^\D+$ ^\W$ ^\S+$ \bfoo\b ^\B$ [^] [] \cX \/ \p{L} ^\P{L}+$ ^\p{Lu}\p{Ll}+$ \p{gc=Nd}
\p{General_Category=Uppercase_Letter} \p{Letter} \p{LC} \p{Uppercase} \p{White_Space} \p{ASCII} (?<n>a)\k<n>
(?<$x>a)\k<$x> (?<é>a) (?<\u0061>x)\k<a> [\-a] [a&&b] [a-] [-a] [\]] [\b] [\cA-\cZ] (?<=a|bb)c (?<!a|bb)c (?<=^|,)x
(a)?b\1c (a\1) \1(a) (?=(a))\1 (?<=(a))b\1 ^(?:a|b)*?c$ ^[^\d]+$ ^[^\W_]+$ \u0041 \ud83d\ude00 ^\u{1f600}$
[\u{1f600}-\u{1f64f}] ^.{1,3}$ \x41 \0 a| (?:) (?!a)b x{0} a{1,}? a{2}b ^(?:a{2}){3}$ 𝒳+ ^[𝒳-𝒵]$ # & ~ \v\f
"""
_REFUSED = r"""
\A ^a\Z a++ a*+ (?P<n>a) (?P=n) (?#x) (?>a) (?x)a [[:alpha:]] a{,5} a{2,1} [b-a] [\d-z] [a-\d] ( ) (?<n>a (?<1>a) * +a
a** a{1}{2} \2(a) (?=a)* ^* \08 \c1 \e [\e] \x4 \u12 \u{} \u{110000} \p \p{} \p{Foo} \p{gc=ASCII} \k<n> [ [a [a- \ [\
(?<a>x)(?<a>y)
"""
ACCEPTED, REFUSED = _ACCEPTED.split(), _REFUSED.split()
TEXTS = [
    *(
        "",
        "a",
        "a\n",
        "aa",
        "aaaaaa",
        "A",
        "X",
        "ab",
        "aab",
        "aba",
        "abc",
        "bbc",
        "ac",
        "bc1",
        "c",
        "x",
        "xx",
        "x,x",
    ),
    *(
        "1",
        "12\n",
        "١٢",
        "é",
        "ÉCOLE",
        "École",
        "ǅ",
        "Ⅷ",
        "_",
        "-",
        "foo",
        "a foo b",
        "foofoo",
        "\n",
        "\r",
        "\u2028",
    ),
    *(
        "\u00a0",
        "\ufeff",
        "\x85",
        "\x1c",
        "😀",
        "😁a",
        "\x18",
        "\x08",
        "\0",
        "/",
        "[a&&b]",
        "]",
        "#",
        "&",
        "~",
        "\v\f",
    ),
    *("𝒳", "𝒴", "\ud83d"),
]
_ENGINE = """
const [patterns, texts] = JSON.parse(require("fs").readFileSync(0, "utf8"))
const read = p => { try { return new RegExp(p, "u") } catch { return null } }
console.log(JSON.stringify(patterns.map(read).map(r => r && texts.map(t => r.test(t)))))
"""


def _by_engine(patterns: list[str]) -> list[Any]:
    done = subprocess.run(
        ["node", "-e", _ENGINE],
        input=json.dumps([patterns, TEXTS]),
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


@pytest.mark.needs("node")
def test_patterns_match_what_they_match_in_javascript() -> None:
    for pattern, matches in zip(ACCEPTED, _by_engine(ACCEPTED), strict=True):
        applied = translate(pattern)
        ours = [text for text in TEXTS if re.search(applied, text)]
        assert ours == [text for text, match in zip(TEXTS, matches, strict=True) if match], pattern


@pytest.mark.needs("node")
def test_what_javascript_refuses_is_refused() -> None:
    assert _by_engine(REFUSED) == [None] * len(REFUSED)
    for pattern in REFUSED:
        with pytest.raises(PatternRefused):
            translate(pattern)
        assert [problem.path for problem in check_schema({"properties": {"x": {"pattern": pattern}}})] == [
            "/properties/x/pattern"
        ]


def test_patterns_decide_in_every_keyword_that_has_them() -> None:
    text = Schema({"pattern": r"^\d+$"})
    assert text.is_valid("12")
    assert [str(each) for each in text.problems("12\n")] == [r"(whole value): '12\n' does not match '^\\d+$'"]
    assert not text.is_valid("١٢")
    named = Schema({"patternProperties": {r"^k\d$": {"type": "string"}, "^k[0-9]$": {"maxLength": 2}}})
    closed = Schema({**named.payload, "additionalProperties": False})
    for value, fits in (({"k1": "ab"}, True), ({"k1": 1}, False), ({"k1": "abc"}, False)):
        assert named.is_valid(value) == closed.is_valid(value) == fits
    assert named.is_valid({"k1\n": 1}) and not closed.is_valid({"k1\n": "a"})


def test_outputs_that_were_recorded_by_other_patterns_stay_valid() -> None:
    before = Schema({"properties": {"n": {"pattern": r"^\d+$"}, "p": {"pattern": r"\A(?P<x>a)\Z"}}})
    assert not before.is_valid({"n": "12\n"})
    assert not before.problems({"n": "12\n", "p": "a"}, recorded=True)
    assert before.problems({"n": "x"}, recorded=True)
    assert before.is_valid({"p": "a"}) and not before.is_valid(
        {"p": "A"}
    )  # as it was meant when it was stored
    assert not check_schema(before.payload, recorded=True)
    assert [each.path for each in check_schema(before.payload)] == ["/properties/p/pattern"]


def test_a_pattern_that_uwf_cannot_apply_is_refused_with_the_reason() -> None:
    for pattern, reason in (
        ("(?<=a+)b", "a look-behind of varying length, which uwf does not support"),
        (r"\p{Script=Greek}", r"uwf does not support \p{Script=Greek}: list the characters, at character 1"),
        (r"a\Z", r"\Z is no escape: ECMA 262 writes $, at character 2"),
    ):
        with pytest.raises(PatternRefused, match=re.escape(reason)):
            translate(pattern)
