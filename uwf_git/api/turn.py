"""Python functions as agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import AgentFailed
from uwf_git.format.kinds import agent_name_problem, split_remarks

if TYPE_CHECKING:
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.engine.kit.context import Context


class Turn:
    """The input of a function that is an agent.

    role         the role's name
    prompt       the whole prompt as one text
    schema       the JSON Schema of the answer
    task         the thread's prompt
    instruction  the edge's prompt, or ""
    inputs       the newest output of each role, by name
    remarks      the user's remarks since the last step of a role
    thread       the thread's id
    attempt      the number of failed attempts at this step
    cwd          the working folder; not the current one
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def role(self) -> str:
        return self._context.role.name

    @property
    def prompt(self) -> str:
        return self._context.prompt

    @property
    def schema(self) -> Any:
        return self._context.schema.payload

    @property
    def task(self) -> str:
        return self._context.history.start.prompt

    @property
    def instruction(self) -> str:
        return self._context.instruction or ""

    @property
    def inputs(self) -> Mapping[str, Any]:
        heard, _ = split_remarks(self._context.history.steps)
        return {step.role: step.output for step in heard}

    @property
    def remarks(self) -> tuple[str, ...]:
        return self._context.remarks

    @property
    def thread(self) -> str:
        return self._context.thread

    @property
    def attempt(self) -> int:
        return self._context.attempt

    @property
    def cwd(self) -> Path:
        return self._context.cwd

    def __repr__(self) -> str:
        return f"Turn(role={self.role!r}, thread={self.thread!r})"


Function = Callable[[Turn], Any]


class FunctionAgent:
    """An agent made from a function. `error` is the exception it raised last."""

    def __init__(self, function: Function) -> None:
        from uwf_git.engine.kit.agent import Agent, FunctionConversation

        name = getattr(function, "__name__", type(function).__name__)
        called = "python" if agent_name_problem(name) or not name.isidentifier() else f"python/{name}"
        self._function = function
        self._called = called
        self.error: Exception | None = None
        self.agent: Agent = Agent(
            called,
            lambda ctx: FunctionConversation(ctx, called, self._run, None),
            parse_args=lambda _: None,
            named=lambda _: called,
        )

    def _run(self, ctx: Context) -> Any:
        from uwf_git.engine.kit.context import Reply

        self.error = None
        try:
            answer = self._function(Turn(ctx))
        except AgentFailed:
            raise
        except Exception as error:  # a user's function may raise anything
            self.error = error
            raise AgentFailed(f"{self._called} raised {type(error).__name__}: {error}") from None
        if isinstance(answer, str | Reply):
            return answer
        if answer is None:
            raise AgentFailed(f"{self._called} returned nothing", "return the output, or a text")
        try:
            text = json.dumps(answer, ensure_ascii=False, indent=2)
        except (TypeError, ValueError) as error:
            raise AgentFailed(f"{self._called} returned what is not JSON: {error}") from None
        return Reply(text, output=json.loads(text))
