"""`uwf-acp`: agents that speak the Agent Client Protocol.

The agent's command comes from the user's configuration. It runs for one step, and its messages and actions are
recorded as they happen. The role's next step loads the same session if possible; otherwise a new session gets
everything. Permission requests are granted by `tools.permissions`, else by the person at the terminal, else by
one who finds them in the inbox within `permissionWait`, else denied. What the policy forbids is prevented, or
the step fails. Through its client the agent reads and writes files in the working folder only. Terminals are
not offered: the agent runs commands by its own means and settings.

--mode and --model choose among the agent's offers; --auth is one of its login methods; --no-files offers no files.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from uwf_git.kit import Agent, Context, Reply
from uwf_git.plugin import (
    SILENCE_LIMIT,
    AgentFailed,
    Conversation,
    PermissionDesk,
    Throttled,
    Unavailable,
    Usage,
    failed_with,
    install_hint,
    judged_answer,
    one_line,
    read_options,
    require_program,
    system,
)

if TYPE_CHECKING:
    from uwf_git.ext.agents.acp.session import PromptResult, Session, Settings
    from uwf_git.plugin import Config

USAGE = "uwf-acp [--mode MODE] [--model MODEL] [--auth METHOD] [--no-files] [--] COMMAND [ARG…]"

_UNFINISHED = {
    "max_tokens": "the answer was cut off at the model's limit of tokens",
    "max_turn_requests": "the agent stopped at its own limit of requests",
}
_BY_MINUTE = ("gemini-cli",)
"""Agents that keep a session in a file which is named by the minute, and empty it where the session is loaded within
the minute in which it was opened or loaded before."""
_ROWS = {
    "claude-agent-acp": "claude-code",
    "claude-code-acp": "claude-code",
    "codex-acp": "codex",
    "gemini-cli": "gemini",
    "hermes-agent": "hermes",
    "qwen-code": "qwen",
}
"""The rows of agent CLIs with the secrets that these programs get, if they are called otherwise."""
MINUTE = 60.0
_MARGIN = 0.2  # seconds, for clocks that are read twice
_LAUNCHERS = ("npx", "bunx", "pnpx", "uvx")


class Options(NamedTuple):
    command: tuple[str, ...] = ()
    mode: str | None = None
    model: str | None = None
    auth: str | None = None
    files: bool = True


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    options_given, command = read_options(
        "uwf-acp", USAGE, args, ("--mode", "--model", "--auth"), ("--no-files",)
    )
    if not command:
        raise Usage("uwf-acp has no command to run", f"{USAGE}, as in: uwf-acp opencode acp")
    options: dict[str, Any] = {name.removeprefix("--"): value for name, value in options_given}
    return Options(command, files=options.pop("no-files", None) is None, **options)


class _Conversation(Conversation):
    """One step's conversation with the agent's process."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._session: Session | None = None
        self._kept = ""  # the session of an adopted answer

    def begin(self) -> Reply:
        if rest := self.carried_on():
            return self._go_on(*rest)
        previous = self.ctx.previous_session
        session, notes = self._open(previous)
        remembers = previous is not None and not notes
        prompt = self.ctx.prompt_for_resumed_session if remembers else self.ctx.prompt
        return _say(self.ctx, session, prompt, notes)

    def say(self, text: str) -> Reply:
        session = self._session
        if session is not None and session.alive:
            return _say(self.ctx, session, text, ())
        return self._go_on(session.id if session is not None else self._kept, text)

    def adopt_answer(self, reply: Reply) -> Reply:
        self._kept = reply.session or ""
        return _with_text(self.ctx, reply)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _go_on(self, wanted: str, message: str) -> Reply:
        session, notes = self._open(wanted)
        return _say(self.ctx, session, _told_anew(self.ctx, wanted, message) if notes else message, notes)

    def _open(self, wanted: str | None) -> tuple[Session, tuple[str, ...]]:
        from uwf_git.ext.agents.acp.session import LoadFailed

        session = self._start()
        notes: tuple[str, ...] = ()
        if wanted is not None:
            self._let_settle(session.agent, wanted)
            try:
                session.load(wanted, self.ctx.deadline)
                return session, ()
            except LoadFailed as error:
                notes = (
                    f"session {wanted} could not be taken up again: {error}; a fresh one was told everything",
                )
            if not session.alive:
                session = self._start()
        session.create(self.ctx.deadline)
        return session, notes

    def _let_settle(self, agent: str, session: str) -> None:
        if agent not in _BY_MINUTE or (began := _last_begun(self.ctx, session)) is None:
            return
        wait = until_later(began, time.time(), MINUTE)
        deadline = self.ctx.deadline
        if wait and (deadline is None or time.monotonic() + wait < deadline):
            self.ctx.show(f"waits {wait:.0f} s, or {agent} loses its session\n".encode())
            time.sleep(wait)

    def _start(self) -> Session:
        from uwf_git.ext.agents.acp.session import Session

        self.close()
        self._session = Session(_settings(self.ctx), self.ctx.deadline)
        return self._session


def until_later(began: float, now: float, minute: float) -> float:
    """Return the seconds until the next minute after the one of `began`."""
    return minute - now % minute + _MARGIN if began // minute >= now // minute else 0.0


def _last_begun(ctx: Context, session: str) -> float | None:
    from uwf_git.plugin import Attempts

    times = []
    tried = [(attempt.detail, attempt.time) for attempt in Attempts(ctx.store).all(ctx.thread)]
    steps = [(step.detail, step.time / 1000) for step in ctx.history.steps]
    for node, when in (*tried, *steps):
        detail = ctx.store.detail(node) if node is not None else None
        if detail is not None and detail.session == session:
            times.append(when - detail.duration_ms / 1000)
    return max(times, default=None)


