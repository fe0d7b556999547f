"""uwf-human: a person at a terminal does a role; the terminal here is a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from one_role import command, failed, read, start

from uwf_git.store.instance import Instance

SCHEMA = {
    "type": "object",
    "properties": {
        "status": {"enum": ["approved", "rejected"], "description": "The verdict."},
        "comments": {"type": "string"},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "files": {"type": "array", "items": {"type": "string"}},
        "urgent": {"type": "boolean"},
    },
    "required": ["status", "comments", "score"],
    "additionalProperties": False,
}


class Person:
    """Types into the terminal of an agent, each line when its question is on the screen."""

    def __init__(
        self,
        instance: Instance,
        args: list[str],
        schema: Any,
        env: dict[str, str] | None = None,
        engine: bool = False,
    ) -> None:
        self.instance = instance
        self.thread = start(instance, schema, "Review \x1b[31mthis\x1b[0m.")
        self.screen = ""
        self.terminal, inner = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uwf_cli.main", "thread", "step", self.thread, "--agent", "human"]
            if engine
            else command("human", args, self.thread),
            stdin=inner,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            text=True,
        )
        os.close(inner)

    def sees(self, question: str) -> None:
        """Waits for a text on the screen, and forgets the screen up to it."""
        while question not in self.screen:
            assert select.select([self.terminal], [], [], 30)[0], f"{question!r} never came: {self.screen}"
            try:
                data = os.read(self.terminal, 4096)
            except OSError:  # what Linux says when the other end is closed
                data = b""
            assert data, f"{question!r} never came: {self.screen}{self.process.communicate()[1]}"
            self.screen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        self.screen = self.screen.partition(question)[2]

    def types(self, question: str, line: str) -> None:
        self.sees(question)
        os.write(self.terminal, f"{line}\n".encode())

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        os.close(self.terminal)
        assert "Traceback" not in err, err
        return self.process.returncode, out, err

    def made(self) -> Any:
        code, out, err = self.end()
        assert code == 0, err
        return read(self.instance, out)


def test_the_fields_are_asked_one_by_one(instance: Instance) -> None:
    person = Person(instance, [], SCHEMA)
    person.sees("Does the work.\n\nWork.\n\nThe task:\nReview \\x1b[31mthis\\x1b[0m.\n")
    person.types("The verdict.\n  1) approved\n  2) rejected\nstatus [1-2]: ", "3")
    person.types("Please choose one of these.\n", "ed")
    person.types("Please choose one of these.\n", "2")
    person.types("comments (string): ", "First line\\")
    person.types("… ", "second: line")
    person.types("score (integer from 1 to 5): ", "9")
    person.sees("9 is greater than the maximum of 5")
    person.types("score (integer from 1 to 5): ", "4")
    person.types("files (list of strings; one a line, an empty line ends)\n  - ", "007")
    person.types("  - ", "b.py")
    person.types("  - ", "")
    person.types("urgent (boolean, Enter for none): ", "yes")
    person.types("ends it.\n> ", "I read it.")
    person.types("> ", ".")
    made = person.made()
    assert made.output == {
        "status": "rejected",
        "comments": "First line\nsecond: line",
        "score": 4,
        "files": ["007", "b.py"],
        "urgent": True,
    }
    assert made.agent == "uwf-human"
    assert made.detail["answer"].endswith("---\n\nI read it.\n")


def test_optional_fields_may_be_left_out_and_needed_ones_not(instance: Instance) -> None:
    person = Person(instance, [], SCHEMA)
    person.types("status [1-2]: ", "APP")
    person.types("comments (string): ", "")
    person.sees('This is needed; type "" for an empty text.\n')
    person.types("comments (string): ", '""')
    person.types("score (integer from 1 to 5): ", "1")
    person.types("  - ", "")
    person.types("urgent (boolean, Enter for none): ", "")
    person.sees("> ")
    os.write(person.terminal, b"\x04")
    assert person.made().output == {"status": "approved", "comments": "", "score": 1}


def test_the_status_decides_which_fields_are_asked(instance: Instance) -> None:
    variants = [
        {
            "properties": {"status": {"const": "done"}, "summary": {"type": "string"}},
            "required": ["summary", "status"],
        },
        {
            "properties": {"status": {"const": "failed"}, "why": {"type": "string"}},
            "required": ["why", "status"],
        },
    ]
    person = Person(instance, [], {"type": "object", "oneOf": variants})
    person.types("  1) done\n  2) failed\nstatus [1-2]: ", "failed")
    person.types("why (string): ", "no idea")
    person.types("> ", ".")
    assert person.made().output == {"status": "failed", "why": "no idea"}


def test_variants_without_a_status_are_chosen_by_number(instance: Instance) -> None:
    variants = [
        {"title": "A plan", "properties": {"plan": {"type": "object"}}, "required": ["plan"]},
        {"properties": {"risk": {"type": "number"}}, "required": ["risk"]},
    ]
    person = Person(instance, [], {"oneOf": variants, "type": "object"})
    person.types("  1) 1. A plan\n  2) 2. risk\nform [1-2]: ", "1")
    person.types("plan (object): ", "{not json")
    person.sees("is not of type 'object'")
    person.types("plan (object): ", '{"steps": [1, 2]}')
    person.types("> ", ".")
    assert person.made().output == {"plan": {"steps": [1, 2]}}


def test_what_only_the_whole_can_tell_is_asked_again(instance: Instance) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "not": {"required": ["a", "b"]},
    }
    person = Person(instance, [], schema)
    for typed in ("2", ""):
        person.types("a (integer, Enter for none): ", "1")
        person.types("b (integer, Enter for none): ", typed)
        person.types("> ", ".")
        if typed:
            person.sees("should not be valid under")
    assert person.made().output == {"a": 1}


def test_leaving_leaves_the_thread_waiting(instance: Instance) -> None:
    person = Person(instance, [], SCHEMA)
    person.sees("status [1-2]: ")
    os.write(person.terminal, b"\x04")
    code, out, err = person.end()
    assert (code, out) == (5, "")
    assert re.fullmatch(
        r"uwf-human: role 'worker' got no answer; thread (\w+) waits — "
        r"in a terminal: uwf thread step \1 --agent uwf-human\n",
        err,
    )
    assert person.instance.attempts.all(person.thread) == []


def test_the_engine_asks_in_its_own_terminal(instance: Instance) -> None:
    person = Person(instance, [], {"type": "object", "properties": {"n": {"type": "integer"}}}, engine=True)
    person.types("n (integer, Enter for none): ", "7")
    person.types("> ", ".")
    code, out, err = person.end()
    assert code == 0, err
    assert json.loads(out)["done"] is True
    assert read(instance, json.loads(out)["head"]).output == {"n": 7}


def test_off_a_terminal_it_refuses_in_one_line(instance: Instance) -> None:
    said = failed(instance, "human", [], SCHEMA, status=5)
    assert re.fullmatch(
        r"uwf-human: thread (\w+) waits for a person to play role 'worker' — "
        r"in a terminal: uwf thread step \1 --agent uwf-human\n",
        said,
    )
    failed(instance, "human", ["--editor"], SCHEMA, status=5)
    assert "has no argument --what" in failed(instance, "human", ["--what"], SCHEMA, status=2)


def test_time_runs_out_without_an_answer(instance: Instance) -> None:
    from uwf_git.base.errors import AgentFailed
    from uwf_git.ext.agents.human import Terminal

    terminal, inner = pty.openpty()
    try:
        with pytest.raises(AgentFailed, match="role 'worker' got no answer in time"):
            Terminal(inner, SimpleNamespace(role=SimpleNamespace(name="worker"), deadline=0.0)).ask("? ")
    finally:
        os.close(terminal)
        os.close(inner)


Script = Callable[[str, str], Path]


def edits(script: Script, body: str) -> dict[str, str]:
    """An editor that is a program: `text` is what it finds, and what it leaves."""
    read = "import pathlib, sys\npath = pathlib.Path(sys.argv[-1])\ntext = path.read_text()"
    program = f"{read}\n{body}\npath.write_text(text)\n"
    return {"VISUAL": f"{script('editor', program)} --wait"}


def test_an_editor_opens_on_a_form_that_explains_itself(
    instance: Instance, script: Script, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    body = (
        f"pathlib.Path({str(copy)!r}).write_text(text)\n"
        "text = text.replace('status:  # approved or rejected', 'status: approved')\n"
        "text = text.replace('comments:  # text', 'comments: Fine: all of it').replace('score:', 'score: 1')\n"
        "text += 'The report.\\n'"
    )
    made = Person(instance, ["--editor"], SCHEMA, edits(script, body)).made()
    assert made.output == {
        "status": "approved",
        "comments": "Fine: all of it",
        "score": 1,
    }, "what nobody filled in has no value"
    assert made.detail["answer"].endswith("---\n\nThe report.\n")
    assert "#:" not in made.detail["answer"]
    form = copy.read_text()
    assert form.startswith(
        "---\nstatus:  # approved or rejected\ncomments:  # text\nscore:  # integer from 1 to 5\n"
        "# files:  # list\n# urgent:  # yes or no\n---\n"
    )
    assert "#: - `score` (integer from 1 to 5; required)\n" in form
    assert "#: Review \\x1b[31mthis\\x1b[0m.\n" in form


def test_the_editor_opens_again_with_what_is_wrong(
    instance: Instance, script: Script, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    body = (
        f"seen = pathlib.Path({str(seen)!r})\n"
        "if seen.exists():\n"
        "    seen.write_text(text)\n    text = text.replace('score: 9', 'score: 5')\n"
        "else:\n"
        "    seen.write_text('')\n    text = text.replace('score:', 'score: 9')"
        ".replace('status:', 'status: approved').replace('comments:', 'comments: x')"
    )
    made = Person(instance, ["--editor"], SCHEMA, edits(script, body)).made()
    assert made.output["score"] == 5
    assert seen.read_text().startswith(
        "#: This cannot be taken yet:\n#: - /score: 9 is greater than the maximum of 5\n---\n"
    )


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ("pass", 5, "the form of role 'worker' was left as it was"),
        ("text = ''", 5, "the form of role 'worker' was left as it was"),
        ("sys.exit(3)", 6, r"editor '.*' exited with 3"),
    ],
)
def test_an_editor_that_changes_nothing_makes_no_step(
    instance: Instance, script: Script, body: str, status: int, complaint: str
) -> None:
    code, out, err = Person(instance, ["--editor"], SCHEMA, edits(script, body)).end()
    assert (code, out) == (status, "")
    assert re.search(complaint, err)


def test_an_editor_that_is_missing_is_named(instance: Instance) -> None:
    code, _, err = Person(instance, ["--editor"], SCHEMA, {"EDITOR": "no-such-editor"}).end()
    assert code == 6
    assert "editor 'no-such-editor' does not start" in err
