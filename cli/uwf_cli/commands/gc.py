"""`uwf gc`: packs the store, and folds old archives into one ref a month."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

import click

from uwf_cli import terminal
from uwf_cli.command import Command
from uwf_cli.invocation import Invocation
from uwf_git.errors import Usage

if TYPE_CHECKING:
    from typing import Any

DAY = 24 * 60 * 60
_DAYS = re.compile(r"([0-9]{1,5})d", re.ASCII)
_UNITS = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


@click.command(
    cls=Command,
    examples=(
        "uwf gc",
        "uwf gc --fold-before 30d           and fold what ended more than 30 days ago",
        "uwf gc --fold-before 2025-07-01    … or before that day",
    ),
)
@click.option("--fold-before", metavar="DATE|Nd", help="Fold the archives of threads that ended before.")
@click.pass_obj
def gc(invocation: Invocation, fold_before: str | None) -> None:
    """Pack the store with git's own gc; unreachable objects are kept two weeks.

    Folded threads are found and read as ever, but stand in one ref a month. A remote with thousands of
    refs gets faster once that is pushed.
    """
    from uwf_git.store import maintenance
    from uwf_git.store.archives import fold_before as fold

    before = None if fold_before is None else _seconds(fold_before)
    instance = invocation.instance
    store = instance.store
    store.sync()
    was = maintenance.counts(store.repository)
    folded = {} if before is None else fold(store.repository, before)
    maintenance.collect(store, shared=invocation.location.here)
    store.sync()
    instance.sessions.forget(instance.threads.ids().__contains__)
    now = maintenance.counts(store.repository)
    invocation.emit({"folded": folded, "before": was._asdict(), "after": now._asdict()}, _text)


def _seconds(text: str) -> int:
    """A day, at midnight UTC, or so many days ago, in Unix seconds. Raises Usage."""
    now = datetime.datetime.now(datetime.UTC)
    if days := _DAYS.fullmatch(text.strip()):
        return int(now.timestamp()) - int(days.group(1)) * DAY
    try:
        day = datetime.date.fromisoformat(text.strip())
    except ValueError:
        raise Usage(f"--fold-before {text!r} is no day", "give one as 2025-07-01, or days as 30d") from None
    return int(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp())


def _text(value: Any) -> str:
    was, now = value["before"], value["after"]
    rows = [("", "before", "after")]
    rows += [(name, str(was[name]), str(now[name])) for name in ("loose", "packs", "refs")]
    rows.append(("size", _size(was["bytes"]), _size(now["bytes"])))
    folds = [
        f"folded {number} thread{'s' * (number != 1)} of {month}" for month, number in value["folded"].items()
    ]
    return "\n".join([*folds, terminal.table(rows)])


def _size(number: int) -> str:
    for unit, size in _UNITS:
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
