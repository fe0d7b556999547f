"""Tools answer every call with a value the model can act on: ranges that lead on, edits that are exact,
patches that are whole, and a stable code for whatever can't be done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uwf_git.config.policy import STANDARD, ToolPolicy, parse_policy
from uwf_git.ext.builtin.environment import STANDARD as TOOLS
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.ext.builtin.tools.tool import Tool, Toolbox
from uwf_git.sandbox.results import SHOWN

Json = dict[str, Any]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def box(project: Path) -> Iterator[Toolbox]:
    with standard_tools(project, ToolPolicy()) as tools:
        yield tools


def ok(box: Toolbox, name: str, **arguments: Any) -> Json:
    result = box.call(name, arguments)
    assert result.ok and result.value["ok"] is True, result.value
    return result.value


def refused(box: Toolbox, name: str, arguments: str | Json) -> str:
    result = box.call(name, arguments)
    assert not result.ok and result.value["ok"] is False, result.value
    assert set(result.value["error"]) == {"code", "message"} and result.value["error"]["message"]
    json.dumps(result.value).encode()
    return str(result.value["error"]["code"])


# Calls


def test_what_a_model_gets_wrong_in_a_call_has_a_code(box: Toolbox) -> None:
    nested = "[" * 300 + "]" * 300
    for arguments, code in {
        "not json": "invalid_arguments",
        '{"path": "a"': "invalid_arguments",
        "[1]": "invalid_arguments",
        '{"path": NaN}': "invalid_arguments",
        '{"path": "\\ud800"}': "invalid_arguments",
        '{"path": 7}': "invalid_arguments",
        '{"path": "a", "ofset": 2}': "invalid_arguments",
        '{"path": ' + nested + "}": "invalid_arguments",
        "[" * 100_000: "invalid_arguments",
        '{"path": "' + "x" * 9_000_000 + '"}': "too_large",
        '{"path": "nowhere"}': "not_found",
        "": "invalid_arguments",  # {}: the path is missing
    }.items():
        assert refused(box, "read_file", arguments) == code, arguments[:80]
    assert refused(box, "raed_file", {}) == "unknown_tool"
    assert 'did you mean "read_file"' in box.call("raed_file", {}).value["error"]["message"]
    assert refused(box, "run_command", {"command": "true"}) == "denied"


def test_a_model_sees_the_tools_it_may_call_and_no_others(project: Path) -> None:
    for said in ({}, {"runCommand": True}, {"allow": ["*_file"], "deny": ["write_file"]}, {"allow": []}):
        policy, _ = parse_policy(said)
        with standard_tools(project, policy) as box:
            seen = [each["function"]["name"] for each in box.offered()]
            assert seen == [tool.name for tool in TOOLS if policy.permits(tool.name)]
            for name in STANDARD:
                assert (refused(box, name, {"x": 1}) == "denied") == (name not in seen)
            assert all(f" {name}" in box.describe() for name in seen)


def test_the_offered_schemas_are_json_schemas_that_refuse_unknown_arguments(box: Toolbox) -> None:
    from uwf_git.format.schema import check_schema

    for each in box.offered():
        assert check_schema(each["function"]["parameters"]) == []
        assert each["function"]["parameters"]["additionalProperties"] is False
    assert json.loads(json.dumps(box.offered())) == box.offered()


def test_a_tool_of_somebody_else_can_break_or_answer_too_much(box: Toolbox) -> None:
    def deep(_arguments: Json, _context: Any) -> Json:
        value: Any = 1
        for _ in range(300):
            value = [value]
        return {"value": value}

    def broken(_arguments: Json, _context: Any) -> Json:
        raise KeyError("x")

    schema = {"type": "object"}
    box.add(
        [
            Tool("broken", "", schema, broken, "mcp/a/broken"),
            Tool("huge", "", schema, lambda _a, _c: {"items": ["y" * 1000] * 10_000}, "mcp/a/huge"),
            Tool("deep", "", schema, deep, "mcp/a/deep"),
            Tool("read_file", "", schema, broken, "mcp/a/read_file"),  # doesn't replace ours
        ]
    )
    assert refused(box, "broken", {}) == "internal"
    assert refused(box, "huge", '{"x": ' + "[" * 40 + "]" * 40 + "}") == "invalid_arguments"
    assert refused(box, "deep", {}) == "too_large"
    assert refused(box, "read_file", {"path": "x"}) == "not_found"
    huge = ok(box, "huge")
    assert huge["truncated"] and len(json.dumps(huge)) < 2 * SHOWN
    assert "y" * 100 in ok(box, "read_file", path="@output/1.txt", offset=5000)["content"]


# read_file, list_dir


def test_ranges_of_a_file_lead_to_all_of_it(box: Toolbox, project: Path) -> None:
    text = (
        "".join(f"line {number} {'ü' * (number % 90)}\n" for number in range(5000)) + "z" * 60_000 + "\nend"
    )
    (project / "long").write_text(text, encoding="utf-8")
    got, step = "", {"path": "long"}
    for _ in range(100):
        answer = ok(box, "read_file", **step)
        assert answer["totalLines"] == 5002 and len(answer["content"]) <= SHOWN
        got += answer["content"]
        if "truncated" not in answer:
            break
        words = answer["rest"].removeprefix("use ").split()
        step = {"path": "long", **{name: int(value) for name, value in (word.split("=") for word in words)}}
    assert got == text


def test_small_and_odd_files_are_read_as_they_are(box: Toolbox, project: Path) -> None:
    (project / "empty").write_bytes(b"")
    (project / "crlf").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    (project / "latin").write_bytes(b"caf\xe9\n")
    (project / "image").write_bytes(b"\x89PNG\0\0")
    with (project / "sparse").open("wb") as file:
        file.truncate(10**12)
    assert ok(box, "read_file", path="empty")["content"] == ""
    assert ok(box, "read_file", path="crlf", limit=1) == {
        "ok": True,
        "path": "@project/crlf",
        "bytes": 9,
        "content": "\ufeffa\r\n",
        "lines": [1, 1],
        "totalLines": 2,
        "truncated": True,
        "rest": "use offset=2",
    }
    assert "lossy" in ok(box, "read_file", path="latin")
    assert refused(box, "read_file", {"path": "image"}) == "binary"
    assert refused(box, "read_file", {"path": "sparse"}) == "too_large"
    assert refused(box, "read_file", {"path": "crlf", "offset": 9}) == "invalid_arguments"
    assert refused(box, "edit_file", {"path": "latin", "old": "caf", "new": "x"}) == "binary"


def test_a_folder_is_listed_in_parts_that_lead_on(box: Toolbox, project: Path) -> None:
    for number in range(501):
        (project / f"f{number:03}").touch()
    (project / "0link").symlink_to("/etc")
    (project / "0\udcff").touch()
    first = ok(box, "list_dir")
    assert first["entries"][0] == {"name": "0link", "type": "link", "target": "/etc"}
    assert (first["total"], first["rest"]) == (503, "use offset=501")
    assert [each["name"] for each in ok(box, "list_dir", offset=501)["entries"]] == ["f498", "f499", "f500"]
    assert refused(box, "list_dir", {"path": "0link"}) == "outside_workspace"
    assert refused(box, "list_dir", {"path": "f001"}) == "not_directory"


# edit_file, write_file


def test_an_edit_needs_its_text_exactly_once(box: Toolbox, project: Path) -> None:
    file = project / "a.py"
    ok(box, "write_file", path="a.py", content="def f():\n    return 1\n\ndef g():\n    return 1\n")
    assert refused(box, "edit_file", {"path": "a.py", "old": "return 1", "new": "return 2"}) == "not_unique"
    assert (
        "lines 2, 5"
        in box.call("edit_file", {"path": "a.py", "old": "return 1", "new": ""}).value["error"]["message"]
    )
    assert refused(box, "edit_file", {"path": "a.py", "old": "return 3", "new": "x"}) == "no_match"
    tabs = box.call("edit_file", {"path": "a.py", "old": "def g():\n\treturn 1", "new": "x"})
    assert "in line 4 something differs from it in white space" in tabs.value["error"]["message"]
    assert ok(box, "edit_file", path="a.py", old="f():\n    return 1", new="f():\n    return 2")["line"] == 1
    assert ok(box, "edit_file", path="a.py", old="return", new="yield", all=True)["replaced"] == 2
    assert file.read_text() == "def f():\n    yield 2\n\ndef g():\n    yield 1\n"
    file.write_bytes(b"a\r\nb\r\n")
    ok(box, "edit_file", path="a.py", old="a\nb", new="c\nd")
    assert file.read_bytes() == b"c\r\nd\r\n"
    assert refused(box, "edit_file", {"path": "a.py", "old": "c", "new": "c"}) == "invalid_arguments"
    assert refused(box, "write_file", {"path": ".git/config", "content": ""}) == "denied"


# apply_patch

BEGIN = "*** Begin Patch\n"


def test_a_patch_adds_updates_moves_and_deletes(box: Toolbox, project: Path) -> None:
    (project / "a.py").write_text("import os\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 1\n")
    (project / "a.py").chmod(0o755)
    (project / "old").write_text("x\n")
    patch = (
        BEGIN + "*** Update File: a.py\n*** Move to: src/b.py\n@@ def g():\n-    return 1\n+    return 2\n"
        "*** Add File: docs/new.md\n+# New\n+\n+text\n*** Delete File: old\n*** End Patch"
    )
    kinds = {each["path"]: each["kind"] for each in ok(box, "apply_patch", patch=patch)["changed"]}
    assert kinds == {
        "@project/src/b.py": "created",
        "@project/a.py": "deleted",
        "@project/docs/new.md": "created",
        "@project/old": "deleted",
    }
    assert (project / "src/b.py").read_text().endswith("def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    assert (project / "src/b.py").stat().st_mode & 0o777 == 0o755
    assert (project / "docs/new.md").read_text() == "# New\n\ntext\n"
    assert not (project / "old").exists() and not (project / "a.py").exists()


def test_a_patch_that_fits_in_part_changes_nothing(box: Toolbox, project: Path) -> None:
    (project / "a").write_text("1\n2\n2\n")
    (project / "b").write_text("b\n")
    for body, code in {
        "*** Update File: a\n-1\n+one\n*** Update File: c\n-x\n+y\n": "not_found",
        "*** Add File: new\n+x\n*** Update File: a\n-3\n+three\n": "no_match",
        "*** Add File: new\n+x\n*** Update File: a\n-2\n+two\n": "not_unique",
        "*** Add File: new\n+x\n*** Add File: a\n+x\n": "no_match",
        "*** Update File: b\n*** Move to: a\n": "no_match",
        "*** Add File: new\n+x\n*** Add File: ../out\n+x\n": "outside_workspace",
        "*** Add File: new\n+x\n*** Add File: .git/hooks/pre-commit\n+x\n": "denied",
        "*** Add File: new\nx\n": "invalid_arguments",
        "*** Update File: a\n": "invalid_arguments",
        "*** Update File: a\n?1\n": "invalid_arguments",
        "nothing\n": "invalid_arguments",
    }.items():
        assert refused(box, "apply_patch", {"patch": BEGIN + body + "*** End Patch\n"}) == code, body
    assert refused(box, "apply_patch", {"patch": "change the first line, please"}) == "invalid_arguments"
    assert {path.name: path.read_text() for path in project.iterdir()} == {"a": "1\n2\n2\n", "b": "b\n"}


def test_a_patch_forgives_white_space_and_keeps_the_file_s_own(box: Toolbox, project: Path) -> None:
    (project / "a").write_bytes(b"one  \r\n\ttwo\r\nthree\r\nfour\r\nfive")
    ok(box, "apply_patch", patch=BEGIN + "*** Update File: a\n one\n     two\n-three\n+3\n*** End Patch")
    assert (project / "a").read_bytes() == b"one  \r\n\ttwo\r\n3\r\nfour\r\nfive"
    ok(box, "apply_patch", patch=BEGIN + "*** Update File: a\n@@\n+end\n*** End Patch")
    assert (project / "a").read_bytes().endswith(b"five\r\nend")
