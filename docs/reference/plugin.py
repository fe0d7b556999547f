"""Writes plugin.md: the names of `uwf_git.plugin` by room, each with its line and its source.

python docs/reference/plugin.py            write it
python docs/reference/plugin.py --check    exit with 1 if it would change
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("plugin.md")
STUB = ROOT / "uwf_git" / "plugin.pyi"
_INTRODUCTION = """\
# The face for extensions

An extension imports `uwf_git`, `uwf_git.kit` and `uwf_git.plugin`, and nothing else of uwf. This page has the names of
`uwf_git.plugin`, each with its source, whose docstring says shapes, exceptions and the refs that move. A name is loaded
when it is used. [The recipes](../../CONTRIBUTING.md#recipes) add a command and an agent,
[examples/extension](../../examples/extension/README.md) is a whole extension. The names change with the program's
versions. `make reference` writes this page.
"""
_ROW = re.compile(r"from (?P<module>\S+) import (?P<attribute>\w+) as _?(?P<name>\w+)")
_ROOMS = {
    "base": "Errors, text and the registry",
    "sandbox": "Processes, limits and sandboxes",
    "format": "Values of the format",
    "git": "Git",
    "workflow": "Workflows and decisions",
    "config": "Settings",
    "forge": "Forges",
    "store": "A store and its threads",
    "trust": "Trust",
    "workspaces": "Worktrees",
    "engine": "Steps",
    "kit": "Turns of agents",
    "verify": "Verification",
    "sync": "Sharing",
    "api": "Operations",
    "commands": "Commands",
    "page": "Pages",
}


class Name(NamedTuple):
    """A name of the face and its place."""

    name: str
    module: str
    attribute: str

    @property
    def room(self) -> str:
        top, *rest = self.module.split(".")
        if top == "uwf_cli":
            return "page" if rest[:1] == ["page"] else "commands"
        return "kit" if rest[:2] == ["engine", "kit"] else rest[0]

    @property
    def source(self) -> Path:
        module = _path(f"{self.module}.{self.attribute}")
        path = module or _path(self.module)
        assert path is not None, self
        return path


def names() -> list[Name]:
    """Return the names of the stub, by room."""
    rows = map(_ROW.match, STUB.read_text(encoding="utf-8").splitlines())
    of_stub = [Name(row["name"], row["module"], row["attribute"]) for row in rows if row]
    return sorted(of_stub, key=lambda name: (list(_ROOMS).index(name.room), name.name.lower(), name.name))


def page() -> str:
    """Return the page as it should be."""
    rooms = groupby(names(), lambda name: name.room)
    return "\n".join((_INTRODUCTION, *(_section(_ROOMS[room], members) for room, members in rooms)))


def _section(title: str, members: Iterator[Name]) -> str:
    rows = [f"| `{each.name}` | {_line(each)} | {_link(each.source)} |" for each in members]
    return f"## {title}\n\n| Name | | Source |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _link(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")
    return f"[{name}](../../{path.relative_to(ROOT).as_posix()})"


def _line(name: Name) -> str:
    """Return the first sentence of a name's docstring. Raises SystemExit without one."""
    docs = _docs(name.source)
    text = docs.get("" if _path(f"{name.module}.{name.attribute}") else name.attribute, "")
    if not text:
        sys.exit(f"{name.name} has no docstring: write one in {name.source.relative_to(ROOT)}")
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]
    return sentence.rstrip(":").replace("|", "\\|")


@cache
def _docs(path: Path) -> dict[str, str]:
    """Return the docstrings of a module by name, its own as ""."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    docs = {"": ast.get_docstring(ast.Module(body, [])) or ""}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            docs[statement.name] = ast.get_docstring(statement) or ""
        elif isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs |= dict.fromkeys(_assigned(statement), str(after.value.value))
    return docs


def _assigned(statement: ast.stmt) -> list[str]:
    """Return the names that a statement assigns, or imports from another package."""
    if isinstance(statement, ast.ImportFrom):
        return [alias.name for alias in statement.names]
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]


def _path(module: str) -> Path | None:
    top, *rest = module.split(".")
    folder = ROOT.joinpath("cli" if top == "uwf_cli" else "", top, *rest)
    return next((path for path in (folder.with_suffix(".py"), folder / "__init__.py") if path.exists()), None)


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("run make reference: plugin.md would change")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
