"""A session of `uwf top` with the three tasks that one opens it for, as docs/guides/top.md links it.

It is kept where UWF_TEST_RECORDING names a file; `make recording` renews that of the document.
"""

from __future__ import annotations

import codecs
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyte
import pytest
from cli_samples import write
from commands import git
from conftest import Uwf
from full_screen import FullScreen, full_screen

pytest.importorskip("textual", reason="pip install '.[top]'")

_KEPT = Path(__file__).parents[2] / "docs/guides/top/session.cast"
_KEEP = Path(name).absolute() if (name := os.environ.get("UWF_TEST_RECORDING")) else None
_COLUMNS, _ROWS = 120, 30
_KEY, _READ = 0.8, 2.5  # seconds before a key, and to read a screen: for a person who looks at it
_BURST = 0.05  # seconds of output that are one event
_TASKS = ("Retry what failed last night", "Answer three gates", "Say what step 4 changed and cost")

_TEXT = "outputSchema: { type: object, properties: { report: { type: string } }, required: [report] }"
_NIGHTLY = f"""\
name: nightly
description: Check what is published.
roles: {{ checker: {{ description: c, systemPrompt: c, {_TEXT} }} }}
graph: {{ $START: [{{ role: checker }}], checker: [{{ role: $END }}] }}
"""
_MEND = f"""\
name: mend
description: Change it, and have a person decide.
roles:
  developer: {{ description: d, systemPrompt: d, {_TEXT} }}
  gate:
    description: Is this change to be merged?
    human: true
    outputSchema: {{ type: object, properties: {{ decision: {{ enum: [merge, drop] }} }}, required: [decision] }}
graph: {{ $START: [{{ role: developer }}], developer: [{{ role: gate }}], gate: [{{ role: $END }}] }}
"""
_SOLVE = f"""\
name: solve
description: Plan, change and review it.
roles:
  planner: &role {{ description: p, systemPrompt: p, {_TEXT} }}
  developer: *role
  reviewer: *role
conditions: {{ enough: {{ description: Two reviews., expression: $count(steps) >= 5 }} }}
graph:
  $START: [{{ role: planner }}]
  planner: [{{ role: developer }}]
  developer: [{{ role: reviewer }}]
  reviewer: [{{ role: $END, condition: enough }}, {{ role: developer }}]
"""
_GATES = {
    "Let users choose the separator": 'def separator(settings):\n    return settings.get("separator", ",")\n',
    "Sort the columns as the settings say": 'def columns(settings):\n    return sorted(settings["columns"])\n',
    "Quote fields that have a comma": 'def quoted(field):\n    return f\'"{field}"\' if "," in field else field\n',
}
_AGENT = """\
import time
from pathlib import Path
from uwf_git.kit import Reply, create_agent

GATES = $GATES

def run(ctx):
    time.sleep(0.3)
    number = len(ctx.history.steps)
    if ctx.role.name == "checker":
        if not Path("$MENDED").exists():
            raise SystemExit("the model is busy")
        return reply("All pages are as they should be.", 0.04)
    if ctx.role.name == "developer":
        changed = next((text for title, text in GATES.items() if title in ctx.prompt), f"RETRIES = {number}\\n")
        Path("export.py").write_text(changed)
        return reply("It is changed, and the tests pass.", 0.08 + 0.11 * number)
    return reply("Three tries are enough." if number > 1 else "Try again if the server is away.", 0.02)

def reply(report, cost):
    return Reply(f"---\\nreport: {report}\\n---\\n", session="none", cost=cost)

create_agent("codex", run, lambda ctx, session, message: run(ctx)).main()
"""


class _Recording:
    """An asciicast of version 2."""

    def __init__(self, screen: FullScreen) -> None:
        self._began = time.monotonic()
        self._events: list[list[Any]] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        screen.on_output = self._take

    def mark(self, label: str) -> None:
        self._events.append([self._now(), "m", label])

    def text(self) -> str:
        header = {
            "version": 2,
            "width": _COLUMNS,
            "height": _ROWS,
            "title": "uwf top",
            "env": {"TERM": "xterm-256color"},
        }
        return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (header, *self._events))

    def _take(self, data: bytes) -> None:
        now, text, last = self._now(), self._decoder.decode(data), self._events[-1] if self._events else None
        if last is not None and last[1] == "o" and now - last[0] < _BURST:
            last[2] += text
        else:
            self._events.append([now, "o", text])

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 3)


