"""Features on top of the core, a folder each. The core and the command know them through this module alone.

An extension is one folder with all of one feature. Its `__init__.py` holds `EXTENSION`, which is data: whatever has to
be imported for a feature is named as `module:attribute`, and loaded when it is used. `OURS` has a line for each that
ships; others are installed packages with an entry point in the group `uwf.extensions`, asked only when a name isn't
known here or `--help` wants them all, so that starting costs nothing.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

OURS = (
    "agents",
    "builtin",
    "crews",
    "code",
    "evaluation",
    "fleet",
    "web",
    "mcp",
    "traces",
    "importers",
)
ENTRY_POINTS = "uwf.extensions"


class Command(NamedTuple):
    """A command or a group of commands that an extension adds. `path` is the words after `uwf`: `fleet`, or
    `workflow trust` in a group of the core; `where` a `click.Command`; `line` and `section` are for the help of its
    group."""

    path: str
    where: str
    line: str
    section: str = ""


class Extension(NamedTuple):
    """A feature: the commands that it adds."""

    name: str
    commands: tuple[Command, ...] = ()


@cache
def ours() -> tuple[Extension, ...]:
    """The extensions that ship, in the order of `OURS`."""
    return tuple(import_module(f"{__name__}.{name}").EXTENSION for name in OURS)


@cache
def others() -> tuple[Extension, ...]:
    """The extensions of installed packages, by their names. Raises whatever the import of one raises."""
    from importlib.metadata import entry_points

    return tuple(each.load() for each in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name))


def load(where: str) -> Any:
    """What `module:attribute` names."""
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)


def commands(group: str) -> dict[str, Command]:
    """The commands that extensions add to a group, by their names there; `group` is "" for `uwf` itself."""
    return _by_group().get(group, {})


@cache
def _by_group() -> dict[str, dict[str, Command]]:
    found: dict[str, dict[str, Command]] = {}
    for extension in (*ours(), *others()):
        for command in extension.commands:
            group, _, name = command.path.rpartition(" ")
            found.setdefault(group, {})[name] = command
    return found
