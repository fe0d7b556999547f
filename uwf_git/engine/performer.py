"""The agent of a role, run in the engine's process if it is shipped or of an installed package and called by
its bare name, else as a child."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import extensions, lifetime, log, system
from uwf_git.base.errors import (
    AgentFailed,
    OutOfRounds,
    StoreDamaged,
    StoreUnwritable,
    Throttled,
    Usage,
    UwfError,
    Waiting,
)
from uwf_git.base.text import one_line
from uwf_git.config.resolve import (
    EVERY_ROLE,
    GROUP,
    PLUGIN,
    AgentOptions,
    asks_model,
    narrowed,
    plugins,
    shipped,
)
from uwf_git.engine.agent_code import ends_refused, errors_caught
from uwf_git.format.casting import cast_of
from uwf_git.format.ids import Hash, ThreadId, is_hash
from uwf_git.format.kinds import HUMAN, REHEARSE
from uwf_git.format.node import from_blob
from uwf_git.git.repository import Oid
from uwf_git.sandbox.step_variables import variables_of
from uwf_git.store.location import CEILINGS, ceilings
from uwf_git.workflow.turn import asks_agent

if TYPE_CHECKING:
    from uwf_git.config.settings import AgentConfig, Config
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.format.casting import Cast
    from uwf_git.format.kinds import Workflow
    from uwf_git.sandbox.child import CommandResult
    from uwf_git.store.history import Head, Position
    from uwf_git.store.instance import Instance
    from uwf_git.store.private import AgentReport, EngineOrder

SHOWN = 4000  # characters of output kept with a failed attempt, or logged

_LAST_LINE = "its last line must be the hash of its StepNode, as uwf agent put-step prints it"


class AgentResult(NamedTuple):
    """A StepNode, or an error. `detail` keeps the agent's turns; `agent` is the name in its steps, else its
    program's; `stdout` and `stderr` are the ends of a child's output."""

    step: Hash | None = None
    error: AgentFailed | None = None
    detail: Hash | None = None
    agent: str = ""
    stdout: str = ""
    stderr: str = ""


def override_at(
    instance: Instance, at: Position, role: str, override: str | Agent | AgentOptions | None
) -> str | Agent | None:
    """Return what an override, of a step or of a whole run, names for a role."""
    if not isinstance(override, AgentOptions):
        return override
    named: str | Agent | None = narrowed(
        instance.config_of(at.head.row), at.history.cast.role(role), override
    )
    return named


class Replacement(NamedTuple):
    """What plays a role, and what the configuration in `file` names for it: their names, or their commands if one
    program has both."""

    player: str
    own: str
    file: str


def replacement(
    instance: Instance, at: Position, role: str, command: Sequence[str], name: str
) -> Replacement | None:
    """Return whom a command of this name replaces: the configured agent of a role that no model plays; None if
    none."""
    from uwf_git.config.resolve import naming_file, resolve_agent

    workflow, config = at.history.workflow, instance.config_of(at.head.row)
    if workflow.code is not None or not asks_agent(workflow, role):
        return None
    with contextlib.suppress(UwfError):  # what can't play the role is not replaced
        own = resolve_agent(config, at.history.cast.role(role))
        if not asks_model(own.command) and (own.command, *own.args) != tuple(command):
            names = (name, own.alias)
            if name == own.alias:
                names = (shlex.join(command), shlex.join((own.command, *own.args)))
            player, configured = (instance.redactor.text(text)[0] for text in names)
            return Replacement(player, configured, naming_file(config, at.history.cast.role(role)))
    return None


def performer_of(
    instance: Instance, at: Position, role: str, override: str | Agent | AgentOptions | None
) -> tuple[AgentConfig, Agent | None]:
    """Return the configuration of a role's agent, and the agent itself if it runs in this process. A code
    workflow runs its own code and passes the override on. A role with `human: true` is a person's, whatever the
    override, unless that is `uwf-rehearse`. Raises Untrusted for code, Usage and Invalid if no
    agent is configured or nobody speaks for the role."""
    from uwf_git.config.resolve import resolve_agent
    from uwf_git.config.settings import AgentConfig

    runner, is_persons = runner_of(at.history.workflow), at.history.workflow.is_persons(role)
    named = override_at(instance, at, role, override)
    if named is not None and not isinstance(named, str):
        if runner is not None:
            raise Usage(
                f"workflow {at.history.workflow.name} is code, whose calls this agent cannot do", "name one"
            )
        at.history.cast.require(role, at.head.thread)
        name = named.called(())
        if is_persons and named.name not in (HUMAN, REHEARSE):
            return AgentConfig(HUMAN, HUMAN, (), None), embedded(HUMAN)
        return AgentConfig(name, name, (), None), named
    if runner is not None:
        runner.admit(instance, at)
        alone = () if named is None else (f"{EVERY_ROLE}={named}",)
        words = override.words if isinstance(override, AgentOptions) else alone
        return AgentConfig(runner.name, runner.name, words, None), runner
    config = resolve_agent(
        instance.config_of(at.head.row), at.history.cast.require(role, at.head.thread), named
    )
    if is_persons:
        from uwf_git.engine.human_roles import agent_of_person

        config = agent_of_person(config, named is not None)
    if Path(config.command).name == REHEARSE:
        from uwf_git.engine.default_agent import refuse_to_make_up

        refuse_to_make_up(instance, at, role, config)
    return config, embedded(config.command)


def provider_of(instance: Instance, head: Head, role: str, override: str | AgentOptions | None = None) -> str:
    """Return the provider that the next role's agent calls: its model's, or one with the agent's name, alias
    or command; "" if none."""
    known = instance.config.providers
    if not known:
        return ""
    with contextlib.suppress(UwfError):
        if (config := _configured(instance, head, role, override)) is None:
            return ""
        names = [config.alias, Path(config.command).name]
        if (playing := embedded(config.command)) is not None:
            name = called(playing, config)
            names += [name, name.removeprefix("uwf-"), name.rpartition("/")[2]]
            names.insert(0, playing.asks(instance.config, config.args))
        return next((name for name in names if name in known), "")
    return ""


def agent_command(
    instance: Instance, head: Head, role: str, override: str | AgentOptions | None = None
) -> str:
    """Return the command line of the next role's agent; "" if it asks none, or none is known."""
    with contextlib.suppress(UwfError):
        config = _configured(instance, head, role, override)
        return "" if config is None else shlex.join([config.command, *config.args])
    return ""


