"""A crew's page: personas, menus, workflow graphs; from nodes alone, with all texts escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from uwf_git.ext.crews.crew_node import Crew, CrewWorkflow, Effect, Member, MenuItem
from uwf_git.plugin import Hash, Workflow, markdown

_SURFACES = {"ide": "where there is an editor or a terminal", "web": "on the web", "none": "nowhere"}


def readme(crew: Crew, workflows: Mapping[Hash, Workflow]) -> str:
    """Return a crew's page; `workflows` are by hash, missing ones without graph."""
    parts = [f"# {markdown.inline(crew.name)}"]
    if crew.description.strip():
        parts.append(markdown.paragraphs(crew.description))
    if crew.version:
        parts.append(f"Version {markdown.inline(crew.version)}")
    rows = [
        (_name(item), markdown.code(item.persona.id), markdown.inline(item.persona.title), _about(item))
        for item in crew.members
    ]
    parts.append("## Personas\n\n" + markdown.table(("persona", "id", "title", "role"), rows))
    parts += [f"### {_name(item)}\n\n{_menu(item)}" for item in crew.members if item.menu]
    if crew.workflows:
        parts.append("## Workflows")
        parts += [_workflow(crew.name, item, workflows.get(item.workflow)) for item in crew.workflows]
    return "\n\n".join(parts) + "\n"


def _name(member: Member) -> str:
    return markdown.inline(f"{member.persona.icon} {member.persona.name}".strip())


def _about(member: Member) -> str:
    persona = member.persona
    return markdown.inline(persona.role or persona.description or persona.identity)


def _menu(member: Member) -> str:
    rows = [
        (str(number), _called(item), markdown.inline(item.description), "; ".join(_doings(item)))
        for number, item in enumerate(member.menu, 1)
    ]
    return markdown.table(("", "trigger", "what", "does"), rows)


def _called(item: MenuItem) -> str:
    return ", ".join(
        markdown.code(word) for word in dict.fromkeys((item.trigger, item.cmd, *item.aliases)) if word
    )


def _doings(item: MenuItem) -> Iterable[str]:
    yield from _doing(item.does)
    if item.validate:
        yield f"checks {markdown.code(item.validate)} before"
    for handler in item.handlers:
        for effect in _doing(handler.does):
            yield f"{markdown.code(handler.match)}: {effect}"
    if item.surface:
        yield f"shown {_SURFACES.get(item.surface, markdown.inline(item.surface))}"


def _doing(does: Effect) -> Iterable[str]:
    if does.workflow:
        yield f"starts {markdown.code(does.workflow)}"
    if does.exec:
        yield f"carries out {markdown.code(does.exec)}"
    if does.action:
        yield f"action {markdown.code(does.action)}"
    if does.data:
        yield f"with {markdown.code(does.data)}"


def _workflow(crew: str, offered: CrewWorkflow, workflow: Workflow | None) -> str:
    from uwf_git.plugin import mermaid_diagram

    title = f" · {markdown.inline(offered.title)}" if offered.title else ""
    parts = [f"### {markdown.code(f'{crew}/{offered.id}')}{title}"]
    if offered.description.strip():
        parts.append(markdown.paragraphs(offered.description))
    if offered.tags:
        parts.append(", ".join(map(markdown.code, offered.tags)))
    if workflow is not None:
        parts.append(f"```mermaid\n{mermaid_diagram(workflow)}```")
    return "\n\n".join(parts)
