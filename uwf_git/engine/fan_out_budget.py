"""What a fan-out may spend: each branch's share of what its thread has left."""

from __future__ import annotations

from collections.abc import Mapping

from uwf_git.engine.budget import METERED, Budgets
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


def share_of(instance: Instance, head: Head, branches: int) -> Mapping[str, float]:
    """Return the tokens and the cost that each of `branches` may use: equal parts of what the limits of the thread and
    its workflow leave. Empty without such limits."""
    if not branches:
        return {}
    standing = Budgets(instance).standing(head)
    if standing is None:
        return {}
    found: dict[str, float] = {}
    for key in METERED:
        if (limit := standing.limits.get(key)) is not None:
            left = max(0.0, limit.value - standing.used[key])
            found[key] = max(1, int(left / branches)) if key == "maxTokens" else max(left / branches, 1e-6)
    return found
