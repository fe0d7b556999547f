"""What is fuzzed: for each place where bytes come in that anybody may have made, a function of such bytes that returns
where all is well. Of what it calls only the errors that are documented may come out; those it swallows. Whatever else
is raised is a finding, a claim that doesn't hold among them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.config.read import wrong_values
from uwf_git.config.secrets import Redactor
from uwf_git.engine.kit.answer import parse_answer
from uwf_git.ext.crews.jsonlogic import translated
from uwf_git.ext.crews.package import hidden_files, read_archive
from uwf_git.ext.importers.cbor_decoding import decode
from uwf_git.format import cbor, yaml12
from uwf_git.format.node import from_blob, node_hash, parse_json, to_blob
from uwf_git.git.objects import parse_commit, parse_tag, parse_tree, rewritten_commit, tree_row
from uwf_git.git.program import CallResult, failure
from uwf_git.git.repository import COMMIT, TAG, TREE, Oid, Repository
from uwf_git.store.layout import parse_message
from uwf_git.sync.tracking import rows_of
from uwf_git.sync.transfer import results_of
from uwf_git.verify.findings import Bad
from uwf_git.verify.objects import Objects, mode_problem, name_problem, shown_name
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.source import parse_source

CORPORA = Path(__file__).parent / "corpora"
LARGEST = 4096  # bytes of an input


def frontmatter(data: bytes) -> None:
    """An agent's answer: nothing is raised, and however its lines end, it says the same."""
    text = data.decode("utf-8", "replace").replace("\r", "")
    answer = parse_answer(text)
    assert repr(parse_answer(text.replace("\n", "\r\n"))) == repr(answer)


def workflow(data: bytes) -> None:
    """A workflow's file: the same file has the same hash, and its node can be written and read."""
    with contextlib.suppress(UwfError):
        compiled = compile_source(parse_source(data, "fuzzed.yaml"))
        assert compile_source(parse_source(data, "another.yaml")).hash == compiled.hash
        assert decode(cbor.encode(compiled.payload)) == compiled.payload


def node(data: bytes) -> None:
    """A node's file: whatever is read is written so that it is read as the same."""
    with contextlib.suppress(UwfError):
        found = from_blob(data, "fuzzed")
        again = from_blob(to_blob(found), "written")
        assert again == found
        assert node_hash(again) == node_hash(found)


def canonical(data: bytes) -> None:
    """CBOR: what can be decoded is what encoding gives; JSON that can be encoded can be decoded."""
    with contextlib.suppress(UwfError):
        assert cbor.encode(decode(data)) == data
    with contextlib.suppress(UwfError, UnicodeDecodeError):
        value = parse_json(data.decode("utf-8"))
        assert cbor.encode(decode(cbor.encode(value))) == cbor.encode(value)


class _Fetched(NamedTuple):
    """A repository with one object, whatever is asked for."""

    kind: int
    data: bytes

    def read_within(self, _oid: Oid, _at_most: int) -> tuple[int, bytes]:
        return self.kind, self.data


def _verified(kind: int, data: bytes) -> Objects:
    return Objects(cast(Repository, _Fetched(kind, data)))


_OID = Oid(hex="1" * 40)


def commit(data: bytes) -> None:
    """A commit or a tag as it was fetched, read in the lenient way and in the strict one."""
    with contextlib.suppress(ValueError):
        found = parse_commit(data)
        parse_message(found.message)
        assert parse_commit(rewritten_commit(data, found.tree, found.parents, None)).tree == found.tree
    with contextlib.suppress(ValueError):
        parse_tag(data)
    with contextlib.suppress(Bad):
        _verified(COMMIT, data).commit(_OID)
    with contextlib.suppress(Bad):
        _verified(TAG, data).tag(_OID)


def tree(data: bytes) -> None:
    """A tree as it was fetched: what is read of it is written as the same bytes, and each name can be judged."""
    with contextlib.suppress(ValueError):
        assert b"".join(map(tree_row, parse_tree(data))) == data
    with contextlib.suppress(Bad):
        rows = _verified(TREE, data).tree(_OID.raw)
        assert b"".join(b"%s %s\0%s" % row for row in rows) == data
        for mode, name, _ in rows:
            mode_problem(mode)
            name_problem(name)
            assert shown_name(name).isprintable()


def porcelain(data: bytes) -> None:
    """What git prints of a push or a fetch, which repeats what the other side says: one line for people, and names
    without a space."""
    out, _, err = data.partition(b"\0")
    done = CallResult(1, out, err.decode("utf-8", "replace"))
    dict(results_of(done, {"refs/uwf/threads/X": _OID}))
    for _, _, name in rows_of(done.err) or ():
        assert len(name.split()) == 1
    told = failure(("push",), done)
    assert told.message == one_line(told.message, 1000)


def config(data: bytes) -> None:
    """The user's configuration: all that is wrong with it is said, in its place."""
    with contextlib.suppress(UwfError):
        for problem in wrong_values(yaml12.load(data, "config.yaml"), Path("/nowhere/config.yaml")):
            assert problem.line >= 1 and problem.message


_KEY = "Zx81-kQ93_mfLw72\nhYtB50+Q1aB"
_SECRETS = Redactor({"KEY": _KEY, "WORD": "hunter2hunter2"})


def secrets(data: bytes) -> None:
    """A text in which known secrets stand anywhere: none of them is left, and the rest has none."""
    text = data.decode("utf-8", "replace").replace("\x01", _KEY).replace("\x02", "hunter2hunter2")
    clean, _ = _SECRETS.text(text)
    assert _KEY not in clean and "hunter2hunter2" not in clean
    assert Redactor({"KEY": _KEY, "WORD": "hunter2hunter2"}).text(clean) == (clean, 0)


def jsonlogic(data: bytes) -> None:
    """A rule of a package: it becomes an expression, or is refused."""
    with contextlib.suppress(UwfError, UnicodeDecodeError):
        translated(parse_json(data.decode("utf-8")))


def package(data: bytes) -> None:
    """A package's ZIP."""
    with contextlib.suppress(UwfError):
        found = read_archive(data, "fuzzed.bmad")
        assert not {path for path, _ in hidden_files(data)} & found.files.keys()


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        frontmatter,
        workflow,
        node,
        canonical,
        commit,
        tree,
        porcelain,
        config,
        secrets,
        jsonlogic,
        package,
    )
}
