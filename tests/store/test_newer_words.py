"""Words of nodes that this version doesn't know: a newer uwf wrote them. They are refused in one line, by all who read
them, and what stands beside them is read as ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import git
from conftest import Uwf
from forged_fan_outs import Forge

from uwf_git.ext.fleet.retry_policy import LATER, parse_fault, way_on
from uwf_git.ext.fleet.step_process import StepRunner, WorkerOptions
from uwf_git.format.failure_policy import FAILURE_POLICIES, FailurePolicy
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Attempt
from uwf_git.format.words import WORDS
from uwf_git.store.instance import Instance

UPGRADE = "a newer uwf wrote it: upgrade uwf-git"
POLICY = "'skip' at /graph/$START/0/fanOut/onFailure, which this uwf does not know"
STATUS = "'lapsed' at /branches/0/status, which this uwf does not know"
CAUSE = "'refused' at /cause, which this uwf does not know"
WORDS_OF = {"policy": "'skip' at /", "begun": POLICY, "status": STATUS, "cause": CAUSE}
COMMANDS = {
    "thread show": ("policy", "begun", "status", "cause"),
    "thread read": ("policy", "begun", "status", "cause"),
    "thread steps": ("policy",),
    "thread step": ("policy", "begun", "status"),
    "thread run": ("policy", "begun", "status"),
    "thread attempts": ("cause",),
}
"""The commands that read a thread, and the threads that they cannot read."""


class Newer(NamedTuple):
    """Threads of a store that a newer version wrote: at a fork with a policy, before such a fork, at a join with a
    status, with a failed attempt for a cause, and one without any of these."""

    policy: ThreadId
    begun: ThreadId
    status: ThreadId
    cause: ThreadId
    plain: ThreadId


@contextmanager
def newer_words(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setitem(FAILURE_POLICIES, "skip", FailurePolicy("skip", allows_failures=True))
        for kind, path, word in (
            ("Join", "/branches/*/status", "lapsed"),
            ("Attempt", "/cause", "refused"),
        ):
            patch.setitem(WORDS[kind], path, [*WORDS[kind][path], word])  # type: ignore[arg-type]
        yield


@pytest.fixture
def newer(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Newer:
    forge = Forge(instance)
    with newer_words(monkeypatch):
        policy, _ = forge.forked("onFailure: skip")
        begun = forge.start("onFailure: skip")
        status, _ = forge.ended()
        forge.join(status, lambda payload: payload["branches"][0].update(status="lapsed"))
        cause, plain = forge.start(), forge.start()
        head = forge.head(cause)
        attempt = Attempt(head.node, None, "fixer", "by-hand", "no luck", cause="refused")
        instance.attempts.record(head, attempt)
    return Newer(policy, begun, status, cause, plain)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_thread_with_an_unknown_word_is_refused_in_a_line_with_what_to_do(
    uwf: Uwf, newer: Newer, command: str
) -> None:
    agent = ("--agent", "uwf-rehearse") if command in ("thread step", "thread run") else ()
    for name in COMMANDS[command]:
        refused = uwf("--format", "text", *command.split(), getattr(newer, name), *agent, check=1).err
        (line,) = refused.splitlines()
        assert WORDS_OF[name] in line and UPGRADE in line
    assert uwf(*command.split(), newer.plain, *agent).code == 0


def test_the_lists_show_the_others_and_name_what_they_cannot_read(uwf: Uwf, newer: Newer) -> None:
    listed = {row["thread"]: row for row in uwf("thread", "list", "--all", check=7).json}
    assert {newer.plain: "idle", newer.begun: "idle", newer.cause: "corrupt"}.items() <= {
        thread: row["status"] for thread, row in listed.items()
    }.items()
    assert CAUSE in listed[newer.cause]["problem"] and UPGRADE in listed[newer.cause]["problem"]
    assert "'skip' at /onFailure" in listed[newer.policy]["problem"]
    (unread,) = uwf("inbox").json
    assert (unread["thread"], unread["group"], unread["commands"]) == (newer.cause, "failed", ["uwf doctor"])
    assert CAUSE in unread["problem"]
    (named,) = [row for row in uwf("workflow", "list", check=7).json if row.get("problem")]
    assert POLICY in named["problem"]
    assert newer.policy in {row["thread"] for row in uwf("stats", check=7).json["damaged"]}
    told = [row["message"] for row in uwf("doctor", check=None).json if row["status"] == "error"]
    assert told and all("which this uwf does not know" in message for message in told)


def test_verify_reports_each_word_at_its_thread(uwf: Uwf, newer: Newer) -> None:
    findings = uwf("verify", check=7).json["findings"]
    assert {finding["code"] for finding in findings} == {"unknown-word"}
    for name, told in {**WORDS_OF, "policy": POLICY}.items():
        thread = getattr(newer, name)
        assert any(told in finding["message"] for finding in findings if finding["thread"] == thread), name
    assert all(UPGRADE in finding["message"] for finding in findings)
    assert newer.plain not in {finding["thread"] for finding in findings}


def test_a_pull_leaves_it_there_and_takes_the_rest(uwf: Uwf, newer: Newer, tmp_path: Path) -> None:
    hub, other = tmp_path / "hub.git", tmp_path / "other"
    git("init", "-q", "--bare", hub)
    uwf("remote", "add", "hub", hub)
    uwf("push", "hub")
    uwf("--root", other, "init")
    uwf("--root", other, "remote", "add", "hub", hub)
    refused = uwf("--root", other, "pull", "hub", check=7).json["refused"]
    threads = {row["ref"].rpartition("/")[2] for row in refused}
    assert {newer.policy, newer.begun, newer.status, newer.cause} <= threads and newer.plain not in threads
    assert {finding["code"] for row in refused for finding in row["findings"]} == {"unknown-word"}
    assert {row["thread"] for row in uwf("--root", other, "thread", "list").json} == {
        newer.cause,
        newer.plain,
    }
    assert not uwf("--root", other, "verify").json["findings"]


def test_it_can_be_killed_and_removed(uwf: Uwf, newer: Newer) -> None:
    uwf("thread", "kill", newer.policy)
    uwf("thread", "rm", newer.policy, "--yes")
    assert newer.policy not in {row["thread"] for row in uwf("thread", "list", "--all", check=7).json}


def test_a_worker_of_a_fleet_leaves_the_step_to_a_newer_one_in_one_line(
    instance: Instance, newer: Newer
) -> None:
    told: list[Any] = []
    runner = StepRunner(WorkerOptions(), told.append)
    head = instance.threads.head(newer.begun)
    answer = runner.answer({"do": "step", "thread": newer.begun, "head": head.node})
    fault = parse_fault(answer["fault"])
    assert (
        fault.message.startswith("this worker is uwf ")
        and POLICY in fault.message
        and "\n" not in fault.message
    )
    assert (fault.hint, way_on(fault)) == (UPGRADE, LATER)
    assert [each["fault"] for each in told if "fault" in each] == [answer["fault"]]
