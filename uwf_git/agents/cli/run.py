"""One run of an agent CLI: how the program of a row is called under a tool policy, and what came of it, which is a
reply, a session that was lost, or a failure in a line.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.agents.cli.output import Output, Said
from uwf_git.agents.cli.rows import NESTED
from uwf_git.config.agent_cli import Row
from uwf_git.config.policy import FETCH, WRITING, ToolPolicy
from uwf_git.errors import AgentFailed
from uwf_git.kit.context import Context, Reply
from uwf_git.text import one_line
from uwf_git.values.kinds import Usage

if TYPE_CHECKING:
    from uwf_git.processes import Finished

_FOLDER = re.compile(r"\{(package|state)\}")
_WORD = re.compile(r"\{(new|session|prompt|cwd)\}")
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_VERSION_TIMEOUT = 20.0  # seconds
_SHOWN = 401  # characters of the CLI's words in an error
_RESTRICTING = {
    "readonly": "write files",
    "norun": "run commands",
    "nofetch": "read from the web",
}


class Extra(NamedTuple):
    """What the row's options and the user add to a call."""

    args: tuple[str, ...]
    env: Mapping[str, str]


class OtherSession(Exception):
    """The program has opened another session than the one it was to go on in."""


def conditions(policy: ToolPolicy, crew: bool = False) -> set[str]:
    """The conditions of a row's options that hold under a policy, in the step of a `crew` or elsewhere. Tools that a
    CLI can't tell apart, such as making a file and changing one, are all forbidden as soon as one of them is."""
    readonly = not all(policy.permits(tool) for tool in WRITING)
    norun = policy.forbids_commands
    nofetch = not policy.permits(FETCH)
    holding = {
        "always": True,
        "readonly": readonly,
        "write": not readonly and (not policy.permissions or policy.grants("edit")),
        "norun": norun,
        "run": not norun and (bool(policy.run_command) or policy.grants("execute")),
        "nofetch": nofetch,
        "fetch": not nofetch and policy.grants("fetch"),
        "network": bool(policy.network),
        "nomcp": not policy.permits("mcp/any/any"),
        "crew": crew,
        "crewwrite": crew and not readonly,
    }
    return {name for name, holds in holding.items() if holds}


def extra_for(
    row: Row, policy: ToolPolicy, args: Sequence[str], folders: Mapping[str, str] | None = None
) -> Extra:
    """The options that a policy asks for, and the user's own arguments. `folders` are those of a crew's step, by what
    stands for them in a row. Raises AgentFailed where the policy forbids what the row can't forbid or the arguments
    allow."""
    holding = conditions(policy, bool(folders))
    words: list[str] = []
    env: dict[str, str] = {}
    for option in row.options:
        if option.when not in holding:
            continue
        given = _given(args, option.unless)
        if given and option.when in _RESTRICTING:
            raise AgentFailed(
                f"{row.program} may not {_RESTRICTING[option.when]} here, and {given} in its arguments lets it",
                f"take {given} out of the agent's args, or change tools in config.yaml or of the role",
            )
        if given:
            continue
        words += (_filled(each, folders or {}) for each in option.args)
        for name, text in option.env:
            quoted = {key: json.dumps(path)[1:-1] for key, path in (folders or {}).items()}
            env[name] = _merged(env.get(name), _filled(text, quoted))
    covered = {option.when for option in row.options}
    for name, what in _RESTRICTING.items():
        if row.tools and name in holding and name not in covered:
            raise AgentFailed(
                f"the tool policy says that {row.program} may not {what}, and there is no way to tell it so",
                "let another agent play this role, or change tools in config.yaml or of the role",
            )
    return Extra((*words, *args), env)


def _filled(text: str, folders: Mapping[str, str]) -> str:
    return _FOLDER.sub(lambda found: folders.get(found[1], found[0]), text)


