"""The layers are as docs/architecture.md says: imports go one way, the moderator knows neither git nor the
network, the library doesn't know its command."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import REPOSITORY

SOURCES = {
    ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): path
    for package, folder in (
        ("uwf_git", REPOSITORY / "uwf_git"),
        ("uwf_cli", REPOSITORY / "cli" / "uwf_cli"),
    )
    for path in sorted(folder.rglob("*.py"))
}
PURE = ("expression", "template", "moderator")
IMPURE = {"pygit2", "sqlite3", "httpx", "socket", "subprocess", "urllib", "ssl"}


def layers() -> list[set[str]]:
    """The rows of the table in docs/architecture.md, lowest first: the modules of each."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("## The layers")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if re.match(r"\| *\d+ *\|", line)]
    return [{_module(name) for name in re.findall(r"`([^`]+)`", row)} for row in rows]


def _module(name: str) -> str:
    name = name.rstrip("/").replace("/", ".")
    return name if name.split(".")[0] == "uwf_cli" else f"uwf_git.{name}"


def imports(module: str) -> set[str]:
    """Every module that a module imports, at its top, inside functions or for its types only."""
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    return set(_imported(tree)) - {module}


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports name the whole module"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in SOURCES else node.module


def test_every_module_stands_in_one_layer() -> None:
    placed = [module for layer in layers() for module in layer]
    assert len(placed) == len(set(placed))
    packages = {"uwf_git", "uwf_git.workflow"}  # the first holds the version, the second nothing
    assert set(placed) | packages == set(SOURCES)


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_a_module_imports_only_from_its_own_layer_and_those_below(module: str) -> None:
    allowed = {"uwf_git"}
    for layer in layers():
        allowed |= layer
        if module in layer:
            break
    above = {name for name in imports(module) if name in SOURCES} - allowed
    assert not above


def test_no_two_modules_import_each_other_however_indirectly() -> None:
    waiting = {module: imports(module) & SOURCES.keys() for module in SOURCES}
    while waiting:
        free = {module for module, needs in waiting.items() if not needs & waiting.keys()}
        assert free, f"a cycle among {sorted(waiting)}"
        waiting = {module: needs for module, needs in waiting.items() if module not in free}


def test_the_library_does_not_know_its_command() -> None:
    knowing = [m for m in SOURCES if m.startswith("uwf_git") and any("uwf_cli" in i for i in imports(m))]
    assert not knowing


@pytest.mark.parametrize("module", PURE)
def test_what_decides_the_next_role_reaches_neither_git_nor_network(module: str) -> None:
    reached: set[str] = set()
    pending = [f"uwf_git.{module}"]
    while pending:
        for name in imports(pending.pop()) - reached:
            reached.add(name)
            if name in SOURCES:
                pending.append(name)
    assert not {name.split(".")[0] for name in reached} & IMPURE


@pytest.mark.parametrize(
    "module", ["uwf_git", "uwf_git.workflow.moderator", "uwf_git.engine.step", "uwf_cli.tree"]
)
def test_importing_a_module_loads_none_of_the_slow_libraries(module: str) -> None:
    slow = ["jsonschema", "jsonata", "liquid", "httpx", "yaml", "ulid", "rich", "dotenv"]
    code = f"import sys, {module}; print(*[name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
