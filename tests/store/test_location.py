"""One function decides where everything is, and whoever is handed the result finds the same place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import Uwf

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.store.instance import Instance
from uwf_git.store.location import ROOT_VARIABLES, Location, check_format, init, locate


@pytest.fixture
def project(hermetic: Path) -> Path:
    """A repository that holds a store."""
    folder = hermetic / "project"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    init(Location(hermetic / "root", folder / ".git", here=True))
    (folder / "a" / "b").mkdir(parents=True)
    return folder


def test_the_root_is_named_by_the_option_then_the_variables_in_order_then_the_home(hermetic: Path) -> None:
    environ = {name: str(hermetic / name) for name in ROOT_VARIABLES} | {"HOME": str(hermetic)}
    assert locate("/given", environ, hermetic).root == Path("/given")
    for name in ROOT_VARIABLES:
        found = locate(None, environ, hermetic)
        assert (found.root, found.git_dir) == (hermetic / name, hermetic / name / "store.git")
        environ[name] = ""  # set to nothing is not set
    assert locate(None, environ, hermetic).root == hermetic / ".uncaged" / "workflow"


def test_a_project_is_found_from_below_unless_a_root_is_named(hermetic: Path, project: Path) -> None:
    home = {"HOME": str(hermetic)}
    found = locate(None, home, project / "a" / "b")
    assert (found.git_dir, found.here) == (project / ".git", True)
    assert found.root == hermetic / ".uncaged" / "workflow"
    assert not locate("/given", home, project).here
    for name in ROOT_VARIABLES:
        assert not locate(None, {**home, name: "/named"}, project).here


def test_a_project_without_a_store_is_passed_over(hermetic: Path) -> None:
    plain = hermetic / "plain"
    subprocess.run(["git", "init", "-q", str(plain)], check=True)
    assert not locate(None, {"HOME": str(hermetic)}, plain).here


def test_a_worktree_shares_the_store_of_its_repository(hermetic: Path, project: Path) -> None:
    git = ["git", "-C", str(project)]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(hermetic / "tree")], check=True)
    found = locate(None, {"HOME": str(hermetic)}, hermetic / "tree")
    assert found.git_dir == (project / ".git").resolve()


@pytest.mark.parametrize("explicit", [True, False])
def test_a_child_finds_the_store_that_its_engine_uses(hermetic: Path, project: Path, explicit: bool) -> None:
    home = {"HOME": str(hermetic)}
    mine = locate(str(hermetic / "given") if explicit else None, home, project)
    handed = locate(None, {**home, **mine.environment()}, Path("/"))
    assert (handed.root, handed.git_dir) == (mine.root, mine.git_dir)


def test_a_store_of_a_later_format_is_refused_before_anything_is_read(hermetic: Path, project: Path) -> None:
    (project / ".git" / "uwf" / "format").write_text("2\n")
    with pytest.raises(Invalid, match="'2'"):
        check_format(project / ".git")
    with pytest.raises(Invalid):
        Instance(Location(hermetic, project / ".git", here=True))


def test_a_store_that_is_not_there_is_told_with_a_remedy(hermetic: Path) -> None:
    with pytest.raises(NotFound) as caught:
        Instance(Location(hermetic, hermetic / "none.git"))
    assert "uwf init" in caught.value.hint


@pytest.mark.parametrize(
    "kind", ["empty", "a link to an empty one", "only begun", "holding what is not a file"]
)
def test_a_folder_that_is_there_becomes_the_store_as_it_is(uwf: Uwf, root: Path, kind: str) -> None:
    root.mkdir()
    store = root / "store.git"
    if kind == "a link to an empty one":
        (root / "elsewhere").mkdir(mode=0o700)
        store.symlink_to(root / "elsewhere")
    else:
        store.mkdir(mode=0o700)
    if kind == "only begun":
        (store / "objects").mkdir()
        (store / "uwf").mkdir()
        (store / "uwf" / "format").write_text("")
    elif kind == "holding what is not a file":
        os.mkfifo(store / "pipe")
        (store / "dangling").symlink_to("nowhere")
    uwf("init")
    assert uwf("doctor", "--quick", check=None).code == 0
    assert store.stat().st_mode & 0o777 == 0o700
    assert (store / "uwf" / "format").read_text() == "1\n"


def test_a_store_in_a_folder_of_a_group_belongs_to_that_group(uwf: Uwf, root: Path) -> None:
    root.mkdir()
    root.chmod(0o2775)
    uwf("init")
    assert (root / "store.git").stat().st_mode & 0o2000


def test_what_a_killed_first_command_left_is_found_and_removed(uwf: Uwf, root: Path) -> None:
    uwf("init")
    left = root / "store.git.0123abcd.new"
    left.mkdir()
    os.utime(left, (0, 0))
    (found,) = [each for each in uwf("doctor").json if each["check"] == "leftovers"]
    assert found["status"] == "warning"
    uwf("doctor", "--fix")
    assert not left.exists()


@pytest.mark.parametrize(
    "file", ["store.git/config", "included", "home/.gitconfig", "home/.config/git/config"]
)
def test_remotes_are_those_that_git_reads_from_any_of_its_files(
    uwf: Uwf, instance: Instance, root: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    if file != "included":
        monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    folder, config = Path(os.environ["HOME"]), root / "store.git" / "config"
    path = config if file == "store.git/config" else folder / file.removeprefix("home/")
    path.parent.mkdir(parents=True, exist_ok=True)
    if file == "included":
        config.write_text(config.read_text() + f"[include]\n\tpath = {path}\n")
    with open(path, "a") as text:
        text.write(
            '[Remote "Of.a team"]\n\tURL = "/srv/a #1"\n\turl = /srv/b\n\tpushUrl = /srv/c\n\tUwf = true\n'
        )
        text.write(
            '[remote "main"]\n\turl = /srv/main\n\tuwf = true\n\tprune\n[remote "not"]\n\turl = /srv/not\n'
        )
    asked = ("git", "--git-dir", str(config.parent), "config", "--get-all", "remote.Of.a team.url")
    assert subprocess.run(asked, capture_output=True, check=True).stdout == b"/srv/a #1\n/srv/b\n"
    assert uwf("remote", "list").json == [
        {"name": "Of.a team", "url": "/srv/a #1", "pushUrl": "/srv/c"},
        {"name": "main", "url": "/srv/main"},
    ]
