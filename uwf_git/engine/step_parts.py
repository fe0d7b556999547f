"""The parts of a step that depend on the kind of its workflow: its folders, its prompt, and the state of its run.

An extension names an object of the protocol `StepParts` for a kind, in the field `step_parts` of its manifest. It is
loaded for the threads of such workflows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from uwf_git import ext

if TYPE_CHECKING:
    from uwf_git.config.policy import ToolPolicy
    from uwf_git.format.kinds import Role, StepContext, Workflow
    from uwf_git.sandbox.mounts import Places
    from uwf_git.sandbox.path import Mount
    from uwf_git.store.history import History, Position
    from uwf_git.store.opened import Instance


class Recipient(NamedTuple):
    """The agent that a prompt is for.

    If it `remembers`, it resumes the session of the role's last turn (of its last turn by `agent`, if that is given).
    If it `resumes`, it goes on in the session of an attempt at this very step, which was told all of it. `shell` says
    that it can run commands. `folders` are those of the step by their names, for an agent that gets at them by the
    machine's own paths.
    """

    agent: str | None = None
    remembers: bool = False
    resumes: bool = False
    shell: bool = False
    folders: Mapping[str, Path] = {}


class Changes(Protocol):
    """What an agent wrote about its run besides its answer. It counts as a part of the answer."""

    def added_to(self, output: Mapping[str, Any]) -> dict[str, Any]:
        """An answer's fields with what was written."""


class Mounts(Protocol):
    """The folders of one step, made when they are asked for. As a context manager it removes those of the step alone,
    but not of a step that failed."""

    places: Places

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def prepare(self) -> Places:
        """Make sure that all folders are there. Raises StoreUnwritable, StoreDamaged."""

    def for_tools(self, policy: ToolPolicy) -> list[Mount]:
        """The folders besides @project for an agent's tools. Raises as `prepare` does."""

    def written(self) -> Changes | None:
        """What the agent wrote about its run, None if nothing. Raises Invalid for what is wrong with it."""


class StepParts(Protocol):
    """What a kind of workflow has in place of, or besides, the parts of a step that every workflow has."""

    def mounts(self, instance: Instance, at: Position, role: Role, project: Path, carries_on: bool) -> Mounts:
        """The folders of the step that `role` does next. `carries_on` says that it goes on from a failed attempt, whose
        folders are still there. Raises StoreDamaged."""

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
        """The whole prompt for a role's next turn. The parameters are those of `kit.prompt.build_prompt`."""

    def speaker(self, history: History, role: Role) -> Sequence[str]:
        """The parts of a conversation's prompt that say who speaks, and what it may use at most."""

    def offers(self, instance: Instance, history: History, message: str, project: Path) -> bool:
        """Whether a message of a conversation is one of those that its user is offered. `project` is the folder that is
        worked in."""

    def reached(self, history: History, current: str) -> dict[str, Any]:
        """How far a run is, as JSON: `state` of `uwf thread show`. `current` is the role whose turn it is, $END, $USER,
        or "" if the graph knows no way on."""

    def data_problem(self, data: Mapping[str, Any], file: Callable[[str], bytes | None]) -> str | None:
        """What is wrong with the `data` of a StartNode, None if nothing is. `file` gives the content of a file that the
        workflow's version includes, by its path; None if there is none."""


def parts_of(workflow: Workflow) -> StepParts | None:
    """The parts that the workflow's kind has, None if it has none of its own."""
    where = None if workflow.kind == "workflow" else ext.step_parts(workflow.kind)
    parts: StepParts | None = None if where is None else ext.load(where)
    return parts
