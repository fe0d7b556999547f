"""Threads are refs on commits that plain git understands, and nothing that git brings breaks them."""

from __future__ import annotations

import inspect
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_samples import write
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from warm import interpreter_for
from workflows import start_thread

from uwf_git.base.errors import HeadMoved
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, Step
from uwf_git.format.types import STEPNODE, TEXT
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, History
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location, init
from uwf_git.store.versions import walk_tree

LOOP = """\
name: loop
description: Counts
roles:
  counter:
    description: Counts
    systemPrompt: Count.
    outputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}
conditions:
  small: {description: few, expression: "steps[-1].output.n < 1000000"}
graph:
  $START: [{role: counter}]
  counter: [{role: counter, condition: small}, {role: $END}]
"""


def start(instance: Instance, prompt: str = "Count to three\n\nand no further") -> ThreadId:
    return start_thread(instance, LOOP, prompt)


def make_step(instance: Instance, history: History, number: int, answer: str = "") -> Hash:
    role = history.workflow.roles["counter"]
    output = instance.store.put(role.schema, {"n": number})
    detail = instance.store.put(TEXT, answer or f"I count {number}.")
    step = Step(history.start_hash, history.prev, "counter", output, detail, "uwf-test")
    return instance.store.put(STEPNODE, step.payload())


def append(instance: Instance, head: Head, number: int, answer: str = "") -> Head:
    history = instance.threads.history(head)
    node = make_step(instance, history, number, answer)
    return instance.threads.append(head, node, {step.hash for step in history.steps})


