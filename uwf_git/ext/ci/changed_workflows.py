"""Workflows that a change touches: checked, and rehearsed before and after. No agent runs, and no code workflow."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from uwf_git.ext.ci.checkout import Checkout, Subject
from uwf_git.ext.ci.result import Check, Problem
from uwf_git.ext.ci.summary import listed, span
from uwf_git.plugin import (
    FOLDER,
    INCLUDED,
    Compiled,
    Invalid,
    InvalidWorkflow,
    NotFound,
    Rehearsal,
    Source,
    TimeExceeded,
    Undecided,
    UwfError,
    compile_source,
    counted,
    foresee,
    one_line,
    parse_source,
    rehearse,
    time_limit,
)

MOST = 50
"""Workflows that one job checks."""

DEFINITION = "workflow.yaml"
SECONDS = 60.0
_REHEARSAL = 10.0
_YAML = (".yaml", ".yml")


class Changed(NamedTuple):
    """A changed workflow: its check, and its source and compiled form if it has no errors."""

    check: Check
    compiled: Compiled | None


def changed_workflows(checkout: Checkout, subject: Subject) -> Iterator[Changed]:
    """Yield the workflows that differ between a subject and its base, at most MOST: `workflow.yaml` if one of
    them is a version of a workflow, and those in `.uwf/workflows`."""
    kinds = {checkout.kind(subject.record), checkout.kind(subject.base)}
    paths = [DEFINITION] if "workflow" in kinds else []
    names = {*checkout.files(subject.revision, FOLDER), *_before(checkout, subject)}
    paths += [
        f"{FOLDER}/{name}" for name in sorted(names) if name.isprintable() and name.lower().endswith(_YAML)
    ]
    room = MOST
    for path in paths:
        now = _files(checkout, subject.revision, path)
        then = _files(checkout, subject.base, path) if subject.base else None
        if now == then:
            continue
        if room == 0:
            yield Changed(
                Check("workflow", path, Undecided.exit_status, f"over {MOST} workflows changed"), None
            )
            return
        room -= 1
        yield (
            _checked(checkout, subject, path)
            if now is not None
            else Changed(Check("workflow", path, 0, "removed", page=f"{span(path)} was removed."), None)
        )


def _before(checkout: Checkout, subject: Subject) -> dict[str, str]:
    return checkout.files(subject.base, FOLDER) if subject.base else {}


def _files(checkout: Checkout, commit: str, path: str) -> dict[str, bytes] | None:
    """Return a workflow's file and those that it includes, None if it isn't there."""
    text = checkout.file(commit, path)
    if text is None:
        return None
    contents = {path: text}
    try:
        with time_limit(SECONDS):
            source = parse_source(text, path, _include(checkout, commit, path))
    except (UwfError, TimeExceeded):
        return contents
    return contents | dict(source.includes)


def _include(checkout: Checkout, commit: str, path: str) -> Callable[[str], bytes]:
    folder = INCLUDED.rstrip("/") if path == DEFINITION else posixpath.dirname(path)

    def include(relative: str) -> bytes:
        data = checkout.file(commit, f"{folder}/{relative}")
        if data is None:
            raise NotFound(f"no file {one_line(relative, 80)}", "add it beside the workflow")
        return data

    return include


def _checked(checkout: Checkout, subject: Subject, path: str) -> Changed:
    compiled, report, problems = _compiled(checkout, subject.revision, path)
    before = None
    if subject.base and checkout.file(subject.base, path) is not None:
        _, before, _ = _compiled(checkout, subject.base, path, warns=False)
    wrong = sum(problem.level == "error" for problem in problems)
    parts = [counted(wrong, "error")] if wrong else []
    warnings = sum(problem.level == "warning" for problem in problems)
    parts += [counted(warnings, "warning")] if warnings else []
    if report is not None:
        parts.append(_coverage(report, before))
        problems = (*problems, *_lost(path, report, before))
    check = Check(
        "workflow",
        path,
        UwfError.exit_status if wrong else 0,
        "; ".join(parts) or "valid",
        problems,
        _page(path, report, before, problems),
        {"coverage": _value(report), "before": _value(before)},
    )
    return Changed(check, compiled)


def _compiled(
    checkout: Checkout, commit: str, path: str, warns: bool = True
) -> tuple[Compiled | None, Rehearsal | None, tuple[Problem, ...]]:
    text = checkout.file(commit, path)
    if text is None:
        return None, None, (Problem("error", "invalid", f"{path} is too large", path),)
    try:
        with time_limit(SECONDS):
            compiled = compile_source(_source(checkout, commit, path, text))
            findings = foresee(compiled, _REHEARSAL) if warns else ()
            report = rehearse(compiled.workflow, compiled.schemas, seconds=_REHEARSAL)
    except InvalidWorkflow as error:
        findings = error.findings
        problems = (
            Problem(finding.severity, finding.code, _message(finding), path, finding.line)
            for finding in findings
        )
        return None, None, tuple(problems)
    except Invalid as error:
        return None, None, (Problem("error", "invalid", error.message, path, 1),)
    except NotFound as error:
        return None, None, (Problem("error", "not_found", error.message, path, 1),)
    except TimeExceeded:
        message = f"{path} takes over {SECONDS:g} s to check"
        return None, None, (Problem("error", "unchecked", message, path),)
    problems = (
        Problem("warning", finding.code, _message(finding), path, finding.line) for finding in findings
    )
    return compiled, report, tuple(problems)


def _source(checkout: Checkout, commit: str, path: str, text: bytes) -> Source:
    return parse_source(text, path, _include(checkout, commit, path))


def _message(finding: Any) -> str:
    return f"{finding.message} — {finding.hint}" if finding.hint else str(finding.message)


def _reached(report: Rehearsal) -> int:
    return sum(visits > 0 for visits in report.roles.values())


def _coverage(report: Rehearsal, before: Rehearsal | None) -> str:
    roles = f"{_reached(report)} of {len(report.roles)} roles"
    coverage = f"{report.taken} of {len(report.edges)} edges and {roles} reached"
    if before is None:
        return coverage
    return f"{coverage}, before {before.taken} of {len(before.edges)} and {_reached(before)} of {len(before.roles)}"


def _lost(path: str, report: Rehearsal, before: Rehearsal | None) -> Iterator[Problem]:
    if before is not None and report.percent < before.percent:
        message = f"the rehearsal takes {report.percent} % of the edges, before {before.percent} %"
        yield Problem("warning", "coverage", message, path, 1)


def _value(report: Rehearsal | None) -> dict[str, Any] | None:
    if report is None:
        return None
    reached = {"reached": _reached(report), "roles": len(report.roles)}
    return {**report.to_json()["coverage"], **reached}


def _page(
    path: str, report: Rehearsal | None, before: Rehearsal | None, problems: tuple[Problem, ...]
) -> str:
    if report is None:
        return f"{span(path)} is not valid.\n\n{listed(problems)}"
    rows = [
        "| | before | after |",
        "|---|---|---|",
        f"| roles reached | {_of(before, 'roles')} | {_of(report, 'roles')} |",
        f"| edges taken | {_of(before, 'edges')} | {_of(report, 'edges')} |",
    ]
    warned = f", {counted(len(problems), 'warning')}" if problems else ""
    parts = [f"{span(path)} is valid{warned}.", "\n".join(rows), listed(problems)]
    return "\n\n".join(filter(None, parts))


def _of(report: Rehearsal | None, what: str) -> str:
    if report is None:
        return "–"
    if what == "roles":
        return f"{_reached(report)} of {len(report.roles)}"
    return f"{report.taken} of {len(report.edges)}"
