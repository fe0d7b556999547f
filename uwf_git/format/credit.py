"""Who made a step. Records, pages and JSON ask this value, and need not know that an agent may speak as a persona."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from uwf_git.format.personas import Persona


def _as_is(text: str) -> str:
    return text


class Credit(NamedTuple):
    """Who made a step or an attempt: an agent, and the persona that it spoke as, if any."""

    agent: str
    persona: Persona | None = None

    def text(self, name: Callable[[str], str] = _as_is, agent: Callable[[str], str] = _as_is) -> str:
        """Return it for people, `Ada (uwf-claude-code)`, with both parts as the functions render them."""
        program = agent(self.agent)
        return f"{name(self.persona.name)} ({program})" if self.persona is not None else program

    @property
    def name(self) -> str:
        """The name to call it by."""
        return self.persona.name if self.persona is not None else self.agent

    def as_json(self) -> dict[str, Any]:
        """Return its fields in the JSON of a step."""
        if self.persona is None:
            return {"agent": self.agent}
        return {"agent": self.agent, "persona": self.persona.shown}
