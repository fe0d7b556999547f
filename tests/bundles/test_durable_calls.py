"""Each call of a code workflow is durable by itself: a thread that has its answer, found again by what was asked."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import git_servers
import pytest
from cli_samples import write
from conftest import Uwf
from model_server import ModelServer, says
from noting_agent import Asked, noting
from two_machines import Machine
from workflows import opened

from uwf_git.engine.calls import Request, begin, find, root_of
from uwf_git.ext.code.contract import compile_bundle
from uwf_git.format.kinds import Detail, Start, Step
from uwf_git.format.types import DETAIL, END, RESULT, STEPNODE
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, Position
from uwf_git.store.instance import Instance
from uwf_git.sync.admission import Admission

pytestmark = pytest.mark.needs("bwrap", "node")

FAN = """\
import asyncio
SAID = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}
ALL = {"type": "object", "properties": {"all": {"type": "array"}}}
descriptor = {"name": "fan", "description": "Three.", "roles": {"all": {"description": "look", "schema": ALL}}}

async def run(input, options):
    async def look(what):
        return await options.extract(SAID, "What it said.", await options.agents.scripted(prompt=what, schema=SAID))
    found = await asyncio.gather(*map(look, ["one", "two", "three", "one"]))
    yield {"role": "all", "content": "", "meta": {"all": [each["said"] for each in found]}}
    options.finish({"done": True})
"""


@pytest.fixture
def asked(config: Callable[[str], Path]) -> Asked:
    return noting(config)


def begun(uwf: Uwf) -> str:
    uwf("workflow", "put", write("fan.py", FAN))
    return str(uwf("thread", "start", "fan", "-p", "Do it").json["thread"])


def calls_of(uwf: Uwf, thread: str) -> dict[str, list[dict[str, Any]]]:
    """The threads of calls by their status."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in uwf("thread", "list", "--all").json:
        if each["thread"] != thread:
            found.setdefault(each["status"], []).append(each)
    return found


def test_what_a_step_joins_is_known_here_before_the_trust_policy_of_a_remote_judges_it(
    uwf: Uwf, asked: Asked
) -> None:
    thread = begun(uwf)
    uwf("thread", "step", thread)
    repository = opened().store.repository
    here = Admission(opened().store)._here(layout.THREADS + thread)
    head = repository.ref(layout.THREADS + thread)
    assert head is not None
    joined = repository.commit(head).parents[1:]
    assert len(joined) > 2 and {each.raw for each in joined} <= here


