"""A store that stays open in a process which makes one call after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from uwf_git.store.instance import Instance, begin_log, wanted_log
from uwf_git.store.location import Location, locate

_LONGEST = 5.0
"""Seconds after which a store is opened anew: it is compared with the heads that this user knows, and files that git's
configuration includes are read."""


class _Kept(NamedTuple):
    """An open store, what it was opened with, and when."""

    instance: Instance
    made_of: object
    opened: float


_kept: _Kept | None = None


def open_store(location: Location, environ: Mapping[str, str]) -> Instance:
    """Return the store that an earlier call opened, if location, environment and configuration are the same, else open
    it. Raises NotFound, Invalid."""
    global _kept
    made_of = location, dict(environ), [signature(path) for path in _files(location, environ)]
    kept, now = _kept, time.monotonic()
    if kept is None or kept.made_of != made_of or now - kept.opened > _LONGEST:
        close()
        kept = _kept = _Kept(Instance(location), made_of, now)
    instance = kept.instance
    instance.warn = lambda text: None
    instance.after = lambda act: act()
    instance.listener = None
    instance.renew_judging()
    return instance


def open_here() -> Instance:
    """Return the store of the environment and the current folder, and begin its log, as `Instance.open`, but one that
    stays open. Raises NotFound, Invalid."""
    location = locate(None, os.environ, Path.cwd())
    if level := wanted_log(os.environ):
        begin_log(location, level)
    return open_store(location, os.environ)


def close() -> None:
    """Close the store, if one is open."""
    global _kept
    if _kept is not None:
        _kept.instance.store.index.close()
        _kept = None


def _files(location: Location, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that an open store is configured by."""
    home = Path(environ.get("HOME", "/"))
    own = Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "git", "config")
    git = [Path("/etc/gitconfig"), own, home / ".gitconfig", location.git_dir / "config"]
    return [location.root / "config.yaml", location.root / ".env", *git]


def signature(path: Path) -> tuple[int, ...] | None:
    """Return a file's identity, to notice changes."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
