"""Verifying a suite's commits: each adds to the tree before and its message says what; a merge has both
sides. Fixtures are untrusted and may have executables and inner links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from uwf_git.ext.evaluation.node_types import CASE, CASE_REMOVAL, OF_SUITES, SCORE, SUITE, SUITE_RUN, TRIAL
from uwf_git.ext.evaluation.suite import (
    FIXTURES,
    case_folder,
    case_page,
    result_folder,
    suite_message,
    suite_page,
)
from uwf_git.plugin import (
    BadObject,
    CheckReport,
    Hash,
    KnownRecords,
    Node,
    Oid,
    VerifiedRecord,
    check_attributes,
    check_order,
    commit_row,
    files_below,
    layout,
    read_definitions,
    schemas,
    stands_for_modules,
    verified_objects,
)

DEEPEST = 60  # folders within folders of a fixture
LINK, PROGRAM = b"120000", b"100755"
_JUDGES = {
    "case": {"use", "jsonata", "exact", "schema", "workflow"},
    "score": {"command", "jsonata", "exact", "schema", "workflow"},
}
_TYPES = {
    CASE: "case",
    CASE_REMOVAL: "removal",
    TRIAL: "trial",
    SCORE: "score",
    SUITE_RUN: "run",
}
_KINDS = {"case": "case", "removal": "removed case", "trial": "result", "score": "result", "run": "run"}


class _CommitAdditions(NamedTuple):
    """A commit's additions: files by path, and fixtures by id."""

    files: dict[str, bytes]
    fixtures: dict[str, bytes]


def check_suite(
    known: KnownRecords, commit: verified_objects.CommitObject, node: Hash, report: CheckReport
) -> VerifiedRecord | None:
    """Check a commit after its parents; None if one is unreadable. Raises Bad."""
    if not all(known.records.get(parent.raw) for parent in commit.parents):
        return None
    parents = [record for parent in commit.parents if (record := known.records[parent.raw])]
    sides = [record for record in parents if record.row.kind == "suite"]
    others = parents[len(sides) :]
    if any(side.row.node != node for side in sides):
        report("wrong-parent", "the commit before is another suite's")
    if len(sides) > 2 or any(other.row.kind not in ("workflow", "start", "step") for other in others):
        report(
            "wrong-parent", "a commit of a suite follows one or two of its own, then come starts and steps"
        )
    if len(sides) == 2 and others:
        report("wrong-parent", "two sides of a suite are put together by themselves")

    added = _added(known.objects, commit.tree, [side.tree for side in sides], report)
    here = _read(known, added, report)
    content = here.get(node) or known.nodes.get(node)
    if content.type != SUITE:
        raise BadObject("wrong-kind", f"node {node} is not a Suite")
    name = content.payload["name"]
    _check_beginning(known, added, here, node, name, not sides, report)
    if len(sides) == 2 and (added.files or added.fixtures):
        report("extra-file", "what puts two sides of a suite together adds to them")
    counts = dict.fromkeys(("case", "removed case", "result", "run"), 0)
    for hash_, item in here.items():
        kind = _TYPES.get(item.type)
        if kind is not None:
            counts[_KINDS[kind]] += 1
            _check_place(known, added.files, hash_, item, kind, report)
            _check_references(known, commit, here, hash_, item, kind, others, report)
    known.message(commit, report, suite_message(name, node, counts))
    row = commit_row(commit.oid, "suite", node, commit.parents, commit.time)
    return VerifiedRecord(row._replace(name=name), commit.tree)


def _added(
    objects: verified_objects.Objects, tree: bytes, before: Sequence[bytes], report: CheckReport
) -> _CommitAdditions:
    files: dict[str, bytes] = {}
    fixtures: dict[str, bytes] = {}
    for path, (mode, _, oid) in _new(objects, tree, before, "", report):
        if f"{path}/" == FIXTURES:
            fixtures |= {verified_objects.shown_name(name): raw for _, name, raw in objects.tree(oid)}
        elif path.startswith(FIXTURES):
            fixtures[path.removeprefix(FIXTURES)] = oid
        elif mode == verified_objects.FOLDER:
            below = files_below(objects, oid, f"{path}/", report)
            files |= {f"{path}/{name}": blob for name, blob in below.items()}
        elif problem := verified_objects.mode_problem(mode):
            report("unsafe-mode", f"{path} is {problem}", Oid(raw=tree), path)
        else:
            files[path] = oid
    for name, raw in fixtures.items():
        if name != raw.hex():
            report("wrong-name", f"{FIXTURES}{name} is tree {raw.hex()}", Oid(raw=raw), f"{FIXTURES}{name}")
        for _, _, blob in files_of_fixture(objects, raw, report):
            objects.blob(blob)
    return _CommitAdditions(files, fixtures)


