"""A command that a server calls in its own process gives what a process of the command prints."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Uwf
from uwf_cli.call import Failed, call

from uwf_git.store.location import Location, locate


@pytest.fixture
def location() -> Location:
    return locate(None, os.environ, Path.cwd())


@pytest.mark.parametrize(
    "argv",
    [
        ("workflow", "list"),
        ("workflow", "show", "pair"),
        ("thread", "list", "--all"),
        ("thread", "show", "@"),
        ("thread", "steps", "@"),
        ("thread", "read", "@"),
        ("thread", "attempts", "@"),
        ("ps",),
        ("inbox",),
    ],
)
def test_a_call_returns_the_json_of_its_command(
    uwf: Uwf, thread: str, location: Location, argv: tuple[str, ...]
) -> None:
    assert call(location, argv).value == uwf(*argv, "--format", "json").json


@pytest.mark.parametrize(
    "argv",
    [
        ("thread", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("thread", "show"),
        ("thread", "list", "--limit=x"),
        ("thread", "answer", "--message=-", "@"),
        ("no-such-command",),
    ],
)
def test_a_call_that_fails_has_the_error_of_its_command(
    uwf: Uwf, thread: str, location: Location, argv: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failed) as failed:
        call(location, argv, "red")
    assert capfd.readouterr() == ("", "")
    done = uwf(*argv, "--format", "json", check=failed.value.status, input="red")
    assert failed.value.error == {**done.error, "exitStatus": failed.value.status}


def test_a_call_reads_its_text_and_never_the_standard_input_of_the_server(
    uwf: Uwf, thread: str, location: Location
) -> None:
    made = call(location, ("thread", "start", "--prompt=-", "pair"), "-").value["thread"]
    assert uwf("thread", "read", made, "--format", "json").json["prompt"] == "-"
    with pytest.raises(Failed, match="the prompt is empty"):
        call(location, ("thread", "start", "--prompt=-", "pair"))


def test_half_of_a_surrogate_pair_is_replaced(uwf: Uwf, thread: str, location: Location) -> None:
    made = call(location, ("thread", "start", "--prompt=-", "pair"), "a\ud800b").value["thread"]
    assert uwf("thread", "read", made, "--format", "json").json["prompt"] == "a?b"
    call(location, ("thread", "kill", "--reason=a\udfffb", "--", made))
    with pytest.raises(Failed, match=r"no thread 'a\?b'"):
        call(location, ("thread", "show", "--", "a\ud800b"))


def test_an_error_of_a_call_holds_no_secret(
    location: Location, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2hunter2hunter2")
    with pytest.raises(Failed) as failed:
        call(location, ("thread", "show", "hunter2hunter2hunter2"))
    assert "hunter2" not in failed.value.message


def test_calls_of_several_threads_of_a_process_do_not_disturb_each_other(
    uwf: Uwf, thread: str, location: Location
) -> None:
    def started(number: int) -> str:
        made = call(location, ("thread", "start", "--prompt=-", "pair"), f"task {number}").value["thread"]
        return str(call(location, ("thread", "read", made)).value["prompt"])

    with ThreadPoolExecutor(4) as several:
        assert list(several.map(started, range(12))) == [f"task {number}" for number in range(12)]
    assert len(uwf("thread", "list").json) == 13
