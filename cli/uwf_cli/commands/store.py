"""`uwf doctor`: is everything in order, and what to do where it isn't.

`uwf gc`: packs the store, and folds old archives into one ref a month.

`uwf init`: makes a store.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from uwf_cli import terminal
from uwf_cli.command import Command
from uwf_cli.invocation import Invocation
from uwf_cli.terminal import fields
from uwf_git.errors import NotFound, StoreDamaged, Usage, UwfError

if TYPE_CHECKING:
    from typing import Any

    from uwf_git.git.repository import Oid
    from uwf_git.store.opened import Instance
    from uwf_git.store.taking_in import Store

OK, WARNING, ERROR = "ok", "warning", "error"
MANY_LOOSE = 20_000
MANY_ENDED = 5_000  # refs that every push has to hear of
MB = 1_000_000
DAMAGED = 7


class Check(NamedTuple):
    """One thing looked at. `status` is ok, warning or error; `damaged` means the store lost something."""

    check: str
    status: str
    message: str
    hint: str = ""
    damaged: bool = False


@click.command(
    cls=Command,
    examples=(
        "uwf doctor",
        "uwf doctor --fix      remove what is merely left over",
        "uwf doctor --quick    without reading every object",
    ),
)
@click.option("--fix", is_flag=True, help="Remove leftovers; nothing that holds anything is touched.")
@click.option("--quick", is_flag=True, help="Don't read every object.")
@click.pass_context
def doctor(context: click.Context, fix: bool, quick: bool) -> None:
    """Check programs, configuration and store.

    Exit 1 where something is wrong, 7 where the store is damaged.
    """
    invocation: Invocation = context.obj
    checks = list(_checks(invocation, fix, quick))
    found = [
        {"check": each.check, "status": each.status, "message": each.message, "hint": each.hint}
        for each in checks
    ]
    invocation.emit(found, _doctor_text)
    if any(each.damaged for each in checks):
        context.exit(DAMAGED)
    context.exit(1 if any(each.status == ERROR for each in checks) else 0)


def _doctor_text(value: Any) -> str:
    rows = [
        (
            terminal.status(each["status"]),
            each["check"],
            each["message"] + (f" — {each['hint']}" if each["hint"] else ""),
        )
        for each in value
    ]
    return terminal.table(rows)


def _checks(invocation: Invocation, fix: bool, quick: bool) -> Iterator[Check]:
    yield from _guarded("versions", _versions)
    yield from _guarded("config", lambda: _config(invocation, fix))
    yield from _guarded("agents", lambda: _agents(invocation))
    opened: list[Instance] = []
    yield from _guarded("store", lambda: _store(invocation, opened))
    if not opened:
        return
    instance = opened[0]
    yield from _guarded("refs", lambda: _refs(instance, fix))
    yield from _guarded("archives", lambda: _archives(instance))
    yield from _guarded("remotes", lambda: _remotes(instance))
    if not quick:
        yield from _guarded("objects", lambda: _objects(instance, fix))
    yield from _guarded("threads", lambda: _threads(instance))
    yield from _guarded("workflows", lambda: _workflows(instance))
    if not quick:
        yield from _guarded("sizes", lambda: _sizes(instance))
    yield from _guarded("index", lambda: _index(instance))
    yield from _guarded("loose objects", lambda: _loose(instance))
    yield from _guarded("leftovers", lambda: _leftovers(instance, fix))


def _guarded(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """What a look finds; an error on the way is a finding too."""
    try:
        yield from look()
    except UwfError as error:
        yield Check(name, ERROR, error.message, error.hint, isinstance(error, StoreDamaged))
    except OSError as error:
        yield Check(name, ERROR, str(error))


def _versions() -> Iterator[Check]:
    from importlib.metadata import version

    import pygit2

    from uwf_git import __version__

    yield Check("uwf", OK, f"{__version__} on Python {platform.python_version()}")
    yield Check("libgit2", OK, f"{pygit2.LIBGIT2_VERSION} by pygit2 {version('pygit2')}")
    import subprocess

    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False, timeout=10)
        yield Check("git", OK, done.stdout.strip().removeprefix("git version "))
    except (OSError, subprocess.TimeoutExpired):
        yield Check("git", WARNING, "not on PATH", "sharing and packing need it; all else works")


def _config(invocation: Invocation, fix: bool) -> Iterator[Check]:
    from uwf_git.config.read import check_config
    from uwf_git.config.settings import FILE

    root = invocation.location.root
    yield Check("root", OK, str(root) if root.is_dir() else f"{root}, not made yet")
    problems = check_config(root)
    for problem in problems:
        where = f"{root / FILE}:{problem.line}:{problem.column}"
        yield Check("config", ERROR, f"{where}: {problem.message}", problem.hint)
    if not problems:
        there = (root / FILE).exists()
        yield Check("config", OK, FILE if there else f"no {FILE}; uwf-rehearse makes up the answers")
    secrets = root / ".env"
    if secrets.exists() and secrets.stat().st_mode & 0o077:
        if fix:
            secrets.chmod(0o600)
            yield Check(".env", OK, "now readable by you alone")
        else:
            yield Check(".env", WARNING, f"{secrets} is readable by others", f"chmod 600 {secrets}")
    missing = [
        provider.api_key_env
        for provider in _loaded(invocation).providers.values()
        if provider.api_key_env and not _secret(invocation, provider.api_key_env)
    ]
    for name in missing:
        yield Check("keys", WARNING, f"{name} is set neither in the environment nor in .env", "uwf setup")


def _loaded(invocation: Invocation) -> Any:
    from uwf_git.config.read import load_config

    return load_config(invocation.location.root)


def _secret(invocation: Invocation, name: str) -> str:
    from uwf_git.config.secrets import load_secrets

    root = invocation.location.root
    return os.environ.get(name) or load_secrets(root, None, os.environ).get(name, "")


def _agents(invocation: Invocation) -> Iterator[Check]:
    import shutil

    from uwf_git.engine.embedded import embedded

    config = _loaded(invocation)
    for agent in config.agents.values():
        if not agent.command or embedded(agent.command) is not None:
            continue
        found = shutil.which(agent.command)
        if found:
            yield Check("agents", OK, f"{agent.alias}: {found}")
        else:
            hint = "install it, or name it with its whole path"
            yield Check("agents", ERROR, f"{agent.alias}: {agent.command} is not on PATH", hint)
    yield Check("agents", OK, f"default: {config.default_agent or 'uwf-rehearse'}")


def _store(invocation: Invocation, opened: list[Instance]) -> Iterator[Check]:
    location = invocation.location
    if not location.git_dir.exists():
        # A root's own store is made by the first command that writes.
        status = ERROR if location.here else WARNING
        yield Check("store", status, f"no store at {location.git_dir}", "uwf init")
        return
    instance = invocation.instance
    opened.append(instance)
    marker = instance.store.repository.private / "format"
    version = marker.read_text(encoding="utf-8").strip() if marker.exists() else "none yet"
    kind = "the project's own" if location.here else "the root's"
    yield Check("store", OK, f"{location.git_dir}, {kind}, format {version}")
    path = instance.store.repository.path
    blocked = [
        folder
        for folder in (path, path / "objects", path / "refs", instance.store.repository.private)
        if folder.exists() and not os.access(folder, os.W_OK)
    ]
    for folder in blocked:
        yield Check("store", ERROR, f"{folder} is not writable", "check its owner and permissions")
    for lock in (*path.glob("*.lock"), *(path / "refs" / "uwf").rglob("*.lock")):
        yield Check("store", WARNING, f"{lock} locks a ref", "if no git process is running, remove it")


def _refs(instance: Instance, fix: bool) -> Iterator[Check]:
    from uwf_git.store.layout import ARCHIVE, ATTEMPTS, FOLDED, REMOTES, THREADS

    repository = instance.store.repository
    for name in repository.broken_refs():
        yield Check("refs", ERROR, f"{name} holds no object id", "restore it, or delete its file", True)
    refs = repository.refs(without=REMOTES)
    folded: set[str] = set(instance.store.folded_threads())
    for name, tip in instance.store.index.tips(FOLDED).items():
        if tip.problem:
            yield Check("refs", ERROR, f"{name}: {tip.problem}", "fetch it from a remote", True)
    ended = {name.removeprefix(ARCHIVE) for name in refs if name.startswith(ARCHIVE)} | folded
    left_over = [name for name in refs if name.startswith(THREADS) and name.removeprefix(THREADS) in ended]
    for name in left_over:
        if beyond := _beyond_its_end(instance, name, refs[name]):
            hint = f"keep them with: uwf thread fork {beyond}, then: git update-ref -d {name}"
            yield Check("refs", WARNING, f"{name} has steps after its thread's end", hint)
        elif fix:
            repository.delete_ref(name, refs[name])
            yield Check("refs", OK, f"removed {name}: its thread has ended")
        else:
            yield Check("refs", WARNING, f"{name} is left over: its thread has ended", "uwf doctor --fix")
    known = {name.removeprefix(prefix) for prefix in (THREADS, ARCHIVE) for name in refs} | folded
    for name in refs:
        if name.startswith(ATTEMPTS) and name.removeprefix(ATTEMPTS) not in known:
            yield Check("refs", WARNING, f"{name} belongs to no thread", f"git update-ref -d {name}")
    yield Check("refs", OK, f"{len(refs)} under refs/uwf")


def _beyond_its_end(instance: Instance, name: str, active: Oid) -> str | None:
    """The last step of an active ref that its thread's end doesn't lead to; None where there is none."""
    from uwf_git.sharing.reconcile import relate
    from uwf_git.store.layout import THREADS
    from uwf_git.values.ids import ThreadId

    head = instance.threads.head(ThreadId(name.removeprefix(THREADS)))
    relation = relate(instance.store, active, head.commit)
    return instance.store.take_in(active).node if relation is None or relation.ours else None


def _archives(instance: Instance) -> Iterator[Check]:
    from uwf_git.store.layout import ARCHIVE

    ended = len(instance.store.repository.ref_names(ARCHIVE))
    if ended > MANY_ENDED:
        message = f"{ended} threads that have ended stand in a ref each, which makes pushes slow"
        yield Check("archives", WARNING, message, "uwf gc --fold-before 30d")


def _remotes(instance: Instance) -> Iterator[Check]:
    from uwf_git.sharing.push import plan
    from uwf_git.store.layout import is_thread_ref

    for remote in instance.remotes.all():
        missing = plan(instance, remote).updates.keys()
        threads = {name.rsplit("/", 1)[1] for name in missing if is_thread_ref(name)}
        others = sum(1 for name in missing if not is_thread_ref(name))
        parts = [_counted(len(threads), "thread")] if threads else []
        parts += [_counted(others, "other ref")] if others else []
        if parts:
            verb = "is" if len(threads) + others == 1 else "are"
            message = f"{' and '.join(parts)} {verb} not on {remote.name}, or not as here"
            yield Check("remotes", WARNING, message, f"uwf push {remote.name}")
        else:
            yield Check("remotes", OK, f"all is on {remote.name}, as far as was last seen")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _threads(instance: Instance) -> Iterator[Check]:
    from uwf_git.store.threads import Damaged

    heads = instance.threads.all(archived=True)
    sound = 0
    for head in heads:
        if isinstance(head, Damaged):
            hint = f"restore its ref from a remote, or: uwf thread rm {head.thread} --yes"
            yield Check("threads", ERROR, f"{head.thread}: {head.problem}", hint, True)
            continue
        try:
            instance.threads.history(head)
            sound += 1
        except UwfError as error:
            yield Check("threads", ERROR, f"{head.thread}: {error.message}", error.hint, True)
    yield Check("threads", OK, f"{sound} of {len(heads)} can be read")


def _workflows(instance: Instance) -> Iterator[Check]:
    names = instance.registry.names()
    for name in names:
        try:
            instance.registry.workflow(instance.registry.current(name).hash)
        except UwfError as error:
            yield Check("workflows", ERROR, f"{name}: {error.message}", error.hint, True)
    yield Check("workflows", OK, f"{len(names)} registered")


def _objects(instance: Instance, fix: bool) -> Iterator[Check]:
    """Takes everything in once more, into an index of its own, which reads and verifies each node; what
    the real one has different is stale."""
    import tempfile

    from uwf_git.store.index import Index
    from uwf_git.store.taking_in import Store

    with tempfile.TemporaryDirectory(prefix="uwf-doctor-") as folder:
        fresh = Store(instance.store.repository)
        fresh.index.close()
        fresh.index = Index(Path(folder))
        fresh.sync()
        bad = [tip for tip in fresh.index.tips().values() if tip.problem]
        nodes = fresh.index.node_count()
        stale = _stale(instance, fresh)
        fresh.index.close()
    for tip in bad:
        yield Check("objects", ERROR, f"{tip.name}: {tip.problem}", "fetch it from a remote", True)
    yield Check("objects", OK, f"{nodes} nodes are what their hashes say")
    if stale and fix:
        instance.store.reindex()
        yield Check("index", OK, f"built anew: it was stale, {stale}")
    elif stale:
        yield Check("index", WARNING, f"it is stale: {stale}", "uwf cas reindex")


def _stale(instance: Instance, fresh: Store) -> str:
    """What the index says that isn't so, in a few words; empty where it is right."""
    from uwf_git.git.repository import Oid

    has, index = instance.store.repository.has, instance.store.index
    known, found = dict(index.blobs()), dict(fresh.index.blobs())
    lacking = len(found.keys() - known.keys())
    gone = sum(1 for node, blob in known.items() if found.get(node) != blob and not has(Oid(raw=blob)))
    commits = len(set(fresh.index.commit_ids()) - set(index.commit_ids()))
    folded = index.folded_threads() != fresh.index.folded_threads()
    parts = [f"{_counted(lacking, 'node')} missing"] if lacking else []
    parts += [f"{_counted(gone, 'node')} whose object is gone"] if gone else []
    parts += [f"{_counted(commits, 'commit')} missing"] if commits else []
    parts += ["other folded threads than the refs lead to"] if folded else []
    return ", ".join(parts)


