"""What is read on a branch is what the nodes say, and every commit on it is uwf's: what is not so is named."""

from __future__ import annotations

import cProfile
import itertools
import pstats
from collections.abc import Callable
from pathlib import Path

import pytest
from branches import Clone, Forge, published, published_again, thread_of
from forged import Forger

from uwf_git.api.check import Report, check_tree
from uwf_git.base.errors import NotFound, NothingToVerify
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path / "forge.git")


@pytest.fixture
def head(instance: Instance, forge: Forge, lasting: Path) -> Head:
    """A thread of four steps, published on the forge."""
    return published_again(instance, forge, lasting / "published")


@pytest.fixture
def clone(head: Head, forge: Forge) -> Clone:
    """A clone of the thread's branch."""
    return forge.cloned("clone", branch=f"uwf/threads/{head.thread}")


def codes(report: Report) -> set[str]:
    return {each.code for each in report.findings}


def warned(report: Report) -> set[str]:
    return {each.code for each in report.verified.warnings}


def places(report: Report, code: str) -> dict[str, int]:
    return {each.path: each.line for each in report.findings if each.code == code}


PAGES = [
    "README.md",
    "start/README.md",
    "workflow/README.md",
    "workflow.yaml",
    ".gitattributes",
    "steps/0001-writer/README.md",
    "steps/0004-critic/README.md",
]


def test_an_honest_branch_is_green_with_counts_of_all_that_was_verified(clone: Clone) -> None:
    report = check_tree(clone.folder)
    assert report.findings == [] and warned(report) == set()
    counts = report.to_json()["verified"]
    files = len(clone("ls-files").splitlines())
    assert counts == {**counts, "threads": 1, "steps": 4, "commits": 6, "merges": 0, "files": files}
    assert (
        counts["pages"] == 4 * 2 + 3
    )  # each step's, the thread's after each, its first, the prompt, the workflow's
    [subject] = report.to_json()["subjects"]
    assert subject == {**subject, "kind": "thread", "name": "pair", "steps": 4, "by": "commits"}


@pytest.mark.parametrize("path", PAGES)
def test_each_kind_of_page_that_was_edited_is_named_with_its_line(clone: Clone, path: str) -> None:
    file = clone.folder / path
    file.write_text(file.read_text() + "approved\n")
    line = len(file.read_text().splitlines())
    commit = clone.commits("fix the page")
    report = check_tree(clone.folder)
    [foreign] = [each for each in report.findings if each.code == "foreign-commit"]
    assert foreign.object == commit and path in foreign.message
    assert "Ada Example <ada@example.invalid>: 'fix the page'" in foreign.message
    found = {each.path: each.line for each in report.findings if each.path}
    assert path in found
    if path != "workflow.yaml":
        assert found[path] == line


@pytest.mark.parametrize("path", [*PAGES, "steps/0002-critic", "start", "workflow"])
@pytest.mark.sample(5)
def test_each_kind_of_page_that_was_removed_is_named(clone: Clone, path: str) -> None:
    clone("rm", "-rq", path)
    commit = clone.commits()
    report = check_tree(clone.folder)
    [foreign] = [each for each in report.findings if each.code == "foreign-commit"]
    assert foreign.object == commit and path in foreign.message


ADDED = [
    "NOTES.md",
    "readme.md",
    "start/extra.md",
    "workflow/extra.md",
    "steps/README.md",
    "steps/00xx.md",
    "steps/0009-critic/README.md",
    "steps/01xx/0100-critic/README.md",
    "steps/0002-critic/extra.md",
    "steps/0002-critic/nodes/ZZZZZZZZZZZZZ.json",
    "attempts/0001-writer/README.md",
]


