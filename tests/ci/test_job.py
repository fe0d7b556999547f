"""What a CI job is about, by the environment that each forge gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Uwf

from uwf_git.base.errors import Invalid, Usage
from uwf_git.ext.ci.job import BRANCH, CHANGE, SWEEP, read_job

HEAD, BASE = "1" * 40, "2" * 40
ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://forge.example.org",
    "GITHUB_REPOSITORY": "ann/work",
    "GITHUB_SHA": "3" * 40,
}


def event(tmp_path: Path, value: object) -> dict[str, str]:
    file = tmp_path / "event.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return {"GITHUB_EVENT_PATH": str(file)}


def pull(number: object = 7, ref: str = "topic") -> dict[str, object]:
    return {
        "pull_request": {
            "number": number,
            "head": {"sha": HEAD, "ref": ref},
            "base": {"sha": BASE, "ref": "uwf/threads/X"},
        }
    }


def test_a_pull_request_of_github(tmp_path: Path) -> None:
    said = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_API_URL": "https://api.example.org"}
    job = read_job({**ACTIONS, **said, **event(tmp_path, pull())})
    assert (job.forge, job.about, job.number, job.head, job.base) == ("github", CHANGE, 7, HEAD, BASE)
    assert (job.branch, job.repository, job.api) == ("topic", "ann/work", "https://api.example.org")
    assert job.target == "uwf/threads/X"


@pytest.mark.parametrize(
    ("variables", "forge"),
    (
        ({"GITEA_ACTIONS": "true"}, "gitea"),
        ({"GITEA_ACTIONS": "true", "FORGEJO_ACTIONS": "true"}, "forgejo"),
    ),
)
def test_gitea_and_forgejo_are_told_from_github(
    tmp_path: Path, variables: dict[str, str], forge: str
) -> None:
    said = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/7/head"}
    job = read_job({**ACTIONS, **variables, **said, **event(tmp_path, pull(None))})
    assert (job.forge, job.number, job.api) == (forge, 7, "https://forge.example.org/api/v1")


def test_a_merge_request_of_gitlab() -> None:
    job = read_job(
        {
            "GITLAB_CI": "true",
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_PROJECT_ID": "42",
            "CI_PROJECT_ID": "43",
            "CI_API_V4_URL": "https://gitlab.example.org/api/v4",
            "CI_COMMIT_SHA": HEAD,
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": BASE,
            "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "topic",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "uwf/threads/X",
        }
    )
    assert (job.forge, job.about, job.number, job.head, job.base) == ("gitlab", CHANGE, 7, HEAD, BASE)
    assert (job.repository, job.has_workflow_commands) == ("42", False)
    assert job.target == "uwf/threads/X"


def test_a_branchs_first_push_has_nothing_before() -> None:
    job = read_job(
        {
            "GITLAB_CI": "true",
            "CI_PIPELINE_SOURCE": "push",
            "CI_COMMIT_SHA": HEAD,
            "CI_COMMIT_BEFORE_SHA": "0" * 40,
            "CI_COMMIT_BRANCH": "uwf/workflows/pair",
        }
    )
    assert (job.about, job.head, job.base, job.branch) == (BRANCH, HEAD, "", "uwf/workflows/pair")


def test_by_hand_one_branch_and_daily_all(tmp_path: Path) -> None:
    said = {**ACTIONS, "GITHUB_EVENT_NAME": "workflow_dispatch"}
    one = read_job({**said, **event(tmp_path, {"inputs": {"branch": " uwf/threads/X "}})})
    assert (one.about, one.branch) == (SWEEP, "uwf/threads/X")
    daily = read_job({**ACTIONS, "GITHUB_EVENT_NAME": "schedule", **event(tmp_path, {})})
    assert (daily.about, daily.branch) == (SWEEP, "")


@pytest.mark.parametrize("name", ("pull_request_target", "workflow_run", "issue_comment"))
def test_it_refuses_to_run_with_the_repositorys_rights_for_strangers(name: str, uwf: Uwf) -> None:
    with pytest.raises(Usage, match=name):
        read_job({**ACTIONS, "GITHUB_EVENT_NAME": name})
    for command in ("check", "comment"):
        refused = uwf("ci", command, env={**ACTIONS, "GITHUB_EVENT_NAME": name}, check=2)
        assert "strangers" in refused.error["message"]


def test_outside_of_a_job_it_says_what_to_type(uwf: Uwf) -> None:
    assert uwf("ci", "check", check=2).error["hint"] == "to verify a checkout: uwf verify ."


@pytest.mark.parametrize("text", ("", "[", "[1]", '{"pull_request": 7}', "[" * 200_000))
def test_an_event_of_no_use_is_an_error(tmp_path: Path, text: str) -> None:
    said = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/heads/main"}
    with pytest.raises(Invalid):
        read_job({**ACTIONS, **said, **event(tmp_path, text)})


@pytest.mark.parametrize("number", (0, -1, True, "7; rm", "7" * 30, 7.5, [7]))
def test_a_number_that_is_none_is_not_used(tmp_path: Path, number: object) -> None:
    said = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/9/merge"}
    assert read_job({**ACTIONS, **said, **event(tmp_path, pull(number))}).number == 9


@pytest.mark.parametrize("ref", ("--upload-pack=x", "a b", "..", "x\n::error::", "/", "a" * 300))
def test_a_branchs_name_that_git_would_not_take_is_left_out(tmp_path: Path, ref: str) -> None:
    said = {"GITHUB_EVENT_NAME": "pull_request"}
    assert read_job({**ACTIONS, **said, **event(tmp_path, pull(7, ref))}).branch == ""
    with pytest.raises(Invalid):
        read_job(
            {
                **ACTIONS,
                "GITHUB_EVENT_NAME": "workflow_dispatch",
                **event(tmp_path, {"inputs": {"branch": ref}}),
            }
        )


@pytest.mark.parametrize("source", ("schedule", "trigger", "", "external_pull_request_event"))
def test_a_pipeline_of_gitlab_that_is_about_no_branch_is_refused(source: str) -> None:
    with pytest.raises(Usage, match="pipelines of"):
        read_job({"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": source})
