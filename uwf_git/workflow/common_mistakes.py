"""Common mistakes from other languages and tools, and the correct words: workflow keys, names of the end,
template filters, operators and names in expressions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from uwf_git.format.types import END, START

_EDGE = {
    "condition": ("if", "when", "cond", "on", "where", "unless", "expression", "expr", "guard", "test"),
    "role": ("to", "next", "target", "goto", "then", "agent", "step", "node", "name"),
    "prompt": ("instruction", "instructions", "message", "input", "task"),
    "location": ("cwd", "dir", "directory", "folder", "path", "workdir"),
}
_FAN_OUT = {
    **{key: tuple(word for word in words if word not in ("then", "next")) for key, words in _EDGE.items()},
    "each": ("foreach", "for_each", "for-each", "over", "items", "branches", "fanOut", "fan_out", "fan-out", "map"),
    "as": ("var", "variable", "alias", "item", "itemName", "loopVar"),
    "atOnce": ("at_once", "at-once", "concurrency", "parallel", "parallelism", "maxParallel", "max_parallel",
               "max-parallel", "maxConcurrency", "max_concurrency"),
    "max": ("limit", "most", "maxItems", "max_items"),
    "need": ("needs", "quorum", "required", "atLeast", "at_least"),
    "onFailure": ("on_failure", "on-failure", "onError", "on_error", "on-error"),
    "onConflict": ("on_conflict", "on-conflict"),
    "join": ("then", "next", "after", "reduce", "collect", "gather"),
}  # fmt: skip
_ROLE = {
    "systemPrompt": ("prompt", "system", "system_prompt", "systemprompt", "instructions", "instruction"),
    "frontmatter": ("meta",),
    "outputSchema": ("schema", "output_schema", "outputs", "response", "responseSchema", "returns"),
    "description": ("desc", "about", "summary"),
    "capabilities": ("skills", "abilities"),
    "procedure": ("steps", "process"),
}
_CONDITION = {
    "expression": ("expr", "if", "when", "test", "condition", "jsonata", "value"),
    "description": ("desc", "about"),
}
_TOP = {
    "graph": ("edges", "transitions", "flow", "moderator", "routes"),
    "roles": ("agents", "nodes", "steps", "actors"),
    "conditions": ("predicates", "guards"),
    "name": ("id", "title", "workflow"),
    "description": ("desc", "about"),
    "budget": ("limits", "limit"),
    "workspace": ("worktree", "cwd", "folder"),
}
_TABLES: Mapping[str, Mapping[str, Collection[str]]] = {
    "edge": _EDGE,
    "fan-out": _FAN_OUT,
    "role": _ROLE,
    "condition": _CONDITION,
    "workflow": _TOP,
}

_FILTERS = {
    "upcase": ("upper", "uppercase", "toupper"),
    "downcase": ("lower", "lowercase", "tolower"),
    "capitalize": ("title", "titlecase", "ucfirst"),
    "strip": ("trim",),
    "size": ("length", "len", "count"),
    "json": ("tojson", "to_json", "jsonify", "dump"),
    "truncate": ("shorten", "limit"),
}

_HINTS = {
    "unless": "conditions say when an edge is taken: define one with $not(…) and name it in condition:",
    "agent": "an edge leads to a role; who plays it is in config.yaml: uwf config set agentOverrides.…",
    "model": "which model is used is in config.yaml: uwf setup",
    "else": "an edge without a condition is for everything else, so it comes last",
    "default": "an edge without a condition is for everything else, so it comes last",
}

_STARTS = frozenset(("start", "begin", "entry", "init", "initial", "__start__", "$begin", "$entry", "$init"))
_ENDS = frozenset(
    ("end", "exit", "finish", "finished", "stop", "done", "terminate", "final", "__end__", "$finish", "$stop")
)


def suggest_key(kind: str, key: str, given: Collection[str] = ()) -> str | None:
    """Return the key of an `edge`, `fan-out`, `role`, `condition` or `workflow` that another means, unless `given`."""
    table = _TABLES.get(kind, {})
    if kind == "role":  # of its two forms
        given = {*given, *(("systemPrompt",) if "goal" in given else ("capabilities", "procedure"))}
    folded = key.casefold()
    for meant, others in table.items():
        if meant not in given and any(folded == other.casefold() for other in others):
            return meant
    return None


def key_hint(key: str) -> str:
    """Return the hint for a key without counterpart, usually ""."""
    return _HINTS.get(key.casefold(), "")


def means_start(source: str) -> bool:
    """Return whether an edge's source is meant to be `$START`, such as `start`."""
    return source.casefold() in _STARTS or source.casefold() == START.casefold()


def means_end(role: str) -> bool:
    """Return whether an edge's target is meant to be `$END`, such as `end`."""
    return role.casefold() in _ENDS or role.casefold() == END.casefold()


class _Slip(NamedTuple):
    pattern: re.Pattern[str]
    hint: str


def _slips(*pairs: tuple[str, str]) -> tuple[_Slip, ...]:
    return tuple(_Slip(re.compile(pattern), hint) for pattern, hint in pairs)


