"""What a provider's cache of prompts has of a loop of four roles, by the model agents that ship. Nothing is timed: the
requests are the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rows import Row, Size
from stores import Lab

from uwf_git.store.instance import Instance

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "doubles"))
import cached_loop
from model_server import serving

_KINDS = (
    ("none", "of beginnings", cached_loop.by_prefix),
    ("anthropic", "of marked beginnings", cached_loop.by_marks),
)
_UNCACHED = 15  # percent


def looping(folder: Path, _size: Size) -> Iterator[Row]:
    """The input tokens of all rounds but the first that aren't in a cache."""
    for agent in ("uwf-builtin", "uwf-llm"):
        for marks, named, cached in _KINDS:
            project = folder / f"{agent}-{marks}"
            location = Lab(folder / f"{agent}-{marks}-root").location
            cached_loop.files(project)
            with serving(cached_loop.script()) as server:
                (location.root / "config.yaml").write_text(
                    f"providers: {{here: {{baseUrl: '{server.openai_url}', cacheMarks: {marks}}}}}\n"
                    "models: {small: {provider: here, name: m}}\ndefaultModel: small\n"
                )
                requests = cached_loop.run(Instance(location, {}), agent, project, server.asked)
            share = cached_loop.share(requests, cached)
            what = f"input of rounds 2 to 6 that no cache {named} has, {agent}"
            yield Row(what, 100 * (1 - share), "%", None, _UNCACHED)
