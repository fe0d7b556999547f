"""Words of closed sets: no type lists them, whoever parses, stores or verifies a node knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from uwf_git.base.errors import UnknownWord
from uwf_git.ext.evaluation.node_types import TRIAL_ENDS
from uwf_git.format.builtin import BUILTIN, word
from uwf_git.format.kinds import parse_attempt, parse_workflow
from uwf_git.format.types import SHOWN_PARTS, WORKFLOW
from uwf_git.format.words import WORDS, require_known_words
from uwf_git.store.instance import Instance

OPEN = word("")["description"]
LISTED = {
    ("all", "first"),  # two shares beside numbers and percentages, which say all others
    ("step", "decision", "merge", "end"),  # a package's, closed by its own format
    ("ide", "web", "none"),  # likewise
    SHOWN_PARTS,  # an approval of another part is another promise, which no earlier version may count
    TRIAL_ENDS,  # judging and comparing decide by each
}
"""The words that schemas list, so that another would be another type."""

NODES: dict[str, tuple[str, dict[str, Any], str]] = {
    "policy": (
        "Workflow",
        {"graph": {"a": [{"role": "b", "fanOut": {"onFailure": "skip"}}]}},
        "/graph/a/0/fanOut/onFailure",
    ),
    "policy by status": (
        "Workflow",
        {"graph": {"a": {"_": {"fanOut": {"onFailure": "skip"}}}}},
        "/graph/a/_/fanOut/onFailure",
    ),
    "cause": ("Workflow", {"roles": {"a": {"retry": {"on": ["failed", "x"]}}}}, "/roles/a/retry/on/1"),
    "workspace": ("Workflow", {"workspace": "x"}, "/workspace"),
    "package": ("Workflow", {"crew": {"format": "x"}}, "/crew/format"),
    "language": ("Bundle", {"language": "x"}, "/language"),
    "crew": ("Crew", {"format": "x"}, "/format"),
    "fork": ("Fork", {"onFailure": "x"}, "/onFailure"),
    "join": ("Join", {"branches": [{"status": "left"}, {"status": "x"}]}, "/branches/1/status"),
    "attempt": ("Attempt", {"cause": "x"}, "/cause"),
}


def schemas(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas within one, with the paths of their values in a payload."""
    if not isinstance(value, dict):
        return
    yield path, value
    for name, inner in value.get("properties", {}).items():
        yield from schemas(inner, f"{path}/{name}")
    for key in ("items", "additionalProperties"):
        yield from schemas(value.get(key), f"{path}/*")
    for inner in value.get("anyOf", ()):
        yield from schemas(inner, path)


def test_the_types_leave_open_what_this_version_knows_and_list_nothing_else() -> None:
    inner = [(schema["title"], *item) for schema in BUILTIN.values() for item in schemas(schema)]
    left_open = {(title, path) for title, path, item in inner if item.get("description", "").endswith(OPEN)}
    assert left_open == {(title, path) for title, paths in WORDS.items() for path in paths}
    assert {tuple(item["enum"]) for _, _, item in inner if "enum" in item} == LISTED


@pytest.mark.parametrize("node", NODES)
def test_a_word_of_any_type_is_refused_with_its_place(node: str) -> None:
    kind, payload, place = NODES[node]
    with pytest.raises(UnknownWord, match=f" at {place.replace('$', '.')}, which this uwf does not know"):
        require_known_words(kind, payload)
    require_known_words(kind, {})
    require_known_words(kind, [payload])


def test_the_parsers_and_the_store_refuse_it(instance: Instance) -> None:
    workflow = {
        "name": "w",
        "description": "d",
        "roles": {},
        "conditions": {},
        "graph": {},
        "workspace": "moon",
    }
    with pytest.raises(UnknownWord, match=r"^Workflow w has 'moon' at /workspace"):
        parse_workflow(workflow)
    with pytest.raises(UnknownWord, match=r"^Workflow has 'moon' at /workspace"):
        instance.store.put(WORKFLOW, workflow)
    with pytest.raises(UnknownWord, match=r"^Attempt has 'moon' at /cause"):
        parse_attempt({"cause": "moon"})
