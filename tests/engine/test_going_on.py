"""A thread that has ended is gone on with by a new one, and what its workflow makes of outputs and answers is the same
for everybody who replays it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cli_samples import scripted, write
from commands import git
from conftest import Uwf
from two_machines import Machine

from uwf_git.engine.persons_text import record_text
from uwf_git.format.ids import ThreadId, new_thread_id
from uwf_git.store.history import Position
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate

# A role's answer has no more than its status: what it says to the next one stands below that.
FLOW = """\
version: 1
name: flow
description: Plans and works, and works on when somebody says what.
roles:
  planner: &role
    description: Plans.
    goal: Plan.
    capabilities: []
    procedure: Say what there is to do.
    output: A plan.
    frontmatter:
      oneOf:
        - properties:
            $status: { const: ready }
            note: { type: string }
          required: [$status]
  worker:
    <<: *role
graph:
  $START:
    new: { role: planner, prompt: "Plan for {{ repo }}{{ start.prompt }}" }
    resume: { role: worker, prompt: "See what there is, and go on." }
  planner:
    ready: { role: worker, prompt: "{{{ _body }}}{{ note }}" }
  worker:
    ready: { role: $END, prompt: Done }
"""
READY = 'answer: "---\\n$status: ready\\n---\\n\\n# {}\\n\\n---\\n\\nThe rest.\\n"'
REPLIES = f"""\
- {{ role: planner, {READY.format("First")} }}
- {{ role: worker, {READY.format("Second")} }}
- {{ role: worker, {READY.format("Third")} }}
"""
ASKS = """\
- { role: planner, output: { $status: $SUSPEND, reason: There is no key. } }
- { role: planner, output: { $status: ready } }
- { role: worker, output: { $status: ready } }
"""


@pytest.fixture
def ended(uwf: Uwf) -> str:
    """A thread that has come to its end."""
    uwf("workflow", "put", write("flow.yaml", FLOW))
    thread = str(uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"])
    uwf("thread", "run", thread, "--agent", scripted(REPLIES))
    return thread


def commits(root: Path, name: str) -> str:
    return git("--git-dir", root / "store.git", "rev-parse", f"refs/uwf/{name}^{{commit}}")


def instructions(call: Uwf | Machine, thread: str) -> list[str | None]:
    steps = call("thread", "steps", thread).json
    return [call("cas", "get", each["detail"]).json["payload"]["instruction"] for each in steps]


def is_sound(uwf: Uwf) -> None:
    assert uwf("verify", "--all").json["findings"] == []


def test_a_thread_that_has_ended_is_gone_on_with_by_a_new_one_on_its_end(
    uwf: Uwf, ended: str, root: Path
) -> None:
    end = uwf("thread", "show", ended).json
    resumed = uwf("thread", "resume", ended, "-m", "Now the cellar").json
    assert resumed["resumedFrom"] == {"thread": ended, "step": end["head"]}
    assert (resumed["status"], resumed["resumed"], resumed["next"]) == ("idle", True, "worker")
    new = resumed["thread"]
    assert uwf("thread", "show", ended).json == end, "which stays as it is"
    refused = uwf("thread", "step", ended, check=1).error
    assert refused["hint"] == f"go on from it with: uwf thread resume {ended} -m TEXT"
    assert commits(root, f"threads/{new}~1") == commits(root, f"archive/{ended}")

    told = uwf("thread", "prompt", new, "--format", "text").out
    assert "## Step 3: the user goes on with this\n\nNow the cellar" in told
    uwf("thread", "run", new, "--agent", scripted(REPLIES))
    assert uwf("thread", "show", new).json["status"] == "completed"
    assert [each["role"] for each in uwf("thread", "steps", new).json] == [
        "planner",
        "worker",
        "$USER",
        "worker",
    ]
    assert instructions(uwf, new) == [
        "Plan for Tidy up",
        "# First\n\n---\n\nThe rest.",
        None,
        "See what there is, and go on.\n\nNow the cellar",
    ]
    page = uwf("export", new, "--html", "-").out
    assert page.count('class="way was"') == 4, (
        "resume is taken too, and no way from an end that isn't in the graph"
    )
    page = git("--git-dir", root / "store.git", "show", f"refs/uwf/archive/{new}:README.md")
    assert page.startswith("# Now the cellar\n"), "what it is called since then, on its page too"
    titles = {each["thread"]: each["title"] for each in uwf("thread", "list", "--all").json}
    assert titles == {ended: "Tidy up", new: "Now the cellar"}
    assert uwf("thread", "show", new).json["resumedFrom"] == {"thread": ended, "step": end["head"]}
    shown = uwf("thread", "show", new, "--format", "text").out
    assert f"from the end of thread {ended}, {end['head']}\n" in shown
    again = uwf("thread", "resume", new, "-m", "-", input="And the roof").json
    assert again["resumedFrom"]["thread"] == new and again["next"] == "worker"
    is_sound(uwf)


def test_a_thread_that_was_killed_is_gone_on_with_wherever_it_was(uwf: Uwf) -> None:
    uwf("workflow", "put", write("flow.yaml", FLOW))
    for done, expected in ((0, "worker"), (1, "worker")):
        thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
        for _ in range(done):
            uwf("thread", "step", thread, "--agent", scripted(REPLIES))
        uwf("thread", "kill", thread)
        resumed = uwf("thread", "resume", thread, "-m", "Go on").json
        assert resumed["next"] == expected
        assert uwf("thread", "show", resumed["thread"]).json["resumedFrom"]["thread"] == thread
    asking = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    uwf("thread", "step", asking, "--agent", scripted(ASKS))
    uwf("thread", "kill", asking)
    answered = uwf("thread", "resume", asking, "-m", "Under the mat").json
    assert answered["next"] == "planner", "whose question the text answers"
    uwf("thread", "run", answered["thread"], "--agent", scripted(ASKS))
    assert instructions(uwf, answered["thread"])[2] == "Under the mat"
    is_sound(uwf)


def test_a_fold_and_another_machine_are_no_hindrance(uwf: Uwf, hermetic: Path) -> None:
    ada, bob = Machine(uwf, hermetic / "ada"), Machine(uwf, hermetic / "bob")
    remote = hermetic / "remote.git"
    git("init", "-q", "--bare", remote)
    ada.registers(FLOW)
    ended = ada.starts("Tidy up", "flow")
    ada("thread", "run", ended, "--agent", scripted(REPLIES))
    for each in (ada, bob):
        each("init", check=None)
        each("remote", "add", "origin", remote)
    ada("push")
    bob("pull")
    bob("gc", "--fold-before", "2100-01-01")
    assert not git("--git-dir", bob.store, "for-each-ref", f"refs/uwf/archive/{ended}")
    new = bob("thread", "resume", ended, "-m", "Now the cellar").json["thread"]
    bob("thread", "run", new, "--agent", scripted(REPLIES))
    bob("push")
    assert ada("pull", check=None).code == 0
    assert ada.status(new) == "completed"
    assert instructions(ada, new) == instructions(bob, new)
    ada.verifies()
    bob.verifies()


def test_without_a_role_for_it_one_line_says_what_to_do_instead(uwf: Uwf, thread: str) -> None:
    uwf("thread", "run", thread)
    refused = uwf("thread", "resume", thread, "-m", "More", check=2).error
    assert (
        refused["message"]
        == f"thread {thread} is completed, and workflow pair defines no `resume` edge in $START"
    )
    assert refused["hint"].startswith(f"go on from it with: uwf thread fork {thread} --from-role ")
    assert refused["hint"].endswith(", then: uwf thread say NEW -m TEXT")
    assert uwf("thread", "list").json == []
    fork = uwf(
        "thread", "fork", thread, *refused["hint"].partition(thread)[2].partition(",")[0].split()
    ).json["thread"]
    uwf("thread", "say", fork, "-m", "More")
    assert "More" in uwf("thread", "prompt", fork).out


def test_going_on_takes_a_text_and_an_active_thread_only_an_answer(uwf: Uwf, ended: str) -> None:
    for text in ((), ("-m", "  ")):
        refused = uwf("thread", "resume", ended, *text, check=2).error
        assert refused["hint"] == f"uwf thread resume {ended} -m TEXT"
    thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    refused = uwf("thread", "resume", thread, "-m", "More", check=2).error
    assert refused["message"] == f"thread {thread} is not waiting for an answer and has not ended"
    assert refused["hint"] == f"uwf thread run {thread}"
    uwf("thread", "pause", thread)
    refused = uwf("thread", "resume", thread, "-m", "More", check=2).error
    assert refused["hint"] == f"uwf thread resume {thread}"
    uwf("thread", "resume", thread)
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    uwf("thread", "pause", thread)
    answered = uwf("thread", "resume", thread, "-m", "Under the mat").json
    assert (answered["thread"], answered["resumed"], answered["next"]) == (thread, True, "planner")
    assert uwf("thread", "show", thread).json["status"] == "idle"


def test_a_text_is_refused_with_filters(uwf: Uwf, ended: str) -> None:
    before = uwf("thread", "list", "--all").json
    for select in (("--status", "completed"), ("--all",)):
        refused = uwf("thread", "resume", *select, "-m", "More", check=2).error
        assert refused["message"].startswith("a text is for threads that are named")
    assert uwf("thread", "list", "--all").json == before


def test_a_budget_that_is_used_up_is_told_with_the_command_that_raises_it(uwf: Uwf) -> None:
    uwf("workflow", "put", write("flow.yaml", FLOW + "budget: { maxSteps: 2 }\n"))
    thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    uwf("thread", "run", thread, "--agent", scripted(REPLIES))
    resumed = uwf("thread", "resume", thread, "-m", "More").json
    new = resumed["thread"]
    assert (resumed["status"], resumed["command"]) == ("waiting", f"uwf thread budget {new} --max-steps +2")
    assert resumed["reason"].startswith("maxSteps is used up, 2 of 2 steps")
    said = uwf("thread", "resume", thread, "-m", "More", "--format", "text").out
    assert "; it waits, maxSteps is used up" in said and "uwf thread run" not in said
    refused = uwf("thread", "resume", new, "-m", "More", check=2).error
    assert refused["hint"] == resumed["command"]
    uwf(*resumed["command"].split()[1:])
    uwf("thread", "run", new, "--agent", scripted(REPLIES))
    assert uwf("thread", "show", new).json["status"] == "completed"


def test_a_secret_in_what_is_said_is_taken_out(uwf: Uwf, ended: str, root: Path) -> None:
    (root / ".env").write_text("THE_API_KEY=sesame-open-sesame\n", encoding="utf-8")
    done = uwf("thread", "resume", ended, "-m", "Use sesame-open-sesame")
    assert "secret" in done.err
    assert uwf("thread", "steps", done.json["thread"]).json[-1]["output"] == {
        "answer": "Use [redacted:THE_API_KEY]"
    }


def test_a_reason_without_a_question_is_shown_as_the_question(uwf: Uwf) -> None:
    uwf("workflow", "put", write("flow.yaml", FLOW))
    thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["asks"], shown["question"]) == ("waiting", "planner", "There is no key.")
    assert "reason" not in shown
    assert [each["question"] for each in uwf("inbox").json] == ["There is no key."]
    assert "There is no key." in uwf("thread", "read", thread, "--format", "text").out
    assert "asks: There is no key." in uwf("thread", "step", thread, check=5).error["message"].replace(
        "waits for an answer", "asks"
    )
    uwf("thread", "answer", thread, "-m", "Under the mat")
    uwf("thread", "run", thread, "--agent", scripted(ASKS))
    is_sound(uwf)


def test_a_role_that_waits_without_a_word_is_shown_by_how_its_answer_begins(uwf: Uwf) -> None:
    uwf("workflow", "put", write("flow.yaml", FLOW))
    thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    answer = r'answer: "---\n$status: $SUSPEND\nreason: \" \"\n---\n\nThere are two drafts.\n"'
    asked = uwf("thread", "run", thread, "--agent", scripted(f"- {{ role: planner, {answer} }}"), check=None)
    assert "asks no question" in asked.error["message"]
    waits = uwf("inbox").json[0]
    assert waits["question"] == "It waits for you, and asks no question. There are two drafts."
    shown = uwf("thread", "show", thread).json
    assert (shown["asks"], shown["question"]) == ("planner", waits["question"])


def test_a_role_that_asks_by_its_own_schema_needs_only_a_reason_too(uwf: Uwf) -> None:
    own = FLOW.replace(
        "          required: [$status]",
        "          required: [$status]\n        - properties:\n            $status: { const: $SUSPEND }\n"
        "            reason: { type: string }\n            code: { type: integer }\n"
        "          required: [$status, reason, code]",
    )
    uwf("workflow", "put", write("flow.yaml", own))
    thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    asks = ASKS.replace("There is no key. }", "There is no key., code: 7 }")
    uwf("thread", "step", thread, "--agent", scripted(asks))
    assert uwf("thread", "steps", thread).json[-1]["output"]["code"] == 7
    assert uwf("thread", "show", thread).json["question"] == "There is no key."
    is_sound(uwf)


CONDITIONS = """\
name: told
description: Conditions that ask what was said, and when, with the first engine's names.
roles:
  writer: &role
    description: Writes.
    systemPrompt: Write.
    extractPrompt: The text is what stands in quotes.
    outputSchema: { type: object, properties: { text: { type: string } }, required: [text] }
  reader: *role
