"""What a tool is, and the toolbox, which answers every call with a JSON object, however wrong the call is.

    {"ok": true, …}
    {"ok": false, "error": {"code": "not_found", "message": "@project/a.py does not exist"}}

The codes are those of `results.Code`. What a model does wrong never raises.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import encodable, nearest
from uwf_git.config.policy import ToolPolicy
from uwf_git.format.cbor import TOO_LONG
from uwf_git.format.schema import Schema
from uwf_git.sandbox.bubblewrap import Visible, find_sandbox
from uwf_git.sandbox.results import SHOWN, Outputs, ToolFailure, shown
from uwf_git.sandbox.workspace import Workspace

ARGUMENTS = 8_000_000  # characters of a call's arguments
LARGEST = 4 * SHOWN  # characters of a result as JSON
DEEPEST = 32  # lists and objects within each other, in arguments and results
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class ToolContext(NamedTuple):
    """What a tool works with. `deadline` is on time.monotonic()'s clock. The rest is for run_command: it passes on
    a few variables of `environ`; its commands see `visible` of the machine; `show` is handed what they print as it
    comes; where `own` names a place of uwf's in the project, no command runs; in the folder `notes` it is noted that
    one runs."""

    workspace: Workspace
    policy: ToolPolicy
    outputs: Outputs
    deadline: float | None = None
    environ: Mapping[str, str] = {}
    visible: Visible = Visible()
    own: Path | None = None
    show: Callable[[bytes], object] = bytes  # which does nothing
    notes: Path | None = None

    def seconds(self, most: float) -> float:
        """How many seconds something may take: at most `most`, and no longer than the step. Raises ToolFailure when
        the step's time is up."""
        if self.deadline is None:
            return most
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ToolFailure("timeout", "the step's time is up")
        return min(most, left)


class Tool(NamedTuple):
    """A tool. The model calls it by `name`, of letters, digits, `_` and `-`; a policy by `known_as`, where that
    differs (`mcp/files/read`). `parameters` is a JSON Schema of an object. `run` gets arguments that obey it and
    returns a JSON object without `ok`; it may raise ToolFailure."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[dict[str, Any], ToolContext], dict[str, Any]]
    known_as: str = ""

    @property
    def policy_name(self) -> str:
        return self.known_as or self.name


class ToolResult(NamedTuple):
    """The result of a call; the model is shown `value`. `arguments` are the call's parsed arguments, None where
    they could not be parsed."""

    ok: bool
    value: dict[str, Any]
    arguments: dict[str, Any] | None = None


class Toolbox:
    """Tools under one policy. A context manager: leaving it removes the files that hold the rest of
    long results."""

    def __init__(self, tools: Iterable[Tool], context: ToolContext) -> None:
        self.context = context
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, Schema] = {}
        self.add(tools)

    def __enter__(self) -> Toolbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.outputs.close()

    def add(self, tools: Iterable[Tool]) -> None:
        """Adds tools, except those whose name is taken or isn't one that a model can call."""
        for tool in tools:
            if _NAME.fullmatch(tool.name):
                self._tools.setdefault(tool.name, tool)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools that the policy permits."""
        return tuple(
            name for name, tool in self._tools.items() if self.context.policy.permits(tool.policy_name)
        )

    def offered(self) -> list[dict[str, Any]]:
        """The permitted tools, in the form of a chat completions request."""
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
        """What a prompt says about the tools; "" where there are none."""
        policy = self.context.policy
        confined = None
        if "run_command" in self.names:
            project = self.context.workspace.project.path
            found = find_sandbox(self.context.environ, network=bool(policy.network), project=project)
            confined = found.program is not None
        further = [f"{each.name}/… ({each.told})" for each in self.context.workspace.mounts if each.told]
        return policy.describe(self.names, confined, further)

    def call(self, name: str, arguments: str | Mapping[str, Any] | None) -> ToolResult:
        """Carries out one call. `arguments` is the text that the model gave, or a value. A fault of the model or
        of a tool becomes a result and is not raised."""
        given: dict[str, Any] | None = None
        try:
            tool = self._tool(name)
            given = parse_arguments(arguments)
            self._check(tool, given)
            value = {"ok": True, **tool.run(given, self.context)}
            return ToolResult(True, self._fit(value), given)
        except ToolFailure as error:
            failure = error
        except UwfError as error:
            failure = ToolFailure("failed", " — ".join(filter(None, (error.message, error.hint))))
        except OSError as error:
            failure = ToolFailure("failed", error.strerror or str(error))
        except Exception as error:  # a tool's own fault must not cost the work of a whole step
            said = f"{shown(name)} broke: {type(error).__name__}: {shown(str(error))}"
            failure = ToolFailure("internal", said)
        failure = ToolFailure(failure.code, self.context.workspace.told(failure.message))
        return ToolResult(False, failure.value, given)

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
        """The result; where it is too large, the two ends of its JSON text, with the whole kept in a file."""
        if depth(value, DEEPEST) > DEEPEST:
            raise ToolFailure("too_large", f"the result is nested more than {DEEPEST} deep")
        # The name of a file may hold lone surrogates, which no model's server takes.
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) <= LARGEST:
            return dict(json.loads(encodable(text)))
        indented = json.dumps(value, ensure_ascii=False, indent=1, default=str)
        short, more = self.context.outputs.shorten(indented)
        return {"ok": True, "text": encodable(short), **more}


def object_schema(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def counted(description: str, most: int = 2**31) -> dict[str, Any]:
    """The JSON Schema of a number of things, or of the place of one, counted from 1."""
    return {"type": "integer", "minimum": 1, "maximum": most, "description": description}


def parse_arguments(arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """A call's arguments as an object. Raises ToolFailure where they are no JSON object, are nested too deep,
    or hold what JSON can't (NaN, half a character)."""
    value: Any = arguments
    if isinstance(arguments, str):
        if len(arguments) > ARGUMENTS:
            raise ToolFailure("too_large", f"the arguments have more than {ARGUMENTS} characters")
        try:
            value = json.loads(arguments, parse_constant=_no_constant) if arguments.strip() else {}
        except RecursionError:
            raise _too_deep() from None
        except _NoConstant as error:
            raise ToolFailure("invalid_arguments", f"the arguments are no JSON: {error}") from None
        except json.JSONDecodeError as error:
            said = f"the arguments are no JSON: {shown(str(error))}"
            raise ToolFailure("invalid_arguments", said) from None
        except ValueError:
            raise ToolFailure("invalid_arguments", f"the arguments hold {TOO_LONG}") from None
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
    """How deep lists and objects are nested in a value; where that is deeper than `most`, `most + 1`."""
    level, layer = 0, [value]
    while level <= most:
        containers = [each for each in layer if isinstance(each, Mapping | list | tuple)]
        if not containers:
            break
        layer = [
            inner for each in containers for inner in (each.values() if isinstance(each, Mapping) else each)
        ]
        level += 1
    return level


def _too_deep() -> ToolFailure:
    return ToolFailure("invalid_arguments", f"the arguments are nested more than {DEEPEST} deep")


class _NoConstant(ValueError):
    """NaN or an infinity stands where JSON has none."""


def _no_constant(name: str) -> Any:
    raise _NoConstant(f"{name} is no JSON")
