"""Beginning a conversation, plain or with a persona."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.errors import NotFound
from uwf_git.engine.conversation import DEFINED, DEFINITION, REPLY, REPLY_SCHEMA, conversation_payload
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store.versions import put_definition

if TYPE_CHECKING:
    from uwf_git.ext.crews.registry import Crews
    from uwf_git.format.personas import Crew, Persona
    from uwf_git.store.instance import Instance
    from uwf_git.store.versions import Version


def begin_conversation(instance: Instance, origin: Oid | None = None) -> ThreadId:
    """Start a conversation. `origin` is the head of the run before it. Makes `refs/uwf/threads/<new ULID>`."""
    version, workflow = _plain(instance)
    project = "" if origin is not None else instance.threads.projects.label_at(Path.cwd())
    return instance.threads.start(version, workflow, "A conversation.", origin=origin, project=project)


def begin_conversation_with(
    instance: Instance,
    crews: Crews,
    version: Version,
    crew: Crew,
    persona: Persona,
    origin: Oid | None = None,
) -> ThreadId:
    """The same with a persona of a crew's version."""
    from uwf_git.format.cbor import normalise

    payload = normalise(conversation_payload(crew.name, crew.format, crew.members))
    with instance.store.registering():
        workflow = put_definition(instance.store, payload, {REPLY: REPLY_SCHEMA})
    commit = crews.workflow_version(Oid(hex=version.commit), workflow)
    task = f"A conversation with {persona.name}."
    project = "" if origin is not None else instance.threads.projects.label_at(Path.cwd())
    return instance.threads.start(commit, workflow, task, persona=persona.id, origin=origin, project=project)


def _plain(instance: Instance) -> tuple[Oid, Hash]:
    with suppress(NotFound):  # compiling takes longer than all else before what was said is kept
        return instance.registry.commit_for(DEFINED), DEFINED
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import parse_source

    def include(path: str) -> bytes:
        raise NotFound(f"{path} does not exist")

    compiled = compile_source(parse_source(DEFINITION.encode(), "workflow.yaml", include))
    return instance.registry.write(compiled, []), compiled.hash
