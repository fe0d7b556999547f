"""Filters of threads as words, which the command, a page's filter line and saved views share:

--status failed,waiting --since 12h --workflow solve-issue csv export
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.api.listing import SORTS, Filters
from uwf_git.base.errors import NotFound, Usage
from uwf_git.base.text import nearest, one_line
from uwf_git.base.thread_states import WORDS, ThreadState, states_of
from uwf_git.format.amounts import moment

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

VIEWS = {
    "last-night": f"--status {ThreadState.FAILING.word} --unretried --since 16h",
    "mine": "--author me",
    "expensive": "--all --sort cost --min-cost 0.01",
}
"""The views that are there without a configuration."""

_DAY = 86_400  # seconds
_FLAGS = {"--all": "all", "--ended": "ended", "--unretried": "unretried"}
_OPTIONS = {
    "--view": "view",
    "--status": "status",
    "--workflow": "workflow",
    "--author": "author",
    "--since": "since",
    "--until": "until",
    "--older-than": "until",
    "--search": "search",
    "--min-cost": "min_cost",
    "--sort": "sort",
}


def parse_filters(instance: Instance, words: str | Sequence[str]) -> Filters:
    """Parse the words of a filter line: the options of `uwf thread list`, in which other words are the text to search
    for. Raises Usage, and NotFound for an unknown view."""
    values = _values(words)
    return filters_of(with_view(instance, values.pop("view", None), values))


def with_view(instance: Instance, view: str | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options with those of a view that were not typed. Raises Usage, NotFound."""
    if view is None:
        return dict(values)
    words = _view_words(instance, view)
    try:
        saved = _values(words)
        if "view" in saved:
            raise Usage("a view has no --view", "write the filters themselves")
        filters_of(saved)
    except Usage as error:
        raise Usage(f"view {view}: {error.message}", error.hint) from None
    typed = {name: value for name, value in values.items() if value not in (None, False, [])}
    if typed.keys() & {"status", "states", "ended"}:
        saved = {name: value for name, value in saved.items() if name not in ("status", "ended")}
    return {**values, **saved, **typed}


def _values(words: str | Sequence[str]) -> dict[str, Any]:
    """Return the values of such words by the names of options, as typed; `status` has the words of several, `all`,
    `ended` and `unretried` are flags. Raises Usage."""
    values: dict[str, Any] = {}
    texts = []
    rest = list(reversed(_split(words) if isinstance(words, str) else words))
    while rest:
        word = rest.pop()
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            values[_FLAGS[word]] = True
        elif name in _OPTIONS:
            if not equals:
                if not rest:
                    raise Usage(f"{name} has no value", f"as in {name} {_EXAMPLES.get(name, 'TEXT')}")
                value = rest.pop()
            if name == "--status":
                values.setdefault("status", []).extend(value.split(","))
            else:
                values[_OPTIONS[name]] = value
        elif word.startswith("--"):
            known = (*_FLAGS, *_OPTIONS)
            raise Usage(
                f"no filter {one_line(name, 60)!r}", nearest(name, known) or f"known: {', '.join(known)}"
            )
        else:
            texts.append(word)
    if texts:
        values["search"] = " ".join([*filter(None, [values.get("search")]), *texts])
    return values


_EXAMPLES = {
    "--view": "last-night",
    "--status": ThreadState.FAILING.word,
    "--since": "12h",
    "--until": "90d",
    "--older-than": "90d",
    "--sort": "cost",
    "--min-cost": "0.50",
}


def filters_of(values: Mapping[str, Any]) -> Filters:
    """Return the filters of such values, of which `states` go before the words of `status`. Raises Usage."""
    states = values.get("states") or [
        state for word in values.get("status", ()) for state in _states(word.strip())
    ]
    only_ended = values.get("ended", False)
    if only_ended and states:
        raise Usage("--ended and --status exclude each other", "give one of them")
    for name in ("workflow", "author", "search"):
        text = values.get(name)
        if text is not None and not text.strip():  # a script's empty variable must not select all
            raise Usage(f"--{name} is empty", "omit it, or give a value")
    sort = values.get("sort") or SORTS[0]
    if sort not in SORTS:
        raise Usage(f"--sort {one_line(sort, 60)!r} is no order", "it is one of " + ", ".join(SORTS))
    return Filters(
        frozenset(states),
        values.get("workflow"),
        values.get("author"),
        moment(values.get("since"), "--since"),
        values.get("search"),
        values.get("all", False),
        moment(values.get("until"), "--until or --older-than:", _DAY),
        only_ended,
        sort,
        values.get("unretried", False),
        _least(values.get("min_cost")),
    )


def _least(text: str | None) -> float | None:
    try:
        least = None if text is None else float(text)
    except ValueError:
        least = -1.0
    if least is not None and not 0 <= least < math.inf:
        raise Usage(
            f"--min-cost {one_line(str(text), 60)!r} is no number of US dollars", "as in --min-cost 0.50"
        )
    return least


def views(instance: Instance) -> dict[str, str]:
    """Return the views by name, the user's own first, with their words."""
    own = instance.config.views if instance.config_has(b"views") else {}
    return {**own, **{name: words for name, words in VIEWS.items() if name not in own}}


def _view_words(instance: Instance, name: str) -> str:
    known = views(instance)
    if name not in known:
        raise NotFound(
            f"no view {one_line(name, 60)!r}", nearest(name, known) or "add it below views in config.yaml"
        )
    return known[name]


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise Usage(f"the filter cannot be read: {error}", "close its quotes") from None


def _states(word: str) -> Collection[ThreadState]:
    if word not in WORDS:
        raise Usage(f"no status {one_line(word, 60)!r}", "it is one of " + ", ".join(WORDS))
    return states_of(word)
