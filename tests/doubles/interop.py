"""Tests by other people's tools, which the extra `interop` installs: `make test-interop` has them.

Elsewhere a package may be missing. The modules of `tests/interop` are skipped then, unread, so that they may import at
their top what they need. With UWF_TEST_INTEROP they fail.
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

GUIDES = ("docs/guides/langgraph.md",)
"""Documents whose examples need these packages."""
_PROJECT = Path(__file__).parents[2]
_IS_REQUESTED = bool(os.environ.get("UWF_TEST_INTEROP"))


@cache
def missing_packages() -> list[str]:
    """Return the packages of the extra, for this Python, that are not installed."""
    project = tomllib.loads((_PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = map(Requirement, project["optional-dependencies"]["interop"])
    return [
        item.name
        for item in requirements
        if (item.marker is None or item.marker.evaluate()) and not _is_installed(item.name)
    ]


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


class Unread(pytest.Module):
    """A module of tests where a package is missing."""

    def collect(self) -> list[pytest.Item]:
        packages = ", ".join(missing_packages())
        reason = f"needs Python packages that `make test-interop` installs: {packages}"
        (pytest.fail if _IS_REQUESTED else pytest.skip)(reason)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path.parent == _PROJECT / "tests" / "interop" and missing_packages():
        return Unread.from_parent(parent, path=module_path)
    return None
