"""A store that is older than it was, or that somebody else has changed, is told by the user's log of heads."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli_samples import GATE, PAIR, WRITES, scripted, write
from commands import UWF, git
from conftest import Uwf

from uwf_git.git.libgit2 import Oid
from uwf_git.git.repository import RefMove, Repository
from uwf_git.store import witness, witness_log
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location
from uwf_git.store.witness_log import GONE, LOST, SAW, UNKNOWN, WRITER, WROTE, Witnessed, WitnessLog

ACCEPT = "uwf doctor --accept-store"


@pytest.fixture
def store(root: Path) -> Path:
    return root / "store.git"


@pytest.fixture
def state(hermetic: Path) -> Path:
    return hermetic / ".local/state/uwf/witness"


@pytest.fixture
def stepped(uwf: Uwf, thread: str) -> str:
    """A thread with a step."""
    uwf("thread", "step", thread)
    return thread


def log_in(state: Path) -> Path:
    (path,) = state.glob("*.log")
    return path


def ref_of(thread: str) -> str:
    return f"refs/uwf/threads/{thread}"


def point(store: Path, ref: str, to: str) -> None:
    git("--git-dir", store, "update-ref", ref, git("--git-dir", store, "rev-parse", to))


def codes(uwf: Uwf, check: int) -> set[str]:
    return {each["code"] for each in uwf("verify", check=check).json["findings"]}


def warnings(uwf: Uwf) -> set[str]:
    return {each["code"] for each in uwf("verify").json["warnings"]} - {"rehearsed"}


def forge(store: Path, thread: str) -> None:
    """Append a step as another uwf without a state folder would make it."""
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    subprocess.run([*UWF, "thread", "step", thread], env=env, check=True, capture_output=True)


def test_a_truncated_thread_is_told_by_verify_doctor_and_the_first_write(
    uwf: Uwf, store: Path, stepped: str
) -> None:
    assert codes(uwf, 0) == set()
    head = git("--git-dir", store, "rev-parse", ref_of(stepped))
    point(store, ref_of(stepped), f"{head}~1")
    (finding,) = uwf("verify", check=12).json["findings"]
    assert (finding["code"], finding["thread"]) == ("rolled-back", stepped) and head[:10] in finding[
        "message"
    ]
    (check,) = [each for each in uwf("doctor", "--quick", check=1).json if each["check"] == "witness"]
    assert check["status"] == "error" and ACCEPT in check["hint"]
    point(store, ref_of(stepped), head)
    assert codes(uwf, 0) == set()
    point(store, ref_of(stepped), f"{head}~1")
    assert "older than it was" in uwf("thread", "start", "pair", "-p", "Another").err  # and goes on
    assert codes(uwf, 12) == {"rolled-back"}


def set_back(store: Path, ref: str) -> str:
    """Point a ref at the commit before; return where it was."""
    head = git("--git-dir", store, "rev-parse", ref)
    point(store, ref, f"{ref}~1")
    return head


def restored(error: str) -> None:
    """Run the command by which an error says that a head is restored."""
    (command,) = re.findall(r"restore it with: (git .*?);", error)
    subprocess.run(["sh", "-c", command], check=True)


@pytest.mark.parametrize("command", ["step", "run"])
def test_nothing_is_recorded_on_a_head_that_was_set_back_until_it_is_restored_or_accepted(
    uwf: Uwf, store: Path, stepped: str, command: str
) -> None:
    head = set_back(store, ref_of(stepped))
    before = git("--git-dir", store, "for-each-ref")
    refused = uwf("thread", command, stepped, "--format", "text", check=12).err
    (line,) = refused.splitlines()
    assert stepped in line and head in line and ACCEPT in line
    assert '"code":"rolled_back"' in uwf("thread", command, stepped, check=12).err
    assert git("--git-dir", store, "for-each-ref") == before
    restored(refused)
    uwf("thread", "step", stepped)
    assert codes(uwf, 0) == set()
    set_back(store, ref_of(stepped))
    uwf("thread", command, stepped, check=12)
    uwf("doctor", "--quick", "--accept-store")
    uwf("thread", command, stepped)
    assert codes(uwf, 0) == set()


def test_a_thread_that_was_set_back_can_be_read_and_removed(uwf: Uwf, store: Path, stepped: str) -> None:
    set_back(store, ref_of(stepped))
    assert not uwf("thread", "show", stepped).err and not uwf("thread", "list").err
    assert uwf("thread", "kill", stepped, check=12).error["code"] == "rolled_back"
    assert "older than it was" in uwf("thread", "rm", stepped, "--yes").err


@pytest.mark.parametrize("other", ["a fork", "a failed attempt"])
def test_a_head_that_was_set_back_is_told_though_another_ref_has_its_steps(
    uwf: Uwf, store: Path, stepped: str, other: str
) -> None:
    if other == "a fork":
        uwf("thread", "fork", stepped)
    else:
        uwf("thread", "step", stepped, "--agent", "false", check=6)
    head = set_back(store, ref_of(stepped))
    assert head[:10] in uwf("thread", "step", stepped, check=12).error["message"]
    assert codes(uwf, 12) == {"rolled-back"}


@pytest.mark.parametrize("prune", [(), ("--prune",)])
def test_what_a_lost_head_leads_to_is_not_collected(
    uwf: Uwf, store: Path, stepped: str, prune: tuple[str, ...]
) -> None:
    head = set_back(store, ref_of(stepped))
    refused = uwf("gc", *prune, "--format", "text", check=12).err
    assert git("--git-dir", store, "cat-file", "-t", head) == "commit"
    restored(refused)
    uwf("gc", *prune)
    assert codes(uwf, 0) == set()


def test_a_deletion_counts_as_ones_own_until_the_thread_is_restored(
    uwf: Uwf, store: Path, stepped: str
) -> None:
    uwf("thread", "rm", stepped, "--yes")
    uwf("thread", "restore", stepped)
    git("--git-dir", store, "update-ref", "-d", ref_of(stepped))
    for path in (store / "uwf").glob("index.db*"):  # it knows of the ref too
        path.unlink()
    assert codes(uwf, 12) == {"rolled-back"}


def test_a_thread_whose_end_is_gone_is_not_ended_once_more(uwf: Uwf, store: Path, stepped: str) -> None:
    uwf("thread", "kill", stepped)
    tag = git("--git-dir", store, "rev-parse", f"refs/uwf/archive/{stepped}")
    point(store, ref_of(stepped), f"{tag}^{{commit}}")
    git("--git-dir", store, "update-ref", "-d", f"refs/uwf/archive/{stepped}")
    refused = uwf("thread", "step", stepped, "--format", "text", check=12).err
    assert tag in refused
    restored(refused)
    assert uwf("thread", "show", stepped).json["status"] == "killed"


def test_no_answer_is_recorded_on_a_head_that_was_set_back(uwf: Uwf, store: Path) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    thread = uwf("thread", "start", "gated", "-p", "Do it").json["thread"]
    uwf("thread", "step", thread, "--agent", scripted(WRITES))
    answer = ("thread", "answer", thread, "-f", "decision=change")
    uwf(*answer)
    set_back(store, ref_of(thread))
    refused = uwf(*answer, "--format", "text", check=12).err
    assert thread in refused
    restored(refused)
    assert uwf("thread", "show", thread).json["next"] == "writer"


def test_no_version_is_registered_after_one_that_a_workflow_was_set_back_to(
    uwf: Uwf, store: Path, thread: str
) -> None:
    def put(word: str) -> tuple[str, ...]:
        return ("workflow", "put", str(write("pair.yaml", PAIR.replace("Writes a text", word))))

    uwf(*put("Writes a line"))
    head = set_back(store, "refs/uwf/workflows/pair")
    refused = uwf(*put("Writes a word"), "--format", "text", check=12).err
    assert head in refused
    restored(refused)
    uwf(*put("Writes a word"))
    assert git("--git-dir", store, "rev-parse", "refs/uwf/workflows/pair~1") == head


def test_a_head_that_was_broken_and_restored_by_doctors_command_raises_no_alarm(
    uwf: Uwf, store: Path, stepped: str
) -> None:
    head = git("--git-dir", store, "rev-parse", ref_of(stepped))
    (store / ref_of(stepped)).write_text("1" * 40 + "\n")
    uwf("thread", "step", stepped, check=7)
    (check,) = [each for each in uwf("doctor", "--quick", check=7).json if each["check"] == "witness"]
    assert head in check["hint"]
    restored(check["hint"])
    assert codes(uwf, 0) == set()
    uwf("thread", "step", stepped)


def test_a_head_whose_tree_lacks_the_page_is_damage_and_no_internal_error(
    uwf: Uwf, store: Path, stepped: str
) -> None:
    message = git("--git-dir", store, "log", "-1", "--format=%B", ref_of(stepped))
    tree = git("--git-dir", store, "mktree", data="")
    made = git("--git-dir", store, "commit-tree", tree, "-p", ref_of(stepped), "-m", message)
    point(store, ref_of(stepped), made)
    assert made in uwf("thread", "step", stepped, check=7).err


def test_an_older_copy_restored_in_place_is_told_until_it_is_accepted(
    uwf: Uwf, root: Path, stepped: str, tmp_path: Path
) -> None:
    shutil.copytree(root, tmp_path / "copy")
    uwf("thread", "step", stepped)
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    assert codes(uwf, 12) == {"rolled-back"}
    assert "accepted" in uwf("doctor", "--quick", "--accept-store", "--format", "text").out
    assert codes(uwf, 0) == set()
    uwf("thread", "step", stepped)
    assert codes(uwf, 0) == set()


@pytest.mark.parametrize("way", ["started", "stepped", "ended", "an end"])
def test_an_older_copy_that_lacks_a_whole_head_is_told(
    uwf: Uwf, root: Path, stepped: str, tmp_path: Path, way: str
) -> None:
    if way == "an end":
        shutil.copytree(root, tmp_path / "copy")
    other = stepped if way == "an end" else ""
    if not other:
        shutil.copytree(root, tmp_path / "copy")
        other = uwf("thread", "start", "pair", "-p", "Another").json["thread"]
    if way == "stepped":
        uwf("thread", "step", other)
    elif way != "started":
        uwf("thread", "run", other)
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    assert other in {each["thread"] for each in uwf("verify", check=12).json["findings"]}
    assert "older than it was" in uwf("thread", "start", "pair", "-p", "A third").err
    uwf("doctor", "--quick", "--accept-store")
    assert codes(uwf, 0) == set()


def test_a_deleted_ref_is_told_without_the_index(uwf: Uwf, store: Path, stepped: str) -> None:
    git("--git-dir", store, "update-ref", "-d", ref_of(stepped))
    checks = uwf("doctor", "--quick", check=7).json
    assert any(stepped in each["message"] for each in checks if each["check"] == "refs")
    assert not any(each["check"] == "witness" for each in checks)
    for path in (store / "uwf").glob("index.db*"):
        path.unlink()
    assert codes(uwf, 12) == {"rolled-back"}


def test_a_commit_with_another_committer_is_told(uwf: Uwf, store: Path, stepped: str) -> None:
    commit = git("--git-dir", store, "cat-file", "commit", ref_of(stepped))
    changed = commit.replace("\ncommitter Ada", "\ncommitter Eve") + "\n"
    forged = git("--git-dir", store, "hash-object", "-t", "commit", "-w", "--stdin", data=changed)
    point(store, ref_of(stepped), forged)
    assert "rolled-back" in codes(uwf, 12)


def test_a_step_that_nobody_here_wrote_is_uncertain_until_it_is_accepted(
    uwf: Uwf, store: Path, stepped: str
) -> None:
    forge(store, stepped)
    assert codes(uwf, 125) == {"unwitnessed"}
    point(store, ref_of(stepped), f"{ref_of(stepped)}~1")
    assert codes(uwf, 0) == set()  # what was uncertain is gone again


def test_what_is_written_on_a_step_that_nobody_wrote_does_not_hide_it(
    uwf: Uwf, store: Path, thread: str
) -> None:
    forge(store, thread)
    assert ACCEPT in uwf("thread", "step", thread).err
    assert ACCEPT not in uwf("thread", "pause", thread, check=None).err
    assert codes(uwf, 125) == {"unwitnessed"}
    uwf("doctor", "--quick", "--accept-store")
    assert codes(uwf, 0) == set()


@pytest.mark.parametrize("lost", [30, 400], ids=["torn", "lost"])
def test_lines_that_the_log_lost_are_known_from_their_announcements(
    uwf: Uwf, state: Path, stepped: str, lost: int
) -> None:
    log = log_in(state)
    data = log.read_bytes()
    log.write_bytes(data[:-lost])
    assert codes(uwf, 0) == set() and warnings(uwf) == set()
    uwf("thread", "step", stepped)
    assert codes(uwf, 0) == set() and warnings(uwf) == set()


def test_a_restored_home_raises_no_alarm(uwf: Uwf, state: Path, stepped: str, tmp_path: Path) -> None:
    shutil.copytree(state, tmp_path / "backup")
    uwf("thread", "step", stepped)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    assert codes(uwf, 0) == set() and warnings(uwf) == set()
    shutil.rmtree(state)
    assert codes(uwf, 0) == set() and warnings(uwf) == set()


def test_after_another_start_of_the_machine_a_lost_line_is_a_warning(
    uwf: Uwf, store: Path, state: Path, thread: str
) -> None:
    log = WitnessLog(state, store, store / "uwf")
    log.open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(witness_log, "boot", lambda: 7)
        head = git("--git-dir", store, "rev-parse", ref_of(thread))
        log.append([(SAW, ref_of(thread), "-", head)])
    forge(store, thread)
    assert warnings(uwf) == {"unwitnessed"}
    uwf("doctor", "--quick", "--accept-store")
    assert warnings(uwf) == set()


def test_honest_work_raises_no_alarm(uwf: Uwf, root: Path, stepped: str, tmp_path: Path) -> None:
    other = uwf("thread", "start", "pair", "-p", "Another").json["thread"]
    uwf("thread", "fork", stepped)
    uwf("thread", "kill", other)
    uwf("thread", "restore", other, check=None)
    uwf("thread", "rm", other, "--yes")
    uwf("thread", "restore", other)
    uwf("workflow", "rm", "pair", "--yes")
    uwf("doctor", "--fix")
    uwf("gc")
    git("init", "--quiet", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    uwf("push", "hub")
    uwf("--root", tmp_path / "second", "clone", tmp_path / "hub.git")
    uwf("--root", tmp_path / "second", "thread", "step", stepped)
    uwf("thread", "step", stepped)
    uwf("--root", tmp_path / "second", "push")
    uwf("pull", "hub")  # ours becomes a fork
    for arguments in ((), ("--root", tmp_path / "second")):
        report = uwf(*arguments, "verify").json
        assert not report["findings"] and not [
            each for each in report["warnings"] if each["code"] == "unwitnessed"
        ]


def test_a_store_that_is_moved_copied_or_made_anew_raises_no_alarm(
    uwf: Uwf, root: Path, store: Path, state: Path, stepped: str, tmp_path: Path
) -> None:
    shutil.copytree(root, tmp_path / "copy")
    uwf("--root", tmp_path / "copy", "thread", "step", stepped)
    uwf("thread", "step", stepped)
    uwf("--root", tmp_path / "copy", "verify")
    shutil.rmtree(tmp_path / "copy")
    root.rename(tmp_path / "moved")
    assert uwf("--root", tmp_path / "moved", "verify").json["findings"] == []
    uwf("init")  # another store where the first one was
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("thread", "start", "pair", "-p", "Do it")
    assert codes(uwf, 0) == set()
    point(tmp_path / "moved/store.git", ref_of(stepped), f"{ref_of(stepped)}~1")
    assert uwf("--root", tmp_path / "moved", "verify", check=12)  # it is known where it is now


def test_what_others_push_into_a_projects_store_is_theirs(
    uwf: Uwf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    project = tmp_path / "project"
    git("init", "--quiet", project)
    monkeypatch.chdir(project)
    uwf("init", "--here")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    colleague = tmp_path / "colleague"
    git("init", "--quiet", "--bare", colleague)
    git("-C", colleague, "fetch", "--quiet", project, "refs/uwf/*:refs/uwf/*")
    (colleague / "uwf").mkdir()
    (colleague / "uwf/format").write_text("1\n")
    env = {**os.environ, "UWF_STORAGE_ROOT": str(tmp_path), "UWF_STORE": str(colleague)}
    home = {"HOME": str(tmp_path / "elsewhere"), "XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    uwf("thread", "step", thread, env=env | home)
    git("-C", colleague, "push", "--quiet", project, f"{ref_of(thread)}:{ref_of(thread)}")
    uwf("thread", "rm", thread, "--yes", env=home)  # another user of the same store
    assert uwf("verify", check=None).json["findings"] == []
    uwf("thread", "restore", thread)
    report = uwf("verify").json
    assert report["findings"] == [] and {each["code"] for each in report["warnings"]} <= {"rehearsed"}


def test_a_second_machine_that_shares_the_folder_is_uncertain_once(
    uwf: Uwf, thread: str, tmp_path: Path
) -> None:
    name = {f"GIT_{role}_{what}": "Eve" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    other = {"XDG_STATE_HOME": str(tmp_path / "other"), **name}
    uwf("thread", "step", thread, env=other)
    assert warnings(uwf) == {"unwitnessed"}
    uwf("doctor", "--quick", "--accept-store")
    again = uwf("thread", "start", "pair", "-p", "Again", env=other).json["thread"]
    uwf("thread", "step", again, env=other)
    assert warnings(uwf) == set() and codes(uwf, 0) == set()


def link(store: Path, way: str, tmp_path: Path) -> None:
    """Leave a symbolic link where the store or its root stands, and the folder behind it."""
    at = store if way == "store" else store.parent
    if at.is_symlink():
        at.unlink()
    else:
        at.rename(tmp_path / f"{way}.real")
    at.symlink_to(tmp_path / f"{way}.real")


@pytest.mark.parametrize("way", ["store", "root"])
def test_an_older_copy_behind_a_symbolic_link_is_told(
    uwf: Uwf, root: Path, store: Path, stepped: str, tmp_path: Path, way: str
) -> None:
    at = store if way == "store" else root
    shutil.copytree(at, tmp_path / "older")
    uwf("thread", "step", stepped)
    shutil.rmtree(at)
    at.symlink_to(tmp_path / "older")
    assert codes(uwf, 12) == {"rolled-back"}
    (check,) = [each for each in uwf("doctor", "--quick", check=1).json if each["check"] == "witness"]
    assert check["status"] == "error"


@pytest.mark.parametrize("way", ["store", "root"])
def test_an_older_copy_to_which_a_link_is_turned_or_that_replaces_it_is_told(
    uwf: Uwf, root: Path, store: Path, stepped: str, tmp_path: Path, way: str
) -> None:
    at = store if way == "store" else root
    link(store, way, tmp_path)
    assert codes(uwf, 0) == set() and warnings(uwf) == set()  # an honest move
    shutil.copytree(at, tmp_path / "older")
    shutil.copytree(at, tmp_path / "oldest")
    other = tmp_path / "older" if way == "root" else tmp_path / "oldest"
    uwf("--root", other, "verify", check=None)  # a copy that has a log of its own
    uwf("thread", "step", stepped)
    at.unlink()
    at.symlink_to(tmp_path / "older")
    assert codes(uwf, 12) == {"rolled-back"}
    at.unlink()
    at.symlink_to(tmp_path / f"{way}.real")
    assert codes(uwf, 0) == set()
    at.unlink()
    shutil.copytree(tmp_path / "oldest", at)
    assert codes(uwf, 12) == {"rolled-back"}


def test_a_store_that_is_moved_behind_links_and_back_raises_no_alarm(
    uwf: Uwf, root: Path, store: Path, stepped: str, tmp_path: Path
) -> None:
    for way in ("store", "root", "store"):
        link(store, way, tmp_path)
        assert codes(uwf, 0) == set() and warnings(uwf) == set()
        uwf("thread", "step", stepped, check=None)
    root.unlink()
    (tmp_path / "root.real").rename(root)
    assert codes(uwf, 0) == set() and warnings(uwf) == set()
    store.unlink()
    (tmp_path / "store.real").rename(store)
    assert codes(uwf, 0) == set() and warnings(uwf) == set()
    assert "every head" in uwf("doctor", "--quick", "--format", "text").out


def test_a_store_that_is_gone_is_told_until_that_is_accepted(uwf: Uwf, store: Path, stepped: str) -> None:
    uwf("thread", "start", "pair", "-p", "Another")
    shutil.rmtree(store)
    gone = "a store with 2 threads stood here"
    assert gone in uwf("verify", check=125).err
    (check,) = [each for each in uwf("doctor", "--quick", check=None).json if each["check"] == "store"]
    assert (check["status"], gone in check["message"], ACCEPT in check["hint"]) == ("warning", True, True)
    written = uwf("workflow", "put", write("pair.yaml", PAIR)).err
    assert gone in written and ACCEPT in written
    (finding,) = uwf("verify", check=125).json["findings"]
    assert finding["code"] == "unwitnessed" and gone in finding["message"] and ACCEPT in finding["message"]
    (check,) = [each for each in uwf("doctor", "--quick").json if each["check"] == "witness"]
    assert check["status"] == "warning" and gone in check["message"]
    uwf("doctor", "--quick", "--accept-store")
    assert codes(uwf, 0) == set()


def test_a_store_that_is_gone_is_accepted_before_there_is_a_new_one(
    uwf: Uwf, store: Path, stepped: str
) -> None:
    shutil.rmtree(store)
    assert "stood here" in uwf("doctor", "--quick", "--accept-store", "--format", "text").out
    assert "stood here" not in uwf("doctor", "--quick", "--format", "text").out
    assert "stood here" not in uwf("workflow", "put", write("pair.yaml", PAIR)).err
    assert codes(uwf, 0) == set()


def test_a_store_that_was_gone_and_is_back_raises_no_alarm(
    uwf: Uwf, root: Path, store: Path, stepped: str, tmp_path: Path
) -> None:
    shutil.copytree(store, tmp_path / "copy.git")
    shutil.rmtree(store)
    uwf("workflow", "put", write("pair.yaml", PAIR))
    git(
        "--git-dir", store, "fetch", "--quiet", tmp_path / "copy.git", "refs/uwf/threads/*:refs/uwf/threads/*"
    )
    assert codes(uwf, 0) == set()


@pytest.mark.parametrize("fresh", [False, True], ids=["a step", "a thread"])
def test_what_another_uwf_wrote_in_the_users_own_name_is_undecided(
    uwf: Uwf, thread: str, tmp_path: Path, fresh: bool
) -> None:
    other = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "other")}
    if fresh:
        thread = uwf("thread", "start", "pair", "-p", "Forged", env=other).json["thread"]
    uwf("thread", "step", thread, env=other)
    (finding,) = uwf("verify", check=125).json["findings"]
    assert (finding["code"], finding["thread"]) == ("unwitnessed", thread) and ACCEPT in finding["message"]
    uwf("doctor", "--quick", "--accept-store")
    assert codes(uwf, 0) == set()


@pytest.mark.parametrize("kind", ["commit", "blob"])
def test_an_object_that_git_shows_as_another_is_told(uwf: Uwf, store: Path, stepped: str, kind: str) -> None:
    oid = git("--git-dir", store, "rev-parse", ref_of(stepped) + ("" if kind == "commit" else "^{tree}"))
    if kind == "blob":
        oid = git("--git-dir", store, "ls-tree", "-r", oid).split()[2]
    text = git("--git-dir", store, "cat-file", kind, oid) + "\nlies\n"
    lie = git("--git-dir", store, "hash-object", "-t", kind, "-w", "--stdin", data=text)
    git("--git-dir", store, "replace", oid, lie)
    (finding,) = uwf("verify", stepped, check=7).json["findings"]
    assert (finding["code"], finding["object"]) == ("replaced", oid)
    checks = [each for each in uwf("doctor", "--quick", check=7).json if each["status"] == "error"]
    assert oid[:10] in checks[0]["message"] and "replace -d" in checks[0]["hint"]
    git("--git-dir", store, "replace", "-d", oid)
    assert codes(uwf, 0) == set()


def test_a_grafted_commit_is_told(uwf: Uwf, store: Path, stepped: str) -> None:
    head = git("--git-dir", store, "rev-parse", ref_of(stepped))
    (store / "info").mkdir(exist_ok=True)
    (store / "info/grafts").write_text(f"{head}\n")
    assert codes(uwf, 7) == {"replaced"}


def test_a_projects_own_replaced_commits_raise_no_alarm(
    uwf: Uwf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    project = tmp_path / "project"
    git("init", "--quiet", project)
    monkeypatch.chdir(project)
    for message in ("one", "two"):
        git("commit", "--quiet", "--allow-empty", "-m", message)
    uwf("init", "--here")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    git("replace", "HEAD", "HEAD~1")
    assert codes(uwf, 0) == set()
    git("replace", ref_of(thread), "HEAD~1")
    assert codes(uwf, 7) == {"replaced"}


def test_a_state_folder_that_cannot_be_written_hinders_nothing(uwf: Uwf, thread: str) -> None:
    env = {"XDG_STATE_HOME": "/dev/null"}
    assert not uwf("thread", "step", thread, env=env).err
    (warning,) = [each for each in uwf("verify", env=env).json["warnings"] if each["code"] == "unwitnessed"]
    assert "/dev/null" in warning["message"]
    (check,) = [each for each in uwf("doctor", "--quick", env=env).json if each["check"] == "witness"]
    assert check["status"] == "warning" and "XDG_STATE_HOME" in check["hint"]


def test_many_processes_append_to_one_chain(uwf: Uwf, store: Path, state: Path, thread: str) -> None:
    threads = [uwf("thread", "start", "pair", "-p", str(number)).json["thread"] for number in range(6)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda each: uwf("thread", "step", each), threads))
    log = WitnessLog(state, store, store / "uwf")
    assert not log.open()
    witnessed = log.read()
    assert not witnessed.is_torn and witnessed.heads.keys() >= {ref_of(thread)}
    assert codes(uwf, 0) == set()


def test_heads_that_others_move_between_the_readings_of_refs_and_log_raise_no_alarm(
    uwf: Uwf, root: Path, stepped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance(Location(root, root / "store.git"))
    read, commands = (
        witness._refs,
        iter([["thread", "run", stepped], ["thread", "start", "pair", "-p", "It"]]),
    )

    def read_early(repository: Repository) -> dict[str, str]:
        refs = read(repository)
        for command in commands:
            uwf(*command)
            break
        return refs

    monkeypatch.setattr(witness, "_refs", read_early)
    assert instance.witness.check() == []
    assert next(commands, None) is None
    assert codes(uwf, 0) == set()


def moves(numbers: Sequence[int]) -> list[tuple[str, str, str, str]]:
    return [(WROTE, f"refs/uwf/threads/T{number % 3}", "-", f"{number:040x}") for number in numbers]


@pytest.fixture
def log(tmp_path: Path) -> WitnessLog:
    made = WitnessLog(tmp_path / "logs", tmp_path / "store", tmp_path / "store/uwf")
    assert made.open()
    return made


def test_a_log_written_anew_goes_on_with_its_chain(log: WitnessLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(moves(range(2000)))
    log.append([(UNKNOWN, "refs/uwf/threads/T9", "-", f"{9:040x}")])
    before = log.read()
    size = log.path.stat().st_size
    monkeypatch.setattr(witness_log, "_MOST", 1000)
    log.compact(before)
    after = log.read()
    assert log.path.stat().st_size < size / 100
    assert (after.heads, after.unexplained) == (before.heads, before.unexplained)
    assert after.number > before.number and after.boot == before.boot
    log.append(moves([5]))
    assert not log.read().is_torn and log.read().heads["refs/uwf/threads/T2"] == f"{5:040x}"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"0000000000000000000000000000000000000001", b"f" * 40),
        lambda data: data[:-1],
        lambda data: data[:-10],
        lambda data: data + b"\0" * 4096,
        lambda data: b"\n".join(data.split(b"\n")[:2] + data.split(b"\n")[3:]),
    ],
    ids=["edited", "without its end", "torn", "zeros", "a line left out"],
)
def test_a_log_is_believed_as_far_as_its_chain_holds(
    log: WitnessLog, change: Callable[[bytes], bytes]
) -> None:
    log.append(moves(range(3)))
    whole = log.read()
    log.path.write_bytes(change(log.path.read_bytes()))
    part = log.read()
    assert part.is_torn and part.heads.items() <= whole.heads.items()
    log.compact(part)
    log.append(moves([7]))
    assert log.read().heads["refs/uwf/threads/T1"] == f"{7:040x}"


EVERY_KIND = [
    (UNKNOWN, "refs/uwf/threads/T9", "-", f"{9:040x}"),
    (LOST, "refs/uwf/threads/T1", f"{1:040x}", "-"),
    (GONE, "refs/uwf/threads/T8", f"{8:040x}", "-"),
    (WRITER, "0" * 16, "-", "-"),
]


def with_snapshot(log: WitnessLog) -> Witnessed:
    """Fill a log, write a snapshot of it, append a line; return its state."""
    log.append([*moves(range(200)), *EVERY_KIND])
    log.compact(log.read())
    log.append(moves([7]))
    state = log.read()
    assert 0 < state.snapshot < state.size and state.heads["refs/uwf/threads/T1"] == f"{7:040x}"
    return state


def test_only_the_lines_after_the_snapshot_are_read(log: WitnessLog, monkeypatch: pytest.MonkeyPatch) -> None:
    state, read = with_snapshot(log), []
    parsed = WitnessLog._parsed
    monkeypatch.setattr(WitnessLog, "_parsed", lambda log, *line: (read.append(line), parsed(log, *line))[1])
    assert log.read() == state and len(read) == 1
    log.path.with_suffix(".snapshot").unlink()
    assert log.read() == state._replace(snapshot=0)


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        (".snapshot", lambda data: b""),
        (".snapshot", lambda data: data[:-1]),
        (".snapshot", lambda data: data[:-41] + b"0" * 41),
        (".snapshot", lambda data: data.replace(f"{199:040x}".encode(), f"{5:040x}".encode())),
        (".snapshot", lambda data: b"\xff" * len(data)),
        (".log", lambda data: data[: len(data) // 2]),
        (".log", lambda data: data[: len(data) // 2] + bytes(len(data) // 2)),
    ],
    ids=["emptied", "torn", "other heads", "a head", "no text", "a log cut off", "a log of zeros"],
)
def test_a_snapshot_that_is_not_whole_or_not_of_this_log_is_not_believed(
    log: WitnessLog, suffix: str, change: Callable[[bytes], bytes]
) -> None:
    with_snapshot(log)
    path = log.path.with_suffix(suffix)
    path.write_bytes(change(path.read_bytes()))
    state = log.read()
    log.path.with_suffix(".snapshot").unlink()
    assert state == log.read() and not state.snapshot
    assert state.is_torn is (suffix == ".log")


def test_a_snapshot_does_not_outlive_its_log(log: WitnessLog, tmp_path: Path) -> None:
    with_snapshot(log)
    beside = log.path.with_suffix(".snapshot").read_bytes()
    log.compact(log.read()._replace(is_torn=True))
    anew = log.read()
    assert not anew.snapshot and not anew.is_torn
    other = WitnessLog(tmp_path / "logs", tmp_path / "other", tmp_path / "other/uwf")
    assert other.open()
    other.path.with_suffix(".snapshot").write_bytes(beside)
    assert not other.read().heads and not other.read().is_torn


@pytest.mark.parametrize("few", [0, 1 << 20])
def test_a_head_that_was_set_back_or_is_gone_is_told_by_the_snapshot(
    uwf: Uwf, root: Path, store: Path, state: Path, stepped: str, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(witness_log, "_FEW", few)
    assert Instance(Location(root, store)).witness.check() == []
    assert bool(list(state.glob("*.snapshot"))) is not bool(few)
    other = uwf("thread", "start", "pair", "-p", "Another").json["thread"]
    set_back(store, ref_of(stepped))
    git("--git-dir", store, "update-ref", "-d", ref_of(other))
    doubts = Instance(Location(root, store)).witness.check()
    assert {(doubt.kind, doubt.thread) for doubt in doubts} == {(LOST, stepped), (LOST, other)}


def long_log(store: Path, state: Path, thread: str) -> Path:
    """Append enough lines for a snapshot; return the log."""
    head = git("--git-dir", store, "rev-parse", ref_of(thread))
    log = WitnessLog(state, store, store / "uwf")
    log.open()
    log.append([(SAW, ref_of(thread), "-", head)] * 200)
    return log.path


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def instead(path: Path, kind: str) -> None:
    """Put something that is no regular file in a file's place."""
    path.unlink(missing_ok=True)
    match kind:
        case "a folder":
            path.mkdir()
            (path / "it").touch()
        case "a pipe":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")
        case "a link":
            path.symlink_to(path.with_suffix(".log"))


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a device", "a link"])
def test_what_stands_in_the_place_of_the_snapshot_changes_nothing_that_is_told(
    uwf: Uwf, store: Path, state: Path, stepped: str, kind: str
) -> None:
    path = long_log(store, state, stepped).with_suffix(".snapshot")
    instead(path, kind)
    names = names_in(state) | {path.name}
    set_back(store, ref_of(stepped))
    for _ in range(2):
        assert uwf("thread", "step", stepped, check=12).error["code"] == "rolled_back"
        assert codes(uwf, 12) == {"rolled-back"}
        assert names_in(state) == names
        if kind != "a folder":
            assert path.is_file() and not path.is_symlink()
            instead(path, kind)


