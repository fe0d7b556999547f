"""Agents with tools of their own get the folders of a crew's step as they are on this machine, and no more of it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acp_steps import Scripted
from conftest import Uwf
from crew_threads import start_crew

from uwf_git.base.errors import AgentFailed
from uwf_git.config.policy import ToolPolicy, parse_policy
from uwf_git.engine.step import step
from uwf_git.ext.agents.cli.calls import extra_for
from uwf_git.ext.agents.cli.rows import shipped_row
from uwf_git.ext.crews.mounts import places
from uwf_git.format.ids import ThreadId
from uwf_git.sandbox.mounts import StepFolders
from uwf_git.store.instance import Instance

PROGRAM = """\
import json, os, sys
from pathlib import Path
package, state = Path(sys.argv[2]), Path(sys.argv[4])
tips = (package / "assets" / "tips.txt").read_text()
document = state / "workflow.md"
document.write_text(document.read_text().replace("variables: {}", "variables: {days: 7}"))
Path("seen.json").write_text(json.dumps([sys.argv[1:], tips, sys.stdin.read()]))
print("---\\nsummary: Seen.\\n---\\n")
"""
ROW = """\
agentClis:
  mycli:
    program: mycli
    first: ["{args}"]
    options:
      - {if: crew, args: [--add-dir, "{package}", --add-dir, "{state}"]}
