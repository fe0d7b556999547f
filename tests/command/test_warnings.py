"""Warnings reach those who read JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from conftest import Uwf

KEYED = "providers: {p: {baseUrl: 'http://127.0.0.1:1', apiKey: sk-test-0123456789abcdef}}\n"


def test_a_warning_is_in_the_next_object_and_on_standard_error(
    uwf: Uwf, thread: str, config: Callable[[str], Path]
) -> None:
    config(KEYED)
    shown = uwf("thread", "start", "pair", "-p", "Do it")
    (warning,) = shown.json["warnings"]
    assert warning.startswith("config.yaml holds the key of provider p") and warning in shown.err
    assert "sk-test" not in shown.out


def test_a_value_without_warnings_has_no_key_for_them(uwf: Uwf, thread: str) -> None:
    assert "warnings" not in uwf("thread", "show", thread).json


def test_an_error_has_the_warnings_that_came_before_it(
    uwf: Uwf, thread: str, config: Callable[[str], Path]
) -> None:
    config(KEYED)
    failed = uwf("thread", "step", thread, "--agent", "false", check=None)
    assert failed.code
    assert any("provider p" in text for text in json.loads(failed.err.splitlines()[-1])["warnings"])
