"""The files that make a forge check a repository, from the templates beside this module.

In a template, lines from `#@if WORD...` to `#@end` are for these forges, `comment` for those that want comments, and
`comment+github` for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from uwf_git.ext.ci.job import FORGES
from uwf_git.plugin import VERSION

_TEMPLATES = Path(__file__).parent / "templates"
_PLACES = {
    "github": ".github/workflows/uwf.yml",
    "gitlab": "uwf-ci.yml",
    "forgejo": ".forgejo/workflows/uwf.yml",
    "gitea": ".gitea/workflows/uwf.yml",
}


def ci_file(forge: str, comment: bool) -> str:
    """Return a forge's file. With `comment`, a second job may write one comment on a pull request."""
    assert forge in FORGES
    name = "gitlab.yml" if forge == "gitlab" else "actions.yml"
    words = {forge, "comment", f"comment+{forge}"} if comment else {forge}
    text = "".join(_chosen((_TEMPLATES / name).read_text(encoding="utf-8"), words))
    named = f"{forge} --comment" if comment else forge
    return text.replace("@FORGE@", named).replace("@PLACE@", _PLACES[forge]).replace("@VERSION@", VERSION)


def _chosen(text: str, words: set[str]) -> Iterator[str]:
    is_in = True
    for line in text.splitlines(keepends=True):
        if line.startswith("#@if "):
            is_in = not words.isdisjoint(line.split()[1:])
        elif line.startswith("#@end"):
            is_in = True
        elif is_in:
            yield line
