"""People who sign in to the pages: by a link that `uwf web invite` makes, or by a proxy that names them.

    $XDG_STATE_HOME/uwf/web/<hash of the store's path>.json
        {address, people: [{name, email, may, kind, hash, until}]}

Whoever may write the store alone cannot invite: the file is outside, of its user alone, and has only hashes of secrets.
A link's hash is replaced by that of the session that it begins, so a link counts once.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from uwf_git.plugin import (
    Invalid,
    Location,
    Person,
    StoreUnwritable,
    Usage,
    make_folders,
    read_private,
    system,
    user_state,
    write_private,
)

READ, WRITE, RUN = MAY = ("read", "write", "run")
"""What a person may do, each with all before it."""

LINK, SESSION = "link", "session"
LINK_SECONDS = 24 * 3600
SESSION_SECONDS = 30 * 24 * 3600
MOST = 100  # links and sessions of a store

SECRET_VARIABLE = "UWF_WEB_PROXY_SECRET"
SECRET_HEADER = "uwf-proxy-secret"
_SHORTEST = 32  # characters of the secret
_LONGEST = 100  # characters of a name, as of an address
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_FIELDS = ("name", "email", "may", "kind", "hash", "until")
_MINE = 0o600


class SignedIn(NamedTuple):
    """Who asks for a page: a person, None for the server's user. `session` is the secret of one that a link began, ""
    without; `is_valid` says whether they still may."""

    person: Person | None
    may: str
    session: str = ""
    is_valid: Callable[[], bool] = lambda: True


_signed_in: ContextVar[SignedIn | None] = ContextVar("signed_in", default=None)


def sign_in(who: SignedIn) -> None:
    """Let all that this task does be done by somebody."""
    _signed_in.set(who)


def person() -> Person | None:
    """Return the person whom this task works for, None for the server's user."""
    who = _signed_in.get()
    return who.person if who is not None else None


def in_session() -> bool:
    """Return whether this task works for somebody whom a link has signed in, and who may sign out."""
    who = _signed_in.get()
    return who is not None and bool(who.session)


def parse_person(text: str) -> Person:
    """Parse `NAME <ADDRESS>` or an address. Raises Usage."""
    name, bracket, rest = text.strip().rpartition("<")
    email = rest.removesuffix(">") if bracket and rest.endswith(">") else text.strip()
    name = name.strip() or email
    if not _ADDRESS.fullmatch(email) or max(len(email), len(name)) > _LONGEST:
        raise Usage(f"{text[:_LONGEST]!r} is not a person", 'name one: "Ada Example <ada@example.com>"')
    by = Person(name, email)
    # Which also leaves out what isn't printable: marks of direction and joiners can make a name look like another.
    if by.ident != f"{name} <{email}>":
        raise Usage(f"git would write {name!r} otherwise", f"write it as {by.ident.rpartition(' <')[0]!r}")
    return by


class Invited(NamedTuple):
    """A person who may sign in, or has. `kind` is LINK or SESSION, `hash` that of its secret, `until` a Unix time."""

    by: Person
    may: str
    kind: str
    hash: str
    until: float

    def as_json(self) -> dict[str, Any]:
        own = self.by.name, self.by.email, self.may, self.kind, self.hash, self.until
        return dict(zip(_FIELDS, own, strict=True))


def _parse(value: Any) -> Invited:
    name, email, may, kind, digest, until = (value[key] for key in _FIELDS)
    if may not in MAY or kind not in (LINK, SESSION):
        raise ValueError(may, kind)
    return Invited(Person(str(name), str(email)), may, kind, str(digest), float(until))


class _File(NamedTuple):
    """The content of a store's file. `address` is where its server was reached last, "" before the first."""

    address: str = ""
    people: tuple[Invited, ...] = ()


