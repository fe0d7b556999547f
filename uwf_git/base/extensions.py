"""The registry of extensions: features on top of the core, known to it through their rows alone.

An extension is one folder or package. Its `__init__.py` has `EXTENSION`, a row of data in which code is named
as `module:attribute` and loaded when used. Those that ship are the folders that `OURS` of the package `BOX`
lists; installed packages have an entry point in the group `uwf.extensions`. They are consulted only for unknown
names, or if all extensions are needed (help, pages, exchanges, `uwf gc`), so they don't slow the start.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


BOX = "uwf_git.ext"
ENTRY_POINTS = "uwf.extensions"


class Command(NamedTuple):
    """A command or group. `path` is the words after `uwf`: `fleet`, or `workflow trust` in a group of the
    core, or `web invite` beside an extension's command `web`; `where` is a `click.Command`; `line` and `section` are
    for the group's help."""

    path: str
    where: str
    line: str
    section: str = ""


class Export(NamedTuple):
    """A form of `uwf export`, chosen by an `option` such as `--html`.

    `where` is a function of the Invocation, the id as typed, the file to write, and whether --force was given.
    """

    option: str
    where: str
    line: str

    @property
    def parameter(self) -> str:
        return self.option.lstrip("-").replace("-", "_")


class Dispatcher(NamedTuple):
    """A way to step many threads, chosen by an `option` such as `--fleet` of `uwf eval run`; `where` is a
    `api.dispatch.Dispatch`."""

    option: str
    where: str
    line: str


class AgentProgram(NamedTuple):
    """An agent, named by its command, `uwf-<short name>`. `where` is an `Agent` of `uwf_git.kit`, or a
    function from the name to one; the command is `main` in the same module. `alias` is another name for
    configurations. `kind` decides whether a step of unknown price is reported: "rehearsal", "human", "command" and
    "workflow" use no model; "model", "protocol" and "cli" do. Lists show agents in the order rehearsal, human,
    command, model, workflow, protocol, cli. `writes`: it changes files, as far as its tools permit."""

    name: str
    kind: str
    where: str
    alias: str | None = None
    writes: bool = False

    @property
    def module(self) -> str:
        return self.where.partition(":")[0]

    def load(self) -> Any:
        agent = load(self.where)
        return agent(self.name) if callable(agent) else agent


class ConfigSection(NamedTuple):
    """A section of `config.yaml`. `read` names a function of a `ConfigReader` and of the section's value; what it
    returns is `Config.sections[key]`. `texts` are the fields of it, or of its entries, that
    `uwf config set` takes literally; `project` has those that a project's `.uwf/config.yaml` may have, which grant
    nothing, each with words for `uwf allow`: a word before the value, such as `runs` for a command, and after a colon
    some after it."""

    key: str
    read: str
    texts: tuple[str, ...] = ()
    project: Mapping[str, str] = {}


class RefKind(NamedTuple):
    """A kind of ref: all with the same `prefix`, such as `refs/uwf/crews/`. `store.ref_kinds` has the table.

    names           what follows the prefix: a `name`, a `thread`'s id, a `node`'s hash, a `month`, the word `policy`,
                    "" for anything
    order           the order of transfer, dependencies first: the core has 5 to 90, shipped extensions 20 to 120, so
                    take 200 or more; 0 for refs that stay on this machine
    of_thread       the ref belongs to one thread; then `names` is `thread`
    of_people       only people make its records, never a step
    target          a `commit`, or the tag of a `fork`, a `pause` or an `end`, or a `fold`, or a `policy`; "" if neither
                    indexed nor verified
    records         valid records of the commit, the kind's own first
    trailer         the trailer that declares its record: `Uwf-Crew`
    record_parents  how many parents are records, None for all; a version's source, its second parent, may be anything
    name_field      the field of the node that must equal the ref's name
    settle          how two sides are reconciled: `version`, the remote's history keeps the name and ours becomes a
                    proposal; `replace`, the remote's; `grow`, entries of both. Only the core has `thread`,
                    `attempts`, `fork`, `pause`, `fold`, `policy`
    rule            what rules of the trust policy call its records, so that they are judged wherever refs are
                    admitted: of threads one of `trust.policy.OF_THREADS` (starts, steps and answers are told by their
                    role), of definitions one of its SUBJECTS; "" for what no rule need be about
    word            the word in messages: `crew`; `told` describes a thread's ref, `owner` begins a message about a
                    wrong name
    along           prefixes of refs with the same name that are pushed along
    foreign         folders whose files are not uwf's
    check           the function that verifies a commit of the kind's record, as in `verify.versions`
    versions        the `store.versions.Versions` of definitions; then also:
    branches        the prefix of published branches
    commands        the group of commands: `uwf crew`
    made_of, put, propose   a version's source in messages, and the commands that register and propose one
    """

    prefix: str
    names: str = ""
    order: int = 0
    of_thread: bool = False
    of_people: bool = False
    target: str = "commit"
    records: tuple[str, ...] = ()
    trailer: str = ""
    record_parents: int | None = None
    name_field: str = ""
    settle: str = "replace"
    rule: str = ""
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
        """Whether such refs are pushed and pulled."""
        return self.order > 0


