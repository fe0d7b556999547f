"""Who wrote a line, and what merged commits stand on, however a thread's work came into the branch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import git, loose
from conftest import Uwf
from hypothesis import given
from hypothesis import strategies as st
from landing_forge import LandingForge, one_forge
from landing_shop import Shop
from workflows import opened
from written_project import DONE, ROUNDED, SHOP, TAXED, Writer, WrittenProject

from uwf_git.ext.landing.effect_records import Effects
from uwf_git.ext.landing.effects import settle_further
from uwf_git.format.ids import ThreadId
from uwf_git.format.words import MERGED, PULL_REQUEST
from uwf_git.workspaces.attribution import ProjectCommit, oldest_of

ADA = "Ada Example"
SPLIT = f"""\
name: build
description: Code it side by side.
roles:
  coder: {{ description: c, systemPrompt: c, outputSchema: {DONE} }}
  reviewer: {{ description: r, systemPrompt: r, outputSchema: {DONE} }}
  joiner: {{ description: j, systemPrompt: j, outputSchema: {DONE} }}
graph:
  $START: [{{ role: coder }}]
  coder: [{{ each: "[1, 2]", as: part, role: reviewer, join: {{ role: joiner }} }}]
  joiner: [{{ role: $END }}]
"""


@pytest.fixture
def shop(
    uwf: Uwf, tmp_path: Path, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> WrittenProject:
    shop = WrittenProject(uwf, tmp_path, config)
    monkeypatch.chdir(shop.path)
    return shop


def written(thread: str) -> list[tuple[str, Writer | str]]:
    """The lines of shop.py, and their writers."""
    steps: list[tuple[str, Writer | str]] = [
        (SHOP, ADA),
        (TAXED, (thread, 1, "coder", "coder-model")),
        (ROUNDED, (thread, 2, "reviewer", "reviewer-model")),
    ]
    return [(line, writer) for text, writer in steps for line in text.splitlines()]


def test_lines_of_a_merged_branch_are_of_its_steps(shop: WrittenProject) -> None:
    thread = shop.taxed_and_rounded()
    shop.git("merge", "-q", "--no-ff", "-m", "Merge it", f"uwf/work/{thread}")
    assert shop.blamed() == written(thread)
    value = shop.merged()
    assert [[(share["thread"], share["how"]) for share in item["threads"]] for item in value["commits"]] == [
        [(thread, "commit")],
        [(thread, "commit")],
    ]


def test_a_squash_merge_keeps_each_line_with_the_step_that_wrote_it(shop: WrittenProject) -> None:
    thread = shop.taxed_and_rounded()
    commit = shop.squashed(thread)
    assert shop.blamed() == written(thread)
    (row,) = shop.merged()["commits"]
    assert (row["commit"], row["threads"]) == (
        commit,
        [{"thread": thread, "how": "squash", "lines": 10, "verified": True}],
    )


def test_a_squash_that_says_nothing_of_the_thread_and_was_moved_is_known_by_its_lines(
    shop: WrittenProject,
) -> None:
    thread = shop.taxed_and_rounded()
    shop.commits("shop.py", '"""A shop."""\n\n' + SHOP)
    shop.squashed(thread)
    assert shop.blamed() == [('"""A shop."""', ADA), ("", ADA), *written(thread)]
    row = shop.merged()["commits"][0]
    assert row["threads"] == [{"thread": thread, "how": "lines", "lines": 10, "verified": True}]


# What users of git-ai, which keeps such facts in notes on commits, wish for in its open issues.


def test_wish_2079_the_outer_commit_of_a_squash_merge_does_not_hide_the_inner_one(
    shop: WrittenProject,
) -> None:
    """git-ai-project/git-ai#2079: some GitLabs make two commits, and name the outer one."""
    thread = shop.taxed_and_rounded()
    base = shop.git("rev-parse", "main")
    squash = shop.squashed(thread)
    outer = shop.git(
        "commit-tree", "-p", base, "-p", squash, "-m", "Merge branch 'tax'", f"{squash}^{{tree}}"
    )
    shop.git("reset", "-q", "--hard", outer)
    assert shop.blamed() == written(thread)
    (row,) = shop.merged()["commits"]
    assert (row["commit"], [share["thread"] for share in row["threads"]]) == (squash, [thread])


