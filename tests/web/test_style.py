"""The style of the pages and what they are made of name the same classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from uwf_git.ext.web import site
from uwf_git.plugin import markup

_REPO = Path(__file__).parents[2]
_STATIC = Path(site.__file__).parent / "static"
_CLASS = re.compile(r"\.([A-Za-z][\w-]*)")
_TAG = re.compile(r"\{%.*?%\}")
_FILLED = re.compile(r"\{\{.*?\}\}|\$?\{[^}]*\}")  # what a template, a script or a module puts into a text


@pytest.fixture(scope="module")
def styled() -> set[str]:
    """The classes that rules are about."""
    text = _texts([*_STATIC.glob("*.css"), markup.STYLE_FILE])
    rules = re.sub(r"/\*.*?\*/|\"[^\"]*\"|\{[^{}]*\}", "{}", text, flags=re.DOTALL)
    return set(_CLASS.findall(rules))


def test_each_class_of_the_style_is_written_by_something(styled: set[str]) -> None:
    modules = (path for folder in ("uwf_git", "cli") for path in (_REPO / folder).rglob("*.py"))
    literals = re.findall(r'"([^"\n]*)"|`([^`]*)`', _texts([*_STATIC.glob("*.js"), *modules]))
    words = {*_of_templates(), *(word for pair in literals for word in _words("".join(pair)))}
    stems = tuple(word[:-1] for word in words if re.fullmatch(r"[a-z]+-\0|[bf]\0", word))
    assert [name for name in sorted(styled) if name not in words and not name.startswith(stems)] == []


def test_each_class_of_a_template_is_for_a_rule_a_script_or_a_test(styled: set[str]) -> None:
    users = _texts([*_STATIC.glob("*.js"), *_REPO.glob("tests/**/*.py")])
    known = styled | set(_CLASS.findall(users))
    assert sorted(word for word in _of_templates() if "\0" not in word and word not in known) == []


def _of_templates() -> set[str]:
    text = _texts(_REPO.glob("uwf_git/ext/*/templates/*.html"))
    attributes = re.findall(r'class="((?:\{[{%].*?[%}]\}|[^"])*)"', text)
    return {word for attribute in attributes for word in _words(attribute)}


def _words(text: str) -> Iterator[str]:
    """The words of a text, with a NUL for what is put in, and those that may be put in."""
    text = _TAG.sub("", text)
    yield from re.findall(r"[A-Za-z][\w\0-]*", _FILLED.sub("\0", text))
    for filled in _FILLED.findall(text):
        for literal in re.findall(r'(?<!=[= ])"([^"]*)"', filled):
            yield from _words(literal)


def _texts(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
