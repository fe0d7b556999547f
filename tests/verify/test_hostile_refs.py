"""A ref may be anybody's making: one that leads to nonsense is corrupt, and hides no other thread."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ONE
from conftest import Uwf

WHEN = "1 +0000"


class Forge:
    """Writes what uwf never would, by plain git."""

    def __init__(self, root: Path, thread: str) -> None:
        self.git_dir = root / "store.git"
        self.thread = thread
        self.head = self("rev-parse", f"refs/uwf/threads/{thread}")
        self.tree = self("rev-parse", f"{self.head}^{{tree}}")

    def __call__(self, *args: str, data: str | None = None) -> str:
        command = ["git", "--git-dir", str(self.git_dir), *args]
        return subprocess.run(command, input=data, capture_output=True, text=True, check=True).stdout.strip()

    def write(self, kind: str, data: str) -> str:
        return self("hash-object", "-t", kind, "-w", "--literally", "--stdin", data=data)

    def commit(self, trailer: str, when: str = WHEN, tree: str = "") -> str:
        person = f"a <a@b> {when}"
        return self.write(
            "commit",
            f"tree {tree or self.tree}\nparent {self.head}\nauthor {person}\ncommitter {person}\n\nx\n\n{trailer}\n",
        )

    def nested(self, depth: int) -> str:
        tree, rows = self.write("tree", ""), []
        for _ in range(depth):
            rows.append(f"040000 tree {tree}\tnodes\n")
            content = b"40000 nodes\0" + bytes.fromhex(tree)
            tree = hashlib.sha1(b"tree %d\0" % len(content) + content).hexdigest()
        assert self("mktree", "--batch", "--missing", data="\n".join(rows)).endswith(tree)
        return tree


THREAD_REFS: dict[str, Callable[[Forge, str], str]] = {
    "a step that is not there": lambda f, _: f.commit("Uwf-Step: 0000000000000"),
    "a start that is not there": lambda f, _: f.commit("Uwf-Start: 0000000000000"),
    "a step said to be a workflow": lambda f, node: f.commit(f"Uwf-Workflow: {node}"),
    "a step said to be an attempt": lambda f, node: f.commit(f"Uwf-Attempt: {node}"),
    "a time beyond 64 bits": lambda f, node: f.commit(f"Uwf-Start: {node}", "99999999999999999999 +0000"),
    "a tree of 1,200 levels": lambda f, node: f.commit(f"Uwf-Start: {node}", tree=f.nested(1200)),
    "a tag": lambda f, _: f.write(
        "tag", f"object {f.head}\ntype commit\ntag t\ntagger a <a@b> 1 +0000\n\nkilled\n"
    ),
    "another ref": lambda f, _: f"ref: refs/uwf/threads/{f.thread}",
    "a tree": lambda f, _: f.tree,
    "a commit that is not there": lambda f, _: "1" * 40,
    "no object id": lambda f, _: "not an object id",
    "nothing": lambda f, _: "",
}
# Of these git can't read the ref itself, and only its owner can remove the file.
UNREADABLE = ("another ref", "no object id", "nothing")
TAGS = {
    "no time": "object {head}\ntype commit\ntag t\ntagger a <a@b> x +0000\n\nkilled\n",
    "no person": "object {head}\ntype commit\ntag t\ntagger x\n\nkilled\n",
    "no object": f"object {'z' * 40}\ntype commit\ntag t\ntagger a <a@b> 1 +0000\n\nkilled\n",
    "a time beyond 64 bits": "object {head}\ntype commit\ntag t\ntagger a <a@b> 99999999999999999999 +0000\n\nkilled\n",
}
DOOMED = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture
def forge(uwf: Uwf, hermetic: Path, root: Path) -> Forge:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return Forge(root, str(uwf("thread", "start", "one", "-p", "Do it").json["thread"]))


def assert_only_that_one_is_lost(uwf: Uwf, forge: Forge) -> None:
    listed = uwf("thread", "list", check=7).json
    assert {each["thread"]: each["status"] for each in listed} == {forge.thread: "idle", DOOMED: "corrupt"}
    (damaged,) = uwf("thread", "list", "--status", "corrupt", check=7).json
    assert damaged in listed and damaged["head"] is None and damaged["problem"]
    assert DOOMED in uwf("thread", "list", "--format", "text", check=7).out
    assert uwf("thread", "show", DOOMED, check=7).error["code"] == "store_damaged"
    said = " ".join(each["message"] for each in uwf("doctor", check=7).json if each["status"] == "error")
    assert DOOMED in said and forge.thread not in said
    uwf("cas", "reindex")
    assert uwf("thread", "step", forge.thread).json["done"]


@pytest.mark.parametrize("what", THREAD_REFS)
def test_a_thread_whose_ref_leads_to(what: str, uwf: Uwf, forge: Forge) -> None:
    node = uwf("thread", "show", forge.thread).json["head"]
    content = THREAD_REFS[what](forge, node)
    (forge.git_dir / "refs/uwf/threads" / DOOMED).write_text(content + "\n")
    assert_only_that_one_is_lost(uwf, forge)
    if what not in UNREADABLE:
        assert uwf("thread", "rm", DOOMED, "--yes").json["removed"]
        assert [each["thread"] for each in uwf("thread", "list", "--all").json] == [forge.thread]


@pytest.mark.parametrize("lack", TAGS)
def test_an_archive_whose_tag_has(lack: str, uwf: Uwf, forge: Forge) -> None:
    tag = forge.write("tag", TAGS[lack].format(head=forge.head))
    folder = forge.git_dir / "refs/uwf/archive"
    folder.mkdir(exist_ok=True)
    (folder / DOOMED).write_text(tag + "\n")
    assert_only_that_one_is_lost(uwf, forge)


def test_a_ref_whose_name_is_no_text_is_no_thread(uwf: Uwf, forge: Forge) -> None:
    path = os.fsencode(forge.git_dir) + b"/refs/uwf/threads/\xff"
    with open(path, "wb") as file:
        file.write(forge.head.encode() + b"\n")
    assert [each["thread"] for each in uwf("thread", "list").json] == [forge.thread]
    uwf("doctor", check=7)
    assert uwf("thread", "step", forge.thread).json["done"]


@pytest.mark.parametrize("content", ["", "x", "{}", "[" * 100_000, '{"head": 1}'])
def test_what_a_power_cut_left_of_a_report_is_no_report(uwf: Uwf, forge: Forge, content: str) -> None:
    folder = forge.git_dir / "uwf/runs"
    folder.mkdir(exist_ok=True)
    (folder / f"{forge.thread}.result").write_text(content)
    assert uwf("thread", "step", forge.thread).json["done"]


def test_a_folder_or_a_command_whose_name_is_no_text_is_used_as_it_is(
    uwf: Uwf, forge: Forge, tmp_path: Path
) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    Path(folder).mkdir()
    failed = uwf("thread", "step", forge.thread, "--cwd", folder, "--agent", f"{folder}/none", check=2)
    assert "is not a file that can be run" in failed.error["message"]
    assert uwf("thread", "step", forge.thread, "--agent", "uwf-rehearse").json["done"]
