"""Files that are known from the last reading are not read by git again, and whatever an agent does to them shows."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import git
from workflows import LONG, start_thread

from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.git import program
from uwf_git.git.index_file import blobs_in, index_trees
from uwf_git.kit import Context, create_agent
from uwf_git.sandbox.child import spawn
from uwf_git.store.instance import Instance
from uwf_git.workspaces import file_times
from uwf_git.workspaces.choice import assign
from uwf_git.workspaces.file_times import FileTimes
from uwf_git.workspaces.options import parse_option

ANSWER = '{"text": "done"}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    for name in ("one.txt", "sub/two.txt", "sub/deep/three.txt"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{name[-9:]}\n")
    (path / "link").symlink_to("one.txt")
    (path / ".gitignore").write_text("*.log\nmodules/\n")
    git("-C", path, "add", "-A")
    git("-C", path, "commit", "-q", "-m", "first")
    return path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands of git that are called."""
    commands: list[str] = []

    def spy(words: list[str], **options: Any) -> Any:
        commands.append(program.command_of(words[2:]))
        return spawn(words, **options)

    monkeypatch.setattr(program, "spawn", spy)
    return commands


def work(instance: Instance, thread: ThreadId, act: Callable[[Path], object]) -> None:
    """Make a step in which an agent acts on its folder."""

    def perform(ctx: Context) -> str:
        act(ctx.cwd)
        return ANSWER

    step(instance, thread, create_agent("acts", perform))


def idle(instance: Instance, thread: ThreadId) -> None:
    work(instance, thread, lambda _: None)


def known(instance: Instance, project: Path, calls: list[str]) -> ThreadId:
    """A thread whose worktree is known, so that a step which changes nothing calls no git."""
    thread = start_thread(instance, LONG)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    settle(instance, thread, calls)
    return thread


def settle(instance: Instance, thread: ThreadId, calls: list[str]) -> None:
    for _ in range(6):
        calls.clear()
        idle(instance, thread)
        if not calls:
            return
    raise AssertionError(f"a step that changes nothing calls git: {calls}")


def folder(instance: Instance, thread: ThreadId) -> Path:
    return instance.location.root / "workspaces" / thread


def admin(project: Path, thread: ThreadId) -> Path:
    return project / ".git/uwf-worktrees" / thread


def recorded(project: Path, thread: ThreadId, path: str) -> str:
    return git("-C", project, "show", f"uwf/work/{thread}:{path}")


def files(project: Path, thread: ThreadId) -> set[str]:
    return set(git("-C", project, "ls-tree", "-r", "--name-only", f"uwf/work/{thread}").splitlines())


def in_secret(path: Path, act: Callable[[], object]) -> None:
    """Do something to a file, and give it and its folder the times that they had."""
    before = {place: place.lstat() for place in (path, path.parent) if os.path.lexists(place)}
    act()
    for place, status in before.items():
        if os.path.lexists(place) and place.lstat().st_mtime_ns != status.st_mtime_ns:
            times = status.st_atime_ns, status.st_mtime_ns
            os.utime(place, ns=times, follow_symlinks=False)


def replace(path: Path) -> None:
    new = path.with_name("new")
    new.write_text("o.xt!\n".rjust(path.stat().st_size))
    status = path.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


def swap_folder(top: Path) -> None:
    shutil.copytree(top / "sub", top / "other", symlinks=True)
    text = (top / "other/two.txt").read_text()
    in_secret(top / "other/two.txt", lambda: (top / "other/two.txt").write_text(text.upper()))
    shutil.rmtree(top / "sub")
    (top / "other").rename(top / "sub")


def through_a_link(top: Path) -> None:
    outside = top.parent / "outside"
    os.link(top / "one.txt", outside)
    in_secret(outside, lambda: outside.write_text("ONE.TXT\n"))
    outside.unlink()


