"""run_command: a sandboxed shell command in the project, with limits on time and output."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from uwf_git.ext.builtin.tools.tool import Tool, ToolContext, object_schema
from uwf_git.plugin import (
    PROJECT_MOUNT,
    Quota,
    QuotaExceeded,
    RepositoriesBefore,
    ToolFailure,
    bubblewrap,
    command_limits,
    find_program,
    processes,
    tool_results,
)

SECONDS = 120.0
MOST_SECONDS = 1800.0
_HEAD = 9_600  # bytes that are shown of an output's beginning; its end gets the rest of SHOWN
_TAIL = tool_results.SHOWN - _HEAD
_MARGIN = 4_096  # bytes kept beyond a cut, which might halve a secret
_INNER = "/tmp"
LIMITS = "tools.limits"
_ENDED_AT = {
    "File size limit exceeded": "disk",
    "File too large": "disk",
    "CPU time limit exceeded": "cpu",
}
_TAKEN = 20  # repositories that a result names
_LONGEST = 100_000  # bytes of a command; Linux passes no argument of more than 128 KiB


def run_command(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    seconds = context.seconds(float(arguments.get("timeout", SECONDS)))
    folder = _folder(arguments.get("cwd", PROJECT_MOUNT), context)
    command = arguments["command"]
    program = _checked(command, context)
    taken: list[str] = []
    file, name = context.outputs.new_file()
    began = time.monotonic()
    shown = context.workspace.told

    def clean(text: str) -> str:
        return context.outputs.clean(shown(text))

    with file:
        output = _Output(file, context.show)
        if program is None:
            done = _unconfined(command, folder, seconds, output, context)
        else:
            done = _confined(program, command, folder, seconds, output, context, taken)
    printed = output.text(done.stderr_tail, clean)
    result: dict[str, Any] = {
        "exitCode": None if done.timed_out or done.exceeded else done.returncode,
        "output": shown(printed),
        "confined": program is not None,
        "seconds": round(time.monotonic() - began, 2),
    }
    if output.size > tool_results.SHOWN:
        if context.workspace.by_name:
            context.outputs.retell(name, shown)
        result |= tool_results.truncation_note(name, output.size)
    if program is None:
        result["note"] = "the command ran without a sandbox: it could reach whatever the user can"
    if taken:
        result["taken"] = "no command may leave a git repository in @project: " + "; ".join(taken[:_TAKEN])
    if done.exceeded is not None:
        ended = f"ended, with all that it had started: {done.exceeded.told(LIMITS)}"
        result |= {"exceeded": done.exceeded.limit, "note": ended}
    elif (met := _limit_met(printed, context.policy.limits.given(command_limits()))) is not None:
        result |= {"exceeded": met.limit, "note": f"a part of it was refused more: {met.told(LIMITS)}"}
    if done.timed_out:
        result |= {"timedOut": True, "note": f"ended after {seconds:.3g} s, with all that it had started"}
    return result


def _limit_met(printed: str, limits: Quota) -> QuotaExceeded | None:
    """Return the limit at which the kernel ended a process, by messages of the shell or C library, since
    bwrap doesn't reap its child's usage."""
    met = next((limit for words, limit in _ENDED_AT.items() if words in printed), None)
    allowed = limits._asdict()[met] if met else None
    return None if met is None or allowed is None else QuotaExceeded(met, allowed)


class _Output:
    """A command's output: the beginning for the result, all of it for a file, pieces for watchers."""

    def __init__(self, file: BinaryIO, show: Callable[[bytes], object]) -> None:
        self._file = file
        self._show = show
        self._head = b""
        self.size = 0

    def add(self, data: bytes) -> None:
        if self.size < tool_results.KEPT:
            self._file.write(data[: tool_results.KEPT - self.size])
        if len(self._head) < tool_results.SHOWN:
            self._head += data[: tool_results.SHOWN - len(self._head)]
        self.size += len(data)
        self._show(data)

    def text(self, tail: bytes, clean: Callable[[str], str]) -> str:
        if self.size <= tool_results.SHOWN:
            return self._head.decode("utf-8", "replace")
        # A secret, or a path, that the outer edge of the margin halves isn't recognised, so that edge is dropped.
        edge = _MARGIN // 2
        head = clean(self._head[: _HEAD + _MARGIN].decode("utf-8", "replace"))[:-edge][:_HEAD]
        last = clean(tail.decode("utf-8", "replace"))[edge:][-_TAIL:]
        return tool_results.ends(head, last, f"{max(0, self.size - _HEAD - _TAIL)} bytes")


