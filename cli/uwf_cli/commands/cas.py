"""`uwf cas`: nodes by hash, below workflows and threads; and `uwf extract`: data of a type, out of words."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_hash, complete_thread
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_cli.output import as_json
from uwf_git.base.errors import Invalid, NotFound, Usage
from uwf_git.base.text import nearest
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.ids import ThreadId, is_hash, parse_hash
from uwf_git.format.node import hash_of, parse_json

if TYPE_CHECKING:
    from uwf_git.config.settings import Config
    from uwf_git.engine.kit.context import Reply
    from uwf_git.format.ids import Hash
    from uwf_git.store.opened import Instance
    from uwf_git.store.taking_in import Store


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
    it refers to must be here. JSON of - is read from standard input. A payload that holds a secret is refused.
    """
    from uwf_git.store.taking_in import pin

    payload = resolve.json_value(json)
    instance = invocation.instance_for_writing()
    node = _put(instance, _type(instance.store, type_), payload, "the payload")
    pin(instance.store, node)
    invocation.emit({"hash": node}, lambda value: str(value["hash"]))


def _put(instance: Instance, kind: Hash, payload: Any, what: str) -> Hash:
    """Stores a node as somebody gave it, whose hash they may know: nothing can be taken out of it. Raises Invalid
    where there is a secret in it, and as the store does."""
    instance.store.gate(payload, what, "a node")
    return instance.store.put(kind, payload)


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


@command(
    "uwf extract --schema release.schema.yaml notes.md",
    'git log -5 | uwf extract --schema names.json --prompt "the authors"',
    "uwf extract --schema Answer --thread 01JK7M      out of a thread",
    "uwf extract --into 5GWKR8TN1V3JA notes.md        by a type, and as a node of it",
)
@click.argument("file", required=False, type=click.Path(), metavar="[FILE|-]")
@click.option("--schema", "schema_", metavar="FILE|TYPE|JSON", help="What to obey: a JSON Schema.")
@click.option("--prompt", metavar="TEXT", default="", help="What the model should look for.")
@click.option(
    "--thread",
    metavar="ID",
    shell_complete=complete_thread,
    help="Read a thread, or a text that belongs to it.",
)
@click.option(
    "--into",
    metavar="TYPE",
    shell_complete=complete_hash,
    help="Keep the data as a node of this type; “schema” for that of --schema.",
)
def extract(
    invocation: Invocation,
    file: str | None,
    schema_: str | None,
    prompt: str,
    thread: str | None,
    into: str | None,
) -> None:
    """Print the data in a text that obeys a schema.

    JSON and blocks of fields in the text are taken as they are; where none of them obeys, the model that is configured
    for extraction reads it. Without FILE the text is standard input, or with --thread the thread's task and steps.
    """
    from uwf_git.engine.kit.data import extract_data, wanted
    from uwf_git.engine.kit.prompt import told_thread
    from uwf_git.engine.kit.reading import reader, why_unread

    if schema_ is None and into in (None, _SAME):
        raise Usage("--schema is missing", "a file with a JSON Schema, a type, or the schema itself")
    payload, type_hash = _schema(invocation, schema_ if schema_ is not None else into or "")
    obeyed = wanted(payload)
    around = ""
    if thread is not None:
        instance = invocation.instance
        head = instance.threads.head(find_thread(invocation, thread))
        around = told_thread(instance, instance.threads.history(head))
    text = None if file is None and thread is not None else resolve.read_file(file or resolve.STDIN, "text")
    if text is not None and not text.strip():
        raise Usage("the text to read is empty", "give a text, a file or a thread")
    config, secrets = _settings(invocation)
    model = reader(config, secrets, payload)
    found = extract_data(
        text,
        obeyed,
        model,
        instruction=prompt,
        around=around,
        unread=why_unread(config),
        heard=lambda reply: _charge(invocation, reply),
    )
    for note in found.notes:
        invocation.note(note)
    if into is None:
        invocation.emit(found.value)
        return
    from uwf_git.config.secrets import told
    from uwf_git.store.taking_in import pin

    instance = invocation.instance_for_writing()
    if into == _SAME:
        kind = type_hash or _put(instance, META, payload, "the schema")
    else:
        kind = _type(instance.store, into)
    data, taken_out = instance.redactor.value(found.value)
    try:
        node = instance.store.put(kind, data)
    except Invalid as error:
        if not taken_out:
            raise
        raise Invalid(
            f"a secret, which is never stored, was taken out of the data, and then {error.message}",
            error.hint,
        ) from None
    pin(instance.store, node)
    if redactions := told([("data", taken_out)]):
        invocation.warn(redactions)
    invocation.emit({"hash": node, "type": kind, "data": data}, lambda value: str(value["hash"]))


_SAME = "schema"


def _schema(invocation: Invocation, text: str) -> tuple[Any, Hash | None]:
    """The JSON Schema that a text is, or that the file or type of that name holds; and the type's hash. Raises
    NotFound, Invalid."""
    if text.lstrip().startswith("{") or text.strip() in ("true", "false"):
        return parse_json(text), None
    path = Path(text)
    if path.is_file() or "/" in text or path.suffix in (".json", ".yaml", ".yml"):
        from uwf_git.format.cbor import normalise
        from uwf_git.format.yaml12 import read

        return normalise(read(path).data), None
    builtin = _builtin(text)
    if builtin is not None:
        return BUILTIN[builtin], builtin
    store = invocation.instance.store
    found = _type(store, text)
    return store.schema(found).payload, found


def _settings(invocation: Invocation) -> tuple[Config, Mapping[str, str]]:
    """The configuration and the secrets, also where there is no store."""
    from uwf_git.config.read import load_config
    from uwf_git.config.secrets import load_secrets

    root = invocation.location.root
    config = load_config(root)
    return config, load_secrets(root, config, os.environ)


def _charge(invocation: Invocation, reply: Reply) -> None:
    """Notes what a model read for the step in progress whose agent has called this command: its tokens are that
    step's."""
    from uwf_git.engine.kit.reading import turn_of
    from uwf_git.engine.kit.record import Recorder
    from uwf_git.format.ids import is_thread_id

    thread = os.environ.get("UWF_THREAD", "")
    if not is_thread_id(thread) or not invocation.location.git_dir.exists():
        return
    instance = invocation.instance
    order = instance.runs.read_order(ThreadId(thread)) if instance.runs.is_asked(ThreadId(thread)) else None
    if order is not None and instance.locks.is_held(ThreadId(thread)):
        Recorder(instance, ThreadId(thread), order.name).record(turn_of(reply))


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
