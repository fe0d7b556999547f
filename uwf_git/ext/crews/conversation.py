"""The workflow of conversations with the personas of a crew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from uwf_git.plugin import END, START, conversations, reading_only

if TYPE_CHECKING:
    from uwf_git.ext.crews.crew_node import Member

TALK = "$chat"
"""Its id in the crew."""
PERSONA = "persona"
"""Its role."""

_TALKS = """\
You talk with a person who sits at a terminal and reads what you write while you write it. Stay who you are. Answer what
was said last, plainly and to the point. Ask back where you can't know what is meant. While you talk, look things up,
but change nothing; what is marked as chosen from the menu you carry out."""


def conversation_payload(crew: str, form: str, members: Iterable[Member]) -> dict[str, Any]:
    """Return the Workflow payload for conversations with a crew's personas; the StartNode names the persona.
    Answers to messages only read; those to menu items may change files."""
    return {
        "name": f"{crew}/{TALK}",
        "description": f"A person and a persona of {crew} talk.",
        "roles": {
            PERSONA: {
                "description": "Talks with the user.",
                "systemPrompt": _TALKS,
                "outputSchema": conversations.REPLY,
                "tools": reading_only(),
            }
        },
        "conditions": {},
        "graph": {
            START: {"new": {"role": PERSONA}, "resume": {"role": PERSONA}},
            PERSONA: {"_": {"role": END}},
        },
        "crew": {"name": crew, "workflow": TALK, "format": form},
        "personas": {member.persona.id: member.persona.payload() for member in members},
    }
