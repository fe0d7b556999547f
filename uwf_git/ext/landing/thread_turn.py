"""Giving a thread its next words from the user, wherever it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.plugin import control

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance, ThreadId


def tell_thread(instance: Instance, head: Head, text: str) -> ThreadId:
    """Say something in a thread, or in the one that goes on with an ended one; return that. Moves and raises as
    `control.say` and `control.resume`."""
    if head.archive is None:
        control.say(instance, head.thread, text)
        return head.thread
    return control.resume(instance, head.thread, text).thread
