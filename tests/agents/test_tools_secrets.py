"""Where tools cut a text, no half of a secret is left that nobody would know any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from uwf_git.config.policy import ToolPolicy
from uwf_git.config.secrets import Redactor
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.ext.builtin.tools.tool import Toolbox

KEY = "s3cr3t-value-of-25-signs!"


@pytest.fixture
def box(hermetic: Path) -> Toolbox:
    project = hermetic / "project"
    project.mkdir()
    (project / "one-line.txt").write_text(KEY * 20_000)
    redactor = Redactor({"KEY": KEY})
    policy = ToolPolicy(run_command=True, allow_unconfined=True)
    return standard_tools(project, policy, clean=lambda text: redactor.text(text)[0])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "one-line.txt", "column": 10}),
        ("read_file", {"path": "one-line.txt"}),
        ("grep", {"pattern": "value", "path": "one-line.txt"}),
        ("run_command", {"command": "cat one-line.txt"}),
    ],
)
def test_a_text_is_cut_after_its_secrets_are_taken_out(
    box: Toolbox, tool: str, arguments: dict[str, object]
) -> None:
    with box:
        told = str(box.call(tool, arguments).value)
    assert "[redacted:KEY]" in told
    for begin in range(len(KEY) - 6):
        assert KEY[begin : begin + 7] not in told


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "short.txt"}),
        ("read_file", {"path": "short.txt", "offset": 2}),
        ("grep", {"pattern": "name", "path": "short.txt"}),
    ],
)
def test_a_limit_of_the_policy_leaves_no_half_of_a_secret(
    hermetic: Path, tool: str, arguments: dict[str, object]
) -> None:
    (hermetic / "short.txt").write_text(f"name of the key={KEY} and more\n" * 2)
    clean = Redactor({"KEY": KEY}).text
    with standard_tools(hermetic, ToolPolicy(max_read=30), clean=lambda text: clean(text)[0]) as box:
        told = str(box.call(tool, arguments).value)
    assert "name of the key=[redacted:KEY]" in told and KEY[:5] not in told
