"""The code that steps and attempts name, compared with the projects on this machine.

A commit that is here must have the tree that the step names. Code that is not here is no fault. Only the
user's own command asks the projects, never a check of what was fetched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import UwfError, WorkspaceFailed
from uwf_git.base.text import counted
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.format.types import CODE_ATTEMPT, CODE_DETAIL
from uwf_git.store.instance import Instance
from uwf_git.verify.findings import Finding
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import WORKTREE
from uwf_git.workspaces.project import Project
from uwf_git.workspaces.step_workspace import code_left


class NamedCode(NamedTuple):
    """A step or attempt with code: its thread, its node, and what it is called."""

    thread: ThreadId
    node: Hash
    what: str
    code: Revision


def check_code(instance: Instance, threads: Collection[ThreadId]) -> tuple[list[Finding], list[Finding]]:
    """Return findings and notes on the code of these threads, or of all."""
    index = instance.store.index
    if not any(index.hashes_of_type(each) for each in (CODE_DETAIL, CODE_ATTEMPT)):
        return [], []
    named: dict[Hash, NamedCode] = {}
    for thread in sorted(threads or instance.threads.ids()):
        for each in _named(instance, thread):
            named.setdefault(each.node, each)
    trees = _trees(instance, {each.code.commit for each in named.values()})
    findings, missing = [], dict[ThreadId, list[NamedCode]]()
    for each in named.values():
        found = trees.get(each.code.commit)
        if found is None:
            missing.setdefault(each.thread, []).append(each)
        elif found != each.code.tree:
            message = f"commit {each.code.commit} of {each.what} has tree {found}, not {each.code.tree}"
            findings.append(Finding("wrong-code", each.thread, each.node, each.code.commit, message))
    notes = [
        Finding("code-elsewhere", thread, None, left[-1].code.commit, _elsewhere(left))
        for thread, left in missing.items()
    ]
    return findings, notes


def _elsewhere(left: Collection[NamedCode]) -> str:
    remote = next((each.code.remote for each in left if each.code.remote), "")
    where = f", but in {remote}" if remote else ""
    return f"the code of {counted(len(left), 'step')} is not here{where}: not checked"


def _named(instance: Instance, thread: ThreadId) -> Iterator[NamedCode]:
    # What is damaged is reported by the other checks.
    try:
        for past in instance.threads.past(instance.threads.head(thread).node):
            detail = instance.store.detail(past.step.detail)
            if detail is not None and (code := code_left(instance, past.step.detail)) is not None:
                yield NamedCode(thread, past.hash, f"step {past.hash}", code)
        for attempt in instance.attempts.all(thread):
            if attempt.code is not None:
                yield NamedCode(thread, attempt.hash, f"attempt {attempt.hash}", attempt.code)
    except UwfError:
        return


def _trees(instance: Instance, commits: set[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for project in _projects(instance):
        wanted = sorted(commits - found.keys())
        if wanted:
            found.update(_trees_in(project, wanted))
    return found


def _projects(instance: Instance) -> Iterator[Project]:
    notes = Notes(instance.store.repository.private)
    places = (note.project for _, note in notes.all() if note.kind == WORKTREE)
    yield from (Project(Path(place)) for place in dict.fromkeys(places) if Path(place).is_dir())
    if instance.location.here:
        yield Project(instance.location.git_dir)


def _trees_in(project: Project, commits: Iterable[str]) -> Iterator[tuple[str, str]]:
    asked = list(commits)
    git = project.git(variables={"GIT_NO_LAZY_FETCH": "1"})
    lines = "".join(f"{commit}^{{tree}}\n" for commit in asked).encode("ascii")
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)")
    try:
        told = project.run(*words, stdin=lines, git=git).out.decode("utf-8", "replace").splitlines()
    except WorkspaceFailed:
        return
    for commit, line in zip(asked, told, strict=False):
        name, _, kind = line.partition(" ")
        if kind == "tree":
            yield commit, name
