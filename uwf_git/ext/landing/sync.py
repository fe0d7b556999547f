"""`uwf land --sync`: what reviewers and checks said about a request becomes a turn of its thread.

What was given before follows from the texts of the thread's users alone, in it and in all that share its start, so that
a repeated call gives nothing twice, on any machine that has them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.landing.destination import Destination, branch_at, destination_of
from uwf_git.ext.landing.effect_records import ENDED, RecordedEffect
from uwf_git.ext.landing.effects import Sending, once, settle_further
from uwf_git.ext.landing.kin import effects_in_line, goes_on_as, kin_of, texts_of_user
from uwf_git.ext.landing.merge_notes import merge_note, shown
from uwf_git.ext.landing.thread_turn import tell_thread
from uwf_git.plugin import (
    FORGE_MARK,
    Feedback,
    ForgeDeclined,
    Invalid,
    NotFound,
    client_for,
    feedback_entries,
    feedback_text,
    one_line,
    parse_repository,
    place_of_feedback,
    start_of,
    words,
)

if TYPE_CHECKING:
    from uwf_git.plugin import ForgeChange, Head, Instance, ReviewClient, ThreadId

_BRANCHES = 3  # whose requests are looked for if none is recorded


class Synced(NamedTuple):
    """What was read of a thread's request: `items` were given to the thread `told`, None without any; `left` more are
    for another call, `unread` the token may not read."""

    thread: ThreadId
    number: int
    url: str
    state: str
    items: tuple[Feedback, ...] = ()
    told: ThreadId | None = None
    left: int = 0
    unread: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        items = [
            {
                "kind": item.kind,
                "id": item.id,
                "author": one_line(item.author, 100),
                "standing": item.standing,
                "place": place_of_feedback(item),
                "verdict": item.verdict,
                "text": one_line(item.body, 200),
            }
            for item in self.items
        ]
        return {**self._asdict(), "items": items}


class Request(NamedTuple):
    """A request that a thread, or one of its kin, has opened, and the record of that."""

    thread: ThreadId
    effect: RecordedEffect

    @property
    def number(self) -> int:
        settlement = self.effect.settlement
        text = settlement.reference if settlement is not None else ""
        return int(text) if re.fullmatch("[1-9][0-9]{0,17}", text) else 0


def requests_of(instance: Instance, head: Head, target: str, branch: str = "") -> list[Request]:
    """Return the recorded requests of a thread's line at a repository, or of one branch: those that have ended first,
    then the older ones."""
    requests = [
        Request(thread, item)
        for thread, item in effects_in_line(instance, head, words.PULL_REQUEST)
        if item.effect.target == target and item.is_settled
    ]
    named = [item for item in requests if item.number and branch in ("", item.effect.effect.name)]
    return sorted(named, key=lambda item: (item.effect.outcome not in ENDED, item.effect.effect.at))


def raise_if_merged(instance: Instance, head: Head, client: ReviewClient, branch: str) -> None:
    """Raise Invalid if the request of a thread's work is recorded as merged. Asks no forge."""
    requests = requests_of(instance, head, f"https://{client.repository}", branch)
    if requests and requests[-1].effect.outcome == words.MERGED:
        settlement = requests[-1].effect.settlement
        assert settlement is not None
        raise Invalid(
            f"request {settlement.reference} of thread {head.thread} is {shown(settlement.reason)}",
            f"further work: uwf land {head.thread} --branch NAME",
        )


def sync_reviews(instance: Instance, head: Head, remote: str = "", branch: str = "") -> Synced:
    """Give the thread what is new, or record that its request was merged or closed. Raises Invalid, NotFound for a
    request that is gone, RemoteFailed, Declined, and as `tell_thread`."""
    begin = start_of(instance.store, head.commit).oid.hex()
    with instance.locks.turn(f"sync-{begin}", waits=lambda _holders: None):
        kin = kin_of(instance, head)
        destination = destination_of(instance, instance.threads.position(head), remote)
        client = _client(instance, head, destination)
        with client, _explained(client, head.thread, destination):
            onward = goes_on_as(instance, head, kin)
            request = _request(instance, onward, client, destination, branch)
            change = client.change(request.number)
            _note_end(instance, request, change)
            if change.state != "open":
                return Synced(head.thread, change.number, change.url, shown(_state(change)))
            if change.is_foreign:
                raise Invalid(
                    f"{change.url} is of a branch of another repository", "only who owns that can change it"
                )
            return _give(instance, head, onward, kin, client, change)


