"""The faults of a model's service and of a program that plays a role, and how each has to be told.

A fault of the service is the answer to every request that a program makes, its own included: providers don't tell those
apart. `reason` and `hint` are regular expressions for the message of the failed step and its hint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from model_script import Asked, Call, Drop, Fail, Garbage, Hang, Say, Turn

FOR_EVER = 3600.0
_LATER = "ask the service less often|later"
_UP = "address right|server up"
_PATIENCE = r"model's service|raise (the )?agent"
_OTHER = "another model|otherwise"


class Fault(NamedTuple):
    """`answer` is what the service says to a request; None for a fault of the program. `is_final` says that no other
    attempt would help, so the program must not be left trying until its time is up."""

    reason: str
    hint: str
    answer: Callable[[Asked], Turn] | None = None
    is_final: bool = False


def _always(turn: Turn) -> Callable[[Asked], Turn]:
    return lambda _: turn


def _quota(asked: Asked) -> Turn:
    """In the words of each provider: Anthropic refuses such a request as it refuses a wrong one."""
    if asked.wire == "messages":
        return Fail(
            400,
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
            "purchase credits.",
        )
    message = "You exceeded your current quota, please check your plan and billing details."
    return Fail(429, message, code="insufficient_quota")


def _too_long(asked: Asked) -> Turn:
    messages = {
        "messages": "prompt is too long: 210000 tokens > 200000 maximum",
        "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    }
    openai = (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    )
    return Fail(400, messages.get(asked.wire, openai), code="context_length_exceeded")


_COMMANDS = {
    "Bash": {"command": "true", "description": "asks"},
    "exec_command": {"cmd": "true"},
    "run_shell_command": {"command": "true", "description": "asks"},
    "bash": {"command": "true", "description": "asks"},
    "list_directory": {"dir_path": "."},
    "list_dir": {"path": "."},
}
"""Tools of which each program has one, and what they are called with."""


def _after_a_call(asked: Asked) -> Turn:
    """A call of a tool, and behind its result nothing but failures."""
    tool = next((name for name in _COMMANDS if name in asked.tools), None)
    if tool is None or asked.calls:
        return Fail(500, "the service is broken")
    return Call(tool, _COMMANDS[tool])


_LONG = Say("This sentence is not going to be heard to its end. " * 100)

FAULTS = {
    "unauthorized": Fault(
        "not logged in, or its key is refused|401",
        "log ?in|auth|login|key",
        _always(Fail(401, "the key is not known here")),
        True,
    ),
    "unknown model": Fault(
        "404|not.found|may not exist|no such model",
        "model|attempts",
        _always(Fail(404, "no such model: scripted")),
        True,
    ),
    "throttled": Fault("429|rate.?limit|slow down", _LATER, _always(Fail(429, "slow down", retry_after=2))),
    "throttled for an hour": Fault(
        "429|rate.?limit|slow down", _LATER, _always(Fail(429, "slow down", retry_after=3600))
    ),
    "quota used up": Fault("quota|credit balance|billing", "used up", _quota, True),
    "broken": Fault(
        r"\b500\b|server_error|high demand|the service is broken",
        _LATER,
        _always(Fail(500, "the service is broken")),
    ),
    "refuses connections": Fault(
        r"connect|cannot be reached|fetch failed|waiting for network", _UP, _always(Fail(500))
    ),
    "hangs": Fault(
        "it waited for the model|no answer within",
        _PATIENCE,
        _always(Hang(FOR_EVER)),
    ),
    "hangs midway": Fault(
        "it waited for the model|no answer within|idle timeout",
        f"{_PATIENCE}|try again later",
        _always(Drop(400, _LONG, FOR_EVER)),
    ),
    "closes midway": Fault(
        "br(eak|oke)s? off|disconnected|closed|terminated|dropped the connection|connection error",
        f"{_LATER}|try|{_UP}",
        _always(Drop(400, _LONG)),
    ),
    "garbage": Fault(
        "not JSON|JSON segment|web page|cannot be read|empty or malformed|closed|invalid json|parse|HTML",
        f"address|baseUrl|{_OTHER}|{_UP}",
        _always(Garbage()),
    ),
    "context length": Fault(
        "too long|maximum context|context (window|length)|token count|ran out of room",
        "new session|more room|fork",
        _too_long,
        True,
    ),
    "refusal": Fault(
        "refuse[sd] to|safety|safeguard|content.?filter",
        _OTHER,
        _always(Say("", "refusal")),
        True,
    ),
    "empty answer": Fault("empty|no answer", f"{_OTHER}|try again", _always(Say(""))),
    "broken after a call": Fault(
        r"\b500\b|server_error|high demand|the service is broken", _LATER, _after_a_call
    ),
    "killed": Fault("was ended by signal 9", "attempts", _always(Hang(FOR_EVER))),
    "runs in an old Node": Fault("exited with 1: SyntaxError", "a newer Node"),
    "missing": Fault("is not installed, or not on PATH", "install it: "),
    "prints nothing": Fault("exited with 0 and printed nothing", "--help"),
}
