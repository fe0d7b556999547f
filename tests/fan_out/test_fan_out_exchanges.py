"""Whatever two machines do to threads that fan out, in any order and killed between any two moves of refs: every fork
is joined once, no branch is lost, and both come to the same and verify."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fan_outs import audit
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from test_shared_fan_outs import Machine

from uwf_git.base.errors import UwfError
from uwf_git.format.endings import COMPLETED
from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import branch_of
from uwf_git.sync.pull import pull
from uwf_git.sync.push import plan, push

WHO, WHICH = st.integers(0, 1), st.integers(0, 999)
MOVES = st.one_of(st.none(), st.integers(0, 5))
"""How many moves of refs a process makes before it is killed, None for one that ends by itself."""
_MOVING = ("create_ref", "move_ref", "put_ref", "delete_ref", "create_refs", "delete_refs")


class KilledHere(BaseException):
    pass


@contextmanager
def killed_after(machine: Machine, moves: int | None) -> Iterator[None]:
    """Kill what the machine does in the block before it moves one more ref."""
    repository: Any = machine.instance.store.repository
    left = [moves]

    def limited(move: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if left[0] is not None:
                if left[0] == 0:
                    raise KilledHere
                left[0] -= 1
            return move(*args, **named)

        return call

    for name in _MOVING:
        setattr(repository, name, limited(getattr(type(repository), name).__get__(repository)))
    try:
        with suppress(KilledHere):
            yield
    finally:
        for name in _MOVING:
            delattr(repository, name)


class Exchanges(RuleBasedStateMachine):
    """Two machines and a remote."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="uwf-fan-outs-"))
        git = ["git", "init", "-q", "--bare", "--object-format=sha1", str(self.folder / "shared.git")]
        subprocess.run(git, check=True)
        self.machines = [Machine(self.folder, name) for name in ("ada", "bob")]
        for each in self.machines:
            each.world.roles["planner"] = {"files": ["a", "b"]}
        self.machines[0].world.put(audit())
        self.machines[0].world.start()
        self.pushes(0, None)
        self.pulls(1, None)

    @rule(who=WHO, which=WHICH, moves=MOVES)
    def steps(self, who: int, which: int, moves: int | None) -> None:
        machine = self.machines[who]
        threads = machine.instance.threads
        active = [each for each in sorted(threads.ids()) if not threads.has_ended(each)]
        if active:
            with killed_after(machine, moves), suppress(UwfError):  # it waits for branches, or was joined
                machine.world.step(active[which % len(active)])

    @rule(who=WHO, moves=MOVES)
    def pulls(self, who: int, moves: int | None) -> None:
        machine = self.machines[who]
        with killed_after(machine, moves):
            pulled = pull(machine.exchange)
            assert pulled.refused == (), pulled.refused

    @rule(who=WHO, moves=MOVES)
    def pushes(self, who: int, moves: int | None) -> None:
        machine = self.machines[who]
        with killed_after(machine, moves):
            report = push(machine.exchange, plan(machine.instance, machine.exchange.remote))
            assert all(each.lost for each in report.rejected), report.rejected

    def teardown(self) -> None:
        if not hasattr(self, "machines"):
            return
        try:
            self.settle()
            for each in sorted(self.machines[0].instance.threads.ids()):
                if not self.machines[0].instance.threads.has_ended(each):
                    with suppress(UwfError):  # a branch that is joined without
                        self.machines[0].world.run(each)
            self.settle()
            for each in self.machines:
                each.verifies()
            assert _ended_once(self.machines[0]) == _ended_once(self.machines[1])
            self.check_joins()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def settle(self) -> None:
        for _ in range(3):
            for who in (0, 1):
                self.pulls(who, None)
                self.pushes(who, None)
            if self.machines[0].refs() == self.machines[1].refs():
                break

    def check_joins(self) -> None:
        """Each thread that forked has one join, of all branches, which completed and are there."""
        instance = self.machines[0].instance
        for thread in instance.threads.ids():
            head = instance.threads.head(thread)
            if branch_of(instance.store, head.row.start or head.node) is not None:
                continue
            assert head.archive is not None and head.archive.status == COMPLETED
            steps = instance.threads.history(head).steps
            assert [step.role for step in steps] == ["planner", "$FORK", "$JOIN", "reviewer"]
            for each in steps[2].output["branches"]:
                assert each["status"] == COMPLETED
                assert instance.threads.has_ended(ThreadId(each["thread"]))


def _ended_once(machine: Machine) -> dict[str, Oid]:
    """The refs of a machine, without the active ones that a killed process left beside an end, which counts."""
    refs = machine.refs()
    ended = {name.removeprefix(layout.ARCHIVE) for name in refs if name.startswith(layout.ARCHIVE)}
    return {
        name: oid
        for name, oid in refs.items()
        if not name.startswith(layout.THREADS) or name.removeprefix(layout.THREADS) not in ended
    }


EXAMPLES = int(os.environ.get("UWF_TEST_EXAMPLES", "0"))
TestExchanges = pytest.mark.timeout(400)(Exchanges.TestCase)
TestExchanges.settings = settings(
    max_examples=EXAMPLES or 4,
    stateful_step_count=30 if EXAMPLES else 14,
    derandomize=not EXAMPLES,
    phases=set(Phase) - {Phase.shrink, Phase.explain},
    suppress_health_check=[HealthCheck.too_slow],
)
