"""URLs of pages: parsing requests and linking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from uwf_git.base.errors import Usage

STATUS = {2: 400, 3: 404, 4: 409}
"""The statuses of HTTP for errors, by exit status."""


class PageRequest(NamedTuple):
    """A request: the parts of its path, and its query with repeated names."""

    parts: Mapping[str, str]
    query: Sequence[tuple[str, str]] = ()

    def one(self, name: str, default: str = "") -> str:
        """The last value of a query name, or `default`."""
        return next((value for key, value in reversed(self.query) if key == name and value), default)

    def all(self, name: str) -> tuple[str, ...]:
        """The non-empty values of a query name."""
        return tuple(value for key, value in self.query if key == name and value)

    def number(self, name: str) -> int:
        """A query name's number, 0 by default. Raises Usage."""
        text = self.one(name, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise Usage(f"{name}={text!r} is not a number", "leave it out")
        return int(text)

    def also(self, **changed: str | None) -> str:
        """Return the query with changes; None removes a name. Begins with `?`."""
        kept = [(name, value) for name, value in self.query if name not in changed and value]
        return "?" + urlencode(kept + [(name, value) for name, value in changed.items() if value])


class Page(NamedTuple):
    """A page: a template in the folder `templates` of `uwf web` or an extension, its values and title."""

    template: str
    title: str
    values: Mapping[str, object]
    status: int = 200


def thread(id_: str) -> str:
    return f"/thread/{quote(id_, safe='')}"


def step(thread_: str, number: int) -> str:
    return f"{thread(thread_)}/step/{number}"


def attempt(thread_: str, node: str) -> str:
    return f"{thread(thread_)}/attempt/{quote(node, safe='')}"


def matrix(thread_: str) -> str:
    return f"{thread(thread_)}/matrix"


def comparison(a: str, b: str) -> str:
    return f"/diff/{quote(a, safe='')}/{quote(b, safe='')}"


def workflow(name: str) -> str:
    """Return a workflow's page, by name or hash; crews' workflows have a slash."""
    return f"/workflow/{quote(name)}"


def suite(name: str) -> str:
    return f"/eval/{quote(name, safe='')}"


def crew(name: str) -> str:
    return f"/crew/{quote(name, safe='')}"
