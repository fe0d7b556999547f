"""`uwf-rehearse`: makes any workflow run without a model.

It answers with a valid output made from the role's schema, and of all that it could say it says what
takes the edge that this thread has taken least: so every status and every edge has its turn, and loops
end. With `--script` it plays replies from a file instead.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uwf_git.agents.script import Entry, read_script
from uwf_git.errors import AgentFailed, Usage, UwfError
from uwf_git.generate import outputs
from uwf_git.ids import Hash
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.protocol import START, USER, Role, StepContext
from uwf_git.schema import Schema
from uwf_git.thread import History

USAGE = "uwf-rehearse [--script FILE]"


def parse_args(args: Sequence[str]) -> Path | None:
    """The script's path, if one is to be played. Raises Usage."""
    if not args:
        return None
    name, equals, value = args[0].partition("=")
    rest = [value] if equals else list(args[1:2])
    if name != "--script" or not rest or len(args) > 1 + (not equals):
        raise Usage(f"uwf-rehearse can't take {' '.join(args)}", USAGE)
    return Path(rest[0])


def run(ctx: Context) -> Reply:
    """The script's reply, or the made-up output that takes the least worn edge."""
    if ctx.options is None:
        return _said(ctx, choose_output(ctx.history, ctx.role, ctx.schema))
    return _play(ctx, ctx.options)


def continue_(ctx: Context, session: str, _message: str) -> Reply:
    """Corrections change nothing: a script that says garbage means it."""
    return run(ctx)._replace(session=session)


def _said(ctx: Context, output: Any) -> Reply:
    turn = sum(step.role == ctx.role.name for step in ctx.history.steps) + 1
    text = f"{_frontmatter(output)}A rehearsed answer of {ctx.role.name}, turn {turn}. No model was asked.\n"
    # The output as it is, too: reading it back out of the text would take longer than the rest of a step.
    return Reply(text, session="rehearsal", output=output)


def _frontmatter(output: Any) -> str:
    """An object's fields as YAML whose values are JSON, which YAML 1.2 reads as they are. A writer of
    nicer YAML is not worth its import in every step."""
    if not isinstance(output, dict):
        return ""
    names = {key: key if key.isidentifier() else json.dumps(key) for key in output}
    lines = (f"{names[key]}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in output.items())
    return f"---\n{''.join(lines)}---\n\n"


def choose_output(history: History, role: Role, schema: Schema) -> Any:
    """The output that takes the edge which this thread has taken least; among equals, the edge that
    stands first. Outputs that lead nowhere are last."""
    candidates = outputs(schema, role.name)
    edges = history.workflow.graph.get(role.name, ())
    if len(candidates) == 1 or len(edges) < 2:
        turn = sum(step.role == role.name for step in history.steps)
        return candidates[turn % len(candidates)]
    worn = _worn(history, role.name)
    reached = [(_edge(history, history.steps, role.name, output), output) for output in candidates]
    best = min(reached, key=lambda pair: (pair[0] is None, worn[pair[0]], pair[0] or 0))
    return best[1]


def _worn(history: History, role: str) -> Counter[int | None]:
    """How often each edge of a role was taken in this thread."""
    taken: Counter[int | None] = Counter()
    for number, step in enumerate(history.steps):
        if step.role == role:
            taken[_edge(history, history.steps[:number], role, step.output)] += 1
    return taken


def _edge(history: History, before: Sequence[StepContext], role: str, output: Any) -> int | None:
    """The position of the edge that an output takes; None where there is none."""
    from uwf_git.moderator import choose

    imagined = StepContext(Hash(""), role, output, Hash(""), START)
    try:
        return choose(history.workflow, history.start, (*before, imagined)).position
    except UwfError:
        return None


def _play(ctx: Context, path: Path) -> Reply:
    entries = read_script(path)
    number = sum(step.role != USER for step in ctx.history.steps) + ctx.attempts
    if number >= len(entries):
        raise AgentFailed(
            f"script {path} has {len(entries)} entries, and role {ctx.role.name!r} needs the next one",
            "add it",
        )
    entry = entries[number]
    if entry.role != ctx.role.name:
        raise AgentFailed(
            f"script {path}, entry {number + 1} is for role {entry.role!r}, but {ctx.role.name!r} is next",
            "put the entries in the order of the steps",
        )
    _sleep(entry, ctx.deadline)
    if entry.exit is not None:
        raise SystemExit(entry.exit)
    if entry.garbage is not None:
        return Reply(entry.garbage, session="rehearsal")
    if entry.answer is not None:
        return Reply(entry.answer, session="rehearsal")
    if entry.output is None:
        return _said(ctx, choose_output(ctx.history, ctx.role, ctx.schema))
    return _said(ctx, entry.output)


def _sleep(entry: Entry, deadline: float | None) -> None:
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left < entry.sleep:
        time.sleep(max(0.0, left))
        raise AgentFailed("uwf-rehearse ran out of time", "raise agents.<name>.timeout")
    time.sleep(entry.sleep)


agent = create_agent("uwf-rehearse", run, continue_, parse_args)
main = agent.main

if __name__ == "__main__":
    main()
