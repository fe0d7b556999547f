"""What an `update` hook of a server admits: each ref that is pushed, judged by the policy of the server's own
repository, and by the state that the whole push would make. `main` is what the hook calls, with the name, the old and
the new object of a ref.

Refused are: names that no kind of refs has, and those that block or shadow uwf's (`sync.ref_names`); what a pull would
refuse, which is judged by the same functions (`sync.admission`); records that don't meet the policy; policies that
nobody signed whom the one before names; edits of published definitions that don't meet a rule about them; a base branch
that hides steps; another end for an ended thread; and, unless the policy allows it, deletions and rewritten history.
What uwf deletes by itself, such as the active ref of an ended thread, may go once what replaces it is there. Any
failure refuses.

A push is judged at once by `judge_push`, before git takes its objects: its policy first, by the one in force, and then
the others by the policy that counts after the push, in whichever order its refs come. It only notes what is admitted;
the hook judges the others one by one, against what the admitted ones make.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from uwf_git.base.errors import Invalid, RequirementUnmet, StoreDamaged, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.objects import BLOB, COMMIT, TAG, id_of
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import archives, layout, ref_kinds
from uwf_git.store.archives import FoldedThread
from uwf_git.store.history import own_forks, parse_link, tagged_commit
from uwf_git.store.indexing import Store
from uwf_git.store.new_record import DELETIONS, REWRITES
from uwf_git.store.private_files import write_private
from uwf_git.sync import ref_names
from uwf_git.sync.admission import (
    Admission,
    allows,
    foreign_to,
    judging_by,
    rule_about,
    squatting,
)
from uwf_git.sync.base_branches import BASES, base_problem, branch_of_base

_NONE = "0" * 40
_FLEETS = "refs/uwf/fleets/"
_LARGEST_MARK = 10_000  # bytes of a fleet's mark
_MOST_MERGES = 20  # merges of merges that are looked through for the version that they took
_KEPT = 3600.0  # seconds for which verdicts are kept; a push may take long
_REWRITTEN = "it may not be rewritten: the new history does not contain the old one"


class Update:
    """A pushed update of a ref in a server's repository. `old` is None for a new ref, `new` for a deletion. `push` are
    the other refs of the push as it would leave them, None for a deleted one."""

    def __init__(
        self,
        store: Store,
        ref: str,
        old: Oid | None,
        new: Oid | None,
        push: Mapping[str, Oid | None] | None = None,
    ) -> None:
        self._store = store
        self._push = push
        self._repository = store.repository
        self._ref, self._old, self._new = ref, old, new

    def check(self) -> None:
        """Raise RequirementUnmet for what the policy refuses, StoreDamaged or Invalid for anything else that may
        not be pushed."""
        if self._new is not None and (problem := ref_names.problem(self._ref)):
            raise Invalid(problem)
        if self._ref.startswith(_FLEETS):
            self._mark()
        elif not self._ref.startswith((layout.NAMESPACE, layout.BRANCHES)):
            return
        elif self._ref.startswith(layout.BRANCHES):
            self._branch()
        elif self._ref.startswith(layout.WORK):
            self._code()
        elif not layout.is_shared_ref(self._ref):
            raise Invalid("no ref of that name is shared")
        elif self._new is None:
            self._deletion()
        else:
            self._record(self._ref, self._new)

    def _mark(self) -> None:
        if self._new is None:
            return
        kind, size = self._repository.header(self._new)
        if kind != BLOB or size > _LARGEST_MARK:
            raise Invalid("it is not the mark of a fleet")

    def _code(self) -> None:
        """Take the code of a thread, of which a policy says nothing."""
        if self._new is not None and self._repository.header(self._new)[0] != COMMIT:
            raise Invalid("it is not a commit")

    def _branch(self) -> None:
        if self._new is None:
            self._need(DELETIONS, "it may not be deleted")
            return
        if self._old is not None and not self._stands_on(self._new, self._old):
            self._need(REWRITES, _REWRITTEN)
        thread = self._ref.removeprefix(layout.THREAD_BRANCHES)
        base = self._ref if self._ref.startswith(BASES) else BASES + thread.removeprefix(layout.BRANCHES)
        if (commit := self._at(base)) is not None:
            self._base(base, commit)
        if self._ref.startswith(layout.THREAD_BRANCHES) and is_thread_id(thread):
            is_here = self._head(ThreadId(thread)) is not None
            self._valid(layout.THREADS + thread, self._new, may_rename=not is_here)
        for kind, row in ref_kinds.versioned().items():
            if self._ref.startswith(row.branches):
                self._definition(kind, row.prefix, self._ref.removeprefix(row.branches), self._new)

    def _base(self, ref: str, new: Oid) -> None:
        """A pull request compares a branch with its base, which may hide none of its steps."""
        branch = branch_of_base(ref)
        thread = branch.removeprefix(layout.THREAD_BRANCHES)
        there = self._head(ThreadId(thread)) if is_thread_id(thread) else None
        head = self._at(branch) or there
        if head is None or (is_thread_id(thread) and there is None and head != new):
            return  # nothing here says whether the thread is a fork
        tag = self._at(layout.FORKS + thread)
        base = tagged_commit(self._store, tag) if tag is not None else None
        others = [oid for name, oid in self._refs(layout.THREADS).items() if not name.endswith(thread)]
        if problem := base_problem(self._store, head, new, base, others):
            raise Invalid(problem)

    def _definition(self, kind: str, prefix: str, name: str, new: Oid) -> None:
        """Hold the branch of a definition to the rules about it."""
        rule = rule_about(self._repository, kind, name)
        version = self._version_in(new)
        if not rule:
            if layout.parse_message(self._repository.commit(version).message) is not None:
                self._valid(prefix + name, version)  # an edit on a forge is looked at by who pulls it
            return
        try:
            self._valid(prefix + name, version)
        except UwfError as error:
            raise RequirementUnmet(f"the trust policy wants {rule}: {error.message}") from None

    def _version_in(self, commit: Oid) -> Oid:
        """Return the new commit whose tree a merge took, else the commit."""
        version = self._repository.commit(commit)
        for _ in range(_MOST_MERGES):
            if layout.parse_message(version.message) is not None or len(version.parents) < 2:
                break
            for parent in version.parents:
                is_new = self._old is None or not self._stands_on(self._old, parent)
                if is_new and self._repository.commit(parent).tree == version.tree:
                    commit, version = parent, self._repository.commit(parent)
                    break
            else:
                break
        return commit

    def _record(self, ref: str, new: Oid) -> None:
        kind = ref_kinds.kind_of(ref)
        assert kind is not None
        if self._old is not None and ref != layout.POLICY and kind.target != "pause":
            if kind.target in ("end", "fork"):
                self._need(REWRITES, f"the {kind.target} of a thread may not be replaced")
            elif not self._stands_on(new, self._old):
                self._need(DELETIONS if kind.target == "fold" else REWRITES, _REWRITTEN)
        if ref.startswith(layout.THREADS):
            self._not_beside_an_end(ref.removeprefix(layout.THREADS), new)
        self._valid(ref, new)
        if kind.of_thread:
            self._one_thread(ref, new)
        if ref.startswith(layout.ARCHIVE):
            self._ends_what_is_here(ref.removeprefix(layout.ARCHIVE), new)
        elif ref.startswith(layout.FOLDED):
            for thread, entry in archives.read(self._repository, new).threads.items():
                self._ends_what_is_here(thread, entry.tag, entry.ended.target)

    def _one_thread(self, ref: str, new: Oid) -> None:
        """Hold what is beside a thread to its head, in whichever order they are pushed."""
        thread = layout.thread_of(ref)
        is_head = ref.startswith((layout.THREADS, layout.ARCHIVE))
        head = (tagged_commit(self._store, new) or new) if is_head else self._head(thread)
        if head is None:
            if self._push is not None:
                raise Invalid(f"there is no thread {thread}: push it before, or together with this")
            return
        names = [prefix + thread for prefix in layout.of_threads()] if is_head else [ref]
        for name in names:
            oid = new if name == ref else self._at(name)
            if oid is not None and (problem := foreign_to(self._store, head, name, oid)):
                raise StoreDamaged(problem)
        if ref.startswith(layout.FORKS) and self._is_own_fork(thread):
            raise StoreDamaged(f"{ref} makes thread {thread} a fork of its own forks")

    def _is_own_fork(self, thread: ThreadId) -> bool:
        origins: dict[ThreadId, set[ThreadId]] = {}
        pending = [thread]
        while pending:
            at = pending.pop()
            if at in origins:
                continue
            tag = self._new if at == thread else self._at(layout.FORKS + at)
            data = self._repository.read(tag)[1] if tag is not None else None
            link = parse_link(at, data) if data is not None else None
            origins[at] = {link.origin} if link is not None else set()
            pending += origins[at]
        return thread in own_forks(origins)

    def _head(self, thread: ThreadId) -> Oid | None:
        """Return the last commit of a thread, as the push leaves it."""
        end = next(self._ends(thread), None)
        if end is not None:
            return tagged_commit(self._store, end[1]) or end[1]
        return self._at(layout.THREADS + thread)

    def _at(self, name: str) -> Oid | None:
        """Return where a ref is after the push."""
        if self._push is not None and name in self._push:
            return self._push[name]
        return self._new if name == self._ref else self._repository.ref(name)

    def _refs(self, prefix: str) -> dict[str, Oid]:
        pushed = {name: oid for name, oid in (self._push or {}).items() if name.startswith(prefix)}
        refs: dict[str, Oid | None] = {**self._repository.refs(prefix), **pushed}
        return {name: oid for name, oid in refs.items() if oid is not None}

    def _ends_what_is_here(self, thread: str, tag: Oid, target: Oid | None = None) -> None:
        active = self._at(layout.THREADS + thread)
        if active is not None and not self._stands_on(target or tag, active):
            self._need(REWRITES, f"the end of thread {thread} does not stand on its head here: pull first")
        if any(end != tag for end, _ in self._ends(thread)):
            self._need(REWRITES, f"the end of thread {thread} may not be replaced")

    def _not_beside_an_end(self, thread: str, new: Oid) -> None:
        end = next(self._ends(thread), None)
        if end is not None and not self._stands_on(end[1], new):
            raise RequirementUnmet(
                f"thread {thread} has ended here; pull: steps that it lacks become a thread of their own"
            )

    def _ends(self, thread: str) -> Iterator[tuple[Oid, Oid]]:
        """Yield the tag of each end of a thread here, and an object that stands on its last step: the tag itself, or,
        since a fold's tags are no objects, the commit."""
        for tag in dict.fromkeys(
            (self._repository.ref(layout.ARCHIVE + thread), self._at(layout.ARCHIVE + thread))
        ):
            if tag is not None:
                yield tag, tag
        for entry in self._folded.get(ThreadId(thread), ()):
            yield entry.tag, entry.ended.target

    @cached_property
    def _folded(self) -> Mapping[ThreadId, Sequence[FoldedThread]]:
        """The threads in folds here, each in one as a rule."""
        threads: dict[ThreadId, list[FoldedThread]] = {}
        for fold in self._refs(layout.FOLDED).values():
            for thread, entry in archives.read(self._repository, fold).threads.items():
                threads.setdefault(thread, []).append(entry)
        return threads

    def _valid(self, ref: str, new: Oid, may_rename: bool = False) -> None:
        from uwf_git.verify.findings import UNTRUSTED
        from uwf_git.verify.whole import ReceivedRefsVerifier

        if ref == layout.POLICY and self._old is not None and self._stands_on(self._old, new):
            raise RequirementUnmet("the policy may not be rolled back")
        received = ReceivedRefsVerifier(self._store)
        findings = (
            received.findings(ref, new, lambda thread: may_rename or self._is_fork(thread))
            or squatting(self._store, ref, new)
            or Admission(self._store).findings(ref, new)
        )
        received.close()
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            untrusted = findings[0].code in UNTRUSTED
            raise (RequirementUnmet if untrusted else StoreDamaged)(f"{findings[0].message}{more}")

    def _is_fork(self, thread: ThreadId) -> bool:
        folded = self._folded.get(thread, ())
        return self._at(layout.FORKS + thread) is not None or any(item.fork is not None for item in folded)

    def _deletion(self) -> None:
        kind = ref_kinds.kind_of(self._ref)
        if self._ref == layout.POLICY:
            raise RequirementUnmet("the policy may not be deleted")
        if self._old is None or (kind is not None and (kind.target == "pause" or self._is_superseded())):
            return
        self._need(DELETIONS, "it may not be deleted")

    def _is_superseded(self) -> bool:
        """Return whether another ref here has what this one leads to, as an end has of an active thread."""
        old, thread = self._old, self._ref.rpartition("/")[2]
        assert old is not None
        if not layout.is_thread_ref(self._ref):
            return False
        if self._ref.startswith(layout.THREADS):
            return any(self._stands_on(last, old) for _, last in self._ends(thread))
        for entry in self._folded.get(ThreadId(thread), ()):
            if self._ref.startswith(layout.FORKS):
                return entry.fork is not None and id_of(TAG, entry.fork) == old
            if self._ref.startswith(layout.ARCHIVE):
                return entry.tag == old
            kept = entry.attempts if self._ref.startswith(layout.ATTEMPTS) else entry.ended.target
            return kept is not None and self._stands_on(kept, old)
        return False

    def _need(self, word: str, what: str) -> None:
        if not allows(self._repository, word):
            raise RequirementUnmet(f"{what} (a maintainer may allow it in the trust policy: allow: [{word}])")

    def _stands_on(self, new: Oid, old: Oid) -> bool:
        from uwf_git.git.program import Git

        for oid in (new, old):
            if self._repository.header(oid)[0] not in (COMMIT, TAG):
                return False
        git = Git(self._repository.path, variables=self._repository.variables)
        done = git.run("merge-base", "--is-ancestor", str(old), str(new), check=False)
        return done.code == 0


