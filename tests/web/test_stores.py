"""Several stores on one `uwf web`: each at a port of its own, with a switcher for the user, and nothing in common."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from commands import git
from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve, Serving, entered, keep_picture


@pytest.fixture
def shop(uwf: Uwf, hermetic: Path) -> Path:
    """A project with a store of its own, which has one thread."""
    folder = hermetic / "shop"
    git("init", "-q", folder)
    uwf("init", "--here", cwd=folder)
    return folder


def _other(client: httpx.Client, serving: Serving) -> httpx.Response:
    """Switches to the store that isn't shown."""
    page = client.get("/threads").text
    (path,) = re.findall(r'href="(/switch/[0-9]+)"', page)
    answer = client.get(path)
    assert answer.status_code == 303
    return answer


def test_the_user_switches_between_stores(
    serve: Serve, uwf: Uwf, browser_page: Page, thread: str, shop: Path
) -> None:
    serving = serve("--write", "--store", shop)
    browser_page.goto(serving.launch)
    stores = browser_page.get_by_title("Stores")
    stores.click()
    keep_picture(browser_page, "stores")
    browser_page.get_by_role("link", name="shop").click()
    expect(browser_page.get_by_title("Stores")).to_contain_text("shop")
    assert not browser_page.url.startswith(serving.address) and "token" not in browser_page.url
    other = browser_page.url
    browser_page.goto(f"{serving.address}/threads")
    expect(browser_page.get_by_text("Do it").first).to_be_visible()
    browser_page.goto(other)
    expect(browser_page.get_by_title("Stores")).to_contain_text("shop")


def test_a_way_to_another_store_counts_once_and_only_for_the_user(
    serve: Serve, uwf: Uwf, thread: str, shop: Path
) -> None:
    serving = serve("--write", "--store", shop)
    for client in entered(serving):
        way = _other(client, serving).headers["location"]
        with (
            httpx.Client(trust_env=False, verify=False) as first,
            httpx.Client(trust_env=False, verify=False) as second,
        ):
            assert first.get(way).status_code == 303 and second.get(way).status_code == 401
        cross = {"Sec-Fetch-Site": "cross-site"}
        assert client.get("/switch/2", headers=cross).status_code == 403
        assert client.get("/switch/3").status_code == 404
    with httpx.Client(base_url=serving.address, trust_env=False, verify=False) as stranger:
        assert stranger.get("/switch/2").status_code == 401
    link = uwf("web", "invite", "Grace <grace@example.com>", "--run").json["link"]
    with httpx.Client(base_url=serving.address, trust_env=False, verify=False) as grace:
        form = {"token": link.partition("=")[2]}
        assert grace.post("/sign-in", data=form, headers={"Origin": serving.address}).status_code == 303
        assert grace.get("/").status_code == 200
        assert "/switch/" not in grace.get("/").text and grace.get("/switch/2").status_code == 404


def test_a_page_of_one_store_does_nothing_in_another(serve: Serve, uwf: Uwf, thread: str, shop: Path) -> None:
    serving = serve("--write", "--store", shop)
    for client in entered(serving):
        way = _other(client, serving).headers["location"]
        other = "/".join(way.split("/")[:3])
        assert client.get(f"{other}/").status_code == 401  # the cookie goes to every port
        assert client.get(way).status_code == 303
        form = {"sure": "yes"}
        for origin, status in ((other, 403), (serving.address, 303)):
            answer = client.post(f"/thread/{thread}/kill", data=form, headers={"Origin": origin})
            assert answer.status_code == status
        assert client.get(f"{other}/thread/{thread}").status_code == 404
        begun = client.post(f"{other}/thread/{thread}/kill", data=form, headers={"Origin": other})
        assert begun.status_code == 404


def test_stores_keep_their_ports(serve: Serve, uwf: Uwf, thread: str, shop: Path) -> None:
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serving = serve("--write", "--port", str(port), "--store", shop, "--store", shop.parent / "shop")
    for client in entered(serving):
        assert _other(client, serving).headers["location"].startswith(f"http://127.0.0.1:{port + 1}/?token=")


def test_a_folder_without_a_store_and_a_proxy_are_refused(
    uwf: Uwf, thread: str, hermetic: Path, shop: Path
) -> None:
    (hermetic / "empty").mkdir()
    refused = uwf("web", "--no-open", "--store", hermetic / "empty", check=3).error
    assert "no store in" in refused["message"] and "uwf init --here" in refused["hint"]
    proxied = uwf("web", "--no-open", "--name", "https://uwf.example.com", "--store", shop, check=2).error
    assert "one port" in proxied["message"]