@pytest.mark.parametrize("path", ADDED)
@pytest.mark.sample(5)
def test_what_was_added_anywhere_is_named(clone: Clone, path: str) -> None:
    file = clone.folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("approved\n")
    clone.commits()
    report = check_tree(clone.folder)
    assert "foreign-commit" in codes(report)
    assert any(each.path and path.startswith(each.path) for each in report.findings), report.findings


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.sample(3)
def test_a_page_that_became_a_program_a_link_or_a_submodule_is_named(clone: Clone, path: str) -> None:
    head = clone("rev-parse", "HEAD")
    blob = clone("hash-object", "-w", "--stdin", data=b"/etc/passwd")
    own = clone("rev-parse", f"HEAD:{path}")
    for mode, oid in (("100755", own), ("120000", blob), ("160000", head)):
        clone("update-index", "--add", "--cacheinfo", f"{mode},{oid},{path}")
        clone("commit", "-qm", "fix")
        report = check_tree(clone.folder)
        assert "foreign-commit" in codes(report)
        assert [each for each in report.findings if each.path == path and each.code != "edited-file"], mode
        clone("reset", "-q", "--hard", head)


def test_a_foreign_commit_is_named_though_its_page_was_put_back(clone: Clone) -> None:
    clone.edits("README.md", "tides", "dunes")
    first = clone.commits("edit")
    clone("revert", "--no-edit", "HEAD")
    found = [each for each in check_tree(clone.folder).findings if each.code == "foreign-commit"]
    assert {each.object for each in found} == {first, clone("rev-parse", "HEAD")}
    assert codes(check_tree(clone.folder)) == {"foreign-commit"}


def test_an_empty_commit_is_foreign_too(clone: Clone) -> None:
    clone.commits("ci: run again")
    [found] = check_tree(clone.folder).findings
    assert found.code == "foreign-commit" and "changes no file" in found.message


def amended(clone: Clone, commit: str, change: Callable[[str], str], tree: str = "") -> str:
    """The commits after another one made again on it, as it is after a change of its text; the new tip."""
    chain = clone("rev-list", "--reverse", "--first-parent", f"{commit}..HEAD").split()
    tip = _made(clone, change(clone("cat-file", "commit", commit) + "\n"))
    for each in chain:
        parent = clone("rev-parse", f"{each}^1")
        text = clone("cat-file", "commit", each) + "\n"
        tip = _made(clone, text.replace(f"parent {parent}", f"parent {tip}", 1))
        clone("replace", "-f", each, tip)
    for each in clone("replace", "-l").split():
        clone("replace", "-d", each)
    clone("reset", "-q", "--hard", tip)
    return tip


def _made(clone: Clone, text: str) -> str:
    return clone("hash-object", "-t", "commit", "-w", "--stdin", data=text.encode())


def rebuilt(clone: Clone, commits: list[str]) -> None:
    """The branch at commits with these trees and messages, each on the one before."""
    tip = clone("rev-parse", f"{commits[0]}^1")
    for each in commits:
        head, _, message = (clone("cat-file", "commit", each) + "\n").partition("\n\n")
        lines = [f"parent {tip}" if line.startswith("parent ") else line for line in head.split("\n")]
        tip = _made(clone, "\n".join(lines) + f"\n\n{message}")
    clone("reset", "-q", "--hard", tip)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.sample(2)
def test_a_message_or_an_author_that_was_changed_is_named_in_a_shallow_clone_too(
    clone: Clone, forge: Forge, depth: int
) -> None:
    branch = clone("symbolic-ref", "--short", "HEAD")
    clone(
        "commit",
        "-q",
        "--amend",
        "-m",
        "0004 critic: approved\n\n" + clone("log", "-1", "--format=%(trailers)"),
    )
    clone("push", "-q", "origin", "HEAD:refs/heads/message", f"HEAD~:refs/heads/{branch}", "--force")
    clone("reset", "-q", "--hard", "ORIG_HEAD", check=False)
    other = forge.cloned("author", branch=branch)
    other("commit", "-q", "--amend", "--no-edit", "--author=Bob <bob@example.invalid>")
    other("push", "-q", "origin", "HEAD:refs/heads/author")
    options = [f"--depth={depth}"] if depth else []
    for name, code in (("message", "wrong-message"), ("author", "wrong-author")):
        found = forge.cloned(f"{name}-{depth}", *options, branch=name)
        assert codes(check_tree(found.folder)) == {code}