def check(git_dir: Path, ref: str, old: str, new: str, verdicts: Path | None = None) -> None:
    """Judge an update in a repository, which `judge_push` did not admit, if it wrote `verdicts`. `old` and `new` are
    ids, or forty zeros for none. Raises UwfError."""
    store = Store(Repository(git_dir))
    try:
        push = _admitted(verdicts) if verdicts is not None else None
        with judging_by((push or {}).get(layout.POLICY) if ref != layout.POLICY else None):
            Update(store, ref, _oid(old), _oid(new), push).check()
    finally:
        store.index.close()


def _admitted(verdicts: Path) -> dict[str, Oid | None] | None:
    """Return the refs of a push that were admitted, None if it was not judged at once."""
    try:
        lines = verdicts.read_text("utf-8", "surrogateescape").splitlines()
        return {ref: _oid(new) for ref, _, new in (line.split(" ") for line in lines)}
    except (OSError, ValueError):
        return None


def judge_push(git_dir: Path, updates: Iterable[tuple[str, str, str]], verdicts: Path) -> None:
    """Write the updates (ref, old, new) that are admitted, a line each. An admitted policy judges the others."""
    all_updates = list(updates)
    store = Store(Repository(git_dir))
    if quarantine := os.environ.get("GIT_QUARANTINE_PATH"):
        store.repository.borrow(Path(quarantine))
    policy = [
        update for update in all_updates if update[0] == layout.POLICY and _is_admitted(store, update, {})
    ]
    others = [update for update in all_updates if update[0] != layout.POLICY]
    with judging_by(_oid(policy[0][2]) if policy else None):
        while True:  # what is refused leaves another state for the others
            push = {ref: _oid(new) for ref, _, new in policy + others}
            kept = [other for other in others if _is_admitted(store, other, push)]
            if len(kept) == len(others):
                break
            others = kept
    store.index.close()
    for past in verdicts.parent.glob("*"):
        with suppress(OSError):
            if past.stat().st_mtime < time.time() - _KEPT:
                past.unlink()
    lines = "".join(f"{ref} {old} {new}\n" for ref, old, new in policy + others)
    write_private(verdicts, lines.encode("utf-8", "surrogateescape"))


