"""Secrets that a checkout has in settings files of its own are known, unless git tracks the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import git
from conftest import Uwf

from uwf_git.config.secrets import checkout_secrets

FILE = """\
DB_PASSWORD=correct-horse-9
export API_TOKEN="quoted words 77"
PORT=3000
APP_NAME=one-and-only
"""
SAYS = """uwf-exec echo '{"text": "correct-horse-9 one-and-only"}'"""
TALK = """\
name: talk
description: Talks.
roles:
  speaker:
    description: s
    systemPrompt: s
    outputSchema: { type: object, properties: { text: { type: string } }, required: [text] }
graph:
  $START: [{ role: speaker }]
  speaker: [{ role: $END }]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    git("init", "-q", folder)
    (folder / ".env.local").write_text(FILE)
    return folder


def test_variables_named_like_secrets_count_and_settings_do_not(project: Path) -> None:
    (project / ".env.example").write_text("API_TOKEN=replace-me-please\n")
    assert checkout_secrets(project, project / ".git") == {
        "DB_PASSWORD": "correct-horse-9",
        "API_TOKEN": "quoted words 77",
    }


def test_a_file_that_git_tracks_or_nobody_can_read_has_none(project: Path, tmp_path: Path) -> None:
    git("-C", project, "add", ".env.local")
    (project / ".env").write_bytes(b"DB_PASSWORD=\xff\xfe\xff\xfe\xff\xfe\xff\xfe\n")
    (project / ".env.d").mkdir()
    (project / ".env.gone").symlink_to(tmp_path / "gone")
    assert checkout_secrets(project, project / ".git") == {}


def test_many_variables_cost_little(project: Path) -> None:
    for number in range(6):
        lines = (f"V{number}_{place}_TOKEN=value-{number}-{place}\n" for place in range(2000))
        (project / f".env.{number}").write_text("".join(lines))
    assert len(checkout_secrets(project, project / ".git")) == 1000


def test_a_repository_of_another_kind_hides_none(tmp_path: Path) -> None:
    git("init", "-q", "--object-format=sha256", tmp_path / "other")
    (tmp_path / "other" / ".env").write_text(FILE)
    assert "DB_PASSWORD" in checkout_secrets(tmp_path / "other", tmp_path / "other" / ".git")


def test_an_index_of_another_kind_hides_none(project: Path) -> None:
    (project / ".gitignore").write_text(".env.local\n")
    (project / "file").touch()
    git("-C", project, "add", ".gitignore", "file")
    git("-C", project, "commit", "-q", "-m", "first")
    git("-C", project, "update-index", "--split-index")
    assert "DB_PASSWORD" in checkout_secrets(project, project / ".git")


@pytest.mark.parametrize("where", ["in the checkout", "from elsewhere"])
def test_what_an_agent_reads_there_is_not_stored(uwf: Uwf, project: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "talk.yaml").write_text(TALK)
    here = project if where == "in the checkout" else tmp_path
    words = ("thread", "start", tmp_path / "talk.yaml", "-p", "Talk", "--cwd", project)
    thread = uwf(*words, cwd=here).json["thread"]
    uwf("thread", "step", thread, "--agent", SAYS, cwd=here)
    assert uwf("thread", "steps", thread).json[0]["output"] == {"text": "[redacted:DB_PASSWORD] one-and-only"}


def test_a_variable_that_is_no_secret_is_left(uwf: Uwf, project: Path, root: Path) -> None:
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text("notSecrets: [DB_PASSWORD]\n")
    (project / "talk.yaml").write_text(TALK)
    thread = uwf("thread", "start", "talk.yaml", "-p", "Talk", cwd=project).json["thread"]
    uwf("thread", "step", thread, "--agent", SAYS, cwd=project)
    assert uwf("thread", "steps", thread).json[0]["output"] == {"text": "correct-horse-9 one-and-only"}
