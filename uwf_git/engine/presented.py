"""What a person sees before they answer: one value, which the terminal, pages, MCP, hooks and notifications render."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import RequirementUnmet, UwfError
from uwf_git.base.text import cut
from uwf_git.engine.conversation import at_rest
from uwf_git.engine.human_turn import HumanTurn, command_for, human_turn
from uwf_git.engine.kit.form import fields_of
from uwf_git.engine.next_turn import outlook
from uwf_git.engine.outcome import summary
from uwf_git.engine.thread_state import asking_below
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import remark_in
from uwf_git.format.types import USER, role_name
from uwf_git.store.history import Head, History, PastStep, Position
from uwf_git.store.instance import Instance
from uwf_git.store.pages import answer_of, report_of
from uwf_git.workspaces.changes import (
    Changes,
    absent,
    changes,
    clones_of,
    code_before,
    fetch_code,
    projects_with,
    thread_code,
)
from uwf_git.workspaces.clones import clones, remote_named
from uwf_git.workspaces.project import way_here

if TYPE_CHECKING:
    from uwf_git.format.kinds import Revision
    from uwf_git.workspaces.moved import MovedBranch
    from uwf_git.workspaces.step_workspace import StepWorkspace, WorktreeChanges
    from uwf_git.workspaces.whereabouts import Whereabouts

_LOOK_BACK = 50  # steps in which verdicts and remarks are looked for
_ROOM = 20_000  # characters of each part in JSON
_SHOWN = 4_000  # and in text
_LARGEST = 8 << 20  # bytes of an output or answer that is read
_FILES = 200
_warned: set[Hash] = set()  # heads whose warnings this process has read


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
    """The code that a person judges. git reads it when it is asked for. `worktree` is the thread's, in which it may
    have changed since."""

    def __init__(
        self,
        instance: Instance,
        thread: ThreadId,
        revision: Revision,
        worktree: StepWorkspace | None = None,
    ) -> None:
        self._instance = instance
        self._worktree = worktree
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

    @cached_property
    def taken_back(self) -> str:
        """A clause on commits that it began with and takes back, "" without any."""
        from uwf_git.workspaces.moved import taken_back

        with suppress(UwfError):
            for project in projects_with(self._instance, self._thread, self.revision):
                return taken_back(project, self.revision)
        return ""

    @property
    def is_unseen(self) -> bool:
        """Whether there are changes, and not on this machine."""
        return _is_unseen(self._instance, self._thread, self.revision)

    @property
    def is_out_of_reach(self) -> bool:
        """Whether it is unseen, and an answer does not fetch it either."""
        return _is_out_of_reach(self._instance, self._thread, self.revision)

    def fetch(self) -> bool:
        """Fetch it from its project's remote; return whether that has it."""
        return fetch_code(self._instance, self._thread, self.revision)

    @cached_property
    def since(self) -> WorktreeChanges | None:
        """The changes by hand in the thread's worktree, which a person's step takes with it. None too if it cannot be
        read: an answer leaves it as it is then."""
        if self._worktree is not None:
            with suppress(UwfError, OSError):
                return self._worktree.since_last_step()
        return None

    @cached_property
    def where(self) -> Whereabouts | None:
        """Where it is on this machine, None if it isn't."""
        from uwf_git.workspaces.whereabouts import whereabouts

        with suppress(UwfError):
            return whereabouts(self._instance, self._thread, self.revision)
        return None

    @cached_property
    def ignored(self) -> str:
        """A line on results in the thread's worktree that git ignores, and no step keeps; "" if there are none."""
        if self._worktree is not None:
            with suppress(UwfError, OSError):
                return self._worktree.ignored()
        return ""

    @property
    def state(self) -> str:
        """The commit or tree that an answer is about: of the worktree if that has changed, else of the last step."""
        return self.since.state if self.since is not None else self.revision.commit

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line on each: changes by hand in the worktree, a branch that is elsewhere, results that git ignores,
        commits that are taken back, a merge that will conflict."""
        lines = []
        if self.since is not None:
            lines.append(f"worktree {self.since.folder} has changed since commit {self.revision.commit[:12]}")
        if self.where is not None and self.where.has_moved:
            lines.append(
                f"{self.where.warning}; of the code judged here: git merge {self.revision.commit[:12]}"
            )
        if self.ignored:
            lines.append(self.ignored)
        if self.taken_back:
            lines.append(f"of commit {self.revision.commit[:12]}: {self.taken_back}")
        return tuple(lines if not self.conflict else (*lines, self.conflict))

    @property
    def conflict(self) -> str:
        """A line on the branch with which it conflicts, "" if there is none."""
        return self.moved.told if self.moved is not None else ""

    @property
    def warning(self) -> str:
        """The `warnings` in a line, "" without any."""
        return "; ".join(self.warnings)


class Presented(NamedTuple):
    """What is shown above the choices of a person: `last` is None at the start, `code` None without any. `unshown` is
    a line on changes that are not shown, "" if they are."""

    task: str
    last: LastOutput | None
    verdicts: tuple[Verdict, ...]
    code: JudgedCode | None
    asked: str
    remarks: tuple[str, ...]
    choices: tuple[str, ...]
    unshown: str = ""

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"task": cut(self.task, _ROOM), "last": None, "verdicts": []}
        if (last := self.last) is not None:
            value["last"] = {"number": last.number, "role": last.role, "output": _bounded(last.output)}
            value["last"]["answer"] = cut(last.answer, _ROOM) if not last.problem else last.problem
        value["verdicts"] = [verdict._asdict() for verdict in self.verdicts]
        if (code := self.code) is not None:
            value["code"] = {
                "commit": code.revision.commit,
                "base": code.revision.base,
                "here": code.changes.here,
                "files": [file.as_json() for file in code.changes.files[:_FILES]],
                "patch": cut(code.changes.patch, _ROOM),
                "moved": code.moved.as_json() if code.moved is not None else None,
                "warning": code.warning,
                "warnings": list(code.warnings),
                "state": code.state,
                "since": cut(code.since.patch, _ROOM) if code.since is not None else None,
            }
        if self.unshown:
            value["unshown"] = self.unshown
        return {**value, "text": self.text()}

    def text(self) -> str:
        """Return it as plain text, each part cut."""
        return "\n\n".join(self.parts())

    def parts(self) -> Iterator[str]:
        """Yield the parts of `text`."""
        yield f"The task:\n{cut(self.task.strip(), _SHOWN)}"
        if len(self.verdicts) > 1:
            lines = (
                f"{verdict.number:4d}  {role_name(verdict.role)}: {verdict.verdict}"
                for verdict in self.verdicts
            )
            yield "The verdicts so far:\n" + "\n".join(lines)
        if (last := self.last) is not None:
            words = last.problem or cut(last.answer.strip(), _SHOWN)
            yield f"Last, {role_name(last.role)} said:\n{words}"
        if (code := self.code) is not None:
            if code.changes.absence:
                yield f"The code: {code.changes.absence}"
            elif patch := code.changes.patch.strip():
                yield f"The changes so far:\n{cut(patch, _SHOWN)}"
            if code.since is not None:
                yield f"Changes by hand since then:\n{cut(code.since.patch, _SHOWN)}"
            if code.warning:
                yield f"Beware: {code.warning}."
        if self.unshown:
            yield f"The changes: {self.unshown}"
        if self.asked.strip():
            yield f"Your instruction:\n{self.asked.strip()}"
        for remark in self.remarks:
            yield f"The user remarks:\n{cut(remark.strip(), _SHOWN)}"


def presented(instance: Instance, head: Head, asked: str = "", choices: tuple[str, ...] = ()) -> Presented:
    """Return what is shown at a head to a person who is `asked` something. Read errors are raised."""
    store = instance.store
    assert head.row.start is not None
    task = store.start(head.row.start).prompt
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
    code = judged_code(instance, head)
    return Presented(
        task,
        last,
        tuple(reversed(verdicts.values())),
        code,
        asked,
        tuple(reversed(remarks)),
        choices,
        unshown_changes(instance, head) if code is None and number else "",
    )


def presented_at(instance: Instance, head: Head) -> Presented | None:
    """Return what is shown to the person for whom a thread waits: one who plays its next role, or who was asked a
    question, maybe by a call of its code. None if it waits for nobody."""
    if head.archive is not None:
        return None
    next_turn = outlook(instance, head)
    if (turn := human_turn(instance, head, found=next_turn)) is not None:
        return presented(instance, head, turn.instruction, turn.options)
    if head.row.asks:
        if at_rest(instance, head):
            return None
        return presented(instance, head, next_turn.question or "", next_turn.options)
    calls = asking_below(instance, head)
    return presented_at(instance, calls[0]) if calls else None


def raise_if_unseen(instance: Instance, history: History, role: str) -> None:
    """Raise RequirementUnmet if a person would judge code that is not on this machine, also if its project's remote has
    it: then it is fetched, to be looked at."""
    thread, code = history.thread, code_before(history.steps, instance.store.get)
    if code is None or not _is_unseen(instance, thread, code):
        return
    if fetch_code(instance, thread, code):
        raise RequirementUnmet(
            f"{role} of thread {thread} judges code that has come here only now, from its project's remote",
            f"look at it: uwf thread show {thread}; then answer",
        )
    gone = absent(instance, code)
    if gone.lost:
        way = f"see: uwf verify {thread}"
    else:
        remote = remote_named(code.remote, clones(instance, [thread]))
        way = f"{way_here(thread, code.commit, remote)}, and answer there"
    raise RequirementUnmet(
        f"{role} of thread {thread} judges code that cannot be seen here: {gone.absence}",
        f"{way}; --unseen answers all the same",
    )


def command_at(instance: Instance, head: Head, turn: HumanTurn) -> str:
    """Return the command that answers a person's turn at a head, on this machine. Where a clone of the project is, it
    fetches code that is not here yet."""
    code = thread_code(instance, head.node)
    unseen = code is not None and _is_out_of_reach(instance, head.thread, code)
    return f"{turn.command(head.thread)}{' --unseen' if unseen else ''}"


def _is_unseen(instance: Instance, thread: ThreadId, code: Revision) -> bool:
    """Return whether there are changes, and not on this machine."""
    return code.commit != code.base and not any(True for _ in projects_with(instance, thread, code))


def _is_out_of_reach(instance: Instance, thread: ThreadId, code: Revision) -> bool:
    return _is_unseen(instance, thread, code) and not any(True for _ in clones_of(instance, thread, code))


def judged_code(instance: Instance, head: Head) -> JudgedCode | None:
    """Return the code that a person judges at a head, None if the thread has none."""
    code = thread_code(instance, head.node)
    return JudgedCode(instance, head.thread, code, _worktree(instance, head)) if code is not None else None


def raise_if_changed(
    instance: Instance, at: Position, role: str, code: str = "", is_gate: bool = False
) -> None:
    """Raise RequirementUnmet unless the code that a person's answer is about is still as it was shown: as `code`, a
    commit or tree, says, else as the last step left it. A gate `is_gate` takes no changes by hand
    along, so they are none of its answer's then."""
    if (judged := judged_code(instance, at.head)) is None:
        return
    thread, last, since, state = at.head.thread, judged.revision, judged.since, judged.state
    if code and code.lower() != state:
        is_beginning = state.startswith(code.lower())
        other = "of which --code has the beginning alone" if is_beginning else f"and not {code[:12]}"
        raise RequirementUnmet(
            f"role {role} of thread {thread} judges code {state} now, {other}",
            f"see it again: uwf thread show {thread}",
        )
    if since is not None and not code and not is_gate:
        fields = fields_of(instance.store.schema(at.history.workflow.roles[role].schema).payload)
        raise RequirementUnmet(
            f"worktree {since.folder} has changed since commit {last.commit[:12]}, which {role} of thread {thread} was"
            " shown",
            f"see: git -C {shlex.quote(since.folder)} diff {last.commit[:12]} {state[:12]}; with those changes:"
            f" {command_for(thread, fields)} --code {state}",
        )


