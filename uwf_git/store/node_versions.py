"""Definitions of one node each, such as a suite's baseline, registered under a name in versions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

from uwf_git.base.errors import Invalid
from uwf_git.base.text import one_line
from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.ids import Hash, name_problem
from uwf_git.format.node import hash_of
from uwf_git.format.schema import Schema
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.version_files import VersionFiles
from uwf_git.store.versions import Version, Versions

Payload = Mapping[str, Any]


class NodeVersions(Versions[Payload]):
    """The definitions of one kind, each the normalised payload of its node.

        README.md               a page
        <record>/nodes/         the node and its type

    A kind has the nodes' `schema`, whose field `refs.name_field` is the name, and a page.
    """

    schema: ClassVar[Mapping[str, Any]]

    @classmethod
    @abstractmethod
    def page(cls, payload: Payload) -> bytes: ...

    @classmethod
    def type(cls) -> Hash:
        """Return the hash of the schema."""
        return _type_of(cls)

    def name_of(self, definition: Payload) -> str:
        return str(definition[self.refs.name_field])

    def node_of(self, definition: Payload) -> Hash:
        return hash_of(self.type(), definition)

    def message(self, name: str, node: Hash) -> str:
        return message(self.refs.records[0], self.refs.trailer, name, node)

    def holds(self, commit: Oid, definition: Payload) -> bool:
        return self._version(commit).hash == self.node_of(definition)

    def sources(self, definition: Payload) -> Iterator[tuple[str, str, bytes]]:
        return iter(())

    def definition(self, version: Version) -> Payload:
        """Return a version's definition. Raises NotFound, Invalid."""
        content = self._store.get(version.hash)
        if content.type != self.type():
            raise Invalid(f"node {version.hash} is not a {self.kind}", f"see: {self.refs.commands} list")
        payload: Payload = content.payload
        return payload

    def put(self, definition: Payload) -> Version:
        """Register a definition under its name. Raises Invalid if the schema or the name is violated."""
        return super().put(checked(type(self), cbor.normalise(definition)))

    @classmethod
    def is_in(cls, files: VersionFiles) -> bool:
        return files.has(cls.refs.records[0])

    @classmethod
    def read(cls, files: VersionFiles) -> Payload:
        folder = cls.refs.records[0]
        nodes = [node for node in files.nodes(folder).values() if node.type == cls.type()]
        if len(nodes) != 1:
            raise Invalid(f"there are {len(nodes)} nodes of a {folder} in {folder}/nodes, where there is one")
        return checked(cls, cbor.normalise(nodes[0].payload))

    def _tree(self, definition: Payload) -> Oid:
        kind = self.type()
        if kind not in BUILTIN:
            self._store.put(META, self.schema, timestamp=0)
        node = self._store.put(kind, definition, timestamp=0)
        files: dict[str, bytes | Oid] = {
            ".gitattributes": layout.GITATTRIBUTES,
            "README.md": self.page(definition),
        }
        for item in (META, kind, node):
            files[f"{self.kind}/{layout.node_file(item)}"] = self._store.blob_of(item)
        return self._repository.write_folder(files)


def checked(kind: type[NodeVersions], payload: Payload) -> Payload:
    """Return a valid definition with a name. Raises Invalid."""
    word, field = kind.refs.records[0], kind.refs.name_field
    if problems := Schema(kind.schema).problems(payload):
        raise Invalid(f"its {word} breaks the schema: {problems[0]}")
    if problem := name_problem(payload[field]):
        of = "it" if field == "name" else f"its {field}"
        raise Invalid(f"the name {one_line(payload[field], 40)!r} of {of} {problem}")
    return payload


def message(record: str, trailer: str, name: str, node: Hash) -> str:
    return layout.message(f"{record} {name} {node}", {trailer: node})


@cache
def _type_of(kind: type[NodeVersions]) -> Hash:
    return hash_of(META, kind.schema)
