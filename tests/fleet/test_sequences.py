"""Quick steps of a thread are made in one activity, and a step that takes its time in one of its own; limits, pauses,
budgets and kills are heeded between them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_samples import write
from commands import git, wait_for, wait_until_gone
from complete import examine
from conftest import Begin, Uwf
from fleets import FIVE, HAND, STEPS, WORKER, hurry, kill, some, steps_told, until

from uwf_git.ext.fleet.client import Queue, connect
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.ext.fleet.server import Server

_NAMES = ["one", "two", "three", "four", "five"]

# A command for uwf-exec that notes its role in the file of its thread. In a role that the file `waits` names it says so
# in `began`, and waits for the file `go`.
NOTING = """\
import os, time
from pathlib import Path

role, waits = os.environ["UWF_ROLE"], Path("waits")
with open(os.environ["UWF_THREAD"], "a") as file:
    file.write(f"{role}\\n")
if waits.exists() and waits.read_text() == role:
    Path("began").write_text(str(os.getpid()))
    while not Path("go").exists():
        time.sleep(0.02)
print('{"text": "said"}')
"""


class Worked:
    """A server with a worker, to which every step is quick that ends within minutes."""

    def __init__(self, uwf: Uwf, begin: Begin, folder: Path, agent: Path, address: str) -> None:
        self._uwf, self._begin, self.folder = uwf, begin, folder
        self.at = ("--address", address)
        self._address = address
        self._agent = ("--agent", f"uwf-exec {agent}", "--cwd", str(folder))
        self.env = hurry(folder / "patient", "pace.QUICK = pace.SEQUENCE = 600.0")

    def work(self, *options: str, agent: bool = True) -> None:
        options = (*options, *(self._agent if agent else ()))
        self.worker = self._begin("fleet", "worker", *self.at, *options, env=self.env)

    def start(self, *options: str) -> str:
        """A thread of five steps in the queue."""
        thread: str = self._uwf("thread", "start", "five", "-p", "Say").json["thread"]
        self._uwf("fleet", "start", thread, *self.at, *options)
        return thread

    def is_made(self, thread: str) -> None:
        until(lambda: self._uwf("thread", "show", thread).json["status"] == "completed", "end")

    def ends(self, thread: str) -> None:
        self.is_made(thread)
        self.activities(thread, ended=True)

    def asked(self, thread: str) -> list[str]:
        """The roles whose agent was asked, in this order."""
        return (self.folder / thread).read_text().split()

    def activities(self, thread: str, ended: bool = False) -> list[str]:
        """The heads that the activities of a thread began at; with `ended` once its workflow has."""

        async def look() -> list[str]:
            handle = (await connect(Endpoint(self._address))).get_workflow_handle(thread)
            if ended:
                await handle.result()
            events = (await handle.fetch_history()).events
            return [
                event.activity_task_scheduled_event_attributes.activity_id.partition("@")[2]
                for event in events
                if event.HasField("activity_task_scheduled_event_attributes")
            ]

        return asyncio.run(look())

    def wants(self, thread: str) -> bool:
        async def look() -> bool:
            return await Queue(await connect(Endpoint(self._address))).wants(thread, None)

        return asyncio.run(look())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Server(tmp_path_factory.mktemp("temporal")) as server:
        yield server.address


@pytest.fixture
def worked(
    uwf: Uwf, begin: Begin, tmp_path: Path, script: Callable[[str, str], Path], address: str
) -> Worked:
    uwf("workflow", "put", write("five.yaml", FIVE))
    return Worked(uwf, begin, tmp_path, script("noting", NOTING), address)


def test_quick_steps_of_a_thread_are_one_activity(worked: Worked, root: Path) -> None:
    worked.work()
    thread = worked.start()
    worked.ends(thread)
    assert (worked.asked(thread), len(worked.activities(thread))) == (_NAMES, 1)
    worked.worker.send_signal(signal.SIGTERM)
    out, err = worked.worker.communicate(timeout=60)
    assert err == "" and [each["role"] for each in steps_told(out)] == _NAMES
    assert examine(root / "store.git").wrong == {}


@pytest.mark.parametrize("agent", ["slow", "noting"])
def test_a_step_that_takes_its_time_has_an_activity_of_its_own(
    uwf: Uwf,
    worked: Worked,
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
    agent: str,
) -> None:
    """If its agent makes no quick steps, else from the second time on."""
    noting, slow = worked.folder / "bin" / "noting", script("slow", NOTING)
    config(
        f"agents:\n  noting: {{command: uwf-exec, args: [{noting}]}}\n"
        f"  slow: {{command: uwf-exec, args: [{slow}]}}\n"
        f"defaultAgent: noting\nagentOverrides: {{five: {{three: {agent}}}}}\n"
    )
    worked.env = hurry(worked.folder / "patient", "pace.QUICK, pace.SEQUENCE = 2.0, 600.0")
    (worked.folder / "waits").write_text("three")
    worked.work("--cwd", str(worked.folder), agent=False)
    for number in range(2):
        thread = worked.start()
        wait_for(worked.folder / "began")
        time.sleep(2)
        before = uwf("thread", "show", thread).json["head"]
        (worked.folder / "go").touch()
        worked.ends(thread)
        assert before in worked.activities(thread) or (number, agent) == (0, "noting")
        for name in ("began", "go"):
            (worked.folder / name).unlink()


@pytest.mark.parametrize("kind", [HAND, WORKER])
def test_who_is_killed_amid_quick_steps_has_nobody_asked_twice(root: Path, worked: Worked, kind: str) -> None:
    worked.work()
    (worked.folder / "waits").write_text("three")
    thread = worked.start("--heartbeat", "2")
    agent = wait_for(worked.folder / "began")
    assert len(worked.activities(thread)) == 1
    if kind == HAND:
        (hand,) = some(HAND, root)
        kill(hand)
    else:
        kill(worked.worker.pid)
        worked.work()
    wait_until_gone(agent)
    (worked.folder / "go").touch()
    worked.ends(thread)
    assert sorted(worked.asked(thread)) == sorted([*_NAMES, "three"])
    assert examine(root / "store.git").steps[thread] == STEPS


def test_a_pause_between_two_quick_steps_is_heeded(uwf: Uwf, worked: Worked) -> None:
    worked.work()
    (worked.folder / "waits").write_text("two")
    thread = worked.start()
    wait_for(worked.folder / "began")
    uwf("fleet", "pause", thread, *worked.at)
    until(lambda: not worked.wants(thread), "hold")
    time.sleep(0.3)  # longer than between two questions whether the thread is wanted
    (worked.folder / "go").touch()

    def state() -> str:
        return next(
            row["state"] for row in uwf("fleet", "status", *worked.at).json if row["thread"] == thread
        )

    until(lambda: state() == "held", "held thread")
    assert (worked.asked(thread), len(worked.activities(thread))) == (["one", "two"], 1)
    uwf("fleet", "resume", thread, *worked.at)
    worked.ends(thread)
    assert worked.asked(thread) == _NAMES


def test_steps_that_a_budget_counts_are_an_activity_each(uwf: Uwf, worked: Worked) -> None:
    worked.work()
    thread: str = uwf("thread", "start", "five", "-p", "Say").json["thread"]
    uwf("fleet", "run", thread, *worked.at, "--workers", "0", "--max-steps", "3", check=5, timeout=100)
    assert (worked.asked(thread), len(worked.activities(thread))) == (_NAMES[:3], 3)


@pytest.mark.parametrize(
    ("limits", "activities"), [("{concurrentSteps: 1}", 1), ("{stepsPerSecond: 1000}", STEPS)]
)
def test_the_steps_of_a_provider_with_so_many_a_second_are_an_activity_each(
    worked: Worked, config: Callable[[str], Path], limits: str, activities: int
) -> None:
    agent = worked.folder / "bin" / "noting"
    config(
        f"providers: {{east: {{limits: {limits}}}}}\n"
        f"agents: {{east: {{command: uwf-exec, args: [{agent}]}}}}\ndefaultAgent: east\n"
    )
    worked.work("--cwd", str(worked.folder), agent=False)
    thread = worked.start()
    worked.ends(thread)
    assert (worked.asked(thread), len(worked.activities(thread))) == (_NAMES, activities)


def test_quick_steps_get_to_the_remote_in_one_push(uwf: Uwf, worked: Worked, root: Path) -> None:
    bare = worked.folder / "bare.git"
    git("init", "-q", "--bare", bare)
    hook = bare / "hooks" / "post-receive"
    hook.write_text(f"#!/bin/sh\ngrep refs/uwf/ >>{worked.folder}/pushes; echo >>{worked.folder}/pushes\n")
    hook.chmod(0o755)
    uwf("remote", "add", "origin", bare)
    worked.work("--remote", "origin")
    thread = worked.start("--remote", "origin")
    worked.ends(thread)
    pushes = (worked.folder / "pushes").read_text().split("\n\n")
    assert sum(f"refs/uwf/archive/{thread}" in push for push in pushes) == 1
    assert sum(f"refs/uwf/threads/{thread}" in push for push in pushes) <= 2  # as it begins, and as it ends
    assert examine(bare, STEPS).steps[thread] == STEPS


# Like NOTING, for threads that the files `waits-<ULID>` name, whatever their role.
WAITING = """\
import os, time
from pathlib import Path

