"""A store as one looks after some days of work: runs of examples/solve-issue.yaml in every state, with turns, prices,
a question, a failed attempt and a fork, and a crew. No agent is run; the steps are what agents would have come to.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import judged_suites
import pytest
from judged_suites import Scores
from workflows import opened, register

from uwf_git.engine.next_turn import outlook_of
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Attempt, Start, Step
from uwf_git.format.types import DETAIL, QUESTION, STEPNODE, TURN
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from conftest import Uwf

_EXAMPLES = Path(__file__).parents[2] / "examples"
_HOUR = 3600.0
_MODELS = {"claude-code": "claude-sonnet-4-5", "codex": "gpt-5-codex"}
_PRICES = {"claude-code": (3e-6, 15e-6), "codex": (1.25e-6, 10e-6)}  # dollars a token, in and out


class LivedIn(NamedTuple):
    """The threads by what became of them. `parted` is a fork of `completed`, `idle` has somebody next, and `failed` an
    attempt, `attempt`, that came to nothing."""

    completed: ThreadId
    parted: ThreadId
    waiting: ThreadId
    failed: ThreadId
    idle: ThreadId
    over: ThreadId
    killed: ThreadId
    attempt: Hash


class Said(NamedTuple):
    """A step: who, the output, the answer's text, and the tools with their arguments and results. `took` is in seconds,
    `tokens` are in and out."""

    role: str
    output: Mapping[str, Any]
    text: str
    tools: Sequence[tuple[str, Any, Any]] = ()
    agent: str = "claude-code"
    took: float = 41
    tokens: tuple[int, int] = (18_400, 1_150)


PLAN = Said(
    "planner",
    {
        "plan": "`write_row` joins fields with commas and quotes none of them. RFC 4180 wants a field quoted that has"
        " a comma, a quote or a line end, and quotes within it doubled.",
        "steps": [
            "A test in `tests/test_export.py` with a comma, a quote and a line end in a field; it fails today.",
            "`export/csv.py`: quote in `write_row`, the one place that writes fields.",
            "The changelog says that files look different where fields have commas.",
        ],
    },
    '## Cause\n\n`write_row` in `export/csv.py` joins what it is given:\n\n```python\nout.write(",".join(fields) +'
    ' "\\n")\n```\n\nNobody quotes, neither there nor in the callers. I exported the invoice of the issue: the address'
    " `12 High Street, Leeds` became **two** columns.\n\n## Out of scope\n\n- the separator, which stays a comma\n-"
    " the encoding",
    (
        (
            "Grep",
            {"pattern": "write_row", "path": "."},
            "export/csv.py:14\nexport/report.py:88",
        ),
        (
            "Read",
            {"file_path": "export/csv.py"},
            'def write_row(out, fields):\n    out.write(",".join(fields) + "\\n")',
        ),
        (
            "Bash",
            {"command": "python -m export invoice 1042"},
            "id,name,address\n1042,Miller,12 High Street, Leeds",
        ),
    ),
)
CHANGE = Said(
    "developer",
    {
        "filesChanged": ["export/csv.py", "tests/test_export.py"],
        "summary": "`write_row` quotes fields that have a comma or a quote. Tested with the invoice of the issue.",
    },
    "The test came first and failed with `4 != 3`. `write_row` now asks `needs_quotes` for each field.\n\n"
    '| field | before | now |\n|---|---|---|\n| `a,b` | two columns | `"a,b"` |\n| `a"b` | as it is | `"a""b"` |'
    "\n\nAll 214 tests pass.",
    (
        ("Edit", {"file_path": "tests/test_export.py"}, "Applied 1 edit."),
        ("Bash", {"command": "pytest tests/test_export.py"}, "1 failed, 11 passed in 0.84s"),
        ("Edit", {"file_path": "export/csv.py"}, "Applied 1 edit."),
        ("Bash", {"command": "pytest"}, "214 passed in 9.31s"),
    ),
    "codex",
    163,
    (61_250, 5_340),
)
REJECTION = Said(
    "reviewer",
    {
        "approved": False,
        "comments": "export/csv.py:21: a field with a line end isn't quoted, and RFC 4180 wants that.",
    },
    "One case is missed: a line end within a field. `needs_quotes` looks for commas and quotes alone, so an address of"
    " two lines still breaks the file.",
    (("Bash", {"command": "git diff main"}, "2 files changed, 31 insertions(+), 1 deletion(-)"),),
    took=58,
    tokens=(24_900, 870),
)
MENDED = CHANGE._replace(
    output={
        "filesChanged": ["export/csv.py", "tests/test_export.py"],
        "summary": "A field with a line end is quoted as well, and a test has one.",
    },
    text="The reviewer is right. `needs_quotes` looks for `\\n` and `\\r` too, and the test has such an address.",
    took=74,
    tokens=(70_100, 2_480),
)
APPROVAL = Said(
    "reviewer",
    {
        "approved": True,
        "comments": "Every case of RFC 4180 is there, and each has a test that failed before.",
    },
    "I ran the tests, and the export of the issue. Nothing is left to say.",
    (("Bash", {"command": "pytest -q"}, "216 passed in 9.40s"),),
    took=37,
    tokens=(27_300, 610),
)
QUERY = Said(
    "planner",
    {
        "$status": "$SUSPEND",
        "question": "Dates are stored in UTC and shown in the user's zone. Which of them should the export have?",
        "options": ["UTC, with a Z at the end", "The user's zone, as on the screen", "Both, in two columns"],
    },
    "The code doesn't settle it: `report.py` shows local times, `sync.py` sends UTC.",
    (("Grep", {"pattern": "astimezone", "path": "."}, "report.py:40\nreport.py:57"),),
)


_BEFORE: Scores = {"csv-quoting": (1, 1, 0.75), "time-zones": (0.5, 0.25, 0.5), "empty-list": (1, 1, 1)}
_AFTER: Scores = {"csv-quoting": (0.5, 0.75, 0.5), "time-zones": (1, 1, 0.75), "empty-list": (1, 1, 1)}


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[LivedIn]]:
    """Where the store that the first test fills is kept for the others, and what is in it."""
    return tmp_path_factory.mktemp("lived-in") / "root", []


@pytest.fixture
def lived_in(kept: tuple[Path, list[LivedIn]], root: Path, uwf: Uwf) -> LivedIn:
    """A store after some days of work, with a crew."""
    copy, found = kept
    if found:
        shutil.copytree(copy, root)
    else:
        uwf("init")
        found.append(fill(opened()))
        uwf("crew", "import", _EXAMPLES / "crew" / "press")
        uwf("crew", "do", "press", "release notes", "-p", "Version 2 reads CSV.")
        shutil.copytree(root, copy)
    return found[0]


@contextmanager
def _ago(hours: float) -> Iterator[None]:
    """The clock of this process stands so far in the past."""
    real = time.time
    time.time = lambda: real() - hours * _HOUR
    try:
        yield
    finally:
        time.time = real


def fill(instance: Instance) -> LivedIn:
    """Fills a store that is there."""
    version = register(instance, (_EXAMPLES / "solve-issue.yaml").read_text(encoding="utf-8"))

    def start(hours: float, task: str, *said: Said, budget: Mapping[str, float] | None = None) -> ThreadId:
        with _ago(hours):
            thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, task, budget))
        for number, each in enumerate(said, 1):
            with _ago(hours - 0.08 * number):
                say(instance, thread, each)
        return thread

    def end(thread: ThreadId, hours: float, status: str = "completed", reason: str = "") -> None:
        with _ago(hours):
            instance.threads.archive(instance.threads.head(thread), status, reason)

    for hours, task, rounds in (
        (118, "The export of an empty list writes no header.", 1),
        (97, "Numbers are rounded twice in the totals.", 2),
        (93, "Sort the columns as the settings say.", 1),
        (71, "A report of a year takes a minute.", 3),
        (50, "Names with an apostrophe break the search.", 1),
        (46, "Show who approved an invoice.", 2),
    ):
        said = [PLAN, *[CHANGE, REJECTION] * (rounds - 1), CHANGE, APPROVAL]
        end(start(hours, task, *said), hours - 0.08 * (len(said) + 1))
    killed = start(44, "Move the export to a queue.", PLAN)
    end(killed, 43, "killed", "not before the next version")
    issue = "The CSV export does not quote commas.\n\nAn address such as `12 High Street, Leeds` becomes two columns."
    completed = start(26, issue, PLAN, CHANGE, REJECTION, MENDED, APPROVAL)
    end(completed, 25.5)
    parted = _fork(instance, completed, 2, 5, REJECTION._replace(agent="codex", tokens=(21_800, 990)))
    over = start(4, "Let users choose the separator.", PLAN, CHANGE, budget={"maxCost": 0.1})
    failed = start(3, "The nightly export fails on the last day of a month.", PLAN)
    with _ago(2.8):
        attempt = _fail(instance, failed)
    idle = start(1.2, "Write the export's manual page.", PLAN, CHANGE)
    for hours, agent, scores in ((20, "claude-code", _BEFORE), (2, "codex", _AFTER)):
        with _ago(hours):
            judged_suites.run(instance, "solve-issue", version.hash, scores, agent, cost=0.21)
    waiting = start(0.6, "Dates in the export have no time zone.", QUERY)
    return LivedIn(completed, parted, waiting, failed, idle, over, killed, attempt)


def say(instance: Instance, thread: ThreadId, said: Said) -> Hash:
    """The thread's next step."""
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    store = instance.store
    with store.together():
        asks = said.output.get("$status") is not None
        output = store.put(QUESTION if asks else history.workflow.roles[said.role].schema, dict(said.output))
        detail = _detail(instance, said, head.node)
        step = Step(history.start_hash, history.prev, said.role, output, detail, f"uwf-{said.agent}")
        node = store.put(STEPNODE, step.payload())
        instance.threads.append(head, node, {each.hash for each in history.steps}, (), "native")
    outlook_of(instance, instance.threads.history(instance.threads.head(thread)))
    return node


