"""The files that an agent reads and writes through its client: those of the workspace, by its rules."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uwf_git.agents.builtin.tools.failure import ToolFailure, shown
from uwf_git.agents.builtin.tools.workspace import PROJECT, Change, Workspace
from uwf_git.config.policy import ToolPolicy

LARGEST = 10 * 1024 * 1024  # bytes of a file


class Files:
    """fs/read_text_file and fs/write_text_file. `readable` and `writable` say what the policy lets the
    agent be offered."""

    def __init__(self, folder: Path, policy: ToolPolicy, hidden: Sequence[Path] = ()) -> None:
        self._folder = folder
        self._workspace = Workspace(folder, hidden=hidden)
        self.readable = policy.permits("read_file")
        self.writable = policy.permits("write_file")

    def read(self, path: Any, line: Any, limit: Any) -> str:
        """The text from line `line`, which counts from 1, at most `limit` lines. Raises ToolFailure."""
        if not self.readable:
            raise ToolFailure("denied", "the configuration doesn't allow read_file")
        data, _mode = self._workspace.read(self._inside(path), LARGEST)
        text = data.decode("utf-8", "replace")
        if not isinstance(line, int | None) or not isinstance(limit, int | None):
            raise ToolFailure("invalid_arguments", "line and limit are numbers")
        if line is None and limit is None:
            return text
        # No file has more lines than this, and no slice takes a number of any size.
        first = min(max(0, (line or 1) - 1), LARGEST)
        last = None if limit is None else first + min(max(0, limit), LARGEST)
        return "".join(itertools.islice(io.StringIO(text, newline="\n"), first, last))

    def write(self, path: Any, text: Any) -> None:
        """Makes or replaces a file, with the folders above it. Raises ToolFailure."""
        if not self.writable:
            raise ToolFailure("denied", "the configuration doesn't allow write_file")
        if not isinstance(text, str):
            raise ToolFailure("invalid_arguments", "content is a text")
        data = text.encode("utf-8", "replace")
        if len(data) > LARGEST:
            raise ToolFailure("too_large", f"{shown(str(path))} would hold more than {LARGEST} bytes")
        self._workspace.change([Change(self._inside(path), data)])

    def _inside(self, path: Any) -> str:
        """The protocol's paths are absolute; the workspace's are its own."""
        if not isinstance(path, str) or not path.startswith("/"):
            raise ToolFailure("invalid_arguments", f"{shown(str(path))} is no absolute path")
        for folder in (self._folder, self._folder.resolve()):
            prefix = f"{folder}".rstrip("/") + "/"
            if path.startswith(prefix):
                return f"{PROJECT}/{path[len(prefix) :]}"
        raise ToolFailure("outside_workspace", f"{shown(path)} is outside of {self._folder}")
