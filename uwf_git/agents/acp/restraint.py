"""How an agent is kept from what the policy forbids, beside refusing what it asks leave for.

It is told in its own words, where those are known: what it hasn't got it can't use. Its session is put into a mode in
which it asks, and a mode in which it wouldn't ask for what is forbidden is refused. Where neither helps, there is no
session. What it does all the same ends its turn: see `conversation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from uwf_git.agents.acp.choices import Choice
from uwf_git.errors import AgentFailed

_WRITES = frozenset(("edit", "delete", "move"))
_RUNS = frozenset(("execute",))
_FETCHES = frozenset(("fetch",))
_ALL = _WRITES | _RUNS | _FETCHES
_WORDS = ((_WRITES, "write files"), (_RUNS, "run commands"), (_FETCHES, "read from the web"))
_CHANGE = "change tools in config.yaml or of the role"

# What a session does without asking, by the letters and digits of its mode's id or name.
_UNASKED = {
    **dict.fromkeys(("acceptedits", "autoedit", "dontask"), _WRITES),
    **dict.fromkeys(("workspacewrite", "workspaceaccess", "agent", "autoreview"), _WRITES | _RUNS),
    **dict.fromkeys(("auto", "autopilot", "bypasspermissions", "bypass", "yolo"), _ALL),
    **dict.fromkeys(("agentfullaccess", "fullaccess", "dangerfullaccess"), _ALL),
}
_UNASKED_BY_AGENT = {"hermes-agent": {"default": _RUNS}}  # it asks for commands that look dangerous to it
_ASKING = ("readonly", "default", "manual", "ask", "plan")  # the first that is offered is taken
# Of what these are told to do without, they have no tool then.
_HEED = {"claude-agent-acp": _ALL, "opencode": _ALL, "codex-acp": _RUNS | _FETCHES}

_CLAUDE = ((_WRITES, ("Edit", "Write", "NotebookEdit")), (_RUNS, ("Bash", "Monitor")),
           (_FETCHES, ("WebFetch", "WebSearch")))  # fmt: skip
_VARIABLES = (
    (_WRITES, "OPENCODE_PERMISSION", {"edit": "deny"}),
    (_RUNS, "OPENCODE_PERMISSION", {"bash": "deny"}),
    (_FETCHES, "OPENCODE_PERMISSION", {"webfetch": "deny", "websearch": "deny"}),
    (_RUNS, "CODEX_CONFIG", {"features.shell_tool": False}),
    (_FETCHES, "CODEX_CONFIG", {"web_search": "disabled"}),
)


def watched(forbidden: Iterable[str]) -> frozenset[str]:
    """The kinds of calls, among those that are forbidden, that must not happen unasked either."""
    return _ALL & frozenset(forbidden)


def environment(env: Mapping[str, str], kinds: frozenset[str]) -> dict[str, str]:
    """The environment for an agent that has to do without these kinds of calls. What the user has set in the same
    variable stays, as far as it doesn't say otherwise. Raises AgentFailed where it is no JSON."""
    told = dict(env)
    for those, name, words in _VARIABLES:
        if kinds & those:
            try:
                before = json.loads(told.get(name) or "{}")
            except ValueError:
                before = None
            if not isinstance(before, dict):
                raise AgentFailed(f"{name} in the environment is no JSON object", "mend it, or unset it")
            told[name] = json.dumps({**before, **words})
    return told


def parameters(kinds: frozenset[str]) -> dict[str, Any]:
    """The same in what goes with a request to open a session."""
    tools = [tool for those, names in _CLAUDE if kinds & those for tool in names]
    return {"_meta": {"claudeCode": {"options": {"disallowedTools": tools}}}} if tools else {}


def mode_for(
    name: str, agent: str, choice: Choice | None, wanted: str | None, kinds: frozenset[str]
) -> str | None:
    """The mode to set: `wanted`, or one that keeps the agent from these kinds of calls, or None for that in which
    the session is. `name` is for messages, `agent` what it calls itself. Raises AgentFailed where there is none."""
    if not kinds:
        return wanted
    agent = agent.casefold().rpartition("/")[2]
    if choice is None:
        choice = Choice(None, {}, "", {}, "")
    safe = [each for each in _asking(choice) if not kinds & _unasked(agent, choice, each)]
    if wanted is not None:
        granted = kinds & _unasked(agent, choice, choice.find(wanted) or wanted)
        if granted:
            hint = f"choose another mode ({', '.join(safe)})" if safe else "take --mode out of its args"
            raise AgentFailed(
                f"{name} may not {_said(granted)} here, and in its mode {wanted!r} it does so without asking",
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
            f"the tool policy says that {name} may not {_said(loose)}, and there is no way to keep it from that",
            f"let another agent play this role, or {_CHANGE}",
        )
    return None


def reason(kinds: frozenset[str]) -> str:
    """Why a mode was chosen."""
    return f"it may not {_said(kinds)}"


def _asking(choice: Choice) -> Iterator[str]:
    for wanted in _ASKING:
        yield from (value for value in choice.values if wanted in _keys(choice, value))


def _unasked(agent: str, choice: Choice, value: str | None) -> frozenset[str]:
    keys = _keys(choice, value)
    own = _UNASKED_BY_AGENT.get(agent, {})
    return frozenset().union(*(table.get(key, frozenset()) for table in (_UNASKED, own) for key in keys))


def _keys(choice: Choice, value: str | None) -> list[str]:
    names = [] if value is None else [value, choice.values.get(value, "")]
    return ["".join(filter(str.isalnum, name.casefold())) for name in names]


def _said(kinds: frozenset[str]) -> str:
    return " or ".join(what for those, what in _WORDS if kinds & those)
