"""A fleet thread's own working folder on this machine.

    worktree:PROJECT[@REVISION]  a git worktree of a project, `<storage root>/workspaces/<ULID>`, on the thread's branch
    folder:DIR                   DIR/<ULID>

A thread's branch is `refs/heads/uwf/work/<ULID>` of the project. It begins at REVISION, by default the
project's HEAD at the thread's first step; a fork's begins at its last step's commit. After each step the
changes are committed with `Uwf-Step` in the message. With a remote of the project the branch is fetched
before and pushed after each step, so any machine can continue. When the thread ends the worktree is removed
and the branch stays.

An agent may leave a repository in the worktree. Git would enter it, run commands of its configuration as the
user, and commit it as a submodule. So no git looks at a worktree's files while there is one, and the worktree
stays as it is; except in ignored folders without tracked files, such as installed packages, which git skips.
Submodules' folders must stay as empty as they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import NotFound, RemoteFailed, Usage, UwfError
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.program import PATIENCE, Git
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.store.location import enclosing_repository

WORKTREE, FOLDER = "worktree", "folder"
TRAILER = "Uwf-Step"
_BRANCHES = "refs/heads/uwf/work/"
_LINK = "160000"  # the mode of a submodule
_LINE = 1 << 13  # characters that are read of a worktree's `.git`
_HINT = "worktree:PROJECT, worktree:PROJECT@REVISION or folder:DIR"


class WorkspaceOption(NamedTuple):
    """A workspace option: worktrees of the project `place` at a `revision` ("" for HEAD) with its `remote`
    ("" for none), or folders in `place`, an absolute path."""

    kind: str
    place: Path
    revision: str = ""
    remote: str = ""

    def text(self) -> str:
        return f"{self.kind}:{self.place}" + (f"@{self.revision}" if self.revision else "")


def parse_wanted(text: str, remote: str = "") -> WorkspaceOption:
    """Parse --workspace and --workspace-remote. Raises Usage, NotFound."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in (WORKTREE, FOLDER) or not rest:
        raise Usage(f"--workspace {text!r} is not a workspace", f"it is {_HINT}")
    place, revision = Path(rest).expanduser().absolute(), ""
    if kind == FOLDER:
        if remote:
            raise Usage(
                "a folder has no branch to exchange with a remote", "use --workspace worktree:PROJECT"
            )
        return WorkspaceOption(kind, place)
    if not place.exists() and "@" in rest:
        path, _, revision = rest.rpartition("@")
        place = Path(path).expanduser().absolute()
    wanted = WorkspaceOption(kind, place, revision, remote)
    project = _project(wanted)
    start = revision or "HEAD"
    if project.run("rev-parse", "--verify", "-q", f"{start}^{{commit}}", check=False).code != 0:
        raise NotFound(f"project {place} has no commit {start}", "name a revision that it has")
    if remote and project.run("config", "--get", f"remote.{remote}.url", check=False).code != 0:
        raise NotFound(f"project {place} has no remote {remote}", f"git -C {place} remote -v")
    return wanted


def _project(wanted: WorkspaceOption) -> Git:
    place = wanted.place
    found = enclosing_repository(place) if place.is_dir() else None
    if found is None and (place / "HEAD").is_file() and (place / "objects").is_dir():
        found = place
    if found is None:
        raise NotFound(f"{place} is not a git repository", f"git init {place}, or --workspace folder:DIR")
    return Git(found, patience=PATIENCE)


