"""Workflows and threads as tools of the Model Context Protocol."""

from uwf_git.ext import Command, Extension

EXTENSION = Extension(
    "mcp",
    commands=(
        Command(
            "mcp",
            "uwf_git.ext.mcp.command:mcp",
            "Serve workflows and threads to an MCP client.",
            "Store and settings",
        ),
    ),
)
