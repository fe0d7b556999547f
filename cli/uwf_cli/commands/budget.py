"""`uwf thread budget`: what a thread may use, what it has used, and raising it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.arrivals import find_thread
from uwf_cli.command import Command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import Head
    from uwf_git.values.ids import Hash


@click.command(
    "budget",
    cls=Command,
    examples=(
        "uwf thread budget 01JK7M                         what holds, and what is used",
        "uwf thread budget 01JK7M --max-tokens +500000    so many more",
        "uwf thread budget 01JK7M --max-time 4h --max-cost 10",
    ),
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("--max-steps", metavar="N|+N", help="Steps of agents.")
@click.option("--max-tokens", metavar="N|+N", help="Tokens in and out.")
@click.option("--max-cost", metavar="USD|+USD", help="US dollars, of what has a price.")
@click.option("--max-time", metavar="TIME|+TIME", help="Time of agents at work: 90s, 30m, 2h.")
@click.pass_obj
def budget(invocation: Invocation, /, thread: str, **given: str | None) -> None:
    """Show a thread's budget, or raise it.

    With +, the limit that holds is raised by so much. The next step records what was raised, so that it
    goes wherever the thread goes; only the limits of other machines' config.yaml still hold there.
    """
    from uwf_git.engine.ledger import Budgets, account, pending, raise_limits

    instance = invocation.instance
    found = find_thread(invocation, thread)
    head = instance.threads.head(found)
    if asked := {name: text for name, text in given.items() if text is not None}:
        raise_limits(instance, found, _raised(instance, instance.threads.active_head(found), asked))
    standing = Budgets(instance).standing(head)
    recorded = account(instance, head).raised
    fresh = pending(instance, found)
    rows: list[dict[str, Any]] = []
    for limit in standing.limits.values() if standing else ():
        assert standing is not None
        row: dict[str, Any] = {"limit": limit.key, "most": limit.value, "used": standing.used[limit.key]}
        row["source"] = limit.source
        value, step = recorded.get(limit.key, (None, None))
        if limit.source == "raised" and limit.key not in fresh and step and value == limit.value:
            row |= {"step": step, "by": _committer(instance, step)}
        rows.append(row)
    invocation.emit({"thread": found, "budget": rows}, _text)


def _raised(instance: Instance, head: Head, asked: dict[str, str]) -> dict[str, float]:
    """The limits that options give. Raises Usage for one that the thread doesn't have."""
    from uwf_git.engine.budget import OPTIONS, parse_option
    from uwf_git.engine.ledger import Budgets
    from uwf_git.errors import Usage

    standing = Budgets(instance).standing(head)
    held = standing.limits if standing else {}
    raised: dict[str, float] = {}
    for key, option in OPTIONS.items():
        text = asked.get(option.lstrip("-").replace("-", "_"))
        if text is None:
            continue
        raised[key] = parse_option(key, text, held)
        if key not in held:
            raise Usage(
                f"thread {head.thread} has no {key} that could be raised",
                "limits are set by uwf thread start, by the workflow's budget, and by budgets in config.yaml",
            )
    return raised


def _committer(instance: Instance, step: Hash) -> str:
    """Who committed the step that recorded a raise."""
    commit = instance.store.repository.commit(instance.threads.commit_of(step))
    return commit.committer.rsplit(" <", 1)[0]


def _text(value: Any) -> str:
    from uwf_git.engine.budget import share

    if not value["budget"]:
        return "no budget: this thread may use what it likes"
    rows = []
    for each in value["budget"]:
        used = share(each["limit"], each["used"], each["most"])
        by = f" in {each['step']} by {each['by']}" if "by" in each else ""
        full = terminal.style("used up", "yellow") if each["used"] >= each["most"] else ""
        rows.append((each["limit"], used, full, f"{each['source']}{by}"))
    return terminal.table(rows, ("limit", "used", "", "set by"))
