"""The operating system: the one place that knows which one this is.

A sibling for each system has the same names: `linux` and `macos`, with what both share in `posix`, and `windows`.
docs/reference/platforms.md has the table of what holds on each.

    open_file, O_...    open a file; flags that a system lacks are obeyed by `open_file`, or are 0
    read_at, write_at   read and write at a place of an open file
    sync                wait until an open file is on the disk, not just in the disk's own memory
    replace, remove     name a file anew, and take it away, also while others have it open
    lock, lock_folder   hold an open file, or a folder, until its last descriptor is closed, in whatever process
    set_mode, user      who may read a file, and who this is
    file_system, ...    what a folder is on, and what holds there
    processes, ...      the processes of this machine; `notify` and `signal_group` signal them
    Tree, Outputs       what a child has started, and what it writes
    bind                takes an address for a server
    require             refuses what a system lacks

`os.open` and the modules of one system (fcntl, msvcrt, termios …) are for this package alone. Any module of ours can be
imported on each system: what one lacks is refused where it is asked for.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from uwf_git.base.system.windows import *  # noqa: F403
elif sys.platform == "darwin":
    from uwf_git.base.system.macos import *  # noqa: F403
else:
    from uwf_git.base.system.linux import *  # noqa: F403