def test_a_step_that_was_dropped_is_named(clone: Clone) -> None:
    steps = clone("rev-list", "--reverse", "-4", "HEAD").split()
    rebuilt(clone, [steps[0], steps[1], steps[3]])
    assert check_tree(clone.folder).findings


def test_steps_in_another_order_are_named(clone: Clone) -> None:
    steps = clone("rev-list", "--reverse", "-4", "HEAD").split()
    rebuilt(clone, [steps[0], steps[2], steps[1], steps[3]])
    assert check_tree(clone.folder).findings


def test_the_last_step_taken_out_by_a_commit_that_leaves_a_sound_tree_is_named(clone: Clone) -> None:
    before = clone("rev-parse", "HEAD~^{tree}")
    tip = clone("commit-tree", before, "-p", "HEAD", "-m", "tidy")
    clone("reset", "-q", "--hard", tip)
    assert "foreign-commit" in codes(check_tree(clone.folder))
    clone("checkout", "-q", "--detach")
    assert {"changed-file"} <= codes(check_tree(clone.folder))


def test_steps_squashed_on_the_threads_own_branch_are_foreign(clone: Clone) -> None:
    clone("reset", "-q", "--soft", "HEAD~3")
    commit = clone.commits("squashed")
    [found] = check_tree(clone.folder).findings
    assert (found.code, found.object) == ("foreign-commit", commit)


def test_a_branch_of_other_steps_than_the_threads_is_told_where_the_thread_was_fetched(
    instance: Instance, clone: Clone, head: Head
) -> None:
    notes = check_tree(clone.folder).verified.notes
    assert [each.code for each in notes] == ["thread-elsewhere"]
    clone("update-ref", f"refs/uwf/threads/{head.thread}", "HEAD")
    assert check_tree(clone.folder).findings == [] and check_tree(clone.folder).verified.notes == ()
    clone("update-ref", f"refs/uwf/threads/{head.thread}", "HEAD~")
    [found] = check_tree(clone.folder).findings
    assert (found.code, found.thread) == ("other-thread", head.thread)
    other = thread_of(instance, 1, "dunes")
    clone("fetch", "-q", str(instance.location.git_dir), str(other.commit))
    clone("update-ref", f"refs/uwf/threads/{head.thread}", str(other.commit))
    assert codes(check_tree(clone.folder)) == {"other-thread"}


# Forges


@pytest.mark.parametrize("depth", [0, 1, 2, 50])
@pytest.mark.parametrize("how", ["merge", "squash", "kept", "rebase", "test"])
@pytest.mark.sample(7)
def test_what_a_forge_makes_of_a_pull_request_is_green_at_any_depth(
    forge: Forge, head: Head, tmp_path: Path, how: str, depth: int
) -> None:
    base = f"uwf/base/{head.thread}"
    forge.merges(base, f"uwf/threads/{head.thread}", how)
    ci = Clone(tmp_path / "ci")  # as a CI checks out: nothing but the commit
    ci.folder.mkdir()
    ci("init", "-q")
    options = [f"--depth={depth}"] if depth else []
    ci(
        "fetch",
        "-q",
        *options,
        f"file://{forge.folder}",
        "refs/pull/1/merge" if how == "test" else f"refs/heads/{base}",
    )
    ci("checkout", "-q", "--detach", "FETCH_HEAD")
    report = check_tree(ci.folder)
    assert report.findings == []
    counts = report.to_json()["verified"]
    assert counts["threads"] == 1 and counts["steps"] == 4 and counts["pages"] >= 7
    assert counts["merges"] == (how in ("merge", "test"))
    is_whole = depth in (0, 50)
    is_squash = how in ("squash", "kept")
    assert warned(report) - {"shallow"} == ({"squashed"} if is_squash else set())
    assert ("shallow" in warned(report)) == (not is_whole and not is_squash)
    # What a reviewer would be shown: one page edited in the merge.
    ci.edits("steps/0002-critic/README.md", "not approved", "approved")
    ci.commits("Merge", "--amend")
    assert places(check_tree(ci.folder), "wrong-page") == {"steps/0002-critic/README.md": 1}