def command_run(instance: Instance, head: Head, role: str) -> tuple[str, ...]:
    """Return the command that a role's steps run and do nothing else, as it is configured now; () if there is none."""
    with contextlib.suppress(UwfError):
        config = _configured(instance, head, role, None)
        agent = None if config is None else embedded(config.command)
        if config is not None and agent is not None:
            return tuple(agent.runs(config.args, role))
    return ()


def _configured(
    instance: Instance, head: Head, role: str, override: str | AgentOptions | None
) -> AgentConfig | None:
    from uwf_git.config.resolve import resolve_agent

    cast = _cast_at(instance, head)
    if cast is None or not asks_agent(cast.workflow, role):
        return None
    return resolve_agent(instance.config_of(head.row), cast.role(role), override)


def _cast_at(instance: Instance, head: Head) -> Cast | None:
    if head.row.workflow is None or head.row.start is None:
        return None
    start = instance.store.start(head.row.start)
    return cast_of(instance.registry.workflow(head.row.workflow), start)


def embedded(command: str) -> Agent | None:
    """Return the in-process agent of a bare command name, else None. Raises AgentFailed if it cannot be
    loaded."""
    if command.startswith(PLUGIN):
        return _plugged_in(command.removeprefix(PLUGIN))
    program = shipped(command)
    agent: Agent | None = program.load() if program is not None else None
    return agent


def runner_of(workflow: Workflow) -> Agent | None:
    """Return the agent that performs all steps of this kind of workflow, if any."""
    row = None if workflow.kind == "workflow" else extensions.runner(workflow.kind)
    runner: Agent | None = None if row is None else extensions.load(row.where)
    return runner


def _plugged_in(command: str) -> Agent:
    from uwf_git.engine.kit.agent import Agent

    plugin = plugins().get(command)
    if plugin is None:
        raise AgentFailed(f"no installed package brings an agent {command}", "see: uwf agent list")
    package = plugin.package or "its package"
    lifetime.share()
    failure, hint = f"of {package} cannot be loaded", f"install {package} anew, or remove it"
    with ends_refused(command), errors_caught(command, failure, hint):
        loaded = plugin.load()
        agent = loaded if isinstance(loaded, Agent) else loaded()
    if not isinstance(agent, Agent):
        raise AgentFailed(
            f"agent {command} of {package} is {type(agent).__name__}, no Agent",
            f"an entry point of {GROUP} names what create_agent returns",
        )
    return agent


