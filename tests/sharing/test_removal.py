"""A thread that was removed stays away until somebody wants it back: here, on a remote, alone and in a fold."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import commands
import pytest
from commands import loose, wait_for
from conftest import Uwf
from programs import program
from two_machines import Machine, begun

from uwf_git.base.errors import Busy
from uwf_git.engine.step import kill
from uwf_git.format.ids import ThreadId
from uwf_git.git import ref_transactions
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate
from uwf_git.sync import removal

LATER = "2100-01-01"


class Team:
    """Ada's and Bob's machines with origin between them, and two threads that both have."""

    def __init__(self, uwf: Uwf, folder: Path, lasting: Path) -> None:
        self.shared = folder / "shared.git"
        self.ada, self.bob = Machine(uwf, folder / "ada"), Machine(uwf, folder / "bob")
        self.thread, self.other = begun(folder, lasting / "team", self._begin).split()

    def _begin(self) -> str:
        subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(self.shared)], check=True)
        self.ada.registers()
        threads = self.ada.starts("the one"), self.ada.starts("the other")
        self.ada("remote", "add", "origin", self.shared)
        self.ada("push")
        self.bob("clone", self.shared)
        return " ".join(threads)

    def there(self) -> str:
        return commands.git("--git-dir", self.shared, "for-each-ref", "--format=%(refname)", layout.NAMESPACE)

    def ends_and_folds(self) -> None:
        """Both threads stand in one fold, here, there and on Bob's machine."""
        for thread in (self.thread, self.other):
            self.ada.steps(thread)
            self.ada("thread", "kill", thread)
        self.ada("gc", "--fold-before", LATER)
        self.ada("push")
        self.bob("pull")
        assert self.thread not in self.there()

    def agree(self, *threads: str) -> None:
        """Whatever is exchanged, Ada and the remote have these threads and no others."""
        for _ in range(2):
            for who in (self.bob, self.ada):
                who("pull")
                who("push")
            if self.ada.refs() == self.bob.refs():
                break
        assert set(self.ada.heads()) == set(threads)
        fresh = Machine(self.ada._uwf, self.shared.with_name("fresh"))
        fresh("clone", self.shared)
        assert set(fresh.heads()) == set(threads)
        self.ada.is_sound()
        for who in (self.bob, fresh):
            who.verifies()


@pytest.fixture
def team(uwf: Uwf, tmp_path: Path, lasting: Path) -> Team:
    return Team(uwf, tmp_path, lasting)


def test_a_thread_that_was_removed_here_stays_on_the_remote_and_away_from_here(team: Team) -> None:
    asked = team.ada("thread", "rm", team.thread, check=2).error
    assert "it would stay on origin" in asked["message"] and "--remote origin" in asked["hint"]
    said = team.ada("thread", "rm", team.thread, "--yes", "--format", "text").out
    assert f"still on origin: uwf thread rm {team.thread} --remote origin --yes" in said
    team.bob.steps(team.thread)
    team.bob("push")
    assert team.ada("pull").json["adopted"] == []
    assert team.ada("push").json["deleted"] == []
    assert set(team.ada.heads()) == {team.other}
    gone = team.ada("thread", "show", team.thread, check=3).error
    assert gone["hint"] == f"uwf thread restore {team.thread}"
    team.ada("cas", "reindex")
    assert set(team.ada.heads()) == {team.other}
    team.ada.is_sound()


def test_a_removed_thread_is_restored_as_it_was(team: Team) -> None:
    team.ada("thread", "step", team.thread, "--agent", "false", check=6)
    team.ada("thread", "pause", team.thread, "-m", "wait")
    before = team.ada.refs()
    team.ada("thread", "rm", team.thread, "--yes")
    (listed,) = team.ada("thread", "restore").json
    assert (listed["thread"], listed["kept"]) == (team.thread, True)
    assert listed["by"] == "Ada Example <ada@example.invalid>"
    restored = team.ada("thread", "restore", team.thread[-8:]).json
    assert restored == {"thread": team.thread, "restored": True, "status": "paused"}
    assert team.ada.refs() == before
    assert team.ada("thread", "restore").json == []
    team.ada("thread", "restore", team.thread, check=3)
    team.agree(team.thread, team.other)


