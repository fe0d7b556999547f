"""The deliverable format: the instruction on an answer's fields, in words and with an example. The schema
stays the judge. `render_frontmatter` is the inverse of `answer.parse_answer` with `coerce`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from uwf_git.format.shape import Field, Variant, choices, resolve, types, variants, variants_of
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.yaml12 import dump

_SHOWN_VARIANTS = 6
_DEEPEST = 4


_BLOCK = (
    "Begin your answer with a block of fields in YAML, between two lines of `---`. Nothing comes before "
    "it: no greeting, no code fence. Below the block write your report in Markdown, for people and for "
    "the roles that come after you."
)
_QUOTING = (
    "Put quotes around text that holds `: ` or ` #`, and write text of several lines after a `|`, "
    "indented. Use the field names and the listed values exactly as they are written here."
)
_QUESTION = (
    "If you can't go on until a human has answered a question, ask it with this block instead; "
    "`options` and `reason` may be left out:\n\n"
    f"---\n$status: {SUSPEND}\nquestion: What you need to know\noptions:\n  - One possible answer\n"
    "  - Another one\nreason: Why you can't decide it yourself\n---"
)
ANSWER_RULES = f"{_BLOCK}\n\n{_QUOTING}\n\n{_QUESTION}"
"""What holds for the answers of all roles, in Markdown, with the reserved question."""


def format_instruction(payload: Any) -> str:
    """Return the whole instruction on the answer's format in Markdown: the rules, with the fields among them."""
    return f"{_BLOCK}\n\n{fields_instruction(payload)}\n\n{_QUOTING}\n\n{_QUESTION}"


def fields_instruction(payload: Any) -> str:
    """Return the instruction on the answer's fields, with an example."""
    shapes = variants(payload)
    parts = []
    heading = "The block has these fields"
    if len(shapes) > 1:
        parts.append(f"The block takes one of {len(shapes)} forms. Choose the one that fits, and keep to it.")
    for number, shape in enumerate(shapes[:_SHOWN_VARIANTS], 1):
        if len(shapes) > 1:
            heading = f"Form {number}" + (f", {shape.title}" if shape.title else "")
        block = render_frontmatter(example(payload, shape), "Your report.").rstrip("\n")
        parts += [_fields(f"{heading}:", payload, shape), "For example:", block]
    if len(shapes) > _SHOWN_VARIANTS:
        parts.append(f"The other {len(shapes) - _SHOWN_VARIANTS} forms are in the schema:")
        parts.append(f"```json\n{json.dumps(payload, ensure_ascii=False, sort_keys=True)}\n```")
    return "\n\n".join(parts)


def render_frontmatter(output: Any, body: str = "") -> str:
    """Return an answer with these fields and this report, which parse back unchanged. An output that is not
    an object is JSON in a fence."""
    if isinstance(output, Mapping):
        block = f"---\n{dump(dict(output))}---\n"
    else:
        block = f"```json\n{json.dumps(output, ensure_ascii=False, indent=2)}\n```\n"
    body = body.strip("\n").rstrip()
    return f"{block}\n{body}\n" if body else block


def example(payload: Any, variant: Variant) -> dict[str, Any]:
    """Return example fields of a variant. Optional fields are included, since examples are imitated."""
    return {field.name: _sample(payload, field.schema, field.name, 0) for field in variant.fields}


def describe(root: Any, schema: Any) -> str:
    """Describe a subschema briefly: "list of strings", "one of "a", "b"", "integer from 1 to 5"."""
    schema = resolve(root, schema)
    listed = choices(root, schema)
    if listed is not None:
        shown = ", ".join(json.dumps(item, ensure_ascii=False) for item in listed)
        return f"always {shown}" if len(listed) == 1 else f"one of {shown}"
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and branches and not types(schema):
            return " or ".join(dict.fromkeys(describe(root, branch) for branch in branches))
    kinds = [_kind(root, schema, kind) for kind in types(schema)]
    return " or ".join(kinds) or "anything"


def _kind(root: Any, schema: Mapping[str, Any], kind: str) -> str:
    if kind == "string":
        return _text_kind(schema)
    if kind in ("integer", "number"):
        return kind + _range(schema)
    if kind == "array":
        items = resolve(root, schema.get("items"))
        inner = describe(root, items) if items else ""
        if inner in ("string", "integer", "number", "boolean", "object"):
            return f"list of {inner}s"
        return f"list, each {inner}" if inner and inner != "anything" else "list"
    return kind


def _text_kind(schema: Mapping[str, Any]) -> str:
    words = "string"
    if schema.get("format") in ("cas_ref", "ocas_ref"):
        words = "hash of a node, 13 characters"
    elif isinstance(schema.get("format"), str):
        words += f" ({schema['format']})"
    if isinstance(schema.get("pattern"), str):
        words += f" that matches /{schema['pattern']}/"
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(most, int):
        words += f" of at most {most} characters"
    if isinstance(least, int) and least > 0:
        words += ", not empty" if least == 1 else f", at least {least} characters"
    return words


def _range(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if least is not None:
        return f", at least {least}"
    if most is not None:
        return f", at most {most}"
    return ""


def _fields(heading: str, root: Any, variant: Variant) -> str:
    if not variant.fields:
        return "The block may hold any fields; where you have none to give, write `{}`."
    lines = [heading, ""]
    lines += _field_lines(root, variant.fields, 0)
    if variant.closed:
        lines += ["", "No other field is allowed."]
    return "\n".join(lines)


def _field_lines(root: Any, fields: tuple[Field, ...], depth: int) -> Iterator[str]:
    for field in fields:
        need = "required" if field.required else "optional"
        description = f": {field.description}" if field.description else ""
        yield f"{'  ' * depth}- `{field.name}` ({describe(root, field.schema)}; {need}){description}"
        if depth < _DEEPEST:
            yield from _field_lines(root, _inner(root, field.schema), depth + 1)


def _inner(root: Any, schema: Mapping[str, Any]) -> tuple[Field, ...]:
    if "array" in types(schema):
        schema = resolve(root, schema.get("items"))
    if "object" not in types(schema):
        return ()
    shapes = variants_of(root, schema)
    return shapes[0].fields if len(shapes) == 1 else ()


def _sample(root: Any, schema: Any, name: str, depth: int) -> Any:
    schema = resolve(root, schema)
    listed = choices(root, schema)
    if listed:
        return listed[0]
    examples = schema.get("examples")
    if isinstance(examples, list) and examples:
        return examples[0]
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and branches and not types(schema):
            return _sample(root, branches[0], name, depth)
    kind = next((kind for kind in types(schema) if kind != "null"), "string")
    if kind == "boolean":
        return True
    if kind in ("integer", "number"):
        least = schema.get("minimum", 1)
        return least if isinstance(least, (int, float)) else 1
    if depth > _DEEPEST:
        return {} if kind == "object" else [] if kind == "array" else "…"
    if kind == "array":
        items = schema.get("items")
        return [_sample(root, items, name, depth + 1)] if items is not False else []
    if kind == "object":
        shape = variants_of(root, schema)[0]
        return {field.name: _sample(root, field.schema, field.name, depth + 1) for field in shape.fields}
    return _placeholder(name)


def _placeholder(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_$.-]+", " ", name).strip().lower()
    return f"<{words or 'text'}>"
