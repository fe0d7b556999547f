"""From the fields of an answer to the ones that its output is built from.

Agents give more fields than a schema names: the standard ones of older programs, and what else they think worth saying.
None of that need cost a correction. Where the schema is closed, the output is built from the schema's own fields. Where
it is open without a word on further fields, it is built from its own, from the standard ones, and from those that the
workflow may read. What is left out is in the answer, which the step's detail keeps word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid
from uwf_git.base.text import closest, one_line
from uwf_git.engine.kit.coerce import coerce, natural
from uwf_git.engine.kit.frontmatter import parse_answer
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
    """Of a workflow that may look at any field."""
    return True


class Verdict(NamedTuple):
    """What was found: an output and the schema it obeys, or the problems that keep it from being one. `body` is what
    stood below it, `notes` say what it was not built from."""

    output: Any
    type: Hash
    problems: tuple[str, ...]
    body: str = ""
    notes: tuple[str, ...] = ()


def obeys(value: Any, type_hash: Hash, schema: Schema, body: str, coerced: bool) -> Verdict:
    """The verdict on a value as it is, or given the types that the schema wants. Raises Invalid where the schema can't
    be applied."""
    if coerced:
        value = coerce(value, schema)
    try:
        output = normalise(value)
    except Invalid as error:
        return Verdict(None, type_hash, (error.message,), body)
    problems = tuple(str(problem) for problem in schema.problems(output))
    return Verdict(output, type_hash, problems, body)


def built(value: Any, type_hash: Hash, schema: Schema, body: str, reads: Reads | None) -> Verdict:
    """The verdict on an output that is built from those of the fields that belong into it; without `reads` it is an
    output already, and taken as it is or not at all. Raises Invalid where the schema can't be applied."""
    whole = obeys(value, type_hash, schema, body, reads is not None)
    if reads is None or not isinstance(value, dict):
        return whole
    closed = bool(whole.problems)
    told = _own(value, schema.payload) if closed else _told(value, schema.payload, reads)
    if len(told) == len(value):
        return whole
    verdict = obeys(told, type_hash, schema, body, True)
    if not verdict.problems:
        return verdict._replace(notes=_left_out(value, told))
    if closed:
        return obeys(_without_standard(value, schema.payload), type_hash, schema, body, True)
    return whole


def with_all_fields(output: Any, answer: str) -> Any:
    """An output with the fields that stood in the answer beside it."""
    if not isinstance(output, dict):
        return output
    fields = parse_answer(answer, lambda given: output.keys() <= given.keys()).fields or {}
    return {**natural(fields), **output} if output.keys() <= fields.keys() else output


def _own(fields: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    """The fields that a schema has, for one that allows no others. A field that looks like a misspelt one of the
    schema's stays, so that it is named as what is wrong."""
    known = named(payload)
    misspelt = _misspelt(known, fields)
    return {name: value for name, value in fields.items() if known.has(name) or name in misspelt}


def _told(fields: Mapping[str, Any], payload: Any, reads: Reads) -> dict[str, Any]:
    """The fields to build the output from, for a schema that allows others beside its own."""
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
    """The fields without the standard ones that a schema doesn't have."""
    known = named(payload)
    return {name: value for name, value in fields.items() if known.has(name) or name not in STANDARD}


def _left_out(fields: Mapping[str, Any], output: Mapping[str, Any]) -> tuple[str, ...]:
    """What to note of the fields that an output was not built from; nothing of standard ones."""
    names = [name for name in fields if name not in output and name not in STANDARD]
    if not names:
        return ()
    said = one_line(", ".join(map(str, names)), 300)
    return (f"left out of the output, as the schema has no such field: {said}",)


def _misspelt(known: Named, given: Iterable[str]) -> frozenset[str]:
    """The given names that look like slips of names the schema has and the answer lacks. Only the first unknown names
    are compared, because an answer may have any number of them."""
    given = dict.fromkeys(given)
    missing = sorted(known.names - given.keys())
    if not missing:
        return frozenset()
    unknown = (name for name in given if name not in STANDARD and not known.has(name))
    return frozenset(name for name in islice(unknown, _COMPARED) if closest(name, missing) is not None)
