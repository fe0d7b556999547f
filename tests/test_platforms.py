"""The library on systems that this machine is not: it can be imported, and names no call that they lack."""

from __future__ import annotations

import ast
import errno
import importlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY
from test_layers import SOURCES

from uwf_git.api.doctor import Doctor
from uwf_git.base import system
from uwf_git.base.system import macos, windows
from uwf_git.store.location import init, locate

ABSENT = {
    "win32": (
        "fcntl grp pty pwd resource termios tty readline",
        "O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH fchmod fork forkpty getegid geteuid getgid "
        "getpgid getpgrp getsid getuid killpg major mkfifo pidfd_open posix_fadvise posix_fallocate posix_spawn pread "
        "pwrite register_at_fork sched_getaffinity setpgid setsid statvfs sysconf tcgetpgrp uname waitid",
        "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGURG SIGUSR1 SIGWINCH SIGXCPU "
        "SIGXFSZ pidfd_send_signal pthread_kill pthread_sigmask setitimer",
    ),
    "darwin": (
        "",
        "O_PATH pidfd_open posix_fadvise posix_fallocate sched_getaffinity waitid",
        "pidfd_send_signal",
    ),
}
"""What Python lacks on each system: modules, names of os, names of signal."""

IMPORTS = """
import importlib, os, signal, sys

platform, modules, names, signals, *named = sys.argv[1:]
ours = []
for name in named:
    try:
        importlib.import_module(name)  # with the libraries that they need, which may ask for the platform
        ours.append(name)
    except ModuleNotFoundError:
        pass  # of an extra that is not installed
for name in [*sys.modules]:
    if name.split(".")[0] in ("uwf_git", "uwf_cli") or name in modules.split():
        del sys.modules[name]


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in modules.split():
            raise ModuleNotFoundError(f"no module {name} on {platform}")


sys.meta_path.insert(0, Refuse())
sys.platform = platform
for module, gone in ((os, names), (signal, signals)):
    for name in gone.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ours:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {error!r}")
print(len(ours) > 700)
"""


@pytest.mark.parametrize("platform", ABSENT)
def test_every_module_can_be_imported_on_another_system(platform: str) -> None:
    siblings = {f"uwf_git.base.system.{name}" for name in ("linux", "macos", "posix", "windows")}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, platform, *ABSENT[platform], *sorted({*SOURCES} - siblings)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"


def test_the_siblings_have_the_same_names_and_the_page_tells_of_each() -> None:
    names = {sibling: public_names(sibling) for sibling in ("linux", "macos", "windows")}
    own = {"linux": {"content"}, "macos": {"process_of", "variables_of"}, "windows": {"long_path", "path_of"}}
    shared = set.intersection(*names.values())
    assert {sibling: names[sibling] - shared for sibling in names} == own
    page = (REPOSITORY / "docs" / "reference" / "platforms.md").read_text(encoding="utf-8")
    table = page.partition("## Guarantees")[2].partition("\n## ")[0]
    told = {name for row in table.splitlines() if row.startswith("|") for name in re.findall(r"`(\w+)`", row)}
    assert shared - told == {"NAME"}, "a name of the interface that no row of the table has"
    assert {name for name in told if name in own["macos"] | own["windows"]} == set()


def public_names(sibling: str) -> set[str]:
    module = importlib.import_module(f"uwf_git.base.system.{sibling}")
    ours = (f"uwf_git.base.system.{name}" for name in (sibling, "posix"))
    defined: set[str] = set()
    for name in ours if sibling != "windows" else (module.__name__,):
        tree = ast.parse(SOURCES[name].read_text(encoding="utf-8"))
        for node in tree.body:
            match node:
                case ast.FunctionDef() | ast.ClassDef():
                    defined.add(node.name)
                case ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target)):
                    defined.add(target)
                case ast.ImportFrom():
                    defined |= {alias.name for alias in node.names if alias.name.startswith("O_")}
    return {name for name in defined if not name.startswith("_") and hasattr(module, name)}


def test_a_process_of_macos_is_read_as_its_kernel_writes_it() -> None:
    """The layout of struct proc_taskallinfo: proc_bsdinfo, then proc_taskinfo."""
    began = 1_700_000_000, 250_000
    basic = struct.pack("=12I", 0, 2, 0, 42, 7, *[501] * 6, 0) + b"git".ljust(48, b"\0")
    basic += struct.pack("=5IiQQ", 9, 40, 0, 0, 0, 0, *began)
    task = struct.pack("=6Q12i", 1 << 30, 5 << 20, 300, 200, 0, 0, *[0] * 9, 3, 1, 31)
    process = macos.process_of(basic + task, 0.01)
    assert process == (42, 7, 40, 1_700_000_000_250_000, 3, 5.0, 5 << 20)
    assert macos.seconds_of(process) == 1_700_000_000.25
    assert macos.process_of(basic, 0.01) == process._replace(threads=0, processor=0.0, resident=0)
    assert macos.process_of(basic.replace(b"\2", b"\5", 1), 0.01) is None


def test_variables_of_a_process_of_macos_follow_its_arguments() -> None:
    told = struct.pack("=i", 2) + b"/usr/bin/git\0\0\0\0git\0log\0HOME=/Users/ada\0UWF_AGENT_MARK=1\0"
    assert macos.variables_of(told) == b"HOME=/Users/ada\0UWF_AGENT_MARK=1\0"


def test_macos_syncs_to_the_disk_itself_and_as_far_as_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(macos.fcntl, "fcntl", lambda descriptor, order: calls.append((descriptor, order)))
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append((descriptor, 0)))
    macos.sync(5)

    def refuse(_descriptor: int, _order: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(macos.fcntl, "fcntl", refuse)
    macos.sync(6)
    assert calls == [(5, 51), (6, 0)]


def test_a_batch_file_gets_no_arguments_that_its_shell_would_run() -> None:
    windows.check_arguments("C:/tools/agent.exe", ["100%", "a & b"])
    windows.check_arguments("C:/tools/agent.cmd", ["--model", "fast one"])
    for argument in ("100%", "a & del b", '"quoted"', "two\nlines"):
        with pytest.raises(ValueError, match="name its program"):
            windows.check_arguments("C:/tools/agent.CMD", [argument])


def test_doctor_finds_a_store_of_wsl_on_a_drive_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    location = locate(None, os.environ, Path.cwd())
    init(location)
    monkeypatch.setattr(system, "is_in_windows", lambda: True)
    for kind, count in (("ext4", 0), ("9p", 1)):
        monkeypatch.setattr(system, "file_system", lambda _path, kind=kind: kind)
        checks = Doctor(location).checks()
        assert sum("drive of Windows" in check.message for check in checks) == count
