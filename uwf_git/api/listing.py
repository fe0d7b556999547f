"""Listing and searching threads by filters, as JSON."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import extensions
from uwf_git.base.errors import NotFound, UnknownWord, UwfError
from uwf_git.base.text import counted, iso, nearest, one_line
from uwf_git.base.thread_states import Actor, ThreadState

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from uwf_git.engine.below import Below
    from uwf_git.engine.thread_state import ThreadStates
    from uwf_git.engine.waits import Waits
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance
    from uwf_git.store.projects import Project
    from uwf_git.store.threads import DamagedThread


ALL = frozenset(ThreadState)
ENDED = frozenset(state for state in ThreadState if state.is_ended)
ACTIVE = ALL - ENDED - {ThreadState.CORRUPT}
"""The states of threads that can be read and have not ended."""
TO_STEP = frozenset(
    state
    for state in ALL
    if state.is_ready
    or state.actor is Actor.BRANCHES
    or state in (ThreadState.INTERRUPTED, ThreadState.STOPPED)
)
"""The states of threads that a step, or one of their branches, may take on."""


SORTS = ("created", "updated", "cost", "steps")
"""The orders of a list: newest or largest first."""
ME = "me"
"""The author that is git's identity."""


class Filters(NamedTuple):
    """Conditions on threads, all of which must hold; several states are alternatives. An `author` is a part of a name
    or address, or ME. `since` and `until` (exclusive) are in Unix seconds, for the last step or a later try of one;
    `ended` includes finished threads, `only_ended` selects them, `unretried` omits failed ones that were forked since.
    `sort` is one of SORTS. `min_cost` is in US dollars; threads whose cost is unknown have not that much."""

    states: frozenset[ThreadState] = frozenset()
    workflow: str | None = None
    author: str | None = None
    since: float | None = None
    search: str | None = None
    ended: bool = False
    until: float | None = None
    only_ended: bool = False
    sort: str = "created"
    unretried: bool = False
    min_cost: float | None = None


class ListedThread(NamedTuple):
    """A thread of a list, which may be damaged."""

    head: Head | DamagedThread
    state: ThreadState

    @property
    def thread(self) -> ThreadId:
        return self.head.thread

    @property
    def has_ended(self) -> bool:
        return bool(getattr(self.head, "archive", None))


def listed(instance: Instance, wanted: Filters) -> list[ListedThread]:
    """Return matching threads of the project, newest first: active and damaged ones, unless `ended` or a state asks
    for others. Raises NotFound for an unknown workflow."""
    return listed_and_left_out(instance, wanted)[0]


def listed_and_left_out(instance: Instance, wanted: Filters) -> tuple[list[ListedThread], int]:
    """The same, and the number of those that are not of the project."""
    every = _listed(instance, wanted)
    meant = [thread for thread in every if instance.threads.is_meant(thread.head)]
    return meant, len(every) - len(meant)


def left_out_line(number: int) -> str:
    """Return the line about threads that are not of the project."""
    return f"{counted(number, 'thread')} of other projects left out; --all-projects includes them"


def _listed(instance: Instance, wanted: Filters) -> list[ListedThread]:
    from uwf_git.engine.thread_state import ThreadStates
    from uwf_git.store.history import Head
    from uwf_git.store.threads import DamagedThread

    heads = instance.threads.all(wanted.ended or wanted.only_ended or not wanted.states.isdisjoint(ENDED))
    if wanted.only_ended:
        heads = [head for head in heads if not isinstance(head, DamagedThread) and head.archive]
    heads = _like(instance, heads, wanted)
    states = ThreadStates(instance)
    threads = [_with_state(head, states) for head in heads]
    if wanted.states:
        damaged = _damaged(instance, threads) if ThreadState.CORRUPT in wanted.states else frozenset()
        threads = [thread for thread in threads if thread.state in wanted.states or thread.thread in damaged]
    if wanted.min_cost is not None:
        spent = _spent(instance, [thread.head for thread in threads if isinstance(thread.head, Head)])
        dear = {thread for thread, (cost, _, _) in spent.items() if (cost or 0) >= wanted.min_cost}
        threads = [thread for thread in threads if thread.thread in dear]
    return unretried(instance, threads) if wanted.unretried else threads


