"""The fleets of a remote: two of them make each step twice, and keep one as a divergence.

    refs/uwf/fleets/<id>    on the remote alone: a blob that says which fleet took threads of it last

The id is that of the fleet's namespace, which its server has made up: one that is reached by several names is one
fleet. A mark says nothing of what is true: it is written when a command of a fleet begins, and counts for a day.
Whoever may push can write any, and as many as they like, so the number that is read and returned is bounded.
"""

from __future__ import annotations

import json
import re
import socket
import time
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import RemoteFailed, UwfError
from uwf_git.base.text import one_line
from uwf_git.ext.fleet import MARKS
from uwf_git.ext.fleet.place import Place
from uwf_git.format.node import parse_json
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store.remotes import Remote
from uwf_git.sync.tracking import listed_lines
from uwf_git.sync.transfer import transfer

COUNTS = 24 * 60 * 60.0
"""Seconds for which a mark counts."""
_MOST = 20  # marks that are returned, and those that are fetched one by one
_MOST_READ = 500  # marks that are fetched
_NAME = re.compile(rf"{MARKS.prefix}[0-9A-Za-z-]{{1,64}}")
_LARGEST = 10_000  # bytes of one


class Mark(NamedTuple):
    """A fleet that took threads of a remote: where it is, from which machine that was begun last, and when, in Unix
    seconds. `ref` is its mark's name there."""

    ref: str
    place: Place
    machine: str
    time: float


class Marks(NamedTuple):
    """The marks of other fleets that count, the newest first, and whether there are more that nobody has read."""

    counting: list[Mark]
    more: bool


def mark(repository: Repository, git: Git, remote: Remote, place: Place, identity: str) -> Marks:
    """Mark a remote as that of a fleet, whose namespace has this id. Return the marks of other fleets. Touches
    `refs/uwf/fleets/` on the remote. Raises RemoteFailed if that can't be asked; a mark that it doesn't take or give is
    nothing that a fleet needs."""
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
        transfer(git, remote, ["--force", f"{blob}:{own}"])
    except UwfError as error:
        log.info("WED1VCFR", "leaves no mark on {remote}: {why}", remote=remote.name, why=error.message)
    others = [name for name in listed if name != own and _NAME.fullmatch(name)]
    fetched = _fetch(git, remote, others[:_MOST_READ])
    found = (_read(repository, name, listed[name]) for name in fetched)
    counting = [each for each in found if each is not None and abs(time.time() - each.time) < COUNTS]
    counting.sort(key=lambda each: each.time, reverse=True)
    return Marks(counting[:_MOST], len(fetched) < len(others) or len(counting) > _MOST)


def _fetch(git: Git, remote: Remote, names: list[str]) -> list[str]:
    """Fetch marks, and return those that the remote has given: one by one, and then only the first, if it lacks one."""
    command = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", remote.name)
    if not names:
        return []
    try:
        git.run(*command, *names, bounded=True)
    except RemoteFailed as error:
        log.info("3ZC8N5QD", "gets no marks of {remote}: {why}", remote=remote.name, why=error.message)
        return [each for each in names[:_MOST] if len(names) > 1 and _fetch(git, remote, [each])]
    return names


def own_identity(repository: Repository) -> str:
    """The id of the fleets of a store that have a server of their own: each run of one has another namespace."""
    return sha256(f"{socket.gethostname()} {repository.path}".encode()).hexdigest()[:32]


def unmark(git: Git, remote: Remote, identity: str) -> None:
    """Delete the mark of a fleet that is over. Raises RemoteFailed."""
    transfer(git, remote, [f":{MARKS.prefix}{identity}"])


def _read(repository: Repository, ref: str, oid: str) -> Mark | None:
    """What a mark says; None for what nobody can read."""
    try:
        _, data = repository.read_within(Oid(hex=oid), _LARGEST)
        value: Any = parse_json(data.decode())
        texts = [one_line(str(value[key]), 200) for key in ("address", "namespace", "machine")]
        return Mark(ref, Place(texts[0], texts[1], value["own"] is True), texts[2], float(value["at"]))
    except (UwfError, ValueError, LookupError, TypeError):
        return None
