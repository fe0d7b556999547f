"""A thread belongs to the repository in which it was started, and what names no thread means that repository's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import git_servers
import pytest
from cli_samples import on_terminal
from conftest import Uwf

git = git_servers.git
FLOW = """
name: {name}
description: One step.
roles:
  doer:
    description: Does it.
    systemPrompt: Do it.
    outputSchema: {{type: object, properties: {{note: {{type: string}}}}, required: [note]}}
graph:
  $START: [{{role: doer}}]
  doer: [{{role: $END}}]
"""


class Site:
    """A user's folder with repositories; one store for all."""

    def __init__(self, uwf: Uwf, folder: Path) -> None:
        self.uwf, self.folder = uwf, folder
        self.flow("w")

    def flow(self, name: str) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(FLOW.format(name=name))
        return file

    def repository(self, name: str, when: int = 1_700_000_000) -> Path:
        """Begin a repository at a time: those of one time have the same first commit."""
        place = self.folder / name
        git(*git_servers.INIT, place)
        git("-C", place, "commit", "-q", "--allow-empty", "-m", "Begin", env=_at(when))
        return place

    def starts(self, place: Path, prompt: str = "Do it", flow: str = "w") -> str:
        os.chdir(place)
        started = self.uwf("thread", "start", self.folder / f"{flow}.yaml", "-p", prompt).json
        return str(started["thread"])

    def lists(self, place: Path, *options: str) -> list[str]:
        os.chdir(place)
        return [each["thread"] for each in self.uwf("thread", "list", *options).json]


