"""Common parts of commands with remotes: git with a progress meter, and warnings of large blobs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from uwf_cli import terminal
from uwf_cli.invocation import Invocation
from uwf_git.base.terminal import is_drawn_on, undisturbed

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange, Git, LargeBlob, Remote
    from uwf_git.store.instance import Instance

AFTER = 1.0
BETWEEN = 0.1
MOST_SAID = 20
_BAR = 20
_STEP = r"(?:remote: )?([A-Z][A-Za-z ]{2,40}): +[0-9]{1,3}% \(([0-9]+)/([0-9]+)\)"
# git's own server-side messages, beside the progress.
_OF_GIT = r"remote: (?:$|(?:Enumerating|Counting|Compressing|Resolving|Unpacking|Checking|Total) )"


class Meter:
    """Progress on one line of standard error, drawn after one second and removed at the end. git's progress
    is parsed from its standard error; a server's messages are shown above. Silent without a terminal."""

    def __init__(self) -> None:
        self.shown = terminal.is_terminal(sys.stderr)
        self._began = time.monotonic()
        self._drawn = 0.0
        self._rest = ""
        self._said = 0

    def step(self, what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if not self.shown or is_drawn_on() or now - self._began < AFTER or now - self._drawn < BETWEEN:
            return
        from shutil import get_terminal_size

        self._drawn = now
        part = min(done / of, 1.0) if of else 1.0
        bar = ("#" * round(part * _BAR)).ljust(_BAR, "·")
        text = f"{what.lower():<20} {bar} {part:4.0%}  {done:,} of {of:,}"
        self._write("\r" + terminal.cut(terminal.escape(text), get_terminal_size().columns - 1) + "\x1b[K")

    def heard(self, text: str) -> None:
        """Parse git's next output; "" at its end."""
        *lines, self._rest = re.split(r"[\r\n]", self._rest + text)
        self._rest = self._rest[-4096:]
        for line in lines:
            if match := re.match(_STEP, line):
                self.step(match[1], int(match[2]), int(match[3]))
            elif line.startswith("remote: ") and not re.match(_OF_GIT, line) and self._said < MOST_SAID:
                self._said += 1
                self.clear()
                self._write(terminal.escape(line.rstrip()) + "\n")
        if not text:
            self._rest = ""
            self.clear()

    def clear(self) -> None:
        if self._drawn:
            self._drawn = 0.0
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self.shown:
            with undisturbed():
                sys.stderr.write(text)
                sys.stderr.flush()


def git_for(instance: Instance, meter: Meter | None = None) -> Git:
    """Return the git program of a store, with its progress on the terminal."""
    from uwf_git.api.exchange import git_for

    return git_for(instance, _heard(meter))


def _heard(meter: Meter | None) -> Callable[[str], None] | None:
    meter = meter or Meter()
    return meter.heard if meter.shown else None


def exchange_for(instance: Instance, remote: Remote | str | None, meter: Meter | None = None) -> Exchange:
    """Return the exchange with a remote (by default `origin` or the only one), with a meter. Raises NotFound, Usage."""
    from uwf_git.api.exchange import exchange_with

    return exchange_with(instance, remote, _heard(meter))


def warn_of_large_blobs(invocation: Invocation, large: Sequence[LargeBlob]) -> None:
    """Warn of blobs that forges may refuse."""
    for blob in large[:5]:
        what = f"node {blob.node}" if blob.node else f"blob {blob.blob}"
        invocation.warn(f"{what} has {blob.size / 1_000_000:.1f} MB; forges advise at most 1 MB a file")
    if len(large) > 5:
        invocation.warn(f"{len(large) - 5} more blobs have over 1 MB")
