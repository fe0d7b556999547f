"""Checking programs, configuration, store, index and leftovers on this machine, each with a hint.

Without `fix` nothing is touched. Leftovers are refs of ended threads, temporary files, the mode of `.env`, a
stale index; `sync.repair` repairs damage.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.api.exchange import Git, git_for, refs_of_project
from uwf_git.base import extensions, system
from uwf_git.base.errors import Invalid, RemoteFailed, StoreDamaged, UwfError
from uwf_git.base.text import counted
from uwf_git.config.policy import RUN, tighten
from uwf_git.config.read import check_config, load_config
from uwf_git.config.secrets import load_secrets
from uwf_git.config.settings import FILE, Config
from uwf_git.config.workflows import Known, check_names, together
from uwf_git.engine.performer import embedded
from uwf_git.format.ids import ThreadId
from uwf_git.git.config import ADVISED_BLOB, SET_IDENTITY
from uwf_git.git.database import files_of_loose_objects
from uwf_git.git.file_repair import has_head, mend_folders, mend_head
from uwf_git.git.fsync import refusal
from uwf_git.git.lockfiles import FOLDER as LOCKING
from uwf_git.git.program import git_program
from uwf_git.git.repository import PRIVATE, Oid
from uwf_git.sandbox.bubblewrap import find_sandbox
from uwf_git.sandbox.enclosing_step import require_person
from uwf_git.sandbox.limits import enforcement
from uwf_git.sandbox.programs import avoid_all, find_program
from uwf_git.store.history import relate
from uwf_git.store.index import Index
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.store.layout import (
    ARCHIVE,
    FOLDED,
    PAUSED,
    REMOTES,
    REMOVED,
    THREADS,
    is_local_ref,
    is_newer_ref,
    is_shared_ref,
    is_thread_ref,
    needs_thread,
    thread_of,
)
from uwf_git.store.location import Location
from uwf_git.store.maintenance import leftovers
from uwf_git.store.private import ROOM, Folders
from uwf_git.store.threads import DamagedThread
from uwf_git.store.witness import IF_RIGHT, removed_store
from uwf_git.store.witness_log import LOST
from uwf_git.sync.branches import lost_forks, settle_lost_forks
from uwf_git.sync.push import plan
from uwf_git.sync.repair import Repair
from uwf_git.verify.checks import ERROR as ERROR
from uwf_git.verify.checks import OK, WARNING, Check, hurt_check
from uwf_git.verify.damage import Damage, find_damage
from uwf_git.verify.replaced import replaced_objects
from uwf_git.workspaces.notes import Notes

MANY_LOOSE = 20_000
_ACCEPTS = "says that the store is as it should be"
MANY_ENDED = 5_000  # refs that every push has to hear of
MB = 1_000_000
FIX = "uwf doctor --fix"
_DRIVES = frozenset(("9p", "drvfs"))
"""The file systems by which WSL sees drives of Windows."""
SYNCING_GIT = (2, 36)  # the first that knows core.fsync


class Doctor(NamedTuple):
    """Checks one location. `fix` removes leftovers and repairs damage from `sources` and remotes with `git`;
    `quick` doesn't read every object, `accept` takes the heads for those of the user's log.
    `project` are the roles of the current folder's workflows."""

    location: Location
    fix: bool = False
    quick: bool = False
    project: Known | None = None
    sources: Sequence[str] = ()
    git: Callable[[Instance], Git] = git_for
    accept: bool = False
    place: Path | None = None

    def checks(self) -> Iterator[Check]:
        """Yield all checks. An error becomes a failed check; they end early if no store can be opened. Raises
        what a repair raises."""
        private = self.location.git_dir / PRIVATE
        avoid_all(private, Folders(private).all)  # before there is an instance
        yield from _guarded("versions", _versions())
        yield from _guarded("config", self._configuration())
        yield from _guarded("agents", self._agents())
        opened: list[Instance] = []
        yield from _guarded("store", self._store(opened))
        if self.fix and not self.quick:
            for instance in opened:
                yield from Repair(instance, self.git(instance), self.sources).run()
            opened = [self._opened(instance.location) for instance in opened]  # libgit2 keeps packs open
        for instance in opened:
            try:
                instance.store.repository.refs()
            except StoreDamaged as error:  # without them nothing is known of the rest
                yield Check("refs", ERROR, error.message, error.hint, True)
                continue
            yield from _guarded("refs", self._refs(instance))
            yield from _guarded("witness", self._witness(instance))
            yield from _guarded("archives", _archives(instance))
            yield from _guarded("remotes", self._remotes(instance))
            if not self.quick:
                yield from _guarded("objects", self._objects(instance))
            yield from _guarded("branches", _branches(instance, self.fix))
            yield from _guarded("threads", _threads(instance))
            yield from _guarded("workflows", _workflows(instance))
            yield from _guarded("extensions", _of_extensions(instance))
            yield from _guarded("config", self._names(instance))
            if not self.quick:
                yield from _guarded("sizes", _sizes(instance))
            yield from _guarded("index", _index(instance))
            yield from _guarded("loose objects", _loose_objects(instance))
            yield from _guarded("leftovers", self._leftovers(instance))
            if self._config() is not None:  # else it was reported
                yield from _guarded("worktrees", _worktrees(instance, self.fix, self.place))

    def _opened(self, location: Location) -> Instance:
        instance = Instance(location)
        instance.threads.place = self.place
        return instance

    def _configuration(self) -> Iterator[Check]:
        root = self.location.root
        yield Check("root", OK, str(root) if root.is_dir() else f"{root}, not made yet")
        problems = check_config(root)
        for problem in problems:
            where = f"{root / FILE}:{problem.line}:{problem.column}"
            yield Check("config", ERROR, f"{where}: {problem.message}", problem.hint)
        if not problems:
            there = (root / FILE).exists()
            yield Check("config", OK, FILE if there else f"no {FILE}; uwf-rehearse makes up the answers")
        secrets = root / ".env"
        if secrets.exists() and not system.is_private(secrets.stat()):
            if self.fix:
                secrets.chmod(0o600)
                yield Check(".env", OK, "now readable by you alone")
            else:
                yield Check(".env", WARNING, f"{secrets} is readable by others", f"chmod 600 {secrets}")
        if (config := self._config()) is not None:
            yield from _keys(root, config)

    def _config(self) -> Config | None:
        try:
            return load_config(self.location.root)
        except Invalid:
            return None

    def _agents(self) -> Iterator[Check]:
        config = self._config()
        if config is None:
            return
        for folder in config.workflow_paths:
            if not folder.is_dir():
                message = f"workflowPaths: {folder} is not a folder"
                yield Check("config", WARNING, message, f"create it, or remove it of {FILE}")
        for agent in config.agents.values():
            if not agent.command or embedded(agent.command) is not None:
                continue
            yield _program("agents", agent.alias, agent.command, ERROR, "is not on PATH")
        yield Check("agents", OK, f"default: {config.default_agent or 'uwf-rehearse'}")
        yield from self._commands(config)
        for event, command in config.hooks.commands.items():
            yield _program("hooks", event, command[0], WARNING, "is not a program that can be run")

    def _commands(self, config: Config) -> Iterator[Check]:
        limited = any(any(agent.limits.given()) for agent in config.agents.values())
        policies = [config.tools, *(tighten(config.tools, agent.tools) for agent in config.agents.values())]
        allowed = [policy for policy in policies if policy.permits(RUN)]
        if allowed or limited:
            yield Check("limits", OK, f"what commands use is {enforcement()}")
        for network in sorted({bool(policy.network) for policy in allowed}):
            some = [policy for policy in allowed if bool(policy.network) == network]
            sandbox = find_sandbox(os.environ, network=network)
            if sandbox.program is not None:
                with_ = "with" if network else "without"
                yield Check("sandbox", OK, f"commands are allowed, and confined {with_} network")
            elif all(policy.allow_unconfined for policy in some):
                message = f"commands run without a sandbox and reach whatever you can: {sandbox.reason}"
                yield Check("sandbox", WARNING, message, sandbox.remedy)
            else:
                message = f"commands are allowed, but none will run: {sandbox.reason}"
                yield Check("sandbox", WARNING, message, sandbox.ways_out)

    def _names(self, instance: Instance) -> Iterator[Check]:
        root = self.location.root
        if self._config() is None:
            return
        for problem in check_names(root, together(self.project or {}, instance.known_roles())):
            where = f"{root / FILE}:{problem.line}:{problem.column}"
            yield Check("config", WARNING, f"{where}: {problem.message}", problem.hint)

    def _store(self, opened: list[Instance]) -> Iterator[Check]:
        location = self.location
        if not location.git_dir.exists():
            # A root's own store is made by the first command that writes.
            status = ERROR if location.here else WARNING
            if self.accept:
                require_person(_ACCEPTS, location.root, os.environ, location.here)
            gone = removed_store(location.git_dir, os.environ, self.accept)
            message = f"no store at {location.git_dir}"
            if gone and self.accept:
                yield Check("witness", OK, f"accepted: {gone}")
            elif gone:
                yield Check("store", status, f"{message}: {gone}", IF_RIGHT)
                return
            yield Check("store", status, message, "uwf init")
            return
        if self.fix and (folders := mend_folders(location.git_dir)):
            yield Check(
                "repair", OK, f"made the folder {' and '.join(folders)} of the store again: it was gone"
            )
        if self.fix and not location.here and mend_head(location.git_dir):
            yield Check("repair", OK, "wrote HEAD of the store anew: it held nothing that git can read")
        if not has_head(location.git_dir):
            hint = f"write it again: {location.git_dir / 'HEAD'}" if location.here else FIX
            yield Check("store", ERROR, "git cannot open it: its HEAD holds no ref", hint, True)
        opened.append(instance := self._opened(location))
        private, path = instance.store.repository.private, instance.store.repository.path
        marker = private / "format"
        version = marker.read_text(encoding="utf-8").strip() if marker.is_file() else "none yet"
        kind = "the project's own" if location.here else "the root's"
        yield Check("store", OK, f"{location.git_dir}, {kind}, format {version}")
        if system.is_in_windows() and system.file_system(location.git_dir) in _DRIVES:
            message = "it is on a drive of Windows, where neither locks nor syncs are those of Linux"
            hint = "keep it in the files of WSL, as ~/.uncaged/workflow, and fetch it there: uwf pull"
            yield Check("store", WARNING, message, hint)
        if missing := instance.store.repository.config.missing_identity:
            yield Check("identity", WARNING, missing, SET_IDENTITY)
        yield from _writing(path, private)
        yield from self._locks(instance)

    def _locks(self, instance: Instance) -> Iterator[Check]:
        lockfiles = instance.store.repository.lockfiles
        if self.fix:
            for removed in lockfiles.remove_stale(thorough=True):
                yield Check("locks", OK, f"removed {removed}: who made it is gone")
        for lock in lockfiles.locks():
            if lock.is_left:
                yield Check("locks", WARNING, f"{lock.told}, was left by somebody who is gone", FIX)
            else:
                yield Check("locks", WARNING, f"{lock.told}, is another git's", lock.hint)

    def _refs(self, instance: Instance) -> Iterator[Check]:
        repository = instance.store.repository
        delete = f"{repository.by_git} update-ref -d"
        for name in repository.broken_refs():
            yield Check("refs", ERROR, f"{name} holds no object id", FIX, True)
        for name, oid in instance.store.missed().items():
            message = f"{name} is gone, though no uwf deleted it: it was last seen at {str(oid)[:10]}"
            hint = f"restore it: {FIX}" + (", without --quick" if self.fix and self.quick else "")
            yield Check("refs", ERROR, message, hint, True)
        refs = repository.refs(without=REMOTES)
        folded: set[str] = set(instance.store.folded_threads())
        for name, tip in instance.store.index.tips(FOLDED).items():
            if tip.problem:
                yield Check("refs", ERROR, f"{name}: {tip.problem}", FIX, True)
        ended = {name.removeprefix(ARCHIVE) for name in refs if name.startswith(ARCHIVE)} | folded
        for name, oid in refs.items():
            if name.startswith(THREADS) and name.removeprefix(THREADS) in ended:
                yield self._left_over(instance, name, oid)
        known = {name.removeprefix(prefix) for prefix in (THREADS, ARCHIVE) for name in refs} | folded
        newer: list[str] = []
        for name in refs:
            if (
                name.startswith(REMOVED)
                and {THREADS + thread_of(name), ARCHIVE + thread_of(name)} & refs.keys()
            ):
                message = (
                    f"thread {thread_of(name)} is here, and said to be removed: its removal was interrupted"
                )
                yield Check("refs", WARNING, message, f"uwf thread restore {thread_of(name)}")
            elif needs_thread(name) and thread_of(name) not in known:
                yield Check("refs", WARNING, f"{name} belongs to no thread", f"{delete} {name}")
            elif name.startswith(PAUSED) and thread_of(name) in ended:
                yield self._of_ended(instance, name, oid)
            elif is_newer_ref(name):
                newer.append(name)
            elif not is_local_ref(name) and not is_shared_ref(name):
                message = f"{name} has no name that a uwf gives, so that nothing lists it, and nobody gets it"
                yield Check("refs", WARNING, message, f"if you don't need it: {delete} {name}")
        for finding in replaced_objects(repository, refs, not self.location.here):
            message, _, hint = finding.message.partition(": ")
            yield Check("refs", ERROR, message, hint, True)
        if newer:
            message = f"{counted(len(newer), 'ref')} made by a newer uwf, such as {newer[0]}"
            yield Check("refs", WARNING, message, "upgrade uwf-git to see what they are")
        yield Check("refs", OK, f"{len(refs)} under refs/uwf")

    def _witness(self, instance: Instance) -> Iterator[Check]:
        witness = instance.witness
        if self.accept:
            instance.require_person(_ACCEPTS)
            count = witness.accept()
            if not witness.failure:
                yield Check("witness", OK, f"accepted {counted(count, 'head')} as this store's")
        missed = instance.store.missed()
        doubts = witness.check()
        for doubt in doubts:
            if doubt.ref in missed:  # said by another check
                continue
            status = ERROR if doubt.kind == LOST else WARNING
            hint = witness.ways_out(doubt) if doubt.kind == LOST else ""
            yield Check("witness", status, doubt.message, hint)
        if witness.problem:
            hint = "make the folder writable, or set XDG_STATE_HOME"
            yield Check("witness", WARNING, witness.problem, hint)
        elif not doubts and not self.accept:
            yield Check("witness", OK, "every head is one that this user knows")

    def _left_over(self, instance: Instance, name: str, active: Oid) -> Check:
        head = instance.threads.head(ThreadId(name.removeprefix(THREADS)))
        relation = relate(instance.store, active, head.commit)
        if relation is None or relation.ours:
            last = instance.store.index_commit(active).node
            delete = f"{instance.store.repository.by_git} update-ref -d {name}"
            hint = f"keep them with: uwf thread fork {last}, then: {delete}"
            return Check("refs", WARNING, f"{name} has steps after its thread's end", hint)
        return self._of_ended(instance, name, active)

    def _of_ended(self, instance: Instance, name: str, oid: Oid) -> Check:
        if not self.fix:
            return Check("refs", WARNING, f"{name} is left over: its thread has ended", FIX)
        instance.store.repository.delete_ref(name, oid)
        return Check("refs", OK, f"removed {name}: its thread has ended")

    def _remotes(self, instance: Instance) -> Iterator[Check]:
        for remote in instance.remotes.all():
            meant = refs_of_project(instance, remote).meant
            missing = {name for name in plan(instance, remote).updates if meant is None or name in meant}
            threads = {name.rsplit("/", 1)[1] for name in missing if is_thread_ref(name)}
            others = sum(1 for name in missing if not is_thread_ref(name))
            parts = [counted(len(threads), "thread")] if threads else []
            parts += [counted(others, "other ref")] if others else []
            if parts:
                verb = "is" if len(threads) + others == 1 else "are"
                message = f"{' and '.join(parts)} {verb} not on {remote.name}, or not as here"
                yield Check("remotes", WARNING, message, f"uwf push {remote.name}")
            else:
                what = "all" if meant is None else "all of this project"
                yield Check("remotes", OK, f"{what} is on {remote.name}, as far as was last seen")

    def _objects(self, instance: Instance) -> Iterator[Check]:
        damage = find_damage(instance.store, self.location.here)
        yield from _damage(damage)
        with tempfile.TemporaryDirectory(prefix="uwf-doctor-") as folder:
            fresh = Store(instance.store.repository)
            fresh.index.close()
            fresh.index = Index(Path(folder))
            fresh.sync()
            known = {hurt.ref for hurt in damage.hurt}
            bad = [tip for tip in fresh.index.tips().values() if tip.problem and tip.name not in known]
            nodes = fresh.index.node_count()
            stale = _stale(instance.store, fresh.index)
            fresh.index.close()
        for tip in bad:
            yield Check("objects", ERROR, f"{tip.name}: {tip.problem}", "see: uwf verify", True)
        yield Check("objects", OK, f"{nodes} nodes are what their hashes say")
        if stale and self.fix:
            instance.store.reindex()
            yield Check("index", OK, f"built anew: it was stale, {stale}")
        elif stale:
            yield Check("index", WARNING, f"it is stale: {stale}", "uwf cas reindex")

    def _leftovers(self, instance: Instance) -> Iterator[Check]:
        paths = leftovers(instance.store.repository)
        if not paths:
            return
        what = f"{counted(len(paths), 'temporary file')}, {sum(item.stat().st_size for item in paths) / MB:.1f} MB"
        if self.fix:
            for path in paths:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            yield Check("leftovers", OK, f"removed {what}")
        else:
            yield Check("leftovers", WARNING, f"{what}, from a git that was killed", FIX)


