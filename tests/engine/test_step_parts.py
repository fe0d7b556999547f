"""What a kind of workflow has of its own in a step: who does it, its folders, its prompt, its state."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from crew_threads import start_crew

from uwf_git import ext
from uwf_git.base import extensions
from uwf_git.engine.state import state
from uwf_git.engine.step import step
from uwf_git.engine.step_parts import StepParts
from uwf_git.format.kinds import Role
from uwf_git.kit import Context, create_agent
from uwf_git.sandbox.mounts import StepFolders
from uwf_git.store.history import History, Position
from uwf_git.store.instance import Instance


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes `tides` the first of our extensions: it adds the `fields`, and its module holds the `objects`."""

    def add(objects: Mapping[str, object], **fields: Any) -> None:
        module = ModuleType("uwf_git.ext.tides")
        vars(module).update(objects, EXTENSION=extensions.Extension("tides", **fields))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(ext, "OURS", ("tides", *ext.OURS))

    yield add
    extensions._our.cache_clear()


def test_an_extension_does_the_steps_of_a_kind_of_workflow(
    register: Callable[..., None], instance: Instance
) -> None:
    agent = create_agent("tides", lambda ctx: f"---\nsummary: {ctx.role.name} at high tide\n---\n")
    register({"agent": agent}, runners={"crew": extensions.Runner("tides", "uwf_git.ext.tides:agent")})
    thread = start_crew(instance)
    step(instance, thread, agent="rehearse")  # which the runner is given, and doesn't use
    (done,) = instance.threads.history(instance.threads.head(thread)).steps
    assert (done.agent, done.output) == ("uwf-tides", {"summary": "sketch at high tide"})


class Written:
    """What is written of the run: one variable."""

    def added_to(self, output: Mapping[str, Any]) -> dict[str, Any]:
        return {**output, "variables": {"tide": "high"}}


class Folders:
    """A folder by the sea."""

    def __init__(self, project: Path) -> None:
        self.places = StepFolders(project, project / "sand", project / "sea")
        self.ended: list[object] = []

    def __enter__(self) -> Folders:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.ended.append(kind)

    def prepare(self) -> StepFolders:
        return self.places

    def for_tools(self, policy: object) -> list[Any]:
        return []

    def written(self) -> Written:
        return Written()


class Tides:
    """Parts of a step that tell of the sea."""

    made: Folders

    def mounts(
        self, instance: Instance, at: Position, role: Role, project: Path, carries_on: bool
    ) -> Folders:
        self.made = Folders(project)
        return self.made

    def prompt(self, history: History, role: Role, schema: Any, instruction: str | None, *_: object) -> str:
        return f"{role.name}, row out!"

    def speaker(self, history: History, role: Role) -> Sequence[str]:
        return ("You are a fish.",)

    def offers(self, *_: object) -> bool:
        return False

    def reached(self, history: History, current: str) -> dict[str, Any]:
        return {"steps": len(history.steps), "next": current}


def test_an_extension_adds_the_parts_of_a_step_of_a_kind_of_workflow(
    register: Callable[..., None], instance: Instance
) -> None:
    told: list[tuple[str, Path]] = []

    def run(ctx: Context) -> str:
        assert ctx.mounts is not None
        told.append((ctx.prompt, ctx.mounts.places.state))
        return "---\nsummary: Wet.\n---\n"

    tides: StepParts = (own := Tides())
    register(
        {"agent": create_agent("tides", run), "PARTS": tides},
        agents=(extensions.AgentProgram("uwf-tides", "command", "uwf_git.ext.tides:agent"),),
        step_parts={"crew": "uwf_git.ext.tides:PARTS"},
    )
    thread = start_crew(instance)
    step(instance, thread, agent="uwf-tides")
    head = instance.threads.head(thread)
    (done,) = instance.threads.history(head).steps
    assert told == [("sketch, row out!", Path.cwd() / "sea")] and own.made.ended == [None]
    assert done.output == {"summary": "Wet.", "variables": {"tide": "high"}}
    assert state(instance, head)["state"] == {"steps": 1, "next": "check"}
