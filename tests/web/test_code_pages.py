"""What the pages of threads, steps and failed attempts show of code: files and patches, as text."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cli_samples import ONE, write
from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve, entered, keep_picture

from uwf_git.api.cockpit.patch import patch_files
from uwf_git.workspaces.changes import ChangedFile

EVIL = "</code></pre><script>window.hit=1</script><img id=markup src=x onerror='window.hit=2'>{{ 7*7 }}"


@pytest.fixture
def stepped(uwf: Uwf, hermetic: Path) -> Callable[..., str]:
    """Makes a thread in a worktree of the current folder, with a step whose agent runs these commands."""
    subprocess.run(["git", "init", "-q"], check=True)
    write("one.yaml", ONE.replace("required: [n]", "required: []"))
    write("kept.txt", "one\n")
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "-qm", "first"], check=True)

    def make(shell: str, check: int = 0) -> str:
        thread = uwf("thread", "start", "one.yaml", "-p", "Do it", "--workspace", "worktree").json["thread"]
        script = write(f"../{thread}.sh", f"cat >/dev/null\n{shell}\necho '{{\"n\": 1}}'\n").resolve()
        uwf("thread", "step", thread, "--agent", f"{'' if check else 'uwf-exec '}sh {script}", check=check)
        return str(thread)

    return make


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", answer.text)))


def test_a_step_shows_its_files_and_its_patch_and_a_thread_the_files(
    stepped: Callable[..., str], serve: Serve
) -> None:
    thread = stepped("echo two >>kept.txt; printf 'a\\000b' >bin")
    for client in entered(serve()):
        assert "2 files changed, +1 -0" in text_of(client.get(f"/thread/{thread}/step/1"))
        page = client.get(f"/thread/{thread}/step/1?tab=changes")
        assert "2 files changed, +1 -0 from" in text_of(page)
        assert "kept.txt changed +1 -0" in text_of(page) and "bin added binary" in text_of(page)
        assert '<td class="sign">+</td><td class="line"><ins>two</ins>' in page.text
        page = client.get(f"/thread/{thread}")
        assert "2 files changed, +1 -0 from" in text_of(page) and "kept.txt changed +1 -0" in text_of(page)
        assert "<ins>two" not in page.text


def test_a_failed_attempt_shows_what_it_left(stepped: Callable[..., str], uwf: Uwf, serve: Serve) -> None:
    thread = stepped("echo half >half.txt; exit 3", check=6)
    (attempt,) = uwf("thread", "attempts", thread).json
    for client in entered(serve()):
        page = client.get(f"/thread/{thread}/attempt/{attempt['attempt']}?tab=changes")
        assert "half.txt added +1 -0" in text_of(page) and "<ins>half</ins>" in page.text
        assert 'id="code"' not in client.get(f"/thread/{thread}").text


def test_a_thread_without_code_has_no_such_part(uwf: Uwf, thread: str, client: httpx.Client) -> None:
    uwf("thread", "step", thread)
    assert 'id="code"' not in client.get(f"/thread/{thread}").text
    page = client.get(f"/thread/{thread}/step/1?tab=all").text
    assert 'id="code"' not in page and "tab=changes" not in page


def test_code_that_is_not_here_is_named(stepped: Callable[..., str], serve: Serve) -> None:
    thread = stepped("echo two >>kept.txt")
    shutil.rmtree(".git")
    for client in entered(serve()):
        for address in (f"/thread/{thread}", f"/thread/{thread}/step/1?tab=changes"):
            page = client.get(address)
            assert "is not on this machine" in text_of(page) and 'class="diff"' not in page.text


def test_a_long_patch_is_shown_in_parts(stepped: Callable[..., str], serve: Serve) -> None:
    thread = stepped("yes 'some line' | head -n 100000 >long.txt")
    for client in entered(serve()):
        page = client.get(f"/thread/{thread}/step/1?tab=changes")
        assert len(page.text) < 200_000 and "Show more of it" in page.text
        assert f"uwf thread step-details {thread}"[:24] in page.text and "--patch" in page.text
        more = client.get(f"/thread/{thread}/step/1?whole=patch")
        assert len(page.text) < len(more.text) < 4_000_000
        assert 10_000 < more.text.count('<tr class="ins">') <= 20_000


def test_an_export_has_the_commits_only(stepped: Callable[..., str], uwf: Uwf) -> None:
    thread = stepped("echo two >>kept.txt")
    uwf("web", "--export", "pages")
    for name in (f"pages/thread/{thread}.html", f"pages/thread/{thread}/step/1.html"):
        page = Path(name).read_text(encoding="utf-8")
        assert 'id="code"' in page and "kept.txt" not in page.partition('id="code"')[2]


def _hostile(stepped: Callable[..., str]) -> str:
    name = EVIL.replace("/", "").replace("'", "")
    lines = f"""printf '%s\\n' "{EVIL}" '\u202e' "$(printf '\\033[31m')" >>kept.txt"""
    return stepped(f"{lines}; echo x >'{name}'; mkdir '<b>'; echo x >'<b>/\u200b.txt'")


def test_hostile_code_stays_text(stepped: Callable[..., str], serve: Serve) -> None:
    thread = _hostile(stepped)
    for client in entered(serve()):
        for address in (
            f"/thread/{thread}",
            f"/thread/{thread}/step/1?tab=changes",
            f"/thread/{thread}/step/1?whole=patch",
        ):
            page = client.get(address).text
            assert "window.hit" in page and "<script>window" not in page
            assert "id=markup" in page and "<img" not in page and "<b>" not in page and "{{ 7*7 }}" in page
            assert not set("\u202e\u200b\x1b") & set(page)
            assert "\\u200b.txt" in page
    tree = page[page.index('aria-label="Changed files"') :]
    assert "\\u200b.txt" in tree[: tree.index("</nav>")]


def test_hostile_code_does_nothing_in_a_browser(
    stepped: Callable[..., str], serve: Serve, browser_page: Page
) -> None:
    thread = _hostile(stepped)
    serving = serve()
    browser_page.goto(serving.launch)
    for address in (f"/thread/{thread}", f"/thread/{thread}/step/1?tab=changes"):
        browser_page.goto(serving.address + address)
        assert browser_page.evaluate("window.hit") is None
        assert browser_page.locator("#markup").count() == 0


def test_lines_have_numbers_with_addresses_and_files_stand_in_a_tree(
    stepped: Callable[..., str], serve: Serve, browser_page: Page
) -> None:
    thread = stepped(
        "seq 40 >kept.txt; mkdir -p src/a; echo x >src/a/one.py; seq 400 >src/long.txt; git rm -q --cached one.yaml"
    )
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/thread/{thread}/step/1?tab=changes")
    tree = browser_page.get_by_role("navigation", name="Changed files")
    expect(tree.get_by_text("src/", exact=True)).to_be_visible()
    kept = browser_page.locator("details.file", has_text="kept.txt")
    row = kept.get_by_role("row", name="17 + 17")
    expect(row.locator("td.sign")).to_have_text("+")
    row.get_by_role("link").click()
    expect(browser_page).to_have_url(re.compile(r"#c[0-9a-f]{10}-\d+R17$"))
    expect(browser_page.locator(":target")).to_have_text("17")
    long = browser_page.locator("details.file", has_text="src/long.txt")
    expect(long).not_to_have_attribute("open", "")
    keep_picture(browser_page, "changes")


def test_two_threads_side_by_side_have_what_each_changed_and_the_difference(
    stepped: Callable[..., str], serve: Serve, uwf: Uwf
) -> None:
    one, other = stepped("echo two >>kept.txt; echo x >own.txt"), stepped("echo three >>kept.txt")
    for client in entered(serve()):
        page = client.get(f"/diff/{one}/{other}")
        assert "A : 2 files changed, +2 -0" in text_of(page) and "B : 1 file changed, +1 -0" in text_of(page)
        assert "<ins>two</ins>" in page.text and "<ins>three</ins>" in page.text and "<del>" not in page.text
        kept, own = re.findall(r'<details class="file".*?</details>', page.text, re.DOTALL)
        assert kept.count('class="diff"') == 2 and "untouched" not in kept
        assert own.count('class="diff"') == 1 and own.index("<ins>x</ins>") < own.index("B: not changed")
        anchors = re.findall(r' id="(c[^"]+)"', page.text)
        assert len(anchors) == len(set(anchors)) > 4
        assert f'href="/diff/{one}/{other}?code=between"' in page.text
        page = client.get(f"/diff/{one}/{other}?code=between")
        assert "2 files changed, +1 -2" in text_of(page)
        assert "<del>two</del>" in page.text and "<ins>three</ins>" in page.text
        same = client.get(f"/diff/{one}/{one}")
        assert "Their code is the same" in text_of(same)
    value = uwf("thread", "diff", one, other).json
    assert value["a"]["status"] == "completed" and value["a"]["seconds"] > 0 and value["b"]["attempts"] == 0


def test_long_code_of_two_threads_is_bounded_and_shown_on_request(
    stepped: Callable[..., str], serve: Serve
) -> None:
    one, other = stepped("seq 5000 >long.txt"), stepped("seq 4000 >long.txt; echo x >>kept.txt")
    for client in entered(serve()):
        page = client.get(f"/diff/{one}/{other}")
        assert page.text.count('<tr class="ins">') < 1200 and "7,805 lines are left out" in text_of(page)
        (more,) = re.findall(r'href="(/diff/[^"]*whole=patch)"', page.text)
        assert client.get(html.unescape(more)).text.count('<tr class="ins">') == 9001


def test_code_of_two_threads_that_one_lacks_or_that_is_not_here_is_said(
    stepped: Callable[..., str], serve: Serve, uwf: Uwf
) -> None:
    one = stepped("echo two >>kept.txt")
    bare = uwf("thread", "start", "one.yaml", "-p", "x", "--workspace", "worktree").json["thread"]
    for client in entered(serve()):
        page = client.get(f"/diff/{bare}/{one}")
        assert "A has no code" in text_of(page) and "code=between" not in page.text
        assert "<ins>two</ins>" in page.text
        other = stepped("echo three >>kept.txt")
        shutil.rmtree(".git")
        page = client.get(f"/diff/{one}/{other}")
        assert text_of(page).count("is not on this machine") + text_of(page).count("is gone from") == 2
        assert 'class="diff"' not in page.text


def test_a_step_begins_with_what_it_changed_and_cost(stepped: Callable[..., str], uwf: Uwf) -> None:
    thread = stepped("echo two >>kept.txt")
    value = uwf("thread", "step-details", f"{thread}@1", "--format", "json").json
    assert list(value)[:3] == ["step", "spent", "code"]
    assert value["spent"]["seconds"] > 0 and value["code"]["files"][0]["added"] == 1


@pytest.mark.parametrize(
    "evil", ["diff --git a/x b/x", "@@ -1 +1 @@", "--- a/x", "+++ b/x", "", "\\ No newline"]
)
def test_text_that_looks_like_the_head_of_a_file_is_a_line_of_its_file(evil: str) -> None:
    patch = (
        "diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@ before\n"
        f" one\n-{evil}\n+{evil}\n+two\n"
        "diff --git a/b b/b\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+b\n"
    )
    first, second = patch_files(patch, [ChangedFile("M", "a", 2, 1), ChangedFile("A", "b", 1, 0)])
    lines = [(line["kind"], line["old"], line["new"], line["text"]) for line in first["lines"][1:]]
    assert lines == [(" ", 1, 1, "one"), ("-", 2, None, evil), ("+", None, 2, evil), ("+", None, 3, "two")]
    assert [line["text"] for line in second["lines"][1:]] == ["b"]


def test_a_patch_is_shown_up_to_a_number_of_lines() -> None:
    body = "".join(f"+{number}\n" for number in range(500))
    patch = f"diff --git a/a b/a\n--- /dev/null\n+++ b/a\n@@ -0,0 +1,500 @@\n{body}"
    (file,) = patch_files(patch, [ChangedFile("A", "a", 500, 0)], 100)
    assert len(file["lines"]) == 100 and file["left"] == 401
