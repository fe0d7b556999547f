"""A fork says whose it is and where it was forked, on every machine, and isn't taken for a task of its own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import commands
import pytest
from cli_samples import GATE, WRITES, scripted
from conftest import Uwf
from forged import Forger
from two_machines import Machine, begun

from uwf_git.store import layout

NEVER = "2100-01-01"


class Team:
    """Ada's and Bob's machines with origin between them, and a thread of Ada's with a step that both have."""

    def __init__(self, uwf: Uwf, folder: Path, lasting: Path) -> None:
        self.shared = folder / "shared.git"
        self.ada, self.bob = Machine(uwf, folder / "ada"), Machine(uwf, folder / "bob")
        self.thread = begun(folder, lasting / "forks", self._begin)
        commands.git("--git-dir", self.bob.store, "config", "user.name", "Bob Example")
        commands.git("--git-dir", self.bob.store, "config", "user.email", "bob@example.invalid")

    def _begin(self) -> str:
        subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(self.shared)], check=True)
        self.ada.registers()
        thread = self.ada.starts("the one")
        self.ada.steps(thread)
        self.ada("remote", "add", "origin", self.shared)
        self.ada("push")
        self.bob("clone", self.shared)
        return thread


@pytest.fixture
def team(uwf: Uwf, tmp_path: Path, lasting: Path) -> Team:
    return Team(uwf, tmp_path, lasting)


def test_a_shared_fork_says_who_forked_it_and_where(team: Team) -> None:
    head = team.bob.heads()[team.thread]
    fork = team.bob("thread", "fork", team.thread).json["thread"]
    team.bob("push")
    team.ada("pull")
    for who in (team.bob, team.ada):
        shown = who("thread", "show", fork).json
        origin = shown["forkedFrom"]
        assert (origin["thread"], origin["step"]) == (team.thread, head)
        assert origin["by"] == "Bob Example <bob@example.invalid>"
        text = who("thread", "show", fork, "--format", "text").out
        assert f"from thread {team.thread} after {head} by Bob Example, {origin['at']}" in text
        listed = {each["thread"]: each for each in who("thread", "list").json}
        assert listed[fork]["forkedFrom"] == origin and "forkedFrom" not in listed[team.thread]
        rows = who("thread", "list", "--format", "text").out
        assert re.search(rf"(?m)^{fork} .*\(fork of {team.thread}\) the one$", rows)
        found = [each["thread"] for each in who("thread", "list", "--author", "bob").json]
        assert found == [fork]
        assert "divergedFrom" not in shown and "otherSides" not in who("thread", "show", team.thread).json
        who.is_sound()


def test_a_fork_by_a_step_is_of_the_oldest_thread_that_has_it(team: Team) -> None:
    head = team.bob.heads()[team.thread]
    first = team.bob("thread", "fork", team.thread, "--at", "0").json
    team.bob("thread", "fork", team.thread)
    made = team.bob("thread", "fork", head).json
    assert made["forkedFrom"] == {"step": head, "thread": team.thread}
    again = team.bob("thread", "fork", first["thread"]).json
    assert again["forkedFrom"]["thread"] == first["thread"]
    team.bob("thread", "rm", team.thread, "--yes")
    assert team.bob("thread", "show", made["thread"]).json["forkedFrom"]["thread"] == team.thread
    team.bob.is_sound()


def test_a_push_by_name_takes_no_forks_that_somebody_wanted_along(team: Team) -> None:
    fork = team.bob("thread", "fork", team.thread).json["thread"]
    team.bob.steps(team.thread)
    pushed = team.bob("push", "origin", team.thread).json["pushed"]
    assert [each["ref"] for each in pushed] == [layout.ARCHIVE + team.thread]
    pushed = team.bob("push", "origin", fork).json["pushed"]
    assert [each["ref"] for each in pushed] == [layout.FORKS + fork, layout.THREADS + fork]


def test_a_folded_fork_still_says_whose_it_is(team: Team) -> None:
    fork = team.bob("thread", "fork", team.thread).json["thread"]
    origin = team.bob("thread", "show", fork).json["forkedFrom"]
    team.bob("thread", "kill", fork)
    team.bob("gc", "--fold-before", NEVER)
    assert not any(name.startswith(layout.FORKS) for name in team.bob.refs())
    team.bob("push")
    team.ada("pull")
    for who in (team.bob, team.ada):
        (listed,) = who("thread", "list", "--status", "killed", "--author", "bob").json
        assert listed["forkedFrom"] == origin
        assert who("thread", "show", fork).json["forkedFrom"] == origin
        who.is_sound()


def test_the_other_side_of_a_divergence_is_marked_in_lists(team: Team) -> None:
    team.ada.steps(team.thread, "by ada")
    team.bob.steps(team.thread, "by bob")
    team.ada("push")
    other = team.bob("pull").json["adopted"][0]["fork"]["thread"]
    team.bob("push")
    team.ada("pull")
    for who in (team.ada, team.bob):
        listed = {each["thread"]: each for each in who("thread", "list", "--all").json}
        assert listed[other]["divergedFrom"] == who("thread", "show", other).json["divergedFrom"]
        assert listed[other]["divergedFrom"]["thread"] == team.thread
        assert "divergedFrom" not in listed[team.thread]
        rows = who("thread", "list", "--all", "--format", "text").out
        assert f"(other side of {team.thread}) the one" in rows


