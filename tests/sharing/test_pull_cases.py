"""What a pull can find, case by case, in the order and with the numbers of docs/reference/pull-cases.md and
`uwf_git.sync.reconcile`: two machines, and a bare repository between them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import commands
import git_servers
import pytest
from commands import loose
from conftest import REPOSITORY, Begin, Uwf
from two_machines import Machine, begun

from uwf_git.sync.reconcile import Case

LOOP = """\
name: loop
description: Goes on until it is told to stop.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema:
      type: object
      properties: {text: {type: string}, status: {enum: [more, done]}}
      required: [text, status]
graph:
  $START: [{role: worker}]
  worker: {more: {role: worker}, done: {role: $END}}
"""


class Pair:
    """Ada's and Bob's machines, each with the shared repository as origin, and a thread both have."""

    def __init__(self, uwf: Uwf, folder: Path, lasting: Path) -> None:
        self.shared = folder / "shared.git"
        self.ada, self.bob = Machine(uwf, folder / "ada"), Machine(uwf, folder / "bob")
        self.thread = begun(folder, lasting / "pair", self._begin)

    def _begin(self) -> str:
        subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(self.shared)], check=True)
        self.ada.registers(LOOP)
        thread = self.ada.starts(workflow="loop")
        self.ada("remote", "add", "origin", self.shared)
        self.works(self.ada, "first", thread=thread)
        self.ada("push")
        self.bob("clone", self.shared)
        return thread

    def works(self, who: Machine, text: str, status: str = "more", thread: str | None = None) -> str:
        """A step whose output is known; the new head."""
        agent = f"""uwf-exec echo '{{"text": "{text}", "status": "{status}"}}'"""
        return str(who("thread", "step", thread or self.thread, "--agent", agent).json["head"])

    def head(self, who: Machine, thread: str | None = None) -> str:
        return str(who("thread", "show", thread or self.thread).json["head"])

    def git(self, *args: str, at: Path | None = None, **more: Any) -> str:
        return commands.git("--git-dir", at or self.shared, *args, **more)

    def pull(self, who: Machine, **more: Any) -> dict[str, Any]:
        """What a pull says of the thread; {} where it says nothing."""
        adopted = who("pull", **more).json["adopted"]
        of_threads = [
            each for each in adopted if each.get("thread") == self.thread and "attempts" not in each["ref"]
        ]
        return dict(of_threads[-1]) if of_threads else {}

    def agree(self) -> None:
        """After everybody has exchanged everything, both list the same threads at the same steps."""
        for _ in range(2):
            for who in (self.ada, self.bob):
                who("pull")
                who("push")
            if self.ada.refs() == self.bob.refs():
                break
        else:
            self.ada("pull")
        assert self.ada.heads() == self.bob.heads()
        for who in (self.ada, self.bob):
            who("verify", "--all")


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    return Pair(uwf, tmp_path, lasting)


def numbers_of(text: str, row: str) -> dict[int, str]:
    return {int(number): name for number, name in re.findall(row, text, flags=re.MULTILINE)}


def test_the_cases_have_the_same_numbers_in_the_code_and_in_the_documentation() -> None:
    documented = numbers_of(
        (REPOSITORY / "docs/reference/pull-cases.md").read_text(), r"^\| (\d+) \| `([a-z-]+)` \|"
    )
    assert documented == {case.value: case.label for case in Case}


def test_1_a_thread_that_is_unknown_here_is_made_here(pair: Pair) -> None:
    other = pair.ada.starts("another", workflow="loop")
    pair.ada("push")
    found = pair.bob("pull").json["adopted"]
    assert [(each["thread"], each["case"]) for each in found] == [(other, "unknown")]
    assert pair.head(pair.bob, other) == pair.head(pair.ada, other)


def test_2_equal_threads_stay_and_nothing_is_fetched(pair: Pair) -> None:
    before = pair.bob.refs()
    assert pair.bob("pull").json == {"remote": "origin", "adopted": [], "refused": []}
    assert pair.bob.refs() == before


def test_3_a_thread_that_is_behind_is_fast_forwarded(pair: Pair) -> None:
    head = pair.works(pair.ada, "second")
    pair.ada("push")
    assert pair.pull(pair.bob)["case"] == "behind"
    assert pair.head(pair.bob) == head


def test_4_a_thread_that_is_ahead_stays_and_a_push_takes_it_there(pair: Pair) -> None:
    head = pair.works(pair.bob, "second")
    assert pair.pull(pair.bob)["case"] == "ahead"
    assert pair.head(pair.bob) == head
    pair.bob("push")
    assert pair.pull(pair.ada)["case"] == "behind"
    assert pair.head(pair.ada) == head


def test_5_of_a_divergence_both_sides_are_kept_and_linked(pair: Pair) -> None:
    shared = pair.head(pair.ada)
    theirs, ours = pair.works(pair.ada, "by ada"), pair.works(pair.bob, "by bob")
    pair.ada("push")
    lost = pair.bob("push", check=4)
    assert "Ada Example" in lost.error["message"] and "0002 worker: more" in lost.error["message"]
    assert "uwf pull origin" in lost.error["hint"]
    found = pair.pull(pair.bob)
    fork = found["fork"]["thread"]
    assert (found["case"], found["fork"]["steps"], found["fork"]["side"]) == ("diverged", 1, "ours")
    assert (pair.head(pair.bob), pair.head(pair.bob, fork)) == (theirs, ours)
    assert pair.bob("thread", "show", fork).json["divergedFrom"] == {"thread": pair.thread, "at": shared}
    assert pair.bob("thread", "show", pair.thread).json["otherSides"] == [fork]
    pair.bob("push")
    pair.ada("pull")
    assert (pair.head(pair.ada), pair.head(pair.ada, fork)) == (theirs, ours)
    assert pair.ada("thread", "show", pair.thread).json["otherSides"] == [fork]
    pair.agree()
    for who in (pair.ada, pair.bob):
        who.is_sound()


def test_5_a_side_that_goes_on_after_it_was_parted_is_no_second_divergence(pair: Pair) -> None:
    pair.works(pair.ada, "by ada")
    pair.works(pair.bob, "by bob")
    pair.ada("push")
    fork = pair.pull(pair.bob)["fork"]["thread"]
    head = pair.works(pair.bob, "by bob again", thread=fork)
    pair.bob("push")
    pair.ada("pull")
    assert pair.head(pair.ada, fork) == head
    assert set(pair.ada.heads()) == {pair.thread, fork}


def test_6_a_thread_that_ended_there_ends_here(pair: Pair) -> None:
    pair.ada("thread", "kill", pair.thread, "--reason", "superseded")
    pair.ada("push")
    assert pair.pull(pair.bob)["case"] == "ended-there"
    shown = pair.bob("thread", "show", pair.thread).json
    assert (shown["status"], shown["reason"]) == ("killed", "superseded")
    assert f"refs/uwf/threads/{pair.thread}" not in {**pair.bob.refs(), **pair.ada.refs()}


def test_7_a_thread_that_ended_there_with_steps_that_are_missing_here_brings_them(pair: Pair) -> None:
    head = pair.works(pair.ada, "last", "done")
    pair.ada("push")
    assert pair.pull(pair.bob)["case"] == "ended-there-behind"
    assert (pair.bob.status(pair.thread), pair.head(pair.bob)) == ("completed", head)


@pytest.mark.parametrize("more", [[], ["by ada"]])
def test_8_steps_that_only_we_have_outlive_the_end_there(pair: Pair, more: list[str]) -> None:
    for text in more:
        pair.works(pair.ada, text)
    pair.ada("thread", "kill", pair.thread)
    ours = pair.works(pair.bob, "by bob")
    pair.ada("push")
    found = pair.pull(pair.bob)
    assert (found["case"], found["fork"]["side"]) == ("ended-there-ahead", "ours")
    assert pair.bob.status(pair.thread) == "killed"
    assert pair.head(pair.bob, found["fork"]["thread"]) == ours
    assert pair.bob.status(found["fork"]["thread"]) == "idle"
    pair.agree()


def test_9_what_ended_here_stays_ended_and_a_push_ends_it_there(pair: Pair) -> None:
    pair.bob("thread", "kill", pair.thread)
    assert pair.pull(pair.bob)["case"] == "ended-here"
    pushed = pair.bob("push").json
    assert pushed["deleted"] == [f"refs/uwf/threads/{pair.thread}"]
    assert pair.pull(pair.ada)["case"] == "ended-there"


def test_10_a_killed_thread_does_not_come_back_to_life_and_their_steps_are_kept(pair: Pair) -> None:
    theirs = pair.works(pair.ada, "by ada")
    pair.ada("push")
    pair.bob("thread", "kill", pair.thread, "--reason", "enough")
    found = pair.pull(pair.bob)
    fork = found["fork"]["thread"]
    assert (found["case"], found["fork"]["side"]) == ("ended-here-behind", "theirs")
    assert pair.bob.status(pair.thread) == "killed"
    assert pair.head(pair.bob, fork) == theirs
    pair.bob("push")
    # Ada, whose steps they are, comes to the same thread of the same id.
    assert pair.pull(pair.ada)["fork"]["thread"] == fork
    assert set(pair.ada.heads()) == {pair.thread, fork}
    pair.agree()


def test_10_their_steps_are_kept_once_though_the_thread_that_had_the_first_of_them_was_removed(
    pair: Pair,
) -> None:
    pair.ada("thread", "kill", pair.thread)
    steps = [pair.works(pair.bob, "by bob, the first")]
    pair.bob("push")
    (first,) = pair.ada("pull").json["adopted"]
    own = pair.works(pair.ada, "by ada on it", thread=first["fork"]["thread"])
    steps += [pair.works(pair.bob, "by bob, the second")]
    pair.bob("push")
    (second,) = pair.ada("pull").json["adopted"]
    assert second["fork"]["thread"] != first["fork"]["thread"]
    pair.ada("thread", "rm", first["fork"]["thread"], "--yes")
    assert "fork" not in pair.ada("pull").json["adopted"][0]
    steps += [pair.works(pair.bob, "by bob, the third")]
    pair.bob("push")
    assert pair.ada("pull").json["adopted"][0]["fork"]["thread"] == second["fork"]["thread"]
    assert [row["step"] for row in pair.ada("thread", "steps", second["fork"]["thread"]).json][1:] == steps
    pair.ada("thread", "restore", first["fork"]["thread"])
    assert pair.head(pair.ada, first["fork"]["thread"]) == own


def test_10_their_steps_stay_away_where_the_thread_that_they_became_was_removed(pair: Pair) -> None:
    pair.ada("thread", "kill", pair.thread)
    pair.works(pair.bob, "by bob, the first")
    pair.bob("push")
    side = pair.pull(pair.ada)["fork"]["thread"]
    pair.ada("thread", "kill", side, "--reason", "nobody wants it")
    pair.ada("thread", "rm", side, "--yes")
    for _ in range(2):
        assert "fork" not in pair.pull(pair.ada)
        pair.works(pair.bob, "by bob, again")
        pair.bob("push")
    assert pair.ada.statuses() == {pair.thread: "killed"}
    assert pair.ada("thread", "restore", side).json == {"thread": side, "restored": True, "status": "killed"}
    assert pair.ada.statuses() == {pair.thread: "killed", side: "killed"}


def test_11_of_two_ends_the_one_that_was_there_first_counts(pair: Pair) -> None:
    pair.ada("thread", "kill", pair.thread, "--reason", "by ada")
    pair.bob("thread", "kill", pair.thread, "--reason", "by bob")
    pair.ada("push")
    assert pair.bob("push", check=4).error["code"] == "head_moved"
    assert pair.pull(pair.bob)["case"] == "ended-twice"
    assert pair.bob("thread", "show", pair.thread).json["reason"] == "by ada"
    pair.agree()


def test_11_of_two_ends_after_different_steps_none_is_lost(pair: Pair) -> None:
    theirs, ours = pair.works(pair.ada, "by ada"), pair.works(pair.bob, "by bob")
    pair.ada("thread", "kill", pair.thread, "--reason", "by ada")
    pair.bob("thread", "kill", pair.thread, "--reason", "by bob")
    pair.ada("push")
    found = pair.pull(pair.bob)
    fork = found["fork"]["thread"]
    assert (found["case"], pair.head(pair.bob), pair.head(pair.bob, fork)) == ("ended-twice", theirs, ours)
    assert pair.bob("thread", "show", fork).json["reason"] == "by bob"
    pair.agree()


def test_12_what_was_deleted_there_stays_here_and_comes_back_only_by_name(pair: Pair) -> None:
    pair.git("update-ref", "-d", f"refs/uwf/threads/{pair.thread}")
    assert pair.pull(pair.bob)["case"] == "deleted-there"
    assert pair.bob.status(pair.thread) == "idle"
    assert pair.bob("push").json["pushed"] == []
    assert pair.pull(pair.bob) == {}
    pair.bob("push", "origin", pair.thread)
    assert pair.git("rev-parse", f"refs/uwf/threads/{pair.thread}")
    assert pair.bob("push").json["pushed"] == []


def test_13_of_two_histories_of_a_workflow_theirs_has_the_name_and_ours_becomes_a_proposal(
    pair: Pair,
) -> None:
    pair.ada.registers(LOOP.replace("Goes on", "Ada's goes on"))
    pair.bob.registers(LOOP.replace("Goes on", "Bob's goes on"))
    pair.ada("push")
    assert "workflow loop was moved" in pair.bob("push", check=4).error["message"]
    found = next(each for each in pair.bob("pull").json["adopted"] if each["case"] == "two-histories")
    assert pair.bob("workflow", "list").json[0]["description"].startswith("Ada's")
    proposal = f"refs/uwf/proposals/{found['proposal']}"
    assert "Bob's" in pair.git("show", f"{proposal}:workflow.yaml", at=pair.bob.store)
    pair.agree()


def test_13_the_same_definition_registered_on_both_sides_is_no_conflict(
    uwf: Uwf, tmp_path: Path, pair: Pair
) -> None:
    carol = Machine(uwf, tmp_path / "carol")
    carol.registers(LOOP)
    carol("remote", "add", "origin", pair.shared)
    # Within the same second it is even the same commit, and nothing is adopted.
    for found in (each for each in carol("pull").json["adopted"] if "workflows" in each["ref"]):
        assert found["case"] in ("two-histories", "behind", "unknown") and "proposal" not in found
    assert carol("workflow", "list").json[0]["hash"] == pair.ada("workflow", "list").json[0]["hash"]
    assert carol("push").json["refused"] == []


def test_14_a_node_with_two_timestamps_is_one_node(pair: Pair) -> None:
    # The same text put on both machines, at different times: one hash, two blobs.
    node = {who: who("cas", "put", "Text", '"the same"').json["hash"] for who in (pair.ada, pair.bob)}
    assert node[pair.ada] == node[pair.bob]
    pair.ada("push")
    assert pair.bob("pull").json["refused"] == []
    assert pair.bob("cas", "get", node[pair.bob]).json["payload"] == "the same"
    pair.agree()


def same_step_twice(pair: Pair) -> None:
    """Ada's step made once more on Bob's machine: the same StepNode, another commit."""
    pair.works(pair.ada, "both")
    ref = f"refs/uwf/threads/{pair.thread}"
    commit = pair.git("rev-parse", ref, at=pair.ada.store)
    pair.git("fetch", "-q", str(pair.ada.store), f"{commit}", at=pair.bob.store)
    environ = {
        **{"GIT_COMMITTER_NAME": "Bob Example", "GIT_COMMITTER_EMAIL": "bob@example.invalid"},
        **{"GIT_AUTHOR_NAME": "uwf-rehearse", "GIT_AUTHOR_EMAIL": "uwf-rehearse@agents.invalid"},
        "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z",
    }
    said = pair.git("log", "-1", "--format=%B", commit, at=pair.ada.store)
    made = ("commit-tree", f"{commit}^{{tree}}", "-p", f"{commit}^", "-F", "-")
    twin = pair.git(*made, at=pair.bob.store, data=said + "\n", env=environ)
    assert twin != commit
    pair.git("update-ref", ref, twin, at=pair.bob.store)


def test_15_the_same_step_under_two_commits_is_no_divergence(pair: Pair) -> None:
    same_step_twice(pair)
    pair.ada("push")
    assert pair.pull(pair.bob)["case"] == "two-commits"
    assert pair.ada.refs() == pair.bob.refs()
    assert set(pair.bob.heads()) == {pair.thread}


def test_15_steps_after_one_that_has_two_commits_are_put_on_theirs(pair: Pair) -> None:
    same_step_twice(pair)
    head = pair.works(pair.bob, "by bob")
    pair.ada("push")
    assert pair.pull(pair.bob)["case"] == "two-commits"
    assert pair.head(pair.bob) == head
    pair.bob("push")
    assert pair.pull(pair.ada)["case"] == "behind"
    assert pair.ada.refs() == pair.bob.refs()
    pair.agree()


def test_16_what_is_invalid_is_refused_by_name_and_everything_else_taken_over(pair: Pair) -> None:
    second = pair.ada.starts("another", workflow="loop")
    head = pair.works(pair.ada, "second")
    pair.ada("push")
    ref = f"refs/uwf/threads/{second}"
    tree = pair.git("rev-parse", f"{ref}^{{tree}}")
    pair.git("update-ref", ref, tree)
    pulled = pair.bob("pull", check=7)
    assert second in pulled.error["message"]
    assert [each["ref"] for each in pulled.json["refused"]] == [ref]
    assert pair.head(pair.bob) == head
    assert set(pair.bob.heads()) == {pair.thread}
    assert second in str(pair.bob("verify", "--remote", "origin", check=7).json["findings"])


def test_another_thread_under_the_same_id_is_refused(pair: Pair) -> None:
    other = pair.ada.starts("another", workflow="loop")
    commit = pair.git("rev-parse", f"refs/uwf/threads/{other}", at=pair.ada.store)
    target = f"{commit}:refs/uwf/threads/{pair.thread}"
    pair.git("push", "-q", "--force", str(pair.shared), target, at=pair.ada.store)
    head = pair.head(pair.bob)
    refused = pair.bob("pull", check=7).error
    assert "its start is that of thread" in refused["message"] and "reject-rewrite" in refused["hint"]
    pair.bob("remote", "rm", "origin")
    pair.bob("remote", "add", "origin", pair.shared)  # where nothing was seen yet
    pulled = pair.bob("pull", check=7)
    assert pulled.json["refused"][0]["ref"] == f"refs/uwf/threads/{pair.thread}"
    assert pair.head(pair.bob) == head


def test_steps_that_somebody_took_after_the_end_are_kept(pair: Pair) -> None:
    # A server that refuses deletions, and Ada who did not know of the end.
    hook = pair.shared / "hooks/update"
    hook.write_text("#!/bin/sh\ncase $3 in *[!0]*) ;; *) echo nothing is deleted here >&2; exit 1 ;; esac\n")
    hook.chmod(0o755)
    pair.bob("thread", "kill", pair.thread)
    said = pair.bob("push").json["refused"]
    assert [(each["ref"], each["deletion"]) for each in said] == [(f"refs/uwf/threads/{pair.thread}", True)]
    head = pair.works(pair.ada, "by ada")
    assert "killed" in pair.ada("push", check=4).error["message"]
    found = pair.pull(pair.bob)
    assert (found["case"], found["fork"]["side"]) == ("ended-here-behind", "theirs")
    assert pair.bob.status(pair.thread) == "killed"
    assert pair.pull(pair.bob)["case"] == "equal"
    assert pair.pull(pair.ada)["fork"]["side"] == "ours"
    assert pair.head(pair.bob, found["fork"]["thread"]) == head


def reachable(pair: Pair, node: str, at: Path) -> bool:
    return node in pair.git("log", "--all", "--format=%B", at=at)


def test_a_push_deletes_nothing_that_only_the_deleted_ref_kept(pair: Pair) -> None:
    # Ada's push is refused, for the thread has ended there already; Bob's steps hang on its active ref.
    pair.ada("thread", "kill", pair.thread, "--reason", "by ada")
    heads = [pair.works(pair.bob, text) for text in ("one", "two")]
    pair.bob("push")
    pair.ada("push", check=None)
    pair.bob("thread", "kill", pair.thread, "--reason", "by bob")
    pair.bob("push", check=None)
    assert all(reachable(pair, head, pair.shared) for head in heads)
    pair.agree()
    for who in (pair.ada, pair.bob):
        assert all(reachable(pair, head, who.store) for head in heads)


def test_a_pull_that_was_killed_before_its_first_ref_makes_the_next_push_lose_nothing(
    pair: Pair, tmp_path: Path
) -> None:
    head = pair.works(pair.bob, "by bob")
    pair.bob("push")
    pair.ada("thread", "kill", pair.thread)
    (tmp_path / "fault").mkdir()
    (tmp_path / "fault/sitecustomize.py").write_text(
        "import os\nfrom uwf_git.store.threads import Threads\nThreads.part = lambda *_: os._exit(9)\n"
    )
    pair.ada("pull", check=9, env={"PYTHONPATH": str(tmp_path / "fault")})
    pair.ada("push")
    assert reachable(pair, head, pair.shared)
    pair.agree()
    assert reachable(pair, head, pair.ada.store)


def test_an_end_after_more_steps_than_the_folded_one_had_is_kept(pair: Pair) -> None:
    pair.ada("thread", "kill", pair.thread)
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    head = pair.works(pair.bob, "by bob")
    pair.bob("thread", "kill", pair.thread)
    pair.bob("push", check=None)
    found = pair.pull(pair.ada)
    assert found["case"] == "ended-twice"
    assert pair.head(pair.ada, found["fork"]["thread"]) == head
    pair.ada("push")
    assert reachable(pair, head, pair.shared)
    # Bob's end was on the remote and is replaced by one that the fold had before: he is asked.
    [told] = pair.bob("pull", check=12).json["rewritten"]
    pair.bob("remote", "accept-rewrite", told["ref"].removeprefix("refs/uwf/"))
    pair.agree()


def test_a_pull_before_the_push_of_a_fold_leaves_what_is_folded_in_the_fold(pair: Pair) -> None:
    pair.works(pair.ada, "by ada")
    pair.ada("push")
    pair.works(pair.bob, "by bob")
    fork = pair.pull(pair.bob)["fork"]["thread"]
    pair.bob("thread", "step", fork, "--agent", "false", check=6)
    pair.bob("thread", "kill", fork)
    pair.bob("push")
    assert {f"refs/uwf/{kind}/{fork}" for kind in ("archive", "attempts", "forks")} <= pair.bob.refs().keys()
    pair.bob("gc", "--fold-before", "2100-01-01")
    folded = pair.bob.refs()
    assert pair.bob("thread", "list", "--format", "text").err == ""
    pair.bob("pull")
    assert pair.bob.refs() == folded and not any(name.endswith(fork) for name in folded)
    pair.bob("push")
    assert fork not in pair.git("for-each-ref")


def test_two_folds_of_a_thread_with_different_ends_keep_both(pair: Pair) -> None:
    heads = [pair.works(pair.ada, "by ada"), pair.works(pair.bob, "by bob")]
    for who in (pair.ada, pair.bob):
        who("thread", "kill", pair.thread)
        who("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    pair.bob("push", check=None)
    pair.agree()
    for who in (pair.ada, pair.bob):
        assert set(heads) <= set(who.heads().values())


def test_a_folded_thread_that_still_has_its_active_ref_there_can_be_pulled_when_its_tag_is_gone(
    pair: Pair,
) -> None:
    pair.ada("thread", "kill", pair.thread)
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.git("reflog", "expire", "--expire=now", "--all", at=pair.ada.store)
    pair.git("gc", "-q", "--prune=now", at=pair.ada.store)
    head = pair.works(pair.bob, "by bob")
    pair.bob("push")
    found = pair.pull(pair.ada)
    assert pair.head(pair.ada, found["fork"]["thread"]) == head
    pair.ada("push")
    assert reachable(pair, head, pair.shared)


def test_a_kill_that_wins_against_a_shared_step_is_told_with_the_thread_that_keeps_the_step(
    pair: Pair, begin: Begin, tmp_path: Path
) -> None:
    script, begun, killed = (tmp_path / name for name in ("killed.sh", "begun", "killed"))
    answer = '{"text": "bob", "status": "more"}'
    wait = f"until test -e {killed}; do sleep 0.05; done"
    script.write_text(f"echo begun >{begun}; {wait}; echo '{answer}'\n")
    step = ("thread", "step", pair.thread, "--remote", "origin", "--agent", f"uwf-exec sh {script}")
    stepping = begin(*step, env=pair.bob.environment)
    commands.wait_for(begun)
    pair.ada("thread", "kill", pair.thread)
    pair.ada("push")
    killed.touch()
    _, errors = stepping.communicate(timeout=60)
    assert stepping.returncode == 4, errors
    message = json.loads(errors.splitlines()[-1])["error"]["message"]
    fork = re.search(r"kept as thread (\w{26})", message)
    assert fork and "killed" in message
    assert pair.bob.status(pair.thread) == "killed"
    assert pair.bob.status(fork.group(1)) == "idle"
    pair.agree()


def test_what_was_deleted_there_by_uwf_is_not_pushed_again_by_itself(pair: Pair) -> None:
    assert pair.ada("push", "origin", pair.thread, "--delete").json["deleted"]
    assert pair.ada("push").json["pushed"] == []
    assert pair.ada.status(pair.thread) == "idle"
    assert pair.ada("push", "--all").json["pushed"]


def test_an_empty_repository_in_the_place_of_the_remote_is_noticed_and_can_be_filled(
    pair: Pair, tmp_path: Path
) -> None:
    pair.shared.rename(tmp_path / "old.git")
    subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(pair.shared)], check=True)
    held = pair.ada("push", "--format", "text")
    named = f"workflow loop, thread {pair.thread}; uwf push origin ID… or --all brings them back"
    assert held.out == f"deleted on origin, kept here: {named}\n"
    pushed = {each["ref"] for each in pair.ada("push", "--all").json["pushed"]}
    assert pushed == {f"refs/uwf/threads/{pair.thread}", "refs/uwf/workflows/loop"}


def test_a_bundle_of_an_ended_side_keeps_its_steps(pair: Pair, tmp_path: Path) -> None:
    theirs, ours = pair.works(pair.ada, "by ada"), pair.works(pair.bob, "by bob")
    pair.ada("thread", "kill", pair.thread)
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("bundle", pair.thread, "-o", tmp_path / "t.bundle")
    found = pair.bob("unbundle", tmp_path / "t.bundle").json["adopted"]
    fork = next(each["fork"]["thread"] for each in found if "fork" in each)
    assert (pair.head(pair.bob), pair.head(pair.bob, fork)) == (ours, theirs)
    assert f"refs/uwf/archive/{pair.thread}" not in pair.ada.refs()


def test_a_fork_of_a_fork_goes_with_the_thread_in_a_bundle(pair: Pair, tmp_path: Path) -> None:
    for _ in range(3):  # each time Bob loses, with one more step
        pair.works(pair.ada, "by ada")
        pair.ada("push")
        pair.works(pair.bob, "by bob")
        pair.pull(pair.bob)
    parted = {row["thread"] for row in pair.bob("thread", "list", "--all").json}
    refs = pair.bob("bundle", pair.thread, "-o", tmp_path / "all.bundle").json["refs"]
    assert parted == {ref.rpartition("/")[2] for ref in refs if "/threads/" in ref}


def test_failed_attempts_of_both_sides_are_kept(pair: Pair) -> None:
    for who, said in ((pair.ada, "ada"), (pair.bob, "bob")):
        who("thread", "step", pair.thread, "--agent", f"sh -c 'echo {said} failed >&2; exit 3' --", check=6)
    pair.ada("push")
    pair.bob("push", check=4)
    pair.bob("pull")
    errors = [each["error"] for each in pair.bob("thread", "attempts", pair.thread).json]
    assert len(errors) == 2 and "ada" in errors[0] and "bob" in errors[1]
    pair.agree()


def test_a_plain_fetch_and_push_do_the_same(pair: Pair) -> None:
    head = pair.works(pair.ada, "second")
    other = pair.ada.starts("another", workflow="loop")
    pair.git("push", "-q", "origin", at=pair.ada.store)
    assert git_servers.refs(pair.shared) == pair.ada.refs()
    pair.git("fetch", "-q", "origin", at=pair.bob.store)
    assert set(pair.bob.heads()) == {pair.thread, other}
    assert pair.head(pair.bob) == head


def test_a_lost_race_in_a_shared_step_keeps_the_work_as_a_fork(pair: Pair) -> None:
    script = pair.bob.root.with_name("racing.sh")
    # While Bob's agent works, Ada's step reaches the remote.
    ada = f"UWF_STORAGE_ROOT={pair.ada.root}"
    pair.works(pair.ada, "by ada")
    answer = '{"text": "bob", "status": "more"}'
    script.write_text(f"env -u UWF_STORE {ada} uwf push >/dev/null && echo '{answer}'\n")
    agent = f"uwf-exec sh {script}"
    lost = pair.bob("thread", "step", pair.thread, "--remote", "origin", "--agent", agent, check=4)
    assert "Ada Example" in lost.error["message"]
    fork = re.search(r"kept as thread (\w{26})", lost.error["message"])
    assert fork
    assert pair.head(pair.bob) == pair.head(pair.ada)
    pair.ada("pull")
    assert pair.head(pair.ada, fork.group(1)) == pair.head(pair.bob, fork.group(1))


def test_a_shared_step_that_another_push_from_here_brings_there_first_has_lost_no_race(pair: Pair) -> None:
    hook, ref = pair.ada.store / "hooks/pre-push", f"refs/uwf/threads/{pair.thread}"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec git push --no-verify -q "$2" {ref}:{ref}\n')
    hook.chmod(0o755)
    agent = """uwf-exec echo '{"text": "ada", "status": "more"}'"""
    done = pair.ada("thread", "step", pair.thread, "--remote", "origin", "--agent", agent)
    hook.unlink()
    assert pair.git("rev-parse", ref) == pair.git("rev-parse", ref, at=pair.ada.store)
    assert pair.head(pair.ada) == done.json["head"]
    pair.agree()


def test_a_shared_run_fetches_before_and_pushes_after_each_step(pair: Pair) -> None:
    pair.works(pair.ada, "second")
    pair.ada("push")
    script = pair.bob.root.with_name("script.yaml")
    outputs = ["on", "on", "on", "end"]
    rows = [
        f"- {{role: worker, output: {{text: {t}, status: {'done' if t == 'end' else 'more'}}}}}"
        for t in outputs
    ]
    script.write_text("\n".join(rows))
    agent = f"uwf-rehearse --script {script}"
    ran = pair.bob("thread", "run", pair.thread, "--remote", "origin", "--agent", agent).lines
    assert ran[-1]["done"]
    pair.ada("pull")
    assert pair.ada.status(pair.thread) == "completed"
    assert pair.head(pair.ada) == ran[-1]["head"]


def test_a_bundle_carries_a_thread_and_leaves_the_id_to_what_is_here(pair: Pair, tmp_path: Path) -> None:
    theirs, ours = pair.works(pair.ada, "by ada"), pair.works(pair.bob, "by bob")
    pair.ada("bundle", pair.thread, "-o", tmp_path / "t.bundle")
    found = pair.bob("unbundle", tmp_path / "t.bundle").json["adopted"]
    fork = next(each["fork"] for each in found if each["case"] == "diverged")
    assert fork["side"] == "theirs"
    assert (pair.head(pair.bob), pair.head(pair.bob, fork["thread"])) == (ours, theirs)
    assert not pair.git("for-each-ref", "refs/uwf/remotes/bundle*", at=pair.bob.store)
    assert pair.bob("unbundle", tmp_path / "t.bundle").json["refused"] == []
    assert set(pair.bob.heads()) == {pair.thread, fork["thread"]}


def test_a_bundle_starts_a_store_where_there_was_none(pair: Pair, uwf: Uwf, tmp_path: Path) -> None:
    pair.works(pair.ada, "last", "done")
    pair.ada("bundle", pair.thread[:8], "-o", tmp_path / "t.bundle")
    dora = Machine(uwf, tmp_path / "dora")
    dora("unbundle", tmp_path / "t.bundle")
    assert (dora.status(pair.thread), pair.head(dora)) == ("completed", pair.head(pair.ada))
    (tmp_path / "torn.bundle").write_bytes((tmp_path / "t.bundle").read_bytes()[:-200])
    eve = Machine(uwf, tmp_path / "eve")
    assert eve("unbundle", tmp_path / "torn.bundle", check=1).error["code"] == "invalid"
    (tmp_path / "no.bundle").write_text("hello")
    assert dora("unbundle", tmp_path / "no.bundle", check=1).error["code"] == "invalid"


def test_a_push_into_the_store_while_a_step_is_made_loses_neither(pair: Pair) -> None:
    # Ada pushes straight into Bob's store, past the lock that only his machine knows.
    theirs = pair.works(pair.ada, "by ada")
    ref = f"refs/uwf/threads/{pair.thread}"
    answer = '{"text": "bob", "status": "more"}'
    script = pair.bob.root.with_name("pushed.sh")
    script.write_text(
        f"git --git-dir {pair.ada.store} push -q {pair.bob.store} {ref} >&2 && echo '{answer}'\n"
    )
    lost = pair.bob("thread", "step", pair.thread, "--agent", f"uwf-exec sh {script}", check=4)
    fork = re.search(r"kept as thread (\w{26})", lost.error["message"])
    assert fork
    assert pair.head(pair.bob) == theirs
    shown = pair.bob("thread", "show", fork.group(1)).json
    assert shown["divergedFrom"]["thread"] == pair.thread
    pair.bob("verify", "--all")


def paused(who: Machine, thread: str) -> str:
    """Why a thread is paused, "-" where it isn't."""
    return str(who("thread", "show", thread).json.get("paused", {}).get("reason", "-"))


