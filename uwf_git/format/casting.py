"""The cast of a workflow: who plays its roles in a thread. Configuration and agents ask these values, and need not know
that a role may have a persona."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format.credit import Credit

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.format.kinds import Role, Start, Workflow
    from uwf_git.format.personas import Persona


class CastRole(NamedTuple):
    """A role of a workflow, both by name, as one thread casts it. `speaker` is the id of its persona, "" if it has
    none. `role` and `persona` are their definitions, None if unknown or missing."""

    workflow: str
    name: str
    speaker: str = ""
    role: Role | None = None
    persona: Persona | None = None

    @property
    def sections(self) -> list[tuple[str, str]]:
        """The sections and keys under which a configuration may name its agent, in order of precedence: the
        workflow's role, its persona, and the persona in the crew (`trip` of `trip/plan`)."""
        places = [(self.workflow, self.name)]
        if self.speaker:
            crew, slash, _ = self.workflow.partition("/")
            places += [(self.workflow, self.speaker), (crew, self.speaker)][: 2 if slash else 1]
        return places

    @property
    def tools(self) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        """The `tools` of the role's definition and of its persona's."""
        return self.role and self.role.tools, self.persona and self.persona.tools

    @property
    def shown(self) -> dict[str, str] | None:
        """The id and name of its persona, None without one."""
        return self.persona.shown if self.persona is not None else None

    def credit(self, agent: str) -> Credit:
        return Credit(agent, self.persona)


class Cast(NamedTuple):
    """A workflow, and the id of the persona that speaks for its roles without one of their own."""

    workflow: Workflow
    speaker: str = ""

    @classmethod
    def led_by(cls, workflow: Workflow, speakers: Iterable[str]) -> Cast:
        """Return a packaged workflow whose default speaker is the first of these that it has."""
        personas = workflow.personas
        return cls(workflow, next((speaker for speaker in speakers if speaker in personas), min(personas)))

    @property
    def sections(self) -> dict[str, set[str]]:
        """All sections of a configuration that may name its agents, with their keys."""
        workflow = self.workflow
        sections = {workflow.name: {*workflow.roles, *workflow.personas}}
        if workflow.package:
            sections[workflow.package] = {*workflow.personas}
        return sections

    def role(self, name: str) -> CastRole:
        """Return a role; nobody speaks for anything but one of the workflow's."""
        role = self.workflow.roles.get(name)
        return self.of(role) if role is not None else CastRole(self.workflow.name, name)

    def find(self, persona: str) -> Cast:
        """Return it with another default speaker, by id or name. Raises NotFound."""
        from uwf_git.format.personas import find_persona

        known = self.workflow.personas.values()
        return self._replace(speaker=find_persona(self.workflow.package, known, persona).id)

    def require(self, name: str, thread: ThreadId) -> CastRole:
        """Return a role of a thread. Raises Invalid if it should have a persona and has none, since its step would
        have no limits on its tools."""
        role, workflow = self.role(name), self.workflow.name
        if self.workflow.package and role.persona is None:
            shown = one_line(role.speaker, 80)
            raise Invalid(
                f"thread {thread} names persona {shown!r} for {name}, which {workflow} does not have",
                f"start another: uwf thread start {workflow} --as NAME",
            )
        return role

    def of(self, role: Role) -> CastRole:
        speaker = role.persona or self.speaker
        return CastRole(self.workflow.name, role.name, speaker, role, self.workflow.personas.get(speaker))


def cast_of(workflow: Workflow, start: Start) -> Cast:
    """Return the cast of a workflow in a thread with this StartNode."""
    return Cast(workflow, start.persona)
