"""A code commit of a step leads to its thread's page: the trailer Agent-Logs-Url."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from evidence import coded_thread


def trailers(uwf: Uwf, folder: Path, *remotes: str) -> dict[str, str]:
    """The trailers of a step's code commit in a store with these remotes."""
    for name, url in zip(("origin", "backup"), remotes, strict=False):
        uwf("remote", "add", name, url)
    thread = coded_thread(uwf, folder)
    assert uwf("verify", thread).json["findings"] == []
    said = git(
        "-C", folder / "project", "log", "-1", "--format=%(trailers:only,unfold)", f"uwf/work/{thread}"
    )
    found = dict(line.split(": ", 1) for line in said.splitlines() if line)
    assert found["Uwf-Thread"] == thread and found["Uwf-Number"] == "1"
    return found


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://ada:hunter22@github.com/ada/work.git", "https://github.com/ada/work/tree/uwf/threads/{}"),
        ("git@gitlab.com:ada/team/work.git", "https://gitlab.com/ada/team/work/-/tree/uwf/threads/{}"),
    ],
)
def test_a_commit_names_the_page_of_its_thread_without_a_password(
    uwf: Uwf, tmp_path: Path, url: str, page: str
) -> None:
    found = trailers(uwf, tmp_path, url)
    assert found["Agent-Logs-Url"] == page.format(found["Uwf-Thread"])


def test_without_a_forge_there_is_no_page(uwf: Uwf, tmp_path: Path) -> None:
    assert "Agent-Logs-Url" not in trailers(uwf, tmp_path, str(tmp_path / "remote.git"))


def test_the_page_is_on_the_remote_that_threads_are_published_to(uwf: Uwf, tmp_path: Path) -> None:
    found = trailers(uwf, tmp_path, "https://codeberg.org/ada/work.git", "https://github.com/ada/backup.git")
    assert found["Agent-Logs-Url"].startswith("https://codeberg.org/ada/work/")


def test_an_address_with_a_secret_in_its_path_is_left_out(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    root.mkdir(exist_ok=True)
    (root / ".env").write_text("DEPLOY_TOKEN=letmein-please-9\n")
    assert "Agent-Logs-Url" not in trailers(uwf, tmp_path, "https://github.com/letmein-please-9/work.git")
