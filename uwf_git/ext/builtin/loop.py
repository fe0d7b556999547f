"""The loop of a model with tools.

    ask → no tool calls → an answer: taken, or one nudge if it has no deliverable
        → tool calls, in order → their results → ask again, at most `turns` times, the last without tools
          unless the model must finish by itself

Independent of network and files: functions call the model and tools. Complete turns go to `record`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.builtin.conversation import Call, Conversation, storable
from uwf_git.plugin import (
    AgentFailed,
    Completion,
    ContextTooLong,
    Invalid,
    Throttled,
    TokenUsage,
    TurnRecord,
    counted,
    log,
    one_line,
    sum_tokens,
)

if TYPE_CHECKING:
    from uwf_git.ext.builtin.conversation import Message
    from uwf_git.ext.builtin.tools.tool import ToolResult

CORRECTION_TURNS = 3
NOTICE = 3  # turns left when the model is warned
REPEATS = 3  # identical failing calls without a successful one between
AT_ONCE = 32  # tool calls in one turn
_LOOKED_AT = 1000  # characters of a text that is shown in an error

Ask = Callable[[Sequence["Message"], str], Completion]
"""Asks the model: messages, and what it may do with its tools: "auto", "none", or "" for not offering any."""

CallTool = Callable[[str, str], "ToolResult"]
"""Calls a tool: name and arguments, as the model wrote them."""

Missing = Callable[[str], Sequence[str]]
"""What keeps an answer from being a deliverable."""


class LoopEnd(NamedTuple):
    """The loop's end. `text` is "" with a `problem`; `usage` is the sum over its requests."""

    text: str
    turns: tuple[TurnRecord, ...]
    model: str | None
    usage: TokenUsage | None
    notes: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    throttled: Throttled | None = None
    timed_out: bool = False


