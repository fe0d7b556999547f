"""`uwf chat`: a session with an agent, in which a person talks.

Everything that is said is kept as it is said: a session is nothing but a view of threads, and may end at any moment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.commands.running import AGENT, CWD, folder
from uwf_cli.crews.shown import Shown
from uwf_cli.crews.typed import typed
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_git.crews.conversation import CHAT, begin_conversation, in_conversation
from uwf_git.errors import Invalid, NotFound, Usage, UwfError
from uwf_git.text import nearest
from uwf_git.values.types import USER

if TYPE_CHECKING:
    from uwf_git.engine.step import Outcome
    from uwf_git.store.opened import Instance
    from uwf_git.values.ids import ThreadId

NEWEST = "@"
_BUILTIN = "uwf-builtin"


@command(
    "uwf chat                          talk with the default model",
    "uwf chat --resume                 go on where you were",
    "uwf chat --agent claude-code",
    "echo 'What is a fold?' | uwf chat     reads lines, writes JSON lines",
)
@click.option(
    "--resume",
    "resumed",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[ID]",
    help="Go on with a conversation, the newest unless it is named.",
)
@AGENT
@CWD
def chat(invocation: Invocation, resumed: str | None, agent: str | None, cwd: Path | None) -> None:
    """Talk. What you say and what is answered is a thread like any, kept step by step.

    On a terminal answers appear while they are written; Ctrl-C stops one, Ctrl-D leaves. Elsewhere each line of
    standard input is a message, and each thing that happens a line of JSON.
    """
    instance = invocation.instance_for_writing()
    session = Session(invocation, agent, folder(cwd))
    if resumed is not None:
        session.resume(_conversation(invocation, resumed))
    status = 0
    inputs = typed(
        instance.store.repository.private / "chat.history",
        lambda text: instance.redactor.text(text)[0],
        session.offers,
    )
    session.open()
    with instance.keeping():
        while not session.is_over:
            try:
                text = inputs.read()
            except KeyboardInterrupt:
                if not terminal.is_terminal(sys.stdin):
                    raise
                continue  # what was typed is dropped
            if text is None:
                break
            session.take(text)
            status = session.shown.status or status
    session.close()
    if status:
        from click.exceptions import Exit

        raise Exit(status)


def _conversation(invocation: Invocation, text: str) -> ThreadId:
    """The conversation that a text means. Raises NotFound, Usage, Invalid for a thread that is none."""
    from uwf_git.store.history import Head

    instance = invocation.instance
    if text != NEWEST:
        found = find_thread(invocation, text)
        if not in_conversation(instance, instance.threads.active_head(found)):
            raise Invalid(f"thread {found} is no conversation", f"uwf thread run {found}")
        return found
    for head in instance.threads.all():
        if isinstance(head, Head) and in_conversation(instance, head):
            return head.thread
    raise NotFound("there is no conversation yet", "begin one with: uwf chat")


class Session:
    """A conversation, and what is said in it. It begins with the first message."""

    def __init__(self, invocation: Invocation, agent: str | None, cwd: Path | None) -> None:
        self._invocation = invocation
        self._instance: Instance = invocation.instance
        self._cwd = cwd
        self._agent = agent if agent is not None else _talker(self._instance)
        self.shown = Shown(invocation)
        self.thread: ThreadId | None = None
        self.is_over = False
        self._commands: dict[str, tuple[str, Callable[[], None]]] = {
            "/resume": ("Have what was said last answered.", self._answer_again),
            "/dismiss": ("Leave.", self._dismiss),
            "/help": ("Show these.", self._help),
        }

    def resume(self, thread: ThreadId) -> None:
        """Goes on with a conversation."""
        self.thread = thread

    def offers(self) -> Iterable[tuple[str, str]]:
        """What could be typed now, and what it does."""
        return [(name, does) for name, (does, _) in self._commands.items()]

    def open(self) -> None:
        """Says what this is, and what was said last."""
        value = {
            "thread": self.thread,
            "workflow": CHAT,
            "agent": self._agent,
            "model": _model(self._instance) if self._agent == _BUILTIN else None,
        }
        self.shown.event("session", value, _session_line)
        if self.thread is not None:
            self._show_last()

    def close(self) -> None:
        """Says how the conversation is gone on with."""
        if self.thread is not None:
            self._invocation.note(f"uwf chat --resume {self.thread} goes on")

    def take(self, text: str) -> None:
        """Does what an input says; what goes wrong is told."""
        self.shown.begin()
        try:
            if text.strip():
                self._take(text)
        except KeyboardInterrupt:
            self._stopped()
        except (UwfError, OSError) as error:
            self.shown.error(error)

    def _take(self, text: str) -> None:
        if text.startswith("/") and not text.startswith("//"):
            self._command(text.strip())
        else:
            self._say(text.removeprefix("/") if text.startswith("//") else text)

    def _command(self, text: str) -> None:
        known = self._commands.get(text.lower())
        if known is None:
            raise Usage(
                f"there is no {text.split()[0]}",
                nearest(text, self._commands) or "see /help; a message that begins with / is written //…",
            )
        known[1]()

    # Talking

    def _say(self, text: str) -> None:
        from uwf_git.engine.inbox import say

        if self.thread is None:
            self.thread = begin_conversation(self._instance)
            if self._cwd is not None:
                self._instance.folders.remember(self.thread, self._cwd)
        said = say(self._instance, self.thread, text)
        self.shown.event("message", self._message(said))
        self._reply()

    def _reply(self) -> None:
        """The reply to what was said last."""
        from uwf_git.engine.step import step_untold

        assert self.thread is not None
        with self.shown.working(self.thread):
            outcome = step_untold(self._instance, self.thread, self._agent, self._cwd)
        value = self._message(outcome)
        heard = self.shown.heard
        self.shown.event("message", value, (lambda _: "") if heard else lambda value: value["text"].rstrip())
        self._invocation.afterwards()

    def _message(self, outcome: Outcome) -> dict[str, Any]:
        steps = outcome.position.history.steps
        last = steps[-1]
        return {
            "thread": outcome.thread,
            "step": last.hash,
            "number": len(steps),
            "role": last.role,
            "agent": last.agent,
            "text": self._text_of(outcome),
        }

    def _text_of(self, outcome: Outcome) -> str:
        last = outcome.position.history.steps[-1]
        return str(last.output["answer"]) if last.role == USER else self._instance.threads.answer(last)

    def _stopped(self) -> None:
        """What was being said is kept as an attempt, by the engine."""
        self.shown.rest()
        value = {"thread": self.thread}
        self.shown.event("stopped", value, lambda _: terminal.style("stopped; /resume asks again", "dim"))

    def _show_last(self) -> None:
        """The last messages of a conversation that is gone on with."""
        assert self.thread is not None
        steps = self._instance.threads.history(self._instance.threads.head(self.thread)).steps
        for step in steps[-2:]:
            if step.role == USER:
                text = "\n".join(f"> {line}" for line in str(step.output["answer"]).splitlines())
            else:
                text = self._instance.threads.answer(step).rstrip()
            if self._invocation.format == "text":
                self._invocation.write(terminal.style(terminal.escape(text), "dim"))

    # Commands

    def _answer_again(self) -> None:
        if self.thread is None:
            raise Usage("nothing was said yet", "say something")
        head = self._instance.threads.active_head(self.thread)
        if head.row.asks:
            raise Usage("what was said last has its answer", "say something")
        self._reply()

    def _dismiss(self) -> None:
        self.is_over = True

    def _help(self) -> None:
        value = {"commands": [{"name": name, "does": does} for name, (does, _) in self._commands.items()]}
        self.shown.event(
            "help",
            value,
            lambda shown: terminal.table(
                [(each["name"], each["does"]) for each in shown["commands"]]
                + [("Ctrl-C", "Stop the reply."), ("Ctrl-D", "Leave.")]
            ),
        )


def _talker(instance: Instance) -> str | None:
    """The agent that talks where nobody names one; None for the one of the configuration. Raises Invalid where there is
    none."""
    from uwf_git.config.resolve import resolve_model
    from uwf_git.values.kinds import REHEARSE

    config = instance.config
    if "assistant" in config.agent_overrides.get(CHAT, {}):
        return None
    if resolve_model(config, "agent") is not None:
        return _BUILTIN
    if config.models:
        from uwf_git.kit.chat import asked_model

        asked_model("uwf chat", config, None)
    if config.default_agent in (None, REHEARSE, REHEARSE.removeprefix("uwf-")):
        raise Invalid(
            "there is no model to talk with",
            "set one up with: uwf setup; or name an agent: uwf chat --agent NAME",
        )
    return None


def _model(instance: Instance) -> str | None:
    from uwf_git.config.resolve import resolve_model

    model = resolve_model(instance.config, "agent")
    return None if model is None else model.name


def _session_line(value: Any) -> str:
    who = " · ".join(filter(None, (value["agent"], value["model"])))
    return terminal.style(f"{who or 'chat'} — /help lists commands, Ctrl-D leaves", "dim")
