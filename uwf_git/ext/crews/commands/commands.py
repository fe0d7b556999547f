"""`uwf crew` import, list, show, history, rollback, rm, export, propose and accept, and `uwf publish crew`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.plugin import (
    BMAD,
    OWN_FORM,
    Failures,
    Invalid,
    Invocation,
    Record,
    Table,
    ThreadState,
    Usage,
    UwfError,
    adopt_news,
    command,
    completers,
    definitions,
    iso,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.ext.crews.crew_node import Crew
    from uwf_git.ext.crews.registry import Crews, Definition
    from uwf_git.plugin import Hash, Proposal, RegisteredVersion

FORMS = {BMAD: "a .bmad package", OWN_FORM: "a crew.yaml"}
"""What a crew came as, in words."""


@command(
    "uwf crew import trip.bmad",
    "uwf crew import ./trip            a folder, with a bmad.json or a crew.yaml",
    "uwf crew import trip.bmad --dry-run",
)
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the package without storing it.")
def import_(invocation: Invocation, package: Path, dry_run: bool) -> None:
    """Import a crew: its personas, their menus and its workflows.

    PACKAGE is a .bmad 1.1 file or folder, or a crew.yaml with its workflows. All problems are reported at
    once, and then nothing is imported. Unchanged content creates no new version.
    """
    definition = _read(invocation, package)
    crew, node = definition.compiled.crew, definition.compiled.hash
    if dry_run:
        before = _current(invocation, crew.name)
        if invocation.location.git_dir.exists():
            _crews(invocation).let_in(definition)
        changed = before is None or not _crews(invocation).holds(_oid(before), definition)
        kept = before if not changed else None
        value = {**crew_value(crew, node, kept.commit if kept else None), "changed": changed, "dryRun": True}
    else:
        invocation.instance_for_writing()
        before = _current(invocation, crew.name)
        version = _crews(invocation).put(definition)
        changed = before is None or before.commit != version.commit
        value = {**crew_value(crew, node, version.commit), "changed": changed}
    invocation.emit({**value, **_warnings(definition)}, _IMPORTED)


@command("uwf crew list")
def list_(invocation: Invocation) -> None:
    """List the crews."""
    adopt_news(invocation)
    values = registered(_crews(invocation))
    invocation.emit(values, _CREWS)
    Failures(invocation).end_list(any("problem" in crew for crew in values))


def registered(crews: Crews) -> list[dict[str, Any]]:
    """Return the crews by name: the JSON of `uwf crew list`."""
    values: list[dict[str, Any]] = []
    for name in crews.names():
        try:
            version = crews.current(name)
            crew = crews.crew(version.hash)
            values.append(
                {
                    **_version(crew, version.hash, version.commit),
                    "description": crew.description,
                    "personas": [member.persona.id for member in crew.members],
                    "workflows": [f"{name}/{workflow.id}" for workflow in crew.workflows],
                    "updated": iso(version.time),
                }
            )
        except UwfError as error:  # one damaged version must not hide the others
            values.append({"name": name, "hash": None, "commit": None, "problem": error.message})
    return values


@command(
    "uwf crew show trip",
    "uwf crew show trip~1      the version before",
)
@click.argument("crew", metavar="CREW[~N]", shell_complete=completers.complete_crew)
def show(invocation: Invocation, crew: str) -> None:
    """Show a crew: its personas with their menus, and its workflows."""
    _, version, definition = _find(invocation, crew)
    value = {
        **crew_value(definition, version.hash, version.commit),
        "updated": iso(version.time),
    }
    invocation.emit(value, _shown_text)


@command("uwf crew history trip")
@click.argument("crew", metavar="CREW", shell_complete=completers.complete_crew)
def history(invocation: Invocation, crew: str) -> None:
    """List a crew's versions, newest first, with authors and rollbacks."""
    columns = ("hash", "version", ("imported", "time"), ("commit", "{commit:short}"), ("by", "author"))
    invocation.emit(past(_crews(invocation), crew), Table(*columns, ("", definitions.history_note)))