def _new(
    objects: verified_objects.Objects, tree: bytes, before: Sequence[bytes], where: str, report: CheckReport
) -> Iterator[tuple[str, verified_objects.Row]]:
    old: dict[bytes, list[verified_objects.Row]] = {}
    for content in before:
        for row in objects.tree(content):
            old.setdefault(row[1], []).append(row)
    rows = objects.tree(tree)
    check_order(rows, tree, where, report)
    for row in rows:
        mode, name, oid = row
        was = old.pop(name, [])
        path = where + verified_objects.shown_name(name)
        if not was:
            if problem := verified_objects.name_problem(name):
                report("unsafe-name", f"the name {path!r} {problem}", Oid(raw=tree), path)
            else:
                yield path, row
        elif all(item == row for item in was):
            continue
        elif mode == verified_objects.FOLDER and all(item[0] == verified_objects.FOLDER for item in was):
            yield from _new(objects, oid, [item[2] for item in was], f"{path}/", report)
        elif row != min(was, key=lambda entry: entry[2]):
            report("changed-file", f"{path} was changed", Oid(raw=tree), path)
    for name in old:
        path = where + verified_objects.shown_name(name)
        report("changed-file", f"{path} was removed", Oid(raw=tree), path)


def _read(known: KnownRecords, added: _CommitAdditions, report: CheckReport) -> dict[Hash, Node]:
    blobs: dict[Hash, bytes] = {}
    for path, blob in added.files.items():
        if (node := layout.node_in_path(path)) is not None:
            blobs[node] = blob
    return read_definitions(known.nodes, blobs, report)


def _check_beginning(
    known: KnownRecords,
    added: _CommitAdditions,
    here: Mapping[Hash, Node],
    node: Hash,
    name: str,
    is_first: bool,
    report: CheckReport,
) -> None:
    top = {".gitattributes", "README.md"}
    if is_first:
        check_attributes(known.objects, added.files, report)
        known.page(added.files, "", report, lambda: suite_page(name))
        for item in (schemas.META, *OF_SUITES, node):
            path = f"suite/{layout.node_file(item)}"
            top.add(path)
            if path not in added.files:
                report("missing-file", f"there is no {path}", path=path)
    for path in added.files:
        folder = path.split("/", 1)[0]
        inside = folder in ("cases", "removed", "results")
        if path not in top and not inside:
            report("extra-file", f"{path} does not belong to a suite", path=path)
        elif inside:
            named = layout.node_in_path(path)
            if named is None and not _is_page(path):
                report("extra-file", f"{path} is neither a node nor a page of one", path=path)
            elif named is not None and named in here and here[named].type not in _TYPES:
                report("extra-file", f"{path} is of a type that no suite holds", path=path)


