"""Turns while a step is made and afterwards, and what an agent would be told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import one_role
import pytest
from commands import begin
from conftest import Uwf
from one_role import SPEAKER, TALKER

from uwf_git.engine.watching import (
    Event,
    StepBegan,
    StepMade,
    TurnAdded,
    TurnFeed,
    WordsAdded,
    WordsDropped,
    WorkStopped,
    parse_place,
    turns_of,
)
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def looping(uwf: Uwf, folder: Path) -> str:
    """A thread whose only role goes again and again."""
    workflow = one_role.WORKFLOW.format(schema=json.dumps(SCHEMA)).replace(
        "worker: [{role: $END}]",
        "worker: [{role: $END, condition: stop}, {role: worker}]\n"
        "conditions: {stop: {expression: \"steps[-1].output.text = 'stop'\"}}",
    )
    (folder / "loop.yaml").write_text(workflow)
    return str(uwf("thread", "start", folder / "loop.yaml", "-p", "x").json["thread"])


@pytest.fixture
def talker(script: Callable[[str, str], Path]) -> str:
    return str(script("talker", TALKER))


@pytest.fixture
def thread(instance: Instance) -> str:
    return one_role.start(instance, SCHEMA)


@pytest.fixture
def stepping(talker: str, thread: str) -> Iterator[subprocess.Popen[str]]:
    """A step that waits in the middle."""
    process = begin("thread", "step", thread, "--agent", talker)
    yield process
    process.kill()
    process.communicate()


def test_turns_are_shown_as_they_happen_and_all_of_them_afterwards(
    uwf: Uwf, thread: str, stepping: subprocess.Popen[str], instance: Instance
) -> None:
    while not instance.runs.notes(thread):
        time.sleep(0.02)
        assert stepping.poll() is None
    live = begin("thread", "turns", thread, "--live", as_fork=True)
    assert live.stdout is not None
    first = json.loads(live.stdout.readline())
    assert (first["role"], first["text"], first["usage"]["input"]) == ("assistant", "I look.", 10)
    assert [turn["text"] for turn in uwf("thread", "turns", thread).json] == ["I look."]
    Path("go").touch()
    assert stepping.wait(30) == 0
    rest = [json.loads(line) for line in live.stdout.read().splitlines()]
    assert [turn["tool"] for turn in rest] == ["read_file"]
    assert live.wait() == 0
    after = uwf("thread", "turns", thread).json
    assert [(turn["role"], turn["text"]) for turn in after] == [("assistant", "I look."), ("tool", "")]
    assert "read_file" in uwf("thread", "turns", thread, "--format", "text").out
    assert uwf("thread", "turns", thread, "--live", check=1).error["message"].endswith("is not running")


def test_who_watches_hears_words_turns_and_what_became_of_them(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path], instance: Instance
) -> None:
    (instance.location.root / ".env").write_text("DEPLOY_TOKEN=s3cr3t-and-long-enough\n")
    news = TurnFeed(instance, ThreadId(thread))
    process = begin("thread", "step", thread, "--agent", script("speaker", SPEAKER), as_fork=True)
    heard: list[Event] = []

    def until(kind: type, number: int) -> list[Event]:
        while sum(isinstance(event, kind) for event in heard) < number:
            time.sleep(0.01)
            heard.extend(news.news())
            assert process.poll() is None or number == 1
        return heard

    try:
        told = until(StepBegan, 1)
        assert [event.order.role for event in told if isinstance(event, StepBegan)] == ["worker"]
        one_role.tell(1, "words", "I lo")
        until(WordsAdded, 1)
        one_role.tell(2, "words", "ok. ")
        until(WordsAdded, 2)
        one_role.tell(3, "turn")
        until(TurnAdded, 1)
        one_role.tell(4, "words", "It is s3cr3t-and-long-enough and wro")
        until(WordsAdded, 3)
        one_role.tell(5, "drop")
        until(WordsDropped, 1)
        one_role.tell(6, "turn", "a tool")
        until(TurnAdded, 2)
        late = TurnFeed(instance, ThreadId(thread), parse_place("1.1"))
        assert [str(event.place) for event in late.news() if isinstance(event, TurnAdded)] == ["1.2"]
        one_role.tell(7, "end")
        until(StepMade, 1)
        while heard[-1] != WorkStopped():
            time.sleep(0.01)
            heard.extend(news.news())
    finally:
        process.kill()
        process.communicate()
    kinds = [
        StepBegan,
        *[WordsAdded] * 2,
        TurnAdded,
        WordsAdded,
        WordsDropped,
        TurnAdded,
        StepMade,
        WorkStopped,
    ]
    assert [type(event) for event in heard][heard[0] == WorkStopped() :] == kinds
    words = [event.text for event in heard if isinstance(event, WordsAdded)]
    assert words[:2] == ["I lo", "ok. "] and words[2] == "It is [redacted:DEPLOY_TOKEN] and wro"
    assert [str(event.place) for event in heard if isinstance(event, TurnAdded)] == ["1.1", "1.2"]
    assert news.news() == []
    # Who comes back later is told the rest of it, and nothing twice.
    again = TurnFeed(instance, ThreadId(thread), parse_place("1.1")).news()
    assert [str(each.place) for each in again if isinstance(each, TurnAdded)] == ["1.2"]
    assert [each for each in again if isinstance(each, StepMade)] == [
        each for each in heard if isinstance(each, StepMade)
    ]


DOUBTED = """\
import time
from pathlib import Path
from uwf_git.kit import Reply, TurnRecord, create_agent

