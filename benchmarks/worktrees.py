"""Worktrees of threads, against git's own commands in equal worktrees."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from measure import disk, fastest, spent
from rows import Row, Size, compared, cost
from stores import Lab

from uwf_git.engine.step import step
from uwf_git.format.credit import Credit
from uwf_git.format.ids import ThreadId
from uwf_git.kit import Context, create_agent
from uwf_git.workspaces.choice import assign
from uwf_git.workspaces.options import parse_option
from uwf_git.workspaces.project import work_ref
from uwf_git.workspaces.step_workspace import Maker, StepWorkspace, workspace_of

ANSWER = '{"status": "done", "note": "measured"}'
FILES, LINES = 5000, 40
CODE = 1000  # files of a project of usual size
_RACY = 1.1  # seconds in which git reads a file again that is as old as the index


def _git(*words: object) -> str:
    done = subprocess.run(["git", *map(str, words)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _project(folder: Path, files: int) -> Path:
    """A repository with so many files of a kilobyte or two, in folders of fifty."""
    path = folder / "project"
    path.mkdir(parents=True)
    _git("init", "-q", "-b", "main", path)
    for number in range(files):
        place = path / f"d{number // 50:03d}"
        place.mkdir(exist_ok=True)
        text = "".join(f"value_{number}_{line} = {number * line}\n" for line in range(LINES))
        (place / f"f{number}.py").write_text(text)
    _git("-C", path, "add", "-A")
    _git("-C", path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    return path


class _Site:
    def __init__(self, folder: Path, size: Size, files: int = FILES) -> None:
        self.project = _project(folder, files if size.turns > 2 else 100)
        self.folder = folder
        self.lab = Lab(folder / "store")
        os.environ |= {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
        os.environ |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}

    def thread(self, workspace: str = "worktree") -> ThreadId:
        thread = self.lab.start()
        if workspace == "worktree":
            assign(self.lab.instance, thread, parse_option(f"worktree:{self.project}"), self.project)
        return thread

    def workspace(self, thread: ThreadId) -> StepWorkspace:
        threads = self.lab.instance.threads
        found = workspace_of(self.lab.instance, threads.position(threads.head(thread)))
        assert found is not None
        return found

    def prepared(self, thread: ThreadId) -> StepWorkspace:
        found = self.workspace(thread)
        found.prepare(None, lambda: False)
        return found


def setting_up(folder: Path, size: Size) -> Iterator[Row]:
    """A thread's first step, up to its agent, against git's own `worktree add`; the processor's time of both."""
    site, numbers = _Site(folder, size), iter(range(1000))

    def plain() -> None:
        name = f"plain{next(numbers)}"
        _git("-C", site.project, "worktree", "add", "-q", "-b", name, folder / name)

    threads = [site.thread() for _ in range(size.few_turns + 1)]
    ours, git = fastest(size.few_turns, spent(lambda: site.prepared(threads.pop())), spent(plain))
    files = len(_git("-C", site.project, "ls-files").splitlines())
    yield compared(f"CPU of the set-up of a worktree of {files} files / git worktree add", ours, git, 1.2)


def recording(folder: Path, size: Size) -> Iterator[Row]:
    """The code of a step, against `git add -A` and `git commit` of the same; the processor's time of both."""
    projects = ((CODE, (1, 20)), (FILES, (1, 1000))) if size.turns > 2 else ((CODE, (1,)),)
    for files, changes in projects:
        place = folder / str(files)
        place.mkdir(parents=True)
        site = _Site(place, size, files)
        for changed in changes:
            yield _recorded(place, site, size, files, changed)


