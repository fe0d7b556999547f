"""What a tool of a server answered, as JSON for a model: text and structured values, within a limit; what
a model can't read is named instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from uwf_git.agents.builtin.tools.outputs import SHOWN

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from uwf_git.agents.builtin.tools.outputs import Outputs


def to_json(result: CallToolResult, outputs: Outputs) -> dict[str, Any]:
    """`result`, a server's structured value, or else `text`, which is shortened as every tool's is; `omitted`
    names images and the like."""
    texts, omitted = _parts(result)
    text = "\n".join(texts)
    value: dict[str, Any] = {}
    structured = result.structured_content
    if structured is not None and structured != {"result": text}:
        dumped = json.dumps(structured, ensure_ascii=False)
        if len(dumped) <= SHOWN:
            value["result"] = structured
            text = "" if _repeats(text, structured) else text
        else:
            text = dumped
    if text or not value:
        text, more = outputs.shorten(text)
        value |= {"text": text, **more}
    if omitted:
        value["omitted"] = omitted
    return value


def error_text(result: CallToolResult) -> str:
    """What a tool that failed said."""
    texts, _omitted = _parts(result)
    return "\n".join(texts).strip()[:4000] or "it failed and didn't say why"


def _parts(result: CallToolResult) -> tuple[list[str], list[str]]:
    texts, omitted = [], []
    for block in result.content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "resource_link":
            texts.append(f"{block.name}: {block.uri}")
        elif block.type == "resource":
            text = getattr(block.resource, "text", None)
            if text is not None:
                texts.append(text)
            else:
                omitted.append(f"resource {block.resource.uri}, no text")
        else:
            omitted.append(f"{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes")
    return texts, omitted


def _repeats(text: str, value: Any) -> bool:
    """Whether a text only says a value again, as servers do for clients that don't know structured ones.
    Those that return no object wrap what they do return: `{"result": 5}`."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(said == value or value == {"result": said})
