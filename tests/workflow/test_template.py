"""Liquid on the edges: exact text, strict variables, no way out."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid
from uwf_git.workflow import template
from uwf_git.workflow.template import check_template, needs, render, variables_of

OUTPUT: dict[str, Any] = {
    "summary": "if a < b && c > d: \"x\" 'y'\r\n\tend",
    "author": {"name": "Ada", "tags": ["x", "y"]},
    "approved": False,
    "nothing": None,
    "score": 8,
    "ratio": 0.5,
    "findings": [{"title": "one", "fix": None}, {"title": "two", "fix": "ü"}],
    "partial": "yes",
    "now": "then",
    "size": 3,
}
# Forces the same template through Liquid instead of the short way.
LIQUID = "{% if true %}{% endif %}"


@pytest.mark.parametrize("tail", ["", LIQUID])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fix: {{ summary }}", "Fix: if a < b && c > d: \"x\" 'y'\r\n\tend"),
        ("{{author.name}}/{{ author.name }}", "Ada/Ada"),
        ("{{ approved }} {{ nothing }}.", "false ."),
        ("{{ score }} {{ ratio }}", "8 0.5"),
        ("{{ author.tags }}", '["x", "y"]'),
        ("{{ findings }}", '[{"title": "one", "fix": null}, {"title": "two", "fix": "ü"}]'),
        ("{{ partial }} {{ now }} {{ size }}", "yes then 3"),
        ("a {{ score }}} b", "a 8} b"),
        ("  keep\r\n  this  \n", "  keep\r\n  this  \n"),
        ("{{ author.tags.size }}{{ author.tags.first }}{{ author.tags.last }}", "2xy"),
    ],
)
def test_text_is_rendered_exactly_and_unescaped(text: str, expected: str, tail: str) -> None:
    assert render(text + tail, OUTPUT) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% for f in findings %}{{ forloop.index }}. {{ f.title }}\n{% endfor %}", "1. one\n2. two\n"),
        ("{{ author.tags | join: ', ' }}", "x, y"),
        ("{{ findings | map: 'title' | join: '+' }}", "one+two"),
        ("{{ author | json }}", '{"name": "Ada", "tags": ["x", "y"]}'),
        ("{{ score | append: author.tags }}", '8["x", "y"]'),
        ("{% if reason %}because {{ reason }}{% else %}no reason{% endif %}", "no reason"),
        ("{% if author.email == 'x' %}a{% endif %}{% unless author.email %}b{% endunless %}", "b"),
        ("{{ reason | default: 'none' }}", "none"),
        ("{% capture line %}a\r\nb{% endcapture %}{{ line }}", "a\r\nb"),
        ("{% echo author.tags %}", '["x", "y"]'),
        ("{% raw %}{{ not_a_variable }}{% endraw %}", "{{ not_a_variable }}"),
        ("{{ (1..3) }} {{ findings[1].fix }} {{ ['size'] }}", "1..3 ü 3"),
    ],
)
def test_liquid_is_there_with_optional_fields(text: str, expected: str) -> None:
    assert render(text, OUTPUT) == expected


@pytest.mark.parametrize("tail", ["", LIQUID])
@pytest.mark.parametrize(
    "text",
    [
        "{{ missing }}",
        "{{ author.email }}",
        "{{ summary.length }}",
        "{{ today }}",
        "{{ missing | upcase }}",
        "{{ missing | json }}",
        "{{ missing | join: ', ' }}",
        "{{ missing | map: 'title' | join: ', ' }}",
        "{{ 4 | divided_by: missing }}",
        "{{ author.tags | concat: missing }}",
        "{{ findings[7].title }}",
        "{% for x in missing %}{{ x.title }}{% endfor %}",
        "{% if missing.title == 'x' %}x{% endif %}",
    ],
)
def test_a_variable_that_is_not_there_prints_nothing_whatever_is_done_with_it(text: str, tail: str) -> None:
    assert render(f"[{text}]{tail}", OUTPUT) == "[]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ reason }}", True),
        ("{{ reason | upcase }}", True),
        ("{% if approved %}{{ reason }}{% endif %}", True),
        ("{% for f in findings %}{{ f.title }}{% endfor %}{{ reason }}", True),
        ("{{ reason.text }}", True),
        ("{% if reason %}{{ reason }}{% endif %}", False),
        ("{{ reason | default: 'none' }}", False),
        ("{% for r in reason %}{{ r }}{% endfor %}", False),
        ("{{ other }}", False),
    ],
)
def test_a_template_needs_what_it_prints_without_a_test(text: str, expected: bool) -> None:
    assert needs(text, ("reason",)) is expected
    assert needs(text.replace("reason", "author.reason"), ("author", "reason")) is expected


def test_three_braces_are_two() -> None:
    assert render("{{{ author.name }}} {{{score}}}", OUTPUT) == "Ada 8"
    assert render("{{{ author.name }}} {{ score | plus: 1 }}", OUTPUT) == "Ada 9"
    assert variables_of("{{{ author.name }}}") == {("author", "name")}
    assert render("{% raw %}{{{ score }}}{% endraw %}", OUTPUT) == "{{{ score }}}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ a",
        "{{{ a }}",
        "{% if a %}",
        "{% nosuchtag %}",
        "{% include 'x' %}",
        "{% render '/etc/passwd' %}",
        "{{ a | nosuchfilter }}",
        "{{ 'now' | date: '%Y' }}",
        "{% if true %}" * 40 + "{% endif %}" * 40,
        "x" * 100_001,
    ],
)
def test_what_can_not_be_rendered_is_found_without_rendering(text: str) -> None:
    reason = check_template(text)
    assert reason and "\n" not in reason
    with pytest.raises(Invalid):
        render(text, {"a": 1})


def test_a_good_template_has_no_complaint() -> None:
    assert check_template("just text") is None
    assert check_template("{{ a.b }}") is None
    assert check_template("{{ a | upper }}") == "there is no filter 'upper'; did you mean \"upcase\"?"
    assert check_template("{{ a | upcas }}") == "there is no filter 'upcas'; did you mean \"upcase\"?"
    assert check_template("{{ a | xyzzy }}") == "there is no filter 'xyzzy'"
    assert check_template("{% for x in y %}{{ x | upcase | json }}{% endfor %}") is None


RUNAWAYS = {
    "a long loop": ("{% for i in (1..100000) %}x{% endfor %}", "turns"),
    "nested loops": ("{% for i in (1..200) %}{% for j in (1..200) %}x{% endfor %}{% endfor %}", "turns"),
    "doubling": (
        "{% assign s = 'xxxxxxxxxx' %}{% for i in (1..40) %}{% assign s = s | append: s %}{% endfor %}",
        "memory",
    ),
    "a replacement": (
        "{% assign s = 'xxxxxxxxxx' %}{% for i in (1..16) %}{% assign s = s | append: s %}{% endfor %}"
        "{{ s | replace: '', s }}",
        "memory",
    ),
    "a range": ("{{ (1..1000000000) | join }}", "memory"),
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_a_runaway_ends_with_its_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MEMORY", 64 * 1024**2)
    monkeypatch.setattr(template, "SECONDS", 30)
    text, reason = RUNAWAYS[name]
    with pytest.raises(Invalid, match=reason):
        render(text, {})


@pytest.mark.parametrize(
    "text", ["a{{ huge }}b", "a{{ huge }}b" + LIQUID, "a{{ huge }}{{ huge }}{{ huge }}b"]
)
def test_what_a_template_prints_beyond_the_limit_is_left_out_of_its_middle(text: str) -> None:
    huge = "1234567890" * 100_000
    whole = f"a{huge * text.count('huge')}b"
    assert render(text, {"huge": huge}) == (
        f"{whole[:500_000]}\n[… {len(whole) - 1_000_000} characters left out …]\n{whole[-500_000:]}"
    )


def test_a_template_that_prints_more_than_memory_holds_has_a_text() -> None:
    assert len(render("{{ x }}" * 10_000, {"x": "y" * 10_000_000})) < 1_000_100


def test_what_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "SECONDS", 0.2)
    with pytest.raises(Invalid, match="longer than"):
        render("{% assign z = 9 %}{% for i in (1..60) %}{% assign z = z | times: z %}{% endfor %}{{ z }}", {})


def test_the_variables_a_template_needs_are_known() -> None:
    assert variables_of("plain") == set()
    assert variables_of("{{ a.b }} {{ a.b }} {{ c }}") == {("a", "b"), ("c",)}
    text = "{% assign x = a.b %}{{ x }}{% for i in items %}{{ i.name }}{{ forloop.index }}{% endfor %}{{ y[0].z }}"
    assert variables_of(text) == {("a", "b"), ("items",), ("y",)}
    assert variables_of("{{ items.size }}{{ items.first.name }}{{ size }}") == {("items",), ("size",)}
    assert variables_of("{% if reason %}{{ reason | append: why }}{% endif %}") == {("reason",), ("why",)}
    with pytest.raises(Invalid):
        variables_of("{{ a")


def test_text_and_plain_variables_do_not_load_liquid() -> None:
    program = (
        "import sys\n"
        "from uwf_git.base import lifetime\n"
        "lifetime.own()\n"
        "from uwf_git.workflow.template import check_template, render, variables_of\n"
        "assert render('a {{ b.c }}', {'b': {'c': 1}}) == 'a 1'\n"
        "assert variables_of('{{ b.c }}') == {('b', 'c')} and check_template('x') is None\n"
        "assert 'liquid' not in sys.modules\n"
        "assert render('{{ b | upcase }}', {'b': 'x'}) == 'X' and 'liquid' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


names = st.sampled_from(["a", "b", "size", "first", "true", "for", "empty", "now", "partial"])
paths = st.lists(names, min_size=1, max_size=3).map(".".join)
pieces = st.one_of(
    paths.map("{{{{ {} }}}}".format),
    paths.map("{{{{{}}}}}".format),
    st.text("{}% \r\nab.|-'", max_size=6),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(pieces, max_size=4).map("".join), st.dictionaries(names, values, max_size=5))
def test_the_short_way_gives_what_liquid_gives(text: str, variables: dict[str, Any]) -> None:
    def result(source: str) -> str | None:
        try:
            return render(source, variables)
        except Invalid:
            return None

    assert result(text) == result(LIQUID + text)
