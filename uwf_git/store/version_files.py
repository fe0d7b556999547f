"""Reading the files of a version's tree, which anyone may have pushed, with checks first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import one_line
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.document import MAX_BYTES
from uwf_git.format.ids import Hash
from uwf_git.format.node import Node, from_blob
from uwf_git.git.objects import COUNT_LIMIT
from uwf_git.git.repository import BLOB_MODE, Entry, Oid, Repository
from uwf_git.store import layout

_LARGEST_FOLDER = 1 << 20
_FILE_MODES = (BLOB_MODE, "100755")


class VersionFiles:
    """The files of a tree. Links, submodules and oversized files are refused before reading."""

    def __init__(self, repository: Repository, root: Oid, what: str) -> None:
        """`what` names the version in messages."""
        self.what = what
        self._repository = repository
        self._root = root

    def has(self, name: str) -> bool:
        """Return whether the root has an entry of this name."""
        return any(entry.name == name for entry in entries(self._repository, self._root, self.what))

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes:
        """Read a file. Raises NotFound, Invalid, and TooLarge beyond the limit in bytes."""
        folder = self._root
        *folders, name = path.split("/")
        for part in folders:
            folder = self._folder(folder, part)
        return self._content(path, self._entry(folder, name), limit)

    def below(self, path: str, most: int, limit: int) -> Iterator[tuple[str, bytes]]:
        """Yield every file below a folder by relative path. Raises NotFound, Invalid for more than `most`
        files, TooLarge beyond the total limit in bytes."""
        folders = [("", self._folder(self._root, path))]
        for prefix, folder in folders:  # grows while it is walked
            for entry in entries(self._repository, folder, self.what):
                if entry.is_tree:
                    folders.append((f"{prefix}{entry.name}/", entry.oid))
                else:
                    data = self._content(f"{path}/{prefix}{entry.name}", entry, limit)
                    limit, most = limit - len(data), most - 1
                    yield prefix + entry.name, data
                if most < 0 or len(folders) > COUNT_LIMIT:
                    raise Invalid(f"{self.what} has too many files in {path}")

    def nodes(self, folder: str) -> dict[Hash, Node]:
        """Return the nodes of a folder except built-in types. Raises NotFound, Invalid, TooLarge."""
        at = self._folder(self._folder(self._root, folder), "nodes")
        listed = (
            layout.node_in_path(f"nodes/{entry.name}") for entry in entries(self._repository, at, self.what)
        )
        return {
            node: from_blob(self.read(f"{folder}/{layout.node_file(node)}"), node)
            for node in listed
            if node is not None and node not in BUILTIN
        }

    def _content(self, path: str, entry: Entry, limit: int) -> bytes:
        if entry.mode not in _FILE_MODES:
            raise Invalid(f"{one_line(path, 80)} is not a file", "links and submodules are not followed")
        return self._repository.read_within(entry.oid, limit)[1]

    def _folder(self, folder: Oid, name: str) -> Oid:
        entry = self._entry(folder, name)
        if not entry.is_tree:
            raise Invalid(f"{one_line(name, 80)} is not a folder")
        return entry.oid

    def _entry(self, folder: Oid, name: str) -> Entry:
        listed = entries(self._repository, folder, self.what)
        entry = next((entry for entry in listed if entry.name == name), None)
        if entry is None:
            raise NotFound(f"{self.what} has no {one_line(name, 80)}")
        return entry


def entries(repository: Repository, folder: Oid, what: str) -> Sequence[Entry]:
    """Return a folder's entries. Raises Invalid if there are too many."""
    if repository.header(folder)[1] > _LARGEST_FOLDER:
        raise Invalid(f"a folder of {what} has too many entries")
    return repository.tree(folder)
