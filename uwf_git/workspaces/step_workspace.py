"""The workspace of a thread's step: prepared before its agent runs, and recorded after it.

A worktree stands at the code of the thread's last step. Where it doesn't, the difference is one of these:

    what a failed attempt left    kept under a ref; undone, unless its session is resumed
    a step that lost a race       kept under a ref, and undone
    a step made elsewhere         checked out
    changes made by hand          committed as such, and the step begins with them
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import Invalid, NotFound, RemoteFailed, UwfError, WorkspaceFailed
from uwf_git.base.text import one_line
from uwf_git.config.forges import pages
from uwf_git.format.credit import Credit
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.format.types import USER, is_kind, role_name
from uwf_git.git.objects import Person
from uwf_git.store import layout
from uwf_git.store.history import History, Position, link_of, start_of
from uwf_git.store.instance import Instance
from uwf_git.store.location import checkout_around
from uwf_git.store.private import EngineOrder
from uwf_git.store.projects import Repository
from uwf_git.workspaces.changes import address_of
from uwf_git.workspaces.notes import Note, Notes
from uwf_git.workspaces.options import FOLDER, SHARED, WORKTREE
from uwf_git.workspaces.project import Project, remote_in_hint, work_ref
from uwf_git.workspaces.removal import make_room
from uwf_git.workspaces.setup import set_up
from uwf_git.workspaces.worktree import AGAIN, configured_remote, remote_of, worktree_note, worktree_of

if TYPE_CHECKING:
    from uwf_git.config.settings import WorkspaceSettings

LOGS_TRAILER = "Agent-Logs-Url"
_AGENT_TRAILER, _SIGNED_TRAILER = "Assisted-by", "Signed-off-by"
_LONGEST_URL = 200  # characters; a trailer that is cut leads nowhere
_LOOKED_AT = 20  # steps of a thread without a note in which its code is looked for
ATTEMPT, STEP = "attempt", "step"
"""What files a step may begin with after a failed attempt: those that it left, or those of the last step."""


class Maker(NamedTuple):
    """The maker of a step, its role, and a few words on the output."""

    role: str
    credit: Credit
    verdict: str = ""


class WorktreeChanges(NamedTuple):
    """Changes by hand in a worktree, at `folder`, since the code of the thread's last step. `state` is the commit that
    is checked out, or the tree of the files if they differ from that; `patch` is cut after 1 MiB."""

    folder: str
    state: str
    patch: str


class StepWorkspace:
    """The workspace of the next step of a thread at `at`."""

    def __init__(self, instance: Instance, at: Position, note: Note) -> None:
        self._instance = instance
        self._at = at
        self._thread = at.head.thread
        self.note = note
        self.base = ""
        self._is_persons = False
        self._tree = worktree_of(instance, note, self._thread)
        self._project = self._tree.project

    @property
    def settings(self) -> WorkspaceSettings:
        """The settings of the project."""
        return self._instance.config_of(self._at.head.row).workspace.of(self.note.top)

    @property
    def is_worktree(self) -> bool:
        return self.note.kind == WORKTREE

    @property
    def project(self) -> Project:
        return self._project

    @property
    def remote(self) -> str:
        """The project's remote for the code of threads, "" for none."""
        code = code_begun(self._instance, self._at.history)
        return remote_of(self._instance, self.note) or self._project.remote_at(code.remote if code else "")

    def begins_at(self) -> Revision:
        """Return the code at which the next step begins. Raises NotFound if it is not here."""
        commit = self._expected()
        self._require(commit)
        return Revision(commit, self._project.tree(commit), commit, self.note.root, self.note.url)

    def advance(self, before: str, commit: str) -> None:
        """Move the worktree from a commit to one that was made from it, unless its files have changed since; keep that
        one under a ref then. Moves `refs/uwf/work/<ULID>` or makes `refs/uwf/local/work/<ULID>/<commit>`."""
        tree, project = self._tree, self._project
        if not tree.exists:
            tip = project.commit(tree.ref)
            if not tip or project.is_ancestor(tip, commit):
                project.set_ref(tree.ref, commit)
                return
        elif tree.head() == before and not tree.operation() and tree.tree() == tree.tree_of(before):
            tree.reset(commit)
            return
        project.keep(self._thread, commit)

    def unmerged(self, commits: Iterable[str]) -> list[str]:
        """Return those commits that are not in the worktree's, which is made if it is not here. Raises
        WorkspaceFailed for uncommitted changes and unfinished merges, NotFound if the code is not here."""
        if not self._tree.exists:
            self.prepare(None, lambda: False)
        self._check_committed()
        head = self._tree.head()
        return [commit for commit in commits if not self._project.is_ancestor(commit, head)]

    def _check_committed(self) -> None:
        tree = self._tree
        if what := tree.operation():
            raise WorkspaceFailed(
                f"worktree {tree.folder} is in the middle of a {what}",
                "finish or abort it there, then answer again",
            )
        if tree.tree() != tree.tree_of(tree.head()):
            raise WorkspaceFailed(
                f"worktree {tree.folder} has uncommitted changes",
                "commit or discard them there, then answer again",
            )

    @cached_property
    def recorded(self) -> tuple[str, str]:
        """The commit of the last step's code, and the tree that a failed attempt left, each "" without one: what
        `since_last_step` reads of the store."""
        failed = self._failed_attempt()
        return last_code_commit(self._instance, self._at.history), failed.tree if failed is not None else ""

    def since_last_step(self) -> WorktreeChanges | None:
        """Return the changes by hand that a person's step would take with it, None without any. For a reader: it needs
        no lock and changes no ref. Raises WorkspaceFailed."""
        before, undone = self.recorded
        if not before or not self.exists:
            return None
        tree, project = self._tree, self._project
        head, present = tree.peek()
        if present == project.tree(before) and head == before:
            return None
        if present == undone or not self._goes_on(before, head):
            return None
        is_clean = project.line("rev-parse", "-q", "--verify", f"{head}^{{tree}}", git=tree.git) == present
        return WorktreeChanges(str(tree.folder), head if is_clean else present, tree.patch(before, present))

    def ignored(self) -> str:
        """Return a line on what git ignores in the worktree, and goes with it; "" for nothing. Raises
        WorkspaceFailed."""
        return self._tree.goes_with_it() if self.exists else ""

    def _goes_on(self, before: str, head: str) -> bool:
        """Return whether a worktree's commit is the last step's, or was made from it by hand."""
        git = self._tree.git
        return head == before or (
            self._project.is_ancestor(before, head, git) and not self._is_step_of_ours(before, head)
        )

    # Before the agent

    @property
    def top(self) -> Path:
        """The worktree's own folder."""
        return self._tree.folder

    @property
    def exists(self) -> bool:
        """Whether the worktree is here."""
        return self.is_worktree and self._tree.exists

    def prepare(
        self,
        order: EngineOrder | None,
        resumes: Callable[[], bool],
        files: str = "",
        is_persons: bool = False,
    ) -> None:
        """Make the folder, and set `base`. `left` is the order of a step whose engine was killed; `resumes`
        tells whether the agent resumes a failed attempt's session; `files` overrides that, with ATTEMPT or
        STEP. If the step `is_persons`, changes by hand are its own, and it stays with the code of the last step,
        wherever its ref is. May move `refs/uwf/work/<ULID>`. Raises WorkspaceFailed, NotFound if the code
        is not here."""
        if not self.is_worktree:
            Path(self.note.place, self._thread).mkdir(parents=True, exist_ok=True)
            return
        expected = self._expected()
        tree = self._tree
        if not tree.exists or tree.commit_known != expected:
            self._require(expected)
        if not tree.exists and (base := self._make(expected)):
            self.base = base
            return
        tree.check()
        if self.note.owner == self._thread:
            tree.unlock()
        tree.refresh()
        head, present = tree.head(), tree.tree()
        self._is_persons = is_persons
        if head == expected and present == tree.tree_of(expected):
            self.base = expected if is_persons else self._with_commits_by_hand(expected)
            return
        failed = self._failed_attempt()
        if order is not None or (failed is not None and failed.tree == present):
            began = order.base if order is not None and order.base else failed.base if failed else expected
            if files == ATTEMPT or (files != STEP and resumes()):
                self.base = began
                return
            if failed is None or failed.tree != present:
                self._keep(head, present, "what a failed attempt left")
            tree.reset(began)
            self.base = began
            return
        begun = self._reconciled(head, present, expected)
        self.base = expected if is_persons else begun

    def _expected(self) -> str:
        if (
            self.note.owner != self._thread and self._tree.exists
        ):  # a sub-workflow goes on where its parent is
            return last_code_commit(self._instance, self._at.history) or self._tree.head()
        return last_code_commit(self._instance, self._at.history) or self.note.base

    def _require(self, commit: str) -> None:
        project = self._project
        if project.tree(commit):
            return
        remote = self.remote
        if remote and project.fetch_commit(remote, ThreadId(self.note.owner), commit):
            return
        usual = project.usual_remote()
        if not remote and usual:
            with suppress(RemoteFailed):  # nothing says that it has the code
                if project.fetch_commit(usual, ThreadId(self.note.owner), commit):
                    return
        where = self.note.checkout or self.note.project
        code = f"the code of thread {self._thread}, commit {commit[:12]}, is not in project {where}"
        ref = work_ref(self.note.owner)
        if commit in Notes(self._instance.store.repository.private).recorded():
            raise NotFound(f"{code}, where it was made", f"see: uwf verify {self._thread}")
        if remote:
            raise NotFound(
                f"{code}, and not on its remote {remote}",
                f"on the machine that made it: git push {shlex.quote(remote)} {commit[:12]}:{ref}; "
                "then repeat this",
            )
        git = f"git -C {shlex.quote(where)}"
        name, names = remote_in_hint(usual, git)
        raise NotFound(
            code,
            f"on the machine that made it: git push {name} {commit[:12]}:{ref}; then here: "
            f"{git} fetch {name} {ref}{names}",
        )

    def _make(self, expected: str) -> str:
        """Make the worktree; return the commit that the step begins at, "" if that is to be found out."""
        project, instance = self._project, self._instance
        settings = self.settings
        make_room(instance, settings.keep - 1)
        tip = project.ref(self._tree.ref)
        if tip and tip != expected:
            tip = self._tip(tip, expected)
        tree = self._tree
        tree.add(tip or expected)
        try:
            set_up(tree.folder, self.note.top, settings, self._thread, instance.secrets, instance.warn)
            tree.finish()
            if not settings.setup:
                return expected if tip in ("", expected) else ""
            tree.note_ignored()
            present = tree.tree()
            if present != tree.tree_of(tree.head()):
                words = " ".join(settings.setup)
                self._commit(present, f"set up: {one_line(words, 60)}")
        except BaseException:
            tree.remove()
            raise
        return ""

    def _with_commits_by_hand(self, expected: str) -> str:
        """Check out what the user has put on the thread's ref since the last step; return what is checked out then."""
        tip = self._project.ref(self._tree.ref)
        if tip in ("", expected) or self.note.owner != self._thread:
            return expected
        if (begins := self._tip(tip, expected)) != expected:
            self._tree.reset(begins)
        return begins

    def _tip(self, tip: str, expected: str) -> str:
        """Return where a worktree that was removed begins."""
        if self._project.is_ancestor(expected, tip) and not self._is_step_of_ours(expected, tip):
            return tip
        if not self._project.is_ancestor(tip, expected):
            self._project.keep(self._thread, tip)
        return expected

    def _reconciled(self, head: str, present: str, expected: str) -> str:
        project, tree = self._project, self._tree
        is_clean = present == tree.tree_of(head)
        if self._goes_on(expected, head):
            if tree.operation():
                raise self._unfinished()
            return head if is_clean else self._commit(present, "changes made by hand")
        if not is_clean or not project.is_ancestor(head, expected):
            kept = self._keep(head, present, "what was here of another step")
            self._instance.warn(
                f"the worktree of thread {self._thread} was at another step; what was in it is kept as {kept}"
            )
        tree.reset(expected)
        return expected

    def _is_step_of_ours(self, expected: str, tip: str) -> bool:
        """Return whether a step of this thread that doesn't count is between two commits."""
        words = (
            "log",
            "-1",
            f"--grep=^{layout.THREAD_TRAILER}: {self._thread}",
            "--format=%H",
            f"{expected}..{tip}",
        )
        return self._project.line(*words, git=self._tree.git) != ""

    def _unfinished(self) -> WorkspaceFailed:
        what, folder = self._tree.operation(), self._tree.folder
        return WorkspaceFailed(
            f"worktree {folder} is in the middle of a {what}", f"finish or abort it there, and {AGAIN}"
        )

    def folder(self, location: str | None) -> Path:
        """Return the agents' folder, at an edge's `location`. A location in the user's checkout is taken in
        the worktree."""
        if not self.is_worktree:
            base = Path(self.note.place, self._thread)
            return base / location if location else base
        top = self._tree.folder
        if location and Path(location).is_absolute():
            place = Path(os.path.normpath(location))
            if not self.note.checkout or not place.is_relative_to(self.note.checkout):
                return place
            folder = top / place.relative_to(self.note.checkout)
        else:
            folder = top / self.note.inside / (location or "")
        if not folder.resolve().is_relative_to(top.resolve()):
            raise WorkspaceFailed(
                f"folder {folder} leads out of worktree {top}",
                "make it a folder there again, then step again",
            )
        return folder

    # After the agent

    def record(self, base: str, maker: Maker) -> Revision | None:
        """Commit what a step left; None if that isn't recorded. `base` is the commit that it began at. Moves
        `refs/uwf/work/<ULID>`. Raises WorkspaceFailed, WorktreeGone."""
        if not self.is_worktree or not base:
            return None
        tree = self._tree
        tree.check()
        if tree.operation():
            raise self._unfinished()
        if self.note.owner == self._thread:
            tree.unlock()
        if self._is_persons and tree.head() == base and tree.tree() == (same := tree.tree_of(base)):
            tree.keep_times()
            return Revision(base, same, base, self.note.root, self.note.url)  # and the ref may be elsewhere
        number = self._at.head.row.number + 1
        call = self._at.history.start.call
        role = "call" if call is not None and call.is_call else role_name(maker.role)
        what = f"{role}: {maker.verdict or f'step {number}'}"
        agent = layout.agent_author(maker.credit)
        message = self._message(what, number, agent.name)
        commit = tree.commit_files(message, self.settings.author or agent, self._user)
        tree.keep_times()
        if commit != base:
            self._note_made_here(commit)
        return Revision(commit, tree.tree_of(commit), base, self.note.root, self.note.url)

    def _note_made_here(self, commit: str) -> None:
        Notes(self._instance.store.repository.private).record(ThreadId(self.note.owner), commit)

    def keep_failed(self, base: str) -> Revision | None:
        """Keep what a failed attempt left under a ref, as a commit; None if it changed nothing. Makes
        `refs/uwf/local/work/<ULID>/<commit>`."""
        if not self.is_worktree or not base or not self._tree.exists:
            return None
        head, present = self._tree.head(), self._tree.tree()
        self._tree.keep_times()
        if head == base and present == self._tree.tree_of(base):
            return None
        last = self._failed_attempt()
        if last is not None and (last.tree, last.base) == (present, base):
            return last
        commit = self._kept_commit(head, present, "what a failed attempt left")
        self._project.keep(self._thread, commit)
        self._note_made_here(commit)
        return Revision(commit, present, base, self.note.root, self.note.url)

    def _failed_attempt(self) -> Revision | None:
        places = self._at.history.places
        attempts = [
            attempt for attempt in self._instance.attempts.all(self._thread) if attempt.prev in places
        ]
        return attempts[-1].code if attempts else None

    def _kept_commit(self, head: str, present: str, what: str) -> str:
        return self._tree.write(present, head, self._message(what), self._user, self._user)

    def _keep(self, head: str, present: str, what: str) -> str:
        return self._project.keep(self._thread, self._kept_commit(head, present, what))

    @property
    def _user(self) -> Person:
        return self._instance.store.repository.user

    @property
    def person(self) -> Person:
        """The person who answers for the code that is committed."""
        return self.settings.author or self._user

    def _commit(self, present: str, what: str) -> str:
        return self._tree.commit(present, self._message(what), self.person, self._user)

    def _message(self, what: str, number: int = 0, agent: str = "") -> str:
        trailers = {}
        if number:
            trailers = {layout.THREAD_TRAILER: self._thread, "Uwf-Number": str(number)}
            trailers[LOGS_TRAILER] = logs_url(self._instance, self._thread)
        if self.settings.author is not None:
            trailers[_AGENT_TRAILER] = agent
        if self.settings.sign_off:
            trailers[_SIGNED_TRAILER] = self.person.ident
        body = "" if number else f"in the worktree of thread {self._thread}"
        return layout.message(what, trailers, body).rstrip("\n") + "\n"


