"""`/thread/ID`: a thread's state, graph, steps and relatives.

Long threads are read from the index; only shown steps are read themselves. Unreadable and oversized parts are
reported in place.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from markupsafe import Markup

from uwf_git.ext.web import step as steps
from uwf_git.ext.web.actions import possible
from uwf_git.ext.web.code import CodeView, code_of_thread
from uwf_git.ext.web.page.graph import described, drawing
from uwf_git.ext.web.page.step import lasted, took
from uwf_git.plugin import (
    BUNDLE,
    END,
    LARGEST_IN_A_LINE,
    STEPS_SHOWN,
    USER,
    HumanTurn,
    Page,
    PageRequest,
    RelatedThread,
    ThreadState,
    UwfError,
    Watch,
    ancestry,
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
    role_name,
    run_view,
    step_value,
    thread_outlook,
    thread_state,
    used_up_budget,
)

if TYPE_CHECKING:
    from uwf_git.plugin import CommitRow, Hash, Head, Instance, StartNode, ThreadId, Workflow

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
        self._instance = instance
        self._asked = asked
        self._head = head
        self._problems: dict[str, None] = {}
        self._run = run_view(instance, head, asked.number("before"))
        self._rows = list(self._read_rows())
        """Of the steps, oldest first."""
        self._start = self._or(self._read_start, None)
        self._workflow = self._or(self._read_workflow, None)

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
        if node is None or node_weight(self._instance, node) > LARGEST_IN_A_LINE:
            return None
        return self._instance.store.start(node)

    def _read_workflow(self) -> Workflow | None:
        node = self._head.row.workflow
        if node is None or node_weight(self._instance, node) > 4 * LARGEST_IN_A_LINE:
            return None
        return self._instance.registry.workflow(node)

    def page(self) -> Page:
        instance, head = self._instance, self._head
        around: Mapping[str, Any] = self._or(self._kin, {"parent": None, "tree": None, "left_out": 0})
        state = self._or(lambda: thread_state(instance, head), ThreadState.CORRUPT)
        run = self._run
        at, status = run["state"], run["status"]
        if status == ThreadState.CORRUPT.word:
            state = ThreadState.CORRUPT
        turn_of = self._turn(state)
        is_running = status == ThreadState.RUNNING.word
        running = Watch(instance).step(head.thread) if is_running else None
        title = head.row.title or head.thread
        now = at.get("asks") if at["next"] == USER else at["next"]
        if head.archive is not None and not (
            run["graph"] and any(node["now"] for node in run["graph"]["nodes"])
        ):
            now = None
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
            "author": author_name(head.row.author or ""),
            "made_up": head.row.rehearsed,
            "spent": _spent(run),
            "census": census_text(at["census"]) if "census" in at else "",
            "budget": [
                (_LIMITS[limit["limit"]], limit["text"], min(limit["used"], limit["most"]), limit["most"])
                for limit in run["budget"]
            ],
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
            "graph": self._graph(),
            "described": self._described(),
            "made": self._or(self._made, 0),
            "ways": run["graph"]["ways"] if run["graph"] else (),
            "who": now if now in (None, END, BUNDLE) else role_name(now),
            "here": now,
            "turn": next((node["turn"] for node in run["graph"]["nodes"] if node["now"]), "")
            if run["graph"]
            else "",
            "code": self._or(self._code, None),
            "entries": [
                {**bar, "took": took(bar), "role": role_name(bar["role"])}
                for bar in run["bars"]
                if bar["kind"] not in ("running", "joining", "waiting")
            ],
            "first": run["first"],
            "last": run["last"],
            "older": run["first"] - 1,
            "newer": head.row.number - run["last"],
            "page_size": STEPS_SHOWN,
            "running": {"persona": None, **step_value(running)} if running else None,
            "child": running.child.thread if running and running.child else None,
            "live": steps.live_turns(instance, head.thread) if running else ([], 0),
            **around,
            "asked": self._asked,
            "reached": at.get("state"),
            "became": self._or(lambda: extensions.work_states(instance, [head]).get(head.thread), None),
            "log": f"git --git-dir {shlex.quote(str(instance.location.git_dir))} log {self._ref()}",
        }
        values["problems"] = list(dict.fromkeys([*run["problems"], *self._problems]))
        return Page("thread.html", brief(title, 80), values)

    # Above the steps

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

    def _graph(self) -> Markup | None:
        graph = self._run["graph"]
        if graph is None or self._workflow is None or len(self._workflow.roles) > _DRAWN:
            return None
        return Markup(drawing(graph))

    def _described(self) -> str | None:
        graph = self._run["graph"]
        last = {node["id"]: node["step"] for node in graph["nodes"]} if graph else {}

        def address(role: str) -> str | None:
            return page_addresses.step(self._head.thread, last[role]) if last[role] else None

        return described(graph, address) if graph else None

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


def _spent(run: Mapping[str, Any]) -> list[str]:
    """Return what a thread took, in words."""
    parts = [f"{run['tokens']:,} tokens"] if run["tokens"] is not None else []
    parts += [in_dollars(run["cost"], run["unpriced"])] if run["cost"] is not None else []
    return parts + ([lasted(run["seconds"])] if (run["seconds"] or 0) >= 0.05 else [])


def _how_to_raise(instance: Instance, head: Head) -> str:
    standing = used_up_budget(instance, head)
    return standing.waiting(head.thread).hint if standing is not None else ""
