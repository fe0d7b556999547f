"""Tool policies: which tools an agent has and what they reach, merged into one value.

    allow: [read_file, "mcp/*"]   globs over tool names; absent: every tool that isn't off by default
    deny: [fetch_url]             globs; wins over allow
    runCommand: true              run_command is off by default; if unset, UWF_BUILTIN_ALLOW_SHELL=1 permits it
    network: true                 network inside run_command's sandbox
    allowUnconfined: true         run_command without a sandbox
    allowHosts: [docs.python.org] hosts of fetch_url; absent: every public one
    permissions: [read, edit]     kinds of requests that are granted to agent programs without asking
    maxReadBytes: 65536           of a file, in the result of one call
    maxWriteBytes: 1048576        of a file that is written
    limits: {memory: 2GB}         of a run_command; also processes, cpu and disk
    strict: true                  an agent that cannot be held to a rule doesn't play the role

The machine's configuration has policies for all agents and for each; a workflow's role and a crew's persona
can only narrow them. A persona may also say `files: false` (no file tools and commands), `mcp: false` (no MCP
tools) and `servers` (only these). The merged value determines the prompt (`describe`), the visible tools and
enforcement (`permits`, `reaches`, `grants`), so they cannot differ.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import AgentFailed
from uwf_git.base.text import nearest, one_line
from uwf_git.format.amounts import parse_quota
from uwf_git.format.kinds import EXTRACT
from uwf_git.sandbox.quota import Quota

if TYPE_CHECKING:
    from uwf_git.format.casting import CastRole

READING = ("read_file", "list_dir", "glob", "grep")
WRITING = ("write_file", "edit_file", "apply_patch")
"""The tools that change files."""
RUN = "run_command"
"""The tool that runs commands."""
FETCH = "fetch_url"
"""The tool that fetches pages."""
STANDARD = (*READING, *WRITING, RUN, FETCH)

_LISTS = ("allow", "deny", "allowHosts", "permissions", "servers")
_SWITCHES = ("runCommand", "network", "allowUnconfined", "strict")
_GRANTS = ("runCommand", "network")
"""The switches that permit more if they are on."""
_SIZES = ("maxReadBytes", "maxWriteBytes")
LIMITS = "limits"
KEYS = (*_LISTS[:2], *_SWITCHES[:3], *_LISTS[2:4], *_SIZES, LIMITS, "strict")


class Source(NamedTuple):
    """Where a policy is written: by whom, "" for the machine's own configuration, and the keys it may have."""

    author: str
    keys: tuple[str, ...]


CONFIGURATION = Source("", KEYS)
ROLE = Source("a workflow", ("allow", "deny", "runCommand", "network"))
SPEAKER = Source("a persona", ("allow", "deny", "files", *_SIZES, "mcp", "servers"))
"""A persona's policy, in its crew."""
PROJECT = Source("a project", (*ROLE.keys, "permissions", *_SIZES, "strict"))
"""A project's. A list of hosts would open those that aren't public, and limits would replace the usual ones."""
REQUESTS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
"""The kinds of requests that agents with tools of their own make."""
_MCP = "mcp/"
_SETS = {"files": (*READING, *WRITING, RUN), "mcp": (f"{_MCP}*",)}
"""Keys that turn off several tools."""
_MAX_ENTRIES = 200  # entries of a list, and characters of an entry
_HOST = r"(?a)(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.*?_-]+)(:[0-9]{1,5})?"

Globs = tuple[str, ...]


