r"""`uwf-rehearse`: generated outputs, to run any workflow without a model.

Answers with a valid output from the role's schema, taking the edge that this thread has taken least, so that
every edge is tried and loops end. `--script` plays a file's replies instead:

    - {role: planner, output: {plan: short}}         a valid output
    - {role: developer, answer: "---\n…\n---\n…"}   an answer, verbatim
    - {role: reviewer, garbage: "no fields here"}    an answer that never gets better
    - {role: reviewer, exit: 3}                      ends with that status
    - {role: reviewer, sleep: 2, output: {…}}        waits first

The thread determines the entry: one per step of a role and per failed attempt. Branches of one fork answer differently,
and all alike after every second fork, so that conditions over them come out both ways.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.kit import Agent, Context, Reply
from uwf_git.plugin import (
    BUNDLE,
    ENDS,
    FAIL,
    FORK,
    USER,
    AgentFailed,
    Conversation,
    History,
    Invalid,
    LimitExceeded,
    Role,
    SampleHints,
    Schema,
    StepContext,
    Transition,
    Usage,
    UwfError,
    Workflow,
    asks_human,
    conversations,
    hints_of,
    leading_to,
    read_options,
    sample_variants,
    type_name,
)

USAGE = "uwf-rehearse [--script FILE]"
_REMEMBERED = 24  # last turns of a role, from which it is counted how often each edge was taken
_SUCCESS = 30  # steps in which no edge to $FAIL is taken if there is another
_PATIENCE = 100  # steps after which no odd outputs are tried any more


def parse_args(args: Sequence[str]) -> Path | None:
    """Return the script's path, if any. Raises Usage."""
    options, rest = read_options("uwf-rehearse", USAGE, args, ("--script",))
    if rest or len(options) > 1:
        raise Usage(f"uwf-rehearse cannot take {' '.join(args)}", USAGE)
    return Path(options[0][1]) if options else None


class _Conversation(Conversation):
    """A rehearsed step. Corrections repeat the answer."""

    def begin(self) -> Reply:
        if self.ctx.options is None:
            return _said(self.ctx, _chosen(self.ctx))
        return _play(self.ctx, self.ctx.options)

    def say(self, text: str) -> Reply:
        return self.begin()


def _chosen(ctx: Context) -> Any:
    return choose_output(ctx.history, ctx.role, ctx.schema, _variation(ctx))


def _variation(ctx: Context) -> int:
    """Return by how much a branch differs from a thread: for each fork of its parent its index, then for all of the
    next fork the same."""
    branch = ctx.history.start.branch
    if branch is None:
        return 0
    earlier = sum(past.step.role == FORK for past in ctx.instance.threads.past(branch.fork)) - 1
    return branch.position + earlier // 2 if earlier % 2 == 0 else earlier // 2


def _said(ctx: Context, output: Any) -> Reply:
    turn = sum(step.role == ctx.role.name for step in ctx.history.steps) + 1
    fields = "" if conversations.talks(ctx.role) else _frontmatter(output)
    who = "the call" if ctx.role.name == BUNDLE else ctx.role.name
    text = f"{fields}A rehearsed answer of {who}, turn {turn}. No model was asked.\n"
    # The output as it is, too: reading it back out of the text would take longer than the rest of a step.
    return Reply(text, session="rehearsal", output=output)


