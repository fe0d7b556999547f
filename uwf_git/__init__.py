"""A stateless workflow engine for LLM agents whose store is a git repository.

Rooms, each importing only from itself and those above it, and extensions on top of them, which the rooms know through
`uwf_git.ext` alone.

    base     errors and their exit statuses, text, log, time limits, how a process ends
    sandbox  child processes, limits, quotas, bubblewrap, confined paths, nested repositories
    format   nodes, hashes, CBOR, schemas, ids, YAML and JSON with positions: the promise; pure
    git      a repository: objects, refs, packs, locks, the git program
    workflow the language, and who is next: parse, check, compile, decide, rehearse; pure
    config   config.yaml, .env, policies, secrets
    store    nodes, threads, versions, index: all that is under refs/uwf/
    engine   one step: prompt, agent, output, acceptance, budget, conversation
    verify   histories and refs, checked from git's objects alone
    sync     two stores: push, pull, divergence, review, repair
    api      the use cases that the command, the pages, MCP, the fleet and evaluation call
    ext/     a folder a feature: agents, builtin, crews, code, evaluation, fleet, web, mcp, traces, importers

Importing this package imports none of them: start-up is what a user feels.
"""

from uwf_git.base.version import VERSION as __version__

__all__ = ["__version__"]
