"""The sandbox of a command: bubblewrap, if it works, and a clean environment.

Inside are the system's programs and the user's toolchains, read only; the project, writable except for its
git repositories, since git runs what they name; a /tmp for the step; no home folders, sockets, other
processes, or network unless allowed (then including local services). Whether bubblewrap works is tested by
running it, since kernels and containers restrict it in many ways.

The view is decided once, from things no command can write: the user's PATH and folders outside the project.
Contents of the project may come from a model, so they never widen it: a virtual environment's Python is
visible only if it is a real installation, and a repository only if it names the project as its worktree.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from uwf_git.base import log, system
from uwf_git.base.errors import AgentFailed
from uwf_git.sandbox.child import run_command
from uwf_git.sandbox.mounts import PROJECT
from uwf_git.sandbox.programs import find_program, reaches_into
from uwf_git.sandbox.results import ToolFailure
from uwf_git.sandbox.step_variables import NONCE_VARIABLE, WITHHELD
from uwf_git.sandbox.workspace import Workspace

PACKAGE = "bubblewrap"
_TRIAL = 10.0  # seconds that the trial of bubblewrap may take
_LONGEST_LIFE = 30.0  # seconds that a killed process takes to end, on a slow disk or network
PROCESSES = 4096  # at once, if the kernel counts them per namespace

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
# The part of /etc that programs need; the rest may have keys.
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
    "resolv.conf",
    "rpc",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)

# The parts of an installation that programs need. Other files may be beside them, as in ~/.local.
_PARTS = ("bin", "include", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg", "conda-meta", "ssl")
_INSTALLED = ("pyvenv.cfg", "conda-meta", "lib/node_modules")  # marks a folder with its own bin/
_NO_PROGRAMS = ("/", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var", "/var/tmp")
_ENVIRONMENTS = (".venv", "venv")

_PASSED = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")
_PASSED_WITH_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class Sandbox(NamedTuple):
    """bubblewrap's path, or None, why it isn't available, and what to do about it."""

    program: str | None
    reason: str = ""
    remedy: str = "see: bwrap --ro-bind / / true"

    @property
    def ways_out(self) -> str:
        """How to get a sandbox, and how to do without."""
        return f"{self.remedy}; or go without a sandbox: uwf config set tools.allowUnconfined true"


def find_sandbox(environ: Mapping[str, str], *, network: bool, project: Path | None = None) -> Sandbox:
    """Return this machine's sandbox, tested once per process. Never a program in the project, where a command
    may have put it."""
    sandbox = _tried(find_program("bwrap", project, environ=environ), network)
    log.debug(
        "FN7ZZY5X",
        "the sandbox for commands is {program}",
        program=sandbox.program,
        reason=sandbox.reason,
        network=network,
    )
    return sandbox


@lru_cache(maxsize=8)
def _tried(program: str | None, network: bool) -> Sandbox:
    if system.NAME != "Linux":
        reason = f"bubblewrap, which confines them, is not there on {system.NAME}"
        return Sandbox(None, reason, "run uwf in a container or virtual machine of Linux")
    if program is None:
        return Sandbox(None, "bwrap is not installed", f"install it, as with: apt-get install {PACKAGE}")
    argv = [program, *enclosure(network), "--", "/bin/sh", "-c", ":"]
    try:
        done = run_command(argv, cwd=Path("/"), env={"PATH": os.defpath}, timeout=_TRIAL)
    except AgentFailed as error:
        return Sandbox(None, error.message)
    if done.timed_out:
        return Sandbox(None, f"bwrap did not end within {_TRIAL:g} s")
    if done.returncode != 0:
        complaints = done.stderr_tail.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        return Sandbox(None, f"bwrap does not work here: {complaints[0][:200]}")
    return Sandbox(program)


def check_project(project: Path) -> None:
    """Raise ToolFailure, denied, if a project cannot be separated from the home folder."""
    if Path.home().resolve().is_relative_to(project):
        raise ToolFailure(
            "denied",
            f"{PROJECT} holds the whole home folder, so commands cannot be kept from it; use a smaller one",
        )


class Visible(NamedTuple):
    """Readable folders and files outside the project: toolchains, and git's folders of a worktree or
    submodule."""

    toolchains: tuple[Path, ...] = ()
    git: tuple[Path, ...] = ()


def toolchains(project: Path, path: str) -> tuple[Path, ...]:
    """Return the toolchain folders of a PATH. The project's path has no symbolic links."""
    return tuple(_toolchains(project, path))


def _toolchains(project: Path, path: str) -> Iterator[Path]:
    home = Path.home().resolve()
    seen: set[Path] = set()
    entries = [Path(entry) for entry in path.split(os.pathsep) if entry.startswith("/")]
    mine = [entry for entry in entries if reaches_into(entry, project)]
    paths = [
        *(folder for entry in entries if entry not in mine for folder in _around(entry, home)),
        *(folder for entry in mine if entry.name == "bin" for folder in _python_of(entry.parent, home)),
        *(folder for name in _ENVIRONMENTS for folder in _python_of(project / name, home)),
    ]
    for folder in paths:
        real = folder.resolve()
        inside = reaches_into(folder, project) or any(real.is_relative_to(name) for name in _SYSTEM)
        around = home.is_relative_to(real) or project.is_relative_to(real) or str(real) in _NO_PROGRAMS
        if folder not in seen and not inside and not around and real.exists():
            seen.add(folder)
            yield folder