@pytest.fixture
def night(
    uwf: Uwf, config: Callable[[str], Path], script: Callable[[str, str], Path], tmp_path: Path
) -> Path:
    """A project after a night: four steps of a thread, three gates, three failures. With the file that is returned the
    failures go away."""
    mended, project = tmp_path / "mended", tmp_path / "export"
    git("init", "-q", "-b", "main", project)
    (project / "export.py").write_text("RETRIES = 0\n")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "first")
    agent = script("codex", _AGENT.replace("$GATES", repr(_GATES)).replace("$MENDED", str(mended)))
    config(
        f"workspace: {{ kind: worktree }}\nagents: {{ codex: {{ command: {agent} }} }}\ndefaultAgent: codex\n"
    )
    for name, text in {"nightly": _NIGHTLY, "mend": _MEND, "solve": _SOLVE}.items():
        uwf("workflow", "put", write(f"{name}.yaml", text))

    def begin(workflow: str, title: str, status: int, *more: object) -> None:
        thread = uwf("thread", "start", workflow, "-p", title, cwd=project).json["thread"]
        uwf("thread", "run", thread, *more, cwd=project, check=status)

    begin("solve", "The export stops if the server is away for a moment", 11, "--max-steps", 4)
    for title in _GATES:
        begin("mend", title, 5)
    for title in ("Check the links of the manual", "Check the prices", "Check the translations"):
        begin("nightly", title, 6)
    return mended


@pytest.mark.extended
def test_a_recorded_session_does_the_three_tasks(
    uwf: Uwf, night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "export")
    with full_screen("top", columns=_COLUMNS, rows=_ROWS) as screen:
        recording = _Recording(screen)

        def press(*keys: str) -> None:
            for key in keys:
                screen.rest(_KEY if _KEEP else 0)
                screen.press(key)

        screen.wait(lambda text: "3 ask you" in text and "3 failed" in text and "gate asks you" in text)
        screen.rest(_READ if _KEEP else 0)
        night.touch()
        recording.mark(_TASKS[0])
        press("n")
        screen.wait(lambda text: "separator" not in text and "the model is busy" in text)
        press("*")
        screen.wait(lambda text: text.count("*!") == 3)
        press("r")
        screen.wait("no such threads")
        press("n")
        screen.wait("3 ask you")
        recording.mark(_TASKS[1])
        for number, text in enumerate(_GATES.values()):
            screen.wait(lambda shown, text=text: "gate asks you" in shown and text.splitlines()[-1] in shown)
            screen.rest(_READ if _KEEP and not number else 0)
            press("1")
        screen.wait(lambda text: " uwf top   - 1 idle" in text)
        recording.mark(_TASKS[2])
        press("\r", "4")
        screen.wait(lambda text: "step 4 ·" in text and "+RETRIES = 3" in text and "$0.41" in text)
        screen.rest(_READ if _KEEP else 0)
        press("\x1b")
        press("q")
        assert screen.end() == 0
    states = {item["title"]: item["status"] for item in uwf("thread", "list", "--all", "--limit", "9").json}
    assert sorted(states.values()) == ["completed"] * 6 + ["idle"]
    assert str(tmp_path) not in recording.text()
    path = _KEEP or tmp_path / "session.cast"
    path.write_text(recording.text())
    _assert_it_plays(path)


def test_the_recorded_session_of_the_guide_plays() -> None:
    _assert_it_plays(_KEPT)


def _assert_it_plays(path: Path) -> None:
    """Play a recording on a screen, and find the outcomes of the three tasks where the next one begins."""
    assert path.stat().st_size < 100_000
    header, *events = [json.loads(line) for line in path.read_text().splitlines()]
    assert (header["version"], header["width"], header["height"]) == (2, _COLUMNS, _ROWS)
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)
    assert {kind for _, kind, _ in events} == {"o", "m"}
    assert [text for _, kind, text in events if kind == "m"] == list(_TASKS)
    screen = pyte.Screen(_COLUMNS, _ROWS)
    stream = pyte.Stream(screen)
    begun: list[str] = []  # the screens at which the tasks begin
    seen = []
    for _, kind, text in events:
        if kind == "o":
            stream.feed(text)
            seen.append("\n".join(screen.display))
        else:
            begun.append(seen[-1])
    before, retried, answered = (text.splitlines()[0] for text in begun)
    assert "3 ask you" in before and "3 failed" in before
    assert "3 ask you" in retried and "failed" not in retried
    assert "ask you" not in answered
    assert any("step 4 ·" in text and "+RETRIES = 3" in text and "$0.41" in text for text in seen)
