"""What must be true of a history: of what was reported while it took place, and of what the stores hold after
everybody has exchanged everything and brought back what they had removed.

Each claim is a function from the evidence to what speaks against it. An operation that was killed may have been done or
not. Otherwise what was reported as done was done, at some instant between its beginning and its end, and what was
refused was not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from operations import Event, adopted
from world import KILLED, REMOTE, UNREAD, Snapshot, Step, Thread

STEPS = ("step", "answer", "go-on", "step-shared")
ENDS = ("kill", *STEPS)
EXCHANGES = ("pull", "push", "push-one", "step-shared")
# How each operation may end, besides by being killed.
CODES = {
    "start": {0},
    "step": {0, 1, 3, 4, 5, 143},
    "step-shared": {0, 1, 3, 4, 5, 143},
    "answer": {0, 1, 2, 3, 4, 5},
    "fork": {0, 1, 2, 3},
    "kill": {0, 1, 3, 4},
    "pause": {0, 1, 3, 4},
    "resume": {0, 1, 2, 3, 4},
    "go-on": {0, 1, 2, 3, 4, 5},
    "fold": {0, 4},
    "gc": {0, 4},
    "prune": {0, 4},
    "rm": {0, 3, 4},
    "restore": {0, 3, 4},
    "restore-all": {0},
    "put": {0, 4},
    "reindex": {0},
    "steps": {0, 3},
    "list": {0},
    "verify": {0, 13},  # of an empty store
    "push": {0, 4},
    "push-one": {0, 3, 4},
    "pull": {0, 4},
    "lose": {0},
}


class Violation(NamedTuple):
    """What speaks against a claim, and the operations that are about it."""

    claim: str
    message: str
    operations: tuple[int, ...] = ()

    def __str__(self) -> str:
        about = f" (operations {', '.join(map(str, self.operations))})" if self.operations else ""
        return f"{self.claim}: {self.message}{about}"


Found = Iterator[tuple[str, tuple[Event, ...]]]


class Evidence:
    """A history, and what follows from it."""

    def __init__(self, events: Sequence[Event], snapshots: Sequence[Snapshot]) -> None:
        self.events = events
        self.snapshots = snapshots

    @cached_property
    def machines(self) -> list[Snapshot]:
        """What the machines hold."""
        return [each for each in self.snapshots if each.machine != REMOTE]

    @cached_property
    def remote(self) -> Snapshot | None:
        """What the remote holds, where there is one."""
        return next((each for each in self.snapshots if each.machine == REMOTE), None)

    @cached_property
    def made(self) -> list[tuple[Event, str, str]]:
        """The steps that were reported: by which operation, in which thread, the StepNode."""
        found = []
        for event in self.events:
            if event.done and event.name in STEPS and isinstance(event.result, dict):
                node = event.result.get("head")
                if node:
                    found.append((event, str(event.result["thread"]), str(node)))
        return found

    @cached_property
    def sides(self) -> dict[str, set[str]]:
        """Of each thread, those that sides of it were reported to have become, or say so themselves, as `thread show`
        of either does."""
        found: dict[str, set[str]] = defaultdict(set)
        for event in self.events:
            for entry in adopted(event.result):
                if entry.get("fork"):
                    found[str(entry["thread"])].add(str(entry["fork"]["thread"]))
        for snapshot in self.machines:
            for thread in snapshot.threads.values():
                if thread.origin:
                    found[thread.origin].add(thread.thread)
        return found

    def homes(self, thread: str) -> set[str]:
        """Where a step of a thread may be: there, or in what sides of it became."""
        found, pending = set(), [thread]
        while pending:
            current = pending.pop()
            if current not in found:
                found.add(current)
                pending.extend(self.sides[current])
        return found

    @cached_property
    def forks(self) -> list[tuple[Event, str, str]]:
        """The threads that were reported to begin beyond another's past: by which operation, the thread, and the step
        after which it does."""
        found = []
        for event in self.events:
            if event.done and isinstance(event.result, dict):
                if event.name == "fork":
                    found.append((event, event.result["thread"], event.result["forkedFrom"]["step"]))
                elif event.name == "go-on" and "resumedFrom" in event.result:
                    found.append((event, event.result["thread"], event.result["resumedFrom"]["step"]))
        return found

    def has_taken_since(self, thread: str, side: str) -> bool:
        """Whether a thread was reported to have taken steps from elsewhere on a machine that had told of its side by
        then."""
        told: dict[int, int] = {}
        for event in sorted(self.events, key=lambda each: each.ended):
            for entry in adopted(event.result):
                if entry.get("fork", {}).get("thread") == side:
                    told.setdefault(event.machine, event.ended)
                taken = entry.get("thread") == thread and entry["case"] in ("behind", "diverged")
                if taken and event.machine in told and event.ended > told[event.machine]:
                    return True
        return False

    def pruned(self, thread: str, machine: int | None = None) -> bool:
        """Whether a thread was removed on a machine, or on any, and then perhaps pruned away."""
        removals = [e for e in self.of("rm", machine) if e.thread == thread and e.code in (0, KILLED)]
        prunings = [e for e in self.of("prune", machine) if e.code in (0, KILLED)]
        return any(
            pruning.ended >= removal.began and pruning.machine == removal.machine
            for removal in removals
            for pruning in prunings
        )

    def of(self, name: str, machine: int | None = None) -> list[Event]:
        """The events of a kind."""
        return [e for e in self.events if e.name == name and machine in (None, e.machine)]

    @cached_property
    def killed(self) -> bool:
        """Whether any operation was killed."""
        return any(event.code == KILLED for event in self.events)


# The claims


def acknowledged_steps_are_kept(evidence: Evidence) -> Found:
    """A step that was reported is in its thread, or in the thread that its side became, on every machine."""
    for event, thread, node in evidence.made:
        homes = evidence.homes(thread)
        if all(evidence.pruned(home) for home in homes):
            continue
        for snapshot in evidence.machines:
            holds = [home for home in homes if _has(snapshot.threads.get(home), node)]
            if not holds and not any(evidence.pruned(home) for home in homes):
                elsewhere = [t.thread for t in snapshot.threads.values() if _has(t, node)]
                where = f"it is in {', '.join(elsewhere)}" if elsewhere else "it is nowhere"
                yield f"step {node} of thread {thread} is not in it on {snapshot.machine}: {where}", (event,)


def steps_are_in_one_chain(evidence: Evidence) -> Found:
    """No step is in two threads, but where one of them was forked, gone on or parted from the other after it; and but
    for a side that was made where a thread had ended, which is an end that another has outdone, or where its thread has
    taken the same steps from elsewhere since."""
    parted = {fork: step for _, fork, step in evidence.forks}
    missing_price = any(event.code == KILLED and event.name in ("fork", "go-on") for event in evidence.events)
    makers = [event for event in evidence.events if event.code != KILLED and event.name not in EXCHANGES]
    told = {thread for event in makers for thread in event.told}
    for snapshot in evidence.machines:
        owners: dict[str, list[str]] = defaultdict(list)
        for thread in snapshot.threads.values():
            if thread.thread not in told and missing_price and not thread.origin:
                continue  # a fork whose maker was killed
            after = parted.get(thread.thread, thread.parted)
            nodes = [step.node for step in thread.chain]
            begins = nodes.index(after) + 1 if after in nodes else 0
            if evidence.has_taken_since(thread.origin, thread.thread):
                origin = snapshot.threads.get(thread.origin)
                begins = max(begins, _shared(thread, origin) if origin else 0)
            for node in nodes[begins:]:
                owners[node].append(thread.thread)
        for node, threads in owners.items():
            outdone = {t for t in threads if _is_of_an_end(snapshot, t, threads)}
            if len(threads) - len(outdone) > 1:
                yield f"step {node} is in threads {', '.join(sorted(threads))} on {snapshot.machine}", ()


def chains_are_whole(evidence: Evidence) -> Found:
    """The steps of a thread are numbered from 1 without a gap, each follows the one before, none comes twice."""
    for snapshot in evidence.snapshots:
        for thread in snapshot.threads.values():
            numbers = [step.number for step in thread.chain]
            where = f"thread {thread.thread} on {snapshot.machine}"
            if numbers != list(range(1, len(numbers) + 1)):
                yield f"{where} has the steps {numbers}", ()
            if len({step.node for step in thread.chain}) != len(thread.chain):
                yield f"{where} has a step twice", ()
            for before, step in zip((None, *thread.chain), thread.chain, strict=False):
                if step.prev not in (UNREAD, before.node if before else None):
                    yield f"{where} has {step.node} after another step than it says", ()


def threads_have_one_state(evidence: Evidence) -> Found:
    """No thread is both active and archived, unless what ended it was killed; the archive has all that was active."""
    for snapshot in evidence.snapshots:
        for thread in snapshot.threads.values():
            if thread.both is None:
                continue
            if not evidence.killed:
                yield f"thread {thread.thread} is active and archived on {snapshot.machine}", ()
            if thread.both != thread.chain[: len(thread.both)]:
                yield (
                    f"thread {thread.thread} has active steps that its archive hasn't on {snapshot.machine}",
                    (),
                )


def lists_agree_with_refs(evidence: Evidence) -> Found:
    """`thread list --all` has each thread that the refs have, with its head, and no other."""
    for snapshot in evidence.machines:
        if snapshot.listed is None:
            continue
        if odd := snapshot.listed.keys() ^ snapshot.threads.keys():
            yield f"{', '.join(sorted(odd))} is in one of refs and list on {snapshot.machine}", ()
        for thread, (head, status) in snapshot.listed.items():
            there = snapshot.threads.get(thread)
            if there and there.chain and head != there.chain[-1].node:
                yield f"thread {thread} is listed with another head on {snapshot.machine}", ()
            if there and (status in ("completed", "killed")) != (there.status != "active"):
                yield (
                    f"thread {thread} is listed as {status}, but is {there.status} on {snapshot.machine}",
                    (),
                )


def forks_have_their_parent(evidence: Evidence) -> Found:
    """A fork shares exactly its parent's past up to the step that it was reported to begin at."""
    whole: dict[str, tuple[str, ...]] = {}
    for snapshot in evidence.machines:
        for thread in snapshot.threads.values():
            nodes = tuple(step.node for step in thread.chain)
            for at, node in enumerate(nodes):
                whole.setdefault(node, nodes[: at + 1])
    for event, fork, after in evidence.forks:
        for snapshot in evidence.machines:
            made = snapshot.threads.get(fork)
            if made is None:
                if not evidence.pruned(fork):
                    yield f"fork {fork} is not on {snapshot.machine}", (event,)
                continue
            nodes = tuple(step.node for step in made.chain)
            past = whole.get(after, ())  # at a StartNode there is none
            if nodes[: len(past)] != past:
                yield f"fork {fork} doesn't share the past of step {after}", (event,)
            number = _option(event, "--at")
            if number is not None and len(past) != int(number):
                yield f"fork {fork} begins at step {len(past)}, not at {number}", (event,)


