"""Results as JUnit XML, one test case per case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from uwf_git.base.text import for_xml

FAILED, ERROR, SKIPPED = "failure", "error", "skipped"
"""What is wrong with a case: it is worse than it may be, nobody knows how it is, or it wasn't compared."""

_KIND = {FAILED: "worse", ERROR: "unknown", SKIPPED: "apart"}


class CaseOutcome(NamedTuple):
    """A case. `wrong` is FAILED, ERROR, SKIPPED or ""; `message` is one line, `said` the details; `seconds`
    are of all its runs. `type` is the failure's, by default that of an evaluation."""

    name: str
    seconds: float
    wrong: str = ""
    message: str = ""
    said: str = ""
    type: str = ""


def junit(suite: str, cases: Sequence[CaseOutcome], about: Sequence[tuple[str, str]] = ()) -> str:
    """Return a deterministic XML document. `about` are properties of the whole."""
    counts = (
        f'tests="{len(cases)}" failures="{_count(cases, FAILED)}" errors="{_count(cases, ERROR)}"'
        f' skipped="{_count(cases, SKIPPED)}" time="{_seconds(sum(each.seconds for each in cases))}"'
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
    for each in cases:
        lines += _case(suite, each)
    return "\n".join((*lines, "  </testsuite>", "</testsuites>")) + "\n"


def _case(suite: str, case: CaseOutcome) -> list[str]:
    opening = (
        f'    <testcase classname={_quoted(suite)} name={_quoted(case.name)} time="{_seconds(case.seconds)}"'
    )
    if case.wrong:
        kind = case.type or _KIND[case.wrong]
        inner = f"<{case.wrong} message={_quoted(case.message)} type={_quoted(kind)}>{_text(case.said)}</{case.wrong}>"
    elif case.said:
        inner = f"<system-out>{_text(case.said)}</system-out>"
    else:
        return [f"{opening}/>"]
    return [f"{opening}>", f"      {inner}", "    </testcase>"]


def _count(cases: Sequence[CaseOutcome], wrong: str) -> int:
    return sum(each.wrong == wrong for each in cases)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _text(text: str) -> str:
    return escape(for_xml(text))


def _quoted(text: str) -> str:
    return quoteattr(for_xml(text), {'"': "&quot;"})
