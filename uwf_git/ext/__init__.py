"""Features on top of the core, a folder each. The core and the command know them through this module alone.

An extension is one folder with all of one feature. Its `__init__.py` holds `EXTENSION`, which is data: whatever has to
be imported for a feature is named as `module:attribute`, and loaded when it is used. `OURS` has a line for each that
ships; others are installed packages with an entry point in the group `uwf.extensions`. These are asked only if a name
is not known here, or if all extensions are needed, as for help, pages, an exchange and `uwf gc`, so that starting costs
nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


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


def _parameter(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


class Export(NamedTuple):
    """A form in which `uwf export` writes threads, chosen by an `option` such as `--html`; `line` is for its help.

    `where` is a function of the Invocation, the ids as they were typed, the path, and whether --force was given. With
    `is_file` it gets one id and the path of a file, which it writes over if forced; else any number of ids, none for
    all threads, and the path of a folder."""

    option: str
    where: str
    line: str
    is_file: bool = True

    @property
    def parameter(self) -> str:
        """The name that click gives the option."""
        return _parameter(self.option)


class Dispatcher(NamedTuple):
    """Another way than one thread after another to step those of a command, chosen by an `option` such as `--fleet` of
    `uwf eval run`; `line` is for its help, `where` an `api.dispatch.Dispatch`."""

    option: str
    where: str
    line: str

    @property
    def parameter(self) -> str:
        """The name that click gives the option."""
        return _parameter(self.option)


class AgentProgram(NamedTuple):
    """An agent that an extension adds, known by the `name` of its command, `uwf-<short name>`. `where` is an `Agent` of
    `uwf_git.kit`, or a function that takes the name and returns one; the command is `main` in the same module.
    `kind` says who answers: "rehearsal", "human", "command", "model", "workflow", "protocol" or "cli". `alias` is
    another name that a configuration may use for it."""

    name: str
    kind: str
    where: str
    alias: str | None = None

    @property
    def module(self) -> str:
        """The name of the module that holds it."""
        return self.where.partition(":")[0]

    def load(self) -> Any:
        """The `Agent`."""
        agent = load(self.where)
        return agent(self.name) if callable(agent) else agent


class RefKind(NamedTuple):
    """A kind of refs: all whose names begin with `prefix`, such as `refs/uwf/crews/`. `store.ref_kinds` has the table.

    names           what follows the prefix: the `name` of something, the id of a `thread`, the hash of a `node`, a
                    `month`, "" for anything
    order           the place in a transfer, which may be cut off: what others stand on comes first. 0 for refs that
                    stay on this machine
    of_thread       whether a ref belongs to one thread; `names` is `thread` then
    target          what a ref points at: a `commit`, or the tag of a `fork`, a `pause` or an `end`, which is on one, or
                    a `fold`; "" for what neither index nor verification follows
    records         the kinds of record that the commit may be, the kind's own first
    trailer         the trailer by which a commit says that it is a record of that kind: `Uwf-Crew`
    record_parents  how many parents of such a commit are records as well, None for all. What a version was taken from,
                    its second parent, may be anything
    name_field      the field of the record's node that has the name, which the ref must have too
    settle          what becomes of a ref that another side has: `version`, `replace`, `grow`; of kinds that the core
                    alone has, `thread`, `attempts`, `fork`, `pause`, `fold`
    word            what messages call one: `crew`; `told` says of a ref of a thread, or of many of them, what it is of,
                    `owner` how a message begins about one that has another name than its ref
    along           the prefixes of the refs of the same name that are pushed along with one that is asked for
    foreign         folders of the tree whose files are none of uwf's, whatever they are called
    check           the function that verifies a commit which records the kind's own record, as of `verify.versions`
    versions        the `store.versions.Versions` of what is registered in versions; then there are also:
    branches        where a remote's published branches are
    commands        the group of commands: `uwf crew`
    made_of, put, propose   what a version is made of, and the commands that register and propose one
    """

    prefix: str
    names: str = ""
    order: int = 0
    of_thread: bool = False
    target: str = "commit"
    records: tuple[str, ...] = ()
    trailer: str = ""
    record_parents: int | None = None
    name_field: str = ""
    settle: str = "replace"
    word: str = ""
    told: str = ""
    owner: str = ""
    along: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    check: str = ""
    versions: str = ""
    branches: str = ""
    commands: str = ""
    made_of: str = ""
    put: str = ""
    propose: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether such refs travel to other machines."""
        return self.order > 0


