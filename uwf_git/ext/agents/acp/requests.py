"""An agent's requests to its client: permissions, and files of the workspace."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uwf_git.ext.agents import permissions
from uwf_git.ext.agents.acp.conversation import Conversation
from uwf_git.plugin import (
    PROJECT_MOUNT,
    FileChange,
    Mount,
    PermissionDesk,
    StepFolders,
    ToolFailure,
    ToolPolicy,
    Workspace,
    WorkspaceLimits,
    tool_results,
)

LARGEST = 10 * 1024 * 1024  # bytes of a file
INVALID, UNKNOWN, INTERNAL, MISSING = -32602, -32601, -32603, -32002
_POLL = 0.2  # seconds between two looks for a decision


class Files:
    """fs/read_text_file and fs/write_text_file. `readable` and `writable` are the policy's."""

    def __init__(
        self, folder: Path, policy: ToolPolicy, hidden: Sequence[Path] = (), others: Sequence[Mount] = ()
    ) -> None:
        self._folder = folder
        self._workspace = Workspace(
            folder, others, hidden, WorkspaceLimits(policy.max_read, policy.max_write)
        )
        roots = [
            (folder, PROJECT_MOUNT),
            *((other.path, other.name) for other in (*others, *self._workspace.mounts)),
        ]
        self._roots = sorted(((f"{path}".rstrip("/") + "/", name) for path, name in roots), reverse=True)
        self.readable = policy.permits("read_file")
        self.writable = policy.permits("write_file")

    def read(self, path: Any, line: Any, limit: Any) -> str:
        """Return at most `limit` lines from `line` (from 1). Raises ToolFailure."""
        if not self.readable:
            raise ToolFailure("denied", "the configuration doesn't allow read_file")
        data, _mode = self._workspace.read(self._inside(path), LARGEST)
        text = data.decode("utf-8", "replace")
        if not isinstance(line, int | None) or not isinstance(limit, int | None):
            raise ToolFailure("invalid_arguments", "line and limit are numbers")
        if line is None and limit is None:
            return self._within(text)
        # No file has more lines than this, and no slice takes a number of any size.
        first = min(max(0, (line or 1) - 1), LARGEST)
        last = None if limit is None else first + min(max(0, limit), LARGEST)
        return self._within("".join(itertools.islice(io.StringIO(text, newline="\n"), first, last)))

    def _within(self, text: str) -> str:
        most = self._workspace.limits.read
        if most is not None and len(text.encode("utf-8", "replace")) > most:
            raise ToolFailure("too_large", f"one call gives at most {most} bytes: read by line and limit")
        return text

    def write(self, path: Any, text: Any) -> None:
        """Write a file with its parent folders. Raises ToolFailure."""
        if not self.writable:
            raise ToolFailure("denied", "the configuration doesn't allow write_file")
        if not isinstance(text, str):
            raise ToolFailure("invalid_arguments", "content is a text")
        data = text.encode("utf-8", "replace")
        if len(data) > LARGEST:
            raise ToolFailure(
                "too_large", f"{tool_results.shown(str(path))} would hold more than {LARGEST} bytes"
            )
        self._workspace.change([FileChange(self._inside(path), data)])

    def _inside(self, path: Any) -> str:
        if not isinstance(path, str) or not path.startswith("/"):
            raise ToolFailure("invalid_arguments", f"{tool_results.shown(str(path))} is not an absolute path")
        # Of folders within each other the inner one comes first.
        for prefix, name in self._roots:
            if path.startswith(prefix):
                return f"{name}/{path[len(prefix) :]}"
        raise ToolFailure("outside_workspace", f"{tool_results.shown(path)} is outside of {self._folder}")


