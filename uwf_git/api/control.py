"""Controlling a thread: answer, say, pause, resume, kill, raise its budget. Hooks and extensions are called
by `instance.after`, since a command prints its result first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import extensions
from uwf_git.base.errors import HeadMoved, Invalid, NotFound, Usage
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine import pause as pauses
from uwf_git.engine.human_turn import human_turn
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from uwf_git.engine.outcome import Outcome
    from uwf_git.engine.pause import Pause
    from uwf_git.engine.steering import WaitingRemark
    from uwf_git.store.history import Head


_WITH_PARENT = "with its parent {}"


class Resumed(NamedTuple):
    """The thread that can be stepped: the resumed one, or a new one that continues it. `outcome` is that of a
    text; `changed`: it was paused or had ended."""

    thread: ThreadId
    outcome: Outcome | None
    changed: bool


def answer(
    instance: Instance,
    thread: ThreadId,
    text: str,
    step: Hash | None = None,
    other: bool = False,
    fields: Mapping[str, Sequence[str]] = {},
    unseen: bool = False,
    code: str = "",
) -> Outcome:
    """Answer a thread's question, or that of a `step`; with `other`, outside its options. Or play a person's
    role with texts by field; `code` is the commit or tree that it judges; `unseen` allows that for code that is not
    here or has changed. Moves and raises as `engine.inbox.answer`."""
    from uwf_git.engine import inbox

    outcome = inbox.answer(instance, thread, text, step, other, fields, unseen=unseen, code=code)
    _notify(instance, thread)
    return outcome


def revoke(instance: Instance, thread: ThreadId, reason: str = "") -> dict[str, Any]:
    """Take the user's approval of a thread back; return how the gate stands as JSON. Moves and raises as
    `engine.inbox.revoke`."""
    from uwf_git.engine.inbox import revoke as take_back

    return {"thread": thread, **take_back(instance, thread, reason).as_json(thread)}


def say(instance: Instance, thread: ThreadId, text: str) -> Outcome:
    """Add a remark. Moves and raises as `engine.inbox.remark`."""
    from uwf_git.engine.inbox import remark

    instance.require_person(f"remarks on thread {thread}")
    outcome = remark(instance, thread, text)
    _notify(instance, thread)
    return outcome


def steer(instance: Instance, thread: ThreadId, text: str) -> Outcome | WaitingRemark:
    """Add a remark, also to a thread at work, where it waits for the agent or the next prompt. Moves and raises as
    `engine.inbox.steer`."""
    from uwf_git.engine import inbox
    from uwf_git.engine.outcome import Outcome

    instance.require_person(f"remarks on thread {thread}")
    said = inbox.steer(instance, thread, text)
    if isinstance(said, Outcome):
        _notify(instance, thread)
    return said


def permit(
    instance: Instance, thread: ThreadId, request: str, granted: bool = True, always: bool = False
) -> dict[str, Any]:
    """Allow or deny what a running agent asks leave for; return the request and the decision as JSON. Raises as
    `engine.permission_requests.decide`."""
    from uwf_git.engine.permission_requests import decide

    instance.require_person(f"decides what the agent of thread {thread} may do", answers=True)
    return decide(instance, thread, request, granted, always)


def pause(instance: Instance, thread: ThreadId, reason: str = "", now: bool = False) -> Pause:
    """Pause a thread, and the branches that it waits for; with `now` end their steps. Makes and raises as
    `engine.pause.pause`."""
    from uwf_git.engine.hooks import run_hook

    instance.require_person(f"pauses thread {thread}")
    was_paused = instance.threads.is_paused(thread)
    pause = pauses.pause(instance, thread, instance.without_secrets(reason, "the reason"), now)
    _pause_branches(instance, thread, now)
    if not was_paused:
        instance.after(lambda: run_hook(instance, thread, ThreadState.PAUSED.hook))
    return pause


def _pause_branches(instance: Instance, thread: ThreadId, now: bool) -> None:
    for branch in _open_branches(instance, thread):
        with suppress(Invalid, NotFound, HeadMoved):  # it has ended, or was resumed meanwhile
            pauses.pause(instance, branch, _WITH_PARENT.format(thread), now)
            _pause_branches(instance, branch, now)


def _resume_branches(instance: Instance, thread: ThreadId) -> None:
    """Resume the branches that were paused with their parent."""
    for branch in _open_branches(instance, thread):
        with suppress(Invalid, NotFound):
            pause = pauses.pause_of(instance, branch)
            if pause is not None and pause.reason == _WITH_PARENT.format(thread):
                pauses.resume(instance, branch)
                _resume_branches(instance, branch)


def _open_branches(instance: Instance, thread: ThreadId) -> list[ThreadId]:
    from uwf_git.engine.forks import awaited

    heads = awaited(instance, instance.threads.head(thread))
    return [head.thread for head in heads if head.archive is None]


def resume(instance: Instance, thread: ThreadId, text: str | None = None) -> Resumed:
    """Resume a thread. A finished one continues with the text in a new thread; a waiting one takes it as the
    answer. Raises Usage for a useless text, and what these raise."""
    resumed = resume_one(instance, thread, text)
    _notify(instance, thread)
    return resumed


def resume_one(instance: Instance, thread: ThreadId, text: str | None) -> Resumed:
    """As `resume`, for a caller that tells extensions about several threads at once."""
    instance.require_person(f"resumes thread {thread}")
    head = instance.threads.head(thread)
    if head.archive is not None:
        from uwf_git.engine.inbox import continue_finished

        outcome = continue_finished(instance, thread, text or "")
        return Resumed(outcome.thread, outcome, True)
    if text is not None and not head.row.asks and human_turn(instance, head) is None:
        raise Usage(
            f"thread {thread} is not waiting for an answer and has not ended", _onward(instance, head)
        )
    answered = None
    if text is not None:
        from uwf_git.engine import inbox

        answered = inbox.answer(instance, thread, text)
    changed = pauses.resume(instance, thread)
    if changed:
        _resume_branches(instance, thread)
    return Resumed(thread, answered, changed)


def resume_as_json(instance: Instance, thread: ThreadId, text: str | None) -> dict[str, Any]:
    """As `resume_one`; return the thread's state as JSON. Warns of removed secrets."""
    from uwf_git.config.secrets import removal_note
    from uwf_git.engine.budget import used_up
    from uwf_git.engine.next_turn import outlook
    from uwf_git.engine.thread_state import thread_state

    head = instance.threads.head(thread)
    after, outcome, changed = resume_one(instance, thread, text)
    now = instance.threads.head(after)
    value: dict[str, Any] = {"thread": after, "status": thread_state(instance, now).word, "resumed": changed}
    if outcome is None:
        return value
    if redactions := removal_note(outcome.redactions):
        instance.warn(redactions)
    value |= {"head": outcome.head, "next": outlook(instance, now).next}
    if head.archive is not None:
        value["resumedFrom"] = {"thread": thread, "step": head.node}
    if standing := used_up(instance, now):
        value |= {"reason": standing.reason, "command": standing.waiting(now.thread).hint}
    return value