def test_17_a_thread_that_was_paused_there_is_paused_here_whatever_its_steps(pair: Pair) -> None:
    ours = pair.works(pair.bob, "second")
    pair.ada("thread", "pause", pair.thread, "-m", "wait")
    pair.ada("push")
    assert pair.pull(pair.bob)["case"] == "paused-there"
    assert pair.bob("thread", "step", pair.thread, check=5).error["code"] == "paused"
    pair.bob("push")
    pair.ada("pull")
    assert (pair.head(pair.ada), paused(pair.ada, pair.thread)) == (ours, "wait")
    pair.agree()


def test_18_a_thread_that_was_resumed_there_is_resumed_here(pair: Pair) -> None:
    pair.ada("thread", "pause", pair.thread, "-m", "wait")
    pair.ada("push")
    pair.bob("pull")
    pair.bob("thread", "resume", pair.thread)
    assert pair.bob("pull").json["adopted"] == []  # not paused again by what it has just lifted
    assert pair.bob("push").json["deleted"] == [f"refs/uwf/paused/{pair.thread}"]
    pair.ada("push")  # which doesn't pause it anew
    assert pair.pull(pair.ada)["case"] == "resumed-there"
    assert pair.works(pair.ada, "second")
    for who in (pair.ada, pair.bob):
        who("gc")
        assert "refs/uwf/resumed" not in pair.git("for-each-ref", at=who.store)
    pair.agree()


