"""Stores as each release writes them, `releases/VERSION.bundle`: this version lists, shows, verifies, clones, steps and
exports them. The newest has every kind of node and ref, or `make fixture-store` has to write it anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import git
from conftest import Uwf

from uwf_git.base.version import VERSION
from uwf_git.format.builtin import BUILTIN
from uwf_git.store import ref_kinds
from uwf_git.store.instance import Instance

RELEASES = sorted(Path(__file__).with_name("releases").glob("*.bundle"))
ELSEWHERE = {"refs/uwf/work/": "in the project's remote", "refs/uwf/fleets/": "in the remote of a fleet"}
KINDS_OF_ENDS = {"idle", "waiting", "failed", "paused", "killed", "completed"}


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def kept(uwf: Uwf, root: Path, request: pytest.FixtureRequest) -> Path:
    """The repository of the store."""
    uwf("init")
    store = root / "store.git"
    git("--git-dir", store, "fetch", "--quiet", request.param, "+refs/uwf/*:refs/uwf/*")
    return store


@pytest.mark.needs("ssh-keygen")  # the store has a trust policy
def test_a_released_store_is_listed_shown_verified_and_exported(uwf: Uwf, kept: Path, tmp_path: Path) -> None:
    threads = uwf("thread", "list", "--all").json
    assert {row["status"] for row in threads} >= KINDS_OF_ENDS
    for row in threads:
        assert uwf("thread", "show", row["thread"]).json["head"] == row["head"]
        assert len(uwf("thread", "steps", row["thread"]).json) == row["steps"]
    for command in ("workflow", "crew", "eval"):
        assert uwf(command, "list").json
    verified = uwf("verify").json
    assert verified["findings"] == [] and verified["verified"]["threads"] >= len(threads)
    longest = max(threads, key=lambda row: row["steps"])["thread"]
    uwf("export", longest, "--html", tmp_path / "run.html")
    uwf("export", longest, "--audit-json", tmp_path / "run.json")


@pytest.mark.needs("ssh-keygen")  # the store has a trust policy
def test_a_released_store_is_cloned_and_stepped_on(uwf: Uwf, kept: Path, tmp_path: Path) -> None:
    git("init", "--quiet", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "another", tmp_path / "hub.git")
    uwf("push", "another")
    there = ("--root", tmp_path / "there")
    uwf(*there, "clone", tmp_path / "hub.git")
    idle = [row["thread"] for row in uwf(*there, "thread", "list", "--status", "idle").json]
    for thread in idle[:3]:
        uwf(*there, "thread", "step", thread, "--agent", "uwf-rehearse")
    assert not uwf(*there, "verify").json["findings"]


@pytest.mark.parametrize("kept", [RELEASES[-1]], indirect=True, ids=["newest"])
def test_the_newest_store_has_every_kind_of_node_and_ref(uwf: Uwf, kept: Path) -> None:
    assert RELEASES[-1].stem == VERSION
    names = git("--git-dir", kept, "for-each-ref", "--format=%(refname)", "refs/uwf/").split()
    missing = {
        kind.prefix for kind in ref_kinds.every() if not any(name.startswith(kind.prefix) for name in names)
    }
    assert missing <= ELSEWHERE.keys(), "add them to tests/store/format_1.py, then: make fixture-store"
    uwf("cas", "reindex")
    index = Instance.open().store.index
    lacking = {schema["title"] for node, schema in BUILTIN.items() if not index.hashes_of_type(node)}
    assert not lacking, "add them to tests/store/format_1.py, then: make fixture-store"