def past(crews: Crews, name: str) -> list[dict[str, Any]]:
    """Return a crew's versions, newest first: the JSON of `uwf crew history`. Raises NotFound."""
    from uwf_git.plugin import history_values

    entries = crews.history(name)
    return [
        {
            **_version(crews.crew(entry.version.hash), entry.version.hash, entry.version.commit),
            **registered,
        }
        for entry, registered in zip(entries, history_values(entries), strict=True)
    ]


@command(
    "uwf crew rollback trip            the version before; again: one further",
    "uwf crew rollback trip 4KNM2PXR3B1QW",
)
@click.argument("crew", metavar="CREW", shell_complete=completers.complete_crew)
@click.argument("to", metavar="[HASH]", required=False)
def rollback(invocation: Invocation, crew: str, to: str | None) -> None:
    """Restore an older version of a crew: the previous one, or the one with this hash.

    Each rollback goes one version further back and adds a commit. Running threads keep their version.
    """
    from uwf_git.plugin import past_hash

    crews = _crews(invocation)
    before = crews.current(crew)
    version = crews.rollback(crew, past_hash(crews, crew, to) if to else None)
    fields = _version(crews.crew(version.hash), version.hash, version.commit)
    view = Record(
        *_VERSION,
        ("unchanged", lambda value: "" if value["changed"] else "it was the newest already"),
        ("back from", lambda value: value["from"] if value["changed"] else ""),
    )
    invocation.emit({**fields, "from": before.hash, "changed": version.commit != before.commit}, view)


@command("uwf crew rm trip", "uwf crew rm trip --yes       also while it is in use")
@click.argument("crew", metavar="CREW", shell_complete=completers.complete_crew)
@click.option("--yes", is_flag=True, help="Unregister it even if an agent or a thread uses it.")
def rm(invocation: Invocation, crew: str, yes: bool) -> None:
    """Unregister a crew. Its history is kept, and its threads keep their version.

    Refused without --yes if an agent of config.yaml or an active thread uses one of its workflows.
    """
    from uwf_git.plugin import use_of

    instance = invocation.instance
    crews = _crews(invocation)
    version = crews.current(crew)
    value = _version(crews.crew(version.hash), version.hash, version.commit)
    ours = {crew} - {*instance.registry.names()}
    use = use_of(instance, lambda name: name in ours or name.startswith(f"{crew}/"))
    if use.users and not yes:
        raise Usage(f"crew {crew!r} is in use: {'; '.join(use.users)}", f"uwf crew rm {crew} --yes")
    crews.remove(crew)
    value |= {"removed": True, **definitions.warn_of_use(invocation, use, f"crew {crew!r}")}
    invocation.emit(value, "forgot {name}, which was {hash}")


@command(
    "uwf crew export trip                  as it came, or a ZIP of its files",
    "uwf crew export trip -o old.bmad --force",
    "uwf crew export trip --folder ./trip  its files",
)
@click.argument("crew", metavar="CREW[~N]", shell_complete=completers.complete_crew)
@click.option(
    "-o",
    "--output",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Output file. Default: CREW.bmad or CREW.zip.",
)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the files to this new folder instead.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def export(invocation: Invocation, crew: str, file: Path | None, folder: Path | None, force: bool) -> None:
    """Export a crew's package, byte for byte as it was imported.

    A package imported from a folder is written as a reproducible ZIP file.
    """
    from uwf_git.ext.crews.package import SUFFIX, to_archive
    from uwf_git.plugin import write_whole

    if folder is not None and (file is not None or force):
        raise Usage(
            "files go into a new folder, a ZIP into a file",
            f"uwf crew export {shlex.quote(crew)} --folder DIR, or -o FILE",
        )
    crews, version, definition = _find(invocation, crew)
    package = crews.package(_oid(version))
    fields = _version(definition, version.hash, version.commit)
    if folder is not None:
        _write_folder(folder, dict(package.files))
        value = {**fields, "folder": str(folder), "files": len(package.files)}
        invocation.emit(value, "{folder}: {files:counted file}")
        return
    data = package.archive if package.archive is not None else to_archive(package.files)
    path = file or Path(version.name + (SUFFIX if definition.format == BMAD else ".zip"))
    write_whole(path, data, force)
    value = {**fields, "file": str(path), "bytes": len(data), "original": package.archive is not None}
    invocation.emit(value, "{file}: {bytes:,} bytes")


