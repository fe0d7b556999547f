"""Results as JUnit XML, one test case per case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from uwf_git.base.text import for_xml

FAILED, ERROR, SKIPPED = "failure", "error", "skipped"
"""The outcomes of a case besides success, by their elements: it failed, could not be decided, or was skipped."""


class CaseOutcome(NamedTuple):
    """A case. `wrong` is FAILED, ERROR, SKIPPED or ""; `message` is one line; `seconds` are of all its runs.
    `type` is that of the failure, by default its element."""

    name: str
    seconds: float
    wrong: str = ""
    message: str = ""
    details: str = ""
    type: str = ""


def junit(suite: str, cases: Sequence[CaseOutcome], about: Sequence[tuple[str, str]] = ()) -> str:
    """Return a deterministic XML document. `about` are properties of the whole."""
    counts = (
        f'tests="{len(cases)}" failures="{_count(cases, FAILED)}" errors="{_count(cases, ERROR)}"'
        f' skipped="{_count(cases, SKIPPED)}" time="{_seconds(sum(item.seconds for item in cases))}"'
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {counts}>",
        f"  <testsuite name={_quoted(suite)} {counts}>",
    ]
    if about:
        lines.append("    <properties>")
        lines += [f"      <property name={_quoted(name)} value={_quoted(value)}/>" for name, value in about]
        lines.append("    </properties>")
    for case in cases:
        lines += _case(suite, case)
    return "\n".join((*lines, "  </testsuite>", "</testsuites>")) + "\n"


def _case(suite: str, case: CaseOutcome) -> list[str]:
    opening = (
        f'    <testcase classname={_quoted(suite)} name={_quoted(case.name)} time="{_seconds(case.seconds)}"'
    )
    if case.wrong:
        opened = f"{case.wrong} message={_quoted(case.message)} type={_quoted(case.type or case.wrong)}"
        inner = f"<{opened}>{_text(case.details)}</{case.wrong}>"
    elif case.details:
        inner = f"<system-out>{_text(case.details)}</system-out>"
    else:
        return [f"{opening}/>"]
    return [f"{opening}>", f"      {inner}", "    </testcase>"]


def _count(cases: Sequence[CaseOutcome], wrong: str) -> int:
    return sum(case.wrong == wrong for case in cases)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _text(text: str) -> str:
    return escape(for_xml(text))


def _quoted(text: str) -> str:
    return quoteattr(for_xml(text), {'"': "&quot;"})
