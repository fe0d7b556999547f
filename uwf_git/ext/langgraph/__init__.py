"""Checkpoints of LangGraph in threads: a saver, which a graph is compiled with, and the guard of its threads."""

from typing import TYPE_CHECKING, Any

from uwf_git.plugin import Extension

if TYPE_CHECKING:
    from uwf_git.ext.langgraph.saver import UwfSaver

__all__ = ["EXTENSION", "UwfSaver"]

EXTENSION = Extension("langgraph", guard="uwf_git.ext.langgraph.guard:guard")


def __getattr__(name: str) -> Any:
    """Import LangGraph for the saver alone: every command reads this manifest."""
    if name == "UwfSaver":
        from uwf_git.ext.langgraph.saver import UwfSaver

        return UwfSaver
    raise AttributeError(name)
