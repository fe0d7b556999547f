"""Fleets of several machines: a Temporal server that is there, a worker on each machine, and a bare repository between
their stores."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from cli_samples import ASKS, PAIR, scripted
from commands import git, wait_for, wait_until_gone
from complete import examine
from conftest import Begin, Uwf
from fleets import FIVE, PATIENT, STEPS, hurry, kill, steps_told, until
from two_machines import Machine

from uwf_git.ext.fleet.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Temporal server that is there."""
    with Server(tmp_path_factory.mktemp("temporal")) as running:
        yield running.address


class Fleet:
    """Two machines with a bare repository as `origin` of both, and workers there."""

    def __init__(self, uwf: Uwf, begin: Begin, home: Path, address: str) -> None:
        self.address = address
        self.bare = home / "bare.git"
        git("init", "-q", "--bare", self.bare)
        self.one, self.other = (Machine(uwf, home / name) for name in ("one", "other"))
        for each in (self.one, self.other):
            each("init")
            each("remote", "add", "origin", self.bare)
        self.begin = begin

    def __call__(self, machine: Machine, *args: str, **more: Any) -> Any:
        """`uwf fleet` on a machine."""
        return machine("fleet", *args, "--address", self.address, **more)

    def work(self, machine: Machine, *options: str, env: Mapping[str, str] | None = None) -> Popen[str]:
        """A worker there."""
        where = ("--address", self.address, "--remote", "origin")
        return self.begin("fleet", "worker", *where, *options, env={**machine.environment, **(env or {})})

    def start(self, many: int, *options: str) -> list[str]:
        """So many threads of the first machine in the queue."""
        self.one.registers(FIVE)
        threads = [self.one.starts(f"Say {each}", "five") for each in range(many)]
        self(self.one, "start", *threads, "--remote", "origin", *options)
        return threads

    def state(self, thread: str) -> str:
        """What the queue says of a thread."""
        rows = self(self.one, "status", "--all").json
        return next((row["state"] for row in reversed(rows) if row["thread"] == thread), "")

    def ends(self, thread: str) -> None:
        """Returns once the queue has stepped a thread to its end."""
        until(lambda: self.state(thread) == "completed", f"end of {thread}")


@pytest.fixture
def fleet(uwf: Uwf, begin: Begin, hermetic: Path, server: str) -> Fleet:
    return Fleet(uwf, begin, hermetic, server)


