"""The guard of LangGraph's threads: only the program whose checkpoints they are makes their steps."""

from __future__ import annotations

from uwf_git.ext.langgraph.name import WORKFLOW
from uwf_git.plugin import Instance, Invalid, NewRecord


def guard(instance: Instance, record: NewRecord) -> None:
    """Refuse a step that an agent is about to make. It may become a failed attempt, which a checkpoint never does."""
    if record.name == WORKFLOW and "attempts" in record.of:
        raise Invalid(
            "the steps of a LangGraph thread are made by its own program",
            "run that program with UwfSaver and the thread's id; uwf forks, shows and shares the thread",
        )
