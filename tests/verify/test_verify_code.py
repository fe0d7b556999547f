"""Verification of the code that steps name, where a project on this machine has it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import git
from conftest import Uwf
from forged import Forger
from two_machines import RELAY
from workflows import start_thread

from uwf_git.base.errors import AgentFailed, Invalid
from uwf_git.engine.step import step
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.format.types import DETAIL, STEPNODE
from uwf_git.store.instance import Instance
from uwf_git.verify.code import RecordedCode, check_code
from uwf_git.workspaces.choice import assign
from uwf_git.workspaces.options import parse_option

WRITES = """uwf-exec sh -c 'echo "$UWF_ROLE" >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""
ABSENT = "0" * 39 + "1"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    git("-C", path, "commit", "-q", "--allow-empty", "-m", "first")
    return path


@pytest.fixture
def thread(instance: Instance, project: Path) -> ThreadId:
    """A thread of two steps with code, and a failed attempt with some."""
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    step(instance, thread, WRITES)
    with pytest.raises(AgentFailed):
        step(instance, thread, "sh -c 'echo half > half.txt; exit 3'")
    step(instance, thread, WRITES)
    return thread


def forge(instance: Instance, thread: ThreadId, **code: Any) -> str:
    """Let the last step of an ended thread name other code, in everything but its page. Returns its StepNode."""
    forger = Forger(instance.location.git_dir)
    head = forger("rev-parse", f"refs/uwf/archive/{thread}^{{commit}}")
    root = forger.folder(head)
    nodes = root["steps"][max(root["steps"])]["nodes"]
    old = {name.removesuffix(".json"): json.loads(forger.read(blob)) for name, blob in nodes.items()}
    (node,) = (name for name, each in old.items() if each["type"] == STEPNODE)
    payload = old[node]["payload"]
    detail = old[payload["detail"]]["payload"]
    made = forger.node(DETAIL, {**detail, "code": {**detail["code"], **code}})
    new = forger.node(STEPNODE, {**payload, "detail": made})
    for gone in (node, payload["detail"]):
        del nodes[f"{gone}.json"]
    nodes |= {f"{each}.json": forger.blob(forger.nodes[each]) for each in (made, new)}
    text = (forger("log", "-1", "--format=%B", head) + "\n").replace(node, new)
    if isinstance(commit := code.get("commit", ""), str) and commit:
        text = text.replace(detail["code"]["commit"], " ".join(commit.split()))
    forger.point(f"refs/uwf/threads/{thread}", forger.amended(head, forger.tree(root), text=text))
    forger("update-ref", "-d", f"refs/uwf/archive/{thread}")
    return new


def named(found: Any, code: str) -> list[Any]:
    return [each for each in found if each["code"] == code]


def test_code_that_is_here_is_as_it_is_named(uwf: Uwf, thread: ThreadId) -> None:
    value = uwf("verify").json
    assert (value["findings"], value["notes"]) == ([], [])


def test_a_commit_with_another_tree_than_the_step_names_is_a_finding(
    uwf: Uwf, instance: Instance, thread: ThreadId, project: Path
) -> None:
    commit = git("-C", project, "rev-parse", f"uwf/work/{thread}")
    tree, other = (git("-C", project, "rev-parse", f"{each}^{{tree}}") for each in (commit, "main"))
    node = forge(instance, thread, tree=other)
    for words in (["verify"], ["verify", thread]):
        (found,) = named(uwf(*words, check=7).json["findings"], "wrong-code")
        assert (found["thread"], found["step"], found["ref"]) == (thread, node, f"refs/uwf/threads/{thread}")
        assert found["message"] == (
            f"step {node} names tree {other} as its code, but commit {commit} has tree {tree}"
        )
        assert git("--git-dir", instance.location.git_dir, "cat-file", "-t", found["object"]) == "commit"


def test_what_is_no_commit_is_no_code(uwf: Uwf, instance: Instance, thread: ThreadId, project: Path) -> None:
    tree = git("-C", project, "rev-parse", "main^{tree}")
    forge(instance, thread, commit=tree, tree=tree)
    (found,) = named(uwf("verify", check=7).json["findings"], "wrong-code")
    assert found["message"].endswith(f"names {tree} as the commit of its code, which is a tree")


def test_a_base_of_another_history_is_no_fault_and_one_that_is_no_commit_is(
    uwf: Uwf, instance: Instance, thread: ThreadId, project: Path
) -> None:
    commit, tree = (git("-C", project, "rev-parse", each) for each in ("main", "main^{tree}"))
    own = Revision(commit, tree, commit)
    other = git("-C", project, "commit-tree", tree, "-m", "another root")

    def wrong(code: Revision) -> list[str]:
        record = RecordedCode("step", Hash("0" * 13), code, ABSENT, thread, "refs/uwf/threads/x")
        return [each.message for each in check_code([record], [project / ".git"]).findings]

    assert wrong(own) == wrong(own._replace(base=other)) == wrong(own._replace(base=ABSENT)) == []
    (message,) = wrong(own._replace(base=tree))
    assert message.endswith(f"names {tree} as the base of its code, which is a tree")


