"""Secrets are looked for in what commits add, whatever else they do, however much it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import git

from uwf_git.config.secrets import Redactor
from uwf_git.store.instance import Instance
from uwf_git.workspaces import exposure
from uwf_git.workspaces.exposure import secrets_in
from uwf_git.workspaces.project import Project

TOKEN = "correct-horse-9"


@pytest.fixture
def project(tmp_path: Path, instance: Instance) -> Project:
    folder = tmp_path / "shop"
    git("init", "-q", "-b", "main", folder)
    (folder / "old.txt").write_text(f"one\n{TOKEN}\nthree\n")
    commit(folder, "first")
    instance.redactor.learn("DEPLOY_TOKEN", TOKEN)
    return Project(folder / ".git")


def commit(folder: Path, message: str) -> None:
    git("-C", folder, "add", "-A")
    git("-C", folder, "commit", "-q", "--allow-empty", "-m", message)


def test_what_was_there_or_goes_is_none(instance: Instance, project: Project) -> None:
    folder = project.common.parent
    (folder / "old.txt").write_text(f"one, changed\n{TOKEN}\nthree\n")
    commit(folder, "beside it")
    (folder / "old.txt").rename(folder / "moved.txt")
    commit(folder, "elsewhere")
    (folder / "moved.txt").write_text(f"one, changed\nthe {TOKEN} here\nthree\n")
    commit(folder, "its line")
    (folder / "moved.txt").write_text("one\n")
    commit(folder, "away")
    assert secrets_in(instance, project, "main~4..main") == []


def test_what_a_merge_brings_is_not_its_own(instance: Instance, project: Project) -> None:
    folder = project.common.parent
    git("-C", folder, "checkout", "-q", "-b", "topic")
    (folder / "new.txt").write_text("mine\n")
    commit(folder, "mine")
    git("-C", folder, "checkout", "-q", "main")
    (folder / "theirs.txt").write_text(f"{TOKEN}\n")
    commit(folder, "theirs")
    git("-C", folder, "checkout", "-q", "topic")
    git("-C", folder, "merge", "-q", "-m", "merge", "main")
    assert secrets_in(instance, project, "main..topic") == []


@pytest.mark.parametrize("at_once", [1 << 26, 600])
def test_every_way_in_is_seen(
    instance: Instance, project: Project, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(exposure, "_AT_ONCE", at_once)
    folder = project.common.parent
    settings = (
        "diff.noprefix=true",
        "log.showRoot=false",
        "i18n.logOutputEncoding=UTF-16",
        "diff.renames=false",
    )
    for setting in settings:
        git("-C", folder, "config", *setting.split("="))
    git("-C", folder, "checkout", "-q", "-b", "side")
    (folder / "täg \n x.txt").write_text(f"{TOKEN}\n")
    commit(folder, "a name")
    git("-C", folder, "checkout", "-q", "main")
    commit(folder, f"say {TOKEN}")
    (folder / "wide.txt").write_text(f"a\n{TOKEN}\n", encoding="utf-16")
    commit(folder, "wide")
    (folder / "binary").write_bytes(b"\0\1" + TOKEN.encode() + b"\0")
    commit(folder, "bytes")
    git("-C", folder, "merge", "-q", "--no-commit", "side")
    (folder / "merged.txt").write_text(f"+{TOKEN}\n")
    (folder / "mixed").write_bytes(b"\0\2" + TOKEN.encode() + b"\0")
    git("-C", folder, "add", "-A")
    git("-C", folder, "commit", "-q", "-m", "merge")
    git("-C", folder, "rm", "-q", "merged.txt")
    commit(folder, "and away")
    clauses = secrets_in(instance, project, "main~5..main")
    places = {clause.partition(" in ")[2] for clause in clauses}
    assert {"wide.txt", "binary", "mixed", "merged.txt", "the message of a commit"} < places
    assert any("täg" in place for place in places)


def test_people_and_names_count_and_are_not_repeated(instance: Instance, project: Project) -> None:
    folder = project.common.parent
    (folder / f"ä {TOKEN}.txt").write_text("x\n")
    commit(folder, "a name")
    (clause,) = secrets_in(instance, project, "main~1..main")
    assert TOKEN not in clause and "[redacted:DEPLOY_TOKEN].txt" in clause
    git("-C", folder, "commit", "-q", "--allow-empty", "-m", "mine", "--author", f"Ann <{TOKEN}@example.org>")
    assert secrets_in(instance, project, "main~1..main") == [
        "a secret (DEPLOY_TOKEN) in the message of a commit"
    ]


def test_a_file_that_is_too_large_to_search_is_named(
    instance: Instance, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposure, "_AT_ONCE", 2000)
    (project.common.parent / "large.txt").write_text("harmless\n" * 1000)
    commit(project.common.parent, "much")
    (clause,) = secrets_in(instance, project, "main~1..main")
    assert clause.endswith("too many to search, in large.txt")


def test_a_redactor_without_values_knows_forms(instance: Instance, project: Project) -> None:
    instance.__dict__["redactor"] = Redactor({})
    (project.common.parent / "key").write_text("ghp_" + "a1B2c3D4e5F6" * 3 + "\n")
    commit(project.common.parent, "a key")
    assert secrets_in(instance, project, "main~1..main") == ["a secret (github-token) in key"]
