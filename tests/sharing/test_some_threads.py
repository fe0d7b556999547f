"""Some threads of the many that a remote has: pulled by their ids at the cost of those, and pushed together, where what
keeps one from getting there leaves the others alone."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_servers
import pytest
from conftest import Uwf
from test_exchange_cost import children, many_threads, shared_with  # noqa: F401 -- a fixture
from test_pull_cases import Pair
from two_machines import Machine

from uwf_git.base.errors import Declined, HeadMoved, Invalid, RemoteFailed, UwfError
from uwf_git.format.ids import ThreadId
from uwf_git.git.program import Git
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate
from uwf_git.sync import shared_step
from uwf_git.sync.exchange import Exchange
from uwf_git.sync.pull import Pulled, gather
from uwf_git.sync.shared_step import DeletedThere, share_all


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    return Pair(uwf, tmp_path, lasting)


@pytest.fixture
def bob(pair: Pair) -> Instance:
    return opened(pair.bob)


def opened(machine: Machine) -> Instance:
    return Instance(locate(str(machine.root), os.environ, Path.cwd()))


def tracked(machine: Machine) -> list[str]:
    """What a machine has seen of its origin, by git's own account."""
    listed = git_servers.git(
        "--git-dir", machine.store, "for-each-ref", "--format=%(refname)", "refs/uwf/remotes/"
    )
    return [name.removeprefix("refs/uwf/remotes/origin/") for name in listed.split()]


def shares(instance: Instance, *threads: str) -> dict[ThreadId, UwfError | None]:
    return share_all(exchange_of(instance), [ThreadId(each) for each in threads])


def exchange_of(instance: Instance) -> Exchange:
    return Exchange(instance, instance.remotes.get("origin"), Git(instance.store.repository.path))


# Pulled by their ids


def test_a_pull_of_ids_brings_these_threads_and_nothing_else(pair: Pair, tmp_path: Path) -> None:
    others = [pair.ada.starts(f"task {number}", workflow="loop") for number in range(3)]
    pair.ada("push")
    eve = Machine(pair.ada._uwf, tmp_path / "eve")
    eve("init")
    eve("remote", "add", "origin", pair.shared)
    found = eve("pull", "origin", pair.thread, others[0][-10:]).json
    assert [each["thread"] for each in found["adopted"]] == sorted([pair.thread, others[0]])
    assert found["refused"] == [] and found["steps"] == 1
    assert eve.heads().keys() == {pair.thread, others[0]}
    assert tracked(eve) == [f"threads/{each}" for each in sorted([pair.thread, others[0]])]
    # The remote may be left out, and what is here already be named by a part.
    assert eve("pull", others[1]).json["adopted"][0]["thread"] == others[1]
    pair.works(pair.ada, "second")
    pair.ada("push")
    assert eve("pull", pair.thread[-8:]).json["adopted"][0]["case"] == "behind"
    assert pair.head(eve) == pair.head(pair.ada)
    assert others[2] not in eve.heads()
    eve.is_sound()


def test_an_id_that_is_nowhere_is_said_to_be_so_and_brings_nothing(pair: Pair, tmp_path: Path) -> None:
    other = pair.ada.starts("another", workflow="loop")
    pair.ada("push")
    for unknown in ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3ND"):
        told = pair.bob("pull", "origin", unknown, check=3).error
        assert unknown in told["message"] and "origin" in told["message"]
    assert "no remote 'orgin'" in pair.bob("pull", "orgin", pair.thread, check=3).error["message"]
    assert other not in pair.bob.heads()
    pair.bob("thread", "rm", pair.thread, "--yes")
    assert "restore" in pair.bob("pull", "origin", pair.thread, check=3).error["hint"]


