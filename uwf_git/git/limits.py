"""How much of what comes from elsewhere, or goes there, is let through: settings of git's configuration,
with git's suffixes k, m and g.

    uwf.maxRefs   refs that a remote may list
    uwf.maxFetch  bytes of one fetch
    uwf.maxBlob   bytes of one file
"""

from __future__ import annotations

import shlex

from uwf_git.git.repository import Repository

MAX_REFS = 200_000
MAX_FETCH = 2 << 30
MAX_BLOB = 95_000_000  # forges refuse 100 MB
ADVISED_BLOB = 1_000_000  # and advise against more than this

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def max_refs(repository: Repository) -> int:
    """How many refs a remote may list."""
    return _setting(repository, "uwf.maxRefs", MAX_REFS)


def max_fetch(repository: Repository) -> int:
    """How many bytes one fetch may write into a file."""
    return _setting(repository, "uwf.maxFetch", MAX_FETCH)


def max_blob(repository: Repository) -> int:
    """How many bytes a file may have."""
    return _setting(repository, "uwf.maxBlob", MAX_BLOB)


def raised_by(repository: Repository, key: str, value: str) -> str:
    """The command that sets a limit of a store."""
    return f"git --git-dir {shlex.quote(str(repository.path))} config {key} {value}"


def _setting(repository: Repository, key: str, default: int) -> int:
    text = repository.config.value(key).strip().lower()
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    return int(number) * unit if number.isdecimal() else default
