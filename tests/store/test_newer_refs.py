"""Refs of kinds that this version doesn't know: a newer uwf made them, and they are left alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_samples import ONE, write
from commands import git
from conftest import Uwf
from workflows import opened

NEWER = ("refs/uwf/zebras/one", "refs/uwf/zebras/deep/two", "refs/uwf/local/zebras/three")


@pytest.fixture
def store(uwf: Uwf, root: Path) -> Path:
    """A store with a thread, and refs of a newer version: to a blob, a commit and a tag."""
    uwf("workflow", "put", write("one.yaml", ONE))
    uwf("thread", "start", "one", "-p", "x")
    folder = root / "store.git"
    (thread,) = git("--git-dir", folder, "for-each-ref", "--format=%(refname)", "refs/uwf/threads").split()
    blob = git("--git-dir", folder, "hash-object", "-w", "--stdin", data="stripes")
    git("--git-dir", folder, "update-ref", NEWER[0], blob)
    git("--git-dir", folder, "update-ref", NEWER[1], thread)
    git("--git-dir", folder, "tag", "-a", "-m", "three", "three", blob)
    git("--git-dir", folder, "update-ref", NEWER[2], "refs/tags/three")
    git("--git-dir", folder, "update-ref", "-d", "refs/tags/three")
    return folder


def refs(store: Path) -> set[str]:
    return set(git("--git-dir", store, "for-each-ref", "--format=%(refname)").split())


def test_they_are_noted_and_are_no_damage(uwf: Uwf, store: Path) -> None:
    found = uwf("verify").json
    assert found["findings"] == found["warnings"] == []
    assert [(each["code"], each["ref"]) for each in found["notes"]] == [
        ("newer", name) for name in sorted(NEWER[:2])
    ]
    checks = uwf("doctor").json
    assert [each for each in checks if each["status"] == "error"] == []
    (told,) = [each for each in checks if "newer uwf" in each["message"]]
    assert told["status"] == "warning" and "2 refs" in told["message"]
    assert not any("update-ref" in each["hint"] for each in checks)
    assert uwf("thread", "list").err == ""


def test_nothing_removes_or_shares_them(uwf: Uwf, store: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.git"
    subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(shared)], check=True)
    uwf("remote", "add", "origin", shared)
    for command in (["push"], ["pull"], ["gc", "--prune"], ["doctor", "--fix"], ["cas", "reindex"]):
        uwf(*command)
        assert set(NEWER) <= refs(store), command
    assert not any("zebras" in name for name in refs(shared))
    git("--git-dir", store, "cat-file", "-e", NEWER[0])
    git("--git-dir", store, "push", "-q", str(shared), "refs/uwf/zebras/*:refs/uwf/zebras/*")
    for name in NEWER[:2]:
        git("--git-dir", store, "update-ref", "-d", name)
    uwf("pull")
    assert not set(NEWER[:2]) & refs(store)


def test_one_that_an_older_version_has_followed_is_not_missed(uwf: Uwf, store: Path) -> None:
    instance = opened()
    (thread,) = instance.store.repository.refs("refs/uwf/threads/").values()
    from uwf_git.store.index import Tip

    with instance.store.index.transaction():
        instance.store.index.set_tip(Tip(NEWER[1], thread.raw, thread.raw, None))
    instance.store.index.close()
    git("--git-dir", store, "update-ref", "-d", NEWER[1])
    assert uwf("verify").json["findings"] == []
    assert [each for each in uwf("doctor").json if each["status"] == "error"] == []
