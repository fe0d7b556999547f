"""What new worktrees get of the user's checkout: files of their own, whatever an agent does to them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import git, wait_until
from conftest import Begin, Uwf
from faults import obeying_modes
from power import Disk
from two_machines import RELAY

from uwf_git.config.secrets import Secrets
from uwf_git.config.settings import WorkspaceSettings
from uwf_git.format.ids import ThreadId
from uwf_git.workspaces.copying import Copier
from uwf_git.workspaces.setup import set_up

ANSWER = 'echo "{\\"text\\": \\"x\\"}"'


class Site:
    """A project with ignored files in `node_modules`, and a storage root that copies them."""

    def __init__(self, uwf: Uwf, root: Path, project: Path) -> None:
        self.uwf, self.root, self.project = uwf, root, project
        git("init", "-q", "-b", "main", project)
        (project / ".gitignore").write_text("node_modules\n.env\nbig\n")
        (project / "packages").mkdir()
        (project / "packages/own.js").write_text("own")
        (project / "relay.yaml").write_text(RELAY)
        git("-C", project, "add", ".")
        git("-C", project, "commit", "-q", "-m", "first")
        self.modules = project / "node_modules"
        (self.modules / "a/lib").mkdir(parents=True)
        (self.modules / "a/lib/a.js").write_text("a")
        (project / ".env").write_text("SECRET=1")
        root.mkdir(exist_ok=True)
        self.copies("node_modules", ".env")

    def copies(self, *paths: str) -> None:
        (self.root / "config.yaml").write_text(f"workspace: {{kind: worktree, copy: {list(paths)}}}\n")

    def start(self) -> str:
        words = (
            "--root",
            self.root,
            "thread",
            "start",
            self.project / "relay.yaml",
            "-p",
            "x",
            "--cwd",
            self.project,
        )
        return str(self.uwf(*words).json["thread"])

    def step(self, thread: str, command: str = "true") -> str:
        """Lets a thread's agent run a command; returns what was said on standard error."""
        return self.uwf("--root", self.root, "thread", "step", thread, "--agent", acts(command)).err

    def worktree(self, thread: str) -> Path:
        return self.root / "workspaces" / thread

    def state(self) -> dict[str, object]:
        """The user's ignored files: type, mode, time and content of each."""
        return dict(states(self.modules)) | {".env": (self.project / ".env").read_bytes()}


def acts(command: str) -> str:
    return f"uwf-exec sh -c '({command}) >&2; {ANSWER}'"


def states(folder: Path) -> Iterator[tuple[str, object]]:
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        modified = 0 if path.is_symlink() else status.st_mtime_ns
        yield str(path.relative_to(folder)), (oct(status.st_mode), modified, content)


@pytest.fixture
def site(uwf: Uwf, root: Path, tmp_path: Path) -> Site:
    return Site(uwf, root, tmp_path / "project")


DESTROY = {
    "empties the folder": "rm -rf node_modules/* .env",
    "empties it through links": "find -L node_modules -type f -delete; find -L node_modules -delete",
    "edits files in place": 'for f in $(find -L node_modules .env -type f); do chmod u+w "$f"; echo evil >"$f"; done',
    "changes modes": "chmod -R a-rwx,u+rx node_modules",
    "lets git remove them": "git clean -q -ffdx",
}


