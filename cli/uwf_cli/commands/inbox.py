"""`uwf inbox`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.commands.listing import origin_mark
from uwf_cli.commands.permitting import request_part
from uwf_cli.completers import complete_group
from uwf_cli.invocation import Invocation, adopt_news
from uwf_cli.output import ago, approval_lines, seconds_of, who_waits
from uwf_cli.selection import short_ids
from uwf_git.api.cockpit.inbox import FAILED, groups
from uwf_git.base.text import counted, numbered, one_line
from uwf_git.base.thread_states import Request
from uwf_git.format.types import role_name

_TASK = 20  # columns of a task beside others
_QUESTION = 400  # characters
_AROUND = 4  # lines beside those of items: the numbers, the table's head, the hint, the prompt


@command(
    "uwf inbox",
    "uwf inbox --group failed               what failed in the last week",
    "uwf inbox --for me                     without what others must do",
    "uwf inbox --format json | jq -r '.[].command'",
)
@click.option(
    "--group",
    "only",
    multiple=True,
    metavar="GROUP",
    help="Only this group: permission, asks, failed, budget, land. Repeat it for more.",
    shell_complete=complete_group,
)
@click.option(
    "--for",
    "whom",
    metavar="NAME",
    help="Only what this person may do: a name, an address, or me.",
)
def inbox(invocation: Invocation, only: tuple[str, ...], whom: str | None) -> None:
    """List what waits for you: what asks, what failed, what is over budget, and what is ready to land.

    A thread asks if a role has a question, or a person plays its next role: one with human: true, or one that
    uwf-human plays on this machine. What running agents ask leave for comes first, since they are held up. That, what
    asks and what is over budget is listed oldest first, the others newest first.
    A failed end is listed for a week, unless it was forked since.

    On a terminal too low for all, each has one line.
    """
    from uwf_git.api.cockpit.inbox import inbox as items

    adopt_news(invocation)
    instance = invocation.instance
    values = items(instance, whom, only)
    ago_by = [{**value, "ago": ago(seconds_of(value["since"])) if value["since"] else ""} for value in values]
    names = short_ids(instance)

    def text(items: Sequence[Any]) -> str:
        if not items:
            return "nothing waits for a person here"
        details, height = _details(items), terminal.height()
        if height is None or details.count("\n") < height - 1:
            return details
        return _lines(items, names, None if only else height)

    invocation.emit(values, text, ago_by)
    if not values:
        invocation.note_left_out()


def _counts(items: Sequence[Any]) -> str:
    """Return how many there are of each group: `asks you (3) · failed (2)`."""
    numbers = Counter(item["group"] for item in items)
    parts = [f"{label} ({numbers[group]})" for group, label in groups().items() if numbers[group]]
    return terminal.style(" · ".join(parts), "bold")


def _details(items: Sequence[Any]) -> str:
    head = [_counts(items) + "\n"] if len({item["group"] for item in items}) > 1 else []
    return "\n".join([*head, *map(_detail, items)])


def _detail(value: Any) -> str:
    branch = terminal.style(f"(branch of {value['parent']}) ", "dim") if value.get("parent") else ""
    task = f"{value['name']}: {value['title']}" if value["title"] else value["name"] or ""
    lines = [f"{terminal.style(value['thread'], 'bold')}  {terminal.style(value['ago'], 'yellow')}"]
    asks, options, command = [_what(value)], value["options"], value["command"]
    if "permission" in value:
        asks, command = request_part(value["permission"])
        options = options if command == value["command"] else ()
    way = value["approvals"]["way"] if "approvals" in value else None
    options = () if way else options  # nobody can pass the gate
    for text in (branch + origin_mark(value) + task, f"{_who(value)}: {asks[0]}", *asks[1:]):
        lines += terminal.wrapped(text, 2) if text else []
    room = terminal.width()
    for option in numbered(options):
        lines.append("    " + (option if room is None else terminal.cut(option, max(room - 4, 1))))
    if "approvals" in value:
        for line in approval_lines(value["approvals"]):
            lines += terminal.wrapped(line, 4)
    for warning in value.get("warnings", ()):
        lines += terminal.wrapped(f"beware: {warning}", 2)
    if plan := value.get("plan"):
        lines += terminal.wrapped(_planned(plan), 2)
    if value["reason"] and value["kind"] == Request.QUESTION.value:
        lines += terminal.wrapped(f"({value['reason']})", 2)
    lines += terminal.wrapped(way, 2) if way else ["  " + terminal.style(command, "cyan")]
    return "\n".join(lines) + "\n"


def _planned(plan: Any) -> str:
    code = f"{counted(plan['files'], 'file')} changed, commit {plan['commit'][:12]}" if plan["commit"] else ""
    return " ".join(filter(None, (plan["text"], code)))


def _lines(items: Sequence[Any], names: Callable[[str], str], height: int | None) -> str:
    """Return a line for each item below their numbers, as many as fit; each group keeps its first ones."""
    shown = _fitting(items, height)
    rows = [
        (
            names(item["thread"]),
            item["group"],
            item["ago"].removesuffix(" ago"),
            role_name(item["role"]) if item["role"] else "",
            terminal.cut(item["title"] or item["name"] or "", _TASK),
            _what(item),
        )
        for item in shown
    ]
    table = terminal.table(rows, ("thread", "group", "age", "role", "task", ""), free=5, names=(3,))
    hint = "uwf thread show ID has the whole"
    if hidden := Counter(item["group"] for item in items) - Counter(item["group"] for item in shown):
        ((group, _),) = hidden.most_common(1)
        hint = f"{hidden.total()} more: uwf inbox --group {group} has all of its group"
    return f"{_counts(items)}\n{table}{terminal.style(hint, 'dim')}"


def _fitting(items: Sequence[Any], height: int | None) -> list[Any]:
    numbers = Counter(item["group"] for item in items)
    if height is not None:
        room = max(height - _AROUND, len(numbers))
        while numbers.total() > room:
            numbers[max(numbers, key=lambda group: numbers[group])] -= 1
    shown = []
    for item in items:
        if numbers[item["group"]] > 0:
            numbers[item["group"]] -= 1
            shown.append(item)
    return shown


def _who(value: Any) -> str:
    if value["kind"] in _REQUESTS:
        return who_waits(value)
    if value["group"] != FAILED:
        return groups()[value["group"]]
    return f"{role_name(value['role'])} failed" if value["role"] else "it cannot be read"


def _what(value: Any) -> str:
    reasoned = value["kind"] == Request.BUDGET.value
    return one_line(value["reason"] if reasoned else value["question"], _QUESTION)


_REQUESTS = tuple(request.value for request in Request)
