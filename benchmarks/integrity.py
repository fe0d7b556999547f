"""Edits of a store at rest, by the yardstick of the package `agent-memory-integrity` (agmi): which of its nine edits
does `uwf verify` report, with no remote and no signature?

The attacker has the whole storage root and not the user's state folder. A plain one rewrites git's objects so that git
finds nothing wrong. The other has uwf too, and computes all hashes and pages again, as for steps that were really made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pygit2
from agmi.adapters.base import MemoryAdapter, Record
from agmi.adapters.langgraph_sqlite import LangGraphSqliteAdapter
from agmi.check import run
from rows import Point, Row, Size
from stores import UWF, Lab

from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

PACKAGE = "agent-memory-integrity"
ACCEPTED = "ACCEPTED"
JUDGED = ("REJECTED", "REPORTED", ACCEPTED)


def editing(folder: Path, size: Size) -> Iterator[Row | Point]:
    """Each edit of agmi, by each attacker, beside LangGraph's saver; an honest store is a control of each."""
    folder.mkdir()
    tempfile.tempdir = str(folder)
    saver = [row["verdict"] for row in run(LangGraphSqliteAdapter())]
    for adapter in (PlainAttacker(), HashingAttacker()):
        rows = run(adapter)
        for row, theirs in zip(rows, saver, strict=True):
            if row["verdict"] not in JUDGED:
                raise RuntimeError(f"{row['edit']}: {row['verdict']}: {row['detail']}")
            what = f"{row['edit']} accepted, {adapter.name} / LangGraph's saver"
            yield Row(what, row["verdict"] == ACCEPTED, "", float(theirs == ACCEPTED), 0)
        accepted = sum(row["verdict"] == ACCEPTED for row in rows)
        what = f"edits accepted, {adapter.name} / agmi {version(PACKAGE)}, LangGraph's saver"
        yield Row(what, accepted, "", float(saver.count(ACCEPTED)), 0)


class PlainAttacker(MemoryAdapter):
    """Threads of a store as records: the answers of steps. Edits with git alone."""

    name = "plain"
    detection_point = "audit"
    supports_replay = supports_metadata = supports_snapshot = True
    note_at: tuple[str, ...] = ()
    """The part of an output that has the note."""

    # What the user does

    def setup(self) -> None:
        self._top = Path(tempfile.mkdtemp())
        self.__dict__.pop("_git", None)
        self._environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._top),
            "XDG_STATE_HOME": str(self._top / "state"),
            "UWF_STORAGE_ROOT": str(self._top / "root"),
        }
        self._lab = Lab(self._top / "root")
        self._lab.instance = Instance(self._lab.location, self._environ)
        self._thread = self._lab.start()
        self._other: ThreadId | None = None

    def seed(self, n: int) -> None:
        self._lab.grow(self._thread, n)

    def seed_other(self, n: int) -> None:
        self._other = self._lab.start()
        self._lab.grow(self._other, n, [f"other {number}" for number in range(n)])

    def append_genuine(self) -> None:
        self._lab.instance = Instance(self._lab.location, self._environ)
        self._lab.grow(self._thread, 1)

    def reload(self) -> None:
        """Each verification is a process of its own."""

    def verify(self) -> bool:
        done = subprocess.run([UWF, "verify"], env=self._environ, capture_output=True, text=True, check=False)
        if done.returncode:
            self.verify_detail = f"exit {done.returncode}: " + ", ".join(
                sorted({each["code"] for each in json.loads(done.stdout)["findings"]})
            )
        return done.returncode == 0

    def teardown(self) -> None:
        shutil.rmtree(self._top)

    def snapshot_store(self) -> object:
        return self._copy_store(self._lab.root)

    def restore_store(self, token: object) -> None:
        self._restore_store(str(token), self._lab.root)
        del self.__dict__["_git"]

    # What an attacker reads and writes

    def read_all_raw(self) -> list[Record]:
        return self._records(self._thread)

    def read_other_raw(self) -> list[Record]:
        assert self._other is not None
        return self._records(self._other)

    def write_raw(self, record: Record) -> None:
        records = self.read_all_raw()
        records[record.seq : record.seq + 1] = [record]
        self._rebuild(self._thread, records)

    def delete_raw(self, seq: int) -> None:
        records = self.read_all_raw()
        del records[seq]
        self._rebuild(self._thread, records)

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        victim = self.read_all_raw()[victim_seq]
        self.write_raw(Record(victim_seq, {**victim.fields, "note": donor.fields["note"]}))

    def mutate_payload(self, record: Record) -> Record:
        return Record(record.seq, {**record.fields, "note": f"{record.fields['note']} [TAMPERED]"})

    def read_meta(self, seq: int) -> dict[str, Any]:
        return {"committer": self.read_all_raw()[seq].fields["committer"]}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        name, when = self.read_all_raw()[seq].fields["committer"].rsplit(" ", 1)
        record = self.read_all_raw()[seq]
        self.write_raw(Record(seq, {**record.fields, "committer": f"Mallory {name} {int(when) - 3600}"}))

    def identity_of(self, record: Record) -> str:
        return f"{record.fields['thread']} {record.seq}"

    def payload_of(self, record: Record) -> str:
        return str(record.fields["note"])

    def owner_of(self, record: Record) -> str | None:
        return str(record.fields["thread"])

    @cached_property
    def _git(self) -> pygit2.Repository:
        return pygit2.Repository(str(self._lab.git_dir))

    def _commits(self, thread: ThreadId) -> list[pygit2.Commit]:
        """The commits of a thread's steps, after that of its start, in order."""
        found = []
        at = self._git[self._git.references[f"refs/uwf/threads/{thread}"].target]
        while at.parents:
            found.append(at)
            at = at.parents[0]
        return found[-2::-1] if "Uwf-Start" not in found[-1].message else found[::-1][1:]

    def _records(self, thread: ThreadId) -> list[Record]:
        records = []
        for seq, commit in enumerate(self._commits(thread)):
            node = json.loads(self._git[_output(self._git, commit)[1]].data)
            note = self._noting(node)["note"]
            by = commit.committer
            fields = {"note": note, "committer": f"{by.name} {by.email} {by.time}", "thread": thread}
            records.append(Record(seq, fields))
        return records

    def _noting(self, node: Any) -> Any:
        part = node["payload"]
        for key in self.note_at:
            part = part[key]
        return part

    def _rebuild(self, thread: ThreadId, records: Sequence[Record]) -> None:
        """Make the thread one with these records; the unchanged ones at its beginning keep their commits."""
        old, there = self._records(thread), self._commits(thread)
        same = 0
        while same < min(len(old), len(records)) and old[same].fields == records[same].fields:
            same += 1
        base = there[same - 1] if same else there[0].parents[0]
        self._point(thread, base.id)
        self._lengthen(thread, base, there[same:] or there[-1:], records[same:])

    def _lengthen(
        self,
        thread: ThreadId,
        base: pygit2.Commit,
        templates: Sequence[pygit2.Commit],
        records: Sequence[Record],
    ) -> None:
        for at, record in enumerate(records):
            template = templates[min(at, len(templates) - 1)]
            path, oid = _output(self._git, template)
            node = json.loads(self._git[oid].data)
            self._noting(node)["note"] = record.fields["note"]
            blob = self._git.create_blob(json.dumps(node, separators=(",", ":")).encode())
            tree = _with(self._git, template.tree, path, blob)
            base = self._commit(base, template, tree, record)
        self._point(thread, base.id)

    def _commit(
        self, parent: pygit2.Commit, template: pygit2.Commit, tree: pygit2.Oid, record: Record
    ) -> pygit2.Commit:
        name, email, when = record.fields["committer"].rsplit(" ", 2)
        by = pygit2.Signature(name, email, int(when), template.committer.offset)
        oid = self._git.create_commit(None, template.author, by, template.message, tree, [parent.id])
        return self._git[oid]

    def _point(self, thread: ThreadId, oid: pygit2.Oid) -> None:
        self._git.references.create(f"refs/uwf/threads/{thread}", oid, force=True)


