"""A program for pools of warm processes, whose first argument says what it does."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from uwf_git.base import lifetime

_kept: list[object] = []


def main(args: Sequence[str]) -> int:
    match args:
        case ["tell"]:
            print(os.getpid(), Path.cwd(), os.environ.get("COLOUR"), sys.stdin.read())
            print("beside", file=sys.stderr)
        case ["exit", status]:
            sys.exit(int(status))
        case ["raise"]:
            raise RuntimeError("broken")
        case ["die", status]:
            os._exit(int(status))
        case ["sleep", path]:
            Path(path).write_text(str(os.getpid()))
            time.sleep(60)
        case ["wait", path]:
            Path(path).write_text("here")
            while Path(path).exists():
                time.sleep(0.01)
            Path(f"{path}.over").write_text("over")
        case ["leave", "foreign code"]:
            lifetime.share()
        case ["leave", "a thread to wait for", path]:
            threading.Thread(target=lambda: (time.sleep(0.3), Path(path).write_text("over"))).start()
        case ["leave", "a thread"]:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        case ["leave", "files"]:
            _kept.extend(open(os.devnull) for _ in range(300))  # noqa: SIM115
        case ["leave", "a limit of files"]:
            lifetime.share()
            resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))
        case ["leave", "memory"]:
            _kept.append(bytearray(os.urandom(1 << 20) * 128))
    return 0
