"""An open store and its services, one per process and location."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from uwf_git.base import extensions
from uwf_git.base.errors import Invalid, UwfError
from uwf_git.base.text import counted
from uwf_git.base.timelimit import Budget
from uwf_git.git.refs import read_file
from uwf_git.git.repository import PRIVATE
from uwf_git.sandbox.programs import avoid_all
from uwf_git.store import layout, ref_kinds
from uwf_git.store.history import Head
from uwf_git.store.indexing import Store
from uwf_git.store.location import ALLOWED, Location, check_format, checkout_around, locate
from uwf_git.store.locks import Locks
from uwf_git.store.new_record import THREADS
from uwf_git.store.private import NONCE_VARIABLE, Folders, Runs, Sessions, Trusted
from uwf_git.store.threads import Threads
from uwf_git.store.witness import Witness

if TYPE_CHECKING:
    from uwf_git.base.log_files import Record
    from uwf_git.config.secrets import Redactor, Secrets
    from uwf_git.config.settings import Config, Price
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import TurnRecord
    from uwf_git.git.objects import Person
    from uwf_git.store.attempts import Attempts
    from uwf_git.store.index import CommitRow
    from uwf_git.store.mailbox import Mailbox
    from uwf_git.store.new_record import NewRecord
    from uwf_git.store.permission_files import PermissionFiles
    from uwf_git.store.remotes import Remotes
    from uwf_git.store.setups import Setup, Setups
    from uwf_git.store.versions import Registry


class Resource(Protocol):
    """A resource that an agent keeps between steps, until it is closed."""

    def close(self) -> None: ...


class Listener(Protocol):
    """Hears the stream of an in-process agent, without secrets."""

    def said(self, text: str) -> None:
        """The next words of a model."""

    def dropped(self) -> None:
        """The words since the last turn are discarded: the model is called again."""

    def called(self, turn: TurnRecord) -> None: ...


class DecisionBudget:
    """The shared time limit of slow decisions. `stuck` are heads whose decision hit a limit; `unjudged` are
    those without time left, with their threads."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.stuck: dict[Hash, UwfError] = {}
        self.unjudged: dict[Hash, set[ThreadId]] = {}

    @property
    def threads(self) -> list[ThreadId]:
        """The threads whose next role is undecided."""
        return sorted(set().union(*self.unjudged.values()))


LOG_VARIABLE = "UWF_LOG"
SHELL_VARIABLE = "UWF_BUILTIN_ALLOW_SHELL"


