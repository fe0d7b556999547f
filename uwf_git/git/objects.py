"""Parsing and writing commits, annotated tags and trees. Signatures are not part of a record: a commit's is
in a header, a tag's at the end of its message; parsing drops them."""

import hashlib
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from uwf_git.git.libgit2 import Oid as Oid

"""The id of a git object. `str` gives its 40 hexadecimal digits, `raw` its 20 bytes."""

COUNT_LIMIT = 50_000  # files that one commit adds
TREE_MODE = "40000"
"""The mode of a folder in a tree."""
BLOB_MODE = "100644"
"""The mode of a file in a tree."""
_SIGNATURE = "-----BEGIN "

COMMIT, TREE, BLOB, TAG = 1, 2, 3, 4
"""The kinds of objects, by their numbers in packs."""
KINDS = {b"commit": COMMIT, b"tree": TREE, b"blob": BLOB, b"tag": TAG}
NAMES = {number: name for name, number in KINDS.items()}


class Entry(NamedTuple):
    """A tree entry. `mode` as in git: 40000 a tree, 100644 a file."""

    mode: str
    name: str
    oid: Oid

    @property
    def is_tree(self) -> bool:
        return self.mode == TREE_MODE


class Person(NamedTuple):
    """A name and an address."""

    name: str
    email: str

    @property
    def ident(self) -> str:
        """`NAME <EMAIL>`, without characters that git forbids."""
        return f"{clean(self.name)} <{clean(self.email)}>"

    def at(self, when: int, utc: bool = False) -> str:
        """Return the identity with a Unix time, in local time or UTC."""
        zone = "+0000" if utc else time.strftime("%z", time.localtime(when)) or "+0000"
        return f"{self.ident} {when} {zone}"


class Stamp(NamedTuple):
    """The author and Unix time of a generated commit."""

    by: Person
    when: int


class Commit(NamedTuple):
    """A commit. `time` is the committer's, in Unix seconds."""

    tree: Oid
    parents: tuple[Oid, ...]
    author: str
    committer: str
    time: int
    message: str


LATEST = 2**40  # Unix seconds


class Tag(NamedTuple):
    """An annotated tag on a commit. `time` is the tagger's, in Unix seconds, 0 if missing."""

    target: Oid
    name: str
    tagger: str
    time: int
    message: str


def parse_commit(data: bytes) -> Commit:
    """Parse a commit. Raises ValueError."""
    head, _, message = data.decode("utf-8", "replace").partition("\n\n")
    fields: dict[str, list[str]] = {}
    for line in head.split("\n"):
        key, _, value = line.partition(" ")
        fields.setdefault(key, []).append(value)
    try:
        committer = fields["committer"][0]
        return Commit(
            tree=Oid(hex=fields["tree"][0]),
            parents=tuple(Oid(hex=parent) for parent in fields.get("parent", ())),
            author=_person(fields["author"][0]),
            committer=_person(committer),
            time=int(committer.rsplit(" ", 2)[1]),
            message=message,
        )
    except LookupError:
        raise ValueError("it is not a well-formed commit") from None


def parse_tag(data: bytes) -> Tag:
    """Parse a tag on a commit. Raises ValueError."""
    head, _, text = data.decode("utf-8", "replace").partition("\n\n")
    fields = dict(line.split(" ", 1) for line in head.split("\n") if " " in line)
    target = fields.get("object", "")
    if fields.get("type") != "commit" or len(target) != 40:
        raise ValueError("it is not on a commit")
    tagger = fields.get("tagger", "")
    if tagger and tagger.count(" ") < 2:
        raise ValueError("its tagger has no time")
    when = int(tagger.rsplit(" ", 2)[-2]) if tagger else 0
    if not 0 <= when <= LATEST:
        raise ValueError("its time is one that no clock shows")
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines) if line.startswith(_SIGNATURE)), len(lines))
    return Tag(
        Oid(hex=target),
        fields.get("tag", ""),
        _person(tagger),
        when,
        "\n".join(lines[:end]),
    )


def id_of(kind: int, content: bytes) -> Oid:
    """Return an object's id. `kind` is a number of KINDS."""
    return Oid(raw=hashlib.sha1(b"%s %d\0" % (NAMES[kind], len(content)) + content).digest())