def test_wish_97_a_rebased_branch_is_still_its_steps(shop: WrittenProject) -> None:
    """git-ai-project/git-ai#97: rebasing cleans all authorship."""
    thread = shop.taxed_and_rounded()
    shop.commits("shop.py", '"""A shop."""\n\n' + SHOP)
    shop.git("checkout", "-q", "--detach", f"uwf/work/{thread}")
    shop.git("-c", "user.name=Bob", "rebase", "-q", "main")
    shop.git("branch", "-f", "main", "HEAD")
    shop.git("checkout", "-q", "main")
    assert shop.blamed() == [('"""A shop."""', ADA), ("", ADA), *written(thread)]
    rows = shop.merged()["commits"]
    assert [[(share["thread"], share["how"]) for share in row["threads"]] for row in rows] == [
        [(thread, "patch")],
        [(thread, "patch")],
        [],
    ]


def test_wish_951_commits_that_are_picked_after_a_skipped_one_are_still_their_steps(
    shop: WrittenProject,
) -> None:
    """git-ai-project/git-ai#951: after `git cherry-pick --skip` nothing more is attributed."""
    thread = shop.taxed_and_rounded()
    first, second = shop.git("rev-list", "--reverse", f"main..uwf/work/{thread}").split()
    shop.commits("other.py", "one = 1\n")
    shop.git("cherry-pick", first)
    assert "empty" in shop.tried("cherry-pick", first, second)
    shop.git("cherry-pick", "--skip")
    assert shop.blamed() == written(thread)
    assert [[share["how"] for share in row["threads"]] for row in shop.merged()["commits"]] == [
        ["patch"],
        ["patch"],
        [],
    ]


def test_wish_1214_a_persons_lines_in_a_squash_of_both_are_the_persons(shop: WrittenProject) -> None:
    """git-ai-project/git-ai#1214: a squash of agents' commits and a person's loses some of either."""
    thread = shop.taxed_and_rounded()
    shop.git("checkout", "-q", "-b", "work", f"uwf/work/{thread}")
    lines = [*written(thread), ("RATE = 0.19", ADA)]
    lines.insert(6, ("    assert rate < 1", ADA))
    shop.commits("shop.py", "".join(f"{line}\n" for line, _ in lines), "Check the rate")
    shop.git("checkout", "-q", "main")
    shop.git("merge", "-q", "--squash", "work")
    shop.git("commit", "-q", "-m", "Tax and round (#1)")
    assert shop.blamed() == lines
    (row,) = shop.merged()["commits"]
    assert row["lines"] == 12
    assert row["threads"] == [{"thread": thread, "how": "lines", "lines": 10, "verified": True}]