class Instance:
    """An open store. Configuration and secrets are read on demand; `config` replaces config.yaml."""

    def __init__(
        self, location: Location, environ: Mapping[str, str] | None = None, config: Config | None = None
    ) -> None:
        check_format(location.git_dir)
        if time.time() < 0:  # neither ids nor git have such times
            raise Invalid("the clock of this machine is before 1970", "set it, and repeat this")
        self._may_layer = config is None
        if config is not None:
            self.config = config
        self.location = location
        self.environ = os.environ if environ is None else environ
        self.store = Store.open(location.git_dir)
        self.store.gate = self._refuse_secrets
        self.store.before_record = self._ask_guards
        self.store.repository.before_naming = self._refuse_secret_names
        self._named: Person | None = None  # the user, once no secret was found in the name
        private = self.store.repository.private
        self.threads = Threads(self.store)
        self.store.registers = lambda ref: self.threads.projects.note_definition(ref)
        self.locks = Locks(private)
        self.runs = Runs(private, self.environ.get(NONCE_VARIABLE, ""))
        self.folders = Folders(private)
        avoid_all(private, self.folders.all)  # agents may have put programs there
        self.sessions = Sessions(private)
        self.trusted = Trusted(private)
        self.warn: Callable[[str], None] = lambda text: None
        """Takes what somebody should know beside a result, in a line; the command prints it."""
        self.witness = Witness(
            self.store.repository, location.here, self.environ, lambda text: self.warn(text), location.git_dir
        )
        self.store.repository.on_moves = self.witness.on_moves
        self.after: Callable[[Callable[[], None]], None] = lambda act: act()
        """Takes what is done once the result is known, such as to run a hook; the command prints the result first."""
        self.listener: Listener | None = None
        """Hears what is said in the steps that are made here; the command sets it where somebody listens."""
        self._layers: dict[str, Config] = {}
        self._known_checkouts: set[Path] = set()
        self._looked_at_setup = False
        self.kept: dict[ThreadId, Resource] | None = None
        """What agents keep running between two steps of a thread, where somebody does more than one; see `keeping`."""

    @classmethod
    def open(cls, root: str | None = None, cwd: Path | None = None) -> Instance:
        """Return the instance for options, environment and current folder. Raises NotFound without a store."""
        location = locate(root, os.environ, cwd or Path.cwd())
        if level := wanted_log(os.environ):
            begin_log(location, level)
        return cls(location)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Let agents keep resources between steps during the outermost such block."""
        if self.kept is not None:
            yield
            return
        with ExitStack() as stack:
            kept = self.kept = {}
            try:
                yield
            finally:
                self.kept = None
                for resource in kept.values():
                    stack.callback(resource.close)

    def raise_if_rolled_back(self, thread: ThreadId) -> None:
        """Raise RolledBack if the thread lacks a head, or an end, that this user's uwf has recorded or seen."""
        self.witness.raise_if_lost(layout.THREADS + thread, layout.ARCHIVE + thread)

    def _ask_guards(self, record: NewRecord) -> None:
        if record.kind != THREADS and (row := ref_kinds.kind_of_record(record.kind)) is not None:
            self.witness.raise_if_lost(row.prefix + record.name)
        for guard in extensions.guards():
            guard(self, record)

    def require_person(self, what: str, answers: bool = False) -> None:
        """Raise RequirementUnmet within a step, which doesn't do `what` in the user's name, such as "kills a thread",
        and within a hook if that `answers`. A step may do that in a store of its own, which no other machine knows."""
        from uwf_git.sandbox.enclosing_step import require_person

        shared = self.location.here or bool(self.store.repository.config.entries("remote."))
        require_person(what, self.location.root, self.environ, shared, answers)

    def known_roles(self) -> dict[str, set[str]]:
        """Return the sections and keys under which a configuration may name agents of every registered or running
        workflow, over all versions in use. Unreadable ones are omitted."""
        from uwf_git.format.casting import Cast
        from uwf_git.store import definitions

        nodes = set()
        for name in self.registry.names():
            with suppress(UwfError):
                nodes.add(self.registry.current(name).hash)
        for packages in definitions.packages(self.store):
            for name in packages.names():
                with suppress(UwfError):
                    nodes.update(offer.workflow for offer in packages.offers(f"{name}/"))
        nodes |= {
            head.row.workflow for head in self.threads.all() if isinstance(head, Head) and head.row.workflow
        }
        known: dict[str, set[str]] = {}
        for node in nodes:
            with suppress(UwfError):
                for section, keys in Cast(self.registry.workflow(node)).sections.items():
                    known.setdefault(section, set()).update(keys)
        return known

    @cached_property
    def config(self) -> Config:
        """The user's config.yaml; `config_of` and `config_at` also have what a project's set-up adds. Raises
        Invalid."""
        from uwf_git.config.read import load_config

        config = load_config(self.location.root)
        if config.tools.run_command is None and self.environ.get(SHELL_VARIABLE) == "1":
            config = config._replace(tools=config.tools._replace(run_command=True))
        for provider in config.providers.values():
            if provider.api_key:
                self.warn(f"config.yaml holds the key of provider {provider.name}: {provider.advice}")
        return config

    @cached_property
    def setups(self) -> Setups:
        """The set-ups of projects."""
        from uwf_git.store.setups import Setups

        return Setups.of_location(self.location)

    def config_of(self, row: CommitRow) -> Config:
        """Return the configuration for a thread: the user's, and what they have allowed of the set-up of its project.
        Raises Invalid."""
        return self._layered(self.setups.of_label(row.project)) if self._has_allowed else self.config

    def config_at(self, folder: Path) -> Config:
        """Return the configuration for a thread that is started in a folder, as `config_of`."""
        return self._layered(self.setups.at(folder)) if self._has_allowed else self.config

    @property
    def _has_allowed(self) -> bool:
        return self._may_layer and os.path.isdir(f"{self.location.root}/{ALLOWED}")  # noqa: PTH112

    def _layered(self, setup: Setup | None) -> Config:
        if setup is None:
            return self.config
        if setup.digest not in self._layers:
            from uwf_git.config.project import layered

            self._layers[setup.digest] = layered(self.location.root, self.config, setup.settings())
        return self._layers[setup.digest]

    def warn_of_setup(self) -> None:
        """Warn once if the project around the current folder has a set-up that the user hasn't allowed."""
        if self._may_layer and not self._looked_at_setup:
            self._looked_at_setup = True
            with suppress(OSError):
                if line := setup_problem(self.location, Path.cwd()):
                    self.warn(line)

    def unallowed_setup(self, workflow: str) -> str:
        """Return a line if the project around the current folder has a set-up with that workflow, and nothing of it was
        ever allowed."""
        with suppress(OSError, UwfError):  # one that cannot be read says nothing about the workflow
            if self._may_layer:
                state = self.setups.state_at(Path.cwd())
                if state.allowed is None and state.here is not None and state.here.has_workflow(workflow):
                    return state.refusal
        return ""

    @cached_property
    def judging(self) -> DecisionBudget:
        """The decisions of a command or request."""
        return DecisionBudget(Budget(self.store.repository.config.max_verify))

    def renew_judging(self) -> None:
        """Reset the time limit of slow decisions, for each step."""
        self.__dict__.pop("judging", None)

    @cached_property
    def mailbox(self) -> Mailbox:
        from uwf_git.store.mailbox import Mailbox

        return Mailbox(self.store.repository.private)

    @cached_property
    def permission_files(self) -> PermissionFiles:
        from uwf_git.store.permission_files import PermissionFiles

        return PermissionFiles(self.store.repository.private)

    @cached_property
    def attempts(self) -> Attempts:
        from uwf_git.store.attempts import Attempts

        return Attempts(self.store)

    @cached_property
    def registry(self) -> Registry:
        from uwf_git.store.versions import Registry

        return Registry(self.store)

    def config_has(self, word: bytes, row: CommitRow | None = None) -> bool:
        """Return whether a word is in config.yaml, or in what a thread's project adds, to avoid parsing them. Raises
        OSError."""
        if word in (read_file(f"{self.location.root}/config.yaml") or b""):
            return True
        setup = self.setups.of_label(row.project) if row is not None and self._has_allowed else None
        return setup is not None and word in setup.files.get("config.yaml", "").encode()

    def config_with(self, word: bytes, row: CommitRow) -> Config | None:
        """Return the configuration for a thread if a word is in it; also None if it cannot be read, which the command
        that needs it reports."""
        with suppress(OSError, UwfError):
            if self.config_has(word, row):
                return self.config_of(row)
        return None

    @property
    def known_prices(self) -> Mapping[str, Price]:
        """The prices of models; none if config.yaml, which is parsed only if it has any, cannot be read."""
        try:
            return self.config.prices if self.config_has(b"price") else {}
        except (OSError, UwfError):  # reported by the command that needs the configuration
            return {}

    def may_ask_people(self, row: CommitRow) -> bool:
        """Return whether a person may play a role of a thread's workflow here, as it or the configuration says, to
        avoid parsing them."""
        if self.threads.has_people(row.workflow):
            return True
        try:
            return self.config_has(b"human", row)
        except OSError:  # reported by the command that needs the configuration
            return False

    @cached_property
    def remotes(self) -> Remotes:
        from uwf_git.store.remotes import Remotes

        return Remotes(self.store.repository, self.location.here)

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets by variable name, which must never reach a node."""
        from uwf_git.config.secrets import load_secrets

        return load_secrets(self.location.root, self.config, self.environ)

    @cached_property
    def redactor(self) -> Redactor:
        from uwf_git.config.secrets import Redactor

        redactor = self.__dict__["redactor"] = Redactor(self.secrets)
        with suppress(OSError):
            self.know_secrets_of(Path.cwd())
        return redactor

    def know_secrets_of(self, folder: Path) -> None:
        """Let the secrets in settings files of the checkout around a folder be known to this process."""
        from uwf_git.config.secrets import checkout_secrets, learn

        checkout = checkout_around(folder)
        if checkout is None or checkout.top is None or checkout.top in self._known_checkouts:
            return
        self._known_checkouts.add(checkout.top)
        harmless, _ = self.secrets.harmless, self.redactor  # which is there to learn them
        variables = checkout_secrets(checkout.top, checkout.git_dir)
        learn({name: value for name, value in variables.items() if name not in harmless})

    def _refuse_secrets(self, content: Any, where: str, kept: str) -> None:
        self._refuse_secret_names(self.store.repository.config.user)
        self.redactor.refuse(content, where, kept)

    def _refuse_secret_names(self, user: Person) -> None:
        if user == self._named:
            return
        for setting, variable, text in (
            ("user.name", "GIT_COMMITTER_NAME", user.name),
            ("user.email", "GIT_COMMITTER_EMAIL", user.email),
        ):
            if spot := self.redactor.first(text):
                where = variable if os.environ.get(variable) else f"git config {setting}"
                raise Invalid(
                    f"{where} holds {spot}, and every commit is written with it",
                    f"change it: git config --global {setting} TEXT; if it is not a secret, name its variable in"
                    " notSecrets",
                )
        self._named = user

    @property
    def user_name(self) -> str:
        """The name and address of the user, without secrets, for what is no commit."""
        return self.redactor.text(self.store.repository.config.user.ident)[0]

    def without_secrets(self, text: str, what: str) -> str:
        """Return a text without secrets, with a warning about `what` if there were any."""
        clean, count = self.redactor.text(text)
        if count:
            self.warn(f"removed {counted(count, 'secret')} from {what}")
        return clean


def setup_problem(location: Location, folder: Path) -> str:
    """Return a line about the set-up of the project around a folder that the user hasn't allowed, "" for none. One that
    was allowed before counts again."""
    checkout = checkout_around(folder)
    if checkout is None or checkout.top is None or not os.path.lexists(f"{checkout.top}/.uwf"):
        return ""
    from uwf_git.store.setups import HINT, Setups

    try:
        problem, hint = Setups.of_location(location).state_at(folder).problem, HINT
    except UwfError as error:
        problem, hint = error.message, error.hint
    return f"{problem} — {hint}" if problem else ""


def redactor_at(location: Location) -> Redactor:
    """Return a redactor for a location's readable secrets."""
    from uwf_git.config.read import load_config
    from uwf_git.config.secrets import Redactor, load_secrets

    config = None
    secrets: Mapping[str, str] = {}
    with suppress(UwfError):  # reported by the command that needs it
        config = load_config(location.root)
    with suppress(UwfError):
        secrets = load_secrets(location.root, config, os.environ)
    return Redactor(secrets)


def wanted_log(environ: Mapping[str, str], warn: Callable[[str], None] = lambda text: None) -> int | None:
    """Return the log level of UWF_LOG, None for no log. Invalid levels are passed to `warn`."""
    named = environ.get(LOG_VARIABLE, "").strip().lower()
    if named in ("", "off", "0", "false", "no", "none"):
        return None
    from uwf_git.base.log import LEVELS

    if named in ("on", "1", "true", "yes"):
        return LEVELS["debug"]
    if named not in LEVELS:
        known = ", ".join(LEVELS)
        warn(
            f"{LOG_VARIABLE} is {environ[LOG_VARIABLE]!r}, which is not a level, so nothing is logged: {known}, off"
        )
    return LEVELS.get(named)


def log_folder(location: Location) -> Path:
    return location.git_dir / PRIVATE / "logs"


def begin_log(
    location: Location,
    level: int,
    show: Callable[[Record], None] | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> None:
    """Start this process's log, with the currently known secrets removed; see `open_log`."""
    from uwf_git.base.log_files import open_log

    redactor = redactor_at(location)
    open_log(level, log_folder(location), lambda value: redactor.value(value)[0], show, warn)
