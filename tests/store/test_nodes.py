"""Nodes in git: what is put is checked, what is read is what was put, what is damaged is named."""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from uwf_git.base.errors import HashCollision, Invalid, NotFound, StoreDamaged
from uwf_git.format.builtin import META
from uwf_git.format.ids import Hash
from uwf_git.format.node import Node, hash_of, self_hash, to_blob
from uwf_git.format.types import DETAIL, STARTNODE, TEXT
from uwf_git.git.repository import BLOB_MODE, Entry, Oid, Repository
from uwf_git.store.indexing import Store, pin
from uwf_git.store.instance import Instance
from uwf_git.store.node_rows import NodeRow

MISSING = Hash("0000000000001")


@pytest.fixture
def store(instance: Instance) -> Store:
    return instance.store


def reopened(store: Store) -> Store:
    return Store.open(store.repository.path)


def test_a_node_put_is_read_back_by_another_process_as_it_was(store: Store) -> None:
    text = "e\u0301 \0 \x1b[31m 小橘 🍊 \ufeff"
    node = store.put(TEXT, text, timestamp=5)
    assert reopened(store).get(node) == Node(TEXT, text, 5)


def test_putting_a_node_twice_keeps_the_first(store: Store) -> None:
    node = store.put(TEXT, "x", timestamp=1)
    assert store.put(TEXT, "x", timestamp=2) == node
    assert reopened(store).get(node).timestamp == 1


def test_an_integral_float_is_the_integer(store: Store) -> None:
    schema = store.put(META, {"type": "number"})
    assert store.put(schema, 3.0) == store.put(schema, 3)
    assert store.get(store.put(schema, -0.0)).payload == 0


@pytest.mark.parametrize(
    ("type_hash", "payload", "error"),
    [
        (MISSING, 1, NotFound),
        (TEXT, 1, Invalid),
        (META, {"type": "strin"}, Invalid),
        (STARTNODE, {"workflow": MISSING, "prompt": "p"}, Invalid),
        (STARTNODE, {"workflow": "../../escaped", "prompt": "p"}, Invalid),
        (DETAIL, {"answer": "a"}, Invalid),
        (TEXT, "\ud800", Invalid),
    ],
)
def test_a_bad_put_is_refused_and_leaves_nothing(
    store: Store, type_hash: Hash, payload: Any, error: Any
) -> None:
    before = store.index.node_count()
    with pytest.raises(error):
        store.put(type_hash, payload)
    assert store.index.node_count() == before


def test_a_type_that_is_no_schema_is_refused(store: Store) -> None:
    text = store.put(TEXT, "not a schema")
    with pytest.raises(Invalid, match="not a schema"):
        store.put(text, "x")


def test_a_foreign_bootstrap_node_comes_along_and_can_be_a_type(store: Store) -> None:
    payload = {"type": ["object", "boolean"], "title": "another meta-schema"}
    own = self_hash(payload)
    store.adopt([(own, store.repository.write_blob(to_blob(Node(own, payload, 0))))])
    assert store.get(own).type == own
    schema = store.put(own, {"type": "integer"})
    assert store.get(store.put(schema, 4)).payload == 4
    with pytest.raises(Invalid):
        store.put(schema, "four")


def test_two_contents_under_one_hash_are_both_named_and_the_first_kept(store: Store) -> None:
    node = store.put(TEXT, "the first")
    other = store.repository.write_blob(to_blob(Node(TEXT, "another", 1)))
    store.index.set_nodes(
        [NodeRow(hash_of(TEXT, "the second"), TEXT, other.raw, "")]
    )  # as a collision would leave it
    with pytest.raises(HashCollision, match=str(other)):
        store.put(TEXT, "the second")
    assert reopened(store).get(node).payload == "the first"


