"""Issues and changes by the REST API of each forge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import git
from forge_server import TOKEN, Failing, ForgeServer, forge_server
from git_servers import bare

from uwf_git.base.errors import Declined, RemoteFailed
from uwf_git.forge.address import Forge, ForgeRepository
from uwf_git.forge.answers import draft_title
from uwf_git.forge.client import ForgeClient
from uwf_git.forge.rest import ForgeDeclined, ForgeUnavailable

FORGES = ("github", "gitlab", "forgejo", "gitea")
VERSIONS = {"github": "v3", "gitlab": "v4", "forgejo": "v1", "gitea": "v1"}


@pytest.fixture(params=FORGES)
def server(request: pytest.FixtureRequest) -> Iterator[ForgeServer]:
    with forge_server(request.param) as running:
        running.token = TOKEN
        yield running


@pytest.fixture(params=FORGES)
def with_git(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ForgeServer]:
    """A forge with a bare repository behind it, whose branch `fix` has a commit more than `main`."""
    repository = bare(tmp_path / "srv" / "work.git")
    base = commit(repository, "Begin")
    git("--git-dir", repository, "update-ref", "refs/heads/main", base)
    git("--git-dir", repository, "update-ref", "refs/heads/fix", commit(repository, "Fix", base))
    with forge_server(request.param, repository=repository) as running:
        yield running


def commit(repository: Path, text: str, *parents: str) -> str:
    blob = git("--git-dir", repository, "hash-object", "-w", "--stdin", data=text)
    tree = git("--git-dir", repository, "mktree", data=f"100644 blob {blob}\t{text}\n")
    onto = [word for parent in parents for word in ("-p", parent)]
    return git("--git-dir", repository, "commit-tree", tree, *onto, "-m", text)


def client(server: ForgeServer, token: str = TOKEN, patience: float = 30.0) -> ForgeClient:
    api = f"{server.url}/api/{VERSIONS[server.forge]}"
    forge = Forge(server.forge, server.url.partition("://")[2], api)
    return ForgeClient(ForgeRepository(forge, "ann/work"), token, patience=patience)


def test_an_issue_is_read_with_labels_and_all_pages_of_its_comments(server: ForgeServer) -> None:
    comments = [("bob", f"Remark {number}") for number in range(8)]
    server.has_issue(42, "It fails", "Always.", *comments, labels=("bug", "urgent"))
    if server.is_gitlab:
        server.has(42, ("eve", "of another thing"), on="change")
    with client(server) as forge:
        issue = forge.issue(42)
        read = [(comment.author, comment.body) for comment in forge.comments(42, "issue")]
    assert (issue.title, issue.body, issue.author.login) == ("It fails", "Always.", "ann")
    assert (issue.labels, issue.is_open, issue.comments) == (("bug", "urgent"), True, 8)
    assert issue.url == server.issue_url(42)
    assert read == comments


def test_a_closed_issue_is_told(server: ForgeServer) -> None:
    server.has_issue(42)["state"] = "closed"
    with client(server) as forge:
        assert not forge.issue(42).is_open


def test_a_deleted_issue_is_an_error_of_one_line(server: ForgeServer) -> None:
    server.has_issue(42)["gone"] = True
    with client(server) as forge, pytest.raises(ForgeDeclined, match=r"answered 4(04|10)") as refused:
        forge.issue(42)
    assert "\n" not in refused.value.message


def test_a_moved_issue_is_not_followed_to_another_repository() -> None:
    with forge_server("github") as server:
        server.has_issue(42)["moved"] = True
        with client(server) as forge, pytest.raises(ForgeDeclined, match="redirect") as refused:
            forge.issue(42)
        assert refused.value.is_redirect
        assert len(server.asked) == 1


def test_gitlab_says_that_an_issue_was_moved() -> None:
    with forge_server("gitlab") as server:
        server.has_issue(42)["moved"] = True
        with client(server) as forge:
            assert forge.issue(42).was_moved
        assert len(server.asked) == 1


def test_bots_are_told_from_people(server: ForgeServer) -> None:
    bots = ("dependabot[bot]", "github-actions", "forgejo-actions", "project_42_bot_0a1b")
    people = ("ann", "bottega", "robot", "abbot")
    server.has_issue(42, "x", "y", *((login, "words") for login in (*bots, *people)))
    with client(server) as forge:
        told = [comment.author for comment in forge.comments(42, "issue") if comment.is_bot]
    assert told == list(bots)


def test_comments_on_an_issue_are_written_and_replaced(server: ForgeServer) -> None:
    server.has_issue(42)
    with client(server) as forge:
        number = forge.create_comment(42, "One", "issue")
        forge.update_comment(42, number, "Two", "issue")
        assert [comment.body for comment in forge.comments(42, "issue")] == ["Two"]


def test_a_change_is_opened_found_changed_and_read(with_git: ForgeServer) -> None:
    with client(with_git) as forge:
        assert forge.open_changes("fix") == []
        opened = forge.create_change("Quote commas", "Closes #42", "fix", "main", is_draft=True)
        assert (opened.title, opened.body, opened.state) == ("Quote commas", "Closes #42", "open")
        assert (opened.head, opened.base, opened.is_draft) == ("fix", "main", True)
        assert not opened.is_foreign
        assert opened.commit == git("--git-dir", with_git.repository, "rev-parse", "fix")
        assert forge.open_changes("fix") == [opened]
        ready = forge.update_change(opened.number, is_draft=False)
        assert (ready.is_draft, ready.title) == (False, "Quote commas")
        renamed = forge.update_change(opened.number, title="Quote", body="New")
        assert (renamed.title, renamed.body, renamed.is_draft) == ("Quote", "New", False)
        again = forge.update_change(opened.number, is_draft=True)
        assert (again.title, again.is_draft) == ("Quote", True)
        assert forge.change(opened.number) == again
        assert forge.update_change(opened.number) == again


def test_a_title_keeps_its_draft_if_nothing_is_said_of_it(server: ForgeServer) -> None:
    server.has_change(7, "fix", title=draft_title(server.forge, "One", True), draft=True)
    with client(server) as forge:
        changed = forge.update_change(7, title="Two")
    assert (changed.title, changed.is_draft) == ("Two", True)


@pytest.mark.parametrize("how", ["merge", "squash", "fast-forward"])
def test_a_merge_is_told_with_who_and_which_commit(with_git: ForgeServer, how: str) -> None:
    number = 7
    with_git.has_change(number, "fix")
    if how == "fast-forward":
        git("--git-dir", with_git.repository, "update-ref", "refs/heads/main", "fix")
        merged = git("--git-dir", with_git.repository, "rev-parse", "main")
    else:
        merged = with_git.merge(number, how, by="bob")
    with client(with_git) as forge:
        change = forge.change(number)
        assert forge.open_changes("fix") == []
    assert (change.state, change.merge_commit) == ("merged", merged)
    assert change.merged_by == ("ann" if how == "fast-forward" else "bob")


def test_of_an_open_change_no_merge_is_told(server: ForgeServer) -> None:
    server.has_change(7, "fix", merge="e5bd3914e2e596debea16f433f57875b5b90bcd6")
    server.has_change(8, "old", state="closed")
    with client(server) as forge:
        assert (forge.change(7).state, forge.change(7).merge_commit) == ("open", "")
        assert (forge.change(8).state, forge.change(8).merged_by) == ("closed", "")


def test_a_strangers_change_of_a_branch_of_that_name_is_not_ours(server: ForgeServer) -> None:
    server.has_change(7, "fix", "mallory/work")
    with client(server) as forge:
        assert forge.open_changes("fix") == []
        assert forge.change(7).is_foreign


def test_a_change_that_is_there_already_is_told_in_the_forges_words(server: ForgeServer) -> None:
    server.has_change(7, "fix")
    with client(server) as forge, pytest.raises(ForgeDeclined, match="already exists") as refused:
        forge.create_change("One", "", "fix", "main")
    assert refused.value.status == (422 if server.forge == "github" else 409)


def test_what_makes_something_is_called_once(server: ForgeServer) -> None:
    server.failing["POST"] = [Failing(502, b"", does=True)] * 2
    with client(server) as forge:
        with pytest.raises(ForgeUnavailable):
            forge.create_change("One", "", "fix", "main")
        with pytest.raises(ForgeUnavailable):
            forge.create_comment(7, "One")
    assert server.writes() == ["POST", "POST"]
    assert (len(server.changes), len(server.texts(7))) == (1, 1)


def test_what_may_be_repeated_is(server: ForgeServer) -> None:
    server.has_change(7, "fix")
    method = "PUT" if server.is_gitlab else "PATCH"
    server.failing[method] = [Failing(503, b""), Failing(429, b"", {"Retry-After": "0"})]
    server.failing["GET"] = [Failing(0)]
    with client(server) as forge:
        assert forge.update_change(7, body="New").body == "New"


def test_a_token_revoked_in_the_middle_is_told(server: ForgeServer) -> None:
    server.has_issue(42, "x", "y", *(("bob", "words"),) * 7)
    server.revoked = 2
    with client(server) as forge:
        forge.issue(42)
        forge.issue(42)
        with pytest.raises(Declined, match="answered 401") as refused:
            list(forge.comments(42, "issue"))
    assert "not valid, or expired" in refused.value.hint
    assert TOKEN not in refused.value.message + refused.value.hint


def test_another_token_is_refused(server: ForgeServer) -> None:
    with client(server, "another-0123456789") as forge, pytest.raises(Declined, match="401"):
        forge.issue(42)


@pytest.mark.parametrize("read", ["issue", "change"])
@pytest.mark.parametrize(
    "body", (b"[]", b"{}", b'{"number": "42", "iid": "42"}', b'{"number": 43, "iid": 43}', b"null", b"[[[")
)
def test_an_answer_about_something_else_is_an_error(server: ForgeServer, read: str, body: bytes) -> None:
    server.failing["GET"] = [Failing(200, body)]
    with client(server) as forge, pytest.raises(RemoteFailed):
        getattr(forge, read)(42)


def test_texts_of_odd_types_become_empty_ones(server: ForgeServer) -> None:
    key = "iid" if server.is_gitlab else "number"
    row = {key: 42, "title": 7, "body": ["x"], "description": {}, "labels": [1, None, {"name": 2}, "ok"]}
    server.failing["GET"] = [Failing(200, {**row, "user": "ann", "author": 3, "state": []})]
    with client(server) as forge:
        issue = forge.issue(42)
    assert (issue.title, issue.body, issue.author.login, issue.labels) == ("", "", "", ("ok",))


@pytest.mark.parametrize("kind", ["gitlab", "gitea", "forgejo"])
def test_the_mark_of_a_draft_is_put_once_and_taken_away_whole(kind: str) -> None:
    mark = draft_title(kind, "", True)
    assert draft_title(kind, f"{mark}One", True) == f"{mark}One"
    assert draft_title(kind, f"{mark}{mark.upper()}One", False) == "One"
    assert draft_title(kind, "Drafting wipers", False) == "Drafting wipers"


def test_githubs_draft_is_no_word_of_its_title() -> None:
    assert draft_title("github", "WIP: One", False) == "WIP: One"


def test_a_refusal_by_githubs_other_api_is_told() -> None:
    with forge_server("github") as server:
        server.has_change(7, "fix")
        server.failing["POST"] = [Failing(200, {"errors": [{"message": "Resource not accessible"}]})]
        with client(server) as forge, pytest.raises(ForgeDeclined, match="Resource not accessible"):
            forge.update_change(7, is_draft=True)
        assert [row.path for row in server.asked][-1] == "/api/graphql"
