"""The store that `format_1.py` wrote when format 1 was declared: every later version reads, lists, verifies, shows,
steps and shares it. `format-1.bundle` is its refs and objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from branches import Clone
from commands import git
from conftest import Uwf

from uwf_git.api.check import check_tree
from uwf_git.ext.landing.node_types import SCHEMAS as LANDING
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.types import CACHING_DETAIL, CACHING_TURN, ISSUE_START
from uwf_git.store.instance import Instance

BUNDLE = Path(__file__).with_name("format-1.bundle")
OF_ONE = ("threads", "workflows", "crews", "baselines")
WHOLE = ("evals", "attempts", "nodes", "approvals")
KINDS = {
    *("approvals", "attempts", "baselines", "crews", "evals", "folded", "forks", "local", "merged", "nodes"),
    *("paused", "remotes", "removed", "resumed", "threads", "workflows"),
}
VERIFIED = {"threads": 27, "steps": 46, "nodes": 292}
WORKFLOWS = {"asked", "audit", "release", "solo", "solve-issue"}
STATES = {
    "01DXF6DT00AGGY1BC7PMCEV7VG": ("completed", 5, "19VMZ7P59CTBP"),
    "01DXF6DT00G6WH9ZB52KZPS8PC": ("completed", 5, "4AANVB6SH84TW"),
    "01JVKW0000ACT0VE0000000000": ("idle", 2, "2DAEHRHB52X2J"),
    "01JVKW0000BEGVN00000000000": ("idle", 0, "1KHQCBA0FH8N7"),
    "01JVKW0000ENDED00000000000": ("completed", 4, "BM78H901KY307"),
    "01KDVDRZ60RBHBYQYJWPVXPW55": ("completed", 5, "3XVPZN6VQVREZ"),
    "01KDVDWMC0M1NZNBGZXT7MJWZF": ("waiting", 1, "10DZDHKTWWDAK"),
    "01KDVE09J0MC83VTT8B6NMT4BF": ("idle", 4, "9CZC3XV1ENRK4"),
    "01KDVE9EH0CDXP3TEN686ZJX82": ("idle", 3, "D0WK35CTSC9E2"),
    "01KDVEB940TPHPQEZSY393ZXN8": ("failed", 1, "D3JBBMMFVK4YA"),
    "01KDVEGRX0V44VFC512850SZ5P": ("killed", 0, "8674PSADF2YPH"),
    "01KDVEME30ENG8WVMBCAPSAWE1": ("paused", 0, "05AY4G4AXJJVM"),
    "01KDVEXK208J7EDQ2QTTNTJJ46": ("completed", 2, "0DZ6YYV8FGGVR"),
    "01KDVF4XE0W8R3F0KJYRGPCQZ8": ("waiting", 1, "0KYFG6Z241HDW"),
    "01KDVFC7T0JN40EV58EDZ063VM": ("failed", 2, "5NZJ49VHMGS5D"),
    "01KDVFNCS0NECFTVD7WGM681P6": ("completed", 3, "EAFG59V8BK58Q"),
    "01KDVFS1Z0R93BKF8MAPH0FA4M": ("completed", 1, "CE5W1W4MD8S9W"),
    "01KDVFS1Z1V2JHWT6TT70YBGZF": ("killed", 0, "71DTPGQX1E5HP"),
    "01KDVG26Y06JF0HVMV33RDX6VE": ("completed", 2, "EXNGR1G71GFS0"),
    "01KDVG26Y0CHFRW4PSGMMYM325": ("completed", 1, "B3C027T19V564"),
    "01KDVG7PQ01BGMRQ85JNJ9GFZ9": ("completed", 1, "54X08BWWTMZY1"),
    "01KDVG7PQ07EMKTB4BQ13GJMB7": ("completed", 1, "4HEBP09DNQFXQ"),
    "01KDVG7PQ0FC01YSXWBHZCD84X": ("completed", 1, "AS26NK8Z010J6"),
    "01KDVGD6G01BMT50VY73F9ZNFZ": ("completed", 4, "93Q61ZK0S077A"),
    "01KDVGZGE0SBZYQWM1C2QP2MTX": ("idle", 1, "63HGHEG8HBJ4M"),
    "01KDVH35M02CP2WHFS07MT2WG1": ("idle", 1, "8YAQ2HDNSHGM0"),
    "01KDVHCAK0G7F29PW65FP9CH5X": ("idle", 0, "CYXNZK0V6971K"),
}


@pytest.fixture
def kept(uwf: Uwf, root: Path) -> Path:
    """The repository of the store."""
    uwf("init")
    store = root / "store.git"
    git("--git-dir", store, "fetch", "--quiet", BUNDLE, "+refs/uwf/*:refs/uwf/*")
    return store


def refs(store: Path, *kinds: str) -> list[str]:
    patterns = [f"refs/uwf/{kind}/" for kind in kinds] or ["refs/uwf/"]
    return git("--git-dir", store, "for-each-ref", "--format=%(refname)", *patterns).split()


def test_a_store_of_format_1_has_every_kind_and_nothing_is_wrong_with_it(uwf: Uwf, kept: Path) -> None:
    assert {name.split("/")[2] for name in refs(kept)} == KINDS
    verified = uwf("verify").json
    assert verified["verified"] == VERIFIED and not verified["findings"]
    assert not [row for row in uwf("doctor", check=None).json if row["status"] == "error"]
    index = Instance.open().store.index
    missing = {node for node in BUILTIN if not index.hashes_of_type(node)}
    later = {CACHING_TURN, CACHING_DETAIL, ISSUE_START, *LANDING}
    assert missing == later, "types that came later"


def test_a_store_of_format_1_is_listed_and_shown(uwf: Uwf, kept: Path) -> None:
    threads = uwf("thread", "list", "--all").json
    assert {row["thread"]: (row["status"], row["steps"], row["head"]) for row in threads} == STATES
    for thread in STATES:
        assert uwf("thread", "show", thread).json["head"] == STATES[thread][2]
        assert len(uwf("thread", "steps", thread).json) == STATES[thread][1]
        assert uwf("thread", "read", thread, "--format", "text").out
    assert [row["name"] for row in uwf("crew", "list").json] == ["press"]
    assert [row["suite"] for row in uwf("eval", "baseline", "list").json] == ["issues"]
    assert {row["name"] for row in uwf("workflow", "list").json} == WORKFLOWS


def test_a_store_of_format_1_is_stepped_and_shared(uwf: Uwf, kept: Path, tmp_path: Path) -> None:
    idle = next(thread for thread, (status, _, _) in STATES.items() if status == "idle")
    stepped = uwf("thread", "step", idle, "--agent", "uwf-rehearse").json
    assert stepped["head"] != STATES[idle][2]
    uwf("thread", "restore", *[row["thread"] for row in uwf("thread", "restore").json])
    git("init", "--quiet", "--bare", tmp_path / "another.git")
    uwf("remote", "add", "another", tmp_path / "another.git")
    uwf("push", "another")
    uwf("--root", tmp_path / "other", "clone", tmp_path / "another.git")
    there = {row["thread"] for row in uwf("--root", tmp_path / "other", "thread", "list", "--all").json}
    assert there >= STATES.keys()
    assert not uwf("verify").json["findings"]


def test_each_ref_is_verified_with_its_commits_and_by_its_tree_alone(kept: Path, tmp_path: Path) -> None:
    for number, name in enumerate(refs(kept, *OF_ONE)):
        counts = []
        for depth in ((), ("--depth=1",)):
            clone = Clone(tmp_path / f"{number}-{len(depth)}")
            clone.folder.mkdir()
            clone("init", "-q")
            clone("fetch", "-q", *depth, f"file://{kept}", name)
            clone("checkout", "-q", "FETCH_HEAD")
            report = check_tree(clone.folder)
            assert report.findings == [], (name, depth, report.findings)
            counts.append(report.to_json()["verified"])
        assert counts[0]["threads"] == counts[1]["threads"] and counts[0]["steps"] >= counts[1]["steps"], name
    for name in refs(kept, *WHOLE):
        assert check_tree(kept, name).findings == [], name
