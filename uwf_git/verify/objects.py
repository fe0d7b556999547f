"""Untrusted git objects: bounded before reading, checked against their ids, parsed strictly, without index or
libgit2."""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple

from uwf_git.base.errors import StoreDamaged
from uwf_git.base.text import printable, shortened
from uwf_git.git.config import MAX_BLOB
from uwf_git.git.objects import COUNT_LIMIT as COUNT_LIMIT
from uwf_git.git.objects import LATEST, stands_for_git
from uwf_git.git.repository import BLOB, COMMIT, TAG, TREE, Oid, Repository, TooLarge
from uwf_git.store import layout
from uwf_git.verify.findings import Bad

MESSAGE_LIMIT = 1 << 20  # bytes of a commit or tag
TREE_LIMIT = 4 << 20  # bytes, about 70,000 entries
DEPTH_LIMIT = 20  # folders within folders: no record needs as many, but a crew's package may
_MANY = 8  # entries of a folder worth remembering

_KINDS = {COMMIT: "commit", TREE: "tree", BLOB: "blob", TAG: "tag"}
_ROW = re.compile(rb"([0-7]{1,7}) ([^\0]*)\0(.{20})", re.DOTALL)
_OID = re.compile(r"[0-9a-f]{40}")
_PERSON = re.compile(r"([^<>\x00-\x1f\x7f-\x9f]*<[^<>\x00-\x1f\x7f-\x9f]*>) ([0-9]{1,13}) [+-][0-9]{4}")
# A name that is safe on every system, as all of a record's are.
_HARMLESS = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Signatures below a tag's message: OpenPGP, SSH or X.509, with nothing after them.
_SIGNATURE = re.compile(
    r"^-----BEGIN ((?:PGP|SSH) SIGNATURE|PGP MESSAGE|SIGNED MESSAGE)-----\n"
    r"(?:(?!-----)[ -~]*\n)*"
    r"-----END \1-----\n*\Z",
    re.MULTILINE,
)

FOLDER = b"40000"
FILE = b"100644"


# A raw tree entry: mode, name, id. Not a class, as there are millions.
Row = tuple[bytes, bytes, bytes]


class CommitObject(NamedTuple):
    """A commit. `time` is the committer's, in Unix seconds; `author` and `committer` are a name and an address, the
    latter "" of a record that was found without its commit; `trailers` the declared record."""

    oid: Oid
    tree: bytes
    parents: tuple[Oid, ...]
    author: str
    message: str
    time: int
    trailers: layout.Trailers | None
    committer: str


class TagObject(NamedTuple):
    """An annotated tag on a commit. `message` is without the signature."""

    oid: Oid
    target: Oid
    name: str
    message: str


