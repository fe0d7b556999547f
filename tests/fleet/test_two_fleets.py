"""Two fleets on one remote make each step twice: whoever begins the second is told of the first."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from commands import git
from conftest import Begin, Uwf
from fleets import FIVE, LIMIT, until
from two_machines import Machine
from uwf_cli.exchange import git_for

from uwf_git.ext.fleet import MARKS
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.ext.fleet.fleet_refs import mark
from uwf_git.ext.fleet.server import Server, find_program
from uwf_git.store.instance import Instance


@pytest.fixture
def machines(uwf: Uwf, tmp_path: Path) -> tuple[Machine, Machine, Path]:
    """Two machines with a bare repository as `origin` of both."""
    bare = tmp_path / "bare.git"
    git("init", "-q", "--bare", bare)
    one, other = Machine(uwf, tmp_path / "one"), Machine(uwf, tmp_path / "other")
    for each in (one, other):
        each("init")
        each("remote", "add", "origin", bare)
    one.registers(FIVE)
    return one, other, bare


def marks(bare: Path) -> list[str]:
    return git("--git-dir", bare, "for-each-ref", "--format=%(refname)", MARKS.prefix).split()


def test_a_second_fleet_on_a_remote_is_warned_of_the_first_and_how_to_join_it(
    machines: tuple[Machine, Machine, Path], tmp_path: Path, begin: Begin
) -> None:
    one, other, bare = machines
    with Server(tmp_path / "server") as server:
        make = (find_program(), "operator", "namespace", "create", "--address", server.address)
        subprocess.run([*make, "--namespace", "triage"], check=True, capture_output=True)
        first = ("--address", server.address, "--remote", "origin")
        second = (*first, "--namespace", "triage")
        until(lambda: one("fleet", "status", *second[:2], *second[4:], check=None).code == 0, "namespace")
        thread = one.starts("Say it", "five")
        assert one("fleet", "start", thread, *first).err == ""
        # By another name of the same server it is the same fleet.
        renamed = ("--address", server.address.replace("127.0.0.1", "localhost"), "--remote", "origin")
        assert one("fleet", "start", thread, *renamed).err == ""
        other("pull")
        told = other("fleet", "start", thread, *second).err
        assert "another fleet steps threads of origin" in told
        port = server.address.rpartition(":")[2]
        assert f"namespace default at localhost:{port}, begun on {socket.gethostname()}" in told
        assert f"join it: --address localhost:{port} --namespace default" in told
        working = begin("fleet", "worker", *first, env=one.environment)
        assert working.stderr is not None
        assert "namespace triage" in working.stderr.readline()
        working.send_signal(signal.SIGTERM)
        working.communicate(timeout=LIMIT)
        # What is said to type makes an end of the warning.
        over = told.strip().rpartition("if it is over: ")[2].split()
        subprocess.run(over, check=True, capture_output=True)
        assert "another fleet" not in other("fleet", "start", thread, *second).err
    (mark,) = marks(bare)
    git("--git-dir", other.store, "fetch", "-q", "origin", "+refs/uwf/*:refs/uwf/*")
    for machine in (one, other):
        machine("pull")
        machine("push")
        machine.is_sound()
    assert marks(bare) == [mark]


def put_mark(bare: Path, name: str, at: float) -> None:
    """Leave a mark on a remote, as a fleet does."""
    value = {"address": "there:7233", "namespace": name, "own": False, "machine": "afar", "at": at}
    oid = git("--git-dir", bare, "hash-object", "-w", "--stdin", data=json.dumps(value)).strip()
    git("--git-dir", bare, "update-ref", MARKS.prefix + name, oid)


def test_marks_that_anybody_made_hide_no_fleet_and_end_none(instance: Instance, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git("init", "-q", "--bare", bare)
    instance.remotes.add("origin", str(bare))
    remote, repository = instance.remotes.get("origin"), instance.store.repository
    junk = git("--git-dir", bare, "hash-object", "-w", "--stdin", data="junk").strip()
    for number in range(30):
        git("--git-dir", bare, "update-ref", f"{MARKS.prefix}{number:03}", junk)
    put_mark(bare, "real", time.time())
    put_mark(bare, "forever", 1e300)

    def others() -> tuple[list[str], bool]:
        found = mark(repository, git_for(instance), remote, Endpoint("here:7233"), "own")
        return [each.place.namespace for each in found.counting], found.more

    assert others() == (["real"], False)
    (bare / MARKS.prefix / "lost").write_text("1" * 40 + "\n")
    assert others() == ([], True), "what is not read is told, and is no error"
    for number in range(30):
        git("--git-dir", bare, "update-ref", "-d", f"{MARKS.prefix}{number:03}")
    assert others() == (["real"], True)


def test_a_fleet_with_a_server_of_its_own_leaves_no_mark_when_it_is_over(
    machines: tuple[Machine, Machine, Path],
) -> None:
    one, _, bare = machines
    one.starts("Say it", "five")
    one("push")
    assert one("fleet", "run", "--remote", "origin", timeout=LIMIT).err == ""
    assert marks(bare) == []
    hook = bare / "hooks" / "update"
    hook.write_text("#!/bin/sh\ncase $1 in refs/uwf/fleets/*) exit 1;; esac\n")
    hook.chmod(0o755)
    one.starts("Say it again", "five")
    assert one("fleet", "run", "--remote", "origin", timeout=LIMIT).err == "", "a mark is not needed"
    assert set(one.statuses().values()) == {"completed"}


def test_a_fleet_with_a_server_of_its_own_is_told_to_others_and_not_to_its_next_run(
    machines: tuple[Machine, Machine, Path], begin: Begin
) -> None:
    one, other, bare = machines
    one.starts("Say it", "five")
    run = ("fleet", "run", "--remote", "origin")
    running = begin(*run, "--agent", "uwf-exec sleep 600", env=one.environment)
    until(lambda: marks(bare), "mark")
    other.registers(FIVE)
    other.starts("Say something else", "five")
    told = other(*run, timeout=2 * LIMIT).err
    assert f"at a server of its own, begun on {socket.gethostname()}" in told
    assert "give both machines one server by --address" in told
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=LIMIT)
    assert len(marks(bare)) == 1
    assert "another fleet" not in one(*run, "--agent", "uwf-exec true", timeout=2 * LIMIT, check=None).err
    assert marks(bare) == []