def _at(when: int) -> dict[str, str]:
    stamp = f"{when} +0000"
    return {**os.environ, "GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}


@pytest.fixture
def site(uwf: Uwf, hermetic: Path) -> Site:
    (hermetic / "site").mkdir()
    return Site(uwf, hermetic / "site")


@pytest.fixture
def two(site: Site) -> tuple[Path, Path, str, str]:
    """Two repositories, and a thread in each."""
    one, other = site.repository("one", 1_700_000_000), site.repository("other", 1_700_000_001)
    return one, other, site.starts(one, "SECRET"), site.starts(other, "public")


def remote_of(site: Site, place: Path, name: str = "remote.git") -> Path:
    remote = git_servers.bare(site.folder / name)
    os.chdir(place)
    site.uwf("remote", "add", "origin", remote)
    return remote


def in_a_store_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A thread of a project whose repository is the store, and the project's origin."""
    one = site.repository("one")
    remote = git_servers.bare(site.folder / "remote.git")
    git("-C", one, "remote", "add", "origin", remote)
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    os.chdir(one)
    site.uwf("init", "--here")
    return remote, site.starts(one)


def refs(remote: Path) -> set[str]:
    return set(git("--git-dir", remote, "for-each-ref", "--format=%(refname)").split())


def test_each_command_without_an_id_means_the_project_and_an_id_means_its_thread(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    one, other, secret, public = two
    assert site.lists(one) == [secret] and site.lists(other) == [public]
    assert site.lists(one, "--all-projects") == site.lists(site.folder) == [public, secret]
    os.chdir(one)
    assert uwf("thread", "show", "@").json["thread"] == secret
    assert uwf("thread", "show", "@", "--all-projects").json["thread"] == public
    assert uwf("thread", "show", public).json["thread"] == public
    assert "there are 1 of project one" in uwf("thread", "show", "@2", check=3).err
    uwf("thread", "run", "--all", "--agent", "uwf-human", check=None)
    assert [each["thread"] for each in uwf("inbox").json] in ([], [secret])
    uwf("thread", "kill", "--status", "idle,waiting", "--yes")
    assert site.lists(other, "--all-projects") == [public]
    text = uwf("thread", "list", "--all", "--all-projects", "--format", "text").out
    assert "project" in text and " one " in text and " other " in text
    left = uwf("thread", "list", "--all", "--format", "text")
    assert "1 thread of other projects left out; --all-projects includes them" in left.err
    items = {each["thread"]: each for each in uwf("thread", "list", "--all", "--all-projects").json}
    assert (items[secret]["project"], items[public]["project"]) == ("one", "other")


def test_a_thread_outside_of_any_repository_belongs_to_none(site: Site, uwf: Uwf) -> None:
    one = site.repository("one")
    thread = site.starts(site.folder)
    assert site.lists(one) == [] and site.lists(site.folder) == [thread]
    assert uwf("thread", "list").json[0]["project"] is None
    os.chdir(one)
    empty = uwf("thread", "list", "--all", "--format", "text")
    assert empty.out.startswith("there are no threads of this project yet;")
    assert "1 thread of other projects left out; --all-projects includes them" in empty.err
    assert thread in uwf("thread", "list", "--all", "--all-projects", "--format", "text").out


def test_a_push_in_a_project_sends_its_threads_and_what_they_need(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    one, other, secret, public = two
    os.chdir(one)
    uwf("workflow", "put", site.flow("of-one"))
    os.chdir(other)
    uwf("workflow", "put", site.flow("of-other"))
    remote = remote_of(site, other)
    dry = uwf("push", "--dry-run").json
    assert dry["wouldPush"] == [f"refs/uwf/threads/{public}", "refs/uwf/workflows/of-other"]
    assert dry["leftOut"] == {"threads": 1, "others": ["refs/uwf/workflows/of-one"]}
    assert refs(remote) == set()
    pushed = uwf("push", "--format", "text")
    assert (
        "first push to origin" in pushed.err
        and "1 thread and workflow of-one of other projects" in pushed.err
    )
    assert refs(remote) == {*dry["wouldPush"]}
    assert "first push" not in uwf("push", "--format", "text").err
    uwf("push", "--workflow", "w", check=None)
    assert f"refs/uwf/threads/{secret}" not in refs(remote)
    uwf("push", "--all-projects")
    assert {f"refs/uwf/threads/{secret}", "refs/uwf/workflows/of-one"} <= refs(remote)


def test_the_first_push_of_each_project_to_a_remote_is_announced(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    one, other, _, _ = two
    remote_of(site, one)
    announced = "first push to origin"
    assert announced in uwf("push").err and announced not in uwf("push").err
    os.chdir(other)
    assert announced in uwf("push").err
    site.starts(other, "more")
    assert announced not in uwf("push").err
    uwf("remote", "rm", "origin")
    remote_of(site, other, "another.git")
    assert announced in uwf("push").err


def test_doctor_counts_what_the_push_that_it_names_would_send(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    remote_of(site, two[0])

    def of_remotes() -> tuple[str, str]:
        (check,) = [each for each in uwf("doctor", "--quick").json if each["check"] == "remotes"]
        return check["message"], check["hint"]

    message, hint = of_remotes()
    assert message.startswith("1 thread is not on origin") and hint == "uwf push origin"
    uwf(*hint.split()[1:])
    assert of_remotes()[0].startswith("all of this project is on origin")


def test_code_that_a_push_takes_to_the_projects_remote_is_named(site: Site, uwf: Uwf) -> None:
    project = site.repository("project")
    forge = git_servers.bare(site.folder / "forge.git")
    git("-C", project, "remote", "add", "origin", forge)
    remote_of(site, project)
    thread = site.starts(project)
    writes = """uwf-exec sh -c 'echo new > made.txt; echo "{\\"note\\": \\"x\\"}"'"""
    uwf("thread", "step", thread, "--workspace", "worktree", "--agent", writes)
    uwf("push")
    uwf("config", "set", f'workspace.projects."{project}".remote', "origin")
    branch = f"refs/uwf/work/{thread}"
    code = {"thread": thread, "branch": branch, "project": str(project / ".git"), "remote": "origin"}
    assert uwf("push", "--dry-run").json["code"] == [code] and refs(forge) == set()
    assert (
        f"would push the code of 1 thread to origin of {project}" in uwf("push", "-n", "--format", "text").out
    )
    assert uwf("push").json["code"] == [code] and refs(forge) == {branch}
    assert "code" not in uwf("push").json


def test_a_thread_that_is_named_is_pushed_from_anywhere(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    _, other, secret, _ = two
    remote = remote_of(site, other)
    uwf("push", "origin", secret)
    assert f"refs/uwf/threads/{secret}" in refs(remote)


def test_the_identity_survives_a_move_a_clone_and_another_first_commit(site: Site, uwf: Uwf) -> None:
    one = site.repository("one")
    thread = site.starts(one)
    clone = site.folder / "clone"
    git("clone", "-q", one, clone)
    assert site.lists(clone) == [thread]
    os.chdir(site.folder)
    moved = one.rename(site.folder / "moved")
    assert site.lists(moved) == site.lists(clone) == [thread]
    git("-C", moved, "commit", "-q", "--allow-empty", "--amend", "-m", "Begin again")
    later = site.starts(moved)
    assert site.lists(moved) == [later, thread]
    git("-C", moved, "worktree", "add", "-q", "--detach", site.folder / "tree")
    assert site.lists(site.folder / "tree") == [later, thread]


def test_a_repository_without_commits_keeps_its_threads_when_it_has_one(site: Site, uwf: Uwf) -> None:
    one, other = site.folder / "one", site.folder / "other"
    for place in (one, other):
        git(*git_servers.INIT, place)
    thread, foreign = site.starts(one), site.starts(other)
    assert site.lists(one) == [thread] and site.lists(other) == [foreign]
    git("-C", one, "commit", "-q", "--allow-empty", "-m", "Begin")
    assert site.lists(one) == [thread]
    later = site.starts(one)
    assert site.lists(one) == [later, thread]


def test_copies_of_a_template_are_two_projects_until_one_has_the_other_as_its_remote(
    site: Site, uwf: Uwf
) -> None:
    one, other = site.repository("one"), site.repository("other")
    assert git("-C", one, "rev-parse", "HEAD") == git("-C", other, "rev-parse", "HEAD")
    thread, foreign = site.starts(one), site.starts(other)
    assert site.lists(one) == [thread] and site.lists(other) == [foreign]
    for place in (one, other):
        git("-C", place, "remote", "add", "template", "https://example.org/team/template.git")
        git("-C", place, "remote", "add", "origin", f"https://example.org/team/{place.name}.git")
    assert site.lists(one) == [thread]
    git("-C", other, "remote", "set-url", "template", "git@example.org:team/one")
    assert site.lists(one) == site.lists(other) == [foreign, thread]


def test_a_bare_repository_is_a_project_as_its_worktrees_are(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    bare, tree = site.folder / "bare.git", site.folder / "tree"
    git("clone", "-q", "--bare", site.repository("source"), bare)
    git("-C", bare, "worktree", "add", "-q", tree)
    thread = site.starts(bare)
    assert site.lists(bare) == site.lists(bare / "refs") == site.lists(tree) == [thread]
    assert uwf("thread", "list", "--all-projects").json[0]["project"] == "bare"
    uwf("workflow", "put", site.flow("own"))
    remote = remote_of(site, tree)
    uwf("push")
    assert refs(remote) == {f"refs/uwf/threads/{thread}", "refs/uwf/workflows/own"}


@pytest.mark.parametrize("has_commit", [True, False])
def test_a_copied_folder_is_another_project_unless_both_have_one_origin(
    site: Site, uwf: Uwf, has_commit: bool
) -> None:
    one, other = site.folder / "one", site.folder / "other"
    git(*git_servers.INIT, one)
    if has_commit:
        git("-C", one, "commit", "-q", "--allow-empty", "-m", "Begin")
    thread = site.starts(one, "SECRET")
    shutil.copytree(one, other)
    assert site.lists(one) == [thread] and site.lists(other) == []
    remote = remote_of(site, other)
    uwf("push")
    assert not [ref for ref in refs(remote) if thread in ref]
    foreign = site.starts(other)
    assert site.lists(one) == [thread] and site.lists(other) == [foreign]
    (site.folder / "link").symlink_to(one)
    assert site.lists(site.folder / "link") == [thread]
    for place in (one, other) if has_commit else ():
        git("-C", place, "remote", "add", "origin", "https://example.org/team/one.git")
        assert site.lists(place) == ([thread] if place == one else [foreign, thread])


def test_a_copy_in_place_of_its_project_is_the_project(site: Site, uwf: Uwf) -> None:
    one, copy = site.repository("one"), site.folder / "copy"
    thread = site.starts(one)
    shutil.copytree(one, copy)
    shutil.rmtree(one)
    assert site.lists(copy) == [thread]
    later = site.starts(copy.rename(one))
    assert site.lists(one) == [later, thread]


def test_another_machine_knows_the_project_by_its_first_commit(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, secret, public = two
    remote = remote_of(site, one)
    uwf("push", "--all-projects")
    git("clone", "-q", one, site.folder / "there")
    monkeypatch.setenv("UWF_STORAGE_ROOT", str(site.folder / "root"))
    os.chdir(site.folder / "there")
    uwf("clone", remote)
    assert site.lists(Path.cwd()) == [secret] and site.lists(Path.cwd(), "--all-projects") == [public, secret]
    assert uwf("verify").json["findings"] == []


def test_forks_belong_to_the_project_of_their_thread(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    one, other, secret, _ = two
    os.chdir(other)
    fork = uwf("thread", "fork", secret).json["thread"]
    assert fork in site.lists(one) and fork not in site.lists(other)


def test_a_fold_with_threads_of_other_projects_stays_here(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    _, other, secret, public = two
    for thread in (secret, public):
        uwf("thread", "kill", thread)
    uwf("gc", "--fold-before", "2999-01-01")
    remote = remote_of(site, other)
    left = uwf("push").json["leftOut"]["others"]
    assert len(left) == 1 and left[0].startswith("refs/uwf/folded/") and not refs(remote)
    uwf("push", "--all-projects")
    assert refs(remote) == {*left}


def test_a_store_in_the_project_shares_with_origin_once_it_is_named(
    site: Site, uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, thread = in_a_store_of_its_own(site, monkeypatch)
    assert "uwf push origin" in uwf("push", check=3).error["hint"]
    uwf("push", "origin")
    assert refs(remote) == {f"refs/uwf/threads/{thread}"}
    assert "nothing new" in uwf("push", "--format", "text").out


def test_pages_and_sums_mean_the_project(site: Site, two: tuple[Path, Path, str, str], uwf: Uwf) -> None:
    pytest.importorskip("starlette")
    one, _, secret, public = two
    os.chdir(one)
    for name, options in (("own", ()), ("all", ("--all-projects",))):
        uwf("web", "--export", site.folder / name, *options)
        pages = "".join(page.read_text() for page in (site.folder / name).rglob("*.html"))
        assert secret in pages and (public in pages) == (name == "all")
    uwf("thread", "step", secret, "--agent", "uwf-rehearse")
    assert uwf("stats").json["total"]["steps"] == 1
    os.chdir(site.folder / "other")
    assert uwf("stats").json["total"]["steps"] == 0
    assert uwf("stats", "--all-projects").json["total"]["steps"] == 1


@pytest.mark.parametrize(
    "command", ["inbox", "stats", "grep SECRET", "thread kill --all --yes", "thread run --all", "thread list"]
)
def test_an_empty_answer_in_a_project_says_that_others_have_threads(
    site: Site, uwf: Uwf, command: str
) -> None:
    one, other = site.repository("one", 1_700_000_000), site.repository("other", 1_700_000_001)
    line = "uwf: 1 thread of other projects left out; --all-projects includes them\n"
    site.starts(one, "SECRET")
    os.chdir(other)
    answer = uwf("--format", "text", *command.split(), check=None)
    assert answer.err.endswith(line) and "SECRET" not in answer.out
    assert "SECRET" not in uwf(*command.split(), check=None).out
    os.chdir(site.folder)
    assert line not in uwf("--format", "text", "inbox").err


def test_what_was_deleted_on_a_remote_is_pruned_in_its_project_alone(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    one, other, secret, public = two
    remote_of(site, other)
    uwf("push", "--all-projects")
    uwf("push", "origin", secret, public, "--delete")
    assert uwf("pull", "--prune-deleted", "--yes").json["pruned"] == [public]
    assert site.lists(one) == [secret] and site.lists(other) == []


def test_an_inbox_names_the_project_of_each_item_as_the_list_does(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf
) -> None:
    one, other, secret, public = two
    uwf("config", "set", "defaultAgent", "uwf-human")
    for place, threads in ((one, [secret]), (other, [public]), (site.folder, [secret, public])):
        os.chdir(place)
        listed = {each["thread"]: (each["project"], each["projectId"]) for each in uwf("thread", "list").json}
        items = uwf("inbox").json
        assert [each["thread"] for each in items] == threads
        assert {each["thread"]: (each["project"], each["projectId"]) for each in items} == listed


@pytest.mark.parametrize(("answer", "is_sent"), [("y", True), ("", True), ("n", False)])
@pytest.mark.sample(2)
def test_a_first_push_asks_on_a_terminal_and_sends_what_is_wanted(
    site: Site, two: tuple[Path, Path, str, str], uwf: Uwf, answer: str, is_sent: bool
) -> None:
    remote = remote_of(site, two[0])
    status, shown = on_terminal("push", typed=[("Send it?", answer)])
    assert f"first push to origin ({remote})" in shown
    assert (status, bool(refs(remote))) == ((0, True) if is_sent else (2, False))
    assert is_sent or "nothing was pushed" in shown
    if is_sent:
        assert "Send it?" not in on_terminal("push")[1]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_store_in_the_project_asks_once_for_its_origin(
    site: Site, uwf: Uwf, monkeypatch: pytest.MonkeyPatch, is_wanted: bool
) -> None:
    remote, thread = in_a_store_of_its_own(site, monkeypatch)
    answers = [("Share the threads with origin", "y" if is_wanted else "n"), ("Send it?", "y")]
    status, shown = on_terminal("push", typed=answers[: 1 + is_wanted])
    assert (status, refs(remote)) == ((0, {f"refs/uwf/threads/{thread}"}) if is_wanted else (2, set())), shown
    again = on_terminal("push", typed=[] if is_wanted else answers[:1])[1]
    assert ("Share the threads" in again) is not is_wanted
