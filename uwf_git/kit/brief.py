"""What an agent is told at a point of a thread: the prompt, from what the store holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from uwf_git.errors import Invalid
from uwf_git.text import nearest
from uwf_git.values.ids import Hash
from uwf_git.values.kinds import Role

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import History


def prompt_at(
    instance: Instance,
    history: History,
    role: Role,
    instruction: str | None,
    remembers: bool = False,
    agent: str | None = None,
) -> str:
    """The prompt of a role at a history; `remembers` for a session that knows the role's earlier turns, or those
    by that agent."""
    from uwf_git.kit.prompt import build_prompt

    schema = instance.store.schema(role.schema).payload
    answers = _Answers(instance, history)
    return build_prompt(history, role, schema, instruction, answers, remembers=remembers, agent=agent)


def role_of(history: History, name: str) -> Role:
    """A role of a history's workflow. Raises Invalid."""
    role = history.workflow.roles.get(name)
    if role is None:
        hint = nearest(name, history.workflow.roles) or "see: uwf workflow show"
        raise Invalid(f"workflow {history.workflow.name} has no role {name!r}", hint)
    return role


class _Answers(Mapping[Hash, str]):
    """The verbatim answers of a history, read when asked for."""

    def __init__(self, instance: Instance, history: History) -> None:
        self._threads = instance.threads
        self._steps = {step.hash: step for step in history.steps}

    def __getitem__(self, step: Hash) -> str:
        return self._threads.answer(self._steps[step])

    def __iter__(self) -> Iterator[Hash]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)
