"""Forks and joins: the two steps of a fan-out that no agent makes.

A fork is a step whose commit its branches stand on; each branch is a thread whose id follows from that commit and its
index. A join is the parent's next step, written by whoever sees that its branches may be joined: by the parent's next
step or by the process that ended the last branch. It says the same whoever writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import counted
from uwf_git.engine.budget import Budgets
from uwf_git.engine.fan_out_budget import share_of
from uwf_git.engine.fan_out_code import code_at_fork, folder_of_branches, merge_branches
from uwf_git.engine.forks import BranchState, branches_at, pending
from uwf_git.engine.new_step import NewStep, engines_step
from uwf_git.engine.next_turn import way_before
from uwf_git.format import cbor
from uwf_git.format.edges import FanOut
from uwf_git.format.endings import LEFT
from uwf_git.format.fan_out import DEEPEST, Fork, ForkedBranch, JoinedBranch, join_payload
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, Workflow
from uwf_git.format.origins import ThreadOrigin
from uwf_git.format.types import FORK, FORK_OUTPUT, JOIN, JOIN_OUTPUT
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, History, Position, branch_of, start_of
from uwf_git.store.instance import Instance
from uwf_git.workflow.fan_out import join_question, planned
from uwf_git.workflow.moderator import ChosenEdge, FansOut, branch_prompt, choose, decide
from uwf_git.workflow.turn import has_result

_NAMED = 3  # branches that a message names
MOST_PROMPTS = 64 << 20
"""Bytes of the prompts of a fork's branches together."""
MOST_JOINED = 16 << 20
"""Bytes of the outputs that a join has together."""


# Forking


def fork(instance: Instance, at: Position) -> NewStep:
    """Store the StepNode of the fork that is next. Raises Invalid for a workflow of branches that is not registered,
    for prompts that are too long together, and for fan-outs too deep within each other."""
    history = at.history
    decision = decide(history.workflow, history.start, history.steps)
    assert isinstance(decision, FansOut)
    chosen = decision.chosen
    assert chosen.edge.fan_out is not None
    if (depth := _depth(instance, at.head)) >= DEEPEST:
        raise Invalid(
            f"thread {at.head.thread} is a branch {counted(depth, 'level')} deep, and at most {DEEPEST} may be",
            f"let its role do the work of the branches itself; {way_before(instance, at.head)}",
        )
    fork = _planned(instance, at, chosen.edge.fan_out, decision)
    _raise_if_long(instance, at, decision)
    return engines_step(instance, history, FORK, FORK_OUTPUT, fork.payload(), code_at_fork(instance, at))


def _raise_if_long(instance: Instance, at: Position, decision: FansOut) -> None:
    (chosen, items), history = decision, at.history
    size = 0
    for position, item in enumerate(items):
        prompt = branch_prompt(history.workflow, chosen, history.start, history.steps, position, item)
        size += len(prompt.encode("utf-8", "replace"))
        if size > MOST_PROMPTS:
            raise Invalid(
                f"the prompts of the {len(items)} branches of thread {at.head.thread} have over "
                f"{MOST_PROMPTS >> 20} MiB together",
                f"put large texts into files, and their names into the prompts; {way_before(instance, at.head)}",
            )


def _planned(instance: Instance, at: Position, fan_out: FanOut, decision: FansOut) -> Fork:
    chosen, items = decision
    begun = [(branch.role, branch.workflow) for branch in fan_out.fixed] or [(fan_out.role, fan_out.workflow)]
    branches = [_forked(instance, at.history.workflow_hash, *item) for item in begun]
    budget = share_of(Budgets(instance).left(at.head), len(items))
    return planned(chosen.source, chosen.position, fan_out, items, branches, budget)


def _forked(instance: Instance, here: Hash, role: str, workflow: str) -> ForkedBranch:
    if role:
        return ForkedBranch(here, role)
    try:
        return ForkedBranch(instance.registry.current(workflow).hash)
    except NotFound as error:
        raise Invalid(
            f"the branches are of workflow {workflow}, which is not registered",
            f"register it: uwf workflow put FILE; {error.hint}",
        ) from None


def _depth(instance: Instance, head: Head) -> int:
    """Return how many fan-outs a thread is within."""
    depth, commit = 0, head.commit
    while depth <= DEEPEST:
        start = start_of(instance.store, commit)
        if start.merged is None or branch_of(instance.store, start.node) is None:
            return depth
        depth, commit = depth + 1, Oid(raw=start.merged)
    return depth


