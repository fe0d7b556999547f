"""A store of an earlier program comes along: workflows, threads step by step with their times, every node by its hash.
The stores are written by a program of its own, tests/doubles/json_cas_store.mjs, and not by this library."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, Uwf
from doubles.commands import UWF, begin, git
from doubles.old_stores import ACTIVE, BEGUN, ENDED, EPOCH, WRITER, OldStore, reviewed
from programs import program

VECTORS = Path(__file__).parents[1] / "values" / "vectors.json"


def test_the_writer_of_old_stores_agrees_with_the_reference_implementation() -> None:
    done = subprocess.run(
        [program("node"), str(WRITER), "check"],
        stdin=VECTORS.open(),
        capture_output=True,
        text=True,
        check=True,
    )
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    assert json.loads(done.stdout) == {"met": len(vectors), "wrong": []}


@pytest.fixture
def old(tmp_path: Path) -> OldStore:
    return reviewed(tmp_path / "old")


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_the_example_is_what_the_writer_makes(old: OldStore) -> None:
    made = {
        str(path.relative_to(old.root)): path.read_bytes() for path in old.root.rglob("*") if path.is_file()
    }
    example = EXAMPLES / "old-store"
    assert made == {
        str(path.relative_to(example)): path.read_bytes() for path in example.rglob("*") if path.is_file()
    }


def refs(root: Path) -> str:
    return git("--git-dir", root / "store.git", "for-each-ref")


def states(value: dict[str, Any]) -> dict[str, tuple[str, int, str]]:
    return {each["thread"]: (each["status"], each["steps"], each["state"]) for each in value["threads"]}


def test_workflows_threads_and_nodes_come_along_and_the_source_stays_as_it_is(
    uwf: Uwf, old: OldStore, root: Path
) -> None:
    before = snapshot(old.root)
    found = uwf("import", old.root).json
    assert snapshot(old.root) == before
    assert [(each["name"], each["versions"]) for each in found["workflows"]] == [("solve-issue", 2)]
    assert states(found) == {
        ACTIVE: ("active", 2, "new"),
        BEGUN: ("active", 0, "new"),
        ENDED: ("completed", 4, "new"),
    }
    assert found["untaken"] == found["warnings"] == []
    assert found["nodes"] == found["taken"] == len(set(old.hashes.values()))
    for hash_ in set(old.hashes.values()):
        assert uwf("cas", "has", hash_).json == {"exists": True}
    assert uwf("verify").json["findings"] == []
    assert not [each for each in uwf("doctor").json if each["status"] != "ok" and each["check"] != "config"]


def test_a_step_keeps_its_time_its_agent_its_answer_its_turns_and_its_own_node(
    uwf: Uwf, old: OldStore, root: Path
) -> None:
    uwf("import", old.root)
    steps = uwf("thread", "steps", ENDED).json
    step = next(each for each in steps if each["role"] == "reviewer")
    original = json.loads((uwf("cas", "get", old.hashes["two"])).out)
    made = uwf("cas", "get", step["step"]).json
    assert made["timestamp"] == original["timestamp"]
    detail = uwf("cas", "get", made["payload"]["detail"]).json["payload"]
    assert (detail["source"], detail["nodes"]) == (old.hashes["two"], [old.hashes["two"]])
    assert detail["answer"].startswith("two: ") and detail["model"] == "sonnet"
    turns = [uwf("cas", "get", each).json["payload"] for each in detail["turns"]]
    assert [(each["role"], each.get("tool"), each.get("result")) for each in turns] == [
        ("assistant", None, None),
        ("tool", "ls", "files of two"),
        ("assistant", None, None),
    ]
    store = root / "store.git"
    log = git("--git-dir", store, "log", "--format=%an %at %s", f"refs/uwf/archive/{ENDED}").splitlines()
    assert log[2] == f"uwf-hermes {original['timestamp'] // 1000} 0002 reviewer: not approved"
    ended = git(
        "--git-dir", store, "for-each-ref", "--format=%(taggerdate:unix)", f"refs/uwf/archive/{ENDED}"
    )
    assert int(ended) == (EPOCH + 90_000) // 1000
    # A pushed thread takes the nodes along that it was made from.
    names = git("--git-dir", store, "ls-tree", "-r", "--name-only", f"refs/uwf/archive/{ENDED}")
    assert f"steps/0002-reviewer/nodes/{old.hashes['two']}.json" in names


def test_an_imported_thread_goes_on_here(uwf: Uwf, old: OldStore) -> None:
    uwf("import", old.root)
    assert uwf("thread", "show", ACTIVE).json["next"] == "planner"
    assert uwf("thread", "run", ACTIVE, "--agent", "uwf-rehearse").lines[-1]["status"] == "completed"
    fork = uwf("thread", "fork", ENDED, "--from-role", "reviewer").json["thread"]
    assert uwf("thread", "step", fork, "--agent", "uwf-rehearse").json["role"] == "reviewer"
    assert uwf("verify").json["findings"] == []
    again = uwf("import", old.root).json
    assert states(again)[ACTIVE] == ("completed", 2, "here")
    assert again["untaken"] == []


def test_asked_again_it_changes_nothing_and_takes_what_is_new(uwf: Uwf, old: OldStore, root: Path) -> None:
    uwf("import", old.root)
    first = refs(root)
    again = uwf("import", old.root).json
    assert refs(root) == first
    assert again["taken"] == 0
    assert {each["state"] for each in (*again["workflows"], *again["threads"])} == {"here"}
    old.workflow("third", maker="thinker")
    old.step("five", "start", "two", "planner", {"plan": "another"})
    old.write().says("threads.yaml", f"{ACTIVE}: <five>\n{BEGUN}: <idea>\n")
    old.says("registry.yaml", "solve-issue: <third>\n")
    grown = uwf("import", old.root).json
    assert states(grown)[ACTIVE] == ("active", 3, "grown")
    assert [(each["versions"], each["state"]) for each in grown["workflows"]] == [(3, "grown")]
    assert uwf("verify").json["findings"] == []


def test_two_who_import_the_same_store_get_the_same_commits(
    uwf: Uwf, old: OldStore, root: Path, tmp_path: Path
) -> None:
    uwf("import", old.root)
    other = tmp_path / "other"
    env = {"GIT_COMMITTER_NAME": "Somebody", "GIT_COMMITTER_EMAIL": "else@example.com", "TZ": "Asia/Tokyo"}
    uwf("--root", other, "import", old.root, env=env)
    assert refs(other) == refs(root)


def test_a_dry_run_says_the_same_and_leaves_no_trace(uwf: Uwf, old: OldStore, root: Path) -> None:
    planned = uwf("import", old.root, "--dry-run").json
    assert not root.exists() or not (root / "store.git").exists()
    assert planned.pop("dryRun") is True
    uwf("init")
    before = snapshot(root / "store.git" / "objects"), refs(root)
    assert uwf("import", old.root, "--dry-run").json == {**planned, "dryRun": True}
    assert (snapshot(root / "store.git" / "objects"), refs(root)) == before
    assert uwf("import", old.root).json == {**planned, "dryRun": False}


def test_a_definition_that_was_put_here_before_is_the_same_version(
    uwf: Uwf, old: OldStore, root: Path, tmp_path: Path
) -> None:
    uwf("import", old.root)
    version = uwf("workflow", "show", "solve-issue").json["hash"]
    definition = tmp_path / "again.yaml"
    source = git("--git-dir", root / "store.git", "show", "refs/uwf/workflows/solve-issue:workflow.yaml")
    definition.write_text(source, encoding="utf-8")
    other = tmp_path / "other"
    assert uwf("--root", other, "workflow", "put", definition).json["hash"] == version


def test_what_is_not_sound_is_named_and_the_rest_comes_along(uwf: Uwf, old: OldStore, tmp_path: Path) -> None:
    cas = old.root / "cas"
    old.start("bad", "review", "Bad outputs.")
    old.step("odd", "bad", None, "planner", {"plans": "no such field"}, kind="Text")
    old.step("unknown", "bad", None, "stranger", {"plan": "who?"})
    old.write()
    damaged = old.file("two.3")  # a turn of the second step
    data = bytearray(damaged.read_bytes())
    data[-30] ^= 1
    damaged.write_bytes(data)
    swapped = old.file("three")
    swapped.write_bytes(old.file("one").read_bytes())
    (cas / "NOTAHASH.bin").write_bytes(b"\xa0")
    (cas / f"{'0' * 13}.bin").symlink_to("/etc/passwd")
    (cas / f"{'1' * 13}.bin").write_bytes(b"\x81" * 5000)
    (cas / f"{'2' * 13}.bin").mkdir()
    threads = {
        ACTIVE: "<two>", BEGUN: "<idea>", "not-a-ulid": "<two>", "01JVKW0000000000000000000A": "no hash",
        "01JVKW0000000000000000000B": "<odd>", "01JVKW0000000000000000000C": "<unknown>",
        "01JVKW0000000000000000000D": "7ZZZZZZZZZZZZ",
    }  # fmt: skip
    old.says("threads.yaml", "".join(f"{key}: {value}\n" for key, value in threads.items()))
    old.says("registry.yaml", "solve-issue: <review>\n../../etc: <review>\nother: <review>\nnode: <note>\n")
    with (old.root / "history.jsonl").open("a") as file:
        file.write("not json\n[1]\n{}\n")
    found = uwf("import", old.root).json
    reasons = {(each["kind"], each["name"]): each["reason"] for each in found["untaken"]}
    assert set(states(found)) == {ACTIVE, BEGUN}
    for key, words in {
        ("thread", ENDED): "damaged: its hash is",
        ("thread", "not-a-ulid"): "not a ULID",
        ("thread", "01JVKW0000000000000000000A"): "head is not a hash",
        ("thread", "01JVKW0000000000000000000B"): "breaks the schema of planner",
        ("thread", "01JVKW0000000000000000000C"): "no role stranger",
        ("thread", "01JVKW0000000000000000000D"): "does not exist",
        ("workflow", "../../etc"): "its name may have",
        ("workflow", "other"): "is called 'solve-issue'",
        ("workflow", "node"): "not a Workflow",
        ("node", "NOTAHASH.bin"): "not a hash",
        ("node", "0000000000000.bin"): "a link, which isn't followed",
        ("node", "1111111111111.bin"): "nested deeper",
        ("node", "2222222222222.bin"): "not a plain file",
        ("file", "history.jsonl:2"): "not JSON",
        ("file", "history.jsonl:3"): "not an object",
        ("file", "history.jsonl:4"): "names no thread",
    }.items():
        assert words in reasons[key], (key, reasons.get(key))
    # The step whose turn is lost is there with the rest of what it said, and tells what is missing.
    step = uwf("thread", "steps", ACTIVE).json[-1]
    detail = uwf("cas", "get", uwf("cas", "get", step["step"]).json["payload"]["detail"]).json["payload"]
    assert detail["source"] == old.hashes["two"] and old.hashes["two.out"] in detail["nodes"]
    assert "did not come along" in detail["notes"][0]
    assert uwf("verify").json["findings"] == []
    before = uwf("import", old.root).json
    assert {each["state"] for each in before["threads"]} == {"here"}


@pytest.mark.parametrize("name", ["cas", "threads.yaml", "history.jsonl", "registry.yaml"])
def test_a_link_out_of_the_folder_is_not_followed(uwf: Uwf, old: OldStore, tmp_path: Path, name: str) -> None:
    away = tmp_path / "away"
    shutil.move(old.root / name, away)
    (old.root / name).symlink_to(away)
    found = uwf("import", old.root).json
    assert any("a link, which isn't followed" in each["reason"] for each in found["untaken"])


def test_a_yaml_bomb_and_a_folder_of_something_else_are_refused(
    uwf: Uwf, old: OldStore, tmp_path: Path
) -> None:
    bomb = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
    old.says("threads.yaml", bomb)
    found = uwf("import", old.root).json
    assert {each["name"] for each in found["untaken"]} == {"threads.yaml"}
    assert set(states(found)) == {ENDED}
    empty = tmp_path / "empty"
    empty.mkdir()
    assert (
        uwf("import", empty, check=None)
        .error["message"]
        .endswith("is not a storage root of an earlier program")
    )
    assert uwf("import", tmp_path / "none", check=None).error["code"] == "not_found"


def test_a_secret_in_an_old_answer_does_not_reach_the_store(uwf: Uwf, old: OldStore, root: Path) -> None:
    secret = "sup3r-s3cret-value-of-a-key"
    root.mkdir(parents=True, exist_ok=True)
    (root / ".env").write_text(f"MY_API_KEY={secret}\n")
    old.step("five", "start", "two", "planner", {"plan": f"use {secret}"})
    old.write().says("threads.yaml", f"{ACTIVE}: <five>\n")
    found = uwf("import", old.root).json
    assert states(found)[ACTIVE] == ("active", 3, "new")
    assert "holds a secret" in json.dumps(found["untaken"])
    assert "use [redacted:MY_API_KEY]" in uwf("thread", "read", ACTIVE).out
    store = root / "store.git"
    objects = git(
        "--git-dir", store, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"
    )
    blobs = [line.split()[0] for line in objects.splitlines() if line.endswith("blob")]
    assert secret not in git("--git-dir", store, "cat-file", "--batch", data="\n".join(blobs) + "\n")


def test_an_id_that_another_thread_has_here_stays_that_threads(uwf: Uwf, old: OldStore, root: Path) -> None:
    uwf("import", old.root)
    old.start("else", "review", "Something else.")
    old.write().says("threads.yaml", f"{ACTIVE}: <else>\n{BEGUN}: <idea>\n")
    before = refs(root)
    found = uwf("import", old.root).json
    assert {
        "kind": "thread",
        "name": ACTIVE,
        "reason": "another thread with its id is here already",
    } in found["untaken"]
    assert f"refs/uwf/threads/{ACTIVE}" in before and refs(root).count(ACTIVE) == 1


def many(root: Path, threads: int) -> OldStore:
    """A store whose import takes a while."""
    store = OldStore(root)
    store.workflow("review")
    heads = []
    for number in range(threads):
        store.start(f"s{number}", "review", f"Task {number}")
        store.step(f"a{number}", f"s{number}", None, "planner", {"plan": f"the plan of {number}"})
        store.step(
            f"b{number}", f"s{number}", f"a{number}", "reviewer", {"approved": True, "comments": "fine"}
        )
        heads.append(f"01JVKW{number:020d}: <b{number}>\n")
    store.write()
    lines = "".join(heads)
    for label in [label for label in store.hashes if label.startswith("b")]:
        lines = lines.replace(f"<{label}>", store.hashes[label])
    (store.root / "threads.yaml").write_text(lines)
    return store


@pytest.mark.extended
@pytest.mark.parametrize("pieces", ["begun", "further"])
def test_a_killed_import_leaves_a_sound_store_and_the_next_one_takes_the_rest(
    uwf: Uwf, root: Path, tmp_path: Path, pieces: str
) -> None:
    old = many(tmp_path / "old", 240)
    uwf("init")
    packs = root / "store.git" / "objects" / "pack"
    running = begin("import", old.root)
    size = {"begun": 1, "further": 60_000}[pieces]
    while (
        not any(path.stat().st_size >= size for path in packs.glob(".tmp-uwf-pack-*"))
        and running.poll() is None
    ):
        time.sleep(0.002)
    running.kill()
    running.wait()
    verified = uwf("verify", check=None)
    assert verified.json["findings"] == [] if refs(root) else verified.code == 13
    found = uwf("import", old.root).json
    assert found["untaken"] == [] and len(found["threads"]) == 240
    assert uwf("verify").json["verified"]["threads"] == 240
    other = tmp_path / "other"
    uwf("--root", other, "import", old.root)
    assert refs(other) == refs(root)


def test_what_a_broken_off_import_stored_without_refs_is_taken_again(
    uwf: Uwf, old: OldStore, root: Path
) -> None:
    whole, before = uwf("import", old.root).json, refs(root)
    # As one leaves it that is killed, or finds no more room, between its objects and its refs.
    for ref_ in git("--git-dir", root / "store.git", "for-each-ref", "--format=%(refname)").split():
        if not ref_.startswith("refs/uwf/workflows/"):
            git("--git-dir", root / "store.git", "update-ref", "-d", ref_)
    half = uwf("import", old.root, "--dry-run").json
    assert (half["taken"], states(half)) == (whole["taken"], states(whole))
    again = uwf("import", old.root).json
    assert "older than it was" in again.pop("warnings")[0]  # the refs were deleted here, not never made
    half.pop("warnings")
    assert again == {**half, "dryRun": False}
    assert refs(root) == before
    uwf("gc", "--prune")
    for hash_ in set(old.hashes.values()):
        assert uwf("cas", "has", hash_).json == {"exists": True}


def test_a_terminal_shows_how_far_it_is_on_a_line_that_goes(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    old = many(tmp_path / "old", 240)
    uwf("init")
    outer, inner = pty.openpty()
    child = subprocess.Popen([*UWF, "import", old.root], stderr=inner, stdout=subprocess.DEVNULL)
    os.close(inner)
    packs = root / "store.git" / "objects" / "pack"
    while not any(packs.glob(".tmp-uwf-pack-*")) and child.poll() is None:
        time.sleep(0.002)
    child.send_signal(signal.SIGSTOP)  # a line is drawn once it has taken a second
    time.sleep(1.2)
    child.send_signal(signal.SIGCONT)
    shown = bytearray()
    with contextlib.suppress(OSError):  # the other end is closed
        while data := os.read(outer, 4096):
            shown.extend(data)
    os.close(outer)
    assert child.wait(60) == 0
    assert re.search(r"taking threads +[#·]{20} +[0-9]+%  [0-9]+ of 240", shown.decode())
    assert shown.decode().endswith("\r\x1b[K")


def test_a_key_that_is_none_costs_only_itself_and_a_file_that_is_not_yaml_is_named(
    uwf: Uwf, old: OldStore
) -> None:
    old.says("threads.yaml", f"12345: <one>\n{ACTIVE}: <two>\n'odd\t ': <one>\n{BEGUN}: <idea>\n")
    old.says("registry.yaml", "solve-issue: <review>\nother: [\n")
    found = uwf("import", old.root).json
    assert {each["thread"] for each in found["threads"]} == {ACTIVE, BEGUN, ENDED}
    assert {each["name"] for each in found["untaken"]} == {"12345", '"odd\\t "', "registry.yaml"}
    assert found["workflows"] == []


def test_a_refused_import_makes_no_store(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere", "/dev/null"):
        assert uwf("import", folder, check=None).code != 0
        assert not (root / "store.git").exists()


def test_a_thread_that_went_on_here_and_there_is_told_what_to_do(
    uwf: Uwf, old: OldStore, root: Path, tmp_path: Path
) -> None:
    uwf("import", old.root)
    uwf("thread", "step", ACTIVE, "--agent", "uwf-rehearse")
    old.says("threads.yaml", f"{ACTIVE}: <three>\n{BEGUN}: <idea>\n")
    (untaken,) = uwf("import", old.root).json["untaken"]
    assert untaken["name"] == ACTIVE
    assert "continued here and there; to have both, import into a root of its own" in untaken["reason"]