def _writing(path: Path, private: Path) -> Iterator[Check]:
    objects, refs = path / "objects", path / "refs"
    mine = [item for item in sorted(private.iterdir()) if item.is_dir()] if private.is_dir() else []
    mine = [item for item in mine if item.name != LOCKING]  # when it was changed last means something
    below = sorted(Path(folder) for folder, _, _ in os.walk(refs / "uwf"))[1:]
    full: OSError | None = None
    for folder in (path, objects, objects / "pack", refs, refs / "uwf", *below, private, *mine):
        error = refusal(folder, ROOM if folder == private else 1) if folder.is_dir() else None
        if error is not None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = error
        elif error is not None:
            hint = "check its owner and permissions, and that its disk isn't mounted read-only"
            yield Check("store", ERROR, f"nothing can be written in {folder}: {error.strerror}", hint)
    if full is not None:
        message = (
            f"no agent would be asked, since {ROOM // 1024} KiB for its answer cannot be had on the disk of"
        )
        yield Check("store", ERROR, f"{message} {path}: {full.strerror}", "free some space there")


def _program(check: str, user: str, program: str, status: str, absence: str) -> Check:
    if path := shutil.which(program):
        return Check(check, OK, f"{user}: {path}")
    hint = "install it, or name it with its whole path"
    return Check(check, status, f"{user}: {program} {absence}", hint)


