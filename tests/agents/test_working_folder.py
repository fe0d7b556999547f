"""Where a step's programs work: in its folder, also by what `PWD` says, which some believe rather than the kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ONE, write
from conftest import Uwf

WHERE = """
import os, pathlib
pathlib.Path(os.environ['PWD'], 'here').write_text(os.environ['PWD'])
print('{"n": 7}')
"""
CODE = """\
descriptor = {"name": "code", "description": "Asks", "roles": {"r": {"description": "r", "schema": {}}}}


async def run(input, options):
    await options.agents.where(prompt="Where?")
    yield {"role": "r", "content": "", "meta": {}}
"""


@pytest.fixture
def where(script: Callable[[str, str], Path]) -> Path:
    """A program that leaves a file where it believes to be, and answers."""
    return script("where", WHERE)


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param("uwf-exec {where}", id="exec"),
        pytest.param("{where}", id="a command"),
        pytest.param("uwf-acp {where}", id="ACP"),
        pytest.param("where-cli", id="a row"),
    ],
)
def test_the_program_of_a_step_believes_to_be_in_the_steps_folder(
    uwf: Uwf, config: Callable[[str], Path], where: Path, agent: str
) -> None:
    config(f"agentClis:\n  where-cli: {{program: {where}, first: ['{{prompt}}'], output: text}}\n")
    uwf("workflow", "put", write("one.yaml", ONE))
    for folder in ("work", "elsewhere"):
        Path(folder).mkdir()
    thread = uwf("thread", "start", "one", "-p", "x", "--cwd", "../work", cwd=Path("elsewhere")).json[
        "thread"
    ]
    given = agent.format(where=where)
    # Some of them aren't what the agent expects: what counts is where they were.
    uwf("thread", "step", thread, "--agent", given, cwd=Path("elsewhere"), check=None)
    assert Path("work/here").read_text() == str(Path("work").absolute())
    assert not Path("elsewhere/here").exists()


@pytest.mark.needs("bwrap")
def test_so_does_an_agent_that_the_code_of_a_workflow_asks(
    uwf: Uwf, config: Callable[[str], Path], where: Path
) -> None:
    config(f"agents:\n  where: {{command: uwf-exec, args: [{where}]}}\n")
    for folder in ("work", "elsewhere"):
        Path(folder).mkdir()
    put = uwf("workflow", "put", write("code.py", CODE)).json["hash"]
    thread = uwf("thread", "start", put, "-p", "x", "--cwd", "work").json["thread"]
    uwf("thread", "step", thread, cwd=Path("elsewhere"))
    assert Path("work/here").read_text() == str(Path("work").absolute())
    assert not Path("elsewhere/here").exists()