SECRET: dict[str, tuple[str, Callable[[Path], object]]] = {
    "other content of the same size and time": (
        "one.txt",
        lambda top: in_secret(top / "one.txt", lambda: (top / "one.txt").write_text("ONE.TXT\n")),
    ),
    "another file in its place": (
        "one.txt",
        lambda top: in_secret(top / "one.txt", lambda: replace(top / "one.txt")),
    ),
    "another mode": (
        "one.txt",
        lambda top: in_secret(top / "one.txt", lambda: (top / "one.txt").chmod(0o755)),
    ),
    "a new file": (
        "sub/deep/new.txt",
        lambda top: in_secret(top / "sub/deep/new.txt", lambda: (top / "sub/deep/new.txt").write_text("new")),
    ),
    "a file that is gone": (
        "sub/two.txt",
        lambda top: in_secret(top / "sub/two.txt", lambda: (top / "sub/two.txt").unlink()),
    ),
    "another folder in its place": (
        "sub/two.txt",
        lambda top: in_secret(top / "sub", lambda: swap_folder(top)),
    ),
    "a link that leads elsewhere": (
        "link",
        lambda top: in_secret(
            top / "link", lambda: ((top / "link").unlink(), (top / "link").symlink_to("two.txt"))
        ),
    ),
    "a change by another name": (
        "one.txt",
        lambda top: in_secret(top / "one.txt", lambda: through_a_link(top)),
    ),
    "a file that is no longer ignored": (
        "sub/a.log",
        lambda top: (
            in_secret(top / "sub/a.log", lambda: (top / "sub/a.log").write_text("log")),
            in_secret(top / "sub/.gitignore", lambda: (top / "sub/.gitignore").write_text("!a.log\n")),
        ),
    ),
}


@pytest.mark.parametrize("what", SECRET)
def test_a_change_is_recorded_though_an_agent_sets_its_times_back(
    instance: Instance, project: Path, calls: list[str], what: str
) -> None:
    thread = known(instance, project, calls)
    path, act = SECRET[what]
    work(
        instance, thread, lambda top: (act(top), time.sleep(0.1))
    )  # so long that nothing is as new as the reading
    assert path in git("-C", project, "diff", "--name-only", "main", f"uwf/work/{thread}").splitlines()
    settle(instance, thread, calls)


@pytest.mark.parametrize("what", ["as the files are", "as if a folder were ignored"])
def test_what_an_agent_writes_about_the_files_is_not_believed(
    instance: Instance, project: Path, calls: list[str], what: str
) -> None:
    thread = known(instance, project, calls)
    place = admin(project, thread) / "uwf-times"
    before = FileTimes.parse(place.read_bytes())

    def forge(top: Path) -> None:
        assert not place.exists()
        if what == "as the files are":
            (top / "sub/two.txt").write_text("changed\n")
        times = file_times.take(top, before.rules, None, lambda _: ())
        settled = {path: row._replace(digest=row.digest or "0") for path, row in times.folders.items()}
        if what != "as the files are":
            settled = {path: row for path, row in settled.items() if not path.startswith("sub")}
            settled[""] = settled[""]._replace(folders=[])
            times = times._replace(skipped=["sub"])
        place.write_bytes(times._replace(folders=settled).as_json())
        time.sleep(0.1)

    work(instance, thread, forge)
    if what != "as the files are":
        anew = Instance(instance.location)
        work(anew, thread, lambda top: (top / "sub/two.txt").write_text("changed\n"))
    assert recorded(project, thread, "sub/two.txt") == "changed"


def test_files_as_new_as_the_reading_are_not_known(project: Path) -> None:
    def take(before: FileTimes | None = None) -> FileTimes:
        return file_times.take(project / "sub", {}, before, lambda _: ())

    (project / "sub/two.txt").write_text("new")
    new = take()
    assert not new.is_settled and not take(new).same_as(new)
    time.sleep(0.1)
    settled = take(new)
    assert settled.is_settled and take(settled).same_as(settled)


def test_a_change_at_the_time_of_the_reading_itself_is_noticed(
    instance: Instance, project: Path, calls: list[str]
) -> None:
    thread = known(instance, project, calls)
    path = folder(instance, thread) / "one.txt"
    for number in range(10, 25):
        work(instance, thread, lambda _, number=number: path.write_text(f"agent{number}"))
        path.write_text(f"human{number}")
        idle(instance, thread)
        assert recorded(project, thread, "one.txt") == f"human{number}"


@pytest.mark.parametrize("where", ["info/exclude", "config", "the user's excludes", "an included file"])
def test_a_file_that_is_no_longer_ignored_is_noticed(
    instance: Instance, project: Path, calls: list[str], tmp_path: Path, where: str
) -> None:
    ignores = tmp_path / "ignores"
    ignores.write_text("")
    if where == "info/exclude":
        (project / ".git/info").mkdir(exist_ok=True)
        ignores = project / ".git/info/exclude"
    elif where == "the user's excludes":
        git("config", "--global", "core.excludesFile", ignores)
    elif where == "an included file":
        (tmp_path / "more").write_text(f"[core]\n\texcludesFile = {ignores}\n")
        git("-C", project, "config", "include.path", tmp_path / "more")
    else:
        git("-C", project, "config", "core.excludesFile", ignores)
    ignores.write_text("*.tmp\n")
    thread = known(instance, project, calls)
    work(instance, thread, lambda top: (top / "a.tmp").write_text("a"))
    settle(instance, thread, calls)
    assert "a.tmp" not in files(project, thread)
    if where == "an included file":
        (tmp_path / "more").write_text("")
    elif where == "config":
        git("-C", project, "config", "--unset", "core.excludesFile")
    else:
        ignores.write_text("\n")
    idle(instance, thread)
    assert "a.tmp" in files(project, thread)


