"""Personas and crews: values of Crew nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import nearest, one_line
from uwf_git.format.ids import Hash


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
        value = self._asdict()
        del value["id"]
        value |= {"principles": list(self.principles), "actions": list(self.actions)}
        value["systemPrompt"] = value.pop("system_prompt")
        return {key: each for key, each in value.items() if each not in ("", [], None) or key == "name"}


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


class MenuItem(NamedTuple):
    """A menu item, selected by its number, `trigger`, `cmd`, an alias, or words of it. `validate` names a
    workflow that must be complete first. `surface` is `ide` (includes terminals), `web`, `none`, or "" for
    everywhere."""

    description: str
    trigger: str = ""
    cmd: str = ""
    aliases: tuple[str, ...] = ()
    handlers: tuple[Handler, ...] = ()
    does: Effect = Effect()
    validate: str = ""
    surface: str = ""

    def payload(self) -> dict[str, Any]:
        value: dict[str, Any] = {"description": self.description, **_filled(self.does._asdict())}
        value |= _filled({key: getattr(self, key) for key in ("trigger", "cmd", "validate", "surface")})
        if self.aliases:
            value["aliases"] = list(self.aliases)
        if self.handlers:
            value["handlers"] = [
                {"match": each.match, **_filled(each.does._asdict())} for each in self.handlers
            ]
        return value


class Member(NamedTuple):
    """A persona with its menu, and its prompts by id, used by the action `#id`."""

    persona: Persona
    menu: tuple[MenuItem, ...] = ()
    prompts: Mapping[str, str] = {}

    def payload(self) -> dict[str, Any]:
        value: dict[str, Any] = {"id": self.persona.id, "persona": self.persona.payload()}
        if self.prompts:
            value["prompts"] = dict(self.prompts)
        if self.menu:
            value["menu"] = [item.payload() for item in self.menu]
        return value


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
        offered = [
            {"id": each.id, "workflow": each.workflow}
            | _filled({"title": each.title, "description": each.description, "entry": each.entry})
            | ({"tags": list(each.tags)} if each.tags else {})
            for each in self.workflows
        ]
        return {
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "format": self.format,
            "personas": [member.payload() for member in self.members],
            "workflows": offered,
        }


def parse_crew(payload: Any) -> Crew:
    """Parse a valid Crew payload. Raises Invalid."""
    try:
        return Crew(
            payload["name"],
            payload["version"],
            payload["description"],
            payload["format"],
            tuple(map(_parse_member, payload["personas"])),
            tuple(
                CrewWorkflow(
                    each["id"],
                    Hash(each["workflow"]),
                    each.get("title", ""),
                    each.get("description", ""),
                    each.get("entry", ""),
                    tuple(each.get("tags", ())),
                )
                for each in payload["workflows"]
            ),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a Crew node has no valid {error}") from None


def parse_persona(name: str, payload: Any) -> Persona:
    """Parse a persona's valid part of a node."""
    given = dict(payload)
    for key in ("principles", "actions"):
        given[key] = tuple(given.get(key, ()))
    given["system_prompt"] = given.pop("systemPrompt", "")
    return Persona(name, **given)


def _parse_member(payload: Any) -> Member:
    persona = parse_persona(payload["id"], payload["persona"])
    return Member(persona, tuple(map(_parse_item, payload.get("menu", ()))), payload.get("prompts", {}))


def _parse_item(payload: Any) -> MenuItem:
    return MenuItem(
        payload["description"],
        payload.get("trigger", ""),
        payload.get("cmd", ""),
        tuple(payload.get("aliases", ())),
        tuple(Handler(each["match"], _parse_does(each)) for each in payload.get("handlers", ())),
        _parse_does(payload),
        payload.get("validate", ""),
        payload.get("surface", ""),
    )


def _parse_does(payload: Any) -> Effect:
    return Effect(*(payload.get(key, "") for key in Effect._fields))


def _filled(value: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in value.items() if text}


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