class ToolPolicy(NamedTuple):
    """A merged policy. `allow`, `allow_hosts`, `permissions` and `servers` have one glob list per source, and
    a name must match in every list; `()` is no list, `((),)` matches nothing. Switches are None if unset.
    `max_read` and `max_write` are in bytes; `limits` are per command; `strict` refuses agents that cannot be
    held to all rules."""

    allow: tuple[Globs, ...] = ()
    deny: Globs = ()
    run_command: bool | None = None
    network: bool | None = None
    allow_unconfined: bool | None = None
    allow_hosts: tuple[Globs, ...] = ()
    permissions: tuple[Globs, ...] = ()
    servers: tuple[Globs, ...] = ()
    max_read: int | None = None
    max_write: int | None = None
    limits: Quota = Quota()
    strict: bool = False

    def permits(self, tool: str) -> bool:
        """Whether a tool is visible and callable."""
        if tool == RUN and not self.run_command:
            return False
        if tool.startswith(_MCP) and not self.serves(tool.split("/")[1]):
            return False
        return _in_all(tool, self.allow) and not _matches(tool, self.deny)

    def serves(self, server: str) -> bool:
        """Whether an MCP server's tools may be used."""
        return _in_all(server, self.servers)

    @property
    def forbids_commands(self) -> bool:
        """Whether an agent program may run no commands. An unset run_command concerns only the built-in
        agent; switched off or not allowed, it concerns all."""
        return self.run_command is False or not self._replace(run_command=True).permits(RUN)

    def reaches(self, host: str, port: int, public: bool) -> bool:
        """Whether fetch_url may access a host (name or address, IPv6 in brackets). Non-public addresses must
        be named without wildcards."""
        names = (host.lower(), f"{host.lower()}:{port}")
        if not all(any(_matches(name, globs) for name in names) for globs in self.allow_hosts):
            return False
        return public or any(name in globs for name in names for globs in self.allow_hosts)

    def grants(self, kind: str) -> bool:
        """Whether a kind of request is granted without asking."""
        return bool(self.permissions) and _in_all(kind, self.permissions)

    def unheld(self, asked: Collection[str], known: Collection[str] = ()) -> list[str]:
        """Return the rules that an agent program cannot be held to, as configured. `asked` are the kinds of
        requests that it asks for or never makes; for kinds in `known`, missing permissions are reported too.
        """
        rules: list[str] = []
        for globs in self.permissions:
            plain = [entry for entry in globs if ":" not in entry]
            for entry in globs:
                kind, colon, _ = entry.partition(":")
                kinds = [
                    request
                    for request in REQUESTS
                    if fnmatchcase(request, kind) and not _matches(request, (*plain,))
                ]
                if colon and any(item not in asked for item in kinds):
                    rules.append(f"permissions: {entry}")
            covered = [entry.partition(":")[0] for entry in globs]
            rules += [
                f"permissions: nothing of {item}"
                for item in known
                if item not in asked and not _matches(item, (*covered,))
            ]
        if "read" not in asked:
            rules += [f"no {tool}" for tool in READING if not self.permits(tool)]
            rules += ["maxReadBytes"] if self.max_read is not None else []
        if "edit" not in asked:
            rules += ["maxWriteBytes"] if self.max_write is not None else []
        if "fetch" not in asked and self.permits(FETCH) and self.allow_hosts:
            rules.append("allowHosts")
        if self.network is False and "execute" not in asked and not self.forbids_commands:
            rules.append("network: false")
        return list(dict.fromkeys(rules))

    def check_held(self, name: str, rules: Sequence[str]) -> str:
        """Return a note on rules that cannot be enforced, or "". Raises AgentFailed if `strict`."""
        if not rules:
            return ""
        problem = f"cannot enforce these rules of the policy on {name}: {', '.join(rules)}"
        if self.strict:
            raise AgentFailed(
                problem, "use another agent for this role, or change tools (strict) in config.yaml"
            )
        return problem

    def describe(
        self,
        tools: Iterable[str] = STANDARD,
        confined: bool | None = None,
        further: Sequence[str] = ("@workflow/… (read only)",),
    ) -> str:
        """Return the policy for a prompt: permitted `tools`, folders, reach of commands. `confined`: there is
        a sandbox, None if unknown; `further` are folders besides @project. "" without tools."""
        names = [name for name in tools if self.permits(name)]
        if not names:
            return ""
        lines = ["Your tools: " + ", ".join(names) + "."]
        files = [name for name in names if name in STANDARD and name != FETCH]
        if files:
            lines.append(_mounts(any(name in WRITING for name in files), further))
            lines += self._sizes(files)
        if RUN in names:
            lines.append(self._commands(confined))
        if FETCH in names:
            named = {host for globs in self.allow_hosts for host in globs}
            hosts = sorted(host for host in named if _in_all(host, self.allow_hosts))
            where = "public hosts" if not self.allow_hosts else ", ".join(hosts[:20]) or "no host at all"
            lines.append(f"{FETCH} reaches {where}.")
        return "\n".join(lines)

    def _sizes(self, files: Sequence[str]) -> list[str]:
        limits = []
        if self.max_read is not None and any(name in READING for name in files):
            limits.append(f"a call gives at most {self.max_read} bytes of a file")
        if self.max_write is not None and any(name in WRITING for name in files):
            limits.append(f"a file that you write may hold at most {self.max_write} bytes")
        sentence = ", and ".join(limits)
        return [f"{sentence[0].upper()}{sentence[1:]}."] if sentence else []

    def _commands(self, confined: bool | None) -> str:
        if confined is False:
            if not self.allow_unconfined:
                return f"{RUN} is refused: this machine has no sandbox."
            return (
                "Commands run unconfined: there is no sandbox around them. Change nothing outside @project."
            )
        net = "with" if self.network else "without"
        return f"Commands run in a sandbox, {net} network; only @project can be written."


