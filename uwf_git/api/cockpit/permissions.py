"""What running agents ask leave for, as items of the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.api.listing import ListedThread, thread_items
from uwf_git.engine.permission_requests import permission_requests, request_value

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

PERMISSION = "permission"
"""The group and the kind of such items."""


def permission_items(instance: Instance, threads: Sequence[ListedThread]) -> list[dict[str, Any]]:
    """Return an item for each request that waits for a person, of these threads, oldest first; `permission` is the
    request, as `request_value` returns it."""
    listed = {thread.thread: thread for thread in threads}
    requests = [
        request_value(request) for request in permission_requests(instance) if request.thread in listed
    ]
    heads = [listed[request["thread"]] for request in requests]
    return [
        {
            "group": PERMISSION,
            **value,
            **{"kind": PERMISSION, "role": request["role"], "question": request["line"], "reason": ""},
            **{"options": [*request["commands"]], "since": request["at"], "step": value["head"]},
            "permission": request,
            "command": request["commands"]["allow"],
            "commands": [*request["commands"].values(), f"uwf thread show {request['thread']}"],
        }
        for request, value in zip(requests, thread_items(instance, heads), strict=True)
    ]
