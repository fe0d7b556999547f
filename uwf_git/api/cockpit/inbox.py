"""What a person has to do here: answer what asks, retry what failed, raise budgets, and what extensions queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.api.cockpit.permissions import PERMISSION, permission_item
from uwf_git.api.inbox import ME, waiting_for, waiting_for_people, warnings_value
from uwf_git.api.listing import (
    Filters,
    ListedThread,
    listed,
    thread_items,
    unretried,
    without_quiet_branches,
)
from uwf_git.base import extensions
from uwf_git.base.errors import Usage, UwfError
from uwf_git.base.text import iso, nearest
from uwf_git.base.thread_states import Group, Request, ThreadState
from uwf_git.engine.permission_requests import permission_requests, request_value
from uwf_git.engine.waits import with_words
from uwf_git.format.kinds import SUBWORKFLOW
from uwf_git.store.history import Head

if TYPE_CHECKING:
    from uwf_git.base.extensions import ThreadAction
    from uwf_git.engine.waits import Waits
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

ASKS, FAILED, BUDGET = "asks", "failed", "budget"
# In their order. An agent that asks leave is held up, so that is before older questions, in uwf top too.
_LABELS = {PERMISSION: "asks leave", ASKS: "asks you", FAILED: "failed", BUDGET: "over budget"}
_DAYS = 7  # for which a thread that ended failed is listed
_MOST = 100  # finished threads that queues are asked about


def groups() -> dict[str, str]:
    """Return the groups in their order, with the words for people."""
    return {**_LABELS, **{action.name: action.queue_label for action in _queues()}}


class InboxEntry(NamedTuple):
    """A thread in a `group` of the inbox, with what it waits for, as of `waiting_for_people`, or the `request` of its
    agent for leave, as `request_value` returns it."""

    group: str
    listed: ListedThread
    waits: Waits | None = None
    request: Mapping[str, Any] | None = None


def inbox(instance: Instance, whom: str | None = None, only: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return what a person may do something about, as JSON, by `groups`: what agents ask leave for, what asks and
    what is over budget, oldest first; failed threads, without those whose failed end is older than a week or was
    forked since, and what extensions queue, newest first, each with the `plan` of that. `whom` is as in `waiting_for`;
    of the others it has those that this person has started. `only` are groups. Raises Usage for another group."""
    entries = inbox_entries(instance, whom, only)
    items = inbox_items(instance, entries)
    return [{**item, **_plan(instance, entry)} for item, entry in zip(items, entries, strict=True)]


def inbox_entries(instance: Instance, whom: str | None = None, only: Iterable[str] = ()) -> list[InboxEntry]:
    """Return the entries of `inbox`, without reading what their items say."""
    wanted = tuple(only) or tuple(groups())
    if unknown := [group for group in wanted if group not in groups()]:
        raise Usage(f"no group {unknown[0]!r}", nearest(unknown[0], groups()))
    threads = listed(instance, Filters(ended=True))
    by_id = {thread.thread: thread for thread in threads}
    active = [(thread.head, thread.state) for thread in threads if not thread.has_ended]
    entries: dict[str, list[InboxEntry]] = {group: [] for group in groups() if group in wanted}
    if PERMISSION in entries:
        entries[PERMISSION] = [
            InboxEntry(PERMISSION, by_id[request.thread], request=request_value(request))
            for request in permission_requests(instance)
            if request.thread in by_id
        ]
    for waits in (
        waiting_for_people(instance, active) if whom is None else waiting_for(instance, whom, active)
    ):
        if (group := _group(waits)) in entries:
            entries[group].append(InboxEntry(group, by_id[waits.thread], waits))
    rest = _others(instance, threads, whom)
    if FAILED in entries:
        entries[FAILED] = [InboxEntry(FAILED, thread) for thread in _failed(instance, rest)]
    for action in _queues():
        if action.name in entries:
            queue = _queued(instance, rest, action)
            entries[action.name] = [InboxEntry(action.name, thread) for thread in queue]
    return [entry for group in entries.values() for entry in group]


def inbox_items(instance: Instance, entries: Sequence[InboxEntry]) -> list[dict[str, Any]]:
    """Return what `inbox` does, of some of its entries, without plans."""
    entries = [
        entry
        if entry.waits is None
        else entry._replace(waits=with_words(instance, entry.waits, entry.listed))
        for entry in entries
    ]
    waits = {entry.listed.thread: entry.waits for entry in entries if entry.waits is not None}
    values = thread_items(instance, [entry.listed for entry in entries], waits)
    commands = {FAILED: _ways_on, **{action.name: _does(action) for action in _queues()}}
    return [
        permission_item(entry.request, value)
        if entry.request is not None
        else _of_wait(instance, entry, entry.waits, value)
        if entry.waits is not None
        else _value(value, entry.group, commands[entry.group])
        for entry, value in zip(entries, values, strict=True)
    ]


