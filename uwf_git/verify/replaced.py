"""Objects that git shows as others: those with a ref under refs/replace/, and commits in info/grafts. uwf reads
neither, so what it verifies is not what git shows."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path

from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.verify.findings import Finding

_REPLACE = "refs/replace/"
CODE = "replaced"


def replaced_objects(repository: Repository, refs: Mapping[str, Oid | None], every: bool) -> list[Finding]:
    """Return a finding for each object of uwf's refs that git shows as another; with `every`, for any object."""
    findings = [
        _finding(repository, name.removeprefix(_REPLACE), name)
        for name in sorted(repository.ref_names(_REPLACE))
    ]
    findings += [_finding(repository, commit, "") for commit in _grafted(repository.path)]
    if not findings or every:
        return findings
    reached = _objects(repository, [oid for oid in refs.values() if oid is not None])
    return [finding for finding in findings if finding.object in reached]


def _finding(repository: Repository, oid: str, ref: str) -> Finding:
    place = ref or f"{repository.path / 'info/grafts'}"
    undo = f"git --git-dir {repository.path} replace -d {oid}" if ref else "remove its line"
    message = f"git shows object {oid[:10]} as another than it is, by {place}: {undo}"
    return Finding(CODE, _thread_of(repository, oid), None, oid, message, ref)


def _thread_of(repository: Repository, oid: str) -> ThreadId | None:
    """Return the thread at whose head an object is."""
    for name, head in repository.refs(without=layout.REMOTES).items():
        if str(head) == oid and layout.is_thread_ref(name):
            return layout.thread_of(name)
    return None


def _grafted(git_dir: Path) -> list[str]:
    with contextlib.suppress(OSError):
        lines = (git_dir / "info/grafts").read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    return []


def _objects(repository: Repository, tips: Collection[Oid]) -> set[str]:
    from uwf_git.git.program import Git

    order = "".join(f"{oid}\n" for oid in sorted(map(str, tips))).encode()
    listed = Git(repository.path).run(
        "rev-list", "--objects", "--ignore-missing", "--stdin", stdin=order, check=False
    )
    return {line.split(" ", 1)[0] for line in listed.out.decode("ascii", "replace").splitlines()} | set(
        map(str, tips)
    )