def _frontmatter(output: Any) -> str:
    if not isinstance(output, dict):
        return ""
    names = {key: key if key.isidentifier() else json.dumps(key) for key in output}
    lines = (f"{names[key]}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in output.items())
    return f"---\n{''.join(lines)}---\n\n"


class _Rank(NamedTuple):
    """An output's rank; the least is taken."""

    nowhere: bool  # no edge takes it
    asks: bool  # it asks a human
    breaks: bool  # a template of its edge fails
    fails: bool  # the thread would end at $FAIL
    odd: bool
    worn: int  # how often its edge was taken
    leaves: bool  # from there no way leads back to the role
    ends: bool
    place: int

    @property
    def sound(self) -> bool:
        return not (self.nowhere or self.asks or self.breaks)


def choose_output(history: History, role: Role, schema: Schema, variation: int = 0) -> Any:
    """Return the output of the least taken edge; among equals one that can lead back here (so loops run
    once), then one that doesn't end the thread, then the first. Outputs without an edge, or with a failing
    template, come last, and before them those of edges to `$FAIL`, for 30 steps. A `variation` prefers others among
    equals. Raises Invalid if none can be generated."""
    workflow, steps = history.workflow, history.steps
    turn = sum(step.role == role.name for step in steps) + variation
    hints = hints_of(workflow, role.name)
    if workflow.code is not None:  # its code decides, so no output is more welcome than another
        outputs = _made(schema, turn, hints, history, role.name, False)
        return next(
            (output for output in outputs[turn % len(outputs) :] if not asks_human(output)), outputs[0]
        )
    edges = workflow.graph.get(role.name, ())
    worn = _worn(history, role.name)
    back = _returning(workflow, role.name)
    # That a package's run may end anywhere would cut every rehearsal short.
    new = {position for position, edge in enumerate(edges) if not worn[position] and not workflow.stops(edge)}
    fails = {position for position, edge in enumerate(edges) if edge.role == FAIL and len(steps) < _SUCCESS}
    new = new - fails or new
    ends = {position for position, edge in enumerate(edges) if _ends(history, edge)}
    wanted = {position for position in new - ends if back.intersection(edges[position].targets)}
    wanted = wanted or new - ends or new
    is_last = history.start.branch is not None and not edges  # its output ends the branch
    best: tuple[_Rank, Any] | None = None
    taken: int | None = None
    # Odd outputs, with fields left out or unusual, are for edges that no plain output takes.
    for odd in (False, True):
        outputs = _made(schema, turn, hints, history, role.name, odd)
        if len(edges) < 2:  # nothing to choose: each has its turn
            outputs = outputs[turn % len(outputs) :] + outputs[: turn % len(outputs)]
        for output in outputs:
            position, renders = _edge(history, steps, role.name, output)
            goes_on = position is not None and position not in ends
            rank = _Rank(
                position is None and not is_last,
                asks_human(output),
                not renders,
                position in fails,
                odd and worn[position] > 0,
                worn[position],
                not goes_on or not back.intersection(edges[position or 0].targets),
                position in ends,
                ((position or 0) - variation) % max(1, len(edges)),
            )
            if best is None or rank < best[0]:
                best, taken = (rank, output), position
            if len(edges) < 2 and rank.sound:
                return output
        assert best is not None  # variants gives one, or raises
        enough = taken in wanted or not new or len(steps) > _PATIENCE
        if best[0].sound and enough:
            break
    assert best is not None
    return best[1]


def _made(schema: Schema, turn: int, hints: SampleHints, history: History, role: str, odd: bool) -> list[Any]:
    try:
        return list(sample_variants(schema, turn, hints, history.start_hash, odd))
    except Invalid as error:
        raise Invalid(f"{type_name(role)}: {error.message}", error.hint) from None


def _returning(workflow: Workflow, role: str) -> set[str]:
    graph = {
        source: [target for edge in edges for target in edge.targets]
        for source, edges in workflow.graph.items()
    }
    return leading_to(graph, role)


def _ends(history: History, edge: Transition) -> bool:
    """Return whether an edge ends a thread, or a branch at its join."""
    branch = history.start.branch
    return edge.role in ENDS or (branch is not None and edge.role in branch.until)


def _worn(history: History, role: str) -> Counter[int | None]:
    taken: Counter[int | None] = Counter()
    if len(history.workflow.graph.get(role, ())) < 2:
        return taken
    turns = [number for number, step in enumerate(history.steps) if step.role == role]
    for number in turns[-_REMEMBERED:]:
        output = history.steps[number].output
        if not asks_human(output):
            taken[_edge(history, history.steps[:number], role, output)[0]] += 1
    return taken


def _edge(history: History, before: Sequence[StepContext], role: str, output: Any) -> tuple[int | None, bool]:
    from uwf_git.plugin import choose_role, follow_graph

    steps = (*before, StepContext(history.start_hash, role, output, history.start_hash, "uwf-rehearse"))
    try:
        chosen = choose_role(history.workflow, history.start, steps)
    except LimitExceeded:
        raise  # trying the other outputs would take as long each
    except UwfError:
        return None, False
    try:
        follow_graph(history.workflow, chosen, history.start, steps)
    except UwfError:
        return chosen.position, False
    return chosen.position, True


class Entry(NamedTuple):
    """A script's reply. `sleep` is in seconds. At most one of the others is given; with none the reply is
    generated."""

    role: str
    output: Any = None
    answer: str | None = None
    garbage: str | None = None
    exit: int | None = None
    sleep: float = 0.0


def read_script(path: Path) -> tuple[Entry, ...]:
    """Parse a script. Raises NotFound, Invalid with the entry."""
    from uwf_git.plugin import read_yaml

    value = read_yaml(path).data
    if not isinstance(value, list):
        raise Invalid(f"{path} is not a list of replies", "as in: - {role: planner, output: {plan: short}}")
    return tuple(_entry(path, number, item) for number, item in enumerate(value, 1))


def _entry(path: Path, number: int, item: Any) -> Entry:
    where = f"{path}, entry {number}"
    if not isinstance(item, dict) or not isinstance(item.get("role"), str):
        raise Invalid(f"{where} has no role", "as in: - {role: planner, output: {plan: short}}")
    if unknown := [key for key in item if key not in Entry._fields]:
        raise Invalid(f"{where} has the unknown key {unknown[0]!r}", f"known are {', '.join(Entry._fields)}")
    keys = [key for key in ("output", "answer", "garbage", "exit") if key in item]
    if len(keys) > 1 or (not keys and "sleep" not in item):
        raise Invalid(f"{where} needs one of output, answer, garbage, exit")
    for key, kind in (("answer", str), ("garbage", str), ("exit", int)):
        if key in item and (not isinstance(item[key], kind) or isinstance(item[key], bool)):
            raise Invalid(f"{where}: {key} is not {kind.__name__}")
    sleep = item.get("sleep", 0)
    if not isinstance(sleep, int | float) or isinstance(sleep, bool) or sleep < 0:
        raise Invalid(f"{where}: sleep is not a number of seconds")
    return Entry(**{**item, "sleep": float(sleep)})


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
        raise _Exit(entry.exit, path)
    verbatim = entry.garbage if entry.answer is None else entry.answer
    if verbatim is not None:
        return Reply(verbatim, session="rehearsal")
    if entry.output is None:
        return _said(ctx, _chosen(ctx))
    return _said(ctx, entry.output)


def _sleep(entry: Entry, deadline: float | None) -> None:
    remaining = None if deadline is None else deadline - time.monotonic()
    if remaining is not None and remaining < entry.sleep:
        time.sleep(max(0.0, remaining))
        raise AgentFailed("uwf-rehearse ran out of time", "raise agents.<name>.timeout")
    time.sleep(entry.sleep)


class _Exit(AgentFailed):
    """The script ends the agent with `status`, if it is a process."""

    def __init__(self, status: int, script: Path) -> None:
        super().__init__(f"uwf-rehearse exited with {status}", f"as {script} has it")
        self.status = status


class _Rehearse(Agent):
    def exit_status(self, error: UwfError) -> int:
        return error.status if isinstance(error, _Exit) else super().exit_status(error)


agent = _Rehearse(
    "uwf-rehearse", _Conversation, parse_args, USAGE, about=__doc__, sees_files=lambda ctx: False
)
main = agent.main

if __name__ == "__main__":
    main()