def test_18_a_pause_that_nobody_has_lifted_is_never_lost(pair: Pair) -> None:
    thread = pair.thread
    pair.ada("thread", "pause", thread, "-m", "first")
    pair.ada("push")
    pair.git("fetch", "-q", "origin", at=pair.bob.store)  # seen here, and not taken over yet
    assert pair.bob("push").json["deleted"] == []
    pair.bob("pull")
    pair.bob("thread", "resume", thread)
    pair.bob("thread", "pause", thread, "-m", "second")
    pair.bob("push")
    assert pair.pull(pair.ada)["case"] == "paused-there" and paused(pair.ada, thread) == "second"
    pair.ada("thread", "resume", thread)
    pair.ada("push")
    pair.bob("thread", "resume", thread)
    pair.bob("thread", "pause", thread, "-m", "third")
    pair.bob("pull")
    assert paused(pair.bob, thread) == "third"
    pair.bob("push")
    pair.ada("thread", "pause", thread, "-m", "at the same time")
    lost = pair.ada("push", check=4).error["message"]
    assert f"the pause of thread {thread} was moved on origin by Ada Example" in lost
    pair.ada("pull")
    assert paused(pair.ada, thread) == "third"
    pair.agree()


def test_18_a_pause_goes_with_its_thread_and_with_the_side_that_becomes_another(pair: Pair) -> None:
    pair.works(pair.bob, "by bob")
    pair.bob("push")
    ours = pair.works(pair.ada, "by ada")
    pair.ada("thread", "pause", pair.thread, "-m", "wait")
    fork = pair.pull(pair.ada)["fork"]["thread"]
    assert pair.head(pair.ada, fork) == ours
    assert {paused(pair.ada, each) for each in (pair.thread, fork)} == {"wait"}
    pair.ada("push")
    pair.bob("pull")
    assert {paused(pair.bob, each) for each in (pair.thread, fork)} == {"wait"}
    pair.bob("thread", "kill", pair.thread)
    assert f"refs/uwf/paused/{pair.thread}" in pair.bob("push").json["deleted"]
    pair.ada("pull")
    assert f"refs/uwf/paused/{pair.thread}" not in pair.ada.refs()
    pair.ada("push", "origin", fork, "--delete")
    assert pair.bob("pull").code == 0
    assert paused(pair.bob, fork) == "wait"  # a thread that is deleted there isn't resumed by that
    pair.ada.is_sound()
    pair.bob.is_sound()


