"""`uwf workflow`: register, show, roll back, check and rehearse."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_name, complete_workflow
from uwf_cli.definitions import WORKFLOW, history_note, warn_of_use
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation, adopt_news
from uwf_cli.output import as_yaml
from uwf_cli.views import Record, Table
from uwf_git.api import versions
from uwf_git.base.errors import Usage
from uwf_git.base.text import counted
from uwf_git.base.thread_states import ThreadState

if TYPE_CHECKING:
    from collections.abc import Sequence


_ROLLED_BACK = Record(
    *WORKFLOW,
    ("unchanged", lambda value: "it was the newest already" if value["from"] == value["hash"] else ""),
    ("back from", lambda value: value["from"] if value["from"] != value["hash"] else ""),
)


_HISTORY = Table(
    *("hash", "bundle", ("registered", "time"), ("commit", "{commit:short}"), ("by", "author")),
    ("", history_note),
    optional=("bundle",),
)


def _description(workflow: Any) -> str:
    trust = "" if workflow.get("trusted", True) else "not trusted here: "
    return trust + (workflow.get("problem") or workflow.get("description") or "")


_WORKFLOWS = Table(
    ("name", "{name:bold}"),
    ("hash", lambda workflow: workflow["hash"] or terminal.status(ThreadState.CORRUPT.word)),
    ("", _description),
    empty="no workflows; uwf workflow put FILE",
)


@command(
    "uwf workflow put solve-issue.yaml",
    "uwf workflow put solve-issue.esm.js     a code workflow",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="Name of a code workflow that doesn't name itself.")
def put(invocation: Invocation, file: Path, name: str | None) -> None:
    """Register a workflow under its name. Unchanged content creates no new version.

    Errors are refused, warnings are printed. A code workflow is evaluated for its descriptor and trusted on
    this machine.
    """
    from uwf_cli.resolve import compile_file
    from uwf_git.api.workflows import warnings_of

    compiled = compile_file(invocation, file, name)
    value = versions.put(invocation.instance_for_writing(), compiled)
    invocation.emit({**value, **warnings_of(compiled)}, Record(*WORKFLOW))


@command(
    "uwf workflow show solve-issue",
    "uwf workflow show 4KNM2PXR3B1QW",
    "uwf workflow show ./solve-issue.yaml --format yaml",
    "uwf workflow show solve-issue --source    as its author wrote it",
)
@click.argument("workflow", metavar="NAME|HASH|FILE", shell_complete=complete_workflow)
@click.option("--source", is_flag=True, help="Print the definition as its author wrote it.")
def show(invocation: Invocation, workflow: str, source: bool) -> None:
    """Show a workflow: roles with their schemas, conditions and graph."""
    from uwf_cli.resolve import find_workflow

    resolved_workflow = find_workflow(invocation, workflow)
    instance = invocation.instance if resolved_workflow.commit is not None else None
    if source:
        if problem := versions.bundle_of(resolved_workflow.workflow, instance, resolved_workflow.commit).get(
            "problem"
        ):
            invocation.warn(f"this is not the code that was registered: {problem}")
        files = versions.files_of(resolved_workflow, lambda: invocation.instance)
        definition = files[resolved_workflow.workflow.file].decode("utf-8", "replace")
        texts = {path: data.decode("utf-8", "replace") for path, data in files.items()}
        invocation.emit_document(definition, {"file": resolved_workflow.workflow.file, "files": texts})
        return
    invocation.emit(versions.definition(resolved_workflow, instance), _definition_text)


@command("uwf workflow list")
def list_(invocation: Invocation) -> None:
    """List registered workflows."""
    adopt_news(invocation)
    rows = versions.registered(invocation.instance)
    invocation.emit(rows, _WORKFLOWS)
    Failures(invocation).end_list(any("problem" in workflow for workflow in rows))


@command("uwf workflow history solve-issue")
@click.argument("name", shell_complete=complete_name)
def history(invocation: Invocation, name: str) -> None:
    """List a workflow's versions, newest first, with authors and rollbacks."""
    invocation.emit(versions.past(invocation.instance, name), _HISTORY)


