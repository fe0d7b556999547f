"""A thread says that one which works for it waits for a person."""

from __future__ import annotations

import os
import time

import pytest
from cli_samples import PAIR, write
from conftest import Uwf
from fan_outs import ANSWER, FAN
from site_serving import Serve, entered

from uwf_git.base.thread_states import asking_text
from uwf_git.engine.forks import begun_at
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import SUBWORKFLOW
from uwf_git.store.instance import Instance
from uwf_git.store.permission_files import OpenRequest, Wish

QUESTION = """uwf-exec echo '{"status": "needs_input", "question": "Which?"}'"""


def _item(uwf: Uwf, thread: str) -> dict[str, object]:
    """A thread in the list, whose page and `show` say the same."""
    item = next(item for item in uwf("thread", "list").json if item["thread"] == thread)
    shown = uwf("thread", "show", thread).json
    assert shown.get("waitingBelow") == item.get("waitingBelow")
    return dict(item)


@pytest.fixture
def fan_out(uwf: Uwf, instance: Instance) -> tuple[str, list[ThreadId]]:
    """A thread that waits for its branches, and these."""
    uwf("workflow", "put", write("fan.yaml", FAN))
    thread = uwf("thread", "start", "fan", "-p", "Fan out").json["thread"]
    for _ in range(2):
        uwf("thread", "step", thread, "--agent", ANSWER, check=None)
    return thread, list(begun_at(instance, instance.threads.head(ThreadId(thread)).row))


def test_a_fan_out_says_how_many_of_its_branches_wait_for_a_person(
    uwf: Uwf, serve: Serve, fan_out: tuple[str, list[ThreadId]]
) -> None:
    thread, branches = fan_out
    assert len(branches) == 3 and "waitingBelow" not in _item(uwf, thread)
    for number, words in enumerate(("1 asks you", "2 ask you")):
        uwf("thread", "step", branches[number], "--agent", QUESTION)
        item = _item(uwf, thread)
        assert (item["status"], item["waitingBelow"], asking_text(item)) == ("joining", number + 1, words)
        for client in entered(serve("--write")):
            row = client.get("/threads").text.partition(f'id="t-{thread}"')[2].partition("</tr>")[0]
            assert f'<span class="badge yellow">{words}</span>' in row
            head = client.get(f"/thread/{thread}").text.partition('id="run"')[2].partition("</header>")[0]
            assert f'<span class="badge yellow">{words}</span>' in head
    assert "joining · 2 ask you" in uwf("--format", "text", "thread", "list").out
    uwf("thread", "pause", branches[0])
    assert _item(uwf, thread)["waitingBelow"] == 1, "nobody is asked for a paused one"


def test_a_thread_at_work_says_that_its_sub_workflows_agent_asks_leave(uwf: Uwf, instance: Instance) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    top, middle, child = (
        ThreadId(uwf("thread", "start", "pair", "-p", name).json["thread"]) for name in "abc"
    )
    instance.sessions.claim(SUBWORKFLOW, middle, top)
    instance.sessions.claim(SUBWORKFLOW, child, middle)
    now = time.time()
    wish = Wish("execute", "Try it", "make test", ())
    with instance.locks.hold(top), instance.locks.hold(middle), instance.locks.hold(child):
        assert "waitingBelow" not in _item(uwf, top)
        held = instance.permission_files.put(
            OpenRequest("7Q2XKMPA", child, "writer", "uwf-acp", wish, now, now + 600)
        )
        try:
            assert [_item(uwf, each)["status"] for each in (top, middle)] == ["running", "running"]
            assert [_item(uwf, each).get("waitingBelow") for each in (top, middle, child)] == [1, 1, None]
        finally:
            os.close(held)
        assert "waitingBelow" not in _item(uwf, top)


def test_the_words_for_those_below() -> None:
    assert asking_text({}) == "" and asking_text({"waitingBelow": 1}) == "1 asks you"
