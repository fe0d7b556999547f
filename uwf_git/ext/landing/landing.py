"""Landing a thread's work: its commits made again on the branch that they are for, its checks made on the result,
and that pushed.

The target may move meanwhile; then all of it is done again, a few times. A conflict or a check that fails goes back
to the thread, whose agents have the context, as the user's next words in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.landing.checks import LandingCheck, check, commands_of
from uwf_git.ext.landing.request import RequestText, changes_of, request_text, title_of
from uwf_git.ext.landing.settings import KEEP, LandSettings, settings_of
from uwf_git.plugin import (
    AgentFailed,
    HeadMoved,
    Invalid,
    Rebased,
    RebasePick,
    UwfError,
    WorkspaceFailed,
    code_at_end,
    control,
    ended_state,
    fenced,
    last_line,
    merging,
    one_line,
    thread_code,
    workspace_at,
)

if TYPE_CHECKING:
    from uwf_git.plugin import (
        Head,
        History,
        Instance,
        Project,
        Revision,
        StepWorkspace,
        ThreadId,
        ThreadPosition,
    )

_TRIES = 5  # for a target that moves while its checks run
_LOG_SHOWN = 4000  # characters of a failed check's output that the thread gets


class Options(NamedTuple):
    """What a call says in place of the settings; "" and None leave them."""

    onto: str = ""
    remote: str = ""
    commits: str = ""


class Landed(NamedTuple):
    """What has landed: `commits` of a thread on the target `onto`, which was at `base`. `remote` is "" for the
    repository itself."""

    thread: ThreadId
    commit: str
    tree: str
    commits: int
    onto: str
    base: str
    remote: str
    checks: tuple[LandingCheck, ...]
    request: RequestText

    def as_json(self) -> dict[str, Any]:
        checks = [
            {"command": list(item.command), "status": item.status, "sha256": item.sha256}
            for item in self.checks
        ]
        return {**self._asdict(), "checks": checks, "request": self.request._asdict()}


class Landing:
    """The landing of one thread. Raises Invalid if it has no work to land."""

    def __init__(self, instance: Instance, head: Head, options: Options, tell: Callable[[str], None]) -> None:
        self._instance = instance
        self._tell = tell
        settings = settings_of(instance.config)
        self._settings: LandSettings = settings._replace(
            onto=options.onto or settings.onto,
            commits=options.commits or settings.commits,
        )
        self._at = instance.threads.position(head)
        self._code = _code(instance, head)
        _require_accepted(instance, self._at)
        workspace = workspace_at(instance, self._at)
        if workspace is None or not workspace.is_worktree:
            raise Invalid(
                f"thread {head.thread} worked in a folder without a history of its own",
                "commit and push there with git",
            )
        self._workspace: StepWorkspace = workspace
        self._project: Project = workspace.project
        self._remote = options.remote or workspace.remote or self._project.usual_remote()
        if options.remote:
            self._project.require_remote(options.remote)

    @property
    def _history(self) -> History:
        return self._at.history

    @property
    def _thread(self) -> ThreadId:
        return self._at.head.thread

    def land(self) -> Landed:
        """Merge the work into the target: a branch of the remote, or without one of the repository itself. Moves that
        branch. Raises Conflicting, ChecksFailed after the thread was told, HeadMoved for a target that moves too
        often, RemoteFailed, Declined."""
        for _ in range(_TRIES):
            onto, base = self._target()
            rebased = self._rebased(onto, base)
            checks = self._checked(onto, rebased)
            if self._moved(onto, base, rebased.commit):
                text = request_text(
                    self._instance, self._at.head, self._history, self._code, rebased.tree, checks
                )
                facts = (rebased.commit, rebased.tree, rebased.made, onto, base, self._remote)
                return Landed(self._thread, *facts, tuple(checks), text)
            self._tell(f"{onto} has moved: once more")
        raise HeadMoved(f"branch {onto} moves too often to land thread {self._thread}", "repeat it later")

    def _target(self) -> tuple[str, str]:
        """Return the branch that the work is for, and its commit, which is here then."""
        project, named = self._project, self._settings.onto
        if not self._remote:
            onto = named or project.line("symbolic-ref", "--short", "-q", "HEAD")
            base = project.commit(f"refs/heads/{onto}") if onto else ""
            if not base:
                raise Invalid(
                    f"project {project.common} has no branch {onto or 'checked out'}", "give one: --onto"
                )
            return onto, base
        usual, commits = project.heads_at(self._remote, *([named] if named else []))
        onto = named or usual
        if onto not in commits:
            what = f"branch {onto}" if onto else "default branch"
            raise Invalid(f"remote {self._remote} has no {what}", "give one that it has: --onto")
        base = commits[onto]
        if not project.commit(base):
            base = project.fetch_branch(self._remote, onto, f"refs/uwf/local/landing/{self._thread}")
        return onto, base

    def _rebased(self, onto: str, base: str) -> Rebased:
        since = self._project.line("merge-base", base, self._code.commit)
        if not since:
            raise Invalid(
                f"the work of thread {self._thread} has no commit in common with {onto}", "merge it by hand"
            )
        picks = self._picks(since)
        with merging(self._project, base) as merges:
            rebased = merges.rebase(base, picks)
            if rebased.conflict is None and rebased.made:
                merges.keep(rebased)
        if rebased.conflict is not None:
            self._conflicts(onto, base, rebased)
        if not rebased.made:
            raise Invalid(
                f"the work of thread {self._thread} is in {onto} already", f"uwf thread show {self._thread}"
            )
        return rebased

    def _picks(self, since: str) -> list[RebasePick]:
        user = self._instance.store.repository.user
        me = user.at(int(time.time()))
        signed = f"Signed-off-by: {user.ident}\n" if self._settings.sign_off else ""
        words = ("rev-list", "--reverse", "--first-parent", "--parents", f"{since}..{self._code.commit}")
        rows = [row.split() for row in self._project.line(*words).splitlines()]
        if self._settings.commits == KEEP and all(len(row) == 2 for row in rows):
            return [
                RebasePick(parent, commit, author or me, me, message + signed)
                for commit, parent in rows
                for author, message in [self._said_by(commit)]
            ]
        lines = [one_line(title_of(self._history), 72)]
        lines += (f"- {line}" for line in changes_of(self._instance, self._history))
        trailers = f"Uwf-Thread: {self._thread}\nUwf-Record: {self._at.head.commit}\n{signed}"
        message = "\n".join((lines[0], "", *lines[1:], *([""] if lines[1:] else []), trailers))
        return [RebasePick(since, self._code.commit, me, me, message)]

    def _said_by(self, commit: str) -> tuple[str, str]:
        text = self._project.run("cat-file", "commit", commit).out.decode("utf-8", "replace")
        header, _, message = text.partition("\n\n")
        author = re.search(r"^author (.+)$", header, re.MULTILINE)
        return author[1] if author else "", message.rstrip("\n") + "\n"

    def _checked(self, onto: str, rebased: Rebased) -> list[LandingCheck]:
        commands = self._settings.checks
        if commands is None:
            commands = tuple(commands_of(self._instance, self._at.head, self._history.workflow))
        if not commands:
            self._tell("no check: no role's command says `passed`, and land.checks names none")
        seconds = self._settings.timeout
        results = check(
            self._instance, self._thread, self._workspace, rebased.commit, commands, seconds, self._tell
        )
        if results and not results[-1].has_passed:
            self._fails(onto, rebased, results[-1])
        return results

    def _moved(self, onto: str, base: str, commit: str) -> bool:
        """Move the target from `base` to a commit, unless it has moved."""
        project = self._project
        if self._remote:
            return project.push_commit(self._remote, commit, onto, base)
        ref = f"refs/heads/{onto}"
        if project.is_checked_out(ref):
            project.fast_forward(ref, commit)
            return True
        return project.run("update-ref", "--create-reflog", ref, commit, base, check=False).code == 0

    # Back to the thread

    def _conflicts(self, onto: str, base: str, rebased: Rebased) -> None:
        conflict = rebased.conflict
        assert conflict is not None
        paths = ", ".join(one_line(path, 100) for path in conflict.paths[:5])
        text = (
            f"The work does not land: it conflicts with {onto} ({base[:12]}) in {paths}. That commit is in this"
            f" repository. Merge it (git merge {base}), keep the intent of both sides, and commit the merge."
        )
        if conflict.text:
            text += f"\n\n{fenced(conflict.text.rstrip())}"
        self._raise(WorkspaceFailed, f"it conflicts with {onto} in {paths}", text)

    def _fails(self, onto: str, rebased: Rebased, result: LandingCheck) -> None:
        command = " ".join(result.command)
        how = "ran out of time" if result.status is None else f"exited with {result.status}"
        text = (
            f"The work does not land: {command} {how} on it together with {onto}, commit {rebased.commit[:12]}."
            f" Find out why, and mend it.\n\n{fenced(result.log[-_LOG_SHOWN:].rstrip())}"
        )
        last = last_line(result.log)
        self._raise(AgentFailed, f"{one_line(command, 60)} {how}{f': {last}' if last else ''}", text)

    def _raise(self, kind: type[UwfError], why: str, text: str) -> None:
        """Give a text to the thread as its next turn, and raise why."""
        problem = f"thread {self._thread} does not land: {why}"
        try:
            goes_on = _tell_thread(self._instance, self._at.head, text)
        except UwfError as error:
            raise kind(problem, error.hint) from None
        raise kind(problem, f"it was told: uwf thread run {goes_on}")


def _tell_thread(instance: Instance, head: Head, text: str) -> ThreadId:
    """Say something in a thread, or in the one that goes on with an ended one; return that."""
    if head.archive is None:
        control.say(instance, head.thread, text)
        return head.thread
    return control.resume(instance, head.thread, text).thread


def _require_accepted(instance: Instance, at: ThreadPosition) -> None:
    thread, archive = at.head.thread, at.head.archive
    if archive is None:
        raise Invalid(f"thread {thread} has not ended", f"uwf thread run {thread}")
    left = code_at_end(instance, at)
    if left is None or left.is_merged:
        return
    if not left.merge:
        state = ended_state(archive).label
        raise Invalid(
            f"thread {thread} is {state}, and nothing in it accepted its work",
            f"look at it, then: git merge {left.branch or left.commit[:12]}",
        )


def _code(instance: Instance, head: Head) -> Revision:
    thread = head.thread
    code = thread_code(instance, head.node)
    if code is None or code.commit == code.base:
        raise Invalid(f"thread {thread} has changed no code", f"uwf thread show {thread}")
    return code
