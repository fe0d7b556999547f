"""From an agent's answer to an output that is valid by its role's schema.

Problems go back to the agent in the same session, at most twice. Then an extraction model may read the
fields. Every reply is kept, since the first one usually has the work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, Invalid, UwfError
from uwf_git.base.text import closest, one_line
from uwf_git.engine.conversation import talks
from uwf_git.engine.kit.candidate import Reads, Verdict, built, obeys, reads_all
from uwf_git.engine.kit.coerce import natural
from uwf_git.engine.kit.context import Reply
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Role, TurnRecord, Usage, asks_human, replied
from uwf_git.format.schema import Schema
from uwf_git.format.shape import named
from uwf_git.format.statuses import NEEDS_INPUT, STATUS, SUSPEND
from uwf_git.format.types import QUESTION, SUSPEND_SCHEMA, called

if TYPE_CHECKING:
    from uwf_git.engine.kit.mentions import Decisive
    from uwf_git.engine.kit.reading import Ask
    from uwf_git.engine.step_parts import Changes

CORRECTIONS = 2

Continue = Callable[[str, str], Reply]
"""Sends a message in a session, or "" without one: (session, message) -> reply."""

Clean = Callable[[Any], Any]
"""Removes the secrets of a JSON value."""

Written = Callable[[], "Changes | None"]
"""Returns the changes of an agent to the document of its run, which are part of its answer. Raises Invalid."""

Heard = Callable[[Sequence[TurnRecord], TurnRecord | None], object]
"""Gets the turns of an insufficient answer, and the message to its agent, or None before a model reads them."""


class ExpectedOutput(NamedTuple):
    """The output that an answer must have. For an open schema, `reads` says which other fields the workflow
    may read; `written` fields count as part of it. With `clean`, it must also be valid without its secrets.
    """

    role: Role
    schema: Schema
    reads: Reads = reads_all
    written: Written = lambda: None
    clean: Clean | None = None


class Extraction(NamedTuple):
    """A valid output and how it was found.

    `type` is its schema: the role's, or the reserved question's. `how` is "frontmatter", "correction",
    "native" or "model:<name>". `answer` is the last reply, followed by the earlier report if the reply was
    only a corrected block. `turns` include corrections as turns of "user" and the model's reading as turns of
    the tool "extract". `notes` name the fields left out.
    """

    output: Any
    type: Hash
    how: str
    answer: str
    replies: tuple[Reply, ...]
    turns: tuple[TurnRecord, ...]
    usage: Usage | None
    notes: tuple[str, ...] = ()


class ExtractionFailed(AgentFailed):
    """No reply had a valid output. Carries the whole conversation."""

    def __init__(self, message: str, hint: str, conversation: _Conversation, problems: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.replies = tuple(conversation.replies)
        self.turns = tuple(conversation.turns)
        self.usage = conversation.usage()
        self.problems = tuple(problems)


class _Conversation:
    def __init__(self, kept: str = "") -> None:
        self.kept = kept  # search areas
        self.replies: list[Reply] = []
        self.turns: list[TurnRecord] = []
        self._read: list[Reply] = []
        self.last = 0  # index of the last reply's first turn

    def add(self, reply: Reply, failed: bool = False) -> None:
        self.replies.append(reply)
        self.last = len(self.turns)
        if reply.turns or reply.text or not failed:
            self.turns += reply.turns or (TurnRecord("assistant", reply.text, usage=reply.usage),)

    def ask(self, message: str) -> TurnRecord:
        self.turns.append(turn := TurnRecord("user", message))
        return turn

    def read(self, reply: Reply) -> None:
        from uwf_git.engine.kit.reading import turn_of

        self._read.append(reply)
        self.turns.append(turn_of(reply))

    def answers(self) -> int:
        within = (pair for reply in self.replies for pair in pairwise(turn.role for turn in reply.turns))
        return len(self.replies) + sum(pair == ("assistant", "user") for pair in within)

    def usage(self) -> Usage | None:
        return sum_usage([*self.replies, *self._read])


def extract(
    reply: Reply,
    wanted: ExpectedOutput,
    *,
    continue_: Continue | None = None,
    model: Ask | None = None,
    heard: Heard = lambda turns, message: None,
    kept: str = "",
    retells: bool = False,
) -> Extraction:
    """Return the output of `reply`, of a later reply to a correction, or as `model` reads it.

    Corrections need `continue_`, and a reply with a session or an agent that `retells` everything. `heard`
    gets the turns of an insufficient reply and the next message before it is sent. Raises ExtractionFailed,
    whose hint is `kept` unless there is a better one.
    """
    conversation = _Conversation(kept)
    conversation.add(reply)
    role = wanted.role
    how = "native" if talks(role) or reply.output is not None else "frontmatter"
    session = reply.session
    bodies: list[str] = []
    for tries_left in range(CORRECTIONS, -1, -1):
        try:
            verdict = judge(reply, wanted)
        except Invalid as error:  # the schema can't be applied: no other answer would help
            raise _failed(role, conversation, [error.message], error.hint) from None
        log.debug(
            "1FJGM5EJ",
            "answer {number} has {problems} problems",
            number=len(conversation.replies),
            problems=len(verdict.problems),
            what=verdict.problems,
            size=len(reply.text),
            how=how,
        )
        if not verdict.problems:
            answer = reply.text if verdict.body or not bodies else f"{reply.text.rstrip()}\n\n{bodies[-1]}\n"
            return _done(conversation, verdict, how, answer)
        if verdict.body.strip():
            bodies.append(verdict.body)
        if not tries_left or continue_ is None or (session is None and not retells):
            break
        message = correction(verdict.problems)
        log.info(
            "WPJCTKA7",
            "asks the agent to correct its answer, in session {session}",
            session=session,
            problems=verdict.problems,
        )
        heard(conversation.turns[conversation.last :], conversation.ask(message))
        try:
            reply = continue_(session or "", message)
        except UwfError as error:
            first, *others = verdict.problems
            problems = [f"{first}; asking again failed: {error.message}", *others]
            answers = conversation.answers()
            if isinstance(error, ExtractionFailed):  # its turns and usage before the failure
                for earlier in error.replies:
                    conversation.add(earlier, failed=True)
            raise _failed(role, conversation, problems, error.hint, answers).since(error) from None
        session = reply.session or session
        conversation.add(reply._replace(session=session))
        how = "correction"
    if model is None:
        raise _failed(role, conversation, verdict.problems)
    heard(conversation.turns[conversation.last :], None)
    return _by_model(conversation, wanted, model, verdict.problems)


def judge(reply: Reply, wanted: ExpectedOutput) -> Verdict:
    """Return the verdict on a reply: the wanted output, the reserved question, or any text for a role that
    talks. Raises Invalid if the schema cannot be applied."""
    verdict = _judged(reply, wanted)
    if verdict.problems or wanted.clean is None or (value := wanted.clean(verdict.output)) == verdict.output:
        return verdict
    obeyed = Schema(SUSPEND_SCHEMA) if verdict.type == QUESTION else wanted.schema
    taken_out = "a secret, which is never stored, was taken out, and then"
    return verdict._replace(problems=tuple(f"{taken_out} {problem}" for problem in obeyed.problems(value)))


def _judged(reply: Reply, wanted: ExpectedOutput) -> Verdict:
    own_type = wanted.role.schema
    if talks(wanted.role):
        problems = () if reply.text.strip() else ("the answer is empty",)
        return Verdict(replied(reply.text), own_type, problems, reply.text)
    try:
        changes = wanted.written()
    except Invalid as error:
        from uwf_git.engine.kit.answer import parse_answer

        problem = " — ".join(filter(None, (error.message, error.hint)))
        return Verdict(None, own_type, (problem,), parse_answer(reply.text, lambda _: True).body)

    if reply.output is not None:
        whole = _with(changes, reply.output)
        return _check(whole, wanted, reply.text, coerced=whole is not reply.output)

    from uwf_git.engine.kit.answer import disagree, parse_answer

    check = Checks(wanted, changes)

    def output_of(fields: Any) -> Any:
        verdict = check(fields)
        return None if verdict.problems else (verdict.type, verdict.output)

    own = named(wanted.schema.payload)
    answer = parse_answer(reply.text, output_of, own.has)
    if answer.fields is None:
        return Verdict(None, own_type, (answer.problem,), answer.body)
    verdict = check(answer.fields, answer.body)
    if not verdict.problems:
        from uwf_git.engine.kit.mentions import Decisive, extra_fields

        decisive = Decisive(wanted.schema.payload)
        extra = extra_fields(answer.fields, own.has)
        if (line := contradicted(decisive, verdict.output, answer.rest, [(answer.line, extra)])) is not None:
            return Verdict(None, own_type, (disagree((answer.line, line)),), answer.body)
    return with_comments(verdict, answer.comments)


def contradicted(decisive: Decisive, output: Any, rest: str, extras: Iterable[tuple[int, str]]) -> int | None:
    """Return the line in which the rest of a text, or the further fields of an answer, disagree with an output."""
    for line, text in extras:
        if text and decisive.contradicted(output, text) is not None:
            return line
    mention = decisive.contradicted(output, rest)
    return None if mention is None else mention.line


class Checks:
    """The verdicts on fields, made once: they may be many, and the schema slow."""

    def __init__(self, wanted: ExpectedOutput, changes: Changes | None) -> None:
        self._wanted = wanted
        self._changes = changes
        self._verdicts: list[tuple[Any, str, Verdict]] = []

    def __call__(self, fields: Any, body: str = "") -> Verdict:
        for value, below, verdict in self._verdicts:
            if value is fields and (below == body or (not verdict.problems and verdict.type != QUESTION)):
                return verdict._replace(body=body)
        verdict = _check(_with(self._changes, fields), self._wanted, body)
        self._verdicts.append((fields, body, verdict))
        return verdict


def _with(changes: Changes | None, fields: Any) -> Any:
    alone = changes is None or not isinstance(fields, dict) or asks_human(natural(fields))
    return fields if alone or changes is None else changes.added_to(fields)


def with_comments(verdict: Verdict, comments: Sequence[str]) -> Verdict:
    """Note the comments of a block that are not in its output."""
    written = json.dumps(verdict.output, ensure_ascii=False) if comments else ""
    lost = [comment for comment in comments if json.dumps(comment, ensure_ascii=False)[1:-1] not in written]
    if not lost or verdict.problems:
        return verdict
    note = f"left out of the output, as a comment: {one_line(' '.join(lost), 300)}"
    return verdict._replace(notes=(*verdict.notes, note))


def correction(problems: Sequence[str]) -> str:
    """Return the message to an agent whose answer is refused."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return (
        f"Your answer can't be taken yet:\n\n{listed}\n\n"
        "Answer again. Begin with the corrected block of fields between two lines of `---`, with nothing "
        "before it, and write your whole report below it: this answer takes the place of the last one."
    )


