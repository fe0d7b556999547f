"""A stateless workflow engine for LLM agents whose store is a git repository.

Layers, each importing only from those above it:

    errors, ids, cbor, node, schema, builtin     values: hashes, nodes and what they obey
    repository, index, store                     nodes as git blobs, found by hash
    workflow/                                    YAML to a Workflow node; findings; diagrams
    expression, template, moderator              which role is next: pure, no git, no network
    thread, attempts, lock                       chains of commits under refs/uwf
    config, process, step                        one step of one thread
    kit/, agents/                                what makes a command an agent

Importing this package imports none of them: start-up is what a user feels.
"""

__version__ = "0.1.0"
