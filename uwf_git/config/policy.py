"""Which tools an agent has, and how far they reach: one value, made by one merge.

    allow: [read_file, "mcp/*"]   globs over tool names; absent: every tool that isn't off by default
    deny: [fetch_url]             globs; wins over allow
    runCommand: true              run_command is off until it is switched on
    network: true                 network inside run_command's sandbox
    allowUnconfined: true         run_command where there is no sandbox
    allowHosts: [docs.python.org] hosts of fetch_url; absent: every public one
    permissions: [read, edit]     kinds of requests that agents with tools of their own are granted unasked

The machine's configuration says it for all agents and for each; a workflow's role may narrow that and
nothing else. The merged value decides what a model is told (`describe`), which tools it sees and what is
enforced (`permits`, `reaches`, `grants`), so these three can't differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from uwf_git.text import nearest, one_line

READING = ("read_file", "list_dir", "glob", "grep")
WRITING = ("write_file", "edit_file", "apply_patch")
RUN, FETCH = "run_command", "fetch_url"
STANDARD = (*READING, *WRITING, RUN, FETCH)
EXTRACT = "extract"
"""A tool that asks a model; it is there where one is configured for it."""

_LISTS = ("allow", "deny", "allowHosts", "permissions")
_SWITCHES = ("runCommand", "network", "allowUnconfined")
KEYS = (*_LISTS[:2], *_SWITCHES, *_LISTS[2:])
ROLE_KEYS = ("allow", "deny", "runCommand", "network")
_MOST = 200  # entries of a list, and characters of an entry
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.*?_-]+)(:[0-9]{1,5})?", re.ASCII)

Globs = tuple[str, ...]


class ToolPolicy(NamedTuple):
    """What is allowed. `allow`, `allow_hosts` and `permissions` hold one list of globs for each place that
    gave one, and a name has to match in every list; `()` is no list at all, `((),)` one that matches
    nothing. A switch is None where no place sets it."""

    allow: tuple[Globs, ...] = ()
    deny: Globs = ()
    run_command: bool | None = None
    network: bool | None = None
    allow_unconfined: bool | None = None
    allow_hosts: tuple[Globs, ...] = ()
    permissions: tuple[Globs, ...] = ()

    def permits(self, tool: str) -> bool:
        """Whether the tool of this name may be seen and called."""
        if tool == RUN and not self.run_command:
            return False
        return _in_all(tool, self.allow) and not _matches(tool, self.deny)

    @property
    def forbids_commands(self) -> bool:
        """Whether an agent with tools of its own may run no command. That run_command isn't switched on is said of the
        built-in agent; that it is switched off, or not among the tools allowed, counts for every one."""
        return self.run_command is False or not self._replace(run_command=True).permits(RUN)

    def reaches(self, host: str, port: int, public: bool) -> bool:
        """Whether fetch_url may ask this host (a name or an address, IPv6 in brackets). What isn't a
        public address has to be named without a wildcard."""
        names = (host.lower(), f"{host.lower()}:{port}")
        if not all(any(_matches(name, globs) for name in names) for globs in self.allow_hosts):
            return False
        return public or any(name in globs for name in names for globs in self.allow_hosts)

    def grants(self, kind: str) -> bool:
        """Whether a request of this kind by an agent with tools of its own is granted without asking."""
        return bool(self.permissions) and _in_all(kind, self.permissions)

    def describe(
        self, tools: Iterable[str] = STANDARD, confined: bool | None = None, workflow: bool = True
    ) -> str:
        """The policy for a prompt: the tools among `tools` that are permitted, where files are, what
        commands can reach. `confined` is whether there is a sandbox, None where that isn't known;
        `workflow` whether @workflow is there. "" for an agent without tools."""
        names = [name for name in tools if self.permits(name)]
        if not names:
            return ""
        lines = ["Your tools: " + ", ".join(names) + "."]
        files = [name for name in names if name in STANDARD and name != FETCH]
        if files:
            lines.append(_mounts(any(name in WRITING for name in files), workflow))
        if RUN in names:
            lines.append(self._commands(confined))
        if FETCH in names:
            named = {host for globs in self.allow_hosts for host in globs}
            hosts = sorted(host for host in named if _in_all(host, self.allow_hosts))
            where = "public hosts" if not self.allow_hosts else ", ".join(hosts[:20]) or "no host at all"
            lines.append(f"{FETCH} reaches {where}.")
        return "\n".join(lines)

    def _commands(self, confined: bool | None) -> str:
        if confined is False:
            if not self.allow_unconfined:
                return f"{RUN} is refused: this machine has no sandbox."
            return (
                "Commands run unconfined: there is no sandbox around them. Change nothing outside @project."
            )
        net = "with" if self.network else "without"
        return f"Commands run in a sandbox, {net} network; only @project can be written."


def _mounts(writable: bool, workflow: bool) -> str:
    access = "read and write" if writable else "read only"
    further = " and @workflow/… (read only)" if workflow else ""
    return f"Files are named @project/… ({access}; the folder you work in, also meant by a relative path){further}."


def parse_policy(value: Any, *, of_role: bool = False) -> tuple[ToolPolicy, list[str]]:
    """The policy that a `tools` mapping says, and what is wrong with it, a line each. A wrong value counts as the
    strictest one that may have been meant. With `of_role` the mapping is a workflow's, which can only tighten."""
    if value is None:
        return ToolPolicy(), []
    if not isinstance(value, Mapping):
        return ToolPolicy(allow=((),), run_command=False), ["tools must be a mapping"]
    problems: list[str] = []
    known = ROLE_KEYS if of_role else KEYS
    for key in value:
        if key not in known:
            problems.append(_unknown(key, known, of_role))
    lists = {key: _globs(value[key], key, problems) for key in _LISTS if key in known and key in value}
    switches = {
        key: _switch(value[key], key, of_role, problems) for key in _SWITCHES if key in known and key in value
    }
    # A list that should deny something and can't be read denies everything.
    deny = lists.get("deny", ())
    return (
        ToolPolicy(
            _layer(lists, "allow"),
            ("*",) if deny is None else deny,
            switches.get("runCommand"),
            switches.get("network"),
            switches.get("allowUnconfined"),
            _layer(lists, "allowHosts"),
            _layer(lists, "permissions"),
        ),
        problems,
    )


