"""`uwf push`, `pull`, `clone`, `bundle`, `unbundle` and `uwf remote`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import exchange, options, resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_crew, complete_name, complete_remote, complete_thread
from uwf_cli.exchange_output import code_lines, counts, left_out_line, pulled, pushed, would_push
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation
from uwf_cli.views import Record, Table
from uwf_git.api import exchange as api
from uwf_git.base.errors import NotFound, Usage
from uwf_git.base.text import counted
from uwf_git.store.remotes import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uwf_git.api.exchange import Census, Remote
    from uwf_git.format.ids import ThreadId

_VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Print one line per ref.")


@command(
    "uwf push                                the project's threads, to origin",
    "uwf push --dry-run                      what that would send",
    "uwf push --all-projects                 … of all projects of this store",
    "uwf push origin 01JK7M 01JK9Q           two threads",
    "uwf push backup --workflow solve-issue  a workflow and its threads",
    "uwf push backup --crew trip             a crew and its workflows' threads",
    "uwf push backup --suite bugs            a suite of cases, with their threads",
    "uwf push --all                          also what was deleted there",
    "uwf push origin 01JK7M --delete         delete a thread there, not here",
)
@click.argument("words", metavar="[REMOTE] [ID]…", nargs=-1, shell_complete=complete_remote)
@click.option("--all", "again", is_flag=True, help="Push threads that were deleted on the remote again.")
@click.option(
    "--delete", "deletes", is_flag=True, help="Delete these threads on the remote. They are kept here."
)
@click.option(
    "--workflow", metavar="W", help="Push this workflow and its threads.", shell_complete=complete_name
)
@click.option(
    "--crew",
    metavar="C",
    help="Push this crew and the threads of its workflows.",
    shell_complete=complete_crew,
)
@click.option("--suite", metavar="S", help="Push this suite and its baseline.")
@click.option("-n", "--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
@click.option(
    "--default-branch",
    "default_branch",
    is_flag=True,
    help="Also make a default branch with a page. Only for a remote without branches that holds no code.",
)
@_VERBOSE
def push(
    invocation: Invocation,
    words: tuple[str, ...],
    again: bool,
    deletes: bool,
    workflow: str | None,
    crew: str | None,
    suite: str | None,
    dry_run: bool,
    default_branch: bool,
    verbose: bool,
) -> None:
    """Push threads, workflows, crews and suites to a remote. Sends only what is missing; never forces.

    Within a repository these are the threads that were started in it, and what they need; elsewhere all. The first push
    of a project to a remote says what it sends, and asks on a terminal.

    Threads that ended here end on the remote too. Exit 4 if a thread has new steps there: run uwf pull, which
    keeps both versions. Exit 8 if the remote cannot be reached or refuses.
    """
    instance = invocation.instance
    remote, ids = api.remote_and_ids(instance, words or _asked_for_origin(invocation))
    if sum(map(bool, (ids, again, workflow, crew, suite))) > 1:
        raise Usage("ids, --all, --workflow, --crew and --suite exclude each other", "give one of them")
    if deletes and not ids:
        raise Usage("--delete needs the ids of the threads", f"uwf push {remote.name} ID --delete")
    if default_branch and remote.code:
        raise Usage(f"{remote.name} holds the project, whose branches are its own", "omit --default-branch")
    there = exchange.exchange_for(instance, remote)
    threads = [instance.threads.find(name) for name in ids]
    named = {"workflow": workflow, "crew": crew, "suite": suite}
    others: dict[str, Any] = {}
    if deletes:
        if dry_run:
            raise Usage("--delete has no --dry-run", f"uwf pull {remote.name} shows what is there")
        report = api.delete(there, threads)
    else:
        of = [
            api.refs_of_definition(instance, kind, name) for kind, name in named.items() if name is not None
        ]
        if threads:
            of = [api.refs_of_threads(instance, threads)]
        refs = of[0] if of else api.refs_of_project(instance, remote)._replace(again=again)
        others = {} if of else api.left_out(instance, remote, refs)
        if dry_run or api.is_new(instance, remote):
            census = api.census(there, refs)
            if dry_run:
                invocation.emit({**census.to_json(), **others}, partial(would_push, verbose=verbose))
                _note_left_out(invocation, others)
                return
            _announce(invocation, census)
        report = api.send(there, refs)
    exchange.warn_of_large_blobs(invocation, report.large)
    value = {**report.to_json(remote.name), **others}
    if default_branch:
        from uwf_git.sync.default_branch import make

        if (branch := make(there)) is None:
            invocation.note(f"{remote.name} has branches, so none was made")
        else:
            value["landing"] = branch._asdict()
    invocation.emit(value, partial(pushed, verbose=verbose, by_name=deletes))
    _note_left_out(invocation, others)
    api.raise_if_rejected(there, report, deletes)


def _note_left_out(invocation: Invocation, others: Mapping[str, Any]) -> None:
    if others:
        invocation.note(left_out_line(others["leftOut"]))


def _announce(invocation: Invocation, census: Census) -> None:
    """Say what the first push of a project to a remote sends, and ask on a terminal. Raises Usage if it isn't
    wanted."""
    value = census.to_json()
    if not value["wouldPush"]:
        return
    what = counts(value["wouldPush"], value["steps"])
    for line in (
        f"first push to {value['remote']} ({value['url']}): {what}",
        *code_lines(value, "first the code of"),
    ):
        invocation.say(line)
    if not _confirmed("Send it?"):
        raise Usage("nothing was pushed", "uwf push --dry-run -v shows what would be")


def _asked_for_origin(invocation: Invocation) -> tuple[str, ...]:
    """Return the origin of a project whose repository is the store, if it is to be used from now on."""
    remotes = invocation.instance.remotes
    if remotes.all() or (origin := remotes.of_project(DEFAULT)) is None:
        return ()
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        raise NotFound("no remote is configured", f"to use the project's own: uwf push {origin.name}")
    if not _confirmed(f"Share the threads with {origin.name} ({api.remote_value(origin)['url']})?"):
        raise Usage("nothing was pushed", "add another: uwf remote add NAME URL")
    return (origin.name,)


def _confirmed(question: str) -> bool:
    """Ask on a terminal; elsewhere nobody is asked, and it counts as a yes."""
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        return True
    return click.confirm(question, default=True, err=True)


@command(
    "uwf pull                                all that origin has",
    "uwf pull backup",
    "uwf pull origin 01JK7M 01JK9Q           two threads, whatever else is there",
    "uwf pull --prune-deleted                and remove here what was deleted there",
)
@click.argument("words", metavar="[REMOTE] [ID]…", nargs=-1, shell_complete=complete_remote)
@click.option(
    "--prune-deleted",
    "prunes",
    is_flag=True,
    help="Remove threads that were deleted on the remote. uwf thread restore brings them back.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="With --prune-deleted: also if more threads would be removed than the remote still has.",
)
@_VERBOSE
def pull(invocation: Invocation, words: tuple[str, ...], prunes: bool, yes: bool, verbose: bool) -> None:
    """Fetch, verify and adopt the threads, workflows, crews and suites of a remote.

    If a thread has new steps on both sides, the remote's version keeps the id and yours becomes a fork. Exit
    7 if invalid data was left out, 8 if the remote cannot be reached, 12 if it has rewritten what was seen there.
    """
    instance = invocation.instance
    if yes and not prunes:
        raise Usage("--yes goes with --prune-deleted", "uwf pull --prune-deleted --yes")
    remote, ids = api.remote_and_ids(instance, words, may_be_unknown=True)
    if not ids:
        _pull(invocation, remote, verbose, prunes=prunes, confirmed=yes)
        return
    threads = api.threads_there(exchange.exchange_for(instance, remote), ids)
    pruned = _pull(invocation, remote, verbose, threads, prunes=prunes)
    for thread in threads:
        if thread not in pruned:
            api.raise_if_not_pulled(instance, remote, thread)


@command(
    "uwf clone git@example.com:team/threads.git",
    "uwf clone /mnt/backup/threads.git --root ~/elsewhere",
    "uwf clone URL --policy 8f1f0a3b…   if the trust policy has that version",
)
@click.argument("url")
@click.option(
    "--policy", metavar="COMMIT", help="Refuse a remote whose trust policy does not stand on COMMIT."
)
@_VERBOSE
def clone(invocation: Invocation, url: str, policy: str | None, verbose: bool) -> None:
    """Create a store, add URL as origin, and pull.

    Without --policy, the first trust policy seen there is followed. Exit 14 if the policy is another one.
    """
    if invocation.location.here:
        raise Usage(
            "this repository is a store already", "add the remote to it: uwf remote add origin, then uwf pull"
        )
    with api.cloning(invocation.location, url, lambda: invocation.instance) as (remote, is_new):
        if policy is not None:
            from uwf_git.sync.admission import pin

            pin(exchange.exchange_for(invocation.instance, remote), policy)
        _pull(invocation, remote, verbose, is_new=is_new)


def _pull(
    invocation: Invocation,
    remote: Remote,
    verbose: bool,
    threads: list[ThreadId] | None = None,
    is_new: bool = False,
    prunes: bool = False,
    confirmed: bool = False,
) -> list[ThreadId]:
    """Pull everything or `threads`, and print the result. With `prunes`, remove threads deleted there; return
    them."""
    from uwf_git.sync.pull import raise_if_incomplete

    instance, meter = invocation.instance, exchange.Meter()
    try:
        tell = partial(meter.step, "verifying") if meter.shown else None
        pulled_here = api.fetch(exchange.exchange_for(instance, remote, meter), threads, tell)
    finally:
        meter.clear()
    if is_new:
        invocation.note(f"made the store {invocation.location.git_dir}")
    if first := api.trusted_first(instance, pulled_here):
        invocation.note(
            f"follows trust policy {first} from now on, since it is the first one here: compare it with a"
            " teammate's, uwf trust show"
        )
    value, failures = pulled_here.to_json(), Failures(invocation)
    pruned: list[ThreadId] = []
    if prunes:
        from uwf_git.api.removal import prune

        pruned, kept, problems = prune(instance, remote.name, threads, confirmed)
        value["pruned"] = pruned
        if kept:
            value["kept"] = kept
        for problem in problems:
            failures.add(problem)
    invocation.emit(value, partial(pulled, verbose=verbose))
    raise_if_incomplete(pulled_here)
    failures.end()
    return pruned


@command("uwf bundle 01JK7M 01JK9Q -o review.bundle")
@click.argument("threads", metavar="ID…", nargs=-1, required=True, shell_complete=complete_thread)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="Output file.",
)
def bundle(invocation: Invocation, threads: tuple[str, ...], path: Path) -> None:
    """Export threads and their dependencies to one file, a git bundle."""
    from uwf_git.sync.bundle import bundle as write

    if str(path) == resolve.STDIN:
        raise Usage("a bundle needs a file", "name one: -o threads.bundle")
    instance = invocation.instance
    refs = write(
        instance, exchange.git_for(instance), [instance.threads.find(thread) for thread in threads], path
    )
    size = path.expanduser().stat().st_size
    view = f"{{file}}: {counted(len(threads), 'thread')}, {{bytes:,}} bytes"
    invocation.emit({"file": str(path), "bytes": size, "refs": refs}, view)


@command("uwf unbundle review.bundle")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@_VERBOSE
def unbundle(invocation: Invocation, path: Path, verbose: bool) -> None:
    """Import the threads of a bundle after verification.

    If a thread has new steps on both sides, yours keeps the id and the bundle's version becomes a fork. Exit
    7 if invalid data was left out.
    """
    from uwf_git.sync.bundle import unbundle as read
    from uwf_git.sync.pull import raise_if_incomplete

    instance = invocation.instance_for_writing()
    pulled_here = read(instance, exchange.git_for(instance), path)
    invocation.emit(pulled_here.to_json(), partial(pulled, verbose=verbose))
    raise_if_incomplete(pulled_here)


@command(
    "uwf remote add origin git@example.com:team/threads.git",
    "uwf remote add backup /mnt/backup/threads.git",
    "uwf remote add origin                in a project: its own remote",
)
@click.argument("name")
@click.argument("url", required=False)
def add(invocation: Invocation, name: str, url: str | None) -> None:
    """Add a remote. Any git repository that you can push to works, including an empty one.

    Refspecs are written to the store's git configuration, so plain git fetch and git push move the same refs.
    In a repository shared with code, an existing remote needs no URL; its branches are not touched.
    """
    remote = invocation.instance_for_writing().remotes.add(name, url)
    invocation.emit(api.remote_value(remote), Record(("remote", "{name:bold}"), "url"))


@command("uwf remote list")
def list_(invocation: Invocation) -> None:
    """List the remotes."""
    remotes = [api.remote_value(remote) for remote in invocation.instance.remotes.all()]
    invocation.emit(
        remotes, Table(("", "{name:bold}"), ("", "url"), empty="no remotes; uwf remote add origin URL")
    )


@command("uwf remote rm backup")
@click.argument("name", shell_complete=complete_remote)
def rm(invocation: Invocation, name: str) -> None:
    """Remove a remote and its tracking refs. Threads are kept on both sides."""
    removed = invocation.instance.remotes.remove(name)
    invocation.emit({**api.remote_value(removed), "removed": True}, "forgot {name}")


_REMOTE = options.remote(help="The remote that was rewritten.  [default: origin, or the only one]")


@command(
    "uwf remote accept-rewrite 01JK7M                 their history takes the id",
    "uwf remote accept-rewrite workflows/solve-issue  of a workflow",
)
@click.argument("name", metavar="ID")
@_REMOTE
def accept_rewrite(invocation: Invocation, name: str, remote: str | None) -> None:
    """Adopt history that a remote has in place of what was seen there.

    ID is a thread, or the name that uwf pull printed. Your steps become a fork, and refs/uwf/rewritten/ keeps what
    was replaced.
    """
    from uwf_git.sync.pull import raise_if_incomplete

    instance = invocation.instance_for_writing()
    pulled_here = api.accept_rewrite(instance, instance.remotes.get(remote), name)
    invocation.emit(pulled_here.to_json(), partial(pulled, verbose=True))
    raise_if_incomplete(pulled_here)


@command("uwf remote reject-rewrite 01JK7M")
@click.argument("name", metavar="ID")
@_REMOTE
def reject_rewrite(invocation: Invocation, name: str, remote: str | None) -> None:
    """Push your history back to a remote that has rewritten it.

    The push is forced for these refs only, and only if they are still as uwf pull found them (exit 4 if not).
    """
    instance = invocation.instance_for_writing()
    there = exchange.exchange_for(instance, remote)
    refs = api.reject_rewrite(there, name)
    invocation.emit({"remote": there.remote.name, "refs": refs}, _returned)


def _returned(value: Any) -> str:
    return f"{value['remote']} has your history again: {', '.join(value['refs'])}"
