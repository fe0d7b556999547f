"""Other ways than the loop of `api.run` to step many threads, which extensions add: a fleet is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.opened import Instance


class Terms(NamedTuple):
    """How threads are stepped: by which `agent`, None for that of the configuration; `retries` of a step that failed;
    what all of them together may use, by the keys of a budget; so many steps `at_once`."""

    agent: str | None
    retries: int
    limits: Mapping[str, float]
    at_once: int


class Dispatch(Protocol):
    """Steps threads until each has ended, waits for somebody, or is given up."""

    def __call__(
        self, instance: Instance, terms: Terms, warn: Callable[[str], None]
    ) -> Callable[[Sequence[ThreadId]], None]:
        """The function that does it. Raises UwfError if that is not possible on this machine, before any thread is
        begun. `warn` is called with each warning, a line."""
