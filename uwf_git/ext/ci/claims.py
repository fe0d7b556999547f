"""The claims of a pull or merge request, held against the thread that they name.

`uwf claims` judges them, in a temporary store that verifies what it pulls from the job's checkout. The text of a
request is anybody's, and so is the checkout: nothing of either is run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uwf_git.ext.ci.checkout import Checkout, Subject
from uwf_git.ext.ci.job import OPTIONAL, REQUIRED, Job
from uwf_git.ext.ci.result import Check, Problem
from uwf_git.ext.ci.summary import listed, span
from uwf_git.ext.ci.temporary_store import call_uwf
from uwf_git.plugin import NothingToVerify, RequirementUnmet, StoreDamaged, UwfError, counted, one_line

_SHOWN = 12  # letters of a tree or digest


def checked_claims(checkout: Checkout, subject: Subject, job: Job, mode: str) -> Check | None:
    """Return the check of a change's claims; without any None, unless `mode` is OPTIONAL or REQUIRED."""
    name, tree = f"#{job.number}", checkout.object(f"{subject.record}^{{tree}}")
    with tempfile.TemporaryDirectory(prefix="uwf-ci-") as folder:
        root, file = Path(folder) / "root", Path(folder) / "request.md"
        file.write_text(job.text, encoding="utf-8", errors="replace")
        call = ("claims", str(file), "--tree", tree)
        code, _, _ = call_uwf(root, *call)
        if code == NothingToVerify.exit_status:
            return _without(name, job, mode)
        _, _, pull_error = call_uwf(root, "clone", str(checkout.git_dir))
        code, value, error = call_uwf(root, *call)
    if code not in (0, StoreDamaged.exit_status) or not isinstance(value, dict):
        problem = _problem("claims-unreadable", error or f"uwf claims ended with {code}")
        return Check("claims", name, UwfError.exit_status, problem.message, (problem,))
    claims = value["claims"]
    refusals = [*value["refused"], *(claim["refused"] for claim in claims if claim["refused"])]
    problems = [_problem(refusal["code"], refusal["message"]) for refusal in refusals]
    if problems and pull_error:
        problems.append(Problem("note", "claims-pull", one_line(pull_error, 1000)))
    count = 0 if value["refused"] else sum(not claim["refused"] for claim in claims)
    summary = f"{count} of {counted(len(claims), 'claim')} on tree {tree[:_SHOWN]} hold"
    page = "\n\n".join(filter(None, (f"{summary}.", _table(value), listed(problems))))
    return Check("claims", name, code, summary, tuple(problems), page, {"claims": claims})


def _without(name: str, job: Job, mode: str) -> Check | None:
    if job.is_cut:
        problem = _problem("claims-truncated", f"{job.forge} gives the job only the beginning of the text")
        return Check("claims", name, StoreDamaged.exit_status, problem.message, (problem,))
    message = "the request has no claims"
    if mode == REQUIRED:
        problem = _problem("claims-missing", message)
        return Check("claims", name, RequirementUnmet.exit_status, message, (problem,))
    note = Problem("note", "claims-missing", message)
    return Check("claims", name, 0, message, (note,)) if mode == OPTIONAL else None


def _problem(code: str, message: str) -> Problem:
    return Problem("error", code, one_line(message, 1000))


def _table(value: Mapping[str, Any]) -> str:
    """Return the claims of a thread with their verdicts as a table, "" if they could not be read."""
    if value["thread"] is None:
        return ""
    rows = [
        (
            "**refused**" if value["refused"] or claim["refused"] else "holds",
            _cell(claim["what"]),
            _cell(claim["by"]),
            str(claim["step"] or ""),
            _cell(claim["log"]),
        )
        for claim in value["claims"]
    ]
    lines = [("", "claim", "by", "step", "log, SHA-256"), ("---",) * 5, *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"Thread {span(value['thread'])}, record {span(value['record'][:_SHOWN])}.\n\n{table}"


def _cell(text: str) -> str:
    return span(text).replace("|", "\\|")
