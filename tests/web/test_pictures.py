"""Pictures of every page, of a store as one looks after some days of work: docs/guides/web.md shows them.

They are taken where UWF_TEST_ARTEFACTS or UWF_TEST_PICTURES names a folder; `make pictures` takes those of the
document.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import begin
from conftest import Uwf
from lived_in import LivedIn
from playwright.sync_api import Page, expect
from site_serving import Serve

_ARTEFACTS = os.environ.get("UWF_TEST_ARTEFACTS")
_WANTED = os.environ.get("UWF_TEST_PICTURES") or (f"{_ARTEFACTS}/pages" if _ARTEFACTS else "")
_FOLDER = Path(_WANTED).absolute()

# Says and does what a developer would, then goes on until it is let end.
AGENT = """\
import time
from pathlib import Path
from uwf_git.kit import Reply, TurnRecord, Usage, create_agent

def run(ctx):
    ctx.in_session("s-1")
    turns = [
        TurnRecord("assistant", "The manual has a page for each format; I read that of JSON first.",
            usage=Usage(14200, 310, 9000), model="claude-sonnet-4-5", duration_ms=6100),
        TurnRecord("tool", "", "Read", {"file_path": "docs/export-json.md"}, "One object a line.", call="c1",
            duration_ms=240),
        TurnRecord("assistant", "Its order will do: what one gets, then the options, then an example. Now the fields.",
            usage=Usage(15900, 420, 14000), model="claude-sonnet-4-5", duration_ms=7300),
        TurnRecord("tool", "", "Bash", {"command": "python -m export --help"}, "usage: export [--separator S] ...",
            call="c2", duration_ms=610),
    ]
    for turn in turns:
        ctx.record(turn)
    while not Path("end").exists():
        time.sleep(0.05)
    return Reply("---\\napproved: true\\ncomments: fine\\n---\\n", turns=tuple(turns))

create_agent("claude-code", run, lambda ctx, session, message: run(ctx)).main()
"""


@pytest.fixture
def at_home(lived_in: LivedIn, root: Path, hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> LivedIn:
    """The store stands where a user's does."""
    (hermetic / ".uncaged").mkdir()
    shutil.move(root, hermetic / ".uncaged" / "workflow")
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    return lived_in


@pytest.fixture
def working(at_home: LivedIn, uwf: Uwf, script: Callable[[str, str], Path]) -> Iterator[str]:
    """A thread that somebody is at work on."""
    running = begin("thread", "step", at_home.idle, "--agent", script("claude-code", AGENT))
    while not (found := uwf("ps").json) or (found[0]["turns"] or 0) < 2:
        assert running.poll() is None, running.communicate()
    yield at_home.idle
    Path("end").touch()
    running.communicate(timeout=60)


@pytest.mark.skipif(not _WANTED, reason="nobody asked for pictures: make pictures")
@pytest.mark.timeout(300)
def test_every_page_has_its_picture(
    browser_page: Page, serve: Serve, uwf: Uwf, at_home: LivedIn, working: str
) -> None:
    uwf("eval", "baseline", "set", "solve-issue", "claude-code")
    browser_page.emulate_media(color_scheme="light", reduced_motion="reduce")
    site = serve("--write", "--run")
    browser_page.goto(site.launch)
    known, done = at_home, at_home.completed
    pages = {
        "inbox": "/",
        "threads": "/threads",
        "waiting": f"/thread/{known.waiting}",
        "thread": f"/thread/{done}",
        "running": f"/thread/{working}",
        "step": f"/thread/{done}/step/2",
        "attempt": f"/thread/{known.failed}/attempt/{known.attempt}",
        "diff": f"/diff/{done}/{known.parted}",
        "workflow": "/workflow/solve-issue",
        "crew": "/crew/press",
        "suite": "/eval/solve-issue",
        "stats": "/stats",
        "search": "/search?q=quote",
        "start": "/start?workflow=solve-issue",
    }
    for name, address in pages.items():
        _take(browser_page, site.address + address, name, 1280, 660 if name == "waiting" else 900)
    for name in ("threads", "running"):
        browser_page.emulate_media(color_scheme="dark")
        _take(browser_page, site.address + pages[name], f"{name}-dark-narrow", 360, 760)


def _take(page: Page, address: str, name: str, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.goto(address)
    expect(page.locator("h1").first).to_be_visible()
    assert "Not found" not in page.locator("h1").all_inner_texts()
    page.wait_for_timeout(400)  # the graph is laid out
    path = _FOLDER / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path)
    if find_spec("PIL"):
        from PIL import Image

        with Image.open(path) as image:
            # The colours of the smallest signs too, and the grounds as they are.
            few = image.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE, 3, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
