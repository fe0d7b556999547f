"""Where things stand in a commit's tree, and what its message says: the parts of the format that a
stranger with plain git sees.

    .gitattributes                       marks node files as generated, so forges fold them
    README.md                            what this thread is (from its start on)
    workflow.yaml                        the definition as its author wrote it
    workflow/{README.md,nodes/,include/} the workflow's page, its nodes, the files it includes
    start/{README.md,nodes/}             the prompt
    steps/0003-reviewer/{README.md,nodes/}   one step; from 100 on steps/01xx/0100-reviewer
    attempts/0001-reviewer/{README.md,nodes/}  only on refs/uwf/attempts/<ULID>
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from uwf_git.ids import Hash, is_hash
from uwf_git.protocol import status_of

GITATTRIBUTES = b"* -text\n**/nodes/*.json linguist-generated=true gitlab-generated=true\n"

WORKFLOWS = "refs/uwf/workflows/"
THREADS = "refs/uwf/threads/"
ARCHIVE = "refs/uwf/archive/"
ATTEMPTS = "refs/uwf/attempts/"
PINS = "refs/uwf/nodes/"

_NODE_FILE = re.compile(r"(?:^|/)nodes/([0-9A-Z]{13})\.json$")
_UNSAFE = re.compile(r"[^\w.-]+")
_TRAILER = re.compile(r"^(Uwf-[A-Za-z-]+): (.*)$")


def node_file(node: Hash) -> str:
    """The name of a node's file in a nodes/ folder."""
    return f"{node}.json"


def node_in_path(path: str) -> Hash | None:
    """The hash that a path promises, if it is a node's."""
    match = _NODE_FILE.search(path)
    return Hash(match.group(1)) if match and is_hash(match.group(1)) else None


def slug(role: str) -> str:
    """A role's name as part of a path: letters, digits, dots and dashes, at most 40."""
    return (
        _UNSAFE.sub("-", role.removeprefix("$").lower() if role.startswith("$") else role).strip(".-")[:40]
        or "role"
    )


def step_folder(number: int, role: str) -> tuple[str, ...]:
    """The folders of a step below the root: ("steps", "0003-reviewer"), and from step 100 on with a
    century between, so that no folder outgrows a few hundred entries."""
    name = f"{number:04d}-{slug(role)}"
    if number < 100:
        return ("steps", name)
    return ("steps", f"{number // 100:02d}xx", name)


def attempt_folder(number: int, role: str) -> tuple[str, ...]:
    """The folders of a failed attempt below the root."""
    return ("attempts", f"{number:04d}-{slug(role)}")


class Trailers(NamedTuple):
    """What the trailers of a commit message name: the kind of record and the node it is about."""

    kind: str
    node: Hash


_KIND_TRAILERS = {
    "Uwf-Workflow": "workflow",
    "Uwf-Start": "start",
    "Uwf-Step": "step",
    "Uwf-Attempt": "attempt",
    "Uwf-Node": "pin",
}


def message(subject: str, trailers: dict[str, str], body: str = "") -> str:
    """A commit message whose last paragraph are trailers."""
    parts = [one_line(subject, 100)]
    if body:
        parts.append(body.strip())
    parts.append("\n".join(f"{key}: {one_line(value, 200)}" for key, value in trailers.items() if value))
    return "\n\n".join(parts) + "\n"


def parse_message(text: str) -> Trailers | None:
    """The record a message declares in its last paragraph; None where it is no commit of ours."""
    last = text.rstrip("\n").rsplit("\n\n", 1)[-1]
    for line in last.split("\n"):
        match = _TRAILER.match(line)
        if match and match.group(1) in _KIND_TRAILERS and is_hash(match.group(2)):
            return Trailers(_KIND_TRAILERS[match.group(1)], Hash(match.group(2)))
    return None


def one_line(text: str, at_most: int) -> str:
    """Text on one line without control characters, shortened."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= at_most else flat[: at_most - 1] + "…"


def summary(output: Any) -> str:
    """What an output comes to, in a few words for a commit's subject: its status, else its first
    verdict (a boolean), else its first short text."""
    status = status_of(output)
    if status:
        return one_line(status.lstrip("$").lower() if status.startswith("$") else status, 60)
    if isinstance(output, str):
        return one_line(output, 60)
    if not isinstance(output, dict):
        return ""
    for key, value in output.items():
        if isinstance(value, bool):
            return one_line(key if value else f"not {key}", 60)
    for value in output.values():
        if isinstance(value, str) and value.strip():
            return one_line(value, 60)
    return ""
