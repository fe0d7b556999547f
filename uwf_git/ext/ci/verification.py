"""The verification of a branch, and the front page of its thread.

The page of a comment is made of the commits' messages, which verification compares with the nodes; of a branch that
isn't what its nodes say, none is shown.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from uwf_git.ext.ci.checkout import Checkout, Commit, Subject
from uwf_git.ext.ci.result import Check, Problem
from uwf_git.ext.ci.summary import SHOWN_PROBLEMS, block, listed, span
from uwf_git.plugin import (
    NothingToVerify,
    Report,
    RequirementUnmet,
    Rewritten,
    StoreDamaged,
    Undecided,
    UwfError,
    check_tree,
    counted,
    one_line,
    unmet_requirements,
)

SHOWN_STEPS = 60
_STATES = {
    "**Ended**": "ended",
    "**Failed**": "failed",
    "**Waits for an answer**": "waits for an answer",
    "**A conversation**": "a conversation",
    "**Under way**": "under way",
}
_WRONG = {
    StoreDamaged.exit_status: "Not what it says it is",
    Rewritten.exit_status: "Its history was rewritten",
    RequirementUnmet.exit_status: "Not signed as the trust policy requires",
    Undecided.exit_status: "Not checked to the end",
}
_OF_PROJECT = "uwf's files are what the nodes say. The project's own files were not verified."
_STEP = re.compile(r"([0-9]{4,}) ([^:]*)(?:: (.*))?")


class Verified(NamedTuple):
    """A verified subject. `kind` is that of the record that it ends with, such as `step`, "" if it ends with
    none; `is_empty`: there is nothing of uwf's in it."""

    check: Check
    kind: str
    is_empty: bool = False


def verify_subject(checkout: Checkout, subject: Subject) -> Verified:
    """Verify a subject's commit with its past."""
    kind = checkout.kind(subject.record)
    try:
        report = check_tree(checkout.folder, subject.ref, subject.branch, target=subject.target)
        holds = report.published.subjects if report.published is not None else ()
        report = report._replace(
            findings=[
                *report.findings,
                *unmet_requirements(checkout.objects, checkout.object, subject.branch, holds),
            ]
        )
    except NothingToVerify:
        message = "there is nothing to verify"
        problem = Problem("error", NothingToVerify.code, f"{subject.name}: {message}")
        page = f"There is nothing of uwf's in {span(subject.name)}."
        status = NothingToVerify.exit_status
        return Verified(Check("branch", subject.name, status, message, (problem,), page), kind, True)
    except UwfError as error:
        # One branch must not keep the others of a sweep from being checked.
        message = one_line(error.message, 1000)
        problem = Problem("error", error.code, message)
        return Verified(Check("branch", subject.name, error.exit_status, message, (problem,)), kind)
    problems = _problems(report)
    result = report.verified
    counts = [counted(number, what) for number, what in ((result.steps, "step"), (result.nodes, "node"))]
    wrong = counted(len(report.findings), "finding") if report.findings else "nothing is wrong"
    value = {"verified": {"threads": result.threads, "steps": result.steps, "nodes": result.nodes}}
    page = (
        _wrong(report.exit_status, problems)
        if report.findings
        else _front_page(checkout, subject, kind, report)
    )
    parts = [page, *_remarks(report), _locally(subject)]
    check = Check(
        "branch",
        subject.name,
        report.exit_status,
        f"{', '.join(counts)}: {wrong}",
        problems,
        "\n\n".join(filter(None, parts)),
        value,
    )
    return Verified(check, kind)


def _problems(report: Report) -> tuple[Problem, ...]:
    problems = [
        Problem("error", finding.code, one_line(finding.message, 1000), finding.path, finding.line)
        for finding in report.findings
    ]
    problems += [
        Problem("warning", warning.code, one_line(warning.message, 1000))
        for warning in report.verified.warnings
    ]
    problems += [Problem("note", note.code, one_line(note.message, 1000)) for note in report.verified.notes]
    return tuple(problems)


def _remarks(report: Report) -> list[str]:
    return [
        f"{word}: {span(one_line(remark.message, 300), 300)}"
        for word, remarks in (("Warning", report.verified.warnings), ("Note", report.verified.notes))
        for remark in remarks[:SHOWN_PROBLEMS]
    ]


def _wrong(status: int, problems: tuple[Problem, ...]) -> str:
    errors = [problem for problem in problems if problem.level == "error"]
    return f"**{_WRONG[status]}**: {counted(len(errors), 'finding')}.\n\n{listed(errors)}"


def _front_page(checkout: Checkout, subject: Subject, kind: str, report: Report) -> str:
    if kind not in ("step", "start"):
        holds = report.published.subjects if report.published is not None else ()
        rows = [f"- {hold.kind} {span(hold.name)}{_length(hold.steps)}" for hold in holds[:SHOWN_STEPS]]
        is_projects = report.published is not None and report.published.own_names is not None
        what = _OF_PROJECT if is_projects else "every file is what the nodes say."
        return "\n".join([f"**Verified**: {what}", "", *rows])
    steps: list[Commit] = []
    start: Commit | None = None
    workflow: Commit | None = None
    for commit in checkout.log(subject.record):
        record = commit.trailers.kind if commit.trailers else ""
        if record == "step" and start is None:
            steps.append(commit)
        elif record == "start" and start is None:
            start = commit
        else:
            workflow = commit if record == "workflow" else None
            break
    lines = [f"**Verified**: {_state(checkout, subject)} after {counted(len(steps), 'step')}."]
    if start is not None:
        title = start.subject.partition(": ")[2]
        lines[0] += f" The task: {span(title)}"
    if workflow is not None:
        name = workflow.subject.removeprefix("workflow ").rpartition(" ")[0]
        version = workflow.trailers.node if workflow.trailers else ""
        lines.append(f"Workflow {span(name)}, version {span(version)}.")
    steps.reverse()
    shown = steps if len(steps) <= SHOWN_STEPS else [*steps[:5], *steps[5 - SHOWN_STEPS :]]
    rows = [_step(commit) for commit in shown]
    if len(shown) < len(steps):
        rows.insert(5, f"- … {len(steps) - len(shown)} more …")
    return "\n\n".join([*lines, "\n".join(rows)] if rows else lines)


def _length(steps: int) -> str:
    return f", {counted(steps, 'step')}" if steps else ""


def _step(commit: Commit) -> str:
    match = _STEP.fullmatch(commit.subject)
    number, role, verdict = (
        (match[1].lstrip("0"), match[2], match[3] or "") if match else ("", commit.subject, "")
    )
    verdict_note = f": {span(verdict)}" if verdict else ""
    code = commit.trailer("Uwf-Code")
    code_note = f", code {span(code[:12])}" if code else ""
    return f"- {number} {span(role, 60)}{verdict_note} by {span(commit.trailer('Uwf-Agent'), 60)}{code_note}"


def _state(checkout: Checkout, subject: Subject) -> str:
    page = (checkout.file(subject.record, "README.md") or b"").decode("utf-8", "replace")
    state = next(iter(page.split("\n\n", 2)[1:2]), "")
    return next((word for begin, word in _STATES.items() if state.startswith(begin)), "a thread")


def _locally(subject: Subject) -> str:
    if not subject.source:
        return ""
    name = f"origin/{subject.source.removeprefix('refs/').removeprefix('heads/')}"
    fetched = f"git fetch origin {shlex.quote(f'+{subject.source}:refs/remotes/{name}')}"
    return "On your machine:\n\n" + block(f"{fetched}\nuwf verify {shlex.quote(name)}")
