"""Writes a store by the command, as a bundle: a node of every kind, and refs of all kinds that a store can have.

    make fixture-store        for the version of uwf_git/base/version.py

Each call of the command has a clock that stands still, and the ids of threads follow from it; only what a key signed
differs between two runs. The bundle of a release isn't written again for a later version: that version has to read it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "examples"
BEGIN = 1_767_225_600  # 2026-01-01, in Unix seconds
CLOCK = "FORMAT_1_CLOCK"
_RANDOM_OF_IDS = 10  # bytes; other random numbers name files and stay as they are

GATED = """\
name: release
description: A release that two people approve.
workspace: shared
budget: { maxSteps: 40, maxCost: 5 }
roles:
  builder:
    description: Builds it.
    goal: A release that can be shipped.
    capabilities: [build]
    procedure: Build, then say what was built.
    output: The version.
    timeout: 600
    retry: { times: 2, backoff: 5, on: [throttled] }
    fallback: uwf-rehearse
    extractPrompt: Take the version.
    tools: { deny: [fetch], network: false }
    frontmatter: { type: object, properties: { text: { type: string } }, required: [text] }
  gate:
    description: Decides whether it is released.
    human: true
    assignee: ann@example.invalid
    approvers: [ann@example.invalid, bob@example.invalid]
    quorum: 2
    notAuthor: true
    outputSchema:
      type: object
      properties: { $status: { enum: [ship, stop] } }
      required: [$status]
graph:
  $START: { _: { role: builder }, resume: { role: builder, prompt: "Once more: {{ answer }}" } }
  builder: { _: { role: gate, prompt: "Ship {{ text }}?" } }
  gate: { ship: $END, stop: { role: $FAIL, prompt: The gate said no. } }
"""
FANNING = """\
name: audit
description: Audits files, each in a branch.
roles:
  lister:
    description: Names the files.
    systemPrompt: Name them.
    outputSchema: { type: object, properties: { files: { type: array, items: { type: string } } }, required: [files] }
  auditor:
    description: Audits a file.
    systemPrompt: Audit it.
    outputSchema: { type: object, properties: { sound: { type: boolean } }, required: [sound] }
graph:
  $START: [{ role: lister }]
  lister:
    - each: steps[-1].output.files
      as: file
      role: auditor
      prompt: "Audit {{ file }}."
      need: 50%
      join: $END
  auditor: [{ role: $END }]
"""
DUET = """\
from uwf_git.workflow import define

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def next_role(ctx):
    return None if len(ctx.steps) == 1 else "writer"


