"""The built-in agent: a model with tools, confined to its step's folder."""

from uwf_git.plugin import AgentProgram, ConfigSection, Extension

EXTENSION = Extension(
    "builtin",
    agents=(AgentProgram("uwf-builtin", "model", "uwf_git.ext.builtin.agent:agent", writes=True),),
    config=(ConfigSection("mcpServers", "uwf_git.ext.builtin.mcp_servers:read_servers"),),
)
