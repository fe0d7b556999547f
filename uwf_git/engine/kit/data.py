"""Extracting data of a given schema from any text: JSON as a whole, a field block, or JSON on lines of its
own. Otherwise a model reads it and gets one correction."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.base.errors import AgentFailed, Invalid, UwfError
from uwf_git.engine.kit.answer import Candidate, candidates, cleaned
from uwf_git.engine.kit.candidate import Verdict, built, reads_all
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.reading import Ask, messages_for, read_by, reader_note
from uwf_git.format.ids import Hash
from uwf_git.format.node import NotJson, parse_json
from uwf_git.format.schema import Schema, check_schema

FOUND = "found"
_NOTHING = "it holds neither JSON nor a block of fields that obeys it"
_NO_TYPE = Hash("")  # nothing is stored here
_LINES_NAMED = 10


class Data(NamedTuple):
    """A valid value. `how` is "found" or "model:<name>"; `notes` name the fields left out."""

    value: Any
    how: str
    notes: tuple[str, ...] = ()


def wanted(payload: Any) -> Schema:
    """Return the schema to extract by. Raises Invalid."""
    if problems := check_schema(payload):
        raise Invalid(f"the schema is not a JSON Schema: {problems[0]}", "see: https://json-schema.org")
    return Schema(payload)


def extract_data(
    text: str | None,
    schema: Schema,
    model: Ask | None,
    *,
    instruction: str = "",
    around: str = "",
    unread: str = "no model reads it",
    heard: Callable[[Reply], None] = lambda reply: None,
) -> Data:
    """Return data valid by the schema, found in the text or read by the model. `instruction` is for the
    model; `around` is context, or the text to read if there is none; `unread` is the hint without a model.
    `heard` gets the model's replies. Raises AgentFailed if there is no such data, Invalid if the schema
    cannot be applied."""
    verdict = _judged(text, schema) if text is not None else None
    if verdict is not None and not verdict.problems:
        return Data(verdict.output, FOUND, verdict.notes)
    problem = verdict.problems[0] if verdict else "there is nothing to look in"
    if model is None:
        raise AgentFailed(f"no data that obeys the schema: {problem}", unread)
    parts = [part for part in (around, text) if part is not None and part.strip()]
    task = "\n\n# The text to read\n\n".join(parts)

    def verdict_on(reply: Reply) -> Verdict:
        return _judged(reply.text, schema)

    try:
        reply, verdict = read_by(model, messages_for(schema.payload, [task], instruction), verdict_on, heard)
    except UwfError as error:
        raise AgentFailed(
            f"no data that obeys the schema: {problem}; a model could not be asked: {error.message}",
            error.hint,
        ) from None
    if verdict.problems:
        more = f" (and {len(verdict.problems) - 1} more)" if len(verdict.problems) > 1 else ""
        raise AgentFailed(
            f"{reply.model or 'the model'} read no data that obeys the schema: {verdict.problems[0]}{more}",
            "say what to look for, or try another model",
        )
    return Data(verdict.output, reader_note(reply), verdict.notes)


def _verdict(value: Any, schema: Schema) -> Verdict:
    return built(value, _NO_TYPE, schema, "", reads_all)


def _judged(text: str, schema: Schema) -> Verdict:
    try:
        if not (verdict := _verdict(parse_json(text.strip().removeprefix("\ufeff")), schema)).problems:
            return verdict
    except Invalid:  # not JSON as a whole; its parts may be
        pass
    first: Verdict | None = None
    outputs: dict[str, tuple[int, Verdict]] = {}
    for candidate in candidates(cleaned(text), lambda value: not _verdict(value, schema).problems):
        if candidate.problem or candidate.value is None or candidate.example:
            continue
        verdict = _verdict_on(candidate, schema)
        first = first or verdict
        if not verdict.problems:
            outputs.setdefault(json.dumps(verdict.output, sort_keys=True), (candidate.line, verdict))
    if len(outputs) > 1:
        lines = ", ".join(str(line) for line, _ in islice(sorted(outputs.values()), _LINES_NAMED))
        lines += ", …" if len(outputs) > _LINES_NAMED else ""
        problem = f"{len(outputs)} values in it obey, of which it must be one: in lines {lines}"
        return Verdict(None, _NO_TYPE, (problem,))
    return next((verdict for _, verdict in outputs.values()), first or Verdict(None, _NO_TYPE, (_NOTHING,)))


def _verdict_on(candidate: Candidate, schema: Schema) -> Verdict:
    # A number that no node can hold is an error, and not a text.
    try:
        if candidate.source.startswith(("{", "[")):
            parse_json(candidate.source)
    except NotJson:
        pass
    except Invalid as error:
        return Verdict(None, _NO_TYPE, (error.message,))
    return _verdict(candidate.value, schema)
