"""Modules that are loaded when a test first uses them: what one file of tests needs would otherwise keep every run
waiting, since all files are collected by each worker."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import pytest


def imported_late(name: str, reason: str = "") -> Any:
    """Return a module that is loaded at the first look into it. Skips the file that asks if there is none."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(reason or f"needs {name}", allow_module_level=True)
    return _Late(name)


class _Late(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest's, which looks for tests in all that a file names
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self.__name__), attribute)