class Pages(NamedTuple):
    """Pages in `uwf web`. `makers` maps paths such as `/eval/{name}` to functions of the store and a `PageRequest`
    that return a `Page`. The navigation shows `title` if the store has refs below `refs`. Templates are in
    `templates` beside the module."""

    title: str
    refs: str
    makers: Mapping[str, str]


class WorkState(NamedTuple):
    """What became of a thread's work: a `state` for machines, a `text` of a few words for people, and the address of a
    page on it, "" without one. `is_final`: it is where it was to go, or was turned down there; `is_current`: the work
    at the thread's head has come as far, and nobody here has more to do for it now. `problem` is why the last try to
    get it further failed, "" if it didn't."""

    state: str
    text: str
    url: str = ""
    is_final: bool = False
    is_current: bool = False
    problem: str = ""

    def as_json(self) -> dict[str, str | None]:
        value = {"state": self.state, "text": self.text, "url": self.url or None}
        return {**value, "problem": self.problem} if self.problem else value


class ActionPlan(NamedTuple):
    """What an action on a thread would do: the `code` that it is about, a `format.kinds.Revision` or None, the `target`
    that it changes, `how` in a word for machines, and all of it in a `text` for people, "" for nothing to tell."""

    code: Any = None
    target: str = ""
    how: str = ""
    text: str = ""

    @property
    def state(self) -> str:
        """What somebody agrees to who was shown the plan, "" for nothing."""
        return f"{self.code.commit} {self.target}".strip() if self.code is not None else ""

    def as_json(self) -> dict[str, str | None]:
        commit, base = (self.code.commit, self.code.base) if self.code is not None else (None, None)
        place = {"target": self.target or None, "how": self.how or None, "text": self.text}
        return {"commit": commit, "base": base, **place}


class ThreadAction(NamedTuple):
    """A command on a thread, for which its page has a button with a `label`, at `/thread/ID/<name>`. `argv` are the
    words before the thread's id. `plan` is a function of the Instance and the Head that returns its `ActionPlan`, or
    raises a UwfError that says why there is nothing to do: then there is no button; `summary` one of the command's JSON
    that returns the line to show once it has ended. `queue` is a function of the Instance and heads of finished
    threads, newest first, that returns the ids of those that wait for it; the inbox lists them under `queue_label`, in
    a group of its `name`. "" for none."""

    name: str
    label: str
    argv: tuple[str, ...]
    plan: str
    summary: str
    queue: str = ""
    queue_label: str = ""

    def planned(self, instance: Any, head: Any) -> ActionPlan:
        """Return what the action would do with a thread. Raises UwfError if there is nothing to do."""
        plan: ActionPlan = load(self.plan)(instance, head)
        return plan


class Endpoint(NamedTuple):
    """An address such as `/metrics` for programs that watch a service, which `uwf web` and fleets serve. `where` is a
    function of the store's `Location` that returns an `EndpointAnswer`. `is_open`: anybody may ask, so it tells nothing
    of the store."""

    path: str
    where: str
    is_open: bool = False

    def answer(self, location: Any) -> "EndpointAnswer":
        """Return the answer; one without a reason if what it needs cannot be read."""
        try:
            answer: EndpointAnswer = load(self.where)(location)
        except (UwfError, OSError):
            return EndpointAnswer("unavailable\n", 503)
        return answer


class EndpointAnswer(NamedTuple):
    """An HTTP status, and a text of a media type."""

    text: str
    status: int = 200
    media_type: str = "text/plain; charset=utf-8"


class Hindrance(NamedTuple):
    """Why a service cannot work now: a `name` in a word for anybody, and a `problem` in a line for its operator."""

    name: str
    problem: str


