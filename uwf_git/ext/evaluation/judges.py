"""Judges: expressions, expected outputs, schemas, commands, workflows.

A case names judges by kind, or by a name in the configuration of whoever runs it. Commands come only from the
configuration or command line, never from a store.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.evaluation.judge_settings import JudgeSetting, judges_of
from uwf_git.ext.evaluation.records import COMMAND, EXACT, HALF, JSONATA, KINDS, SCHEMA, USE, WORKFLOW, Judge
from uwf_git.plugin import (
    Cast,
    Usage,
    UwfError,
    expanded_path,
    nearest,
    one_line,
    parse_command,
)

if TYPE_CHECKING:
    from uwf_git.plugin import AgentConfig, Instance

SECONDS = 600.0
"""For a command that no configuration gives another time."""

_NAMED = re.compile(r"([\w][\w.-]*)=(.+)", re.DOTALL)
_FORMS = (
    "a name of judges in config.yaml, exact, exact:FIELD,…, jsonata:EXPRESSION, schema:FILE, workflow:NAME"
)


class ResolvedJudge(NamedTuple):
    """A resolved judge. `timeout` is for a command, in seconds, which gets the secrets of `env`, by variable."""

    judge: Judge
    timeout: float = SECONDS
    env: tuple[str, ...] = ()


# As people write them


def parse_text(text: str, commands: bool = True, folder: Path = Path()) -> Judge:
    """Parse a judge: NAME, or KIND:VALUE, optionally after `NAME=`. `commands` allows commands; paths are
    relative to `folder`. Raises Usage."""
    name = ""
    if match := _NAMED.fullmatch(text.strip()):
        name, text = match[1], match[2]
    kind, colon, value = text.strip().partition(":")
    value = value.strip()
    if not colon and kind == EXACT:
        return Judge(name or EXACT, EXACT, ())
    if not colon and kind and kind not in KINDS:
        return Judge(name or kind, USE, kind)
    if not value or kind not in KINDS or kind == USE:
        raise Usage(f"{one_line(text, 80)!r} is not a judge", f"it is {_FORMS}, or command:…")
    if kind == COMMAND and not commands:
        raise Usage(
            f"{one_line(text, 80)!r}: a file names no command to run",
            "set it with: uwf config set judges.NAME.command …; then name NAME",
        )
    return _checked(Judge(name or kind, kind, _value_of(kind, value, folder)))


def _value_of(kind: str, value: str, folder: Path) -> Any:
    if kind == EXACT:
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if kind == COMMAND:
        command, args = parse_command(value)
        return (command, *args)
    if kind == SCHEMA:
        from uwf_git.plugin import yaml12

        return yaml12.read(folder / value).data
    return value


def parse_mapping(value: Any, folder: Path) -> Judge:
    """Parse a judge in a file of cases: a text, or a mapping. Raises Usage."""
    if isinstance(value, str):
        return parse_text(value, commands=False, folder=folder)
    known = (*(kind for kind in KINDS if kind != COMMAND), "name", "output", "threshold")
    if not isinstance(value, dict):
        raise Usage("a judge is a text or a mapping", f"the text is {_FORMS}")
    if COMMAND in value:
        return parse_text(f"{COMMAND}:…", commands=False)
    for key in value:
        if key not in known:
            raise Usage(
                f"a judge has no {one_line(str(key), 40)!r}", nearest(str(key), known) or ", ".join(known)
            )
    kinds = [kind for kind in KINDS if kind in value]
    if len(kinds) != 1:
        raise Usage("a judge needs one of " + ", ".join(known[:-3]), "as in {jsonata: output.approved}")
    kind, given = kinds[0], value[kinds[0]]
    if kind == EXACT:
        given = () if given is True else tuple(given) if _is_texts(given) else None
    elif kind != SCHEMA and not (isinstance(given, str) and given.strip()):
        given = None
    name, output, threshold = value.get("name", kind), value.get("output", ""), value.get("threshold", HALF)
    is_share = isinstance(threshold, int | float) and not isinstance(threshold, bool) and 0 <= threshold <= 1
    if given is None or not isinstance(name, str) or not isinstance(output, str) or not is_share:
        raise Usage(
            f"judge {one_line(str(name), 40)!r} is not well formed",
            "as in {name: good, jsonata: output.points / 10, threshold: 0.8}",
        )
    if kind == USE and "name" not in value:
        name = given
    return _checked(Judge(name, kind, given, output, threshold))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _checked(judge: Judge) -> Judge:
    from uwf_git.plugin import check_expression

    expressions = [judge.value] if judge.kind == JSONATA else []
    for expression in (*expressions, *([judge.output] if judge.output else [])):
        if problem := check_expression(expression):
            raise Usage(
                f"judge {judge.name!r}: expression {one_line(expression, 80)!r}: {problem}",
                "as in jsonata:output.approved",
            )
    if judge.kind == SCHEMA:
        from uwf_git.plugin import check_schema

        if problems := check_schema(judge.value):
            raise Usage(f"judge {judge.name!r} is not a JSON Schema: {problems[0]}", "correct it")
    return judge


# As a run asks them


def called(instance: Instance, judge: Judge, cwd: Path) -> ResolvedJudge:
    """Resolve a judge: a name, a workflow's version and agents. A command's path is relative to `cwd`, or to
    the configuration's folder. Raises Usage for an unknown name, NotFound, Invalid for a secret, since it is
    stored."""
    resolved_judge = _resolved(instance, judge, cwd)
    instance.redactor.refuse(resolved_judge.judge.payload(), f"judge {resolved_judge.judge.name!r}", "that")
    return resolved_judge


def _resolved(instance: Instance, judge: Judge, cwd: Path) -> ResolvedJudge:
    timeout, env = SECONDS, tuple[str, ...]()
    if judge.kind == USE:
        judges = judges_of(instance.config)
        setting = judges.get(judge.value)
        if setting is None:
            raise Usage(
                f"judge {judge.value!r} is not configured here",
                nearest(judge.value, judges)
                or f"uwf config set judges.{judge.value}.command …, or give others with --judge",
            )
        judge, timeout, env = _configured(judge, setting), setting.timeout, setting.env
        cwd = instance.location.root
    if judge.kind == COMMAND:
        program = expanded_path(judge.value[0])
        if "/" in program:
            program = str(cwd / program)
        return ResolvedJudge(judge._replace(value=(program, *judge.value[1:])), timeout, env)
    if judge.kind == WORKFLOW:
        version = instance.registry.current(judge.value)
        workflow = instance.registry.workflow(version.hash)
        agents = agents_of(instance, Cast(workflow), None)
        return ResolvedJudge(judge._replace(version=version.hash, agents=agents), timeout)
    return ResolvedJudge(judge, timeout)


def _configured(judge: Judge, setting: JudgeSetting) -> Judge:
    value = tuple(setting.value) if setting.kind in (COMMAND, EXACT) else setting.value
    return Judge(judge.name, setting.kind, value, setting.output, setting.threshold)


# The agents of roles: part of a trial's key


def agents_of(
    instance: Instance,
    cast: Cast,
    override: str | None,
    only: str | None = None,
    around: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return the agents of a workflow's roles, or of one, as command lines with their models, and for
    workflow agents version and agents. `around` are enclosing workflows. Raises Usage, Invalid if no agent is
    configured."""
    from uwf_git.plugin import agent_options, resolve_agent

    options = None if override is None else agent_options((override,))
    roles = cast.workflow.roles if only is None else [only]
    agents = {}
    for role in roles:
        config = resolve_agent(instance.config_at(Path.cwd()), cast.role(role), options)
        words = " ".join(
            (
                shlex.join([config.command, *config.args]),
                *_asked(instance, config, (*around, cast.workflow.name)),
            )
        )
        agents[role] = instance.redactor.text(words)[0]
    return agents


def _asked(instance: Instance, config: AgentConfig, around: tuple[str, ...]) -> list[str]:
    from uwf_git.plugin import SUBWORKFLOW, resolve_model

    try:
        if config.command == SUBWORKFLOW and config.args:
            return _inner(instance, config.args[-1], around)
        if config.command in ("uwf-llm", "uwf-builtin"):
            alias = _option(config.args, "--model")
            known = instance.config.models
            model = known.get(alias) if alias else resolve_model(instance.config, "agent")
            return [f"({model.name})"] if model is not None else []
    except UwfError:  # its step will say why
        return []
    return []


def _inner(instance: Instance, name: str, around: tuple[str, ...]) -> list[str]:
    from uwf_git.plugin import current_cast

    version, cast = current_cast(instance.store, name)
    if cast.workflow.name in around:  # its step says that this can't be
        return [f"({version})"]
    agents = agents_of(instance, cast, None, around=around)
    return [f"({version})", *(f"({role}: {words})" for role, words in agents.items())]


def _option(args: tuple[str, ...], name: str) -> str:
    for place, word in enumerate(args):
        if word == name and place + 1 < len(args):
            return args[place + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return ""
