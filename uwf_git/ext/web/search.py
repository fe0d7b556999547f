"""`/search`: `uwf grep` in a process with a time limit, so that no page waits for it."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

import anyio

from uwf_git.plugin import (
    STATUS_FIELD,
    CommandFailed,
    CommandResult,
    Instance,
    Location,
    OutputTooLarge,
    Page,
    PageRequest,
    ThreadId,
    ThreadState,
    UwfError,
    call_in_process,
    thread_state,
)

SECONDS = 5.0
EXACT = "exact"
HITS = 200
AROUND = 160  # characters of a line, before and after the match
_MAX_OUTPUT = 8 << 20  # bytes that a search may print
_AT_ONCE = asyncio.Semaphore(2)
_FILTERS = ("role", "workflow", "author", "since")


async def page(location: Location, asked: PageRequest, place: Path | None) -> Page:
    """Show the results. Query: `q`; `kind` (`text`, `E` or `P`), `case` (`exact`: else it doesn't matter), `role`,
    `workflow`, `author`, `since`. Errors and timeouts are shown with the form."""
    pattern = asked.one("q")
    values: dict[str, Any] = {
        "asked": asked,
        "pattern": pattern,
        "shown": HITS,
        "wrong": None,
        "exact": EXACT,
    }
    values |= {"threads": [], "lines": 0, "more": False, "unread": [], "line": ""}
    if not pattern:
        return Page("search.html", "Search", values)
    words, title = [*_words(asked), *([] if place else ["--all-projects"])], f"Search: {pattern}"
    values["line"] = shlex.join(["uwf", *words, "--", pattern])
    try:
        async with _AT_ONCE:
            hits_read, unread = await _found(
                location, [*words, "--context=1", f"--limit={HITS + 1}", "--", pattern]
            )
    except CommandFailed as error:
        return Page("search.html", title, {**values, "wrong": error}, STATUS_FIELD.get(error.status, 500))
    hits = [_hit(item, pattern, asked) for item in hits_read[:HITS]]
    _once(hits)
    values |= {"threads": _by_thread(location, hits), "lines": len(hits)}
    values |= {"more": len(hits_read) > HITS, "unread": unread}
    return Page("search.html", title, values)


def _by_thread(location: Location, hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    threads: dict[str, list[dict[str, Any]]] = {}
    for hit in hits:
        threads.setdefault(hit["thread"], []).append(hit)
    instance = Instance(location)
    try:
        return [
            {"thread": thread, **_named(instance, thread), "hits": own} for thread, own in threads.items()
        ]
    finally:
        instance.store.index.close()


def _named(instance: Instance, thread: str) -> dict[str, Any]:
    try:
        head = instance.threads.head(ThreadId(thread))
        state = thread_state(instance, head).word
    except UwfError:
        return {"title": thread, "workflow": "", "status": ThreadState.CORRUPT.word, "updated": None}
    row = head.row
    return {
        "title": row.title or thread,
        "workflow": row.name or "",
        "status": state,
        "updated": head.updated,
    }


def _words(request: PageRequest) -> list[str]:
    kind = request.one("kind")
    words = ["grep", f"-{kind}" if kind in ("E", "P") else "-F"]
    words += [] if request.one("case") == EXACT else ["-i"]
    return words + [f"--{name}={request.one(name)}" for name in _FILTERS if request.one(name)]


async def _found(location: Location, words: list[str]) -> CommandResult:
    try:
        with anyio.fail_after(SECONDS):
            return await call_in_process(location, tuple(words), most=_MAX_OUTPUT)
    except OutputTooLarge:
        raise CommandFailed(
            "usage", "more was found than a page can show", "search for more of the text", 2
        ) from None
    except TimeoutError:
        hint = "narrow it down, or search with uwf grep"
        raise CommandFailed("usage", f"the search took more than {SECONDS:.0f} seconds", hint, 2) from None


def _once(hits: list[dict[str, Any]]) -> None:
    """Leave out of the lines around the hits those that are shown already, or that say nothing."""
    shown = {(hit["step"], hit["where"], hit["line"]) for hit in hits}
    for hit in hits:
        for name, number in (("above", hit["line"] - 1), ("below", hit["line"] + 1)):
            place = hit["step"], hit["where"], number
            if place in shown or not any(map(str.isalnum, hit[name])):
                hit[name] = ""
            shown.add(place)


def _hit(hit: dict[str, Any], pattern: str, request: PageRequest) -> dict[str, Any]:
    text, begin = hit["text"], hit["column"] - 1
    if request.one("kind") in ("E", "P"):  # git doesn't say where it ends
        word = re.match(r"\S+", text[begin:])
        end = begin + (word.end() if word else 1)
    else:
        end = begin + len(pattern)
    left, right = max(0, begin - AROUND), end + AROUND
    behind = text[end:right]
    if request.one("kind") not in ("E", "P"):
        flags = re.NOFLAG if request.one("case") == EXACT else re.IGNORECASE
        parts = re.split(f"({re.escape(pattern)})", behind, flags=flags)
    else:
        parts = [behind]
    return {
        **{**hit, "above": "".join(hit["before"]), "below": "".join(hit["after"])},
        "before": ("…" if left else "") + text[left:begin],
        "match": text[begin:end][: 2 * AROUND],
        "parts": parts,
        "cut": right < len(text),
    }
