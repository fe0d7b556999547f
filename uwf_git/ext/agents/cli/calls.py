"""Calling a row's program under a policy: arguments, environment, location, version, session logs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from uwf_git.ext.agents.cli.row import AgentRow
from uwf_git.ext.agents.cli.rows import NESTED
from uwf_git.plugin import FETCH_TOOL, WRITING_TOOLS, AgentFailed, ToolPolicy, Unavailable

_LOG = 32 * 1024 * 1024  # bytes at the end of each file of its own in which model and usage are looked for
_FOLDER = re.compile(r"\{(package|state)\}")
_WORD = re.compile(r"\{(new|session|prompt|cwd)\}")
_ID = re.compile(r"\{session(?::(\d+))?\}")
_MODEL = ("-m", "--model")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_VERSION_TIMEOUT = 20.0  # seconds
_RESTRICTING = {
    "readonly": "write files",
    "norun": "run commands",
    "nofetch": "read from the web",
}


class Extra(NamedTuple):
    """Additions by options and user."""

    args: tuple[str, ...]
    env: Mapping[str, str]


def conditions(policy: ToolPolicy, crew: bool = False, asking: bool = False) -> set[str]:
    """Return the option conditions that hold under a policy, in a `crew`'s step or elsewhere, and if a person may be
    asked. Tools that a program cannot distinguish are forbidden together."""
    readonly = not all(policy.permits(tool) for tool in WRITING_TOOLS)
    norun = policy.forbids_commands
    nofetch = not policy.permits(FETCH_TOOL)
    holding = {
        "always": True,
        "readonly": readonly,
        "write": not readonly and (not policy.permissions or policy.grants("edit")),
        "norun": norun,
        "run": not norun and (bool(policy.run_command) or policy.grants("execute")),
        "nofetch": nofetch,
        "fetch": not nofetch and policy.grants("fetch"),
        "network": bool(policy.network),
        "nomcp": not policy.permits("mcp/any/any"),
        "crew": crew,
        "crewwrite": crew and not readonly,
        "asking": asking,
    }
    return {name for name, holds in holding.items() if holds}


def extra_for(
    row: AgentRow,
    policy: ToolPolicy,
    args: Sequence[str],
    folders: Mapping[str, str] | None = None,
    asking: bool = False,
) -> Extra:
    """Return the options for a policy and the user's arguments. Raises AgentFailed if something forbidden
    cannot be prevented or is allowed by an argument."""
    holding = conditions(policy, bool(folders), asking)
    words: list[str] = []
    env: dict[str, str] = {}
    for option in row.options:
        if option.when not in holding:
            continue
        argument = _given(args, option.unless)
        if argument and option.when in _RESTRICTING:
            where = "on this machine" if argument.startswith("/") else "in its arguments"
            raise AgentFailed(
                f"{row.program} may not {_RESTRICTING[option.when]} here, and {argument} {where} lets it",
                f"remove {argument}, or change tools in config.yaml or of the role",
            )
        if argument:
            continue
        words += (_filled(item, folders or {}) for item in option.args)
        for name, text in option.env:
            quoted = {key: json.dumps(path)[1:-1] for key, path in (folders or {}).items()}
            env[name] = _merged(env.get(name), _filled(text, quoted))
    covered = {option.when for option in row.options}
    for name, what in _RESTRICTING.items():
        if row.tools and name in holding and name not in covered:
            raise AgentFailed(
                f"the tool policy says that {row.program} may not {what}, and there is no way to tell it so",
                "use another agent for this role, or change tools in config.yaml or of the role",
            )
    return Extra((*words, *args), env)


def _filled(text: str, folders: Mapping[str, str]) -> str:
    return _FOLDER.sub(lambda match: folders.get(match[1], match[0]), text)


def arguments(words: Sequence[str], extra: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Fill in placeholders, with `extra` at {args} or at the end."""
    filled: list[str] = []
    for word in words if "{args}" in words else [*words, "{args}"]:
        if word == "{args}":
            filled += extra
        else:
            filled.append(_WORD.sub(lambda match: values.get(match[1], ""), word))
    return filled


