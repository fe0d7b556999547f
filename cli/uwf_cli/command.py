"""Common parts of commands: `--root`, `--format`, `--json`, `--all-projects` and `--debug` in any position, help that
begins with examples, did-you-mean, lazy subcommands."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import click

from uwf_cli.invocation import Invocation
from uwf_cli.output import FORMATS
from uwf_git.base import extensions
from uwf_git.base.errors import Usage


def _keep(attribute: str) -> Any:
    def callback(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            invocation = context.ensure_object(Invocation)
            setattr(invocation, attribute, value)
            invocation.command_names = lambda: _names_of(context.find_root().command)

    return callback


def _names_of(command: click.Command) -> Iterable[str]:
    return command.members if isinstance(command, Group) else ()


def printing(*names: str, text: Callable[[click.Context], str], told: str) -> click.Option:
    """Return an option that prints a text and ends the command. Those of click look for translations of their help, for
    which `locale` is loaded."""

    def callback(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            click.echo(text(context), color=context.color)
            context.exit()

    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=callback, help=told)


class Number(click.FloatRange):
    """A number within bounds, not NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


@cache
def _shared_options() -> tuple[click.Parameter, ...]:
    def option(*names: str, keep: str, **keywords: Any) -> click.Option:
        return click.Option(names, expose_value=False, is_eager=True, callback=_keep(keep), **keywords)

    formats = click.Choice(FORMATS)
    flag = {"is_flag": True, "default": None}
    told = "Output format. Default: text on a terminal, JSON elsewhere, or UWF_FORMAT."
    root = "Storage root. Default: UWF_STORAGE_ROOT, or the store of this folder."
    every = "Mean the threads of all projects, not of this one."
    debug = "Write debug records to the log and to standard error."
    return (
        option("--format", keep="format_option", type=formats, help=told),
        option("--json", "as_json", keep="format_option", flag_value="json", help="Short for --format json."),
        option("--root", keep="root_option", metavar="DIR", help=root),
        option("--all-projects", keep="all_projects", help=every, **flag),
        option("--debug", keep="debug_option", help=debug, **flag),
        printing("-h", "--help", text=click.Context.get_help, told="Show this message and exit."),
    )


class Command(click.Command):
    """A command with the shared options. Its help has examples, usage, description and options, in this
    order."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **keywords: Any) -> None:
        super().__init__(*args, **{"add_help_option": False, **keywords})
        self.examples = examples
        self.params.extend(_shared_options())

    def invoke(self, context: click.Context) -> Any:
        """Run the command, once all options are known."""
        if not isinstance(self, Group):
            context.ensure_object(Invocation).begin_log()
        return super().invoke(context)

    def format_help(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("Examples:\n")
        for line in _laid_out(self.examples):
            formatter.write(f"  {line}\n")
        formatter.write_paragraph()
        super().format_help(context, formatter)


def _laid_out(examples: Sequence[str]) -> list[str]:
    if all(len(line) <= 78 for line in examples):
        return list(examples)
    parts = [re.split(r"(?<=\S) {2,}", line, maxsplit=1) for line in examples]
    size = max((len(part[0]) for part in parts if len(part) > 1), default=0)
    return ["  ".join((part[0].ljust(size), *part[1:])).rstrip() for part in parts]


def command(*examples: str, cls: type[Command] = Command) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a function as a command with examples. It is called with the Invocation and its parameters;
    its docstring is the help."""

    def made(function: Callable[..., None]) -> click.Command:
        return click.command(cls=cls, examples=examples)(click.pass_obj(function))

    return made


class CommandEntry(NamedTuple):
    """A command's `module:attribute`, and its line in the group's help."""

    where: str
    line: str


class Group(Command, click.Group):
    """Commands by name, its own and extensions', imported on demand. `sections` are the headings of its help;
    extensions may add to them."""

    def __init__(
        self,
        name: str,
        members: Mapping[str, CommandEntry | click.Command],
        examples: Sequence[str] = (),
        sections: Mapping[str, Sequence[str]] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(
            name, examples=examples, invoke_without_command=True, callback=_help_if_alone, **keywords
        )
        self.own = members
        self._sections = sections or {"Commands": tuple(members)}

    @property
    def _path(self) -> str:
        return "" if self.name == "uwf" else str(self.name)

    @property
    def members(self) -> Mapping[str, CommandEntry | click.Command]:
        added = {
            name: CommandEntry(command.where, command.line)
            for name, command in extensions.commands(self._path).items()
        }
        return {**self.own, **{name: place for name, place in added.items() if name not in self.own}}

    @property
    def sections(self) -> Mapping[str, Sequence[str]]:
        """The headings of the help, with names."""
        sections = {heading: list(names) for heading, names in self._sections.items()}
        for name, command in extensions.commands(self._path).items():
            if name not in self.own:
                sections.setdefault(command.section or next(iter(sections)), []).append(name)
        return sections

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.members)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return self.member(name)

    def member(self, name: str) -> click.Command | None:
        member = self.own.get(name) or extensions.command(self._path, name)
        if member is None or isinstance(member, click.Command):
            return member
        member_command = extensions.load(member.where)
        assert isinstance(member_command, click.Command)
        return member_command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        members = self.members
        widest = max(map(len, members))
        for heading, names in self.sections.items():
            with formatter.section(heading):
                rows = [(name.ljust(widest), members[name]) for name in names]
                formatter.write_dl(
                    [
                        (name, member.line if isinstance(member, CommandEntry) else member.help or "")
                        for name, member in rows
                    ]
                )

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        member_command = self.get_command(context, name)
        if member_command is None and not context.resilient_parsing:
            path = context.command_path
            meant = _suggest(context, self, name)
            hint = f'did you mean "{meant}"?' if meant else f"see: {path} --help"
            raise Usage(f"{path} has no command {name!r}", hint)
        if name not in self.own and not isinstance(member_command, click.Group) and len(args) > 1:
            below = " ".join(args[:2])  # as `web invite`, of an extension that has `web` too
            if (command := self.get_command(context, below)) is not None:
                return below, command, args[2:]
        return name, member_command, args[1:]