def test_what_ended_or_was_folded_or_deleted_there_is_found_by_its_id(pair: Pair, tmp_path: Path) -> None:
    more = [pair.ada.starts(f"task {number}", workflow="loop") for number in range(3)]
    pair.ada("push")
    pair.bob("pull")
    ended, deleted, new = more
    pair.works(pair.ada, "last", "done", ended)
    pair.works(pair.ada, "last", "done", new)
    pair.ada("push")
    trace = tmp_path / "trace"
    found = pair.bob("pull", "origin", ended, env={"GIT_TRACE2_PERF": str(trace)}).json["adopted"]
    assert [each["case"] for each in found] == ["ended-there-behind"]
    assert children(trace) == ["fetch", "fetch"], "its end says where it is: nothing has to be listed"
    pair.ada("gc", "--fold-before", "2100-01-01")
    pair.ada("push")
    pair.ada("push", "origin", deleted, "--delete")
    cases = {each.get("thread"): each["case"] for each in pair.bob("pull", "origin", deleted).json["adopted"]}
    assert cases[deleted] == "deleted-there"
    # Whoever has never seen it finds it in the fold.
    eve = Machine(pair.ada._uwf, tmp_path / "eve")
    eve("init")
    eve("remote", "add", "origin", pair.shared)
    eve("pull", "origin", new)
    assert eve.statuses()[new] == "completed" and pair.thread not in eve.heads()
    pair.agree()


def test_names_that_only_begin_with_an_id_get_no_ref_here(pair: Pair) -> None:
    """However many there are: git tells of no more than its table has room for."""
    head = pair.works(pair.ada, "second")
    pair.ada("push")
    tip = pair.git("rev-parse", f"refs/uwf/threads/{pair.thread}").strip()
    for count in (1, 600):
        orders = "".join(
            f"update refs/uwf/threads/{pair.thread}{number:04} {tip}\n" for number in range(count)
        )
        command = ["git", "--git-dir", str(pair.shared), "update-ref", "--stdin"]
        subprocess.run(command, input=orders, text=True, check=True)
        told = pair.bob("pull", "origin", pair.thread, check=None)
        assert pair.head(pair.bob) == head, told.err
        assert [each for each in tracked(pair.bob) if pair.thread in each] == [f"threads/{pair.thread}"]
        assert told.code == (7 if count == 1 else 0)


def test_a_pull_of_an_id_asks_the_server_for_that_alone(
    uwf: Uwf,
    many_threads: Callable[[int], list[str]],  # noqa: F811
    tmp_path: Path,
) -> None:
    threads = many_threads(60)
    shared = shared_with(uwf, tmp_path)
    uwf("push")
    other = Machine(uwf, tmp_path / "other")
    other("clone", shared)
    uwf("thread", "step", threads[7])
    uwf("push", "origin", threads[7])
    packets, trace = tmp_path / "packets", tmp_path / "trace"
    other("pull", "origin", threads[7], env={"GIT_TRACE_PACKET": str(packets), "GIT_TRACE2_PERF": str(trace)})
    assert children(trace) == ["fetch"]
    told = set(re.findall(r"fetch< [0-9a-f]{40} (refs/\S+)", packets.read_text()))
    assert told == {f"refs/uwf/threads/{threads[7]}"}
    # More than one table has room for are listed, and these brought alone.
    uwf("thread", "step", threads[50])
    uwf("thread", "step", threads[8])
    uwf("push")
    found = other("pull", "origin", *threads[:45]).json["adopted"]
    assert [each["thread"] for each in found] == [threads[8]]


# Pushed together