class HashingAttacker(PlainAttacker):
    """Makes each changed step and those after it anew, with uwf's own library and no witness."""

    name = "hashing"

    def _lengthen(
        self,
        thread: ThreadId,
        base: pygit2.Commit,
        templates: Sequence[pygit2.Commit],
        records: Sequence[Record],
    ) -> None:
        if not records:
            return
        lab = self._lab
        genuine, lab.instance = lab.instance, Instance(lab.location, {})
        lab.grow(thread, len(records), [record.fields["note"] for record in records])
        lab.instance = genuine
        made = self._commits(thread)[-len(records) :]
        for commit, record in zip(made, records, strict=True):
            base = self._commit(base, commit, commit.tree_id, record)
        self._point(thread, base.id)


def _output(git: pygit2.Repository, commit: pygit2.Commit) -> tuple[str, pygit2.Oid]:
    """The path and blob of the output node of a step's commit."""
    lines = commit.message.split("\n")
    node = next(line.partition(": ")[2] for line in lines if line.startswith("Uwf-Step: "))
    files = dict(_files(git, commit.tree, ""))
    step = next(oid for path, oid in files.items() if path.endswith(f"/{node}.json"))
    output = json.loads(git[step].data)["payload"]["output"]
    path = next(path for path in files if path.endswith(f"/{output}.json"))
    return path, files[path]


def _files(git: pygit2.Repository, tree: pygit2.Tree, above: str) -> Iterator[tuple[str, pygit2.Oid]]:
    for entry in tree:
        if entry.type == pygit2.enums.ObjectType.TREE:
            yield from _files(git, git[entry.id], f"{above}{entry.name}/")
        else:
            yield f"{above}{entry.name}", entry.id


def _with(git: pygit2.Repository, tree: pygit2.Tree, path: str, blob: pygit2.Oid) -> pygit2.Oid:
    name, _, rest = path.partition("/")
    builder = git.TreeBuilder(tree)
    if rest:
        builder.insert(name, _with(git, git[tree[name].id], rest, blob), pygit2.enums.FileMode.TREE)
    else:
        builder.insert(name, blob, pygit2.enums.FileMode.BLOB)
    return builder.write()
