"""Whether a run can reach its end with the agents of this machine: checked before its first step, and before money."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.api.start import require_agent
from uwf_git.base.errors import Absent, Invalid, Unavailable, Usage, UwfError
from uwf_git.base.text import nearest
from uwf_git.config.edit import dotted
from uwf_git.config.resolve import (
    AgentOptions,
    agent_options,
    asks_model,
    is_missing,
    known_agent,
    named_agent,
    naming_file,
    narrowed,
    overriding,
    resolve_agent,
    why_missing,
)
from uwf_git.engine.default_agent import real_workers
from uwf_git.engine.human_roles import agent_of_person
from uwf_git.engine.performer import embedded
from uwf_git.format.casting import Cast
from uwf_git.format.endings import COMPLETED
from uwf_git.format.kinds import HUMAN, REHEARSE, SUBWORKFLOW
from uwf_git.format.types import RESUME, START
from uwf_git.workflow.moderator import reachable
from uwf_git.workflow.turn import Player, asks_agent, turn_of

if TYPE_CHECKING:
    from uwf_git.config.settings import AgentConfig, Config
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.format.ids import ThreadId
    from uwf_git.format.kinds import Workflow
    from uwf_git.store.history import Position
    from uwf_git.store.instance import Instance

PERSON, REHEARSAL, WORKFLOW, COMMAND, MODEL = "person", "rehearsal", "workflow", "command", "model"
_DEEPEST = 8  # workflows within each other that are looked at
_COMPARED = 20  # past threads
_NO_PERSON = "no agent takes a person's place: answer when the thread waits, or rehearse with uwf-rehearse"


class Part(NamedTuple):
    """A role and who plays it. `kept`: --agent doesn't replace that; `stands_in`: nobody chose its rehearsal;
    `is_real`: more than a rehearsal; `problem` keeps it from playing, `warning` may."""

    role: str
    agent: str
    kind: str
    kept: bool = False
    stands_in: bool = False
    is_real: bool = False
    problem: str = ""
    hint: str = ""
    warning: str = ""


class Usual(NamedTuple):
    """What a workflow has usually taken in `threads`: the medians. None of them reported tokens or a cost if that is
    None."""

    threads: int
    steps: int
    seconds: float
    tokens: int | None
    cost: float | None


def require_ready(
    instance: Instance,
    cast: Cast,
    agents: str | Agent | AgentOptions | None = None,
    at: Position | None = None,
    role: str | None = None,
    folder: Path | None = None,
) -> tuple[Part, ...]:
    """Return who plays the roles that a new thread, or one at a position, may reach, or `role` alone. Agents that are
    named by a relative path must be in the current folder if that of a new thread is given. Warns of logins that seem
    to be missing, and of roles that --agent leaves to commands, people and workflows. Raises Usage for a
    role that the workflow doesn't have, and if a rehearsal would go on where others have worked, Invalid if an agent is
    not known, installed or configured."""
    options = agent_options((agents,)) if isinstance(agents, str) else agents
    options = options if isinstance(options, AgentOptions | None) else AgentOptions(options)
    instance.warn_of_setup()
    workflow, config = cast.workflow, _config(instance, at, folder)
    check_roles(config, workflow, options)
    if options is not None:
        require_agent(config, options)
    if role is None:
        parts = _parts(instance, config, cast, options, at, folder=folder)
    else:
        parts = (_part(instance, config, cast, role, options, 0, folder),)
    problems = _problems(config, workflow, parts, instance, at)
    if problems:
        texts = "; ".join(text for text, _ in problems)
        kind = Invalid if any(part.problem for part in parts) else Usage  # as a step's without an agent
        raise kind(f"workflow {workflow.name} cannot run to its end here: {texts}", problems[0][1])
    if at is not None and at.history.start.branch is not None:
        return parts  # its parent's run has warned
    for warning in dict.fromkeys(part.warning for part in parts if part.warning):
        instance.warn(warning)
    if options is not None and options.everywhere is not None and (line := _left_alone(parts)):
        instance.warn(line)
    return parts


def _config(instance: Instance, at: Position | None, folder: Path | None) -> Config:
    return instance.config_of(at.head.row) if at is not None else instance.config_at(folder or Path.cwd())


def _left_alone(parts: Sequence[Part]) -> str:
    """Describe the roles that an --agent without a role leaves as they are: those of commands and workflows; if it
    plays none at all, also those of people."""
    kept = [part for part in parts if part.kept]
    is_idle = all(part.kept or part.kind == PERSON for part in parts)
    named = ", ".join(f"{part.role} ({part.agent})" for part in (parts if is_idle else kept))
    hint = f"--agent {kept[0].role}=NAME replaces that one" if kept else _NO_PERSON
    if is_idle and parts:
        return f"--agent plays no role here, since no model plays one: {named} — {hint}"
    return f"--agent leaves roles that no model plays as they are: {named} — {hint}" if kept else ""


def require_ready_thread(
    instance: Instance, thread: ThreadId, agents: str | Agent | AgentOptions | None = None
) -> None:
    """As `require_ready`, for a thread whose next step is a role's. Raises Absent if a person plays that first."""
    from uwf_git.engine.human_turn import human_turn
    from uwf_git.engine.presented import command_at

    try:
        _require_ready_thread(instance, thread, agents)
    except (Usage, Invalid) as error:
        head = instance.threads.head(thread)
        if head.archive is not None or (turn := human_turn(instance, head)) is None:
            raise
        raise Absent(
            f"thread {thread} waits for a person to play role {turn.role!r}; after that, {error.message}",
            f"{command_at(instance, head, turn)}; for the agents: {error.hint}",
        ) from None


