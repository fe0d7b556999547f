"""`uwf workflow`: register, show, roll back, check and rehearse workflows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.exceptions import Exit

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_name, complete_workflow
from uwf_cli.exchange import adopt_news
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation
from uwf_cli.output import as_yaml, iso
from uwf_git.base.errors import NotFound, StoreDamaged, Usage, UwfError
from uwf_git.base.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from uwf_cli.resolve import Found
    from uwf_git.format.ids import Hash
    from uwf_git.format.kinds import Workflow
    from uwf_git.store.opened import Instance
    from uwf_git.store.versions import PastVersion, Version, Versions


@command(
    "uwf workflow put solve-issue.yaml",
    "uwf workflow put solve-issue.esm.js     a bundle: a workflow that is code",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="What a bundle is called that doesn't say so itself.")
def put(invocation: Invocation, file: Path, name: str | None) -> None:
    """Register a workflow under its name. Unchanged content makes no new version.

    What validate warns of is told; errors are refused. A bundle is evaluated for its descriptor, and trusted on this
    machine from then on.
    """
    from uwf_cli.resolve import compile_file, warnings_of
    from uwf_git.engine.trust import trust

    compiled = compile_file(invocation, file, name)
    instance = invocation.instance_for_writing()
    version = instance.registry.put(compiled)
    trust(instance, compiled.workflow)
    value = {**_version(version), **bundle_of(compiled.workflow, instance, version.commit)}
    invocation.emit({**value, **warnings_of(compiled)}, _version_text)


@command(
    "uwf workflow show solve-issue",
    "uwf workflow show 4KNM2PXR3B1QW",
    "uwf workflow show ./solve-issue.yaml --format yaml",
    "uwf workflow show solve-issue --source    as its author wrote it",
)
@click.argument("workflow", metavar="NAME|HASH|FILE", shell_complete=complete_workflow)
@click.option("--source", is_flag=True, help="The definition as its author wrote it.")
def show(invocation: Invocation, workflow: str, source: bool) -> None:
    """Show a workflow. Its roles with the schemas of their answers, its conditions, its graph."""
    from uwf_cli.resolve import find_workflow

    found = find_workflow(invocation, workflow)
    instance = invocation.instance if found.commit is not None else None
    if source:
        if problem := bundle_of(found.workflow, instance, found.commit).get("problem"):
            invocation.warn(f"this is not the code that was registered: {problem}")
        files = _text_of(invocation, found)
        definition = files[found.workflow.file].decode("utf-8", "replace")
        texts = {path: data.decode("utf-8", "replace") for path, data in files.items()}
        invocation.emit_document(definition, {"file": found.workflow.file, "files": texts})
        return
    invocation.emit(_definition(found, instance), _definition_text)


@command("uwf workflow list")
def list_(invocation: Invocation) -> None:
    """List the registered workflows."""
    adopt_news(invocation)
    found = registered(invocation.instance)

    def text(value: Any) -> str:
        rows = [
            (
                terminal.style(each["name"], "bold"),
                each["hash"] or terminal.status("corrupt"),
                ("" if each.get("trusted", True) else "not trusted here: ")
                + (each.get("problem") or each.get("description") or ""),
            )
            for each in value
        ]
        return terminal.table(rows, ("name", "hash", "")) if rows else "no workflows; uwf workflow put FILE"

    invocation.emit(found, text)
    failures = Failures(invocation)
    failures.damaged(any("problem" in each for each in found))
    failures.missing()
    failures.end()


def registered(instance: Instance) -> list[dict[str, Any]]:
    """The registered workflows, by name: the JSON of `uwf workflow list`."""
    registry = instance.registry
    found: list[dict[str, Any]] = []
    for name in registry.names():
        try:
            version = registry.current(name)
            workflow = registry.workflow(version.hash)
            found.append(
                {
                    **_version(version),
                    **bundle_of(workflow, instance, version.commit),
                    "description": workflow.description,
                    "updated": iso(version.time),
                }
            )
        except UwfError as error:  # one damaged version must not hide the others
            found.append({"name": name, "hash": None, "commit": None, "problem": error.message})
    return found


@command("uwf workflow history solve-issue")
@click.argument("name", shell_complete=complete_name)
def history(invocation: Invocation, name: str) -> None:
    """List the versions of a workflow, newest first: who registered each, and what was gone back to."""
    versions = past(invocation.instance, name)

    def text(value: Any) -> str:
        has_code = any("bundle" in each for each in value)
        rows = [
            (
                *(each["hash"], *([each.get("bundle", "")] if has_code else [])),
                *(each["time"], each["commit"][:10], each["author"], history_note(each)),
            )
            for each in value
        ]
        titles = ("hash", *(["bundle"] if has_code else []), "registered", "commit", "by", "")
        return terminal.table(rows, titles)

    invocation.emit(versions, text)


def past(instance: Instance, name: str) -> list[dict[str, Any]]:
    """The versions of a workflow, newest first: the JSON of `uwf workflow history`. Raises NotFound."""
    registry = instance.registry
    entries = registry.history(name)
    return [
        {
            **_version(entry.version),
            **bundle_of(registry.workflow(entry.version.hash), instance, entry.version.commit),
            **told,
        }
        for entry, told in zip(entries, history_values(entries), strict=True)
    ]


def history_values(entries: Sequence[PastVersion]) -> list[dict[str, Any]]:
    """When and by whom versions were registered, as a part of the results of a history."""
    hashes = {entry.version.commit: entry.version.hash for entry in entries}
    return [
        {
            "time": iso(entry.version.time),
            "author": entry.author,
            "current": entry.version.current,
            "backTo": hashes[entry.back_to] if entry.back_to else None,
            "takenFrom": entry.taken_from,
        }
        for entry in entries
    ]


def history_note(each: Any) -> str:
    """What is said of a version in a history besides."""
    notes = ["current"] if each["current"] else []
    notes += [] if each.get("trusted", True) else ["not trusted here"]
    if each["backTo"]:
        notes.append(f"back to {each['backTo']}")
    if each["takenFrom"]:
        notes.append(f"accepted from {each['takenFrom'][:10]}")
    return ", ".join(notes)


@command(
    "uwf workflow diff solve-issue                what the newest version changed",
    "uwf workflow diff ./solve-issue.yaml         what registering it would change",
    "uwf workflow diff solve-issue~2 solve-issue  the last two changes together",
)
@click.argument("one", metavar="NAME[~N]|HASH|FILE", shell_complete=complete_workflow)
@click.argument("other", metavar="[NAME[~N]|HASH|FILE]", required=False, shell_complete=complete_workflow)
def diff(invocation: Invocation, one: str, other: str | None) -> None:
    """Show what is different between two versions of a workflow.

    With one argument: of a file and what is registered under its name, else of a version and the one before.
    """
    from uwf_cli.resolve import find_workflow
    from uwf_git.store.versions import compare

    new = find_workflow(invocation, other or one)
    old = find_workflow(invocation, one) if other else _compared_with(invocation, new, one)
    before, after = _text_of(invocation, old), _text_of(invocation, new)
    labels = [f"{found.workflow.name} {found.hash}" for found in (old, new)]
    value = {
        "from": _side(old),
        "to": _side(new),
        "same": old.hash == new.hash,
        "changes": [each._asdict() for each in compare(old.workflow, new.workflow)],
        "diff": "".join(unified(before, after, labels)),
    }
    invocation.emit(value, _diff_text)


def _compared_with(invocation: Invocation, found: Found, text: str) -> Found:
    """What a workflow is compared with where nothing else is named. Raises NotFound."""
    from uwf_cli.resolve import find_workflow
    from uwf_git.git.repository import Oid

    name = found.workflow.name
    if found.workflow.crew is not None:
        older, _, back = text.partition("~")
        if "/" not in older:
            raise NotFound(
                f"{text} is a version of {name}, and there may be several before it", "name both sides"
            )
        return find_workflow(invocation, f"{older}~{int(back or 0) + 1}")
    if found.commit is None:
        if not invocation.location.git_dir.exists() or name not in invocation.instance.registry.names():
            raise NotFound(f"no workflow {name!r} is registered to compare {text} with", "name both sides")
        return find_workflow(invocation, name)
    before = invocation.instance.registry.before(Oid(hex=found.commit))
    if before is None:
        raise NotFound(f"{text} is the first version of workflow {name!r}", "name both sides")
    return find_workflow(invocation, before.hash)._replace(commit=before.commit)


def _text_of(invocation: Invocation, found: Found) -> dict[str, bytes]:
    """The files of a definition as they were written."""
    if found.compiled is not None:
        source = found.compiled.source
        return {found.workflow.file: source.text, **source.includes}
    from uwf_git.git.repository import Oid

    assert found.commit is not None
    return invocation.instance.registry.files(Oid(hex=found.commit))


def unified(old: dict[str, bytes], new: dict[str, bytes], labels: Sequence[str]) -> Iterator[str]:
    """The lines of a unified diff between the files of two definitions, which are called so."""
    from difflib import unified_diff

    def lines_of(files: dict[str, bytes], path: str) -> list[str]:
        return [f"{line}\n" for line in files.get(path, b"").decode("utf-8", "replace").splitlines()]

    for path in dict.fromkeys((*old, *new)):
        names = [f"{path} ({label})" for label in labels]
        yield from unified_diff(lines_of(old, path), lines_of(new, path), names[0], names[1])


def _side(found: Found) -> dict[str, Any]:
    path = found.compiled.source.path if found.compiled is not None else None
    return {"name": found.workflow.name, "hash": found.hash, "commit": found.commit, "file": path}


_CHANGED = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def _diff_text(value: Any) -> str:
    lines = []
    for each in value["changes"]:
        sign, colour = _CHANGED[each["change"]]
        fields = f": {', '.join(each['fields'])}" if each["fields"] else ""
        what = "" if each["what"] == "setting" else f"{each['what']} "
        lines.append(terminal.style(f"{sign} {what}{each['name']}", colour) + fields)
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
    """Make an older version the newest again: the one before, or the one with that hash.

    Each rollback goes one version further back. It is a new commit, so nothing is lost, and threads keep
    the version they have.
    """
    registry = invocation.instance.registry
    before = registry.current(name)
    target = past_hash(registry, name, to) if to else None
    version = registry.rollback(name, target)
    moved = version.commit != before.commit
    invocation.emit({**_version(version), "from": before.hash}, _rolled_back_text)
    if moved:
        invocation.note(f"what that changed: uwf workflow diff {name}~1 {name}")


def past_hash(versions: Versions[Any], name: str, text: str) -> Hash:
    """The hash of a version of a workflow or crew from so much of it as was given. Raises NotFound, Usage."""
    from uwf_git.format.ids import Hash, complete

    hashes = {entry.version.hash for entry in versions.history(name)}
    try:
        return Hash(complete(text, hashes, "version"))
    except NotFound:
        kind = versions.kind
        raise NotFound(
            f"{kind} {name!r} has no version {text!r}", f"see: uwf {kind} history {name}"
        ) from None


def _rolled_back_text(value: Any) -> str:
    if value["from"] == value["hash"]:
        return terminal.fields([*version_rows(value), ("unchanged", "it was the newest already")])
    return terminal.fields([*version_rows(value), ("back from", value["from"])])


@command(
    "uwf workflow graph solve-issue",
    "uwf workflow graph ./solve-issue.yaml --as dot | dot -Tsvg > graph.svg",
)
@click.argument("workflow", metavar="NAME|HASH|FILE", shell_complete=complete_workflow)
@click.option("--as", "language", type=click.Choice(("mermaid", "dot")), default="mermaid", show_default=True)
def graph(invocation: Invocation, workflow: str, language: str) -> None:
    """Draw a workflow's graph as text, for Mermaid or Graphviz."""
    from uwf_cli.resolve import find_workflow
    from uwf_git.workflow import diagram

    found = find_workflow(invocation, workflow)
    drawing = diagram.dot(found.workflow) if language == "dot" else diagram.mermaid(found.workflow)
    invocation.emit_document(drawing, {"as": language, "graph": drawing})


