"""The tree of a suite's commits, and their message.

README.md                            what a suite is
suite/nodes/                         the Suite node and the types of the others
cases/csv-<hash>/{README.md,nodes/}  a case
removed/nodes/                       removals of cases
results/4K/nodes/                    trials, scores and runs, by the first two characters of their hashes
files/<id of a tree>/                fixtures, and their final states
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from uwf_git.ext.evaluation import SUITES
from uwf_git.plugin import Hash, counted, fenced, harmless, layout, markdown

FIXTURES = "files/"
"""The folder with folders of files, each by the id of its tree."""


def suite_message(name: str, node: Hash, added: Mapping[str, int]) -> str:
    """Return a commit's message with counts of additions; without any it is a merge."""
    counts = [counted(number, word) for word, number in added.items() if number]
    return layout.message(f"suite {name}: {', '.join(counts) or 'two sides'}", {SUITES.trailer: node})


def case_folder(name: str, node: Hash) -> str:
    return f"cases/{layout.slug(name)}-{node}"


def result_folder(node: Hash) -> str:
    return f"results/{node[:2]}"


def suite_page(name: str) -> bytes:
    """Return a suite's README.md, without its growing contents."""
    shown = markdown.code(name)
    said = (
        f"# Suite {shown}\n\nCases by which workflows and agents are judged, and what came of them.\n\n"
        "- `cases/` has a folder for each case.\n"
        "- `results/` has trials, what judges said of them, and runs.\n"
        "- `files/` has the folders that cases begin with, and what became of these.\n"
        "- `removed/` takes cases out again: here nothing is ever deleted.\n\n"
        f"`uwf eval show {name}` lists them, `uwf eval run {name}` runs them.\n"
    )
    return harmless(said).encode("utf-8")


def case_page(case: Mapping[str, Any]) -> bytes:
    rows = []
    if role := case.get("role"):
        rows.append(("the step", markdown.code(case["step"])))
        rows.append(("is done again by", markdown.code(role)))
    elif "start" in case:
        rows.append(("the task of", markdown.code(case["start"])))
        rows += [("had come to", markdown.code(case["step"]))] if "step" in case else []
    rows += (
        [("files", f"[{case['fixture'][:10]}](../../files/{case['fixture']})")] if "fixture" in case else []
    )
    judges = ", ".join(markdown.inline(judge["name"]) for judge in case.get("judges", ()))
    rows += [("judged by", judges)] if judges else []
    rows += [("tags", ", ".join(map(markdown.inline, case["tags"])))] if "tags" in case else []
    rows += [
        (markdown.inline(key), markdown.inline(str(limit)))
        for key, limit in sorted(case.get("limits", {}).items())
    ]
    parts = [f"# {markdown.inline(case['name'])}"]
    parts += [markdown.quoted(case["prompt"])] if case.get("prompt", "").strip() else []
    parts += [markdown.table(("", ""), rows)] if rows else []
    if "expected" in case:
        said = json.dumps(case["expected"], ensure_ascii=False, indent=2, sort_keys=True)
        parts += ["## Expected", fenced(said, "json")]
    return harmless("\n\n".join(parts) + "\n").encode("utf-8")