class Sample(NamedTuple):
    """A number of a metric, with the suffix of its name and its labels."""

    suffix: str
    labels: Mapping[str, str]
    value: float


class Metric(NamedTuple):
    """A metric family of OpenMetrics: its `kind` is counter, gauge, histogram or info. Labels have few values, and
    never a text of a thread."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...] = ()
    unit: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "samples": [item._asdict() for item in self.samples]}


class Runner(NamedTuple):
    """The agent of all steps of a kind of workflow, loaded from `where`. Steps record its `name`, which nobody can
    choose."""

    name: str
    where: str


class Extension(NamedTuple):
    """A feature's contributions. Workflow kinds and languages are those of the format.

    `runners` map a kind of workflow to its runner, `step_parts` to their `StepParts`,
    `compilers` a language to an `api.compilers.Compiler`. `node_types` map the hashes of a shipped
    extension's built-in types to the mapping of their schemas; other packages store schemas as nodes, so that
    stores stay readable without them.

    `merge_hint` is the command by which a user merges the accepted work of a thread, with {} for its id.

    The others name a function, "" for none. `resumed` gets an Instance and ids of threads that can continue.
    `collected` gets an Instance, to clean the private folder in `uwf gc`. `pushed` gets an Instance and a thread's id,
    and returns the commits that it pushed to branches of its own, sets by the remote's URL and the branch. `landed`
    gets an Instance and ids of threads, and returns by them the commits, or first digits of their ids, that records say
    they pushed to any branch, or that their work was merged as.
    `work_states` gets an Instance and heads of threads, and returns by its id the `WorkState` of each of whose work it
    knows more; it is asked if the store has refs of the extension or its `notes`, the folder of the private folder with
    what only this machine knows of it; only shipped ones are. `checks` gets an Instance and yields
    `verify.checks.Check` for `uwf doctor`. `hindrances` gets an Instance and yields each `Hindrance` to work here now,
    and `metrics` an Instance and yields `Metric`s, besides those of the store. `observer` gets an Instance and a
    thread's id, and returns a context manager in which a step of the thread is made, or None; it raises nothing, is
    loaded if one of `observer_variables` is set, and only a shipped extension has any. `guard` gets an Instance and a
    `store.new_record.NewRecord` that is about to be made, and raises to prevent it; only a shipped extension has any.
    `project_files` gets a Location, a folder and the files that `uwf init` is about to write there, and returns more of
    them; only a shipped extension has any.
    """

    name: str
    commands: tuple[Command, ...] = ()
    agents: tuple[AgentProgram, ...] = ()
    refs: tuple[RefKind, ...] = ()
    exports: tuple[Export, ...] = ()
    dispatchers: tuple[Dispatcher, ...] = ()
    node_types: Mapping[str, str] = {}
    runners: Mapping[str, Runner] = {}
    step_parts: Mapping[str, str] = {}
    compilers: Mapping[str, str] = {}
    config: tuple[ConfigSection, ...] = ()
    pages: Pages | None = None
    actions: tuple[ThreadAction, ...] = ()
    resumed: str = ""
    collected: str = ""
    pushed: str = ""
    work_states: str = ""
    notes: str = ""
    merge_hint: str = ""
    landed: str = ""
    checks: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    hindrances: str = ""
    metrics: str = ""
    observer: str = ""
    observer_variables: tuple[str, ...] = ()
    guard: str = ""
    project_files: str = ""


@cache
def ours() -> tuple[Extension, ...]:
    """Return the shipped extensions in their order."""
    return tuple(map(_our, _shipped()))


def _shipped() -> tuple[str, ...]:
    names: tuple[str, ...] = import_module(BOX).OURS
    return names


@cache
def _our(name: str) -> Extension:
    extension: Extension = import_module(f"{BOX}.{name}").EXTENSION
    return extension


def agent_programs() -> Iterator[AgentProgram]:
    """Yield the shipped agents, importing manifests one by one."""
    for name in _shipped():
        yield from _our(name).agents


@cache
def others() -> tuple[Extension, ...]:
    """Return installed packages' extensions by name. Raises UwfError if one cannot be imported."""
    if not _may_be_installed():
        return ()
    from importlib.metadata import entry_points

    return tuple(
        _loaded(point) for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda item: item.name)
    )


def every() -> tuple[Extension, ...]:
    """Return all extensions, shipped ones first."""
    return (*ours(), *others())


