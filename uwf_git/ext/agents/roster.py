"""Known agents, and whether they work. `members` lists them with their programs. `check` runs one small step
in a temporary store, with the user's configuration and secrets."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git import __version__
from uwf_git.ext.agents.cli.row import ANY_ROW, AgentRow, rows_of
from uwf_git.plugin import (
    REHEARSE,
    AgentConfig,
    AgentProgram,
    Config,
    StartNode,
    UwfError,
    embedded_agent,
    install_hint,
    known_agents,
    load_extension,
    model_alias,
    named_agent,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, ThreadId

ANSWER = "seven"
_QUESTION = "What is three and four? Write the number as an English word into the field."
TIMEOUT = 120.0

_WORKFLOW = """\
name: agent-check
description: One word, to see whether an agent can be asked.
roles:
  checked:
    description: Says one word.
    systemPrompt: Answer at once, without any tool. Change no file.
    outputSchema:
      type: object
      properties: {number: {type: string}}
      required: [number]
graph:
  $START: [{role: checked}]
  checked: [{role: $END}]
"""


class Member(NamedTuple):
    """A known agent. `by` is "uwf-git", "config.yaml", or a package with version. `program` must be on PATH
    ("" if in process), found at `path`. `problem` says what is missing."""

    name: str
    by: str
    program: str
    path: str | None
    version: str | None
    problem: str = ""
    hint: str = ""


class CheckResult(NamedTuple):
    """A check's result. `problem` is "" on success."""

    agent: str
    seconds: float
    model: str | None
    usage: dict[str, int] | None
    problem: str = ""
    hint: str = ""


def members(config: Config) -> list[Member]:
    """Return all agents in order of precedence, asking programs for versions in parallel."""
    agents: dict[str, Any] = dict(config.agents)
    for name, row in rows_of(config).rows.items():
        agents.setdefault(name, row)
    for name in known_agents.shipped_names():
        if name != ANY_ROW:
            agents.setdefault(name, known_agents.shipped(name))
    taken = {*agents, *(name.removeprefix("uwf-") for name in known_agents.shipped_names())}
    for name, plugin in sorted(known_agents.plugins().items()):
        agents.setdefault(known_agents.PLUGIN + name if name in taken else name, plugin)
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda item: _member(config, *item), agents.items()))


def _member(config: Config, name: str, what: Any) -> Member:
    if isinstance(what, AgentConfig):
        return _configured(config, name, what)
    if isinstance(what, AgentRow):
        return _of_own_row(config, name, name)
    if isinstance(what, AgentProgram):
        return _shipped(config, what, ())
    plugin: known_agents.Plugin = what
    by = f"{plugin.package} {plugin.version}".strip() or "a package"
    member = Member(name, by, "", None, None)
    try:
        embedded_agent(known_agents.PLUGIN + plugin.name)
    except UwfError as error:
        return member._replace(problem=error.message, hint=error.hint)
    return member


def _configured(config: Config, alias: str, agent: AgentConfig) -> Member:
    if (program := known_agents.shipped(agent.command)) is not None:
        if agent.command == ANY_ROW and agent.args and agent.args[0] in rows_of(config).rows:
            return _of_own_row(config, alias, agent.args[0])
        return _shipped(config, program, agent.args)._replace(name=alias, by="config.yaml")
    if not agent.command:
        hint = f"uwf config set agents.{alias}.command …"
        return Member(alias, "config.yaml", "", None, None, "it has no command", hint)
    if agent.command.startswith(known_agents.PLUGIN):
        name = agent.command.removeprefix(known_agents.PLUGIN)
        missing = "" if name in known_agents.plugins() else f"no installed package brings an agent {name}"
        return Member(alias, "config.yaml", "", None, None, missing, missing and "install it")
    return _on_path(Member(alias, "config.yaml", "", None, None), agent.command)


def _shipped(config: Config, program: AgentProgram, args: Sequence[str]) -> Member:
    from importlib.util import find_spec

    from uwf_git.ext.agents.cli.rows import shipped_row

    name = program.name
    row = shipped_row(name.removeprefix("uwf-"))
    if row is not None:
        return _of_row(name, row, "uwf-git")
    member = Member(name, "uwf-git", "", None, __version__)
    if program.kind == "protocol" and find_spec("acp") is None:
        return member._replace(problem="the package for it is not installed: acp", hint=install_hint("acp"))
    if program.kind == "model" and "--model" not in args:
        return _with_model(config, member)
    if program.kind in ("protocol", "command") and args:
        return _with_program(program, args, member)
    return member


