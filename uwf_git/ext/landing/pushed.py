"""The branches of threads' requests, for `uwf clean`."""

from __future__ import annotations

from collections import defaultdict

from uwf_git.ext.landing.effect_records import Effects
from uwf_git.plugin import Instance, ThreadId, words


def pushed(instance: Instance, thread: ThreadId) -> dict[tuple[str, str], set[str]]:
    """Return the commits that a thread has pushed or begun to push to branches that it requests to merge, by the
    remote's URL and the branch. Raises StoreDamaged."""
    effects = [item.effect for item in Effects(instance.store).of_thread(thread)]
    requested = {effect.name for effect in effects if effect.kind == words.PULL_REQUEST}
    commits: dict[tuple[str, str], set[str]] = defaultdict(set)
    for effect in effects:
        url, _, branch = effect.target.partition("#")
        if effect.kind == words.PUSH and branch in requested:
            commits[url, branch].add(effect.name)
    return commits
