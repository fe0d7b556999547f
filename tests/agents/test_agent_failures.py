"""Agent CLIs as their users have them, with the retries that are their own, and uwf-builtin, whose service fails in
every way: each failure is told with its true reason, and leaves the thread as it was."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import agent_programs
import pytest
from agent_faults import FAULTS
from cli_samples import PAIR, write
from conftest import Uwf
from model_server import ModelServer, serving
from process_tree import killed
from workflows import opened

from uwf_git.format.ids import ThreadId


class Subject(NamedTuple):
    """An agent: the command in config.yaml and the program that it runs, "" for none. `limit` is for how many seconds a
    program may try that has trouble, `hanging` for how many one may wait that has no answer; `quick` are the faults of
    the ordinary suite."""

    command: str
    program: str
    limit: int
    hanging: int
    quick: tuple[str, ...] = ()


SUBJECTS = {
    "claude": Subject(
        "uwf-claude-code", "claude", 40, 15, ("context length", "quota used up", "refusal", "garbage")
    ),
    "codex": Subject("uwf-codex", "codex", 45, 15, ("context length", "quota used up", "killed", "hangs")),
    "gemini": Subject("uwf-gemini", "gemini", 60, 45),
    "opencode": Subject("uwf-opencode", "opencode", 75, 60),
    "llm": Subject("uwf-llm-cli", "llm", 90, 15, ("refusal", "prints nothing")),
    "builtin": Subject(
        "uwf-builtin",
        "",
        60,
        8,
        (
            "unauthorized", "quota used up", "closes midway", "garbage", "context length", "refusal",
            "empty answer", "broken after a call",
        ),
    ),
}  # fmt: skip
HANGING = ("hangs", "hangs midway")
OF_A_PROGRAM = ("killed", "missing", "prints nothing")
OLD_NODE = "runs in an old Node"


def _marks(subject: Subject, fault: str) -> pytest.MarkDecorator | tuple[()]:
    if agent_programs.SLOW_WANTED:
        return pytest.mark.timeout(400)
    return () if fault in subject.quick else pytest.mark.skip("the slow tier tries the others")


CASES = [
    pytest.param(name, fault, marks=_marks(subject, fault))
    for name, subject in SUBJECTS.items()
    for fault in FAULTS
    if not (fault in OF_A_PROGRAM and not subject.program)
    and not (fault == "broken after a call" and name == "llm")  # it has no tools
    and not (fault == OLD_NODE and name != "gemini")  # the others bring their own
]


@pytest.mark.extended
@pytest.mark.parametrize(("name", "fault"), CASES)
def test_a_failure_is_told_with_its_true_reason_and_leaves_the_thread_as_it_was(
    name: str,
    fault: str,
    uwf: Uwf,
    config: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    subject, case = SUBJECTS[name], FAULTS[fault]
    home = tmp_path / "agent-home"
    with serving(case.answer or (), aside=lambda _: None) as server:
        _set_up(subject, fault, server, home, tmp_path, monkeypatch, config)
        uwf("workflow", "put", write("pair.yaml", PAIR))
        thread = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
        head = uwf("thread", "show", thread).json["head"]
        at = (lambda: bool(server.asked)) if fault == "killed" else (lambda: False)
        with killed(home, at):
            done = uwf("thread", "step", thread, check=6, timeout=600)
        error = json.loads(done.err.splitlines()[-1])["error"]
        record_property("told", error["message"])
        record_property("hint", error["hint"])
        assert re.search(case.reason, error["message"], re.IGNORECASE), error
        assert re.search(case.hint, error["hint"], re.IGNORECASE), error
        assert not (case.is_final and "still trying" in error["message"]), error
        assert uwf("thread", "show", thread).json["head"] == head
        instance = opened()
        (attempt,) = instance.attempts.all(ThreadId(thread))
        if fault == "broken after a call":
            assert attempt.detail is not None
            kept = instance.store.detail(attempt.detail)
            assert kept is not None and kept.usage is not None
            assert kept.usage.input == server.usage.input
    assert _left(home, thread) == []


def _set_up(
    subject: Subject,
    fault: str,
    server: ModelServer,
    home: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: Callable[[str], Path],
) -> None:
    limit = subject.hanging if fault in HANGING else subject.limit
    agents = f"agents: {{subject: {{command: {subject.command}, timeout: {limit}}}}}\ndefaultAgent: subject\n"
    if not subject.program:
        url = agent_programs.NOBODY if fault == "refuses connections" else server.url
        config(
            f"{agents}providers: {{local: {{baseUrl: '{url}/v1'}}}}\n"
            "models: {small: {provider: local, name: scripted}}\ndefaultModel: small\n"
        )
        return
    config(agents)
    if fault == "missing":
        there = (
            each for each in os.environ["PATH"].split(os.pathsep) if not Path(each, subject.program).exists()
        )
        monkeypatch.setenv("PATH", os.pathsep.join(there))
    elif fault != "prints nothing":
        agent_programs.program(subject.program)
        for name, value in agent_programs.environment(subject.program, server, home).items():
            monkeypatch.setenv(name, value)
        if fault == OLD_NODE:
            old = agent_programs.program("old-node").parent
            monkeypatch.setenv("PATH", f"{old}{os.pathsep}{os.environ['PATH']}")
        url = server.url if fault == "refuses connections" else ""
        agent_programs.with_its_own_retries(home, monkeypatch, url)
    else:
        silent = folder / "bin" / subject.program
        silent.parent.mkdir()
        silent.write_text("#!/bin/sh\nexit 0\n")
        silent.chmod(0o755)
        monkeypatch.setenv("PATH", f"{silent.parent}{os.pathsep}{os.environ['PATH']}")


def _left(home: Path, thread: str) -> list[bytes]:
    """The processes that belong to a step and are there yet."""
    marks = (f"HOME={home}\0".encode(), f"UWF_THREAD={thread}\0".encode())
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            if any(mark in environment for mark in marks):
                found.append((folder / "cmdline").read_bytes())
        except OSError:
            continue
    return found
