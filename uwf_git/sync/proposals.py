"""Proposals: versions of definitions that are reviewed on a branch before they are registered.

    refs/uwf/proposals/<branch>          a proposed version, on this machine only
    refs/heads/uwf/proposals/<branch>    the same on a remote, for review
    refs/heads/uwf/workflows/<name>      the published version it is merged into; for a crew
                                         refs/heads/uwf/crews/<name>, for a baseline refs/heads/uwf/baselines/<name>

A proposal is a version commit on top of the registered one, without the registry's ref. Accepting it moves
`refs/uwf/workflows/<name>` or `refs/uwf/crews/<name>`. A merge, squash or edit on a forge is not a valid
version commit: then one is made of its definition, with the forge's commit as second parent and its author
and time, so that every machine makes the same commit. If a rule of the trust policy is about the
definition, a pull only does so for content that already meets it: else the user would sign what they
have not looked at.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import (
    HeadMoved,
    Invalid,
    NotFound,
    RequirementUnmet,
    StoreDamaged,
    Usage,
    UwfError,
)
from uwf_git.base.text import nearest
from uwf_git.format.ids import Hash
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.definitions import kind_in, versions_of
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.new_record import NewRecord
from uwf_git.store.versions import Defined, Version, Versions
from uwf_git.sync.admission import has_rules, meets_rules
from uwf_git.sync.exchange import Exchange
from uwf_git.sync.publish import (
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
from uwf_git.sync.tracking import bring
from uwf_git.sync.untrusted_versions import (
    MOST_VERSIONS,
    defined_in,
    findings_in,
    holds_code,
    is_version,
    same_version,
    version_below,
)

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.store.remotes import Remote


class Proposal(NamedTuple):
    """A proposed version of some `kind`. `base` is the registered version's commit, None for a new name;
    `changed` is False if it was proposed or registered before."""

    branch: str
    name: str
    hash: Hash
    commit: str
    base: str | None
    changed: bool
    kind: str = "workflow"

    @property
    def is_registered(self) -> bool:
        """Whether the registry already has it."""
        return self.commit == self.base

    def to_json(self) -> dict[str, Any]:
        value = self._asdict()
        del value["kind"]
        return value


class Accepted(NamedTuple):
    """An accepted proposal. `case` is `fast-forward`, `merged` (a version commit was made) or `unchanged`;
    `before` is the registry's earlier commit; `source` the accepted commit."""

    version: Version
    case: str
    before: str | None
    source: str

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.version.name,
            "hash": self.version.hash,
            "commit": self.version.commit,
            "case": self.case,
            "before": self.before,
            "source": self.source,
        }


class AdoptionResult(NamedTuple):
    """The result for a published definition that moved on a remote: `accepted`, or a `problem`: HeadMoved if
    it was changed here too, RequirementUnmet if somebody has to accept it, Invalid or StoreDamaged for bad
    data."""

    kind: str
    name: str
    source: str
    accepted: Accepted | None
    problem: UwfError | None

    def to_json(self) -> dict[str, Any]:
        return {
            self.kind: self.name,
            "accepted": self.accepted.to_json() if self.accepted else None,
            "problem": self.problem.message if self.problem else None,
            "hint": self.problem.hint if self.problem else None,
        }