def killed_threads_stay_killed(evidence: Evidence) -> Found:
    """A thread that was reported killed has ended everywhere, and no step of it begins after that on its machine."""
    for event in evidence.of("kill"):
        if not event.done or event.thread is None:
            continue
        for snapshot in evidence.snapshots:
            there = snapshot.threads.get(event.thread)
            if there is not None and there.status == "active" and not evidence.pruned(event.thread):
                yield f"thread {event.thread} was killed, and is active on {snapshot.machine}", (event,)
        for step, thread, _ in evidence.made:
            if thread == event.thread and step.machine == event.machine and step.began > event.ended:
                yield f"thread {thread} has a step after it was killed", (event, step)


def ids_mean_the_same(evidence: Evidence) -> Found:
    """After everybody has pulled, a thread has one head, one end and one reason for it on all machines."""
    if evidence.remote is None:
        return
    for snapshot in evidence.machines:
        ids = evidence.remote.threads.keys() | snapshot.threads.keys()
        for thread in sorted(ids):
            if evidence.pruned(thread):
                continue
            there, here = evidence.remote.threads.get(thread), snapshot.threads.get(thread)
            if there is None or here is None:
                missing = "the remote" if there is None else snapshot.machine
                yield f"thread {thread} is not on {missing}", ()
            elif _meaning(there) != _meaning(here):
                yield (
                    f"thread {thread} is {_meaning(here)} on {snapshot.machine}, {_meaning(there)} there",
                    (),
                )