def test_a_merge_that_brings_along_what_no_side_has_is_named(clone: Clone, head: Head) -> None:
    clone("checkout", "-q", "-B", "base", f"origin/uwf/base/{head.thread}")
    clone("merge", "-q", "--no-ff", "--no-commit", f"origin/uwf/threads/{head.thread}")
    clone.edits("README.md", "tides", "dunes")
    clone.commits("Merge")
    assert codes(check_tree(clone.folder)) == {"wrong-page", "foreign-commit"}


def test_a_merge_that_keeps_none_of_the_thread_is_named(clone: Clone, head: Head) -> None:
    clone("checkout", "-q", "-B", "base", f"origin/uwf/base/{head.thread}")
    clone("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", f"origin/uwf/threads/{head.thread}")
    assert codes(check_tree(clone.folder)) == {"changed-file"}


def test_a_merge_on_the_threads_own_branch_is_foreign_but_not_in_a_checkout_for_a_pull_request(
    forge: Forge, clone: Clone, head: Head
) -> None:
    branch = f"uwf/threads/{head.thread}"
    forge.merges(f"uwf/base/{head.thread}", branch, "test")
    clone("fetch", "-q", "origin", "refs/pull/1/merge")
    clone("checkout", "-q", "FETCH_HEAD")
    assert check_tree(clone.folder, branch=branch).findings == []
    clone("checkout", "-q", "-B", branch)
    assert codes(check_tree(clone.folder)) == {"foreign-commit"}


# Histories that are not whole


@pytest.mark.parametrize("depth", [1, 2, 3, 50])
def test_a_shallow_clone_is_verified_by_its_trees_and_says_what_was_not(
    forge: Forge, head: Head, depth: int
) -> None:
    shallow = forge.cloned("shallow", f"--depth={depth}", branch=f"uwf/threads/{head.thread}")
    report = check_tree(shallow.folder)
    assert report.findings == []
    counts = report.to_json()["verified"]
    assert (counts["steps"], counts["commits"]) == (4, min(depth, 6))
    if depth == 50:
        assert warned(report) == set()
        return
    [found] = report.verified.warnings
    last = shallow("rev-list", "--max-parents=0", "HEAD")
    assert found.code == "shallow" and found.object == last
    assert f"the {4 + 1 - depth} step" in found.message


@pytest.mark.parametrize("what", ["blob:none", "tree:0"])
def test_a_partial_clone_is_verified_by_its_newest_tree_without_fetching(
    forge: Forge, head: Head, what: str
) -> None:
    forge("config", "uploadpack.allowFilter", "true")
    forge("config", "uploadpack.allowAnySHA1InWant", "true")
    partial = forge.cloned("partial", f"--filter={what}", branch=f"uwf/threads/{head.thread}")
    partial("config", "remote.origin.url", str(forge.folder.with_name("gone")))
    packs = sorted((partial.folder / ".git/objects/pack").iterdir())
    report = check_tree(partial.folder)
    assert report.findings == [] and warned(report) == {"shallow"}
    assert report.to_json()["verified"]["steps"] == 4
    assert sorted((partial.folder / ".git/objects/pack").iterdir()) == packs


def test_objects_that_a_partial_clone_left_out_are_undecided_and_no_damage(forge: Forge, head: Head) -> None:
    forge("config", "uploadpack.allowFilter", "true")
    partial = forge.cloned("bare", "--bare", "--filter=blob:none", branch=f"uwf/threads/{head.thread}")
    report = check_tree(partial.folder)
    assert "unchecked" in codes(report) and "damaged" not in codes(report)


# Hostile objects


