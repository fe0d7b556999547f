"""Who gets in: only whoever has the printed address, asking for this server by its name, from its own pages."""

from __future__ import annotations

import httpx
import pytest
from site_serving import Serve

pytestmark = pytest.mark.usefixtures("thread")


def test_the_printed_address_lets_in_once(serve: Serve) -> None:
    serving = serve()
    with httpx.Client(trust_env=False) as first, httpx.Client(trust_env=False) as second:
        assert first.get(serving.address + "/").status_code == 401
        entered = first.get(serving.launch)
        assert entered.status_code == 303 and "token" not in entered.headers["location"]
        cookie = entered.headers["set-cookie"]
        assert cookie.startswith(f"uwf-{serving.address.rpartition(':')[2]}=")
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert first.get(serving.address + "/").status_code == 200
        assert second.get(serving.launch).status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example:{port}", "evil.example", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1:{port}, evil.example"],
)
def test_a_request_for_another_host_is_misdirected(serve: Serve, host: str) -> None:
    serving = serve()
    with httpx.Client(trust_env=False) as client:
        client.get(serving.launch)
        port = serving.address.rpartition(":")[2]
        answer = client.get(serving.address + "/", headers={"Host": host.format(port=port)})
    assert answer.status_code in (400, 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
    ],
)
def test_what_another_site_asks_for_is_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    assert client.get("/", headers=headers).status_code == 403


def test_without_flags_nothing_can_be_changed(client: httpx.Client) -> None:
    own = {"Origin": str(client.base_url).rstrip("/")}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/", headers=own).status_code == 405
        assert client.request(method, "/").status_code == 403


def test_every_answer_binds_the_browser(client: httpx.Client) -> None:
    for path in ("/", "/static/web.css", "/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        for part in ("script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "default-src 'none'"):
            assert part in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
