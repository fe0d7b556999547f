"""Alternatives to the loop of `api.run` for many threads, from extensions, such as a fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance


class StepOptions(NamedTuple):
    """How to step threads: `agent` (None: configured), `retries` per step, shared `limits` by budget keys,
    parallel steps `at_once`."""

    agent: str | None
    retries: int
    limits: Mapping[str, float]
    at_once: int


class Dispatch(Protocol):
    """Steps threads until each has ended, waits or was given up."""

    def __call__(
        self, instance: Instance, terms: StepOptions, warn: Callable[[str], None]
    ) -> Callable[[Sequence[ThreadId]], None]:
        """Return the function that steps threads. Raises UwfError if impossible here, before any thread
        starts. `warn` gets one-line warnings."""
