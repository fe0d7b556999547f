"""What is small on the way and large when it is unpacked, looked through or decided on is refused, and takes little
until then; and nothing that a project's repository names is run meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import bombs
import git_servers
import pytest
from conftest import Uwf
from forged import stepped
from two_machines import RELAY, Machine

from uwf_git.base.errors import LimitExceeded
from uwf_git.format.ids import Hash, ThreadId, new_thread_id
from uwf_git.format.kinds import Start, StepContext
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance
from uwf_git.store.layout import pin_message
from uwf_git.store.location import ROOT_VARIABLES, Location, locate
from uwf_git.store.maintenance import maintain
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.moderator import choose
from uwf_git.workflow.source import parse_source

pytestmark = pytest.mark.extended

THREAD = "refs/uwf/threads/01M7YG01Q9Z55XDYX31FFWGFQ5"
DATED = {
    "GIT_AUTHOR_DATE": "@0 +0000",
    "GIT_COMMITTER_DATE": "@0 +0000",
    **{
        f"GIT_{who}_{what}": "ada@example.invalid"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}
ENOUGH = 4 << 30  # bytes of address space that nothing here may exceed, whatever is broken


class Used(NamedTuple):
    """How a command ended, the most memory in kilobytes that it or a child of it had, and the seconds of computing that
    all of them took."""

    said: str
    status: int
    memory: int
    seconds: float


# Linux counts as a process's memory what the one that it was forked from had, and a runner of tests grows large.
WATCH = """
import os, sys
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ), 0)
print(f"\\n{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss} {usage.ru_utime}")
"""


def used(machine: Machine, *args: str | Path) -> Used:
    command = [
        "prlimit",
        f"--as={ENOUGH}",
        "--cpu=120",
        sys.executable,
        "-m",
        "uwf_cli.main",
        *map(str, args),
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WATCH, *command],
        env={**os.environ, **machine.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    said, _, last = done.stdout.rstrip().rpartition("\n")
    status, memory, seconds = last.split()
    assert "Traceback" not in said, said
    return Used(said.strip("\n"), int(status), int(memory), float(seconds))


@pytest.fixture
def ada(uwf: Uwf, tmp_path: Path) -> Machine:
    """A store that git may take 64 MB of memory for."""
    machine = Machine(uwf, tmp_path / "ada")
    machine("init")
    git_servers.git("--git-dir", machine.store, "config", "uwf.maxMemory", "64m")
    return machine


def test_a_file_of_8_kb_that_unpacks_to_400_mb_is_refused_before_it_does(
    ada: Machine, tmp_path: Path
) -> None:
    head, pack = bombs.delta_bomb(400)
    path = bombs.bundle(tmp_path / "bomb.bundle", {THREAD: head}, pack)
    assert path.stat().st_size < 16_000
    others = ada.store / "objects" / "pack" / "tmp_pack_abcdefgh"
    others.write_bytes(b"another process writes this")
    refused = used(ada, "unbundle", path)
    assert refused.status == 1 and "uwf.maxMemory" in refused.said
    assert len(refused.said.splitlines()) == 1
    assert refused.memory < 200_000
    assert list((ada.store / "objects" / "pack").iterdir()) == [others]
    git_servers.git("--git-dir", ada.store, "config", "uwf.maxMemory", "1g")
    assert used(ada, "unbundle", path).status == 7, "with more it is unpacked, and is nothing of ours"


def test_a_server_whose_objects_unpack_to_400_mb_is_refused_before_they_do(
    ada: Machine, tmp_path: Path
) -> None:
    head, pack = bombs.delta_bomb(400)
    with git_servers.serve("daemon") as server:
        remote = git_servers.bare(server.folder / "bomb.git")
        path = remote / "objects" / "pack" / "pack-bomb.pack"
        path.write_bytes(pack.content())
        listed = git_servers.git("index-pack", path)
        assert listed
        blobs = git_servers.git("--git-dir", remote, "cat-file", "--batch-all-objects", "--batch-check")
        rows = [line.split() for line in blobs.splitlines() if line.split()[1] == "blob"]
        files = "".join(f"100644 blob {oid}\t{size}.bin\n" for oid, _, size in rows)
        tree = subprocess.run(
            ["git", "--git-dir", str(remote), "mktree"],
            input=files,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        bomb = git_servers.git("--git-dir", remote, "commit-tree", tree, "-p", head, "-m", "Start", env=DATED)
        git_servers.git("--git-dir", remote, "update-ref", THREAD, bomb)
        ada("remote", "add", "origin", server.url(remote))
        refused = used(ada, "pull")
    assert refused.status == 8 and "uwf.maxMemory" in refused.said, refused.said
    assert refused.memory < 200_000
    assert ada.refs() == {}


@pytest.mark.parametrize(
    "rows", [b"", b"100644 .git\0" + bytes.fromhex(bombs.EMPTY_BLOB)], ids=["empty", "unsafe"]
)
def test_a_few_trees_that_are_millions_of_folders_are_refused(
    ada: Machine, tmp_path: Path, rows: bytes
) -> None:
    """Forty names for the next folder, nineteen deep: looked through one by one they would take for ever."""
    top, trees = bombs.tree_bomb(40, 18, rows)
    pack = bombs.Pack()
    node = "4KNM2PXR3B1QW"
    head = pack.add("commit", bombs.commit(top, pin_message(Hash(node))))
    for kind, content in (*trees, ("blob", b"")):
        pack.add(kind, content)
    path = bombs.bundle(tmp_path / "trees.bundle", {f"refs/uwf/nodes/{node}": head}, pack)
    assert path.stat().st_size < 64_000
    refused = used(ada, "unbundle", path)
    assert refused.status == 7 and f"refs/uwf/nodes/{node}" in refused.said, refused.said


def test_thousands_of_refs_take_time_by_their_number_and_not_its_square(ada: Machine, tmp_path: Path) -> None:
    pack = bombs.Pack()
    head = pack.add("commit", bombs.commit(pack.add("tree", b"")))

    def seconds(count: int) -> float:
        refs = {f"refs/uwf/threads/{new_thread_id()}": head for _ in range(count)}
        found = used(ada, "unbundle", bombs.bundle(tmp_path / f"{count}.bundle", refs, pack))
        assert found.status == 7 and f"{len(refs) - 1} more" in found.said
        return found.seconds

    # The start of a process is in both, so four times as many take less than four times as long.
    assert seconds(6000) < 6 * seconds(1500)


GRAPH = "graph:\n  $START: [{role: writer}]\n  writer:\n"


def asking(*expressions: str) -> str:
    """A workflow that asks these after its first step, before it goes on as it does in any case."""
    lines = [line.replace("name: relay", "name: ponderous") for line in RELAY.splitlines(keepends=True)]
    at = lines.index("graph:\n")
    edges = "".join(f"    - {{role: reader, condition: c{number}}}\n" for number in range(len(expressions)))
    asked = (
        f"  c{number}: {{description: No, expression: '{each}'}}\n" for number, each in enumerate(expressions)
    )
    return "".join((*lines[:at], "conditions:\n", *asked, GRAPH, edges, "    - {role: reader}\n", lines[-1]))


def stepped_by_hand(machine: Machine, thread: str, *roles: str) -> None:
    """Steps that nobody's decision is asked for."""
    instance = Instance(Location(machine.root, machine.store))
    head = instance.threads.head(ThreadId(thread))
    for role in roles:
        head = stepped(instance, head, role, {"text": "made up"})


