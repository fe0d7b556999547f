"""A Temporal server that speaks TLS alone, asks for a certificate of its clients and for a key, as a company's does:
nginx in front of a real one."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_samples import write
from complete import examine
from conftest import Uwf
from fleets import FIVE, STEPS
from git_servers import listening, nginx
from programs import program

from uwf_git.ext.fleet.server import Server

KEY = "k-4711-temporal"
_SECURED = """\
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {home}/server.pem;
    ssl_certificate_key {home}/server.key;
    ssl_client_certificate {home}/ca.pem;
    ssl_verify_client on;
    client_body_timeout 300s;
    keepalive_requests 100000;
    location / {{
      if ($http_authorization = "Bearer wrong") {{ return 401; }}
      if ($http_authorization != "Bearer {key}") {{
        add_header grpc-status 16;
        add_header grpc-message "no key";
        return 204;
      }}
      grpc_read_timeout 300s;
      grpc_send_timeout 300s;
      grpc_pass grpc://{behind};
    }}
  }}
"""


class Secured(NamedTuple):
    """Where it listens, and the folder with its certificates and its clients'."""

    address: str
    home: Path

    def client(self) -> dict[str, str]:
        """The variables of who may speak to it."""
        return {
            "TEMPORAL_TLS": "true",
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(self.home / "ca.pem"),
            "TEMPORAL_TLS_CLIENT_CERT_PATH": str(self.home / "client.pem"),
            "TEMPORAL_TLS_CLIENT_KEY_PATH": str(self.home / "client.key"),
            "TEMPORAL_API_KEY": KEY,
        }


def certificates(home: Path) -> None:
    """Those of the server and of a client, which one authority has signed."""
    openssl = program("openssl")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")

    def made(*words: str) -> None:
        subprocess.run([openssl, *words], cwd=home, check=True, capture_output=True)

    made("req", "-x509", *curve, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("server", "client"):
        made("req", *curve, *subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copyall")
        made("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with tempfile.TemporaryDirectory(prefix="uwf-", ignore_cleanup_errors=True) as name:
        home = Path(name).resolve()
        certificates(home)
        with Server(home / "temporal") as behind:

            def command(port: int) -> Sequence[str]:
                return nginx(home, _SECURED.format(home=home, port=port, key=KEY, behind=behind.address))

            with listening(command, home) as (port, _):
                yield Secured(f"127.0.0.1:{port}", home)


def test_a_fleet_works_by_a_server_that_asks_for_a_certificate_and_a_key(
    uwf: Uwf, root: Path, secured: Secured
) -> None:
    uwf("workflow", "put", write("five.yaml", FIVE))
    thread = uwf("thread", "start", "five", "-p", "Say it").json["thread"]
    uwf("fleet", "run", thread, "--address", secured.address, env=secured.client())
    assert examine(root / "store.git", STEPS) == ({}, {thread: STEPS})
    (row,) = uwf("fleet", "status", "--all", "--address", secured.address, env=secured.client()).json
    assert (row["thread"], row["state"]) == (thread, "completed")


@pytest.mark.parametrize(
    "missing", ["TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_SERVER_CA_CERT_PATH", ""]
)
def test_who_may_not_speak_to_it_is_told_in_a_line(uwf: Uwf, secured: Secured, missing: str) -> None:
    uwf("init")
    given = {name: value for name, value in secured.client().items() if missing and name != missing}
    refused = uwf("fleet", "status", "--address", secured.address, env=given, check=8)
    assert secured.address in refused.error["message"]
    assert KEY not in refused.err


def test_the_page_of_a_proxy_that_refuses_is_told_by_its_status(uwf: Uwf, secured: Secured) -> None:
    uwf("init")
    given = {**secured.client(), "TEMPORAL_API_KEY": "wrong"}
    refused = uwf("fleet", "status", "--address", secured.address, env=given, check=8).error
    assert refused["message"].endswith(
        f"at {secured.address}: a proxy in front of it refuses: 401 Unauthorized"
    )
    assert "TEMPORAL_API_KEY" in refused["hint"]
