"""A bare repository with what uwf published, as a forge has it, and clones of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from forged import WORKFLOW, Forger, stepped
from workflows import start_thread

from uwf_git.format.ids import ThreadId
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


class Clone:
    """A working copy: a call is git in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *args: str, check: bool = True, data: bytes | None = None) -> str:
        command = ["git", "-c", "protocol.file.allow=always", "-C", str(self.folder), *args]
        done = subprocess.run(command, input=data, capture_output=True, check=False)
        assert not check or done.returncode == 0, (args, done.stderr.decode())
        return done.stdout.decode("utf-8", "replace").strip()

    def edits(self, path: str, old: str, new: str) -> None:
        """Replaces text of a file, which must be there."""
        file = self.folder / path
        text = file.read_text()
        assert old in text, path
        file.write_text(text.replace(old, new))

    def commits(self, message: str = "fix", *options: str) -> str:
        """Commits all that changed in the folder; the commit."""
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", message, *options)
        return self("rev-parse", "HEAD")

    @property
    def tree(self) -> str:
        return self("rev-parse", "HEAD^{tree}")


class Forge(Clone):
    """A bare repository that others clone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir()
        self("init", "-q", "--bare", "-b", "main")

    def cloned(self, name: str, *options: str, branch: str = "") -> Clone:
        """A clone beside the forge's folder, with a branch checked out."""
        folder = self.folder.with_name(name)
        chosen = ["-b", branch] if branch else []
        command = ["git", "clone", "-q", *chosen, *options, f"file://{self.folder}", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        return Clone(folder)

    def merges(self, base: str, head: str, how: str = "merge") -> str:
        """Merges a branch into another as a forge does: the commit. `how` is merge, squash, kept for a squash with the
        messages of what it squashes, rebase, or test for the commit that a forge makes to try a pull request:
        refs/pull/1/merge."""
        clone = self.cloned(f"{self.folder.name}-merging-{how}", branch=base)
        clone("fetch", "-q", "origin", head)
        if how in ("merge", "test"):
            clone("merge", "-q", "--no-ff", "-m", f"Merge {head} into {base}", "FETCH_HEAD")
        elif how in ("squash", "kept"):
            messages = clone("log", "--reverse", "--format=* %B", "HEAD..FETCH_HEAD") if how == "kept" else ""
            clone("merge", "-q", "--squash", "FETCH_HEAD")
            clone.commits(f"Squashed (#1)\n\n{messages}")
        else:
            clone("checkout", "-q", "-B", "rebased", "FETCH_HEAD")
            clone("rebase", "-q", "--force-rebase", f"origin/{base}")
        target = "refs/pull/1/merge" if how == "test" else f"refs/heads/{base}"
        clone("push", "-q", "origin", f"HEAD:{target}")
        return clone("rev-parse", "HEAD")


def thread_of(instance: Instance, steps: int = 2, prompt: str = "tides") -> Head:
    """A thread of WORKFLOW with so many steps."""
    head = instance.threads.head(start_thread(instance, WORKFLOW, prompt))
    outputs = (("writer", {"title": "T"}), ("critic", {"approved": False}))
    for number in range(steps):
        head = stepped(instance, head, *outputs[number % 2])
    return head


def published(instance: Instance, forge: Forge, steps: int = 2) -> Head:
    """A thread on the forge, published as uwf does it."""
    head = thread_of(instance, steps)
    base = Forger(instance.location.git_dir)("rev-list", "--max-parents=0", str(head.commit))
    pushed = (
        f"{head.commit}:refs/heads/uwf/threads/{head.thread}",
        f"{base}:refs/heads/uwf/base/{head.thread}",
    )
    Forger(instance.location.git_dir)("push", "-q", str(forge.folder), *pushed)
    return head


def published_again(instance: Instance, forge: Forge, kept: Path) -> Head:
    """As `published` with four steps. The first is kept, and copied into the empty store and forge from then on."""
    stores = ((instance.location.git_dir, kept / "store.git"), (forge.folder, kept / "forge.git"))
    thread = kept / "thread"
    if not thread.exists():
        head = published(instance, forge, 4)
        for folder, copy in stores:
            shutil.copytree(folder, copy)
        thread.write_text(head.thread)
        return head
    for folder, copy in stores:
        shutil.copytree(copy, folder, dirs_exist_ok=True)
    return instance.threads.head(ThreadId(thread.read_text()))