thread = os.environ["UWF_THREAD"]
with open(thread, "a") as file:
    file.write(os.environ["UWF_ROLE"] + "\\n")
if Path(f"waits-{thread}").exists():
    Path("began").write_text(str(os.getpid()))
    while not Path("go").exists():
        time.sleep(0.02)
print('{"text": "said"}')
"""


_PATIENTLY = ("pace.SEQUENCE = 600.0", "slots._LINGER = 600.0")


class Shared(Worked):
    """The same with a remote, whose hook notes what is pushed, and waits with ends of threads as long as there is a
    file `full`. Its worker takes threads ahead after its first turn."""

    def __init__(self, uwf: Uwf, begin: Begin, folder: Path, agent: Path, address: str) -> None:
        super().__init__(uwf, begin, folder, agent, address)
        self.bare = folder / "bare.git"
        git("init", "-q", "--bare", self.bare)
        hook = self.bare / "hooks" / "pre-receive"
        hook.write_text(
            f"#!/bin/sh\nrefs=$(grep refs/uwf/)\nprintf '%s\\n\\n' \"$refs\" >>{folder}/pushes\n"
            f"case $refs in *refs/uwf/archive/*) while [ -e {folder}/full ]; do sleep 0.05; done ;; esac\n"
        )
        hook.chmod(0o755)
        uwf("remote", "add", "origin", self.bare)

    def threads(self, many: int) -> list[str]:
        """Threads that the remote has."""
        threads = [self._uwf("thread", "start", "five", "-p", "Say").json["thread"] for _ in range(many)]
        self._uwf("push", "origin", "--all")
        return threads

    def queue(self, *threads: str) -> None:
        self._uwf("fleet", "start", *threads, *self.at, "--remote", "origin", "--heartbeat", "2")

    def take_ahead(self, many: int, *settings: str) -> list[str]:
        """Begin a worker that takes threads ahead, as it has made quick steps; return so many threads that are not
        queued."""
        self.env = hurry(self.folder / "patient", "pace.QUICK = 600.0", "slots._WINDOW = 600.0", *settings)
        first, *others = self.threads(1 + many)
        self.work("--remote", "origin")
        self.queue(first)
        self.ends(first)
        return others

    def pushes(self, kind: str) -> list[str]:
        """The pushes that had refs of a kind."""
        pushes = (self.folder / "pushes").read_text().split("\n\n")
        return [push for push in pushes if f"refs/uwf/{kind}/" in push]

    def faults(self, thread: str) -> list[str]:
        """The codes with which activities of a thread failed."""

        async def look() -> list[str]:
            handle = (await connect(Endpoint(self._address))).get_workflow_handle(thread)
            return [
                event.activity_task_failed_event_attributes.failure.application_failure_info.type
                for event in (await handle.fetch_history()).events
                if event.HasField("activity_task_failed_event_attributes")
            ]

        return asyncio.run(look())


@pytest.fixture
def shared(
    uwf: Uwf, begin: Begin, tmp_path: Path, script: Callable[[str, str], Path], address: str
) -> Shared:
    uwf("workflow", "put", write("five.yaml", FIVE))
    return Shared(uwf, begin, tmp_path, script("waiting", WAITING), address)


def test_a_push_has_the_steps_of_several_threads(shared: Shared) -> None:
    """Also with one step at a time: the next threads are fetched while one is pushed."""
    others = shared.take_ahead(12, *_PATIENTLY)
    shared.queue(*others)
    for thread in others:
        shared.ends(thread)
    assert [shared.asked(thread) for thread in others] == [_NAMES] * 12
    assert len(shared.pushes("archive")) <= 1 + 6
    assert examine(shared.bare, STEPS).wrong == {}


def test_a_thread_that_was_taken_ahead_of_a_slow_step_goes_to_another_worker(
    shared: Shared, begin: Begin
) -> None:
    slow, *others = shared.take_ahead(4)
    (shared.folder / f"waits-{slow}").touch()
    shared.queue(slow)
    wait_for(shared.folder / "began")
    shared.queue(*others)
    until(lambda: any("passed_on" in shared.faults(thread) for thread in others), "thread given back")
    shared.work("--remote", "origin")
    for thread in others:
        shared.ends(thread)
    (shared.folder / "go").touch()
    shared.ends(slow)
    assert [shared.asked(thread) for thread in (slow, *others)] == [_NAMES] * 4
    assert examine(shared.bare, STEPS).wrong == {}


def test_a_worker_that_is_killed_while_steps_wait_for_their_push_has_nobody_asked_twice(
    shared: Shared,
) -> None:
    others = shared.take_ahead(5, *_PATIENTLY)
    (shared.folder / "full").touch()
    shared.queue(*others)
    for thread in others:
        shared.is_made(thread)
    kill(shared.worker.pid)
    (shared.folder / "full").unlink()
    shared.work("--remote", "origin")
    for thread in others:
        shared.ends(thread)
    assert [shared.asked(thread) for thread in others] == [_NAMES] * 5
    assert examine(shared.bare, STEPS).wrong == {}
