"""`uwf thread` answer, say, pause and resume."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_step, complete_thread
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation, adopt_news, find_thread
from uwf_cli.options import THREAD
from uwf_cli.output import approvals_line
from uwf_cli.selection import Selection, on_each, threads
from uwf_cli.stepping import emit_outcome
from uwf_git.api.listing import ACTIVE, Filters
from uwf_git.base.errors import Usage, UwfError
from uwf_git.base.text import numbered, one_line
from uwf_git.base.thread_states import ThreadState

if TYPE_CHECKING:
    from uwf_git.engine.human_turn import HumanTurn
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance

_TITLE = 100  # characters of a task above its question


@command(
    'uwf thread answer 01JK7M -m "Use PostgreSQL"',
    "uwf thread answer                                 goes through what asks",
    "uwf thread answer 01JK7M 01JK9Q -m yes            the same answer to both",
    "uwf thread answer 01JK7M -m 2                     the second of its options",
    'uwf thread answer 01JK7M -f decision=merge -f reason="Reads well"',
    'uwf thread answer 01JK7M --for 8FWKR3 -m "yes"    only if that step still asks',
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
@click.option("-m", "--message", metavar="TEXT", help="The answer. - reads standard input.")
@click.option(
    "-f",
    "--field",
    metavar="NAME=TEXT",
    multiple=True,
    help="A field of a person's role. Repeat it for more, and for each item of a list.",
)
@click.option(
    "--for",
    "asked_by",
    metavar="STEP",
    help="Answer only while this step is the thread's newest.",
    shell_complete=complete_step,
)
@click.option("--other", is_flag=True, help="Accept an answer that is not one of the options.")
@click.option(
    "--unseen", is_flag=True, help="Answer for a role that judges code which is not on this machine."
)
@click.option("--code", metavar="COMMIT", help="Answer only if this is still the code that the role judges.")
@click.option("--revoke", is_flag=True, help="Take your approval back; -m gives the reason.")
def answer(
    invocation: Invocation,
    threads: tuple[str, ...],
    message: str | None,
    field: tuple[str, ...],
    asked_by: str | None,
    other: bool,
    unseen: bool,
    code: str | None,
    revoke: bool,
) -> None:
    """Answer waiting threads: a role's question, or as the person who plays the next role.

    If a question has options, answer with the text or the number of one; the role that asked runs next. For a
    person's role, -f fills in the fields of its output, and -m the only one that is left. Without either, a
    terminal asks for them, below the prompt and the changes.

    If the role has approvers, the answer is an approval: the step is made once enough of them agree. Until then
    --revoke takes yours back.

    Without an ID, a terminal asks for all that waits for an answer, one after another; an empty line leaves one
    for later.
    """
    fields = _fields(field)
    if len(threads) == 1:
        if revoke:
            thread_id = find_thread(invocation, threads[0])
            _revoke(invocation, thread_id, message, bool(fields or asked_by or other or unseen or code))
            return
        is_typed = message is None or message == resolve.STDIN  # else the shell has the command
        given = _Given(message, fields, asked_by, other, unseen, code or "", is_typed)
        _answer(invocation, threads[0], given)
        return
    if asked_by or code or revoke:
        raise Usage("--for, --code and --revoke are for one thread", "name it")
    _answer_all(invocation, threads, _Given(message, fields, None, other, unseen, "", False))


class _Given(NamedTuple):
    """What was given for an answer. `message` is None if there was none; `is_typed`: only this process has it."""

    message: str | None
    fields: Mapping[str, Sequence[str]]
    asked_by: str | None
    other: bool
    unseen: bool
    code: str
    is_typed: bool


def _answer_all(invocation: Invocation, threads: Sequence[str], given: _Given) -> None:
    """Answer several threads, with the same or on a terminal as typed; without names all that ask."""
    from uwf_git.api.cockpit.inbox import ASKS
    from uwf_git.api.cockpit.inbox import inbox as items

    has_answer = given.message is not None or bool(given.fields)
    if not threads and has_answer:
        raise Usage("no thread was named", "give the ids: uwf inbox --group asks has them")
    if not has_answer and not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        raise Usage("no answer is given", "give one with -m TEXT for threads that are named")
    if given.message == resolve.STDIN:
        given = given._replace(message=resolve.read_stdin("answer"))
    failures = Failures(invocation)
    adopt_news(invocation)
    names = threads or [item["thread"] for item in items(invocation.instance, only=[ASKS])]
    for number, name in enumerate(names, 1):
        try:
            if not has_answer:
                _introduce(invocation, name, f"{number} of {len(names)}")
            _answer(invocation, name, given, several=True)
        except UwfError as error:
            failures.add(error)
    if not names:
        invocation.note("nothing waits for a person here")
    failures.end()


def _introduce(invocation: Invocation, name: str, which: str) -> None:
    row = invocation.instance.threads.head(find_thread(invocation, name)).row
    line = terminal.escape(one_line(f"{row.name}: {row.title}", _TITLE))
    sys.stderr.write(f"{terminal.style(which, 'dim')}  {terminal.style(line, 'bold')}\n")
    sys.stderr.flush()


def _answer(invocation: Invocation, name: str, given: _Given, several: bool = False) -> None:
    from uwf_git.api.control import answer as give
    from uwf_git.api.find import find_step
    from uwf_git.api.outcome import raise_as_ended
    from uwf_git.engine.human_turn import human_turn
    from uwf_git.engine.persons_answer import keeping

    instance = invocation.instance
    thread_id = find_thread(invocation, name)
    message, fields, asked_by, other, unseen, code, is_typed = given
    head = instance.threads.active_head(thread_id)
    step_asking = None
    if asked_by:
        is_newest = head.node == asked_by.upper()  # which may be a thread's start
        step_asking = head.node if is_newest else find_step(instance, asked_by)
    turn = human_turn(instance, head)
    if message == resolve.STDIN:
        message = resolve.read_stdin("answer")
    if message is None and turn is not None and not fields:
        if terminal.is_terminal(sys.stdin):
            _play(invocation, head, turn, step_asking)
            return
        message = resolve.read_stdin("answer")
    elif message is None and fields:
        message = ""
    elif message is None:
        # The answer is for the question that was read, whatever happened during typing.
        message = _ask(instance, head, other) if head.row.asks else ""
        step_asking = step_asking or (head.node if head.row.asks else None)
        if several and not message and head.row.asks:
            return  # it is left for later
    with keeping(instance, thread_id, message, fields) if is_typed and message.strip() else nullcontext():
        outcome = give(instance, thread_id, message, step_asking, other, fields, unseen, code)
    emit_outcome(invocation, outcome, compact=several)
    raise_as_ended(invocation.instance, outcome.position.head)


def _revoke(invocation: Invocation, thread: ThreadId, reason: str | None, has_more: bool) -> None:
    from uwf_git.api.control import revoke as take_back

    if has_more:
        raise Usage("--revoke takes a reason only", f"uwf thread answer {thread} --revoke -m REASON")
    text = resolve.read_stdin("reason") if reason == resolve.STDIN else reason or ""
    invocation.emit(take_back(invocation.instance, thread, text), _revoked_text)


def _revoked_text(value: Any) -> str:
    return f"took your approval of {value['thread']} back: {approvals_line(value['approvals'])}"


def _fields(given: Sequence[str]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise Usage(f"-f {one_line(item, 60)!r} is not NAME=TEXT", "such as -f decision=merge")
        fields.setdefault(name, []).append(text)
    return fields


def _play(invocation: Invocation, head: Head, turn: HumanTurn, asked_by: Hash | None) -> None:
    """Ask for a person's role on the terminal, as `uwf thread step` does."""
    from uwf_git.api.outcome import raise_as_ended
    from uwf_git.api.run import Options
    from uwf_git.api.run import step as make
    from uwf_git.engine.human_turn import raise_if_moved

    if asked_by is not None:
        raise_if_moved(head, asked_by)
    if turn.standing is not None:
        turn.standing.check_voter(invocation.instance, head.thread)
    outcome = make(invocation.instance, head.thread, Options())
    emit_outcome(invocation, outcome)
    raise_as_ended(invocation.instance, outcome.position.head)


