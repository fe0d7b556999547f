"""Checking a thread's README.md and its lists of full hundreds against its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from uwf_git.format.ids import Hash
from uwf_git.format.kinds import StepContext
from uwf_git.format.types import END, FAIL
from uwf_git.store import pages
from uwf_git.verify.findings import Report
from uwf_git.verify.nodes import row_of
from uwf_git.verify.objects import FILE, Objects
from uwf_git.workflow.moderator import AwaitingAnswer, WorkflowEnded, next_role

if TYPE_CHECKING:
    from uwf_git.verify.verified import Known, Record

_MOST_ROLES = 50  # that a page may name which the workflow has no word on


class ThreadPages:
    """Checks a thread's pages besides those of its steps."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._lines: dict[Hash, str] = {}
        self._describe: tuple[bytes, bytes] = b"", b""  # the commit whose page was made last, the lines on it

    def added(self, before: Record) -> Sequence[Sequence[str]]:
        """Return what a step changes besides its folder: at the root, and below `steps/`."""
        paths = map(pages.past_page_path, _full(before.row.number + 1))
        return ("README.md",), [path.removeprefix("steps/") for path in paths]

    def of_thread(self, record: Record) -> Iterator[Callable[[], bytes]]:
        """Return the valid pages of a thread after a step."""
        self._known.past.go_to(record, self._known.records)
        lines = pages.listed(self._lines_of(record.row.number // pages.HUNDRED))
        return self._expected(record, lines)

    def check(self, record: Record, before: Record, report: Report) -> None:
        """Report pages that don't match the steps."""
        known = self._known
        known.past.go_to(record, known.records)
        top = files_of(known.objects, record.tree)
        known.page(top, "", report, *self._expected(record, self._listed(record, before)))
        for hundred in _full(record.row.number):
            steps = row_of(known.objects, record.tree, "steps")
            files = files_of(known.objects, steps[2]) if steps is not None else {}
            folder, _, name = pages.past_page_path(hundred).partition("/")
            past = pages.past_page(hundred, self._lines_of(hundred))
            known.page(files, f"{folder}/", report, partial(bytes, past), name=name)

    def _expected(self, record: Record, lines: bytes) -> Iterator[Callable[[], bytes]]:
        """Return valid pages after a step. If the next role was unknown here or then, any role is valid."""
        decision = self._known.decision(record)
        then: list[str | None]
        if isinstance(decision, str):
            roles = self._known.definition(record).workflow.roles
            then = [None, END, FAIL, *islice(roles, _MOST_ROLES)]
        elif isinstance(decision, AwaitingAnswer):
            then = [None]
        elif isinstance(decision, WorkflowEnded) and decision.failed:
            then = [FAIL, None]
        else:
            then = [next_role(decision), None]
        row, step = record.row, record.step
        assert step is not None
        for role in then:
            standing = pages.PageState(row.title or "", row.name or "", row.number, row.rehearsed, step, role)
            yield partial(_page, standing, lines)

    def _listed(self, record: Record, before: Record) -> bytes:
        number, step = record.row.number, record.step
        assert step is not None
        if number % pages.HUNDRED == 0 or self._describe[0] == before.row.oid:
            past = self._describe[1] if number % pages.HUNDRED else b""
            lines = past + pages.listed([self._line(number, step)])
        else:
            lines = pages.listed(self._lines_of(number // pages.HUNDRED))
        self._describe = record.row.oid, lines
        return lines

    def _lines_of(self, hundred: int) -> list[str]:
        steps, numbers = self._known.past.steps, pages.numbers_in(hundred)
        numbered = zip(numbers, steps[numbers.start - 1 : numbers.stop - 1], strict=False)
        known = self._lines  # almost all were reported after the previous step
        return [known.get(step.hash) or self._line(number, step) for number, step in numbered]

    def _line(self, number: int, step: StepContext) -> str:
        line = self._lines[step.hash] = pages.line_of(number, step)
        return line


def _full(number: int) -> Sequence[int]:
    """Return the hundred of steps that is full before a step, which has it listed on a page of its own."""
    return () if number % pages.HUNDRED else (number // pages.HUNDRED - 1,)


def _page(standing: pages.PageState, lines: bytes) -> bytes:
    return pages.top_of(standing) + lines


def files_of(objects: Objects, tree: bytes) -> dict[str, bytes]:
    """Return the files directly in a folder, by name."""
    return {name.decode("utf-8", "replace"): oid for mode, name, oid in objects.tree(tree) if mode == FILE}
