"""`/thread/ID`: a thread's state, graph, steps and relatives.

Long threads are read from the index; only shown steps are read themselves. Unreadable and oversized parts are
reported in place.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from markupsafe import Markup

from uwf_git.ext.web import step as steps
from uwf_git.ext.web.actions import possible
from uwf_git.ext.web.code import CodeView, code_of_thread
from uwf_git.ext.web.page.graph import (
    NEXT,
    NOW,
    BranchWays,
    branch_ways,
    described,
    drawing,
    end_of,
    transitions,
    way_of,
)
from uwf_git.ext.web.page.step import amounts, brief, name_of
from uwf_git.plugin import (
    BUNDLE,
    END,
    HUMAN,
    REHEARSE,
    USER,
    Budgets,
    HumanTurn,
    Oid,
    Page,
    PageRequest,
    RelatedThread,
    StepContext,
    ThreadState,
    UwfError,
    Watch,
    ancestry,
    branches_at,
    cast_of,
    census_text,
    extensions,
    human_turn_of,
    layout,
    page_addresses,
    related_threads,
    role_name,
    spending_account,
    spent_on,
    step_value,
    summarise_thread,
    thread_outlook,
    thread_state,
    thread_state_value,
    used_up_budget,
)

if TYPE_CHECKING:
    from uwf_git.plugin import (
        CommitRow,
        Hash,
        Head,
        Instance,
        Price,
        SpendingTotals,
        StartNode,
        ThreadId,
        Workflow,
    )

SHOWN = 50
"""How many steps a page shows at once."""

_TRIED = 200  # failed attempts that are read
_DRAWN = 60  # nodes of a graph that is drawn here
_HEAVIEST = 24 << 20  # bytes of turns that are read to sum up
T = TypeVar("T")
U = TypeVar("U")


class Entry(NamedTuple):
    """A timeline entry: a step, or a failed attempt if `number` is None. `verdict` is its result, a status if
    `rules`; `took` its spending; `child` the thread that made it."""

    number: int | None
    node: Hash
    role: str
    by: str
    verdict: str
    rules: bool
    took: tuple[str, ...]
    time: int
    made_up: bool = False
    child: ThreadId | None = None


class RelatedRow(NamedTuple):
    """A related thread: `how` it relates; `compare` if they share steps."""

    thread: ThreadId
    title: str
    status: str
    how: str
    compare: bool
    below: tuple[RelatedRow, ...]


def page(instance: Instance, request: PageRequest) -> Page:
    """Show a thread; `before` in the query is a step number. Raises NotFound, Usage."""
    thread = instance.threads.find(request.parts["id"])
    try:
        head = instance.threads.head(thread)
    except UwfError as error:
        values = {"thread": thread, "status": ThreadState.CORRUPT.word, "problem": error.message}
        return Page("damaged.html", f"Thread {thread}", values)
    return _Thread(instance, head, request).page()


class _Thread:
    def __init__(self, instance: Instance, head: Head, asked: PageRequest) -> None:
        before = asked.number("before")
        self._instance = instance
        self._asked = asked
        self._head = head
        self._problems: dict[str, None] = {}
        self._children: Mapping[bytes, ThreadId] = {}
        """The sub-workflows that did a step, by their last commits."""
        self._rows = list(self._read_rows())
        """Of the steps, oldest first."""
        self._end = min(head.row.number, before - 1) if before else head.row.number
        """The number of the last step that is shown."""
        self._begin = max(0, self._end - SHOWN)
        self._start = self._or(self._read_start, None)
        self._workflow = self._or(self._read_workflow, None)
        self._ran: list[BranchWays] = self._or(lambda: branch_ways(instance, self._rows), [])
        self._prices: Mapping[str, Price] = self._or(lambda: instance.config.prices, {})

    def _or(self, make: Callable[[], T], otherwise: U) -> T | U:
        try:
            return make()
        except UwfError as error:
            self._problems[error.message] = None
            return otherwise

    def _read_rows(self) -> Iterator[CommitRow]:
        rows: list[CommitRow] = []
        try:
            for row in ancestry(self._instance.store, self._head.commit):
                if row.kind not in ("step", "start"):
                    break
                rows.append(row)
        except UwfError as error:
            self._problems[error.message] = None
        return reversed(rows)

    def _read_start(self) -> StartNode | None:
        node = self._head.row.start
        if node is None or steps.weight(self._instance, node) > steps.LARGEST_IN_A_LINE:
            return None
        return self._instance.store.start(node)

    def _read_workflow(self) -> Workflow | None:
        node = self._head.row.workflow
        if node is None or steps.weight(self._instance, node) > 4 * steps.LARGEST_IN_A_LINE:
            return None
        return self._instance.registry.workflow(node)

    def page(self) -> Page:
        instance, head = self._instance, self._head
        around: Mapping[str, Any] = self._or(self._kin, {"parent": None, "tree": None, "left_out": 0})
        state = self._or(lambda: thread_state(instance, head), ThreadState.CORRUPT)
        unread = {"status": ThreadState.CORRUPT.word, "next": None}
        at: Mapping[str, Any] = self._or(lambda: thread_state_value(instance, head), unread)
        status = at["status"]
        if status == ThreadState.CORRUPT.word:
            state = ThreadState.CORRUPT
        turn_of = self._turn(state)
        is_running = status == ThreadState.RUNNING.word
        running = Watch(instance).step(head.thread) if is_running else None
        title = head.row.title or head.thread
        end = end_of(head.archive.status if head.archive else None)
        taken = way_of(_without_remarks(self._rows), end)
        now = at.get("asks") if at["next"] == USER else at["next"]
        if head.archive is not None and end is None:
            now = None
        turn = NOW if is_running else NEXT
        values = {
            "thread": head.thread,
            "name": title,
            "at": {**dict.fromkeys(_MAY_BE), **at},
            "status": status,
            "is_ready": state.is_ready,
            "sentence": state.sentence,
            "turn_of": turn_of,
            "judged": self._judged(at),
            "me": self._or(lambda: instance.store.repository.user.ident, "")
            if turn_of or status == ThreadState.ASKING.word
            else "",
            "head": head,
            "started": self._rows[0] if self._rows and self._rows[0].kind == "start" else None,
            "author": name_of(head.row.author or ""),
            "made_up": head.row.rehearsed,
            "spent": self._or(self._spent, []),
            "census": census_text(at["census"]) if "census" in at else "",
            "budget": self._or(self._budget, []),
            "raise": self._or(lambda: _how_to_raise(instance, head), ""),
            "stuck": self._or(lambda: thread_outlook(instance, head).hint, "") if at.get("problem") else "",
            "refused": None,
            "note": None,
            "may": self._or(lambda: possible(instance, head, state), None),
            "on": instance.threads.way_on(head) if head.archive else "",
            "folded": self._folded(),
            "task": self._start.prompt if self._start else None,
            "start": head.row.start,
            "workflow": self._workflow,
            "graph": self._graph(taken, now, turn),
            "described": self._described(taken, now, turn),
            "made": self._or(self._made, 0),
            "ways": transitions(self._workflow, taken, self._ran) if self._workflow else (),
            "who": now if now in (None, END, BUNDLE) else role_name(now),
            "here": now,
            "turn": turn,
            "code": self._or(self._code, None),
            "entries": self._entries(),
            "first": self._begin + 1,
            "last": self._end,
            "older": self._begin,
            "newer": head.row.number - self._end,
            "page_size": SHOWN,
            "running": {"persona": None, **step_value(running)} if running else None,
            "child": running.child.thread if running and running.child else None,
            "live": steps.live_turns(instance, head.thread) if running else ([], 0),
            **around,
            "asked": self._asked,
            "reached": at.get("state"),
            "became": self._or(lambda: extensions.work_states(instance, [head]).get(head.thread), None),
            "log": f"git --git-dir {shlex.quote(str(instance.location.git_dir))} log {self._ref()}",
        }
        values["problems"] = list(self._problems)
        return Page("thread.html", brief(title, 80), values)

    # Above the steps

    def _spent(self) -> list[str]:
        store, head = self._instance.store, self._head
        room = _HEAVIEST
        if head.row.number and store.index.spent(head.node) is None:
            for past in self._instance.threads.past(head.node):
                room -= steps.weight_of_run(self._instance, past.step.detail)
                if room < 0:
                    return ["more than is summed up here: uwf stats " + head.thread]
        return amounts(spending_account(self._instance, self._head).spent, self._prices)

    def _budget(self) -> list[tuple[str, str, float, float]]:
        standing = Budgets(self._instance).standing(self._head)
        if standing is None:
            return []
        return [
            (
                _LIMITS[key],
                standing.share(key),
                min(standing.used[key], limit.value),
                limit.value,
            )
            for key, limit in standing.limits.items()
        ]

    def _turn(self, state: ThreadState) -> HumanTurn | None:
        if state is not ThreadState.PERSONS_TURN:
            return None
        return self._or(lambda: human_turn_of(self._instance, self._head), None)

    def _judged(self, at: Mapping[str, Any]) -> steps.ShownView:
        if at.get("question") is None:
            return steps.ShownView()
        return self._or(lambda: steps.shown_view(self._instance, self._head), steps.ShownView())

    def _folded(self) -> str:
        if self._instance.store.repository.ref(layout.ARCHIVE + self._head.thread) is not None:
            return ""
        row = self._instance.store.folded(self._head.thread) if self._head.archive else None
        return row.ref if row is not None else ""

    def _ref(self) -> str:
        if self._folded():
            return str(self._head.commit)
        return (layout.ARCHIVE if self._head.archive else layout.THREADS) + self._head.thread

    def _graph(self, taken: Sequence[str], now: str | None, turn: str) -> Markup | None:
        workflow = self._workflow
        if workflow is None or len(workflow.roles) > _DRAWN:
            return None
        return Markup(drawing(workflow, taken, now, turn, self._or(self._progress, ""), self._ran))

    def _progress(self) -> str:
        """Return how many branches of the last fork have ended, "" if it is joined."""
        if not self._head.waits_for_join:
            return ""
        branches = branches_at(self._instance, self._head)
        return f"{branches.fork.size - len(branches.open)} of {branches.fork.size} done"

    def _kin(self) -> Mapping[str, Any]:
        parent, tree, rest = related_threads(self._instance, self._head, self._rows)
        self._children = {
            thread.head.commit.raw: thread.head.thread
            for at in _each(tree)
            for thread in at.below
            if thread.how == "child"
        }
        below = [thread for thread in tree.below if thread.how != "branch" or not self._head.waits_for_join]
        alone = not below and tree.head.thread == self._head.thread
        return {"parent": parent, "tree": None if alone else self._relative(tree), "left_out": rest}

    def _relative(self, of: RelatedThread) -> RelatedRow:
        head = of.head
        below = of.below
        if self._head.waits_for_join:  # which lists its branches itself
            below = tuple(thread for thread in below if thread.how != "branch")
        state = self._or(lambda: thread_state(self._instance, head), ThreadState.CORRUPT)
        how = {
            "": "",
            "fork": f"forked after step {of.at}" if of.at else "forked at the start",
            "other side": f"the other side of a divergence, from step {of.at} on",
            "goes on": f"goes on after step {of.at}, which was its end",
            "child": f"did step {of.at}" if of.at else "a sub-workflow, at work on a step",
            "branch": f"a branch of step {of.at}",
        }[of.how]
        return RelatedRow(
            head.thread,
            head.row.title or head.thread,
            state.word,
            how,
            of.how not in ("child", "branch"),
            tuple(map(self._relative, below)),
        )

    def _described(self, taken: Sequence[str], now: str | None, turn: str) -> str | None:
        last = {row.role: row.number for row in self._rows if row.kind == "step"}

        def address(role: str) -> str | None:
            return page_addresses.step(self._head.thread, last[role]) if role in last else None

        workflow = self._workflow
        return described(workflow, taken, now, address, turn, ran=self._ran) if workflow is not None else None

    def _code(self) -> CodeView | None:
        def too_large(detail: Hash) -> bool:
            return steps.weight(self._instance, detail) > steps.LARGEST_IN_A_LINE

        return code_of_thread(self._instance, self._head.thread, self._rows, too_large)

    def _made(self) -> int:
        attempts = self._instance.attempts
        return self._head.row.number + attempts.count(attempts.tip(self._head.thread))

    # The timeline

    def _entries(self) -> list[Entry]:
        tried: dict[Hash | None, list[Entry]] = {}
        attempts: list[tuple[Hash | None, Entry]] = self._or(lambda: list(self._attempts()), [])
        for prev, entry in attempts:
            tried.setdefault(prev, []).append(entry)
        entries = [] if self._begin else tried.get(None, [])
        for row in self._rows:
            if row.kind == "step" and self._begin < row.number <= self._end:
                entries = [*entries, self._step(row), *tried.get(row.node, ())]
        return entries

    def _step(self, row: CommitRow) -> Entry:
        role, agent = row.role or "", row.agent or ""
        plain = Entry(row.number, row.node, role_name(role), brief(agent, 60), "", False, (), row.time)
        try:
            return self._describe(row, plain, role, agent)
        except UwfError as error:
            self._problems[error.message] = None
            return plain._replace(verdict="cannot be read")

    def _describe(self, row: CommitRow, plain: Entry, role: str, agent: str) -> Entry:
        instance = self._instance
        step = instance.store.step(row.node)
        if steps.weight(instance, step.output) > steps.LARGEST_IN_A_LINE:
            plain = plain._replace(
                verdict=f"{steps.size(instance, step.output)}, which is too much to show here"
            )
        else:
            output = instance.store.get(step.output)
            came = summarise_thread(instance, output.type, output.payload)
            plain = plain._replace(verdict=came.text, rules=came.decides)
        if role == USER or agent == HUMAN:
            commit = instance.store.repository.commit(Oid(raw=row.oid))
            return plain._replace(by=name_of(commit.committer))
        by = agent
        if self._workflow and self._start:
            by = cast_of(self._workflow, self._start).role(role).credit(agent).text()
        child = self._children.get(row.merged) if row.merged else None
        if child is None and row.merged is not None:
            child = instance.threads.ending_with(Oid(raw=row.merged))
        spent = self._spent_on(step.detail) if row.merged is None else None
        if row.merged is not None:
            context = StepContext(row.node, role, None, step.detail, agent)
            spent = spent_on(instance, [context])[row.node]
        return plain._replace(
            by=brief(by, 60),
            took=tuple(amounts(spent, self._prices)),
            made_up=agent == REHEARSE,
            child=child,
        )

    def _spent_on(self, detail: Hash, failed: bool = False) -> SpendingTotals | None:
        if steps.weight(self._instance, detail) > steps.LARGEST_IN_A_LINE:
            return None
        record = self._instance.store.detail(detail)
        return steps.spent_by(self._instance, record, failed) if record is not None else None

    def _attempts(self) -> Iterator[tuple[Hash | None, Entry]]:
        instance = self._instance
        tip = instance.attempts.tip(self._head.thread)
        for row in instance.attempts.rows(tip)[-_TRIED:] if tip else ():
            if steps.weight(instance, row.node) > steps.LARGEST_IN_A_LINE:
                continue
            attempt = instance.store.attempt(row.node)
            took = amounts(self._spent_on(attempt.detail, True), self._prices) if attempt.detail else []
            shown = role_name(attempt.role), brief(attempt.agent, 60), brief(attempt.error, 300)
            yield attempt.prev, Entry(None, row.node, *shown, True, tuple(took), row.time)


_MAY_BE = (
    "branches",
    "branchOf",
    "paused",
    "question",
    "asks",
    "options",
    "reason",
    "error",
    "problem",
    "divergedFrom",
    "forkedFrom",
    "otherSides",
    "resumedFrom",
)
_LIMITS = {"maxSteps": "steps", "maxTokens": "tokens", "maxCost": "money", "maxWallTime": "agents' time"}


def _each(tree: RelatedThread) -> Iterator[RelatedThread]:
    yield tree
    for below in tree.below:
        yield from _each(below)


def _without_remarks(rows: Iterable[CommitRow]) -> Iterator[tuple[str, bool]]:
    has_asked = False
    for row in rows:
        if row.kind == "step":
            if row.role != USER or has_asked or row.resumed == row.parent:
                yield row.role or "", row.asks
            has_asked = row.asks


def _how_to_raise(instance: Instance, head: Head) -> str:
    standing = used_up_budget(instance, head)
    return standing.waiting(head.thread).hint if standing is not None else ""
