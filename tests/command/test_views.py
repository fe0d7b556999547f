"""How values read for people: templates, tables, records and lines."""

from __future__ import annotations

from typing import Any

import pytest
from uwf_cli import terminal
from uwf_cli.views import Listing, Record, Table, render

THREAD = {
    "thread": "01M7",
    "status": "joining",
    "steps": 2,
    "child": None,
    "fork": {"step": "8FWK"},
    "tags": [],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{thread} has {steps:counted step}", "01M7 has 2 steps"),
        ("{steps:3d} of {thread}", "  2 of 01M7"),
        ("from {fork[step]}", "from 8FWK"),
        ("thread {child}", ""),
        ("thread {parent}", ""),
        ("from {child[step]}", ""),
        ("from {fork[thread]}", ""),
        ("no part", "no part"),
    ],
)
def test_a_template_whose_part_is_missing_is_empty(template: str, text: str) -> None:
    assert render(template, THREAD) == text


def test_formats_of_templates_are_styles_states_roles_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"name": "csv", "status": "failed", "role": "$END", "commit": "0123456789abcdef"}
    assert (
        render("{name:bold} {status:status} {role:role} {commit:short}", value)
        == "csv failed result 0123456789"
    )
    monkeypatch.setattr(terminal, "colours", lambda: True)
    assert render("{name:bold} {status:status}", value) == "\x1b[1mcsv\x1b[0m \x1b[31mfailed\x1b[0m"


def test_braces_in_a_value_are_no_template() -> None:
    assert render("task {title}", {"title": "{thread} {0} {"}) == "task {thread} {0} {"
    assert Table("title")([{"title": "{x}"}]) == "title\n{x}\n"


def test_a_table_has_a_row_for_each_object_and_leaves_out_optional_columns_without_text() -> None:
    view = Table(
        "name", ("bundle", "bundle"), ("", lambda row: row["note"]), optional=("bundle",), empty="none"
    )
    rows: list[dict[str, Any]] = [{"name": "a", "note": None}, {"name": "long", "note": "current"}]
    assert view(rows) == "name\na\nlong  current\n"
    assert view([{**rows[0], "bundle": "81XY"}]) == "name  bundle\na     81XY\n"
    assert view([]) == "none"
    assert Table("name")([]) == ""


def test_a_table_without_titles_has_no_header() -> None:
    assert Table(("", "name"), ("", "{size:,}"))([{"name": "a", "size": 1200}]) == "a  1,200\n"


def test_a_record_leaves_out_fields_without_text_and_takes_fields_that_depend_on_the_value() -> None:
    view = Record(
        "thread", "child", "tags", "steps", lambda value: [("side", side) for side in value.get("sides", ())]
    )
    assert view(THREAD) == "thread  01M7\nsteps   2\n"
    assert view({"sides": ["a", "b"], "tags": ["x", "y"]}) == "tags  x, y\nside  a\nside  b\n"


def test_lines_are_one_for_each_object() -> None:
    assert Listing("{thread}")([THREAD, THREAD]) == "01M7\n01M7"
    assert Listing(lambda row: str(row), empty="nothing")([]) == "nothing"
