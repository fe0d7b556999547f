"""The question of a waiting thread."""

from __future__ import annotations

from uwf_git.engine.inbox import QUESTION as QUESTION
from uwf_git.engine.inbox import check_remarkable as check_remarkable
from uwf_git.engine.inbox import waiting_for_people as waiting_for_people
from uwf_git.engine.status import NO_QUESTION, Outlook, outlook
from uwf_git.engine.status import chosen as chosen
from uwf_git.format.ids import ThreadId
from uwf_git.store.history import Head as Head
from uwf_git.store.instance import Instance


def asking(instance: Instance, thread: ThreadId) -> Head | None:
    """Return the head of a thread that asks, None if it doesn't. Raises NotFound, Invalid if it has ended."""
    head = instance.threads.active_head(thread)
    return head if head.row.asks else None


def question(instance: Instance, head: Head) -> Outlook:
    asked = outlook(instance, head)
    return asked._replace(question=asked.question or NO_QUESTION)
