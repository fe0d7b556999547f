"""The commits that threads have pushed, for `uwf clean` and `uwf blame`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress

from uwf_git.ext.landing import EFFECTS
from uwf_git.ext.landing.destination import branch_at
from uwf_git.ext.landing.effect_records import Effects, RecordedEffect
from uwf_git.ext.landing.merge_notes import merge_commit
from uwf_git.plugin import Hash, Instance, StoreDamaged, ThreadId, words

_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def pushed(instance: Instance, thread: ThreadId) -> dict[tuple[str, str], set[str]]:
    """Return the commits that a thread has pushed or begun to push to branches that it, or a thread with its start,
    requests to merge, by the remote's URL and the branch. Raises StoreDamaged."""
    recorded = Effects(instance.store)
    effects = [item.effect for item in recorded.of_thread(thread)]
    if not effects:
        return {}
    kin = [item.effect for item in recorded.of_kin(thread, effects[0].start)]
    requested = {effect.name for effect in (*effects, *kin) if effect.kind == words.PULL_REQUEST}
    commits: dict[tuple[str, str], set[str]] = defaultdict(set)
    for effect in effects:
        url, _, branch = effect.target.partition("#")
        if effect.kind == words.PUSH and branch in requested:
            commits[url, branch].add(effect.name)
    return commits


def landed(instance: Instance, threads: Collection[ThreadId]) -> dict[ThreadId, set[str]]:
    """Return the commits that threads have pushed or begun to push, and those that their requests were merged as, of
    older records the first 12 digits: each is of the thread here that was the last to push to the request's branch.
    Damaged records are left to `uwf verify`."""
    recorded = Effects(instance.store)
    refs = instance.store.repository.refs(EFFECTS.prefix)
    effects: dict[ThreadId, list[RecordedEffect]] = {}
    for thread in threads:
        if EFFECTS.prefix + thread in refs:
            with suppress(StoreDamaged):
                effects[thread] = recorded.of_thread(thread)
    commits: dict[ThreadId, set[str]] = defaultdict(set)
    last: dict[tuple[Hash, str], tuple[int, ThreadId]] = {}
    for thread, item in _of_kind(effects, words.PUSH):
        if _COMMIT.fullmatch(item.effect.name):
            commits[thread].add(item.effect.name)
        if item.is_settled:
            place = item.effect.start, branch_at(item.effect.target)
            last[place] = max(last.get(place, (0, thread)), (item.effect.at, thread))
    for thread, item in _of_kind(effects, words.PULL_REQUEST):
        if item.settlement is not None and item.outcome == words.MERGED:
            _, pusher = last.get((item.effect.start, item.effect.name), (0, thread))
            if commit := merge_commit(item.settlement.reason):
                commits[pusher].add(commit)
    return commits


def _of_kind(
    effects: dict[ThreadId, list[RecordedEffect]], kind: str
) -> Iterator[tuple[ThreadId, RecordedEffect]]:
    return ((thread, item) for thread, items in effects.items() for item in items if item.effect.kind == kind)
