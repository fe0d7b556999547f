"""Writes messages.md: every error message in the sources, with its code and hint.

python docs/reference/messages.py            write it
python docs/reference/messages.py --check    exit with 1 if it would change
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import errors

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("messages.md")
_INTRODUCTION = """\
# Error messages

Every error message in the sources, by room, with its code and its hint. `{…}` stands for a value. A code
determines the [exit status](commands/README.md#exit-statuses). `make reference` writes this page.
"""


class Message(NamedTuple):
    """An error that the sources raise. `hint` is "" if it is computed or missing."""

    room: str
    code: str
    message: str
    hint: str


@cache
def messages() -> tuple[Message, ...]:
    """Return the messages of all calls of error classes with literal texts, in the order of files and lines."""
    return tuple(_messages(_codes()))


def _messages(codes: Mapping[str, str]) -> Iterator[Message]:
    for folder in ("uwf_git", "cli/uwf_cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).parts
            room = "/".join(parts[:2] if parts[0] == "ext" else parts[:1]) if folder == "uwf_git" else "cli"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in codes
                    and node.args
                ):
                    texts = [_text(each) for each in node.args[:2]] + [""]
                    if " " in texts[0]:
                        yield Message(room, codes[node.func.id], texts[0], texts[1])


def _codes() -> dict[str, str]:
    """Return the codes of all error classes, also of those outside `base.errors`."""
    codes = {name: each.code for name, each in vars(errors).items() if _is_error(each)}
    texts = (path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("uwf_git/**/*.py")))
    derived = (
        text for text in texts if re.search(rf"^class \w+\(.*\b({'|'.join(codes)})\b", text, re.MULTILINE)
    )
    for node in (node for text in derived for node in ast.parse(text).body if isinstance(node, ast.ClassDef)):
        bases = [each.id for each in node.bases if isinstance(each, ast.Name) and each.id in codes]
        if bases and node.name not in codes:
            own = [ast.literal_eval(each.value) for each in node.body if _sets_code(each)]
            codes[node.name] = own[0] if own else codes[bases[0]]
    return codes


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.UwfError)


def _sets_code(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    return is_text and ast.unparse(node.targets[0]) == "code"


def _text(node: ast.expr) -> str:
    """Return a text with placeholders, "" if it is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(each.value) if isinstance(each, ast.Constant) else _placeholder(each) for each in node.values
        )
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return ""


def _placeholder(node: ast.expr) -> str:
    assert isinstance(node, ast.FormattedValue)
    value = node.value
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return f"{{{name.strip('_') or '…'}}}"


def page() -> str:
    """Return the page as it should be."""
    rooms: dict[str, dict[Message, None]] = {}
    for each in messages():
        rooms.setdefault(each.room, {})[each] = None
    parts = [_INTRODUCTION]
    for room, found in sorted(rooms.items()):
        rows = [f"| `{each.code}` | {_cell(each.message)} | {_cell(each.hint)} |" for each in found]
        parts.append(f"## {room}\n\n| Code | Message | Hint |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return f"`` {' '.join(text.split())} ``".replace("|", "\\|") if text.strip() else ""


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("run make reference: messages.md would change")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
