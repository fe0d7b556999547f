"""One step's conversation with an agent: it begins, is corrected maybe, and is closed however the step ends.

An agent that keeps something between its first answer and a correction (a live process, the messages so far) is a
subclass of `Conversation`. An agent that keeps nothing is a pair of functions, of which `OfFunctions` makes one.
"""

from __future__ import annotations

from collections.abc import Callable

from uwf_git.errors import AgentFailed
from uwf_git.kit.context import Context, Reply
from uwf_git.kit.memory import carry_on

RunFunction = Callable[[Context], "Reply | str"]
ContinueFunction = Callable[[Context, str, str], "Reply | str"]


class Conversation:
    """What one step says to an agent and hears from it. The kit makes one for each step, calls `begin` once and `say`
    for each correction, and closes it whatever happens. Both raise AgentFailed where the agent can't go on."""

    correctable = True
    """Whether the agent can be told, in the same session, what is wrong with its answer."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def begin(self) -> Reply:
        """The answer to the step's prompt, or in the session of a failed attempt that the step carries on from."""
        raise NotImplementedError

    def say(self, text: str) -> Reply:
        """The answer to one more message in the same session."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends what the conversation holds open, such as a process."""

    def carried_on(self) -> tuple[str, str] | None:
        """The session of the failed attempt that this step carries on from, and the first message in it; None where
        the step begins anew."""
        resume = self.ctx.resume
        if resume is None or not resume.session:
            return None
        return resume.session, carry_on(resume.error, self.ctx.prompt_for_resumed_session)


class OfFunctions(Conversation):
    """The conversation of an agent that consists of `run` and maybe `continue_`; see create_agent."""

    def __init__(self, ctx: Context, name: str, run: RunFunction, continue_: ContinueFunction | None) -> None:
        super().__init__(ctx)
        self.correctable = continue_ is not None
        self._name = name
        self._run = run
        self._continue = continue_
        self._session = ""

    def begin(self) -> Reply:
        """Calls `continue_` where the step carries on from a failed attempt, else `run`."""
        if self._continue is not None and (left := self.carried_on()):
            self._session, message = left
            return self.say(message)
        return self._heard(self._run(self.ctx))

    def say(self, text: str) -> Reply:
        """Calls `continue_` with the session that the agent named last."""
        assert self._continue is not None
        return self._heard(self._continue(self.ctx, self._session, text))

    def _heard(self, value: Reply | str) -> Reply:
        if isinstance(value, str):
            return Reply(value)
        if not isinstance(value, Reply):
            raise AgentFailed(
                f"{self._name} returned {type(value).__name__}", "run and continue_ return a Reply or text"
            )
        self._session = value.session or self._session
        return value