"""


def where(instance: Instance, thread: ThreadId) -> StepFolders:
    return places(instance.store.repository, instance.threads.active_head(thread), Path.cwd())


def folders_told(text: str) -> list[str]:
    """The lines of a prompt that say where the folders are."""
    return [line for line in text.splitlines() if line.startswith("- @") and " is `" in line]


def output(instance: Instance, thread: ThreadId) -> Any:
    return instance.threads.history(instance.threads.head(thread)).steps[-1].output


def test_an_agent_cli_is_let_into_the_folders_and_what_it_writes_counts(
    instance: Instance,
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = script("mycli", PROGRAM)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    config(ROW)
    thread = start_crew(instance)
    known = where(instance, thread)
    assert not known.package.exists(), "to say where they are makes no folders"
    step(Instance.open(), thread, "mycli")
    seen, tips, prompt = json.loads(Path("seen.json").read_text())
    assert folders_told(prompt) == [f"- {name} is `{path}`" for name, path in known.named.items()]
    assert seen == ["--add-dir", str(known.package), "--add-dir", str(known.state)]
    assert tips == "Pack light.\n"
    assert output(instance, thread) == {"summary": "Seen.", "variables": {"days": 7}}
    assert known.package.exists() and not known.state.exists()


def test_a_command_chooses_the_way_on_by_what_it_writes_of_the_run_alone(instance: Instance) -> None:
    thread = start_crew(instance)
    assert step(instance, thread, "uwf-exec -- echo Sketched").outlook.next == "check"
    writes = "sed -i 's/^currentNodeId: .*/currentNodeId: {}/' $UWF_STATE/workflow.md; printf '{}'"

    def answered(node: str, printed: str) -> str | None:
        return step(
            instance, thread, shlex.join(["uwf-exec", "--", "sh", "-c", writes.format(node, printed)])
        ).outlook.next

    legal = "no transition leads from 'check' to 'end'; those that there are lead to 'write', 'sketch'"
    for printed in ('{"summary": "Fine"}', '{"summary": "Fine", "next": "good"}', "Fine"):
        with pytest.raises(AgentFailed, match=re.escape(legal)):
            answered("end", printed)
    assert answered("sketch", '{"summary": "No dates"}') == "sketch"
    assert output(instance, thread) == {"summary": "No dates", "next": "again"}
    step(instance, thread, "uwf-exec -- echo Sketched")
    assert answered("write", "All there") == "write", "it need not print fields"
    assert output(instance, thread) == {"summary": "All there", "next": "good"}


FOLDERS = {"package": '/p "q"', "state": "/s"}
READS = {"deny": ["write_file"]}


@pytest.mark.parametrize(
    ("name", "tools", "expected"),
    [
        ("claude-code", {}, ['--add-dir=/p "q"', "--add-dir=/s"]),
        ("codex", {}, ["--add-dir", "/s"]),
        ("codex", READS, []),
        ("gemini", {}, ["--include-directories", '/p "q"', "--include-directories", "/s"]),
        ("opencode", {}, []),
        ("hermes", {}, []),
    ],
)
def test_the_flags_that_let_a_cli_in_are_its_own(
    name: str, tools: dict[str, Any], expected: list[str]
) -> None:
    row, policy = shipped_row(name), parse_policy(tools)[0]
    assert row is not None
    without, within = extra_for(row, policy, ()), extra_for(row, policy, (), FOLDERS)
    assert [*within.args[len(without.args) :]] == expected
    assert within.args[: len(without.args)] == without.args


def test_a_variable_of_json_takes_a_path_of_any_name() -> None:
    row = shipped_row("opencode")
    assert row is not None
    said = extra_for(row, ToolPolicy(run_command=True), (), FOLDERS).env["OPENCODE_PERMISSION"]
    assert json.loads(said) == {
        "bash": "allow",
        "external_directory": {'/p "q"/*': "allow", "/s/*": "allow"},
    }


def test_an_acp_agent_reads_the_package_and_its_client_checks_what_it_writes(instance: Instance) -> None:
    thread = start_crew(instance)
    known = where(instance, thread)
    Path("out").symlink_to("/etc")
    private = instance.store.repository.private
    tried = {
        f"read {known.package}/assets/tips.txt": "Pack light.\n",
        f"write {known.package}/assets/tips.txt": -32602,
        f"write {known.state}/workflow.md": -32602,
        f"write {known.state}/more.md": -32602,
        f"read {known.package}/../../runs": -32602,
        f"read {private}/runs/{thread}.json": -32602,
        f"read {Path.cwd()}/out/passwd": -32602,
        f"write {Path.cwd()}/mine.md": "ok",
    }
    asked = {
        f"read={known.package}/assets/tips.txt": "allow_once",
        f"search={known.state}": "allow_once",
        f"edit={known.state}/workflow.md": "allow_once",
        f"edit={known.package}/assets/tips.txt": "reject_once",
        f"read={known.package}/../../config": "reject_once",
        "read=/etc/passwd": "reject_once",
    }
    root = instance.location.root
    scenarios = [f"files:{'|'.join(tried)}", f"ask:{'|'.join(asked)}"]
    steps = Scripted(root, *scenarios, flags=["--folders"], begin=lambda _: thread)
    came = steps.step()
    assert dict(steps.noted("file")[: len(tried)]) == tried
    assert steps.noted("besides") == [[str(known.package), str(known.state)]]
    assert came.output == {"summary": "It is done."}
    (note,) = [each for each in came.detail["notes"] if "begin with frontmatter" in each]
    assert str(known.state) not in note and "@state/workflow.md" in note
    steps.now(scenarios[1])
    again = start_crew(instance)
    steps.thread = again
    asked = {
        each.replace(str(known.state), str(where(instance, again).state)): says
        for each, says in asked.items()
    }
    steps.now(f"ask:{'|'.join(asked)}")
    steps.step()
    assert dict(steps.noted("permission")) == asked


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("mycli", True),
        ("uwf-acp opencode acp", True),
        ("uwf-exec true", True),
        ("uwf-builtin", False),
        ("uwf-llm", False),
    ],
)
def test_who_works_by_names_is_told_nothing_of_the_machine(
    uwf: Uwf, instance: Instance, config: Callable[[str], Path], agent: str, told: bool
) -> None:
    config(f"{ROW}defaultAgent: {agent}\n")
    thread = start_crew(instance)
    known = where(instance, thread)
    text = uwf("thread", "prompt", thread).out
    assert len(folders_told(text)) == (3 if told else 0)
    assert (str(known.package) in text) is told
    assert "@pkg" in text and not known.package.exists()


def test_a_command_finds_the_folders_by_variables(instance: Instance) -> None:
    thread = start_crew(instance)
    step(instance, thread, shlex.join(["uwf-exec", "--", sys.executable, "-c", SHELL]))
    assert output(instance, thread) == {"summary": f"Pack light. True {Path.cwd()}"}


SHELL = """\
import json, os
from pathlib import Path
tips = Path(os.environ['UWF_PKG'], 'assets/tips.txt').read_text().strip()
there = Path(os.environ['UWF_STATE'], 'workflow.md').is_file()
print(json.dumps({'summary': f'{tips} {there} ' + os.environ['UWF_PROJECT']}))
"""
