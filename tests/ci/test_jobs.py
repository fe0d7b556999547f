"""The printed file's own steps, run as a forge runs them, on a repository as the forge has it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from commands import git
from conftest import EXAMPLES, Uwf
from forge_jobs import TOKEN, Forge

KINDS = ("github", "forgejo", "gitea")


def printed(kind: str, comment: bool = True) -> str:
    name = f"{kind}-comment.yml" if comment else f"{kind}.yml"
    return (EXAMPLES / "ci" / name).read_text(encoding="utf-8")


class Published(Forge):
    """A forge with a published thread of four steps."""

    def __init__(self, uwf: Uwf, folder: Path, kind: str = "github") -> None:
        super().__init__(folder, kind)
        uwf("workflow", "put", write("pair.yaml", PAIR))
        uwf("remote", "add", "origin", self.remote)
        self.uwf = uwf
        self.thread = uwf("thread", "start", "pair", "-p", "Quote commas, @team fixes #1").json["thread"]
        uwf("thread", "run", self.thread, "--agent", scripted(REJECTS_ONCE))
        uwf("push", "origin", self.thread)
        uwf("publish", "thread", self.thread)
        self.branch, self.base = f"uwf/threads/{self.thread}", f"uwf/base/{self.thread}"

    def edited(self, path: str, old: str, new: str) -> None:
        """Edit a file of the published branch, as in the forge's editor."""
        copy = self.folder / "copy"
        git("clone", "-q", self.remote, copy, "--branch", self.branch)
        file = copy / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        git("-C", copy, "commit", "-qam", "0006 critic: fix")
        git("-C", copy, "push", "-q", "origin", f"HEAD:refs/heads/{self.branch}")


@pytest.fixture
def forge(uwf: Uwf, tmp_path: Path) -> Published:
    return Published(uwf, tmp_path / "forge")


def test_a_published_thread_passes_and_its_front_page_is_the_comment(forge: Published) -> None:
    ran = forge.pull_request(printed("github"), forge.branch, forge.base)
    assert ran.code == 0, ran.log
    (comment,) = ran.comments
    assert comment["branch"] == ""
    text = comment["text"]
    assert "**Verified**: ended after 4 steps." in text
    assert "- 2 `critic`: `not approved` by `uwf-rehearse`" in text
    assert "uwf verify origin/pull/7/head" in text
    assert text in ran.summary
    assert ran.result["status"] == 0
    assert TOKEN not in ran.log


def test_nothing_of_the_change_is_written_as_a_file(forge: Published) -> None:
    ran = forge.pull_request(printed("github"), forge.branch, forge.base)
    there = {each.name for each in ran.folder.rglob("*") if each.is_file()}
    assert "README.md" not in there
    assert not list((ran.folder / "workspace").iterdir())
    config = (ran.folder / "change.git" / "config").read_text()
    assert "extraheader" not in config.lower()


def test_an_edited_verdict_fails_and_is_annotated_on_its_line(forge: Published) -> None:
    page = "steps/0002-critic/README.md"
    forge.edited(page, "not approved", "approved")
    ran = forge.pull_request(printed("github"), forge.branch, forge.base)
    assert ran.code == 7, ran.log
    errors = [each for each in ran.commands if each.name == "error"]
    assert page in {each.properties.get("file") for each in errors}, ran.log
    text = ran.comments[0]["text"]
    assert "**Not what it says it is**" in text
    assert "**Verified**" not in text
    assert "`approved`" not in text.split("On your machine")[0].split("steps/")[0]
    cases = ElementTree.fromstring(ran.report("junit.xml")).iter("testcase")
    assert [case.find("failure") is not None for case in cases] == [True]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_all_published_branches_are_checked_by_hand_and_daily(uwf: Uwf, tmp_path: Path, kind: str) -> None:
    forge = Published(uwf, tmp_path / "forge", kind)
    uwf("publish", "workflow", "pair")
    ran = forge.dispatched(printed(kind))
    assert ran.code == 0, ran.log
    names = [each["name"] for each in ran.result["checks"]]
    assert names == [forge.branch, "uwf/workflows/pair", "uwf/workflows/pair:workflow.yaml"]
    assert [each["branch"] for each in ran.comments] == names[:2]
    one = forge.dispatched(printed(kind), "uwf/workflows/pair")
    assert [each["name"] for each in one.result["checks"]] == names[1:]