class Objects:
    """A repository's objects. Methods raise Bad for invalid ones."""

    def __init__(self, repository: Repository, blob_limit: int = MAX_BLOB) -> None:
        self._repository = repository
        self._blob_limit = blob_limit
        self._trees: dict[bytes, list[Row]] = {}
        self._grown: dict[bytes, tuple[bytes, list[Row]]] = {}
        self.pages = 0  # that were generated again and compared

    def kind(self, oid: Oid) -> str:
        try:
            return _KINDS[self._repository.header(oid)[0]]
        except StoreDamaged as error:
            raise Bad("damaged", error.message, oid) from None

    def blob(self, raw: bytes) -> bytes:
        return self._read(Oid(raw=raw), BLOB, self._blob_limit)

    def tree(self, raw: bytes) -> list[Row]:
        """Return a tree's rows, with names and modes unchecked."""
        known = self._trees.get(raw)
        if known is None:
            oid = Oid(raw=raw)
            data = self._read(oid, TREE, TREE_LIMIT)
            known = self._rows(data)
            if known is None:
                raise Bad("malformed", f"tree {oid} is not well formed", oid)
            if len(self._trees) >= 512:
                self._trees.clear()
            self._trees[raw] = known
        return known

    def _rows(self, data: bytes) -> list[Row] | None:
        """Return a tree's rows, None if malformed. A common prefix with an earlier tree is reused, since
        folders grow at their end."""
        begins = data[:64]
        same, shared = self._grown.get(begins, (b"", []))
        if not same or not data.startswith(same):
            same, shared = b"", []
        rows_here: list[Row] = _ROW.findall(data, len(same))
        rest = data[len(same) :]
        if len(b"".join(chain.from_iterable(rows_here))) + 2 * len(rows_here) != len(rest):
            return None
        rows = shared + rows_here
        if len(rows) >= _MANY:
            if len(self._grown) >= 16:
                self._grown.clear()
            mode, name, _ = rows[-1]
            self._grown[begins] = data[: -len(mode) - len(name) - 22], rows[:-1]
        return rows

    def commit(self, oid: Oid) -> CommitObject:
        try:
            text = self._read(oid, COMMIT, MESSAGE_LIMIT).decode("utf-8")
        except UnicodeDecodeError:
            raise Bad("malformed", f"commit {oid} is not UTF-8", oid) from None
        headers, _, message = text.partition("\n\n")
        lines = iter(headers.split("\n"))
        key, _, tree = next(lines, "").partition(" ")
        parents: list[Oid] = []
        line = next(lines, "")
        while line.startswith("parent ") and _OID.fullmatch(line[7:]):
            parents.append(Oid(hex=line[7:]))
            line = next(lines, "")
        author = _PERSON.fullmatch(line.removeprefix("author ")) if line.startswith("author ") else None
        line = next(lines, "")
        committer = (
            _PERSON.fullmatch(line.removeprefix("committer ")) if line.startswith("committer ") else None
        )
        if key != "tree" or not _OID.fullmatch(tree) or author is None or committer is None:
            raise Bad("malformed", f"commit {oid} is not well formed", oid)
        # A signature is all that may follow: its first line, and others that a space begins.
        for number, line in enumerate(lines):
            if not line.startswith(" " if number else "gpgsig -----BEGIN ") or not line.isprintable():
                header = _shown(line.partition(" ")[0])
                raise Bad("malformed", f"commit {oid} has a header {header!r} where none belongs", oid)
        if len(parents) != len(set(parents)):
            raise Bad("malformed", f"commit {oid} has one parent twice", oid)
        when = int(committer.group(2))
        if max(when, int(author.group(2))) > LATEST:
            raise Bad("malformed", f"commit {oid} has a time no clock shows", oid)
        trailers = layout.parse_message(message)
        return CommitObject(
            oid,
            bytes.fromhex(tree),
            tuple(parents),
            author.group(1),
            message,
            when,
            trailers,
            committer.group(1),
        )

    def tag(self, oid: Oid) -> TagObject:
        return parse_tag(oid, self._read(oid, TAG, MESSAGE_LIMIT))

    def _read(self, oid: Oid, kind: int, at_most: int) -> bytes:
        try:
            actual, data = self._repository.read_within(oid, at_most)
        except TooLarge as error:
            raise Bad("oversized", error.message, oid) from None
        except StoreDamaged as error:
            raise Bad("damaged", error.message, oid) from None
        if actual != kind:
            raise Bad("malformed", f"object {oid} is a {_KINDS[actual]}, not a {_KINDS[kind]}", oid)
        return data


def parse_tag(oid: Oid, data: bytes) -> TagObject:
    """Parse an annotated tag on a commit. Raises Bad."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad("malformed", f"tag {oid} is not UTF-8", oid) from None
    head, _, message = text.partition("\n\n")
    fields = [line.partition(" ") for line in head.split("\n")]
    values = [value for _, _, value in fields]
    tagger = _PERSON.fullmatch(values[3]) if len(values) == 4 else None
    if [key for key, _, _ in fields] != ["object", "type", "tag", "tagger"] or tagger is None:
        raise Bad("malformed", f"tag {oid} is not well formed", oid)
    if not _OID.fullmatch(values[0]) or int(tagger.group(2)) > LATEST:
        raise Bad("malformed", f"tag {oid} is not well formed", oid)
    if values[1] != "commit":
        raise Bad("wrong-tag", f"tag {oid} is on a {_shown(values[1])}, not on a commit", oid)
    signature = _SIGNATURE.search(message)
    message_text = message[: signature.start()] if signature else message
    return TagObject(oid, Oid(hex=values[0]), values[2], message_text)


def _shown(text: str) -> str:
    return shortened(printable(text, "?"), 80)


def shown_name(name: bytes) -> str:
    """Return a file name for a message, escaping invalid UTF-8."""
    return _shown(name.decode("utf-8", "backslashreplace"))


def name_problem(name: bytes) -> str | None:
    if _HARMLESS.fullmatch(name):
        return None
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return "is not UTF-8"
    if text in ("", ".", ".."):
        return "leads elsewhere" if text else "is empty"
    if "/" in text or "\\" in text:
        return "holds a slash"
    if _CONTROL.search(text):
        return "holds control characters"
    if stands_for_git(text):
        return "stands for git's own folder on some systems"
    return None


def mode_problem(mode: bytes) -> str | None:
    if mode in (FILE, FOLDER):
        return None
    kinds = {b"120000": "a symlink", b"160000": "a submodule", b"100755": "a program"}
    return kinds.get(mode, f"of mode {mode.decode('ascii')}")


def order_key(row: Row) -> bytes:
    """git sorts folders as if their name ended in a slash."""
    return row[1] + b"/" if row[0] == FOLDER else row[1]