def _require_ready_thread(
    instance: Instance, thread: ThreadId, agents: str | Agent | AgentOptions | None = None
) -> None:
    from uwf_git.engine.next_turn import outlook

    head = instance.threads.head(thread)
    if head.archive is not None:
        return
    at = instance.threads.position(head)
    workflow = at.history.workflow
    if outlook(instance, *at).next in workflow.roles:
        require_ready(instance, at.history.cast, agents, at)
    elif isinstance(agents, AgentOptions):
        check_roles(instance.config_of(head.row), workflow, agents)


def warn_unless_ready(instance: Instance, thread: ThreadId) -> None:
    """Warn before the first step of a thread if it can be made, and a run would be refused: the other steps may be made
    with other agents, or elsewhere."""
    from uwf_git.engine.next_turn import outlook

    head = instance.threads.head(thread)
    try:
        _require_ready_thread(instance, thread)
    except UwfError as error:
        at = instance.threads.position(head)
        role = outlook(instance, *at).next
        with suppress(UwfError):  # which the step raises
            require_ready(instance, at.history.cast, at=at, role=role)
            instance.warn(f"{error.message} — {error.hint}")


def check_roles(config: Config, workflow: Workflow, options: AgentOptions | None) -> None:
    """Raise Usage if --agent names a role that a workflow doesn't have, or a person's for more than a rehearsal. Code
    may ask for any."""
    if options is None or workflow.code is not None:
        return
    for role, name in options.roles:
        if role not in workflow.roles:
            raise Usage(
                f"--agent {role}=…: workflow {workflow.name} has no role {role!r}",
                nearest(role, workflow.roles) or f"its roles: {', '.join(workflow.roles)}",
            )
        match turn_of(workflow, role).player:
            case Player.AGENT:
                continue
            case Player.PEOPLE:
                agent = named_agent(config, name)
                if agent_of_person(agent, is_override=True) == agent:
                    continue
                player, hint = "a person plays", _NO_PERSON
            case Player.ENGINE:
                player, hint = "no agent plays", "leave it out"
        raise Usage(f"--agent {role}={name}: {player} role {role!r} of {workflow.name}", hint)


def require_played(instance: Instance, cast: Cast, options: AgentOptions, role: str | None = None) -> None:
    """Raise Usage if --agent plays no role of a workflow, or not the only one that is asked, since no model plays it:
    a comparison would then be one with itself."""
    workflow = cast.workflow
    config = _config(instance, None, None)
    check_roles(config, workflow, options)
    roles = [role] if role is not None else [name for name in workflow.roles if asks_agent(workflow, name)]
    if any(narrowed(config, cast.role(name), options) is not None for name in roles):
        return
    if roles:
        raise Usage(
            f"--agent {' '.join(options.words)} plays no role of workflow {workflow.name}, where no model plays one",
            f"name the role: --agent {roles[0]}=NAME",
        )


