"""Programs that a machine may lack. A test, or a block of a document, names the programs that it needs. If one is
missing it is skipped with that reason, which names the Debian package; where CI is set it fails.

    pytestmark = pytest.mark.needs("bwrap", "node")     a module; likewise a test or a parameter
    need("ssh-keygen")                                  within a test, a fixture or a double
    ```console needs=ssh-keygen                         in a document

`python tests/doubles/programs.py FOLDER` fills a folder with links to all programs on PATH but these. As the whole of
PATH it is a machine that lacks them.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

# Read when the module is, since the tests' environment is emptied.
IN_CI = bool(os.environ.get("CI"))
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/local/sbin"

PACKAGES = {
    "bwrap": "bubblewrap",
    "cgit": "cgit",
    "chromium": "chromium",
    "fcgiwrap": "fcgiwrap",
    "git": "git",
    "git-daemon": "git",
    "git-http-backend": "git",
    "gh": "gh",
    "gpg": "gnupg",
    "gpgsm": "gpgsm",
    "jq": "jq",
    "lsof": "lsof",
    "mandoc": "mandoc",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "nginx": "nginx",
    "node": "nodejs",
    "openssl": "openssl",
    "pass": "pass",
    "pkill": "procps",
    "rsync": "rsync",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-agent": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "strace": "strace",
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
}
_PLACES = {"cgit": "/usr/lib/cgit/cgit.cgi"}
_NAMES = {"chromium": ("chromium", "chromium-browser", "google-chrome")}
_OLDEST_NODE = 20


def interpreter_for(program: str) -> list[str]:
    """Return the command of Python that runs a program's text: without `site`, which takes two thirds of a start, if
    nothing that is installed is imported."""
    nodes = list(ast.walk(ast.parse(program)))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    is_plain = {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    return [sys.executable, *(("-S",) if is_plain and not named & {"exit", "quit"} else ())]


@cache
def path_of(name: str) -> str | None:
    """Return a program's path, or None if it is missing or does not work."""
    for alias in _NAMES.get(name, (name,)):
        if path := shutil.which(_PLACES.get(alias, alias), path=_PATH):
            return path if _WORKS.get(name, lambda _path: True)(path) else None
    return None


def _sandbox_works(_path: str) -> bool:
    from uwf_git.sandbox.bubblewrap import find_sandbox  # agents are installed before it is

    return find_sandbox({"PATH": _PATH}, network=False).program is not None


def _node_is_new_enough(path: str) -> bool:
    """Whether the harness of code runs on it: distributions may have an older one."""
    printed = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    major = printed.removeprefix("v").partition(".")[0]
    return major.isdecimal() and int(major) >= _OLDEST_NODE


_WORKS = {"bwrap": _sandbox_works, "node": _node_is_new_enough}


def reasons(names: Iterable[str]) -> list[str]:
    """Return a line for each program that is missing."""
    missing = [name for name in names if path_of(name) is None]
    return [f"needs {name} (Debian package {PACKAGES[name]})" for name in missing]


def need(*names: str) -> None:
    """Skip the test if a program is missing; fail it in CI."""
    if missing := reasons(names):
        import pytest  # the benchmarks start servers without it

        (pytest.fail if IN_CI else pytest.skip)("; ".join(missing))


def program(name: str) -> str:
    """Return a program's path. Skips or fails the test as `need` does."""
    need(name)
    path = path_of(name)
    assert path is not None
    return path


def hide(folder: Path) -> None:
    """Fill a folder with links to the programs on PATH that every machine has."""
    aliases = (alias for names in _NAMES.values() for alias in names)
    hidden = {*PACKAGES, *aliases, "ssh-add", "nodejs", "npm", "npx"} - {"git"}
    folder.mkdir(parents=True)
    for place in map(Path, dict.fromkeys(_PATH.split(os.pathsep))):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            link = folder / path.name
            if path.name not in hidden and os.access(path, os.X_OK) and not link.is_symlink():
                link.symlink_to(path)


if __name__ == "__main__":
    hide(Path(sys.argv[1]))
