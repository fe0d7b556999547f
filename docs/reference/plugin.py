"""Writes plugin.md: the names of `uwf_git.plugin` by section, each with its line and its source.

python docs/reference/plugin.py            write it
python docs/reference/plugin.py --check    exit with 1 if it would change
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from uwf_git.plugin import SECTIONS

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("plugin.md")
_INTRODUCTION = """\
# The face for extensions

An extension imports `uwf_git`, `uwf_git.kit` and `uwf_git.plugin`, and nothing else of uwf. This page has the names of
`uwf_git.plugin`, each with its source, whose docstring says shapes, exceptions and the refs that move. A name is loaded
when it is used. [The recipes](../../CONTRIBUTING.md#recipes) add a command and an agent,
[examples/extension](../../examples/extension/README.md) is a whole extension. The names change with the program's
versions. `make reference` writes this page.
"""


def page() -> str:
    """Return the page as it should be."""
    return "\n".join((_INTRODUCTION, *map(_section, SECTIONS)))


def _section(title: str) -> str:
    rows = [f"| `{name}` | {line} | {_source(place)} |" for name, (place, line) in SECTIONS[title].items()]
    return f"## {title}\n\n| Name | | Source |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _source(place: str) -> str:
    module = place.partition(":")[0]
    path = next(path for path in _paths(module) if path.exists())
    return f"[{module.partition('.')[2] or module}](../../{path.relative_to(ROOT).as_posix()})"


def _paths(module: str) -> Iterator[Path]:
    top, *rest = module.split(".")
    folder = ROOT.joinpath("cli" if top == "uwf_cli" else "", top, *rest)
    yield from (folder.with_suffix(".py"), folder / "__init__.py")


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("run make reference: plugin.md would change")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