def group(package: str, name: str, members: Mapping[str, tuple[str, str] | Group], **keywords: Any) -> Group:
    """Return a group. A member is a module of a package with the line of its help. The command is a function of its
    name there, with an underscore behind a name of Python's own, or the one behind a colon."""
    entries: dict[str, CommandEntry | click.Command] = {}
    for command_name, member in members.items():
        if isinstance(member, Group):
            entries[command_name] = member
            continue
        module, _, function = member[0].partition(":")
        called = command_name.replace("-", "_")
        is_pythons = keyword.iskeyword(called) or hasattr(builtins, called)
        function = function or called + "_" * is_pythons
        entries[command_name] = CommandEntry(f"{package}.{module}:{function}", member[1])
    return Group(name, entries, **keywords)


_SYNONYMS = {
    "add": ("put",),
    "cancel": ("kill",),
    "cat": ("read", "get", "show"),
    "comment": ("say",),
    "continue": ("run", "step"),
    "create": ("start", "put", "init"),
    "crew add": ("import",),
    "crew put": ("import",),
    "config delete": ("unset",),
    "config rm": ("unset",),
    "del": ("rm", "remove"),
    "delete": ("rm", "remove"),
    "edit": ("put", "set"),
    "end": ("kill",),
    "find": ("grep", "list"),
    "follow": ("watch",),
    "history": ("steps", "log"),
    "info": ("show",),
    "jobs": ("ps", "list"),
    "lint": ("validate",),
    "logs": ("read",),
    "ls": ("list",),
    "monitor": ("watch", "ps"),
    "manual": ("guide",),
    "new": ("start", "put", "init"),
    "persona": ("crew",),
    "prune": ("gc",),
    "register": ("put",),
    "remark": ("say",),
    "remove": ("rm",),
    "reply": ("answer",),
    "rm": ("remove",),
    "search": ("grep", "list"),
    "skill": ("guide",),
    "status": ("show", "list"),
    "stop": ("stop", "pause", "kill"),
    "tail": ("watch",),
    "tell": ("say",),
    "test": ("rehearse",),
    "unpause": ("resume",),
    "view": ("show", "read"),
    "wait": ("wait", "run"),
}
"""What people call commands elsewhere, in a group or anywhere, and what they may mean by it here, best first."""

_PHRASES = {
    "uwf status": "uwf thread list",
    "uwf version": "uwf --version",
    "uwf config path": "uwf config list",
    "uwf config show": "uwf config list",
}
"""Commands that other programs have, and the command here that prints the same, if its name is no synonym."""

_DESTRUCTIVE = ("rm", "remove", "kill")
"""Commands that are not suggested to a user of another group."""


def _suggest(context: click.Context, group: Group, name: str) -> str | None:
    from difflib import SequenceMatcher

    if (phrase := f"{context.command_path} {name.casefold()}") in _PHRASES:
        return _PHRASES[phrase]
    root = context.find_root()
    assert isinstance(root.command, Group)
    everywhere = _paths(root.command, str(root.info_name))
    here = {member: f"{context.command_path} {member}" for member in group.members}
    wanted = name.casefold()
    meant = _SYNONYMS.get(f"{group.name} {wanted}", _SYNONYMS.get(wanted, ()))
    # A name of another group's command is suggested unless it more often means another word.
    for paths, words in ((here, (wanted, *meant)), (everywhere, (*meant, wanted))):
        for word in words:
            if word in paths and (paths is here or group is root.command or word not in _DESTRUCTIVE):
                return paths[word]

    def likeness(known: str) -> float:
        return SequenceMatcher(None, wanted[:200], known).ratio() + (0.1 if known in here else 0)

    near = max((*here, *_SYNONYMS, *everywhere), key=likeness)
    return _suggest(context, group, near) if near != wanted and likeness(near) >= 0.75 else None


def _paths(root: Group, name: str) -> dict[str, str]:
    names = [name for name, item in root.members.items() if name not in root.own or isinstance(item, Group)]
    groups = [group for name in names if isinstance(group := root.member(name), Group)]
    groups.sort(key=lambda entry: entry.name != "thread")
    paths = {member: f"{name} {member}" for member in root.members}
    for group in groups:
        for member, path in _paths(group, f"{name} {group.name}").items():
            paths.setdefault(member, path)
    return paths


@click.pass_context
def _help_if_alone(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), color=False)
