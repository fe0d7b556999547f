"""What an exchange asks of git: counted in git's own traces, so that no clock is involved."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import git_servers
import pytest
from conftest import Uwf
from test_pull_cases import LOOP, Pair
from two_machines import Machine
from workflows import register

from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance

pytestmark = pytest.mark.extended


@pytest.fixture
def many_threads(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """So many threads with ids of one millisecond: what groups of refs there are then follows from their number."""

    def made(count: int) -> list[str]:
        ids = (ThreadId(f"01M8000000{number:016}") for number in range(count))
        monkeypatch.setattr("uwf_git.store.threads.new_thread_id", lambda: next(ids))
        version = register(instance, LOOP)
        start = partial(instance.threads.start, Oid(hex=version.commit), Start(version.hash, "Do it."))
        return [start() for _ in range(count)]

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


class Push(NamedTuple):
    """What a push came to: the refs that it reports, and how many of them the server was asked for with each."""

    pushed: list[str]
    sizes: list[int]


@pytest.fixture
def pushing(uwf: Uwf, tmp_path: Path) -> Callable[..., Push]:
    """A push, with a server that counts; `at_most` is how many refs it takes with one push."""
    log = tmp_path / "sizes"

    def pushes(*words: str, at_most: int = 10_000, check: int = 0) -> Push:
        hook = tmp_path / "shared.git" / "hooks" / "pre-receive"
        said = f"Pushes can not update more than {at_most} refs"
        hook.write_text(
            f"#!/bin/sh\nn=$(wc -l); echo $n >> {log}; [ $n -le {at_most} ] || {{ echo {said}; exit 1; }}\n"
        )
        hook.chmod(0o755)
        log.write_text("")
        pushed = uwf("push", *words, timeout=120, check=check).json["pushed"]
        return Push([each["ref"] for each in pushed], [int(line) for line in log.read_text().split()])

    return pushes


def on_server(folder: Path) -> list[str]:
    return list(git_servers.refs(folder / "shared.git"))


def test_all_that_a_remote_has_not_goes_with_one_push_and_what_is_not_meant_stays(
    uwf: Uwf, many_threads: Callable[[int], list[str]], pushing: Callable[..., Push], tmp_path: Path
) -> None:
    threads = many_threads(450)
    shared = shared_with(uwf, tmp_path)
    # Every fourth is known there, and deleted there unseen: it is not to come back with its neighbours.
    known = threads[::4]
    pushing("origin", *known)
    for thread in known:
        git_servers.git("--git-dir", shared, "update-ref", "-d", f"refs/uwf/threads/{thread}")
    new = sorted({*threads} - {*known})
    done = pushing()
    assert done.sizes == [len(new) + 1]
    assert sorted(done.pushed) == sorted(on_server(tmp_path))
    assert sorted(done.pushed) == [*(f"refs/uwf/threads/{each}" for each in new), "refs/uwf/workflows/loop"]
    assert pushing().sizes == []
    assert pushing("--all").sizes == [len(known)]


@pytest.mark.parametrize(
    ("address", "at_most", "sizes"),
    [
        ("https://github.com/team/threads.git", 10_000, [200, 200, 51]),
        (None, 200, [451, 200, 200, 51]),
        (None, 100, [451, 200, *[20] * 22, 11]),
    ],
    ids=["a forge", "as many as forges take", "fewer"],
)
def test_where_one_push_may_not_name_them_all_groups_are_filled(
    uwf: Uwf,
    many_threads: Callable[[int], list[str]],
    pushing: Callable[..., Push],
    tmp_path: Path,
    root: Path,
    address: str | None,
    at_most: int,
    sizes: list[int],
) -> None:
    many_threads(450)
    shared = shared_with(uwf, tmp_path)
    if address:
        for setting in ([f"url.{shared}.insteadOf", address], ["remote.origin.url", address]):
            git_servers.git("--git-dir", root / "store.git", "config", *setting)
    done = pushing(at_most=at_most)
    assert done.sizes == sizes
    assert sorted(done.pushed) == sorted(on_server(tmp_path)) and len(done.pushed) == 451
    assert uwf("pull").json["adopted"] == []


def test_a_web_server_that_takes_no_such_a_large_request_gets_smaller_ones(
    uwf: Uwf, many_threads: Callable[[int], list[str]], tmp_path: Path, hermetic: Path
) -> None:
    threads = many_threads(450)
    with git_servers.serve("http") as server:
        with open(hermetic / ".gitconfig", "a") as config:
            config.write(server.config)
        (server.folder / "small").mkdir()
        remote = git_servers.bare(server.folder / "small" / "shared.git")
        uwf("remote", "add", "origin", f"{server.base}/small/{remote.name}")
        trace = tmp_path / "trace"
        uwf("push", env={"GIT_TRACE": str(trace)}, timeout=120)
        assert 1 + 3 <= len(re.findall(r"trace: built-in: git push ", trace.read_text())) <= 10
        assert len(git_servers.refs(remote)) == len(threads) + 1


def test_a_server_that_refuses_whatever_its_size_is_not_asked_for_each(
    uwf: Uwf, many_threads: Callable[[int], list[str]], pushing: Callable[..., Push], tmp_path: Path
) -> None:
    many_threads(230)
    shared_with(uwf, tmp_path)
    assert pushing(at_most=0, check=8).sizes == [231, 200, 20, 4]


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    return Pair(uwf, tmp_path, lasting)


def test_a_push_of_one_new_step_sends_that_step_alone(pair: Pair, tmp_path: Path) -> None:
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


def test_a_blob_that_forges_refuse_is_named_before_anything_is_pushed(pair: Pair) -> None:
    pair.ada("cas", "put", "Text", "-", input=json.dumps("x" * 1_500_000))
    warned = pair.ada("push")
    assert "1.5 MB" in warned.err and warned.json["large"][0]["node"]
    node = pair.ada("cas", "put", "Text", "-", input=json.dumps("y" * 2_500_000)).json["hash"]
    pair.git("config", "uwf.maxBlob", "2m", at=pair.ada.store)
    other = pair.ada.starts("small", workflow="loop")
    refused = pair.ada("push", check=1)
    assert "uwf.maxBlob" in refused.error["hint"] and f"node {node}" in refused.error["message"]
    assert other not in pair.git("for-each-ref")


# What neither needs, and what takes long to be loaded.
OF_PYTHON = frozenset({"shutil", "tempfile", "random", "secrets"})


def children(trace: Path) -> list[str]:
    """The git commands that a process started, without those that git itself started."""
    rows = (line.split("|") for line in trace.read_text().splitlines())
    return [row[-1].split()[0] for row in rows if row[1].strip() == "d0" and row[3].strip() == "cmd_name"]


def test_a_pull_starts_git_no_more_often_than_it_has_something_to_ask(
    uwf: Uwf, many_threads: Callable[[int], list[str]], tmp_path: Path
) -> None:
    """And loads what verifies and takes over only where there is something to take."""
    thread = many_threads(3)[0]
    shared = shared_with(uwf, tmp_path)
    uwf("push")
    other = Machine(uwf, tmp_path / "other")
    other("clone", shared)
    uwf("thread", "step", thread)
    uwf("push", "origin", thread)
    traces = [tmp_path / name for name in ("one", "none")]
    found = []
    for trace in traces:
        found.append(loaded({**other.environment, "GIT_TRACE2_PERF": str(trace)}, "pull"))
    assert [children(trace) for trace in traces] == [
        ["ls-remote", "fetch"],
        ["ls-remote"],
    ]
    one, none = found
    taking = {"uwf_git.verify.whole", "uwf_git.sync.adopt", "uwf_git.store.archives"}
    assert taking <= one and not taking & none
    never = {
        "uwf_git.sync.push",
        "uwf_git.engine.budget",
        "uwf_git.ext.crews.prompt",
        "uwf_git.sync.proposals",
        *OF_PYTHON,
    }
    assert sorted(never & one) == [], "neither what pushes nor what a conversation or a budget is made of"


def loaded(environment: Mapping[str, str], *arguments: str) -> set[str]:
    """The modules that a call of `uwf` imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "uwf_cli.main", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_a_push_of_a_step_loads_nothing_that_makes_steps_pulls_or_removes(
    uwf: Uwf, many_threads: Callable[[int], list[str]], tmp_path: Path
) -> None:
    """And asks git for nothing that the library tells."""
    thread = many_threads(3)[0]
    shared_with(uwf, tmp_path)
    uwf("push")
    uwf("thread", "step", thread)
    trace = tmp_path / "trace"
    found = loaded({"GIT_TRACE2_PERF": str(trace)}, "push")
    assert children(trace) == ["ls-remote", "rev-list", "push", "ls-remote"]
    assert "uwf_git.sync.push" in found
    never = (
        "engine.step",
        "engine.budget",
        "sync.pull",
        "sync.removal",
        "store.archives",
        "verify.refs",
    )
    assert sorted({*(f"uwf_git.{module}" for module in never), *OF_PYTHON} & found) == []
