"""The section `bundles` of `config.yaml`: {<workflow>: {network, read, write, timeout}}."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uwf_git.plugin import Config, ConfigReader, ValuePath

SECTION = "bundles"
_FIELDS = ("network", "read", "write", "timeout")


class Grants(NamedTuple):
    """Permissions of a code workflow's sandbox: network, readable and writable folders (absolute or below
    `~`), and `timeout` in seconds for its own code in a step."""

    network: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout: float = 600.0


def grants_of(config: Config, workflow: str) -> Grants:
    """Return the permissions of a workflow's code."""
    by_workflow: Mapping[str, Grants] = config.sections.get(SECTION, {})
    return by_workflow.get(workflow, Grants())


def read_grants(reader: ConfigReader, value: Any) -> Mapping[str, Grants]:
    """Read the section."""
    return reader.entries(SECTION, value, partial(_read_grants, reader))


def _read_grants(reader: ConfigReader, path: ValuePath, value: Any) -> Grants:
    entry = reader.mapping(path, value, f'{SECTION} "{one_line(str(path[-1]), 40)}"', _FIELDS)
    network = entry.get("network")
    if not isinstance(network, bool | None):
        reader.refuse((*path, "network"), "network is true or false")
    folders = {key: reader.texts((*path, key), entry.get(key)) or () for key in ("read", "write")}
    for key, named in folders.items():
        for item in named:
            if not item.startswith(("/", "~/")):
                reader.refuse(
                    (*path, key), f"{key}: {one_line(item, 60)} is not an absolute path", "or ~/folder"
                )
    timeout = reader.timeout(path, entry) or Grants().timeout
    return Grants(network is True, folders["read"], folders["write"], timeout)
