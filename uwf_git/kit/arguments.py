"""The options that an agent takes before the thread's id: `--name VALUE`, `--name=VALUE`, and flags."""

from __future__ import annotations

from collections.abc import Sequence

from uwf_git.errors import Usage


def read_options(
    agent: str, usage: str, args: Sequence[str], valued: Sequence[str], flags: Sequence[str] = ()
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The options at the front of the arguments, in their order, a flag with "" for a value; and what follows them,
    or `--`. Raises Usage for an option that isn't known or lacks its value."""
    found: list[tuple[str, str]] = []
    rest = list(args)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        name, equals, value = rest.pop(0).partition("=")
        if name == "--" and not equals:
            break
        if name in flags and not equals:
            found.append((name, ""))
            continue
        if name not in valued:
            raise Usage(f"{agent} has no option {name}", usage)
        if not equals:
            if not rest:
                raise Usage(f"{agent}: {name} needs a value", usage)
            value = rest.pop(0)
        found.append((name, value))
    return found, tuple(rest)
