"""Publishing threads and definitions for review, and proposals. As in `sync`, with an `Exchange` for remote
and git."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.sync import proposals, publish
from uwf_git.sync.proposals import propose as propose

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange, Git
    from uwf_git.api.versions import Versions
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance
    from uwf_git.store.remotes import Remote
    from uwf_git.sync.proposals import Accepted
    from uwf_git.sync.proposals import Proposal as Proposal
    from uwf_git.sync.publish import Published


def publish_thread(instance: Instance, exchange: Exchange, thread: ThreadId, branch: str) -> Published:
    return publish.publish_thread(instance, exchange.git, exchange.remote, thread, branch)


def publish_version(
    instance: Instance, exchange: Exchange, versions: Versions[Any], name: str, branch: str
) -> Published:
    return publish.publish_version(instance, exchange.git, exchange.remote, versions, name, branch)


def publish_proposal(instance: Instance, exchange: Exchange, proposal: Proposal) -> Published:
    return proposals.publish_proposal(instance, exchange.git, exchange.remote, proposal)


def unpublish(instance: Instance, exchange: Exchange, what: str, force: bool) -> dict[str, Any]:
    """Delete a published branch; return the result as JSON."""
    deleted = publish.unpublish(instance, exchange.git, exchange.remote, what, force)
    branches = [{"branch": branch, "commit": commit} for branch, commit in deleted.items()]
    return {"remote": exchange.remote.name, "unpublished": branches}


def accept(instance: Instance, git: Git, branch: str, remote: Remote | None, kind: str) -> Accepted:
    """Register a proposal: the local one, or a remote's branch. Raises RequirementUnmet within a step."""
    instance.require_person(f"accepts {branch}")
    return proposals.accept(instance, git, branch, remote, kind)