def test_another_threads_steps_under_a_threads_name_are_told(forge: Published) -> None:
    other = forge.uwf("thread", "start", "pair", "-p", "Something else").json["thread"]
    forge.uwf("thread", "run", other, "--agent", scripted(REJECTS_ONCE))
    forge.uwf("push", "origin", other)
    head = forge.git("rev-parse", f"refs/uwf/archive/{other}^{{commit}}")
    forge.git("update-ref", f"refs/heads/{forge.branch}", head)
    ran = forge.pull_request(printed("github"), forge.branch, forge.base)
    assert ran.code == 7, ran.log
    assert "other-thread" in {each["code"] for check in ran.result["checks"] for each in check["problems"]}


def test_one_bad_branch_of_many_fails_the_sweep_and_is_named(forge: Published) -> None:
    forge.uwf("publish", "workflow", "pair")
    forge.edited("README.md", "Ended", "Failed")
    ran = forge.dispatched(printed("github"))
    assert ran.code == 7
    errors = [each for each in ran.commands if each.name == "error"]
    assert errors
    assert all(each.data.startswith(forge.branch) for each in errors)


def test_a_branch_with_nothing_of_uwfs_is_no_green_check(forge: Published) -> None:
    empty = forge.git("commit-tree", forge.git("mktree", data=""), "-m", "Nothing")
    forge.git("update-ref", "refs/heads/main", empty)
    more = forge.git("commit-tree", f"{empty}^{{tree}}", "-p", empty, "-m", "More")
    forge.git("update-ref", "refs/heads/more", more)
    ran = forge.pull_request(printed("github"), "more", "main")
    assert ran.code == 13, ran.log
    assert "nothing to verify" in ran.summary


def test_a_forge_without_published_branches_is_no_green_check(tmp_path: Path, hermetic: Path) -> None:
    ran = Forge(tmp_path / "forge").dispatched(printed("github"))
    assert ran.code == 13, ran.log


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_workflow_is_validated_and_its_coverage_compared(
    tmp_path: Path, hermetic: Path, kind: str
) -> None:
    forge = Forge(tmp_path / "forge", kind)
    work = tmp_path / "work"
    folder = work / ".uwf/workflows"
    folder.mkdir(parents=True)
    git("init", "-q", "-b", "main", work)
    (folder / "pair.yaml").write_text(PAIR)
    (folder / "other.yaml").write_text(PAIR.replace("name: pair", "name: other"))
    git("-C", work, "add", ".")
    git("-C", work, "commit", "-qm", "One")
    git("-C", work, "push", "-q", forge.remote, "HEAD:refs/heads/main")
    (folder / "pair.yaml").write_text(PAIR.replace("approved = false", "approved = 7"))
    git("-C", work, "commit", "-qam", "Two")
    git("-C", work, "push", "-q", forge.remote, "HEAD:refs/heads/topic")
    ran = forge.pull_request(printed(kind), "topic", "main")
    assert ran.code == 0, ran.log
    (check,) = ran.result["checks"]
    assert check["name"] == ".uwf/workflows/pair.yaml"
    assert check["before"]["percent"] == 100
    assert check["coverage"]["taken"] < check["before"]["taken"]
    warnings = [each for each in ran.commands if each.name == "warning"]
    assert {each.properties["file"] for each in warnings} == {".uwf/workflows/pair.yaml"}
    assert "| edges taken | 4 of 4 | 3 of 4 |" in ran.summary
    (folder / "pair.yaml").write_text(PAIR.replace("role: critic }", "role: nobody }"))
    git("-C", work, "commit", "-qam", "Three")
    git("-C", work, "push", "-q", forge.remote, "HEAD:refs/heads/topic")
    ran = forge.pull_request(printed(kind), "topic", "main")
    assert ran.code == 1
    error = next(each for each in ran.commands if each.name == "error")
    line = (folder / "pair.yaml").read_text().split("\n").index("  writer: [{ role: nobody }]") + 1
    assert (error.properties["file"], error.properties["line"]) == (".uwf/workflows/pair.yaml", str(line))