def environment(row: AgentRow, base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the program's environment, without variables of an enclosing session. The user's settings
    override the row's; JSON objects in `extra` are merged."""
    env = {name: text for name, text in base.items() if name not in NESTED and name not in row.unset}
    for name, text in row.env:
        env.setdefault(name, text)
    for name, text in extra.items():
        env[name] = _merged(env.get(name), text)
    return env


def require(row: AgentRow, env: Mapping[str, str]) -> str:
    """Return the program's path. Raises Unavailable."""
    path = shutil.which(row.program, path=env.get("PATH"))
    if path is None:
        hint = f"install it: {row.install}" if row.install else "install it, or put it on PATH"
        raise Unavailable(f"{row.program} is not installed, or not on PATH", hint)
    return path


def missing_login(row: AgentRow, env: Mapping[str, str]) -> str:
    """Return how to log in if nothing is there of what a login leaves, "" if something is, or that is not known. On
    macOS logins are in the keychain."""
    if not row.signed_in or sys.platform == "darwin" or any(_is_there(item, env) for item in row.signed_in):
        return ""
    return f"{row.program} seems not to be logged in: {row.sign_in or 'log in there'}"


def _is_there(login: str, env: Mapping[str, str]) -> bool:
    """Return whether a variable `$NAME` is set, or a file exists, in `PATH: PATTERN` one that matches."""
    name, _, pattern = login.partition(": ")
    if _VARIABLE.fullmatch(name):
        return bool(env.get(name[1:]))
    if any(not env.get(item) for item in _VARIABLE.findall(name)):
        return False
    path = Path(_VARIABLE.sub(lambda match: env[match[1]], name.replace("~", env.get("HOME") or "~", 1)))
    if not pattern:
        return path.exists()
    try:
        return re.search(pattern, path.read_text("utf-8", "replace")) is not None
    except OSError:
        return False


def installed_version(row: AgentRow, env: Mapping[str, str]) -> str | None:
    """Return the program's version, None if not printed."""
    from uwf_git.plugin import processes

    if not row.version:
        return None
    try:
        done = processes.run_command([row.program, *row.version], env=env, timeout=_VERSION_TIMEOUT)
    except AgentFailed:
        return None
    output = done.stdout_tail.decode("utf-8", "replace") or done.stderr_tail.decode("utf-8", "replace")
    match = re.search(r"\d+(?:\.\d+)+", output)
    return match[0] if match else None


def older(version: str, least: str) -> bool:
    return _parts(version) < _parts(least)


def session_log(row: AgentRow, session: str, env: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the lines of the program's session log, if the id is a safe file name."""
    import glob

    if not session or "/" in session or "\0" in session:
        return
    for text in row.log:
        if any(not env.get(name) for name in _VARIABLE.findall(text)):
            continue
        text = _VARIABLE.sub(lambda match: glob.escape(env[match[1]]), text)
        if text.startswith("~/") and env.get("HOME"):
            text = glob.escape(env["HOME"]) + text[1:]
        text = _ID.sub(lambda found: glob.escape(session[: int(found[1] or len(session))]), text)
        paths = [Path(path) for path in sorted(glob.iglob(text))]  # noqa: PTH207 -- variables make it absolute
        for path in paths:
            with contextlib.suppress(OSError), path.open("rb") as file:
                if file.seek(0, os.SEEK_END) > _LOG:
                    file.seek(-_LOG, os.SEEK_END)
                    file.readline()
                else:
                    file.seek(0)
                yield from file
        if paths:
            return


def _parts(version: str) -> tuple[int, ...]:
    match = _NUMBERS.search(version)
    parts = [int(part[:9]) for part in match[0].split(".")] if match else []
    return tuple(parts + [0] * (6 - len(parts)))


def _given(args: Sequence[str], flags: Iterable[str]) -> str:
    """Return the first of these flags in the arguments, or the first that is an existing path."""
    for word in args:
        for flag in flags:
            short = len(flag) == 2 and not flag.startswith("--")
            if word == flag or word.startswith(f"{flag}=") or (short and word.startswith(flag)):
                return flag
    paths = (flag for flag in flags if flag.startswith("/"))
    return next((path for path in paths if any(Path("/").glob(path[1:]))), "")


def _merged(before: str | None, now: str) -> str:
    try:
        objects = json.loads(before or ""), json.loads(now)
    except ValueError:
        return now
    if all(isinstance(thing, dict) for thing in objects):
        return json.dumps({**objects[0], **objects[1]})
    return now


def model_in(args: Sequence[str]) -> str:
    """Return the model in the arguments, or ""."""
    for flag, value in pairwise([*args, ""]):
        if flag in _MODEL:
            return value
        name, _, text = flag.partition("=")
        if name in _MODEL and text:
            return text
    return ""
