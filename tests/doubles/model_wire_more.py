"""The wires of Anthropic (messages) and Gemini (generateContent) of the scripted model server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from model_script import Asked, Message, ToolCall, ToolResult, pieces
from model_wire import Answer, Event, raw, text_of, value


def messages_asked(body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
    system = [text_of(body["system"])] if body.get("system") else []
    messages = []
    for each in body["messages"]:
        content = each["content"]
        if each["role"] == "system":
            system.append(text_of(content))
            continue
        parts = content if isinstance(content, list) else []
        calls = tuple(
            ToolCall(part["id"], part["name"], part["input"]) for part in parts if part["type"] == "tool_use"
        )
        results = tuple(
            ToolResult(part["tool_use_id"], text_of(part.get("content")), bool(part.get("is_error")))
            for part in parts
            if part["type"] == "tool_result"
        )
        messages.append(Message(each["role"], text_of(content), calls, results))
    tools = tuple(tool["name"] for tool in body.get("tools") or ())
    return Asked(
        "messages", body["model"], "\n".join(system), tuple(messages), tools,
        bool(body.get("stream")), body.get("max_tokens"), headers, body,
    )  # fmt: skip


def _messages_usage(answer: Answer, output: int) -> dict[str, int]:
    """Here what came from the cache is counted apart."""
    return {
        "input_tokens": answer.usage.input - answer.usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.usage.cached,
        "output_tokens": output,
    }


def _messages_blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.text or not answer.calls:
        blocks.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": value(call.arguments)})
    return blocks


_STOPS = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}


def messages_body(asked: Asked, answer: Answer) -> Any:
    return {
        "id": f"msg_{answer.serial}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": _messages_blocks(answer),
        "stop_reason": _STOPS[answer.finish],
        "stop_sequence": None,
        "usage": _messages_usage(answer, answer.usage.output),
    }


def messages_events(asked: Asked, answer: Answer) -> Iterator[Event]:
    for data in _messages_events(asked, answer):
        yield data["type"], data


def _messages_events(asked: Asked, answer: Answer) -> Iterator[dict[str, Any]]:
    whole = messages_body(asked, answer)
    begun = {**whole, "content": [], "stop_reason": None, "usage": _messages_usage(answer, 1)}
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    spoken = len(whole["content"]) - len(answer.calls)
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            opened: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            opened = {**block, "input": {}}
            text = raw(answer.calls[index - spoken].arguments)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(text))]
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": answer.usage.output}}
    yield {"type": "message_stop"}


def messages_error(status: int, message: str) -> Any:
    kinds = {
        400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
        404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error",
    }  # fmt: skip
    return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


def gemini_asked(
    body: Mapping[str, Any], headers: Mapping[str, str], model: str = "", stream: bool = False
) -> Asked:
    """The model and whether to stream stand in the address."""
    messages = []
    for each in body["contents"]:
        parts = each.get("parts") or []
        calls = tuple(
            ToolCall(part["functionCall"].get("id", ""), part["functionCall"]["name"],
                     part["functionCall"].get("args", {}))
            for part in parts if "functionCall" in part
        )  # fmt: skip
        results = tuple(
            _gemini_result(part["functionResponse"]) for part in parts if "functionResponse" in part
        )
        role = "assistant" if each.get("role") == "model" else "user"
        messages.append(Message(role, text_of(parts), calls, results))
    tools = tuple(
        function["name"]
        for tool in body.get("tools") or ()
        for function in tool.get("functionDeclarations") or ()
    )
    system = text_of((body.get("systemInstruction") or {}).get("parts"))
    limit = (body.get("generationConfig") or {}).get("maxOutputTokens")
    return Asked("gemini", model, system, tuple(messages), tools, stream, limit, headers, body)


def _gemini_result(given: Mapping[str, Any]) -> ToolResult:
    response = given.get("response") or {}
    text = response.get("output", response.get("error", response))
    return ToolResult(
        given.get("id", given["name"]), text if isinstance(text, str) else raw(text), "error" in response
    )


def _gemini_parts(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": call.id, "name": call.name, "args": value(call.arguments)}}
        for call in answer.calls
    ]


def _gemini(asked: Asked, answer: Answer, parts: list[dict[str, Any]], over: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if over:
        candidate["finishReason"] = "MAX_TOKENS" if answer.finish == "length" else "STOP"
    usage = {
        "promptTokenCount": answer.usage.input,
        "candidatesTokenCount": answer.usage.output,
        "totalTokenCount": answer.usage.input + answer.usage.output,
        "cachedContentTokenCount": answer.usage.cached,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": asked.model,
        "responseId": f"gemini-{answer.serial}",
    }


def gemini_body(asked: Asked, answer: Answer) -> Any:
    said = [{"text": answer.text}] if answer.text or not answer.calls else []
    return _gemini(asked, answer, said + _gemini_parts(answer), True)


def gemini_events(asked: Asked, answer: Answer) -> Iterator[Event]:
    for piece in pieces(answer.text):
        yield "", _gemini(asked, answer, [{"text": piece}], False)
    yield "", _gemini(asked, answer, _gemini_parts(answer) or [{"text": ""}], True)


def gemini_error(status: int, message: str) -> Any:
    names = {
        400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
    }  # fmt: skip
    return {"error": {"code": status, "message": message, "status": names.get(status, "INTERNAL")}}
