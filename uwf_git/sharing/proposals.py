"""Proposed versions of workflows: looked at on a branch, and taken over when they are accepted.

    refs/uwf/proposals/<branch>          a proposed version, on this machine alone
    refs/heads/uwf/proposals/<branch>    the same on a remote, where people review it
    refs/heads/uwf/workflows/<name>      a registered version that was published, which it is merged into

A proposal is a version commit like any other, on top of the registered one; only the registry doesn't
point at it. Accepting it moves `refs/uwf/workflows/<name>`. What a forge made of it, a merge, a squash or
an edit, is no version commit, or one that breaks the format: then one is made of its definition, with the forge's
commit as a second parent, so that who merged stays in the history and both sides go on from there. Who and
when are those of the forge's commit: whoever takes it over on the same version makes the same commit.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.errors import HeadMoved, Invalid, NotFound, StoreDamaged, Usage, UwfError
from uwf_git.git.program import Git
from uwf_git.git.repository import BLOB_MODE, Entry, Oid, Repository, TooLarge
from uwf_git.sharing.publish import (
    HEADS,
    PROPOSED,
    Published,
    branch_name,
    is_ancestor,
    publish_branch,
    remote_branches,
    short,
    shown_by,
)
from uwf_git.sharing.tracking import bring
from uwf_git.store import layout
from uwf_git.store.index import Overlay
from uwf_git.store.taking_in import Store
from uwf_git.store.versions import Registry, Version
from uwf_git.text import nearest, one_line
from uwf_git.timelimit import TimeExceeded, time_limit
from uwf_git.values import cbor
from uwf_git.values.documents import MAX_BYTES
from uwf_git.values.ids import Hash
from uwf_git.values.kinds import parse_workflow
from uwf_git.values.node import from_blob
from uwf_git.values.types import BUILTIN, CODE, DEFINITIONS, JAVASCRIPT, PYTHON

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.remotes import Remote
    from uwf_git.verify.findings import Finding
    from uwf_git.workflow.compile import Compiled

MOST_VERSIONS = 1000
LARGEST_FOLDER = 1 << 20
SECONDS = 30.0  # for what somebody else wrote to compile
CODE_FILES = (DEFINITIONS[JAVASCRIPT], DEFINITIONS[PYTHON])
_FILE_MODES = (BLOB_MODE, "100755")


class Proposal(NamedTuple):
    """A proposed version. `base` is the registered version's commit, None where the name is new; `changed`
    is False where that was proposed before, or is what is registered."""

    branch: str
    name: str
    hash: Hash
    commit: str
    base: str | None
    changed: bool

    @property
    def is_registered(self) -> bool:
        """Whether nothing is proposed: the registry has it."""
        return self.commit == self.base


class Accepted(NamedTuple):
    """How a proposal got in. `case` is `fast-forward`, `merged` (a version commit was made of it) or
    `unchanged`; `before` is the commit the registry was at; `source` the commit that was accepted."""

    version: Version
    case: str
    before: str | None
    source: str

    def to_json(self) -> dict[str, Any]:
        """The form that is printed."""
        return {
            "name": self.version.name,
            "hash": self.version.hash,
            "commit": self.version.commit,
            "case": self.case,
            "before": self.before,
            "source": self.source,
        }


class Taken(NamedTuple):
    """What became of a published workflow that moved on a remote: `accepted`, or the `problem`: HeadMoved
    where it was changed otherwise here meanwhile, Invalid or StoreDamaged where its data is bad."""

    name: str
    source: str
    accepted: Accepted | None
    problem: UwfError | None

    def to_json(self) -> dict[str, Any]:
        """The form that is printed."""
        return {
            "workflow": self.name,
            "accepted": self.accepted.to_json() if self.accepted else None,
            "problem": self.problem.message if self.problem else None,
            "hint": self.problem.hint if self.problem else None,
        }


def propose(instance: Instance, compiled: Compiled, branch: str) -> Proposal:
    """Makes a version commit on top of the registered one, and of what was proposed there before. Moves
    `refs/uwf/proposals/<branch>`, and no other ref. Raises Invalid for a bad name, and where the proposal
    is about another workflow."""
    branch = proposal_name(branch)
    repository, registry = instance.store.repository, instance.registry
    name = compiled.workflow.name
    ref = layout.PROPOSALS + branch
    _refuse_neighbours(repository, branch)
    registered = repository.ref(layout.WORKFLOWS + name)
    before = repository.ref(ref)
    if before is not None:
        about = instance.store.take_in(before).name
        if about != name:
            raise Invalid(
                f"proposal {branch} is about workflow {about!r}, not {name!r}", "name another --branch"
            )
    parents = _newest(Git(repository.path), registered, before)
    base = str(registered) if registered else None
    if parents and all(registry.holds(parent, compiled) for parent in parents):
        return Proposal(branch, name, compiled.hash, str(parents[0]), base, False)
    commit = registry.write(compiled, parents)
    repository.put_ref(ref, before, commit)
    return Proposal(branch, name, compiled.hash, str(commit), base, True)


def publish_proposal(instance: Instance, git: Git, remote: Remote, proposal: Proposal) -> Published:
    """Pushes a proposal to a remote's `refs/heads/uwf/proposals/<branch>`, and what it is to be merged
    into, the registered version, to `refs/heads/uwf/workflows/<name>`. Raises RemoteFailed, HeadMoved."""
    base = Oid(hex=proposal.base) if proposal.base is not None else None
    another = f"uwf workflow propose FILE --branch BRANCH --remote {remote.name}"
    return publish_branch(
        instance,
        git,
        remote,
        PROPOSED + proposal.branch,
        Oid(hex=proposal.commit),
        layout.WORKFLOW_BRANCHES + proposal.name,
        base,
        another,
    )


def accept(instance: Instance, git: Git, branch: str, remote: Remote | None) -> Accepted:
    """Registers a proposal: of a remote its branch `uwf/proposals/<branch>`, else its branch `<branch>`;
    without a remote the one made here. Moves `refs/uwf/workflows/<name>`, and deletes
    `refs/uwf/proposals/<branch>` once that is in. Raises NotFound, Invalid for a definition with errors,
    StoreDamaged for objects that are, HeadMoved where the registry went another way since it was proposed."""
    branch = proposal_name(branch)
    repository = instance.store.repository
    local = repository.ref(layout.PROPOSALS + branch)
    if remote is not None:
        source = _fetched(git, repository, remote, branch)
    elif local is not None:
        source = local
    else:
        known = [name.removeprefix(layout.PROPOSALS) for name in repository.ref_names(layout.PROPOSALS)]
        raise NotFound(
            f"no proposal {branch!r} here",
            nearest(branch, known) or "take a remote's with: --remote origin",
        )
    published = branch.removeprefix(short(layout.WORKFLOW_BRANCHES))
    if remote is not None and published != branch:
        wording = _of_published(repository, remote.name, published, source)
    else:
        wording = _of_proposal(branch, remote)
    accepted = _take(instance, git, source, wording)
    if local is not None and is_ancestor(git, local, Oid(hex=accepted.version.commit)):
        repository.delete_ref(layout.PROPOSALS + branch, local)
    return accepted


def take_merged(instance: Instance, remote: str) -> list[Taken]:
    """Takes over what was merged into published workflows on a remote, as its tracking refs have it.
    Moves `refs/uwf/workflows/<name>` of workflows that are registered here. What can't be taken over is
    told with its problem and stops no other. Branches with nothing new are left out."""
    repository = instance.store.repository
    prefix = layout.tracking(remote, layout.WORKFLOW_BRANCHES)
    git = Git(repository.path)
    found: list[Taken] = []
    for ref, source in sorted(repository.refs(prefix).items()):
        name = ref.removeprefix(prefix)
        try:
            registered = repository.ref(layout.WORKFLOWS + name)
            if registered is None or source == registered or is_ancestor(git, source, registered):
                continue
            accepted = _take(instance, git, source, _of_published(repository, remote, name, source), name)
            found.append(Taken(name, str(source), accepted, None))
        except UwfError as error:
            found.append(Taken(name, str(source), None, error))
    return found


class _Wording(NamedTuple):
    """How messages name what is taken over, and what to do where the registry went another way, and where
    the definition has errors."""

    what: str
    again: str
    correct: str


def _of_proposal(branch: str, remote: Remote | None) -> _Wording:
    propose = f"uwf workflow propose FILE --branch {shlex.quote(branch)}"
    propose += f" --remote {remote.name}" if remote is not None else ""
    return _Wording(
        f"proposal {branch}", f"put both changes into one file, then: {propose}", f"correct it: {propose}"
    )


def _of_published(repository: Repository, remote: str, name: str, source: Oid) -> _Wording:
    what = f"{shlex.quote(name)} --remote {remote}"
    ours = f"uwf unpublish {what} --force && uwf publish workflow {what}"
    return _Wording(
        f"branch uwf/workflows/{name} of {remote}",
        f"see it: {shown_by(repository, source)}; put both changes into one file, then: "
        f"uwf workflow put FILE && {ours}",
        f"correct it on the branch, or put back the version from here: {ours}",
    )


def _take(instance: Instance, git: Git, source: Oid, wording: _Wording, name: str | None = None) -> Accepted:
    """Registers what a commit defines; `name` is the workflow that it must be."""
    repository, registry = instance.store.repository, instance.registry
    # Until it is known to be sound, nothing of it reaches the index.
    trial = Registry(Store(repository, Overlay(instance.store.index)))
    compiled = _compiled(repository, source, wording)
    if name is not None and compiled.workflow.name != name:
        raise Invalid(
            f"{wording.what} defines workflow {compiled.workflow.name!r}, not {name!r}", wording.correct
        )
    name = compiled.workflow.name
    registered = repository.ref(layout.WORKFLOWS + name)
    if registered is not None and is_ancestor(git, source, registered):
        return Accepted(registry.current(name), "unchanged", str(registered), str(source))
    behind = registered is None or is_ancestor(git, registered, source)
    if behind and _is_version(trial, instance, source, name, registered):
        version = registry.move(name, registered, source)
        return Accepted(version, "fast-forward", str(registered) if registered else None, str(source))
    if not behind:
        assert registered is not None
        if not _same_content(git, repository, registered, source, trial.tree(compiled)):
            raise HeadMoved(f"workflow {name!r} was changed since {wording.what} was made", wording.again)
    first = registered or _version_below(trial, instance, source, name)
    commit = _version_of(instance, compiled, first, source, wording)
    version = registry.move(name, registered, commit)
    return Accepted(version, "merged", str(registered) if registered else None, str(source))


def _version_of(
    instance: Instance, compiled: Compiled, first: Oid | None, source: Oid, wording: _Wording
) -> Oid:
    """A version commit after `first` of the definition that `source` has, by the same people and at the
    same time. Nobody enters its second parent, which may be anything. Where the people of `source` are
    not such as git writes, the user makes it."""
    repository, name = instance.store.repository, compiled.workflow.name
    tree, parents = instance.registry.tree(compiled), [*([first] if first else []), source]
    message = layout.workflow_message(name, compiled.hash)
    commit = repository.rewrite_commit(source, tree, parents, message)
    if not _findings(instance, name, commit):
        return commit
    commit = repository.write_commit(tree, parents, repository.user, message)
    if findings := _findings(instance, name, commit):
        raise StoreDamaged(f"{wording.what}: {findings[0].message}", wording.correct)
    return commit


def _findings(instance: Instance, name: str, commit: Oid) -> tuple[Finding, ...]:
    """What a pull would find wrong with a commit as the version of a workflow. Where that is nothing,
    what it leads to is known from now on."""
    from uwf_git.verify.whole import Trial

    with contextlib.closing(Trial(instance.store)) as trial:
        return trial.findings(layout.WORKFLOWS + name, commit)


def _same_content(git: Git, repository: Repository, registered: Oid, source: Oid, tree: Oid) -> bool:
    """Whether the registry has what is proposed, or still what the proposal was made on: then nothing
    that was registered since vanishes under it."""
    now = repository.commit(registered).tree
    if _same_version(repository, now, tree):
        return True
    done = git.run("merge-base", str(registered), str(source), check=False)
    base = done.out.decode("ascii", "replace").strip()
    return done.code == 0 and _same_version(repository, repository.commit(Oid(hex=base)).tree, now)


def _same_version(repository: Repository, one: Oid, other: Oid) -> bool:
    """Whether two trees hold the same version. Each has the built-in types of the `uwf` that wrote it."""
    return one == other or _own_content(repository, one) == _own_content(repository, other)


def _own_content(repository: Repository, tree: Oid) -> dict[str, Oid]:
    """What a version's tree has besides built-in types, by path."""
    found: dict[str, Oid] = {}
    folders = [("", tree)]
    for prefix, folder in folders:  # grows while it is walked
        for entry in _entries(repository, folder, "a version"):
            path = prefix + entry.name
            if path in ("workflow", "workflow/nodes") and entry.is_tree:
                folders.append((f"{path}/", entry.oid))
            elif layout.node_in_path(path) not in BUILTIN:
                found[path] = entry.oid
    return found


