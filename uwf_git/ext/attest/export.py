"""`uwf export --audit` and `--audit-json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.exceptions import Exit

from uwf_git.plugin import UNCHECKED, Invocation, StoreDamaged, Undecided, as_json, find_head, write_whole


def page(invocation: Invocation, thread: str, file: Path, force: bool) -> None:
    """Write a thread's audit report as a page. Exits with 7 if something is wrong with the thread."""
    from uwf_git.ext.attest.page import audit_page

    value = _report(invocation, thread)
    _write(invocation, value, audit_page(value), file, force, False)  # a page has no signature


def report(invocation: Invocation, thread: str, file: Path, force: bool) -> None:
    """Write a thread's audit report as JSON. Exits with 7 if something is wrong with the thread."""
    value = _report(invocation, thread)
    signed = value["signature"] is not None
    _write(invocation, value, as_json(value) + "\n", file, force, signed)


def _report(invocation: Invocation, name: str) -> dict[str, Any]:
    from uwf_git.ext.attest.report import report as audit_report

    instance = invocation.instance
    return audit_report(instance, find_head(invocation, name))


def _write(
    invocation: Invocation, value: dict[str, Any], text: str, file: Path, force: bool, signed: bool
) -> None:
    findings = value["verification"]["findings"]
    if str(file) == "-":
        invocation.write(text)
    else:
        data = text.encode("utf-8")
        write_whole(file, data, force)
        written = {
            "thread": value["record"]["thread"],
            "file": str(file),
            "bytes": len(data),
            "findings": len(findings),
            "signed": signed,
        }
        invocation.emit(written, "{file}: {bytes:,} bytes")
    for each in findings:
        invocation.warn(f"{each['code']}: {each['message']}")
    if any(each["code"] != UNCHECKED for each in findings):
        raise Exit(StoreDamaged.exit_status)
    if findings:
        raise Exit(Undecided.exit_status)
