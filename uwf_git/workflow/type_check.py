"""Type checking of conditions: unknown fields, and comparisons that never hold.

Expressions are evaluated over schemas. Unknown schemas are not checked; each path gives at most one doubt.
Only mistakes whose cause a rehearsal cannot name are reported.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.base.text import closest, nearest, one_line
from uwf_git.format.shape import variants_of
from uwf_git.format.types import START
from uwf_git.workflow.abstract_values import (
    BOOLEAN,
    HISTORY,
    NUMBER,
    SCHEMA_OF,
    TEXT,
    Atom,
    Field,
    Value,
    atoms,
    either,
    field_of,
    history,
    items,
    kinds_of,
    last_of,
    may_be_list,
    may_equal,
    of_role,
    of_schema,
)
from uwf_git.workflow.common_mistakes import field_mistake, name_mistake
from uwf_git.workflow.expression import function_names, items_expression, syntax_tree

_RESULTS: Mapping[str, Value] = {
    **dict.fromkeys(
        ("count", "sum", "max", "min", "average", "length", "number", "abs", "floor", "ceil"), NUMBER
    ),
    **dict.fromkeys(("string", "substring", "uppercase", "lowercase", "trim"), TEXT),
    **dict.fromkeys(("exists", "not", "boolean", "contains"), BOOLEAN),
}
"""Types that functions return."""
_LITERALS = ("string", "number", "value")


class ProbableMistake(NamedTuple):
    """A probable mistake: unknown-field, never-equal, list-compared."""

    code: str
    message: str
    hint: str


def doubts(
    expression: str,
    schemas: Mapping[str, Any],
    roles: Collection[str],
    sources: Collection[str],
    joins: Mapping[str, Collection[str]] = {},
) -> list[ProbableMistake]:
    """Check a valid expression. `schemas` are the known outputs of `roles`; `sources` are the roles and joins whose
    edges use it, one of which made the last step; `joins` as for `abstract_values.history`."""
    walk = _Walk(
        schemas, roles, [source for source in sources if source != START] if sources else roles, joins
    )
    walk.value(syntax_tree(expression), walk.history)
    return list(dict.fromkeys(walk.found))


def doubts_of_items(
    expression: str,
    schemas: Mapping[str, Any],
    roles: Collection[str],
    source: str,
    joins: Mapping[str, Collection[str]],
) -> list[ProbableMistake]:
    """Check a valid expression of `each` on an edge of `source`, as `doubts`."""
    walk = _Walk(schemas, roles, [source] if source != START else [], joins, of_items=True)
    tree = syntax_tree(items_expression(expression))
    walk.value(tree, walk.history)
    if not walk.found and walk.is_one(tree.expressions[-1] if tree.type == "block" else tree):
        shown = one_line(expression, 60)
        walk.doubt("not-a-list", f"{shown} is not a list, so there would be one branch", "name a list of it")
    return list(dict.fromkeys(walk.found))


class _Walk:
    def __init__(
        self,
        schemas: Mapping[str, Any],
        roles: Collection[str],
        last: Collection[str],
        joins: Mapping[str, Collection[str]],
        of_items: bool = False,
    ) -> None:
        self.found: list[ProbableMistake] = []
        self.history = history(roles, schemas, last, joins)
        self._of_items = of_items
        self._schemas = schemas
        self._roles = roles
        self._last = last
        self._variables: dict[str, Value] = {}
        self._expected: list[Atom] = []  # possible values of a comparison's other side

    def value(self, node: Any, here: Value) -> Value:
        result = self._value(node, here)
        for stage in node.predicate or ():
            result = self._filtered(result, stage)
        return result

    def _value(self, node: Any, here: Value) -> Value:
        match node.type:
            case "string" | "number" | "value":
                return of_schema({"const": node.value})
            case "path":
                return self._path(node, here)
            case "variable":
                return self._variable(node.value, here)
            case "binary":
                return self._binary(node, here)
            case "unary":
                return self._unary(node, here)
            case "condition":
                self.value(node.condition, here)
                branches = [node.then, node._else]
                return either(self.value(branch, here) for branch in branches if branch is not None)
            case "block":
                result: Value = None
                for expression in node.expressions:
                    result = self.value(expression, here)
                return result
            case "bind":
                result = self.value(node.rhs, here)
                return self._set(node.lhs.value, result)
            case "apply":
                self.value(node.lhs, here)
                if node.rhs.type == "function":
                    self._call(node.rhs, here)
            case "function" | "partial":
                return self._call(node, here)
            case "lambda":
                self._lambda(node)
        return None

    def _unary(self, node: Any, here: Value) -> Value:
        if node.value == "[":
            return either([self.value(expression, here) for expression in node.expressions]) or None
        if node.value == "{":
            for pair in node.lhs_object:
                for item in pair:
                    self.value(item, here)
            return of_schema({"type": "object"})
        self.value(node.expression, here)
        return NUMBER

    def _variable(self, name: str, here: Value) -> Value:
        if name in ("", "$"):
            return self.history if name else here
        if name not in self._variables and name not in function_names():
            self._unset(name)
        return self._variables.get(name)

    def _set(self, name: str, value: Value) -> Value:
        self._variables[name] = value if self._variables.get(name, value) == value else None
        return value

    def _call(self, node: Any, here: Value) -> Value:
        procedure = node.procedure
        if procedure.type == "lambda":
            self._lambda(procedure)
        name = procedure.value if procedure.type == "variable" else ""
        for argument in node.arguments or ():
            self.value(argument, here)
        if name == "last" and self._of_items:
            return field_of(last_of(field_of(self.history, "steps").value), "output").value
        return None if name in self._variables else _RESULTS.get(name)

    def is_one(self, node: Any) -> bool:
        """Return whether an expression is a path from `$last()` to something that cannot be a list."""
        steps = node.steps if node.type == "path" else [node]
        if not steps or steps[0].type != "function" or steps[0].procedure.value != "last":
            return False
        value = self._call(steps[0], None)
        for step in steps[1:]:
            if may_be_list(value) or step.type != "name" or step.stages or step.predicate:
                return False
            value = field_of(value, step.value).value
        return not may_be_list(value) and not node.predicate

    def _lambda(self, node: Any) -> None:
        for argument in node.arguments:
            self._variables[argument.value] = None
        self.value(node.body, None)

    # Paths

    def _path(self, node: Any, here: Value) -> Value:
        result = here
        for place, step in enumerate(node.steps):
            if step.type == "name":
                result = self._field(result, step.value, place, node)
            elif step.type == "variable" and place > 0:
                if step.value and step.value not in self._variables and step.value not in function_names():
                    self._unset(step.value, in_path=True)
                result = None
            elif step.type == "sort":
                for term in step.terms:
                    self.value(term.expression, items(result))
            elif step.type in ("wildcard", "descendant", "parent"):
                result = None
            else:
                result = self._value(step, items(result) if place else result)
            for name in (step.focus, step.index):
                if name is not None:
                    self._variables[name] = result = None
            for stage in [*(step.stages or ()), *(step.predicate or ())]:
                result = self._filtered(result, stage)
        return result if node.group is None else None

    def _filtered(self, value: Value, stage: Any) -> Value:
        if stage.type != "filter":
            return None
        test = stage.expr
        if test.type == "number":
            return last_of(value) if test.value == -1 else value
        if test.type == "string":
            name = one_line(str(test.value), 40)
            message = f'["{name}"] is no way to a field: it keeps all there is'
            self.doubt("unknown-field", message, f"write .{name}")
            return None
        before = len(self.found)
        self.value(test, items(value))
        return None if len(self.found) > before else _kept(items(value), test)

    def _field(self, value: Value, name: str, place: int, path: Any) -> Value:
        field = field_of(value, name)
        if field.value == ():
            self._missing(field, name, place, path)
            return None
        return field.value

    # Comparisons

    def _binary(self, node: Any, here: Value) -> Value:
        operator = node.value
        one = self.value(node.lhs, here)
        before, self._expected = self._expected, (atoms(one) or []) if operator in ("=", "!=", "in") else []
        other = self.value(node.rhs, here)
        self._expected = before
        if operator in ("=", "!="):
            if not self._list_compared(node):
                self._equal(node.lhs, node.rhs, one, other, operator)
        elif operator == "in":
            if _is_list(node.rhs):
                for expression in node.rhs.expressions:
                    if expression.type in _LITERALS:
                        self._equal(node.lhs, expression, one, of_schema({"const": expression.value}), "=")
            else:
                self._equal(node.lhs, node.rhs, one, other, "=")
        elif operator in ("+", "-", "*", "/", "%"):
            return NUMBER
        else:
            return TEXT if operator == "&" else None
        return BOOLEAN

    def _list_compared(self, node: Any) -> bool:
        for side, literal in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
            of_all = _of_all(side) if literal.type in _LITERALS else ""
            if of_all:
                shown = _shown(side).removeprefix("branches.")
                one = "steps[-1]" if of_all == "steps" else "branches[0]"
                whose = "the last one's" if of_all == "steps" else "the first one's"
                every = "step" if of_all == "steps" else "branch"
                self.doubt(
                    "list-compared",
                    f"{of_all}.{shown} is a list with the {shown} of every {every}, and no list equals one value",
                    f"{one}.{shown} is {whose}; … in {of_all}.{shown} looks through all",
                )
                return True
        return False

    def _equal(self, left: Any, right: Any, one: Value, other: Value, operator: str) -> None:
        if _is_fixed(left) and _is_fixed(right):
            return
        # Role names are searched in the expression's text, wherever they are.
        if any(side.type == "path" and side.steps[-1].value == "role" for side in (left, right)):
            return
        these, those = atoms(one), atoms(other)
        if these is None or those is None or any(may_equal(a, b) for a in these for b in those):
            return
        if _is_fixed(left):
            left, right, one, these = right, left, other, those
        owners = _owners([alternative.whose for alternative in one or ()])
        of = f" of {owners.removeprefix(SCHEMA_OF)}" if owners else ""
        verb = "is never" if operator == "=" else "is always something else than"
        self.doubt("never-equal", f"{_shown(left)}{of} {verb} {_shown(right)}", _hint_for(right, these))

    # Doubts

    def doubt(self, code: str, message: str, hint: str) -> None:
        self.found.append(ProbableMistake(code, message, hint))

    def _unset(self, name: str, in_path: bool = False) -> None:
        shown = one_line(name, 40)
        if in_path:
            hint = f"a field of that name is written in backticks: `${shown}`"
        elif name in ("start", "steps", "issue"):
            hint = f"write {name} without $"
        else:
            hint = nearest(f"${name}", (f"${item}" for item in function_names())) or "set it: ($x := …; …)"
        self.doubt("unknown-field", f"nothing sets the variable ${shown}", hint)

    def _missing(self, field: Field, name: str, place: int, path: Any) -> None:
        owners = _owners(field.owners) or "what stands there"
        if place == 0 and owners == HISTORY:
            message = f'the history has no "{one_line(name, 40)}"'
            self.doubt("unknown-field", message, self._root_hint(name, path))
            return
        of_roles = [known for known, whose in field.known.items() if whose.startswith(SCHEMA_OF)]
        message = f"it asks for {_shown(path, upto=place + 1)}, which {owners} doesn't have"
        self.doubt("unknown-field", message, field_mistake(name) or nearest(name, of_roles or field.known))

    def _root_hint(self, name: str, path: Any) -> str:
        if (habit := name_mistake(name)) is not None:
            return habit
        if len(path.steps) == 1 and any("string" in kinds_of(atom) for atom in self._expected):
            return f'a text stands in quotes: "{name}"'
        rest = _shown(path)
        if name in ("output", "role", "detail", "agent"):
            return f"the last step's is steps[-1].{rest}"
        schemas = (self._schemas[role] for role in self._last if role in self._schemas)
        if any(way.field(name) for schema in schemas for way in variants_of(schema, schema)):
            return f"the last answer's is steps[-1].output.{rest}"
        if name in self._roles:
            return f'what "{name}" said last is steps[role = "{name}"][-1].output'
        if (meant := closest(name, ("start", "steps", "issue"))) is not None:
            return f'did you mean "{meant}"?'
        return "it has start and steps; a text stands in quotes"


def _kept(value: Value, test: Any) -> Value:
    if value is None or test.type != "binary":
        return value
    if test.value == "and":
        return _kept(_kept(value, test.lhs), test.rhs)
    for name, literal in ((test.lhs, test.rhs), (test.rhs, test.lhs)):
        if test.value == "=" and literal.type == "string" and name.type == "path" and _shown(name) == "role":
            return of_role(value, literal.value)
    return value


def _is_list(node: Any) -> bool:
    return bool(node.type == "unary" and node.value == "[")


def _is_fixed(node: Any) -> bool:
    return node.type in _LITERALS or _is_list(node)


def _of_all(node: Any) -> str:
    """Return `steps` or `branches` for a path to a field of all of them, else ""."""
    steps: Sequence[Any] = node.steps if node.type == "path" else ()
    plain = all(step.type == "name" and not step.stages and not step.predicate for step in steps)
    if not plain or len(steps) < 2 or node.group is not None:
        return ""
    return str(steps[0].value) if steps[0].value in ("steps", "branches") else ""


# How it is said


def _shown(node: Any, upto: int | None = None) -> str:
    if node.type == "function":
        return f"${node.procedure.value}(…)" if node.procedure.type == "variable" else "a function"
    if node.type in _LITERALS:
        return one_line(json.dumps(node.value, ensure_ascii=False), 60)
    if node.type != "path":
        return "what it is compared with"
    names = [str(step.value) for step in node.steps[:upto] if step.type == "name"]
    if len(names) > 1 and names[0] == "steps":
        names = names[1:]
    return one_line(".".join(names), 60) or "it"


def _owners(whose: Sequence[str]) -> str:
    owners = list(dict.fromkeys(item for item in whose if item))
    roles = [owner for owner in owners if owner.startswith(SCHEMA_OF)]
    if len(roles) > 3:
        return "any role's schema"
    return " or ".join(roles or owners[:1])


def _hint_for(right: Any, possible: Iterable[Atom]) -> str:
    possible = list(possible)
    listed = [atom.value for atom in possible if not isinstance(atom, frozenset)]
    kinds = sorted({kind for atom in possible for kind in kinds_of(atom)})
    if right.type == "string":
        text = right.value.strip().lower()
        plain = {"true": "boolean", "false": "boolean", "null": "null"}.get(text)
        if plain in kinds or ("number" in kinds and text.replace(".", "", 1).lstrip("-").isdigit()):
            return f"write {text} without quotes"
        texts = [item for item in listed if isinstance(item, str)]
        return nearest(right.value, texts) or _one_of(listed, kinds)
    if right.type in _LITERALS and "string" in kinds:
        quoted = json.dumps(right.value)
        if not listed or quoted in listed:
            return f'it is a text: "{quoted}"'
    return _one_of(listed, kinds)


def _one_of(listed: Sequence[Any], kinds: Iterable[str]) -> str:
    if listed:
        shown = [json.dumps(item, ensure_ascii=False) for item in listed]
        return "it is one of: " + one_line(", ".join(dict.fromkeys(shown)), 120)
    return f"it is {_in_words(kinds)}"


def _in_words(kinds: Iterable[str]) -> str:
    words = {
        "string": "text",
        "boolean": "true or false",
        "number": "a number",
        "array": "a list",
        "null": "null",
    }
    return " or ".join(words.get(kind, "an object") for kind in sorted(kinds))
