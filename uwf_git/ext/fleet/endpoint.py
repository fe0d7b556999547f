"""The endpoint of this store's running fleet: `fleet/place.json` in the private folder, valid while locked;
and connection errors in plain words."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.plugin import (
    Busy,
    StoreUnwritable,
    failure_of,
    log,
    make_folders,
    read_private,
    share_folder,
    system,
    write_private,
)

NAMESPACE = "default"
_FILE, _LOCK = "place.json", "place.lock"
_PROBED = 0.2  # seconds

_ADDRESS = "uwf fleet run starts one; else see that --address is right"
_TLS = "see that TEMPORAL_TLS, TEMPORAL_TLS_… and TEMPORAL_API_KEY are what it asks for"
_BROKEN_OFF = r"^(?:transport error|operation was canceled|h2 protocol error)"
_REASONS = (
    (r"invalid compression flag.*?\b(4\d\d [A-Za-z ]+)", r"a proxy in front of it refuses: \1", _TLS),
    (r"invalid compression flag", "it answers as a web server, not as a Temporal server", _TLS),
    (_BROKEN_OFF, "it has broken the connection off", _ADDRESS),
    (r'Os \{[^}]*message: "([^"]+)"', r"\1", _ADDRESS),
    (r'failed to lookup address[^"]*?: ([^"]+)"', r"\1", _ADDRESS),
    (r"invalid target URL: (.+)", r"\1", "an address is HOST:PORT"),
    (r"InvalidCertificate\(UnknownIssuer", "its TLS certificate is by nobody who is known here", _TLS),
    (r"InvalidCertificate\(NotValidForName", "its TLS certificate is for another name", _TLS),
    (r"InvalidCertificate\(", "its TLS certificate is not accepted", _TLS),
    (r"InvalidMessage\(|InvalidContentType", "it doesn't speak TLS, which is asked for", _TLS),
    (
        r'message: "(?:transport error|operation was canceled|h2 protocol error)',
        "it breaks the connection off, as one does that speaks TLS alone, or is not a Temporal server",
        _TLS,
    ),
    (r"^tcp connect error$", "it cannot be reached", _ADDRESS),
    (r"^Timeout expired$", "it says nothing", _ADDRESS),
    (r"grpc-status header missing", "who answers there is no Temporal server", _ADDRESS),
    (r'Status \{ code: \w+, message: "([^"]+)"', r"\1", _TLS),
)
"""What Temporal's library says where it doesn't get a connection, what that is in plain words, and what to do."""


class Endpoint(NamedTuple):
    """A server `host:port` and namespace. `own`: started by a fleet here, without TLS. Others are configured
    by Temporal's variables such as TEMPORAL_API_KEY."""

    address: str
    namespace: str = NAMESPACE
    own: bool = False


def folder_of(private: Path) -> Path:
    return private / "fleet"


def find(private: Path) -> Endpoint | None:
    """Return the running fleet's endpoint, if any."""
    folder = folder_of(private)
    try:
        descriptor = system.open_file(folder / _LOCK, os.O_RDONLY | system.O_NONBLOCK | system.O_CLOEXEC)
    except OSError:
        return None
    try:
        system.lock(descriptor)
    except OSError:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Endpoint(**json.loads(read_private(folder / _FILE)))
    finally:
        os.close(descriptor)
    return None


@contextlib.contextmanager
def fleet_membership(private: Path, alone: bool) -> Iterator[Path]:
    """This process belongs to a fleet during the block; yields its folder. Raises Busy if another is running
    and either is `alone`."""
    folder = folder_of(private)
    try:
        make_folders(folder)
        descriptor = system.open_file(
            folder / _LOCK, os.O_RDWR | os.O_CREAT | system.O_NONBLOCK | system.O_CLOEXEC, 0o600
        )
        share_folder(folder / _LOCK)
    except OSError as error:
        raise StoreUnwritable(f"cannot write {folder}: {error}", "check the folder") from None
    try:
        _take(descriptor, alone, private)
        yield folder
    finally:
        os.close(descriptor)


def _take(descriptor: int, alone: bool, private: Path) -> None:
    deadline = time.monotonic() + _PROBED
    while True:
        try:
            return system.lock(descriptor, shared=not alone)
        except OSError:  # who looks for a fleet has it for an instant
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
    endpoint = find(private)
    where = f" at {endpoint.address}" if endpoint else ""
    hint = "uwf fleet start --all adds threads to it, uwf fleet status shows it"
    raise Busy(f"a fleet is running for this store{where}", hint)


def announce(folder: Path, place: Endpoint) -> None:
    """Write the endpoint, valid while the folder is `kept`."""
    write_private(folder / _FILE, json.dumps(place._asdict()).encode())


def is_broken_off(error: Exception) -> bool:
    """Return whether a call ended because the server disappeared."""
    return re.search(_BROKEN_OFF, str(error)) is not None


def unreachable(error: Exception, seconds: float) -> tuple[str, str]:
    """Return why a connection failed, and what to do, instead of library debug text."""
    log.info("5K8ZVQ3R", "there is no connection: {error}", error=str(error))
    if isinstance(error, TimeoutError):
        return f"it says nothing within {seconds:.0f} s", _ADDRESS
    if isinstance(error, OSError):
        return failure_of(error).message, _TLS  # a file that Temporal's variables name
    message = str(error).strip().partition("\n")[0].removeprefix("Failed client connect: ")
    for pattern, reason, hint in _REASONS:
        if match := re.search(pattern, message):
            return match.expand(reason), hint
    is_plain = message and not re.search(r"::|[{}`]", message)
    return message if is_plain else "the connection fails", _ADDRESS