def _write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write a folder atomically. Raises Invalid."""
    from uwf_git.plugin import make_folder

    def fill(top: Path) -> None:
        for path, data in files.items():
            target = top / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    try:
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            raise Invalid(f"{folder} already exists", "name a folder that is new or empty")
        make_folder(folder.absolute(), fill)
    except OSError as error:
        raise Invalid(f"cannot write {folder}: {error.strerror}", "name another folder") from None


@command(
    "uwf crew propose ./trip --branch shorter-menu",
    "uwf crew propose ./trip --branch shorter-menu --remote origin",
)
@click.argument("package", type=click.Path(path_type=Path))
@definitions.PROPOSED_BRANCH
@definitions.REVIEW_REMOTE
def propose(invocation: Invocation, package: Path, branch: str, remote: str | None) -> None:
    """Propose a version of a crew without registering it.

    Without --remote the proposal stays on this machine. Proposing again under the same name adds a version.
    """
    definition = _read(invocation, package)
    invocation.instance_for_writing()
    crews = _crews(invocation)

    def more(proposal: Proposal) -> dict[str, Any]:
        version = _version(definition.compiled.crew, proposal.hash, proposal.commit)
        return {**version, **_warnings(definition)}

    definitions.propose(
        invocation, crews, definition, branch, remote, more, Record(*_VERSION, definitions.PROPOSAL)
    )


@command(
    "uwf crew accept shorter-menu",
    "uwf crew accept shorter-menu --remote origin",
)
@definitions.accepting
def accept(invocation: Invocation, branch: str, remote: str | None) -> None:
    """Register a proposed version of a crew: the local one, or with --remote a branch of that remote."""
    accepted = definitions.accept(invocation, branch, remote, "crew")
    version = accepted.version
    crew = _crews(invocation).crew(version.hash)
    value = {**accepted.to_json(), **_version(crew, version.hash, version.commit)}
    invocation.emit(value, Record(*_VERSION, definitions.ACCEPTED))


@command("uwf publish crew trip", "uwf publish crew trip --remote team")
@click.argument("crew", metavar="NAME", shell_complete=completers.complete_crew)
@definitions.BRANCH
@definitions.REMOTE
def publish(invocation: Invocation, crew: str, branch: str, remote: str | None) -> None:
    """Push a crew's newest version to a branch for review. Proposals can be merged into it."""
    definitions.publish_version(invocation, _crews(invocation), crew, branch, remote)


# Arguments


def _read(invocation: Invocation, package: Path) -> Definition:
    """Compile and rehearse a package, printing warnings. Raises NotFound, InvalidPackage."""
    from uwf_git.ext.crews.compile import compile_crew, foresee
    from uwf_git.ext.crews.package import read_package
    from uwf_git.ext.crews.registry import Definition

    read = read_package(package)
    compiled = compile_crew(read)
    compiled = compiled._replace(warnings=foresee(read, compiled))
    for finding in compiled.warnings:
        place = f"{package}: {finding.path}" + (f":{finding.line}:{finding.column}" if finding.line else "")
        hint = f" — {finding.hint}" if finding.hint else ""
        invocation.note(f"{place}: warning: {finding.message}{hint}")
    return Definition(read, compiled)


