"""Secrets that a command prints, such as those of a password manager.

`secrets` of `config.yaml` says for a variable where its value is: `{command: [op, read, "op://dev/openai/key"]}`, or
`{keyring: SERVICE/USER}`, which is the command `keyring get SERVICE USER`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from uwf_git.base.errors import AgentFailed, Unavailable
from uwf_git.base.text import last_line, one_line
from uwf_git.config.reader import Reader
from uwf_git.config.settings import ENVIRONMENT, SecretSource, expanded
from uwf_git.format.schema import ValuePath

KEYRING = "keyring"
FIELDS = ("command", KEYRING, "timeout")
_LONGEST = 64 * 1024  # bytes, as of .env


def read_secret(
    source: SecretSource, name: str, environ: Mapping[str, str], clean: Callable[[str], str]
) -> str:
    """Return the first line that the command prints. It runs in no project's folder, with this process's
    environment. Raises Unavailable, with the last line of its standard error, `clean`ed."""
    from uwf_git.sandbox.child import run_command
    from uwf_git.sandbox.programs import find_program, trusted_path

    setting, tried = f"secrets.{name}", f"try it: {shlex.join(source.command)}"
    program: str | None = source.command[0]
    if "/" not in source.command[0]:
        program = find_program(source.command[0], environ=environ)
    if program is None:
        raise Unavailable(
            f"{setting}: {source.command[0]} is not on PATH, or only in the project",
            "install it, or name it with its whole path",
        )
    try:
        done = run_command(
            (program, *source.command[1:]),
            cwd=Path("/"),
            env={**environ, "PATH": trusted_path(environ=environ)},
            timeout=source.timeout,
            keep=_LONGEST,
        )
    except AgentFailed as error:
        raise Unavailable(f"{setting}: {clean(error.message)}", error.hint) from None
    lines = done.stdout_tail.decode("utf-8", "replace").splitlines()
    value = lines[0].strip() if lines else ""
    if done.timed_out:
        why = f"has printed nothing for {source.timeout:g} s"
        tried = f"{tried}; secrets.{name}.timeout gives it longer"
    elif done.returncode:
        why = f"exited with {done.returncode}"
    elif not value or not value.isprintable():
        why = "printed no secret in its first line"
    else:
        return value
    complaint = clean(one_line(last_line(done.stderr_tail.decode("utf-8", "replace")), 200))
    raise Unavailable(
        f"{setting}: {source.command[0]} {why}" + (f": {complaint}" if complaint else ""), tried
    )


def read_sources(reader: Reader, root: Path, value: Any) -> tuple[tuple[str, ...], dict[str, SecretSource]]:
    """Return the variables of `secrets`, a list or a mapping, and the sources of those that have one. Programs with a
    relative path are those below `root`."""
    path: ValuePath = ("secrets",)
    if not isinstance(value, dict):
        return reader.variables(path, value), {}
    names = reader.variables(path, list(value))
    sources = {
        name: _source(reader, root, (*path, name), value[name])
        for name in names
        if value[name] != ENVIRONMENT
    }
    return names, {name: source for name, source in sources.items() if source is not None}


def _source(reader: Reader, root: Path, path: ValuePath, value: Any) -> SecretSource | None:
    if not isinstance(value, dict):
        # The text may be the secret itself, so it isn't shown.
        hint = f"{{command: [pass, show, NAME]}}, {{keyring: SERVICE/USER}}, or {ENVIRONMENT}"
        reader.refuse(path, f"secrets.{path[-1]} must be where the secret is", hint)
        return None
    entry = reader.mapping(path, value, f"secrets.{path[-1]}", FIELDS)
    command = entry.get("command")
    if isinstance(command, list):
        words = reader.texts((*path, "command"), command) or ()
    else:
        text = reader.text(path, entry, "command")
        words = reader.command(path, text) if text else ()
    if place := reader.text(path, entry, KEYRING):
        service, _, user = place.rpartition("/")
        if not service or not user or place.startswith("-"):
            reader.refuse((*path, KEYRING), f"{KEYRING} must be SERVICE/USER", "such as: openai/ada")
            return None
        words = (KEYRING, "get", service, user)
    if not words:
        reader.missing.append(reader.problem(path, f"secrets.{path[-1]} has neither command nor {KEYRING}"))
        return None
    program = expanded(words[0])
    words = (str(root / program) if "/" in program else program, *words[1:])
    return SecretSource(words, reader.timeout(path, entry) or SecretSource(()).timeout)
