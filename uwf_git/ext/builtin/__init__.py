"""The built-in agent: a model with tools, confined to its step's folder."""

from uwf_git.plugin import AgentProgram, Extension

EXTENSION = Extension(
    "builtin",
    agents=(AgentProgram("uwf-builtin", "model", "uwf_git.ext.builtin.agent:agent", writes=True),),
)
