"""The name of a request's branch."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from uwf_git.plugin import Invalid, render_template

_LONGEST = 60  # letters of a part between slashes
_SEVERAL = 9  # names that are tried


def branch_name(template: str, variables: Mapping[str, Any]) -> str:
    """Return the name that a template makes, in letters that every forge and shell takes; the key of a tracker's issue
    keeps its own, for the tracker looks for it. Raises Invalid for a template that can't be rendered, or makes no
    name."""
    plain = {name: _plain(value) for name, value in variables.items()}
    parts = [_part(part) for part in render_template(template, plain).split("/")]
    name = "/".join(filter(None, parts))
    if not name:
        raise Invalid(f"the template land.branch makes no name: {template}", "uwf config get land.branch")
    key = (variables.get("issue") or {}).get("key", "")
    return re.sub(rf"(?<![a-z0-9]){re.escape(key.lower())}(?![a-z0-9])", key, name) if key else name


def candidates(name: str) -> Iterator[str]:
    """Yield a name, then others for a branch that is somebody else's."""
    yield name
    for number in range(2, _SEVERAL + 1):
        yield f"{name}-{number}"


def _plain(value: Any) -> Any:
    """Return a value of a template with its texts as parts of a name, so that none of them makes a folder."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _part(value) if isinstance(value, str) else value


def _part(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii").lower()
    part = re.sub(r"[^a-z0-9._]+", "-", plain)
    part = re.sub(r"\.\.+", ".", part)[:_LONGEST].strip("-._")
    return part.removesuffix(".lock").strip("-._")
