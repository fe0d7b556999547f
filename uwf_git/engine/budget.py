"""Budgets: limits on a thread's steps, tokens, cost and agents' time, at which it waits for a person.

The tightest limit of thread, workflow and configuration holds; for a branch also those of the threads that wait for it,
as `fan_out_budget` says. A person may raise it: the raise is in `<git
dir>/uwf/budgets/<ULID>.json` until the next step's detail records it. Then it overrides the limits of the
thread and its workflow on every machine, and those of the configuration on the machine of the raise.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Usage, UwfError, Waiting
from uwf_git.base.text import duration
from uwf_git.engine.fan_out_budget import SHARED, allowance
from uwf_git.engine.next_turn import outlook
from uwf_git.format.amounts import LIMITS, parse_limit
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.types import END, LIMITED
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head
from uwf_git.store.private_files import read_private, write_private
from uwf_git.workflow.turn import Outlook

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.config.settings import Config
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.engine.spending import Totals
    from uwf_git.store.instance import Instance

OPTIONS = {
    "maxSteps": "--max-steps",
    "maxTokens": "--max-tokens",
    "maxCost": "--max-cost",
    "maxWallTime": "--max-time",
}
"""How the command names each limit."""

COST = "maxCost"
"""The limit in US dollars."""
METERED = SHARED
"""The limits that count only what agents tell."""

UNTOLD_HINT = (
    "name a model that models.<alias>.price in config.yaml has a price for, or set budget.unpriced to warn"
)

CONFIG = "config.yaml"
"""The names of sources of limits begin so where the limits are the user's own."""

FORK = "fork"
"""The source of a branch's limit that follows from the thread that waits for it, where alone it can be raised."""

_ONE_BY_ONE = 4  # threads that are looked at without reading of all nodes which have limits

_RAISED = "raised"
"""The source of a limit that a human raised."""

_RECORDED = "recorded"
"""In the file of what was raised: those limits that a step has recorded."""

_WANTED = {
    "maxSteps": "a number of steps, such as 50",
    "maxTokens": "a number of tokens, such as 2000000",
    "maxCost": "an amount of US dollars, such as 2.50",
    "maxWallTime": "seconds or a duration, such as 90s or 2h",
}

# Limits


class Limit(NamedTuple):
    """Tokens and steps are counts, cost is in US dollars, time in seconds."""

    key: str
    value: float
    source: str


def limits(
    sources: Iterable[tuple[str, Mapping[str, float]]],
    raised: Mapping[str, float],
    here: Mapping[str, float] | None = None,
) -> dict[str, Limit]:
    """Return the tightest limit of each key, in the order of LIMITS. `raised` overrides existing limits and
    adds none. Only `here`, the raises made on this machine, override the user's configuration; nothing those of a
    FORK."""
    limits: dict[str, Limit] = {}
    for source, amounts in sources:
        over = (here or {}) if is_configured(source) else {} if source == FORK else raised
        for key, value in amounts.items():
            limit = Limit(key, over[key], _RAISED) if key in over else Limit(key, value, source)
            if key in LIMITS and (key not in limits or limit.value < limits[key].value):
                limits[key] = limit
    return {key: limits[key] for key in LIMITS if key in limits}


def is_configured(source: str) -> bool:
    """Return whether a source is the configuration: the user's file, or a project's."""
    return CONFIG in source


def reached_limit(held: Mapping[str, Limit], used: Mapping[str, float]) -> Limit | None:
    """Return the first limit that is reached."""
    return next((limit for limit in held.values() if used[limit.key] >= limit.value), None)


# The state of a budget


