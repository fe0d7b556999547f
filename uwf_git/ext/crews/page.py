"""A crew's page: personas, menus, workflow graphs; from nodes alone, with all texts escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from uwf_git.base.markdown import code, inline, paragraphs, table
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Workflow
from uwf_git.format.personas import Crew, CrewWorkflow, Effect, Member, MenuItem

_SURFACES = {"ide": "where there is an editor or a terminal", "web": "on the web", "none": "nowhere"}


def readme(crew: Crew, workflows: Mapping[Hash, Workflow]) -> str:
    """Return a crew's page; `workflows` are by hash, missing ones without graph."""
    parts = [f"# {inline(crew.name)}"]
    if crew.description.strip():
        parts.append(paragraphs(crew.description))
    if crew.version:
        parts.append(f"Version {inline(crew.version)}")
    rows = [
        (_name(item), code(item.persona.id), inline(item.persona.title), _about(item))
        for item in crew.members
    ]
    parts.append("## Personas\n\n" + table(("persona", "id", "title", "role"), rows))
    parts += [f"### {_name(item)}\n\n{_menu(item)}" for item in crew.members if item.menu]
    if crew.workflows:
        parts.append("## Workflows")
        parts += [_workflow(crew.name, item, workflows.get(item.workflow)) for item in crew.workflows]
    return "\n\n".join(parts) + "\n"


def _name(member: Member) -> str:
    return inline(f"{member.persona.icon} {member.persona.name}".strip())


def _about(member: Member) -> str:
    persona = member.persona
    return inline(persona.role or persona.description or persona.identity)


def _menu(member: Member) -> str:
    rows = [
        (str(number), _called(item), inline(item.description), "; ".join(_doings(item)))
        for number, item in enumerate(member.menu, 1)
    ]
    return table(("", "trigger", "what", "does"), rows)


def _called(item: MenuItem) -> str:
    return ", ".join(code(word) for word in dict.fromkeys((item.trigger, item.cmd, *item.aliases)) if word)


def _doings(item: MenuItem) -> Iterable[str]:
    yield from _doing(item.does)
    if item.validate:
        yield f"checks {code(item.validate)} before"
    for handler in item.handlers:
        for effect in _doing(handler.does):
            yield f"{code(handler.match)}: {effect}"
    if item.surface:
        yield f"shown {_SURFACES.get(item.surface, inline(item.surface))}"


def _doing(does: Effect) -> Iterable[str]:
    if does.workflow:
        yield f"starts {code(does.workflow)}"
    if does.exec:
        yield f"carries out {code(does.exec)}"
    if does.action:
        yield f"action {code(does.action)}"
    if does.data:
        yield f"with {code(does.data)}"


def _workflow(crew: str, offered: CrewWorkflow, workflow: Workflow | None) -> str:
    from uwf_git.workflow.diagram import mermaid

    title = f" · {inline(offered.title)}" if offered.title else ""
    parts = [f"### {code(f'{crew}/{offered.id}')}{title}"]
    if offered.description.strip():
        parts.append(paragraphs(offered.description))
    if offered.tags:
        parts.append(", ".join(map(code, offered.tags)))
    if workflow is not None:
        parts.append(f"```mermaid\n{mermaid(workflow)}```")
    return "\n\n".join(parts)
