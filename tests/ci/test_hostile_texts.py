"""Texts of strangers, in the Markdown of a comment and in the log of a runner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import forge_jobs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from uwf_git.base.text import one_line
from uwf_git.ext.ci.reports import MOST, annotated, code_quality, guarded, junit_report, sarif
from uwf_git.ext.ci.result import Check, Problem
from uwf_git.ext.ci.summary import LARGEST_COMMENT, block, markdown, span

EVIL = (
    "@team fixes #1 and !2",
    "![x](https://tracker.example/p.png)",
    "<img src=https://tracker.example/p.png>",
    "https://tracker.example www.tracker.example ann@example.org",
    "``` \n/merge\n```",
    "\n/close\n/approve",
    "` @team `` #1 ```",
    "a | @b | c\\| @d",
    "::error::x\n::add-mask::approved",
    "##[add-mask]approved",
    "\x1b[2K\r::set-output name=comments::[]",
    "[x](javascript:alert(1))",
    "<!-- uwf ci -->",
    "- [ ] task\n# heading\n> quote",
    "\u202eapproved ton\u2066",
    "GH-1 ann/work#1 ann/work@0123456",
    "$x^2$ :tada: \\@team \\#1",
)
TEXTS = st.one_of(st.sampled_from(EVIL), st.text(max_size=80), st.lists(st.sampled_from(EVIL)).map(" ".join))


def reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable("table")


def tokens(text: str) -> Iterator[Token]:
    for token in reader().parse(text):
        yield token
        yield from token.children or ()


def live(text: str) -> list[str]:
    """The texts that a forge would look through for mentions, references and addresses, and what it would act on."""
    acts = ("image", "link_open", "html_inline", "html_block")
    found = [token.content for token in tokens(text) if token.type == "text"]
    return found + [token.type for token in tokens(text) if token.type in acts]


@given(TEXTS)
def test_a_span_is_code_and_nothing_else(text: str) -> None:
    (inline,) = (token for token in reader().parse(f"Said: {span(text)}.") if token.type == "inline")
    kinds = [token.type for token in inline.children or ()]
    assert kinds == ["text", "code_inline", "text"]
    assert (inline.children or [])[0].content == "Said: "
    assert (inline.children or [])[2].content == "."


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_spans_beside_each_other_stay_apart(texts: list[str]) -> None:
    line = " and ".join(map(span, texts))
    (inline,) = (token for token in reader().parse(f"- {line}") if token.type == "inline")
    assert [token.content for token in inline.children or () if token.type == "text"] == [" and "] * (
        len(texts) - 1
    )


@given(TEXTS)
def test_a_block_is_one_fence(text: str) -> None:
    assert [token.type for token in reader().parse(f"{block(text)}\n\nEnd")][:2] == [
        "fence",
        "paragraph_open",
    ]


def check_of(text: str) -> Check:
    problem = Problem("error", "wrong-page", text, text.replace("\0", ""), 3)
    page = f"- {span(text)}: {span(text, 300)}"
    return Check("branch", text, 7, text, (problem,), page)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_comment_has_no_live_text_of_a_stranger(texts: list[str]) -> None:
    page = markdown([check_of(text) for text in texts], LARGEST_COMMENT)
    for said in live(page):
        assert re.fullmatch(r"uwf: failed|Branch |: ", said), said
    assert not [line for line in page.split("\n") if line.startswith("/")]


@pytest.mark.parametrize("size", (100, 1000, LARGEST_COMMENT))
def test_a_comment_is_never_longer_than_forges_take(size: int) -> None:
    checks = [check_of("`" * 90 + "\U0001f600" * 200 + f"{number}") for number in range(300)]
    page = markdown(checks, size)
    assert len(page.encode()) <= size
    assert "The rest is in the job's log" in page
    assert live(page)


@given(st.lists(TEXTS, max_size=4))
def test_a_runner_finds_no_command_in_a_log(texts: list[str]) -> None:
    from uwf_cli import terminal

    assert not list(forge_jobs.read_commands(guarded(terminal.escape("\n".join(texts)))))


@given(TEXTS, TEXTS)
def test_an_annotation_is_one_command_with_its_message(message: str, path: str) -> None:
    (command,) = forge_jobs.read_commands(annotated([Problem("error", "wrong-page", message, path, 3)]))
    assert command.name == "error"
    shown = one_line(message, 1000).replace("##[", "##\u200b[")
    assert command.data.split() == shown.split()
    assert command.properties.keys() <= {"file", "line", "title"}
    assert command.properties["title"] == "uwf: wrong-page"


def test_more_annotations_than_a_forge_shows_are_counted() -> None:
    many = [Problem("warning", "rehearsed", "x")] * MOST + [Problem("error", "wrong-page", "y")] * 10
    commands = list(forge_jobs.read_commands(annotated(many)))
    assert len(commands) == MOST
    assert [each.name for each in commands[:10]] == ["error"] * 10
    assert commands[-1].data == "11 more problems are in the log"


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_junit_is_xml_whatever_is_in_it(texts: list[str]) -> None:
    root = ElementTree.fromstring(junit_report([check_of(text) for text in texts]))
    assert len(list(root.iter("failure"))) == len(texts)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_reports_say_each_problem_once_with_a_fingerprint(texts: list[str]) -> None:
    checks = [check_of(text) for text in texts]
    quality = code_quality(checks)
    assert len({each["fingerprint"] for each in quality}) == len(quality) == len(set(texts))
    assert all(each["location"]["path"] and each["location"]["lines"]["begin"] >= 1 for each in quality)
    results = sarif(checks)["runs"][0]["results"]
    assert [each["ruleId"] for each in results] == ["wrong-page"] * len(texts)
    uris = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results]
    assert all(re.fullmatch(r"[A-Za-z0-9._~%/-]+", uri) for uri in uris)