def _guarded(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    try:
        yield from checks
    except UwfError as error:
        yield Check(name, ERROR, error.message, error.hint, isinstance(error, StoreDamaged))
    except OSError as error:
        yield Check(name, ERROR, str(error))


def _versions() -> Iterator[Check]:
    from importlib.metadata import version

    from uwf_git.base.version import VERSION
    from uwf_git.git.libgit2 import LIBGIT2_VERSION

    yield Check("uwf", OK, f"{VERSION} on Python {platform.python_version()}")
    yield Check("libgit2", OK, f"{LIBGIT2_VERSION} by pygit2 {version('pygit2')}")
    try:
        program = [git_program(), "--version"]
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=10)
        git = done.stdout.strip().removeprefix("git version ")
        if tuple(map(int, re.findall(r"\d+", git)[:2])) < SYNCING_GIT:
            message = (
                f"{git} doesn't sync all that it writes, so a power cut can lose what was pulled or packed"
            )
            yield Check("git", WARNING, message, "install git 2.36 or newer")
        else:
            yield Check("git", OK, git)
    except (OSError, subprocess.TimeoutExpired, RemoteFailed):
        hint = "sharing and packing need it; all else works"
        yield Check("git", WARNING, "not on PATH, or only in the project", hint)


def _keys(root: Path, config: Config) -> Iterator[Check]:
    for provider in config.providers.values():
        if provider.api_key:
            yield Check("keys", WARNING, f"{FILE} holds the key of provider {provider.name}", provider.advice)
        name = provider.api_key_env
        if name and not load_secrets(root, config, os.environ).unread().get(name):
            message = f"{name} is set neither in the environment nor in .env"
            yield Check("keys", WARNING, message, "uwf setup")
    for name, source in config.secret_sources.items():
        if "/" not in source.command[0] and find_program(source.command[0]) is None:
            message = f"secrets.{name}: {source.command[0]} is not on PATH"
            yield Check("keys", WARNING, message, "install it, or name it with its whole path")


