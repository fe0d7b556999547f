"""Which step of which thread commits of a project stand on. Nothing is stored for it: a commit is known by its id, by
what it changes, or by the lines that it adds, so it may have been squashed, rebased or picked by whomever. The
`Uwf-Thread` in a message is a claim.

A commit without such a claim stands on a thread by its lines if a run of them that the thread wrote has 40 letters and
digits, the figure from which `git blame -C` takes lines for copied.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import extensions
from uwf_git.base.errors import UwfError
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.types import USER, is_kind
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.workspaces.changes import NO_FETCH, step_code
from uwf_git.workspaces.patches import Patch, letters, read_git, read_patches

if TYPE_CHECKING:
    from uwf_git.format.kinds import Revision
    from uwf_git.store.history import PastStep
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.project import Project

COMMIT, PATCH, SQUASH, LINES, LANDED = "commit", "patch", "squash", "lines", "landed"
"""How a commit stands on a thread: it is one of its commits, it changes the same as one of them, or as several of them
together, it adds some of their lines, or the thread's record says that it pushed this commit, or that its request was
merged as it."""

_MOST_COMMITS = 100  # of one step, newest first
_MOST_RANGES = 20  # of one thread that may have been squashed, newest first
_MOST_CANDIDATES = 5  # threads that a commit is compared with, besides those that it claims
_MOST_CLAIMS = 50  # of one message
_MOST_PLACES = 100  # of one text in a file, the newest
_LOG_BYTES = 256 << 20  # of messages
_LOG = ("log", "-z", "--no-show-signature", "--encoding=UTF-8", "--format=tformat:%H%n%P%n%an%n%at %ct%n%B")
_COPIED = 40  # letters and digits
_CLAIM = re.compile(rf"(?m)^[ \t*>-]*{layout.THREAD_TRAILER}:[ \t]*([0-7][0-9A-HJKMNP-TV-Z]{{25}})[ \t]*$")


class CodeStep(NamedTuple):
    """A step with code: its number in `thread`, the oldest thread here that has it, and who made it. `begun` is the
    commit at which the code of that thread began, `since` when the step before was made, in Unix seconds."""

    thread: ThreadId
    number: int
    role: str
    agent: str
    model: str
    node: Hash
    code: Revision
    begun: str
    since: int


class ProjectCommit(NamedTuple):
    """A commit of the project. `time` is its committer's, `written` its author's, in Unix seconds. `claims` are the
    threads that its message names."""

    commit: str
    parents: tuple[str, ...]
    author: str
    written: int
    time: int
    subject: str
    claims: tuple[ThreadId, ...]


class Share(NamedTuple):
    """The part of a commit that stands on a thread: `how`, and its added lines by path and number, with the steps that
    wrote them, None for unknown ones. `step` is the one that all of it is of, None if there may be several."""

    thread: ThreadId
    how: str
    lines: Mapping[tuple[str, int], CodeStep | None]
    step: CodeStep | None = None


class Attribution(NamedTuple):
    """The threads that a commit stands on, which added so many `lines`. `patch` is None if it was not read, as there
    are too large ones."""

    shares: tuple[Share, ...]
    patch: Patch | None

    @property
    def lines(self) -> int:
        return sum(map(len, self.patch.added.values())) if self.patch is not None else 0

    def step_at(self, path: str, line: int) -> tuple[Share, CodeStep | None] | None:
        """Return whose a line of the commit's file is, None if it is no thread's. The step is None if it is the
        thread's, and not known to be of a step."""
        for share in self.shares:
            if (path, line) in share.lines:
                return share, share.lines[path, line]
        partial = (LINES, LANDED) if self.patch is not None else (LINES,)
        whole = next((share for share in self.shares if share.how not in partial), None)
        return (whole, whole.step) if whole is not None else None


class _Own(NamedTuple):
    """A commit that a step made."""

    step: CodeStep
    commit: ProjectCommit


