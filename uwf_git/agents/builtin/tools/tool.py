"""What a tool is, and a box of them that answers every call, however wrong, with a JSON value.

    {"ok": true, …}
    {"ok": false, "error": {"code": "not_found", "message": "@project/a.py does not exist"}}

The codes are listed in `failure`. What a model did wrong never raises.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.agents.builtin.tools.outputs import SHOWN, Outputs, ToolFailure, shown
from uwf_git.agents.builtin.tools.sandbox import Visible, find_sandbox
from uwf_git.agents.builtin.tools.workspace import WORKFLOW, Workspace
from uwf_git.config.policy import ToolPolicy
from uwf_git.errors import UwfError
from uwf_git.text import nearest
from uwf_git.values.schema import Schema

ARGUMENTS = 8_000_000  # characters of a call's arguments
LARGEST = 4 * SHOWN  # characters of a result as JSON
DEEPEST = 32  # lists and objects within each other, in arguments and results
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class ToolContext(NamedTuple):
    """What a tool works with. `deadline` is on time.monotonic()'s clock. `environ` is what run_command
    takes the few variables from that it passes on; `visible` is what its commands see of the machine, and
    `own` a place of uwf's in the project, which keeps them from running."""

    workspace: Workspace
    policy: ToolPolicy
    outputs: Outputs
    deadline: float | None = None
    environ: Mapping[str, str] = {}
    visible: Visible = Visible()
    own: Path | None = None

    def seconds(self, most: float) -> float:
        """How long something may take that takes at most this long. Raises ToolFailure when the step's
        time is up."""
        if self.deadline is None:
            return most
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ToolFailure("timeout", "the step's time is up")
        return min(most, left)


class Tool(NamedTuple):
    """A tool. `name` is what the model calls, of letters, digits, `_` and `-`; `known_as` what a policy
    calls it, where that is something else (`mcp/files/read`). `parameters` is a JSON Schema of an object.
    `run` gets arguments that obey it and returns a JSON object without `ok`; it may raise ToolFailure."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[dict[str, Any], ToolContext], dict[str, Any]]
    known_as: str = ""

    @property
    def policy_name(self) -> str:
        return self.known_as or self.name


class ToolResult(NamedTuple):
    """What a call came to; `value` is what the model is shown. `arguments` are what was understood of the
    call's arguments, None where they were no object."""

    ok: bool
    value: dict[str, Any]
    arguments: dict[str, Any] | None = None