def _detail(instance: Instance, said: Said, context: Hash, **more: Any) -> Hash:
    model = _MODELS[said.agent]
    turns: list[dict[str, Any]] = []
    share = len(said.tools) + 1
    paid, made = said.tokens[0] // share, said.tokens[1] // share
    for number, (tool, arguments, result) in enumerate(said.tools):
        words = ("I look where that is.", "I read it.", "I try it.", "All of it once more.")[min(number, 3)]
        turns.append(_turn("assistant", words, paid, made, model, int(1000 * said.took / share / 2)))
        told = {"role": "tool", "text": "", "tool": tool, "arguments": arguments, "result": result}
        turns.append({**told, "call": f"call-{number}", "durationMs": 240 + 310 * number})
    turns.append(_turn("assistant", said.text, paid, made, model, int(1000 * said.took / share / 2)))
    price = _PRICES[said.agent]
    payload = {
        "answer": said.text,
        "turns": [instance.store.put(TURN, turn) for turn in turns],
        "session": f"session-{context.lower()}",
        "model": model,
        "usage": _usage(*said.tokens),
        "durationMs": int(1000 * said.took),
        "instruction": None,
        "context": context,
        "extraction": "native",
        "cost": round(said.tokens[0] * price[0] + said.tokens[1] * price[1], 4),
        **more,
    }
    return instance.store.put(DETAIL, payload)


