"""Branches of workflows, crews and suites, and what forges make of proposals: each is verified without a store, and
what no store has registered yet is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from branches import Clone, Forge
from cli_samples import PAIR, write
from conftest import EXAMPLES, Uwf
from crew_packages import own

from uwf_git.api.check import Report, check_tree

SHORTER = PAIR.replace("One writes, one reviews.", "A shorter one.")
BASE, PROPOSAL = "uwf/workflows/pair", "uwf/proposals/change"


@pytest.fixture
def forge(uwf: Uwf, tmp_path: Path) -> Forge:
    """A forge with a published workflow, and a proposal for it."""
    forge = Forge(tmp_path / "forge.git")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("remote", "add", "origin", forge.folder)
    uwf("push")
    uwf("publish", "workflow", "pair")
    uwf("workflow", "propose", write("proposed.yaml", SHORTER), "--branch", "change", "--remote", "origin")
    return forge


def codes(report: Report) -> set[str]:
    return {each.code for each in report.findings}


def warned(report: Report) -> set[str]:
    return {each.code for each in report.verified.warnings}


def test_a_published_workflow_and_a_proposal_are_green(forge: Forge) -> None:
    for branch in (BASE, PROPOSAL):
        for depth in ((), ("--depth=1",)):
            clone = forge.cloned(f"{branch[4:8]}{len(depth)}", *depth, branch=branch)
            report = check_tree(clone.folder)
            assert report.findings == [] and warned(report) <= {"shallow"}
            counts = report.to_json()["verified"]
            assert (counts["definitions"], counts["threads"], counts["pages"]) == (1, 0, counts["pages"])
            assert counts["pages"] >= 1 and report.to_json()["subjects"][0]["kind"] == "workflow"


@pytest.mark.parametrize("how", ["merge", "squash", "rebase", "test"])
@pytest.mark.sample(2)
def test_a_proposal_that_a_forge_merged_is_green(forge: Forge, uwf: Uwf, how: str) -> None:
    forge.merges(BASE, PROPOSAL, how)
    clone = forge.cloned("merged", branch=BASE)
    if how == "test":
        clone("fetch", "-q", "origin", "refs/pull/1/merge")
        clone("checkout", "-q", "FETCH_HEAD")
    report = check_tree(clone.folder)
    assert report.findings == []
    assert warned(report) == ({"unregistered"} if how == "squash" else set())
    assert report.to_json()["verified"]["merges"] == (how in ("merge", "test"))


def test_a_source_edited_on_the_forge_is_told_and_must_compile(forge: Forge) -> None:
    clone = forge.cloned("edited", branch=BASE)
    clone.edits("workflow.yaml", "One writes, one reviews.", "Edited in the browser.")
    commit = clone.commits("Update workflow.yaml")
    report = check_tree(clone.folder)
    assert report.findings == []
    [found] = report.verified.warnings
    assert (found.code, found.path, found.object) == ("edited-source", "workflow.yaml", commit)
    assert "Ada Example" in found.message and "Update workflow.yaml" in found.message
    clone("checkout", "-q", "--detach")
    assert warned(check_tree(clone.folder)) == {"edited-source"}

    line = (clone.folder / "workflow.yaml").read_text().count("\n") + 1
    (clone.folder / "workflow.yaml").write_text((clone.folder / "workflow.yaml").read_text() + "oops: [\n")
    clone.commits("Update workflow.yaml")
    [wrong] = [each for each in check_tree(clone.folder).findings if each.code == "bad-source"]
    assert wrong.path == "workflow.yaml" and abs(wrong.line - line) <= 1


@pytest.mark.parametrize("path", ["workflow/README.md", ".gitattributes"])
def test_a_page_of_a_definition_edited_on_the_forge_is_wrong(forge: Forge, path: str) -> None:
    clone = forge.cloned("edited", branch=PROPOSAL)
    file = clone.folder / path
    file.write_text(file.read_text() + "approved\n")
    clone.commits("Update the page")
    found = check_tree(clone.folder).findings
    assert {each.code for each in found} == {"wrong-page", "foreign-commit"}
    assert [each.line for each in found if each.path == path] == [len(file.read_text().splitlines())]


def test_a_definition_that_was_edited_together_with_its_page_is_wrong(forge: Forge) -> None:
    clone = forge.cloned("edited", branch=BASE)
    clone.edits("workflow.yaml", "One writes, one reviews.", "Another.")
    clone.edits("workflow/README.md", "One writes, one reviews.", "Yet another.")
    clone.commits()
    assert {"other-source", "wrong-page", "foreign-commit"} <= codes(check_tree(clone.folder))


def test_a_page_put_into_a_proposal_is_wrong(forge: Forge) -> None:
    clone = forge.cloned("edited", branch=PROPOSAL)
    (clone.folder / "README.md").write_text("# approved\n")
    clone.commits()
    assert codes(check_tree(clone.folder)) == {"extra-file", "foreign-commit"}


def test_a_published_crew_is_green_and_its_edits_are_told(uwf: Uwf, tmp_path: Path) -> None:
    package = tmp_path / "package"
    for path, content in own().items():
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    name = uwf("crew", "import", package).json["name"]
    forge = Forge(tmp_path / "forge.git")
    uwf("remote", "add", "origin", forge.folder)
    uwf("publish", "crew", name)
    clone = forge.cloned("crew", branch=f"uwf/crews/{name}")
    report = check_tree(clone.folder)
    assert report.findings == [] and report.to_json()["subjects"][0]["kind"] == "crew"
    shallow = forge.cloned("shallow", "--depth=1", branch=f"uwf/crews/{name}")
    assert check_tree(shallow.folder).findings == []
    page = clone.folder / "README.md"
    page.write_text(page.read_text() + "approved\n")
    clone.commits()
    assert codes(check_tree(clone.folder)) == {"wrong-page", "foreign-commit"}
    clone("reset", "-q", "--hard", "HEAD~")
    source = next((clone.folder / "package").rglob("crew.yaml"))
    for old, new, code in (
        ("", "# a comment\n", "unregistered"),
        ("title: ", "title: New ", "edited-source"),
    ):
        text = source.read_text()
        source.write_text(text.replace(old, new, 1))
        clone.commits()
        report = check_tree(clone.folder)
        assert report.findings == [] and code in warned(report)


def test_a_suite_that_was_fetched_is_verified_with_all_of_its_commits(uwf: Uwf, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "forge.git")
    for name in ("one", "two"):
        thread = uwf("thread", "start", EXAMPLES / "solve-issue.yaml", "-p", f"The CSV export: {name}").json[
            "thread"
        ]
        uwf("thread", "step", thread)
        uwf("eval", "add", thread, "--to", "bugs", "--name", name)
    uwf("remote", "add", "origin", forge.folder)
    uwf("push")
    for depth, expected in ((), set()), (("--depth=1",), {"unchecked"}):
        clone = Clone(tmp_path / f"suite{len(depth)}")
        clone.folder.mkdir()
        clone("init", "-q")
        clone("fetch", "-q", *depth, f"file://{forge.folder}", "refs/uwf/evals/bugs")
        clone("checkout", "-q", "FETCH_HEAD")
        assert codes(check_tree(clone.folder)) == expected
    whole = Clone(tmp_path / "suite0")
    page = next(whole.folder.glob("cases/*/README.md"))
    page.write_text("# another\n")
    whole.commits()
    assert "foreign-commit" in codes(check_tree(whole.folder))
