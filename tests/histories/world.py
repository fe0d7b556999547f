"""Machines with a store each, a bare repository between them, and what is in all of these in the end, as plain git
tells it: only what is folded, and what a node says, is read by the library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from warm import WarmUwf

from uwf_git.base.errors import UwfError
from uwf_git.git.objects import parse_tag
from uwf_git.git.repository import Repository
from uwf_git.store import archives, layout
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location

LOOP = """\
name: loop
description: Version {version}.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema:
      type: object
      properties: {{status: {{enum: [more, needs_input, done]}}, text: {{type: string}}, question: {{type: string}}}}
      required: [status, text]
graph:
  $START:
    new: {{role: worker}}
    resume: {{role: worker}}
  worker: {{more: worker, done: $END}}
"""
REMOTE = "remote"
KILLED = -9
NOTHING = 13  # to verify
UNREAD = "?"


class Step(NamedTuple):
    """A step of a chain: its StepNode, the number that its commit's subject has, the StepNode it says it follows,
    UNREAD where that wasn't read, and what its output says."""

    node: str
    number: int
    prev: str | None
    text: str


class Thread(NamedTuple):
    """A thread in a store. `chain` are the steps up to its head, oldest first; `commit` is the head. `status` is
    "active", or how it ended. `both` are the steps of its active ref, where the thread is archived too. `origin` is the
    thread that it parted from by a divergence, after the StepNode `parted`, or "" for a StartNode."""

    thread: str
    commit: str
    chain: tuple[Step, ...]
    status: str = "active"
    reason: str = ""
    tag: str = ""
    both: tuple[Step, ...] | None = None
    origin: str = ""
    parted: str | None = None


class Snapshot(NamedTuple):
    """What a store holds. `versions` are the workflow's, current ones and proposed; `findings` what verification, git
    and `doctor` say against the store; `listed` the threads as `uwf` lists them, with their heads."""

    machine: str
    threads: dict[str, Thread]
    versions: frozenset[str] = frozenset()
    findings: tuple[str, ...] = ()
    listed: dict[str, tuple[str, str]] | None = None