def test_what_takes_long_to_check_is_left_where_it_is_and_named_and_all_else_comes(
    ada: Machine, uwf: Uwf, tmp_path: Path
) -> None:
    ada.registers()
    quick = ada.starts()
    ada.registers(asking("$count([1..99999].($string($) & $string($ + 1) & $string($ + 2))) = 0"))  # seconds
    slow = ada.starts("Ponder", "ponderous")
    stepped_by_hand(ada, slow, "writer", "reader")
    remote = git_servers.bare(tmp_path / "shared.git")
    ada("remote", "add", "origin", remote)
    ada("push")
    ben = Machine(uwf, tmp_path / "ben")
    ben("init")
    ben("remote", "add", "origin", remote)
    git_servers.git("--git-dir", ben.store, "config", "uwf.maxVerify", "0")
    pulled = ben("pull", check=7)
    assert "uwf.maxVerify" in pulled.err and "not checked" in pulled.err and "invalid" not in pulled.err
    [refused] = pulled.json["refused"]
    assert refused["ref"].endswith(slow)
    assert {each["code"] for each in refused["findings"]} == {"unchecked"}
    assert ben.heads().keys() == {quick}
    git_servers.git("--git-dir", ben.store, "config", "uwf.maxVerify", "600")
    again = ben("pull", check=7)
    assert "condition c0" in again.err and "longer than 2 s" in again.err


def test_the_conditions_of_a_decision_have_one_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 200
    text = asking(*(f"$count([1..1500].($string($))) = {number}" for number in range(count)))
    workflow = compile_source(parse_source(text.encode(), "ponderous.yaml")).workflow
    start, some = Start(Hash("4KNM2PXR3B1QW"), "Ponder"), Hash("4KNM2PXR3B1QW")
    step = StepContext(some, "writer", {"text": "made up"}, some, "by-hand")
    asked: list[str] = []
    monkeypatch.setattr("uwf_git.workflow.moderator.SECONDS", 0.1)
    with pytest.raises(LimitExceeded, match=r"together; c\d+ was not asked"):
        choose(workflow, start, [step], on_condition=lambda name, _: asked.append(name))
    assert 0 < len(asked) < count


