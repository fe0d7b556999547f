"""The library that makes a command an agent: give it a `run` function, it does the rest.

from uwf_git.kit import Context, Reply, create_agent
"""

from uwf_git.engine.kit.agent import Agent, create_agent
from uwf_git.engine.kit.context import Context, Exchange, Previous, Reply, Resume
from uwf_git.format.kinds import TurnRecord, Usage

__all__ = [
    "Agent",
    "Context",
    "Exchange",
    "Previous",
    "Reply",
    "Resume",
    "TurnRecord",
    "Usage",
    "create_agent",
]
