"""The folders are the layers: imports run one way, what is pure reaches neither git nor the network, the library
doesn't know its command, and starting costs little."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from conftest import REPOSITORY

from uwf_git import ext, plugin
from uwf_git.workflow.turn import TurnKind

ROOMS = (
    "base",
    "sandbox",
    "format",
    "git",
    "workflow",
    "config",
    "forge",
    "store",
    "trust",
    "workspaces",
    "approvals",
    "engine",
    "verify",
    "sync",
    "api",
)
"""The core: the packages of `uwf_git`, lowest first. On them stand the command, and then the extensions in `ext/`."""

FACES = {"uwf_git", "uwf_git.kit", "uwf_git.plugin"}
"""Modules for those who use the library. No module of the core needs them."""

REGISTRY = "uwf_git.base.extensions"
"""It reads the list of the extensions that ship, by its name. No other module does."""

OF_SCRIPTS = "uwf_git.workflow"
"""The library of code workflows in Python: scripts import it in a sandbox, and what runs them names it."""

PURE = ("format", "workflow")
IMPURE = {"pygit2", "sqlite3", "httpx", "socket", "subprocess", "urllib", "ssl"}
SLOW = (
    "jsonschema",
    "jsonata",
    "liquid",
    "httpx",
    "yaml",
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


SYSTEM = "uwf_git.base.system"
"""The package that alone knows which operating system this is."""

OF_ONE_SYSTEM = re.compile(
    r"fcntl|grp|msvcrt|pty|pwd|resource|termios|tty|winreg"
    r"|os\.(O_(CLOEXEC|DIRECTORY|NOCTTY|NOFOLLOW|NONBLOCK|PATH)|open|p(read|write)|fsync|get(e?[ug]id|pg(id|rp)|sid)"
    r"|set(pg|s)id|killpg|fork|posix_\w+|statvfs|sysconf|uname|mkfifo)"
    r"|signal\.(SIG(HUP|KILL|URG|PIPE|CONT|XCPU|XFSZ|ALRM)|pthread_kill|setitimer)"
    r"|/(proc|sys)(/.*)?"
)
"""Modules, calls, signals and files that not every system has."""

KNOWS_ITS_SYSTEM = {
    "uwf_git.sandbox": "confinement, limits and the processes of a command, which are Linux's here or refused",
    "uwf_git.base.lifetime": "a signal that wakes the main thread",
    "uwf_git.base.timelimit": "a timer by signals, and a limit of the kernel",
    "uwf_git.format.document": "names of files that a shell hands over",
    "uwf_git.git.fsync": "an allocation of space, where there is one",
    "uwf_git.workspaces.worktree": "the same",
    "uwf_git.ext.agents.acp.enforcement": "whether this is root",
    "uwf_git.ext.agents.permissions": "a terminal of one's own",
    "uwf_git.ext.crews.commands.line_input": "a terminal of one's own",
    "uwf_git.ext.fleet.process_pool": "the end of a worker with its group",
    "uwf_cli.streams": "a stream to nowhere",
}
"""Modules, or packages, outside of it that name such things, and what for."""

TURNS = "uwf_git.engine.turn"
"""Its table loads the rooms by the names of the kinds."""

NAME = re.compile(r"uwf_(?:git|cli)(?:\.\w+)+")


def place(module: str) -> tuple[str, str]:
    """What a module is of, and its room there: ("core", "store"), ("cli", ""), ("ext", "fleet"); the list of those
    that ship is ("list", "")."""
    top, *rest = module.split(".")
    if top == "uwf_cli":
        return "cli", ""
    if rest == ["ext"]:
        return "list", ""
    if rest[:1] == ["ext"]:
        return "ext", rest[1]
    return ("face", module) if module in FACES else ("core", rest[0])


def crossing(module: str, needed: str) -> str | None:
    """The rule that an import breaks, None if it breaks none."""
    kind, room = place(module)
    other, there = place(needed)
    if other == "ext" and (kind, room) != ("ext", there):
        return f"{kind} -> ext"
    if other == "list":
        return None if module == REGISTRY else f"{kind} -> list of extensions"
    if kind == "core" and (other in ("cli", "face") or ROOMS.index(there) > ROOMS.index(room)):
        return f"core -> {other}" if other != "core" else "core upwards"
    return None


@cache
def imports(module: str) -> set[str]:
    """Every module that a module imports, at its top, inside functions or for its types only, and every module that a
    string of it names."""
    rooms = {f"{TURNS}.{kind.value.name}" for kind in TurnKind} if module == f"{TURNS}.table" else set()
    return {*_imported(_nodes(module)), *_named(_nodes(module)), *rooms} - {module}


@cache
def _nodes(module: str) -> list[ast.AST]:
    """What names modules in a module: its imports and its strings."""
    kinds = ast.Import | ast.ImportFrom | ast.Constant
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if NAME.fullmatch(name) and name in SOURCES:
                yield name


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports name the whole module"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in SOURCES else node.module


def test_the_rooms_are_the_packages_of_the_core_and_nothing_stands_beside_them() -> None:
    folder = FOLDERS["uwf_git"]
    assert {path.parent.name for path in folder.glob("*/__init__.py")} == {*ROOMS, "ext"}
    assert {f"uwf_git.{path.stem}".removesuffix(".__init__") for path in folder.glob("*.py")} == FACES


def test_the_registry_has_a_line_for_each_extension() -> None:
    assert {path.parent.name for path in FOLDERS["uwf_git"].glob("ext/*/__init__.py")} == set(ext.OURS)


def test_the_documents_name_the_rooms_in_their_order() -> None:
    for name in ("docs/inside/architecture.md", "CONTRIBUTING.md", "uwf_git/__init__.py"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        lines = [re.match(r"(?:\| `| +)(\w+)[/`]* ", line) for line in text.splitlines()]
        named = [found[1] for found in lines if found and found[1] in ROOMS]
        assert named == list(ROOMS), name


def test_no_import_runs_upwards_or_into_an_extension() -> None:
    found = {
        f"{rule}: {module} -> {needed}"
        for module in SOURCES
        for needed in imports(module) & SOURCES.keys()
        if (rule := crossing(module, needed))
    }
    assert not found


def test_extensions_stand_on_the_faces_alone() -> None:
    around = {
        f"{module} -> {needed}"
        for module in SOURCES
        for needed in imports(module) & SOURCES.keys() - {OF_SCRIPTS}
        if place(module)[0] == "ext" and place(needed)[0] in ("core", "cli")
    }
    assert not around


def test_each_name_of_the_face_is_used_by_an_extension_or_a_recipe() -> None:
    folders = FOLDERS["uwf_git"] / "ext", REPOSITORY / "examples"
    used = {name for folder in folders for path in folder.rglob("*.py") for name in _names_of_the_face(path)}
    recipes = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for names in re.findall(r"^from uwf_git\.plugin import (.+)$", recipes, re.MULTILINE):
        used |= set(names.split(", "))
    assert used == set(dir(plugin))


def _names_of_the_face(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "uwf_git.plugin":
            yield from (alias.name for alias in node.names)


def test_the_face_for_extensions_loads_its_names_when_they_are_used() -> None:
    code = (
        "import sys; from uwf_git import plugin\n"
        "print(*(name for name in sys.modules if name.startswith('uwf_')))\n"
        "for name in dir(plugin): getattr(plugin, name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    base = {f"uwf_git.base.{name}" for name in ("version", "extensions", "errors", "text")}
    assert set(done.stdout.split()) <= {"uwf_git", "uwf_git.base", "uwf_git.plugin", *base}


def test_one_package_knows_the_operating_system() -> None:
    outside = [module for module in SOURCES if not module.startswith(SYSTEM)]
    found = {module: names for module in outside if (names := sorted(_of_one_system(module)))}
    known = {
        module: next((name for name in _around(module) if name in KNOWS_ITS_SYSTEM), None) for module in found
    }
    assert not {module: found[module] for module, name in known.items() if name is None}
    assert {*known.values()} == {*KNOWS_ITS_SYSTEM}, "a module that needs no exception any more"


def _of_one_system(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(SOURCES[module].read_text(encoding="utf-8"))):
        names: list[str] = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.Attribute(value=ast.Name(id=owner)):
                names = [f"{owner}.{node.attr}"]
            case ast.Constant(value=str(text)) if text.startswith("/"):
                names = [text]
        yield from (name for name in names if OF_ONE_SYSTEM.fullmatch(name))


def _around(module: str) -> Iterator[str]:
    while module:
        yield module
        module = module.rpartition(".")[0]


def test_no_two_modules_import_each_other_however_indirectly() -> None:
    waiting = {
        module: {each for each in _imported(_nodes(module)) if each in SOURCES} - {module}
        for module in SOURCES
    }
    while waiting:
        free = {module for module, needs in waiting.items() if not needs & waiting.keys()}
        assert free, f"a cycle among {sorted(waiting)}"
        waiting = {module: needs for module, needs in waiting.items() if module not in free}


def test_no_chain_of_imports_is_longer_than_seventeen_modules() -> None:
    """Those at the top of modules count, since each of them is read before the first line of the last one runs."""
    needs = {}
    for module in SOURCES:
        top = [node for node in _nodes(module) if getattr(node, "col_offset", 0) == 0]
        needs[module] = {name for name in _imported(top) if name in SOURCES} - {module}

    @cache
    def chain(module: str) -> tuple[str, ...]:
        return (module, *max(map(chain, needs[module]), key=len, default=()))

    longest = max(map(chain, needs), key=len)
    assert len(longest) <= 17, " -> ".join(longest)


@pytest.mark.parametrize("package", PURE)
def test_what_is_pure_reaches_neither_git_nor_network(package: str) -> None:
    reached: set[str] = set()
    pending = [module for module in SOURCES if module.startswith(f"uwf_git.{package}.")]
    while pending:
        for name in imports(pending.pop()) - reached:
            reached.add(name)
            if name in SOURCES and not name.startswith(SYSTEM):
                pending.append(name)
    assert not {name.split(".")[0] for name in reached} & IMPURE


@pytest.mark.parametrize(
    "module",
    ["uwf_git", "uwf_git.workflow.moderator", "uwf_git.engine.step", "uwf_git.sync.pull", "uwf_cli.tree"],
)
def test_importing_a_module_loads_none_of_the_slow_libraries(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_whoever_imports_pygit2_gets_all_of_it() -> None:
    code = (
        "from uwf_git.git import libgit2; import sys; assert 'pygit2' not in sys.modules\n"
        "import pygit2; assert pygit2.Oid is libgit2.Oid and pygit2.errors.GitError is libgit2.GitError\n"
        "made = pygit2.init_repository(sys.argv[1], bare=True); made.config['uwf.x'] = 'yes'\n"
        "assert libgit2.Config(libgit2.open_repository(sys.argv[1])).flag('uwf.x') is True"
    )
    subprocess.run([sys.executable, "-c", code, "store.git"], check=True)


def test_no_two_modules_of_the_tests_have_the_same_name() -> None:
    """They are imported by their names alone, so that one would get another's."""
    names = Counter(path.name for path in (REPOSITORY / "tests").rglob("*.py"))
    assert [name for name, number in names.items() if number > 1] == []
