"""One comment on a pull or merge request, by the REST API of each forge."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from conftest import Uwf
from forge_server import Failing, ForgeServer, answer, forge_server

from uwf_git.base.errors import Declined, Invalid, RemoteFailed, Usage
from uwf_git.ext.ci.comments import MARK, Body, api_of, handed_over, read_bodies, write_comments
from uwf_git.ext.ci.job import CHANGE, SWEEP, Job
from uwf_git.forge.client import ForgeClient
from uwf_git.forge.rest import ForgeUnavailable

FORGES = ("github", "gitlab", "forgejo", "gitea")
TOKEN = "secret-token-0123456789"


@pytest.fixture(params=FORGES)
def server(request: pytest.FixtureRequest) -> Iterator[ForgeServer]:
    with forge_server(request.param) as running:
        yield running


@pytest.fixture
def github() -> Iterator[ForgeServer]:
    with forge_server("github", None) as running:
        yield running


def repository(server: ForgeServer) -> str:
    return "42" if server.forge == "gitlab" else "ann/work"


def api(server: ForgeServer, patience: float = 30.0) -> ForgeClient:
    job = Job(server.forge, CHANGE, 7, repository=repository(server), api=server.url)
    return api_of(job, TOKEN, patience)


def comment(server: ForgeServer, text: str = "It passed.", patience: float = 30.0) -> str:
    job = Job(server.forge, CHANGE, 7)
    with api(server, patience) as calls:
        (written,) = write_comments(calls, job, [Body("", text)])
    return written.done


def test_the_comment_is_created_then_replaced_then_left_alone(server: ForgeServer) -> None:
    server.has(7, *(("ann", f"Remark {number}") for number in range(8)))
    assert comment(server, "It failed.") == "created"
    assert comment(server, "It passed.") == "updated"
    assert comment(server, "It passed.") == "unchanged"
    assert server.texts(7)[8:] == [f"{MARK}\nIt passed."]
    assert len(server.writes()) == 2


def test_the_token_is_in_the_header_that_the_forge_asks_for(server: ForgeServer) -> None:
    comment(server)
    headers = [{name.lower(): value for name, value in each.headers.items()} for each in server.asked]
    expected = {
        "github": ("authorization", f"Bearer {TOKEN}"),
        "gitlab": ("private-token", TOKEN),
        "forgejo": ("authorization", f"token {TOKEN}"),
        "gitea": ("authorization", f"token {TOKEN}"),
    }[server.forge]
    assert {each[expected[0]] for each in headers} == {expected[1]}
    assert TOKEN not in " ".join(each.path for each in server.asked)


def test_a_strangers_comment_with_the_mark_is_not_taken_for_ours(server: ForgeServer) -> None:
    server.has(7, ("mallory", f"{MARK}\nIt passed."))
    assert comment(server, "It failed.") == "created"
    assert server.texts(7) == [f"{MARK}\nIt passed.", f"{MARK}\nIt failed."]


def test_a_token_that_may_not_ask_who_it_is_writes_as_the_forges_bot(github: ForgeServer) -> None:
    assert comment(github, "One") == "created"
    assert comment(github, "Two") == "updated"
    assert github.texts(7) == [f"{MARK}\nTwo"]


def test_a_comment_deleted_meanwhile_is_written_anew(github: ForgeServer) -> None:
    github.has(7, ("github-actions[bot]", f"{MARK}\nOld"))
    kept = github.answer

    def gone(asked: object) -> object:
        if asked.method == "PATCH":  # type: ignore[attr-defined]
            github.comments[7].clear()
        return kept(asked)  # type: ignore[arg-type]

    github.answer = gone  # type: ignore[assignment,method-assign]
    assert comment(github, "New") == "created"
    assert github.texts(7) == [f"{MARK}\nNew"]


def test_a_failed_call_that_was_carried_out_is_not_repeated(server: ForgeServer) -> None:
    server.failing["POST"] = [Failing(502, b"<html>Bad gateway</html>", does=True)]
    assert comment(server) == "unchanged"
    assert server.texts(7) == [f"{MARK}\nIt passed."]


def test_a_server_that_fails_is_asked_again_and_not_for_ever(server: ForgeServer) -> None:
    server.failing["GET"] = [Failing(503, b""), Failing(0)]
    assert comment(server) == "created"
    server.failing["GET"] = [Failing(503, answer("gitlab-limit"))] * 9
    with pytest.raises(ForgeUnavailable, match="answered 503"):
        comment(server, "Other", patience=3.0)


def test_it_waits_as_long_as_a_rate_limit_says(server: ForgeServer) -> None:
    server.failing["GET"] = [
        Failing(429, b"Retry later\n", {"Retry-After": "0"}),
        Failing(429, answer("gitlab-limit"), {"Retry-After": "1", "RateLimit-Remaining": "0"}),
    ]
    assert comment(server) == "created"


def test_githubs_two_rate_limits_are_no_missing_permission(github: ForgeServer) -> None:
    past = str(int(time.time()) - 5)
    limits = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": past}
    github.failing["POST"] = [
        Failing(403, answer("github-primary-limit"), limits),
        Failing(403, answer("github-secondary-limit"), {"Retry-After": "1"}),
    ]
    assert comment(github) == "created"
    assert github.writes() == ["POST"] * 3


def test_a_limit_longer_than_its_patience_ends_it_at_once(github: ForgeServer) -> None:
    later = str(int(time.time()) + 3000)
    github.failing["POST"] = [
        Failing(
            403, answer("github-primary-limit"), {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": later}
        )
    ]
    with pytest.raises(ForgeUnavailable, match=r"limits the rate of calls: it asks to wait \d{4} s"):
        comment(github)
    github.failing["POST"] = [Failing(403, answer("github-secondary-limit"))]
    with pytest.raises(ForgeUnavailable, match="wait 60 s"):
        comment(github)


def test_a_missing_permission_is_named(server: ForgeServer) -> None:
    server.failing["POST"] = [Failing(403, answer(f"{server.gitlike}-forbidden"))]
    with pytest.raises(Declined, match="answered 403") as refused:
        comment(server)
    assert {
        "github": "pull-requests: write",
        "gitlab": "scope api",
        "forgejo": "write issues",
        "gitea": "write issues",
    }[server.forge] in refused.value.hint
    server.failing["GET"] = [Failing(200, {"username": "me", "login": "me"})]
    server.failing["GET"] += [Failing(401, answer(f"{server.gitlike}-unauthorized"))]
    with pytest.raises(Declined, match="answered 401") as refused:
        comment(server)
    assert "not valid" in refused.value.hint


def test_a_redirect_is_not_followed_with_the_token(server: ForgeServer) -> None:
    with forge_server(server.forge) as other:
        server.failing["GET"] = [
            Failing(200, {"login": "me", "username": "me"}),
            Failing(301, b"", {"Location": f"{other.url}/user"}),
        ]
        with pytest.raises(Declined, match="redirect"):
            comment(server)
        assert not other.asked


def test_a_next_page_elsewhere_is_asked_of_the_same_server(github: ForgeServer) -> None:
    with forge_server("github") as other:
        github.failing["GET"] = [
            Failing(403, answer("github-forbidden")),
            Failing(200, [], {"Link": f'<{other.url}/repos/x?page=2>; rel="next"'}),
        ]
        assert comment(github) == "created"
        assert not other.asked


@pytest.mark.parametrize(
    "address",
    ("http://forge.example.org/api", "ftp://forge.example.org", "https://me:it@forge.example.org", ""),
)
def test_no_token_goes_where_others_can_read_it(address: str) -> None:
    with pytest.raises((Usage, Invalid)):
        api_of(Job("github", CHANGE, 7, repository="ann/work", api=address), TOKEN)


@pytest.mark.parametrize("name", ("", "../../user", "ann/work?x=1", "ann/work#", "ann//work"))
def test_a_repositorys_name_stays_a_name(name: str) -> None:
    with pytest.raises(Usage):
        api_of(Job("github", CHANGE, 7, repository=name, api="https://api.github.com"), TOKEN)


def test_an_answer_that_repeats_the_token_is_not_printed(github: ForgeServer) -> None:
    github.failing["POST"] = [Failing(422, {"message": f"bad {TOKEN} \x1b[31m\n::error::x"})]
    with pytest.raises(Declined) as refused:
        comment(github)
    assert TOKEN not in refused.value.message
    assert "\x1b" not in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("body", (b"no json", b"[" * 100_000, b'{"a": 1}'))
def test_an_answer_that_is_none_is_an_error(github: ForgeServer, body: bytes) -> None:
    github.failing["GET"] = [Failing(403, answer("github-forbidden")), Failing(200, body)]
    with pytest.raises(RemoteFailed):
        comment(github)


def test_of_a_sweep_the_open_changes_of_each_branch_are_found(server: ForgeServer) -> None:
    branch = "uwf/threads/01M7YG01Q9Z55XDYX31FFWGFQ5"
    for number, head, whose in (
        (7, branch, "ann/work"),
        (8, "other", "ann/work"),
        (9, branch, "mallory/work"),
    ):
        server.has_change(number, head, whose)
    with api(server) as calls:
        written = write_comments(calls, Job(server.forge, SWEEP), [Body(branch, "One"), Body("uwf/x", "Two")])
    assert [(each.number, each.done) for each in written] == [(7, "created"), (None, "no-change-open")]
    assert server.texts(7) == [f"{MARK}\nOne"]
    assert not server.texts(9)


def test_the_number_is_that_of_the_own_event_not_one_handed_over(github: ForgeServer) -> None:
    with api(github) as calls:
        write_comments(calls, Job("github", CHANGE, 7), [Body("uwf/threads/other", "One")])
    assert list(github.comments) == [7]


@pytest.mark.parametrize(
    "text",
    (
        "",
        "{}",
        "[1]",
        '[{"branch": 1, "text": ""}]',
        '[{"branch": "-x", "text": ""}]',
        "[" * 100_000,
        '[{"text": ""}]',
    ),
)
def test_what_was_handed_over_is_not_trusted(text: str) -> None:
    with pytest.raises(Invalid):
        read_bodies(text)


def test_the_command_writes_what_the_check_handed_over(
    github: ForgeServer, uwf: Uwf, hermetic: object
) -> None:
    environment = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_REF": "refs/pull/7/merge",
        "GITHUB_REPOSITORY": "ann/work",
        "GITHUB_API_URL": github.url,
        "UWF_COMMENTS": handed_over([Body("", "It passed.")]),
        "UWF_COMMENT_TOKEN": TOKEN,
    }
    done = uwf("ci", "comment", env=environment)
    assert done.json == [{"number": 7, "done": "created", "branch": ""}]
    assert github.texts(7) == [f"{MARK}\nIt passed."]
    assert TOKEN not in done.out + done.err
    github.failing["POST"] = [Failing(403, answer("github-forbidden"))]
    github.comments.clear()
    refused = uwf("ci", "comment", env=environment, check=8)
    assert "pull-requests: write" in refused.error["hint"]
    none = uwf("ci", "comment", env={**environment, "UWF_COMMENT_TOKEN": ""}, check=2)
    assert "UWF_COMMENT_TOKEN" in json.dumps(none.error)
