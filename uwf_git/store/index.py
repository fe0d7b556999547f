"""The local index: a SQLite cache in the private folder, for queries that git is slow at.

    nodes      node hash -> type, blob id, traits (`format.types.traits_of`)
    commits    commit id -> its record: a version of a workflow or crew, a start, a step, an attempt, a pin, an
               addition to a suite
    archives   tag id -> the commit it ends, completed, failed or killed, why
    folded     thread id, ref of a fold -> the archive tag, the newest attempt and the fork tag that it holds
    tips       ref name -> the id it was seen at, and its problem
    missed     ref name -> the id it was last seen at: it is gone, and no uwf deleted it
    decisions  StepNode or StartNode hash -> the moderator's decision, as JSON
    spending   StepNode hash, or id of an attempt's commit -> the spending up to there, as JSON; with = before it,
               that of each run up to there
    verdicts   StepNode hash -> what its output comes to, in a few words

Everything is derived from refs and objects, never shared, and may be deleted at any time: missing entries are
indexed again. That is why nothing is synced to disk: the first process after a boot checks for torn writes.
Only `tips` exist nowhere else, and are carried over when the rest is discarded.

Untrusted objects go into an Overlay, which reads through to the real index and writes to memory, so a remote
leaves no trace before verification.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import REHEARSE, Start, Step, asks_human, is_review, remark_in, title_of
from uwf_git.format.types import USER
from uwf_git.git.repository import Oid
from uwf_git.git.sqlite_cache import SqliteCache
from uwf_git.store import layout
from uwf_git.store.node_rows import NodeRow
from uwf_git.workflow.turn import gathers_threads

VERSION = 19
_REMEMBERED = 1024  # nodes whose nature or decision is kept in memory
_VARIABLES = 900  # variables that every SQLite accepts in one statement

# The first condition is that of the index.
_HAS_TRAIT = "traits != '' AND ' ' || traits || ' ' LIKE ?"

_TABLES = """
CREATE TABLE nodes (
    hash TEXT PRIMARY KEY, type TEXT NOT NULL, blob BLOB NOT NULL, traits TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX nodes_by_type ON nodes (type);
CREATE INDEX nodes_with_traits ON nodes (traits) WHERE traits != '';
CREATE TABLE commits (
    oid BLOB PRIMARY KEY, kind TEXT NOT NULL, node TEXT NOT NULL, parent BLOB, start TEXT, workflow TEXT,
    name TEXT, title TEXT, author TEXT, role TEXT, agent TEXT, number INTEGER NOT NULL,
    rehearsed INTEGER NOT NULL, asks INTEGER NOT NULL, time INTEGER NOT NULL, merged BLOB, nested BLOB,
    resumed BLOB, project TEXT
) WITHOUT ROWID;
CREATE INDEX commits_by_node ON commits (node);
CREATE INDEX joins ON commits (parent) WHERE role = '$JOIN';
CREATE INDEX merges ON commits (parent) WHERE kind = 'step' AND merged IS NOT NULL;
CREATE INDEX forks ON commits (time) WHERE role = '$FORK';
CREATE TABLE archives (oid BLOB PRIMARY KEY, target BLOB, status TEXT, reason TEXT, time INTEGER) WITHOUT ROWID;
CREATE TABLE folded (
    thread TEXT, ref TEXT, tag BLOB NOT NULL, attempts BLOB, fork BLOB, problem TEXT, PRIMARY KEY (thread, ref)
) WITHOUT ROWID;
CREATE TABLE tips (name TEXT PRIMARY KEY, oid BLOB NOT NULL, tip BLOB, problem TEXT) WITHOUT ROWID;
CREATE TABLE missed (name TEXT PRIMARY KEY, oid BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE decisions (hash TEXT PRIMARY KEY, decision TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spending (hash TEXT PRIMARY KEY, spent TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE verdicts (hash TEXT PRIMARY KEY, verdict TEXT NOT NULL) WITHOUT ROWID;
"""
# Each process indexed completely: nodes before their commit, parents before children.
_GAPS = (
    "SELECT 1 FROM commits WHERE node != '' AND node NOT IN (SELECT hash FROM nodes)",
    "SELECT 1 FROM commits WHERE parent IS NOT NULL AND parent NOT IN (SELECT oid FROM commits)",
    "SELECT 1 FROM tips WHERE problem IS NULL AND tip IS NOT NULL AND tip NOT IN (SELECT oid FROM commits)",
)


class _Nature(NamedTuple):
    type: str
    traits: tuple[str, ...]


class CommitRow(NamedTuple):
    """The record of a commit.

    kind        workflow, crew, start, step, attempt, pin, suite, approval or part
    node        the hash that it is about
    number      the step's number in its thread, from 1; that of an attempt or approval after those before it
    asks        whether its output asks a person
    time        Unix seconds
    title       the first line of the prompt, or of the text that resumed the thread
    author      who started the thread: name and address
    rehearsed   number of generated steps up to here, by uwf-rehearse, a sub-workflow or branches
    merged      the second parent: of a step the last commit of its sub-workflow, of a start the head of the
                conversation or run before it, or the fork that it is a branch of
    nested      the last step with a sub-workflow up to here
    resumed     the commit of the end that the thread was last resumed from
    project     the project of the thread, as `Project.label`, else None

    For a version of a workflow or crew, only `node` and `name` are set.
    """

    oid: bytes
    kind: str
    node: Hash
    parent: bytes | None
    start: Hash | None
    workflow: Hash | None
    name: str | None
    title: str | None
    author: str | None
    role: str | None
    agent: str | None
    number: int
    rehearsed: int
    asks: bool
    time: int
    merged: bytes | None = None
    nested: bytes | None = None
    resumed: bytes | None = None
    project: str | None = None


def commit_row(oid: Oid, kind: str, node: Hash, parents: Sequence[Oid], time: int) -> CommitRow:
    """Return the basic row of any commit; the caller adds the fields of its node."""
    parent = parents[0].raw if parents else None
    merged = parents[1].raw if kind in ("start", "step") and len(parents) > 1 else None
    nothing = None, None, None, None, None, None, None
    return CommitRow(oid.raw, kind, node, parent, *nothing, 0, 0, False, time, merged)


def start_row(
    row: CommitRow, start: Start, name: str, author: str, project: str = "", origin: CommitRow | None = None
) -> CommitRow:
    """Return the row of a commit that starts a thread, in the project that it names, else in that of its `origin`."""
    title, of = title_of(start.heading), project or (origin.project if origin is not None else None)
    return row._replace(
        start=row.node, workflow=start.workflow, name=name, title=title, author=author, project=of
    )


def bound_row(
    row: CommitRow, start: Hash | None, role: str | None, before: Iterable[CommitRow | None]
) -> CommitRow:
    """Return the row of an attempt or an approval in a thread, which stands on those `before`."""
    numbers = (other.number for other in before if other is not None and other.kind == row.kind)
    return row._replace(start=start, role=role, number=1 + max(numbers, default=0))


def is_generated(agent: str, children: Iterable[CommitRow | None]) -> bool:
    """Return whether a step was generated: by its agent, or in the threads that it stands for, whose last commits are
    `children`."""
    return agent == REHEARSE or any(child is not None and child.rehearsed > 0 for child in children)


def title_after(before: CommitRow, role: str, output: Any) -> str | None:
    """Return a thread's title after a step. A text that resumes a finished thread becomes its title, unless it is a
    review: the task stays the same."""
    if not _goes_on(before, role, output) or is_review(output.get("answer", "")):
        return before.title
    return title_of(output.get("answer", ""))


def _goes_on(before: CommitRow, role: str, output: Any) -> bool:
    return role == USER and not before.asks and remark_in(role, output) is None


def step_row(
    row: CommitRow, before: CommitRow, step: Step, output: Any, others: Sequence[CommitRow | None] = ()
) -> CommitRow:
    """Return the row of a step's commit, from that of the commit before. `others` are the rows of its other parents: a
    sub-workflow's last commit, or the last of its approvals; of a join the last commits of its branches."""
    if gathers_threads(step.role) or any(other is not None and other.kind != "step" for other in others):
        row = row._replace(merged=None)
    if not gathers_threads(step.role):
        others = [other for other in others if other is not None and other.kind == "step"]
    return row._replace(
        start=step.start,
        workflow=before.workflow,
        name=before.name,
        title=title_after(before, step.role, output),
        author=before.author,
        project=before.project,
        role=step.role,
        agent=step.agent,
        number=before.number + 1,
        rehearsed=before.rehearsed + is_generated(step.agent, others),
        asks=asks_human(output),
        nested=row.oid if row.merged else before.nested,
        resumed=before.oid if _goes_on(before, step.role, output) else before.resumed,
    )


class ArchiveRow(NamedTuple):
    """An archive tag: `completed`, `failed` or `killed`, and the reason."""

    oid: bytes
    target: bytes
    status: str
    reason: str
    time: int


class FoldedRow(NamedTuple):
    """A thread in a fold: the ids of its archive tag and newest attempt, and the content of its fork tag.
    `problem` is None if its commits were indexed."""

    thread: ThreadId
    ref: str
    tag: bytes
    attempts: bytes | None
    fork: bytes | None
    problem: str | None


class Tip(NamedTuple):
    """The last seen position of a ref. `tip` is the commit behind a tag; `problem` is None if everything was
    indexed."""

    name: str
    oid: bytes
    tip: bytes | None
    problem: str | None


class Index(SqliteCache):
    """The index of one repository."""

    version = VERSION
    tables = _TABLES
    gaps = _GAPS

    def __init__(self, folder: Path) -> None:
        # Both follow from hashes alone, so they hold whatever becomes of the file.
        self._natures: dict[str | None, _Nature] = {}
        self._decisions: dict[Hash, str] = {}
        super().__init__(folder / "index.db")

    def _carried(self, db: sqlite3.Connection) -> dict[str, bytes]:
        known: dict[str, bytes] = {}
        for sql in ("SELECT name, oid FROM missed", "SELECT name, oid FROM tips WHERE problem IS NULL"):
            with contextlib.suppress(sqlite3.Error):
                rows = db.execute(sql).fetchall()
                known.update(
                    {name: oid for name, oid in rows if isinstance(name, str) and isinstance(oid, bytes)}
                )
        return known

    def _carry(self, db: sqlite3.Connection, carried: Mapping[str, bytes]) -> None:
        db.executemany("INSERT OR IGNORE INTO missed VALUES (?, ?)", carried.items())

    # Nodes

    def node(self, node: str) -> tuple[Hash, bytes] | None:
        """Return a node's type and blob id."""
        row: tuple[Hash, bytes] | None = self._one("SELECT type, blob FROM nodes WHERE hash = ?", (node,))
        return row

    def blobs(self) -> list[tuple[Hash, bytes]]:
        return self._run("SELECT hash, blob FROM nodes")

    def commit_ids(self) -> list[bytes]:
        return [row[0] for row in self._run("SELECT oid FROM commits")]

    def forget(self, nodes: Iterable[Hash], commits: Iterable[bytes]) -> None:
        """Remove what is gone from the repository."""
        with self.transaction():
            for node in nodes:
                self._natures.pop(node, None)
                self._run("DELETE FROM nodes WHERE hash = ?", (node,))
            for oid in commits:
                self._run("DELETE FROM commits WHERE oid = ?", (oid,))

    def node_of_blob(self, blob: bytes) -> Hash | None:
        """Return the node in a blob. A full scan."""
        row = self._one("SELECT hash FROM nodes WHERE blob = ?", (blob,))
        return row[0] if row else None

    def blobs_of(self, nodes: Sequence[Hash]) -> dict[Hash, bytes]:
        return self._by_hash("SELECT hash, blob FROM nodes", nodes)

    def add_nodes(self, rows: Iterable[NodeRow]) -> None:
        """Add nodes; an existing hash keeps its blob."""
        self._insert_nodes("IGNORE", list(rows))

    def set_nodes(self, rows: Sequence[NodeRow]) -> None:
        """Add nodes just written, replacing rows whose blobs are gone."""
        self._insert_nodes("REPLACE", rows)

    def _insert_nodes(self, known: str, rows: Sequence[NodeRow]) -> None:
        most = _VARIABLES // len(NodeRow._fields)
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            places = ",".join(["(?,?,?,?)"] * len(some))
            self._run(
                f"INSERT OR {known} INTO nodes VALUES {places}", [value for row in some for value in row]
            )

    def hashes_of_type(self, type_hash: Hash) -> list[Hash]:
        rows = self._run("SELECT hash FROM nodes WHERE type = ? ORDER BY hash", (type_hash,))
        return [row[0] for row in rows]

    def hashes_with(self, trait: str) -> list[Hash]:
        """Return the nodes that have a trait."""
        rows = self._run(f"SELECT hash FROM nodes WHERE {_HAS_TRAIT}", (f"% {trait} %",))
        return [row[0] for row in rows]

    def has_any_with(self, trait: str) -> bool:
        """Return whether any node has a trait."""
        return self._one(f"SELECT 1 FROM nodes WHERE {_HAS_TRAIT} LIMIT 1", (f"% {trait} %",)) is not None

    def has_trait(self, node: str | None, trait: str) -> bool:
        return trait in self._nature(node).traits

    def is_of_type(self, node: str | None, type_hash: Hash) -> bool:
        """Return whether a node that is indexed has a type."""
        return self._nature(node).type == type_hash

    def _nature(self, node: str | None) -> _Nature:
        if (known := self._natures.get(node)) is not None:
            return known
        if (nature := self._nature_of(node)) is None:  # it may come to be indexed
            return _Nature("", ())
        if len(self._natures) >= _REMEMBERED:
            self._natures.clear()
        self._natures[node] = nature
        return nature

    def _nature_of(self, node: str | None) -> _Nature | None:
        row = self._one("SELECT type, traits FROM nodes WHERE hash = ?", (node,))
        return None if row is None else _Nature(row[0], tuple(row[1].split()))

    def hashes_with_prefix(self, prefix: str) -> list[Hash]:
        """Return at most 20 node hashes with a prefix."""
        rows = self._run(
            "SELECT hash FROM nodes WHERE hash >= ? AND hash < ? ORDER BY hash LIMIT 20",
            (prefix, prefix + "~"),
        )
        return [row[0] for row in rows]

    def node_count(self) -> int:
        return int(self._one("SELECT count(*) FROM nodes")[0])

    # Commits and refs

    def commit(self, oid: bytes) -> CommitRow | None:
        row = self._one("SELECT * FROM commits WHERE oid = ?", (oid,))
        return CommitRow(*row) if row else None

    def commits_among(self, oids: Sequence[bytes]) -> dict[bytes, CommitRow]:
        return {row[0]: CommitRow(*row) for row in self._among("SELECT * FROM commits", "oid", oids)}

    def archives_among(self, oids: Sequence[bytes]) -> dict[bytes, ArchiveRow]:
        return {row[0]: ArchiveRow(*row) for row in self._among("SELECT * FROM archives", "oid", oids)}

    def steps_among(self, oids: Sequence[bytes]) -> int:
        """Return how many of these commits record a step."""
        count = 0
        for start in range(0, len(oids), _VARIABLES):
            some = oids[start : start + _VARIABLES]
            places = ",".join("?" * len(some))
            sql = f"SELECT count(*) FROM commits WHERE kind = 'step' AND oid IN ({places})"
            count += self._one(sql, some)[0]
        return count

    def commits_of(self, node: str) -> list[CommitRow]:
        """Return the commits about a node, oldest first."""
        rows = self._run("SELECT * FROM commits WHERE node = ? ORDER BY time, oid", (node,))
        return [CommitRow(*row) for row in rows]

    def joins_of(self, fork: bytes) -> list[CommitRow]:
        """Return the commits of the joins of a fork's commit."""
        rows = self._run("SELECT * FROM commits WHERE parent = ? AND role = '$JOIN'", (fork,))
        return [CommitRow(*row) for row in rows]

    def merges_after(self, commit: bytes) -> list[CommitRow]:
        """Return the commits of the steps after a commit that have further parents."""
        sql = "SELECT * FROM commits WHERE parent = ? AND kind = 'step' AND merged IS NOT NULL"
        return [CommitRow(*row) for row in self._run(sql, (commit,))]

    def forks_within(self, begin: int, end: int) -> list[CommitRow]:
        """Return the commits of forks with times from `begin` to `end`."""
        rows = self._run("SELECT * FROM commits WHERE role = '$FORK' AND time BETWEEN ? AND ?", (begin, end))
        return [CommitRow(*row) for row in rows]

    def add_commit(self, row: CommitRow) -> None:
        places = ",".join("?" * len(row))
        self._run(f"INSERT OR REPLACE INTO commits VALUES ({places})", row)

    def archive(self, oid: bytes) -> ArchiveRow | None:
        row = self._one("SELECT * FROM archives WHERE oid = ?", (oid,))
        return ArchiveRow(*row) if row else None

    def add_archive(self, row: ArchiveRow) -> None:
        self._run("INSERT OR REPLACE INTO archives VALUES (?,?,?,?,?)", row)

    def tips(self, prefix: str = "") -> dict[str, Tip]:
        sql = "SELECT * FROM tips WHERE name >= ? AND name < ?"
        return {row[0]: Tip(*row) for row in self._run(sql, (prefix, prefix + "~"))}

    def sound_tips(self) -> dict[str, bytes]:
        """Return the refs without problems and their ids."""
        return dict(self._run("SELECT name, oid FROM tips WHERE problem IS NULL"))

    def set_tip(self, tip: Tip) -> None:
        self._run("INSERT OR REPLACE INTO tips VALUES (?,?,?,?)", tip)

    def drop_tip(self, name: str) -> None:
        self._run("DELETE FROM tips WHERE name = ?", (name,))
        self.drop_missed(name)

    def drop_missed(self, name: str) -> None:
        self._run("DELETE FROM missed WHERE name = ?", (name,))

    def miss(self, name: str) -> None:
        """Record where a missing ref was, unless it had a problem."""
        self._run(
            "INSERT OR REPLACE INTO missed SELECT name, oid FROM tips WHERE name = ? AND problem IS NULL",
            (name,),
        )
        self._run("DELETE FROM tips WHERE name = ?", (name,))

    def missed(self) -> dict[str, bytes]:
        """Return refs that disappeared without being deleted here, with their last ids; some may be back."""
        return dict(self._run("SELECT name, oid FROM missed"))

    def tips_with_commits(self, prefix: str) -> list[tuple[Tip, CommitRow | None]]:
        """Return the refs under a prefix, with their last seen commits if these are known."""
        rows = self._run(
            "SELECT tips.*, commits.* FROM tips LEFT JOIN commits ON tips.tip = commits.oid"
            " WHERE tips.name >= ? AND tips.name < ?",
            (prefix, prefix + "~"),
        )
        return [(Tip(*row[:4]), CommitRow(*row[4:]) if row[4] is not None else None) for row in rows]

    def heads_at(self, last: Hash | bytes) -> list[str]:
        """Return the refs of threads whose last commit is this one, or is about this node."""
        column = "node" if isinstance(last, str) else "oid"
        rows = self._run(
            f"SELECT tips.name FROM commits JOIN tips ON tips.tip = commits.oid WHERE commits.{column} = ?"
            " UNION SELECT folded.ref || '/' || folded.thread FROM commits"
            " JOIN archives ON archives.target = commits.oid JOIN folded ON folded.tag = archives.oid"
            f" WHERE commits.{column} = ?",
            (last, last),
        )
        return [name for (name,) in rows]

    def attempt_tips(self) -> dict[ThreadId, bytes]:
        """Return each thread's newest failed attempt, folded threads included."""
        sql = "SELECT thread, attempts FROM folded WHERE attempts IS NOT NULL ORDER BY ref DESC"
        contents: dict[ThreadId, bytes] = dict(self._run(sql))
        for name, tip in self.tips(layout.ATTEMPTS).items():
            if tip.tip is not None:
                contents[ThreadId(name.removeprefix(layout.ATTEMPTS))] = tip.tip
        return contents

    def nested_tips(self) -> dict[ThreadId, bytes]:
        """Return the `nested` of each head that has one; of a thread both active and archived, the archive's."""
        heads = self._run(
            "SELECT tips.name, commits.nested FROM tips JOIN commits ON commits.oid = tips.tip"
            " WHERE commits.nested IS NOT NULL ORDER BY tips.name DESC"
        )
        folded = self._run(
            "SELECT folded.thread, commits.nested FROM folded JOIN archives ON archives.oid = folded.tag"
            " JOIN commits ON commits.oid = archives.target WHERE commits.nested IS NOT NULL"
        )
        contents: dict[ThreadId, bytes] = dict(folded)
        for name, nested in heads:
            if name.startswith((layout.THREADS, layout.ARCHIVE)):
                contents[ThreadId(name.rpartition("/")[2])] = nested
        return contents

    def archives(self) -> dict[bytes, ArchiveRow]:
        return {row[0]: ArchiveRow(*row) for row in self._run("SELECT * FROM archives")}

    # Folded threads

    def folded(self, thread: str) -> FoldedRow | None:
        """Return the first fold by month that has a thread."""
        sql = "SELECT * FROM folded WHERE thread = ? ORDER BY ref LIMIT 1"
        row = self._one(sql, (thread,))
        return FoldedRow(*row) if row else None

    def folded_among(self, threads: Sequence[str]) -> dict[ThreadId, FoldedRow]:
        """Return the entries of those of the threads that are folded, as `folded`."""
        rows = self._among("SELECT * FROM folded", "thread", threads, " ORDER BY ref DESC")
        return {row[0]: FoldedRow(*row) for row in rows}

    def folded_threads(self) -> set[ThreadId]:
        return {row[0] for row in self._run("SELECT thread FROM folded")}

    def folded_forks(self) -> dict[ThreadId, bytes]:
        """Return the fork tags of folded threads, from the first fold of each."""
        sql = "SELECT thread, fork FROM folded WHERE fork IS NOT NULL ORDER BY ref DESC"
        return dict(self._run(sql))

    def folded_heads(self, damaged: bool) -> list[tuple[FoldedRow, ArchiveRow | None, CommitRow | None]]:
        """Return folded threads with their tags and commits, or only the damaged ones. A thread's first fold
        comes last, so that it wins in a dict."""
        rows = self._run(
            "SELECT folded.*, archives.*, commits.* FROM folded"
            " LEFT JOIN archives ON archives.oid = folded.tag"
            " LEFT JOIN commits ON commits.oid = archives.target"
            + (" WHERE folded.problem IS NOT NULL" if damaged else "")
            + " ORDER BY folded.ref DESC"
        )
        return [
            (
                FoldedRow(*row[:6]),
                ArchiveRow(*row[6:11]) if row[6] is not None else None,
                CommitRow(*row[11:]) if row[11] is not None else None,
            )
            for row in rows
        ]

    def set_folded(self, ref: str, rows: Iterable[FoldedRow]) -> None:
        """Replace the threads recorded for a fold's ref."""
        self._run("DELETE FROM folded WHERE ref = ?", (ref,))
        for row in rows:
            self._run("INSERT INTO folded VALUES (?,?,?,?,?,?)", row)

    # Decisions, sums and verdicts: pure functions of a head, so a cached one never goes stale

    def decision(self, head: Hash) -> str | None:
        """Return the cached decision at a head, as JSON."""
        if (known := self._decisions.get(head)) is not None:
            return known
        row = self._one("SELECT decision FROM decisions WHERE hash = ?", (head,))
        return row[0] if row else None

    def decisions_at(self, heads: Sequence[Hash]) -> dict[Hash, str]:
        return self._by_hash("SELECT hash, decision FROM decisions", heads)

    def set_decision(self, head: Hash, decision: str) -> None:
        if len(self._decisions) >= _REMEMBERED:
            self._decisions.clear()
        self._decisions[head] = decision
        self._run("INSERT OR REPLACE INTO decisions VALUES (?, ?)", (head, decision))

    def spent(self, at: str) -> str | None:
        """Return the cached spending up to a StepNode or an attempt's commit, as JSON."""
        row = self._one("SELECT spent FROM spending WHERE hash = ?", (at,))
        return row[0] if row else None

    def drop_spent(self, places: Iterable[str]) -> None:
        for at in places:
            self._run("DELETE FROM spending WHERE hash = ?", (at,))

    def spent_at(self, places: Sequence[str]) -> dict[str, str]:
        return self._by_hash("SELECT hash, spent FROM spending", places)

    def verdicts_at(self, steps: Sequence[Hash]) -> dict[Hash, str]:
        return self._by_hash("SELECT hash, verdict FROM verdicts", steps)

    def set_verdicts(self, verdicts: Mapping[Hash, str]) -> None:
        with self.transaction():
            for step, verdict in verdicts.items():
                self._run("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (step, verdict))

    def _by_hash(self, select: str, hashes: Sequence[str]) -> dict[Any, Any]:
        return dict(self._among(select, "hash", hashes))

    def _among(
        self, select: str, column: str, values: Sequence[str | bytes], order: str = ""
    ) -> Iterator[Any]:
        for start in range(0, len(values), _VARIABLES):
            some = values[start : start + _VARIABLES]
            yield from self._run(f"{select} WHERE {column} IN ({','.join('?' * len(some))}){order}", some)

    def set_spent(self, at: str, spent: str) -> None:
        self._run("INSERT OR REPLACE INTO spending VALUES (?, ?)", (at, spent))


class Overlay(Index):
    """An index in memory on top of `base`. With None, nothing is known and everything is verified again."""

    def __init__(self, base: Index | None = None) -> None:
        self._base = base
        self._forgotten: set[Hash] = set()
        super().__init__(Path())

    def _open(self) -> sqlite3.Connection:
        return self._in_memory()

    def node(self, node: str) -> tuple[Hash, bytes] | None:
        if (row := super().node(node)) is not None or self._base is None or node in self._forgotten:
            return row
        return self._base.node(node)

    def forget(self, nodes: Iterable[Hash], commits: Iterable[bytes]) -> None:
        """Forget nodes and commits here; of `base` only nodes are hidden."""
        nodes = list(nodes)
        super().forget(nodes, commits)
        self._forgotten.update(nodes)

    def blobs_of(self, nodes: Sequence[Hash]) -> dict[Hash, bytes]:
        contents = super().blobs_of(nodes)
        if self._base is not None:
            more = [node for node in nodes if node not in contents and node not in self._forgotten]
            contents.update(self._base.blobs_of(more))
        return contents

    def _nature_of(self, node: str | None) -> _Nature | None:
        if (nature := super()._nature_of(node)) is not None or self._base is None or node in self._forgotten:
            return nature
        return self._base._nature_of(node)

    def add_nodes(self, rows: Iterable[NodeRow]) -> None:
        rows = list(rows)
        known = self.blobs_of([row[0] for row in rows])
        super().add_nodes([row for row in rows if row[0] not in known])

    def commit(self, oid: bytes) -> CommitRow | None:
        return super().commit(oid) or (self._base.commit(oid) if self._base else None)

    def commits_of(self, node: str) -> list[CommitRow]:
        known = {row.oid: row for row in super().commits_of(node)}
        known.update({row.oid: row for row in (self._base.commits_of(node) if self._base else ())})
        return sorted(known.values(), key=lambda row: (row.time, row.oid))

    def archive(self, oid: bytes) -> ArchiveRow | None:
        return super().archive(oid) or (self._base.archive(oid) if self._base else None)

    def settle(self) -> int:
        """Move what was indexed here, now verified, to the base. Return the number of steps."""
        assert self._base is not None
        steps = self._one("SELECT count(*) FROM commits WHERE kind = 'step'")[0]
        with self._base.transaction():
            self._base.add_nodes(NodeRow(*row) for row in self._run("SELECT * FROM nodes"))
            for row in self._run("SELECT * FROM commits"):
                self._base.add_commit(CommitRow(*row))
            for row in self._run("SELECT * FROM archives"):
                self._base.add_archive(ArchiveRow(*row))
        for table in ("nodes", "commits", "archives"):
            self._run(f"DELETE FROM {table}")
        return int(steps)
