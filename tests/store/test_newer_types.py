"""Nodes of types, and records of kinds, that this version doesn't know: a newer uwf wrote them. Whoever reads such a
thread says so in one line, and what stands beside it is read as ever."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from cli_samples import PAIR, write
from commands import git
from conftest import Uwf

from uwf_git.engine.new_step import NewStep, record
from uwf_git.format import types
from uwf_git.format.builtin import META
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Detail, Step
from uwf_git.format.types import DETAIL, STEPNODE
from uwf_git.store.instance import Instance

UPGRADE = "a newer uwf wrote it: upgrade uwf-git"
TYPES = {"step": STEPNODE, "detail": DETAIL}


class Newer(NamedTuple):
    """Threads with a StepNode and with a Detail of a later type, with a record of a later kind, and with none."""

    step: ThreadId
    detail: ThreadId
    record: ThreadId
    plain: ThreadId


@pytest.fixture
def newer(uwf: Uwf, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Newer:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    threads = Newer(
        *(ThreadId(uwf("thread", "start", "pair", "-p", "Do it.").json["thread"]) for _ in range(4))
    )
    store = instance.store
    for kind in TYPES:
        schema = dict(store.get(TYPES[kind]).payload)
        schema["properties"] = {**schema["properties"], "mood": {"type": "string"}}
        used = TYPES | {kind: store.put(META, schema)}
        at = instance.threads.position(instance.threads.head(getattr(threads, kind)))
        role = at.history.workflow.roles["writer"]
        output = store.put(role.schema, {"text": "Done."})
        detail = Detail("Done.", context=at.history.head).payload()
        step = Step(
            at.history.start_hash,
            at.history.prev,
            "writer",
            output,
            store.put(used["detail"], detail),
            "uwf-exec",
        )
        with monkeypatch.context() as patch:
            patch.setitem(types._KINDS, kind, types._KINDS[kind] | {used[kind]})  # type: ignore[index]
            record(instance, at, NewStep(store.put(used["step"], step.payload()), step, ()))
    head = instance.threads.head(threads.record)
    place = ("--git-dir", instance.store.repository.path)
    message = f"a vote\n\nUwf-Vote: {head.node}\n"
    commit = git(*place, "commit-tree", f"{head.commit}^{{tree}}", "-p", head.commit, "-m", message).strip()
    git(*place, "update-ref", f"refs/uwf/threads/{threads.record}", commit)
    return threads


@pytest.mark.parametrize("command", ["thread show", "thread read", "thread step", "thread run"])
def test_such_a_thread_is_refused_in_a_line_with_what_to_do(uwf: Uwf, newer: Newer, command: str) -> None:
    agent = ("--agent", "uwf-rehearse") if command in ("thread step", "thread run") else ()
    for thread, reason in (
        (newer.step, "is a StepNode of a type which this uwf does not know"),
        (newer.record, "with Uwf-Vote, which this uwf does not know"),
    ):
        (line,) = uwf("--format", "text", *command.split(), thread, *agent, check=1).err.splitlines()
        assert reason in line and UPGRADE in line
    assert uwf(*command.split(), newer.plain, *agent).code == 0


def test_no_step_is_made_on_a_detail_that_is_not_understood(uwf: Uwf, newer: Newer) -> None:
    (line,) = uwf(
        "--format", "text", "thread", "step", newer.detail, "--agent", "uwf-rehearse", check=1
    ).err.splitlines()
    assert "is a Detail of a type which this uwf does not know" in line and UPGRADE in line


def test_the_list_shows_the_others_and_says_what_it_cannot_read(uwf: Uwf, newer: Newer) -> None:
    listed = {row["thread"]: row for row in uwf("thread", "list", "--all", check=7).json}
    assert listed[newer.plain]["status"] == "idle"
    assert UPGRADE in listed[newer.record]["problem"] and "Uwf-Vote" in listed[newer.record]["problem"]


def test_verify_names_what_it_did_not_check(uwf: Uwf, newer: Newer) -> None:
    findings = uwf("verify", check=7).json["findings"]
    codes = {finding["thread"]: (finding["code"], finding["message"]) for finding in findings}
    assert newer.plain not in codes
    for thread in (newer.step, newer.detail, newer.record):
        code, message = codes[thread]
        assert code == "unknown-word" and UPGRADE in message


def test_a_pull_leaves_it_there_and_takes_the_rest(
    uwf: Uwf, root: Path, newer: Newer, tmp_path: Path
) -> None:
    hub, other = tmp_path / "hub.git", tmp_path / "other"
    git("init", "-q", "--bare", hub)
    git("--git-dir", root / "store.git", "push", "-q", hub, "refs/uwf/*:refs/uwf/*")
    uwf("--root", other, "init")
    uwf("--root", other, "remote", "add", "hub", hub)
    refused = uwf("--root", other, "pull", "hub", check=7).json["refused"]
    threads = {row["ref"].rpartition("/")[2] for row in refused}
    assert threads == {newer.step, newer.detail, newer.record}
    assert {finding["code"] for row in refused for finding in row["findings"]} == {"unknown-word"}
    assert {row["thread"] for row in uwf("--root", other, "thread", "list").json} == {newer.plain}
