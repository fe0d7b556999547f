"""The schedules of a store, at `refs/uwf/schedules/<name>`, in versions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from uwf_git import Store, Thread
from uwf_git.plugin import OK, WARNING, Check, Instance, NodeVersions, harmless, markdown
from uwf_schedules import LAST, SCHEDULES

_SCHEMA = {
    "title": "Schedule",
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "workflow": {"type": "string"},
        "prompt": {"type": "string"},
        "every": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
    },
    "required": ["name", "workflow", "prompt", "every"],
    "additionalProperties": False,
}


class Schedules(NodeVersions):
    """The schedules of one store; each is a payload of the schema above."""

    refs = SCHEDULES
    kept = "a schedule"
    schema = _SCHEMA

    @classmethod
    def page(cls, payload: Mapping[str, Any]) -> bytes:
        """README.md of a version."""
        text = (
            f"# Schedule {markdown.code(payload['name'])}\n\n"
            f"Starts {markdown.code(payload['workflow'])} every {payload['every']:g} s: "
            f"{markdown.inline(payload['prompt'])}\n"
        )
        return harmless(text).encode("utf-8")

    def every(self) -> list[Mapping[str, Any]]:
        """The newest version of each."""
        return [self.definition(self.current(name)) for name in self.names()]

    def due(self) -> list[Mapping[str, Any]]:
        """Those whose newest thread on this machine was started at least `every` seconds ago."""
        return [each for each in self.every() if self._last(each["name"]) + each["every"] <= time.time()]

    def _last(self, name: str) -> float:
        commit = self._repository.ref(LAST.prefix + name)
        return self._repository.commit(commit).time if commit is not None else 0


def start(instance: Instance, schedule: Mapping[str, Any]) -> Thread:
    """Start the thread of a schedule. Moves `refs/uwf/local/schedules/<name>`. Raises NotFound without its workflow."""
    thread = Store(instance.location).start(schedule["workflow"], schedule["prompt"])
    repository, ref = instance.store.repository, LAST.prefix + schedule["name"]
    repository.put_ref(ref, repository.ref(ref), repository.ref(f"refs/uwf/threads/{thread.id}"))
    return thread


def checks(instance: Instance) -> Iterator[Check]:
    """Whether the workflow of each schedule is registered."""
    schedules, known = Schedules(instance.store).every(), set(instance.registry.names())
    for schedule in schedules:
        if schedule["workflow"] not in known:
            missing = f"{schedule['name']} starts {schedule['workflow']}, which is not registered"
            yield Check("schedules", WARNING, missing, "uwf workflow put FILE registers it")
    yield Check("schedules", OK, f"{len(schedules)} set")
