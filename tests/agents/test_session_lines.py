"""Sessions as text: what is taken out, how they are cut, moved to another folder, and exported."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.config.secrets import Redactor
from uwf_git.ext.agents.cli.session_files import fits, patterns_for, read_files, session_folder
from uwf_git.ext.agents.cli.session_lines import (
    PART,
    Unusable,
    document_of,
    lines_of,
    moved,
    parts_of,
    without_secrets,
)

SECRET = "b7Qm2zX9wL4tR8vK1nY6"
REDACTOR = Redactor({"TOKEN": SECRET})


@given(st.lists(st.text(max_size=40), max_size=40), st.integers(1, 3))
def test_parts_are_the_text_again_and_stay_when_it_grows(lines: list[str], times: int) -> None:
    text = "".join(f"{line}\n" for line in lines) * (times * PART // 400)
    parts = parts_of(text)
    assert "".join(parts) == text and all(0 < len(part) <= PART for part in parts)
    assert parts_of(text + "more\n" * 50_000)[: max(len(parts) - 1, 0)] == parts[:-1]


def test_a_line_without_a_secret_stays_as_it_is_and_an_unfinished_one_is_left_out() -> None:
    data = b'{"a" :  "\\u00e9",  "b": 1e2}\n\n{"end": 1'
    assert without_secrets(data, REDACTOR) == (data.decode().rpartition("\n")[0] + "\n", 0)
    assert without_secrets(b'{"end": 1}', REDACTOR) == ('{"end": 1}\n', 0)


@pytest.mark.parametrize("quoted", [SECRET, json.dumps({"deep": SECRET}), json.dumps(json.dumps(SECRET))])
def test_a_secret_is_found_however_deep_it_is_quoted_and_the_line_stays_json(quoted: str) -> None:
    line = json.dumps({"arguments": quoted, "list": [{"text": quoted}]})
    text, count = without_secrets(f"{line}\n".encode(), REDACTOR)
    assert SECRET not in text and count == 2
    assert set(json.loads(text)) == {"arguments", "list"}


SIGNED: dict[str, Any] = {
    "claude": {"type": "thinking", "thinking": SECRET, "signature": "abc"},
    "gemini": {"text": SECRET, "thoughtSignature": "abc"},
    "codex": {"type": "reasoning", "summary": [{"text": SECRET}], "encrypted_content": "abc"},
    "opencode": {"type": "reasoning", "text": SECRET, "metadata": {"anthropic": {"signature": "abc"}}},
}


@pytest.mark.parametrize("name", SIGNED)
def test_a_signed_part_with_a_secret_is_refused_and_one_beside_it_is_not(name: str) -> None:
    part = SIGNED[name]
    with pytest.raises(Unusable, match="signed"):
        without_secrets(json.dumps({"content": [part]}).encode(), REDACTOR)
    plain = json.loads(json.dumps(part).replace(SECRET, "nothing"))
    text, count = without_secrets(json.dumps({"content": [plain, {"text": SECRET}]}).encode(), REDACTOR)
    assert count == 1 and json.loads(text)["content"][0] == plain


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/work/a", "/new"),
        ("/work/a/x.py", "/new/x.py"),
        ("in /work/a.", "in /new."),
        ("a\n/work/a\tb", "a\n/new\tb"),
        ("(/work/a)", "(/new)"),
        ("/work/ab /work/a-b /work/a.b", "/work/ab /work/a-b /work/a.b"),
        ("/home/work/a", "/home/work/a"),
    ],
)
def test_paths_move_to_the_new_folder_and_others_stay(before: str, after: str) -> None:
    text = json.dumps({"text": before})
    assert json.loads(moved(text, "/work/a", "/new")) == {"text": after}
    assert moved(moved(text, "/work/a", "/new"), "/new", "/work/a") == text


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_folder_with_odd_characters_moves_in_every_notation(ascii_only: bool) -> None:
    old, new = '/wörk/"a" b\\c', '/ne"w/ö'
    text = json.dumps({"cwd": old, "file": f"{old}/x"}, ensure_ascii=ascii_only)
    assert json.loads(moved(text, old, new)) == {"cwd": new, "file": f"{new}/x"}


def test_an_export_becomes_lines_and_comes_back_whatever_the_order_of_its_keys() -> None:
    value = {"info": {"id": "s", "n": 1}, "messages": [{"b": 1, "a": [1]}, {"c": "\u2028é"}]}
    lines = lines_of(json.dumps(value, indent=2).encode(), "messages").decode()
    assert len(lines.split("\n")) == 4 and json.loads(document_of(lines, "messages")) == value
    turned = {"messages": [{"a": [1], "b": 1}, {"c": "\u2028é"}], "info": {"n": 1, "id": "s"}}
    assert lines_of(json.dumps(turned).encode(), "messages").decode() == lines


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"messages": {}}', b"{" * 100_000, b"\xff"])
def test_what_is_no_export_is_refused(data: bytes) -> None:
    with pytest.raises(Unusable, match="export"):
        lines_of(data, "messages")


@pytest.mark.parametrize("lines", ["", "x\n", '{"messages": []}\n', "[]\n"])
def test_what_is_kept_and_no_export_is_refused(lines: str) -> None:
    with pytest.raises(Unusable, match="export"):
        document_of(lines, "messages")


def test_a_pattern_takes_an_id_literally_and_no_folder_too_many() -> None:
    (pattern,) = patterns = patterns_for(["*/log-*-{session:8}.jsonl"], "0123456789")
    assert pattern == ["*", "log-*-01234567.jsonl"]
    assert fits("2026/log-1-01234567.jsonl", patterns)
    for path in (
        "log-1-01234567.jsonl",
        "../log-1-01234567.jsonl",
        "a/b/log-1-01234567.jsonl",
        "a/log-1-x.jsonl",
    ):
        assert not fits(path, patterns)
    assert not fits("a\n/log-1-01234567.jsonl", patterns)
    assert patterns_for(["{session}"], "a*b")[0] == ["a[*]b"]
    for session in ("", "a/b", ".x", "a\nb"):
        with pytest.raises(Unusable):
            patterns_for(["{session}"], session)


def test_a_file_that_changes_while_it_is_read_or_is_a_pipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="changes while it is read"):
        read_files(Path(f"/proc/{os.getpid()}"), [["status"]])  # which is never as long as it says
    os.mkfifo(tmp_path / "chat.jsonl")
    with pytest.raises(Unusable, match="not a plain file"):
        read_files(tmp_path, [["*.jsonl"]])


def test_the_folder_of_a_project_is_the_one_that_names_it_and_a_pipe_is_no_name(tmp_path: Path) -> None:
    places, env = ["~/tmp/{project}/chats"], {"HOME": str(tmp_path)}
    assert session_folder(places, "/work/a", env) is None
    made = session_folder(places, "/work/a", env, make=True)
    assert made is not None and made.is_dir() and (made.parent / ".project_root").read_text() == "/work/a"
    (tmp_path / "tmp/0").mkdir()
    os.mkfifo(tmp_path / "tmp/0/.project_root")
    assert session_folder(places, "/work/a", env) == made
    assert session_folder(["$UNSET/x", *places], "/work/b", env, make=True) != made


def test_a_folder_whose_path_is_too_long_for_its_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="too long"):
        session_folder(["~/{slug}"], "/a" * 150, {"HOME": str(tmp_path)})
