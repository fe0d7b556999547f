"""Selecting threads by ids or filters, as `uwf thread list`.

A command for one thread uses `invocation.find_thread`. A command for several is decorated with `threads` and
uses `on_each` or `chosen_threads`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from uwf_cli import terminal
from uwf_cli.completers import complete_name, complete_thread, complete_view
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation, adopt_news
from uwf_git.api.listing import ALL, Filters, listed, why_not_stepped, without_quiet_branches
from uwf_git.base.errors import Usage, UwfError
from uwf_git.base.text import counted
from uwf_git.base.text import listed as named
from uwf_git.base.thread_states import WORDS, ThreadState, states_of

if TYPE_CHECKING:
    from uwf_cli.views import View
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance


_NAMED = 10  # threads that a line names

_F = TypeVar("_F", bound=Callable[..., Any])


class Selection(NamedTuple):
    """The selection: ids as typed, or filters."""

    ids: tuple[str, ...]
    filters: Filters


def filters(ended: str | None) -> Callable[[_F], _F]:
    """Add filter options, as a parameter `filters`. `ended` is the help of --all; None omits it and includes
    finished threads."""

    def decorate(function: _F) -> _F:
        def packed(invocation: Invocation, *args: Any, **given: Any) -> Any:
            values = {name: given.pop(name) for name in _NAMES if name in given}
            values["states"] = [state for several in values.pop("status") for state in several]
            if (view := given.pop("view")) is not None:
                from uwf_git.api.filters import with_view

                values = with_view(invocation.instance, view, values)
            if ended is None:
                values["all"] = True
            return function(invocation, *args, filters=_filters(values), **given)

        wrapped: Any = update_wrapper(packed, function)  # with declarations of other decorators
        for option in reversed(_options(ended)):
            wrapped = option(wrapped)
        return wrapped  # type: ignore[no-any-return]

    return decorate


def _options(ended: str | None) -> list[Callable[[Any], Any]]:
    every = [] if ended is None else [click.option("--all", is_flag=True, help=ended)]
    return [
        *every,
        click.option(
            "--view",
            metavar="NAME",
            help="Filters saved as views.NAME in config.yaml; or last-night, mine, expensive.",
            shell_complete=complete_view,
        ),
        click.option(
            "--status",
            multiple=True,
            type=_States(WORDS),
            metavar="S[,S...]",
            help=f"Select threads with these statuses: {', '.join(WORDS)}.",
        ),
        click.option("--ended", is_flag=True, help="Select completed, failed and killed threads."),
        click.option("--unretried", is_flag=True, help="Leave out failed threads that were forked since."),
        click.option(
            "--workflow",
            metavar="W",
            help="Select threads of this workflow (name or hash).",
            shell_complete=complete_name,
        ),
        click.option(
            "--author",
            metavar="TEXT",
            help="Select threads started or forked by this name or address, or me.",
        ),
        click.option(
            "--since", metavar="WHEN", help="Select threads changed since this day (2026-01-31) or time (2d)."
        ),
        click.option(
            "--until",
            "--older-than",
            "until",
            metavar="WHEN",
            help="Select threads not changed after this day or time (90d).",
        ),
        click.option(
            "--search", metavar="TEXT", help="Select threads whose prompt contains this text, ignoring case."
        ),
        click.option("--min-cost", metavar="USD", help="Select threads that have cost at least this much."),
    ]


def _filters(values: Mapping[str, Any]) -> Filters:
    if not any(value not in (None, False, []) for value in values.values()):
        return Filters()  # as most calls have it
    from uwf_git.api.filters import filters_of

    return filters_of(values)


class _States(click.Choice[str]):
    """Comma-separated words, parsed into the states that have them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        words = [super(_States, self).convert(word.strip(), param, ctx) for word in value.split(",")]
        return tuple(state for word in words for state in states_of(word))


_NAMES = ("all", "status", "ended", "unretried", "workflow", "author", "since", "until", "search", "min_cost")


def threads(function: _F) -> _F:
    """Add ids and filters, as a parameter `chosen`."""

    def packed(*args: Any, threads: tuple[str, ...], filters: Filters, **given: Any) -> Any:
        return function(*args, chosen=Selection(threads, filters), **given)

    argument = click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
    wrapped: Any = argument(filters("Every thread that it can be done to.")(update_wrapper(packed, function)))
    return wrapped  # type: ignore[no-any-return]


# Finding


def short_ids(instance: Instance, whole: bool = False) -> Callable[[str], str]:
    """Return a function that shortens ids on a terminal to the unique end; full ids elsewhere, and if
    `whole`."""
    if whole or terminal.width() is None:
        return str
    ids = instance.threads.ids()
    size = 6
    while size < 26 and not _tells_apart(ids, size):
        size += 1
    return lambda thread: thread[-size:]