class _WrittenFile:
    """The lines that steps wrote in a file, oldest first: `texts` with None between those that were not together."""

    def __init__(self) -> None:
        self.texts: list[bytes | None] = []
        self._steps: list[CodeStep] = []
        self._at: dict[bytes, list[int]] = {}

    def put(self, step: CodeStep, lines: Mapping[int, bytes]) -> None:
        last = 0
        for number, text in lines.items():
            if number != last + 1:
                self._append(step, None)
            self._append(step, text)
            last = number

    def extend(self, other: _WrittenFile) -> None:
        for text, step in zip((None, *other.texts), (*other._steps[:1], *other._steps), strict=True):
            self._append(step, text)

    def _append(self, step: CodeStep, text: bytes | None) -> None:
        if text is not None:
            self._at.setdefault(text, []).append(len(self.texts))
        self.texts.append(text)
        self._steps.append(step)

    def runs(self, added: Mapping[int, bytes]) -> Iterator[_Run]:
        """Yield the runs of consecutive lines that are here, with their steps."""
        run: dict[int, bytes] = {}
        for number, text in (*added.items(), (0, b"")):
            if run and (number - 1 not in run or text not in self._at):
                yield dict(self._with_steps(list(run.items())))
                run = {}
            if number and text in self._at:
                run[number] = text

    def _with_steps(self, run: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, tuple[CodeStep, bytes]]]:
        """Yield the lines of a run with their steps: as many as possible that were written together, and of equal ones
        the newest."""
        first = 0
        while first < len(run):
            places = self._at[run[first][1]][-_MOST_PLACES:]
            size, place = max((self._equal(run, first, place), place) for place in places)
            for number, text in run[first : first + size]:
                yield number, (self._steps[place], text)
                place += 1
            first += size

    def _equal(self, run: Sequence[tuple[int, bytes]], first: int, place: int) -> int:
        size = 0
        while (
            first + size < len(run)
            and place + size < len(self.texts)
            and run[first + size][1] == self.texts[place + size]
        ):
            size += 1
        return size


_Run = dict[int, tuple[CodeStep, bytes]]


class _Written:
    """What the steps of a thread wrote, by path, and the threads whose work it `joined`."""

    def __init__(self) -> None:
        self.files: dict[str, _WrittenFile] = {}
        self.joined: set[ThreadId] = set()

    def put(self, step: CodeStep, patch: Patch) -> None:
        for path, lines in patch.added.items():
            self.files.setdefault(path, _WrittenFile()).put(step, lines)

    def anywhere(self, name: str) -> _WrittenFile:
        """Return the lines of all files with a name, or else of all files: the file may have been moved."""
        named = [file for path, file in self.files.items() if path.rpartition("/")[2] == name]
        joined = _WrittenFile()
        for file in named or self.files.values():
            joined.extend(file)
        return joined


