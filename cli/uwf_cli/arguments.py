"""Texts given on the command line, in a file or on standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uwf_cli import terminal
from uwf_git.errors import Invalid, NotFound, Usage
from uwf_git.text import nearest

STDIN = "-"
LARGEST = 32 << 20
ADVISED = 1 << 20


def read_stdin(what: str) -> str:
    """All of standard input. Raises Usage on a terminal, Invalid for what is no UTF-8."""
    if sys.stdin is None:
        raise Usage(f"the {what} is read from standard input, which is closed", "pipe it in")
    if terminal.is_terminal(sys.stdin):
        raise Usage(f"the {what} is read from standard input, which is a terminal", "pipe it in")
    return _text(sys.stdin.buffer.read(LARGEST + 1), what)


def read_file(name: str, what: str) -> str:
    """A file's text; `-` is standard input. Raises NotFound, Invalid."""
    if name == STDIN:
        return read_stdin(what)
    path = Path(name)
    try:
        with path.open("rb") as file:
            return _text(file.read(LARGEST + 1), f"{what} in {name}")
    except FileNotFoundError:
        try:
            siblings = [entry.name for entry in path.parent.iterdir()]
        except OSError:
            siblings = []
        raise NotFound(f"no file {name}", nearest(path.name, siblings)) from None
    except IsADirectoryError:
        raise Invalid(f"{name} is a folder, not a file", "") from None
    except OSError as error:
        raise Invalid(f"{name} can't be read: {error.strerror}", "check its permissions") from None


def json_value(text: str) -> Any:
    """The JSON value of an argument; `-` reads it from standard input. Raises Invalid."""
    from uwf_git.values.node import parse_json

    return parse_json(read_stdin("JSON") if text == STDIN else text)


def limits(given: Mapping[str, str | None]) -> dict[str, float]:
    """The budget that the options --max-steps, --max-tokens, --max-cost and --max-time give, by the names of
    click. Raises Usage."""
    from uwf_git.engine.budget import OPTIONS, parse_option

    names = {key: option.lstrip("-").replace("-", "_") for key, option in OPTIONS.items()}
    return {key: parse_option(key, text) for key, name in names.items() if (text := given[name]) is not None}


def _text(data: bytes, what: str) -> str:
    if len(data) > LARGEST:
        raise Invalid(f"the {what} is larger than {LARGEST >> 20} MiB", "put it into a file and name that")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"the {what} is not UTF-8", "convert it: iconv -t utf-8") from None
