"""`uwf push`, `pull` and `clone`, `bundle` and `unbundle`: threads, workflows and crews between machines, through a
remote or in a file; and `uwf remote`, which says where the remotes are."""

from __future__ import annotations

import contextlib
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import exchange, resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_crew, complete_name, complete_remote, complete_thread
from uwf_cli.exchanged import pulled, pushed
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation
from uwf_git.base.errors import NotFound, RemoteFailed, Usage
from uwf_git.base.text import counted
from uwf_git.format.ids import ALPHABET, ThreadId, complete, parse_thread_id
from uwf_git.store import layout
from uwf_git.store.remotes import Remote, named, without_password
from uwf_git.store.threads import NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from uwf_git.git.program import Git
    from uwf_git.store.opened import Instance
    from uwf_git.sync.pull import Pulled

_VERBOSE = click.option("-v", "--verbose", is_flag=True, help="A line for each ref.")


@command(
    "uwf push                                all that origin hasn't",
    "uwf push origin 01JK7M 01JK9Q           two threads",
    "uwf push backup --workflow solve-issue  a workflow and its threads",
    "uwf push backup --crew trip             a crew and its workflows' threads",
    "uwf push backup --suite bugs            a suite of cases, with their threads",
    "uwf push --all                          also what was deleted there",
    "uwf push origin 01JK7M --delete         delete a thread there, not here",
)
@click.argument("words", metavar="[REMOTE] [ID]…", nargs=-1, shell_complete=complete_remote)
@click.option("--all", "again", is_flag=True, help="Also what was deleted there.")
@click.option("--delete", "deletes", is_flag=True, help="Delete these threads there instead; they stay here.")
@click.option(
    "--workflow", metavar="W", help="A workflow by name, and its threads.", shell_complete=complete_name
)
@click.option(
    "--crew", metavar="C", help="A crew by name, and its workflows' threads.", shell_complete=complete_crew
)
@click.option("--suite", metavar="S", help="A suite of cases by name, and its baseline.")
@_VERBOSE
def push(
    invocation: Invocation,
    words: tuple[str, ...],
    again: bool,
    deletes: bool,
    workflow: str | None,
    crew: str | None,
    suite: str | None,
    verbose: bool,
) -> None:
    """Push threads, workflows, crews and suites to a remote. Only what it hasn't is sent, and nothing is ever forced.

    What ended here ends there. Exit 4 where somebody else moved a thread there first: uwf pull keeps both
    sides. Exit 8 where the remote can't be reached or refuses.
    """
    instance = invocation.instance
    remote, ids = _remote_and_ids(instance, words)
    from uwf_git.api.exchange import Exchange, raise_if_rejected
    from uwf_git.sync.push import plan_anew
    from uwf_git.sync.push import push as do

    if sum(map(bool, (ids, again, workflow, crew, suite))) > 1:
        raise Usage("ids, --all, --workflow, --crew and --suite exclude each other", "give one of them")
    if deletes and not ids:
        raise Usage("--delete needs the ids of the threads", f"uwf push {remote.name} ID --delete")
    git = exchange.git_for(instance)
    with instance.locks.exchange(remote.name):
        if deletes:
            from uwf_git.sync.removal import delete

            report = delete(instance, git, remote, [instance.threads.find(each) for each in ids])
        else:
            meant, named = _meant(instance, ids, workflow, crew, suite)
            report = do(instance, git, remote, plan_anew(instance, git, remote, meant, named, again))
    exchange.tell_large(invocation, report.large)
    invocation.emit(report.to_json(remote.name), partial(pushed, verbose=verbose, by_name=deletes))
    raise_if_rejected(instance, Exchange(remote, git), report)


def _remote_and_ids(
    instance: Instance, words: tuple[str, ...], may_be_unknown: bool = False
) -> tuple[Remote, list[str]]:
    """Words begin with a remote's name, or are all ids of threads, which `may_be_unknown` here."""
    remotes = instance.remotes.all()
    if words and words[0] in {remote.name for remote in remotes}:
        return named(words[0], remotes), list(words[1:])
    if words:
        try:
            instance.threads.find(words[0])
        except NotFound:
            if not (may_be_unknown and _may_be_id(words[0])):
                return named(words[0], remotes), list(words[1:])
    return named(None, remotes), list(words)


