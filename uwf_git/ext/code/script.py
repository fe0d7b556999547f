"""Workflow scripts: a file that begins with its `meta`, and whose code asks agents until it returns.

    export const meta = { name: "review", description: "…" };      meta = {"name": "review", "description": "…"}
    return await agent("Review it");                               async def run(agent):
                                                                       return await agent("Review it")

Its `meta` is a literal, which is read without running anything. A script is a code workflow whose thread has one step,
its result; the code runs from its beginning whenever that is tried, so calls that were answered are found again.
"""

from __future__ import annotations

import ast
import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from uwf_git.ext.code import python
from uwf_git.ext.code.syntax import Breaches, check_meta, tolerated
from uwf_git.plugin import (
    PYTHON,
    CastRole,
    SourceMark,
    known_agent,
    name_problem,
    one_line,
    overriding_options,
)

if TYPE_CHECKING:
    from uwf_git.ext.code.javascript import Script as JavaScript
    from uwf_git.plugin import Config, Workflow

_ASKED = "is asked by the script"
_NAMED = f"{_ASKED} under this name"
"""The description of a role that stands for an agent type or model that a workflow script names."""
AGENT = "agent"
"""The role of the agents that a script names no type of."""
GLOBALS = ("agent", "parallel", "pipeline", "phase", "log", "args", "budget", "workflow")
_MOST_WARNED_OF = 20  # agent types
_ANYWHERE = re.compile(rb"^export\s+const\s+meta\b", re.M)
_DESCRIPTOR = re.compile(rb"^export\s+(?:const|let|var)\s+descriptor\b", re.M)
_NAMES = """
    __future__ asyncio bisect collections copy dataclasses decimal enum fractions functools heapq html itertools json
    math operator re statistics string textwrap types typing unicodedata
"""
_MODULES = frozenset(_NAMES.split())
"""What a script in Python may import: nothing that has a clock, randomness or files."""
_INSTEAD = "a script asks agents for what it needs"
_SCHEMA = {"type": "object", "properties": {}}


def is_script(text: bytes, language: str) -> bool:
    """Return whether a file of code is a workflow script."""
    text = text.removeprefix(codecs.BOM_UTF8)
    if language != PYTHON:
        return _ANYWHERE.search(text) is not None and _DESCRIPTOR.search(text) is None
    try:
        names = {name for name, _ in _bound(ast.parse(text))}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return "meta" in names and not names & {"descriptor", "workflow"}


def script_of(text: bytes, language: str) -> PythonScript | JavaScript:
    """Return the syntax tree of a script. Raises UwfError without the parser."""
    if language == PYTHON:
        return PythonScript(text)
    from uwf_git.ext.code.javascript import Script

    return Script(text)


def tolerance_of(text: bytes, language: str) -> Callable[[int], int]:
    """Return the function from the calls that a script asked to how many may fail, by its `meta`. Raises UwfError
    without the parser."""
    meta: Any = {}
    if b"tolerates" in text:
        script = script_of(text, language)
        script.check(Breaches())
        meta = script.meta
    return lambda asked: tolerated(meta, asked)


def descriptor_of(meta: Mapping[str, Any], types: Iterable[str], otherwise: str) -> dict[str, Any]:
    """Return a script's descriptor. Its roles are an agent and each agent type or model that it names, so that
    agentOverrides can say who plays them. A `name` that no workflow can have is replaced by `otherwise`."""
    name, description = meta.get("name"), meta.get("description")
    titles = [phase.get("title") for phase in meta.get("phases") or () if isinstance(phase, dict)]
    phases = ", ".join(title for title in titles if isinstance(title, str))
    about = _ASKED + (f"; its phases: {phases}" if phases else "")
    roles = {AGENT: {"description": about, "schema": _SCHEMA}}
    for kind in types:
        if kind != AGENT and not kind.startswith(("$", "__")) and not name_problem(kind):
            roles[kind] = {"description": _NAMED, "schema": _SCHEMA}
    return {
        "name": name if isinstance(name, str) and not name_problem(name) else otherwise,
        "description": description,
        "roles": roles,
        **({"budget": meta["budget"]} if "budget" in meta else {}),
    }


def start_warnings(workflow: Workflow, prompt: str, config: Config | None) -> Iterator[str]:
    """Yield warnings for a thread of a script: of a prompt that seems to be meant as JSON for its `args`, and of the
    agent types and models that it names and `config` has no agent for."""
    name, roles = workflow.name, workflow.roles
    if not any(role.description.startswith(_ASKED) for role in roles.values()):
        return
    if prompt.lstrip().startswith(("[", "{")):
        try:
            json.loads(prompt)
        except (ValueError, RecursionError) as error:
            yield f"the prompt is not JSON, so args of script {name} is its text: {error}"
    unmapped = [
        role
        for role, definition in roles.items()
        if config is not None
        and definition.description == _NAMED
        and overriding_options(config, CastRole(name, role))[0] is None
        and known_agent(config, role) is None
    ]
    if unmapped:
        yield (
            f"script {name} asks {', '.join(unmapped[:_MOST_WARNED_OF])}, for which no agent is configured: the"
            f" default one answers — uwf config set agentOverrides.{name}.{unmapped[0]} AGENT"
        )


class PythonScript(python.Module):
    """A script in Python: a literal `meta`, and `async def run` with parameters of GLOBALS."""

    def __init__(self, source: bytes) -> None:
        super().__init__(source)
        self.meta: Any = None
        self.types: list[str] = []
        for node in ast.walk(self._root):
            match node:
                case ast.keyword(arg="agent_type" | "model", value=ast.Constant(value=str(name))):
                    self.types.append(name)

    def _check_import(self, node: ast.AST, name: str, breaches: Breaches) -> None:
        if name.partition(".")[0] not in _MODULES:
            shown = one_line(name, 60)
            breaches.add(self.mark(node), "foreign-import", f'a script cannot import "{shown}"', _INSTEAD)

    def _check_exports(self, breaches: Breaches) -> None:
        top = self._top["meta"]
        try:
            self.meta = ast.literal_eval(top)
        except (ValueError, TypeError, MemoryError, RecursionError):
            breaches.add(
                self.mark(top), "bad-meta", "meta is not a literal", 'meta = {"name": …, "description": …}'
            )
        else:
            check_meta(self.meta, self.mark(top), breaches)
        run = self._top.get("run")
        if not isinstance(run, ast.AsyncFunctionDef):
            hint = "async def run(agent, parallel, …): … return"
            breaches.add(
                self.mark(run) if run is not None else SourceMark(1, 1),
                "missing-export",
                "has no async run",
                hint,
            )
            return
        arguments = run.args
        for posonlyarg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if posonlyarg.arg not in GLOBALS:
                known = ", ".join(GLOBALS)
                breaches.add(
                    self.mark(posonlyarg),
                    "unknown-key",
                    f"run has a parameter {posonlyarg.arg!r}",
                    f"known: {known}",
                )


def _bound(tree: ast.Module) -> Iterable[tuple[str, ast.AST]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, node.value
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
