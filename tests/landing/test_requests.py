"""Work lands on a forge as a pull request of a branch of its own: opened once, kept up to date, beside others' work."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git, wait_for
from conftest import Begin, Uwf
from forge_server import Failing
from landing_forge import TOKENS, Killer, one_forge
from landing_forge import LandingForge as Forge
from landing_shop import Shop

BRANCH = "mend/add-two"


def test_work_becomes_a_request_of_a_branch_of_its_own(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    before = forge.shop.at_remote("rev-parse", "main")
    landed = uwf("land", thread).json
    assert landed["branch"] == BRANCH and landed["pull"]["url"] == landed["pull"]["url"].strip()
    assert (landed["pull"]["draft"], landed["pull"]["new"]) == (False, True)
    assert (forge.request["head"], forge.request["base"], forge.request["title"]) == (
        BRANCH,
        "main",
        "Add *two*",
    )
    assert "exited with 0" in str(forge.request["body"])
    assert forge.shop.at_remote("rev-parse", BRANCH, f"{BRANCH}~1", "main").split() == [
        landed["commit"],
        before,
        before,
    ]


def test_a_request_is_a_draft_until_the_gate_says_ready(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.at_gate()
    assert uwf("land", thread).json["pull"]["draft"]
    uwf("thread", "answer", thread, "-m", "merge")
    landed = uwf("land", thread).json
    assert (landed["pull"]["draft"], landed["pull"]["new"]) == (False, False)
    assert len(forge.server.changes) == 1


def test_landing_again_changes_nothing_if_nothing_has_changed(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    first = uwf("land", thread).json
    asked = len(forge.server.writes())
    again = uwf("land", thread).json
    assert (again["commit"], again["pull"]["number"]) == (first["commit"], first["pull"]["number"])
    assert again["checks"] == first["checks"], "what came to the same is not recorded again"
    assert (first["pull"]["changed"], again["pull"]["changed"]) == (True, False)
    assert len(forge.server.writes()) == asked


@one_forge
def test_what_was_done_with_a_request_is_told_apart(uwf: Uwf, forge: Forge) -> None:
    thread, told = forge.shop.at_gate(), []

    def lands() -> None:
        text = uwf("land", thread, "--format", "text").out
        told.append(re.sub(r"^.*pull +\S+  (.+?)\s*$", r"\1", text, flags=re.DOTALL))

    lands()
    lands()
    uwf("thread", "answer", thread, "-m", "merge")
    lands()
    lands()
    forge.shop.moves("other.txt", "x\n")
    lands()
    assert told == [
        "was opened, draft: yes",
        "was up to date, draft: yes",
        "was brought up to date, draft: no",
        "was up to date, draft: no",
        "was brought up to date, draft: no",
    ]


@one_forge
def test_work_that_is_in_the_target_is_left_and_what_became_of_its_request_can_be_recorded(
    uwf: Uwf, forge: Forge
) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    forge.server.merge(forge.number)
    refused = uwf("land", thread, check=1).error
    assert refused["message"] == f"nothing is left to land: the work of thread {thread} is in main already"
    command, _, why = refused["hint"].partition(" records ")
    assert why == "what became of its request"
    uwf(*command.split()[1:])
    assert uwf("thread", "show", thread).json["work"]["state"] == "merged"
    assert "merged" in uwf("land", thread, check=1).error["message"]


def test_what_goes_on_with_the_thread_goes_on_with_its_request(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    first = uwf("land", thread).json
    onward = forge.shop.goes_on(thread)
    second = uwf("land", onward).json
    assert second["pull"]["number"] == first["pull"]["number"] and second["branch"] == first["branch"]
    assert forge.shop.at_remote("show", f"{BRANCH}:sum.txt").split() == ["one", "two", "three"]


@one_forge
def test_a_branch_that_others_have_is_left_alone(uwf: Uwf, forge: Forge) -> None:
    git("-C", forge.shop.project, "push", "-q", "origin", f"main:{BRANCH}")
    before = forge.shop.at_remote("rev-parse", BRANCH)
    landed = uwf("land", forge.shop.accepted()).json
    assert landed["branch"] == f"{BRANCH}-2"
    assert forge.shop.at_remote("rev-parse", BRANCH) == before


@one_forge
def test_commits_of_others_on_the_branch_are_not_overwritten(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    project = forge.shop.project
    git("-C", project, "fetch", "-q", "origin")
    git("-C", project, "checkout", "-q", BRANCH)
    (project / "review.txt").write_text("x")
    forge.shop.commit("a reviewer's")
    git("-C", project, "push", "-q", "origin", BRANCH)
    git("-C", project, "checkout", "-q", "main")
    theirs = forge.shop.at_remote("rev-parse", BRANCH)
    onward = forge.shop.goes_on(thread)
    refused = uwf("land", onward, check=1).error
    assert theirs[:12] in refused["message"] and "--branch" in refused["hint"]
    assert forge.shop.at_remote("rev-parse", BRANCH) == theirs


@one_forge
def test_a_request_that_was_closed_is_not_opened_again(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    forge.request["state"] = "closed"
    refused = uwf("land", thread, check=1).error
    assert "was closed" in refused["message"]
    assert len(forge.server.changes) == 1


def test_a_call_that_was_carried_out_though_it_failed_opens_no_second_request(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    forge.server.failing["POST"] = [Failing(502, does=True)]
    uwf("land", thread, check=8)
    landed = uwf("land", thread).json
    assert landed["pull"]["number"] == next(iter(forge.server.changes))
    assert len(forge.server.changes) == 1


@one_forge
def test_a_text_that_somebody_else_wrote_stays(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    forge.request["body"] = "Mine."
    uwf("land", thread)
    assert forge.request["body"] == "Mine."


@one_forge
def test_without_a_login_nothing_is_pushed(uwf: Uwf, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKENS[forge.server.forge])
    thread = forge.shop.accepted()
    refused = uwf("land", thread, check=1).error
    assert "not logged in" in refused["message"]
    assert BRANCH not in forge.shop.at_remote("branch", "--list")


@one_forge
def test_without_a_forge_the_target_moves_and_the_text_is_printed(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    done = uwf("land", thread, "--no-forge", "--format", "text")
    assert "## Claims" in done.out and forge.server.asked == []
    assert forge.shop.at_remote("show", "main:sum.txt").split() == ["one", "two"]


@one_forge
@pytest.mark.parametrize(
    ("title", "branch"),
    [
        ("../../etc: passwd & {{ x }}", "mend/etc-passwd-x"),
        ("修复", "mend"),
        ("a" * 300, f"mend/{'a' * 60}"),
        ("x.lock", "mend/x"),
        ("-rf --force @{1}", "mend/rf-force-1"),
    ],
)
def test_a_branch_has_a_name_that_git_and_shells_take(
    uwf: Uwf, forge: Forge, title: str, branch: str
) -> None:
    assert uwf("land", forge.shop.accepted(title)).json["branch"] == branch


@pytest.mark.extended
@one_forge
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_landing_that_is_killed_at_any_call_opens_no_second_request_and_forgets_none(
    uwf: Uwf, begin: Begin, forge: Forge, moment: str
) -> None:
    """Killed as the forge has got one of its calls, before or after it carries that out."""
    number, killer = 0, Killer(forge.server, moment)
    while number == 0 or killer.has_killed:
        number += 1
        thread, branch = forge.shop.accepted(f"Add the line {number}"), f"mend/add-the-line-{number}"
        killer.kills(begin("land", thread), number)
        landed = uwf("land", thread).json
        assert [change["head"] for change in forge.server.changes.values()].count(branch) == 1
        assert (landed["branch"], forge.shop.at_remote("rev-parse", branch)) == (branch, landed["commit"])
    assert number > 3


@pytest.mark.extended
@one_forge
@pytest.mark.parametrize("hook", ["pre-receive", "post-receive"])
def test_a_landing_that_is_killed_as_it_pushes_goes_on_with_what_was_pushed(
    uwf: Uwf, begin: Begin, forge: Forge, hook: str
) -> None:
    thread, script = forge.shop.accepted(), forge.shop.remote / "hooks" / hook
    holds, goes_on = forge.shop.folder / "holds", forge.shop.folder / "goes-on"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\necho x >{holds}\nuntil test -e {goes_on}; do sleep 0.05; done\n")
    script.chmod(0o755)
    process = begin("land", thread)
    wait_for(holds)
    process.kill()
    process.wait(60)
    goes_on.touch()
    landed = uwf("land", thread).json
    assert (len(forge.server.changes), landed["branch"]) == (1, BRANCH)
    assert forge.shop.at_remote("rev-list", "--count", f"main..{BRANCH}") == "1"
    pushes = [item for item in uwf("effect", "list", thread).json if item["kind"] == "push"]
    assert pushes[-1]["outcome"] in ("done", "found")
    assert uwf("thread", "show", thread).json["work"]["url"] == landed["pull"]["url"]


ISSUE_TITLE = (
    "Closes #7, fixes ann/work#8 & GH-9 [skip ci]: tell @everyone, see https://evil.example/issues/3"
)


def test_an_issue_becomes_a_branch_and_a_request_that_closes_it_and_nothing_else(
    uwf: Uwf, forge: Forge
) -> None:
    forge.server.has_issue(42, ISSUE_TITLE, "Fixes #7.")
    uwf("workflow", "put", forge.shop.folder / "mend.yaml")
    thread = uwf("thread", "start", "mend", forge.server.issue_url(42)).json["thread"]
    uwf("thread", "run", thread, check=5)
    uwf("thread", "answer", thread, "-m", "merge")
    landed = uwf("land", thread).json
    assert landed["branch"].startswith("mend/42-closes-7-fixes-ann")
    message = forge.shop.at_remote("log", "-1", "--format=%B", landed["branch"])
    for text in (message, landed["request"]["title"], landed["request"]["body"]):
        closed = re.findall(r"(?:closes|fixes)[: ]+([\w/.-]*#\d+|GH-\d+|\w+://\S+)", text, re.IGNORECASE)
        assert closed in ([], ["#42"])
        assert not re.search(r"(?<![\w`])@\w|\[skip ci\]", text)
    assert "Closes #42" in message and "Closes #42" in landed["request"]["body"]


def test_one_comment_on_the_issue_is_kept_current_if_wanted(uwf: Uwf, forge: Forge) -> None:
    forge.shop.configured(
        f"forges: {{ '{forge.server.url.partition('://')[2]}': {forge.server.forge} }}\nland: {{ comment: true }}\n"
    )
    forge.server.has_issue(42, "Add two", "", ("uwf-bot", "<!-- uwf 0 -->\nanother's"))
    uwf("workflow", "put", forge.shop.folder / "mend.yaml")
    thread = uwf("thread", "start", "mend", forge.server.issue_url(42)).json["thread"]
    uwf("thread", "run", thread, check=5)
    uwf("land", thread)
    comments = forge.server.issue_comments[42]
    assert [row[1] for row in comments] == ["uwf-bot", "uwf-bot"]
    assert "at work" in comments[1][2] and "(draft)" in comments[1][2]
    uwf("thread", "answer", thread, "-m", "merge")
    url = uwf("land", thread).json["pull"]["url"]
    assert len(comments) == 2
    assert "completed" in comments[1][2] and comments[1][2].endswith(url)
    comments.pop()  # somebody deletes it
    uwf("land", thread)
    assert len(comments) == 1


@one_forge
@pytest.mark.parametrize("merge", ["--squash", "--no-ff"])
def test_the_branch_of_a_request_that_was_merged_is_cleaned_up_there(
    uwf: Uwf, forge: Forge, merge: str
) -> None:
    thread = forge.shop.accepted()
    forge.shop.adds("other")
    waits = forge.shop.accepted("Add another")
    branches = [uwf("land", each).json["branch"] for each in (thread, waits)]
    commit = forge.shop.at_remote("rev-parse", branches[0])
    project = forge.shop.project
    git("-C", project, "fetch", "-q", "origin")
    git("-C", project, "checkout", "-q", "main")
    git("-C", project, "merge", "-q", *([merge] if merge == "--squash" else [merge, "-m", "x"]), commit)
    if merge == "--squash":
        git("-C", project, "commit", "-q", "-m", "Add two (#1)")
    git("-C", project, "push", "-q", "origin", "main")
    shown = {item["thread"]: item for item in uwf("clean", "--remote").json}
    assert f"{branches[0]} on origin" in shown[thread]["removes"]
    assert shown[thread]["merged"] == {"into": "main", "commits": False}
    assert forge.shop.at_remote("rev-parse", branches[0]) == commit
    uwf("clean", "--remote", "--yes")
    left = forge.shop.at_remote("for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    assert sorted(left) == sorted([branches[1], "main"])
    assert not [item for item in uwf("clean", "--remote").json if item["thread"] == thread]


@one_forge
@pytest.mark.parametrize("how", ["squash", "merge"])
def test_the_branch_of_a_merged_request_is_cleaned_up_before_anybody_has_fetched_that(
    uwf: Uwf, forge: Forge, how: str
) -> None:
    thread = forge.shop.accepted()
    forge.shop.moves("other.txt", "x\n")
    branch = uwf("land", thread).json["branch"]
    assert not [item["removes"] for item in uwf("clean", "--remote").json]
    forge.server.merge(forge.number, how)
    git("update-ref", "-d", "refs/remotes/origin/main")
    (shown,) = uwf("clean", "--remote").json
    assert shown["removes"] == [f"{branch} on origin"] and shown["merged"]["into"] == "origin/main"
    uwf("clean", "--remote", "--yes")
    assert forge.shop.at_remote("for-each-ref", "--format=%(refname:short)", "refs/heads") == "main"
    assert uwf("clean", "--remote").json == []


@one_forge
def test_work_that_a_person_changed_in_its_request_is_merged_by_the_record_of_that(
    uwf: Uwf, forge: Forge
) -> None:
    thread = forge.shop.accepted()
    branch = uwf("land", thread).json["branch"]
    git("fetch", "-q", "origin", branch)
    git("checkout", "-q", "FETCH_HEAD")
    (forge.shop.project / "more.txt").write_text("by hand\n")
    forge.shop.commit("By hand")
    git("push", "-q", "origin", f"HEAD:{branch}")
    forge.server.merge(forge.number, "squash")
    git("checkout", "-q", "main")
    git("pull", "-q", "--ff-only", "origin", "main")
    forge.shop.moves("sum.txt", "all of it is other text by now\n")
    assert [item["merged"] for item in uwf("clean", thread).json] == [None]
    uwf("land", thread, "--sync")
    assert [item["merged"] for item in uwf("clean", thread).json] == [{"into": "main", "commits": False}]
    assert branch in forge.shop.at_remote("for-each-ref", "--format=%(refname:short)", "refs/heads")
    (shown,) = uwf("clean", "--remote").json or [None]
    assert shown is None


def test_what_cleaning_keeps_is_told_with_the_way_to_remove_it(
    uwf: Uwf, tmp_path: Path, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(uwf, tmp_path, config)
    shop.configured()
    shop.with_remote()
    monkeypatch.chdir(shop.project)
    landed = shop.accepted()
    shop.adds("three")
    waits = shop.accepted("Add three")
    shop.moves("other.txt", "x\n")
    uwf("land", landed)
    uwf("clean", "--yes")
    assert uwf("clean").json == []
    told = uwf("clean", "--format", "text")
    assert (
        f"merged, and kept for uwf blame: the code of {landed}; uwf clean ID --discard removes it" in told.err
    )
    assert waits not in told.err
    (shown,) = uwf("clean", landed).json
    assert shown["merged"] == {"into": "origin/main", "commits": False}
    uwf("clean", landed, "--discard", "--yes")
    assert "kept for uwf blame" not in uwf("clean", "--format", "text").err


@one_forge
def test_the_branch_of_a_request_that_a_later_thread_went_on_with_is_cleaned_up_there(
    uwf: Uwf, forge: Forge
) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    onward = forge.shop.goes_on(thread)
    uwf("land", onward)
    forge.server.merge(forge.number, "squash", by="bob")
    assert uwf("land", onward, "--sync").json["state"].startswith("merged by bob")
    git("-C", forge.shop.project, "pull", "-q", "--ff-only", "origin", "main")
    place = f"{BRANCH} on origin"
    shown = {item["thread"]: item["removes"] for item in uwf("clean", "--remote").json}
    assert place in shown[onward] and place not in shown.get(thread, [])
    uwf("clean", "--remote", "--yes")
    assert forge.shop.at_remote("for-each-ref", "--format=%(refname:short)", "refs/heads") == "main"


def test_a_train_brings_an_open_request_to_the_commit_that_lands(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    forge.shop.moves("other.txt", "x\n")
    (landed,) = uwf("land", "--train").json
    assert forge.shop.at_remote("rev-parse", "main", BRANCH).split() == [landed["commit"]] * 2


@one_forge
def test_two_that_land_a_thread_at_once_open_one_request(uwf: Uwf, begin: Begin, forge: Forge) -> None:
    thread = forge.shop.accepted()
    landings = [begin("land", thread, as_fork=True) for _ in range(2)]
    assert [landing.wait(60) for landing in landings] == [0, 0]
    assert len(forge.server.changes) == 1
    assert forge.shop.at_remote("rev-list", "--count", f"main..{BRANCH}") == "1"


@one_forge
def test_a_draft_that_conflicts_is_told_once(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.at_gate()
    forge.shop.moves("sum.txt", "one\nthree\n")
    for hint in ("it was told:", "it was told before:"):
        assert uwf("land", thread, check=1).error["hint"].startswith(hint)
    assert [step["role"] for step in uwf("thread", "steps", thread).json].count("$USER") == 1


@pytest.mark.parametrize("forge", ["github", "gitea"], indirect=True)
def test_work_that_nobody_has_accepted_makes_a_request_a_draft_again_and_answers_nobody(
    uwf: Uwf, forge: Forge
) -> None:
    thread = forge.shop.accepted()
    assert not uwf("land", thread).json["pull"]["draft"]
    forge.server.has(forge.number, ("bob", "Look."))
    onward = uwf("land", thread, "--sync").json["told"]
    forge.shop.adds("bad")
    uwf("thread", "run", onward, check=5)
    landed = uwf("land", onward).json
    assert (landed["pull"]["draft"], landed["answered"]) == (True, 0)
    uwf("thread", "answer", onward, "-m", "merge")
    landed = uwf("land", onward).json
    assert (landed["pull"]["draft"], landed["answered"]) == (False, 1)


@one_forge
def test_a_machine_that_lacks_what_another_has_landed_opens_no_second_request(
    uwf: Uwf, forge: Forge, root: Path, tmp_path: Path
) -> None:
    thread = forge.shop.accepted()
    other = tmp_path / "other"
    uwf("remote", "add", "origin", forge.shop.remote)
    shutil.copytree(root, other)
    uwf("land", thread)
    refused = uwf("land", thread, "--root", other, check=1).error
    assert "push from there" in refused["hint"] and "pull; else" in refused["hint"]
    assert len(forge.server.changes) == 1
    uwf("push")
    uwf("pull", "--root", other)
    assert not uwf("land", thread, "--root", other).json["pull"]["new"]
    assert len(forge.server.changes) == 1


@pytest.mark.parametrize("url", ["https://code.example/ann/work.git", "git@bitbucket.org:ann/work.git"])
def test_nothing_is_pushed_to_the_branch_of_a_host_whose_requests_are_not_known(
    uwf: Uwf, tmp_path: Path, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    shop = Shop(uwf, tmp_path, config)
    monkeypatch.chdir(shop.project)
    shop.with_remote(url)
    shop.configured()
    thread = shop.accepted()
    before = shop.at_remote("rev-parse", "main")
    assert uwf("land", thread, check=1).error["hint"].endswith("or push to the branch itself: --no-forge")
    assert shop.at_remote("rev-parse", "main") == before
    assert uwf("land", thread, "--no-forge").json["commit"] == shop.at_remote("rev-parse", "main")


@one_forge
def test_a_train_passes_over_what_a_forge_has_squashed(uwf: Uwf, forge: Forge) -> None:
    uwf("land", forge.shop.accepted())
    forge.server.merge(forge.number, "squash")
    assert uwf("land", "--train").json == []


@one_forge
def test_a_template_for_branches_can_be_set(uwf: Uwf, forge: Forge) -> None:
    uwf("config", "set", "land.branch", "{{ title }}/by-{{ workflow }}")
    assert uwf("land", forge.shop.accepted()).json["branch"] == "add-two/by-mend"


@one_forge
def test_threads_with_the_same_task_have_requests_of_their_own(uwf: Uwf, forge: Forge) -> None:
    first, second = forge.shop.accepted(), forge.shop.accepted()
    assert [uwf("land", thread).json["branch"] for thread in (first, second)] == [BRANCH, f"{BRANCH}-2"]
    assert len(forge.server.changes) == 2


@one_forge
def test_a_fork_that_did_its_own_work_has_a_request_of_its_own(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    fork = uwf("thread", "fork", thread, "--at", 0).json["thread"]
    forge.shop.adds("three")
    uwf("thread", "run", fork, check=5)
    uwf("thread", "answer", fork, "-m", "merge")
    first, second = (uwf("land", item).json for item in (thread, fork))
    assert (first["branch"], second["branch"]) == (BRANCH, f"{BRANCH}-2")
    assert forge.shop.at_remote("show", f"{BRANCH}:sum.txt") == "one\ntwo"
    assert uwf("land", fork, "--sync").json["number"] == second["pull"]["number"]
    forge.server.merge(second["pull"]["number"], "squash")
    states = [uwf("land", item, "--sync").json["state"] for item in (thread, fork)]
    assert states[0] == "open" and states[1].startswith("merged")


@one_forge
def test_a_thread_that_went_on_as_another_does_not_land_over_it(uwf: Uwf, forge: Forge) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    onward = forge.shop.goes_on(thread)
    assert uwf("land", onward).json["branch"] == BRANCH
    assert uwf("land", thread, check=1).error["hint"] == f"uwf land {onward}"


@one_forge
def test_a_train_takes_along_what_was_pushed_to_the_branch_of_an_earlier_threads_request(
    uwf: Uwf, forge: Forge
) -> None:
    thread = forge.shop.accepted()
    uwf("land", thread)
    onward = forge.shop.goes_on(thread)
    uwf("land", onward)
    assert [item["thread"] for item in uwf("land", "--train").json] == [onward]
