"""Deciding an agent's permission requests, by policy or by a person: the one at the terminal, who is asked while the
agent continues, or one who finds the request in the inbox.

`tools.permissions` in the configuration lists what is granted without asking: see docs/reference/configuration.md. In a
crew's step, reading @pkg and @state and editing @state's document are granted. Denied tools refuse their kinds: `deny`
of run_command every execute, of write_file or edit_file every edit.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

from uwf_git.plugin import (
    DOCUMENT_MOUNT,
    FETCH_TOOL,
    RUN_TOOL,
    PermissionDecision,
    PermissionWish,
    StepFolders,
    ToolPolicy,
    TurnRecord,
    permission_line,
    permission_lines,
    permission_wish_value,
    system,
    terminal_undisturbed,
    written_out,
)

By = Literal["policy", "terminal", "person", "nobody"]

# Kinds of requests as tools in policies.
_TOOLS: Mapping[str, tuple[str, ...]] = {
    "read": ("read_file",),
    "edit": ("edit_file", "write_file"),
    "delete": ("write_file",),
    "move": ("write_file",),
    "search": ("grep",),
    "execute": (RUN_TOOL,),
    "fetch": (FETCH_TOOL,),
}
# Requests of these kinds are about files, whether or not they can be found in the input.
_OF_FILES = frozenset(("read", "edit", "delete", "move"))
_NAMES_FILE = re.compile(r"(?:^|_)(?:path|file|filename|filepath|folder|dir|directory|directorie)s?$")
_NAMES_ENDS = frozenset(("source", "destination", "target", "from", "to"))
_NAMES_COMMAND = frozenset(("command", "commands", "cmd", "script", "code", "argv", "shell"))
_PLAIN: Mapping[str, type] = {"description": str, "timeout": int}  # beside a command
_NAMES_CWD = re.compile(r"(?:cwd|work_?dir|(?:working|dir|directory)_?(?:dir|directory|path)|directory|dir)$")
# What codex tells beside a command without changing it.
_ABOUT = frozenset(
    (
        "call_id",
        "turn_id",
        "approval_id",
        "process_id",
        "reason",
        "parsed_cmd",
        "proposed_execpolicy_amendment",
    )
)
_SHELLS = ("sh", "bash", "zsh", "dash", "ash", "fish")
_GRANTS = ("allow_once",)  # agents may write permanent grants into their own settings
_REFUSALS = ("reject_once", "reject_always")
# With these a command is more than it looks like.
_STEERING = re.compile(r"[;&|<>$`(){}\\\n\r]")
_BY = {"policy": "by the configuration", "terminal": "at the terminal", "nobody": "nobody to ask"}
_WORDS = {"y": True, "yes": True, "n": False, "no": False}


class Option(NamedTuple):
    """An offered answer. `kind` is allow_once, allow_always, reject_once or reject_always."""

    id: str
    name: str
    kind: str


class Request(NamedTuple):
    """A permission request. `command` is None if there is none; `paths` are absolute. `unread` is the input
    as JSON if it may have a command or file that isn't understood, so that the title proves nothing, `more` the input
    if it has anything beside a command or paths. `is_bare`: nothing beside the command says how it is run, as an
    environment or a folder outside of the working directory does."""

    kind: str
    title: str
    command: str | None
    paths: tuple[str, ...]
    options: tuple[Option, ...]
    unread: str = ""
    more: str = ""
    is_bare: bool = True

    @property
    def wish(self) -> PermissionWish:
        """The request for a person, who is shown all input that is more than the command or the paths."""
        return PermissionWish(self.kind, self.title, self.command, self.paths, self.unread or self.more)

    @property
    def shown(self) -> str:
        return permission_line(self.wish)


class Decision(NamedTuple):
    """`option` is the chosen answer's id; None cancels, if none fits. `who` is a person that was not at the terminal;
    `always`: they decided it for every equal request."""

    granted: bool
    by: By
    option: str | None
    who: str = ""
    always: bool = False


def parse_request(call: Mapping[str, Any], options: Any, folder: Path) -> Request:
    """Parse a request about a tool call."""
    raw = call.get("rawInput")
    kind, named = kind_of(call) or "other", call.get("title")
    title = named.strip() if isinstance(named, str) else ""
    command = _command(raw.get("command"), raw.get("args")) if isinstance(raw, Mapping) else None
    paths = tuple(dict.fromkeys(os.path.normpath(folder / path) for path in _paths(call, raw, kind)))
    unread = ""
    if raw and command is None and (_hides_command(raw, kind) or (kind in _OF_FILES and not paths)):
        unread = json.dumps(raw, ensure_ascii=False)
    if kind == "execute" and command is None and not unread:
        command = title.strip("`")
    more = _more(call, raw, kind, command)
    is_bare = command is None or not raw or all(_leaves_command(key, raw, folder) for key in raw)
    return Request(kind, title, command, paths, tuple(_options(options)), unread, more, is_bare)


def kind_of(call: Mapping[str, Any]) -> str:
    kind = call.get("kind")
    return kind.strip().casefold() if isinstance(kind, str) else ""


def decide(
    request: Request, policy: ToolPolicy, folder: Path, places: StepFolders | None = None
) -> Decision | None:
    """Return the policy's decision, None if a person must decide. `places` are a crew's folders."""
    if _refused(request.kind, policy):
        return answer(request, False, "policy")
    if places is not None and _is_of_run(request, places):
        return answer(request, True, "policy")
    layers = policy.permissions
    if layers and all(any(_covers(entry, request, folder) for entry in globs) for globs in layers):
        return answer(request, True, "policy")
    return None


def answer(request: Request, granted: bool, by: By) -> Decision:
    """Return the decision with a matching option, preferably for this once."""
    for wanted in _GRANTS if granted else _REFUSALS:
        for option in request.options:
            if option.kind == wanted:
                return Decision(granted, by, option.id)
    return Decision(False, by, None)


def by_person(request: Request, decision: PermissionDecision) -> Decision:
    """Return a person's decision with a matching option."""
    own = answer(request, decision.granted, "person")
    return own._replace(who=decision.by, always=decision.always)