class World:
    """A folder with so many machines, each with a store that knows the workflow; more than one share a remote. What is
    called runs in an environment that knows nothing of the user's."""

    def __init__(self, folder: Path, machines: int) -> None:
        self.folder = folder
        self.machines = machines
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.remote = folder / "remote.git"
        (self.home / ".gitconfig").write_text(
            "[user]\n\tname = Ada Example\n\temail = ada@example.invalid\n[init]\n\tdefaultBranch = main\n"
        )
        self.environment = {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig"),
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "UWF_FORMAT": "json",
        }

    def build(self) -> None:
        """Makes the stores."""
        source = self.source(0)
        if self.machines > 1:
            self.git("init", "-q", "--bare", "--object-format=sha1", self.remote)
        for machine in range(self.machines):
            if machine == 0:
                self._must(machine, "workflow", "put", str(source))
            else:
                self._must(machine, "init")
            if self.machines > 1:
                self._must(machine, "remote", "add", "origin", str(self.remote))
                self._must(machine, *(("push",) if machine == 0 else ("pull",)))

    def source(self, version: int) -> Path:
        """The file of a version of the workflow."""
        path = self.folder / f"loop-{version}.yaml"
        path.write_text(LOOP.format(version=version))
        return path

    def root(self, machine: int) -> Path:
        """A machine's storage root."""
        return self.folder / f"machine-{machine}"

    def store(self, machine: int) -> Path:
        """A machine's git directory."""
        return self.root(machine) / "store.git"

    def call(
        self, machine: int, *args: str, kill_after: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """A process of `uwf` on a machine, or of git in its store; `kill_after` so many seconds by SIGKILL, if it isn't
        done by then."""
        if args[0] == "git":
            return self._git("--git-dir", self.store(machine), *args[1:])
        environment = {**self.environment, "UWF_STORAGE_ROOT": str(self.root(machine))}
        try:
            return _warm().run(args, None, environment, self.folder, kill_after or 300)
        except subprocess.TimeoutExpired:
            if kill_after is None:
                raise
            return subprocess.CompletedProcess(list(args), KILLED, b"", b"")

    def _must(self, machine: int, *args: str) -> str:
        done = self.call(machine, *args)
        assert done.returncode == 0, f"uwf {' '.join(args)}: {done.returncode} {done.stderr.decode()}"
        return done.stdout.decode()

    def git(self, *args: object) -> str:
        """What git prints."""
        done = self._git(*args)
        assert done.returncode == 0, f"git {args}: {done.stderr.decode('utf-8', 'replace')}"
        return done.stdout.decode("utf-8", "replace")

    def _git(self, *args: object) -> subprocess.CompletedProcess[bytes]:
        command = ["git", *map(str, args)]
        return subprocess.run(command, capture_output=True, env=self.environment, check=False, timeout=300)

    # In the end

    def snapshot(self, machine: int) -> Snapshot:
        """What a machine's store holds."""
        import json

        git_dir = self.store(machine)
        instance = Instance(Location(self.root(machine), git_dir), {})

        unreadable: list[str] = []

        def said(node: str) -> tuple[str | None, str]:
            try:
                step = instance.store.get(node).payload  # type: ignore[arg-type]
                output = instance.store.get(step["output"]).payload
            except UwfError as error:
                unreadable.append(error.message)
                return UNREAD, ""
            return step.get("prev"), str(output.get("text") or output.get("answer") or "")

        found = self._threads(git_dir, said)
        told = self.call(machine, "thread", "list", "--all")
        assert told.returncode in (0, 7), (
            told.stderr.decode()
        )  # 7: one of them is damaged, which the claims find out
        listed = json.loads(told.stdout)
        heads = {each["thread"]: (str(each.get("head")), str(each["status"])) for each in listed}
        return Snapshot(
            f"machine {machine}",
            found,
            self._versions(git_dir),
            (*unreadable, *self._findings(machine)),
            heads,
        )

    def snapshot_of_remote(self) -> Snapshot:
        """What the remote holds."""
        threads = self._threads(self.remote, lambda node: (UNREAD, ""))
        return Snapshot(REMOTE, threads, self._versions(self.remote), tuple(self._fsck(self.remote)))

    def _fsck(self, git_dir: Path) -> list[str]:
        checked = self._git("--git-dir", git_dir, "fsck", "--strict", "--no-dangling")
        said = (checked.stderr + checked.stdout).decode("utf-8", "replace")[:500]
        return [f"git fsck: {checked.returncode} {said}"] if checked.returncode or checked.stdout else []

    def _findings(self, machine: int) -> list[str]:
        found = self._fsck(self.store(machine))
        for command in (("verify", "--all"), ("doctor",)):
            done = self.call(machine, *command)
            if done.returncode == NOTHING and not self.git("--git-dir", self.store(machine), "for-each-ref"):
                continue
            if done.returncode and not (command == ("doctor",) and _only_warnings(done.stdout)):
                found.append(
                    f"uwf {' '.join(command)}: {done.returncode} {done.stdout.decode()[:2000]} {done.stderr.decode()}"
                )
        return found

    def _versions(self, git_dir: Path) -> frozenset[str]:
        hashes = set()
        for prefix in (layout.WORKFLOWS, layout.PROPOSALS):
            if self.git("--git-dir", git_dir, "for-each-ref", prefix):
                log = self.git(
                    "--git-dir",
                    git_dir,
                    "log",
                    f"--glob={prefix}*",
                    "--format=%(trailers:key=Uwf-Workflow,valueonly)",
                )
                hashes.update(log.split())
        return frozenset(hashes)

    def _threads(self, git_dir: Path, said: Any) -> dict[str, Thread]:
        form = "--format=%(refname) %(objectname) %(*objectname) %(contents:subject)"
        listed = self.git("--git-dir", git_dir, "for-each-ref", form, *_PREFIXES)
        refs: dict[str, tuple[str, str, str]] = {}
        for line in listed.splitlines():
            name, oid, peeled, subject = (*line.split(" ", 3), "", "")[:4]
            refs[name] = oid, peeled, subject
        chains = Chains(self.git("--git-dir", git_dir, "log", "--glob=refs/uwf/*", _GRAPH), said)
        ended: dict[str, tuple[str, str, str]] = {}
        folded: dict[str, tuple[str, str, str]] = {}
        repository = Repository(git_dir)
        for name in refs:
            if name.startswith(layout.FOLDED):
                fold = archives.read(repository, repository.ref(name), name.removeprefix(layout.FOLDED))  # type: ignore[arg-type]
                for each in fold.threads.values():
                    ended.setdefault(each.thread, (str(each.tag), str(each.ended.target), each.ended.message))
                    if each.fork:
                        fork = parse_tag(each.fork)
                        folded[layout.FORKS + each.thread] = "", str(fork.target), fork.message.strip()
        removed = {name.removeprefix(layout.REMOVED) for name in refs if name.startswith(layout.REMOVED)}
        for name, (oid, peeled, subject) in refs.items():
            if name.startswith(layout.ARCHIVE):
                ended[name.removeprefix(layout.ARCHIVE)] = oid, peeled, subject
        found = {}
        for thread, (tag, commit, message) in ended.items():
            if thread in removed:
                continue
            status, _, reason = message.strip().partition(": ")
            both = refs.get(layout.THREADS + thread)
            active = chains.of(both[0]) if both else None
            found[thread] = Thread(thread, commit, chains.of(commit), status, reason, tag, active)
        for name, (oid, _, _) in refs.items():
            thread = name.removeprefix(layout.THREADS)
            if thread != name and thread not in found:
                found[thread] = Thread(thread, oid, chains.of(oid))
        for thread, each in found.items():
            if fork := {**folded, **refs}.get(layout.FORKS + thread):
                parted = (chains.of(fork[1]) or (_NOTHING,))[-1].node
                found[thread] = each._replace(origin=fork[2].removeprefix("fork of "), parted=parted)
        return found


_KEPT = ("TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_NOTHING = Step("", 0, None, "")
_PREFIXES = (layout.THREADS, layout.ARCHIVE, layout.FOLDED, layout.FORKS, layout.REMOVED)
_GRAPH = "--format=%H%x00%P%x00%s%x00%(trailers:key=Uwf-Step,valueonly)%x00"


class Chains:
    """The chains of steps in what `git log` printed of all commits; `said` tells of a StepNode what it follows and what
    its output says."""

    def __init__(self, log: str, said: Any) -> None:
        self._said = said
        fields = log.split("\0")
        self._commits: dict[str, tuple[str, str, str]] = {}
        for at in range(0, len(fields) - 4, 4):
            commit, parents, subject, node = (each.strip() for each in fields[at : at + 4])
            self._commits[commit] = parents.split(" ")[0], subject, node
        self._steps: dict[str, Step] = {}

    def of(self, commit: str) -> tuple[Step, ...]:
        """The steps up to a commit, oldest first."""
        found = []
        while commit in self._commits:
            parent, subject, node = self._commits[commit]
            if node:
                if node not in self._steps:
                    prev, text = self._said(node)
                    self._steps[node] = Step(node, 0, prev, text)
                found.append(self._steps[node]._replace(number=int(subject.split(" ")[0])))
            commit = parent
        return tuple(reversed(found))


def _only_warnings(printed: bytes) -> bool:
    """Whether `doctor` finds fault with nothing in the store."""
    import json

    faults = [each for each in json.loads(printed) if each["status"] == "error"]
    return all(each["check"] in ("agents", "git", "python", "models", "config") for each in faults)


@cache
def _warm() -> WarmUwf:
    """What runs the calls of all worlds. It ends with this process, which holds its standard input."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return WarmUwf({**kept, "LC_ALL": "C.UTF-8"})


def words(args: Sequence[str]) -> str:
    """A call as one types it."""
    import shlex

    return shlex.join(["uwf", *args])
