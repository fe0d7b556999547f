"""What an agent asks of its client: leave for something, and files of the workspace."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uwf_git.agents.acp import asking, permissions
from uwf_git.agents.acp.conversation import Conversation
from uwf_git.agents.acp.files import Files
from uwf_git.agents.builtin.tools.failure import ToolFailure
from uwf_git.config.policy import ToolPolicy
from uwf_git.kit.context import TurnRecord

INVALID, UNKNOWN, INTERNAL, MISSING = -32602, -32601, -32603, -32002
_BY = {"policy": "by the configuration", "terminal": "at the terminal", "nobody": "nobody to ask"}


class Refusal(Exception):
    """An error to answer with, as JSON-RPC has them."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Requests:
    """Answers them by the policy. Decisions become turns of the `conversation`; `notes` say what was refused."""

    def __init__(self, name: str, folder: Path, policy: ToolPolicy, files: Files) -> None:
        self._name = name
        self._folder = folder
        self._policy = policy
        self._files = files
        self._questions: set[asyncio.Task[permissions.Decision]] = set()
        self.notes: list[str] = []

    async def answer(
        self, method: str, params: Mapping[str, Any], conversation: Conversation
    ) -> dict[str, Any]:
        """The result of a request. Raises Refusal."""
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

    def drop_questions(self) -> None:
        """The turn is over or cancelled: nobody needs to decide any more."""
        for question in [*self._questions]:
            question.cancel()

    async def _permission(self, params: Mapping[str, Any], conversation: Conversation) -> dict[str, Any]:
        given = params.get("toolCall")
        call = given if isinstance(given, Mapping) else {}
        known = conversation.called(str(call.get("toolCallId")))
        known.update({key: value for key, value in call.items() if value not in (None, [], {})})
        request = permissions.parse_request(known, params.get("options"), self._folder)
        decision = permissions.decide(request, self._policy, self._folder) or await self._decided(request)
        said = f"{'granted' if decision.granted else 'denied'}, {_BY[decision.by]}"
        asked = {"kind": request.kind, "title": request.title[:500], "paths": [*request.paths[:50]]}
        result = {"granted": decision.granted, "by": decision.by, "option": decision.option}
        turn = TurnRecord("tool", f"{request.shown}: {said}", "permission", asked, result)
        turn = turn._replace(call=str(call.get("toolCallId"))[:200], failed=not decision.granted)
        conversation.add(turn)
        if not decision.granted:
            conversation.refuse(str(call.get("toolCallId")))
            self.notes.append(f"permission {said}: {request.shown}")
        if decision.option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": decision.option}}

    async def _decided(self, request: permissions.Request) -> permissions.Decision:
        """The decision of the person at the terminal; no where there is nobody."""
        terminal = asking.terminal()
        if terminal is None:
            return permissions.answer(request, False, "nobody")
        question = asyncio.get_running_loop().create_task(asking.ask(request, self._name, terminal))
        self._questions.add(question)
        try:
            await asyncio.wait({question})
            return permissions.Decision(False, "nobody", None) if question.cancelled() else question.result()
        finally:
            self._questions.discard(question)
            os.close(terminal)
