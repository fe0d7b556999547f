"""`/search`: what was said in any thread, as `uwf grep` finds it. That is a process of its own, which is awaited for so
long and then ended: no other page has to wait for it, whatever somebody searches for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from typing import Any

from uwf_cli.invocation import itself
from uwf_cli.page.addresses import STATUS, Asked, Page

from uwf_git.base.errors import Invalid, NotFound, StoreDamaged, Usage, UwfError
from uwf_git.format.ids import ThreadId
from uwf_git.store.location import Location
from uwf_git.store.opened import Instance

SECONDS = 5.0
HITS = 200
AROUND = 160  # characters of a line, before and after the match
_MOST = 8 << 20  # bytes that a search may print
_AT_ONCE = asyncio.Semaphore(2)
_FILTERS = ("role", "workflow", "author", "since")


async def page(location: Location, asked: Asked) -> Page:
    """What was found. Its query: `q`; `kind`, which is `text` as it is, or `E` or `P` for an expression; `case` for
    any; and `role`, `workflow`, `author`, `since`. What the search says against them, or that it takes too long, stands
    on the page, with its form."""
    pattern = asked.one("q")
    values: dict[str, Any] = {"asked": asked, "pattern": pattern, "shown": HITS, "wrong": None}
    values |= {"threads": [], "lines": 0, "more": False, "unread": []}
    if not pattern:
        return Page("search.html", "Search", values)
    words, title = _words(asked), f"Search: {pattern}"
    try:
        async with _AT_ONCE:
            found, unread = await _found(location, [*words, "--limit", str(HITS + 1), "--", pattern])
    except UwfError as error:
        return Page("search.html", title, {**values, "wrong": error}, STATUS.get(error.exit_status, 500))
    hits = [_hit(each, pattern, asked) for each in found[:HITS]]
    values |= {"threads": _by_thread(location, hits), "lines": len(hits)}
    values |= {"more": len(found) > HITS, "unread": unread}
    return Page("search.html", title, values)


def _by_thread(location: Location, hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The hits of each thread, with the first line of its task, which is its id if that can't be read, and the name of
    its workflow. Threads are in the order of their first hits."""
    threads: dict[str, list[dict[str, Any]]] = {}
    for each in hits:
        threads.setdefault(each["thread"], []).append(each)
    instance = Instance(location)
    try:
        return [
            {"thread": thread, **_named(instance, thread), "hits": own} for thread, own in threads.items()
        ]
    finally:
        instance.store.index.close()


def _named(instance: Instance, thread: str) -> dict[str, str]:
    try:
        row = instance.threads.head(ThreadId(thread)).row
    except UwfError:
        return {"title": thread, "workflow": ""}
    return {"title": row.title or thread, "workflow": row.name or ""}


def _words(asked: Asked) -> list[str]:
    kind = asked.one("kind")
    words = ["grep", f"-{kind}" if kind in ("E", "P") else "-F"]
    words += ["-i"] if asked.one("case") else []
    return words + [f"--{name}={asked.one(name)}" for name in _FILTERS if asked.one(name)]


async def _found(location: Location, words: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """What `uwf` prints, and what it says can't be searched. Raises Usage for a search that takes too long or finds too
    much, else what it says."""
    inherited = {name: value for name, value in os.environ.items() if name != "UWF_FORMAT"}
    child = await asyncio.create_subprocess_exec(
        *itself("json", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, **location.environment()},
    )
    assert child.stdout is not None and child.stderr is not None
    try:
        async with asyncio.timeout(SECONDS):
            out, err = await asyncio.gather(_some(child.stdout), _some(child.stderr))
            code = await child.wait()
    except TimeoutError:
        raise Usage(
            f"the search took more than {SECONDS:.0f} seconds", "narrow it down, or search with uwf grep"
        ) from None
    finally:
        await _end(child)
    # 1: nothing matches; 7: there is damage, beside what was found
    if code not in (0, 1, 7) or (code == 7 and not out):
        raise _failure(code, err)
    warned = err.decode("utf-8", "replace").splitlines() if code == 7 else []
    return list(json.loads(out or b"[]")), [line.removeprefix("uwf: ") for line in warned]


async def _some(stream: asyncio.StreamReader) -> bytes:
    data = bytearray()
    while piece := await stream.read(1 << 16):
        data += piece
        if len(data) > _MOST:
            raise Usage("more was found than a page can show", "search for more of the text")
    return bytes(data)


async def _end(child: asyncio.subprocess.Process) -> None:
    """Ends a search that still goes on, with the git that it has started."""
    for end in (child.terminate, child.kill):
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                end()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await child.wait()


def _failure(code: int, err: bytes) -> UwfError:
    kind = {2: Usage, 3: NotFound, 7: StoreDamaged}.get(code, Invalid)
    try:
        said = json.loads(err.splitlines()[-1])["error"]
        return kind(said["message"], said["hint"])
    except (ValueError, LookupError, TypeError):
        return Invalid("the search failed", "see what uwf grep says")


def _hit(found: dict[str, Any], pattern: str, asked: Asked) -> dict[str, Any]:
    """A hit, with its line in three parts: before the match, the match, behind it. How long a match of an expression is
    nobody says, so its first word is taken."""
    text, begin = found["text"], found["column"] - 1
    word = re.match(r"\S+", text[begin:])
    length = (word.end() if word else 1) if asked.one("kind") in ("E", "P") else len(pattern)
    end = begin + length
    before, behind = text[:begin], text[end:]
    return {
        **found,
        "before": ("…" if len(before) > AROUND else "") + before[-AROUND:],
        "match": text[begin:end][: 2 * AROUND],
        "behind": behind[:AROUND] + ("…" if len(behind) > AROUND else ""),
    }