def _turn(role: str, text: str, paid: int, made: int, model: str, milliseconds: int) -> dict[str, Any]:
    told = {"role": role, "text": text, "model": model, "durationMs": milliseconds}
    return {**told, "usage": _usage(paid, made)}


def _usage(paid: int, made: int) -> dict[str, int]:
    return {"input": paid, "output": made, "cached": paid // 2}


def _fork(instance: Instance, thread: ThreadId, number: int, hours: float, *said: Said) -> ThreadId:
    """A thread that goes on after a step of another."""
    history = instance.threads.history(instance.threads.head(thread))
    with _ago(hours):
        made = instance.threads.fork(instance.threads.commit_of(history.steps[number - 1].hash))
        for each in said:
            say(instance, made, each)
    return made


def _fail(instance: Instance, thread: ThreadId) -> Hash:
    """A failed attempt at the developer's step."""
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    said = CHANGE._replace(
        text="I changed the calendar, but have not run the tests yet.", tools=CHANGE.tools[:2]
    )
    detail = _detail(instance, said, head.node, extraction="failed")
    error = "the answer has no field filesChanged, which the schema of developer requires"
    failed = Attempt(history.start_hash, history.prev, "developer", "uwf-codex", error, detail)
    return instance.attempts.record(head, failed).hash