def _around(entry: Path, home: Path) -> Iterator[Path]:
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
        yield prefix  # pyenv, rbenv, asdf: versions are beside it


def _python_of(environment: Path, home: Path) -> Iterator[Path]:
    try:
        program = (environment / "bin" / "python").resolve(strict=True)
    except (OSError, RuntimeError):
        return
    base = program.parent.parent
    if program.parent.name != "bin" or not program.name.startswith("python") or home.is_relative_to(base):
        return
    if not any(base.glob("lib*/python3*/os.py")):
        return
    # The environment may name a link to it with the version's short name, as uv does.
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


class View(NamedTuple):
    """A command's view. `scratch` becomes its /tmp; `repositories` are those in the project."""

    workspace: Workspace
    visible: Visible
    scratch: Path
    network: bool
    repositories: tuple[Path, ...] = ()


def confined(
    program: str, view: View, folder: Path, options: Sequence[str], binds: Sequence[str]
) -> list[str]:
    """Return the arguments that run an appended command in the sandbox, in `folder`. `options` come first,
    `binds` last."""
    workspace = view.workspace
    project = workspace.project.path
    argv = [program, *options, *enclosure(view.network)]
    argv += ["--bind", str(view.scratch), "/tmp"]
    for tools in view.visible.toolchains:
        argv += ["--ro-bind-try", str(tools), str(tools)]
    argv += ["--bind", str(project), str(project)]
    for mount in workspace.mounts:
        if mount.told and not mount.path.is_relative_to(project) and not project.is_relative_to(mount.path):
            argv += ["--ro-bind", str(mount.path), str(mount.path)]
    for git in view.visible.git:
        argv += ["--ro-bind", str(git), str(git)]
    argv += _kept_apart(workspace, view.repositories)
    return [*argv, *binds, "--remount-ro", "/", "--chdir", str(folder), "--"]


def enclosure(network: bool) -> list[str]:
    """Return the bubblewrap options that hide everything but the system's programs."""
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
        *_system_binds(),
    ]


def _system_binds() -> list[str]:
    argv: list[str] = []
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            argv += ["--ro-bind", name, name]
    for name in _ETC:
        path = Path("/etc", name)
        if path.exists():
            # A link into /run or /usr is replaced by its target.
            argv += ["--ro-bind", str(path.resolve()), str(path)]
    return argv


def _kept_apart(workspace: Workspace, repositories: Sequence[Path]) -> Iterator[str]:
    project = workspace.project.path
    for path in repositories:
        git = path.resolve()
        if git.exists() and git.is_relative_to(project):
            yield from ("--ro-bind", str(git), str(git))
    for path in workspace.hidden:
        if path.is_relative_to(project):
            yield from ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", "/dev/null", str(path))


@contextlib.contextmanager
def without_git(project: Path, nothing: Path) -> Iterator[list[str]]:
    """Bind an empty folder over a missing `.git` during a command, since others may use the project. The
    placeholder is removed afterwards."""
    place = project / ".git"
    with contextlib.suppress(OSError):
        place.mkdir()
    try:
        is_empty = place.is_dir() and not place.is_symlink() and not any(place.iterdir())
        yield ["--ro-bind", str(nothing), str(place)] if is_empty else []
    finally:
        with contextlib.suppress(OSError):
            place.rmdir()


class Lifetime:
    """The life of one sandbox, as a context manager. Leaving it ends all processes inside and waits for that;
    raises ToolFailure, `failed`, if they don't end.

    bubblewrap ends with the command; the rest is killed with the namespace's first process, whose end the
    kernel reports last. So that process is watched, and the sandbox starts only then.
    """

    def __init__(self) -> None:
        self._describe, self._info = os.pipe()
        self._block, self._go = os.pipe()
        self._process: int | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def arguments(self) -> list[str]:
        return ["--info-fd", str(self._info), "--block-fd", str(self._block)]

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self._info, self._block)

    def __enter__(self) -> Lifetime:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._info)
        self._thread.join()
        for descriptor in (self._describe, self._block, self._go):
            os.close(descriptor)
        if self._process is None:
            return  # it never began
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._process, system.KILL)
            poll = select.poll()
            poll.register(self._process, select.POLLIN)
            if not poll.poll(_LONGEST_LIFE * 1000):
                raise ToolFailure("failed", "what the command started does not end")
        finally:
            os.close(self._process)

    def _watch(self) -> None:
        content = b""
        while data := os.read(self._describe, 4096):
            content += data
            with contextlib.suppress(ValueError, KeyError, OSError):
                self._process = os.pidfd_open(int(json.loads(content)["child-pid"]))
                os.write(self._go, b"x")
                return


def clean_environment(environ: Mapping[str, str], home: str, temporary: str, network: bool) -> dict[str, str]:
    """Return a command's variables: few, without keys. `home` and `temporary` are its own folders."""
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
        NONCE_VARIABLE: WITHHELD,
    }


def shell(path: str, command: str) -> list[str]:
    """Return the arguments of a shell command. A limit stops fork bombs, on kernels that count processes by
    namespace and for users other than root."""
    bash = shutil.which("bash", path=path)
    if bash is None:
        return ["/bin/sh", "-c", command]
    return [bash, "-c", f'ulimit -u {PROCESSES} 2>/dev/null; exec "$0" -c "$1"', bash, command]
