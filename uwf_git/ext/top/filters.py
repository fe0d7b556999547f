"""A filter: the words of `uwf thread list`, a text to search for, or a saved view."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from uwf_git.plugin import Instance, ThreadFilters, Usage, parse_filters, view_words

_VIEW = "--view"
LAST_NIGHT = (_VIEW, "last-night")


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
    given = list(words)
    if _VIEW in given[:-1]:
        place = given.index(_VIEW)
        given[place : place + 2] = split(view_words(instance, given[place + 1]))
    return Filter(tuple(words), parse_filters(given))
