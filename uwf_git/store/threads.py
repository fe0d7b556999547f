"""Threads: one ref each, one commit per step.

    refs/uwf/threads/<ULID>    the head of an active thread
    refs/uwf/archive/<ULID>    an annotated tag on the last head; it wins if both exist
    refs/uwf/folded/<YYYY-MM>  old archives; see `archives`
    refs/uwf/forks/<ULID>      a tag on the last commit shared with the thread it diverged or was forked from
    refs/uwf/paused/<ULID>     a tag that pauses an active thread

The id is nowhere inside: a fork is one ref on an existing commit.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from uwf_git.base import log
from uwf_git.base.errors import Busy, HeadMoved, Invalid, NotFound, StoreDamaged, UnknownWord, Usage, UwfError
from uwf_git.format.endings import COMPLETED, KILLED
from uwf_git.format.ids import (
    Hash,
    ThreadId,
    branch_id,
    branch_index,
    by_age,
    complete,
    is_thread_id,
    new_thread_id,
    parse_thread_id,
    time_of,
)
from uwf_git.format.kinds import SUBWORKFLOW, Start, StepContext, parse_workflow, title_of
from uwf_git.format.types import END, USER
from uwf_git.git.objects import Person, Stamp
from uwf_git.git.repository import BLOB_MODE, TREE_MODE, Entry, Oid
from uwf_git.store import layout
from uwf_git.store.history import ConcurrentCommit, Head, Histories, ancestry, forked_at, is_branch, start_of
from uwf_git.store.index import ArchiveRow, CommitRow, is_generated, title_after
from uwf_git.store.new_record import ENDS, FORKS, STARTS, THREADS, NewRecord
from uwf_git.store.nodes import UnionSet
from uwf_git.store.private import Sessions
from uwf_git.workflow.turn import begins_threads, gathers_threads, is_engines, is_made_alike

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store
    from uwf_git.store.projects import Projects

MOST_PARENTS = 499
"""The branches that a commit may join, besides its first parent."""
NEWEST = "@"
"""What stands for the newest thread."""


class DamagedThread(NamedTuple):
    """An unreadable thread, and why."""

    thread: ThreadId
    problem: str

    @classmethod
    def by(cls, thread: ThreadId, error: UwfError) -> Self:
        """Return the thread that an error is about."""
        return cls(thread, f"{error.message}; {error.hint}")


class UnreferencedStep(NamedTuple):
    """A step's commit without a ref, and its StepNode."""

    commit: Oid
    node: Hash
    parents: tuple[Oid, ...]
    when: int


class _EndTag(NamedTuple):
    """The tag of a thread's end that was written with its last step, so that both are in one pack."""

    thread: ThreadId
    commit: Oid
    tag: Oid


class _Beginning(NamedTuple):
    """A StartNode's commit without a ref. `author` is a name and an address, `project` a label or ""."""

    commit: Oid
    node: Hash
    parents: tuple[Oid, ...]
    when: int
    author: str
    project: str