def reading_only() -> dict[str, Any]:
    """Return a role's `tools` for reading files without changes."""
    return {"allow": [*READING], "runCommand": False}


def _mounts(writable: bool, further: Sequence[str]) -> str:
    access = "read and write" if writable else "read only"
    first = f"@project/… ({access}; the folder you work in, also meant by a relative path)"
    *others, last = [first, *further]
    return f"Files are named {' and '.join(filter(None, (', '.join(others), last)))}."


def role_policies(role: "CastRole") -> tuple[ToolPolicy, ...]:
    """Return the policies of a role and of whoever speaks for it."""
    sources = zip(role.tools, (ROLE, SPEAKER), strict=True)
    return tuple(parse_policy(tools, source)[0] for tools, source in sources)


def parse_policy(value: Any, source: Source = CONFIGURATION) -> tuple[ToolPolicy, list[str]]:
    """Return the policy of a `tools` mapping, and its problems. An invalid value counts as the strictest.
    Only the configuration can widen."""
    if value is None:
        return ToolPolicy(), []
    if not isinstance(value, Mapping):
        return ToolPolicy(allow=((),), run_command=False), ["tools must be a mapping"]
    problems: list[str] = []
    known = source.keys
    for key in value:
        if key not in known:
            problems.append(_unknown(key, source))
    lists = {key: _globs(value[key], key, problems) for key in _LISTS if key in known and key in value}
    switches = {
        key: _switch(value[key], key, source, problems) for key in _SWITCHES if key in known and key in value
    }
    # A list that should deny something and can't be read denies everything.
    listed = lists.get("deny", ())
    deny = ("*",) if listed is None else listed
    for key, tools in _SETS.items():
        if key in known and not _switch(value.get(key, True), key, source, problems):
            deny += tools
    limits, wrong = parse_quota(value.get(LIMITS)) if LIMITS in known else (Quota(), [])
    problems += [f"{message} ({hint})" for _, message, hint in wrong]
    return (
        ToolPolicy(
            _layer(lists, "allow"),
            deny,
            switches.get("runCommand"),
            switches.get("network"),
            switches.get("allowUnconfined"),
            _layer(lists, "allowHosts"),
            _layer(lists, "permissions"),
            _layer(lists, "servers"),
            max_read=_size(value, "maxReadBytes", problems) if "maxReadBytes" in known else None,
            max_write=_size(value, "maxWriteBytes", problems) if "maxWriteBytes" in known else None,
            limits=limits,
            strict=bool(switches.get("strict")),
        ),
        problems,
    )


