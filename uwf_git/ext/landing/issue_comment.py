"""One comment on the issue that a thread is about, kept current: where its work stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.ext.landing.effects import Sending, once
from uwf_git.ext.landing.marks import mark_of
from uwf_git.plugin import client_for, counted, ended_state, markdown, parse_issue, spending_account, words

if TYPE_CHECKING:
    from uwf_git.ext.landing.pull_request import PullRequest
    from uwf_git.plugin import Head, History, Instance

_NAME = "state"


def comment_on_issue(instance: Instance, head: Head, history: History, pull: PullRequest | None) -> None:
    """Write the comment, or bring it up to date; one that somebody deleted stays deleted. Raises RemoteFailed,
    Undecided, Invalid without a login."""
    issue = history.start.issue
    assert issue is not None
    address = parse_issue(issue.url, instance.config)
    text = _text(instance, head, history, pull)
    with client_for(instance, address.repository) as client:

        def send(key: str) -> str:
            return str(client.create_comment(address.number, f"{mark_of(key)}\n{text}", "issue"))

        def look_up(key: str) -> str | None:
            names = client.names()
            own = (
                comment.id
                for comment in client.comments(address.number, "issue")
                if comment.author in names and comment.body.startswith(mark_of(key))
            )
            return next(map(str, own), None)

        sending = Sending(words.COMMENT, issue.url, _NAME, text.encode(), "where the work stands")
        sent = once(instance, head.thread, sending, send, look_up)
        for comment in client.comments(address.number, "issue"):
            mark, _, shown = comment.body.partition("\n")
            if str(comment.id) == sent.reference and shown.strip() != text:
                client.update_comment(address.number, comment.id, f"{mark}\n{text}", "issue")


def _text(instance: Instance, head: Head, history: History, pull: PullRequest | None) -> str:
    under_way = "at work" if pull is None or pull.is_draft else "landed"
    state = ended_state(head.archive).label if head.archive is not None else under_way
    parts = [
        f"Thread {markdown.code(head.thread)} of workflow {markdown.code(history.workflow.name)}: {state}",
        counted(len(history.steps), "step"),
    ]
    if cost := spending_account(instance, head).spent.money(instance.config.prices).cost:
        parts.append(f"${cost:,.2f}")
    if pull is not None:
        parts.append(f"{pull.url}{' (draft)' if pull.is_draft else ''}")
    return " · ".join(parts)