def _sizes(instance: Instance) -> Iterator[Check]:
    from uwf_git.git.limits import ADVISED_BLOB, max_blob
    from uwf_git.git.repository import Oid

    repository = instance.store.repository
    at_most = max_blob(repository)
    largest = 0
    for node, blob in instance.store.index.blobs():
        if not repository.has(Oid(raw=blob)):
            continue  # a stale index, which is told elsewhere
        size = repository.size(Oid(raw=blob))
        largest = max(largest, size)
        if size > ADVISED_BLOB:
            status = ERROR if size > at_most else WARNING
            what = "more than forges take" if size > at_most else "more than forges like in one file"
            hint = "fork its thread before that step" if size > at_most else ""
            yield Check("sizes", status, f"node {node} has {size / MB:.1f} MB, {what}", hint)
    if largest <= ADVISED_BLOB:
        yield Check("sizes", OK, f"no node is larger than {max(1, round(largest / 1024))} KB")


def _leftovers(instance: Instance, fix: bool) -> Iterator[Check]:
    from uwf_git.store.maintenance import leftovers

    found = leftovers(instance.store.repository)
    if not found:
        return
    size = sum(path.stat().st_size for path in found) / MB
    if fix:
        for path in found:
            path.unlink(missing_ok=True)
        yield Check("leftovers", OK, f"removed {_counted(len(found), 'temporary file')}, {size:.1f} MB")
    else:
        message = f"{_counted(len(found), 'temporary file')}, {size:.1f} MB, from a git that was killed"
        yield Check("leftovers", WARNING, message, "uwf doctor --fix")


