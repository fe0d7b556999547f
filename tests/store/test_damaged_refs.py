"""What is damaged about refs is said, whatever asks for them, and is never taken for no refs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ONE
from commands import UWF, git
from conftest import Uwf
from faults import obeying_modes

from uwf_git.base.errors import StoreDamaged
from uwf_git.git.refs import read_ref, read_ref_ids, read_refs

READERS = [
    ["thread", "list", "--all"],
    ["thread", "list"],
    ["workflow", "list"],
    ["stats"],
    ["inbox"],
    ["verify"],
    ["doctor", "--quick"],
]
WAYS = {
    "emptied": lambda data: b"",
    "garbage": lambda data: os.urandom(300),
    "zeros": lambda data: bytes(len(data)),
    "a line of garbage": lambda data: data[:200] + b"\0\1\2\n" + data[200:],
    "the last line cut off": lambda data: data[:-3],
    "a fork of a ref": lambda data: data.replace(b" refs/", b"  refs/", 1),
}


@pytest.fixture
def store(root: Path) -> Path:
    return root / "store.git"


@pytest.fixture
def threads(uwf: Uwf, hermetic: Path, store: Path) -> list[str]:
    """Two threads that are active and one that has ended, all of them packed."""
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    made = [str(uwf("thread", "start", "one", "-p", "Do it").json["thread"]) for _ in range(3)]
    uwf("thread", "step", made[0])
    uwf("gc")
    uwf("thread", "list", "--all")
    assert not list((store / "refs/uwf").rglob("0*"))
    return made


def refs(store: Path) -> dict[str, str]:
    listed = git("--git-dir", store, "for-each-ref", "--format=%(refname) %(objectname)", "refs/uwf/")
    return dict(line.split() for line in listed.splitlines())


def errors(checks: Any) -> list[str]:
    return [each["message"] for each in checks if each["status"] == "error"]


@pytest.mark.parametrize("way", [*WAYS, "gone", "a folder", "a pipe", "a socket"])
def test_a_packed_refs_that_is_damaged_is_told_by_all_that_read_refs_and_put_right(
    uwf: Uwf, store: Path, threads: list[str], way: str
) -> None:
    before, packed = refs(store), store / "packed-refs"
    data = packed.read_bytes()
    packed.unlink()
    if way in WAYS:
        packed.write_bytes(WAYS[way](data))
    elif way == "a folder":
        packed.mkdir()
    elif way == "a pipe":
        os.mkfifo(packed)
    elif way == "a socket":
        os.mknod(packed, 0o140644)
    for reader in [*READERS, ["thread", "show", threads[1]], ["thread", "step", threads[1]]]:
        said = uwf(*reader, check=7)
        assert "packed-refs" in said.out + said.err and "doctor --fix" in said.out + said.err, reader
    fixed = uwf("doctor", "--fix").json
    assert not errors(fixed)
    assert refs(store) == before
    assert {each["thread"] for each in uwf("thread", "list", "--all").json} == set(threads)
    assert uwf("thread", "step", threads[1]).json["done"]
    assert not errors(uwf("doctor").json)


LISTS = (["workflow", "list"], ["stats"], ["crew", "list"], ["eval", "list"], ["eval", "baseline", "list"])


def test_a_line_that_went_from_packed_refs_without_a_trace_is_missed_by_doctor_and_brought_back(
    uwf: Uwf, store: Path, threads: list[str]
) -> None:
    before, packed = refs(store), store / "packed-refs"
    lost = [f"refs/uwf/threads/{threads[1]}", "refs/uwf/workflows/one", f"refs/uwf/archive/{threads[0]}"]
    lines = packed.read_text().splitlines(keepends=True)
    peeled = [at + 1 for at, line in enumerate(lines) if line.endswith(lost[2] + "\n")]
    kept = [line for at, line in enumerate(lines) if at not in peeled and line[41:].strip() not in lost]
    packed.write_text("".join(kept))
    listed = uwf("thread", "list", "--all")
    assert [each["thread"] for each in listed.json] == [threads[2]]
    for said in (listed, *(uwf(*words) for words in LISTS)):
        assert f"{min(lost)} and 2 more are gone" in said.err and "uwf doctor --fix" in said.err
    found = uwf("verify", check=7).json["findings"]
    assert {(each["code"], each["ref"]) for each in found} >= {("missing-ref", name) for name in lost}
    for damaged in (uwf("doctor", check=7), uwf("doctor", "--quick", check=7)):
        said = errors(damaged.json)
        assert all(any(name in each and "is gone" in each for each in said) for name in lost)
    quick = uwf("doctor", "--fix", "--quick", check=7).json
    assert all("without --quick" in each["hint"] for each in quick if "is gone" in each["message"])
    uwf("cas", "reindex")  # forgets nothing of what is missed
    fixed = uwf("doctor", "--fix").json
    assert sum(each["message"].startswith("put refs/") for each in fixed) == 3 and refs(store) == before
    assert not errors(uwf("doctor").json) and not uwf("thread", "list", "--all").err


def test_what_uwf_itself_deletes_is_never_missed(uwf: Uwf, store: Path, threads: list[str]) -> None:
    uwf("thread", "step", threads[1])
    uwf("thread", "kill", threads[2])
    uwf("workflow", "rm", "one", "--yes")
    uwf("thread", "rm", threads[2], "--yes")
    uwf("gc", "--fold-before", "9999-01-01")
    assert not [each for each in uwf("doctor").json if each["check"] == "refs" and each["status"] != "ok"]


@pytest.mark.parametrize("where", ["refs/uwf/threads", "refs/uwf", "packed-refs"])
def test_refs_that_may_not_be_read_are_not_taken_for_none(
    uwf: Uwf, store: Path, threads: list[str], where: str
) -> None:
    path = store / where
    path.mkdir(parents=True, exist_ok=True) if where != "packed-refs" else None
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        prefix = obeying_modes()
        for reader in (
            ["thread", "list"],
            ["stats"],
            ["workflow", "list"],
            ["verify"],
            ["doctor", "--quick"],
        ):
            if where.endswith("threads") and reader[0] == "workflow":
                continue
            done = subprocess.run([*prefix, *UWF, *reader], capture_output=True, text=True, check=False)
            assert done.returncode == 7, (reader, done)
            assert "Permission denied" in done.stderr + done.stdout and "Traceback" not in done.stderr
    finally:
        path.chmod(mode)
    assert len(uwf("thread", "list").json) == 2


@pytest.mark.parametrize("kind", ["pipe", "garbage", "another ref"])
def test_a_ref_that_holds_no_id_is_listed_as_corrupt_with_exit_7_and_put_back(
    uwf: Uwf, store: Path, threads: list[str], kind: str
) -> None:
    before = refs(store)
    for name in (f"refs/uwf/threads/{threads[1]}", "refs/uwf/workflows/one"):
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.write_text("nonsense" if kind == "garbage" else f"ref: refs/uwf/threads/{threads[2]}\n")
    listed = {each["thread"]: each["status"] for each in uwf("thread", "list", check=7).json}
    assert listed == {threads[1]: "corrupt", threads[2]: "idle"}
    (workflow,) = uwf("workflow", "list", check=7).json
    assert workflow["name"] == "one" and "refs/uwf/workflows/one" in workflow["problem"]
    stats = uwf("stats", check=7).json
    assert [each["thread"] for each in stats["damaged"]] == [threads[1]] and stats["total"]["steps"] == 1
    assert "problem" not in uwf("grep", "Do it", check=7).out
    for command in (["show"], ["step"], ["kill"]):
        assert threads[1] in uwf("thread", *command, threads[1], check=7).error["message"]
    uwf("doctor", "--fix")
    assert refs(store) == before


def test_one_ref_of_many_is_found_in_packed_refs_as_git_finds_it(tmp_path: Path) -> None:
    (tmp_path / "uwf").mkdir()
    names = sorted(
        f"refs/uwf/{'at' if number % 7 else 'threads'}/{number * 7919:07d}" for number in range(3000)
    )
    lines = []
    for number, name in enumerate(names):
        lines.append(f"{number:040x} {name}\n")
        if number % 3 == 0:
            lines.append(f"^{number:040x}\n")
    (tmp_path / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))
    assert read_ref(tmp_path, names[5]) and (tmp_path / "uwf" / "packed-refs.seen").exists()
    for number, name in list(enumerate(names))[::4]:
        assert str(read_ref(tmp_path, name)) == f"{number:040x}"
        assert read_ref(tmp_path, name + "x") is None and read_ref(tmp_path, f"{name[:-3]}/{number}") is None
    assert len(read_refs(tmp_path, "refs/uwf/")) == 3000


def test_a_few_refs_among_very_many_are_listed_without_reading_the_others(tmp_path: Path) -> None:
    packed = tmp_path / "packed-refs"
    (tmp_path / "uwf").mkdir()
    counts = {"archive": 40, "folded": 3, "folded-": 1, "forks": 0, "paused": 8, "threads": 9000}
    names = sorted(f"refs/uwf/{kind}/{number:04d}" for kind in counts for number in range(counts[kind]))
    lines = [f"{number + 1:040x} {name}\n" for number, name in enumerate(names)]
    packed.write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))
    assert read_ref(tmp_path, names[0])  # it is looked through, and known to be whole
    few = {kind: count for kind, count in counts.items() if count < 100}
    known, spoilt = packed.stat(), packed.read_bytes().replace(b"threads/4", b"threads*4")
    with packed.open("r+b") as file:
        file.write(spoilt)
    os.utime(packed, ns=(known.st_atime_ns, known.st_mtime_ns))
    for kind, count in few.items():
        prefix = f"refs/uwf/{kind}/"
        found = read_refs(tmp_path, prefix)
        assert {name: str(oid) for name, oid in found.items()} == {
            line[41:-1]: line[:40] for line in lines if line[41:].startswith(prefix)
        }
        assert len(found) == count
    os.utime(packed)  # now it may have changed
    with pytest.raises(StoreDamaged, match=r"threads\*4"):
        read_refs(tmp_path, "refs/uwf/folded/")


def test_refs_are_the_same_as_objects_and_as_text(tmp_path: Path) -> None:
    (tmp_path / "uwf").mkdir()
    kinds = ("heads", "uwf/archive", "uwf/remotes/hub/threads", "uwf/threads", "uwfx")
    names = sorted(f"refs/{kind}/{number}" for kind in kinds for number in range(30))
    lines = [
        f"{number + 1:040x} {name}\n" + f"^{number + 9:040x}\n" * ("archive" in name)
        for number, name in enumerate(names)
    ]
    (tmp_path / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))
    loose = tmp_path / "refs/uwf/threads"
    loose.mkdir(parents=True)
    (loose / "3").write_text(f"{7:040x}\n")
    (loose / "new").write_text(f"{8:040x}\n")
    (loose / "new.lock").write_text(f"{9:040x}\n")
    for name, text in {"4": "", "5": "ref: refs/uwf/threads/6", "6": f"{7:040x} " * 3}.items():
        (loose / name).write_text(text)
    (loose / "7").symlink_to("nowhere")
    (loose / "8").symlink_to(tmp_path)
    os.mkfifo(loose / "9")
    without = "refs/uwf/remotes/"
    ids = read_ref_ids(tmp_path, "refs/uwf/", without)
    oids = read_refs(tmp_path, "refs/uwf/", without=without)
    assert ids == {name: str(oid) for name, oid in oids.items() if oid is not None}
    assert len(ids) == 30 + 30 - 6 + 1 and ids["refs/uwf/threads/3"] == f"{7:040x}"
    (tmp_path / "packed-refs").write_text("")
    with pytest.raises(StoreDamaged):
        read_ref_ids(tmp_path, "refs/uwf/", without)


def test_a_packed_refs_that_was_read_is_read_anew_when_it_is_replaced_or_all_refs_are_asked_for(
    tmp_path: Path,
) -> None:
    packed, new = tmp_path / "packed-refs", tmp_path / "new"
    (tmp_path / "uwf").mkdir()
    names = [f"refs/uwf/{'archive' if number < 9 else 'threads'}/{number:04d}" for number in range(1000)]

    def written(path: Path, first: int) -> None:
        lines = [f"{number:040x} {name}\n" for number, name in enumerate(names, first)]
        path.write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))

    def ids() -> list[dict[str, str]]:
        few = read_refs(tmp_path, "refs/uwf/archive/")
        one = {name: read_ref(tmp_path, name) for name in (names[0], names[500], names[999], "refs/uwf/x")}
        return [{name: str(oid) for name, oid in oids.items()} for oids in (few, one)]

    written(packed, 1)
    assert read_ref_ids(tmp_path, "refs/uwf/", "refs/uwf/remotes/") == {
        name: f"{number:040x}" for number, name in enumerate(names, 1)
    }
    few, one = ids()
    assert few == {name: f"{number:040x}" for number, name in enumerate(names[:9], 1)}
    assert one == {
        names[0]: f"{1:040x}",
        names[500]: f"{501:040x}",
        names[999]: f"{1000:040x}",
        "refs/uwf/x": "None",
    }
    written(new, 2)
    new.replace(packed)
    assert ids()[1][names[500]] == f"{502:040x}" and ids()[0][names[0]] == f"{2:040x}"
    assert read_ref_ids(tmp_path, "refs/uwf/", "refs/uwf/remotes/")[names[9]] == f"{11:040x}"
    status = packed.stat()
    written(packed, 3)  # in place
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read_ref_ids(tmp_path, "refs/uwf/", "refs/uwf/remotes/")[names[9]] == f"{12:040x}"
    packed.unlink()
    with pytest.raises(StoreDamaged, match="gone"):
        read_ref(tmp_path, names[500])


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def by_another_file(path: Path, text: str) -> None:
    path.with_name("other.lock").write_text(text)
    path.with_name("other.lock").replace(path)


@pytest.mark.parametrize("write", [in_place, by_another_file])
def test_a_loose_ref_that_was_read_is_read_again_however_it_changed(
    tmp_path: Path, write: Callable[[Path, str], None]
) -> None:
    ref = tmp_path / "refs/uwf/threads/A"
    ref.parent.mkdir(parents=True)
    ref.write_text("a" * 40 + "\n")
    before = ref.stat()
    while time.time_ns() < before.st_ctime_ns + 2_100_000_000:  # it is known from then on
        time.sleep(0.1)
    for text in ("a", "b", "c"):
        assert [str(oid) for oid in read_refs(tmp_path, "refs/uwf/").values()] == [text * 40]
        write(ref, chr(ord(text) + 1) * 40 + "\n")
        os.utime(ref, ns=(before.st_atime_ns, before.st_mtime_ns))
    ref.write_text("no id")
    assert read_refs(tmp_path, "refs/uwf/") == {"refs/uwf/threads/A": None}
    ref.unlink()
    assert read_refs(tmp_path, "refs/uwf/") == {}
