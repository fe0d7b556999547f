"""Lists sentences to reword, in the docstrings, the help and the documents, and counts them per 1,000 words.

python docs/prose.py              counts, then file:line: rule: the words around it
python docs/prose.py --counts     counts alone
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RULES = {
    "headless what": r"(?:(?<=[.:;,(] )|^|\b(?:of|to|for|by|and|is|with|in|from|says|than) )"
    r"[Ww]hat (?!(?:is|are|does|to)\b\?)\w+",
    "where for if or when": r"\b[Ww]here (?:there|it|nobody|nothing|that|this|they|one|somebody|a|the|its)\b",
    "somebody, nobody": r"\b(?:[Ss]omebody|[Nn]obody|[Ww]hoever)\b",
    "who as subject": r"(?:(?<=\. )|^)Who \w+",
    "so many, so long": r"\b[Ss]o (?:many|long|often|much)\b(?! as| that)",
    "is no": r"(?<![Tt]here )\bis no (?!longer|more\b)\w+",
}
"""The rules and the expressions that find their breaches. They are hints: some matches are right as they are."""


class Passage(NamedTuple):
    """A paragraph and the place where it begins."""

    kind: str
    path: Path
    line: int
    text: str


def docstrings() -> Iterator[Passage]:
    """Yield docstrings. Those of commands are their help."""
    for folder in ("uwf_git", "cli/uwf_cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    text = ast.get_docstring(node)
                    if text:
                        place = node.body[0].lineno
                        yield Passage("help" if _is_command(node) else "docstrings", path, place, text)
                elif isinstance(node, ast.Call):
                    for word in node.keywords:
                        if word.arg == "help" and isinstance(word.value, ast.Constant):
                            yield Passage("help", path, word.value.lineno, str(word.value.value))


def _is_command(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any("command(" in ast.unparse(each) for each in decorators)


def documents() -> Iterator[Passage]:
    """Yield the paragraphs of the documents, without code."""
    for path in sorted(
        [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    ):
        text = path.read_text(encoding="utf-8")
        text = re.sub(
            r"^(`{3,}).*?^\1 *$", lambda match: "\n" * match[0].count("\n"), text, flags=re.M | re.S
        )
        for match in re.finditer(r"(?:^.*\S.*\n?)+", text, flags=re.M):
            yield Passage("documents", path, text.count("\n", 0, match.start()) + 1, match[0])


def main() -> None:
    passages = [*docstrings(), *documents()]
    words: dict[str, int] = {}
    counts: dict[tuple[str, str], int] = {}
    found = []
    for passage in passages:
        words[passage.kind] = words.get(passage.kind, 0) + len(passage.text.split())
        for rule, expression in RULES.items():
            for match in re.finditer(expression, passage.text, flags=re.M):
                counts[passage.kind, rule] = counts.get((passage.kind, rule), 0) + 1
                line = passage.line + passage.text.count("\n", 0, match.start())
                around = " ".join(passage.text[max(0, match.start() - 30) : match.end() + 50].split())
                found.append(f"{passage.path.relative_to(ROOT)}:{line}: {rule}: … {around} …")
    print("per 1,000 words".ljust(24) + "".join(kind.rjust(12) for kind in words))
    for rule in RULES:
        figures = (f"{1000 * counts.get((kind, rule), 0) / words[kind]:.1f}" for kind in words)
        print(rule.ljust(24) + "".join(each.rjust(12) for each in figures))
    print("words".ljust(24) + "".join(f"{count:,}".rjust(12) for count in words.values()))
    if "--counts" not in sys.argv[1:]:
        print(*found, sep="\n")


if __name__ == "__main__":
    main()
