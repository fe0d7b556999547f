"""The section `judges` of `config.yaml`: {<name>: {command | jsonata | exact | schema | workflow, output, threshold,
timeout, env}}."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uwf_git.plugin import Config, ConfigReader, ValuePath

SECTION = "judges"
KINDS = ("command", "jsonata", "exact", "schema", "workflow")
_FIELDS = (*KINDS, "output", "threshold", "timeout", "env")


class JudgeSetting(NamedTuple):
    """A judge. `value` depends on the kind, one of KINDS: a command's words, fields, a workflow or
    expression, a JSON Schema. `output` is an expression on a workflow's end; a score of at least `threshold`
    passes; `timeout` is in seconds; a command gets the secrets of `env`, by variable."""

    name: str
    kind: str
    value: Any
    output: str = ""
    threshold: float = 0.5
    timeout: float = 600.0
    env: tuple[str, ...] = ()


def judges_of(config: Config) -> Mapping[str, JudgeSetting]:
    judges: Mapping[str, JudgeSetting] = config.sections.get(SECTION, {})
    return judges


def read_judges(reader: ConfigReader, value: Any) -> Mapping[str, JudgeSetting]:
    """Read the section."""
    judges = reader.entries(SECTION, value, partial(_read_judge, reader))
    return {name: judge for name, judge in judges.items() if judge is not None}


def _read_judge(reader: ConfigReader, path: ValuePath, value: Any) -> JudgeSetting | None:
    name = str(path[-1])
    what = f'{SECTION} "{one_line(name, 40)}"'
    entry = reader.mapping(path, value, what, _FIELDS)
    kinds = [kind for kind in KINDS if entry.get(kind) is not None]
    if len(kinds) != 1:
        if entry:
            reader.refuse(path, f"{what} needs one of {', '.join(KINDS)}", "command: make test")
        return None
    kind = kinds[0]
    given = entry[kind]
    if kind == "command" and isinstance(given, str):
        given = reader.command(path, given)
    elif kind in ("command", "exact"):
        given = () if (kind, given) == ("exact", True) else reader.texts((*path, kind), given)
    elif kind != "schema":
        given = reader.text(path, entry, kind)
    elif not isinstance(given, dict | bool):
        reader.refuse((*path, kind), f"{what}: schema is not a JSON Schema")
        given = None
    if given is None or given == "" or (kind == "command" and not given):
        return None
    threshold = entry.get("threshold", JudgeSetting(name, kind, given).threshold)
    if not (isinstance(threshold, int | float) and not isinstance(threshold, bool) and 0 <= threshold <= 1):
        reader.refuse((*path, "threshold"), "threshold is a number from 0 to 1")
        return None
    timeout = reader.timeout(path, entry) or JudgeSetting(name, kind, given).timeout
    env = reader.variables((*path, "env"), entry.get("env"))
    return JudgeSetting(name, kind, given, reader.text(path, entry, "output"), threshold, timeout, env)
