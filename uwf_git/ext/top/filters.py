"""A filter: the words of `uwf thread list`, a text to search for, or a saved view."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from uwf_git.plugin import Instance, ThreadFilters, Usage, parse_filters

LAST_NIGHT = ("--view", "last-night")


class Filter(NamedTuple):
    """Filters and the words that they were parsed from."""

    words: tuple[str, ...] = ()
    filters: ThreadFilters = ThreadFilters()

    @property
    def text(self) -> str:
        return shlex.join(self.words)


def split(text: str) -> tuple[str, ...]:
    """Return the words of a line. Raises Usage."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise Usage(f"this line cannot be read: {error}", "close its quotes") from None


def parse(instance: Instance, words: Sequence[str]) -> Filter:
    """Raises Usage, and NotFound for an unknown view."""
    return Filter(tuple(words), parse_filters(instance, words))
