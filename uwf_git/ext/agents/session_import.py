"""`uwf import session`: what an agent's program has logged by itself, as threads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from uwf_git.plugin import (
    Invalid,
    Invocation,
    NotFound,
    Table,
    Usage,
    command,
    completers,
    iso,
    nearest,
    one_line,
    shortened,
)

if TYPE_CHECKING:
    from uwf_git.ext.agents.cli.row import AgentRow
    from uwf_git.ext.agents.cli.session_reading import SessionHead
    from uwf_git.plugin import Config, Instance

_LIMIT = 256 << 20  # bytes of a session
_SHOWN = 60  # characters of a first message


class _Log(NamedTuple):
    """A session's file: `agent` is as steps are credited, `updated` in Unix seconds. It was looked for as one of
    `folder`."""

    agent: str
    row: AgentRow
    path: Path
    head: SessionHead
    updated: float
    folder: Path | None = None


class _Named(NamedTuple):
    """A session to import. The agent worked in `folder` if its lines don't say where."""

    agent: str
    row: AgentRow
    lines: list[bytes]
    folder: Path | None = None


@command(
    "uwf import session                                what agents have logged here",
    "uwf import session 9e588e69",
    "uwf import session ~/.codex/sessions/2026/01/02/rollout-….jsonl",
    "uwf import session --all --agent claude-code",
)
@click.argument("sessions", nargs=-1, metavar="[FILE|ID]...")
@click.option(
    "--agent", metavar="NAME", shell_complete=completers.complete_agent, help="Sessions of this agent only."
)
@click.option("--all", "every", is_flag=True, help="Import all that are listed.")
def import_session(invocation: Invocation, sessions: tuple[str, ...], agent: str | None, every: bool) -> None:
    """Import sessions that agents' own programs have logged, as threads. Nobody is asked.

    FILE is such a log. Without one, the sessions of this folder and its repository are listed, and ID is one of
    them. Each message and the work on it become a step, with turns, tool calls, tokens, model and times; the thread
    then waits for your next message. Secrets are removed. Safe to repeat: only new messages are added.
    """
    from uwf_git.plugin import load_config

    if sessions and every:
        raise Usage("--all takes no FILE or ID", "uwf import session --all")
    rows = _rows(load_config(invocation.location.root), agent)
    if not sessions and not every:
        instance = invocation.instance if invocation.location.git_dir.exists() else None
        invocation.emit([_listed(log, instance) for log in _logs(rows, Path.cwd())], _LOGS)
        return
    named = [_named(rows, name) for name in sessions] or [_whole(log) for log in _logs(rows, Path.cwd())]
    instance = invocation.instance_for_writing()
    invocation.emit([_imported(instance, session) for session in named], _IMPORTED)


def _rows(config: Config, agent: str | None) -> dict[str, AgentRow]:
    """Return the rows whose sessions can be read, by the agent as steps are credited."""
    from uwf_git.ext.agents.cli.row import ANY_ROW, rows_of
    from uwf_git.ext.agents.cli.rows import shipped_names, shipped_row

    rows = {f"uwf-{name}": shipped_row(name) for name in shipped_names()}
    rows |= {f"{ANY_ROW}/{name}": row for name, row in rows_of(config).rows.items()}
    readable = {name: row for name, row in rows.items() if row and row.sessions and row.sessions.lines}
    if agent is None:
        return readable
    names = [name for name, row in readable.items() if agent in (name, row.name)]
    if not names:
        known = [row.name for row in readable.values()]
        raise Usage(
            f"no sessions of {agent!r} can be read", nearest(agent, known) or f"known: {', '.join(known)}"
        )
    return {name: readable[name] for name in names}


def _logs(rows: dict[str, AgentRow], here: Path) -> list[_Log]:
    """Return the sessions of a folder and of the repository around it, newest first."""
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    logs = [
        log._replace(folder=folder)
        for agent, row in rows.items()
        for path, folder in dict(_paths(row, (top, here))).items()
        if (log := _log(agent, row, path)) is not None
        if not log.head.folder or Path(log.head.folder).is_relative_to(top)
    ]
    return sorted(logs, key=lambda log: -log.updated)