def failed_with(reply: Reply, message: str, hint: str = "") -> ExtractionFailed:
    """Return the error for an agent that answered but cannot continue; the failed attempt keeps `reply`."""
    conversation = _Conversation()
    conversation.add(reply, failed=True)
    return ExtractionFailed(message, hint, conversation, [message])


def sum_usage(replies: Sequence[Reply]) -> Usage | None:
    """Return the sum of the replies' tokens, None if none counted them."""
    return sum_tokens(reply.usage for reply in replies)


def sum_tokens(usages: Iterable[Usage | None]) -> Usage | None:
    """Return the sum of the tokens, None if none were counted."""
    total: Usage | None = None
    for usage in usages:
        if usage is not None and total is not None:
            total = Usage(*map(sum, zip(total, usage, strict=True)))
        else:
            total = total or usage
    return total


def _check(value: Any, wanted: ExpectedOutput, body: str, coerced: bool = True) -> Verdict:
    reads = wanted.reads if coerced else None
    question_fields = _asked(value)
    if question_fields is None:
        return built(value, wanted.role.schema, wanted.schema, body, reads)
    question = built(question_fields, QUESTION, Schema(SUSPEND_SCHEMA), body, reads)
    if not question.problems and not question.notes:
        return question
    # A role may have a status of that name in its own schema, with fields of its own.
    own = obeys(value, wanted.role.schema, wanted.schema, body, coerced)
    if not own.problems:
        return own
    if not question.problems or natural(question_fields.get("question")) not in (None, ""):
        return question
    others = {name: item for name, item in question_fields.items() if name not in ("question", "reason")}
    # A misspelt field holds the question, so the text below the fields is none.
    instead = "" if any(closest(name, ("question", "reason")) for name in others) else body.strip()
    if text := question_fields.get("reason") if natural(question_fields.get("reason")) else instead:
        turned = built({**others, "question": text}, QUESTION, Schema(SUSPEND_SCHEMA), body, reads)
        if not turned.problems:
            return turned
    missing = "what asks a human needs a question or a reason"
    problems = [
        missing if "'question'" in problem and "required" in problem else problem
        for problem in question.problems
    ]
    return question._replace(problems=tuple(problems))