def _fetched(git: Git, repository: Repository, remote: Remote, branch: str) -> Oid:
    """The commit of a remote's proposal, brought here. No ref moves."""
    candidates = (PROPOSED + branch, HEADS + branch)
    there = remote_branches(git, remote, candidates)
    ref = next((ref for ref in candidates if ref in there), None)
    if ref is None:
        known = [short(ref) for ref in remote_branches(git, remote, [PROPOSED + "*"])]
        raise NotFound(
            f"{remote.name} has no branch {short(PROPOSED)}{branch} and no branch {branch}",
            nearest(short(PROPOSED) + branch, known) or f"see: git ls-remote --heads {remote.name}",
        )
    if not repository.has(there[ref]):
        bring(git, repository, remote.name, [ref])
    if not repository.has(there[ref]):
        raise HeadMoved(f"branch {short(ref)} of {remote.name} moved while it was fetched", "repeat")
    return there[ref]


def proposal_name(text: str) -> str:
    """A proposal's name; its branch on a remote means the same. Raises Invalid."""
    return branch_name(text.removeprefix(HEADS).removeprefix(short(PROPOSED)))


def _refuse_neighbours(repository: Repository, branch: str) -> None:
    """A ref can't be a file and a folder."""
    for ref in repository.ref_names(layout.PROPOSALS):
        other = ref.removeprefix(layout.PROPOSALS)
        if other.startswith(branch + "/") or branch.startswith(other + "/"):
            raise Usage(
                f"there is a proposal {other!r}, so none can be called {branch!r}", "name another --branch"
            )