def workspace_of(instance: Instance, at: Position, cwd: Path | None = None) -> StepWorkspace | None:
    """Return the workspace of a thread's next step; None for the folder in which uwf was called. A thread
    without a note, such as a fork or one that was pulled, gets the workspace of its last code, in the project
    that has it. `cwd` is a folder of that project. Raises NotFound if that is not here."""
    notes, thread = Notes(instance.store.repository.private), at.head.thread
    note = notes.read(thread)
    if note is None and notes.has(thread):
        raise WorkspaceFailed(
            f"the note of the workspace of thread {thread} cannot be read: {notes.path(thread)}",
            f"uwf thread step {thread} --workspace W gives it another",
        )
    is_new = note is None
    note = note or _inherited(instance, notes, at, cwd)
    if note is None:
        return None
    if note.kind == WORKTREE and not Path(note.project).is_dir():
        note = _moved(instance, notes, at, note, cwd)
    if is_new:
        notes.write(thread, note)
    elif cwd is not None and note.kind == WORKTREE and note.owner == thread:
        note = _moved_inside(note, cwd)
        notes.write(thread, note)
    return None if note.kind == SHARED else StepWorkspace(instance, at, note)


def logs_url(instance: Instance, thread: ThreadId) -> str:
    """Return the URL of the page that `uwf publish thread` makes of a thread on the default remote, without name and
    password; "" if the remote is not on a known forge, or the URL is too long or holds a secret."""
    branch = layout.THREAD_BRANCHES.removeprefix("refs/heads/") + thread
    with suppress(UwfError):  # there is no such remote
        shown = pages(instance.remotes.get(None).url, branch, None, instance.config.forges)
        url = shown.branch if shown is not None else ""
        if len(url) <= _LONGEST_URL and not instance.redactor.first(url):
            return url
    return ""