def propose(
    instance: Instance, versions: Versions[Defined], definition: Defined, branch: str, words: str = ""
) -> Proposal:
    """Make a version commit on top of the registered one and the earlier proposal; `words` are its message.
    Moves `refs/uwf/proposals/<branch>`. Raises Invalid for a bad name, or if the proposal is of another
    definition."""
    branch = proposal_name(branch)
    instance.store.gate(branch, "the name of the branch", "a ref")
    instance.store.gate(words, "the message", "a commit")
    repository, kind = instance.store.repository, versions.kind
    name, node = versions.name_of(definition), versions.node_of(definition)
    ref = layout.PROPOSALS + branch
    _refuse_neighbours(repository, branch)
    registered = repository.ref(versions.prefix + name)
    before = repository.ref(ref)
    if before is not None:
        about = instance.store.index_commit(before)
        if (about.kind, about.name) != (kind, name):
            raise Invalid(
                f"proposal {branch} is about {about.kind} {about.name!r}, not {kind} {name!r}",
                "name another --branch",
            )
    parents = _newest(Git(repository.path), registered, before)
    base = str(registered) if registered else None
    if parents and all(versions.holds(parent, definition) for parent in parents):
        return Proposal(branch, name, node, str(parents[0]), base, False, kind)
    commit = versions.write(definition, parents, words=words)
    repository.put_ref(ref, before, commit)
    return Proposal(branch, name, node, str(commit), base, True, kind)


def publish_proposal(exchange: Exchange, proposal: Proposal) -> Published:
    """Push a proposal to `refs/heads/uwf/proposals/<branch>` and the registered version to the branch it will
    be merged into. Raises RemoteFailed, HeadMoved."""
    base = Oid(hex=proposal.base) if proposal.base is not None else None
    another = (
        f"{ref_kinds.registering(proposal.kind).propose} --branch BRANCH --remote {exchange.remote.name}"
    )
    return publish_branch(
        exchange,
        PROPOSED + proposal.branch,
        Oid(hex=proposal.commit),
        ref_kinds.registering(proposal.kind).branches + proposal.name,
        base,
        another,
    )


def accept(instance: Instance, branch: str, exchange: Exchange | None, kind: str) -> Accepted:
    """Register a proposal: a remote's `uwf/proposals/<branch>` or `<branch>`, or without an exchange the local
    one. Moves the definition's ref and deletes `refs/uwf/proposals/<branch>`. Raises NotFound, Usage for
    another kind, Invalid for errors in the definition, StoreDamaged, HeadMoved if the registry moved
    otherwise."""
    branch = proposal_name(branch)
    repository = instance.store.repository
    git, remote = Git(repository.path), exchange.remote if exchange is not None else None
    local = repository.ref(layout.PROPOSALS + branch)
    if exchange is not None:
        source = _fetched(exchange, branch)
    elif local is not None:
        source = local
    else:
        known = [name.removeprefix(layout.PROPOSALS) for name in repository.ref_names(layout.PROPOSALS)]
        raise NotFound(
            f"no proposal {branch!r} here",
            nearest(branch, known) or "take a remote's with: --remote origin",
        )
    if (actual := kind_in(repository, source, f"proposal {branch}")) != kind:
        again = f"{ref_kinds.registering(actual).commands} accept {shlex.quote(branch)}" + (
            f" --remote {remote.name}" if remote else ""
        )
        raise Usage(f"proposal {branch} is about a {actual}, not a {kind}", again)
    published = branch.removeprefix(short(ref_kinds.registering(kind).branches))
    if remote is not None and published != branch:
        wording = _of_published(repository, remote.name, kind, published, source)
    else:
        wording = _of_proposal(branch, kind, remote)
    accepted = _take(instance, git, source, kind, wording)
    if local is not None and is_ancestor(git, local, Oid(hex=accepted.version.commit)):
        repository.delete_ref(layout.PROPOSALS + branch, local)
    return accepted


def take_merged(instance: Instance, remote: str) -> list[AdoptionResult]:
    """Adopt what was merged into published definitions on a remote, according to its tracking refs. Moves the
    refs of definitions registered here. Problems are returned and stop nothing else."""
    repository = instance.store.repository
    git = Git(repository.path)
    results: list[AdoptionResult] = []
    for kind, row in ref_kinds.versioned().items():
        tracked = layout.tracking(remote, row.branches)
        for ref, source in sorted(repository.refs(tracked).items()):
            name = ref.removeprefix(tracked)
            try:
                registered = repository.ref(row.prefix + name)
                if registered is None or source == registered or is_ancestor(git, source, registered):
                    continue
                wording = _of_published(repository, remote, kind, name, source)
                accepted = _take(instance, git, source, kind, wording, name)
                results.append(AdoptionResult(kind, name, str(source), accepted, None))
            except UwfError as error:
                results.append(AdoptionResult(kind, name, str(source), None, error))
    return results


