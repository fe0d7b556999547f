"""Extracting data of a given schema from any text: JSON as a whole, a field block, or JSON on lines of its
own. Otherwise a model reads it and gets one correction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.base.errors import AgentFailed, Invalid, UwfError
from uwf_git.engine.kit.candidate import Verdict, built, reads_all
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.frontmatter import parse_answer
from uwf_git.engine.kit.reading import Ask, messages_for, read_by, reader_note
from uwf_git.format.ids import Hash
from uwf_git.format.node import NotJson, parse_json
from uwf_git.format.schema import Schema, check_schema

FOUND = "found"
_NOTHING = "it holds neither JSON nor a block of fields that obeys it"
_NO_TYPE = Hash("")  # nothing is stored here
_MOST_READ = 20_000_000  # characters that may be read as JSON in vain
_LEAST_READ = 1000  # the least count for each place
_TOO_MANY = "it has too many places where JSON may begin, and was not looked at to its end"
_LINES_NAMED = 10
_OPENS = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
_WITHIN = re.compile(r"[,{\[][ \t]*\r?\n[ \t]*\Z")  # written before a part of a larger value
_RULE = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_UNREAD = object()
_DECODER = json.JSONDecoder()
_FENCED = re.compile(r"^(`{3,}|~{3,})[ \t]*\w*[ \t]*\n(.*?)\n\1[ \t]*$", re.MULTILINE | re.DOTALL)


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
    verdict = _found(text, schema) if text is not None else None
    if verdict is not None and not verdict.problems:
        return Data(verdict.output, FOUND, verdict.notes)
    problem = verdict.problems[0] if verdict else "there is nothing to look in"
    if model is None:
        raise AgentFailed(f"no data that obeys the schema: {problem}", unread)
    given = [part for part in (around, text) if part is not None and part.strip()]
    told = "\n\n# The text to read\n\n".join(given)

    def verdict_on(reply: Reply) -> Verdict:
        return _found(reply.text, schema)

    try:
        reply, verdict = read_by(model, messages_for(schema.payload, [told], instruction), verdict_on, heard)
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


def _found(text: str, schema: Schema) -> Verdict:
    unheld: Invalid | None = None
    for value in _json_in(text):
        if isinstance(value, Invalid):
            unheld = unheld or value
            continue
        verdict = _verdict(value, schema)
        if not verdict.problems:
            return verdict

    # Unstorable values must not be read as a block of fields, which would turn numbers into text.
    if not _RULE.search(text):
        unheld = unheld or next((value for _, value in _values_in(text) if isinstance(value, Invalid)), None)
        if unheld is not None:
            return _unheld(unheld)

    answer = parse_answer(text, lambda fields: not _verdict(fields, schema).problems)
    block = None if answer.fields is None else _verdict(answer.fields, schema)
    if block is not None and not block.problems:
        return block
    return _standing(text, schema) or block or Verdict(None, _NO_TYPE, (_NOTHING,))


def _standing(text: str, schema: Schema) -> Verdict | None:
    first: Verdict | None = None
    found: dict[str, tuple[int, Verdict]] = {}
    for line, value in _values_in(text):
        if value is _UNREAD:
            return Verdict(None, _NO_TYPE, (_TOO_MANY,))
        verdict = _unheld(value) if isinstance(value, Invalid) else _verdict(value, schema)
        first = first or verdict
        if not verdict.problems:
            found.setdefault(json.dumps(verdict.output, sort_keys=True), (line, verdict))
    if len(found) > 1:
        lines = ", ".join(str(line) for line, _ in islice(found.values(), _LINES_NAMED))
        lines += ", …" if len(found) > _LINES_NAMED else ""
        problem = f"{len(found)} values in it obey, of which it must be one: in lines {lines}"
        return Verdict(None, _NO_TYPE, (problem,))
    return next((verdict for _, verdict in found.values()), first)


def _values_in(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the objects and lists on lines of their own with their line numbers, Invalid for ones that no
    node can hold; last _UNREAD if the search stopped early."""
    end, line, counted, vain = 0, 1, 0, 0
    for opening in _OPENS.finditer(text):
        start = opening.end()
        if start < end or _WITHIN.search(text, max(0, opening.start() - 200), opening.end()):
            continue
        line, counted = line + text.count("\n", counted, start), start
        if vain > _MOST_READ:
            yield line, _UNREAD
            return
        try:
            _, after = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            vain += max(_LEAST_READ, getattr(error, "pos", start) - start)
            continue
        stop = text.find("\n", after)
        if text[after : stop if stop >= 0 else len(text)].strip():
            vain += max(_LEAST_READ, after - start)
            continue
        end = after
        try:
            yield line, parse_json(text[start:after])
        except NotJson:
            continue
        except Invalid as error:
            yield line, error


def _unheld(error: Invalid) -> Verdict:
    return Verdict(None, _NO_TYPE, (error.message,))


def _json_in(text: str) -> Iterator[Any]:
    fences = _FENCED.findall(text.replace("\r\n", "\n"))
    for source in (text, *([fences[0][1]] if len(fences) == 1 else [])):
        try:
            yield parse_json(source.strip().removeprefix("\ufeff"))
        except NotJson:
            continue
        except Invalid as error:
            yield error