def test_a_removed_thread_is_restored_though_its_fold_is_gone(uwf: Uwf, tmp_path: Path) -> None:
    ada = Machine(uwf, tmp_path / "ada")
    ada.registers()
    thread = ada.starts("the one")
    ada.steps(thread)
    ada("thread", "kill", thread)
    heads, tag = ada.heads(), ada.refs()[layout.ARCHIVE + thread]
    ada("gc", "--fold-before", LATER)
    (fold,) = (name for name in ada.refs() if name.startswith(layout.FOLDED))
    ada("thread", "rm", thread, "--yes")
    assert fold not in ada.refs()
    assert ada("thread", "restore", "--all").json == [
        {"thread": thread, "restored": True, "status": "killed"}
    ]
    assert ada.refs()[layout.ARCHIVE + thread] == tag
    assert ada.heads() == heads
    ada("gc", "--prune")
    ada.is_sound()


def test_steps_that_only_a_removed_thread_had_are_kept_though_it_has_ended_in_a_fold_since(
    team: Team,
) -> None:
    mine = team.ada.steps(team.thread, "mine")
    team.ada("thread", "rm", team.thread, "--yes")
    theirs = team.bob.steps(team.thread, "theirs")
    team.bob("thread", "kill", team.thread)
    team.bob("gc", "--fold-before", LATER)
    team.bob("push")
    team.ada("pull")
    restored = team.ada("thread", "restore", team.thread)
    assert {**restored.json, "warnings": []} == {
        "thread": team.thread, "restored": True, "status": "killed", "warnings": []
    }  # fmt: skip
    (side,) = team.ada.heads().keys() - {team.thread, team.other}
    assert f"thread {side} has 1 step that thread {team.thread} had when it was removed" in restored.err
    assert team.ada.heads() == {**team.ada.heads(), team.thread: theirs, side: mine}
    team.agree(team.thread, team.other, side)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_killed_thread_that_was_removed_stays_killed_though_it_came_back_to_life_meanwhile(
    team: Team, beyond: int
) -> None:
    before = team.ada.refs()[layout.THREADS + team.thread]
    team.ada("thread", "kill", team.thread)
    team.ada("thread", "rm", team.thread, "--yes")
    commands.git("--git-dir", team.ada.store, "update-ref", layout.THREADS + team.thread, before)
    for number in range(beyond):
        team.ada.steps(team.thread, f"later {number}")
    restored = team.ada("thread", "restore", team.thread)
    assert {**restored.json, "warnings": []} == {
        "thread": team.thread, "restored": True, "status": "killed", "warnings": []
    }  # fmt: skip
    sides = team.ada.heads().keys() - {team.thread, team.other}
    assert len(sides) == beyond
    for side in sides:
        assert f"thread {side} has 1 step that came after thread {team.thread} had ended" in restored.err
    team.agree(team.thread, team.other, *sides)


def test_a_mirror_gets_nothing_of_what_was_removed_which_git_gc_keeps_all_the_same(
    team: Team, tmp_path: Path
) -> None:
    ours = team.ada.starts("the password is abracadabra")
    team.ada.steps(ours, "abracadabra")
    before = team.ada.refs()
    mirror = tmp_path / "mirror.git"
    commands.git("init", "-q", "--bare", mirror)
    team.ada("thread", "rm", ours, "--yes")
    commands.git("--git-dir", team.ada.store, "push", "-q", "--mirror", str(mirror))
    assert "abracadabra" not in commands.git(
        "--git-dir", mirror, "cat-file", "--batch-all-objects", "--batch"
    )
    commands.git("--git-dir", team.ada.store, "gc", "-q", "--prune=now")
    (listed,) = team.ada("thread", "restore").json
    assert (listed["thread"], listed["kept"]) == (ours, True)
    assert team.ada("thread", "restore", ours).json["restored"] is True
    assert team.ada.refs() == before
    team.ada.is_sound()


