"""Nodes put by hand: `refs/uwf/nodes/<HASH>` keeps one, with all that it refers to, from being collected."""

from __future__ import annotations

from uwf_git.errors import HeadMoved
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.nodes import Store
from uwf_git.values.ids import Hash


def pin(store: Store, node: Hash) -> Oid:
    """Makes `refs/uwf/nodes/<HASH>`: a commit whose tree holds the node and its closure. Pinning a
    pinned node changes nothing. Raises NotFound for what isn't in the store."""
    ref = layout.PINS + node
    known = store.repository.ref(ref)
    if known is not None:
        return known
    files: dict[str, bytes | Oid] = {
        f"nodes/{layout.node_file(found)}": store.blob_of(found) for found, _content in store.walk(node)
    }
    tree = store.repository.write_folder({".gitattributes": layout.GITATTRIBUTES, **files})
    text = layout.pin_message(node)
    commit = store.repository.write_commit(tree, [], store.repository.user, text)
    store.take_in(commit)
    try:
        store.repository.create_ref(ref, commit)
    except HeadMoved:  # somebody pinned it meanwhile
        return store.repository.ref(ref) or commit
    return commit
