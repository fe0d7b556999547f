"""Tools, and the toolbox, which answers every call with a JSON object.

    {"ok": true, …}
    {"ok": false, "error": {"code": "not_found", "message": "@project/a.py does not exist"}}

The codes are `results.Code`. A model's mistakes never raise.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.plugin import (
    PAYLOAD_TOO_LONG,
    Schema,
    ToolFailure,
    ToolOutputs,
    ToolPolicy,
    UwfError,
    Workspace,
    bubblewrap,
    encodable,
    nearest,
    tool_results,
)

ARGUMENTS = 8_000_000  # characters of a call's arguments
LARGEST = 4 * tool_results.SHOWN  # characters of a result as JSON
DEEPEST = 32  # lists and objects within each other, in arguments and results
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class ToolContext(NamedTuple):
    """A tool's context. `deadline` is on time.monotonic(). For run_command: some variables of `environ`,
    `visible` places of the machine, `show` for output, `own` places of uwf in the project, which prevent
    commands, the folder `notes` for running ones, and the secrets `given` to them."""

    workspace: Workspace
    policy: ToolPolicy
    outputs: ToolOutputs
    deadline: float | None = None
    environ: Mapping[str, str] = {}
    visible: bubblewrap.Visible = bubblewrap.Visible()
    own: Path | None = None
    show: Callable[[bytes], object] = bytes  # which does nothing
    notes: Path | None = None
    given: Mapping[str, str] = {}

    def seconds(self, most: float) -> float:
        """Return the permitted seconds: at most `most`, and the step's rest. Raises ToolFailure."""
        if self.deadline is None:
            return most
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise ToolFailure("timeout", "the step's time is up")
        return min(most, remaining)


class Tool(NamedTuple):
    """A tool, called by `name` (letters, digits, `_`, `-`), in policies `known_as` (`mcp/files/read`).
    `parameters` is an object's JSON Schema. `run` gets valid arguments and returns a JSON object without
    `ok`; it may raise ToolFailure."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[dict[str, Any], ToolContext], dict[str, Any]]
    known_as: str = ""

    @property
    def policy_name(self) -> str:
        return self.known_as or self.name


class ToolResult(NamedTuple):
    """A call's result for the model. `arguments` are parsed, None if impossible."""

    ok: bool
    value: dict[str, Any]
    arguments: dict[str, Any] | None = None


class Toolbox:
    """Tools under one policy. A context manager, which removes files of long results."""

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
        """Add tools with new, valid names."""
        for tool in tools:
            if _NAME.fullmatch(tool.name):
                self._tools.setdefault(tool.name, tool)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            name for name, tool in self._tools.items() if self.context.policy.permits(tool.policy_name)
        )

    def offered(self) -> list[dict[str, Any]]:
        """Return the permitted tools for a chat completions request."""
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
        """Return the tools' description for a prompt, or ""."""
        policy = self.context.policy
        confined = None
        if "run_command" in self.names:
            project = self.context.workspace.project.path
            sandbox = bubblewrap.find_sandbox(
                self.context.environ, network=bool(policy.network), project=project
            )
            confined = sandbox.program is not None
        further = [f"{mount.name}/… ({mount.told})" for mount in self.context.workspace.mounts if mount.told]
        return policy.describe(self.names, confined, further)

    def call(self, name: str, arguments: str | Mapping[str, Any] | None) -> ToolResult:
        """Execute a call. `arguments` is text or a value. Faults of the model or tool become results."""
        values: dict[str, Any] | None = None
        try:
            tool = self._tool(name)
            values = parse_arguments(arguments)
            self._check(tool, values)
            value = {"ok": True, **tool.run(values, self.context)}
            return ToolResult(True, self._fit(value), values)
        except ToolFailure as error:
            failure = error
        except UwfError as error:
            failure = ToolFailure("failed", " — ".join(filter(None, (error.message, error.hint))))
        except OSError as error:
            failure = ToolFailure("failed", error.strerror or str(error))
        except Exception as error:  # a tool's own fault must not cost the work of a whole step
            message = (
                f"{tool_results.shown(name)} broke: {type(error).__name__}: {tool_results.shown(str(error))}"
            )
            failure = ToolFailure("internal", message)
        failure = ToolFailure(failure.code, self.context.workspace.told(failure.message))
        return ToolResult(False, failure.value, values)

    def _tool(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            hint = nearest(name, self.names) or "known: " + ", ".join(self.names)
            raise ToolFailure("unknown_tool", f"there is no tool {tool_results.shown(name, 60)!r}; {hint}")
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
            message = "; ".join(tool_results.shown(str(problem), 300) for problem in problems)
            raise ToolFailure("invalid_arguments", f"{tool.name}: {message}")

    def _fit(self, value: dict[str, Any]) -> dict[str, Any]:
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
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def counted(description: str, most: int = 2**31) -> dict[str, Any]:
    """Return the schema of a count or position from 1."""
    return {"type": "integer", "minimum": 1, "maximum": most, "description": description}


def parse_arguments(arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Parse a call's arguments. Raises ToolFailure if not a JSON object, too deep, or not representable."""
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
            message = f"the arguments are no JSON: {tool_results.shown(str(error))}"
            raise ToolFailure("invalid_arguments", message) from None
        except ValueError:
            raise ToolFailure("invalid_arguments", f"the arguments hold {PAYLOAD_TOO_LONG}") from None
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise ToolFailure("invalid_arguments", "the arguments must be a JSON object")
    if depth(value, DEEPEST) > DEEPEST:
        raise _too_deep()
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError):
        raise ToolFailure("invalid_arguments", "the arguments hold what is not JSON text or number") from None
    return dict(value)


def depth(value: Any, most: int) -> int:
    """Return a value's nesting depth, at most `most + 1`."""
    level, layer = 0, [value]
    while level <= most:
        containers = [item for item in layer if isinstance(item, Mapping | list | tuple)]
        if not containers:
            break
        layer = [
            inner
            for container in containers
            for inner in (container.values() if isinstance(container, Mapping) else container)
        ]
        level += 1
    return level


def _too_deep() -> ToolFailure:
    return ToolFailure("invalid_arguments", f"the arguments are nested more than {DEEPEST} deep")


class _NoConstant(ValueError):
    """NaN or an infinity stands where JSON has none."""


def _no_constant(name: str) -> Any:
    raise _NoConstant(f"{name} is not JSON")