def test_trees_that_are_garbage_or_not_there_are_findings_and_no_crash(clone: Clone, head: Head) -> None:
    forger = Forger(clone.folder / ".git")
    garbage = forger.write("tree", b"100644 x")
    nowhere = "1" * 40
    deep = clone("rev-parse", "HEAD^{tree}")
    for _ in range(40):
        deep = forger.rows(("40000", b"steps", deep), ("40000", b"start", deep), ("40000", b"workflow", deep))
    twice = forger.rows(*[("40000", b"steps", clone("rev-parse", "HEAD:steps"))] * 2)
    for tree in (garbage, nowhere, deep, twice):
        for parents in ([], ["HEAD"], ["HEAD", "HEAD~4"]):
            lines = [f"tree {tree}", *(f"parent {clone('rev-parse', each)}" for each in parents)]
            person = "<a@example.invalid> 1795848979 +0000"
            text = "\n".join([*lines, f"author A {person}", f"committer A {person}", "", "x", ""])
            commit = forger.write("commit", text.encode())
            if tree in (deep, twice) and not parents:
                with pytest.raises(NothingToVerify):
                    check_tree(clone.folder, commit)
            else:
                assert check_tree(clone.folder, commit).findings, (tree, parents)


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.extended)])
def test_nodes_that_are_not_what_their_names_say_are_findings(clone: Clone, first: int) -> None:
    contents = ("", "{}", "[]", "null", '{"type": 1, "payload": [], "timestamp": -1}', "\x00" * 100)
    paths = clone("ls-files", "*/nodes/*").splitlines()[first::2]
    assert len(paths) > len(contents)
    clone("checkout", "-q", "--detach")
    for path, content in zip(paths, itertools.cycle(contents), strict=False):
        (clone.folder / path).write_text(content)
        clone("commit", "-qam", "x")
        assert codes(check_tree(clone.folder)) >= {"foreign-commit"}, path
        clone("reset", "-q", "--hard", "HEAD~")


# Long threads


def test_a_thread_of_more_than_a_hundred_steps_is_verified_by_its_tree(
    instance: Instance, forge: Forge, tmp_path: Path
) -> None:
    head = published(instance, forge, 105)
    shallow = forge.cloned("long", "--depth=1", branch=f"uwf/threads/{head.thread}")
    report = check_tree(shallow.folder)
    assert report.findings == [] and report.to_json()["verified"]["steps"] == 105
    for path in (
        "steps/00xx.md",
        "steps/01xx/0104-critic/README.md",
        "steps/0099-writer/README.md",
    ):
        shallow.edits(path, "\n", "\n\n")
        shallow.commits()
        assert path in places(check_tree(shallow.folder), "wrong-page")
        shallow("reset", "-q", "--hard", "HEAD~")
    shallow("rm", "-q", "steps/00xx.md")
    shallow.commits()
    assert "steps/00xx.md" in places(check_tree(shallow.folder), "missing-file")


def test_twice_as_many_steps_cost_no_more_than_twice_as_much(instance: Instance, forge: Forge) -> None:
    """Calls are counted, and reads of objects with them: times depend on the machine."""
    calls = {}
    for steps in (60, 120):
        head = published(instance, forge, steps)
        for depth in ("--depth=1", "--depth=500"):
            clone = forge.cloned(f"{steps}{depth}", depth, branch=f"uwf/threads/{head.thread}")
            with cProfile.Profile() as profile:
                assert check_tree(clone.folder).findings == []
            calls[steps, depth] = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    for depth in ("--depth=1", "--depth=500"):
        assert calls[120, depth] < 2.2 * calls[60, depth]


# Projects


def project(clone: Clone) -> None:
    """A branch main of a project's own, which the thread's branch is merged into."""
    clone("checkout", "-q", "--orphan", "main")
    clone("rm", "-rfq", ".")
    (clone.folder / "code.py").write_text("print()\n")
    (clone.folder / "README.md").write_text("# A project\n")
    clone.commits("mine")


def test_a_project_with_nothing_of_uwfs_is_an_error_of_its_own(clone: Clone) -> None:
    project(clone)
    with pytest.raises(NothingToVerify) as raised:
        check_tree(clone.folder)
    assert raised.value.exit_status == 13


