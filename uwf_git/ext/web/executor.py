"""Performs the actions of pages on a store, and notes their outcomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from uwf_git.ext.web import inbox, people
from uwf_git.ext.web.actions import (
    Action,
    ActionFailed,
    ActionRequest,
    ActionTarget,
    PlanRefused,
    run_request,
)
from uwf_git.ext.web.forms import Form
from uwf_git.ext.web.notes import ActionResult, CommandNote, Notes, Outcome, StartRefused, with_result
from uwf_git.ext.web.runner import Runner, Work
from uwf_git.ext.web.start import start_request
from uwf_git.plugin import (
    Busy,
    Head,
    HeadMoved,
    Instance,
    Location,
    ThreadId,
    Usage,
    UwfError,
    describe_failure,
    extensions,
    thread_news,
    thread_outlook,
    thread_state,
    thread_states,
)
from uwf_git.plugin import page_addresses as addresses

if TYPE_CHECKING:
    from collections.abc import Mapping

_GOES_ON = (thread_states.Actor.AGENT, thread_states.Actor.BRANCHES)


class Executor:
    """Performs actions on a store. A repeated request in progress is performed once."""

    def __init__(
        self, location: Location, opened: Callable[[], AbstractContextManager[Instance]], runs: bool = False
    ) -> None:
        self.opened = opened
        self._runs = runs
        self._under_way: dict[tuple[object, ...], asyncio.Task[str]] = {}
        self._beginning: set[ThreadId] = set()
        self._runner = Runner(location)
        self.notes = Notes()

    def refusals(self) -> list[tuple[Head, str, StartRefused]]:
        """Return the heads of threads whose agents didn't start, or for which a command of an extension failed, and
        that haven't moved since, with the role that is next and why."""
        if not (threads := self.notes.failed()):
            return []
        refusals = []
        with self.opened() as instance:
            for thread in threads:
                with suppress(UwfError):
                    head = instance.threads.head(thread)
                    if (refused := self.notes.refused_at(head)) is not None:
                        refusals.append((head, thread_outlook(instance, head).next or "", refused))
                    if (note := self.notes.command_at(head)) is not None and note.why is not None:
                        refusals.append((head, "", StartRefused(head.node, note.why, False)))
        return refusals

    async def do(self, action: Action, thread: str, form: Form) -> str:
        """Perform an action; return the next page's address. Raises HeadMoved if the thread moved since the
        page, Busy if an agent is working, ActionFailed, and what parsing raises."""

        following = form.option("then")

        async def perform() -> str:
            with self.opened() as instance:
                at = ActionTarget(instance, instance.threads.head(instance.threads.find(thread)))
                if action.moves or "unmoved" in form.fields:
                    _require_unmoved(at.head, form)
                request = action.request(at, form)
                if request.do is None:
                    self.notes.require_no_command(at.thread)
                    if at.thread in self._beginning or instance.locks.is_held(at.thread):
                        raise Busy(
                            f"an agent is working on thread {at.thread}", "wait for the end of its step"
                        )
                    work = self._command(at, action, request) if action.summary else self._work(at)
            if request.do is not None:
                after = await self._runner.call(request, request.do)
                if self._runs and (action.name == "retry" or "go" in form.fields):
                    await self._go_on(after, follows=action.name != "retry")
            else:
                after = at.thread
                # Of two that begin at once, the lock would tell of both that they have begun.
                with nullcontext() if action.summary else self._begins(at.thread):
                    await self._runner.run(request, work)
            address = inbox.next_address(after, following)
            if not (action.runs and following) or after in self.notes.failed():
                return address
            outcome = Outcome(at.thread, at.head.row.title or at.thread, after=after)
            return with_result(address, self.notes.put_result(ActionResult(action.label, True, (outcome,))))

        return await self._once((action.name, thread, *sorted(form.fields.items())), perform)

    def outcome(self, thread: str, form: Form, error: Exception | None) -> Outcome:
        """Return what an action by a form came to, with what happened to the thread since the page showed it if that
        may be why it was refused."""
        title, why = thread, None if error is None else describe_failure(error)
        news: Mapping[str, Any] | None = None
        with suppress(UwfError), self.opened() as instance:
            head = instance.threads.head(instance.threads.find(thread))
            title = head.row.title or thread
            # Where a command works on an ended thread, that is why.
            is_why = isinstance(error, Usage | PlanRefused) or (
                isinstance(error, Busy) and head.archive is not None
            )
            if isinstance(error, UwfError) and not is_why:
                shown, request = form.fields.get("head", ""), form.fields.get("request", "")
                news = thread_news(instance, head, shown, request)
        return Outcome(thread, title, why, news)

    async def start(self, form: Form) -> str:
        """Start a thread; return its page's address. Raises ActionFailed, and what parsing raises."""

        async def perform() -> str:
            with self.opened() as instance:
                request = start_request(instance, form)
            assert request.do is not None
            return addresses.thread(await self._runner.call(request, request.do))

        return await self._once(("start", *sorted(form.fields.items())), perform)

    async def _go_on(self, thread: ThreadId, follows: bool) -> None:
        """Run a thread that may go on, unless a process does so already."""
        with self.opened() as instance:
            at = ActionTarget(instance, instance.threads.head(thread))
            busy = instance.locks.held() | instance.locks.runs() | self._beginning
            if thread in busy or thread_state(instance, at.head).actor not in _GOES_ON:
                return
            request, work = run_request(at, Form({})), self._work(at, follows)
        with self._begins(thread):
            await self._runner.run(request, work)

    def _work(self, at: ActionTarget, follows: bool = False) -> Work:
        thread, locks, runs = at.thread, at.instance.locks, at.instance.runs
        before, tried = runs.began(thread), at.instance.attempts.tip(thread)
        self.notes.put_refused(thread, None)

        def is_begun() -> bool:
            # The lock's holder may still find that no agent can run.
            return locks.is_held(thread) and runs.began(thread) not in (None, before)

        def refused(why: ActionFailed) -> None:
            with suppress(UwfError), self.opened() as instance:
                head = instance.threads.head(thread)
                # Else its end, or the attempt, says how it failed.
                if head.archive is None and instance.attempts.tip(thread) == tried:
                    self.notes.put_refused(thread, StartRefused(head.node, why, follows))

        return Work(is_begun, refused)

    def _command(self, at: ActionTarget, action: Action, request: ActionRequest) -> Work:
        """Return the work of an extension's command."""
        thread, note = at.thread, CommandNote(at.head.node, request.shown)
        self.notes.put_command(thread, note)

        def done(output: bytes) -> None:
            try:
                text = str(extensions.load(action.summary)(json.loads(output)))
            except (ValueError, LookupError, TypeError):
                text = "done"
            self.notes.put_command(thread, note._replace(text=text))

        def refused(why: ActionFailed) -> None:
            self.notes.put_command(thread, note._replace(why=why))

        return Work(lambda: False, refused, done)

    @contextmanager
    def _begins(self, thread: ThreadId) -> Iterator[None]:
        self._beginning.add(thread)
        try:
            yield
        finally:
            self._beginning.discard(thread)

    async def _once(self, key: tuple[object, ...], make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        own = people.person(), *key
        task = self._under_way.get(own)
        if task is None:
            task = self._under_way[own] = asyncio.create_task(make())
            task.add_done_callback(lambda _done: self._under_way.pop(own))
        return await asyncio.shield(task)


def _require_unmoved(head: Head, form: Form) -> None:
    if form.fields.get("head", "") != head.node:
        raise HeadMoved(
            f"thread {head.thread} has moved on since the page showed it, and is at {head.node} now",
            "look at it again before you say it again",
        )