class Workspaces:
    """The workspaces of threads on this machine. Raises RemoteFailed for git's refusals, and for repositories
    left in a worktree."""

    def __init__(self, instance: Instance, wanted: WorkspaceOption) -> None:
        self._instance = instance
        self._wanted = wanted
        self._home = instance.location.root / "workspaces"

    def prepare(self, head: Head) -> Path:
        """Return the folder of a thread's next step, made if needed."""
        if self._wanted.kind == FOLDER:
            folder = self._wanted.place / head.thread
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        folder, branch = self._home / head.thread, _BRANCHES + head.thread
        project = _project(self._wanted)
        self._fetch(project, head.thread)
        if (tree := _worktree(project, folder)) is None:
            if project.run("rev-parse", "--verify", "-q", branch, check=False).code != 0:
                start = self._theirs(project, head.thread) or self._start(project, head)
                project.run("update-ref", branch, start)
            project.run("worktree", "prune")
            folder.parent.mkdir(parents=True, exist_ok=True)
            project.run("worktree", "add", "-q", "--force", str(folder), branch.removeprefix("refs/heads/"))
        else:
            self._unlock(tree, head.thread)
            if theirs := self._theirs(project, head.thread):
                _follow(tree, folder, theirs, branch)
        return folder

    def keep(self, head: Head) -> None:
        """Commit the last step's changes on the thread's branch."""
        if self._wanted.kind == FOLDER:
            return
        project = _project(self._wanted)
        tree = _worktree(project, self._home / head.thread)
        if tree is None:
            return
        self._unlock(tree, head.thread)
        self._commit(tree, head)
        if self._wanted.remote:
            branch = _BRANCHES + head.thread
            project.run("push", "-q", "--no-verify", self._wanted.remote, f"{branch}:{branch}")

    def _unlock(self, tree: Git, thread: ThreadId) -> None:
        if self._instance.locks.is_held(thread):
            return
        branch = tree.git_dir.parent.parent / f"{_BRANCHES}{thread}.lock"
        for lock in (tree.git_dir / "index.lock", tree.git_dir / "HEAD.lock", branch):
            with contextlib.suppress(OSError):
                lock.unlink()
                log.warning(
                    "K4T9WQ2X", "a git that was killed has left {lock}, which is removed", lock=str(lock)
                )

    def _commit(self, tree: Git, head: Head) -> None:
        _check(tree, self._home / head.thread)
        tree.run("add", "-A")
        user = self._instance.store.repository.config.user
        message = (
            f"{head.row.role}: step {head.row.number} of thread {head.thread}\n\n{TRAILER}: {head.node}\n"
        )
        if tree.run("diff", "--cached", "--quiet", check=False).code != 0:
            tree.run(
                *(
                    "-c",
                    f"user.name={user.name}",
                    "-c",
                    f"user.email={user.email}",
                    "-c",
                    "commit.gpgSign=false",
                ),
                *("commit", "-q", "--no-verify", "-F", "-"),
                stdin=message.encode("utf-8", "replace"),
            )
        branch = _BRANCHES + head.thread
        # Wherever the agent's HEAD is, the thread's branch points at it.
        if tree.run("symbolic-ref", "-q", "HEAD", check=False).out.decode().strip() != branch:
            tree.run("checkout", "-q", "--no-recurse-submodules", "-B", branch.removeprefix("refs/heads/"))

    def leave(self, thread: ThreadId) -> None:
        """Remove an ended thread's worktree, not its branch."""
        if self._wanted.kind == WORKTREE:
            project = _project(self._wanted)
            folder = self._home / thread
            if (tree := _worktree(project, folder)) is not None:
                _check(tree, folder)
                project.run("worktree", "remove", "--force", str(folder))

    def tidy(self) -> list[ThreadId]:
        """Remove the workspaces of ended and removed threads, committing pending changes; return the threads.
        Failures are warnings."""
        if self._wanted.kind == FOLDER or not self._home.is_dir():
            return []
        threads = self._instance.threads
        ended = [
            ThreadId(path.name)
            for path in self._home.iterdir()
            if is_thread_id(path.name)
            and (not threads.exists(ThreadId(path.name)) or threads.has_ended(ThreadId(path.name)))
            and not self._instance.locks.is_held(ThreadId(path.name))
        ]
        left: list[ThreadId] = []
        for thread in ended:
            try:
                tree = _worktree(_project(self._wanted), self._home / thread)
                if tree is not None and threads.exists(thread):
                    self._commit(tree, threads.head(thread))
                self.leave(thread)
            except UwfError as error:
                self._instance.warn(f"{error.message}; {error.hint}")
            else:
                left.append(thread)
        return left

    def _fetch(self, project: Git, thread: ThreadId) -> None:
        if remote := self._wanted.remote:
            # A pattern, since a missing branch is not an error.
            name = f"{_BRANCHES}{thread}"
            project.run("fetch", "-q", "--no-tags", remote, f"+{name}*:{_tracking(remote, thread)}*")

    def _theirs(self, project: Git, thread: ThreadId) -> str:
        if not self._wanted.remote:
            return ""
        name = _tracking(self._wanted.remote, thread)
        return project.run("rev-parse", "--verify", "-q", name, check=False).out.decode().strip()

    def _start(self, project: Git, head: Head) -> str:
        revision = f"{self._wanted.revision or 'HEAD'}^{{commit}}"
        if head.row.number:
            made = dict(_steps(project))
            for past in self._instance.threads.past(head.node) if made else ():
                if past.hash in made:
                    return made[past.hash]
        return project.run("rev-parse", "--verify", revision).out.decode().strip()


