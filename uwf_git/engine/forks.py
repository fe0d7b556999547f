"""Lookups between forks and branches: the fork of a branch, the threads that wait for it, the branches of a fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import NotFound, StoreDamaged, Waiting
from uwf_git.base.text import listed
from uwf_git.format.endings import COMPLETED, FAILED, KILLED
from uwf_git.format.fan_out import Fork, JoinedBranch, parse_fork, parse_join
from uwf_git.format.ids import MOST_BRANCHES, Hash, ThreadId, branch_id, branch_index, milliseconds_of
from uwf_git.format.kinds import Step, StepContext
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import branch_of
from uwf_git.workflow.turn import begins_threads, gathers_threads

_NAMED = 3  # branches that a message names

if TYPE_CHECKING:
    from uwf_git.store.history import Head
    from uwf_git.store.index import CommitRow
    from uwf_git.store.indexing import Store
    from uwf_git.store.instance import Instance
    from uwf_git.workflow.fan_out import Joinable, Pending


class BranchState(NamedTuple):
    """A branch of a fork. `head` is None if the thread is not here: it was removed, or never fetched."""

    position: int
    thread: ThreadId
    head: Head | None

    @property
    def state(self) -> str:
        """completed, failed or killed; "" for a branch that has not ended."""
        archive = self.head.archive if self.head is not None else None
        if archive is None:
            return ""
        return archive.status if archive.status in (COMPLETED, FAILED) else KILLED

    @property
    def reason(self) -> str:
        archive = self.head.archive if self.head is not None else None
        return archive.reason if archive is not None else ""


class Branches(NamedTuple):
    """The branches of a fork by index, and whether they may be joined."""

    fork: Fork
    each: tuple[BranchState, ...]
    verdict: Pending | Joinable

    @property
    def may_be_joined(self) -> bool:
        from uwf_git.workflow.fan_out import Joinable

        return isinstance(self.verdict, Joinable)

    @property
    def open(self) -> tuple[BranchState, ...]:
        """The branches that have not ended."""
        return tuple(state for state in self.each if not state.state)

    @property
    def ended(self) -> int:
        """How many branches have ended."""
        return len(self.each) - len(self.open)


def fork_at(instance: Instance, node: Hash) -> Fork:
    """Return the Fork of a fork's StepNode."""
    step = instance.store.get(node).payload
    return parse_fork(instance.store.get(step["output"]).payload, node)


def join_at(instance: Instance, node: Hash) -> tuple[JoinedBranch, ...]:
    """Return the branches of a join's StepNode."""
    step = instance.store.get(node).payload
    return parse_join(instance.store.get(step["output"]).payload, node)


def ends_gathered(instance: Instance, step: Step | StepContext) -> list[Hash]:
    """Return the last StepNodes of the threads that a step has gathered, none for other steps."""
    if not gathers_threads(step.role):
        return []
    output = instance.store.get(step.output).payload if isinstance(step, Step) else step.output
    return [branch.step for branch in parse_join(output) if branch.step is not None]


def tips_gathered(store: Store, output: Hash, ends: Mapping[ThreadId, bytes]) -> list[Oid]:
    """Return the last commits of the threads that a step with this output has gathered. `ends` are the commits of those
    that have ended. Raises NotFound."""
    tips = []
    for branch in parse_join(store.get(output).payload):
        if branch.is_left:
            continue
        row = store.index.commit(ends.get(branch.thread, b""))
        if branch.step is not None and (row is None or row.node != branch.step):
            row = next(iter(store.index.commits_of(branch.step)), None)
        if row is None:
            raise NotFound(f"branch {branch.thread} is not here", "uwf pull")
        tips.append(Oid(raw=row.oid))
    return tips


def awaited(instance: Instance, head: Head) -> list[Head]:
    """Return the heads of the threads that a thread waits for, by index, without those that are not here."""
    if not head.waits_for_join:
        return []
    return [branch.head for branch in begun_branches(instance, head) if branch.head is not None]


def begun_at(instance: Instance, row: CommitRow) -> Sequence[ThreadId]:
    """Return the threads that a step began, by index, whether or not they are here."""
    if not begins_threads(row.role):
        return ()
    items = instance.store.get(instance.store.step(row.node).output).payload["items"]
    return [branch_id(row.oid.hex(), row.time, position) for position in range(len(items))]


def parents_of(instance: Instance, branch: Head) -> list[ThreadId]:
    """Return the active threads that wait for a branch: those that end with its fork."""
    fork = instance.threads.fork_of(branch)
    return [] if fork is None else waiting_at(instance, fork[0])


def waiting_at(instance: Instance, fork: Oid) -> list[ThreadId]:
    """Return the active threads that end with the commit of a fork."""
    threads = _known_at(instance, fork)
    if not threads and instance.store.sync():  # another program may have moved a ref
        threads = _known_at(instance, fork)
    return threads


