"""Keeping a program's session with the step, and restoring it on another machine. If that fails, the step's detail
notes why, and the conversation is retold."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from uwf_git.ext.agents.cli.row import AgentRow, SessionsAt
from uwf_git.ext.agents.cli.session_files import (
    LIMIT,
    MOST,
    fits,
    patterns_for,
    place_file,
    read_files,
    session_folder,
)
from uwf_git.ext.agents.cli.session_lines import (
    Unusable,
    document_of,
    lines_of,
    moved,
    parts_of,
    without_secrets,
)
from uwf_git.plugin import (
    SESSION,
    TEXT,
    AgentFailed,
    Context,
    Hash,
    Invalid,
    KeptSession,
    NotFound,
    Session,
    SessionFile,
    SessionState,
    StoreDamaged,
    is_kind,
    last_line,
    log,
    one_line,
    parse_session,
)

_TIMEOUT = 60.0  # seconds of an export or import
_EXPORTED = "export.jsonl"


class ProgramSessions:
    """The sessions of a row's program with the agent `name`, seen from a step."""

    def __init__(self, ctx: Context, name: str, row: AgentRow, env: Mapping[str, str]) -> None:
        self._ctx = ctx
        self._name = name
        self._row = row
        self._env = env
        self._folder = os.path.realpath(ctx.cwd)

    def keep(self, session: str, put: Callable[[Hash, Any], Hash]) -> KeptSession:
        """Put a session's files as a Session node. Raises nothing."""
        where = self._row.sessions
        if where is None:
            return KeptSession()
        try:
            texts, secrets = self._read(where, session)
            if not texts:
                raise Unusable(f"{self._row.program} has no file of it for this folder")
            files = tuple(
                SessionFile(path, tuple(put(TEXT, part) for part in parts_of(text)))
                for path, text in texts.items()
            )
            node = put(SESSION, Session(self._row.name, session, self._folder, files).payload())
        except (Unusable, AgentFailed, Invalid, OSError, RecursionError) as error:
            why = _reason(error)
            log.warning("K7RZQ2VD", "session {session} is not kept: {why}", session=session, why=why)
            return KeptSession(note=f"{self._of(session)} is not kept: {why}")
        log.debug("C5XNW8JT", "keeps session {session}", session=session, node=node, files=len(files))
        return KeptSession(node, secrets)

    def prepare(self, session: str, state: SessionState) -> str:
        """Bring a session to the state in which the thread left it, from its Session node if it isn't. Return
        why it cannot be resumed, "" if it can be tried."""
        ctx, where = self._ctx, self._row.sessions
        sessions = ctx.instance.sessions
        if sessions.left_here(self._name, session, state.context, state.kept):
            return ""
        if state.kept is None or where is None or not ctx.config.keeps_sessions:
            gone = sessions.was_kept(self._name, session)
            return f"{self._of(session)} went on elsewhere" if gone else ""
        try:
            self._restore(where, session, state.kept)
        except (Unusable, AgentFailed, NotFound, StoreDamaged, OSError, RecursionError) as error:
            why = _reason(error)
            log.warning("V3HB9EKM", "session {session} is not restored: {why}", session=session, why=why)
            return f"{self._of(session)} could not be restored: {why}"
        sessions.claim(self._name, session, ctx.thread)
        if state.context is not None:
            sessions.note(self._name, session, state.context, state.kept)
        log.info("P2GD6YAF", "restored session {session}", session=session, node=state.kept)
        return ""

    def _of(self, session: str) -> str:
        return f"session {session} of {self._row.program}"

    def _read(self, where: SessionsAt, session: str) -> tuple[dict[str, str], int]:
        """Return the texts of a session by path, without secrets, and the number of these; empty if the
        program has none."""
        if where.exports:
            exported = self._export(where, session)
            data = {} if exported is None else {_EXPORTED: exported}
        else:
            folder = session_folder(where.folders, self._folder, self._env)
            data = {} if folder is None else read_files(folder, patterns_for(where.files, session))
        clean = {
            path: without_secrets(content, self._ctx.instance.redactor) for path, content in data.items()
        }
        return {path: text for path, (text, _) in clean.items()}, sum(count for _, count in clean.values())

    def _export(self, where: SessionsAt, session: str) -> bytes | None:
        done = self._run(where.exports, session)
        if done.returncode != 0 or not done.stdout_tail.strip():
            return None
        if len(done.stdout_tail) > LIMIT:
            raise Unusable(f"it has more than {LIMIT >> 20} MB")
        return lines_of(done.stdout_tail, where.each)

    def _run(self, words: tuple[str, ...], session: str, file: str = "") -> Any:
        from uwf_git.plugin import processes

        filled = [word.replace("{session}", session).replace("{file}", file) for word in words]
        argv = [self._row.program, *filled]
        return processes.run_command(argv, cwd=self._ctx.cwd, env=self._env, timeout=_TIMEOUT, keep=LIMIT + 1)

    def _restore(self, where: SessionsAt, session: str, node: Hash) -> None:
        kept, texts = self._kept(node)
        if (kept.program, kept.session) != (self._row.name, session):
            raise Unusable(f"node {node} is of another session")
        paths = [_EXPORTED] if where.exports else None
        patterns = [] if where.exports else patterns_for(where.files, session)
        if not texts or any(path not in paths if paths else not fits(path, patterns) for path in texts):
            raise Unusable(f"node {node} has files that are not {self._row.program}'s")
        here = {path: moved(text, kept.folder, self._folder) for path, text in texts.items()}
        read, _ = self._read(where, session)
        # Both are compared under the paths of this folder: each may name the other one.
        there = {path: moved(text, kept.folder, self._folder) for path, text in read.items()}
        if others := there.keys() - here.keys():
            raise Unusable(f"this machine has another file of it, {one_line(min(others), 100)}")
        if where.exports:
            self._import(where, here[_EXPORTED], there.get(_EXPORTED))
            return
        folder = session_folder(where.folders, self._folder, self._env, make=True)
        if folder is None:
            raise Unusable(f"there is no folder for the sessions of {self._row.program}")
        stale = {path: text for path, text in here.items() if _is_older(there.get(path), text)}
        for path, text in stale.items():
            place_file(folder, path, text.encode("utf-8"), replace=path in there)

    def _kept(self, node: Hash) -> tuple[Session, dict[str, str]]:
        store = self._ctx.store
        content = store.get(node)
        if not is_kind(content.type, "session"):
            raise Unusable(f"node {node} is not a session")
        kept = parse_session(content.payload)
        if (
            len(Path(kept.folder).parts) < 2
            or not kept.folder.startswith("/")
            or not kept.folder.isprintable()
        ):
            raise Unusable(f"node {node} names no folder")
        if len(kept.files) > MOST:
            raise Unusable(f"node {node} has more than {MOST} files")
        size, texts = 0, dict[str, str]()
        for file in kept.files:
            parts = []
            for part in file.parts:
                part_node = store.get(part)
                if not is_kind(part_node.type, "text"):
                    raise Unusable(f"node {node} has a part {part} that is no text")
                parts.append(part_node.payload)
                size += len(part_node.payload)
                if size > LIMIT:
                    raise Unusable(f"it has more than {LIMIT >> 20} MB")
            texts[file.path] = "".join(parts)
        return kept, texts

    def _import(self, where: SessionsAt, lines: str, there: str | None) -> None:
        # The last line is about the whole, and changes.
        if there is not None and not _is_older(_messages(there), _messages(lines)):
            return
        with tempfile.TemporaryDirectory(prefix="uwf-session-") as folder:
            path = Path(folder, "session.json")
            path.write_bytes(document_of(lines, where.each))
            done = self._run(where.imports, "", str(path))
        if done.returncode != 0:
            complaint = last_line(done.stderr_tail.decode("utf-8", "replace"))
            raise Unusable(f"{self._row.program} did not take it: {complaint or done.returncode}")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "a line is nested too deeply"
    return one_line(str(getattr(error, "message", "") or error), 300)


def _messages(lines: str) -> str:
    return lines[: lines.rstrip("\n").rfind("\n") + 1]


def _is_older(there: str | None, kept: str) -> bool:
    """Return whether this machine's text is missing or an earlier state of the kept one. Raises Unusable if
    neither is the beginning of the other."""
    if there is None:
        return True
    if there.startswith(kept):
        return False
    if not kept.startswith(there):
        raise Unusable("it went on differently on this machine")
    return True
