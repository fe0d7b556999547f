"""Trees: harmless names, plain files and folders, and nothing changed but what a record adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.values.ids import Hash
from uwf_git.verify.findings import Bad
from uwf_git.verify.nodes import Report
from uwf_git.verify.objects import (
    COUNT_LIMIT,
    DEPTH_LIMIT,
    FOLDER,
    Objects,
    Row,
    mode_problem,
    name_problem,
    order_key,
    shown_name,
)


def files_below(objects: Objects, tree: bytes, folder: str, report: Report) -> dict[str, bytes]:
    """The files below a tree by their paths: the blobs' ids. Reports names and modes that no record has;
    such entries are not entered. `folder` is where the tree stands, for messages. Raises Bad."""
    found: dict[str, bytes] = {}
    pending = [("", tree, 1)]
    while pending:
        prefix, raw, depth = pending.pop()
        if depth > DEPTH_LIMIT:
            raise Bad("tree-limit", Oid(raw=raw), f"folders in {folder} are nested over {DEPTH_LIMIT} deep")
        rows = objects.tree(raw)
        if not rows:
            report("extra-file", Oid(raw=raw), f"{folder}{prefix} is an empty folder")
        _check_order(rows, raw, f"{folder}{prefix}", report)
        for row in rows:
            if not _is_harmless(row, raw, f"{folder}{prefix}", report):
                continue
            mode, name, oid = row
            path = prefix + name.decode("utf-8")
            if mode == FOLDER:
                pending.append((f"{path}/", oid, depth + 1))
            else:
                found[path] = oid
        if len(found) + len(pending) > COUNT_LIMIT:
            raise Bad("tree-limit", Oid(raw=tree), f"{folder} holds over {COUNT_LIMIT:,} files")
    return found


def _check_order(rows: Sequence[Row], raw: bytes, where: str, report: Report) -> None:
    keys = [order_key(row) for row in rows]
    if len({name for _, name, _ in rows}) != len(rows):
        report("malformed", Oid(raw=raw), f"tree {where or '/'} has a name twice")
    elif keys != sorted(keys):
        report("malformed", Oid(raw=raw), f"tree {where or '/'} is not in git's order")


def _is_harmless(row: Row, raw: bytes, where: str, report: Report) -> bool:
    mode, name, _ = row
    if problem := name_problem(name):
        report("unsafe-name", Oid(raw=raw), f"the name {shown_name(name)!r} in {where or '/'} {problem}")
        return False
    if problem := mode_problem(mode):
        report("unsafe-mode", Oid(raw=raw), f"{where}{shown_name(name)} is {problem}")
        return False
    return True


def grown(
    objects: Objects,
    new: bytes,
    old: bytes | None,
    folders: Sequence[str],
    report: Report,
    also: Mapping[bytes, bytes] | None = None,
) -> bytes:
    """The tree of a folder that is all that `new` has more than `old`. `also` names the files that it
    may have besides, at its top, with their modes. Reports every other difference; raises Bad where the
    folder isn't there."""
    where = ""
    allowed = set(also or ())
    for depth, folder in enumerate(folders, 1):
        name = folder.encode("utf-8")
        rows, before = objects.tree(new), objects.tree(old) if old is not None else []
        row = _row(rows, name)
        was = _row(before, name)
        if not _only_the_last_grew(rows, before, name):
            same_but = {name, *allowed}
            kept = [each for each in rows if each[1] not in same_but]
            if kept != [each for each in before if each[1] not in same_but]:
                _report_changes(rows, before, same_but, new, where, report)
            _check_order(rows, new, where, report)
        if row is None:
            raise Bad("missing-file", Oid(raw=new), f"there is no {where}{folder}, which the record adds")
        if row[0] != FOLDER:
            raise Bad("unsafe-mode", Oid(raw=new), f"{where}{folder} is no folder")
        if was is not None and depth == len(folders):
            report("changed-file", Oid(raw=new), f"{where}{folder} was there before")
        new, old = row[2], was[2] if was is not None and was[0] == FOLDER else None
        where, allowed = f"{where}{folder}/", set()
    return new


def _only_the_last_grew(rows: Sequence[Row], before: Sequence[Row], name: bytes) -> bool:
    """Whether a folder is as it was but for a last entry of that name, which is new or holds something
    else: so it is with nearly every step, and nothing more needs to be looked at."""
    if not before or rows[:-1] != before[: len(rows) - 1] or not rows or rows[-1][1] != name:
        return False
    if len(rows) == len(before):
        return rows[-1][:2] == before[-1][:2]
    return len(rows) == len(before) + 1 and order_key(before[-1]) < order_key(rows[-1])


def _row(rows: Sequence[Row], name: bytes) -> Row | None:
    return next((row for row in reversed(rows) if row[1] == name), None)


def row_of(objects: Objects, tree: bytes, name: str) -> Row | None:
    """An entry of a tree, or None."""
    return _row(objects.tree(tree), name.encode("utf-8"))


def _report_changes(
    rows: Sequence[Row],
    before: Sequence[Row],
    expected: set[bytes],
    tree: bytes,
    where: str,
    report: Report,
) -> None:
    old = {row[1]: row for row in before if row[1] not in expected}
    new = {row[1]: row for row in rows if row[1] not in expected}
    for name, row in new.items():
        shown = f"{where}{shown_name(name)}"
        if name not in old:
            if _is_harmless(row, tree, where, report):
                report("extra-file", Oid(raw=tree), f"{shown} does not belong to the record")
        elif old[name] != row:
            report("changed-file", Oid(raw=tree), f"{shown} was changed")
    for name in old.keys() - new.keys():
        report("changed-file", Oid(raw=tree), f"{where}{shown_name(name)} was removed")


def node_files(files: Mapping[str, bytes], folder: str) -> dict[Hash, bytes]:
    """The node files among the files of a folder: `nodes/<hash>.json` and no deeper."""
    found: dict[Hash, bytes] = {}
    prefix = f"{folder}nodes/"
    for path, blob in files.items():
        if path.startswith(prefix):
            node = layout.node_in_path(path)
            if node is not None and path == f"{prefix}{layout.node_file(node)}":
                found[node] = blob
    return found
