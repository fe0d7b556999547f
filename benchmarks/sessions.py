"""Sessions of agent programs: on to another machine, and what keeping one costs a step."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from measure import fastest
from rows import Row, Size, cost
from stores import NOT_AT_ITS_END, UWF, Lab

from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

LOOP = b"""
name: loop
description: A role that comes back.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema:
      type: object
      properties: {status: {enum: [again, done]}}
      required: [status]
graph:
  $START: {_: worker}
  worker: {again: worker, done: $END}
"""

# As claude keeps a session and answers; a new session begins with what the seed has.
_PROGRAM = r"""#!/bin/sh
read -r _prompt
date +%s.%N >"$HOME/prompted"
echo "$*" >"$HOME/called"
for word; do case "$before" in --session-id | --resume) session=$word ;; esac; before=$word; done
folder=$HOME/.claude/projects/$(pwd -P | sed 's/[^A-Za-z0-9]/-/g')
mkdir -p "$folder"
file=$folder/$session.jsonl
case " $* " in
*" --resume "*) [ -f "$file" ] || { echo "No conversation found with session ID: $session" >&2; exit 1; } ;;
*) cp "$HOME/seed" "$file" ;;
esac
printf '%s\n' '{"type":"user","message":{"role":"user","content":"more"}}' >>"$file"
answer='---\nstatus: again\n---\n\nNot yet.\n'
printf '%s\n' '{"type":"system","subtype":"init","session_id":"'"$session"'","model":"m"}' \
    '{"type":"result","subtype":"success","session_id":"'"$session"'","result":"'"$answer"'"}'
"""
_AGENT = "uwf-claude-code"


def _git(*words: object) -> str:
    return subprocess.run(["git", *map(str, words)], check=True, capture_output=True, text=True).stdout


def _environ(folder: Path, seed: int) -> dict[str, str]:
    """The environment of a machine whose program begins sessions of `seed` kilobytes."""
    home, programs = folder / "home", folder / "programs"
    home.mkdir(parents=True)
    programs.mkdir()
    (programs / "claude").write_text(_PROGRAM)
    (programs / "claude").chmod(0o755)
    with (home / "seed").open("w") as file:
        for number in range(seed):
            words = " ".join(f"word{(number * 31 + place * 7) % 1009}" for place in range(120))
            line = {"type": "assistant", "cwd": str(folder), "message": {"content": words}}
            file.write(f"{json.dumps(line)}\n")
    person = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join((str(programs), os.environ.get("PATH", os.defpath)))
    return {"HOME": str(home), "PATH": path, "UWF_STORAGE_ROOT": str(folder / "store"), **person}


class _Machine:
    def __init__(self, folder: Path, site: Path, seed: int = 0) -> None:
        self.folder = folder
        self.environ = _environ(folder, seed)
        _git("clone", "-q", site / "project.git", folder / "clone")
        self("init")
        self("config", "set", "sessions", "keep")
        self("config", "set", "workspace.remote", "origin")
        self("remote", "add", "origin", site / "threads.git")

    def __call__(self, *words: object) -> str:
        argv, place = [UWF, *map(str, words)], self.folder / "clone"
        done = subprocess.run(argv, env=self.environ, cwd=place, check=False, capture_output=True, text=True)
        if done.returncode not in (0, NOT_AT_ITS_END):
            done.check_returncode()
        return done.stdout


def going_on(folder: Path, size: Size) -> Iterator[Row]:
    """`uwf continue` on a machine with an empty store, until the program has its prompt in its session."""
    folder.mkdir()
    kilobytes = 2000 if size.turns > 2 else 20
    _git("init", "-q", "-b", "main", folder / "begin")
    person = ("-c", "user.name=a", "-c", "user.email=a@b")
    _git("-C", folder / "begin", *person, "commit", "-q", "--allow-empty", "-m", "first")
    _git("clone", "-q", "--bare", folder / "begin", folder / "project.git")
    _git("init", "-q", "--bare", folder / "threads.git")
    here = _Machine(folder / "here", folder, kilobytes)
    (folder / "loop.yaml").write_bytes(LOOP)
    here("workflow", "put", folder / "loop.yaml")
    started = here("thread", "start", "loop", "-p", "Work.", "--workspace", "worktree", "--json")
    thread = json.loads(started)["thread"]
    here("thread", "step", thread, "--agent", _AGENT)
    here("push")
    best = float("inf")
    for number in range(size.few_turns):
        there = _Machine(folder / f"there{number}", folder)
        began = time.time()
        there("continue", thread, "--agent", _AGENT, "--max-steps", "1")
        best = min(best, float((there.folder / "home/prompted").read_text()) - began)
        if "--resume" not in (there.folder / "home/called").read_text():
            raise RuntimeError("the session was not resumed")
    yield cost(f"uwf continue elsewhere, to the prompt in a session of {kilobytes} KB", best, 5.0)


def keeping(folder: Path, size: Size) -> Iterator[Row]:
    """A step that keeps its session, over the same step that doesn't."""
    for kilobytes, limit in ((200, 0.1), (5000, 0.6)):
        environ = _environ(folder / str(kilobytes), kilobytes if size.turns > 2 else 20)
        os.environ.update(environ)
        lab = Lab(Path(environ["UWF_STORAGE_ROOT"]), LOOP)
        (lab.root / "config.yaml").write_text("sessions: keep\n")
        keeps = Instance(lab.location, {})
        mine, plain = lab.start(), lab.start()

        def turn(instance: Instance, thread: ThreadId, place: Path = lab.root) -> float:
            began = time.perf_counter()
            step(instance, thread, _AGENT, place)
            return time.perf_counter() - began

        with_it, without = fastest(
            size.few_turns,
            lambda keeps=keeps, mine=mine, turn=turn: turn(keeps, mine),  # type: ignore[misc]
            lambda lab=lab, plain=plain, turn=turn: turn(lab.instance, plain),  # type: ignore[misc]
        )
        yield cost(f"keeping a session of {kilobytes} KB, over a step without", with_it - without, limit)