def _meant(
    instance: Instance, ids: list[str], workflow: str | None, crew: str | None, suite: str | None
) -> tuple[set[str] | None, set[str]]:
    """The refs that are meant by ids or the name of a workflow, crew or suite, None for all there are; and those that
    are called by their name, not only as what belongs to it."""
    from uwf_git.api.exchange import refs_of_threads
    from uwf_git.sync.push import refs_of_kind, refs_of_workflow

    if suite is not None:
        meant = refs_of_kind(instance, "suite", suite)
        return meant, meant
    if workflow is not None or crew is not None:
        meant = (
            refs_of_workflow(instance, workflow)
            if workflow is not None
            else refs_of_kind(instance, "crew", str(crew))
        )
        from uwf_git.store import ref_kinds

        registered = tuple(kind.prefix for kind in ref_kinds.versioned().values())
        return meant, {name for name in meant if name.startswith(registered)}
    threads = [instance.threads.find(each) for each in ids]
    return refs_of_threads(instance, threads)


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
    help="Remove the threads here that were deleted there; uwf thread restore brings them back.",
)
@click.option("--yes", is_flag=True, help="Prune even if that removes more threads than the remote has left.")
@_VERBOSE
def pull(invocation: Invocation, words: tuple[str, ...], prunes: bool, yes: bool, verbose: bool) -> None:
    """Bring here what a remote has, or some of its threads: fetched, verified, then taken over.

    Nothing is lost where both sides went on: the remote's keeps the thread's id, and yours becomes a thread
    of its own. Exit 7 where something was invalid and left out, 8 where the remote can't be reached.
    """
    instance = invocation.instance
    if yes and not prunes:
        raise Usage("--yes goes with --prune-deleted", "uwf pull --prune-deleted --yes")
    remote, ids = _remote_and_ids(instance, words, may_be_unknown=True)
    if not ids:
        _pull(invocation, remote, verbose, prunes=prunes, confirmed=yes)
        return
    from uwf_git.sync.pull import gather

    threads = _named_there(instance, exchange.git_for(instance), remote, ids)
    pruned = _pull(invocation, remote, verbose, partial(gather, threads=threads), prunes=prunes, only=threads)
    for thread in threads:
        if thread not in pruned and not instance.threads.exists(thread):
            if instance.store.repository.ref(layout.REMOVED + thread) is None:
                raise NotFound(f"no thread {thread} on {remote.name}", "uwf pull brings all that is there")
            instance.threads.find(thread)


def _named_there(instance: Instance, git: Git, remote: Remote, ids: list[str]) -> list[ThreadId]:
    """The threads that are meant by their ids. A part of an id that fits none here is one of the remote's, which is
    asked for all it has then. Raises NotFound, Usage, RemoteFailed."""
    found: dict[ThreadId, None] = {}
    there: set[ThreadId] = set()
    for each in ids:
        if len(each) == 26:
            found[parse_thread_id(each)] = None
            continue
        try:
            found[instance.threads.find(each)] = None
        except NotFound:
            if each.startswith(NEWEST):
                raise
            if not there:
                from uwf_git.sync.tracking import list_refs

                refs = list_refs(git, instance.store.repository, remote).refs
                there = {layout.thread_of(name) for name in refs if layout.is_thread_ref(name)}
            try:
                found[ThreadId(complete(each, there, "thread", ends=True))] = None
            except NotFound:
                hint = "give the whole id of one that is folded there"
                raise NotFound(f"no thread {each}, neither here nor on {remote.name}", hint) from None
    return list(found)


def _may_be_id(text: str) -> bool:
    """Whether a word may be a thread's id or the beginning of one: no remote is called like one."""
    return re.fullmatch(rf"[0-7][{ALPHABET}]{{3,25}}", text.upper()) is not None


@command(
    "uwf clone git@example.com:team/threads.git",
    "uwf clone /mnt/backup/threads.git --root ~/elsewhere",
)
@click.argument("url")
@_VERBOSE
def clone(invocation: Invocation, url: str, verbose: bool) -> None:
    """Begin on a new machine: make the store, add URL as origin, and pull."""
    if invocation.location.here:
        raise Usage(
            "this repository is a store already", "add the remote to it: uwf remote add origin, then uwf pull"
        )
    from uwf_git.git.program import CHECK_ADDRESS
    from uwf_git.store.location import abandon, init

    root = invocation.location.root
    is_new, is_new_root = not invocation.location.git_dir.exists(), not root.exists()
    if is_new:
        init(invocation.location)
    instance = invocation.instance
    known = {remote.name for remote in instance.remotes.all()}
    remote = instance.remotes.add("origin", url)
    try:
        _pull(invocation, remote, verbose, is_new=is_new)
    except BaseException as error:
        is_unknown = isinstance(error, RemoteFailed) and remote.name not in known
        if isinstance(error, RemoteFailed) and error.hint == CHECK_ADDRESS:
            error.hint = "check the address with: git ls-remote URL"  # the remote is not kept
        if is_new and not instance.store.repository.refs():
            abandon(invocation.location)
            if is_new_root:
                with contextlib.suppress(OSError):  # something else is in it by now
                    root.rmdir()
        elif is_unknown and not instance.store.repository.ref_names(layout.REMOTES):
            instance.remotes.remove(remote.name)
        raise


