"""The commits that threads have pushed, for `uwf clean` and `uwf blame`."""

from __future__ import annotations

from collections import defaultdict

from uwf_git.ext.landing.effect_records import Effects
from uwf_git.plugin import Instance, ThreadId, words


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


def landed(instance: Instance, thread: ThreadId) -> set[str]:
    """Return the commits that a thread has pushed or begun to push. Raises StoreDamaged."""
    effects = Effects(instance.store).of_thread(thread)
    return {item.effect.name for item in effects if item.effect.kind == words.PUSH}
