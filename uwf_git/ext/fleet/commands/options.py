"""The fleet of a command, and common options."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from uwf_git.ext.fleet.monitor import LOOPBACK, Address
from uwf_git.plugin import (
    TO_STEP,
    NotFound,
    Number,
    Usage,
    UwfError,
    chosen_threads,
    counted,
    options,
)

if TYPE_CHECKING:
    from uwf_git.ext.fleet.endpoint import Endpoint
    from uwf_git.ext.fleet.messages import ThreadEntry
    from uwf_git.ext.fleet.step_process import WorkerOptions
    from uwf_git.plugin import AgentOptions, Failures, Instance, Invocation, ThreadId, ThreadSelection

_PORT = 7233
_MAX_BACKOFF = 86400  # seconds that a worker may be silent


class ServerOptions(NamedTuple):
    """The options --address and --namespace."""

    address: str | None
    namespace: str | None

    def named(self) -> Endpoint | None:
        """Return the server that --address names."""
        return _endpoint(self.address, self.namespace)

    def find(self, invocation: Invocation) -> Endpoint:
        """Return the named server, this store's running fleet, or that of Temporal's variables. Raises NotFound."""
        from uwf_git.ext.fleet.endpoint import find

        place = self.named() or find(invocation.instance.store.repository.private)
        place = place or _endpoint(os.environ.get("TEMPORAL_ADDRESS"), self.namespace)
        if place is None:
            raise NotFound(
                "no fleet is running for this store",
                "uwf fleet run --all starts one; or name a server with --address",
            )
        return place if self.namespace is None else place._replace(namespace=self.namespace)


def _endpoint(address: str | None, namespace: str | None) -> Endpoint | None:
    from uwf_git.ext.fleet.endpoint import NAMESPACE, Endpoint

    if address is None:
        return None
    host = address if ":" in address else f"{address}:{_PORT}"
    return Endpoint(host, namespace or os.environ.get("TEMPORAL_NAMESPACE") or NAMESPACE)


class EntryOptions(NamedTuple):
    """The options for queueing threads: --heartbeat in seconds, and --tries."""

    heartbeat: float
    tries: int

    def entries(
        self,
        instance: Instance,
        threads: Sequence[ThreadId],
        agent: AgentOptions | None = None,
        counts: bool = False,
    ) -> list[ThreadEntry]:
        """Return threads for the queue. `agent` overrides the configuration; `counts`: their spending is counted."""
        from uwf_git.ext.fleet.admission import used_by
        from uwf_git.ext.fleet.limits import next_queue
        from uwf_git.ext.fleet.messages import QUEUE, ThreadEntry
        from uwf_git.ext.fleet.step_process import about
        from uwf_git.plugin import thread_outlook

        def entry(thread: ThreadId) -> ThreadEntry:
            head, queue, role = instance.threads.head(thread), QUEUE, None
            with suppress(UwfError):  # the step will say why it can't be read
                role = thread_outlook(instance, head).next
                queue = next_queue(instance, head, role, agent)
            entry = ThreadEntry(thread, head.node, queue, self.heartbeat, self.tries, depth=head.row.number)
            used = used_by(instance, thread) if counts else None
            return entry._replace(used=used, about=about(instance, head, role))

        return list(map(entry, threads))


class WorkOptions(NamedTuple):
    """The options for the steps of workers, as typed."""

    agent: AgentOptions | None
    cwd: Path | None
    remote: str | None
    workspace: str | None
    workspace_remote: str

    def orders(self, invocation: Invocation) -> WorkerOptions:
        """Return the workers' orders, after checking the remote once and removing ended threads' workspaces.
        Raises Usage, NotFound, RemoteFailed."""
        from uwf_git.ext.fleet.step_process import WorkerOptions
        from uwf_git.plugin import chosen_worktree, git_for, list_refs, parse_workspace_option, tidy_worktrees

        instance, cwd = invocation.instance, options.folder(self.cwd)
        words = self.agent.words if self.agent is not None else ()
        if self.remote is not None:
            list_refs(git_for(instance), instance.store.repository, instance.remotes.get(self.remote))
        if self.workspace is None:
            if self.workspace_remote:
                raise Usage("--workspace-remote needs a workspace", "give one: --workspace worktree:PROJECT")
            return WorkerOptions(words, str(cwd) if cwd else None, self.remote)
        if cwd is not None:
            raise Usage("--cwd and --workspace exclude each other", "give one of them")
        option = parse_workspace_option(self.workspace, self.workspace_remote)
        chosen_worktree(instance, Path.cwd(), option)
        tidy_worktrees(instance)
        if option.place is None:
            option = option._replace(place=Path.cwd())
        return WorkerOptions(words, None, self.remote, option.text(), self.workspace_remote)


class LimitOptions(NamedTuple):
    """The options that limit a fleet: threads open at a time, and a budget."""

    open_: int | None
    budget: Mapping[str, float]


server = options.packed(
    "server",
    ServerOptions,
    click.option("--address", metavar="HOST:PORT", help="Address of a running Temporal server."),
    click.option("--namespace", metavar="N", help="Temporal namespace. Default: default."),
)
"""Adds the options that name a server."""

pace = options.packed(
    "pace",
    EntryOptions,
    click.option(
        "--heartbeat",
        type=Number(1, _MAX_BACKOFF),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Reassign a step after SECONDS without a heartbeat.",
    ),
    click.option(
        "--tries",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        metavar="N",
        help="Give up a thread after N failures of one step.",
    ),
)
"""Adds the options for queueing threads."""

work = options.packed(
    "work",
    WorkOptions,
    options.AGENT,
    options.CWD,
    options.REMOTE,
    click.option(
        "--workspace",
        metavar="W",
        help="Workspace of threads that have none: worktree:PROJECT[@REVISION] or folder:DIR.",
    ),
    click.option(
        "--workspace-remote",
        metavar="R",
        default="",
        help="Remote of PROJECT through which machines exchange the threads' code.",
    ),
)
"""Adds the options for the steps of workers."""


def parse_address(text: str) -> Address:
    """Parse `[HOST:]PORT`. Raises click.BadParameter."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise click.BadParameter(f"{text!r} is not [HOST:]PORT")
    return Address(host.strip("[]") or LOOPBACK, int(port))


