"""The checks of a workflow, made again on the commit that lands, and recorded beside the thread with their logs."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.landing.effect_records import Check, Effects, now
from uwf_git.ext.landing.effects import record, require_recordable
from uwf_git.ext.landing.settings import settings_of
from uwf_git.plugin import LOG_BYTES, STATUS_KEY, TEXT, AgentFailed, checked_out, command_run, try_command

if TYPE_CHECKING:
    from uwf_git.plugin import Hash, Head, Instance, StepWorkspace, ThreadId, Workflow

_PASSED = "passed"  # the truth value, or the status, by which a command's role is a check


class LandingCheck(NamedTuple):
    """A check that was made on a commit: its node, and its log without secrets, cut at the beginning."""

    node: Hash
    check: Check
    log: str


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
    deadline: float | None = None,
) -> list[LandingCheck]:
    """Run commands in a checkout of a commit, one after the other, until one fails, and record each. Moves
    `refs/uwf/effects/<ULID>`. Raises WorkspaceFailed, AgentFailed for a command that can't be started or that the
    deadline ends, RolledBack, Untrusted."""
    commands = list(commands)
    if not commands:
        return []
    require_recordable(instance, instance.threads.head(thread))
    tree = workspace.project.tree(commit)
    place = instance.location.root / "landing" / thread
    results: list[LandingCheck] = []
    note = workspace.note
    secrets, env = instance.secrets, settings_of(instance.config).env
    with checked_out(
        workspace.project, commit, place, workspace.settings, note.top, thread, secrets
    ) as folder:
        for command in commands:
            tell(f"checks {shlex.join(command)}")
            environ = {**secrets.environment(env), "UWF_THREAD": thread}
            rest = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
            done = try_command(command, folder / note.inside, environ, min(seconds, rest))
            if done.status is None and rest < seconds:
                raise _late(command)
            log = _kept(instance, done.log)
            shown = tuple(instance.redactor.text(word)[0] for word in command)
            results.append(_recorded(instance, thread, commit, tree, shown, done.status, log))
            if not results[-1].check.has_passed:
                break
    return results


def _late(command: Sequence[str]) -> AgentFailed:
    late = AgentFailed(
        f"ran out of time in the check {shlex.join(command)}", "raise agents.<name>.timeout in config.yaml"
    )
    late.timed_out = True
    return late


def _kept(instance: Instance, output: bytes) -> str:
    """Return the end of a command's output without secrets, at most LOG_BYTES long."""
    text, _ = instance.redactor.text(output.decode("utf-8", "replace"))
    if len(output) >= LOG_BYTES:  # it may begin with the rest of a secret, in any encoding
        text = text[3 * max(map(len, instance.secrets.values()), default=0) :]
    return text.encode()[-LOG_BYTES:].decode("utf-8", "ignore")


def _recorded(
    instance: Instance,
    thread: ThreadId,
    commit: str,
    tree: str,
    command: tuple[str, ...],
    status: int | None,
    log: str,
) -> LandingCheck:
    """Record a check, unless it came to the same before."""
    head = instance.threads.head(thread)
    prev = head.node if head.row.kind == "step" else None
    node = instance.store.put(TEXT, log)
    check = Check(head.row.start or head.node, prev, commit, tree, command, status, node, now(head))
    for same, before in Effects(instance.store).checks(thread).items():
        if before == check._replace(start=before.start, prev=before.prev, at=before.at):
            return LandingCheck(same, before, log)
    return LandingCheck(record(instance, head, check), check, log)
