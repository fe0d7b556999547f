"""What waits for a person on this machine: threads that ask, whose budget is used up, or whose next role is a human's;
and what a person says to a thread, which becomes a step of the role `$USER`.

Of the threads that don't wait nothing is read but the row that the index has of their heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import Invalid, Usage, UwfError, Waiting
from uwf_git.engine.budget import Budgets, pending, waiting
from uwf_git.engine.conversation import CHOSEN, in_conversation, is_conversation
from uwf_git.engine.pause import paused_threads
from uwf_git.engine.stand_in import HUMAN
from uwf_git.engine.status import (
    FAILED,
    IDLE,
    WAITING,
    at_rest,
    chosen,
    outlook,
    raise_if_stuck,
    used_up,
    wordless,
)
from uwf_git.format.ids import Hash, ThreadId, new_thread_id
from uwf_git.format.kinds import INTERRUPTED, SUBWORKFLOW, Detail, Step, parse_workflow
from uwf_git.format.types import ANSWER, BUNDLE, DETAIL, END, PERSON, REMARK, STEPNODE, USER
from uwf_git.store.history import Head, Position
from uwf_git.store.opened import Instance
from uwf_git.store.threads import Damaged, fork_hint

if TYPE_CHECKING:
    from uwf_git.engine.step import Outcome
    from uwf_git.store.index import CommitRow

QUESTION, BUDGET, ROLE = "question", "budget", "role"


class Waits(NamedTuple):
    """One thread that waits for a person. `kind` is QUESTION, which `role` asks; BUDGET, which keeps `role` from going
    on; or ROLE, which a human plays. `question` says what is wanted, `since` when it came to that, in Unix seconds;
    `command` is what a person does about it."""

    thread: ThreadId
    kind: str
    name: str
    workflow: str
    title: str
    role: str
    question: str
    options: tuple[str, ...]
    reason: str
    since: int
    command: str


def waiting_for_people(instance: Instance) -> list[Waits]:
    """Everything that waits, the longest first. What is running or paused doesn't wait; the question of a
    sub-workflow's thread stands once, with the thread that it is stepped for. A thread that can't be read is left
    out: `uwf thread list` says what is wrong with it."""
    busy = paused_threads(instance) | set(instance.locks.held())
    budgets = Budgets(instance)
    plays = _played_by_humans(instance)
    found: list[Waits] = []
    for head in instance.threads.all():
        if not isinstance(head, Head) or head.thread in busy:
            continue
        try:
            waits = _of(instance, head, budgets, plays)
        except UwfError:
            continue
        if waits is not None:
            found.append(waits)
    asking = {each.thread for each in found}
    found = [each for each in found if instance.sessions.owner(SUBWORKFLOW, each.thread) not in asking]
    return sorted(found, key=lambda each: (each.since, each.thread))


def waits_of(instance: Instance, head: Head) -> Waits | None:
    """What one thread waits for that nobody is at work on and that isn't paused; None for one that doesn't wait. Raises
    what reading it raises."""
    return _of(instance, head, Budgets(instance), _played_by_humans(instance))


def wanting(instance: Instance) -> Callable[[Head | Damaged, str], str]:
    """What threads are to a person on this machine, by their heads and status: waiting too where they are idle or have
    failed, and a human plays the role that is next."""
    plays, budgets = _played_by_humans(instance), Budgets(instance)

    def found(head: Head | Damaged, status: str) -> str:
        if plays is None or status not in (IDLE, FAILED) or not isinstance(head, Head):
            return status
        try:
            waits = _of(instance, head, budgets, plays)
        except UwfError:
            return status
        return status if waits is None else WAITING

    return found


def _of(
    instance: Instance, head: Head, budgets: Budgets, plays: Callable[[CommitRow, str], bool] | None
) -> Waits | None:
    row = head.row
    waits = Waits(
        head.thread, "", row.name or "", row.workflow or "", row.title or "", "", "", (), "", head.updated, ""
    )
    if row.asks:
        if at_rest(instance, head):
            return None
        asked = outlook(instance, head)
        return waits._replace(
            kind=QUESTION,
            role=asked.asks or "",
            question=asked.question or wordless(instance, head),
            options=asked.options,
            reason=asked.reason or "",
            command=f"uwf thread answer {head.thread} -m TEXT",
        )
    if budgets.sources(head) and (standing := used_up(instance, head, budgets)):
        raising = waiting(head.thread, standing)
        return waits._replace(
            kind=BUDGET,
            role=outlook(instance, head).next or "",
            question="May it use more?",
            reason=standing.reason,
            command=raising.hint,
        )
    if plays is not None:
        following = outlook(instance, head)
        role = following.next
        if role not in (None, BUNDLE, END, USER) and plays(row, role):
            return waits._replace(
                kind=ROLE,
                role=role,
                question=following.instruction or _description(instance, head, role),
                command=f"uwf thread step {head.thread}",
            )
    return None


def _description(instance: Instance, head: Head, role: str) -> str:
    """What the workflow says that a role is for."""
    assert head.row.workflow is not None
    described = parse_workflow(instance.store.get(head.row.workflow).payload).roles[role].description
    return described.strip() or f"Play the role {role}."


def _played_by_humans(instance: Instance) -> Callable[[CommitRow, str], bool] | None:
    """Whether this machine's configuration has a human play a role of the thread of such a row; None where it has none
    play any. The file is parsed only where it may."""
    from uwf_git.config.resolve import resolve_agent

    try:
        if not instance.config_has(b"human"):
            return None
        config = instance.config
    except (OSError, UwfError):  # whoever needs the configuration says what is wrong with it
        return None
    known: dict[tuple[str, str, str], bool] = {}

    def plays(row: CommitRow, role: str) -> bool:
        threads = instance.threads
        of_crew = row.start and row.workflow and threads.is_of_crew(row.workflow)
        speaker = threads.speaker(row.start, role) if row.start and of_crew else None
        who = row.name or "", role, speaker.id if speaker else ""
        if who not in known:
            try:
                agent = resolve_agent(config, who[0], role, persona=who[2])
                known[who] = agent.command == HUMAN
            except UwfError:
                known[who] = False
        return known[who]

    return plays


def answer(
    instance: Instance, thread: ThreadId, text: str, asked_by: Hash | None = None, other: bool = False
) -> Outcome:
    """Answers a waiting thread by a step of role `$USER`. `asked_by` is the step that the answer is for. Where that
    gives options, the answer is one of them, or its number, unless `other` lets it be anything. Moves
    `refs/uwf/threads/<ULID>`. Raises Busy, HeadMoved, Usage for an answer outside of the options, Invalid where
    nothing is asked, or another step asks by now."""
    with instance.locks.hold(thread):
        head = instance.threads.active_head(thread)
        if not head.row.asks:
            raise Invalid(f"thread {thread} asks nothing", _instead_of_answer(instance, head))
        if asked_by is not None and asked_by != head.node:
            raise Invalid(
                f"thread {thread} now asks in step {head.node}, not {asked_by}", "read the new question first"
            )
        if not text.strip():
            raise Invalid(f"the answer to thread {thread} is empty", "give one with -m TEXT")
        at = instance.threads.position(head)
        if not other and (options := outlook(instance, *at).options):
            text = chosen(thread, options, text)
        outcome = _say(instance, at, text)
    return _told(instance, outcome)


def _instead_of_answer(instance: Instance, head: Head) -> str:
    """What a person can do about a thread that asks nothing."""
    waits = waits_of(instance, head)
    if waits is None:
        return f"to say something all the same: uwf thread say {head.thread} -m TEXT"
    return f"to play {waits.role}, in a terminal: {waits.command}" if waits.kind == ROLE else waits.command


def go_on(instance: Instance, thread: ThreadId, text: str) -> Outcome:
    """Goes on from the end of a thread: makes one that shares its past and in which the user says the text, as the
    first step that is its own. Where the end asks, that is the answer; else the workflow says who is next then. Makes
    `refs/uwf/threads/<new ULID>`. Raises Invalid for a thread that hasn't ended, Usage where the text is empty or the
    workflow doesn't say how to go on."""
    end = instance.threads.head(thread)
    if end.archive is None:
        raise Invalid(f"thread {thread} has not ended", f"uwf thread step {thread}")
    history = instance.threads.history(end)
    if history.workflow.resume is None and not end.row.asks:
        raise Usage(
            f"thread {thread} is {end.archive.status}, and workflow {history.workflow.name} has no resume under $START",
            f"{fork_hint(end)}, then: uwf thread say NEW -m TEXT",
        )
    if not text.strip():
        raise Usage(
            f"thread {thread} is {end.archive.status}, and goes on with a text",
            f"uwf thread resume {thread} -m TEXT",
        )
    made = new_thread_id()
    at = Position(end._replace(thread=made, archive=None), history._replace(thread=made))
    outcome = _say(instance, at, text, begins=True)
    folder = instance.folders.recall(thread)
    if folder is not None:
        instance.folders.remember(made, folder)
    return _told(instance, outcome)