def _newest(git: Git, registered: Oid | None, before: Oid | None) -> list[Oid]:
    """What a new version comes after: the registered version and the proposal before, of which the one
    that is in the history of the other says nothing."""
    if registered is None or before is None:
        return [oid for oid in (registered, before) if oid is not None]
    if is_ancestor(git, before, registered):
        return [registered]
    return [before] if is_ancestor(git, registered, before) else [registered, before]


def _compiled(repository: Repository, commit: Oid, wording: _Wording) -> Compiled:
    """The definition in a commit's tree, compiled. Whoever pushed the branch wrote it, so code isn't evaluated: what it
    says of itself has to be there as it was registered. Raises Invalid, and StoreDamaged where objects are bad."""
    from uwf_git.workflow.compile import InvalidWorkflow, compile_source
    from uwf_git.workflow.source import parse_source

    files = _Files(repository, repository.commit(commit).tree, wording.what)
    try:
        with time_limit(SECONDS):
            if code := next((name for name in CODE_FILES if files.has(name)), None):
                return _bundle(files, code)
            source = parse_source(
                files.read("workflow.yaml"),
                "workflow.yaml",
                lambda path: files.read(f"workflow/include/{path}"),
            )
            return compile_source(source)
    except (InvalidWorkflow, Invalid, NotFound, TooLarge) as error:
        raise Invalid(f"{wording.what}: {error.message}", wording.correct) from None
    except TimeExceeded:
        raise Invalid(f"{wording.what} takes over {SECONDS:g} s to compile", wording.correct) from None


