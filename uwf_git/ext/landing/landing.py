"""Landing a thread's work: its commits made again on the branch that they are for, its checks made on the result,
and that pushed.

The target may move meanwhile; then all of it is done again, a few times. A conflict or a check that fails goes back
to the thread, whose agents have the context, as the user's next words in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.landing.answers import answer_reviews
from uwf_git.ext.landing.branch import branch_name, candidates
from uwf_git.ext.landing.checks import LandingCheck, check, commands_of
from uwf_git.ext.landing.commits import author_and_message, picks
from uwf_git.ext.landing.destination import destination_of, raise_if_unknown
from uwf_git.ext.landing.effect_records import Effect, digest_of
from uwf_git.ext.landing.effects import Sending, once
from uwf_git.ext.landing.issue_comment import comment_on_issue
from uwf_git.ext.landing.kin import effects_in_line, effects_of, goes_on_as, kin_of, texts_of_user
from uwf_git.ext.landing.landing_steps import has_landed_in_step
from uwf_git.ext.landing.pull_request import (
    PullRequest,
    hold_back,
    push_record,
    request_merge,
)
from uwf_git.ext.landing.request import (
    RequestText,
    closing_line,
    request_text,
    title_of,
)
from uwf_git.ext.landing.settings import LandSettings, settings_of
from uwf_git.ext.landing.sync import raise_if_merged
from uwf_git.ext.landing.thread_turn import tell_thread
from uwf_git.plugin import (
    AgentFailed,
    Declined,
    HeadMoved,
    Invalid,
    Rebased,
    Usage,
    UwfError,
    WorkspaceFailed,
    client_for,
    code_at_end,
    ended_state,
    fenced,
    last_line,
    merging,
    one_line,
    secrets_in,
    taken_back,
    thread_code,
    words,
)

if TYPE_CHECKING:
    from uwf_git.plugin import (
        Head,
        History,
        Instance,
        Project,
        Revision,
        ThreadId,
        ThreadPosition,
    )

_TRIES = 5  # for a target that moves while its checks run
_LOG_SHOWN = 4000  # characters of a failed check's output that the thread gets


class Options(NamedTuple):
    """What a call says in place of the settings; "" leaves them. `plain`: no forge is asked, and the target itself
    moves, as in a train. `in_step`: a step of the thread lands it, which has until `deadline` on time.monotonic().
    `exposes`: also work with secrets lands."""

    onto: str = ""
    branch: str = ""
    remote: str = ""
    commits: str = ""
    plain: bool = False
    in_step: bool = False
    deadline: float | None = None
    exposes: bool = False


class Landed(NamedTuple):
    """What has landed: `commits` of a thread on the target `onto`, which was at `base`, in `branch`: the target itself,
    or that of the request `pull`, of which so many comments were `answered` now. `remote` is "" for the repository
    itself."""

    thread: ThreadId
    commit: str
    tree: str
    commits: int
    onto: str
    base: str
    branch: str
    remote: str
    checks: tuple[LandingCheck, ...]
    request: RequestText
    pull: PullRequest | None = None
    answered: int = 0

    def as_json(self) -> dict[str, Any]:
        checks = [
            {
                "command": list(check.command),
                "status": check.status,
                "sha256": digest_of(log),
                "node": node,
            }
            for node, check, log in self.checks
        ]
        pull = None
        if self.pull is not None:
            number, url, draft, new, changed = self.pull
            pull = {"number": number, "url": url, "draft": draft, "new": new, "changed": changed}
        return {**self._asdict(), "checks": checks, "request": self.request._asdict(), "pull": pull}


class InTarget(Invalid):
    """The work is in its target `onto` already, at the commit `base`."""

    def __init__(self, message: str, hint: str, onto: str, base: str) -> None:
        super().__init__(message, hint)
        self.onto, self.base = onto, base


class Conflict(WorkspaceFailed):
    """The work conflicts with its target in files. `why` is a clause, `text` what its thread needs to know."""

    def __init__(self, thread: ThreadId, why: str, text: str, files: tuple[str, ...]) -> None:
        super().__init__(f"thread {thread} does not land: {why}")
        self.why, self.text, self.files = why, text, files


class CheckFailed(AgentFailed):
    """A check failed on the work together with its target. `why` and `text` as of a Conflict."""

    def __init__(self, thread: ThreadId, why: str, text: str) -> None:
        super().__init__(f"thread {thread} does not land: {why}")
        self.why, self.text = why, text


class Exposed(CheckFailed):
    """The work has secrets, which nobody said may land."""


class _Moved(Declined):
    """A branch is no longer where it was, so nothing was pushed to it."""


class Landing:
    """The landing of one thread. Raises Invalid if it has no work to land."""

    def __init__(self, instance: Instance, head: Head, options: Options, tell: Callable[[str], None]) -> None:
        self._instance = instance
        self._tell = tell
        settings = settings_of(instance.config_of(head.row))
        self._settings: LandSettings = settings._replace(
            onto=options.onto or settings.onto, commits=options.commits or settings.commits
        )
        self._at = instance.threads.position(head)
        self._code = _code(instance, head)
        self._to = destination_of(instance, self._at, options.remote)
        if options.plain:
            self._to = self._to._replace(repository=None)
        else:
            raise_if_unknown(instance, self._to)
        self._branch = options.branch
        self._in_step, self._deadline = options.in_step, options.deadline
        self._exposes = options.exposes
        has_request = self._to.repository is not None
        self._is_draft = not self._in_step and _is_draft(instance, self._at, has_request)

    @property
    def _history(self) -> History:
        return self._at.history

    @property
    def _thread(self) -> ThreadId:
        return self._at.head.thread

    def land(self) -> Landed:
        """Push the work to a branch of its own and open the request to merge it or bring that up to date, if the remote
        is on a forge; else move the target itself: a branch of the remote, or without one of the repository. Raises
        Conflict and CheckFailed, after the thread was told unless its own step lands it; HeadMoved for a branch that
        moves too often, RemoteFailed, Declined, Undecided."""
        with self._instance.locks.turn(f"landing-{self._thread}", waits=self._waits):
            try:
                return self._land()
            except (Conflict, CheckFailed) as refusal:
                if not self._in_step:
                    refusal.hint = self._told(refusal)
                if isinstance(refusal, Exposed):
                    refusal.hint += f"; if it may land: uwf land {self._thread} --with-secrets"
                raise
            finally:
                if commit := self._to.project.ref(self._fetched):
                    self._to.project.drop({self._fetched: commit})

    @property
    def _fetched(self) -> str:
        """The ref of what is fetched while the work lands."""
        return f"refs/uwf/local/landing/{self._thread}"

    def _waits(self, _holders: object) -> None:
        self._tell(f"another process lands thread {self._thread}: waits for it")

    def _land(self) -> Landed:
        client = client_for(self._instance, self._to.repository) if self._to.repository is not None else None
        if client is not None:
            raise_if_merged(self._instance, self._at.head, client, self._branch)
        is_changed = False
        for _ in range(_TRIES):
            onto, base = self._target()
            own, there = self._new_branch() if client is not None else self._requested_branch()
            rebased = self._rebased(onto, base, there)
            self._refuse_secrets(f"{base}..{rebased.commit}")
            checks = self._checked(onto, base, rebased)
            if self._to.url:
                push_record(self._instance, self._thread, self._to.url, self._tell)
            if client is not None and there and self._is_draft:
                is_changed |= hold_back(client, own)
            moves = ([(own, there)] if own else []) + ([(onto, base)] if client is None else [])
            if all(self._moved(branch, before, rebased.commit) for branch, before in moves):
                break
            self._tell(f"{moves[-1][0]} has moved: once more")
        else:
            raise HeadMoved(f"branch {onto} moves too often to land thread {self._thread}", "repeat it later")
        branch = own if client is not None else onto
        closes = closing_line(self._instance, self._history, self._to.repository)
        text = request_text(
            self._instance, self._at.head, self._history, self._code, rebased.tree, checks, closes
        )
        pull, answered = None, 0
        if client is not None:
            with client:
                pull = request_merge(self._instance, self._thread, client, branch, onto, text, self._is_draft)
                is_changed |= pull.is_changed or there != rebased.commit
                pull = pull._replace(is_changed=is_changed)
                if not self._is_draft:
                    answered = answer_reviews(self._instance, self._at, client, pull.number, rebased.commit)
        if self._to.url:  # the records of the push and the request, with which another machine can go on
            push_record(self._instance, self._thread, self._to.url, lambda _line: None)
        if self._settings.comment and self._history.start.issue is not None:
            comment_on_issue(self._instance, self._at.head, self._history, pull)
        facts = (rebased.commit, rebased.tree, rebased.commits, onto, base, branch, self._to.remote)
        return Landed(self._thread, *facts, tuple(checks), text, pull, answered)

    def _requested_branch(self) -> tuple[str, str]:
        """Return the branch of a request of this thread's, with its commit, if it is as the thread pushed it: a forge
        takes the request for merged if the target has that commit. "" for none."""
        pushed = self._pushed()
        names = (
            [name for name in self._requested() if self._to.place(name) in pushed] if self._to.remote else []
        )
        heads = self._heads(*names) if names else {}
        own = ((name, heads[name]) for name in names if heads.get(name, "") in pushed[self._to.place(name)])
        return next(own, ("", ""))

    def _new_branch(self) -> tuple[str, str]:
        """Return the branch of the request, and its commit there, "" if it isn't there. One that others pushed to is
        not touched: another name is taken, or if it was this thread's, Invalid raised."""
        issue = self._history.start.issue
        variables = {
            "workflow": self._history.workflow.name,
            "thread": self._thread,
            "title": self._instance.redactor.text(title_of(self._history))[0],
            "issue": issue.value() if issue is not None else None,
        }
        if (
            self._branch
            and self._to.project.run("check-ref-format", f"refs/heads/{self._branch}", check=False).code
        ):
            raise Usage(f"{self._branch!r} can not be the name of a branch", "give another: --branch NAME")
        names = (
            [self._branch] if self._branch else [*candidates(branch_name(self._settings.branch, variables))]
        )
        commits = self._heads(*names)
        pushed, others = self._pushed(), self._pushed_by_kin()
        for name in names:
            there, own = commits.get(name, ""), pushed.get(self._to.place(name), set())
            if not there or there in own:
                return name, there
            if there in others.get(self._to.place(name), {}) and not self._branch:
                self._raise_if_continued(others[self._to.place(name)][there])
                continue
            if own or self._branch or self._is_of_thread(name):
                raise Invalid(
                    f"branch {name} of {self._to.remote} is at {there[:12]}, which thread {self._thread} did not push"
                    " from here",
                    "if another machine did, push from there, then: uwf pull; else on another branch: --branch NAME",
                )
        raise Invalid(
            f"branches {names[0]} to {names[-1]} of {self._to.remote} are others'", "give one: --branch NAME"
        )

    def _is_of_thread(self, branch: str) -> bool:
        """Return whether the last commit of a branch says that it is of this thread."""
        commit = self._to.project.fetch_branch(self._to.remote, branch, self._fetched)
        return f"\nUwf-Thread: {self._thread}\n" in author_and_message(self._to.project, commit)[1]

    def _pushed(self) -> dict[str, set[str]]:
        """Return the commits that were pushed in this thread's line, or begun to be, by place."""
        pushed: dict[str, set[str]] = {}
        for effect in self._effects(words.PUSH):
            pushed.setdefault(effect.target, set()).add(effect.name)
        return pushed

    def _pushed_by_kin(self) -> dict[str, dict[str, ThreadId]]:
        """Return the thread that has pushed a commit, by place and commit, of this one and all its kin."""
        pushed: dict[str, dict[str, ThreadId]] = {}
        for thread, item in effects_of(self._instance, kin_of(self._instance, self._at.head), words.PUSH):
            pushed.setdefault(item.effect.target, {})[item.effect.name] = thread
        return pushed

    def _raise_if_continued(self, by: ThreadId) -> None:
        onward = goes_on_as(self._instance, self._at.head, kin_of(self._instance, self._at.head))
        if onward.thread == by:
            raise Invalid(f"thread {self._thread} goes on as {by}, whose work was pushed", f"uwf land {by}")

    def _requested(self) -> list[str]:
        """Return the branches of their requests, the newest first."""
        return [effect.name for effect in self._effects(words.PULL_REQUEST)][::-1]

    def _effects(self, kind: str) -> list[Effect]:
        recorded = effects_in_line(self._instance, self._at.head, kind)
        return [item.effect for _, item in sorted(recorded, key=lambda pair: pair[1].effect.at)]

    def _target(self) -> tuple[str, str]:
        """Return the branch that the work is for, and its commit, which is here then."""
        project, named = self._to.project, self._settings.onto
        if not self._to.remote:
            onto = named or project.line("symbolic-ref", "--short", "-q", "HEAD")
            base = project.commit(f"refs/heads/{onto}") if onto else ""
            project.raise_if_rewritten(f"refs/heads/{onto}")
            if not base:
                raise Invalid(
                    f"project {project.common} has no branch {onto or 'checked out'}", "give one: --onto"
                )
            return onto, base
        usual, commits = project.heads_at(self._to.remote, *([named] if named else []))
        onto = named or usual
        if onto not in commits:
            what = f"branch {onto}" if onto else "default branch"
            default = f"its default is {usual}: --onto {usual}; " if usual else ""
            listing = f"git -C {shlex.quote(str(project.common))} ls-remote --heads {self._to.remote}"
            raise Invalid(f"remote {self._to.remote} has no {what}", f"{default}all: {listing}")
        base = commits[onto]
        if not project.commit(base):
            base = project.fetch_branch(self._to.remote, onto, self._fetched)
        return onto, base

    def _rebased(self, onto: str, base: str, there: str) -> Rebased:
        """Make the work again on `base`. What was pushed before, `there`, stays if it would come to the same."""
        since = self._since(onto, base)
        commits = picks(self._instance, self._at, self._to, self._code, since, self._settings.commits)
        with merging(self._to.project, base) as merges:
            rebased = merges.rebase(base, commits)
            if rebased.conflict is None and rebased.commits and not self._is_same(rebased, base, there):
                merges.keep(rebased)
        if rebased.conflict is not None:
            self._conflicts(onto, base, rebased)
        if not rebased.commits:
            has_request = self._to.repository is not None and self._requested()
            raise InTarget(
                f"nothing is left to land: the work of thread {self._thread} is in {onto} already",
                f"uwf land {self._thread} --sync records what became of its request"
                if has_request
                else f"uwf thread show {self._thread}",
                onto,
                base,
            )
        return rebased._replace(commit=there) if self._is_same(rebased, base, there) else rebased

    def _since(self, onto: str, base: str) -> str:
        """Return the commit from which on the work is the thread's own: where it began, or what was merged into it
        since. Raises Invalid if it can't be told from commits that the target doesn't have, Conflict if the work has
        left the commit at which it began, and would take back what the target has of it."""
        begun, project = self._code.base, self._to.project
        since = project.line("merge-base", base, self._code.commit)
        if not since or project.is_ancestor(since, begun):
            code = self._code._replace(base=project.line("merge-base", begun, base) or begun)
            if why := taken_back(project, code):
                raise Conflict(self._thread, why, _put_on_top(project, code, why), ())
            return begun if project.is_ancestor(begun, code.commit) else since or begun
        if not project.is_ancestor(begun, base):
            raise Invalid(
                f"thread {self._thread} began at commit {begun[:12]}, which {onto} does not have, and was merged since",
                "push that first, or merge by hand",
            )
        return since

    def _is_same(self, rebased: Rebased, base: str, there: str) -> bool:
        return (
            bool(there)
            and self._to.project.tree(there) == rebased.tree
            and self._to.project.line("rev-list", "--count", f"{base}..{there}") == str(rebased.commits)
            and self._to.project.is_ancestor(base, there)
        )

    def _checked(self, onto: str, base: str, rebased: Rebased) -> list[LandingCheck]:
        commands = self._settings.checks
        if commands is None:
            commands = tuple(commands_of(self._instance, self._at.head, self._history.workflow))
        if not commands:
            self._tell("no check: no role's command says `passed`, and land.checks names none")
        seconds = self._settings.timeout
        results = check(
            self._instance,
            self._thread,
            self._to.workspace,
            rebased.commit,
            commands,
            seconds,
            self._tell,
            self._deadline,
        )
        if results and not results[-1].check.has_passed:
            self._fails(onto, base, results[-1])
        return results

    def _moved(self, branch: str, there: str, commit: str) -> bool:
        """Move a branch to a commit, unless it isn't `there` any more; record it before. One that is at the commit may
        have been moved by a process that was killed before it could record that."""

        def send(_key: str) -> str:
            if not self._move(branch, there, commit):
                raise _Moved(f"branch {branch} has moved")
            return commit

        def look_up(_key: str) -> str | None:
            return commit if self._heads(branch).get(branch) == commit else None

        sending = Sending(
            words.PUSH, self._to.place(branch), commit, commit.encode("ascii"), f"{branch} {commit[:12]}"
        )
        try:
            once(self._instance, self._thread, sending, send, look_up)
        except _Moved:
            return False
        return True

    def _move(self, branch: str, there: str, commit: str) -> bool:
        project = self._to.project
        if self._to.remote:
            return project.push_commit(self._to.remote, commit, branch, there)
        ref = f"refs/heads/{branch}"
        if project.is_checked_out(ref):
            project.fast_forward(ref, commit)
            return True
        return project.run("update-ref", "--create-reflog", ref, commit, there, check=False).code == 0

    def _heads(self, *branches: str) -> dict[str, str]:
        """Return the commits of branches, where work lands."""
        if self._to.remote:
            return self._to.project.heads_at(self._to.remote, *branches)[1]
        return {branch: self._to.project.ref(f"refs/heads/{branch}") for branch in branches}

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
        raise Conflict(self._thread, f"it conflicts with {onto} in {paths}", text, tuple(conflict.paths))

    def _refuse_secrets(self, span: str) -> None:
        exposed = secrets_in(self._instance, self._to.project, span)
        if self._exposes:
            for clause in exposed:
                self._instance.warn(f"thread {self._thread} lands with {clause}")
        if self._exposes or not exposed:
            return
        places = "; ".join(exposed[:5])
        text = (
            f"The work does not land: it has {places}. Take it out: let the code read it from where it is kept, such as"
            " a variable."
        )
        raise Exposed(self._thread, f"it has {exposed[0]}", text)

    def _fails(self, onto: str, base: str, result: LandingCheck) -> None:
        command, how = " ".join(result.check.command), result.check.end
        text = (
            f"The work does not land: {command} {how} on it together with {onto} ({base[:12]}). That commit is in this"
            f" repository. Find out why, and mend it.\n\n{fenced(result.log[-_LOG_SHOWN:].rstrip())}"
        )
        last = last_line(result.log)
        raise CheckFailed(self._thread, f"{one_line(command, 60)} {how}{f': {last}' if last else ''}", text)

    def _told(self, refusal: Conflict | CheckFailed) -> str:
        """Give the thread the refusal as its next turn, unless it has that or goes on already, and note there what went
        wrong. Return how to go on."""
        text = refusal.text
        head = self._at.head
        onward = (
            goes_on_as(self._instance, head, kin_of(self._instance, head))
            if head.archive is not None
            else head
        )
        if onward.archive is None and (onward is not head or text in texts_of_user(self._instance, [head])):
            return f"it was told before: uwf thread run {onward.thread}"
        try:
            told = tell_thread(self._instance, head, text)
            self._instance.runs.stop(told, self._instance.threads.head(told).node, refusal.message)
            return f"it was told: uwf thread run {told}"
        except UwfError as error:
            return error.hint


