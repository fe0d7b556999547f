"""docs/architecture.md names ten functions that a step calls, in their order."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

from conftest import REPOSITORY

from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.store.opened import Instance


def named() -> dict[str, CodeType]:
    """The code of each function that the page names."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| \d+ \| `([\w.]+)` \|", text, re.MULTILINE)
    return {name: code_of(name) for name in names}


def code_of(name: str) -> CodeType:
    module, _, attribute = name.rpartition(".")
    if attribute and module.rpartition(".")[2][0].isupper():
        module, _, holder = module.rpartition(".")
        found: Any = getattr(getattr(import_module(f"uwf_git.{module}"), holder), attribute)
    else:
        found = getattr(import_module(f"uwf_git.{module}"), attribute)
    code: CodeType = found.__code__
    return code


def test_a_step_calls_the_ten_functions_in_the_order_of_the_page(instance: Instance, thread: str) -> None:
    functions = named()
    calls: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.extend(name for name, code in functions.items() if frame.f_code is code)

    sys.setprofile(watch)
    try:
        step(instance, ThreadId(thread), """uwf-exec echo '{"text": "Done."}'""")
    finally:
        sys.setprofile(None)
    assert len(functions) == 10
    assert list(dict.fromkeys(calls)) == list(functions)
