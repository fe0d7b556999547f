"""The shipped agent programs, in the form of users' rows. Their output was observed with the versions in
`OBSERVED`; Cursor's, which needs an account, is as documented."""

from __future__ import annotations

from collections.abc import Mapping
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

_CLAUDE_ENDS = (
    *("error_max_turns", "error_during_execution", "error_max_budget_usd"),
    "error_max_structured_output_retries",
)

_WHOLE = {"message.stop_reason": [None, "end_turn", "stop_sequence"], "error": None}

_CLAUDE_ASIDE = [
    {"when": {"type": ["assistant", "user", "stream_event"], "parent_tool_use_id": "*"}},  # a subagent's
    {
        "when": {
            "type": "system",
            "subtype": [
                *("status", "compact_boundary", "hook_started", "hook_progress", "hook_response"),
                *("task_started", "task_progress", "task_updated", "task_notification"),
                *("background_tasks_changed", "thinking_tokens", "session_state_changed", "commands_changed"),
                *("notification", "informational", "files_persisted", "memory_recall", "plugin_install"),
                *("elicitation_complete", "permission_denied", "mirror_error", "worker_shutting_down"),
                "local_command_output",
            ],
        }
    },
    {
        "when": {
            "type": [
                *("rate_limit_event", "tool_progress", "tool_use_summary", "prompt_suggestion", "keep_alive"),
                *("auth_status", "active_goal"),
            ]
        }
    },
    {"when": {"type": "stream_event", "event.type": ["content_block_stop", "message_stop", "ping"]}},
    {
        "when": {
            "type": "stream_event",
            "event.type": "message_delta",
            "event.delta.stop_reason": [None, "end_turn", "stop_sequence"],
        }
    },
]
"""What claude, and qwen in its format, may print after its answer."""

