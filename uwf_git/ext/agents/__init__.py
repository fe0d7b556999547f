"""The agents that ship."""

from uwf_git.plugin import AgentProgram, Command, ConfigSection, Extension

_CLI = "uwf_git.ext.agents.cli.agent:agent_called"

EXTENSION = Extension(
    "agents",
    commands=(
        Command("agent list", "uwf_git.ext.agents.commands:list_", "List all known agents."),
        Command("agent check", "uwf_git.ext.agents.commands:check", "Test whether an agent answers."),
        Command(
            "import session",
            "uwf_git.ext.agents.session_import:import_session",
            "Import sessions that agents' programs have logged.",
            "Store and settings",
        ),
    ),
    agents=(
        AgentProgram("uwf-rehearse", "rehearsal", "uwf_git.ext.agents.rehearse:agent"),
        AgentProgram("uwf-human", "human", "uwf_git.ext.agents.human:agent"),
        AgentProgram("uwf-exec", "command", "uwf_git.ext.agents.exec:agent"),
        AgentProgram("uwf-llm", "model", "uwf_git.ext.agents.llm:agent"),
        AgentProgram("uwf-workflow", "workflow", "uwf_git.ext.agents.workflow:agent"),
        AgentProgram("uwf-acp", "protocol", "uwf_git.ext.agents.acp.agent:agent", writes=True),
        AgentProgram("uwf-cli", "cli", _CLI, writes=True),
        AgentProgram("uwf-claude-code", "cli", _CLI, "claude", writes=True),
        AgentProgram("uwf-codex", "cli", _CLI, writes=True),
        AgentProgram("uwf-gemini", "cli", _CLI, writes=True),
        AgentProgram("uwf-opencode", "cli", _CLI, writes=True),
        AgentProgram("uwf-hermes", "cli", _CLI, writes=True),
        AgentProgram("uwf-qwen", "cli", _CLI, writes=True),
        AgentProgram("uwf-copilot", "cli", _CLI, writes=True),
        AgentProgram("uwf-cursor", "cli", _CLI, "cursor-agent", writes=True),
        AgentProgram("uwf-llm-cli", "cli", _CLI),
    ),
    config=(ConfigSection("agentClis", "uwf_git.ext.agents.cli.row:read_rows"),),
)
