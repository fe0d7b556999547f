"""One run of an agent program: a reply, a lost session, or a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from uwf_git.ext.agents.cli.advice import advice_on, explained, is_final
from uwf_git.ext.agents.cli.calls import installed_version, model_in, older, session_log
from uwf_git.ext.agents.cli.lenient_json import sentence
from uwf_git.ext.agents.cli.output import Output, RunOutput
from uwf_git.ext.agents.cli.row import AgentRow
from uwf_git.plugin import (
    SEEN_LENGTH,
    AgentFailed,
    Context,
    Reply,
    TokenUsage,
    TurnRecord,
    counted,
    last_line,
    last_seen,
    log,
    one_line,
)

if TYPE_CHECKING:
    from uwf_git.ext.agents.cli.permission_channel import PermissionChannel
    from uwf_git.plugin import PermissionDesk, processes

_PRINTED = 16 * 1024  # bytes of output kept with a failed attempt
_BY_SIGNAL = {137: 9, 143: 15}  # exit status of a wrapper whose program was killed by a signal
_NOTED = 10  # the last problems on the way
_REFUSALS = 2  # of a key, or for a used-up quota: a token that is renewed after the first may do
_SHOWN = 401  # characters of the CLI's words in an error


class FatalOutput(Exception):
    """The program should be ended: it opened another session, its key was refused, or its quota is exhausted."""


class Run:
    """A run of `row`'s program in `session`, None for a new one. Turns are recorded and problems shown as
    they come. `totals` is the last known cost of each session. `new` is the id that we gave the new session. At the
    `desk`, if any, its requests for leave wait for a person."""

    def __init__(
        self,
        ctx: Context,
        name: str,
        row: AgentRow,
        session: str | None,
        totals: dict[str, tuple[TokenUsage, float]],
        new: str = "",
        desk: PermissionDesk | None = None,
    ) -> None:
        from uwf_git.plugin import processes

        self._ctx = ctx
        self._name = name
        self._row = row
        self._session = session
        self._new = new
        self._totals = totals
        self._other: str | None = None
        self._ended = False
        self._refusals = 0
        self._is_stuck = False  # it has had trouble, and done nothing since
        self._result: RunOutput | None = None
        self._finished: processes.CommandResult | None = None
        self._reply: Reply | None = None
        self._out, self._err = processes.Tail(_PRINTED), processes.Tail(processes.KEEP)
        self._listens = any(find.stream == "stderr" for find in row.trouble)
        shown = row if row.after is None else row._replace(after=None, usage=(), turns=(), model=())
        self._output = Output(
            shown, None if row.after else self._record, self._in_session, self._in_trouble, self._spent
        )
        self._channel: PermissionChannel | None = None
        if desk is not None:
            from uwf_git.ext.agents.cli.permission_channel import PermissionChannel

            self._channel = PermissionChannel(ctx, desk, self._output.add)
            self._output.listener = self._channel.take

    def feed(self, data: bytes) -> None:
        """Parse standard output. Raises FatalOutput."""
        self._out.add(data)
        self._output.feed(data)

    def feed_stderr(self, data: bytes) -> None:
        """Parse standard error. Raises FatalOutput."""
        self._err.add(data)
        self._output.feed_stderr(data)
        if not self._listens:
            self._ctx.show(data)

    def end(self, finished: processes.CommandResult | None, env: Mapping[str, str]) -> None:
        """Process the program's end (None if it was ended for its output), and read its session log."""
        self._finished, self._ended = finished, True
        if finished is None:
            self._output.drop()
        session = self._output.session or self._session or self._new
        if self._row.log and session and self._other is None:
            self._output.read_log(session_log(self._row, session, env))
        self._result = self._output.end(self._err.end())

    @property
    def needs_no_input(self) -> bool:
        """Whether the program has answered, so that it gets no more remarks."""
        return self._output.needs_no_input

    @property
    def has_printed(self) -> bool:
        """Whether anything came on standard output."""
        return self._out.last > 0

    @property
    def is_asking(self) -> bool:
        """Whether the program waits for a person's leave."""
        return self._channel is not None and self._channel.is_waiting

    def answers(self) -> bytes:
        """Return the input that answers what the program asked leave for, each answer once."""
        return b"" if self._channel is None else self._channel.answers()

    def withdraw(self) -> None:
        """Withdraw the requests that wait: the program gets no more input."""
        if self._channel is not None:
            self._channel.close()

    @property
    def ended(self) -> bool:
        return self._ended

    def count(self) -> None:
        """Record the tokens of a run whose reply is not used, as an empty turn."""
        reply = self.reply()
        if reply.usage is not None:
            self._ctx.record(TurnRecord("assistant", "", usage=reply.usage, model=reply.model))

    @property
    def printed(self) -> tuple[str, str]:
        out, err = (tail.end().decode("utf-8", "replace") for tail in (self._out, self._err))
        return out, err

    @property
    def refused(self) -> bool:
        """Whether its key was refused or its quota exhausted."""
        return self._refusals >= _REFUSALS

    @property
    def session(self) -> str | None:
        return self.result.session or self._session or self._new or None

    def take_log(self, data: bytes) -> None:
        """Parse the row's second call: model, usage and turns."""
        log = Output(
            self._row._replace(
                output="json", session=(), text=(), complete=(), errors=(), denied=(), trouble=()
            ),
            self._ctx.record,
        )
        log.feed(data)
        read = log.end()
        self._reply = None
        self._result = self.result._replace(
            model=read.model,
            spent=read.spent,
            turns=read.turns,
            unfinished=self.result.unfinished or read.unfinished,
        )

    def _record(self, turn: TurnRecord) -> None:
        if not self._ended:  # else it was held back, and said before the refusals
            self._refusals, self._is_stuck = 0, False
        self._ctx.record(turn)

    def _spent(self, model: str, usage: TokenUsage | None) -> None:
        tokens = usage.input + usage.output if usage else 0
        self._ctx.show(model=model, tokens=tokens, stream=f"tokens of {id(self)}")

    def _in_session(self, session: str) -> None:
        if self._session is not None and session != self._session and not self._row.renames:
            self._other = session
            if not self._ended:
                raise FatalOutput
            return
        self._ctx.in_session(session)

    def _in_trouble(self, text: str) -> None:
        if self._ended:
            return
        self._is_stuck = True
        program = self._row.program
        log.info("F8TR3M6W", "{program} is in trouble: {text}", program=program, text=text)
        self._ctx.show(f"{program}: {text}\n".encode("utf-8", "replace"), stream="trouble")
        refused = (self._row.login and re.search(self._row.login, text)) or is_final(text)
        self._refusals = self._refusals + 1 if refused else 0
        if self.refused:
            raise FatalOutput

    @property
    def result(self) -> RunOutput:
        assert self._result is not None
        return self._result

    @property
    def answered(self) -> bool:
        """Whether it ended with an answer in the wanted session, as far as known."""
        finished, output = self._finished, self._result
        well = finished is not None and finished.returncode == 0 and self._other is None and not self.refused
        whole = well and output is not None and not output.errors and not output.unfinished
        return whole and output is not None and bool(output.turns or (output.text or "").strip())

    def reply(self) -> Reply:
        """Return the reply, even of a failed run."""
        if self._reply is None:  # cost of the session since the last query
            self._reply = self._new_reply()
        return self._reply

    def _new_reply(self) -> Reply:
        output, session = self.result, self.session
        usage, cost = self._usage(session)
        return Reply(
            output.text or "",
            session=session if session and self._row.resume else None,
            model=output.model or model_in(self._ctx.options.args) or None,
            usage=usage,
            turns=output.turns,
            cost=cost,
            notes=tuple(self._notes()),
        )

    def lost(self) -> str | None:
        """Return why the session could not be resumed, else None."""
        row, output = self._row, self.result
        name = f"session {self._session} of {row.program}"
        if self._session is None:
            return None
        if self._other is not None:
            return f"{name} could not be resumed: it opened {self._other} instead"
        finished = self._finished
        if finished is None or finished.timed_out or finished.exceeded or finished.returncode == 0:
            return None
        words = self._words()
        if self._says(row.lost):
            return f"{name} could not be resumed: {words}"
        # No reason is known, and nothing has happened yet.
        silent = (
            not output.errors and not output.complaints and not output.turns and not self._says(row.login)
        )
        return f"{name} could not be resumed: {words}" if silent and finished.returncode > 0 else None

    def failure(self, env: Mapping[str, str]) -> AgentFailed | None:
        """Return what is wrong, None with an answer. May run the program for its version."""
        finished, output, program = self._finished, self.result, self._row.program
        sign_in = self._row.sign_in or f"log in with {program} first"
        if self.refused:
            if self._says_in_trouble(self._row.login):
                return AgentFailed(
                    f"{program} is not logged in, or its key is refused: {self._words()}", sign_in
                )
            return AgentFailed(f"{program} failed: {self._words()}", advice_on(self._words()))
        assert finished is not None
        if finished.exceeded is not None:
            return finished.exceeded.failure(program, self._ctx.alias)
        if finished.timed_out:
            return self._out_of_time(finished)
        if finished.returncode == 0 and not output.errors:
            return self._unanswered(env)
        number = -finished.returncode if finished.returncode < 0 else _BY_SIGNAL.get(finished.returncode, 0)
        how = f"was ended by signal {number}" if number else f"exited with {finished.returncode}"
        if self._says(self._row.login):
            return AgentFailed(f"{program} is not logged in, or its key is refused: {self._words()}", sign_in)
        words = explained(self._stated() if number else self._words())
        message = f"{program} {how}: {words}" if words else f"{program} {how} and didn't say why"
        if output.errors:
            message = f"{program} failed: {words}"
        elif (old := self._too_old(env)) is not None:
            return old
        kept = f"what it said before is kept: uwf thread attempts {self._ctx.thread}"
        return AgentFailed(message, advice_on(words) or kept)

    def _out_of_time(self, finished: processes.CommandResult) -> AgentFailed:
        program, output = self._row.program, self.result
        hint = f"raise agents.<name>.{'silence' if finished.fell_silent else 'timeout'} in config.yaml"
        if output.trouble and self._is_stuck:
            trouble = str(output.trouble[-1])
            message = f"{program} failed: {trouble}; it was still trying when it was ended {finished.told}"
            return AgentFailed(message, advice_on(trouble) or "try again later")
        late = AgentFailed(f"{program} {finished.overran} {finished.told}; {self._last_seen()}", hint)
        late.timed_out = True
        if self._awaits_model and 2 * finished.silent > finished.took:
            late.hint = f"does the model's service answer? If it is only slow, {hint}"
        return late

    @property
    def _awaits_model(self) -> bool:
        row, turns = self._row, self.result.turns
        if row.tools and (row.output != "lines" or row.after is not None or not row.turns):
            return False
        return not turns or turns[-1].role != "tool" or turns[-1].result is not None

    def _last_seen(self) -> str:
        turns = self.result.turns
        waited = "it waited for the model" if self._awaits_model else ""
        if turns or waited:
            return "; ".join(filter(None, (waited, last_seen(turns) if turns else "")))
        printed = last_line(self.printed[1]) or last_line(self.printed[0])
        return f"last seen: {one_line(printed, SEEN_LENGTH)}" if printed else "it printed nothing"

    def _unanswered(self, env: Mapping[str, str]) -> AgentFailed | None:
        row, output = self._row, self.result
        if output.turns or (output.text or "").strip():
            if not output.unfinished:
                return None
            why = self._stated()
            return AgentFailed(
                f"{row.program} did not finish: {output.unfinished}" + (f": {why}" if why else ""),
                f"what it said is kept: uwf thread attempts {self._ctx.thread}",
            )
        if output.trouble and output.known:
            words = self._stated()
            advice = advice_on(words) or "try again, or another model"
            return AgentFailed(f"{row.program} gave no answer: {words}", advice)
        if output.text is not None:
            return AgentFailed(f"{row.program} gave an empty answer", "try again, or with another model")
        if not output.came:
            return AgentFailed(
                f"{row.program} exited with 0 and printed nothing", f"see: {row.program} --help"
            )
        if (old := self._too_old(env)) is not None:
            return old
        field = "text" if row.text else "turns"
        misfit = f"nothing it looks for is there, output: {row.output}" if not output.known else f"no {field}"
        return AgentFailed(
            f"{row.program} printed what the row {row.name!r} does not fit ({misfit}): {output.came}",
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

    def _says_in_trouble(self, pattern: str) -> bool:
        return bool(pattern and self.result.trouble and re.search(pattern, self.result.trouble[-1].text))

    def _says(self, pattern: str) -> bool:
        text = "\n".join((*self.result.errors, *self.result.complaints, self.printed[1]))
        return bool(pattern and re.search(pattern, text))

    def _stated(self) -> str:
        output = self.result
        stated = (output.errors, output.complaints, [trouble.text for trouble in output.trouble[-1:]])
        return one_line("; ".join(map(sentence, next(filter(None, stated), ()))), _SHOWN)

    def _words(self) -> str:
        output = self.result
        if words := self._stated():
            return words
        lines = [line.strip() for line in self.printed[1].splitlines() if line.strip()]
        if self._row.output == "text" and output.came:
            return one_line(output.came, _SHOWN)
        telling = [line for line in lines if re.search(r"(?i)error\b|fail|not |cannot|unknown|denied", line)]
        printed = "" if output.known else output.came
        return one_line(sentence((telling or lines[-1:] or [printed])[0]), _SHOWN)

    def _notes(self) -> list[str]:
        row, output = self._row, self.result
        notes = [f"{row.program} was not allowed: {one_line(what, _SHOWN)}" for what in output.denied]
        finished = self._finished
        failed = finished is None or finished.timed_out or finished.returncode != 0 or bool(output.errors)
        if not failed and output.trouble:
            times = counted(sum(trouble.times for trouble in output.trouble), "time")
            return [*notes, f"{row.program} had trouble {times}: {output.trouble[-1].text}", *self._missed()]
        notes += [f"{row.program}: {trouble}" for trouble in output.trouble[-_NOTED:]]
        return notes if failed else [*notes, *self._missed()]

    def _missed(self) -> list[str]:
        row, output = self._row, self.result
        looked = (
            ("session id", "one", row.session and output.session is None),
            ("turns", "them", row.turns and not output.turns),
            ("usage", "it", row.usage and (output.spent is None or output.spent.usage is None)),
        )
        return [
            f"{row.program} printed no {what} where its row looks for {it}"
            for what, it, misses in looked
            if misses
        ]

    def _usage(self, session: str | None) -> tuple[TokenUsage | None, float | None]:
        spent = self.result.spent
        if spent is None:
            return None, None
        usage, cost = spent.usage, spent.cost
        if session is None or not (spent.usage_of_session or spent.cost_of_session):
            return usage, cost
        before = self._totals.get(session)
        if before is None:
            before = (
                spent_before(self._ctx, self._name, session) if self._session else (TokenUsage(0, 0), 0.0)
            )
        self._totals[session] = (usage or before[0], before[1] if cost is None else cost)
        if usage is not None and spent.usage_of_session:
            usage = TokenUsage(*(max(0, now - past) for now, past in zip(usage, before[0], strict=True)))
        if cost is not None and spent.cost_of_session:
            cost = max(0.0, cost - before[1])
        return usage, cost


def spent_before(ctx: Context, agent: str, session: str) -> tuple[TokenUsage, float]:
    """Return what earlier steps and attempts of a session cost."""
    from uwf_git.plugin import Attempts

    nodes = [step.detail for step in ctx.history.steps if step.agent == agent]
    tried = Attempts(ctx.store).all(ctx.thread)
    nodes += [attempt.detail for attempt in tried if attempt.detail is not None and attempt.agent == agent]
    total, cost = [*TokenUsage(0, 0)], 0.0
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
    return TokenUsage(*total), cost