def tighten(local: ToolPolicy, agent: ToolPolicy | None = None, role: ToolPolicy | None = None) -> ToolPolicy:
    """What all of them allow: the configuration's policy for every agent, its policy for this agent, and the
    role's. A switch is on where the configuration switches it on and none of them off; a role can only switch off."""
    given = [policy for policy in (local, agent) if policy is not None]
    narrowing = [*given, role] if role is not None else given
    return ToolPolicy(
        tuple(dict.fromkeys(globs for policy in narrowing for globs in policy.allow)),
        tuple(dict.fromkeys(name for policy in narrowing for name in policy.deny)),
        _switched([p.run_command for p in given], role and role.run_command),
        _switched([p.network for p in given], role and role.network),
        _switched([p.allow_unconfined for p in given], role and role.allow_unconfined),
        tuple(dict.fromkeys(globs for policy in narrowing for globs in policy.allow_hosts)),
        _permissions(given, role),
    )


def _permissions(given: Sequence[ToolPolicy], role: ToolPolicy | None) -> tuple[Globs, ...]:
    layers = tuple(dict.fromkeys(globs for policy in given for globs in policy.permissions))
    # Without a list of the configuration nothing is granted, and a role's must not change that.
    return tuple(dict.fromkeys((*layers, *role.permissions))) if layers and role is not None else layers


def _switched(given: Sequence[bool | None], role: bool | None) -> bool | None:
    if role is False or False in given:
        return False
    return True if True in given else None


def _in_all(name: str, layers: tuple[Globs, ...]) -> bool:
    return all(_matches(name, globs) for globs in layers)


def _matches(name: str, globs: Globs) -> bool:
    # An address of IPv6 in brackets is equal to itself, though as a glob it is a set of characters.
    return any(name == glob or fnmatchcase(name, glob) for glob in globs)


def _layer(lists: Mapping[str, Globs | None], key: str) -> tuple[Globs, ...]:
    return (lists[key] or (),) if key in lists else ()


def _globs(value: Any, key: str, problems: list[str]) -> Globs | None:
    """A list of names, or None for what is none."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        problems.append(f"{key} must be a list of names")
        return None
    if len(listed) > _MOST or any(not 0 < len(name) <= _MOST for name in listed):
        problems.append(f"{key} must hold at most {_MOST} names of 1 to {_MOST} characters")
        return None
    if key == "allowHosts":
        for name in listed:
            if not _HOST.fullmatch(name):
                problems.append(
                    f'allowHosts: {_shown(name)} is no host; as in docs.python.org, "*.example.org", '
                    'localhost:8000, "[::1]"'
                )
        return tuple(name.lower() for name in listed if _HOST.fullmatch(name))
    if key in ("allow", "deny"):
        problems += [
            f"{key}: unknown tool {_shown(name)} ({hint})" for name in listed if (hint := _misspelt(name))
        ]
    return tuple(listed)


def _misspelt(name: str) -> str:
    """A hint for a name that no tool can have: it is no glob, not of an MCP server, and not in STANDARD."""
    if name in (*STANDARD, EXTRACT) or any(sign in name for sign in "*?[/"):
        return ""
    return nearest(name, STANDARD) or "tools are: " + ", ".join(STANDARD)


def _switch(value: Any, key: str, of_role: bool, problems: list[str]) -> bool:
    if not isinstance(value, bool):
        problems.append(f"{key} must be true or false")
        return False
    if of_role and value:
        problems.append(f"{key}: a workflow can only switch it off; {key}: true belongs into config.yaml")
        return False
    return value


def _unknown(key: Any, known: Sequence[str], of_role: bool) -> str:
    if of_role and key in KEYS:
        return f"{key} belongs into config.yaml: a workflow can only tighten ({', '.join(known)})"
    return f"unknown key {_shown(key)} in tools ({nearest(str(key), known) or 'known: ' + ', '.join(known)})"


def _shown(value: Any) -> str:
    return f'"{one_line(str(value), 60)}"'