class Pages(NamedTuple):
    """Pages of an extension in `uwf web`. `makers` names for each path, such as `/eval/{name}`, the function of the
    store and an `Asked` of `uwf_cli.page.addresses` that makes its `Page`. The navigation leads to the first path by
    `title` if the store has refs that begin with `refs`. Templates are in the folder `templates` beside the module."""

    title: str
    refs: str
    makers: Mapping[str, str]


class Extension(NamedTuple):
    """A feature: the commands, agents and kinds of refs that it adds, the forms that it exports threads in, the ways in
    which it steps many of them, and its part in the steps of workflows, by the `kind` of a workflow that the format
    knows.

    `pages` are its pages in `uwf web`. Of `runners` each value names an `Agent` that does all steps of such workflows,
    of `step_parts` the `StepParts` of their steps, of `compilers` the `api.compilers.Compiler` of a language.
    `node_types` has, for the hash of each type that an extension which ships adds to those of the format, the mapping
    that holds its schema. Other packages store their schemas like any node, so that a store can be read without them.

    The others name a function each, "" for none. `resumed` takes an Instance and ids of threads that waited or were
    paused and can go on. `collected` takes an Instance; `uwf gc` calls it to remove files of the private folder that
    nothing needs any more. `checks` takes an Instance and yields each `verify.checks.Check` of `uwf doctor`."""

    name: str
    commands: tuple[Command, ...] = ()
    agents: tuple[AgentProgram, ...] = ()
    refs: tuple[RefKind, ...] = ()
    exports: tuple[Export, ...] = ()
    dispatchers: tuple[Dispatcher, ...] = ()
    node_types: Mapping[str, str] = {}
    runners: Mapping[str, str] = {}
    step_parts: Mapping[str, str] = {}
    compilers: Mapping[str, str] = {}
    pages: Pages | None = None
    resumed: str = ""
    collected: str = ""
    checks: str = ""


@cache
def ours() -> tuple[Extension, ...]:
    """The extensions that ship, in the order of `OURS`."""
    return tuple(map(_our, OURS))


@cache
def _our(name: str) -> Extension:
    extension: Extension = import_module(f"{__name__}.{name}").EXTENSION
    return extension


def agent_programs() -> Iterator[AgentProgram]:
    """The agents that ship. A search that ends early imports no further manifests."""
    for name in OURS:
        yield from _our(name).agents


@cache
def others() -> tuple[Extension, ...]:
    """The extensions of installed packages, by their names. Raises UwfError if one cannot be imported."""
    if not _may_be_installed():
        return ()
    from importlib.metadata import entry_points

    return tuple(
        _loaded(each) for each in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name)
    )


def every() -> tuple[Extension, ...]:
    """All extensions, those that ship first."""
    return (*ours(), *others())


def _loaded(entry: EntryPoint) -> Extension:
    try:
        extension = entry.load()
    except Exception as error:  # it is a stranger's code
        raise _broken(entry, f"{type(error).__name__}: {one_line(str(error), 200)}") from error
    if not isinstance(extension, Extension):
        raise _broken(entry, f"{entry.value} is no Extension")
    return extension


def _broken(entry: EntryPoint, why: str) -> UwfError:
    package = entry.dist.name if entry.dist else entry.name
    return UwfError(f"extension {entry.name} cannot be loaded: {why}", f"update or uninstall {package}")


