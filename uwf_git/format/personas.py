"""Personas: values of Crew and Workflow nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import NotFound
from uwf_git.base.text import nearest, one_line
from uwf_git.format.payloads import from_payload, to_payload


class Persona(NamedTuple):
    """A persona, with either a `system_prompt` or the fields before it. `tools` restricts what the
    configuration allows: `allow` and `deny`, `files` and `mcp` (booleans), `maxReadBytes` and
    `maxWriteBytes`, `servers` (names of MCP servers)."""

    id: str
    name: str
    title: str = ""
    icon: str = ""
    description: str = ""
    role: str = ""
    identity: str = ""
    style: str = ""
    principles: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    system_prompt: str = ""
    tools: Mapping[str, Any] | None = None

    @property
    def shown(self) -> dict[str, str]:
        """Its fields in the JSON of a step."""
        return {"id": self.id, "name": self.name}

    def payload(self) -> dict[str, Any]:
        """Return its part of a node, without id and empty fields."""
        payload = to_payload(self, always=("tools",) if self.tools is not None else ())
        del payload["id"]
        return payload


def parse_persona(name: str, payload: Any) -> Persona:
    """Parse a persona's valid part of a node."""
    return from_payload(Persona, payload, id=name)


def find_persona(crew: str, personas: Iterable[Persona], name: str) -> Persona:
    """Return a persona by id or name, ignoring case. Raises NotFound with the nearest."""
    known = list(personas)
    exact = [persona for persona in known if persona.id == name]
    folded = name.casefold()
    matching = exact or [
        persona for persona in known if folded in (persona.id.casefold(), persona.name.casefold())
    ]
    if len(matching) != 1:
        hint = nearest(name, [persona.id for persona in known]) or f"see: uwf crew show {crew}"
        raise NotFound(f"crew {crew!r} has no persona {one_line(name, 80)!r}", hint)
    return matching[0]