def what_was_pushed_is_there(evidence: Evidence) -> Found:
    """What a push was reported to have taken to the remote is there, and so are all steps that were reported before a
    push of everything that refused nothing."""
    if (remote := evidence.remote) is None:
        return
    held = {step.node for thread in remote.threads.values() for step in thread.chain}
    for event in (*evidence.of("push"), *evidence.of("push-one")):
        if not event.done or not isinstance(event.result, dict):
            continue
        for entry in event.result.get("pushed", ()):
            thread = entry["ref"].rpartition("/")[2]
            if entry["ref"].startswith(("refs/uwf/threads/", "refs/uwf/archive/")) and (
                thread not in remote.threads
            ):
                yield f"thread {thread} was pushed, and is not on the remote", (event,)
        if event.name == "push" and not event.result.get("refused"):
            for step, thread, node in evidence.made:
                mine = step.machine == event.machine and step.ended < event.began
                if mine and node not in held and not any(map(evidence.pruned, evidence.homes(thread))):
                    yield f"step {node} of thread {thread} is not on the remote", (step, event)


def refusals_change_nothing(evidence: Evidence) -> Found:
    """What was refused is in no thread; a step that lost a race is in the thread that was told of."""
    said: dict[str, set[str]] = defaultdict(set)
    for snapshot in evidence.machines:
        for thread in snapshot.threads.values():
            for step in thread.chain:
                said[step.text].add(thread.thread)
    for event in evidence.events:
        if event.name not in STEPS or event.code in (0, KILLED, 143):
            continue  # one that was ended by a kill or a pause may have been at its end
        message = event.error.get("message", "")
        if message.endswith(" was killed") or "was removed here meanwhile" in message:
            continue  # as may one whose thread was killed or removed meanwhile
        found = said.get(event.operation.text, set())
        if found and not (event.code == 4 and event.told):
            yield f"a step was refused with {event.code}, and is in {', '.join(sorted(found))}", (event,)