def test_what_was_removed_is_listed_by_its_task_and_all_of_it_is_restored(team: Team) -> None:
    ada = team.ada
    ada("thread", "kill", team.other)
    ada("thread", "rm", team.thread, team.other, "--yes")
    told = {each["thread"]: (each["name"], each["title"]) for each in ada("thread", "restore").json}
    ada("cas", "reindex")
    assert {each["thread"]: (each["name"], each["title"]) for each in ada("thread", "restore").json} == told
    name = told[team.thread][0]
    assert name and told == {team.thread: (name, "the one"), team.other: (name, "the other")}
    shown = ada("thread", "restore", "--format", "text").out
    assert "the one" in shown and name in shown
    assert "counts the threads that are here" in ada("thread", "restore", "@", check=2).error["message"]
    assert "exclude" in ada("thread", "restore", team.thread, "--all", check=2).error["message"]
    restored = ada("thread", "restore", "--all").json
    assert {each["thread"] for each in restored if each["restored"]} == {team.thread, team.other}
    assert ada("thread", "restore", "--all").json == [] and len(ada.heads()) == 2


def test_a_thread_is_removed_here_and_there_at_once_and_others_keep_theirs(team: Team) -> None:
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    assert team.thread not in team.there()
    (kept,) = team.bob("pull").json["adopted"]
    assert (kept["case"], kept["thread"]) == ("deleted-there", team.thread)
    team.agree(team.other)
    assert set(team.bob.heads()) == {team.thread, team.other}


def test_what_was_offered_after_the_removal_here_works(team: Team) -> None:
    team.ada("thread", "rm", team.thread, team.other, "--yes")
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    assert team.thread not in team.there() and team.other in team.there()


def test_whoever_steps_a_thread_meanwhile_saves_it_from_removal(team: Team) -> None:
    team.bob.steps(team.thread)
    team.bob("push")
    refused = team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes", check=4).error
    assert team.thread in refused["message"] and "uwf pull origin" in refused["hint"]
    assert set(team.ada.heads()) == {team.thread, team.other}


def test_a_folded_thread_that_was_removed_here_troubles_neither_push_nor_pull(team: Team) -> None:
    team.ends_and_folds()
    team.ada("thread", "rm", team.thread, "--yes")
    assert set(team.ada.heads()) == {team.other}
    assert team.ada("push").json["refused"] == []
    assert team.ada("pull").json["adopted"] == []
    later = team.ada.starts("later")
    team.ada("thread", "kill", later)
    team.ada("gc", "--fold-before", LATER)
    team.ada("push")
    team.bob("pull")
    assert set(team.bob.heads()) == {team.thread, team.other, later}
    assert set(team.ada.heads()) == {team.other, later}
    assert team.ada("thread", "restore", team.thread).json["status"] == "killed"
    team.agree(team.thread, team.other, later)


def test_a_folded_thread_is_removed_from_the_remotes_fold_and_nothing_brings_it_back(team: Team) -> None:
    team.ends_and_folds()
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    assert set(team.ada.heads()) == {team.other}
    later = team.bob.starts("later")
    team.bob("thread", "kill", later)
    team.bob("gc", "--fold-before", LATER)
    assert team.bob("push", check=4).error["code"] == "head_moved"
    kept = [each["thread"] for each in team.bob("pull").json["adopted"] if each["case"] == "deleted-there"]
    assert kept == [team.thread]
    team.bob("gc", "--fold-before", LATER)  # which doesn't fold it for the next push
    team.agree(team.other, later)
    assert set(team.bob.heads()) == {team.thread, team.other, later}
    team.bob("push", "origin", team.thread)
    assert team.thread in team.there()


def test_a_folded_thread_that_is_deleted_there_alone_stays_here(team: Team) -> None:
    team.ends_and_folds()
    team.ada("push", "origin", team.thread, "--delete")
    assert set(team.ada.heads()) == {team.thread, team.other}
    fresh = Machine(team.ada._uwf, team.shared.with_name("new"))
    fresh("clone", team.shared)
    assert set(fresh.heads()) == {team.other}
    assert team.ada("push").json["pushed"] == []
    assert team.ada("pull").json["adopted"] == []


