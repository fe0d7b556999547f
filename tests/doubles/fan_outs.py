"""Workflows that fan out, and agents in this process that play them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.api import run as api_run
from uwf_git.base.errors import AgentFailed, UwfError
from uwf_git.engine import step as engine
from uwf_git.engine.forks import branches_at
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.kit import Context, Reply, create_agent
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import read_source

TEXT = "{type: object, properties: {text: {type: string}}, required: [text]}"

# The lines 1 to 9 of workflows whose findings name lines: all before the fields of the planner.
LISTS_FILES = """\
version: 1
name: audit
description: Audits files.
roles:
  planner:
    description: Lists files.
    systemPrompt: List.
    outputSchema:
      type: object
"""

AUDIT = """
name: audit
description: Looks at each file.
roles:
  planner:
    description: Names files.
    systemPrompt: Name files.
    outputSchema: {type: object, properties: {files: {type: array, items: {type: string}}}, required: [files]}
  fixer: {description: Fixes a file., systemPrompt: Fix it., outputSchema: %(text)s}
  reviewer: {description: Reviews., systemPrompt: Review., outputSchema: %(text)s}
%(more)s
graph:
  $START: [{role: planner}]
  planner:
    - {each: $last().files, as: file, %(branch)s, %(policy)s join: %(join)s}
  reviewer: [{role: $END}]
%(edges)s
"""

# Whatever plays its roles may answer with ANSWER.
FAN = """\
name: fan
description: Fans out.
roles:
  lister: { description: l, systemPrompt: L., outputSchema: { type: object } }
  worker: { description: w, systemPrompt: W., outputSchema: { type: object } }
  adder: { description: a, systemPrompt: A., outputSchema: { type: object } }
graph:
  $START: [{ role: lister }]
  lister: [{ each: 'steps[-1].output.items', role: worker, prompt: "{{ item }}", join: adder }]
  adder: [{ role: $END }]
"""
ANSWER = """uwf-exec echo '{"items": ["one", "two", "three"]}'"""


def audit(
    branch: str = 'role: fixer, prompt: "Fix {{ file }} ({{ index }})"',
    policy: str = "",
    join: str = "reviewer",
    more: str = "",
    edges: str = "",
) -> str:
    """The YAML of a workflow whose planner names files, each of which is fixed in a branch of its own, and whose
    reviewer has the results."""
    policy = f"{policy}," if policy else ""
    return AUDIT % {
        "text": TEXT, "branch": branch, "policy": policy, "join": join, "more": more, "edges": edges,
    }  # fmt: skip


def audit_in_parts(parts: str) -> str:
    """The YAML of `audit` with fixers that fork too: a branch for each of a YAML list of parts, and a role after their
    join."""
    more = f"  part: {{description: Does a part., systemPrompt: Do it., outputSchema: {TEXT}}}\n"
    more += f"  summer: {{description: Sums up., systemPrompt: Sum up., outputSchema: {TEXT}}}"
    edges = (
        f"  fixer: [{{each: {parts}, as: part, role: part, "
        'prompt: "{{ start.prompt }} part {{ part }}", join: summer}]\n'
        "  summer: [{role: reviewer}]"
    )
    return audit(more=more, edges=edges)


Play = Callable[[Context], Any]


class World(NamedTuple):
    """A store, and what plays each role: a function of the context, or an output."""

    instance: Instance
    folder: Path
    roles: dict[str, Any]
    asked: list[tuple[str, str]]

    def put(self, text: str) -> None:
        """Register a workflow."""
        path = self.folder / "workflow.yaml"
        path.write_text(text)
        self.instance.registry.put(compile_source(read_source(path)))

    def start(self, name: str = "audit", prompt: str = "Audit it", **given: Any) -> ThreadId:
        version = self.instance.registry.current(name)
        return self.instance.threads.start(Oid(hex=version.commit), Start(version.hash, prompt, **given))

    def agent(self) -> Any:
        def run(ctx: Context) -> Reply:
            name = ctx.role.name
            self.asked.append((name, ctx.history.start.prompt))
            played = self.roles.get(name, {"text": f"{name}: {ctx.history.start.prompt}"})
            output = played(ctx) if callable(played) else played
            return Reply(json.dumps(output), output=output)

        return create_agent("uwf-double", run, lambda ctx, _session, _message: run(ctx))

    def options(self) -> api_run.Options:
        return api_run.Options(agent=self.agent(), cwd=self.folder, hooks=False)

    def step(self, thread: ThreadId) -> engine.Outcome:
        return engine.step(self.instance, thread, self.agent(), self.folder)

    def run(self, thread: ThreadId) -> list[str]:
        """Run a thread, its branches one after another; return the roles of its steps and how it ended."""
        return list(self._run(thread))

    def _run(self, thread: ThreadId) -> Iterator[str]:
        last = None
        for last in api_run.run(self.instance, thread, self.options):
            yield str(last.role)
        assert last is not None
        yield last.state.word

    def forked(self, thread: ThreadId) -> list[ThreadId]:
        """Step a thread to its fork; return its branches by index."""
        while self.head(thread).row.role != "$FORK":
            self.step(thread)
        return [each.thread for each in branches_at(self.instance, self.head(thread)).each]

    def head(self, thread: ThreadId) -> Head:
        return self.instance.threads.head(thread)

    def outputs(self, thread: ThreadId) -> list[tuple[str, Any]]:
        history = self.instance.threads.history(self.head(thread))
        return [(each.role, each.output) for each in history.steps]

    def joined(self, thread: ThreadId) -> list[Mapping[str, Any]]:
        """The branches of the last join."""
        output = next(output for role, output in reversed(self.outputs(thread)) if role == "$JOIN")
        return list(output["branches"])


def failing(message: str = "no luck") -> Play:
    """What plays a role and fails."""

    def play(_ctx: Context) -> Any:
        raise AgentFailed(message)

    return play


def refused(call: Callable[[], object]) -> UwfError:
    """The error that a call ends with."""
    try:
        call()
    except UwfError as error:
        return error
    raise AssertionError("it was done")
