"""An agent's own arguments, before the thread's id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uwf_git.base.errors import Usage

_NUMBERS = {"--temperature": float, "--max-tokens": int, "--turns": int}


def read_options(
    agent: str, usage: str, args: Sequence[str], valued: Sequence[str], flags: Sequence[str] = ()
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the options at the front of `args`, in order, and the remaining arguments (or those after `--`).
    `valued` options take a value; `flags` get "". Raises Usage for an unknown option or a missing value."""
    options: list[tuple[str, str]] = []
    rest = list(args)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        name, equals, value = rest.pop(0).partition("=")
        if name == "--" and not equals:
            break
        if name in flags and not equals:
            options.append((name, ""))
            continue
        if name not in valued:
            raise Usage(f"{agent} has no option {name}", usage)
        if not equals:
            if not rest:
                raise Usage(f"{agent}: {name} needs a value", usage)
            value = rest.pop(0)
        options.append((name, value))
    return options, tuple(rest)


class ModelArguments(NamedTuple):
    """The arguments of an agent that calls a model: `model` is a configured alias, None for the default;
    `extra` are fields of each request; `turns` is the maximum number of requests."""

    model: str | None = None
    extra: tuple[tuple[str, int | float], ...] = ()
    turns: int | None = None


def read_asking(agent: str, usage: str, args: Sequence[str], known: Sequence[str]) -> ModelArguments:
    """Parse the options `known`, out of --model, --temperature, --max-tokens and --turns. Raises Usage."""
    options, rest = read_options(agent, usage, args, known)
    if rest:
        raise Usage(f"{agent} has no argument {rest[0]}", usage)
    asking = ModelArguments()
    for name, value in options:
        if name == "--model":
            asking = asking._replace(model=value)
            continue
        try:
            number = _NUMBERS[name](value)
        except ValueError:
            raise Usage(f"{agent}: {name} {value!r} is not a number", usage) from None
        if name == "--turns":
            asking = asking._replace(turns=int(number))
        else:
            field = name.removeprefix("--").replace("-", "_")
            asking = asking._replace(extra=(*asking.extra, (field, number)))
    return asking