def test_a_lost_index_loses_no_node_that_a_ref_leads_to(store: Store) -> None:
    node = store.put(TEXT, "kept")
    pin(store, node)
    for file in store.repository.private.glob("index.db*"):
        file.unlink()
    again = reopened(store)
    assert again.get(node).payload == "kept"


@pytest.mark.parametrize("garbage", [b"", b"not a database at all", b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_corrupt_index_is_rebuilt_without_a_word(store: Store, garbage: bytes) -> None:
    node = store.put(TEXT, "kept")
    pin(store, node)
    store.index.close()
    for file in store.repository.private.glob("index.db*"):
        file.unlink()
    (store.repository.private / "index.db").write_bytes(garbage)
    assert reopened(store).get(node).payload == "kept"


def test_an_index_that_breaks_while_open_is_rebuilt(store: Store) -> None:
    node = store.put(TEXT, "kept")
    pin(store, node)
    store.index.close()
    other = reopened(store)
    path = store.repository.private / "index.db"
    path.write_bytes(b"\0" * path.stat().st_size)
    assert other.get(node).payload == "kept"
    assert other.put(TEXT, "more")


def loose(repository: Repository, oid: Oid) -> Path:
    name = str(oid)
    path = repository.path / "objects" / name[:2] / name[2:]
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("keep", [0, 1, 5, 20, -1])
def test_a_truncated_object_is_named_and_nobody_hangs(store: Store, keep: int) -> None:
    node = store.put(TEXT, "x" * 5000 + os.urandom(50).hex())
    path = loose(store.repository, store.blob_of(node))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StoreDamaged, match=str(store.blob_of(node))):
        reopened(store).get(node)


def test_a_flipped_byte_is_noticed(store: Store) -> None:
    node = store.put(TEXT, "approved: false")
    path = loose(store.repository, store.blob_of(node))
    data = zlib.decompress(path.read_bytes())
    path.write_bytes(zlib.compress(data.replace(b"false", b"true ")))
    with pytest.raises(StoreDamaged, match="not what its id says"):
        reopened(store).get(node)


def test_a_deleted_object_is_named(store: Store) -> None:
    node = store.put(TEXT, "gone")
    loose(store.repository, store.blob_of(node)).unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        reopened(store).get(node)


def test_putting_a_node_whose_object_was_lost_heals_it(store: Store) -> None:
    node = store.put(TEXT, "again")
    loose(store.repository, store.blob_of(node)).unlink()
    healer = reopened(store)
    assert healer.put(TEXT, "again") == node
    assert reopened(store).get(node).payload == "again"


def in_a_pack_too(store: Store, node: Hash) -> tuple[Path, Path]:
    """The file of a node's object, and a pack of it alone."""
    folder, oid = store.repository.path / "objects", store.blob_of(node)
    pack = ["git", "pack-objects", "-q", str(folder / "pack/pack")]
    done = subprocess.run(
        pack, input=f"{oid}\n".encode(), cwd=store.repository.path, capture_output=True, check=True
    )
    packed = folder / f"pack/pack-{done.stdout.decode().strip()}.pack"
    packed.chmod(0o644)
    return loose(store.repository, oid), packed


def test_of_two_copies_of_an_object_one_may_be_damaged(store: Store) -> None:
    for number in (0, 1):
        node = store.put(TEXT, "x" * 5000 + f"{number}")
        damaged = in_a_pack_too(store, node)[number]
        damaged.write_bytes(damaged.read_bytes()[:20] + bytes(30))
        assert reopened(store).get(node).payload[-1] == f"{number}"
        assert reopened(store).repository.read_within(store.blob_of(node), 9000)[1]


def test_another_content_in_a_pack_is_noticed(store: Store) -> None:
    node, other = (store.put(TEXT, f"approved: {said}") for said in ("true", "fals"))
    (alone, packed), (_, of_other) = in_a_pack_too(store, node), in_a_pack_too(store, other)
    alone.unlink()
    packed.write_bytes(of_other.read_bytes())
    for read in (
        lambda: reopened(store).get(node),
        lambda: reopened(store).repository.read_within(store.blob_of(node), 900),
    ):
        with pytest.raises(StoreDamaged, match=str(store.blob_of(node))):
            read()


def test_what_others_pack_meanwhile_is_still_read(store: Store) -> None:
    nodes = [store.put(TEXT, f"number {number}") for number in range(3)]
    for node in nodes:
        pin(store, node)
    reader = reopened(store)
    for node in nodes:
        assert reader.get(node).payload
        subprocess.run(["git", "gc", "-q", "--prune=now"], cwd=store.repository.path, check=True)


def commit_with(store: Store, name: str, data: bytes) -> Oid:
    blob = store.repository.write_blob(data)
    nodes = store.repository.write_tree([Entry(BLOB_MODE, f"{name}.json", blob)])
    tree = store.repository.graft(None, ["nodes"], nodes)
    return store.repository.write_commit(tree, [], store.repository.user, f"x\n\nUwf-Node: {name}\n")


def test_a_node_that_lies_about_its_hash_is_not_taken_in(store: Store) -> None:
    lie = hash_of(TEXT, "what it says")
    commit = commit_with(store, lie, to_blob(Node(TEXT, "what it is", 1)))
    with pytest.raises(StoreDamaged, match=f"says it is node {lie}"):
        store.index_commit(commit)
    assert not store.has(lie)


def test_a_commit_that_plain_git_brought_is_taken_in_at_the_next_miss(store: Store) -> None:
    node = hash_of(TEXT, "from elsewhere")
    commit = commit_with(store, node, to_blob(Node(TEXT, "from elsewhere", 1)))
    git = ["git", "--git-dir", str(store.repository.path)]
    subprocess.run([*git, "update-ref", f"refs/uwf/nodes/{node}", str(commit)], check=True)
    assert store.get(node).payload == "from elsewhere"


def test_our_object_ids_are_gits(store: Store) -> None:
    node = store.put(TEXT, "same")
    blob = store.blob_of(node)
    git = ["git", "--git-dir", str(store.repository.path)]
    shown = subprocess.run([*git, "cat-file", "blob", str(blob)], check=True, capture_output=True).stdout
    assert shown == to_blob(store.get(node))
    tree = store.repository.write_folder({"b/c.txt": b"1", "b.txt": b"2", "b-c": b"3", "a/é 小": b"4"})
    strict = subprocess.run(
        [*git, "fsck", "--strict", str(tree)], capture_output=True, text=True, check=False
    )
    assert (strict.returncode, "error" in strict.stderr + strict.stdout) == (0, False)


@pytest.mark.parametrize("option", ["--ref-format=reftable", "--object-format=sha256"])
def test_a_repository_that_libgit2_cannot_open_is_refused_with_a_remedy(tmp_path: Path, option: str) -> None:
    made = subprocess.run(
        ["git", "init", "-q", option, str(tmp_path / "r")], capture_output=True, check=False
    )
    if made.returncode:  # an older git knows no reftable: what it would write is known
        subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True)
        config = tmp_path / "r" / ".git" / "config"
        config.write_text("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n")
    with pytest.raises(Invalid) as caught:
        Repository(tmp_path / "r" / ".git")
    assert "SHA-1 and the files ref backend" in caught.value.hint


def test_the_store_is_made_with_sha1_and_files_whatever_git_defaults_to(hermetic: Path) -> None:
    defaults = "[init]\n\tdefaultObjectFormat = sha256\n\tdefaultRefFormat = reftable\n"
    defaults += "[safe]\n\tbareRepository = explicit\n"
    (hermetic / ".gitconfig").write_text(defaults)
    made = Store(Repository.create(hermetic / "new" / "store.git"))
    assert made.put(TEXT, "x")
    config = (made.repository.path / "config").read_text()
    assert "objectformat" not in config.lower() and "refstorage" not in config.lower()
