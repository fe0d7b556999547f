"""A store that uwf 0.2 wrote, with a ref of every kind and a thread in every state: it is read, verified, stepped and
shared as it is. `earlier.bundle` is its refs and objects; what is said of it here, that version said."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import git
from conftest import Uwf

BUNDLE = Path(__file__).with_name("earlier.bundle")
STATES = {
    "01DXF6DT00A6RECB23MM2GC8P6": ("completed", 4, "AH2J18R80NY6Q"),
    "01M8BEV8DG3BVNDM3C4GX5RV27": ("completed", 4, "64ZG6ZS7VF74B"),
    "01M8BEV910MPDV26169MRGHF76": ("completed", 4, "CZ57F65F9Y9VM"),
    "01M8BEV9J9SWQ7SNBSWKB3ZTPG": ("idle", 2, "1239SMF2WNR7C"),
    "01M8BEVA0HW1YGFRZ3ZRHTJ7WA": ("waiting", 1, "3B1P9SMG0CBXZ"),
    "01M8BEVANEEF4K6XQTF5HMJB18": ("idle", 2, "20MXZZXMQT0EC"),
    "01M8BEVBQVH862SCFPJV0E2HQ9": ("killed", 1, "3B24RMC9XDZRT"),
    "01M8BEVCCJ16ZV40C4GNW8SN9X": ("failed", 0, "25EXMJQYEAHRM"),
    "01M8BEVD2YSZPQVGP0FDMC9KF6": ("paused", 1, "1293GTPMY1SMB"),
    "01M8BEVDNJ1SP791BVX3689KB9": ("idle", 2, "6W2P9DRWMD1EY"),
    "01M8BEVE7524559R1YMQ3KR9ZS": ("waiting", 1, "76HSAJZ42Z4HV"),
    "01M8BEVGJPMJD6HB8SXNE0BDNG": ("idle", 2, "FM0VKQ6T7T6WG"),
    "01M8BEVJS5R745V3Y4B5023E0M": ("completed", 4, "B0QQWKR75P7HG"),
    "01M8BEVTA2TKHT2B3BM4KKKX3A": ("completed", 4, "AA6TXE2MG1G87"),
}
KINDS = {
    "archive",
    "attempts",
    "baselines",
    "crews",
    "evals",
    "folded",
    "forks",
    "nodes",
    "paused",
    "proposals",
    "remotes",
    "removed",
    "threads",
    "workflows",
}


@pytest.fixture
def earlier(uwf: Uwf, root: Path) -> Path:
    """The repository of the store."""
    uwf("init")
    store = root / "store.git"
    git("--git-dir", store, "fetch", "--quiet", BUNDLE, "+refs/uwf/*:refs/uwf/*")
    return store


def test_an_earlier_store_has_its_threads_in_their_states_and_nothing_is_wrong_with_it(
    uwf: Uwf, earlier: Path
) -> None:
    names = git("--git-dir", earlier, "for-each-ref", "--format=%(refname)").split()
    assert {name.split("/")[2] for name in names} == KINDS
    threads = uwf("thread", "list", "--all").json
    assert {each["thread"]: (each["status"], each["steps"], each["head"]) for each in threads} == STATES
    verified = uwf("verify").json
    assert verified["verified"] == {"threads": 14, "steps": 31, "nodes": 162} and not verified["findings"]
    assert not [each for each in uwf("doctor", check=None).json if each["status"] == "error"]
    assert [each["name"] for each in uwf("crew", "list").json] == ["press"]
    assert [each["suite"] for each in uwf("eval", "baseline", "list").json] == ["talks"]
    assert {each["name"] for each in uwf("workflow", "list").json} == {
        "debate",
        "develop",
        "human-gate",
        "solve-issue",
    }


def test_an_earlier_store_is_stepped_answered_resumed_and_shared(
    uwf: Uwf, earlier: Path, tmp_path: Path
) -> None:
    stepped = uwf("thread", "step", "01M8BEV9J9SWQ7SNBSWKB3ZTPG", "--agent", "uwf-rehearse").json
    assert stepped["head"] != STATES["01M8BEV9J9SWQ7SNBSWKB3ZTPG"][2]
    uwf("thread", "answer", "01M8BEVA0HW1YGFRZ3ZRHTJ7WA", "-m", "the second one")
    uwf("thread", "resume", "01M8BEVD2YSZPQVGP0FDMC9KF6")
    uwf("thread", "step", "01M8BEVD2YSZPQVGP0FDMC9KF6", "--agent", "uwf-rehearse")
    uwf("thread", "restore", *[each["thread"] for each in uwf("thread", "restore").json])
    uwf("crew", "do", "press", "release notes", "-p", "Version 3.")
    uwf("eval", "run", "talks", "--workflow", "debate", "--agent", "uwf-rehearse")
    git("init", "--quiet", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    uwf("push", "hub")
    uwf("--root", tmp_path / "other", "clone", tmp_path / "hub.git")
    there = {each["thread"] for each in uwf("--root", tmp_path / "other", "thread", "list", "--all").json}
    assert there >= STATES.keys()
    assert not uwf("verify").json["findings"]