def test_only_the_call_that_failed_is_asked_again(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    Path("broken").write_text("two")
    error = uwf("thread", "step", thread, check=6).error
    assert "exited with 1" in error["message"]
    assert asked() == ["one", "one", "three", "two"]
    assert {status: len(each) for status, each in calls_of(uwf, thread).items()} == {
        "completed": 3,
        "failed": 1,
    }

    Path("broken").unlink()
    Path("asked").unlink()
    uwf("thread", "step", thread)
    assert asked() == ["two"]
    (step,) = uwf("thread", "steps", thread).json
    assert step["output"]["all"] == ["ONE", "TWO", "THREE", "ONE"]
    (call,) = (each for each in calls_of(uwf, thread)["completed"] if each["title"] == "two")
    (attempt,) = uwf("thread", "attempts", call["thread"]).json
    assert "exited with 1" in attempt["error"]
    store = Path(os.environ["UWF_STORAGE_ROOT"]) / "store.git"
    parents = commands.git(
        "--git-dir", store, "log", "-1", "--format=%P", f"refs/uwf/threads/{thread}"
    ).split()
    ends = "for-each-ref", "--format=%(*objectname)", "refs/uwf/archive/"
    tips = commands.git("--git-dir", store, *ends).split()
    assert len(parents) == 5 and set(parents[1:]) == set(tips)
    uwf("verify", "--strict")


def test_answers_outlive_a_kill_of_everything_at_once(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    Path("slow").write_text("three")
    step = commands.begin("thread", "step", thread, start_new_session=True)
    while len(calls_of(uwf, thread).get("completed", [])) < 3 or not Path("waits").exists():
        time.sleep(0.02)
        assert step.poll() is None, step.communicate()
    os.kill(step.pid, signal.SIGKILL)
    step.wait()
    Path("slow").unlink()
    Path("asked").unlink()
    os.kill(int(Path("waits").read_text()), signal.SIGKILL)
    while uwf("thread", "step", thread, check=None).code == 4:
        time.sleep(0.02)  # until the conversation with the killed agent has ended too
    assert asked() == ["three"]
    assert uwf("thread", "steps", thread).json[0]["output"]["all"] == ["ONE", "TWO", "THREE", "ONE"]


def test_forks_share_what_was_answered_before_they_parted_and_it_is_paid_once(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    Path("broken").write_text("two")
    uwf("thread", "step", thread, check=6)
    Path("broken").unlink()
    Path("asked").unlink()
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    uwf("thread", "step", fork)
    assert asked() == ["two"]
    assert uwf("thread", "steps", fork).json[0]["output"]["all"] == ["ONE", "TWO", "THREE", "ONE"]


def test_a_fork_asks_anew_what_a_step_after_it_was_made_from_and_shares_that_with_no_other(
    uwf: Uwf, asked: Asked
) -> None:
    thread = begun(uwf)
    uwf("thread", "step", thread)
    for _ in range(2):
        Path("asked").unlink()
        fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
        Path("broken").write_text("two")
        uwf("thread", "step", fork, check=6)
        assert asked() == ["one", "one", "three", "two"]
        Path("asked").unlink()
        Path("broken").unlink()
        uwf("thread", "step", fork)
        assert asked() == ["two"]
    uwf("verify", "--strict")


def test_a_call_is_stepped_by_its_caller_alone_and_ends_with_it(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    Path("broken").write_text("two")
    uwf("thread", "step", thread, check=6)
    (call,) = calls_of(uwf, thread)["failed"]
    error = uwf("thread", "step", call["thread"], check=None).error
    assert f"uwf thread step {thread}" in error["hint"]
    assert uwf("thread", "show", "@").json["thread"] == thread
    uwf("thread", "kill", thread)
    shown = uwf("thread", "show", call["thread"]).json
    assert shown["status"] == "killed" and "exited with 1" in shown["reason"]


def test_another_machine_goes_on_with_answers_of_the_first_and_says_whose_they_are(
    uwf: Uwf, hermetic: Path
) -> None:
    hub = git_servers.bare(hermetic / "hub.git")
    ada, ben = Machine(uwf, hermetic / "ada"), Machine(uwf, hermetic / "ben")

    def configured(machine: str) -> Asked:
        def config(text: str) -> Path:
            path = hermetic / machine / "config.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return path

        return noting(config)

    asked = configured("ada")
    ada("workflow", "put", write("fan.py", FAN))
    ada("remote", "add", "origin", hub)
    thread = ada("thread", "start", "fan", "-p", "Do it").json["thread"]
    Path("broken").write_text("two")
    ada("thread", "step", thread, check=6)
    ada("push", thread)
    Path("broken").unlink()
    Path("asked").unlink()
    ben("clone", hub)
    configured("ben")
    code = ben("thread", "step", thread, check=5).error["hint"].split()[-1]
    ben("workflow", "trust", code, "--yes")
    identity = {"GIT_COMMITTER_NAME": "Ben", "GIT_COMMITTER_EMAIL": "ben@example.org"}
    told = ben("thread", "step", thread, env=identity).err
    assert asked() == ["two"]
    assert "3 answers of " in told and "were taken as given" in told
    (step,) = ben("thread", "steps", thread).json
    detail = ben("thread", "step-details", step["step"], "--format", "json").json["detail"]["value"]
    assert [each for each in detail["notes"] if "taken as given" in each] == [
        told.strip().removeprefix("uwf: ")
    ]
    ben("verify", "--strict")


def ended(instance: Instance, head: Head, output: object, *calls: Oid) -> Head:
    """A thread with a result, written through the library, whose commit joins these calls."""
    store, history = instance.store, instance.threads.history(head)
    said = Detail("A", context=head.node)
    detail = store.put(DETAIL, said.payload())
    step = Step(history.start_hash, history.prev, END, store.put(RESULT, output), detail, "by-hand")
    return instance.threads.append(head, store.put(STEPNODE, step.payload()), frozenset(), calls, "native")


def test_an_answer_that_is_not_such_as_was_asked_for_is_found(uwf: Uwf, instance: Instance) -> None:
    compiled = compile_bundle(Path(write("fan.py", FAN)), instance.config)
    version = instance.registry.put(compiled)
    commit = Oid(hex=version.commit)
    one, other, stranger = (
        instance.threads.position(instance.threads.head(each))
        for each in instance.threads.start_all(commit, [Start(version.hash, text) for text in "123"])
    )
    request = Request({"what": "script", "prompt": "one", "schema": {"type": "object", "required": ["said"]}})
    state = find(instance, root_of(instance, one.head.commit), request)
    call = ended(instance, begin(instance, one, state.thread, request), {"other": 1})
    ended(instance, one.head, "done", call.commit)
    ended(instance, other.head, "done", stranger.head.commit)
    ended(instance, stranger.head, "done", call.commit)
    found = uwf("verify", check=7).json["findings"]
    assert {(each["code"], each["thread"]) for each in found} >= {
        ("wrong-output", one.head.thread),
        ("wrong-parent", other.head.thread),
        ("wrong-call", stranger.head.thread),
    }


ASKS = """\
SAID = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}
descriptor = {"name": "asks", "description": "Asks.", "roles": {"all": {"description": "looks", "schema": SAID}}}

async def run(input, options):
    await options.agents.scripted(prompt="two", schema=SAID)
    yield {"role": "all", "content": "", "meta": {"said": "done"}}
"""


def test_another_thread_at_the_id_of_a_call_is_no_answer_and_is_told(
    uwf: Uwf, instance: Instance, asked: Asked, hermetic: Path
) -> None:
    compiled = compile_bundle(Path(write("asks.py", ASKS)), instance.config)
    version = instance.registry.put(compiled)
    one, other, last = (
        instance.threads.position(instance.threads.head(each))
        for each in instance.threads.start_all(
            Oid(hex=version.commit), [Start(version.hash, text) for text in "123"]
        )
    )
    said = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}

    def call(at: Position, prompt: str, output: object) -> Head:
        request = wanted(at, prompt)
        state = find(instance, root_of(instance, at.head.commit), request)
        return ended(instance, begin(instance, at, state.thread, request), output)

    def wanted(at: Position, prompt: str) -> Request:
        asks = {"what": "agent", "agent": "scripted", "prompt": prompt, "schema": said}
        return Request({**asks, "at": at.head.node})

    replayed, elsewhere = call(one, "one", "yes"), call(other, "two", "yes")
    root = root_of(instance, one.head.commit)
    squatters = []
    for squatter in (replayed, elsewhere, ended(instance, last.head, "yes")):
        state = find(instance, root, wanted(one, "two"))
        assert state.head is None and state.squatters == tuple(squatters)
        squatters.append(state.thread)
        assert instance.store.repository.create_refs({layout.THREADS + state.thread: squatter.commit})

    ben = Machine(uwf, hermetic / "ben")
    ben("remote", "add", "origin", instance.store.repository.path)
    refused = {each["ref"] for each in ben("pull", check=None).json["refused"]}
    assert refused == {layout.THREADS + each for each in squatters}

    uwf("workflow", "trust", "asks", "--yes")
    error = uwf("thread", "step", one.head.thread).err
    assert asked() == ["two"]
    assert [each in error for each in squatters] == [True] * 3 and "uwf thread rm" in error
    found = uwf("verify", check=7).json["findings"]
    assert {(each["code"], each["thread"]) for each in found} == {
        *(("wrong-call", each) for each in squatters[:2]),
        *(("wrong-name", each) for each in squatters),
    }


READS = """\
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
descriptor = {"name": "reads", "description": "Reads.", "roles": {"reader": {"description": "reads", "schema": CITY}}}

async def run(input, options):
    city = await options.extract(CITY, "Where is it?", "In Paris, they say.")
    await options.agents.scripted(prompt="two", schema={"type": "object", "required": ["said"]})
    yield {"role": "reader", "content": "", "meta": city}
"""


def test_what_a_call_cost_is_counted_once_however_often_its_step_is_tried(
    uwf: Uwf, config: Callable[[str], Path], server: ModelServer, root: Path
) -> None:
    models = (
        f"providers: {{local: {{baseUrl: '{server.openai_url}', apiKeyEnv: LOCAL_KEY}}}}\n"
        "models: {small: {provider: local, name: tiny}}\ndefaultModel: small\n"
    )
    asked = noting(config, models)
    (root / ".env").write_text("LOCAL_KEY=sk-secret-0123456789\n")
    server.play([says('{"city": "Paris"}', usage={"prompt_tokens": 30, "completion_tokens": 4})])
    uwf("workflow", "put", write("reads.py", READS))
    thread = uwf("thread", "start", "reads", "-p", "x").json["thread"]
    Path("broken").write_text("two")
    uwf("thread", "step", thread, check=6)
    Path("broken").unlink()
    uwf("thread", "step", thread)
    assert asked() == ["two", "two"] and len(server.asked) == 1
    for of in ((thread,), ()):
        total = uwf("stats", *of).json["total"]
        assert (total["input"], total["output"]) == (30, 4)
