"""Sessions that the programs of agents have logged become threads. The logs are those of the real programs, shortened:
examples/sessions and tests/doubles/session-logs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import git
from conftest import EXAMPLES, Uwf

from uwf_git.ext.agents.cli.row import parse_row
from uwf_git.ext.agents.cli.rows import shipped_names, shipped_row, shipped_value
from uwf_git.ext.agents.cli.session_reading import read_session

CLAUDE = EXAMPLES / "sessions" / "claude-code.jsonl"
DOUBLES = Path(__file__).parents[1] / "doubles" / "session-logs"
LOGS = {
    "claude-code": CLAUDE,
    **{name: DOUBLES / f"{name}.jsonl" for name in ("codex", "gemini", "qwen")},
    "opencode": DOUBLES / "opencode.json",
}
SECRET = "b7Qm2zX9wL4tR8vK1nY6"


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def write(log: Path, lines: list[dict[str, Any]]) -> Path:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log


def imported(uwf: Uwf, log: Path) -> dict[str, Any]:
    value: dict[str, Any] = uwf("import", "session", log).json[0]
    return value


@pytest.mark.parametrize("agent", LOGS)
def test_a_session_becomes_a_thread_with_a_step_for_each_message(uwf: Uwf, agent: str) -> None:
    session = imported(uwf, LOGS[agent])
    assert (session["agent"], session["state"], session["steps"], session["pending"]) == (
        agent,
        "new",
        2,
        False,
    )
    thread = session["thread"]
    steps = uwf("thread", "steps", thread).json
    assert [step["role"] for step in steps] == ["agent", "$USER", "agent"]
    assert steps[0]["agent"] == f"uwf-{agent}"
    assert [step["output"].get("question", step["output"].get("answer")).strip('"') for step in steps] == [
        "The note says old.",
        "Thanks. And what else?",
        "Nothing else.",
    ]
    details = [uwf("cas", "get", steps[at]["detail"]).json["payload"] for at in (0, 2)]
    turns = [uwf("cas", "get", turn).json["payload"] for turn in details[0]["turns"]]
    assert [(turn["role"], turn["text"]) for turn in turns[::2]] == [
        ("assistant", "I read the note."),
        ("assistant", "The note says old."),
    ]
    assert (
        turns[1]["role"] == "tool"
        and "old" in turns[1]["text"]
        and "note.txt" in json.dumps(turns[1]["arguments"])
    )
    # As the scripted model counted them: two requests, then one.
    usages = [
        (detail["usage"]["input"], detail["usage"]["output"], detail["usage"]["cached"]) for detail in details
    ]
    assert usages == ([(270, 14, 50), (180, 7, 70)] if agent == "codex" else [(240, 14, 20), (150, 7, 40)])
    assert {detail["model"] for detail in details} == {
        "gemini-2.5-flash" if agent == "gemini" else "scripted"
    }
    assert all(detail["session"] == session["session"] for detail in details)
    assert 0 < details[0]["durationMs"] < 10_000
    assert uwf("thread", "show", thread).json["status"] == "waiting"
    assert uwf("verify").json["findings"] == []


def test_each_row_that_keeps_files_of_sessions_reads_them() -> None:
    rows = {name: shipped_row(name) for name in shipped_names()}
    assert {name for name, row in rows.items() if row and row.sessions and row.sessions.lines} == LOGS.keys()
    assert all(not parse_row(shipped_value(name), name)[1] for name in LOGS)
    value = shipped_value("codex")
    del value["sessions"]["lines"]["time"]
    assert [problem.text for problem in parse_row(value, "codex")[1]] == ["sessions.lines needs time"]


def test_importing_again_adds_only_what_is_new(uwf: Uwf, tmp_path: Path) -> None:
    lines = lines_of(CLAUDE)
    second = next(at for at, line in enumerate(lines) if "And what else" in str(line.get("message")))
    log = write(tmp_path / "log.jsonl", lines[: second + 1])
    first = imported(uwf, log)
    assert (first["steps"], first["pending"]) == (1, True)
    head = uwf("thread", "show", first["thread"]).json["head"]
    write(log, lines)
    grown = imported(uwf, log)
    assert (grown["thread"], grown["state"], grown["steps"], grown["added"]) == (
        first["thread"],
        "grown",
        2,
        1,
    )
    assert uwf("thread", "steps", first["thread"]).json[0]["step"] == head
    assert imported(uwf, log)["state"] == "here"
    assert len(uwf("thread", "list", "--all", "--all-projects").json) == 1


def test_the_same_log_makes_the_same_thread_in_another_store(uwf: Uwf, tmp_path: Path) -> None:
    here = imported(uwf, CLAUDE)["thread"]
    there = uwf("--root", tmp_path / "other", "import", "session", CLAUDE).json[0]["thread"]
    heads = [
        uwf(*root, "thread", "log", here).json[0]["commit"] for root in ((), ("--root", tmp_path / "other"))
    ]
    assert here == there and heads[0] == heads[1]


def test_a_thread_that_went_on_here_is_left_alone(uwf: Uwf, tmp_path: Path) -> None:
    thread = imported(uwf, CLAUDE)["thread"]
    uwf("thread", "answer", thread, "-m", "Now write new.")
    uwf("thread", "step", thread, "--agent", 'uwf-exec sh -c \'echo "{\\"summary\\": \\"It says new.\\"}"\'')
    lines = lines_of(CLAUDE)
    more = [{**line, "uuid": f"{number}"} for number, line in enumerate(lines) if "message" in line]
    assert imported(uwf, write(tmp_path / "log.jsonl", [*lines, *more]))["state"] == "went on"
    assert len(uwf("thread", "steps", thread).json) == 5
    assert uwf("verify").json["findings"] == []


def test_a_removed_thread_does_not_come_back(uwf: Uwf) -> None:
    thread = imported(uwf, CLAUDE)["thread"]
    uwf("thread", "rm", thread, "--yes")
    error = uwf("import", "session", CLAUDE, check=1).error
    assert error["hint"] == f"uwf thread restore {thread}"


def test_secrets_stay_out_of_the_store(uwf: Uwf, root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / ".env").write_text(f"MODEL_KEY={SECRET}\n")
    log = tmp_path / "log.jsonl"
    log.write_text(CLAUDE.read_text().replace("note.txt", SECRET).replace("Thanks.", f"Thanks, {SECRET}."))
    assert imported(uwf, log)["secrets"] == 2
    assert uwf("grep", SECRET, "--all-projects", check=None).json == []


def test_only_words_of_the_person_are_messages() -> None:
    row = shipped_row("claude-code")
    assert row is not None
    lines = lines_of(CLAUDE)
    user = next(line for line in lines if line["type"] == "user")
    asides: list[dict[str, Any]] = [
        {**user, "isMeta": True, "message": {"role": "user", "content": "Caveat: local commands follow."}},
        {**user, "isSidechain": True, "message": {"role": "user", "content": "A subagent's task."}},
        {**user, "isCompactSummary": True, "message": {"role": "user", "content": "What was said so far."}},
        *(
            {**user, "message": {"role": "user", "content": text}}
            for text in (
                "<command-name>/clear</command-name>",
                "<local-command-stdout>done</local-command-stdout>",
                [{"type": "text", "text": "[Request interrupted by user]"}],
                "  ",
            )
        ),
    ]
    read = read_session(row, "uwf-claude-code", [json.dumps(line).encode() for line in [*asides, *lines]])
    assert read is not None
    assert [exchange.prompt for exchange in read.logged.exchanges] == [
        "What does the note say?",
        "Thanks. And what else?",
    ]


def test_an_interrupted_answer_is_kept_with_a_note(uwf: Uwf, tmp_path: Path) -> None:
    lines = [line for line in lines_of(CLAUDE) if "The note says" not in json.dumps(line)]
    thread = imported(uwf, write(tmp_path / "log.jsonl", lines))["thread"]
    detail = uwf("cas", "get", uwf("thread", "steps", thread).json[0]["detail"]).json["payload"]
    assert detail["notes"] == ["the agent was interrupted before the end of its answer"]
    assert detail["answer"] == "I read the note."


def test_the_sessions_of_the_project_are_listed_and_imported_by_id(
    uwf: Uwf, tmp_path: Path, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "shop", tmp_path / "elsewhere"
    git("init", "-q", project)
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder, agent in ((project, "claude-code"), (elsewhere, "codex"), (project / "src", "codex")):
        text = LOGS[agent].read_text().replace("/home/ada/project", str(folder))
        slug = "".join(letter if letter.isalnum() else "-" for letter in str(folder))
        place = (
            f".claude/projects/{slug}/s1.jsonl"
            if agent == "claude-code"
            else f".codex/sessions/2026/1/2/rollout-{folder.name}-s2.jsonl"
        )
        path = tmp_path / "home" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if folder != elsewhere else text.replace("01a22fd6", "01a22fd7"))
    listed = uwf("import", "session").json
    assert {log["agent"] for log in listed} == {"claude-code", "codex"} and len(listed) == 2
    assert all(log["thread"] is None and log["prompt"] == "What does the note say?" for log in listed)
    assert not (tmp_path / "root" / "store.git").exists()
    claude = next(log["session"] for log in listed if log["agent"] == "claude-code")
    thread = uwf("import", "session", claude[:8]).json[0]["thread"]
    assert [log["thread"] for log in uwf("import", "session", "--agent", "claude-code").json] == [thread]
    assert {log["state"] for log in uwf("import", "session", "--all").json} == {"new", "here"}
    assert {log["project"] for log in uwf("thread", "list", "--all").json} == {"shop"}


def test_other_files_and_names_are_refused(uwf: Uwf, tmp_path: Path) -> None:
    note = tmp_path / "note.jsonl"
    note.write_text('{"type": "note"}\nwords\n')
    assert "is not a session of" in uwf("import", "session", note, check=1).error["message"]
    assert uwf("import", "session", "9e588e69", check=3).error["hint"] == "list them: uwf import session"
    assert (
        uwf("import", "session", "--agent", "claud", check=2).error["hint"] == 'did you mean "claude-code"?'
    )
    shutil.copy(CLAUDE, tmp_path / "log.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "log.jsonl")
    assert "cannot read" in uwf("import", "session", tmp_path / "link", check=3).error["message"]