@command(
    "uwf workflow diff solve-issue                what the newest version changed",
    "uwf workflow diff ./solve-issue.yaml         what registering it would change",
    "uwf workflow diff solve-issue~2 solve-issue  the last two changes together",
)
@click.argument("one", metavar="NAME[~N]|HASH|FILE", shell_complete=complete_workflow)
@click.argument("other", metavar="[NAME[~N]|HASH|FILE]", required=False, shell_complete=complete_workflow)
def diff(invocation: Invocation, one: str, other: str | None) -> None:
    """Show the differences between two versions of a workflow.

    With one argument: compares a file with the registered version, or a version with the one before.
    """
    from uwf_cli.resolve import sources_of

    value = versions.compare(sources_of(invocation), one, other)
    invocation.emit(value, _diff_text)


_CHANGES = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def _diff_text(value: Any) -> str:
    lines = []
    for change in value["changes"]:
        sign, colour = _CHANGES[change["change"]]
        fields = f": {', '.join(change['fields'])}" if change["fields"] else ""
        what = "" if change["what"] == "setting" else f"{change['what']} "
        lines.append(terminal.style(f"{sign} {what}{change['name']}", colour) + fields)
    if not lines:
        lines = ["no difference" if not value["diff"] else "the same definition, written otherwise"]
    shown = [_diff_line(line) for line in value["diff"].splitlines()]
    return "\n".join([*lines, *([""] if shown else []), *shown])


def _diff_line(line: str) -> str:
    if line.startswith(("+++", "---")):
        return terminal.style(line, "bold")
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return terminal.style(line, colours.get(line[:1], ""))


@command(
    "uwf workflow rollback solve-issue    the version before; again: one further",
    "uwf workflow rollback solve-issue 4KNM2PXR3B1QW",
)
@click.argument("name", shell_complete=complete_name)
@click.argument("to", metavar="[HASH]", required=False)
def rollback(invocation: Invocation, name: str, to: str | None) -> None:
    """Restore an older version of a workflow: the previous one, or the one with this hash.

    Each rollback goes one version further back and adds a commit. Running threads keep their version.
    """
    registry = invocation.instance.registry
    before = registry.current(name)
    target = versions.past_hash(registry, name, to) if to else None
    version = registry.rollback(name, target)
    moved = version.commit != before.commit
    invocation.emit({**versions.version_value(version), "from": before.hash}, _ROLLED_BACK)
    if moved:
        invocation.note(f"what that changed: uwf workflow diff {name}~1 {name}")


@command(
    "uwf workflow graph solve-issue",
    "uwf workflow graph ./solve-issue.yaml --as dot | dot -Tsvg > graph.svg",
)
@click.argument("workflow", metavar="NAME|HASH|FILE", shell_complete=complete_workflow)
@click.option("--as", "language", type=click.Choice(("mermaid", "dot")), default="mermaid", show_default=True)
def graph(invocation: Invocation, workflow: str, language: str) -> None:
    """Draw a workflow's graph as Mermaid or Graphviz text."""
    from uwf_cli.resolve import find_workflow
    from uwf_git.api.workflows import diagram

    drawing = diagram(find_workflow(invocation, workflow), language)
    invocation.emit_document(drawing, {"as": language, "graph": drawing})