class BudgetState(NamedTuple):
    """`reached` is the first limit reached, `unpriced` the number of tokens without a price, `unmetered` the
    number of runs that reported neither tokens nor cost. `missing_price` says why an unenforceable limit
    counts as reached; "" if it is used up. `above` are the threads that limits of a FORK follow from."""

    limits: Mapping[str, Limit]
    used: Mapping[str, float]
    reached: Limit | None
    unpriced: int = 0
    missing_price: str = ""
    unmetered: int = 0
    above: Mapping[str, tuple[ThreadId, BudgetState]] = {}

    @classmethod
    def of(cls, source: str, amounts: Mapping[str, float], used: Mapping[str, float]) -> BudgetState:
        """Return the state of limits of one source."""
        held = limits([(source, amounts)], {})
        return cls(held, used, reached_limit(held, used))

    def known(self, key: str) -> float | None:
        """Return the amount used of a limit, None if unknown."""
        used = self.used[key]
        unknown = (key in METERED and self.unmetered) or (key == COST and self.unpriced)
        return None if unknown and not used else used

    def share(self, key: str) -> str:
        """Return the used part of a limit as text."""
        return share(key, self.used[key], self.limits[key].value, self.unpriced, self.unmetered)

    @property
    def reached_share(self) -> str:
        """The used part of the limit reached, "" for none."""
        limit = self.reached
        return "" if limit is None else share(limit.key, self.used[limit.key], limit.value)

    @property
    def used_up(self) -> str:
        """The limit reached and its used part, "" for none."""
        return "" if self.reached is None else f"{self.reached.key} is used up, {self.reached_share}"

    def strict(self) -> BudgetState:
        """Return it with the cost reached if it is limited and some tokens have no known price."""
        if self.reached is not None or not self.unpriced or COST not in self.limits:
            return self
        missing_price = f"{self.unpriced:,} tokens have no known price"
        return self._replace(reached=self.limits[COST], missing_price=missing_price)

    def waiting(self, thread: ThreadId) -> Waiting:
        """Return the error of a thread whose limit is reached."""
        limit = self.reached
        assert limit is not None
        message = f"thread {thread} waits: {self.reason}"
        if self.missing_price:
            return Waiting(message, UNTOLD_HINT)
        where, bound = thread, self
        while (above := bound.above.get(limit.key)) is not None:
            where, bound = above
        held = bound.limits[limit.key]
        return Waiting(message, f"uwf thread budget {where} {more(held, bound.used[held.key])}")

    @property
    def reason(self) -> str:
        limit = self.reached
        if limit is None:
            return ""
        if self.missing_price:
            return f"cannot enforce {limit.key}: {self.missing_price}"
        if (above := self.above.get(limit.key)) is not None:
            thread, standing = above
            all_of_it = standing.limits[limit.key]
            if standing.used[limit.key] < all_of_it.value:
                return f"its share of the {limit.key} of thread {thread} is used up, {self.reached_share}"
            used = share(limit.key, standing.used[limit.key], all_of_it.value)
            return f"{limit.key} of thread {thread} is used up, {used}"
        if limit.source == _RAISED:
            source = "raised before"
        elif is_configured(limit.source):
            source = f"set by {limit.source}"
        else:
            source = f"set by its {limit.source}"
        return f"{self.used_up} ({source})"


class FanOut(NamedTuple):
    """The fork that `parent` waits at: its budget, and the use of each limit by the branches that are here. `unused`
    are the sums of the unused shares of the branches that have not ended, whether or not they are here."""

    parent: Head
    standing: BudgetState
    used: Mapping[ThreadId, Mapping[str, float]]
    ended: frozenset[ThreadId]
    share: Mapping[str, float]
    unused: Mapping[str, float]

    def left(self, key: str) -> float:
        return self.standing.limits[key].value - self.standing.used[key]

    def unused_by(self, key: str, branch: ThreadId) -> float:
        """Return the unused part of a branch's share; 0 if it has ended."""
        return 0.0 if branch in self.ended else max(0.0, self.share.get(key, 0) - self.used[branch][key])

    def unused_by_others(self, key: str, branch: ThreadId) -> float:
        return self.unused.get(key, 0) - self.unused_by(key, branch)

    def allowance(self, key: str, branch: ThreadId) -> float:
        """Return the amount up to which a branch may spend."""
        spent, unused = self.used[branch][key], self.unused_by_others(key, branch)
        return allowance(self.left(key), self.share.get(key, 0), spent, unused)