@pytest.mark.parametrize("command", DESTROY.values(), ids=DESTROY)
def test_nothing_that_an_agent_does_to_them_changes_the_users(
    site: Site, tmp_path: Path, command: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    (site.modules / "in").symlink_to(site.modules / "a/lib")
    (site.modules / "own").symlink_to("../packages")
    (site.modules / "out").symlink_to(outside)
    (site.modules / "out.txt").symlink_to("../../outside/kept.txt")
    (site.modules / "by-way").symlink_to("out/kept.txt")
    os.link(site.modules / "a/lib/a.js", site.modules / "same.js")
    before = site.state()
    thread = site.start()
    site.step(thread, command)
    assert site.state() == before
    assert (outside / "kept.txt").read_text() == "kept"
    assert (site.project / "packages/own.js").read_text() == "own"
    site.uwf("--root", site.root, "workspace", "remove", thread)
    assert not site.worktree(thread).exists()
    assert site.state() == before
    assert (outside / "kept.txt").read_text() == "kept"


def test_a_copy_has_contents_modes_times_and_links_as_they_are(site: Site) -> None:
    (site.modules / "empty").mkdir()
    (site.modules / "run").write_text("#!/bin/sh\n")
    (site.modules / "run").chmod(0o777)  # more than the umask gives
    (site.modules / "closed").mkdir()
    (site.modules / "closed/file").write_text("x")
    (site.modules / "closed/file").chmod(0o400)
    (site.modules / "closed").chmod(0o555)
    (site.modules / "large").write_bytes(os.urandom(3_000_000))
    (site.modules / "link").symlink_to("a/lib/a.js")
    (site.modules / "dangling").symlink_to("absent")
    (site.modules / "a b\n'\"\\").write_text("name")
    (site.modules / os.fsdecode(b"\xff")).write_text("bytes")
    os.utime(site.modules / "a", ns=(10**18, 10**18))
    thread = site.start()
    assert "lacks" not in site.step(thread)
    (site.modules / "closed").chmod(0o755)  # who removes a worktree may empty its folders
    assert dict(states(site.worktree(thread) / "node_modules")) == dict(states(site.modules))
    assert (site.worktree(thread) / "node_modules/run").stat().st_ino != (site.modules / "run").stat().st_ino


def test_what_leads_back_to_the_user_is_left_out_and_named(site: Site, tmp_path: Path) -> None:
    modules = site.modules
    os.mkfifo(modules / "pipe")
    (modules / "out").symlink_to(tmp_path)
    (modules / "round").symlink_to("../../project/packages")
    (modules / "venv").mkdir()
    (modules / "venv/pyvenv.cfg").write_text("home = /usr/bin")
    (modules / "dep").mkdir()
    (modules / "dep/.git").write_text(f"gitdir: {site.project}/.git\n")
    (modules / "dep/index.js").write_text("x")
    (modules / "inside").symlink_to(site.project / "packages/own.js")
    thread = site.start()
    err = site.step(thread)
    for name, why in (
        ("pipe", "a special file"),
        ("out", "a link that leads out"),
        ("round", "a link that leads out"),
        ("venv", "a virtual environment, whose scripts lead to the checkout"),
    ):
        assert f"node_modules/{name} ({why})" in err
    copied = site.worktree(thread) / "node_modules"
    assert sorted(path.name for path in copied.iterdir()) == ["a", "dep", "inside"]
    assert sorted(path.name for path in (copied / "dep").iterdir()) == ["index.js"]
    assert (copied / "inside").readlink() == Path("../packages/own.js")


def test_a_path_that_is_itself_a_link_is_copied_from_where_it_leads(site: Site, tmp_path: Path) -> None:
    shutil.move(site.modules, tmp_path / "modules")
    shutil.move(site.project / ".env", tmp_path / "env")
    site.modules.symlink_to(tmp_path / "modules")
    (site.project / ".env").symlink_to("../env")
    thread = site.start()
    site.step(thread, "echo evil | tee .env node_modules/a/lib/a.js")
    assert (tmp_path / "modules/a/lib/a.js").read_text() == "a"
    assert (tmp_path / "env").read_text() == "SECRET=1"
    assert (site.worktree(thread) / ".env").read_text() == "evil\n"


def test_a_worktree_with_a_link_of_an_earlier_setting_keeps_working(site: Site) -> None:
    site.copies(".env")
    thread = site.start()
    site.step(thread, "true")
    folder = site.worktree(thread) / "node_modules"
    folder.symlink_to(site.modules)
    site.copies(".env", "node_modules")
    before = site.state()
    site.step(thread, "cat node_modules/a/lib/a.js; echo x >made.txt")
    changed = git("-C", site.project, "diff", "--name-only", "main", f"uwf/work/{thread}")
    assert changed == "made.txt"
    site.uwf("--root", site.root, "workspace", "remove", thread)
    assert not folder.parent.exists() and site.state() == before


class Dead(BaseException):
    """The process ends here, and cleans nothing up."""


def test_a_copy_that_was_cut_off_anywhere_is_made_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from workflows import opened

    from uwf_git.engine.step import step

    for number in range(5):
        (site.modules / f"{number}.js").write_text(f"{number}")
    expected = dict(states(site.modules))
    copy_file = Copier._file
    monkeypatch.setenv("UWF_STORAGE_ROOT", str(site.root))
    for dies_at in range(6):
        thread = ThreadId(site.start())
        count = 0

        def dies(self: Copier, old: str, new: str) -> None:
            nonlocal count
            count += 1
            if count > dies_at:  # noqa: B023 -- it is called in this round
                Path(new).write_text("half")
                raise Dead
            copy_file(self, old, new)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Copier, "_file", dies)
            patched.setattr("uwf_git.workspaces.worktree.Worktree.remove", lambda _: None)
            with pytest.raises(Dead):
                step(opened(), thread, acts("true"))
        step(opened(), thread, acts("true"))
        assert dict(states(site.worktree(thread) / "node_modules")) == expected


@pytest.mark.extended
@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_process_that_is_killed_while_it_copies_leaves_nothing_half(
    site: Site, begin: Begin, share: float
) -> None:
    for number in range(4000):
        (site.modules / f"{number}.js").write_text(f"{number}")
    thread = site.start()
    copied = site.worktree(thread) / "node_modules"
    words = ("--root", str(site.root), "thread", "step", thread, "--agent", acts("true"))
    child = begin(*words)
    wait_until(lambda: copied.is_dir() and len(list(copied.iterdir())) > share * 4000, "it copies")
    child.send_signal(signal.SIGKILL)
    child.wait()
    site.step(thread)
    assert dict(states(copied)) == dict(states(site.modules))


