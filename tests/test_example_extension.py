"""The package in examples/extension: an installed extension's own kind of refs is shared, verified and looked after."""

from __future__ import annotations

from pathlib import Path

import git_servers
import pytest
from conftest import EXAMPLES, Uwf
from forged import Forger
from two_machines import Machine

REF = "refs/uwf/schedules/nightly"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, installed."""
    site = tmp_path / "site"
    info = site / "uwf_schedules-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "uwf_schedules").symlink_to(EXAMPLES / "extension" / "uwf_schedules")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-schedules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[uwf.extensions]\nschedules = uwf_schedules:EXTENSION\n")
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.fixture
def scheduled(uwf: Uwf, hermetic: Path) -> Machine:
    """A machine with a schedule, and a remote."""
    machine = Machine(uwf, hermetic / "ada")
    machine("remote", "add", "origin", git_servers.bare(hermetic / "hub.git"))
    machine("workflow", "put", EXAMPLES / "solve-issue.yaml")
    machine("schedule", "set", "nightly", "--workflow", "solve-issue", "--every", "1d", "-p", "Triage *it*.")
    return machine


@pytest.fixture
def other(uwf: Uwf, scheduled: Machine, hermetic: Path) -> Machine:
    """A machine that has cloned what that one pushed."""
    scheduled("push")
    machine = Machine(uwf, hermetic / "bob")
    machine("clone", hermetic / "hub.git")
    return machine


def test_a_schedule_starts_its_thread_when_it_is_due(scheduled: Machine) -> None:
    (thread,) = scheduled("schedule", "start").json["started"]
    assert "Triage *it*." in scheduled("thread", "read", thread, "--format", "text").out
    assert scheduled("schedule", "start").json == {"started": []}


def test_a_schedule_is_pushed_pulled_and_verified_like_a_workflow(scheduled: Machine, other: Machine) -> None:
    assert other("schedule", "list").json == scheduled("schedule", "list").json
    scheduled("schedule", "set", "nightly", "--workflow", "solve-issue", "--every", "2h", "-p", "Triage.")
    scheduled("push")
    other("pull")
    assert [each["every"] for each in other("schedule", "list").json] == [7200]
    other.is_sound()


def test_a_page_that_does_not_say_what_the_schedule_says_is_found_and_not_pulled(
    scheduled: Machine, other: Machine, hermetic: Path
) -> None:
    forge = Forger(scheduled.store)
    lying = {**forge.folder(REF), "README.md": forge.blob(b"# Schedule `nightly`\n\nHarmless.\n")}
    head = forge("rev-parse", REF)
    forged = forge.amended(head, forge.tree(lying), [head])
    forge.point(REF, forged)
    found = scheduled("verify", "--all", check=None).json["findings"]
    assert [(each["code"], each["ref"]) for each in found] == [("wrong-page", REF)]
    forge("push", "-q", str(hermetic / "hub.git"), REF)
    refused = other("pull", check=None)
    assert "wrong-page" in refused.out + refused.err
    assert Forger(other.store)("rev-parse", REF) == head


def test_doctor_warns_of_a_schedule_whose_workflow_is_not_registered(scheduled: Machine) -> None:
    scheduled("workflow", "rm", "solve-issue")
    checks = scheduled("doctor", check=None).json
    assert [(each["status"], each["message"]) for each in checks if each["check"] == "schedules"] == [
        ("warning", "nightly starts solve-issue, which is not registered"),
        ("ok", "1 set"),
    ]


def test_a_machine_without_the_package_keeps_what_it_does_not_know(
    scheduled: Machine, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Forger(other.store)("rev-parse", REF)
    monkeypatch.delenv("PYTHONPATH")
    assert other("verify", "--all").json["findings"] == []
    assert not [each for each in other("doctor").json if each["status"] == "error"]
    other("gc")
    assert Forger(other.store)("rev-parse", REF) == before
