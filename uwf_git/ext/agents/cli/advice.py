"""Advice on failures of agent programs, by their messages."""

from __future__ import annotations

import re

from uwf_git.plugin import is_full

_QUOTA = re.compile(
    r"quota|billing|credit balance|insufficient (?:credit|fund|balance)|payment required|usage limit reached",
    re.IGNORECASE,
)
_PASSES = re.compile(r"per[ _-]?(?:minute|second)|(?:retry|again) in\b", re.IGNORECASE)
_PUZZLES = re.compile(r"object (?:has no attribute|is not)|unexpected token|expecting value", re.IGNORECASE)

FULL = "the next step begins a new session; a model with more room may do"
_ADVICE = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (
            r"content.?filter|safety|safeguard|usage polic|refus(?:al|ed to answer|es to answer)",
            "rephrase the task, or use another model",
        ),
        (
            r"\b429\b|rate.?limit|too many requests|slow down|overloaded",
            "wait, or ask the service less often",
        ),
        (
            r"malformed|\bhtml\b|(?:not|in)valid json|json segment|cannot be read|failed to parse|decoding",
            "is the address that of a model's service? If so, try again later",
        ),
        (
            r"\brefused|ENOTFOUND|EAI_AGAIN|\bECONN|cannot be reached|\bconnect(?:ion|ing)?\b|\bsocket|fetch failed",
            "is the model server up, and its address right?",
        ),
        (
            r"disconnected|br(?:eak|oke)\w* .{0,20}off|\bclosed|terminated|timeout waiting",
            "is the address right? If so, the service has trouble: try again later",
        ),
        (
            r"\b5\d\d\b|server_error|internal (?:server )?error|unavailable|high demand|temporar",
            "the service has trouble: try again later",
        ),
        (
            r"^syntaxerror|unsupported engine|node(?:\.js)? version",
            "it may need a newer Node than the one on PATH",
        ),
        (
            r"\b404\b|selected model|no such model|model\b.{0,40}(?:not found|not exist)",
            "is the model's name right, and the address of its service?",
        ),
    )
)


def is_final(words: str) -> bool:
    """Return whether retrying is useless: the account's quota, not the per-minute limit, is exhausted."""
    return _QUOTA.search(words) is not None and _PASSES.search(words) is None


def advice_on(words: str) -> str:
    """Return the advice for a message, or ""."""
    if is_final(words):
        return "the quota of the account is used up: raise it, or take another account or model"
    if is_full(words):
        return FULL
    return next((advice for sign, advice in _ADVICE if sign.search(words)), "")


def explained(words: str) -> str:
    """Return a program's message, introduced if it is only an internal error."""
    return f"the service's answer cannot be read: {words}" if _PUZZLES.search(words) else words