def _index(instance: Instance) -> Iterator[Check]:
    store = instance.store
    path = store.repository.private / "index.db"
    if not path.exists():
        yield Check("index", WARNING, "it can't be kept, so every command builds it anew", "check free space")
    yield Check("index", OK, f"{store.index.node_count()} nodes, {len(store.index.tips())} refs")


def _loose(instance: Instance) -> Iterator[Check]:
    objects = instance.store.repository.path / "objects"
    number = 0
    for folder in objects.iterdir():
        if len(folder.name) == 2:
            number += sum(1 for _ in folder.iterdir())
    if number > MANY_LOOSE:
        hint = "uwf gc"
        yield Check("loose objects", WARNING, f"{number}: a step gets slower with them", hint)
    else:
        yield Check("loose objects", OK, str(number))


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
    invocation.emit({"folded": folded, "before": was._asdict(), "after": now._asdict()}, _gc_text)


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


def _gc_text(value: Any) -> str:
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


@click.command(
    cls=Command,
    examples=(
        "uwf init           the default store",
        "uwf init --here    the repository around the current folder",
    ),
)
@click.option("--here", is_flag=True, help="Keep threads in the repository around the current folder.")
@click.pass_obj
def init(invocation: Invocation, here: bool) -> None:
    """Make a store. Doing it again changes nothing.

    The default store is also made by the first command that writes; a project's repository becomes a
    store by this alone. Only refs/uwf/*, objects and <git dir>/uwf are ever touched there.
    """
    from uwf_git.store.location import ROOT_VARIABLES, enclosing_repository
    from uwf_git.store.location import init as make

    location = invocation.location
    if here:
        git_dir = enclosing_repository(Path.cwd())
        if git_dir is None:
            raise NotFound(f"{Path.cwd()} is in no git repository", "make one first: git init")
        location = location._replace(git_dir=git_dir, here=True)
        named = "--root" if invocation.root_option else next(filter(os.environ.get, ROOT_VARIABLES), None)
        if named:
            invocation.warn(f"{named} names a storage root, so other commands use its store instead")
    repository = make(location)
    invocation.emit({"store": str(repository.path)}, lambda value: fields([("store", value["store"])]))
