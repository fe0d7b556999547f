"""`uwf thread`, the commands that read: steps, read, step-details, log, diff."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import PAIR, on_terminal, scripted, write
from commands import git
from conftest import Uwf
from spent_threads import assistant, start, step

from uwf_git.format import yaml12
from uwf_git.store.instance import Instance

ANSWER = "---\\ntext: done\\n---\\n\\n## What I did\\n\\nAll of it, `code` and **more** \\e[31mred.\\n"
SCRIPT = f"""\
- {{ role: writer, answer: "{ANSWER}" }}
- {{ role: critic, output: {{ approved: false }} }}
- {{ role: writer, output: {{ text: "second: 100% <b>& \\e[31mred" }} }}
- {{ role: critic, output: {{ approved: true }} }}
"""
SPOKEN = ANSWER.replace("\\n", "\n").replace("\\e", "\x1b")


@pytest.fixture
def thread(uwf: Uwf) -> str:
    """A completed thread of four steps."""
    id_: str = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "# Task\n\nWrite a line").json["thread"]
    uwf("thread", "run", id_, "--agent", scripted(SCRIPT))
    return id_


def test_a_thread_reads_as_markdown(uwf: Uwf, thread: str) -> None:
    page = uwf("thread", "read", thread).out
    assert page.startswith("# pair\n")
    assert "# Task\n\nWrite a line" in page
    assert "## 1 writer\n\nby `uwf-rehearse`, made up · `" in page
    assert "| text | done |\n\n#### What I did\n\nAll of it, `code` and **more** \x1b[31mred." in page
    order = [
        "Write a line",
        "## 1 writer",
        "## 2 critic: not approved",
        "## 3 writer",
        "## 4 critic: approved",
    ]
    assert [page.index(part) for part in order] == sorted(page.index(part) for part in order)
    assert "| second: 100% &lt;b&gt;&amp; �\\[31mred |" in page
    assert page.count("done") == 1 and page.count("approved") == 2, "each is said once"

    data = uwf("thread", "read", thread, "--format", "json").json
    assert data["prompt"] == "# Task\n\nWrite a line"
    assert data["steps"][0]["answer"] == SPOKEN
    assert [step["output"] for step in data["steps"]][1] == {"approved": False}
    status, shown = on_terminal("thread", "read", thread)
    assert status == 0
    assert "## What I did" not in shown and "What I did" in shown
    assert "\x1b[31mred" not in shown and "\\x1b[31mred" in shown


ONE = """\
name: one
description: One role whose output is anything.
roles:
  all:
    description: Does the work.
    systemPrompt: Work.
    outputSchema: { type: object }
graph:
  $START: [{ role: all }]
  all: [{ role: $END }]
"""


def test_a_step_comes_to_the_same_wherever_it_is_named(uwf: Uwf, instance: Instance) -> None:
    for output, said in (
        ("{ drafter: S, title: T, subject: U }", "T"),
        ("{ $status: $SUSPEND, question: Which one? }", "asks: Which one?"),
        ("{ answer: B, headline: A }", "B"),
        ("{ list: [1] }", ""),
    ):
        id_ = uwf("thread", "start", write("one.yaml", ONE), "-p", "Do").json["thread"]
        uwf("thread", "step", id_, "--agent", scripted(f"- {{ role: all, output: {output} }}\n"), check=None)
        commit = instance.threads.head(id_).commit
        at = f"--git-dir={instance.store.repository.path}"
        subject = git(at, "log", "-1", "--format=%s", commit)
        page = git(at, "show", f"{commit}:README.md")
        assert subject.strip() == "0001 all" + (f": {said}" if said else "")
        (row,) = [line for line in page.splitlines() if line.startswith("| [1 all]")]
        assert row.split(" | ")[1].strip() == said
        assert on_terminal("thread", "steps", id_)[1].rstrip().endswith(said)
        uwf("verify", id_)


def test_a_terminal_hides_nothing_of_what_was_written(uwf: Uwf) -> None:
    prompt = """\