def test_code_that_is_not_here_is_a_fault_only_if_its_project_is(
    uwf: Uwf, thread: ThreadId, project: Path
) -> None:
    away = project.with_name("away")
    project.rename(away)
    value = uwf("verify").json
    (note,) = value["notes"]
    assert value["findings"] == [] and (note["code"], note["thread"]) == ("code-elsewhere", thread)
    assert note["message"] == "the code of 2 steps and 1 attempt is not here: not checked"
    shutil.rmtree(away / ".git/objects")
    away.rename(project)
    assert [each["code"] for each in uwf("verify", check=7).json["findings"]] == ["lost-code"] * 3


def test_git_is_started_once_for_a_project_and_never_for_fetched_threads(
    uwf: Uwf, instance: Instance, thread: ThreadId, project: Path, tmp_path: Path
) -> None:
    calls, program = tmp_path / "calls", tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    remote = tmp_path / "remote.git"
    git("init", "-q", "--bare", remote)
    uwf("remote", "add", "origin", remote)
    uwf("push", "origin")
    uwf("verify", env=env)
    started = [line for line in calls.read_text().splitlines() if f"--git-dir={project}" in line]
    assert len(started) == 1 and " cat-file " in started[0]
    calls.unlink()
    assert uwf("verify", "--remote", "origin", env=env).json["notes"] == []
    assert not calls.exists() or str(project) not in calls.read_text()


HOSTILE = (
    *({"commit": "é" * 40}, {"commit": "HEAD\nHEAD"}, {"commit": "--output=x"}, {"commit": 7}),
    *({"tree": "HEAD"}, {"base": "`\n# <b>x</b>"}, {"x": "y"}, {"remote": "a\nb"}),
)


@pytest.mark.parametrize("code", HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
@pytest.mark.sample(4)
def test_code_that_breaks_its_type_is_a_finding(
    uwf: Uwf, instance: Instance, thread: ThreadId, code: dict[str, Any]
) -> None:
    node = forge(instance, thread, **code)
    found = uwf("verify", check=7).json["findings"]
    (one,) = named(found, "breaks-schema")
    assert f"/code{'' if 'x' in code else '/' + next(iter(code))}" in one["message"]
    assert (one["thread"], one["step"]) == (thread, node)


@pytest.mark.parametrize("field", ["commit", "tree", "base"])
def test_only_whole_object_ids_are_given_to_git(project: Path, tmp_path: Path, field: str) -> None:
    commit, tree = (git("-C", project, "rev-parse", each) for each in ("main", "main^{tree}"))
    own = Revision(commit, tree, commit)
    texts = (
        "--output=x",
        "HEAD",
        commit[:12],
        commit.upper(),
        f"{commit}\n",
        f"{commit}\nHEAD",
        "é" * 40,
        "",
    )
    for text in texts:
        code = own._replace(**{field: text})
        record = RecordedCode("attempt", Hash("0" * 13), code, ABSENT, ThreadId("0" * 26), "")
        (found,) = check_code([record], [tmp_path / "no project"]).findings
        assert (found.code, found.step) == ("wrong-code", None)
        assert f"as the {field} of its code, which is not an object id" in found.message


def test_a_branch_called_like_an_object_id_is_not_one(project: Path) -> None:
    commit, tree = (git("-C", project, "rev-parse", each) for each in ("main", "main^{tree}"))
    named_so = "ab" * 32 if len(commit) == 40 else "ab" * 20
    git("-C", project, "update-ref", f"refs/heads/{named_so}", commit)
    record = RecordedCode(
        "step", Hash("0" * 13), Revision(named_so, ABSENT, tree), ABSENT, ThreadId("0" * 26), ""
    )
    found = check_code([record], [project / ".git"])
    assert found.findings == [] and [each.code for each in found.notes] == ["code-elsewhere"]


def test_nothing_but_an_id_is_code(instance: Instance, thread: ThreadId) -> None:
    last = instance.threads.history(instance.threads.head(thread)).steps[-1]
    payload = instance.store.get(last.detail).payload
    for text in ("--output=x", "HEAD", "A" * 40, "a" * 41, "a" * 40 + "\n"):
        for name in ("commit", "tree", "base", "root"):
            with pytest.raises(Invalid, match=name):
                instance.store.put(DETAIL, {**payload, "code": {**payload["code"], name: text}})
    for remote in ("a\nb", "", "x" * 1001, "a b"):
        with pytest.raises(Invalid, match="remote"):
            instance.store.put(DETAIL, {**payload, "code": {**payload["code"], "remote": remote}})
