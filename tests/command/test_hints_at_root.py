"""A command that a hint names works as it is printed, also for a store that --root named."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from cli_samples import PAIR, write
from commands import git
from conftest import Uwf
from uwf_cli.invocation import Invocation

WORDS = "say uwf push, and 'uwf thread list'"


@pytest.fixture
def other(tmp_path: Path) -> str:
    return str(tmp_path / "another root")


@pytest.fixture
def thread(uwf: Uwf, other: str) -> str:
    uwf("--root", other, "workflow", "put", write("pair.yaml", PAIR))
    return str(uwf("--root", other, "thread", "start", "pair", "-p", WORDS).json["thread"])


def commands(text: str, other: str) -> list[list[str]]:
    """The words of each command of uwf in a text, which all name the root."""
    begin = f"uwf --root {shlex.quote(other)} "
    parts = text.split(begin)
    assert len(parts) > 1 and not any(re.search(r"\buwf [a-z]", part) for part in parts), text
    return [shlex.split(begin + re.split(r"[;,]|\n| shows| brings", part)[0])[1:] for part in parts[1:]]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_command_in_an_error_repeats_the_root(uwf: Uwf, other: str, thread: str, form: str) -> None:
    error = uwf("--root", other, "--format", form, "thread", "show", "9999", check=3).err
    hint = re.findall(r'"hint":"(.*?)"', error)[0] if form == "json" else error
    (command,) = commands(hint, other)
    assert uwf(*command).json[0]["thread"] == thread


def test_a_command_in_a_result_repeats_the_root(uwf: Uwf, other: str, thread: str) -> None:
    paused = uwf("--root", other, "--format", "text", "thread", "pause", thread).out
    (command,) = commands(paused, other)
    uwf(*command)
    started = uwf("--root", other, "--format", "text", "thread", "start", "pair", "-p", "Another").out
    (command,) = commands(started, other)
    assert uwf(*command).lines[-1]["status"] == "completed"
    none = uwf("--root", other, "--format", "text", "remote", "list").out
    assert commands(none, other) == [["--root", other, "remote", "add", "origin", "URL"]]


def test_a_command_in_a_warning_and_of_doctor_repeats_the_root(uwf: Uwf, other: str, thread: str) -> None:
    uwf("--root", other, "thread", "step", thread)
    store = Path(other) / "store.git"
    git("--git-dir", store, "update-ref", f"refs/uwf/threads/{thread}", f"refs/uwf/threads/{thread}~1")
    done = uwf("--root", other, "thread", "start", "pair", "-p", "Another")
    (warning,) = done.json["warnings"]
    (command,) = commands(warning, other)
    (check,) = [item for item in uwf(*command, "--quick", check=1).json if item["check"] == "witness"]
    (command,) = commands(check["hint"], other)
    uwf(*command, "--quick")
    uwf("--root", other, "thread", "step", thread)


def test_words_of_others_stay_as_they_are(uwf: Uwf, other: str, thread: str) -> None:
    listed = uwf("--root", other, "--format", "text", "thread", "list").out
    assert WORDS in listed
    asked = uwf("--root", other, "thread", "prompt", thread, "--format", "text").out
    assert WORDS in asked


@pytest.mark.parametrize("words", ["uwf push", "it's uwf push", "no command"])
def test_words_that_a_command_repeats_stay_as_they_are(words: str) -> None:
    invocation = Invocation()
    invocation.root_option, invocation.command_names = "r", lambda: ("push", "thread")
    repeats = shlex.join(["uwf", "thread", "answer", "X", "-f", f"reason={words}", words])
    shown = invocation.at_root(f"not recorded; to repeat it: {repeats}; uwf-exec, a uwf of git, my/uwf push")
    command, *rest = shown.partition("repeat it: ")[2].split("; ")
    assert shlex.split(command) == ["uwf", "--root", "r", *shlex.split(repeats)[1:]]
    assert rest == ["uwf-exec, a uwf of git, my/uwf push"]


def test_without_the_option_a_command_is_as_short_as_it_was(uwf: Uwf) -> None:
    assert "--root" not in uwf("thread", "show", "9999", check=3).err


def test_a_ref_that_doctor_would_have_deleted_is_deleted_by_its_command(
    uwf: Uwf, other: str, thread: str
) -> None:
    store, stray = Path(other) / "store.git", "refs/uwf/attempts/01ARZ3NDEKTSV4RRFFQ69G5FAV"
    git("--git-dir", store, "update-ref", stray, f"refs/uwf/threads/{thread}")
    checks = uwf("--root", other, "doctor", "--quick").json
    (check,) = [item for item in checks if stray in item["message"]]
    subprocess.run(["sh", "-c", check["hint"]], check=True)
    assert stray not in git("--git-dir", store, "for-each-ref")
