"""Names that every system takes for a file, and takes for one file only.

Stores and repositories are shared: a name that is fine here may be a device of Windows elsewhere, or the same file as
another name. Pure functions of texts, the same on each system.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_DEVICES = frozenset(
    (
        "con",
        "prn",
        "aux",
        "nul",
        "conin$",
        "conout$",
        *(f"{name}{digit}" for name in ("com", "lpt") for digit in "123456789¹²³"),
    )
)
_FORBIDDEN = frozenset('<>:"/\\|?*')


def windows_problem(name: str) -> str | None:
    """Return why Windows has no file of a name, None if it can have one."""
    if name in ("", ".", ".."):
        return "is not the name of a file"
    if any(character in _FORBIDDEN or character < " " for character in name):
        return "has a character that Windows has in no name"
    if name.endswith((".", " ")):
        return "ends in a way that Windows leaves out"
    if name.partition(".")[0].rstrip(" ").casefold() in _DEVICES:
        return "is a device of Windows, and no file can be called so there"
    return None


def folded(name: str) -> str:
    """Return what two names share that are one file on a system which sees neither case nor how accents are written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def same_file(name: str, others: Iterable[str]) -> str | None:
    """Return the one of others that is the same file as a name on such a system, None if there is none."""
    key = folded(name)
    return next((other for other in others if other != name and folded(other) == key), None)
