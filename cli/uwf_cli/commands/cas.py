"""`uwf cas`: nodes by hash, below workflows and threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_hash
from uwf_cli.invocation import Invocation
from uwf_cli.output import as_json
from uwf_git.errors import Invalid, NotFound
from uwf_git.text import nearest
from uwf_git.values.ids import is_hash, parse_hash
from uwf_git.values.node import hash_of
from uwf_git.values.types import BUILTIN, META

if TYPE_CHECKING:
    from uwf_git.store.taking_in import Store
    from uwf_git.values.ids import Hash


@command(
    "uwf cas put Text '\"hello\"'",
    'uwf cas put "JSON Schema" \'{"type": "integer"}\'    a new type',
    "echo 42 | uwf cas put 4K9WEA7FSH41E -",
)
@click.argument("type_", metavar="TYPE", shell_complete=complete_hash)
@click.argument("json", metavar="JSON")
def put(invocation: Invocation, type_: str, json: str) -> None:
    """Store a node and print its hash.

    The ref refs/uwf/nodes/<HASH> keeps it, with all that it refers to.

    TYPE is the hash of a schema node or the title of a built-in one. The payload must obey it, and what
    it refers to must be here. JSON of - is read from standard input.
    """
    from uwf_git.store.taking_in import pin

    payload = resolve.json_value(json)
    store = invocation.instance_for_writing().store
    node = store.put(_type(store, type_), payload)
    pin(store, node)
    invocation.emit({"hash": node}, lambda value: str(value["hash"]))


@command("uwf cas hash Text '\"hello\"'")
@click.argument("type_", metavar="TYPE", shell_complete=complete_hash)
@click.argument("json", metavar="JSON")
def hash_(invocation: Invocation, type_: str, json: str) -> None:
    """Compute the hash a node would have. Stores nothing."""
    payload = resolve.json_value(json)
    kind = _builtin(type_)
    if kind is None and is_hash(type_.strip().upper()):
        kind = parse_hash(type_)
    elif kind is None:
        kind = _type(invocation.instance.store, type_)
    invocation.emit({"hash": hash_of(kind, payload)}, lambda value: str(value["hash"]))


@command("uwf cas get 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def get(invocation: Invocation, node: str) -> None:
    """Print a node: type, payload, timestamp (Unix milliseconds)."""
    store = invocation.instance.store
    content = store.get(store.complete(node))
    invocation.emit(
        {"type": content.type, "payload": content.payload, "timestamp": content.timestamp}, as_json
    )


@command("uwf cas has 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def has(invocation: Invocation, node: str) -> None:
    """Tell whether a node is in the store."""
    store = invocation.instance.store
    try:
        found = store.has(store.complete(node))
    except NotFound:
        found = False
    invocation.emit({"exists": found}, lambda value: "yes" if value["exists"] else "no")


@command("uwf cas refs 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def refs(invocation: Invocation, node: str) -> None:
    """List what a node refers to, its type left out."""
    store = invocation.instance.store
    found = store.references(store.get(store.complete(node)))
    invocation.emit({"refs": list(dict.fromkeys(found))}, lambda value: "\n".join(value["refs"]))


@command("uwf cas walk 8FWKR3TN5V1QA")
@click.argument("node", metavar="HASH", shell_complete=complete_hash)
def walk(invocation: Invocation, node: str) -> None:
    """List a node and all that it leads to, types included, each once."""
    store = invocation.instance.store
    found = [each for each, _content in store.walk(store.complete(node))]
    invocation.emit({"hashes": found}, lambda value: "\n".join(value["hashes"]))


@command("uwf cas reindex")
def reindex(invocation: Invocation) -> None:
    """Throw the local index away and build it anew from the refs."""
    nodes = invocation.instance.store.reindex()
    invocation.emit({"status": "ok", "nodes": nodes}, lambda value: f"{value['nodes']} nodes indexed")


@command("uwf cas schema list")
def schema_list(invocation: Invocation) -> None:
    """List the types of nodes."""
    found: dict[Hash, Any] = dict(BUILTIN)
    if invocation.location.git_dir.exists():
        store = invocation.instance.store
        store.sync()
        for each in store.index.hashes_of_type(META):
            found[each] = store.get(each).payload
    listed = [
        {"hash": each, "title": _title(payload), "builtin": each in BUILTIN}
        for each, payload in found.items()
    ]
    invocation.emit(
        listed,
        lambda value: terminal.table(
            [(each["hash"], each["title"] or "", "built in" if each["builtin"] else "") for each in value]
        ),
    )


@command(
    "uwf cas schema get StepNode",
    "uwf cas schema get 4K9WEA7FSH41E",
)
@click.argument("type_", metavar="TYPE", shell_complete=complete_hash)
def schema_get(invocation: Invocation, type_: str) -> None:
    """Print the JSON Schema of a type."""
    builtin = _builtin(type_)
    if builtin is not None:
        payload: Any = BUILTIN[builtin]
    else:
        store = invocation.instance.store
        payload = store.schema(_type(store, type_)).payload
    invocation.emit(payload, as_json)


def _type(store: Store, text: str) -> Hash:
    """The type that a title, a hash or the unique beginning of one names. Raises NotFound, Usage."""
    builtin = _builtin(text)
    if builtin is not None:
        return builtin
    try:
        return store.complete(text)
    except (NotFound, Invalid) as error:  # too short for a hash, or unknown
        titles = [_title(payload) or "" for payload in BUILTIN.values()]
        raise NotFound(f"no type {text!r}", nearest(text, titles) or error.hint) from None


def _builtin(text: str) -> Hash | None:
    wanted = text.strip().casefold()
    titles = ((node, _title(payload)) for node, payload in BUILTIN.items())
    return next((node for node, title in titles if title and title.casefold() == wanted), None)


def _title(payload: Any) -> str | None:
    title = payload.get("title") if isinstance(payload, dict) else None
    return title if isinstance(title, str) else None