def _moved(instance: Instance, notes: Notes, at: Position, note: Note, cwd: Path | None) -> Note:
    """Return the note of a thread whose project is no longer where it was, but in the folder of uwf's call; unless that
    is `cwd`, which somebody named, it must be the same repository or a clone of it, not one that began as it did. Those
    of the project's other threads are mended as well."""
    projects, started_in = instance.threads.projects, instance.threads.projects.of(at.head)
    checkout = checkout_around(cwd or Path.cwd())
    project = Project(checkout.common) if checkout is not None else None
    is_other = (
        cwd is None
        and started_in is not None
        and checkout is not None
        and not projects.belongs(started_in, Repository(checkout.common))
    )
    if checkout is None or project is None or is_other or not project.commit(note.base):
        raise NotFound(
            f"project {note.checkout or note.project} of thread {at.head.thread} was moved or removed",
            f"where it is now: uwf thread step {at.head.thread} --cwd FOLDER; without it: --workspace shared",
        )
    top = str(checkout.top or "")
    for other, its in notes.all():
        if its.project == note.project:
            notes.write(other, its._replace(project=str(project.common), checkout=top))
    instance.warn(f"project {note.checkout or note.project} was moved to {top or project.common}")
    return note._replace(project=str(project.common), checkout=top)


def _moved_inside(note: Note, cwd: Path) -> Note:
    here = cwd.absolute()
    if note.checkout and here.is_relative_to(note.checkout):
        inside = str(here.relative_to(note.checkout))
        return note._replace(inside="" if inside == "." else inside)
    raise Invalid(
        f"folder {cwd} is outside of the project {note.checkout or note.project}, whose worktree the thread has",
        "give a folder of the project, or --workspace shared",
    )


