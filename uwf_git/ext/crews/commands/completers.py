"""Completions for crews."""

from __future__ import annotations

from collections.abc import Iterable

from uwf_cli.completers import offering
from uwf_cli.invocation import Invocation

from uwf_git.ext.crews.registry import Crews


def _personas(invocation: Invocation, incomplete: str) -> Iterable[tuple[str, str]]:
    crews = Crews(invocation.instance.store)
    for name in crews.names():
        if name.startswith(incomplete):
            yield name, ""
        if f"{name}/".startswith(incomplete) or incomplete.startswith(f"{name}/"):
            for each in crews.crew(crews.current(name).hash).members:
                if (address := f"{name}/{each.persona.id}").startswith(incomplete):
                    yield address, each.persona.title


complete_persona = offering(_personas)
