"""Spans of steps are sent while a thread runs, with the ids that its exported trace has, and nothing waits for them."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from conftest import Uwf
from fan_outs import ANSWER, FAN
from fleets import kill, processes, until
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from uwf_git.ext.traces import live
from uwf_git.store.instance import Instance


class Collector:
    """A receiver of OTLP/HTTP on loopback, which checks what it gets by OpenTelemetry's own types. It answers with the
    statuses of `refusals` first."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.services: set[str] = set()
        self.refusals: list[int] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.refusals.pop(0) if collector.refusals else 200
                if status == 200:
                    collector.take(
                        self.path, {name.lower(): text for name, text in self.headers.items()}, body
                    )
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert path == "/v1/traces" and headers["content-type"] == "application/json"
        text = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        value = Parse(text, ExportTraceServiceRequest())
        self.headers.append(headers)
        for resource in value.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(names["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def ids(self) -> list[tuple[str, str, str]]:
        # JSON of OTLP has ids in hexadecimal digits, which the parser of protobuf reads as base64.
        return sorted((span.name, *map(_text, (span.span_id, span.parent_span_id))) for span in self.spans)


def _text(value: bytes) -> str:
    from base64 import b64encode

    return b64encode(value).decode()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setenv(live.ENDPOINT, collector.address)
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def exported(uwf: Uwf, thread: str) -> list[tuple[str, str, str]]:
    (resource,) = uwf("trace", "export", thread).json["resourceSpans"]
    spans = resource["scopeSpans"][0]["spans"]
    return sorted((span["name"], span["spanId"], span.get("parentSpanId", "")) for span in spans)


def test_each_step_is_sent_once_with_the_ids_of_the_exported_trace(
    uwf: Uwf, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush,x-tenant=one")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "triage")
    collector.refusals = [503]
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "A secret task.").json["thread"]
    uwf("thread", "step", thread, "--agent", "sh -c 'exit 3'", check=6)
    for _ in range(2):
        uwf("thread", "step", thread, "--agent", "uwf-rehearse")
    until(lambda: len(collector.spans) >= 3, "spans of steps")
    assert not any(span.name.startswith("invoke_workflow") for span in collector.spans)
    uwf("thread", "run", thread, "--agent", "uwf-rehearse")
    until(lambda: any(span.name == "invoke_workflow pair" for span in collector.spans), "the thread's span")
    assert collector.ids() == exported(uwf, thread)
    assert collector.services == {"triage"}
    assert (
        collector.headers[0]["authorization"] == "Bearer hush" and collector.headers[0]["x-tenant"] == "one"
    )
    assert "secret" not in str(collector.spans)


def test_branches_are_sent_into_the_trace_of_their_thread(uwf: Uwf, collector: Collector) -> None:
    write("fan.yaml", FAN)
    ran = uwf("run", "fan.yaml", "-p", "Go.", "--agent", "uwf-rehearse", "--agent", f"lister={ANSWER}")
    thread = json.loads(ran.out.splitlines()[0])["thread"]
    whole = exported(uwf, thread)
    until(lambda: len(collector.spans) >= len(whole), "all spans")
    assert collector.ids() == whole


def test_a_collector_that_does_not_answer_holds_up_nothing(
    uwf: Uwf, root: Path, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(live.ENDPOINT, "http://127.0.0.1:9")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "Go.").json["thread"]
    assert uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE)).code == 0
    folder = live.folder_of(instance.store.repository.private)
    assert len(live.notes(folder)) == 4
    with live.holding(folder) as is_free:
        assert not is_free  # a sender tries on
    for pid in processes("uwf_git.ext.traces.sender", root):
        kill(pid)


def test_without_an_endpoint_no_step_leaves_a_note(uwf: Uwf, instance: Instance, monkeypatch: Any) -> None:
    monkeypatch.setenv(live.ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "Go.").json["thread"]
    uwf("thread", "step", thread, "--agent", scripted(REJECTS_ONCE))
    assert not live.folder_of(instance.store.repository.private).exists()
