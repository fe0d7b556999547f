"""Publishing threads and versions on branches for review, and proposing changes. The functions take what those of
`sync` do, with an `Exchange` for a remote and the git program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.sync import proposals, publish
from uwf_git.sync.proposals import propose as propose

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange, Git
    from uwf_git.api.versions import Versions
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.opened import Instance
    from uwf_git.store.remotes import Remote
    from uwf_git.sync.proposals import Accepted
    from uwf_git.sync.proposals import Proposal as Proposal
    from uwf_git.sync.publish import Published


def publish_thread(instance: Instance, exchange: Exchange, thread: ThreadId, branch: str) -> Published:
    """Push a thread to a branch."""
    return publish.publish_thread(instance, exchange.git, exchange.remote, thread, branch)


def publish_version(
    instance: Instance, exchange: Exchange, versions: Versions[Any], name: str, branch: str
) -> Published:
    """Push the newest version of a definition to a branch."""
    return publish.publish_version(instance, exchange.git, exchange.remote, versions, name, branch)


def publish_proposal(instance: Instance, exchange: Exchange, proposal: Proposal) -> Published:
    """Push a proposal to a branch."""
    return proposals.publish_proposal(instance, exchange.git, exchange.remote, proposal)


def unpublish(instance: Instance, exchange: Exchange, what: str, force: bool) -> dict[str, Any]:
    """Delete a published branch, and return as JSON what was deleted."""
    deleted = publish.unpublish(instance, exchange.git, exchange.remote, what, force)
    branches = [{"branch": branch, "commit": commit} for branch, commit in deleted.items()]
    return {"remote": exchange.remote.name, "unpublished": branches}


def accept(instance: Instance, git: Git, branch: str, remote: Remote | None, kind: str) -> Accepted:
    """Register a proposed version: the one made here, or a branch of a remote."""
    return proposals.accept(instance, git, branch, remote, kind)