def _pull(
    invocation: Invocation,
    remote: Remote,
    verbose: bool,
    some: Callable[..., Pulled] | None = None,
    is_new: bool = False,
    prunes: bool = False,
    only: list[ThreadId] | None = None,
    confirmed: bool = False,
) -> list[ThreadId]:
    """Pulls all that a remote has, or what `some` pulls, and tells what came of it, also that the store `is_new`. If it
    `prunes`, threads are removed that were deleted there, `only` of those given; returns these."""
    from uwf_git.sync.pull import pull as everything
    from uwf_git.sync.pull import raise_if_incomplete

    instance, meter = invocation.instance, exchange.Meter()
    try:
        tell = partial(meter.step, "verifying") if meter.shown else None
        git = exchange.git_for(instance, meter)
        found = (some or everything)(instance, git, remote, on_verified=tell)
    finally:
        meter.clear()
    if is_new:
        invocation.note(f"made the store {invocation.location.git_dir}")
    value, failures = found.to_json(), Failures(invocation)
    pruned: list[ThreadId] = []
    if prunes:
        from uwf_git.sync.removal import prune

        pruned, kept, problems = prune(instance, remote.name, only, confirmed)
        value["pruned"] = pruned
        if kept:
            value["kept"] = kept
        for problem in problems:
            failures.add(problem)
    invocation.emit(value, partial(pulled, verbose=verbose))
    raise_if_incomplete(found)
    failures.end()
    return pruned


@command("uwf bundle 01JK7M 01JK9Q -o review.bundle")
@click.argument("threads", metavar="ID…", nargs=-1, required=True, shell_complete=complete_thread)
@click.option(
    "-o", "--output", "path", metavar="FILE", required=True, type=click.Path(path_type=Path), help="Where to."
)
def bundle(invocation: Invocation, threads: tuple[str, ...], path: Path) -> None:
    """Write threads to one file, with all they stand on. It is a git bundle."""
    from uwf_git.sync.bundle import bundle as do

    if str(path) == resolve.STDIN:
        raise Usage("a bundle needs a file", "name one: -o threads.bundle")
    instance = invocation.instance
    refs = do(instance, exchange.git_for(instance), [instance.threads.find(each) for each in threads], path)

    def text(value: Any) -> str:
        return f"{value['file']}: {counted(len(threads), 'thread')}, {value['bytes']:,} bytes"

    size = path.expanduser().stat().st_size
    invocation.emit({"file": str(path), "bytes": size, "refs": refs}, text)


@command("uwf unbundle review.bundle")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@_VERBOSE
def unbundle(invocation: Invocation, path: Path, verbose: bool) -> None:
    """Take over the threads in a file, verified as those of a remote are.

    Where both sides went on, yours keeps the thread's id, and what the file brings becomes a thread of its
    own. Exit 7 where something was invalid and left out.
    """
    from uwf_git.sync.bundle import unbundle as do
    from uwf_git.sync.pull import raise_if_incomplete

    instance = invocation.instance_for_writing()
    found = do(instance, exchange.git_for(instance), path)
    invocation.emit(found.to_json(), partial(pulled, verbose=verbose))
    raise_if_incomplete(found)


@command(
    "uwf remote add origin git@example.com:team/threads.git",
    "uwf remote add backup /mnt/backup/threads.git",
    "uwf remote add origin                in a project: its own remote",
)
@click.argument("name")
@click.argument("url", required=False)
def add(invocation: Invocation, name: str, url: str | None) -> None:
    """Add a remote. Any git repository that you may push to will do, an empty one too.

    Its refspecs are written into git's configuration of the store, so that plain git fetch and git push
    move the same refs. In a repository shared with code a remote that is there needs no URL; its branches
    are left alone.
    """
    invocation.emit(_remote_value(invocation.instance_for_writing().remotes.add(name, url)), _remote_text)


@command("uwf remote list")
def list_(invocation: Invocation) -> None:
    """List the remotes."""
    found = [_remote_value(remote) for remote in invocation.instance.remotes.all()]

    def text(value: Any) -> str:
        rows = [(terminal.style(each["name"], "bold"), each["url"]) for each in value]
        return terminal.table(rows) if rows else "no remotes; uwf remote add origin URL"

    invocation.emit(found, text)


@command("uwf remote rm backup")
@click.argument("name", shell_complete=complete_remote)
def rm(invocation: Invocation, name: str) -> None:
    """Forget a remote, and where its refs were. Threads stay as they are, here and there."""
    removed = invocation.instance.remotes.remove(name)
    invocation.emit({**_remote_value(removed), "removed": True}, lambda value: f"forgot {value['name']}")


def _remote_value(remote: Remote) -> dict[str, Any]:
    value = {"name": remote.name, "url": without_password(remote.url)}
    if remote.push_url != remote.url:
        value["pushUrl"] = without_password(remote.push_url)
    return value


def _remote_text(value: Any) -> str:
    return terminal.fields([("remote", terminal.style(value["name"], "bold")), ("url", value["url"])])
