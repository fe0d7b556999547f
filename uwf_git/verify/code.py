"""The code that verified steps and attempts left, compared with the projects on this machine.

A commit that is here must have the tree that its record names. Code that is not here is no fault; nor is a base
that is no ancestor, since agents may rewrite history. git is started once for each project, and only for the
user's own command, never for what was fetched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import counted, one_line
from uwf_git.format.approvals import DIFF
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.format.quick_schema import OBJECT_ID
from uwf_git.store.instance import Instance
from uwf_git.trust.approvals import STALE
from uwf_git.verify.approvals import ApprovedDiff
from uwf_git.verify.findings import Finding
from uwf_git.workspaces.changes import RAW_BYTES
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import WORKTREE

_is_object_id = re.compile(OBJECT_ID).search
# A partial clone must not fetch. git knows the first since 2.44; without it, the second makes the fetch fail.
_LOCAL = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


class RecordedCode(NamedTuple):
    """The code of a verified step or attempt. `kind` is step or attempt, `node` its node, `object` its commit
    in the store, and `ref` leads there."""

    kind: str
    node: Hash
    code: Revision
    object: str
    thread: ThreadId
    ref: str

    def finding(self, problem: str) -> Finding:
        step = self.node if self.kind == "step" else None
        message = f"{self.kind} {self.node} {problem}"
        return Finding("wrong-code", self.thread, step, self.object, message, self.ref)


class CodeResult(NamedTuple):
    """The findings, and a note for each thread with code that was not checked."""

    findings: list[Finding]
    notes: list[Finding]


class _Object(NamedTuple):
    id: str
    type: str


_Objects = Mapping[str, _Object]
"""A project's objects, by the names that git was asked for."""


def check_code(records: Sequence[RecordedCode], projects: Iterable[Path]) -> CodeResult:
    """Check code against projects, given by their git directories, until all was found. Those that git cannot
    read have none."""
    findings: list[Finding] = []
    waiting: list[RecordedCode] = []
    for each in records:
        if problem := _malformed(each.code):
            findings.append(each.finding(problem))
        else:
            waiting.append(each)
    for project in projects if waiting else ():
        objects = _objects(project, (each.code for each in waiting))
        elsewhere = []
        for each in waiting:
            if not _is_here(each.code, objects):
                elsewhere.append(each)
            elif problem := _problem(each.code, objects):
                findings.append(each.finding(problem))
        waiting = elsewhere
        if not waiting:
            break
    return CodeResult(findings, _notes(waiting))


def check_diffs(
    diffs: Sequence[tuple[ApprovedDiff, ThreadId | None, str]], projects: Iterable[Path]
) -> list[Finding]:
    """Compare the diffs that people were shown with those of the projects that have their commits."""
    findings: list[Finding] = []
    waiting = list(diffs)
    known: dict[tuple[str, str], str] = {}
    for place in projects if waiting else ():
        elsewhere = []
        for each in waiting:
            said = each[0]
            key = said.base, said.commit
            if key not in known and (found := _diff_digest(place, *key)):
                known[key] = found
            if key not in known:
                elsewhere.append(each)
            elif known[key] != said.sha256:
                message = (
                    f"approval {said.approval} is of another diff than {said.base[:12]} to {said.commit[:12]}"
                )
                findings.append(Finding(STALE, each[1], said.step, said.object, message, each[2]))
        waiting = elsewhere
        if not waiting:
            break
    return findings


def _diff_digest(place: Path, base: str, commit: str) -> str:
    """Return the SHA-256 of a diff that a person may be shown, "" if its commits are not in a project."""
    if not place.is_dir() or not (_is_object_id(base) and _is_object_id(commit)):
        return ""
    from uwf_git.workspaces.project import Project

    project = Project(place)
    try:
        git = project.git(variables=_LOCAL)
        lines = f"{base}\n{commit}\n".encode("ascii")
        kinds = project.run("cat-file", "--batch-check=%(objecttype)", stdin=lines, check=False, git=git).out
        if kinds.split() != [b"commit"] * 2:
            return ""
        found = git.run(*DIFF, base, commit, "--", at_most=RAW_BYTES + 1).out
    except (UwfError, OSError):
        return ""
    return sha256(found).hexdigest() if len(found) <= RAW_BYTES else ""


