"""The recipes of CONTRIBUTING.md, followed in a copy of the sources: new files, and a line of the registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_servers
import pytest
import shell_session
from commands import git
from conftest import EXAMPLES, REPOSITORY, Uwf
from two_machines import RELAY

Call = Callable[..., Any]
FORMAT_1 = REPOSITORY / "tests" / "store" / "format-1.bundle"
CHANGED_TYPES = """
from uwf_git.format import types
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.failure_policy import FAILURE_POLICIES
from uwf_git.format.node import hash_of
print(list(FAILURE_POLICIES)[-1], *(node for node in BUILTIN if node not in (META, hash_of(META, BUILTIN[node]))))
"""
"""Prints the newest failure policy, and the types whose schemas have another hash than is written down."""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sources, with what they were compiled to."""
    copy = tmp_path / "sources"
    shutil.copytree(REPOSITORY / "uwf_git", copy / "uwf_git")
    shutil.copytree(REPOSITORY / "cli", copy / "cli")
    return copy


@pytest.fixture
def program(sources: Path, hermetic: Path) -> Call:
    """Run Python with the copy, on one of several stores, and return what it prints."""

    def run(*args: str, root: str = "ada", status: int = 0) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(sources), str(sources / "cli")]),
            "UWF_STORAGE_ROOT": str(hermetic / root),
        }
        command = [sys.executable, "-P", *args]
        done = subprocess.run(
            command, cwd=hermetic, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    return run


@pytest.fixture
def call(program: Call) -> Call:
    """Run the command of the copy on one of several stores, and return its JSON."""

    def run(*args: str | Path, root: str = "ada", status: int = 0) -> Any:
        output = program("-m", "uwf_cli.main", *map(str, args), root=root, status=status)
        return json.loads(output) if output.startswith(("{", "[")) else output

    return run


def add(sources: Path, name: str) -> None:
    """Write the files of CONTRIBUTING.md that belong to an extension, and its line into the registry."""
    document = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for block in shell_session.parse(document):
        if isinstance(block, shell_session.File) and f"/{name}/" in block.name:
            (sources / block.name).parent.mkdir(exist_ok=True)
            (sources / block.name).write_text(block.text, encoding="utf-8")
    register(sources, name)


def register(sources: Path, name: str) -> None:
    """Add a line to the registry."""
    registry = sources / "uwf_git" / "ext" / "__init__.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(text.replace("OURS = (\n", f'OURS = (\n    "{name}",\n', 1), encoding="utf-8")


def test_the_recipe_for_a_command_makes_one(sources: Path, call: Call) -> None:
    add(sources, "words")
    call("workflow", "put", EXAMPLES / "solve-issue.yaml")
    thread = call("thread", "start", "solve-issue", "-p", "x")["thread"]
    call("thread", "step", thread, "--agent", "uwf-rehearse")
    (row,) = call("thread", "words", thread[-8:])
    assert (row["step"], row["role"]) == (1, "planner") and row["words"] > 0
    assert "planner" in call("thread", "words", thread, "--format", "text")
    assert "Count the words of each step." in call("thread", "--help")


TRACKER = """\
    Tracker(
        kind="linear",
        domain="linear.app",
        pages=(_page(rf"/issue/{_KEY}(?:/[^?#]*)?(?:[?#].*)?"),),
        page="issue/{key}",
        api="https://api.linear.app/graphql",
        token="LINEAR_API_KEY",
        server="LINEAR_SERVER",
        user="",
        log_in="set LINEAR_API_KEY",
        client="uwf_git.forge.linear:LinearIssue",
    ),
"""
TRACKER_CLIENT = """\
from uwf_git.forge.answers import Author, Issue


class LinearIssue:
    def __init__(self, address, login, log_in):
        self.address, self.login = address, login

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self, at_most):
        text = f"Read at {self.address.repository.forge.api} with {self.login.source}."
        return Issue(42, self.address.url, "It fails", text, Author("ann"), (), True, 0, False), []
"""


def test_another_tracker_is_a_row_a_name_and_a_module(sources: Path, call: Call, monkeypatch: Any) -> None:
    forge, settings = sources / "uwf_git" / "forge", sources / "uwf_git" / "config" / "settings.py"
    table = (forge / "trackers.py").read_text(encoding="utf-8")
    (forge / "trackers.py").write_text(
        table.replace("_ROWS = (\n", f"_ROWS = (\n{TRACKER}", 1), encoding="utf-8"
    )
    (forge / "linear.py").write_text(TRACKER_CLIENT, encoding="utf-8")
    text = settings.read_text(encoding="utf-8")
    settings.write_text(
        text.replace('TRACKERS = ("jira",)', 'TRACKERS = ("jira", "linear")'), encoding="utf-8"
    )
    monkeypatch.setenv("LINEAR_API_KEY", "lin_api_0123456789")
    call("config", "set", "trackers.linear.app", "linear")
    call("workflow", "put", EXAMPLES / "solve-issue.yaml")
    url = "https://linear.app/acme/issue/ENG-42/it-fails"
    thread = call("thread", "start", "solve-issue", url)["thread"]
    issue = call("thread", "read", thread, "--format", "json")["issue"]
    assert (issue["key"], issue["url"]) == ("ENG-42", "https://linear.app/acme/issue/ENG-42")
    start = call("cas", "get", call("thread", "show", thread)["head"])["payload"]
    assert "Read at https://api.linear.app/graphql with LINEAR_API_KEY." in start["prompt"]


def test_the_recipe_for_a_status_makes_one(sources: Path, call: Call, program: Call) -> None:
    recipe = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("    STALLED = StateRow(")
    table = sources / "uwf_git" / "base" / "thread_states.py"
    row = recipe[1] + recipe[2].partition("```")[0]
    text = table.read_text(encoding="utf-8")
    before = "    @property\n    def word"
    table.write_text(text.replace(before, row + before), encoding="utf-8")
    call("workflow", "put", EXAMPLES / "solve-issue.yaml")
    thread = call("thread", "start", "solve-issue", "-p", "x")["thread"]
    assert call("thread", "list", "--status", "stalled") == []
    assert "corrupt, stalled" in " ".join(call("thread", "list", "--help").split())
    state = f"import uwf_git as uwf; print(uwf.open().thread({thread!r}).state)"
    assert program("-c", state) == "Idle(role='planner', status='idle')\n"

    at_once = row.replace("> 7 * 86_400", ">= 0")
    table.write_text(text.replace(before, at_once + before), encoding="utf-8")
    assert [item["thread"] for item in call("thread", "list", "--status", "stalled")] == [thread]
    assert program("-c", state) == "Idle(role='planner', status='stalled')\n"

    for_a_person = at_once.replace("Actor.AGENT", "Actor.PERSON")
    table.write_text(text.replace(before, for_a_person + before), encoding="utf-8")
    assert program("-c", state) == "Stuck(problem='nobody has stepped it for a week', status='stalled')\n"


def test_the_recipe_for_a_failure_policy_makes_one_that_changes_no_type_and_needs_no_other_file(
    sources: Path, call: Call, hermetic: Path, uwf: Uwf
) -> None:
    recipe = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("SKIP = FailurePolicy(")
    table = sources / "uwf_git" / "format" / "failure_policy.py"
    text = table.read_text(encoding="utf-8").replace("FAIL_ALL}", "FAIL_ALL, SKIP.word: SKIP}")
    row = recipe[1] + recipe[2].partition("```")[0]
    table.write_text(text.replace("\nFAILURE_POLICIES", f"{row}\nFAILURE_POLICIES"), encoding="utf-8")
    types = [sys.executable, "-P", "-c", CHANGED_TYPES]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(sources), str(sources / "cli")])}
    assert subprocess.run(types, env=environment, capture_output=True, check=True).stdout.split() == [b"skip"]
    call("init")
    store = hermetic / "ada" / "store.git"
    git("--git-dir", store, "fetch", "--quiet", FORMAT_1, "+refs/uwf/*:refs/uwf/*")
    found = call("verify")
    assert found["findings"] == [] and found["verified"]["threads"] > 0
    example = (EXAMPLES / "fan-out.yaml").read_text(encoding="utf-8")
    (hermetic / "skipping.yaml").write_text(
        example.replace("onFailure: drop", "onFailure: skip"), encoding="utf-8"
    )
    name = call("workflow", "put", "skipping.yaml")["name"]
    thread = call("thread", "start", name, "-p", "x")["thread"]
    call("thread", "run", thread, "--agent", "uwf-rehearse", "--format", "text")
    assert call("thread", "show", thread)["status"] == "completed"
    assert call("verify")["findings"] == []
    earlier = uwf("--root", hermetic / "ada", "thread", "read", thread, check=1).error
    assert "'skip'" in earlier["message"] and "upgrade uwf-git" in earlier["hint"]


