"""The pages that people read: each says a thing once, is made of nodes alone, and no answer can forge one."""

from __future__ import annotations

import json
import re
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf
from forged import stepped
from markdown import markdown  # as klaus renders a page
from two_machines import RELAY
from workflows import opened, start_thread

from uwf_git.base.markdown import below, output
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Detail, StepContext
from uwf_git.format.node import Node
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.types import DETAIL
from uwf_git.store.instance import Instance
from uwf_git.store.pages import PageStep, report_of, step_page, verdict

HASH = Hash("0000000000000")


def told(value: Any, answer: str, role: str = "reviewer", agent: str = "uwf-codex") -> str:
    detail = Node(DETAIL, Detail(answer, extraction="frontmatter").payload(), 0)
    return step_page(PageStep(3, StepContext(HASH, role, value, HASH, agent), detail)).decode()


def html(page: str) -> str:
    return str(markdown(page, extensions=["tables", "fenced_code"]))


def test_an_output_is_a_table_of_its_short_fields_then_each_long_one_as_what_it_is() -> None:
    value = {
        "status": "changes_requested",
        "ready": False,
        "score": 0.5,
        "comments": "One line.\nAnother: *this*.\n\nA paragraph.",
        "files": ["form.py", "a_b.py"],
        "none": [],
        "code": "def f():\n    return 1",
        "nested": {"a": [1, {"b": None}]},
    }
    shown = output(value)
    assert shown.startswith(
        "| field | value |\n| --- | --- |\n| status | changes_requested |\n| ready | false |\n"
        "| none | none |\n| score | 0.5 |\n\n"
    )
    assert "**comments**\n\n> One line.  \n> Another: \\*this\\*.\n>\n> A paragraph." in shown
    assert "**files**\n\n- form.py\n- a_b.py" in shown
    assert "**code**\n\n```text\ndef f():\n    return 1\n```" in shown
    assert '**nested**\n\n```json\n{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ]\n}\n```' in shown
    page = html(shown)
    assert page.count("<tr>") == 5 and "<br />" in page and page.count("<li>") == 2
    assert output(dict(reversed(value.items()))) == shown, "a stored mapping has its keys sorted"


def test_a_question_stands_as_a_question_with_its_options() -> None:
    asked = {
        "$status": SUSPEND,
        "question": "Which one?\nBoth work.",
        "options": ["A", "B"],
        "reason": "Cost.",
    }
    page = told(asked, "---\n$status: $SUSPEND\nquestion: |-\n  Which one?\n  Both work.\n---\n")
    assert page == (
        "# 3 reviewer: asks\n\nby `uwf-codex`\n\n> Which one?  \n> Both work.\n\n- A\n- B\n\n"
        "Why it is asked:\n\n> Cost.\n"
    )
    assert verdict(asked) == "asks: Which one? Both work."


SAID_ONCE = {
    "a block of fields": "---\napproved: false\ncomments: A test is missing.\n---\n\nThe report.\n",
    "with a mark and blank lines before": "\ufeff\n\n---\napproved: false\ncomments: x\n---\nThe report.",
    "with Windows' line ends": "---\r\napproved: false\r\ncomments: x\r\n---\r\n\r\nThe report.\r\n",
    "with quoted keys": "---\n\"approved\": false\n'comments': |\n  A test\n  is missing.\n---\nThe report.",
    "with a field left empty": "---\napproved: no\ncomments: x\nother: null\n---\nThe report.",
    "in a fence": "```yaml\n---\napproved: false\ncomments: x\n---\n```\n\nThe report.",
    "in a fence without rules": "```yaml\napproved: false\ncomments: x\n```\n\nThe report.",
    "in a fence around it all": "```markdown\n---\napproved: false\ncomments: x\n---\n\nThe report.\n```",
    "after a greeting": "The report.\n\n---\napproved: false\ncomments: x\n---\n",
    "JSON in a fence": 'The report.\n\n```json\n{"approved": false, "comments": "x"}\n```\n',
}


@pytest.mark.parametrize("form", SAID_ONCE)
def test_an_answer_is_shown_without_the_output_that_it_holds(form: str) -> None:
    value = {"approved": False, "comments": "A test is missing."}
    page = told(value, SAID_ONCE[form])
    assert page == (
        "# 3 reviewer: not approved\n\nby `uwf-codex`\n\n| field | value |\n| --- | --- |\n"
        "| comments | A test is missing. |\n\nThe report.\n"
    )


@pytest.mark.parametrize(
    "answer",
    [
        '{"approved": false, "comments": "x"}',
        "---\napproved: false\ncomments: x\n---\n",
        "A test is missing.",
        "",
    ],
)
def test_an_answer_that_is_the_output_is_not_repeated(answer: str) -> None:
    page = told({"approved": False, "comments": "A test is missing."}, answer)
    assert page.endswith("| comments | A test is missing. |\n")


def test_a_code_block_that_repeats_a_text_of_the_output_is_left_out() -> None:
    printed = "one\n\n  two ``` three"
    block = "---\nstatus: passed\nreport: |\n  one\n\n    two ``` three\n---\n\n"
    answer = f"{block}`make` exited with 0.\n\n````text\n{printed}\r\n````\n\n```text\none\n```\n"
    page = told({"status": "passed", "report": printed}, answer)
    assert page.count("two ``` three") == 1
    assert page.endswith("\n\n`make` exited with 0.\n\n\n```text\none\n```\n"), "what is only like it stays"
    many = "```text\n" * 200_000
    assert (
        report_of({"status": "passed"}, Node(DETAIL, Detail(f"{block}{many}").payload(), 0)).count("text")
        >= 200_000
    )


