"""`uwf publish` and `unpublish`, `uwf workflow propose` and `accept`: threads, workflows, crews and changes of
workflows on branches that a forge shows, for review; `uwf export`, a thread as a page for who has no forge, or threads
and their nodes in the form of the earlier programs; and `uwf workflow trust`, code that somebody has read."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.commands.workflow import bundle_of, version_rows
from uwf_cli.completers import (
    complete_crew,
    complete_name,
    complete_remote,
    complete_thread,
    complete_workflow,
)
from uwf_cli.exchange import find_thread, git_for, tell_large
from uwf_cli.invocation import Invocation
from uwf_git.base.errors import Invalid, Usage
from uwf_git.base.text import counted
from uwf_git.config.settings import Grants
from uwf_git.git.repository import Oid

if TYPE_CHECKING:
    from uwf_cli.resolve import Found
    from uwf_git.store.remotes import Remote
    from uwf_git.store.versions import Versions
    from uwf_git.sync.proposals import Proposal

_REMOTE = click.option(
    "--remote",
    metavar="NAME",
    shell_complete=complete_remote,
    help="The remote; origin, or the only one, without it.",
)
_AS = click.option("--as", "branch", metavar="BRANCH", default="", help="Another name for the branch.")


@command(
    "uwf publish thread 01JK7M",
    "uwf publish thread 01JK7M --as review/login-bug --remote team",
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@_AS
@_REMOTE
def thread(invocation: Invocation, thread: str, branch: str, remote: str | None) -> None:
    """Push a thread to a branch, for review.

    Its commits as they are, with the workflow's version, or the step it was forked at, as the base to
    compare with. Doing it again takes the branch forward.
    """
    from uwf_git.sync.publish import publish_thread

    instance = invocation.instance
    chosen = instance.remotes.get(remote)
    found = publish_thread(instance, git_for(instance), chosen, instance.threads.find(thread), branch)
    tell_large(invocation, found.large)
    invocation.emit(found.to_json(), published_text)


@command(
    "uwf publish workflow solve-issue",
    "uwf publish workflow solve-issue --remote team",
)
@click.argument("workflow", metavar="NAME", shell_complete=complete_name)
@_AS
@_REMOTE
def workflow(invocation: Invocation, workflow: str, branch: str, remote: str | None) -> None:
    """Push a workflow's newest version to a branch, for review. Proposals can be merged into it."""
    _publish_version(invocation, invocation.instance.registry, workflow, branch, remote)


@command(
    "uwf publish crew trip",
    "uwf publish crew trip --remote team",
)
@click.argument("crew", metavar="NAME", shell_complete=complete_crew)
@_AS
@_REMOTE
def crew(invocation: Invocation, crew: str, branch: str, remote: str | None) -> None:
    """Push a crew's newest version to a branch, for review. Proposals can be merged into it."""
    from uwf_git.ext.crews.registry import Crews

    _publish_version(invocation, Crews(invocation.instance.store), crew, branch, remote)


def _publish_version(
    invocation: Invocation, versions: Versions[Any], name: str, branch: str, remote: str | None
) -> None:
    from uwf_git.sync.publish import publish_version

    instance = invocation.instance
    found = publish_version(instance, git_for(instance), instance.remotes.get(remote), versions, name, branch)
    tell_large(invocation, found.large)
    invocation.emit(found.to_json(), published_text)


@command(
    "uwf unpublish 01JK7M",
    "uwf unpublish solve-issue",
    "uwf unpublish review/login-bug --remote team",
    "uwf unpublish solve-issue --force       also what was not taken over",
)
@click.argument("what", metavar="BRANCH|ID|NAME")
@click.option("--force", is_flag=True, help="Also if it holds what was not taken over here.")
@_REMOTE
def unpublish(invocation: Invocation, what: str, force: bool, remote: str | None) -> None:
    """Delete a published branch and its base from a remote. Threads, workflows and crews stay as they are.

    A branch with commits that were not taken over here, such as somebody's edit, is left alone without
    --force. The commits that the branches were at are printed.
    """
    from uwf_git.sync.publish import unpublish as delete

    instance = invocation.instance
    chosen = instance.remotes.get(remote)
    deleted = delete(instance, git_for(instance), chosen, what, force)
    value = {
        "remote": chosen.name,
        "unpublished": [{"branch": branch, "commit": commit} for branch, commit in deleted.items()],
    }
    invocation.emit(value, _unpublished_text)