def answer(ctx):
    number = len(list(Path().glob("seen-*")))
    turns = (TurnRecord("assistant", f"answer {number + 1}"),)
    if "--records" in ctx.options:
        ctx.record(turns[0])
    return Reply(turns[0].text, session="s-1", turns=turns)

def continue_(ctx, session, message):
    number = 1 + len(list(Path().glob("asked-*")))
    Path(f"asked-{number}").touch()
    while not Path(f"seen-{number}").exists():
        time.sleep(0.02)
    return answer(ctx)

create_agent("doubted", answer, continue_, parse_args=list).main()
"""


@pytest.mark.parametrize("options", ["", " --records"])
def test_corrections_are_heard_in_the_order_in_which_they_are_kept(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path], instance: Instance, options: str
) -> None:
    news = TurnFeed(instance, ThreadId(thread))
    process = begin(
        "thread", "step", thread, "--agent", f"{script('doubted', DOUBTED)}{options}", as_fork=True
    )
    heard: list[Event] = []
    try:
        while not any(isinstance(event, StepMade) for event in heard):
            time.sleep(0.02)
            heard += news.news()
            said = [
                event for event in heard if isinstance(event, TurnAdded) and event.turn.role == "assistant"
            ]
            for number in range(len(said)):
                Path(f"seen-{number + 1}").touch()
    finally:
        process.kill()
        process.communicate()
    turns = [(event.turn.role, event.turn.text) for event in heard if isinstance(event, TurnAdded)]
    assert [text.split(":")[0] for _, text in turns] == [
        "answer 1",
        "Your answer can't be taken yet",
        "answer 2",
        "Your answer can't be taken yet",
        "answer 3",
    ]
    (made,) = (event for event in heard if isinstance(event, StepMade))
    assert turns == [(turn.role, turn.text) for turn in turns_of(instance, made.node)]


def test_what_was_made_while_nobody_looked_is_told_in_its_order(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path], instance: Instance
) -> None:
    news = TurnFeed(instance, ThreadId(thread))
    bad = script("bad", "raise SystemExit(3)")
    uwf("thread", "step", thread, "--agent", bad, check=6)
    uwf("thread", "step", thread, "--agent", bad, check=6)
    uwf("thread", "step", thread, "--agent", "uwf-rehearse")
    made = [event for event in news.news() if isinstance(event, StepMade)]
    assert [(event.made, event.number, event.failed) for event in made] == [
        (1, 1, True),
        (2, 1, True),
        (3, 1, False),
    ]
    later = TurnFeed(instance, ThreadId(thread), parse_place("2.0")).news()
    assert [event for event in later if isinstance(event, StepMade)] == made[1:]


@pytest.mark.needs("pkill")
def test_a_killed_engine_leaves_an_attempt_with_the_turns_and_the_next_step_resumes_the_session(
    uwf: Uwf, thread: str, talker: str, stepping: subprocess.Popen[str], instance: Instance
) -> None:
    while not any("turn" in note for note in instance.runs.notes(thread)):
        time.sleep(0.02)
        assert stepping.poll() is None
    subprocess.run(["pkill", "-KILL", "-f", f"^{sys.executable} .*{talker}"], check=True)
    os.kill(stepping.pid, signal.SIGKILL)
    stepping.wait()
    done = uwf("thread", "step", thread, "--agent", talker).json
    assert done["status"] == "completed"
    assert Path("resumed").read_text() == "s-1\n['I look.']"
    [attempt] = uwf("thread", "attempts", thread).json
    turns = uwf("thread", "turns", thread, "--step", attempt["attempt"]).json
    assert [turn["text"] for turn in turns] == ["I look."]


def test_the_prompt_is_the_one_that_the_agent_gets(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path]
) -> None:
    echo = script(
        "echo-agent",
        "from pathlib import Path\nfrom uwf_git.kit import create_agent\n"
        "def run(ctx):\n    Path('told').write_text(ctx.prompt)\n    return '---\\ntext: x\\n---\\n'\n"
        "create_agent('echo', run).main()\n",
    )
    shown = uwf("thread", "prompt", thread)
    assert shown.out.startswith("# How you answer\n")
    data = uwf("thread", "prompt", thread, "--format", "json").json
    assert (data["role"], data["prompt"]) == ("worker", shown.out)
    uwf("thread", "step", thread, "--agent", str(echo))
    assert Path("told").read_text() == shown.out
    assert uwf("thread", "prompt", thread, check=1).error["hint"].startswith("name one with --role")
    assert "You have spoken once before" in uwf("thread", "prompt", thread, "--role", "worker").out


def test_a_fork_does_not_speak_in_the_sessions_of_its_origin(
    uwf: Uwf, hermetic: Path, script: Callable[[str, str], Path], instance: Instance
) -> None:
    talker = script(
        "sessions",
        "import secrets\nfrom pathlib import Path\nfrom uwf_git.kit import Reply, create_agent\n"
        "def run(ctx):\n"
        "    Path('heard').write_text(str(ctx.previous_session))\n"
        "    session = ctx.previous_session or secrets.token_hex(4)\n"
        "    Path('said').write_text(session)\n"
        "    return Reply('---\\ntext: x\\n---\\n', session=session)\n"
        "create_agent('sessions', run).main()\n",
    )

    def step(thread: str) -> tuple[str, str]:
        uwf("thread", "step", thread, "--agent", str(talker))
        return Path("heard").read_text(), Path("said").read_text()

    thread = looping(uwf, hermetic)
    _, first = step(thread)
    assert step(thread) == (first, first)
    fork = uwf("thread", "fork", thread).json["thread"]
    heard, other = step(fork)
    assert heard == "None" and other != first
    assert step(fork) == (other, other)
    assert step(thread) == (first, first)
    uwf("gc")
    uwf("thread", "rm", fork, "--yes")
    kept = {path.read_text() for path in (instance.location.git_dir / "uwf" / "sessions").iterdir()}
    assert kept == {thread}


def test_a_session_that_is_no_id_is_never_handed_to_an_agent(
    uwf: Uwf, hermetic: Path, script: Callable[[str, str], Path]
) -> None:
    hostile = script(
        "hostile",
        "from pathlib import Path\nfrom uwf_git.kit import Reply, create_agent\n"
        "def run(ctx):\n"
        "    with Path('heard').open('a') as file:\n        file.write(f'{ctx.previous_session} ')\n"
        "    return Reply('---\\ntext: x\\n---\\n', session='--dangerously-skip-permissions')\n"
        "create_agent('hostile', run).main()\n",
    )
    thread = looping(uwf, hermetic)
    for _ in range(2):
        uwf("thread", "step", thread, "--agent", str(hostile))
    assert Path("heard").read_text() == "None None "


@pytest.mark.parametrize("lie", ["turns", "context", "kept", "instruction"])
def test_a_detail_that_says_what_is_not_so_is_refused_at_the_step(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path], instance: Instance, lie: str
) -> None:
    liar = script(
        "liar",
        "import sys\nfrom uwf_git.store.instance import Instance\n"
        "from uwf_git.format.kinds import Step\nfrom uwf_git.format.types import DETAIL, STEPNODE, TEXT\n"
        "from uwf_git.format.ids import ThreadId\n"
        "i = Instance.open()\nhead = i.threads.head(ThreadId(sys.argv[-2]))\nh = i.threads.history(head)\n"
        "output = i.store.put(h.workflow.roles['worker'].schema, {'text': 'x'})\n"
        "other = i.store.put(TEXT, 'no turn')\n"
        f"lie = {{'turns': [other], 'context': other, 'kept': other, 'instruction': 'Another.'}}[{lie!r}]\n"
        f"told = {{'turns': [], 'context': head.node, 'instruction': None}} | {{{lie!r}: lie}}\n"
        "detail = i.store.put(DETAIL, told | {'answer': 'x', 'session': None, 'model': None,\n"
        "  'usage': None, 'durationMs': 0, 'extraction': 'native'})\n"
        "print(i.store.put(STEPNODE, Step(h.start_hash, h.prev, 'worker', output, detail, 'liar').payload()))\n",
    )
    failed = uwf("thread", "step", thread, "--agent", str(liar), check=6)
    assert {
        "turns": "as a turn, which is none",
        "context": "the detail's context is",
        "kept": "as a session, which is none",
        "instruction": "the detail's instruction is not the one of the workflow",
    }[lie] in failed.err
    assert uwf("thread", "show", thread).json["status"] == "failed"
    uwf("thread", "turns", thread)
    uwf("thread", "step", thread, "--agent", "uwf-rehearse")
    assert uwf("verify").json["findings"] == []


def test_an_error_that_holds_a_token_is_printed_without_it(uwf: Uwf, thread: str) -> None:
    token = "ghp_" + "a1B2" * 9
    failed = uwf("thread", "step", thread, "--agent", f"sh -c 'echo {token} >&2; exit 3'", check=6)
    assert "[redacted:github-token]" in failed.error["message"]
    assert token not in failed.error["message"]


def test_an_assistant_that_calls_without_a_word_takes_no_line() -> None:
    from uwf_cli.commands.conversation import turn_lines

    call = {"role": "tool", "text": "", "tool": "ls", "arguments": {}, "result": "a", "failed": False}
    call |= {"usage": None, "durationMs": None}
    silent = {"role": "assistant", "text": "", "usage": None, "durationMs": None}
    spent = {**silent, "usage": {"input": 7, "output": 1}}
    assert turn_lines([silent, call, spent, {**spent, "text": "Done.\n"}]).splitlines() == [
        *("  ls {}", "  → a", "assistant (7 in, 1 out)", "assistant (7 in, 1 out): Done.")
    ]
