"""`/`: what a person can do something about, one after another: what asks, failed, is over its budget or is ready to
land, with what it is about and the answer below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from uwf_git.ext.web import step as steps
from uwf_git.ext.web.possible import PossibleActions, possible
from uwf_git.ext.web.waiting import Raise, raise_of, state_values
from uwf_git.plugin import (
    LARGEST_IN_A_LINE,
    Hash,
    Head,
    InboxEntry,
    Instance,
    Page,
    PageRequest,
    ThreadId,
    ThreadState,
    UwfError,
    cut_text,
    human_turn_of,
    inbox_entries,
    inbox_groups,
    inbox_items,
    node_weight,
    page_addresses,
    thread_state,
    thread_state_value,
)

if TYPE_CHECKING:
    from uwf_git.plugin import ActionPlan, HumanTurn

SHOWN = 200
"""How many items the queue shows."""

NOTHING = "-"
"""The item that follows the only one, in a form."""

_PRINTED = 4000  # characters of what a failed attempt said and printed

T = TypeVar("T")


class Tried(NamedTuple):
    """The failed attempt at a thread's next step; `answer` is what its agent said, `printed` the end of what it
    printed."""

    node: Hash
    time: int
    role: str
    agent: str
    answer: str
    printed: str


class Shown(NamedTuple):
    """A chosen item: its JSON, the form value of the `following` one, and the parts of its page. `head` is None if it
    cannot be read, `problems` say why. `plan` is what the action would do that it is queued for."""

    item: Mapping[str, Any]
    following: str
    head: Head | None = None
    may: PossibleActions | None = None
    plan: ActionPlan | None = None
    state: Mapping[str, Any] = state_values({})
    turn: HumanTurn | None = None
    judged: steps.ShownView = steps.ShownView()
    tried: Tried | None = None
    raised: Raise | None = None
    problems: tuple[str, ...] = ()


def page(instance: Instance, request: PageRequest) -> Page:
    """Show the inbox. Query: `at`, the thread that is shown, else the first, and `request`, which of its
    requests for leave; `for`, whose inbox. Raises NotFound for an unknown person."""
    whom = request.one("for") or None
    entries = inbox_entries(instance, whom)
    at = request.one("at")
    wanted = tuple(filter(None, (at, request.one("request"))))  # of a thread alone, the first entry
    places = (tuple(filter(None, _place(entry)))[: len(wanted)] for entry in entries)
    number = next((number for number, place in enumerate(places) if place == wanted), None) if at else None
    further = entries[number : number + 1] if number is not None and number >= SHOWN else []
    items = inbox_items(instance, [*entries[:SHOWN], *further])
    item = items[-1 if further else number or 0] if items else None
    shown = _shown(instance, item, _following(entries, number or 0)) if item else None
    return Page(
        "inbox.html",
        "Inbox",
        {
            "queue": _groups(items[:SHOWN]),
            "more": max(0, len(entries) - SHOWN),
            "shown": shown,
            "head": shown.head if shown else None,
            "chosen": number is not None,
            "gone": at if at and number is None else "",
            "whom": whom or "",
            "asked": request,
            "waits": None if whom else len(entries),
            "me": _or(lambda: instance.store.repository.user.ident, ""),
        },
    )


def next_address(thread: ThreadId, following: str) -> str:
    """Return the page after an action on a thread: the thread's, or the inbox at the `following` item of its form."""
    if not following:
        return page_addresses.thread(thread)
    if following == NOTHING:
        return "/"
    at, _, request = following.partition("~")
    return item_address(at, request)


def item_address(thread: str, request: str = "") -> str:
    """Return the address of a thread in the inbox, or of its agent's `request` for leave."""
    return f"/?{urlencode({'at': thread, **({'request': request} if request else {})})}"


def _place(entry: InboxEntry) -> tuple[str, str | None]:
    """Return the thread of an entry, and the request if it asks for leave: a thread may have several."""
    return entry.listed.thread, entry.request["request"] if entry.request is not None else None


def _following(entries: Sequence[InboxEntry], number: int) -> str:
    """Return the place of the entry after one, else of the first; NOTHING if there is no other."""
    if len(entries) < 2:
        return NOTHING
    return "~".join(filter(None, _place(entries[(number + 1) % len(entries)])))


def _groups(items: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    groups = (
        (words, [item for item in items if item["group"] == name]) for name, words in inbox_groups().items()
    )
    return [(words, members) for words, members in groups if members]


def _shown(instance: Instance, item: Mapping[str, Any], following: str) -> Shown:
    shown = Shown(item, following)
    problems: list[str] = []

    def read(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except UwfError as error:
            problems.append(error.message)
            return None

    head = read(lambda: instance.threads.head(item["thread"]))
    if head is not None:
        state = read(lambda: thread_state(instance, head)) or ThreadState.CORRUPT
        may = read(lambda: possible(instance, head, state))
        plan = may.plans.get(item["group"]) if may is not None else None
        shown = shown._replace(
            head=head,
            may=may,
            plan=plan,
            state=state_values(read(lambda: thread_state_value(instance, head)) or {}),
            turn=read(lambda: human_turn_of(instance, head)) if state is ThreadState.PERSONS_TURN else None,
            judged=read(lambda: steps.shown_view(instance, head, plan.code if plan else None))
            or shown.judged,
            tried=read(lambda: _tried(instance, head)) if state is ThreadState.FAILING else None,
            raised=raise_of(item["command"]),
        )
    return shown._replace(problems=tuple(dict.fromkeys(problems)))


def _tried(instance: Instance, head: Head) -> Tried | None:
    tip = instance.attempts.tip(head.thread)
    for row in instance.attempts.rows(tip)[-1:] if tip else ():
        if node_weight(instance, row.node) > LARGEST_IN_A_LINE:
            break
        attempt = instance.store.attempt(row.node)
        printed = "\n".join(text.rstrip() for text in (attempt.stdout, attempt.stderr) if text.strip())
        by = attempt.role, attempt.agent
        return Tried(row.node, row.time, *by, _said(instance, attempt.detail), printed[-_PRINTED:])
    return None


def _said(instance: Instance, node: Hash | None) -> str:
    if node is None or node_weight(instance, node) > LARGEST_IN_A_LINE:
        return ""
    detail = instance.store.detail(node)
    return cut_text(detail.answer, _PRINTED) if detail is not None else ""


def _or(make: Callable[[], T], otherwise: T) -> T:
    try:
        return make()
    except UwfError:
        return otherwise
