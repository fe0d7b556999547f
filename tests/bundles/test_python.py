"""Bundles in Python: the contract, told with its lines, and what follows from roles and a moderator."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from bundle_files import COUNTDOWN, DUET
from cli_samples import write
from conftest import Uwf

pytestmark = pytest.mark.needs("bwrap")


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
        ("def (", 1, "this is not Python"),
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


HARM = {
    "imports at run time": (
        'vars(sys)["modules"]["builtins"].__dict__["__imp" + "ort__"]("yaml")',
        "imports yaml",
    ),
    "makes code of text": (
        'vars(sys)["modules"]["builtins"].__dict__["ev" + "al"]("1")',
        "makes code of text",
    ),
    "has code made of text beside it": (
        "import asyncio, collections, dataclasses\n"
        "    dataclasses.make_dataclass('D', ['n']); collections.namedtuple('N', 'n')\n"
        "    await asyncio.to_thread(vars(sys)['modules']['builtins'].__dict__['ex' + 'ec'], '1')",
        "makes code of text",
    ),
    "sees more of the library": ('sys.modules["uwf_git"].errors', "AttributeError"),
    "crashes": ("os.abort()", "signal 6"),
    "exits": ("os._exit(3)", "exited with 3"),
    "raises": ('raise ValueError("\\033[31mred")', "in line"),
    "loops for ever": ("while True: pass", "took over 2 s"),
    "yields no step": ("yield 5", "yielded 5"),
    "yields no role": ('yield {"role": "zz", "content": "", "meta": {}}', "'zz', which is not a role"),
    "yields what JSON cannot say": (
        'yield {"role": "a", "meta": {"n": {1}}}',
        "the yield.meta.n is of type set",
    ),
    "yields odd keys": ('yield {"role": "a", "meta": {1: 1}}', "the key 1"),
    "yields infinity": ('yield {"role": "a", "meta": {"n": float("inf")}}', "which JSON cannot say"),
    "yields itself": ('m = {}; m["n"] = m; yield {"role": "a", "meta": m}', "holds itself"),
    "yields a huge meta": ('yield {"role": "a", "meta": {"n": "y" * 2_000_000}}', "the limit is"),
    "writes outside": ('open("/etc/passwd", "a")', "Read-only file system"),
    "reaches the network": (
        'import socket; socket.create_connection(("127.0.0.1", PORT), 2)',
        "ConnectionRefused",
    ),
    "finishes with no JSON": ("options.finish(object())", "the result is of type object"),
}


@pytest.mark.extended
def test_what_harms_or_is_no_step_is_named_and_the_head_stays(uwf: Uwf, root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        fails(uwf, root, outside.getsockname()[1])
    uwf("verify", "--strict")


def fails(uwf: Uwf, root: Path, port: int) -> None:
    """Each case fails as it should; a server listens on the port."""
    cases = "\n".join(
        f"async def case_{n}(options):\n    {body.replace('PORT', str(port))}\n    if False: yield\n"
        for n, (body, _) in enumerate(HARM.values())
    )
    listed = ", ".join(f"{name!r}: case_{n}" for n, name in enumerate(HARM))
    write(
        "hostile.py",
        'import os, sys\ndescriptor = {"description": "Means harm.", "roles": {"a": {"description": "does it", '
        f'"schema": {{"type": "object"}}}}}}}}\n{cases}\nCASES = {{{listed}}}\n\n'
        "def run(input, options):\n    return CASES[input['prompt']](options)\n",
    )
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text("bundles: {hostile: {timeout: 2}}\n")
    uwf("workflow", "put", "hostile.py")
    for case, (_, said) in HARM.items():
        thread = uwf("thread", "start", "hostile", "-p", case).json["thread"]
        done = uwf("thread", "step", thread, check=6)
        assert said in done.error["message"] and len(done.err.splitlines()) == 1, (case, done.err)
        shown = uwf("thread", "show", thread).json
        assert (shown["status"], shown["role"]) == ("failed", None), case


ENDS = """\
import os
SCHEMA = {"type": "object", "properties": {"all": {"type": "array"}}}
descriptor = {"name": "ends", "description": "Ends.", "roles": {"all": {"description": "look", "schema": SCHEMA}}}

async def run(input, options):
    END
    yield {"role": "all", "content": "", "meta": {"all": []}}
"""


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise SystemExit", "the code failed in line 6: SystemExit"),
        ("os._exit(0)", "the code's process exited with 0 before it yielded"),
    ],
)
def test_code_that_ends_its_process_has_failed(uwf: Uwf, end: str, reason: str) -> None:
    uwf("workflow", "put", write("ends.py", ENDS.replace("END", end)))
    thread = uwf("thread", "start", "ends", "-p", "Do it").json["thread"]
    assert uwf("thread", "step", thread, check=6).error["message"].startswith(reason)
    assert uwf("thread", "steps", thread).json == []