def _is_page(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and parts[0] == "cases" and parts[2] == "README.md"


def _check_place(
    known: KnownRecords, files: Mapping[str, bytes], hash_: Hash, node: Node, kind: str, report: CheckReport
) -> None:
    payload = node.payload
    if kind == "case":
        folder = case_folder(payload["name"], hash_)
        page = {"README.md": blob} if (blob := files.get(f"{folder}/README.md")) else {}
        known.page(page, f"{folder}/", report, lambda: case_page(payload))
    else:
        folder = "removed" if kind == "removal" else result_folder(hash_)
    if f"{folder}/{layout.node_file(hash_)}" not in files:
        report("extra-file", f"{kind} {hash_} is not in {folder}/nodes")


def _check_references(
    known: KnownRecords,
    commit: verified_objects.CommitObject,
    here: Mapping[Hash, Node],
    hash_: Hash,
    node: Node,
    kind: str,
    others: Sequence[VerifiedRecord],
    report: CheckReport,
) -> None:
    """Check references: cases, trials and scores in the suite, steps in the parents' threads, fixtures beside
    it."""
    payload = node.payload
    for target in known.nodes.references(node, here):
        if target not in here:
            known.nodes.get(target)  # raises if it is missing
    heads = {record.row.node: record.row for record in others}
    needed = {"case": payload.get("step") or payload.get("start"), "trial": payload.get("last")}
    stands_on = needed.get(kind, payload.get("step"))
    if stands_on is not None and stands_on not in heads:
        report("wrong-parent", f"{kind} {hash_} depends on {stands_on}, which no parent records")
    elif stands_on is not None:
        row = heads[stands_on]
        if kind == "case" and payload["start"] != (row.start or row.node):
            report("wrong-chain", f"case {hash_} begins with {payload['start']}, its thread does not")
        if kind == "trial" and payload["workflow"] != row.workflow:
            report("wrong-chain", f"trial {hash_} is of another workflow than its thread")
    if kind == "case" and ("prompt" in payload) is ("start" in payload):
        report("breaks-schema", f"case {hash_} is neither of a thread nor a prompt")
    judges = {"case": payload.get("judges", ()), "score": [payload.get("judge")]}.get(kind, ())
    for judge in judges:
        kinds = judge.keys() & _JUDGES[kind]
        if len(kinds) != 1:
            report("breaks-schema", f"{kind} {hash_} has a judge of {len(kinds)} kinds")
    expected = {"removal": ["case"], "score": ["trial"]}.get(kind, ())
    wanted = [(payload[what], what) for what in expected]
    if kind == "case":
        wanted += [(replace, "case") for replace in payload.get("replaces", ())]
    for result in payload["results"] if kind == "run" else ():
        wanted += [
            (result["case"], "case"),
            (result["trial"], "trial"),
            *((score, "score") for score in result["scores"]),
        ]
    for target, what in wanted:
        content = here.get(target) or known.nodes.get(target)
        if _TYPES.get(content.type) != what:
            report("wrong-kind", f"{kind} {hash_} names {target}, which is not a {what}")
    for key in ("fixture", "work"):
        if (tree := payload.get(key)) is not None and not _has_fixture(known.objects, commit.tree, tree):
            report("missing-file", f"{kind} {hash_} names files {tree}, which are not in {FIXTURES}")


def _has_fixture(objects: verified_objects.Objects, root: bytes, tree: str) -> bool:
    rows = {name: (mode, oid) for mode, name, oid in objects.tree(root)}
    mode, oid = rows.get(FIXTURES.rstrip("/").encode(), (b"", b""))
    return mode == verified_objects.FOLDER and any(row[1] == tree.encode() for row in objects.tree(oid))


def files_of_fixture(
    objects: verified_objects.Objects, tree: bytes, report: CheckReport
) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield a fixture's files: paths, modes, ids. Reports and skips invalid names, links and entries. Raises
    Bad, also if too large."""
    where = f"{FIXTURES}{tree.hex()}/"
    pending = [("", tree, 1)]
    count = 0
    while pending:
        prefix, raw, depth = pending.pop()
        rows = objects.tree(raw)
        count += len(rows) + 1
        if depth > DEEPEST or count > verified_objects.COUNT_LIMIT:
            raise BadObject("tree-limit", f"{where} is too deep or holds too much", Oid(raw=tree))
        check_order(rows, raw, where + prefix, report)
        for mode, name, oid in rows:
            shown = where + prefix + verified_objects.shown_name(name)
            if problem := verified_objects.name_problem(name):
                report("unsafe-name", f"the name {shown!r} {problem}", Oid(raw=raw), shown)
                continue
            path = prefix + name.decode("utf-8")
            if mode == verified_objects.FOLDER:
                pending.append((f"{path}/", oid, depth + 1))
            elif mode == LINK and (problem := link_problem(path, objects.blob(oid))):
                report("unsafe-mode", f"{shown} is {problem}", Oid(raw=raw), shown)
            elif mode in (LINK, PROGRAM) or not (problem := verified_objects.mode_problem(mode)):
                yield path, mode, oid
            else:
                report("unsafe-mode", f"{shown} is {problem}", Oid(raw=raw), shown)


def link_problem(path: str, target: bytes) -> str | None:
    """Return what is wrong with a symbolic link, or None. One through other links may lead out."""
    to = target.decode("utf-8", "replace")
    parts = [part for part in to.split("/") if part not in ("", ".")]
    up = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    if to.startswith("/") or "\0" in to or ".." in parts[up:] or up > path.count("/"):
        return "a link that leads out of its folder"
    if stands_for_modules(path.rpartition("/")[2]):
        return "a link in the place of .gitmodules, which git refuses"
    return None
