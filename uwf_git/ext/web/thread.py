"""`/thread/ID`, its `/step/N` and `/attempt/HASH`: the workbench. How a thread stands, its steps on one clock, the
chosen one, and its graph; on its own page also its relatives.

Long threads are read from the index; only shown steps are read themselves. Unreadable and oversized parts are
reported in place.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from markupsafe import Markup

from uwf_git.ext.web import step as steps
from uwf_git.ext.web.code import CodeView, code_of_thread
from uwf_git.ext.web.inbox import item_address
from uwf_git.ext.web.page.graph import described, drawing
from uwf_git.ext.web.page.step import lasted
from uwf_git.ext.web.possible import PossibleActions, possible
from uwf_git.ext.web.waiting import raise_of, state_values
from uwf_git.plugin import (
    BUNDLE,
    END,
    LARGEST_IN_A_LINE,
    STEPS_SHOWN,
    USER,
    HumanTurn,
    Oid,
    Page,
    PageRequest,
    RelatedThread,
    ThreadState,
    UwfError,
    Watch,
    author_name,
    brief,
    census_text,
    extensions,
    human_turn_of,
    in_dollars,
    layout,
    node_weight,
    page_addresses,
    related_threads,
    remark_fate,
    role_name,
    run_view,
    steering_value,
    step_value,
    thread_outlook,
    thread_rows,
    thread_state,
    used_up_budget,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Hash, Head, Instance, ThreadId

_DRAWN = 60  # nodes of a graph that is drawn here
T = TypeVar("T")
U = TypeVar("U")


class RelatedRow(NamedTuple):
    """A related thread: `how` it relates; `compare` if they share steps."""

    thread: ThreadId
    title: str
    status: str
    how: str
    compare: bool
    below: tuple[RelatedRow, ...]


class GraphView(NamedTuple):
    """A graph whose `code` decides, or not, with its `ways`: the `picture` is None if there are too many `roles`, and
    `described` is for the script that draws it."""

    code: bool
    ways: Sequence[Mapping[str, Any]]
    roles: int
    picture: Markup | None
    described: str


def page(instance: Instance, request: PageRequest) -> Page:
    """Show a thread with what it asks, its step in progress, or its newest step; `before` in the query is a step's
    number. Raises NotFound, Usage."""
    thread = instance.threads.find(request.parts["id"])
    try:
        head = instance.threads.head(thread)
    except UwfError as error:
        values = {"thread": thread, "status": ThreadState.CORRUPT.word, "problem": error.message}
        return Page("damaged.html", f"Thread {thread}", values)
    return _Thread(instance, head, request).page()


def step_page(instance: Instance, request: PageRequest) -> Page:
    """Show a thread with one of its steps. Query: `tab`, `turns` to skip, and `whole`, the part to show in full. Raises
    NotFound, Usage, StoreDamaged."""
    head = instance.threads.head(instance.threads.find(request.parts["id"]))
    step = steps.chosen_step(instance, head, request.parts["number"], request)
    return _Thread(instance, head, request, step).page()


def attempt_page(instance: Instance, request: PageRequest) -> Page:
    """Show a thread with one of its failed attempts, as `step_page`."""
    head = instance.threads.head(instance.threads.find(request.parts["id"]))
    attempt = steps.chosen_attempt(instance, head, request.parts["node"], request)
    return _Thread(instance, head, request, attempt).page()


_RUNS: WeakKeyDictionary[Instance, dict[tuple[Oid, int], dict[str, Any]]] = WeakKeyDictionary()
"""The run that was shown last: an export shows it beside each of its steps."""


def _run_of(instance: Instance, head: Head, before: int) -> dict[str, Any]:
    runs = _RUNS.setdefault(instance, {})
    if (key := (head.commit, before)) not in runs:
        runs.clear()
        runs[key] = run_view(instance, head, before)
    return runs[key]


class _Thread:
    """A thread's page. `chosen` is the step or failed attempt that it is about, None for the thread itself."""

    def __init__(
        self, instance: Instance, head: Head, asked: PageRequest, chosen: dict[str, Any] | None = None
    ) -> None:
        self._instance = instance
        self._asked = asked
        self._head = head
        self._chosen = chosen
        self._problems: dict[str, None] = {}
        self._run = _run_of(instance, head, asked.number("before") or self._page_before())
        self._rows, _ = thread_rows(instance, head)
        """Of the steps, oldest first."""

    def _page_before(self) -> int:
        """Return the number before which the steps end that stand beside the chosen one, 0 for the newest."""
        if self._chosen is None:
            return 0
        number = self._chosen["number"] if self._chosen["kind"] != "attempt" else self._chosen["after"]
        later = (self._head.row.number - max(1, number)) // STEPS_SHOWN * STEPS_SHOWN
        return self._head.row.number - later + 1 if later else 0

    def _or(self, make: Callable[[], T], otherwise: U) -> T | U:
        try:
            return make()
        except UwfError as error:
            self._problems[error.message] = None
            return otherwise

    def page(self) -> Page:
        instance, head, run = self._instance, self._head, self._run
        state = self._or(lambda: thread_state(instance, head), ThreadState.CORRUPT)
        if run["status"] == ThreadState.CORRUPT.word:
            state = ThreadState.CORRUPT
        at = state_values(run["state"])
        may = self._or(lambda: possible(instance, head, state), None)
        whose = self._turn(state)
        how = self._or(lambda: _how_to_raise(instance, head), "")
        values = {
            "thread": head.thread,
            "name": run["title"],
            "at": at,
            "status": run["status"],
            "sentence": state.sentence,
            "is_ready": state.is_ready,
            "head": head,
            "run": run,
            "spent": _spent(run),
            "budget": [
                (_LIMITS[limit["limit"]], limit["text"], min(limit["used"], limit["most"]), limit["most"])
                for limit in run["budget"]
            ],
            "raise": how,
            "more": raise_of(how) if how else None,
            "may": may,
            "main": _main_action(may, state, at),
            "refused": None,
            "note": None,
            "turn_of": whose,
            "graph": self._graph(),
            "older": run["first"] - 1,
            "newer": head.row.number - run["last"],
            "page_size": STEPS_SHOWN,
            "asked": self._asked,
            "chosen": self._chosen,
            "is_step": self._chosen is not None,
            "requests": self._or(self._requests, []) if state.is_at_work else [],
            "is_at_work": state.is_at_work,
            **self._around(at, state),
        }
        if self._chosen is None:
            values |= self._centre(at, whose, state.is_at_work)
        chosen = values["chosen"]
        values["bars"] = [self._bar(bar, chosen["node"] if chosen else None) for bar in run["bars"]]
        values["problems"] = list(dict.fromkeys([*run["problems"], *self._problems]))
        title = brief(run["title"], 80)
        if self._chosen is not None:
            kind = "Failed attempt" if self._chosen["kind"] == "attempt" else "Step"
            title = f"{kind} {self._chosen['number']}, {self._chosen['title']} · {title}"
        return Page("thread.html", title, values)

    def _bar(self, bar: Mapping[str, Any], chosen: Hash | None) -> dict[str, Any]:
        kind, thread = bar["kind"], self._head.thread
        address = page_addresses.thread(thread)
        if kind == "attempt":
            address = page_addresses.attempt(thread, bar["node"])
        elif kind == "branch" and bar["thread"]:
            address = page_addresses.thread(bar["thread"])
        elif bar["node"]:
            address = page_addresses.step(thread, bar["number"])
        sign, does, look = _NOW.get(kind, ("", "", kind))
        shown = {
            **bar,
            "sign": sign,
            "does": does,
            "look": look,
            "works": kind != ThreadState.ASKING.word,
            "lasted": lasted(bar["seconds"] or 0),
            "role": role_name(bar["role"]),
            "address": address,
        }
        below = [self._bar(branch, None) for branch in bar["below"]]
        return {**shown, "is_chosen": bar["node"] is not None and bar["node"] == chosen, "below": below}

    def _around(self, at: Mapping[str, Any], state: ThreadState) -> dict[str, Any]:
        """Return what the page of the thread itself has beside its steps."""
        instance, head, graph = self._instance, self._head, self._run["graph"]
        now = at.get("asks") if at["next"] == USER else at["next"]
        nodes = graph["nodes"] if graph else ()
        if head.archive is not None and not any(node["now"] for node in nodes):
            now = None
        values = {
            "who": now if now in (None, END, BUNDLE) else role_name(now),
            "now_at": now,
            "turn": next((node["turn"] for node in nodes if node["now"]), ""),
        }
        if self._chosen is not None:
            return values
        kin: Mapping[str, Any] = self._or(self._kin, {"parent": None, "tree": None, "left_out": 0})
        return {
            **values,
            **kin,
            "started": self._rows[0] if self._rows and self._rows[0].kind == "start" else None,
            "author": author_name(head.row.author or ""),
            "made_up": head.row.rehearsed,
            "census": census_text(at["census"]) if "census" in at else "",
            "stuck": self._or(lambda: thread_outlook(instance, head).hint, "") if at["problem"] else "",
            "on": instance.threads.way_on(head) if head.archive else "",
            "folded": self._folded(),
            "task": self._or(self._task, None),
            "start": head.row.start,
            "code": self._or(self._code, None),
            "reached": at.get("state"),
            "became": self._or(lambda: extensions.work_states(instance, [head]).get(head.thread), None),
            "log": f"git --git-dir {shlex.quote(str(instance.location.git_dir))} log {self._ref()}",
        }

    def _centre(self, at: Mapping[str, Any], whose: HumanTurn | None, is_running: bool) -> dict[str, Any]:
        """Return what stands in the centre: what is asked, the step in progress, or the newest step or attempt."""
        instance, head = self._instance, self._head
        running = Watch(instance).step(head.thread) if is_running else None
        asks = at["question"] is not None
        me = self._or(lambda: instance.store.repository.user.ident, "") if asks or whose else ""
        return {
            "judged": self._or(lambda: steps.shown_view(instance, head), _NOTHING) if asks else _NOTHING,
            "me": me,
            "made": self._or(self._made, 0),
            "running": {"persona": None, **step_value(running)} if running else None,
            "child": running.child.thread if running and running.child else None,
            "live": steps.live_turns(instance, head.thread) if running else ([], 0),
            "remarks": self._or(self._remarks, []),
            "chosen": None if asks or is_running else self._or(self._newest, None),
        }

    def _requests(self) -> list[dict[str, Any]]:
        """Return what the running agent asks leave for, each with the address where that is decided."""
        requests = steering_value(self._instance, self._head).get("permissions", [])
        return [
            {**request, "address": item_address(request["thread"], request["request"])}
            for request in requests
        ]

    def _remarks(self) -> list[dict[str, Any]]:
        waiting = steering_value(self._instance, self._head).get("remarks", [])
        return [{**remark, "fate": remark_fate(remark)} for remark in waiting]

    def _newest(self) -> dict[str, Any] | None:
        bars = [bar for bar in self._run["bars"] if bar["node"]]
        if not bars:
            return None
        last = bars[-1]
        if last["kind"] == "attempt":
            return steps.chosen_attempt(self._instance, self._head, last["node"], self._asked)
        return steps.chosen_step(self._instance, self._head, str(last["number"]), self._asked)

    # Above the steps

    def _turn(self, state: ThreadState) -> HumanTurn | None:
        if state is not ThreadState.PERSONS_TURN:
            return None
        return self._or(lambda: human_turn_of(self._instance, self._head), None)

    def _task(self) -> str | None:
        node = self._head.row.start
        if node is None or node_weight(self._instance, node) > LARGEST_IN_A_LINE:
            return None
        return self._instance.store.start(node).prompt

    def _folded(self) -> str:
        if self._instance.store.repository.ref(layout.ARCHIVE + self._head.thread) is not None:
            return ""
        row = self._instance.store.folded(self._head.thread) if self._head.archive else None
        return row.ref if row is not None else ""

    def _ref(self) -> str:
        if self._folded():
            return str(self._head.commit)
        return (layout.ARCHIVE if self._head.archive else layout.THREADS) + self._head.thread

    def _graph(self) -> GraphView | None:
        graph = self._run["graph"]
        if graph is None:
            return None
        last = {node["id"]: node["step"] for node in graph["nodes"]}

        def address(role: str) -> str | None:
            return page_addresses.step(self._head.thread, last[role]) if last[role] else None

        roles = sum(not node["end"] for node in graph["nodes"])
        picture = Markup(drawing(graph)) if roles <= _DRAWN else None
        return GraphView(graph["code"], graph["ways"], roles, picture, described(graph, address))

    def _kin(self) -> Mapping[str, Any]:
        parent, tree, rest = related_threads(self._instance, self._head, self._rows)
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

    def _code(self) -> CodeView | None:
        def too_large(detail: Hash) -> bool:
            return node_weight(self._instance, detail) > LARGEST_IN_A_LINE

        return code_of_thread(self._instance, self._head.thread, self._rows, too_large)

    def _made(self) -> int:
        attempts = self._instance.attempts
        return self._head.row.number + attempts.count(attempts.tip(self._head.thread))


