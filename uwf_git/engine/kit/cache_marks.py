"""Marks in a request's messages, for providers that cache only what ends at a mark.

    anthropic   `cache_control`: Claude, by any gateway that speaks chat completions, and Qwen
    openai      `prompt_cache_breakpoint`: GPT-5.6 and later, whose caches match at marks alone
    none        all others cache every beginning by themselves

A request may have four marks. A conversation gets three: behind its system prompt, behind the last message of the
request before, which is in the cache, and behind its own last message, for the request after, which tools or an earlier
answer promise. A prompt that begins a conversation, or is one, has a mark behind what the next prompt of its thread
begins with too. What is written into a cache and never read costs more than it saves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from uwf_git.config.settings import CacheMarks
from uwf_git.engine.kit.prompt import blocks_of

Message = Mapping[str, Any]
Mark = Mapping[str, Any]

_MARKS: Mapping[CacheMarks, Mark] = {
    "anthropic": {"cache_control": {"type": "ephemeral"}},
    "openai": {"prompt_cache_breakpoint": {"mode": "explicit"}},
    "none": {},
}
_OPENAI = "api.openai.com"
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_MATCHED_AT_MARKS = 5, 6  # the first version of GPT whose cache is


def mark_for(setting: CacheMarks | None, url: str, model: str) -> Mark:
    """Return the field that marks a content part, {} for none. Without a setting, the model's name decides."""
    if setting is None:
        version = _GPT.match(model)
        if "claude" in model.lower():
            setting = "anthropic"
        elif version and urlsplit(url).hostname == _OPENAI:
            number = int(version[1]), int(version[2] or 0)
            setting = "openai" if number >= _MATCHED_AT_MARKS else "none"
        else:
            setting = "none"
    return _MARKS[setting]


def takes_key(mark: Mark) -> bool:
    """Return whether a provider with this mark sends requests of one `prompt_cache_key` to the same cache."""
    return "prompt_cache_breakpoint" in mark


def marked(messages: Sequence[Message], mark: Mark, has_tools: bool = False) -> list[Message]:
    """Return the messages with marks. A prompt is in as many parts as in the next request that begins with it."""
    if not mark:
        return list(messages)
    parts = [_parts(message) for message in messages]
    for place, part in _places(messages, parts, has_tools):
        parts[place][part] = {**parts[place][part], **mark}
    return [
        message if _is_plain(texts) else {**message, "content": texts}
        for message, texts in zip(messages, parts, strict=True)
    ]


def _places(
    messages: Sequence[Message], parts: Sequence[Sequence[Any]], has_tools: bool
) -> set[tuple[int, int]]:
    """Return the marked messages, each with its part."""
    roles = [message["role"] for message in messages]
    ends = {0} if roles[0] == "system" else set()
    shared = set()
    if has_tools or "assistant" in roles:
        ends.add(len(roles) - 1)
    if "assistant" in roles:
        newest = len(roles) - 1 - roles[::-1].index("assistant")
        ends.update([place for place in range(newest) if roles[place] in ("user", "tool")][-1:])
    elif len(parts[-1]) > 1 and (has_tools or roles == ["user"]):
        shared.add((len(roles) - 1, len(parts[-1]) - 2))
    return shared | {(place, len(parts[place]) - 1) for place in ends if parts[place]}


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if message["role"] == "assistant" or not isinstance(content, str) or not content:
        return []
    texts = blocks_of(content) if message["role"] == "user" else [content]
    return [{"type": "text", "text": text} for text in texts]


def _is_plain(parts: Sequence[Mapping[str, Any]]) -> bool:
    return not parts or (len(parts) == 1 and parts[0].keys() == {"type", "text"})
