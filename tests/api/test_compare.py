"""Two forks side by side: how each came about, its verdicts, and what each changed since their last common step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import PAIR, write
from commands import git
from conftest import Uwf
from workflows import opened

from uwf_git.api.cockpit.compare import changes_since, compare, sides
from uwf_git.format.ids import ThreadId
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance

REJECTS, APPROVES = '{"approved": false}', '{"approved": true}'


@pytest.fixture
def step(uwf: Uwf, hermetic: Path) -> Callable[[str, str, str], None]:
    """Makes a step of a thread whose agent runs these commands and has this output."""
    numbers = iter(range(100))

    def make(thread: str, shell: str, output: str) -> None:
        name = f"../agent{next(numbers)}.sh"
        script = write(name, f"cat >/dev/null\n{shell}\necho '{output}'\n").resolve()
        uwf("thread", "step", thread, "--agent", f"uwf-exec sh {script}")

    return make


@pytest.fixture
def thread(uwf: Uwf, step: Callable[[str, str, str], None]) -> str:
    """A thread in a worktree, after a first step that wrote a file."""
    git("init", "-q", "-b", "main")
    write("kept.txt", "one\n")
    git("add", ".")
    git("commit", "-qm", "first")
    uwf("workflow", "put", write("../pair.yaml", PAIR))
    thread = str(uwf("thread", "start", "pair", "-p", "Do it", "--workspace", "worktree").json["thread"])
    step(thread, "seq 100 >both.txt", '{"text": "begun"}')
    return thread


def heads_of(*threads: str) -> tuple[Instance, list[Head]]:
    instance = opened()
    return instance, [instance.threads.head(ThreadId(thread)) for thread in threads]


def test_the_changes_of_each_fork_are_its_own_since_the_common_step(
    uwf: Uwf, thread: str, step: Callable[[str, str, str], None]
) -> None:
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    step(thread, "sed -i 5d both.txt; echo a >only-a.txt", REJECTS)
    step(fork, "echo last >>both.txt", REJECTS)
    instance, heads = heads_of(thread, fork)
    one, other = changes_since(instance, heads)
    assert one and other and one["base"] == other["base"]
    counts = [
        {file["path"]: (file["added"], file["deleted"]) for file in side["files"]} for side in (one, other)
    ]
    assert counts == [{"both.txt": (0, 1), "only-a.txt": (1, 0)}, {"both.txt": (1, 0)}]
    (file,) = other["files"]
    assert file["lines"][-1] == {"kind": "+", "old": None, "new": 101, "text": "last"}
    value = uwf("thread", "diff", thread, fork, "--patch").json
    assert [value["a"]["code"], value["b"]["code"]] == [one, other]
    listed = uwf("thread", "diff", thread, fork).json["b"]["code"]["files"]
    assert listed == [{key: file[key] for key in file if key not in ("lines", "left")}]
    text = uwf("thread", "diff", thread, fork, "--format", "text").out
    assert "2 files changed, +1 -1" in text and "1 file changed, +1 -0" in text


def test_a_fork_that_did_nothing_yet_has_no_changes_of_its_own(uwf: Uwf, thread: str) -> None:
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    one, other = changes_since(*heads_of(thread, fork))
    assert one and other and one["files"] == other["files"] == []


def test_forks_of_the_start_are_compared_with_the_project_that_they_began_with(
    uwf: Uwf, thread: str, step: Callable[[str, str, str], None]
) -> None:
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    bare = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    step(fork, "echo two >>kept.txt", '{"text": "other"}')
    one, other = changes_since(*heads_of(thread, fork))
    assert one and other and one["base"] == other["base"] == git("rev-parse", "main")
    assert [[file["path"] for file in side["files"]] for side in (one, other)] == [["both.txt"], ["kept.txt"]]
    _, none = changes_since(*heads_of(thread, bare))
    assert none is None and "code" not in uwf("thread", "diff", thread, bare).json["b"]


def test_each_side_says_where_it_was_forked_and_what_came_of_it_since(
    uwf: Uwf, thread: str, step: Callable[[str, str, str], None]
) -> None:
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    step(thread, "true", REJECTS)
    step(thread, "true", '{"text": "again"}')
    one, other = sides(*heads_of(thread, fork))
    name = git("config", "user.name")
    assert (one["origin"], other["origin"]) == (
        None,
        {"how": "forked", "thread": thread, "at": 1, "by": name},
    )
    assert one["first"] == {"number": 2, "role": "critic", "by": "uwf-exec"}
    assert one["verdicts"] == [{"number": 2, "role": "critic", "verdict": "not approved"}]
    assert one["last"] == {"number": 3, "role": "writer", "verdict": "again"}
    assert (other["first"], other["last"], other["verdicts"]) == (None, None, [])
    value = uwf("thread", "diff", thread, fork).json
    for side, whole in (("a", one), ("b", other)):
        assert (value[side]["origin"], value[side]["verdicts"]) == (whole["origin"], whole["verdicts"])
    instance, heads = heads_of(thread, fork)
    assert compare(instance, heads)["sides"] == sides(instance, heads)


def test_the_newest_verdict_of_a_role_counts(
    uwf: Uwf, thread: str, step: Callable[[str, str, str], None]
) -> None:
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    for output in (REJECTS, '{"text": "again"}', APPROVES):
        step(fork, "true", output)
    _, other = sides(*heads_of(thread, fork))
    assert other["verdicts"] == [{"number": 4, "role": "critic", "verdict": "approved"}]
    assert other["status"] == "completed" and other["last"]["number"] == 4