def test_what_uwf_has_in_a_project_is_verified_and_what_is_the_projects_is_its_own(
    clone: Clone, head: Head
) -> None:
    project(clone)
    branch = f"origin/uwf/threads/{head.thread}"
    clone("merge", "-q", "--allow-unrelated-histories", "-X", "ours", "-m", "merged", branch, check=False)
    clone("checkout", "--ours", "README.md", check=False)
    clone.commits("merged")
    (clone.folder / "code.py").write_text("print(1)\n")
    clone.commits("mine too")
    report = check_tree(clone.folder)
    assert report.findings == []
    assert report.to_json()["verified"]["steps"] == 4
    assert warned(report) == {"projects-page"}
    assert {each.code for each in report.verified.notes} == {"project"}
    clone.edits("steps/0004-critic/README.md", "not approved", "approved")
    clone.commits("edit")
    assert places(check_tree(clone.folder), "wrong-page") == {"steps/0004-critic/README.md": 1}


def test_a_thread_that_lies_in_a_projects_tree_without_history_is_verified_too(
    clone: Clone, head: Head
) -> None:
    project(clone)
    clone(
        "checkout", f"origin/uwf/threads/{head.thread}", "--", "start", "steps", "workflow", "workflow.yaml"
    )
    clone.commits("copied")
    report = check_tree(clone.folder)
    assert report.findings == [] and report.to_json()["subjects"][0]["by"] == "nodes"


# Names


def test_any_name_of_a_commit_will_do_and_none_is_not_found(clone: Clone, head: Head) -> None:
    branch = f"uwf/threads/{head.thread}"
    clone("tag", "-am", "kept", "kept")
    for name in (
        branch,
        f"origin/{branch}",
        f"refs/heads/{branch}",
        "kept",
        clone("rev-parse", "HEAD"),
        "HEAD~1",
    ):
        assert check_tree(clone.folder, name).findings == []
    for name in ("nowhere", "--all", "", "HEAD~40", "\x1b[31m"):
        with pytest.raises(NotFound):
            check_tree(clone.folder, name)


def test_a_branch_of_a_definition_that_holds_a_thread_is_named(clone: Clone) -> None:
    clone("branch", "uwf/workflows/pair")
    assert codes(check_tree(clone.folder, "uwf/workflows/pair")) == {"wrong-ref"}
    clone("branch", "uwf/threads/01ARZ3NDEKTSV4RRFFQ69G5FAV", "HEAD~4")
    clone("branch", "uwf/workflows/other", "HEAD~5")
    assert codes(check_tree(clone.folder, "uwf/workflows/other")) == {"wrong-name"}


# Unrelated roots


def unrelated_root(clone: Clone) -> str:
    blob = clone("hash-object", "-w", "--stdin", data=b"x")
    tree = clone("mktree", data=f"100644 blob {blob}\tLICENSE\n".encode())
    return clone("commit-tree", tree, "-m", "root")


def test_an_edit_is_named_though_an_unrelated_root_was_merged_on_top(clone: Clone) -> None:
    clone("checkout", "-q", "-b", "fix")
    clone.edits("README.md", "tides", "dunes")
    edit = clone.commits()
    root = unrelated_root(clone)
    for parents in ((edit, root), (root, edit)):
        args = [word for parent in parents for word in ("-p", parent)]
        clone("reset", "-q", "--hard", clone("commit-tree", "HEAD^{tree}", *args, "-m", "Merge"))
        if parents[0] == edit:
            assert {"wrong-page", "foreign-commit"} <= codes(check_tree(clone.folder))
        base = clone("branch", "-r", "--list", "origin/uwf/threads/*").strip().removeprefix("origin/")
        assert {"wrong-page", "foreign-commit"} <= codes(check_tree(clone.folder, target=base))


@pytest.mark.parametrize("is_first", [False, True])
def test_steps_taken_out_are_named_though_an_unrelated_root_was_merged(clone: Clone, is_first: bool) -> None:
    parents = ["-p", clone("rev-parse", "HEAD"), "-p", unrelated_root(clone)]
    if is_first:
        parents = parents[2:] + parents[:2]
    clone("checkout", "-q", "-b", "fix")
    clone("reset", "-q", "--hard", clone("commit-tree", "HEAD~2^{tree}", *parents, "-m", "Merge"))
    assert "changed-file" in codes(check_tree(clone.folder))