def test_pruning_leaves_nothing_of_what_was_removed(team: Team) -> None:
    ours = team.ada.starts("the password is abracadabra")
    blobs = ("--git-dir", team.ada.store, "cat-file", "--batch-all-objects", "--batch")
    for thread in (ours, team.thread):
        team.ada("thread", "rm", thread, "--yes")
    team.ada("gc")
    assert "abracadabra" in commands.git(*blobs)
    team.ada("gc", "--prune")
    assert "abracadabra" not in commands.git(*blobs)
    assert b"abracadabra" not in (team.ada.store / "uwf" / "index.db").read_bytes()
    assert team.ada("pull").json["adopted"] == []
    assert team.ada("thread", "restore", ours).json["restored"] is False
    assert team.ada("thread", "restore", team.thread).json["restored"] is False
    assert [each["thread"] for each in team.ada("pull").json["adopted"]] == [team.thread]
    team.agree(team.thread, team.other)


def test_pruning_leaves_nothing_of_files_that_a_kill_left_half_written(team: Team) -> None:
    ours = team.ada.starts("the password is abracadabra")
    team.ada("thread", "rm", ours, "--yes")
    private = team.ada.store / "uwf"
    bundle = private / "removed" / f"{ours}.bundle"
    # A killed process leaves its files under these names; no process has that id.
    torn = [bundle.with_name(f"{bundle.name}.4194305"), private / "runs" / f"{ours}.json.4194305"]
    torn[1].parent.mkdir(exist_ok=True)
    for path in torn:
        path.write_bytes(bundle.read_bytes())
    team.ada("gc")
    assert bundle.exists() and torn[0].exists()
    team.ada("gc", "--prune")
    assert [path for path in (bundle, *torn) if path.exists()] == []


def test_a_torn_bundle_goes_with_the_removal_that_was_broken_off(team: Team) -> None:
    torn = team.ada.store / "uwf" / "removed" / f"{team.thread}.bundle.4194305"
    torn.parent.mkdir()
    torn.write_bytes(b"# v2 git bundle\n")
    team.ada("gc")
    assert not torn.exists()
    assert set(team.ada.heads()) == {team.thread, team.other}


def test_a_removal_that_is_killed_half_way_is_told_and_restoring_takes_no_step_back(team: Team) -> None:
    program("strace")
    ours = team.ada.starts("to be removed, or not")
    team.ada.steps(ours)
    ref = team.ada.store / layout.THREADS / ours
    watch = ["strace", "-f", "-o", "/dev/null", "-P", ref, "-e", "trace=unlink,unlinkat"]
    kill = ["-e", "inject=unlink,unlinkat:signal=KILL"]
    remove = [*commands.UWF, "--root", str(team.ada.root), "thread", "rm", ours, "--yes"]
    subprocess.run([*map(str, watch), *kill, *remove], capture_output=True, check=False)
    mark = team.ada.store / layout.REMOVED / ours
    assert ref.exists() and mark.exists()
    assert any(
        ours in each["message"] and "interrupted" in each["message"] for each in team.ada("doctor").json
    )
    team.ada.steps(ours)
    here = team.ada.refs()
    assert layout.ARCHIVE + ours in here
    assert team.ada("thread", "restore", ours).json["restored"] is True
    assert team.ada.refs() == here
    assert not mark.exists()


def test_a_removal_or_an_end_that_a_lock_stops_is_refused_whole_or_done(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ref_transactions, "PACKING_TRIES", 2)  # and not thirteen seconds
    instance = Instance.open(str(team.ada.root))
    every = ("--git-dir", team.ada.store, "for-each-ref")
    before = commands.git(*every)
    lock = team.ada.store / "packed-refs.lock"
    lock.touch()
    with pytest.raises(Busy, match="packed-refs"):
        removal.remove(instance, ThreadId(team.thread))
    assert commands.git(*every) == before
    assert kill(instance, ThreadId(team.thread)).archive
    lock.unlink()
    team.ada("doctor", "--fix")
    assert layout.THREADS + team.thread not in team.ada.refs()
    assert team.ada("thread", "show", team.thread).json["status"] == "killed"