def _loaded(entry: "EntryPoint") -> Extension:
    try:
        extension = entry.load()
    except (Exception, SystemExit) as error:  # it is a stranger's code
        raise _broken(entry, f"{type(error).__name__}: {one_line(str(error), 200)}") from error
    if not isinstance(extension, Extension):
        raise _broken(entry, f"{entry.value} is not an Extension")
    return extension


def _broken(entry: "EntryPoint", why: str) -> UwfError:
    package = entry.dist.name if entry.dist else entry.name
    return UwfError(f"extension {entry.name} cannot be loaded: {why}", f"update or uninstall {package}")


def config_section(key: str) -> ConfigSection | None:
    """Return the section of `config.yaml` that an extension reads, shipped ones first."""
    rows = (row for extensions in (ours, others) for extension in extensions() for row in extension.config)
    return next((row for row in rows if row.key == key), None)


def config_keys() -> tuple[str, ...]:
    """Return the keys of extensions' sections."""
    return tuple(row.key for extension in every() for row in extension.config)


def runner(kind: str) -> Runner | None:
    """Return the runner of a kind of workflow, None if configured agents play its roles. Only shipped
    extensions have any."""
    return next(
        (extension.runners[kind] for extension in map(_our, _shipped()) if kind in extension.runners), None
    )


@cache
def runner_names() -> frozenset[str]:
    """Return the names of runners, which do no work of their own, but have others work for them."""
    return frozenset(runner.name for extension in ours() for runner in extension.runners.values())


def step_parts(kind: str) -> str | None:
    """Return the step parts of a kind of workflow, None if it has none. Only shipped extensions have any."""
    return next(
        (extension.step_parts[kind] for extension in map(_our, _shipped()) if kind in extension.step_parts),
        None,
    )


def _may_be_installed() -> bool:
    """Return whether a package may have an entry point. Importing `importlib.metadata` takes 25 ms, and each
    push and pull asks."""
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
        if any(_names_group(f"{folder or '.'}/{info}/entry_points.txt") for info in infos):
            return True
    return False


def _names_group(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            return ENTRY_POINTS.encode() in file.readall()
    except OSError:
        return False


def load(where: str) -> Any:
    """Import `module:attribute`."""
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)


def command(group: str, name: str) -> Command | None:
    """Return an extension's command in a group, "" for `uwf` itself."""
    return _by_group(True).get(group, {}).get(name) or _by_group(False).get(group, {}).get(name)


def commands(group: str) -> dict[str, Command]:
    """Return extensions' commands in a group; shipped ones take precedence."""
    by_ours = _by_group(True).get(group, {})
    return by_ours | {
        name: command for name, command in _by_group(False).get(group, {}).items() if name not in by_ours
    }


@cache
def _by_group(ship: bool) -> dict[str, dict[str, Command]]:
    commandses: dict[str, dict[str, Command]] = {}
    extensions = tuple(ours() if ship else others())
    alone = {command.path for extension in extensions for command in extension.commands}
    for extension in extensions:
        for command in extension.commands:
            group, _, name = command.path.rpartition(" ")
            if group in alone:  # a command below another one, which is no group
                group, name = "", command.path
            commandses.setdefault(group, {})[name] = command
    return commandses


def exports() -> tuple[Export, ...]:
    return tuple(form for extension in every() for form in extension.exports)


def dispatchers() -> tuple[Dispatcher, ...]:
    """Return the ways of all extensions to step many threads."""
    return tuple(way for extension in every() for way in extension.dispatchers)


def resumed(instance: Any, threads: Collection[str]) -> None:
    """Tell extensions about threads that can continue."""
    for extension in every():
        if extension.resumed:
            load(extension.resumed)(instance, threads)


def collected(instance: Any) -> None:
    """Let extensions clean the private folder."""
    for extension in every():
        if extension.collected:
            load(extension.collected)(instance)


def pushed(instance: Any, thread: str) -> dict[tuple[str, str], set[str]]:
    """Return the commits that a thread has pushed to branches of its own, by the remote's URL and the branch."""
    commits: dict[tuple[str, str], set[str]] = {}
    for extension in every():
        for place, own in load(extension.pushed)(instance, thread).items() if extension.pushed else ():
            commits.setdefault(place, set()).update(own)
    return commits