def called(agent: Agent, config: AgentConfig) -> str:
    """Return an agent's name, even if its arguments are invalid."""
    with contextlib.suppress(UwfError):
        return agent.called(config.args)
    return agent.name


_INTERPRETERS = r"(?:python|pypy|perl|ruby|lua)[0-9.]*|(?:ba|da|z|k)?sh|node|bun|deno|Rscript"


def program_of(command: str, args: Sequence[str]) -> str:
    """Return the name of a command's program; for an interpreter, its script's."""
    name = Path(command).name
    if args and not args[0].startswith("-") and re.fullmatch(_INTERPRETERS, name):
        return Path(args[0]).name
    return name


def perform(
    instance: Instance, at: Position, agent: Agent, config: AgentConfig, order: EngineOrder, folder: Path
) -> AgentResult:
    """Run an in-process agent in a folder, which becomes the current one if the process is a command of ours.
    Raises Waiting, OutOfRounds, StoreUnwritable, StoreDamaged."""
    try:
        with _within(folder), ends_refused(order.name):
            return AgentResult(agent.perform(instance, at, order, config.args, cwd=folder), agent=order.name)
    except (Waiting, OutOfRounds):
        instance.runs.withdraw(at.head.thread)
        raise
    except (StoreUnwritable, StoreDamaged):
        raise
    except UwfError as error:
        failure = error if isinstance(error, AgentFailed) else AgentFailed(error.message, error.hint)
        stdout, stderr = (text[-SHOWN:] for text in failure.printed)
        _advise(instance, config, failure, stdout + stderr)
        return AgentResult(None, failure, getattr(error, "detail", None), order.name, stdout, stderr)


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    if not lifetime.is_own():
        yield
        return
    with system.entered(folder):
        yield


def run_command_of(
    instance: Instance,
    at: Position,
    config: AgentConfig,
    order: EngineOrder,
    folder: Path,
    lock: int,
    on_stderr: Callable[[bytes], None] | None,
) -> AgentResult:
    """Run an agent's command in a folder: the hash in its last line, or a one-line failure. A command that
    was ended after reporting its step has made it; one that failed then has not. Raises StoreUnwritable."""
    from uwf_git.sandbox.child import run_command

    thread = at.head.thread
    try:
        done = run_command(
            [config.command, *config.args, thread, order.role],
            cwd=folder,
            env=environment(instance, thread, order.role, config.env),
            timeout=config.timeout,
            silence=config.silence,
            pass_fds=(lock,),
            stderr_to=instance.runs.log(thread),
            on_stderr=on_stderr,
            quota=config.limits.given() if any(config.limits) else None,
        )
    except AgentFailed as error:
        return AgentResult(None, error, agent=order.name)
    report = instance.runs.answer_to(thread, order.head, order.role)
    result = AgentResult(agent=order.name) if report is None else reported(instance, report)
    tails = [tail.decode("utf-8", "replace")[-SHOWN:] for tail in (done.stdout_tail, done.stderr_tail)]
    result = result._replace(stdout=tails[0], stderr=tails[1])
    try:
        return result._replace(step=hash_printed(config, done, thread, report), error=None)
    except AgentFailed as error:
        _advise(instance, config, error, "".join(tails))
        has_failed = done.returncode > 0 and done.exceeded is None and not done.timed_out
        if result.step is None or (has_failed and report is not None and report.is_put):
            return result._replace(step=None, error=error)
        return result


def _advise(instance: Instance, config: AgentConfig, error: AgentFailed, printed: str) -> None:
    """Have an error's hint name a secret that the agent's output names and that was withheld."""
    if name := instance.secrets.withheld(f"{error.message}\n{printed}"):
        alias = config.alias if config.alias in instance.config.agents else "NAME"
        error.hint = f"it gets {name} if its settings say so: uwf config set agents.{alias}.env {name}"


def environment(instance: Instance, thread: ThreadId, role: str, names: Sequence[str]) -> dict[str, str]:
    """Return the environment of an agent's command, with the secrets `names`. Raises Unavailable."""
    place = instance.location.environment()
    own = variables_of(thread, role, instance.runs.nonce(thread))
    own[CEILINGS] = ceilings(instance.location.root)
    return {**instance.secrets.environment(names), **place, **own}