def git(instance: Instance, *args: str) -> str:
    command = ["git", "--git-dir", str(instance.store.repository.path), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_step_is_a_commit_that_adds_exactly_that_step(instance: Instance) -> None:
    thread = start(instance)
    head = append(instance, append(instance, instance.threads.head(thread), 1), 2, "The *second*, verbatim")
    page, *changed = git(
        instance, "diff-tree", "-r", "--name-status", "--no-commit-id", str(head.commit)
    ).splitlines()
    assert page == "M\tREADME.md"
    assert all(line.startswith("A\tsteps/0002-counter/") for line in changed)
    assert sorted(line.rsplit("/", 1)[-1][-5:] for line in changed) == [".json", ".json", ".json", "ME.md"]
    grown = git(instance, "diff", "--numstat", f"{head.commit}^", str(head.commit), "--", "README.md")
    assert grown == "2\t1\tREADME.md\n"  # where it stands, and a line for the step
    assert "\nThe *second*, verbatim\n" in git(
        instance, "show", f"{head.commit}:steps/0002-counter/README.md"
    )
    subject, author, committer = git(
        instance, "log", "-1", "--format=%s%n%an%n%cn", str(head.commit)
    ).splitlines()
    assert (subject, author, committer) == ("0002 counter", "uwf-test", "Ada Example")
    trailers = git(instance, "log", "-1", "--format=%(trailers:only)", str(head.commit)).split("\n")
    assert trailers[:3] == [f"Uwf-Step: {head.node}", "Uwf-Role: counter", "Uwf-Agent: uwf-test"]
    assert "error" not in git(instance, "fsck", "--strict")


def test_threads_begun_at_once_with_the_same_prompt_have_no_commit_in_common(instance: Instance) -> None:
    first = start(instance)
    version = instance.store.index_commit(instance.threads.head(first).commit).parent
    history = instance.threads.history(instance.threads.head(first))
    starts = [
        Start(history.workflow_hash, "x")
    ] * 20  # more than begin in two seconds, in which alone their commits could differ
    threads = instance.threads.start_all(Oid(raw=version or b""), starts)
    assert len({instance.threads.head(thread).commit for thread in threads}) == 20
    named = {
        git(instance, "log", "-1", "--format=%(trailers:key=Uwf-Thread,valueonly)", layout.THREADS + thread)
        for thread in threads
    }
    assert named == {f"{thread}\n\n" for thread in threads}


def test_a_thread_of_which_the_index_loses_something_while_threads_are_listed_is_listed(
    instance: Instance,
) -> None:
    thread = start(instance)
    (before,) = instance.threads.all()
    assert isinstance(before, Head)
    instance.store.index.forget([], [before.commit.raw])  # as beside who removes the thread and restores it
    assert instance.threads.all() == [before]
    assert before.thread == thread


def test_the_first_commit_stands_on_the_workflow_version_it_is_pinned_to(instance: Instance) -> None:
    thread = start(instance)
    version = instance.registry.current("loop")
    assert git(instance, "log", "--format=%H", f"refs/uwf/threads/{thread}").split()[1:] == [version.commit]
    paths = {path for path, _entry in walk_tree(instance.store.repository, _tree(instance, thread))}
    assert {"README.md", "start/README.md", "workflow.yaml", "workflow/README.md", ".gitattributes"} <= paths
    assert (
        git(instance, "show", f"refs/uwf/threads/{thread}:start/README.md")
        == "Count to three\n\nand no further"
    )
    assert git(instance, "show", f"refs/uwf/threads/{thread}:workflow.yaml") == LOOP


def _tree(instance: Instance, thread: ThreadId) -> Oid:
    return instance.store.repository.commit(instance.threads.head(thread).commit).tree


def test_every_tree_holds_the_closure_of_its_thread(instance: Instance) -> None:
    thread = start(instance)
    head = append(instance, append(instance, instance.threads.head(thread), 1), 2)
    files = (
        layout.node_in_path(path)
        for path, _entry in walk_tree(instance.store.repository, _tree(instance, thread))
    )
    inside = {node for node in files if node}
    closure = {node for node, _content in instance.store.walk(head.node)}
    assert closure <= inside


def test_steps_from_one_hundred_on_stand_in_centuries() -> None:
    assert layout.step_folder(99, "r") == ("steps", "0099-r")
    assert layout.step_folder(100, "r") == ("steps", "01xx", "0100-r")
    assert layout.step_folder(1234, "developer") == ("steps", "12xx", "1234-developer")
    assert layout.step_folder(12345, "$USER") == ("steps", "123xx", "12345-user")


@pytest.mark.parametrize("role", ["a/b", "..", "", ".git", "a\0b", "x" * 300, "é小", "$USER", "-rf"])
def test_a_role_of_any_name_makes_a_harmless_folder(role: str) -> None:
    name = layout.step_folder(1, role)[-1]
    assert name.startswith("0001-") and "/" not in name and "\0" not in name and len(name) <= 45


def test_a_lost_race_keeps_the_first_step_and_says_so(instance: Instance) -> None:
    thread = start(instance)
    stale = instance.threads.head(thread)
    first = append(instance, stale, 1)
    with pytest.raises(HeadMoved, match=thread):
        append(instance, stale, 2)
    assert instance.threads.head(thread).node == first.node


APPENDER = """
from __future__ import annotations
import random, sys, time
from uwf_git.base.errors import Busy, HeadMoved
from uwf_git.format.kinds import Step
from uwf_git.format.types import STEPNODE, TEXT
from uwf_git.store.instance import Instance

{make_step}
instance = Instance.open()
thread, number = sys.argv[1], int(sys.argv[2])
for count in range({count}):
    while True:
        try:
            head = instance.threads.head(thread)
            history = instance.threads.history(head)
            node = make_step(instance, history, number * 1000 + count)
            instance.threads.append(head, node, {{step.hash for step in history.steps}})
            break
        except (Busy, HeadMoved):
            time.sleep(random.uniform(0, 0.005))
"""


def test_an_end_that_was_killed_half_way_is_finished_and_one_with_later_steps_left_alone(
    instance: Instance,
) -> None:
    thread = start(instance)
    first = instance.threads.head(thread)
    ended = instance.threads.archive(first, "completed")
    repository, active = instance.store.repository, layout.THREADS + thread
    repository.create_ref(active, first.commit)
    instance.threads.archive(ended, "completed")
    assert repository.ref(active) is None
    another = instance.threads.head(start(instance, "another")).commit
    repository.create_ref(active, another)
    instance.threads.archive(ended, "completed")
    assert repository.ref(active) == another


@pytest.mark.parametrize(("processes", "each"), [(4, 5), pytest.param(8, 25, marks=pytest.mark.extended)])
def test_processes_append_steps_at_once_and_none_is_lost_or_doubled(
    instance: Instance, processes: int, each: int
) -> None:
    thread = start(instance)
    program = APPENDER.format(make_step=inspect.getsource(make_step), count=each)
    command = [*interpreter_for(program), write("append.py", program).absolute(), thread]
    workers = [subprocess.Popen([*command, str(number)]) for number in range(processes)]
    assert [worker.wait() for worker in workers] == [0] * processes
    history = instance.threads.history(instance.threads.head(thread))
    numbers = [step.output["n"] for step in history.steps]
    assert sorted(numbers) == sorted(n * 1000 + count for n in range(processes) for count in range(each))
    for n in range(processes):
        assert [x for x in numbers if x // 1000 == n] == [n * 1000 + count for count in range(each)]
    commits = git(instance, "rev-list", "--count", "--first-parent", f"refs/uwf/threads/{thread}")
    assert int(commits) == processes * each + 2


class Chain(RuleBasedStateMachine):
    """Threads behave as lists of numbers in a dictionary do."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(os.environ["HOME"]) / f"chain-{random.getrandbits(64):x}"
        location = Location(self.folder, self.folder / "store.git")
        init(location)
        self.instance = Instance(location)
        self.model: dict[ThreadId, list[int]] = {}
        self.ended: set[ThreadId] = set()

    @rule()
    def start(self) -> None:
        self.model[start(self.instance)] = []

    def pick(self, data: st.DataObject, active: bool = False) -> ThreadId:
        choice = sorted(self.model.keys() - self.ended if active else self.model)
        return data.draw(st.sampled_from(choice))

    @precondition(lambda self: self.model.keys() - self.ended)
    @rule(data=st.data(), number=st.integers(0, 3))
    def append(self, data: st.DataObject, number: int) -> None:
        thread = self.pick(data, active=True)
        append(self.instance, self.instance.threads.head(thread), number)
        self.model[thread].append(number)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        thread = self.pick(data)
        at = data.draw(st.integers(0, len(self.model[thread])))
        history = self.instance.threads.history(self.instance.threads.head(thread))
        node = history.steps[at - 1].hash if at else history.start_hash
        self.model[self.instance.threads.fork(self.instance.threads.commit_of(node))] = self.model[thread][
            :at
        ]

    @precondition(lambda self: self.model.keys() - self.ended)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        thread = self.pick(data, active=True)
        self.instance.threads.archive(self.instance.threads.head(thread), "killed")
        self.ended.add(thread)

    @rule()
    def reopen(self) -> None:
        self.instance = Instance(self.instance.location)

    @rule()
    def lose_the_index(self) -> None:
        self.instance.store.index.close()
        for file in self.instance.store.repository.private.glob("index.db*"):
            file.unlink()
        self.instance = Instance(self.instance.location)

    @rule()
    def pack(self) -> None:
        git(self.instance, "gc", "-q")

    @invariant()
    def reads_as_the_model(self) -> None:
        for thread, numbers in self.model.items():
            head = self.instance.threads.head(thread)
            history = self.instance.threads.history(head)
            assert [step.output["n"] for step in history.steps] == numbers
            assert head.row.number == len(numbers)
            assert (head.archive is not None) == (thread in self.ended)
        assert {head.thread for head in self.instance.threads.all()} == self.model.keys() - self.ended

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


Chain.TestCase.settings = settings(
    max_examples=12, stateful_step_count=15, suppress_health_check=list(HealthCheck)
)
TestChain = Chain.TestCase


def test_node_files_are_readable_json(instance: Instance) -> None:
    thread = start(instance)
    for path, entry in walk_tree(instance.store.repository, _tree(instance, thread)):
        if layout.node_in_path(path):
            assert json.loads(instance.store.repository.blob(entry.oid)).keys() == {
                "type",
                "payload",
                "timestamp",
            }


def test_a_history_that_is_read_on_is_the_one_that_is_read_anew(instance: Instance) -> None:
    threads = instance.threads
    heads = [threads.head(start(instance))]
    for number in range(4):
        heads.append(append(instance, heads[-1], number))
    fork = threads.head(threads.fork(heads[2].commit))
    heads += [fork, append(instance, fork, 7), *reversed(heads)]
    for head in heads:
        fresh = Instance(instance.location).threads.history(head)
        assert threads.history(head) == fresh and fresh.head == head.node