Return a Map<String> of <b>it</b>. <!-- approve --> Done, ![d](http://x.test/d.png "wide"), \
![](e.png), [here](http://x.test/f "title") and `List<int>`.

<!-- a block
of comment -->

[//]: # (a note)

<div hidden>

```html
<p>![q](z.png)</p> <!-- code -->
```
"""
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", prompt).json["thread"]
    status, shown = on_terminal("thread", "read", thread, env={"NO_COLOR": "1"}, columns=200)
    assert status == 0
    said = " ".join(shown.split())
    for part in (
        "a Map<String> of <b>it</b>. <!-- approve --> Done, ",
        '[picture: d] (http://x.test/d.png "wide"), [picture] (e.png), here (http://x.test/f "title") and',
        "and List<int>.",
        "<!-- a block of comment -->",
        "[//]: # (a note)",
        "<div hidden>",
        "<p>![q](z.png)</p> <!-- code -->",
    ):
        assert part in said


def test_a_quota_keeps_the_newest_whole_and_the_rest_can_be_paged(uwf: Uwf, thread: str) -> None:
    steps = uwf("thread", "steps", thread).json
    whole = uwf("thread", "read", thread).out

    newest = uwf("thread", "read", thread, "--quota", "1").out
    assert "## 4 critic" in newest and "## 3 writer" not in newest
    assert f"uwf thread read {thread} --before {steps[3]['step']}" in newest
    # Following the hint until there is nothing before leaves nothing out.
    seen = newest
    for item in (steps[3], steps[2], steps[1]):
        page = uwf("thread", "read", thread, "--quota", "1", "--before", item["step"][:8]).out
        assert f"## {item['number'] - 1} " in page
        seen = page + seen
    for part in ("## 1 writer", "## 2 critic", "## 3 writer", "## 4 critic", "All of it, `code`"):
        assert part in seen
    assert uwf("thread", "read", thread, "--quota", "100000").out == whole
    assert "\n## " not in uwf("thread", "read", thread, "--before", steps[0]["step"]).out.split("Prompt")[1]
    uwf("thread", "read", thread, "--quota", "0", check=2)
    other = uwf("thread", "start", "pair.yaml", "-p", "x").json["thread"]
    assert uwf("thread", "read", other, "--before", steps[0]["step"], check=3).error["code"] == "not_found"


def test_steps_and_their_details_say_how_it_came_about(uwf: Uwf, thread: str) -> None:
    steps = uwf("thread", "steps", thread[:22]).json
    assert [(step["number"], step["role"]) for step in steps] == [
        (1, "writer"),
        (2, "critic"),
        (3, "writer"),
        (4, "critic"),
    ]
    assert steps[0]["output"] == {"text": "done"}
    keys = (
        "step",
        "number",
        "role",
        "agent",
        "output",
        "summary",
        "detail",
        "time",
        "seconds",
        "cost",
        "unpriced",
    )
    assert tuple(steps[0]) == keys
    assert steps[0]["time"].endswith("Z")

    details = uwf("thread", "step-details", steps[0]["step"][:7]).out
    value = yaml12.load(details.encode(), "details").data
    assert (value["step"], value["role"]) == (steps[0]["step"], "writer")
    assert value["output"]["value"] == {"text": "done"}
    assert value["detail"]["hash"] == steps[0]["detail"]
    assert value["detail"]["value"]["answer"] == SPOKEN
    assert uwf("thread", "step-details", steps[0]["step"], "--format", "json").json == value
    assert uwf("thread", "step-details", steps[0]["detail"], check=1).error["code"] == "invalid"
    text = uwf("thread", "steps", thread, "--format", "text").out
    assert all(step["step"] in text for step in steps)

    status, shown = on_terminal("thread", "step-details", steps[0]["step"])
    shown = re.sub("\x1b\\[[0-9;]*m", "", shown)
    assert status == 0
    assert "1 writer" in shown and "uwf-rehearse, made up" in shown and "turns" in shown
    assert shown.count("All of it") == 1, "what was said is not repeated as a turn"


def test_steps_say_what_each_took_and_cost(
    uwf: Uwf, instance: Instance, config: Callable[[str], Path]
) -> None:
    price = "models: {m: {provider: p, name: model-1, price: {input: 2, output: 10}}}\n"
    config(f"providers: {{p: {{baseUrl: http://localhost/v1}}}}\n{price}")
    thread = start(instance)
    step(instance, thread, [assistant(1_000_000, 100_000, "model-1")], durationMs=83_000)
    step(instance, thread)
    priced, silent = uwf("thread", "steps", thread).json
    assert (priced["seconds"], priced["cost"], priced["unpriced"]) == (83.0, 3.0, 0)
    assert silent["cost"] is None
    shown = on_terminal("thread", "steps", thread, env={"NO_COLOR": "1"}, columns=80)[1].splitlines()
    assert shown[0].split() == ["step", "time", "role", "agent", "took", "cost", "output"]
    assert priced["step"] in shown[1] and "1m 23s" in shown[1] and "$3.00" in shown[1]
    assert max(map(len, shown)) <= 80


def test_a_step_is_named_by_its_number_in_a_thread(uwf: Uwf, thread: str) -> None:
    third = uwf("thread", "steps", thread).json[2]["step"]
    assert uwf("thread", "step-details", f"{thread}@3").out == uwf("thread", "step-details", third).out
    assert (
        uwf("thread", "turns", thread, "--step", "@@3").json
        == uwf("thread", "turns", thread, "--step", third).json
    )
    missing = uwf("thread", "step-details", f"{thread}@5", check=3).error
    assert missing["message"] == f"thread {thread} has no step 5"
    assert missing["hint"] == f"it has 4: uwf thread steps {thread}"


def test_the_log_is_gits(uwf: Uwf, thread: str, instance: Instance) -> None:
    log = uwf("thread", "log", thread).json
    assert [entry["kind"] for entry in log] == ["step"] * 4 + ["start", "workflow"]
    lines = git("--git-dir", instance.location.git_dir, "log", "--format=%H %s", f"refs/uwf/archive/{thread}")
    assert [f"{entry['commit']} {entry['subject']}" for entry in log] == lines.splitlines()
    assert log[0]["author"] == "uwf-rehearse"