def test_the_recipe_for_a_kind_of_turn_makes_one_that_is_checked_stepped_and_verified(
    sources: Path, call: Call, hermetic: Path
) -> None:
    recipe = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("    NOTE = TurnRow(")
    row, room = recipe[1] + recipe[2].partition("```")[0], recipe[2].split("```")[2].removeprefix("python\n")
    table = sources / "uwf_git" / "workflow" / "turn.py"
    text = table.read_text(encoding="utf-8").replace("    RESULT,\n", "    RESULT,\n    TEXT,\n")
    table.write_text(text.replace("    END = TurnRow(", f"{row}    END = TurnRow("), encoding="utf-8")
    note = sources / "uwf_git" / "engine" / "turn" / "note.py"
    note.write_text(room, encoding="utf-8")
    schema = "{type: object, properties: {n: {type: string}}, required: [n]}"
    role = f"{{description: x, systemPrompt: y, outputSchema: {schema}}}"
    (hermetic / "noted.yaml").write_text(
        f"name: noted\ndescription: d\nroles: {{a: {role}, b: {role}}}\ngraph:\n  $START: [{{role: a}}]\n"
        "  a: [{role: $NOTE, prompt: 'noted {{ n }}'}]\n  $NOTE: [{role: b}]\n  b: [{role: $END}]\n",
        encoding="utf-8",
    )
    assert call("workflow", "validate", "noted.yaml")["findings"] == []
    call("workflow", "put", "noted.yaml")
    thread = call("thread", "start", "noted", "-p", "x")["thread"]
    call("thread", "run", thread, "--agent", "uwf-rehearse", "--format", "text")
    assert [each["role"] for each in call("thread", "steps", thread)] == ["a", "$NOTE", "b"]
    assert call("verify")["findings"] == []
    forged = call("thread", "start", "noted", "-p", "y")["thread"]
    note.write_text(room.replace("return instruction", 'return "forged"'), encoding="utf-8")
    call("thread", "run", forged, "--agent", "uwf-rehearse", "--format", "text")
    note.write_text(room, encoding="utf-8")
    assert [(each["thread"], each["code"]) for each in call("verify", status=7)["findings"]] == [
        (forged, "wrong-output")
    ]


