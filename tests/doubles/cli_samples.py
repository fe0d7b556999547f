"""Workflows and calls that several tests of the command share."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ONE = """\
name: one
description: One step
roles:
  r: {description: R, systemPrompt: Do., outputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}}
graph:
  $START: [{role: r}]
  r: [{role: $END}]
"""

PAIR = """\
version: 1
name: pair
description: One writes, one reviews.
roles:
  writer:
    description: Writes a text.
    systemPrompt: Write.
    outputSchema:
      type: object
      properties:
        text: { type: string }
      required: [text]
  critic:
    description: Says whether the text will do.
    systemPrompt: Review.
    outputSchema:
      type: object
      properties:
        approved: { type: boolean }
      required: [approved]
conditions:
  rejected:
    description: The critic wants another text.
    expression: steps[-1].output.approved = false
graph:
  $START: [{ role: writer }]
  writer: [{ role: critic }]
  critic: [{ role: writer, condition: rejected }, { role: $END }]
"""

GATE = """\
version: 1
name: gated
description: One writes, a person decides.
roles:
  writer:
    description: Writes a text.
    systemPrompt: Write.
    outputSchema: { type: object, properties: { text: { type: string } }, required: [text] }
  gate:
    description: Decides whether the text goes out.
    human: true
    assignee: Ada
    outputSchema:
      type: object
      properties:
        decision: { enum: [send, change, drop], description: What becomes of it. }
        note: { type: string }
        readers: { type: array, items: { type: string } }
      required: [decision]
      additionalProperties: false
conditions:
  change: { description: A change is wanted., expression: 'steps[-1].output.decision = "change"' }
  drop: { description: It is dropped., expression: 'steps[-1].output.decision = "drop"' }
graph:
  $START: [{ role: writer }]
  writer: [{ role: gate, prompt: "Send {{ text }}?" }]
  gate:
    - { role: writer, condition: change, prompt: "{% if note %}{{ note }}{% endif %}" }
    - { end: failed, condition: drop, reason: It was dropped. }
    - { role: $END }
"""
"""Its gate is a person's."""

WRITES = """\
- { role: writer, output: { text: first } }
- { role: gate, output: { decision: change } }
- { role: writer, output: { text: second } }
"""

ASKS = """\
- { role: writer, output: { status: needs_input, question: "Which \\e[31mcolour\\u202e?", options: [red, blue] } }
"""

REJECTS_ONCE = """\
- { role: writer, output: { text: first } }
- { role: critic, output: { approved: false } }
- { role: writer, output: { text: second } }
- { role: critic, output: { approved: true } }
"""


def write(name: str, text: str) -> Path:
    """A file in the current folder."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def scripted(text: str, name: str = "replies.yaml") -> str:
    """The --agent that plays a script."""
    return f"uwf-rehearse --script {write(name, text).absolute()}"


def resize(terminal: int, columns: int, lines: int = 40) -> None:
    """Gives a pseudo-terminal so many columns and lines."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def on_terminal(
    *args: str | Path,
    typed: Sequence[tuple[str, str | Callable[[int, int], object]]] = (),
    env: Mapping[str, str] | None = None,
    columns: int = 100,
    lines: int = 40,
) -> tuple[int, str]:
    """Runs `uwf` on a pseudo-terminal and returns its exit status and all it showed. `typed` are lines to
    type, each after something that must have been shown before; or what to do then, with the number of the process and
    the terminal's descriptor."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update({"TERM": "xterm-256color", **(env or {})})
        # execv would pass what libraries have set behind os.environ, as readline sets COLUMNS.
        os.execve(sys.executable, [sys.executable, "-m", "uwf_cli.main", *map(str, args)], dict(os.environ))
    resize(terminal, columns, lines)
    waiting = list(typed)
    shown, unseen = b"", b""
    try:
        while select.select([terminal], [], [], 30)[0]:
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:  # how Linux reports that the other side is closed
                break
            if not data:
                break
            shown += data
            unseen += data
            if waiting and waiting[0][0].encode() in unseen:
                unseen = b""
                line = waiting.pop(0)[1]
                if callable(line):
                    line(child, terminal)
                else:
                    os.write(terminal, line.encode() + b"\n")
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(terminal)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), shown.decode("utf-8", "replace").replace("\r\n", "\n")
