"""The parts of a step that depend on the kind of workflow: folders, prompt, state of the run. An extension
names a `StepParts` object for a kind in its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from uwf_git.base import extensions

if TYPE_CHECKING:
    from uwf_git.config.policy import ToolPolicy
    from uwf_git.format.kinds import Role, Start, StepContext, Workflow
    from uwf_git.sandbox.mounts import StepFolders
    from uwf_git.sandbox.path import Mount
    from uwf_git.store.history import History, Position
    from uwf_git.store.instance import Instance


class Recipient(NamedTuple):
    """The agent that a prompt is for. If it `remembers`, it resumes the session of the role's last turn (by
    `agent`, if given). If it `resumes`, it continues a failed attempt's session. `shell`: it can run
    commands. `folders` are the step's, by name, for an agent that reads them by the machine's paths."""

    agent: str | None = None
    remembers: bool = False
    resumes: bool = False
    shell: bool = False
    folders: Mapping[str, Path] = {}


class Changes(Protocol):
    """Changes that an agent wrote besides its answer; part of the answer."""

    def added_to(self, output: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer's fields with these changes."""


class Mounts(Protocol):
    """The folders of one step, made on demand. A context manager: removes the step's own folders unless the
    step failed."""

    places: StepFolders

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def prepare(self) -> StepFolders:
        """Create all folders. Raises StoreUnwritable, StoreDamaged."""

    def for_tools(self, policy: ToolPolicy) -> list[Mount]:
        """Return the folders besides @project for an agent's tools. Raises as `prepare`."""

    def written(self) -> Changes | None:
        """Return the agent's changes, if any. Raises Invalid."""


class StepParts(Protocol):
    """A kind of workflow's own parts of a step."""

    def mounts(self, instance: Instance, at: Position, role: Role, project: Path, carries_on: bool) -> Mounts:
        """Return the folders of `role`'s next step. `carries_on`: it resumes a failed attempt, whose folders
        still exist. Raises StoreDamaged."""

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
        """As `kit.prompt.build_prompt`."""

    def speaker(self, history: History, role: Role) -> Sequence[str]:
        """Return the parts of a conversation's prompt on the speaker and its permitted tools."""

    def offers(self, instance: Instance, history: History, message: str, project: Path) -> bool:
        """Return whether a message is a menu item."""

    def reached(self, history: History, current: str) -> dict[str, Any]:
        """Return a run's progress as JSON: `state` of `uwf thread show`. `current` is the next role, $END,
        $USER, or "" if no edge applies."""

    def start_problems(
        self, workflow: Workflow, start: Start, included: Callable[[str], bytes | None]
    ) -> Iterable[tuple[str, str]]:
        """Yield the problems of a StartNode with their codes. `included` returns a file that the workflow's version
        includes, by its path."""


def parts_of(workflow: Workflow) -> StepParts | None:
    where = None if workflow.kind == "workflow" else extensions.step_parts(workflow.kind)
    parts: StepParts | None = None if where is None else extensions.load(where)
    return parts
