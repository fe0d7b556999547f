"""The variables by which a command knows that it runs for a step, and for which one."""

from __future__ import annotations

from collections.abc import Mapping

NONCE_VARIABLE = "UWF_NONCE"
"""Holds the nonce of the agent's order: its report counts only with that."""
WITHHELD = "withheld"
"""The nonce of commands that run within a step, and don't make it."""

NO_APPROVALS_VARIABLE = "UWF_NO_APPROVALS"
"""Set for agents, and by whatever acts for one: no person is there."""

HOOK_VARIABLE = "UWF_EVENT"
"""What a hook is run for. Its command is the user's, and no person."""


def variables_of(thread: str, role: str, nonce: str) -> dict[str, str]:
    """Return the variables that tell an agent's command which step it is for, and prove it."""
    return {"UWF_THREAD": thread, "UWF_ROLE": role, NONCE_VARIABLE: nonce, NO_APPROVALS_VARIABLE: "1"}


def acts_for_agent(environ: Mapping[str, str]) -> bool:
    """Return whether an agent, or a program that acts for one, says that it is behind this process."""
    return bool(environ.get(NO_APPROVALS_VARIABLE))
