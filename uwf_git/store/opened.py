"""Everything one process has open of one location: the store and what stands on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from uwf_git.base.errors import Invalid, UwfError
from uwf_git.base.text import counted
from uwf_git.base.timelimit import Budget
from uwf_git.git.refs import read_file
from uwf_git.git.repository import PRIVATE
from uwf_git.sandbox.programs import avoid_all
from uwf_git.store.history import Head
from uwf_git.store.location import Location, check_format, locate
from uwf_git.store.locks import Locks
from uwf_git.store.private import NONCE_VARIABLE, Folders, Runs, Sessions, Trusted
from uwf_git.store.taking_in import Store
from uwf_git.store.threads import Threads

if TYPE_CHECKING:
    from uwf_git.base.log_files import Record
    from uwf_git.config.secrets import Redactor, Secrets
    from uwf_git.config.settings import Config
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import TurnRecord
    from uwf_git.git.objects import Person
    from uwf_git.store.attempts import Attempts
    from uwf_git.store.remotes import Remotes
    from uwf_git.store.versions import Registry


class Kept(Protocol):
    """What an agent keeps running, until it is closed."""

    def close(self) -> None:
        """Ends it."""


class Listener(Protocol):
    """Somebody who hears at once what an agent says that runs in this process. Secrets are out of it."""

    def said(self, text: str) -> None:
        """The next words of a model."""

    def dropped(self) -> None:
        """What a model has said since its last turn doesn't count: it broke off, and is asked again."""

    def called(self, turn: TurnRecord) -> None:
        """A tool was called, and that came of it."""


class Judging:
    """The time that slow decisions may take together. `stuck` are the heads whose decision met a limit; `unjudged` are
    those of them for which no time was left, with their threads."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.stuck: dict[Hash, UwfError] = {}
        self.unjudged: dict[Hash, set[ThreadId]] = {}

    @property
    def threads(self) -> list[ThreadId]:
        """The threads whose next role was not judged."""
        return sorted(set().union(*self.unjudged.values()))


LOG_VARIABLE = "UWF_LOG"


class Instance:
    """An opened location. Configuration and secrets are read when first asked for; a `config` that is given takes the
    place of config.yaml."""

    def __init__(
        self, location: Location, environ: Mapping[str, str] | None = None, config: Config | None = None
    ) -> None:
        check_format(location.git_dir)
        if config is not None:
            self.config = config
        self.location = location
        self.environ = os.environ if environ is None else environ
        self.store = Store.open(location.git_dir)
        self.store.gate = self._refuse_secrets
        self.store.repository.before_naming = self._refuse_secret_names
        self._named: Person | None = None  # the user, once no secret was found in the name
        private = self.store.repository.private
        self.threads = Threads(self.store)
        self.locks = Locks(private)
        self.runs = Runs(private, self.environ.get(NONCE_VARIABLE, ""))
        self.folders = Folders(private)
        avoid_all(private, self.folders.all)  # agents may have put programs there
        self.sessions = Sessions(private)
        self.trusted = Trusted(private)
        self.warn: Callable[[str], None] = lambda text: None
        """Takes what somebody should know beside a result, in a line; the command prints it."""
        self.after: Callable[[Callable[[], None]], None] = lambda act: act()
        """Takes what is done once the result is known, such as to run a hook; the command prints the result first."""
        self.listener: Listener | None = None
        """Hears what is said in the steps that are made here; the command sets it where somebody listens."""
        self.kept: dict[ThreadId, Kept] | None = None
        """What agents keep running between two steps of a thread, where somebody does more than one; see `keeping`."""

    @classmethod
    def open(cls, root: str | None = None, cwd: Path | None = None) -> Instance:
        """The instance that options, environment and current folder lead to. Raises NotFound where there
        is no store yet."""
        location = locate(root, os.environ, cwd or Path.cwd())
        if level := wanted_log(os.environ):
            begin_log(location, level)
        return cls(location)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Lets agents keep between two steps of a thread what it would take long to start anew. At the end of the
        outermost such block it is closed."""
        if self.kept is not None:
            yield
            return
        with ExitStack() as stack:
            kept = self.kept = {}
            try:
                yield
            finally:
                self.kept = None
                for each in kept.values():
                    stack.callback(each.close)

    def known_roles(self) -> dict[str, set[str]]:
        """The roles of every workflow that is registered or that an active thread runs, by the workflow's name: those
        of its newest version and of the versions in use; of a crew's also its personas, which are there by the crew's
        name too. What can't be read is left out."""
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
                workflow = self.registry.workflow(node)
                known.setdefault(workflow.name, set()).update(workflow.roles, workflow.personas)
                if workflow.crew is not None:
                    known.setdefault(workflow.crew.name, set()).update(workflow.personas)
        return known

    @cached_property
    def config(self) -> Config:
        """The user's config.yaml. Raises Invalid."""
        from uwf_git.config.read import load_config

        config = load_config(self.location.root)
        for provider in config.providers.values():
            if provider.api_key:
                self.warn(f"config.yaml holds the key of provider {provider.name}: {provider.advice}")
        return config

    @cached_property
    def judging(self) -> Judging:
        """The decisions on all threads that a command or a request looks at."""
        return Judging(Budget(self.store.repository.config.max_verify))

    def renew_judging(self) -> None:
        """Gives slow decisions all of their time again: each step has it."""
        self.__dict__.pop("judging", None)

    @cached_property
    def attempts(self) -> Attempts:
        """The attempts that failed."""
        from uwf_git.store.attempts import Attempts

        return Attempts(self.store)

    @cached_property
    def registry(self) -> Registry:
        """The workflows by their names."""
        from uwf_git.store.versions import Registry

        return Registry(self.store)

    def config_has(self, word: bytes) -> bool:
        """Whether a word is in config.yaml, which is parsed only where it is. Raises OSError for a file that can't be
        read."""
        return word in (read_file(self.location.root / "config.yaml") or b"")

    @cached_property
    def remotes(self) -> Remotes:
        """The remotes that threads are shared with."""
        from uwf_git.store.remotes import Remotes

        return Remotes(self.store.repository, self.location.here)

    @cached_property
    def secrets(self) -> Secrets:
        """What must never reach a node, by variable name."""
        from uwf_git.config.secrets import load_secrets

        return load_secrets(self.location.root, self.config, self.environ)

    @cached_property
    def redactor(self) -> Redactor:
        """Replaces the secrets in what is about to be stored."""
        from uwf_git.config.secrets import Redactor

        return Redactor(self.secrets)

    def _refuse_secrets(self, content: Any, where: str, kept: str) -> None:
        self._refuse_secret_names(self.store.repository.config.user)
        self.redactor.refuse(content, where, kept)

    def _refuse_secret_names(self, user: Person) -> None:
        """Raises Invalid for a user in whose name, which all commits and tags hold, there is a secret."""
        if user == self._named:
            return
        for setting, variable, said in (
            ("user.name", "GIT_COMMITTER_NAME", user.name),
            ("user.email", "GIT_COMMITTER_EMAIL", user.email),
        ):
            if spot := self.redactor.first(said):
                where = variable if os.environ.get(variable) else f"git config {setting}"
                raise Invalid(
                    f"{where} holds {spot}, and every commit is written with it",
                    f"change it: git config --global {setting} TEXT; if it is no secret, name its variable in"
                    " notSecrets",
                )
        self._named = user

    def without_secrets(self, text: str, what: str) -> str:
        """What somebody has said, without the secrets in it, of which they are told. `what` it is: "the prompt"."""
        clean, count = self.redactor.text(text)
        if count:
            self.warn(f"took {counted(count, 'secret')} out of {what}")
        return clean