def begin_branches(instance: Instance, at: Position) -> list[ThreadId]:
    """Begin the branches of the fork at `at`, its last step, that are not here. A branch that was removed is not begun
    again, unless the thread removed was another with its id. Makes `refs/uwf/threads/<id>` of each; returns the new
    ones. Raises NotFound for a workflow that is gone."""
    # It loads what starts git, which is not needed to look at branches.
    from uwf_git.store.removed import was_squatter

    branches = branches_at(instance, at.head)
    absent = [layout.REMOVED + item.thread for item in branches.each if item.head is None]
    marks = instance.store.repository.refs_named(absent)
    squatters = {name for name, mark in marks.items() if was_squatter(instance.store.repository, mark)}
    removed = marks.keys() - squatters
    missing = [
        item for item in branches.each if item.head is None and layout.REMOVED + item.thread not in removed
    ]
    if not missing:
        return []
    fork, history = branches.fork, at.history.up_to(_before_fork(at.history))
    here = Oid(raw=start_of(instance.store, at.head.commit).parent or b"")
    chosen = ChosenEdge(fork.source, fork.edge, _edge_of(history.workflow, history, fork))
    versions: dict[int, Oid] = {}
    nodes: dict[int, tuple[Hash, Any]] = {}
    for state in missing:
        position = state.position
        branch = fork.branch(position)
        versions[position] = here if branch.role else _version(instance, branch.workflow)
        nodes[position] = start_of_branch(history, fork, chosen, position, at.head.node)
    folder = folder_of_branches(instance, at.head.thread)
    begun = instance.threads.begin_branches(at.head.commit, versions, nodes)
    for mark in squatters:
        instance.threads.drop(mark)
    if folder is not None:
        for thread in begun:
            instance.folders.remember(thread, folder)
    return begun


def start_of_branch(
    history: History, fork: Fork, chosen: ChosenEdge, position: int, node: Hash
) -> tuple[Hash, Any]:
    """Return the type and payload of a branch's StartNode. `history` is that before the fork, `node` the fork's
    StepNode. Raises Invalid if its prompt cannot be rendered."""
    branch, item = fork.branch(position), fork.items[position]
    prompt = branch_prompt(history.workflow, chosen, history.start, history.steps, position, item)
    until = fork.until if branch.role else ()
    origin = ThreadOrigin(node, position, fork.name, item, branch.role, until)
    return Start(branch.workflow, prompt, fork.budget, branch=origin).typed_payload()


def _before_fork(history: History) -> Hash | None:
    return history.steps[-2].hash if len(history.steps) > 1 else None


def _edge_of(workflow: Workflow, history: History, fork: Fork) -> Any:
    chosen = choose(workflow, history.start, history.steps)
    if (chosen.source, chosen.position) != (fork.source, fork.edge) or chosen.edge.fan_out is None:
        raise Invalid(f"the fork at {history.head} is not of the edge that the workflow calls for")
    return chosen.edge


def _version(instance: Instance, workflow: Hash) -> Oid:
    """Return a commit of a workflow's version. Raises NotFound if there is none here."""
    for row in instance.store.index.commits_of(workflow):
        if row.kind == "workflow":
            return Oid(raw=row.oid)
    raise NotFound(
        f"the workflow {workflow} of the branches is not here any more", "uwf pull, or uwf workflow put FILE"
    )


# Joining


def join(instance: Instance, at: Position) -> NewStep:
    """Store the StepNode that joins the branches of the fork at `at`. Its commit stands on their last ones. Raises
    Waiting if they may not be joined yet, or their code is not here, Invalid if their outputs are too large together.
    """
    branches = branches_at(instance, at.head)
    if not branches.may_be_joined:
        raise pending(at.head.thread, branches)
    joined_branches = [_joined(instance, state) for state in branches.each]
    _raise_if_large(at, joined_branches)
    joined, code = merge_branches(instance, at, joined_branches)
    output = join_payload(joined, join_question(branches.fork, joined))
    ended = [state.head for state in branches.each if state.state and state.head is not None]
    when = max(head.row.time for head in (at.head, *ended)) * 1000
    new = engines_step(instance, at.history, JOIN, JOIN_OUTPUT, output, code, when)
    tips = [head.commit for head in ended]
    return new._replace(merged=instance.threads.gathered(at.head.node, tips))


def _raise_if_large(at: Position, joined: Sequence[JoinedBranch]) -> None:
    sizes = {branch.thread: len(cbor.encode(branch.output)) for branch in joined}
    if (size := sum(sizes.values())) <= MOST_JOINED:
        return
    largest = sorted(sizes, key=lambda thread: -sizes[thread])[:_NAMED]
    shown = ", ".join(f"{thread} ({sizes[thread] / (1 << 20):.1f} MiB)" for thread in largest)
    raise Invalid(
        f"the outputs of the branches of thread {at.head.thread} have {size / (1 << 20):.1f} MiB, a join may have "
        f"{MOST_JOINED >> 20}; the largest: {shown}",
        f"let them put large texts into files, and begin again: "
        f"uwf thread fork {at.head.thread} --at {len(at.history.steps) - 1}",
    )


def _joined(instance: Instance, branch: BranchState) -> JoinedBranch:
    head = branch.head
    if not branch.state or head is None:
        return JoinedBranch(LEFT, branch.thread)
    step, output = last_output(instance, head)
    return JoinedBranch(branch.state, branch.thread, step, output, branch.reason)


def last_output(instance: Instance, head: Head) -> tuple[Hash | None, Any]:
    """Return a branch's last StepNode, None without one, and the output of its last step by a role."""
    if head.row.kind != "step":
        return None, None
    output = None
    for past in instance.threads.past(head.node):
        if has_result(past.step.role):
            output = instance.store.get(past.step.output).payload
            break
    return head.node, output