def _steps(project: Git) -> Iterable[tuple[str, str]]:
    form = f"%H %(trailers:key={TRAILER},valueonly,separator=%x20)"
    listed = project.run("log", f"--glob={_BRANCHES}*", f"--format={form}", f"--grep=^{TRAILER}: ").out
    for line in listed.decode("ascii", "replace").splitlines():
        commit, *steps = line.split()
        for step in steps:
            yield step, commit


def _tracking(remote: str, thread: ThreadId) -> str:
    return f"refs/remotes/{remote}/uwf/work/{thread}"


def _worktree(project: Git, folder: Path) -> Git | None:
    own = project.git_dir / "worktrees" / folder.name
    return Git(own, cwd=folder) if own.is_dir() and folder.is_dir() else None


def _check(tree: Git, folder: Path) -> None:
    from uwf_git.sandbox.repositories import nested
    from uwf_git.sandbox.results import ToolFailure, shown

    own, again = folder / ".git", "the next attempt keeps it"
    says = ""
    try:
        found = nested(folder)
        # git would refuse to remove it, and the next step would work elsewhere.
        if own.is_file() and not own.is_symlink():
            with own.open(encoding="utf-8", errors="surrogateescape") as file:
                says = file.read(_LINE)
        led = Path(says.removeprefix("gitdir:").strip() or "/").resolve()
    except ToolFailure as failure:
        raise RemoteFailed(
            f"workspace {folder} is not kept: {failure.message}", f"tidy it; {again}"
        ) from None
    except (OSError, ValueError) as error:
        raise RemoteFailed(f"workspace {folder} is not kept: {error}", f"tidy it; {again}") from None
    kept = _indexed(tree)
    if found := _entered(tree, found, kept):
        path = shown("/".join(found[0]))
        raise RemoteFailed(
            f"workspace {folder} is not kept: it has a git repository of its own, {path}",
            f"move {path} out of it, or remove it; {again}",
        )
    for module in (name for name, mode in kept.items() if mode == _LINK):
        if any(not each.is_dir() or each.is_symlink() for each in (folder / module).rglob("*")):
            path = shown(module)
            raise RemoteFailed(
                f"workspace {folder} is not kept: there are files in the folder of submodule {path}",
                f"move them out of {path}; {again}",
            )
    if led != tree.git_dir.resolve():
        project = tree.git_dir.parent.parent
        raise RemoteFailed(
            f"workspace {folder} is not kept: its .git has changed",
            f"move that away, and git -C {project} worktree repair; {again}",
        )


def _indexed(tree: Git) -> dict[str, str]:
    rows = tree.run("ls-files", "--stage", "-z").out.decode("utf-8", "surrogateescape").split("\0")
    return {path: row.partition(" ")[0] for row in rows for _, tab, path in (row.partition("\t"),) if tab}


def _entered(tree: Git, found: Collection[tuple[str, ...]], kept: Mapping[str, str]) -> list[tuple[str, ...]]:
    if not found:
        return []
    folders = {"/".join(parts[:-1]) for parts in found}
    # From `./` on, since git takes a path that begins with a colon for a pattern.
    asked = "".join(f"./{each}\0" for each in sorted(folders)).encode("utf-8", "surrogateescape")
    said = tree.run("check-ignore", "-z", "--stdin", stdin=asked, check=False).out
    ignored = {each.removeprefix("./") for each in said.decode("utf-8", "surrogateescape").split("\0")}
    above = {path[:at] for path in kept for at in range(len(path)) if path[at] == "/"} | kept.keys()
    links = {path for path, mode in kept.items() if mode == _LINK}

    def passes(folder: str) -> bool:
        steps = folder.split("/")
        within = {"/".join(steps[:size]) for size in range(1, len(steps) + 1)}
        return folder in ignored and folder not in above and not within & links

    return [parts for parts in found if not passes("/".join(parts[:-1]))]


def _follow(tree: Git, folder: Path, theirs: str, branch: str) -> None:
    ours = tree.run("rev-parse", "HEAD").out.decode().strip()
    if ours == theirs or tree.run("merge-base", "--is-ancestor", theirs, ours, check=False).code == 0:
        return
    if tree.run("merge-base", "--is-ancestor", ours, theirs, check=False).code != 0:
        kept = f"{branch}-{ours[:12]}"
        tree.run("update-ref", kept, ours)
        log.warning(
            "W7NQ4XKD", "what was left here of a step that lost its race is kept as {kept}", kept=kept
        )
    _check(tree, folder)
    tree.run(
        "checkout", "-q", "-f", "--no-recurse-submodules", "-B", branch.removeprefix("refs/heads/"), theirs
    )
    tree.run("clean", "-q", "-f", "-d")
