"""No path leads out of the mounts, whatever it is made of and whoever renames things meanwhile; a change
of several files is whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shutil
import socket
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uwf_git.sandbox.path import Mount
from uwf_git.sandbox.results import ToolFailure
from uwf_git.sandbox.workspace import Change, Workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("SECRET")
    return folder


@pytest.fixture
def project(tmp_path: Path, outside: Path) -> Path:
    """A project with every kind of link."""
    folder = tmp_path / "project"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a\n")
    (folder / "in").symlink_to("src")
    (folder / "absolute-in").symlink_to(folder / "src")
    (folder / "out").symlink_to(outside)
    (folder / "relative-out").symlink_to("../outside/secret")
    (folder / "by-way-of").symlink_to("in/deep/../../../outside/secret")
    (folder / "circle").symlink_to("circle")
    (folder / "sneaky").symlink_to(".git")
    (folder / ".git" / "hooks").mkdir(parents=True)
    return folder


def code(workspace: Workspace, path: str) -> str:
    try:
        workspace.read(path, 100)
    except ToolFailure as failure:
        return failure.code
    return "ok"


def write_code(workspace: Workspace, path: str) -> str:
    try:
        workspace.change([Change(path, b"new")])
    except ToolFailure as failure:
        return failure.code
    return "ok"


def test_links_are_followed_inside_and_refused_where_they_lead_out(project: Path, tmp_path: Path) -> None:
    workflow = tmp_path / "workflow"
    workflow.mkdir()
    (workflow / "notes").write_text("n")
    workspace = Workspace(project, [Mount("@workflow", workflow)])
    expected = {
        "src/a.py": "ok",
        "@project/./src//deep/../a.py": "ok",
        "in/a.py": "ok",
        "absolute-in/a.py": "ok",
        str(project / "src/a.py"): "ok",
        "@workflow/notes": "ok",
        "in/../a.py": "not_found",  # of the link's target, not of the link
        "src": "is_directory",
        "src/a.py/x": "not_directory",
        "../outside/secret": "outside_workspace",
        "src/../../outside/secret": "outside_workspace",
        "@workflow/../project/src/a.py": "outside_workspace",
        "out/secret": "outside_workspace",
        "relative-out": "outside_workspace",
        "by-way-of": "outside_workspace",
        "/etc/passwd": "outside_workspace",
        str(project) + "-other/x": "outside_workspace",
        "~/.ssh/id_rsa": "outside_workspace",
        "circle": "failed",
        "a\0b": "invalid_arguments",
        "": "invalid_arguments",
        "\ud800": "invalid_arguments",
        "d/" * 300 + "f": "not_found",
        "@output/1.txt": "not_found",
        "x" * 300: "invalid_arguments",
        "x/" * 3000: "invalid_arguments",
    }
    assert {path: code(workspace, path) for path in expected} == expected


def test_writing_stays_inside_out_of_git_and_off_read_only_mounts(
    project: Path, tmp_path: Path, outside: Path
) -> None:
    bare = project / "store.git"
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (project / "locked").write_text("l")
    (project / "locked").chmod(0o444)
    workspace = Workspace(
        project, [Mount("@workflow", tmp_path / "outside")], hidden=[project / "src" / "deep"]
    )
    expected = {
        "in/b.py": "ok",
        "new/folder/c.py": "ok",
        "relative-out": "outside_workspace",
        "out/new": "outside_workspace",
        "../new": "outside_workspace",
        "@workflow/new": "read_only",
        ".git/hooks/pre-commit": "denied",
        ".GIT/config": "denied",
        ".g\u200cit/config": "denied",
        "sub/.git/config": "denied",
        "git~1/config": "denied",
        "sneaky/config": "denied",
        "store.git/hooks/update": "denied",
        "src/deep/x": "denied",
        ".gitignore": "ok",
        "locked": "read_only",
        "src": "is_directory",
        "d/" * 300 + "f": "invalid_arguments",
    }
    assert {path: write_code(workspace, path) for path in expected} == expected
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == "SECRET"
    assert not [path for path in project.rglob("*") if path.name.endswith(".tmp") or path.name == "d"]


def test_devices_pipes_and_sockets_are_neither_read_nor_waited_for(project: Path) -> None:
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(project)
        listener.bind("socket")
        workspace = Workspace(project)
        assert [code(workspace, name) for name in ("pipe", "socket")] == ["special_file"] * 2
        assert write_code(workspace, "pipe") == "special_file"


def test_a_folder_swapped_for_a_link_all_the_time_never_lets_a_path_out(project: Path, outside: Path) -> None:
    (project / "swap").mkdir()
    (project / "swap" / "secret").write_text("mine")
    workspace = Workspace(project)
    over = threading.Event()

    def swap() -> None:
        link, kept, folder = project / "link", project / "kept", project / "swap"
        while not over.is_set():
            link.symlink_to(outside)
            folder.rename(kept)
            try:
                link.rename(folder)
                folder.unlink()
                kept.rename(folder)
            except OSError:  # a change made the folder anew meanwhile
                link.unlink(missing_ok=True)
                while kept.exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    with contextlib.suppress(OSError):
                        kept.rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[str] = set()
    try:
        for _ in range(1500):
            try:
                assert workspace.read("swap/secret", 100)[0] == b"mine"
                workspace.change([Change("swap/new", b"x")])
                seen.add("ok")
            except ToolFailure as failure:
                seen.add(failure.code)
    finally:
        over.set()
        thread.join()
    assert workspace.read("swap/secret", 100)[0] == b"mine"
    assert seen <= {"ok", "outside_workspace", "not_found", "failed"}
    assert [path.name for path in outside.iterdir()] == ["secret"]


names = st.sampled_from(
    ["src", "in", "out", "absolute-in", "deep", "a.py", "..", ".", "", "new", "relative-out", "secret"]
)


@given(st.lists(names, min_size=1, max_size=7))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_whatever_is_read_is_what_the_real_path_says_and_lies_inside(project: Path, parts: list[str]) -> None:
    path = "@project/" + "/".join(parts)
    workspace = Workspace(project)
    real = Path(os.path.realpath(project / "/".join(parts).lstrip("/")))
    try:
        with workspace.open_file(path) as (file, spot):
            assert real == project.joinpath(*spot.parts)
            assert real.is_relative_to(project.resolve())
            assert file.read() == real.read_bytes()
    except ToolFailure as failure:
        if failure.code == "not_found":
            # By the system's own reading: realpath takes back by `..` also what isn't there.
            assert not project.joinpath(*parts).is_file()
        assert failure.code in ("not_found", "outside_workspace", "is_directory", "not_directory")


def test_a_write_keeps_mode_and_link_and_replaces_the_file_whole(project: Path) -> None:
    target = project / "src" / "a.py"
    target.chmod(0o750)
    (project / "link.py").symlink_to("src/a.py")
    before = target.stat().st_ino
    made = Workspace(project).change([Change("link.py", b"changed")])
    assert [each.path for each in made] == ["@project/src/a.py"]
    assert (project / "link.py").is_symlink()
    assert target.read_bytes() == b"changed"
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert target.stat().st_ino != before


def test_of_several_changes_all_are_made_or_none(project: Path) -> None:
    workspace = Workspace(project)
    tree = sorted(str(path) for path in project.rglob("*"))
    for bad in (
        Change("gone.py", None),
        Change("src/deep", b""),
        Change("../x", b""),
        Change("in/a.py", b"twice"),
    ):
        with pytest.raises(ToolFailure):
            workspace.change([Change("src/a.py", b"changed"), Change("made/new.py", b"new"), bad])
        assert (project / "src" / "a.py").read_text() == "a\n"
        assert sorted(str(path) for path in project.rglob("*")) == tree
    workspace.change([Change("moved.py", b"a\n", 0o755), Change("src/a.py", None)])
    assert (project / "moved.py").stat().st_mode & 0o777 == 0o755
    assert not (project / "src" / "a.py").exists()


def test_a_disk_that_fails_half_way_leaves_the_files_as_they_were(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "second").write_text("second\n")
    tree = sorted(str(path) for path in project.rglob("*"))
    rename = os.rename

    def failing(source: str, target: str, **more: int) -> None:
        if target == "second":
            raise OSError(errno.EIO, "no")
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", failing)
    changes = [
        Change("src/a.py", b"changed"),
        Change("made/new", b"new"),
        Change("second", b"2"),
        Change("in", None),
    ]
    with pytest.raises(ToolFailure, match="Input/output error"):
        Workspace(project).change(changes)
    assert sorted(str(path) for path in project.rglob("*")) == tree
    assert (project / "src/a.py").read_text() + (project / "second").read_text() == "a\nsecond\n"


def test_a_link_is_deleted_not_what_it_leads_to(project: Path, outside: Path) -> None:
    Workspace(project).change([Change("relative-out", None), Change("in", None)])
    assert (outside / "secret").exists()
    assert (project / "src").is_dir() and not (project / "in").is_symlink()


def test_no_descriptor_is_left_open(project: Path) -> None:
    workspace = Workspace(project)
    gc.collect()  # what past tests left open
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    for path in ("src/a.py", "out/secret", "circle", "src/deep/../../x/y", "d/" * 300):
        code(workspace, path)
        write_code(workspace, path)
    assert len(os.listdir("/dev/fd")) <= before  # noqa: PTH208