def test_nobody_misses_a_removed_thread_that_nothing_can_restore(team: Team) -> None:
    ours = team.ada.starts("over soon")
    ref = layout.THREADS + ours
    head = team.ada.refs()[ref]
    team.ada("thread", "kill", ours)
    # As whoever looks while the thread is ended may leave it: seen where it was, and not seen to go.
    commands.git("--git-dir", team.ada.store, "update-ref", ref, head)
    team.ada("thread", "list", "--all")
    commands.git("--git-dir", team.ada.store, "update-ref", "-d", ref)
    team.ada("thread", "rm", ours, "--yes")
    commands.git("--git-dir", team.ada.store, "update-ref", "refs/heads/keeps-what-it-led-to", head)
    team.ada("gc", "--prune")
    assert team.ada("thread", "restore", ours).json["restored"] is False
    assert team.ada("verify", "--all").json["findings"] == []
    assert team.ada("doctor").code == 0


def test_a_damaged_thread_can_be_removed(team: Team) -> None:
    head = team.ada.refs()[layout.THREADS + team.thread]
    loose(team.ada.store, head).unlink()
    team.ada("thread", "rm", team.thread, "--yes")
    assert set(team.ada.heads()) == {team.other}


def test_a_bundle_brings_back_what_was_removed_here(team: Team, tmp_path: Path) -> None:
    team.ada("bundle", team.thread, "-o", tmp_path / "one.bundle")
    team.ada("thread", "rm", team.thread, "--yes")
    team.ada("unbundle", tmp_path / "one.bundle")
    assert set(team.ada.heads()) == {team.thread, team.other}


def test_a_thread_that_is_on_the_remote_again_is_pushed_like_any_other(team: Team) -> None:
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    team.bob.steps(team.thread)
    team.bob("push", "origin", team.thread)
    team.ada("thread", "restore", team.thread)
    team.ada("pull")
    head = team.ada.steps(team.thread)
    team.ada("push")
    team.bob("pull")
    assert team.bob.heads()[team.thread] == head


@pytest.mark.parametrize("made", ["a step", "a failed attempt", "a pause", "an end", "a folded end"])
@pytest.mark.sample(3)
def test_what_is_made_of_a_thread_before_its_deletion_is_seen_does_not_bring_it_back(
    team: Team, made: str
) -> None:
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    if made == "a step":
        team.bob.steps(team.thread)
    elif made == "a failed attempt":
        team.bob("thread", "step", team.thread, "--agent", "false", check=6)
    else:
        team.bob("thread", "pause" if made == "a pause" else "kill", team.thread)
    before = team.bob.refs()
    another = team.bob.starts("another")
    if made == "a folded end":
        team.bob("thread", "kill", another)
        team.bob("gc", "--fold-before", LATER)
    pushed = team.bob("push", "--format", "text").out
    said = (
        f"deleted on origin, kept here: thread {team.thread}; uwf push origin {team.thread} brings it back\n"
    )
    assert pushed.endswith(said)
    assert {ref for ref in before.items() if ref[0].endswith(team.thread)} <= set(team.bob.refs().items())
    held = [name for name in team.bob.refs() if name.endswith(team.thread)]
    assert sorted(held) == team.bob("push").json["deletedThere"]
    team.agree(team.other, another)
    team.bob("push", "origin", team.thread)
    assert "deletedThere" not in team.bob("push").json
    assert {name for name in held if name not in team.there()} == set()
    team.bob.is_sound()


def test_a_thread_that_was_deleted_on_the_remote_is_not_stepped_there_until_somebody_wants_it_back(
    team: Team, tmp_path: Path
) -> None:
    there = ("--remote", "origin", "--agent", """uwf-exec echo '{"text": "made up"}'""")
    team.ada("push", "origin", team.thread, "--delete")
    refused = team.bob("thread", "run", team.thread, *there, check=4).error
    assert refused["message"] == f"thread {team.thread} was deleted on origin"
    assert f"uwf push origin {team.thread}" in refused["hint"]
    head = team.bob.steps(team.thread)
    assert team.bob("push", "--workflow", "relay").json["pushed"] == []  # which doesn't name it
    assert team.thread not in team.there()
    team.bob("push", "origin", team.thread)
    team.bob("thread", "run", team.thread, *there)
    # Whoever had deleted it goes on with it as with any other.
    team.ada("pull")
    assert team.ada.status(team.thread) == "completed" and team.bob.heads()[team.thread] != head
    team.agree(team.thread, team.other)


