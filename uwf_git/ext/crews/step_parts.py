"""The `StepParts` of crews' workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uwf_git.ext.crews.mounts import Mounts
    from uwf_git.plugin import (
        History,
        Instance,
        Recipient,
        Role,
        StartNode,
        StepContext,
        StepParts,
        ThreadPosition,
        Workflow,
    )


class CrewParts:
    """Imports each part on use."""

    def mounts(
        self, instance: Instance, at: ThreadPosition, role: Role, project: Path, carries_on: bool
    ) -> Mounts:
        """@pkg and @state; a conversation has no document."""
        from uwf_git.ext.crews.mounts import Mounts
        from uwf_git.plugin import conversations

        repository = instance.store.repository
        return Mounts(
            repository, at.head, at.history, role, project, not conversations.talks(role), carries_on
        )

    def prompt(
        self,
        history: History,
        role: Role,
        schema: Any,
        instruction: str | None,
        answer_of: Callable[[StepContext], str],
        recipient: Recipient,
        quota: int,
    ) -> str:
        from uwf_git.ext.crews.prompt import node_prompt

        return node_prompt(history, role, schema, instruction, answer_of, recipient, quota)

    def speaker(self, history: History, role: Role) -> Sequence[str]:
        """The persona, and the limits of workflow and persona."""
        from uwf_git.ext.crews.prompt import policy, speaks

        return policy(history, role._replace(tools=None)), speaks(history, role)

    def offers(self, instance: Instance, history: History, message: str, project: Path) -> bool:
        from uwf_git.ext.crews.entry import is_of_menu

        return is_of_menu(instance, history, message, project)

    def reached(self, history: History, current: str) -> dict[str, Any]:
        from uwf_git.ext.crews.state import reached

        return reached(history, current).as_json()

    def start_problems(
        self, workflow: Workflow, start: StartNode, included: Callable[[str], bytes | None]
    ) -> Iterable[tuple[str, str]]:
        """The limits on a step's tools follow from its persona, so a thread without one is refused."""
        from uwf_git.ext.crews.prompt import data_problem
        from uwf_git.plugin import one_line

        if not start.persona:
            yield "wrong-persona", f"the StartNode names no persona, and {workflow.name} is of a crew"
        elif start.persona not in workflow.personas:
            persona = repr(one_line(start.persona, 80))
            yield (
                "wrong-persona",
                f"the StartNode names persona {persona}, which {workflow.name} does not have",
            )
        if start.data is not None and (problem := data_problem(start.data, included)) is not None:
            yield "wrong-data", f"the StartNode brings along what no menu does: {problem}"


PARTS: StepParts = CrewParts()