def outcome_of(decision: Decision) -> str:
    """Return a decision and who made it, for the record."""
    source = (
        f"by {decision.who}{', always' * decision.always}" if decision.by == "person" else _BY[decision.by]
    )
    return f"{'granted' if decision.granted else 'denied'}, {source}"


def turn_of(request: Request, decision: Decision, call: str) -> TurnRecord:
    """Return the turn that records a decision on a call of a tool."""
    result: dict[str, Any] = {"granted": decision.granted, "by": decision.by, "option": decision.option}
    if decision.who:
        result |= {"who": decision.who, "always": decision.always}
    arguments = {"kind": request.kind, "title": request.title[:500], "paths": [*request.paths[:50]]}
    turn = TurnRecord("tool", f"{request.shown}: {outcome_of(decision)}", "permission", arguments, result)
    return turn._replace(call=call[:200], failed=not decision.granted)


def forbidden(policy: ToolPolicy) -> frozenset[str]:
    """Return the kinds that are always refused."""
    return frozenset(kind for kind in _TOOLS if _refused(kind, policy))


def terminal() -> int | None:
    """Open the terminal of standard input; None if there is none or it cannot be read."""
    try:
        if not sys.stdin.isatty():
            return None
        descriptor = system.open_file(os.ttyname(sys.stdin.fileno()), os.O_RDWR | system.O_NOCTTY)
    except (OSError, ValueError, AttributeError):
        return None
    try:
        in_background = os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:
        in_background = False  # it isn't what controls this process, so reading won't stop it
    if in_background:
        os.close(descriptor)
        return None
    return descriptor


async def ask(request: Request, name: str, descriptor: int) -> Decision:
    """Ask at the terminal: a number, y or n. Ctrl-D refuses."""
    offered = _once(request)
    with terminal_undisturbed():
        _say(descriptor, f"\n{_question(request, name)}\n")
        while offered:
            _say(descriptor, "Which? ")
            line = await _line(descriptor)
            if line is None:
                break
            if line.casefold() in _WORDS:
                return answer(request, _WORDS[line.casefold()], "terminal")
            if line.isascii() and line.isdecimal() and 1 <= int(line) <= len(offered):
                chosen = offered[int(line) - 1]
                return Decision(chosen.kind.startswith("allow"), "terminal", chosen.id)
        return answer(request, False, "terminal")


def _is_of_run(request: Request, places: StepFolders) -> bool:
    if not request.paths or request.command is not None or request.unread:
        return False
    if request.kind in ("read", "search"):
        return all(
            any(_inside(path, item) for item in (places.package, places.state)) for path in request.paths
        )
    document = os.path.realpath(places.state / DOCUMENT_MOUNT)
    return request.kind == "edit" and all(os.path.realpath(path) == document for path in request.paths)


def _refused(kind: str, policy: ToolPolicy) -> bool:
    if kind == "switch_mode":  # to one in which it wouldn't ask any more
        return _refused("edit", policy) or _refused("execute", policy)
    tools = _TOOLS.get(kind, ())
    if RUN_TOOL in tools:
        # That run_command isn't switched on is said of our own agent; that it is switched off counts here.
        policy = policy._replace(run_command=policy.run_command is not False)
    return not all(policy.permits(tool) for tool in tools)


def _covers(entry: str, request: Request, folder: Path) -> bool:
    kind, colon, what = entry.partition(":")
    if not fnmatchcase(request.kind, kind):
        return False
    if request.unread and (colon or request.kind in _OF_FILES):
        return False
    if not colon:
        return all(_inside(path, folder) for path in request.paths)
    if request.command is not None:
        return request.is_bare and _command_matches(request.command, what)
    if request.paths:
        return all(_path_matches(path, what, folder) for path in request.paths)
    if request.kind in _OF_FILES:
        return False
    title = request.title.strip("`")
    return fnmatchcase(title, what) if request.kind == "fetch" else _command_matches(title, what)


def _command_matches(command: str, glob: str) -> bool:
    """`make *` matches `make test` but not `make test; rm -r .`: shell operators must be in the glob, as
    often. Truncated commands match nothing."""
    if not fnmatchcase(command, glob) or command.endswith(("…", "...")):
        return False
    return sorted(_STEERING.findall(command)) == sorted(_STEERING.findall(glob))


