"""A thread's work lands on the branch that it is for: made again there, checked there, and pushed, or told why not."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from landing_shop import Shop


@pytest.fixture
def shared(shop: Shop) -> Shop:
    """With a remote."""
    shop.with_remote()
    return shop


def test_work_lands_as_one_commit_on_what_the_remote_has_now(uwf: Uwf, shared: Shop, root: Path) -> None:
    thread = shared.accepted()
    shared.moves("other.txt", "x\n")
    before = shared.at_remote("rev-parse", "main")
    landed = uwf("land", thread).json
    assert (landed["onto"], landed["remote"], landed["base"], landed["commits"]) == (
        "main",
        "origin",
        before,
        1,
    )
    assert shared.at_remote("rev-parse", "main", "main~1").split() == [landed["commit"], before]
    assert shared.at_remote("show", "main:sum.txt").split() == ["one", "two"]
    assert [check["command"] for check in landed["checks"]] == [["sh", "tests.sh"]]
    message = shared.at_remote("log", "-1", "--format=%B", "main")
    assert message.startswith(f"Add *two*\n\n- fixer: added it\n\nUwf-Thread: {thread}\n")
    assert git("-C", shared.project, "status", "--porcelain") == ""
    assert list((root / "landing").iterdir()) == []


def test_without_a_remote_the_branch_and_its_checkout_move(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    landed = uwf("land", thread).json
    assert git("-C", shop.project, "rev-parse", "main") == landed["commit"]
    assert (shop.project / "sum.txt").read_text() == "one\ntwo\n"
    again = uwf("land", thread, check=1).error
    assert "is in main already" in again["message"]


def test_changes_in_the_way_are_left_as_they_are(uwf: Uwf, shop: Shop) -> None:
    thread, file = shop.accepted(), shop.project / "sum.txt"
    file.write_text("mine\n")
    refused = uwf("land", thread, check=1).error
    assert "branch main stays as it is" in refused["message"]
    assert file.read_text() == "mine\n"
    git("-C", shop.project, "checkout", "-q", "sum.txt")
    git("-C", *refused["hint"].partition("then: git -C ")[2].split(" "))  # what the hint says works
    assert file.read_text() == "one\ntwo\n"


def test_what_a_killed_landing_left_in_the_checkout_is_in_nobodys_way(uwf: Uwf, shop: Shop) -> None:
    shop.configured(fixes='cat $WHAT >> sum.txt; mkdir "new folder"; echo new >"new folder/file"; ')
    thread = shop.accepted()
    (shop.project / "sum.txt").write_text("one\ntwo\n")
    (shop.project / "new folder").mkdir()
    (shop.project / "new folder" / "file").write_text("new\n")
    landed = uwf("land", thread).json
    assert git("-C", shop.project, "rev-parse", "HEAD") == landed["commit"]
    assert git("-C", shop.project, "status", "--porcelain") == ""


def test_what_is_in_the_way_of_it_is_left_as_it_was(uwf: Uwf, shop: Shop) -> None:
    shop.configured(fixes="cat $WHAT >> sum.txt; echo new >file; chmod +x file; ")
    thread = shop.accepted()
    (shop.project / "sum.txt").write_text("one\ntwo\n")
    (shop.project / "file").write_text("new\n")  # of another mode
    before = git("-C", shop.project, "status", "--porcelain")
    assert "would be overwritten" in uwf("land", thread, check=1).error["message"]
    assert git("-C", shop.project, "status", "--porcelain") == before
    (shop.project / "file").unlink()
    (shop.project / ".git" / "index.lock").touch()
    refused = uwf("land", thread, check=1).error
    assert f"rm {shop.project}/.git/index.lock, then: " in refused["hint"]


def test_a_branch_that_a_rebase_puts_back_does_not_move(uwf: Uwf, shop: Shop) -> None:
    git("-C", shop.project, "checkout", "-q", "-b", "other")
    (shop.project / "sum.txt").write_text("other\n")
    shop.commit("other")
    git("-C", shop.project, "checkout", "-q", "main")
    shop.moves("sum.txt", "mine\n")
    thread = shop.accepted()
    git("-C", shop.project, "-c", "core.editor=true", "rebase", "-q", "other", check=False)
    refused = uwf("land", thread, "--onto", "main", check=1).error
    assert refused["message"].startswith("branch main stays as it is: a rebase of it is going on in ")
    git(*refused["hint"].partition("or: git ")[2].split())
    landed = uwf("land", thread, "--onto", "main").json
    assert git("-C", shop.project, "rev-parse", "main") == landed["commit"]


def test_a_branch_whose_checkout_is_gone_lands_once_git_knows_that_it_is(uwf: Uwf, shop: Shop) -> None:
    git("-C", shop.project, "worktree", "add", "-q", "-b", "release", shop.project / "in side")
    shutil.rmtree(shop.project / "in side")
    thread, before = shop.accepted(), git("-C", shop.project, "rev-parse", "main")
    refused = uwf("land", thread, "--onto", "release", check=1).error
    assert "branch release is checked out in" in refused["message"] and "which is gone" in refused["message"]
    assert git("-C", shop.project, "rev-parse", "main", "release").split() == [before, before]
    subprocess.run(refused["hint"], shell=True, check=True)  # as it is typed
    landed = uwf("land", thread, "--onto", "release").json
    assert git("-C", shop.project, "rev-parse", "main", "release").split() == [before, landed["commit"]]


def test_a_conflict_goes_back_to_the_thread_and_what_it_makes_of_it_lands(uwf: Uwf, shared: Shop) -> None:
    thread = shared.accepted()
    shared.moves("sum.txt", "one\nthree\n")
    base = shared.at_remote("rev-parse", "main")
    refused = uwf("land", thread, check=1).error
    assert "conflicts with main in sum.txt" in refused["message"]
    assert shared.at_remote("rev-parse", "main") == base
    onward = refused["hint"].split()[-1]
    assert onward != thread
    (entry,) = uwf("inbox").json
    assert (entry["thread"], entry["group"]) == (onward, "failed")
    assert "does not land: it conflicts with main" in entry["line"]
    told = uwf("thread", "read", onward, "--format", "text").out
    assert f"git merge {base}" in told and "three" in told
    merged = shared.folder / "merged"
    merged.write_text("one\ntwo\nthree\n")
    shared.configured(fixes=f"git merge -q {base} || cp {merged} sum.txt; git commit -qam merged; ")
    uwf(*refused["hint"].removeprefix("it was told: uwf ").split(), check=5)
    uwf("thread", "answer", onward, "-m", "merge")
    landed = uwf("land", onward).json
    assert landed["base"] == base
    assert shared.at_remote("show", "main:sum.txt").split() == ["one", "two", "three"]


def test_work_with_a_secret_does_not_land_until_somebody_says_so(uwf: Uwf, shared: Shop) -> None:
    (shared.project / ".gitignore").write_text(".env\n")
    shared.commit("ignore settings")
    git("-C", shared.project, "push", "-q", "origin", "main")
    (shared.project / ".env").write_text("DB_PASSWORD=correct-horse-9\nNAME=one-and-only\n")
    shared.adds("correct-horse-9")
    thread, base = shared.accepted(), shared.at_remote("rev-parse", "main")
    refused = uwf("land", thread, check=6).error
    assert refused["message"] == f"thread {thread} does not land: it has a secret (DB_PASSWORD) in sum.txt"
    assert shared.at_remote("rev-parse", "main") == base
    told = refused["hint"].removeprefix("it was told: uwf thread run ").partition(";")[0]
    assert "Take it out" in uwf("thread", "read", told, "--format", "text").out
    words = refused["hint"].partition("if it may land: uwf ")[2].split()
    assert "lands with a secret (DB_PASSWORD) in sum.txt" in uwf("--format", "text", *words).err
    assert "correct-horse-9" in shared.at_remote("show", "main:sum.txt")
    git("-C", shared.project, "pull", "-q", "origin", "main")
    shared.adds("two")  # the line with the secret is of the target, and not of the work
    assert uwf("land", shared.accepted()).json["onto"] == "main"


def test_work_that_left_the_commit_at_which_it_began_takes_nothing_back(uwf: Uwf, shared: Shop) -> None:
    for name in ("first.txt", "second.txt"):
        shared.moves(name, "x\n")
    shared.configured(fixes="git reset -q --hard HEAD~2; cat $WHAT >> sum.txt; git commit -qam fixed; ")
    thread, base = shared.at_gate(), shared.at_remote("rev-parse", "main")
    why = "it takes back what it began with: "
    assert why in uwf("thread", "show", thread, "--format", "text").out
    uwf("thread", "answer", thread, "-m", "merge")
    refused = uwf("land", thread, check=1).error
    assert (
        f"does not land: {why}" in refused["message"] and "write second.txt and 1 more" in refused["message"]
    )
    onward = refused["hint"].removeprefix("it was told: uwf thread run ")
    told = uwf("thread", "read", onward, "--format", "text").out
    rebase = "git rebase --onto " + told.partition("git rebase --onto ")[2].split("\n")[0].rstrip("`")
    shared.configured(fixes=f"{rebase}; ")
    uwf("thread", "run", onward, check=5)
    uwf("thread", "answer", onward, "-m", "merge")
    assert uwf("land", onward).json["base"] == base
    assert shared.at_remote("ls-tree", "--name-only", "main").split() == [
        "first.txt",
        "second.txt",
        "sum.txt",
        "tests.sh",
    ]


def test_a_commit_that_only_the_checkout_had_may_be_left_behind(uwf: Uwf, shared: Shop) -> None:
    (shared.project / "own.txt").write_text("x\n")
    shared.commit("not pushed")
    shared.configured(fixes="git reset -q --hard origin/main; cat $WHAT >> sum.txt; git commit -qam fixed; ")
    landed = uwf("land", shared.accepted()).json
    assert shared.at_remote("show", "--name-only", "--format=", landed["commit"]).split() == ["sum.txt"]


def test_what_goes_on_already_is_not_told_again(uwf: Uwf, shared: Shop) -> None:
    thread, at_gate = shared.accepted(), shared.at_gate("Wait")
    shared.moves("sum.txt", "one\nthree\n")
    first = uwf("land", thread, check=1).error["hint"].split()[-1]
    assert uwf("land", thread, check=1).error["hint"] == f"it was told before: uwf thread run {first}"
    assert uwf("land", "--train").json == []
    assert len(uwf("thread", "list", "--all").json) == 3
    assert uwf("thread", "show", at_gate).json["status"] == "waiting"


def test_a_check_that_fails_on_the_sum_alone_stops_it_and_the_thread_is_told(uwf: Uwf, shared: Shop) -> None:
    """Both sides pass, and merge without a conflict."""
    thread = shared.accepted()
    shared.moves("tests.sh", 'echo "is strict"; grep -q zero sum.txt\n')
    base = shared.at_remote("rev-parse", "main")
    refused = uwf("land", thread, check=6).error
    assert "sh tests.sh exited with 1: is strict" in refused["message"]
    assert shared.at_remote("rev-parse", "main") == base
    assert "is strict" in uwf("thread", "read", refused["hint"].split()[-1], "--format", "text").out


def test_a_target_that_moves_while_its_checks_run_is_taken_as_it_is_then(uwf: Uwf, shared: Shop) -> None:
    thread = shared.accepted()
    other, once, script = (shared.folder / name for name in ("other", "once", "moving.sh"))
    git("clone", "-q", shared.remote, other)
    late = f"cd {other}; echo x > late.txt; git add .; git commit -qm late; git push -q"
    script.write_text(f"test -e {once} || {{ touch {once}; {late}; }}")
    shared.configured(f"land: {{ checks: [sh {script}, sh tests.sh] }}\n")
    landed = uwf("land", thread).json
    assert shared.at_remote("log", "-3", "--format=%s", "main").splitlines()[:2] == ["Add *two*", "late"]
    assert landed["base"] == shared.at_remote("rev-parse", "main~1")
    assert git("-C", shared.project, "for-each-ref", "refs/uwf/local/landing") == ""


def test_a_thread_that_found_nothing_to_change_is_accepted_by_its_last_decision(
    uwf: Uwf, shared: Shop
) -> None:
    thread = shared.accepted()
    flaky = shared.folder / "flaky"
    flaky.touch()
    shared.configured(f"land: {{ checks: ['test ! -e {flaky}'] }}\n", fixes="true; ")
    onward = uwf("land", thread, check=6).error["hint"].split()[-1]
    flaky.unlink()
    uwf("thread", "run", onward, check=5)
    refused = uwf("land", onward, check=1).error
    assert "has not ended" in refused["message"]
    uwf("thread", "answer", onward, "-m", "merge")
    assert uwf("land", onward).json["commit"] == shared.at_remote("rev-parse", "main")


def test_commits_are_kept_as_they_are_if_asked_for(uwf: Uwf, shared: Shop) -> None:
    thread = shared.accepted()
    shared.moves("other.txt", "x\n")
    landed = uwf("land", thread, "--commits", "keep").json
    assert landed["commits"] == 1
    assert shared.at_remote("log", "-1", "--format=%an: %s", "main") == "uwf-exec: fixer: added it"


OWN = "for n in 1 2; do echo $n > $n.txt; git add .; git commit -qm own$n; done; cat $WHAT >> sum.txt; "


@pytest.mark.parametrize(
    ("commits", "subjects"),
    [
        ("squash", ["Add *two*"]),
        ("steps", ["fixer: added it", "changes made by hand", "fixer: added it"]),
        ("keep", ["fixer: added it", "changes made by hand", "fixer: added it", "own2", "own1"]),
    ],
)
def test_commits_are_one_for_all_or_one_for_each_step(
    uwf: Uwf, shared: Shop, commits: str, subjects: list[str]
) -> None:
    shared.configured(fixes=OWN)
    shared.adds("one")  # a second time, so that the tests fail and the fixer goes again
    uwf("workflow", "put", shared.folder / "mend.yaml")
    thread = str(uwf("thread", "start", "mend", "-p", "Add *two*").json["thread"])
    uwf("thread", "step", thread)
    folder = Path(str(uwf("thread", "show", thread).json["workspace"]["path"]))
    (folder / "hand.txt").write_text("by hand\n")
    shared.configured(fixes="echo two > sum.txt; ")
    uwf("thread", "run", thread, check=5)
    uwf("thread", "answer", thread, "-m", "merge")
    uwf("land", thread, "--commits", commits)
    assert shared.at_remote("log", "--format=%s", "main").splitlines() == [*subjects, "first"]
    if commits == "steps":
        assert "- own1\n- own2" in shared.at_remote("log", "-1", "--format=%b", "main~2")


def test_a_file_that_is_kept_out_does_not_land_within_commits(uwf: Uwf, shared: Shop) -> None:
    (shared.project / ".env").write_text("SECRET=1\n")
    shared.configured(
        fixes="git add -f .env; git commit -qm own; cat $WHAT >> sum.txt; ", workspace=", copy: [.env]"
    )
    uwf("land", shared.accepted(), "--commits", "keep")
    assert ".env" not in shared.at_remote("log", "--all", "--name-only", "--format=")


@pytest.mark.parametrize("commits", ["squash", "steps", "keep"])
def test_commits_have_the_author_and_sign_off_that_a_project_asks_for(
    uwf: Uwf, shared: Shop, commits: str
) -> None:
    shared.configured(workspace=", author: Ada <ada@example.org>, signOff: true")
    uwf("land", shared.accepted(), "--commits", commits)
    author, message = shared.at_remote("log", "-1", "--format=%an%x00%B", "main").split("\0")
    assert author == "Ada" and message.count("Signed-off-by: Ada <ada@example.org>") == 1


@pytest.mark.parametrize("answer", [None, "drop"])
def test_what_was_not_accepted_does_not_land(uwf: Uwf, shared: Shop, answer: str | None) -> None:
    thread = shared.at_gate()
    if answer is not None:
        uwf("thread", "answer", thread, "-m", answer, check=10)
    before = shared.at_remote("rev-parse", "main")
    refused = uwf("land", thread, check=1).error
    assert ("has not ended" if answer is None else "nothing in it accepted") in refused["message"]
    assert shared.at_remote("rev-parse", "main") == before


def test_a_request_has_claims_with_the_tree_and_the_log_behind_each(uwf: Uwf, shared: Shop) -> None:
    thread = shared.accepted()
    shared.moves("other.txt", "x\n")
    landed = uwf("land", thread).json
    body = landed["request"]["body"]
    assert landed["request"]["title"] == "Add *two*"
    own = next(line for line in body.splitlines() if "exited with 0" in line)
    assert shared.at_remote("rev-parse", "main^{tree}")[:12] in own and landed["checks"][0]["sha256"] in own
    assert "`tests`: `passed`" in body and "`gate`: `merge`" in body
    assert json.loads(json.dumps(landed)) == landed


def test_commits_that_the_target_lacks_are_not_taken_for_the_threads(uwf: Uwf, shared: Shop) -> None:
    (shared.project / "private.txt").write_text("mine")
    shared.commit("mine, and not pushed")
    landed = uwf("land", shared.accepted()).json
    assert shared.at_remote("show", "--format=", "--name-only", landed["commit"]).split() == ["sum.txt"]


def test_what_the_target_dropped_since_is_not_brought_back(uwf: Uwf, shared: Shop) -> None:
    shared.moves("secret.txt", "KEY=1")
    thread = shared.accepted()
    git("-C", shared.project, "push", "-q", "-f", "origin", "HEAD~1:main")
    uwf("land", thread)
    assert shared.at_remote("ls-tree", "--name-only", "main").split() == ["sum.txt", "tests.sh"]


def test_an_ignored_file_in_the_way_is_left_as_it_is(uwf: Uwf, shop: Shop) -> None:
    shop.configured(fixes="echo theirs > .env.test; ")
    thread = shop.accepted()
    (shop.project / ".git/info/exclude").write_text(".env*\n")
    (shop.project / ".env.test").write_text("mine")
    refused = uwf("land", thread, check=1).error
    assert ".env.test would be overwritten" in refused["message"]
    assert (shop.project / ".env.test").read_text() == "mine"


def test_a_shared_thread_takes_the_records_of_its_landing_along(
    uwf: Uwf, shared: Shop, root: Path, tmp_path: Path
) -> None:
    thread = shared.accepted()
    uwf("remote", "add", "origin", shared.remote)
    uwf("push")
    other = tmp_path / "other"
    shutil.copytree(root, other)
    uwf("land", thread)
    uwf("pull", "--root", other)
    effects = uwf("effect", "list", thread, "--root", other).json
    assert [item["outcome"] for item in effects if item["kind"] == "push"] == ["done"]


def test_a_branch_or_a_remote_that_is_not_there_is_told_with_those_that_are(uwf: Uwf, shared: Shop) -> None:
    thread = shared.accepted()
    hint = uwf("land", thread, "--onto", "mian", check=1).error["hint"]
    assert hint.startswith("its default is main: --onto main; all: ")
    listing = subprocess.run(hint.partition("all: ")[2], shell=True, check=True, capture_output=True)
    assert b"refs/heads/main" in listing.stdout
    assert "remote; or add it: git" in uwf("land", thread, "--remote", "orgin", check=3).error["hint"]
    shared.remote.rename(shared.folder / "elsewhere")
    hint = uwf("land", thread, check=8).error["hint"]
    shown = subprocess.run(hint.removesuffix(" shows it"), shell=True, check=True, capture_output=True)
    assert str(shared.remote).encode() in shown.stdout


def test_of_several_remotes_none_is_guessed(uwf: Uwf, shared: Shop) -> None:
    git("-C", shared.project, "remote", "rename", "origin", "up")
    git("-C", shared.project, "remote", "add", "fork", shared.remote)
    thread, before = shared.accepted(), git("-C", shared.project, "rev-parse", "main")
    assert "--remote" in uwf("land", thread, check=2).error["hint"]
    assert git("-C", shared.project, "rev-parse", "main") == before
    assert uwf("land", thread, "--remote", "up").json["remote"] == "up"