def _archives(instance: Instance) -> Iterator[Check]:
    ended = len(instance.store.repository.ref_names(ARCHIVE))
    if ended > MANY_ENDED:
        message = f"{ended} threads that have ended stand in a ref each, which makes pushes slow"
        yield Check("archives", WARNING, message, "uwf gc --fold-before 30d")


def _branches(instance: Instance, fix: bool) -> Iterator[Check]:
    if fix and (ended := settle_lost_forks(instance)):
        yield Check("branches", OK, f"ended {len(ended)} of lost forks, such as {ended[0]}")
    for lost in lost_forks(instance):
        message = (
            f"nothing waits any more for {len(lost.branches)} of the branches, such as {lost.branches[0]}"
        )
        yield Check("branches", WARNING, message, FIX)


def _threads(instance: Instance) -> Iterator[Check]:
    heads = instance.threads.all(archived=True)
    sound = 0
    for head in heads:
        if isinstance(head, DamagedThread):
            hint = f"{FIX}, or give it up: uwf thread rm {head.thread} --yes"
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
            version = instance.registry.current(name)
            workflow = instance.registry.workflow(version.hash)
            if workflow.code is not None:
                instance.registry.code(workflow, Oid(hex=version.commit))
                for past in {item.version.hash for item in instance.registry.history(name)}:
                    if instance.registry.workflow(past).code is not None:
                        instance.registry.code_of(past)
        except UwfError as error:
            yield Check("workflows", ERROR, f"{name}: {error.message}", error.hint, True)
    yield Check("workflows", OK, f"{len(names)} registered")


