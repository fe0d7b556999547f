"""The built-in agent's loop and its conversation, with scripted answers in place of a model: what is sent only
grows, is the same when it is made again from the turns, and every way to go wrong comes to an end."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import AgentFailed
from uwf_git.engine.kit.chat import Completion, ContextTooLong
from uwf_git.engine.kit.context import PastRun
from uwf_git.ext.builtin.conversation import LEFT_OUT, Conversation
from uwf_git.ext.builtin.loop import AT_ONCE, Loop, LoopEnd
from uwf_git.ext.builtin.tools.tool import ToolResult
from uwf_git.format.kinds import TurnRecord, Usage

Answer = tuple[str, list[Any], str] | AgentFailed


class Model:
    """Gives the answers in turn, the last one for ever, and keeps what it was sent."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.sent: list[list[dict[str, Any]]] = []
        self.tools: list[str] = []

    def __call__(self, messages: Sequence[dict[str, Any]], tools: str) -> Completion:
        self.sent.append(copy.deepcopy(list(messages)))
        self.tools.append(tools)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, AgentFailed):
            raise answer
        text, calls, finish = answer
        message = {"role": "assistant", "content": text, "tool_calls": calls}
        return Completion(text, message, "m", finish, Usage(100, 10, 50), 3)


def says(text: str, finish: str = "stop") -> Answer:
    return text, [], finish


def calls(*wanted: tuple[str, Any], text: str = "", finish: str = "tool_calls") -> Answer:
    """Calls of (name, arguments), each with the same id."""
    functions = [{"name": name, "arguments": arguments} for name, arguments in wanted]
    return text, [{"id": "c", "function": each} for each in functions], finish


def tool(name: str, arguments: str) -> ToolResult:
    """Succeeds but for the name `fail`, with as many characters as the arguments say."""
    if name == "fail":
        return ToolResult(False, {"ok": False, "error": {"code": "no", "message": "it cannot"}})
    size = int(arguments) if arguments.isdigit() else 3
    return ToolResult(True, {"ok": True, "text": "x" * size, "seconds": 1.0})


MARK = "0123456789abcdef"


def play(
    *answers: Answer,
    turns: int = 30,
    room: int = 400_000,
    before: Sequence[PastRun] = (),
    must_end: bool = False,
) -> tuple[LoopEnd, Model, list[TurnRecord]]:
    """A run whose deliverable is any answer that begins with "DONE"."""
    model, recorded = Model(*answers), list[TurnRecord]()
    conversation = Conversation("system", MARK, room)
    conversation.replay(before)
    conversation.tell("prompt")
    loop = Loop(
        conversation,
        lambda text: () if text.startswith("DONE") else ("no fields",),
        recorded.append,
        turns,
        must_end=must_end,
    )
    ended = loop.run(model, tool)
    assert tuple(recorded) == ended.turns
    return ended, model, recorded


def stored(turns: Sequence[TurnRecord]) -> tuple[TurnRecord, ...]:
    """The turns as they come back from their nodes: JSON with sorted keys."""
    return tuple(
        turn._replace(
            arguments=json.loads(json.dumps(turn.arguments, sort_keys=True)),
            result=json.loads(json.dumps(turn.result, sort_keys=True)),
        )
        for turn in turns
    )


