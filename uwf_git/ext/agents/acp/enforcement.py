"""Enforcing the policy on an agent besides its requests, and its session's options.

If its settings are known, forbidden tools are disabled. Its session gets a mode that asks; modes that
wouldn't ask for forbidden things are refused. If nothing works, no session is opened. Forbidden actions end
the turn: see `conversation`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from uwf_git.plugin import AgentFailed

_WRITES = frozenset(("edit", "delete", "move"))
_RUNS = frozenset(("execute",))
_FETCHES = frozenset(("fetch",))
WATCHED = _WRITES | _RUNS | _FETCHES
"""The kinds of calls that must not happen without a request either, where they are forbidden."""

_WORDS = ((_WRITES, "write files"), (_RUNS, "run commands"), (_FETCHES, "read from the web"))
_CHANGE = "change tools in config.yaml or of the role"

# Actions without confirmation, by the letters and digits of a mode's id or name.
_UNASKED = {
    **dict.fromkeys(("acceptedits", "autoedit", "dontask"), _WRITES),
    **dict.fromkeys(("workspacewrite", "workspaceaccess", "agent", "autoreview"), _WRITES | _RUNS),
    **dict.fromkeys(("auto", "autopilot", "bypasspermissions", "bypass", "yolo"), WATCHED),
    **dict.fromkeys(("agentfullaccess", "fullaccess", "dangerfullaccess"), WATCHED),
}
_UNASKED_BY_AGENT = {"hermes-agent": {"default": _RUNS}}  # it asks for commands that look dangerous to it
_ASKING = ("readonly", "default", "manual", "ask", "plan")  # the first that is offered is taken
_SANDBOXES = ("codex-acp",)  # they run commands in one without asking
# Kinds of calls for which these agents offer no tool if told so.
_HEED = {"claude-agent-acp": WATCHED, "opencode": WATCHED, "codex-acp": _RUNS | _FETCHES}

_CLAUDE = ((_WRITES, ("Edit", "Write", "NotebookEdit")), (_RUNS, ("Bash", "Monitor")),
           (_FETCHES, ("WebFetch", "WebSearch")))  # fmt: skip
_VARIABLES = (
    (_WRITES, "OPENCODE_PERMISSION", {"edit": "deny"}),
    (_RUNS, "OPENCODE_PERMISSION", {"bash": "deny"}),
    (_FETCHES, "OPENCODE_PERMISSION", {"webfetch": "deny", "websearch": "deny"}),
    (_RUNS, "CODEX_CONFIG", {"features.shell_tool": False}),
    (_FETCHES, "CODEX_CONFIG", {"web_search": "disabled"}),
)
# Choices in the form used before configuration options, and the request that sets one.
_OLDER = {
    "mode": ("modes", "currentModeId", "availableModes", "id", "session/set_mode", "modeId"),
    "model": ("models", "currentModelId", "availableModels", "modelId", "session/set_model", "modelId"),
}


class ConfigChoice(NamedTuple):
    """Possible values with their names, and the request that sets one."""

    current: str | None
    values: Mapping[str, str]
    method: str
    parameters: Mapping[str, str]  # besides the value
    parameter: str

    def find(self, wanted: str) -> str | None:
        """Return a value by id or name."""
        if wanted in self.values:
            return wanted
        for value, name in self.values.items():
            if wanted.casefold() in (value.casefold(), name.casefold()):
                return value
        return None


def choice_of(opened: Mapping[str, Any], what: str) -> ConfigChoice | None:
    """Return the choice of `mode` or `model` from session/new or session/load: a configuration option, or the
    older `modes` and `models`."""
    options = opened.get("configOptions")
    for option in options if isinstance(options, list) else ():
        if not isinstance(option, Mapping) or option.get("category") != what:
            continue
        if option.get("type") == "select" and isinstance(option.get("id"), str):
            values = dict(_named(option.get("options"), "value"))
            parameters = {"configId": option["id"]}
            return ConfigChoice(
                _current(option, "currentValue"), values, "session/set_config_option", parameters, "value"
            )
    field, current, available, key, method, parameter = _OLDER[what]
    state = opened.get(field)
    if not isinstance(state, Mapping):
        return None
    return ConfigChoice(
        _current(state, current), dict(_named(state.get(available), key)), method, {}, parameter
    )


def environment(env: Mapping[str, str], kinds: frozenset[str]) -> dict[str, str]:
    """Return the environment that forbids these kinds, merged over the user's setting. Raises AgentFailed if
    that is not JSON."""
    variables = dict(env)
    for those, name, words in _VARIABLES:
        if kinds & those:
            try:
                before = json.loads(variables.get(name) or "{}")
            except ValueError:
                before = None
            if not isinstance(before, dict):
                raise AgentFailed(
                    f"{name} in the environment is not a JSON object", "correct it, or unset it"
                )
            variables[name] = json.dumps({**before, **words})
    return variables


def parameters(kinds: frozenset[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters that forbid these kinds in a request to open a session. claude-agent-acp is also
    told not to suggest prompts, which no usage counts, and not to offer its mode without permissions if
    claude would refuse to start with it as root."""
    options: dict[str, Any] = {"promptSuggestions": False}
    if os.geteuid() == 0 and env.get("IS_SANDBOX") != "1" and not env.get("CLAUDE_CODE_BUBBLEWRAP"):
        options["allowDangerouslySkipPermissions"] = False
    if tools := [tool for those, names in _CLAUDE if kinds & those for tool in names]:
        options["disallowedTools"] = tools
    return {"_meta": {"claudeCode": {"options": options}}}


