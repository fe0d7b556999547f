"""Extracting data by a schema from a text or a thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.api.nodes import Schema, put_as_is, type_of
from uwf_git.base.errors import Invalid
from uwf_git.config.read import load_config
from uwf_git.config.secrets import load_secrets, removal_note
from uwf_git.engine.kit.data import Data, extract_data, wanted
from uwf_git.engine.kit.prompt import thread_as_text
from uwf_git.engine.kit.reading import reader, turn_of, why_unread
from uwf_git.format.builtin import META
from uwf_git.format.ids import Hash, ThreadId, is_thread_id
from uwf_git.store.indexing import pin
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from uwf_git.engine.kit.context import Reply

SAME = "schema"
"""Instead of a type: the schema that the data obeys."""


class StoredNode(NamedTuple):
    """A stored node; `warning` says which secrets were removed, or ""."""

    node: Hash
    type: Hash
    data: Any
    warning: str


def check_wanted(schema: Schema) -> None:
    """Raise Invalid for an unusable schema."""
    wanted(schema.payload)


def thread_text(instance: Instance, thread: ThreadId) -> str:
    """Return a thread's prompt and steps as text."""
    return thread_as_text(instance, instance.threads.history(instance.threads.head(thread)))


def extract(
    schema: Schema,
    text: str | None,
    instruction: str,
    around: str,
    root: Path,
    store: Callable[[], Instance] | None,
    within: str,
) -> Data:
    """Extract data from `text` with context `around`, or from that alone, by the extraction model of
    `config.yaml`. If the agent of a step of the thread `within` asks, its step pays. Raises as
    `extract_data`."""

    def charge(reply: Reply) -> None:
        if store is not None and is_thread_id(within):
            _charge(store(), ThreadId(within), reply)

    config = load_config(root)
    return extract_data(
        text,
        wanted(schema.payload),
        reader(config, load_secrets(root, config, os.environ), schema.payload),
        instruction=instruction,
        around=around,
        unread=why_unread(config),
        heard=charge,
    )


def store_data(instance: Instance, schema: Schema, into: str, value: Any) -> StoredNode:
    """Store data without secrets as a node of type `into` or of the schema, and pin it. Makes
    `refs/uwf/nodes/<HASH>`. Raises NotFound, Invalid."""
    if into == SAME:
        kind = schema.type or put_as_is(instance, META, schema.payload, "the schema")
    else:
        kind = type_of(instance.store, into)
    data, taken_out = instance.redactor.value(value)
    try:
        node = instance.store.put(kind, data)
    except Invalid as error:
        if not taken_out:
            raise
        raise Invalid(
            f"a secret was removed from the data, and then {error.message}",
            error.hint,
        ) from None
    pin(instance.store, node)
    return StoredNode(node, kind, data, removal_note([("data", taken_out)]))


def _charge(instance: Instance, thread: ThreadId, reply: Reply) -> None:
    from uwf_git.engine.kit.record import Recorder

    order = instance.runs.read_order(thread) if instance.runs.is_asked(thread) else None
    if order is not None and instance.locks.is_held(thread):
        Recorder(instance, thread, order.name).record(turn_of(reply))
