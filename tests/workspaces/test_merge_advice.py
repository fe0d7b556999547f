"""At its end a thread names the branch with its code, and advises a merge only if its work was accepted for certain."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import write
from commands import git
from conftest import Uwf

WRITES = """uwf-exec sh -c 'echo made >> made.txt; echo "{\\"text\\": \\"first\\", \\"approved\\": false}"'"""
DECISION = "{ type: object, properties: { decision: { enum: [yes, no, more] } }, required: [decision] }"
TEXT = "{ type: object, properties: { text: { type: string } }, required: [text] }"
APPROVED = "{ type: object, properties: { approved: { type: boolean } }, required: [approved] }"


CONDITIONS = {
    "yes": 'steps[-1].output.decision = "yes"',
    "no": 'steps[-1].output.decision = "no"',
    "worn": "$count(steps) > 1",
}
ANNOUNCER = f"""
  announcer: {{ description: a, systemPrompt: a, outputSchema: {TEXT} }}"""


def workflow(schema: str, ways: str, human: str = "true") -> str:
    """A writer, then a judge with these edges, and an announcer if they lead there."""
    used = {name: text for name, text in CONDITIONS.items() if f"condition: {name}" in ways}
    conditions = "".join(
        f"  {name}: {{ description: c, expression: '{text}' }}\n" for name, text in used.items()
    )
    return f"""\
name: judged
description: Judged.
roles:
  writer: {{ description: w, systemPrompt: w, outputSchema: {TEXT} }}
  judge: {{ description: Judges., systemPrompt: j, human: {human}, outputSchema: {schema} }}\
{ANNOUNCER if "announcer" in ways else ""}
{"conditions:" if used else ""}
{conditions}
graph:
  $START: [{{ role: writer }}]
  writer: [{{ role: judge }}]
  judge: {ways}
  {"announcer: [{ role: $END }]" if "announcer" in ways else ""}
"""


def start(uwf: Uwf, project: Path, text: str) -> str:
    """A thread of a workflow after its writer's step."""
    where = ("--workspace", "worktree", "--cwd", project)
    thread = str(uwf("thread", "start", write("judged.yaml", text), "-p", "x", *where).json["thread"])
    uwf("thread", "step", thread, "--agent", WRITES)
    return thread


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    (path / "one.txt").write_text("one")
    git("-C", path, "add", ".")
    git("-C", path, "commit", "-q", "-m", "one")
    return path


BACK = "{ role: writer }"
END = "{ role: $END }"
FAILS = "{ end: failed, condition: no, reason: dropped }"


@pytest.mark.parametrize(
    ("schema", "ways", "answer", "advised"),
    [
        (DECISION, f"[{{ role: $END, condition: yes }}, {FAILS}, {BACK}]", "yes", True),
        (DECISION, f"[{{ role: $END, condition: yes }}, {FAILS}, {BACK}]", "no", False),
        (DECISION, f"[{END}]", "no", False),
        (DECISION, f"[{END}]", "yes", False),  # the graph doesn't tell it from no
        (DECISION, "[{ role: $END, condition: no }, { role: announcer }]", "no", False),
        (TEXT, f"[{END}]", "Drop it", False),
    ],
)
@pytest.mark.sample(4)
def test_a_merge_is_advised_if_no_other_decision_would_have_ended_the_thread(
    uwf: Uwf, project: Path, schema: str, ways: str, answer: str, advised: bool
) -> None:
    thread = start(uwf, project, workflow(schema, ways))
    done = uwf("thread", "answer", thread, "-m", answer, "--format", "text", check=None)
    assert uwf("thread", "show", thread).json["done"]
    assert f"its code is at uwf/work/{thread}" in done.err
    assert (f"uwf land {thread}" in done.err) is advised and "git merge" not in done.err
    if advised:
        assert uwf("land", thread).json["onto"] == "main"


@pytest.mark.parametrize("ways", [f"[{{ role: $END, condition: worn }}, {BACK}]", f"[{END}]"])
def test_a_rejection_of_an_agent_is_not_advised_to_merge(uwf: Uwf, project: Path, ways: str) -> None:
    thread = start(uwf, project, workflow(APPROVED, ways, "false"))
    done = uwf("thread", "step", thread, "--agent", WRITES, "--format", "text")
    assert "completed" in done.out
    assert f"its code is at uwf/work/{thread}" in done.err
    assert "git merge" not in done.err and "uwf land" not in done.err


def test_a_killed_thread_advises_no_merge(uwf: Uwf, project: Path) -> None:
    thread = start(uwf, project, workflow(TEXT, f"[{END}]"))
    done = uwf("thread", "kill", thread, "--format", "text")
    assert "merge" not in done.out + done.err


