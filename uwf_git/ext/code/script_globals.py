"""The globals of a workflow script in Python: agent, parallel, pipeline, phase, log, args, budget and workflow, as
`script.mjs` gives them to one in JavaScript. It is copied beside the harness, so it imports nothing of uwf_git."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

MOST_AGENTS = 1000
MOST_ITEMS = 4096

Call = Callable[..., Awaitable[Any]]
Stage = Callable[..., Any]


class Budget:
    """The tokens that a thread may spend; `total` is None without a limit."""

    def __init__(self, total: float | None, spent: Callable[[], float]) -> None:
        self.total = total
        self.spent = spent

    def remaining(self) -> float:
        return math.inf if self.total is None else max(0, self.total - self.spent())


class Globals:
    """The functions of one run. `call` asks the engine, `spent` returns the tokens so far."""

    def __init__(
        self, call: Call, load: Callable[[str, str], Any], total: float | None, spent: Callable[[], float]
    ) -> None:
        self._call = call
        self._load = load
        self._made = 0
        self._group = ""
        self._args: Any = None
        self.budget = Budget(total, spent)

    async def run(self, script: Any, args: Any, is_inner: bool = False) -> Any:
        """Run a script's `run`, with as much of this as its parameters name."""
        if not is_inner:
            self._args = args
        values = {
            "agent": self.agent,
            "parallel": self.parallel,
            "pipeline": self.pipeline,
            "phase": self.phase,
            "log": self.log,
            "args": args,
            "budget": self.budget,
            "workflow": _too_deep if is_inner else self.workflow,
        }
        return await script.run(**{name: values[name] for name in inspect.signature(script.run).parameters})

    async def agent(
        self,
        prompt: str,
        *,
        label: str | None = None,
        phase: str | None = None,
        schema: Mapping[str, Any] | None = None,
        model: str | None = None,
        effort: str | None = None,
        isolation: str | None = None,
        agent_type: str | None = None,
    ) -> Any:
        """Ask an agent: its text, or data that obey the schema; None if it failed."""
        self._made += 1
        if self._made > MOST_AGENTS:
            raise RuntimeError(f"a run asks at most {MOST_AGENTS} agents")
        if not isinstance(prompt, str) or not prompt.strip():
            raise TypeError("agent() takes a prompt, which is text")
        if isolation not in (None, "worktree"):
            raise ValueError(f'agent(): isolation is "worktree" or left out, not {isolation!r}')
        total = self.budget.total
        if total is not None and self.budget.spent() >= total:
            raise RuntimeError(f"the budget of {total} tokens is used up")
        return await self._call(
            "script",
            prompt=prompt,
            label=label,
            phase=phase or self._group,
            schema=schema,
            model=model,
            effort=effort,
            isolation=isolation,
            agentType=agent_type,
        )

    async def parallel(self, thunks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Call all at once; None for one that raises."""
        for thunk in self._listed(thunks, "parallel"):
            if not callable(thunk):
                raise TypeError("parallel() takes functions: parallel([lambda: agent(…), …])")

        async def one(index: int, thunk: Callable[[], Any]) -> Any:
            try:
                return await _awaited(thunk())
            except Exception as error:
                self.log(f"parallel {index}: {error}")
                return None

        return await _gathered(one(index, thunk) for index, thunk in enumerate(thunks))

    async def pipeline(self, items: Sequence[Any], *stages: Stage) -> list[Any]:
        """Take each item through all stages at its own pace; None for one whose stage raises. A stage is called with as
        many of (previous, item, index) as it takes."""
        takes = [_taken(stage) for stage in stages]

        async def one(index: int, item: Any) -> Any:
            previous = item
            try:
                for stage, number in zip(stages, takes, strict=True):
                    previous = await _awaited(stage(*(previous, item, index)[:number]))
            except Exception as error:
                self.log(f"pipeline item {index}: {error}")
                return None
            return previous

        return await _gathered(one(index, item) for index, item in enumerate(self._listed(items, "pipeline")))

    def _listed(self, value: Any, name: str) -> Sequence[Any]:
        if not isinstance(value, list | tuple):
            is_args = isinstance(value, str) and value == self._args
            hint = """: args is the prompt, a list if it is JSON: -p '["a", "b"]'""" if is_args else ""
            raise TypeError(f"{name}() takes a list, not {type(value).__name__}{hint}")
        if len(value) > MOST_ITEMS:
            raise ValueError(f"{name}() takes at most {MOST_ITEMS} items, not {len(value)}")
        return value

    def phase(self, title: str) -> None:
        self._group = str(title)
        print(f"— {title}", flush=True)

    def log(self, *values: Any) -> None:
        print(
            *(value if isinstance(value, str) else json.dumps(value, default=str) for value in values),
            flush=True,
        )

    async def workflow(self, name: str, args: Any = None) -> Any:
        """Run another registered script, to its result."""
        inner = await self._call("workflow", name=name)
        return await self.run(self._load(inner["file"], inner["source"]), args, is_inner=True)


async def _too_deep(name: str, args: Any = None) -> Any:
    raise RuntimeError("workflow() is one level deep: a script that another runs cannot run a third")


def _taken(stage: Stage) -> int:
    if not callable(stage):
        raise TypeError("pipeline() takes functions after its items: previous, item, index")
    kinds = [parameter.kind for parameter in inspect.signature(stage).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 3
    return sum(
        kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds
    )


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _gathered(work: Any) -> list[Any]:
    import asyncio

    return list(await asyncio.gather(*work))
