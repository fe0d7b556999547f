"""Runs that are killed or meet: what broke off goes on where it was, and nothing is done twice, lost or made up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import UWF, begin, wait_for, wait_until_gone
from fleets import processes
from suite_bench import AGENT, Bench, held

pytestmark = pytest.mark.extended

WITH_NOTES = {"name": "one", "prompt": "say a", "files": {"notes.txt": "todo"}}
CAPITALS = "command:grep -q TODO notes.txt"


def test_a_run_that_was_killed_goes_on_where_it_was(
    bench: Bench, script: Callable[[str, str], Path], tmp_path: Path, root: Path
) -> None:
    bench.imports([{"name": name, "prompt": f"say {name}"} for name in ("a", "b")])
    slow = script(
        "slow",
        AGENT.replace(
            "context = json.load(sys.stdin)",
            "context = json.load(sys.stdin)\n"
            "if (context['role'], context['start']['prompt']) == ('checker', 'say b'):\n"
            "    pathlib.Path(os.environ['CALLS'] + '.now').write_text(str(os.getpid()))\n"
            "    import time; time.sleep(0 if pathlib.Path(os.environ['CALLS'] + '.go').exists() else 60)",
        ),
    )
    bench.agent = f"uwf-exec {slow}"
    running = begin("eval", "run", "bugs", "--agent", bench.agent, start_new_session=True)
    agent = int(wait_for(Path(f"{tmp_path}/calls.now")))
    running.kill()
    running.wait()
    os.kill(agent, signal.SIGKILL)
    assert bench.calls == 3  # the last one had not come to its note
    (tmp_path / "calls.go").touch()
    done = bench.run().json
    assert [each["state"] for each in done["results"]] == ["passed", "passed"]
    assert bench.calls == 4
    listed = bench.uwf("thread", "list", "--all").json
    assert len(listed) == 2
    bench.uwf("verify", "--all")


def test_several_at_once_come_to_the_same(bench: Bench) -> None:
    names = ["a", "b", "c", "d"]
    bench.imports([{"name": name, "prompt": f"say {name}", "judges": ["exact:approved"]} for name in names])
    expected = [(name, "error", None) for name in names]  # there is nothing to compare with
    assert bench.results("-j", "3") == expected
    assert bench.calls == 8
    assert bench.results("-j", "2", "--judge", "command:true", "--repeat", "2") == [
        (name, "passed", 1.0) for name in names for _ in range(2)
    ]
    assert bench.calls == 16
    assert [
        each["repeat"] for each in bench.run("--judge", "command:true", "--repeat", "2").json["results"]
    ] == [
        1,
        2,
    ] * 4


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_runs_at_once_ends_with_the_run_and_goes_on_with_the_next(
    bench: Bench, script: Callable[[str, str], Path], tmp_path: Path, root: Path, how: signal.Signals
) -> None:
    bench.imports([{"name": name, "prompt": f"say {name}"} for name in "ab"])
    note = "pathlib.Path(f\"{os.environ['CALLS']}.{context['start']['prompt'][-1]}\").write_text(str(os.getpid()))"
    slow = AGENT.replace(
        "context = json.load(sys.stdin)",
        f"context = json.load(sys.stdin)\n{note}\n"
        "import time\nwhile not pathlib.Path(os.environ['CALLS'] + '.go').exists(): time.sleep(0.05)",
    )
    bench.agent = f"uwf-exec {script('slow', slow)}"
    running = begin("eval", "run", "bugs", "--agent", bench.agent, "-j", "2")
    agents = [int(wait_for(Path(f"{tmp_path}/calls.{name}"))) for name in "ab"]
    workers = processes("uwf_git.ext.evaluation.workers", root)
    assert len(workers) == 3  # with the one that the others are forked from
    running.send_signal(how)
    assert running.wait() == (-how if how == signal.SIGKILL else 130)
    for pid in (*workers, *agents):
        wait_until_gone(pid)
    assert bench.calls == 0
    (tmp_path / "calls.go").touch()
    assert bench.results("-j", "2") == [("a", "passed", 1.0), ("b", "passed", 1.0)]
    assert (bench.calls, len(bench.uwf("thread", "list", "--all").json)) == (4, 2)


def test_what_agents_left_is_neither_lost_nor_made_up_where_a_run_is_killed_before_it_is_recorded(
    bench: Bench, tmp_path: Path, root: Path
) -> None:
    bench.imports([WITH_NOTES])
    slow = f"command:sh -c 'echo $$ >{tmp_path}/judges; exec sleep 60'"
    running = begin("eval", "run", "bugs", "--agent", bench.agent, "--judge", slow)
    judge = int(wait_for(tmp_path / "judges"))
    running.kill()
    running.wait()
    os.kill(judge, signal.SIGKILL)
    assert (bench.calls, bench.uwf("eval", "show", "bugs").json["runs"]) == (2, [])
    assert bench.results("--judge", CAPITALS) == [("one", "passed", 1.0)]
    assert bench.calls == 2 and not list((root / "evaluation").glob("0*"))

    # Where nobody knows any more what was left, the case is tried anew.
    bench.uwf("eval", "remove", "bugs", "--yes")
    bench.imports([WITH_NOTES])
    assert bench.results("--judge", CAPITALS) == [("one", "passed", 1.0)]
    assert bench.calls == 4
    bench.uwf("verify", "--all")


@pytest.mark.parametrize("cases", ["a", "ab"])
def test_a_command_that_has_judged_is_not_run_again_where_the_run_is_killed_before_it_is_recorded(
    bench: Bench, tmp_path: Path, root: Path, cases: str
) -> None:
    bench.imports([{"name": name, "prompt": f"say {name}"} for name in cases])
    first = f"command:sh -c 'echo x >>{tmp_path}/judged; echo 0.75'"
    waits = f"[ -e {tmp_path}/go ] || {{ echo $$ >{tmp_path}/waits-$UWF_TRIAL; exec sleep 60; }}"
    asked = ("--judge", first, "--judge", f"command:sh -c '{waits}'", "-j", str(len(cases)))
    running = begin("eval", "run", "bugs", "--agent", bench.agent, *asked)
    while len(waiting := list(tmp_path.glob("waits-*"))) < len(cases):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.kill()
    running.wait()
    for judge in waiting:
        wait_until_gone(wait_for(judge).strip())
    assert bench.uwf("eval", "show", "bugs").json["runs"] == []
    (tmp_path / "go").touch()
    results = bench.run(*asked).json["results"]
    assert [(each["state"], each["score"]) for each in results] == [("passed", 0.875)] * len(cases)
    assert (tmp_path / "judged").read_text() == "x\n" * len(cases)
    assert bench.calls == 2 * len(cases) and not list((root / "store.git/uwf/scores").iterdir())
    bench.uwf("verify", "--all")


def test_a_case_of_two_suites_is_tried_once(bench: Bench, root: Path) -> None:
    for suite in ("bugs", "others"):
        bench.imports([WITH_NOTES], suite)
        found = bench.run("--judge", CAPITALS, suite=suite).json["results"][0]
        assert (found["state"], bench.calls) == ("passed", 2)
    assert not list((root / "evaluation").glob("*"))
    bench.uwf("verify", "--all")


def test_a_thread_that_was_begun_goes_on_with_the_files_that_a_suite_has(bench: Bench, root: Path) -> None:
    bench.imports([WITH_NOTES])
    assert bench.results("--max-steps", "1") == [("one", "failed", 0.0)]
    for folder in (root / "evaluation").iterdir():
        shutil.rmtree(folder)
    assert bench.results("--judge", CAPITALS) == [("one", "passed", 1.0)]
    assert bench.calls == 2


def test_a_run_within_a_trial_of_its_suite_is_refused(
    bench: Bench, script: Callable[[str, str], Path]
) -> None:
    nested = "import subprocess, sys\n" + AGENT.replace(
        "context = json.load(sys.stdin)",
        "context = json.load(sys.stdin)\n"
        f"done = subprocess.run([*{UWF!r}, 'eval', 'run', 'bugs'], capture_output=True, text=True)\n"
        "sys.stderr.write(done.stderr)\nassert done.returncode == 4",
    )
    bench.imports([{"name": "a", "prompt": "say a"}])
    bench.agent = f"uwf-exec {script('nests', nested)}"
    assert bench.results() == [("a", "passed", 1.0)]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_of_two_runs_at_once_the_second_waits_and_finds_all_of_it_known(
    bench: Bench, script: Callable[[str, str], Path], tmp_path: Path, root: Path, jobs: str
) -> None:
    bench.imports([{"name": name, "prompt": f"say {name}"} for name in "abc"])
    bench.imports([{"name": name, "prompt": f"say {name}"} for name in "ad"], "others")
    bench.run()
    bench.uwf("eval", "baseline", "set", "bugs")
    bench.agent = f"uwf-exec {script('slow', held(AGENT))}"
    calls = ("--agent", bench.agent, "-j", jobs)
    first = begin("eval", "run", "bugs", *calls)
    wait_for(tmp_path / "calls.now")
    others = begin("eval", "run", "others", *calls)
    second = begin("eval", "check", "bugs", *calls)
    third = begin("eval", "run", "bugs", *calls)
    told = third.stderr.readline()  # type: ignore[union-attr]
    assert told == f"uwf: suite bugs is being run by process {first.pid}: waiting for its end\n"
    killed = begin("eval", "run", "bugs", *calls)
    killed.stderr.readline()  # type: ignore[union-attr]
    killed.kill()
    killed.communicate()
    bench.uwf("eval", "baseline", "set", "bugs")
    refused = bench.uwf("eval", "remove", "bugs", "--yes", check=4).error
    assert refused["message"] == "another process is working on suite bugs"
    (tmp_path / "calls.go").touch()
    running = {"run": first, "again": third, "check": second, "others": others}
    found = {name: json.loads(each.communicate()[0]) for name, each in running.items()}
    assert {each.returncode for each in running.values()} == {0}
    assert found["run"]["run"] == found["again"]["run"] and found["again"]["fresh"] == 0
    assert found["check"]["verdict"] == "passed"
    assert bench.calls == 14
    assert not (root / "store.git" / "uwf" / "locks" / "suite-bugs").exists()
    bench.uwf("verify", "--all")


def test_a_trial_whose_thread_was_killed_says_how_it_is_tried_anew(bench: Bench) -> None:
    bench.imports([WITH_NOTES])
    thread = bench.run("--max-steps", "1").json["results"][0]["thread"]
    bench.uwf("thread", "kill", thread)
    for _ in range(2):
        error = bench.run(check=6).error["message"]
        assert f"thread {thread} was killed; to have it tried anew: uwf thread rm {thread}" in error
    bench.uwf("thread", "rm", thread, "--yes")
    assert bench.results("--judge", CAPITALS) == [("one", "passed", 1.0)]
    assert bench.calls == 3
    bench.uwf("verify", "--all")
