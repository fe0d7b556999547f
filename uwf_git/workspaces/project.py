"""A project's repository, which is the user's. Only these change in it:

    refs/uwf/work/<ULID>               the newest code of a thread, no branch; `uwf/work/<ULID>` for git's commands
    refs/uwf/local/work/<ULID>/<n>     older code that is no part of that; what failed attempts and steps that
                                       don't count left; own-<n>: what its agents keep in branches and stashes, and
                                       the user's stash while an agent works in the checkout itself
    refs/uwf/local/remotes/<remote>/<ULID>   the code of a thread as a remote last had it
    uwf-worktrees/<ULID>               the git directory of a thread's worktree

The user's branches, index, stash and files are read at most, but what an agent in the checkout itself took out of
the stash is put back. No hooks of the repository run. Filters run if
the user's own configuration defines them, or if they are Git LFS; those of the repository's configuration may
be programs in a worktree, so projects that use them are refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base import system
from uwf_git.base.errors import Declined, Invalid, NotFound, RemoteFailed, UwfError, WorkspaceFailed
from uwf_git.base.text import listed, one_line
from uwf_git.format.ids import ThreadId
from uwf_git.git.fsync import make_folders, sync
from uwf_git.git.lockfiles import lockfiles_of
from uwf_git.git.objects import Oid, Person
from uwf_git.git.program import CHECK_ADDRESS, NO_HOOKS, PATIENCE, CallResult, Git, failure
from uwf_git.git.ref_transactions import RefFiles
from uwf_git.sandbox.programs import find_program
from uwf_git.store import layout
from uwf_git.store.location import Checkout, checkout_around, first_line
from uwf_git.store.remotes import without_password
from uwf_git.workspaces.file_times import states

KEPT = "refs/uwf/local/work/"
TRACKING = "refs/uwf/local/remotes/"
MOVED = "in the folder where it is now: uwf thread step ID --cwd FOLDER"
NO_REPOSITORY = "uwf run … --workspace shared works in the folder itself"
_LFS = re.compile(r"git-lfs (?:(?:clean|smudge(?: --skip)?)(?: -- %f)?|filter-process(?: --skip)?)")
_PROGRAM = re.compile(
    r"(?:/[\w./+-]+|[\w.+-]+)(?=\s|$)"
)  # of a command, unless a shell or a folder is needed
_SHA1 = 40  # letters of an id
_URL = re.compile(r"[!-~]{1,1000}")
_FILTERS = re.compile(
    r"^filter\..*\.(clean|smudge|process)$|^lfs\..*(extension|customtransfer|standalonetransferagent)",
    re.DOTALL,
)
_QUIET = tuple(
    word
    for setting in (
        "gc.auto=0",
        "maintenance.auto=false",
        "core.fsyncMethod=batch",
        "core.splitIndex=false",
        "core.safecrlf=false",  # files are read as they are; how their lines end is for core.autocrlf
        "add.ignoreErrors=false",
        "submodule.recurse=false",  # git would run in the folders of submodules
        "log.showSignature=false",  # and the program that the configuration names
    )
    for word in ("-c", setting)
)


_FETCH = ("fetch", "-q", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")

_PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")

_MOVED = re.compile(
    r"stale info|fetch first|non-fast-forward|cannot lock ref|failed to update ref|incorrect old value|already exists"
)
"""Why git doesn't push to a branch that moved meanwhile."""

_rule_files: dict[Path, dict[str, list[int]]] = {}
"""The files of `Project.rule_files`, by project, with their states."""


class Setting(NamedTuple):
    """A setting of git; `value` is None if it has none. `is_own`: it is in the repository's own configuration."""

    key: str
    value: str | None
    is_own: bool


def _id_in(path: Path) -> str:
    text = first_line(path)
    return text if len(text) in (40, 64) and not text.strip("0123456789abcdef") else ""


def work_ref(thread: str) -> str:
    """Return the ref of a thread's newest code."""
    return layout.WORK + thread


def work_name(thread: str) -> str:
    """Return the short name of `work_ref`, which git's commands take."""
    return work_ref(thread).removeprefix("refs/")


