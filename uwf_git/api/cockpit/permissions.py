"""What running agents ask leave for, as items of the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uwf_git.engine.permission_requests import line_of, permission_requests

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

PERMISSION = "permission"
"""The group and the kind of such items."""


def permission_item(request: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the item of a request that waits for a person, as `request_value` returns it, of a thread with this
    `value`."""
    return {
        "group": PERMISSION,
        **value,
        **{"kind": PERMISSION, "role": request["role"], "question": request["line"], "reason": ""},
        **{"options": [*request["commands"]], "since": request["at"], "step": value["head"]},
        "permission": request,
        "command": request["commands"]["allow"],
        "commands": [*request["commands"].values(), f"uwf thread show {request['thread']}"],
    }


def leave_request(instance: Instance, thread: ThreadId) -> tuple[str, str] | None:
    """Return the role whose running agent asks leave first, and for what, in a line; None if nothing waits."""
    for request in permission_requests(instance, thread):
        return request.role, f"asks leave: {line_of(request.wish)}"
    return None
