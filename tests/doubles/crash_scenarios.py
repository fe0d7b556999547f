"""What is crashed: commands that change a store, what is there when they begin, and what has to be so after a crash."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cli_samples import ONE, PAIR
from commands import UWF, git
from conftest import Result, Uwf
from disk_states import CHANGING, paths_in, trace
from fan_outs import audit
from power import whole_lines
from programs import program


class World(NamedTuple):
    """A folder with all that a command may change: stores, remotes, and the notes of its agent. `thread` is what the
    command is about."""

    folder: Path
    uwf: Uwf
    thread: str = ""

    def run(self, *arguments: str | Path, root: str = "root", check: int | None = 0) -> Result:
        return self.uwf("--root", self.folder / root, *arguments, check=check)

    def refs(self) -> dict[str, str]:
        """Every ref of every repository, by the repository's name and its own; behind `^{}` the commit of a tag."""
        found = {}
        for git_dir in self.repositories():
            shown = git(
                "--git-dir", git_dir, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)"
            )
            for line in shown.splitlines():
                name, oid, *target = line.split()
                found[f"{git_dir.parent.name}/{git_dir.name} {name}"] = oid
                if target:
                    found[f"{git_dir.parent.name}/{git_dir.name} {name}^{{}}"] = target[0]
        return found

    def steps(self, old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, set[str]]:
        """The commits that each thread of the store has gone through between two states of the refs, by its id; those
        of its effects too."""
        found = defaultdict[str, set[str]](set)
        repositories = {f"{git_dir.parent.name}/{git_dir.name}": git_dir for git_dir in self.repositories()}
        for name, oid in new.items():
            if (
                re.search(r"/(threads/[^/^]*|effects/[^/^]*|archive/[^/]*\^{})$", name)
                and old.get(name) != oid
            ):
                git_dir = repositories[name.partition(" ")[0]]
                before = [f"^{commit}" for commit in old.values()]
                listed = git("--git-dir", git_dir, "rev-list", "--first-parent", oid, *before)
                found[_last(name)] |= set(listed.split())
        return found

    def repositories(self) -> list[Path]:
        return sorted(self.folder.glob("**/*.git"))

    def asked(self) -> int:
        """How often an agent was asked."""
        notes = self.folder / "asked"
        return len(notes.read_text().splitlines()) if notes.exists() else 0


class Scenario(NamedTuple):
    """`prepare` makes the world and returns the thread; `command` are the arguments that are crashed, in the store
    `root`; `finished` carries on after a crash, as a user would, and raises AssertionError where that doesn't do the
    job."""

    name: str
    prepare: Callable[[World], str]
    command: Callable[[World], list[str]]
    finished: Callable[[World], None]
    root: str = "root"


def _put(world: World) -> str:
    (world.folder / "one.yaml").write_text(ONE)
    (world.folder / "pair.yaml").write_text(PAIR)
    for name, fields in (("answers", "n: 7"), ("asks", "status: needs_input\nquestion: Which colour?")):
        script = f"echo asked >>{world.folder}/asked\ncat <<'END'\n---\n{fields}\n---\nDone.\nEND\n"
        (world.folder / f"{name}.sh").write_text(script)
    world.run("workflow", "put", world.folder / "one.yaml")
    return ""


def _started(world: World) -> str:
    _put(world)
    return str(world.run("thread", "start", "one", "-p", "Do it").json["thread"])


def _two_started(world: World) -> str:
    thread = _started(world)
    world.run("thread", "start", "one", "-p", "Do it too")
    return thread


def _forking(world: World) -> str:
    """A thread that forks two branches, one after the other."""
    _put(world)
    (world.folder / "audit.yaml").write_text(audit(policy="atOnce: 1"))
    fields = "files: [a, b]\ntext: said"
    script = f"echo asked >>{world.folder}/asked\ncat <<'END'\n---\n{fields}\n---\nDone.\nEND\n"
    (world.folder / "answers.sh").write_text(script)
    world.run("workflow", "put", world.folder / "audit.yaml")
    return str(world.run("thread", "start", "audit", "-p", "Audit it").json["thread"])