def _give(
    instance: Instance,
    head: Head,
    onward: Head,
    kin: list[Head],
    client: ReviewClient,
    change: ForgeChange,
) -> Synced:
    own = client.names()
    known = {(item.kind, item.id) for text in texts_of_user(instance, kin) for item in feedback_entries(text)}

    def leaves_out(item: Feedback) -> bool:
        is_ours = item.kind != "check" and (item.author in own or FORGE_MARK.search(item.body) is not None)
        return is_ours or item.is_bot or item.is_resolved or (item.kind, item.id) in known

    feedback = client.feedback(change.number, change.commit, leaves_out)
    approved = tuple(one_line(item.author, 100) for item in feedback.items if item.verdict == "approved")
    synced = Synced(head.thread, change.number, change.url, "open", unread=tuple(feedback.unread))
    synced = synced._replace(approved=approved, left=feedback.later)
    if not any(_calls_for_work(item) for item in feedback.items):
        return synced
    text, count = feedback_text(
        change.url, change.commit, feedback.items, lambda part: instance.redactor.text(part)[0]
    )
    told = tell_thread(instance, onward, text)
    shown, left = (
        tuple(item for item in items if not item.says_nothing)
        for items in (feedback.items[:count], feedback.items[count:])
    )
    return synced._replace(items=shown, told=told, left=feedback.later + len(left))


def _calls_for_work(item: Feedback) -> bool:
    return item.kind == "check" or item.verdict == "changes requested" or bool(item.body.strip())


def _client(instance: Instance, head: Head, destination: Destination) -> ReviewClient:
    if not destination.remote:
        place = shlex.quote(str(destination.project.common))
        raise Invalid(
            f"the project of thread {head.thread} has no remote", f"git -C {place} remote add origin URL"
        )
    try:
        repository = destination.repository or parse_repository(destination.url, instance.config)
    except Invalid as error:
        raise Invalid(f"thread {head.thread} has no request: {error.message}", error.hint) from None
    return client_for(instance, repository)


def _request(
    instance: Instance,
    head: Head,
    client: ReviewClient,
    destination: Destination,
    branch: str,
) -> Request:
    """Return a thread's request, and record it if it was opened by somebody else. Raises Invalid without one."""
    target = f"https://{client.repository}"
    if requests := requests_of(instance, head, target, branch):
        return requests[-1]
    places = [item.effect.target for _, item in effects_in_line(instance, head, words.PUSH)]
    pushed = dict.fromkeys(
        branch_at(place) for place in places if place == destination.place(branch_at(place))
    )
    for name in [*pushed][-_BRANCHES:]:
        changes = client.open_changes(name) if branch in ("", name) else []
        if changes:
            _found(instance, head, target, name, changes[0])
            return requests_of(instance, head, target, name)[-1]
    raise Invalid(f"thread {head.thread} has no request at {client.repository}", f"uwf land {head.thread}")


def _found(instance: Instance, head: Head, target: str, branch: str, change: ForgeChange) -> None:
    """Record a request that somebody else has opened."""

    def number(_key: str) -> str:
        return str(change.number)

    content = f"{change.title}\n\n{change.body}".encode()
    once(
        instance,
        head.thread,
        Sending(words.PULL_REQUEST, target, branch, content, change.title),
        number,
        number,
    )


def _note_end(instance: Instance, request: Request, change: ForgeChange) -> None:
    """Record once that a request was merged or closed, or that it is open again."""
    outcome = {"merged": words.MERGED, "closed": words.CLOSED}.get(change.state)
    if outcome is None and request.effect.outcome == words.CLOSED:
        outcome = words.REOPENED
    if outcome is not None and request.effect.outcome not in (outcome, words.MERGED):
        settle_further(
            instance,
            request.thread,
            request.effect.hash,
            outcome,
            str(change.number),
            _state(change),
        )


def _state(change: ForgeChange) -> str:
    return merge_note(change) if change.state == "merged" else change.state


@contextmanager
def _explained(client: ReviewClient, thread: ThreadId, destination: Destination) -> Iterator[None]:
    """Raise what a refusal to read a request means for its thread."""
    try:
        yield
    except ForgeDeclined as error:
        if error.status in (404, 410):
            raise NotFound(
                f"the request of thread {thread} at {client.repository} is gone: {error.message}",
                f"another one: uwf land {thread} --branch NAME",
            ) from None
        if error.is_redirect:
            place, remote = (
                shlex.quote(str(part)) for part in (destination.project.common, destination.remote)
            )
            raise Invalid(
                f"repository {client.repository} has moved",
                f"with its new address: git -C {place} remote set-url {remote} URL",
            ) from None
        raise