conditions:
  blessed: { expression: '$contains(steps[-1].content, "Amen")' }
  recent: { expression: "steps[-1].timestamp > 1700000000000" }
graph:
  __start__: [{ role: writer }]
  writer:
    - { role: __end__, condition: blessed }
    - { role: reader, condition: recent }
    - { role: writer }
  reader: [{ role: writer }]
"""


def test_a_role_that_a_workflow_plays_is_told_what_to_go_on_with_and_was_not_asked(
    uwf: Uwf, root: Path
) -> None:
    for name in ("flow", "inner"):
        uwf("workflow", "put", write(f"{name}.yaml", FLOW.replace("name: flow", f"name: {name}")))
    script = write("inner-replies.yaml", REPLIES).absolute()
    (root / "config.yaml").write_text(
        f"agents: {{scripted: {{command: uwf-rehearse, args: [--script, {script}]}}, "
        "inner: {command: uwf-workflow, args: [--output, '{\"$status\": steps[-1].output.`$status`}', inner]}}\n"
        "defaultAgent: scripted\nagentOverrides: {flow: {worker: inner}}\n",
        encoding="utf-8",
    )
    thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    uwf("thread", "run", thread)
    new = uwf("thread", "resume", thread, "-m", "Now the cellar").json["thread"]
    uwf("thread", "run", new)
    inner = uwf("thread", "list", "--all", "--workflow", "inner").json
    assert [each["title"] for each in inner] == ["See what there is, and go on.", "First"]
    is_sound(uwf)


def test_what_the_user_says_unasked_is_wrong_where_the_workflow_has_no_role_for_it(
    uwf: Uwf, thread: str
) -> None:
    uwf("thread", "run", thread)
    opened = Instance(locate(None, os.environ, Path.cwd()))
    end = opened.threads.head(ThreadId(thread))
    at = Position(end._replace(thread=new_thread_id(), archive=None), opened.threads.history(end))
    record_text(opened, at, "More", begins=True)
    codes = {each["code"] for each in uwf("verify", "--all", check=None).json["findings"]}
    assert codes == {"after-end"}


def test_conditions_are_given_answers_and_times_and_replay_to_the_same(uwf: Uwf) -> None:
    assert uwf("workflow", "validate", write("told.yaml", CONDITIONS)).json["findings"] == []
    uwf("workflow", "put", "told.yaml")
    assert uwf("workflow", "show", "told").json["roles"]["writer"]["extractPrompt"].startswith("The text")
    thread = uwf("thread", "start", "told", "-p", "Write").json["thread"]
    said: list[dict[str, Any]] = [
        {"role": "writer", "answer": "---\\ntext: a\\n---\\n\\nOne.\\n"},
        {"role": "reader", "answer": "---\\ntext: b\\n---\\n\\nAmen, says the reader.\\n"},
        {"role": "writer", "answer": "---\\ntext: c\\n---\\n\\nAmen.\\n"},
    ]
    replies = "".join(f'- {{ role: {each["role"]}, answer: "{each["answer"]}" }}\n' for each in said)
    uwf("thread", "run", thread, "--agent", scripted(replies))
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert [each["role"] for each in uwf("thread", "steps", thread).json] == ["writer", "reader", "writer"]
    is_sound(uwf)


def test_what_an_answer_leaves_out_keeps_no_thread_from_going_on(uwf: Uwf) -> None:
    optional = FLOW.replace('"{{{ _body }}}{{ note }}"', '"{{ note }}"')
    put = uwf("workflow", "put", write("flow.yaml", optional)).json
    assert [(each["line"], each["code"]) for each in put["warnings"]] == [
        (21, "unknown-variable"),
        (24, "optional-variable"),
    ]
    assert '"planner"' in put["warnings"][1]["message"]
    thread = uwf("thread", "start", "flow", "-p", "Tidy up").json["thread"]
    uwf("thread", "run", thread, "--agent", scripted(REPLIES))
    assert instructions(uwf, thread) == ["Plan for Tidy up", None]
    broken = write("broken.yaml", optional.replace("{{ note }}", "{{ nota }}"))
    assert "doesn't have" in uwf("workflow", "put", broken, check=1).error["message"]
    is_sound(uwf)


def test_neither_a_long_answer_nor_a_long_task_keeps_a_thread_from_going_on(uwf: Uwf) -> None:
    uwf("workflow", "put", write("flow.yaml", FLOW))
    task = "t" * 1_000_001
    thread = uwf("thread", "start", "flow", "-p", "-", input=task).json["thread"]
    uwf("thread", "run", thread, "--agent", scripted(REPLIES.replace("# First", "b" * 1_000_000)))
    assert all("characters left out …]" in str(text) for text in instructions(uwf, thread))
    is_sound(uwf)
