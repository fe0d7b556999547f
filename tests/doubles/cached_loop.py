"""A loop of four roles, planned, fixed, tested and reviewed six times, and what a provider's cache of prefixes would
have had of it.

A token is four bytes of the request in the order in which providers read it: tools, system, messages. Two kinds of
cache are reckoned. One finds the longest beginning that an earlier request of the same model had, in whole blocks of
128 tokens, from 1,024 on. The other knows only the beginnings that requests have marked, and looks for them at most 20
content blocks before each mark; it too keeps none below 1,024 tokens.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from model_script import Asked, Call, Say, Script, Turn
from workflows import start_thread

from uwf_git.engine.step import step
from uwf_git.store.instance import Instance

ROUNDS = 6
ROLES = "planner", "fixer", "tester", "reviewer"
LEAST = 1024  # tokens that are kept at all
BLOCK = 128
LOOKED_BACK = 20
MARKS = "cache_control", "prompt_cache_breakpoint"

_WORDS = (
    "parser token buffer header offset retry cursor branch commit schema index lock reader writer path error "
    "test case limit queue worker thread state output record cache block range value field"
)


def words(seed: str, size: int) -> str:
    """Sentences of so many characters, the same for the same seed."""
    chance = random.Random(seed)
    text = ""
    while len(text) < size:
        sentence = " ".join(chance.choices(_WORDS.split(), k=chance.randint(6, 14)))
        text += f"{sentence.capitalize()} {chance.randrange(1000)}. "
    return text[:size].strip()


def _role(name: str) -> str:
    statuses = "approved, rejected" if name == "reviewer" else "done"
    return f"""\
  {name}:
    description: {words(name, 80)}
    systemPrompt: |
      {words(f"{name} works", 900)}
    outputSchema:
      type: object
      properties:
        status: {{enum: [{statuses}]}}
        summary: {{type: string, description: {words(f"{name} says", 60)}}}
        files: {{type: array, items: {{type: string}}}}
      required: [status, summary]
      additionalProperties: false
"""


WORKFLOW = (
    "name: mend\ndescription: Plan, fix, test, review.\nroles:\n"
    + "".join(map(_role, ROLES))
    + """\
graph:
  $START: {_: planner}
  planner: {done: {role: fixer, prompt: "Carry out the plan: {{ summary }}"}}
  fixer: {done: tester}
  tester: {done: {role: reviewer, prompt: "The tests say: {{ summary }}"}}
  reviewer:
    rejected: {role: planner, prompt: "The review asks for changes: {{ summary }}"}
    approved: $END
"""
)
TASK = words("task", 2000)
_TOOLS = {
    "planner": ["src/reader.py", "src/writer.py", "notes.md"],
    "fixer": ["src/reader.py"],
    "tester": ["tests.log"],
    "reviewer": ["src/reader.py", "tests.log"],
}


class _Model:
    """Answers as the role that a request is for: reads some files, if it has tools, and then answers."""

    def __init__(self) -> None:
        self._done = 0

    def __call__(self, asked: Asked) -> Turn:
        number, role = divmod(self._done, len(ROLES))
        name = ROLES[role]
        files = _TOOLS[name] if asked.tools else []
        read = [call for call in asked.calls if call.id.startswith(f"r{number}")]
        if len(read) < len(files):
            return Call(
                "read_file",
                {"path": files[len(read)]},
                words(f"{name} looks {number} {len(read)}", 150),
                id=f"r{number}{name}{len(read)}",
            )
        self._done += 1
        last = number == ROUNDS - 1
        status = ("approved" if last else "rejected") if name == "reviewer" else "done"
        summary, report = words(f"{name} {number}", 200), words(f"{name} reports {number}", 1500)
        return Say(f"---\nstatus: {status}\nsummary: {summary}\nfiles: [src/reader.py]\n---\n\n{report}\n")


def script() -> Script:
    """The model's part of a loop."""
    return _Model()


def files(folder: Path) -> None:
    """Write the files that the model reads."""
    for name in {file for names in _TOOLS.values() for file in names}:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{words(f'{name} {line}', 70)}\n" for line in range(40)))


def run(instance: Instance, agent: str, folder: Path, requests: Sequence[Asked]) -> list[tuple[int, Asked]]:
    """Run a loop; return the requests, to which the server adds, with their rounds from 1."""
    thread = start_thread(instance, WORKFLOW, TASK)
    rounds: list[tuple[int, Asked]] = []
    for number in range(ROUNDS * len(ROLES)):
        seen = len(requests)
        assert step(instance, thread, agent, folder).done == (number == ROUNDS * len(ROLES) - 1)
        rounds += [(number // len(ROLES) + 1, asked) for asked in requests[seen:]]
    return rounds


class Block(NamedTuple):
    """A content block of a request, as text, and whether it is marked."""

    text: str
    marked: bool


def blocks_of(body: Mapping[str, Any]) -> list[Block]:
    """Return a request's blocks in the order in which providers read them."""
    blocks = [Block(_text(body.get("tools", [])), False)]
    for message in body["messages"]:
        content = message.get("content")
        head = _text({key: value for key, value in message.items() if key != "content"})
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        for number, part in enumerate(parts):
            marked = any(mark in part for mark in MARKS)
            blocks.append(Block((head if number == 0 else "") + json.dumps(part["text"])[1:-1], marked))
    return blocks


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


Cached = Callable[[list[str], list[Block]], int]
"""Tokens of a request that a cache has, after the requests of the same model that came before. What the cache keeps of
it is added to the list."""


def by_prefix(kept: list[str], blocks: list[Block]) -> int:
    """A cache of every beginning, in whole blocks."""
    text = "".join(block.text for block in blocks)
    common = max((_common(text, other) for other in kept), default=0) // 4
    kept.append(text)
    common -= common % BLOCK
    return common if common >= LEAST else 0


def by_marks(kept: list[str], blocks: list[Block]) -> int:
    """A cache of the beginnings that are marked."""
    marks = [number for number, block in enumerate(blocks) if block.marked]
    assert len(marks) <= 4
    whole = list(accumulate(block.text for block in blocks))
    places = {place for mark in marks for place in range(max(0, mark - LOOKED_BACK), mark + 1)}
    cached = max((len(whole[place]) // 4 for place in places if whole[place] in kept), default=0)
    kept += [whole[mark] for mark in marks if len(whole[mark]) // 4 >= LEAST]
    return cached


def share(requests: Sequence[tuple[int, Asked]], cached: Cached) -> float:
    """Return the cached share of the input tokens of all rounds but the first."""
    kept: dict[str, list[str]] = {}
    read = whole = 0
    for number, asked in requests:
        blocks = blocks_of(asked.body)
        tokens = cached(kept.setdefault(asked.model, []), blocks)
        if number > 1:
            read += tokens
            whole += sum(len(block.text) for block in blocks) // 4
    return read / whole


def _common(one: str, other: str) -> int:
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low