def _is_draft(instance: Instance, at: ThreadPosition, has_request: bool) -> bool:
    """Return whether the request of a thread's work is a draft: as long as it has not ended, unless a step has landed
    it. Raises Invalid for work that was not accepted."""
    thread, archive = at.head.thread, at.head.archive
    if archive is None:
        if has_request:
            return not has_landed_in_step(instance, at.history)
        raise Invalid(f"thread {thread} has not ended", f"uwf thread run {thread}")
    left = code_at_end(instance, at)
    if left is None or left.is_merged or left.merge:
        return False
    state = ended_state(archive).label
    raise Invalid(
        f"thread {thread} is {state}, and nothing in it accepted its work: the other values of a decision that accepts "
        "lead back to work or to $FAIL",
        f"look at it, then: git merge {left.branch or left.commit[:12]}",
    )


def _put_on_top(project: Project, code: Revision, why: str) -> str:
    text = (
        f"The work does not land: {why}. Commit {code.base}, on which it was, has to be below the work again."
    )
    if before := project.line("merge-base", code.base, code.commit):
        text += f" Put it there: git rebase --onto {code.base} {before}"
    return text


def _code(instance: Instance, head: Head) -> Revision:
    thread = head.thread
    code = thread_code(instance, head.node)
    if code is None or code.commit == code.base:
        raise Invalid(f"thread {thread} has changed no code", f"uwf thread show {thread}")
    return code