_SCRIPT = """
meta = {"name": "script", "description": "Asks twice."}

async def run(agent, parallel, pipeline, args):
    return [await agent("one"), await agent("two")]
"""


def _scripted(world: World) -> str:
    _put(world)
    (world.folder / "script.py").write_text(_SCRIPT)
    world.run("workflow", "put", world.folder / "script.py")
    return str(world.run("thread", "start", "script", "-p", "null").json["thread"])


def _asking(world: World) -> str:
    thread = _started(world)
    world.run("thread", "step", thread, "--agent", f"uwf-exec -- sh {world.folder}/asks.sh")
    return thread


def _stepped(world: World) -> str:
    thread = _started(world)
    world.run("thread", "step", thread)
    return thread


def _shared(world: World) -> str:
    thread = _stepped(world)
    git("init", "-q", "--bare", world.folder / "remote.git")
    # What it syncs is its own affair.
    git("--git-dir", world.folder / "remote.git", "config", "core.fsync", "all")
    world.run("remote", "add", "origin", world.folder / "remote.git")
    return thread


def _pushed(world: World) -> str:
    thread = _shared(world)
    world.run("push", "origin")
    world.run("init", root="other")
    world.run("remote", "add", "origin", world.folder / "remote.git", root="other")
    return thread


def _status(world: World, root: str = "root") -> str:
    return str(world.run("thread", "show", world.thread, root=root).json["status"])


def _agent(world: World, program: str) -> str:
    return f"{program} -- sh {world.folder}/answers.sh"


def _stepping(program: str) -> Callable[[World], list[str]]:
    return lambda world: ["thread", "step", world.thread, "--agent", _agent(world, program)]


def _step_done(world: World) -> None:
    runs = world.folder / "root/store.git/uwf/runs"
    is_kept = (runs / f"{world.thread}.result").exists()
    before = world.asked()
    done = world.run("thread", "step", world.thread, "--agent", _agent(world, "uwf-exec"), check=None)
    assert done.code == 0 or "is completed" in done.err, done.err
    assert _status(world) == "completed"
    assert len(world.run("thread", "steps", world.thread).json) == 1
    assert not is_kept or world.asked() == before, "the agent was asked again, though its answer was kept"


def _running(*arguments: str) -> Callable[[World], list[str]]:
    return lambda world: [
        *("thread", "run", *(word.format(thread=world.thread) for word in arguments)),
        *("--agent", _agent(world, "uwf-exec")),
    ]


def _run_done(wanted: int) -> Callable[[World], None]:
    """Carries on whatever was run, by which agents give so many answers in all."""

    def done(world: World) -> None:
        kept, before = _answers(world), world.asked()
        words = _running("--status", "idle,failed,joining", "-j", "2")(world)
        for _ in range(2):  # the parent of a branch that was broken off waits for it
            last = world.run(*words, check=None)
        is_short = _status(world) == "completed-with-failures"
        if is_short:  # a script hears null of a call whose process was killed, and so do people
            fork = world.run("thread", "fork", world.thread, "--at", "0").json["thread"]
            world.run(*_running(fork)(world))
        listed = world.run("thread", "list", "--all").json
        unlike = [
            row
            for row in listed
            if not (is_short and world.thread in (row["thread"], row["parent"]))
            and row["status"] != "completed"
        ]
        assert not unlike, f"not completed: {last.err[-600:]} {unlike}"
        answers = _answers(world)
        assert answers == wanted, f"{answers} answers are kept in the end, not {wanted}"
        asked = world.asked() - before
        assert asked <= wanted - kept, f"agents were asked {asked} times, though {kept} answers were kept"
        for row in listed:
            steps = world.run("thread", "steps", row["thread"]).json
            assert [step["number"] for step in steps] == [*range(1, len(steps) + 1)], f"steps {steps}"

    return done


