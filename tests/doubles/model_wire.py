"""The wires of the scripted model server: OpenAI's chat completions and responses, Anthropic's messages, Gemini's
generateContent.

Of each wire there are four functions: `…_asked` parses a request, `…_body` is an answer in one piece, `…_events`
is the same answer as server-sent events, `…_error` is the form of a failure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from model_script import Asked, Call, Endless, Message, Say, Several, Tokens, ToolCall, ToolResult, pieces

Event = tuple[str, Any]  # the event's name ("" for none), and its data (a text goes out as it is)
Spoken = Say | Call | Several | Endless


class Answer(NamedTuple):
    """A turn with everything decided that goes on the wire."""

    text: str
    calls: tuple[Call, ...]  # each with an id
    finish: str  # stop, length, refusal or calls
    usage: Tokens
    serial: int


def resolve(turn: Spoken, asked: Asked, serial: int) -> Answer:
    """`serial` numbers the server's answers, and makes the ids of calls unique."""
    if isinstance(turn, Endless):
        turn = Say((turn.text * (turn.limit // len(turn.text) + 1))[: turn.limit])
    if isinstance(turn, Say):
        return Answer(turn.text, (), turn.finish, asked.usage, serial)
    calls = turn.calls if isinstance(turn, Several) else (turn,)
    prefix = "toolu" if asked.wire == "messages" else "call"
    named = (
        each if each.id else each._replace(id=f"{prefix}_{serial:04}_{index}")
        for index, each in enumerate(calls)
    )
    return Answer(turn.text, tuple(named), "calls", asked.usage, serial)


def raw(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def parsed(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def value(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Arguments for a wire that carries values: a JSON object, whatever the script gave."""
    found = parsed(arguments)
    return found if isinstance(found, Mapping) else {"input": arguments}


def text_of(content: Any) -> str:
    """The text of content that is a text or a list of parts, in any wire's form."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)


def chat_asked(body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
    system: list[str] = []
    messages: list[Message] = []
    for each in body["messages"]:
        text = text_of(each.get("content"))
        if each["role"] in ("system", "developer"):
            system.append(text)
        elif each["role"] == "tool":
            messages.append(Message("tool", "", (), (ToolResult(each["tool_call_id"], text),)))
        else:
            calls = tuple(
                ToolCall(call["id"], call["function"]["name"], parsed(call["function"]["arguments"]))
                for call in each.get("tool_calls") or ()
            )
            messages.append(Message(each["role"], text, calls))
    tools = tuple(tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool)
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return Asked(
        "chat", body["model"], "\n".join(system), tuple(messages), tools, bool(body.get("stream")), limit,
        headers, body,
    )  # fmt: skip


def _chat_usage(usage: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _chat_calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": raw(call.arguments)}}
        for call in answer.calls
    ]


_CHAT_ENDS = {"calls": "tool_calls", "refusal": "content_filter"}


def chat_body(asked: Asked, answer: Answer) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = _chat_calls(answer)
    finish = _CHAT_ENDS.get(answer.finish, answer.finish)
    return {
        "id": f"chatcmpl-{answer.serial}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": _chat_usage(answer.usage),
    }


def chat_events(asked: Asked, answer: Answer) -> Iterator[Event]:
    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return "", {**head, "choices": [choice]}

    head = {
        "id": f"chatcmpl-{answer.serial}", "object": "chat.completion.chunk", "created": 1_700_000_000,
        "model": asked.model,
    }  # fmt: skip
    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(answer.text):
        yield chunk({"content": piece})
    for index, call in enumerate(_chat_calls(answer)):
        function = call["function"]
        first = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for piece in pieces(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _CHAT_ENDS.get(answer.finish, answer.finish))
    options = asked.body.get("stream_options") or {}
    if options.get("include_usage"):
        yield "", {**head, "choices": [], "usage": _chat_usage(answer.usage)}
    yield "", "[DONE]"


def responses_asked(body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    system = [body["instructions"]] if body.get("instructions") else []
    messages: list[Message] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item["role"] in ("system", "developer"):
            system.append(text_of(item["content"]))
        elif kind == "message":
            messages.append(Message(item["role"], text_of(item["content"])))
        elif kind in ("function_call", "custom_tool_call"):
            arguments = parsed(item.get("arguments", item.get("input")))
            messages.append(Message("assistant", "", (ToolCall(item["call_id"], item["name"], arguments),)))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output = item["output"]
            text = text_of(output) if isinstance(output, (str, list)) else json.dumps(output)
            messages.append(Message("tool", "", (), (ToolResult(item["call_id"], text),)))
    tools = tuple(_responses_tools(body.get("tools") or ()))
    return Asked(
        "responses", body["model"], "\n".join(system), tuple(messages), tools, bool(body.get("stream")),
        body.get("max_output_tokens"), headers, body,
    )  # fmt: skip


def _responses_tools(tools: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for tool in tools:
        if "tools" in tool:  # a namespace
            yield from _responses_tools(tool["tools"])
        else:
            yield tool.get("name") or tool["type"]


def _responses_items(asked: Asked, answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.text or not answer.calls:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append(
            {"id": f"msg_{answer.serial}", "type": "message", "status": "completed", "role": "assistant",
             "content": [part]}
        )  # fmt: skip
    custom = {tool.get("name") for tool in asked.body.get("tools") or () if tool.get("type") == "custom"}
    for index, call in enumerate(answer.calls):
        common = {"id": f"fc_{answer.serial}_{index}", "call_id": call.id, "name": call.name}
        if call.name in custom:
            items.append({**common, "type": "custom_tool_call", "input": raw(call.arguments)})
        else:
            items.append(
                {**common, "type": "function_call", "arguments": raw(call.arguments), "status": "completed"}
            )
    return items


_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}


def _response(asked: Asked, answer: Answer, items: list[Any] | None) -> dict[str, Any]:
    """`items` None: the response as it stands at its begin."""
    cut = _INCOMPLETE.get(answer.finish)
    usage = {
        "input_tokens": answer.usage.input,
        "input_tokens_details": {"cached_tokens": answer.usage.cached, "cache_write_tokens": 0},
        "output_tokens": answer.usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.usage.input + answer.usage.output,
    }
    over = items is not None
    return {
        "id": f"resp_{answer.serial}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": ("incomplete" if cut else "completed") if over else "in_progress",
        "error": None,
        "incomplete_details": {"reason": cut} if over and cut else None,
        "instructions": asked.body.get("instructions"),
        "model": asked.model,
        "output": items or [],
        "parallel_tool_calls": True,
        "tool_choice": asked.body.get("tool_choice", "auto"),
        "tools": asked.body.get("tools") or [],
        "usage": usage if over else None,
    }


def responses_body(asked: Asked, answer: Answer) -> Any:
    return _response(asked, answer, _responses_items(asked, answer))


def responses_events(asked: Asked, answer: Answer) -> Iterator[Event]:
    for number, (name, data) in enumerate(_responses_events(asked, answer)):
        yield name, {"type": name, "sequence_number": number, **data}


def _responses_events(asked: Asked, answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.created", {"response": _response(asked, answer, None)}
    yield "response.in_progress", {"response": _response(asked, answer, None)}
    items = _responses_items(asked, answer)
    for index, item in enumerate(items):
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            yield from _responses_text(item, at)
            continue
        field = "input" if item["type"] == "custom_tool_call" else "arguments"
        delta = "custom_tool_call_input" if field == "input" else "function_call_arguments"
        opened = {**item, field: "", **({"status": "in_progress"} if "status" in item else {})}
        yield "response.output_item.added", {"output_index": index, "item": opened}
        for piece in pieces(item[field]):
            yield f"response.{delta}.delta", {**at, "delta": piece}
        yield f"response.{delta}.done", {**at, field: item[field], "name": item["name"]}
        yield "response.output_item.done", {"output_index": index, "item": item}
    name = "response.incomplete" if answer.finish in _INCOMPLETE else "response.completed"
    yield name, {"response": _response(asked, answer, items)}


def _responses_text(item: dict[str, Any], at: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    part = item["content"][0]
    opened = {**item, "status": "in_progress", "content": []}
    yield "response.output_item.added", {"output_index": at["output_index"], "item": opened}
    yield "response.content_part.added", {**at, "content_index": 0, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "response.output_text.delta", {**at, "content_index": 0, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**at, "content_index": 0, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**at, "content_index": 0, "part": part}
    yield "response.output_item.done", {"output_index": at["output_index"], "item": item}


def openai_error(status: int, message: str, code: str = "") -> Any:
    kinds = {401: "authentication_error", 429: "rate_limit_error", 400: "invalid_request_error"}
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded", 500: "server_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code or codes.get(status)}}


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


_STOPS = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use", "refusal": "refusal"}


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


def messages_error(status: int, message: str, code: str = "") -> Any:
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


_GEMINI_ENDS = {"length": "MAX_TOKENS", "refusal": "SAFETY"}


def _gemini_parts(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": call.id, "name": call.name, "args": value(call.arguments)}}
        for call in answer.calls
    ]


def _gemini(asked: Asked, answer: Answer, parts: list[dict[str, Any]], over: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if over:
        candidate["finishReason"] = _GEMINI_ENDS.get(answer.finish, "STOP")
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


def gemini_error(status: int, message: str, code: str = "") -> Any:
    names = {
        400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
    }  # fmt: skip
    return {"error": {"code": status, "message": message, "status": names.get(status, "INTERNAL")}}