def tighten(local: ToolPolicy, agent: ToolPolicy | None = None, *narrower: ToolPolicy | None) -> ToolPolicy:
    """Merge policies: of the configuration for all agents and for this one, of the role and the persona. A
    switch is on only if the configuration turns it on and none off."""
    policies = [policy for policy in (local, agent) if policy is not None]
    added = [policy for policy in narrower if policy is not None]
    every = [*policies, *added]
    permissions = _layers(policy.permissions for policy in policies)
    if permissions:
        # Without a list of the configuration nothing is granted, and another's must not change that.
        permissions = _layers((permissions, *(policy.permissions for policy in added)))
    return ToolPolicy(
        _layers(policy.allow for policy in every),
        tuple(dict.fromkeys(name for policy in every for name in policy.deny)),
        _switched([p.run_command for p in policies], [p.run_command for p in added]),
        _switched([p.network for p in policies], [p.network for p in added]),
        _switched([p.allow_unconfined for p in policies], [p.allow_unconfined for p in added]),
        _layers(policy.allow_hosts for policy in every),
        permissions,
        _layers(policy.servers for policy in every),
        _least(policy.max_read for policy in every),
        _least(policy.max_write for policy in every),
        reduce(Quota.tightened, (policy.limits for policy in every)),
        any(policy.strict for policy in every),
    )


def _layers(lists: Iterable[tuple[Globs, ...]]) -> tuple[Globs, ...]:
    return tuple(dict.fromkeys(globs for layers in lists for globs in layers))


def _least(sizes: Iterable[int | None]) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


def _switched(given: Sequence[bool | None], narrower: Sequence[bool | None]) -> bool | None:
    if False in narrower or False in given:
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
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        problems.append(f"{key} must be a list of names")
        return None
    if len(listed) > _MAX_ENTRIES or any(not 0 < len(name) <= _MAX_ENTRIES for name in listed):
        problems.append(f"{key} must hold at most {_MAX_ENTRIES} names of 1 to {_MAX_ENTRIES} characters")
        return None
    if key == "allowHosts":
        for name in listed:
            if not re.fullmatch(_HOST, name):
                problems.append(
                    f'allowHosts: {_shown(name)} is not a host; as in docs.python.org, "*.example.org", '
                    'localhost:8000, "[::1]"'
                )
        return tuple(name.lower() for name in listed if re.fullmatch(_HOST, name))
    if key in ("allow", "deny"):
        problems += [
            f"{key}: unknown tool {_shown(name)} ({hint})" for name in listed if (hint := _misspelt(name))
        ]
    return tuple(listed)


def _misspelt(name: str) -> str:
    if name in (*STANDARD, EXTRACT) or any(sign in name for sign in "*?[/"):
        return ""
    return nearest(name, STANDARD) or "tools are: " + ", ".join(STANDARD)


def _switch(value: Any, key: str, source: Source, problems: list[str]) -> bool:
    if not isinstance(value, bool):
        problems.append(f"{key} must be true or false")
        return False
    if value and key in _GRANTS and source is not CONFIGURATION:
        problems.append(
            f"{key}: {source.author} can only switch it off; {key}: true belongs into your own config.yaml"
        )
        return False
    return value


def _size(value: Mapping[str, Any], key: str, problems: list[str]) -> int | None:
    size = value.get(key)
    if size is None:
        return None
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        problems.append(f"{key} must be a number of bytes")
        return 0
    return size


def _unknown(key: Any, source: Source) -> str:
    author, known = source
    if key in KEYS:
        return f"{key} belongs into config.yaml: {author} can only tighten ({', '.join(known)})"
    return f"unknown key {_shown(key)} in tools ({nearest(str(key), known) or 'known: ' + ', '.join(known)})"


def _shown(value: Any) -> str:
    return f'"{one_line(str(value), 60)}"'
