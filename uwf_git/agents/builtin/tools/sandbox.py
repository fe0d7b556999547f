"""A command's surroundings: a clean environment, and bubblewrap around it where it works.

Inside, there are the system's programs and libraries, read only; the project, writable but for the git
repositories in it, since what stands there is run by git outside; a /tmp that lasts as long as the step; and nothing
else: no home folders, no sockets of services, no other processes, no network unless it is allowed (then
all of it, this machine's own services included). Whether bubblewrap works is found out by running it, for
kernels and containers forbid what it needs in many ways.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from uwf_git.agents.builtin.tools.failure import ToolFailure
from uwf_git.agents.builtin.tools.visible import Visible, outside
from uwf_git.agents.builtin.tools.workspace import PROJECT, WORKFLOW, Workspace
from uwf_git.errors import AgentFailed
from uwf_git.processes import run_command

PACKAGE = "bubblewrap"
_TRIAL = 10.0  # seconds
_PROCESSES = 4096  # at once, where the kernel counts them by namespace
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
# Of /etc what programs need to run; the rest may hold keys.
_ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "protocols",
    "rpc",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
_PASSED = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")
_PASSED_WITH_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class Sandbox(NamedTuple):
    """What there is to confine commands with. `program` is bubblewrap's path, None where it is missing or
    doesn't work; `reason` says then why."""

    program: str | None
    reason: str = ""


def find_sandbox(environ: Mapping[str, str], *, network: bool, project: Path | None = None) -> Sandbox:
    """The sandbox of this machine, tried once a process and kind. It is never one that stands in the
    project, where a command may have put it, whatever PATH says."""
    path = environ.get("PATH", os.defpath)
    return _tried(path if project is None else outside(path, project), network)


@lru_cache(maxsize=8)
def _tried(path: str, network: bool) -> Sandbox:
    program = shutil.which("bwrap", path=path)
    if program is None:
        return Sandbox(None, f"bwrap is not installed (Debian package {PACKAGE})")
    argv = [program, *_isolation(network), *_system_binds(), "--", "/bin/sh", "-c", ":"]
    try:
        done = run_command(argv, cwd=Path("/"), env={"PATH": os.defpath}, timeout=_TRIAL)
    except AgentFailed as error:
        return Sandbox(None, error.message)
    if done.timed_out:
        return Sandbox(None, f"bwrap did not end within {_TRIAL:g} s")
    if done.returncode != 0:
        said = done.stderr_tail.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        return Sandbox(None, f"bwrap does not work here: {said[0][:200]}")
    return Sandbox(program)


def check_project(project: Path) -> None:
    """Raises ToolFailure, denied, for a project that can't be kept apart from the home folder."""
    if Path.home().resolve().is_relative_to(project):
        raise ToolFailure(
            "denied",
            f"{PROJECT} holds the whole home folder, so commands can't be kept from it; use a smaller one",
        )


class View(NamedTuple):
    """What a command sees. `scratch` becomes its /tmp; `repositories` are those of git in the project."""

    workspace: Workspace
    visible: Visible
    scratch: Path
    network: bool
    repositories: tuple[Path, ...] = ()


def confined(program: str, view: View, more: Sequence[str], folder: Path) -> list[str]:
    """The arguments that put a command, to be appended, into the sandbox. `more` is put before all others,
    `folder` is where the command starts."""
    workspace = view.workspace
    project = workspace.project.path
    argv = [program, *more, *_isolation(view.network), *_system_binds()]
    argv += ["--bind", str(view.scratch), "/tmp"]
    for tools in view.visible.toolchains:
        argv += ["--ro-bind-try", str(tools), str(tools)]
    argv += ["--bind", str(project), str(project)]
    for mount in workspace.mounts:
        if (
            mount.name == WORKFLOW
            and not mount.path.is_relative_to(project)
            and not project.is_relative_to(mount.path)
        ):
            argv += ["--ro-bind", str(mount.path), str(mount.path)]
    for git in view.visible.git:
        argv += ["--ro-bind", str(git), str(git)]
    argv += _kept_apart(workspace, view.repositories)
    return [*argv, "--remount-ro", "/", "--chdir", str(folder), "--"]


@contextlib.contextmanager
def without_git(project: Path, nothing: Path) -> Iterator[list[str]]:
    """Arguments that keep a project without git's folder from getting one while a command runs: for somebody
    else may be at work in it at this moment. The empty folder that stands there is removed afterwards."""
    place = project / ".git"
    with contextlib.suppress(OSError):
        place.mkdir()
    try:
        is_empty = place.is_dir() and not place.is_symlink() and not any(place.iterdir())
        yield ["--ro-bind", str(nothing), str(place)] if is_empty else []
    finally:
        with contextlib.suppress(OSError):
            place.rmdir()


def clean_environment(environ: Mapping[str, str], home: str, temporary: str, network: bool) -> dict[str, str]:
    """The variables that a command gets: few, and none that may hold a key."""
    names = (*_PASSED, *(_PASSED_WITH_NETWORK if network else ()))
    kept = {name: environ[name] for name in names if name in environ and "@" not in environ[name]}
    rustup = environ.get("RUSTUP_HOME") or str(Path.home() / ".rustup")
    return {
        **kept,
        **({"RUSTUP_HOME": rustup} if Path(rustup).is_dir() else {}),
        "PATH": environ.get("PATH") or os.defpath,
        "HOME": home,
        "TMPDIR": temporary,
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        # Git's own folder can't be written in the sandbox; this keeps `git status` from trying.
        "GIT_OPTIONAL_LOCKS": "0",
    }


def shell(path: str, command: str) -> list[str]:
    """A shell that runs the command. The limit keeps a fork bomb from taking the machine with it, on
    kernels that count processes by namespace and for users other than root."""
    bash = shutil.which("bash", path=path)
    if bash is None:
        return ["/bin/sh", "-c", command]
    return [bash, "-c", f'ulimit -u {_PROCESSES} 2>/dev/null; exec "$0" -c "$1"', bash, command]


def _isolation(network: bool) -> list[str]:
    return [
        "--unshare-user",
        "--unshare-all",
        *(["--share-net"] if network else []),
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--hostname",
        "sandbox",
        "--proc",
        "/proc",
        # For a user who is root outside too, the kernel's settings would be writable.
        "--ro-bind-try",
        "/proc/sys",
        "/proc/sys",
        "--dev",
        "/dev",
        "--dir",
        "/run",
        "--dir",
        "/var",
        "--symlink",
        "../tmp",
        "/var/tmp",
    ]


def _system_binds() -> list[str]:
    argv: list[str] = []
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            argv += ["--ro-bind", name, name]
    for name in _ETC:
        path = Path("/etc", name)
        if path.exists():
            # A link into /run or /usr is replaced by what it leads to.
            argv += ["--ro-bind", str(path.resolve()), str(path)]
    if Path("/etc/resolv.conf").exists():
        argv += ["--ro-bind", str(Path("/etc/resolv.conf").resolve()), "/etc/resolv.conf"]
    return argv


def _kept_apart(workspace: Workspace, repositories: Sequence[Path]) -> Iterator[str]:
    """What is in the project and yet not the command's: what is git's own, and what is hidden."""
    project = workspace.project.path
    for path in repositories:
        git = path.resolve()
        if git.exists() and git.is_relative_to(project):
            yield from ("--ro-bind", str(git), str(git))
    for path in workspace.hidden:
        if path.is_relative_to(project):
            yield from ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", "/dev/null", str(path))
