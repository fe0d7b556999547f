"""Answering what reviewers said, once the work has landed again: each comment that was given to the thread gets one
answer, with the commit and the words of the step that saw to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.landing.effects import Sending, once
from uwf_git.ext.landing.kin import effects_of, kin_of, text_of_user
from uwf_git.ext.landing.landing_steps import AGENT
from uwf_git.ext.landing.request import words_of_step
from uwf_git.plugin import (
    HUMAN,
    USER,
    ForgeDeclined,
    ForgeUnavailable,
    feedback_entries,
    mark_of,
    markdown,
    start_of,
    step_code,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from uwf_git.plugin import (
        Feedback,
        FeedbackEntry,
        History,
        Instance,
        ReviewClient,
        StepContext,
        ThreadPosition,
    )

_TRIES = 3  # of a call that may have been carried out though it failed; it is looked for in between


class Answer(NamedTuple):
    """What a comment is answered with: the step, and its number."""

    item: FeedbackEntry
    number: int
    step: StepContext

    @property
    def name(self) -> str:
        return f"answer to {self.item.kind} {self.item.id}"


def answer_reviews(
    instance: Instance, at: ThreadPosition, client: ReviewClient, number: int, commit: str
) -> int:
    """Answer what was given to a thread and not answered yet, now that a commit has landed; return how many are. Asks
    the forge nothing if there is nothing to answer. Raises Declined, RemoteFailed, Undecided."""
    head, target = at.head, f"https://{client.repository}"
    if not (wanted := list(_answers(instance, at.history))):
        return 0
    begin = start_of(instance.store, head.commit).oid.hex()
    with instance.locks.turn(f"answers-{begin}", waits=lambda _holders: None):
        answered = {
            item.effect.name
            for _, item in effects_of(instance, kin_of(instance, head), words.COMMENT)
            if item.effect.target == target and item.is_settled
        }
        wanted = [item for item in wanted if item.name not in answered]
        return _Answering(instance, at, client, number, commit, target).all(wanted) if wanted else 0


class _Answering:
    """The answers to what was said about one change. Nobody else here sends them meanwhile."""

    def __init__(
        self,
        instance: Instance,
        at: ThreadPosition,
        client: ReviewClient,
        number: int,
        commit: str,
        target: str,
    ) -> None:
        self._instance = instance
        self._at = at
        self._client = client
        self._number = number
        self._commit = commit
        self._target = target
        self._own = client.names()
        self._read()

    def all(self, wanted: list[Answer]) -> int:
        count = 0
        for answer in wanted:
            item = answer.item
            subject = self._there.get((item.kind, item.id))
            is_listed = item.kind == "comment" or (item.kind != "review" and self._client.answers_on_lines)
            if is_listed and subject is None:  # it was deleted
                continue
            try:
                self._send(answer, subject)
            except (ForgeDeclined, ForgeUnavailable) as error:
                message = f"{self._commit[:12]} has landed, and {item.kind} {item.id} is not answered"
                raise type(error)(f"{message}: {error.message}", error.hint) from None
            count += 1
        return count

    def _send(self, answer: Answer, subject: Feedback | None) -> None:
        body = self._body(answer, subject)

        def look_up(key: str) -> str | None:
            reference = next((str(item.id) for item in self._mine if mark_of(key) in item.body), None)
            if reference is not None and subject is not None:
                self._client.resolve(self._number, subject)
            return reference

        def send(key: str) -> str:
            for remaining in reversed(range(_TRIES)):
                try:
                    sent = self._client.reply(self._number, subject, f"{body}\n{mark_of(key)}\n")
                    break
                except ForgeUnavailable as error:
                    if not remaining:
                        raise
                    self._client.wait(error)
                    self._read()
                    if (reference := look_up(key)) is not None:
                        return reference
            if subject is not None:
                self._client.resolve(self._number, subject)
            return str(sent)

        sending = Sending(words.COMMENT, self._target, answer.name, body.encode(), answer.name)
        once(self._instance, self._at.head.thread, sending, send, look_up)

    def _read(self) -> None:
        items = self._client.conversation(self._number)
        self._there: dict[tuple[str, int], Feedback] = {(item.kind, item.id): item for item in items}
        self._mine = [item for item in items if item.author in self._own]

    def _body(self, answer: Answer, subject: Feedback | None) -> str:
        item, summary = answer.item, words_of_step(self._instance, self._at.history, answer.step)
        body = f"{summary}, step {answer.number}. Landed as {self._commit}."
        if subject is not None and subject.thread:
            return body
        place = f" on {markdown.code(item.place)}" if item.place else ""
        quote = markdown.code(item.first_line or item.verdict, 200)
        return f"> {markdown.code(item.author)}{place}: {quote}\n\n{body}"


def _answers(instance: Instance, history: History) -> Iterator[Answer]:
    """Yield the answers to what was given in a thread, and seen to by a later step: by the last one that changed code,
    else by the last one."""
    for index, step in enumerate(history.steps):
        items = (
            [item for item in feedback_entries(text_of_user(step)) if item.wants_answer]
            if step.role == USER
            else []
        )
        if not items:
            continue
        later = [
            (number, other)
            for number, other in enumerate(history.steps[index + 1 :], index + 2)
            if other.role != USER and other.agent not in (HUMAN, AGENT)
        ]
        if not later:
            continue
        changed = [
            pair for pair in later if (code := step_code(instance, pair[1].detail)) and code.is_changed
        ]
        number, other = (changed or later)[-1]
        yield from (Answer(item, number, other) for item in items)