def _answers(world: World) -> int:
    """How many answers of agents are kept: steps, and reports of those that are not committed yet."""
    runs, count = world.folder / "root/store.git/uwf/runs", 0
    for row in world.run("thread", "list", "--all").json:
        steps = world.run("thread", "steps", row["thread"]).json
        count += sum(step["agent"] == "uwf-exec" for step in steps)
        report = runs / f"{row['thread']}.result"
        kept: dict[str, Any] = {}
        with suppress(ValueError):  # a power cut may leave a part of it, which counts as none
            kept = json.loads(report.read_bytes().partition(b"\0")[0]) if report.exists() else {}
        count += (kept.get("head"), kept.get("error"), kept.get("agent")) == (row["head"], "", "uwf-exec")
    return count


def _rehearsed(world: World) -> None:
    done = world.run("thread", "step", world.thread, "--agent", "uwf-rehearse", check=None)
    assert done.code == 0 or "is completed" in done.err, done.err
    assert _status(world) == "completed"
    assert len(world.run("thread", "steps", world.thread).json) == 1


def _started_done(world: World) -> None:
    before = world.run("thread", "list").json
    assert len(before) in (1, 2)
    world.run("thread", "start", "one", "-p", "Another")
    assert len(world.run("thread", "list").json) == len(before) + 1


def _answered(world: World) -> None:
    world.run("thread", "answer", world.thread, "-m", "red", check=None)
    assert _status(world) == "idle"
    assert len(world.run("thread", "steps", world.thread).json) == 2


def _killed(world: World) -> None:
    world.run("thread", "kill", world.thread, check=None)
    assert _status(world) == "killed"
    assert world.run("thread", "list").json == []


def _forked(world: World) -> None:
    before = len(world.run("thread", "list", "--all").json)
    fork = world.run("thread", "fork", world.thread).json["thread"]
    assert len(world.run("thread", "list", "--all").json) == before + 1
    world.run("thread", "show", fork)


def _pushed_done(world: World) -> None:
    # What a git that was killed on a remote has locked there, git frees for nobody; the message says who has to.
    left = list((world.folder / "remote.git" / "refs").rglob("*.lock"))
    done = world.run("push", "origin", check=None)
    assert done.code == 0 or any(each.name in done.err for each in left), done.err
    for path in left:
        path.unlink()
    world.run("push", "origin")
    shared = {name.split()[1]: oid for name, oid in world.refs().items() if "/remote.git " in name}
    mine = {name.split()[1]: oid for name, oid in world.refs().items() if "/store.git " in name}
    thread = next(name for name in mine if name.endswith(world.thread) and "/remotes/" not in name)
    assert shared[thread] == mine[thread]


def _pulled(world: World) -> None:
    world.run("pull", root="other")
    assert _status(world, "other") == "completed"
    assert [each["name"] for each in world.run("workflow", "list", root="other").json] == ["one"]


_ARRIVES = (
    'echo "$UWF_EFFECT_KEY" | dd of={sent} oflag=append conv=notrunc,fsync status=none && echo "number 1"'
)
"""A command that sends: a file at the other side has a line for each arrival, which it syncs before it answers."""
_IS_THERE = 'test -e {sent} || exit 1; grep -o "$UWF_EFFECT_KEY" {sent}'


def _sending(world: World) -> list[str]:
    sent = world.folder / "sent"
    return [
        *("effect", "run", "--thread", world.thread, "--key", "x", "--check", _IS_THERE.format(sent=sent)),
        *("--", "sh", "-c", _ARRIVES.format(sent=sent)),
    ]


def _sent(world: World) -> None:
    """What was begun is carried on, and called again: it has arrived once, and no record of it is missing."""
    for _ in range(2):
        world.run(*_sending(world))
    (effect,) = world.run("effect", "list", world.thread).json
    count = (world.folder / "sent").read_text(errors="replace").count(effect["key"])
    assert count == 1, f"{count} arrivals"
    assert effect["outcome"] in ("done", "found"), effect


