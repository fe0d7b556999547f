"""What several groups of commands need of other stores: git with its progress on a terminal, warnings of what forges
may refuse, and threads that a plain `git fetch` brought, which are taken over before one is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uwf_cli.invocation import Invocation
from uwf_cli.meter import Meter
from uwf_git.errors import Busy, UwfError
from uwf_git.values.ids import ThreadId

if TYPE_CHECKING:
    from uwf_git.git.program import Git
    from uwf_git.sharing.push import Large
    from uwf_git.store.opened import Instance


def git_for(instance: Instance, meter: Meter | None = None) -> Git:
    """The git program; how far it is goes to standard error where that is a terminal."""
    from uwf_git.git.program import Git

    meter = meter or Meter()
    return Git(instance.store.repository.path, meter.heard if meter.shown else None)


def tell_large(invocation: Invocation, large: Sequence[Large]) -> None:
    """Warns of blobs that forges don't like."""
    for each in large[:5]:
        what = f"node {each.node}" if each.node else f"blob {each.blob}"
        invocation.warn(f"{what} has {each.size / 1_000_000:.1f} MB; forges advise at most 1 MB a file")
    if len(large) > 5:
        invocation.warn(f"{len(large) - 5} more blobs have over 1 MB")


def find_thread(invocation: Invocation, text: str) -> ThreadId:
    """The thread whose id begins so, what git fetched included. Raises NotFound, Usage."""
    adopt_news(invocation)
    return invocation.instance.threads.find(text)


def adopt_news(invocation: Invocation) -> None:
    """Verifies and takes over what git fetched by itself since the last pull. Problems are told and keep
    nobody from listing what is here."""
    if not invocation.location.git_dir.exists() or not invocation.instance.store.repository.has_tracking_refs:
        return
    from uwf_git.sharing.pull import adopt_fetched

    try:
        for pulled in adopt_fetched(invocation.instance):
            if pulled.adopted:
                invocation.note(f"took over what git fetched from {pulled.remote}")
            for each in pulled.refused:
                invocation.warn(
                    f"{each.ref} of {pulled.remote} was not taken over; see: uwf verify --remote {pulled.remote}"
                )
    except Busy:
        return
    except UwfError as error:
        invocation.warn(error.message)
