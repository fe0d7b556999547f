"""A script of replies: what `uwf-rehearse --script` plays, one entry a run.

    - {role: planner, output: {plan: short}}         a valid output
    - {role: developer, answer: "---\\n…\\n---\\n…"}   an answer, verbatim
    - {role: reviewer, garbage: "no fields here"}    an answer that never gets better
    - {role: reviewer, exit: 3}                      ends with that status
    - {role: reviewer, sleep: 2, output: {…}}        takes its time first

Which entry is next is derived, not remembered: one for each step of a role and
each failed attempt, of the whole thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.errors import Invalid

KEYS = ("role", "output", "answer", "garbage", "exit", "sleep")


class Entry(NamedTuple):
    """One reply. `sleep` is in seconds; exactly one of the others but `role` is given."""

    role: str
    output: Any = None
    answer: str | None = None
    garbage: str | None = None
    exit: int | None = None
    sleep: float = 0.0


def read_script(path: Path) -> tuple[Entry, ...]:
    """The entries of a file. Raises NotFound, Invalid with the entry at fault."""
    from uwf_git.values.yaml12 import load, read_bytes

    value = load(read_bytes(path).decode("utf-8", "replace"), str(path)).data
    if not isinstance(value, list):
        raise Invalid(f"{path} is no list of replies", "as in: - {role: planner, output: {plan: short}}")
    return tuple(_entry(path, number, item) for number, item in enumerate(value, 1))


def _entry(path: Path, number: int, item: Any) -> Entry:
    where = f"{path}, entry {number}"
    if not isinstance(item, dict) or not isinstance(item.get("role"), str):
        raise Invalid(f"{where} has no role", "as in: - {role: planner, output: {plan: short}}")
    if unknown := [key for key in item if key not in KEYS]:
        raise Invalid(f"{where} has the unknown key {unknown[0]!r}", f"known are {', '.join(KEYS)}")
    given = [key for key in ("output", "answer", "garbage", "exit") if key in item]
    if len(given) > 1 or (not given and "sleep" not in item):
        raise Invalid(f"{where} needs one of output, answer, garbage, exit")
    for key, kind in (("answer", str), ("garbage", str), ("exit", int)):
        if key in item and (not isinstance(item[key], kind) or isinstance(item[key], bool)):
            raise Invalid(f"{where}: {key} is not {kind.__name__}")
    sleep = item.get("sleep", 0)
    if not isinstance(sleep, int | float) or isinstance(sleep, bool) or sleep < 0:
        raise Invalid(f"{where}: sleep is no number of seconds")
    return Entry(**{**item, "sleep": float(sleep)})
