"""What the first engine left comes along: bundles as versions that aren't trusted, their threads step by step."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf
from doubles.commands import git
from doubles.old_stores import ACTIVE, ENDED, EPOCH, WRITER
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


def log(root: Path, id_: str, thread: str, *lines: dict[str, Any], said: str = "") -> None:
    folder = root / "logs" / id_
    folder.mkdir(parents=True, exist_ok=True)
    start = {
        "name": "greet", "hash": id_, "threadId": thread, "timestamp": EPOCH,
        "parameters": {"prompt": "Ada", "options": {"maxRounds": 5}},
    }  # fmt: skip
    (folder / f"{thread}.data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (start, *lines)))
    record = {"tag": "F3HN8QKP", "content": f"thread {thread} {said}", "timestamp": EPOCH + 9000}
    (folder / f"{thread}.info.jsonl").write_text(json.dumps(record) + "\n")


def greeted(words: str, seconds: int) -> dict[str, Any]:
    meta = {"words": words}
    return {
        "role": "greeter",
        "content": f"I say: {words}",
        "meta": meta,
        "timestamp": EPOCH + 1000 * seconds,
    }


@pytest.fixture
def old(tmp_path: Path) -> Path:
    root = tmp_path / "old"
    first, second = bundle(root, BUNDLE % " first"), bundle(root, BUNDLE % "")
    (root / "workflow.yaml").write_text(
        f'workflows:\n  greet:\n    hash: "{second}"\n    timestamp: {EPOCH - 1000}\n'
        f'    history:\n      - hash: "{first}"\n        timestamp: {EPOCH - 9000}\n'
    )
    log(root, second, ENDED, greeted("Hello, Ada", 1), greeted("Bye", 2), said="generator finished")
    log(root, first, ACTIVE, greeted("Hello", 1), said="wrote role greeter")
    return root


def test_bundles_and_their_threads_come_along_and_are_not_trusted(uwf: Uwf, old: Path, root: Path) -> None:
    found = uwf("import", old).json
    assert found["untaken"] == found["warnings"] == []
    assert [(each["name"], each["versions"]) for each in found["workflows"]] == [("greet", 2)]
    assert {each["thread"]: (each["status"], each["steps"]) for each in found["threads"]} == {
        ENDED: ("completed", 3),
        ACTIVE: ("active", 1),
    }
    steps = uwf("thread", "steps", ENDED).json
    assert [(each["role"], each["output"]) for each in steps] == [
        ("greeter", {"words": "Hello, Ada"}),
        ("greeter", {"words": "Bye"}),
        ("$END", None),
    ]
    assert "I say: Bye" in uwf("thread", "read", ENDED).out
    times = git("--git-dir", root / "store.git", "log", "--format=%ct", f"refs/uwf/archive/{ENDED}").split()
    assert times[:3] == [str(EPOCH // 1000 + seconds) for seconds in (9, 2, 1)]
    file = git("--git-dir", root / "store.git", "show", "refs/uwf/workflows/greet:workflow.esm.js")
    assert file + "\n" == BUNDLE % ""
    assert uwf("verify").json["findings"] == []
    again = uwf("import", old).json
    assert {each["state"] for each in (*again["workflows"], *again["threads"])} == {"here"}
    assert uwf("thread", "step", ACTIVE, check=None).code != 0


def test_a_thread_of_a_bundle_that_went_on_there_grows_here(uwf: Uwf, old: Path) -> None:
    uwf("import", old)
    (file,) = old.glob(f"logs/*/{ACTIVE}.data.jsonl")
    with file.open("a") as lines:
        lines.write(json.dumps(greeted("Again", 3)) + "\n")
    found = {each["thread"]: each for each in uwf("import", old).json["threads"]}
    assert (found[ACTIVE]["state"], found[ACTIVE]["added"]) == ("grown", 1)
    assert uwf("verify").json["findings"] == []


def test_a_bundle_that_is_not_sound_is_named_and_nothing_of_it_runs(
    uwf: Uwf, old: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    evil = bundle(
        old, f"import {{ writeFileSync }} from 'node:fs';\nwriteFileSync({str(ran)!r}, 'x');\n" + BUNDLE
    )
    loose = bundle(old, "const x = await import('node:fs');\n" + BUNDLE)
    other = bundle(old, BUNDLE + "// changed\n", name="C9NMV6V2TQT81")
    for thread, id_ in zip("ABC", (evil, loose, other), strict=True):
        log(old, id_, f"01JVKW000000000000000000{thread}0", greeted("Hello", 1))
    log(old, evil, "not-a-ulid", greeted("Hello", 1))
    log(old, evil, "01JVKW000000000000000000D0", {"role": "greeter", "content": "x", "meta": {"words": 5}})
    log(old, evil, "01JVKW000000000000000000E0", {"role": "stranger", "content": "x", "meta": {}})
    found = uwf("import", old).json
    reasons = {each["name"]: each["reason"] for each in found["untaken"]}
    assert not ran.exists()
    for name, words in {
        "01JVKW000000000000000000B0": f"{loose}.esm.js:1:",
        "01JVKW000000000000000000C0": "C9NMV6V2TQT81 is damaged: its hash is",
        "01JVKW000000000000000000D0": "breaks its schema",
        "01JVKW000000000000000000E0": "no role stranger",
        "NOT-A-ULID": "not a ULID",
    }.items():
        assert words in reasons[name], (name, reasons)
    taken = {each["thread"] for each in found["threads"]}
    assert taken == {ENDED, ACTIVE, "01JVKW000000000000000000A0"}
    assert uwf("verify").json["findings"] == []


def test_a_log_with_a_torn_last_line_gives_the_lines_before_it(uwf: Uwf, old: Path) -> None:
    (file,) = old.glob(f"logs/*/{ENDED}.data.jsonl")
    file.write_text(file.read_text()[:-20])
    file.with_name(f"{ENDED}.info.jsonl").write_text('{"tag": "F3')
    found = uwf("import", old).json
    assert found["untaken"] == []
    assert [(each["thread"], each["message"].partition(",")[0]) for each in found["warnings"]] == [
        (ENDED, f"{ENDED}.data.jsonl:3 is torn")
    ]
    assert {each["thread"]: (each["status"], each["steps"]) for each in found["threads"]}[ENDED] == (
        "active",
        1,
    )
    assert uwf("verify").json["findings"] == []


@pytest.mark.parametrize("limit", ["", "maxRounds: 6\n"])
def test_a_thread_beyond_its_rounds_begins_without_that_limit(
    uwf: Uwf, old: Path, tmp_path: Path, limit: str
) -> None:
    id_ = bundle(old, BUNDLE % "long", DESCRIPTOR + limit)
    thread = "01JVKW000000000000000000A0"
    log(old, id_, thread, *(greeted(f"Hello {number}", number) for number in range(8)))
    found = uwf("import", old).json
    assert [(each["thread"], each["message"]) for each in found["warnings"]] == [
        (thread, "it took 8 steps where maxRounds is 5, so that it begins without this limit")
    ]
    assert uwf("verify", "--strict").json["findings"] == []


def test_bundles_go_out_with_their_code_and_come_back_untrusted(uwf: Uwf, old: Path, tmp_path: Path) -> None:
    uwf("import", old)
    uwf("cas", "put", "Text", '"kept by hand"')
    folders = []
    for number in (1, 2, 3):
        folders.append(tmp_path / f"out{number}")
        uwf(
            *("--root", tmp_path / f"root{number - 1}") if number > 1 else (),
            "export",
            "--json-cas",
            folders[-1],
        )
        found = uwf("--root", tmp_path / f"root{number}", "import", folders[-1]).json
        assert found["untaken"] == found["warnings"] == []
    files = [
        {path.name: path.read_bytes() for path in each.rglob("*.*") if path.is_file()} for each in folders
    ]
    assert sorted(files[0].keys() & {path.name for path in old.glob("bundles/*.js")}) == sorted(
        path.name for path in old.glob("bundles/*.js")
    )
    assert files[1] == files[2]
    back = ("--root", tmp_path / "root1")
    for thread in (ENDED, ACTIVE):
        assert uwf(*back, "thread", "steps", thread).json == uwf("thread", "steps", thread).json
    assert (
        uwf(*back, "workflow", "show", "greet").json["hash"] == uwf("workflow", "show", "greet").json["hash"]
    )
    assert uwf(*back, "verify").json["findings"] == []
    assert uwf(*back, "thread", "step", ACTIVE, check=None).error["code"] == "untrusted"
    (one, *_) = folders[0].glob("bundles/*.js")
    one.write_bytes(one.read_bytes() + b"//")
    found = uwf("--root", tmp_path / "other", "import", folders[0]).json
    assert any("is not the file" in each["reason"] for each in found["untaken"])
    one.unlink()
    found = uwf("--root", tmp_path / "another", "import", folders[0]).json
    assert any(f"there is no bundles/{one.name}" in each["reason"] for each in found["untaken"])
