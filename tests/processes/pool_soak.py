"""Threads, fan-outs and scripts that run in warm processes, round after round, while something is killed at random: the
command, the process that others are forked from, a warm one, an agent, all of them. Some are interrupted, stopped,
paused or killed by `uwf`, and the store is packed or indexed anew. What a round leaves is then carried on to its end.

    python tests/processes/pool_soak.py --minutes 30 --seed 7

After each wave of kills and at the end of a round it looks for what must not be: an agent that was asked for what had
been kept, a step that is gone, a finding of `uwf verify`, a lock that is held, a process that stays.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent.parent / "doubles")]

import pygit2
from commands import UWF
from fan_outs import TEXT, audit

AT_ONCE = "4"
LINES, FORKS, SCRIPTS = 8, 2, 3  # threads of a round
BRANCHES, CALLS = 4, 6  # of each fan-out, of each script
WAVES = 8  # of kills in a round
TRIES = 15  # to bring a round to its end
PATIENCE = 60.0  # seconds for processes to end
LARGEST = 120 << 20  # bytes of a warm process
MOST_FILES = 64  # that a warm process has open

WARM = "uwf_git.sandbox.warm_process"

STEPS = f"""
name: steps
description: Three say something.
roles:
  first: {{description: Begins., systemPrompt: Begin., outputSchema: {TEXT}}}
  second: {{description: Goes on., systemPrompt: Go on., outputSchema: {TEXT}}}
  third: {{description: Ends., systemPrompt: End., outputSchema: {TEXT}}}
graph:
  $START: [{{role: first}}]
  first: [{{role: second}}]
  second: [{{role: third}}]
  third: [{{role: $END}}]
"""

SCRIPT = f"""
meta = {{"name": "script", "description": "Asks agents."}}

async def run(agent, parallel, pipeline, args):
    def ask(number):
        return lambda: agent(f"call {{number}} of {{args}}")

    return await parallel([ask(number) for number in range({CALLS})])
"""

# Notes each question; fails or takes its time by chance, but answers a question of the fourth time at once.
AGENT = f"""
import json, os, random, sys, time
context = json.load(sys.stdin)
key = [context["thread"], context["step"], context["instruction"] or ""]
try:
    with open("asked") as notes:
        before = [note for note in map(json.loads, notes) if note["key"] == key]
except FileNotFoundError:
    before = []

def is_at_work(pid):
    try:
        with open(f"/proc/{{pid}}/cmdline") as words:
            return "agent.py" in words.read()
    except OSError:
        return False

beside = [note["pid"] for note in before if is_at_work(note["pid"])]
note = {{"key": key, "pid": os.getpid(), "at": time.monotonic(), "beside": beside}}
with open("asked", "a") as notes:
    notes.write(json.dumps(note) + "\\n")
chance = random.Random()
if len(before) < 3:
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0.1, 1.5))
    if chance.random() < 0.1:
        sys.exit("no luck")