def test_files_that_come_and_go_meanwhile_stop_nothing(site: Site) -> None:
    changes = (
        "import os, sys, itertools\nos.chdir(sys.argv[1])\nprint(flush=True)\n"
        "for n in itertools.count():\n"
        "    os.makedirs(f'd{n % 7}/x', exist_ok=True)\n"
        "    open(f'd{n % 7}/x/f', 'w').write('x' * 100)\n"
        "    os.remove(f'd{(n) % 7}/x/f'); os.removedirs(f'd{n % 7}/x')\n"
    )
    for number in range(300):
        (site.modules / f"{number}.js").write_text(f"{number}")
    with subprocess.Popen([sys.executable, "-c", changes, site.modules], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        try:
            for number in range(20):
                target = site.root / f"copy{number}"
                target.mkdir()
                copier = Copier(site.project, target, time.monotonic() + 60)
                copier.copy(site.modules, target / "node_modules")
                names = {path.name for path in (target / "node_modules").iterdir()}
                assert {f"{number}.js" for number in range(300)} <= names
        finally:
            child.kill()


def test_a_file_that_cannot_be_read_is_named_and_one_that_was_asked_for_is_refused(site: Site) -> None:
    (site.modules / "locked").write_text("x")
    (site.modules / "locked").chmod(0)
    (site.modules / "shut").mkdir()
    (site.modules / "shut").chmod(0)
    thread = site.start()
    words = [
        *obeying_modes(),
        "uwf",
        "--root",
        str(site.root),
        "thread",
        "step",
        thread,
        "--agent",
        acts("true"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "node_modules/locked (Permission denied)" in done.stderr
    assert "node_modules/shut (Permission denied)" in done.stderr
    assert (site.worktree(thread) / "node_modules/a/lib/a.js").read_text() == "a"
    (site.project / ".env").chmod(0)
    words[words.index(thread)] = other = site.start()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be copied" in done.stderr and f"{site.project / '.env'}" in done.stderr
    assert not site.worktree(other).exists()


def test_a_link_stays_if_it_leads_to_a_file_that_the_user_cannot_change(site: Site, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has files of another user")
    for name, owner, mode in (("theirs", 12345, 0o444), ("open", 12345, 0o446), ("own", 0, 0o444)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, owner, owner)
        (site.modules / name).symlink_to(tmp_path / name)
    thread = site.start()
    words = ["uwf", "--root", str(site.root), "thread", "step", thread, "--agent", acts("true")]
    subprocess.run([*obeying_modes(), *words], capture_output=True, check=True)
    copied = site.worktree(thread) / "node_modules"
    assert sorted(path.name for path in copied.iterdir()) == ["a", "theirs"]


def test_a_folder_that_holds_the_worktree_itself_is_copied_once(uwf: Uwf, tmp_path: Path) -> None:
    root = tmp_path / "project/node_modules/root"
    root.mkdir(parents=True)
    site = Site(uwf, root, tmp_path / "project")
    site.copies("node_modules")
    thread = site.start()
    site.step(thread)
    copied = site.worktree(thread) / "node_modules"
    assert (copied / "a/lib/a.js").read_text() == "a"
    assert list((copied / "root/workspaces").iterdir()) == []


def test_a_large_copy_is_named_where_its_blocks_are_not_shared(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uwf_git.workspaces.setup._LARGE", 10_000_000)
    (site.modules / "large").write_bytes(bytes(60_000_000))
    target, lines = site.root / "target", list[str]()
    target.mkdir()
    settings = WorkspaceSettings(copy=("node_modules",))
    set_up(target, site.project, settings, ThreadId("0" * 26), Secrets({}), lines.append)
    (line,) = lines
    assert line.startswith("0.1 GB were copied to the worktree of thread 000")


def test_copying_takes_no_longer_than_the_timeout(site: Site) -> None:
    target = site.root / "target"
    target.mkdir()
    thread = site.start()
    (site.root / "config.yaml").write_text("workspace: {copy: [node_modules], timeout: 0.000000001}\n")
    error = site.uwf("--root", site.root, "thread", "step", thread, "--agent", acts("true"), check=1).error
    assert "takes too long" in error["message"] and "workspace.timeout" in error["hint"]
    assert not site.worktree(thread).exists()


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_a_copy_takes_no_room_where_the_file_system_shares_blocks(
    uwf: Uwf, tmp_path: Path, kind: str
) -> None:
    disk = Disk(tmp_path, kind)
    try:
        site = Site(uwf, disk.path / "root", disk.path / "project")
        site.copies("node_modules", "big")
        content = os.urandom(1 << 20) * 40
        (site.project / "big").write_bytes(content)
        thread = site.start()
        before = used(disk.path)
        site.step(thread)
        copied = site.worktree(thread) / "big"
        assert copied.read_bytes() == content
        assert used(disk.path) - before < len(content) / 2
        with copied.open("r+b") as file:
            file.write(b"evil")
        assert copied.read_bytes() == b"evil" + content[4:]
        assert (site.project / "big").read_bytes() == content
    finally:
        disk.close()


def used(folder: Path) -> int:
    """Bytes that are in use on a file system."""
    os.sync()
    room = os.statvfs(folder)
    return (room.f_blocks - room.f_bfree) * room.f_frsize
