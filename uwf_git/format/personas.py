"""Personas and crews: values of Crew nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import nearest, one_line
from uwf_git.format.ids import Hash
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


class Effect(NamedTuple):
    """The effect of a menu item: start a `workflow` of the crew, carry out the document `exec`, or an
    `action`. `data` is a file to read first."""

    workflow: str = ""
    exec: str = ""
    action: str = ""
    data: str = ""


class Handler(NamedTuple):
    """Another text that selects a menu item, and its effect."""

    match: str
    does: Effect

    def payload(self) -> dict[str, Any]:
        return {"match": self.match, **to_payload(self.does)}


class MenuItem(NamedTuple):
    """A menu item, selected by its number, `trigger`, `cmd`, an alias, or words of it. `validate` names a
    workflow that must be complete first. `surface` is `ide` (includes terminals), `web`, `none`, or "" for
    everywhere."""

    description: str
    trigger: str = ""
    cmd: str = ""
    validate: str = ""
    surface: str = ""
    aliases: tuple[str, ...] = ()
    handlers: tuple[Handler, ...] = ()
    does: Effect = Effect()

    def payload(self) -> dict[str, Any]:
        payload = to_payload(self._replace(does=Effect()))
        return {"description": payload.pop("description"), **to_payload(self.does), **payload}


class Member(NamedTuple):
    """A persona with its menu, and its prompts by id, used by the action `#id`."""

    persona: Persona
    prompts: Mapping[str, str] = {}
    menu: tuple[MenuItem, ...] = ()

    def payload(self) -> dict[str, Any]:
        return {"id": self.persona.id, **to_payload(self)}


class CrewWorkflow(NamedTuple):
    """A crew's workflow. `entry` is the path of its first document, "" if none."""

    id: str
    workflow: Hash
    title: str = ""
    description: str = ""
    entry: str = ""
    tags: tuple[str, ...] = ()


class Crew(NamedTuple):
    """A version of a crew. `version` is the author's. The first of `members` speaks by default; the first of
    `workflows` is the main one."""

    name: str
    version: str
    description: str
    format: str
    members: tuple[Member, ...]
    workflows: tuple[CrewWorkflow, ...]

    def payload(self) -> dict[str, Any]:
        payload = to_payload(self)
        return {"personas" if key == "members" else key: value for key, value in payload.items()}


def parse_crew(payload: Any) -> Crew:
    """Parse a valid Crew payload. Raises Invalid."""
    try:
        members = tuple(map(_parse_member, payload["personas"]))
        workflows = tuple(from_payload(CrewWorkflow, workflow) for workflow in payload["workflows"])
        return from_payload(Crew, payload, members=members, workflows=workflows)
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a Crew node has no valid {error}") from None


def parse_persona(name: str, payload: Any) -> Persona:
    """Parse a persona's valid part of a node."""
    return from_payload(Persona, payload, id=name)


def _parse_member(payload: Any) -> Member:
    persona = parse_persona(payload["id"], payload["persona"])
    menu = tuple(map(_parse_item, payload.get("menu", ())))
    return from_payload(Member, payload, persona=persona, menu=menu)


def _parse_item(payload: Any) -> MenuItem:
    handlers = tuple(
        Handler(handler["match"], from_payload(Effect, handler)) for handler in payload.get("handlers", ())
    )
    return from_payload(MenuItem, payload, handlers=handlers, does=from_payload(Effect, payload))


def find_persona(crew: str, personas: Iterable[Persona], said: str) -> Persona:
    """Return a persona by id or name, ignoring case. Raises NotFound with the nearest."""
    known = list(personas)
    exact = [each for each in known if each.id == said]
    folded = said.casefold()
    found = exact or [each for each in known if folded in (each.id.casefold(), each.name.casefold())]
    if len(found) != 1:
        hint = nearest(said, [each.id for each in known]) or f"see: uwf crew show {crew}"
        raise NotFound(f"crew {crew!r} has no persona {one_line(said, 80)!r}", hint)
    return found[0]
