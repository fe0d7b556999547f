"""`uwf expire`."""

from __future__ import annotations

from typing import Any

import click

from uwf_git.ext.retention import expiry, record
from uwf_git.ext.retention.settings import settings_of
from uwf_git.plugin import (
    Busy,
    Failures,
    Invocation,
    Table,
    command,
    counted,
    delete_threads_there,
    exchange_for,
    iso,
    moment,
    options,
)


@command(
    "uwf expire                        list what the rules of keep would remove",
    "uwf expire --yes                  remove it for good",
    "uwf expire --remote origin --yes  there too",
    "uwf expire --removed              the record of what was removed",
)
@options.remote(help="Also remove them from this remote.", metavar="R")
@click.option("--on", "day", metavar="DATE", help="List what would be removed on that day.")
@click.option("--removed", is_flag=True, help="List what rules have removed here.")
@click.option("--yes", is_flag=True, help="Remove the threads; there is no way back.")
def expire(invocation: Invocation, remote: str | None, day: str | None, removed: bool, yes: bool) -> None:
    """Remove ended threads that `keep` in config.yaml keeps no longer, and delete their objects.

    A record of each stays: id, head, workflow, times, rule, and who removed it when. Without --yes they are listed.
    """
    instance = invocation.instance
    if removed:
        invocation.emit(list(map(_of_record, record.records(instance))), _REMOVED)
        return
    there = instance.remotes.get(remote) if remote is not None else None
    if not settings_of(instance.config).rules:
        invocation.note("config.yaml has no rule that removes threads: uwf config set keep 90d")
    items = expiry.expired(instance, moment(day, "--on:"))
    doomed = [item for item in items if not item.kept]
    if not yes or day is not None:
        invocation.emit([_as_json(item, False) for item in items], _EXPIRED)
        if doomed:
            invocation.note(
                "nothing was removed: --yes removes them for good" if not yes else "--on only lists"
            )
        return
    instance.require_person("removes threads")
    failures = Failures(invocation)
    if there is not None:
        earlier = [item.thread for item in record.records(instance)]
        delete_threads_there(
            exchange_for(instance, there), [*(item.head.thread for item in doomed), *earlier]
        )
    gone = []
    for item, error in expiry.remove(instance, doomed):
        if error is None:
            gone.append(item.head.thread)
        else:
            failures.add(error)
    commit = record.note(instance)
    stays = expiry.in_shared_folds(instance, gone)
    try:
        if record.records(instance):
            expiry.collect(instance)
    except Busy as error:  # the next call deletes them
        failures.add(error)
    invocation.emit(
        [_as_json(item, item.head.thread in gone, item.head.thread in stays) for item in items], _EXPIRED
    )
    if stays:
        objects = f"the objects of {counted(len(stays), 'thread')} stay in folds that a remote has"
        invocation.note(f"{objects}: --remote R removes them there and here")
    if commit is not None:
        invocation.note(f"recorded in {commit}: uwf expire --removed")
    failures.end()


def _as_json(item: expiry.Expired, is_removed: bool, stays: bool = False) -> dict[str, Any]:
    head = item.head
    assert head.archive is not None
    return {
        "thread": head.thread,
        "workflow": head.row.name,
        "status": head.archive.status,
        "ended": iso(head.archive.time),
        "expired": iso(int(item.since)),
        "rule": item.rule,
        "kept": item.kept or None,
        "removed": is_removed,
        "stays": stays,
    }


def _of_record(item: record.RemovalRecord) -> dict[str, Any]:
    times = {name: iso(item.value[name]) if name in item.value else None for name in ("began", "ended", "at")}
    texts = {name: item.value.get(name) for name in ("workflow", "status", "steps", "head", "rule", "by")}
    return {"thread": item.thread, **texts, **times, "record": str(item.commit) if item.commit else None}


def _name(item: Any) -> str:
    return str(item["by"]).partition(" <")[0]


_EXPIRED = Table(
    "thread",
    "workflow",
    "status",
    "ended",
    "rule",
    "kept",
    empty="no thread to remove here",
    optional=("kept",),
)
_REMOVED = Table(
    "thread",
    "workflow",
    "ended",
    "rule",
    ("removed", "at"),
    ("by", _name),
    empty="no rule removed a thread here",
)
