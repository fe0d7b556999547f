"""Budgets: how much of steps, tokens, money and agents' time a thread may use before it waits for a human.

A thread may have limits of its own, its workflow others, the user's configuration more: the tightest counts. A human
may raise them. What was raised waits in `<git dir>/uwf/budgets/<ULID>.json` for the next step, whose detail records it.
From there on it goes before the limits of the thread and its workflow wherever the thread goes, and before those of
the configuration on the machine where it was raised.

What a thread has used is the sum over its steps, those of its sub-workflows, and its failed attempts. The sum up to a
head never changes, so the index keeps it, and a further step costs that step alone.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.engine import spending
from uwf_git.engine.spending import DEEPEST, Line, Run, Spent, Tokens, money, together, tokens_of
from uwf_git.errors import Usage, UwfError, Waiting
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head, PastStep
from uwf_git.store.opened import Instance
from uwf_git.store.private import read_private, write_private
from uwf_git.values.amounts import LIMITS, parse_limit
from uwf_git.values.ids import Hash, ThreadId
from uwf_git.values.kinds import EXTRACT, SUBWORKFLOW, StepContext, TurnRecord, parse_start
from uwf_git.values.types import MAY_LIMIT, USER, is_kind

if TYPE_CHECKING:
    from uwf_git.config.settings import Price
    from uwf_git.values.kinds import Detail, Workflow

OPTIONS = {
    "maxSteps": "--max-steps",
    "maxTokens": "--max-tokens",
    "maxCost": "--max-cost",
    "maxWallTime": "--max-time",
}
"""How the command names each limit."""

COST = "maxCost"

UNTOLD_HINT = (
    "name a model that models.<alias>.price in config.yaml has a price for, or set budget.unpriced to warn"
)

CONFIG = "config.yaml"
"""The names of sources of limits begin so where the limits are the user's own."""

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
    """One limit that holds, and who set it. Tokens and steps are counts, money is in US dollars, time in
    seconds."""

    key: str
    value: float
    source: str


def limits(
    sources: Iterable[tuple[str, Mapping[str, float]]],
    raised: Mapping[str, float],
    here: Mapping[str, float] | None = None,
) -> dict[str, Limit]:
    """The limits that hold, in the order of LIMITS: of each the tightest. What was `raised` replaces limits that are
    there and makes none. Those of the user's configuration are only replaced by what was raised `here`, on this
    machine."""
    found: dict[str, Limit] = {}
    for source, given in sources:
        over = (here or {}) if source.startswith(CONFIG) else raised
        for key, value in given.items():
            limit = Limit(key, over[key], _RAISED) if key in over else Limit(key, value, source)
            if key in LIMITS and (key not in found or limit.value < found[key].value):
                found[key] = limit
    return {key: found[key] for key in LIMITS if key in found}


def use(spent: Spent, prices: Mapping[str, Price]) -> dict[str, float]:
    """How much was used of each limit. What no agent counted is 0: a budget sees only what agents tell."""
    tokens = tokens_of(spent)
    return {
        "maxSteps": spent.steps,
        "maxTokens": tokens.total if tokens else 0,
        "maxCost": money(spent, prices).cost or 0,
        "maxWallTime": spent.seconds,
    }


def used_up(held: Mapping[str, Limit], used: Mapping[str, float]) -> Limit | None:
    """The first limit that is reached, if one is."""
    return next((limit for limit in held.values() if used[limit.key] >= limit.value), None)


# What was spent


class Account(NamedTuple):
    """What a thread has spent up to a head. `raised` are limits and the step whose detail has them."""

    spent: Spent
    raised: Mapping[str, tuple[float, Hash]]


def runs(instance: Instance, head: Head) -> list[Run]:
    """A thread's steps and failed attempts with what they spent, by the number of the step, then oldest first. Steps
    of sub-workflows are not among them. Raises what reading them raises."""
    tip = instance.attempts.tip(head.thread)
    told = _Told(instance, [head], {head.thread: tip} if tip else {})
    found = told.runs(head)
    told.remember()
    return found


def runs_of_all(instance: Instance, heads: Sequence[Head]) -> Iterator[tuple[Head, list[Run] | UwfError]]:
    """The runs of many threads, each as `runs` gives them, or what reading them raises. The index remembers those that
    lead to the last place that it was asked about of each thread."""
    tips = {thread: Oid(raw=tip) for thread, tip in instance.store.index.attempt_tips().items()}
    told = _Told(instance, heads, tips)
    for head in heads:
        try:
            found: list[Run] | UwfError = told.runs(head)
        except UwfError as error:
            found = error
        yield head, found
    told.remember()


