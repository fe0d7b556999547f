"""`uwf mcp`."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from uwf_git.plugin import (
    NO_APPROVALS_VARIABLE,
    ROOT_VARIABLES,
    Invocation,
    NotFound,
    UwfError,
    as_json,
    command,
    install_hint,
    itself,
    terminal,
)


@command(
    "uwf mcp --print-config                     what a client's configuration needs",
    "uwf mcp --read-only --cwd ~/project        as a client starts it",
)
@click.option("--read-only", is_flag=True, help="Offer read-only tools only.")
@click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for agents and workflow files. Default: the current one.",
)
@click.option("--print-config", is_flag=True, help="Print the configuration for an MCP client.")
def mcp(invocation: Invocation, read_only: bool, cwd: Path | None, print_config: bool) -> None:
    """Run an MCP server on standard input and output.

    Started by an MCP client. It can list, show, read and rehearse, and without --read-only start, step,
    retry, answer, fork and kill threads. Agents come from config.yaml; clients cannot name others.
    """
    folder = _enter(cwd)
    if print_config:
        value = _configuration(invocation, read_only, folder if cwd else None)
        invocation.emit_document(as_json(value) + "\n", value)
        return
    if find_spec("mcp") is None:
        raise UwfError("uwf mcp needs the package mcp", install_hint("mcp"))
    if terminal.is_terminal(sys.stdin):
        invocation.warn("an MCP client has to start this; its configuration: uwf mcp --print-config")
    import logging

    from uwf_git.ext.mcp.server import serve

    os.environ[NO_APPROVALS_VARIABLE] = "1"  # for the commands that it starts
    if os.environ.get("UWF_DEBUG") != "1":
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
    serve(invocation.location, folder, read_only)


def _enter(cwd: Path | None) -> Path:
    """Change to the given folder. Raises NotFound."""
    if cwd is not None:
        folder = cwd.expanduser()
        if not folder.is_dir():
            raise NotFound(f"no folder {cwd}", "create it first")
        os.chdir(folder)
    return Path.cwd()


def _configuration(invocation: Invocation, read_only: bool, folder: Path | None) -> dict[str, Any]:
    """Return this server's entry for a client's configuration, with absolute paths, since clients use their
    own folder and environment."""
    location = invocation.location
    args = ["mcp", *(["--read-only"] if read_only else [])]
    if invocation.root_option or any(os.environ.get(name) for name in ROOT_VARIABLES):
        args += ["--root", str(location.root)]
    if folder is not None or location.here:
        args += ["--cwd", str(folder or Path.cwd())]
    program = shutil.which("uwf")
    command, *before = [program] if program else itself(None)
    return {"mcpServers": {"uwf": {"command": command, "args": [*before, *args]}}}
