"""The section `land` of `config.yaml`: {onto, branch, commits: squash | steps | keep, checks, timeout, comment,
env}."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from uwf_git.plugin import Config, ConfigReader

SECTION = "land"
SQUASH, STEPS, KEEP = COMMITS = ("squash", "steps", "keep")
_FIELDS = ("onto", "branch", "commits", "checks", "timeout", "comment", "env")


class LandSettings(NamedTuple):
    """How work lands. `onto` is the branch, "" for the remote's default; `branch` a template for the name of a
    request's branch; `commits` squashes a thread's commits, makes one of each step, or keeps them. `checks` are
    commands, None for those of the workflow's roles, each limited to `timeout` seconds and with the
    secrets of `env`, by variable; `comment` keeps one on a thread's issue."""

    onto: str = ""
    branch: str = "{{ workflow }}/{% if issue %}{{ issue.key }}-{% endif %}{{ title }}"
    commits: str = SQUASH
    checks: tuple[tuple[str, ...], ...] | None = None
    timeout: float = 1800.0
    comment: bool = False
    env: tuple[str, ...] = ()


def settings_of(config: Config) -> LandSettings:
    settings: LandSettings = config.sections.get(SECTION, LandSettings())
    return settings


def read_settings(reader: ConfigReader, value: Any) -> LandSettings:
    """Read the section."""
    usual, path = LandSettings(), (SECTION,)
    entry = reader.mapping(path, value, SECTION, _FIELDS)
    commits = reader.text(path, entry, "commits") or usual.commits
    if commits not in COMMITS:
        reader.refuse((*path, "commits"), f"commits is {SQUASH}, {STEPS} or {KEEP}")
        commits = usual.commits
    lines = reader.texts((*path, "checks"), entry.get("checks"))
    checks = None if lines is None else tuple(reader.command(path, line, "checks") for line in lines)
    comment = entry.get("comment", False)
    if not isinstance(comment, bool):
        reader.refuse((*path, "comment"), "comment is true or false")
    return LandSettings(
        reader.text(path, entry, "onto"),
        reader.text(path, entry, "branch") or usual.branch,
        commits,
        checks,
        reader.timeout(path, entry) or usual.timeout,
        comment is True,
        reader.variables((*path, "env"), entry.get("env")),
    )
