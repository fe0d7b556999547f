"""The first engine's registry comes along: bundles as versions that aren't trusted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Uwf
from doubles.commands import git
from doubles.old_stores import EPOCH, WRITER
from programs import program

BUNDLE = """\
export const descriptor = {
  description: "Greets.",
  roles: { greeter: { description: "Greets", schema: { type: "object", properties: { words: { type: "string" } } } } },
};
export async function* run(input, options) {
  const words = "Hello, " + input.prompt;
  yield { role: "greeter", content: words, meta: { words }, timestamp: Date.now() };
  return { returnCode: 0, summary: "greeted%s" };
}
"""
DESCRIPTOR = """\
description: Greets.
roles:
  greeter:
    description: Greets
    schema: {type: object, required: [words], properties: {words: {type: string}}, additionalProperties: false}
"""


def bundle(root: Path, text: str, descriptor: str = DESCRIPTOR, name: str = "") -> str:
    done = subprocess.run(
        [program("node"), str(WRITER), "name"], input=text.encode(), stdout=subprocess.PIPE, check=True
    )
    id_ = name or json.loads(done.stdout)
    (root / "bundles").mkdir(parents=True, exist_ok=True)
    (root / "bundles" / f"{id_}.esm.js").write_text(text)
    (root / "bundles" / f"{id_}.yaml").write_text(descriptor)
    return str(id_)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    root = tmp_path / "old"
    first, second = bundle(root, BUNDLE % " first"), bundle(root, BUNDLE % "")
    (root / "workflow.yaml").write_text(
        f'workflows:\n  greet:\n    hash: "{second}"\n    timestamp: {EPOCH - 1000}\n'
        f'    history:\n      - hash: "{first}"\n        timestamp: {EPOCH - 9000}\n'
    )
    return root


def test_registered_bundles_come_along_with_their_versions_and_are_not_trusted(
    uwf: Uwf, old: Path, root: Path
) -> None:
    report = uwf("import", old).json
    assert report["untaken"] == report["warnings"] == report["threads"] == []
    assert [(row["name"], row["versions"], row["state"]) for row in report["workflows"]] == [
        ("greet", 2, "new")
    ]
    times = git("--git-dir", root / "store.git", "log", "--format=%ct", "refs/uwf/workflows/greet").split()
    assert times == [str(EPOCH // 1000 - seconds) for seconds in (1, 9)]
    file = git("--git-dir", root / "store.git", "show", "refs/uwf/workflows/greet:workflow.esm.js")
    assert file + "\n" == BUNDLE % ""
    assert uwf("verify").json["findings"] == []
    again = uwf("import", old).json
    assert [row["state"] for row in again["workflows"]] == ["here"]
    thread = uwf("thread", "start", "greet", "-p", "Ada", check=None)
    if thread.code == 0:
        thread = uwf("thread", "step", thread.json["thread"], check=None)
    assert thread.error["code"] == "untrusted"


def test_a_version_registered_later_and_a_rollback_come_along(uwf: Uwf, old: Path) -> None:
    uwf("import", old)
    registry = (old / "workflow.yaml").read_text()
    third = bundle(old, BUNDLE % " third")
    (current,) = [line.split('"')[1] for line in registry.splitlines() if line.startswith("    hash:")]
    past = registry.partition("history:")[2]
    (old / "workflow.yaml").write_text(
        f'workflows:\n  greet:\n    hash: "{third}"\n    timestamp: {EPOCH}\n    history:{past}'
        f'      - hash: "{current}"\n        timestamp: {EPOCH - 1000}\n'
    )
    (row,) = uwf("import", old).json["workflows"]
    assert (row["versions"], row["state"], row["source"]) == (3, "grown", third)
    assert uwf("verify").json["findings"] == []


def test_a_bundle_that_is_not_sound_is_named_and_nothing_of_it_runs(
    uwf: Uwf, old: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    writes = f"import {{ writeFileSync }} from 'node:fs';\nwriteFileSync({str(ran)!r}, 'x');\n"
    bundles = {
        "evil": bundle(old, writes + BUNDLE),
        "loose": bundle(old, "const x = await import('node:fs');\n" + BUNDLE),
        "changed": bundle(old, BUNDLE + "// changed\n", name="C9NMV6V2TQT81"),
        "lost": "0000000000000",
    }
    with (old / "workflow.yaml").open("a") as file:
        for name, id_ in bundles.items():
            file.write(f'  {name}:\n    hash: "{id_}"\n')
        file.write("  ../../etc:\n    hash: x\n  odd: 5\n")
    report = uwf("import", old).json
    reasons = {row["name"]: row["reason"] for row in report["untaken"]}
    assert not ran.exists()
    for name, words in {
        "loose": f"{bundles['loose']}.esm.js:1:",
        "changed": "C9NMV6V2TQT81 is damaged: its hash is",
        "lost": "there is no",
        "../../etc": "its name may have",
        "odd": "not a bundle",
    }.items():
        assert words in reasons[name], (name, reasons)
    assert {row["name"] for row in report["workflows"]} == {"greet", "evil"}
    assert uwf("verify").json["findings"] == []
