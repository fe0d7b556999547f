"""Bundles as versions of workflows: what they are registered as, found by, and refused for."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import xxhash
from bundle_files import DEBATE
from cli_samples import write
from conftest import Uwf
from programs import program

from uwf_git.base.extras import install_hint
from uwf_git.ext.code import describe
from uwf_git.format.ids import crockford13
from uwf_git.store.instance import Instance

pytestmark = pytest.mark.needs("bwrap", "node")


def known_as(text: str) -> str:
    """What a file with that text is known by, made without the code under test's own function."""
    return crockford13(xxhash.xxh64_intdigest(text.encode()))


def test_a_bundle_is_a_version_that_is_known_by_its_bytes(uwf: Uwf) -> None:
    put = uwf("workflow", "put", write("debate.esm.js", DEBATE)).json
    assert (put["name"], put["language"], put["bundle"]) == ("debate", "javascript", known_as(DEBATE))
    assert uwf("workflow", "put", "debate.esm.js").json == put

    changed = uwf("workflow", "put", write("debate.esm.js", DEBATE.replace("round < 4", "round < 2"))).json
    assert changed["hash"] != put["hash"] and changed["bundle"] != put["bundle"]
    history = uwf("workflow", "history", "debate").json
    assert [(each["hash"], each["bundle"]) for each in history] == [
        (changed["hash"], changed["bundle"]),
        (put["hash"], put["bundle"]),
    ]
    for name in ("debate~1", put["hash"], put["bundle"], put["bundle"][:5].lower()):
        shown = uwf("workflow", "show", name).json
        assert (shown["hash"], shown["bundle"]) == (put["hash"], put["bundle"]), name
    assert shown["roles"]["pro"]["outputSchema"]["required"] == ["text"]
    assert shown["file"]["sha256"] == hashlib.sha256(DEBATE.encode()).hexdigest()
    assert shown["maxRounds"] == 6
    assert uwf("workflow", "rollback", "debate").json["hash"] == put["hash"]
    diff = uwf("workflow", "diff", "debate~1", "debate").json
    assert {"what": "setting", "name": "code", "change": "changed", "fields": ["file"]} in diff["changes"]
    assert "+  for (let round = input.steps.length; round < 4; round += 1) {" in diff["diff"]
    uwf("verify", "--strict")


def test_the_file_and_its_page_are_in_the_version_commit_for_people_with_plain_git(
    uwf: Uwf, root: Path
) -> None:
    uwf("workflow", "put", write("debate.esm.js", DEBATE))
    git = ("git", "-C", str(root / "store.git"), "show")
    at = "refs/uwf/workflows/debate:"
    assert subprocess.run([*git, at + "workflow.esm.js"], capture_output=True, text=True).stdout == DEBATE
    page = subprocess.run([*git, at + "workflow/README.md"], capture_output=True, text=True).stdout
    assert '-->|"not yet enough"|' in page
    assert "The code in [workflow.esm.js](../workflow.esm.js) decides who is next" in page
    assert "| `con` | argues against it | `text` |" in page


def test_a_bundle_without_a_name_is_called_by_the_option_or_its_file(uwf: Uwf) -> None:
    write("talk.esm.js", DEBATE.replace('  name: "debate",\n', ""))
    assert uwf("workflow", "put", "talk.esm.js").json["name"] == "talk"
    assert uwf("workflow", "put", "talk.esm.js", "--name", "chat").json["name"] == "chat"
    write("debate.mjs", DEBATE)
    assert (
        "calls itself 'debate'"
        in uwf("workflow", "put", "debate.mjs", "--name", "x", check=2).error["message"]
    )
    assert uwf("workflow", "show", "./debate.mjs").json["commit"] is None


HOSTILE = """\
import lodash from "lodash";
import { createRequire } from "node:module";
import { readFile } from "fs";

const other = await import("./other.js");
const made = new Function("return 1");
const run = async function (input) { return eval(input.prompt); };
process.binding("spawn_sync");
export { run };
export default run;
"""


