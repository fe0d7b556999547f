"""A person's role in a thread with code: the changes stand above the form, and an answer is given anywhere."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from cli_samples import GATE, on_terminal, write
from commands import git
from conftest import Uwf
from playwright.sync_api import Page
from site_serving import Serve
from two_machines import Machine
from workflows import opened

from uwf_git.api.cockpit.step import step as step_view
from uwf_git.format.ids import ThreadId

CODES = """uwf-exec sh -c 'echo "added by $UWF_ROLE" >> made.txt; echo "{\\"text\\": \\"first\\"}"'"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    (path / "one.txt").write_text("one")
    git("-C", path, "add", ".")
    git("-C", path, "commit", "-q", "-m", "one")
    return path


@pytest.fixture
def coded(uwf: Uwf, project: Path) -> str:
    """A thread in a worktree whose writer has left code, so that its gate is next."""
    uwf("workflow", "put", write("gated.yaml", GATE))
    place = ("--workspace", "worktree", "--cwd", project)
    thread = uwf("thread", "start", "gated", "-p", "Announce it", *place).json["thread"]
    uwf("thread", "step", thread, "--agent", CODES)
    return str(thread)


def test_a_terminal_shows_the_changes_above_the_fields(uwf: Uwf, coded: str) -> None:
    code, shown = on_terminal(
        "thread", "answer", coded,
        typed=[("decision [1-3]: ", "send"), ("note (", ""), ("  - ", ""), ("> ", ".")],
    )  # fmt: skip
    assert code == 0, shown
    assert shown.index("+added by writer") < shown.index("Send first?") < shown.index("decision [1-3]")


def test_a_page_shows_the_changes_above_the_form(serve: Serve, browser_page: Page, coded: str) -> None:
    serving = serve("--write")
    browser_page.goto(serving.launch)
    for address in ("/", f"/thread/{coded}"):
        browser_page.goto(serving.address + address)
        added = browser_page.get_by_role("insertion").filter(has_text="added by writer")
        added.scroll_into_view_if_needed()
        above, below = added.bounding_box(), browser_page.get_by_role("button", name="send").bounding_box()
        assert above is not None and below is not None and above["y"] < below["y"]


def test_what_a_person_changed_in_the_worktree_is_kept_with_the_answer(
    uwf: Uwf, coded: str, project: Path
) -> None:
    folder = Path(uwf("workspace", "path", coded).out.strip())
    (folder / "made.txt").write_text("corrected by hand\n")
    shown = uwf("thread", "show", coded).json["shown"]["code"]
    assert "+corrected by hand" in shown["since"] and "has changed since" in shown["warning"]
    answer = ("thread", "answer", coded, "-m", "send", "--code")
    refused = uwf(*answer, shown["state"][:-1], check=14).error["message"]
    assert refused.endswith(f"judges code {shown['state']} now, of which --code has the beginning alone")
    uwf(*answer, shown["state"].upper())
    assert git("-C", project, "show", f"uwf/work/{coded}:made.txt") == "corrected by hand"
    assert "+corrected by hand" in uwf("thread", "step-details", f"{coded}@2", "--patch").out
    assert uwf("verify").json["findings"] == []


