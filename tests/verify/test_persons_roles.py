"""A person's role that an agent played is found, whoever pushed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from two_machines import Machine

from uwf_git.engine import human_roles
from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance


def test_a_persons_role_that_an_agent_played_is_found_and_not_taken_over(
    uwf: Uwf, instance: Instance, gated: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert uwf("verify").json["findings"] == []
    with monkeypatch.context() as patched:
        patched.setattr(human_roles, "agent_of_person", lambda config, _: config)
        step(instance, ThreadId(gated), 'uwf-exec echo \'{"decision": "change"}\'')
    (found,) = uwf("verify", check=7).json["findings"]
    assert (found["code"], found["thread"]) == ("not-a-person", gated)
    assert found["message"] == "uwf-exec played gate, which is a person's role"
    git("init", "-q", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    git("--git-dir", instance.location.git_dir, "push", "-q", tmp_path / "hub.git", "refs/uwf/*:refs/uwf/*")
    there = Machine(uwf, tmp_path / "there")
    there("init")
    there("remote", "add", "hub", tmp_path / "hub.git")
    there("pull", "hub", check=None)
    assert there("thread", "list", "--all").json == []
