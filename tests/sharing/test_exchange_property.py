"""Whatever three people do to the same threads, in any order, with one remote between them: after a full
exchange every step that was ever made is reachable in every store, and all stores verify. Nothing honest is told as
rewritten; a copy that somebody forces there is told by everybody who had seen the true one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from test_pull_cases import LOOP
from test_rewritten import a_day_later, again, written
from workflows import register, start_thread

from uwf_git.base.errors import HeadMoved
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.step import kill, step
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store.history import Head
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location, init
from uwf_git.sync.exchange import Exchange
from uwf_git.sync.pull import gather, pull
from uwf_git.sync.push import plan, push
from uwf_git.sync.shared_step import share_all
from uwf_git.verify.refs import Verifier

pytestmark = pytest.mark.extended

WHO = st.integers(0, 2)
WHICH = st.integers(0, 999)
# Few texts, so that two people often make the same output.
TEXTS = st.sampled_from(["one", "two", "three"])


def git(*args: str, at: Path) -> str:
    done = subprocess.run(["git", "--git-dir", at, *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _exchange(instance: Instance) -> Exchange:
    return Exchange(instance, instance.remotes.get("origin"), Git(instance.store.repository.path))


class Exchanges(RuleBasedStateMachine):
    """Three stores and a remote; `made` are the steps that anybody made."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="uwf-exchange-"))
        self.made: set[Hash] = set()
        self.stores: list[Instance] = []

    @initialize()
    def begin(self) -> None:
        shared = self.folder / "shared.git"
        subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(shared)], check=True)
        for name in ("ada", "bob", "carol"):
            location = Location(self.folder / name, self.folder / name / "store.git")
            init(location)
            instance = Instance(location, {})
            instance.remotes.add("origin", str(shared))
            self.stores.append(instance)
        register(self.stores[0], LOOP)
        self.start(0)
        self.pushes(0)
        self.pulls(1)

    @rule(who=WHO)
    def start(self, who: int) -> None:
        start_thread(self.stores[who], LOOP, f"Task of {who}")

    @rule(who=WHO, which=WHICH, text=TEXTS, ends=st.booleans())
    def steps(self, who: int, which: int, text: str, ends: bool) -> None:
        thread = self.one_of(who, which, active=True)
        if thread is not None:
            status = "done" if ends and which % 3 == 0 else "more"
            agent = f"""uwf-exec echo '{{"text": "{text}", "status": "{status}"}}'"""
            outcome = step(self.stores[who], thread, agent, self.folder)
            assert outcome.state is not ThreadState.ASKING
            self.made.add(outcome.head)

    @rule(who=WHO, which=WHICH)
    def forks(self, who: int, which: int) -> None:
        thread = self.one_of(who, which, active=False)
        if thread is not None:
            threads = self.stores[who].threads
            threads.fork(threads.head(thread).commit)

    @rule(who=WHO, which=WHICH)
    def kills(self, who: int, which: int) -> None:
        thread = self.one_of(who, which, active=True)
        if thread is not None:
            kill(self.stores[who], thread, f"by {who}")

    @rule(who=WHO)
    def pulls(self, who: int) -> None:
        instance = self.stores[who]
        pulled = pull(_exchange(instance))
        assert pulled.refused == ()
        assert [each.message for each in pulled.rewrites if not each.is_rollback] == []

    @rule(who=WHO, which=WHICH)
    def gathers(self, who: int, which: int) -> None:
        thread = self.one_of(who, which, active=True)
        if thread is not None:
            instance = self.stores[who]
            pulled = gather(_exchange(instance), [thread])
            assert pulled.refused == ()
            assert [each.message for each in pulled.rewrites if not each.is_rollback] == []

    @rule(who=WHO, which=st.lists(WHICH, max_size=3))
    def shares(self, who: int, which: list[int]) -> None:
        instance = self.stores[who]
        threads = {thread for each in which if (thread := self.one_of(who, each, active=False))}
        told = share_all(_exchange(instance), threads)
        assert all(error is None or isinstance(error, HeadMoved) for error in told.values())

    @rule(who=WHO)
    def pushes(self, who: int) -> None:
        instance = self.stores[who]
        report = push(_exchange(instance), plan(instance, instance.remotes.get("origin")))
        assert all(each.lost for each in report.rejected)

    @rule(which=WHICH, steps=st.integers(1, 3))
    def forges(self, which: int, steps: int) -> None:
        """Somebody replaces a head or an end that all have seen by a copy of another date. Everybody is told and keeps
        what they have; then the true one is put back."""
        shared = self.folder / "shared.git"
        for who in range(3):
            self.pulls(who)
        refs = Repository(shared).refs("refs/uwf/")
        names = sorted(name for name in refs if name.startswith(("refs/uwf/threads/", "refs/uwf/archive/")))
        if not names:
            return
        name = names[which % len(names)]
        self.put(name, self.forged(shared, refs[name], steps))
        for instance in self.stores:
            before = self.refs_of(instance)
            pulled = pull(_exchange(instance))
            assert [(each.ref, each.is_rollback) for each in pulled.rewrites] == [(name, False)]
            assert self.refs_of(instance) == before
        self.put(name, str(refs[name]))
        for who in range(3):
            self.pulls(who)

    def forged(self, shared: Path, oid: Oid, steps: int) -> str:
        text = git("cat-file", "-p", str(oid), at=shared)
        if text.startswith("object "):
            return written(shared, a_day_later(text), "tag")
        known = git("rev-list", "--first-parent", "--count", str(oid), at=shared)
        return again(shared, str(oid), min(steps, int(known) - 1), a_day_later)

    def refs_of(self, instance: Instance) -> dict[str, Oid]:
        refs = instance.store.repository.refs(without="refs/uwf/remotes/")
        return {name: oid for name, oid in refs.items() if not name.startswith("refs/uwf/rewritten/")}

    def put(self, name: str, oid: str) -> None:
        git("update-ref", name, oid, at=self.folder / "shared.git")

    def one_of(self, who: int, which: int, active: bool) -> ThreadId | None:
        heads = [head for head in self.stores[who].threads.all(archived=not active) if isinstance(head, Head)]
        return heads[which % len(heads)].thread if heads else None

    def teardown(self) -> None:
        try:
            if self.stores:
                self.everybody_exchanges_everything()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def everybody_exchanges_everything(self) -> None:
        for _ in range(2):
            for who in range(3):
                self.pulls(who)
                self.pushes(who)
        for who in range(3):
            self.pulls(who)
        threads = [self.threads_of(instance) for instance in self.stores]
        assert threads[0] == threads[1] == threads[2]
        for instance in self.stores:
            reached = {
                row.node
                for head in instance.threads.all(archived=True)
                for row in self.steps_of(instance, head)
            }
            assert self.made <= reached
            self.verifies(instance)

    def threads_of(self, instance: Instance) -> dict[str, tuple[Any, ...]]:
        heads = instance.threads.all(archived=True)
        assert all(isinstance(head, Head) for head in heads)
        return {
            head.thread: (head.commit, head.archive.status if head.archive else None)
            for head in heads
            if isinstance(head, Head)
        }

    def steps_of(self, instance: Instance, head: Any) -> list[Any]:
        rows = [head.row]
        while rows[-1].kind == "step":
            rows.append(instance.store.index_commit(Oid(raw=rows[-1].parent)))
        return rows

    def verifies(self, instance: Instance) -> None:
        repository = instance.store.repository
        store = Store(repository, Overlay())
        for name, oid in repository.refs(without="refs/uwf/remotes/").items():
            if not name.startswith(("refs/uwf/proposals/", "refs/uwf/rewritten/")):
                assert Verifier(store).ref(name, oid) == []


EXAMPLES = int(os.environ.get("UWF_TEST_EXAMPLES", "0"))
# To make a failure small takes five minutes, which is for a search that was asked for.
PHASES = set(Phase) if EXAMPLES else set(Phase) - {Phase.shrink, Phase.explain}
TestExchange = pytest.mark.timeout(400)(Exchanges.TestCase)
TestExchange.settings = settings(
    max_examples=EXAMPLES or 5,
    stateful_step_count=20,
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
