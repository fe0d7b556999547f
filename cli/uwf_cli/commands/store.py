"""`uwf init`, `uwf doctor`, `uwf debug` and `uwf gc`."""

from __future__ import annotations

import datetime
import os
import re
import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.commands.texts import TEMPLATES, files_of, write_files
from uwf_cli.completers import complete_thread
from uwf_cli.files import write_whole
from uwf_cli.invocation import Invocation, find_thread
from uwf_cli.output import as_line
from uwf_cli.views import Listing, Record, Table
from uwf_git.base.errors import Invalid, NotFound, StoreDamaged, Usage
from uwf_git.base.log import LEVELS
from uwf_git.base.text import counted
from uwf_git.format.ids import parse_thread_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uwf_git.store.location import Location

DAY = 24 * 60 * 60
_DAYS = re.compile(r"([0-9]{1,5})d", re.ASCII)
_UNITS = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


@command(
    "uwf init                      the default store, and the project's set-up",
    "uwf init --template bugfix    … with a workflow",
    "uwf init --here               the repository around the current folder",
)
@click.option("--here", is_flag=True, help="Create the store in the git repository of the current folder.")
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    help="Also write this workflow and its README to .uwf/workflows; uwf templates lists them.",
)
def init(invocation: Invocation, here: bool, template: str | None) -> None:
    """Create a store, and in a project its set-up, .uwf. Safe to repeat.

    .uwf/config.yaml is written from what the project is and which agents are here, and allowed for you: edit and
    commit it. What is there already stays as it is.

    The default store is created by the first command that writes; a project's repository becomes a store only
    by --here, which touches refs/uwf/*, objects and <git dir>/uwf. To undo --here, delete <git
    dir>/uwf/format.
    """
    from uwf_git.store.location import ROOT_VARIABLES, checkout_around, enclosing_repository, is_enabled
    from uwf_git.store.location import init as make

    location = before = invocation.location
    if here:
        git_dir = enclosing_repository(Path.cwd())
        if git_dir is None:
            raise NotFound(f"{Path.cwd()} is in no git repository", "make one first: git init")
        location = location._replace(git_dir=git_dir, here=True)
        named = "--root" if invocation.root_option else next(filter(os.environ.get, ROOT_VARIABLES), None)
        if named:
            invocation.warn(f"{named} names a storage root, so other commands use its store instead")
    checkout = checkout_around(Path.cwd())
    folder = checkout.top if checkout is not None and checkout.top is not None else Path.cwd()
    files = files_of(template, folder) if template else {}
    is_new = not is_enabled(location.git_dir)
    repository = make(location)
    if is_new:
        invocation.note_identity(repository)
        if location.here and not before.here:
            _note_left(invocation, before, repository.private / "format")
    value: dict[str, Any] = {"store": str(repository.path)}
    if template:
        value["template"] = template
    if template or not here:
        value |= _set_up(location, folder, files)
    invocation.emit(value, _INITIALISED)


def _set_up(location: Location, folder: Path, files: Mapping[Path, bytes]) -> dict[str, Any]:
    """Write the set-up of a project. It is allowed only if nothing of it is others' that nobody here has allowed."""
    from uwf_git.base.extensions import project_files
    from uwf_git.sandbox.enclosing_step import enclosing_step
    from uwf_git.store.setups import Setups

    setups = Setups.of_location(location)
    before = setups.state_at(folder)
    more = project_files(location, folder, files)
    write_files(files)
    changed = {path: data for path, data in more.items() if not path.is_file() or path.read_bytes() != data}
    write_files({path: data for path, data in changed.items() if not path.exists()})
    for path, data in changed.items():
        if path.read_bytes() != data:
            write_whole(path, data, force=True)
    state = setups.state_at(folder)
    written = {"files": [*map(str, files), *map(str, changed)]} if files or changed else {}
    if state.here is None or not state.here.has_settings or not written:
        return written
    is_known = before.here is None or before.is_allowed
    if not state.is_allowed and is_known and enclosing_step() is None:
        setups.allow(folder, state.here)
        state = setups.state_at(folder)
    return {**written, "allowed": state.is_allowed}


