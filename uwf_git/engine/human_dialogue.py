"""A person's answer at the terminal. It is asked for before the thread is locked, so that until then anybody may
answer from elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid, RequirementUnmet, UwfError
from uwf_git.engine.budget import used_up
from uwf_git.engine.human_turn import raise_if_moved
from uwf_git.engine.kit.agent import Agent, create_agent
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.record import Recorder
from uwf_git.engine.next_turn import outlook
from uwf_git.engine.pause import raise_if_paused
from uwf_git.engine.performer import called, performer_of
from uwf_git.engine.persons_answer import is_stepped, keeping
from uwf_git.engine.presented import raise_if_changed, shown_code
from uwf_git.engine.turn.gate import ballot_at
from uwf_git.engine.turn.hooks import Turn, Vote
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import HUMAN
from uwf_git.store.instance import Instance
from uwf_git.store.private import EngineOrder
from uwf_git.workflow.turn import TurnKind

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions


class TypedAnswer(NamedTuple):
    """What a person typed at a thread's `head`, in view of `code`, a commit or tree: an `output`, and the `words`
    besides, as in the `reply`."""

    head: Hash
    reply: Reply
    output: Any
    words: str
    code: str = ""

    def on(self, turn: Turn) -> Turn:
        """Return a turn with this answer. Raises Invalid after another step, RequirementUnmet for changed code."""
        raise_if_moved(turn.at.head, self.head)
        if self.code:
            raise_if_changed(turn.instance, turn.at, turn.role, self.code)
        return with_answer(turn, self.output, self.words, self.reply)

    def keeping(self, instance: Instance, thread: ThreadId) -> AbstractContextManager[None]:
        """Keep it if the block raises an error."""
        from uwf_git.engine.kit.form import texts_of

        fields = {name: texts_of(value) for name, value in self.output.items()}
        return keeping(instance, thread, self.words, fields)


def typed_answer(
    instance: Instance, thread: ThreadId, agent: str | Agent | AgentOptions | None
) -> TypedAnswer | None:
    """Ask the person who plays the next role; None if a person doesn't, or a step is refused anyway. `agent` is
    an override. Raises Absent without a terminal or if the person leaves, Paused, RolledBack, AgentFailed if
    time runs out."""
    head = instance.threads.active_head(thread)
    instance.raise_if_rolled_back(thread)
    raise_if_paused(instance, thread)
    at = instance.threads.position(head)
    instance.renew_judging()
    next_turn = outlook(instance, *at)
    if next_turn.next is None or next_turn.next.startswith("$") or used_up(instance, head, found=next_turn):
        return None
    try:
        config, playing = performer_of(instance, at, next_turn.next, agent)
    except UwfError:  # the step raises it
        return None
    if config.command != HUMAN or playing is None or is_stepped(instance, thread):
        return None
    name = called(playing, config)
    ballot = ballot_at(instance, at, next_turn)
    if ballot is not None:
        if ballot.is_met:
            return None
        try:
            ballot.check_voter(instance, thread)
        except RequirementUnmet:  # somebody else has to
            ballot.raise_if_unmet(thread)
    order = EngineOrder(
        head.node,
        next_turn.next,
        config.alias,
        next_turn.instruction,
        config.timeout,
        None,
        name,
        len(at.history.steps) + 1,
        command=(config.command, *config.args),
        folder=str(instance.location.root),
    )
    code = shown_code(instance, head)
    recorder = Recorder(instance, None, name)
    context = playing.context(instance, at, order, config.args, Path(order.folder), recorder)
    with playing.conversation(context) as conversation:
        reply: Reply = conversation.first()
    from uwf_git.workflow.template import body_of

    if ballot is None:
        fields = reply.output if isinstance(reply.output, dict) else {}
        words = body_of(reply.text) if fields else reply.text
        return TypedAnswer(head.node, reply, fields, words, code)
    from uwf_git.engine.kit.extract import ExpectedOutput, judge

    role = at.history.workflow.roles[next_turn.next]
    verdict = judge(reply, ExpectedOutput(role, instance.store.schema(role.schema)))
    if verdict.problems:
        raise Invalid(f"role {role.name}: {verdict.problems[0]}", f"uwf thread answer {thread}")
    return TypedAnswer(head.node, reply, verdict.output, body_of(reply.text), code)


def with_answer(turn: Turn, output: Any, words: str, reply: Reply) -> Turn:
    """Return a turn with a person's answer: their vote at a gate, else an agent that gives the reply."""
    if turn.kind is TurnKind.GATE:
        return turn._replace(vote=Vote(output, words))
    return turn._replace(agent=create_agent(HUMAN, lambda _context: reply))
