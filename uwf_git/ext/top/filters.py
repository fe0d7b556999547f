"""The words of a filter, as `uwf thread list` takes them, and a text to search for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

import click

from uwf_git.plugin import ThreadFilters, Usage, thread_filters

LAST_NIGHT = ("--status", "failed", "--since", "12h")


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
        raise Usage(f"{text!r}: {error}", "close the quotation mark") from None


def parse(words: Sequence[str]) -> Filter:
    """Raises Usage."""
    try:
        filters: ThreadFilters = _options.main(list(words), "filter", standalone_mode=False)
    except click.ClickException as error:
        raise Usage(error.format_message(), "the options are those of: uwf thread list --help") from None
    return Filter(tuple(words), filters)


@click.command(add_help_option=False)
@click.argument("text", nargs=-1)
@thread_filters("Include threads that have ended.")
def _options(text: tuple[str, ...], filters: ThreadFilters) -> ThreadFilters:
    if not text:
        return filters
    if filters.search is not None:
        raise Usage("a text and --search exclude each other", "give one of them")
    return filters._replace(search=" ".join(text))