def test_two_machines_step_threads_to_their_ends_through_a_repository(fleet: Fleet) -> None:
    threads = fleet.start(4)
    workers = [fleet.work(fleet.one, "-j", "2"), fleet.work(fleet.other)]
    for thread in threads:
        fleet.ends(thread)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    ended = [worker.communicate(timeout=60) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended
    told = [step for out, _ in ended for step in steps_told(out)]
    assert len({(each["thread"], each["head"]) for each in told}) == len(told) == 4 * STEPS
    assert examine(fleet.bare, STEPS) == ({}, dict.fromkeys(sorted(threads), STEPS))
    fleet.one("pull", "origin")
    fleet.one.is_sound()


def test_a_killed_machine_s_step_is_made_on_the_other(
    fleet: Fleet, script: Callable[[str, str], Path], tmp_path: Path
) -> None:
    patient = ("--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path))
    (thread,) = fleet.start(1, "--heartbeat", "2")
    first = fleet.work(fleet.one, *patient)
    agent = wait_for(tmp_path / "began").split()[0]
    kill(first.pid)
    wait_until_gone(agent)
    (tmp_path / "go").touch()
    fleet.work(fleet.other, *patient)
    fleet.ends(thread)
    assert examine(fleet.bare).steps == {thread: STEPS}


def test_who_loses_the_race_for_a_step_is_done_with_it(
    fleet: Fleet, script: Callable[[str, str], Path], tmp_path: Path
) -> None:
    patient = ("--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd")
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    (thread,) = fleet.start(1, "--heartbeat", "2")
    slow = fleet.work(fleet.one, *patient, str(folders[0]))
    wait_for(folders[0] / "began")
    slow.send_signal(signal.SIGSTOP)  # it gives no sign of life any more, and its hand goes on
    for folder in folders:
        (folder / "go").touch()
    until(lambda: fleet.one("thread", "show", thread).json["role"] == "one", "step")

    def landed() -> str:
        return git("--git-dir", fleet.bare, "rev-list", "--all", "--count")

    before = landed()
    fleet.work(fleet.other, *patient, str(folders[1]))
    until(lambda: landed() != before, "the other's step")
    slow.send_signal(signal.SIGCONT)
    fleet.ends(thread)
    until(
        lambda: git("--git-dir", fleet.bare, "for-each-ref", "refs/uwf/forks"), "other side of the divergence"
    )
    until(lambda: examine(fleet.bare).steps == {thread: STEPS}, "one chain")
    slow.send_signal(signal.SIGTERM)
    assert slow.wait(60) == 0
    fleet.one.is_sound()


def test_an_answer_that_came_by_a_push_is_seen_by_sync(fleet: Fleet) -> None:
    replies = ASKS + "- {role: writer, output: {text: red}}\n- {role: critic, output: {approved: true}}\n"
    fleet.one.registers(PAIR)
    thread = fleet.one.starts("Do it", "pair")
    fleet(fleet.one, "start", thread, "--remote", "origin")
    fleet.work(fleet.one, "--agent", scripted(replies))
    until(lambda: fleet.state(thread) == "waiting", "question")
    assert fleet(fleet.one, "sync").json == {"told": [], "started": []}
    fleet.other("pull", "origin")
    fleet.other("thread", "answer", thread, "-m", "red")
    fleet.other("push", "origin", thread)
    assert fleet(fleet.one, "sync", "--remote", "origin").json["told"] == [thread]
    fleet.ends(thread)
    assert examine(fleet.bare).steps == {thread: 4}


def test_threads_in_the_queue_are_held_let_go_on_and_taken_out(
    fleet: Fleet, script: Callable[[str, str], Path], tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    (thread,) = fleet.start(1)
    assert fleet(fleet.one, "start", thread).json == {"thread": thread, "started": False}
    assert fleet(fleet.one, "pause", thread).json == {"thread": thread, "paused": True}
    fleet.work(fleet.one, "--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path))
    until(lambda: fleet.state(thread) == "held", "held thread")
    assert fleet.one.status(thread) == "idle"
    assert fleet(fleet.one, "resume", thread).json == {"thread": thread, "resumed": True}
    fleet.ends(thread)
    idle = fleet(fleet.one, "run", "--all", "--format", "text")
    assert "no such threads are idle; uwf fleet status shows" in idle.err
    (tmp_path / "go").unlink()  # no step ends from now on
    (other,) = fleet.start(1)
    fleet(fleet.one, "cancel", other)
    until(lambda: fleet.state(other) == "cancelled", "cancelled thread")
    for command in ("pause", "resume", "cancel"):
        refused = fleet(fleet.one, command, thread, check=3)
        assert "not in the queue" in refused.error["message"]
        assert refused.json == []
    (last,) = fleet.start(1, "--tries", "1")
    both = fleet(fleet.one, "cancel", thread, last, check=3)
    assert both.json == [{"thread": last, "cancelled": True}] and thread in both.error["message"]


def test_threads_that_the_remote_has_no_more_or_newer_keep_no_others_from_starting(fleet: Fleet) -> None:
    fleet.one.registers(FIVE)
    gone, moved, new = (fleet.one.starts(f"Say {each}", "five") for each in range(3))
    fleet.one("push", "origin")
    fleet.other("pull", "origin")
    fleet.other("thread", "step", moved, "--remote", "origin")
    git("--git-dir", fleet.bare, "update-ref", "-d", f"refs/uwf/threads/{gone}")
    for started in (True, False):
        begun = fleet(fleet.one, "start", "--all", "--remote", "origin", check=4)
        assert begun.json == [{"thread": each, "started": started} for each in (moved, new)]
        assert begun.error["message"] == f"thread {gone} was deleted on origin" and begun.error["hint"]
    assert fleet.one("thread", "show", moved).json["role"] == "one"


def test_the_other_side_of_a_divergence_is_stepped_only_where_it_is_named(fleet: Fleet) -> None:
    (thread,) = fleet.start(1)
    fleet.other("pull", "origin")
    says = """uwf-exec echo '{"text": "said by hand"}'"""
    fleet.other("thread", "step", thread, "--remote", "origin")
    fleet.one("thread", "step", thread, "--agent", says)
    fleet.one("pull", "origin")
    (side,) = fleet.one("thread", "show", thread).json["otherSides"]
    fleet.work(fleet.one, "--agent", says)
    idle = fleet(fleet.one, "run", "--all", "--workers", "0", "--format", "text")
    assert "1 thread is the other side of a divergence" in idle.err and side in idle.err
    assert fleet(fleet.one, "sync", "--all").json["started"] == [] and fleet.state(side) == ""
    assert fleet(fleet.one, "start", side).json == {"thread": side, "started": True}
    fleet.ends(side)


def test_a_machine_whose_store_cant_be_written_gives_its_steps_back_until_it_can(
    fleet: Fleet, tmp_path: Path
) -> None:
    hurried = hurry(
        tmp_path / "hurried",
        "limits._FIRST_REST = limits._MAX_BACKOFF = 1.0",
        "limits._HANDS_BACK = 0.2",
        "retry_policy._MAX_BACKOFF[retry_policy.LATER] = 1.0",
    )
    threads = fleet.start(1, "--tries", "1")
    runs = fleet.one.store / "uwf/runs"
    shutil.rmtree(runs, ignore_errors=True)
    runs.touch()
    where = ("--address", fleet.address, "--remote", "origin", "--format", "text", "-j", "2")
    ill = fleet.begin("fleet", "worker", *where, env={**fleet.one.environment, **hurried})
    until(lambda: fleet.state(threads[0]) == "delayed", "step that is given back")
    well = fleet.work(fleet.other, env=hurried)
    for thread in threads:
        fleet.ends(thread)
    well.send_signal(signal.SIGTERM)
    well.communicate(timeout=60)
    runs.unlink()
    (more,) = fleet.start(1)
    fleet.ends(more)
    ill.send_signal(signal.SIGTERM)
    told = [line for line in ill.communicate(timeout=60)[1].splitlines() if "store" in line]
    assert (
        len(told) == 2 and "no step is made for a while" in told[0] and "can be written again" in told[1]
    ), told


def test_the_queue_is_made_again_from_the_refs(uwf: Uwf, fleet: Fleet, tmp_path: Path, begin: Begin) -> None:
    threads = fleet.start(2)
    with Server(tmp_path / "new") as new:
        value = fleet.one("fleet", "sync", "--all", "--address", new.address).json
        assert sorted(value["started"]) == sorted(threads)
        begin_at = ("--address", new.address, "--remote", "origin")
        worker = begin("fleet", "worker", *begin_at, env=fleet.one.environment)
        until(lambda: examine(fleet.bare).steps == dict.fromkeys(sorted(threads), STEPS), "ends")
        os.kill(worker.pid, signal.SIGTERM)
        worker.communicate(timeout=60)


@pytest.mark.parametrize(
    ("address", "tls", "reason"),
    [
        ("127.0.0.1:1", {}, "Connection refused"),
        ("nowhere.invalid:7233", {}, None),
        ("127.0.0.1:port", {}, "invalid port number"),
        ("", {"TEMPORAL_TLS": "true"}, "it doesn't speak TLS, which is asked for"),
        (
            "",
            dict.fromkeys(("TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"), "/no/pem"),
            "/no/pem: No such file or directory",
        ),
    ],
)
def test_a_server_that_is_not_there_is_told_in_a_line_of_plain_words(
    fleet: Fleet, address: str, tls: dict[str, str], reason: str | None
) -> None:
    address = address or fleet.address
    refused = fleet.one("fleet", "status", "--address", address, check=8, env=tls)
    told, _, why = refused.error["message"].rpartition(f"no Temporal server answers at {address}: ")
    assert (told, why) == ("", reason or why)
    assert not re.search(r"::|[{}()]", why), why
    assert refused.error["hint"]


def test_a_namespace_that_the_server_hasnt_is_told_by_a_worker_as_by_other_commands(fleet: Fleet) -> None:
    told = [
        fleet(fleet.one, command, "--namespace", "none-such", check=8).error["message"]
        for command in ("status", "worker")
    ]
    assert told[0] == told[1] and "none-such" in told[0] and "Status" not in told[1]


def test_without_a_fleet_and_an_address_it_says_what_starts_one(fleet: Fleet) -> None:
    assert "no fleet is running" in fleet.one("fleet", "status", check=3).error["message"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A bare repository with a commit."""
    bare, seed = tmp_path / "project.git", tmp_path / "seed"
    git("init", "-q", "-b", "main", seed)
    git("-C", seed, "commit", "-q", "--allow-empty", "-m", "begin")
    git("clone", "-q", "--bare", seed, bare)
    return bare


def work_in_clones(fleet: Fleet, project: Path, machines: Sequence[Machine], before: str = "true") -> None:
    """A worker on each machine, whose agents say their roles in worktrees of a clone of the project, after they have
    done something else."""
    agent = project.with_name("agent")
    agent.write_text(f'#!/bin/sh\n{before}\necho $UWF_ROLE >> said; echo \'{{"text": "said"}}\'\n')
    agent.chmod(0o755)
    for machine in machines:
        clone = machine.root / "project"
        git("clone", "-q", "-o", "shared", project, clone)
        place = ("--workspace", f"worktree:{clone}", "--workspace-remote", "shared")
        fleet.work(machine, *place, "--agent", f"uwf-exec {agent}")


def said(project: Path, thread: str) -> list[str]:
    """What the steps of a thread have said by its branch, each of which is a commit there."""
    branch = f"uwf/work/{thread}"
    assert git("-C", project, "rev-list", "--count", f"main..{branch}") == str(STEPS)
    return git("-C", project, "show", f"{branch}:said").split()


def test_what_a_step_left_in_its_worktree_is_there_for_the_next_one_on_another_machine(
    fleet: Fleet, project: Path
) -> None:
    fleet.one.registers(FIVE)
    threads = [fleet.one.starts(f"Say {each}", "five") for each in range(2)]
    work_in_clones(fleet, project, (fleet.one, fleet.other))
    fleet(fleet.one, "run", "--all", "--workers", "0", "--open", "1", "--remote", "origin", timeout=200)
    for thread in threads:
        fleet.ends(thread)
        assert said(project, thread) == ["one", "two", "three", "four", "five"]
    assert examine(fleet.bare, STEPS) == ({}, dict.fromkeys(sorted(threads), STEPS))


def test_a_step_doesnt_count_before_its_worktree_is_where_others_find_it(fleet: Fleet, project: Path) -> None:
    (thread,) = fleet.start(1)
    gone = project.with_name("gone.git")
    once = f"test $UWF_ROLE = two && test ! -e {gone}.was && touch {gone}.was && mv {project} {gone}"
    work_in_clones(fleet, project, (fleet.one,), once)
    until(lambda: fleet.state(thread) == "delayed", "delay")
    there = git("-C", fleet.bare, "log", "-1", "--format=%s", f"refs/uwf/threads/{thread}")
    assert there.startswith("0001 one")
    gone.rename(project)
    fleet.ends(thread)
    assert said(project, thread) == ["one", "two", "three", "four", "five"]
    assert examine(fleet.bare, STEPS) == ({}, {thread: STEPS})
