"""One run of an agent CLI and what it came to: a reply, a session that was lost, or a failure in a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.agents.cli.output import Output, Said
from uwf_git.config.agent_cli import Row
from uwf_git.kit.context import Context, Reply, Usage

if TYPE_CHECKING:
    from uwf_git.processes import Finished

_SHOWN = 400  # characters of the CLI's words in an error


class Failure(NamedTuple):
    """What goes wrong, and what to do about it, a line each."""

    message: str
    hint: str


class OtherSession(Exception):
    """The program has opened another session than the one it was to go on in."""


class Run:
    """A run of `row`'s program for the agent `name`, in `session` or in a new one where that is None. Turns are
    recorded as they come."""

    def __init__(self, ctx: Context, name: str, row: Row, session: str | None) -> None:
        self._ctx = ctx
        self._name = name
        self._row = row
        self._session = session
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
        assert self._said is not None
        return self._said

    def reply(self) -> Reply:
        """What was said, whatever became of it."""
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
        """Why the session could not be gone on with; None where it could, or where that isn't what is wrong."""
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
        if row.lost and re.search(row.lost, "\n".join((*said.errors, *said.complaints, self._stderr))):
            return f"{name} could not be resumed: {words}"
        # Nobody said why, and nothing has happened yet.
        silent = not said.errors and not said.complaints and not said.turns and not self._is_login()
        return f"{name} could not be resumed: {words}" if silent and finished.returncode > 0 else None

    def failure(self, env: Mapping[str, str]) -> Failure | None:
        """What is wrong with the run, if anything is. May ask the program for its version."""
        finished, said, program = self._finished, self.said, self._row.program
        assert finished is not None
        if finished.timed_out:
            return Failure(f"{program} ran out of time", "raise agents.<name>.timeout in config.yaml")
        if finished.returncode == 0 and not said.errors:
            return self._unanswered(env)
        how = f"exited with {finished.returncode}"
        if finished.returncode < 0:
            how = f"was ended by signal {-finished.returncode}"
        if self._is_login():
            hint = self._row.sign_in or f"log in with {program} first"
            return Failure(f"{program} is not logged in, or its key is refused: {self._words()}", hint)
        words = self._words()
        message = f"{program} {how}: {words}" if words else f"{program} {how} and said nothing"
        if said.errors:
            message = f"{program} failed: {words}"
        elif (old := self._too_old(env)) is not None:
            return old
        return Failure(message, "what it said before is kept: uwf thread attempts ID")

    def _unanswered(self, env: Mapping[str, str]) -> Failure | None:
        """What is wrong with a run that ended well."""
        row, said = self._row, self.said
        if said.turns or (said.text or "").strip():
            return None
        if said.text is not None:
            return Failure(f"{row.program} gave an empty answer", "try again, or with another model")
        if not said.came:
            return Failure(f"{row.program} exited with 0 and printed nothing", f"see: {row.program} --help")
        if (old := self._too_old(env)) is not None:
            return old
        field = "text" if row.text else "turns"
        misfit = f"nothing it looks for is there, output: {row.output}" if not said.known else f"no {field}"
        return Failure(
            f"{row.program} printed what the row {row.name!r} does not fit ({misfit}): {said.came}",
            "the program has changed, or was told to print something else; "
            f"a row of your own goes under agentClis.{row.name} in config.yaml",
        )

    def _too_old(self, env: Mapping[str, str]) -> Failure | None:
        from uwf_git.agents.cli.call import installed_version, older

        row = self._row
        version = installed_version(row, env) if row.least else None
        if version is None or not older(version, row.least):
            return None
        hint = f"bring it up to date: {row.install}" if row.install else "bring it up to date"
        words = self._words() or "it printed nothing"
        return Failure(f"{row.program} {version} is too old, at least {row.least} is needed: {words}", hint)

    def _is_login(self) -> bool:
        said = self.said
        text = "\n".join((*said.errors, *said.complaints, self._stderr))
        return bool(self._row.login and re.search(self._row.login, text))

    def _words(self) -> str:
        """What the program itself says is wrong, in one line."""
        said = self.said
        for words in (said.errors, said.complaints):
            if words:
                return _line("; ".join(words))
        lines = [line.strip() for line in self._stderr.splitlines() if line.strip()]
        if self._row.output == "text" and said.came:
            return _line(said.came)
        telling = [line for line in lines if re.search(r"(?i)\berror\b|fail|not |can't|unknown|denied", line)]
        if telling or lines:
            return _line((telling or lines[-1:])[0])
        return _line(said.came)

    def _notes(self) -> list[str]:
        row, said = self._row, self.said
        notes = [f"{row.program} was not allowed: {_line(what)}" for what in said.denied]
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
        """What this run alone has cost. Of what counts the whole session, what is known of its past is taken
        off."""
        spent = self.said.spent
        if spent is None:
            return None, None
        if not spent.whole_session or session is None:
            return spent.usage, spent.cost
        before = _totals.get((self._name, session))
        if before is None:
            before = spent_before(self._ctx, self._name, session) if self._session else (Usage(0, 0), 0.0)
        _totals[self._name, session] = (spent.usage, spent.cost or 0.0)
        tokens = (max(0, now - past) for now, past in zip(spent.usage, before[0], strict=True))
        return Usage(*tokens), None if spent.cost is None else max(0.0, spent.cost - before[1])


_totals: dict[tuple[str, str], tuple[Usage, float]] = {}
"""What an agent's session had cost when this process last heard of it."""


def spent_before(ctx: Context, agent: str, session: str) -> tuple[Usage, float]:
    """What the steps and failed attempts of the thread have cost that an agent did in a session."""
    from uwf_git.store.attempts import Attempts

    nodes = [step.detail for step in ctx.history.steps if step.agent == agent]
    tried = Attempts(ctx.store).all(ctx.thread)
    nodes += [each.detail for each in tried if each.detail is not None and each.agent == agent]
    total, cost = [0, 0, 0], 0.0
    for node in dict.fromkeys(nodes):
        detail = ctx.store.get(node).payload
        if not isinstance(detail, dict) or detail.get("session") != session or not detail.get("usage"):
            continue
        usages = [(1, detail["usage"])]
        for turn in (ctx.store.get(each).payload for each in detail["turns"]):
            if turn.get("tool") == "extract" and turn.get("usage"):  # another model's, which read the answer
                usages.append((-1, turn["usage"]))
        for sign, usage in usages:
            total = [sum_ + sign * usage[name] for sum_, name in zip(total, Usage._fields, strict=True)]
        cost += detail.get("cost") or 0.0
    return Usage(*total), cost


def _line(text: str) -> str:
    text = " ".join(text.split())
    text = "".join(each if each.isprintable() else "�" for each in text)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
