"""Nodes are written back as json-cas keeps them, and what was written is taken over again as it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from conftest import Uwf
from doubles.old_stores import ENDED, WRITER, reviewed
from programs import program


def listed(root: Path) -> dict[str, list[str]]:
    index = root / "cas" / "_index"
    return {path.name: path.read_text().split() for path in index.iterdir()}


def test_a_store_goes_out_and_comes_back_with_the_same_hashes(
    uwf: Uwf, thread: str, root: Path, tmp_path: Path
) -> None:
    uwf("thread", "run", thread)
    waiting = uwf("thread", "start", "pair", "-p", "Later.").json["thread"]
    note = uwf("cas", "put", "Text", '"kept by hand"').json["hash"]
    out, other = tmp_path / "out", tmp_path / "other"
    made = uwf("export", "--json-cas", out).json
    files = sorted(path.stem for path in (out / "cas").glob("*.bin"))
    assert (made["threads"], made["written"], made["there"]) == (2, len(files), 0)
    found = uwf("--root", other, "import", out).json
    assert found["untaken"] == found["warnings"] == []
    assert {each["thread"]: each["status"] for each in found["threads"]} == {
        thread: "completed",
        waiting: "active",
    }
    for command in (("thread", "steps", thread), ("thread", "show", waiting), ("cas", "get", note)):
        assert uwf("--root", other, *command).json == uwf(*command).json
    versions = [uwf("--root", where, "workflow", "show", "pair").json["hash"] for where in (root, other)]
    assert len(set(versions)) == 1
    assert uwf("--root", other, "verify").json["findings"] == []
    (out / "cas" / f"{note}.tmp").touch()  # as a kill leaves it
    again = uwf("export", "--json-cas", out).json
    assert again["written"] == 0 and not list((out / "cas").glob("*.tmp"))


def test_written_files_are_those_that_json_cas_would_write(uwf: Uwf, tmp_path: Path) -> None:
    old = reviewed(tmp_path / "old")
    uwf("import", old.root)
    out = tmp_path / "out"
    uwf("export", ENDED, "--json-cas", out)
    for label in ("two", "two.out", "two.how", "two.1", "StepNode", "meta", "start", "review"):
        assert (out / "cas" / old.file(label).name).read_bytes() == old.file(label).read_bytes(), label
    assert not (out / "cas" / old.file("note").name).exists()
    types, before = listed(out), listed(old.root)
    assert set(types[old.hashes["StepNode"]]) == set(before[old.hashes["StepNode"]])
    assert old.hashes["meta"] in types["_meta"]
    assert json.loads((out / "history.jsonl").read_text())["thread"] == ENDED


def test_every_file_that_is_written_has_the_hash_that_its_name_says(
    uwf: Uwf, thread: str, tmp_path: Path
) -> None:
    uwf("thread", "run", thread)
    uwf("export", "--json-cas", tmp_path / "out")
    done = subprocess.run(
        [program("node"), str(WRITER), "verify", str(tmp_path / "out" / "cas")],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["wrong"] == [] and found["right"] > 20


def test_what_is_there_is_not_written_over(uwf: Uwf, thread: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "threads.yaml").write_text("mine: true\n")
    error = uwf("export", "--json-cas", out, check=1).error
    assert error["message"].endswith("threads.yaml already exists")
    assert (out / "threads.yaml").read_text() == "mine: true\n"
    assert uwf("export", thread, check=2).error["code"] == "usage"
