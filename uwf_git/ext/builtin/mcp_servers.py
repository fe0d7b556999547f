"""The section `mcpServers` of `config.yaml`: {<name>: {command, args, url, env, tools, timeout}}."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import one_line

if TYPE_CHECKING:
    from uwf_git.plugin import Config, ConfigReader, ValuePath

SECTION = "mcpServers"
_FIELDS = ("command", "args", "url", "env", "tools", "timeout")


class McpServer(NamedTuple):
    """An MCP server: a command or a URL. `$NAME` in `env` is a variable. `tools` are globs, None for all;
    `timeout` is in seconds."""

    name: str
    command: tuple[str, ...]
    url: str
    env: Mapping[str, str]
    tools: tuple[str, ...] | None
    timeout: float | None


def servers_of(config: Config) -> Mapping[str, McpServer]:
    servers: Mapping[str, McpServer] = config.sections.get(SECTION, {})
    return servers


def read_servers(reader: ConfigReader, value: Any) -> Mapping[str, McpServer]:
    """Read the section."""
    return reader.entries(SECTION, value, partial(_read_server, reader))


def _read_server(reader: ConfigReader, path: ValuePath, value: Any) -> McpServer:
    name = str(path[-1])
    what = f'{SECTION} "{one_line(name, 40)}"'
    entry = reader.mapping(path, value, what, _FIELDS)
    command = entry.get("command")
    if isinstance(command, str):
        command = reader.command(path, command)
    else:
        command = reader.texts((*path, "command"), command) or ()
    args = reader.texts((*path, "args"), entry.get("args")) or ()
    url = reader.text(path, entry, "url")
    if bool(command) == bool(url):
        reader.refuse(path, f"{what} needs a command, or a url", "command: [npx, some-server]")
    timeout = reader.timeout(path, entry)
    tools = reader.texts((*path, "tools"), entry.get("tools"))
    env = reader.names((*path, "env"), entry.get("env"))
    return McpServer(name, (*command, *args), url, env, tools, timeout)