# In the order of search: the best explanations come first.
_IN_EXPRESSIONS = _slips(
    (r"\{\{|\{%|\$\{", "an expression stands alone: write it without braces around names"),
    (r"[“”„‘’«»]", "texts stand in straight quotes: \"…\" or '…'"),
    (r"===?", 'JSONata compares with a single =, as in status = "done"'),
    (r"!==", "JSONata writes != for “is not”"),
    (r"&&", "JSONata writes and for &&"),
    (r"\|\|", "JSONata writes or for ||"),
    (r"<>", "JSONata writes != for <>"),
    (r"=~|~=", "JSONata matches with $match(text, /…/) or $contains(text, …)"),
    (r"->|\?\.", "JSONata goes to a field with a dot, and a missing field is no error"),
    (r"=>", "JSONata writes functions as function($x){ … }"),
    (r"!(?!=)", "JSONata negates with $not(…)"),
    (r"\bnot\s+in\b", "JSONata writes $not(x in y)"),
    (r"\bnot\b(?!\s*\()", "JSONata negates with $not(…)"),
    (r"\bis\s+not\b", "JSONata compares with !="),
    (r"\bis\b", "JSONata compares with ="),
    (r"\b(?:AND|OR|NOT|IN)\b", "JSONata writes and, or and in in small letters, and $not(…)"),
    (r"\bif\s*\(", "JSONata chooses with test ? this : that"),
    (r"\*\*(?!\.)", "JSONata has $power(x, y)"),
    (r"\.-?\d", "an item of a list is taken with brackets: steps[-1]"),
    (r"\bfunction\s*\(\s*\w", "JSONata's parameters begin with $: function($x){ … }"),
)
_CALLS = {
    "len": "$count(list) counts items, $length(text) characters",
    "length": "$count(list) counts items, $length(text) characters",
    "size": "$count(list) counts items, $length(text) characters",
    "includes": '$contains(text, "…") looks into a text, "…" in list into a list',
    "contains": '$contains(text, "…") looks into a text, "…" in list into a list',
    "startswith": "$match(text, /^…/) looks at the beginning of a text",
    "endswith": "$match(text, /…$/) looks at the end of a text",
    "exists": "$exists(…) tells whether there is a value",
    "isempty": '$count(list) = 0, or text = ""',
    "tolowercase": "$lowercase(text)",
    "touppercase": "$uppercase(text)",
    "lower": "$lowercase(text)",
    "upper": "$uppercase(text)",
    "any": "list[…] with a test keeps the items that pass; $count(…) > 0 asks whether there are any",
    "some": "list[…] with a test keeps the items that pass; $count(…) > 0 asks whether there are any",
    "all": "$count(list[$not(…)]) = 0 asks whether all pass",
    "every": "$count(list[$not(…)]) = 0 asks whether all pass",
    "last": "list[-1] is the last item",
    "now": "nothing may depend on the time, as the same history must always lead to the same decision",
}
_NAMES = {
    "none": "JSONata writes null; $exists(…) asks whether there is a value",
    "nil": "JSONata writes null; $exists(…) asks whether there is a value",
    "undefined": "JSONata has $exists(…) for what may be missing",
    "yes": "JSONata writes true",
    "no": "JSONata writes false",
    "on": "JSONata writes true",
    "off": "JSONata writes false",
}
_COUNTS = "$count(…) counts the items of a list, $length(…) the characters of a text"
_FIELDS = {
    "length": _COUNTS,
    "size": _COUNTS,
    "count": _COUNTS,
    "last": "the last one is [-1]",
    "first": "the first one is [0]",
}
_STRINGS = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`""")
_OPEN = re.compile(r"""["'`]""")
_CALL = re.compile(r"(?<![\w$])(\w+)\s*\(")


def expression_hint(text: str) -> str:
    """Return what to write instead of syntax that JSONata lacks, or ""."""
    plain = _STRINGS.sub("''", text)
    for slip in _IN_EXPRESSIONS:
        if slip.pattern.search(plain):
            return slip.hint
    for match in _CALL.finditer(plain):
        if hint := _CALLS.get(match[1].casefold()):
            return hint
    if _OPEN.search(plain.replace("''", "")):
        return "a text ends with the quote that it begins with"
    for opening, closing in ("()", "[]", "{}"):
        if plain.count(opening) != plain.count(closing):
            return (
                f"count the brackets: {plain.count(opening)} {opening} and {plain.count(closing)} {closing}"
            )
    return ""


def name_mistake(name: str) -> str | None:
    """Return what to write for a word that JSONata takes for a field, or None."""
    if name in ("True", "TRUE", "False", "FALSE", "Null", "NULL"):
        return f"JSONata writes {name.lower()}"
    if any(quote in name for quote in "“”„‘’«»"):
        return "texts stand in straight quotes: \"…\" or '…'"
    return _NAMES.get(name.casefold())


def filter_mistake(name: str) -> str | None:
    """Return Liquid's filter of the same meaning, None for a mere typo."""
    folded = name.casefold()
    return next((meant for meant, others in _FILTERS.items() if folded in others), None)


def field_mistake(name: str) -> str:
    """Return what to write for another language's property, or ""."""
    return _FIELDS.get(name.casefold(), "")


_LOOKS_LIKE = re.compile(r"[.\[\]()=<>\"'`]|\s(?:and|or|in)\s|&&|\|\||^!|^\$[a-z]")


def is_expression(name: str) -> bool:
    """Return whether a condition's name looks like an expression."""
    return _LOOKS_LIKE.search(name.strip()) is not None