def statuses_are_explained(evidence: Evidence) -> Found:
    """An exit status is one that the operation has, and something has happened that explains it."""
    for event in evidence.events:
        if event.code == KILLED:
            continue
        if event.code not in CODES[event.name]:
            yield f"{event.name} ended with {event.code}: {event.error.get('message')}", (event,)
            continue
        if event.thread is None or event.done:
            continue
        before = [e for e in evidence.events if e.thread == event.thread and e.began < event.ended]
        here = [e for e in before if e.machine == event.machine and e is not event]
        shared = len(evidence.machines) > 1
        code = event.error.get("code")
        unknown = code == "not_found" and event.name not in ("fork", "restore")
        if unknown and not shared and not _any(here, ("rm",)):
            yield f"thread {event.thread}: {event.error.get('message')}, and nobody had removed it", (event,)
        ended = "is killed" in str(event.error.get("message"))
        if ended and not _any(before, ("kill",)) and not evidence.sides:
            yield f"thread {event.thread} had been killed by nobody", (event,)
        if code == "paused" and not _any(before, ("pause",)) and not evidence.sides:
            yield f"thread {event.thread} was paused by nobody", (event,)
        # A kill or a pause ends the step in progress also where it then finds the thread completed by that step.
        if event.code == 143 and not any(e.name in ("kill", "pause") for e in here):
            yield f"a step of thread {event.thread} was ended by nobody", (event,)


def reads_are_current(evidence: Evidence) -> Found:
    """What is read has all that was reported on this machine before."""
    for event in evidence.events:
        if not event.done or not isinstance(event.result, list):
            continue
        if event.name == "steps":
            seen = {str(step["step"]) for step in event.result}
            for step, thread, node in evidence.made:
                if step.machine != event.machine or step.ended > event.began or thread != event.thread:
                    continue
                if node not in seen and not evidence.sides[thread]:
                    yield f"step {node} of thread {thread} was not read", (step, event)
        elif event.name == "list":
            listed = {str(each["thread"]) for each in event.result}
            for known in evidence.events:
                if known.name not in ("start", "fork") or not known.done or known.machine != event.machine:
                    continue
                thread = known.result["thread"]
                gone = any(e.thread == thread and e.began < event.ended for e in evidence.of("rm"))
                if known.ended < event.began and thread not in listed and not gone:
                    yield f"thread {thread} was not listed", (known, event)
            if bad := [each["thread"] for each in event.result if each["status"] == "corrupt"]:
                yield f"thread {bad[0]} was listed as corrupt", (event,)