@pytest.fixture
def pondering(ada: Machine) -> list[str]:
    """Threads after each of whose steps 600 conditions take more than five seconds on any machine, in a store that has
    one for them."""
    text = asking(*(f"$count([1..1500].($string($))) = {number}" for number in range(600)))
    again = "  reader: [{role: $END, condition: c0}, {role: writer}]"
    text = text.replace("  reader: [{role: $END}]", again) + "budget: {maxSteps: 50}\n"
    # By the library: the command would rehearse it, and make these decisions.
    instance = Instance(Location(ada.root, ada.store))
    put = instance.registry.put(compile_source(parse_source(text.encode(), "ponderous.yaml")))
    threads = [instance.threads.start(Oid(hex=str(put.commit)), Start(put.hash, "Ponder")) for _ in range(6)]
    for thread in threads:
        stepped_by_hand(ada, thread, "writer", "reader", "writer")
    git_servers.git("--git-dir", ada.store, "config", "uwf.maxVerify", "1")
    return list(map(str, threads))


TAKEN = 12  # seconds of computing: half of what the decisions on six threads would take at the least


@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", ["json", "text"])
def test_verify_has_one_bound_for_slow_conditions_and_names_what_it_did_not_check(
    ada: Machine, pondering: list[str], form: str
) -> None:
    quick = ada.starts(workflow=ada.registers())
    found = used(ada, "--format", form, "verify")
    assert (found.status, found.seconds < TAKEN) == (125, True), found.said
    if form == "text":
        assert "nothing is wrong" not in found.said
        _, _, named = found.said.partition("6 findings, not checked: ")
        assert sorted(named.split(", ")) == sorted(pondering)
        return
    findings = json.loads(found.said)["findings"]
    assert {each["code"] for each in findings} == {"unchecked"}
    assert {each["thread"] for each in findings} == set(pondering)
    assert ada("verify", quick).json["findings"] == []


@pytest.mark.timeout(300)
def test_each_command_has_one_bound_for_slow_conditions_and_names_what_it_did_not_judge(
    ada: Machine, pondering: list[str], tmp_path: Path
) -> None:
    (ada.root / "config.yaml").write_text("agentOverrides: {ponderous: {reader: human}}\n")
    for *command, names in (
        ("thread", "list", pondering),
        ("inbox", pondering),
        ("export", pondering[0], "--html", tmp_path / "one.html", pondering[:1]),
        ("web", "--export", tmp_path / "pages", pondering),
    ):
        found = used(ada, *command)
        assert found.status == 0 and found.seconds < TAKEN, (command, found)
        assert "not determined" in found.said or "unjudged" in found.said, found
        assert all(thread in found.said for thread in names), found
    shown = ada("thread", "show", pondering[0])
    assert "not determined" in shown.json["problem"] and "uwf.maxVerify" in shown.err
    listed = ada("thread", "list").json
    assert all("not determined" in each["problem"] for each in listed)
    page = (tmp_path / "pages" / "index.html").read_text()
    assert page.count(">not determined") == len(pondering)


def test_a_step_has_the_whole_time_for_its_decision(ada: Machine, pondering: list[str]) -> None:
    stuck = ada("thread", "step", pondering[0], check=1)
    assert "not determined" in stuck.err
    git_servers.git("--git-dir", ada.store, "config", "uwf.maxVerify", "60")
    stuck = ada("thread", "step", pondering[0], check=1)
    assert "take longer than 5 s together" in stuck.err


def test_only_a_push_runs_hooks_that_a_project_names(
    uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ROOT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    project, ran = tmp_path / "project", tmp_path / "ran"
    git_servers.git(*git_servers.INIT, project)
    git_servers.git("-C", project, "config", "core.hooksPath", ".githooks")
    git_servers.git("-C", project, "config", "gc.auto", "1")
    (project / ".githooks").mkdir()
    for hook in ("pre-auto-gc", "post-index-change", "reference-transaction", "pre-push", "post-checkout"):
        path = project / ".githooks" / hook
        path.write_text(f'#!/bin/sh\ncat > /dev/null\necho {hook} >> "{ran}"\n')
        path.chmod(0o755)
    git_servers.git("-C", project, "config", "core.fsmonitor", str(path))
    monkeypatch.chdir(project)
    uwf("init", "--here")
    ada = Machine(lambda *args, env=None, **more: uwf(*args, **more), tmp_path / "ada")
    ada.registers()
    thread = ada.starts()
    ada.steps(thread)
    remote = git_servers.bare(tmp_path / "shared.git")
    ada("remote", "add", "origin", remote)
    ada("bundle", thread, "-o", tmp_path / "one.bundle")
    ada("thread", "rm", thread, "--yes")
    ada("unbundle", tmp_path / "one.bundle")
    ada("pull")
    ada("gc")
    ada("gc", "--prune")
    maintain(Instance(locate(None, os.environ, project)).store.repository, shared=True, limit=-1)
    ada("doctor", check=None)
    assert not ran.exists(), ran.read_text()
    ada("push")
    assert "pre-push" in ran.read_text()