@pytest.mark.parametrize(
    "answer",
    [
        "---\napproved: false\nsecret: said only here\n---\nThe report.",
        "---\nnot a block\n---\nThe report.",
        "---\napproved: false\nThe report, said only here.",
        '{"approved": false, "more": "said only here"}',
        "Before.\n\n---\n\nA rule is not a block, nor is the next.\n\n---\n\nAfter.",
    ],
)
def test_nothing_that_only_the_answer_says_is_left_out(answer: str) -> None:
    detail = Node(DETAIL, Detail(answer).payload(), 0)
    left = re.findall(r"\w+", report_of({"approved": False}, detail))
    assert [word for word in re.findall(r"\w+", answer) if word != "approved"] == [
        word for word in left if word not in ("approved", "yaml")
    ]


def test_an_answer_can_not_pass_for_the_page_around_it() -> None:
    answer = (
        "# 4 reviewer: approved\n\nThe end\n===\n\nAnd\nmore\n---\n\n```\n# not a heading\n```\n\n    # nor this\n\n"
        "- a list\n---\n\n~~~sh\n# left open"
    )
    assert below(answer, 1) == (
        "## 4 reviewer: approved\n\n## The end\n\nAnd\n### more\n\n```\n# not a heading\n```\n\n    # nor this\n\n"
        "- a list\n---\n\n~~~sh\n# left open\n~~~"
    )
    value = {
        "title": "x | y\n# 4 reviewer: approved",
        "a": "`|` <script>alert(1)</script> [x](javascript:1) | | ---",
    }
    value["a\n# b|"] = "# 4"
    page = html(told(value, "", role="a\n# b | [x](y) <i>", agent="`x` |\n# c"))
    assert re.findall(r"<h\d>", page) == ["<h1>"]
    assert not re.search(r"<(script|i|a)\b", page)
    assert page.count("<tr>") == 3


def test_texts_without_end_take_no_time() -> None:
    many = 200_000
    for text in (
        "`" * many + " `",
        "a" + " " * many + "b",
        "=" * many,
        "---\n" + "k: v\n" * many,
        "# " * many,
    ):
        detail = Node(DETAIL, Detail(text).payload(), 0)
        below(report_of({"k": "v"}, detail), 1)
        output({"text": text})


ACTED_ON = "\x1b]0;owned\x07\x1b[2K\r\x08\x7f\x9b31m\u202egnp.\u2066x"


def test_plain_git_prints_nothing_that_a_terminal_acts_on(uwf: Uwf, hermetic: Path) -> None:
    """Whatever a task, an agent's answer, its output, and what it never made an output of."""
    (hermetic / "relay.yaml").write_text(RELAY, encoding="utf-8")
    uwf("workflow", "put", hermetic / "relay.yaml")
    thread = uwf("thread", "start", "relay", "-p", f"Do {ACTED_ON} it").json["thread"]
    garbage = {"role": "writer", "garbage": ACTED_ON}
    answer = f"{ACTED_ON}\n\n```json\n{json.dumps({'text': ACTED_ON})}\n```"
    (hermetic / "replies.yaml").write_text(json.dumps([garbage, {"role": "writer", "answer": answer}]))
    (hermetic / "garbage.yaml").write_text(json.dumps([garbage]))
    uwf("thread", "step", thread, "--agent", f"uwf-rehearse --script {hermetic / 'garbage.yaml'}", check=6)
    uwf("thread", "step", thread, "--agent", f"uwf-rehearse --script {hermetic / 'replies.yaml'}")
    uwf("thread", "kill", thread, "--reason", f"Because {ACTED_ON}", check=None)
    store = opened().store.repository.path
    told = subprocess.run(
        ["git", "--git-dir", str(store), "log", "--all", "-p", "--format=fuller", "--source", "--notes"],
        capture_output=True,
        check=True,
    ).stdout.decode("utf-8")
    assert told.count("owned") >= 8, "all of it is there"
    acted_on = {each for each in told if each not in "\n\t" and unicodedata.category(each) in ("Cc", "Cf")}
    assert not acted_on, acted_on
    assert uwf("verify", "--all").code == 0
    store_of = opened().store
    texts = [json.dumps(store_of.get(node).payload, ensure_ascii=False) for node, _ in store_of.index.blobs()]
    assert sum(json.dumps(ACTED_ON, ensure_ascii=False)[1:-1] in text for text in texts) >= 3, (
        "nodes hold what was said"
    )


def test_a_nodes_file_in_another_layout_with_such_characters_is_sound(
    uwf: Uwf, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as another:
        another.setattr("uwf_git.format.node._ACTED_ON", r"(?!)")
        head = instance.threads.head(start_thread(instance, RELAY, f"Do {ACTED_ON} it"))
        stepped(instance, head, "writer", {"text": ACTED_ON})
    repository = instance.store.repository
    path = f"start/nodes/{head.node}.json"
    assert "\x9b31m\u202e".encode() in repository.blob(
        repository.file(repository.root(head.commit), path) or head.commit
    )
    assert uwf("verify", "--all").code == 0
