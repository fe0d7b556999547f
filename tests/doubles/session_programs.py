"""Doubles of the five agent programs whose sessions are kept: they take the programs' arguments, print their output,
and keep a conversation where and as these do. An answer says how many messages the program has heard in the session,
and the word that it was told in any of them ("The word is …"), so it tells a session from a retelling.

Variables make it do otherwise. `$DOUBLE_LINE`, or the file that it names after `@`, is added to the session with each
answer; `$DOUBLE_EXIT` is the exit status after one. With `$DOUBLE_FORGETS` it keeps nothing, with `$DOUBLE_BLIND` it
passes over what is no message, with `$DOUBLE_REFUSES` it cannot read what it is to resume. With `$DOUBLE_WAITS` it
hears a message with one of the texts in that file, names its session, and answers only once the file is gone.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from pathlib import Path

NAMES = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
}
"""The doubles, and the agents that call them."""


def install(folder: Path) -> None:
    """Put the doubles into a folder, for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -S {Path(__file__).absolute()} {name} "$@"\n')
        path.chmod(0o755)


def session_file(name: str, home: Path, cwd: Path, session: str) -> Path | None:
    """Where a double of this name keeps a session; None if it has none."""
    found = sorted(home.glob(_pattern(name, home, str(cwd), session)))
    return found[0] if found else None


def _pattern(name: str, home: Path, cwd: str, session: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9]", "-", cwd)
    if name == "gemini":
        marks = sorted((home / ".gemini/tmp").glob("*/.project_root"))
        project = next((mark.parent.name for mark in marks if mark.read_text() == cwd), "none")
        return f".gemini/tmp/{project}/chats/session-*-{session[:8]}.jsonl"
    return {
        "claude": f".claude/projects/{slug}/{session}.jsonl",
        "codex": f".codex/sessions/*/*/*/rollout-*-{session}.jsonl",
        "qwen": f".qwen/projects/{slug}/chats/{session}.jsonl",
        "opencode": f".local/share/opencode/{session}.json",
    }[name]


LOST = {
    "claude": "No conversation found with session ID: ",
    "codex": "Error: thread/resume failed: no rollout found for thread id ",
    "gemini": "Error resuming session: Invalid session identifier ",
    "qwen": "No saved session found with ID ",
    "opencode": "Error: Session not found: ",
}


def _after(args: list[str], *flags: str) -> str:
    return next((args[args.index(flag) + 1] for flag in flags if flag in args), "")


def _begun(name: str, home: Path, cwd: str, session: str) -> Path:
    pattern = _pattern(name, home, cwd, session)
    if name == "gemini" and "/none/" in pattern:
        folder = home / ".gemini/tmp" / (Path(cwd).name + "-" + uuid.uuid4().hex[:4])
        folder.mkdir(parents=True)
        (folder / ".project_root").write_text(cwd)
        pattern = _pattern(name, home, cwd, session)
    dated = pattern.replace("/*/*/*/", "/2026/01/02/").replace("-*-", "-2026-01-02T03-04-")
    path = home / dated
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _message(name: str, role: str, text: str, cwd: str) -> dict[str, object]:
    if name == "opencode":
        return {"info": {"role": role, "path": {"cwd": cwd}}, "parts": [{"type": "text", "text": text}]}
    return {"type": role, "cwd": cwd, "message": {"role": role, "content": text}}


def _outputs(name: str, session: str, text: str) -> list[dict[str, object]]:
    if name in ("claude", "qwen"):
        return [
            {"type": "system", "subtype": "init", "session_id": session, "model": "double"},
            {"type": "result", "subtype": "success", "session_id": session, "result": text},
        ]
    if name == "codex":
        return [
            {"type": "thread.started", "thread_id": session},
            {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
            {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
        ]
    if name == "gemini":
        return [
            {"type": "init", "session_id": session, "model": "double"},
            {"type": "message", "role": "assistant", "content": text, "delta": True},
            {"type": "result", "status": "success"},
        ]
    return [
        {"type": "text", "sessionID": session, "part": {"messageID": uuid.uuid4().hex, "text": text}},
        {"type": "step_finish", "sessionID": session, "part": {"reason": "stop"}},
    ]


def _read(name: str, path: Path) -> list[dict[str, object]]:
    if name == "opencode":
        return list(json.loads(path.read_text())["messages"])
    if "DOUBLE_BLIND" in os.environ:
        path = Path(os.path.realpath(path))
        return [{} for line in path.read_bytes().splitlines()]
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write(
    name: str, path: Path, session: str, before: int, lines: list[dict[str, object]], cwd: str
) -> None:
    if name != "opencode":
        with path.open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines[before:])
        return
    info = {"id": session, "directory": cwd, "time": {"updated": len(lines)}}
    path.write_text(json.dumps({"info": info, "messages": lines}, indent=2))


def _export_or_import(args: list[str], home: Path) -> int:
    if args[0] == "export":
        path = home / _pattern("opencode", home, "", args[1])
        if not path.exists():
            print(f"{LOST['opencode']}{args[1]}", file=sys.stderr)
            return 1
        print(path.read_text())
        return 0
    value = json.loads(Path(args[1]).read_text())
    path = home / _pattern("opencode", home, "", value["info"]["id"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
    return 0


def main(name: str, args: list[str]) -> int:
    home, cwd = Path(os.environ["HOME"]), str(Path.cwd())
    if name == "opencode" and args[0] in ("export", "import"):
        return _export_or_import(args, home)
    if "--input-format" in args:
        message = json.loads(sys.stdin.readline())["message"]
        prompt = "".join(part["text"] for part in message["content"])
    else:
        prompt = sys.stdin.read()
    session = _after(args, "--resume", "--session", "resume")
    new = not session
    if new:
        session = _after(args, "--session-id") or str(uuid.uuid4())
    path = _begun(name, home, cwd, session) if new else session_file(name, home, Path(cwd), session)
    if path is None or (not new and "DOUBLE_REFUSES" in os.environ):
        print(f"{LOST[name]}{session}", file=sys.stderr)
        return 1
    lines = [] if new else _read(name, path)
    before = len(lines)
    lines.append(_message(name, "user", prompt, cwd))
    if line := os.environ.get("DOUBLE_LINE"):
        lines.append(json.loads(Path(line[1:]).read_text() if line.startswith("@") else line))
    waits = Path(os.environ.get("DOUBLE_WAITS", "/"))
    if waits.is_file() and any(each in prompt for each in waits.read_text().split("|")):
        _write(name, path, session, before, lines, cwd)
        before = len(lines)
        print(json.dumps(_outputs(name, session, "")[0]), flush=True)
        while waits.exists():
            time.sleep(0.05)
    heard = sum('"role": "user"' in json.dumps(line) for line in lines)
    word = re.search(r"The word is (\w+)", json.dumps(lines))
    text = (
        f"---\nstatus: again\nheard: {heard}\nword: {word[1] if word else 'none'}\n---\n\nI work in {cwd}.\n"
    )
    lines.append(_message(name, "assistant", text, cwd))
    _write(name, path, session, before, lines, cwd)
    if "DOUBLE_FORGETS" in os.environ:
        path.unlink()
    for each in _outputs(name, session, text):
        print(json.dumps(each), flush=True)
    return int(os.environ.get("DOUBLE_EXIT", "0"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
