"""A step of a thread that is shared: fetched before, pushed after. Who loses the race for it keeps what was
done, as a thread of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from uwf_git import log
from uwf_git.engine.step import Outcome, step
from uwf_git.errors import Busy, HeadMoved, RemoteFailed, UwfError
from uwf_git.git.objects import parse_tag
from uwf_git.git.program import Git
from uwf_git.git.repository import COMMIT, Oid
from uwf_git.sharing import tracking
from uwf_git.sharing.pull import Pulled, pull, raise_if_refused
from uwf_git.sharing.push import plan_anew, push, refs_of, refusal
from uwf_git.sharing.transfer import Rejected
from uwf_git.store import layout
from uwf_git.store.history import relate
from uwf_git.store.opened import Instance
from uwf_git.store.remotes import Remote
from uwf_git.text import one_line
from uwf_git.values.ids import ThreadId


def shared_step(
    instance: Instance,
    git: Git,
    remote: Remote,
    thread: ThreadId,
    agent: str | None = None,
    cwd: Path | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
) -> Outcome:
    """A step between a pull and a push of its thread. Moves what those move. Raises HeadMoved where
    somebody else's step got there first, naming the thread that keeps ours, and where the thread was deleted there:
    before the step, or with the step kept here; else as step, pull and push do."""
    raise_if_refused(pull(instance, git, remote, thread))
    if tracking.marked(instance, remote, [layout.THREADS + thread]):
        again = f"uwf push {remote.name} {thread} brings it back"
        raise HeadMoved(
            f"thread {thread} was deleted on {remote.name}", f"{again}; without --remote it goes on here"
        )
    try:
        outcome = step(instance, thread, agent, cwd, on_stderr)
    except UwfError:
        # A failed attempt travels too; that it couldn't must not hide why it failed.
        with contextlib.suppress(UwfError):
            _push(instance, git, remote, thread)
        raise
    share(instance, git, remote, thread)
    return outcome


def share(instance: Instance, git: Git, remote: Remote, thread: ThreadId) -> None:
    """Pushes a thread's refs. Where the race for it is lost, ours becomes a thread of its own, which is
    pushed too; where the thread was deleted there, it isn't pushed. Raises HeadMoved then, RemoteFailed."""
    mine = instance.threads.head(thread).commit
    rejected = _push(instance, git, remote, thread)
    if tracking.marked(instance, remote, [layout.THREADS + thread]):
        raise HeadMoved(
            f"thread {thread} was deleted on {remote.name} meanwhile; the step made here is kept",
            f"uwf push {remote.name} {thread} brings the thread back there",
        )
    if not any(each.lost for each in rejected):
        if refused := [each for each in rejected if not each.deletion]:
            error = refusal(remote, refused)
            raise RemoteFailed(f"the step is made and kept here, but {error.message}", error.hint)
        return
    log.warning(
        "E1CC2C9F",
        "the race for {thread} on {remote} is lost",
        thread=thread,
        remote=remote.name,
        rejected=[f"{each.ref}: {each.reason}" for each in rejected],
    )
    pulled = pull(instance, git, remote, thread)
    raise_if_refused(pulled)
    _push(instance, git, remote, thread)
    if _is_there(instance, remote, thread, mine):  # by another push from here
        return
    raise HeadMoved(*_lost(instance, remote, thread, pulled))


def moved_by(instance: Instance, remote: Remote, ref: str) -> str:
    """Who moved a ref of a remote last and how, as its tracking ref has it: `Ada Example: 0004 reviewer:
    approved, 2025-01-31T12:00:00Z`. "" where that isn't known."""
    repository = instance.store.repository
    oid = repository.ref(layout.tracking(remote.name, ref))
    if oid is None:
        return ""
    try:
        kind, data = repository.read(oid)
        if kind == COMMIT:
            commit = repository.commit(oid)
            person, seconds, said = commit.committer, commit.time, commit.message
        else:
            tag = parse_tag(data)
            person, seconds, said = tag.tagger, tag.time, tag.message
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (UwfError, ValueError, OverflowError):
        return ""
    who = person.partition(" <")[0]
    if person == repository.user.ident:
        who += " (you, from another store)"
    subject = said.partition("\n")[0]
    return one_line(f"{who}: {subject}, {when}", 200)


def explain_loss(instance: Instance, git: Git, remote: Remote, rejected: Rejected) -> HeadMoved:
    """A push that lost a race, as an error that says who won it and what to do."""
    thread = layout.thread_of(rejected.ref)
    is_thread = rejected.ref.startswith((layout.THREADS, layout.ARCHIVE, layout.PAUSED))
    # Where this can't be, it stays unknown who it was.
    with contextlib.suppress(RemoteFailed, Busy), instance.locks.exchange(remote.name):
        tracking.fetch(git, instance.store.repository, remote, thread if is_thread else None)
    name = rejected.ref
    if is_thread and instance.store.repository.ref(layout.tracking(remote.name, layout.ARCHIVE + thread)):
        name = layout.ARCHIVE + thread
    who = moved_by(instance, remote, name)
    what = f"thread {thread}" if is_thread else rejected.ref.removeprefix(layout.NAMESPACE)
    if name.startswith(layout.PAUSED):
        what = f"the pause of {what}"
    return HeadMoved(
        f"{what} was moved on {remote.name}" + (f" by {who}" if who else " by somebody else"),
        f"uwf pull {remote.name} keeps both sides, then push again",
    )


def _push(instance: Instance, git: Git, remote: Remote, thread: ThreadId) -> list[Rejected]:
    with instance.locks.exchange(remote.name):
        what = plan_anew(instance, git, remote, refs_of(instance, [thread]))
        rejected = push(instance, git, remote, what).rejected
    # A pause from elsewhere that got there first is no lost step: either keeps the thread from being stepped.
    return [each for each in rejected if not each.ref.startswith(layout.PAUSED)]


def _is_there(instance: Instance, remote: Remote, thread: ThreadId, commit: Oid) -> bool:
    """Whether a remote has all steps of a thread up to a commit in it, as far as was last seen."""
    store = instance.store
    tag = store.repository.ref(layout.tracking(remote.name, layout.ARCHIVE + thread))
    head = store.repository.ref(layout.tracking(remote.name, layout.THREADS + thread))
    there = Oid(raw=store.take_in_tag(tag).target) if tag else head
    relation = relate(store, there, commit) if there else None
    return relation is not None and not relation.theirs


def _lost(instance: Instance, remote: Remote, thread: ThreadId, pulled: Pulled) -> tuple[str, str]:
    ended = instance.threads.has_ended(thread)
    who = moved_by(instance, remote, (layout.ARCHIVE if ended else layout.THREADS) + thread)
    fork = next((each.fork for each in pulled.adopted if each.thread == thread and each.fork), None)
    message = f"thread {thread} was moved on {remote.name} meanwhile" + (f" by {who}" if who else "")
    if fork is None:
        return message, f"look at it: uwf thread show {thread}"
    return f"{message}; the step made here is kept as thread {fork}", f"uwf thread show {fork}"