def runner(kind: str) -> str | None:
    """What does the steps of workflows of a kind, None if their roles are played by agents. Kinds are of the format,
    so no installed package is asked."""
    return next((each.runners[kind] for each in map(_our, OURS) if kind in each.runners), None)


def step_parts(kind: str) -> str | None:
    """The parts that steps of workflows of a kind have of their own, None if they have none. Kinds are of the format,
    so no installed package is asked."""
    return next((each.step_parts[kind] for each in map(_our, OURS) if kind in each.step_parts), None)


def _may_be_installed() -> bool:
    """Whether an installed package may have an entry point. `importlib.metadata`, which finds them, takes 25 ms to
    load, and each push and pull asks."""
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                names = [entry.name for entry in entries]
        except NotADirectoryError:  # an archive
            return True
        except OSError:
            continue
        if any(name.endswith(".egg") or name == "EGG-INFO" for name in names):
            return True
        infos = (name for name in names if name.endswith((".dist-info", ".egg-info")))
        if any(_names_group(Path(folder, info, "entry_points.txt")) for info in infos):
            return True
    return False


def _names_group(file: Path) -> bool:
    try:
        return ENTRY_POINTS.encode() in file.read_bytes()
    except OSError:
        return False


def load(where: str) -> Any:
    """What `module:attribute` names."""
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)


def command(group: str, name: str) -> Command | None:
    """The command of that name that an extension adds to a group; `group` is "" for `uwf` itself."""
    return _by_group(True).get(group, {}).get(name) or _by_group(False).get(group, {}).get(name)


def commands(group: str) -> dict[str, Command]:
    """All commands that extensions add to a group, by their names there. One that ships goes before another's."""
    by_ours = _by_group(True).get(group, {})
    return by_ours | {
        name: each for name, each in _by_group(False).get(group, {}).items() if name not in by_ours
    }


@cache
def _by_group(ship: bool) -> dict[str, dict[str, Command]]:
    """The commands by their groups: of the extensions that ship, or of the others."""
    found: dict[str, dict[str, Command]] = {}
    for extension in ours() if ship else others():
        for command in extension.commands:
            group, _, name = command.path.rpartition(" ")
            found.setdefault(group, {})[name] = command
    return found


def exports() -> tuple[Export, ...]:
    """The forms that threads are exported in."""
    return tuple(form for extension in every() for form in extension.exports)


def dispatchers() -> tuple[Dispatcher, ...]:
    """The ways to step many threads."""
    return tuple(each for extension in every() for each in extension.dispatchers)


def resumed(instance: Any, threads: Collection[str]) -> None:
    """Tell extensions that threads which waited or were paused can go on."""
    for extension in every():
        if extension.resumed:
            load(extension.resumed)(instance, threads)


def collected(instance: Any) -> None:
    """Have extensions remove files of the private folder that nothing needs any more."""
    for extension in every():
        if extension.collected:
            load(extension.collected)(instance)


def checks() -> Iterator[tuple[str, str]]:
    """The names of extensions with checks of `uwf doctor`, and where these are."""
    return ((each.name, each.checks) for each in every() if each.checks)


def compiler(language: str) -> str:
    """Where the compiler of a language is, which the format knows: no installed package is asked."""
    return next(each.compilers[language] for each in ours() if language in each.compilers)


@cache
def node_types() -> Mapping[str, str]:
    """The hashes of the built-in node types of extensions that ship, and where their schemas are."""
    return {name: where for each in ours() for name, where in each.node_types.items()}


def pages() -> tuple[Pages, ...]:
    """The pages of extensions in `uwf web`."""
    return tuple(each.pages for each in every() if each.pages is not None)


def template_folders() -> list[Path]:
    """The folders with the templates of those pages."""
    modules = {where.partition(":")[0] for each in pages() for where in each.makers.values()}
    return [Path(str(import_module(name).__file__)).parent / "templates" for name in sorted(modules)]
