"""The library on systems that this machine is not: it can be imported, and names no call that they lack."""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_layers import SOURCES

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

platform, modules, names, signals, *ours = sys.argv[1:]
for name in ours:
    importlib.import_module(name)  # with the libraries that they need, which may ask for the platform
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
    assert not done.stdout