def arguments(words: Sequence[str], extra: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The arguments of a call: placeholders filled in, each once, and `extra` where {args} stands or else
    at the end."""
    made: list[str] = []
    for word in words if "{args}" in words else [*words, "{args}"]:
        if word == "{args}":
            made += extra
        else:
            made.append(_WORD.sub(lambda match: values.get(match[1], ""), word))
    return made


def environment(row: Row, base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a call: `base` without what would make it a part of another session. What the row
    sets gives way to what the user has set; a JSON object in `extra` is merged over the user's."""
    env = {name: text for name, text in base.items() if name not in NESTED and name not in row.unset}
    for name, text in row.env:
        env.setdefault(name, text)
    for name, text in extra.items():
        env[name] = _merged(env.get(name), text)
    return env


def require(row: Row, env: Mapping[str, str]) -> str:
    """Where the program is. Raises AgentFailed where it isn't."""
    found = shutil.which(row.program, path=env.get("PATH"))
    if found is None:
        hint = f"install it: {row.install}" if row.install else "install it, or put it on PATH"
        raise AgentFailed(f"{row.program} is not installed, or not on PATH", hint)
    return found


def installed_version(row: Row, env: Mapping[str, str]) -> str | None:
    """What the program says its version is; None where it doesn't."""
    from uwf_git.processes import run_command

    if not row.version:
        return None
    try:
        done = run_command([row.program, *row.version], env=env, timeout=_VERSION_TIMEOUT)
    except AgentFailed:
        return None
    said = done.stdout_tail.decode("utf-8", "replace") or done.stderr_tail.decode("utf-8", "replace")
    found = re.search(r"\d+(?:\.\d+)+", said)
    return found[0] if found else None


def older(version: str, least: str) -> bool:
    """Whether a version comes before another."""
    return _parts(version) < _parts(least)


class Run:
    """A run of `row`'s program for the agent `name`, in `session` or in a new one where that is None. Turns are
    recorded as they come. `totals` is what each session had cost when this step last heard of it."""

    def __init__(
        self,
        ctx: Context,
        name: str,
        row: Row,
        session: str | None,
        totals: dict[str, tuple[Usage, float]],
    ) -> None:
        self._ctx = ctx
        self._name = name
        self._row = row
        self._session = session
        self._totals = totals
        self._other: str | None = None
        self._ended = False
        self._said: Said | None = None
        self._stderr = ""
        self._finished: Finished | None = None
        shown = row if row.after is None else row._replace(after=None, usage=(), turns=(), model=())
        self._output = Output(shown, None if row.after else ctx.record, self._in_session)

    def feed(self, data: bytes) -> None:
        """Takes a piece of standard output. Raises OtherSession."""
        self._output.feed(data)

    def end(self, finished: Finished | None) -> None:
        """Takes how the program ended; None where it was ended for its session."""
        self._finished, self._ended = finished, True
        stderr = finished.stderr_tail if finished else b""
        self._stderr = stderr.decode("utf-8", "replace")
        self._said = self._output.end(stderr)

    @property
    def session(self) -> str | None:
        """The session that it was done in, as far as that is known."""
        return self.said.session or self._session

    def take_log(self, data: bytes) -> None:
        """Takes what the row's second call printed: model, usage and turns."""
        log = Output(
            self._row._replace(output="json", session=(), text=(), errors=(), denied=()), self._ctx.record
        )
        log.feed(data)
        read = log.end()
        self._said = self.said._replace(model=read.model, spent=read.spent, turns=read.turns)

    def _in_session(self, session: str) -> None:
        if self._session is not None and session != self._session and not self._row.renames:
            self._other = session
            if not self._ended:
                raise OtherSession
            return
        self._ctx.in_session(session)

    @property
    def said(self) -> Said:
        """What the program has printed, once it has ended."""
        assert self._said is not None
        return self._said

    def reply(self) -> Reply:
        """The reply, also of a run that failed."""
        said, session = self.said, self.session
        usage, cost = self._usage(session)
        return Reply(
            said.text or "",
            session=session if session and self._row.resume else None,
            model=said.model,
            usage=usage,
            turns=said.turns,
            cost=cost,
            notes=tuple(self._notes()),
        )

    def lost(self) -> str | None:
        """Why the session could not be resumed; None where it could, or where something else went wrong."""
        row, said = self._row, self.said
        name = f"session {self._session} of {row.program}"
        if self._session is None:
            return None
        if self._other is not None:
            return f"{name} could not be resumed: it opened {self._other} instead"
        finished = self._finished
        if finished is None or finished.timed_out or finished.returncode == 0:
            return None
        words = self._words()
        if self._says(row.lost):
            return f"{name} could not be resumed: {words}"
        # Nobody said why, and nothing has happened yet.
        silent = not said.errors and not said.complaints and not said.turns and not self._says(row.login)
        return f"{name} could not be resumed: {words}" if silent and finished.returncode > 0 else None

    def failure(self, env: Mapping[str, str]) -> AgentFailed | None:
        """What is wrong with the run; None where it brought an answer. May run the program to ask for its version."""
        finished, said, program = self._finished, self.said, self._row.program
        assert finished is not None
        if finished.timed_out:
            return AgentFailed(f"{program} ran out of time", "raise agents.<name>.timeout in config.yaml")
        if finished.returncode == 0 and not said.errors:
            return self._unanswered(env)
        how = f"exited with {finished.returncode}"
        if finished.returncode < 0:
            how = f"was ended by signal {-finished.returncode}"
        if self._says(self._row.login):
            hint = self._row.sign_in or f"log in with {program} first"
            return AgentFailed(f"{program} is not logged in, or its key is refused: {self._words()}", hint)
        words = self._words()
        message = f"{program} {how}: {words}" if words else f"{program} {how} and said nothing"
        if said.errors:
            message = f"{program} failed: {words}"
        elif (old := self._too_old(env)) is not None:
            return old
        return AgentFailed(message, "what it said before is kept: uwf thread attempts ID")

    def _unanswered(self, env: Mapping[str, str]) -> AgentFailed | None:
        """What is wrong with a run that reports no error, if anything is."""
        row, said = self._row, self.said
        if said.turns or (said.text or "").strip():
            return None
        if said.text is not None:
            return AgentFailed(f"{row.program} gave an empty answer", "try again, or with another model")
        if not said.came:
            return AgentFailed(
                f"{row.program} exited with 0 and printed nothing", f"see: {row.program} --help"
            )
        if (old := self._too_old(env)) is not None:
            return old
        field = "text" if row.text else "turns"
        misfit = f"nothing it looks for is there, output: {row.output}" if not said.known else f"no {field}"
        return AgentFailed(
            f"{row.program} printed what the row {row.name!r} does not fit ({misfit}): {said.came}",
            "the program has changed, or was told to print something else; "
            f"a row of your own goes under agentClis.{row.name} in config.yaml",
        )

    def _too_old(self, env: Mapping[str, str]) -> AgentFailed | None:
        row = self._row
        version = installed_version(row, env) if row.least else None
        if version is None or not older(version, row.least):
            return None
        hint = f"bring it up to date: {row.install}" if row.install else "bring it up to date"
        words = self._words() or "it printed nothing"
        return AgentFailed(
            f"{row.program} {version} is too old, at least {row.least} is needed: {words}", hint
        )

    def _says(self, pattern: str) -> bool:
        """Whether what the program complains of matches a pattern of its row; nothing matches an empty one."""
        text = "\n".join((*self.said.errors, *self.said.complaints, self._stderr))
        return bool(pattern and re.search(pattern, text))

    def _words(self) -> str:
        """What the program itself says is wrong, in one line."""
        said = self.said
        for words in (said.errors, said.complaints):
            if words:
                return one_line("; ".join(words), _SHOWN)
        lines = [line.strip() for line in self._stderr.splitlines() if line.strip()]
        if self._row.output == "text" and said.came:
            return one_line(said.came, _SHOWN)
        telling = [line for line in lines if re.search(r"(?i)\berror\b|fail|not |can't|unknown|denied", line)]
        return one_line((telling or lines[-1:] or [said.came])[0], _SHOWN)

    def _notes(self) -> list[str]:
        row, said = self._row, self.said
        notes = [f"{row.program} was not allowed: {one_line(what, _SHOWN)}" for what in said.denied]
        if self._finished is None or self._finished.returncode != 0 or said.errors:
            return notes
        if row.session and said.session is None:
            notes.append(f"{row.program} printed no session id where its row looks for one")
        if row.turns and not said.turns:
            notes.append(f"{row.program} printed no turns where its row looks for them")
        if row.usage and said.spent is None:
            notes.append(f"{row.program} printed no usage where its row looks for it")
        return notes

    def _usage(self, session: str | None) -> tuple[Usage | None, float | None]:
        """The tokens and cost of this run alone. Where the program counts the whole session, what the session had
        cost before is subtracted."""
        spent = self.said.spent
        if spent is None:
            return None, None
        if not spent.whole_session or session is None:
            return spent.usage, spent.cost
        before = self._totals.get(session)
        if before is None:
            before = spent_before(self._ctx, self._name, session) if self._session else (Usage(0, 0), 0.0)
        self._totals[session] = (spent.usage, spent.cost or 0.0)
        tokens = (max(0, now - past) for now, past in zip(spent.usage, before[0], strict=True))
        return Usage(*tokens), None if spent.cost is None else max(0.0, spent.cost - before[1])


def spent_before(ctx: Context, agent: str, session: str) -> tuple[Usage, float]:
    """What the steps and failed attempts of the thread have cost that an agent did in a session."""
    from uwf_git.store.attempts import Attempts

    nodes = [step.detail for step in ctx.history.steps if step.agent == agent]
    tried = Attempts(ctx.store).all(ctx.thread)
    nodes += [each.detail for each in tried if each.detail is not None and each.agent == agent]
    total, cost = [0, 0, 0], 0.0
    for node in dict.fromkeys(nodes):
        detail = ctx.store.detail(node)
        if detail is None or detail.session != session or not detail.usage:
            continue
        usages = [(1, detail.usage)]
        for turn in ctx.store.turns(detail):
            if turn.tool == "extract" and turn.usage:  # another model's, which read the answer
                usages.append((-1, turn.usage))
        for sign, usage in usages:
            total = [sum_ + sign * tokens for sum_, tokens in zip(total, usage, strict=True)]
        cost += detail.cost or 0.0
    return Usage(*total), cost


def _parts(version: str) -> tuple[int, ...]:
    found = _NUMBERS.search(version)
    parts = [int(part[:9]) for part in found[0].split(".")] if found else []
    return tuple(parts + [0] * (6 - len(parts)))


def _given(args: Sequence[str], flags: Iterable[str]) -> str:
    """The first of the flags that the arguments have, as they have it up to its value."""
    for word in args:
        for flag in flags:
            short = len(flag) == 2 and not flag.startswith("--")
            if word == flag or word.startswith(f"{flag}=") or (short and word.startswith(flag)):
                return flag
    return ""


def _merged(before: str | None, now: str) -> str:
    """Of two JSON objects one with the fields of both; else the later text."""
    try:
        objects = json.loads(before or ""), json.loads(now)
    except ValueError:
        return now
    if all(isinstance(each, dict) for each in objects):
        return json.dumps({**objects[0], **objects[1]})
    return now
