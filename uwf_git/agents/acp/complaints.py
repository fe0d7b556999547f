"""What agents complain about, in one line each that is fit for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST = 300


def printable(text: str) -> str:
    """One line without what steers a terminal."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else "�" for each in line[:_MOST])


def telling_line(stderr: str, of_a_dead_one: bool = False) -> str:
    """The last line of an error output that speaks of an error, or, of an agent that has ended, the last one; ""
    where there is none. What an agent that goes on prints besides is its log."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return printable((telling or (lines if of_a_dead_one else []) or [""])[-1])


def ending(code: int) -> str:
    """How a process with that exit status has ended."""
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"


def reason(error: Any) -> str:
    """A JSON-RPC error in one line, with what stands in its data."""
    data = error.data
    if isinstance(data, Mapping):
        data = next((data[key] for key in ("details", "message", "error", "uri") if data.get(key)), None)
    said = str(error) if not isinstance(data, str) or data in str(error) else f"{error}: {data}"
    return printable(said) or f"error {error.code}"


def way(method: Mapping[str, Any]) -> str:
    """A way to log in: its id, and what it is."""
    about = method.get("description") or method.get("name") or ""
    way = f"{method.get('id')}"
    return printable(f"{way} ({printable(str(about))[:100]})" if about else way)