def _damaged(instance: Instance, threads: Sequence[ListedThread]) -> frozenset[ThreadId]:
    """Return the threads of which the index tells a state and a node cannot be read."""
    from uwf_git.api.cockpit.line import Lines
    from uwf_git.store.history import Head

    heads = [(thread.head, thread.state) for thread in threads if isinstance(thread.head, Head)]
    lines = Lines(instance, [head for head, _ in heads])
    return frozenset(head.thread for head, state in heads if lines.of(head, state).is_damaged)


def unretried(instance: Instance, threads: list[ListedThread]) -> list[ListedThread]:
    """Return threads without those that have ended at `$FAIL` and were forked since."""
    from uwf_git.api.cockpit.retry import newest_forks, retried_by
    from uwf_git.store.history import Head

    forks = newest_forks(instance)
    return [
        thread
        for thread in threads
        if not (
            thread.state is ThreadState.FAILED
            and isinstance(thread.head, Head)
            and retried_by(thread.head, forks)
        )
    ]


def _with_state(head: Head | DamagedThread, states: ThreadStates) -> ListedThread:
    from uwf_git.store.threads import DamagedThread

    try:
        return ListedThread(head, states.of(head))
    except UwfError as error:
        return ListedThread(DamagedThread.by(head.thread, error), ThreadState.CORRUPT)


def _like(
    instance: Instance, heads: list[Head | DamagedThread], wanted: Filters
) -> list[Head | DamagedThread]:
    from uwf_git.store.history import Head

    if wanted.workflow is not None:
        _require_known(instance, wanted.workflow)
    if (wanted.workflow, wanted.author, wanted.since, wanted.until, wanted.search) == (None,) * 5:
        return heads
    author = _author(instance, wanted.author).casefold()
    forked_by = _forked_by(instance) if author else {}
    is_dated = (wanted.since, wanted.until) != (None, None)
    tried = _last_tries(instance, heads) if is_dated else {}

    def changed(head: Head) -> float:
        return max(head.updated, tried.get(head.thread, 0))

    alike = [
        head
        for head in heads
        if isinstance(head, Head)
        and (wanted.workflow is None or _is_of(wanted.workflow, head.row.name, head.row.workflow))
        and (wanted.since is None or changed(head) >= wanted.since)
        and (wanted.until is None or changed(head) < wanted.until)
        and (author in (head.row.author or "").casefold() or author in forked_by.get(head.thread, ""))
    ]
    if wanted.search is None:
        return list(alike)
    text, prompts = wanted.search.casefold(), dict[str, bool]()
    return [head for head in alike if _asks_for(instance, head, text, prompts)]


def _last_tries(instance: Instance, heads: Sequence[Head | DamagedThread]) -> dict[ThreadId, float]:
    """Return when a step failed last, or one began whose engine is gone or at work, in Unix seconds."""
    threads = [head.thread for head in heads]
    ordered = instance.runs.ordered()
    began = {thread: instance.runs.began(thread) or 0 for thread in threads if thread in ordered}
    failed = {
        thread: instance.store.index_commit(tip).time
        for thread, tip in instance.attempts.tips(threads).items()
    }
    return {thread: max(began.get(thread, 0), failed.get(thread, 0)) for thread in {*began, *failed}}


def _author(instance: Instance, author: str | None) -> str:
    if author != ME:
        return author or ""
    user = instance.store.repository.user
    return user.email or user.name


def _forked_by(instance: Instance) -> dict[ThreadId, str]:
    from uwf_git.store.history import links

    return {link.thread: link.by.casefold() for link in links(instance.store).values() if link.forked}


def _asks_for(instance: Instance, head: Head, text: str, known: dict[str, bool]) -> bool:

    if text in (head.row.title or "").casefold():
        return True
    start = head.row.start or head.row.node
    if start not in known:
        known[start] = text in instance.store.start(start).prompt.casefold()
    return known[start]


