"""The section `keep` of `config.yaml`: how long ended threads are kept, as `90d`, or {default, workflows:
{<name>: 30d}, threads: {<id>: <why>}}. `forever` is no limit, and `threads` are kept whatever else it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import is_thread_id, one_line, parse_duration

if TYPE_CHECKING:
    from uwf_git.plugin import Config, ConfigReader, Head, ValuePath

SECTION = "keep"
FOREVER = "forever"
_FIELDS = ("default", "workflows", "threads")


class Rule(NamedTuple):
    """A rule as the record names it, and the seconds that it keeps an ended thread, None for ever."""

    text: str
    seconds: float | None


class KeepSettings(NamedTuple):
    """Rules by workflow, "" for all others, and the reasons for which threads are kept, by id."""

    rules: Mapping[str, Rule] = {}
    threads: Mapping[str, str] = {}

    def rule_for(self, head: Head) -> Rule | None:
        """Return the rule for an ended thread, None if none removes it."""
        rule = self.rules.get(head.row.name or "") or self.rules.get("")
        return None if rule is None or rule.seconds is None else rule


def settings_of(config: Config) -> KeepSettings:
    settings: KeepSettings = config.sections.get(SECTION, KeepSettings())
    return settings


def read_settings(reader: ConfigReader, value: Any) -> KeepSettings:
    """Read the section."""
    path: ValuePath = (SECTION,)
    if not isinstance(value, dict):
        rule = _rule(reader, path, value)
        return KeepSettings({"": rule} if rule else {})
    entry = reader.mapping(path, value, SECTION, _FIELDS)
    rules = {}
    if "default" in entry:
        rules[""] = _rule(reader, (*path, "default"), entry["default"])
    workflows = reader.mapping((*path, "workflows"), entry.get("workflows"), "keep.workflows")
    for name, time in workflows.items():
        rules[name] = _rule(reader, (*path, "workflows", name), time)
    threads = reader.names((*path, "threads"), entry.get("threads"))
    for thread in threads:
        if not is_thread_id(thread):
            reader.refuse(
                (*path, "threads", thread), f"{one_line(thread, 60)} is no id of a thread", "write it whole"
            )
    return KeepSettings({name: rule for name, rule in rules.items() if rule}, threads)


def _rule(reader: ConfigReader, path: ValuePath, value: Any) -> Rule | None:
    seconds = None if value == FOREVER else parse_duration(value) if isinstance(value, str) else 0
    if seconds == 0 or (seconds is None and value != FOREVER):
        reader.refuse(path, f"{'.'.join(map(str, path))} is not a duration", f"such as 90d, or {FOREVER}")
        return None
    return Rule(f"{'.'.join(map(str, path))} {value}", seconds)
