"""Fan-outs in the library: forks, steps of branches, joins, and reading them, beside threads that are no branches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from measure import Turn, fastest, timed
from rows import Row, Size, compared, cost
from stores import Lab

from uwf_git.api.listing import Filters, listed, thread_items
from uwf_git.engine.forks import branches_at
from uwf_git.engine.step import step
from uwf_git.engine.thread_spending import account
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Start, Step
from uwf_git.format.types import DETAIL, STEPNODE
from uwf_git.git.repository import Oid
from uwf_git.kit import Agent, Context, Reply, create_agent
from uwf_git.store.instance import Instance
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import parse_source

_ROLE = """
    description: Works.
    systemPrompt: Work.
    outputSchema: {type: object, properties: {files: {type: array}, note: {type: string}}, required: [note]}
"""
AUDIT = f"""
name: audit
description: Each file by itself.
roles:
  planner: &role{_ROLE}
  fixer: *role
  reviewer: *role
graph:
  $START: [{{role: planner}}]
  planner:
    - {{each: $last().files, as: file, role: fixer, prompt: "Fix {{{{ file.path }}}}", max: 10000, join: reviewer}}
  reviewer: [{{role: $END}}]
"""
FIX = f"""
name: fix
description: One file.
roles:
  fixer:{_ROLE}
graph:
  $START: [{{role: fixer}}]
  fixer: [{{role: $END}}]
"""


class FanOutLab(Lab):
    """A store with threads that fan out. `branches` are how many."""

    def __init__(self, folder: Path, branches: int) -> None:
        super().__init__(folder, AUDIT.encode())
        self.branches = branches
        alone = compile_source(parse_source(FIX.encode(), "fix.yaml", None))
        self._alone = Oid(hex=self.instance.registry.put(alone).commit), alone.hash
        self._numbers = count()

    @property
    def agent(self) -> Agent:
        """Answers at once; a planner with the files."""

        def run(context: Context) -> Reply:
            files = [{"path": f"src/{number}.py"} for number in range(self.branches)]
            output = {"note": "done", **({"files": files} if context.role.name == "planner" else {})}
            return Reply(json.dumps(output), output=output)

        return create_agent("uwf-bench", run, lambda context, _session, _message: run(context))

    def alone(self, number: int) -> list[ThreadId]:
        """New threads of one step each, that are no branches."""
        version, workflow = self._alone
        starts = [Start(workflow, f"Fix src/{item}.py") for item in range(number)]
        return self.instance.threads.start_all(version, starts)

    def planned(self) -> ThreadId:
        """A thread that is about to fork."""
        prompt = f"Audit {next(self._numbers)}."  # else its fork might be the commit of another
        thread = self.instance.threads.start(self.version, Start(self.workflow, prompt))
        step(self.instance, thread, self.agent)
        return thread

    def forked(self) -> ThreadId:
        thread = self.planned()
        step(self.instance, thread, self.agent)
        return thread

    def branches_of(self, thread: ThreadId) -> list[ThreadId]:
        head = self.instance.threads.head(thread)
        return [each.thread for each in branches_at(self.instance, head).each]

    def end(self, branch: ThreadId) -> None:
        """Gives a branch its only step and ends it, as the engine does after an agent's run."""
        store, threads = self.instance.store, self.instance.threads
        head = threads.head(branch)
        assert head.row.start is not None
        schema = threads.history(head).workflow.roles["fixer"].schema
        with store.together():
            output = store.put(schema, {"note": f"fixed {branch}: " + "lorem ipsum " * 10})
            detail = store.put(DETAIL, self._detail(head.node))
            made = Step(head.row.start, None, "fixer", output, detail, "uwf-bench")
            head = threads.append(head, store.put(STEPNODE, made.payload()), set(), (), "native")
        threads.archive(head, "completed")


def forking(folder: Path, size: Size) -> Iterator[Row]:
    """A fork with its branches, beside starting as many threads at once."""
    lab = FanOutLab(folder, size.shared)
    planned = [lab.planned() for _ in range(size.few_turns + 1)]
    fork, start = fastest(
        size.few_turns,
        lambda: timed(lambda: step(lab.instance, planned.pop()))(),
        timed(lambda: lab.alone(size.shared)),
    )
    yield compared(f"a fork of {size.shared} branches / as many threads started at once", fork, start, 2.5)
    yield cost(f"a fork of {size.shared} branches", fork, 0.3)


def stepping(folder: Path, size: Size) -> Iterator[Row]:
    """A step of a branch that ends with it, beside that of a thread of its own."""
    lab = FanOutLab(folder, size.shared)
    thread = lab.forked()
    branches, alone = lab.branches_of(thread), lab.alone(size.shared)
    batch = size.batch // 5
    turns = min(size.few_turns, size.shared // batch - 2)

    def stepped(threads: list[ThreadId]) -> Turn:
        def turn() -> float:
            own = [threads.pop(0) for _ in range(batch)]
            return timed(lambda: [step(lab.instance, each, lab.agent) for each in own])() / batch

        return turn

    branch, plain = fastest(turns, stepped(branches), stepped(alone))
    yield compared(f"a step of one of {size.shared} branches / of a thread of its own", branch, plain, 1.2)


def joining(folder: Path, size: Size) -> Iterator[Row]:
    """A join, which copies of the thread make one after the other."""
    for number, limit in ((size.shared // 2, 0.05), (size.threads, 0.5)):
        lab = FanOutLab(folder / str(number), number)
        thread = lab.forked()
        commit = lab.instance.threads.head(thread).commit
        for branch in lab.branches_of(thread):
            lab.end(branch)
        copies = [lab.instance.threads.fork(commit) for _ in range(size.few_turns + 1)]
        [seconds] = fastest(size.few_turns, _join(lab, copies))
        yield cost(f"a join of {number:,} branches", seconds, limit)


def _join(lab: FanOutLab, copies: list[ThreadId]) -> Turn:
    def turn() -> float:
        instance, thread = _opened(lab), copies.pop()
        instance.store.sync()
        return timed(lambda: step(instance, thread))()

    return turn


def looking(folder: Path, size: Size) -> Iterator[Row]:
    """The list of a thread's branches, beside that of as many threads; what the thread has spent."""
    labs = [FanOutLab(folder / name, size.shared) for name in ("branches", "threads")]
    thread = labs[0].forked()
    labs[1].planned()
    labs[1].alone(size.shared)
    branches, plain = fastest(size.turns, *(_listing(lab) for lab in labs))
    yield compared(f"uwf thread list of {size.shared} branches / threads", branches, plain, 7)
    head = labs[0].instance.threads.head(thread)
    [seconds] = fastest(size.turns, timed(lambda: account(_opened(labs[0]), head)))
    yield cost(f"what a thread with {size.shared} branches has spent", seconds, 0.05)


def _listing(lab: FanOutLab) -> Turn:
    def list_threads() -> None:
        instance = _opened(lab)
        thread_items(instance, listed(instance, Filters()))

    return timed(list_threads)


def _opened(lab: FanOutLab) -> Instance:
    """The store as another process has it, without what this one remembers."""
    return Instance(lab.location, {})