def projects_of(instance: Instance, records: Iterable[RecordedCode]) -> Iterator[Path]:
    """Yield the git directories of the projects on this machine, those of the records' threads first. Notes
    are read when they are needed."""
    notes, seen = Notes(instance.store.repository.private), set()
    threads = dict.fromkeys(each.thread for each in records)
    for note in chain(map(notes.read, threads), (note for _, note in notes.all())):
        if note is not None and note.kind == WORKTREE and note.project not in seen:
            seen.add(note.project)
            yield Path(note.project)
    if instance.location.here and str(instance.location.git_dir) not in seen:
        yield instance.location.git_dir


def _malformed(code: Revision) -> str:
    # The schema says so too, but what gets to git is checked here.
    for name in ("commit", "tree", "base"):
        text = getattr(code, name)
        if not isinstance(text, str) or not _is_object_id(text):
            return f"names {one_line(str(text), 80)!r} as the {name} of its code, which is not an object id"
    return ""


def _is_here(code: Revision, objects: _Objects) -> bool:
    found = objects.get(code.commit)
    return found is not None and (found.type != "commit" or _tree_of(code.commit) in objects)


def _problem(code: Revision, objects: _Objects) -> str:
    commit, base = code.commit, objects.get(code.base)
    if (kind := objects[commit].type) != "commit":
        return f"names {commit} as the commit of its code, which is a {kind}"
    if (tree := objects[_tree_of(commit)].id) != code.tree:
        return f"names tree {code.tree} as its code, but commit {commit} has tree {tree}"
    if base is not None and base.type != "commit":
        return f"names {code.base} as the base of its code, which is a {base.type}"
    return ""


def _tree_of(commit: str) -> str:
    return f"{commit}^{{tree}}"


def _objects(place: Path, codes: Iterable[Revision]) -> _Objects:
    if not place.is_dir():
        return {}
    from uwf_git.workspaces.project import Project

    each_name = ((code.commit, _tree_of(code.commit), code.base) for code in codes)
    names = list(dict.fromkeys(chain.from_iterable(each_name)))
    lines = "".join(f"{name}\n" for name in names).encode("ascii")
    words = ("cat-file", "--buffer", "--batch-check=%(objectname) %(objecttype)")
    project = Project(place)
    try:
        done = project.run(*words, stdin=lines, check=False, git=project.git(variables=_LOCAL))
    except (UwfError, OSError):
        return {}
    objects = {}
    for name, line in zip(names, done.out.decode("utf-8", "replace").splitlines(), strict=False):
        oid, _, kind = line.partition(" ")
        # A name of the other length may be a branch, or an abbreviation.
        if kind in ("commit", "tree", "blob", "tag") and (oid == name or name.endswith("}")):
            objects[name] = _Object(oid, kind)
    return objects


def _notes(elsewhere: Iterable[RecordedCode]) -> list[Finding]:
    threads: dict[ThreadId, list[RecordedCode]] = {}
    for each in elsewhere:
        threads.setdefault(each.thread, []).append(each)
    return [
        Finding("code-elsewhere", thread, None, records[0].object, _elsewhere(records), records[0].ref)
        for thread, records in threads.items()
    ]


def _elsewhere(records: Sequence[RecordedCode]) -> str:
    numbers = Counter(each.kind for each in records)
    what = " and ".join(counted(numbers[kind], kind) for kind in ("step", "attempt") if numbers[kind])
    remote = next((each.code.remote for each in records if each.code.remote), "")
    return f"the code of {what} is not here{f', but in {remote}' if remote else ''}: not checked"
