"""Agent programs as agents: `uwf-claude-code`, `uwf-codex`, `uwf-gemini`, `uwf-opencode`, `uwf-hermes`,
`uwf-qwen`, `uwf-copilot`, `uwf-cursor`, `uwf-llm-cli`, and `uwf-cli NAME` for a row of `agentClis`.

Arguments are passed to the program. It works in the step's folder with the user's login, under the tool
policy as far as its flags allow. A role's next step resumes its session.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.agents.cli.row import ANY_ROW, AgentRow, rows_of
from uwf_git.ext.agents.cli.rows import shipped_names, shipped_row
from uwf_git.kit import Agent, Context, Reply, TurnRecord
from uwf_git.plugin import (
    SILENCE_LIMIT,
    Conversation,
    Invalid,
    KeptSession,
    SessionState,
    Throttled,
    Usage,
    carry_on,
    log,
)

if TYPE_CHECKING:
    from uwf_git.ext.agents.cli.run import Run
    from uwf_git.ext.agents.cli.sessions import ProgramSessions
    from uwf_git.kit import Usage as Tokens
    from uwf_git.plugin import Config, Hash, PermissionDesk, processes

_LOG = 32 * 1024 * 1024  # bytes of a row's second call
_LOG_TIMEOUT = 60.0  # seconds
_READS_ON = 10.0  # seconds: a program that prints nothing for longer may read its input to the end first
_HEED = "Heed this, go on with your task, and end with your deliverable."
_INLINE = 100_000  # bytes of a prompt that may be an argument; the kernel's limit is 128 KiB


class Options(NamedTuple):
    """`name` is that of a configured row, "" for a shipped one."""

    name: str
    args: tuple[str, ...]


def agent_called(command: str) -> Agent:
    """Return the agent of a shipped row; for other names `uwf-cli`."""
    row = shipped_row(command.removeprefix("uwf-"))
    if row is None:
        return Agent(
            ANY_ROW,
            lambda ctx: _Conversation(ctx, _name_of(ctx.options), _row(ctx)),
            _parse_name,
            f"{ANY_ROW} NAME [ARG…]",
            _name_of,
            __doc__,
            lambda ctx: _has_shell(ctx, _row(ctx)),
            lambda ctx: _row(ctx).tools,
            _missing_price,
            ready=lambda config, args, environ: _ready(_row_called(config, _parse_name(args).name), environ),
        )
    name = f"uwf-{row.name}"
    usage = f"{name} [ARG…]   the arguments are those of {row.program}"
    return Agent(
        name,
        lambda ctx: _Conversation(ctx, name, row),
        lambda args: Options("", tuple(args)),
        usage,
        about=__doc__,
        has_shell=lambda ctx: _has_shell(ctx, row),
        sees_files=lambda ctx: row.tools,
        missing_price=lambda config, args: _missing_price_by(row, config, args),
        ready=lambda config, args, environ: _ready(row, environ),
    )


def _ready(row: AgentRow, environ: Mapping[str, str]) -> str:
    from uwf_git.ext.agents.cli.calls import missing_login, require

    require(row, environ)
    return missing_login(row, environ)


def _missing_price(config: Config, args: Sequence[str]) -> str:
    options = _parse_name(args)
    row = rows_of(config).rows.get(options.name) or shipped_row(options.name)
    return "" if row is None else _missing_price_by(row, config, options.args)


def _missing_price_by(row: AgentRow, config: Config, args: Sequence[str]) -> str:
    from uwf_git.ext.agents.cli.calls import model_in
    from uwf_git.plugin import price_of

    says = any(place.cost for place in row.usage)
    if says and row.model:
        return ""
    model = model_in(args)
    if model and price_of(model, config.prices) is not None:
        return ""
    if says:
        named = f"model {model} has no price here" if model else "it names no model: tell it one with -m"
        return f"{row.program} says 0 of a model whose price it doesn't know, and {named}"
    if not model:
        return f"{row.program} says neither what it costs nor, beforehand, which model it asks"
    return f"{row.program} doesn't say what it costs, and model {model} has no price"


def _name_of(options: Options) -> str:
    return f"{ANY_ROW}/{options.name}"


def _parse_name(args: Sequence[str]) -> Options:
    if not args or args[0].startswith("-"):
        raise Usage(
            "uwf-cli needs the name of a row", "uwf-cli NAME, with NAME under agentClis in config.yaml"
        )
    return Options(args[0], tuple(args[1:]))


def _row(ctx: Context) -> AgentRow:
    return _row_called(ctx.config, ctx.options.name)


def _row_called(config: Config, name: str) -> AgentRow:
    from uwf_git.plugin import nearest, one_line

    configured, broken = rows_of(config)
    if name in broken:
        raise Invalid(
            f'config.yaml: agentClis "{one_line(name, 40)}": {one_line(broken[name], 1000)}',
            f"correct the row: uwf config set agentClis.{name}.KEY VALUE",
        )
    row = configured.get(name) or shipped_row(name)
    if row is None:
        hint = nearest(name, [*configured, *shipped_names()]) or "add it under agentClis in config.yaml"
        raise Usage(f"there is no agent CLI called {name!r}", hint)
    return row


def _has_shell(ctx: Context, row: AgentRow) -> bool:
    return row.tools and not ctx.policy.forbids_commands


class _Conversation(Conversation):
    """One step's conversation with a program, called once per message. Without a session, a correction
    repeats everything."""

    retells = True

    def __init__(self, ctx: Context, name: str, row: AgentRow) -> None:
        from uwf_git.ext.agents.cli.calls import environment, extra_for

        super().__init__(ctx)
        self._name = name
        self._row = row
        self._session = ""
        # The last one, should a correction have to tell all of it again.
        self._answer: str | None = None
        self._totals: dict[str, tuple[Tokens, float]] = {}
        folders = None
        if ctx.mounts is not None and row.tools:
            where = ctx.mounts.prepare()
            folders = {"package": str(where.package), "state": str(where.state)}
        policy = ctx.policy
        self._desk = _desk(ctx, name) if row.asks else None
        extra = extra_for(row, policy, ctx.options.args, folders, self._desk is not None)
        self._args = extra.args
        covered = {f"{option.when}: false" for option in row.options}
        rules = [rule for rule in policy.unheld(()) if rule not in covered] if row.tools else []
        self._unheld = policy.check_held(row.program, rules)
        self._env = environment(row, ctx.environment(row.variables), extra.env)

    def begin(self) -> Reply:
        ctx = self.ctx
        if (rest := self.carried_on()) and ctx.resume is not None:
            session, message = rest
            return self._gone_on(session, ctx.resume.state, message, carry_on(ctx.resume.error, ctx.prompt))
        if ctx.previous is None or ctx.previous.session is None or not self._row.resume:
            return self._fresh(ctx.prompt)
        session = ctx.previous.session
        return self._gone_on(session, ctx.previous.state, ctx.prompt_for_resumed_session, ctx.prompt)

    def _gone_on(self, session: str, state: SessionState, message: str, whole: str) -> Reply:
        from uwf_git.ext.agents.cli.calls import require

        require(self._row, self._env)
        if self._row.resume and (why := self._sessions.prepare(session, state)):
            return self._fresh(whole, f"{why}; begun anew with the whole context")
        return self._resumed(session, message, whole)

    def keep_session(self, session: str, put: Callable[[Hash, Any], Hash]) -> KeptSession:
        return self._sessions.keep(session, put)

    @property
    def _sessions(self) -> ProgramSessions:
        from uwf_git.ext.agents.cli.sessions import ProgramSessions

        return ProgramSessions(self.ctx, self._name, self._row, self._env)

    def say(self, text: str) -> Reply:
        parts = [self.ctx.prompt, text]
        if self._answer is not None:
            parts[1:1] = ["# Your answer so far", self._answer, "# What is wrong with it"]
        self._answer = None
        return self._resumed(self._session, text, "\n\n".join(parts))

    def adopt_answer(self, reply: Reply) -> Reply:
        from uwf_git.ext.agents.cli.run import Run

        after, session = self._row.after, reply.session
        if after is not None and session and reply.usage is None:
            run = Run(self.ctx, self._name, self._row, session, self._totals)
            run.end(None, self._env)
            self._read_log(run, after.args)
            log = run.reply()
            reply = reply._replace(
                model=log.model, usage=log.usage, cost=log.cost, turns=log.turns or reply.turns
            )
        return self._heard(reply)

    def _resumed(self, session: str, message: str, whole: str) -> Reply:
        if not self._row.resume or not session:
            return self._fresh(
                whole, f"{self._row.program} cannot continue in a session: it is told all again"
            )
        run = self._call(self._row.resume, message, session)
        lost = run.lost()
        if lost is None:
            return self._checked(run, run.reply())
        log.warning("CBCP4HWY", "{lost}", lost=lost, session=session)
        return self._fresh(whole, f"{lost}; begun anew with the whole context", run.reply())

    def _fresh(self, prompt: str, note: str = "", wasted: Reply | None = None) -> Reply:
        def whole(reply: Reply) -> Reply:
            return _together(reply, note, wasted)

        run = self._call(self._row.first, prompt, None, whole)
        return self._checked(run, whole(run.reply()))

    def _checked(self, run: Run, reply: Reply) -> Reply:
        from uwf_git.plugin import failed_with

        failure = run.failure(self._env)
        if failure is not None:
            failed = failed_with(self._noted(reply), failure.message, failure.hint)
            failed.printed = run.printed
            failed.throttled = Throttled.told(self._row.name, failure.message)
            failed.timed_out = failure.timed_out
            raise failed
        return self._heard(reply)

    def _heard(self, reply: Reply) -> Reply:
        self._session, self._answer = reply.session or "", reply.text
        return self._noted(reply)

    def _noted(self, reply: Reply) -> Reply:
        unheld, self._unheld = self._unheld, ""
        return reply._replace(notes=(unheld, *reply.notes)) if unheld else reply

    def _call(
        self,
        words: Sequence[str],
        prompt: str,
        session: str | None,
        whole: Callable[[Reply], Reply] = lambda reply: reply,
    ) -> Run:
        from uuid import uuid4

        from uwf_git.ext.agents.cli.calls import arguments, require
        from uwf_git.ext.agents.cli.run import FatalOutput, Run
        from uwf_git.plugin import processes

        ctx, row = self.ctx, self._row
        require(row, self._env)
        data = prompt.encode("utf-8", "replace")
        new = str(uuid4())
        chosen = session is None and not row.session and any("{new}" in word for word in words)
        run = Run(ctx, self._name, row, session, self._totals, new if chosen else "", self._desk)
        if chosen:
            ctx.in_session(new)
        finished = None
        began = time.monotonic()
        whole_prompt = [data] if row.prompt == "messages" else []

        def feed() -> bytes | None:
            if whole_prompt:
                ctx.has_remarks()  # says that they are taken
                return _message(whole_prompt.pop().decode("utf-8", "replace"))
            may_wait_for_end = self._desk is None and not run.has_printed
            if run.needs_no_input or (may_wait_for_end and time.monotonic() - began > _READS_ON):
                run.withdraw()
                return None
            return run.answers() + b"".join(
                _message(f"{remark.text}\n\n{_HEED}") for remark in ctx.take_remarks()
            )

        def ended(finished: processes.CommandResult) -> None:
            run.end(finished, self._env)
            if run.answered:
                ctx.keep(whole(run.reply()))

        with contextlib.ExitStack() as stack:
            stack.callback(run.withdraw)
            text = prompt.replace("\0", "�") if row.prompt == "argument" else ""
            if len(text.encode("utf-8", "replace")) > _INLINE:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="uwf-prompt-"))
                path = Path(folder, "prompt.md")
                path.write_bytes(data)
                text = f"Your whole task stands in the file {path}. Read it to its end, then do what it says."
            values = {"session": session or "", "new": new, "prompt": text, "cwd": str(ctx.cwd)}
            argv = [row.program, *arguments(words, self._args, values)]
            try:
                finished = processes.run_command(
                    argv,
                    stdin=data if row.prompt == "stdin" else None,
                    feed=feed if row.prompt == "messages" else None,
                    cwd=ctx.cwd,
                    env=self._env,
                    timeout=None if ctx.deadline is None else max(0.0, ctx.deadline - time.monotonic()),
                    silence=ctx.silence(SILENCE_LIMIT if row.output == "lines" else None),
                    pass_fds=ctx.instance.locks.descriptors(ctx.thread),
                    on_stdout=run.feed,
                    on_stderr=run.feed_stderr,
                    quota=ctx.quota,
                    guarded=True,
                    on_exit=ended,
                    waits=lambda: run.is_asking,
                )
            except FatalOutput:
                pass
            except KeyboardInterrupt:
                run.end(None, self._env)
                run.count()
                raise
        if not run.ended:
            run.end(finished, self._env)
        if row.after is not None and finished is not None and run.session:
            self._read_log(run, row.after.args)
            if run.answered:
                ctx.keep(whole(run.reply()))
        return run

    def _read_log(self, run: Run, words: Sequence[str]) -> None:
        from uwf_git.ext.agents.cli.calls import arguments
        from uwf_git.plugin import processes

        values = {"session": run.session or "", "cwd": str(self.ctx.cwd)}
        argv = [self._row.program, *arguments(words, (), values)]
        done = processes.run_command(argv, cwd=self.ctx.cwd, env=self._env, timeout=_LOG_TIMEOUT, keep=_LOG)
        run.take_log(done.stdout_tail)


def _desk(ctx: Context, name: str) -> PermissionDesk | None:
    """Return where requests for leave wait for a person, None if none may."""
    from uwf_git.plugin import PermissionDesk

    desk = PermissionDesk(ctx.instance, ctx.thread, ctx.role.name, name)
    return None if desk.patience is None else desk


def _message(text: str) -> bytes:
    """Return a message of the user, as `claude --input-format stream-json` reads it."""
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "user", "message": message}).encode() + b"\n"


def _together(reply: Reply, note: str, wasted: Reply | None) -> Reply:
    from uwf_git.plugin import sum_usage

    if note:
        reply = reply._replace(notes=(note, *reply.notes))
    if wasted is None:
        return reply
    costs = [item for item in (wasted.cost, reply.cost) if item is not None]
    turns = reply.turns or (TurnRecord("assistant", reply.text, usage=reply.usage),)
    usage, cost = sum_usage([wasted, reply]), sum(costs) if costs else None
    return reply._replace(usage=usage, turns=(*wasted.turns, *turns), cost=cost)


def main(argv: Sequence[str] | None = None) -> None:
    """The command, under any of its names."""
    agent_called(Path(sys.argv[0]).name).main(argv)


if __name__ == "__main__":
    main()