def _crews(invocation: Invocation) -> Crews:
    from uwf_git.ext.crews.registry import Crews

    return Crews(invocation.instance.store)


def _current(invocation: Invocation, name: str) -> RegisteredVersion | None:
    if not invocation.location.git_dir.exists():
        return None
    crews = _crews(invocation)
    return crews.current(name) if name in crews.names() else None


def _find(invocation: Invocation, text: str) -> tuple[Crews, RegisteredVersion, Crew]:
    """Return a crew, with ~2 in the second version before the newest. Raises NotFound."""
    crews = _crews(invocation)
    version = crews.named(text)
    return crews, version, crews.crew(version.hash)


def _oid(version: RegisteredVersion) -> Any:
    from uwf_git.plugin import Oid

    return Oid(hex=version.commit)


# Output


def _version(crew: Crew, node: Hash, commit: str | None) -> dict[str, Any]:
    return {"name": crew.name, "version": crew.version, "hash": node, "commit": commit}


def crew_value(crew: Crew, node: Hash, commit: str | None) -> dict[str, Any]:
    """Return a crew as JSON, personas in order."""
    payload = crew.payload()
    for workflow in payload["workflows"]:
        workflow["address"] = f"{crew.name}/{workflow['id']}"
    return {**_version(crew, node, commit), **payload}


def _warnings(definition: Definition) -> dict[str, Any]:
    warnings = [finding._asdict() for finding in definition.compiled.warnings]
    return {"warnings": warnings} if warnings else {}


_VERSION = (("crew", "{name:bold}"), "version", "hash", "commit")


def _dry_run(value: Any) -> str:
    return "nothing was stored" if value["changed"] and value.get("dryRun") else ""


def _workflows(value: Any) -> list[tuple[str, str]]:
    return [
        ("workflow" if not place else "", workflow["address"])
        for place, workflow in enumerate(value["workflows"])
    ]


def _persona(member: Any) -> str:
    persona = member["persona"]
    return f"{persona.get('icon', '')} {persona['name']} ({member['id']})".strip()


_IMPORTED = Record(
    *_VERSION,
    ("unchanged", lambda value: "" if value["changed"] else "it is here already"),
    ("dry run", _dry_run),
    ("personas", lambda value: ", ".join(map(_persona, value["personas"]))),
    _workflows,
)
_CREWS = Table(
    *(("name", "{name:bold}"), "version"),
    ("hash", lambda crew: crew["hash"] or terminal.status(ThreadState.CORRUPT.word)),
    "personas",
    ("", lambda crew: crew.get("description") or crew.get("problem")),
    empty="no crews; uwf crew import PACKAGE",
)
_SHOWN = Record(*_VERSION, ("from", lambda crew: FORMS.get(crew["format"], crew["format"])), "updated")


def _shown_text(value: Any) -> str:
    parts = [_SHOWN(value).rstrip("\n")]
    if value["description"].strip():
        parts.append(value["description"].strip())
    for member in value["personas"]:
        title = member["persona"].get("title", "")
        head = terminal.style(_persona(member), "bold") + (f", {title}" if title else "")
        menu = [
            (str(number), item.get("trigger") or item.get("cmd", ""), item["description"], does(item))
            for number, item in enumerate(member.get("menu", ()), 1)
        ]
        parts.append(head + ("\n" + terminal.table(menu).rstrip("\n") if menu else ""))
    if value["workflows"]:
        parts.append(Table(("workflow", "address"), ("hash", "workflow"), ("", "title"))(value["workflows"]))
    return "\n\n".join(parts)


def does(item: Any) -> str:
    parts = [
        f"{verb} {item[key]}"
        for key, verb in (
            ("workflow", "starts"),
            ("exec", "carries out"),
            ("action", "action"),
            ("data", "with"),
        )
        if item.get(key)
    ]
    return ", ".join(parts)