def test_a_large_ignored_folder_is_passed_over_as_long_as_it_is_ignored(
    instance: Instance, project: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_times, "MOST", 20)
    thread = known(instance, project, calls)

    def install(top: Path) -> None:
        for number in range(30):
            path = top / f"modules/m{number}/index.js"
            path.parent.mkdir(parents=True)
            path.write_text("js")

    work(instance, thread, install)
    settle(instance, thread, calls)
    work(instance, thread, lambda top: (top / "modules/m1/index.js").write_text("other"))
    assert calls == []
    work(instance, thread, lambda top: (top / "sub/new.txt").write_text("new"))
    assert "sub/new.txt" in files(project, thread)
    settle(instance, thread, calls)
    work(instance, thread, lambda top: (top / ".gitignore").write_text("*.log\n"))
    assert "modules/m1/index.js" in files(project, thread)
    idle(instance, thread)
    work(instance, thread, lambda top: (top / "modules/m2/index.js").write_text("third"))
    assert recorded(project, thread, "modules/m2/index.js") == "third"


def test_a_folder_of_ignored_files_is_not_taken_for_an_ignored_folder(
    instance: Instance, project: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_times, "MOST", 20)
    thread = known(instance, project, calls)

    def log(top: Path) -> None:
        (top / "logs").mkdir()
        for number in range(30):
            (top / f"logs/{number}.log").write_text("log")

    work(instance, thread, log)
    for _ in range(3):
        idle(instance, thread)
    work(instance, thread, lambda top: (top / "logs/notes.txt").write_text("notes"))
    assert "logs/notes.txt" in files(project, thread)


# What it costs


def test_a_step_that_changes_a_file_calls_git_once_for_each_reading(
    instance: Instance, project: Path, calls: list[str]
) -> None:
    thread = known(instance, project, calls)
    for number in range(3):
        calls.clear()
        work(instance, thread, lambda top, number=number: (top / "sub/two.txt").write_text(f"{number}"))
        assert calls.count("add") == len(calls) <= 2
    assert git("-C", project, "fsck", "--no-dangling") == ""
    log = git("-C", project, "reflog", "show", "--format=%H", f"uwf/work/{thread}").splitlines()
    assert len(log) == 4 and log[0] == git("-C", project, "rev-parse", f"uwf/work/{thread}")


def test_the_trees_of_an_index_are_those_that_git_writes(project: Path) -> None:
    index = project / ".git/index"
    for number, change in enumerate(
        (
            lambda: None,
            lambda: (project / "sub/two.txt").write_text("other"),
            lambda: (project / "sub.txt").write_text("beside"),
            lambda: (project / "sub/deep/three.txt").unlink(),
            lambda: (project / ("n" * 200) / ("m" * 250)).mkdir(parents=True),
            lambda: (project / ("n" * 200) / ("m" * 250) / "x").symlink_to("y"),
            lambda: (project / "one.txt").chmod(0o755),
            lambda: shutil.rmtree(project / "sub"),
        )
    ):
        before, head = index.read_bytes(), git("-C", project, "rev-parse", "HEAD")
        change()
        git("-C", project, "add", "-A")
        data = index.read_bytes()
        trees = index_trees(data)
        assert trees.root.hex() == git("-C", project, "write-tree"), number
        git("-C", project, "commit", "-q", "--allow-empty", "-m", f"{number}")
        new = git("-C", project, "rev-list", "--objects", "--no-object-names", "HEAD", f"^{head}").split()[1:]
        own = {oid.hex() for oid in trees.blobs - blobs_in(before)} | {oid.hex() for oid in trees.trees}
        assert set(new) <= own


@pytest.mark.parametrize("form", [["--index-version", "4"], ["--split-index"]])
def test_an_index_that_only_git_can_read_is_left_to_git(project: Path, form: list[str]) -> None:
    git("-C", project, "update-index", *form)
    with pytest.raises(ValueError, match=r"another version|split"):
        index_trees((project / ".git/index").read_bytes())
