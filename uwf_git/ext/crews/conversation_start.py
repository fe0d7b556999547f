"""Beginning a conversation, plain or with a persona."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.ext.crews.conversation import conversation_payload
from uwf_git.plugin import Hash, NotFound, Oid, StartNode, ThreadId, conversations, put_definition

if TYPE_CHECKING:
    from uwf_git.ext.crews.crew_node import Crew
    from uwf_git.ext.crews.registry import Crews
    from uwf_git.plugin import Instance, Persona, RegisteredVersion


def begin_conversation(instance: Instance, origin: Oid | None = None) -> ThreadId:
    """Start a conversation. `origin` is the head of the run before it. Makes `refs/uwf/threads/<new ULID>`."""
    version, workflow = _plain(instance)
    project = "" if origin is not None else instance.threads.projects.label_at(Path.cwd())
    return instance.threads.start(
        version, StartNode(workflow, "A conversation."), origin=origin, project=project
    )


def begin_conversation_with(
    instance: Instance,
    crews: Crews,
    version: RegisteredVersion,
    crew: Crew,
    persona: Persona,
    origin: Oid | None = None,
) -> ThreadId:
    """The same with a persona of a crew's version."""
    from uwf_git.plugin import normalise_payload

    payload = normalise_payload(conversation_payload(crew.name, crew.format, crew.members))
    with instance.store.registering():
        workflow = put_definition(instance.store, payload, {conversations.REPLY: conversations.REPLY_SCHEMA})
    commit = crews.workflow_version(Oid(hex=version.commit), workflow)
    task = f"A conversation with {persona.name}."
    project = "" if origin is not None else instance.threads.projects.label_at(Path.cwd())
    return instance.threads.start(
        commit, StartNode(workflow, task, persona=persona.id), origin=origin, project=project
    )


def _plain(instance: Instance) -> tuple[Oid, Hash]:
    with suppress(NotFound):  # compiling takes longer than all else before what was said is kept
        return instance.registry.commit_for(conversations.DEFINED), conversations.DEFINED
    from uwf_git.plugin import compile_source, parse_source

    def include(path: str) -> bytes:
        raise NotFound(f"{path} does not exist")

    compiled = compile_source(parse_source(conversations.DEFINITION.encode(), "workflow.yaml", include))
    return instance.registry.write(compiled, []), compiled.hash
