"""run_command: a shell command in the project, confined, with an end to its time and to its output."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

from uwf_git.process import run_command as run_process
from uwf_git.tools.failure import ToolFailure
from uwf_git.tools.files import object_schema
from uwf_git.tools.outputs import KEPT, SHOWN, ends, rest
from uwf_git.tools.sandbox import clean_environment, confined, find_sandbox, shell
from uwf_git.tools.tool import Tool, ToolContext
from uwf_git.tools.workspace import PROJECT

SECONDS = 120.0
MOST_SECONDS = 1800.0
_HEAD = 9_600  # bytes of an output's beginning that are shown; of its end, what is left of SHOWN
_INNER = "/tmp"
_LONGEST = 100_000  # bytes of a command; Linux passes no argument of more than 128 KiB


def run_command(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    seconds = context.seconds(float(arguments.get("timeout", SECONDS)))
    folder = _folder(arguments.get("cwd", PROJECT), context)
    argv, env, is_confined = _prepared(arguments["command"], folder, context)
    file, name = context.outputs.new_file()
    began = time.monotonic()
    with file:
        output = _Output(file)
        # Both streams on one pipe, so that they come in the order they were written.
        joined = ["/bin/sh", "-c", 'exec "$@" 1>&2', "sh", *argv]
        done = run_process(
            joined,
            cwd=Path("/") if is_confined else folder,
            env=env,
            timeout=seconds,
            keep=SHOWN - _HEAD,
            on_stderr=output.add,
        )
    result: dict[str, Any] = {
        "exitCode": None if done.timed_out else done.returncode,
        "output": output.text(done.stderr_tail),
        "confined": is_confined,
        "seconds": round(time.monotonic() - began, 2),
    }
    if output.size > SHOWN:
        result |= {"truncated": True, "rest": rest(name, output.size)}
    if not is_confined:
        result["note"] = "the command ran without a sandbox: it could reach whatever the user can"
    if done.timed_out:
        result |= {"timedOut": True, "note": f"ended after {seconds:.3g} s, with all that it had started"}
    return result


class _Output:
    """What a command prints: its beginning for the result, all of it for the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._head = b""
        self.size = 0

    def add(self, data: bytes) -> None:
        if self.size < KEPT:
            self._file.write(data[: KEPT - self.size])
        if len(self._head) < SHOWN:
            self._head += data[: SHOWN - len(self._head)]
        self.size += len(data)

    def text(self, tail: bytes) -> str:
        """The whole, or its two ends."""
        if self.size <= SHOWN:
            return self._head.decode("utf-8", "replace")
        head, last = self._head[:_HEAD].decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return ends(head, last, f"{self.size - _HEAD - len(tail)} bytes")


def _folder(path: str, context: ToolContext) -> Path:
    with context.workspace.open_folder(path) as (_, spot):
        if spot.mount.name != PROJECT:
            raise ToolFailure("read_only", f"commands run in {PROJECT}")
        return spot.mount.path.joinpath(*spot.parts)


def _prepared(command: str, folder: Path, context: ToolContext) -> tuple[list[str], dict[str, str], bool]:
    """The arguments and the environment of a command, and whether it is confined."""
    if "\0" in command:
        raise ToolFailure("invalid_arguments", "the command holds a NUL")
    if len(command.encode()) > _LONGEST:
        raise ToolFailure(
            "too_large", f"the command has over {_LONGEST} bytes: write it to a file and run that"
        )
    policy, scratch = context.policy, context.outputs.scratch
    network = bool(policy.network)
    sandbox = find_sandbox(context.environ, network=network)
    if sandbox.program is None:
        if not policy.allow_unconfined:
            raise ToolFailure(
                "unconfined",
                f"commands can't be confined: {sandbox.reason}; without that, config.yaml must say "
                "tools: {allowUnconfined: true}",
            )
        env = clean_environment(context.environ, str(scratch / "home"), str(scratch), network)
        return shell(env["PATH"], command), env, False
    env = clean_environment(context.environ, f"{_INNER}/home", _INNER, network)
    wrapped = confined(sandbox.program, context.workspace, scratch, env["PATH"], network, folder)
    return [*wrapped, *shell(env["PATH"], command)], env, True


COMMAND = (
    Tool(
        "run_command",
        "Runs a shell command in @project and answers its exit status and output (stdout and stderr "
        f"together). It has no input. It ends after `timeout` seconds, {SECONDS:g} if nothing is said, and "
        "what it leaves running ends with it.",
        object_schema(
            ("command",),
            command={"type": "string", "minLength": 1},
            cwd={"type": "string", "minLength": 1, "description": "a folder in @project"},
            timeout={"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS},
        ),
        run_command,
    ),
)
