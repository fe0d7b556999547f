"""Identifiers: node hashes and thread ids in Crockford Base32, and valid names of workflows and roles, which
become parts of refs, paths and command lines."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Iterable
from typing import NewType

from uwf_git.base.errors import Invalid, NotFound, Usage

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE_FORMATS = ("cas_ref", "ocas_ref")
"""The formats by which a schema says that a string is a hash."""

Hash = NewType("Hash", str)
"""A node's hash: XXH64 in Crockford's Base32, 13 characters."""
ThreadId = NewType("ThreadId", str)
"""A thread's id: a ULID, 26 characters."""

# 64 bits fill 13 characters less one bit, and a ULID's 128 bits fill 26 less two: the first
# character of either has leading zero bits, so not every string of the alphabet is an id.
_HASH = re.compile(f"[0-9A-F][{ALPHABET}]{{12}}", re.ASCII)
_THREAD = re.compile(f"[0-7][{ALPHABET}]{{25}}", re.ASCII)
_PREFIX = f"(?a)[{ALPHABET}]+"

_AS_PYTHONS = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")
"""The digits that `int` takes to base 32: lists read the time of each of thousands of ids."""
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_NAME = r"\w[\w.-]*"
_MOST_CHARACTERS = 100
# A loose ref is a file, and git writes `<name>.lock` beside it: file systems allow 255 bytes.
_MOST_BYTES = 200


def crockford13(digest: int) -> Hash:
    """Encode a 64-bit number in 13 characters, most significant first."""
    # Written out, since every node that is read or written has its hash made.
    two = _PAIRS
    return Hash(
        ALPHABET[digest >> 60]
        + two[digest >> 50 & 1023]
        + two[digest >> 40 & 1023]
        + two[digest >> 30 & 1023]
        + two[digest >> 20 & 1023]
        + two[digest >> 10 & 1023]
        + two[digest & 1023]
    )


@functools.lru_cache(1024)
def digest_of(text: str) -> int | None:
    """The inverse of `crockford13`; None if invalid."""
    if not is_hash(text):
        return None
    return functools.reduce(lambda number, character: number << 5 | ALPHABET.index(character), text, 0)


def _base32(number: int, length: int) -> str:
    first = ALPHABET[(number >> (5 * length - 5)) & 31] if length % 2 else ""
    shifts = range(10 * (length // 2) - 10, -1, -10)
    return first + "".join([_PAIRS[(number >> shift) & 1023] for shift in shifts])


def is_hash(text: object) -> bool:
    """Return whether a text is a node hash: 13 upper-case characters."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def parse_hash(text: str) -> Hash:
    """Parse a hash, ignoring case. Raises Invalid."""
    upper = text.strip().upper()
    if not _HASH.fullmatch(upper):
        raise Invalid(
            f"{text!r} is not a node hash", "a hash is 13 characters of Crockford Base32, the first at most F"
        )
    return Hash(upper)


def is_thread_id(text: object) -> bool:
    """Return whether a text is a ULID: 26 upper-case characters, the first at most 7."""
    return isinstance(text, str) and _THREAD.fullmatch(text) is not None


def parse_thread_id(text: str) -> ThreadId:
    """Parse a thread id, ignoring case. Raises Invalid."""
    upper = text.strip().upper()
    if not _THREAD.fullmatch(upper):
        raise Invalid(f"{text!r} is not a thread id", "see the ids with: uwf thread list --all")
    return ThreadId(upper)


def time_of(thread: ThreadId) -> int:
    """Return a thread id's Unix time in seconds."""
    return milliseconds_of(thread) // 1000


def milliseconds_of(thread: ThreadId) -> int:
    """Return a thread id's Unix time in milliseconds: its first 10 digits (ULID specification)."""
    return int(thread[:10].translate(_AS_PYTHONS), 32)


def new_thread_id() -> ThreadId:
    """Return a new ULID: 48 bits of Unix milliseconds, 80 random bits."""
    random = int.from_bytes(os.urandom(10), "big")
    return ThreadId(_base32(time.time_ns() // 1_000_000, 10) + _base32(random, 16))


def fork_id(thread: ThreadId, first: Hash) -> ThreadId:
    """Return the id of a divergence's other side: the thread's time, and 80 bits of a digest of the thread
    and the first step that isn't shared. It sorts beside the thread, and is the same on every machine."""
    return ThreadId(thread[:10] + derived_id(0, f"uwf fork {thread} {first}")[10:])


NO_TIME = 1_577_836_800_000
"""The time in ids that don't tell the age of their threads: 2020, so that none of them is taken for the newest."""


def by_age(thread: ThreadId) -> tuple[bool, ThreadId]:
    """Return a sort key of thread ids: oldest first, then those of NO_TIME."""
    return milliseconds_of(thread) == NO_TIME, thread


def derived_id(when: int, text: str) -> ThreadId:
    """Return a deterministic thread id: a time in Unix milliseconds, and 80 bits of a digest of `said`."""
    from hashlib import sha256

    digest = int.from_bytes(sha256(text.encode()).digest()[:10], "big")
    return ThreadId(_base32(min(max(when, 0), 2**48 - 1), 10) + _base32(digest, 16))


MOST_BRANCHES = 10_000
"""Of one fork."""


def branch_id(fork: str, when: int, position: int) -> ThreadId:
    """Return the id of a branch: the time of its fork's commit, in Unix seconds, and as many milliseconds as its index,
    so that branches are listed in order; and 80 bits of a digest of the commit's id and the index."""
    return derived_id(when * 1000 + position, f"uwf branch {fork} {position}")


def branch_index(fork: str, when: int, thread: ThreadId) -> int | None:
    """Return the index of a fork's branch by its thread, None for a thread that is none of its branches."""
    position = milliseconds_of(thread) - when * 1000
    is_branch = 0 <= position < MOST_BRANCHES and branch_id(fork, when, position) == thread
    return position if is_branch else None


def complete(prefix: str, known: Iterable[str], what: str, ends: bool = False) -> str:
    """Return the only id in `known` with a prefix, ignoring case; with `ends` also by suffix. Raises NotFound
    or Usage."""
    upper = prefix.strip().upper()
    if not re.fullmatch(_PREFIX, upper):
        raise NotFound(f"no {what} {prefix!r}", f"a {what} id has only digits and letters without I, L, O, U")
    matches = sorted({name for name in known if name.startswith(upper) or (ends and name.endswith(upper))})
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise NotFound(f"no {what} {prefix}", "")
    shown = ", ".join(matches[:3]) + (", …" if len(matches) > 3 else "")
    hint = "give more characters, or the last ones" if ends else "give more characters"
    raise Usage(f"{what} {prefix} is ambiguous: {shown}", hint)


def name_problem(name: str) -> str | None:
    """Return why a name is invalid, or None. Valid are letters and digits of any script, `_`, `.` and `-`,
    unless git refuses it in a ref."""
    if not name:
        return "is empty"
    if len(name) > _MOST_CHARACTERS or len(name.encode("utf-8", "replace")) > _MOST_BYTES:
        return f"is longer than {_MOST_CHARACTERS} characters"
    if not re.fullmatch(_NAME, name):
        return "may have letters, digits, _ . - and begin with a letter or digit"
    if ".." in name or name.endswith((".", ".lock")) or name.casefold().endswith(".lock"):
        return 'may hold no "..", and end neither in "." nor in ".lock"'
    return None