class Invitations:
    """The people who were invited to the pages of one store."""

    def __init__(self, location: Location, environ: Mapping[str, str] = os.environ) -> None:
        """Raises Usage for a user without a home."""
        folder = user_state(environ)
        if folder is None:
            raise Usage("HOME is not set, so nobody can be invited", "set it")
        place = os.path.realpath(location.git_dir)
        self.path = folder / "web" / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:24]}.json"
        self._servers = self.path.with_suffix(".servers")
        self._read: tuple[tuple[int, ...], _File] = (), _File()

    @property
    def address(self) -> str:
        return self._content().address

    def note_address(self, address: str) -> None:
        """Note where this process's server is reached, and that it runs for as long as the process does. Raises
        StoreUnwritable, Invalid."""
        with self._changing() as file:
            self._write(file._replace(address=address))
            make_folders(self._servers)
            place = self._servers / str(os.getpid())
            write_private(place, address.encode(), mode=_MINE, shared=False)
            # Kept open. A lock of the process alone, which no child has.
            system.lock_for_process(system.open_file(place, os.O_RDWR | system.O_CLOEXEC), wait=True)

    def running(self) -> list[str]:
        """Return the addresses of the servers that run, the newest first; forget the others. Raises StoreUnwritable,
        Invalid."""
        addresses = []
        with self._changing():
            for place in self._servers.iterdir() if self._servers.is_dir() else ():
                with suppress(OSError), place.open("r+") as file:
                    try:
                        system.lock_for_process(file.fileno())
                    except BlockingIOError:
                        addresses.append((place.stat().st_mtime_ns, file.read()))
                    else:
                        place.unlink()
        return [address for _, address in sorted(addresses, reverse=True)]

    def all(self) -> tuple[Invited, ...]:
        """Return those whose link or session counts. Raises Invalid for a file that cannot be relied on."""
        return _current(self._content())

    def invite(self, by: Person, may: str) -> str:
        """Return the secret of a new link. Raises Usage for too many, StoreUnwritable, Invalid."""
        secret = secrets.token_urlsafe(32)
        with self._changing() as file:
            people = _current(file)
            if len(people) >= MOST:
                raise Usage(
                    f"{MOST} people are invited or signed in", "end one: uwf web invite --revoke ADDRESS"
                )
            link = Invited(by, may, LINK, _digest(secret), time.time() + LINK_SECONDS)
            self._write(file._replace(people=(*people, link)))
        return secret

    def revoke(self, email: str) -> int:
        """End all links and sessions of an address; return their number. Raises StoreUnwritable, Invalid."""
        with self._changing() as file:
            people = _current(file)
            rest = tuple(item for item in people if item.by.email.casefold() != email.casefold())
            self._write(file._replace(people=rest))
        return len(people) - len(rest)

    def find(self, kind: str, secret: str) -> Invited | None:
        """Return whose a secret is. Nobody's, if the file cannot be relied on."""
        try:
            return _find(_current(self._content()), kind, secret)
        except Invalid:
            return None

    def redeem(self, secret: str) -> str | None:
        """Use a link up; return the secret of the session that it begins, None if it doesn't count. Raises
        StoreUnwritable, Invalid."""
        with self._changing() as file:
            people = _current(file)
            link = _find(people, LINK, secret)
            if link is None:
                return None
            own = secrets.token_urlsafe(32)
            session = link._replace(kind=SESSION, hash=_digest(own), until=time.time() + SESSION_SECONDS)
            self._write(file._replace(people=tuple(session if item is link else item for item in people)))
        return own

    def end(self, secret: str) -> None:
        """End a session. Raises StoreUnwritable, Invalid."""
        with self._changing() as file:
            session = _find(file.people, SESSION, secret)
            self._write(file._replace(people=tuple(item for item in file.people if item is not session)))

    def _content(self) -> _File:
        """Return the content, read again if the file is another. Raises Invalid."""
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise self._unreliable(error.strerror or str(error)) from None
        mark = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid
        if mark != self._read[0]:
            if status.st_uid != system.user() or not system.is_private(status):
                raise self._unreliable("others than you may read or write it")
            self._read = mark, self._parsed()
        return self._read[1]

    def _parsed(self) -> _File:
        try:
            value = json.loads(read_private(self.path))
            return _File(str(value["address"]), tuple(map(_parse, value["people"])))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise self._unreliable(f"it cannot be read: {error}") from None

    def _unreliable(self, why: str) -> Invalid:
        return Invalid(f"{self.path}: {why}", "move it away, and invite people again")

    @contextmanager
    def _changing(self) -> Iterator[_File]:
        try:
            make_folders(self.path.parent)
            descriptor = system.open_file(
                self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | system.O_CLOEXEC, _MINE
            )
        except OSError as error:
            raise StoreUnwritable(f"cannot write {self.path}: {error}", "check permissions") from None
        try:
            system.lock(descriptor, wait=True)
            yield self._content()
        finally:
            os.close(descriptor)

    def _write(self, file: _File) -> None:
        value = {"address": file.address, "people": [item.as_json() for item in file.people]}
        write_private(self.path, json.dumps(value).encode(), mode=_MINE, shared=False)


def _current(file: _File) -> tuple[Invited, ...]:
    now = time.time()
    return tuple(item for item in file.people if item.until > now)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _find(people: Collection[Invited], kind: str, secret: str) -> Invited | None:
    """Return whose a secret is, in a time that says nothing of the hashes."""
    digest, match = _digest(secret), None
    for item in people:
        if hmac.compare_digest(item.hash.encode(), digest.encode()) and item.kind == kind:
            match = item
    return match


class Proxy(NamedTuple):
    """A proxy that names who asks in a `header`, in lower case. It is believed if it comes from one of `addresses`, and
    brings the `secret`: any program of the machine could come from there."""

    header: str
    addresses: frozenset[str]
    secret: str

    def names(self, headers: Mapping[str, str], peer: str) -> bool:
        """Return whether a request comes from it."""
        brought = headers.get(SECRET_HEADER, "").encode("utf-8", "replace")
        return peer in self.addresses and hmac.compare_digest(brought, self.secret.encode())

    def person(self, headers: Mapping[str, str]) -> Person | None:
        """Return whom a request of it names, None if it names nobody, several or no person."""
        # What the header's bytes mean is said nowhere; proxies write UTF-8.
        text = headers.get(self.header, "").encode("latin-1", "replace").decode("utf-8", "replace")
        try:
            return parse_person(text)
        except Usage:
            return None


def _is_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).compressed == text
    except ValueError:
        return False


def parse_proxy(header: str, addresses: Collection[str], environ: MutableMapping[str, str]) -> Proxy:
    """Return the proxy of the options; its secret leaves the environment, which agents inherit. Raises Usage."""
    if not re.fullmatch(r"[A-Za-z0-9-]{1,100}", header):
        raise Usage(f"--person-header {header!r} is not a header", "name one: X-Forwarded-Email")
    for address in addresses:
        if not _is_address(address):
            raise Usage(f"--trust-proxy {address!r} is not an address", "name one: 192.0.2.7")
    secret = environ.pop(SECRET_VARIABLE, "")
    if len(secret) < _SHORTEST or not (secret.isascii() and secret.isprintable()):
        raise Usage(
            f"--person-header needs a secret of {_SHORTEST} characters that the proxy brings",
            f"export {SECRET_VARIABLE}=$(openssl rand -hex 32), and have the proxy send it as Uwf-Proxy-Secret",
        )
    return Proxy(header.lower(), frozenset(addresses), secret)