def _asked(value: Any) -> dict[str, Any] | None:
    """Return an answer's fields as the reserved question, if they are one. A status beside `$status:
    $SUSPEND` is a standard field; `needs_input` may be under either name."""
    if not isinstance(value, dict):
        return None
    fields = {**value}
    status = [natural(fields.get(name)) for name in STATUS]
    if status[0] == NEEDS_INPUT:
        fields["$status"] = SUSPEND
    if fields.get("$status") == SUSPEND and status[1] != NEEDS_INPUT:
        fields.pop("status", None)
    if not asks_human(natural(fields)):
        return None
    for name in ("question", "reason"):
        if (
            isinstance(texts := fields.get(name), list)
            and texts
            and all(isinstance(text, str) for text in texts)
        ):
            fields[name] = "; ".join(texts)
    return fields


def _done(conversation: _Conversation, verdict: Verdict, how: str, answer: str) -> Extraction:
    replies, turns = tuple(conversation.replies), tuple(conversation.turns)
    return Extraction(
        verdict.output, verdict.type, how, answer, replies, turns, conversation.usage(), verdict.notes
    )


def _failed(
    role: Role, conversation: _Conversation, problems: Sequence[str], hint: str = "", answers: int = 0
) -> ExtractionFailed:
    count = answers or conversation.answers()
    times = "an answer" if count == 1 else f"{count} answers"
    message = f"{called(role.name)} gave {times} without a valid output: {problems[0] if problems else '?'}"
    if len(problems) > 1:
        message += f" (and {len(problems) - 1} more)"
    return ExtractionFailed(message, hint or conversation.kept, conversation, problems)


def _by_model(
    conversation: _Conversation, wanted: ExpectedOutput, model: Ask, problems: Sequence[str]
) -> Extraction:
    from uwf_git.engine.kit.reading import messages_for, read_by, reader_note

    role = wanted.role
    messages = messages_for(
        wanted.schema.payload, [reply.text for reply in conversation.replies], role.extract_prompt
    )
    try:
        reply, verdict = read_by(
            model, messages, lambda reply: judge(reply._replace(output=None), wanted), conversation.read
        )
    except UwfError as error:
        first, *others = problems
        problems = [f"{first}; extraction by a model failed: {error.message}", *others]
        raise _failed(role, conversation, problems, error.hint).since(error) from None
    if verdict.problems:
        raise _failed(role, conversation, verdict.problems)
    return _done(conversation, verdict, reader_note(reply), conversation.replies[-1].text)
