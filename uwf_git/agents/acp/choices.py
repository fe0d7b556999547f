"""What a session offers to choose from: its modes and models.

Agents say it as a configuration option of that category, or in the older fields `modes` and `models`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_OLDER = {
    "mode": ("modes", "currentModeId", "availableModes", "id", "session/set_mode", "modeId"),
    "model": ("models", "currentModelId", "availableModels", "modelId", "session/set_model", "modelId"),
}


class Choice(NamedTuple):
    """The values that can be set, with their names, and the request that sets one."""

    current: str | None
    values: Mapping[str, str]
    method: str
    parameters: Mapping[str, str]  # besides the value
    parameter: str

    def find(self, wanted: str) -> str | None:
        """The value of that id or name."""
        if wanted in self.values:
            return wanted
        for value, name in self.values.items():
            if wanted.casefold() in (value.casefold(), name.casefold()):
                return value
        return None


def choice_of(opened: Mapping[str, Any], what: str) -> Choice | None:
    """The choice of `mode` or `model` in the answer to session/new or session/load."""
    options = opened.get("configOptions")
    for option in options if isinstance(options, list) else ():
        if not isinstance(option, Mapping) or option.get("category") != what:
            continue
        if option.get("type") == "select" and isinstance(option.get("id"), str):
            values = dict(_named(option.get("options"), "value"))
            parameters = {"configId": option["id"]}
            return Choice(
                _current(option, "currentValue"), values, "session/set_config_option", parameters, "value"
            )
    field, current, available, key, method, parameter = _OLDER[what]
    state = opened.get(field)
    if not isinstance(state, Mapping):
        return None
    return Choice(_current(state, current), dict(_named(state.get(available), key)), method, {}, parameter)


def _named(items: Any, key: str) -> Iterator[tuple[str, str]]:
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, Mapping):
            continue
        if isinstance(item.get("options"), list):
            yield from _named(item["options"], key)  # a group
        elif isinstance(item.get(key), str):
            yield item[key], str(item.get("name") or "")


def _current(state: Mapping[str, Any], key: str) -> str | None:
    value = state.get(key)
    return value if isinstance(value, str) else None
