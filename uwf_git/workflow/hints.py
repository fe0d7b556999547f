"""What the outputs of a role are compared with: made-up outputs that know it reach every edge."""

from __future__ import annotations

import re
from typing import NamedTuple

from uwf_git.values.kinds import Workflow

_MOST = 12
_TEXT_IN_EXPRESSION = re.compile(r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'""")
_NUMBER_IN_EXPRESSION = re.compile(r"(?<![\w.$])\d{1,15}(?:\.\d{1,15})?(?![\w.])")


class Hints(NamedTuple):
    """What a role's outputs are compared with: the statuses of its edges, and the literals of the
    conditions of the whole workflow."""

    statuses: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    numbers: tuple[int | float, ...] = ()


NO_HINTS = Hints()


def hints_of(workflow: Workflow, role: str) -> Hints:
    """The hints for a role of a workflow."""
    texts: list[str] = []
    numbers: list[float] = []
    for condition in workflow.conditions.values():
        for one, other in _TEXT_IN_EXPRESSION.findall(condition.expression):
            texts.append(one or other)
        rest = _TEXT_IN_EXPRESSION.sub('""', condition.expression)
        numbers += [float(each) for each in _NUMBER_IN_EXPRESSION.findall(rest)]
    known = {"", *workflow.roles}
    return Hints(
        tuple(edge.status for edge in workflow.graph.get(role, ()) if edge.status is not None),
        tuple(dict.fromkeys(text for text in texts if text not in known))[:_MOST],
        tuple(dict.fromkeys(int(each) if each.is_integer() else each for each in numbers))[:_MOST],
    )