def usual(instance: Instance, name: str) -> Usual | None:
    """Return what completed threads of a workflow have taken: the medians of the newest, None without any."""
    from statistics import median

    from uwf_git.engine.thread_spending import account
    from uwf_git.store.history import Head

    heads = [
        head
        for head in instance.threads.all(archived=True)
        if isinstance(head, Head) and head.row.name == name
        if head.archive is not None and head.archive.status == COMPLETED
    ]
    newest = sorted(heads, key=lambda head: head.thread)[-_COMPARED:]
    spent = [account(instance, head).spent for head in newest]
    tokens = [each.total for one in spent if (each := one.tokens) is not None]
    costs = [paid.cost for one in spent if (paid := one.money(instance.config.prices)).cost is not None]
    if not spent:
        return None
    return Usual(
        len(spent),
        round(median(totals.steps for totals in spent)),
        median(totals.seconds for totals in spent),
        round(median(tokens)) if tokens else None,
        median(costs) if costs else None,
    )


def _parts(
    instance: Instance,
    config: Config,
    cast: Cast,
    options: AgentOptions | None = None,
    at: Position | None = None,
    depth: int = 0,
    folder: Path | None = None,
) -> tuple[Part, ...]:
    roles = _reached(instance, cast.workflow, at)
    return tuple(_part(instance, config, cast, role, options, depth, folder) for role in roles)


def _part(
    instance: Instance,
    config: Config,
    cast: Cast,
    role: str,
    options: AgentOptions | None,
    depth: int,
    folder: Path | None,
) -> Part:
    workflow, player = cast.workflow, cast.role(role)
    is_persons = turn_of(workflow, role).player is Player.PEOPLE
    own = None
    if workflow.code is not None and overriding(config, player)[0] is None:
        own = role if known_agent(config, role) is not None else None  # a script names agents by their types
    named = None
    if options is not None:
        named = narrowed(config, player, options, own)
    if not isinstance(named, str | None):
        return Part(role, "a person" if is_persons else named.name, MODEL, is_real=True)
    try:
        agent = resolve_agent(config, player, named if named is not None else own)
        if is_persons:
            agent = agent_of_person(agent, named is not None)
        kept = options is not None and options.everywhere is not None and named is None
        part = Part(role, agent.alias, _kind(agent), kept and not is_persons)
        if part.kind == PERSON:
            return part._replace(agent="a person")
        if part.kind == REHEARSAL:
            return part._replace(stands_in=agent.stands_in and not agent.args)
        if part.kind == WORKFLOW:
            return _with_child(instance, config, part, agent, depth, folder)
        if is_missing(agent, None if folder is None else str(Path.cwd())):
            hint = "correct its path" if "/" in agent.command else "install it, or see: uwf agent list"
            raise Unavailable(why_missing(agent.command, str(Path.cwd())), hint)
        playing = embedded(agent.command)
        if playing is None:
            return part._replace(is_real=True)
        environ = instance.secrets.unread()
        # What a command names by a relative path may be made by the set-up, or by an earlier role.
        environ.pop("PWD", None)
        warning = playing.ready(config, agent.args, environ)
        return part._replace(is_real=True, warning=warning)
    except UwfError as error:
        file = naming_file(config, player)
        is_told = file == config.path.name or file in error.message
        problem = error.message if is_told else f"{error.message}; {file} names it"
        return Part(role, "", COMMAND, problem=problem, hint=error.hint)


def _kind(agent: AgentConfig) -> str:
    if agent.command == HUMAN:
        return PERSON
    if PurePath(agent.command).name == REHEARSE:
        return REHEARSAL
    if agent.command == SUBWORKFLOW:
        return WORKFLOW
    return MODEL if asks_model(agent.command) else COMMAND


