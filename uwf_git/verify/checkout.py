"""A checkout of any repository, perhaps a stranger's: which commit is checked out, and what its folder holds.

No program that its configuration names is run: no hook, filter or file system monitor, no helper that fetches what a
partial clone left out. So its owner may be anybody: git asks for the owner of a repository that it finds, and here its
folder is named. Nothing is written into it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Invalid, NotFound, NothingToVerify, RemoteFailed, StoreDamaged
from uwf_git.base.text import one_line
from uwf_git.format.ids import ThreadId
from uwf_git.git.foreign import ForeignRepository
from uwf_git.git.program import CallResult, Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.git.worktree import folders_beside
from uwf_git.store import layout
from uwf_git.store.location import checkout_around
from uwf_git.verify.branch_names import HEADS, Branch

# A partial clone must not fetch: git knows the first variable since 2.44; without it, the second makes the fetch fail.
_LOCAL = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"}
_SECONDS = 60.0
# Files that git reads, and would wait for if they were pipes.
_READ = ("HEAD", "config", "config.worktree", "commondir", "index", "packed-refs", "shallow", "info/grafts")


class OpenCheckout(NamedTuple):
    """A checkout: its folder, None for a bare repository, its git directory and its objects."""

    top: Path | None
    git_dir: Path
    repository: Repository

    def git(self, *args: str, at_most: int = -1) -> CallResult:
        """Run git, which must only read, and at most print so many bytes. Raises StoreDamaged if it takes too long."""
        variables = _LOCAL if self.top is None else {**_LOCAL, "GIT_WORK_TREE": str(self.top)}
        git = Git(self.git_dir, cwd=self.top, variables=variables, seconds=_SECONDS)
        try:
            return git.run(*args, check=False, at_most=at_most)
        except RemoteFailed as error:
            raise StoreDamaged(f"{self.git_dir} cannot be read: {error.message}", error.hint) from None

    def branch(self, revision: str, branch: str = "") -> Branch:
        """Return the branch that a revision names, and for HEAD the one that is checked out. Another commit may be
        what a forge made of `branch`."""
        of = f"{HEADS}{branch.removeprefix(HEADS)}" if branch else ""
        if revision == "HEAD":
            name = self.git("symbolic-ref", "--quiet", "HEAD").out.decode("utf-8", "replace").strip()
            if name.startswith(HEADS):
                return Branch(revision, name)
            return Branch(revision, of, merged=True)
        for ref in _candidates(revision):
            if self.git("show-ref", "--verify", "--quiet", "--", ref).code == 0:
                return Branch(revision, _published_as(ref), at=ref)
        return Branch(revision, of, merged=True)

    def commit(self, branch: Branch) -> Oid:
        """Return the commit of a branch, tag, id or other revision. Raises NotFound, Invalid."""
        wanted = f"{branch.at or branch.name}^{{commit}}"
        done = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", wanted)
        oid = done.out.decode("ascii", "replace").strip()
        if done.code != 0 or not oid:
            if branch.name == "HEAD" and not self.git("rev-list", "--all", "--max-count=1").out.strip():
                raise NothingToVerify(f"{self.git_dir} has no commits", "fetch them: git fetch")
            raise NotFound(
                f"no branch, tag or commit {one_line(branch.name, 80)!r} in {self.git_dir}",
                "see: git branch --all; is it fetched?",
            )
        if len(oid) != 40:
            raise Invalid(f"{self.git_dir} does not use SHA-1", "uwf publishes to SHA-1 repositories only")
        return Oid(hex=oid)

    def heads(self, branch: Branch) -> dict[ThreadId, list[Oid]]:
        """Return the head that the refs of the thread of a branch have, as far as they were fetched: its end, if it has
        one."""
        thread = branch.thread
        if thread is None:
            return {}
        refs = (layout.ARCHIVE + thread, layout.THREADS + thread)
        results = [
            self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
            for ref in refs
        ]
        oids = [done.out.decode("ascii", "replace").strip() for done in results if done.code == 0]
        return {thread: [Oid(hex=oid) for oid in oids if len(oid) == 40][:1]}


def _candidates(name: str) -> tuple[str, ...]:
    """Return the refs that a name may stand for, branches first: a store has refs/uwf/threads/… too."""
    return f"{HEADS}{name}", f"refs/remotes/{name}", f"refs/tags/{name}", f"refs/{name}", name


def _published_as(ref: str) -> str:
    """Return the branch of a remote, by its full name, that a tracking branch or a ref of a store is published as."""
    if ref.startswith("refs/remotes/"):
        return HEADS + ref.removeprefix("refs/remotes/").partition("/")[2]
    if ref.startswith(layout.ARCHIVE):
        return f"{layout.BRANCHES}threads/{layout.thread_of(ref)}"
    return layout.BRANCHES + ref.removeprefix(layout.NAMESPACE) if ref.startswith(layout.NAMESPACE) else ref


def open_checkout(path: Path) -> OpenCheckout:
    """Return the checkout around a folder, or the bare repository that it is. Raises NotFound, Invalid for a
    folder whose repository knows nothing of it, StoreDamaged."""
    folder = path.absolute()
    checkout = checkout_around(folder) if folder.is_dir() else None
    if checkout is None:
        raise NotFound(
            f"no git repository around {path}", "give the folder of a checkout, or a branch's name"
        )
    if (
        checkout.top is not None
        and (checkout.top / ".git").is_file()
        and not any(folders_beside(checkout.top))
    ):
        raise Invalid(
            f"{checkout.top / '.git'} names the repository {checkout.common},"
            " which does not name this folder as its own",
            f"verify the repository by itself: uwf verify {checkout.common}",
        )
    for path in (folder / name for folder in {checkout.git_dir, checkout.common} for name in _READ):
        if path.exists() and not path.is_file():
            raise StoreDamaged(f"{path} is not a regular file", "move it away")
    return OpenCheckout(checkout.top, checkout.git_dir, ForeignRepository(checkout.common))