workflow = define(
    name="solo",
    description="One writes.",
    roles={"writer": {"description": "writes", "systemPrompt": "Write.", "schema": TEXT}},
    moderator=next_role,
    max_rounds=3,
)
"""
SCRIPT = """\
export const meta = { name: "asked", description: "Asks two agents.", phases: [{ title: "Ask" }] };
const schema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
const answers = [];
for (const each of ["one", "two"]) answers.push(await agent(`Write ${each}.`, { schema }));
return { answers };
"""


def freeze(seconds: int) -> None:
    """Let the clock of this process stand still, and the ids of its threads follow from the time."""
    numbers, urandom = random.Random(seconds), os.urandom
    time.time = lambda: float(seconds)
    time.time_ns = lambda: seconds * 1_000_000_000
    time.monotonic = lambda: 1000.0
    os.urandom = lambda size: numbers.randbytes(size) if size == _RANDOM_OF_IDS else urandom(size)


class Author:
    """Writes the store below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self._clock = itertools.count(BEGIN, 60)
        (folder / "frozen").mkdir()
        hook = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        (folder / "frozen/sitecustomize.py").write_text(
            f"{hook}import os, format_1\nformat_1.freeze(int(os.environ[{CLOCK!r}]))\n"
        )
        for name in ("ada", "ann", "bob"):
            (folder / f"{name}.gitconfig").write_text(
                f"[user]\n\tname = {name.title()}\n\temail = {name}@example.invalid\n[init]\n\tdefaultBranch = main\n"
            )
        (folder / "work").mkdir()

    @property
    def git_dir(self) -> Path:
        return self.home / "root/store.git"

    def environment(self, by: str = "ada") -> dict[str, str]:
        now = next(self._clock)
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self.home / f"{by}.gitconfig"),
            "GIT_AUTHOR_DATE": f"{now} +0000",
            "GIT_COMMITTER_DATE": f"{now} +0000",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(self.home / "frozen"),
            "UWF_STORAGE_ROOT": str(self.home / "root"),
            "UWF_FORMAT": "json",
            CLOCK: str(now),
        }

    def __call__(self, *args: str | Path, by: str = "ada", cwd: str = "work", check: bool = True) -> Any:
        """Run `uwf` as somebody; return its JSON."""
        command = [sys.executable, "-P", "-c", "from uwf_cli.main import main; main()", *map(str, args)]
        done = subprocess.run(
            command,
            cwd=self.home / cwd,
            env=self.environment(by),
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check and done.returncode:
            raise SystemExit(
                f"uwf {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        try:
            return json.loads(done.stdout)
        except ValueError:
            return None  # a line for each step

    def git(self, *args: str | Path, cwd: str = "work") -> str:
        command = ["git", *map(str, args)]
        done = subprocess.run(
            command, cwd=self.home / cwd, env=self.environment(), check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    def file(self, name: str, content: str | Mapping[str, Any]) -> Path:
        path = self.home / "work" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def start(self, workflow: str | Path, prompt: str, *more: str, cwd: str = "work") -> str:
        return str(self("thread", "start", workflow, "-p", prompt, *more, cwd=cwd)["thread"])

    def step(self, thread: str, output: Mapping[str, Any] | None = None) -> str:
        """Make a step, rehearsed or with an output; return its node."""
        if output is not None:
            self.file("output.json", output)
        agent = "uwf-rehearse" if output is None else "uwf-exec cat output.json"
        return str(self("thread", "step", thread, "--agent", agent)["head"])

    def write(self) -> None:
        self("init")
        self("workflow", "put", EXAMPLES / "solve-issue.yaml")
        self.threads()
        self.people()
        self.branches()
        self.code()
        self.crew()
        self.results()
        self.hands()
        self.sharing()
        self.landing()
        self.policy()
        self._inside("caching")

    def threads(self) -> None:
        """A thread in each state, an attempt, a question with its answer, a remark, a fork."""
        done = self.start("solve-issue", "Quote commas.")
        self("thread", "run", done, "--agent", "uwf-rehearse")
        plan = {"plan": "look", "steps": ["look", "mend"]}
        asked = self.start("solve-issue", "Which zone?", "--max-steps", "9")
        self.step(asked, {"$status": "$SUSPEND", "question": "UTC?", "options": ["yes", "no"]})
        answered = self.start("solve-issue", "Which colour?")
        self.step(answered, {"$status": "$SUSPEND", "question": "Red?"})
        self("thread", "answer", answered, "-m", "Blue.")
        self.step(answered, plan)
        self("thread", "say", answered, "-m", "Not too dark.")
        self("thread", "fork", answered, "--at", "3")
        failed = self.start("solve-issue", "Divide by zero.")
        self.step(failed, plan)
        self("thread", "step", failed, "--agent", "uwf-exec false", check=False)
        killed = self.start("solve-issue", "Move it.")
        self("thread", "kill", killed, "--reason", "not now")
        paused = self.start("solve-issue", "Wait a little.")
        self("thread", "pause", paused, "-m", "until Monday")
        removed = self.start("solve-issue", "By mistake.")
        self("thread", "rm", removed, "--yes")

    def people(self) -> None:
        """Gates: passed, waiting with an approval, taken back, and failed."""
        self("workflow", "put", self.file("release.yaml", GATED))
        for prompt, answers in (("v1", ("ship", "ship")), ("v2", ("ship",)), ("v3", ("stop", "stop"))):
            thread = self.start("release", prompt)
            self.step(thread, {"text": prompt})
            for person, answer in zip(("ann", "bob"), answers, strict=False):
                self("thread", "answer", thread, "-f", f"$status={answer}", by=person, check=answer == "ship")
            if prompt == "v2":
                self("thread", "answer", thread, "--revoke", "-m", "not yet", by="ann")

    def branches(self) -> None:
        """A fan-out that was joined."""
        self("workflow", "put", self.file("audit.yaml", FANNING))
        thread = self.start("audit", "Audit it all.", "--max-steps", "30")
        self.step(thread, {"files": ["a.py", "b.py"]})
        self("thread", "step", thread)
        branches = {row["thread"] for row in self("thread", "list", "--all") if row["name"] == "audit"}
        self.step(min(branches - {thread}), {"sound": True})
        self("thread", "step", thread, check=False)

    def code(self) -> None:
        """Code workflows: one by role, one with calls."""
        for name, text in (("solo.py", DUET), ("asked.js", SCRIPT)):
            self("workflow", "put", self.file(name, text))
            thread = self.start(Path(name).stem, "Two lines.")
            self("thread", "run", thread, "--agent", "uwf-rehearse", check=False)

    def crew(self) -> None:
        self("crew", "import", EXAMPLES / "crew/press")
        self("crew", "do", "press", "release notes", "-p", "Version 3.")

    def results(self) -> None:
        """A suite with a run, its baseline, and a case that counts no longer."""
        cases = {"suite": "issues", "judges": [{"jsonata": "0.75"}]}
        cases["cases"] = [{"name": name, "prompt": f"Do {name}."} for name in ("quoting", "zones")]
        self("eval", "import", self.file("issues.yaml", cases))
        self("eval", "run", "issues", "--workflow", "solve-issue", "--agent", "uwf-rehearse", "-j", "1")
        self("eval", "baseline", "set", "issues")
        self("eval", "remove", "issues", "zones")

    def hands(self) -> None:
        """A node put by hand, an imported store, an attempt at code in a worktree."""
        self("cas", "put", "Text", '"kept"')
        self("import", EXAMPLES / "old-store")
        self.git("init", "-q", "project", cwd=".")
        (self.home / "project/a.txt").write_text("a\n")
        (self.home / "project/plan.json").write_text('{"plan": "b", "steps": ["b"]}\n')
        self.git("add", ".", cwd="project")
        self.git("commit", "-q", "-m", "first", cwd="project")
        (self.home / "project/.git/uwf-project").write_text("0123456789abcdef" * 2 + "\n")
        thread = self.start("solve-issue", "Change a.", "--workspace", "worktree", cwd="project")
        self(
            "thread",
            "step",
            thread,
            "--agent",
            "uwf-exec sh -c 'echo b >a.txt; cat plan.json'",
            cwd="project",
        )
        self._inside("session")

    def sharing(self) -> None:
        """A remote, a proposal, a pause that was lifted, a fold, and refs that this store keeps for itself."""
        self.git("init", "-q", "--bare", self.home / "hub.git")
        self("remote", "add", "hub", self.home / "hub.git")
        self("gc", "--fold-before", "2026-02-01")
        self("push", "hub")
        paused = self.start("solve-issue", "Not yet.")
        self("thread", "pause", paused)
        self("push", "hub")
        self("thread", "resume", paused)
        text = (
            (EXAMPLES / "solve-issue.yaml").read_text().replace("description: ", "description: Proposed. ", 1)
        )
        proposed = self.file("solve-issue.yaml", text)
        self("workflow", "propose", proposed, "--remote", "hub", "--branch", "proposed")
        commit = self.git("--git-dir", self.git_dir, "rev-parse", "refs/uwf/workflows/audit")
        self.git("--git-dir", self.git_dir, "update-ref", "refs/uwf/local/room/kept", commit)

    def landing(self) -> None:
        """Effects, a check, a removal by rule, and a thread that a remote has rewritten."""
        rules = {
            "land": {"checks": ['sh -c "echo tried"']},
            "keep": {"default": "forever", "workflows": {"solo": "1ms"}},
        }
        (self.home / "root/config.yaml").write_text(json.dumps(rules))
        thread = self.start("solve-issue", "Land it.", "--workspace", "worktree", cwd="project")
        writes = "uwf-exec sh -c 'echo c >a.txt; cat plan.json'"
        self("thread", "step", thread, "--agent", writes, cwd="project")
        self("thread", "run", thread, "--agent", "uwf-rehearse", cwd="project")
        self("land", thread, cwd="project")
        self("effect", "run", "--thread", thread, "--", "true")
        self("expire", "--yes")
        self("push", "hub")
        moved = self.start("solve-issue", "It is rewritten.")
        self.step(moved, {"plan": "p", "steps": ["s"]})
        self("push", "hub")
        name = f"refs/uwf/threads/{moved}"
        tree, parent = self.git(
            "--git-dir", self.git_dir, "rev-parse", f"{name}^{{tree}}", f"{name}^"
        ).split()
        text = self.git("--git-dir", self.git_dir, "log", "-1", "--format=%B", name)
        other = self.git("--git-dir", self.home / "hub.git", "commit-tree", tree, "-p", parent, "-m", text)
        self.git("--git-dir", self.home / "hub.git", "update-ref", name, other)
        self("pull", "hub", check=False)

    def policy(self) -> None:
        """A trust policy of Ann's, which requires nothing."""
        key = self.home / "key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ann", "-f", str(key)], check=True
        )
        signing = f"\tsigningKey = {key}.pub\n[gpg]\n\tformat = ssh\n[commit]\n\tgpgSign = true\n"
        plain = (self.home / "ann.gitconfig").read_text()
        (self.home / "ann.gitconfig").write_text(plain.replace("[init]", f"{signing}[init]"))
        self("trust", "init", by="ann")

    def _inside(self, name: str) -> None:
        """Call a function of this file in a process of its own."""
        path = os.pathsep.join(map(str, (Path(__file__).parent, TESTS / "doubles", TESTS)))
        code = (
            f"import sys; sys.path[:0] = {path!r}.split({os.pathsep!r}); import format_1; format_1.{name}()"
        )
        subprocess.run(
            [sys.executable, "-c", code], cwd=self.home / "work", env=self.environment(), check=True
        )

    def bundle(self, target: Path) -> None:
        self.git("--git-dir", self.git_dir, "bundle", "create", target.absolute(), "--all")


def session() -> None:
    """Make a step whose Detail has what an agent's program kept, prices, removed secrets and a raised budget."""
    from workflows import opened

    from uwf_git.engine.next_turn import outlook_of
    from uwf_git.format.kinds import Detail, Session, SessionFile, Start, Step, TurnRecord, Usage
    from uwf_git.format.types import DETAIL, SESSION, STEPNODE, TEXT, TURN
    from uwf_git.git.repository import Oid

    instance = opened()
    store, version = instance.store, instance.registry.current("solve-issue")
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, "Show all of it."))
    history = instance.threads.history(instance.threads.head(thread))
    with store.together():
        records = (
            TurnRecord("assistant", "I look.", usage=Usage(900, 40, 100), duration_ms=700, model="m-1"),
            TurnRecord("tool", "", "ls", {"path": "."}, "a.txt", duration_ms=3, call="call-1", failed=False),
            TurnRecord("assistant", "Found it.", usage=Usage(950, 30, 900), duration_ms=500, model="m-1"),
        )
        text = store.put(TEXT, '{"type":"user"}\n')
        kept = Session("claude-code", "s-1", "/work", (SessionFile("work/s-1.jsonl", (text,)),))
        detail = Detail(
            "Found it.",
            tuple(store.put(TURN, record.payload()) for record in records),
            session="s-1",
            model="m-1",
            usage=Usage(1850, 70, 1000),
            duration_ms=1203,
            context=history.head,
            extraction="correction",
            cost=0.0123,
            notes=("a note",),
            budget={"maxSteps": 12},
            redactions=(("answer", 1),),
            kept=store.put(SESSION, kept.payload()),
        )
        output = store.put(history.workflow.roles["planner"].schema, {"plan": "p", "steps": ["s"]})
        step = Step(
            history.start_hash,
            None,
            "planner",
            output,
            store.put(DETAIL, detail.payload()),
            "uwf-claude-code",
        )
        node = store.put(STEPNODE, step.payload())
        instance.threads.append(instance.threads.head(thread), node, set(), (), "correction")
    outlook_of(instance, instance.threads.history(instance.threads.head(thread)))


