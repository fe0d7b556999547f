"""`uwf cas`: nodes by hash; and `uwf extract`."""

from __future__ import annotations

import os

import click

from uwf_cli import resolve
from uwf_cli.command import command
from uwf_cli.completers import complete_hash, complete_thread
from uwf_cli.invocation import Invocation, find_thread
from uwf_cli.output import as_json
from uwf_cli.views import Table
from uwf_git.base.errors import NotFound, Usage


@command(
    "uwf cas put Text '\"hello\"'",
    'uwf cas put "JSON Schema" \'{"type": "integer"}\'    a new type',
    "echo 42 | uwf cas put 4K9WEA7FSH41E -",
)
@click.argument("type_", metavar="TYPE", shell_complete=complete_hash)
@click.argument("json", metavar="JSON")
def put(invocation: Invocation, type_: str, json: str) -> None:
    """Store a node and print its hash.

    TYPE is the hash of a schema node or the title of a built-in schema. The payload must be valid, and the
    nodes it references must exist. - reads the JSON from standard input. A payload that contains a secret is
    refused. The ref refs/uwf/nodes/<HASH> protects the node from gc.
    """
    from uwf_git.api import nodes

    payload = resolve.json_value(json)
    node = nodes.put(invocation.instance_for_writing(), type_, payload)
    invocation.emit({"hash": node}, "{hash}")


@command("uwf cas hash Text '\"hello\"'")
@click.argument("type_", metavar="TYPE", shell_complete=complete_hash)
@click.argument("json", metavar="JSON")
def hash_(invocation: Invocation, type_: str, json: str) -> None:
    """Compute the hash of a node without storing it."""
    from uwf_git.api.nodes import hash_as

    node = hash_as(type_, resolve.json_value(json), lambda: invocation.instance.store)
    invocation.emit({"hash": node}, "{hash}")


@command("uwf cas get 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def get(invocation: Invocation, node: str) -> None:
    """Print a node: type, payload and timestamp (Unix milliseconds)."""
    store = invocation.instance.store
    content = store.get(store.complete(node))
    invocation.emit(
        {"type": content.type, "payload": content.payload, "timestamp": content.timestamp}, as_json
    )


@command("uwf cas has 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def has(invocation: Invocation, node: str) -> None:
    """Check whether a node exists."""
    store = invocation.instance.store
    try:
        exists = store.has(store.complete(node))
    except NotFound:
        exists = False
    invocation.emit({"exists": exists}, lambda value: "yes" if value["exists"] else "no")


@command("uwf cas refs 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def refs(invocation: Invocation, node: str) -> None:
    """List the nodes that a node references, except its type."""
    store = invocation.instance.store
    nodes = store.references(store.get(store.complete(node)))
    invocation.emit({"refs": list(dict.fromkeys(nodes))}, lambda value: "\n".join(value["refs"]))


@command("uwf cas walk 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def walk(invocation: Invocation, node: str) -> None:
    """List a node and every node reachable from it, including types."""
    store = invocation.instance.store
    nodes = [item for item, _content in store.walk(store.complete(node))]
    invocation.emit({"hashes": nodes}, lambda value: "\n".join(value["hashes"]))


@command("uwf cas reindex")
def reindex(invocation: Invocation) -> None:
    """Rebuild the local index from the refs."""
    nodes = invocation.instance.store.reindex()
    invocation.emit({"status": "ok", "nodes": nodes}, "{nodes} nodes indexed")


@command("uwf cas schema list")
def schema_list(invocation: Invocation) -> None:
    """List the node types."""
    from uwf_git.api.nodes import types

    listed = types(invocation.instance.store if invocation.location.git_dir.exists() else None)
    built_in = ("", lambda type_: "built in" if type_["builtin"] else "")
    invocation.emit(listed, Table(("", "hash"), ("", "title"), built_in))


@command(
    "uwf cas schema get StepNode",
    "uwf cas schema get 4K9WEA7FSH41E",
)
@click.argument("type_", metavar="TYPE", shell_complete=complete_hash)
def schema_get(invocation: Invocation, type_: str) -> None:
    """Print the JSON Schema of a type."""
    from uwf_git.api.nodes import schema_of_type

    payload = schema_of_type(type_, lambda: invocation.instance.store).payload
    invocation.emit(payload, as_json)


@command(
    "uwf extract --schema release.schema.yaml notes.md",
    'git log -5 | uwf extract --schema names.json --prompt "the authors"',
    "uwf extract --schema Answer --thread 01JK7M      out of a thread",
    "uwf extract --into 5GWKR8TN1V3JA notes.md        by a type, and as a node of it",
)
@click.argument("file", required=False, type=click.Path(), metavar="[FILE|-]")
@click.option("--schema", "schema_", metavar="FILE|TYPE|JSON", help="JSON Schema of the data to extract.")
@click.option("--prompt", metavar="TEXT", default="", help="Instruction for the model.")
@click.option(
    "--thread",
    metavar="ID",
    shell_complete=complete_thread,
    help="Read the thread's prompt and steps, or FILE with the thread as context.",
)
@click.option(
    "--into",
    metavar="TYPE",
    shell_complete=complete_hash,
    help='Store the data as a node of this type; "schema" stands for --schema.',
)
def extract(
    invocation: Invocation,
    file: str | None,
    schema_: str | None,
    prompt: str,
    thread: str | None,
    into: str | None,
) -> None:
    """Extract data that matches a JSON Schema from a text.

    JSON and field blocks in the text are tried first. If none is valid, the configured extraction model reads
    the text. FILE defaults to standard input, or to the prompt and steps of --thread.
    """
    from uwf_git.api import extraction
    from uwf_git.api.nodes import read_schema

    if schema_ is None and into in (None, extraction.SAME):
        raise Usage("--schema is missing", "a file with a JSON Schema, a type, or the schema itself")
    schema = read_schema(schema_ if schema_ is not None else into or "", lambda: invocation.instance.store)
    extraction.check_wanted(schema)
    around = ""
    if thread is not None:
        around = extraction.thread_text(invocation.instance, find_thread(invocation, thread))
    text = None if file is None and thread is not None else resolve.read_file(file or resolve.STDIN, "text")
    if text is not None and not text.strip():
        raise Usage("the text to read is empty", "give a text, a file or a thread")
    store = (lambda: invocation.instance) if invocation.location.git_dir.exists() else None
    within = os.environ.get("UWF_THREAD", "")
    data = extraction.extract(schema, text, prompt, around, invocation.location.root, store, within)
    for note in data.notes:
        invocation.note(note)
    if into is None:
        invocation.emit(data.value)
        return
    kept = extraction.store_data(invocation.instance_for_writing(), schema, into, data.value)
    if kept.warning:
        invocation.warn(kept.warning)
    value = {"hash": kept.node, "type": kept.type, "data": kept.data}
    invocation.emit(value, "{hash}")
