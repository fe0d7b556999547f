"""The file of a bundle: its language and name, by what it is called, and its bytes."""

from __future__ import annotations

from pathlib import Path

from uwf_git.errors import Invalid, NotFound
from uwf_git.text import one_line
from uwf_git.values.types import JAVASCRIPT, PYTHON

SUFFIXES = {".esm.js": JAVASCRIPT, ".mjs": JAVASCRIPT, ".js": JAVASCRIPT, ".py": PYTHON}
"""What the names of bundles end in, longest first, and their language."""
MAX_BYTES = 4 << 20


def language_of(path: Path) -> str | None:
    """The language of a bundle, by its file's name; None for what is no bundle."""
    name = path.name.lower()
    return next((language for suffix, language in SUFFIXES.items() if name.endswith(suffix)), None)


def name_of(path: Path) -> str:
    """A file's name without what says that it is a bundle."""
    suffix = next((each for each in SUFFIXES if path.name.lower().endswith(each)), path.suffix)
    return path.name[: len(path.name) - len(suffix)]


def read_bundle(path: Path) -> bytes:
    """A bundle's file. Raises NotFound, or Invalid for what can't be read or is too large."""
    shown = one_line(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no file {shown}", "check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Invalid(f"{shown} can't be read: {reason}", "check its permissions") from None
    if len(data) > MAX_BYTES:
        raise Invalid(f"{shown} is larger than {MAX_BYTES >> 20} MiB", "leave out what it doesn't use")
    return data
