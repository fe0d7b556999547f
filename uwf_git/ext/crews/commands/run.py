"""The run of a session: started from a conversation, stepped, answered, paused, stopped."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.ext.crews.commands.events import EventPrinter, question_lines
from uwf_git.plugin import Invalid, Paused, ThreadState, Usage, endings, outcome_line, outcome_value, terminal

if TYPE_CHECKING:
    from uwf_git.plugin import Hash, Instance, Invocation, Outcome, ThreadId

MOST = 500
"""Steps of a run between two inputs."""
_WAYS_ON = "/resume continues it, /leave leaves it, /stop ends it"


class Run:
    """An active run. `agent` plays all roles, None for the configured ones; `talker` plays unassigned ones."""

    def __init__(
        self,
        invocation: Invocation,
        shown: EventPrinter,
        thread: ThreadId,
        agent: str | None,
        talker: str | None,
        cwd: Path | None,
    ) -> None:
        self._invocation = invocation
        self._instance: Instance = invocation.instance
        self._shown = shown
        self._agent = agent
        self._talker = talker
        self._cwd = cwd
        self._asked: Hash | None = None
        self.thread = thread

    @property
    def has_ended(self) -> bool:
        return self._instance.threads.has_ended(self.thread)

    @property
    def was_completed(self) -> bool:
        archive = self._instance.threads.head(self.thread).archive
        return archive is not None and archive.status != endings.KILLED

    @property
    def name(self) -> str:
        """The workflow's name without the crew's."""
        return (self._instance.threads.head(self.thread).row.name or "").rpartition("/")[2]

    @property
    def takes_answers(self) -> bool:
        """Whether it asks, or will after a resume."""
        return self._instance.threads.head(self.thread).row.asks

    def options(self) -> tuple[str, ...]:
        from uwf_git.plugin import thread_outlook

        head = self._instance.threads.head(self.thread)
        return thread_outlook(self._instance, head).options if head.archive is None and head.row.asks else ()

    def tell(self, status: str = "") -> None:
        from uwf_git.plugin import thread_state

        head = self._instance.threads.head(self.thread)
        status = status or thread_state(self._instance, head).word
        value = {"thread": self.thread, "workflow": head.row.name, "status": status}
        self._shown.event("run", value, _run_line)

    def go(self) -> None:
        """Step until it asks, waits or ends."""
        from uwf_git.plugin import RunOptions, run_thread
        from uwf_git.plugin import step_once as step

        def following() -> RunOptions:
            return RunOptions(self._player(), self._cwd)

        def make(instance: Instance, thread: ThreadId, options: RunOptions) -> Outcome:
            with self._shown.working(thread, fields=True):
                return step(instance, thread, options)

        for outcome in run_thread(self._instance, self.thread, following, MOST, make=make):
            value, shown = outcome_value(self._invocation, outcome)
            shown = {**shown, "question": "", "options": ()}
            self._shown.event("step", value, outcome_line, **shown)
            self._invocation.afterwards()
            if outcome.done:
                self.tell(outcome.state.word)
                return
            if not outcome.state.is_ready:
                self.ask()
                return
        raise Usage(f"run {self.thread} has made {MOST} steps without a question", _WAYS_ON)

    def ask(self) -> None:
        """Print its question. Raises Waiting if an answer doesn't help."""
        from uwf_git.plugin import raise_if_paused, raise_if_stuck, raise_if_used_up, thread_outlook

        head = self._instance.threads.active_head(self.thread)
        outlook = thread_outlook(self._instance, head)
        if head.row.asks:
            self._asked = head.node
            value = {
                "thread": self.thread,
                "step": head.node,
                "role": outlook.asks,
                "question": outlook.question,
                "options": list(outlook.options),
                "reason": outlook.reason,
            }
            self._shown.event(
                "question", value, lambda value: question_lines(value["question"], value["options"])
            )
            return
        raise_if_paused(self._instance, self.thread)
        raise_if_stuck(self._instance, outlook, head)
        raise_if_used_up(self._instance, head)

    def answer(self, text: str) -> None:
        """Answer the last question and continue. If another step asks by now, its question is shown instead.
        Raises Usage without a question."""
        from uwf_git.plugin import answer_turn as answer
        from uwf_git.plugin import chosen_option, thread_outlook

        head = self._instance.threads.active_head(self.thread)
        if self._instance.threads.is_paused(self.thread):
            raise Paused(f"run {self.thread} is paused", "/resume continues it, /leave leaves it")
        if not head.row.asks:
            does = "has failed" if self._instance.attempts.failed(head) else "is not waiting for an answer"
            raise Usage(f"run {self.thread} {does}", _WAYS_ON)
        if head.node != (self._asked or head.node):
            self.ask()
            raise Invalid(f"run {self.thread} asks something else by now", "answer that")
        if options := thread_outlook(self._instance, head).options:
            with suppress(Usage):  # who talks need not choose
                text = chosen_option(self.thread, options, text)
        outcome = answer(self._instance, self.thread, text, head.node, other=True)
        step = outcome.position.history.steps[-1]
        value = {
            "thread": self.thread,
            "step": step.hash,
            "number": len(outcome.position.history.steps),
            "role": step.role,
            "agent": step.agent,
            "text": step.output["answer"],
        }
        self._asked = None
        self._shown.event("message", value)
        self._invocation.afterwards()
        self.go()

    def pause(self) -> None:
        from uwf_git.plugin import pause_thread as pause

        pause(self._instance, self.thread)
        self.tell(ThreadState.PAUSED.word)

    def resume(self) -> None:
        """Resume and continue, repeating a question."""
        from uwf_git.plugin import resume_thread as resume

        resume(self._instance, self.thread)
        if self._instance.threads.active_head(self.thread).row.asks:
            self.ask()
        else:
            self.go()

    def stop(self) -> None:
        from uwf_git.plugin import kill_thread

        kill_thread(self._instance, self.thread, "stopped in a chat")
        self.tell(ThreadState.KILLED.word)
        self._invocation.afterwards()

    def _player(self) -> str | None:
        from uwf_git.plugin import resolve_agent, thread_outlook

        if self._agent is not None or self._talker is None:
            return self._agent
        at = self._instance.threads.position(self._instance.threads.active_head(self.thread))
        role = thread_outlook(self._instance, *at).next
        if role is None or role.startswith("$"):
            return None
        agent = resolve_agent(self._instance.config_of(at.head.row), at.history.cast.role(role))
        return self._talker if agent.stands_in else None


def _run_line(value: Any) -> str:
    line = f"{value['workflow']} {value['thread']}: {terminal.status(value['status'])}"
    if value["status"] == "left":
        return terminal.style(f"{line}; /resume goes back to it", "dim")
    return terminal.style(line, "dim") if value["status"] == "started" else line
