"""The folders are the layers: imports run one way, what is pure reaches neither git nor the network, the library
doesn't know its command, and starting costs little."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from conftest import REPOSITORY

LAYERS = (
    "processes",
    "values",
    "documents",
    "workflow",
    "git",
    "config",
    "store",
    "crews",
    "verify",
    "kit",
    "cost",
    "engine",
    "agents",
    "bundles",
    "sharing",
    "migration",
    "fleet",
    "evaluation",
)
"""The packages of `uwf_git`, lowest first. Below them all are the modules beside them, which need no package."""

PURE = ("values", "documents", "workflow")
IMPURE = {"pygit2", "sqlite3", "httpx", "socket", "subprocess", "urllib", "ssl"}
SLOW = (
    "jsonschema",
    "jsonata",
    "liquid",
    "httpx",
    "yaml",
    "ulid",
    "rich",
    "dotenv",
    "asyncio",
    "importlib.metadata",
    "logging",
    "tree_sitter",
    "ssl",
    "pygit2.remotes",
    "temporalio",
)
"""Libraries that cost more than a few milliseconds. A function that needs one imports it; of pygit2 only parts are."""

FOLDERS = {"uwf_git": REPOSITORY / "uwf_git", "uwf_cli": REPOSITORY / "cli" / "uwf_cli"}
SOURCES = {
    ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): path
    for package, folder in FOLDERS.items()
    for path in sorted(folder.rglob("*.py"))
}


def layer(module: str) -> int:
    """How high a module stands: 0 beside the packages, then a package's place, and the command above all."""
    top, *rest = module.split(".")
    if top == "uwf_cli":
        return len(LAYERS) + 1
    return LAYERS.index(rest[0]) + 1 if rest and rest[0] in LAYERS else 0


@cache
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


def test_every_package_is_a_layer() -> None:
    packages = {path.parent.name for path in FOLDERS["uwf_git"].glob("*/__init__.py")}
    assert packages == set(LAYERS)


def test_the_documents_name_the_layers_in_their_order() -> None:
    for name in ("docs/architecture.md", "CONTRIBUTING.md", "uwf_git/__init__.py"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        lines = [re.match(r"(?:\| `| +)(\w+)[/`]* ", line) for line in text.splitlines()]
        named = [found[1] for found in lines if found and found[1] in LAYERS]
        assert named == list(LAYERS), name


def test_no_import_runs_upwards() -> None:
    for module in SOURCES:
        assert not {name for name in imports(module) if name in SOURCES and layer(name) > layer(module)}, (
            module
        )


def test_no_two_modules_import_each_other_however_indirectly() -> None:
    waiting = {module: imports(module) & SOURCES.keys() for module in SOURCES}
    while waiting:
        free = {module for module, needs in waiting.items() if not needs & waiting.keys()}
        assert free, f"a cycle among {sorted(waiting)}"
        waiting = {module: needs for module, needs in waiting.items() if module not in free}


@pytest.mark.parametrize("package", PURE)
def test_what_is_pure_reaches_neither_git_nor_network(package: str) -> None:
    reached: set[str] = set()
    pending = [module for module in SOURCES if module.startswith(f"uwf_git.{package}.")]
    while pending:
        for name in imports(pending.pop()) - reached:
            reached.add(name)
            if name in SOURCES:
                pending.append(name)
    assert not {name.split(".")[0] for name in reached} & IMPURE


@pytest.mark.parametrize(
    "module",
    ["uwf_git", "uwf_git.workflow.moderator", "uwf_git.engine.step", "uwf_git.sharing.pull", "uwf_cli.tree"],
)
def test_importing_a_module_loads_none_of_the_slow_libraries(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_whoever_imports_pygit2_gets_all_of_it() -> None:
    code = (
        "from uwf_git import libgit2; import sys; assert 'pygit2' not in sys.modules\n"
        "import pygit2; assert pygit2.Oid is libgit2.Oid and pygit2.errors.GitError is libgit2.GitError\n"
        "made = pygit2.init_repository(sys.argv[1], bare=True); made.config['uwf.x'] = 'yes'\n"
        "assert libgit2.Config(libgit2.open_repository(sys.argv[1])).flag('uwf.x') is True"
    )
    subprocess.run([sys.executable, "-c", code, "store.git"], check=True)