class Budgets:
    """The budgets of a store's threads. Use one per look: shared data is read once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._of_workflows: dict[Hash, Mapping[str, float]] = {}
        self._forks: dict[ThreadId, Oid | None] = {}
        self._waiting: dict[Oid, list[Head]] = {}
        self._fan_outs: dict[Oid, list[FanOut]] = {}
        self._asked = 0
        self._configs: dict[str | None, Config | None] = {}

    def _configured(self, head: Head) -> list[tuple[str, Mapping[str, float]]]:
        row = head.row
        if row.project not in self._configs:
            self._configs[row.project] = self._instance.config_with(b"budgets", row)
        config = self._configs[row.project]
        return config.budgets_by_source(row.name or "") if config is not None else []

    @cached_property
    def _limited(self) -> frozenset[Hash]:
        return frozenset(self._instance.store.index.hashes_with(LIMITED))

    def _is_limited(self, node: Hash | None) -> bool:
        if self._asked > _ONE_BY_ONE:  # for a list of threads one look at all nodes is quicker
            return node in self._limited
        return self._instance.store.index.has_trait(node, LIMITED)

    def may_limit(self, head: Head) -> bool:
        """Return whether anything may limit a thread: quicker than `sources` in a list, where nearly nothing does."""
        self._asked += 1
        row = head.row
        return bool(self._configured(head)) or self._is_limited(row.workflow) or self._is_limited(row.start)

    def sources(self, head: Head) -> list[tuple[str, Mapping[str, float]]]:
        row = head.row
        sources = self._configured(head)
        self._asked += 1
        if row.workflow is not None and self._is_limited(row.workflow):
            if row.workflow not in self._of_workflows:
                budget = self._instance.registry.workflow(row.workflow).budget or {}
                self._of_workflows[row.workflow] = budget
            sources.append(("workflow", self._of_workflows[row.workflow]))
        if self._is_limited(row.start):
            sources += self._of_start(head)
        return [(source, amounts) for source, amounts in sources if amounts]

    def _of_start(self, head: Head) -> Iterator[tuple[str, Mapping[str, float]]]:
        """Yield the limits of a thread's StartNode: for a branch that a thread waits for, those that follow from it."""
        fan_outs = self.fan_outs(head)
        for each in fan_outs:
            yield FORK, {key: each.allowance(key, head.thread) for key in each.standing.limits}
        # The fork of a branch's thread is none of the branches, and has their share.
        if not fan_outs and (self._fan_outs_of(head) or not self._waiting_for(head)):
            yield "thread", self._own(head)

    def _own(self, head: Head) -> Mapping[str, float]:
        assert head.row.start is not None
        return self._instance.store.start(head.row.start).budget or {}

    def fan_outs(self, head: Head) -> list[FanOut]:
        """Return the forks that wait for a branch here and are of a thread with a budget: one, or several if that
        thread was forked; none for other threads."""
        return [out for out in self._fan_outs_of(head) if head.thread in out.used]

    def _fan_outs_of(self, head: Head) -> list[FanOut]:
        fork = self._fork_of(head)
        if fork is None:
            return []
        if fork not in self._fan_outs:
            self._fan_outs[fork] = []
            for parent in self._waiting_for(head):
                if (standing := self.standing(parent)) is not None:
                    self._fan_outs[fork].append(self._fan_out(parent, standing, self._own(head)))
        return self._fan_outs[fork]

    def _waiting_for(self, head: Head) -> list[Head]:
        fork = self._fork_of(head)
        if fork is None:
            return []
        if fork not in self._waiting:
            from uwf_git.engine.forks import waiting_at

            threads = self._instance.threads
            self._waiting[fork] = [threads.head(thread) for thread in waiting_at(self._instance, fork)]
        return self._waiting[fork]

    def _fork_of(self, head: Head) -> Oid | None:
        if head.thread not in self._forks:
            fork = self._instance.threads.fork_of(head)
            self._forks[head.thread] = None if fork is None else fork[0]
        return self._forks[head.thread]

    def _fan_out(self, parent: Head, standing: BudgetState, share: Mapping[str, float]) -> FanOut:
        from uwf_git.engine.forks import begun_at
        from uwf_git.engine.thread_spending import spent_on_branches

        branches = spent_on_branches(self._instance, parent)
        priced = self._instance.config.prices if COST in standing.limits else {}
        used = {thread: spent.amounts(priced) for thread, (_, spent) in branches.items()}
        ended = frozenset(thread for thread, (head, _) in branches.items() if head.archive is not None)
        absent = len(begun_at(self._instance, parent.row)) - len(used)
        budget = FanOut(parent, standing, used, ended, share, {})
        unused = {
            key: absent * part + sum(budget.unused_by(key, branch) for branch in used)
            for key, part in share.items()
        }
        return budget._replace(unused=unused)

    def left(self, head: Head) -> dict[str, float]:
        """Return what the limits of a thread leave."""
        standing = self.standing(head)
        if standing is None:
            return {}
        return {key: limit.value - standing.used[key] for key, limit in standing.limits.items()}

    def standing(self, head: Head, besides: Totals | None = None) -> BudgetState | None:
        """Return a thread's state, None without a budget. `besides` is spending of a step in progress."""
        sources = self.sources(head)
        if not sources:
            return None
        from uwf_git.engine.spending import together
        from uwf_git.engine.thread_spending import account

        known = account(self._instance, head)
        fresh, here = raised_here(self._instance, head.thread)
        raised = {key: value for key, (value, _) in known.raised.items()}
        held = limits(sources, {**raised, **fresh}, {**here, **fresh})
        spent = known.spent if besides is None else together((known.spent, besides))
        priced = self._instance.config.prices if COST in held else {}
        used = spent.amounts(priced)
        above = self._above(head, held)
        standing = BudgetState(held, used, reached_limit(held, used), unmetered=spent.unmetered, above=above)
        if COST not in held:
            return standing
        standing = standing._replace(unpriced=spent.money(priced).unpriced)
        return standing.strict() if self._instance.config_of(head.row).stops_unpriced else standing

    def _above(self, head: Head, held: Mapping[str, Limit]) -> dict[str, tuple[ThreadId, BudgetState]]:
        keys = [key for key, limit in held.items() if limit.source == FORK]
        if not keys:
            return {}
        tightest = {
            key: min(
                (out for out in self.fan_outs(head) if key in out.standing.limits),
                key=lambda fan_out: fan_out.allowance(key, head.thread),
            )
            for key in keys
        }
        return {key: (out.parent.thread, out.standing) for key, out in tightest.items()}