class _Messages(NamedTuple):
    """Messages: the thing adopted, and the hints for a conflict, for errors in a definition and, of a pull,
    for a requirement that is not met."""

    what: str
    again: str
    correct: str
    review: str = ""


def _of_proposal(branch: str, kind: str, remote: Remote | None) -> _Messages:
    propose = f"{ref_kinds.registering(kind).propose} --branch {shlex.quote(branch)}"
    propose += f" --remote {remote.name}" if remote is not None else ""
    return _Messages(
        f"proposal {branch}",
        f"put both changes into one {ref_kinds.registering(kind).made_of}, then: {propose}",
        f"correct it: {propose}",
    )


def _of_published(repository: Repository, remote: str, kind: str, name: str, source: Oid) -> _Messages:
    row = ref_kinds.registering(kind)
    what = f"{shlex.quote(name)} --remote {remote}"
    ours = f"uwf unpublish {what} --force && uwf publish {kind} {what}"
    correct = "correct it on the branch"
    if kind == "workflow" and holds_code(repository, source):
        correct = f"change the file elsewhere: {row.propose} --remote {remote}"
    branch = short(row.branches) + name
    accept = f"{row.commands} accept {shlex.quote(branch)} --remote {remote}"
    return _Messages(
        f"branch {branch} of {remote}",
        f"see it: {shown_by(repository, source)}; put both changes into one {row.made_of}, then: {row.put} && {ours}",
        f"{correct}, or put back the version from here: {ours}",
        f"see it: {shown_by(repository, source)}; to sign it as yours: {accept}",
    )


def _take(
    instance: Instance, git: Git, source: Oid, kind: str, wording: _Messages, pulled: str | None = None
) -> Accepted:
    """Register a commit's definition. `pulled` is the name that a pull found it under, None if the user
    accepts it."""
    repository, registry = instance.store.repository, versions_of(instance.store, kind)
    # Until it is known to be sound, nothing of it reaches the index.
    trial = versions_of(Store(repository, Overlay(instance.store.index)), kind)
    actual = kind_in(repository, source, wording.what)
    if actual != kind:
        raise Invalid(f"{wording.what} holds a {actual}, not a {kind}", wording.correct)
    definition = defined_in(repository, source, wording.what, wording.correct)
    name = registry.name_of(definition)
    if pulled is not None and name != pulled:
        raise Invalid(f"{wording.what} defines {kind} {name!r}, not {pulled!r}", wording.correct)
    registered = repository.ref(registry.prefix + name)
    if registered is not None and is_ancestor(git, source, registered):
        return Accepted(registry.current(name), "unchanged", str(registered), str(source))
    behind = registered is None or is_ancestor(git, registered, source)
    if (
        behind
        and is_version(trial, instance, source, name, registered)
        and meets_rules(instance, kind, name, source)
    ):
        version = registry.move(name, registered, source)
        return Accepted(version, "fast-forward", str(registered) if registered else None, str(source))
    if not behind:
        assert registered is not None
        if not _same_content(git, repository, registered, source, trial.tree(definition)):
            raise HeadMoved(f"{kind} {name!r} was changed since {wording.what} was made", wording.again)
    if pulled is not None and registered is not None:
        _raise_if_unreviewed(instance, git, trial, definition, registered, source, wording)
    first = registered or version_below(trial, instance, source, name)
    commit = _version_of(instance, registry, definition, first, source, wording)
    version = registry.move(name, registered, commit)
    return Accepted(version, "merged", str(registered) if registered else None, str(source))


