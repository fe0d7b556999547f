"""How the program of a row is called under a tool policy: its arguments, its environment, where it is, which version
that is, and what it keeps of a session.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import AgentFailed
from uwf_git.config.agent_cli import Row
from uwf_git.config.policy import FETCH, WRITING, ToolPolicy
from uwf_git.ext.agents.cli.rows import NESTED

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
    """What the row's options and the user add to a call."""

    args: tuple[str, ...]
    env: Mapping[str, str]


def conditions(policy: ToolPolicy, crew: bool = False) -> set[str]:
    """The conditions of a row's options that hold under a policy, in the step of a `crew` or elsewhere. Tools that a
    CLI can't tell apart, such as making a file and changing one, are all forbidden as soon as one of them is."""
    readonly = not all(policy.permits(tool) for tool in WRITING)
    norun = policy.forbids_commands
    nofetch = not policy.permits(FETCH)
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
    }
    return {name for name, holds in holding.items() if holds}


def extra_for(
    row: Row, policy: ToolPolicy, args: Sequence[str], folders: Mapping[str, str] | None = None
) -> Extra:
    """The options that a policy asks for, and the user's own arguments. `folders` are those of a crew's step, by what
    stands for them in a row. Raises AgentFailed where the policy forbids what the row can't forbid or the arguments
    allow."""
    holding = conditions(policy, bool(folders))
    words: list[str] = []
    env: dict[str, str] = {}
    for option in row.options:
        if option.when not in holding:
            continue
        given = _given(args, option.unless)
        if given and option.when in _RESTRICTING:
            where = "on this machine" if given.startswith("/") else "in its arguments"
            raise AgentFailed(
                f"{row.program} may not {_RESTRICTING[option.when]} here, and {given} {where} lets it",
                f"take {given} away, or change tools in config.yaml or of the role",
            )
        if given:
            continue
        words += (_filled(each, folders or {}) for each in option.args)
        for name, text in option.env:
            quoted = {key: json.dumps(path)[1:-1] for key, path in (folders or {}).items()}
            env[name] = _merged(env.get(name), _filled(text, quoted))
    covered = {option.when for option in row.options}
    for name, what in _RESTRICTING.items():
        if row.tools and name in holding and name not in covered:
            raise AgentFailed(
                f"the tool policy says that {row.program} may not {what}, and there is no way to tell it so",
                "let another agent play this role, or change tools in config.yaml or of the role",
            )
    return Extra((*words, *args), env)


def _filled(text: str, folders: Mapping[str, str]) -> str:
    return _FOLDER.sub(lambda found: folders.get(found[1], found[0]), text)


def arguments(words: Sequence[str], extra: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The arguments of a call: placeholders filled in, each once, and `extra` where {args} stands or else
    at the end."""
    made: list[str] = []
    for word in words if "{args}" in words else [*words, "{args}"]:
        if word == "{args}":
            made += extra
        else:
            made.append(_WORD.sub(lambda match: values.get(match[1], ""), word))
    return made


def environment(row: Row, base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a call: `base` without what would make it a part of another session. What the row
    sets gives way to what the user has set; a JSON object in `extra` is merged over the user's."""
    env = {name: text for name, text in base.items() if name not in NESTED and name not in row.unset}
    for name, text in row.env:
        env.setdefault(name, text)
    for name, text in extra.items():
        env[name] = _merged(env.get(name), text)
    return env


def require(row: Row, env: Mapping[str, str]) -> str:
    """Where the program is. Raises AgentFailed where it isn't."""
    found = shutil.which(row.program, path=env.get("PATH"))
    if found is None:
        hint = f"install it: {row.install}" if row.install else "install it, or put it on PATH"
        raise AgentFailed(f"{row.program} is not installed, or not on PATH", hint)
    return found


def installed_version(row: Row, env: Mapping[str, str]) -> str | None:
    """What the program says its version is; None where it doesn't."""
    from uwf_git.sandbox.child import run_command

    if not row.version:
        return None
    try:
        done = run_command([row.program, *row.version], env=env, timeout=_VERSION_TIMEOUT)
    except AgentFailed:
        return None
    said = done.stdout_tail.decode("utf-8", "replace") or done.stderr_tail.decode("utf-8", "replace")
    found = re.search(r"\d+(?:\.\d+)+", said)
    return found[0] if found else None


def older(version: str, least: str) -> bool:
    """Whether a version comes before another."""
    return _parts(version) < _parts(least)


def kept_by(row: Row, session: str, env: Mapping[str, str]) -> Iterator[bytes]:
    """The lines of the files that the program keeps of a session. Nothing is read where the id is none that could be a
    file's name."""
    import glob

    if not session or "/" in session or "\0" in session:
        return
    for text in row.log:
        if any(not env.get(name) for name in _VARIABLE.findall(text)):
            continue
        text = _VARIABLE.sub(lambda found: glob.escape(env[found[1]]), text)
        if text.startswith("~/") and env.get("HOME"):
            text = glob.escape(env["HOME"]) + text[1:]
        text = _ID.sub(lambda found: glob.escape(session[: int(found[1] or len(session))]), text)
        found = [Path(path) for path in sorted(glob.iglob(text))]  # noqa: PTH207 -- variables make it absolute
        for path in found:
            with contextlib.suppress(OSError), path.open("rb") as file:
                if file.seek(0, os.SEEK_END) > _LOG:
                    file.seek(-_LOG, os.SEEK_END)
                    file.readline()
                else:
                    file.seek(0)
                yield from file
        if found:
            return


def _parts(version: str) -> tuple[int, ...]:
    found = _NUMBERS.search(version)
    parts = [int(part[:9]) for part in found[0].split(".")] if found else []
    return tuple(parts + [0] * (6 - len(parts)))


def _given(args: Sequence[str], flags: Iterable[str]) -> str:
    """The first of the flags that the arguments have, as they have it up to its value; else the first that is a path at
    which there is a file."""
    for word in args:
        for flag in flags:
            short = len(flag) == 2 and not flag.startswith("--")
            if word == flag or word.startswith(f"{flag}=") or (short and word.startswith(flag)):
                return flag
    paths = (flag for flag in flags if flag.startswith("/"))
    return next((path for path in paths if any(Path("/").glob(path[1:]))), "")


def _merged(before: str | None, now: str) -> str:
    """Of two JSON objects one with the fields of both; else the later text."""
    try:
        objects = json.loads(before or ""), json.loads(now)
    except ValueError:
        return now
    if all(isinstance(each, dict) for each in objects):
        return json.dumps({**objects[0], **objects[1]})
    return now


def model_in(args: Sequence[str]) -> str:
    """The model that the arguments of a program name; "" where they name none."""
    for flag, value in pairwise([*args, ""]):
        if flag in _MODEL:
            return value
        name, _, text = flag.partition("=")
        if name in _MODEL and text:
            return text
    return ""
