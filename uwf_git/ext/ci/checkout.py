"""The checkout of a CI job, read from git's objects alone: no file of it is opened, and nothing of it is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.ext.ci.job import BRANCH, CHANGE, Job, named_branch
from uwf_git.plugin import CallResult, Git, NotFound, Trailers, Usage, one_line, open_checkout, parse_message

TRACKED = "refs/remotes/origin/"
PUBLISHED = tuple(
    f"{TRACKED}uwf/{kind}/" for kind in ("threads", "workflows", "crews", "baselines", "proposals")
)
MOST_BRANCHES = 1000
MOST_COMMITS = 10_000
LARGEST_FILE = 1 << 20
_LARGEST_LIST = 16 << 20
_OID = re.compile(r"[0-9a-f]{40}")
_FILES = ("100644", "100755")
_FETCH = "fetch it first: uwf ci print shows how"
# The files of a container's checkout often belong to somebody else; nothing of a repository is run.
_OF_ANYBODY = ("-c", "safe.directory=*")
_LOCAL = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"}


class Subject(NamedTuple):
    """A revision to check. `name` is for people, `ref` for git, `branch` the published name; `record` is the
    commit that the source ends with, which is not the `revision` if the forge merged it, and `base` the commit
    before; "" if there is none here. `source` is the ref to fetch it by, `target` the branch to merge it into."""

    name: str
    ref: str
    revision: str
    record: str
    base: str
    branch: str = ""
    source: str = ""
    target: str = ""


class Commit(NamedTuple):
    """A commit of a record. `number` and so on of a step are in its message."""

    oid: str
    message: str

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]

    @property
    def trailers(self) -> Trailers | None:
        return parse_message(self.message)

    def trailer(self, name: str) -> str:
        last = self.message.rstrip("\n").rsplit("\n\n", 1)[-1]
        lines = (line.partition(": ") for line in last.split("\n"))
        return next((value for key, _, value in lines if key == name), "")


class Checkout:
    """The git repository of a CI job. Raises Usage if the folder has none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            opened = open_checkout(folder)
        except NotFound:
            raise Usage(f"{folder} is not a git checkout", _FETCH) from None
        self.git_dir = opened.git_dir
        self.objects = Path(opened.repository.path, "objects").absolute()
        self._program = Git(self.git_dir, variables=_LOCAL)

    def _git(self, *args: str, at_most: int = _LARGEST_LIST) -> CallResult:
        return self._program.run(*_OF_ANYBODY, *args, check=False, at_most=at_most)

    def commit(self, revision: str) -> str:
        """Return a commit's id, "" if it isn't here."""
        return self.object(f"{revision}^{{commit}}")

    def object(self, revision: str) -> str:
        """Return an object's id, "" if it isn't here."""
        done = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", revision)
        oid = done.out.decode("ascii", "replace").strip()
        return oid if done.code == 0 and _OID.fullmatch(oid) else ""

    def is_ancestor(self, older: str, newer: str) -> bool:
        return self._git("merge-base", "--is-ancestor", older, newer).code == 0

    def merge_base(self, one: str, other: str) -> str:
        done = self._git("merge-base", one, other)
        oid = done.out.decode("ascii", "replace").split("\n")[0]
        return oid if done.code == 0 and _OID.fullmatch(oid) else ""

    def parents(self, commit: str) -> list[str]:
        done = self._git("rev-list", "--parents", "--max-count=1", commit)
        return done.out.decode("ascii", "replace").split()[1:]

    def files(self, commit: str, folder: str = "") -> dict[str, str]:
        """Return the blobs of the plain files directly in a folder, by name; {} if it isn't there."""
        tree = f"{commit}:{folder}"
        done = self._git("ls-tree", "-z", "--end-of-options", tree)
        modes = {}
        for row in done.out.split(b"\0"):
            head, tab, name = row.partition(b"\t")
            words = head.decode("ascii", "replace").split()
            if tab and len(words) == 3 and words[0] in _FILES:
                modes[name.decode("utf-8", "surrogateescape")] = words[2]
        return modes

    def file(self, commit: str, path: str) -> bytes | None:
        """Return a plain file's content, None if there is none, or it is larger than LARGEST_FILE."""
        folder, _, name = path.rpartition("/")
        blob = self.files(commit, folder).get(name)
        if blob is None:
            return None
        done = self._git("cat-file", "blob", blob, at_most=LARGEST_FILE + 1)
        return done.out if done.code == 0 and len(done.out) <= LARGEST_FILE else None

    def kind(self, commit: str) -> str:
        """Return the kind of record that a commit says it is, "" for none."""
        trailers = next((item.trailers for item in self.log(commit, 1)), None) if commit else None
        return trailers.kind if trailers is not None else ""

    def log(self, commit: str, at_most: int = MOST_COMMITS) -> Iterator[Commit]:
        """Yield a commit and its first parents, newest first."""
        form = ("-z", "--format=%H%n%B", "--first-parent", f"--max-count={at_most}", "--encoding=UTF-8")
        done = self._git("log", *form, "--no-show-signature", commit)
        for row in done.out.decode("utf-8", "replace").split("\0"):
            oid, _, message = row.partition("\n")
            if _OID.fullmatch(oid):
                yield Commit(oid, message)

    def branches(self, *prefixes: str) -> dict[str, str]:
        """Return the commits of refs by name, at most MOST_BRANCHES."""
        form = ("--format=%(objectname) %(refname)", f"--count={MOST_BRANCHES}")
        done = self._git("for-each-ref", *form, *prefixes)
        rows = (line.partition(" ") for line in done.out.decode("utf-8", "surrogateescape").splitlines())
        return {name: oid for oid, _, name in rows if _OID.fullmatch(oid)}

    def subjects(self, job: Job) -> list[Subject]:
        """Return what a job is about. Raises Usage if it wasn't fetched."""
        if job.about == CHANGE:
            return [self._change(job)]
        if job.about == BRANCH:
            record = self._fetched("HEAD", job.branch)
            before = self._before(record, job.base)
            source = f"refs/heads/{job.branch}" if job.branch else ""
            return [Subject(job.branch or record, "HEAD", record, record, before, job.branch, source)]
        if job.branch:
            named = {TRACKED + job.branch: self._fetched(TRACKED + job.branch, job.branch)}
        else:
            named = self.branches(*PUBLISHED)
        subjects = []
        for ref, oid in named.items():
            branch = named_branch(ref.removeprefix(TRACKED))
            name = branch or one_line(ref.removeprefix(TRACKED))
            source = f"refs/heads/{branch}" if branch else ""
            subjects.append(Subject(name, ref, oid, oid, self._before(oid), branch, source))
        return subjects

    def _change(self, job: Job) -> Subject:
        revision = self._fetched("HEAD", job.branch)
        parents = self.parents(revision)
        kind = "merge-requests" if job.forge == "gitlab" else "pull"
        name, source = job.branch or f"#{job.number}", f"refs/{kind}/{job.number}/head"
        # Of a merge that the forge made, the first parent is the target.
        if len(parents) == 2 and parents[1] == job.head:
            return Subject(name, "HEAD", revision, job.head, parents[0], job.branch, source, job.target)
        tip = self.commit(job.base) if job.base else ""
        base = (self.merge_base(tip, revision) or tip) if tip else ""
        return Subject(name, "HEAD", revision, revision, base, job.branch, source, job.target)

    def _fetched(self, revision: str, branch: str) -> str:
        commit = self.commit(revision)
        if not commit:
            raise Usage(f"{branch or revision} is not in this checkout", _FETCH)
        return commit

    def _before(self, record: str, base: str = "") -> str:
        if base and (commit := self.commit(base)) and self.is_ancestor(commit, record):
            return commit
        parents = self.parents(record)
        return parents[0] if parents else ""