def test_a_thread_that_is_deleted_during_a_step_stays_deleted_and_the_step_is_kept(
    team: Team, tmp_path: Path
) -> None:
    waiting, over = tmp_path / "waiting", tmp_path / "over"

    def delete() -> None:
        wait_for(waiting)
        team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
        over.touch()

    script = tmp_path / "waits.sh"
    script.write_text(
        f"""echo 1 >{waiting}; until [ -e {over} ]; do sleep 0.1; done; echo '{{"text": "by bob"}}'\n"""
    )
    deletion = threading.Thread(target=delete)
    deletion.start()
    agent = ("--agent", f"uwf-exec sh {script}")
    lost = team.bob("thread", "step", team.thread, "--remote", "origin", *agent, check=4).error
    deletion.join()
    assert f"{team.thread} was deleted on origin meanwhile; the step made here is kept" in lost["message"]
    assert team.thread not in team.there()
    assert [each["output"] for each in team.bob("thread", "steps", team.thread).json] == [{"text": "by bob"}]


def test_of_a_month_that_is_gone_from_the_remote_what_was_added_here_is_pushed(team: Team) -> None:
    team.ends_and_folds()
    team.ada("thread", "rm", team.thread, team.other, "--remote", "origin", "--yes")
    assert layout.FOLDED not in team.there()
    later = team.bob.starts("later")
    team.bob("thread", "kill", later)
    team.bob("gc", "--fold-before", LATER)
    pushed = team.bob("push", "--format", "text").out
    assert (
        f"kept here: {', '.join(f'thread {each}' for each in sorted((team.thread, team.other)))}; " in pushed
    )
    team.agree(later)
    assert set(team.bob.heads()) == {team.thread, team.other, later}
    team.bob("push", "origin", team.other)
    team.ada("thread", "restore", team.other)
    team.agree(team.other, later)


def test_a_thread_that_was_removed_here_before_it_was_deleted_there_is_restored_here_alone(
    team: Team,
) -> None:
    team.ada("thread", "rm", team.thread, "--yes")
    team.bob("thread", "rm", team.thread, "--remote", "origin", "--yes")
    team.ada("pull")
    team.ada("thread", "restore", team.thread)
    assert team.ada("push").json["deletedThere"] == [f"refs/uwf/threads/{team.thread}"]
    assert team.thread not in team.there()


def test_pruning_leaves_nothing_of_what_was_removed_on_a_remote_too(team: Team) -> None:
    ours = team.ada.starts("the password is abracadabra")
    team.ada("push")
    team.ada("thread", "rm", ours, "--remote", "origin", "--yes")
    team.ada("gc", "--prune")
    assert "abracadabra" not in commands.git(
        "--git-dir", team.ada.store, "cat-file", "--batch-all-objects", "--batch"
    )
    team.ada.is_sound()


def test_a_pulled_deletion_holds_for_an_end_a_pause_and_whatever_a_filter_runs(team: Team) -> None:
    paused = team.ada.starts("paused")
    ran = team.ada.starts("ran")
    team.ada("push")
    team.bob("pull")
    deleted = (team.thread, paused, ran)
    team.ada("thread", "rm", *deleted, "--remote", "origin", "--yes")
    team.bob("pull")
    team.bob("thread", "kill", team.thread)
    team.bob("thread", "pause", paused)
    there = ("--remote", "origin", "--agent", """uwf-exec echo '{"text": "made up"}'""")
    team.bob("thread", "run", "--all", *there, check=4)
    team.bob("push")
    assert [each for each in deleted if each in team.there()] == []
    assert team.other in team.there()
    team.bob.is_sound()