class Toolbox:
    """Tools under one policy. A context manager: leaving it removes what was kept for the model."""

    def __init__(self, tools: Iterable[Tool], context: ToolContext) -> None:
        self.context = context
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, Schema] = {}
        self.add(tools)

    def __enter__(self) -> Toolbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the files that hold the rest of long results."""
        self.context.outputs.close()

    def add(self, tools: Iterable[Tool]) -> None:
        """Puts further tools in; one of a known name replaces none and is left out."""
        for tool in tools:
            if _NAME.fullmatch(tool.name):
                self._tools.setdefault(tool.name, tool)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that the policy permits."""
        return tuple(
            name for name, tool in self._tools.items() if self.context.policy.permits(tool.policy_name)
        )

    def offered(self) -> list[dict[str, Any]]:
        """The permitted tools as a chat completions request wants them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": self._tools[name].description,
                    "parameters": dict(self._tools[name].parameters),
                },
            }
            for name in self.names
        ]

    def describe(self) -> str:
        """What a prompt says of the tools; "" where there are none."""
        policy = self.context.policy
        confined = None
        if "run_command" in self.names:
            project = self.context.workspace.project.path
            found = find_sandbox(self.context.environ, network=bool(policy.network), project=project)
            confined = found.program is not None
        mounts = {mount.name for mount in self.context.workspace.mounts}
        return policy.describe(self.names, confined, WORKFLOW in mounts)

    def call(self, name: str, arguments: str | Mapping[str, Any] | None) -> ToolResult:
        """Carries out one call. `arguments` is the text that the model gave, or a value. Raises nothing
        for what a model or a tool did wrong."""
        given: dict[str, Any] | None = None
        try:
            tool = self._tool(name)
            given = parse_arguments(arguments)
            self._check(tool, given)
            value = {"ok": True, **tool.run(given, self.context)}
            return ToolResult(True, self._fit(value), given)
        except ToolFailure as failure:
            return ToolResult(False, failure.value, given)
        except UwfError as error:
            message = f"{error.message}{' — ' if error.hint else ''}{error.hint}"
            return ToolResult(False, ToolFailure("failed", message).value, given)
        except OSError as error:
            return ToolResult(False, ToolFailure("failed", error.strerror or str(error)).value, given)
        except Exception as error:  # a tool's own fault must not cost the work of a whole step
            fault = ToolFailure(
                "internal", f"{shown(name)} broke: {type(error).__name__}: {shown(str(error))}"
            )
            return ToolResult(False, fault.value, given)

    def _tool(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            hint = nearest(name, self.names) or "known: " + ", ".join(self.names)
            raise ToolFailure("unknown_tool", f"there is no tool {shown(name, 60)!r}; {hint}")
        if not self.context.policy.permits(tool.policy_name):
            raise ToolFailure(
                "denied", f"{name} is not allowed here; allowed: {', '.join(self.names) or 'none'}"
            )
        return tool

    def _check(self, tool: Tool, arguments: dict[str, Any]) -> None:
        schema = self._schemas.get(tool.name)
        if schema is None:
            schema = self._schemas[tool.name] = Schema(dict(tool.parameters))
        problems = schema.problems(arguments, at_most=3)
        if problems:
            said = "; ".join(shown(str(problem), 300) for problem in problems)
            raise ToolFailure("invalid_arguments", f"{tool.name}: {said}")

    def _fit(self, value: dict[str, Any]) -> dict[str, Any]:
        """The result, or where it is too large its text in short, with the whole kept in a file."""
        if depth(value, DEEPEST) > DEEPEST:
            raise ToolFailure("too_large", f"the result is nested more than {DEEPEST} deep")
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) <= LARGEST:
            return dict(json.loads(_sound(text)))
        short, more = self.context.outputs.shorten(
            json.dumps(value, ensure_ascii=False, indent=1, default=str)
        )
        return {"ok": True, "text": _sound(short), **more}


def parse_arguments(arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """A call's arguments as an object. Raises ToolFailure for what is no JSON object, is nested too deep,
    or holds what isn't JSON (NaN, half a character)."""
    value: Any = arguments
    if isinstance(arguments, str):
        if len(arguments) > ARGUMENTS:
            raise ToolFailure("too_large", f"the arguments have more than {ARGUMENTS} characters")
        try:
            value = json.loads(arguments, parse_constant=_no_constant) if arguments.strip() else {}
        except RecursionError:
            raise _too_deep() from None
        except ValueError as error:
            raise ToolFailure(
                "invalid_arguments", f"the arguments are no JSON: {shown(str(error))}"
            ) from None
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise ToolFailure("invalid_arguments", "the arguments must be a JSON object")
    if depth(value, DEEPEST) > DEEPEST:
        raise _too_deep()
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError):
        raise ToolFailure("invalid_arguments", "the arguments hold what is no JSON text or number") from None
    return dict(value)


def depth(value: Any, most: int) -> int:
    """How deep lists and objects are nested in a value; beyond `most` no further look is taken."""
    level, layer = 0, [value]
    while level <= most:
        layer = (
            [
                inner
                for each in layer
                for inner in (each.values() if isinstance(each, Mapping) else each)
                if isinstance(inner, Mapping | list | tuple)
            ]
            if level
            else [each for each in layer if isinstance(each, Mapping | list | tuple)]
        )
        if not layer:
            return level
        level += 1
    return level


def _too_deep() -> ToolFailure:
    return ToolFailure("invalid_arguments", f"the arguments are nested more than {DEEPEST} deep")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _sound(text: str) -> str:
    """The text with lone surrogates, which a file's name may hold and Unicode can't, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
