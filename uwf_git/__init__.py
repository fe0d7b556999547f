"""A workflow engine for LLM agents that stores everything in git.

Rooms, each importing only from itself and those above it, and extensions, known through their rows alone.

    base     errors and their exit statuses, text, log, time limits, how a process ends
    sandbox  child processes, limits, quotas, bubblewrap, confined paths, nested repositories
    format   nodes, hashes, CBOR, schemas, ids, YAML and JSON with positions; pure
    git      a repository: objects, refs, packs, locks, the git program
    workflow the language and the moderator: parse, check, compile, decide, rehearse; pure
    config   config.yaml, .env, policies, secrets
    forge    forges and trackers: addresses of issues and repositories, logins, their REST APIs
    store    nodes, threads, versions, index: everything under refs/uwf/
    trust    who signed what, and who may
    workspaces  where agents work: a git worktree per thread, and commits of what its steps left
    approvals what people were shown, their approvals, and which of these count
    engine   one step: prompt, agent, output, acceptance, budget, conversation
    verify   histories and refs, checked from git's objects alone
    sync     two stores: push, pull, divergence, review, repair
    api      the use cases that the command, the pages, MCP, the fleet and evaluation call
    ext/     a folder a feature: agents, builtin, crews, code, evaluation, fleet, web, mcp, traces, importers

The names below are the public API, described in docs/reference/python-api.md; `uwf_git.kit` is for authors of agents,
`uwf_git.plugin` for authors of extensions. Everything else is private. Importing this package imports no room: names
are loaded on first use.
"""

from typing import TYPE_CHECKING

from uwf_git.base.version import VERSION as __version__

if TYPE_CHECKING:
    from typing import Any

    from uwf_git.api.states import (
        Completed,
        Failed,
        Idle,
        Killed,
        OverBudget,
        Paused,
        Running,
        State,
        Stuck,
        Waiting,
    )
    from uwf_git.api.store import Store, init, open
    from uwf_git.api.thread import Budget, Step, Thread, Workflow
    from uwf_git.api.turn import Turn
    from uwf_git.base.errors import AgentFailed, Busy, Invalid, NotFound, StoreDamaged, UwfError

__all__ = [
    "AgentFailed",
    "Budget",
    "Busy",
    "Completed",
    "Failed",
    "Idle",
    "Invalid",
    "Killed",
    "NotFound",
    "OverBudget",
    "Paused",
    "Running",
    "State",
    "Step",
    "Store",
    "StoreDamaged",
    "Stuck",
    "Thread",
    "Turn",
    "UwfError",
    "Waiting",
    "Workflow",
    "__version__",
    "init",
    "open",
]

_PLACES = {
    "uwf_git.api.states": (
        *(
            "Completed",
            "Failed",
            "Idle",
            "Killed",
            "OverBudget",
            "Paused",
            "Running",
            "State",
            "Stuck",
            "Waiting",
        ),
    ),
    "uwf_git.api.store": ("Store", "init", "open"),
    "uwf_git.api.thread": ("Budget", "Step", "Thread", "Workflow"),
    "uwf_git.api.turn": ("Turn",),
    "uwf_git.base.errors": ("AgentFailed", "Busy", "Invalid", "NotFound", "StoreDamaged", "UwfError"),
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
