"""Nothing is recorded that is larger than `uwf verify` accepts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Uwf
from workflows import ONE

from uwf_git.base.errors import Oversized
from uwf_git.format.types import TEXT
from uwf_git.store.instance import Instance

LIMIT = 100_000
AGENT = """
from uwf_git.kit import Reply, TurnRecord, create_agent

def run(ctx):
    with open("calls", "a") as calls:
        calls.write("x")
    (size, place) = ctx.history.start.prompt.split()
    size = int(size)
    if place == "turn":
        ctx.record(TurnRecord("tool", "", "look", {}, "y" * size))
    answer = "---\\ntext: " + ("z" * size if place == "output" else "ok") + "\\n---\\n\\n"
    return Reply(answer + ("x" * size if place == "answer" else "done"))

create_agent("large", run).main()
"""


@pytest.fixture
def limited(uwf: Uwf, root: Path, script: Callable[[str, str], Path]) -> Path:
    """The agent, and a store whose files have at most LIMIT bytes."""
    uwf("init")
    subprocess.run(["git", "-C", root / "store.git", "config", "uwf.maxBlob", str(LIMIT)], check=True)
    Path("one.yaml").write_text(ONE)
    uwf("workflow", "put", "one.yaml")
    return script("large", AGENT)


@pytest.mark.parametrize("place", ["answer", "turn", "output"])
def test_an_answer_larger_than_verify_accepts_fails_its_agent_and_its_attempt_is_kept(
    uwf: Uwf, limited: Path, place: str
) -> None:
    thread = uwf("thread", "start", "one", "-p", f"{LIMIT} {place}").json["thread"]

    for calls in (1, 2):
        refused = uwf("thread", "step", thread, "--agent", limited, check=6)
        assert f"over the limit of {LIMIT:,}" in refused.error["message"]
        assert len(refused.err.splitlines()) == 1
        assert len(Path("calls").read_text()) == calls  # the refused answer is not taken for the next one

    (attempt, *_) = uwf("thread", "attempts", thread).json
    assert f"over the limit of {LIMIT:,}" in attempt["error"]
    detail = uwf("cas", "get", attempt["detail"]).json["payload"]
    turns = [uwf("cas", "get", turn).json["payload"] for turn in detail["turns"]]
    assert any("more characters are left out" in str(turn) for turn in turns)
    assert uwf("verify", thread).json["findings"] == []
    assert "store takes" not in uwf("doctor", check=None).out


def test_an_answer_that_fits_with_its_page_is_recorded(uwf: Uwf, limited: Path) -> None:
    thread = uwf("thread", "start", "one", "-p", f"{LIMIT * 9 // 10} answer").json["thread"]

    uwf("thread", "step", thread, "--agent", limited)

    assert uwf("verify", thread).json["findings"] == []


def test_a_step_whose_page_is_too_large_fails_its_agent_once(
    uwf: Uwf, limited: Path, script: Callable[[str, str], Path]
) -> None:
    both = AGENT.replace('if place == "output"', "if True").replace('if place == "answer"', "if True")
    thread = uwf("thread", "start", "one", "-p", f"{LIMIT * 6 // 10} both").json["thread"]

    for calls in (1, 2):
        uwf("thread", "step", thread, "--agent", script("both", both), check=6)
        assert len(Path("calls").read_text()) == calls

    assert uwf("verify", thread).json["findings"] == []


def test_a_prompt_and_a_node_larger_than_verify_accepts_are_refused(uwf: Uwf, limited: Path) -> None:
    long = "x" * LIMIT
    Path("text.json").write_text(f'"{long}"')

    for words in (["thread", "start", "one", "-p", "-"], ["cas", "put", TEXT, "-"]):
        refused = uwf(*words, input=long if words[0] == "thread" else f'"{long}"', check=1)
        assert f"over the limit of {LIMIT:,}" in refused.error["message"]


def test_a_file_that_no_node_is_has_the_same_limit(instance: Instance, root: Path) -> None:
    subprocess.run(["git", "-C", root / "store.git", "config", "uwf.maxBlob", str(LIMIT)], check=True)

    with pytest.raises(Oversized):
        instance.store.repository.write_blob(bytes(LIMIT + 1))
    instance.store.repository.write_blob(bytes(LIMIT))
