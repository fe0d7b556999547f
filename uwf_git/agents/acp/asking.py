"""Asks the person at the terminal, while the agent goes on talking."""

from __future__ import annotations

import asyncio
import os
import sys

from uwf_git.agents.acp.permissions import Decision, Request, answer, once, question

_WORDS = {"y": True, "yes": True, "n": False, "no": False}


def terminal() -> int | None:
    """The terminal behind standard input, opened for reading and writing; None where there is none or this
    process may not read from it."""
    try:
        if not sys.stdin.isatty():
            return None
        descriptor = os.open(os.ttyname(sys.stdin.fileno()), os.O_RDWR | os.O_NOCTTY)
    except (OSError, ValueError, AttributeError):
        return None
    try:
        in_background = os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:
        in_background = False  # it isn't what controls this process, so reading won't stop it
    if in_background:
        os.close(descriptor)
        return None
    return descriptor


async def ask(request: Request, name: str, descriptor: int) -> Decision:
    """The decision of the person at that terminal: a number, y or n. Ctrl-D refuses."""
    offered = once(request)
    _say(descriptor, f"\n{question(request, name)}\n")
    while offered:
        _say(descriptor, "Which? ")
        line = await _line(descriptor)
        if line is None:
            break
        if line.casefold() in _WORDS:
            return answer(request, _WORDS[line.casefold()], "terminal")
        if line.isascii() and line.isdecimal() and 1 <= int(line) <= len(offered):
            chosen = offered[int(line) - 1]
            return Decision(chosen.kind.startswith("allow"), "terminal", chosen.id)
    return answer(request, False, "terminal")


def _say(descriptor: int, text: str) -> None:
    # What the agent wrote must not steer the terminal.
    clean = "".join(each if each.isprintable() or each == "\n" else "�" for each in text)
    os.write(descriptor, clean.encode("utf-8", "replace"))


async def _line(descriptor: int) -> str | None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def notice() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, notice)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    data = os.read(descriptor, 4096)
    return data.decode("utf-8", "replace").strip() if data else None