@command(
    'uwf thread say 01JK7M -m "Keep the old flag working"',
    "uwf thread say 01JK7M                     asks on a terminal",
    "git diff | uwf thread say 01JK7M -m -",
)
@THREAD
@click.option("-m", "--message", metavar="TEXT", help="The remark. - reads standard input.")
def say(invocation: Invocation, thread: str, message: str | None) -> None:
    """Add a remark to a thread that is not waiting. The next prompt includes it.

    A remark is recorded as a step. It does not change which role is next. Of a
    thread at work, an agent that can takes it at its next turn.
    """
    from uwf_git.api.control import steer
    from uwf_git.engine.outcome import Outcome
    from uwf_git.engine.steering import check_remarkable, fate

    instance = invocation.instance
    thread_id = find_thread(invocation, thread)
    if message is None:
        check_remarkable(instance, instance.threads.head(thread_id))
        message = _remark(thread_id)
    elif message == resolve.STDIN:
        message = resolve.read_stdin("remark")
    said = steer(instance, thread_id, message)
    if isinstance(said, Outcome):
        emit_outcome(invocation, said)
        return
    head = instance.threads.head(thread_id)
    value = {
        **{"workflow": head.row.workflow, "thread": thread_id, "head": head.node, "done": False},
        **{"status": ThreadState.RUNNING.word, "role": None, "agent": None, "remark": said.as_json()},
    }
    invocation.emit(value, lambda shown: f"the remark waits: {fate(shown['remark'])}")


