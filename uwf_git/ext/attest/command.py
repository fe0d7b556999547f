"""`uwf attest`, and `uwf export --audit` and `--audit-json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from uwf_git.plugin import (
    UNCHECKED,
    Invocation,
    StoreDamaged,
    Undecided,
    Usage,
    as_json,
    command,
    completers,
    counted,
    find_head,
    write_whole,
)


@command(
    "uwf attest 01JK7M -o login.intoto.json   signed with the key that signs commits",
    "uwf attest 01JK7M --statement            the statement alone",
    "uwf attest 01JK7M --agent-trace          which lines of code are a model's",
)
@click.argument("thread", metavar="ID", shell_complete=completers.complete_thread)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Output file. Default: standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--statement", is_flag=True, help="Write the in-toto statement unsigned.")
@click.option("--agent-trace", "traced", is_flag=True, help="Write Agent Trace records, one a line.")
def attest(
    invocation: Invocation, thread: str, out: Path | None, force: bool, statement: bool, traced: bool
) -> None:
    """Attest what a thread did: a signed in-toto statement.

    Its subjects are the commits of code and the outputs; its predicate has steps, agents, models, approvals and
    signers. The envelope is DSSE. SSH keys make raw signatures, as in-toto and cosign read them, and need the extra
    attest; others sign as for git. The thread is verified first.
    """
    if statement and traced:
        raise Usage("--statement and --agent-trace exclude each other", "give one of them")
    from uwf_git.ext.attest import agent_trace
    from uwf_git.ext.attest import statement as in_toto
    from uwf_git.ext.attest.report import attested, refuse_secrets

    instance = invocation.instance
    head = find_head(invocation, thread)
    record = attested(instance, head)
    public = {}
    if traced:
        records, missing = agent_trace.records(instance, record)
        refuse_secrets(instance, head, records)
        if missing:
            invocation.warn(
                f"not on this machine, and left out: the code of {', '.join(item[:12] for item in missing)}"
            )
        text = "".join(f"{as_json(item, compact=True)}\n" for item in records)
        size = counted(len(records), "record")
    else:
        value = in_toto.statement(record)
        size = counted(len(value["subject"]), "subject")
        payload = in_toto.canonical(value)
        text = payload.decode("ascii") + "\n"
        if not statement:
            parts, key = in_toto.envelope(instance.store.repository, payload)
            text = as_json(parts) + "\n"
            if key is not None:
                public = {"keyid": key.id, "publicKey": key.pem}
            elif instance.store.repository.config.value("gpg.format") == "ssh":
                invocation.warn(
                    "this key's signature is for ssh-keygen alone: cosign and in-toto cannot verify it"
                )
    if out is None:
        invocation.write(text)
        return
    write_whole(out, text.encode("utf-8"), force)
    invocation.emit(
        {"thread": head.thread, "file": str(out), **public}, lambda value: f"{value['file']}: {size}"
    )


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
    for finding in findings:
        invocation.warn(f"{finding['code']}: {finding['message']}")
    if any(item["code"] != UNCHECKED for item in findings):
        raise Exit(StoreDamaged.exit_status)
    if findings:
        raise Exit(Undecided.exit_status)
