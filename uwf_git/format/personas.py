"""Who speaks in a crew, and what a crew offers: the values of a Crew node, and of what its Workflow nodes say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import nearest, one_line
from uwf_git.format.ids import Hash


class Persona(NamedTuple):
    """Who speaks, whichever agent does it. Either `system_prompt` is told, or what stands before it. `tools` is what
    the persona may use: `allow` and `deny` as in a role, `files` and `mcp` (booleans), `maxReadBytes` and
    `maxWriteBytes`, `servers` (names of MCP servers); it only takes away from what the user's configuration allows."""

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

    def payload(self) -> dict[str, Any]:
        """Its part of a node, without its id and what is empty."""
        value = self._asdict()
        del value["id"]
        value |= {"principles": list(self.principles), "actions": list(self.actions)}
        value["systemPrompt"] = value.pop("system_prompt")
        return {key: each for key, each in value.items() if each not in ("", [], None) or key == "name"}


class Does(NamedTuple):
    """What happens where an item of a menu is chosen: a `workflow` of the crew begins, or the document that `exec`
    names is carried out, or an `action`. `data` is the path of a file that is read before."""

    workflow: str = ""
    exec: str = ""
    action: str = ""
    data: str = ""


class Handler(NamedTuple):
    """A text that an item of a menu can be chosen by besides, and what happens then."""

    match: str
    does: Does


class MenuItem(NamedTuple):
    """A line of a persona's menu. It is chosen by its place among those that are shown, by its `trigger` or `cmd`, by
    one of its `aliases`, or by words of it. `validate` is the workflow that has to be whole before. `surface` is where
    it is shown: `ide`, which a terminal counts as, `web`, `none`, or everywhere where that is empty."""

    description: str
    trigger: str = ""
    cmd: str = ""
    aliases: tuple[str, ...] = ()
    handlers: tuple[Handler, ...] = ()
    does: Does = Does()
    validate: str = ""
    surface: str = ""

    def payload(self) -> dict[str, Any]:
        """Its part of a Crew node."""
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
    """A persona of a crew with its menu, and its prompts by their ids, which an action `#id` names."""

    persona: Persona
    menu: tuple[MenuItem, ...] = ()
    prompts: Mapping[str, str] = {}

    def payload(self) -> dict[str, Any]:
        """Its part of a Crew node."""
        value: dict[str, Any] = {"id": self.persona.id, "persona": self.persona.payload()}
        if self.prompts:
            value["prompts"] = dict(self.prompts)
        if self.menu:
            value["menu"] = [item.payload() for item in self.menu]
        return value


class Offered(NamedTuple):
    """A workflow of a crew. `entry` is the path of the document that it begins with, "" where it has none."""

    id: str
    workflow: Hash
    title: str = ""
    description: str = ""
    entry: str = ""
    tags: tuple[str, ...] = ()


class Crew(NamedTuple):
    """A version of a crew. `version` is what its makers call it. The first of its `members` speaks where nobody is
    named; the first of `workflows` is the package's main one."""

    name: str
    version: str
    description: str
    format: str
    members: tuple[Member, ...]
    workflows: tuple[Offered, ...]

    def payload(self) -> dict[str, Any]:
        """The payload of its node."""
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
    """The value of a Crew node's payload, which must obey its schema. Raises Invalid."""
    try:
        return Crew(
            payload["name"],
            payload["version"],
            payload["description"],
            payload["format"],
            tuple(map(_parse_member, payload["personas"])),
            tuple(
                Offered(
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
        raise Invalid(f"a Crew node lacks or garbles {error}") from None


def parse_persona(name: str, payload: Any) -> Persona:
    """The persona of that id, whose part of a node must obey its schema."""
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


def _parse_does(payload: Any) -> Does:
    return Does(*(payload.get(key, "") for key in Does._fields))


def _filled(value: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in value.items() if text}


def find_persona(crew: str, personas: Iterable[Persona], said: str) -> Persona:
    """The persona that has that id or, in any case, that id or name. Raises NotFound with the nearest."""
    known = list(personas)
    exact = [each for each in known if each.id == said]
    folded = said.casefold()
    found = exact or [each for each in known if folded in (each.id.casefold(), each.name.casefold())]
    if len(found) != 1:
        hint = nearest(said, [each.id for each in known]) or f"see: uwf crew show {crew}"
        raise NotFound(f"crew {crew!r} has no persona {one_line(said, 80)!r}", hint)
    return found[0]
