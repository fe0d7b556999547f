"""`uwf thread list` and `uwf grep`."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation, adopt_news
from uwf_cli.output import ago, dollars, seconds_of
from uwf_cli.selection import filters, short_ids
from uwf_git.api.listing import (
    SORTS,
    Filters,
    in_order,
    left_out_line,
    listed,
    listed_and_left_out,
    nested,
    thread_items,
    without_quiet_branches,
)
from uwf_git.base.errors import Usage
from uwf_git.base.thread_states import ThreadState, asking_text, is_pausing
from uwf_git.format.types import role_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from uwf_git.api.listing import ListedThread
    from uwf_git.store.instance import Instance

_NUMBERED = 20  # threads that a list gives as @N
_AROUND = 4  # lines beside those of threads: the head, two notes, the prompt
_ROOMY = 120  # columns from which on each thread's line is shown too
_MORE = 24  # more columns for each column that not all lists have
_TASK = 40  # columns of its task then


@command(
    "uwf thread list",
    "uwf thread list --all --workflow solve-issue",
    "uwf thread list --status failed --status waiting --since 2d",
    "uwf thread list --view last-night",
    "uwf thread list --search csv --author ada --sort updated --limit 20",
)
@filters("Include threads that have ended.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    help="Sort by this column, newest or largest first.  [default: created]",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Print at most N threads.")
@click.option(
    "--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Skip the first N threads."
)
@click.option(
    "--branches",
    "with_branches",
    is_flag=True,
    help="Also show branches and calls of code that are idle or have ended.",
)
@click.option("-l", "--wide", is_flag=True, help="Also show full ids, workflows, agents and authors.")
def list_(
    invocation: Invocation,
    filters: Filters,
    sort: str | None,
    limit: int | None,
    offset: int,
    with_branches: bool,
    wide: bool,
) -> None:
    """List the project's threads, newest first. Sub-workflow threads and branches are listed below their parent.

    Branches and calls of code that are idle or have ended are left out of the text, unless --branches or a --status
    asks for them.

    A terminal gets as many as it has lines for, unless --limit asks for more.

    Damaged threads have status corrupt, and the exit status is 7. If a price is missing, the cost is unknown.
    """
    adopt_news(invocation)
    every, left_out = listed_and_left_out(invocation.instance, filters)
    threads = every
    if invocation.format == "text" and not with_branches and not filters.states:
        threads = without_quiet_branches(invocation.instance, every)
    height = terminal.height() if invocation.format == "text" and limit is None else None
    rows = limit if height is None else max(height - _AROUND, 1)
    listed = in_order(invocation.instance, threads, sort or filters.sort)[offset:]
    items = thread_items(invocation.instance, listed[:rows])
    invocation.emit(items, lambda value: _list_text(invocation.instance, value, wide))
    if height is not None and len(items) < len(listed):
        invocation.note(f"{len(listed) - len(items)} more; --limit {len(listed)} lists all")
    if len(threads) < len(every):
        invocation.note(f"{_left_out(invocation.instance, every, threads)}; --branches lists them")
    if left_out:
        invocation.note(left_out_line(left_out))
    shown = listed if height is not None else listed[:rows]
    is_whole = all(thread.state is not ThreadState.CORRUPT for thread in shown)
    Failures(invocation).end_list(not is_whole or any(item.get("damaged") for item in items))


def _list_text(instance: Instance, value: Any, wide: bool) -> str:
    if not value:
        if not instance.threads.meant(archived=True):
            project = instance.threads.projects.here
            where = "" if project is None else " of this project"
            return f"there are no threads{where} yet; uwf thread start WORKFLOW -p TASK begins one"
        return "no such threads; uwf thread list --all shows every one"
    names = short_ids(instance, wide)
    several = wide or len({item["name"] for item in value if item["name"]}) > 1
    projects = len({item["projectId"] for item in value}) > 1
    work = any("work" in item for item in value)
    now = time.time()
    rows = [
        _row(item, "  " * depth + names(item["thread"]), wide, several, projects, work, now, names)
        for depth, item in nested(value)
    ]
    header = ["thread", "status", "updated", "last step", "cost", "task"]
    if (terminal.width() or 0) >= _ROOMY + _MORE * (several + projects + work) and not wide:
        rows = [
            (*row[:-1], terminal.cut(row[-1], _TASK), item["line"] or "")
            for row, (_, item) in zip(rows, nested(value), strict=True)
        ]
        header.append("")
    if terminal.width() is not None:  # for who types the next command
        newest = enumerate(islice(instance.threads.newest(), _NUMBERED), 1)
        numbers = {str(thread): f"@{number}" if number > 1 else "@" for number, thread in newest}
        rows = [
            (numbers.get(thread["thread"], ""), *row)
            for row, (_, thread) in zip(rows, nested(value), strict=True)
        ]
        header.insert(0, "")
    task = header.index("task")
    if wide:
        header[task - 1 : task - 1] = ["agent", "author"]
    more = (("project", projects), ("workflow", several), ("work", work))
    header[header.index("task") : header.index("task")] = [name for name, has in more if has]
    problems = [f"{item['thread']}: {item['problem']}" for item in value if item.get("problem")]
    named = [header.index(name) for name in ("last step", "project", "workflow") if name in header]
    return terminal.table(rows, header, free=len(header) - 1, names=named) + "\n".join(problems)


def _row(
    thread: dict[str, Any],
    name: str,
    wide: bool,
    several: bool,
    projects: bool,
    work: bool,
    now: float,
    names: Callable[[str], str],
) -> tuple[str, ...]:
    status = terminal.status(thread["status"])
    if thread["status"] == ThreadState.CORRUPT.word:
        return (name, status, *[""] * (4 + 2 * wide + several + projects + work))
    if thread.get("damaged"):
        status += " (damaged)"
    if thread.get("run") and thread["status"] != ThreadState.RUNNING.word:
        status += " (run)"
    if is_pausing(thread):
        status += " (pausing)"
    if "waitingBelow" in thread:
        status += f" · {asking_text(thread)}"
    changed = thread["attempt"]["at"] if "attempt" in thread else thread["updated"]
    cells = [name, status, ago(seconds_of(changed), now)]
    cells.append(f"{thread['steps']:2d} {role_name(thread['role'])}" if thread["role"] else "")
    if wide:
        cells += [thread["agent"] or "", thread["author"] or ""]
    cells.append(_cost(thread))
    if projects:
        cells.append(thread["project"] or "")
    if several:
        cells.append(thread["name"])
    if work:
        cells.append(thread["work"]["text"] if "work" in thread else "")
    return (*cells, branches_mark(thread) + origin_mark(thread, names) + thread["title"])


def _left_out(instance: Instance, every: Sequence[ListedThread], threads: Sequence[ListedThread]) -> str:
    """Return how many threads were left out: `2 more are branches, 1 more is a call of code`."""
    from uwf_git.store.history import Head, is_call

    shown = {thread.thread for thread in threads}
    heads = [thread.head for thread in every if thread.thread not in shown]
    calls = sum(isinstance(head, Head) and is_call(instance.store, head.row.start) for head in heads)
    kinds = (
        (len(heads) - calls, "is a branch", "are branches"),
        (calls, "is a call of code", "are calls of code"),
    )
    return ", ".join(f"{number} more {one if number == 1 else many}" for number, one, many in kinds if number)


def branches_mark(thread: Mapping[str, Any]) -> str:
    """Return a mark before the title of a thread that waits for branches, else ""."""
    if (counts := thread.get("branches")) is None:
        return ""
    return terminal.style(f"({thread['branchesEnded']} of {sum(counts.values())} branches)", "dim") + " "


def origin_mark(thread: Mapping[str, Any], names: Callable[[str], str] = str) -> str:
    """Return a mark before the title of a fork or divergence, else ""."""
    if origin := thread.get("divergedFrom"):
        return terminal.style(f"(other side of {names(origin['thread'])})", "yellow") + " "
    if origin := thread.get("forkedFrom"):
        return terminal.style(f"(fork of {names(origin['thread'])})", "dim") + " "
    return ""


def _cost(thread: dict[str, Any]) -> str:
    if not thread["rehearsed"]:
        return dollars(thread["cost"], thread["unpriced"] or 0)
    mark = terminal.style("rehearsed", "yellow")
    return mark if thread["cost"] is None else f"{dollars(thread['cost'], thread['unpriced'])} {mark}"


@command(
    "uwf grep comma",
    "uwf grep -i 'utf-?8' -E --role reviewer --since 30d",
    "uwf grep -F 'a[0]' --workflow solve-issue",
    "uwf grep -- --force                what begins with a dash",
)
@click.argument("pattern")
@click.option("--role", metavar="ROLE", help="Search the outputs of this role only; no prompts.")
@click.option("-i", "--ignore-case", "insensitive", is_flag=True, help="Ignore case.")
@click.option("-F", "--fixed-strings", "fixed", is_flag=True, help="PATTERN is a fixed string.")
@click.option(
    "-E", "--extended-regexp", "extended", is_flag=True, help="PATTERN is an extended regular expression."
)
@click.option("-P", "--perl-regexp", "perl", is_flag=True, help="PATTERN is a Perl regular expression.")
@click.option(
    "-C",
    "--context",
    type=click.IntRange(0, 20),
    default=0,
    metavar="N",
    help="Print N lines around each match.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Print at most N lines.")
@filters(None)
def grep(
    invocation: Invocation,
    /,
    pattern: str,
    role: str | None,
    insensitive: bool,
    context: int,
    limit: int | None,
    filters: Filters,
    **kinds: bool,
) -> None:
    """Search prompts, answers and outputs of all threads with git grep.

    A step shared by forks is reported once, for the oldest thread. Exit 1 if nothing matches.
    """
    from click.exceptions import Exit

    from uwf_git.api.listing import search

    if sum(kinds.values()) > 1:
        raise Usage("-F, -E and -P exclude each other", "give one of them")
    if not pattern or "\n" in pattern or "\0" in pattern:
        raise Usage("the pattern is empty or has several lines", "give a part of one line")
    options = [
        letter for name, letter in (("fixed", "-F"), ("extended", "-E"), ("perl", "-P")) if kinds[name]
    ]
    adopt_news(invocation)
    instance = invocation.instance
    failures = Failures(invocation)
    flags = [*options, *["-i"] * insensitive]
    result = search(instance, listed(instance, filters), pattern, flags, role, context)
    failures.damaged(not result.is_whole)
    value = result.hits[:limit]
    if value or invocation.format != "text":
        invocation.emit(value, lambda shown: _hits_text(instance, shown))
    failures.end()
    if not value:
        invocation.note_left_out()
        raise Exit(1)


def _hits_text(instance: Instance, value: Any) -> str:
    names = short_ids(instance)
    labels = [f"{entry['number']:2d} {role_name(entry['role'] or entry['where'])}" for entry in value]
    size = max(map(len, labels))
    room = terminal.width()
    lines = []
    for item, label in zip(value, labels, strict=True):
        before, after = item.get("before", ()), item.get("after", ())
        for number, line in enumerate((*before, item["text"], *after), item["line"] - len(before)):
            is_hit = number == item["line"]
            begin = f"{names(item['thread'])}  {label:{size}}  {number:3d}{':' if is_hit else '-'} "
            text = " ".join(line.split("\t"))
            if room is not None:
                text = terminal.around(text, item["column"] - 1 if is_hit else 0, max(room - len(begin), 20))
            lines.append(begin + text)
    return "\n".join(lines)
