"""What goes out and how: formats, errors, exit statuses, help, terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_samples import PAIR, on_terminal, scripted, write
from conftest import Result, Uwf
from uwf_cli.tree import uwf as command_tree

from uwf_git import __version__
from uwf_git.format import yaml12
from uwf_git.store.instance import Instance

HOSTILE = "red \x1b[31m bell \x07 back\x08 c1 \x9b2J over \u202e end \u2066 tag \U000e0041 bom \ufeff"


def test_the_version_comes_without_even_click(uwf: Uwf) -> None:
    for flag in ("--version", "-V"):
        assert uwf(flag).out == f"uwf {__version__}\n"
    imported = _imported("--version")
    assert "click" not in imported
    assert uwf("--format", "json", "--version").out == f"uwf {__version__}\n"


def test_showing_a_thread_imports_nothing_heavy(uwf: Uwf) -> None:
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]
    uwf("thread", "show", thread)  # the first time decides what is next, and remembers it
    heavy = {
        "yaml",
        "jsonschema",
        "jsonata",
        "liquid",
        "rich",
        "httpx",
        "ulid",
        "dotenv",
        "subprocess",
        "ssl",
    }
    assert not {"personas", "pages", "versions"} & _modules("thread", "show", thread)
    assert sorted(heavy & _imported("thread", "show", thread)) == []
    assert "pygit2" not in _names("thread", "show", thread)  # only parts of it are


def test_the_help_of_a_group_imports_none_of_its_commands(uwf: Uwf) -> None:
    for group in ((), ("thread",), ("cas",)):
        assert {"click", "uwf_cli"} <= _imported(*group, "--help")
        assert not {"pygit2", "sqlite3", "xxhash"} & _imported(*group, "--help")
        listed = uwf(*group, "--help").out.partition("  -h, --help")[2].splitlines()[1:]
        lines = [line for line in listed if line.startswith("  ") and not line.startswith("  Topics of")]
        assert lines and all(re.fullmatch(r"  [\w-]+(?: [\w-]+)? +[A-Z].*\.", line) for line in lines)


def test_the_help_lists_every_command_once_under_a_heading_and_run_first(uwf: Uwf) -> None:
    listed = uwf("--help").out.partition("  -h, --help")[2].splitlines()[1:]
    headings = [line for line in listed if line.endswith(":") and not line.startswith(" ")]
    assert headings[0] == "Run:" and len(headings) == 6
    *commands, topics = [line for line in listed if line.startswith("  ")]
    named = [re.split(r"\s{2,}", line.strip())[0] for line in commands]
    assert topics.startswith("  Topics of uwf help: ")
    assert named[0] == "run" and sorted(named) == sorted(command_tree.members)


def test_help_as_a_command_prints_what_the_option_prints(uwf: Uwf) -> None:
    for path in ((), ("thread",), ("thread", "start"), ("cas", "schema", "get"), ("web", "invite")):
        assert uwf("help", *path).out == uwf(*path, "--help").out
    assert uwf("help", "thraed", check=2).error["hint"] == 'did you mean "uwf thread"?'


def test_json_is_short_for_the_format(uwf: Uwf, instance: Instance) -> None:
    text = {"UWF_FORMAT": "text"}
    for arguments in (("thread", "list", "--json"), ("--json", "thread", "list")):
        assert uwf(*arguments, env=text).json == []
    assert uwf("thread", "xyzzy", "--json", env=text, check=2).error["code"] == "usage"


def test_results_are_json_unless_somebody_asks_for_another_format(uwf: Uwf, root: Path) -> None:
    value = uwf("init").json
    assert value == {"store": str(root / "store.git")}
    for arguments, environ in (
        (["--format", "yaml", "init"], {}),
        (["init", "--format=yaml"], {}),
        (["init"], {"UWF_FORMAT": "yaml"}),
        (["init", "--format", "yaml"], {"UWF_FORMAT": "text"}),
    ):
        out = uwf(*arguments, env=environ).out
        assert yaml12.load(out.encode(), "out").data == value
    for arguments, environ in ((["init", "--format", "text"], {}), (["init"], {"UWF_FORMAT": "text"})):
        assert uwf(*arguments, env=environ).out == f"store  {value['store']}\n"
    for arguments, environ in ((["init", "--format", "xml"], {}), (["init"], {"UWF_FORMAT": "xml"})):
        refused = uwf(*arguments, env=environ, check=2)
        assert refused.error["code"] == "usage"
        assert "json" in refused.error["message"] + refused.error["hint"]


def test_the_root_is_taken_before_and_after_the_command(uwf: Uwf) -> None:
    for number, arguments in enumerate((["--root", "r0", "init"], ["init", "--root", "r1"])):
        assert uwf(*arguments).json == {"store": str(Path(f"r{number}/store.git").absolute())}


def test_errors_are_one_line_with_a_code_a_hint_and_a_status(uwf: Uwf, instance: Instance) -> None:
    def check(result: Result, code: str, hint: str) -> None:
        assert result.out == ""
        error = json.loads(result.err)["error"]
        assert error.keys() == {"code", "message", "hint"}
        assert error["code"] == code
        assert hint in error["hint"]

    check(uwf("thread", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV", check=3), "not_found", "uwf thread list")
    check(uwf("thread", "show", "zz", check=3), "not_found", "characters")
    check(uwf("thread", "show", check=2), "usage", "uwf thread show --help")
    check(uwf("thread", "show", "a", "b", check=2), "usage", "uwf thread show --help")
    check(uwf("thread", "strat", check=2), "usage", 'did you mean "uwf thread start"?')
    check(uwf("theard", "list", check=2), "usage", 'did you mean "uwf thread"?')
    check(uwf("config", "show", check=2), "usage", 'did you mean "uwf config list"?')
    check(uwf("thread", "list", "--limti", "3", check=2), "usage", "--limit")
    check(uwf("thread", "list", "--limit", "-1", check=2), "usage", "--help")
    check(uwf("cas", "schema", "gte", check=2), "usage", 'did you mean "uwf cas schema get"?')

    text = uwf("thread", "strat", "--format", "text", check=2)
    assert text.err == "uwf: uwf thread has no command 'strat' — did you mean \"uwf thread start\"?\n"
    hostile = uwf("workflow", "history", HOSTILE + "\nnew line", "--format", "text", check=3)
    assert len(hostile.err.splitlines()) == 1
    assert "\x1b" not in hostile.err and "\u202e" not in hostile.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ls", "thread list"),
        ("thread ls", "thread list"),
        ("show 01JK7M", "thread show"),
        ("start solve-issue -p x", "thread start"),
        ("stop 01JK7M", "thread stop"),
        ("thread history 01JK7M", "thread steps"),
        ("delete 01JK7M", "thread rm"),
        ("workflow delete pair", "workflow rm"),
        ("thread prune", "gc"),
        ("thread push", "push"),
        ("thread validate flow.yaml", "workflow validate"),
        ("workflow step", "thread step"),
        ("config ls", "config list"),
        ("cas schema cat Text", "cas schema get"),
        ("schema", "cas schema"),
        ("vaildate flow.yaml", "workflow validate"),
        ("delte 01JK7M", "thread rm"),
        ("workflow cretae", "workflow put"),
        ("skill", "guide"),
        ("add flow.yaml", "workflow put"),
        ("crew add trip.bmad", "crew import"),
        ("remove 01JK7M", "thread rm"),
        ("crew remove trip", "crew rm"),
        ("tell 01JK7M", "thread say"),
        ("status", "thread list"),
        ("version", "--version"),
        ("config path", "config list"),
        ("eval rm bugs", "eval remove"),
        ("eval delete bugs", "eval remove"),
        ("config rm hooks", "config unset"),
    ],
)
def test_a_mistyped_command_gets_the_one_that_was_meant_wherever_it_stands(
    uwf: Uwf, typed: str, meant: str
) -> None:
    assert uwf(*typed.split(), check=2).error["hint"] == f'did you mean "uwf {meant}"?'


def test_a_mistyped_option_gets_the_one_that_begins_so(uwf: Uwf) -> None:
    assert uwf("thread", "list", "--stat", "failed", check=2).error["hint"] == "did you mean --status?"


def test_a_command_like_no_other_gets_the_help_of_its_group(uwf: Uwf) -> None:
    assert uwf("thread", "xyzzy", check=2).error["hint"] == "see: uwf thread --help"
    assert uwf("foo", check=2).error["hint"] == "see: uwf --help"


def test_a_command_that_removes_is_not_suggested_in_another_group(uwf: Uwf) -> None:
    assert uwf("cas", "rm", "x", check=2).error["hint"] == "see: uwf cas --help"
    assert uwf("agent", "kill", "x", check=2).error["hint"] == "see: uwf agent --help"


def test_nothing_that_a_terminal_shows_in_a_table_is_cut(uwf: Uwf, instance: Instance) -> None:
    """Names and errors wrap within their columns; words, such as ids and addresses, are whole. Only names beside what
    was done are cut, on a terminal so narrow that their row would be broken."""
    long = "the-agent-with-a-name-of-forty-letters-x"
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]
    error = " ".join(f"word{number}" for number in range(40))
    uwf("thread", "step", thread, "--agent", scripted('- { role: writer, output: { text: "a" } }'))
    uwf("thread", "step", thread, "--agent", f"sh -c 'echo {error} >&2; exit 3'", check=6)
    uwf("config", "set", f"agents.{long}.command", f"{long}-program")
    for columns in (80, 50):
        for arguments, words in (
            (["thread", "attempts", thread], [*error.split(), "critic"]),
            (
                ["thread", "steps", thread],
                ["uwf-rehearse", "writer", uwf("thread", "show", thread).json["head"]],
            ),
            (["agent", "list"], [long, f"{long}-program"]),
            (["doctor", "--quick"], ["git"]),
        ):
            if columns < 80 and arguments[0] == "thread":
                continue
            shown = on_terminal(*arguments, env={"NO_COLOR": "1"}, columns=columns)[1]
            assert "…" not in shown
            assert set(words) <= set(shown.replace(":", " ").split()), (arguments, shown)
            over = [line for line in shown.splitlines() if len(line) > columns and " " in line.strip()]
            assert not over, shown


def test_a_traceback_is_for_those_who_ask_for_it(uwf: Uwf, root: Path) -> None:
    (root / "store.git").parent.mkdir(parents=True)
    (root / "store.git").write_text("not a folder")
    refused = uwf("thread", "list", check=None)
    assert refused.code in (1, 3)
    assert len(refused.err.splitlines()) == 1
    done = subprocess.run(
        [sys.executable, "-m", "uwf_cli.main", "thread", "list"],
        capture_output=True,
        text=True,
        env={**os.environ, "UWF_DEBUG": "1"},
    )
    assert "Traceback" in done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["error"]["code"]


def test_a_reader_who_leaves_early_is_no_error(uwf: Uwf, instance: Instance) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "uwf_cli.main", "cas", "schema", "list"],
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_step_whose_result_cannot_be_printed_is_recorded_and_has_a_status_of_its_own(uwf: Uwf) -> None:
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]

    def run(shell: str) -> tuple[int, list[str]]:
        called = f"{sys.executable} -m uwf_cli.main {shell}"
        done = subprocess.run(["sh", "-c", called], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines()

    status, said = run(f"thread step {thread} --agent uwf-rehearse >/dev/full")
    assert status == 9 and len(said) == 1
    error = json.loads(said[0])["error"]
    assert error["code"] == "output_failed" and "No space left" in error["message"]
    assert len(uwf("thread", "steps", thread).json) == 1
    assert run("--version >/dev/full")[0] == run("thread list >/dev/full")[0] == 9
    # Nobody can be told anything: the step is made all the same, and a failure keeps its status.
    status, _ = run(f"thread step {thread} --agent \"sh -c 'echo working >&2; exit 3'\" 2>/dev/full")
    assert status == 6
    assert run(f"thread step {thread} --agent uwf-rehearse 2>/dev/full")[0] == 0
    assert len(uwf("thread", "steps", thread).json) == 2


def test_help_begins_with_examples_everywhere(uwf: Uwf) -> None:
    """Of every command; the process itself is asked for a few."""
    from uwf_cli.tree import uwf as tree

    paths = []
    for path, command in _commands(tree, ("uwf",)):
        context = click.Context(command, info_name=" ".join(path), terminal_width=80)
        text = command.get_help(context)
        assert text.startswith("Examples:\n  "), path
        example = text.splitlines()[1].strip()
        assert " ".join(path) in example or isinstance(command, click.Group), path
        assert f"Usage: {' '.join(path)}" in text
        assert "--format" in text and "--root" in text
        wide = [line for line in text.splitlines() if len(line) > 80]
        assert not wide, (path, "help lines have at most 80 columns", wide)
        paths.append(path)
    assert len(paths) > 40
    for arguments in ([], ["--help"], ["thread"], ["thread", "read", "--help"]):
        assert uwf(*arguments).out.startswith("Examples:\n")
    assert "Try it without setup" in uwf().out


def test_a_terminal_gets_text_and_colour_unless_it_wants_none(uwf: Uwf) -> None:
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]
    status, shown = on_terminal("thread", "show", thread)
    assert status == 0
    assert "\x1b[" in shown
    plain = uwf("thread", "show", thread, "--format", "text").out
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_terminal("thread", "show", thread, env=environ) == (0, plain)
    assert "next      writer" in plain
    status, shown = on_terminal("thread", "show", thread, "--format", "json")
    assert json.loads(shown)["thread"] == thread
    status, shown = on_terminal("thread", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert status == 3
    assert shown.startswith("uwf: no thread 01ARZ3NDEKTSV4RRFFQ69G5FAV — ")


def test_nothing_from_the_store_controls_a_terminal(uwf: Uwf, instance: Instance) -> None:
    """A workflow's description, a prompt and an agent's answer, wherever they are shown."""
    description = '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in HOSTILE) + '"'
    uwf("workflow", "put", write("pair.yaml", PAIR.replace("One writes, one reviews.", description)))
    thread = uwf("thread", "start", "pair", "-p", f"# Task\n\n{HOSTILE}\n\n`{HOSTILE}`").json["thread"]
    node = uwf("cas", "put", "Text", json.dumps(HOSTILE)).json["hash"]
    for arguments in (
        ["thread", "read", thread],
        ["thread", "log", thread],
        ["thread", "list"],
        ["workflow", "list"],
        ["workflow", "show", "pair"],
        ["workflow", "graph", "pair"],
        ["cas", "get", node],
        ["cas", "get", node, "--format", "yaml"],
    ):
        status, shown = on_terminal(*arguments, env={"NO_COLOR": "1"}, columns=300)
        assert status == 0
        raw = {character for character in HOSTILE if not character.isprintable()}
        assert not raw & set(shown), arguments
    assert "\\x1b[31m" in on_terminal("thread", "read", thread, env={"NO_COLOR": "1"}, columns=300)[1]
    # As data it is what it was.
    assert uwf("cas", "get", node).json["payload"] == HOSTILE


def _imported(*arguments: str) -> set[str]:
    """The top-level packages that a call imports."""
    return {name.partition(".")[0] for name in _names(*arguments)}


def _modules(*arguments: str) -> set[str]:
    """The last words of the modules that a call imports."""
    return {name.rpartition(".")[2] for name in _names(*arguments)}


def _names(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "uwf_cli.main", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]


def _commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from _commands(member, (*path, name))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_ids_and_names(uwf: Uwf, shell: str) -> None:
    script = uwf("completion", shell).out
    assert "_UWF_COMPLETE" in script
    thread = uwf("thread", "start", write("pair.yaml", PAIR), "-p", "x").json["thread"]
    uwf("workflow", "put", "pair.yaml")

    def offered(line: str) -> str:
        words = line.split(" ")
        environ = {
            "_UWF_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
        if shell == "fish":
            environ["COMP_CWORD"] = words[-1]
        return uwf(env=environ).out

    assert "thread" in offered("uwf thr")
    assert thread in offered(f"uwf thread show {thread[:10].lower()}")
    assert "pair" in offered("uwf workflow show pa")
    assert uwf("completion", "tcsh", check=2).error["code"] == "usage"
