"""What the agents that ask a model of the configuration have in common: which one, and the fields of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.errors import AgentFailed, Usage
from uwf_git.kit.arguments import read_options

if TYPE_CHECKING:
    from uwf_git.config.settings import Config

SCENARIO = "agent"
_NUMBERS = {"--temperature": float, "--max-tokens": int, "--turns": int}


class Asking(NamedTuple):
    """`model` is an alias of the configuration, None for its default; `extra` are fields of a request; `turns` how
    often the model is asked at the most, None where nothing was said."""

    model: str | None = None
    extra: tuple[tuple[str, int | float], ...] = ()
    turns: int | None = None


def read_asking(agent: str, usage: str, args: Sequence[str], known: Sequence[str]) -> Asking:
    """The options of such an agent, of which it has those `known`. Raises Usage."""
    given, rest = read_options(agent, usage, args, known)
    if rest:
        raise Usage(f"{agent} has no argument {rest[0]}", usage)
    asking = Asking()
    for name, value in given:
        if name == "--model":
            asking = asking._replace(model=value)
            continue
        try:
            number = _NUMBERS[name](value)
        except ValueError:
            raise Usage(f"{agent}: {name} {value!r} is no number", usage) from None
        if name == "--turns":
            asking = asking._replace(turns=int(number))
        else:
            field = name.removeprefix("--").replace("-", "_")
            asking = asking._replace(extra=(*asking.extra, (field, number)))
    return asking


def asked_model(agent: str, config: Config, alias: str | None) -> str:
    """The alias of the model to ask: the one named, else that of the configuration. Raises AgentFailed where there
    is none, Invalid where the configuration's leads nowhere."""
    from uwf_git.config.loaded import resolve_model

    if alias is not None:
        return alias
    model = resolve_model(config, SCENARIO)
    if model is None:
        raise AgentFailed(f"{agent} has no model to ask", "set one up with: uwf setup")
    return model.alias
