"""The log: each call has a tag that leads to it, a command leaves a trail, and nothing secret is in it."""

from __future__ import annotations

import ast
import datetime
import json
import os
import re
import secrets
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_samples import PAIR, write
from commands import UWF, begin, git
from conftest import REPOSITORY, Uwf
from faults import on_a_small_disk
from model_server import ModelServer, says, status

from uwf_git.base import log
from uwf_git.base.log import LEVELS
from uwf_git.base.log_calls import Site, sites
from uwf_git.base.log_files import LARGEST, MOST
from uwf_git.format.ids import ALPHABET

FOLDERS = [REPOSITORY / "uwf_git", REPOSITORY / "cli" / "uwf_cli"]
SECRET = "correct-horse-battery-staple-9"
ON = {"UWF_LOG": "debug"}


@cache
def all_sites() -> list[Site]:
    """Every call of `log` in the sources."""
    return sites(FOLDERS)


def records(root: Path) -> list[dict[str, Any]]:
    """Every record, oldest first; each line must be one."""
    files = sorted((root / "store.git" / "uwf" / "logs").iterdir())
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def told(root: Path, text: str) -> list[dict[str, Any]]:
    return [record for record in records(root) if text in record["content"]]


# The calls


def test_each_call_has_a_tag_of_its_own() -> None:
    texts = [path.read_text() for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
    texts = [text for text in texts if re.search(r"\blog\b", text)]
    text = "".join(texts)
    used = [
        node
        for each in texts
        for node in ast.walk(ast.parse(each))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "log" and node.attr in LEVELS
    ]
    assert len(used) == len(all_sites()) > 1, (
        "log.debug and its like are only called, so that each call is found"
    )
    assert not re.search("from uwf_git.base.log import .*(debug|info|warning|error)", text)
    for site in all_sites():
        where, proposed = f"{site.file}:{site.line}", "".join(secrets.choice(ALPHABET) for _ in range(8))
        assert re.fullmatch(f"[{ALPHABET}]{{8}}", site.tag), f"{where}: give it a tag such as {proposed}"
        assert text.count(site.tag) == 1, f"{where}: {site.tag} is another's; take one such as {proposed}"


def test_what_a_call_says_is_a_literal_and_its_places_are_fields_of_it() -> None:
    taken = {"tag", "level", "content", "timestamp", "pid", "**"}
    for site in all_sites():
        where = f"{site.file}:{site.line}"
        assert site.content, f"{where} has no literal content"
        places = re.findall(r"\{(.*?)\}", site.content)
        assert set(places) <= {*site.fields, "thread", "role"}, where
        assert not taken & set(site.fields), f"{where} gives a field that all records have"


# What a command leaves


def test_a_failing_step_leaves_a_trail_that_names_it(uwf: Uwf, root: Path, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", "false", env=ON, check=6)
    trail = [record for record in records(root) if record["thread"] == thread]
    said = "\n".join(record["content"] for record in trail)
    assert re.search("next is writer\n(.*\n)*false plays .*\n(.*\n)*false failed: false exited with 1", said)
    for record in trail:
        assert list(record)[:7] == ["tag", "level", "content", "timestamp", "thread", "role", "pid"]
    assert {record["role"] for record in trail} == {None, "writer"}
    assert uwf("debug", "--thread", thread).json == trail[-20:]
    last = records(root)[-1]
    assert (last["code"], last["level"]) == ("agent_failed", "error")


def test_a_tag_leads_to_the_line_that_says_it(uwf: Uwf, root: Path, thread: str) -> None:
    uwf("thread", "step", thread, env=ON)
    one = told(root, "is accepted")[0]
    found = uwf("debug", one["tag"].lower()).json
    line = Path(found["file"]).read_text().splitlines()[found["line"] - 1]
    assert f'"{one["tag"]}"' in line or "log." in line
    assert (found["content"], found["records"]) == ("step {step} is accepted", [one])
    text = uwf("debug", one["tag"], "--format", "text").out
    assert f"{found['file']}:{found['line']}" in text and one["content"] in text
    assert "no tag" in uwf("debug", "ZZZZZZZZ", check=3).error["message"]


def test_a_tag_of_another_version_still_shows_its_records(uwf: Uwf, root: Path, thread: str) -> None:
    uwf("thread", "step", thread, env=ON)
    file = next((root / "store.git" / "uwf" / "logs").iterdir())
    one = {**records(root)[0], "tag": "ZZZZZZZZ"}
    file.write_text(file.read_text() + json.dumps(one) + "\n")
    found = uwf("debug", "ZZZZZZZZ").json
    assert (found["file"], found["line"], found["records"]) == (None, None, [one])


def test_an_agent_that_is_a_process_logs_beside_its_engine(
    uwf: Uwf, root: Path, thread: str, script: Callable[[str, str], Path]
) -> None:
    body = "from uwf_git.kit import create_agent\ncreate_agent('own', lambda ctx: 'nothing').main()\n"
    failed = uwf("thread", "step", thread, "--debug", "--agent", script("own", body), check=6)
    pids = {record["pid"] for record in records(root) if record["thread"] == thread}
    assert len(pids) == 2, "engine and agent"
    shown = [json.loads(line) for line in failed.err.splitlines()]
    assert {each["pid"] for each in shown if "tag" in each} < pids, "stderr has those of the command alone"
    assert failed.error["code"] == "agent_failed", "and ends with the error"


def test_standard_error_has_the_log_where_that_is_asked_for(uwf: Uwf, thread: str) -> None:
    for how in (["--debug", "thread", "show"], ["thread", "--debug", "show"], ["thread", "show", "--debug"]):
        assert "is called" in json.loads(uwf(*how, thread).err.splitlines()[0])["content"]
    both = {"UWF_LOG": "debug", "UWF_LOG_STDERR": "1"}
    assert "is called" in uwf("thread", "show", thread, "--format", "text", env=both).err
    assert uwf("thread", "show", thread, env={**both, "UWF_LOG": "warning"}).err == ""
    agent = "sh -c 'uwf thread list >&2; uwf thread list --debug --format text 2>&1; exit 1'"
    failed = uwf("thread", "step", thread, "--agent", agent, env=both, check=6)
    assert '"tag"' not in failed.error["message"], "what it starts doesn't inherit that"
    assert uwf("thread", "show", thread, env=ON).err == ""


def test_what_a_model_was_asked_and_how_often_is_in_the_trail(
    uwf: Uwf, root: Path, thread: str, config: Callable[[str], Path], server: ModelServer
) -> None:
    config(
        f"providers: {{local: {{baseUrl: '{server.openai_url}'}}}}\n"
        "models: {small: {provider: local, name: tiny-1}}\ndefaultModel: small\n"
    )
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    server.play([status(503), says("no fields", usage=usage), says("---\ntext: done\n---\n", usage=usage)])
    uwf("thread", "step", thread, "--agent", "uwf-llm", env=ON)
    said = "\n".join(record["content"] for record in records(root))
    for line in (
        "builds a prompt of [0-9]+ characters",
        "asks tiny-1 of local, attempt 1",
        "local answers 503",
        "waits .* s before the next attempt",
        "asks tiny-1 of local, attempt 2",
        "small-2024 answered in [0-9]+ ms",
        "answer 1 has 1 problems",
        "asks the agent to correct its answer",
        "answer 2 has 0 problems",
        "step 1 is commit",
    ):
        found = re.search(line, said)
        assert found, f"{line}\n\n{said}"
        said = said[found.end() :]
    assert told(root, "answered in")[0]["usage"] == {
        "input": 100,
        "output": 10,
        "cached": 0,
        "written": 0,
    }


def test_an_exchange_leaves_a_trail(uwf: Uwf, root: Path, thread: str, tmp_path: Path) -> None:
    git("init", "--quiet", "--bare", tmp_path / "there.git")
    uwf("remote", "add", "origin", tmp_path / "there.git")
    uwf("push", "origin", env=ON)
    assert "pushes 2 of 2 refs to origin" in [each["content"] for each in records(root)]
    other = {**ON, "UWF_STORAGE_ROOT": str(tmp_path / "other")}
    uwf("init", env=other)
    uwf("remote", "add", "origin", tmp_path / "there.git", env=other)
    uwf("pull", "origin", env=other)
    said = [each["content"] for each in records(tmp_path / "other")]
    assert {"origin lists 2 refs", "fetches 2 refs of origin"} <= set(said)
    assert f"verifies refs/uwf/threads/{thread}: 0 findings" in said
    assert f"takes refs/uwf/threads/{thread} over: unknown" in said


# What must not be in it, and what it must not do


def test_no_secret_is_in_the_log(uwf: Uwf, root: Path, thread: str) -> None:
    (root / ".env").write_text(f"MY_KEY={SECRET}\n")
    token = "ghp_" + "a1B2" * 9
    agent = f"sh -c 'echo {token}; echo {SECRET} >&2; exit 1'"
    uwf("thread", "step", thread, "--agent", agent, env=ON, check=6)
    uwf("setup", "--provider", "openai", "--api-key", "a-key-nobody-knows-yet", env=ON, check=None)
    text = "".join(path.read_text() for path in (root / "store.git" / "uwf" / "logs").iterdir())
    assert "[redacted:MY_KEY]" in text
    assert not {each for each in (SECRET, token, "a-key-nobody-knows-yet") if each in text}


def test_without_a_log_there_is_no_file_and_logging_is_not_loaded(uwf: Uwf, root: Path, thread: str) -> None:
    for args in (["--version"], ["thread", "show", thread], ["thread", "step", thread]):
        argv = [sys.executable, "-X", "importtime", *UWF[1:], *args]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert not loaded & {"logging", "uwf_git.base.log_files", "uwf_git.base.log_calls"}
    uwf("thread", "show", thread, env={"UWF_LOG": "off"})
    assert not (root / "store.git" / "uwf" / "logs").exists()
    assert uwf("debug").json == []


def test_files_are_of_a_day_and_a_size_and_the_old_ones_go(uwf: Uwf, root: Path, thread: str) -> None:
    folder = root / "store.git" / "uwf" / "logs"
    folder.mkdir()
    day = datetime.datetime.now(datetime.UTC).date()
    full = json.dumps({"tag": "ZZZZZZZZ", "level": "info", "content": "x" * 99, "timestamp": 1}) + "\n"
    for name in (f"{day}", f"{day}.2"):
        (folder / f"{name}.jsonl").write_text(full * (LARGEST // len(full) + 1))
    for ago in (1, 13, 15, 400):
        (folder / f"{day - datetime.timedelta(ago)}.jsonl").write_text(full)
    (folder / "notes.txt").write_text("mine")
    uwf("thread", "show", thread, env=ON)
    kept = {f"{day - datetime.timedelta(ago)}.jsonl" for ago in (0, 1, 13)}
    assert {path.name for path in folder.iterdir()} == {
        *kept,
        f"{day}.2.jsonl",
        f"{day}.3.jsonl",
        "notes.txt",
    }
    assert "is called" in (folder / f"{day}.3.jsonl").read_text()
    for number in range(4, MOST + 4):
        (folder / f"{day}.{number}.jsonl").write_text(full * (LARGEST // len(full) + 1))
    uwf("thread", "show", thread, env=ON)
    left = {path.name for path in folder.glob("*.jsonl")}
    assert len(left) == MOST and f"{day}.{MOST + 4}.jsonl" in left and f"{day}.jsonl" not in left


def test_half_a_line_of_a_process_that_was_killed_hides_no_other(uwf: Uwf, root: Path, thread: str) -> None:
    uwf("thread", "show", thread, env=ON)
    before = records(root)
    file = next((root / "store.git" / "uwf" / "logs").iterdir())
    file.write_text(file.read_text() + '{"tag": "ZZZZ')
    uwf("thread", "show", thread, env=ON)
    shown = uwf("debug", "--last", "100").json
    assert shown[: len(before)] == before
    assert "is called" in shown[len(before)]["content"]


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_text(""), lambda path: path.symlink_to("/dev/full/x")]
)
def test_a_log_that_cannot_be_written_fails_nothing(
    uwf: Uwf, root: Path, thread: str, spoil: Callable[[Path], Any]
) -> None:
    spoil(root / "store.git" / "uwf" / "logs")
    done = uwf("thread", "step", thread, env=ON)
    assert done.json["role"] == "writer"
    assert done.err.count("cannot be written") == 1


def todays(root: Path) -> Path:
    """The file that today's log begins in, in a folder that is there."""
    folder = root / "store.git" / "uwf" / "logs"
    folder.mkdir()
    return folder / f"{datetime.datetime.now(datetime.UTC).date()}.jsonl"


@on_a_small_disk
def test_a_full_disk_fails_nothing(uwf: Uwf, root: Path, thread: str) -> None:
    file = todays(root)
    program = f"""
mount -t tmpfs -o size=4k none {file.parent} || exit 99
head -c 8192 /dev/zero > {file} 2>/dev/null
UWF_LOG=debug {" ".join(UWF)} thread step {thread}
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout)["role"] == "writer", done.stderr
    assert done.stderr.count("No space left") == 1


@pytest.mark.parametrize(
    ("put", "what"),
    [(os.mkfifo, "is not a file"), (lambda path: path.symlink_to(path.parent.parent / "mine"), "is a link")],
)
def test_what_stands_where_a_log_file_should_is_neither_waited_for_nor_followed(
    uwf: Uwf, root: Path, thread: str, put: Callable[[Path], Any], what: str
) -> None:
    file = todays(root)
    put(file)
    mine = file.parent.parent / "mine"
    mine.write_text("mine")
    done = uwf("thread", "step", thread, env=ON)
    assert done.json["role"] == "writer"
    assert done.err.count("cannot be written") == done.err.count(what) == 1
    assert mine.read_text() == "mine"
    assert uwf("debug").json == [] and uwf("debug", "33A585NA").json["records"] == []


@pytest.mark.parametrize(("value", "logged"), [("1", True), ("On", True), ("0", False), ("none", False)])
def test_the_log_is_asked_for_in_plain_words_too(uwf: Uwf, root: Path, value: str, logged: bool) -> None:
    uwf("init")
    assert uwf("thread", "list", env={"UWF_LOG": value}).err == ""
    assert (root / "store.git" / "uwf" / "logs").exists() == logged


def test_a_level_that_is_none_is_told_and_fails_nothing(uwf: Uwf, root: Path) -> None:
    uwf("init")
    done = uwf("thread", "list", env={"UWF_LOG": "loud"})
    assert done.json == [] and done.err.count("UWF_LOG is 'loud', which is not a level") == 1


def test_processes_that_log_at_the_same_time_tear_no_line(uwf: Uwf, root: Path) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    threads = [uwf("thread", "start", "pair", "-p", "Do it").json["thread"] for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        run = list(pool.map(lambda each: begin("thread", "step", each, env=ON).communicate()[0], threads))
    assert all(run)
    assert Counter(record["thread"] for record in told(root, "step 1 is commit")) == Counter(threads)
    assert len(told(root, "has done its work")) == len(threads)


def test_a_value_that_is_configured_is_not_in_the_log(uwf: Uwf, root: Path) -> None:
    uwf("init")
    for words in (["config", "set"], ["config", "--debug", "set"]):
        uwf(*words, "hooks.waiting", 'curl -H "X: hookpass123456"', env=ON)
    assert told(root, "config set hooks.waiting …") and told(root, "config --debug set hooks.waiting …")
    assert "hookpass" not in json.dumps(records(root))


def test_a_file_where_the_log_should_be_is_named_with_what_to_do(uwf: Uwf, root: Path) -> None:
    uwf("init")
    logs = root / "store.git" / "uwf" / "logs"
    logs.write_text("mine")
    assert (
        "logs cannot be written: it is not a folder; move what is there away"
        in uwf("thread", "list", env=ON).err
    )
    refused = uwf("debug", check=1).error
    assert "it is not a folder" in refused["message"] and refused["hint"] == f"mv {logs} {logs}.old"


def test_what_one_thread_is_about_is_in_no_record_of_another() -> None:
    found: list[tuple[str, object]] = []
    log.begin(log.DEBUG, lambda _level, _tag, content, fields: found.append((content, fields.get("thread"))))
    both = threading.Barrier(2, timeout=20)

    def tell(name: str) -> None:
        with log.about(thread=name):
            both.wait()
            log.debug("", name)
            both.wait()

    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(tell, ["one", "two"]))
    finally:
        log.end()
    assert sorted(found) == [("one", "one"), ("two", "two")]
