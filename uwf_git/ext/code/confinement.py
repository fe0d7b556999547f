"""The sandbox of code workflows: that of the built-in agent's commands, without anything of the user's.

Inside are the system's programs, the program that runs the code, a private /tmp, and what config.yaml grants:
network, readable and writable folders. No user variables. Without a working sandbox the code runs only if
config.yaml permits unconfined commands.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from uwf_git.ext.code.grants import Grants
from uwf_git.plugin import AgentFailed, Config, RepositoriesBefore, ToolFailure, bubblewrap, one_line

NOTE = "the code ran without a sandbox: it could reach whatever the user can"
# Bytes of data of one process, without what it maps shared: Node needs more addresses than memory.
_MEMORY = 1 << 30
_FILE = 1 << 28  # bytes of one file that it writes
_TEMPORARY = 1 << 28  # bytes of /tmp, and of /dev/shm
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OTHERS = ("RUSTUP_HOME",)  # variables that name folders which are not there
_FILES = 512  # open at once
_INNER = "/tmp"
_HARNESS = Path("/run/harness")


class Program(NamedTuple):
    """A program for code: its options, and the harness files, the main one first."""

    path: str
    options: Sequence[str]
    files: Sequence[Path]


class ConfinedCommand(NamedTuple):
    """A command to start once. `descriptors` are inherited; `note` is "" in a sandbox. `writes`: it may write
    user folders; `taken` describes disabled git repositories, once closed. `close` must be called at the end.
    """

    argv: Sequence[str]
    env: dict[str, str]
    folder: Path
    descriptors: tuple[int, ...]
    note: str
    stack: contextlib.ExitStack
    writes: bool = False
    taken: Sequence[str] = ()

    def close(self) -> None:
        """End the sandbox. Raises AgentFailed if something doesn't end."""
        try:
            self.stack.close()
        except ToolFailure as failure:
            raise AgentFailed(f"the code's sandbox doesn't end: {failure.message}") from None


def confine(
    config: Config,
    environ: Mapping[str, str],
    program: Program,
    grants: Grants,
    own: Sequence[Path] = (),
) -> ConfinedCommand:
    """Return the confined command for a program's harness. `own` are uwf's folders, which cannot be granted.
    Raises AgentFailed if it cannot be confined and isn't permitted without, or for a folder that cannot be
    granted."""
    granted = list(_granted(grants, [place.resolve() for place in own]))
    sandbox = bubblewrap.find_sandbox(environ, network=grants.network)
    with contextlib.ExitStack() as stack:
        if sandbox.program is None:
            if not config.tools.allow_unconfined:
                raise AgentFailed(
                    f"the code cannot be confined: {sandbox.reason}",
                    sandbox.ways_out,
                )
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="uwf-bundle-")))
            env = bubblewrap.clean_environment(environ, str(folder), str(folder), grants.network)
            argv = _limited([program.path, *program.options, str(program.files[0])])
            return ConfinedCommand(argv, env, folder, (), NOTE, stack.pop_all())
        taken: list[str] = []
        searched = [_searched(folder, stack, taken) for folder, writable in granted if writable]
        lifetime = stack.enter_context(bubblewrap.Lifetime())
        argv = [sandbox.program, *lifetime.arguments, *bubblewrap.enclosure(grants.network)]
        for place in (_INNER, "/dev/shm"):
            argv += [*_size(sandbox.program), "--tmpfs", place]
        argv += ["--remount-ro", "/dev"]
        for file in program.files:
            argv += ["--ro-bind", str(file), str(_HARNESS / file.name)]
        for tools in bubblewrap.toolchains(_HARNESS, str(Path(program.path).parent)):
            argv += ["--ro-bind-try", str(tools), str(tools)]
        for folder, writable in granted:
            argv += ["--bind" if writable else "--ro-bind", str(folder), str(folder)]
        for before in searched:
            for repository in before.found:
                path = str(before.project.joinpath(*repository.parts))
                argv += ["--ro-bind", path, path]
        argv += ["--remount-ro", "/", "--chdir", _INNER, "--"]
        argv += _limited([program.path, *program.options, str(_HARNESS / program.files[0].name)])
        env = bubblewrap.clean_environment(environ, _INNER, _INNER, grants.network)
        env = {name: value for name, value in env.items() if name not in _OTHERS}
        env["PATH"] = f"{_PATH}:{Path(program.path).parent}"
        return ConfinedCommand(
            argv, env, Path("/"), lifetime.descriptors, "", stack.pop_all(), bool(searched), taken
        )


def _granted(grants: Grants, own: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield granted folders and whether they are writable. Raises AgentFailed for missing ones, and for those
    with the configuration or store."""
    for named, writable in (
        *((item, False) for item in grants.read),
        *((item, True) for item in grants.write),
    ):
        path = Path(named).expanduser().resolve()
        shown = one_line(named, 80)
        if not path.exists():
            raise AgentFailed(f"config.yaml grants the code {shown}, which does not exist", "create it first")
        if any(place.is_relative_to(path) or path.is_relative_to(place) for place in own):
            raise AgentFailed(
                f"config.yaml grants the code {shown}, where uwf keeps its configuration or its store",
                "grant a smaller folder",
            )
        yield path, writable


def _searched(folder: Path, stack: contextlib.ExitStack, taken: list[str]) -> RepositoriesBefore:
    """Find git repositories in a writable folder: existing ones are protected, new ones disabled at the end.
    Raises AgentFailed if there is too much to search."""
    try:
        before = stack.enter_context(RepositoriesBefore(folder, str(folder)))
    except (ToolFailure, OSError) as failure:
        raise AgentFailed(
            f"the code cannot be granted {folder}: {failure}", "grant a smaller folder"
        ) from None
    stack.callback(lambda: taken.extend(before.take_new()))
    return before


def _limited(argv: Sequence[str]) -> list[str]:
    shell = shutil.which("bash", path=os.defpath) or "/bin/sh"
    limits = {
        "c": 0,
        "d": _MEMORY >> 10,
        "f": _FILE >> 10 if shell.endswith("bash") else _FILE >> 9,
        "n": _FILES,
    }
    if shell.endswith("bash"):
        limits["u"] = bubblewrap.PROCESSES
    script = "".join(f"ulimit -{name} {value} 2>/dev/null; " for name, value in limits.items())
    return [shell, "-c", f'{script}exec "$@"', shell, *argv]


@lru_cache(maxsize=2)
def _size(sandbox: str) -> tuple[str, ...]:
    from uwf_git.plugin import processes

    known = processes.run_command([sandbox, "--help"], env={"PATH": os.defpath}, timeout=10.0)
    limited = b"--size BYTES" in known.stdout_tail + known.stderr_tail
    return ("--size", str(_TEMPORARY)) if limited else ()
