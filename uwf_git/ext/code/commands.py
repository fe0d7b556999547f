"""`uwf workflow trust` and `untrust`."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.code.grants import Grants, grants_of
from uwf_git.plugin import (
    JAVASCRIPT,
    Invocation,
    Oid,
    Record,
    Usage,
    bundle_of,
    command,
    completers,
    counted,
    definitions,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.plugin import ResolvedWorkflow


@command(
    "uwf workflow trust solve-issue",
    "uwf workflow trust 81XYP6XW2G7WT --yes    without a terminal",
)
@click.argument("workflow", metavar="NAME|HASH", shell_complete=completers.complete_workflow)
@click.option("--yes", is_flag=True, help="Don't show the code and don't ask.")
def trust(invocation: Invocation, workflow: str, yes: bool) -> None:
    """Allow a code workflow to run on this machine.

    Shows its source and the permissions that the configuration grants, then asks. Workflows that you
    registered yourself are already trusted.
    """
    from uwf_git.ext.code.review import otherwise, reviewed
    from uwf_git.plugin import trusted_code

    instance = invocation.instance
    resolved_workflow = _bundle(invocation, workflow)
    commit = Oid(hex=str(resolved_workflow.commit))
    if already := trusted_code.is_trusted(instance, resolved_workflow.workflow):
        instance.registry.code(resolved_workflow.workflow, commit)
    else:
        source = reviewed(instance, resolved_workflow.workflow, commit)
        if not (yes or _asked_whether(invocation, resolved_workflow, source)):
            raise Usage(f"{workflow} was not confirmed, and is not trusted", "ask its author")
        trusted_code.trust_code(instance, resolved_workflow.workflow)
        if warning := otherwise(instance, resolved_workflow.workflow, source):
            invocation.warn(warning)
    value = {**_describe(invocation, resolved_workflow), "changed": not already}
    invocation.emit(value, Record(*definitions.WORKFLOW, ("trusted", lambda _: "yes")))


@command("uwf workflow untrust solve-issue")
@click.argument("workflow", metavar="NAME|HASH", shell_complete=completers.complete_workflow)
def untrust(invocation: Invocation, workflow: str) -> None:
    """Revoke the trust in a code workflow on this machine. Nothing is deleted."""
    from uwf_git.plugin import trusted_code

    resolved_workflow = _bundle(invocation, workflow)
    changed = trusted_code.revoke_trust(invocation.instance, resolved_workflow.workflow)
    value = {**_describe(invocation, resolved_workflow), "changed": changed}
    invocation.emit(value, Record(*definitions.WORKFLOW, ("trusted", lambda _: "no")))


def _bundle(invocation: Invocation, text: str) -> ResolvedWorkflow:
    """Return a code workflow. Raises Usage for others."""
    from uwf_git.plugin import resolve

    workflow = resolve.find_workflow(invocation, text)
    if workflow.workflow.code is None:
        raise Usage(f"workflow {workflow.workflow.name!r} is not code, so there is nothing to trust")
    if workflow.commit is None:
        file = workflow.compiled.source.path if workflow.compiled is not None else text
        raise Usage(
            f"{text} is a file, and is trusted once it is registered", f"uwf workflow put {shlex.quote(file)}"
        )
    return workflow


def _granted(grants: Grants) -> str:
    parts = ["the network" if grants.network else "no network", f"{grants.timeout:g} s a step"]
    for verb, folders in (("reads", grants.read), ("writes", grants.write)):
        parts += [f"{verb} {', '.join(folders)}"] if folders else []
    return "; ".join(parts if grants.read or grants.write else [*parts, "no folders of yours"])


def _lines(source: str, language: str) -> list[str]:
    """Split lines as the language does: a comment may end where other programs see no line end."""
    ends = "\r\n|[\n\r\u2028\u2029]" if language == JAVASCRIPT else "\r\n|[\n\r]"
    lines = re.split(ends, source)
    return lines if lines[-1] else lines[:-1]


def _describe(invocation: Invocation, workflow: ResolvedWorkflow) -> dict[str, Any]:
    code = bundle_of(workflow.workflow, invocation.instance, workflow.commit)
    return {"name": workflow.workflow.name, "hash": workflow.hash, "commit": workflow.commit, **code}


def _asked_whether(invocation: Invocation, workflow: ResolvedWorkflow, source: str) -> bool:
    """Show the code and ask on the terminal. Raises Usage without one."""
    code = workflow.workflow.code
    assert code is not None
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        raise Usage(
            f"code {code.id} must be read before it is trusted, and there is no terminal to ask on",
            f"read it: uwf workflow show {code.id} --source; then uwf workflow trust {code.id} --yes",
        )
    lines = _lines(source, code.language)
    width = len(str(len(lines)))
    for number, line in enumerate(lines, 1):
        sys.stderr.write(f"{terminal.style(str(number).rjust(width), 'dim')}  {terminal.escape_code(line)}\n")
    grants = grants_of(invocation.instance.config, workflow.workflow.name)
    bundle = {
        **_describe(invocation, workflow),
        "sha256": code.sha256,
        "granted": _granted(grants),
        "may ask": "the configured agents, which work outside its sandbox",
        "file": f"{counted(len(lines), 'line')}, {code.size:,} bytes",
    }
    view = Record(*definitions.WORKFLOW, "sha256", "granted", "may ask", "file")
    sys.stderr.write("\n" + view(bundle) + "\n")
    sys.stderr.write("Let it run on this machine? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
