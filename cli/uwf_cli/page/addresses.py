"""The addresses of pages: what a request asks for, and how a page links to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from uwf_git.base.errors import Usage

STATUS = {2: 400, 3: 404, 4: 409}
"""The statuses of HTTP for errors, by exit status."""


class Asked(NamedTuple):
    """What a page is asked for: the parts of its path by name, and its query, whose names may repeat."""

    parts: Mapping[str, str]
    query: Sequence[tuple[str, str]] = ()

    def one(self, name: str, default: str = "") -> str:
        """The last value of a name in the query; `default` where it isn't there or empty."""
        return next((value for key, value in reversed(self.query) if key == name and value), default)

    def all(self, name: str) -> tuple[str, ...]:
        """The values of a name in the query that aren't empty."""
        return tuple(value for key, value in self.query if key == name and value)

    def number(self, name: str) -> int:
        """The number that a name in the query has; 0 where it has none. Raises Usage for what is no number."""
        given = self.one(name, "0")
        if not (given.isascii() and given.isdigit() and len(given) < 10):
            raise Usage(f"{name}={given!r} is no number", "leave it out")
        return int(given)

    def also(self, **changed: str | None) -> str:
        """The query with other values for some names, and without those that become None; begins with `?`."""
        kept = [(name, value) for name, value in self.query if name not in changed and value]
        return "?" + urlencode(kept + [(name, value) for name, value in changed.items() if value])


class Page(NamedTuple):
    """What is shown: a template of the folder `templates` of `uwf web` or of an extension, and the values that
    it names. `title` stands in the browser's tab."""

    template: str
    title: str
    values: Mapping[str, object]
    status: int = 200


def thread(id_: str) -> str:
    """The page of a thread."""
    return f"/thread/{quote(id_, safe='')}"


def step(thread_: str, number: int) -> str:
    """The page of a thread's step, the first being 1."""
    return f"{thread(thread_)}/step/{number}"


def attempt(thread_: str, node: str) -> str:
    """The page of a failed attempt."""
    return f"{thread(thread_)}/attempt/{quote(node, safe='')}"


def comparison(a: str, b: str) -> str:
    """The page of two threads side by side."""
    return f"/diff/{quote(a, safe='')}/{quote(b, safe='')}"


def workflow(name: str) -> str:
    """The page of a workflow, by its name or hash; of a crew's, whose name has a slash, as well."""
    return f"/workflow/{quote(name)}"


def suite(name: str) -> str:
    """The page of a suite."""
    return f"/eval/{quote(name, safe='')}"


def crew(name: str) -> str:
    """The page of a crew."""
    return f"/crew/{quote(name, safe='')}"