def test_each_breach_of_the_contract_is_told_with_its_line_and_nothing_is_run(
    uwf: Uwf, tmp_path: Path
) -> None:
    witness = tmp_path / "ran"
    write(
        "hostile.esm.js", HOSTILE + f'import {{ writeFileSync }} from "fs"; writeFileSync("{witness}", "");\n'
    )
    report = uwf("workflow", "validate", "hostile.esm.js", check=1).json
    assert [(each["line"], each["code"]) for each in report["findings"]] == [
        (1, "missing-export"),
        (1, "foreign-import"),
        (2, "foreign-import"),
        (5, "dynamic-import"),
        (6, "code-of-text"),
        (7, "code-of-text"),
        (8, "foreign-import"),
        (9, "no-generator"),
        (10, "default-export"),
    ]
    refused = uwf("workflow", "put", "hostile.esm.js", check=1).error["message"]
    assert refused.startswith("hostile.esm.js:1:1: exports no") and refused.endswith("(and 8 more)")
    assert not witness.exists()
    assert "no store" in uwf("workflow", "list", check=3).error["message"]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('description: "argues for it", ', "", 14, 'role "pro" has no description'),
        ('from: "con", to: "pro"', 'from: "con", to: "pre"', 21, 'role "pre" is not defined'),
        ("maxRounds: 6", "maxRound: 6", 25, 'has no key "maxRound"'),
        ("maxRounds: 6", "maxRounds: 0", 25, "maxRounds is a number from 1"),
        ("maxRounds: 6", "maxRounds: Infinity", 1, "maxRounds is Infinity, which JSON cannot say"),
        ('type: "string"', 'type: "text"', 5, 'type "text" is unknown'),
        ("const schema", "const n = nothing.at.all; const schema", 3, "nothing is not defined"),
        pytest.param(
            *("const schema", "while (true) {} const schema", 1, "takes over"), marks=pytest.mark.extended
        ),
        ("const schema", "process.exit(3); const schema", 1, "ends before it tells its descriptor"),
        ("async function* run", "async function run", 28, "run is not an async generator"),
        ("  return { rounds: 4 };", "  return { rounds: 4 ;", 34, "cannot be read as JavaScript"),
    ],
)
def test_what_is_wrong_with_a_descriptor_is_told_at_its_line(
    uwf: Uwf, old: str, new: str, line: int, message: str
) -> None:
    assert old in DEBATE
    report = uwf("workflow", "validate", write("debate.esm.js", DEBATE.replace(old, new)), check=1).json
    found = [(each["line"], each["message"]) for each in report["findings"]]
    assert found[0][0] == line and message in found[0][1], found


def test_a_descriptor_that_takes_too_long_is_ended(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe, "SECONDS", 1.0)
    endless = DEBATE.replace("const schema", "while (true) {} const schema")
    told = describe.describe(endless.encode(), "javascript", instance.config)
    assert told.problem == "takes over 1 s to tell its descriptor"


def test_a_file_is_evaluated_where_it_reaches_nothing_of_its_user(uwf: Uwf, hermetic: Path) -> None:
    secret, witness = hermetic / "secret", hermetic / "written"
    secret.write_text("s3cret")
    reads = f"""\
import {{ existsSync, writeFileSync }} from "node:fs";
const tried = [existsSync("{secret}"), Object.keys(process.env).join()];
try {{ writeFileSync("{witness}", "x"); tried.push("written"); }} catch (error) {{ tried.push(error.code); }}
"""
    text = DEBATE.replace(
        '"Two sides argue until one of them has had enough."', "tried.map(String).join(' ')"
    )
    uwf("workflow", "put", write("debate.esm.js", reads + text), env={"SECRET_TOKEN": "s3cret"})
    said = uwf("workflow", "show", "debate").json["description"]
    assert not witness.exists() and "written" not in said
    assert said.startswith("false ") and "SECRET" not in said


def test_a_pipe_is_refused_wherever_a_file_is_named_and_not_waited_for(uwf: Uwf) -> None:
    for name in ("p.esm.js", "p.py", "p.yaml"):
        os.mkfifo(name)
        for call in (("validate", name), ("put", name), ("show", f"./{name}")):
            assert "it is not a regular file" in uwf("workflow", *call, check=1).error["message"]


def test_without_the_parser_one_line_says_what_to_install(uwf: Uwf, monkeypatch: pytest.MonkeyPatch) -> None:
    write("hidden/sitecustomize.py", "import sys\nsys.modules['tree_sitter'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(Path("hidden").absolute()))
    result = uwf("workflow", "put", write("debate.esm.js", DEBATE), check=1, env={"UWF_FORMAT": "text"})
    assert result.err.splitlines()[-1] == (
        f"uwf: code in JavaScript needs the package tree-sitter — {install_hint('code')}"
    )


def test_without_a_sandbox_one_line_has_both_ways_out_and_each_works(uwf: Uwf, tmp_path: Path) -> None:
    write("debate.esm.js", DEBATE)
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "node").symlink_to(program("node"))
    refused = uwf("workflow", "put", "debate.esm.js", check=6, env={"PATH": str(bare)}).error
    assert refused["message"] == "the code cannot be confined: bwrap is not installed"
    install, _, unconfined = refused["hint"].partition("; or go without a sandbox: uwf ")
    assert install == "install it, as with: apt-get install bubblewrap"
    uwf(*unconfined.split())
    uwf("workflow", "put", "debate.esm.js", env={"PATH": str(bare)})


def test_without_a_node_one_line_says_so(uwf: Uwf, tmp_path: Path) -> None:
    write("debate.esm.js", DEBATE)
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "bwrap").symlink_to(str(shutil.which("bwrap")))
    refused = uwf("workflow", "put", "debate.esm.js", check=3, env={"PATH": str(bare)})
    assert "needs Node 20 or newer, and there is no node on PATH" in refused.error["message"]
    old = bare / "old"
    old.write_text('#!/bin/sh\necho \'{"error":{"message":"this is Node 18.1.0","node":true}}\'\n')
    old.chmod(0o755)
    uwf("config", "set", "node", str(old))
    assert "this is Node 18.1.0" in uwf("workflow", "put", "debate.esm.js", check=1).error["message"]
    uwf("config", "set", "node", program("node"))
    uwf("workflow", "put", "debate.esm.js", env={"PATH": str(bare)})