def _with_model(config: Config, member: Member) -> Member:
    try:
        alias = model_alias(member.name, config, None)
    except UwfError as error:
        return member._replace(problem=error.message, hint=error.hint)
    return member._replace(program=f"model {config.models[alias].name}")


def _with_program(program: AgentProgram, args: Sequence[str], member: Member) -> Member:
    try:
        options = load_extension(f"{program.module}:parse_args")(args)
    except UwfError as error:
        return member._replace(problem=error.message, hint=error.hint)
    command = getattr(options, "command", ())  # not every agent runs one
    if not command:
        return member
    return _on_path(member._replace(version=None), command[0])


def _on_path(member: Member, program: str) -> Member:
    path = shutil.which(program)
    member = member._replace(program=program, path=path)
    if path is None:
        return member._replace(
            problem=f"{program} is not installed, or not on PATH", hint="install it, or correct its name"
        )
    return member


def _of_own_row(config: Config, name: str, cli: str) -> Member:
    rows, broken = rows_of(config)
    row = rows[cli]
    if problem := broken.get(cli):
        return Member(name, "config.yaml", row.program, None, None, problem, f"correct agentClis.{cli}")
    return _of_row(name, row, "config.yaml")


def _of_row(name: str, row: AgentRow, by: str) -> Member:
    from uwf_git.ext.agents.cli.calls import installed_version, older, require

    try:
        path = require(row, os.environ)
    except UwfError as error:
        return Member(name, by, row.program, None, None, error.message, error.hint)
    version = installed_version(row, os.environ)
    member = Member(name, by, row.program, path, version)
    if version and row.least and older(version, row.least):
        problem = f"version {version} is older than {row.least}"
        return member._replace(problem=problem, hint=row.install)
    return member


def check(
    root: Path,
    config: Config,
    name: str,
    timeout: float | None,
    cwd: Path | None = None,
    watched: Callable[[Instance, ThreadId], AbstractContextManager[object]] | None = None,
) -> CheckResult:
    """Run a one-word step with an agent or command, in `cwd` or an empty folder, within `watched`. `timeout`
    in seconds overrides the agent's; the default is two minutes. Raises Usage, Invalid for an unknown agent.
    """
    from uwf_git.plugin import Instance, Location, Oid, compile_source, init_store, parse_source, step_thread

    agent = named_agent(config, name)
    with tempfile.TemporaryDirectory(prefix="uwf-check-") as folder:
        scratch, work = Path(folder) / "root", Path(folder) / "work"
        work.mkdir()
        scratch.mkdir()
        for file in ("config.yaml", ".env"):
            if (root / file).exists():
                (scratch / file).symlink_to((root / file).absolute())
        location = Location(scratch, scratch / "store.git")
        init_store(location)
        limited = agent._replace(timeout=timeout or agent.timeout or TIMEOUT)
        there = Instance(location, config=config._replace(agents={**config.agents, name: limited}))
        version = there.registry.put(compile_source(parse_source(_WORKFLOW.encode(), "agent-check.yaml")))
        thread = there.threads.start(Oid(hex=version.commit), StartNode(version.hash, _QUESTION))
        began = time.monotonic()
        try:
            with watched(there, thread) if watched else nullcontext():
                step_thread(there, thread, agent=name, cwd=cwd or work)
        except UwfError as error:
            took = time.monotonic() - began
            return CheckResult(agent.alias, took, None, None, error.message, _hint(error, took, limited))
        took = time.monotonic() - began
        last = there.threads.history(there.threads.head(thread)).steps[-1]
        detail = there.store.detail(last.detail)
        answer = str(last.output.get("number", last.output)).strip().strip(".").lower()
        if answer != ANSWER and limited.command != REHEARSE:
            problem = f"{agent.alias} answered {answer[:60]!r} where it should say {ANSWER!r}"
            return CheckResult(agent.alias, took, None, None, problem, "is it a language model's answer?")
        usage = detail.usage.payload() if detail and detail.usage else None
        model = detail.model if detail else None
        return CheckResult(agent.alias, took, model, dict(sorted(usage.items())) if usage else None)


def _hint(error: UwfError, took: float, agent: AgentConfig) -> str:
    if agent.timeout is not None and took >= agent.timeout:
        from uwf_git.plugin import duration_text

        limit = duration_text(agent.timeout)
        return f"it was given {limit}, and may try for longer by itself: give it that with --timeout"
    return "" if "uwf thread" in error.hint or "is kept" in error.hint else error.hint
