"""One call of the command: its options, location and output."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_cli import output, terminal
from uwf_git.base import log
from uwf_git.base.errors import Usage, UwfError

if TYPE_CHECKING:
    from uwf_cli.views import View
    from uwf_git.format.ids import ThreadId
    from uwf_git.git.repository import Repository
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import Location


_KEY = "--api-key"
_HINTS = frozenset(("hint", "command"))
_QUOTED = r"""(?<!\S)('[^']*'(?:"'"'[^']*')*)"""  # as shlex.quote writes a word


PROGRAM = "uwf_cli.main:run"
"""What runs a command in a process that goes on."""


def itself(form: str | None, *arguments: str) -> list[str]:
    """Return the command line of another `uwf`, with format `form` if given."""
    # Without -P, modules of the folder would go before the installed ones.
    return [sys.executable, "-P", "-m", PROGRAM.partition(":")[0], *words_of(form, *arguments)]


def words_of(form: str | None, *arguments: str) -> list[str]:
    """Return the arguments of another `uwf`, with format `form` if given."""
    return [*(["--format", form] if form else []), *arguments]


def going_on_by(command: str) -> str:
    """Return the hint that a command goes on with what was interrupted."""
    return f"nothing is lost, {command} goes on"


class Invocation:
    """A call. `format_option` and `root_option` are None if not given; with the latter, `command_names()` are those of
    uwf. `going_on` is the command to continue after Ctrl-C; `exit_status` maps an error's code and status for commands
    with their own statuses. `warnings` are those that no printed value has yet. If it `stays`, the process makes
    further calls, and keeps the store open for them."""

    def __init__(self, stays: bool = False) -> None:
        self._stays = stays
        self.format_option: str | None = None
        self.root_option: str | None = None
        self.command_names: Callable[[], Iterable[str]] = lambda: ()
        self.debug_option = False
        self.all_projects = False
        self.going_on = ""
        self.exit_status: Callable[[str, int], int] = lambda _code, status: status
        self.warnings: list[str] = []
        self._after: list[Callable[[], None]] = []

    # Location

    def at_root(self, text: str) -> str:
        """Return a text whose commands of uwf, outside of quoted words, repeat this call's --root."""
        if self.root_option is None or "uwf " not in text:
            return text
        names = "|".join(map(re.escape, self.command_names()))
        repeated = f"uwf --root {shlex.quote(self.root_option)}"
        return re.sub(
            rf"{_QUOTED}|(?:(?<![\w./-])|(?<=\dm))uwf(?= (?:{names})\b)", lambda m: m[1] or repeated, text
        )

    @cached_property
    def location(self) -> Location:
        from uwf_git.store.location import locate

        return locate(self.root_option, os.environ, self._folder)

    @property
    def _folder(self) -> Path:
        try:
            return Path.cwd()
        except OSError:  # it was deleted; the command that needs it reports that
            return Path("/")

    @cached_property
    def instance(self) -> Instance:
        """The existing store. Raises NotFound."""
        if self._stays:
            from uwf_git.store.kept_store import open_store

            instance = open_store(self.location, os.environ)
        else:
            from uwf_git.store.instance import Instance

            instance = Instance(self.location)
        instance.warn = instance.store.repository.lockfiles.told = self.warn
        instance.after = self._after.append
        instance.threads.place = self.place
        return instance

    @property
    def place(self) -> Path | None:
        """The folder whose project's threads are meant if none is named, None for all threads."""
        return None if self.all_projects or self.location.here else self._folder

    def instance_for_writing(self) -> Instance:
        """The store, created if it is a root's own. Only `init --here` makes a project's repository a store."""
        if not self.location.here and not self.location.git_dir.exists():
            from uwf_git.store.location import init

            repository = init(self.location)
            self.note(f"made the store {self.location.git_dir}")
            self.note_identity(repository)
        return self.instance

    def note_identity(self, repository: Repository) -> None:
        """Note how to configure git's name and address if missing."""
        from uwf_git.git.config import SET_IDENTITY

        if missing := repository.config.missing_identity:
            self.note(f"{missing} — {SET_IDENTITY}")

    def begin_log(self) -> None:
        """Start the log of `--debug` or UWF_LOG, also for child processes. Only this process logs to standard
        error, since an agent's is parsed."""
        shown = os.environ.pop("UWF_LOG_STDERR", "") == "1" or self.debug_option
        if self.debug_option:
            os.environ["UWF_LOG"] = "debug"
        if os.environ.get("UWF_LOG"):
            from uwf_git.store.instance import begin_log, wanted_log

            if level := wanted_log(os.environ, self.warn):
                begin_log(self.location, level, self._show if shown else None, self.warn)
                self._log_call()

    def _log_call(self) -> None:
        import platform

        from uwf_git.base.version import VERSION

        log.debug(
            "AYE1AF6K",
            "uwf {version} is called: {arguments}",
            version=VERSION,
            arguments=_without_keys(sys.argv[1:]),
            folder=os.environ.get("PWD"),
            python=platform.python_version(),
            root=self.location.root,
            store=self.location.git_dir,
        )

    def _show(self, record: Mapping[str, Any]) -> None:
        from uwf_git.base.terminal import undisturbed

        is_json = self.format == "json"
        text = (
            output.as_json(record, compact=True) if is_json else output.as_line(terminal.escape_value(record))
        )
        with undisturbed():
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    # Output

    def afterwards(self) -> None:
        """Run what waits for the result to be printed. Raises what that raises."""
        self._name_unjudged()
        while self._after:
            self._after.pop(0)()

    def _name_unjudged(self) -> None:
        judging = self.__dict__["instance"].__dict__.get("judging") if "instance" in self.__dict__ else None
        if judging is not None and (threads := judging.threads):
            seconds = f"{judging.budget.seconds:g} s"
            more = self.instance.store.repository.config.to_raise("uwf.maxVerify", "600")
            self.warn(
                f"the next role was not determined: conditions took {seconds}, for "
                f"{', '.join(threads)} — allow more: {more}"
            )

    @cached_property
    def format(self) -> str:
        """The output format: option, `UWF_FORMAT`, else text on a terminal and JSON elsewhere. Raises Usage."""
        return self.chosen_format or ("text" if terminal.is_terminal(sys.stdout) else "json")

    @property
    def draws(self) -> bool:
        """Whether lines may be drawn over one another: text, on a terminal with colours."""
        return self.format == "text" and terminal.colours()

    @property
    def chosen_format(self) -> str | None:
        if self.format_option:
            return self.format_option
        named = os.environ.get("UWF_FORMAT")
        if not named:
            return None
        if named not in output.FORMATS:
            raise Usage(f"UWF_FORMAT is {named!r}", "it is one of " + ", ".join(output.FORMATS))
        return named

    def emit(
        self,
        value: Any,
        view: View | None = None,
        shown: Any = None,
        compact: bool = False,
    ) -> None:
        """Print a result. `view` formats it for people from `shown` or the value, escaped; the default is
        YAML. An object for machines has the warnings that came before it."""
        if self.format != "text" and isinstance(value, dict):
            value = with_warnings(value, self.warnings)
        if self.format == "json":
            self.write_parts(output.json_parts(value, compact=compact), "")
        elif self.format == "yaml":
            # Of several results each is a document of its own.
            document = ("---\n" if compact else "") + output.as_yaml(value)
            self.write(terminal.escape(document) if terminal.is_terminal(sys.stdout) else document)
        elif view is None:
            self.write(terminal.escape(output.as_yaml(value)))
        else:
            from uwf_cli.views import render

            shown = value if shown is None else shown
            text = render(view, terminal.escape_value(shown))
            self.write(text if self.root_option is None or _has_command(shown) else self.at_root(text))

    def emit_each(self, values: Iterable[Any], view: View) -> None:
        """Print results as they come, each as text; for machines one list, also if they break off."""
        if self.format == "text":
            for value in values:
                self.emit(value, view)
            return
        results: list[Any] = []
        try:
            results.extend(values)
        finally:
            self.emit(results)

    def emit_document(
        self, document: str | Iterable[str], value: Any | Callable[[], Any], rich: bool = False
    ) -> None:
        """Print a text such as Markdown, or its paragraphs; requests for JSON or YAML get `value`. Escaped on a
        terminal, and rendered as Markdown if `rich`."""
        parts = (document,) if isinstance(document, str) else document
        if self.chosen_format in ("json", "yaml"):
            self.emit(value() if callable(value) else value)
        elif terminal.is_terminal(sys.stdout) and rich:
            self.write_parts(map(terminal.markdown, parts), "\n")
        elif self.format == "text":
            self.write_parts(map(terminal.escape, parts), "\n\n")
        else:
            self.write_parts(parts, "\n\n")

    def write(self, text: str) -> None:
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
        sys.stdout.flush()

    def write_parts(self, parts: Iterable[str], between: str) -> None:
        """Print a long text in parts."""
        last = ""
        for number, part in enumerate(parts):
            if number:
                sys.stdout.write(last + between)
            last = part
        self.write(last)

    def note(self, text: str) -> None:
        """Print a note on standard error, except for JSON."""
        if self.format == "text":
            sys.stderr.write(f"uwf: {terminal.escape(self.at_root(text))}\n")

    def note_left_out(self) -> None:
        """Note after an empty answer that threads of other projects were not looked at, if there are some."""
        threads = self.instance.threads
        if self.format != "text" or threads.projects.here is None:
            return
        from uwf_git.api.listing import left_out_line

        if others := sum(not threads.is_meant(head) for head in threads.all(archived=True)):
            self.note(left_out_line(others))

    def say(self, text: str) -> None:
        """Print a line on standard error, in every format."""
        sys.stderr.write(f"uwf: {terminal.escape(self.at_root(text))}\n")
        sys.stderr.flush()

    def warn(self, text: str) -> None:
        """Print a warning on standard error, and keep it for the next value."""
        text = self.at_root(text)
        self.warnings.append(text)
        sys.stderr.write(f"uwf: {terminal.escape(text)}\n")
        sys.stderr.flush()


