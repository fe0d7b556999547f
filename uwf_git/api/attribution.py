"""Who wrote the lines of a project's file, and which threads the commits of a branch stand on."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.api.check import Report, check
from uwf_git.base.errors import Invalid, NotFound, Usage
from uwf_git.base.text import counted, encodable, iso, one_line
from uwf_git.format.ids import ThreadId
from uwf_git.store.location import Checkout, checkout_around
from uwf_git.verify.findings import UNCHECKED, Finding
from uwf_git.verify.whole import VerifyResult
from uwf_git.workspaces.attribution import Attribution, Attributions, ProjectCommit
from uwf_git.workspaces.changes import NO_FETCH
from uwf_git.workspaces.patches import path_of, read_git
from uwf_git.workspaces.project import Project, remote_in_hint, work_ref

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

MOST_BYTES = 8 << 20
"""Bytes of a file whose lines are looked up."""
MOST_COMMITS = 10_000
"""Commits of a branch that are looked at, the newest."""

_SECONDS = 120.0  # for git's own blame
_SNIFFED = 8000  # bytes in which a NUL makes a file binary, as for git
_TREE = ("--literal-pathspecs", "ls-tree", "-z", "-l", "--full-tree")
_LINE = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (\d+) (\d+)(?: \d+)?")


class BlamedLine(NamedTuple):
    """A line of a file: the commit that wrote it, and where it was then."""

    number: int
    commit: str
    path: str
    line: int
    text: str


def blame(
    instance: Instance, folder: Path, file: str, revision: str, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Return the lines of a project's committed file, each with its commit, and the thread, step, role and model that
    wrote it, null if none did, and the threads of whose code some is `absent`. `warn` gets that, and what is wrong with
    claims of commits. Raises NotFound, Invalid, Usage."""
    checkout = _checkout(folder)
    project = Project(checkout.common)
    commit = _commit_of(project, checkout, revision)
    path = _path_in(checkout, folder, file)
    _require_text(project, commit, path, file)
    lines = _blamed(project, commit, path)
    attributions = Attributions(instance, project)
    commits = attributions.commits(dict.fromkeys(line.commit for line in lines))
    by_commit = attributions.of(sorted(commits.values(), key=lambda item: -item.time))
    for name, attribution in by_commit.items():
        for problem in _problems(instance, project, attributions, commits[name], attribution):
            warn(problem.message)
    _warn_of_absence(project, attributions.absent, warn)
    rows = [_line_value(attributions, line, commits[line.commit], by_commit[line.commit]) for line in lines]
    return {"file": encodable(path), "commit": commit, "lines": rows, "absent": attributions.absent}


def _line_value(
    attributions: Attributions, line: BlamedLine, commit: ProjectCommit, attribution: Attribution
) -> dict[str, Any]:
    share, step = attribution.step_at(line.path, line.line) or (None, None)
    thread = share.thread if share is not None else None
    if thread is not None and step is not None:
        thread = attributions.thread_of(step, thread)
    return {
        "line": line.number,
        "commit": line.commit,
        "author": commit.author,
        "time": iso(commit.written),
        "thread": thread,
        "how": share.how if share is not None else None,
        "step": step.number if step is not None else None,
        "role": step.role if step is not None else None,
        "agent": step.agent if step is not None else None,
        "model": (step.model or None) if step is not None else None,
        "text": line.text,
    }


def _checkout(folder: Path) -> Checkout:
    checkout = checkout_around(folder)
    if checkout is None:
        raise NotFound("this folder is in no git repository", "call it in the project's")
    return checkout


def _commit_of(project: Project, checkout: Checkout, revision: str) -> str:
    if revision.startswith("-"):
        raise Usage(f"{one_line(revision, 60)} is no revision", "see: git branch --all")
    git = project.git(checkout.git_dir, variables=NO_FETCH)
    commit = project.commit(revision, git=git)
    if not commit:
        raise NotFound(
            f"the project has no commit {one_line(revision, 60)}", "is it fetched? see: git branch --all"
        )
    return commit


def _path_in(checkout: Checkout, folder: Path, file: str) -> str:
    """Return the path of a file in the repository, by what stands in a call in a folder."""
    if checkout.top is None:
        return os.path.normpath(file)
    top = checkout.top.resolve()
    path = os.path.relpath(os.path.join(folder.resolve(), file), top)  # noqa: PTH118
    if path == os.pardir or path.startswith(f"{os.pardir}/"):
        raise Usage(f"{one_line(file, 80)} is outside of {top}", "call it in the file's repository")
    return path


def _require_text(project: Project, commit: str, path: str, file: str) -> None:
    name, git = one_line(file, 80), project.git(variables=NO_FETCH)
    done = project.run(*_TREE, "--", commit, path, git=git, check=False)
    row, _, rows = done.out.partition(b"\t")
    if rows.partition(b"\0")[0] != os.fsencode(path):  # of a folder, what is in it
        row = b""
    kind, *rest = row.decode("ascii", "replace").split()[1:] or [""]
    if kind != "blob":
        inside = any(path == module or path.startswith(f"{module}/") for module in project.submodules(commit))
        hint = "it is of a submodule: call uwf blame in its folder" if inside else "see: git ls-files"
        raise NotFound(f"commit {commit[:12]} has no file {name}", hint)
    oid, size = rest
    if not size.isdigit() or int(size) > MOST_BYTES:
        raise Invalid(f"file {name} has more than {MOST_BYTES >> 20} MiB", "uwf blame reads smaller ones")
    if b"\0" in git.run("cat-file", "blob", oid, at_most=_SNIFFED).out:
        raise Invalid(f"file {name} is binary", f"its commits: git log -- {name}")