def _raise_if_unreviewed(
    instance: Instance,
    git: Git,
    trial: Versions[Defined],
    definition: Defined,
    registered: Oid,
    source: Oid,
    wording: _Messages,
) -> None:
    """Raise RequirementUnmet if a rule of the trust policy is about a definition, and what `source` has of it
    is neither the registered content nor that of a version merged there that meets the rule."""
    kind, name = trial.kind, trial.name_of(definition)
    if not has_rules(instance, kind, name):
        return
    repository, tree = instance.store.repository, trial.tree(definition)
    if same_version(repository, repository.commit(registered).tree, tree):
        return
    listed = git.run("rev-list", f"--max-count={MOST_VERSIONS}", str(source), f"^{registered}", "--")
    for oid in (Oid(hex=line) for line in listed.out.decode("ascii").split()):
        if (
            same_version(repository, repository.commit(oid).tree, tree)
            and is_version(trial, instance, oid, name)
            and meets_rules(instance, kind, name, oid)
        ):
            return
    instance.store.before_record(NewRecord(kind, name))
    raise RequirementUnmet(
        f"{wording.what} has a change of {kind} {name!r} that does not meet the trust policy", wording.review
    )


def _version_of(
    instance: Instance,
    registry: Versions[Defined],
    definition: Defined,
    first: Oid | None,
    source: Oid,
    wording: _Messages,
) -> Oid:
    """Return a version commit after `first` with `source`'s definition, author and time. `source` is its
    second parent, which is never followed. If its author isn't valid for git, the user makes the commit."""
    repository, name = instance.store.repository, registry.name_of(definition)
    instance.store.before_record(NewRecord(registry.kind, name))
    tree, parents = registry.tree(definition), [*([first] if first else []), source]
    message = registry.message(name, registry.node_of(definition))
    commit = repository.rewrite_commit(source, tree, parents, message)
    if meets_rules(instance, registry.kind, name, commit) and not findings_in(
        instance, registry.prefix + name, commit
    ):
        return commit
    commit = repository.write_commit(tree, parents, repository.user, message)
    if findings := findings_in(instance, registry.prefix + name, commit):
        raise StoreDamaged(f"{wording.what}: {findings[0].message}", wording.correct)
    return commit


def _same_content(git: Git, repository: Repository, registered: Oid, source: Oid, tree: Oid) -> bool:
    """Return whether the registry has the proposed version, or the one it was based on, so that nothing
    registered since is lost."""
    now = repository.commit(registered).tree
    if same_version(repository, now, tree):
        return True
    done = git.run("merge-base", str(registered), str(source), check=False)
    base = done.out.decode("ascii", "replace").strip()
    return done.code == 0 and same_version(repository, repository.commit(Oid(hex=base)).tree, now)


def _fetched(exchange: Exchange, branch: str) -> Oid:
    (_, remote, git), repository = exchange, exchange.repository
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
    """Return a proposal's name from its name or branch. Raises Invalid."""
    return branch_name(text.removeprefix(HEADS).removeprefix(short(PROPOSED)))


def _refuse_neighbours(repository: Repository, branch: str) -> None:
    for ref in repository.ref_names(layout.PROPOSALS):
        other = ref.removeprefix(layout.PROPOSALS)
        if other.startswith(branch + "/") or branch.startswith(other + "/"):
            raise Usage(
                f"there is a proposal {other!r}, so none can be called {branch!r}", "name another --branch"
            )


def _newest(git: Git, registered: Oid | None, before: Oid | None) -> list[Oid]:
    """Return the parents of a new version: the registered version and the earlier proposal, unless one
    contains the other."""
    if registered is None or before is None:
        return [oid for oid in (registered, before) if oid is not None]
    if is_ancestor(git, before, registered):
        return [registered]
    return [before] if is_ancestor(git, registered, before) else [registered, before]
