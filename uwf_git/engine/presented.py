"""What a person sees before they answer: one value, which the terminal, pages, MCP, hooks and notifications render."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import RequirementUnmet, UwfError
from uwf_git.base.text import cut
from uwf_git.engine.calls import asking_calls
from uwf_git.engine.human_turn import human_turn
from uwf_git.engine.status import at_rest, outlook
from uwf_git.engine.summary import summary
from uwf_git.format.approvals import code_before
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import parse_start, remark_in
from uwf_git.format.types import USER, role_name
from uwf_git.store.history import Head, History, PastStep
from uwf_git.store.instance import Instance
from uwf_git.store.pages import answer_of, report_of
from uwf_git.workspaces.changes import Changes, changes, projects_with, thread_code

if TYPE_CHECKING:
    from uwf_git.format.kinds import Revision
    from uwf_git.workspaces.moved import MovedBranch

_LOOK_BACK = 50  # steps in which verdicts and remarks are looked for
_ROOM = 20_000  # characters of each part in JSON
_SHOWN = 4_000  # and in text
_LARGEST = 8 << 20  # bytes of an output or answer that is read
_FILES = 200


class Verdict(NamedTuple):
    """The newest output of a role in a few words."""

    number: int
    role: str
    verdict: str


class LastOutput(NamedTuple):
    """The output that a person judges: its JSON, the agent's text besides, and its answer as it was. With a `problem`
    it is too large to read."""

    number: int
    role: str
    output: Any = None
    report: str = ""
    answer: str = ""
    problem: str = ""


class JudgedCode:
    """The code that a person judges. git reads it when it is asked for."""

    def __init__(self, instance: Instance, thread: ThreadId, revision: Revision) -> None:
        self._instance = instance
        self._thread = thread
        self.revision = revision

    @cached_property
    def changes(self) -> Changes:
        return changes(self._instance, self._thread, self.revision, with_patch=True)

    @cached_property
    def moved(self) -> MovedBranch | None:
        """The branch into which it would be merged, if that has moved on."""
        from uwf_git.workspaces.moved import moved_branch

        with suppress(UwfError):
            for project in projects_with(self._instance, self._thread, self.revision):
                return moved_branch(self._instance, self._thread, project, self.revision)
        return None

    @property
    def is_unseen(self) -> bool:
        """Whether there are changes, and not on this machine."""
        return not self.changes.here and self.revision.commit != self.revision.base

    @property
    def warning(self) -> str:
        """A line on the branch that conflicts, "" if none does."""
        return self.moved.told if self.moved is not None else ""


class Presented(NamedTuple):
    """What is shown above the choices of a person: `last` is None at the start, `code` None without any."""

    task: str
    last: LastOutput | None
    verdicts: tuple[Verdict, ...]
    code: JudgedCode | None
    asked: str
    remarks: tuple[str, ...]
    choices: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"task": cut(self.task, _ROOM), "last": None, "verdicts": []}
        if (last := self.last) is not None:
            value["last"] = {"number": last.number, "role": last.role, "output": _bounded(last.output)}
            value["last"]["answer"] = cut(last.answer, _ROOM) if not last.problem else last.problem
        value["verdicts"] = [each._asdict() for each in self.verdicts]
        if (code := self.code) is not None:
            value["code"] = {
                "commit": code.revision.commit,
                "base": code.revision.base,
                "here": code.changes.here,
                "files": [each.as_json() for each in code.changes.files[:_FILES]],
                "patch": cut(code.changes.patch, _ROOM),
                "moved": code.moved.as_json() if code.moved is not None else None,
                "warning": code.warning,
            }
        return {**value, "text": self.text()}

    def text(self) -> str:
        """Return it as plain text, each part cut."""
        return "\n\n".join(self.parts())

    def parts(self) -> Iterator[str]:
        """Yield the parts of `text`."""
        yield f"The task:\n{cut(self.task.strip(), _SHOWN)}"
        if len(self.verdicts) > 1:
            lines = (f"{each.number:4d}  {role_name(each.role)}: {each.verdict}" for each in self.verdicts)
            yield "The verdicts so far:\n" + "\n".join(lines)
        if (last := self.last) is not None:
            said = last.problem or cut(last.answer.strip(), _SHOWN)
            yield f"Last, {role_name(last.role)} said:\n{said}"
        if (code := self.code) is not None:
            if code.changes.absence:
                yield f"The code: {code.changes.absence}"
            elif patch := code.changes.patch.strip():
                yield f"The changes so far:\n{cut(patch, _SHOWN)}"
            if code.warning:
                yield f"Beware: {code.warning}."
        if self.asked.strip():
            yield f"Your instruction:\n{self.asked.strip()}"
        for remark in self.remarks:
            yield f"The user remarks:\n{cut(remark.strip(), _SHOWN)}"


def presented(instance: Instance, head: Head, asked: str = "", choices: tuple[str, ...] = ()) -> Presented:
    """Return what is shown at a head to a person who is `asked` something. Read errors are raised."""
    store, thread = instance.store, head.thread
    assert head.row.start is not None
    task = parse_start(store.get(head.row.start).payload).prompt
    number, last, remarks = head.row.number, None, []
    verdicts: dict[str, Verdict] = {}
    for place, past in enumerate(islice(instance.threads.past(head.node), _LOOK_BACK)):
        role = past.step.role
        if _size(instance, past.step.output) > _LARGEST:
            here = LastOutput(
                number - place, role, problem=f"it is too large: uwf thread step-details {past.hash}"
            )
        else:
            node = store.get(past.step.output)
            output = node.payload
            remark = remark_in(role, output)
            if remark is not None:
                if last is None:
                    remarks.append(remark)
                continue
            if role != USER and role not in verdicts:
                came = summary(instance, node.type, output)
                if came.decides:
                    verdicts[role] = Verdict(number - place, role, came.text)
            here = LastOutput(number - place, role, output)
        if last is None:
            last = _answered(instance, past, here)
    code = thread_code(instance, head.node)
    return Presented(
        task,
        last,
        tuple(reversed(verdicts.values())),
        JudgedCode(instance, thread, code) if code is not None else None,
        asked,
        tuple(reversed(remarks)),
        choices,
    )


def presented_at(instance: Instance, head: Head) -> Presented | None:
    """Return what is shown to the person for whom a thread waits: one who plays its next role, or who was asked a
    question, maybe by a call of its code. None if it waits for nobody."""
    if head.archive is not None:
        return None
    found = outlook(instance, head)
    if (turn := human_turn(instance, head, found=found)) is not None:
        return presented(instance, head, turn.instruction, turn.options)
    if head.row.asks:
        if at_rest(instance, head):
            return None
        return presented(instance, head, found.question or "", found.options)
    calls = asking_calls(instance, head)
    return presented_at(instance, calls[0]) if calls else None


def raise_if_unseen(instance: Instance, history: History, role: str) -> None:
    """Raise RequirementUnmet if a person would judge code that is not on this machine."""
    thread, code = history.thread, code_before(history.steps, instance.store.get)
    if code is None or code.commit == code.base or any(True for _ in projects_with(instance, thread, code)):
        return
    raise RequirementUnmet(
        f"{role} of thread {thread} judges code that cannot be seen here: {Changes(code, False).absence}",
        "fetch it, or answer in a clone that has it; --unseen answers all the same",
    )


def _size(instance: Instance, node: Hash) -> int:
    return instance.store.repository.size(instance.store.blob_of(node))


def _answered(instance: Instance, past: PastStep, last: LastOutput) -> LastOutput:
    if last.problem or _size(instance, past.step.detail) > _LARGEST:
        return last
    detail = instance.store.get(past.step.detail)
    answer = answer_of(last.output, detail.type, detail.payload)
    return last._replace(answer=answer, report=report_of(last.output, detail))


def _bounded(output: Any) -> Any:
    text = json.dumps(output, ensure_ascii=False)
    return output if len(text) <= _ROOM else cut(text, _ROOM)
