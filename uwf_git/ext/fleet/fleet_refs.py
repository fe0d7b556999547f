"""Marks of fleets on a remote: two fleets would make each step twice and leave divergences.

    refs/uwf/fleets/<id>    on the remote only: a blob that names the fleet that took its threads last

The id is the namespace's, made by its server, so a fleet with several addresses is one. Marks are advisory:
written at a command's start, valid for a day. Anyone with push rights can write them, so reading is bounded.
"""

from __future__ import annotations

import json
import re
import socket
import time
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.ext.fleet import MARKS
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.plugin import (
    Git,
    Oid,
    Remote,
    RemoteFailed,
    Repository,
    UwfError,
    listed_lines,
    log,
    one_line,
    parse_json,
    transfer_refs,
)

COUNTS = 24 * 60 * 60.0
"""Seconds for which a mark counts."""
_MAX_MARKS = 20  # marks that are returned, and those that are fetched one by one
_MOST_READ = 500  # marks that are fetched
_NAME = re.compile(rf"{MARKS.prefix}[0-9A-Za-z-]{{1,64}}")
_LARGEST = 10_000  # bytes of one


class Mark(NamedTuple):
    """A fleet of a remote: its place, the machine of its last command, and the time in Unix seconds."""

    ref: str
    place: Endpoint
    machine: str
    time: float


class Marks(NamedTuple):
    """Valid marks of other fleets, newest first, and whether there are unread ones."""

    counting: list[Mark]
    more: bool


def mark(repository: Repository, git: Git, remote: Remote, place: Endpoint, identity: str) -> Marks:
    """Mark a remote; return other fleets' marks. Touches `refs/uwf/fleets/` there. Raises RemoteFailed if
    unreachable; refusals are ignored."""
    ask = ("ls-remote", "--", remote.name, f"{MARKS.prefix}*")
    listed = {name: oid for oid, name in islice(listed_lines(git, *ask), _MOST_READ + 2)}
    own = MARKS.prefix + identity
    value = {
        "address": place.address,
        "namespace": place.namespace,
        "own": place.own,
        "machine": socket.gethostname(),
        "at": int(time.time()),
    }
    blob = repository.write_blob(json.dumps(value).encode())
    try:
        transfer_refs(git, remote, ["--force", f"{blob}:{own}"])
    except UwfError as error:
        log.info("WED1VCFR", "leaves no mark on {remote}: {why}", remote=remote.name, why=error.message)
    others = [name for name in listed if name != own and _NAME.fullmatch(name)]
    fetched = _fetch(git, remote, others[:_MOST_READ])
    marks = (_read(repository, name, listed[name]) for name in fetched)
    counting = [mark for mark in marks if mark is not None and abs(time.time() - mark.time) < COUNTS]
    counting.sort(key=lambda item: item.time, reverse=True)
    return Marks(counting[:_MAX_MARKS], len(fetched) < len(others) or len(counting) > _MAX_MARKS)


def _fetch(git: Git, remote: Remote, names: list[str]) -> list[str]:
    command = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", remote.name)
    if not names:
        return []
    try:
        git.run(*command, *names, bounded=True)
    except RemoteFailed as error:
        log.info("3ZC8N5QD", "gets no marks of {remote}: {why}", remote=remote.name, why=error.message)
        return [name for name in names[:_MAX_MARKS] if len(names) > 1 and _fetch(git, remote, [name])]
    return names


def own_identity(repository: Repository) -> str:
    """Return the id of fleets with their own server, whose namespaces vary."""
    return sha256(f"{socket.gethostname()} {repository.path}".encode()).hexdigest()[:32]


def unmark(git: Git, remote: Remote, identity: str) -> None:
    """Delete a finished fleet's mark. Raises RemoteFailed."""
    transfer_refs(git, remote, [f":{MARKS.prefix}{identity}"])


def _read(repository: Repository, ref: str, oid: str) -> Mark | None:
    try:
        _, data = repository.read_within(Oid(hex=oid), _LARGEST)
        value: Any = parse_json(data.decode())
        texts = [one_line(str(value[key]), 200) for key in ("address", "namespace", "machine")]
        return Mark(ref, Endpoint(texts[0], texts[1], value["own"] is True), texts[2], float(value["at"]))
    except (UwfError, ValueError, LookupError, TypeError):
        return None
