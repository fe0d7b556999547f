"""The pages as files: read from a disk, by anybody, without a server."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from commands import git
from conftest import EXAMPLES, Uwf
from judged_suites import run, version
from playwright.sync_api import Page, expect
from site_serving import keep_picture
from workflows import opened

_LINK = re.compile(r'(?:href|src)="([^"]*)"')


def pages(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def links(folder: Path, name: str) -> list[str]:
    """What a page links to, as paths from the folder; where it leads out of it, as it is."""
    found = []
    for each in _LINK.findall((folder / name).read_text(encoding="utf-8")):
        target, _, place = unescape(each).partition("#")
        assert not re.match(r"[a-z]+:|/", target), (name, target)
        path = ((folder / name).parent / unquote(target)).resolve() if target else folder / name
        found.append(path.relative_to(folder.resolve()).as_posix())
        if place:
            assert f'id="{place}"' in path.read_text(encoding="utf-8"), (name, each)
    return found


@pytest.fixture
def store(uwf: Uwf, root: Path, thread: str) -> tuple[str, str]:
    """Two threads, one of them forked, of workflows whose names no file system likes beside each other, and a crew."""
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    uwf("thread", "fork", thread, "--at", "1")
    for name in ("con", "größe.x"):
        uwf("workflow", "put", write("other.yaml", PAIR.replace("name: pair", f"name: {name}")))
    # Names that differ in case alone come from another machine.
    elsewhere = Path("elsewhere").absolute()
    uwf("--root", elsewhere, "workflow", "put", write("other.yaml", PAIR.replace("name: pair", "name: Pair")))
    git(
        "--git-dir",
        root / "store.git",
        "fetch",
        "-q",
        elsewhere / "store.git",
        "refs/uwf/workflows/Pair:refs/uwf/workflows/Pair",
    )
    other = uwf("thread", "start", "con", "-p", "<script>alert(1)</script> & a secret plan").json["thread"]
    uwf("thread", "step", other, "--agent", "uwf-rehearse")
    uwf("crew", "import", EXAMPLES / "crew" / "press")
    for scores in ({"csv": [1]}, {"csv": [0.5, 1]}):
        run(opened(), "con", version(opened(), "Writes."), scores)
    return thread, other


def test_an_export_is_read_from_a_disk(uwf: Uwf, store: tuple[str, str], browser_page: Page) -> None:
    folder = Path("pages").absolute()
    told = uwf("web", "--export", folder).json
    found = pages(folder)
    assert told["files"] == len(found) - 1 and told["folder"] == str(folder)
    names = [name for name in found if name.endswith(".html")]
    assert len({name.casefold() for name in found}) == len(found)
    for name in found:
        assert all(
            re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*(\.[a-z0-9-]+)*", part) for part in name.split("/")
        ), name
        assert not re.search(r"(^|/)con\.", name)
    reached, left = set[str](), ["index.html"]
    while left:
        reached.add(name := left.pop())
        left += [each for each in links(folder, name) if each.endswith(".html") and each not in reached]
        assert all((folder / each).is_file() for each in links(folder, name)), name
        assert b"<script" not in found[name] and b" ago" not in found[name] and b"<form" not in found[name]
    assert reached == set(names)
    asked: list[str] = []
    browser_page.on("request", lambda request: asked.append(request.url))
    browser_page.goto((folder / "index.html").as_uri())
    assert browser_page.evaluate("getComputedStyle(document.querySelector('.tabs')).display") == "flex"
    browser_page.get_by_role("link", name=re.compile("^done")).click()
    keep_picture(browser_page, "export")
    browser_page.get_by_role("link", name="Do it").first.click()
    expect(browser_page.get_by_role("heading", level=1)).to_contain_text("Do it")
    browser_page.get_by_role("link", name="Suites").click()
    browser_page.get_by_role("link", name="con", exact=True).click()
    expect(browser_page.locator(".outcome")).to_contain_text("1 worse")
    browser_page.get_by_role("link", name="Workflows").click()
    browser_page.get_by_role("link", name="größe.x").click()
    browser_page.get_by_role("link", name="Crews").click()
    browser_page.get_by_role("link", name="Spending").click()
    browser_page.get_by_role("link", name="role", exact=True).click()
    expect(browser_page.locator("svg.chart.wide")).to_be_visible()
    assert all(each.startswith(folder.as_uri()) for each in asked)


def test_an_exported_step_was_told_what_the_server_says(
    uwf: Uwf, store: tuple[str, str], client: httpx.Client
) -> None:
    """Whichever page came first, and whatever was read for it."""
    uwf("web", "--export", "pages", store[0])

    def told(page: str) -> str:
        section = re.search(r'aria-labelledby="prompt-title".*?</section>', page, re.DOTALL)
        assert section is not None
        return section[0]

    for number in range(1, 5):
        address = f"thread/{store[0]}/step/{number}"
        page = told((Path("pages") / f"{address}.html").read_text())
        assert page == told(client.get(f"{address}?tab=all").text) and f"This is step {number}." in page


def test_the_same_store_gives_the_same_files(uwf: Uwf, store: tuple[str, str]) -> None:
    uwf("web", "--export", "one")
    uwf("web", "--export", "other")
    assert pages(Path("one")) == pages(Path("other"))


def test_an_export_of_one_thread_holds_no_other(uwf: Uwf, store: tuple[str, str]) -> None:
    uwf("web", "--export", "pages", store[0])
    folder = Path("pages").absolute()
    found = pages(folder)
    assert f"thread/{store[0]}.html" in found and f"thread/{store[0]}/step/4.html" in found
    assert not any(b"secret plan" in data or store[1].encode() in data for data in found.values())
    for name in found:
        if name.endswith(".html"):
            assert all((folder / each).is_file() for each in links(folder, name)), name
    said = found["workflow/pair.html"].decode()
    assert "1 thread<" in said and "größe" not in found["workflows.html"].decode()


def test_an_export_replaces_an_earlier_one_and_nothing_else(uwf: Uwf, store: tuple[str, str]) -> None:
    uwf("web", "--export", "pages")
    Path("pages/mine.txt").write_text("kept")
    uwf("thread", "rm", store[1], "--yes")
    uwf("web", "--export", "pages")
    assert Path("pages/mine.txt").read_text() == "kept"
    assert not any(store[1] in name for name in pages(Path("pages")))
    write("full/mine.txt", "kept")
    refused = uwf("web", "--export", "full", check=None)
    assert refused.code == 1 and "not an earlier export" in refused.error["message"]
    assert pages(Path("full")) == {"mine.txt": b"kept"}
    assert uwf("web", "--export", "pages", "--write", check=None).code == 2
    Path("pages/uwf-pages.txt").write_text(
        Path("pages/uwf-pages.txt").read_text() + "../full/mine.txt\n/etc/hostname\n"
    )
    uwf("web", "--export", "pages")
    assert Path("full/mine.txt").exists() and Path("/etc/hostname").exists()


def test_an_export_follows_no_link_out_of_its_folder(uwf: Uwf, store: tuple[str, str]) -> None:
    uwf("web", "--export", "pages", store[0])
    write("other/profile", "kept")
    for name, target in (("stats.html", "../other/profile"), ("gone", "../other")):
        Path("pages", name).unlink(missing_ok=True)
        Path("pages", name).symlink_to(target)
        with Path("pages/uwf-pages.txt").open("a") as marker:
            marker.write("gone/profile\n")
        refused = uwf("web", "--export", "pages", store[0], check=1)
        assert "is a link" in refused.error["message"]
        Path("pages", name).unlink()
    assert pages(Path("other")) == {"profile": b"kept"}
