"""What a waiting thread wants of a person: the answer to a question, more of a budget, or a role to be played."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, assert_never

from uwf_git.base.errors import UwfError
from uwf_git.base.thread_states import Request, ThreadState
from uwf_git.engine.budget import used_up
from uwf_git.engine.call_answer import command_of, fields_wanted
from uwf_git.engine.forks import parents_of
from uwf_git.engine.human_roles import HumanRoles
from uwf_git.engine.human_turn import Ballot, command_for, human_turn
from uwf_git.engine.kit.form import FormField, options_of
from uwf_git.engine.next_turn import outlook, wordless
from uwf_git.engine.thread_state import RestingThread, ThreadStates
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import HUMAN, SUBWORKFLOW
from uwf_git.format.types import OF_BRANCH
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.store.threads import DamagedThread

BUDGET, ROLE = Request.BUDGET, Request.ROLE


class Waits(NamedTuple):
    """A thread that waits for a person. `kind` is a question, asked by `role`; BUDGET, which blocks `role`; or
    ROLE, where a person plays the `role`, with its `fields`, the `assignee` if one is named. `step` is the
    thread's head, `since` in Unix seconds, `command` the command to run, `parent` the thread that waits for it if it is
    a branch, `problem` why it cannot be read."""

    thread: ThreadId
    kind: Request
    name: str
    workflow: str
    title: str
    role: str
    question: str
    options: tuple[str, ...]
    reason: str
    since: int
    command: str
    step: Hash
    assignee: str = ""
    fields: tuple[FormField, ...] = ()
    standing: Ballot | None = None
    parent: str = ""
    problem: str = ""

    def in_state(self, is_call: bool) -> dict[str, Any]:
        """As a part of the thread's state as JSON: who asks what, or why a budget stops it."""
        if self.kind == BUDGET:
            return {"reason": self.reason}
        value: dict[str, Any] = {
            "asks": self.role or None,
            "question": self.question,
            "options": list(self.options),
        }
        if self.kind == ROLE or self.fields:
            value["fields"] = [field.as_json() for field in self.fields]
        if self.kind == ROLE:
            value["assignee"] = self.assignee or None
        if self.kind == ROLE or is_call:
            value["command"] = self.command
        if self.standing is not None:
            value |= self.standing.as_json(self.thread)
        return value | ({"reason": self.reason} if self.reason else {})

    def as_json(self) -> dict[str, Any]:
        """As JSON; `assignee` and `fields` belong to a ROLE, how a vote stands to a gate, `parent` to a branch."""
        value = {**self._asdict(), "kind": self.kind.value, "options": list(self.options)}
        for key in ("assignee", "fields", "standing", "parent", "problem"):
            del value[key]
        if self.problem:
            value["problem"] = self.problem
        if self.parent:
            value["parent"] = self.parent
        if self.standing is not None:
            value |= self.standing.as_json(self.thread)
        if self.kind == ROLE:
            value["assignee"] = self.assignee or None
        if self.kind == ROLE or self.fields:
            value["fields"] = [field.as_json() for field in self.fields]
        return value


def waiting_for_people(
    instance: Instance, among: Iterable[tuple[Head | DamagedThread, ThreadState]] | None = None
) -> list[Waits]:
    """Return all waiting threads of the project, or those `among` some in their states, oldest first, without running
    and paused ones; what is damaged has a `problem`. A sub-workflow's question appears once, with the parent thread.
    What follows a head that the index knows is not read for a list: such a question has no words yet, see
    `with_words`."""
    if among is None:
        states = ThreadStates(instance)
        among = ((head, states.of(head)) for head in instance.threads.meant() if isinstance(head, Head))
    readable = [(head, state) for head, state in among if isinstance(head, Head)]
    questions = [head.node for head, state in readable if state.request is Request.QUESTION]
    index = instance.store.index
    known, branches = index.decisions_at(questions), frozenset(index.hashes_with(OF_BRANCH))
    roles, people = HumanRoles(instance), list[Waits]()
    for head, state in readable:
        try:
            if state.request is Request.QUESTION and head.node in known and head.row.agent != HUMAN:
                waits: Waits | None = _without_words(head, state.request)
            else:
                waits = waits_in(instance, head, state, roles)
        except UwfError as error:
            waits = _damaged(head, state, error)
        if waits is not None and head.row.start in branches:
            waits = waits._replace(parent=min(parents_of(instance, head), default=""))
        if waits is not None:
            people.append(waits)
    asking = {item.thread for item in people}
    owners = instance.sessions.owners(SUBWORKFLOW, asking)
    people = [item for item in people if owners.get(item.thread) not in asking]
    return sorted(people, key=lambda entry: (entry.since, entry.thread))


def _without_words(head: Head, request: Request) -> Waits:
    row = head.row
    named = row.name or "", row.workflow or "", row.title or ""
    command = command_for(head.thread, ())
    return Waits(head.thread, request, *named, "", "", (), "", head.updated, command, head.node)


def _damaged(head: Head, state: ThreadState, error: UwfError) -> Waits | None:
    if state.request is None:
        return None
    waits = _without_words(head, state.request)
    words = f"It cannot be read: {error.message}"
    return waits._replace(question=words, command="uwf doctor --fix", problem=error.message)


def with_words(instance: Instance, waits: Waits, listed: tuple[Head | DamagedThread, ThreadState]) -> Waits:
    """Return a question of `waiting_for_people` as `waits_in` has it, or with a `problem`."""
    head, state = listed
    if waits.kind is not Request.QUESTION or waits.question or not isinstance(head, Head):
        return waits
    try:
        read = waits_in(instance, head, state)
    except UwfError as error:
        read = _damaged(head, state, error)
    return (read or waits)._replace(parent=waits.parent)


def waits_of(instance: Instance, head: Head) -> Waits | None:
    """Return an idle or paused thread's request to a person, if any. Read errors are raised."""
    state = RestingThread(instance, head).state(apart_from=ThreadState.PAUSED)
    return waits_in(instance, head, state)


def waits_in(
    instance: Instance, head: Head, state: ThreadState, people: HumanRoles | None = None
) -> Waits | None:
    """As `waits_of`, of a thread in a state. None also for one whose call asks: the call has its own request; and for
    one whose agent asks leave, which `permission_requests` has."""
    if state.request is None:
        return None
    waits = _without_words(head, state.request)
    match state.request:
        case Request.QUESTION:
            next_turn, fields = outlook(instance, head), fields_wanted(instance, head)
            return waits._replace(
                role=next_turn.asks or "",
                question=next_turn.question or wordless(instance, head),
                options=next_turn.options or options_of(fields),
                reason=next_turn.reason or "",
                command=command_of(instance, head),
                fields=fields,
            )
        case Request.BUDGET:
            if (standing := used_up(instance, head)) is None:
                return None
            return waits._replace(
                role=outlook(instance, head).next or "",
                question="May it use more?",
                reason=standing.reason,
                command=standing.waiting(head.thread).hint,
            )
        case Request.ROLE:
            if (turn := human_turn(instance, head, people)) is None:
                return None
            from uwf_git.engine.presented import command_at

            return waits._replace(
                role=turn.role,
                question=turn.instruction,
                options=turn.options,
                assignee=turn.assignee,
                fields=turn.fields,
                standing=turn.standing,
                command=command_at(instance, head, turn),
            )
        case Request.CALL | Request.LEAVE:
            return None
        case _:
            assert_never(state.request)
