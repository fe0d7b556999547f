"""What a branch that fails does to its fan-out: `onFailure` of an edge, a row a policy."""

from __future__ import annotations

from typing import NamedTuple


class FailurePolicy(NamedTuple):
    """A policy, by its `word` in YAML and nodes. `ends_branch`: a branch ends as failed if its step fails and isn't
    tried again; else it waits for another try. `fails_thread`: the thread fails with the first branch that failed or
    was killed. `allows_failures`: the end of the thread doesn't speak of branches that failed."""

    word: str
    ends_branch: bool = True
    fails_thread: bool = False
    allows_failures: bool = False


WAIT = FailurePolicy("wait", ends_branch=False)
DROP = FailurePolicy("drop", allows_failures=True)
FAIL_ALL = FailurePolicy("fail", fails_thread=True)

FAILURE_POLICIES = {WAIT.word: WAIT, DROP.word: DROP, FAIL_ALL.word: FAIL_ALL}