def _remark(thread: ThreadId) -> str:
    if not terminal.is_terminal(sys.stdin):
        return resolve.read_stdin("remark")
    if not terminal.is_terminal(sys.stderr):
        raise Usage(f"no remark is given for thread {thread}", "give one with -m TEXT")
    sys.stderr.write("> ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _ask(instance: Instance, head: Head, other: bool) -> str:
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        text = "" if terminal.is_terminal(sys.stdin) else resolve.read_stdin("answer")
        if not text.strip():
            raise Usage(f"no answer is given for thread {head.thread}", "give one with -m TEXT")
        return text
    from uwf_git.engine.kit.form import chosen_option
    from uwf_git.engine.next_turn import NO_QUESTION, outlook

    asked = outlook(instance, head)
    first, *rest = (asked.question or NO_QUESTION).splitlines()
    lines = [f"{asked.asks} asks: {first}", *map(str.strip, rest)]  # indented, one could pass for an option
    lines += [f"  {option}" for option in numbered(asked.options)]
    lines += [f"({asked.reason})"] if asked.reason else []
    sys.stderr.write(terminal.escape("\n".join(lines)) + "\n")
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        text = sys.stdin.readline().strip()
        if other or not text or not asked.options:
            return text
        try:
            return chosen_option(head.thread, asked.options, text)
        except Usage as error:
            if text in (option.strip() for option in asked.options):
                sys.stderr.write(terminal.escape(f"{error.message} — {error.hint}") + "\n")
            sys.stderr.write("Please choose one of these, or its number; --other takes any answer.\n")


@command(
    "uwf thread pause 01JK7M",
    'uwf thread pause 01JK7M -m "until the tests are mended"',
    "uwf thread pause 01JK7M --now          ends the step in progress",
    "uwf thread pause --workflow solve-issue",
)
@threads
@click.option(
    "--now", is_flag=True, help="End the step in progress. Its output so far is kept as an attempt."
)
@click.option("-m", "--message", default="", metavar="TEXT", help="The reason, shown with the thread.")
def pause(invocation: Invocation, chosen: Selection, now: bool, message: str) -> None:
    """Pause threads. Nobody can step them, here or elsewhere after a push, until they are resumed.

    A step in progress finishes first, unless --now is given. Paused threads can be read, forked, answered and
    killed.
    """
    from uwf_git.api.control import pause as keep

    instance = invocation.instance
    why = instance.without_secrets(message, "the reason")

    def do(thread: ThreadId) -> dict[str, Any]:
        pause = keep(instance, thread, why, now)
        state = ThreadState.RUNNING if instance.locks.is_held(thread) else ThreadState.PAUSED
        return {"thread": thread, "status": state.word, "paused": pause.as_json()}

    on_each(invocation, chosen, do, _paused_text, ACTIVE)


def _paused_text(value: Any) -> str:
    then = " once its step in progress has ended" if value["status"] == ThreadState.RUNNING.word else ""
    return f"paused {value['thread']}{then}; uwf thread resume {value['thread']}"


@command(
    "uwf thread resume 01JK7M",
    "uwf thread resume --status paused",
    'uwf thread resume 01JK7M -m "Now the same for CSV"    of a thread that has ended',
)
@threads
@click.option("-m", "--message", metavar="TEXT", help="The text to continue with. - reads standard input.")
def resume(invocation: Invocation, chosen: Selection, message: str | None) -> None:
    """Resume paused threads, or continue finished ones.

    A finished thread is not changed: a new thread shares its steps and gives TEXT to the role of the `resume`
    edge under $START. For a waiting thread, TEXT is the answer. Run the thread with uwf thread run.
    """
    from uwf_git.api.control import resume_as_json
    from uwf_git.base import extensions

    if message is not None and not chosen.ids and chosen.filters != Filters():
        raise Usage(
            "a text is for threads that are named, and filters select the paused ones only",
            "give the ids: uwf thread list --all, with the same filters, says which",
        )
    instance = invocation.instance
    text = resolve.read_stdin("message") if message == resolve.STDIN else message
    goes_on: list[ThreadId] = []

    def do(thread: ThreadId) -> dict[str, Any]:
        goes_on.append(thread)
        return resume_as_json(instance, thread, text)

    instance.after(lambda: extensions.resumed(instance, goes_on))
    on_each(
        invocation,
        chosen,
        do,
        _resumed_text,
        (ThreadState.PAUSED, ThreadState.RUNNING),
        none="nothing is paused here",
    )


def _resumed_text(value: Any) -> str:
    waits = f"; it waits, {value['reason']}: {value['command']}" if "reason" in value else ""
    if "resumedFrom" in value:
        thread, end = terminal.style(value["thread"], "bold"), value["resumedFrom"]["thread"]
        then = waits or f"; uwf thread run {value['thread']}"
        return f"{thread} goes on from {end}, next is {value['next']}{then}"
    if "next" in value:
        return f"answered {value['thread']}, next is {value['next']}{waits}"
    if not value["resumed"]:
        return f"{value['thread']} is {terminal.status(value['status'])}, it was not paused"
    return f"resumed {value['thread']}, which is {terminal.status(value['status'])}"
