"""Random histories, run after run, until the time is over: on one store and on three with a remote between them, with
processes killed and without. What breaks a claim is shrunk, printed with the command that does it again, and ends it.

    python tests/histories/soak.py --seconds 1800
    python tests/histories/soak.py --replay history.jsonl            in turn
    python tests/histories/soak.py --replay history.jsonl --at-once  each worker's in turn, all at once
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "doubles")]

from claims import Violation
from runs import History, Plan, again, load, run
from shrinking import shrunk
from world import words

KINDS = (
    Plan(machines=1, workers=4),
    Plan(machines=3, workers=2),
    Plan(machines=1, workers=4, kills=0.15),
    Plan(machines=3, workers=2, kills=0.1),
)
KEPT = Path("history.jsonl")


def main() -> None:
    """Exits with 1 where a claim is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1800, help="how long in all (1800)")
    parser.add_argument("--each", type=float, default=60, help="how long one history at most (60)")
    parser.add_argument("--seed", type=int, default=None, help="what the choices follow from")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="do these operations again instead")
    parser.add_argument("--at-once", action="store_true", help="not in turn")
    parser.add_argument(
        "--keep", type=Path, default=KEPT, metavar="FILE", help=f"where a failure goes ({KEPT})"
    )
    options = parser.parse_args()
    if options.replay:
        plan, operations = load(options.replay)
        history = again(plan, operations, options.at_once)
        print(_all_of(history))
        sys.exit(1 if history.violations() else 0)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    began, done, number = time.monotonic(), collections.Counter[str](), 0
    while (left := options.seconds - (time.monotonic() - began)) > 0:
        plan = KINDS[number % len(KINDS)]._replace(seed=seed + number, seconds=min(options.each, left))
        history = run(plan)
        if found := history.violations():
            print(
                told(history, found), "what is left of it when it is made small follows", sep="\n", flush=True
            )
            print(failure(history, found, options.keep))
            sys.exit(1)
        number += 1
        done.update("killed" if event.code < 0 else event.name for event in history.events)
        print(
            f"{time.monotonic() - began:6.0f} s  {_of(plan)}: {len(history.events)} operations, sound",
            flush=True,
        )
    counted = ", ".join(f"{count} {name}" for name, count in done.most_common())
    print(f"{number} histories, {done.total()} operations, 0 violations; seed {seed}: {counted}")


def told(history: History, found: list[Violation]) -> str:
    """What is wrong with a history."""
    return "\n".join([f"{_of(history.plan)}: {len(found)} violations", *(f"  {each}" for each in found[:20])])


def failure(history: History, found: list[Violation], keep: Path, seconds: float = 600) -> str:
    """What is wrong with a history, the smallest that is wrong in the same way, and how it is done again. Writes the
    file that does it."""
    lines = [told(history, found)]
    history.save(keep)
    small = shrunk(history, found[0], seconds)
    if small is None:
        return "\n".join([*lines, "it did not happen again; all that was done:", str(keep)])
    small.history.save(keep)
    lines += ["", "the smallest that does the same:", *_calls(small.history), f"  {small.violation}", ""]
    how = " --at-once" if small.at_once else ""
    return "\n".join([*lines, "again with:", f"  python tests/histories/soak.py --replay {keep}{how}"])


def _calls(history: History) -> list[str]:
    return [
        f"  {event.operation.number:4} worker {event.operation.worker}, machine {event.machine}: {words(event.call)}"
        f"  -> {event.code}"
        for event in history.events
        if event.operation.worker >= 0
    ]


def _all_of(history: History) -> str:
    found = history.violations()
    return "\n".join([*_calls(history), *(f"  {each}" for each in found), f"{len(found)} violations"])


def _of(plan: Plan) -> str:
    stores = "one store" if plan.machines == 1 else f"{plan.machines} stores and a remote"
    kills = f", {plan.kills:.0%} killed" if plan.kills else ""
    return f"seed {plan.seed}, {stores}, {plan.machines * plan.workers} workers{kills}"


if __name__ == "__main__":
    main()