def kill(instance: Instance, thread: ThreadId, reason: str = "") -> Head:
    """Kill a thread, its running agent, and the branches that it waits for. Moves and raises as `engine.step.kill`."""
    from uwf_git.engine.step import kill

    instance.require_person(f"kills thread {thread}")
    return kill(instance, thread, instance.without_secrets(reason, "the reason"))


def raise_budget(instance: Instance, thread: ThreadId, given: Mapping[str, str]) -> None:
    """Raise limits on this machine, as "20" or "+5" by the names of `format.amounts`. The next step records
    them. Raises Usage for a limit that the thread doesn't have or that isn't raised."""
    from uwf_git.engine.budget import OPTIONS, Budgets, amount, parse_option, raise_limits

    instance.require_person(f"raises the budget of thread {thread}")
    standing = Budgets(instance).standing(instance.threads.active_head(thread))
    held = standing.limits if standing else {}
    raised: dict[str, float] = {}
    for key, option in OPTIONS.items():
        if (text := given.get(key)) is None:
            continue
        raised[key] = parse_option(key, text, held)
        if key not in held:
            raise Usage(
                f"thread {thread} has no {key} that could be raised",
                "limits are set by uwf thread start, by the workflow's budget, and by budgets in config.yaml",
            )
        if standing is not None and (above := standing.above.get(key)) is not None:
            raise Usage(
                f"{key} of thread {thread} follows from its fork",
                f"raise that of the thread that waits for it: uwf thread budget {above[0]}",
            )
        if raised[key] <= held[key].value:
            raise Usage(
                f"{key} of thread {thread} is {amount(key, held[key].value)}: {option} {text} doesn't raise it",
                f"give more than that, or say with a + by how much: {option} +{text}",
            )
    raise_limits(instance, thread, raised)
    _notify(instance, thread)


def _notify(instance: Instance, thread: ThreadId) -> None:
    instance.after(lambda: extensions.resumed(instance, [thread]))


def _onward(instance: Instance, head: Head) -> str:
    from uwf_git.engine.budget import used_up
    from uwf_git.engine.thread_state import thread_state

    state = thread_state(instance, head)
    if state is ThreadState.PAUSED:
        return f"uwf thread resume {head.thread}"
    if state.is_at_work:
        return f"it is at work; uwf thread show {head.thread}"
    if standing := used_up(instance, head):
        return standing.waiting(head.thread).hint
    return f"uwf thread run {head.thread}"
