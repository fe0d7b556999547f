"""`uwf effect run` runs a command once for a thread, in a step and outside of one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_samples import ONE
from commands import UWF, begin, git, wait_for
from conftest import Uwf

SENDS = 'echo "$UWF_EFFECT_KEY" >>arrived; echo said; echo https://forge.invalid/1'
IS_THERE = 'cat arrived 2>/dev/null | grep -x "$UWF_EFFECT_KEY"'


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


def arrived() -> list[str]:
    path = Path("arrived")
    return path.read_text().split() if path.exists() else []


def test_a_command_is_run_once_and_its_last_line_is_the_reference(uwf: Uwf, thread: str) -> None:
    words = ("effect", "run", "--thread", thread, "--", "sh", "-c", SENDS)
    first = uwf(*words)
    again = uwf(*words)
    assert len(arrived()) == 1
    assert first.json == again.json
    assert (first.json["outcome"], first.json["reference"]) == ("done", "https://forge.invalid/1")
    assert first.err.splitlines() == ["said", "https://forge.invalid/1"] and again.err == ""
    assert uwf(*words[:2], "--format", "text", *words[2:]).out == "https://forge.invalid/1\n"
    (effect,) = uwf("effect", "list", thread).json
    assert (effect["key"], effect["step"], effect["kind"]) == (arrived()[0], None, "command")
    assert "https://forge.invalid/1" in uwf("effect", "list", thread, "--format", "text").out


def test_another_name_runs_it_again_and_a_name_is_of_one_command(uwf: Uwf, thread: str) -> None:
    run = ("effect", "run", "--thread", thread, "--key")
    for name in ("first", "second"):
        uwf(*run, name, "--", "sh", "-c", SENDS)
    assert len(set(arrived())) == 2
    error = uwf(*run, "first", "--", "sh", "-c", "echo other", check=2).error
    assert "another command" in error["message"] and error["hint"] == "choose another: --key NAME"


def test_a_command_that_fails_may_be_run_again_or_mended(uwf: Uwf, thread: str) -> None:
    run = ("effect", "run", "--thread", thread, "--key", "x", "--")
    assert "failed with status 3" in uwf(*run, "sh", "-c", "exit 3", check=8).error["message"]
    assert "is not on PATH" in uwf(*run, "no-such-program", check=8).error["message"]
    assert uwf(*run, "sh", "-c", SENDS).json["outcome"] == "done"
    assert [item["outcome"] for item in uwf("effect", "list", thread).json] == ["done"]


def test_a_command_that_fails_after_it_has_sent_is_found_by_its_check(uwf: Uwf, thread: str) -> None:
    words = ("effect", "run", "--thread", thread, "--check", IS_THERE, "--", "sh", "-c", f"{SENDS}; exit 1")
    assert uwf(*words).json["reference"] == arrived()[0]
    assert uwf(*words).json["outcome"] in ("done", "found")
    assert len(arrived()) == 1


@pytest.mark.parametrize(
    ("check", "status", "count"),
    [("true", 0, 1), ("false", 0, 2), ("exit 2", 125, 1), ("kill -9 $$", 125, 1), (IS_THERE, 0, 1)],
)
def test_after_a_kill_the_check_decides(uwf: Uwf, thread: str, check: str, status: int, count: int) -> None:
    command = ("sh", "-c", "test -e once && exit 0; touch once; kill -9 $PPID")
    run = ("effect", "run", "--thread", thread)
    sends = f'echo "$UWF_EFFECT_KEY" >>arrived; {command[2]}'
    killed = subprocess.run([*UWF, *run, "--", "sh", "-c", sends], capture_output=True, check=False)
    assert killed.returncode == -9
    assert [item["outcome"] for item in uwf("effect", "list", thread).json] == ["open"]
    assert uwf(*run, "--", "sh", "-c", sends, check=125).error["code"] == "undecided"
    uwf(*run, "--check", check, "--", "sh", "-c", sends, check=status)
    assert len(arrived()) == count


def test_the_hint_of_an_unknown_effect_is_a_way_on(uwf: Uwf, thread: str) -> None:
    run = ("effect", "run", "--thread", thread)
    words = ("--", "sh", "-c", "kill -9 $$")
    for _ in range(2):
        error = uwf(*run, *words, check=125).error
        assert "--check true if it is there, --check false if it is not" in error["hint"]
    assert uwf(*run, "--check", "false", *words, check=8).error["code"] == "declined"
    assert uwf(*run, "--check", "true", *words).json["outcome"] == "found"


def test_two_processes_run_it_once(uwf: Uwf, thread: str) -> None:
    words = ("effect", "run", "--thread", thread, "--", "sh", "-c", f"sleep 0.3; {SENDS}")
    processes = [begin(*words) for _ in range(4)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs
    assert len(arrived()) == 1
    assert len({out for out, _ in outputs}) == 1


def test_processes_that_send_different_things_do_not_wait_for_one_another(uwf: Uwf, thread: str) -> None:
    run = ("effect", "run", "--thread", thread, "--")
    slow = begin(*run, "sh", "-c", "echo begun >begun; while ! test -e go; do sleep 0.02; done")
    wait_for(Path("begun"))
    assert uwf(*run, "sh", "-c", SENDS).json["outcome"] == "done"
    Path("go").touch()
    assert slow.wait(timeout=60) == 0


def test_a_command_within_itself_is_refused_and_not_waited_for(uwf: Uwf, thread: str) -> None:
    script = Path("self.sh")
    script.write_text(f"{' '.join(UWF)} effect run --thread {thread} -- sh self.sh\n")
    done = uwf("effect", "run", "--thread", thread, "--", "sh", "self.sh", check=8)
    assert "this is run within what is working on effect" in done.err


def test_without_a_thread_it_says_how_to_name_one(uwf: Uwf, thread: str) -> None:
    assert uwf("effect", "run", "--", "true", check=2).error["hint"].endswith("elsewhere: --thread ID")
    hint = uwf("effect", "list", check=2).error["hint"]
    uwf(*hint.partition("elsewhere: uwf ")[2].replace("ID", thread).split())


def test_a_command_gets_no_standard_input(uwf: Uwf, thread: str) -> None:
    done = uwf("effect", "run", "--thread", thread, "--", "sh", "-c", "cat; echo end", input="words")
    assert done.json["reference"] == "end"


def test_an_agents_command_sends_within_its_step_once_though_the_step_is_repeated(
    uwf: Uwf, thread: str
) -> None:
    """The first attempt fails after it has sent; the second one, of another process, doesn't send again."""
    sends = (
        f"{' '.join(UWF)} effect run --format text --check '{IS_THERE}' -- sh -c '{SENDS}' >reference || exit"
    )
    agent = Path("agent.sh")
    agent.write_text(f"{sends}\ntest -e failed || {{ touch failed; exit 3; }}\necho '{{\"n\": 7}}'\n")
    uwf("thread", "step", thread, "--agent", f"uwf-exec sh {agent.absolute()}", "--cwd", ".", check=None)
    uwf("thread", "step", thread, "--agent", f"uwf-exec sh {agent.absolute()}", "--cwd", ".")
    assert len(arrived()) == 1 and Path("failed").exists()
    (effect,) = uwf("effect", "list", thread).json
    assert (effect["outcome"], effect["reference"]) == ("done", "https://forge.invalid/1")
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert uwf("verify").json["findings"] == []


def test_an_effect_of_an_ended_thread_is_bound_to_its_last_step(uwf: Uwf, thread: str, root: Path) -> None:
    uwf("thread", "step", thread, "--agent", "uwf-rehearse")
    head = uwf("thread", "show", thread).json["head"]
    uwf("effect", "run", "--thread", thread, "--", "sh", "-c", SENDS)
    (effect,) = uwf("effect", "list", thread).json
    assert effect["step"] == head and uwf("verify").json["findings"] == []
    page = git(
        "--git-dir",
        root / "store.git",
        "show",
        f"refs/uwf/effects/{thread}:effects/{effect['effect']}/README.md",
    )
    assert page.startswith("# Effect: command\n") and effect["key"] in page