def test_a_pull_prunes_what_was_deleted_there(team: Team) -> None:
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    told = team.bob("pull", "--format", "text").out
    assert f"deleted on origin: thread {team.thread}; what is here stays" in told
    assert team.bob("pull", "origin", team.other, "--prune-deleted").json["pruned"] == []
    told = team.bob("pull", "--prune-deleted", "--format", "text").out
    assert told == (
        f"removed here, as on origin: thread {team.thread}; uwf thread restore {team.thread} brings it back\n"
    )
    assert set(team.bob.heads()) == {team.other}
    assert team.bob("pull", "--prune-deleted").json["pruned"] == []
    team.bob("thread", "restore", team.thread)
    assert set(team.bob.heads()) == {team.thread, team.other}
    assert team.bob("pull", "--prune-deleted").json["pruned"] == []
    assert team.bob("pull", "origin", team.thread, "--prune-deleted").json["pruned"] == [team.thread]
    team.bob.is_sound()


def test_a_pull_prunes_no_thread_with_steps_that_the_remote_never_had(team: Team) -> None:
    team.bob.steps(team.thread)
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    pulled = team.bob("pull", "--prune-deleted", "--yes").json
    assert (pulled["pruned"], pulled["kept"]) == ([], [team.thread])
    told = team.bob("pull", "--prune-deleted", "--format", "text").out
    assert f"kept here, with steps that origin never had: thread {team.thread}" in told
    assert set(team.bob.heads()) == {team.thread, team.other}
    assert team.bob("pull", "origin", team.thread, "--prune-deleted").json["pruned"] == [team.thread]
    team.bob.is_sound()


def test_a_pull_from_a_remote_that_was_emptied_prunes_nothing_unasked(team: Team, tmp_path: Path) -> None:
    subprocess.run(
        ["git", "init", "-q", "--bare", "--object-format=sha1", tmp_path / "empty.git"], check=True
    )
    commands.git("--git-dir", team.bob.store, "remote", "set-url", "origin", tmp_path / "empty.git")
    for _ in range(2):
        asked = team.bob("pull", "--prune-deleted", check=2)
        assert asked.json["pruned"] == []
        assert "2 threads would be removed here" in asked.error["message"]
        assert "--prune-deleted --yes" in asked.error["hint"]
    assert set(team.bob.heads()) == {team.thread, team.other}
    pruned = team.bob("pull", "--prune-deleted", "--yes").json["pruned"]
    assert set(pruned) == {team.thread, team.other}
    team.bob("thread", "restore", team.thread)
    assert team.bob("pull", "--prune-deleted").json["pruned"] == []
    assert set(team.bob.heads()) == {team.thread}
    team.bob.is_sound()


def test_a_pull_prunes_folded_threads_in_the_pull_that_hears_of_it(team: Team) -> None:
    team.ends_and_folds()
    team.ada("push", "origin", team.thread, "--delete")
    pulled = team.bob("pull", "--prune-deleted").json
    assert pulled["pruned"] == [team.thread]
    assert set(team.bob.heads()) == {team.other}
    team.bob("thread", "restore", team.thread)
    assert set(team.bob.heads()) == {team.thread, team.other}
    team.bob.is_sound()


def test_a_running_thread_is_not_pruned(team: Team) -> None:
    team.ada("thread", "rm", team.thread, "--remote", "origin", "--yes")
    bob = Instance(locate(str(team.bob.root), {}, Path.cwd()))
    with bob.locks.hold(ThreadId(team.thread)):
        done = team.bob("pull", "--prune-deleted", check=4)
    assert done.json["pruned"] == [] and team.thread in done.error["message"]
    assert set(team.bob.heads()) == {team.thread, team.other}


def test_threads_that_ended_long_ago_are_listed_then_removed(team: Team) -> None:
    team.ada("thread", "kill", team.thread)
    assert team.ada("thread", "rm", "--ended", "--older-than", "90d").json == []
    would = team.ada("thread", "rm", "--ended", "--until", LATER, check=2, env={"UWF_FORMAT": "text"})
    assert team.thread in would.out and "repeat with --yes" in would.err
    assert set(team.ada.heads()) == {team.thread, team.other}
    (done,) = team.ada("thread", "rm", "--ended", "--until", LATER, "--yes").json
    assert (done["thread"], done["removed"]) == (team.thread, True)
    assert set(team.ada.heads()) == {team.other}