def way_here(thread: str, commit: str, remote: str = "") -> str:
    """Return how a commit gets from the machine that has it into a clone here, by the project's remote, "" if its name
    is unknown."""
    ref, (name, names) = work_ref(thread), remote_in_hint(remote)
    return (
        f"on the machine that has it: git push {name} {commit[:12]}:{ref}; then in a clone here: "
        f"git fetch {name} {ref}{names}"
    )


def remote_in_hint(remote: str, git: str = "git") -> tuple[str, str]:
    """Return a remote's name as a word of a command, and the end of the hint: without a name, the command that lists
    them."""
    return (shlex.quote(remote), "") if remote else ("REMOTE", f" ({git} remote lists them)")


class Project:
    """A project by its repository's git directory. Methods raise WorkspaceFailed for git's refusals, and
    RemoteFailed for its remote's."""

    def __init__(self, common: Path) -> None:
        self.common = common
        self._trees: dict[str, str] = {}

    def git(
        self, git_dir: Path | None = None, cwd: Path | None = None, variables: Mapping[str, str] = {}
    ) -> Git:
        """Return git for a git directory of this repository, by default its own."""
        return Git(git_dir or self.common, cwd=cwd, patience=PATIENCE, variables=variables)

    def run(self, *args: str, stdin: bytes = b"", check: bool = True, git: Git | None = None) -> CallResult:
        if not self.common.is_dir():
            raise WorkspaceFailed(f"project {self.common} was moved or removed", MOVED)
        try:
            return (git or self.git()).run(*_QUIET, *args, stdin=stdin, check=check)
        except RemoteFailed as error:
            raise WorkspaceFailed(
                f"project {self.common}: {error.message}", self._of_project(error).hint
            ) from None

    def _reach(self, *args: str, stdin: bytes = b"", check: bool = True) -> CallResult:
        """Run git for what meets a remote of the project."""
        try:
            return self.git().run(*_QUIET, *args, stdin=stdin, check=check)
        except RemoteFailed as error:
            raise self._of_project(error) from None

    def _of_project(self, error: RemoteFailed) -> RemoteFailed:
        """Return an error whose hint shows the addresses of the project's remotes, not those of the store's."""
        if error.hint == CHECK_ADDRESS:
            error.hint = f"git -C {shlex.quote(str(self.common))} remote -v shows it"
        return error

    def line(self, *args: str, git: Git | None = None) -> str:
        """Return the output of a call that may fail, "" then."""
        done = self.run(*args, check=False, git=git)
        return done.out.decode("utf-8", "replace").strip() if done.code == 0 else ""

    def commit(self, revision: str, git: Git | None = None) -> str:
        """Return the commit of a revision, "" if there is none."""
        return self.line("rev-parse", "--verify", "-q", f"{revision}^{{commit}}", git=git)

    def tree(self, commit: str) -> str:
        """Return the tree of a commit, "" if that is not here."""
        if commit not in self._trees:
            (first, *_) = *self.header(commit), ""
            tree = first.removeprefix("tree ") if first.startswith("tree ") else ""
            tree = tree or self.line("rev-parse", "--verify", "-q", f"{commit}^{{tree}}")
            if not tree:
                return ""
            self._trees[commit] = tree
        return self._trees[commit]

    def settings(self, git: Git | None = None) -> list[Setting]:
        """Return git's settings in the repository."""
        words = ("config", "--includes", "--show-scope", "--show-origin", "-z", "--list")
        texts = self.run(*words, check=False, git=git).out.decode("utf-8", "surrogateescape").split("\0")
        settings, files = [], set()
        for scope, origin, text in zip(texts[::3], texts[1::3], texts[2::3], strict=False):
            key, has_value, value = text.partition("\n")
            settings.append(Setting(key, value if has_value else None, scope in ("local", "worktree")))
            if origin.startswith("file:"):
                files.add(str(self.common / origin.removeprefix("file:")))
        if git is None:
            ignores = [setting.value or "" for setting in settings if setting.key == "core.excludesfile"]
            files |= {os.path.expanduser(path) for path in ignores[-1:]}  # noqa: PTH111
            if any(setting.key.startswith("includeif.onbranch:") for setting in settings):
                files.add(str(self.common / "HEAD"))
            _rule_files[self.common] = states(self._usual_rule_files() | files)
        return settings

    def rule_files(self) -> Iterable[str]:
        """Return the files outside of worktrees in which git looks for settings and ignored files, there or not."""
        known = _rule_files.get(self.common)
        if known is None or states(known) != known:
            self.settings()
        return _rule_files[self.common]

    def _usual_rule_files(self) -> set[str]:
        home = os.path.expanduser("~")  # noqa: PTH111
        users = f"{os.environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git"
        own = {str(self.common / name) for name in ("config", "config.worktree", "info/exclude")}
        return own | {f"{users}/config", f"{users}/ignore", f"{home}/.gitconfig", "/etc/gitconfig"}

    def root(self, commit: str) -> str:
        """Return the first commit of the repository, "" in a shallow clone."""
        if (self.common / "shallow").exists():
            return ""
        return self.line("rev-list", "--max-parents=0", "--first-parent", commit)

    def url(self, remote: str = "") -> str:
        """Return the URL of a remote, by default of origin, or of the only one; "" if none, or if it has
        blanks or other letters than ASCII's. Passwords are left out."""
        listed = self.line("config", "--get-regexp", r"^remote\..*\.url$").splitlines()
        fields = (line.partition(" ") for line in listed)
        named = {name.removeprefix("remote.").removesuffix(".url"): url for name, _, url in fields}
        only = next(iter(named.values())) if len(named) == 1 else ""
        url = without_password(named.get(remote or "origin", "" if remote else only))
        return url if _URL.fullmatch(url) else ""

    def usual_remote(self) -> str:
        """Return `origin` or the only remote, "" if there is none of them."""
        names = self.line("remote").splitlines()
        return "origin" if "origin" in names else names[0] if len(names) == 1 else ""

    def has_remote(self, name: str) -> bool:
        return bool(name and self.line("config", "--get", f"remote.{name}.url"))

    def require_remote(self, name: str) -> None:
        """Raise NotFound if there is no remote of this name."""
        if not self.has_remote(name):
            folder = self.common.parent if self.common.name == ".git" else self.common
            git = f"git -C {shlex.quote(str(folder))}"
            known = f"see: {git} remote; or add it: " if self.line("remote") else ""
            raise NotFound(
                f"project {folder} has no remote {name}", f"{known}{git} remote add {shlex.quote(name)} URL"
            )

    def is_ancestor(self, one: str, other: str, git: Git | None = None) -> bool:
        return self.run("merge-base", "--is-ancestor", one, other, check=False, git=git).code == 0

    def has_merged(self, commit: str) -> bool:
        """Return whether what is checked out has a commit; a detached HEAD may be a thread's own code, unless a
        branch has that too."""
        if not self.is_ancestor(commit, "HEAD"):
            return False
        branches = ("for-each-ref", "--count=1", f"--contains={commit}", "refs/heads", "refs/remotes")
        return self.line("symbolic-ref", "-q", "HEAD") != "" or self.line(*branches) != ""

    def set_ref(self, name: str, commit: str) -> None:
        self.run("update-ref", "--create-reflog", name, commit)

    def ref(self, name: str) -> str:
        """Return the object of a ref, "" if there is none."""
        return self.refs(name)[name]

    def refs(self, *names: str) -> dict[str, str]:
        """Return the objects of refs, "" for those that are not there."""
        objects = {name: _id_in(self.common / name) for name in names}
        if packed := [name for name in names if not objects[name]]:
            listed = ""
            if (self.common / "reftable").exists():
                listed = self.line("for-each-ref", "--format=%(objectname) %(refname)", *packed)
            else:
                with contextlib.suppress(FileNotFoundError):
                    listed = (self.common / "packed-refs").read_text("utf-8", "surrogateescape")
            rows = (line.partition(" ")[::2] for line in listed.splitlines())
            objects |= {name: oid for oid, name in rows if name in packed}
        return objects

    def is_checked_out(self, branch: str) -> bool:
        """Return whether a checkout of the user is on a branch."""
        if (self.common / "reftable").is_dir():  # HEAD is no file there
            return f"branch {branch}" in self.line("worktree", "list", "--porcelain").splitlines()
        heads = (self.common / "HEAD", *self.common.glob("worktrees/*/HEAD"))
        return any(first_line(head) == f"ref: {branch}" for head in heads)

    def raise_if_rewritten(self, branch: str) -> None:
        """Raise WorkspaceFailed if a rebase in one of the user's checkouts will put a branch elsewhere at its end."""
        name = branch.removeprefix("refs/heads/")
        for git_dir in (self.common, *self.common.glob("worktrees/*")):
            if branch in (first_line(git_dir / f"rebase-{how}/head-name") for how in ("merge", "apply")):
                pointer = first_line(git_dir / "gitdir")
                top = Path(pointer).parent if pointer else self.common.parent
                if not top.is_dir():  # and nobody goes on with it
                    continue
                raise WorkspaceFailed(
                    f"branch {name} stays as it is: a rebase of it is going on in {top}",
                    f"finish that, or: git -C {shlex.quote(str(top))} rebase --abort",
                )

    def publish(self, thread: ThreadId, commit: str) -> None:
        """Move `refs/uwf/work/<ULID>` to a commit. If it leads to one that is no part of that, that is kept."""
        ref = work_ref(thread)
        old, moves = self.ref(ref), {}
        if old == commit:
            return
        if old not in ("", *self._parents_of(commit)) and not self.is_ancestor(old, commit):
            moves[f"{KEPT}{thread}/{old[:12]}"] = "", old
        moves[ref] = old, commit
        if not self._move_files(moves):
            lines = "".join(f"update {name} {new}\n" for name, (_, new) in moves.items())
            self.run("update-ref", "--create-reflog", "--stdin", stdin=lines.encode("ascii"))

    def _move_files(self, moves: Mapping[str, tuple[str, str]]) -> bool:
        """Move refs as git does, old and new objects by name, with a line in each one's log; return False if git has
        to: it knows which names collide, and how else refs may be stored."""
        new = next(iter(moves.values()))[1]
        ident = next((line[10:] for line in self.header(new) if line.startswith("committer ")), "")
        is_plain = (
            all(len(old) == _SHA1 for old, _ in moves.values()) and not (self.common / "reftable").exists()
        )
        if not ident or not is_plain:
            return False
        files = RefFiles(self.common, lockfiles_of(self.common))
        for name, (old, oid) in moves.items():
            line = f"{old} {oid} {ident}\n".encode("utf-8", "replace")

            def store(descriptor: int, _: Path, name: str = name, line: bytes = line) -> None:
                place = self.common / "logs" / name
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("ab") as file:
                    file.write(line)
                system.sync(descriptor)

            try:
                files.put(name, Oid(hex=old), Oid(hex=oid), store)
            except (UwfError, OSError):
                return False
        return True

    def _parents_of(self, commit: str) -> list[str]:
        """Return the parents of a commit that is a loose object, none if it isn't."""
        return [line[7:] for line in self.header(commit) if line.startswith("parent ")]

    def header(self, commit: str) -> list[str]:
        """Return the lines of the header of a commit that is a loose object, none if it isn't."""
        with contextlib.suppress(OSError, zlib.error):
            data = zlib.decompress((self.common / "objects" / commit[:2] / commit[2:]).read_bytes())
            return data.partition(b"\0")[2].partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
        return []

    def kept(self, thread: ThreadId) -> dict[str, str]:
        """Return all refs of a thread, `work_ref` included."""
        names = work_ref(thread), f"{KEPT}{thread}/"
        listed = self.line("for-each-ref", "--format=%(refname) %(objectname)", *names)
        return dict(line.split(" ", 1) for line in listed.splitlines())

    def only_in(self, refs: Iterable[str], commit: str, counted: Iterable[str] = ()) -> int:
        """Return the number of commits up to a commit that nothing but these refs, or patterns of them, leads to. The
        `counted` among them are no such refs."""
        excluded = (f"--exclude={name}" for name in refs)
        return int(self.line("rev-list", "--count", commit, "--not", *excluded, "--all", *counted) or 0)

    def only_commits_in(self, refs: Iterable[str], commits: Iterable[str]) -> set[str]:
        """Return the commits up to some that nothing but these refs, or patterns of them, leads to."""
        excluded = (f"--exclude={name}" for name in refs)
        return set(self.run("rev-list", *commits, "--not", *excluded, "--all").out.decode("ascii").split())

    def drop(self, refs: Mapping[str, str]) -> None:
        """Delete refs that are still where they were."""
        lines = "".join(f"delete {name} {oid}\n" for name, oid in refs.items())
        self.run("update-ref", "--stdin", stdin=lines.encode("ascii"))

    def keep(self, thread: ThreadId, commit: str) -> str:
        """Keep a commit under a ref of the thread; return the ref."""
        name = f"{KEPT}{thread}/{commit[:12]}"
        self.run("update-ref", name, commit)
        return name

    def stashed(self) -> dict[str, str]:
        """Return the user's stash, newest first: its commits, each with its message."""
        rows = self.line("log", "--walk-reflogs", "--format=%H %gs", "refs/stash", "--").splitlines()
        return dict(row.partition(" ")[::2] for row in rows)

    def stash_again(self, commit: str, message: str) -> None:
        """Put a commit on top of the user's stash."""
        self.run("stash", "store", "--message", message, commit)

    def keep_own(self, thread: ThreadId, new: Iterable[str], gone: Iterable[str]) -> None:
        """Keep objects of a thread's own repository under refs, and others no longer."""
        lines = "".join(f"update {KEPT}{thread}/own-{oid[:12]} {oid}\n" for oid in new)
        lines += "".join(f"delete {KEPT}{thread}/own-{oid[:12]}\n" for oid in gone)
        if lines:
            self.run("update-ref", "--stdin", stdin=lines.encode("ascii"))

    def write_commit(
        self, tree: str, parent: str, message: str, author: Person, committer: Person, synced: bool = True
    ) -> str:
        """Return a new commit. Touches no ref."""
        now = int(time.time())
        path = write_commit(
            self.common / "objects", tree, (parent,), (author.at(now), committer.at(now)), message
        )
        if synced:
            sync(path)
        return path.parent.name + path.name

    # Filters

    def filters_off(self, commit: str, settings: Sequence[Setting] | None = None) -> tuple[str, ...]:
        """Return git's options that switch the repository's own filters off. Raises Invalid if files of a
        commit need one, or one whose program is not here."""
        settings = self.settings() if settings is None else settings
        names = _filters(settings)
        for name in names:
            if self._needs_filter(commit, name):
                raise Invalid(
                    f"project {self.common} has the filter {name} in its own configuration, which does not"
                    " run in worktrees",
                    f"{NO_REPOSITORY}; or define filter.{name} with git config --global",
                )
        for name, program in self._absent_programs(settings):
            if name not in names and self._needs_filter(commit, name):
                raise Invalid(
                    f"project {self.common} has files for the filter {name}, whose program {program} is not on PATH",
                    f"install {program}; or {NO_REPOSITORY}",
                )
        return _switching_off(names)

    def _needs_filter(self, commit: str, name: str) -> bool:
        places = (".gitattributes", "*/.gitattributes")
        words = ("grep", "-q", "-F", f"filter={name}", commit, "--", *places)
        everywhere = first_line(self.common / "info/attributes")
        return f"filter={name}" in everywhere or self.run(*words, check=False).code == 0

    def _absent_programs(self, settings: Sequence[Setting]) -> Iterator[tuple[str, str]]:
        """Yield the filters that git requires and whose program is not here."""
        commands = {
            setting.key: setting.value or "" for setting in settings if setting.key.startswith("filter.")
        }
        for key, required in commands.items():
            if not key.endswith(".required") or required.lower() in ("false", "no", "off", "0"):
                continue
            section = key.removesuffix("required")
            used = (commands.get(f"{section}{way}", "") for way in ("process", "clean", "smudge"))
            for program in dict.fromkeys(match[0] for item in used if (match := _PROGRAM.match(item))):
                if find_program(program, self.common.parent) is None and not self._has_program(program):
                    yield section.removeprefix("filter.").removesuffix("."), program

    def _has_program(self, name: str) -> bool:
        """Return whether git brings a program along, or a path leads to one."""
        return Path(self.line("--exec-path"), name).exists()

    def own_filters_off(self, git: Git | None = None) -> tuple[str, ...]:
        """Return git's options that switch the repository's own filters off, as they are now; with `git`, those
        of a worktree too."""
        return _switching_off(_filters(self.settings(git)))

    # Submodules

    def submodules(self, commit: str) -> list[str]:
        """Return the folders of the submodules that a commit declares."""
        words = ("config", "-z", f"--blob={commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
        rows = self.run(*words, check=False).out.decode("utf-8", "replace").split("\0")
        return sorted(row.partition("\n")[2] for row in rows if row)

    # The user's checkout

    def has_changes(self, checkout: Checkout) -> bool:
        """Return whether a checkout has uncommitted files."""
        if checkout.top is None:
            return False
        git = self.git(checkout.git_dir, checkout.top, {"GIT_OPTIONAL_LOCKS": "0"})
        words = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=all")
        return self.run(*words, git=git).out != b""

    def snapshot(self, checkout: Checkout, commit: str, user: Person, index: Path) -> str:
        """Return a commit of a checkout's files on a commit, made with a copy of its index at `index`."""
        assert checkout.top is not None
        try:
            make_folders(index.parent, synced=False)
            if (checkout.git_dir / "index").exists():
                shutil.copy2(checkout.git_dir / "index", index)
            git = self.git(checkout.git_dir, checkout.top, {"GIT_INDEX_FILE": str(index)})
            off = self.filters_off(commit)
            self.run(*off, "add", "-A", git=git)
            tree = self.run(*off, "write-tree", git=git).out.decode("ascii").strip()
        finally:
            index.unlink(missing_ok=True)
        if tree == self.tree(commit):
            return commit
        return self.write_commit(tree, commit, "uncommitted changes\n", user, user)

    def fast_forward(self, branch: str, commit: str) -> None:
        """Move a checked-out branch to a commit that follows it, with the files of its checkout. Raises WorkspaceFailed
        if that has changes in the way."""
        top = ""
        for line in self.line("worktree", "list", "--porcelain").splitlines():
            word, _, name = line.partition(" ")
            top = name if word == "worktree" else top
            if (word, name) == ("branch", branch):
                break
        checkout, name = checkout_around(Path(top)), branch.removeprefix("refs/heads/")
        # One that is gone may have been in another checkout, which is on another branch.
        if checkout is None or checkout.top is None or checkout.top != Path(top):
            raise WorkspaceFailed(
                f"branch {name} is checked out in {top}, which is gone",
                f"git -C {shlex.quote(str(self.common))} worktree prune",
            )
        words = ("merge", "--ff-only", "--no-overwrite-ignore", "-q", commit)
        git = self.git(checkout.git_dir, checkout.top)
        done = self.run(*NO_HOOKS, *words, check=False, git=git)
        files = _in_the_way(done)
        if files and self._are_of(commit, files, checkout.top, git):
            # As after a kill in the middle of this.
            names = "\0".join(files).encode()
            self.run("update-index", "--add", "-z", "--stdin", stdin=names, git=git)
            done = self.run(*NO_HOOKS, *words, check=False, git=git)
            if done.code:
                self.run("reset", "-q", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=names, git=git)
            files = _in_the_way(done)
        if done.code:
            why = f"{listed(files, 5)} would be overwritten" if files else failure(words, done).message
            room, lock = "make room there", checkout.git_dir / "index.lock"
            if str(lock) in done.err:
                room = f"if no git is at work there: rm {shlex.quote(str(lock))}"
            raise WorkspaceFailed(
                f"branch {name} stays as it is: {one_line(why, 200)}",
                f"{room}, then: git -C {shlex.quote(top)} merge --ff-only {commit[:12]}",
            )

    def _are_of(self, commit: str, files: Sequence[str], top: Path, git: Git) -> bool:
        """Return whether files of a checkout are as a commit has them; links and odd names are not looked at."""
        paths = [top / file for file in files]
        if any("\n" in str(path) or not path.is_file() or path.is_symlink() for path in paths):
            return False
        stdin = "".join(f"{file}\n" for file in files).encode()
        ids = self.run("hash-object", "--stdin-paths", stdin=stdin, check=False, git=git).out.decode().split()
        here = [
            f"{'100755' if os.access(path, os.X_OK) else '100644'} blob {oid}"
            for path, oid in zip(paths, ids, strict=False)
        ]
        rows = (
            self.run("ls-tree", "-r", "-z", commit, git=git)
            .out.decode("utf-8", "surrogateescape")
            .split("\0")
        )
        known = {path: row for row, _, path in (line.partition("\t") for line in rows)}
        return here == [known.get(file) for file in files]

    def lay_out(self, commit: str, folder: Path, index: Path) -> None:
        """Write the files of a commit to a new folder, with an index of its own."""
        folder.mkdir(parents=True)
        off = self.filters_off(commit)
        git = self.git(cwd=folder, variables={"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(folder)})
        self.run(*off, "read-tree", commit, git=git)
        self.run(*off, "checkout-index", "-a", git=git)

    # Its remote

    def fetch(self, remote: str, *threads: ThreadId) -> None:
        """Fetch threads' code. A missing ref is no error."""
        names = "".join(f"+{work_ref(thread)}*:{tracking(remote, thread)}*\n" for thread in threads)
        self._reach(*_FETCH, "--stdin", remote, stdin=names.encode("utf-8"))

    def fetch_commit(self, remote: str, thread: ThreadId, commit: str) -> bool:
        """Fetch a commit of a thread, by its ref or by itself; return whether it is here then. Raises
        RemoteFailed if the remote cannot be reached."""
        self.fetch(remote, thread)
        if not self.commit(commit):
            self._reach(*_FETCH, remote, commit, check=False)
        return self.commit(commit) != ""

    def push(self, remote: str, threads: Collection[ThreadId]) -> dict[ThreadId, str]:
        """Push threads' code; return those whose ref the remote didn't take, with the server's reason, "" for one that
        has another commit there. Raises RemoteFailed if it cannot be reached."""
        names = [f"{work_ref(thread)}:{work_ref(thread)}" for thread in threads]
        refusals = self._push(remote, *names)
        refused = {}
        for thread in threads:
            refusal = refusals.get(work_ref(thread))
            if refusal is None:
                self.set_ref(tracking(remote, thread), self.commit(work_ref(thread)))
            else:  # "[rejected] (fetch first)", "[remote rejected] (deny updating a hidden ref)"
                is_servers = refusal.startswith("[remote rejected]")
                refused[thread] = refusal.partition(" (")[2].removesuffix(")") if is_servers else ""
        return refused

    def _push(self, *words: str) -> dict[str, str]:
        """Push; return what git says of the refs there that weren't moved."""
        done = self._reach(*_PUSH, *words, check=False)
        rows = [line.split("\t") for line in done.out.decode("utf-8", "replace").splitlines()]
        refusals = {row[1].rpartition(":")[2]: row[2] for row in rows if row[0] == "!" and len(row) > 2}
        if done.code and not refusals:
            raise self._of_project(failure(_PUSH, done))
        return refusals

    def delete_there(self, remote: str, refs: Mapping[str, str]) -> dict[str, str]:
        """Delete refs of the remote that are at these commits there, or gone; return why others stay. Raises
        RemoteFailed if the remote cannot be reached."""
        leases = (f"--force-with-lease={ref}:{oid}" for ref, oid in refs.items())
        refusals = self._push(*leases, remote, *(f":{ref}" for ref in refs))
        if refusals:
            listed = self.git().run("ls-remote", remote, *refusals).out.decode("utf-8", "replace")
            there = {row.partition("\t")[2] for row in listed.splitlines()}
            refusals = {ref: reason for ref, reason in refusals.items() if ref in there}
        return refusals

    def heads_at(self, remote: str, *branches: str) -> tuple[str, dict[str, str]]:
        """Return the branch that a remote's HEAD is, "" if unknown, and the commits of these branches and of that one.
        Raises RemoteFailed."""
        words = ("ls-remote", "--symref", remote, "HEAD", *(f"refs/heads/{name}" for name in branches))
        usual, commits = "", {}
        for line in self._reach(*words).out.decode("utf-8", "replace").splitlines():
            what, _, name = line.partition("\t")
            if what.startswith("ref: refs/heads/") and name == "HEAD":
                usual = what.removeprefix("ref: refs/heads/")
            elif name == "HEAD" and usual:
                commits[usual] = what
            elif name.startswith("refs/heads/"):
                commits[name.removeprefix("refs/heads/")] = what
        return usual, commits

    def fetch_branch(self, remote: str, branch: str, ref: str) -> str:
        """Fetch a branch to a ref here, and return its commit. Raises RemoteFailed."""
        self._reach(*_FETCH, remote, f"+refs/heads/{branch}:{ref}")
        return self.commit(ref)

    def push_commit(self, remote: str, commit: str, branch: str, expected: str) -> bool:
        """Push a commit to a branch that is at `expected` there, "" if it is not there; return whether it was. Raises
        Declined if the remote refuses it, RemoteFailed if it cannot be reached."""
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{expected}"
        reason = self._push(lease, remote, f"{commit}:{ref}").get(ref)
        if reason is not None and _MOVED.search(reason) is None:
            why = reason.removeprefix("[remote rejected]").removeprefix("[rejected]").strip(" ()")
            raise Declined(f"{remote} refuses branch {branch}: {one_line(why, 200)}", "see its rules there")
        return reason is None

    def remote_at(self, url: str) -> str:
        """Return the name of the remote with a URL, "" if none."""
        names = self.line("remote").splitlines()
        return next((name for name in names if url and self.url(name) == url), "")


def _in_the_way(done: CallResult) -> list[str]:
    """Return the files of which git says that a merge would overwrite them."""
    return [line.strip() for line in done.err.splitlines() if line.startswith("\t")] if done.code else []


def _filters(settings: Iterable[Setting]) -> list[str]:
    """Return the names of the repository's own filters, except for Git LFS as it installs itself."""
    filters = {
        "lfs" if key.startswith("lfs.") else key.split(".", 1)[1].rpartition(".")[0]
        for key, command, is_own in settings
        if is_own and _FILTERS.search(key) and not _LFS.fullmatch(command or "")
    }
    return sorted(filters)


def _switching_off(filters: Iterable[str]) -> tuple[str, ...]:
    keys = ("clean=", "smudge=", "process=", "required=false")
    return tuple(word for name in filters for key in keys for word in ("-c", f"filter.{name}.{key}"))


def write_commit(
    objects: Path, tree: str, parents: Sequence[str], idents: tuple[str, str], message: str
) -> Path:
    """Write a commit as a loose object; return its file. `idents` are those of author and committer, with times."""
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"{who} {ident}" for who, ident in zip(("author", "committer"), idents, strict=True)]
    body = "\n".join((*lines, "", message.replace("\0", ""))).encode("utf-8", "replace")
    return write_loose(objects, b"commit", body, (hashlib.sha1 if len(tree) == 40 else hashlib.sha256))


def write_loose(
    objects: Path, kind: bytes, body: bytes, digest: Callable[[bytes], Any] = hashlib.sha1
) -> Path:
    """Write a loose object unless it is there; return its file. Doesn't wait for the disk."""
    data = b"%b %d\0%b" % (kind, len(body), body)
    name = str(digest(data).hexdigest())
    path = objects / name[:2] / name[2:]
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(f"tmp_obj_{os.urandom(6).hex()}")
        new.write_bytes(zlib.compress(data, 1))
        new.chmod(0o444)
        new.replace(path)
    return path


def tracking(remote: str, thread: ThreadId) -> str:
    return f"{TRACKING}{remote}/{thread}"
