"""The library for extensions: all that they import of uwf-git, besides `uwf_git` and `uwf_git.kit`.

`plugin.pyi` is the list of its names, each with the place that it is loaded from when it is used; `_name` there is a
name that is called otherwise where it comes from. docs/reference/plugin.md is made of it. Names of commands and pages
are the command's: they are for extensions that add any, and load nothing before. No module of the core or the command
imports this one. The rows that a manifest is made of are here at once, since every call reads manifests.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from uwf_git.base.extensions import AgentProgram as AgentProgram
from uwf_git.base.extensions import Command as Command
from uwf_git.base.extensions import ConfigSection as ConfigSection
from uwf_git.base.extensions import Dispatcher as Dispatcher
from uwf_git.base.extensions import Endpoint as Endpoint
from uwf_git.base.extensions import Export as Export
from uwf_git.base.extensions import Extension as Extension
from uwf_git.base.extensions import Pages as Pages
from uwf_git.base.extensions import RefKind as RefKind
from uwf_git.base.extensions import Runner as Runner


@cache
def _stub() -> str:
    with open(f"{__file__.removesuffix('.py')}.pyi", encoding="utf-8") as file:
        return file.read()


def __getattr__(name: str) -> Any:
    stub = "" if name.startswith("_") else _stub()  # each import asks for `__path__`
    end = max(stub.find(f" as {name}\n"), stub.find(f" as _{name}\n"))
    if end < 0:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _, module, _, attribute = stub[stub.rfind("\n", 0, end) + 1 : end].split()
    loaded = import_module(module)
    return (
        getattr(loaded, attribute) if hasattr(loaded, attribute) else import_module(f"{module}.{attribute}")
    )


def __dir__() -> list[str]:
    rows = (line.split() for line in _stub().splitlines() if line.startswith("from "))
    return sorted(row[-1].removeprefix("_") for row in rows)
