"""Selecting the fields of an answer that belong to its output, so that additional fields don't cost a
correction.

For a closed schema, these are the schema's fields; for an open one, also the STANDARD fields and those that
the workflow may read. The rest stays in the answer, which the step's detail has verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import closest, one_line
from uwf_git.engine.kit.coerce import coerce, natural
from uwf_git.format.cbor import normalise
from uwf_git.format.ids import Hash
from uwf_git.format.schema import Schema
from uwf_git.format.shape import Named, named

STANDARD = ("status", "$status", "next", "confidence", "artifacts", "scope")
"""Fields that any answer may have, whatever its role's schema says."""

_COMPARED = 200

Reads = Callable[[str], bool]
"""Whether a workflow may look at a field of that name."""


def reads_all(_name: str) -> bool:
    """Return True, for workflows that may read any field."""
    return True


class Verdict(NamedTuple):
    """An output and its schema, or the problems. `body` is the text below the fields; `notes` name the fields
    left out."""

    output: Any
    type: Hash
    problems: tuple[str, ...]
    body: str = ""
    notes: tuple[str, ...] = ()


def obeys(value: Any, type_hash: Hash, schema: Schema, body: str, coerced: bool) -> Verdict:
    """Validate a value as it is, or with coerced types. Raises Invalid if the schema cannot be applied."""
    if coerced:
        value = coerce(value, schema)
    try:
        output = normalise(value)
    except Invalid as error:
        return Verdict(None, type_hash, (error.message,), body)
    problems = tuple(str(problem) for problem in schema.problems(output))
    return Verdict(output, type_hash, problems, body)


def built(value: Any, type_hash: Hash, schema: Schema, body: str, reads: Reads | None) -> Verdict:
    """Validate an output built from the fields that belong to it; without `reads`, the value as a whole.
    Raises Invalid if the schema cannot be applied."""
    if isinstance(value, dict) and (problems := _of_another_case(named(schema.payload), value)):
        return Verdict(None, type_hash, problems, body)
    whole = obeys(value, type_hash, schema, body, reads is not None)
    if reads is None or not isinstance(value, dict):
        return whole
    closed = bool(whole.problems)
    fields = _own(value, schema.payload) if closed else _readable(value, schema.payload, reads)
    if len(fields) == len(value):
        return whole
    verdict = obeys(fields, type_hash, schema, body, True)
    if not verdict.problems:
        return verdict._replace(notes=_left_out(value, fields))
    if closed:
        return obeys(_without_standard(value, schema.payload), type_hash, schema, body, True)
    return whole


def with_all_fields(output: Any, answer: str) -> Any:
    """Return an output with the other fields of its answer added."""
    if not isinstance(output, dict):
        return output
    from uwf_git.engine.kit.answer import parse_answer

    fields = parse_answer(answer, lambda fields: output.keys() <= fields.keys()).fields or {}
    return {**natural(fields), **output} if output.keys() <= fields.keys() else output


def _own(fields: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    known = named(payload)
    misspelt = _misspelt(known, fields)
    return {name: value for name, value in fields.items() if known.has(name) or name in misspelt}


def _readable(fields: Mapping[str, Any], payload: Any, reads: Reads) -> dict[str, Any]:
    known = named(payload)
    if known.others or not known.names:
        return dict(fields)
    misspelt = _misspelt(known, fields)
    return {
        name: value
        for name, value in fields.items()
        if known.has(name) or name in STANDARD or reads(name) or name in misspelt
    }


def _without_standard(fields: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    known = named(payload)
    return {name: value for name, value in fields.items() if known.has(name) or name not in STANDARD}


def _left_out(fields: Mapping[str, Any], output: Mapping[str, Any]) -> tuple[str, ...]:
    names = [name for name in fields if name not in output and name not in STANDARD]
    if not names:
        return ()
    listed = one_line(", ".join(map(str, names)), 300)
    return (f"left out of the output, as the schema has no such field: {listed}",)


def _of_another_case(known: Named, fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the problems of fields that differ from missing ones by their case alone."""
    missing = {name.casefold(): name for name in known.names - fields.keys()}
    wrong = (name for name in map(str, fields) if name.casefold() in missing and not known.has(name))
    return tuple(f"/{name}: the field is called {missing[name.casefold()]}" for name in islice(wrong, 20))


def _misspelt(known: Named, fields: Iterable[str]) -> frozenset[str]:
    names = dict.fromkeys(fields)
    missing = sorted(known.names - names.keys())
    if not missing:
        return frozenset()
    unknown = (name for name in names if name not in STANDARD and not known.has(name))
    return frozenset(name for name in islice(unknown, _COMPARED) if closest(name, missing) is not None)
