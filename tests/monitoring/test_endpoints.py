"""Who may ask a server for its metrics and its health, and what it says."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import httpx
import pytest
from conftest import Begin, Uwf
from fleets import until
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from site_serving import Serve

from uwf_git.ext.fleet.server import Server

TOKEN = "only-for-the-scraper"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def client() -> httpx.Client:
    return httpx.Client(trust_env=False, verify=False)


def names(answer: httpx.Response) -> set[str]:
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    return {family.name for family in text_string_to_metric_families(answer.text)}


@pytest.mark.usefixtures("thread")
def test_pages_have_metrics_for_those_who_see_them_and_health_for_anybody(
    serve: Serve, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UWF_MONITOR_TOKEN", TOKEN)
    address = serve().address
    anybody = {"Host": "10.1.2.3"}
    assert client.get(f"{address}/healthz", headers=anybody).text == "alive\n"
    assert client.get(f"{address}/readyz", headers=anybody).text == "ready\n"
    assert client.get(f"{address}/metrics").status_code == 401
    assert client.get(f"{address}/metrics", headers={"Authorization": "Bearer guessed"}).status_code == 401
    assert client.get(f"{address}/threads", headers=BEARER).status_code == 401
    assert client.post(f"{address}/metrics", headers=BEARER).status_code == 403
    assert "uwf_threads" in names(client.get(f"{address}/metrics", headers=BEARER))


@pytest.mark.usefixtures("thread")
def test_without_a_token_metrics_are_a_page_like_others(serve: Serve, client: httpx.Client) -> None:
    serving = serve()
    assert (
        client.get(f"{serving.address}/metrics", headers={"Authorization": "Bearer none"}).status_code == 401
    )
    client.get(serving.launch)
    assert "uwf_threads" in names(client.get(f"{serving.address}/metrics"))


def test_a_worker_is_watched_and_says_when_its_server_is_gone(
    uwf: Uwf, begin: Begin, client: httpx.Client, tmp_path: Path
) -> None:
    uwf("init")
    assert "no process of a fleet" in uwf("fleet", "health", check=1).error["message"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def get(path: str, **headers: str) -> httpx.Response:
        return client.get(f"http://127.0.0.1:{port}{path}", headers=headers)

    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with Server(tmp_path / "server") as server:
        working = begin("fleet", "worker", "--address", server.address, "--monitor", str(port))
        until(is_up, "answer")
        health = ("fleet", "health", "--monitor", str(port))
        assert uwf(*health).json == {"ready": True, "address": server.address}
        answer = get("/metrics")
        assert {"uwf_steps", "uwf_fleet_threads"} <= names(answer) and "uwf_fleet_up 1" in answer.text
        # A page of a foreign host that leads to loopback is a browser's.
        assert get("/metrics", **{"Sec-Fetch-Site": "same-origin"}).status_code == 401
        assert get("/elsewhere").status_code == 404
    gone = get("/readyz")
    assert (gone.status_code, gone.text) == (503, "not ready: temporal\n")
    assert "no Temporal server answers" in uwf(*health, check=1).error["message"]
    assert "uwf_fleet_up 0" in get("/metrics").text and get("/healthz").status_code == 200
    working.send_signal(signal.SIGINT)
    assert working.wait(60) == 0
