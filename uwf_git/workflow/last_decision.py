"""Whether the work of an ended thread was accepted, as its graph tells.

Words don't tell it: `drop` and `ship` are values of a schema. The graph does, if the last decision over the work had
one value that ends the thread, and each other value leads to more work or to `$FAIL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from uwf_git.base.errors import UwfError
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import HUMAN, Role, Start, StepContext, Workflow
from uwf_git.format.shape import choices, types, variants
from uwf_git.format.types import FAIL, USER
from uwf_git.workflow.moderator import choose, reachable

_MOST_ALTERNATIVES = 64


def is_accepted(
    workflow: Workflow,
    start: Start,
    steps: Sequence[StepContext],
    changing: Sequence[int],
    schema_of: Callable[[Hash], Any],
) -> bool:
    """Return whether nobody can have rejected the work of a completed thread. `changing` are the indexes of the steps
    that changed code. The newest decision of a person after the first of them counts, else that of an agent. False if
    the graph doesn't tell: code decides, a person wrote free text, or another value would have ended it too."""
    if workflow.code is not None:
        return False
    first, last = (changing[0], changing[-1]) if changing else (0, -1)
    decided: list[tuple[bool, bool]] = []  # by a person, and accepted
    for place in range(first, len(steps)):
        step = steps[place]
        role = workflow.roles.get(step.role)
        if step.role == USER and step.remark is None and place > last:
            decided.append((True, False))  # free text: only what a person decides after it counts
        if role is None:
            continue
        is_persons = role.human or step.agent == HUMAN
        offers = _offers(schema_of(role.schema))
        if is_persons and not offers:
            decided.append((True, False))
        elif offers or len(workflow.graph.get(step.role, ())) > 1:
            decided.append((is_persons, _is_only_end(workflow, start, steps[: place + 1], role, offers)))
    persons = [accepted for by_person, accepted in decided if by_person]
    return (persons or [accepted for _, accepted in decided] or [True])[-1]


def _offers(schema: Any) -> Mapping[str, list[Any]]:
    """Return the values among which an output's fields choose, of fields with several."""
    offers: dict[str, list[Any]] = {}
    for variant in variants(schema):
        for field in variant.fields:
            is_boolean = types(field.schema) == ("boolean",)
            values = (True, False) if is_boolean else choices(schema, field.schema) or ()
            offers.setdefault(field.name, []).extend(values)
    unique = {
        name: [value for place, value in enumerate(values) if value not in values[:place]]
        for name, values in offers.items()
    }
    return {name: values for name, values in unique.items() if len(values) > 1}


def _is_only_end(
    workflow: Workflow,
    start: Start,
    steps: Sequence[StepContext],
    role: Role,
    offers: Mapping[str, list[Any]],
) -> bool:
    """Return whether each alternative to the last step leads back to its role, or to `$FAIL`."""
    graph = {
        source: [end for edge in edges for end in edge.targets] for source, edges in workflow.graph.items()
    }
    other = list(islice(_alternatives(workflow, start, steps, offers), _MOST_ALTERNATIVES + 1))
    return len(other) <= _MOST_ALTERNATIVES and all(
        target == FAIL or role.name in reachable(graph, target) for target in other
    )


def _alternatives(
    workflow: Workflow, start: Start, steps: Sequence[StepContext], offers: Mapping[str, list[Any]]
) -> Iterator[str]:
    """Yield where another value of one field leads; of an output without choices, where the other edges lead."""
    last = steps[-1]
    if not offers or not isinstance(last.output, Mapping):
        taken = choose(workflow, start, steps).position
        for position, edge in enumerate(workflow.graph.get(last.role, ())):
            if position != taken:
                yield from edge.targets
        return
    for name, values in offers.items():
        for value in values:
            if value == last.output.get(name):
                continue
            output = {**last.output, name: value}
            try:
                edge = choose(workflow, start, [*steps[:-1], last._replace(output=output)]).edge
            except UwfError:  # it leads nowhere
                continue
            yield from edge.targets