def mode_for(
    name: str, agent: str, choice: ConfigChoice | None, wanted: str | None, kinds: frozenset[str]
) -> str | None:
    """Return the mode to set: `wanted`, or one that prevents these kinds, or None for the current. Raises
    AgentFailed if there is none."""
    if not kinds:
        return wanted
    agent = agent.casefold().rpartition("/")[2]
    if choice is None:
        choice = ConfigChoice(None, {}, "", {}, "")
    safe = [item for item in _asking(choice) if not kinds & _unasked(agent, choice, item)]
    if wanted is not None:
        granted = kinds & _unasked(agent, choice, choice.find(wanted) or wanted)
        if granted:
            hint = f"choose another mode ({', '.join(safe)})" if safe else "take --mode out of its args"
            raise AgentFailed(
                f"{name} may not {said(granted)} here, and in its mode {wanted!r} it does so without asking",
                f"{hint}, or {_CHANGE}",
            )
        return wanted
    loose = kinds - _HEED.get(agent, frozenset()) - _FETCHES
    current = choice.current
    granted = kinds & _unasked(agent, choice, current)
    if not granted and (not loose or current in safe):
        return None
    if safe:
        return safe[0]
    if loose:
        raise AgentFailed(
            f"the tool policy says that {name} may not {said(loose)}, and there is no way to keep it from that",
            f"use another agent for this role, or {_CHANGE}",
        )
    return None


def asks(agent: str, choice: ConfigChoice | None, mode: str | None) -> frozenset[str]:
    """Return the kinds that the agent asks for in a mode."""
    agent = agent.casefold().rpartition("/")[2]
    if choice is None:
        return frozenset()
    mode = choice.current if mode is None else choice.find(mode) or mode
    if not any(key in _ASKING for key in _keys(choice, mode)):
        return frozenset()
    return WATCHED - _unasked(agent, choice, mode) - (_RUNS if agent in _SANDBOXES else frozenset())


def _asking(choice: ConfigChoice) -> Iterator[str]:
    for wanted in _ASKING:
        yield from (value for value in choice.values if wanted in _keys(choice, value))


def _unasked(agent: str, choice: ConfigChoice, value: str | None) -> frozenset[str]:
    keys = _keys(choice, value)
    own = _UNASKED_BY_AGENT.get(agent, {})
    return frozenset().union(*(table.get(key, frozenset()) for table in (_UNASKED, own) for key in keys))


def _keys(choice: ConfigChoice, value: str | None) -> list[str]:
    names = [] if value is None else [value, choice.values.get(value, "")]
    return ["".join(filter(str.isalnum, name.casefold())) for name in names]


def said(kinds: frozenset[str]) -> str:
    return " or ".join(what for those, what in _WORDS if kinds & those)


def _named(items: Any, key: str) -> Iterator[tuple[str, str]]:
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, Mapping):
            continue
        if isinstance(item.get("options"), list):
            yield from _named(item["options"], key)  # a group
        elif isinstance(item.get(key), str):
            yield item[key], str(item.get("name") or "")


def _current(state: Mapping[str, Any], key: str) -> str | None:
    value = state.get(key)
    return value if isinstance(value, str) else None
