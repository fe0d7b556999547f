"""A role's schema as a form: the fields that a person fills in, and the output made of their texts."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, Usage
from uwf_git.base.text import one_line
from uwf_git.engine.kit.coerce import Plain, coerce
from uwf_git.engine.kit.format import describe
from uwf_git.format.cbor import normalise
from uwf_git.format.ids import ThreadId
from uwf_git.format.node import parse_json
from uwf_git.format.schema import Schema
from uwf_git.format.shape import Field, Variant, choices, named, types, variants

TEXT, LIST = "text", "list"
_YES, _NO = "yes", "no"


class FormField(NamedTuple):
    """A field. `kind` is "text", "choice", "list" of texts, or what else its schema describes, such as
    "integer" and "list of integers"; `choices` are the texts of a choice."""

    name: str
    kind: str
    required: bool
    choices: tuple[str, ...] = ()
    description: str = ""

    @property
    def is_list(self) -> bool:
        return self.kind.startswith(LIST)

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"name": self.name, "kind": self.kind, "required": self.required}
        if self.choices:
            value["choices"] = list(self.choices)
        return value | ({"description": self.description} if self.description else {})


class Filled(NamedTuple):
    """A valid output, and the words that no field took."""

    output: dict[str, Any]
    words: str


def fields_of(payload: Any) -> tuple[FormField, ...]:
    """Return the fields of a role's schema, without those that have only one value. A field is required if
    each variant requires it."""
    return _fields(payload, variants(payload))


def options_of(fields: Sequence[FormField]) -> tuple[str, ...]:
    """Return the choices of the one field that must be filled in, () if there are more."""
    needed = [field for field in fields if field.required]
    return needed[0].choices if len(needed) == 1 else ()


def texts_of(value: Any) -> list[str]:
    """Return the texts with which `fill` makes a value again."""
    if isinstance(value, list | tuple) and value:
        return [text_of(item) for item in value]
    return [text_of(value)]


def fill(schema: Schema, answers: Mapping[str, Sequence[str]], words: str = "") -> Filled:
    """Fill in a form. `answers` are texts by field; a list takes several. `words` are the value of the only
    field that must still be filled in, or of the only text that may be, else they accompany the output.
    Raises Usage that names the field at fault."""
    root = schema.payload
    shapes = variants(root)
    known = {field.name: field for field in _fields(root, shapes)}
    answers = {_meant(name, known): texts for name, texts in answers.items()}
    _refuse_unknown(root, answers, known)
    for name, texts in answers.items():
        if len(texts) > 1 and name in known and not known[name].is_list:
            raise Usage(f"field {name} is given {len(texts)} times", "give it once")
    taken = {name: list(texts) for name, texts in answers.items()}
    shapes = _narrowed(root, shapes, taken)
    open_fields = [field for field in _fields(root, shapes) if field.name not in taken]
    if words.strip() and (only := _only(open_fields)) is not None:
        taken[only.name], words = [_by_number(only, words)], ""
        shapes = _narrowed(root, shapes, taken)
        open_fields = [field for field in _fields(root, shapes) if field.name not in taken]
    if missing := [field for field in open_fields if field.required]:
        listed = "; ".join(f"{field.name}: {_told(field)}" for field in missing)
        names = "=VALUE -f ".join(shlex.quote(field.name) for field in missing)
        raise Usage(
            f"{'this' if len(missing) == 1 else 'these'} must be filled in: {listed}", f"-f {names}=VALUE"
        )
    value = _constants(root, shapes) | {
        name: _value(root, shapes, name, texts) for name, texts in taken.items()
    }
    try:
        output = normalise(coerce(value, schema))
        problems = [str(problem) for problem in schema.problems(output)]
    except Invalid as error:
        problems = [error.message]
    if problems:
        raise Usage(problems[0])
    return Filled(output, words.strip())


def _fields(root: Any, shapes: Iterable[Variant]) -> tuple[FormField, ...]:
    shapes = tuple(shapes)
    by_name: dict[str, list[Field]] = {}
    for shape in shapes:
        for field in shape.fields:
            by_name.setdefault(field.name, []).append(field)
    form_fields = []
    for name, fields in by_name.items():
        offers = [_offer(root, field) for field in fields]
        texts = tuple(dict.fromkeys(text_of(value) for offer in offers for value in offer or ()))
        is_choice = all(offers)
        needed = len(fields) == len(shapes) and all(field.required for field in fields)
        if is_choice and len(texts) == 1 and needed:
            continue
        kind = "choice" if is_choice else _kind(root, fields[0])
        described = next((field.description for field in fields if field.description), "")
        form_fields.append(FormField(name, kind, needed, texts if is_choice else (), described))
    return tuple(form_fields)


def _kind(root: Any, field: Field) -> str:
    kinds = types(field.schema)
    if kinds == ("string",):
        kind = describe(root, field.schema)
        return TEXT if kind == "string" else kind.replace("string", "text", 1)
    items = field.schema.get("items")
    if kinds == ("array",) and (not isinstance(items, dict) or types(items) in ((), ("string",))):
        return LIST
    return describe(root, field.schema)


def _offer(root: Any, field: Field) -> tuple[Any, ...] | None:
    return (True, False) if types(field.schema) == ("boolean",) else choices(root, field.schema)


def text_of(value: Any) -> str:
    """Return a choice as text."""
    if isinstance(value, bool):
        return _YES if value else _NO
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _told(field: FormField) -> str:
    return " or ".join(one_line(choice, 60) for choice in field.choices) if field.choices else field.kind


def _only(open_fields: Sequence[FormField]) -> FormField | None:
    needed = [field for field in open_fields if field.required]
    if len(needed) == 1:
        return needed[0]
    texts = [field for field in open_fields if field.kind == TEXT]
    return texts[0] if len(texts) == 1 and not needed else None


def _meant(name: str, known: Mapping[str, FormField]) -> str:
    return f"${name}" if name not in known and f"${name}" in known else name


def _refuse_unknown(root: Any, names: Iterable[str], known: Mapping[str, FormField]) -> None:
    allowed = named(root)
    if not known and not all(shape.closed for shape in variants(root)):
        return
    for name in names:
        if not (name in known or allowed.has(name) or allowed.others):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"fields: {', '.join(known) or 'none'}"
            raise Usage(f"there is no field {one_line(name, 60)!r}", hint)


def _narrowed(root: Any, shapes: Sequence[Variant], taken: dict[str, list[str]]) -> tuple[Variant, ...]:
    """Return the variants that the choices allow; the choices become the texts of the schema."""
    shapes_left = tuple(shapes)
    for name, texts in taken.items():
        offers = [_offer(root, field) if (field := shape.field(name)) else () for shape in shapes]
        if not all(offer is not None for offer in offers) or len(texts) != 1 or not any(offers):
            continue
        every = list(dict.fromkeys(text_of(value) for offer in offers for value in offer or ()))
        texts[0] = _chosen(name, every, texts[0])
        fitting = [
            shape
            for shape, offer in zip(shapes, offers, strict=True)
            if texts[0] in map(text_of, offer or ())
        ]
        shapes_left = tuple(shape for shape in shapes_left if shape in fitting)
    return shapes_left or tuple(shapes)


def _by_number(field: FormField, text: str) -> str:
    """Return the choice whose number a text is, else the text. Raises Usage if it is also another choice."""
    wanted = text.strip()
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else 0
    if not 0 < number <= len(field.choices):
        return text
    numbered = field.choices[number - 1]
    if wanted in field.choices and wanted != numbered:
        raise Usage(
            f"{field.name}: {wanted} is a choice, and the number of another, {one_line(numbered, 60)!r}",
            f"-f {field.name}=TEXT takes the text",
        )
    return numbered


def _chosen(name: str, offered: Sequence[str], text: str) -> str:
    wanted = text.strip()
    if set(offered) == {_YES, _NO}:
        wanted = {"true": _YES, "false": _NO}.get(wanted.casefold(), wanted)
    same = [option for option in offered if option == wanted] or [
        option for option in offered if option.casefold() == wanted.casefold()
    ]
    if len(same) == 1:
        return same[0]
    listed = ", ".join(one_line(option, 60) for option in offered)
    raise Usage(f"{name}: {one_line(wanted, 60)!r} is none of {listed}", f"-f {name}={offered[0]}")


def _constants(root: Any, shapes: Sequence[Variant]) -> dict[str, Any]:
    if len(shapes) != 1:
        return {}
    constants = {}
    for field in shapes[0].fields:
        if field.required and (offer := _offer(root, field)) is not None and len(offer) == 1:
            constants[field.name] = offer[0]
    return constants


def _value(root: Any, shapes: Sequence[Variant], name: str, texts: Sequence[str]) -> Any:
    field = next(filter(None, (shape.field(name) for shape in shapes)), None)
    if field is not None and (offer := _offer(root, field)) is not None:
        return next((value for value in offer if text_of(value) == texts[0]), texts[0])
    if field is not None and types(field.schema) == ("string",):
        return texts[0]
    if field is not None and types(field.schema) == ("array",) and not texts[0].lstrip().startswith("["):
        return list(texts) if _kind(root, field) == LIST else [read_typed(text) for text in texts]
    return read_typed(texts[0]) if len(texts) == 1 else [read_typed(text) for text in texts]


def read_typed(text: str) -> Any:
    """Return a typed text as JSON if it is an object, a list or quoted; else as a scalar for the schema to decide."""
    if text.strip()[:1] in ("{", "[", '"'):
        try:
            return parse_json(text.strip())
        except Invalid:
            return text
    return Plain(text)


def chosen_option(thread: ThreadId, options: Sequence[str], text: str) -> str:
    """Return the option that a text names, ignoring case, or by its number. Raises Usage for none, or if it
    is one option and another's number."""
    wanted = text.strip()
    same = [option for option in options if option.strip() == wanted]
    same = same or [option for option in options if option.strip().casefold() == wanted.casefold()]
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else 0
    numbered = options[number - 1] if 0 < number <= len(options) else None
    other = f"uwf thread answer {thread} --other -m TEXT"
    if same and numbered is not None and numbered.strip() != wanted:
        raise Usage(
            f"{wanted!r} is an option of thread {thread} and the number of another, {one_line(numbered, 60)!r}",
            f"give the text of that one, or for {wanted!r} as it is: {other}",
        )
    if len(same) == 1 or (same and same[0].strip() == wanted):
        return same[0]
    if numbered is not None:
        return numbered
    listed = ", ".join(one_line(option, 60) for option in options)
    raise Usage(
        f"{one_line(wanted, 60)!r} is none of the options of thread {thread}: {listed}",
        f"to answer it anyway: {other}",
    )