@command(
    "uwf workflow validate solve-issue.yaml",
    "uwf workflow validate flow.yaml --format text    as file:line:column: message",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Exit 1 for warnings too.")
def validate(invocation: Invocation, file: Path, strict: bool) -> None:
    """Report every problem of a workflow at once. Exit 1 where there are errors.

    Where there are none it is rehearsed, and what that finds is among the warnings. A bundle that keeps the contract is
    evaluated for its descriptor.
    """
    from uwf_cli.resolve import check_file

    findings = check_file(invocation, file)
    wrong = any(finding.severity == "error" for finding in findings)
    report = {"file": str(file), "valid": not wrong, "findings": [each._asdict() for each in findings]}
    invocation.emit(report, _findings_text)
    if wrong or (strict and findings):
        raise Exit(1)


@command(
    "uwf workflow rehearse solve-issue",
    "uwf workflow rehearse ./solve-issue.yaml",
)
@click.argument("workflow", metavar="NAME|HASH|FILE", shell_complete=complete_workflow)
def rehearse(invocation: Invocation, workflow: str) -> None:
    """Walk a workflow's graph with made-up answers.

    Reports which edges are never taken, which roles never reached, which conditions never differ, and
    where it gets stuck. Exit 1 where something is wrong. Nothing is stored.
    """
    from uwf_cli.resolve import find_workflow
    from uwf_git.workflow.rehearsal import rehearse as walk

    found = find_workflow(invocation, workflow)
    if found.workflow.code is not None:
        raise Usage(
            f"workflow {found.workflow.name!r} is code, so there is no graph to walk",
            f"try it: uwf run {shlex.quote(workflow)} --agent uwf-rehearse",
        )
    report = walk(found.workflow, found.schemas)
    invocation.emit(report.to_json(), _rehearsal_text)
    if not report.ok:
        raise Exit(1)


@command("uwf workflow rm solve-issue", "uwf workflow rm solve-issue --yes       also while it is in use")
@click.argument("name", shell_complete=complete_name)
@click.option("--yes", is_flag=True, help="Also while an agent or a thread uses it.")
def rm(invocation: Invocation, name: str, yes: bool) -> None:
    """Forget a workflow's name. Threads that use it keep the version they have.

    While an agent of config.yaml or an active thread uses it, nothing is done without --yes.
    """
    instance = invocation.instance
    version = instance.registry.current(name)
    use = use_of(instance, lambda each: each == name)
    if use.users and not yes:
        raise Usage(f"workflow {name!r} is in use: {'; '.join(use.users)}", f"uwf workflow rm {name} --yes")
    instance.registry.remove(name)
    value = {**_version(version), "removed": True, **use.told(invocation, f"workflow {name!r}")}
    invocation.emit(value, lambda shown: f"forgot {shown['name']}, which was {shown['hash']}")
    invocation.note(
        f"threads of it keep the version they have: uwf workflow show {version.hash} while there are any; "
        "uwf workflow put FILE registers it again"
    )


class Use(NamedTuple):
    """What uses workflows: `agents` of config.yaml that start them, other `settings` for their threads, both as dotted
    keys, and active threads."""

    agents: list[str]
    settings: list[str]
    threads: list[str]

    @property
    def users(self) -> list[str]:
        """Those that would miss them, in words."""
        users = [f"{key} in config.yaml starts it" for key in self.agents]
        if self.threads:
            shown = ", ".join([*self.threads[:3], *(["…"] if len(self.threads) > 3 else [])])
            users.append(f"{counted(len(self.threads), 'active thread')} of it: {shown}")
        return users

    def told(self, invocation: Invocation, what: str) -> dict[str, Any]:
        """Warns of who has used what is gone; returns that as a part of a result."""
        for user in self.users:
            invocation.warn(f"{what} was in use: {user}")
        for key in self.settings:
            invocation.warn(f"config.yaml still has {key}")
        return {"settings": [*self.agents, *self.settings], "threads": self.threads}


def use_of(instance: Instance, fits: Callable[[str], bool]) -> Use:
    """What uses the workflows with such a name."""
    from uwf_git.config.edit import dotted
    from uwf_git.config.workflows import references
    from uwf_git.store.history import Head

    paths = [each.path for each in references(instance.config) if fits(each.workflow)]
    agents = [dotted(path) for path in paths if path[0] == "agents"]
    others = [dotted(path) for path in paths if path[0] != "agents"]
    heads = (head for head in instance.threads.all() if isinstance(head, Head))
    return Use(agents, others, [head.thread for head in heads if fits(head.row.name or "")])


def _version(version: Version) -> dict[str, Any]:
    return {"name": version.name, "hash": version.hash, "commit": version.commit}


def bundle_of(workflow: Workflow, instance: Instance | None, commit: str | None = None) -> dict[str, Any]:
    """What a result says of a bundle besides: nothing of a workflow that is none. Whether it is trusted is said of what
    is in a store; where a version's `commit` has another file than the one that is named, it isn't, and `problem` says
    so."""
    if workflow.code is None:
        return {}
    value: dict[str, Any] = {"bundle": workflow.code.id, "language": workflow.code.language}
    if instance is None:
        return value
    from uwf_git.engine.trust import is_trusted
    from uwf_git.git.repository import Oid

    problem = ""
    if commit is not None:
        try:
            instance.registry.code(workflow, Oid(hex=commit))
        except (StoreDamaged, NotFound) as error:
            problem = error.message
    value["trusted"] = not problem and is_trusted(instance, workflow)
    return {**value, "problem": problem} if problem else value


def version_rows(value: Any) -> list[tuple[str, str]]:
    """A version as rows for `terminal.fields`."""
    name = terminal.style(value["name"], "bold")
    code = []
    if "bundle" in value:
        told = "" if value.get("trusted", True) else f", not trusted here: uwf workflow trust {value['name']}"
        told = f", {value['problem']}" if "problem" in value else told
        code = [("bundle", f"{value['bundle']}, {value['language']}{told}")]
    return [("workflow", name), *code, ("hash", value["hash"]), ("commit", value["commit"])]


def _version_text(value: Any) -> str:
    return terminal.fields(version_rows(value))


def _definition(found: Found, instance: Instance | None) -> dict[str, Any]:
    """A workflow as it was written: schemas in their places instead of their hashes."""
    payload = dict(found.payload)
    roles = {}
    for name, role in payload.pop("roles").items():
        key = "outputSchema" if "outputSchema" in role else "frontmatter"
        roles[name] = {**role, key: found.schemas[role[key]]}
    return {
        "name": payload.pop("name"),
        **bundle_of(found.workflow, instance, found.commit),
        "hash": found.hash,
        "commit": found.commit,
        "description": payload.pop("description"),
        "roles": roles,
        **payload,
    }


def _definition_text(value: Any) -> str:
    if "problem" in value:
        value["trusted"] = f"no: {value.pop('problem')}"
    elif "trusted" in value:
        value["trusted"] = "yes" if value["trusted"] else f"no: uwf workflow trust {value['name']}"
    head = [
        (name, value.pop(name))
        for name in ("name", "bundle", "language", "hash", "commit", "trusted")
        if name in value
    ]
    return terminal.fields([(name, text or "") for name, text in head]) + "\n" + as_yaml(value)


def _findings_text(value: Any) -> str:
    lines = [
        f"{value['file']}:{each['line']}:{each['column']}: {terminal.status(each['severity'])}: "
        f"{each['message']}" + (f" — {each['hint']}" if each["hint"] else "")
        for each in value["findings"]
    ]
    return "\n".join([*lines, f"{value['file']}: {_counts(value['findings'])}"])


def _rehearsal_text(value: Any) -> str:
    covered = value["coverage"]
    lines = [
        f"{value['workflow']}: {covered['taken']} of {covered['edges']} edges taken, {counted(value['runs'], 'run')}",
        "",
    ]
    rows = []
    for edge in value["edges"]:
        label = edge["status"] or edge["condition"] or ""
        taken = str(edge["taken"]) if edge["taken"] else terminal.style("never", "red")
        rows.append((taken, f"{edge['from']} → {edge['to']}", label))
    lines.append(terminal.table(rows, ("taken", "edge", "when")))
    if value["conditions"]:
        rows = [(each["condition"], str(each["true"]), str(each["false"])) for each in value["conditions"]]
        lines.append(terminal.table(rows, ("condition", "true", "false")))
    problems = [
        f"{terminal.status('error')}: {each['message']}" for each in value["problems"] if not each["follows"]
    ]
    if more := sum(each["follows"] for each in value["problems"]):
        problems.append(
            f"and {counted(more, 'problem')} that only {'follows' if more == 1 else 'follow'} from that"
        )
    return "\n".join([*lines, *(problems or [terminal.style("no problems", "green")])])


def _counts(findings: Sequence[Any]) -> str:
    if not findings:
        return terminal.style("no problems", "green")
    numbers = {name: sum(each["severity"] == name for each in findings) for name in ("error", "warning")}
    return ", ".join(counted(number, name) for name, number in numbers.items() if number)
