"""Forms that pages send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from uwf_git.plugin import BUDGET_OPTIONS, Usage

LONGEST = 1000  # characters of an option
_FIELDS = 2000


class Form(NamedTuple):
    """A form's non-empty fields; the last of duplicates. `pairs` are all."""

    fields: Mapping[str, str]
    pairs: Sequence[tuple[str, str]] = ()

    def text(self, name: str, default: str = "") -> str:
        """Return a multi-line text without CR."""
        return self.fields.get(name, default).replace("\r\n", "\n")

    def words(self) -> str:
        """Return the words of an answer, with the comments on lines below."""
        return "\n\n".join(filter(None, (self.text("answer"), self.text("comments"))))

    def option(self, name: str) -> str:
        """Return an option's value. Raises Usage."""
        value = self.fields.get(name, "").strip()
        if len(value) > LONGEST or "\0" in value:
            raise Usage(
                f"{name} is longer than {LONGEST} characters, or holds a NUL", "say it in fewer words"
            )
        return value

    def number(self, name: str) -> int | None:
        """Return an integer or None. Raises Usage."""
        value = self.option(name)
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            raise Usage(f"{name}: {value!r} is not a number", "give a whole number, such as 3")
        return int(value)

    def limits(self, sign: str = "") -> dict[str, str]:
        """Return the amounts of a budget, a number with the `sign`. Raises Usage."""
        amounts = [(key, self.option(key)) for key in BUDGET_OPTIONS]
        return {key: f"{sign if text[0].isdigit() else ''}{text}" for key, text in amounts if text}


def parse_form(body: bytes) -> Form:
    """Parse a form. Raises Usage for too many fields."""
    try:
        pairs = parse_qsl(body.decode("ascii", "replace"), errors="replace", max_num_fields=_FIELDS)
    except ValueError:
        raise Usage(f"the form has more than {_FIELDS} fields", "send it from the page") from None
    return Form({name: value for name, value in pairs if value.strip()}, pairs)
