"""Pushing, pulling and verifying, against plain git moving the same objects."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pygit2
from measure import Turn, fastest, process, run
from pygit2.enums import SortMode
from rows import Point, Row, Size, compared, cost
from stores import BY_CONDITION, BY_STATUS, UWF, Lab

from uwf_git.format.ids import new_thread_id
from uwf_git.store.instance import Instance


def _git(*args: object, at: Path | None = None) -> str:
    where = ["--git-dir", str(at)] if at else []
    return subprocess.run(
        ["git", *where, *map(str, args)], check=True, capture_output=True, text=True
    ).stdout.strip()


def _update_refs(git_dir: Path, orders: str) -> None:
    command = ["git", "--git-dir", str(git_dir), "update-ref", "--stdin"]
    subprocess.run(command, input=orders, text=True, check=True)


def _plain(lab: Lab, what: str) -> Turn:
    git = shutil.which("git") or "git"
    return process([git, "--git-dir", str(lab.git_dir), what, "-q", "origin"], lab.environ)


class Shared:
    """A store with threads, and a bare repository that is its origin."""

    def __init__(
        self, folder: Path, threads: int, steps: int, bare: Path | None = None, url: str | None = None
    ) -> None:
        self.lab = Lab(folder / "store")
        self.ids = self.lab.threads(threads, steps)
        self.bare = bare or folder / "shared.git"
        if bare is None:
            _git("init", "--quiet", "--bare", "--object-format=sha1", self.bare)
        self.lab.instance.remotes.add("origin", url or str(self.bare))
        _git("gc", "--quiet", at=self.lab.git_dir)

    def push(self) -> None:
        """Brings the remote up to date."""
        run([UWF, "push"], self.lab.environ)

    def forget(self) -> None:
        """An empty remote again, of which nothing is known here."""
        for where, prefix in ((self.bare, "refs"), (self.lab.git_dir, "refs/uwf/remotes")):
            refs = _git("for-each-ref", "--format=delete %(refname)", prefix, at=where)
            _update_refs(where, refs + "\n" * bool(refs))
        _git("prune", "--expire=now", at=self.bare)
        _git("gc", "--quiet", "--prune=now", at=self.bare)


def pushing(folder: Path, size: Size) -> Iterator[Row]:
    """Everything to an empty remote."""
    threads, steps = size.shared, 5
    shared = Shared(folder, threads, steps)
    start = process([sys.executable, "-c", "import pygit2, click"], shared.lab.environ)
    plain = _plain(shared.lab, "push")
    ours = process([UWF, "push"], shared.lab.environ)

    def anew(turn: Turn) -> Turn:
        def afresh() -> float:
            shared.forget()
            return turn()

        return afresh

    mine, git, begin = fastest(size.few_turns, anew(ours), anew(plain), start)
    yield compared(f"uwf push, {threads} threads of {steps} steps / git push + start", mine, git + begin, 1.3)


def pulling(folder: Path, size: Size) -> Iterator[Row]:
    """A pull that finds nothing new among many known threads."""
    threads, steps = size.many, 1
    shared = Shared(folder / "a", threads, steps)
    shared.push()
    other = Lab(folder / "b")
    other.instance.remotes.add("origin", str(shared.bare))
    run([UWF, "pull"], other.environ)
    for where in (other.git_dir, shared.bare, shared.lab.git_dir):
        _git("gc", "--quiet", at=where)
    start = process([sys.executable, "-c", "import pygit2, click"], other.environ)
    plain = _plain(other, "fetch")
    ours = process([UWF, "pull"], other.environ)
    mine, git, begin = fastest(size.few_turns, ours, plain, start)
    yield compared(f"uwf pull, nothing new of {threads:,} / git fetch + start", mine, git + begin, 1.3)


def exchanging_a_step(folder: Path, size: Size) -> Iterator[Row | Point]:
    """One new step to and from a remote with few, many and very many threads, all of which are known here."""
    for count in size.archived:
        yield from _among(folder / str(count), count, size.few_turns)


def _among(folder: Path, count: int, turns: int) -> Iterator[Row | Point]:
    shared = Shared(folder / "a", 2, 1)
    shared.push()
    other = Lab(folder / "b")
    other.instance.remotes.add("origin", str(shared.bare))
    run([UWF, "pull"], other.environ)
    growing, still = (f"refs/uwf/threads/{each}" for each in shared.ids)
    tip = str(shared.lab.instance.store.repository.ref(still))
    names = [f"threads/{new_thread_id()}" for _ in range(count)]
    tip = nameless(tip, shared.bare, shared.lab.git_dir, other.git_dir)
    packed(shared.bare, {f"refs/uwf/{name}": tip for name in names})
    for lab in (shared.lab, other):
        _known(lab, names, tip)
    start = process([sys.executable, "-c", "import pygit2, click"], other.environ)

    def grown(turn: Turn, arrives: bool) -> Turn:
        def afresh() -> float:
            run([UWF, "pull"], other.environ)  # whatever plain git has fetched the last time
            shared.lab.grow(shared.ids[0], 1)
            if arrives:
                _git("push", "--quiet", "origin", growing, at=shared.lab.git_dir)
            return turn()

        return afresh

    for what, lab, arrives in (("push", shared.lab, False), ("pull", other, True)):
        plain = _plain(lab, "fetch" if arrives else "push")
        ours = process([UWF, what], lab.environ)
        mine, git, begin = fastest(turns, grown(ours, arrives), grown(plain, arrives), start)
        like = "git fetch" if arrives else "git push"
        yield Point("exchange", f"uwf {what}", count, mine * 1000)
        yield Point("exchange", f"{like} + start", count, (git + begin) * 1000)
        yield compared(
            f"uwf {what} of a step among {count:,} threads / {like} + start", mine, git + begin, 1.2
        )


def some_of_many(folder: Path, size: Size) -> Iterator[Row]:
    """One thread's new step fetched by its id from a remote with very many, and the steps of some threads pushed
    together instead of one after the other."""
    count, several = size.many, 20
    shared = Shared(folder / "a", several, 1)
    shared.push()
    other = Lab(folder / "b")
    other.instance.remotes.add("origin", str(shared.bare))
    run([UWF, "pull"], other.environ)
    thread = shared.ids[0]
    tip = str(shared.lab.instance.store.repository.ref(f"refs/uwf/threads/{shared.ids[1]}"))
    names = [f"threads/{new_thread_id()}" for _ in range(count)]
    tip = nameless(tip, shared.bare, shared.lab.git_dir, other.git_dir)
    packed(shared.bare, {f"refs/uwf/{name}": tip for name in names})
    for lab in (shared.lab, other):
        _known(lab, names, tip)
    start = process([sys.executable, "-c", "import pygit2, click"], other.environ)
    ref = f"refs/uwf/threads/{thread}"
    git = [shutil.which("git") or "git", "--git-dir", str(other.git_dir), "fetch", "-q", "origin"]
    plain = process([*git, f"+{ref}:refs/uwf/remotes/origin/threads/{thread}"], other.environ)
    ours = process([UWF, "pull", "origin", thread], other.environ)

    def grown(turn: Turn) -> Turn:
        def afresh() -> float:
            run(
                [UWF, "pull", "origin", thread], other.environ
            )  # whatever plain git has fetched the last time
            shared.lab.grow(thread, 1)
            _git("push", "--quiet", "origin", f"{ref}:{ref}", at=shared.lab.git_dir)
            return turn()

        return afresh

    mine, theirs, begin = fastest(size.few_turns, grown(ours), grown(plain), start)
    what = f"uwf pull origin ID, a step among {count:,} threads / git fetch of it + start"
    yield compared(what, mine, theirs + begin, 1.5)

    def all_grown(calls: Sequence[Sequence[str]]) -> Turn:
        def afresh() -> float:
            for each in shared.ids:
                shared.lab.grow(each, 1)
            return sum(run([UWF, "push", "origin", *ids], shared.lab.environ) for ids in calls)

        return afresh

    together, apart = fastest(
        size.few_turns, all_grown([shared.ids]), all_grown([[each] for each in shared.ids])
    )
    what = f"uwf push of {several} threads' steps, {count:,} on the remote / {several} pushes"
    yield compared(what, together, apart, 0.15)


def verifying(folder: Path, size: Size) -> Iterator[Row]:
    """What `uwf verify` takes for the nodes of a long thread, its start included."""
    steps = size.long
    for name, definition in (("status", BY_STATUS), ("a condition", BY_CONDITION)):
        lab = Lab(folder / name, definition)
        thread = lab.threads(1, steps)[0]
        _git("gc", "--quiet", at=lab.git_dir)
        (seconds,) = fastest(size.few_turns, process([UWF, "verify", thread], lab.environ))
        nodes = lab.instance.store.index.node_count()
        what = f"uwf verify, 1,000 nodes ({steps:,} steps routed by {name})"
        yield cost(what, seconds * 1000 / nodes, 0.5)


def verifying_signatures(folder: Path, size: Size) -> Iterator[Row]:
    """`uwf verify --signatures` of a long thread signed by ssh, beside `git verify-commit` of the same commits, as one
    process each. git starts two processes of ssh-keygen for each commit in both; ours verifies everything else too."""
    lab = Lab(folder)
    key, allowed = folder / "key", folder / "allowed"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    allowed.write_text(f"ada@example.com {key.with_suffix('.pub').read_text()}")
    settings = {
        "user.email": "ada@example.com",
        "user.name": "Ada",
        "user.signingKey": key,
        "gpg.format": "ssh",
        "gpg.ssh.allowedSignersFile": allowed,
        "commit.gpgSign": "true",
    }
    for name, value in settings.items():
        _git("config", name, str(value), at=lab.git_dir)
    lab.instance = Instance(lab.location, {})
    thread = lab.threads(1, size.signed)[0]
    _git("gc", "--quiet", at=lab.git_dir)
    listed = ["git", "--git-dir", str(lab.git_dir), "rev-list", "--first-parent", f"-{size.signed}"]
    commits = subprocess.run(
        [*listed, f"refs/uwf/threads/{thread}"], check=True, capture_output=True, text=True
    ).stdout.split()
    git = f"exec git --git-dir '{lab.git_dir}' verify-commit \"$@\" 2>/dev/null"
    theirs = process([str(shutil.which("sh")), "-c", git, "git", *commits], lab.environ)
    ours, bare = fastest(1, process([UWF, "verify", thread, "--signatures"], lab.environ), theirs)
    yield compared(
        f"uwf verify --signatures, {size.signed:,} signed steps / git verify-commit", ours, bare, 2
    )


def crowded(folder: Path, size: Size) -> Iterator[Row]:
    """A push of one step to a remote with many archived threads. Folded, they are one ref a month, which
    is as good as the fewest here."""
    counts = size.archived
    few: float | None = None
    for count in counts:
        shared = Shared(folder / str(count), 1, 2)
        archived = shared.lab.threads(1, 2)[0]
        threads = shared.lab.instance.threads
        threads.archive(threads.head(archived), "completed")
        shared.push()
        tag = shared.lab.instance.store.repository.ref(f"refs/uwf/archive/{archived}")
        ids = sorted({str(new_thread_id()) for _ in range(count)})
        packed(shared.bare, {f"refs/uwf/archive/{each}": str(tag) for each in ids})
        places = ("refs/uwf/archive/", "refs/uwf/remotes/origin/archive/")
        packed(shared.lab.git_dir, {prefix + each: str(tag) for prefix in places for each in ids})
        seconds = _one_step(shared, size.few_turns)
        few = few or seconds
        if count > counts[0]:
            what = f"uwf push of a step, {count:,} archived on the remote / {counts[0]:,}"
            yield compared(what, seconds, few, 10)


def _one_step(shared: Shared, turns: int) -> float:
    ours = process([UWF, "push"], shared.lab.environ)

    def grown() -> float:
        shared.lab.grow(shared.ids[0], 1)
        return ours()

    return fastest(turns, grown)[0]


def nameless(tip: str, *git_dirs: Path) -> str:
    """Write the history of a thread as earlier versions did, without the thread's id, so that refs of many ids may
    lead to it. Returns its last commit."""
    for git_dir in git_dirs:
        repository = pygit2.Repository(str(git_dir))
        parents: list[pygit2.Oid] = []
        for commit in repository.walk(tip, SortMode.TOPOLOGICAL | SortMode.REVERSE):
            lines = commit.message.splitlines(keepends=True)
            message = "".join(line for line in lines if not line.startswith("Uwf-Thread:"))
            people = commit.author, commit.committer
            parents = [repository.create_commit(None, *people, message, commit.tree_id, parents)]
    return str(parents[0])


def _known(lab: Lab, names: Sequence[str], tip: str) -> None:
    """Makes refs that are here as they are on the remote."""
    packed(
        lab.git_dir, {f"refs/uwf/{where}{name}": tip for where in ("", "remotes/origin/") for name in names}
    )
    run([UWF, "thread", "list"], lab.environ)  # what was put there by hand is taken in


def packed(git_dir: Path, refs: Mapping[str, str]) -> None:
    """More refs in packed-refs: pushing tens of thousands would take minutes, and isn't what is measured."""
    _git("pack-refs", "--all", at=git_dir)
    path = git_dir / "packed-refs"
    there = [line.split(" ") for line in path.read_text().splitlines() if line[0] not in "#^"]
    rows = sorted([*((name, oid) for oid, name in there), *refs.items()])
    path.write_text("# pack-refs with: sorted \n" + "".join(f"{oid} {name}\n" for name, oid in rows))