def test_16_a_pause_that_says_more_than_anybody_may_is_refused_and_a_name_is_cut(pair: Pair) -> None:
    def pauses(name: str, reason: str) -> None:
        head = pair.git("rev-parse", f"refs/uwf/threads/{pair.thread}")
        said = f"object {head}\ntype commit\ntag uwf/{pair.thread}\ntagger {name} <ada@x> 1 +0000\n\n"
        raw = pair.shared.with_name("tag")
        raw.write_text(f"{said}paused: {reason}\n")
        tag = pair.git("hash-object", "-w", "-t", "tag", "--literally", str(raw))
        pair.git("update-ref", f"refs/uwf/paused/{pair.thread}", tag)

    pauses("Ada", "x" * 501)
    (refused,) = pair.bob("pull", check=7).json["refused"]
    assert "500 characters" in refused["problem"] and paused(pair.bob, pair.thread) == "-"
    pauses("A" * 100_000, "x" * 500)
    pair.bob("pull")
    said = pair.bob("thread", "step", pair.thread, check=5)
    assert "A" * 50 in said.error["message"] and len(said.out + said.err) < 1500
    assert len(pair.bob("thread", "show", pair.thread, "--format", "text").out) < 2000
    pauses("", "x")
    pair.bob("pull")
    assert "paused by somebody: x" in pair.bob("thread", "step", pair.thread, check=5).error["message"]
    assert "by somebody: x" in pair.bob("thread", "show", pair.thread, "--format", "text").out


def test_a_pause_that_could_not_be_lifted_there_is_told_as_one_that_still_holds(pair: Pair) -> None:
    pair.ada("thread", "pause", pair.thread)
    pair.ada("push")
    git_servers.refuses_deletions(pair.shared)
    pair.ada("thread", "resume", pair.thread)
    told = pair.ada("push", "--format", "text", check=None).out
    assert "stays paused" in told and "ended" not in told


def test_what_a_push_cannot_read_here_is_not_blamed_on_the_remote(pair: Pair) -> None:
    hurt = pair.ada.starts("lost", workflow="loop")
    loose(pair.ada.store, f"refs/uwf/threads/{hurt}:README.md").unlink()
    failed = pair.ada("push", check=7)
    assert "doctor --fix" in failed.error["hint"]
    sound = pair.works(pair.ada, "second")
    pair.ada("push", "origin", pair.thread)
    pair.bob("pull")
    assert pair.head(pair.bob) == sound
