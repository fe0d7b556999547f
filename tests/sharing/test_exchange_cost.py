"""What an exchange asks of git: counted in git's own traces, so that no clock is involved."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Uwf
from test_pull_cases import LOOP, Pair
from two_machines import Machine
from workflows import start_thread

from uwf_git.store.opened import Instance
from uwf_git.values.ids import ThreadId


@pytest.fixture
def many_threads(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """So many threads with ids of one millisecond: what groups of refs there are then follows from their number."""

    def made(count: int) -> list[str]:
        ids = (ThreadId(f"01M8000000{number:016}") for number in range(count))
        monkeypatch.setattr("uwf_git.store.threads.new_thread_id", lambda: next(ids))
        first = start_thread(instance, LOOP)
        commit = instance.threads.head(first).commit
        return [first, *(instance.threads.fork(commit) for _ in range(count - 1))]

    return made


def shared_with(uwf: Uwf, folder: Path) -> Path:
    shared = folder / "shared.git"
    subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(shared)], check=True)
    uwf("remote", "add", "origin", shared)
    return shared


def test_a_pull_of_many_known_threads_with_one_change_asks_for_one(
    uwf: Uwf, many_threads: Callable[[int], list[str]], tmp_path: Path
) -> None:
    threads = many_threads(60)
    shared = shared_with(uwf, tmp_path)
    uwf("push")
    other = Machine(uwf, tmp_path / "other")
    other("clone", shared)
    uwf("thread", "step", threads[7])
    uwf("push", "origin", threads[7])
    trace = tmp_path / "packets"
    found = other("pull", env={"GIT_TRACE_PACKET": str(trace)}).json["adopted"]
    assert [each["thread"] for each in found if each["case"] == "behind"] == [threads[7]]
    assert len(set(re.findall(r"fetch> (want \w+)", trace.read_text()))) == 1
    trace.unlink()
    other("pull", env={"GIT_TRACE_PACKET": str(trace)})
    assert "want " not in trace.read_text()


def test_a_push_of_many_refs_goes_in_chunks_of_two_hundred(
    uwf: Uwf, many_threads: Callable[[int], list[str]], tmp_path: Path
) -> None:
    threads = many_threads(450)
    shared = shared_with(uwf, tmp_path)
    trace = tmp_path / "trace"
    pushed = uwf("push", env={"GIT_TRACE": str(trace)}, timeout=120).json["pushed"]
    assert len(pushed) == len(threads) + 1
    assert (
        len(re.findall(r"trace: built-in: git push ", trace.read_text())) == 6
    )  # five groups, and the workflow
    listed = subprocess.run(
        ["git", "ls-remote", str(shared), "refs/uwf/threads/*"], capture_output=True, text=True, check=True
    )
    assert len(listed.stdout.splitlines()) == len(threads)


def test_a_push_of_one_new_step_sends_that_step_alone(uwf: Uwf, tmp_path: Path) -> None:
    pair = Pair(uwf, tmp_path)
    before = int(pair.git("rev-list", "--count", "--all"))
    pair.works(pair.ada, "second")
    trace = tmp_path / "trace"
    pair.ada("push", env={"GIT_TRACE_PACKET": str(trace)})
    moved = re.findall(r"push> [0-9a-f]{40} [0-9a-f]{40} (refs/\S+)", trace.read_text().replace("\\0", " "))
    assert moved == [f"refs/uwf/threads/{pair.thread}"]
    assert int(pair.git("rev-list", "--count", "--all")) == before + 1


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% owned", "--upload-pack=touch owned", "fd::7", "", " ", "a\nb", "-u"]
)
def test_an_address_that_git_would_take_for_a_command_is_refused(uwf: Uwf, url: str, hermetic: Path) -> None:
    uwf("init")
    assert uwf("remote", "add", "origin", "--", url, check=None).code in (1, 2)
    assert uwf("remote", "list").json == []
    assert not (hermetic / "work/owned").exists()


def test_a_blob_that_forges_refuse_is_named_before_anything_is_pushed(uwf: Uwf, tmp_path: Path) -> None:
    pair = Pair(uwf, tmp_path)
    pair.git("config", "uwf.maxBlob", "2m", at=pair.ada.store)
    pair.ada("cas", "put", "Text", "-", input=json.dumps("x" * 1_500_000))
    warned = pair.ada("push")
    assert "1.5 MB" in warned.err and warned.json["large"][0]["node"]
    node = pair.ada("cas", "put", "Text", "-", input=json.dumps("y" * 2_500_000)).json["hash"]
    other = pair.ada.starts("small", workflow="loop")
    refused = pair.ada("push", check=1)
    assert "uwf.maxBlob" in refused.error["hint"] and f"node {node}" in refused.error["message"]
    assert other not in pair.git("for-each-ref")