def _plan(instance: Instance, entry: InboxEntry) -> dict[str, Any]:
    """Return what the action would do that an extension queues a thread for, with the number of changed files."""
    action = next((action for action in _queues() if action.name == entry.group), None)
    if action is None or not isinstance(head := entry.listed.head, Head):
        return {}
    from uwf_git.workspaces.changes import changes

    with suppress(UwfError):  # it is told by the command
        plan = action.planned(instance, head)
        files = None if plan.code is None else len(changes(instance, head.thread, plan.code).files)
        return {"plan": {**plan.as_json(), "files": files}}
    return {}


def _group(wait: Waits) -> str:
    return BUDGET if wait.kind is Request.BUDGET else ASKS


def _of_wait(instance: Instance, entry: InboxEntry, wait: Waits, item: Mapping[str, Any]) -> dict[str, Any]:
    head, warnings = entry.listed.head, dict[str, list[str]]()
    with suppress(UwfError):  # a damaged thread must not take the others away
        warnings = warnings_value(instance, wait, head) if isinstance(head, Head) else {}
    return {
        "group": entry.group,
        **wait.as_json(),
        "since": iso(wait.since),
        "commands": [wait.command, f"uwf thread show {wait.thread}"],
        **warnings,
        **{name: value for name, value in item.items() if name not in wait._fields},
    }


def _others(instance: Instance, threads: list[ListedThread], whom: str | None) -> list[ListedThread]:
    """Return threads that have failed or ended, newest change first, of which branches that have ended and calls are
    left to those above them."""
    above = [thread for thread in without_quiet_branches(instance, threads) if _may_be_listed(thread)]
    if whom is not None:
        above = list(filter(_is_by(instance, whom), above))
    return sorted(above, key=_updated, reverse=True)


def _own(instance: Instance, threads: list[ListedThread]) -> list[ListedThread]:
    """Return threads without those of sub-workflows."""
    owners = instance.sessions.owners(SUBWORKFLOW, [thread.thread for thread in threads])
    return [thread for thread in threads if not owners.get(thread.thread)]


def _may_be_listed(thread: ListedThread) -> bool:
    return thread.has_ended or thread.state.group is Group.FAILED


def _is_by(instance: Instance, whom: str) -> Callable[[ListedThread], bool]:
    """Return whether a person has started a thread, or nobody is known to have."""
    from uwf_git.trust.people import People, identity_of

    people = People(instance.store.repository)
    person, identity = people.me() if whom == ME else people.named(whom)

    def is_by(thread: ListedThread) -> bool:
        author = thread.head.row.author if isinstance(thread.head, Head) else None
        if not author:
            return True
        by = identity_of(author)
        return people.is_among(person, identity, [name for name in (by.email, by.name) if name])

    return is_by


def _failed(instance: Instance, threads: Sequence[ListedThread]) -> list[ListedThread]:
    since = time.time() - _DAYS * 86_400
    failed = [
        thread
        for thread in threads
        if thread.state.group is Group.FAILED and not (thread.has_ended and _updated(thread) < since)
    ]
    return _own(instance, unretried(instance, failed))


def _updated(thread: ListedThread) -> int:
    return thread.head.updated if isinstance(thread.head, Head) else 0


def _queues() -> list[ThreadAction]:
    return [action for action in extensions.thread_actions() if action.queue]


def queued_threads(instance: Instance, threads: Sequence[ListedThread]) -> set[ThreadId]:
    """Return those of finished threads that wait for an extension's action."""
    newest = sorted(threads, key=_updated, reverse=True)
    return {thread.thread for action in _queues() for thread in _queued(instance, newest, action)}


def _queued(instance: Instance, threads: Sequence[ListedThread], action: ThreadAction) -> list[ListedThread]:
    done = [thread for thread in threads if thread.has_ended and thread.state.group is Group.DONE]
    done, queued = _own(instance, done[:_MOST]), set[str]()
    with suppress(UwfError):  # what can't be read is told by the command
        queued = extensions.load(action.queue)(instance, [thread.head for thread in done])
    return [thread for thread in done if thread.thread in queued]


def _value(
    item: Mapping[str, Any], group: str, commands: Callable[[Mapping[str, Any]], list[str]]
) -> dict[str, Any]:
    """Return a thread that asks nothing with the keys of those that do."""
    ways, line = commands(item), item["line"] or ""
    own = {
        "group": group,
        "thread": item["thread"],
        "kind": group,
        **{name: item[name] or "" for name in ("name", "workflow", "title")},
        "role": item["now"] or item["role"] or "",
        "question": line,
        "options": [],
        "reason": line,
        "since": item["updated"],
        "command": ways[0],
        "step": item["head"],
        "commands": ways,
    }
    return {**own, **{name: value for name, value in item.items() if name not in own}}


def _ways_on(value: Mapping[str, Any]) -> list[str]:
    if value["status"] == ThreadState.CORRUPT.word:
        return ["uwf doctor"]
    thread = value["thread"]
    return [f"uwf thread retry {thread}", f"uwf thread attempts {thread}", f"uwf thread show {thread}"]


def _does(action: ThreadAction) -> Callable[[Mapping[str, Any]], list[str]]:
    words = " ".join(("uwf", *action.argv))
    return lambda value: [f"{words} {value['thread']}", f"uwf thread show {value['thread']}"]