class Threads(Histories):
    """The threads of one store."""

    def __init__(self, store: "Store") -> None:
        super().__init__(store)
        self._repository = store.repository
        self._workflow_files: dict[Oid, frozenset[Hash]] = {}
        self._forks: dict[tuple[ThreadId, Hash], tuple[Oid, int]] = {}
        self._end: _EndTag | None = None
        self.place: Path | None = None

    @cached_property
    def projects(self) -> "Projects":
        """The projects of the threads, and the one around `place`, which is meant if no thread is named."""
        from uwf_git.store.projects import Projects, repository_at

        projects = Projects(self._repository.private)
        projects.here = None if self.place is None else repository_at(self.place)
        return projects

    # Finding

    def find(self, text: str) -> ThreadId:
        """Return the thread that a text names, active or ended: its id; at least four first or last
        characters, ignoring case; `@` for the newest, `@2` for the one before, without threads started by
        other threads here. Raises NotFound, Usage."""
        wanted = text.strip()
        if wanted.startswith(NEWEST):
            return self._newest(wanted)
        if len(wanted) == 26:
            thread = parse_thread_id(wanted)
            if not self.exists(thread):
                if self._repository.ref(layout.REMOVED + thread) is not None:
                    from uwf_git.store import removed

                    if rule := removed.expired(self._repository).get(thread):
                        raise NotFound(
                            f"thread {thread} was removed by the rule {rule['rule']}", "uwf expire --removed"
                        )
                    raise NotFound(f"thread {thread} was removed here", f"uwf thread restore {thread}")
                raise NotFound(f"no thread {thread}", "see the ids with: uwf thread list --all")
            return thread
        if len(wanted) < 4:
            raise NotFound(f"no thread {text!r}", "give at least 4 characters of its id, or @ for the newest")
        try:
            return ThreadId(complete(wanted, self.ids(), "thread", ends=True))
        except NotFound as error:
            hint = f"{error.hint}; " if error.hint else ""
            raise NotFound(error.message, f"{hint}see the ids with: uwf thread list --all") from None

    def _newest(self, text: str) -> ThreadId:
        number = text.removeprefix(NEWEST) or "1"
        if not (number.isascii() and number.isdigit()) or int(number[:9]) < 1:
            raise Usage(f"{text!r} is not a thread", "@ is the newest, @2 the one before it")
        count = 0
        for count, thread in enumerate(self.newest(), 1):
            if count == int(number[:9]):
                return thread
        of, hint = "", "see: uwf thread list --all"
        if (here := self.projects.here) is not None:
            of, hint = f" of project {here.name}", f"{hint}; --all-projects counts all"
        raise NotFound(f"no thread {text}: there are {count}{of}", hint)

    def newest(self) -> Iterator[ThreadId]:
        """Yield the threads of `@`, `@2` and so on: those of the project that no other thread began."""
        sessions = Sessions(self._repository.private)
        for thread in sorted(self.ids(), reverse=True):
            if not sessions.owner(SUBWORKFLOW, thread) and self._counts(thread):
                yield thread

    def _counts(self, thread: ThreadId) -> bool:
        with contextlib.suppress(UwfError):  # a damaged thread is listed too
            head = self.head(thread)
            return self.is_meant(head) and self.fork_of(head) is None
        return True

    def fork_of(self, head: Head) -> tuple[Oid, int] | None:
        """Return the commit of the fork that a thread is a branch of, and its index there. None for other threads, and
        for forks of branches, which no join waits for."""
        start = head.row.start
        if start is None or not is_branch(self._store, start):
            return None
        if (place := self._forks.get((head.thread, start))) is not None:
            return place
        for row in self._store.index.commits_of(start):
            if row.kind == "start" and row.merged is not None:
                fork = self._store.index_commit(Oid(raw=row.merged))
                index = branch_index(fork.oid.hex(), fork.time, head.thread)
                if index is not None and begins_threads(fork.role):
                    self._forks[head.thread, start] = Oid(raw=fork.oid), index
                    return self._forks[head.thread, start]
        return None

    def end_tag(self, head: Head) -> Oid | None:
        """Return the tag that ended a thread, written again if it is folded and gone; None for an active thread. Raises
        StoreDamaged."""
        if head.archive is None:
            return None
        tag = Oid(raw=head.archive.oid)
        folded = self._store.folded(head.thread)
        if not self._repository.has(tag) and folded is not None:
            from uwf_git.store.archives import tag_again  # which only folded threads need

            tag_again(self._repository, folded.ref, head.thread)
        return tag

    def exists(self, thread: ThreadId) -> bool:
        return self._tips(thread) != (None, None) or self._store.folded(thread) is not None

    def has_ended(self, thread: ThreadId) -> bool:
        return self._tips(thread)[1] is not None or self._store.folded(thread) is not None

    def is_paused(self, thread: ThreadId) -> bool:
        return self._repository.ref(layout.PAUSED + thread) is not None

    def ids(self) -> set[ThreadId]:
        return self._ids_of_refs() | self._store.folded_threads()

    def _ids_of_refs(self, apart_from: Set[str] = frozenset()) -> set[ThreadId]:
        threads: set[ThreadId] = set()
        for prefix in (layout.THREADS, layout.ARCHIVE):
            refs = set(self._repository.ref_names(prefix)) - apart_from
            names = (name.removeprefix(prefix) for name in refs)
            threads.update(ThreadId(name) for name in names if is_thread_id(name))
        return threads

    def head(self, thread: ThreadId) -> Head:
        """Return a thread's head. Raises NotFound, StoreDamaged."""
        active, tag = self._tips(thread)
        if tag is None and (folded := self._store.folded(thread)):
            tag = Oid(raw=folded.tag)
        archive = self._store.index_tag(tag) if tag else None
        commit = Oid(raw=archive.target) if archive else active
        if commit is None:
            raise NotFound(f"no thread {thread}", "see the ids with: uwf thread list --all")
        return self._head(thread, commit, archive)

    def heads(self, threads: Sequence[ThreadId]) -> dict[ThreadId, Head]:
        """Return the heads of those of many threads that are here. Raises StoreDamaged."""
        named = self._repository.refs_named
        active = named([layout.THREADS + thread for thread in threads])
        tags = named([layout.ARCHIVE + thread for thread in threads])
        folded = self._store.folded_among([item for item in threads if layout.ARCHIVE + item not in tags])
        at = {thread: oid for thread in threads if (oid := active.get(layout.THREADS + thread))}
        ends = {thread: oid for thread in threads if (oid := tags.get(layout.ARCHIVE + thread))}
        ends.update({thread: Oid(raw=row.tag) for thread, row in folded.items()})
        archives = self._store.index.archives_among([tag.raw for tag in ends.values()])
        commits = [oid.raw for oid in at.values()] + [archive.target for archive in archives.values()]
        rows = self._store.index.commits_among(commits)
        heads: dict[ThreadId, Head] = {}
        for thread in threads:
            tag = ends.get(thread)
            if tag is None and thread not in at:
                continue
            archive = (archives.get(tag.raw) or self._store.index_tag(tag)) if tag else None
            commit = Oid(raw=archive.target) if archive else at[thread]
            heads[thread] = self._head(thread, commit, archive, rows.get(commit.raw))
        return heads

    def _head(
        self, thread: ThreadId, commit: Oid, archive: ArchiveRow | None, row: CommitRow | None = None
    ) -> Head:
        row = row or self._store.index_commit(commit)
        if row.kind not in ("start", "step"):
            raise self._misplaced(thread, row)
        return Head(thread, commit, row, archive, self._forked(thread, row, archive))

    def _misplaced(self, thread: ThreadId, row: CommitRow) -> UwfError:
        """Return what is wrong with a thread whose head is no step."""
        commit = Oid(raw=row.oid)
        if record := layout.newer_record(self._repository.commit(commit).message):
            message = f"thread {thread} has commit {commit} with {record}, which this uwf does not know"
            return UnknownWord(message, UnknownWord.WAY_OUT)
        return StoreDamaged(
            f"thread {thread} points at commit {commit}, which is not a step", "restore its ref"
        )

    def active_head(self, thread: ThreadId) -> Head:
        """Return an active thread's head. Raises Invalid if it has ended."""
        head = self.head(thread)
        if head.archive:
            raise Invalid(f"thread {thread} is {head.archive.status}", self.way_on(head))
        return head

    def way_on(self, head: Head) -> str:
        """Return the hint for a finished thread."""
        with contextlib.suppress(UwfError):
            if (
                head.row.workflow
                and parse_workflow(self._store.get(head.row.workflow).payload).resume is not None
            ):
                return f"go on from it with: uwf thread resume {head.thread} -m TEXT"
        return fork_hint(head)

    def all(self, archived: bool = False) -> list[Head | DamagedThread]:
        """Return the active threads, or all, newest id first, including Damaged ones. Reads no history."""
        self._store.sync()
        index = self._store.index
        tags = index.archives()
        heads: dict[ThreadId, Head | DamagedThread] = {}
        names: set[str] = set()
        for prefix in (layout.THREADS, layout.ARCHIVE):  # the archive, being second, wins
            for tip, row in index.tips_with_commits(prefix):
                thread, tag = ThreadId(tip.name.removeprefix(prefix)), tags.get(tip.oid)
                names.add(tip.name)
                if not is_thread_id(thread):
                    continue
                if row is None or tip.tip is None or (prefix == layout.ARCHIVE and tag is None):
                    if now := self._now(thread, tip.problem):  # it may have moved since the refs were read
                        heads[thread] = now
                elif row.kind not in ("start", "step"):
                    heads[thread] = DamagedThread.by(thread, self._misplaced(thread, row))
                else:
                    heads[thread] = Head(thread, Oid(raw=tip.tip), row, tag, self._forked(thread, row, tag))
        folded = index.folded_threads()
        for thread in self._ids_of_refs(apart_from=names) - heads.keys() - folded:
            if now := self._now(thread):  # it began since then
                heads[thread] = now
        for thread in heads.keys() & folded:
            if layout.ARCHIVE + thread not in names:
                del heads[thread]
        for thread, head in self._folded(damaged=not archived).items():
            heads.setdefault(thread, head)
        wanted = [h for h in heads.values() if archived or isinstance(h, DamagedThread) or h.archive is None]
        return sorted(wanted, key=lambda head: head.thread, reverse=True)

    def meant(self, archived: bool = False) -> list[Head | DamagedThread]:
        """As `all`, without threads of other projects."""
        return [head for head in self.all(archived) if self.is_meant(head)]

    def is_meant(self, head: Head | DamagedThread) -> bool:
        """Return whether a thread is of the project. A damaged one is, since its project isn't known."""
        return isinstance(head, DamagedThread) or self.projects.is_here(head)

    def _forked(self, thread: ThreadId, row: CommitRow, archive: ArchiveRow | None) -> int:
        """Return the `forked` of a head. Only a thread younger than its last step can be a fork without own
        steps."""
        return forked_at(self._store, thread) if archive is None and time_of(thread) > row.time else 0

    def _now(self, thread: ThreadId, problem: str | None = None) -> Head | DamagedThread | None:
        if problem:
            return DamagedThread(thread, problem)
        try:
            return self.head(thread)
        except NotFound:
            return None
        except UnknownWord as error:
            return DamagedThread.by(thread, error)
        except StoreDamaged:
            return DamagedThread(thread, "its ref cannot be read")

    def _folded(self, damaged: bool) -> dict[ThreadId, Head | DamagedThread]:
        heads: dict[ThreadId, Head | DamagedThread] = {}
        here = self._store.folded_threads()
        for folded, tag, row in self._store.index.folded_heads(damaged):
            if folded.thread not in here:
                continue  # it was removed here
            if folded.problem or tag is None or row is None:
                problem = folded.problem or "its fold points at something that is not a step"
                heads[folded.thread] = DamagedThread(folded.thread, problem)
            elif row.kind not in ("start", "step"):
                heads[folded.thread] = DamagedThread.by(folded.thread, self._misplaced(folded.thread, row))
            else:
                heads[folded.thread] = Head(folded.thread, Oid(raw=tag.target), row, tag)
        return heads

    def _tips(self, thread: ThreadId) -> tuple[Oid | None, Oid | None]:
        names = layout.THREADS + thread, layout.ARCHIVE + thread
        oids = self._repository.refs_named(names)
        return oids.get(names[0]), oids.get(names[1])

    def origin(self, thread: ThreadId) -> Oid | None:
        """Return the head of the conversation or run that a thread was started from, else None."""
        start = start_of(self._store, self.head(thread).commit)
        if start.merged is None or is_branch(self._store, start.node):
            return None
        return Oid(raw=start.merged)

    def ending_with(self, last: Hash | Oid) -> ThreadId | None:
        """Return the thread that ends with this step or commit, such as a sub-workflow's; the oldest, since
        the others are forks."""
        self._store.sync()
        prefixes = (layout.THREADS, layout.ARCHIVE, layout.FOLDED)
        names = self._store.index.heads_at(last if isinstance(last, str) else last.raw)
        return min((layout.thread_of(name) for name in names if name.startswith(prefixes)), default=None)

    def commit_of(self, step: Hash) -> Oid:
        """Return a commit of a StepNode or StartNode. Raises NotFound."""
        self._store.sync()
        for row in self._store.index.commits_of(step):
            if row.kind in ("step", "start"):
                return Oid(raw=row.oid)
        raise NotFound(f"no step {step} in any thread", "see the hashes with: uwf thread steps ID")

    def oldest_with(self, commit: Oid) -> ThreadId | None:
        """Return the oldest thread with a commit in its history, as `by_age` has it, else None."""
        wanted = self._store.index_commit(commit)
        start = wanted.start or wanted.node
        heads = (head for head in self.all(archived=True) if isinstance(head, Head))
        for head in sorted(heads, key=lambda item: by_age(item.thread)):
            if (head.row.start or head.row.node) == start:
                own = takewhile(lambda row: row.number >= wanted.number, ancestry(self._store, head.commit))
                if any(row.oid == commit.raw for row in own):
                    return head.thread
        return None

    # Writing

    def start(
        self,
        version: Oid,
        start: Start,
        origin: Oid | None = None,
        project: str = "",
        thread: ThreadId | None = None,
    ) -> ThreadId:
        """Start a thread of a workflow version. `origin` is the head of the conversation or run that it follows,
        `project` a label. Makes `refs/uwf/threads/<ULID>`, a new one or `thread`."""
        self._store.before_record(NewRecord(THREADS, self._name_of(start.workflow), (STARTS,), version))
        with self._store.together():
            node = self._store.put(*start.typed_payload())
            thread = thread or new_thread_id()
            return self._at(thread, self.begin(version, node, thread, origin=origin, project=project))

    def start_all(
        self, version: Oid, starts: Sequence[Start], projects: Sequence[str] = ()
    ) -> list[ThreadId]:
        """Start threads of a workflow version with one write; return their ids in order. `projects` are their labels.
        Makes `refs/uwf/threads/<new ULID>` for each."""
        self._store.before_record(NewRecord(THREADS, self._name_of(starts[0].workflow), (STARTS,), version))
        threads = sorted(new_thread_id() for _ in starts)
        with self._store.together():
            nodes = [self._store.put(*start.typed_payload()) for start in starts]
            beginnings = {
                thread: self._begin(version, node, thread, project=project)
                for thread, node, project in zip(threads, nodes, projects or [""] * len(threads), strict=True)
            }
            self._create(beginnings)
        log.info("V8M3TQ5H", "begins {count} threads", count=len(threads), first=threads[:1])
        return threads

    def _name_of(self, workflow: Hash) -> str:
        return str(self._store.get(workflow).payload["name"])

    def begin(
        self,
        version: Oid,
        node: Hash,
        thread: ThreadId | None,
        stamp: Stamp | None = None,
        origin: Oid | None = None,
        project: str = "",
    ) -> Oid:
        """Return the commit of a StartNode, which names the thread that it begins, and its project; `origin` becomes
        its second parent. Touches no ref."""
        commit = self._begin(version, node, thread, stamp, origin, project).commit
        self._store.index_commit(commit)
        return commit

    def _create(self, beginnings: Mapping[ThreadId, _Beginning]) -> set[ThreadId]:
        """Index commits that begin threads and create the refs, in one write; return the threads that were not
        there."""
        self._store.list_new()
        with self._store.index.transaction():
            for beginning in beginnings.values():
                self._store.record_start(*beginning)
        refs = {layout.THREADS + thread: item.commit for thread, item in beginnings.items()}
        created = self._repository.create_refs(refs, packed=True)
        with self._store.index.transaction():
            for name in created:
                self._store.moved(name, refs[name], refs[name])
        return {layout.thread_of(name) for name in created}

    def _begin(
        self,
        version: Oid,
        node: Hash,
        thread: ThreadId | None,
        stamp: Stamp | None = None,
        origin: Oid | None = None,
        project: str = "",
    ) -> _Beginning:
        from uwf_git.store import pages

        start = self._store.start(node)
        row = self._store.index_commit(version)
        tree = self._repository.root(version)
        inside = self._repository.write_folder(
            {
                "README.md": pages.start_readme(start.prompt),
                layout.node_file(node): self._store.blob_of(node),
            }
        )
        readme = self._repository.write_blob(pages.first_thread_page(title_of(start.heading), row.name or ""))
        tree = self._repository.with_entries(
            tree, Entry(BLOB_MODE, "README.md", readme), Entry(TREE_MODE, "start", inside)
        )
        text = layout.start_message(row.name or "", start.heading, node, thread, project)
        is_call = start.call is not None and start.call.is_call
        if origin is not None and (start.branch is not None or is_call):
            stamp = stamp or self._stamp_after((origin,))
        by, when = stamp or Stamp(self._repository.user, int(time.time()))
        parents = (version, origin) if origin else (version,)
        commit = self._repository.write_commit(tree, parents, by, text, when, committer=stamp and by)
        return _Beginning(commit, node, parents, when, by.ident, project)

    def begin_branches(
        self, fork: Oid, versions: Mapping[int, Oid], nodes: Mapping[int, tuple[Hash, Any]]
    ) -> list[ThreadId]:
        """Begin branches of a fork's commit, by their indexes, with one write: each of a workflow's version, by the
        type and payload of its StartNode. Every machine makes the same commits, unless the user signs them. Makes
        `refs/uwf/threads/<id>` for each of which there is none; returns the ids."""
        when = self._repository.commit(fork).time
        with self._store.together():
            self._store.store_drafts()
            beginnings = {}
            for position, (type_hash, payload) in nodes.items():
                node = self._store.put(type_hash, payload, when * 1000)
                thread = branch_id(str(fork), when, position)
                beginnings[thread] = self._begin(versions[position], node, thread, origin=fork)
            created = self._create(beginnings)
        log.info("9B4T2XKE", "begins {count} branches of {fork}", count=len(created), fork=fork)
        return [thread for thread in beginnings if thread in created]

    def begin_at(self, thread: ThreadId, version: Oid, origin: Oid, node: tuple[Hash, Any]) -> None:
        """Begin a thread with a given id on a commit of another, by the type and payload of its StartNode, with one
        commit as `begin_branches`. Makes `refs/uwf/threads/<thread>` unless there is such a thread."""
        if self.exists(thread):
            return
        with self._store.together():
            start = self._store.put(*node, self._repository.commit(origin).time * 1000)
            commit = self.begin(version, start, thread, origin=origin)
            with contextlib.suppress(HeadMoved):  # another process began the same
                self._repository.create_ref(layout.THREADS + thread, commit)
                self._store.moved(layout.THREADS + thread, commit, commit)

    def gathered(self, fork: Hash, tips: Sequence[Oid]) -> tuple[Oid, ...]:
        """Return the parents that join the last commits of a fork's branches, by index: these, or for more than
        MOST_PARENTS commits that have as many of them as parents."""
        parts = list(tips)
        while len(parts) > MOST_PARENTS:
            pieces = [parts[at : at + MOST_PARENTS] for at in range(0, len(parts), MOST_PARENTS)]
            parts = [self._part(fork, piece) for piece in pieces]
        if len(parts) < len(tips):
            self._store.list_new()
            for part in parts:
                self._store.index_commit(part)
        return tuple(parts)

    def _part(self, fork: Hash, tips: Sequence[Oid]) -> Oid:
        repository, text = self._repository, layout.part_message(fork, len(tips))
        stamp = self._stamp_after(tips)
        by, when = stamp or Stamp(repository.user, int(time.time()))
        return repository.write_commit(
            repository.write_folder({}), tips, by, text, when, committer=stamp and by
        )

    def _stamp_after(self, parents: Sequence[Oid]) -> Stamp | None:
        """Return who commits what follows from commits alone, and when, so that every machine makes the same commit:
        the committer of the first, at the time of the last. None if the user signs commits."""
        if self._repository.config.signs_commits:
            return None
        commits = [self._repository.commit(parent) for parent in parents]
        name, _, email = commits[0].committer.removesuffix(">").rpartition(" <")
        return Stamp(Person(name, email), max(commit.time for commit in commits))

    def part(self, thread: ThreadId, fork: ThreadId, base: Oid, head: Oid) -> None:
        """Make one side of a divergence a thread: `refs/uwf/forks/<fork>`, a tag on the last shared commit,
        then `refs/uwf/threads/<fork>`. Raises HeadMoved if that thread exists with other content."""
        if self._repository.ref(layout.FORKS + fork) is None:
            # Every machine writes the same tag for the same divergence: without a name and a new time.
            when = self._repository.commit(base).time
            tag = self._repository.write_raw_tag(layout.fork_tag(fork, thread, base, when))
            with contextlib.suppress(HeadMoved):  # it was recorded meanwhile
                self._repository.create_ref(layout.FORKS + fork, tag)
        if self._repository.ref(layout.THREADS + fork) != head:
            self._repository.create_ref(layout.THREADS + fork, head)

    def fork(self, commit: Oid, origin: ThreadId | None = None, thread: ThreadId | None = None) -> ThreadId:
        """Make `refs/uwf/threads/<ULID>`, a new one or `thread`, on an existing commit. `origin`, or else the thread
        that its start names, is recorded first in `refs/uwf/forks/<ULID>`, unless it is the thread itself."""
        thread = thread or new_thread_id()
        if origin is None:
            start = Oid(raw=start_of(self._store, commit).oid)
            origin = layout.thread_named(self._repository.commit(start).message)
        if origin not in (None, thread):
            self._store.before_record(
                NewRecord(THREADS, self._store.index_commit(commit).name or "", (FORKS,))
            )
            tag = self._repository.write_tag(layout.tag_name(thread), commit, layout.fork_message(origin))
            self._repository.create_ref(layout.FORKS + thread, tag)
        return self._at(thread, commit)

    def _at(self, thread: ThreadId, commit: Oid) -> ThreadId:
        """Make the ref of a new thread."""
        self._repository.create_ref(layout.THREADS + thread, commit)
        self._store.moved(layout.THREADS + thread, commit, commit)
        log.info("7S0C82A2", "begins on commit {commit}", thread=thread, commit=commit)
        return thread

    def append(
        self,
        head: Head,
        node: Hash,
        known: Set[Hash],
        merged: Sequence[Oid] = (),
        extraction: str = "",
        then: str | None = None,
        begins: bool = False,
    ) -> Head:
        """Record a StepNode as the thread's next step: its folder, its line on the thread's page, its commit,
        then the ref by compare-and-swap.

        `known` are the StepNodes of the history; `merged` become the other parents; `then` is the next role,
        $END or $FAIL, if known. With `begins` the step is the first of a new thread on a shared past. Raises
        ConcurrentCommit, leaving the ref, if another step was first; NotFound for missing nodes.
        """
        with self._store.together():
            self._store.store_drafts()
            tree = self._repository.root(head.commit)
            start = self._store.step(node).start
            files = self._store.files(node, UnionSet(self.workflow_nodes(tree), known, {start}))
            step = self._made(head, node, files, merged, extraction, then)
            if then == END and not self._repository.config.signs_tags:
                tag = self._tag_end(head.thread, step.commit, COMPLETED)
                self._end = _EndTag(head.thread, step.commit, tag)
            try:
                if begins:
                    self._repository.create_ref(layout.THREADS + head.thread, step.commit)
                else:
                    self._repository.move_ref(layout.THREADS + head.thread, head.commit, step.commit)
            except HeadMoved:
                raise ConcurrentCommit(head.thread, step.commit) from None
            with self._store.index.transaction():
                self._store.list_new()
                row = self._store.record(*step, head.row)
                self._store.moved(layout.THREADS + head.thread, step.commit, step.commit, is_indexed=True)
        log.info(
            "3T0A0A5H",
            "step {number} is commit {commit}",
            thread=head.thread,
            number=head.row.number + 1,
            commit=step.commit,
            node=node,
            parents=step.parents,
            then=then,
        )
        return Head(head.thread, step.commit, row, None)

    def extend(
        self,
        head: Head,
        node: Hash,
        files: Mapping[str, bytes | Oid],
        stamp: Stamp,
        merge: Oid | None = None,
        extraction: str = "",
        then: str | None = None,
    ) -> Head:
        """Return the head after a StepNode whose folder has these files; otherwise as `append`. Touches no
        ref."""
        step = self._made(head, node, files, (merge,) if merge else (), extraction, then, stamp)
        return head._replace(commit=step.commit, row=self._store.record(*step, head.row))

    def _made(
        self,
        head: Head,
        node: Hash,
        files: Mapping[str, bytes | Oid],
        merged: Sequence[Oid],
        extraction: str,
        then: str | None,
        stamp: Stamp | None = None,
    ) -> UnreferencedStep:
        from uwf_git.store import pages

        step = self._store.step(node)
        output = self._store.get(step.output).payload
        number = head.row.number + 1
        tree = self._repository.root(head.commit)
        detail = self._store.get(step.detail)
        credit = self.credit(step)
        context = step.context(node, output, credit)
        page = pages.step_page(pages.PageStep.of(number, context, detail, self._store.get))
        folder = self._repository.write_folder({**files, "README.md": page})
        tree = self._with_step(tree, head, context, folder, then, merged)
        verdict = pages.verdict(output)
        code = revision.commit if (revision := pages.code_of(detail)) else ""
        text = layout.step_message(number, node, step.role, step.agent, verdict, extraction, code)
        if is_made_alike(step.role):
            stamp = stamp or self._stamp_after((head.commit, *merged))
        by, when = stamp or Stamp(self._repository.user, int(time.time()))
        author = by if step.role == USER else layout.agent_author(credit)
        parents = (head.commit, *merged)
        commit = self._repository.write_commit(tree, parents, author, text, when, committer=stamp and by)
        return UnreferencedStep(commit, node, parents, when)

    def _with_step(
        self,
        tree: Oid,
        head: Head,
        context: StepContext,
        folder: Oid,
        then: str | None,
        merged: Sequence[Oid],
    ) -> Oid:
        from uwf_git.store import pages

        repository, row = self._repository, head.row
        number = row.number + 1
        top = {entry.name: entry.oid for entry in repository.tree(tree)}
        if "README.md" not in top:
            raise StoreDamaged(
                f"commit {head.commit} of thread {head.thread} has no README.md", "see: uwf verify"
            )
        lines = pages.lines_in(repository.blob(top["README.md"]))
        steps = repository.graft(top.get("steps"), layout.step_folder(number, context.role)[1:], folder)
        if number % pages.HUNDRED == 0:
            hundred = number // pages.HUNDRED - 1
            name = pages.past_page_path(hundred).removeprefix("steps/")
            past = repository.write_blob(pages.past_page(hundred, lines))
            steps = repository.with_entries(steps, Entry(BLOB_MODE, name, past))
            lines = []
        lines.append(pages.line_of(number, context))
        others = [self._store.index.commit(other.raw) for other in merged]
        rehearsed = row.rehearsed + is_generated(context.agent, others)
        title = title_after(row, context.role, context.output) or ""
        standing = pages.PageState(title, row.name or "", number, rehearsed, context, then)
        page = repository.write_blob(pages.thread_page(standing, lines))
        return repository.with_entries(
            tree, Entry(BLOB_MODE, "README.md", page), Entry(TREE_MODE, "steps", steps)
        )

    def workflow_nodes(self, tree: Oid) -> frozenset[Hash]:
        """Return the nodes in the workflow/ folder of a thread's tree, which no step's folder repeats."""
        entry = next((e for e in self._repository.tree(tree) if e.name == "workflow"), None)
        if entry is None or entry.mode != TREE_MODE:
            return frozenset()
        if entry.oid not in self._workflow_files:
            nodes = self._repository.file(entry.oid, "nodes")
            names = [e.name for e in self._repository.tree(nodes)] if nodes else []
            hashes = (layout.node_in_path(f"nodes/{name}") for name in names)
            self._workflow_files[entry.oid] = frozenset(node for node in hashes if node)
        return self._workflow_files[entry.oid]

    def archive(self, head: Head, status: str, reason: str = "") -> Head:
        """End a thread: make `refs/uwf/archive/<ULID>`, then delete the active ref and the pause. `status` is
        completed, failed or killed. For an ended thread only a leftover active ref is deleted."""
        if head.archive:
            if self._repository.ref(layout.THREADS + head.thread) == head.commit:
                self._let_go(head.thread)
            return head
        self._store.gate(reason, "the reason", "a tag")
        self._store.before_record(NewRecord(THREADS, head.row.name or "", (ENDS,)))
        end, self._end = self._end, None
        if (
            end is not None
            and (end.thread, end.commit, status, reason) == (head.thread, head.commit, COMPLETED, "")
            and self._repository.has(end.tag)
        ):
            tag = end.tag
        else:
            tag = self._tag_end(head.thread, head.commit, status, reason)
        row = self._store.index_tag(tag)
        try:
            self._repository.create_ref(layout.ARCHIVE + head.thread, tag)
        except HeadMoved:  # it was archived meanwhile
            return self.head(head.thread)
        self._store.moved(layout.ARCHIVE + head.thread, tag, head.commit)
        log.info("Z070FPVA", "is archived as {status}", status=status, thread=head.thread, object=tag)
        self._let_go(head.thread)
        return head._replace(archive=row)

    def _tag_end(self, thread: ThreadId, commit: Oid, status: str, reason: str = "") -> Oid:
        return self._repository.write_tag(layout.tag_name(thread), commit, layout.end_message(status, reason))

    def _let_go(self, thread: ThreadId) -> None:
        names = (prefix + thread for prefix in (layout.THREADS, layout.PAUSED, layout.RESUMED))
        oids = {name: oid for name in names if (oid := self._repository.ref(name)) is not None}
        try:
            self._repository.delete_refs(oids)
        except Busy as busy:  # the archive wins anyway, and `doctor` reports the leftovers
            log.warning("4ZK7QX2M", "{refs} stay: {why}", refs=[*oids], why=busy.message)

    def drop(self, ref: str) -> None:
        """Delete a ref unless it is gone or just moved."""
        current = self._repository.ref(ref)
        if current is not None:
            with contextlib.suppress(HeadMoved):
                self._repository.delete_ref(ref, current)


def fork_hint(head: Head) -> str:
    """Return the hint for a finished thread whose workflow defines no `resume` edge."""
    hint = f"go on from it with: uwf thread fork {head.thread}"
    if head.archive and is_engines(head.row.role) and head.archive.status != COMPLETED:
        # Its branches have ended with it, and another fork of them would join the same.
        before = head.row.number - (2 if gathers_threads(head.row.role) else 1)
        return f"begin its branches anew with: uwf thread fork {head.thread} --at {before}"
    if head.archive and head.archive.status != KILLED:  # at its very end it has nowhere to go
        if head.row.role == END:
            hint += f" --at {head.row.number - 1}"
        elif head.row.role is not None:
            hint += f" --from-role {head.row.role}"
    return hint
