"""The first engine's registered code workflows, in one file each.

    workflow.yaml                       workflows: {<name>: {hash, timestamp, history: [{hash, timestamp}]}}
    bundles/<hash>.esm.js, <hash>.yaml  a code workflow, named by the XXH64 of its bytes, and its descriptor

No code is run: the descriptor is read from its file. Importing doesn't trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from uwf_git.ext.importers.folder import Folder, Source
from uwf_git.ext.importers.intake import ImportedWorkflow, Intake
from uwf_git.ext.importers.storage import LATEST, document
from uwf_git.ext.importers.workflows import Workflows
from uwf_git.plugin import (
    JAVASCRIPT,
    MAX_CODE_BYTES,
    Compiled,
    Invalid,
    UwfError,
    compiler_of,
    file_id,
    is_hash,
    name_problem,
)

_CODE, _DESCRIPTOR = ".esm.js", ".yaml"


class _Registered(NamedTuple):
    """A workflow: the current file, and all versions, oldest first, with Unix milliseconds."""

    current: str
    versions: tuple[tuple[int, str], ...]


class OldBundles(Source):
    """The first engine's part of a storage root."""

    def __init__(self, root: Folder) -> None:
        super().__init__()
        self.workflows: dict[str, _Registered] = {}
        self.folder = self._folder(root, "bundles")
        try:
            self._register(document(root, "workflow.yaml"))
        except UwfError as error:
            self._refuse("file", "workflow.yaml", error.message)

    @property
    def is_empty(self) -> bool:
        return self.folder is None and not self.workflows and not self.problems

    def _register(self, value: Mapping[str, Any]) -> None:
        workflows = value.get("workflows")
        for name, entry in workflows.items() if isinstance(workflows, dict) else ():
            history = entry.get("history") if isinstance(entry, dict) else None
            versions = [_version(past) for past in history] if isinstance(history, list) else []
            current = _version(entry)
            if problem := name_problem(name):
                self._refuse("workflow", name, f"its name {problem}")
            elif current is None:
                self._refuse("workflow", name, "what is registered for it is not a bundle")
            else:
                ordered = sorted({version for version in (*versions, current) if version is not None})
                self.workflows[name] = _Registered(current[1], tuple(ordered))


def _version(entry: Any) -> tuple[int, str] | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("hash"), str) or not is_hash(entry["hash"]):
        return None
    time = entry.get("timestamp")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= LATEST:
        time = 0
    return int(time), entry["hash"]


def take_bundles(intake: Intake, bundles: OldBundles) -> list[ImportedWorkflow]:
    """Import the registered code workflows."""
    taken = []
    for name, registered in sorted(bundles.workflows.items()):
        times = {bundle: time for time, bundle in registered.versions}

        def compile_version(
            bundle: str, name: str = name, times: dict[str, int] = times
        ) -> tuple[Compiled, int]:
            return _compiled(bundles, name, bundle), times[bundle]

        workflows = Workflows(intake, compile_version)
        try:
            workflows.take(name, registered.current, [bundle for _, bundle in registered.versions])
        except UwfError as error:
            intake.refuse("workflow", name, error.message)
        taken += workflows.taken
    return taken


def _compiled(bundles: OldBundles, name: str, bundle: str) -> Compiled:
    from uwf_git.plugin import yaml12

    if bundles.folder is None:
        raise Invalid("there is no folder bundles/")
    text = bundles.folder.read(bundle + _CODE, MAX_CODE_BYTES)
    if (actual := file_id(text)) != bundle:
        raise Invalid(f"bundle {bundle} is damaged: its hash is {actual}")
    descriptor = yaml12.load(bundles.folder.read(bundle + _DESCRIPTOR, MAX_CODE_BYTES), bundle + _DESCRIPTOR)
    return compiler_of(JAVASCRIPT).compile_described(text, bundle + _CODE, descriptor, name)