def find_thread(invocation: Invocation, text: str) -> ThreadId:
    """Return a thread by id or part, including fetched ones. Raises NotFound, Usage."""
    adopt_news(invocation)
    return invocation.instance.threads.find(text)


def find_head(invocation: Invocation, text: str) -> Head:
    """Return the head of a thread by id or part, as `find_thread`. Raises NotFound, Usage, StoreDamaged."""
    return invocation.instance.threads.head(find_thread(invocation, text))


def adopt_news(invocation: Invocation) -> None:
    """Verify and adopt what a plain `git fetch` brought. Problems are warnings."""
    if not invocation.location.git_dir.exists() or not invocation.instance.store.repository.has_tracking_refs:
        return
    from uwf_cli.exchange_output import TOLD
    from uwf_git.sync.pull import adopt_fetched

    try:
        for pulled in adopt_fetched(invocation.instance):
            if any(item.case.label in TOLD for item in pulled.adopted):
                invocation.note(f"adopted what git fetched from {pulled.remote}")
            for rewrite in pulled.rewrites:
                invocation.warn(f"{rewrite.message}; see: uwf pull {pulled.remote}")
            for refused in (ref for ref in pulled.refused if not ref.later):
                invocation.warn(
                    f"{refused.ref} of {pulled.remote} was not adopted; see: uwf verify --remote {pulled.remote}"
                )
    except UwfError as error:
        invocation.warn(error.message)


def with_warnings(value: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Return an object with these warnings under `warnings`, and empty their list. Findings that stand there already
    are objects with a message."""
    texts, warnings[:] = warnings[:], []
    if not texts:
        return value
    if present := value.get("warnings"):
        return {**value, "warnings": [*present, *({"message": text} for text in texts)]}
    return {**value, "warnings": texts}


def _has_command(value: Any) -> bool:
    """Return whether a value has a text with a command that isn't a hint of this program, such as an agent's."""
    if isinstance(value, Mapping):
        return any(_has_command(item) for key, item in value.items() if key not in _HINTS)
    if isinstance(value, list | tuple):
        return any(map(_has_command, value))
    return isinstance(value, str) and "uwf " in value


def _without_keys(arguments: Sequence[str]) -> list[str]:
    shown: list[str] = []
    sets, key = False, ""
    for argument in arguments:
        if sets and key:
            shown.append("…")
            continue
        if sets and not argument.startswith("-"):
            key = argument
        sets = sets or (argument == "set" and "config" in shown)
        name, equals, _ = argument.partition("=")
        if shown and shown[-1] == _KEY and argument != "-":
            argument = "…"
        elif name == _KEY and equals:
            argument = f"{name}=…"
        shown.append(argument)
    return shown
