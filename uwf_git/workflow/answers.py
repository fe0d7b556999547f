"""What a role can answer, as far as its schema says: which statuses, and which variables an edge's
template may use after it."""

from __future__ import annotations

from typing import Any, NamedTuple

from uwf_git.values.kinds import SUSPEND
from uwf_git.values.shape import MOST_VARIANTS, Field, Variant, choices, resolve, types, variants, variants_of

HUMAN = frozenset(("needs_input", SUSPEND))


class Answers(NamedTuple):
    """`statuses` are the values the schema lists, in its order. `free` means that other texts may come
    too; `silent` that there may be no status at all. `known` is False where the schema is too intricate
    or too open to say anything."""

    schema: Any
    variants: tuple[Variant, ...]
    statuses: tuple[str, ...]
    free: bool
    silent: bool
    known: bool

    def has(self, variable: tuple[str, ...], status: str | None) -> bool:
        """Whether an answer (with that status, where one is given) may hold the variable."""
        if not self.known:
            return True
        fitting = [
            variant
            for variant in self.variants
            if status is None or (listed := _statuses(self.schema, variant)) is None or status in listed
        ]
        return any(_holds(self.schema, variant, variable) for variant in fitting or self.variants)

    def fields(self) -> tuple[str, ...]:
        """The names of all fields of all variants, in the schema's order."""
        return tuple(dict.fromkeys(field.name for variant in self.variants for field in variant.fields))


def answers_of(schema: Any) -> Answers:
    """What a schema lets its role answer. The schema must be one (`schema_problems` has no errors)."""
    found = variants(schema)
    per_variant = [_statuses(schema, variant) for variant in found]
    return Answers(
        schema,
        found,
        tuple(dict.fromkeys(status for each in per_variant for status in each or ())),
        free=any(each is None for each in per_variant),
        silent=any((field := _status_field(variant)) is None or not field.required for variant in found),
        # A variant that declares nothing may hold anything.
        known=len(found) < MOST_VARIANTS and all(variant.fields or variant.closed for variant in found),
    )


def _status_field(variant: Variant) -> Field | None:
    return variant.field("$status") or variant.field("status")


def _statuses(root: Any, variant: Variant) -> tuple[str, ...] | None:
    """The statuses of a variant: () for none, None for any text."""
    field = _status_field(variant)
    if field is None:
        return ()
    listed = choices(root, field.schema)
    if listed is not None:
        return tuple(value for value in listed if isinstance(value, str))
    kinds = types(field.schema)
    return () if kinds and "string" not in kinds else None


def _holds(root: Any, variant: Variant, variable: tuple[str, ...]) -> bool:
    field = variant.field(variable[0])
    if field is None:
        return not variant.fields and not variant.closed
    return _reaches(root, field.schema, variable[1:], 0)


def _reaches(root: Any, schema: Any, rest: tuple[str, ...], depth: int) -> bool:
    """Whether the path leads somewhere in a value of that schema; yes where the schema doesn't say."""
    if not rest or depth > 20:
        return True
    schema = resolve(root, schema)
    step = rest[0]
    kinds = types(schema)
    if kinds and "object" not in kinds:
        return False
    for variant in variants_of(root, schema):
        field = variant.field(step)
        if field is not None and _reaches(root, field.schema, rest[1:], depth + 1):
            return True
        if field is None and not variant.fields and not variant.closed:
            return True
    return False