def paused_threads_stay_put(evidence: Evidence) -> Found:
    """A thread that was reported paused is not stepped until somebody may have resumed it."""
    for event in evidence.of("pause"):
        if not event.done:
            continue
        for step, thread, _ in evidence.made:
            if thread != event.thread or step.machine != event.machine or step.began < event.ended:
                continue
            if step.name not in ("step", "step-shared"):
                continue
            between = [e for e in evidence.events if e.ended > event.began and e.began < step.ended]
            lifted = any(
                (e.name in ("resume", "go-on", "rm", "restore") and e.thread == thread) or e.name in EXCHANGES
                for e in between
            )
            if not lifted:
                yield f"thread {thread} was stepped while it was paused", (event, step)


def versions_are_kept(evidence: Evidence) -> Found:
    """A version of the workflow that was registered is current, or before that, or a proposal, on some machine."""
    held = frozenset[str]().union(*(each.versions for each in evidence.snapshots))
    for event in evidence.of("put"):
        if event.done and event.result["hash"] not in held:
            yield f"version {event.result['hash']} is nowhere", (event,)


def stores_verify(evidence: Evidence) -> Found:
    """Neither verification nor git nor `doctor` finds anything wrong."""
    for snapshot in evidence.snapshots:
        for finding in snapshot.findings:
            yield f"{snapshot.machine}: {finding}", ()


CLAIMS: tuple[Callable[[Evidence], Found], ...] = (
    acknowledged_steps_are_kept,
    steps_are_in_one_chain,
    chains_are_whole,
    threads_have_one_state,
    lists_agree_with_refs,
    forks_have_their_parent,
    killed_threads_stay_killed,
    ids_mean_the_same,
    what_was_pushed_is_there,
    refusals_change_nothing,
    statuses_are_explained,
    reads_are_current,
    paused_threads_stay_put,
    versions_are_kept,
    stores_verify,
)


def violations(events: Sequence[Event], snapshots: Sequence[Snapshot]) -> list[Violation]:
    """How a history breaks what is promised; at most ten of each claim."""
    evidence = Evidence(events, snapshots)
    found = []
    for claim in CLAIMS:
        for (message, about), _ in zip(claim(evidence), range(10), strict=False):
            found.append(
                Violation(claim.__name__.replace("_", " "), message, tuple(e.operation.number for e in about))
            )
    return found


def _is_of_an_end(snapshot: Snapshot, thread: str, among: Sequence[str]) -> bool:
    """Whether a thread is a side of one that has ended, and has its steps again, or has ended elsewhere by now, so that
    the step after which they part is in another side."""
    side = snapshot.threads[thread]
    origin = snapshot.threads.get(side.origin)
    if origin is None or origin.status == "active":
        return False
    return side.origin in among or bool(side.parted and not _has(origin, side.parted))


def _shared(one: Thread, other: Thread) -> int:
    """How many steps both begin with."""
    pairs = enumerate(zip(one.chain, other.chain, strict=False))
    return next((at for at, (a, b) in pairs if a.node != b.node), min(len(one.chain), len(other.chain)))


def _has(thread: Thread | None, node: str) -> bool:
    return thread is not None and any(step.node == node for step in thread.chain)


def _meaning(thread: Thread) -> tuple[str, str, str]:
    return thread.commit, thread.status, thread.reason


def _any(events: Iterable[Event], names: Sequence[str]) -> bool:
    return any(event.name in names and event.code in (0, KILLED) for event in events)


def _option(event: Event, name: str) -> str | None:
    return event.call[event.call.index(name) + 1] if name in event.call else None


__all__ = ["CLAIMS", "Evidence", "Step", "Violation", "violations"]