def _is_admitted(store: Store, update: tuple[str, str, str], push: Mapping[str, Oid | None]) -> bool:
    ref, old, new = update
    with suppress(Exception):  # the hook says why
        Update(store, ref, _oid(old), _oid(new), push).check()
        return True
    return False


def _oid(text: str) -> Oid | None:
    return None if text == _NONE else Oid(hex=text)


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the update that git passes to its hook: REF OLD NEW, and maybe the FILE of `--push`. Print the reason of a
    refusal; return the exit status. With `--push FILE`, judge the push on standard input, lines of OLD NEW REF, for
    FILE."""
    words = sys.argv[1:] if argv is None else argv
    git_dir = Path(os.environ.get("GIT_DIR", ".")).absolute()
    if words[0] == "--push":
        lines = (line.rstrip(b"\n").decode("utf-8", "surrogateescape") for line in sys.stdin.buffer)
        rows = (line.split(" ", 2) for line in lines)
        judge_push(git_dir, [(ref, old, new) for old, new, ref in rows], Path(words[1]).absolute())
        return 0
    ref, old, new, *verdicts = words
    try:
        check(git_dir, ref, old, new, Path(verdicts[0]).absolute() if verdicts else None)
    except (Exception, SystemExit) as error:  # whatever it is, the ref was not judged
        message = error.message if isinstance(error, UwfError) else f"{type(error).__name__}: {error}"
        sys.stderr.write(f"uwf refuses {one_line(ref, 120, '?')}: {one_line(message, 300)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
