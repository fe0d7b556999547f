"""Which agents are known, those of installed packages among them, and whether they answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import on_terminal
from conftest import Uwf

PLUGIN = """\
from uwf_git.kit import create_agent

def run(ctx):
    return "---\\nnumber: seven\\n---\\n"

agent = create_agent("echo", run)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a package with that module, which brings the agent `echo`."""

    def install(source: str) -> None:
        site = tmp_path / "site"
        info = site / "uwf_echo-1.2.dist-info"
        info.mkdir(parents=True)
        (site / "uwf_echo.py").write_text(source)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-echo\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text("[uwf.agents]\necho = uwf_echo:agent\n")
        monkeypatch.setenv("PYTHONPATH", str(site))

    return install


def listed(uwf: Uwf) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in uwf("agent", "list").json}


def test_an_installed_package_makes_its_agent_known_by_its_name(
    uwf: Uwf, package: Callable[[str], None], config: Callable[[str], Path]
) -> None:
    package(PLUGIN)
    config("defaultAgent: echo\n")
    found = listed(uwf)["echo"]
    assert (found["by"], found["ready"]) == ("uwf-echo 1.2", True)
    done = uwf("agent", "check", "echo").json
    assert (done["agent"], done["ready"]) == ("echo", True)


def test_what_a_package_wrote_into_a_file_that_it_never_closes_is_there_at_the_end(
    uwf: Uwf, package: Callable[[str], None], tmp_path: Path
) -> None:
    package(f"{PLUGIN}LOG = open({str(tmp_path / 'said')!r}, 'w')\nLOG.write('all of it')\n")
    uwf("agent", "check", "echo")
    assert (tmp_path / "said").read_text() == "all of it"


def test_a_package_whose_agent_is_broken_fails_the_step_with_its_name(
    uwf: Uwf, package: Callable[[str], None]
) -> None:
    package("raise RuntimeError('no luck')\n")
    failed = uwf("agent", "check", "echo", check=6)
    assert "echo of uwf-echo cannot be loaded: RuntimeError: no luck" in failed.err


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("sys.exit()", "exit 0"),
        ("sys.exit(3)", "exit 3"),
        ("sys.exit('no luck')", "no luck"),
        ("os._exit(0)", "exit 0"),
    ],
)
def test_an_agent_that_ends_the_process_has_failed_and_the_engine_goes_on(
    uwf: Uwf, package: Callable[[str], None], thread: str, end: str, how: str
) -> None:
    package(f"import os, sys\n{PLUGIN}".replace("    return", f"    {end}\n    return", 1))
    failed = uwf("thread", "step", thread, "--agent", "echo", check=6).error
    assert failed["message"] == f"agent uwf-echo ended the process: {how}"
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["error"] == failed["message"]
    assert uwf("thread", "steps", thread).json == []
    assert uwf("thread", "step", thread, "--agent", "rehearse").json["role"] == "writer"


UNTOLD = "type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})"


@pytest.mark.parametrize(
    ("error", "how"),
    [
        ("RuntimeError('boom')", "RuntimeError: boom"),
        ("OSError(28, 'No space left on device')", "OSError: [Errno 28] No space left on device"),
        ("ValueError('two\\nlines')", "ValueError: two lines"),
        ("BaseException", "BaseException"),
        (UNTOLD, "Odd"),
    ],
)
def test_an_agent_whose_code_raises_has_failed_in_one_line_and_its_traceback_is_kept(
    uwf: Uwf, package: Callable[[str], None], thread: str, error: str, how: str
) -> None:
    package(PLUGIN.replace("    return", f"    raise {error}\n    return", 1))
    failed = uwf("thread", "step", thread, "--agent", "echo", check=6)
    assert failed.error["message"] == f"agent uwf-echo failed: {how}" and len(failed.err.splitlines()) == 1
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["error"] == failed.error["message"]
    assert "uwf_echo.py" in attempt["stderr"]
    assert uwf("thread", "steps", thread).json == []
    assert uwf("thread", "step", thread, "--agent", "rehearse").json["role"] == "writer"


def test_agents_that_raise_in_parallel_have_failed_in_one_line_each(
    uwf: Uwf, package: Callable[[str], None], thread: str
) -> None:
    package(PLUGIN.replace("    return", "    raise BaseException('boom')\n    return", 1))
    other = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    failed = uwf("thread", "run", thread, other, "-j", "2", "--agent", "echo", check=6)
    told = sorted((each["thread"], each["message"]) for each in map(error_of, failed.err.splitlines()))
    assert told == [(each, "agent uwf-echo failed: BaseException: boom") for each in sorted((thread, other))]


def error_of(line: str) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(line)["error"]
    return error


@pytest.mark.parametrize("part", ["parse_args", "named", "converse", "close", "say"])
def test_other_code_of_an_agent_that_raises_is_its_failure_too(
    uwf: Uwf, package: Callable[[str], None], thread: str, part: str
) -> None:
    package(
        "from uwf_git.kit import Agent, Reply\n"
        "from uwf_git.plugin import Conversation\n"
        "def do(part, value=None):\n"
        f"    if part == {part!r}:\n        raise KeyError(part)\n"
        "    return value\n"
        "class Talk(Conversation):\n"
        "    def begin(self): return Reply('no answer', session='s')\n"
        "    def say(self, text): return do('say', Reply('no answer', session='s'))\n"
        "    def close(self): do('close')\n"
        "agent = Agent('echo', lambda ctx: do('converse', Talk(ctx)),\n"
        "    lambda args: do('parse_args', args), named=lambda args: do('named', 'uwf-echo'))\n"
    )
    failed = uwf("thread", "step", thread, "--agent", "echo", check=6)
    assert failed.error["message"].endswith(f"agent uwf-echo failed: KeyError: '{part}'")


def test_a_fault_of_the_kit_itself_is_an_internal_error_and_no_failure_of_the_agent(
    uwf: Uwf, package: Callable[[str], None], thread: str, tmp_path: Path
) -> None:
    package(PLUGIN.replace("number: seven", "text: seven"))
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\n"
        "from uwf_git.engine.kit.record import Recorder\n"
        "def broken(*_args, **_options):\n    raise KeyError('ours')\n"
        "Recorder.settle = broken\n"
    )
    failed = uwf("thread", "step", thread, "--agent", "echo", check=1)
    assert failed.error["message"] == "internal error: KeyError: 'ours'"


def test_a_line_without_end_of_an_agent_comes_through_a_parallel_run_in_parts(
    uwf: Uwf, package: Callable[[str], None], thread: str
) -> None:
    source = PLUGIN.replace("number: seven", "text: seven")
    package(source.replace("    return", "    print('x' * 17_000_000, end='', flush=True)\n    return", 1))
    other = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    words = ("thread", "run", thread, other, "-j", "2", "--max-steps", "1", "--agent", "echo")
    run = uwf("--format", "text", *words, check=None, timeout=60)
    assert run.out.count("x") >= 2 * 17_000_000
    assert 16 << 20 <= max(map(len, run.out.splitlines())) < 17_000_000


@pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)"])
def test_an_agent_that_ends_the_process_when_it_is_loaded_or_as_a_command_has_failed(
    uwf: Uwf, package: Callable[[str], None], script: Callable[[str, str], Path], thread: str, end: str
) -> None:
    package(f"import os, sys\n{end}\n")
    failed = uwf("thread", "step", thread, "--agent", "echo", check=6).error
    assert failed["message"] == "agent echo ended the process: exit 0"
    body = f"import os, sys\n{PLUGIN}".replace("    return", f"    {end}\n    return", 1)
    command = script("alone", f"{body}\nagent.main()\n")
    failed = uwf("thread", "step", thread, "--agent", str(command), check=6).error
    assert failed["message"] == "agent uwf-echo ended the process: exit 0"


def test_a_process_of_a_run_that_a_librarys_code_ends_as_done_is_told_as_a_failure(
    uwf: Uwf, package: Callable[[str], None], thread: str
) -> None:
    package(f"import ctypes\n{PLUGIN}".replace("    return", "    ctypes.CDLL(None)._exit(0)\n    return", 1))
    other = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    run = uwf("thread", "run", thread, other, "-j", "2", "--agent", "echo", check=1)
    for one in (thread, other):
        assert f"the process that ran thread {one} ended before the thread's run did" in run.err


def test_a_child_that_an_agent_forks_may_end(uwf: Uwf, package: Callable[[str], None], thread: str) -> None:
    child = "if (pid := os.fork()) == 0:\n        os._exit(5)\n    code = os.waitpid(pid, 0)[1] >> 8\n"
    source = PLUGIN.replace("number: seven", "text: ended with {code}").replace('return "', 'return f"')
    package(f"import os\n{source}".replace("    return", f"    {child}    return", 1))
    assert uwf("thread", "step", thread, "--agent", "echo").json["role"] == "writer"
    assert uwf("thread", "steps", thread).json[0]["output"] == {"text": "ended with 5"}


def test_the_list_says_what_is_missing_and_how_to_get_it(
    uwf: Uwf,
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codex = script("codex", "print('codex-cli 0.0.1')\n")
    row = json.dumps({"program": "no-such-program", "first": [], "install": "get it there"})
    config(f"agents:\n  mine: {{command: /no/such/file}}\nagentClis:\n  other: {row}\n")
    monkeypatch.setenv("PATH", f"{codex.parent}:/usr/bin:/bin")
    found = listed(uwf)
    assert (found["uwf-codex"]["path"], found["uwf-codex"]["version"]) == (str(codex), "0.0.1")
    assert "older than" in found["uwf-codex"]["problem"]
    assert found["other"]["hint"] == "install it: get it there"
    assert "/no/such/file is not installed" in found["mine"]["problem"]
    assert found["uwf-rehearse"]["ready"]
    shown = uwf("agent", "list", "--format", "text").out
    assert "get it there" in shown


def test_a_check_says_what_is_wrong_and_leaves_nothing_behind(
    uwf: Uwf, script: Callable[[str, str], Path], root: Path, hermetic: Path
) -> None:
    sulky = script("sulky", "import sys\nprint('not logged in', file=sys.stderr)\nsys.exit(3)\n")
    failed = uwf("agent", "check", str(sulky), check=6)
    assert "not logged in" in failed.err and failed.err.count("\n") == 1
    slow = script("slow", "import time\ntime.sleep(600)\n")
    assert "ran out of time" in uwf("agent", "check", str(slow), "--timeout", "200ms", check=6).err
    assert "llm has no model" in uwf("agent", "check", "llm", check=6).err
    assert uwf("agent", "check", "rehearse", "--timeout", "soon", check=2).error["code"] == "usage"
    unknown = uwf("agent", "check", "no-such-agent", check=2).error
    assert "there is no agent 'no-such-agent'" in unknown["message"] and unknown["hint"] == "uwf agent list"
    assert not (root / "store.git").exists()


def test_a_check_of_a_configured_agent_whose_program_is_missing_fails(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    config("agents:\n  mine: {command: no-such-program}\n")
    assert "is not on PATH" in uwf("agent", "check", "mine", check=6).error["message"]


def test_a_check_shows_what_an_agent_has_trouble_with_and_says_how_long_it_had(
    script: Callable[[str, str], Path], config: Callable[[str], Path]
) -> None:
    stuck = script("stuck", 'import time\nprint(\'{"why": "busy"}\', flush=True)\ntime.sleep(600)\n')
    config(f"agentClis: {{stuck: {{program: {stuck}, first: [], output: lines, trouble: .why}}}}\n")
    status, shown = on_terminal("agent", "check", "stuck", "--timeout", "3s", columns=300)
    assert status == 6
    assert "checked (uwf-cli/stuck)" in shown and f"{stuck}: busy" in shown
    assert "failed: busy; it was still trying when it was ended after " in shown
    assert "it was given 3s, and may try for longer" in shown
