"""Resuming a session: a conversation with its run, or a crew's run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.crews.conversation import TALK
from uwf_git.plugin import Invalid, NotFound, UwfError, conversations, endings, find_thread

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance, Invocation, Oid, ThreadId

NEWEST = "@"


class SessionState(NamedTuple):
    """A session's state: CREW/PERSONA or "", its conversation or None, its active or completed run."""

    who: str
    conversation: ThreadId | None
    run: ThreadId | None


def find_session(invocation: Invocation, text: str, who: str) -> SessionState:
    """Find the session of a text: a conversation, a crew's run, or NEWEST of a crew or persona. Of a killed
    run only its conversation can continue. Raises NotFound, Usage, Invalid."""
    instance = invocation.instance
    if text == NEWEST:
        return _talk(instance, _newest(instance, who))
    thread = find_thread(invocation, text)
    head = instance.threads.head(thread)
    if conversations.in_conversation(instance, head):
        return _talk(instance, instance.threads.active_head(thread))
    return _run(instance, head)


def _newest(instance: Instance, who: str) -> Head:
    from uwf_git.plugin import Head

    crew, _, persona = who.partition("/")
    for head in instance.threads.meant():
        if not isinstance(head, Head) or not conversations.in_conversation(instance, head):
            continue
        if crew and head.row.name != f"{crew}/{TALK}":
            continue
        if not persona or instance.threads.history(head).start.persona == persona:
            return head
    whom = f" with {who}" if who else ""
    raise NotFound(
        f"there is no conversation{whom} yet", f"begin one with: uwf chat{f' {who}' if who else ''}"
    )


def _talk(instance: Instance, head: Head) -> SessionState:
    history = instance.threads.history(head)
    crew = history.workflow.crew
    if crew is None:
        return SessionState("", head.thread, None)
    return SessionState(
        f"{crew.name}/{history.start.persona}", head.thread, begun_from(instance, crew.name, head.commit)
    )


def _run(instance: Instance, head: Head) -> SessionState:
    threads, thread = instance.threads, head.thread
    history = threads.history(head)
    crew = history.workflow.crew
    if crew is None:
        hint = f"uwf thread run {thread}"
        if head.archive is not None:
            hint = threads.way_on(head)
        elif head.row.asks:
            hint = f"uwf thread answer {thread} -m TEXT"
        raise Invalid(f"thread {thread} is not a conversation, and no run of a crew", hint)
    origin = threads.origin(thread)
    conversation = threads.ending_with(origin) if origin is not None else None
    if conversation is not None and threads.has_ended(conversation):
        conversation = None
    if head.archive is None or head.archive.status != endings.KILLED:
        run: ThreadId | None = thread
    elif conversation is not None:
        run = None
    else:
        raise Invalid(f"run {thread} is {head.archive.status}", threads.way_on(head))
    return SessionState(f"{crew.name}/{history.start.persona}", conversation, run)


def begun_from(instance: Instance, crew: str, conversation: Oid) -> ThreadId | None:
    """Return the newest run started from a conversation at this commit and not killed."""
    from uwf_git.plugin import Head

    for head in instance.threads.all(archived=True):
        if not isinstance(head, Head) or not (head.row.name or "").startswith(f"{crew}/"):
            continue
        if head.row.name == f"{crew}/{TALK}" or (head.archive and head.archive.status == endings.KILLED):
            continue
        try:
            if instance.threads.origin(head.thread) == conversation:
                return head.thread
        except (UwfError, NotFound):
            continue
    return None