@command(
    "uwf workflow validate solve-issue.yaml",
    "uwf workflow validate flow.yaml --format text    as file:line:column: message",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Exit 1 if there are warnings.")
def validate(invocation: Invocation, file: Path, strict: bool) -> None:
    """Report all problems of a workflow. Exit 1 if there are errors.

    A workflow without errors is rehearsed, and its findings are reported as warnings. A code workflow is
    evaluated for its descriptor.
    """
    from uwf_cli.resolve import check_file

    findings = check_file(invocation, file)
    wrong = any(finding.severity == "error" for finding in findings)
    report = {"file": str(file), "valid": not wrong, "findings": [finding._asdict() for finding in findings]}
    invocation.emit(report, _findings_text)
    if wrong or (strict and findings):
        raise Exit(1)


@command(
    "uwf workflow rehearse solve-issue",
    "uwf workflow rehearse ./solve-issue.yaml",
)
@click.argument("workflow", metavar="NAME|HASH|FILE", shell_complete=complete_workflow)
def rehearse(invocation: Invocation, workflow: str) -> None:
    """Walk a workflow's graph with generated outputs.

    Reports edges never taken, roles never reached, conditions that never change, and dead ends. Exit 1 if
    there are problems. Nothing is stored.
    """
    from uwf_cli.resolve import find_workflow
    from uwf_git.api.workflows import rehearse as walk

    resolved_workflow = find_workflow(invocation, workflow)
    if resolved_workflow.workflow.code is not None:
        raise Usage(
            f"workflow {resolved_workflow.workflow.name!r} is code, so there is no graph to walk",
            f"try it: uwf run {shlex.quote(workflow)} --agent uwf-rehearse",
        )
    report = walk(resolved_workflow)
    invocation.emit(report.to_json(), _rehearsal_text)
    if not report.ok:
        raise Exit(1)


@command("uwf workflow rm solve-issue", "uwf workflow rm solve-issue --yes       also while it is in use")
@click.argument("name", shell_complete=complete_name)
@click.option("--yes", is_flag=True, help="Unregister it even if an agent or a thread uses it.")
def rm(invocation: Invocation, name: str, yes: bool) -> None:
    """Unregister a workflow. Its history is kept, and its threads keep their version.

    Refused without --yes if an agent of config.yaml or an active thread uses it.
    """
    instance = invocation.instance
    version = instance.registry.current(name)
    use = versions.use_of(instance, lambda item: item == name)
    if use.users and not yes:
        raise Usage(f"workflow {name!r} is in use: {'; '.join(use.users)}", f"uwf workflow rm {name} --yes")
    instance.registry.remove(name)
    value = {
        **versions.version_value(version),
        "removed": True,
        **warn_of_use(invocation, use, f"workflow {name!r}"),
    }
    invocation.emit(value, "forgot {name}, which was {hash}")
    invocation.note(
        f"threads of it keep the version they have: uwf workflow show {version.hash} while there are any; "
        "uwf workflow put FILE registers it again"
    )


def _definition_text(value: Any) -> str:
    if "problem" in value:
        value["trusted"] = f"no: {value.pop('problem')}"
    elif "trusted" in value:
        value["trusted"] = "yes" if value["trusted"] else f"no: uwf workflow trust {value['name']}"
    rest = {name: part for name, part in value.items() if name not in _HEAD}
    return Record(*_HEAD)(value) + "\n" + as_yaml(rest)


_HEAD = ("name", "bundle", "language", "hash", "commit", "trusted")


def _findings_text(value: Any) -> str:
    lines = [
        f"{value['file']}:{finding['line']}:{finding['column']}: {terminal.status(finding['severity'])}: "
        f"{finding['message']}" + (f" — {finding['hint']}" if finding["hint"] else "")
        for finding in value["findings"]
    ]
    return "\n".join([*lines, f"{value['file']}: {_counts(value['findings'])}"])


def _rehearsal_text(value: Any) -> str:
    covered = value["coverage"]
    lines = [
        f"{value['workflow']}: {covered['taken']} of {covered['edges']} edges taken, {counted(value['runs'], 'run')}",
        "",
    ]
    lines.append(_EDGES(value["edges"]))
    if value["conditions"]:
        lines.append(Table("condition", "true", "false")(value["conditions"]))
    problems = [
        f"{terminal.status('error')}: {problem['message']}"
        for problem in value["problems"]
        if not problem["follows"]
    ]
    if more := sum(problem["follows"] for problem in value["problems"]):
        problems.append(
            f"and {counted(more, 'problem')} that only {'follows' if more == 1 else 'follow'} from that"
        )
    return "\n".join([*lines, *(problems or [terminal.style("no problems", "green")])])


_EDGES = Table(
    ("taken", lambda edge: str(edge["taken"]) if edge["taken"] else terminal.style("never", "red")),
    ("edge", "{from} → {to}"),
    ("when", lambda edge: edge["status"] or edge["condition"]),
)


def _counts(findings: Sequence[Any]) -> str:
    if not findings:
        return terminal.style("no problems", "green")
    numbers = {
        name: sum(finding["severity"] == name for finding in findings) for name in ("error", "warning")
    }
    return ", ".join(counted(number, name) for name, number in numbers.items() if number)
