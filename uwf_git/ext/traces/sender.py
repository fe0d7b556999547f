"""Sends the spans of notes to a collector by OTLP/HTTP, as JSON, and ends once no more come.

`python -P -m uwf_git.ext.traces.sender`, started by a step. Its settings are OpenTelemetry's variables
(https://opentelemetry.io/docs/specs/otel/protocol/exporter/). A collector that doesn't answer is asked again for a
minute; then notes wait for the next step, for at most a day.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from uwf_git.ext.traces import live
from uwf_git.plugin import (
    SUBWORKFLOW,
    Instance,
    ThreadId,
    UwfError,
    begin_log,
    is_call,
    lifetime,
    locate_store,
    log,
    wanted_log,
)

_BATCH = 100  # notes that are sent together
_LINGERS = 2.0  # seconds without a note, after which it ends
_POLL = 0.1
_GIVES_UP = 60.0  # seconds for which a collector is asked again
_OLDEST = 24 * 3600.0  # seconds that notes are kept
_AGAIN = (429, 502, 503, 504)


class Collector(NamedTuple):
    """Where to send, and how."""

    address: str
    headers: Mapping[str, str]
    timeout: float
    zips: bool
    certificate: str
    service: Mapping[str, str]
    content: bool


def parse_collector(environ: Mapping[str, str]) -> Collector:
    """Parse OpenTelemetry's variables."""

    def value(name: str, default: str = "") -> str:
        of_traces = environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}")
        return of_traces or environ.get(f"OTEL_EXPORTER_OTLP_{name}") or default

    base = environ.get(live.ENDPOINT, "").rstrip("/")
    milliseconds = value("TIMEOUT", "10000")
    service = _pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if name := environ.get("OTEL_SERVICE_NAME"):
        service["service.name"] = name
    return Collector(
        environ.get(live.TRACES_ENDPOINT) or f"{base}/v1/traces",
        _pairs(value("HEADERS")),
        float(milliseconds) / 1000 if milliseconds.isdigit() else 10.0,
        value("COMPRESSION") == "gzip",
        value("CERTIFICATE"),
        service,
        environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower() == "true",
    )


def _pairs(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(",") if "=" in item)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


class _Sender:
    def __init__(self, instance: Instance, collector: Collector) -> None:
        self._instance = instance
        self._collector = collector

    def run(self, folder: Path) -> None:
        """Send until no note has come for a while, or the collector doesn't answer."""
        quiet = time.monotonic()
        while time.monotonic() - quiet < _LINGERS:
            if paths := live.notes(folder)[:_BATCH]:
                if not self._send(paths):
                    return
                quiet = time.monotonic()
            time.sleep(_POLL)

    def _send(self, paths: Sequence[Path]) -> bool:
        from uwf_git.ext.traces.trace import request

        spans = [span for path in paths for span in self._spans(path)]
        if spans and not self._post(request(spans, self._collector.service)):
            return False
        for path in paths:
            path.unlink(missing_ok=True)
        return True

    def _spans(self, path: Path) -> list[dict[str, Any]]:
        from uwf_git.ext.traces.trace import spans_of_note

        instance = self._instance
        try:
            if time.time() - path.stat().st_mtime > _OLDEST:
                return []
            note = live.parse_note(path.read_bytes())
            head = instance.threads.head(ThreadId(note.thread))
            # These are spans of the step that asked for them.
            if is_call(instance.store, head.row.start) or instance.sessions.owners(
                SUBWORKFLOW, [head.thread]
            ):
                return []
            return spans_of_note(instance, note, self._collector.content)
        except (UwfError, OSError, ValueError, TypeError) as error:
            log.warning("AQ0Y6SNZ", "sends nothing of a note: {why}", why=str(error))
            return []

    def _post(self, value: Mapping[str, Any]) -> bool:
        """Send a request; return whether it was taken, or will never be."""
        import httpx

        to, body = self._collector, json.dumps(value, separators=(",", ":")).encode()
        headers = {"content-type": "application/json", **to.headers}
        if to.zips:
            body, headers = gzip.compress(body), {**headers, "content-encoding": "gzip"}
        until, pause = time.monotonic() + _GIVES_UP, 1.0
        with httpx.Client(verify=_verification(to.certificate), timeout=to.timeout) as client:
            while True:
                try:
                    answer = client.post(to.address, content=body, headers=headers)
                    if answer.is_success:
                        return True
                    why = f"it answers with {answer.status_code}"
                    if answer.status_code not in _AGAIN:
                        log.warning("7S30A5TY", "{address} refuses spans: {why}", address=to.address, why=why)
                        return True
                except httpx.HTTPError as error:
                    why = str(error)
                if time.monotonic() + pause > until:
                    log.warning("DQ9N7MWR", "{address} takes no spans: {why}", address=to.address, why=why)
                    return False
                time.sleep(pause)
                pause = min(2 * pause, 15.0)


def _verification(certificate: str) -> Any:
    if not certificate:
        return True
    import ssl

    return ssl.create_default_context(cafile=certificate)


def main() -> None:
    lifetime.begin()
    location = locate_store(None, os.environ, Path("/"))
    if level := wanted_log(os.environ):
        begin_log(location, level)
    instance = Instance(location)
    folder = live.folder_of(instance.store.repository.private)
    with contextlib.suppress(KeyboardInterrupt, UwfError, OSError):
        sender = _Sender(instance, parse_collector(os.environ))
        while True:
            before = live.notes(folder)
            with live.holding(folder) as is_alone:
                if is_alone:
                    sender.run(folder)
            # A step that came just before the end has started no other.
            if not is_alone or not (after := live.notes(folder)) or after[0] in before:
                break
    lifetime.end(0)


if __name__ == "__main__":
    main()