_NOTHING = steps.ShownView()
_NOW = {
    ThreadState.RUNNING.word: ("▸", "at work ", "at-work"),
    ThreadState.JOINING.word: ("…", "", "at-work"),
    ThreadState.ASKING.word: ("…", "waits ", "waits"),
}
"""Of the kinds of a bar of what goes on now: a sign in place of a number, words before what came, and a class."""

_LIMITS = {"maxSteps": "steps", "maxTokens": "tokens", "maxCost": "money", "maxWallTime": "agents' time"}


class MainAction(NamedTuple):
    """The action that matters most: its name, "" for a link to what is asked, the words and the key of its button."""

    name: str
    label: str
    key: str


def _main_action(may: PossibleActions | None, state: ThreadState, at: Mapping[str, Any]) -> MainAction | None:
    if may is None:
        return None
    if "answer" in may.names:
        return MainAction("", "Answer", "a")
    if state is ThreadState.OVER_BUDGET and "budget" in may.names:
        return MainAction("", "Raise the budget", "a")
    has_failed = state.word == ThreadState.FAILED.word
    for name in ("retry", "run") if has_failed else ("run",):
        if name in may.names:
            return MainAction(name, "Retry" if has_failed else "Run", "r")
    if at["paused"] and "resume" in may.names:
        return MainAction("resume", "Resume", "r")
    return next((MainAction(name, label, "l") for name, label in may.others), None)


def _spent(run: Mapping[str, Any]) -> list[str]:
    """Return what a thread took, in words."""
    parts = [f"{run['tokens']:,} tokens"] if run["tokens"] is not None else []
    parts += [in_dollars(run["cost"], run["unpriced"])] if run["cost"] is not None else []
    return parts + ([lasted(run["seconds"])] if (run["seconds"] or 0) >= 0.05 else [])


def _how_to_raise(instance: Instance, head: Head) -> str:
    standing = used_up_budget(instance, head)
    return standing.waiting(head.thread).hint if standing is not None else ""