def _bundle(files: _Files, code: str) -> Compiled:
    """The bundle in a tree, by its nodes there. Raises Invalid where the file is another one than they are about."""
    from uwf_git.bundles.contract import kept_bundle
    from uwf_git.bundles.files import MAX_BYTES

    text = files.read(code, MAX_BYTES)
    digest = sha256(text).hexdigest()
    nodes = {}
    for path in files.names("workflow/nodes"):
        if (name := layout.node_in_path(f"nodes/{path}")) is not None and name not in BUILTIN:
            nodes[name] = from_blob(files.read(f"workflow/{layout.node_file(name)}"), name)
    for node in nodes.values():
        if node.type == CODE:
            workflow = parse_workflow(cbor.normalise(node.payload))
            if workflow.code is not None and workflow.code.sha256 == digest:
                schemas = {role.schema: nodes[role.schema].payload for role in workflow.roles.values()}
                return kept_bundle(cbor.normalise(node.payload), schemas, text)
    raise Invalid(f"{code} was changed there, and what code says of itself is only known by running it")


class _Files:
    """The files of a tree that may be anybody's making: what is no plain file, or too large, is refused
    before it is read."""

    def __init__(self, repository: Repository, root: Oid, what: str) -> None:
        self._repository = repository
        self._root = root
        self._what = what

    def has(self, name: str) -> bool:
        """Whether there is something of that name at the top."""
        return any(entry.name == name for entry in _entries(self._repository, self._root, self._what))

    def names(self, path: str) -> list[str]:
        """What is in a folder. Raises NotFound, Invalid."""
        folder = self._root
        for part in path.split("/"):
            folder = self._folder(folder, part)
        return [entry.name for entry in _entries(self._repository, folder, self._what)]

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes:
        """A file's content. Raises NotFound, Invalid, and TooLarge beyond the limit in bytes."""
        folder = self._root
        *folders, name = path.split("/")
        for part in folders:
            folder = self._folder(folder, part)
        entry = self._entry(folder, name)
        if entry.mode not in _FILE_MODES:
            raise Invalid(f"{one_line(path, 80)} is not a file", "links and submodules are not followed")
        return self._repository.read_within(entry.oid, limit)[1]

    def _folder(self, folder: Oid, name: str) -> Oid:
        entry = self._entry(folder, name)
        if not entry.is_tree:
            raise Invalid(f"{one_line(name, 80)} is no folder")
        return entry.oid

    def _entry(self, folder: Oid, name: str) -> Entry:
        entries = _entries(self._repository, folder, self._what)
        entry = next((entry for entry in entries if entry.name == name), None)
        if entry is None:
            raise NotFound(
                f"{self._what} has no {one_line(name, 80)}", "a workflow's branch has a workflow.yaml"
            )
        return entry