MONITOR = click.option(
    "--monitor",
    type=parse_address,
    metavar="[HOST:]PORT",
    help="Address of /metrics, /healthz and /readyz. Default host: 127.0.0.1.",
)
"""Adds the option that says where a process serves those who watch it."""

limited = options.packed(
    "bounds",
    LimitOptions,
    click.option(
        "--open",
        "open_",
        type=click.IntRange(min=1),
        metavar="N",
        help="Keep up to N threads open at a time.",
    ),
    options.budget(
        {
            "steps": "Stop after N steps of all threads.",
            "tokens": "Stop after N tokens of all threads.",
            "cost": "Stop after all threads spent USD.",
            "time": "Stop after this working time of all agents: 30m, 20h.",
        }
    ),
)
"""Adds the options that limit a fleet."""


def warn_of_attributes(invocation: Invocation, at: Endpoint) -> None:
    """Warn if a server that isn't ours doesn't find threads by their attributes. Raises RemoteFailed."""
    import asyncio

    from uwf_git.ext.fleet.client import attributes_warning

    if not at.own and (warning := asyncio.run(attributes_warning(at))):
        invocation.warn(warning)


def mark_remote(invocation: Invocation, remote: str | None, at: Endpoint) -> str:
    """Mark a remote as this fleet's, warning of others. Returns the mark's id or "". Raises RemoteFailed."""
    if remote is None:
        return ""
    import asyncio
    from shlex import quote

    from uwf_git.ext.fleet.client import identity
    from uwf_git.ext.fleet.fleet_refs import mark, own_identity
    from uwf_git.plugin import git_for, time_ago

    instance = invocation.instance
    there, repository = instance.remotes.get(remote), instance.store.repository
    known = own_identity(repository) if at.own else asyncio.run(identity(at))
    marks = mark(repository, git_for(instance), there, at, known)
    if marks.more:
        invocation.warn(
            f"{there.name} has marks of fleets that were not read, so another one may step its threads: "
            f"git --git-dir {quote(str(repository.path))} ls-remote {there.name} 'refs/uwf/fleets/*'"
        )
    for item in marks.counting:
        where = "a server of its own" if item.place.own else item.place.address
        if item.place.own:
            join = "give both machines one server by --address"
        else:
            join = f"join it: --address {quote(item.place.address)} --namespace {quote(item.place.namespace)}"
        over = f"git --git-dir {quote(str(repository.path))} push {there.name} --delete {item.ref}"
        invocation.warn(
            f"another fleet steps threads of {there.name}, and makes the same steps again: namespace "
            f"{item.place.namespace} at {where}, begun on {item.machine} {time_ago(item.time)} — {join}; "
            f"if it is over: {over}"
        )
    return known


def unmark_remote(invocation: Invocation, remote: str | None, known: str) -> None:
    """Delete a finished fleet's mark, best effort; it expires after a day."""
    if remote is None or not known:
        return
    from uwf_git.ext.fleet.fleet_refs import unmark
    from uwf_git.plugin import git_for

    instance = invocation.instance
    with suppress(UwfError):
        unmark(git_for(instance), instance.remotes.get(remote), known)


def to_step(invocation: Invocation, chosen: ThreadSelection, failures: Failures) -> list[ThreadId]:
    """Return the threads to step in order: named ones, or filtered idle ones, depth first. Local sides of
    divergences are excluded from filters, for review."""
    from uwf_git.plugin import depth_first, parted_from

    threads = chosen_threads(invocation, chosen, failures, chosen.filters.states or TO_STEP, to_step=True)
    if chosen.ids:
        return threads
    store = invocation.instance.store
    kept = [thread for thread in threads if parted_from(store, thread) is not None]
    if kept:
        are, it = ("are", "them") if len(kept) > 1 else ("is", "it")
        invocation.note(
            f"{counted(len(kept), 'thread')} {are} the other side of a divergence and left alone; its id steps {it}: "
            + " ".join(kept[:3])
            + (" …" if len(kept) > 3 else "")
        )
    return depth_first(invocation.instance, [thread for thread in reversed(threads) if thread not in kept])


def share(
    invocation: Invocation, remote: str, threads: Collection[ThreadId], failures: Failures
) -> list[ThreadId]:
    """Update and push threads for workers elsewhere; return the successful ones and report the others. Raises
    RemoteFailed."""
    from uwf_git.plugin import exchange_for, gather_all, share_all

    if not threads:
        return []
    exchange = exchange_for(invocation.instance, remote)
    problems = gather_all(exchange, threads)
    sound = [thread for thread, problem in problems.items() if problem is None]
    problems |= share_all(exchange, sound, stepped=False)
    for problem in {id(item): item for item in problems.values() if item is not None}.values():
        failures.add(problem)
    return [thread for thread in threads if problems[thread] is None]