def refused(log: Path) -> None:
    """Let no process of any user write a log."""
    log.with_suffix(".lock").unlink()
    log.with_suffix(".lock").mkdir()


def test_a_lost_head_is_told_each_time_though_the_log_cannot_be_written(
    uwf: Uwf, store: Path, state: Path, stepped: str
) -> None:
    other = uwf("thread", "start", "pair", "-p", "Another").json["thread"]
    refused(long_log(store, state, stepped))
    names = names_in(state)
    set_back(store, ref_of(stepped))
    for _ in range(2):
        assert uwf("thread", "step", stepped, check=12).error["code"] == "rolled_back"
        assert uwf("gc", check=12).error["code"] == "rolled_back"
        assert codes(uwf, 12) == {"rolled-back"}
        assert "older than it was" in uwf("thread", "step", other).err
        checks = [each for each in uwf("doctor", "--quick", check=1).json if each["check"] == "witness"]
        assert {each["status"] for each in checks} == {"error", "warning"}
    assert names_in(state) == names
    log_in(state).with_suffix(".lock").rmdir()
    assert codes(uwf, 12) == {"rolled-back"}
    uwf("doctor", "--quick", "--accept-store")
    assert codes(uwf, 0) == set()


def test_honest_work_raises_no_alarm_while_the_log_cannot_be_written(
    uwf: Uwf, store: Path, state: Path, stepped: str
) -> None:
    refused(log_in(state))
    other = uwf("thread", "start", "pair", "-p", "Another").json["thread"]
    uwf("thread", "step", stepped)
    uwf("thread", "kill", other)
    uwf("thread", "rm", stepped, "--yes")
    uwf("workflow", "put", write("pair.yaml", PAIR.replace("Writes a text", "Writes a line")))
    uwf("workflow", "rm", "pair", "--yes")
    for _ in range(2):
        assert codes(uwf, 0) == set()
    log_in(state).with_suffix(".lock").rmdir()
    assert codes(uwf, 0) == set()


