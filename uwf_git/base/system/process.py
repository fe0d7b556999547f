"""A process, as each system tells of it."""

from typing import NamedTuple


class Process(NamedTuple):
    """A process. `processor` is CPU seconds including ended children, `resident` bytes of memory; `start`
    distinguishes reused numbers. A `group` is a leader's number, and where there are none the process's own."""

    pid: int
    parent: int
    group: int
    start: int
    threads: int
    processor: float
    resident: int
