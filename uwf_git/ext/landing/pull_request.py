"""The request of a branch on a forge: opened once, and kept up to date.

It is known by a mark at the end of its text, with the key of the effect that opened it. One without that mark is
somebody else's, and its text stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.landing.destination import repository_at
from uwf_git.ext.landing.effects import Sending, once
from uwf_git.plugin import (
    Invalid,
    UwfError,
    exchange_for,
    is_new_remote,
    key_at_end,
    mark_of,
    push_threads,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from uwf_git.ext.landing.request import RequestText
    from uwf_git.plugin import ForgeChange, ForgeClient, Instance, ThreadId


class PullRequest(NamedTuple):
    """A request. `is_new`: it was opened by this landing; `is_changed`: it, its text or its commits were changed."""

    number: int
    url: str
    is_draft: bool
    is_new: bool
    is_changed: bool


def push_record(instance: Instance, thread: ThreadId, url: str, tell: Callable[[str], None]) -> None:
    """Push a thread's record to the repository with a URL, if a remote of the store is that one: there its claims are
    checked. What keeps it from that is told, and no error: it can be pushed later."""
    place = repository_at(instance, url)
    for remote in instance.remotes.all():
        there = repository_at(instance, remote.push_url)
        if remote.push_url != url and (there is None or there != place):
            continue
        later = f"its claims can't be checked there before: uwf push {remote.name} {thread}"
        if is_new_remote(instance, remote):
            tell(f"nothing was pushed to {remote.name} yet, so the thread is not either; {later}")
            continue
        try:
            push_threads(exchange_for(instance, remote), [thread])
        except UwfError as error:
            tell(f"the thread is not pushed to {remote.name}: {error.message}; {later}")


def hold_back(client: ForgeClient, branch: str) -> bool:
    """Make the request of a branch a draft, before something that nobody has accepted is pushed there. Return whether
    one was none."""
    ready = [change for change in client.open_changes(branch) if not change.is_draft]
    for change in ready:
        client.update_change(change.number, is_draft=True)
    return bool(ready)


def request_merge(
    instance: Instance,
    thread: ThreadId,
    client: ForgeClient,
    branch: str,
    onto: str,
    text: RequestText,
    is_draft: bool,
) -> PullRequest:
    """Open the request of a branch, or bring it up to date, as a draft or ready. Raises Invalid for a closed one,
    RemoteFailed, Declined, Undecided."""
    before = next(iter(client.open_changes(branch)), None)
    if before is not None:
        return _updated(client, before, text, is_draft)

    def send(key: str) -> str:
        return str(client.create_change(text.title, _marked(text.body, key), branch, onto, is_draft).number)

    def look_up(key: str) -> str | None:
        changes = client.open_changes(branch)
        return str(changes[0].number) if changes else None

    target = f"https://{client.repository}"
    sending = Sending(words.PULL_REQUEST, target, branch, f"{text.title}\n\n{text.body}".encode(), text.title)
    sent = once(instance, thread, sending, send, look_up)
    change = client.change(int(sent.reference))
    if change.state != "open":
        raise Invalid(
            f"{change.url} of thread {thread} was {change.state}",
            "reopen it there, or land on another branch: --branch NAME",
        )
    return PullRequest(change.number, change.url, change.is_draft, True, True)


def _updated(client: ForgeClient, change: ForgeChange, text: RequestText, is_draft: bool) -> PullRequest:
    key = key_at_end(change.body)
    body = _marked(text.body, key) if key else change.body
    is_changed = body != change.body or change.is_draft != is_draft
    if is_changed:
        stays = body.rstrip() == change.body.rstrip()
        change = client.update_change(change.number, body=None if stays else body, is_draft=is_draft)
    return PullRequest(change.number, change.url, change.is_draft, False, is_changed)


def _marked(body: str, key: str) -> str:
    return f"{body}\n{mark_of(key)}\n"
