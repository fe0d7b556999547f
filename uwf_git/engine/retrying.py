"""Trying a failed step again, as its role says, and the agent that stands in for a throttled one.

Tries are counted by the failed attempts on the thread's head, so a count survives the process.

Until when an agent is throttled is noted in `<storage root>/throttled/<digest of its command>`. Branches of all threads
of the machine wait for that time instead of asking the provider.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import AgentFailed, Throttled, UwfError
from uwf_git.base.text import duration
from uwf_git.config.resolve import known_agent, may_stand_in
from uwf_git.format.kinds import ENDED_BY_USER
from uwf_git.format.words import THROTTLED
from uwf_git.store.private_files import read_private, write_private

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.format.kinds import Role
    from uwf_git.store.attempts import FailedAttempt
    from uwf_git.store.history import History
    from uwf_git.store.instance import Instance

PATIENCE = 300.0
"""Seconds that a step waits at most between two tries, unless it is told to wait for the provider."""
FOREVER = float("inf")
_LONGEST_BACKOFF = 3600.0
_UNTOLD_PAUSE = 10.0  # seconds that branches spare a provider that doesn't say when
_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 1800.0  # seconds between two tries at a provider that doesn't say when


def pause_before_retry(instance: Instance, thread: ThreadId, patience: float = PATIENCE) -> float | None:
    """Return the seconds until a failed step is tried again, None if it isn't, or not within `patience`. With
    FOREVER, a throttled step is tried again whatever its role says."""
    head = instance.threads.head(thread)
    if head.archive is not None:
        return None
    history = instance.threads.history(head)
    attempts = tries_at(instance, history)
    role = history.workflow.roles.get(attempts[-1].role) if attempts else None
    if role is None:
        return None
    last = attempts[-1]
    if last.cause == THROTTLED and _stands_in_next(attempts) and stand_in(instance, role) is not None:
        return 0.0
    wait: float | None = None
    retry, resets = role.retry, _until_reset(last)
    if retry is not None and last.cause in retry.on and len(attempts) <= retry.times:
        backoff = min(retry.backoff * 2.0 ** (len(attempts) - 1), _LONGEST_BACKOFF)
        is_promised = last.cause == THROTTLED and resets is not None
        wait = max(0.0 if is_promised else backoff, *(_until_reset(attempt) or 0.0 for attempt in attempts))
    elif patience == FOREVER and last.cause == THROTTLED:
        wait = (
            resets if resets is not None else min(_FIRST_PAUSE * 2.0 ** (len(attempts) - 1), _LONGEST_PAUSE)
        )
    return wait if wait is not None and wait <= patience else None


def tries_at(instance: Instance, history: History) -> list[FailedAttempt]:
    """Return the failed attempts at the next step, oldest first, without those that a user ended."""
    places = history.places
    attempts = instance.attempts.all(history.thread)
    return [attempt for attempt in attempts if attempt.prev in places and attempt.error not in ENDED_BY_USER]


def stand_in_now(instance: Instance, history: History, role: Role) -> str:
    """Return the agent that plays a role in place of its own, which is throttled; "" for its own."""
    if not role.fallback:
        return ""
    attempts = [attempt for attempt in tries_at(instance, history) if attempt.role == role.name]
    if not attempts or attempts[-1].cause != THROTTLED or not _stands_in_next(attempts):
        return ""
    return stand_in(instance, role) or ""


def stand_in(instance: Instance, role: Role) -> str | None:
    """Return a role's fallback, None if it has none that may play it here."""
    agent = known_agent(instance.config, role.fallback) if role.fallback else None
    return role.fallback if agent is not None and may_stand_in(agent) else None


def _stands_in_next(attempts: Sequence[FailedAttempt]) -> bool:
    """Return whether the next try is the stand-in's: the last was throttled and not the stand-in's own."""
    stood_in = False
    for attempt in attempts:
        stood_in = attempt.cause == THROTTLED and not stood_in
    return stood_in


def _until_reset(attempt: FailedAttempt) -> float | None:
    return None if attempt.resets_at is None else max(0.0, attempt.resets_at - time.time())


def note_throttled(instance: Instance, command: Sequence[str], throttled: Throttled) -> None:
    """Note that an agent's command is throttled. Best effort."""
    until = time.time() + (_UNTOLD_PAUSE if throttled.after is None else throttled.after)
    if until > _throttled_until(instance, command):
        with contextlib.suppress(OSError, UwfError):
            write_private(_note(instance, command), f"{until:.0f}".encode(), "cannot note a throttled agent")


def spare(instance: Instance, thread: ThreadId, command: Sequence[str], name: str, role: Role | None) -> None:
    """Wait until an agent that branches ask is no longer throttled. Raises AgentFailed, throttled, if that is more than
    PATIENCE away or another agent stands in."""
    wait = _throttled_until(instance, command) - time.time()
    if wait <= 0:
        return
    error = AgentFailed(f"{name} is throttled, as another step was told", f"later: uwf thread run {thread}")
    error.throttled = Throttled(name, wait)
    if wait > PATIENCE or (role is not None and stand_in(instance, role) is not None):
        raise error
    instance.warn(told(thread, wait, error.message))
    pause(wait)


def _throttled_until(instance: Instance, command: Sequence[str]) -> float:
    try:
        return float(read_private(_note(instance, command)))
    except (OSError, ValueError):
        return 0.0


def _note(instance: Instance, command: Sequence[str]) -> Path:
    digest = hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()
    return instance.location.root / "throttled" / digest[:32]


def pause(seconds: float) -> None:
    """Wait between two tries; an interrupt ends it."""
    time.sleep(seconds)


def told(thread: ThreadId, wait: float, why: str) -> str:
    """Return a line on the next try."""
    at = time.strftime("%H:%M", time.localtime(time.time() + wait))
    when = f"in {duration(round(wait) or 1)}" if wait < 600 else f"at {at}"
    return f"thread {thread}: {why}; the step is tried again {when}"