def _told_anew(ctx: Context, session: str, message: str) -> str:
    if ctx.resume is None or ctx.resume.session != session:
        return f"{ctx.prompt}\n\n{message}"
    return (
        f"{ctx.prompt}\n\nAn earlier attempt at this step did not count: {ctx.resume.error}. "
        "What it did in the working directory may be there already."
    )


def _settings(ctx: Context) -> Settings:
    from uwf_git.ext.agents.acp.session import Settings
    from uwf_git.ext.agents.cli.rows import NESTED, shipped_row

    options: Options = ctx.options
    store = ctx.store.repository
    name = named(options).rpartition("/")[2]
    row = shipped_row(_ROWS.get(name, name))
    environ = ctx.environment(row.variables if row is not None else ())
    policy = ctx.policy
    return Settings(
        options.command,
        ctx.cwd,
        {name: value for name, value in environ.items() if name not in NESTED},
        policy,
        ctx.record,
        hidden=(ctx.config.path, ctx.config.path.parent / ".env", store.private),
        others=() if ctx.mounts is None else tuple(ctx.mounts.for_tools(policy)),
        places=None if ctx.mounts is None else ctx.mounts.places,
        mode=options.mode,
        model=options.model,
        auth=options.auth,
        files=options.files,
        pass_fds=ctx.instance.locks.descriptors(ctx.thread),
        quota=ctx.quota,
        alias=ctx.alias,
        silence=ctx.silence(SILENCE_LIMIT),
        desk=PermissionDesk(ctx.instance, ctx.thread, ctx.role.name, named(options)),
        show=ctx.show,
        has_remarks=ctx.has_remarks,
        take_remarks=ctx.take_remarks,
    )


def _say(ctx: Context, session: Session, text: str, notes: Sequence[str]) -> Reply:
    ctx.in_session(session.id)
    try:
        result = session.prompt(text, ctx.deadline)
    except AgentFailed as error:
        heard = _heard(session, session.heard(), notes)
        error.throttled = Throttled.told(Path(ctx.options.command[0]).name, error.message)
        raise failed_with(_with_text(ctx, heard), error.message, error.hint).since(error) from None
    reply = _heard(session, result, notes)
    if result.stop == "end_turn" and not result.failure and result.turns:
        ctx.keep(reply)
    reply = _with_text(ctx, reply)
    name = Path(ctx.options.command[0]).name
    if result.stop in ("refusal", "cancelled"):
        how = "refused to go on" if result.stop == "refusal" else "cancelled its turn"
        raise failed_with(reply, f"{name} {how}", f"see what it said: uwf thread attempts {ctx.thread}")
    if result.stop != "end_turn":
        why = _UNFINISHED.get(result.stop) or f"it named {one_line(result.stop, 40)!r} as the end of its turn"
        raise failed_with(
            reply,
            f"{name} did not finish: {why}",
            f"see what it said: uwf thread attempts {ctx.thread}",
        )
    if result.failure and judged_answer(ctx, reply).problems:
        failed = failed_with(reply, f"{name} failed: {_describe(result.failure)}", "try it by hand")
        failed.throttled = Throttled.told(name, failed.message)
        raise failed
    if not reply.text.strip():
        why = session.complaint() or "it printed no error either"
        raise failed_with(reply, f"{name} ended its turn without an answer: {why}", "try it by hand")
    return reply


def _describe(failure: str) -> str:
    from uwf_git.ext.agents.acp.frames import printable

    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(failure)
        error = body.get("error", body) if isinstance(body, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            failure = error["message"]
    return printable(failure)


def _heard(session: Session, result: PromptResult, notes: Sequence[str]) -> Reply:
    return Reply(
        "",
        session=session.id,
        model=result.model,
        usage=result.usage,
        turns=result.turns,
        cost=result.cost,
        notes=(*notes, *result.notes),
    )


def _with_text(ctx: Context, reply: Reply) -> Reply:
    texts: list[str] = []
    for turn in reply.turns:
        if turn.role == "assistant":
            texts.append(turn.text)
        elif turn.is_remark:
            texts.clear()
        elif isinstance(turn.result, dict) and turn.result.get("status") in ("completed", "failed"):
            texts.clear()  # a remark before a call is no answer; calls that never ended stand at the end
    for text in reversed(texts):
        if not judged_answer(ctx, Reply(text)).problems:
            return reply._replace(text=text)
    return reply._replace(text=texts[-1] if texts else "")


def named(options: Options) -> str:
    """Return the name of an agent's steps: uwf-acp/ and its program, or its package if started by npx or
    similar."""
    program, *words = options.command
    name = Path(program).name
    if name in _LAUNCHERS:
        package = next((word for word in words if not word.startswith("-")), name)
        name = package.rpartition("/")[2].partition("@")[0] or name
    return f"uwf-acp/{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:60]}"


def _has_shell(ctx: Context) -> bool:
    return not ctx.policy.forbids_commands


def _ready(_config: Config, args: Sequence[str], environ: Mapping[str, str]) -> str:
    if find_spec("acp") is None:
        raise Unavailable("the package for uwf-acp is not installed: acp", install_hint("acp"))
    require_program(parse_args(args).command[0], environ)
    return ""


agent = Agent("uwf-acp", _Conversation, parse_args, USAGE, named, __doc__, _has_shell, ready=_ready)


def main(argv: Sequence[str] | None = None) -> None:
    """The command. When terminated, it ends the agent, which has its own session."""

    def end(_number: int, _frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    for number in system.END_SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)
    agent.main(argv)


if __name__ == "__main__":
    main()