@pytest.mark.parametrize("way", ["moved", "by a link"])
def test_a_store_whose_log_cannot_be_joined_is_compared_with_it(
    uwf: Uwf, root: Path, state: Path, stepped: str, tmp_path: Path, way: str
) -> None:
    (tmp_path / "moved").parent.mkdir(exist_ok=True)
    root.rename(tmp_path / "moved")
    if way == "by a link":
        root.symlink_to(tmp_path / "moved")
    set_back(tmp_path / "moved/store.git", ref_of(stepped))
    (state / WitnessLog(state, tmp_path / "moved/store.git", tmp_path).path.name).with_suffix(".lock").mkdir()
    named = ("--root", root if way == "by a link" else tmp_path / "moved")
    for _ in range(2):
        assert uwf(*named, "thread", "step", stepped, check=12).error["code"] == "rolled_back"


def test_lines_that_find_no_space_leave_the_log_whole(
    log: WitnessLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(moves(range(3)))
    before, names = log.read(), names_in(log.path.parent)
    os_write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os_write(descriptor, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            log.append(moves([7]))
        log.compact(before._replace(is_torn=True))
        patch.setattr(witness_log, "_FEW", 0)
        log.compact(before)
        other = WitnessLog(log.path.parent, log.path.parent / "other", log.path.parent / "other/uwf")
        with pytest.raises(OSError, match="No space"):
            other.open(lambda: {"refs/uwf/threads/T": f"{1:040x}"})
    assert log.read() == before
    assert names_in(log.path.parent) - names == {other.path.with_suffix(".lock").name}
    assert other.open(lambda: {"refs/uwf/threads/T": f"{1:040x}"})
    assert other.read().heads == {"refs/uwf/threads/T": f"{1:040x}"}


def test_a_log_that_a_power_cut_emptied_is_the_one_before(log: WitnessLog) -> None:
    log.append(moves(range(3)))
    log.path.replace(log.path.with_suffix(".before"))
    log.path.write_bytes(b"")
    assert log.read().heads.keys() == {f"refs/uwf/threads/T{number}" for number in range(3)}


def test_announcements_stay_small(log: WitnessLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness_log, "_MOST_ANNOUNCED", 10_000)
    for number in range(200):
        log.announce([RefMove("refs/uwf/threads/T", None, Oid(hex=f"{number:040x}"))])
    (path,) = (tmp_path / "store/uwf/witness").iterdir()
    assert path.stat().st_size < 11_000
    assert log.is_announced(log.announced(), "refs/uwf/threads/T", "-", f"{199:040x}")
    assert not log.is_announced(log.announced(), "refs/uwf/threads/U", "-", f"{199:040x}")
