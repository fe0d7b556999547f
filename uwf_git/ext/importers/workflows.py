"""Importing workflows: registered ones with versions, and those used by threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.importers import definitions
from uwf_git.ext.importers.intake import GROWN, HERE, NEW, ImportedWorkflow, Intake, stamp
from uwf_git.plugin import Compiled, Hash, Invalid, Oid, UwfError, layout


class Version(NamedTuple):
    """A source's Workflow node as a version here."""

    commit: Oid
    compiled: Compiled


class _Link(NamedTuple):
    """A version in a chain. `origin` is a rollback's target."""

    commit: Oid
    compiled: Compiled
    when: int
    origin: Oid | None = None


class Workflows:
    """Imports workflows of one kind. `compile_version` returns a source version's nodes and its Unix
    milliseconds; it may raise any UwfError."""

    def __init__(self, intake: Intake, compile_version: Callable[[str], tuple[Compiled, int]]) -> None:
        self._intake = intake
        self._compile = compile_version
        self._versions: dict[str, Version | str] = {}
        self.taken: list[ImportedWorkflow] = []

    def take(self, name: str, current: str, past: Sequence[str]) -> None:
        """Import a registered workflow with its versions, oldest first, ending with a rollback if an older
        one is current. Raises as `compile_version` for the current one."""
        chain: list[_Link] = []
        for source in past:
            try:
                compiled, when = self._compile(source)
            except UwfError as error:
                if source == current:
                    raise
                self._versions[source] = error.message
                self._intake.refuse("workflow", f"{name} {source}", error.message)
                continue
            commit = next((link.commit for link in chain if link.compiled.hash == compiled.hash), None)
            if commit is None:
                commit = self._write(chain, compiled, when)
            self._versions[source] = Version(commit, compiled)
        version = self._versions[current]
        assert isinstance(version, Version)
        if chain[-1].compiled.hash != version.compiled.hash:
            self._write(chain, version.compiled, chain[-1].when, version.commit)
        state = self._register(name, chain)
        self.taken.append(ImportedWorkflow(name, version.compiled.hash, current, len(chain), state))

    def _write(self, chain: list[_Link], compiled: Compiled, when: int, origin: Oid | None = None) -> Oid:
        parents = [*(link.commit for link in chain[-1:]), *([origin] if origin else [])]
        commit = self._intake.registry.write(compiled, parents, stamp(when))
        chain.append(_Link(commit, compiled, when, origin))
        return commit

    def _register(self, name: str, chain: list[_Link]) -> str:
        ref, tip = layout.WORKFLOWS + name, chain[-1].commit
        here = self._intake.repository.ref(ref)
        if here is None:
            self._intake.refs[ref] = tip
            return NEW
        if here == tip:
            return HERE
        if here in (link.commit for link in chain):
            self._intake.moves.append((ref, here, tip))
            return GROWN
        past = [item.version.hash for item in reversed(self._intake.instance.registry.history(name))]
        hashes = [link.compiled.hash for link in chain]
        if hashes[: len(past)] == past and len(hashes) > len(past):
            # The same versions in other commits, as `workflow put` makes them.
            tip = here
            for link in chain[len(past) :]:
                tip = self._intake.registry.write(link.compiled, [tip], stamp(link.when))
            self._intake.moves.append((ref, here, tip))
            return GROWN
        if not set(hashes) <= set(past):
            reason = "another workflow is registered here by that name; threads keep theirs"
            self._intake.refuse("workflow", name, reason)
        return HERE

    def version(self, source: str) -> Version:
        """Return a thread's version; unregistered ones get their own commit. Raises Invalid."""
        version = self._versions.get(source)
        if version is None:
            try:
                compiled, when = self._compile(source)
                version = Version(self._intake.registry.write(compiled, [], stamp(when)), compiled)
            except UwfError as error:
                version = error.message
            self._versions[source] = version
        if isinstance(version, str):
            raise Invalid(f"its workflow {source}: {version}")
        return version


def of_nodes(intake: Intake) -> Workflows:
    """Import workflows that are nodes."""

    def compile_node(node: str) -> tuple[Compiled, int]:
        content = intake.old(Hash(node), "its workflow is")
        return definitions.compiled(content.payload, schema, intake.extras.add), content.timestamp

    def schema(node: Hash) -> Any:
        return intake.old(node, "its schema is").payload

    return Workflows(intake, compile_node)


def take_registered(
    intake: Intake, workflows: Workflows, registered: Mapping[str, Hash], nodes: Mapping[str, Sequence[Hash]]
) -> None:
    """Import registered workflows. `nodes` are the Workflow nodes by name, oldest first."""
    for name, current in sorted(registered.items()):
        try:
            payload = intake.old(current, "what is registered is").payload
            if not definitions.is_workflow(payload):
                raise Invalid(f"node {current}, which is registered, is not a Workflow")
            if payload["name"] != name:
                raise Invalid(f"node {current}, which is registered, is called {payload['name']!r}")
            workflows.take(name, current, nodes[name])
        except UwfError as error:
            intake.refuse("workflow", name, error.message)
