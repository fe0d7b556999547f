"""Makes calls fail: `uwf` killed at its n-th write, and root refused what others are refused."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from programs import need

DRIVER = """
import os, signal, sys
from uwf_git.store import index
from uwf_git.git import bulk, repository
from uwf_git.store import private
stop, after = int(sys.argv[1]), sys.argv[2] == "after"
count = 0

def guard(owner, name):
    original = getattr(owner, name)
    def guarded(*args, **kwargs):
        global count
        count += 1
        mine = count == stop
        if mine and not after: os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if mine: os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, guarded)

for name in ("_write", "create_ref", "move_ref", "delete_ref"): guard(repository.Repository, name)
guard(bulk, "install")
rows = "set_nodes", "add_commit", "set_tip", "set_folded", "add_archive", "set_decision"
for name in rows: guard(index.Index, name)
for name in ("order", "clear"): guard(private.Runs, name)
sys.argv[1:] = sys.argv[3:]
from uwf_cli.main import main
main()
"""
"""Arguments: the number of the write, `before` or `after` it, then those of `uwf`."""
DRIVER_WITH_GIT = DRIVER.replace(
    "sys.argv[1:] =", 'from uwf_git.git import program\nguard(program.Git, "run")\nsys.argv[1:] =', 1
)
"""The same, where a call of the git program counts as a write too."""


def obeying_modes() -> list[str]:
    """A prefix that makes root obey file modes, as every other user does."""
    if os.geteuid() != 0:
        return []
    need("setpriv")  # so that root is refused anything
    return ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]


def _small_disk_works() -> bool:
    mount = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(mount, capture_output=True, check=False).returncode
    )


on_a_small_disk = pytest.mark.skipif(
    not _small_disk_works(), reason="needs user namespaces and unshare (Debian package util-linux)"
)
"""For tests that mount one in a namespace of their own."""
