"""Workflows and threads as MCP tools."""

from uwf_git.plugin import Command, Extension

EXTENSION = Extension(
    "mcp",
    commands=(
        Command(
            "mcp",
            "uwf_git.ext.mcp.command:mcp",
            "Run an MCP server on stdin and stdout.",
            "Store and settings",
        ),
    ),
)