def _is_of(workflow: str, name: str | None, node: str | None) -> bool:
    return name == workflow or (len(workflow) >= 4 and (node or "").startswith(workflow.upper()))


def _require_known(instance: Instance, workflow: str) -> None:
    from uwf_git.store.history import Head

    rows = [head.row for head in instance.threads.all(archived=True) if isinstance(head, Head)]
    names = {*instance.registry.names(), *(row.name or "" for row in rows)}
    if "/" in workflow:
        from uwf_git.store.definitions import addresses

        names.update(addresses(instance.store))
    if workflow not in names and not any(_is_of(workflow, row.name, row.workflow) for row in rows):
        hint = nearest(workflow, sorted(names)) or "see: uwf workflow list"
        raise NotFound(f"no workflow {workflow!r}", hint)


def without_quiet_branches(instance: Instance, threads: list[ListedThread]) -> list[ListedThread]:
    """Return threads without those branches of others among them, and calls of code, that are idle or have ended, and
    without killed branches of a fork that no thread has, such as one that lost a race."""
    from uwf_git.engine.lineage import parents
    from uwf_git.format.types import OF_BRANCH
    from uwf_git.store.history import Head, is_call

    if not instance.store.index.has_any_with(OF_BRANCH):
        return threads
    quiet = [
        thread.head
        for thread in threads
        if isinstance(thread.head, Head) and (thread.state.is_ready or thread.has_ended)
    ]
    here = {thread.thread for thread in threads}
    calls = {head.thread for head in quiet if is_call(instance.store, head.row.start)}
    branches = [head for head in quiet if instance.threads.fork_of(head) is not None]
    above = parents(instance, branches)
    killed = {thread.thread for thread in threads if thread.state is ThreadState.KILLED}
    left_out = calls | {
        head.thread
        for head in branches
        if (above[head.thread] in here if head.thread in above else head.thread in killed)
    }
    return [thread for thread in threads if thread.thread not in left_out]


def depth_first(instance: Instance, threads: Sequence[ThreadId]) -> list[ThreadId]:
    """Return threads in the order in which to step them: those with the most steps first, others as they were. So a
    budget that is used up leaves finished threads, not many that are half done."""
    heads = instance.threads.heads(threads)
    return sorted(threads, key=lambda thread: -heads[thread].row.number if thread in heads else 0)


def why_not_stepped(instance: Instance, thread: ListedThread, runs: Container[ThreadId]) -> str:
    """Return why a run that selects threads does not take one on, "" if it does; `runs` are those that processes
    run."""
    from uwf_git.store.history import Head, is_call

    if thread.thread in runs:
        return "a process here runs it"
    if not isinstance(thread.head, Head):
        return ""
    if thread.has_ended:
        at_fail = "it has ended at $FAIL, and uwf thread fork ID --from-role ROLE tries a step again"
        return at_fail if thread.state is ThreadState.FAILED else "it has ended"
    if is_call(instance.store, thread.head.row.start):
        return "its script asks it: run that"
    return "it is a conversation, and it is your turn" if rests(instance, thread) else ""


def rests(instance: Instance, thread: ListedThread) -> bool:
    """Return whether a thread is a conversation at rest."""
    from uwf_git.engine.conversation import at_rest
    from uwf_git.store.history import Head

    return thread.state.is_ready and isinstance(thread.head, Head) and at_rest(instance, thread.head)


def in_order(instance: Instance, threads: list[ListedThread], sort: str) -> list[ListedThread]:
    """Return threads, newest first, by one of SORTS; those without a value are last."""
    from uwf_git.store.history import Head

    if sort == "created":
        return threads
    heads = [thread.head for thread in threads if isinstance(thread.head, Head)]
    values: dict[ThreadId, float | None]
    if sort == "updated":
        values = {head.thread: head.updated for head in heads}
    elif sort == "steps":
        values = {head.thread: head.row.number for head in heads}
    else:
        values = {thread: cost for thread, (cost, _, _) in _spent(instance, heads).items()}

    def rank(thread: ListedThread) -> tuple[bool, float]:
        value = values.get(thread.thread)
        return value is None, -(value or 0)

    return sorted(threads, key=rank)