def test_wish_95_a_fresh_clone_knows_two_branches_that_changed_one_file(
    shop: WrittenProject, uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git-ai-project/git-ai#95: notes of two clones conflict, and a third has those of one of them."""
    remote, store = tmp_path / "shop.git", tmp_path / "store.git"
    shop.configured(", remote: origin")
    git("clone", "-q", "--bare", shop.path, remote)
    shop.git("remote", "add", "origin", remote)
    git("init", "-q", "--bare", store)
    uwf("init")
    uwf("remote", "add", "origin", store)
    one = shop.taxed_and_rounded()
    first = "NAMES = ['tea', 'coffee']\nCURRENCIES = ['euro', 'dollar', 'krona', 'yen']\n"
    (tmp_path / "first").write_text(first)
    two = shop.thread(f"cat {tmp_path / 'first'} shop.py > new.py; mv new.py shop.py")
    shop.squashed(one)
    shop.squashed(two, "Name things (#2)")
    shop.git("push", "-q", "origin", "main")
    uwf("push")
    lines = [*((line, (two, 1, "coder", "coder-model")) for line in first.splitlines()), *written(one)]
    assert shop.blamed() == lines

    monkeypatch.setenv("UWF_STORAGE_ROOT", str(tmp_path / "fresh"))
    git("clone", "-q", "--no-local", remote, tmp_path / "clone")
    monkeypatch.chdir(tmp_path / "clone")
    uwf("init")
    uwf("remote", "add", "origin", store)
    uwf("pull")
    before = uwf("blame", "shop.py")
    assert {line["thread"] for line in before.json["lines"]} == {None}
    assert sorted(before.json["absent"]) == sorted([one, two])
    how = before.err.strip().partition("compared: ")[2].replace("REMOTE", "origin")
    subprocess.run(how, shell=True, check=True)  # as it is typed
    assert shop.blamed() == lines
    assert shop.merged()["absent"] == []


def test_wish_2344_a_persons_edit_of_an_agents_line_is_the_persons_and_the_lines_around_it_are_not(
    shop: WrittenProject,
) -> None:
    """git-ai-project/git-ai#2344: a line stays the agent's though a person rewrote it."""
    thread = shop.taxed_and_rounded()
    shop.squashed(thread)
    text = "".join(f"{line}\n" for line, _ in written(thread))
    shop.commits("shop.py", text.replace("before * rate", "before * rate / 100"), "Rates are per cent")
    lines = written(thread)
    lines[6] = ("    return before + before * rate / 100", ADA)
    assert shop.blamed() == lines


def test_wish_1079_a_rebase_that_begins_with_a_deletion_keeps_what_follows(shop: WrittenProject) -> None:
    """git-ai-project/git-ai#1079: of three commits, the first of which only deletes, authorship is lost in a rebase."""
    shop.commits("old.py", "one = 1\ntwo = 2\n", "Add old things")
    (shop.folder / "taxed").write_text(TAXED)
    (shop.folder / "rounded").write_text(ROUNDED)
    append = f"git rm -q old.py; git commit -qm 'Remove it'; cat {shop.folder / 'taxed'} >> shop.py"
    thread = shop.thread(append, f"cat {shop.folder / 'rounded'} >> shop.py")
    shop.commits("more.py", "three = 3\n", "Add more")
    shop.git("checkout", "-q", "--detach", f"uwf/work/{thread}")
    shop.git("rebase", "-q", "main")
    shop.git("branch", "-f", "main", "HEAD")
    shop.git("checkout", "-q", "main")
    assert shop.blamed() == written(thread)
    rows = shop.merged("HEAD~4..HEAD")["commits"]
    assert [[share["how"] for share in row["threads"]] for row in rows] == [
        ["patch"],
        ["patch"],
        ["patch"],
        [],
    ]


# What else becomes of code.


def test_reformatted_renamed_and_copied_lines_are_of_who_wrote_them(shop: WrittenProject) -> None:
    thread = shop.taxed_and_rounded()
    shop.squashed(thread)
    text = "".join(f"{line}\n" for line, _ in written(thread))
    shop.commits("shop.py", text.replace("    ", "\t").replace("\n", "\r\n"), "Reformat")
    shop.git("mv", "shop.py", "sale.py")
    shop.git("commit", "-q", "-m", "Rename")
    lines = [(line.replace("    ", "\t"), writer) for line, writer in written(thread)]
    assert shop.blamed("sale.py") == lines
    moved = "".join(f"{line}\n" for line, _ in lines[7:])
    (shop.path / "sale.py").write_text("".join(f"{line}\n" for line, _ in lines[:7]))
    shop.commits("rounding.py", moved, "Split")
    assert shop.blamed("rounding.py")[2:] == lines[9:]


def test_a_short_line_is_of_who_wrote_it_after_its_blanks_were_changed_or_its_reformatting_is_to_be_ignored(
    shop: WrittenProject,
) -> None:
    thread = shop.thread("echo 'x = 1' > x.py")
    shop.squashed(thread)
    shop.commits("x.py", "x=1\n", "Reformat")
    assert shop.blamed("x.py") == [("x=1", (thread, 1, "coder", "coder-model"))]
    rewritten = shop.commits("x.py", "X=1\n", "Rename")
    assert shop.blamed("x.py") == [("X=1", ADA)]
    shop.commits(".ignored", f"{rewritten}\n", "Ignore it")
    shop.git("config", "blame.ignoreRevsFile", ".ignored")
    assert shop.blamed("x.py") == [("X=1", (thread, 1, "coder", "coder-model"))]


def test_lines_that_a_person_moved_are_of_the_person_who_wrote_them(
    shop: WrittenProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.taxed_and_rounded()
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Bob")
    text = "NAMES = ['tea', 'coffee']\nCURRENCIES = ['euro', 'dollar', 'krona', 'yen']\n"
    shop.commits("names.py", text, "Name things")
    monkeypatch.delenv("GIT_AUTHOR_NAME")
    (shop.path / "names.py").write_text("")
    shop.commits("shop.py", SHOP + text, "Move the names")
    assert [writer for _, writer in shop.blamed()] == [ADA, ADA, "Bob", "Bob"]


def test_a_clone_that_leaves_objects_out_is_named_with_a_way_to_get_them(
    shop: WrittenProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.squashed(shop.taxed_and_rounded())
    shop.git("config", "uploadpack.allowFilter", "true")
    git("clone", "-q", "--filter=blob:none", f"file://{shop.path}", tmp_path / "partial")
    monkeypatch.chdir(tmp_path / "partial")
    error = shop.uwf("blame", "shop.py", check=1).error
    subprocess.run(error["hint"].partition(": ")[2], shell=True, check=True)  # as it is typed
    assert [writer for _, writer in shop.blamed()] == [ADA] * 12


def test_work_that_a_person_indented_otherwise_in_the_squash_is_its_steps(shop: WrittenProject) -> None:
    thread = shop.taxed_and_rounded()
    shop.git("merge", "-q", "--squash", f"uwf/work/{thread}")
    lines = [(line.replace("    ", "\t"), writer) for line, writer in written(thread)]
    lines[1] = written(thread)[1]
    shop.commits("shop.py", "".join(f"{line}\n" for line, _ in lines), "Tax and round (#1)")
    assert shop.blamed() == lines


def test_a_conflict_that_an_agent_resolved_is_of_its_step_after_a_squash(shop: WrittenProject) -> None:
    sums = {name: SHOP.replace("sum(prices)", f"sum({name})") for name in ("begun", "moved", "resolved")}
    for name, text in sums.items():
        (shop.folder / name).write_text(text)
    person = f"(cd {shop.path}; cp {shop.folder / 'moved'} shop.py; git commit -qam Move)"
    resolve = f"git merge -q main || cp {shop.folder / 'resolved'} shop.py; git commit -qam Merge"
    thread = shop.thread(f"{person}; cp {shop.folder / 'begun'} shop.py", resolve)
    shop.squashed(thread)
    assert shop.blamed() == [
        ("def total(prices):", ADA),
        ("    return sum(resolved)", (thread, 2, "reviewer", "reviewer-model")),
    ]


def test_work_on_a_file_that_was_renamed_meanwhile_is_its_steps(shop: WrittenProject) -> None:
    thread = shop.taxed_and_rounded()
    shop.git("mv", "shop.py", "sale.py")
    shop.commits("sale.py", '"""A shop."""\n\n' + SHOP, "Rename")
    shop.squashed(thread)
    assert shop.blamed("sale.py")[2:] == written(thread)


def test_half_of_the_work_in_a_commit_and_an_amended_message_are_still_its_steps(
    shop: WrittenProject,
) -> None:
    thread = shop.taxed_and_rounded()
    shop.git("cherry-pick", f"uwf/work/{thread}~1")
    shop.git("commit", "-q", "--amend", "--author=Bob <bob@example.invalid>", "-m", "Tax only")
    assert shop.blamed() == written(thread)[:7]


def test_what_a_person_wrote_by_themselves_is_not_a_threads_that_wrote_some_of_it_too(
    shop: WrittenProject,
) -> None:
    shop.taxed_and_rounded()
    shop.commits("shop.py", SHOP + "\n\ndef cost(exact):\n    return round(exact, 2)\n", "Cost")
    assert {writer for _, writer in shop.blamed()} == {ADA}
    assert [row["threads"] for row in shop.merged()["commits"]] == [[]]


def test_what_a_thread_began_with_is_not_its_own_though_it_did_it_again(
    shop: WrittenProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the person is ahead, so times don't tell."""
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2099-01-01T12:00:00Z")
    shop.commits("shop.py", SHOP + TAXED, "Tax by hand")
    shop.commits("shop.py", SHOP, "Revert it")
    monkeypatch.delenv("GIT_COMMITTER_DATE")
    thread = shop.taxed_and_rounded()
    shop.git("checkout", "-q", "--detach", "main~1")
    assert shop.blamed() == [(line, ADA) for line in (SHOP + TAXED).splitlines()]
    shop.git("checkout", "-q", "main")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2099-01-01T12:00:00Z")
    shop.squashed(thread)
    assert shop.blamed() == written(thread)


def test_a_commit_that_an_agent_picked_stays_its_authors(shop: WrittenProject) -> None:
    person = "a person wrote this line, not an agent"
    write = f"cd {shop.path}; echo '{person}' > other.txt; git add .; export GIT_COMMITTER_DATE=2020-01-01T12:00:00Z"
    thread = shop.thread(f"({write}; git commit -qm Other)", "git cherry-pick main")
    assert shop.git("show", f"uwf/work/{thread}:other.txt") == person
    assert shop.blamed("other.txt") == [(person, ADA)]


def test_the_work_of_branches_is_of_the_steps_of_their_threads(shop: WrittenProject) -> None:
    (shop.folder / "build.yaml").write_text(SPLIT)
    thread = shop.thread("true", 'echo "it is $UWF_THREAD" > "$UWF_THREAD.txt"')
    shop.squashed(thread)
    files = [name for name in shop.git("ls-files").split() if name.endswith(".txt")]
    assert len(files) == 2
    for name in files:
        branch = name.removesuffix(".txt")
        assert shop.blamed(name) == [(f"it is {branch}", (branch, 1, "reviewer", "reviewer-model"))]
    (row,) = shop.merged()["commits"]
    assert [(share["thread"], share["how"]) for share in row["threads"]] == [(thread, "squash")]


def test_a_thread_that_goes_on_has_the_steps_before_and_is_the_one_that_is_claimed(
    shop: WrittenProject,
) -> None:
    thread = shop.taxed_and_rounded()
    (shop.folder / "coder").write_text("echo 'CURRENCY = 1' >> shop.py")
    (shop.folder / "reviewer").write_text("true")
    onward = str(shop.uwf("thread", "resume", thread, "-m", "Name the currency").json["thread"])
    assert onward != thread
    shop.uwf("thread", "run", onward)
    commit = shop.squashed(onward, f"Tax, round and name\n\nUwf-Thread: {onward}\n")
    assert shop.blamed() == [*written(onward), ("CURRENCY = 1", (onward, 4, "coder", "coder-model"))]
    (row,) = shop.merged()["commits"]
    assert (row["commit"], row["problems"]) == (commit, [])
    shop.git("reset", "-q", "--hard", "HEAD~1")
    shop.squashed(thread, f"Tax and round\n\nUwf-Thread: {onward}\n")
    assert shop.blamed() == written(onward)


def test_a_sub_workflows_work_is_of_its_own_steps(shop: WrittenProject) -> None:
    inner = (shop.folder / "build.yaml").read_text()
    (shop.folder / "inner.yaml").write_text(inner.replace("name: build", "name: inner"))
    shop.uwf("workflow", "put", shop.folder / "inner.yaml")
    shop.uwf("config", "set", "agentOverrides.build.coder", "uwf-workflow inner")
    thread = shop.taxed_and_rounded()
    (child,) = (row["thread"] for row in shop.uwf("thread", "list", "--all").json if row["thread"] != thread)
    shop.squashed(thread)
    writers = {writer for _, writer in shop.blamed()}
    assert {(writer[0], *writer[1:3]) for writer in writers if writer != ADA} >= {(child, 1, "coder")}


def test_an_agents_own_commits_and_rebases_are_of_its_step(shop: WrittenProject) -> None:
    for name, text in (("taxed", TAXED), ("rounded", ROUNDED)):
        (shop.folder / name).write_text(text)
    commits = "; ".join(
        f"cat {shop.folder / name} >> shop.py; git commit -qam {name}" for name in ("taxed", "rounded")
    )
    rewrites = "git reset -q --soft HEAD~1; git commit -qm 'Both in one'; echo x > other.py"
    thread = shop.thread(commits, rewrites)
    shop.squashed(thread)
    coder = (thread, 1, "coder", "coder-model")
    assert [writer for _, writer in shop.blamed()] == [ADA] * 2 + [coder] * 10
    assert shop.blamed("other.py") == [("x", (thread, 2, "reviewer", "reviewer-model"))]


@pytest.mark.parametrize(("date", "back"), [("2099-01-01T12:00:00Z", 1), ("2020-01-01T12:00:00Z", 2)])
def test_what_an_agent_goes_back_to_stays_other_peoples(
    shop: WrittenProject, monkeypatch: pytest.MonkeyPatch, date: str, back: int
) -> None:
    """It makes the steps before again on the commit that its thread began with, or on one before that."""
    monkeypatch.setenv("GIT_COMMITTER_DATE", date)
    shop.commits("one.py", "one = 1\n")
    shop.commits("two.py", "two = 2\n")
    monkeypatch.delenv("GIT_COMMITTER_DATE")
    thread = shop.thread(
        "echo three = 3 > three.py", f"git reset -q --soft HEAD~{back}; git commit -qm Again"
    )
    assert shop.git("rev-parse", f"uwf/work/{thread}~1") == shop.git("rev-parse", f"main~{back - 1}")
    assert [shop.blamed(name)[0][1] for name in ("one.py", "two.py")] == [ADA, ADA]


def test_what_an_agent_merges_into_its_work_stays_other_peoples(shop: WrittenProject) -> None:
    """The target, which a person moves meanwhile."""
    (shop.folder / "taxed").write_text(TAXED)
    merging = "git merge -q --no-edit main"
    write = f"{merging}; cat {shop.folder / 'taxed'} >> shop.py; git commit -qam Tax"
    person = "a person wrote this line, not an agent"
    ahead = (
        f"cd {shop.path}; printf '{person}' > other.txt; git add .; git commit -qm Other; cd - > /dev/null"
    )
    thread = shop.thread(f"{write}; {ahead}", f"{merging}; echo more > more.txt")
    (other,) = shop.git("log", "--format=%H", "-1", "main").split()
    assert shop.git("merge-base", "main", f"uwf/work/{thread}") == other
    shop.git("merge", "-q", "--no-ff", "-m", "Merge", f"uwf/work/{thread}")
    assert shop.blamed("other.txt") == [(person, ADA)]
    assert shop.blamed() == written(thread)[:7]
    assert shop.blamed("more.txt") == [("more", (thread, 2, "reviewer", "reviewer-model"))]


def test_a_claim_that_the_code_belies_is_a_finding_and_no_attribution(shop: WrittenProject) -> None:
    thread = shop.taxed_and_rounded()
    commit = shop.commits("shop.py", SHOP + "exec(input())\n", f"Tax\n\nUwf-Thread: {thread}\n")
    blamed = shop.uwf("blame", "shop.py")
    assert {line["thread"] for line in blamed.json["lines"]} == {None}
    message = f"commit {commit[:12]} claims thread {thread}, but changes something else than that"
    assert blamed.err == f"uwf: {message}\n"
    value = shop.merged(check=7)
    assert [(finding["code"], finding["message"]) for finding in value["findings"]] == [
        ("other-patch", message)
    ]
    assert value["commits"][0]["problems"] == [message]


def test_a_claim_of_a_thread_that_is_not_here_is_unchecked(shop: WrittenProject) -> None:
    shop.taxed_and_rounded()
    shop.commits("shop.py", SHOP + "one = 1\n", "Add one\n\nUwf-Thread: 01M8EGRDK7XSPNYN2WNJGMYZXB\n")
    (finding,) = shop.merged(check=125)["findings"]
    assert finding["code"] == "unchecked" and "which is not here" in finding["message"]


def test_a_small_change_made_again_elsewhere_is_found_by_its_claim(shop: WrittenProject) -> None:
    """Neither its surroundings nor its length would tell."""
    shop.commits("list.txt", "".join(f"{number}\n" for number in range(20)), "Count")
    thread = shop.thread("sed -i s/^10$/ten/ list.txt")
    shop.commits(
        "list.txt", "".join(f"{number}\n" for number in range(20)).replace("9\n", "nine\n", 1), "Nine"
    )
    text = (shop.path / "list.txt").read_text().replace("10\n", "ten\n")
    shop.commits("list.txt", text, f"Ten\n\n* Do it\n\n  Uwf-Thread: {thread}\n")
    assert [line for line in shop.blamed("list.txt") if line[1] != ADA] == [
        ("ten", (thread, 1, "coder", "coder-model"))
    ]


def test_a_merged_thread_that_does_not_verify_is_said(shop: WrittenProject, root: Path) -> None:
    thread, other = shop.taxed_and_rounded(), shop.thread("echo x > other.py")
    shop.squashed(thread)
    shop.squashed(other, "Other")
    store, head = ("--git-dir", root / "store.git"), f"refs/uwf/archive/{thread}^"
    forged = git(
        *store, "commit-tree", "-p", f"{head}{{commit}}", "-m", "0003 coder: done", f"{head}{{tree}}"
    )
    git(*store, "update-ref", f"refs/uwf/attempts/{thread}", forged)
    value = shop.merged(check=7)
    assert [[share["verified"] for share in row["threads"]] for row in value["commits"]] == [[True], [False]]


def test_a_damaged_thread_leaves_the_lines_of_others_as_they_are(shop: WrittenProject, root: Path) -> None:
    thread, damaged = shop.taxed_and_rounded(), shop.thread("echo x > other.py", "echo y > another.py")
    for name in (thread, damaged):
        shop.squashed(name)
    store, nodes = root / "store.git", f"refs/uwf/archive/{damaged}^{{commit}}:steps/0002-reviewer/nodes"
    for node in git("--git-dir", store, "ls-tree", "--name-only", nodes).split():
        loose(store, f"{nodes}/{node}").unlink()
    assert shop.blamed() == written(thread)


def test_merged_threads_can_be_required_to_be_signed(shop: WrittenProject) -> None:
    shop.squashed(shop.taxed_and_rounded())
    value = json.loads(shop.uwf("verify", "--merged", "main", "--require", "signed", check=14).out)
    assert {finding["code"] for finding in value["findings"]} == {"requirement-unmet"}
    assert [share["verified"] for share in value["commits"][0]["threads"]] == [True]


def test_what_was_cleaned_is_known_unless_it_was_discarded(shop: WrittenProject, uwf: Uwf) -> None:
    thread = shop.taxed_and_rounded()
    shop.squashed(thread, f"Tax and round\n\nUwf-Thread: {thread}\n")
    uwf("clean", "--yes")
    assert shop.blamed() == written(thread)
    uwf("clean", thread, "--discard", "--yes")
    shop.git("reflog", "expire", "--expire=all", "--all")
    shop.git("gc", "-q", "--prune=now")
    blamed = uwf("blame", "shop.py")
    assert {line["thread"] for line in blamed.json["lines"]} == {None} and blamed.json["absent"] == [thread]
    assert f"claims thread {thread}, whose code is not here" in blamed.err
    (finding,) = shop.merged(check=125)["findings"]
    assert (finding["code"], finding["thread"]) == ("unchecked", thread)


@pytest.fixture
def landed(
    uwf: Uwf, tmp_path: Path, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[Shop, str, str]:
    """A project with a remote, a thread that has landed there, and the commit."""
    shop = Shop(uwf, tmp_path, config)
    shop.configured()
    shop.with_remote()
    monkeypatch.chdir(shop.project)
    thread = shop.accepted()
    shop.moves("other.txt", "x\n")
    return shop, thread, str(uwf("land", thread).json["commit"])


def test_what_uwf_landed_stands_on_its_thread(uwf: Uwf, landed: tuple[Shop, str, str]) -> None:
    _, thread, commit = landed
    git("fetch", "-q")
    value = uwf("verify", "--merged", "origin/main").json
    assert [(row["commit"], row["threads"]) for row in value["commits"]] == [
        (commit, [{"thread": thread, "how": "patch", "lines": 1, "verified": True}]),
        (git("rev-parse", "main"), []),
    ]
    lines = uwf("blame", "sum.txt", "origin/main").json["lines"]
    assert [(line["thread"], line["step"], line["role"]) for line in lines] == [
        (None, None, None),
        (thread, 1, "fixer"),
    ]


def in_a_clone(uwf: Uwf, shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a clone of the project, with its threads and without their code."""
    git("init", "-q", "--bare", folder / "store.git")
    uwf("remote", "add", "origin", folder / "store.git")
    uwf("push")
    monkeypatch.setenv("UWF_STORAGE_ROOT", str(folder / "fresh"))
    git("clone", "-q", "--no-local", shop.remote, folder / "clone")
    monkeypatch.chdir(folder / "clone")
    uwf("init")
    uwf("remote", "add", "origin", folder / "store.git")
    uwf("pull")


def test_a_clone_without_a_threads_code_knows_by_its_record_what_it_landed(
    uwf: Uwf, landed: tuple[Shop, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, thread, commit = landed
    in_a_clone(uwf, shop, tmp_path, monkeypatch)
    lines = uwf("blame", "sum.txt").json["lines"]
    assert [(line["thread"], line["step"], line["how"]) for line in lines] == [
        (None, None, None),
        (thread, 1, "landed"),
    ]
    (row,) = (row for row in uwf("verify", "--merged", "main").json["commits"] if row["claims"])
    assert (row["commit"], row["threads"]) == (
        commit,
        [{"thread": thread, "how": "landed", "lines": 1, "verified": True}],
    )
    (tmp_path / "clone/sum.txt").write_text("one\ntwo\nthree\n")
    git("commit", "-qam", f"Three\n\nUwf-Thread: {thread}")
    (finding,) = json.loads(uwf("verify", "--merged", "main", check=125).out)["findings"]
    assert (finding["code"], finding["object"]) == ("unchecked", git("rev-parse", "HEAD"))


@pytest.fixture
def requested(uwf: Uwf, forge: LandingForge) -> tuple[LandingForge, str]:
    """A project on a forge, and a thread with a request there, on a branch that has moved on."""
    thread = forge.shop.accepted()
    forge.shop.moves("other.txt", "x\n")
    uwf("land", thread)
    return forge, thread


def threads_of(value: Any) -> dict[str, list[tuple[str, str, int]]]:
    """The threads that listed commits stand on."""
    return {
        row["commit"]: [(share["thread"], share["how"], share["lines"]) for share in row["threads"]]
        for row in value["commits"]
    }


@pytest.mark.parametrize("forge", ["gitea", "gitlab"], indirect=True)
@pytest.mark.parametrize("how", ["squash", "merge"])
def test_a_clone_knows_by_its_threads_record_what_a_forge_merged_without_naming_it(
    uwf: Uwf,
    requested: tuple[LandingForge, str],
    how: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forge, thread = requested
    if how == "merge":  # of what the forge squashed before
        reworded(forge)
    merged = forge.server.merge(forge.number, how)
    uwf("land", thread, "--sync")
    in_a_clone(uwf, forge.shop, tmp_path, monkeypatch)
    value = uwf("verify", "--merged", "main").json
    assert [row["claims"] for row in value["commits"]] == [[]] * len(value["commits"])
    brought = git("rev-parse", f"{merged}^2") if how == "merge" else merged
    expected = {
        merged: [(thread, "landed", 0)],
        git("rev-parse", "origin/main^"): [],
        brought: [(thread, "landed", 1)],
    }
    assert threads_of(value) == expected and value["findings"] == []
    lines = uwf("blame", "sum.txt").json["lines"]
    assert [(line["thread"], line["step"]) for line in lines] == [(None, None), (thread, 1)]


def reworded(forge: LandingForge) -> None:
    """Somebody takes the thread's name from the message of the request's commit."""
    branch = str(forge.request["head"])
    tree, base = forge.shop.at_remote("rev-parse", f"{branch}^{{tree}}", f"{branch}^").split()
    commit = forge.shop.at_remote("commit-tree", tree, "-p", base, "-m", "Add two")
    forge.shop.at_remote("update-ref", f"refs/heads/{branch}", commit)


@one_forge
def test_an_older_record_with_the_first_digits_counts_unless_git_takes_them_for_something_else(
    uwf: Uwf, requested: tuple[LandingForge, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge, thread = requested
    merged = forge.server.merge(forge.number, "squash")
    instance = opened()
    (request,) = (
        item
        for item in Effects(instance.store).of_thread(ThreadId(thread))
        if item.effect.kind == PULL_REQUEST
    )
    reason = f"merged by ann as {merged[:12]}"
    settle_further(instance, ThreadId(thread), request.hash, MERGED, str(forge.number), reason)
    in_a_clone(uwf, forge.shop, tmp_path, monkeypatch)
    assert threads_of(uwf("verify", "--merged", "main").json)[merged] == [(thread, "landed", 1)]
    git("branch", merged[:12], "main^")
    assert threads_of(uwf("verify", "--merged", "main").json)[merged] == []


@one_forge
def test_a_record_of_another_commit_gives_a_thread_no_line_that_its_code_lacks(
    uwf: Uwf, requested: tuple[LandingForge, str]
) -> None:
    forge, thread = requested
    forge.shop.moves("sum.txt", "one\nthree\n")
    other = git("rev-parse", "main")
    forge.request.update(state="closed", merged=True)
    forge.request["merge"] = other
    forge.request["state"] = "merged"
    uwf("land", thread, "--sync")
    value = uwf("verify", "--merged", "main").json
    assert threads_of(value)[other] == [(thread, "landed", 0)]
    assert [line["thread"] for line in uwf("blame", "sum.txt").json["lines"]] == [None, None]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("absent.py",), 3, "has no file absent.py"),
        (("../outside.py",), 2, "is outside of"),
        (("binary",), 1, "is binary"),
        (("folder",), 3, "has no file folder"),
        ((".",), 3, "has no file ."),
        (("large",), 1, "has more than 8 MiB"),
        (("sub/one",), 3, "it is of a submodule: call uwf blame in its folder"),
        (("shop.py", "--", "-x"), 2, "is no revision"),
        (("shop.py", "absent"), 3, "has no commit absent"),
    ],
)
def test_what_cannot_be_blamed_is_one_line(
    shop: WrittenProject, words: tuple[str, ...], status: int, message: str
) -> None:
    (shop.path / "binary").write_bytes(b"\0\1")
    (shop.path / "large").write_text("line\n" * (2 << 20))
    git("clone", "-q", shop.path, shop.path / "sub")
    shop.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", shop.path, "sub")
    shop.commits("folder/one", "one\n")
    shop.uwf("init")
    error = shop.uwf("blame", *words, check=status).error
    assert message in f"{error['message']} — {error['hint']}"


def test_what_is_no_branch_is_refused_with_a_list_of_branches(shop: WrittenProject) -> None:
    shop.commits("folder/one", "one\n")
    shop.uwf("init")
    for words in (
        ("blame", "shop.py", "--", "-x"),
        ("verify", "--merged", "-x"),
        ("verify", "--merged", "absent"),
    ):
        assert "git branch --all" in shop.uwf(*words, check=None).error["hint"]


def test_files_of_any_name_have_their_writers(shop: WrittenProject) -> None:
    names = ["a b.py", "-x.py", ":(top)x", 'q"\\t.py', "naïve.py", "new\nline", "\x1b[31m.py"]
    for place, name in enumerate(names):
        (shop.folder / f"name {place}").write_text(name)
    append = f'for file in {shop.folder}/name*; do echo "$UWF_ROLE = 1" >> "./$(cat "$file")"; done'
    thread = shop.thread(append, append)
    shop.squashed(thread)
    for name in names:
        assert shop.blamed("--", name) == [
            (f"{role} = 1", (thread, number, role, f"{role}-model"))
            for number, role in enumerate(("coder", "reviewer"), 1)
        ]
        text = shop.uwf("--format", "text", "blame", "--", name).out
        assert text.count("\n") == 2 and "\x1b" not in text


@given(st.permutations(range(6)))
def test_the_oldest_commit_is_the_ancestor_of_those_of_its_second(order: list[int]) -> None:
    commits = [ProjectCommit(str(n), (), "", 0, 100 + n // 3, "", ()) for n in order]
    assert oldest_of(commits, lambda one, other: int(one) < int(other)) == "0"
    assert oldest_of([], lambda *_: False) == ""