def _folder(path: str, context: ToolContext) -> Path:
    with context.workspace.open_folder(path) as (_, spot):
        if spot.mount.name != PROJECT_MOUNT:
            raise ToolFailure("read_only", f"commands run in {PROJECT_MOUNT}")
        return spot.mount.path.joinpath(*spot.parts)


def _checked(command: str, context: ToolContext) -> str | None:
    if "\0" in command:
        raise ToolFailure("invalid_arguments", "the command holds a NUL")
    if len(command.encode()) > _LONGEST:
        raise ToolFailure(
            "too_large", f"the command has over {_LONGEST} bytes: write it to a file and run that"
        )
    if context.own:
        where = "the place" if context.workspace.by_name else tool_results.shown(str(context.own))
        raise ToolFailure(
            "denied",
            f"{where}, where uwf keeps its configuration or its store, is in {PROJECT_MOUNT}, and a "
            "command could put another in its place: it must be moved out of there, see UWF_STORAGE_ROOT",
        )
    project = context.workspace.project.path
    if not context.policy.allow_unconfined or find_program("bwrap", project, environ=context.environ):
        bubblewrap.check_project(project)
    sandbox = bubblewrap.find_sandbox(context.environ, network=bool(context.policy.network), project=project)
    if sandbox.program is None and not context.policy.allow_unconfined:
        raise ToolFailure("unconfined", f"commands cannot be confined: {sandbox.reason} — {sandbox.ways_out}")
    return sandbox.program


def _unconfined(
    command: str, folder: Path, seconds: float, output: _Output, context: ToolContext
) -> processes.CommandResult:
    scratch = context.outputs.scratch
    env = bubblewrap.clean_environment(
        context.environ, str(scratch / "home"), str(scratch), bool(context.policy.network)
    )
    env |= {**context.workspace.variables, **context.given}
    return _run(context, bubblewrap.shell(env["PATH"], command), folder, env, seconds, output)


def _confined(
    program: str,
    command: str,
    folder: Path,
    seconds: float,
    output: _Output,
    context: ToolContext,
    taken: list[str],
) -> processes.CommandResult:
    project, network = context.workspace.project.path, bool(context.policy.network)
    env = (
        bubblewrap.clean_environment(context.environ, f"{_INNER}/home", _INNER, network)
        | context.workspace.variables
        | dict(context.given)
    )
    with (
        RepositoriesBefore(project, notes=context.notes, seconds=seconds) as before,
        bubblewrap.without_git(project, context.outputs.nothing) as no_git,
    ):
        taken += before.left
        try:
            with bubblewrap.Lifetime() as lifetime:
                repositories = tuple(project.joinpath(*repository.parts) for repository in before.found)
                scratch = context.outputs.scratch
                view = bubblewrap.View(context.workspace, context.visible, scratch, network, repositories)
                argv = bubblewrap.confined(program, view, folder, lifetime.arguments, no_git)
                argv += bubblewrap.shell(env["PATH"], command)
                return _run(context, argv, Path("/"), env, seconds, output, lifetime.descriptors)
        finally:
            taken += before.take_new()


def _run(
    context: ToolContext,
    argv: list[str],
    folder: Path,
    env: dict[str, str],
    seconds: float,
    output: _Output,
    descriptors: tuple[int, ...] = (),
) -> processes.CommandResult:
    # Both streams share one pipe, so that they come in the order in which they were written.
    joined = ["/bin/sh", "-c", 'exec "$@" 1>&2', "sh", *argv]
    return processes.run_command(
        joined,
        cwd=folder,
        env=env,
        timeout=seconds,
        keep=_TAIL + _MARGIN,
        on_stderr=output.add,
        pass_fds=descriptors,
        quota=context.policy.limits.given(command_limits()),
        guarded=not descriptors,  # a sandbox ends with this process by itself
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