def _recorded(folder: Path, site: _Site, size: Size, files: int, changed: int) -> Row:
    plain, thread = folder / f"plain{changed}", site.thread()
    _git("-C", site.project, "worktree", "add", "-q", "-b", plain.name, plain)
    mine = site.lab.root / "workspaces" / thread
    site.prepared(thread)
    work, base = site.workspace(thread), _git("-C", mine, "rev-parse", "HEAD")
    rounds = iter(range(100_000))

    def change(place: Path) -> None:
        number = next(rounds)
        for path in sorted(place.glob("d*/*.py"))[:changed]:
            with path.open("a") as file:
                file.write(f"# {number}\n")

    def git() -> None:
        _git("-C", plain, "add", "-A")
        _git("-C", plain, "-c", "gc.auto=0", "commit", "-q", "--no-verify", "-m", "step")

    acts = (mine, lambda: work.record(base, Maker("worker", Credit("uwf-exec")))), (plain, git)
    best = [float("inf"), float("inf")]
    for _ in range(size.few_turns + 1):
        for number, (where, act) in enumerate(acts):
            time.sleep(_RACY)
            change(where)
            best[number] = min(best[number], spent(act)())
    what = f"CPU of recording {changed} changed of {files} files / git add -A, git commit"
    return compared(what, *best, 1.2)


def unchanged(folder: Path, size: Size) -> Iterator[Row]:
    """A step that changes nothing: the processor's time of all of it, and over the same step in a shared folder."""
    site = _Site(folder, size, CODE)
    agent = create_agent("idle", lambda ctx: _answer(ctx))
    separate, shared = site.thread(), site.thread("shared")
    step(site.lab.instance, separate, agent)
    time.sleep(_RACY)
    step(site.lab.instance, separate, agent)

    def made(thread: ThreadId) -> None:
        step(site.lab.instance, thread, agent, None if thread == separate else site.project)

    mine, plain = fastest(size.turns, spent(lambda: made(separate)), spent(lambda: made(shared)))
    yield cost(f"CPU of a step that changes nothing in a worktree of {CODE} files", mine, 0.015)
    yield cost("CPU of a step that changes nothing, over one in a shared folder", mine - plain, 0.015)


def _answer(_: Context) -> str:
    return ANSWER


def side_by_side(folder: Path, size: Size) -> Iterator[Row]:
    """Fifty threads that write at once: edits outside of their own worktree, and what all of it takes of the disk."""
    site = _Site(folder, size)
    count = 50 if size.turns > 2 else 4
    before = _digest(site.project)
    objects = disk(site.project / ".git")[1]
    plain = folder / "plain"
    _git("-C", site.project, "worktree", "add", "-q", "-b", "plain", plain)
    one = disk(plain)[1] + disk(site.project / ".git/worktrees/plain")[1]
    threads = [site.thread() for _ in range(count)]

    def write(ctx: Context) -> str:
        for number, path in enumerate(sorted(ctx.cwd.glob("d*/*.py"))[:20]):
            path.write_text(f"{ctx.thread} {number}\n")
        return ANSWER

    agent = create_agent("writes", write)
    waiting = list(threads)

    def work() -> None:
        from uwf_git.store.instance import Instance

        instance = Instance(site.lab.location, {})
        while waiting:
            step(instance, waiting.pop(), agent)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    foreign = int(_digest(site.project) != before)
    for thread in threads:
        branch = work_ref(thread)
        listed = _git("-C", site.project, "diff", "--name-only", f"main..{branch}").splitlines()
        texts = {_git("-C", site.project, "show", f"{branch}:{path}").split()[0] for path in listed}
        foreign += texts != {thread}
        root = site.lab.root / "workspaces" / thread
        written = sorted(root.glob("d*/*.py"))
        foreign += sum(
            path.read_text().split()[0] not in (thread, f"value_{path.stem[1:]}_0") for path in written
        )
    yield Row(f"{count} threads at once: edits outside of their own worktree", foreign, "", None, 0)
    trees = sum(disk(site.lab.root / "workspaces" / thread)[1] for thread in threads)
    grown = disk(site.project / ".git")[1] - objects
    yield Row(
        f"the disk of {count} worktrees and their commits / git's worktrees alone",
        (trees + grown) / 1e6,
        "MB",
        count * one / 1e6,
        1.2,
    )


def _digest(project: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(project.glob("d*/*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