_CLAUDE: Mapping[str, Any] = {
    "program": "claude",
    "install": "npm install -g @anthropic-ai/claude-code",
    "version": {"args": ["--version"], "least": "2.1.0"},
    "first": ["-p", "--output-format", "stream-json", "--verbose", "--session-id", "{new}", "{args}"],
    "resume": ["-p", "--output-format", "stream-json", "--verbose", "--resume", "{session}", "{args}"],
    "output": "lines",
    "env": {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"},
    "options": [
        {
            "if": "write",
            "args": ["--permission-mode", "acceptEdits"],
            "unless": ["--permission-mode", "--dangerously-skip-permissions"],
        },
        {"if": "readonly", "args": ["--disallowedTools", "Edit,Write,NotebookEdit"]},
        {"if": "run", "args": ["--allowedTools", "Bash"]},
        {"if": "norun", "args": ["--disallowedTools", "Bash,Monitor"]},
        {"if": "fetch", "args": ["--allowedTools", "WebFetch,WebSearch"]},
        {"if": "nofetch", "args": ["--disallowedTools", "WebFetch,WebSearch"]},
        {"if": "nomcp", "args": ["--strict-mcp-config"], "unless": ["--mcp-config"]},
        {"if": "crew", "args": ["--add-dir={package}", "--add-dir={state}"]},
    ],
    "session": ".session_id",
    "text": [
        {"path": ".result", "when": {"type": "result"}},
        {"path": ".structured_output", "when": {"type": "result"}},
    ],
    "model": {"path": ".model", "when": {"type": "system", "subtype": "init"}},
    "usage": [
        {  # that of this run, by model; total_cost_usd is that of the whole session
            "when": {"type": "result"},
            "each": ".model_usage_since_last_result[]",
            "input": [".inputTokens", ".cacheReadInputTokens", ".cacheCreationInputTokens"],
            "output": ".outputTokens",
            "cached": ".cacheReadInputTokens",
            "cost": ".costUSD",
            "guess": {"costBasis": "unknown"},  # a model that it has no price for, at another's price
            "total": "sum",  # it answers again when what it left running has ended
        },
        {
            "when": {"type": "result"},
            "input": [
                ".usage.input_tokens",
                ".usage.cache_read_input_tokens",
                ".usage.cache_creation_input_tokens",
            ],
            "output": ".usage.output_tokens",
            "cached": ".usage.cache_read_input_tokens",
            "total": "sum",
        },
        {  # before 2.1.300 it is that of this run so far
            "when": {"type": "result", "model_usage_since_last_result": None},
            "cost": ".total_cost_usd",
        },
        {  # of a run that is ended before its result: a message comes in parts, each with all of its input
            "when": {"type": "assistant"},
            "input": [
                ".message.usage.input_tokens",
                ".message.usage.cache_read_input_tokens",
                ".message.usage.cache_creation_input_tokens",
            ],
            "output": ".message.usage.output_tokens",
            "cached": ".message.usage.cache_read_input_tokens",
            "by": ".message.id",
            "total": "sum",
        },
    ],
    "turns": [
        {
            "when": {"type": "assistant", "parent_tool_use_id": None},
            "each": ".message.content[]",
            "where": {"type": "text"},
            "text": ".text",
            "group": ".message.id",
            "whole": _WHOLE,
        },
        {
            "when": {"type": "assistant"},
            "each": ".message.content[]",
            "where": {"type": "tool_use"},
            "group": ".message.id",
            "call": ".id",
            "tool": ".name",
            "arguments": ".input",
        },
        {  # with --json-schema it answers by a call
            "when": {"type": "assistant", "parent_tool_use_id": None},
            "each": ".message.content[]",
            "where": {"type": "tool_use", "name": "StructuredOutput"},
            "text": ".input",
        },
        {
            "when": {"type": "user"},
            "each": ".message.content[]",
            "where": {"type": "tool_result"},
            "call": ".tool_use_id",
            "result": ".content",
            "failed": {"is_error": True},
        },
    ],
    "complete": [
        {
            "when": {
                "type": "result",
                "subtype": "success",
                "is_error": [None, False],
                "terminal_reason": [None, "completed"],
                "errors": [None, []],
                **end,
            }
        }
        for end in (
            {"stop_reason": [None, "end_turn", "stop_sequence"]},
            {"stop_reason": "tool_use", "structured_output": "*"},
        )
    ],
    "aside": _CLAUDE_ASIDE,
    "errors": [
        {"path": ".result", "when": {"type": "result", "is_error": True}},
        {"path": ".errors[]", "when": {"type": "result", "is_error": True}},
        {"say": "it ended with {.subtype}", "when": {"type": "result", "subtype": list(_CLAUDE_ENDS)}},
    ],
    "trouble": [
        {
            "when": {"type": "system", "subtype": "api_retry", "error_status": "*"},
            "say": "{.error} (HTTP {.error_status}), attempt {.attempt} of {.max_retries}",
        },
        {
            "when": {"type": "system", "subtype": "api_retry", "error_status": None},
            "say": "the API cannot be reached or breaks off ({.error}), attempt {.attempt} of {.max_retries}",
        },
    ],
    "denied": {"path": ".permission_denials[].tool_name", "when": {"type": "result"}},
    "login": r"(?i)authentication_failed|not logged in|run /login|invalid api key|failed to authenticate"
    r"|oauth token has expired",
    "signIn": "run claude and log in there, or set ANTHROPIC_API_KEY",
    "signedIn": [
        *("$ANTHROPIC_API_KEY", "$ANTHROPIC_AUTH_TOKEN", "$CLAUDE_CODE_OAUTH_TOKEN"),
        *("$CLAUDE_CODE_USE_BEDROCK", "$CLAUDE_CODE_USE_VERTEX", "$CLAUDE_CODE_USE_FOUNDRY"),
        *("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json"),
        *(
            f"{folder}/settings.json: apiKeyHelper|ANTHROPIC_|CLAUDE_CODE_"
            for folder in ("$CLAUDE_CONFIG_DIR", "~/.claude", "/etc/claude-code")
        ),
    ],
    "lost": r"No conversation found|requires a valid session ID",
    "sessions": {
        "folder": ["$CLAUDE_CONFIG_DIR/projects/{slug}", "~/.claude/projects/{slug}"],
        "files": ["{session}.jsonl"],
    },
}

_CODEX: Mapping[str, Any] = {
    "program": "codex",
    "install": "npm install -g @openai/codex",
    "version": {"args": ["--version"], "least": "0.100.0"},
    "first": ["exec", "--json", "--skip-git-repo-check", "{args}", "-"],
    # Options before `resume` apply to it too, and the sandbox can only be set there.
    "resume": ["exec", "--json", "--skip-git-repo-check", "{args}", "resume", "{session}", "-"],
    "output": "lines",
    "options": [
        {"if": "always", "args": ["-c", "analytics.enabled=false"]},
        {
            "if": "write",
            "args": ["--sandbox", "workspace-write"],
            "unless": ["-s", "--sandbox", "--dangerously-bypass-approvals-and-sandbox", "--approve-for-me"],
        },
        {
            "if": "readonly",
            "args": ["--sandbox", "read-only"],
            "unless": ["-s", "--sandbox", "--dangerously-bypass-approvals-and-sandbox", "--approve-for-me"],
        },
        {"if": "run"},
        {"if": "norun", "args": ["-c", "features.shell_tool=false"]},
        {"if": "network", "args": ["-c", "sandbox_workspace_write.network_access=true"]},
        {"if": "nofetch", "args": ["-c", 'web_search="disabled"']},
        {"if": "crewwrite", "args": ["--add-dir", "{state}"]},  # it reads whatever its user can
    ],
    "session": {"path": ".thread_id", "when": {"type": "thread.started"}},
    "text": {"path": ".item.text", "when": {"type": "item.completed", "item.type": "agent_message"}},
    # It prints neither its model nor, until a turn is over, its tokens.
    "log": [
        "$CODEX_HOME/sessions/*/*/*/rollout-*-{session}.jsonl",
        "~/.codex/sessions/*/*/*/rollout-*-{session}.jsonl",
    ],
    "model": {"from": "log", "path": ".payload.model", "when": {"type": "turn_context"}},
    "usage": [
        {
            "when": {"type": "turn.completed"},
            "input": ".usage.input_tokens",
            "output": ".usage.output_tokens",
            "cached": ".usage.cached_input_tokens",
            "total": "session",
        },
        {
            "from": "log",
            "when": {"type": "event_msg", "payload.type": "token_count"},
            "input": ".payload.info.total_token_usage.input_tokens",
            "output": ".payload.info.total_token_usage.output_tokens",
            "cached": ".payload.info.total_token_usage.cached_input_tokens",
            "total": "session",
        },
    ],
    "turns": [
        {"when": {"type": "item.completed", "item.type": "agent_message"}, "text": ".item.text"},
        {  # calls that are ended or outlive the answer are never completed
            "when": {"type": "item.started", "item.type": "command_execution"},
            "call": ".item.id",
            "tool": ".item.type",
            "arguments": ".item.command",
        },
        {
            "when": {"type": "item.started", "item.type": "mcp_tool_call"},
            "call": ".item.id",
            "tool": ".item.tool",
            "arguments": ".item.arguments",
        },
        {
            "when": {"type": "item.completed", "item.type": "command_execution"},
            "call": ".item.id",
            "tool": ".item.type",
            "arguments": ".item.command",
            "result": ".item.aggregated_output",
            "failed": {".item.status": ["failed", "declined"]},
        },
        {
            "when": {"type": "item.completed", "item.type": "file_change"},
            "call": ".item.id",
            "tool": ".item.type",
            "arguments": ".item.changes",
            "result": ".item.status",
            "failed": {".item.status": ["failed", "declined"]},
        },
        {
            "when": {"type": "item.completed", "item.type": "mcp_tool_call"},
            "call": ".item.id",
            "tool": ".item.tool",
            "arguments": ".item.arguments",
            "result": ".item.result",
            "failed": {".item.status": "failed"},
        },
        {
            "when": {"type": "item.completed", "item.type": "web_search"},
            "call": ".item.id",
            "tool": ".item.type",
            "arguments": ".item.query",
            "result": ".item.type",
        },
    ],
    "complete": {"when": {"type": "turn.completed"}},
    "aside": [  # commands outlive the answer, and a list of tasks is a plan, done or not
        {"when": {"type": ["item.started", "item.updated", "item.completed"], "item.type": "todo_list"}},
        {"when": {"type": "item.updated", "item.type": "command_execution"}},
    ],
    # Items and lines of the type "error" come when all goes well too.
    "errors": {"path": ".error.message", "when": {"type": "turn.failed"}},
    "trouble": {"path": ".message", "when": {"type": "error"}},
    "denied": {"path": ".item.type", "when": {"type": "item.completed", "item.status": "declined"}},
    "login": r"(?i)401 unauthorized|not logged in|missing environment variable|refresh token|codex login",
    "signIn": "run: codex login",
    "signedIn": [
        *("$OPENAI_API_KEY", "$CODEX_API_KEY", "$CODEX_HOME/auth.json", "~/.codex/auth.json"),
        *(
            f"{folder}/config.toml: model_provider|credentials_store"
            for folder in ("$CODEX_HOME", "~/.codex")
        ),
    ],
    "lost": r"(?i)no rollout found|thread/resume failed|no saved session|session not found",
    "sessions": {
        "folder": ["$CODEX_HOME/sessions", "~/.codex/sessions"],
        "files": ["*/*/*/rollout-*-{session}.jsonl"],
    },
}

_GEMINI: Mapping[str, Any] = {
    "program": "gemini",
    "install": "npm install -g @google/gemini-cli",
    "version": {"args": ["--version"], "least": "0.30.0"},
    "first": ["--output-format", "stream-json", "{args}"],
    "resume": ["--output-format", "stream-json", "--resume", "{session}", "{args}"],
    "output": "lines",
    "env": {
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    },
    "options": [
        {
            "if": "write",
            "args": ["--approval-mode", "auto_edit"],
            "unless": ["--approval-mode", "-y", "--yolo"],
        },
        {
            "if": "readonly",
            "args": ["--approval-mode", "default"],
            "unless": ["--approval-mode", "-y", "--yolo"],
        },
        {"if": "run", "args": ["--allowed-tools", "run_shell_command"], "unless": ["-y", "--yolo"]},
        # No one can confirm, so forbidden tools are removed.
        {"if": "norun", "unless": ["-y", "--yolo", "--allowed-tools"]},
        # An administrator's rules come before the user's, which --policy would replace, and those of the machine before
        # these.
        {
            "if": "nofetch",
            "args": ["--admin-policy", str(Path(__file__).with_name("gemini_offline.toml"))],
            "unless": ["/etc/gemini-cli/policies/*.toml"],
        },
        {"if": "crew", "args": ["--include-directories", "{package}", "--include-directories", "{state}"]},
    ],
    "session": {"path": ".session_id", "when": {"type": "init"}},
    # It first prints the requested model, such as "auto"; its result also lists models that didn't answer.
    "log": [
        "$GEMINI_CLI_HOME/.gemini/tmp/*/chats/session-*-{session:8}.jsonl",
        "~/.gemini/tmp/*/chats/session-*-{session:8}.jsonl",
    ],
    "model": [
        {"from": "log", "path": ".model", "when": {"type": "gemini"}},
        {"path": ".stats.models[keys]", "when": {"type": "result"}},
        {"path": ".model", "when": {"type": "init"}},
    ],
    "usage": [
        {
            "when": {"type": "result"},
            "input": ".stats.input_tokens",
            "output": ".stats.output_tokens",
            "cached": ".stats.cached",
        },
        {
            "from": "log",
            "when": {"type": "gemini"},
            "input": [".tokens.input", ".tokens.tool"],
            "output": [".tokens.output", ".tokens.thoughts"],
            "cached": ".tokens.cached",
            "by": ".id",
            "total": "session",
        },
    ],
    "turns": [
        {"when": {"type": "message", "role": "assistant"}, "text": ".content", "delta": True},
        {
            "when": {"type": "tool_use"},
            "call": ".tool_id",
            "tool": ".tool_name",
            "arguments": ".parameters",
        },
        {
            "when": {"type": "tool_result"},
            "call": ".tool_id",
            "result": ".output",
            "failed": {"status": "error"},
        },
    ],
    "complete": {"when": {"type": "result", "status": "success"}},
    "aside": [],
    "errors": {"path": ".error.message", "when": {"type": "result", "status": "error"}},
    "trouble": [
        {"from": "stderr", "match": r"^Attempt \d+ failed.*"},
        {"path": ".message", "when": {"type": "error", "severity": "error"}},
    ],
    "denied": {
        "path": ".tool_id",
        "match": "^(.*?)__",
        "when": {"type": "tool_result", "error.type": ["policy_violation", "permission_denied"]},
    },
    "login": r"(?i)set an auth method|invalid auth method|UNAUTHENTICATED|API key not valid|GEMINI_API_KEY",
    "signIn": "run gemini and log in there, or set GEMINI_API_KEY",
    "signedIn": [
        *("$GEMINI_API_KEY", "$GOOGLE_API_KEY", "$GOOGLE_GENAI_USE_VERTEXAI", "$GOOGLE_GENAI_USE_GCA"),
        *("~/.gemini/oauth_creds.json", "~/.gemini/.env", "~/.env", "~/.gemini/gemini-credentials.json"),
    ],
    "lost": r"(?i)error resuming session|invalid session identifier|no previous sessions",
    "sessions": {
        "folder": ["$GEMINI_CLI_HOME/.gemini/tmp/{project}/chats", "~/.gemini/tmp/{project}/chats"],
        "files": ["session-*-{session:8}.jsonl"],
    },
}

_OPENCODE: Mapping[str, Any] = {
    "program": "opencode",
    "install": "npm install -g opencode-ai",
    "version": {"args": ["--version"], "least": "1.0.0"},
    "first": ["run", "--format", "json", "{args}"],
    "resume": ["run", "--format", "json", "--session", "{session}", "{args}"],
    "output": "lines",
    "env": {"OPENCODE_DISABLE_AUTOUPDATE": "true", "OPENCODE_AUTO_SHARE": "false"},
    "options": [
        # That it tries again is in its log alone.
        {
            "if": "always",
            "args": ["--print-logs", "--log-level", "ERROR"],
            "unless": ["--print-logs", "--log-level"],
        },
        {"if": "write"},
        {"if": "readonly", "env": {"OPENCODE_PERMISSION": '{"edit": "deny"}'}, "unless": ["--auto"]},
        {"if": "run", "env": {"OPENCODE_PERMISSION": '{"bash": "allow"}'}},
        {"if": "norun", "env": {"OPENCODE_PERMISSION": '{"bash": "deny"}'}},
        {"if": "fetch", "env": {"OPENCODE_PERMISSION": '{"webfetch": "allow", "websearch": "allow"}'}},
        {"if": "nofetch", "env": {"OPENCODE_PERMISSION": '{"webfetch": "deny", "websearch": "deny"}'}},
        {
            "if": "crew",
            "env": {
                "OPENCODE_PERMISSION": '{"external_directory": {"{package}/*": "allow", '
                '"{state}/*": "allow"}}'
            },
        },
    ],
    "session": ".sessionID",
    "usage": {
        "when": {"type": "step_finish"},
        "input": [".part.tokens.input", ".part.tokens.cache.read", ".part.tokens.cache.write"],
        "output": [".part.tokens.output", ".part.tokens.reasoning"],
        "cached": ".part.tokens.cache.read",
        "cost": ".part.cost",
        "total": "sum",
    },
    "turns": [
        {"when": {"type": "text"}, "text": ".part.text", "group": ".part.messageID"},
        {
            "when": {"type": "tool_use", ".part.state.status": "completed"},
            "group": ".part.messageID",
            "call": ".part.callID",
            "tool": ".part.tool",
            "arguments": ".part.state.input",
            "result": ".part.state.output",
        },
        {
            "when": {"type": "tool_use", ".part.state.status": "error"},
            "group": ".part.messageID",
            "call": ".part.callID",
            "tool": ".part.tool",
            "arguments": ".part.state.input",
            "result": ".part.state.error",
            "failed": {".part.state.status": "error"},
        },
    ],
    "complete": {"when": {"type": "step_finish", ".part.reason": "stop"}},
    "aside": [],
    "errors": [
        {"path": ".error.data.statusCode", "when": {"type": "error"}},
        {"path": ".error.data.message", "when": {"type": "error"}},
        {"path": ".error.name", "when": {"type": "error", "error.data.message": None}},
    ],
    "trouble": [
        {"from": "stderr", "match": r'message="stream error".* small=false .*error\.error="(.*)"'},
        {
            "when": {"type": "step_finish", ".part.reason": "unknown", ".part.tokens.output": 0},
            "say": "the model's answer broke off, or cannot be read",
        },
    ],
    "denied": {
        "from": "stderr",
        "match": r"permission requested: ([^;\n]*); auto-rejecting",
    },
    "login": r"(?im)^401$|invalid_api_key|opencode auth login|API key is missing",
    "signIn": "run: opencode auth login",
    "lost": r"(?i)session not found",
    "sessions": {"export": ["export", "{session}"], "import": ["import", "{file}"], "each": ".messages[]"},
}

_HERMES: Mapping[str, Any] = {
    "program": "hermes",
    "install": "pip install hermes-agent",
    "version": {"args": ["--version"], "least": "0.19.0"},
    "first": ["chat", "-Q", "{args}", "-q", "{prompt}"],
    "resume": ["chat", "-Q", "--no-restore-cwd", "--resume", "{session}", "{args}", "-q", "{prompt}"],
    "prompt": "argument",
    "output": "text",
    "options": [{"if": "write"}, {"if": "run"}, {"if": "fetch"}],
    "session": {"from": "stderr", "match": r"(?m)^session_id: (\S+)"},
    "renames": True,  # a session that grew too long continues as another
    "text": {"match": r"(?s)\A(?:[ \t]*⚠[^\n]*\n|\s*\n)*(.*)"},
    # Of its own warnings these say nothing of the answer; others do, such as that of its limit of iterations.
    "complete": {
        "match": r"(?s)\A(?:[ \t]*⚠\S*[ \t]+(?:Auxiliary|Compression|Credits|(?i:no response from provider))"
        r"[^\n]*\n|\s*\n)*+(?![ \t]*⚠)(?!(?:.*\n)?[ \t]*⚠[^\n]*\s*\Z)"
    },
    # It prints nothing but the answer; the rest is in its log of the session.
    "after": {
        "args": ["sessions", "export", "--session-id", "{session}", "-"],
        "each": ".messages[]",
        "since": {"role": "user"},
    },
    "model": ".model",
    "usage": {
        "input": [".input_tokens", ".cache_read_tokens", ".cache_write_tokens"],
        "output": ".output_tokens",
        "cached": ".cache_read_tokens",
        "total": "session",
    },
    "turns": [
        {
            "when": {"role": "assistant"},
            "text": ".content",
            "group": ".id",
            "whole": {"finish_reason": [None, "stop", "end_turn", "stop_sequence"]},
        },
        {
            "when": {"role": "assistant"},
            "each": ".tool_calls[]",
            "group": ".id",
            "call": ".id",
            "tool": ".function.name",
            "arguments": ".function.arguments",
        },
        {"when": {"role": "tool"}, "call": ".tool_call_id", "result": ".content"},
    ],
    "errors": {"match": r"(?m)^(?!\s*⚠)(.*\bHTTP \d{3}\b.*|Error: .*)$"},
    "login": r"HTTP 401|(?i:no inference provider|hermes setup|hermes login)",
    "signIn": "run: hermes setup",
    "lost": r"(?i)session not found",
}

_QWEN: Mapping[str, Any] = {
    "program": "qwen",
    "install": "npm install -g @qwen-code/qwen-code",
    "version": {"args": ["--version"], "least": "0.24.0"},
    "first": ["--output-format", "stream-json", "--session-id", "{new}", "{args}"],
    "resume": ["--output-format", "stream-json", "--resume", "{session}", "{args}"],
    "output": "lines",
    "options": [
        {
            "if": "write",
            "args": ["--approval-mode", "auto-edit"],
            "unless": ["--approval-mode", "-y", "--yolo"],
        },
        {  # no one can confirm, so it may not
            "if": "readonly",
            "args": ["--approval-mode", "default"],
            "unless": ["--approval-mode", "-y", "--yolo"],
        },
        {"if": "run", "args": ["--allowed-tools", "run_shell_command"], "unless": ["-y", "--yolo"]},
        {"if": "norun", "args": ["--exclude-tools", "run_shell_command"]},
        {"if": "fetch", "args": ["--allowed-tools", "web_fetch"], "unless": ["-y", "--yolo"]},
        {"if": "nofetch", "args": ["--exclude-tools", "web_fetch"]},
        {"if": "crew", "args": ["--add-dir", "{package}", "--add-dir", "{state}"]},
    ],
    "session": ".session_id",
    "text": {"path": ".result", "when": {"type": "result"}},
    "model": {"path": ".model", "when": {"type": "system", "subtype": "init"}},
    "usage": [
        {  # including calls of its memory
            "when": {"type": "result"},
            "input": ".usage.input_tokens",
            "output": ".usage.output_tokens",
            "cached": ".usage.cache_read_input_tokens",
            "total": "session",
        },
        {  # of a run that is ended before its result
            "when": {"type": "assistant"},
            "input": ".message.usage.input_tokens",
            "output": ".message.usage.output_tokens",
            "cached": ".message.usage.cache_read_input_tokens",
            "total": "sum",
        },
    ],
    "turns": [
        {
            "when": {"type": "assistant", "parent_tool_use_id": None},
            "each": ".message.content[]",
            "where": {"type": "text"},
            "text": ".text",
            "group": ".message.id",
            "whole": _WHOLE,
        },
        {
            "when": {"type": "assistant"},
            "each": ".message.content[]",
            "where": {"type": "tool_use"},
            "call": ".id",
            "tool": ".name",
            "arguments": ".input",
        },
        {
            "when": {"type": "user"},
            "each": ".message.content[]",
            "where": {"type": "tool_result"},
            "call": ".tool_use_id",
            "result": ".content",
            "failed": {"is_error": True},
        },
    ],
    "complete": {
        "when": {
            "type": "result",
            "subtype": "success",
            "is_error": [None, False],
            "stop_reason": [None, "end_turn", "stop_sequence"],
            "error": None,
        }
    },
    "aside": _CLAUDE_ASIDE,
    "errors": {"path": ".error.message", "when": {"type": "result", "is_error": True}},
    "denied": {"path": ".permission_denials[].tool_name", "when": {"type": "result"}},
    "login": r"(?i)API Error: 401|invalid api key|no auth type|missing API key",
    "signIn": "run qwen and log in there, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL",
    "lost": r"(?i)no saved session found",
    "sessions": {
        "folder": [
            "$QWEN_RUNTIME_DIR/projects/{slug}/chats",
            "$QWEN_HOME/projects/{slug}/chats",
            "~/.qwen/projects/{slug}/chats",
        ],
        "files": ["{session}.jsonl"],
    },
}

_COPILOT: Mapping[str, Any] = {
    "program": "copilot",
    "install": "npm install -g @github/copilot",
    "version": {"args": ["--version"], "least": "1.0.100"},
    "first": ["--output-format", "json", "--session-id", "{new}", "{args}"],
    "resume": ["--output-format", "json", "--resume={session}", "{args}"],
    "output": "lines",
    "env": {"COPILOT_AUTO_UPDATE": "false"},
    "options": [
        {"if": "write", "args": ["--allow-tool=write"]},
        {
            "if": "readonly",
            "args": ["--deny-tool=write"],
        },
        {"if": "run", "args": ["--allow-tool=shell"]},
        {"if": "norun", "args": ["--deny-tool=shell"]},
        {"if": "fetch", "args": ["--allow-all-urls"]},
        {"if": "nofetch", "args": ["--excluded-tools=web_fetch"]},
        {"if": "nomcp", "args": ["--disable-builtin-mcps"]},
        {"if": "crew", "args": ["--add-dir={package}", "--add-dir={state}"]},
    ],
    # It prints its id only at the end, but uses the given one. Tokens are in its log.
    "log": [
        "$COPILOT_HOME/session-state/{session}/events.jsonl",
        "~/.copilot/session-state/{session}/events.jsonl",
    ],
    "model": [
        {"path": ".data.model", "when": {"type": "assistant.message"}},
        {"from": "log", "path": ".data.usage.model", "when": {"type": "session.usage_record"}},
    ],
    "usage": {
        "from": "log",
        "when": {"type": "session.usage_record"},
        "input": ".data.usage.inputTokens",
        "output": ".data.usage.outputTokens",
        "cached": ".data.usage.cacheReadTokens",
        "by": ".data.usage.accounting.sequence",
        "total": "session",
    },
    "turns": [
        {
            "when": {"type": "assistant.message"},
            "text": ".data.content",
            "whole": {"data.toolRequests": [None, []]},
        },
        {
            "when": {"type": "tool.execution_start"},
            "call": ".data.toolCallId",
            "tool": ".data.toolName",
            "arguments": ".data.arguments",
        },
        {
            "when": {"type": "tool.execution_complete", "data.success": True},
            "call": ".data.toolCallId",
            "result": ".data.result.content",
        },
        {
            "when": {"type": "tool.execution_complete", "data.success": False},
            "call": ".data.toolCallId",
            "result": ".data.error.message",
            "failed": {"data.success": False},
        },
    ],
    "complete": {"when": {"type": "result", "exitCode": 0}},
    "aside": [
        {
            "when": {
                "type": [
                    *("assistant.turn_end", "assistant.usage", "assistant.reasoning", "assistant.intent"),
                    *("assistant.idle", "hook.start", "hook.end", "pending_messages.modified"),
                    *("session.idle", "session.info", "session.shutdown", "session.task_complete"),
                    *("session.title_changed", "session.plan_changed", "session.todos_changed"),
                    *("session.workspace_file_changed", "session.background_tasks_changed"),
                    *("session.usage_info", "session.usage_record", "session.usage_checkpoint"),
                    *("session.compaction_start", "session.compaction_complete", "session.truncation"),
                    *("session.tools_updated", "session.skills_loaded", "session.mcp_servers_loaded"),
                    *("session.mcp_server_status_changed", "session.custom_agents_updated"),
                ]
            }
        }
    ],
    "errors": {"path": ".data.message", "when": {"type": "session.error"}},
    "trouble": {
        "say": "HTTP {.data.statusCode}: {.data.errorMessage}",
        "when": {"type": "model.call_failure"},
    },
    "denied": {
        "path": ".data.toolTelemetry.properties.command",
        "when": {"type": "tool.execution_complete", "data.error.code": "denied"},
    },
    "login": r"(?i)HTTP 401|no authentication information found|not logged in|copilot login",
    "signIn": "run: copilot login",
    "signedIn": [
        *("$COPILOT_GITHUB_TOKEN", "$GH_TOKEN", "$GITHUB_TOKEN", "~/.config/gh/hosts.yml"),
        *(f"{folder}/config.json: logged_in|token" for folder in ("$COPILOT_HOME", "~/.copilot")),
    ],
    "lost": r"(?i)no session, task, or name matched",
}

_CURSOR: Mapping[str, Any] = {
    "program": "cursor-agent",
    "install": "curl https://cursor.com/install -fsS | bash",
    "version": {"args": ["--version"], "least": "2025.9"},
    "first": ["-p", "--output-format", "stream-json", "{args}", "{prompt}"],
    "resume": ["-p", "--output-format", "stream-json", "--resume", "{session}", "{args}", "{prompt}"],
    "prompt": "argument",
    "output": "lines",
    "options": [
        # Without it changes are only proposed.
        {"if": "write", "args": ["--force"], "unless": ["-f", "--force", "--yolo"]},
        {"if": "readonly", "args": ["--mode", "ask"], "unless": ["-f", "--force", "--yolo", "--mode"]},
        {"if": "run"},
        {"if": "fetch"},
    ],
    "session": ".session_id",
    "model": {"path": ".model", "when": {"type": "system", "subtype": "init"}},
    # The `result` of its last line is everything that was said, all in one.
    "turns": [
        {
            "when": {"type": "assistant"},
            "each": ".message.content[]",
            "where": {"type": "text"},
            "text": ".text",
        },
        {
            "when": {"type": "tool_call", "subtype": "started"},
            "call": ".call_id",
            "tool": ".tool_call[keys]",
            "arguments": ".tool_call[].args",
        },
        {
            "when": {"type": "tool_call", "subtype": "completed"},
            "call": ".call_id",
            "result": ".tool_call[].result",
            "failed": {".tool_call[].result.success": None},
        },
    ],
    "complete": {"when": {"type": "result", "subtype": "success", "is_error": [None, False]}},
    "aside": [],
    "errors": {"path": ".result", "when": {"type": "result", "is_error": True}},
    "denied": {
        "path": ".tool_call[keys]",
        "when": {"type": "tool_call", ".tool_call[].result.rejected": "*"},
    },
    "login": r"(?i)authentication required|not logged in|CURSOR_API_KEY|agent login",
    "signIn": "run: cursor-agent login, or set CURSOR_API_KEY",
    "signedIn": [
        *("$CURSOR_API_KEY", "~/.config/cursor/auth.json", "~/.cursor/cli-config.json: authInfo"),
    ],
    "lost": r"(?i)(chat|session|conversation)[^\n]*not found|no (chat|session|conversation)",
}

_LLM: Mapping[str, Any] = {
    "program": "llm",
    "install": "pip install llm",
    "version": {"args": ["--version"], "least": "0.36"},
    "first": ["prompt", "--json", "{args}"],
    "resume": ["prompt", "--json", "--cid", "{session}", "{args}"],
    "output": "json",
    "tools": False,
    "session": ".conversation_id",
    "text": ".response",
    "model": ".model",
    "usage": {
        "input": ".input_tokens",
        "output": ".output_tokens",
        "cached": ".response_json.usage.prompt_tokens_details.cached_tokens",
        "total": "sum",
    },
    "turns": [
        {"each": ".tool_results[]", "call": ".tool_call_id", "result": ".output"},
        {"text": ".response"},
        {"each": ".tool_calls[]", "call": ".tool_call_id", "tool": ".name", "arguments": ".arguments"},
    ],
    "complete": {  # each provider has its own name for it
        "when": {
            ".response_json.choices[].finish_reason": [None, "stop", "end_turn", "eos"],
            ".response_json.choices[].message.refusal": None,
            ".response_json.finish_reason": [None, "stop", "end_turn", "eos"],
            ".response_json.status": [None, "completed"],
            ".response_json.stop_reason": [None, "end_turn", "stop_sequence"],
            ".response_json.candidates[].finishReason": [None, "STOP"],
            ".response_json.done_reason": [None, "stop"],
        }
    },
    "aside": [],
    "errors": [
        {"from": "stderr", "match": r"(?m)^Error: (.*)"},
        {
            "each": ".response_json.choices[]",
            "where": {"finish_reason": "length"},
            "say": "the answer was cut off at the model's limit of tokens",
        },
    ],
    "trouble": [
        {
            "each": ".response_json.choices[]",
            "where": {"message.refusal": "*"},
            "say": "the model refused to answer: {.message.refusal}",
        },
        {
            "each": ".response_json.choices[]",
            "where": {"finish_reason": ["content_filter", "refusal"]},
            "say": "the model refused to answer ({.finish_reason})",
        },
    ],
    "login": r"(?i)no key found|error code: 401",
    "signIn": "run: llm keys set NAME, or set the key in the environment",
    "lost": r"(?i)no conversation found",
}

TABLE: Mapping[str, Mapping[str, Any]] = {
    "claude-code": _CLAUDE,
    "codex": _CODEX,
    "gemini": _GEMINI,
    "opencode": _OPENCODE,
    "hermes": _HERMES,
    "qwen": _QWEN,
    "copilot": _COPILOT,
    "cursor": _CURSOR,
    "llm-cli": _LLM,
}


def shipped_row(name: str) -> AgentRow | None:
    """Return a shipped row, or None."""
    value = TABLE.get(name)
    return None if value is None else parse_agent_row(value, name)[0]
