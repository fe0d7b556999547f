"""What a plain `git fetch` brought: noticed by the commands on threads, and taken over as `uwf pull` would."""

from __future__ import annotations

from uwf_cli.invocation import Invocation
from uwf_git.errors import Busy, UwfError
from uwf_git.values.ids import ThreadId


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
