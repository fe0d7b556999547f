"""The code that verified steps and attempts left, compared with the projects on this machine.

A commit that is here must have the tree that its record names, and that of a join must be what merging its branches
gives. Code that is not here is no fault; nor is a base that is no ancestor, since agents may rewrite history. git is
started once for each project, a few times for each join, and only for the user's own command, never for what was
fetched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import counted, one_line
from uwf_git.format.endings import COMPLETED
from uwf_git.format.fan_out import parse_join
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.format.quick_schema import OBJECT_ID
from uwf_git.verify.findings import Finding, ShownDiff
from uwf_git.verify.verified import Record
from uwf_git.workflow.turn import begins_threads, gathers_threads
from uwf_git.workspaces.changes import RAW_BYTES, RAW_DIFF, doubted
from uwf_git.workspaces.clones import remote_named

_is_object_id = re.compile(OBJECT_ID).search
# A partial clone must not fetch. git knows the first since 2.44; without it, the second makes the fetch fail.
_LOCAL = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


class CodeMerge(NamedTuple):
    """What a join merges: commits by the indexes of branches, with that of the `fork`, a StepNode, as base. `conflicts`
    are the paths that the join names. If `branches` is None, they are not known here."""

    fork: Hash
    base: str
    branches: Mapping[int, str] | None
    conflicts: Mapping[int, tuple[str, ...]]
    has_code: bool


def merge_of(
    fork: Record | None, join: Record, newest: Callable[[Hash], Revision | None]
) -> CodeMerge | None:
    """Return what a step after another should merge as the join of a fork, None if nothing. `newest` returns the newest
    code up to a StepNode, and raises LookupError if that is not known."""
    if fork is None or not (begins_threads(fork.row.role) and gathers_threads(join.row.role)):
        return None
    begun = fork.code
    if begun is None or join.step is None:
        return None
    try:
        joined = parse_join(join.step.output)
    except (LookupError, TypeError):  # another check says so
        return None
    conflicts = {at: branch.conflict.paths for at, branch in enumerate(joined) if branch.conflict is not None}
    try:
        codes = {
            position: code
            for position, branch in enumerate(joined)
            if branch.status == COMPLETED and branch.step is not None
            if (code := newest(branch.step)) is not None
        }
    except LookupError:
        return CodeMerge(fork.row.node, begun.commit, None, conflicts, join.code is not None)
    changed = {position: code.commit for position, code in codes.items() if code.is_later(begun)}
    if not changed and join.code is None:
        return None
    return CodeMerge(fork.row.node, begun.commit, changed, conflicts, join.code is not None)


class RecordedCode(NamedTuple):
    """The code of a verified step or attempt. `kind` is step or attempt, `node` its node, `object` its commit
    in the store, and `ref` leads there. That of a join has its `merge`; it is that of the fork if the join has none."""

    kind: str
    node: Hash
    code: Revision
    object: str
    thread: ThreadId
    ref: str
    merge: CodeMerge | None = None

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


def check_code(
    records: Sequence[RecordedCode],
    projects: Iterable[Path],
    made_here: Callable[[], Collection[str]] = tuple,
) -> CodeResult:
    """Check code against projects, given by their git directories, until all was found. Those that git cannot
    read have none. `made_here` returns the commits that must be there, since uwf made them there for steps and failed
    attempts."""
    findings: list[Finding] = []
    waiting: list[RecordedCode] = []
    unknown: list[RecordedCode] = []
    for code in records:
        if problem := _malformed(code.code) or _unlike_merge(code):
            findings.append(code.finding(problem))
        elif code.merge is None or code.merge.has_code:
            waiting.append(code)
        if code.merge is not None and code.merge.branches is None:
            unknown.append(code)
    places: list[Path] = []
    for project in projects if waiting else ():
        places.append(project)
        objects = _objects(project, (item.code for item in waiting))
        elsewhere = []
        for code in waiting:
            if not _is_here(code.code, objects):
                elsewhere.append(code)
            elif problem := _problem(code.code, objects):
                findings.append(code.finding(problem))
            elif code.merge is not None and code.merge.branches is not None:
                unknown += _remerge(project, code, code.merge.branches, findings)
        waiting = elsewhere
        if not waiting:
            break
    known = made_here() if waiting else ()
    for code in [item for item in waiting if item.code.commit in known]:
        waiting.remove(code)
        message = f"{code.kind} {code.node} left commit {code.code.commit}, which is gone from its project"
        step = code.node if code.kind == "step" else None
        findings.append(Finding("lost-code", code.thread, step, code.object, message, code.ref))
    return CodeResult(findings, [*_notes(waiting, places), *map(_not_merged, unknown)])


def check_diffs(diffs: Sequence[ShownDiff], projects: Iterable[Path]) -> list[Finding]:
    """Compare the diffs that people were shown with those of the projects that have their commits."""
    findings: list[Finding] = []
    waiting = list(diffs)
    digests: dict[tuple[str, str], str] = {}
    for project in projects if waiting else ():
        elsewhere = []
        for diff in waiting:
            key = diff.base, diff.commit
            if key not in digests and (digest := _diff_digest(project, *key)):
                digests[key] = digest
            if key not in digests:
                elsewhere.append(diff)
            elif digests[key] != diff.sha256:
                findings.append(diff.finding)
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
        content = git.run(*RAW_DIFF, base, commit, "--", at_most=RAW_BYTES + 1).out
    except (UwfError, OSError):
        return ""
    return sha256(content).hexdigest() if len(content) <= RAW_BYTES else ""


def _malformed(code: Revision) -> str:
    # The schema says so too, but what gets to git is checked here.
    for name in ("commit", "tree", "base"):
        text = getattr(code, name)
        if not isinstance(text, str) or not _is_object_id(text):
            return f"names {one_line(str(text), 80)!r} as the {name} of its code, which is not an object id"
    return ""


def _unlike_merge(record: RecordedCode) -> str:
    merge = record.merge
    if merge is None or merge.branches is None:
        return ""
    if not merge.has_code:
        return (
            f"joins branches that left code, {_listed(merge.branches)}, and names none"
            if merge.branches
            else ""
        )
    if not merge.branches:
        return "names code, though its branches changed none"
    if record.code.base != merge.base:
        return (
            f"names {record.code.base} as the base of its code, which is not that of its fork, {merge.base}"
        )
    return next(
        (f"has no object id in branch {at}" for at, it in merge.branches.items() if not _is_object_id(it)), ""
    )


def _listed(branches: Mapping[int, str]) -> str:
    return ", ".join(
        f"{commit[:12]} of branch {position}" for position, commit in islice(branches.items(), 3)
    )


def _remerge(
    place: Path, record: RecordedCode, branches: Mapping[int, str], findings: list[Finding]
) -> Iterator[RecordedCode]:
    """Merge the code of a join again; yield the join if that is not possible here."""
    from uwf_git.workspaces.merging import merging
    from uwf_git.workspaces.project import Project

    merge, code = record.merge, record.code
    assert merge is not None
    try:
        with merging(Project(place), merge.base) as merges:
            if merges.missing([merge.base, *branches.values()]):
                yield record
                return
            merged = merges.merge(merge.fork, merge.base, branches)
    except (UwfError, OSError):
        yield record
        return
    if merged.commit != code.commit:
        findings.append(
            record.finding(
                f"names commit {code.commit} as the merge of its branches, which is {merged.commit}"
            )
        )
    elif {position: conflict.paths for position, conflict in merged.conflicts.items()} != merge.conflicts:
        findings.append(record.finding("names other conflicts than its branches have"))


def _not_merged(record: RecordedCode) -> Finding:
    message = f"the merge of code in step {record.node} is not checked: the code of its branches is not here"
    return Finding("code-elsewhere", record.thread, None, record.object, message, record.ref)


def _is_here(code: Revision, objects: _Objects) -> bool:
    object_here = objects.get(code.commit)
    return object_here is not None and (object_here.type != "commit" or _tree_of(code.commit) in objects)


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


def _notes(elsewhere: Iterable[RecordedCode], places: Sequence[Path]) -> list[Finding]:
    threads: dict[ThreadId, list[RecordedCode]] = {}
    for code in elsewhere:
        threads.setdefault(code.thread, []).append(code)

    @cache
    def remote_of(url: str) -> str:
        return remote_named(url, places)

    return [
        Finding(
            "code-elsewhere", thread, None, records[0].object, _elsewhere(records, remote_of), records[0].ref
        )
        for thread, records in threads.items()
    ]


def _elsewhere(records: Sequence[RecordedCode], remote_of: Callable[[str], str]) -> str:
    numbers = Counter(record.kind for record in records)
    what = " and ".join(counted(numbers[kind], kind) for kind in ("step", "attempt") if numbers[kind])
    # The code of attempts is not pushed.
    step = next((record for record in records if record.kind == "step" and record.code.remote), None)
    if step is None:
        return f"the code of {what} is not here: not checked"
    from uwf_git.workspaces.project import way_here

    way = way_here(step.thread, step.code.commit, remote_of(step.code.remote))
    return f"the code of {what} is not here{doubted(step.code)}: not checked; {way}"
