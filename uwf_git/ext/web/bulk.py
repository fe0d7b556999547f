"""Actions on the threads that are checked in a list."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from uwf_git.ext.web.actions import ACTIONS
from uwf_git.ext.web.executor import Executor
from uwf_git.ext.web.forms import Form
from uwf_git.ext.web.notes import RESULT, ActionResult, Outcome, with_result
from uwf_git.plugin import Usage, UwfError, extensions

MOST = 256
"""How many threads a form may name."""


class BulkAction(NamedTuple):
    """An action at `/threads/<name>`. `runs`: agents work; `is_danger`: it is confirmed."""

    name: str
    label: str
    key: str = ""
    runs: bool = False
    is_danger: bool = False


def bulk_actions() -> tuple[BulkAction, ...]:
    queued = (row for row in extensions.thread_actions() if row.queue)
    return (
        BulkAction("retry", "Retry", "r", runs=True),
        BulkAction("pause", "Pause", "p"),
        BulkAction("resume", "Resume"),
        *(BulkAction(row.name, row.label, row.label[:1].lower(), runs=True) for row in queued),
        BulkAction("kill", "Kill", is_danger=True),
    )


async def do_all(executor: Executor, name: str, form: Form) -> str:
    """Perform an action on each thread of a form, at the head that the page showed; return the address of the list
    with the result. With `unmoved` in the form, none is killed that has moved on. Raises Usage without a thread."""
    bulk = next(item for item in bulk_actions() if item.name == name)
    action = next(item for item in ACTIONS if item.name == name)
    heads = dict(value.split(" ", 1) for key, value in form.pairs if key == "thread" and " " in value)
    if not heads:
        raise Usage("no thread is checked", "check some in the list")
    if len(heads) > MOST:
        raise Usage(f"{len(heads)} threads are too many at once", f"at most {MOST}")
    fields = {key: value for key, value in form.fields.items() if key in ("reason", "sure", "unmoved")}

    async def outcome(thread: str, head: str) -> Outcome:
        form, why = Form({**fields, "head": head}), None
        try:
            await executor.do(action, thread, form)
        except UwfError as error:
            why = error
        return executor.outcome(thread, form, why)

    outcomes = await asyncio.gather(*(outcome(thread, head) for thread, head in heads.items()))
    query = [(key, value) for key, value in parse_qsl(form.fields.get("list", "")) if key != RESULT]
    address = f"/threads?{urlencode(query)}" if query else "/threads"
    result = ActionResult(bulk.label, bulk.runs, tuple(outcomes))
    return with_result(address, executor.notes.put_result(result))
