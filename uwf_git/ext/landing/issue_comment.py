"""One comment on the issue that a thread is about, kept current: where its work stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.ext.landing.effects import Sending, once
from uwf_git.plugin import client_of_issue, counted, ended_state, parse_issue, spending_account, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from uwf_git.ext.landing.pull_request import PullRequest
    from uwf_git.plugin import Head, History, Instance

_NAME = "state"


def comment_on_issue(instance: Instance, head: Head, history: History, pull: PullRequest | None) -> None:
    """Write the comment, or bring it up to date; one that somebody deleted stays deleted. Raises RemoteFailed,
    Undecided, Invalid without a login."""
    issue = history.start.issue
    assert issue is not None
    address = parse_issue(issue.url, instance.config)
    with client_of_issue(instance, address) as client:
        text = _text(instance, head, history, pull, client.code)

        def send(key: str) -> str:
            return client.create_comment(key, text)

        def look_up(key: str) -> str | None:
            return client.find_comment(key) or None

        sending = Sending(words.COMMENT, issue.url, _NAME, text.encode(), "where the work stands")
        sent = once(instance, head.thread, sending, send, look_up)
        client.update_comment(sent.reference, text)


def _text(
    instance: Instance,
    head: Head,
    history: History,
    pull: PullRequest | None,
    code: Callable[[str], str],
) -> str:
    under_way = "at work" if pull is None or pull.is_draft else "landed"
    state = ended_state(head.archive).label if head.archive is not None else under_way
    parts = [
        f"Thread {code(head.thread)} of workflow {code(history.workflow.name)}: {state}",
        counted(len(history.steps), "step"),
    ]
    if cost := spending_account(instance, head).spent.money(instance.config.prices).cost:
        parts.append(f"${cost:,.2f}")
    if pull is not None:
        parts.append(f"{pull.url}{' (draft)' if pull.is_draft else ''}")
    return " · ".join(parts)
