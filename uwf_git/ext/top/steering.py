"""Commands on threads that keys give: to several at once, or with words that are typed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from uwf_git.ext.top import actions
from uwf_git.ext.top.board import PAUSED, Row
from uwf_git.ext.top.question import Answer, Decision, Question, texts_of
from uwf_git.ext.top.reader import Reader
from uwf_git.plugin import (
    CommandFailed,
    Instance,
    ThreadId,
    ThreadState,
    UwfError,
    extensions,
    one_line,
    remark_fate,
    to_retry,
)


class Ask(Protocol):
    def __call__(self, label: str, value: str = "") -> Awaitable[str | None]:
        """Return a typed line, None after Esc."""
        ...


class Tell(Protocol):
    def __call__(self, text: str, is_bad: bool = False) -> None: ...


class Steering:
    """Its methods raise CommandFailed, and what reading the store raises."""

    def __init__(self, reader: Reader, commands: actions.Actions, ask: Ask, tell: Tell) -> None:
        self._reader = reader
        self._commands = commands
        self._ask = ask
        self._tell = tell
        self._unsent: dict[ThreadId, dict[str, str]] = defaultdict(dict)

    async def retry(self, rows: Sequence[Row]) -> None:
        commands = [(row, command) for row in rows if (command := actions.retry(row))]
        if len(commands) > 1:
            able = await self._reader(partial(_to_retry, [row.thread for row, _ in commands]))
            commands = [(row, command) for row, command in commands if row.thread in able]
        if not commands:
            self._tell("there is nothing to run", True)
        for row, command in commands:
            self._tell(f"running {named(row, len(commands))}")
            await self._commands.start(command)

    async def stop(self, rows: Sequence[Row]) -> None:
        await self._call_all("stopped", rows, actions.stop)

    async def pause(self, rows: Sequence[Row]) -> None:
        paused = sum(row.group == PAUSED or row.is_pausing for row in rows)
        word = "resumed" if paused == len(rows) else "done" if paused else ThreadState.PAUSED.label
        await self._call_all(word, rows, actions.pause)

    async def _call_all(
        self, word: str, rows: Sequence[Row], command: Callable[[Row], tuple[str, ...] | None]
    ) -> None:
        commands = [(row, argv) for row in rows if (argv := command(row))]
        failures = []
        for _, argv in commands:
            try:
                await self._commands.call(argv)
            except CommandFailed as error:
                failures.append(actions.message_of(error))
        done = len(commands) - len(failures)
        if failures:
            before = f"{done} {word}, {len(failures)} failed: " if len(commands) > 1 else ""
            self._tell(before + failures[0], True)
        elif commands:
            self._tell(f"{word}: {named(commands[0][0], len(commands))}")
        else:
            self._tell("it has ended" if rows else "there is no thread", True)

    async def extend(self, action: extensions.ThreadAction, rows: Sequence[Row]) -> None:
        """Start an extension's action on those of the threads to which it is offered."""
        offered = await self._reader(partial(_offered, action, [row.thread for row in rows]))
        if not offered:
            self._tell(f"{action.label}: not possible here; uwf {' '.join(action.argv)} --help", True)
        for thread in offered:
            self._tell(f"{action.label}: {thread}")
            await self._commands.start((*action.argv, "--", thread))

    async def fork(self, row: Row, step: int) -> None:
        """Ask for the step, with `step` as its default, and fork after it."""
        if text := await self._ask("fork after step", str(step)):
            value = await self._commands.call(("thread", "fork", f"--at={text}", "--", row.thread))
            self._tell(f"forked: {value['thread']}")

    async def remark(self, row: Row) -> None:
        if text := await self._type(row.thread, "remark", "a remark to the agent, or for the next prompt"):
            value = await self._commands.call(("thread", "say", f"--message={text}", "--", row.thread))
            self.sent(row.thread)
            fate = remark_fate(value["remark"]) if "remark" in value else "at the next prompt"
            self._tell(f"{fate}: {one_line(text, 60)}")

    async def compose(self, question: Question) -> Answer | Decision | None:
        """Ask for an answer, field by field if there is a form; return None after Esc."""
        if question.fields:
            return await self._fill(question)
        label = "answer, or the number of an option" if question.options else "answer"
        text = await self._type(question.thread, "", label)
        return question.say(text) if text else None

    def sent(self, thread: ThreadId) -> None:
        """Forget the lines that were typed for a thread, which are recorded now."""
        self._unsent.pop(thread, None)

    async def _type(self, thread: ThreadId, name: str, label: str) -> str | None:
        """Ask for a line, which begins as the one of this name that was typed before and not recorded. The number of a
        choice is none, since it may be another's now."""
        text = await self._ask(label, self._unsent[thread].get(name, ""))
        if text and not text.strip().isdecimal():
            self._unsent[thread][name] = text
        return text

    async def _fill(self, question: Question) -> Answer | None:
        answers: dict[str, list[str]] = {}
        for field in question.fields:
            choices = " ".join(f"{number} {text}" for number, text in enumerate(field.choices, 1))
            label = f"{field.name}{'' if field.required else ' (optional)'}: {choices or field.kind}"
            problem = ""
            while True:
                if field.choices:
                    typed = await self._ask(problem + label)
                else:
                    typed = await self._type(question.thread, field.name, problem + label)
                if typed is None:
                    return None
                try:
                    texts = texts_of(field, typed)
                except UwfError as error:
                    problem = f"{error.message} — "
                    continue
                break
            if texts:
                answers[field.name] = texts
        return question.fill(answers)


def named(row: Row, many: int) -> str:
    return f"{many} threads" if many > 1 else one_line(row.title, 60)


def _offered(
    action: extensions.ThreadAction, threads: Iterable[ThreadId], instance: Instance
) -> list[ThreadId]:
    offered = []
    for thread in threads:
        with suppress(UwfError):
            action.planned(instance, instance.threads.head(thread))
            offered.append(thread)
    return offered


def _to_retry(threads: Sequence[ThreadId], instance: Instance) -> set[ThreadId]:
    return set(to_retry(instance, threads))
