"""`uwf web` as a process, and a real browser that fails a test where a page breaks its own policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
from programs import program
from warm import shared as warm_uwf

if TYPE_CHECKING:
    from conftest import Uwf
    from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

_ARTEFACTS = os.environ.get("UWF_TEST_ARTEFACTS")  # before a test seals its environment


class Serving(NamedTuple):
    """A server that runs. `address` is that of its site, without a slash at its end; `launch` lets a browser in,
    once."""

    process: subprocess.Popen[str]
    address: str
    launch: str


Serve = Callable[..., Serving]


@pytest.fixture
def serve(uwf: Uwf, tmp_path: Path) -> Iterator[Serve]:
    """Starts `uwf web` with these arguments, on a store that is there; it ends with the test. With `is_cold`, `process`
    is the server itself, in an interpreter of its own; else it hands on signals, and ends as the server does."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, is_cold: bool = False) -> Serving:
        uwf("init")
        warm = None if is_cold else warm_uwf()
        command = (
            [warm.program(tmp_path / "uwf", again=False)] if warm else [sys.executable, "-m", "uwf_cli.main"]
        )
        process = subprocess.Popen(
            [*command, "--format", "json", "web", "--no-open", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        said = json.loads(line)
        return Serving(process, "/".join(said["address"].split("/")[:3]), said["launch"])

    yield run
    for process in started:
        process.terminate()
        _, err = process.communicate(timeout=20)
        assert "Traceback" not in err and "internal error" not in err, err


@pytest.fixture
def client(serve: Serve) -> Iterator[httpx.Client]:
    """A client that was let in, at the site of a read-only server."""
    yield from entered(serve())


def entered(serving: Serving) -> Iterator[httpx.Client]:
    """A client that was let in. It verifies no certificate, as there is none, and so reads none."""
    with httpx.Client(base_url=serving.address, trust_env=False, verify=False, timeout=30) as made:
        assert made.get(serving.launch).status_code == 303
        yield made


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Debian's Chromium, or whichever is installed."""
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    return {"executable_path": program("chromium"), "args": flags}


# As the plugin has these, but for a module: while Playwright runs, no other test can run an event loop of its own.


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """What drives the browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright, browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    """The browser."""
    launched = playwright.chromium.launch(**browser_type_launch_args)
    yield launched
    launched.close()


@pytest.fixture(scope="module")
def browser_context_args() -> dict[str, Any]:
    """What each of its contexts begins with."""
    return {}


@pytest.fixture
def browser_page(page: Page) -> Iterator[Page]:
    """A page of the browser. What its console says of a policy that was broken, or of an error, fails the test. A page
    that is itself one which says what is wrong is none."""
    said: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if "status of 4" in message.text and "/static/" not in message.location["url"]:
            return
        if message.type == "error" or "Content Security Policy" in message.text:
            said.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    assert not said, said


def keep_picture(page: Page, name: str) -> None:
    """Keeps a screenshot among the artefacts, where somebody asked for these."""
    if _ARTEFACTS:
        Path(_ARTEFACTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(_ARTEFACTS) / f"web-{name}.png", full_page=True)


@pytest.fixture
def changing(serve: Serve) -> Iterator[httpx.Client]:
    """A client that was let in, at a server that may write."""
    for client in entered(serve("--write")):
        client.headers["Origin"] = str(client.base_url).rstrip("/")
        yield client
