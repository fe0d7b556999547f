"""Bundles in Python: the contract, told with its lines, and what follows from roles and a moderator."""

from __future__ import annotations

import pytest
from bundle_files import COUNTDOWN, DUET
from cli_samples import write
from conftest import Uwf


def test_roles_and_a_moderator_are_a_bundle_without_a_descriptor(uwf: Uwf) -> None:
    put = uwf("workflow", "put", write("duet.py", DUET)).json
    assert (put["name"], put["language"]) == ("duet", "python")
    shown = uwf("workflow", "show", "duet").json
    assert shown["roles"]["writer"]["systemPrompt"] == "Write." and shown["maxRounds"] == 9
    assert [edge["condition"] for edge in shown["graph"]["critic"]] == ["again"]
    uwf("workflow", "put", write("countdown.py", COUNTDOWN))
    uwf("verify", "--strict")


HOSTILE = """\
import yaml
from importlib import import_module
from . import beside
import ctypes.util, re
from re import compile

fine = compile("x"), re.compile("y")
made = eval("1")
other = __import__("os")
import builtins
builtins.exec("1")
descriptor = {}

def run(input, options):
    yield 1
"""


def test_each_breach_is_named_with_its_line(uwf: Uwf) -> None:
    refused = uwf("workflow", "put", write("hostile.py", HOSTILE), check=1).error
    assert [(each["line"], each["code"]) for each in refused["findings"]] == [
        (1, "foreign-import"),
        (2, "foreign-import"),
        (3, "foreign-import"),
        (4, "foreign-import"),
        (8, "code-of-text"),
        (9, "dynamic-import"),
        (11, "code-of-text"),
        (14, "no-generator"),
    ]
    assert "which is not in the standard library" in refused["message"]
    uwf("workflow", "show", "hostile", check=3)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("def (", 1, "this is no Python"),
        ("x = 1\n", 1, 'has no "descriptor"'),
        (
            COUNTDOWN.replace("import asyncio", "vars()['__builtins__']['ev' + 'al']('1')"),
            1,
            "makes code of text",
        ),
        (COUNTDOWN.replace('"counts"', "3"), 6, 'role "counter": description must be text, not a number'),
        (DUET.replace("next_role,", "None,"), 12, "moderator is a function"),
        (DUET.replace('"critic": {"desc', '"critic": {"disc'), 12, "role 'critic' has no description"),
    ],
)
def test_what_only_shows_when_it_is_evaluated_is_told_with_its_line_too(
    uwf: Uwf, text: str, line: int, said: str
) -> None:
    found = uwf("workflow", "put", write("odd.py", text), check=1).error["findings"]
    assert found[0]["line"] == line and said in found[0]["message"]