def shown_code(instance: Instance, head: Head) -> str:
    """Return the commit or tree that an answer at a head is about, "" if there is no code."""
    return "" if (code := judged_code(instance, head)) is None else code.state


def warnings_at(instance: Instance, head: Head) -> tuple[str, ...]:
    """Return the warnings of the code that a person judges at a head, () if there is none."""
    if (code := judged_code(instance, head)) is None:
        return ()
    _warned.add(head.node)
    return code.warnings


def warn_once(instance: Instance, head: Head) -> None:
    """Warn of the code that a person judges at a head, unless this process has done so."""
    for warning in warnings_at(instance, head) if head.node not in _warned else ():
        instance.warn(warning)


def _worktree(instance: Instance, head: Head) -> StepWorkspace | None:
    """Return the workspace in which a step at a head would find changes by hand, None if the thread has none here."""
    from uwf_git.workspaces.notes import Notes
    from uwf_git.workspaces.step_workspace import StepWorkspace

    note = Notes(instance.store.repository.private).read(head.thread)
    if note is None or not note.project:
        return None
    workspace = StepWorkspace(instance, instance.threads.position(head), note)
    with suppress(UwfError):
        assert workspace.recorded  # while the store is open: only git is left to be asked
        return workspace
    return None


def unshown_changes(instance: Instance, head: Head) -> str:
    """Return a line on the git checkout of the user in which a thread's agents work, "" if they don't: their changes
    are no step's."""
    if not (checkout := _checkout(instance, head)):
        return ""
    return (
        f"its agents work in {checkout} itself, so changes are not shown: git -C {shlex.quote(checkout)} diff"
    )


def _checkout(instance: Instance, head: Head) -> str:
    """Return the folder in which a thread's agents work if that is in a git checkout of the user, else ""."""
    from uwf_git.store.location import checkout_around
    from uwf_git.workspaces.notes import Notes
    from uwf_git.workspaces.options import SHARED

    note = Notes(instance.store.repository.private).read(head.thread)
    if note is not None and note.kind != SHARED:
        return ""
    with suppress(OSError):
        folder = instance.folders.recall(head.thread)
        if folder is None and instance.threads.projects.is_here(head):
            folder = Path.cwd()
        around = checkout_around(folder) if folder is not None else None
        return str(around.top or "") if around is not None else ""
    return ""


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
