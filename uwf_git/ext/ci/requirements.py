"""The requirements of the repository's trust policy for a published branch.

It is judged in a temporary store that borrows the checkout's objects. A job has seen no policy before, so it follows
the one that the repository has now, if that is signed as policies must be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.api.check import Report, with_requirements
from uwf_git.ext.ci.checkout import Checkout, Subject
from uwf_git.format.ids import is_thread_id
from uwf_git.git.repository import Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.instance import Instance
from uwf_git.store.location import init, locate
from uwf_git.trust.judgement import UNMET
from uwf_git.trust.policy import OF_THREADS
from uwf_git.verify.findings import Finding
from uwf_git.verify.whole import VerifyResult

if TYPE_CHECKING:
    from uwf_git.trust.policy import Policy
    from uwf_git.verify.published import Subject as Held

THREAD, COMMITS = "thread", "commits"
_NOTHING = VerifyResult(0, 0, 0, (), (), (), ())


def unmet(checkout: Checkout, subject: Subject, holds: Sequence[Held]) -> list[Finding]:
    """Return the findings for a branch's records under the policy's rules, and for the policy itself; none without a
    policy. Proposals are held to it when they are accepted."""
    policy = checkout.commit(layout.POLICY)
    if not policy:
        return []
    from uwf_git.trust import policies

    with tempfile.TemporaryDirectory(prefix="uwf-ci-") as folder:
        location = locate(folder, {}, Path(folder))
        init(location)
        borrowed = location.git_dir / "objects" / "info" / "alternates"
        borrowed.write_text(f"{checkout.objects}\n", encoding="utf-8")
        instance = Instance(location)
        repository = instance.store.repository
        commit = Oid(hex=policy)
        wrong = policies.problems(repository, commit)
        if wrong:
            return [
                Finding(each.code, None, None, str(each.at), each.message, layout.POLICY) for each in wrong
            ]
        repository.create_ref(layout.POLICY, commit)
        found = [
            _without_commits(each)
            for each in holds
            if each.kind == THREAD
            and each.by != COMMITS
            and _applies(policies.read(repository, commit), each)
        ]
        refs = {name: Oid(hex=oid) for name, oid in _refs(checkout, subject, holds)}
        if refs:
            found += with_requirements(instance, Report(refs, _NOTHING, [])).findings
        return found


def _applies(policy: Policy, thread: Held) -> bool:
    return bool(policy.rules_for("threads", thread.name, OF_THREADS))


def _without_commits(thread: Held) -> Finding:
    message = f"a thread of {thread.name} has no commits of its own here, so that nobody signed its steps"
    return Finding(UNMET, None, None, thread.commit, message)


def _refs(checkout: Checkout, subject: Subject, holds: Sequence[Held]) -> Iterator[tuple[str, str]]:
    """Yield the refs that a store has for a branch's records: heads and ends of threads, definitions."""
    branch = f"refs/heads/{subject.branch}"
    for number, each in enumerate(holds):
        if each.kind == THREAD and each.by == COMMITS:
            of = branch.removeprefix(f"{layout.BRANCHES}threads/")
            thread = of if is_thread_id(of) else f"{number:026d}"
            yield layout.THREADS + thread, each.commit
            if end := checkout.object(layout.ARCHIVE + thread):
                yield layout.ARCHIVE + thread, end
        for kind in ref_kinds.versioned().values():
            if each.kind in kind.records and branch.startswith(kind.branches):
                yield kind.prefix + branch.removeprefix(kind.branches), each.commit
