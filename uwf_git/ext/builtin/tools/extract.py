"""extract: data of a given schema from a text, a file, or the thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uwf_git.ext.builtin.tools.files import text_of
from uwf_git.ext.builtin.tools.tool import Tool, ToolContext, object_schema
from uwf_git.plugin import EXTRACT, ToolFailure, tool_results

READ = 1_000_000  # bytes of a file

Read = Callable[[Any, str, "str | None"], Any]
"""Extracts by a JSON Schema, an instruction, and a text, or None for the thread. Raises UwfError."""


def extract_tool(read: Read) -> Tool:
    def run(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        if "text" in arguments and "path" in arguments:
            raise ToolFailure("invalid_arguments", "give a text or a path, not both")
        text = arguments.get("text")
        if "path" in arguments:
            text = _file(arguments["path"], context)
        return {"data": read(arguments["schema"], arguments.get("prompt", ""), text)}

    return Tool(
        EXTRACT,
        "Reads data that obeys a JSON Schema out of a text or a file; without either, out of your task and what "
        "happened in its thread. JSON and fields that stand there are taken as they are, else another model reads it. "
        "For long texts of which you need a few values.",
        object_schema(
            ("schema",),
            schema={"type": "object", "description": "the JSON Schema of what you want"},
            prompt={"type": "string", "description": "what to look for"},
            text={"type": "string", "minLength": 1},
            path={"type": "string", "minLength": 1, "description": "a file to read, as in @project/log.txt"},
        ),
        run,
    )


def _file(path: str, context: ToolContext) -> str:
    if not context.policy.permits("read_file"):
        raise ToolFailure("denied", "read_file is not allowed here, and so no path: give the text")
    limit = context.workspace.limits.read
    most = READ if limit is None else min(READ, limit)
    with context.workspace.open_file(path) as (file, spot):
        data = file.read(most + 1)
    if len(data) > most:
        raise ToolFailure(
            "too_large",
            f"{tool_results.shown(spot.shown)} has over {most} bytes: give the part that matters as text",
        )
    return text_of(data, spot.shown)
