"""Code is trusted by its SHA-256 on one machine: by who registers it there, and by nobody who only fetched it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import git_servers
import pytest
from bundle_files import DEBATE
from cli_samples import on_terminal, write
from conftest import Uwf
from two_machines import Machine

pytestmark = pytest.mark.needs("bwrap", "node")


@pytest.fixture
def ada(uwf: Uwf, hermetic: Path) -> Machine:
    """The author's machine: a bundle that is put, a thread of it, and a remote that has both."""
    ada = Machine(uwf, hermetic / "ada")
    put = ada("workflow", "put", write("debate.esm.js", DEBATE)).json
    assert put["trusted"] is True
    ada("thread", "start", "debate", "-p", "Tabs or spaces?")
    ada("remote", "add", "origin", git_servers.bare(hermetic / "hub.git"))
    ada("push")
    return ada


@pytest.fixture
def ben(uwf: Uwf, ada: Machine, hermetic: Path) -> Machine:
    """Another machine that has cloned it."""
    ben = Machine(uwf, hermetic / "ben")
    ben("clone", hermetic / "hub.git")
    return ben


def test_what_was_fetched_is_read_and_verified_and_not_run_until_it_is_trusted(
    ada: Machine, ben: Machine
) -> None:
    thread, *_ = ben.heads()
    assert [each["trusted"] for each in ben("workflow", "list").json] == [False]
    ben("verify", "--all", "--strict")
    assert ben("thread", "show", thread).json["thread"] == thread
    assert ben("workflow", "show", "debate").json["trusted"] is False
    assert "no: uwf workflow trust debate" in ben("workflow", "show", "debate", "--format", "text").out
    hint = ada("workflow", "rehearse", "debate", check=2).error["hint"]
    assert hint == "try it: uwf run debate --agent uwf-rehearse"
    shown = ada("workflow", "show", "debate", "--format", "text").out
    assert [line.split() for line in shown.splitlines() if line.startswith("trusted")] == [["trusted", "yes"]]
    assert ben("workflow", "show", "debate", "--source", "--format", "text").out == DEBATE
    bundle = ada("workflow", "show", "debate").json["bundle"]

    before = ben.heads()
    for call in (("run", "debate", "-p", "x"), ("thread", "step", thread), ("thread", "run", thread)):
        error = ben(*call, check=5).error
        assert error["code"] == "untrusted"
        assert bundle in error["message"]
        assert error["hint"].endswith("uwf workflow trust debate")
    assert ben.heads() == before
    ben("thread", "start", "debate", "-p", "Nothing runs yet.")

    assert "--yes" in ben("workflow", "trust", "debate", check=2).error["hint"]
    assert ben("workflow", "trust", bundle, "--yes").json["changed"] is True
    assert ben("workflow", "trust", "debate").json["changed"] is False
    assert ben("workflow", "list").json[0]["trusted"] is True
    assert ben("thread", "step", thread).json["role"] == "pro"

    ada("workflow", "put", write("debate.esm.js", DEBATE + "// another version\n"))
    ada("push")
    ben("pull")
    assert [each["trusted"] for each in ben("workflow", "history", "debate").json] == [False, True]
    ben("thread", "step", thread)
    assert ben("workflow", "untrust", "debate~1").json["changed"] is True
    assert ben("thread", "step", thread, check=5).error["hint"].endswith(f"uwf workflow trust {bundle}")


def test_trust_under_one_name_or_language_is_none_under_another(ada: Machine, ben: Machine) -> None:
    """What code is granted goes by its workflow's name, and whoever pushes it chooses that."""
    both = write("harmless.py", BOTH)
    ada("workflow", "put", both)
    ada("push")
    ben("pull")
    ben("workflow", "trust", "harmless", "--yes")
    ada("workflow", "put", both, "--name", "granted")
    named = ada("thread", "start", "granted", "-p", "x").json["thread"]
    harmless = ada("workflow", "show", "harmless").json["hash"]
    ada("workflow", "put", write("harmless.mjs", BOTH))
    spoken = ada("thread", "start", "harmless", "-p", "x").json["thread"]
    ada("push")
    ben("pull")
    for thread in (named, spoken):
        assert ben("thread", "step", thread, check=5).error["code"] == "untrusted"
    assert ben("workflow", "show", harmless).json["trusted"] is True
    ben("workflow", "trust", "granted", "--yes")
    ben("workflow", "untrust", harmless)
    assert ben("thread", "step", named).json["role"] == "a"


BOTH = '''\
x = 1 //2; """
export const descriptor = { description: "js", roles: { a: { description: "x", schema: { type: "object" } } } };
export async function* run(input, options) { yield { role: "a", content: "", meta: {} }; }
var x; /*
"""
descriptor = {"description": "py", "roles": {"a": {"description": "x", "schema": {"type": "object"}}}}
async def run(input, options):
    yield {"role": "a", "content": "", "meta": {}}
#*/
'''