@pytest.mark.parametrize("is_committed", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_an_answer_about_changes_that_were_not_shown_is_refused(
    uwf: Uwf, coded: str, project: Path, is_committed: bool
) -> None:
    judged = uwf("thread", "show", coded).json["shown"]["code"]["state"]
    folder = Path(uwf("workspace", "path", coded).out.strip())
    (folder / "made.txt").write_text("sneaky\n")
    if is_committed:
        git("-C", folder, "commit", "-q", "-a", "-m", "sneaky")
    for words in ((), ("--code", judged)):
        error = uwf("thread", "answer", coded, "-m", "send", *words, check=14).error
        assert "\n" not in error["message"]
    assert (
        uwf("thread", "answer", coded, "-m", "send", check=14)
        .error["message"]
        .startswith(f"worktree {folder} has changed since commit {judged[:12]}")
    )
    assert uwf("thread", "show", coded).json["status"] == "waiting"
    (warning,) = uwf("inbox").json[0]["warnings"]
    assert "has changed since" in warning
    hint = uwf("thread", "answer", coded, "-m", "send", check=14).error["hint"]
    code = hint.split(" --code ")[1].split()[0]
    uwf("thread", "answer", coded, "-m", "send", "--code", code)
    assert git("-C", project, "show", f"uwf/work/{coded}:made.txt") == "sneaky"


def test_a_form_is_about_the_code_that_its_page_showed(
    changing: httpx.Client, uwf: Uwf, coded: str, project: Path
) -> None:
    def form() -> dict[str, str]:
        page = changing.get(f"/thread/{coded}").text
        hidden = re.findall(r'name="(head|code)" value="([^"]*)"', page[page.index('/answer"') :])
        return {"pick1": "1", **dict(hidden[:2])}

    folder = Path(uwf("workspace", "path", coded).out.strip())
    before = form()
    (folder / "made.txt").write_text("sneaky\n")
    refused = changing.post(f"/thread/{coded}/answer", data=before)
    assert refused.status_code == 422 and "judges code" in refused.text
    page = changing.get(f"/thread/{coded}").text
    assert "+sneaky" in page and "has changed since" in page
    assert changing.post(f"/thread/{coded}/answer", data=form()).status_code == 303
    assert git("-C", project, "show", f"uwf/work/{coded}:made.txt") == "sneaky"


def test_code_whose_ref_was_moved_at_a_gate_is_told_and_left(uwf: Uwf, coded: str, project: Path) -> None:
    branch = f"refs/uwf/work/{coded}"
    judged = git("-C", project, "rev-parse", branch)
    sneaky = git("-C", project, "commit-tree", "-p", judged, "-m", "sneaky", f"{judged}^{{tree}}")
    git("-C", project, "update-ref", branch, sneaky)
    (warning,) = uwf("thread", "show", coded).json["shown"]["code"]["warnings"]
    assert f"is at another commit, {sneaky[:12]}" in warning and f"git merge {judged[:12]}" in warning
    made = uwf("thread", "answer", coded, "-m", "send")
    assert uwf("thread", "show", coded).json["code"]["commit"] == judged
    assert git("-C", project, "rev-parse", branch) == sneaky
    assert made.json["code"]["commit"] == judged and made.json["code"]["branch"] is None
    assert sneaky[:12] in made.json["code"]["warnings"][0]


def test_a_gate_names_the_results_that_git_ignores(
    uwf: Uwf, root: Path, client: httpx.Client, project: Path
) -> None:
    (project / ".gitignore").write_text("build/\n*.log\n")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "ignore")
    uwf("workflow", "put", write("gated.yaml", GATE))
    makes = CODES.replace("echo", "mkdir -p build; echo 1 >build/report; echo 2 >a.log; echo", 1)
    place = ("--workspace", "worktree", "--cwd", project)
    thread = uwf("thread", "start", "gated", "-p", "Announce it", *place).json["thread"]
    done = uwf("thread", "step", thread, "--agent", makes)
    line = f"what git ignores goes with the worktree of thread {thread}: "
    assert f"{line}a.log, build/; workspace.keepIgnored" in done.err
    shown = uwf("thread", "show", thread).json["shown"]
    assert any(each.startswith(f"{line}a.log, build/;") for each in shown["code"]["warnings"])
    assert f"{line}a.log, build/;" in shown["text"]
    assert f"{line}a.log, build/;" in uwf("inbox").json[0]["warnings"][0]
    assert f"{line}a.log, build/;" in client.get(f"/thread/{thread}").text
    (root / "config.yaml").write_text("workspace: {keepIgnored: [build]}\n")
    (warning,) = uwf("inbox").json[0]["warnings"]
    assert f"{line}a.log;" in warning
    (root / "config.yaml").write_text("workspace: {keepIgnored: [build, '*.log']}\n")
    assert "warnings" not in uwf("inbox").json[0]


def test_a_gate_in_the_checkout_itself_says_where_the_changes_are(
    uwf: Uwf, project: Path, client: httpx.Client
) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    where = ("--workspace", "shared", "--cwd", project)
    thread = uwf("thread", "start", "gated", "-p", "Announce it", *where).json["thread"]
    uwf("thread", "step", thread, "--agent", CODES)
    shown = uwf("thread", "show", thread).json["shown"]
    assert "code" not in shown and f"git -C {project} diff" in shown["unshown"]
    assert shown["unshown"] in shown["text"]
    assert "changes are not shown" in uwf("thread", "show", thread, "--format", "text").out
    instance = opened()
    head = instance.threads.head(ThreadId(thread))
    assert step_view(instance, head, 1)["unshown"] == shown["unshown"]
    assert shown["unshown"] in client.get(f"/thread/{thread}/step/1").text


def test_a_worktree_that_cannot_be_used_keeps_nobody_from_answering(
    uwf: Uwf, coded: str, project: Path
) -> None:
    folder = Path(uwf("workspace", "path", coded).out.strip())
    (folder / ".git").unlink()
    git("init", "-q", folder)
    answered = uwf("thread", "answer", coded, "-m", "change")
    assert answered.json["role"] == "gate" and "the worktree is left as it is" in answered.err