def test_a_code_quality_report_and_sarif_have_every_problem(forge: Published) -> None:
    page = "steps/0002-critic/README.md"
    forge.edited(page, "not approved", "approved")
    ran = forge.pull_request(printed("github"), forge.branch, forge.base)
    problems = [each for check in ran.result["checks"] for each in check["problems"]]
    assert problems
    quality = json.loads(ran.report("code-quality.json"))
    assert {each["location"]["path"] for each in quality} == {
        each["path"] or "README.md" for each in problems
    }
    results = json.loads(ran.report("uwf.sarif"))["runs"][0]["results"]
    assert [each["message"]["text"] for each in results] == [each["message"] for each in problems]


def test_a_workflow_edited_on_the_forge_is_checked_against_the_version_before(forge: Published) -> None:
    forge.uwf("publish", "workflow", "pair")
    copy = forge.folder / "copy"
    git("clone", "-q", forge.remote, copy, "--branch", "uwf/workflows/pair")
    file = copy / "workflow.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("approved = false", "approved = 7"), encoding="utf-8")
    git("-C", copy, "commit", "-qam", "Update workflow.yaml")
    git("-C", copy, "push", "-q", "origin", "HEAD:refs/heads/patch-1")
    ran = forge.pull_request(printed("github"), "patch-1", "uwf/workflows/pair")
    assert ran.code == 0, ran.log
    (changed,) = (each for each in ran.result["checks"] if each["kind"] == "workflow")
    assert changed["name"] == "workflow.yaml"
    assert changed["coverage"]["taken"] < changed["before"]["taken"]
    assert "git fetch origin +refs/pull/7/head:refs/remotes/origin/pull/7/head" in ran.comments[0]["text"]
    file.write_text(text.replace("graph:", "grahp:"), encoding="utf-8")
    git("-C", copy, "commit", "-qam", "Update workflow.yaml")
    git("-C", copy, "push", "-q", "origin", "HEAD:refs/heads/patch-1")
    ran = forge.pull_request(printed("github"), "patch-1", "uwf/workflows/pair")
    assert ran.code in (1, 7), ran.log
    files = {each.properties.get("file") for each in ran.commands if each.name == "error"}
    assert "workflow.yaml" in files


def test_a_branch_whose_name_is_a_trap_is_checked_and_gets_no_comment(forge: Published) -> None:
    head = forge.git("rev-parse", f"refs/heads/{forge.branch}")
    name = "uwf/threads/$(touch${IFS}trace);`id`|'@team\"&&x"
    forge.git("update-ref", f"refs/heads/{name}", head)
    raw = f"refs/heads/uwf/proposals/{chr(0x202E)}x"
    forge.git("update-ref", raw, head)
    ran = forge.dispatched(printed("github"))
    checked = [each["name"] for each in ran.result["checks"]]
    assert len(checked) == 3
    assert name in checked
    text = "".join(each["text"] for each in ran.comments)
    assert [each["branch"] for each in ran.comments if "\u202e" in each["branch"]] == []
    assert "uwf verify 'origin/uwf/threads/$(touch${IFS}trace);`id`|'" in text
    one = forge.dispatched(printed("github"), name)
    assert [each["name"] for each in one.result["checks"]] == [name]
    assert not list(forge.folder.rglob("trace"))