def _worktrees(instance: Instance, fix: bool, place: Path | None) -> Iterator[Check]:
    if Notes(instance.store.repository.private).any():
        from uwf_git.api.worktree_checks import lacking_checks, worktree_checks

        yield from worktree_checks(instance, fix)
        if place is not None:
            yield from lacking_checks(instance, place)


def _of_extensions(instance: Instance) -> Iterator[Check]:
    for name, where in extensions.checks():
        yield from _guarded(name, extensions.load(where)(instance))


def _damage(damage: Damage) -> Iterator[Check]:
    for hurt in damage.hurt:
        yield hurt_check("objects", hurt, damage.objects, FIX)
    if damage.objects and not damage.hurt:
        number = counted(len(damage.objects), "object")
        yield Check("objects", ERROR, f"{number} cannot be read of what was fetched from remotes", FIX, True)
    for path in (*damage.packs, *(pack.with_suffix(".idx") for pack in damage.indexes)):
        yield Check("objects", ERROR, f"{path} is not what its checksum says", FIX, True)
    if damage.stray:
        number = counted(len(damage.stray), "damaged object")
        yield Check("objects", ERROR, f"{number} that nothing refers to, from a crash", FIX, True)
    for path in damage.derived:
        yield Check("objects", WARNING, f"{path} is not what its checksum says", FIX)


