"""The descriptor that a code workflow exports, by evaluating its module: only for files that the user names,
and trusted code."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.ext.code.confinement import Program, confine
from uwf_git.ext.code.grants import Grants
from uwf_git.plugin import (
    JAVASCRIPT,
    PYTHON,
    Config,
    Invalid,
    NotFound,
    expanded_path,
    find_program,
    one_line,
    workflow_define,
)

HARNESSES = {
    JAVASCRIPT: Path(__file__).with_name("harness.mjs"),
    PYTHON: Path(__file__).with_name("harness.py"),
}
"""What runs a bundle of each language."""
PYTHON_FLAGS: tuple[str, ...] = ("-I", "-S", "-B")
"""Nothing of the user's comes in, nor what is installed beside the standard library."""
OLDEST_NODE = 20
SECONDS = 10.0
NODE_FLAGS: tuple[str, ...] = (
    "--experimental-vm-modules",
    "--disallow-code-generation-from-strings",
    "--max-old-space-size=512",
    "--no-warnings",
)
_LONGEST = 8 << 20


class EvaluationResult(NamedTuple):
    """An evaluation's result: the descriptor and the type of `run`, or a problem with its position, 0 if
    unknown."""

    descriptor: Any
    run: str = ""
    problem: str = ""
    line: int = 0
    column: int = 0


def node_program(config: Config) -> str:
    """Return Node's path. Raises NotFound."""
    named_by_path = "/" in config.node or config.node.startswith("~")
    program = shutil.which(expanded_path(config.node)) if named_by_path else find_program(config.node)
    if program is None:
        named = config.node != "node"
        raise NotFound(
            f"config.yaml: node is {one_line(config.node, 80)}, and there is no such program"
            if named
            else f"a code workflow in JavaScript needs Node {OLDEST_NODE} or newer, and there is no node on PATH",
            "uwf config set node /path/to/node",
        )
    return program


def program_of(language: str, config: Config) -> Program:
    """Return the program for a language. Raises NotFound."""
    harness = HARNESSES[language]
    if language == PYTHON:
        # That of an environment would add installed packages.
        program = str(Path(sys.executable).resolve())
        files = harness, Path(workflow_define.__file__), harness.with_name("script_globals.py")
        return Program(program, PYTHON_FLAGS, files)
    options = (*NODE_FLAGS, "--no-addons")
    files = harness, harness.with_name("library.mjs"), harness.with_name("script.mjs")
    return Program(node_program(config), options, files)


def describe(source: bytes, language: str, config: Config) -> EvaluationResult:
    """Evaluate a valid module in the sandbox without permissions. Raises NotFound without Node, Invalid if it
    is too old, AgentFailed without confinement."""
    from uwf_git.ext.code.javascript import modules
    from uwf_git.plugin import processes

    order = {
        "mode": "descriptor",
        "source": source.decode("utf-8-sig", "replace"),
        "modules": list(modules()),
    }
    program = program_of(language, config)
    with closing(confine(config, os.environ, program, Grants())) as confined:
        done = processes.run_command(
            confined.argv,
            stdin=json.dumps(order).encode(),
            cwd=confined.folder,
            env=confined.env,
            pass_fds=confined.descriptors,
            timeout=SECONDS,
            keep=_LONGEST,
        )
    if done.timed_out:
        return EvaluationResult(None, problem=f"takes over {SECONDS:g} s to tell its descriptor")
    if done.stdout_size > _LONGEST:
        return EvaluationResult(None, problem=f"its descriptor is larger than {_LONGEST >> 20} MiB")
    try:
        answer = json.loads(done.stdout_tail)
        error = answer.get("error")
        if error is None:
            return EvaluationResult(answer.get("descriptor"), str(answer["run"]))
    except (ValueError, KeyError, AttributeError, RecursionError):
        complaint = done.stderr_tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return EvaluationResult(
            None, problem=f"ends before it tells its descriptor: {one_line(complaint, 200)}"
        )
    if error.get("node"):
        raise Invalid(
            f"a code workflow in JavaScript needs Node {OLDEST_NODE} or newer, and {program.path}: {error['message']}",
            "uwf config set node /path/to/node",
        )
    return EvaluationResult(
        None, "", str(error["message"]), int(error.get("line") or 0), int(error.get("column") or 0)
    )
