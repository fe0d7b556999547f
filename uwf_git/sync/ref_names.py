"""Names of refs that a server's hook refuses, since they change how uwf's own are read.

git keeps refs as files: a branch `uwf` and a branch `uwf/threads/ID` exclude each other, as do two names that a file
system holds for one. git looks for short names among tags first, and replaces objects by `refs/replace/`. Refs of other
programs pass if their namespace is one that git or a forge documents.
"""

from __future__ import annotations

import unicodedata

from uwf_git.format.ids import is_thread_id, name_problem
from uwf_git.store import layout, ref_kinds

HEADS, TAGS = "refs/heads/", "refs/tags/"
_ELSEWHERE = (
    *(TAGS, "refs/notes/", "refs/remotes/", "refs/pull/", "refs/pull-requests/", "refs/merge-requests/"),
    *(
        "refs/changes/",
        "refs/for/",
        "refs/meta/",
        "refs/keep-around/",
        "refs/environments/",
        "refs/pipelines/",
    ),
)
_BASES = layout.BRANCHES + "base/"
_SHADOWED = ("uwf/", "refs/uwf/", "refs/heads/uwf/", "heads/uwf/")
"""The beginnings of short names by which uwf's refs are read."""


def problem(ref: str) -> str:
    """Return why a ref of this name may not be made beside uwf's, "" if it may."""
    if ref.startswith(layout.WORK) and not is_thread_id(ref.removeprefix(layout.WORK)):
        return f"what is below {layout.WORK} is called after threads"
    if ref.startswith(layout.NAMESPACE):
        return ""
    folded = _folded(ref)
    for ours in (layout.NAMESPACE, layout.BRANCHES):
        if f"{folded}/".startswith(ours) and not ref.startswith(ours):
            return f"a ref of that name is in the way of those below {ours}"
    for root in (HEADS, TAGS):
        short = _folded(ref.removeprefix(root)) if ref.startswith(root) else ""
        if not ref.startswith(layout.BRANCHES) and f"{short}/".startswith(_SHADOWED):
            return "a ref of that name is taken for one of uwf's where names are short"
    if ref.startswith(layout.BRANCHES):
        return _branch_problem(ref)
    if not ref.startswith((HEADS, *_ELSEWHERE)):
        return "no program is known to keep refs there, and some change how others are read"
    return ""


def _branch_problem(ref: str) -> str:
    prefixes = [kind.branches for kind in ref_kinds.versioned().values()]
    bases = [f"{_BASES}{prefix.removeprefix(layout.BRANCHES)}" for prefix in prefixes]
    ours = (layout.THREAD_BRANCHES, _BASES, f"{_BASES}branches/", *prefixes, *bases)
    folded = _folded(ref)
    for prefix in ours:
        if f"{folded}/".startswith(prefix) and not ref.startswith(prefix):
            return f"a branch of that name is in the way of those below {prefix}"
    for prefix in (layout.THREAD_BRANCHES, _BASES):
        rest = ref.removeprefix(prefix)
        is_other = any(ref.startswith(base) for base in (*bases, f"{_BASES}branches/"))
        if ref.startswith(prefix) and not is_other and not is_thread_id(rest):
            return f"what is below {prefix} is called after threads"
    for prefix in (*prefixes, *bases):
        if ref.startswith(prefix) and name_problem(ref.removeprefix(prefix)) is not None:
            return f"what is below {prefix} is called after definitions"
    return ""


def _folded(ref: str) -> str:
    """Return a name as a file system may read it that ignores case, forms of letters, and what can't be seen."""
    normal = unicodedata.normalize("NFKC", ref).casefold()
    return "".join(letter for letter in normal if unicodedata.category(letter) not in ("Cf", "Mn"))
