"""A thread's state as one JSON object, as `uwf thread show` prints it and hooks get it."""

from __future__ import annotations

from typing import Any, assert_never

from uwf_git.base.text import iso
from uwf_git.base.thread_states import Request, ThreadState
from uwf_git.engine.below import Below
from uwf_git.engine.branch_states import branch_value, joined_value, joining_value
from uwf_git.engine.census import census_of
from uwf_git.engine.conversation import at_rest, in_conversation, is_conversation
from uwf_git.engine.next_turn import outlook, wordless
from uwf_git.engine.pause import pause_of
from uwf_git.engine.step_parts import parts_of
from uwf_git.engine.thread_state import RestingThread, asking_below, failure_reason, thread_state
from uwf_git.format.kinds import parse_detail
from uwf_git.format.types import is_kind
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head, Link, is_call, link_of, parted
from uwf_git.store.instance import Instance


def state(instance: Instance, head: Head) -> dict[str, Any]:
    """Return the thread's workflow, id, head and status, and its question, reason or next role; `rehearsed`
    steps were generated; for a crew's workflow also the run's `state`. Read errors are raised."""
    return {**_standing(instance, head), **_reached(instance, head), **_sides(instance, head)}


def _reached(instance: Instance, head: Head) -> dict[str, Any]:
    if head.row.workflow is None or not instance.threads.has_cast(head.row.workflow):
        return {}
    history = instance.threads.history(head)
    parts = parts_of(history.workflow)
    if parts is None or is_conversation(history.workflow):  # which comes to nothing that could be reached
        return {}
    return {"state": parts.reached(history, outlook(instance, head, history).next or "")}


def _standing(instance: Instance, head: Head) -> dict[str, Any]:
    state = thread_state(instance, head)
    value: dict[str, Any] = {
        "workflow": head.row.workflow,
        "thread": head.thread,
        "head": head.node,
        "done": head.archive is not None,
        "status": state.word,
        **Below(instance).value(head, state),
        "role": head.row.role,
        **_made(instance, head),
        "rehearsed": head.row.rehearsed,
    }
    if (census := census_of(instance, head.commit)) is not None:
        value["census"] = census.as_json()
    if head.archive and state is not ThreadState.COMPLETED:
        return {**value, "next": None, "reason": head.archive.reason}
    following = outlook(instance, head)
    value["next"] = following.next
    if head.archive is None and (pause := pause_of(instance, head.thread)):
        value["paused"] = pause.as_json()
    if state is ThreadState.PAUSED:
        state = RestingThread(instance, head).state(apart_from=state)
    value |= _wants(instance, head, state)
    if following.problem is not None and not at_rest(instance, head):
        value["problem"] = following.problem
    return value


def _wants(instance: Instance, head: Head, state: ThreadState) -> dict[str, Any]:
    """Return what a thread in this state wants of a person, or the error that it tries again after."""
    match state.request:
        case Request.QUESTION | Request.ROLE | Request.BUDGET:
            from uwf_git.engine.waits import waits_in

            waits = waits_in(instance, head, state)
            return {} if waits is None else waits.in_state(is_call(instance.store, head.row.start))
        case Request.CALL:
            questions = [_asked_by_call(instance, call) for call in asking_below(instance, head)]
            first = questions[0]
            return {
                "calls": [question["thread"] for question in questions],
                "question": f"call {first['thread']}: {first['question']}",
                "options": first["options"],
                "command": first["command"],
                "questions": questions,
            }
        case Request.LEAVE | None:
            return {"error": failure_reason(instance, head, state)} if state.is_failing else {}
        case _:
            assert_never(state.request)


def _asked_by_call(instance: Instance, call: Head) -> dict[str, Any]:
    """Return what a call wants of a person, and the command that answers it."""
    from uwf_git.engine.call_answer import command_of, fields_wanted
    from uwf_git.engine.kit.form import options_of

    return {
        "thread": call.thread,
        "question": outlook(instance, call).question or wordless(instance, call),
        "options": list(options_of(fields_wanted(instance, call))),
        "command": command_of(instance, call),
    }


def _sides(instance: Instance, head: Head) -> dict[str, Any]:
    value = branch_value(instance, head)
    if head.waits_for_join:
        value |= joining_value(instance, head)
    else:
        value |= joined_value(instance, head)
    if link := link_of(instance.store, head.thread):
        value |= link_value(instance, link)
    if others := parted(instance.store, head.thread):
        value["otherSides"] = [link.thread for link in others]
    if head.row.resumed is not None and not in_conversation(instance, head):
        end = Oid(raw=head.row.resumed)
        step = instance.store.index_commit(end).node
        value["resumedFrom"] = {"thread": instance.threads.ending_with(end), "step": step}
    return value


def link_value(instance: Instance, link: Link) -> dict[str, Any]:
    """Return a thread's origin as JSON: `divergedFrom` another `at` the last shared step, or `forkedFrom` a
    `step`, `by` whom and when."""
    step = instance.store.index_commit(link.base).node
    if not link.forked:
        return {"divergedFrom": {"thread": link.origin, "at": step}}
    return {"forkedFrom": {"thread": link.origin, "step": step, "by": link.by, "at": iso(link.time)}}


def _made(instance: Instance, head: Head) -> dict[str, Any]:
    if head.row.kind != "step":
        return {"agent": None}
    step = instance.store.step(head.node)
    detail = instance.store.get(step.detail)
    value = instance.threads.credit(step).as_json()
    if is_kind(detail.type, "detail") and (extraction := parse_detail(detail.payload).extraction):
        value["extraction"] = extraction
    elif is_kind(detail.type, "step") and (child := instance.threads.ending_with(step.detail)):
        value["child"] = child
    return value