_ALLOWED = {True: "for you", False: "not yet, see it with: uwf allow", None: ""}
_INITIALISED = Record(
    "store",
    ("files", lambda value: "\n".join(value.get("files", ()))),
    ("allowed", lambda value: _ALLOWED[value.get("allowed")]),
    ("next", "uwf run {template} -p TEXT, with the settings of {template}.md"),
)


def _note_left(invocation: Invocation, before: Location, marker: Path) -> None:
    """Note how many threads stay in the store used before, how to see them, and how to go back."""
    from collections import Counter

    from uwf_git.api.listing import Filters, listed
    from uwf_git.store.instance import Instance

    if not before.git_dir.exists():
        return
    states = Counter(thread.state.word for thread in listed(Instance(before), Filters()))
    if states:
        states_shown = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        invocation.note(
            f"{counted(states.total(), 'open thread')} ({states_shown}) stay in {before.git_dir}, no longer listed here"
            f" — uwf --root {shlex.quote(str(before.root))} inbox --all-projects;"
            f" undo with: rm {shlex.quote(str(marker))}"
        )


@command(
    "uwf doctor",
    "uwf doctor --fix                    repair what is damaged, remove leftovers",
    "uwf doctor --fix --from old.bundle  … also from a bundle, a folder, or a URL",
    "uwf doctor --quick                  without reading every object",
    "uwf doctor --accept-store           the heads are right as they are",
)
@click.option("--fix", is_flag=True, help="Repair damage and delete leftovers.")
@click.option(
    "--from",
    "named",
    metavar="FILE|DIR|URL",
    multiple=True,
    help="Restore damaged objects from here before asking remotes. Repeatable.",
)
@click.option("--quick", is_flag=True, help="Don't read every object.")
@click.option(
    "--accept-store", "accept", is_flag=True, help="Accept the store's heads as they are, whoever wrote them."
)
def doctor(invocation: Invocation, fix: bool, named: tuple[str, ...], quick: bool, accept: bool) -> None:
    """Check programs, configuration and store, and repair the store.

    --fix restores damaged objects from a remote or from --from: a bundle, a repository, a storage root or a
    URL. Only objects that match their id are accepted; the damaged ones are kept in <git dir>/uwf/damaged.

    --accept-store is for a store that was restored, replaced or changed on purpose: what its user's log of heads
    contradicts or doesn't know is no longer reported.

    Exit 1 if a check fails, 7 if the store is damaged.
    """
    from uwf_cli.exchange import git_for
    from uwf_git.api.doctor import ERROR, Doctor
    from uwf_git.api.workflows import project_roles

    if named and not fix:
        raise Usage("--from says where a repair takes objects from", "add --fix")
    if named and quick:
        raise Usage("a repair has to read every object", "leave out --quick")

    roles, place = project_roles(), invocation.place
    look = Doctor(invocation.location, fix, quick, roles, named, git_for, accept, place)
    checks = [check._replace(hint=invocation.at_root(check.hint)) for check in look.checks()]
    invocation.emit([check.as_json() for check in checks], _CHECKS)
    if any(check.damaged for check in checks):
        raise Exit(StoreDamaged.exit_status)
    if any(check.status == ERROR for check in checks):
        raise Exit(1)


_CHECKS = Table(
    *(("", "{status:status}"), ("", "check")),
    ("", lambda check: " — ".join(filter(None, (check["message"], check["hint"])))),
)