def _entries(repository: Repository, folder: Oid, what: str) -> Sequence[Entry]:
    """What is in a folder that may be anybody's making. Raises Invalid for one that is too large."""
    if repository.header(folder)[1] > LARGEST_FOLDER:
        raise Invalid(f"a folder of {what} has too many entries")
    return repository.tree(folder)


def _is_version(
    trial: Registry, instance: Instance, commit: Oid, name: str, after: Oid | None = None
) -> bool:
    """Whether a commit and its forebears are exactly what registering their definitions would have made,
    down to the version `after`, else to one that is known or to the first of all."""
    return _comes_after(trial, instance, commit, name, after) and not _findings(instance, name, commit)


def _comes_after(trial: Registry, instance: Instance, commit: Oid, name: str, after: Oid | None) -> bool:
    repository = instance.store.repository
    for oid in _first_parents(repository, commit):
        if oid == after:
            return True
        row = instance.store.index.commit(oid.raw)
        if row is not None and (row.kind, row.name) != ("workflow", name):
            return False
        if row is not None and after is None:
            return True
        if row is None and not _is_as_registered(trial, repository, oid, name):
            return False
    return after is None and not repository.commit(oid).parents


def _is_as_registered(trial: Registry, repository: Repository, oid: Oid, name: str) -> bool:
    """Whether a commit has the message and the tree that registering its definition would have made."""
    found = repository.commit(oid)
    try:
        compiled = _compiled(repository, oid, _Wording("it", "", ""))
    except UwfError:
        return False
    return (
        compiled.workflow.name == name
        and found.message == layout.workflow_message(name, compiled.hash)
        and _same_version(repository, found.tree, trial.tree(compiled))
    )


def _first_parents(repository: Repository, commit: Oid) -> Iterator[Oid]:
    for _ in range(MOST_VERSIONS):
        yield commit
        parents = repository.commit(commit).parents
        if not parents:
            return
        commit = parents[0]


def _version_below(trial: Registry, instance: Instance, commit: Oid, name: str) -> Oid | None:
    """The nearest version of a workflow that a commit stands on, where none is registered here."""
    repository = instance.store.repository
    queue, seen = [commit], {commit}
    for oid in queue:  # grows while it is walked
        if oid != commit and _is_version(trial, instance, oid, name):
            return oid
        new = [parent for parent in repository.commit(oid).parents if parent not in seen]
        seen.update(new)
        queue += new[: MOST_VERSIONS - len(queue)]
    return None
