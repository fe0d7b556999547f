"""Publishing threads and definitions for review, and proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.sync import proposals, publish
from uwf_git.sync.proposals import propose as propose
from uwf_git.sync.proposals import publish_proposal as publish_proposal
from uwf_git.sync.publish import publish_thread as publish_thread
from uwf_git.sync.publish import publish_version as publish_version

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange
    from uwf_git.store.instance import Instance
    from uwf_git.sync.proposals import Accepted as Accepted
    from uwf_git.sync.proposals import Proposal as Proposal


def unpublish(exchange: Exchange, what: str, force: bool) -> dict[str, Any]:
    """Delete a published branch; return the result as JSON."""
    deleted = publish.unpublish(exchange, what, force)
    branches = [{"branch": branch, "commit": commit} for branch, commit in deleted.items()]
    return {"remote": exchange.remote.name, "unpublished": branches}


def accept(instance: Instance, branch: str, exchange: Exchange | None, kind: str) -> Accepted:
    """Register a proposal: the local one, or a remote's branch. Raises RequirementUnmet within a step."""
    instance.require_person(f"accepts {branch}")
    return proposals.accept(instance, branch, exchange, kind)
