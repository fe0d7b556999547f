"""The checks of a workflow, made again on the commit that lands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import STATUS_KEY, checked_out, command_run, try_command

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance, StepWorkspace, ThreadId, Workflow

_PASSED = "passed"  # the truth value, or the status, by which a command's role is a check


class LandingCheck(NamedTuple):
    """A check that was made on a commit. `status` is the command's exit status, None if it ran out of time; `log` its
    output without secrets, cut at the beginning."""

    command: tuple[str, ...]
    status: int | None
    log: str

    @property
    def has_passed(self) -> bool:
        return self.status == 0

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.log.encode()).hexdigest()


def commands_of(instance: Instance, head: Head, workflow: Workflow) -> list[tuple[str, ...]]:
    """Return the commands of the roles that commands play and whose output says whether something has passed."""
    roles = (
        name for name, role in workflow.roles.items() if _is_check(instance.store.schema(role.schema).payload)
    )
    return list(dict.fromkeys(command for name in roles if (command := command_run(instance, head, name))))


def _is_check(schema: Any) -> bool:
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict):
        return False
    choices = [
        field.get("enum") for name, field in fields.items() if name in STATUS_KEY and isinstance(field, dict)
    ]
    field = fields.get(_PASSED)
    is_flag = isinstance(field, dict) and field.get("type") == "boolean"
    return is_flag or any(isinstance(words, list) and _PASSED in words for words in choices)


def check(
    instance: Instance,
    thread: ThreadId,
    workspace: StepWorkspace,
    commit: str,
    commands: Iterable[tuple[str, ...]],
    seconds: float,
    tell: Callable[[str], None],
) -> list[LandingCheck]:
    """Run commands in a checkout of a commit, one after the other, until one fails. Raises WorkspaceFailed,
    AgentFailed for a command that can't be started."""
    commands = list(commands)
    if not commands:
        return []
    checkout = Path(workspace.note.checkout) if workspace.note.checkout else None
    settings = instance.config.workspace.of(checkout)
    place = instance.location.root / "landing" / thread
    results: list[LandingCheck] = []
    with checked_out(workspace.project, commit, place, settings, checkout, thread) as folder:
        for command in commands:
            tell(" ".join(command))
            variables = {**instance.secrets, "UWF_THREAD": thread}
            done = try_command(command, folder / workspace.note.inside, variables, seconds)
            log = instance.redactor.text(done.log.decode("utf-8", "replace"))[0]
            results.append(LandingCheck(command, done.status, log))
            if not results[-1].has_passed:
                break
    return results
