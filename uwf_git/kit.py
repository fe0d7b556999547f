"""The library for agents: it makes a command of a `run` function."""

from uwf_git.engine.kit.agent import Agent, create_agent
from uwf_git.engine.kit.context import Context, PastRun, Previous, Reply, Resume
from uwf_git.format.kinds import TurnRecord, Usage

__all__ = [
    "Agent",
    "Context",
    "PastRun",
    "Previous",
    "Reply",
    "Resume",
    "TurnRecord",
    "Usage",
    "create_agent",
]