def _inherited(instance: Instance, notes: Notes, at: Position, cwd: Path | None) -> Note | None:
    thread, code = at.head.thread, code_begun(instance, at.history)
    link = link_of(instance.store, thread)
    origins = [link.origin] if link is not None else _parents(instance, at)
    origin = next((note for item in origins if (note := notes.read(item)) is not None), None)
    if code is None:
        is_branch = link is None and at.history.start.branch is not None
        if origin is None or origin.kind == SHARED or (is_branch and origin.kind == FOLDER):
            return None
        if any(step.role != USER for step in at.history.steps):
            return None
        return origin._replace(owner=thread)
    candidates = [origin, *(note for _, note in notes.all())]
    for note in candidates:
        if note is None or note.kind != WORKTREE or not Path(note.project).is_dir():
            continue
        if Project(Path(note.project)).commit(code.commit):
            return note._replace(owner=thread, base=code.base)
    here = cwd or instance.folders.recall(thread) or Path.cwd()
    checkout = checkout_around(here)
    if checkout is not None:
        project = Project(checkout.common)
        remote = configured_remote(instance, project, checkout.top)
        if _is_same(project, code, remote):
            note = worktree_note(project, checkout, here, code.base, code.root, remote)
            return note._replace(owner=thread)
    known = address_of(code) or f"whose first commit is {code.root[:12]}"
    raise NotFound(
        f"thread {thread} works on code that is not here: commit {code.commit[:12]} of the repository {known}",
        "step it in a clone of that, or in this folder: --workspace shared",
    )


