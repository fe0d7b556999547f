"""Knowing that a sandbox is gone, with every process in it.

bubblewrap is over when the command is; what that had started is killed a moment later, with the first
process of its namespace. That process is waited for here: the kernel reports its end when all the others
have ended. The sandbox does not begin before it is watched.

run_command: a shell command in the project, confined, with an end to its time and to its output.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from uwf_git.agents.builtin.tools.files import object_schema
from uwf_git.agents.builtin.tools.outputs import KEPT, SHOWN, ToolFailure, ends, rest, shown
from uwf_git.agents.builtin.tools.repositories import Before
from uwf_git.agents.builtin.tools.sandbox import (
    View,
    check_project,
    clean_environment,
    confined,
    find_sandbox,
    shell,
    without_git,
)
from uwf_git.agents.builtin.tools.tool import Tool, ToolContext
from uwf_git.agents.builtin.tools.workspace import PROJECT
from uwf_git.processes import Finished
from uwf_git.processes import run_command as run_process

_LONGEST_LIFE = 30.0  # seconds that a killed process takes to end, on a slow disk or network


class Lifetime:
    """A context manager around running one sandbox. Leaving it ends the sandbox and waits for its end;
    raises ToolFailure then, failed, where it doesn't end."""

    def __init__(self) -> None:
        self._told, self._info = os.pipe()
        self._block, self._go = os.pipe()
        self._process: int | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def arguments(self) -> list[str]:
        """For bubblewrap."""
        return ["--info-fd", str(self._info), "--block-fd", str(self._block)]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """To be handed to bubblewrap."""
        return (self._info, self._block)

    def __enter__(self) -> Lifetime:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._info)
        self._thread.join()
        for descriptor in (self._told, self._block, self._go):
            os.close(descriptor)
        if self._process is None:
            return  # it never began
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            poll = select.poll()
            poll.register(self._process, select.POLLIN)
            if not poll.poll(_LONGEST_LIFE * 1000):
                raise ToolFailure("failed", "what the command started does not end")
        finally:
            os.close(self._process)

    def _watch(self) -> None:
        """Reads which process is the sandbox's first, gets hold of it, and lets it begin."""
        said = b""
        while data := os.read(self._told, 4096):
            said += data
            with contextlib.suppress(ValueError, KeyError, OSError):
                self._process = os.pidfd_open(int(json.loads(said)["child-pid"]))
                os.write(self._go, b"x")
                return


SECONDS = 120.0
MOST_SECONDS = 1800.0
_HEAD = 9_600  # bytes of an output's beginning that are shown; of its end, what is left of SHOWN
_TAIL = SHOWN - _HEAD
_MARGIN = 4_096  # bytes beyond a cut, where a secret may be that it would halve
_INNER = "/tmp"
_TAKEN = 20  # repositories that a result names
_LONGEST = 100_000  # bytes of a command; Linux passes no argument of more than 128 KiB