def _with_child(
    instance: Instance, config: Config, part: Part, agent: AgentConfig, depth: int, folder: Path | None
) -> Part:
    """Return a role that a workflow plays, with the first problem of its own roles."""
    from uwf_git.store.definitions import current_cast

    name = agent.args[-1] if agent.args else ""
    if not name or depth >= _DEEPEST:
        return part._replace(is_real=True)
    _, child = current_cast(instance.store, name)
    parts = _parts(instance, config, child, depth=depth + 1, folder=folder)
    problems = _problems(config, child.workflow, parts, instance)
    part = part._replace(
        agent=f"{part.agent} {name}" if part.agent == SUBWORKFLOW else part.agent,
        stands_in=any(item.stands_in for item in parts),
        is_real=any(item.is_real for item in parts),
    )
    return (
        part._replace(problem=f"workflow {name}: {problems[0][0]}", hint=problems[0][1]) if problems else part
    )


def _problems(
    config: Config,
    workflow: Workflow,
    parts: Sequence[Part],
    instance: Instance,
    at: Position | None = None,
) -> list[tuple[str, str]]:
    """Return what keeps a run from its end, and the hints. Code may do without some of its agents."""
    problems = [(f"role {part.role}: {part.problem}", part.hint) for part in parts if part.problem]
    if workflow.code is not None:
        return problems if len(problems) == len(parts) else []
    return problems + _mixed(config, workflow, parts, instance, at)


def _mixed(
    config: Config, workflow: Workflow, parts: Sequence[Part], instance: Instance, at: Position | None
) -> list[tuple[str, str]]:
    """Return the roles that only a rehearsal plays, and that others precede."""
    graph = _graph(workflow)
    real = {part.role: reachable(graph, part.role) for part in parts if part.is_real}
    late, by = [], dict[str, None]()
    for each in parts:
        if not each.stands_in:
            continue
        before = [role for role, reached in real.items() if role != each.role and each.role in reached]
        worked = real_workers(instance, at, each.role) if at is not None else []
        if before or worked:
            late.append(each.role)
            by |= dict.fromkeys([*worked, *(f"{role} ({_named(parts, role)})" for role in before)])
    if not late:
        return []
    problem = (
        f"no agent is configured for {', '.join(late)}, and uwf-rehearse does not generate outputs where other agents"
        f" have worked: {', '.join(by)}"
    )
    rehearse = " ".join(f"--agent {role}={REHEARSE}" for role in late)
    models = [part.agent for part in parts if part.kind == MODEL and known_agent(config, part.agent)]
    hint = f"add {rehearse} to rehearse {'it' if len(late) == 1 else 'them'} all the same, or name an agent"
    if models:
        hint += f": uwf config set defaultAgent {models[0].removeprefix('uwf-')}"
    else:
        hint += f": uwf config set {dotted(('agentOverrides', workflow.name, late[0]))} NAME"
    return [(problem, hint)]


def _named(parts: Sequence[Part], role: str) -> str:
    return next(part.agent for part in parts if part.role == role)


def _graph(workflow: Workflow) -> dict[str, set[str]]:
    """Return the roles that follow a role; the roles of a fan-out's branches are followed by those of its join."""
    graph = {
        source: {role for edge in edges if edge.status != RESUME or source != START for role in edge.targets}
        for source, edges in workflow.graph.items()
    }
    for edge in workflow.edges:
        after = {role for transition in edge.join for role in transition.targets}
        for role in set(edge.targets) - after if after else ():
            graph.setdefault(role, set()).update(after)
    return graph


def _reached(instance: Instance, workflow: Workflow, at: Position | None) -> list[str]:
    """Return the roles that a run may reach and the engine doesn't play, the nearest first."""
    if workflow.code is not None:
        return list(workflow.roles)
    from uwf_git.engine.next_turn import outlook

    graph = _graph(workflow)
    roles = [START if at is None else outlook(instance, *at).next or START]
    for role in roles:  # which grows meanwhile
        roles += [item for item in sorted(graph.get(role, ())) if item not in roles]
    return [
        role
        for role in roles
        if role in workflow.roles and turn_of(workflow, role).player is not Player.ENGINE
    ]
