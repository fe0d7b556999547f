"""The files of a checkout are what is read: they are compared with what was committed, whatever the checkout's own
configuration, attributes, links and index say, and no program that it names is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from branches import Clone, Forge, published

from uwf_git.api.check import Report, check_tree
from uwf_git.base.errors import Invalid, NotFound, NothingToVerify, StoreDamaged
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance

PAGE = "steps/0002-critic/README.md"


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path / "forge.git")


@pytest.fixture
def head(instance: Instance, forge: Forge) -> Head:
    return published(instance, forge, 2)


@pytest.fixture
def clone(head: Head, forge: Forge) -> Clone:
    return forge.cloned("clone", branch=f"uwf/threads/{head.thread}")


def found(report: Report) -> list[tuple[str, str]]:
    return [(each.code, each.path) for each in report.findings]


def noted(report: Report) -> set[str]:
    return {each.code for each in report.verified.notes} - {"thread-elsewhere"}


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file of a checkout, its repository included, with its time and size."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


def test_nothing_is_written_into_a_checkout(clone: Clone) -> None:
    before = state(clone.folder)
    assert check_tree(clone.folder).findings == []
    clone.edits(PAGE, "not approved", "approved")
    before[str(clone.folder / PAGE)] = state(clone.folder)[str(clone.folder / PAGE)]
    check_tree(clone.folder)
    assert state(clone.folder) == before


def test_an_edited_file_is_named_with_its_line_though_the_index_says_it_is_not(clone: Clone) -> None:
    clone.edits(PAGE, "not approved", "approved")
    for flag in ("--assume-unchanged", "--skip-worktree", "--no-skip-worktree"):
        clone("update-index", flag, PAGE)
        report = check_tree(clone.folder)
        assert found(report) == [("edited-file", PAGE)]
        assert report.findings[0].line == 1


def test_files_that_are_staged_and_not_committed_are_named(clone: Clone) -> None:
    clone.edits(PAGE, "not approved", "approved")
    clone("add", PAGE)
    clone("checkout", "-q", "HEAD", "--", "README.md")
    assert ("edited-file", PAGE) in found(check_tree(clone.folder))
    blob = clone("rev-parse", f"HEAD:{PAGE}")
    clone("cat-file", "blob", blob)
    (clone.folder / PAGE).write_bytes(clone("cat-file", "blob", blob).encode() + b"\n")
    assert [code for code, _ in found(check_tree(clone.folder))] == ["edited-file"]
    clone("reset", "-q")
    clone("rm", "-q", "--cached", "README.md")
    assert found(check_tree(clone.folder)) == [("edited-file", "README.md")]


def test_a_removed_file_or_folder_is_named(clone: Clone) -> None:
    (clone.folder / PAGE).unlink()
    shutil.rmtree(clone.folder / "start")
    assert sorted(found(check_tree(clone.folder))) == [("edited-file", "start"), ("edited-file", PAGE)]


def test_files_beside_are_noted_and_files_among_the_steps_are_wrong(clone: Clone) -> None:
    (clone.folder / "report.json").write_text("{}")
    (clone.folder / "node_modules").mkdir()
    report = check_tree(clone.folder)
    assert report.findings == [] and noted(report) == {"untracked"}
    (clone.folder / "steps/0003-critic").mkdir()
    (clone.folder / "steps/0003-critic/README.md").write_text("# 3 critic: approved\n")
    (clone.folder / "steps/0002-critic/readme.md").write_text("# 2 critic: approved\n")
    (clone.folder / ".git/info/exclude").write_text("*\n")
    assert found(check_tree(clone.folder)) == [
        ("extra-file", "steps/0003-critic"),
        ("extra-file", "steps/0002-critic/readme.md"),
    ]


def test_links_pipes_and_folders_in_the_place_of_files_are_not_followed(clone: Clone, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "README.md").write_bytes((clone.folder / PAGE).read_bytes())
    (clone.folder / PAGE).unlink()
    (clone.folder / PAGE).symlink_to(outside / "README.md")
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]
    (clone.folder / PAGE).unlink()
    os.mkfifo(clone.folder / PAGE)
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]
    (clone.folder / PAGE).unlink()
    (clone.folder / PAGE).mkdir()
    assert ("edited-file", PAGE) in found(check_tree(clone.folder))
    shutil.rmtree(clone.folder / "start")
    (clone.folder / "start").symlink_to(outside)
    assert ("edited-file", "start") in found(check_tree(clone.folder))


def test_a_file_of_many_gigabytes_is_not_read(clone: Clone) -> None:
    with (clone.folder / PAGE).open("r+b") as file:
        file.truncate(1 << 40)
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]


def test_line_endings_that_git_converted_are_a_note_and_no_alarm(forge: Forge, head: Head) -> None:
    branch = f"uwf/threads/{head.thread}"
    report = check_tree(forge.cloned("auto", "-c", "core.autocrlf=true", branch=branch).folder)
    assert report.findings == [] and noted(report) == set()  # the branch's own attributes forbid it
    clone = forge.cloned("crlf", "-n", branch=branch)
    (clone.folder / ".git/info").mkdir(exist_ok=True)
    (clone.folder / ".git/info/attributes").write_text("*.md text eol=crlf\n")
    clone("checkout", "-q", "HEAD", "--", ".")
    assert b"\r\n" in (clone.folder / PAGE).read_bytes()
    report = check_tree(clone.folder)
    assert report.findings == [] and noted(report) == {"line-endings"}
    with (clone.folder / PAGE).open("ab") as file:
        file.write(b"approved\r\n")
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]


def test_a_sparse_checkout_is_compared_as_far_as_it_goes(clone: Clone) -> None:
    clone("sparse-checkout", "set", "--no-cone", "/README.md", "/steps/0001-*")
    report = check_tree(clone.folder)
    assert report.findings == [] and noted(report) == {"not-checked-out"}
    clone("sparse-checkout", "set", "--cone", "--sparse-index", "steps")
    assert check_tree(clone.folder).findings == []
    clone.edits(PAGE, "not approved", "approved")
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]


PROGRAMS = {
    "core.fsmonitor": "{0}",
    "core.hooksPath": "{1}",
    "core.sshCommand": "{0}",
    "core.gitProxy": "{0}",
    "core.pager": "{0}",
    "core.editor": "{0}",
    "diff.external": "{0}",
    "diff.x.textconv": "{0}",
    "filter.x.clean": "{0}",
    "filter.x.smudge": "{0}",
    "filter.x.process": "{0}",
    "filter.x.required": "true",
    "gpg.program": "{0}",
    "gpg.ssh.program": "{0}",
    "gpg.ssh.defaultKeyCommand": "{0}",
    "credential.helper": "{0}",
    "uploadpack.packObjectsHook": "{0}",
    "core.alternateRefsCommand": "{0}",
    "remote.origin.url": "ext::{0}",
    "remote.origin.promisor": "true",
    "remote.origin.vcs": "x",
    "protocol.ext.allow": "always",
    "log.showSignature": "true",
    "alias.rev-parse": "!{0}",
    "alias.ls-files": "!{0}",
    "core.worktree": "/",
    "uwf.maxBlob": "1",
}


def test_no_program_that_a_checkout_names_is_run(clone: Clone, tmp_path: Path) -> None:
    """Hooks, filters, monitors, helpers, aliases: each would leave a file."""
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "post-checkout", "fsmonitor-watchman", "reference-transaction"):
        for folder in (hooks, clone.folder / ".git/hooks"):
            folder.mkdir(exist_ok=True)
            shutil.copy(program, folder / name)
    for key, value in PROGRAMS.items():
        clone("config", key, value.format(program, hooks))
    (clone.folder / ".git/info").mkdir(exist_ok=True)
    (clone.folder / ".git/info/attributes").write_text("* filter=x diff=x\n")
    for name in ("git", "ssh", "sh"):
        shutil.copy(program, clone.folder / name)
    blob = clone.folder / ".git/objects"
    report = check_tree(clone.folder)
    assert report.findings == []
    clone.edits(PAGE, "not approved", "approved")
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]
    assert blob.is_dir() and not ran.exists()


def test_a_submodule_is_named_and_not_entered(clone: Clone, tmp_path: Path) -> None:
    clone("config", "-f", ".gitmodules", "submodule.x.path", "x")
    clone("config", "-f", ".gitmodules", "submodule.x.url", "ext::touch ran")
    clone("add", ".gitmodules")
    clone("update-index", "--add", "--cacheinfo", f"160000,{clone('rev-parse', 'HEAD')},x")
    clone("commit", "-qm", "module")
    paths = {path for _, path in found(check_tree(clone.folder))}
    assert {".gitmodules", "x"} <= paths


def test_a_git_file_that_names_another_repository_is_refused(clone: Clone, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / ".git").write_text(f"gitdir: {clone.folder / '.git'}\n")
    with pytest.raises(Invalid) as raised:
        check_tree(fake)
    assert f"uwf verify {clone.folder}" in raised.value.hint
    clone("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    assert check_tree(tmp_path / "tree").findings == []
    (tmp_path / "tree" / PAGE).write_text("approved")
    assert found(check_tree(tmp_path / "tree")) == [("edited-file", PAGE)]


def test_a_repository_of_another_owner_is_read_all_the_same(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for its tests
    status = subprocess.run(["git", "-C", clone.folder, "status"], capture_output=True, check=False)
    assert b"dubious ownership" in status.stderr
    report = check_tree(clone.folder)
    assert report.findings == [] and report.to_json()["verified"]["files"] > 20
    clone.edits(PAGE, "not approved", "approved")
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]


def test_files_to_wait_for_in_a_repository_are_refused(clone: Clone) -> None:
    for name in ("shallow", "objects/info/alternates", "objects/pack/pack-1.idx", "index", "HEAD"):
        path = clone.folder / ".git" / name
        kept = path.read_bytes() if path.is_file() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises((StoreDamaged, NotFound, Invalid)):
            check_tree(clone.folder)
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)
    assert check_tree(clone.folder).findings == []


def test_names_that_differ_in_case_or_colour_the_terminal_are_escaped(clone: Clone) -> None:
    blob = clone("rev-parse", f"HEAD:{PAGE}")
    for name in ("README.MD", "steps/0002-CRITIC/README.md", "start/\x1b[31m.md", "start/::error::x\n.md"):
        clone("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    clone("commit", "-qm", "\x1b[31mfix\n::error::", "--cleanup=verbatim")
    report = check_tree(clone.folder)
    paths = {each.path for each in report.findings}
    assert "README.MD" in paths and any("0002-CRITIC" in path for path in paths)
    texts = [text for each in report.findings for text in (each.message, each.path)]
    assert all(text.isprintable() for text in texts)


def test_a_checkout_without_an_index_is_compared_by_its_files(clone: Clone) -> None:
    (clone.folder / ".git/index").unlink()
    assert check_tree(clone.folder).findings == []
    clone.edits(PAGE, "not approved", "approved")
    assert found(check_tree(clone.folder)) == [("edited-file", PAGE)]


def test_an_index_that_git_cannot_list_is_undecided(clone: Clone) -> None:
    (clone.folder / ".git/index").write_bytes(b"DIRC" + bytes(100))
    assert found(check_tree(clone.folder)) == [("unchecked", "")]


def test_folders_in_no_repository_and_repositories_without_commits_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        check_tree(tmp_path)
    empty = Clone(tmp_path / "empty")
    empty.folder.mkdir()
    empty("init", "-q")
    with pytest.raises(NothingToVerify):
        check_tree(empty.folder)
    with pytest.raises(NotFound):
        check_tree(tmp_path / "nowhere")
    other = Clone(tmp_path / "sha256")
    other.folder.mkdir()
    other("init", "-q", "--object-format=sha256")
    other.commits()
    with pytest.raises(Invalid):
        check_tree(other.folder)
    empty.commits()
    with pytest.raises(NothingToVerify):
        check_tree(empty.folder)


def test_a_folder_inside_of_a_checkout_means_the_checkout(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    for folder in (clone.folder, tmp_path / "tree"):
        monkeypatch.chdir(folder / "start")
        assert check_tree(Path()).findings == []
        page = folder / PAGE
        page.write_text(page.read_text().replace("not approved", "approved"))
        assert found(check_tree(Path("nodes"))) == [("edited-file", PAGE)]
