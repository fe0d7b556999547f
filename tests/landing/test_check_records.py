"""The checks of a landing are recorded beside the thread, before the push, with what they printed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from landing_shop import Shop
from workflows import opened

from uwf_git.ext.landing.effect_records import Check, Effects
from uwf_git.format.ids import ThreadId

SECRET = "s3cr3t-of-the-file-Zx81"


@pytest.fixture
def shop(shop: Shop) -> Shop:
    shop.with_remote()
    return shop


def checks(uwf: Uwf, thread: str) -> list[dict[str, str]]:
    return [item for item in uwf("effect", "list", thread).json if item["kind"] == "check"]


def log_of(uwf: Uwf, check: dict[str, str]) -> str:
    return str(uwf("cas", "get", check["reference"]).json["payload"])


def test_a_check_is_recorded_with_its_commit_and_log(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    landed = uwf("land", thread).json
    (check,) = checks(uwf, thread)
    assert (check["name"], check["text"], check["outcome"]) == (landed["commit"], "sh tests.sh", "passed")
    assert check["sha256"] == landed["checks"][0]["sha256"]
    assert check["sha256"] == hashlib.sha256(log_of(uwf, check).encode()).hexdigest()
    assert log_of(uwf, check) == "tried\n"
    assert landed["checks"][0]["node"] == check["effect"]
    kinds = [item["kind"] for item in uwf("effect", "list", thread).json]
    assert kinds == ["check", "push"]
    uwf("verify", thread)


def test_a_check_that_failed_is_recorded_and_nothing_is_pushed(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    shop.configured("land: { checks: ['sh -c \"echo why; exit 3\"'] }\n")
    uwf("land", thread, check=6)
    (check,) = checks(uwf, thread)
    assert (check["outcome"], check["reason"]) == ("failed", "exited with 3")
    assert log_of(uwf, check) == "why\n"
    assert [item["kind"] for item in uwf("effect", "list", thread).json] == ["check"]
    uwf("verify", thread)


def test_a_log_has_no_secrets_and_at_most_a_mebibyte(uwf: Uwf, shop: Shop, root: Path) -> None:
    (root / ".env").write_text(f"MODEL_KEY={SECRET}\n")
    thread = shop.accepted()
    # What is kept of the output begins within the secret.
    lines = f"print('{SECRET}' + 'x' * ((1 << 20) - 12) + 'end')"
    shop.configured(f'land: {{ checks: ["python3 -c \\"{lines}\\""] }}\n')
    uwf("land", thread)
    (check,) = checks(uwf, thread)
    log = log_of(uwf, check)
    assert log.endswith("xend\n") and log.startswith("x") and len(log.encode()) <= 1 << 20
    assert SECRET not in check["text"]
    uwf("verify", thread)


def test_a_log_that_is_no_text_takes_no_more_room(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    writes = "python3 -c 'import sys; sys.stdout.buffer.write(bytes([255]) * (1 << 20))'"
    shop.configured(f"land: {json.dumps({'checks': [writes]})}\n")
    uwf("land", thread)
    (check,) = checks(uwf, thread)
    log = log_of(uwf, check)
    assert len(log.encode()) <= 1 << 20 and set(log) == {"\ufffd"}


def test_a_pulled_check_is_verified(uwf: Uwf, shop: Shop, tmp_path: Path) -> None:
    thread = shop.accepted()
    uwf("land", thread)
    uwf("remote", "add", "store", tmp_path / "store.git")
    git("init", "-q", "--bare", tmp_path / "store.git")
    uwf("push", "store", thread)
    there = tmp_path / "there"
    uwf("clone", tmp_path / "store.git", "--root", there)
    assert uwf("effect", "list", thread, "--root", there).json == uwf("effect", "list", thread).json


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (lambda check: check._replace(prev=None), "is not of the head"),
        (lambda check: check._replace(log=check.start), "which is no text"),
    ],
)
def test_a_forged_check_is_a_finding(
    uwf: Uwf, shop: Shop, changed: Callable[[Check], Check], problem: str
) -> None:
    thread = ThreadId(shop.accepted())
    uwf("land", thread)
    instance = opened()
    effects = Effects(instance.store)
    (check,) = effects.checks(thread).values()
    effects.record(instance.threads.head(thread), changed(check))
    verified = uwf("verify", thread, check=7)
    assert problem in verified.out + verified.err
