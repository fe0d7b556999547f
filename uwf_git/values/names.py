"""Which names a workflow and a role may have: a workflow's name is a component of a ref, a role's one
of a tree path, and both stand in command lines."""

from __future__ import annotations

import re

from uwf_git.errors import Invalid
from uwf_git.text import one_line

MAX_CHARACTERS = 100
# A loose ref is a file, and git writes `<name>.lock` beside it: 255 bytes is what file systems allow.
MAX_BYTES = 200

_NAME = re.compile(r"\w[\w.-]*")


def name_problem(name: str) -> str | None:
    """Why a name can't be a workflow's or a role's, or None. Letters and digits of any script, `_`,
    `.` and `-` make a name; what git refuses in a ref is refused here."""
    if not name:
        return "is empty"
    if len(name) > MAX_CHARACTERS or len(name.encode("utf-8", "replace")) > MAX_BYTES:
        return f"is longer than {MAX_CHARACTERS} characters"
    if not _NAME.fullmatch(name):
        return "may have letters, digits, _ . - and begin with a letter or digit"
    if ".." in name or name.endswith((".", ".lock")) or name.casefold().endswith(".lock"):
        return 'may hold no "..", and end neither in "." nor in ".lock"'
    return None


def check_name(name: str) -> str:
    """The name, if a workflow can be registered under it. Raises Invalid."""
    if (problem := name_problem(name)) is not None:
        raise Invalid(
            f'workflow name "{one_line(name, 60)}" {problem}', "rename it, for instance solve-issue"
        )
    return name
