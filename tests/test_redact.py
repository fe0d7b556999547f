"""Secrets are known by their values and never reach a node."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.errors import Invalid
from uwf_git.redact import Redactor, load_secrets

KEY = 'sk-Live/4f9a+Zq7"x'


def config(*variables: str) -> Any:
    providers = {name: SimpleNamespace(api_key_env=name) for name in variables}
    return SimpleNamespace(providers=providers)


def test_secrets_come_from_dotenv_and_from_the_configured_variables(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        'A_KEY=from-dotenv\nexport B_KEY="with $dollar and # sign"\nEMPTY=\n# C=no\n'
    )
    environ = {"C_KEY": "from-environment", "OTHER": "never-looked-at"}
    assert load_secrets(tmp_path, config("C_KEY", "D_KEY", ""), environ) == {
        "A_KEY": "from-dotenv",
        "B_KEY": "with $dollar and # sign",
        "C_KEY": "from-environment",
    }


def test_the_real_environment_wins_and_both_values_are_hidden(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A_KEY=value-of-the-file\n")
    secrets = load_secrets(tmp_path, None, {"A_KEY": "value-of-the-shell"})
    assert secrets == {"A_KEY": "value-of-the-shell"}
    text = "value-of-the-file, value-of-the-shell"
    assert Redactor(secrets).text(text) == ("[redacted:A_KEY], [redacted:A_KEY]", 2)


def test_without_a_dotenv_there_is_nothing_to_hide(tmp_path: Path) -> None:
    redactor = Redactor(load_secrets(tmp_path, None, {}))
    assert not redactor
    value = {"a": [KEY]}
    assert redactor.value(value) == (value, 0)
    assert redactor.text(KEY) == (KEY, 0)


def test_a_dotenv_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe")
    with pytest.raises(Invalid, match=r"\.env can't be read: not UTF-8"):
        load_secrets(tmp_path, None, {})
    (tmp_path / ".env").unlink()
    (tmp_path / ".env").mkdir()
    with pytest.raises(Invalid, match=r"\.env can't be read: Is a directory"):
        load_secrets(tmp_path, None, {})


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps({"key": KEY}),
        json.dumps("Schlüssel " + KEY),
        f"https://x.example/?key={quote(KEY, safe='')}&a=b",
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"user:{KEY}".encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"me:{KEY}\n".encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"a:{KEY}:z".encode()).decode(),
    ],
)
def test_a_secret_is_found_in_every_form(form: str) -> None:
    clean, count = Redactor({"API_KEY": KEY}).text(f"<{form}>")
    assert count == 1
    assert "[redacted:API_KEY]" in clean
    for part in (KEY, KEY[4:14]):
        assert part not in clean


def test_values_are_cleaned_in_keys_lists_and_below() -> None:
    value = {"a": [f"x{KEY}y", 3, None, {KEY: True}], "b": "clean"}
    assert Redactor({"K": KEY}).value(value) == (
        {"a": ["x[redacted:K]y", 3, None, {"[redacted:K]": True}], "b": "clean"},
        2,
    )


def test_of_two_secrets_that_begin_alike_the_longer_goes_whole() -> None:
    redactor = Redactor({"SHORT": "abcdefgh-1", "LONG": "abcdefgh-1-and-more"})
    assert redactor.text("abcdefgh-1-and-more abcdefgh-1!") == ("[redacted:LONG] [redacted:SHORT]!", 2)


def test_lines_of_a_key_are_found_where_json_escapes_them() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQ8s\n-----END KEY-----"
    clean, count = Redactor({"PEM": key}).text(json.dumps({"file": key}))
    assert (clean, count) == ('{"file": "[redacted:PEM]"}', 1)


@pytest.mark.parametrize(
    "value",
    [
        "short",
        "production",
        "12345678",
        "1.25.30.4:80",
        "https://api.example.com/v1",
        "/usr/bin",
        "aaaaaaaaaa",
        " " * 9,
    ],
)
def test_settings_beside_the_secrets_are_left_alone(value: str) -> None:
    assert not Redactor({"SETTING": value})


@pytest.mark.parametrize(
    "value",
    [
        "hunter2hunter2",
        "https://me:pass@host/x",
        "https://hooks.example.com/T0/XXabc123456789012345",
        "123456789012345",
    ],
)
def test_whatever_may_be_a_secret_is_one(value: str) -> None:
    assert Redactor({"S": value}).text(f"a {value} b") == ("a [redacted:S] b", 1)


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=12, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_survives(secret: str, before: str, after: str) -> None:
    redactor = Redactor({"S": secret})
    if redactor:
        for text in (secret, json.dumps(secret)[1:-1], quote(secret, safe="", errors="replace")):
            clean, count = redactor.text(before + text + after)
            assert count >= 1
            assert text not in clean or text in "[redacted:S]"
