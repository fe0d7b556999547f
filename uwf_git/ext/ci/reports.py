"""Reports for programs: SARIF 2.1.0, GitLab's code quality, JUnit; and workflow commands, which annotate the lines of a
diff, in the output of a job of GitHub, Forgejo and Gitea.

A runner reads commands from every line that a job prints, so foreign text in it can set outputs or hide lines.
`guarded` switches them off around what is printed, with a random word.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from uwf_git.ext.ci.result import Check, Problem
from uwf_git.plugin import ERROR, FAILED, VERSION, CaseOutcome, Undecided, junit, one_line, printable

FALLBACK = "README.md"
"""The file of problems that are in none: code scanning and code quality take no other."""

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_HOME = "https://pypi.org/project/uwf-git/"
_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}


def sarif(checks: Iterable[Check]) -> dict[str, Any]:
    """Return a SARIF log with a result for each problem."""
    problems = [problem for check in checks for problem in check.problems]
    codes = sorted({problem.code for problem in problems})
    driver = {
        "name": "uwf",
        "version": VERSION,
        "informationUri": _HOME,
        "rules": [{"id": code, "shortDescription": {"text": _described(code)}} for code in codes],
    }
    results = [
        {
            "ruleId": problem.code,
            "ruleIndex": codes.index(problem.code),
            "level": problem.level,
            "message": {"text": problem.message},
            "locations": [_location(problem)],
            "partialFingerprints": {"uwf/v1": _fingerprint(problem)},
        }
        for problem in problems
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def code_quality(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """Return GitLab's code quality report; each fingerprint is unique, as GitLab shows only one of equal ones."""
    issues: dict[str, dict[str, Any]] = {}
    for problem in (problem for check in checks for problem in check.problems):
        fingerprint = _fingerprint(problem)
        issues[fingerprint] = {
            "description": problem.message,
            "check_name": f"uwf/{problem.code}",
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[problem.level],
            "location": {"path": problem.path or FALLBACK, "lines": {"begin": problem.line or 1}},
        }
    return list(issues.values())


def junit_report(checks: Sequence[Check]) -> str:
    """Return JUnit XML with a case for each check."""
    return junit("uwf", [_case(check) for check in checks])


def _case(check: Check) -> CaseOutcome:
    lines = [check.summary, *(problem.text for problem in check.problems)]
    wrong = (ERROR if check.status == Undecided.exit_status else FAILED) if check.status else ""
    message = check.summary if wrong else ""
    return CaseOutcome(f"{check.kind} {check.name}", 0.0, wrong, message, "\n".join(lines), "uwf")


def _location(problem: Problem) -> dict[str, Any]:
    uri = quote(problem.path or FALLBACK, errors="surrogateescape")
    region = {"startLine": problem.line or 1}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}


def _fingerprint(problem: Problem) -> str:
    parts = (problem.code, problem.path, str(problem.line), problem.message)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _described(code: str) -> str:
    from uwf_git.plugin import FINDING_CODES

    return one_line(FINDING_CODES.get(code, code.replace("-", " ")), 300)


MOST = 50
"""Annotations that GitHub shows of a job."""

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def annotated(problems: Iterable[Problem]) -> str:
    """Return a command for each problem, errors first, at most MOST."""
    ordered = sorted(problems, key=lambda problem: tuple(_COMMANDS).index(problem.level))
    lines = [_annotation(problem) for problem in ordered[:MOST]]
    if len(ordered) > MOST:
        lines[-1] = f"::notice title=uwf::{len(ordered) - MOST + 1} more problems are in the log"
    return "".join(f"{line}\n" for line in lines)


def guarded(text: str) -> str:
    """Return a text for a log in which no runner finds a command."""
    word = secrets.token_hex(16)
    return f"::stop-commands::{word}\n{text.rstrip()}\n::{word}::\n"


def _annotation(problem: Problem) -> str:
    place = {"file": problem.path, "line": str(problem.line or 1)} if problem.path else {}
    properties = {**place, "title": f"uwf: {problem.code}"}
    named = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[problem.level]} {named}::{_data(one_line(problem.message, 1000))}"


def _data(text: str) -> str:
    # Runners also know an older form of command, anywhere in a line.
    return printable(text, " ").replace("%", "%25").replace("##[", "##\u200b[")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