def run_command(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    seconds = context.seconds(float(arguments.get("timeout", SECONDS)))
    folder = _folder(arguments.get("cwd", PROJECT), context)
    command = arguments["command"]
    program = _checked(command, context)
    is_confined = program is not None
    taken: list[str] = []
    file, name = context.outputs.new_file()
    began = time.monotonic()
    with file:
        output = _Output(file)
        if program is None:
            done = _unconfined(command, folder, seconds, output, context)
        else:
            done = _confined(program, command, folder, seconds, output, context, taken)
    result: dict[str, Any] = {
        "exitCode": None if done.timed_out else done.returncode,
        "output": output.text(done.stderr_tail, context.outputs.clean),
        "confined": is_confined,
        "seconds": round(time.monotonic() - began, 2),
    }
    if output.size > SHOWN:
        result |= {"truncated": True, "rest": rest(name, output.size)}
    if not is_confined:
        result["note"] = "the command ran without a sandbox: it could reach whatever the user can"
    if taken:
        result["taken"] = "no command may leave a git repository in @project: " + "; ".join(taken[:_TAKEN])
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

    def text(self, tail: bytes, clean: Callable[[str], str]) -> str:
        """The whole, or its two ends, cut when the secrets are out of them."""
        if self.size <= SHOWN:
            return self._head.decode("utf-8", "replace")
        # What is halved at the outer edge of the margin isn't known as a secret, so that edge goes.
        edge = _MARGIN // 2
        head = clean(self._head[: _HEAD + _MARGIN].decode("utf-8", "replace"))[:-edge][:_HEAD]
        last = clean(tail.decode("utf-8", "replace"))[edge:][-_TAIL:]
        return ends(head, last, f"{max(0, self.size - _HEAD - _TAIL)} bytes")


def _folder(path: str, context: ToolContext) -> Path:
    with context.workspace.open_folder(path) as (_, spot):
        if spot.mount.name != PROJECT:
            raise ToolFailure("read_only", f"commands run in {PROJECT}")
        return spot.mount.path.joinpath(*spot.parts)


def _checked(command: str, context: ToolContext) -> str | None:
    """The sandbox's program, None for a command that runs without. Raises ToolFailure for one that doesn't
    run."""
    if "\0" in command:
        raise ToolFailure("invalid_arguments", "the command holds a NUL")
    if len(command.encode()) > _LONGEST:
        raise ToolFailure(
            "too_large", f"the command has over {_LONGEST} bytes: write it to a file and run that"
        )
    if context.own:
        raise ToolFailure(
            "denied",
            f"{shown(str(context.own))}, where uwf keeps its configuration or its store, is in {PROJECT}, and a "
            "command could put another in its place: it must be moved out of there, see UWF_STORAGE_ROOT",
        )
    project = context.workspace.project.path
    if not context.policy.allow_unconfined or shutil.which("bwrap", path=context.environ.get("PATH")):
        check_project(project)
    sandbox = find_sandbox(context.environ, network=bool(context.policy.network), project=project)
    if sandbox.program is None and not context.policy.allow_unconfined:
        raise ToolFailure(
            "unconfined",
            f"commands can't be confined: {sandbox.reason}; without that, config.yaml must say "
            "tools: {allowUnconfined: true}",
        )
    return sandbox.program


def _unconfined(
    command: str, folder: Path, seconds: float, output: _Output, context: ToolContext
) -> Finished:
    scratch = context.outputs.scratch
    env = clean_environment(
        context.environ, str(scratch / "home"), str(scratch), bool(context.policy.network)
    )
    return _run(shell(env["PATH"], command), folder, env, seconds, output)


def _confined(
    program: str,
    command: str,
    folder: Path,
    seconds: float,
    output: _Output,
    context: ToolContext,
    taken: list[str],
) -> Finished:
    """Runs a command in the sandbox; `taken` gets what became of the repositories that it made."""
    project, network = context.workspace.project.path, bool(context.policy.network)
    env = clean_environment(context.environ, f"{_INNER}/home", _INNER, network)
    with (
        Before(project) as before,
        without_git(project, context.outputs.nothing) as no_git,
    ):
        try:
            with Lifetime() as lifetime:
                repositories = tuple(project.joinpath(*each.parts) for each in before.found)
                scratch = context.outputs.scratch
                view = View(context.workspace, context.visible, scratch, network, repositories)
                wrapped = confined(program, view, lifetime.arguments, folder)
                separator = wrapped.index("--remount-ro")
                argv = [*wrapped[:separator], *no_git, *wrapped[separator:], *shell(env["PATH"], command)]
                return _run(argv, Path("/"), env, seconds, output, lifetime.descriptors)
        finally:
            taken += before.take_new()


def _run(
    argv: list[str],
    folder: Path,
    env: dict[str, str],
    seconds: float,
    output: _Output,
    descriptors: tuple[int, ...] = (),
) -> Finished:
    # Both streams on one pipe, so that they come in the order they were written.
    joined = ["/bin/sh", "-c", 'exec "$@" 1>&2', "sh", *argv]
    return run_process(
        joined,
        cwd=folder,
        env=env,
        timeout=seconds,
        keep=_TAIL + _MARGIN,
        on_stderr=output.add,
        pass_fds=descriptors,
    )


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