def fork_tag(store: Path, thread: str, text: str, target: str, when: int = 1_700_000_000) -> None:
    """Point a thread's fork ref at a tag that is made by hand."""
    head = f"object {target}\ntype commit\ntag uwf/{thread}\ntagger B <b@c.invalid> {when} +0000"
    forger = Forger(store)
    forger.point(layout.FORKS + thread, forger.write("tag", f"{head}\n\n{text}".encode()))


def forks_of_each_other(team: Team) -> tuple[str, str]:
    """Two threads at Bob's, each of which is said to be a fork of the other."""
    fork = team.bob("thread", "fork", team.thread).json["thread"]
    base = commands.git("--git-dir", team.bob.store, "rev-parse", layout.THREADS + fork).strip()
    fork_tag(team.bob.store, team.thread, f"fork of {fork}\nforked by hand\n", base)
    return team.thread, fork


def test_a_pull_takes_no_forks_of_each_other(team: Team) -> None:
    names = [layout.FORKS + each for each in sorted(forks_of_each_other(team))]
    commands.git("--git-dir", team.bob.store, "push", "-q", team.shared, "refs/uwf/*:refs/uwf/*")
    pulled = team.ada("pull", check=7).json
    copy = layout.THREADS + names[1].removeprefix(layout.FORKS)  # no fork without its tag
    assert [each["ref"] for each in pulled["refused"]] == [copy, names[0]]
    assert "fork of its own forks" in pulled["refused"][1]["problem"] and copy not in team.ada.refs()
    assert not any(name.startswith(layout.FORKS) for name in team.ada.refs())
    team.ada.is_sound()


def test_a_pull_takes_no_fork_that_one_here_is_a_fork_of(team: Team) -> None:
    thread, fork = forks_of_each_other(team)
    refs = [layout.FORKS + fork, layout.THREADS + fork]
    commands.git("--git-dir", team.bob.store, "push", "-q", team.shared, *refs)
    assert team.ada("pull").json["refused"] == []
    commands.git("--git-dir", team.bob.store, "push", "-q", team.shared, layout.FORKS + thread)
    assert [each["ref"] for each in team.ada("pull", check=7).json["refused"]] == [layout.FORKS + thread]
    team.ada.is_sound()


def test_a_pull_takes_no_fold_of_forks_of_each_other(team: Team) -> None:
    for each in forks_of_each_other(team):
        team.bob("thread", "kill", each)
    team.bob("gc", "--fold-before", NEVER)
    (fold,) = (name for name in team.bob.refs() if name.startswith(layout.FOLDED))
    commands.git("--git-dir", team.bob.store, "push", "-q", team.shared, fold)
    (refused,) = team.ada("pull", check=7).json["refused"]
    assert refused["ref"] == fold and "fork of its own forks" in refused["problem"]
    team.ada.is_sound()


@pytest.mark.parametrize("when", [10**17, 10**20])
def test_a_fork_tag_of_a_time_no_clock_shows_hides_no_list(team: Team, when: int) -> None:
    fork = team.bob("thread", "fork", team.thread).json["thread"]
    base = commands.git("--git-dir", team.bob.store, "rev-parse", layout.THREADS + fork).strip()
    fork_tag(team.bob.store, fork, f"fork of {team.thread}\nforked by hand\n", base, when)
    assert {each["thread"] for each in team.bob("thread", "list").json} == {team.thread, fork}
    assert team.bob("thread", "show", fork).json["thread"] == fork
    team.bob("inbox")
    told = [each for each in team.bob("doctor", check=7).json if "no clock shows" in each["message"]]
    assert [each["message"].partition(":")[0] for each in told] == [layout.FORKS + fork]
    codes = {each["code"]: each["ref"] for each in team.bob("verify", check=7).json["findings"]}
    assert codes == dict.fromkeys(("malformed", "rolled-back"), layout.FORKS + fork)


def test_two_machines_that_retry_one_thread_both_see_both_retries_after_they_have_shared(team: Team) -> None:
    team.ada.registers(GATE)
    failed = team.ada.starts("Announce it", "gated")
    team.ada("thread", "step", failed, "--agent", scripted(WRITES))
    team.ada("thread", "answer", failed, "-f", "decision=drop", check=10)
    team.ada("push")
    team.bob("pull")
    retries = [
        json.loads(who("thread", "retry", failed, check=5).out)["thread"] for who in (team.ada, team.bob)
    ]
    team.ada("push")
    team.bob("pull")
    team.bob("push")
    team.ada("pull")
    for who in (team.ada, team.bob):
        listed = {item["thread"]: item for item in who("thread", "list", "--all").json}
        assert [listed[retry]["forkedFrom"]["thread"] for retry in retries] == [failed, failed]
        waiting = {item["thread"]: item["forkedFrom"]["thread"] for item in who("inbox").json}
        assert waiting == dict.fromkeys(retries, failed)
        assert who("thread", "list", "--status", "failed", "--unretried").json == []
        refused = who("thread", "retry", failed, check=1).error["message"]
        assert all(retry in refused for retry in retries)
        who.is_sound()