def _blamed(project: Project, commit: str, path: str) -> list[BlamedLine]:
    """Return the lines of a file as git blames them: blanks don't count, and moved and copied lines are followed. What
    `blame.ignoreRevsFile` names is passed over."""
    words = ("blame", "--porcelain", "--no-textconv", "-w", "-M", "-C", commit, "--", path)
    return list(_lines(iter(read_git(project, *words, seconds=_SECONDS).split(b"\n"))))


def _lines(rows: Iterator[bytes]) -> Iterator[BlamedLine]:
    commit, number, line = "", 0, 0
    paths: dict[str, str] = {}
    for row in rows:
        if row.startswith(b"\t"):
            text = row[1:].removesuffix(b"\r").decode("utf-8", "replace")
            yield BlamedLine(number, commit, paths.get(commit, ""), line, text)
        elif match := _LINE.fullmatch(row):
            commit, line, number = match[1].decode("ascii"), int(match[2]), int(match[3])
        elif row.startswith(b"filename "):
            paths[commit] = path_of(row.removeprefix(b"filename "))


class Merged(NamedTuple):
    """The commits of a branch, newest first, in their printed form, and the report on the threads that they stand on or
    claim. `is_cut`: there are older ones. `absent`: the threads of whose code some is not here."""

    report: Report
    commits: list[dict[str, Any]]
    is_cut: bool
    absent: list[ThreadId]

    def to_json(self) -> dict[str, Any]:
        return {"commits": self.commits, "more": self.is_cut, "absent": self.absent}


def verify_merged(
    instance: Instance,
    folder: Path,
    branch: str,
    on_commit: Callable[[], None],
    warn: Callable[[str], None],
) -> Merged:
    """Look up which threads the commits of a branch of the project stand on, and verify these. `branch` may be a range
    of git; else the commits are those since the oldest thread's code began. A commit that claims another thread's code
    is a finding, and one whose thread or its code is not here is unchecked. `warn` gets that some code is not here.
    Raises NotFound, Usage."""
    checkout = _checkout(folder)
    project = Project(checkout.common)
    attributions = Attributions(instance, project)
    begin, dots, end = branch.partition("..")
    revisions = [_commit_of(project, checkout, end.removeprefix(".") or "HEAD" if dots else branch)]
    if since := _commit_of(project, checkout, begin or "HEAD") if dots else attributions.oldest:
        revisions.append(f"^{since}")
    commits = attributions.between(*revisions, most=MOST_COMMITS + 1)
    is_cut, commits = len(commits) > MOST_COMMITS, commits[:MOST_COMMITS]
    by_commit = attributions.of(commits)
    _warn_of_absence(project, attributions.absent, warn)
    threads: dict[ThreadId, None] = {}
    problems: list[Finding] = []
    rows = []
    for commit in commits:
        attribution = by_commit[commit.commit]
        if len(commit.parents) > 1 and not (attribution.shares or attribution.lines or commit.claims):
            continue  # it only joins what is listed
        wrong = list(_problems(instance, project, attributions, commit, attribution))
        problems += wrong
        threads |= dict.fromkeys(share.thread for share in attribution.shares)
        rows.append(_commit_value(commit, attribution, wrong))
    if threads:
        report = check(instance, list(threads), None, on_commit)
        report = report._replace(findings=[*report.findings, *problems])
    else:
        report = Report({}, VerifyResult(0, 0, 0, (), (), (), ()), problems)
    wrong_threads = {finding.thread for finding in report.findings if finding not in problems}
    for row in rows:
        for share in row["threads"]:
            share["verified"] = share["thread"] not in wrong_threads
    return Merged(report, rows, is_cut, attributions.absent)


def _commit_value(commit: ProjectCommit, attribution: Attribution, wrong: list[Finding]) -> dict[str, Any]:
    return {
        "commit": commit.commit,
        "author": commit.author,
        "time": iso(commit.time),
        "subject": commit.subject,
        "lines": attribution.lines,
        "threads": [
            {"thread": share.thread, "how": share.how, "lines": len(share.lines)}
            for share in attribution.shares
        ],
        "claims": list(commit.claims),
        "problems": [finding.message for finding in wrong],
    }


def _problems(
    instance: Instance,
    project: Project,
    attributions: Attributions,
    commit: ProjectCommit,
    attribution: Attribution,
) -> Iterator[Finding]:
    """Yield what is wrong or unknown about the threads that a commit claims."""
    begin = f"commit {commit.commit[:12]} claims thread"
    for thread in commit.claims:
        if any(thread == share.thread for share in attribution.shares):
            continue
        if not instance.threads.exists(thread):
            code, why = UNCHECKED, "which is not here: uwf pull"
        elif thread in attributions.absent or not attributions.has_code(thread):
            code, why = UNCHECKED, f"whose code is not here: {_way_of_code(project, work_ref(thread))}"
        elif attribution.patch is None:
            code, why = UNCHECKED, "and changes too much to be compared with it"
        else:
            code, why = "other-patch", "but changes something else than that"
        yield Finding(code, thread, None, commit.commit, f"{begin} {thread}, {why}")


def _warn_of_absence(project: Project, absent: Collection[ThreadId], warn: Callable[[str], None]) -> None:
    if absent:
        way = _way_of_code(project, work_ref("*"))
        warn(f"some code of {counted(len(absent), 'thread')} is not here, and not compared: {way}")


def _way_of_code(project: Project, ref: str) -> str:
    """Return how the code of threads comes here."""
    remote, names = remote_in_hint(project.usual_remote())
    return f"git fetch {remote} {shlex.quote(f'{ref}:{ref}')}{names}"
