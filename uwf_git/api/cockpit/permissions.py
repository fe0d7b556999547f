"""What running agents ask leave for, as items of the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