def reported(instance: Instance, report: AgentReport) -> AgentResult:
    """Return an agent's result from its report; nodes are indexed or drafted again if needed. Raises
    StoreUnwritable."""
    store = instance.store
    for node, blob in report.nodes.items():
        oid = Oid(hex=blob)
        if store.index.node(node) is None and store.repository.has(oid):
            store.adopt([(Hash(node), oid)])
    for name, content in report.contents.items():
        store.draft(*from_blob(content.encode(), f"{name} in the report of {report.agent}"))
    return AgentResult(report.step, None if report.step else _failure(report), report.detail, report.agent)


def _failure(report: AgentReport) -> AgentFailed:
    error = AgentFailed(report.error, report.hint)
    error.throttled = Throttled(*report.throttled) if report.throttled else None
    error.timed_out = report.timed_out
    return error


def hash_printed(
    config: AgentConfig, done: CommandResult, thread: ThreadId, report: AgentReport | None = None
) -> Hash:
    """Return the hash in the last line of a command's output. Raises AgentFailed if it failed, with its
    `report`'s message, or printed something else."""
    name = config.command
    plain = f'a command that is not an agent needs uwf-exec: "uwf-exec {one_line(name, 200)} …"'
    stderr = done.stderr_tail.decode("utf-8", "replace")
    complaint = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    last = done.stdout_tail.decode("utf-8", "replace").rstrip().rpartition("\n")[2].strip()
    log.info(
        "THJPKHPV",
        "{command} ended with {status}",
        command=name,
        status=done.returncode,
        timed_out=done.timed_out,
        stdout_size=done.stdout_size,
        stderr_size=done.stderr_size,
        last_line=last[:SHOWN],
        complaint=complaint[:SHOWN],
        reported=report is not None,
    )
    if done.exceeded is not None:
        raise done.exceeded.failure(name, config.alias)
    if done.timed_out:
        remark = f"; it said last: {complaint}" if complaint else ""
        longer = "silence in config.yaml" if done.fell_silent else "timeout"
        late = AgentFailed(f"{name} {done.overran} {done.told}{remark}", f"raise agents.<name>.{longer}")
        late.timed_out = True
        raise late
    if done.returncode < 0:
        raise AgentFailed(f"{name} was killed by signal {-done.returncode}", complaint)
    if done.returncode > 0 and report is not None and report.error:
        raise _failure(report)
    if done.returncode > 0 and "No module named 'uwf_git'" in complaint:
        raise AgentFailed(
            f"{name} has a Python without uwf-git: {complaint}", f"let this one run it: {sys.executable}"
        )
    if done.returncode > 0:
        error = AgentFailed(
            f"{name} exited with {done.returncode}" + (f": {complaint}" if complaint else ""),
            f"see: uwf thread attempts {thread}; {plain}",
        )
        error.throttled = Throttled.told(Path(name).name, complaint)
        raise error
    if not last:
        raise AgentFailed(f"{name} printed nothing", f"{_LAST_LINE}; {plain}")
    if not is_hash(last.upper()):
        raise AgentFailed(f"{name} printed {last[:60]!r}, which is not a hash", f"{_LAST_LINE}; {plain}")
    return Hash(last.upper())


# Expected cost


def missing_price_at(
    instance: Instance, head: Head, role: str, agent: str | Agent | AgentOptions | None = None
) -> str:
    """Return why the cost of the next role's agent cannot be known beforehand, "" if it can."""
    cast = _cast_at(instance, head)
    if cast is None:
        return ""
    return next(iter(missing_price_reason(instance.config_of(head.row), cast, [role], agent)), "")


def missing_price_reason(
    config: Config,
    cast: Cast,
    roles: Iterable[str],
    agent: str | Agent | AgentOptions | None = None,
) -> list[str]:
    """Return why the cost of these roles' agents cannot be known beforehand, one clause each."""
    from uwf_git.config.resolve import resolve_agent

    reasons: dict[str, None] = {}
    for role in roles:
        if not asks_agent(cast.workflow, role):
            continue
        with contextlib.suppress(UwfError):  # reported to the agent of the role
            player = cast.role(role)
            named: str | Agent | None
            if isinstance(agent, AgentOptions):
                named = narrowed(config, player, agent)
            else:
                named = agent
            if isinstance(named, str | None):
                player_config = resolve_agent(config, player, named)
                playing, args = embedded(player_config.command), player_config.args
            else:
                playing, args = named, ()
            if playing is not None and (why := playing.missing_price(config, args)):
                reasons[why] = None
    return list(reasons)
