"""The default agent of conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.ext.crews.conversation import PERSONA, TALK
from uwf_git.plugin import Invalid, conversations

if TYPE_CHECKING:
    from uwf_git.ext.crews.entry import Entry
    from uwf_git.plugin import Instance

BUILTIN = "uwf-builtin"


def talker(instance: Instance, entry: Entry | None = None) -> str | None:
    """Return the default agent, None for the configured one. Raises Invalid without any."""
    from uwf_git.plugin import REHEARSE, CastRole, overriding_options, resolve_model

    config = instance.config
    role = CastRole(conversations.CHAT, conversations.ASSISTANT)
    if entry is not None:
        role = CastRole(f"{entry.crew.name}/{TALK}", PERSONA, entry.member.persona.id)
    if overriding_options(config, role)[0] is not None:
        return None
    if resolve_model(config, "agent") is not None:
        return BUILTIN
    if config.models:
        from uwf_git.plugin import model_alias

        model_alias("uwf chat", config, None)
    if config.default_agent in (None, REHEARSE, REHEARSE.removeprefix("uwf-")):
        raise Invalid(
            "there is no model to talk with",
            "set one up with: uwf setup; or name an agent: uwf chat --agent NAME",
        )
    return None