def _spent(instance: Instance, heads: Sequence[Head]) -> dict[ThreadId, tuple[float | None, int, float]]:
    """Return what threads have cost, None if nothing is known, the tokens without a price, and agents' seconds."""
    from uwf_git.engine.thread_spending import spent_by_all

    totals = spent_by_all(instance, heads)
    known = instance.known_prices if any(item.lines for item in totals.values()) else {}
    return {
        thread: (*(item.money(known) if item.lines else (None, 0)), item.seconds)
        for thread, item in totals.items()
    }


def thread_items(
    instance: Instance, threads: list[ListedThread], waits: Mapping[ThreadId, Waits] = {}
) -> list[dict[str, Any]]:
    """Return threads as JSON, in order. `line` is what each is about: see `api.cockpit.line`; `seconds` are its
    agents' so far, `started` when its id was made, `waitingBelow` how many threads that work for it wait for a person,
    if any; one that is `paused` while at work pauses after its step. `waits` is what is known of what they wait for."""
    from uwf_git.api.cockpit.line import LONGEST, REASON, Line, Lines, of_work
    from uwf_git.engine.lineage import parents
    from uwf_git.engine.pause import paused_threads
    from uwf_git.format.ids import time_of
    from uwf_git.store.history import Head

    if not threads:
        return []
    heads = [item.head for item in threads if isinstance(item.head, Head)]
    lines = Lines(instance, heads, waits)
    above, origins = parents(instance, heads), origins_of(instance)
    runs, paused, below = instance.locks.runs(), paused_threads(instance), _below(instance, threads)
    spent = _spent(instance, heads)
    work = extensions.work_states(instance, heads)
    nothing = {
        "thread": None,
        "workflow": None,
        "head": None,
        "status": ThreadState.CORRUPT.word,
        "name": None,
        "title": None,
    }
    nothing |= dict.fromkeys(("author", "steps", "role", "agent", "rehearsed", "cost", "unpriced"))
    nothing |= dict.fromkeys(("now", "line", "lineKind", "started", "seconds", "silent"))
    items: list[dict[str, Any]] = []
    for thread in threads:
        head = thread.head
        if not isinstance(head, Head):
            ending = {"updated": None, "parent": None, "problem": head.problem, **project_value(None)}
            line = Line(None, one_line(head.problem, LONGEST), REASON)
            items.append({**nothing, "thread": head.thread, **line.as_json(), **ending})
            continue
        row, line = head.row, of_work(lines.of(head, thread.state), work.get(head.thread))
        cost, unpriced, seconds = spent.get(head.thread, (None, 0, 0.0))
        items.append(
            {
                "thread": head.thread,
                "workflow": row.workflow,
                "head": row.node,
                "status": thread.state.word,
                **(below.value(head, thread.state) if below else {}),
                "name": row.name,
                "title": row.title,
                "author": row.author,
                "steps": row.number,
                "role": row.role,
                "agent": row.agent,
                "rehearsed": row.rehearsed,
                "cost": None if cost is None else round(cost, 6),
                "unpriced": unpriced,
                "updated": iso(head.updated),
                "parent": above.get(head.thread),
                **project_value(instance.threads.projects.of(head)),
                "started": iso(time_of(head.thread)),
                "seconds": round(seconds + (line.running or 0.0), 3),
                **line.as_json(),
                **({"run": True} if head.thread in runs else {}),
                **(_pause(instance, head.thread) if head.thread in paused else {}),
                **origins.get(head.thread, {}),
                **_branches(instance, head),
                **({"work": work[head.thread].as_json()} if head.thread in work else {}),
                **_unjudged(instance, head),
                **(line.waits.standing.as_json(head.thread) if line.waits and line.waits.standing else {}),
            }
        )
    lines.remember()
    return items