def _paths(row: AgentRow, folders: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield the files of sessions that a program keeps for folders, with the folder."""
    from uwf_git.ext.agents.cli.session_files import session_folder
    from uwf_git.ext.agents.cli.session_lines import Unusable

    places, files = row.sessions[:2] if row.sessions else ((), ())
    for folder in dict.fromkeys(os.path.realpath(folder) for folder in folders):
        with suppress(Unusable, OSError):
            base = session_folder(places, folder, os.environ)
            for pattern in files:
                name = re.sub(r"\{session(:\d+)?\}", "*", pattern)
                for path in base.glob(name) if base is not None else ():
                    yield path, Path(folder)


def _log(agent: str, row: AgentRow, path: Path) -> _Log | None:
    from uwf_git.ext.agents.cli.session_reading import head_of

    try:
        with _opened(path) as file:
            head = head_of(row, file)
            return None if head is None else _Log(agent, row, path, head, os.fstat(file.fileno()).st_mtime)
    except OSError:
        return None


def _opened(path: Path) -> Any:
    """Open a log: a plain file that its program may have made, no link of anybody's."""
    from uwf_git.plugin import confined_paths, system

    return os.fdopen(system.open_file(path, confined_paths.FILE), "rb")


def _lines_of(path: Path) -> list[bytes]:
    try:
        with _opened(path) as file:
            data: bytes = file.read(_LIMIT + 1)
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}", "uwf import session") from None
    if len(data) > _LIMIT:
        raise Invalid(f"{path} has more than {_LIMIT >> 20} MB")
    return data.split(b"\n")


def _whole(log: _Log) -> _Named:
    return _Named(log.agent, log.row, _lines_of(log.path), log.folder)


def _named(rows: dict[str, AgentRow], name: str) -> _Named:
    """Return a session by its file, or by an id of this project. Raises NotFound, Invalid, Usage."""
    path = Path(name).expanduser()
    if path.is_file():
        return _of_file(rows, path)
    logs = [log for log in _logs(rows, Path.cwd()) if log.head.session.startswith(name)]
    if len(logs) == 1:
        return _whole(logs[0])
    if logs:
        raise Usage(f"{len(logs)} sessions begin with {name!r}", "give more of the id: uwf import session")
    for agent, row in rows.items():
        if (lines := _exported(row, name)) is not None:
            return _Named(agent, row, lines)
    raise NotFound(
        f"no file and no session here is called {one_line(name, 80)!r}", "list them: uwf import session"
    )


def _of_file(rows: dict[str, AgentRow], path: Path) -> _Named:
    from uwf_git.ext.agents.cli.session_lines import Unusable, lines_of
    from uwf_git.ext.agents.cli.session_reading import head_of

    lines = _lines_of(path)
    for agent, row in rows.items():
        own = lines
        if row.sessions is not None and row.sessions.exports:
            with suppress(Unusable):
                own = lines_of(b"\n".join(lines), row.sessions.each).split(b"\n")
        if head_of(row, own) is not None:
            return _Named(agent, row, own)
    raise Invalid(f"{path} is not a session of {', '.join(row.name for row in rows.values())}")


def _exported(row: AgentRow, session: str) -> list[bytes] | None:
    """Return what a program exports of a session, None if it has none."""
    from uwf_git.ext.agents.cli.session_files import patterns_for
    from uwf_git.ext.agents.cli.session_lines import Unusable, lines_of
    from uwf_git.plugin import find_program, processes

    program = find_program(row.program)
    if row.sessions is None or not row.sessions.exports or program is None:
        return None
    try:
        patterns_for(("{session}",), session)  # it becomes an argument
        words = [word.replace("{session}", session) for word in row.sessions.exports]
        done = processes.run_command([program, *words], cwd=Path.cwd(), timeout=60, keep=_LIMIT)
        return None if done.returncode else lines_of(done.stdout_tail, row.sessions.each).split(b"\n")
    except Unusable:
        return None


def _listed(log: _Log, instance: Instance | None) -> dict[str, Any]:
    from uwf_git.plugin import LoggedSession, session_state

    head = log.head
    thread = LoggedSession(log.agent, head.session, head.began, ()).thread
    here = False
    if instance is not None:
        with suppress(Invalid):
            here = session_state(instance, thread)[0] is not None
    return {
        "agent": log.row.name,
        "session": head.session,
        "updated": iso(log.updated),
        "prompt": head.prompt,
        "file": str(log.path),
        "thread": thread if here else None,
    }


def _imported(instance: Instance, named: _Named) -> dict[str, Any]:
    from uwf_git.ext.agents.cli.session_reading import read_session
    from uwf_git.plugin import store_session

    session = read_session(named.row, named.agent, named.lines)
    if session is None or not session.logged.exchanges:
        raise Invalid(f"this session of {named.row.name} has no message that its agent has answered")
    logged = session.logged._replace(folder=session.logged.folder or named.folder)
    stored = store_session(instance, logged)
    return {
        "agent": named.row.name,
        "session": session.logged.session,
        **stored._asdict(),
        "pending": session.pending,
    }


def _remarks(item: Any) -> str:
    from uwf_git.plugin import describe_stored

    pending = "; its last message is not answered yet" if item["pending"] else ""
    return describe_stored(item) + pending


_LOGS = Table(
    "agent",
    "session",
    ("updated", lambda item: item["updated"][:16].replace("T", " ")),
    ("first message", lambda item: shortened(one_line(item["prompt"]), _SHOWN)),
    ("thread", lambda item: item["thread"] or ""),
    empty="no agent has logged a session here",
)
_IMPORTED = Table("thread", "agent", ("", "{steps:counted step}"), ("", _remarks))