def test_a_file_that_is_run_by_its_path_is_trusted_by_that(uwf: Uwf) -> None:
    path = write("debate.esm.js", DEBATE)
    assert uwf("run", f"./{path}", "-p", "Tabs or spaces?").lines[-1]["status"] == "completed"
    uwf("thread", "step", uwf("thread", "start", path, "-p", "Again").json["thread"])
    folder = Path(".uwf/workflows")
    folder.mkdir(parents=True)
    (folder / "other.esm.js").write_text(DEBATE + "// fetched\n")
    assert uwf("run", "other", "-p", "x", check=5).error["code"] == "untrusted"


def test_the_file_is_shown_and_the_user_asked_on_a_terminal(ben: Machine) -> None:
    code, shown = on_terminal("workflow", "trust", "debate", typed=[("[y/N]", "n\n")], env=ben.environment)
    assert code == 2 and "was not confirmed" in shown
    assert "export async function* run(input, options) {" in shown
    assert "no network; 600 s a step; no folders of yours" in shown
    assert "the configured agents, which work outside its sandbox" in shown
    assert ben("workflow", "show", "debate").json["trusted"] is False
    code, shown = on_terminal("workflow", "trust", "debate", typed=[("[y/N]", "y\n")], env=ben.environment)
    assert code == 0
    assert ben("workflow", "show", "debate").json["trusted"] is True


def test_what_a_file_says_to_a_terminal_is_escaped_when_it_is_shown(ada: Machine, ben: Machine) -> None:
    hidden = "// \x1b[2J\x1b]0;safe\x07\n// a\u3164b\u200cc\u2028globalThis.hidden = 1; //\x0c one line\x85\n"
    ada("workflow", "put", write("debate.esm.js", DEBATE + hidden))
    ada("push")
    ben("pull")
    _, shown = on_terminal("workflow", "trust", "debate", typed=[("[y/N]", "n\n")], env=ben.environment)
    assert "\x1b[2J" not in shown and "\x1b]0;" not in shown
    lines = [each.split("  ", 1)[-1].rstrip() for each in shown.splitlines()]
    at = lines.index("// a\\u3164b\\u200cc")
    assert lines[at + 1] == "globalThis.hidden = 1; //\\x0c one line\\x85"


def test_code_that_put_would_refuse_is_not_trusted_either(ada: Machine, ben: Machine) -> None:
    """A forged version holds together, so it verifies; its file is read before anybody is asked about it."""
    forged = DEBATE.replace(
        "const text =", "const other = await import(`data:text/javascript,${input.prompt}`); const text ="
    )
    assert forged != DEBATE
    program = Path("forge.py")
    program.write_text(FORGE)
    write("forged.esm.js", forged)
    forging = [sys.executable, str(program), "forged.esm.js"]
    subprocess.run(forging, check=True, env={**os.environ, **ada.environment})
    ada("push")
    ben("pull")
    ben("verify", "--all", "--strict")
    error = ben("workflow", "trust", "debate", "--yes", check=1).error
    assert "import() is not allowed" in error["message"]
    assert ben("workflow", "show", "debate").json["trusted"] is False


FORGE = """\
import hashlib, os, sys
from pathlib import Path
from uwf_git.ext.code.contract import compile_bundle
from uwf_git.ext.code import contract
from uwf_git.store.instance import Instance

contract._contract = lambda text, language: ([], ({}, {}))
instance = Instance.open()
instance.registry.put(compile_bundle(Path(sys.argv[1]), instance.config))
"""


def test_a_file_that_says_something_else_of_itself_than_its_node_is_told(ada: Machine, ben: Machine) -> None:
    program = Path("forge.py")
    program.write_text(OTHER)
    write("forged.esm.js", DEBATE + "// forged\n")
    forging = [sys.executable, str(program), "forged.esm.js"]
    subprocess.run(forging, check=True, env={**os.environ, **ada.environment})
    ada("push")
    ben("pull")
    ben("verify", "--strict")
    trusted = ben("workflow", "trust", "debate", "--yes")
    assert "something else than was registered: setting description, role pro" in trusted.err


OTHER = """\
import sys
from pathlib import Path
from uwf_git.ext.code.contract import compile_bundle
from uwf_git.store.instance import Instance
from uwf_git.format.kinds import parse_workflow
from uwf_git.format.node import hash_of
from uwf_git.format.types import CODE

instance = Instance.open()
made = compile_bundle(Path(sys.argv[1]), instance.config)
roles = {**made.payload["roles"], "pro": {**made.payload["roles"]["pro"], "systemPrompt": "Be kind."}}
payload = {**made.payload, "roles": roles, "description": "Harmless."}
instance.registry.put(made._replace(payload=payload, hash=hash_of(CODE, payload), workflow=parse_workflow(payload)))
"""
