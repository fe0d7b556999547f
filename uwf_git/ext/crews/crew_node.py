"""The value of a Crew node: members with their menus, and workflows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from uwf_git.plugin import (
    Hash,
    Invalid,
    Persona,
    from_payload,
    parse_persona,
    require_known_words,
    to_payload,
)


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
    """Parse a valid Crew payload. Raises Invalid, UnknownWord."""
    try:
        require_known_words("Crew", payload, payload["name"])
        members = tuple(map(_parse_member, payload["personas"]))
        workflows = tuple(from_payload(CrewWorkflow, workflow) for workflow in payload["workflows"])
        return from_payload(Crew, payload, members=members, workflows=workflows)
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a Crew node has no valid {error}") from None


def _parse_member(payload: Any) -> Member:
    persona = parse_persona(payload["id"], payload["persona"])
    menu = tuple(map(_parse_item, payload.get("menu", ())))
    return from_payload(Member, payload, persona=persona, menu=menu)


def _parse_item(payload: Any) -> MenuItem:
    handlers = tuple(
        Handler(handler["match"], from_payload(Effect, handler)) for handler in payload.get("handlers", ())
    )
    return from_payload(MenuItem, payload, handlers=handlers, does=from_payload(Effect, payload))