@command(
    "uwf debug                          the last records of the log",
    "uwf debug 5K0R2X7M                 where a tag stands, and its last records",
    "uwf debug --thread @ --level info",
    "UWF_LOG=debug uwf thread run @     writes a log",
)
@click.argument("tag", required=False)
@click.option(
    "--thread", metavar="ID", help="Show records of this thread only.", shell_complete=complete_thread
)
@click.option(
    "--level", type=click.Choice(list(LEVELS)), default="debug", help="Show records of this level and above."
)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Show the last N records.",
)
def debug(invocation: Invocation, tag: str | None, thread: str | None, level: str, last: int) -> None:
    """Show log records, newest last. With a TAG, also the source line that logs it.

    Records are written if UWF_LOG is set to a level, or if a command runs with --debug.
    """
    import uwf_cli
    import uwf_git
    from uwf_git.base.log_calls import find_site
    from uwf_git.base.log_files import NO_FOLDER, newest_first
    from uwf_git.store.instance import log_folder

    of = parse_thread_id(thread) if thread and len(thread.strip()) == 26 else None
    if thread and of is None:
        of = find_thread(invocation, thread)
    folder = log_folder(invocation.location)
    if folder.exists() and not folder.is_dir():
        raise Invalid(f"the log in {folder} cannot be read: {NO_FOLDER}", f"mv {folder} {folder}.old")
    wanted = (
        dict(record)
        for record in newest_first(folder)
        if (of is None or record["thread"] == of)
        and (tag is None or record["tag"] == tag.upper())
        and LEVELS.get(record["level"], 0) >= LEVELS[level]
    )
    records = list(islice(wanted, last))[::-1]
    if tag is None:
        if not records and not folder.is_dir():
            invocation.note("nothing was logged; UWF_LOG=debug writes a log")
        invocation.emit(records, Listing(as_line))
        return
    site = find_site(tag, [Path(module.__file__).parent for module in (uwf_git, uwf_cli) if module.__file__])
    if site is None and not records:
        raise NotFound(f"no tag {tag!r} in the sources or the log", "a tag is 8 characters, as in 5K0R2X7M")
    value = {
        "tag": tag.upper(),
        "file": str(site.file) if site else None,
        "line": site.line if site else None,
        "level": site.level if site else records[-1]["level"],
        "content": site.content if site else None,
        "records": records,
    }
    invocation.emit(value, _tag_text)


def _tag_text(value: Any) -> str:
    return "\n".join([_TAG(value), *map(as_line, value["records"])])


def _place(tag: Any) -> str:
    return f"{tag['file']}:{tag['line']}" if tag["file"] else "not in the sources of this version"


_TAG = Record("tag", ("at", _place), ("says", "{level}: {content}"))


@command(
    "uwf gc",
    "uwf gc --fold-before 30d           and fold what ended more than 30 days ago",
    "uwf gc --fold-before 2025-07-01    … or before that day",
    "uwf gc --prune                     what was removed is gone at once",
)
@click.option("--fold-before", metavar="DATE|Nd", help="Fold archives of threads that ended before this.")
@click.option("--prune", is_flag=True, help="Delete removed threads and unreachable objects at once.")
def gc(invocation: Invocation, fold_before: str | None, prune: bool) -> None:
    """Pack the store with git gc. Unreachable objects are kept for 2 weeks, removed threads for a month.

    Folded threads are found and read as before, but share one ref per month, which speeds up remotes with
    thousands of refs.
    """
    from uwf_git.api.packing import collect

    before = None if fold_before is None else _seconds(fold_before)
    invocation.emit(collect(invocation.instance, before, prune), _gc_text)


def _seconds(text: str) -> int:
    """Parse a day (midnight UTC) or a number of days ago into Unix seconds. Raises Usage."""
    now = datetime.datetime.now(datetime.UTC)
    if days := _DAYS.fullmatch(text.strip()):
        return int(now.timestamp()) - int(days.group(1)) * DAY
    try:
        day = datetime.date.fromisoformat(text.strip())
    except ValueError:
        raise Usage(
            f"--fold-before {text!r} is not a day", "give one as 2025-07-01, or days as 30d"
        ) from None
    return int(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp())


def _gc_text(value: Any) -> str:
    was, now = value["before"], value["after"]
    rows = [("", "before", "after")]
    rows += [(name, str(was[name]), str(now[name])) for name in ("loose", "packs", "refs")]
    rows.append(("size", _size(was["bytes"]), _size(now["bytes"])))
    folds = [f"folded {counted(number, 'thread')} of {month}" for month, number in value["folded"].items()]
    return "\n".join([*folds, terminal.table(rows)])


def _size(number: int) -> str:
    for unit, size in _UNITS:
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
