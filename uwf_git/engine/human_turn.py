"""A person's turn at a role: what is asked, and of whom."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from uwf_git.base.errors import Invalid, UwfError
from uwf_git.engine.budget import used_up
from uwf_git.engine.human_roles import HumanRoles
from uwf_git.engine.next_turn import outlook
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Identity
from uwf_git.store.history import Head
from uwf_git.workflow.turn import Outlook, TurnKind, turn_of

if TYPE_CHECKING:
    from uwf_git.engine.kit.form import FormField
    from uwf_git.store.instance import Instance


class Ballot(Protocol):
    """How an answer stands that several people give together. `missing` counts those who still have to, `awaited` are
    the people who may."""

    @property
    def missing(self) -> int: ...

    @property
    def awaited(self) -> list[str]: ...

    def awaits(self, person: str, identity: Identity) -> bool:
        """Return whether somebody's answer is missing, and may come."""
        ...

    def check_voter(self, instance: Instance, thread: ThreadId) -> None:
        """Raise RequirementUnmet if whoever uses this machine may not answer."""
        ...

    def raise_if_unmet(self, thread: ThreadId) -> None:
        """Raise Absent, with whose answers are missing, unless enough agree."""
        ...

    def as_json(self, thread: ThreadId) -> dict[str, Any]: ...


class HumanTurn(NamedTuple):
    """A person is to play `role` next, of which `about` tells. `instruction` is the edge's prompt, else the
    role's description; `options` are the choices of the only field that must be filled in. `standing` is how a gate
    stands, None for a role that anybody may play."""

    role: str
    about: str
    instruction: str
    assignee: str
    fields: tuple[FormField, ...]
    standing: Ballot | None = None

    @property
    def options(self) -> tuple[str, ...]:
        from uwf_git.engine.kit.form import options_of

        return options_of(self.fields)

    def command(self, thread: ThreadId) -> str:
        return command_for(thread, self.fields)


def command_for(thread: ThreadId, fields: Sequence[FormField]) -> str:
    """Return the command that answers, with a placeholder for each required field."""
    from uwf_git.engine.kit.form import options_of

    needed = [field for field in fields if field.required]
    if len(needed) > 1:
        options = "".join(
            f" -f {shlex.quote(field.name)}={field.name.strip('$').upper()}" for field in needed
        )
    else:
        options = f" -m {'CHOICE' if options_of(fields) else 'TEXT'}"
    return f"uwf thread answer {thread}{options}"


def persons_role(
    instance: Instance, head: Head, people: HumanRoles | None = None, found: Outlook | None = None
) -> str:
    """Return the next role if a person plays it, else "". A gate that has its approvals waits for nobody."""
    people = people or HumanRoles(instance)
    try:
        if head.archive is not None or not people.among(head.row):
            return ""
        found = found or outlook(instance, head)
        following = found.next
        if following is None or not people.plays(head.row, following):
            return ""
        return "" if people.is_gate(head.row, following) and _is_met(instance, head, found) else following
    except UwfError:  # of a thread that can't be read, its reader says why
        return ""


def _is_met(instance: Instance, head: Head, outlook: Outlook) -> bool:
    from uwf_git.engine.turn.gate import is_met

    return is_met(instance, head, outlook)


def human_turn(
    instance: Instance, head: Head, people: HumanRoles | None = None, found: Outlook | None = None
) -> HumanTurn | None:
    """Return whose turn it is if a person plays the next role, and no budget is used up. Read errors are
    raised."""
    people = people or HumanRoles(instance)
    name = persons_role(instance, head, people, found)
    if not name or used_up(instance, head, found=found) is not None:
        return None
    assert head.row.workflow is not None
    workflow = instance.registry.workflow(head.row.workflow)
    role = workflow.roles[name]
    found = found or outlook(instance, head)
    texts = (role.description, role.system_prompt, role.goal, role.procedure, role.output)
    about = "\n\n".join(text.strip() for text in texts if text.strip())
    request = role.request(found.instruction)
    fields = people.fields(role.schema)
    standing = None
    if turn_of(workflow, name) is TurnKind.GATE:
        from uwf_git.engine.turn.gate import ballot_at

        standing = ballot_at(instance, instance.threads.position(head), found)
    return HumanTurn(name, about, request, role.assignee, fields, standing)


def raise_if_moved(head: Head, step: Hash | None) -> None:
    """Raise Invalid for an answer to a step, if one is named, that is not the head."""
    if step is not None and step != head.node:
        raise Invalid(
            f"the newest step of thread {head.thread} is {head.node}, not {step}",
            f"see: uwf thread show {head.thread}",
        )
