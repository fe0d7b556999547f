"""Packing a store and folding old archives."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from typing import Any

from uwf_git.base import extensions
from uwf_git.engine.pause import forget_lifted
from uwf_git.store import maintenance
from uwf_git.store.archives import fold_before
from uwf_git.store.instance import Instance
from uwf_git.store.private import PERMISSIONS, REMARKS
from uwf_git.store.private_files import forget_threads
from uwf_git.sync.removal import KEPT_SECONDS, expiring
from uwf_git.workspaces.notes import Notes


def collect(
    instance: Instance, before: int | None = None, prune: bool = False, restorable: bool = False
) -> dict[str, Any]:
    """Pack a store, fold threads that ended `before` a Unix time, and delete leftovers of removed threads, and
    worktrees of those and of ended ones. Return what was folded and the sizes as JSON. `prune` deletes unreachable
    objects too, and removed threads unless they stay `restorable`. Raises RolledBack if the store would lose a head
    that is known, and that no ref has."""
    store = instance.store
    instance.witness.raise_if_any_lost()
    store.sync()
    was = maintenance.counts(store.repository)
    with instance.locks.deleting() if prune else nullcontext():
        folded = {} if before is None else fold_before(store.repository, before)
        all_removed = prune and not restorable
        with expiring(instance, math.inf if all_removed else time.time() - KEPT_SECONDS):
            maintenance.collect(store, shared=instance.location.here, prune=prune)
        if prune:
            store.reindex()
    store.sync()
    threads = instance.threads
    known = threads.ids().__contains__
    instance.sessions.forget(known)
    for folder in (REMARKS, PERMISSIONS):
        forget_threads(store.repository.private / folder, known)
    instance.runs.forget(
        lambda thread: (
            instance.locks.is_held(thread) or (threads.exists(thread) and not threads.has_ended(thread))
        )
    )
    if Notes(store.repository.private).any():
        from uwf_git.workspaces.removal import tidy

        tidy(instance)
    extensions.collected(instance)
    forget_lifted(instance)
    now = maintenance.counts(store.repository)
    return {"folded": folded, "before": was._asdict(), "after": now._asdict()}