def _tells_apart(ids: Collection[str], size: int) -> bool:
    """Return whether the last characters of ids differ from each other and from all beginnings."""
    ends = {name[-size:] for name in ids}
    return len(ends) == len(ids) and ends.isdisjoint(name[:size] for name in ids)


def chosen_threads(
    invocation: Invocation,
    chosen: Selection,
    failures: Failures,
    among: Collection[ThreadState] = ALL,
    find: Callable[[str], ThreadId] | None = None,
    to_step: bool = False,
) -> list[ThreadId]:
    """Return the selected threads once each, as named or newest first, with a state in `among`; without
    conversations at rest, threads that a process runs and branches of others among them if `to_step`. Unknown
    ids are reported to `failures`; `find` looks up ids. Raises Usage without a selection, or with ids and
    filters."""
    adopt_news(invocation)
    instance = invocation.instance
    if chosen.ids and chosen.filters != Filters():
        raise Usage("ids and filters exclude each other", "give one of them")
    if not chosen.ids:
        if not _selects(chosen.filters):
            raise Usage(
                "no thread was named", "give ids, @ for the newest, or filters such as --status failed"
            )
        if to_step:
            return _to_step(invocation, chosen.filters, among)
        return [thread.thread for thread in listed(instance, chosen.filters) if thread.state in among]
    ids: dict[ThreadId, None] = {}
    for text in chosen.ids:
        try:
            ids[(find or instance.threads.find)(text)] = None
        except UwfError as error:
            if len(chosen.ids) == 1:
                raise
            failures.add(error)
    return list(ids)


def _selects(filters: Filters) -> bool:
    """Return whether filters select threads. An order, or --unretried alone, would mean all."""
    return filters._replace(sort=Filters().sort, unretried=False) != Filters()


def _to_step(invocation: Invocation, filters: Filters, among: Collection[ThreadState]) -> list[ThreadId]:
    """Return the selected threads that a run may take on. Of those of a status that was asked for, name the others, and
    why they are left alone."""
    instance = invocation.instance
    runs = instance.locks.runs()
    left: dict[str, list[ThreadId]] = {}
    able = []
    for thread in listed(instance, filters):
        if thread.state not in among:
            continue
        why = why_not_stepped(instance, thread, runs)
        if why:
            left.setdefault(why, []).append(thread.thread)
        else:
            able.append(thread)
    ids = [branch.thread for branch in without_quiet_branches(instance, able)]
    for why, threads in left.items() if filters.states else ():
        invocation.warn(f"left alone, {why}: {named(threads, _NAMED)}")
    return ids


def require_yes(invocation: Invocation, threads: list[ThreadId], verb: str) -> None:
    """Raise Usage with what a command with filters would affect: it needs --yes."""
    rows = []
    for thread in threads:
        try:
            row = invocation.instance.threads.head(thread).row
            rows.append((thread, terminal.escape(f"{row.name}: {row.title}")))
        except UwfError as error:
            rows.append((thread, terminal.escape(error.message)))
    ids = f": {', '.join(threads)}"
    if invocation.format == "text":
        invocation.write(terminal.table(rows))
        ids = ""  # which the table has
    raise Usage(f"{counted(len(threads), 'thread')} would be {verb}{ids}", "repeat with --yes")


def on_each(
    invocation: Invocation,
    chosen: Selection,
    do: Callable[[ThreadId], dict[str, Any]],
    view: View,
    among: Collection[ThreadState] = ALL,
    unasked: str = "",
    find: Callable[[str], ThreadId] | None = None,
    first: Callable[[list[ThreadId]], None] | None = None,
    none: str = "no such threads",
) -> None:
    """Apply `do` to each selected thread and print the results: one object for one id, else a list without
    failed ones.

    Failures don't stop others; the exit status is the highest. `unasked` is the effect in a word if filters
    need --yes; `first` is called once with all; `find` as in `chosen_threads`; `none` is the message for an
    empty selection.
    """
    failures = Failures(invocation)
    threads = chosen_threads(invocation, chosen, failures, among, find)
    if first is not None and threads and not unasked:
        first(threads)
    if len(chosen.ids) == 1:
        invocation.emit(do(threads[0]), view)
        return
    if unasked and threads and not chosen.ids:
        require_yes(invocation, threads, unasked)

    def results() -> Iterator[dict[str, Any]]:
        for thread in threads:
            try:
                yield do(thread)
            except UwfError as error:
                failures.add(error)

    invocation.emit_each(results(), view)
    if not threads and not chosen.ids:
        invocation.note(none)
        invocation.note_left_out()
    failures.end()