def _put_done(world: World) -> None:
    put = world.run("workflow", "put", world.folder / "pair.yaml").json
    history = world.run("workflow", "history", "pair").json
    assert [each["hash"] for each in history] == [put["hash"]]


def _packed(world: World) -> None:
    world.run("gc")
    assert _status(world) == "completed"


def _indexed(world: World) -> None:
    world.run("cas", "reindex")
    assert _status(world) == "completed"


def _always(*arguments: str) -> Callable[[World], list[str]]:
    return lambda world: [each.format(thread=world.thread, folder=world.folder) for each in arguments]


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("thread start", _started, _always("thread", "start", "one", "-p", "Another"), _started_done),
        Scenario("thread step", _started, _stepping("uwf-exec"), _step_done),
        Scenario(
            "thread step, agent as a process",
            _started,
            _stepping(str(Path(sys.executable).parent / "uwf-exec")),
            _step_done,
        ),
        Scenario("thread run -j", _two_started, _running("--all", "-j", "2"), _run_done(2)),
        Scenario("thread run of a fan-out", _forking, _running("{thread}"), _run_done(4)),
        Scenario("thread run of a script", _scripted, _running("{thread}"), _run_done(2)),
        Scenario(
            "thread step, agent of the kit",
            _started,
            _always("thread", "step", "{thread}", "--agent", "uwf-rehearse"),
            _rehearsed,
        ),
        Scenario("thread answer", _asking, _always("thread", "answer", "{thread}", "-m", "red"), _answered),
        Scenario("thread kill", _started, _always("thread", "kill", "{thread}"), _killed),
        Scenario("thread fork", _stepped, _always("thread", "fork", "{thread}"), _forked),
        Scenario("push", _shared, _always("push", "origin"), _pushed_done),
        Scenario("pull", _pushed, _always("pull"), _pulled, "other"),
        Scenario("effect run", _started, _sending, _sent),
        Scenario("workflow put", _started, _always("workflow", "put", "{folder}/pair.yaml"), _put_done),
        Scenario("gc", _stepped, _always("gc"), _packed),
        Scenario("cas reindex", _stepped, _always("cas", "reindex"), _indexed),
    )
}


def _last(ref: str) -> str:
    return ref.rpartition("/")[2].removesuffix("^{}")


