"""The workflows of a source: registered ones with their versions, and those that only threads use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uwf_git.errors import Invalid, UwfError
from uwf_git.git.repository import Oid
from uwf_git.migration import definitions
from uwf_git.migration.intake import Intake, stamp
from uwf_git.migration.result import GROWN, HERE, NEW, TakenWorkflow
from uwf_git.store import layout
from uwf_git.values.ids import Hash
from uwf_git.workflow.compile import Compiled


class Version(NamedTuple):
    """A Workflow node of the source as a version here."""

    commit: Oid
    compiled: Compiled


class Workflows:
    """Takes workflows in. `taken` are those that are registered."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._versions: dict[Hash, Version | str] = {}
        self.taken: list[TakenWorkflow] = []

    def take(self, registered: Mapping[str, Hash], found: Mapping[str, list[tuple[int, Hash]]]) -> None:
        """Takes the registered workflows by their names, with every version in `found`: the Workflow nodes of a name,
        each after its time in Unix milliseconds."""
        for name, current in sorted(registered.items()):
            try:
                own = self._intake.old(current, "what is registered is").payload
                if not definitions.is_workflow(own):
                    raise Invalid(f"node {current}, which is registered, is no Workflow")
                if own["name"] != name:
                    raise Invalid(f"node {current}, which is registered, is called {own['name']!r}")
                self._take(name, current, found[name])
            except UwfError as error:
                self._intake.refuse("workflow", name, error.message)

    def _take(self, name: str, current: Hash, found: list[tuple[int, Hash]]) -> None:
        """Makes the versions of a workflow: in the order of their times, each once, and at the end a way back where an
        older one is registered."""
        chain: list[tuple[Oid, Hash]] = []
        for when, node in found:
            try:
                made = self._compile(node)
            except UwfError as error:
                if node == current:
                    raise
                self._versions[node] = error.message
                self._intake.refuse("workflow", f"{name} {node}", error.message)
                continue
            known = next((commit for commit, hash_ in chain if hash_ == made.hash), None)
            if known is None:
                known = self._intake.registry.write(made, [commit for commit, _ in chain[-1:]], stamp(when))
                chain.append((known, made.hash))
            self._versions[node] = Version(known, made)
        version = self._versions[current]
        assert isinstance(version, Version)
        if chain[-1][1] != version.compiled.hash:
            back = [chain[-1][0], version.commit]
            tip = self._intake.registry.write(version.compiled, back, stamp(found[-1][0]))
            chain.append((tip, version.compiled.hash))
        state = self._register(name, chain)
        self.taken.append(TakenWorkflow(name, version.compiled.hash, current, len(chain), state))

    def _register(self, name: str, chain: list[tuple[Oid, Hash]]) -> str:
        """Puts a workflow's ref at the newest version, where that goes on from the one that is here."""
        ref, tip = layout.WORKFLOWS + name, chain[-1][0]
        here = self._intake.repository.ref(ref)
        if here is None:
            self._intake.refs[ref] = tip
            return NEW
        if here == tip:
            return HERE
        if here in (commit for commit, _ in chain):
            self._intake.moves.append((ref, here, tip))
            return GROWN
        past = self._intake.instance.registry.history(name)
        if not {hash_ for _, hash_ in chain} <= {each.version.hash for each in past}:
            reason = "another workflow is registered here by that name; threads keep theirs"
            self._intake.refuse("workflow", name, reason)
        return HERE

    def _compile(self, node: Hash) -> Compiled:
        payload = self._intake.nodes.get(node).payload
        schema = lambda hash_: self._intake.old(hash_, "its schema is").payload  # noqa: E731
        return definitions.compiled(payload, schema, self._intake.extras.add)

    def version(self, node: Hash) -> Version:
        """The version that a thread runs on; one that isn't registered gets a commit of its own. Raises Invalid."""
        known = self._versions.get(node)
        if known is None:
            try:
                when = self._intake.old(node, "its workflow is").timestamp
                made = self._compile(node)
                known = Version(self._intake.registry.write(made, [], stamp(when)), made)
            except UwfError as error:
                known = error.message
            self._versions[node] = known
        if isinstance(known, str):
            raise Invalid(f"its workflow {node}: {known}")
        return known
