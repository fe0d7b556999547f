"""`.uwf/config.yaml` as `uwf init` writes it, or adds a template to it: from what is installed here, and what the
project is. What somebody wrote there stays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.ext.project.detection import Detected, detect
from uwf_git.plugin import (
    SETUP_FOLDER,
    Project,
    UwfError,
    agent_programs,
    checkout_around,
    dump_yaml,
    known_agents,
    load_config,
    load_yaml,
    ready_agents,
    with_setting,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Location

_FILE = "config.yaml"
_TESTS = "project-tests"
_TEST_ROLES = ("tests", "test", "tester", "checks", "ci")
_COMMAND = "Meant for a command."
_CODING = ("cli", "protocol")
_HEAD = """\
# What this project sets up for uwf. It counts for nobody before `uwf allow` has shown it to them, and what their own
# config.yaml says comes first.
"""


def project_files(location: Location, folder: Path, written: Mapping[Path, bytes]) -> Mapping[Path, bytes]:
    """Return the settings of the project around a folder, with the agents of workflows that are being `written`;
    nothing outside of a checkout, and if they are there already."""
    checkout = checkout_around(folder)
    if checkout is None or checkout.top is None:
        return {}
    path = checkout.top / SETUP_FOLDER / _FILE
    detected = detect(checkout.top, Project(checkout.common))
    agent = _agent(location)
    workflows = [_loaded(data) for file, data in written.items() if file.suffix == ".yaml"]
    overrides = {str(flow["name"]): roles for flow in workflows if (roles := _roles(flow, agent, detected))}
    if not os.path.lexists(path):
        data = _settings(detected, overrides)
        return {path: (_HEAD + dump_yaml(data)).encode()} if data else {}
    text = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    for name, roles in overrides.items():
        if text and name not in _table(_loaded(text).get("agentOverrides")):
            text = with_setting(text.decode(), ("agentOverrides", name), roles).encode()
            if _TESTS in roles.values() and _TESTS not in _table(_loaded(text).get("agents")):
                text = with_setting(text.decode(), ("agents", _TESTS), _tests(detected)).encode()
    return {path: text} if text else {}


def _settings(detected: Detected, overrides: Mapping[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if detected.tests:
        data["agents"] = {_TESTS: _tests(detected)}
    if overrides:
        data["agentOverrides"] = dict(overrides)
    if detected.setup:
        setup = detected.setup
        data["workspace"] = {"setup": ["sh", "-c", setup] if "&&" in setup else setup}
    if detected.branch:
        data["land"] = {"onto": detected.branch}
    return data


def _tests(detected: Detected) -> dict[str, str]:
    return {"command": f"uwf-exec {detected.tests}"}


def _roles(workflow: Mapping[str, Any], agent: str, detected: Detected) -> dict[str, str]:
    """Return who plays the roles of a workflow: its tests the command, those of models the agent that is here."""
    roles: dict[str, str] = {}
    for name, role in _table(workflow.get("roles")).items():
        role = _table(role)
        if role.get("human") or role.get("approvals"):
            continue
        if name in _TEST_ROLES:
            roles |= {name: _TESTS} if detected.tests else {}
        elif agent and _COMMAND not in str(role.get("description")):
            roles[name] = agent
    return roles


def _agent(location: Location) -> str:
    """Return a coding agent that works here and has this name everywhere, "" if there is none: the user's default, else
    the first."""
    kinds = {program.name: program.kind for program in agent_programs()}
    try:
        config = load_config(location.root)
        names = [name for name in (config.default_agent, *ready_agents(location.root)) if name]
    except UwfError:
        return ""
    usable = (
        name
        for name in names
        if name not in config.agents and kinds.get(known_agents.full_name(name)) in _CODING
    )
    return next(usable, "").removeprefix("uwf-")


def _loaded(data: bytes) -> Mapping[str, Any]:
    try:
        return _table(load_yaml(data, "file").data)
    except UwfError:
        return {}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