def redactor_at(location: Location) -> Redactor:
    """Replaces the secrets that are known at a location, as far as they can be read there."""
    from uwf_git.config.read import load_config
    from uwf_git.config.secrets import Redactor, load_secrets

    config = None
    secrets: Mapping[str, str] = {}
    with suppress(UwfError):  # whoever needs it says what is wrong with it
        config = load_config(location.root)
    with suppress(UwfError):
        secrets = load_secrets(location.root, config, os.environ)
    return Redactor(secrets)


def wanted_log(environ: Mapping[str, str], warn: Callable[[str], None] = lambda text: None) -> int | None:
    """The level of the log that UWF_LOG asks for; None for no log. `warn` is told of what is no level."""
    named = environ.get(LOG_VARIABLE, "").strip().lower()
    if named in ("", "off", "0", "false", "no", "none"):
        return None
    from uwf_git.base.log import LEVELS

    if named in ("on", "1", "true", "yes"):
        return LEVELS["debug"]
    if named not in LEVELS:
        known = ", ".join(LEVELS)
        warn(
            f"{LOG_VARIABLE} is {environ[LOG_VARIABLE]!r}, which is no level, so nothing is logged: {known}, off"
        )
    return LEVELS.get(named)


def log_folder(location: Location) -> Path:
    """Where the log of a store is."""
    return location.git_dir / PRIVATE / "logs"


def begin_log(
    location: Location,
    level: int,
    show: Callable[[Record], None] | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> None:
    """Begins the log of this process, without the secrets that are known at this moment; see `open_log`."""
    from uwf_git.base.log_files import open_log

    redactor = redactor_at(location)
    open_log(level, log_folder(location), lambda value: redactor.value(value)[0], show, warn)
