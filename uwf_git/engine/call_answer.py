"""A person's answer to a call of code: its form, and its text as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from uwf_git.base.errors import Invalid, Usage
from uwf_git.engine.human_turn import command_for
from uwf_git.engine.kit.form import FormField, fields_of, fill
from uwf_git.format.cbor import normalise
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import HUMAN
from uwf_git.format.node import parse_json
from uwf_git.format.schema import Schema
from uwf_git.store.history import Head, call_of
from uwf_git.store.instance import Instance


def persons_schema(instance: Instance, head: Head) -> Schema | None:
    """Return the schema of the answer that a call wants of the person who plays its agent, else None. An agent's
    question in a call takes a text."""
    if not head.row.asks or head.row.agent != HUMAN:
        return None
    call = call_of(instance.store, head.row.start)
    schema = call.item.get("schema") if call is not None and call.is_call else None
    return None if schema is None else Schema(schema)


def fields_wanted(instance: Instance, head: Head) -> tuple[FormField, ...]:
    """Return the fields of the answer that a call wants of a person, () for another thread and for a text."""
    schema = persons_schema(instance, head)
    return () if schema is None else fields_of(schema.payload)


def command_of(instance: Instance, head: Head) -> str:
    """Return the command that answers the question of a thread."""
    schema = persons_schema(instance, head)
    fields = () if schema is None else fields_of(schema.payload)
    if schema is None or any(field.required for field in fields):
        return command_for(head.thread, fields)
    return f"uwf thread answer {head.thread} -m JSON"


def value_of(thread: ThreadId, schema: Schema, given: Mapping[str, Sequence[str]], text: str) -> str:
    """Return a person's answer to a call as JSON: the text if it is such JSON, else the fields that are `given`, as
    in `fill`. Raises Usage with the fields or the schema."""
    fields = fields_of(schema.payload)
    try:
        if given or (fields and not text.lstrip().startswith("{")):
            filled = fill(schema, given, text)
            if filled.words:
                raise Usage("no field takes the text", "leave out -m, or name its field with -f")
            return _as_json(filled.output)
        return _as_json(_read(schema, text))
    except Usage as error:
        wanted = "; ".join(f"{field.name}: {' or '.join(field.choices) or field.kind}" for field in fields)
        hint = f"it has these fields: {wanted}" if wanted else f"it is JSON: {_as_json(schema.payload)}"
        raise Usage(
            f"the answer to call {thread} does not fit: {error.message}", error.hint or hint
        ) from None


def _read(schema: Schema, text: str) -> Any:
    """Return the JSON that a text is, or for a schema of text the text itself. Raises Usage."""
    try:
        value = normalise(parse_json(text))
        problem = next(map(str, schema.problems(value)), "")
    except Invalid as error:
        value, problem = None, error.message
    if problem and schema.is_valid(text):
        return text
    if problem:
        raise Usage(problem)
    return value


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