class Attributions:
    """What the threads of a project, or all of the store, have written in it."""

    def __init__(self, instance: Instance, project: Project) -> None:
        self._instance, self._project = instance, project
        self._holders: dict[Hash, list[ThreadId]] = defaultdict(list)
        self._written: dict[ThreadId, _Written] = defaultdict(_Written)
        self._steps = steps = list(self._read_steps())
        here = self._here(
            commit for step in steps for commit in (step.code.commit, step.code.base, step.begun)
        )
        self._absent = {step.node for step in steps if not {step.code.commit, step.code.base} <= here}
        self._steps_here = [step for step in steps if step.node not in self._absent]
        self._own: dict[str, _Own] = {}
        self._whole: dict[str, list[tuple[CodeStep, str]]] = defaultdict(list)
        self._bare: dict[str, list[tuple[CodeStep, str]]] = defaultdict(list)
        self._writers: dict[bytes, set[ThreadId]] = defaultdict(set)
        self._begun = self.commits({step.begun for step in steps if step.begun in here})
        self._older: dict[tuple[str, str], bool] = {}
        self._heirs: dict[ThreadId, set[ThreadId]] = defaultdict(set)
        for step in self._steps_here:
            self._heirs[step.thread].update(self._holders[step.node])
        self._read_own(here)
        self._recorded = self._read_records()

    # What the threads have

    def has_code(self, thread: ThreadId) -> bool:
        """Return whether a thread has code here."""
        return any(thread in self._holders[step.node] for step in self._steps_here)

    def thread_of(self, step: CodeStep, thread: ThreadId) -> ThreadId:
        """Return the thread in which a step has its number: `thread` if it has the step, else that of a branch whose
        work it joined."""
        return thread if thread in self._holders[step.node] else step.thread

    @property
    def absent(self) -> list[ThreadId]:
        """The threads of whose code some is not here."""
        return sorted({thread for node in self._absent for thread in self._holders[node]})

    @property
    def oldest(self) -> str:
        """The commit here at which the oldest code began, "" without any."""
        return oldest_of(self._begun.values(), self._project.is_ancestor)

    def commits(self, ids: Collection[str]) -> dict[str, ProjectCommit]:
        """Return commits of the project, by their ids."""
        if not ids:
            return {}
        lines = "".join(f"{item}\n" for item in ids).encode("ascii")
        return {item.commit: item for item in self._log("--no-walk=unsorted", "--stdin", stdin=lines)}

    def between(self, *revisions: str, most: int) -> list[ProjectCommit]:
        """Return the newest commits of a branch, newest first. Raises WorkspaceFailed."""
        return self._log("--topo-order", f"--max-count={most}", "--end-of-options", *revisions, "--")

    def _log(self, *words: str, stdin: bytes = b"") -> list[ProjectCommit]:
        content = read_git(self._project, *_LOG, *words, stdin=stdin, at_most=_LOG_BYTES)
        texts = content.decode("utf-8", "replace").split("\0")
        return [_commit(text) for text in texts[:-1]]  # the last is empty, or cut

    def _read_steps(self) -> Iterator[CodeStep]:
        """Yield the steps with code, oldest thread first; those of sub-workflows, which their own threads have, at the
        end."""
        threads = self._instance.threads
        places: dict[Hash, _Place] = {}
        nested = []
        heads = [head for head in threads.meant(archived=True) if isinstance(head, Head)]
        self._threads = [head.thread for head in reversed(heads)]
        for head in reversed(heads):
            new: list[PastStep] = []
            at: Hash | None = None
            try:
                for past in threads.past(head.node):
                    if past.hash in places:
                        at = past.hash
                        break
                    new.append(past)
                for past in reversed(new):
                    place = self._place(head.thread, past, places.get(at) if at else None)
                    if (step := place.step) is not None and place.is_nested:
                        nested.append(step)
                    elif step is not None:
                        yield step
                    places[past.hash] = place
                    at = past.hash
            except UwfError:  # uwf verify says so
                continue
            while at is not None:
                self._holders[at].append(head.thread)
                if (step := places[at].step) is not None:
                    self._join(head.thread, step.thread)
                at = places[at].before
        yield from nested

    def _place(self, thread: ThreadId, past: PastStep, before: _Place | None) -> _Place:
        step, store = past.step, self._instance.store
        number, begun, since = 1, "", 0
        if before is not None:
            number, begun, since = before.number + 1, before.begun, before.time
        else:
            since = store.get(step.start).timestamp // 1000
        time = past.time // 1000
        code = step_code(self._instance, step.detail) if step.role != USER else None
        if code is None:
            return _Place(step.prev, number, begun, time)
        begun = begun or code.base
        detail = store.get(step.detail)
        is_nested = is_kind(detail.type, "step")
        model = "" if is_nested else str(detail.payload.get("model") or "")
        code_step = CodeStep(thread, number, step.role, step.agent, model, past.hash, code, begun, since)
        return _Place(step.prev, number, begun, time, code_step, is_nested)

    def _here(self, commits: Iterable[str]) -> set[str]:
        return {name for name, commit in self._resolved(commits).items() if name == commit}

    def _resolved(self, names: Iterable[str]) -> dict[str, str]:
        """Return the commits here whose ids begin with these digits, unless several objects' do."""
        names = list(dict.fromkeys(filter(None, names)))
        lines = "".join(f"{name}\n" for name in names).encode("ascii", "replace")
        words = ("cat-file", "--buffer", "--batch-check=%(objectname) %(objecttype)")
        git = self._project.git(variables=NO_FETCH)
        rows = self._project.run(*words, stdin=lines, git=git).out.decode("utf-8", "replace").splitlines()
        pairs = ((name, *row.partition(" ")) for name, row in zip(names, rows, strict=False))
        # A branch may have the name of digits.
        return {name: oid for name, oid, _, kind in pairs if kind == "commit" and oid.startswith(name)}

    def _read_records(self) -> dict[str, tuple[ThreadId, ...]]:
        """Return the threads, oldest first, whose records say that a commit is theirs. Of a merge, so is the only
        commit that it brings, which a forge may have squashed."""
        names = extensions.landed(self._instance, self._threads)
        resolved = self._resolved(name for own in names.values() for name in own)
        recorded: dict[str, dict[ThreadId, None]] = defaultdict(dict)
        for thread in self._threads:
            for name in names.get(thread, ()):
                if name in resolved:
                    recorded[resolved[name]][thread] = None
        merges = [item for item in self.commits(list(recorded)).values() if len(item.parents) == 2]
        tips = self.commits(self._here(item.parents[1] for item in merges))
        for merge in merges:
            tip = tips.get(merge.parents[1])
            if tip and len(tip.parents) == 1 and self._project.is_ancestor(tip.parents[0], merge.parents[0]):
                recorded[tip.commit] |= recorded[merge.commit]
        return {commit: tuple(own) for commit, own in recorded.items()}

    def _read_own(self, here: Collection[str]) -> None:
        chains = self._chains()
        singles: list[tuple[CodeStep, tuple[str, ...]]] = []
        ranges: dict[tuple[str, ...], CodeStep] = {}
        ends: dict[ThreadId, list[CodeStep]] = defaultdict(list)
        since: dict[ThreadId, dict[str, None]] = defaultdict(dict)
        for step, chain in chains:
            if step.begun in here:
                since[step.thread][step.begun] = None
            for commit in reversed(chain):
                if (other := self._own.get(commit.commit)) is not None:  # of a sub-workflow, or a step before
                    self._join(step.thread, other.step.thread)
                    continue
                self._own[commit.commit] = _Own(step, commit)
                singles.append((step, (commit.commit,)))
                since[step.thread] |= dict.fromkeys(commit.parents[1:])
            if len(chain) > 1:
                ranges[step.code.commit, step.code.base] = step
            if chain:
                ends[step.thread].append(step)
        for own in list(self._own.values()):
            for parent in own.commit.parents[1:]:
                if (other := self._own.get(parent)) is not None:
                    self._join(own.step.thread, other.step.thread)
        for thread, steps in ends.items():
            for step in steps[-_MOST_RANGES:]:
                begins = [begin for begin in since[thread] if begin != step.code.commit]
                ranges |= {(step.code.commit, begin): step for begin in begins[-_MOST_RANGES:]}
        pairs = [*singles, *((step, pair) for pair, step in ranges.items())]
        for (step, pair), patch in zip(pairs, self._patches([pair for _, pair in pairs]), strict=True):
            how = PATCH if len(pair) == 1 else SQUASH
            if patch is None:
                continue
            is_again = any(other.thread == step.thread for other, _ in self._whole.get(patch.key, ()))
            if patch.key:
                self._whole[patch.key].append((step, how))
                self._bare[patch.bare_key].append((step, how))
            if how == PATCH and not is_again:  # what an agent rebased is of who wrote it
                self._written[step.thread].put(step, patch)
                for texts in patch.added.values():
                    for text in texts.values():
                        if text:
                            self._writers[text].add(step.thread)

    def _join(self, thread: ThreadId, other: ThreadId) -> None:
        if other != thread:
            self._written[thread].joined.add(other)

    def _patches(self, pairs: Sequence[tuple[str, ...]]) -> Iterator[Patch | None]:
        return read_patches(self._project, pairs)

    def _chains(self) -> list[tuple[CodeStep, list[ProjectCommit]]]:
        """Return the commits that each step made, newest first: those by first parents down to its base, made after the
        step before. What an agent merged or moved on to is not its own."""
        chains: list[tuple[CodeStep, list[ProjectCommit]]] = [(step, []) for step in self._steps_here]
        at = {place: step.code.commit for place, step in enumerate(self._steps_here) if step.code.is_changed}
        for _ in range(_MOST_COMMITS):
            if not at:
                break
            commits = self.commits(set(at.values()))
            for place, name in list(at.items()):
                step, chain = chains[place]
                commit = commits.get(name)
                is_own = commit is not None and (commit.time >= step.since or self._claims(commit, step))
                if commit is None or not is_own or name == step.begun:
                    del at[place]
                    continue
                chain.append(commit)
                if not commit.parents or commit.parents[0] == step.code.base:
                    del at[place]
                else:
                    at[place] = commit.parents[0]
        return chains

    # What commits stand on

    def of(self, commits: Sequence[ProjectCommit]) -> dict[str, Attribution]:
        """Return the attributions of commits, by their ids. What the record of a thread says is its claim too."""
        patches = self._patches([(item.commit,) for item in commits])
        claimed = [
            item._replace(claims=(*item.claims, *self._recorded.get(item.commit, ()))) for item in commits
        ]
        return {item.commit: self._of(item, patch) for item, patch in zip(claimed, patches, strict=True)}

    def _of(self, commit: ProjectCommit, patch: Patch | None) -> Attribution:
        if (own := self._own.get(commit.commit)) is not None:
            added = patch.added.items() if patch is not None else ()
            lines = {(path, number): own.step for path, texts in added for number in texts}
            return Attribution((Share(self._named(own.step, commit), COMMIT, lines, own.step),), patch)
        if patch is None or not patch.key:
            return Attribution(tuple(self._by_record(commit, patch, ())), patch)
        if (share := self._by_patch(commit, patch)) is not None:
            return Attribution((share,), patch)
        shares = tuple(self._by_lines(commit, patch))
        return Attribution((*shares, *self._by_record(commit, patch, shares)), patch)

    def _by_patch(self, commit: ProjectCommit, patch: Patch) -> Share | None:
        equal = [item for item in self._whole.get(patch.key, ()) if self._may_be(commit, item[0])]
        # Without the lines around it the same change is found again only if the commit says whose it is.
        equal += [
            (step, how)
            for step, how in self._bare.get(patch.bare_key, ())
            if self._claims(commit, step) and self._may_be(commit, step)
        ]
        if not equal:
            return None
        step, how = min(equal, key=lambda item: (not self._claims(commit, item[0]), item[1] != PATCH))
        if how == PATCH:
            lines = {(path, number): step for path, texts in patch.added.items() for number in texts}
        else:
            lines = self._lines(commit, patch, step.thread, least=0)
        return Share(self._named(step, commit), how, lines, step if how == PATCH else None)

    def _by_record(
        self, commit: ProjectCommit, patch: Patch | None, shares: Sequence[Share]
    ) -> Iterator[Share]:
        """Yield the share of a thread whose record names a commit, unless it has one. If its code is here, and can be
        compared, no further line is its own, else all that no other thread wrote. Of a thread with a single step with
        code they are that step's."""
        recorded = self._recorded.get(commit.commit, ())
        thread = next((item for item in commit.claims if item in recorded), None)
        if thread is None or any(share.thread == thread for share in shares):
            return
        steps = [step for step in self._steps if step.code.is_changed and thread in self._holders[step.node]]
        if not all(self._may_be(commit, step) for step in steps):
            return
        lines: dict[tuple[str, int], CodeStep | None] = {}
        step = steps[0] if len(steps) == 1 else None
        if patch is not None and any(item.node in self._absent for item in steps):
            taken = {place for share in shares for place in share.lines}
            places = ((path, number) for path, texts in patch.added.items() for number in texts)
            lines = dict.fromkeys((place for place in places if place not in taken), step)
        yield Share(thread, LANDED, lines, step)

    def _by_lines(self, commit: ProjectCommit, patch: Patch) -> Iterator[Share]:
        """Yield the shares of a commit that somebody has changed, or that has the work of several threads."""
        tally: Counter[ThreadId] = Counter()
        for texts in patch.added.values():
            for text in texts.values():
                tally.update(self._writers.get(text, ()))
        claimed = [thread for thread in tally if not self._heirs[thread].isdisjoint(commit.claims)]
        others = [thread for thread, _ in tally.most_common(_MOST_CANDIDATES) if thread not in claimed]
        taken: set[tuple[str, int]] = set()
        for thread in (*claimed, *others):
            lines = self._lines(commit, patch, thread, 1 if thread in claimed else _COPIED)
            lines = {place: step for place, step in lines.items() if place not in taken}
            if lines:
                taken |= lines.keys()
                yield Share(self._named(next(iter(lines.values())), commit, thread), LINES, lines)

    def _lines(
        self, commit: ProjectCommit, patch: Patch, thread: ThreadId, least: int
    ) -> dict[tuple[str, int], CodeStep]:
        """Return the lines of a commit that a thread, or one whose work it joined, wrote, if one run of them has at
        least so many letters and digits. A file that none of its steps wrote needs such a run of its own."""
        lines: dict[tuple[str, int], CodeStep] = {}
        longest = 0
        for writer in self._joined(thread):
            written = self._written[writer]
            for path, added in patch.added.items():
                file = written.files.get(path)
                needed = min(least, 1) if file is not None else _COPIED
                for run in (file or written.anywhere(path.rpartition("/")[2])).runs(added):
                    size = sum(letters(text) for _, text in run.values())
                    if size >= needed and all(self._may_be(commit, step) for step, _ in run.values()):
                        longest = max(longest, size)
                        for number, (step, _) in run.items():
                            lines.setdefault((path, number), step)
        return lines if longest >= least else {}

    def _joined(self, thread: ThreadId) -> list[ThreadId]:
        threads = [thread]
        for item in threads:  # it grows
            threads += sorted(self._written[item].joined - {*threads}) if item in self._written else []
        return threads

    def _may_be(self, commit: ProjectCommit, step: CodeStep) -> bool:
        """Return whether a commit may have come from a step, and not the step from it: its thread didn't begin with it,
        and unless it is claimed, it was made later."""
        key, begun = (commit.commit, step.begun), self._begun.get(step.begun)
        if key not in self._older:
            may_be_older = begun is not None and commit.time <= begun.time
            self._older[key] = may_be_older and self._project.is_ancestor(*key)
        last = self._own.get(step.code.commit)
        is_later = last is None or last.commit.time <= commit.time
        return not self._older[key] and (is_later or self._claims(commit, step))

    def _claims(self, commit: ProjectCommit, step: CodeStep) -> bool:
        return any(thread in commit.claims for thread in self._holders[step.node])

    def _named(self, step: CodeStep, commit: ProjectCommit, thread: ThreadId | None = None) -> ThreadId:
        """Return the thread that a step is of: of its forks one that the commit claims, else the oldest."""
        claimed = (holder for holder in self._holders[step.node] if holder in commit.claims)
        return next(claimed, thread or step.thread)


def oldest_of(commits: Collection[ProjectCommit], is_ancestor: Callable[[str, str], bool]) -> str:
    """Return the oldest commit, of those of one second the ancestor of the others; "" of none."""
    first = min((item.time for item in commits), default=0)
    oldest = ""
    for item in commits:
        if item.time == first and (not oldest or is_ancestor(item.commit, oldest)):
            oldest = item.commit
    return oldest


class _Place(NamedTuple):
    """A step in its thread. `begun` is the commit at which code began, "" before; `time` in Unix seconds. One that
    `is_nested` is a sub-workflow's."""

    before: Hash | None
    number: int
    begun: str
    time: int
    step: CodeStep | None = None
    is_nested: bool = False


def _commit(text: str) -> ProjectCommit:
    head, parents, author, times, *body = text.split("\n")
    written, _, time = times.partition(" ")
    claims = tuple(dict.fromkeys(map(ThreadId, _CLAIM.findall("\n".join(body)))))[:_MOST_CLAIMS]
    subject = next((line for line in body if line.strip()), "")
    return ProjectCommit(head, tuple(parents.split()), author, int(written), int(time), subject, claims)