def published_text(value: Any) -> str:
    """A branch that was pushed, with its pages on a forge, for people; of the value that `to_json` gives."""
    pages = dict(value["pages"] or {})
    page = pages.pop("branch", "")
    return terminal.fields(
        [
            ("branch", terminal.style(value["branch"], "bold")),
            ("commit", value["commit"]),
            ("base", value["baseBranch"] or "none: this is the first"),
            *((name, url or "") for name, url in pages.items()),
            ("page", page),
        ]
    )


def _unpublished_text(value: Any) -> str:
    return "\n".join(
        f"deleted {each['branch']} from {value['remote']}; it was at {each['commit']}"
        for each in value["unpublished"]
    )


@command(
    "uwf export 01JK7M --html login.html",
    "uwf export 01JK7M --html login.html --force    write over what is there",
    "uwf export 01JK7M --html - | less              to standard output",
    "uwf export --json-cas old                      all nodes, as json-cas keeps them",
    "uwf export 01JK7M --json-cas old               those of a thread",
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
@click.option(
    "--html",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The file to write; - is standard output.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option(
    "--json-cas",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="The storage root to write, as the earlier programs had it.",
)
def export(
    invocation: Invocation, threads: tuple[str, ...], file: Path | None, force: bool, folder: Path | None
) -> None:
    """Write a thread as one HTML file, to mail and to keep; or nodes in the form of json-cas.

    In the HTML file is everything: the task, the graph, each step with its answer, cost and turns, failed
    attempts and sub-workflows. It holds no script and fetches nothing, so it can be opened anywhere.

    With --json-cas the threads that are named, or without an ID all workflows, threads and nodes, are
    written into a storage root, which "uwf import" reads. Nodes that are there already stay.
    """
    if folder is not None and file is None and not force:
        _export_nodes(invocation, threads, folder)
        return
    if file is None or folder is not None or len(threads) != 1:
        raise Usage("one thread goes into a file, and nodes into a folder", _HOW_TO_EXPORT)
    _export_page(invocation, threads[0], file, force)


_HOW_TO_EXPORT = "uwf export ID --html FILE, or uwf export [ID]... --json-cas FOLDER"


def _export_nodes(invocation: Invocation, threads: tuple[str, ...], folder: Path) -> None:
    from uwf_cli.exchange import Meter
    from uwf_git.ext.importers.export import export as write

    instance, meter = invocation.instance, Meter()
    chosen = [find_thread(invocation, each) for each in threads] or None
    total = instance.store.index.node_count()
    try:
        found = write(instance, folder, chosen, lambda done: meter.step("Writing nodes", done, total))
    finally:
        meter.clear()
    invocation.emit(
        {"folder": str(folder), **found._asdict()},
        lambda value: (
            f"{value['folder']}: {counted(value['threads'], 'thread')}, "
            f"{counted(value['written'], 'node')} written, {value['there']:,} there already"
        ),
    )


def _export_page(invocation: Invocation, thread: str, file: Path, force: bool) -> None:
    from uwf_git.ext.web.page.thread import page

    instance = invocation.instance
    head = instance.threads.head(find_thread(invocation, thread))
    data = page(instance, head).encode("utf-8", "replace")
    if str(file) == "-":
        invocation.write(data.decode("utf-8"))
        return
    write_whole(file, data, force)
    invocation.emit(
        {"thread": head.thread, "file": str(file), "bytes": len(data)},
        lambda value: f"{value['file']}: {value['bytes']:,} bytes",
    )


def write_whole(path: Path, data: bytes, force: bool) -> None:
    """Writes a file that is whole or not there. Raises Invalid."""
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        if not force and os.path.lexists(path):
            raise Invalid(f"{path} is there already", "write over it with --force, or name another file")
        aside.write_bytes(data)
        aside.replace(path)
    except OSError as error:
        raise Invalid(f"can't write {path}: {error.strerror}", "name another file") from None
    finally:
        aside.unlink(missing_ok=True)


@command(
    "uwf workflow propose solve-issue.yaml --branch shorter-plan",
    "uwf workflow propose solve-issue.yaml --branch shorter-plan --remote origin",
    'uwf workflow propose solve-issue.yaml --branch shorter -m "Plan in 3 steps"',
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--branch", metavar="BRANCH", required=True, help="The proposal's name.")
@click.option(
    "-m",
    "--message",
    metavar="TEXT",
    default="",
    help="The commit's subject, and its body from the second line on; - reads standard input.",
)
@click.option(
    "--remote", metavar="NAME", shell_complete=complete_remote, help="Also push it there, for review."
)
def propose(invocation: Invocation, file: Path, branch: str, message: str, remote: str | None) -> None:
    """Propose a version of a workflow without registering it.

    Without --remote nothing leaves this machine. Proposing again under the same name adds a version.
    """
    from uwf_cli.resolve import STDIN, compile_file, read_stdin, warnings_of
    from uwf_git.sync.proposals import propose as make

    words = read_stdin("message") if message == STDIN else message
    compiled = compile_file(invocation, file)
    instance = invocation.instance_for_writing()
    chosen = instance.remotes.get(remote) if remote else None
    clean = instance.without_secrets(words, "the message")
    proposal = make(instance, instance.registry, compiled, branch, clean)
    value = {**proposal.to_json(), **bundle_of(compiled.workflow, instance), **warnings_of(compiled)}
    invocation.emit({**value, **publish_proposed(invocation, chosen, proposal)}, _proposed_text)


def publish_proposed(invocation: Invocation, remote: Remote | None, proposal: Proposal) -> dict[str, Any]:
    """Pushes a proposal to a remote, if one was named; what came of it as a part of a result."""
    from uwf_git.sync.proposals import publish_proposal

    if remote is None or proposal.is_registered:
        return {}
    instance = invocation.instance
    published = publish_proposal(instance, git_for(instance), remote, proposal)
    tell_large(invocation, published.large)
    return {"remote": remote.name, "published": published.to_json()}


@command(
    "uwf workflow accept shorter-plan",
    "uwf workflow accept shorter-plan --remote origin",
)
@click.argument("branch")
@click.option("--remote", metavar="NAME", shell_complete=complete_remote, help="Take what is on that remote.")
def accept(invocation: Invocation, branch: str, remote: str | None) -> None:
    """Register a proposed version: the one made here, or with --remote a branch of a remote."""
    from uwf_git.sync.proposals import accept as take

    instance = invocation.instance
    chosen = instance.remotes.get(remote) if remote else None
    accepted = take(instance, git_for(instance), branch, chosen, "workflow")
    workflow = instance.registry.workflow(accepted.version.hash)
    invocation.emit(
        {**accepted.to_json(), **bundle_of(workflow, instance, accepted.version.commit)}, _accepted_text
    )


@command(
    "uwf workflow trust solve-issue",
    "uwf workflow trust 81XYP6XW2G7WT --yes    without a terminal",
)
@click.argument("workflow", metavar="NAME|HASH", shell_complete=complete_workflow)
@click.option("--yes", is_flag=True, help="Without showing it and asking.")
def trust(invocation: Invocation, workflow: str, yes: bool) -> None:
    """Let a workflow that is code run on this machine.

    Its file is shown, and what the configuration grants it; then you are asked. What you have put yourself is trusted
    already.
    """
    from uwf_git.ext.code import trust as trusting

    instance = invocation.instance
    found = _bundle(invocation, workflow)
    commit = Oid(hex=str(found.commit))
    if already := trusting.is_trusted(instance, found.workflow):
        instance.registry.code(found.workflow, commit)
    else:
        source = trusting.reviewed(instance, found.workflow, commit)
        if not (yes or _asked_whether(invocation, found, source)):
            raise Usage(f"{workflow} is not trusted, as it was not confirmed", "ask whoever wrote it")
        trusting.trust(instance, found.workflow)
        if told := trusting.otherwise(instance, found.workflow, source):
            invocation.warn(told)
    value = {**_told(invocation, found), "changed": not already}
    invocation.emit(value, lambda shown: terminal.fields([*version_rows(shown), ("trusted", "yes")]))


@command("uwf workflow untrust solve-issue")
@click.argument("workflow", metavar="NAME|HASH", shell_complete=complete_workflow)
def untrust(invocation: Invocation, workflow: str) -> None:
    """Let a workflow that is code run here no longer. Nothing of it is deleted."""
    from uwf_git.ext.code import trust as trusting

    found = _bundle(invocation, workflow)
    changed = trusting.untrust(invocation.instance, found.workflow)
    value = {**_told(invocation, found), "changed": changed}
    invocation.emit(value, lambda shown: terminal.fields([*version_rows(shown), ("trusted", "no")]))


def _bundle(invocation: Invocation, text: str) -> Found:
    """The registered or stored bundle that an argument names. Raises Usage for what is no code."""
    from uwf_cli.resolve import find_workflow

    found = find_workflow(invocation, text)
    if found.workflow.code is None:
        raise Usage(f"workflow {found.workflow.name!r} is no code, so there is nothing to trust")
    if found.commit is None:
        raise Usage(f"{text} is a file, and is trusted once it is registered", f"uwf workflow put {text}")
    return found


def _granted(grants: Grants) -> str:
    """What the configuration lets a bundle reach, in words."""
    parts = ["the network" if grants.network else "no network", f"{grants.timeout:g} s a step"]
    for verb, folders in (("reads", grants.read), ("writes", grants.write)):
        parts += [f"{verb} {', '.join(folders)}"] if folders else []
    return "; ".join(parts if grants.read or grants.write else [*parts, "no folders of yours"])


def _lines(source: str, language: str) -> list[str]:
    """A file's lines as its language ends them: a comment may end where other programs see none."""
    import re

    from uwf_git.format.types import JAVASCRIPT

    ends = "\r\n|[\n\r\u2028\u2029]" if language == JAVASCRIPT else "\r\n|[\n\r]"
    lines = re.split(ends, source)
    return lines if lines[-1] else lines[:-1]


def _told(invocation: Invocation, found: Found) -> dict[str, Any]:
    code = bundle_of(found.workflow, invocation.instance, found.commit)
    return {"name": found.workflow.name, "hash": found.hash, "commit": found.commit, **code}


def _asked_whether(invocation: Invocation, found: Found, source: str) -> bool:
    """Shows a bundle's file on standard error and asks on the terminal. Raises Usage where there is none."""
    code = found.workflow.code
    assert code is not None
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        raise Usage(
            f"bundle {code.id} is trusted by somebody who has read it, and there is no terminal to ask on",
            f"read it: uwf workflow show {code.id} --source; then uwf workflow trust {code.id} --yes",
        )
    lines = _lines(source, code.language)
    width = len(str(len(lines)))
    for number, line in enumerate(lines, 1):
        sys.stderr.write(f"{terminal.style(str(number).rjust(width), 'dim')}  {terminal.escape_code(line)}\n")
    rows = [
        *version_rows(_told(invocation, found)),
        ("sha256", code.sha256),
        ("granted", _granted(invocation.instance.config.bundles.get(found.workflow.name, Grants()))),
        ("may ask", "the configured agents, which work outside its sandbox"),
        ("file", f"{counted(len(lines), 'line')}, {code.size:,} bytes"),
    ]
    sys.stderr.write("\n" + terminal.fields(rows) + "\n")
    sys.stderr.write("Let it run on this machine? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _proposed_text(value: Any) -> str:
    branch = value["branch"] if value["changed"] else f"{value['branch']}: nothing new"
    text = terminal.fields([*version_rows(value), ("proposal", branch)])
    return text + "\n" + published_text(value["published"]) if "published" in value else text


def _accepted_text(value: Any) -> str:
    return terminal.fields([*version_rows(value), ("accepted", value["case"])])