def work_states(instance: Any, heads: Collection[Any]) -> dict[str, WorkState]:
    """Return what became of threads' work, by their ids, as far as extensions know."""
    states: dict[str, WorkState] = {}
    repository = instance.store.repository
    for extension in ours():
        if extension.work_states and (
            any(repository.may_have_refs(kind.prefix) for kind in extension.refs)
            or (extension.notes and (repository.private / extension.notes).is_dir())
        ):
            states |= load(extension.work_states)(instance, heads)
    return states


def note_folders() -> list[str]:
    """Return the folders of the private folder that `work_states` depend on."""
    return [extension.notes for extension in ours() if extension.notes]


def merge_hint(thread: str) -> str:
    """Return the command by which a user merges a thread's accepted work, "" if no extension has one."""
    return next((extension.merge_hint for extension in every() if extension.merge_hint), "").format(thread)


def landed(instance: Any, threads: Collection[str]) -> dict[str, set[str]]:
    """Return by threads the commits, or the first digits of their ids, that records say they pushed or were merged
    as."""
    commits: dict[str, set[str]] = {}
    for extension in every():
        for thread, own in load(extension.landed)(instance, threads).items() if extension.landed else ():
            commits.setdefault(thread, set()).update(own)
    return commits


def project_files(location: Any, folder: Path, written: Mapping[Path, bytes]) -> dict[Path, bytes]:
    """Return the files that extensions add to those that `uwf init` writes into a folder."""
    files: dict[Path, bytes] = {}
    for extension in ours():
        if extension.project_files:
            files |= load(extension.project_files)(location, folder, written)
    return files


def checks() -> Iterator[tuple[str, str]]:
    """Yield the extensions with checks for `uwf doctor`."""
    return ((extension.name, extension.checks) for extension in every() if extension.checks)


def endpoints() -> dict[str, Endpoint]:
    """Return the addresses for programs that watch a service, by their paths."""
    return {endpoint.path: endpoint for extension in every() for endpoint in extension.endpoints}


MONITOR_TOKEN = "UWF_MONITOR_TOKEN"
"""The variable with the token that lets a program ask for endpoints that are not open; with `_FILE` behind it, the
file that has it."""


def take_monitor_token() -> str:
    """Return the token of programs that watch, "" for none. It leaves the environment, which agents inherit. Raises
    UwfError if its file cannot be read."""
    token, file = os.environ.pop(MONITOR_TOKEN, ""), os.environ.pop(f"{MONITOR_TOKEN}_FILE", "")
    if not file:
        return token
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise UwfError(f"cannot read {file}: {error}", f"see {MONITOR_TOKEN}_FILE") from None


def hindrances(instance: Any) -> list[Hindrance]:
    """Return why a service of a store cannot work now."""
    return [
        item for extension in every() if extension.hindrances for item in load(extension.hindrances)(instance)
    ]


def metrics(instance: Any) -> list[Metric]:
    """Return the metrics of extensions."""
    return [item for extension in every() if extension.metrics for item in load(extension.metrics)(instance)]


def observed(instance: Any, thread: str) -> AbstractContextManager[object]:
    """Return the context in which to make a step of a thread, or to end it."""
    wanted = [item for item in ours() if any(map(os.environ.get, item.observer_variables))]
    if not wanted:
        return nullcontext()
    stack = ExitStack()
    for extension in wanted:
        if (context := load(extension.observer)(instance, thread)) is not None:
            stack.enter_context(context)
    return stack


@cache
def guards() -> tuple[Callable[[Any, Any], None], ...]:
    """Return the functions that are asked before a record is made."""
    return tuple(load(extension.guard) for extension in ours() if extension.guard)


def compiler(language: str) -> str:
    """Return the compiler of a language. Only shipped extensions have any."""
    return next(extension.compilers[language] for extension in ours() if language in extension.compilers)


@cache
def node_types() -> Mapping[str, str]:
    """Return the hashes of shipped extensions' built-in types, and their schemas' places."""
    return {name: where for extension in ours() for name, where in extension.node_types.items()}


def pages() -> tuple[Pages, ...]:
    return tuple(extension.pages for extension in every() if extension.pages is not None)


def thread_actions() -> tuple[ThreadAction, ...]:
    return tuple(action for extension in every() for action in extension.actions)


def template_folders() -> list[Path]:
    """Return the folders of those pages' templates."""
    modules = {where.partition(":")[0] for page in pages() for where in page.makers.values()}
    return [Path(str(import_module(name).__file__)).parent / "templates" for name in sorted(modules)]
