"""Attempts: steps that failed, in a chain of commits beside the thread."""

from __future__ import annotations

from uwf_git.store import layout, pages
from uwf_git.values.ids import Hash
from uwf_git.verify.findings import Bad
from uwf_git.verify.known import Known, row_for
from uwf_git.verify.nodes import Report
from uwf_git.verify.objects import CommitObject
from uwf_git.verify.past import Record
from uwf_git.verify.trees import grown, node_files, row_of
from uwf_git.workflow.moderator import Next


def check_attempt(known: Known, commit: CommitObject, node: Hash, report: Report) -> Record | None:
    """Checks the commit of a failed attempt, and returns what it records; None where a parent's record is
    missing. Raises Bad where it can't be read further."""
    if not 1 <= len(commit.parents) <= 2:
        raise Bad("wrong-parent", commit.oid, "an attempt has one parent or two")
    first = known.parent(commit, 0, ("attempt", "start", "step"))
    if first is None:
        return None
    before = first if first.kind == "attempt" else None
    if before is None and len(commit.parents) == 2:
        raise Bad("wrong-parent", commit.oid, "the first of an attempt's two parents is an attempt")
    head = known.parent(commit, 1, ("start", "step")) if len(commit.parents) == 2 else first
    if head is before:
        head = known.head_of(before)
    if head is None:
        return None
    number = before.number + 1 if before is not None else 1
    name = known.new_folder(commit.tree, ("attempts",), number, commit)
    files, here = known.folder(name.tree, name.path, node, commit, report)
    payload = known.node(here, node, "attempt", commit).payload
    _attempt_tree(known, commit, head, before, layout.attempt_folder(number, payload["role"]), report)
    prev = head.node if head.kind == "step" else None
    if (payload["start"], payload["prev"]) != (head.start, prev):
        report("wrong-chain", commit.oid, f"attempt {node} was not made on the head {head.node}")

    definition = known.definition(head)
    past = known.past
    past.go_to(head, known.records)
    here = {each: content for each, content in here.items() if each not in past.hashes}
    here.pop(payload["start"], None)

    def elsewhere(target: Hash) -> bool:
        there = target in definition.nodes or target == payload["start"] or target in past.hashes
        return there or known.in_earlier(head, target)

    reached = known.nodes.closure(node, here, elsewhere, report, commit.oid)
    for extra in node_files(files, "").keys() - reached:
        report("extra-file", commit.oid, f"{name.path}nodes/{extra}.json is not what the attempt adds")
    detail = known.content(here, payload["detail"]) if payload["detail"] else None
    if head.decided:
        decision = known.decision(head)
        role = decision.role if isinstance(decision, Next) else None
        if role != payload["role"]:
            report("wrong-role", commit.oid, f"{payload['role']} tried, the workflow called {role} for it")
        elif detail is not None:
            assert not isinstance(decision, str)
            known.check_detail(commit, detail, here, decision, head, report)
    answer = pages.answer_of(None, detail.type, detail.payload) if detail is not None else None
    known.page(files, name.path, pages.attempt_readme(payload, answer), commit, report)
    known.message(commit, layout.attempt_message(number, node, payload), report)
    known.author(commit, payload["agent"], report)
    return Record(
        commit.oid.raw,
        "attempt",
        node,
        commit.tree,
        before=before.oid if before is not None else None,
        head=head.oid,
        number=number,
        start=head.start,
        workflow=head.workflow,
        row=row_for(commit, "attempt", node)._replace(start=payload["start"], role=payload["role"]),
    )


def _attempt_tree(
    known: Known,
    commit: CommitObject,
    head: Record,
    before: Record | None,
    folders: tuple[str, ...],
    report: Report,
) -> None:
    """An attempt's tree is the head's, with all attempts so far beside it."""
    attempts = grown(known.objects, commit.tree, head.tree, folders[:1], report)
    earlier = row_of(known.objects, before.tree, folders[0]) if before is not None else None
    grown(known.objects, attempts, earlier[2] if earlier else None, folders[1:], report)
