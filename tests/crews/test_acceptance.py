"""What spec 002 asks of a runtime with two ways in, shown with the package among the examples: one engine for both, no
stop without need, stops that follow from the run alone, and personas by one rule; and a second machine that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import scripted
from commands import git
from conftest import EXAMPLES, Uwf
from two_machines import Machine

TRIP = EXAMPLES / "crew" / "trip"
ASKED = """\
- { role: wishes, output: { $status: $SUSPEND, question: When do you travel? } }
- { role: wishes, output: { summary: Two who like the sea., variables: { season: summer } } }
- { role: where, output: { summary: The sea fits. } }
- { role: coast, output: { summary: Rostock., variables: { place: Rostock } } }
- { role: plan, output: { summary: Two days., artifacts: [artifacts/plan.md] } }
- { role: review, output: { summary: Too dear., next: again } }
- { role: plan, output: { summary: Two cheaper days., artifacts: [artifacts/plan.md] } }
- { role: review, output: { summary: Fine., next: good } }
- { role: done, output: { summary: Rostock in June., variables: { workflowStatus: complete } } }
"""
WAY = ["wishes", "$USER", "wishes", "where", "coast", "plan", "review", "plan", "review", "done"]


@pytest.fixture
def store(root: Path) -> Path:
    return root / "store.git"


@pytest.fixture
def agent(uwf: Uwf) -> str:
    """The agent of all runs; the crew is there."""
    uwf("crew", "import", TRIP)
    return scripted(ASKED, "trip.replies.yaml")


def told(uwf: Uwf, thread: str) -> list[tuple[str, str, object]]:
    """Each step of a thread: its role, who did it, and the output."""
    return [(each["role"], each["agent"], each["output"]) for each in uwf("thread", "steps", thread).json]


def test_both_ways_in_make_the_same_run_node_by_node(uwf: Uwf, agent: str, store: Path) -> None:
    by_workflow = uwf("run", "trip/weekend", "--as", "mary", "-p", "A weekend", "--agent", agent, check=5)
    by_person = uwf("crew", "do", "trip/mary", "1", "-p", "A weekend", "--agent", agent, check=5)
    threads = [str(ran.lines[0]["thread"]) for ran in (by_workflow, by_person)]
    assert threads[0] != threads[1]
    for thread in threads:
        uwf("thread", "answer", thread, "-m", "In June")
        ended = uwf("thread", "run", thread, "--agent", agent)
        assert ended.lines[-1]["status"] == "completed"
    one, other = (told(uwf, thread) for thread in threads)
    assert one == other
    assert [role for role, *_ in one] == WAY
    starts = [git("--git-dir", store, "log", "--format=%(trailers:key=Uwf-Start,valueonly)",
                  f"refs/uwf/archive/{thread}").split() for thread in threads]  # fmt: skip
    assert starts[0] == starts[1] and len(starts[0]) == 1
    states = [uwf("thread", "show", thread).json["state"] for thread in threads]
    for each in (decision for state in states for decision in state["decisionLog"]):
        assert each.pop("decidedAt")
    assert states[0] == states[1]
    assert states[0]["variables"] == {
        "budget": 500,
        "season": "summer",
        "place": "Rostock",
        "workflowStatus": "complete",
    }
    assert [(each["from"], each["label"]) for each in states[0]["decisionLog"]] == [
        ("where", "sea"),
        ("review", "again"),
        ("review", "good"),
    ]


def test_a_run_stops_only_where_input_is_missing_and_goes_on_by_itself_after_it(uwf: Uwf, agent: str) -> None:
    begun = uwf("run", "trip/weekend", "-p", "A weekend", "--agent", agent, check=5)
    thread = begun.lines[0]["thread"]
    waiting = uwf("thread", "show", thread).json
    assert (waiting["status"], waiting["asks"]) == ("waiting", "wishes")
    assert waiting["question"] == "When do you travel?"
    assert waiting["state"]["currentNodeId"] == "wishes" and waiting["state"]["stepsCompleted"] == []
    uwf("thread", "answer", thread, "-m", "In June", "--for", waiting["head"])
    prompt = uwf("thread", "prompt", thread, "--format", "text").out
    assert "USER_INPUT\n- forNodeId: wishes\n" in prompt and "In June" in prompt
    went_on = uwf("thread", "run", thread, "--agent", agent)
    assert len(went_on.lines) == len(WAY) - 2, "without another stop"
    assert uwf("thread", "show", thread).json["status"] == "completed"


def test_an_answer_to_another_step_is_refused_however_late_it_comes(uwf: Uwf, agent: str) -> None:
    thread = uwf("run", "trip/weekend", "-p", "A weekend", "--agent", agent, check=5).lines[0]["thread"]
    asked = uwf("thread", "show", thread).json["head"]
    uwf("thread", "answer", thread, "-m", "In June")
    uwf("thread", "step", thread, "--agent", agent)
    late = uwf("thread", "answer", thread, "-m", "In May", "--for", asked, check=None)
    assert late.code != 0 and late.error["message"] == f"thread {thread} is not waiting for an answer"


def test_a_node_speaks_as_its_own_persona_else_as_whom_the_run_was_begun_with(
    uwf: Uwf, agent: str, store: Path
) -> None:
    thread = uwf("run", "trip/weekend", "--as", "tom", "-p", "x", "--agent", agent, check=5).lines[0][
        "thread"
    ]
    uwf("thread", "answer", thread, "-m", "In June")
    uwf("thread", "run", thread, "--agent", agent)
    subjects = git(
        "--git-dir",
        store,
        "log",
        "--reverse",
        "--format=%an",
        f"refs/uwf/archive/{thread}",
    )
    spoken = [name.partition(" (")[0] for name in subjects.splitlines() if "(" in name]
    assert spoken == ["Mary", "Mary", "Tom", "Tom", "Tom", "Mary", "Tom", "Mary", "Tom"]


def test_a_second_machine_pulls_the_crew_and_goes_on_with_its_run(uwf: Uwf, hermetic: Path) -> None:
    ada, bob = Machine(uwf, hermetic / "ada"), Machine(uwf, hermetic / "bob")
    remote = hermetic / "remote.git"
    git("init", "-q", "--bare", remote)
    replies = scripted(ASKED, "trip.replies.yaml")
    made = ada("crew", "import", TRIP).json
    thread = ada("run", "trip/weekend", "-p", "A weekend", "--agent", replies, check=5).lines[0]["thread"]
    for each in (ada, bob):
        each("init", check=None)
        each("remote", "add", "origin", remote)
    ada("push")
    bob("pull")
    assert bob("crew", "show", "trip").json["hash"] == made["hash"]
    bob("thread", "answer", thread, "-m", "In June")
    bob("thread", "run", thread, "--agent", replies)
    bob("push")
    assert ada("pull", check=None).code == 0
    assert ada("thread", "show", thread).json["status"] == "completed"
    for each in (ada, bob):
        assert each("verify", "--all").json["findings"] == []
        assert each("crew", "export", "trip", "-o", each.root / "trip.bmad").code == 0
    assert (ada.root / "trip.bmad").read_bytes() == (bob.root / "trip.bmad").read_bytes()
