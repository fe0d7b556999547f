"""Says of each thread in a store, by git alone, whether it is complete exactly once: its steps are one chain of commits
from its start to its end, each number once, and nothing of it is anywhere else.

    python tests/fleet/complete.py STORE.git [--steps 5]

It knows nothing of the engine: it reads refs, commits, tags and trees as docs/reference/format.md says they are.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

_REFS = re.compile(r"refs/uwf/(threads|archive|forks|attempts|paused)/([0-9A-Z]{26})$")
_SUBJECT = re.compile(r"(\d{4,}) (\S+)")
_PAGE = re.compile(r"steps/(?:\d\dxx/)?(\d{4,})-[^/]*/README\.md$")


class Commit(NamedTuple):
    """A record: its parents, its subject, and the kinds of record its trailers name."""

    parents: tuple[str, ...]
    subject: str
    kinds: tuple[str, ...]


class Found(NamedTuple):
    """What is wrong with threads, by id, and how many steps each of the others has."""

    wrong: dict[str, list[str]]
    steps: dict[str, int]

    @property
    def lost(self) -> int:
        """Steps without which a thread isn't complete."""
        return sum("lost" in each for problems in self.wrong.values() for each in problems)

    @property
    def doubled(self) -> int:
        """Steps that are there twice."""
        return sum("twice" in each for problems in self.wrong.values() for each in problems)


def examine(store: Path, steps: int | None = None) -> Found:
    """What is wrong with the threads of a store; each has to have so many `steps`, where that is given."""
    refs: dict[str, dict[str, str]] = defaultdict(dict)
    for line in _git(
        store, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", "refs/uwf/"
    ).splitlines():
        name, oid, *target = line.split()
        if matched := _REFS.match(name):
            refs[matched[2]][matched[1]] = target[0] if target else oid
    commits = _commits(store)
    wrong, complete = {}, {}
    owners: dict[str, str] = {}
    for thread, has in sorted(refs.items()):
        problems, chain = _examine(thread, has, commits, steps)
        for commit in chain:
            if (other := owners.setdefault(commit, thread)) != thread:
                problems.append(f"step {commits[commit].subject!r} is twice: thread {other} has it too")
        if chain:
            pages = sorted(int(found[1]) for each in _tree(store, chain[-1]) if (found := _PAGE.match(each)))
            if pages != list(range(1, len(chain) + 1)):
                problems.append(f"the tree of its last step has the steps {pages}")
        if problems:
            wrong[thread] = problems
        else:
            complete[thread] = len(chain)
    return Found(wrong, complete)


def _examine(
    thread: str, has: dict[str, str], commits: dict[str, Commit], steps: int | None
) -> tuple[list[str], list[str]]:
    """The problems of a thread, and the commits of its steps from the first to the last."""
    problems = []
    if "forks" in has:
        problems.append("it is the other side of a divergence: a step was made twice")
    if "paused" in has:
        problems.append("it is paused")
    if "archive" not in has:
        return [*problems, "it has not ended"], []
    if "threads" in has:
        problems.append("it has ended and is active")
    chain, at = [], has["archive"]
    while "Uwf-Step" in commits[at].kinds:
        chain.append(at)
        if len(commits[at].parents) != 1:
            problems.append(f"commit {at} has {len(commits[at].parents)} parents")
        at = commits[at].parents[0]
    if "Uwf-Start" not in commits[at].kinds:
        problems.append(f"its first step depends on commit {at}, which begins no thread")
    chain.reverse()
    numbers = [int(found[1]) for each in chain if (found := _SUBJECT.match(commits[each].subject))]
    for number in range(1, (steps or len(chain)) + 1):
        if numbers.count(number) != 1:
            problems.append(f"step {number} is {'twice' if numbers.count(number) else 'lost'}")
    if steps is not None and len(chain) != steps:
        problems.append(f"it has {len(chain)} steps, not {steps}")
    return problems, chain


def _commits(store: Path) -> dict[str, Commit]:
    """Every commit that a ref of uwf's leads to."""
    form = "%H%x00%P%x00%s%x00%(trailers:only,unfold,separator=%x01,key_value_separator=%x02)"
    found = {}
    for line in _git(store, "log", "--glob=refs/uwf", f"--format={form}").splitlines():
        oid, parents, subject, trailers = line.split("\0")
        kinds = tuple(each.partition("\2")[0] for each in trailers.split("\1"))
        found[oid] = Commit(tuple(parents.split()), subject, kinds)
    return found


def _tree(store: Path, commit: str) -> list[str]:
    return _git(store, "ls-tree", "-r", "--name-only", commit, "steps/").splitlines()


def _git(store: Path, *args: str) -> str:
    return subprocess.run(
        ["git", "--git-dir", str(store), *args], capture_output=True, text=True, check=True
    ).stdout


def main() -> None:
    """Exits with 1 where a thread isn't complete."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--steps", type=int, help="how many each thread has to have")
    options = parser.parse_args()
    found = examine(options.store, options.steps)
    for thread, problems in found.wrong.items():
        print(f"{thread}: {'; '.join(problems)}")
    print(
        f"{len(found.steps)} threads complete, with {sum(found.steps.values())} steps; {len(found.wrong)} not;"
        f" {found.lost} steps lost, {found.doubled} doubled"
    )
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
