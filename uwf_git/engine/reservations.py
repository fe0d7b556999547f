"""Calls in flight of branches: what each may cost is reserved before it starts, as `fan_out_budget` says.

A call holds `<git dir>/uwf/reservations/<branch>` by flock, so the kernel frees the reservation of a killed process.
It is released once the step, or the failed attempt, is stored.

A call may cost as much as the largest run of a branch so far; before one has ended, many times as much as the largest
of the thread itself; if that has none, all that is left, so that it runs alone. So only calls that are larger than all
before exceed a limit by more than one call.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import log, system
from uwf_git.config.resolve import asks_no_model, is_delegate
from uwf_git.engine.budget import COST, Budgets, FanOut
from uwf_git.engine.fan_out_budget import SHARED, InFlight, may_begin
from uwf_git.engine.thread_spending import runs_of_all
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import HUMAN, REHEARSE
from uwf_git.git.fsync import make_folders, share
from uwf_git.store.history import Head

if TYPE_CHECKING:
    from uwf_git.config.settings import Price
    from uwf_git.store.instance import Instance

_POLL = 0.1  # seconds between two looks at the calls in flight
_LOOK_AGAIN = 5.0  # seconds after which limits are read again: a person may have raised one
_MANY = 20
_DECIDING = ".deciding"
_FREE = frozenset((HUMAN, REHEARSE))


class _Level(NamedTuple):
    """A fork above a call, and the branch of it that the call is in."""

    fan_out: FanOut
    branch: ThreadId


class _Reservation(NamedTuple):
    """A call in flight: the branches that it is in, its own first, and what it may cost by limit."""

    branches: Sequence[str]
    amounts: Mapping[str, float]


@contextlib.contextmanager
def reserved(instance: Instance, head: Head, command: str) -> Iterator[None]:
    """Reserve for the block what a call of a branch may cost; wait for others if they may use up the limit. Does
    nothing for a thread that is no branch of one with limits. Raises Waiting if nothing is left."""
    if command in _FREE or not (levels := _levels(Budgets(instance), head)):
        yield
        return
    folder = instance.store.repository.private / "reservations"
    descriptor = None
    try:
        descriptor = _take(folder, instance, head, command, levels)
    except OSError as error:  # the step says what is wrong with the disk
        log.warning("W7QK4B1D", "cannot reserve what a call costs: {error}", error=repr(error))
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                (folder / head.thread).unlink(missing_ok=True)
            os.close(descriptor)


def _levels(budgets: Budgets, head: Head) -> list[_Level]:
    levels: list[_Level] = []
    for fan_out in budgets.fan_outs(head):
        levels += [_Level(fan_out, head.thread), *_levels(budgets, fan_out.parent)]
    return levels


def _take(folder: Path, instance: Instance, head: Head, command: str, levels: list[_Level]) -> int:
    make_folders(folder, 0o700, synced=False)
    need, is_told = _need(instance, levels, command), False
    own = _Reservation(list(dict.fromkeys(level.branch for level in levels)), need)
    while True:
        with _deciding(folder):
            others = _in_flight(
                folder, tidy=True
            )  # first, so that one that ends now counts twice and not never
            others.pop(head.thread, None)
            budgets = Budgets(instance)
            standing = budgets.standing(head)
            if standing is not None and standing.reached is not None:
                instance.runs.clear(head.thread)
                raise standing.waiting(head.thread)
            if all(_fits(level, need, others.values()) for level in _levels(budgets, head)):
                return _written(folder / head.thread, own)
        if not is_told:
            instance.warn(f"branch {head.thread} waits: the calls in flight may use up what is left")
            log.info("7F3RC5QX", "waits for {count} calls in flight", count=len(others))
            is_told = True
        again = time.monotonic() + _LOOK_AGAIN
        while time.monotonic() < again and _in_flight(folder).keys() >= others.keys():
            time.sleep(_POLL)
        need = _need(instance, _levels(Budgets(instance), head), command)
        own = own._replace(amounts=need)


def _fits(level: _Level, need: Mapping[str, float], others: Iterable[_Reservation]) -> bool:
    fan_out, branch = level
    for key in fan_out.standing.limits:
        in_flight = [
            InFlight(fan_out.unused_by(key, thread), other.amounts.get(key, 0))
            for other in others
            for thread in map(ThreadId, other.branches)
            if thread in fan_out.used
        ]
        spent, unused = fan_out.used[branch][key], fan_out.unused_by_others(key, branch)
        part = fan_out.share.get(key, 0)
        if not may_begin(fan_out.left(key), part, spent, unused, need[key], in_flight):
            return False
    return True


def _need(instance: Instance, levels: Sequence[_Level], command: str) -> dict[str, float]:
    """Return what a call may use of each limit; of SHARED nothing if its command asks no model."""
    if asks_no_model(command) and not is_delegate(command):
        return {**dict.fromkeys(SHARED, 0.0), "maxWallTime": 0.0, "maxSteps": 1}
    threads = dict.fromkeys(thread for level in levels for thread in level.fan_out.used)
    priced = instance.config.prices if any(COST in level.fan_out.standing.limits for level in levels) else {}
    of_branches = _largest(instance, [*instance.threads.heads([*threads]).values()], priced)
    before = _largest(instance, [level.fan_out.parent for level in levels], priced)
    need = {**dict.fromkeys(SHARED, math.inf), "maxWallTime": 0.0}
    need |= {key: amount * _MANY for key, amount in before.items() if key in SHARED}
    return {**need, **of_branches, "maxSteps": 1}


def _largest(instance: Instance, heads: Sequence[Head], priced: Mapping[str, Price]) -> dict[str, float]:
    """Return the largest use of each limit by a run that asked a model, {} without any."""
    needs: dict[str, float] = {}
    for _, runs in runs_of_all(instance, heads):
        for run in runs if isinstance(runs, list) else ():
            if run.spent.lines or run.spent.unmetered:
                for key, amount in run.spent.amounts(priced).items():
                    needs[key] = max(needs.get(key, 0), amount)
    return needs


@contextlib.contextmanager
def _deciding(folder: Path) -> Iterator[None]:
    descriptor = system.open_file(folder / _DECIDING, os.O_RDWR | os.O_CREAT | system.O_CLOEXEC, 0o600)
    try:
        share(folder / _DECIDING)
        system.lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def _written(path: Path, reservation: _Reservation) -> int:
    descriptor = system.open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | system.O_CLOEXEC, 0o600)
    try:
        share(path)
        system.lock(descriptor)
        os.write(descriptor, json.dumps(reservation).encode())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _parsed(data: bytes) -> _Reservation:
    """Raises ValueError for what is no reservation."""
    try:
        branches, amounts = json.loads(data)
    except (TypeError, RecursionError):
        raise ValueError("no reservation") from None
    if not isinstance(branches, list) or not all(isinstance(branch, str) for branch in branches):
        raise ValueError("no branches")
    if not isinstance(amounts, dict) or not all(
        type(amount) in (int, float) and amount >= 0 for amount in amounts.values()
    ):
        raise ValueError("no amounts")
    return _Reservation(branches, amounts)


def _in_flight(folder: Path, tidy: bool = False) -> dict[ThreadId, _Reservation]:
    """Return the calls in flight by their branches. With `tidy`, remove the files of processes that are gone."""
    reservations: dict[ThreadId, _Reservation] = {}
    for path in folder.iterdir():
        if path.name == _DECIDING:
            continue
        with contextlib.suppress(OSError, ValueError, TypeError):
            descriptor = system.open_file(path, os.O_RDWR | system.O_CLOEXEC)
            try:
                system.lock(descriptor)
            except BlockingIOError:
                reservations[ThreadId(path.name)] = _parsed(path.read_bytes() or b"[[], {}]")
            else:
                if tidy:
                    path.unlink()
            finally:
                os.close(descriptor)
    return reservations