def _path_matches(path: str, glob: str, folder: Path) -> bool:
    if glob.startswith("/"):
        return fnmatchcase(os.path.realpath(path), glob)
    if not _inside(path, folder):
        return False
    return fnmatchcase(os.path.relpath(os.path.realpath(path), os.path.realpath(folder)), glob)


def _inside(path: str, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _command(value: Any, args: Any) -> str | None:
    """Return a command line; of a shell's -c, that command. None if missing or not understood."""
    if isinstance(value, str):
        words = [] if args is None else args
        if (
            not value.strip()
            or not isinstance(words, list)
            or not all(isinstance(word, str) for word in words)
        ):
            return None
        return " ".join((value.strip(), *map(shlex.quote, words)))
    if not isinstance(value, Sequence) or not value or not all(isinstance(word, str) for word in value):
        return None
    if len(value) == 3 and os.path.basename(value[0]) in _SHELLS and value[1] in ("-c", "-lc"):  # noqa: PTH119
        return str(value[2]).strip()
    return shlex.join(value)


def _more(call: Mapping[str, Any], raw: Any, kind: str, command: str | None) -> str:
    """Return the input of a call, or the changes that it announces, as JSON, if that is more than a command or paths;
    else ""."""
    if not raw or (isinstance(raw, Mapping) and all(_is_plain(key, raw, kind, command) for key in raw)):
        content = call.get("content")
        raw = [item for item in content if _is_change(item)] if isinstance(content, list) else None
    return json.dumps(raw, ensure_ascii=False) if raw else ""


def _is_plain(key: str, raw: Mapping[str, Any], kind: str, command: str | None) -> bool:
    """Return whether a part of an input is told with the command or the paths, or changes nothing."""
    value = raw[key]
    if command is not None:
        is_told = key == "command" or (key == "args" and isinstance(raw["command"], str))
        return is_told or (key in _PLAIN and isinstance(value, _PLAIN[key]))
    if kind == "read" and key in ("offset", "limit", "line"):
        return isinstance(value, int)
    texts = value if isinstance(value, list) else [value]
    return _is_of_file(key, kind) and all(isinstance(text, str) and "\0" not in text for text in texts)


def _leaves_command(key: str, raw: Mapping[str, Any], folder: Path) -> bool:
    """Return whether a part of an input lets a command do what it does by itself in the working directory."""
    value, name = raw[key], _snake(key)
    if isinstance(value, str) and _NAMES_CWD.match(name):
        return "\0" not in value and _inside(str(folder / value), folder)
    return value in (None, "", [], {}) or name in _ABOUT or _is_plain(key, raw, "execute", "")


def _is_change(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "diff"


def _hides_command(raw: Any, kind: str) -> bool:
    return kind == "execute" or (
        isinstance(raw, Mapping) and any(key.casefold() in _NAMES_COMMAND for key in raw)
    )


def _paths(call: Mapping[str, Any], raw: Any, kind: str) -> list[str]:
    paths: list[Any] = []
    for key in ("locations", "content"):
        items = call.get(key)
        paths += [item.get("path") for item in items or () if isinstance(item, Mapping)] if items else []
    rest = [raw]
    while rest:
        part = rest.pop()
        if isinstance(part, list):
            rest += part
        elif isinstance(part, Mapping):
            for key, value in part.items():
                if key in ("changes", "files") and isinstance(value, Mapping):
                    paths += value
                elif _is_of_file(key, kind):
                    paths += value if isinstance(value, list) else [value]
            rest += part.values()
    return [path for path in paths if isinstance(path, str) and path and "\0" not in path]


def _is_of_file(key: str, kind: str) -> bool:
    name = _snake(key)
    return _NAMES_FILE.search(name) is not None or (kind in _OF_FILES and name in _NAMES_ENDS)


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).casefold()


def _options(options: Any) -> list[Option]:
    return [
        Option(item["optionId"], " ".join(str(item.get("name") or "").split()), str(item.get("kind")))
        for item in (options if isinstance(options, list) else ())
        if isinstance(item, Mapping) and isinstance(item.get("optionId"), str)
    ]


def _once(request: Request) -> list[Option]:
    return [option for option in request.options if option.kind in ("allow_once", "reject_once")]


def _question(request: Request, name: str) -> str:
    first, *rest = permission_lines(permission_wish_value(request.wish))
    lines = [f"{name} asks for leave to {first}", *rest]
    lines += [f"  {number}  {option.name or option.kind}" for number, option in enumerate(_once(request), 1)]
    if not any(option.kind in _GRANTS for option in request.options):
        lines.append("  It offers no yes for this once.")
    return "\n".join(lines)


def _say(descriptor: int, text: str) -> None:
    # The agent's text must not control the terminal.
    os.write(descriptor, written_out(text).encode("utf-8", "replace"))


async def _line(descriptor: int) -> str | None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def notice() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, notice)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    data = os.read(descriptor, 4096)
    return data.decode("utf-8", "replace").strip() if data else None
