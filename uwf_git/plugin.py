"""The library for extensions: all that they import of uwf-git, besides `uwf_git` and `uwf_git.kit`.

`SECTIONS` is the page of its names: for each section the modules that names are loaded from, when they are used, and a
line for each name. No module of the core imports this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from uwf_git.base.extensions import AgentProgram as AgentProgram
    from uwf_git.base.extensions import Command as Command
    from uwf_git.base.extensions import Dispatcher as Dispatcher
    from uwf_git.base.extensions import Export as Export
    from uwf_git.base.extensions import Extension as Extension
    from uwf_git.base.extensions import Pages as Pages
    from uwf_git.base.extensions import RefKind as RefKind


SECTIONS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "The row of an extension": {
        "uwf_git.base.extensions": {
            "AgentProgram": "an agent and its command",
            "Command": "a command or group of commands",
            "Dispatcher": "a way to step many threads, chosen by an option",
            "Export": "a form of `uwf export`",
            "Extension": "all that an extension contributes: its `EXTENSION`",
            "Pages": "pages in `uwf web`",
            "RefKind": "a kind of ref below `refs/uwf/`",
        },
    },
}

_MODULES = {
    name: module for modules in SECTIONS.values() for module, names in modules.items() for name in names
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