def test_the_comments_commands_verify_the_branch_in_a_clone(forge: Published) -> None:
    ran = forge.pull_request(printed("github"), forge.branch, forge.base)
    (block,) = re.findall(r"```text\n(.*?)\n```", ran.comments[0]["text"], re.DOTALL)
    clone = forge.folder / "clone"
    git("clone", "-q", "--no-checkout", forge.remote, clone)
    environment = {**os.environ, "UWF_STORAGE_ROOT": str(forge.folder / "none"), "UWF_FORMAT": "text"}

    def typed() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["bash", "-e"], input=block.encode(), cwd=clone, env=environment, capture_output=True, check=False
        )

    done = typed()
    assert done.returncode == 0, done.stderr.decode()
    assert b"4 steps" in done.stdout
    forge.edited("README.md", "Ended", "Failed")
    forge.pull_request(printed("github"), forge.branch, forge.base)
    assert typed().returncode == 7


def with_root(forge: Published, tree: str, parents: list[str], branch: str) -> None:
    """Make a merge with an unrelated root; `parents` come before it."""
    blob = forge.git("hash-object", "-w", "--stdin", data="x")
    other = forge.git("mktree", data=f"100644 blob {blob}\tLICENSE\n")
    root = forge.git("commit-tree", other, "-m", "root")
    args = [word for parent in (*parents, root) for word in ("-p", parent)]
    forge.git("update-ref", f"refs/heads/{branch}", forge.git("commit-tree", tree, *args, "-m", "Merge"))


@pytest.mark.parametrize("kind", ("github", "gitea"))
def test_a_change_of_a_published_thread_is_no_projects_for_an_unrelated_root(
    uwf: Uwf, tmp_path: Path, kind: str
) -> None:
    forge = Published(uwf, tmp_path / "forge", kind)
    head = forge.git("rev-parse", forge.branch)
    with_root(forge, f"{head}~2^{{tree}}", [head], "drop")
    ran = forge.pull_request(printed(kind), "drop", forge.branch)
    assert ran.code == 7, ran.log
    forge.edited("README.md", "Quote commas", "Approved by the boss")
    edit = forge.git("rev-parse", forge.branch)
    forge.git("update-ref", f"refs/heads/{forge.branch}", head)
    with_root(forge, f"{edit}^{{tree}}", [edit], "fix")
    ran = forge.pull_request(printed(kind), "fix", forge.branch, number=8)
    assert ran.code == 7 and "every file" not in ran.summary, ran.log


def test_a_comment_on_a_project_does_not_speak_for_its_own_files(forge: Published, tmp_path: Path) -> None:
    copy = tmp_path / "main"
    git("clone", "-q", forge.remote, copy, "--branch", forge.branch)
    git("-C", copy, "checkout", "-q", "--orphan", "main")
    git("-C", copy, "rm", "-rfq", ".")
    (copy / "code.py").write_text("print()\n")
    git("-C", copy, "add", "code.py")
    git("-C", copy, "commit", "-qm", "mine")
    git("-C", copy, "push", "-qf", "origin", "main")
    git("-C", copy, "merge", "-q", "--allow-unrelated-histories", "-m", "merged", f"origin/{forge.branch}")
    git("-C", copy, "push", "-q", "origin", "main:refs/heads/topic")
    ran = forge.pull_request(printed("github"), "topic", "main")
    assert ran.code == 0, ran.log
    (comment,) = ran.comments
    assert (
        "every file" not in comment["text"] and "The project's own files were not verified" in comment["text"]
    )


def test_an_active_ref_beside_the_end_of_a_thread_vouches_for_no_branch(forge: Published) -> None:
    fork = forge.uwf("thread", "fork", forge.thread, "--at", "1").json["thread"]
    # With the same answers within the same second its commits may be the thread's own.
    forge.uwf("thread", "run", fork, "--agent", scripted(REJECTS_ONCE.replace("second", "forged")))
    forge.uwf("push", "origin", fork)
    forge.uwf("publish", "thread", fork)
    forged = forge.git("rev-parse", f"refs/heads/uwf/threads/{fork}")
    for ref in (f"refs/uwf/threads/{forge.thread}", f"refs/heads/{forge.branch}"):
        forge.git("update-ref", ref, forged)
    ran = forge.pull_request(printed("github"), forge.branch, forge.base)
    assert ran.code == 7 and "other-thread" in ran.log, ran.log
