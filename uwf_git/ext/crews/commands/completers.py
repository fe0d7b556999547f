"""Completions for crews."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from uwf_git.ext.crews.registry import Crews
from uwf_git.plugin import Invocation, completers


def _personas(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    crews = Crews(invocation.instance.store)
    for name in crews.names():
        if name.startswith(incomplete):
            yield name, ""
        if f"{name}/".startswith(incomplete) or incomplete.startswith(f"{name}/"):
            for member in crews.crew(crews.current(name).hash).members:
                if (address := f"{name}/{member.persona.id}").startswith(incomplete):
                    yield address, member.persona.title


complete_persona = partial(completers.offer, _personas)