def say(instance: Instance, thread: ThreadId, text: str, chosen: bool = False) -> Outcome:
    """Says something in a conversation, whether or not a reply is owed; `chosen` from a persona's menu. The user's
    hooks aren't told: the user is there. Moves `refs/uwf/threads/<ULID>`. Raises Busy, HeadMoved, Usage for an empty
    text, Invalid for a thread that is no conversation or has ended."""
    if not text.strip():
        raise Usage(f"nothing is said in thread {thread}", "say something")
    with instance.locks.hold(thread):
        at = instance.threads.position(instance.threads.active_head(thread))
        if not is_conversation(at.history.workflow):
            raise Invalid(f"thread {thread} is no conversation", f"uwf thread answer {thread} -m TEXT")
        return _say(instance, at, text, notes=(CHOSEN,) if chosen else ())


def remark(instance: Instance, thread: ThreadId, text: str) -> Outcome:
    """Append a remark to a thread that waits for nobody, by a step of role `$USER` that changes neither who is next nor
    that role's instruction. The next prompt has it. Results of a step whose engine was killed become a failed attempt
    first. The user's hooks aren't told. Moves `refs/uwf/threads/<ULID>`, and maybe `refs/uwf/attempts/<ULID>`. Raises
    Usage for an empty text, Invalid for a thread that has ended or is a conversation, Waiting, Busy, HeadMoved,
    NoTransition."""
    from uwf_git.engine.step import keep_left

    if not text.strip():
        raise Usage(f"the remark to thread {thread} is empty", "give one with -m TEXT")
    check_remarkable(instance, instance.threads.head(thread))
    with instance.locks.hold(thread):
        head = instance.threads.head(thread)
        check_remarkable(instance, head)
        keep_left(instance, head, INTERRUPTED)
        return _say(instance, instance.threads.position(head), text, output=(REMARK, "remark"))