def test_an_answer_is_given_on_a_machine_without_the_project(uwf: Uwf, coded: str, tmp_path: Path) -> None:
    git("init", "-q", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    uwf("push", "hub")
    there = Machine(uwf, tmp_path / "there")
    there("init")
    there("remote", "add", "hub", tmp_path / "hub.git")
    there("pull", "hub")
    (waits,) = there("inbox").json
    assert (waits["thread"], waits["role"]) == (coded, "gate")
    (tmp_path / "elsewhere").mkdir()
    answer = ("thread", "answer", coded, "-m", "change")
    error = there(*answer, cwd=tmp_path / "elsewhere", check=14).error
    assert error["code"] == "requirement_unmet" and "is not on this machine" in error["message"]
    assert there("thread", "show", coded, cwd=tmp_path / "elsewhere").json["shown"]["code"]["here"] is False
    there(*answer, "--unseen", cwd=tmp_path / "elsewhere")
    there("push", "hub")
    uwf("pull", "hub")
    assert uwf("thread", "show", coded).json["next"] == "writer"
    made = uwf("thread", "step", coded, "--agent", CODES).json
    assert (made["role"], made["status"]) == ("writer", "waiting")
    assert uwf("verify").json["findings"] == []


def test_one_value_has_the_task_the_output_the_verdicts_and_the_changes(uwf: Uwf, coded: str) -> None:
    uwf("thread", "answer", coded, "-f", "decision=change", "-f", "note=Shorter")
    uwf("thread", "step", coded, "--agent", CODES)
    shown = uwf("thread", "show", coded).json["shown"]
    assert shown["task"] == "Announce it"
    assert shown["last"]["role"] == "writer" and shown["last"]["output"] == {"text": "first"}
    assert [(each["role"], each["verdict"]) for each in shown["verdicts"]] == [("gate", "change")]
    assert "+added by writer" in shown["code"]["patch"] and shown["code"]["moved"] is None
    for part in ("Announce it", "first", "+added by writer", "Send first?"):
        assert part in shown["text"]


def test_a_page_has_the_output_and_the_patch_that_are_judged(
    client: httpx.Client, uwf: Uwf, coded: str
) -> None:
    page = client.get(f"/thread/{coded}").text
    judged = page[page.index('id="question"') : page.index('id="steps"')]
    assert "Output of writer" in judged and "first" in judged
    (row,) = [row for row in judged.split("<tr") if "added by writer" in row]
    assert re.search(r'class="sign">\+<', row)


def _moves_main(project: Path, text: str) -> None:
    (project / "made.txt").write_text(text)
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "meanwhile")


def test_a_gate_says_that_a_merge_will_conflict(
    client: httpx.Client, uwf: Uwf, coded: str, project: Path
) -> None:
    before = git("-C", project, "count-objects")
    _moves_main(project, "another text\n")
    made = git("-C", project, "count-objects")
    code = uwf("thread", "show", coded).json["shown"]["code"]
    assert code["moved"] == {"branch": "main", "ahead": 1, "conflicts": ["made.txt"]}
    warning = "main has moved on by 1 commit, and a merge will conflict in made.txt"
    assert code["warning"] == warning
    assert warning in client.get(f"/thread/{coded}").text
    assert warning in uwf("thread", "show", coded, "--format", "text").out
    assert uwf("inbox").json[0]["warnings"] == [warning]
    assert warning in uwf("inbox", "--format", "text").out
    waits = uwf("thread", "run", coded, "--agent", f"writer={CODES}", "--format", "text", check=5)
    assert waits.err.count(warning) == 1
    _, shown = on_terminal("thread", "answer", coded, typed=[("decision [1-3]: ", "\x04")])
    assert warning in shown
    assert git("-C", project, "count-objects") == made != before


def test_a_gate_knows_what_was_fetched_and_fetches_nothing(
    uwf: Uwf, coded: str, project: Path, tmp_path: Path
) -> None:
    git("clone", "-q", project, tmp_path / "colleague")
    git("-C", project, "remote", "add", "origin", tmp_path / "colleague")
    git("-C", project, "fetch", "-q", "origin")
    git("-C", project, "branch", "-q", "--set-upstream-to", "origin/main", "main")
    _moves_main(tmp_path / "colleague", "theirs\n")
    assert uwf("thread", "show", coded).json["shown"]["code"]["moved"] is None
    git("-C", project, "fetch", "-q", "origin")
    moved = uwf("thread", "show", coded).json["shown"]["code"]["moved"]
    assert moved == {"branch": "origin/main", "ahead": 1, "conflicts": ["made.txt"]}


def test_a_branch_that_has_moved_without_a_conflict_is_no_warning(
    uwf: Uwf, coded: str, project: Path
) -> None:
    (project / "other.txt").write_text("other")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "meanwhile")
    code = uwf("thread", "show", coded).json["shown"]["code"]
    assert code["moved"] == {"branch": "main", "ahead": 1, "conflicts": []} and code["warning"] == ""