def test_steps_of_many_threads_go_out_with_one_push(
    pair: Pair, bob: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = [pair.thread, *(pair.bob.starts(f"task {number}", workflow="loop") for number in range(4))]
    for thread in threads:
        pair.works(pair.bob, "by bob", thread=thread)
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE2_PERF", str(trace))
    assert shares(bob, *threads) == dict.fromkeys(threads)
    assert children(trace).count("push") == 1
    monkeypatch.delenv("GIT_TRACE2_PERF")
    assert {name for name in git_servers.refs(pair.shared) if "/threads/" in name} == {
        f"refs/uwf/threads/{each}" for each in threads
    }
    assert shares(bob, *threads) == dict.fromkeys(threads), "what already exists is not a loss"


def test_what_keeps_one_thread_from_getting_there_leaves_the_others_alone(pair: Pair) -> None:
    raced, refused, deleted, fine = (pair.ada.starts(each, workflow="loop") for each in ("a", "b", "c", "d"))
    pair.ada("push")
    pair.bob("pull")
    large, missing = pair.bob.starts("x" * 1_200_000, workflow="loop"), "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    pair.git("config", "uwf.maxBlob", "1m", at=pair.bob.store)
    pair.works(pair.ada, "by ada", thread=raced)
    pair.ada("push", "origin", raced)
    pair.ada("push", "origin", deleted, "--delete")
    for thread in (raced, refused, deleted, fine):
        pair.works(pair.bob, "by bob", thread=thread)
    git_servers.hook(pair.shared, "update", f'[ "$1" != refs/uwf/threads/{refused} ]')
    ours = pair.head(pair.bob, raced)
    found = shares(opened(pair.bob), raced, refused, deleted, large, missing, fine)
    assert list(found) == [raced, refused, deleted, large, missing, fine]
    assert found.pop(fine) is None
    kinds = {thread: type(error) for thread, error in found.items() if error}
    assert (kinds[raced], kinds[deleted]) == (HeadMoved, DeletedThere)
    assert (kinds[refused], kinds[large]) == (Declined, Invalid) and kinds[missing]
    kept = re.search(r"kept as thread (\w{26})", str(found[raced]))
    assert kept and "Ada Example" in str(found[raced])
    there = git_servers.refs(pair.shared)
    assert f"refs/uwf/threads/{kept[1]}" in there and f"refs/uwf/threads/{deleted}" not in there
    for thread, at in ((fine, fine), (kept[1], kept[1])):
        assert there[f"refs/uwf/threads/{thread}"] == pair.bob.refs()[f"refs/uwf/threads/{at}"]
    assert pair.head(pair.bob, kept[1]) == ours
    # Another time, with the hook and the file out of the way, the rest gets there.
    (pair.shared / "hooks" / "update").unlink()
    pair.git("config", "--unset", "uwf.maxBlob", at=pair.bob.store)
    assert set(shares(opened(pair.bob), refused, large, fine).values()) == {None}
    pair.ada("pull")
    assert pair.head(pair.ada, refused) == pair.head(pair.bob, refused)


def test_a_remote_that_is_not_there_is_said_of_each_thread(pair: Pair, bob: Instance) -> None:
    other = pair.bob.starts("another", workflow="loop")
    pair.works(pair.bob, "by bob")
    away = pair.shared.rename(pair.shared.with_name("away.git"))
    found = shares(bob, pair.thread, other)
    assert {type(each) for each in found.values()} == {RemoteFailed} and len(found) == 2
    with pytest.raises(RemoteFailed):
        gather(exchange_of(bob), [ThreadId(other)])
    away.rename(pair.shared)
    assert shares(bob, pair.thread, other) == {pair.thread: None, other: None}


def test_a_lost_race_for_a_thread_that_is_removed_meanwhile_says_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.works(pair.bob, "by bob")
    pair.bob("push")
    pair.works(pair.ada, "by ada")

    def removed_before(*args: Any) -> Pulled:
        pair.ada("thread", "rm", pair.thread, "--yes")
        return gather(*args)

    monkeypatch.setattr(shared_step, "gather", removed_before)
    problem = shares(opened(pair.ada), pair.thread)[ThreadId(pair.thread)]
    assert isinstance(problem, HeadMoved)
    assert (
        problem.message
        == f"thread {pair.thread} was removed here meanwhile; the step made here is kept with it"
    )
    assert pair.ada("thread", "restore", pair.thread).json["restored"]


def test_a_secret_that_was_stored_before_it_was_known_is_not_pushed(pair: Pair) -> None:
    thread = pair.ada.starts("The word is correct-horse-9.", "loop")
    fine = pair.ada.starts("Another", "loop")
    (pair.ada.root / ".env").write_text("DB_PASSWORD=correct-horse-9\n")
    refused = pair.ada("push", check=1).error
    assert refused["message"].startswith(f"thread {thread} has a secret (DB_PASSWORD), which was not known")
    assert thread not in pair.ada("push", "origin", fine).out
    assert pair.ada("push", "origin", thread, check=1).error == refused
    assert "has a secret" in pair.ada("publish", "thread", thread, check=1).error["message"]
    assert pair.ada("bundle", thread, "-o", "file.bundle", check=1).error["message"] == refused["message"]
    (pair.ada.root / "config.yaml").write_text("notSecrets: [DB_PASSWORD]\n")
    pair.ada("push", "origin", thread)