class Loop:
    """A model's step. `talks`: any answer is accepted. `must_end`: tools stay to the last request, and no end
    is a failure. `remarks` are taken before each request."""

    def __init__(
        self,
        conversation: Conversation,
        missing: Missing,
        record: Callable[[TurnRecord], None],
        turns: int,
        talks: bool = False,
        must_end: bool = False,
        remarks: Callable[[], Sequence[TurnRecord]] = lambda: (),
    ) -> None:
        self._talks = talks
        self._must_end = must_end
        self._remarks = remarks
        self._most = turns
        self._conversation = conversation
        self._missing = missing
        self._record = record
        self._left = turns
        self._nudges = 1
        self._failed: Counter[str] = Counter()
        self._turns: list[TurnRecord] = []
        self._notes: list[str] = []
        self._model: str | None = None

    def run(self, ask: Ask, call: CallTool) -> LoopEnd:
        """Run until the model answers or cannot continue. Endpoint errors become the problem; raises
        AgentFailed before the first turn."""
        self._turns, self._notes = [], []
        text, problem, hint, throttled, timed_out = "", "", "", None, False
        try:
            text = self._until_answered(ask, call)
        except AgentFailed as error:
            if not self._turns:
                raise
            problem, hint = error.message, error.hint
            throttled, timed_out = error.throttled, error.timed_out
        usage = sum_tokens(turn.usage for turn in self._turns)
        turns, notes = tuple(self._turns), tuple(self._notes)
        return LoopEnd(text, turns, self._model, usage, notes, problem, hint, throttled, timed_out)

    def correct(self, message: str, ask: Ask, call: CallTool) -> LoopEnd:
        """Continue after a message, for a few turns. The caller records it."""
        self._conversation.tell(message)
        self._left = max(1, min(CORRECTION_TURNS, self._left))
        self._nudges = 0
        return self.run(ask, call)

    def _until_answered(self, ask: Ask, call: CallTool) -> str:
        count = 0
        while True:
            last = self._left <= 1 and not self._must_end
            if self._left <= 0:
                raise AgentFailed(
                    f"the model came to no end in {counted(self._most, 'turn')}",
                    "the next step carries on from here; --turns NUMBER allows it more of them",
                )
            if count and self._left == NOTICE:
                self._notify(_NOTICE_IN_TALK if self._talks else _NOTICE)
            elif count and last:
                self._notify(_LAST_IN_TALK if self._talks else _LAST)
            for remark in self._remarks():
                self._conversation.tell(remark.text)
                self._add(remark)
            done = self._ask(ask, "none" if last else "auto")
            count += 1
            calls = self._take(done, last)
            if calls:
                self._call_all(calls, call, done.finish)
                continue
            if last and not done.text.strip() and done.message.get("tool_calls"):
                # It calls tools against the instruction: some servers don't pass that on.
                done = self._ask(ask, "")
                self._take(done, True)
            if not last and self._nudges and not done.is_refusal and (nudge := self._nudge(done)):
                self._nudges -= 1
                log.info(
                    "G09H4XNK",
                    "the model answered without a deliverable, and is told so: {nudge}",
                    nudge=nudge,
                    turns_left=self._left,
                )
                self._notify(nudge)
                continue
            return self._answer(done)

    def _ask(self, ask: Ask, tools: str) -> Completion:
        self._left -= 1
        self._conversation.fit()
        try:
            return ask(self._conversation.messages, tools)
        except ContextTooLong:
            if not self._conversation.shrink():
                raise
            log.warning(
                "66BJJRTW", "the model has no more room: leaves the results of earlier tool calls out"
            )
            self._notes.append("the results of earlier tool calls were left out: the model has no more room")
            return ask(self._conversation.messages, tools)

    def _take(self, done: Completion, last: bool) -> list[Call]:
        self._model = done.model
        calls = [] if last else self._conversation.calls(done.message)
        reasoning = done.message.get("reasoning_content")
        self._conversation.heard(done.text, calls, reasoning if isinstance(reasoning, str) else None)
        self._add(
            TurnRecord(
                "assistant", done.text, usage=done.usage, duration_ms=done.duration_ms, model=done.model
            )
        )
        return calls

    def _call_all(self, calls: Sequence[Call], call: CallTool, finish: str) -> None:
        for number, item in enumerate(calls):
            began = time.monotonic()
            if number >= AT_ONCE:
                ok, value = False, _error("too_many_calls", f"only {AT_ONCE} calls at once: call this again")
            else:
                done = call(item.name, item.text)
                ok, value = done.ok, _kept_result(done.value)
                if finish == "length" and not isinstance(item.arguments, dict):
                    message = "your answer was cut off at its limit of tokens: write less at once"
                    value = _error("cut_off", message)
            took = round((time.monotonic() - began) * 1000)
            self._conversation.result(item.id, value)
            self._add(
                TurnRecord(
                    "tool", "", item.name, item.arguments, value, None, took, None, item.id, failed=not ok
                )
            )
            self._count(item, ok, value)

    def _count(self, call: Call, ok: bool, value: Any) -> None:
        if ok:
            self._failed.clear()
            return
        key = f"{call.name} {call.text}"
        self._failed[key] += 1
        if self._failed[key] >= REPEATS:
            error = value.get("error") if isinstance(value, dict) else None
            message = error.get("message") if isinstance(error, dict) else ""
            raise AgentFailed(
                f"the model repeated the same failing call {REPEATS} times: {one_line(call.name, 60)} "
                f"{one_line(call.text[:_LOOKED_AT], 120)}: {one_line(str(message)[:_LOOKED_AT])}",
                "the next step carries on from here; another model may do better",
            )

    def _nudge(self, done: Completion) -> str:
        try:
            problems = self._missing(done.text)
        except Invalid:  # of the role's schema: no other answer would help
            return ""
        if not problems:
            return ""
        listed = "\n".join(f"- {problem}" for problem in problems)
        cut = "Your answer was cut off at its limit of tokens. " if done.finish == "length" else ""
        return f"{cut}You have stopped, but your answer holds no deliverable:\n\n{listed}\n\n{_GO_ON}"

    def _answer(self, done: Completion) -> str:
        if (failure := done.no_answer()) is not None:
            raise failure
        return done.text

    def _notify(self, text: str) -> None:
        self._conversation.tell(text)
        self._add(TurnRecord("user", text))

    def _add(self, turn: TurnRecord) -> None:
        self._turns.append(turn)
        self._record(turn)


def _kept_result(value: Any) -> Any:
    try:
        return storable(value)
    except (Invalid, RecursionError):
        return {"ok": True, "text": json.dumps(value, default=str)[:20_000]}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


_GO_ON = (
    "If there is work left, go on with it. When it is done, answer with your deliverable: the block of fields "
    "between two lines of `---`, with nothing before it, and your whole report below it."
)
_NOTICE = (
    f"{NOTICE} turns are left to you, this one included. Bring your work to an end, and give your deliverable "
    "in the last of them at the latest."
)
_LAST = (
    "This is your last turn, and there are no tools in it. Give your deliverable now: the block of fields "
    "between two lines of `---`, with nothing before it, and your report below it. Say what is left undone."
)
_NOTICE_IN_TALK = f"{NOTICE} turns are left to you, this one included, before you have to answer the user."
_LAST_IN_TALK = (
    "This is your last turn, and there are no tools in it. Answer the user now; say what is left undone."
)