def check_remarkable(instance: Instance, head: Head) -> None:
    """Raises what `remark` raises for a thread with this head that can be told nothing now, whoever is at work on
    it."""
    thread = head.thread
    if head.archive is not None:
        raise Invalid(f"thread {thread} is {head.archive.status}", instance.threads.way_on(head))
    if in_conversation(instance, head):
        raise Invalid(f"thread {thread} is a conversation", f"uwf chat --resume {thread}")
    if head.row.asks:
        raise Waiting(f"thread {thread} waits for an answer", f"uwf thread answer {thread} -m TEXT")
    found = outlook(instance, head)
    raise_if_stuck(found, thread)
    if (standing := used_up(instance, head, found=found)) is not None:
        raise waiting(thread, standing)


def _say(
    instance: Instance,
    at: Position,
    text: str,
    begins: bool = False,
    notes: tuple[str, ...] = (),
    output: tuple[Hash, str] = (ANSWER, "answer"),
) -> Outcome:
    """Append what a person says. `output` is the type of the step's output and the name of its field."""
    from uwf_git.engine.step import append_step, outcome_of

    text, secrets = instance.redactor.text(text)
    told = Detail(
        answer=text,
        context=at.head.node,
        budget=pending(instance, at.head.thread),
        redactions=(("answer", secrets),) if secrets else (),
        notes=notes,
    )
    store = instance.store
    with store.registering():
        kind, field = output
        said = store.put(kind, {field: text})
        detail = store.put(DETAIL, told.payload())
        made = Step(at.history.start_hash, at.history.prev, USER, said, detail, PERSON)
        node = store.put(STEPNODE, made.payload())
    after = append_step(instance, at, node, made, begins=begins)
    return outcome_of(instance, after, outlook(instance, *after), USER)


def _told(instance: Instance, outcome: Outcome) -> Outcome:
    from uwf_git.engine.step import tell_of_outcome

    tell_of_outcome(instance, outcome.thread, outcome.status, outcome.outlook)
    return outcome
