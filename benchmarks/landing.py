"""From an issue to an open request and back, at a forge on this machine: what uwf takes itself, as the agents answer at
once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measure import run
from rows import Row, Size, cost
from stores import UWF, Lab

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "doubles"))
from commands import git
from forge_server import TOKEN, ForgeServer, forge_server

COMMENTS = 40
_PASSED = "{type: object, properties: {status: {enum: [passed, failed]}}, required: [status]}"
_WORKFLOW = f"""\
name: bugfix
description: Mend it and test it.
roles:
  fixer: {{description: f, systemPrompt: f, outputSchema: {{type: object, required: [change]}}}}
  tests: {{description: t, systemPrompt: t, outputSchema: {_PASSED}}}
graph:
  $START: {{new: fixer, resume: fixer}}
  fixer: {{_: tests}}
  tests: {{passed: $END, failed: fixer}}
"""
_CONFIG = """\
forges: {{ '{host}': gitea }}
workspace: {{kind: worktree}}
agents:
  fixes: {{command: uwf-exec, args: [sh, -c, 'date +%N > $UWF_THREAD.txt; echo "{{\\"change\\": \\"done\\"}}"']}}
  tries: {{command: uwf-exec, args: ['true']}}
agentOverrides: {{bugfix: {{fixer: fixes, tests: tries}}}}
"""


class _Site:
    """A project whose remote is on a forge, with issues to take up."""

    def __init__(self, folder: Path, server: ForgeServer, remote: Path) -> None:
        self.server, self.lab = server, Lab(folder / "store")
        self.project = folder / "project"
        git("clone", "-q", remote, self.project)
        git("-C", self.project, "remote", "set-url", "origin", f"{server.web}.git")
        git("-C", self.project, "config", f"url.{remote}.insteadOf", f"{server.web}.git")
        (self.lab.root / "config.yaml").write_text(_CONFIG.format(host=server.url.partition("://")[2]))
        definition = folder / "bugfix.yaml"
        definition.write_text(_WORKFLOW)
        run([UWF, "workflow", "put", str(definition)], self.lab.environ)
        self.environ = {**self.lab.environ, "GITEA_TOKEN": TOKEN}
        for who in ("AUTHOR", "COMMITTER"):
            self.environ |= {f"GIT_{who}_NAME": "ann", f"GIT_{who}_EMAIL": "ann@example.org"}

    def uwf(self, *words: str) -> float:
        """The seconds that a command in the project takes."""
        return run(["/usr/bin/env", "-C", str(self.project), UWF, *words], self.environ)

    def requests(self, number: int) -> float:
        """The seconds from an issue to its open request."""
        self.server.has_issue(number, f"Issue {number}")
        seconds = self.uwf("run", "bugfix", self.server.issue_url(number)) + self.uwf("land", "@")
        assert len(self.server.changes) == number
        return seconds


def from_issue(folder: Path, size: Size) -> Iterator[Row]:
    """`uwf run` with an issue's address, and `uwf land`; then what reviewers said about the request."""
    remote = folder / "remote.git"
    _seeded(folder, remote)
    with forge_server("gitea", repository=remote) as server:
        server.token, server.page = TOKEN, 50
        site = _Site(folder, server, remote)
        seconds = [site.requests(number) for number in range(1, size.few_turns + 2)]
        yield cost("from an issue's address to an open request", min(seconds[1:]), 3)
        times, calls = [], 0
        for number in server.changes:
            server.has(number, *((f"user{one % 7}", f"Comment {one}.") for one in range(COMMENTS)))
            before, began = len(server.asked), time.perf_counter()
            site.uwf("land", "--sync", f"@{number}")
            times.append(time.perf_counter() - began)
            calls = len(server.asked) - before
        yield cost(f"uwf land --sync, {COMMENTS} comments", min(times), 5)
        yield Row("the same, calls of the forge", calls, "", None, 12)


def _seeded(folder: Path, remote: Path) -> None:
    folder.mkdir()
    seed = folder / "seed"
    git("init", "-q", "-b", "main", seed)
    (seed / "one.txt").write_text("one\n")
    git("-C", seed, "add", ".")
    git("-C", seed, "-c", "user.name=ann", "-c", "user.email=ann@example.org", "commit", "-q", "-m", "first")
    git("clone", "-q", "--bare", seed, remote)