def _stale(store: Store, fresh: Index) -> str:
    has, index = store.repository.has, store.index
    known, contents = dict(index.blobs()), dict(fresh.blobs())
    lacking = len(contents.keys() - known.keys())
    gone = sum(1 for node, blob in known.items() if contents.get(node) != blob and not has(Oid(raw=blob)))
    commits = len(set(fresh.commit_ids()) - set(index.commit_ids()))
    parts = [f"{counted(lacking, 'node')} missing"] if lacking else []
    parts += [f"{counted(gone, 'node')} whose object is gone"] if gone else []
    parts += [f"{counted(commits, 'commit')} missing"] if commits else []
    if index.folded_threads() != fresh.folded_threads():
        parts.append("other folded threads than the refs lead to")
    return ", ".join(parts)


def _sizes(instance: Instance) -> Iterator[Check]:
    repository = instance.store.repository
    at_most = repository.config.max_blob
    largest = 0
    for node, blob in instance.store.index.blobs():
        if not repository.has(Oid(raw=blob)):
            continue  # a stale index; another check reports it
        try:
            size = repository.size(Oid(raw=blob))
        except StoreDamaged:
            continue  # as is this
        largest = max(largest, size)
        if size <= ADVISED_BLOB:
            continue
        what = f"node {node} has {size / MB:.1f} MB, more than forges"
        if size > at_most:
            yield Check("sizes", ERROR, f"{what} take", "fork its thread before that step")
        else:
            yield Check("sizes", WARNING, f"{what} like in one file")
    if largest <= ADVISED_BLOB:
        yield Check("sizes", OK, f"no node is larger than {max(1, round(largest / 1024))} KB")


def _index(instance: Instance) -> Iterator[Check]:
    index = instance.store.index
    if not (instance.store.repository.private / "index.db").exists():
        yield Check(
            "index", WARNING, "it cannot be kept, so every command builds it anew", "check free space"
        )
    yield Check("index", OK, f"{index.node_count()} nodes, {len(index.tips())} refs")


def _loose_objects(instance: Instance) -> Iterator[Check]:
    number = sum(1 for _ in files_of_loose_objects(instance.store.repository.path / "objects"))
    if number > MANY_LOOSE:
        yield Check("loose objects", WARNING, f"{number}: a step gets slower with them", "uwf gc")
    else:
        yield Check("loose objects", OK, str(number))