def raise_if_used_up(instance: Instance, head: Head, besides: Totals | None = None) -> None:
    """Raise Waiting if a thread's budget allows no further step. `besides` as for `Budgets.standing`."""
    standing = Budgets(instance).standing(head, besides)
    if standing is not None and standing.reached is not None:
        raise standing.waiting(head.thread)


# Limits raised on this machine


def pending(instance: Instance, thread: ThreadId) -> dict[str, float]:
    """Return the limits raised on this machine that no step has recorded yet."""
    return raised_here(instance, thread)[0]


def raised_here(instance: Instance, thread: ThreadId) -> tuple[dict[str, float], dict[str, float]]:
    """Return the limits raised on this machine: unrecorded ones, and those that a step has recorded."""
    try:
        value = json.loads(read_private(_file(instance, thread)))
    except (OSError, ValueError, RecursionError):
        return {}, {}
    return _amounts(value), _amounts(value.get(_RECORDED) if isinstance(value, dict) else None)


def raise_limits(instance: Instance, thread: ThreadId, given: Mapping[str, float]) -> None:
    """Raise a thread's limits on this machine, for the next step's detail."""
    fresh, recorded = raised_here(instance, thread)
    _write(instance, thread, {**fresh, **given}, recorded)


def settle(instance: Instance, thread: ThreadId, recorded: Mapping[str, float] | None) -> None:
    """Mark raised limits as recorded by a step. Later raises stay pending."""
    if not recorded:
        return
    fresh, before = raised_here(instance, thread)
    rest = {key: value for key, value in fresh.items() if recorded.get(key) != value}
    settled = {key: value for key, value in fresh.items() if key not in rest}
    _write(instance, thread, rest, {**before, **settled})


def _write(
    instance: Instance, thread: ThreadId, fresh: Mapping[str, float], recorded: Mapping[str, float]
) -> None:
    path = _file(instance, thread)
    value = {**fresh, _RECORDED: dict(recorded)} if recorded else dict(fresh)
    failure = f"cannot remember the budget of {thread}"
    write_private(path, json.dumps(value).encode("ascii"), failure, "check free space")


def forget(instance: Instance, thread: ThreadId) -> None:
    with contextlib.suppress(OSError):
        _file(instance, thread).unlink(missing_ok=True)


def _file(instance: Instance, thread: ThreadId) -> Path:
    return instance.store.repository.private / "budgets" / f"{thread}.json"