def caching() -> None:
    """Make a thread about an issue, with a step whose tokens were written into a provider's cache."""
    import hashlib

    from workflows import opened

    from uwf_git.format.kinds import Detail, Start, StartIssue, Step, TurnRecord, Usage
    from uwf_git.format.types import STEPNODE
    from uwf_git.git.repository import Oid

    instance = opened()
    store, version = instance.store, instance.registry.current("solve-issue")
    text = "Commas are not quoted."
    digest = hashlib.sha256(text.encode()).hexdigest()
    url = "https://forge.example/shop/issues/7"
    issue = StartIssue(url, 7, "Commas", "ada", ("bug",), BEGIN, len(text), digest)
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, text, issue=issue))
    history = instance.threads.history(instance.threads.head(thread))
    usage = Usage(900, 40, 100, written=60)
    with store.together():
        turn = TurnRecord("assistant", "I look.", usage=usage, model="m-1")
        turns = (store.put(turn.type, turn.payload()),)
        detail = Detail("Found it.", turns, model="m-1", usage=usage, duration_ms=3, extraction="frontmatter")
        output = store.put(history.workflow.roles["planner"].schema, {"plan": "p", "steps": ["s"]})
        kept = store.put(detail.type, detail.payload())
        step = Step(history.start_hash, None, "planner", output, kept, "uwf-claude-code")
        node = store.put(STEPNODE, step.payload())
        instance.threads.append(instance.threads.head(thread), node, set(), (), "frontmatter")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        author = Author(Path(temporary))
        author.write()
        author.bundle(Path(sys.argv[1]))
