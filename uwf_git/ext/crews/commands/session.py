"""`uwf chat`: a session with an agent or a persona. Everything is recorded in threads at once, so a session
may end at any moment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.crews.commands.completers import complete_persona
from uwf_git.ext.crews.commands.conversation_agent import BUILTIN, talker
from uwf_git.ext.crews.commands.events import EventPrinter
from uwf_git.ext.crews.commands.line_input import typed
from uwf_git.ext.crews.commands.resuming import NEWEST, SessionState, find_session
from uwf_git.ext.crews.conversation import TALK
from uwf_git.plugin import (
    OWN_FORM,
    USER,
    AgentOptions,
    Invocation,
    Oid,
    Usage,
    UwfError,
    command,
    conversations,
    nearest,
    options,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.ext.crews.commands.run import Run
    from uwf_git.ext.crews.entry import Entry
    from uwf_git.ext.crews.menu import Choice, Routing
    from uwf_git.plugin import Instance, Outcome, ThreadId


@command(
    "uwf chat                          talk with the default model",
    "uwf chat trip/mary                with a persona of a crew, and its menu",
    "uwf chat --resume                 go on where you were",
    "uwf chat --agent claude-code",
    "echo 'What is a fold?' | uwf chat     reads lines, writes JSON lines",
)
@click.argument("who", metavar="[CREW[/PERSONA]]", required=False, shell_complete=complete_persona)
@click.option(
    "--resume",
    "resumed",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[ID]",
    help="Continue a conversation. Default: the newest.",
)
@options.AGENT
@options.CWD
def chat(
    invocation: Invocation, who: str | None, resumed: str | None, agent: str | None, cwd: Path | None
) -> None:
    """Chat with a model or a persona. The conversation is a thread, recorded step by step.

    With a crew, input is matched against the persona's menu first; workflows that it starts run here.

    On a terminal, answers stream; Ctrl-C stops one, Ctrl-D leaves. Otherwise each line of standard input is a
    message, and each event is printed as a JSON line.
    """
    # Without a store there are no known personas.
    instance = invocation.instance if who or resumed else invocation.instance_for_writing()
    session = Session(invocation, agent, options.folder(cwd), asks_tasks=terminal.is_terminal(sys.stdin))
    if resumed is not None:
        session.go_back_to(find_session(invocation, resumed, who or ""))
    else:
        session.meet(who or "")
    inputs = typed(
        instance.store.repository.private / "chat.history",
        lambda text: instance.redactor.text(text)[0],
        session.offers,
        session.place,
    )
    status = 0
    with instance.keeping():
        session.open()
        while not session.is_over:
            try:
                text = inputs.read()
            except KeyboardInterrupt:
                if not terminal.is_terminal(sys.stdin):
                    raise
                session.drop()
                continue  # discard typed input
            except Usage as error:
                session.shown.begin()
                session.shown.error(error)
            else:
                if text is None:
                    break
                with inputs.queued():
                    session.take(text)
            status = session.shown.status or status
    session.close()
    if status:
        from click.exceptions import Exit

        raise Exit(status)


class Session:
    """A conversation and its run. The conversation begins with the first message or run. `agent` is the
    user's choice. With `asks_tasks` the user is asked for a run's prompt, unless the menu or workflow
    provides one."""

    def __init__(
        self, invocation: Invocation, agent: str | None, cwd: Path | None, asks_tasks: bool = False
    ) -> None:
        self._invocation = invocation
        self._instance: Instance = invocation.instance
        self._cwd = cwd
        self._named = agent
        self._agent = agent
        self._entry: Entry | None = None
        self._run: Run | None = None
        self._asks_tasks = asks_tasks
        self._chosen: Routing | None = None  # an item whose run begins once its task is said
        self._left: Run | None = None  # the run that was left last
        self._after: ThreadId | None = None  # a completed run that nothing was said about yet
        self._offered: tuple[Choice, ...] = ()
        self.shown = EventPrinter(invocation)
        self.thread: ThreadId | None = None
        self.is_over = False

    # Beginning and ending

    def meet(self, who: str, thread: ThreadId | None = None) -> None:
        """Set the persona, "" for none, of the current crew or a thread's. Raises NotFound, Invalid without
        an agent."""
        from uwf_git.ext.crews.entry import Entry

        at = None if thread is None else self._instance.threads.head(thread).commit
        self._entry = Entry(self._instance, who, self._cwd or Path.cwd(), at) if who else None
        if self._entry is not None and (outdated := self._entry.outdated):
            self._invocation.note(f"{outdated}: this goes on with the one that it began with")
        if self._named is None:
            self._agent = talker(self._instance, self._entry)

    def go_back_to(self, state: SessionState) -> None:
        self.meet(state.who, state.conversation or state.run)
        self.thread = state.conversation
        if state.run is not None:
            self._run = self._running(state.run)

    def open(self) -> None:
        """Print the introduction, the last messages and the question."""
        entry = self._entry
        agent = " ".join(self._agent.words) if isinstance(self._agent, AgentOptions) else self._agent
        value = {
            "thread": self.thread,
            "workflow": conversations.CHAT if entry is None else f"{entry.crew.name}/{TALK}",
            "crew": None if entry is None else entry.crew.name,
            "persona": None if entry is None else entry.member.persona.id,
            "agent": agent,
            "model": _model(self._instance) if agent == BUILTIN else None,
        }
        self.shown.event("session", value, _session_line)
        if self.thread is not None:
            self._show_last()
        elif entry is not None and self._run is None:
            self._menu()
        if self._run is not None:
            self.shown.begin()
            self._guarded(self._show_run)

    def close(self) -> None:
        thread = self.thread or self._after if self._run is None else self._run.thread
        if thread is None and self._left is not None:
            thread = self._left.thread
        if thread is not None:
            self.shown.rest()
            self._invocation.note(f"uwf chat --resume {thread} goes on")

    def _show_last(self) -> None:
        assert self.thread is not None
        steps = self._instance.threads.history(self._instance.threads.head(self.thread)).steps
        for step in steps[-2:]:
            if step.role == USER:
                text = "\n".join(f"> {line}" for line in str(step.output["answer"]).splitlines())
            else:
                text = self._instance.threads.answer(step).rstrip()
            if self._invocation.format == "text":
                self._invocation.write(terminal.style(terminal.escape(text), "dim"))

    def _show_run(self) -> None:
        assert self._run is not None
        self._run.tell()
        self._look_whether_ended()
        if self._run is not None:
            self._run.ask()
        elif self._entry is not None and self.thread is None:
            self._menu()

    # Inputs

    def offers(self) -> Iterable[tuple[str, str]]:
        """Yield possible inputs with their effects."""
        offers = [(name, does) for name, (does, _) in self._commands().items()]
        if self._run is not None:
            return [*((option, "") for option in self._run.options()), *offers]
        if self._entry is not None:
            from uwf_git.ext.crews.menu import shown

            menu = self._entry.member.menu
            for choice in shown(self._entry.member, self._entry.crew.workflows):
                item = menu[choice.place]
                named = filter(None, (item.trigger, item.cmd, *item.aliases))
                offers += [(name, item.description) for name in named]
        return offers

    def place(self) -> str:
        """The name of the run that takes input, or ""."""
        if self._chosen is not None:
            return "task"
        return "" if self._run is None else self._run.name

    def drop(self) -> None:
        self._chosen = None

    def take(self, text: str) -> None:
        """Process an input; errors are printed."""
        self.shown.begin()
        self._guarded(lambda: self._take(text))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except KeyboardInterrupt:
            self._stopped()
        except (UwfError, OSError) as error:
            self.shown.error(error)
        finally:
            self.shown.rest()

    def _take(self, text: str) -> None:
        self._look_whether_ended()
        stripped = text.strip()
        if stripped.startswith("/") and not stripped.startswith("//"):
            self._command(stripped)
            return
        if self._chosen is not None and self._entry is not None:
            chosen, self._chosen = self._chosen, None
            task = stripped[1:] if stripped.startswith("//") else stripped
            self._start(self._entry, self._entry.resolve(chosen, task))
            return
        if stripped.startswith("*") and self._entry is not None:
            name = f"/{stripped[1:].strip().lower()}"
            if self._run is not None or name in self._commands():
                self._command(name)
                return
        if text.startswith("//"):
            text = text[1:]
        if self._run is not None:
            if not self._put_past_run(text) and stripped:
                self._run.answer(text)
                self._look_whether_ended()
        elif self._entry is not None:
            self._put(self._entry, text)
        elif stripped:
            self._say(text)

    def _put_past_run(self, text: str) -> bool:
        from uwf_git.ext.crews import menu

        if self._entry is None or self._run is None or self._run.takes_answers:
            return False
        kind = self._entry.route(text, self._offered).to_act_on.kind
        if kind == menu.CHAT:
            return False
        if kind not in (menu.SHOW_MENU, menu.CLARIFY, menu.RESUME, menu.DISMISS):
            self._leave()
        self._put(self._entry, text)
        return True

    def _put(self, entry: Entry, text: str) -> None:
        routed = entry.route(text, self._offered).to_act_on
        self._offered = routed.candidates
        self._carry_out(entry, routed)

    def _carry_out(self, entry: Entry, routed: Routing) -> None:
        from uwf_git.ext.crews import menu
        from uwf_git.ext.crews.commands.entry import candidates_text
        from uwf_git.ext.crews.entry import Run as Begins
        from uwf_git.ext.crews.entry import Turn

        is_unclear = routed.kind == menu.CLARIFY
        self.shown.event(
            "routed",
            routed.value(),
            (lambda value: f"{value['reason']}:\n{candidates_text(value)}") if is_unclear else lambda _: "",
        )
        if routed.kind == menu.SHOW_MENU:
            self._menu()
        elif routed.kind == menu.DISMISS:
            self._dismiss()
        elif routed.kind == menu.RESUME:
            self._go_on()
        elif not is_unclear:
            done = entry.resolve(routed)
            if (
                isinstance(done, Begins)
                and self._asks_tasks
                and entry.crew.format == OWN_FORM
                and not done.data
            ):
                self._chosen = routed
                self.shown.event("task", {"workflow": done.workflow.id, "task": done.prompt}, _task_line)
            elif isinstance(done, Begins):
                self._start(entry, done)
            elif isinstance(done, Turn):
                self._say(done.message, chosen=not done.reads_only)

    def _command(self, text: str) -> None:
        commands = self._commands()
        name = text.split()[0].lower()
        if text.lower() not in commands:
            hint = nearest(name, commands) or "see /help; a message that begins with / is written //…"
            if name in ("/leave", "/pause", "/stop"):
                hint = "it is for a run that is active; /dismiss or Ctrl-D leaves the chat"
            raise Usage(f"there is no {name} here", hint)
        commands[name][1]()

    def _commands(self) -> dict[str, tuple[str, Callable[[], None]]]:
        commands: dict[str, tuple[str, Callable[[], None]]] = {}
        if self._entry is not None:
            commands["/menu"] = ("Show the menu.", self._menu)
        if self._chosen is not None:
            commands["/leave"] = ("Don't begin the run.", self.drop)
        elif self._run is not None:
            commands["/pause"] = ("Pause the run: nobody steps it.", self._pause)
            commands["/leave"] = ("Leave the run as it is.", self._leave)
            commands["/stop"] = ("End the run for good.", self._stop)
            commands["/resume"] = ("Go on with the run.", self._go_on)
        elif self._left is not None and not self._owes_reply():
            commands["/resume"] = ("Go back to the run and go on with it.", self._go_on)
        else:
            commands["/resume"] = ("Have what was said last answered.", self._go_on)
        commands["/dismiss"] = ("Leave.", self._dismiss)
        commands["/help"] = ("Show these.", self._help)
        return commands

    # Talking

    def _say(self, text: str, chosen: bool = False) -> None:
        from uwf_git.plugin import say_to

        if self._after is not None:
            self.thread = self._begun(self._after)
            self._after = None
        outcome = say_to(self._instance, self._talk(), text, chosen)
        self.shown.event("message", self._message(outcome))
        self._reply()

    def _talk(self) -> ThreadId:
        if self.thread is None:
            self.thread = self._begun(self._after)
        return self.thread

    def _begun(self, after: ThreadId | None) -> ThreadId:
        from uwf_git.ext.crews.conversation_start import begin_conversation, begin_conversation_with

        origin = None if after is None else self._instance.threads.head(after).commit
        if self._entry is None:
            thread = begin_conversation(self._instance, origin)
        else:
            at = self._entry
            thread = begin_conversation_with(
                self._instance, at.crews, at.version, at.crew, at.member.persona, origin
            )
        if self._cwd is not None:
            self._instance.folders.remember(thread, self._cwd)
        return thread

    def _reply(self) -> None:
        from uwf_git.plugin import step_without_hooks

        thread = self._talk()
        with self.shown.working(thread):
            outcome = step_without_hooks(self._instance, thread, self._agent, self._cwd)
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
            "text": last.output["answer"] if last.role == USER else self._instance.threads.answer(last),
        }

    def _stopped(self) -> None:
        self.shown.rest()
        thread = self.thread if self._run is None else self._run.thread
        sentence = (
            "stopped; /resume asks again"
            if self._run is None
            else "stopped; /resume goes on, /leave leaves the run, /stop ends it"
        )
        self.shown.event("stopped", {"thread": thread}, lambda _: terminal.style(sentence, "dim"))

    # Runs

    def _running(self, thread: ThreadId) -> Run:
        from uwf_git.ext.crews.commands.run import Run

        return Run(self._invocation, self.shown, thread, self._named, self._agent, self._cwd)

    def _start(self, entry: Entry, begins: Any) -> None:
        from uwf_git.plugin import ThreadStart, at_version, begin_thread

        origin = self._instance.threads.head(self._talk()).commit
        workflow = begins.workflow.workflow
        commit = entry.crews.workflow_version(Oid(hex=entry.version.commit), workflow)
        resolved_workflow = at_version(self._instance, workflow, str(commit))
        what = ThreadStart(begins.prompt, cwd=self._cwd, data=begins.data, origin=origin)
        begun = begin_thread(self._invocation, resolved_workflow, what, persona=begins.persona, to_run=True)
        self._after = None
        self._run = self._running(begun.thread)
        self._run.tell("started")
        try:
            self._run.go()
        finally:
            self._look_whether_ended()

    def _look_whether_ended(self) -> None:
        if self._run is not None and self._run.has_ended:
            if self._run.was_completed:
                self._after = self._run.thread
            self._run = None

    def _pause(self) -> None:
        assert self._run is not None
        is_asking = self._run.takes_answers
        self._run.pause()
        if not is_asking:
            self._leave()

    def _leave(self) -> None:
        assert self._run is not None
        self._run.tell("left")
        self._left, self._run = self._run, None

    def _stop(self) -> None:
        assert self._run is not None
        self._run.stop()
        self._look_whether_ended()

    def _go_on(self) -> None:
        self.drop()
        if self._run is None and self._left is not None and not self._owes_reply():
            self._run, self._left = self._left, None
            self._look_whether_ended()
        if self._run is not None:
            try:
                self._run.resume()
            finally:
                self._look_whether_ended()
            return
        if self.thread is None:
            raise Usage("there is no message yet", "say something")
        if not self._owes_reply():
            raise Usage("the last message already has an answer", "say something")
        self._reply()

    def _owes_reply(self) -> bool:
        if self.thread is None:
            return False
        row = self._instance.threads.active_head(self.thread).row
        return not row.asks and row.kind != "start"

    # Output

    def _menu(self) -> None:
        from uwf_git.ext.crews.commands.entry import menu_text, menu_value

        assert self._entry is not None
        self.shown.event("menu", menu_value(self._entry), menu_text)

    def _dismiss(self) -> None:
        self.is_over = True

    def _help(self) -> None:
        value = {"commands": [{"name": name, "does": does} for name, (does, _) in self._commands().items()]}
        self.shown.event("help", value, _help_lines)


def _model(instance: Instance) -> str | None:
    from uwf_git.plugin import resolve_model

    model = resolve_model(instance.config, "agent")
    return None if model is None else model.name


def _session_line(value: Any) -> str:
    who = " · ".join(filter(None, (value["agent"], value["model"])))
    return terminal.style(f"{who or 'chat'} — /help lists commands, Ctrl-D leaves", "dim")


def _task_line(value: Any) -> str:
    how = "say in a line what it is about; Enter alone begins with just that, /leave doesn't begin"
    return f"{value['task']}\n{terminal.style(how, 'dim')}"


def _help_lines(value: Any) -> str:
    rows = [(command["name"], command["does"]) for command in value["commands"]]
    return terminal.table([*rows, ("Ctrl-C", "Stop the reply."), ("Ctrl-D", "Leave.")])