class _Told:
    """Runs as the index remembers them, by the place that they lead to, a StepNode or an attempt's commit: lists of
    what they are, in JSON."""

    def __init__(self, instance: Instance, heads: Sequence[Head], tips: Mapping[ThreadId, Oid]) -> None:
        self._instance = instance
        self._tips = tips
        places = [str(at) for head in heads for at in (head.node, tips.get(head.thread)) if at]
        self._known = instance.store.index.spent_at([_ALONE + at for at in places])
        self._fresh: dict[str, str] = {}
        self._outgrown = set[Hash]()

    def runs(self, head: Head) -> list[Run]:
        """Those of a thread, by number and time."""
        tip = self._tips.get(head.thread)
        found: list[Run] = []
        numbers: dict[str | None, int] = {None: 1}
        of = head.thread, head.row.name or ""
        steps = self._at(head.node, lambda: self._steps(head.node))
        for number, (node, role, agent, time, *own) in enumerate(steps, 1):
            numbers[node] = number + 1
            if role != USER:
                found.append(Run(node, *of, number, role, agent, time, _spent_again(1, 0, own)))
        for name, prev, role, agent, time, *own in (
            self._at(str(tip), lambda: self._attempts(head.thread)) if tip else ()
        ):
            found.append(Run(name, *of, numbers.get(prev, 0), role, agent, time, _spent_again(0, 1, own)))
        return sorted(found, key=lambda run: (run.number, run.time)) if tip else found

    def remember(self) -> None:
        """Has the index remember what was read."""
        index = self._instance.store.index
        if self._fresh:
            with index.transaction():
                index.drop_spent(_ALONE + at for at in self._outgrown if not index.heads_at(at))
                for at, text in self._fresh.items():
                    index.set_spent(at, text)

    def _at(self, place: str, read: Callable[[], list[Any]]) -> list[Any]:
        at = _ALONE + place
        text = self._known.get(at) or self._fresh.get(at)
        if text is not None:
            told: list[Any] = json.loads(text)
            return told
        told = read()
        self._fresh[at] = json.dumps(told)
        return told

    def _steps(self, node: Hash) -> list[Any]:
        instance, told = self._instance, list[Any]()
        newer: list[PastStep] = []
        for past in instance.threads.past(node):
            if newer and (text := instance.store.index.spent(_ALONE + past.hash)) is not None:
                told = json.loads(text)
                self._outgrown.add(past.hash)
                break
            newer.append(past)
        for hash_, step, time in reversed(newer):
            spent = Spent() if step.role == USER else _spent(instance, step.detail, step.agent)
            told.append([hash_, step.role, step.agent, time // 1000, *_own(spent)])
        return told

    def _attempts(self, thread: ThreadId) -> list[Any]:
        told = []
        for each in self._instance.attempts.all(thread):
            spent = _spent(self._instance, each.detail, each.agent, attempt=True)
            name = f"{each.hash} {each.number}"  # what failed twice in the same way is one node
            told.append([name, each.prev, each.role, each.agent, each.time, *_own(spent)])
        return told


_ALONE = "="
"""Before a place in the index: what each of the runs up to there has spent, and not their sum."""


def _own(spent: Spent) -> tuple[Any, ...]:
    """What a run spent, as JSON."""
    return spent.seconds, spent.unmetered, [[line.model, *line.tokens, line.reported] for line in spent.lines]


def _spent_again(steps: int, attempts: int, own: Sequence[Any]) -> Spent:
    seconds, unmetered, lines = own
    each = tuple([Line(line[0], Tokens(*line[1:4]), line[4]) for line in lines])
    return Spent(steps, attempts, seconds, unmetered, each)


def nested(instance: Instance, head: Head) -> list[Run]:
    """What the steps of sub-workflows spent that did steps of a thread, each with the number and role of that step."""
    found: list[Run] = []
    for number, (_, step, _) in enumerate(_steps_to(instance, head.node), 1):
        if _is_child(instance, step.detail):
            found += _nested(instance, step.detail, head.thread, number, step.role, 0)
    return found


def spent_on(instance: Instance, steps: Iterable[StepContext]) -> dict[Hash, Spent]:
    """What each of some steps spent; one that a sub-workflow did spent what that one's steps did, and counts once."""
    found: dict[Hash, Spent] = {}
    for step in steps:
        if step.role == USER:
            found[step.hash] = Spent()
        elif _is_child(instance, step.detail):
            found[step.hash] = _account_at(instance, step.detail, 1).spent._replace(steps=1)
        else:
            found[step.hash] = _spent(instance, step.detail, step.agent)
    return found


def _nested(instance: Instance, last: Hash, thread: str, number: int, role: str, depth: int) -> Iterator[Run]:
    if depth > DEEPEST:
        return
    workflow = ""
    for node, step, time in _steps_to(instance, last):
        if not workflow:
            start = parse_start(instance.store.get(step.start).payload)
            workflow = instance.registry.workflow(start.workflow).name
        if step.role == USER:
            continue
        if _is_child(instance, step.detail):
            yield from _nested(instance, step.detail, thread, number, role, depth + 1)
            continue
        spent = _spent(instance, step.detail, step.agent)._replace(steps=0)
        yield Run(node, thread, workflow, number, role, step.agent, time // 1000, spent)


def _steps_to(instance: Instance, node: Hash) -> list[PastStep]:
    """The steps that lead to a node, oldest first."""
    return list(instance.threads.past(node))[::-1]


def _is_child(instance: Instance, detail: Hash) -> bool:
    """Whether a step was done by a sub-workflow: its detail is then the last step of that one's thread."""
    return is_kind(instance.store.get(detail).type, "step")


_Turns = dict[Hash, tuple[TurnRecord, ...]]
"""Turns that were read, without what was said in them: several runs may name the same one, however large. Of what is no
turn there are none."""


def _spent(
    instance: Instance, node: Hash | None, agent: str, attempt: bool = False, known: _Turns | None = None
) -> Spent:
    """What one step or failed attempt spent itself, by its detail. The steps of a sub-workflow are not in it."""
    if node is not None and _is_child(instance, node):
        return Spent(steps=int(not attempt), attempts=int(attempt))
    detail = instance.store.detail(node) if node else None
    turns = _turns(instance, detail, {} if known is None else known) if detail else ()
    spent = spending.spent(detail, turns, attempt)
    # That thread tells.
    return spent._replace(seconds=0.0, unmetered=0) if detail and agent == SUBWORKFLOW else spent


def _turns(instance: Instance, detail: Detail, known: _Turns) -> Iterator[TurnRecord]:
    for node in detail.turns:
        if node not in known:
            known[node] = tuple(map(_counted, instance.store.turns(detail._replace(turns=(node,)))))
        yield from known[node]


def _counted(turn: TurnRecord) -> TurnRecord:
    """What a turn says of tokens and models."""
    return turn._replace(text="", arguments=turn.arguments if turn.tool == EXTRACT else None, result=None)


def account(instance: Instance, head: Head) -> Account:
    """What a thread has spent, with its failed attempts and sub-workflows. The index remembers it."""
    steps = _account_at(instance, head.node, 0)
    return steps._replace(spent=together((steps.spent, _spent_on_attempts(instance, head.thread))))


def spent_by_all(instance: Instance, heads: Iterable[Head]) -> dict[ThreadId, Spent]:
    """What each of many threads has spent, as `account` says, of those where that can be read. What the index
    remembers is asked for at once."""
    index = instance.store.index
    heads = list(heads)
    tips = index.attempt_tips()
    places = [head.node for head in heads if head.row.number]
    known = index.spent_at([*places, *(tips[head.thread].hex() for head in heads if head.thread in tips)])
    found: dict[ThreadId, Spent] = {}
    for head in heads:
        tip = tips.get(head.thread)
        told = _read(known.get(head.node)) if head.row.number else Account(Spent(), {})
        tried = _read(known.get(tip.hex())) if tip else Account(Spent(), {})
        with contextlib.suppress(UwfError):
            if told is None or tried is None:
                found[head.thread] = account(instance, head).spent
            else:
                found[head.thread] = together((told.spent, tried.spent)) if tip else told.spent
    return found


def _account_at(instance: Instance, node: Hash, depth: int) -> Account:
    """What the steps that lead to a node have spent; remembered from now on."""
    index = instance.store.index
    known = _read(index.spent(node))
    if known is not None:
        return known
    newer: list[PastStep] = []
    for past in instance.threads.past(node):
        if (known := _read(index.spent(past.hash))) is not None:
            break
        newer.append(past)
    parts = [known.spent] if known else []
    raised = dict(known.raised) if known else {}
    turns: _Turns = {}
    for hash_, step, _ in reversed(newer):
        if _is_child(instance, step.detail):
            if depth < DEEPEST:
                parts.append(_account_at(instance, step.detail, depth + 1).spent._replace(steps=1))
            continue
        if step.role != USER:
            parts.append(_spent(instance, step.detail, step.agent, known=turns))
        detail = instance.store.detail(step.detail)
        if detail is not None and detail.budget:
            raised.update({key: (value, hash_) for key, value in detail.budget.items()})
    found = Account(together(parts), raised)
    if newer:
        index.set_spent(node, _written(found))
    return found


def _spent_on_attempts(instance: Instance, thread: ThreadId) -> Spent:
    tip = instance.attempts.tip(thread)
    if tip is None:
        return Spent()
    index = instance.store.index
    if (known := _read(index.spent(str(tip)))) is not None:
        return known.spent
    every = instance.attempts.all(thread)
    turns: _Turns = {}
    spent = together(_spent(instance, each.detail, each.agent, True, turns) for each in every)
    index.set_spent(str(tip), _written(Account(spent, {})))
    return spent


def _written(account: Account) -> str:
    *counts, lines = account.spent
    return json.dumps(
        [*counts, [[line.model, *line.tokens, line.reported] for line in lines], account.raised]
    )


def _read(text: str | None) -> Account | None:
    if text is None:
        return None
    steps, attempts, seconds, unmetered, lines, raised = json.loads(text)
    each = tuple(Line(line[0], Tokens(*line[1:4]), line[4]) for line in lines)
    return Account(
        Spent(steps, attempts, seconds, unmetered, each),
        {key: (value, Hash(step)) for key, (value, step) in raised.items()},
    )


# Where a thread stands


class Standing(NamedTuple):
    """A thread's budget: the limits that hold, how much of each is used, and the first that is reached, if one is.
    `unpriced` are the tokens that the money used doesn't cover. `untold` says why a limit counts as reached that
    nobody can hold the thread to, "" where it is used up."""

    limits: Mapping[str, Limit]
    used: Mapping[str, float]
    reached: Limit | None
    unpriced: int = 0
    untold: str = ""

    @property
    def reason(self) -> str:
        """What is used up, in words; "" where nothing is."""
        limit = self.reached
        if limit is None:
            return ""
        if self.untold:
            return f"{limit.key} can't be held to, {self.untold}"
        used = share(limit.key, self.used[limit.key], limit.value)
        if limit.source == _RAISED:
            source = "raised before"
        elif limit.source.startswith(CONFIG):
            source = f"set by {limit.source}"
        else:
            source = f"set by its {limit.source}"
        return f"{limit.key} is used up, {used} ({source})"


class Budgets:
    """The budgets of a store's threads. Made anew for each look at them: what all threads share is read once. Of a
    thread without a budget nothing is read."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @cached_property
    def _configured(self) -> Mapping[str, Mapping[str, float]]:
        """The limits of config.yaml, by workflow, "" for all. The file is parsed only where it has any."""
        try:
            if not self._instance.config_has(b"budgets"):
                return {}
            return self._instance.config.budgets
        except (OSError, UwfError):  # whoever needs the configuration says what is wrong with it
            return {}

    @cached_property
    def _limited(self) -> frozenset[Hash]:
        index = self._instance.store.index
        return frozenset(node for kind in MAY_LIMIT for node in index.hashes_of_type(kind))

    def sources(self, head: Head) -> list[tuple[str, Mapping[str, float]]]:
        """The limits of a thread by who sets them, in words."""
        name, row = head.row.name or "", head.row
        found = [(CONFIG, self._configured.get("", {}))]
        if name:
            found.append((f"{CONFIG} for {name}", self._configured.get(name, {})))
        if row.workflow in self._limited:
            found.append(("workflow", self._instance.registry.workflow(row.workflow).budget or {}))
        if row.start in self._limited:
            found.append(("thread", parse_start(self._instance.store.get(row.start).payload).budget or {}))
        return [(source, given) for source, given in found if given]

    def standing(self, head: Head, besides: Spent = Spent()) -> Standing | None:  # noqa: B008
        """Where a thread stands; None where it has no budget. `besides` is spent on top, by a step that isn't over."""
        sources = self.sources(head)
        if not sources:
            return None
        known = account(self._instance, head)
        fresh, here = raised_here(self._instance, head.thread)
        raised = {key: value for key, (value, _) in known.raised.items()}
        held = limits(sources, {**raised, **fresh}, {**here, **fresh})
        spent = together((known.spent, besides))
        priced = prices(self._instance) if COST in held else {}
        used = use(spent, priced)
        standing = Standing(held, used, used_up(held, used))
        if COST not in held:
            return standing
        standing = standing._replace(unpriced=money(spent, priced).unpriced)
        if standing.reached is None and standing.unpriced and self._instance.config.stops_unpriced:
            untold = f"{standing.unpriced:,} tokens have no known price"
            return standing._replace(reached=held[COST], untold=untold)
        return standing


def raise_if_used_up(instance: Instance, head: Head, besides: Spent = Spent()) -> None:  # noqa: B008
    """Raises Waiting where a thread's budget allows no further step; `besides` is as in `Budgets.standing`."""
    standing = Budgets(instance).standing(head, besides)
    if standing is not None and standing.reached is not None:
        raise waiting(head.thread, standing)


def before(
    instance: Instance, head: Head, role: str, agent: str | None = None, budgets: Budgets | None = None
) -> Standing | None:
    """Where a thread stands before the step of a role; None where it has no budget. `agent` goes before the
    configuration. Where the configuration says that what nobody knows the price of has to wait, that counts as
    reached, and so does an agent of which nobody can tell it."""
    standing = (budgets or Budgets(instance)).standing(head)
    held = standing.limits.get(COST) if standing is not None else None
    if standing is None or standing.reached or held is None or not instance.config.stops_unpriced:
        return standing
    why = untold_at(instance, head, role, agent)
    return standing._replace(reached=held, untold=why) if why else standing


def untold_at(instance: Instance, head: Head, role: str, agent: str | None = None) -> str:
    """Why nobody can tell beforehand what the agent of a role will cost that is next in a thread; "" where somebody
    can."""
    if head.row.workflow is None or head.row.start is None:
        return ""
    workflow = instance.registry.workflow(head.row.workflow)
    if role not in workflow.roles:
        return ""
    persona = parse_start(instance.store.get(head.row.start).payload).persona
    return next(iter(untold(instance, workflow, [role], persona, agent)), "")


def waiting(thread: ThreadId, standing: Standing) -> Waiting:
    """The error that says that a thread's budget is used up, and how to raise it."""
    limit = standing.reached
    assert limit is not None
    if standing.untold:
        return Waiting(
            f"thread {thread} waits: {standing.reason}",
            UNTOLD_HINT,
        )
    return Waiting(
        f"thread {thread} waits: {standing.reason}",
        f"uwf thread budget {thread} {more(limit, standing.used[limit.key])}",
    )


def prices(instance: Instance) -> dict[str, Price]:
    """The configured prices, by the model's name and by its alias. Raises Invalid for a broken config.yaml."""
    return instance.config.prices


def untold(
    instance: Instance, workflow: Workflow, roles: Iterable[str], persona: str = "", agent: str | None = None
) -> list[str]:
    """Why nobody can tell beforehand what the agents of some roles will cost, each in a clause. `agent` goes before
    the configuration; `persona` is the id of who speaks where the workflow leaves that open."""
    from uwf_git.config.resolve import resolve_agent
    from uwf_git.engine.performer import embedded

    found: dict[str, None] = {}
    for role in roles:
        with contextlib.suppress(UwfError):  # whoever is to play the role is told of that
            speaker = workflow.speaks(role, persona)
            config = resolve_agent(instance.config, workflow.name, role, override=agent, persona=speaker)
            playing = embedded(config.command)
            if playing is not None and (why := playing.untold(instance.config, config.args)):
                found[why] = None
    return list(found)


# What was raised on this machine


def pending(instance: Instance, thread: ThreadId) -> dict[str, float]:
    """The limits that a human raised on this machine and no step has recorded yet."""
    return raised_here(instance, thread)[0]


def raised_here(instance: Instance, thread: ThreadId) -> tuple[dict[str, float], dict[str, float]]:
    """The limits that a human raised on this machine: those that no step has recorded yet, and those that one
    has."""
    try:
        value = json.loads(read_private(_file(instance, thread)))
    except (OSError, ValueError, RecursionError):
        return {}, {}
    return _amounts(value), _amounts(value.get(_RECORDED) if isinstance(value, dict) else None)


def raise_limits(instance: Instance, thread: ThreadId, given: Mapping[str, float]) -> None:
    """Raises limits of a thread on this machine; the next step records them in its detail."""
    fresh, recorded = raised_here(instance, thread)
    _write(instance, thread, {**fresh, **given}, recorded)


def settle(instance: Instance, thread: ThreadId, recorded: Mapping[str, float] | None) -> None:
    """Notes that a step has recorded what was raised. What was raised meanwhile waits for the next step."""
    if not recorded:
        return
    fresh, before = raised_here(instance, thread)
    left = {key: value for key, value in fresh.items() if recorded.get(key) != value}
    settled = {key: value for key, value in fresh.items() if key not in left}
    _write(instance, thread, left, {**before, **settled})


def _write(
    instance: Instance, thread: ThreadId, fresh: Mapping[str, float], recorded: Mapping[str, float]
) -> None:
    path = _file(instance, thread)
    value = {**fresh, _RECORDED: dict(recorded)} if recorded else dict(fresh)
    failure = f"can't remember the budget of {thread}"
    write_private(path, json.dumps(value).encode("ascii"), failure, "check free space")


def forget(instance: Instance, thread: ThreadId) -> None:
    """Forgets what was raised for a thread on this machine."""
    with contextlib.suppress(OSError):
        _file(instance, thread).unlink(missing_ok=True)


def _file(instance: Instance, thread: ThreadId) -> Path:
    return instance.store.repository.private / "budgets" / f"{thread}.json"


def _amounts(value: Any) -> dict[str, float]:
    given = value if isinstance(value, dict) else {}
    numbers = {key: item for key, item in given.items() if type(item) in (int, float)}
    return {key: item for key, item in numbers.items() if key in LIMITS and item > 0}


# Words


def amount(key: str, value: float) -> str:
    """An amount as people read it: "12 steps", "2,000,000 tokens", "$1.50", "1h 30m"."""
    if key == "maxCost":
        return f"${value:,.2f}" if value >= 1 or not value else f"${value:.4f}"
    if key == "maxWallTime":
        return duration(value)
    unit = "step" if key == "maxSteps" else "token"
    return f"{int(value):,} {unit}{'s' * (value != 1)}"


def share(key: str, used: float, most: float, unpriced: int = 0) -> str:
    """How much of a limit is used: "3 of 12 steps", "$0.40 of $1.50"; "≥ $0.40" where there are tokens that the money
    doesn't cover, "unknown" where it covers none."""
    before = f"{int(used):,}" if key in ("maxSteps", "maxTokens") else amount(key, used)
    if key == COST and unpriced:
        before = f"≥ {before}" if used else "unknown"
    return f"{before} of {amount(key, most)}"


def duration(seconds: float) -> str:
    """Seconds as people read them: "0.4s", "12s", "3m 20s", "1h 30m"."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds % 1 and seconds < 10 else f"{round(seconds)}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s" if whole % 60 else f"{whole // 60}m"
    return f"{whole // 3600}h {whole % 3600 // 60}m" if whole % 3600 >= 60 else f"{whole // 3600}h"


def more(limit: Limit, used: float) -> str:
    """The option that adds as much again to a limit, or as much as is used where that is more."""
    wanted = max(limit.value, used)
    value = f"{wanted:.6g}" if wanted < 1e6 else str(math.ceil(wanted))
    return f"{OPTIONS[limit.key]} +{value}{'s' if limit.key == 'maxWallTime' else ''}"


def parse_option(key: str, text: str, held: Mapping[str, Limit] | None = None) -> float:
    """The limit that an option gives. With `held`, `+N` adds to the one that holds. Raises Usage."""
    plus = text.startswith("+") and held is not None
    value = parse_limit(key, _number(key, text[1:] if plus else text))
    if value is None:
        raise Usage(f"{OPTIONS[key]} {text!r} is no limit", f"give {_WANTED[key]}")
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
