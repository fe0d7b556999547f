"""Suites of cases between two machines: they go with a push as all else does, and what both added is in both."""

from __future__ import annotations

from pathlib import Path

import git_servers
import pytest
from conftest import Uwf
from test_pull_cases import Pair
from test_some_threads import opened, tracked
from two_machines import Machine

from uwf_git.ext.evaluation import SUITES
from uwf_git.ext.evaluation.records import UNKNOWN, Case, identified
from uwf_git.ext.evaluation.suite import Additions, Suites
from uwf_git.format.ids import ThreadId

BUGS = SUITES.prefix + "bugs"


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    return Pair(uwf, tmp_path, lasting)


def adds(machine: Machine, name: str, thread: str | None = None) -> None:
    """Puts a case into the suite `bugs`: of a thread as it stands, or of a prompt."""
    instance = opened(machine)
    if thread is None:
        added = Additions(cases=[identified(Case(UNKNOWN, name, "Do it"))])
    else:
        head = instance.threads.head(ThreadId(thread))
        case = Case(UNKNOWN, name, start=head.row.start, step=head.node)
        added = Additions(cases=[identified(case)], commits=[head.commit])
    Suites(instance.store).add("bugs", added)


def cases(machine: Machine) -> list[str]:
    return [case.name for case in Suites(opened(machine).store).read("bugs").cases]


def test_what_two_machines_add_to_a_suite_is_in_it_on_both(pair: Pair) -> None:
    adds(pair.ada, "first", pair.thread)
    assert pair.ada("push", "--format", "text").out == "pushed to origin: suite bugs\n"
    assert "pulled from origin: suite bugs" in pair.bob("pull", "--format", "text").out
    assert cases(pair.bob) == ["first"]
    adds(pair.ada, "of ada")
    adds(pair.bob, "of bob")
    pair.ada("push")
    lost = pair.bob("push", check=4).error
    assert lost["message"].startswith("suite bugs was moved on origin by Ada Example")
    (found,) = pair.bob("pull").json["adopted"]
    assert (found["ref"], found["case"], found["number"]) == (BUGS, "united", 19)
    pair.bob("push")
    assert pair.ada("pull").json["adopted"][0]["case"] == "behind"
    assert cases(pair.ada) == cases(pair.bob) == ["first", "of ada", "of bob"]
    assert pair.ada.refs()[BUGS] == pair.bob.refs()[BUGS] == git_servers.refs(pair.shared)[BUGS]
    for machine in (pair.ada, pair.bob):
        machine.is_sound()


def test_a_suite_is_pushed_by_its_name_with_the_threads_of_its_cases(pair: Pair, tmp_path: Path) -> None:
    thread = pair.ada.starts("only in a case", workflow="loop")
    step = pair.works(pair.ada, "kept", thread=thread)
    adds(pair.ada, "kept", thread)
    pushed = pair.ada("push", "--suite", "bugs").json["pushed"]
    assert [each["ref"] for each in pushed] == [BUGS]
    assert "bugs" in pair.ada("push", "--suite", "bug", check=3).error["hint"]
    assert "exclude" in pair.ada("push", "--suite", "bugs", "--all", check=2).error["message"]
    pair.bob("pull")
    assert thread not in pair.bob.heads() and cases(pair.bob) == ["kept"]
    assert pair.bob("cas", "get", step).json, "its steps came with the case"
    pair.bob.is_sound()


def test_a_suite_that_was_deleted_there_stays_here_and_is_named(pair: Pair) -> None:
    adds(pair.ada, "first")
    pair.ada("push")
    pair.bob("pull")
    pair.git("update-ref", "-d", BUGS)
    told = pair.bob("pull", "--format", "text").out
    assert told == "deleted on origin: suite bugs; what is here stays\n"
    adds(pair.bob, "second")
    held = pair.bob("push", "--format", "text").out
    assert "deleted on origin, kept here: suite bugs" in held
    pair.bob("push", "--suite", "bugs")
    pair.ada("pull")
    assert cases(pair.ada) == ["first", "second"]


def test_a_suite_that_was_forged_is_refused_and_the_rest_taken_over(pair: Pair) -> None:
    adds(pair.ada, "first")
    pair.works(pair.ada, "second")
    pair.ada("push")
    head = pair.git("rev-parse", f"refs/uwf/threads/{pair.thread}").strip()
    pair.git("update-ref", BUGS, head)
    done = pair.bob("pull", check=7)
    assert [each["ref"] for each in done.json["refused"]] == [BUGS]
    assert pair.head(pair.bob) == pair.head(pair.ada) and BUGS not in pair.bob.refs()
    assert pair.bob("verify", "--remote", "origin", check=7).json["findings"][0]["ref"] == BUGS


def test_a_remote_that_was_added_before_suites_were_gets_their_refspecs(pair: Pair) -> None:
    for key in ("fetch", "push"):
        pair.git("config", "--unset-all", f"remote.origin.{key}", "refs/uwf/evals/", at=pair.bob.store)
    adds(pair.ada, "first")
    pair.ada("push")
    pair.git("fetch", "-q", "origin", at=pair.bob.store)
    assert "evals/bugs" not in tracked(pair.bob)
    before = pair.git("config", "--get-regexp", "remote.origin", at=pair.bob.store).splitlines()
    pair.bob("remote", "add", "origin", pair.shared)
    after = pair.git("config", "--get-regexp", "remote.origin", at=pair.bob.store).splitlines()
    assert len(after) == len(before) + 2 == len(set(after))
    # What the user pushes to a remote of their own is for them to say.
    for key, value in (("url", str(pair.shared)), ("tagOpt", "--no-tags")):
        pair.git("config", f"remote.code.{key}", value, at=pair.bob.store)
    for _ in range(2):
        pair.bob("remote", "add", "code")
    theirs = pair.git("config", "--get-regexp", "remote.code", at=pair.bob.store).splitlines()
    assert not any("push" in line for line in theirs) and len(theirs) == len(set(theirs)) > 3
    pair.git("fetch", "-q", "origin", at=pair.bob.store)
    pair.bob("thread", "list")
    assert cases(pair.bob) == ["first"]
