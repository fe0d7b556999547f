"""An output in a few words, for lists. Stored texts take `pages.verdict`, which knows no schema and never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Workflow, asks_human, reply_in, status_of
from uwf_git.format.shape import choices, types, variants
from uwf_git.format.types import FORK_OUTPUT, JOIN_OUTPUT
from uwf_git.store.pages import verdict

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

_LONGEST = 120


class Summary(NamedTuple):
    """An output in a few words; `decides` if they are a status or a decision."""

    text: str
    decides: bool = False


def summary_of(instance: Instance, workflow: Workflow, role: str, output: Any) -> Summary:
    """Return what the output of a role comes to, as `summary`."""
    known = workflow.roles.get(role)
    return summary(instance, known.schema if known is not None else None, output)


def summary(instance: Instance, schema: Hash | None, output: Any) -> Summary:
    """Return what an output of this type comes to: its question, its status, its required fields that choose among
    values; else what `pages.verdict` takes."""
    if not isinstance(output, dict) or reply_in(output) is not None or asks_human(output):
        return Summary(verdict(output))
    if schema in (FORK_OUTPUT, JOIN_OUTPUT):
        return Summary(verdict(output))
    if status_of(output):
        return Summary(verdict(output), True)
    if decided := _decided(instance, schema, output):
        return Summary(one_line(", ".join(decided), _LONGEST), True)
    return Summary(verdict(output), any(isinstance(value, bool) for value in output.values()))


def _decided(instance: Instance, schema: Hash | None, output: dict[str, Any]) -> list[str]:
    try:
        payload = instance.store.schema(schema).payload if schema is not None else {}
    except UwfError:  # reported by what reads the workflow
        return []
    decided: dict[str, str] = {}
    for field in (field for variant in variants(payload) for field in variant.fields):
        value = output.get(field.name)
        if not field.required or value is None:
            continue
        if isinstance(value, bool) and types(field.schema) == ("boolean",):
            decided[field.name] = field.name if value else f"not {field.name}"
        elif isinstance(value, str | int | float) and len(choices(payload, field.schema) or ()) > 1:
            decided[field.name] = str(value)
    return list(decided.values())
