"""Which threads a rule removes, and removing them for good."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.retention.settings import settings_of
from uwf_git.plugin import Head, UwfError, collect_store, expire_thread

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, Oid, ThreadId


class Expired(NamedTuple):
    """An ended thread whose time is over by a rule, since a Unix time. `kept` is why it stays all the same, ""."""

    head: Head
    rule: str
    since: float
    kept: str = ""


def expired(instance: Instance, at: float | None = None) -> list[Expired]:
    """Return the ended threads of all projects whose time is over at a Unix time, oldest first. Branches go with the
    thread that they are of."""
    settings = settings_of(instance.config)
    at = time.time() if at is None else at
    items = []
    begun: dict[Oid, bool] = {}  # by forks, whether a thread has one
    for head in instance.threads.all(archived=True) if settings.rules else ():
        if not isinstance(head, Head) or head.archive is None:
            continue
        rule = settings.rule_for(head)
        if rule is None or rule.seconds is None or head.archive.time + rule.seconds > at:
            continue
        if (fork := instance.threads.fork_of(head)) is not None:
            if fork[0] not in begun:
                begun[fork[0]] = instance.threads.oldest_with(fork[0]) is not None
            if begun[fork[0]]:
                continue
        kept = settings.threads.get(head.thread, "")
        items.append(Expired(head, rule.text, head.archive.time + rule.seconds, kept))
    return sorted(items, key=lambda item: item.since)


def remove(instance: Instance, items: list[Expired]) -> Iterator[tuple[Expired, UwfError | None]]:
    """Remove threads, and yield each, with the error for which it stays."""
    for item in items:
        try:
            expire_thread(instance, item.head.thread, item.rule)
            yield item, None
        except UwfError as error:
            yield item, error


def collect(instance: Instance) -> None:
    """Delete the objects of removed threads. Raises Busy while a thread runs."""
    collect_store(instance, prune=True, restorable=True)


def in_shared_folds(instance: Instance, threads: list[ThreadId]) -> list[ThreadId]:
    """Return the removed threads whose objects stay, as a remote's fold that this store shares has them."""
    folded = instance.store.index.folded_threads()
    return [thread for thread in threads if thread in folded]