def _amounts(value: Any) -> dict[str, float]:
    amounts = value if isinstance(value, dict) else {}
    numbers = {key: item for key, item in amounts.items() if type(item) in (int, float)}
    return {key: item for key, item in numbers.items() if key in LIMITS and item > 0}


# Words


def amount(key: str, value: float) -> str:
    """Format an amount: "12 steps", "2,000,000 tokens", "$1.50", "1h 30m"."""
    if key == "maxCost":
        return f"${value:,.2f}" if value >= 1 or not value else f"${value:.4f}"
    if key == "maxWallTime":
        return duration(value)
    unit = "step" if key == "maxSteps" else "token"
    return f"{int(value):,} {unit}{'s' * (value != 1)}"


def share(key: str, used: float, most: float, unpriced: int = 0, unmetered: int = 0) -> str:
    """Format the used part of a limit: "3 of 12 steps", "≥ $0.40 of $1.50" if some usage has no price or was
    not reported, "unknown"."""
    before = f"{int(used):,}" if key in ("maxSteps", "maxTokens") else amount(key, used)
    if (key == COST and unpriced) or (key in METERED and unmetered):
        before = f"≥ {before}" if used else "unknown"
    return f"{before} of {amount(key, most)}"


def more(limit: Limit, used: float) -> str:
    """Return the option that doubles a limit, or adds the amount used if that is more."""
    wanted = max(limit.value, used)
    value = f"{wanted:.6g}" if wanted < 1e6 else str(math.ceil(wanted))
    return f"{OPTIONS[limit.key]} +{value}{'s' if limit.key == 'maxWallTime' else ''}"


def parse_option(key: str, text: str, held: Mapping[str, Limit] | None = None) -> float:
    """Parse a limit option. With `held`, `+N` adds to the current limit. Raises Usage."""
    plus = text.startswith("+") and held is not None
    value = parse_limit(key, _number(key, text[1:] if plus else text))
    if value is None:
        raise Usage(f"{OPTIONS[key]} {text!r} is not a limit", f"give {_WANTED[key]}")
    if not plus:
        return value
    assert held is not None
    if key not in held:
        raise Usage(f"there is no {key} to add to", f"give the whole limit: {OPTIONS[key]} {text[1:]}")
    return held[key].value + value


def _number(key: str, text: str) -> float | str:
    if key == "maxWallTime" and not text.replace(".", "", 1).isdigit():
        return text
    try:
        return float(text)
    except ValueError:
        return text


def used_up(
    instance: Instance, head: Head, budgets: Budgets | None = None, found: Outlook | None = None
) -> BudgetState | None:
    """Return the exhausted budget of a thread that could otherwise continue, else None."""
    standing = standing_of(instance, head, budgets, found)
    return standing if standing is not None and standing.reached is not None else None


def standing_of(
    instance: Instance, head: Head, budgets: Budgets | None = None, found: Outlook | None = None
) -> BudgetState | None:
    """Return the budget of a thread that could continue, if it has one."""
    budgets = budgets or Budgets(instance)
    try:
        if head.archive is not None or not budgets.sources(head):
            return None
        following = (found or outlook(instance, head)).next
        return None if following in (END, None) else budget_before(instance, head, following, budgets=budgets)
    except UwfError:  # of a thread that can't be read nothing is known here; reading it says why
        return None


def budget_reached(instance: Instance, head: Head) -> str:
    """Return the exhausted limit of a thread as text, "" if it may continue."""
    standing = used_up(instance, head)
    return standing.reason if standing else ""


def budget_before(
    instance: Instance,
    head: Head,
    role: str,
    agent: str | Agent | AgentOptions | None = None,
    budgets: Budgets | None = None,
) -> BudgetState | None:
    """Return the budget before a role's step, if any. An unknown price counts as reached if the configuration
    says so."""
    standing = (budgets or Budgets(instance)).standing(head)
    held = standing.limits.get(COST) if standing is not None else None
    if standing is None or standing.reached or held is None:
        return standing
    if not instance.config_of(head.row).stops_unpriced:
        return standing
    from uwf_git.engine.performer import missing_price_at

    why = missing_price_at(instance, head, role, agent)
    return standing._replace(reached=held, missing_price=why) if why else standing