ARGUMENTS = st.sampled_from(
    ['{"b": 1, "a": [1.0, 2.5, "é"]}', "{}", "", "not json", '"text"', "[1]", '{"n": 99999999999999999999}',
     '{"s": "\\ud800"}', "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300, None, {"a": 1}, "400", "900"]
)  # fmt: skip
CALLS = st.lists(st.tuples(st.sampled_from(["read", "fail", "no such tool!", ""]), ARGUMENTS), max_size=3)
TURNS = st.lists(st.tuples(st.sampled_from(["", "Hm."]), CALLS), max_size=6)


@settings(max_examples=150)
@given(st.lists(TURNS, min_size=1, max_size=3))
def test_every_request_begins_with_the_one_before_within_a_step_and_across_steps(steps: list[Any]) -> None:
    before: list[PastRun] = []
    last: list[dict[str, Any]] = []
    for step in steps:
        answers = [calls(*wanted, text=text) if wanted else says(text) for text, wanted in step]
        ended, model, _ = play(*answers, says("DONE"), before=before)
        for messages in model.sent:
            assert messages[: len(last)] == last
            ids = [each["tool_call_id"] for each in messages if each["role"] == "tool"]
            assert len(ids) == len(set(ids))
            last = messages
        before.append(PastRun("prompt", stored(ended.turns)))


def test_the_oldest_results_make_way_half_of_the_room_at_once_and_the_same_ones_again() -> None:
    answers = [calls(("read", "1000"), text=f"step {number}") for number in range(12)]
    ended, model, _ = play(*answers, says("DONE"), room=8000)
    broken = [number for number, (one, next) in enumerate(pairwise(model.sent)) if next[: len(one)] != one]
    assert 1 <= len(broken) <= 3
    sizes = [sum(len(each["content"] or "") for each in messages) for messages in model.sent]
    assert max(sizes) <= 8000
    assert model.sent[-1][-1]["content"] != LEFT_OUT
    _, second, _ = play(says("DONE"), room=8000, before=[PastRun("prompt", stored(ended.turns))])
    assert second.sent[0][: len(model.sent[-1])] == model.sent[-1]


def test_a_conversation_that_is_too_long_for_the_model_loses_its_old_results_and_is_sent_once_more() -> None:
    too_long = ContextTooLong("endpoint answered 400: too long")
    answers = (calls(("read", "900")), calls(("read", "901")), too_long, says("DONE"))
    ended, model, _ = play(*answers)
    assert ended.text == "DONE"
    assert "left out" in ended.notes[0]
    contents = [each["content"] for each in model.sent[-1] if each["role"] == "tool"]
    assert contents[0] == LEFT_OUT and len(contents[1]) > 900
    ended, model, _ = play(calls(("read", "900")), calls(("read", "901")), too_long)
    assert ended.problem == "endpoint answered 400: too long"
    assert len(ended.turns) == 4


def test_the_last_turns_are_announced_and_the_very_last_has_no_tools() -> None:
    ended, model, recorded = play(*[calls(("read", "1"))] * 4, says("DONE"), turns=5)
    assert (ended.text, len(model.sent)) == ("DONE", 5)
    assert model.tools == ["auto"] * 4 + ["none"]
    told = [(number, turn.text) for number, turn in enumerate(recorded) if turn.role == "user"]
    assert [text.split(",")[0] for _, text in told] == [
        "3 turns are left to you",
        "This is your last turn",
    ]
    assert told[0][1] in model.sent[2][-1]["content"]


def test_a_model_that_calls_tools_to_the_end_is_asked_once_without_any() -> None:
    ended, model, _ = play(*[calls(("read", "1"))] * 3, says("DONE"), turns=3)
    assert (ended.text, model.tools) == ("DONE", ["auto", "auto", "none", ""])
    ended, model, _ = play(calls(("read", "1")), turns=3)
    assert ended.problem == "model m gave an empty answer (finish_reason tool_calls)"
    assert len(model.sent) == 4


def test_a_model_that_must_end_by_itself_has_failed_where_it_does_not() -> None:
    ended, model, _ = play(calls(("read", "1")), turns=5, must_end=True)
    assert (ended.text, ended.problem) == ("", "the model came to no end in 5 turns")
    assert model.tools == ["auto"] * 5, "no answer is pressed out of it"
    ended, model, _ = play(*[calls(("read", "1"))] * 4, says("DONE"), turns=5, must_end=True)
    assert (ended.text, ended.problem, len(model.sent)) == ("DONE", "", 5)


@pytest.mark.parametrize("turns", [1, 2, 30])
def test_an_answer_without_a_deliverable_is_nudged_once(turns: int) -> None:
    ended, model, _ = play(says("I am done."), says("Really."), says("DONE"), turns=turns)
    assert ended.text == ("Really." if turns > 1 else "I am done.")
    assert len(model.sent) == min(turns, 2)
    if turns > 1:
        assert "- no fields" in model.sent[1][-1]["content"]


def test_a_correction_goes_on_in_the_conversation_without_another_nudge() -> None:
    model, recorded = Model(says("DONE badly"), calls(("read", "1")), says("Still not")), list[TurnRecord]()
    conversation = Conversation("system", MARK)
    conversation.tell("prompt")
    loop = Loop(conversation, lambda text: ("no fields",), recorded.append, 1)
    assert loop.run(model, tool).text == "DONE badly"
    ended = loop.correct("Answer again.", model, tool)
    assert (ended.text, model.tools) == ("Still not", ["none", "none", ""])
    ended = Loop(conversation, lambda text: ("no fields",), recorded.append, 30).correct(
        "Again.", model, tool
    )
    assert (ended.text, [turn.role for turn in ended.turns]) == ("Still not", ["assistant"])
    assert ended.usage == Usage(100, 10, 50)


def test_the_same_failing_call_is_stopped_after_three_unless_something_succeeds_between() -> None:
    ended, model, _ = play(calls(("fail", '{"a": 1}')))
    assert len(model.sent) == 3
    assert ended.problem == 'the model repeated the same failing call 3 times: fail {"a": 1}: it cannot'
    assert [turn.failed for turn in ended.turns] == [False, True] * 3
    alternating = [calls(("fail", "1"), ("fail", "2"))] * 2
    ended, model, _ = play(*alternating, calls(("fail", "1"), ("read", "1")), says("DONE"))
    assert ended.problem and len(ended.turns) == 8  # what was called after it is left alone
    ended, model, _ = play(*[calls(("fail", "1"), ("read", "1"))] * 9, says("DONE"))
    assert ended.text == "DONE"


def test_calls_are_made_in_order_and_only_so_many_at_once() -> None:
    wanted = [("read", str(number)) for number in range(AT_ONCE + 2)]
    ended, _, _ = play(calls(*wanted), says("DONE"))
    results = [turn.result for turn in ended.turns if turn.role == "tool"]
    assert [len(each["text"]) for each in results[:AT_ONCE]] == list(range(AT_ONCE))
    assert [each["error"]["code"] for each in results[AT_ONCE:]] == ["too_many_calls"] * 2


def test_an_answer_cut_off_is_told_to_the_model_and_is_no_answer() -> None:
    cut = calls(("fail", '{"path": "a", "content": "And th'), finish="length")
    ended, model, _ = play(cut, says("No fields and cut", "length"), says("DONE but cu", "length"))
    assert "cut off at its limit" in model.sent[1][-1]["content"]
    assert model.sent[1][-2]["tool_calls"][0]["function"]["arguments"].startswith('{"unreadable": ')
    assert model.sent[2][-1]["content"].startswith("Your answer was cut off")
    assert ended.problem and "was cut off at its limit of tokens" in ended.problem
    assert [turn.text for turn in ended.turns if turn.role == "assistant"][-1] == "DONE but cu"


def test_an_endpoint_that_fails_leaves_what_was_done_or_raises_where_nothing_was() -> None:
    failed = AgentFailed("endpoint answered 500 (4 attempts)", "try again later")
    ended, _, _ = play(calls(("read", "1")), failed)
    assert (ended.problem, ended.hint, len(ended.turns)) == (failed.message, failed.hint, 2)
    assert ended.usage == Usage(100, 10, 50)
    with pytest.raises(AgentFailed):
        play(failed)


def test_no_message_follows_another_of_its_kind_and_none_of_a_user_follows_a_result() -> None:
    before = [
        PastRun("one", (TurnRecord("assistant", ""),)),
        PastRun("two", ()),
        PastRun("three", stored(play(calls(("read", "1")), says("DONE"))[0].turns[:2])),
    ]
    _, model, _ = play(says(""), says("DONE"), before=before)
    roles = [each["role"] for each in model.sent[-1]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]
    _, model, _ = play(calls(("read", "9000")), says("DONE"), room=8000, before=before[2:])
    assert "prompt" in model.sent[-1][3]["content"]  # said after a result that has made way
    extracted = TurnRecord("tool", "{}", "extract", {"model": "m"})
    _, model, _ = play(says("DONE"), before=[PastRun("one", (TurnRecord("assistant", "Hm"), extracted))])
    assert [each["role"] for each in model.sent[-1]] == ["system", "user", "assistant", "user"]