def project_value(project: Project | None) -> dict[str, Any]:
    """Return a thread's project as JSON."""
    return {
        "project": None if project is None else project.name,
        "projectId": None if project is None else project.id,
    }


def _below(instance: Instance, threads: Sequence[ListedThread]) -> Below | None:
    if all(thread.state not in (ThreadState.RUNNING, ThreadState.JOINING) for thread in threads):
        return None
    from uwf_git.engine.below import Below

    return Below(instance)


def _pause(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    from uwf_git.engine.pause import pause_of

    with suppress(UwfError):  # it is damaged, which the command that resumes it says
        if (pause := pause_of(instance, thread)) is not None:
            return {"paused": pause.as_json()}
    return {}


def _branches(instance: Instance, head: Head) -> dict[str, Any]:
    """Return how many branches of a thread have each status, if it waits for them, and the index of a branch."""
    value: dict[str, Any] = {}
    if (branch := instance.threads.fork_of(head)) is not None:
        value["branch"] = branch[1]
    if head.waits_for_join:
        from uwf_git.engine.branch_states import awaited_value

        try:
            value |= awaited_value(instance, head)
        except UnknownWord as error:
            value["problem"] = f"{error.message}; {error.hint}"
    return value


def _unjudged(instance: Instance, head: Head) -> dict[str, str]:
    limit = instance.judging.stuck.get(head.node)
    return {} if limit is None else {"problem": limit.message}


def origins_of(instance: Instance) -> dict[ThreadId, dict[str, Any]]:
    """Return the origin of each fork and divergence, as `link_value`. Damaged ones are omitted."""
    from uwf_git.store.history import links

    if not (parted := links(instance.store)):
        return {}
    from uwf_git.base.errors import UwfError
    from uwf_git.engine.state import link_value

    origins: dict[ThreadId, dict[str, Any]] = {}
    for link in parted.values():
        with suppress(UwfError):
            origins[link.thread] = link_value(instance, link)
    return origins


def nested(items: Sequence[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Return the JSON of threads below that of their parents, each with its depth; ids don't tell, since that of a
    branch may be older than its parent's."""
    here = {item["thread"] for item in items}
    below: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        below.setdefault(item["parent"] if item["parent"] in here else "", []).append(item)
    rows: list[tuple[int, dict[str, Any]]] = []
    waiting = [(0, item) for item in reversed(below.get("", ()))]
    while waiting:
        depth, item = waiting.pop()
        rows.append((depth, item))
        waiting += [(depth + 1, child) for child in reversed(below.get(item["thread"], ()))]
    return rows


class SearchResult(NamedTuple):
    """Matching lines as JSON; `is_whole`: all threads could be searched."""

    hits: list[dict[str, Any]]
    is_whole: bool


def search(
    instance: Instance,
    threads: Iterable[ListedThread],
    pattern: str,
    options: Sequence[str],
    role: str | None,
    context: int = 0,
) -> SearchResult:
    """Search threads with git grep and its `options`, or only a `role`'s outputs. A hit has the lines `before` and
    `after` it if there is a `context` of lines. Warns of unreadable threads. Raises as `engine.grep.grep`."""
    from uwf_git.engine.grep import grep
    from uwf_git.store.history import Head

    heads: list[Head] = []
    is_whole = True
    for item in threads:
        if isinstance(item.head, Head):
            heads.append(item.head)
        else:
            is_whole = False
            instance.warn(f"thread {item.head.thread} cannot be searched: {item.head.problem}")
    hits, unread = grep(instance, heads, pattern, options, role, context)
    for thread, error in unread.items():
        instance.warn(f"thread {thread} cannot be searched whole: {error.message} — {error.hint}")
    value = [
        {
            "thread": hit.place.thread,
            "step": hit.place.node,
            "number": hit.place.number,
            "role": hit.place.role,
            "where": hit.where,
            "line": hit.line,
            "column": hit.column,
            "text": hit.text,
            **({"before": hit.before, "after": hit.after} if context else {}),
        }
        for hit in hits
    ]
    return SearchResult(value, is_whole and not unread)