def _known_at(instance: Instance, fork: Oid) -> list[ThreadId]:
    names = instance.store.index.heads_at(fork.raw)
    folded = {layout.thread_of(name) for name in names if name.startswith(layout.FOLDED)}
    threads = {layout.thread_of(name) for name in names if name.startswith(layout.THREADS)} - folded
    refs = (prefix + thread for thread in threads for prefix in (layout.THREADS, layout.ARCHIVE))
    at = instance.store.repository.refs_named(list(refs))
    return sorted(
        thread
        for thread in threads
        if at.get(layout.THREADS + thread) == fork and layout.ARCHIVE + thread not in at
    )


def squatted(store: Store, thread: ThreadId, commit: Oid) -> tuple[Oid, int] | None:
    """Return the fork here, and the index there, of the branch that has a thread's id, if the thread with this last
    commit is not that branch."""
    when = milliseconds_of(thread)
    for fork in store.index.forks_within((when - MOST_BRANCHES) // 1000, when // 1000):
        oid = Oid(raw=fork.oid)
        position = branch_index(str(oid), fork.time, thread)
        if position is None:
            continue
        if not is_branch_at(store, store.index_commit(commit), fork.node, position):
            return oid, position
    return None


def is_branch_at(store: Store, row: CommitRow, fork: Hash, position: int) -> bool:
    """Return whether a thread with this commit is, by its StartNode, the branch at an index of a fork's StepNode."""
    own = branch_of(store, row.start or row.node)
    return own is not None and (own.fork, own.position) == (fork, position)


def begun_branches(instance: Instance, head: Head) -> list[BranchState]:
    """Return the branches of a thread whose last step is a fork, whatever its policy."""
    row, threads = head.row, begun_at(instance, head.row)
    heads = instance.threads.heads(threads)
    for position, thread in enumerate(threads):
        there = heads.get(thread)
        if there is not None and not is_branch_at(instance.store, there.row, row.node, position):
            raise StoreDamaged(
                f"thread {thread} has the id of branch {position} of a fork, and is not that branch",
                f"uwf thread rm {thread} --yes, then step again",
            )
    return [BranchState(position, thread, heads.get(thread)) for position, thread in enumerate(threads)]


def branches_at(instance: Instance, head: Head) -> Branches:
    """Return the branches of a thread whose last step is a fork, and whether they may be joined."""
    from uwf_git.workflow.fan_out import judge

    fork, branch_states = fork_at(instance, head.node), begun_branches(instance, head)
    states = [state.state for state in branch_states]
    reasons = {state.position: state.reason for state in branch_states if state.reason}
    return Branches(fork, tuple(branch_states), judge(fork, states, reasons))


def is_joinable(instance: Instance, head: Head, ended: ThreadId | None = None) -> bool:
    """Return whether a thread's last step is a fork whose branches may be joined. `ended` is a branch that has just
    ended: those after it are looked at first, since most often one of them is what is waited for."""
    if not begins_threads(head.row.role):
        return False
    if ended is not None and _needs_all(fork := fork_at(instance, head.node)):
        commit, when = str(head.commit), head.row.time
        at = (branch_index(commit, when, ended) or 0) + 1
        order = (branch_id(commit, when, place % fork.size) for place in range(at, at + fork.size))
        if not all(map(instance.threads.has_ended, order)):
            return False
    return branches_at(instance, head).may_be_joined


def _needs_all(fork: Fork) -> bool:
    return fork.of_all and not fork.failure_policy.fails_thread


def is_joined(instance: Instance, branch: Head) -> bool:
    """Return whether the fork of a thread, if it is a branch, is joined in every thread here that has it."""
    fork = instance.threads.fork_of(branch)
    if fork is None or not instance.store.index.joins_of(fork[0].raw):
        return False
    return not waiting_at(instance, fork[0])


def ends_at_failure(instance: Instance, branch: Head) -> bool:
    """Return whether a branch ends if its step fails, by the fork that it stands on."""
    fork = instance.threads.fork_of(branch)
    if fork is None:
        return False
    return fork_at(instance, instance.store.index_commit(fork[0]).node).failure_policy.ends_branch


def pending(thread: ThreadId, branches: Branches) -> Waiting:
    """Return the error of a step that has to wait for branches."""
    open_ = branches.open
    shown = listed([state.thread for state in open_], _NAMED)
    gone = [state for state in open_ if state.head is None]
    if gone and len(gone) == len(open_):
        return Waiting(
            f"thread {thread} waits for branches that are not here: {shown}",
            f"uwf pull, or bring one back: uwf thread restore {gone[0].thread}",
        )
    done = branches.fork.size - len(open_)
    return Waiting(
        f"thread {thread} waits for its branches, {done} of {branches.fork.size} have ended; left: {shown}",
        f"uwf thread run {thread}",
    )