def made(scenario: Scenario, folder: Path, uwf: Uwf) -> World:
    """The world of a scenario, from nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    world = World(folder, uwf)
    return world._replace(thread=scenario.prepare(world))


def wrong_with(
    world: World,
    scenario: Scenario,
    before: dict[str, str],
    after: dict[str, str],
    steps: Mapping[str, Collection[str]],
    is_cut: bool = False,
) -> list[str]:
    """What is not as it should be where the command was stopped: `before` and `after` are the refs that there were and
    would have been, `steps` the commits between these, by thread. `is_cut`: by a cut of power."""
    found: list[str] = []

    def expect(is_so: Any, what: str) -> None:
        if not is_so:
            found.append(what)

    for git_dir in world.repositories():
        # Told also of what a git that was killed had begun to unpack, which nothing leads to; what a ref leads to and
        # isn't there is told as missing.
        begun = ["-c", "fsck.gitattributesMissing=ignore"]
        fsck = [
            "git",
            "--git-dir",
            str(git_dir),
            *begun,
            "fsck",
            "--strict",
            "--no-dangling",
            "--no-progress",
        ]
        told = subprocess.run(fsck, capture_output=True, text=True, check=False)
        expect(told.returncode == 0, f"git fsck of {git_dir.name}: {(told.stdout + told.stderr)[-300:]}")
    try:
        now = world.refs()
        tagged = {commit for name, commit in after.items() if name.endswith("^{}")}
        for name in {*before, *after, *now}:
            known = {before.get(name), after.get(name), *steps.get(_last(name), ())}
            if before.get(name) and not after.get(name):
                known |= tagged  # a thread is stepped before it is archived
            expect(now.get(name) in known, f"{name} is at {now.get(name)}, neither old nor new: {known}")
        checked = world.run("verify", root=scenario.root, check=None)
        is_sound = checked.code == 0 and not checked.json["findings"]
        if is_cut and checked.code in (
            0,
            125,
        ):  # the last lines of a witness, which no step waits for, may be lost
            is_sound = {each["code"] for each in checked.json["findings"]} <= {"unwitnessed"}
        held = [name for name in now if name.startswith(f"{scenario.root}/") and "/remotes/" not in name]
        is_empty = checked.code == 13 and not held
        expect(is_sound or is_empty, f"verify: {(checked.out + checked.err)[-300:]}")
        scenario.finished(world)
    except (AssertionError, StopIteration, KeyError) as error:
        found.append(f"{type(error).__name__}: {str(error)[:600]}")
    return found


class Run:
    """A command that was traced once in the world of its scenario: the folder before, its calls, the refs it made."""

    def __init__(self, scenario: Scenario, folder: Path, uwf: Uwf) -> None:
        self.scenario = scenario
        self.world = made(scenario, folder / "world", uwf)
        self.before = folder / "before"
        shutil.copytree(self.world.folder, self.before, symlinks=True)
        self.old = self.world.refs()
        root = self.world.folder / scenario.root
        self._command = [*UWF, "--root", str(root), *scenario.command(self.world)]
        self._log = folder / "strace.log"
        self.calls = trace(self._command, self.world.folder, self._log)
        self.new = self.world.refs()
        self._steps = self.world.steps(self.old, self.new)
        assert self.new != self.old or scenario.name in ("gc", "cas reindex")

    def instants(self) -> list[int]:
        """The numbers of the calls that change something, and one more for the end."""
        return [n for n, call in enumerate(self.calls) if call.kind != "sync"] + [len(self.calls)]

    def wrong(self, is_cut: bool = False) -> list[str]:
        """What isn't as it should be in the world as it is now."""
        return wrong_with(self.world, self.scenario, self.old, self.new, self._steps, is_cut)

    def where(self, at: int) -> str:
        return f"before {at}: {self.calls[at]}" if at < len(self.calls) else "at the end"

    def numbered(self) -> list[tuple[str, int, str]]:
        """The calls of the command's own process that change something or open something in its store: the kind, which
        of all its calls of that kind it is, and the path."""
        lines = self._log.read_text(errors="replace").splitlines()
        first = lines[0].partition(" ")[0]
        return [call for process, *call in self._numbered(lines) if process == first]  # type: ignore[misc]

    def _numbered(self, lines: Iterable[str]) -> Iterator[tuple[str, str, int, str]]:
        """As above, of all processes, with the process before each."""
        below, counts = str(self.world.folder), defaultdict[tuple[str, str], int](int)
        for line in lines:
            process, _, rest = line.partition(" ")
            kind = rest.strip().partition("(")[0]
            if kind.isidentifier():
                counts[process, kind] += 1
                path = next((each for each in paths_in(rest) if each.startswith(below)), None)
                if path is not None and kind != "lseek":
                    yield process, kind, counts[process, kind], path[len(below) :]

    def of_git(self) -> list[tuple[int, str, int]]:
        """The calls that change something, of the gits that the command starts and of what these start: which of the
        gits, the kind, and which of the calls of that kind of one process it is."""
        logs = self._log.parent
        self._again_with_git(f'-y -xx -s 4096 -e trace={CHANGING} -o "{logs}/git.$number"', "$number")
        found = []
        for number in range(1, len(list(logs.glob("git.*"))) + 1):
            lines = whole_lines((logs / f"git.{number}").read_text(errors="replace"))
            calls = {call[1:3] for call in self._numbered(lines) if not call[1].startswith("open")}
            found += [(number, kind, which) for kind, which in sorted(calls)]
        return found

    def again_without_git(self, number: int, kind: str, which: int) -> subprocess.CompletedProcess[str]:
        """Runs the command once more in the world as it was. Its n-th git, or what that has started, is killed within
        a call that `of_git` gave."""
        return self._again_with_git(
            f"-o /dev/null -e trace={kind} -e inject={kind}:signal=KILL:when={which}", str(number)
        )

    def of_pool(self) -> list[tuple[str, int]]:
        """The calls by which warm processes change something: the kind, and which of the calls of that kind of one
        process it is."""
        log = self._log.parent / "pool"
        self._again_with_pool("-y", "-xx", "-s", "4096", "-e", f"trace={CHANGING}", "-o", str(log))
        calls = list(self._numbered(whole_lines(log.read_text(errors="replace"))))
        warm = {process for process, _, _, path in calls if "/store.git/" in path}
        return sorted(
            {
                (kind, which)
                for process, kind, which, _ in calls
                if process in warm and not kind.startswith("open")
            }
        )

    def again_without_warm(self, kind: str, which: int) -> tuple[subprocess.CompletedProcess[str], bool]:
        """Runs the command once more in the world as it was. A warm process, or what it has started, is killed within a
        call that `of_pool` gave. Returns whether one was, too."""
        log = self._log.parent / "pool"
        inject = f"inject={kind}:signal=KILL:when={which}"
        done = self._again_with_pool("-e", f"trace={kind}", "-e", inject, "-o", str(log))
        return done, "killed by SIGKILL" in log.read_text(errors="replace")

    def _again_with_pool(self, *strace: str) -> subprocess.CompletedProcess[str]:
        """Runs the command once more with the process that forks warm ones, and these, under strace."""
        traced = [program("strace"), "-f", "-q", *strace, sys.executable]
        folder = self._log.parent / "traced"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(
            "import os, sys\n"
            "if 'uwf_git.sandbox.warm_process' in sys.orig_argv and not os.environ.pop('TRACED', ''):\n"
            "    os.environ['TRACED'] = 'yes'\n"
            f"    os.execv({traced[0]!r}, [*{traced!r}, *sys.orig_argv[1:]])\n"
        )
        self._as_before()
        path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        return self._run_with(PYTHONPATH=path)

    def _again_with_git(self, strace: str, number: str) -> subprocess.CompletedProcess[str]:
        """Runs the command once more with its n-th git under strace, or each."""
        programs, count = self._log.parent / "programs", self._log.parent / "count"
        programs.mkdir(exist_ok=True)
        count.unlink(missing_ok=True)
        wrapper = programs / "git"
        git, traced = (program(name) for name in ("git", "strace"))
        wrapper.write_text(
            f"#!/bin/sh\necho >>{count}\nnumber=$(($(wc -l <{count})))\n"
            f'[ "$number" != "{number}" ] || exec {traced} -f -qq {strace} {git} "$@"\nexec {git} "$@"\n'
        )
        wrapper.chmod(0o755)
        self._as_before()
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        return self._run_with(PATH=path)

    def _run_with(self, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **variables}
        return subprocess.run(
            self._command, capture_output=True, text=True, check=False, timeout=120, env=env
        )

    def _as_before(self) -> None:
        shutil.rmtree(self.world.folder)
        shutil.copytree(self.before, self.world.folder, symlinks=True)

    def again(self, *strace: str) -> subprocess.CompletedProcess[str]:
        """Runs the command once more in the world as it was, under strace with these options."""
        self._as_before()
        traced = [program("strace"), "-f", "-qq", "-o", os.devnull, *strace]
        return subprocess.run(
            [*traced, *self._command], capture_output=True, text=True, check=False, timeout=120
        )

    def wrong_otherwise(self) -> list[str]:
        """As `wrong`, after a run that isn't the traced one: what it makes has other times, and so other ids."""
        now = self.world.refs()
        now |= {name: oid for name, oid in self.old.items() if name in self.new and name not in now}
        return wrong_with(self.world, self.scenario, self.old, now, {})
