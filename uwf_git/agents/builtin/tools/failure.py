"""How a tool says no: a stable code, and a sentence for the model."""

from __future__ import annotations

from typing import Any, Literal

Code = Literal[
    "binary",  # no text
    "denied",  # the policy, or a place that tools keep out of
    "failed",  # the system said no: the message says what
    "internal",  # a fault of the tool itself
    "invalid_arguments",
    "is_directory",
    "network",  # no connection, no such host, no answer that can be read
    "no_match",  # the text to replace, or a patch's context, is not there
    "not_directory",
    "not_found",
    "not_unique",
    "outside_workspace",
    "read_only",
    "special_file",  # a device, a pipe, a socket
    "timeout",
    "too_large",
    "unconfined",  # there is no sandbox, and the configuration wants one
    "unknown_tool",
]


class ToolFailure(Exception):
    """What a call ends with when it can't be carried out. Told to the model, never to a caller."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def value(self) -> dict[str, Any]:
        """As a tool's result."""
        return {"ok": False, "error": {"code": self.code, "message": self.message}}


def shown(text: str, most: int = 200) -> str:
    """A text that came from a model, safe to repeat in a message."""
    clean = "".join(each if each.isprintable() else "�" for each in text[:most])
    return clean + ("…" if len(text) > most else "")
