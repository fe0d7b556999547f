"""Files that commands write."""

from __future__ import annotations

import os
from pathlib import Path

from uwf_git.base.errors import Invalid


def write_whole(path: Path, data: bytes, force: bool) -> None:
    """Write a file atomically. Raises Invalid."""
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        if not force and os.path.lexists(path):
            raise Invalid(f"{path} already exists", "write over it with --force, or name another file")
        aside.write_bytes(data)
        aside.replace(path)
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}", "name another file") from None
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write or overwrite a file. Raises Invalid."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}", "choose another file") from None