def commit_text(
    tree: Oid,
    parents: Sequence[Oid],
    author: Person,
    committer: Person,
    when: int,
    message: str,
    utc: bool = False,
) -> bytes:
    """Return an unsigned commit. `when` is in Unix seconds, written in local time or UTC."""
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"author {author.at(when, utc)}", f"committer {committer.at(when, utc)}"]
    return ("\n".join(lines) + "\n\n" + message).encode("utf-8", "replace")


def rewritten_commit(data: bytes, tree: Oid, parents: Sequence[Oid], message: str | None) -> bytes:
    """Return a commit with another tree, parents and optionally message; author and time stay, the signature
    is dropped."""
    head, _, text = data.decode("utf-8", "surrogateescape").partition("\n\n")
    people = [line for line in head.split("\n") if line.startswith(("author ", "committer "))]
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), *people]
    whole = "\n".join(lines) + "\n\n" + (text if message is None else message)
    return whole.encode("utf-8", "surrogateescape")


def tag_text(name: str, target: Oid, tagger: Person, when: int, message: str, utc: bool = False) -> bytes:
    """Return an unsigned tag on a commit. `message` ends with a newline; `when` as for `commit_text`."""
    head = f"object {target}\ntype commit\ntag {name}\ntagger {tagger.at(when, utc)}"
    return f"{head}\n\n{message}".encode("utf-8", "replace")


def signed_commit(data: bytes, signature: str) -> bytes:
    """Add a signature over the whole commit."""
    head, _, message = data.partition(b"\n\n")
    folded = signature.strip("\n").replace("\n", "\n ").encode("ascii", "replace")
    return head + b"\ngpgsig " + folded + b"\n\n" + message


def signed_tag(data: bytes, signature: str) -> bytes:
    """Add a signature over the whole tag."""
    return data + (signature.strip("\n") + "\n").encode("ascii", "replace")


def is_signed(data: bytes) -> bool:
    """Return whether a commit or tag has a signature, valid or not."""
    head, _, text = data.partition(b"\n\n")
    return b"\ngpgsig " in head or b"\n-----BEGIN " in b"\n" + text


def parse_tree(data: bytes) -> tuple[Entry, ...]:
    """Parse a tree. Raises ValueError."""
    entries: list[Entry] = []
    position = 0
    while position < len(data):
        end = data.index(b"\0", position)
        mode, space, name = data[position:end].partition(b" ")
        position = end + 21
        raw = data[end + 1 : position]
        if not space or len(raw) != 20:
            raise ValueError("an entry is not whole")
        entries.append(Entry(mode.decode("ascii"), name.decode("utf-8", "surrogateescape"), Oid(raw=raw)))
    return tuple(entries)


def tree_row(entry: Entry) -> bytes:
    return b"%s %s\0%s" % (entry.mode.encode(), entry.name.encode("utf-8", "surrogateescape"), entry.oid.raw)


def sort_key(entry: Entry) -> bytes:
    """git sorts folders as if their name ended in a slash."""
    return (entry.name + "/" if entry.mode == TREE_MODE else entry.name).encode("utf-8", "surrogateescape")


def clean(text: str) -> str:
    """Remove characters that git forbids in names: angle brackets and controls."""
    kept = text
    if "<" in text or ">" in text or not text.isprintable():
        kept = "".join(c for c in text if c.isprintable() and c not in "<>")
    return kept.strip(" .,:;\"'")


def _person(line: str) -> str:
    return line.rsplit(">", 1)[0] + ">" if ">" in line else line


# Characters that HFS+ ignores in names.
_IGNORED = "[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]"
# Names that NTFS treats as .git: trailing dots and spaces, a stream after a colon, the short name.
_DISGUISED = r"(?i:\.git|git~[0-9]+)[. ]*(?::.*)?"
_MODULES = r"(?i:\.gitmodules|gitmod~[0-9]+|g(?:i(?:7(?:e(?:ba?)?)?)?)?~[0-9]+)[. ]*(?::.*)?"


def stands_for_git(name: str) -> bool:
    """Return whether any file system may take a name for `.git`."""
    return re.fullmatch(_DISGUISED, re.sub(_IGNORED, "", name)) is not None


def stands_for_modules(name: str) -> bool:
    """Return whether any file system may take a name for .gitmodules, which git refuses as a link."""
    return re.fullmatch(_MODULES, re.sub(_IGNORED, "", name)) is not None