print(json.dumps({{"files": ["f%d" % n for n in range({BRANCHES})], "text": "said"}}))
"""

Key = tuple[str, int, str]
"""What an agent is asked: its thread, the number of the step, the instruction."""


class Process(NamedTuple):
    """A process of a round, and its kind: command, template, warm, agent, other."""

    pid: int
    kind: str
    words: str


class Tally:
    """Counts of a soak, and what was wrong."""

    def __init__(self) -> None:
        self.kills = collections.Counter[str]()
        self.rounds = self.waves = self.asked = self.again = self.commands = 0
        self.memory = self.files = 0
        self.violations: list[str] = []

    def __str__(self) -> str:
        kills = ", ".join(f"{count} × {kind}" for kind, count in sorted(self.kills.items())) or "nothing"
        return (
            f"{self.rounds} rounds, {self.waves} waves, {self.commands} commands; agents asked {self.asked} times,"
            f" {self.again} again; largest warm process {self.memory >> 20} MB, {self.files} files;"
            f" {len(self.violations)} violations; killed or ended: {kills}"
        )


class Round:
    """A store with threads, in a folder of its own, and what is done to it."""

    def __init__(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.store = self.root / "store.git"
        self._chance = chance
        self._tally = tally
        self._env = _environment(folder)
        self._kept: dict[Key, float] = {}  # what was answered for certain, and since when on time.monotonic()
        self._heads: dict[str, str] = {}
        self._seen: set[str] = set()
        self._sampling = threading.Event()
        for place in (folder / "home", folder / "work", self.root):
            place.mkdir(parents=True)
        (folder / "home" / ".gitconfig").write_text(
            "[user]\n\tname = Ada Example\n\temail = ada@example.invalid\n"
        )
        (folder / "work" / "agent.py").write_text(AGENT)
        (self.root / "config.yaml").write_text(f"defaultAgent: uwf-exec {sys.executable} -S agent.py\n")
        for name, text in (
            ("steps.yaml", STEPS),
            ("audit.yaml", audit(policy="atOnce: 3")),
            ("script.py", SCRIPT),
        ):
            (folder / "work" / name).write_text(text)
            self.uwf("workflow", "put", name)
        kinds = ["steps"] * LINES + ["audit"] * FORKS + ["script"] * SCRIPTS
        self.threads = [
            self.uwf("thread", "start", kind, "-p", f"task {number}")["thread"]
            for number, kind in enumerate(kinds)
        ]

    def wrong(self, what: str) -> None:
        self._tally.violations.append(what)
        print(f"VIOLATION {self.folder}: {what}", flush=True)

    def uwf(self, *args: str, check: bool = True) -> Any:
        """Return what a command that nothing is done to has printed, None if it failed and may."""
        command = [*UWF, "--format", "json", *args]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self._env, cwd=self.folder / "work", check=False
        )
        self._heed(args, done.stderr)
        if check and done.returncode:
            self.wrong(f"uwf {' '.join(args)}: {done.returncode} {done.stderr[-500:]}")
        try:
            return json.loads(done.stdout)
        except ValueError:
            return None

    def _heed(self, args: Sequence[str], stderr: str) -> None:
        if "Traceback" in stderr or '"internal"' in stderr:
            self.wrong(f"uwf {' '.join(args)}: {stderr[-1500:]}")

    def processes(self) -> Iterator[Process]:
        """Yield the round's processes, and those of the commands that are under way."""
        mark = f"UWF_STORAGE_ROOT={self.root}".encode()
        entries: dict[int, tuple[str, int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        words = (
                            (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                        )
                        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                        if state != "Z":
                            entries[int(entry.name)] = words, int(parent)
        for pid, (words, parent) in entries.items():
            above = entries.get(parent, ("", 0))[0]
            kind = "other"
            if WARM in words:
                kind = "warm" if WARM in above or parent == 1 else "template"
            elif "uwf_cli.main" in words:
                kind = "command"
            elif "agent.py" in words:
                kind = "agent"
            yield Process(pid, kind, words)

    def wave(self) -> None:
        """Run threads by a command, and disturb it."""
        chance, args = self._chance, ["thread", "run"]
        match chance.randrange(4):
            case 0:
                args += [*chance.sample(self.threads, 5), "-j", AT_ONCE]
            case 1:
                args += [chance.choice(self.threads[LINES:])]
            case _:
                args += ["--status", "idle,failed,joining,running", "-j", AT_ONCE]
        command = self._begin(args)
        deadline = time.monotonic() + PATIENCE
        for _ in range(chance.randint(2, 7)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(chance.uniform(0.05, 1.5))
            if command.poll() is not None:
                break
            self._disturb(command)
        while command.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if command.poll() is None:
            self.wrong(f"uwf {' '.join(args)} does not end: {[*self.processes()]}")
            command.kill()
        command.wait()
        self._tally.waves += 1
        if chance.random() < 0.5:
            self.wait_until_quiet()
        self.look()

    def _begin(self, args: Sequence[str]) -> subprocess.Popen[bytes]:
        self._tally.commands += 1
        log = self.folder / f"command-{self._tally.commands}"
        with log.open("wb") as errors:
            return subprocess.Popen(
                [*UWF, "--format", "json", *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=self._env,
                cwd=self.folder / "work",
                start_new_session=True,
            )

    def _disturb(self, command: subprocess.Popen[bytes]) -> None:
        kinds = {"warm": 6, "agent": 3, "template": 3, "command": 3, "other": 1, "all": 2}
        ways = {
            "Ctrl-C": 1,
            "thread stop": 1,
            "thread pause": 1,
            "thread kill": 0.3,
            "gc": 0.5,
            "cas reindex": 0.5,
        }
        weights = {**kinds, **ways}
        way = self._chance.choices([*weights], [*weights.values()])[0]
        thread = self._chance.choice(self.threads)
        match way:
            case "Ctrl-C":
                command.send_signal(signal.SIGINT)
            case "thread stop":
                self.uwf("thread", "stop", thread, check=False)
            case "thread pause":
                self.uwf("thread", "pause", thread, *self._chance.choice([(), ("--now",)]), check=False)
            case "thread kill":
                self.uwf("thread", "kill", thread, check=False)
            case "gc" | "cas reindex":
                self.uwf(*way.split())
            case kind:
                matching = [item.pid for item in self.processes() if kind in ("all", item.kind)]
                if not matching:
                    return
                for pid in matching if kind == "all" else [self._chance.choice(matching)]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self._tally.kills[way] += 1

    def wait_until_quiet(self) -> None:
        """Wait until no process of the round is left; say which are left, and end them."""
        deadline = time.monotonic() + PATIENCE
        while (leftovers := [*self.processes()]) and time.monotonic() < deadline:
            time.sleep(0.1)
        if leftovers:
            self.wrong(f"processes are left: {leftovers}")
            for item in leftovers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(item.pid, signal.SIGKILL)

    def look(self) -> list[dict[str, Any]]:
        """Compare with what was seen before, and remember what is kept now. Return the threads."""
        self._look_at_questions()
        self._look_at_heads()
        listed = self.uwf("thread", "list", "--all") or []
        now = time.monotonic()
        for row in listed:
            thread, steps = row["thread"], row["steps"]
            for number in range(1, steps + 1):
                self._kept.setdefault((thread, number, ""), now)
            if row["name"] == "script" and row["parent"] and row["status"] == "completed":
                self._kept.setdefault((row["parent"], 1, row["title"]), now)
            report = self.store / "uwf" / "runs" / f"{thread}.result"
            with contextlib.suppress(OSError, ValueError):
                value = json.loads(report.read_bytes())
                if (value["head"], value["error"], value["is_put"]) == (row["head"], "", False):
                    self._kept.setdefault((thread, steps + 1, ""), now)
        return listed

    def _look_at_questions(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / "work" / "asked").read_text().splitlines():
                if line in self._seen:
                    continue
                self._seen.add(line)
                note = json.loads(line)
                thread, step, instruction = note["key"]
                self._tally.asked += 1
                # A branch and a planner have instructions too, but one in a step; a script's calls have one step.
                known = [self._kept.get((thread, step, instruction))]
                if not instruction.startswith("call "):
                    known.append(self._kept.get((thread, step, "")))
                since = min((at for at in known if at is not None), default=float("inf"))
                if since < note["at"]:
                    self.wrong(f"asked {note['key']}, which was answered {note['at'] - since:.1f} s before")
                if note["beside"]:
                    self.wrong(f"asked {note['key']} while {note['beside']} were at it")

    def _look_at_heads(self) -> None:
        repository = pygit2.Repository(str(self.store))
        heads = {}
        for name in repository.references:
            if name.startswith(("refs/uwf/threads/", "refs/uwf/archive/")):
                commit = repository.references[name].peel(pygit2.Commit)
                heads[name.rpartition("/")[2]] = str(commit.id)
        for thread, before in self._heads.items():
            now = heads.get(thread)
            if now is None:
                self.wrong(f"thread {thread} is gone")
            elif now != before and not repository.descendant_of(now, before):
                self.wrong(f"thread {thread} was at {before}, and {now} does not lead there")
        self._heads |= heads

    def finish(self) -> None:
        """Carry all on until it ends, undisturbed; then look whether all is as it should be."""
        self.wait_until_quiet()
        self.look()
        self.uwf("thread", "resume", "--status", "paused", check=False)
        ends = {"completed", "completed-with-failures", "killed"}
        for _ in range(TRIES):
            listed = [row for row in self.look() if row["thread"] in self.threads]
            if all(row["status"] in ends for row in listed):
                break
            command = self._begin(["thread", "run", "--status", "idle,failed,joining", "-j", AT_ONCE])
            command.wait(600)
            self.wait_until_quiet()
        else:
            self.wrong(f"threads do not end: {[row for row in listed if row['status'] not in ends]}")
        self.look()
        if set(self.threads) - {row["thread"] for row in listed}:
            self.wrong(f"of {self.threads} only {[row['thread'] for row in listed]} are listed")
        for row in listed:
            most = 3 if row["name"] == "steps" else 4 if row["name"] == "audit" else 1
            if row["status"] == "completed" and row["steps"] != most:
                self.wrong(f"thread {row['thread']} of {row['name']} has {row['steps']} steps")
        checked = self.uwf("verify", "--all")
        if checked is None or checked["findings"]:
            self.wrong(f"verify: {json.dumps(checked and checked['findings'])[:1000]}")
        locks = self.store / "uwf" / "locks"
        if held := [path.name for path in locks.iterdir() if _is_held(path)]:
            self.wrong(f"locks are held: {held}")
        for log in self.folder.glob("command-*"):
            self._heed([log.name], log.read_text("utf-8", "replace"))
        again = collections.Counter(tuple(json.loads(line)["key"]) for line in self._seen)
        self._tally.again += sum(count - 1 for count in again.values())
        self._tally.rounds += 1

    @contextlib.contextmanager
    def sampled(self) -> Iterator[None]:
        """Note the largest memory and the most files of warm processes meanwhile."""

        def sample() -> None:
            while not self._sampling.wait(0.5):
                for item in self.processes():
                    if item.kind in ("warm", "template"):
                        with contextlib.suppress(OSError):
                            files = sum(1 for _ in Path(f"/proc/{item.pid}/fd").iterdir())
                            self._tally.memory = max(self._tally.memory, proportional(item.pid))
                            self._tally.files = max(self._tally.files, files)

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            self._sampling.set()
            thread.join()


def proportional(pid: int, kind: str = "Pss") -> int:
    """Return the bytes of memory of a process, its share of what it has in common with others, 0 if the kernel doesn't
    count that kind. Raises OSError."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) << 10
    return 0


def _is_held(path: Path) -> bool:
    import fcntl

    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment that knows nothing of the user."""
    home = folder / "home"
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "LC_ALL": "C.UTF-8",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "UWF_STORAGE_ROOT": str(folder / "root"),
        **{name: os.environ[name] for name in ("PYTHONPATH", "TMPDIR") if name in os.environ},
    }


def soak(
    minutes: float, seed: int, tell: Callable[[str], object] = print, folder: Path | None = None
) -> Tally:
    """Do rounds below `folder` until the time is over; what one with a violation made is kept."""
    tally, began = Tally(), time.monotonic()
    shown = 0
    while (time.monotonic() - began) / 60 < minutes:
        chance = random.Random(f"{seed} {tally.rounds}")
        before = len(tally.violations)
        place = Path(tempfile.mkdtemp(prefix="uwf-soak-", dir=folder))
        current = Round(place, chance, tally)
        with current.sampled():
            for _ in range(WAVES):
                current.wave()
                if (minute := int((time.monotonic() - began) / 60)) > shown:
                    shown = minute
                    tell(f"{minute} min: {tally}")
            current.finish()
        if tally.memory > LARGEST:
            current.wrong(f"a warm process had {tally.memory} bytes")
        if tally.files > MOST_FILES:
            current.wrong(f"a warm process had {tally.files} files")
        if len(tally.violations) == before:
            shutil.rmtree(place)
    tell(f"seed {seed}: {tally}")
    return tally


def main() -> None:
    """Exits with 1 where something was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30, help="how long (30)")
    parser.add_argument("--seed", type=int, default=None, help="what the choices follow from")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    os.nice(10)
    sys.exit(1 if soak(options.minutes, seed, lambda line: print(line, flush=True)).violations else 0)


if __name__ == "__main__":
    main()
