"""Threads in flight go on under a newer version: histories that earlier ones recorded replay to the same commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from recorded_histories import HISTORIES, SCENARIOS
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.workflow import ThreadInFleet

FILES = sorted(HISTORIES.glob("*.json"))


def replay(path: Path) -> None:
    replayer = Replayer(workflows=[ThreadInFleet], workflow_runner=UnsandboxedWorkflowRunner())

    async def every() -> None:
        for value in json.loads(path.read_text()):
            history: Any = {name: part for name, part in value.items() if name != "workflow"}
            await replayer.replay_workflow(WorkflowHistory.from_json(value["workflow"], history))

    asyncio.run(every())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_earlier_versions_have_recorded_replays(path: Path) -> None:
    replay(path)


def test_each_scenario_is_recorded_and_a_changed_workflow_does_not_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {path.stem for path in FILES} >= SCENARIOS.keys()
    monkeypatch.setattr(messages, "activity_id", lambda thread, head: f"{head}@{thread}")
    with pytest.raises(NondeterminismError):
        replay(HISTORIES / "steps.json")
