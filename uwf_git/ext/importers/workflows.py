"""Importing workflows: registered ones with versions, and those used by threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.api.compilers import compiler
from uwf_git.base.errors import Invalid, NotFound, UwfError
from uwf_git.ext.importers import definitions
from uwf_git.ext.importers.folder import Folder
from uwf_git.ext.importers.intake import GROWN, HERE, NEW, ImportedWorkflow, Intake, stamp
from uwf_git.format import cbor
from uwf_git.format.builtin import META
from uwf_git.format.ids import Hash, name_problem
from uwf_git.format.kinds import parse_workflow
from uwf_git.format.types import CODE
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.workflow.compile import Compiled, InvalidWorkflow


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
    """Imports workflows of one kind. `made` returns a source version's nodes and its Unix milliseconds; it
    may raise any UwfError."""

    def __init__(self, intake: Intake, made: Callable[[str], tuple[Compiled, int]]) -> None:
        self._intake = intake
        self._made = made
        self._versions: dict[str, Version | str] = {}
        self.taken: list[ImportedWorkflow] = []

    def take(self, name: str, current: str, past: Sequence[str]) -> None:
        """Import a registered workflow with its versions, oldest first, ending with a rollback if an older
        one is current. Raises as `made` for the current one."""
        chain: list[_Link] = []
        for source in past:
            try:
                made, when = self._made(source)
            except UwfError as error:
                if source == current:
                    raise
                self._versions[source] = error.message
                self._intake.refuse("workflow", f"{name} {source}", error.message)
                continue
            known = next((link.commit for link in chain if link.compiled.hash == made.hash), None)
            if known is None:
                known = self._write(chain, made, when)
            self._versions[source] = Version(known, made)
        version = self._versions[current]
        assert isinstance(version, Version)
        if chain[-1].compiled.hash != version.compiled.hash:
            self._write(chain, version.compiled, chain[-1].when, version.commit)
        state = self._register(name, chain)
        self.taken.append(ImportedWorkflow(name, version.compiled.hash, current, len(chain), state))

    def _write(self, chain: list[_Link], made: Compiled, when: int, origin: Oid | None = None) -> Oid:
        parents = [*(link.commit for link in chain[-1:]), *([origin] if origin else [])]
        commit = self._intake.registry.write(made, parents, stamp(when))
        chain.append(_Link(commit, made, when, origin))
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
        past = [each.version.hash for each in reversed(self._intake.instance.registry.history(name))]
        hashes = [link.compiled.hash for link in chain]
        if hashes[: len(past)] == past and len(hashes) > len(past):
            # The same versions in other commits, as another release of uwf makes them.
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
        known = self._versions.get(source)
        if known is None:
            try:
                made, when = self._made(source)
                known = Version(self._intake.registry.write(made, [], stamp(when)), made)
            except UwfError as error:
                known = error.message
            self._versions[source] = known
        if isinstance(known, str):
            raise Invalid(f"its workflow {source}: {known}")
        return known


def of_nodes(intake: Intake, bundles: Folder | None) -> Workflows:
    """Import workflows that are nodes. `bundles` has code workflows' files."""

    def made(node: str) -> tuple[Compiled, int]:
        content = intake.old(Hash(node), "its workflow is")
        if content.type == CODE:
            return _bundle(intake, content.payload, bundles), content.timestamp
        return definitions.compiled(content.payload, schema, intake.extras.add), content.timestamp

    def schema(node: Hash) -> Any:
        return intake.old(node, "its schema is").payload

    return Workflows(intake, made)


def _bundle(intake: Intake, payload: Any, bundles: Folder | None) -> Compiled:
    from uwf_git.workflow.code_workflow import MAX_BYTES, name_in_root, stored_code

    if found := intake.store.problems(CODE, payload):
        raise Invalid(f"its node is not a Bundle: {found[0]}")
    payload = cbor.normalise(payload)
    workflow = parse_workflow(payload)
    if problem := name_problem(workflow.name):
        raise Invalid(f"its name {problem}")
    name = name_in_root(workflow)
    if bundles is None or not bundles.has(name):
        raise NotFound(f"there is no bundles/{name}, which is its code")
    text = bundles.read(name, MAX_BYTES)
    schemas = {}
    for role in workflow.roles.values():
        schema = intake.old(role.schema, f"the schema of {role.name} is")
        if schema.type != META:
            raise Invalid(f"node {role.schema}, the schema of {role.name}, is not a schema")
        schemas[role.schema] = schema.payload
    kept = stored_code(payload, schemas, text)
    assert workflow.code is not None
    language = workflow.code.language
    if breaches := compiler(language).breaches_of(text, language):
        raise InvalidWorkflow(name, breaches)
    return kept


def take_registered(
    intake: Intake, workflows: Workflows, registered: Mapping[str, Hash], found: Mapping[str, Sequence[Hash]]
) -> None:
    """Import registered workflows. `found` are the Workflow nodes by name, oldest first."""
    for name, current in sorted(registered.items()):
        try:
            own = intake.old(current, "what is registered is").payload
            if not definitions.is_workflow(own):
                raise Invalid(f"node {current}, which is registered, is not a Workflow")
            if own["name"] != name:
                raise Invalid(f"node {current}, which is registered, is called {own['name']!r}")
            workflows.take(name, current, found[name])
        except UwfError as error:
            intake.refuse("workflow", name, error.message)