SHIPS = workflow(DECISION, f"[{{ role: $END, condition: yes }}, {FAILS}, {BACK}]")


def test_the_end_says_that_the_merge_will_conflict(uwf: Uwf, project: Path) -> None:
    thread = start(uwf, project, SHIPS)
    (project / "made.txt").write_text("another text")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "meanwhile")
    done = uwf("thread", "answer", thread, "-m", "yes", "--format", "text")
    assert f"uwf land {thread}; main has moved on by 1 commit" in done.err
    shown = uwf("thread", "show", thread).json["code"]
    assert shown["merge"] == f"git merge uwf/work/{thread}" and "will conflict" in shown["warnings"][0]


def test_a_merge_by_hand_is_shown_beside_the_command_that_lands(uwf: Uwf, project: Path) -> None:
    thread = start(uwf, project, SHIPS)
    assert "git merge" not in uwf("thread", "show", thread, "--format", "text").out
    uwf("thread", "answer", thread, "-m", "yes")
    text = uwf("thread", "show", thread, "--format", "text").out
    assert f"merge      uwf land {thread}, or by hand: git merge uwf/work/{thread}\n" in text


def test_what_is_merged_is_not_advised_to_merge_again(uwf: Uwf, project: Path) -> None:
    thread = start(uwf, project, SHIPS)
    uwf("thread", "answer", thread, "-m", "yes")
    assert uwf("thread", "show", thread).json["code"]["merged"] is False
    git("-C", project, "checkout", "-q", f"uwf/work/{thread}")
    assert uwf("thread", "show", thread).json["code"]["merged"] is False
    git("-C", project, "checkout", "-q", "main")
    git("-C", project, "merge", "-q", f"uwf/work/{thread}")
    git("-C", project, "checkout", "-q", "--detach")
    assert uwf("thread", "show", thread).json["code"]["merged"] is True
    git("-C", project, "checkout", "-q", "main")
    code = uwf("thread", "show", thread).json["code"]
    assert (code["merge"], code["merged"], code["warnings"]) == (None, True, [])
    text = uwf("thread", "show", thread, "--format", "text").out
    assert ", merged" in text and "git merge" not in text and "uwf land" not in text


def test_code_whose_ref_is_elsewhere_is_merged_by_its_commit(uwf: Uwf, project: Path) -> None:
    thread = start(uwf, project, SHIPS)
    git("-C", project, "switch", "-q", "-c", "mine", f"uwf/work/{thread}")
    (project / "mine.txt").write_text("mine")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "mine")
    mine = git("-C", project, "rev-parse", "HEAD")
    uwf("thread", "answer", thread, "-m", "more")
    uwf("thread", "step", thread, "--agent", WRITES)
    git("-C", project, "update-ref", f"refs/uwf/work/{thread}", mine)
    done = uwf("thread", "answer", thread, "-m", "yes")
    code = done.json["code"]
    assert code["branch"] is None and code["merge"] == f"git merge {code['commit'][:12]}"
    assert mine[:12] in code["warnings"][0]
    git("-C", project, *code["merge"].split()[1:])
    assert (project / "made.txt").read_text() == "made\nmade\n" and (project / "mine.txt").is_file()


def test_code_that_was_fetched_is_merged_by_the_name_that_it_has_here(uwf: Uwf, project: Path) -> None:
    thread = start(uwf, project, SHIPS)
    branch = f"uwf/work/{thread}"
    tip = git("-C", project, "rev-parse", branch)
    fetched = f"uwf/local/remotes/origin/{thread}"
    git("-C", project, "update-ref", f"refs/{fetched}", tip)
    git("-C", project, "update-ref", "-d", f"refs/{branch}")
    done = uwf("thread", "answer", thread, "-m", "yes", "--format", "text")
    assert f"its code is at {fetched}: uwf land {thread}" in done.err
    shown = uwf("thread", "show", thread).json["code"]["merge"]
    assert shown == f"git merge {fetched}"
    git("-C", project, *shown.split()[1:], "-q")


def test_what_a_person_committed_at_a_gate_with_approvers_is_kept_and_named(uwf: Uwf, project: Path) -> None:
    me = git("-C", project, "config", "user.email")
    text = SHIPS.replace("human: true", f"human: true, approvers: [{me}]")
    thread = start(uwf, project, text)
    folder = uwf("workspace", "path", thread).out.strip()
    git("-C", folder, "commit", "-q", "--allow-empty", "-m", "by hand")
    commit = git("-C", folder, "rev-parse", "HEAD")
    done = uwf("thread", "answer", thread, "-m", "yes")
    ref = f"refs/uwf/local/work/{thread}/{commit[:12]}"
    assert ref in done.err and git("-C", project, "rev-parse", ref) == commit
