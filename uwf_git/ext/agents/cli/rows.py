"""The shipped agent programs: files of `shipped/` in the form of users' rows. Their output was observed with the
versions in `OBSERVED`; Cursor's, which needs an account, is as documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from uwf_git.ext.agents.cli.row import AgentRow
from uwf_git.ext.agents.cli.row import parse_row as parse_agent_row

OBSERVED = {
    "claude-code": "2.1.330",
    "codex": "0.169.0",
    "gemini": "0.61.0",
    "opencode": "1.18.33",
    "hermes": "0.19.0",
    "qwen": "0.24.4",
    "copilot": "1.0.102",
    "llm-cli": "0.36",
}

NESTED = (
    *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_EXECPATH", "CLAUDE_PID"),
    *("CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_CHILD_NOTES_DIR", "CLAUDE_CODE_SESSION_ID", "AI_AGENT"),
    *("CLAUDE_CODE_SESSION_ATTENDED", "CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN"),
    *("CODEX_SESSION_ID", "CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID", "CODEX_CI", "CODEX_SANDBOX"),
    *("CODEX_SANDBOX_NETWORK_DISABLED", "GEMINI_CLI", "OPENCODE", "OPENCODE_PID", "OPENCODE_RUN_ID"),
    *("CURSOR_AGENT", "CURSOR_TRACE_ID"),
)
"""What these programs set for the commands they run. Started by one of those, a CLI would take itself for a part of
that session."""

_SHIPPED = Path(__file__).with_name("shipped")


def shipped_names() -> list[str]:
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def shipped_row(name: str) -> AgentRow | None:
    """Return a shipped row, or None."""
    return parse_agent_row(shipped_value(name), name)[0] if name in shipped_names() else None


def shipped_value(name: str) -> Any:
    """Return the value of a shipped row's file, in which `{shipped}` is the folder of these files."""
    from uwf_git.plugin import load_yaml

    text = (_SHIPPED / f"{name}.yaml").read_text("utf-8")
    return load_yaml(text.replace("{shipped}", json.dumps(str(_SHIPPED))[1:-1]), name).data