def test_the_recipe_for_an_agent_makes_one(sources: Path, call: Call, hermetic: Path) -> None:
    add(sources, "quote")
    assert "uwf-quote" in [each["name"] for each in call("agent", "list")]
    (hermetic / "relay.yaml").write_text(RELAY, encoding="utf-8")
    call("workflow", "put", "relay.yaml")
    call("config", "set", "agents.motto", '{"command": "uwf-quote", "args": ["text=Quote the commas."]}')
    thread = call("thread", "start", "relay", "-p", "x")["thread"]
    call("thread", "run", thread, "--agent", "motto", "--format", "text")
    assert [each["output"] for each in call("thread", "steps", thread)] == [{"text": "Quote the commas."}] * 2


def test_the_recipe_for_a_room_makes_one_that_is_shared_and_verified(
    sources: Path, call: Call, hermetic: Path
) -> None:
    room = sources / "uwf_git" / "ext" / "schedules"
    room.mkdir()
    for module in (EXAMPLES / "extension" / "uwf_schedules").glob("*.py"):
        text = module.read_text(encoding="utf-8").replace("uwf_schedules", "uwf_git.ext.schedules")
        (room / module.name).write_text(text, encoding="utf-8")
    register(sources, "schedules")
    call("remote", "add", "origin", git_servers.bare(hermetic / "hub.git"))
    call("schedule", "set", "nightly", "--workflow", "triage", "--every", "1d", "-p", "What came in?")
    call("push")
    call("clone", hermetic / "hub.git", root="bob")
    assert [each["name"] for each in call("schedule", "list", root="bob")] == ["nightly"]
    assert call("verify", "--all", root="bob")["findings"] == []
    assert "triage, which is not registered" in json.dumps(call("doctor", root="bob"))