class Refusal(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Requests:
    """Answers requests by policy. Decisions become turns; `notes` list refusals."""

    def __init__(
        self,
        name: str,
        folder: Path,
        policy: ToolPolicy,
        files: Files,
        places: StepFolders | None = None,
        desk: PermissionDesk | None = None,
        show: Callable[[bytes], None] = lambda line: None,
    ) -> None:
        self._places = places
        self._desk = desk
        self._show = show
        self._name = name
        self._folder = folder
        self._policy = policy
        self._files = files
        self._questions: set[asyncio.Task[permissions.Decision]] = set()
        self.notes: list[str] = []

    async def answer(
        self, method: str, params: Mapping[str, Any], conversation: Conversation
    ) -> dict[str, Any]:
        """Return a request's result. Raises Refusal."""
        try:
            if method == "session/request_permission":
                return await self._permission(params, conversation)
            if method == "fs/read_text_file":
                text = self._files.read(params.get("path"), params.get("line"), params.get("limit"))
                return {"content": text}
            if method == "fs/write_text_file":
                self._files.write(params.get("path"), params.get("content"))
                return {}
        except ToolFailure as failure:
            if failure.code == "not_found":  # nothing to note: agents look whether a file is there
                path = str(params.get("path"))
                # Some tell it from other failures by the protocol's words alone.
                raise Refusal(MISSING, f"Resource not found: {path}", {"uri": path}) from None
            self.notes.append(f"{method} was refused: {failure.message}")
            raise Refusal(INVALID, failure.message, {"code": failure.code}) from None
        except OSError as error:
            raise Refusal(INTERNAL, str(error)) from None
        raise Refusal(UNKNOWN, f"the client has no {method}")

    @property
    def is_asking(self) -> bool:
        return bool(self._questions)

    def drop_questions(self) -> None:
        for question in [*self._questions]:
            question.cancel()

    async def _permission(self, params: Mapping[str, Any], conversation: Conversation) -> dict[str, Any]:
        tool_call = params.get("toolCall")
        call = tool_call if isinstance(tool_call, Mapping) else {}
        known = conversation.called(str(call.get("toolCallId")))
        known.update({key: value for key, value in call.items() if value not in (None, [], {})})
        request = permissions.parse_request(known, params.get("options"), self._folder)
        decision = permissions.decide(
            request, self._policy, self._folder, self._places
        ) or await self._decided(request)
        call_id = str(call.get("toolCallId"))
        conversation.add(permissions.turn_of(request, decision, call_id))
        if not decision.granted:
            conversation.refuse(call_id)
            self.notes.append(f"permission {permissions.outcome_of(decision)}: {request.shown}")
        if decision.option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": decision.option}}

    async def _decided(self, request: permissions.Request) -> permissions.Decision:
        desk = self._desk
        if desk is not None and (standing := desk.standing(request.wish)) is not None:
            return permissions.by_person(request, standing)
        terminal = permissions.terminal()
        if terminal is not None:
            asking = permissions.ask(request, self._name, terminal)
        elif desk is not None and desk.patience is not None:
            asking = self._inbox(request, desk, desk.patience)
        else:
            return permissions.answer(request, False, "nobody")
        question = asyncio.get_running_loop().create_task(asking)
        self._questions.add(question)
        try:
            await asyncio.wait({question})
            return permissions.Decision(False, "nobody", None) if question.cancelled() else question.result()
        finally:
            self._questions.discard(question)
            if terminal is not None:
                os.close(terminal)

    async def _inbox(
        self, request: permissions.Request, desk: PermissionDesk, patience: float
    ) -> permissions.Decision:
        """Have a request wait for a person; nobody's is a refusal."""
        waiting = desk.put(request.wish, time.time() + patience)
        if waiting is None:
            return permissions.answer(request, False, "nobody")
        self._show(f"asks for leave to {request.shown}\n".encode("utf-8", "replace"))
        try:
            deadline = time.monotonic() + patience
            while desk.decision(waiting) is None and time.monotonic() < deadline:
                await asyncio.sleep(_POLL)
        finally:
            decision = desk.withdraw(waiting)
        if decision is None:
            return permissions.answer(request, False, "nobody")
        return permissions.by_person(request, decision)
