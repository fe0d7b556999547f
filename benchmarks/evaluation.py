"""A suite whose trials are all known: what a run of it takes, and a check for CI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fleet import FIVE
from measure import fastest, process, run
from rows import Row, Size, cost
from stores import UWF, Lab

_SECONDS = 2.0  # for 500 cases


def known(folder: Path, size: Size) -> Iterator[Row]:
    """Cases of one step each, ten times a batch of them, that were tried and judged before."""
    lab = Lab(folder / "suite", FIVE.encode())
    count = 10 * size.batch
    workflow = folder / "one.yaml"
    workflow.write_text(_one())
    cases = folder / "cases.jsonl"
    judge = {"name": "said", "jsonata": "$length(output.text) > 0"}
    lines = (
        {"name": f"case-{number}", "prompt": f"Say {number}", "judges": [judge]} for number in range(count)
    )
    cases.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def uwf(*words: str) -> list[str]:
        return [UWF, "--root", str(lab.root), *words]

    suite = ("--workflow", str(workflow), "--agent", "uwf-rehearse", "-q")
    for words in (
        ("eval", "import", str(cases), "--to", "known", "--workflow", str(workflow)),
        ("eval", "run", "known", *suite),
        ("eval", "baseline", "set", "known"),
    ):
        run(uwf(*words), lab.environ)
    turns = (process(uwf("eval", each, "known", *suite), lab.environ) for each in ("run", "check"))
    for each, seconds in zip(("run", "check"), fastest(size.few_turns, *turns), strict=True):
        yield cost(f"uwf eval {each}, {count} cases that are known", seconds, _SECONDS)


def _one() -> str:
    """The workflow with its first role alone."""
    roles, _, _ = FIVE.partition("  two:\n")
    return f"{roles}graph:\n  $START: [{{role: one}}]\n  one: [{{role: $END}}]\n".replace(
        "name: five", "name: one"
    )
