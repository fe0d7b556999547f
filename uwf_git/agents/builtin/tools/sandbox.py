"""What of the machine a command sees beside the system's own: toolchains, and git's folder of a worktree.

It is decided once, when the tools are made, and from what no command can write: the user's PATH, folders
outside of the project. What stands in the project may have been written by a model, in this step or in an
earlier one, so nothing in there widens it: the Python of a virtual environment is shown only where it is an
installation of Python, and a repository only where it says itself that the project is its worktree.

A command's surroundings: a clean environment, and bubblewrap around it where it works.

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

from uwf_git.agents.builtin.tools.outputs import ToolFailure
from uwf_git.agents.builtin.tools.workspace import PROJECT, WORKFLOW, Workspace
from uwf_git.errors import AgentFailed
from uwf_git.processes import run_command

# Of an installation, what programs need: beside these there may be anybody's files, as in ~/.local.
_PARTS = ("bin", "include", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg", "conda-meta", "ssl")
_NO_PROGRAMS = ("/", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var", "/var/tmp")
_INSTALLED = (
    "pyvenv.cfg",
    "conda-meta",
    "lib/node_modules",
)  # marks of a folder that holds a bin/ of its own
_ENVIRONMENTS = (".venv", "venv")


class Visible(NamedTuple):
    """Folders and files that a command can read: `toolchains`, where they are there, and `git`."""

    toolchains: tuple[Path, ...] = ()
    git: tuple[Path, ...] = ()


def visible(project: Path, path: str, system: tuple[str, ...]) -> Visible:
    """What commands in a project see, which is free of symbolic links, under a PATH. `system` are the
    folders that they see anyway."""
    return Visible(tuple(_toolchains(project, path, system)), tuple(_git_beside(project)))


def outside(path: str, project: Path) -> str:
    """A PATH without the folders that a command could have put programs into."""
    entries = (Path(entry) for entry in path.split(os.pathsep) if entry.startswith("/"))
    return os.pathsep.join(str(entry) for entry in entries if not _reaches_into(entry, project))


def _reaches_into(path: Path, project: Path) -> bool:
    normal = Path(os.path.normpath(path))
    return normal.is_relative_to(project) or path.resolve().is_relative_to(project)


def _toolchains(project: Path, path: str, system: tuple[str, ...]) -> Iterator[Path]:
    home = Path.home().resolve()
    seen: set[Path] = set()
    entries = [Path(entry) for entry in path.split(os.pathsep) if entry.startswith("/")]
    mine = [entry for entry in entries if _reaches_into(entry, project)]
    found = [
        *(folder for entry in entries if entry not in mine for folder in _around(entry, home)),
        *(folder for entry in mine if entry.name == "bin" for folder in _python_of(entry.parent, home)),
        *(folder for name in _ENVIRONMENTS for folder in _python_of(project / name, home)),
    ]
    for folder in found:
        real = folder.resolve()
        inside = _reaches_into(folder, project) or any(real.is_relative_to(name) for name in system)
        around = home.is_relative_to(real) or project.is_relative_to(real) or str(real) in _NO_PROGRAMS
        if folder not in seen and not inside and not around and real.exists():
            seen.add(folder)
            yield folder


def _around(entry: Path, home: Path) -> Iterator[Path]:
    """A folder of PATH, and what an environment or a version manager has around it."""
    yield entry
    prefix = entry.parent
    if entry.name == "bin" and prefix != home:
        if any((prefix / mark).exists() for mark in _INSTALLED) or any(prefix.glob("lib/python3*")):
            yield from (prefix / part for part in _PARTS)
        if prefix.name == ".cargo":
            yield home / ".rustup"
        if (prefix / "pyvenv.cfg").exists():
            yield from _python_of(prefix, home)
    elif entry.name == "shims":
        yield prefix  # of pyenv, rbenv, asdf: the versions stand beside it


def _python_of(environment: Path, home: Path) -> Iterator[Path]:
    """The Python that a virtual environment was made with."""
    try:
        program = (environment / "bin" / "python").resolve(strict=True)
    except (OSError, RuntimeError):
        return
    base = program.parent.parent
    if program.parent.name != "bin" or not program.name.startswith("python") or home.is_relative_to(base):
        return
    if not any(base.glob("lib*/python3*/os.py")):
        return
    # The way there may lead through a folder that has the version's short name, as uv's do.
    named = _home_of(environment / "pyvenv.cfg")
    for folder in dict.fromkeys((base, *([named] if named is not None and named.resolve() == base else []))):
        yield from (folder / part for part in _PARTS)


def _home_of(configuration: Path) -> Path | None:
    try:
        lines = configuration.read_text(encoding="utf-8", errors="replace")[:10_000].splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == "home" and value.strip().startswith("/"):
            return Path(value.strip()).parent
    return None


def _git_beside(project: Path) -> Iterator[Path]:
    """Git's folders of a worktree or a submodule, which stand elsewhere."""
    link = project / ".git"
    try:
        if not link.is_file() or not (text := _line(link)).startswith("gitdir: "):
            return
        folder = (project / text.removeprefix("gitdir: ")).resolve(strict=True)
        common = folder / "commondir"
        shared = (folder / _line(common)).resolve(strict=True) if common.exists() else folder
        if any(each.is_relative_to(project) or project.is_relative_to(each) for each in (folder, shared)):
            return
        if shared == folder:
            trusted = _names_worktree(folder, project)
        else:
            trusted = folder.parent == shared / "worktrees" and _is_same(
                folder, _line(folder / "gitdir"), link
            )
        if trusted and (shared / "HEAD").is_file() and (shared / "objects").is_dir():
            yield from dict.fromkeys((shared, folder))
    except (OSError, ValueError, RuntimeError):
        return


def _names_worktree(folder: Path, project: Path) -> bool:
    """Whether the configuration of a repository names the project, as that of a submodule does."""
    import pygit2

    try:
        named = pygit2.Config(str(folder / "config"))["core.worktree"]
    except (KeyError, pygit2.GitError):
        return False
    return named is not None and _is_same(folder, named, project)


def _is_same(folder: Path, named: str, expected: Path) -> bool:
    return (folder / named).resolve() == expected.resolve()


def _line(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(10_000).strip()


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
