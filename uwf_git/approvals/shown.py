"""What a person was shown before an answer, and which answers agree.

The bytes of its parts are UTF-8 text for a task, a question and an instruction, the output's JSON as RFC 8785 has it,
the commit's id for code, and what git prints for `workspaces.changes.RAW_DIFF`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any

from uwf_git.format.approvals import Part, Shown
from uwf_git.format.kinds import Revision, Role, StepContext, split_remarks
from uwf_git.format.shape import choices, variants
from uwf_git.format.types import SHOWN_PARTS


def shown(
    prompt: str, asked: tuple[str, str], output: Any, code: Revision | None, diff: bytes | None = None
) -> Shown:
    """Return what was shown. `asked` is "question" or "instruction", and its text; `output` the payload of the step
    before, None at the start; `diff` what git said of the code, if its commits were there."""
    texts: dict[str, bytes] = {"task": _utf8(prompt), asked[0]: _utf8(asked[1])}
    if output is not None:
        texts["output"] = canonical(output)
    if code is not None:
        texts["code"] = code.commit.encode("ascii", "replace")
    if code is not None and diff is not None:
        texts["diff"] = diff
    return Shown(
        tuple(
            Part(
                name,
                sha256(texts[name]).hexdigest(),
                code.commit if code is not None and name == "code" else "",
            )
            for name in SHOWN_PARTS
            if name in texts
        )
    )


def request(role: Role | None, instruction: str | None, question: str | None = None) -> tuple[str, str]:
    """Return what a person is asked, as `shown` has it: the question if there is one, else to play a role."""
    if question is not None:
        return "question", question
    return "instruction", (role.request(instruction) if role is not None else instruction or "")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def canonical(value: Any) -> bytes:
    """Return the JSON of a value as RFC 8785 has it."""
    return _utf8(_json(value))


def _json(value: Any) -> str:
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_json(key)}:{_json(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number as ECMAScript writes it: the shortest digits that mean it."""
    if value == 0:
        return "0"
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(repr(value)), "f").removesuffix(".0")
    digits, _, power = repr(value).partition("e")
    return f"{digits}e{int(power):+d}"


def output_before(steps: Sequence[StepContext]) -> Any:
    """Return the payload of the newest output that isn't a remark, None without steps."""
    heard = split_remarks(steps)[0]
    return heard[-1].output if heard else None


def deciding(schema: Any, output: Any) -> Mapping[str, Any]:
    """Return the fields of an output that decide: those with a list of values, and booleans. If there are none,
    the whole output decides."""
    if not isinstance(output, dict):
        return {"": output}
    offered: set[str] = set()
    for variant in variants(schema):
        offered |= {field.name for field in variant.fields if choices(schema, field.schema) is not None}
    fields = {name: value for name, value in output.items() if name in offered or isinstance(value, bool)}
    return fields or output


def decision(schema: Any, output: Any) -> bytes:
    """Return what is equal for answers that agree."""
    return canonical(dict(deciding(schema, output)))


def decision_text(schema: Any, output: Any) -> str:
    """Return a decision for people, as `decision: merge`."""
    fields = sorted(deciding(schema, output).items())
    named = [f"{name}: {_plain(value)}" for name, value in fields if name]
    return ", ".join(named) or _plain(output)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else _json(value)
