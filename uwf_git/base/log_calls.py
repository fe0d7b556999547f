"""Source lines of log calls, by tag."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.log import LEVELS


class Site(NamedTuple):
    """A log call. `content` has a `{name}` for each field; `tag` and `content` are "" if not literals."""

    tag: str
    level: str
    content: str
    fields: tuple[str, ...]
    file: Path
    line: int


def find_site(tag: str, folders: Iterable[Path]) -> Site | None:
    """Return the call with a tag, ignoring case, or None."""
    wanted = tag.upper()
    return next((site for site in sites(folders, wanted) if site.tag == wanted), None)


def sites(folders: Iterable[Path], within: str = "log.") -> list[Site]:
    """Return the calls below folders, by file and line, in files with the text `within`."""
    texts = ((path, _text(path)) for folder in folders for path in sorted(folder.rglob("*.py")))
    return [site for path, text in texts if within in text for site in _calls(path, text)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _calls(path: Path, text: str) -> Iterator[Site]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(called := node.func, ast.Attribute):
            continue
        if isinstance(called.value, ast.Name) and called.value.id == "log" and called.attr in LEVELS:
            literals = [
                argument.value if isinstance(argument, ast.Constant) else "" for argument in node.args[:2]
            ]
            tag, content = (str(literal) for literal in (*literals, "", "")[:2])
            fields = tuple(keyword.arg or "**" for keyword in node.keywords)
            yield Site(tag, called.attr, content, fields, path, node.lineno)