def _is_same(project: Project, code: Revision, remote: str) -> bool:
    if project.commit(code.commit):
        return True
    head = project.commit("HEAD")
    if code.root and head and project.root(head) == code.root:
        return True
    return bool(code.remote) and project.url(remote) == code.remote


def _parents(instance: Instance, at: Position) -> list[ThreadId]:
    """Return the threads that a branch was forked from and that wait for it; none for another thread."""
    if at.history.start.branch is None:
        return []
    start = start_of(instance.store, at.head.commit)
    if start.merged is None:
        return []
    names = instance.store.index.heads_at(start.merged)
    if not names and instance.store.sync():  # another program may have moved a ref
        names = instance.store.index.heads_at(start.merged)
    return sorted({layout.thread_of(name) for name in names if name.startswith(layout.THREADS)})


def code_begun(instance: Instance, history: History) -> Revision | None:
    """Return the code at which a thread's next step begins, as its history says: that of `last_code`, else of a
    branch that of its fork."""
    code, branch = last_code(instance, history), history.start.branch
    if code is not None or branch is None:
        return code
    return code_left(instance, instance.store.step(branch.fork).detail)


def last_code(instance: Instance, history: History) -> Revision | None:
    """Return the code that the newest steps of agents left, None if the last few left none."""
    agents = (step for step in reversed(history.steps) if step.role != USER)
    codes = (code_left(instance, step.detail) for step in islice(agents, _LOOKED_AT))
    return next((code for code in codes if code is not None), None)


def last_code_commit(instance: Instance, history: History) -> str:
    """Return the commit of the newest step that left code, "" if none did."""
    codes = (code_left(instance, step.detail) for step in reversed(history.steps) if step.role != USER)
    return next((code.commit for code in codes if code is not None), "")


def code_left(instance: Instance, detail: Hash) -> Revision | None:
    """Return the code in a step's detail; for a sub-workflow, that of its last step which left any."""
    content = instance.store.get(detail)
    if is_kind(content.type, "step"):
        for past in instance.threads.past(detail):
            if (code := code_left(instance, past.step.detail)) is not None:
                return code
        return None
    record = instance.store.detail(detail)
    return record.code if record is not None else None
