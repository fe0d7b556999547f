"""A push from a machine that has not pulled since somebody else's: what it sends, and what it says."""

from __future__ import annotations

from pathlib import Path

import git_servers
import pytest
from conftest import Uwf
from fan_outs import audit
from test_pull_cases import Pair

TEXT = ("--format", "text")


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    return Pair(uwf, tmp_path, lasting)


def listed(remote: Path) -> str:
    return git_servers.git("--git-dir", remote, "for-each-ref", "--format=%(refname) %(objectname)")


def refs_of(pair: Pair, thread: str) -> set[str]:
    names = [line.split()[0] for line in listed(pair.shared).splitlines()]
    return {name.split("/")[2] for name in names if name.endswith(thread)}


def sends_nothing(pair: Pair) -> None:
    before = listed(pair.shared)
    for _ in range(2):
        assert pair.bob("push").json["pushed"] == []
    assert listed(pair.shared) == before
    pair.agree()


@pytest.mark.parametrize("also", [(), ("origin", "ID"), ("--all",)], ids=["all", "by-name", "again"])
@pytest.mark.sample(2)
def test_nothing_is_sent_of_a_thread_that_ended_there_and_did_not_move_here(
    pair: Pair, also: tuple[str, ...]
) -> None:
    words = [pair.thread if word == "ID" else word for word in also]
    pair.works(pair.ada, "by ada", "done")
    pair.ada("push")
    before = listed(pair.shared)
    more = f"nothing new for origin, where thread {pair.thread} has ended; uwf pull origin brings its end\n"
    assert [pair.bob("push", *words, *TEXT).out for _ in range(2)] == [more, more]
    pushed = pair.bob("push", *words).json
    assert (pushed["pushed"], pushed["refused"]) == ([], [])
    assert pushed["endedThere"] == [f"refs/uwf/threads/{pair.thread}"]
    assert listed(pair.shared) == before
    assert pair.pull(pair.bob)["case"] == "ended-there-behind"
    assert pair.bob("push", *TEXT).out == "nothing new for origin\n"
    pair.agree()


def test_a_pause_of_before_the_end_is_not_sent_either(pair: Pair) -> None:
    pair.ada("thread", "pause", pair.thread)
    pair.ada("push")
    pair.bob("pull")
    pair.ada("thread", "kill", pair.thread)
    pair.ada("push")
    sends_nothing(pair)


def test_what_is_new_here_is_sent_beside_a_thread_that_ended_there(pair: Pair) -> None:
    pair.ada("thread", "kill", pair.thread)
    pair.ada("push")
    pair.bob("push")
    other = pair.bob.starts("another", workflow="loop")
    assert pair.bob("push", *TEXT).out == (
        f"pushed to origin: thread {other}\n"
        f"ended on origin: thread {pair.thread}; uwf pull origin brings its end\n"
    )
    assert refs_of(pair, pair.thread) == {"archive"}


def test_a_thread_that_ended_there_and_was_folded_is_not_sent(pair: Pair) -> None:
    pair.ada("thread", "kill", pair.thread)
    pair.ada("push")
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    sends_nothing(pair)


def test_nothing_is_sent_of_a_thread_that_git_fetched_more_of(pair: Pair) -> None:
    pair.works(pair.ada, "by ada")
    pair.ada("push")
    pair.git("fetch", "-q", "origin", at=pair.bob.store)
    before = listed(pair.shared)
    assert pair.bob("push", *TEXT).out == "nothing new for origin\n"
    assert listed(pair.shared) == before
    pair.works(pair.bob, "by bob")  # on top, since a step adopts what was fetched
    assert pair.bob("push", *TEXT).out == f"pushed to origin: thread {pair.thread}, 1 step\n"
    pair.agree()


def test_steps_beside_an_end_are_refused_and_leave_no_second_ref_there(pair: Pair) -> None:
    pair.works(pair.ada, "by ada", "done")
    pair.ada("push")
    head = pair.works(pair.bob, "by bob")
    before = listed(pair.shared)
    for _ in range(2):
        refused = pair.bob("push", *TEXT, check=4)
        assert refused.out == f"refused  thread {pair.thread}: the thread was ended there\n"
        assert "uwf pull origin keeps both sides, then push again" in refused.err
        assert listed(pair.shared) == before
    found = pair.pull(pair.bob)
    assert found["case"] in ("ended-there-behind", "ended-there-ahead", "diverged")
    assert pair.head(pair.bob, found["fork"]["thread"]) == head
    pair.agree()
    assert refs_of(pair, pair.thread) == {"archive"}


def test_an_end_that_arrives_while_steps_are_pushed_leaves_no_second_ref_there(
    pair: Pair, tmp_path: Path
) -> None:
    # Between Bob's look and his push Ada's end arrives: right after his store was told the remote's list.
    pair.works(pair.bob, "by bob")
    pair.ada("thread", "kill", pair.thread)
    program = tmp_path / "upload-pack"
    program.write_text(
        f'#!/bin/sh\ngit upload-pack "$@"\n[ -e {tmp_path}/done ] && exit\n: > {tmp_path}/done\n'
        f"git --git-dir {pair.ada.store} push -q {pair.shared} "
        f"refs/uwf/archive/{pair.thread} :refs/uwf/threads/{pair.thread}\n"
    )
    program.chmod(0o755)
    pair.git("config", "remote.origin.uploadpack", str(program), at=pair.bob.store)
    refused = pair.bob("push", *TEXT, check=4)
    assert refused.out == f"refused  thread {pair.thread}: the thread was ended there\n"
    assert (tmp_path / "done").exists() and refs_of(pair, pair.thread) == {"archive"}
    pair.bob("push", check=4)
    assert refs_of(pair, pair.thread) == {"archive"}
    pair.agree()
    assert refs_of(pair, pair.thread) == {"archive"}


def test_branches_that_ended_there_are_not_sent(pair: Pair) -> None:
    pair.ada.registers(audit())
    thread = pair.ada.starts(workflow="audit")
    while pair.ada.status(thread) != "joining":
        pair.ada("thread", "step", thread)
    pair.ada("push")
    pair.bob("pull")
    branches = [each["thread"] for each in pair.bob("thread", "show", thread).json["branches"]["each"]]
    pair.ada("thread", "run", thread)
    pair.ada("push")
    before = listed(pair.shared)
    many = f"nothing new for origin, where {len(branches) + 1} threads have ended; uwf pull origin brings their ends\n"
    assert [pair.bob("push", *TEXT).out for _ in range(2)] == [many, many]
    assert listed(pair.shared) == before
    pair.agree()
