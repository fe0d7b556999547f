"""`uwf chat`: what is said in it is kept step by step, shown as it comes, and gone on with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import git_servers
import pytest
from cli_samples import on_terminal, write
from commands import UWF
from conftest import EXAMPLES, Uwf
from hypothesis import given
from hypothesis import strategies as st
from model_server import Call, Drop, ModelServer, Raw, Say
from two_machines import Machine

from uwf_git.config.secrets import Redactor
from uwf_git.config.stream_redaction import StreamedText
from uwf_git.engine.conversation import DEFINED
from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance

PROMPT = "\x1b[?2004h"
"""What a line editor sends when it begins."""


@pytest.fixture
def model(server: ModelServer, config: Callable[[str], Path]) -> ModelServer:
    """A server that is configured as the default model."""
    config(
        f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
        "models:\n  small: {provider: local, name: tiny-1}\ndefaultModel: small\n"
    )
    return server


def told(server: ModelServer) -> list[Mapping[str, Any]]:
    return [dict(message) for message in server.asked[-1].body["messages"]]


def pieces(*words: str, then: Callable[[], object] = lambda: None) -> Raw:
    """An answer in these pieces; what is done `then`, before its end, may wait for what is shown."""

    def act(handler: Any) -> None:
        handler._head(200, "text/event-stream", {"Transfer-Encoding": "chunked"})
        for word in words:
            event = {"choices": [{"index": 0, "delta": {"content": word}}]}
            handler._chunk(f"data: {json.dumps(event)}\n\n".encode())
        then()
        handler._chunk(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n')
        handler._chunk(b"data: [DONE]\n\n")
        handler._chunk(b"")

    return Raw(act)


def test_messages_and_replies_are_steps_of_a_thread_like_any(
    uwf: Uwf, model: ModelServer, hermetic: Path
) -> None:
    Path("a.txt").write_text("hello from a file")
    model.play([Say("Hello. And you?"), Call("read_file", {"path": "a.txt"}), Say("It says hello.")])
    events = uwf("chat", input="hi\n\nwhat is in a.txt?\n").lines
    thread = events[1]["thread"]
    assert [each["type"] for each in events if each["type"] != "delta"] == [
        *("session", "message", "message", "message", "tool", "message"),
    ]
    assert (events[0]["thread"], events[0]["agent"], events[0]["model"]) == (None, "uwf-builtin", "tiny-1")
    words = "".join(each["text"] for each in events if each["type"] == "delta")
    assert words == "Hello. And you?It says hello."
    (tool,) = (each for each in events if each["type"] == "tool")
    assert (tool["tool"], tool["failed"], tool["result"]["content"]) == (
        *("read_file", False), "hello from a file",
    )  # fmt: skip
    roles = [message["role"] for message in told(model)]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool"]
    assert told(model)[3]["content"] == "what is in a.txt?"

    steps = uwf("thread", "steps", thread).json
    assert [(each["role"], each["agent"]) for each in steps] == [
        ("$USER", "human"), ("assistant", "uwf-builtin"), ("$USER", "human"), ("assistant", "uwf-builtin"),
    ]  # fmt: skip
    assert steps[-1]["output"] == {"$status": "$SUSPEND", "summary": "It says hello."}
    (listed,) = uwf("thread", "list").json
    assert (listed["thread"], listed["status"], listed["title"]) == (thread, "idle", "hi")
    assert uwf("inbox").json == []
    assert [each["thread"] for each in uwf("grep", "what is in").json] == [thread]
    assert "\n\nIt says hello.\n" in uwf("thread", "read", thread).out
    shown = uwf("thread", "show", thread).json
    assert (shown["next"], "resumedFrom" in shown) == ("$USER", False)
    refused = uwf("thread", "step", thread, check=5)
    assert refused.error["hint"] == f"uwf chat --resume {thread}"
    assert uwf("verify").json["findings"] == []
    uwf("cas", "reindex")
    assert uwf("thread", "show", thread).json == shown

    # A fork goes on by itself, on another machine too, and with another agent that has the whole of it told.
    fork = uwf("thread", "fork", steps[1]["step"]).json["thread"]
    there = git_servers.bare(hermetic / "shared.git")
    one, two = Machine(uwf, hermetic / "root"), Machine(uwf, hermetic / "two")
    one("remote", "add", "origin", there)
    one("push")
    two("init")
    two("remote", "add", "origin", there)
    two("pull")
    went_on = two(
        "chat", "--resume", fork, "--agent", "uwf-exec --stdin prompt cat", input="and then?\n"
    ).lines
    assert went_on[0]["thread"] == fork
    said = went_on[-1]["text"]
    assert all(
        each in said for each in ("\n\nhi\n", "Hello. And you?", "# What the user says now\n\nand then?")
    )
    assert [each["type"] for each in went_on] == ["session", "message", "message"]
    assert two("verify").json["findings"] == []
    assert len(uwf("thread", "steps", thread).json) == 4


def test_words_are_shown_while_the_model_speaks_and_ctrl_c_stops_it_alone(
    uwf: Uwf, model: ModelServer
) -> None:
    from prompt_toolkit.history import FileHistory

    over = threading.Event()
    model.play([pieces("First ", "words, ", then=lambda: over.wait(60)), Say("I see.")])
    typed = [
        (PROMPT, "count"),
        ("First words, ", lambda _child, terminal: os.write(terminal, b"\x03")),
        (PROMPT, "/nope"),
        (PROMPT, "why?\x1b\rtell me"),
        (PROMPT, lambda _child, terminal: os.write(terminal, b"\x04")),
    ]
    status, shown = on_terminal("chat", typed=typed)
    over.set()
    assert status == 2, shown
    assert "stopped; /resume asks again" in shown
    thread = re.search(r"uwf chat --resume (\w{26}) goes on", shown)
    assert thread
    (attempt,) = uwf("thread", "attempts", thread[1]).json
    assert attempt["error"] == "interrupted"
    (kept,) = uwf("thread", "turns", thread[1], "--step", attempt["attempt"]).json
    assert (kept["text"], kept["model"]) == ("First words, ", "tiny-1")
    steps = uwf("thread", "steps", thread[1]).json
    assert [each["role"] for each in steps] == ["$USER", "$USER", "assistant"]
    assert steps[1]["output"] == {"answer": "why?\ntell me"}
    last = told(model)[-1]["content"]
    assert re.search(r"count.*stopped.*First words,.*why\?\ntell me$", last, re.DOTALL)
    assert uwf("verify").json["findings"] == []
    kept_inputs = FileHistory("../root/store.git/uwf/chat.history").load_history_strings()
    assert [*kept_inputs][::-1] == ["count", "/nope", "why?\ntell me"]


def test_what_is_typed_during_a_reply_is_the_next_input_and_not_shown_in_it(
    uwf: Uwf, model: ModelServer
) -> None:
    over = threading.Event()
    model.play([pieces("First ", "words, ", then=lambda: over.wait(60)), Say("I see.")])
    typed = [
        (PROMPT, "count"),
        ("First words, ", lambda _child, terminal: os.write(terminal, b"later\r\x03")),
        ("I see.", lambda _child, _terminal: None),
        (PROMPT, lambda _child, terminal: os.write(terminal, b"\x04")),
    ]
    status, shown = on_terminal("chat", typed=typed)
    over.set()
    assert status == 0, shown
    assert "later" not in shown.split("First words, ")[1].split(PROMPT)[0]
    thread = re.search(r"uwf chat --resume (\w{26}) goes on", shown)
    assert thread
    steps = uwf("thread", "steps", thread[1]).json
    assert [each["role"] for each in steps] == ["$USER", "$USER", "assistant"]
    assert steps[1]["output"] == {"answer": "later"}, "Ctrl-C stops the reply alone"


def test_a_reply_that_failed_is_asked_for_again_where_the_conversation_was_left(
    uwf: Uwf, model: ModelServer
) -> None:
    broken = uwf("chat", "--agent", "uwf-exec false", input="are you there?\n", check=6)
    assert broken.lines[-1]["error"]["code"] == "agent_failed"
    assert uwf("chat", "--resume", input="/resume\n", check=None).code == 6, "the model has no script"
    model.play([Drop(600, Say("Yes, of course I am.")), Say("Yes.")])
    again = uwf("chat", "--resume", input="/resume\n/resume\n", check=2).lines
    kinds = [each["type"] for each in again]
    assert [each for each in kinds if each != "delta"] == ["session", "dropped", "message", "error"]
    assert kinds[1] == "delta", "some of it was heard"
    assert (again[-2]["text"], again[-2]["number"]) == ("Yes.", 2)
    assert "has an answer" in again[-1]["error"]["message"]
    assert uwf("chat", "--resume", "ZZZZZZ", check=3).error["code"] == "not_found"
    write("flow.yaml", "name: flow\ndescription: x\nroles: {a: {description: x, systemPrompt: x, outputSchema: "
          "{type: object}}}\ngraph: {$START: [{role: a}], a: [{role: $END}]}\n")  # fmt: skip
    run = uwf("thread", "start", "flow.yaml", "-p", "Go").json["thread"]
    assert "not a conversation" in uwf("chat", "--resume", run, check=1).error["message"]


def test_without_a_model_one_line_says_what_to_do(uwf: Uwf, config: Callable[[str], Path]) -> None:
    done = uwf("chat", input="hi\n", check=1)
    assert (done.out, done.err.count("\n")) == ("", 1)
    assert "uwf setup" in done.error["hint"]
    config("agents:\n  echo: {command: uwf-exec, args: [echo, hello]}\ndefaultAgent: echo\n")
    assert uwf("chat", input="hi\n").lines[-1]["text"] == "hello\n"
    assert (
        uwf("chat", "--agent", "uwf-rehearse", input="hi\nyou\n").lines[-1]["text"].startswith("A rehearsed")
    )
    text = uwf("--format", "text", "chat", input="hi\n")
    assert text.out.splitlines()[1:] == ["hello"]


def test_a_conversation_begins_without_compiling_what_is_there_already(uwf: Uwf) -> None:
    talks = [
        subprocess.run(
            [*UWF, "chat", "--agent", "uwf-rehearse"],
            input=b"hi\n",
            env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
            capture_output=True,
            check=True,
        )
        for _ in range(2)
    ]
    compiled = [b" uwf_git.workflow.check\n" in each.stderr for each in talks]
    begun = [json.loads(each.stdout.splitlines()[-1])["thread"] for each in talks]
    used = {uwf("thread", "show", each).json["workflow"] for each in begun}
    assert (compiled, used) == ([True, False], {DEFINED})


def test_of_a_line_that_is_too_long_nothing_is_said_and_nothing_is_done(uwf: Uwf) -> None:
    long = "a" * (1 << 20)
    done = uwf(
        "chat",
        "--agent",
        "uwf-rehearse",
        input=f"hi\n{long}/dismiss\n{long * 2}\n{long[1:]}\nyou\n{long}a",
        check=2,
    )
    events = [each for each in done.lines if each["type"] != "delta"]
    assert [each["type"] for each in events] == [
        *("session", "message", "message", "error", "error"), *("message", "message") * 2, "error",
    ]  # fmt: skip
    assert [each["text"] for each in events if each.get("role") == "$USER"] == ["hi", long[1:], "you"]
    assert {(each["error"]["code"], bool(each["error"]["hint"])) for each in events if "error" in each} == {
        ("usage", True)
    }


def test_a_start_has_no_second_parent_but_between_a_run_and_a_conversation(
    uwf: Uwf, instance: Instance, thread: str
) -> None:
    talk = uwf("chat", "--agent", "uwf-rehearse", input="hi\n").lines[-1]["thread"]
    instance.store.sync()
    run, conversation = instance.threads.find(thread), instance.threads.find(talk)
    start = next(instance.threads.head(run).commit for _ in "x")

    def begin(like: str, origin: Oid) -> str:
        head = instance.threads.head(instance.threads.find(like))
        history = instance.threads.history(head)
        version = instance.registry.commit_for(history.workflow_hash)
        return instance.threads.start(version, Start(history.workflow_hash, "From there"), origin=origin)

    begun = begin(thread, instance.threads.head(conversation).commit)
    assert instance.threads.origin(instance.threads.find(begun)) == instance.threads.head(conversation).commit
    assert uwf("verify").json["findings"] == []
    wrong = {begin(thread, start): "a run is started from", begin(talk, start): "had not ended"}
    wrong[begin(talk, instance.threads.head(conversation).commit)] = "a run is started from"
    found = {each["thread"]: each for each in uwf("verify", check=7).json["findings"]}
    assert found.keys() == wrong.keys()
    for each, message in wrong.items():
        assert (found[each]["code"], message in found[each]["message"]) == ("wrong-parent", True)


SECRET = "sk-5Hq8Tz2LmN4pWx"


@given(
    before=st.text("sk-5 ab\n", max_size=8),
    after=st.text("x \nq", max_size=8),
    cuts=st.lists(st.integers(0, 40), max_size=12),
)
def test_a_secret_that_comes_in_pieces_does_not_come_out(before: str, after: str, cuts: list[int]) -> None:
    text = before + SECRET + after
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    streamed = StreamedText(Redactor({"KEY": SECRET}))
    out = [streamed.feed(text[one:two]) for one, two in pairwise(places)]
    whole = "".join([*out, streamed.end()])
    assert (SECRET[:5] in whole, SECRET[4:] in whole, "[redacted:KEY]" in whole) == (False, False, True)
    assert len(whole.replace("[redacted:KEY]", "")) <= len(before + after) + 3
    plain = StreamedText(Redactor({"KEY": SECRET}))
    assert plain.feed("words, as ") == "words, as ", "what is none is passed on at once"


def test_a_conversation_in_which_only_runs_were_begun_is_at_rest(uwf: Uwf) -> None:
    uwf("crew", "import", EXAMPLES / "crew" / "press")
    uwf("chat", "press", "--agent", "uwf-rehearse", input="1\n")
    (talk,) = uwf("thread", "list").json
    assert (talk["name"], talk["steps"], talk["status"]) == ("press/$chat", 0, "idle")
    assert uwf("thread", "run", "--all").out.strip() == "", "nothing is there to be stepped"
    assert "problem" not in uwf("thread", "show", talk["thread"]).json
    hint = uwf("thread", "step", talk["thread"], check=5).error["hint"]
    assert hint == f"uwf chat --resume {talk['thread']}"
    events = uwf("chat", "--resume", talk["thread"], "--agent", "uwf-rehearse", input="Hello\n").lines
    assert events[0]["thread"] == talk["thread"] and uwf("inbox").json == []
