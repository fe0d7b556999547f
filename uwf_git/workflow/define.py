"""Workflows in Python, exported as `workflow` instead of `descriptor` and `run`: roles, and a function that
returns the next role.

    from uwf_git.workflow import define

    def next_role(ctx):
        return "critic" if len(ctx.steps) % 2 else "writer" if len(ctx.steps) < 4 else None

    workflow = define(description="…", roles={"writer": {"description": "…", "schema": {…}}, …}, moderator=next_role)

Code workflows see only this module and the standard library, so it must import nothing of uwf_git.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

END = "$END"
_ENDS = (END, "__end__", None)
_USER = "$USER"
_ROLE_KEYS = ("description", "schema", "systemPrompt", "extractPrompt")


class Context(NamedTuple):
    """The input of a moderator or an agent in code. `steps` are {role, content, meta, timestamp}, oldest
    first, for moderators without questions and answers. `role` is the acting one, "" for moderators;
    `max_rounds` is None for no limit; `options` are the run's."""

    thread: str
    prompt: str
    steps: Sequence[Mapping[str, Any]]
    max_rounds: int | None
    role: str
    options: Any

    @property
    def last(self) -> Any:
        """The `meta` of the last step, or None."""
        return self.steps[-1]["meta"] if self.steps else None


Moderator = Callable[[Context], "str | Awaitable[str | None] | None"]
AgentFunction = Callable[[Context], Awaitable[Any]]


class Definition(NamedTuple):
    """The result of `define`, with `descriptor` and `run`."""

    descriptor: Mapping[str, Any]
    moderator: Moderator
    agents: Mapping[str, str | AgentFunction]

    async def run(self, input: Mapping[str, Any], options: Any) -> AsyncIterator[Mapping[str, Any]]:
        """Yield a step for each role that the moderator names."""
        steps = list(input["steps"])
        while (name := await self._next(input, options, steps)) not in _ENDS:
            role = self.descriptor["roles"].get(name)
            if role is None:
                raise ValueError(f"the moderator named {name!r}, which is not a role")
            ctx = Context(options.thread_id, input["prompt"], tuple(steps), options.max_rounds, name, options)
            answer = meta = await self._ask(ctx)
            if isinstance(answer, str):
                meta = await options.extract(role["schema"], role.get("extractPrompt"), answer, role=name)
            content = answer if isinstance(answer, str) else ""
            step = {"role": name, "content": content, "meta": meta, "timestamp": int(time.time() * 1000)}
            yield step
            steps.append(step)
        options.finish({"returnCode": 0, "summary": "completed: moderator returned END"})

    async def _next(
        self, input: Mapping[str, Any], options: Any, steps: Sequence[Mapping[str, Any]]
    ) -> str | None:
        if len(steps) > 1 and steps[-1]["role"] == _USER:
            return str(steps[-2]["role"])  # it has asked, and is answered
        visible = tuple(step for step in steps if step["role"] != _USER and not _asks(step["meta"]))
        ctx = Context(options.thread_id, input["prompt"], visible, options.max_rounds, "", options)
        result = self.moderator(ctx)
        return await result if inspect.isawaitable(result) else result

    async def _ask(self, ctx: Context) -> Any:
        agent = self.agents.get(ctx.role)
        if callable(agent):
            return await agent(ctx)
        named = ctx.options.agents[agent] if agent is not None else ctx.options.agents.default
        answer: str = await named(ctx.role)
        return answer


def define(
    *,
    description: str,
    roles: Mapping[str, Mapping[str, Any]],
    moderator: Moderator,
    name: str | None = None,
    agents: Mapping[str, str | AgentFunction] | None = None,
    graph: Sequence[Mapping[str, str]] = (),
    max_rounds: int | None = None,
    budget: Mapping[str, float] | None = None,
) -> Definition:
    """Define a workflow of roles, {description, schema, systemPrompt, extractPrompt} by name.
    `moderator(ctx)` returns the next role, None or "$END" at the end.

    A role is played by this machine's agent for it, unless `agents` has an agent's name, or an async function
    from the context to an answer: a text to extract data from, or the data. `graph`, a list of {from, to,
    condition}, is for people. Raises ValueError, TypeError.
    """
    if not callable(moderator):
        raise TypeError("moderator is a function of the context that returns the next role")
    for role, fields in roles.items():
        if missing := [key for key in ("description", "schema") if key not in fields]:
            raise ValueError(f"role {role!r} has no {missing[0]}")
        if unknown := [key for key in fields if key not in _ROLE_KEYS]:
            raise ValueError(f"role {role!r} has {unknown[0]!r}; known are {', '.join(_ROLE_KEYS)}")
    for role in agents or {}:
        if role not in roles:
            raise ValueError(f"agents names {role!r}, which is not a role")
    descriptor: dict[str, Any] = {
        "description": description,
        "roles": {role: dict(given) for role, given in roles.items()},
    }
    optional = {
        "name": name,
        "graph": {"edges": [dict(edge) for edge in graph]} if graph else None,
        "maxRounds": max_rounds,
        "budget": None if budget is None else dict(budget),
    }
    descriptor |= {key: value for key, value in optional.items() if value is not None}
    return Definition(descriptor, moderator, dict(agents or {}))


def _asks(meta: Any) -> bool:
    if not isinstance(meta, Mapping):
        return False
    return meta.get("$status") == "$SUSPEND" or (meta.get("status") == "needs_input" and "question" in meta)
