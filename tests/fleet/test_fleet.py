"""A fleet on one machine, with Temporal's own server: every thread comes to its end exactly once, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ASKS, PAIR, scripted, write
from commands import git, wait_for, wait_until_gone
from complete import examine
from conftest import Begin, Uwf
from fleets import (
    FIVE,
    HAND,
    PATIENT,
    SERVER,
    STEPS,
    WORKER,
    kill,
    parent,
    processes,
    steps_told,
    until,
)
from killing import soak

from uwf_git.base.errors import RemoteFailed
from uwf_git.ext.fleet.client import Queue, connect
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.ext.fleet.server import Server

HUSH = """\
- {role: one, output: {text: hush}}
- {role: two, output: {status: needs_input, question: "Is it hush?"}}
"""


def start(uwf: Uwf, many: int) -> list[str]:
    """So many threads of five steps."""
    uwf("workflow", "put", write("five.yaml", FIVE))
    return [str(uwf("thread", "start", "five", "-p", f"Say {each}").json["thread"]) for each in range(many)]


@pytest.fixture
def patient(script: Callable[[str, str], Path], tmp_path: Path) -> list[str]:
    """The options of an agent that waits until `tmp_path` has a file `go`."""
    return ["--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path)]


def store(root: Path) -> Path:
    return root / "store.git"


def test_threads_are_stepped_to_their_ends_each_step_told_once(uwf: Uwf, root: Path) -> None:
    threads = start(uwf, 3)
    done = uwf("fleet", "run", "--all", "--workers", "2", timeout=100)
    told = steps_told(done.out)
    assert sorted(each["thread"] for each in told) == sorted(threads * STEPS)
    assert {each["thread"] for each in told if each["status"] == "completed"} == set(threads)
    assert examine(store(root), STEPS) == ({}, dict.fromkeys(sorted(threads), STEPS))
    assert not processes("uwf_git.ext.fleet", root) and not processes(SERVER, root)
    assert not list((store(root) / "uwf" / "fleet").glob("temporal.db*"))


def test_a_thread_that_fails_is_tried_so_often_and_stops_no_other(
    uwf: Uwf, root: Path, tmp_path: Path, patient: list[str]
) -> None:
    bad, good = start(uwf, 2)
    (tmp_path / bad).touch()
    (tmp_path / "go").touch()
    done = uwf("fleet", "run", "--all", "--tries", "2", *patient, check=6, timeout=100)
    errors = [json.loads(line)["error"] for line in done.err.splitlines()]
    assert [(each["thread"], each["code"]) for each in errors] == [(bad, "agent_failed")] * 2
    assert len(uwf("thread", "attempts", bad).json) == 2
    assert {each["thread"] for each in steps_told(done.out)} == {good}
    assert examine(store(root)).steps == {good: STEPS}


def test_who_looks_at_a_step_that_is_tried_again_sees_what_the_last_try_failed_at(
    uwf: Uwf, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    (thread,) = start(uwf, 1)
    (tmp_path / thread).touch()
    begin("fleet", "run", thread, "--stay", *patient)

    def stands(state: str) -> tuple[int, str]:
        def look() -> list[dict[str, Any]]:
            rows = uwf("fleet", "status", check=None)
            return [each for each in (rows.json if rows.code == 0 else []) if each["state"] == state]

        (row,) = until(look, state)
        return row["tries"], row["why"]

    why = "the step of role one failed with agent_failed"
    failed, told = stands("failed")
    assert failed >= 1 and told == why
    (tmp_path / thread).unlink()
    running, told = stands("running")
    assert running > failed and told == why
    assert f"try {running}: {why}" in uwf("fleet", "status", "--format", "text").out
    uwf("fleet", "pause", thread)
    (tmp_path / "go").touch()
    assert stands("held") == (0, "")
    (tmp_path / "go").unlink()
    uwf("fleet", "resume", thread)
    assert stands("running") == (1, "")


def test_nothing_that_an_agent_says_gets_to_the_queue(uwf: Uwf, tmp_path: Path) -> None:
    """Its database is searched, whose blobs are plain. What its worker says has all of it."""
    thread, other = start(uwf, 2)
    refused = """uwf-exec sh -c 'echo "{\\"text\\": [\\"hush-hush\\"]}"'"""
    with Server(tmp_path / "server") as server:
        at = ("--address", server.address)
        done = uwf("fleet", "run", thread, "--tries", "1", "--agent", refused, *at, check=6, timeout=100)
        (row,) = uwf("fleet", "status", "--all", *at).json
        uwf("fleet", "run", other, "--agent", scripted(HUSH), *at, check=5, timeout=100)
        kept = b"".join(path.read_bytes() for path in (tmp_path / "server").glob("temporal.db*"))
    assert "hush-hush" in done.err
    assert (row["state"], row["why"]) == ("gave up", "the step of role one failed with agent_failed")
    assert row["why"].encode() in kept and thread.encode() in kept
    assert b"hush" not in kept


def test_an_answer_lets_a_waiting_thread_go_on(uwf: Uwf, root: Path, begin: Begin) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = str(uwf("thread", "start", "pair", "-p", "Do it").json["thread"])
    replies = ASKS + "- {role: writer, output: {text: red}}\n- {role: critic, output: {approved: true}}\n"
    running = begin("fleet", "run", thread, "--stay", "--agent", scripted(replies))
    until(lambda: uwf("thread", "show", thread).json["status"] == "waiting", "question")
    until(lambda: [each["state"] for each in uwf("fleet", "status").json] == ["waiting"], "waiting thread")
    uwf("thread", "answer", thread, "-m", "red")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    assert [each["status"] for each in steps_told(out)] == ["waiting", "idle", "completed"]


def test_without_stay_a_question_ends_the_run_with_its_status(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = str(uwf("thread", "start", "pair", "-p", "Do it").json["thread"])
    done = uwf("fleet", "run", thread, "--agent", scripted(ASKS), "--format", "text", check=5, timeout=100)
    assert "1 thread: 1 waiting" in done.err
    assert f"uwf: thread {thread}: waits for an answer — see: uwf inbox\n" in done.err


def test_the_step_of_a_killed_worker_is_made_by_another(
    uwf: Uwf, root: Path, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    (thread,) = start(uwf, 1)
    running = begin("fleet", "run", thread, "--workers", "2", "--heartbeat", "2", *patient)
    first = wait_for(tmp_path / "began").split()[0]
    (hand,) = processes(HAND, root)
    kill(parent(hand))
    wait_until_gone(first)
    until(lambda: len((tmp_path / "began").read_text().split()) == 2, "second try")
    (tmp_path / "go").touch()
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert examine(store(root)).wrong == {}
    assert [each["error"] for each in uwf("thread", "attempts", thread).json] == ["interrupted"]


def test_no_step_is_lost_or_doubled_whatever_is_killed(root: Path) -> None:
    done = soak(root, threads=60, workers=2, jobs=1, between=0.7, seed=1)
    assert (done.found.wrong, done.status) == ({}, 0), done.said
    assert done.found.steps and done.killed


def test_nothing_outlives_a_killed_fleet(
    uwf: Uwf, root: Path, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    (thread,) = start(uwf, 1)
    running = begin("fleet", "run", thread, *patient)
    agent = wait_for(tmp_path / "began").split()[0]
    known = [*processes(SERVER, root), *processes(WORKER, root), *processes(HAND, root), int(agent)]
    assert len(known) == 4
    running.kill()
    running.communicate()
    for pid in known:
        wait_until_gone(pid)
    assert uwf("thread", "show", thread).json["status"] in ("idle", "failed")
    (tmp_path / "go").touch()
    assert uwf("fleet", "run", thread, "--agent", "uwf-rehearse", timeout=100).code == 0


def test_ctrl_c_ends_all_and_keeps_what_the_agents_did(
    uwf: Uwf, root: Path, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    (thread,) = start(uwf, 1)
    running = begin("fleet", "run", thread, *patient, start_new_session=True)
    wait_for(tmp_path / "began")
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "goes on" in json.loads(err.splitlines()[-1])["error"]["hint"]
    assert not processes("uwf_git.ext.fleet", root) and not processes(SERVER, root)
    assert [each["error"] for each in uwf("thread", "attempts", thread).json] == ["interrupted"]


def test_a_second_fleet_for_a_store_is_refused_while_one_is_up(
    uwf: Uwf, root: Path, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    first, second = start(uwf, 2)
    running = begin("fleet", "run", first, *patient)
    wait_for(tmp_path / "began")
    for which in (second, "--all", "--search=none such"):
        refused = uwf("fleet", "run", which, check=4)
        assert refused.error["code"] == "busy" and "uwf fleet start --all" in refused.error["hint"]
    (tmp_path / "go").touch()
    running.communicate(timeout=60)
    assert running.returncode == 0


def test_a_role_that_a_human_plays_blocks_its_thread_and_no_other(uwf: Uwf, root: Path) -> None:
    first, _ = start(uwf, 2)
    uwf("thread", "step", first)
    uwf("config", "set", "agentOverrides.five.two", "uwf-human")
    done = uwf("fleet", "run", first, "--format", "text", check=5, timeout=100)
    assert "1 thread: 1 waiting" in done.err
    assert uwf("thread", "show", first).json["status"] == "waiting"


def test_a_cancelled_thread_makes_no_other_step_whether_or_not_the_one_in_progress_ends_first(
    uwf: Uwf, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    broken_off, ends = start(uwf, 2)
    running = begin("fleet", "run", "--all", "-j", "2", *patient)
    until(lambda: len(wait_for(tmp_path / "began").split()) == 2, "two steps")
    uwf("fleet", "cancel", broken_off)
    until(lambda: [each["thread"] for each in uwf("fleet", "status").json] == [ends], "end of the step")
    uwf("fleet", "cancel", ends)
    (tmp_path / "go").touch()
    out, err = running.communicate(timeout=60)
    assert running.returncode == 1 and "2 threads" in err and "taken out of the queue" in err
    assert [each["thread"] for each in steps_told(out)] in ([], [ends])
    assert len((tmp_path / "began").read_text().split()) == 2
    assert [each["error"] for each in uwf("thread", "attempts", broken_off).json] == ["interrupted"]


def test_a_server_that_went_with_its_fleet_makes_no_step_of_a_cancelled_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uwf_git.ext.fleet.client._RETRY_FOR", 0.5)

    async def let_go(*has_ended: Callable[[], bool]) -> list[str]:
        with Server(tmp_path / "server") as server:
            queue = Queue(await connect(Endpoint(server.address)))
        return await queue.let_go(["01JZZZZZZZZZZZZZZZZZZZZZZZ"], *has_ended)

    looks = iter([False, True])
    assert asyncio.run(let_go(lambda: next(looks))) == []
    with pytest.raises(RemoteFailed, match="no Temporal server answers"):
        asyncio.run(let_go())


def test_a_thread_that_is_taken_out_can_be_put_in_again_at_once(
    uwf: Uwf, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    threads = start(uwf, 3)
    with Server(tmp_path / "server") as server:
        at = ["--address", server.address]
        working = begin("fleet", "worker", *at, "-j", "2", *patient)
        uwf("fleet", "start", "--all", *at)
        until(lambda: len(wait_for(tmp_path / "began").split()) == 2, "two steps")
        assert uwf("fleet", "cancel", "--all", *at).err == ""
        (tmp_path / "go").touch()
        again = uwf("fleet", "start", "--all", *at)
        assert {each["thread"]: each["started"] for each in again.json} == dict.fromkeys(threads, True)
        until(lambda: not uwf("fleet", "status", *at).json, "end of the queue")
        working.send_signal(signal.SIGINT)
        assert working.wait(60) == 0
    assert {uwf("thread", "show", each).json["status"] for each in threads} == {"completed"}


def test_a_run_begins_anew_what_is_taken_out_while_its_worker_is_dead(
    uwf: Uwf, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    (thread,) = start(uwf, 1)
    with Server(tmp_path / "server") as server:
        at = ["--address", server.address]
        working = begin("fleet", "worker", *at, *patient)
        uwf("fleet", "start", thread, *at, "--heartbeat", "4")
        wait_for(tmp_path / "began")
        working.kill()
        working.wait()

        async def take_out() -> None:
            await Queue(await connect(Endpoint(server.address))).cancel([thread])

        asyncio.run(take_out())
        (tmp_path / "go").touch()
        until(lambda: uwf("thread", "show", thread).json["status"] == "idle", "idle thread")
        out = uwf("fleet", "run", thread, *at, *patient, timeout=100)
        assert len(steps_told(out.out)) == STEPS


def test_a_pause_holds_the_steps_that_wait_for_a_worker_too(
    uwf: Uwf, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    threads = start(uwf, 3)
    running = begin("fleet", "run", "--all", "--stay", *patient)
    wait_for(tmp_path / "began")

    def stand(*states: str) -> Callable[[], bool]:
        return lambda: sorted(each["state"] for each in uwf("fleet", "status").json) == sorted(states)

    until(stand("running", "queued", "queued"), "step")
    time.sleep(1)  # which is long for a step that waits
    uwf("fleet", "pause", "--all")
    (tmp_path / "go").touch()
    until(stand(*["held"] * 3), "three that are held")
    assert len((tmp_path / "began").read_text().split()) == 1
    uwf("fleet", "resume", "--all")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    assert sorted(each["thread"] for each in steps_told(out)) == sorted(threads * STEPS)


@pytest.mark.parametrize("worked", [True, False])
def test_a_thread_that_is_paused_is_shown_as_held_at_once(
    uwf: Uwf, tmp_path: Path, patient: list[str], begin: Begin, worked: bool
) -> None:
    """Also if its step waits for a worker that has another one to make, or if there is no worker."""
    threads = start(uwf, 3)

    def states() -> dict[str, str]:
        return {each["thread"]: each["state"] for each in uwf("fleet", "status", *at).json}

    with Server(tmp_path / "server") as server:
        at = ("--address", server.address)
        if worked:
            begin("fleet", "worker", *at, *patient)
        uwf("fleet", "start", *threads, *at)
        if worked:
            wait_for(tmp_path / "began")
            until(lambda: sorted(states().values()) == ["queued", "queued", "running"], "steps that wait")
        waiting = sorted(thread for thread, state in states().items() if state == "queued")
        uwf("fleet", "pause", waiting[0], *at)
        if worked:  # its worker has to hear of it
            until(lambda: states()[waiting[0]] == "held", "thread that is held while the other step is made")
            assert "running" in states().values()
        else:
            assert states() == {**dict.fromkeys(threads, "queued"), waiting[0]: "held"}
            assert "1 thread held by uwf fleet pause" in uwf("fleet", "start", waiting[0], *at).err
            uwf("thread", "pause", waiting[1])
            assert states()[waiting[1]] == "paused"
        uwf("fleet", "resume", waiting[0], *at)
        until(lambda: states()[waiting[0]] == "queued", "thread that is in the queue again")


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "0.5"])
def test_a_heartbeat_is_a_number_within_bounds(uwf: Uwf, seconds: str) -> None:
    assert uwf("fleet", "run", "--heartbeat", seconds, check=2).error["code"] == "usage"


@pytest.mark.parametrize("option", ["--workers", "--jobs"])
def test_a_number_of_processes_that_takes_the_machine_down_is_none(uwf: Uwf, option: str) -> None:
    assert "is not in the range" in uwf("fleet", "run", option, "1000000", check=2).error["message"]


def test_a_run_says_why_a_thread_did_not_end_also_where_others_step_it(
    uwf: Uwf, tmp_path: Path, begin: Begin
) -> None:
    fails, paused = start(uwf, 2)
    uwf("thread", "pause", paused)
    with Server(tmp_path / "server") as server:
        at = ("--workers", "0", "--address", server.address)
        working = begin("fleet", "worker", "--address", server.address, "--agent", "false")
        gave_up = uwf("fleet", "run", fails, "--tries", "1", *at, check=6, timeout=100).error
        assert (gave_up["thread"], gave_up["code"]) == (fails, "agent_failed")
        rests = uwf("fleet", "run", paused, *at, check=5, timeout=100).error
        assert (rests["code"], rests["message"]) == ("paused", f"thread {paused}: paused")
        working.send_signal(signal.SIGINT)
        assert working.wait(60) == 0


def test_a_project_that_is_gone_before_the_first_step_is_told_as_that(
    uwf: Uwf, root: Path, tmp_path: Path, begin: Begin
) -> None:
    (thread,) = start(uwf, 1)
    project = tmp_path / "project"
    git("init", "-q", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "begun")
    with Server(tmp_path / "server") as server:
        working = begin("fleet", "worker", "--address", server.address, "--workspace", f"worktree:{project}")
        until(lambda: uwf("fleet", "status", check=None).code == 0, "worker")
        project.rename(tmp_path / "away")
        uwf("fleet", "start", thread)
        until(lambda: uwf("fleet", "status", "--all").json[0]["state"] == "gave up", "end")
        (row,) = uwf("fleet", "status", "--all").json
        working.send_signal(signal.SIGTERM)
        (said,) = working.communicate(timeout=60)[1].splitlines()
    told = json.loads(said)["error"]
    assert (told["code"], told["message"]) == ("not_found", row["why"])
    assert f"{project} is not a git repository" in row["why"]


def test_an_error_that_nobody_thought_of_is_told_in_a_line_and_ends_no_process_by_a_signal(
    uwf: Uwf, tmp_path: Path, patient: list[str]
) -> None:
    (thread,) = start(uwf, 1)
    (tmp_path / thread).touch()  # its agent fails, and what is to say so does as well
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "def broken(error):\n    raise ValueError('quite secret')\n"
        "if 'uwf_git.ext.fleet.step_process' in sys.orig_argv:\n"
        "    import uwf_git.base.errors\n    uwf_git.base.errors.failure_of = broken\n"
    )
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = uwf("fleet", "run", "--tries", "1", *patient, check=1, env=env, timeout=100)
    (told,) = (json.loads(line)["error"] for line in done.err.splitlines())
    assert (told["code"], told["thread"]) == ("internal", thread)
    assert "signal" not in told["message"] and "secret" not in done.err


def test_a_configuration_that_is_invalid_meanwhile_delays_its_threads_until_it_is_mended(
    uwf: Uwf, root: Path, tmp_path: Path, patient: list[str], begin: Begin
) -> None:
    (thread,) = start(uwf, 1)
    running = begin("fleet", "run", thread, *patient)
    wait_for(tmp_path / "began")
    config = root / "config.yaml"
    before = config.read_text() if config.exists() else ""
    config.write_text("defaultAgent: [\n")
    (tmp_path / "go").touch()
    assert running.stderr is not None
    told = json.loads(running.stderr.readline())["error"]
    assert told["thread"] == thread and "config.yaml" in told["message"]
    config.write_text(before)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "") and len(steps_told(out)) == STEPS


def test_the_status_of_a_queue_lists_the_threads_of_the_project(uwf: Uwf, tmp_path: Path) -> None:
    threads = []
    with Server(tmp_path / "server") as server:
        at = ("--address", server.address)
        for name in ("one", "other"):
            git("init", "-q", tmp_path / name)
            git("-C", tmp_path / name, "commit", "-q", "--allow-empty", "-m", name)
            os.chdir(tmp_path / name)
            threads += start(uwf, 1)
            uwf("fleet", "start", threads[-1], *at)
        own = uwf("fleet", "status", *at)
        assert [each["thread"] for each in own.json] == threads[1:]
        assert "1 thread of other projects left out" in uwf("fleet", "status", *at, "--format", "text").err
        every = uwf("fleet", "status", "--all-projects", *at).json
        assert sorted(each["thread"] for each in every) == sorted(threads)


def test_a_thread_that_cannot_reach_its_end_is_not_begun(uwf: Uwf, root: Path) -> None:
    bad, good = start(uwf, 2)
    uwf("config", "set", "agentOverrides.five.five", "no-such-agent")
    error = uwf("fleet", "run", bad, check=1).error
    assert error["message"].startswith(f"thread {bad}: workflow five cannot run to its end here: role five")
    assert uwf("thread", "show", bad).json["role"] is None
    uwf("fleet", "run", good, "--agent", "five=uwf-rehearse", timeout=100)
