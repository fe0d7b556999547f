"""The wheel and the sdist of the sources, built as `python -m build` does, but in this interpreter's environment, which
has what a build needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

SOURCES = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".agents",
    ".demo",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "artefacts",
    "dist",
    "*.egg-info",
)


def copy_sources(folder: Path) -> Path:
    """Copy a checkout without git and what git ignores, and return the folder."""
    shutil.copytree(SOURCES, folder, ignore=_LEFT_OUT, symlinks=True)
    return folder


def build(
    kind: Literal["wheel", "sdist"],
    sources: Path,
    folder: Path,
    environ: Mapping[str, str] | None = None,
    umask: int = -1,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(folder.absolute())],
        cwd=sources,
        env={**os.environ, **(environ or {})},
        umask=umask,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return folder / done.stdout.splitlines()[-1]
