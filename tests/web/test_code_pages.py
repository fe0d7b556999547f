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
from playwright.sync_api import Page
from site_serving import Serve, entered

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
