"""A thread of a workflow with one role, and the real command of an agent that does a step of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from warm import run_module
from workflows import start_thread

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import parse_step
from uwf_git.store.instance import Instance

WORKFLOW = """\
name: one-role
description: One role
roles:
  worker:
    description: Does the work.
    systemPrompt: Work.
    outputSchema: {schema}
graph:
  $START: [{{role: worker}}]
  worker: [{{role: $END}}]
"""


# Says one thing, waits until somebody lets it go on, and says another.
TALKER = """\
import os, sys, time
from pathlib import Path
from uwf_git.kit import Reply, TurnRecord, Usage, create_agent

def wait(name):
    while not Path(name).exists():
        time.sleep(0.02)

def run(ctx):
    ctx.in_session("s-1")
    turns = [TurnRecord("assistant", "I look.", usage=Usage(10, 2), model="m")]
    ctx.record(turns[0])
    if ctx.resume:
        wait("never")
    wait("go")
    turns.append(TurnRecord("tool", "", "read_file", {"path": "a"}, {"ok": True}, call="c1"))
    ctx.record(turns[1])
    return Reply("---\\ntext: done\\n---\\n", session="s-1", turns=tuple(turns), usage=Usage(10, 2))

def continue_(ctx, session, message):
    Path("resumed").write_text(session + "\\n" + str([e.turns[0].text for e in ctx.resume.exchanges()]))
    return Reply("---\\ntext: done\\n---\\n", session=session)

create_agent("talker", run, continue_).main()
"""


# Says and does what it is told; see `tell`.
SPEAKER = """\
import os, time
from pathlib import Path
from uwf_git.kit import Reply, TurnRecord, create_agent

def run(ctx):
    turns, said = [], ""
    for number in range(1, 100):
        while not (found := [*Path().glob(f"{number}-*")]):
            time.sleep(0.02)
        kind, text = found[0].name.partition("-")[2], found[0].read_text()
        if kind == "end":
            break
        if kind == "words":
            said += text
            ctx.hear(text)
        elif kind == "drop":
            said = ""
            ctx.hear(None)
        else:
            turns.append(TurnRecord("assistant", said) if said else TurnRecord("tool", "", text, {}, {}, call="c"))
            ctx.record(turns[-1])
            said = ""
    return Reply("---\\ntext: done\\n---\\n", turns=tuple(turns))

create_agent("speaker", run).main()
"""


class Made(NamedTuple):
    """What a step came to: the output and its type, and the detail with its turns."""

    output: Any
    type: Hash
    detail: dict[str, Any]
    turns: list[dict[str, Any]]
    agent: str


def tell(number: int, kind: str, text: str = "") -> None:
    """Lets a speaker in this folder do the next thing, from 1 on: say "words", "drop" what it said, make a "turn" of it
    or, where it said nothing, of a tool's call, or come to its "end"."""
    made = Path(f"told-{number}")
    made.write_text(text)
    made.rename(f"{number}-{kind}")


def start(instance: Instance, schema: Any, prompt: str = "Do it.") -> ThreadId:
    """A thread whose only role, `worker`, has that schema."""
    return start_thread(instance, WORKFLOW.format(schema=json.dumps(schema)), prompt)


def command(agent: str, args: Sequence[str], thread: ThreadId) -> list[str]:
    """The agent's command line."""
    return [sys.executable, "-m", f"uwf_git.ext.agents.{agent}", *args, thread, "worker"]


def perform(
    agent: str,
    args: Sequence[str],
    thread: ThreadId,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the agent's command to its end."""
    done = run_module(
        f"uwf_git.ext.agents.{agent}", [*args, thread, "worker"], env={**os.environ, **(env or {})}, cwd=cwd
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def read(instance: Instance, printed: str) -> Made:
    """The step whose hash an agent printed last."""
    instance.store.sync()
    step = parse_step(instance.store.get(Hash(printed.split()[-1])).payload)
    output = instance.store.get(step.output)
    detail = instance.store.get(step.detail).payload
    turns = [instance.store.get(Hash(turn)).payload for turn in detail["turns"]]
    return Made(output.payload, output.type, detail, turns, step.agent)


def worked(instance: Instance, agent: str, args: Sequence[str], schema: Any, **more: Any) -> Made:
    """The step that an agent makes of a fresh thread."""
    done = perform(agent, args, start(instance, schema), **more)
    assert done.returncode == 0, done.stderr
    return read(instance, done.stdout)


def failed(
    instance: Instance, agent: str, args: Sequence[str], schema: Any, status: int = 6, **more: Any
) -> str:
    """The one line on stderr of an agent that fails on a fresh thread."""
    done = perform(agent, args, start(instance, schema), **more)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.count("\n") == 1
    return done.stderr
